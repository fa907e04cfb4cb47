"""Accumulator forms: multiply-accumulate, get and initialise, permuters, matrix products.

Accumulators hold single precision bits; every sum into one rounds to single precision and
flushes. Dot products of half and quarter precision are taken exactly and rounded once before the
sum (the assumption of the fact sheet; the silicon's routine is not public). The immediates of the
matrix forms follow the assumption `amp-imm`, the set bit of gina `gina-imm`.
"""
import re

from floats import (ESR, NANOO, advance, control, lanes16, multiply, signalling, signed_scale,
                    write16)
from formats import (INF, INV, NAN, OFLO, exact_product, exact_sum, f8, f16, f16_bits, f32,
                     f32_bits, f32_round, half_stochastic, is_nan, is_zero, magnitude, overflows16,
                     scale)

MATRIX = re.compile(r"f(8|16|32)(?:v\d)?(siso|hiho|sisov2|hihov4)(amp|slic)$")
ACCUMULATE = re.compile(r"f(16|32)v(4|8)(abs|sq)?acc$")


def add32(x, y):
    """Sum of two numbers flushed and rounded to single precision, without flags."""
    x, y = f32_round(x), f32_round(y)
    if is_nan(x) or is_nan(y) or x[0] == y[0] == INF and x[1] != y[1]:
        return NAN
    if x[0] == INF or y[0] == INF:
        return x if x[0] == INF else y
    return f32_round(exact_sum([x, y]))


def product32(x, y):
    """Product rounded to single precision, without flags."""
    if is_nan(x) or is_nan(y) or INF in (x[0], y[0]) and (is_zero(x) or is_zero(y)):
        return NAN
    if INF in (x[0], y[0]):
        return (INF, x[1] ^ y[1], 0, 0)
    return f32_round(exact_product(x, y))


def dot(x, y, power=0):
    """Inner product of half or quarter precision lanes: exact, then one rounding."""
    if any(is_nan(v) for v in x + y):
        return NAN
    return f32_round(scale(exact_sum([exact_product(p, q) for p, q in zip(x, y)]), power))


def accumulator(i, n):
    return f32(i.machine.acc[n])


def put(i, n, x):
    i.acc[n] = f32_bits(x)


# ---- reading accumulators ------------------------------------------------------------------------

def read_flags(i, values, half):
    """An infinity is taken for an overflow that nobody saw."""
    nanoo = control(i, NANOO)
    for x in values:
        if x[0] == INF:
            i.flags |= OFLO | (INV if half else 0)
        elif half and overflows16(x):
            i.flags |= OFLO | (INV if nanoo else 0)


def read_half(i, letter, values, rounding):
    """Accumulators as half precision results."""
    if rounding and control(i, ESR):
        words = advance(i)
        values = [half_stochastic(x, words, n) for n, x in enumerate(values)]
    read_flags(i, values, True)
    write16(i, letter, [f16_bits(NAN if x[0] == INF else x, control(i, NANOO)) for x in values])


def read_single(i, letter, values):
    read_flags(i, values, False)
    i.write(letter, *[f32_bits(x) for x in values])


def gather(i):
    read_half(i, "a", [accumulator(i, n) for n in (0, 2, 4, 6)], True)


def get_and_initialise(i):
    """Set and parity from the immediate; the chain moves down by four."""
    half, immediate = i.form.mnemonic == "f16v2gina", i.v["c"]
    base = 16 * (immediate >> 1 & 1) + (immediate & 1)
    inputs = lanes16(i, "b", 2) if half else [f32(word) for word in i.words("b")]
    signalling(i, *inputs)
    for first in (base, base + 2):
        for n in (first, first + 4, first + 8):
            i.acc[n] = i.machine.acc[n + 4]
    put(i, base + 12, inputs[0])
    put(i, base + 14, inputs[1])
    values = [accumulator(i, base), accumulator(i, base + 2)]
    if half:
        read_half(i, "a", values, True)
    else:
        read_single(i, "a", values)


