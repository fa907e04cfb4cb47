/* Elementwise floating point (tile fact sheet 2.6): arithmetic, order, comparison, clamp, class,
 * sums. Forms come in shapes (one single, two singles, two or four halves) and with a broadcast
 * first source; the macros below make the shapes out of one lane function. */
#include "sim/exec.h"
#include "sim/fp.h"

/* ---- shapes ---------------------------------------------------------------------------------- */

/* fn(struct fp *, x bits, y bits) -> bits; x is letter xl, y letter yl. */
#define F32_1(id, fn, xl, yl)                                                                      \
    EXEC(id) {                                                                                     \
        struct fp f = fp_plain(c);                                                                 \
        uint32_t r = fn(&f, RA(xl), RA(yl));                                                       \
        int fault = fp_done(c, &f);                                                                \
        if (fault == EXEC_OK) {                                                                    \
            WA(A) = r;                                                                             \
        }                                                                                          \
        return fault;                                                                              \
    }
#define F32_2(id, fn, xl, yl, x1)                                                                  \
    EXEC(id) {                                                                                     \
        struct fp f = fp_plain(c);                                                                 \
        uint32_t r0 = fn(&f, RA2(xl, 0), RA2(yl, 0));                                              \
        uint32_t r1 = fn(&f, RA2(xl, x1), RA2(yl, 1));                                             \
        int fault = fp_done(c, &f);                                                                \
        if (fault == EXEC_OK) {                                                                    \
            WA2(A, 0) = r0;                                                                        \
            WA2(A, 1) = r1;                                                                        \
        }                                                                                          \
        return fault;                                                                              \
    }

/* fn(struct fp *, x half, y half, lane) -> half. pick(word, lane) chooses the half of x. */
#define PICK_OWN(word, lane)  half_of(word, lane)
#define PICK_LOW(word, lane)  half_of(word, 0)
#define PICK_HIGH(word, lane) half_of(word, 1)
#define F16_2(id, init, fn, xl, yl, pick)                                                          \
    EXEC(id) {                                                                                     \
        struct fp f = init(c);                                                                     \
        uint32_t x = RA(xl), y = RA(yl);                                                           \
        uint32_t lo = fn(&f, pick(x, 0), half_of(y, 0), 0);                                        \
        uint32_t hi = fn(&f, pick(x, 1), half_of(y, 1), 1);                                        \
        int fault = fp_done(c, &f);                                                                \
        if (fault == EXEC_OK) {                                                                    \
            WA(A) = f16_pair(lo, hi);                                                              \
        }                                                                                          \
        return fault;                                                                              \
    }
#define F16_4(id, init, fn, xl, yl, pick, x1)                                                      \
    EXEC(id) {                                                                                     \
        struct fp f = init(c);                                                                     \
        uint32_t xa = RA2(xl, 0), xb = RA2(xl, x1);                                                \
        uint32_t ya = RA2(yl, 0), yb = RA2(yl, 1);                                                 \
        uint32_t l0 = fn(&f, pick(xa, 0), half_of(ya, 0), 0);                                      \
        uint32_t l1 = fn(&f, pick(xa, 1), half_of(ya, 1), 1);                                      \
        uint32_t l2 = fn(&f, pick(xb, 0), half_of(yb, 0), 2);                                      \
        uint32_t l3 = fn(&f, pick(xb, 1), half_of(yb, 1), 3);                                      \
        int fault = fp_done(c, &f);                                                                \
        if (fault == EXEC_OK) {                                                                    \
            WA2(A, 0) = f16_pair(l0, l1);                                                          \
            WA2(A, 1) = f16_pair(l2, l3);                                                          \
        }                                                                                          \
        return fault;                                                                              \
    }

/* ---- lanes ----------------------------------------------------------------------------------- */

static uint32_t f32_absadd(struct fp *f, uint32_t x, uint32_t y) {
    return f32_add(f, x & 0x7FFFFFFFu, y & 0x7FFFFFFFu);
}

static uint32_t f32_absmax(struct fp *f, uint32_t x, uint32_t y) {
    return f32_max(f, x & 0x7FFFFFFFu, y & 0x7FFFFFFFu);
}

static uint32_t h_add(struct fp *f, uint32_t x, uint32_t y, int lane) {
    double a = f16_in(f, x), b = f16_in(f, y);

    return f16_out(f, a + b, lane);
}

static uint32_t h_sub(struct fp *f, uint32_t x, uint32_t y, int lane) {
    double a = f16_in(f, x), b = f16_in(f, y);

    return f16_out(f, a - b, lane);
}

