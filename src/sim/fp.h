/* Floating-point rules shared by all instructions (tile fact sheet 2.5), as functions from bits to
 * bits. Values are computed in double and rounded once:
 *
 *   single   denormals in and out are zeros of their sign; overflow gives infinity and OFLO
 *   half     denormals kept; an infinity as arithmetic operand counts as signalling NaN; overflow
 *            saturates (OFLO) or, with FP_CTL.NANOO, gives the fixed NaN (OFLO, INV)
 *   quarter  no infinities, no negative zero; 0x80 is the one error code
 *   NaN      results are one fixed pattern per format, whatever came in
 *
 * struct fp collects what one instruction does besides its result: flags, and the two random
 * words of stochastic rounding. Nothing reaches the context before fp_done(), which also decides
 * whether the instruction traps. */
#ifndef SIM_FP_H
#define SIM_FP_H

#include <math.h>

#include "sim/tile.h"

#define FP_NAN32 0x7FD9C07Eu
#define FP_NAN16 0x7ECEu
#define FP_NAN8  0x80u
#define FP_MAX16 0x7BFFu

enum fp_flag { FP_INV = 1, FP_DIV0 = 2, FP_OFLO = 4 };

#define FP_CTL_ESR   (1u << 19)
#define FP_CTL_NANOO (1u << 20)

struct fp {
    uint32_t flags;
    bool nanoo;
    bool esr;         /* stochastic rounding for this instruction */
    uint64_t rnd[2];  /* random words, lane fields as in fp.c */
    uint64_t prng[2]; /* state to commit when esr */
};

/* For instructions that stochastic rounding does not touch. */
static inline struct fp fp_plain(const struct context *c) {
    struct fp f = {.nanoo = (c->fp_ctl & FP_CTL_NANOO) != 0};

    return f;
}

void prng_words(uint64_t state[2], uint64_t ret[2]); /* two outputs, two steps */

/* For the instructions that it does: draws the two words when FP_CTL.ESR is set. */
static inline struct fp fp_rounding(const struct context *c) {
    struct fp f = fp_plain(c);

    if ((c->fp_ctl & FP_CTL_ESR) != 0) {
        f.esr = true;
        f.prng[0] = c->prng[0];
        f.prng[1] = c->prng[1];
        prng_words(f.prng, f.rnd);
    }
    return f;
}

/* Sticky flags, trap, PRNG. Nonzero: the instruction traps and must not write. */
static inline int fp_done(struct context *c, const struct fp *f) {
    if (f->flags != 0) {
        c->fp_sts |= f->flags;
        if ((f->flags & c->fp_ctl & 7) != 0) {
            return ETYPE_FP;
        }
    }
    if (f->esr) {
        c->prng[0] = f->prng[0];
        c->prng[1] = f->prng[1];
    }
    return EXEC_OK;
}

/* ---- single ---------------------------------------------------------------------------------- */

static inline float bits_float(uint32_t bits) {
    float v;

    memcpy(&v, &bits, sizeof v);
    return v;
}

static inline uint32_t float_bits(float v) {
    uint32_t bits;

    memcpy(&bits, &v, sizeof bits);
    return bits;
}

static inline uint32_t f32_flush(uint32_t bits) {
    return (bits & 0x7F800000u) == 0 ? bits & 0x80000000u : bits;
}

static inline double f32_in(uint32_t bits) {
    return (double)bits_float(f32_flush(bits));
}

static inline bool f32_is_nan(uint32_t bits) {
    return (bits & 0x7FFFFFFFu) > 0x7F800000u;
}

static inline bool f32_is_snan(uint32_t bits) {
    return f32_is_nan(bits) && (bits & 0x00400000u) == 0;
}

static inline uint32_t f32_out(struct fp *f, double v) {
    uint32_t bits;

    if (v != v) {
        return FP_NAN32;
    }
    bits = float_bits((float)v);
    if ((bits & 0x7F800000u) == 0x7F800000u) {
        f->flags |= isinf(v) ? 0 : FP_OFLO;
        return bits;
    }
    return f32_flush(bits);
}

/* An operand that is stored as it comes: denormal flushed, NaN made the fixed one. */
static inline uint32_t f32_taken(struct fp *f, uint32_t bits) {
    if (f32_is_nan(bits)) {
        f->flags |= f32_is_snan(bits) ? FP_INV : 0;
        return FP_NAN32;
    }
    return f32_flush(bits);
}

/* Result v of an operation on x and y, where a NaN out of numbers is an invalid operation. */
static inline uint32_t f32_result2(struct fp *f, double v, uint32_t x, uint32_t y) {
    if (v != v) {
        if (f32_is_snan(x) || f32_is_snan(y) || (!f32_is_nan(x) && !f32_is_nan(y))) {
            f->flags |= FP_INV;
        }
        return FP_NAN32;
    }
    return f32_out(f, v);
}

