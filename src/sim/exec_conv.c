/* Conversions between half, single, quarter and integers (tile fact sheet 2.7). */
#include "sim/exec.h"
#include "sim/fp.h"

/* Ends a conversion: flags and trap first, then one or two result registers. */
static int put1(struct context *c, const struct dec *d, const struct fp *f, uint32_t r) {
    int fault = fp_done(c, f);

    if (fault == EXEC_OK) {
        WA(A) = r;
    }
    return fault;
}

static int
put2(struct context *c, const struct dec *d, const struct fp *f, uint32_t r0, uint32_t r1) {
    int fault = fp_done(c, f);

    if (fault == EXEC_OK) {
        WA2(A, 0) = r0;
        WA2(A, 1) = r1;
    }
    return fault;
}

/* ---- half and single ------------------------------------------------------------------------- */

static uint32_t h_to_s(struct fp *f, uint32_t h) {
    if (f16_is_nan(h)) {
        f->flags |= f16_is_snan(h) ? FP_INV : 0;
        return FP_NAN32;
    }
    return float_bits((float)f16_ordered(h)); /* exact, infinity kept */
}

EXEC(f16tof32_aaan) {
    struct fp f = fp_plain(c);

    return put1(c, d, &f, h_to_s(&f, half_of(RA(B), 0)));
}

EXEC(f16v2tof32_aaan) {
    struct fp f = fp_plain(c);
    uint32_t x = RA(B), r0 = h_to_s(&f, half_of(x, 0)), r1 = h_to_s(&f, half_of(x, 1));

    return put2(c, d, &f, r0, r1);
}

EXEC(f32tof16_aaan) {
    struct fp f = fp_rounding(c);
    uint32_t h = f16_from_f32_bits(&f, RA(B), 0);

    return put1(c, d, &f, f16_pair(h, h));
}

EXEC(f32v2tof16_aaan) {
    struct fp f = fp_rounding(c);
    uint32_t l0 = f16_from_f32_bits(&f, RA2(B, 0), 0);
    uint32_t l1 = f16_from_f32_bits(&f, RA2(B, 1), 1);

    return put1(c, d, &f, f16_pair(l0, l1));
}

EXEC(f32v4tof16_aaan) {
    struct fp f = fp_rounding(c);
    uint32_t h[4];

    for (int i = 0; i < 4; i++) {
        h[i] = f16_from_f32_bits(&f, RA2(B, i), i);
    }
    return put2(c, d, &f, f16_pair(h[0], h[1]), f16_pair(h[2], h[3]));
}

/* ---- integers -------------------------------------------------------------------------------- */

EXEC(f32toi32_aaan) {
    struct fp f = fp_plain(c);
    double v = rint(f32_in(RA(B)));

    if (!(v >= -2147483648.0 && v <= 2147483647.0)) {
        f.flags |= FP_INV;
        return put1(c, d, &f, 0x80000000u);
    }
    return put1(c, d, &f, (uint32_t)(int32_t)v);
}

EXEC(f32toui32_aaan) {
    struct fp f = fp_plain(c);
    double v = rint(f32_in(RA(B)));

    if (!(v >= 0 && v <= 4294967295.0)) {
        f.flags |= FP_INV;
        return put1(c, d, &f, 0);
    }
    return put1(c, d, &f, (uint32_t)v);
}

EXEC(f32fromi32_aaan) {
    WA(A) = float_bits((float)(int32_t)RA(B));
    return EXEC_OK;
}

EXEC(f32fromui32_aaan) {
    WA(A) = float_bits((float)RA(B));
    return EXEC_OK;
}

static double round_mode(double v, uint32_t mode) {
    switch (mode) {
    case 1: return ceil(v);
    case 2: return floor(v);
    case 3: return trunc(v);
    case 4: return round(v);
    default: return rint(v);
    }
}

EXEC(f32int_aaan_ef) {
    struct fp f = fp_plain(c);
    uint32_t x = RA(B);

    if (f32_is_nan(x)) {
        f.flags |= f32_is_snan(x) ? FP_INV : 0;
        return put1(c, d, &f, FP_NAN32);
    }
    return put1(c, d, &f, f32_out(&f, round_mode(f32_in(x), (uint32_t)d->imm & 7)));
}