def permute(i):
    """istacc and stacc: raw words through the accumulators."""
    acc, phase = i.machine.acc, i.v["d" if "d" in i.form.kind else "b"] & 1
    if i.form.mnemonic == "f16v4istacc":
        i.write("a", acc[1], acc[3])
        low, high = [[w >> at & 0xFFFF for w in i.words(x) for at in (0, 16)] for x in "bc"]
        if phase == 0:
            i.acc.update({1: acc[5], 3: acc[7]})
        i.acc.update({2 * phase + 4 * n: high[n] << 16 | low[n] for n in range(4)})
    elif phase == 0:
        i.write("a", acc[0], acc[2])
        i.acc.update({1: acc[4], 5: acc[8], 9: acc[12], 3: acc[6], 7: acc[10], 11: acc[14]})
    else:
        i.write("a", acc[1], acc[3])
        i.acc.update({1: acc[5], 5: acc[9], 3: acc[7], 7: acc[11]})


# ---- accumulating --------------------------------------------------------------------------------

def accumulate(i, width, how):
    x = lanes16(i, "a", 2 * len(i.words("a"))) if width == 16 else [f32(w) for w in i.words("a")]
    signalling(i, *x)
    for n, v in enumerate(x):
        old = accumulator(i, 2 * n)
        if how == "abs":
            v, old = magnitude(v), magnitude(old)
        elif how == "sq":
            v = product32(v, v)
        put(i, 2 * n, add32(v, old))


def multiply_accumulate(i):
    """f32mac, f32v2mac and the outer product: flags of the factors only."""
    x, y = ([f32(word) for word in i.words(letter)] for letter in "ab")
    if i.form.mnemonic == "f32v2aop":
        x, y = x * 2, [y[0], y[0], y[1], y[1]]
    for n, (p, q) in enumerate(zip(x, y)):
        multiply(i, p, q)
        put(i, 2 * n, add32(product32(p, q), accumulator(i, 2 * n)))


def half_multiply_accumulate(i):
    count = 4 if i.form.mnemonic == "f16v4cmac" else 2
    x, y = lanes16(i, "a", count), lanes16(i, "b", count)
    signalling(i, *x, *y)
    for n in range(0, count, 2):
        put(i, n, add32(accumulator(i, n), dot(x[n:n + 2], y[n:n + 2])))


def scale_and_add(i):
    """TAS * x + y of single precision; the old accumulators come out."""
    factor = f32(i.machine.csr["TAS"])
    x, y = ([f32(word) for word in i.words(letter)] for letter in "cb")
    for n, (p, q) in enumerate(zip(x, y)):
        multiply(i, factor, p)
        signalling(i, q)
        put(i, 2 * n, add32(product32(factor, p), q))
    read_single(i, "a", [accumulator(i, 0), accumulator(i, 2)])


def mix(i):
    """TAS.low * x + TAS.high * y of half precision; the old accumulators come out."""
    tas = i.machine.csr["TAS"]
    factors = [f16(tas & 0xFFFF), f16(tas >> 16)]
    x, y = lanes16(i, "b", 4), lanes16(i, "c", 4)
    signalling(i, *factors, *x, *y)
    for n in range(4):
        put(i, 2 * n, dot(factors, [x[n], y[n]]))
    read_half(i, "a", [accumulator(i, n) for n in (0, 2, 4, 6)], True)


# ---- matrix products -----------------------------------------------------------------------------

def fields(width, kind, immediate):
    """Phase, engines, weight set: the assumption `amp-imm`."""
    phase_bits = {"amp": {8: 2, 16: 2, 32: 3}, "slic": {8: 0, 16: 0, 32: 1}}[kind][width]
    phase = immediate & (1 << phase_bits) - 1
    return phase, 1 + (immediate >> phase_bits & 3), immediate >> phase_bits + 2 & 3


def partial_inputs(i, half):
    """New partial sums as accumulator bits; a NaN becomes the fixed one."""
    if half:
        x = lanes16(i, "c", 2 * len(i.words("c")))
    else:
        x = [f32(word) for word in i.words("c")]
    signalling(i, *x)
    return [f32_bits(v) for v in x]


def coefficients(i, width, k, entry):
    """Lanes of a unit's coefficient word."""
    word = i.machine.cwei[4 * k + entry]
    if width == 16:
        return [f16(word >> 16 * n & 0xFFFF) for n in range(4)]
    return [f8(word >> 8 * n & 0xFF, i.machine.csr["FP_NFMT"] & 1) for n in range(8)]


