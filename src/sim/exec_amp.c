/* The matrix engine (tile fact sheet 2.10): 2 sets of 8 units, each with an even (E) and an odd (O)
 * accumulator and 4 coefficients of 64 bits. One issue, for every enabled unit k = 8s + u:
 *
 *   amp   p == 0:  E'[k] = O[k] + dot,  O'[k] = E[k+2] or the partial input   (rows change roles)
 *         p != 0:  E'[k] = E[k] + dot,  O'[k] = O[k+2] or the partial input
 *   slic           E'[k] = (E[k+2] or the partial input) + dot
 *
 * A unit of the highest enabled engine takes the partial input, the others their neighbour. The
 * result is the head of the chain before the issue.
 *
 * Numbers: the dot product is the exact sum of its products, rounded to single, then added in
 * single. That is done for all units at once in double on precomputed coefficients (struct
 * coefs); when anything comes out infinite or NaN the same issue is redone unit by unit, with
 * flags, by the rules of fp.h. Issues with all engines may never get here (exec_wide.c). */
#include "sim/exec.h"

#include <stdlib.h>

#include "sim/exec_imm.h"
#include "sim/fp.h"

#define UNITS     16
#define SET_UNITS 8

/* ---- coefficients ---------------------------------------------------------------------------- */

void cwei_set(struct tile *t, uint32_t entry, uint64_t value) {
    t->cwei[entry] = value;
    if (t->coefs != NULL) {
        t->coefs->stale |= (uint64_t)1 << entry;
    }
}

void cwei_clear(struct tile *t) {
    for (uint32_t i = 0; i < 64; i++) {
        cwei_set(t, i, 0);
    }
}

/* Value of a lane; what is not finite becomes NaN and sends the issue to the careful path. */
static double coef_value(enum coef_form form, uint64_t raw, int lane) {
    uint32_t bits;

    switch (form) {
    case COEF_F16:
        bits = (uint32_t)(raw >> 16 * lane) & 0xFFFFu;
        return f16_is_special(bits) ? (double)NAN : f16_finite(bits);
    case COEF_F8_152:
    case COEF_F8_143:
        bits = (uint32_t)(raw >> 8 * lane) & 0xFFu;
        return bits == FP_NAN8 ? (double)NAN : f8_finite(bits, form == COEF_F8_143);
    default: return f32_in((uint32_t)(raw >> 32 * lane));
    }
}

static int form_lanes(enum coef_form form) {
    return form == COEF_F16 ? 4 : form == COEF_F32 ? 2 : 8;
}

/* Coefficients in the wanted form, brought up to date; NULL when out of memory. */
static const struct coefs *coefs_get(struct tile *t, enum coef_form form) {
    struct coefs *w = t->coefs;

    if (w != NULL && w->form == form && w->stale == 0) {
        return w;
    }
    if (w == NULL) {
        w = t->coefs = aligned_alloc(64, sizeof *w);
        if (w == NULL) {
            return NULL;
        }
        memset(w, 0, sizeof *w);
    }
    if (w->form != form) {
        w->form = (uint8_t)form;
        w->stale = ~(uint64_t)0;
    }
    for (; w->stale != 0; w->stale &= w->stale - 1) {
        int entry = __builtin_ctzll(w->stale);
        for (int i = 0; i < form_lanes(form); i++) {
            w->lane[entry & 3][i][entry >> 2] = coef_value(form, t->cwei[entry], i);
        }
    }
    return w;
}

/* ---- one issue ------------------------------------------------------------------------------- */

/* What an issue works on. Units of set s that are enabled: 8s .. 8s + enabled - 1. */
struct issue {
    enum coef_form form;
    int phase; /* of the coefficients: 0..3 */
    int lanes;
    int sets;             /* 1 or 2 */
    int enabled;          /* units per set */
    uint32_t xbits[8];    /* operand lanes as bits, for the careful path */
    double x[8];          /* the same as numbers, f8 scaled; NaN when special */
    int scale;            /* FP_SCL for f8, else 0 */
    const uint32_t *base; /* accumulators that the dot products are added to, 16 */
};

/* Vectors of four units; `aligned` because tables are not aligned to 32 bytes. */
typedef double v4d __attribute__((vector_size(32), aligned(8)));
typedef float v4f __attribute__((vector_size(16), aligned(4)));
typedef int32_t v4i __attribute__((vector_size(16), aligned(4)));

#define EXPONENT 0x7F800000

