/* Accumulator instructions other than the matrix engine (tile fact sheet 2.2, 2.9). A product is
 * rounded to single before it is added: nothing here is fused, except that dot products and mix
 * round their exact sum once. New accumulators are computed into locals and written after the
 * trap decision. */
#include "sim/exec.h"
#include "sim/fp.h"

/* Ends an accumulate into even[0..n-1]. Only operands raise flags now (a product that overflows
 * does not); the flag of an infinity comes when it is read. `read` has the flags of results read
 * on the way. */
static int
put_even(struct context *c, struct fp *f, const struct fp *read, const uint32_t *v, int n) {
    int fault;

    f->flags &= ~(uint32_t)FP_OFLO;
    f->flags |= read != NULL ? read->flags : 0;
    fault = fp_done(c, f);

    if (fault == EXEC_OK) {
        memcpy(c->even, v, (size_t)n * sizeof v[0]);
    }
    return fault;
}

static uint32_t mac(struct fp *f, uint32_t acc, uint32_t x, uint32_t y) {
    return f32_add_quiet(acc, f32_mul(f, x, y));
}

EXEC(f32mac_aaan) {
    struct fp f = fp_plain(c);
    uint32_t v = mac(&f, c->even[0], RA(A), RA(B));

    return put_even(c, &f, NULL, &v, 1);
}

EXEC(f32v2mac_aaan) {
    struct fp f = fp_plain(c);
    uint32_t v[2];

    v[0] = mac(&f, c->even[0], RA2(A, 0), RA2(B, 0));
    v[1] = mac(&f, c->even[1], RA2(A, 1), RA2(B, 1));
    return put_even(c, &f, NULL, v, 2);
}

EXEC(f32v2aop_aaan_ef) {
    struct fp f = fp_plain(c);
    uint32_t v[4];

    for (int i = 0; i < 4; i++) {
        v[i] = mac(&f, c->even[i], RA2(A, i & 1), RA2(B, i >> 1));
    }
    return put_even(c, &f, NULL, v, 4);
}

/* Products of halves are exact in double; their sum, begun with +0, rounds once. */
static uint32_t dot2(struct fp *f, uint32_t x, uint32_t y) {
    double p0 = f16_in(f, half_of(x, 0)) * f16_in(f, half_of(y, 0));
    double p1 = f16_in(f, half_of(x, 1)) * f16_in(f, half_of(y, 1));

    return f32_out(f, 0.0 + p0 + p1);
}

EXEC(f16v2cmac_aaan) {
    struct fp f = fp_plain(c);
    uint32_t v = f32_add_quiet(c->even[0], dot2(&f, RA(A), RA(B)));

    return put_even(c, &f, NULL, &v, 1);
}

EXEC(f16v4cmac_aaan) {
    struct fp f = fp_plain(c);
    uint32_t v[2];

    v[0] = f32_add_quiet(c->even[0], dot2(&f, RA2(A, 0), RA2(B, 0)));
    v[1] = f32_add_quiet(c->even[1], dot2(&f, RA2(A, 1), RA2(B, 1)));
    return put_even(c, &f, NULL, v, 2);
}

/* ---- accumulate vectors ---------------------------------------------------------------------- */

static uint32_t half_single(struct fp *f, uint32_t h) {
    return f32_out(f, f16_in(f, h));
}

static uint32_t acc_half(struct fp *f, uint32_t acc, uint32_t h) {
    return f32_add_quiet(acc, half_single(f, h));
}

static uint32_t absacc_half(struct fp *f, uint32_t acc, uint32_t h) {
    return f32_add_quiet(half_single(f, h & 0x7FFFu), acc & 0x7FFFFFFFu);
}

static uint32_t sqacc_half(struct fp *f, uint32_t acc, uint32_t h) {
    double v = f16_in(f, h);

    return f32_add_quiet(acc, f32_out(f, v * v));
}

static uint32_t acc_single(struct fp *f, uint32_t acc, uint32_t x) {
    return f32_add_quiet(acc, f32_taken(f, x));
}

static uint32_t absacc_single(struct fp *f, uint32_t acc, uint32_t x) {
    return acc_single(f, acc & 0x7FFFFFFFu, x & 0x7FFFFFFFu);
}

