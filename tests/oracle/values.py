"""Random operand values: corners of each format mixed with random bits and mild numbers."""
import struct

F32_CORNERS = [
    0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007FFFFF, 0x807FFFFF, 0x00800000, 0x80800000,
    0x00800001, 0x3F800000, 0xBF800000, 0x3F7FFFFF, 0x3F800001, 0x3F000000, 0xBF000000, 0x3FC00000,
    0x40200000, 0xC0200000, 0x40000000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000,
    0xFFC00000, 0x7F800001, 0xFFBFFFFF, 0x7FD9C07E, 0x7FFFFFFF, 0x477FE000, 0x477FEFFF, 0x477FF000,
    0xC77FF000, 0x47800000, 0x33800000, 0x33000000, 0x33000001, 0xB3000000, 0x33C00000, 0x38800000,
    0x387FE000, 0x387FF000, 0x4B000000, 0x4B7FFFFF, 0x4B800000, 0x4EFFFFFF, 0x4F000000, 0xCF000000,
    0xCF000001, 0x4F7FFFFF, 0x4F800000, 0x42B17217, 0x42B17218, 0x42B20000, 0xC2AEAC50, 0xC2AEAC4F,
    0xC2CFF1B5, 0x43000000, 0x42FFFFFF, 0xC2FC0000, 0xC2FC0001, 0x41900000, 0x418FFFFF, 0xC2D00000,
    0xC2D00001, 0x33FFFFFF, 0x40490FDB, 0x402DF854, 0x7E800000, 0x7E7FFFFF, 0x00FFFFFF, 0x1FFFFFFF]
F16_CORNERS = [
    0x0000, 0x8000, 0x0001, 0x8001, 0x0002, 0x03FF, 0x83FF, 0x0400, 0x8400, 0x0401, 0x07FF, 0x3C00,
    0xBC00, 0x3BFF, 0x3C01, 0x3800, 0x3E00, 0x4100, 0x7BFF, 0xFBFF, 0x7BFE, 0x7800, 0x7400, 0x7C00,
    0xFC00, 0x7E00, 0xFE00, 0x7C01, 0xFDFF, 0x7ECE, 0x7FFF, 0x498B, 0x498C, 0x4C00, 0xCC2A, 0xCC29,
    0xCE40, 0xCE00, 0x5C00, 0xD800, 0x1000, 0x6400]
INT_CORNERS = [0, 1, 2, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFF, 0xFFFF, 0x10000, 0x8000,
               0x7FFF, 0xFFFF8000, 0x55555555, 0xAAAAAAAA, 31, 32, 33, 0xFFFFFFFE, 0xFF00FF00]


def bits32(x):
    return struct.unpack("<I", struct.pack("<f", x))[0]


def single(rng):
    """One single precision operand."""
    kind = rng.random()
    if kind < 0.3:
        return rng.choice(F32_CORNERS)
    if kind < 0.45:
        return rng.getrandbits(32)
    if kind < 0.6:
        return bits32(rng.choice([-1, 1]) * rng.randrange(0, 4096) / 64)
    return rng.getrandbits(1) << 31 | rng.randrange(110, 145) << 23 | rng.getrandbits(23)


def half(rng):
    kind = rng.random()
    if kind < 0.3:
        return rng.choice(F16_CORNERS)
    if kind < 0.55:
        return rng.getrandbits(16)
    return rng.getrandbits(1) << 15 | rng.randrange(8, 24) << 10 | rng.getrandbits(10)


def halves(rng):
    """Two lanes; half of the time mild ones, so that one corner does not hide the other lane."""
    return half(rng) | (half(rng) if rng.random() < 0.5 else mild_half(rng)) << 16


def mild_single(rng):
    """A finite number of moderate size."""
    return rng.getrandbits(1) << 31 | rng.randrange(115, 140) << 23 | rng.getrandbits(23)


def mild_half(rng):
    return rng.getrandbits(1) << 15 | rng.randrange(6, 24) << 10 | rng.getrandbits(10)


def whole(rng):
    kind = rng.random()
    if kind < 0.35:
        return rng.choice(INT_CORNERS)
    if kind < 0.5:
        return rng.randrange(0, 300) * rng.choice([1, -1]) & 0xFFFFFFFF
    return rng.getrandbits(rng.randrange(1, 33))


def quarters(rng):
    """Four codes, ERROR among them rarely."""
    codes = [rng.getrandbits(8) for _ in range(4)]
    if rng.random() < 0.8:
        codes = [c if c != 0x80 else 0 for c in codes]
    return sum(c << 8 * n for n, c in enumerate(codes))


def accumulator(rng):
    kind = rng.random()
    if kind < 0.12:
        return rng.choice(F32_CORNERS)
    if kind < 0.2:
        return single(rng)
    return mild_single(rng)