/* Denormals to zeros of their sign. */
static inline __attribute__((always_inline)) v4f flushed(v4f v) {
    v4i bits = (v4i)v;

    return (v4f)(bits & (((bits & EXPONENT) != 0) | INT32_MIN));
}

/* out[k] = base[k] + dot[k] for all units; false when one is not finite. The sum begins with +0,
 * so that negative zeros add up to +0. */
static inline __attribute__((always_inline)) bool add_dots(
    const double (*w)[UNITS], const double *x, int lanes, const uint32_t *base, uint32_t *out) {
    v4i bad = {0, 0, 0, 0};

    for (int k = 0; k < UNITS; k += 4) {
        v4d sum = {0, 0, 0, 0};
        v4f dot;
        v4i bits;

        for (int i = 0; i < lanes; i++) {
            sum += *(const v4d *)(const void *)&w[i][k] * x[i];
        }
        dot = flushed(__builtin_convertvector(sum, v4f));
        bits = (v4i)flushed(flushed(*(const v4f *)(const void *)&base[k]) + dot);
        bad |= (bits & EXPONENT) == EXPONENT;
        *(v4i *)(void *)&out[k] = bits;
    }
    return (bad[0] | bad[1] | bad[2] | bad[3]) == 0;
}

static bool dots(const struct issue *s, const struct coefs *w, uint32_t *out) {
    return s->lanes == 4 ? add_dots(w->lane[s->phase], s->x, 4, s->base, out)
                         : add_dots(w->lane[s->phase], s->x, 8, s->base, out);
}

/* One operand lane or coefficient lane with its flags. */
static double lane_in(struct fp *f, enum coef_form form, uint32_t bits) {
    if (form == COEF_F16) {
        return f16_in(f, bits);
    }
    if (bits == FP_NAN8) {
        f->flags |= FP_INV;
        return (double)NAN;
    }
    return f8_finite(bits, form == COEF_F8_143);
}

/* The careful path: enabled units only. */
static void dots_flagged(
    struct fp *f, const struct tile *t, const struct issue *s, enum coef_form xform,
    uint32_t *out) {
    for (int k = 0; k < UNITS; k++) {
        double sum = 0;

        if (k / SET_UNITS >= s->sets || k % SET_UNITS >= s->enabled) {
            continue;
        }
        for (int i = 0; i < s->lanes; i++) {
            uint64_t raw = t->cwei[4 * k + s->phase];
            uint32_t bits = s->form == COEF_F16 ? (uint32_t)(raw >> 16 * i) & 0xFFFFu
                                                : (uint32_t)(raw >> 8 * i) & 0xFFu;
            double w = lane_in(f, s->form, bits), x = lane_in(f, xform, s->xbits[i]);
            double p = ldexp(w * x, s->scale);
            sum += p;
        }
        out[k] = f32_add_quiet(s->base[k], f32_out(f, sum));
    }
}

/* Operand lanes of the two source registers. */
static enum coef_form issue_operand(struct issue *s, const struct context *c, const uint32_t *src) {
    enum coef_form xform = COEF_F16;
    double factor;

    if (s->form == COEF_F16) {
        s->lanes = 4;
        for (int i = 0; i < 4; i++) {
            s->xbits[i] = half_of(src[i >> 1], i & 1);
            s->x[i] = f16_is_special(s->xbits[i]) ? (double)NAN : f16_finite(s->xbits[i]);
        }
        return xform;
    }
    xform = (c->fp_nfmt & 2) != 0 ? COEF_F8_143 : COEF_F8_152;
    s->lanes = 8;
    s->scale = fp_scale(c);
    factor = power_of_two(s->scale);
    for (int i = 0; i < 8; i++) {
        s->xbits[i] = src[i >> 2] >> 8 * (i & 3) & 0xFFu;
        s->x[i] = s->xbits[i] == FP_NAN8 ? (double)NAN
                                         : f8_finite(s->xbits[i], xform == COEF_F8_143) * factor;
    }
    return xform;
}

/* ---- half and quarter forms ------------------------------------------------------------------ */

enum partials { SINGLE2, HALF2, HALF4 };

/* Partial inputs as singles: in[2s + (u & 1)]. */
static void partials_in(struct fp *f, enum partials kind, const uint32_t *src, uint32_t in[4]) {
    for (int i = 0; i < 4; i++) {
        if (kind == SINGLE2) {
            in[i] = i < 2 ? f32_taken(f, src[i]) : 0;
        } else if (kind == HALF2 && i >= 2) {
            in[i] = 0;
        } else {
            in[i] = f32_out(f, f16_in(f, half_of(src[i >> 1], i & 1)));
        }
    }
}

