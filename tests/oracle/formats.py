"""Number formats of the tile: decoding, exact arithmetic, one correct rounding.

A number is a tuple (kind, sign, m, e). Finite numbers (FIN) have the value (-1)^sign * m * 2^e with
integers m >= 0 and e, so sums and products are exact; INF, QNAN and SNAN carry no magnitude. All
rounding goes through round_near() or, for quotients and roots, through the same function with a
sticky bit appended.
"""
from math import isqrt

FIN, INF, QNAN, SNAN = range(4)
INV, DIV0, OFLO = 1, 2, 4          # flag bits of FP_STS, FP_CTL and FP_CLR
QNAN32, QNAN16 = 0x7FD9C07E, 0x7ECE
NAN = (QNAN, 0, 0, 0)
MASK32 = 0xFFFFFFFF


def is_nan(x):
    return x[0] >= QNAN


def is_zero(x):
    return x[0] == FIN and x[2] == 0


def integer(value):
    """An exact integer as a number."""
    return (FIN, int(value < 0), abs(value), 0)


def negate(x):
    return (x[0], x[1] ^ 1, x[2], x[3])


def magnitude(x):
    return (x[0], 0, x[2], x[3])


def scale(x, by):
    return (x[0], x[1], x[2], x[3] + by)


# ---- decoding ------------------------------------------------------------------------------------

def decode(bits, exponent, mantissa, bias):
    """A format with IEEE meaning of the largest exponent."""
    sign = bits >> (exponent + mantissa) & 1
    field = bits >> mantissa & (1 << exponent) - 1
    m = bits & (1 << mantissa) - 1
    if field == (1 << exponent) - 1:
        if m == 0:
            return (INF, sign, 0, 0)
        return (QNAN if m >> (mantissa - 1) else SNAN, sign, 0, 0)
    if field == 0:
        return (FIN, sign, m, 1 - bias - mantissa)
    return (FIN, sign, m | 1 << mantissa, field - bias - mantissa)


def f32(bits):
    """Single precision as an operand: denormals are zeros of their sign."""
    x = decode(bits, 8, 23, 127)
    if bits & 0x7F800000 == 0:
        return (FIN, x[1], 0, 0)
    return x


def f16(bits):
    """Half precision as an arithmetic operand: an infinity is a signalling NaN."""
    x = decode(bits, 5, 10, 15)
    return (SNAN, x[1], 0, 0) if x[0] == INF else x


def f16_keep(bits):
    """Half precision as an operand of comparisons and conversions: an infinity is one."""
    return decode(bits, 5, 10, 15)


def f8(byte, f143):
    """Quarter precision; the ERROR code is a signalling NaN, every other code a number."""
    if byte == 0x80:
        return (SNAN, 0, 0, 0)
    mantissa, bias = (3, 8) if f143 else (2, 16)
    field = (byte & 0x7F) >> mantissa
    m = byte & (1 << mantissa) - 1
    if field == 0:
        return (FIN, byte >> 7, m, 1 - bias - mantissa)
    return (FIN, byte >> 7, m | 1 << mantissa, field - bias - mantissa)


# ---- exact arithmetic on finite numbers ----------------------------------------------------------

def exact_sum(terms):
    """Sum of finite numbers; a zero sum is negative only where every term is a negative zero."""
    e = min(t[3] for t in terms)
    total = sum((-t[2] if t[1] else t[2]) << (t[3] - e) for t in terms)
    if total == 0:
        return (FIN, int(all(t[1] and t[2] == 0 for t in terms)), 0, e)
    return (FIN, int(total < 0), abs(total), e)


def exact_product(x, y):
    return (FIN, x[1] ^ y[1], x[2] * y[2], x[3] + y[3])


def quotient(x, y):
    """x / y to 80 bits with a sticky bit: enough for one correct rounding to 24."""
    shift = max(0, 80 - x[2].bit_length() + y[2].bit_length())
    q, r = divmod(x[2] << shift, y[2])
    return (FIN, x[1] ^ y[1], q << 1 | int(r != 0), x[3] - y[3] - shift - 1)


