"""Floating point forms on registers: arithmetic, comparison, conversion, random numbers.

Rules (fact sheet 2.5 to 2.8): single precision flushes denormals both ways; half precision keeps
them, rounds once and never yields an infinity, an infinity as an arithmetic operand counts as a
signalling NaN; a NaN result is the fixed one. With stochastic rounding enabled the forms that
narrow round to single precision first.
"""
import re

import reals
from formats import (DIV0, FIN, INF, INV, NAN, OFLO, QNAN, SNAN, compare, exact_product, exact_sum,
                     f16, f16_bits, f16_keep, f16_keep_bits, f32, f32_bits, f32_round, f8,
                     f8_byte, f8_overflows, half_stochastic, integer, is_nan, is_zero, magnitude,
                     negate, overflows16, quarter_stochastic, quotient, random_words, round_near,
                     scale, square_root)

NANOO, ESR = 1 << 20, 1 << 19
ARITHMETIC = re.compile(r"f(16|32)(v2|v4)?(absadd|add|sub|mul)$")
SELECTION = re.compile(r"f(16|32)(v2|v4)?(absmax|min|max|clamp|cmp(?:eq|ge|gt|le|lt|ne))$")
CLASS = re.compile(r"f(8|16|32)(?:v2|v4)?class$")
FUNCTION = re.compile(r"f(16|32)(?:v2)?(exp2|exp|ln|log2|tanh|sigm|sqrt|oox|oorx)$")


# ---- lanes ---------------------------------------------------------------------------------------

def lanes16(i, letter, count, convert=f16):
    """Half precision lanes of an operand, the low half of the first word first."""
    words, kind = i.words(letter), i.form.kind[letter]
    if kind in ("a:BL", "a:BU"):
        return [convert(words[0] >> (16 if kind == "a:BU" else 0) & 0xFFFF)] * count
    return [convert(word >> at & 0xFFFF) for word in words for at in (0, 16)][:count]


def lanes32(i, letter, count):
    words = i.words(letter)
    return [f32(word) for word in (words * count if i.form.kind[letter] == "a:B" else words)]


def write16(i, letter, bits):
    """Half precision results, two to a register."""
    i.write(letter, *[low | high << 16 for low, high in zip(bits[::2], bits[1::2])])


def control(i, bit):
    return i.machine.csr["FP_CTL"] & bit != 0


def advance(i):
    """Two steps of the context's generator."""
    csr = i.machine.csr
    words, s0, s1 = random_words(csr["PRNG_0_1"] << 32 | csr["PRNG_0_0"],
                                 csr["PRNG_1_1"] << 32 | csr["PRNG_1_0"])
    i.csr.update(PRNG_0_0=s0 & 0xFFFFFFFF, PRNG_0_1=s0 >> 32, PRNG_1_0=s1 & 0xFFFFFFFF,
                 PRNG_1_1=s1 >> 32)
    return words


def narrow(i, results):
    """Results that are exact or of single precision, as bits of half precision; flags."""
    if control(i, ESR):
        words = advance(i)
        results = [half_stochastic(f32_round(x), words, n) for n, x in enumerate(results)]
    nanoo = control(i, NANOO)
    if any(overflows16(x) for x in results):
        i.flags |= OFLO | (INV if nanoo else 0)
    return [f16_bits(x, nanoo) for x in results]


# ---- arithmetic ----------------------------------------------------------------------------------

def signalling(i, *operands):
    if any(x[0] == SNAN for x in operands):
        i.flags |= INV


def add(i, x, y):
    """Exact sum with the special cases of addition and their flags."""
    signalling(i, x, y)
    if is_nan(x) or is_nan(y):
        return NAN
    if x[0] == INF or y[0] == INF:
        if x[0] == y[0] and x[1] != y[1]:
            i.flags |= INV
            return NAN
        return x if x[0] == INF else y
    return exact_sum([x, y])