static void results_out(struct fp *f, enum partials kind, const uint32_t *head, uint32_t out[2]) {
    if (kind == SINGLE2) {
        out[0] = acc_read_single(f, head[0]);
        out[1] = acc_read_single(f, head[1]);
        return;
    }
    out[0] = acc_read_half(f, head[0], 0);
    out[0] = f16_pair(out[0], acc_read_half(f, head[1], 1));
    if (kind == HALF4) {
        out[1] = acc_read_half(f, head[8], 2);
        out[1] = f16_pair(out[1], acc_read_half(f, head[9], 3));
    }
}

/* shifted[k] for enabled units: the neighbour's `from`, or the partial input. */
static void
chain_in(const struct issue *s, const uint32_t *from, const uint32_t in[4], uint32_t *shifted) {
    for (int set = 0; set < s->sets; set++) {
        for (int u = 0; u < s->enabled; u++) {
            int k = SET_UNITS * set + u;
            shifted[k] = u + 2 < s->enabled ? from[k + 2] : in[2 * set + (u & 1)];
        }
    }
}

static void put_enabled(const struct issue *s, uint32_t *to, const uint32_t *from) {
    for (int set = 0; set < s->sets; set++) {
        memcpy(to + SET_UNITS * set, from + SET_UNITS * set, (size_t)s->enabled * sizeof *to);
    }
}

static enum coef_form weights_form(const struct context *c, bool is_f8) {
    if (!is_f8) {
        return COEF_F16;
    }
    return (c->fp_nfmt & 1) != 0 ? COEF_F8_143 : COEF_F8_152;
}

/* Any issue, unit by unit if need be. */
static int amp_half(
    struct tile *t, struct context *c, const struct dec *d, enum partials kind, bool is_f8,
    bool is_slic) {
    struct fp f = fp_plain(c);
    struct issue s = {
        .form = weights_form(c, is_f8),
        .sets = kind == HALF4 ? 2 : 1,
        .enabled = 2 * IMM_ENGINES(d),
        .phase = is_slic ? IMM_WEIGHTS(d) : IMM_PHASE(d)};
    bool is_first = is_slic || IMM_PHASE(d) == 0;
    const uint32_t *from = is_first ? c->even : c->odd;
    uint32_t in[4], out[2] = {0, 0}, shifted[UNITS] = {0}, sums[UNITS] = {0};
    const struct coefs *w = coefs_get(t, s.form);
    enum coef_form xform;
    int fault;

    if (w == NULL) {
        return ETYPE_MEMERR;
    }
    xform = issue_operand(&s, c, &RA2(B, 0));
    partials_in(&f, kind, &RA2(C, 0), in);
    results_out(&f, kind, from, out);
    chain_in(&s, from, in, shifted);
    s.base = is_slic ? shifted : is_first ? c->odd : c->even;
    if (!dots(&s, w, sums)) {
        dots_flagged(&f, t, &s, xform, sums);
    }
    fault = fp_done(c, &f);
    if (fault != EXEC_OK) {
        return fault;
    }
    put_enabled(&s, c->even, sums);
    if (!is_slic) {
        put_enabled(&s, c->odd, shifted);
    }
    WA2(A, 0) = out[0];
    if (kind != HALF2) {
        WA2(A, 1) = out[1];
    }
    return EXEC_OK;
}

#define AMP(id, kind, is_f8, is_slic)                                                              \
    EXEC(id) {                                                                                     \
        return amp_half(t, c, d, kind, is_f8, is_slic);                                            \
    }

AMP(f16v4sisoamp_aaan_ef, SINGLE2, false, false)
AMP(f16v4hihoamp_aaan_ef, HALF2, false, false)
AMP(f16v4hihov4amp_aaan_ef, HALF4, false, false)
AMP(f8v8hihov4amp_aaan_ef, HALF4, true, false)
AMP(f16v4sisoslic_aaan_ef, SINGLE2, false, true)
AMP(f16v4hihoslic_aaan_ef, HALF2, false, true)
AMP(f16v4hihov4slic_aaan_ef, HALF4, false, true)
AMP(f8v8hihov4slic_aaan_ef, HALF4, true, true)