def square_root(x):
    """Root of a positive number with a sticky bit."""
    shift = 120 + (x[3] & 1)
    m = x[2] << shift
    r = isqrt(m)
    return (FIN, 0, r << 1 | int(r * r != m), (x[3] - shift) // 2 - 1)


def compare(x, y):
    """-1, 0 or 1 of two numbers that are no NaNs."""
    def key(v, e):
        if v[0] == INF:
            return (-1 if v[1] else 1, 0)
        return (0, (-v[2] if v[1] else v[2]) << (v[3] - e))
    e = min([v[3] for v in (x, y) if v[0] == FIN], default=0)
    a, b = key(x, e), key(y, e)
    return (a > b) - (a < b)


# ---- rounding ------------------------------------------------------------------------------------

def round_near(m, e, precision, least):
    """m * 2^e to `precision` bits, unit in the last place not below 2^least, ties to even."""
    drop = max(m.bit_length() - precision, least - e)
    if m == 0 or drop <= 0:
        return m, e
    q, rest = m >> drop, m & (1 << drop) - 1
    half = 1 << drop - 1
    if rest > half or (rest == half and q & 1):
        q += 1
    return q, e + drop


def exceeds(m, e, limit):
    """m * 2^e > limit, an integer."""
    return (m << e) > limit if e >= 0 else m > limit << -e


def pack(sign, m, e, exponent, mantissa, bias):
    """Fields of a number that round_near() has brought into the format and that is in range."""
    if m == 0:
        return sign << (exponent + mantissa)
    while m.bit_length() <= mantissa and e > 1 - bias - mantissa:
        m, e = m << 1, e - 1
    while m.bit_length() > mantissa + 1 or e < 1 - bias - mantissa:
        m, e = m >> 1, e + 1
    field = 0 if m.bit_length() <= mantissa else e + bias + mantissa
    return sign << (exponent + mantissa) | field << mantissa | m & (1 << mantissa) - 1


MAX32 = (1 << 24) - 1 << 104


def f32_round(x):
    """To single precision: overflow becomes infinity, a denormal result a zero of its sign."""
    if x[0] != FIN:
        return x
    m, e = round_near(x[2], x[3], 24, -149)
    if exceeds(m, e, MAX32):
        return (INF, x[1], 0, 0)
    if m.bit_length() + e < -125:
        return (FIN, x[1], 0, 0)
    return (FIN, x[1], m, e)


def f32_bits(x):
    """Bits of a number rounded to single precision; every NaN is the fixed one."""
    x = f32_round(x)
    if is_nan(x):
        return QNAN32
    if x[0] == INF:
        return x[1] << 31 | 0x7F800000
    return pack(x[1], x[2], x[3], 8, 23, 127)


def overflows16(x):
    """Whether rounding to half precision overflows (infinities do not count here)."""
    return x[0] == FIN and exceeds(*round_near(x[2], x[3], 11, -10000), 65504)


def f16_bits(x, nanoo):
    """Bits as a half precision result: never an infinity."""
    if is_nan(x):
        return QNAN16
    if x[0] == INF or overflows16(x):
        return QNAN16 if nanoo else x[1] << 15 | 0x7BFF
    return pack(x[1], *round_near(x[2], x[3], 11, -24), 5, 10, 15)


def f16_keep_bits(x):
    """Bits of an exact half precision number or an infinity."""
    if x[0] == INF:
        return x[1] << 15 | 0x7C00
    return f16_bits(x, False)


def f8_range(f143):
    """Precision in bits, exponent of the smallest unit, largest number."""
    return (4, -10, 240) if f143 else (3, -17, 57344)


def f8_overflows(x, f143):
    precision, _, most = f8_range(f143)
    return x[0] == FIN and exceeds(*round_near(x[2], x[3], precision, -10000), most)


def f8_byte(x, f143, nanoo):
    """Code of a quarter precision result; there is no negative zero."""
    precision, least, _ = f8_range(f143)
    if x[0] != FIN:
        return 0x80
    if f8_overflows(x, f143):
        return 0x80 if nanoo else x[1] << 7 | 0x7F
    m, e = round_near(x[2], x[3], precision, least)
    if m == 0:
        return 0
    return pack(x[1], m, e, 4, 3, 8) if f143 else pack(x[1], m, e, 5, 2, 16)


# ---- random bits ---------------------------------------------------------------------------------

def stochastic(x, noise, width, precision, min_exponent, max_exponent):
    """Rounds x, a single precision number, by adding masked noise below the last place of the
    smaller format and cutting. `width` is the number of mantissa bits that the noise is aligned
    to (23 for single, 10 for half sources); exponents are those of normal numbers."""
    if x[0] != FIN:
        return x
    least = min_exponent - (precision - 1)     # exponent of the smallest denormal
    if x[2] == 0:
        return (FIN, x[1], 0, 0)
    exponent = x[2].bit_length() - 1 + x[3]
    if exponent >= min_exponent:
        length = width - (precision - 1)
    elif exponent >= least - 1:
        length = width + (least - exponent)
    else:
        length = width + 1
    # The significand with its leading one at bit 23, the noise at its place below.
    up = 24 - x[2].bit_length()
    significand = x[2] << up if up >= 0 else x[2] >> -up      # exact: x has 24 bits
    total = significand + ((noise & (1 << length) - 1) << (23 - width))
    carry = total >> 24
    cut = length + 23 - width
    kept = total >> cut << cut
    if exponent + carry < least:
        return (FIN, x[1], 0, 0)
    if exponent + carry > max_exponent:
        return (FIN, x[1], 1, max_exponent + 1)
    if carry:
        return (FIN, x[1], 1, exponent + 1)
    return (FIN, x[1], kept, exponent - 23)


def rotate(x, k):
    return (x << k | x >> (64 - k)) & (1 << 64) - 1


def random_words(s0, s1):
    """Two outputs of xoroshiro128aox and the state after two steps."""
    words = []
    for _ in range(2):
        carry = s0 & s1
        words.append(s0 ^ s1 ^ (rotate(carry, 1) | rotate(carry, 2)))
        t = s0 ^ s1
        s0 = rotate(s0, 55) ^ t ^ (t << 14 & (1 << 64) - 1)
        s1 = rotate(t, 36)
    return words, s0, s1


def half_noise(words, lane):
    return (words[0] >> 16 * lane & 0xFFFF) | (words[1] >> 8 * lane & 0xFF) << 16


def quarter_noise(words, lane):
    return (words[0] >> 8 * lane & 0xFF) | (words[1] >> 8 * lane & 7) << 8


def half_stochastic(x, words, lane):
    return stochastic(x, half_noise(words, lane), 23, 11, -14, 15)


def quarter_stochastic(x, words, lane, f143):
    if f143:
        return stochastic(x, quarter_noise(words, lane), 10, 4, -7, 7)
    return stochastic(x, quarter_noise(words, lane), 10, 3, -15, 15)