static uint32_t h_mul(struct fp *f, uint32_t x, uint32_t y, int lane) {
    double a = f16_in(f, x), b = f16_in(f, y);

    return f16_out(f, a * b, lane);
}

static uint32_t h_absadd(struct fp *f, uint32_t x, uint32_t y, int lane) {
    return h_add(f, x & 0x7FFFu, y & 0x7FFFu, lane);
}

static uint32_t h_min(struct fp *f, uint32_t x, uint32_t y, int lane) {
    (void)lane;
    return f16_min(f, x, y);
}

static uint32_t h_max(struct fp *f, uint32_t x, uint32_t y, int lane) {
    (void)lane;
    return f16_max(f, x, y);
}

static uint32_t h_absmax(struct fp *f, uint32_t x, uint32_t y, int lane) {
    (void)lane;
    return f16_max(f, x & 0x7FFFu, y & 0x7FFFu);
}

/* Comparisons: a NaN is invalid and compares false, except that it is unequal. */
#define COMPARE(name, op, if_nan)                                                                  \
    static uint32_t s_##name(struct fp *f, uint32_t x, uint32_t y) {                               \
        if (f32_is_nan(x) || f32_is_nan(y)) {                                                      \
            f->flags |= FP_INV;                                                                    \
            return (if_nan) ? 0xFFFFFFFFu : 0;                                                     \
        }                                                                                          \
        return f32_in(x) op f32_in(y) ? 0xFFFFFFFFu : 0;                                           \
    }                                                                                              \
    static uint32_t h_##name(struct fp *f, uint32_t x, uint32_t y, int lane) {                     \
        (void)lane;                                                                                \
        if (f16_is_nan(x) || f16_is_nan(y)) {                                                      \
            f->flags |= FP_INV;                                                                    \
            return (if_nan) ? 0xFFFFu : 0;                                                         \
        }                                                                                          \
        return f16_ordered(x) op f16_ordered(y) ? 0xFFFFu : 0;                                     \
    }

COMPARE(cmpeq, ==, false)
COMPARE(cmpge, >=, false)
COMPARE(cmpgt, >, false)
COMPARE(cmple, <=, false)
COMPARE(cmplt, <, false)
COMPARE(cmpne, !=, true)

/* ---- forms ----------------------------------------------------------------------------------- */