/* ---- single forms  ------------------------------------------------------------------------------
 *
 * Set 1 runs one issue behind set 0: its operand is TAS, the operand of the issue before. In
 * issue p the set p & 1 talks (results and partials); with one set, even issues only. */

static uint32_t coef_single(const struct tile *t, int unit, int entry, int half) {
    return (uint32_t)(t->cwei[4 * unit + entry] >> 32 * half);
}

/* A product that overflows raises nothing; invalid factors do. */
static uint32_t mul_factors(struct fp *f, uint32_t x, uint32_t y) {
    struct fp m = {0};
    uint32_t product = f32_mul(&m, x, y);

    f->flags |= m.flags & FP_INV;
    return product;
}

static int amp_single(struct tile *t, struct context *c, const struct dec *d, int sets) {
    struct fp f = fp_plain(c);
    int p = IMM_PHASE(d), o = p & 1, enabled = 2 * IMM_ENGINES(d);
    uint32_t x = f32_flush(RA(B)), in[2] = {f32_taken(&f, RA2(C, 0)), f32_taken(&f, RA2(C, 1))};
    uint32_t even[UNITS], odd[UNITS], out[2];
    const uint32_t *head = p == o ? c->even : c->odd;
    int fault;

    memcpy(even, c->even, sizeof even);
    memcpy(odd, c->odd, sizeof odd);
    if (sets == 1) {
        head = p == 0 ? c->even : c->odd;
    } else {
        head += SET_UNITS * o;
    }
    out[0] = acc_read_single(&f, head[0]);
    out[1] = acc_read_single(&f, head[1]);
    for (int s = 0; s < sets; s++) {
        int l = (p - s) & 7;
        for (int u = 0; u < enabled; u++) {
            int k = SET_UNITS * s + u;
            uint32_t weight = coef_single(t, k, l >> 1, l & 1);
            uint32_t product = mul_factors(&f, s == 0 ? x : c->tas, weight);
            even[k] = f32_add_quiet(p == s ? c->odd[k] : c->even[k], product);
            if (o == s) {
                odd[k] = u + 2 >= enabled ? in[u & 1] : p == s ? c->even[k + 2] : c->odd[k + 2];
            }
        }
    }
    fault = fp_done(c, &f);
    if (fault != EXEC_OK) {
        return fault;
    }
    memcpy(c->even, even, sizeof even);
    memcpy(c->odd, odd, sizeof odd);
    if (sets == 2) {
        c->tas = x;
    }
    WA2(A, 0) = out[0];
    WA2(A, 1) = out[1];
    return EXEC_OK;
}

EXEC(f32sisoamp_aaan_ef) {
    return amp_single(t, c, d, 1);
}

EXEC(f32sisov2amp_aaan_ef) {
    return amp_single(t, c, d, 2);
}

static int slic_single(struct tile *t, struct context *c, const struct dec *d, int sets) {
    struct fp f = fp_plain(c);
    int p = IMM_PHASE(d), enabled = 2 * IMM_ENGINES(d), wid = IMM_WEIGHTS(d);
    uint32_t x = f32_flush(RA(B)), in[2] = {f32_taken(&f, RA2(C, 0)), f32_taken(&f, RA2(C, 1))};
    uint32_t even[UNITS], out[2];
    const uint32_t *head;
    int fault;

    memcpy(even, c->even, sizeof even);
    head = c->even + (sets == 1 ? 0 : SET_UNITS * p);
    out[0] = acc_read_single(&f, head[0]);
    out[1] = acc_read_single(&f, head[1]);
    for (int s = 0; s < sets; s++) {
        for (int u = 0; u < enabled; u++) {
            int k = SET_UNITS * s + u;
            uint32_t weight = coef_single(t, k, wid, (p - s) & 1);
            uint32_t product = mul_factors(&f, s == 0 ? x : c->tas, weight);
            uint32_t from = u + 2 >= enabled ? in[u & 1] : c->even[k + 2];
            even[k] = f32_add_quiet(p == s ? from : c->even[k], product);
        }
    }
    fault = fp_done(c, &f);
    if (fault != EXEC_OK) {
        return fault;
    }
    memcpy(c->even, even, sizeof even);
    if (sets == 2) {
        c->tas = x;
    }
    WA2(A, 0) = out[0];
    WA2(A, 1) = out[1];
    return EXEC_OK;
}

EXEC(f32sisoslic_aaan_ef) {
    return slic_single(t, c, d, 1);
}

EXEC(f32sisov2slic_aaan_ef) {
    return slic_single(t, c, d, 2);
}
