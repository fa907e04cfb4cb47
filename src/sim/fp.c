/* Rounding to the device's formats, the PRNG, and the ordering operations (tile fact sheet 2.5 to
 * 2.7). Stochastic rounding adds random bits below the last kept place of the magnitude and
 * truncates. For halves lane i takes 16 bits of word 0 (field i) and 8 more of word 1; for quarters
 * a byte of each. */
#include "sim/fp.h"

static uint64_t rotl(uint64_t x, int n) {
    return x << n | x >> (64 - n);
}

static uint64_t prng_next(uint64_t s[2]) {
    uint64_t both = s[0] & s[1], t = s[0] ^ s[1];
    uint64_t out = t ^ (rotl(both, 1) | rotl(both, 2));

    s[0] = rotl(s[0], 55) ^ t ^ t << 14;
    s[1] = rotl(t, 36);
    return out;
}

void prng_words(uint64_t state[2], uint64_t ret[2]) {
    ret[0] = prng_next(state);
    ret[1] = prng_next(state);
}

/* 24 random bits of a lane. */
static uint32_t lane_bits(const struct fp *f, int lane) {
    return (uint32_t)(f->rnd[0] >> 16 * lane & 0xFFFFu) | (uint32_t)(f->rnd[1] >> 8 * lane & 0xFFu)
                                                              << 16;
}

/* 16 random bits of one of eight lanes, for results in quarter precision. */
static uint32_t lane_bits8(const struct fp *f, int lane) {
    return (uint32_t)(f->rnd[0] >> 8 * lane & 0xFFu) | (uint32_t)(f->rnd[1] >> 8 * lane & 0xFFu)
                                                           << 8;
}

uint32_t f16_overflow(struct fp *f, bool is_negative) {
    f->flags |= FP_OFLO;
    if (f->nanoo) {
        f->flags |= FP_INV;
        return FP_NAN16;
    }
    return (is_negative ? 0x8000u : 0) | FP_MAX16;
}

uint32_t f16_nearest(struct fp *f, double v) {
    uint64_t bits;
    uint32_t sign, h;

    if (v != v) {
        return FP_NAN16;
    }
    memcpy(&bits, &v, sizeof bits);
    sign = (uint32_t)(bits >> 48) & 0x8000u;
    bits &= ~((uint64_t)1 << 63);
    if (bits < (uint64_t)(1023 - 14) << 52) { /* a denormal, or rounds to the smallest normal */
        h = (uint32_t)(int32_t)rint(fabs(v) * 0x1p24);
        return sign | h;
    }
    bits += ((uint64_t)1 << 41) - 1 + (bits >> 42 & 1);
    bits = (bits >> 42) - ((uint64_t)(1023 - 15) << 10);
    return bits > FP_MAX16 ? f16_overflow(f, sign != 0) : sign | (uint32_t)bits;
}

/* A single-precision pattern to half, stochastically. */
static uint32_t f16_stochastic(struct fp *f, uint32_t bits, uint32_t rnd) {
    uint32_t sign = bits >> 16 & 0x8000u, h;
    int exponent = (int)(bits >> 23 & 0xFF) - 127, drop = 13;
    uint32_t mantissa = (bits & 0x7FFFFFu) | 0x800000u;

    if ((bits & 0x7F800000u) == 0) {
        return sign;
    }
    if (exponent < -14) {
        drop += -14 - exponent;
        if (drop > 24) {
            return sign; /* below half of the smallest denormal */
        }
    }
    mantissa += rnd & ((1u << drop) - 1);
    h = mantissa >> drop;
    if (exponent >= -14) {
        h += (uint32_t)(exponent + 14) << 10; /* the leading one adds the last exponent unit */
    }
    return h > FP_MAX16 ? f16_overflow(f, sign != 0) : sign | h;
}

uint32_t f16_out(struct fp *f, double v, int lane) {
    uint32_t flags = f->flags, bits;

    if (!f->esr || v != v) {
        return f16_nearest(f, v);
    }
    bits = f32_out(f, v);
    f->flags = flags; /* overflow is judged in half */
    if ((bits & 0x7F800000u) == 0x7F800000u) {
        return f16_overflow(f, v < 0);
    }
    return f16_stochastic(f, bits, lane_bits(f, lane));
}