static uint32_t sqacc_single(struct fp *f, uint32_t acc, uint32_t x) {
    return mac(f, acc, x, x);
}

#define HALVES(id, n, fn)                                                                          \
    EXEC(id) {                                                                                     \
        struct fp f = fp_plain(c);                                                                 \
        uint32_t v[8];                                                                             \
        for (int i = 0; i < (n); i++) {                                                            \
            v[i] = fn(&f, c->even[i], half_of(RA2(A, i >> 1), i & 1));                             \
        }                                                                                          \
        return put_even(c, &f, NULL, v, n);                                                        \
    }
#define SINGLES(id, fn)                                                                            \
    EXEC(id) {                                                                                     \
        struct fp f = fp_plain(c);                                                                 \
        uint32_t v[4];                                                                             \
        for (int i = 0; i < 4; i++) {                                                              \
            v[i] = fn(&f, c->even[i], RA2(A, i));                                                  \
        }                                                                                          \
        return put_even(c, &f, NULL, v, 4);                                                        \
    }

HALVES(f16v4acc_aaan, 4, acc_half)
HALVES(f16v8acc_aaan, 8, acc_half)
HALVES(f16v4absacc_aaan, 4, absacc_half)
HALVES(f16v8absacc_aaan, 8, absacc_half)
HALVES(f16v8sqacc_aaan, 8, sqacc_half)
SINGLES(f32v4acc_aaan, acc_single)
SINGLES(f32v4absacc_aaan, absacc_single)
SINGLES(f32v4sqacc_aaan, sqacc_single)

/* ---- reading accumulators -------------------------------------------------------------------- */

/* An infinity is an overflow when it is read, whatever made it. A NaN of either kind comes out as
 * the fixed one and raises nothing. */
uint32_t acc_read_single(struct fp *f, uint32_t acc) {
    if (f32_is_nan(acc)) {
        return FP_NAN32;
    }
    if ((acc & 0x7F800000u) == 0x7F800000u) {
        f->flags |= FP_OFLO;
    }
    return f32_flush(acc);
}

uint32_t acc_read_half(struct fp *f, uint32_t acc, int lane) {
    if (f32_is_nan(acc)) {
        return FP_NAN16;
    }
    if ((acc & 0x7F800000u) == 0x7F800000u) {
        f->flags |= FP_OFLO | FP_INV;
        return FP_NAN16;
    }
    return f16_out(f, f32_in(acc), lane);
}

EXEC(f16v4gacc_aaan) {
    struct fp f = fp_rounding(c);
    uint32_t h[4];
    int fault;

    for (int i = 0; i < 4; i++) {
        h[i] = acc_read_half(&f, c->even[i], i);
    }
    fault = fp_done(c, &f);
    if (fault == EXEC_OK) {
        WA2(A, 0) = f16_pair(h[0], h[1]);
        WA2(A, 1) = f16_pair(h[2], h[3]);
    }
    return fault;
}

/* Both return the old accumulators: a pipeline one issue deep. */
EXEC(f32v2axpy_aaan) {
    struct fp f = fp_plain(c), read = f;
    uint32_t v[2], old[2];
    int fault;

    for (int i = 0; i < 2; i++) {
        old[i] = acc_read_single(&read, c->even[i]);
        v[i] = f32_add_quiet(f32_mul(&f, c->tas, RA2(C, i)), f32_taken(&f, RA2(B, i)));
    }
    fault = put_even(c, &f, &read, v, 2);
    if (fault == EXEC_OK) {
        WA2(A, 0) = old[0];
        WA2(A, 1) = old[1];
    }
    return fault;
}