/* Unsigned to (-0.5, 0.5): (2u - (2^n - 1)) / 2^(n+1), never 0. */
static uint32_t s_uniform(uint32_t u) {
    return float_bits((float)((2.0 * u - 4294967295.0) * 0x1p-33));
}

static uint32_t h_uniform(struct fp *f, uint32_t u) {
    return f16_nearest(f, (2.0 * u - 65535.0) * 0x1p-17);
}

EXEC(f32sufromui_aaan) {
    WA(A) = s_uniform(RA(B));
    return EXEC_OK;
}

EXEC(f32v2sufromui_aaan) {
    uint32_t r0 = s_uniform(RA2(B, 0)), r1 = s_uniform(RA2(B, 1));

    WA2(A, 0) = r0;
    WA2(A, 1) = r1;
    return EXEC_OK;
}

EXEC(f16v2sufromui_aaan) {
    struct fp f = fp_plain(c);
    uint32_t x = RA(B);

    WA(A) = f16_pair(h_uniform(&f, half_of(x, 0)), h_uniform(&f, half_of(x, 1)));
    return EXEC_OK;
}

EXEC(f16v4sufromui_aaan) {
    struct fp f = fp_plain(c);
    uint32_t x = RA2(B, 0), y = RA2(B, 1);

    WA2(A, 0) = f16_pair(h_uniform(&f, half_of(x, 0)), h_uniform(&f, half_of(x, 1)));
    WA2(A, 1) = f16_pair(h_uniform(&f, half_of(y, 0)), h_uniform(&f, half_of(y, 1)));
    return EXEC_OK;
}

/* ---- quarter --------------------------------------------------------------------------------- */

static uint32_t q_to_h(struct fp *f, const struct context *c, uint32_t code) {
    if (code == FP_NAN8) {
        f->flags |= FP_INV;
        return FP_NAN16;
    }
    return f16_nearest(f, ldexp(f8_finite(code, (c->fp_nfmt & 2) != 0), fp_scale(c)));
}

static uint32_t q2_to_h2(struct fp *f, const struct context *c, uint32_t codes) {
    uint32_t lo = q_to_h(f, c, codes & 0xFF);

    return f16_pair(lo, q_to_h(f, c, codes >> 8 & 0xFF));
}

EXEC(f8v2tof16_aaan) {
    struct fp f = fp_plain(c);

    return put1(c, d, &f, q2_to_h2(&f, c, RA(B)));
}

EXEC(f8v4tof16_aaan) {
    struct fp f = fp_plain(c);
    uint32_t x = RA(B), r0 = q2_to_h2(&f, c, x), r1 = q2_to_h2(&f, c, x >> 16);

    return put2(c, d, &f, r0, r1);
}

static uint32_t h_to_q(struct fp *f, const struct context *c, uint32_t h, int lane) {
    double v = f16_in(f, h);

    return f8_out(f, ldexp(v, fp_scale(c)), (c->fp_nfmt & 2) != 0, lane);
}

static uint32_t h2_to_q2(struct fp *f, const struct context *c, uint32_t x, int lane) {
    uint32_t lo = h_to_q(f, c, half_of(x, 0), lane);

    return lo | h_to_q(f, c, half_of(x, 1), lane + 1) << 8;
}

EXEC(f16v2tof8_aaan) {
    struct fp f = fp_rounding(c);
    uint32_t q = h2_to_q2(&f, c, RA(B), 0);

    return put1(c, d, &f, f16_pair(q, q));
}

EXEC(f16v8tof8_aaan) {
    struct fp f = fp_rounding(c);
    uint32_t q[4];

    for (int i = 0; i < 4; i++) {
        q[i] = h2_to_q2(&f, c, RA2(B, i), 2 * i);
    }
    return put2(c, d, &f, f16_pair(q[0], q[1]), f16_pair(q[2], q[3]));
}