uint32_t f16_from_f32_bits(struct fp *f, uint32_t x, int lane) {
    if ((x & 0x7F800000u) == 0x7F800000u) {
        if (!f32_is_nan(x) || f32_is_snan(x)) {
            f->flags |= FP_INV;
        }
        return FP_NAN16;
    }
    return f16_out(f, f32_in(x), lane);
}

/* ---- quarter --------------------------------------------------------------------------------- */

static uint32_t f8_overflow(struct fp *f, bool is_negative) {
    f->flags |= FP_OFLO;
    if (f->nanoo) {
        f->flags |= FP_INV;
        return FP_NAN8;
    }
    return is_negative ? 0xFFu : 0x7Fu;
}

uint32_t f8_out(struct fp *f, double v, bool is_143, int lane) {
    int mant_bits = is_143 ? 3 : 2, bias = is_143 ? 8 : 16, exponent;
    double magnitude = fabs(v), units;
    uint32_t code;

    if (v != v) {
        return FP_NAN8;
    }
    if (v == 0) {
        return 0;
    }
    exponent = ilogb(magnitude);
    if (exponent < 1 - bias) {
        exponent = 1 - bias;
    }
    units = ldexp(magnitude, mant_bits - exponent); /* in units of the last place */
    if (f->esr) {
        /* Places dropped of the eleven of a half; with all of them gone the value is below half
         * of the smallest denormal and goes to zero. */
        int drop = 10 - mant_bits + (exponent - ilogb(magnitude));
        uint32_t r = lane_bits8(f, lane) & ((1u << (drop > 11 ? 0 : drop)) - 1);
        code = drop > 11 ? 0 : (uint32_t)floor(units + ldexp((double)r, -drop));
    } else {
        code = (uint32_t)rint(units);
    }
    code += (uint32_t)(exponent + bias - 1) << mant_bits; /* the leading one is the last unit */
    if (code > 0x7F) {
        return f8_overflow(f, v < 0);
    }
    return code == 0 ? 0 : code | (v < 0 ? 0x80u : 0);
}

/* ---- order ----------------------------------------------------------------------------------- */

/* Smaller of two numbers, -0 before +0. */
static bool is_less(double x, double y) {
    return x < y || (x == y && signbit(x) && !signbit(y));
}

/* minNum and maxNum: a quiet NaN loses to a number, a signalling one is invalid. */
static uint32_t f32_pick(struct fp *f, uint32_t x, uint32_t y, bool want_max) {
    if (f32_is_snan(x) || f32_is_snan(y)) {
        f->flags |= FP_INV;
        return FP_NAN32;
    }
    if (f32_is_nan(x)) {
        return f32_is_nan(y) ? FP_NAN32 : f32_flush(y);
    }
    if (f32_is_nan(y)) {
        return f32_flush(x);
    }
    return f32_flush(is_less(f32_in(x), f32_in(y)) == want_max ? y : x);
}

uint32_t f32_min(struct fp *f, uint32_t x, uint32_t y) {
    return f32_pick(f, x, y, false);
}

uint32_t f32_max(struct fp *f, uint32_t x, uint32_t y) {
    return f32_pick(f, x, y, true);
}

static uint32_t f16_pick(struct fp *f, uint32_t x, uint32_t y, bool want_max) {
    if (f16_is_snan(x) || f16_is_snan(y)) {
        f->flags |= FP_INV;
        return FP_NAN16;
    }
    if (f16_is_nan(x)) {
        return f16_is_nan(y) ? FP_NAN16 : y;
    }
    if (f16_is_nan(y)) {
        return x;
    }
    return is_less(f16_ordered(x), f16_ordered(y)) == want_max ? y : x;
}

uint32_t f16_min(struct fp *f, uint32_t x, uint32_t y) {
    return f16_pick(f, x, y, false);
}

uint32_t f16_max(struct fp *f, uint32_t x, uint32_t y) {
    return f16_pick(f, x, y, true);
}