def multiply(i, x, y):
    signalling(i, x, y)
    if is_nan(x) or is_nan(y):
        return NAN
    if x[0] == INF or y[0] == INF:
        if is_zero(x) or is_zero(y):
            i.flags |= INV
            return NAN
        return (INF, x[1] ^ y[1], 0, 0)
    return exact_product(x, y)


def divide(i, x, y):
    signalling(i, x, y)
    if is_nan(x) or is_nan(y):
        return NAN
    if x[0] == y[0] == INF or is_zero(x) and is_zero(y):
        i.flags |= INV
        return NAN
    if x[0] == INF or y[0] == INF:
        return (x[0], x[1] ^ y[1], 0, 0)
    if is_zero(y):
        i.flags |= DIV0
        return (INF, x[1] ^ y[1], 0, 0)
    return quotient(x, y)


def operation(i, name, x, y):
    if name == "mul":
        return multiply(i, x, y)
    if name == "absadd":
        x, y = magnitude(x), magnitude(y)
    return add(i, x, negate(y) if name == "sub" else y)


def finish32(i, results):
    """Single precision results with the overflow flag."""
    for x in results:
        if x[0] == FIN and f32_round(x)[0] == INF:
            i.flags |= OFLO
    i.write("a", *[f32_bits(x) for x in results])


def arithmetic(i, width, count, name):
    if width == 16:
        pairs = zip(lanes16(i, "b", count), lanes16(i, "c", count))
        results = [operation(i, name, x, y) for x, y in pairs]
        write16(i, "a", narrow(i, results))
    else:
        pairs = zip(lanes32(i, "b", count), lanes32(i, "c", count))
        finish32(i, [operation(i, name, x, y) for x, y in pairs])


def larger(x, y):
    """maxNum: a number wins over a quiet NaN, a positive zero over a negative one."""
    if x[0] == SNAN or y[0] == SNAN or is_nan(x) and is_nan(y):
        return NAN
    if is_nan(x) or is_nan(y):
        return y if is_nan(x) else x
    order = compare(x, y)
    if order == 0:
        return y if x[1] else x
    return x if order > 0 else y


def smaller(x, y):
    r = larger(negate(x), negate(y))
    return r if is_nan(r) else negate(r)


RELATIONS = {"cmpeq": (0,), "cmpge": (0, 1), "cmpgt": (1,), "cmple": (-1, 0), "cmplt": (-1,),
             "cmpne": (-1, 1)}


def choose(i, name, x, y):
    """One lane of absmax, min, max or a comparison: a number, or whether the relation holds."""
    if name.startswith("cmp"):
        if is_nan(x) or is_nan(y):
            i.flags |= INV
            return name == "cmpne"
        return compare(x, y) in RELATIONS[name]
    signalling(i, x, y)
    if name == "absmax":
        return larger(magnitude(x), magnitude(y))
    return (larger if name == "max" else smaller)(x, y)


def clamp(x, low, high):
    if is_nan(x) or is_nan(low) or is_nan(high):
        return NAN
    return high if compare(x, high) > 0 else larger(x, low)


def selection(i, width, count, name):
    if width == 16:
        x, write = lanes16(i, "b", count, f16_keep), write16
        y = lanes16(i, "c", 2 if name == "clamp" else count, f16_keep)
        bits, truth = f16_keep_bits, 0xFFFF
    else:
        x = lanes32(i, "b", count)
        y = [f32(word) for word in i.words("c")]
        write, bits, truth = (lambda i, a, b: i.write(a, *b)), f32_bits, 0xFFFFFFFF
    if name == "clamp":
        signalling(i, *x, *y)
        results = [clamp(v, y[0], y[1]) for v in x]
    else:
        results = [choose(i, name, v, w) for v, w in zip(x, y)]
    if name.startswith("cmp"):
        write(i, "a", [truth if held else 0 for held in results])
    else:
        write(i, "a", [bits(v) for v in results])


