/* Division, roots and transcendental functions (tile fact sheet 2.8): special values by the
 * manual's table, all else in double and rounded once. That is exact where the manual promises
 * correct rounding; elsewhere silicon may differ by the stated few units in the last place. */
#include "sim/exec.h"
#include "sim/fp.h"

/* ---- scalar rules: v is a number (denormals already zero); flags are raised here ------------- */

static double invalid(struct fp *f) {
    f->flags |= FP_INV;
    return (double)NAN;
}

static double by_zero(struct fp *f, double v) {
    f->flags |= FP_DIV0;
    return copysign((double)INFINITY, v);
}

/* Large enough for both formats to overflow, and still a number, so that they say so. */
static double huge_or(double v, double result) {
    return isinf(result) && isfinite(v) ? 1e300 : result;
}

static double do_exp(struct fp *f, double v) {
    (void)f;
    return huge_or(v, exp(v));
}

static double do_exp2(struct fp *f, double v) {
    (void)f;
    return huge_or(v, exp2(v));
}

static double do_ln(struct fp *f, double v) {
    if (v == 0) {
        return by_zero(f, -1);
    }
    return v < 0 ? invalid(f) : log(v);
}

static double do_log2(struct fp *f, double v) {
    if (v == 0) {
        return by_zero(f, -1);
    }
    return v < 0 ? invalid(f) : log2(v);
}

static double do_tanh(struct fp *f, double v) {
    (void)f;
    return tanh(v);
}

static double do_sigm(struct fp *f, double v) {
    (void)f;
    if (fabs(v) < 0x1p-24) {
        return 0.5;
    }
    if (v < -104) {
        return 0;
    }
    return v >= 18 ? 1 : 1 / (1 + exp(-v));
}

static double do_sqrt(struct fp *f, double v) {
    return v < 0 ? invalid(f) : sqrt(v);
}

static double do_oorx(struct fp *f, double v) {
    if (v == 0) {
        return by_zero(f, v);
    }
    return v < 0 ? invalid(f) : 1 / sqrt(v);
}

static double do_oox(struct fp *f, double v) {
    return v == 0 ? by_zero(f, v) : 1 / v;
}

/* ---- single ---------------------------------------------------------------------------------- */

typedef double rule_fn(struct fp *f, double v);

static int run_s(struct context *c, const struct dec *d, rule_fn *rule) {
    struct fp f = fp_plain(c);
    uint32_t x = RA(B), r = FP_NAN32;
    int fault;

    if (f32_is_nan(x)) {
        f.flags |= f32_is_snan(x) ? FP_INV : 0;
    } else {
        r = f32_out(&f, rule(&f, f32_in(x)));
    }
    fault = fp_done(c, &f);
    if (fault == EXEC_OK) {
        WA(A) = r;
    }
    return fault;
}

#define SINGLE(name)                                                                               \
    EXEC(f32##name##_aaan) {                                                                       \
        return run_s(c, d, do_##name);                                                             \
    }

SINGLE(exp)
SINGLE(exp2)
SINGLE(ln)
SINGLE(log2)
SINGLE(tanh)
SINGLE(sigm)
SINGLE(sqrt)
SINGLE(oorx)
SINGLE(oox)

EXEC(f32div_aaan) {
    struct fp f = fp_plain(c);
    uint32_t xb = RA(B), yb = RA(C), r;
    double x = f32_in(xb), y = f32_in(yb);
    int fault;

    if (y == 0 && x != 0 && isfinite(x)) {
        f.flags |= FP_DIV0;
        r = float_bits((float)copysign((double)INFINITY, x)) ^ (yb & 0x80000000u);
    } else {
        r = f32_result2(&f, x / y, xb, yb);
    }
    fault = fp_done(c, &f);
    if (fault == EXEC_OK) {
        WA(A) = r;
    }
    return fault;
}

/* ---- half ------------------------------------------------------------------------------------ */

/* Infinity out of a rule (a pole) saturates without OFLO: the flag is DIV0 alone. */
static uint32_t half_of_rule(struct fp *f, uint32_t h, rule_fn *rule) {
    double v = f16_in(f, h);

    if (v != v) {
        return FP_NAN16;
    }
    v = rule(f, v);
    if (isinf(v) && (f->flags & FP_DIV0) != 0) {
        return f->nanoo ? FP_NAN16 : FP_MAX16 | (v < 0 ? 0x8000u : 0);
    }
    return f16_nearest(f, v);
}

static int run_h(struct context *c, const struct dec *d, rule_fn *rule) {
    struct fp f0 = fp_plain(c), f1 = f0;
    uint32_t x = RA(B);
    uint32_t lo = half_of_rule(&f0, half_of(x, 0), rule);
    uint32_t hi = half_of_rule(&f1, half_of(x, 1), rule);
    int fault;

    f0.flags |= f1.flags;
    fault = fp_done(c, &f0);
    if (fault == EXEC_OK) {
        WA(A) = f16_pair(lo, hi);
    }
    return fault;
}

#define HALF(name)                                                                                 \
    EXEC(f16v2##name##_aaan) {                                                                     \
        return run_h(c, d, do_##name);                                                             \
    }

HALF(exp)
HALF(exp2)
HALF(ln)
HALF(log2)
HALF(tanh)
HALF(sigm)