EXEC(f16v4mix_aaan) {
    struct fp f = fp_rounding(c), read = f;
    uint32_t v[4], h[4];
    int fault;

    for (int i = 0; i < 4; i++) {
        uint32_t x = half_of(RA2(B, i >> 1), i & 1), y = half_of(RA2(C, i >> 1), i & 1);
        double p = f16_in(&f, half_of(c->tas, 0)) * f16_in(&f, x);
        double q = f16_in(&f, half_of(c->tas, 1)) * f16_in(&f, y);
        h[i] = acc_read_half(&read, c->even[i], i);
        v[i] = f32_out(&f, 0.0 + p + q);
    }
    fault = put_even(c, &f, &read, v, 4);
    if (fault == EXEC_OK) {
        WA2(A, 0) = f16_pair(h[0], h[1]);
        WA2(A, 1) = f16_pair(h[2], h[3]);
    }
    return fault;
}

/* ---- gina: read the head of a chain of four pairs, shift, append the inputs ------------------ */

/* Immediate: bit 0 the odd accumulators, bit 1 the second set (named assumption gina-imm). */
static uint32_t *chain_of(struct context *c, int32_t imm) {
    return ((imm & 1) != 0 ? c->odd : c->even) + ((imm & 2) != 0 ? 8 : 0);
}

static void chain_shift(uint32_t *chain, uint32_t in0, uint32_t in1) {
    memmove(chain, chain + 2, 6 * sizeof chain[0]);
    chain[6] = in0;
    chain[7] = in1;
}

EXEC(f32v2gina_aaan_zi) {
    struct fp f = fp_plain(c);
    uint32_t *chain = chain_of(c, d->imm);
    uint32_t r0 = acc_read_single(&f, chain[0]), r1 = acc_read_single(&f, chain[1]);
    uint32_t in0 = f32_taken(&f, RA2(B, 0)), in1 = f32_taken(&f, RA2(B, 1));
    int fault = fp_done(c, &f);

    if (fault == EXEC_OK) {
        chain_shift(chain, in0, in1);
        WA2(A, 0) = r0;
        WA2(A, 1) = r1;
    }
    return fault;
}

EXEC(f16v2gina_aaan_zi) {
    struct fp f = fp_rounding(c);
    uint32_t *chain = chain_of(c, d->imm);
    uint32_t lo = acc_read_half(&f, chain[0], 0), hi = acc_read_half(&f, chain[1], 1);
    uint32_t in0 = half_single(&f, half_of(RA(B), 0)), in1 = half_single(&f, half_of(RA(B), 1));
    int fault = fp_done(c, &f);

    if (fault == EXEC_OK) {
        chain_shift(chain, in0, in1);
        WA(A) = f16_pair(lo, hi);
    }
    return fault;
}

/* ---- permuters: raw bits, no floating-point effects ------------------------------------------ */

EXEC(f16v4istacc_aaan_ef) {
    uint32_t *e = c->even, *o = c->odd;
    uint32_t r0 = o[0], r1 = o[1]; /* AACC1, AACC3 */
    uint32_t s0[2] = {RA2(B, 0), RA2(B, 1)}, s1[2] = {RA2(C, 0), RA2(C, 1)};

    if (d->imm == 0) {
        o[0] = o[2];
        o[1] = o[3];
    }
    for (int i = 0; i < 4; i++) { /* AACC 0,4,8,12 or 2,6,10,14 */
        e[2 * i + d->imm] = f16_pair(half_of(s0[i >> 1], i & 1), half_of(s1[i >> 1], i & 1));
    }
    WA2(A, 0) = r0;
    WA2(A, 1) = r1;
    return EXEC_OK;
}

EXEC(f16v4stacc_aaan_ef) {
    uint32_t *e = c->even, *o = c->odd;

    if (d->imm == 0) {
        WA2(A, 0) = e[0];
        WA2(A, 1) = e[1];
        for (int i = 0; i < 3; i++) { /* 1 <- 4, 5 <- 8, 9 <- 12; 3 <- 6, 7 <- 10, 11 <- 14 */
            o[2 * i] = e[2 * i + 2];
            o[2 * i + 1] = e[2 * i + 3];
        }
        return EXEC_OK;
    }
    WA2(A, 0) = o[0];
    WA2(A, 1) = o[1];
    for (int i = 0; i < 2; i++) { /* 1 <- 5, 5 <- 9; 3 <- 7, 7 <- 11 */
        o[2 * i] = o[2 * i + 2];
        o[2 * i + 1] = o[2 * i + 3];
    }
    return EXEC_OK;
}