static inline uint32_t f32_add(struct fp *f, uint32_t x, uint32_t y) {
    return f32_result2(f, f32_in(x) + f32_in(y), x, y);
}

/* A sum into an accumulator. It raises nothing: what came of it is judged when it is read. */
static inline uint32_t f32_add_quiet(uint32_t x, uint32_t y) {
    struct fp none = {0};

    return f32_add(&none, x, y);
}

static inline uint32_t f32_sub(struct fp *f, uint32_t x, uint32_t y) {
    return f32_result2(f, f32_in(x) - f32_in(y), x, y);
}

static inline uint32_t f32_mul(struct fp *f, uint32_t x, uint32_t y) {
    return f32_result2(f, f32_in(x) * f32_in(y), x, y);
}

uint32_t f32_min(struct fp *f, uint32_t x, uint32_t y);
uint32_t f32_max(struct fp *f, uint32_t x, uint32_t y);

/* ---- half ------------------------------------------------------------------------------------ */

static inline bool f16_is_special(uint32_t h) /* infinity or NaN */
{
    return (h & 0x7C00u) == 0x7C00u;
}

static inline bool f16_is_nan(uint32_t h) {
    return (h & 0x7FFFu) > 0x7C00u;
}

static inline bool f16_is_snan(uint32_t h) {
    return f16_is_nan(h) && (h & 0x0200u) == 0;
}

/* Exact value of a finite half. */
static inline double f16_finite(uint32_t h) {
    return (double)(bits_float((h & 0x7FFFu) << 13 | (h & 0x8000u) << 16) * 0x1p112f);
}

/* Operand of arithmetic: infinities and signalling NaN are invalid. */
static inline double f16_in(struct fp *f, uint32_t h) {
    if (f16_is_special(h)) {
        if ((h & 0x0200u) == 0) {
            f->flags |= FP_INV;
        }
        return (double)NAN;
    }
    return f16_finite(h);
}

/* Operand of ordering operations: infinity is a number. */
static inline double f16_ordered(uint32_t h) {
    if (f16_is_special(h)) {
        if (f16_is_nan(h)) {
            return (double)NAN;
        }
        return (h & 0x8000u) != 0 ? -(double)INFINITY : (double)INFINITY;
    }
    return f16_finite(h);
}

uint32_t f16_overflow(struct fp *f, bool is_negative);
/* v to half, nearest even. Infinity overflows like any large number. */
uint32_t f16_nearest(struct fp *f, double v);
/* As the instruction wants it: nearest, or to single and then stochastically with lane's bits. */
uint32_t f16_out(struct fp *f, double v, int lane);

/* Pair of results in one register. */
static inline uint32_t f16_pair(uint32_t lo, uint32_t hi) {
    return lo | hi << 16;
}

static inline uint32_t half_of(uint32_t word, int lane) {
    return word >> 16 * lane & 0xFFFFu;
}

uint32_t f16_min(struct fp *f, uint32_t x, uint32_t y);
uint32_t f16_max(struct fp *f, uint32_t x, uint32_t y);

/* Single to half as the f32tof16 family does: an infinity is invalid. */
uint32_t f16_from_f32_bits(struct fp *f, uint32_t x, int lane);

/* ---- quarter --------------------------------------------------------------------------------- */

/* Value of a code other than 0x80; is_143 selects the format. Before any scaling. */
static inline double f8_finite(uint32_t code, bool is_143) {
    uint32_t magnitude = code & 0x7Fu, mant_bits = is_143 ? 3 : 2;
    float v;

    if (magnitude >> mant_bits == 0) { /* denormal: the last place is 2^-10 or 2^-17 */
        v = (float)magnitude * (is_143 ? 0x1p-10f : 0x1p-17f);
    } else {
        v = bits_float(magnitude << (23 - mant_bits)) * (is_143 ? 0x1p119f : 0x1p111f);
    }
    return (double)((code & 0x80u) != 0 ? -v : v);
}

/* v (already scaled) to a code. */
uint32_t f8_out(struct fp *f, double v, bool is_143, int lane);

/* 2^n for |n| < 1000. */
static inline double power_of_two(int n) {
    uint64_t bits = (uint64_t)(1023 + n) << 52;
    double v;

    memcpy(&v, &bits, sizeof v);
    return v;
}

/* exec_acc.c: an accumulator as result; an infinity raises flags when it is read. */
uint32_t acc_read_single(struct fp *f, uint32_t acc);
uint32_t acc_read_half(struct fp *f, uint32_t acc, int lane);

/* FP_SCL as a signed power of two. */
static inline int fp_scale(const struct context *c) {
    return (int)(c->fp_scl ^ 0x20u) - 0x20;
}

#endif
