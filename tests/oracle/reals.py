"""Elementary functions to far more bits than any result format holds, in integer fixed point.

Every function takes a finite number of formats.py and returns one whose relative error is below
2^-100, so that rounding it once is correct rounding unless the true value lies that close to a
midpoint. Exact cases that can hit a midpoint (whole powers of two) are exact here.
"""
import math

from formats import FIN

BITS = 320                      # fixed point: integers count units of 2^-BITS
ONE = 1 << BITS


def fixed(x):
    m = x[2] << (x[3] + BITS) if x[3] + BITS >= 0 else x[2] >> -(x[3] + BITS)
    return -m if x[1] else m


def number(v, shift=0):
    """A fixed point value times 2^shift as a number."""
    return (FIN, int(v < 0), abs(v), shift - BITS)


def exp_small(v):
    """e^v of a fixed point v, |v| < 1."""
    total = term = ONE
    n = 1
    while term:
        term = term * v >> BITS if term * v >= 0 else -(-term * v >> BITS)
        term = term // n if term >= 0 else -(-term // n)
        total += term
        n += 1
    return total


def ln_fixed(v):
    """Natural logarithm of a fixed point v in [1/2, 2], by iteration on exp_small()."""
    y = int(math.log(v / ONE) * (1 << 60)) << (BITS - 60)
    for _ in range(4):
        t = exp_small(y)
        y += ((v - t) << (BITS + 1)) // (v + t)
    return y


LN2 = -ln_fixed(ONE >> 1)


def exp_parts(x):
    """e^x as (fixed point value in [1/2, 2], power of two)."""
    v = fixed(x)
    k = (2 * v + LN2) // (2 * LN2)
    return exp_small(v - k * LN2), k


def exp(x):
    v, k = exp_parts(x)
    return number(v, k)


def exp2(x):
    v = fixed(x)
    k = v >> BITS
    part = v - (k << BITS)
    return number(ONE if part == 0 else exp_small(part * LN2 >> BITS), k)


def log_parts(x):
    """x = f * 2^k with f in [1/2, 2) near one; its logarithm as (ln f, k)."""
    k = x[2].bit_length() + x[3]
    f = x[2] << (BITS - x[2].bit_length())          # [1/2, 1)
    if f * 3 < 2 * ONE:
        f, k = f << 1, k - 1
    return (0 if f == ONE else ln_fixed(f)), k


def ln(x):
    v, k = log_parts(x)
    return number(v + k * LN2)


def log2(x):
    v, k = log_parts(x)
    return number((v << BITS) // LN2 + (k << BITS))


def tanh(x):
    if x[2].bit_length() + x[3] < -30:
        # x - x^3/3 lies below x by less than 2^-60 of it.
        return (FIN, x[1], (x[2] << 70) - (x[2] << 8), x[3] - 70)
    if x[2].bit_length() + x[3] > 7:
        return (FIN, x[1], (1 << 100) - 1, -100)
    v, k = exp_parts((FIN, 0, x[2], x[3] + 1))
    p = v << k if k >= 0 else v >> -k
    r = ((p - ONE) << BITS) // (p + ONE)
    return number(-r if x[1] else r)


def logistic(x):
    """1 / (1 + e^-x) for |x| below 2^7."""
    v, k = exp_parts((FIN, 0, x[2], x[3]))
    p = v << k if k >= 0 else v >> -k
    r = (ONE << BITS) // (p + ONE)                  # of -|x|
    return number(r if x[1] else ONE - r)


def root_reciprocal(x):
    shift = 300 + (x[3] & 1)
    return (FIN, 0, math.isqrt((1 << 600) // (x[2] << (x[3] & 1))), -300 - (x[3] - (x[3] & 1)) // 2)