#define F32_ALL(name, fn, xl, yl)                                                                  \
    F32_1(f32##name##_aaan, fn, xl, yl)                                                            \
    F32_2(f32v2##name##_aaan, fn, xl, yl, 1)
#define F16_ALL(name, init, fn, xl, yl)                                                            \
    F16_2(f16v2##name##_aaan, init, fn, xl, yl, PICK_OWN)                                          \
    F16_4(f16v4##name##_aaan, init, fn, xl, yl, PICK_OWN, 1)
#define BROADCASTS(name, s_fn, init, h_fn)                                                         \
    F32_2(f32v2##name##_aaat, s_fn, B, C, 0)                                                       \
    F16_2(f16v2##name##_aaal, init, h_fn, B, C, PICK_LOW)                                          \
    F16_2(f16v2##name##_aaau, init, h_fn, B, C, PICK_HIGH)                                         \
    F16_4(f16v4##name##_aaal, init, h_fn, B, C, PICK_LOW, 0)                                       \
    F16_4(f16v4##name##_aaau, init, h_fn, B, C, PICK_HIGH, 0)
#define COMPARISONS(name)                                                                          \
    F32_ALL(name, s_##name, B, C)                                                                  \
    F16_ALL(name, fp_plain, h_##name, B, C)                                                        \
    BROADCASTS(name, s_##name, fp_plain, h_##name)

F32_ALL(add, f32_add, B, C)
F32_ALL(sub, f32_sub, B, C)
F32_ALL(mul, f32_mul, B, C)
F32_2(f32v2add_aaat, f32_add, B, C, 0)
F32_2(f32v2sub_aaat, f32_sub, B, C, 0)
F32_2(f32v2mul_aaat, f32_mul, B, C, 0)

#define F16_ARITHMETIC(name)                                                                       \
    F16_ALL(name, fp_rounding, h_##name, B, C)                                                     \
    F16_2(f16v2##name##_aaal, fp_rounding, h_##name, B, C, PICK_LOW)                               \
    F16_2(f16v2##name##_aaau, fp_rounding, h_##name, B, C, PICK_HIGH)                              \
    F16_4(f16v4##name##_aaal, fp_rounding, h_##name, B, C, PICK_LOW, 0)                            \
    F16_4(f16v4##name##_aaau, fp_rounding, h_##name, B, C, PICK_HIGH, 0)

F16_ARITHMETIC(add)
F16_ARITHMETIC(sub)
F16_ARITHMETIC(mul)
F32_ALL(absadd, f32_absadd, B, C)
F16_ALL(absadd, fp_rounding, h_absadd, B, C)
F32_ALL(absmax, f32_absmax, B, C)
F16_ALL(absmax, fp_plain, h_absmax, B, C)
F32_ALL(min, f32_min, B, C)
F32_ALL(max, f32_max, B, C)
F16_ALL(min, fp_plain, h_min, B, C)
F16_ALL(max, fp_plain, h_max, B, C)
COMPARISONS(cmpeq)
COMPARISONS(cmpge)
COMPARISONS(cmpgt)
COMPARISONS(cmple)
COMPARISONS(cmplt)
COMPARISONS(cmpne)

/* ---- clamp: second source holds lower and upper bound ---------------------------------------- */

static uint32_t s_clamp(struct fp *f, uint32_t x, uint32_t lower, uint32_t upper) {
    if (f32_is_nan(x) || f32_is_nan(lower) || f32_is_nan(upper)) {
        if (f32_is_snan(x) || f32_is_snan(lower) || f32_is_snan(upper)) {
            f->flags |= FP_INV;
        }
        return FP_NAN32;
    }
    if (f32_in(x) > f32_in(upper)) {
        return f32_flush(upper);
    }
    return f32_max(f, x, lower);
}

static uint32_t h_clamp(struct fp *f, uint32_t x, uint32_t bounds) {
    uint32_t lower = half_of(bounds, 0), upper = half_of(bounds, 1);

    if (f16_is_nan(x) || f16_is_nan(lower) || f16_is_nan(upper)) {
        if (f16_is_snan(x) || f16_is_snan(lower) || f16_is_snan(upper)) {
            f->flags |= FP_INV;
        }
        return FP_NAN16;
    }
    if (f16_ordered(x) > f16_ordered(upper)) {
        return upper;
    }
    return f16_max(f, x, lower);
}

EXEC(f32clamp_aaan) {
    struct fp f = fp_plain(c);
    uint32_t r = s_clamp(&f, RA(B), RA2(C, 0), RA2(C, 1));
    int fault = fp_done(c, &f);

    if (fault == EXEC_OK) {
        WA(A) = r;
    }
    return fault;
}

EXEC(f32v2clamp_aaan) {
    struct fp f = fp_plain(c);
    uint32_t r0 = s_clamp(&f, RA2(B, 0), RA2(C, 0), RA2(C, 1));
    uint32_t r1 = s_clamp(&f, RA2(B, 1), RA2(C, 0), RA2(C, 1));
    int fault = fp_done(c, &f);

    if (fault == EXEC_OK) {
        WA2(A, 0) = r0;
        WA2(A, 1) = r1;
    }
    return fault;
}

static uint32_t h_clamp2(struct fp *f, uint32_t x, uint32_t bounds) {
    uint32_t lo = h_clamp(f, half_of(x, 0), bounds);

    return f16_pair(lo, h_clamp(f, half_of(x, 1), bounds));
}

EXEC(f16v2clamp_aaan) {
    struct fp f = fp_plain(c);
    uint32_t r = h_clamp2(&f, RA(B), RA(C));
    int fault = fp_done(c, &f);

    if (fault == EXEC_OK) {
        WA(A) = r;
    }
    return fault;
}

EXEC(f16v4clamp_aaan) {
    struct fp f = fp_plain(c);
    uint32_t r0 = h_clamp2(&f, RA2(B, 0), RA(C)), r1 = h_clamp2(&f, RA2(B, 1), RA(C));
    int fault = fp_done(c, &f);

    if (fault == EXEC_OK) {
        WA2(A, 0) = r0;
        WA2(A, 1) = r1;
    }
    return fault;
}

/* ---- class: a code per lane. Only the two NaN codes are published; the others are in the order
 * of the number line, so that code <= 2 is the test for NaN that public vertex code makes. */

enum {
    CLASS_SNAN = 1,
    CLASS_QNAN,
    CLASS_NINF,
    CLASS_NNORMAL,
    CLASS_NDENORMAL,
    CLASS_NZERO,
    CLASS_PZERO,
    CLASS_PDENORMAL,
    CLASS_PNORMAL,
    CLASS_PINF,
};

static uint32_t
class_of(bool is_negative, uint32_t exponent, uint32_t top, uint32_t mantissa, uint32_t quiet) {
    int code;

    if (exponent == top && mantissa != 0) {
        return (mantissa & quiet) != 0 ? CLASS_QNAN : CLASS_SNAN;
    }
    if (exponent == top) {
        code = CLASS_PINF;
    } else if (exponent != 0) {
        code = CLASS_PNORMAL;
    } else {
        code = mantissa != 0 ? CLASS_PDENORMAL : CLASS_PZERO;
    }
    return (uint32_t)(is_negative ? CLASS_NINF + CLASS_PINF - code : code);
}

static uint32_t s_class(uint32_t x) {
    return class_of(x >> 31, x >> 23 & 0xFF, 0xFF, x & 0x7FFFFFu, 0x400000u);
}

static uint32_t h_class(uint32_t x) {
    return class_of(x >> 15 & 1, x >> 10 & 31, 31, x & 0x3FFu, 0x200u);
}

/* The error code of quarter precision counts as a signalling NaN. */
static uint32_t q_class(uint32_t x, bool is_143) {
    uint32_t mant_bits = is_143 ? 3 : 2;

    if (x == FP_NAN8) {
        return CLASS_SNAN;
    }
    return class_of(x >> 7 & 1, (x & 0x7Fu) >> mant_bits, 0xFFu, x & ((1u << mant_bits) - 1), 0);
}

EXEC(f32class_aaan) {
    WA(A) = s_class(RA(B));
    return EXEC_OK;
}

EXEC(f32v2class_aaan) {
    WA(A) = s_class(RA2(B, 0)) | s_class(RA2(B, 1)) << 8;
    return EXEC_OK;
}

EXEC(f16v2class_aaan) {
    uint32_t x = RA(B);

    WA(A) = h_class(half_of(x, 0)) | h_class(half_of(x, 1)) << 8;
    return EXEC_OK;
}

EXEC(f16v4class_aaan) {
    uint32_t x = RA2(B, 0), y = RA2(B, 1);

    WA(A) = lane_bytes(
        h_class(half_of(x, 0)), h_class(half_of(x, 1)), h_class(half_of(y, 0)),
        h_class(half_of(y, 1)));
    return EXEC_OK;
}

EXEC(f8v4class_aaan) {
    uint32_t x = RA(B);
    bool is_143 = (c->fp_nfmt & 2) != 0;

    WA(A) = lane_bytes(
        q_class(x & 0xFF, is_143), q_class(x >> 8 & 0xFF, is_143), q_class(x >> 16 & 0xFF, is_143),
        q_class(x >> 24, is_143));
    return EXEC_OK;
}

/* ---- across lanes ---------------------------------------------------------------------------- */

EXEC(f16v2maxc_aaan) {
    struct fp f = fp_plain(c);
    uint32_t x = RA(B), r = f16_max(&f, half_of(x, 0), half_of(x, 1));
    int fault = fp_done(c, &f);

    if (fault == EXEC_OK) {
        WA(A) = r; /* high half 0 */
    }
    return fault;
}

EXEC(f16v4maxc_aaan) {
    struct fp f = fp_plain(c);
    uint32_t x = RA2(B, 0), y = RA2(B, 1);
    uint32_t lo = f16_max(&f, half_of(x, 0), half_of(x, 1));
    uint32_t hi = f16_max(&f, half_of(y, 0), half_of(y, 1));
    int fault = fp_done(c, &f);

    if (fault == EXEC_OK) {
        WA(A) = f16_pair(lo, hi);
    }
    return fault;
}

static uint32_t h_sum(struct fp *f, uint32_t x) {
    double a = f16_in(f, half_of(x, 0)), b = f16_in(f, half_of(x, 1));

    return f32_out(f, a + b);
}

EXEC(f16v2sum_aaan) {
    struct fp f = fp_plain(c);
    uint32_t r = h_sum(&f, RA(B));
    int fault = fp_done(c, &f);

    if (fault == EXEC_OK) {
        WA(A) = r;
    }
    return fault;
}

EXEC(f16v4sum_aaan) {
    struct fp f = fp_plain(c);
    uint32_t r0 = h_sum(&f, RA2(B, 0)), r1 = h_sum(&f, RA2(B, 1));
    int fault = fp_done(c, &f);

    if (fault == EXEC_OK) {
        WA2(A, 0) = r0;
        WA2(A, 1) = r1;
    }
    return fault;
}