def lateral(i, name):
    """Maximum or sum of neighbouring lanes."""
    if name.endswith("maxc"):
        x = lanes16(i, "b", 4 if "v4" in name else 2, f16_keep)
        signalling(i, *x)
        bits = [f16_keep_bits(larger(p, q)) for p, q in zip(x[::2], x[1::2])]
        i.write("a", sum(b << 16 * n for n, b in enumerate(bits)))
    else:
        x = lanes16(i, "b", 4 if "v4" in name else 2)
        i.write("a", *[f32_bits(add(i, p, q)) for p, q in zip(x[::2], x[1::2])])


def classify(i, width):
    """Only the codes of the NaNs are known: 1 signalling, 2 quiet. The other bytes come out 0 and
    i.class_mask tells which bits of the result are known."""
    if width == 8:
        f143 = i.machine.csr["FP_NFMT"] >> 1 & 1
        x = [f8(i.reg("b") >> at & 0xFF, f143) for at in (0, 8, 16, 24)]
    elif width == 16:
        x = lanes16(i, "b", 4 if "v4" in i.form.mnemonic else 2, f16_keep)
    else:
        x = [f32(word) for word in i.words("b")]
    i.write("a", sum({SNAN: 1, QNAN: 2}.get(v[0], 0) << 8 * n for n, v in enumerate(x)))
    i.class_mask = 0xFFFFFFFF & ~sum(0xFF << 8 * n for n, v in enumerate(x) if not is_nan(v))


# ---- conversions ---------------------------------------------------------------------------------

def signed_scale(i):
    x = i.machine.csr["FP_SCL"] & 0x3F
    return x - 64 if x & 0x20 else x


def widen_half(i):
    x = lanes16(i, "b", 1 if i.form.mnemonic == "f16tof32" else 2, f16_keep)
    signalling(i, *x)
    i.write("a", *[f32_bits(v) for v in x])


def single_to_half(i):
    x = [f32(word) for word in i.words("b")]
    if any(v[0] in (SNAN, INF) for v in x):
        i.flags |= INV
    bits = narrow(i, [NAN if v[0] == INF else v for v in x])
    write16(i, "a", bits * 2 if len(bits) == 1 else bits)


def quarter_to_half(i):
    count, nanoo = (2 if i.form.mnemonic == "f8v2tof16" else 4), control(i, NANOO)
    f143 = i.machine.csr["FP_NFMT"] >> 1 & 1
    x = [scale(f8(i.reg("b") >> 8 * n & 0xFF, f143), signed_scale(i)) for n in range(count)]
    signalling(i, *x)
    if any(overflows16(v) for v in x):
        i.flags |= OFLO | (INV if nanoo else 0)
    write16(i, "a", [f16_bits(v, nanoo) for v in x])


def half_to_quarter(i):
    f143, nanoo = i.machine.csr["FP_NFMT"] >> 1 & 1, control(i, NANOO)
    x = [v if is_nan(v) else scale(v, signed_scale(i))
         for v in lanes16(i, "b", 2 * len(i.words("b")))]
    signalling(i, *x)
    if control(i, ESR):
        words = advance(i)
        x = [quarter_stochastic(v, words, n, f143) for n, v in enumerate(x)]
    if any(f8_overflows(v, f143) for v in x):
        i.flags |= OFLO | (INV if nanoo else 0)
    codes = [f8_byte(v, f143, nanoo) for v in x] * (2 if len(x) == 2 else 1)
    i.write("a", *[sum(c << 8 * n for n, c in enumerate(codes[at:at + 4]))
                   for at in range(0, len(codes), 4)])


def to_integral(x, mode):
    """A finite number as an integer: magnitude. Modes: even, up, down, zero, away."""
    if x[3] >= 0:
        return x[2] << x[3]
    whole, rest = x[2] >> -x[3], x[2] & (1 << -x[3]) - 1
    half = 1 << -x[3] - 1
    if mode == 1 or mode == 2:
        return whole + (rest != 0 and x[1] == mode - 1)
    if mode == 3:
        return whole
    if mode == 4:
        return whole + (rest >= half)
    return whole + (rest > half or rest == half and whole & 1)