def inputs(i, width):
    if width == 16:
        return lanes16(i, "b", 4)
    f143 = i.machine.csr["FP_NFMT"] >> 1 & 1
    return [f8(word >> at & 0xFF, f143) for word in i.words("b") for at in (0, 8, 16, 24)]


def matrix_narrow(i, width, shape, kind):
    """Half and quarter precision products: four or eight channels an issue and unit."""
    phase, engines, weights = fields(width, kind, i.v["d"])
    half, sets = shape != "siso", 2 if shape == "hihov4" else 1
    acc, x, partials = i.machine.acc, inputs(i, width), partial_inputs(i, half)
    signalling(i, *x)
    odd = int(kind == "amp" and phase != 0)
    out = [f32(acc[16 * s + 2 * u + odd]) for s in range(sets) for u in range(2)]
    for k in (8 * s + u for s in range(sets) for u in range(2 * engines)):
        y = coefficients(i, width, k, phase if kind == "amp" else weights)
        signalling(i, *y)
        last = (k & 7) >= 2 * engines - 2
        fresh = partials[2 * (k >> 3) + (k & 1)]
        old = acc[2 * k + 1] if phase == 0 else acc[2 * k]
        if kind == "slic":
            old = fresh if last else acc[2 * (k + 2)]
        else:
            i.acc[2 * k + 1] = fresh if last else acc[2 * (k + 2) + odd]
        product = dot(x, y, signed_scale(i) if width == 8 else 0)
        put(i, 2 * k, add32(f32(old), product))
    if half:
        read_half(i, "a", out, False)
    else:
        read_single(i, "a", out)


def matrix_single(i, shape, kind):
    """Single precision products: one channel an issue; the second set runs one issue behind."""
    phase, engines, weights = fields(32, kind, i.v["d"])
    sets, acc, tas = 2 if shape == "sisov2" else 1, i.machine.acc, i.machine.csr["TAS"]
    partials, x = partial_inputs(i, False), f32(i.reg("b"))
    signalling(i, x)
    if sets == 2:
        signalling(i, f32(tas))
    speaker = phase & 1 if sets == 2 else 0
    odd = int(kind == "amp" and phase != speaker)
    out = [f32(acc[16 * speaker + 2 * u + odd]) for u in range(2)]
    for k in (8 * s + u for s in range(sets) for u in range(2 * engines)):
        s = k >> 3
        local = phase - s & (7 if kind == "amp" else 1)
        word = i.machine.cwei[4 * k + (local >> 1 if kind == "amp" else weights)]
        y = f32(word >> 32 * (local & 1) & 0xFFFFFFFF)
        factor = f32(tas) if s else x
        multiply(i, factor, y)
        last, fresh = (k & 7) >= 2 * engines - 2, partials[k & 1]
        first = phase == s
        if kind == "slic":
            old = (fresh if last else acc[2 * (k + 2)]) if first else acc[2 * k]
        else:
            old = acc[2 * k + 1] if first else acc[2 * k]
            if phase & 1 == s:
                i.acc[2 * k + 1] = fresh if last else acc[2 * (k + 2) + (not first)]
        put(i, 2 * k, add32(f32(old), product32(factor, y)))
    if sets == 2:
        word = i.reg("b")
        i.csr["TAS"] = word if word & 0x7F800000 else word & 0x80000000
    read_single(i, "a", out)


NAMED = {
    "f16v4gacc": gather, "f16v2gina": get_and_initialise, "f32v2gina": get_and_initialise,
    "f16v4istacc": permute, "f16v4stacc": permute, "f32mac": multiply_accumulate,
    "f32v2mac": multiply_accumulate, "f32v2aop": multiply_accumulate,
    "f16v2cmac": half_multiply_accumulate, "f16v4cmac": half_multiply_accumulate,
    "f32v2axpy": scale_and_add, "f16v4mix": mix,
}


def run(i):
    """Executes the form if it is one of this file's; whether it was."""
    name = i.form.mnemonic
    if name in NAMED:
        NAMED[name](i)
    elif ACCUMULATE.match(name):
        width, _, how = ACCUMULATE.match(name).groups()
        accumulate(i, int(width), how)
    elif MATRIX.match(name):
        width, shape, kind = MATRIX.match(name).groups()
        if width == "32":
            matrix_single(i, shape, kind)
        else:
            matrix_narrow(i, int(width), shape, kind)
    else:
        return False
    return True