def round_integral(i):
    x = f32(i.reg("b"))
    signalling(i, x)
    if x[0] == FIN:
        x = (FIN, x[1], to_integral(x, i.v["c"] & 7), 0)
    i.write("a", f32_bits(x))


def single_to_integer(i):
    x, unsigned = f32(i.reg("b")), i.form.mnemonic == "f32toui32"
    low, high = (0, (1 << 32) - 1) if unsigned else (-(1 << 31), (1 << 31) - 1)
    value = None
    if x[0] == FIN:
        value = to_integral(x, 0) * (-1 if x[1] else 1)
    if value is None or not low <= value <= high:
        i.flags |= INV
        value = low
    i.write("a", value)


def integer_to_single(i):
    x = i.reg("b")
    if i.form.mnemonic == "f32fromi32" and x >> 31:
        x -= 1 << 32
    i.write("a", f32_bits(integer(x)))


def symmetric_unit(i):
    """Unsigned n bits to (2u - (2^n - 1)) / 2^(n+1)."""
    if i.form.mnemonic.startswith("f16"):
        x = [word >> at & 0xFFFF for word in i.words("b") for at in (0, 16)]
        write16(i, "a", [f16_bits(scale(integer(2 * u - 0xFFFF), -17), False) for u in x])
    else:
        i.write("a", *[f32_bits(scale(integer(2 * u - 0xFFFFFFFF), -33)) for u in i.words("b")])


# ---- elementary functions ------------------------------------------------------------------------

ULP = {"exp": 2, "exp2": 2, "ln": 2, "log2": 2, "tanh": 2, "oorx": 2, "sigm": 3}


def function_value(i, name, x):
    """One lane: the exact or very nearly exact value, special cases and flags."""
    signalling(i, x)
    if is_nan(x):
        return NAN
    if name in ("exp", "exp2"):
        if x[0] == INF or x[2].bit_length() + x[3] > 9:
            big = (FIN, 0, 1, 1000) if x[0] == FIN else (INF, 0, 0, 0)
            return (FIN, 0, int(x[0] == FIN), -1000) if x[1] else big
        return reals.exp(x) if name == "exp" else reals.exp2(x)
    if name in ("ln", "log2", "oorx") and is_zero(x):
        i.flags |= DIV0
        return (INF, x[1] if name == "oorx" else 1, 0, 0)
    if name in ("ln", "log2", "oorx", "sqrt") and x[1] and not is_zero(x):
        i.flags |= INV
        return NAN
    if name == "oox":
        if x[0] == INF or is_zero(x):
            i.flags |= DIV0 if x[0] == FIN else 0
            return (FIN if x[0] == INF else INF, x[1], 0, 0)
        return quotient((FIN, 0, 1, 0), x)
    if name == "tanh" and x[0] == INF:
        return (FIN, x[1], 1, 0)
    if name == "sigm":
        return logistic(x)
    if x[0] == INF:
        return (FIN, 0, 0, 0) if name == "oorx" else x
    if is_zero(x):
        return x
    return {"ln": reals.ln, "log2": reals.log2, "tanh": reals.tanh, "sqrt": square_root,
            "oorx": reals.root_reciprocal}[name](x)


def logistic(x):
    """Saturates by table: one half near zero, 0 below -104, 1 from 18 on."""
    if x[0] == INF or not is_zero(x) and compare(x, integer(18)) >= 0:
        return (FIN, 0, int(not x[1]), 0)
    if is_zero(x) or compare(magnitude(x), (FIN, 0, 1, -24)) < 0:
        return (FIN, 0, 1, -1)
    if compare(x, integer(-104)) < 0:
        return (FIN, 0, 0, 0)
    return reals.logistic(x)


def double_rounding(x):
    """Whether a half precision denormal would come out differently when rounded twice."""
    once = round_near(x[2], x[3], 11, -24)
    twice = round_near(*round_near(x[2], x[3], 11, -10000), 11, -24)
    return once[0] << max(0, once[1] + 24) != twice[0] << max(0, twice[1] + 24)


def function(i, width, name):
    if width == 16:
        x = [function_value(i, name, v) for v in lanes16(i, "b", 2)]
        nanoo = control(i, NANOO)
        if any(overflows16(v) for v in x):
            i.flags |= OFLO | (INV if nanoo else 0)
        i.ulp = 17 if name == "sigm" else int(any(v[0] == FIN and double_rounding(v) for v in x))
        write16(i, "a", [f16_bits(v, nanoo) for v in x])
    else:
        x = function_value(i, name, f32(i.reg("b")))
        i.ulp = ULP.get(name, 0)
        finish32(i, [x])


def quotient32(i):
    finish32(i, [divide(i, f32(i.reg("b")), f32(i.reg("c")))])


# ---- random numbers ------------------------------------------------------------------------------

def random_form(i):
    name, words = i.form.mnemonic, advance(i)
    if name.startswith("urand"):
        i.write("a", words[0], words[0] >> 32)
    elif name.endswith("grand"):
        sums = [sum(word >> 5 * n & 31 for n in range(12)) - 186 for word in words]
        x = [scale(integer(s), -5) for s in sums]
        if name == "f32v2grand":
            i.write("a", *[f32_bits(v) for v in x])
        else:
            write16(i, "a", [f16_bits(v, False) for v in x])
    else:
        mask_lanes(i, words, 16 if name == "f16v4rmask" else 32)


def mask_lanes(i, words, width):
    chance = i.reg("c") & 0x1FFFF
    source = sum(word << 32 * n for n, word in enumerate(i.words("b")))
    result = 0
    for lane in range(64 // width):
        draw = words[0] >> width * lane & 0xFFFF
        if chance >> 16 or draw < chance & 0xFFFF:
            result |= source & (1 << width) - 1 << width * lane
    i.write("a", result, result >> 32)


NAMED = {
    "f16tof32": widen_half, "f16v2tof32": widen_half, "f32tof16": single_to_half,
    "f32v2tof16": single_to_half, "f32v4tof16": single_to_half, "f8v2tof16": quarter_to_half,
    "f8v4tof16": quarter_to_half, "f16v2tof8": half_to_quarter, "f16v8tof8": half_to_quarter,
    "f32int": round_integral, "f32toi32": single_to_integer, "f32toui32": single_to_integer,
    "f32fromi32": integer_to_single, "f32fromui32": integer_to_single, "f32div": quotient32,
    "f16v2sufromui": symmetric_unit, "f16v4sufromui": symmetric_unit,
    "f32sufromui": symmetric_unit, "f32v2sufromui": symmetric_unit, "urand32": random_form,
    "urand64": random_form, "f16v2grand": random_form, "f32v2grand": random_form,
    "f16v4rmask": random_form, "f32v2rmask": random_form,
}


def run(i):
    """Executes the form if it is one of this file's; whether it was."""
    name = i.form.mnemonic
    if name in NAMED:
        NAMED[name](i)
    elif name.endswith(("v2sum", "v4sum", "maxc")):
        lateral(i, name)
    elif ARITHMETIC.match(name):
        width, lanes, what = ARITHMETIC.match(name).groups()
        arithmetic(i, int(width), int((lanes or "v1")[1]), what)
    elif SELECTION.match(name):
        width, lanes, what = SELECTION.match(name).groups()
        selection(i, int(width), int((lanes or "v1")[1]), what)
    elif CLASS.match(name):
        classify(i, int(CLASS.match(name).group(1)))
    elif FUNCTION.match(name):
        width, what = FUNCTION.match(name).groups()
        function(i, int(width), what)
    else:
        return False
    return True
