/* Busy instructions in whole vectors, where the processor can: for the common case in which
 * nothing is infinite, NaN or too large and stochastic rounding is off. Each function does its
 * instruction wholly, or writes nothing and hands over to the one of the same name in exec_*.c;
 * decoding puts its choice into struct dec. Results are the same bits either way, because
 *
 *   half add, sub, mul   one operation in single and one rounding to half equal one rounding:
 *                        products are exact in 24 bits, and 24 >= 2 * 11 + 2 for sums;
 *   dot products         products of halves (22 bits) and of scaled quarters are exact in double,
 *                        so that a fused multiply-add rounds where the addition alone does, in the
 *                        same order; then one rounding to single. Products are multiples of 2^-48
 *                        (halves) or 2^-66 (quarters at the smallest scale): no such sum is
 *                        denormal as a single, and one that is zero is +0, as sums begin with +0;
 *   accumulators         one addition in single. A denormal one counts as zero; beside a dot
 *                        product that is not zero it cannot be seen, else the careful way is taken.
 */
#include "sim/exec.h"
#include "sim/exec_imm.h"
#include "sim/fp.h"

#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>

#define WIDE    __attribute__((target("avx2,fma,f16c,bmi2")))
#define WIDE512 __attribute__((target("avx2,fma,f16c,bmi2,avx512f,avx512dq,avx512bw,avx512vl")))
#define INLINE  static inline __attribute__((always_inline))

/* Not every compiler knows "f16c" as a feature to ask for: CPUID leaf 1, ECX bit 29. */
static bool has_f16c(void) {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c >> 29 & 1) != 0;
}

static bool has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c() &&
           __builtin_cpu_supports("bmi2");
}

static bool has_avx512(void) {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}

enum exec_level exec_level_best(void) {
    return has_avx512() ? EXEC_AVX512 : has_avx2() ? EXEC_AVX2 : EXEC_SCALAR;
}

/* ---- halves ---------------------------------------------------------------------------------- */

INLINE uint64_t pair_at(const uint32_t *p) {
    uint64_t v;

    memcpy(&v, p, sizeof v);
    return v;
}

INLINE void put_pair(uint32_t *p, uint64_t v) {
    memcpy(p, &v, sizeof v);
}

/* Is any of four halves infinite or NaN? An exponent of ones carries into the sign. */
INLINE bool any_special(uint64_t h) {
    return (((h & 0x7C007C007C007C00u) + 0x0400040004000400u) & 0x8000800080008000u) != 0;
}

INLINE WIDE __m128 halves(uint64_t h) {
    return _mm_cvtph_ps(_mm_cvtsi64_si128((long long)h));
}

INLINE WIDE uint64_t to_halves(__m128 v) {
    return (uint64_t)_mm_cvtsi128_si64(_mm_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

#define ALL_LANES(h) ((uint64_t)(h)*0x0001000100010001u)

/* The upper two lanes of a two-lane form compute something that nobody looks at, unless it is
 * special: then the careful way finds out. */
#define HALF(id, n, op, x)                                                                         \
    static WIDE int wide_##id(struct tile *t, struct context *c, const struct dec *d) {            \
        uint64_t y = (n) == 4 ? pair_at(&RA(C)) : RA(C);                                           \
        uint64_t r = to_halves(op(halves(x), halves(y)));                                          \
        if (any_special(r) || (c->fp_ctl & FP_CTL_ESR) != 0) {                                     \
            return exec_##id(t, c, d);                                                             \
        }                                                                                          \
        if ((n) == 4) {                                                                            \
            put_pair(&WA(A), r);                                                                   \
        } else {                                                                                   \
            WA(A) = (uint32_t)r;                                                                   \
        }                                                                                          \
        return EXEC_OK;                                                                            \
    }
#define HALVES(name, op)                                                                           \
    HALF(f16v2##name##_aaan, 2, op, RA(B))                                                         \
    HALF(f16v2##name##_aaal, 2, op, ALL_LANES(RA(B) & 0xFFFFu))                                    \
    HALF(f16v2##name##_aaau, 2, op, ALL_LANES(RA(B) >> 16))                                        \
    HALF(f16v4##name##_aaan, 4, op, pair_at(&RA(B)))                                               \
    HALF(f16v4##name##_aaal, 4, op, ALL_LANES(RA(B) & 0xFFFFu))                                    \
    HALF(f16v4##name##_aaau, 4, op, ALL_LANES(RA(B) >> 16))

HALVES(add, _mm_add_ps)
HALVES(sub, _mm_sub_ps)
HALVES(mul, _mm_mul_ps)

/* Denormals to zeros of their sign. */
INLINE WIDE __m128 flush(__m128 v) {
    __m128i bits = _mm_castps_si128(v), top = _mm_set1_epi32(0x7F800000);
    __m128i tiny = _mm_cmpeq_epi32(_mm_and_si128(bits, top), _mm_setzero_si128());

    tiny = _mm_and_si128(tiny, _mm_set1_epi32(0x7FFFFFFF));
    return _mm_castsi128_ps(_mm_andnot_si128(tiny, bits));
}

INLINE WIDE __m128i special_lanes(__m128 v) {
    __m128i top = _mm_set1_epi32(0x7F800000);

    return _mm_cmpeq_epi32(_mm_and_si128(_mm_castps_si128(v), top), top);
}

INLINE WIDE bool any_special_single(__m128 v) {
    return _mm_movemask_epi8(special_lanes(v)) != 0;
}

static WIDE int wide_f16v4cmac_aaan(struct tile *t, struct context *c, const struct dec *d) {
    __m256d x = _mm256_cvtps_pd(halves(pair_at(&RA(A))));
    __m256d p = _mm256_mul_pd(x, _mm256_cvtps_pd(halves(pair_at(&RA(B)))));
    /* +0 + p0 + p1 in the low lane of each half */
    __m256d sum = _mm256_add_pd(_mm256_add_pd(_mm256_setzero_pd(), p), _mm256_permute_pd(p, 0x5));
    __m128 dots = _mm256_cvtpd_ps(_mm256_permute4x64_pd(sum, 0x08));
    __m128 old = _mm_castsi128_ps(_mm_cvtsi64_si128((long long)pair_at(c->even)));
    __m128 r = flush(_mm_add_ps(flush(old), dots));

    r = _mm_movelh_ps(r, r); /* the upper two lanes hold nothing */
    if (any_special_single(r)) {
        return exec_f16v4cmac_aaan(t, c, d);
    }
    put_pair(c->even, (uint64_t)_mm_cvtsi128_si64(_mm_castps_si128(r)));
    return EXEC_OK;
}

/* ---- matrix engine --------------------------------------------------------------------------- */

enum kind { SINGLE2, HALF2, HALF4 }; /* partials and results; the last uses both sets */

/* Table of coefficients of the phase, if it is up to date. */
INLINE const double (
    *table_of(const struct tile *t, const struct context *c, const struct dec *d, bool is_f8))[16] {
    const struct coefs *w = t->coefs;
    enum coef_form form = !is_f8 ? COEF_F16 : (c->fp_nfmt & 1) != 0 ? COEF_F8_143 : COEF_F8_152;

    return w == NULL || w->form != form || w->stale != 0 ? NULL : w->lane[IMM_PHASE(d)];
}

/* Is one of eight quarters the error code? */
INLINE bool any_error_code(uint64_t codes) {
    uint64_t x = codes ^ 0x8080808080808080u;

    return ((x - 0x0101010101010101u) & ~x & 0x8080808080808080u) != 0;
}

/* Eight quarters as singles: the bits shifted into place are the value times a power of two, also
 * where they are denormal. */
INLINE WIDE __m256 quarters(uint64_t codes, bool is_143) {
    __m256i v = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)codes));
    __m256i low = _mm256_and_si256(v, _mm256_set1_epi32(0x7F));
    __m256i sign = _mm256_slli_epi32(_mm256_and_si256(v, _mm256_set1_epi32(0x80)), 24);
    __m256 scale = _mm256_set1_ps(is_143 ? 0x1p119f : 0x1p111f);

    low = _mm256_sll_epi32(low, _mm_cvtsi32_si128(is_143 ? 20 : 21));
    return _mm256_or_ps(_mm256_mul_ps(_mm256_castsi256_ps(low), scale), _mm256_castsi256_ps(sign));
}

INLINE uint64_t partial_of(const struct context *c, const struct dec *d, enum kind kind) {
    return kind == HALF2 ? RA(C) : pair_at(&RA(C));
}

INLINE void put_result(struct context *c, const struct dec *d, enum kind kind, uint64_t out) {
    if (kind == HALF2) {
        WA(A) = (uint32_t)out;
    } else {
        put_pair(&WA(A), out);
    }
}

/* The first accumulators of the chain (of both chains, for the form with two sets). */
INLINE WIDE __m128 heads(const uint32_t *from, enum kind kind) {
    __m128i low = _mm_cvtsi64_si128((long long)pair_at(from));

    return _mm_castsi128_ps(
        kind == HALF4 ? _mm_insert_epi64(low, (long long)pair_at(from + 8), 1) : low);
}

INLINE WIDE __m128 load4(const uint32_t *p) {
    return _mm_castsi128_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

INLINE WIDE void store4(uint32_t *p, __m128 v) {
    _mm_storeu_si128((__m128i *)(void *)p, _mm_castps_si128(v));
}

/* base + dot for units k .. k+3. */
INLINE WIDE __m128
add_dots(const double (*w)[16], const __m256d *x, int lanes, const uint32_t *base, int k) {
    __m256d sum = _mm256_setzero_pd();

#pragma GCC unroll 8
    for (int i = 0; i < lanes; i++) {
        sum = _mm256_fmadd_pd(_mm256_loadu_pd(&w[i][k]), x[i], sum);
    }
    return flush(_mm_add_ps(flush(load4(&base[k])), _mm256_cvtpd_ps(sum)));
}

#define SPREAD(x, v)                                                                               \
    do {                                                                                           \
        (x)[0] = _mm256_permute4x64_pd((v), 0x00);                                                 \
        (x)[1] = _mm256_permute4x64_pd((v), 0x55);                                                 \
        (x)[2] = _mm256_permute4x64_pd((v), 0xAA);                                                 \
        (x)[3] = _mm256_permute4x64_pd((v), 0xFF);                                                 \
    } while (0)

/* Operand lanes, each in all lanes of a vector; false when a quarter is the error code. */
INLINE WIDE bool
spread_operand(const struct context *c, const struct dec *d, bool is_f8, __m256d *x) {
    uint64_t bits = pair_at(&RA(B));

    if (is_f8) {
        __m256 v = quarters(bits, (c->fp_nfmt & 2) != 0);
        __m256d factor = _mm256_set1_pd(power_of_two(fp_scale(c)));
        SPREAD(x, _mm256_mul_pd(_mm256_cvtps_pd(_mm256_castps256_ps128(v)), factor));
        SPREAD(x + 4, _mm256_mul_pd(_mm256_cvtps_pd(_mm256_extractf128_ps(v, 1)), factor));
        return !any_error_code(bits);
    }
    SPREAD(x, _mm256_cvtps_pd(halves(bits)));
    return true;
}

/* The chain of one set moves up by an engine; the last engine takes `in` (two singles, low). */
INLINE WIDE void shift_set(const uint32_t *from, uint32_t *to, __m128 in) {
    __m128 a = load4(from + 2), b = load4(from + 4);

    store4(to, a);
    store4(to + 4, _mm_movelh_ps(_mm_movehl_ps(b, b), in));
}

/* One issue with all engines. */
INLINE WIDE int amp_avx2(
    struct tile *t, struct context *c, const struct dec *d, exec_fn *careful, enum kind kind,
    bool is_f8) {
    const double(*w)[16] = table_of(t, c, d, is_f8);
    bool is_first = IMM_PHASE(d) == 0, is_special;
    const uint32_t *from = is_first ? c->even : c->odd, *base = is_first ? c->odd : c->even;
    uint64_t partial = partial_of(c, d, kind), out;
    __m128 result = heads(from, kind), in, sums[4];
    __m128i bad = _mm_setzero_si128();
    __m256d x[8];

    if (w == NULL || !spread_operand(c, d, is_f8, x)) {
        return careful(t, c, d);
    }
    if (kind == SINGLE2) {
        in = flush(_mm_castsi128_ps(_mm_cvtsi64_si128((long long)partial)));
        is_special = any_special_single(result) || any_special_single(in);
        out = (uint64_t)_mm_cvtsi128_si64(_mm_castps_si128(flush(result)));
    } else {
        in = halves(partial);
        out = to_halves(result);
        is_special = any_special(out) || any_special(partial);
    }
#pragma GCC unroll 4
    for (int q = 0; q < 4; q++) {
        if (kind == HALF4 || q < 2) {
            sums[q] = add_dots(w, x, is_f8 ? 8 : 4, base, 4 * q);
            bad = _mm_or_si128(bad, special_lanes(sums[q]));
        }
    }
    if (is_special || _mm_movemask_epi8(bad) != 0) {
        return careful(t, c, d);
    }
    shift_set(from, c->odd, in);
    if (kind == HALF4) {
        shift_set(from + 8, c->odd + 8, _mm_movehl_ps(in, in));
    }
#pragma GCC unroll 4
    for (int q = 0; q < 4; q++) {
        if (kind == HALF4 || q < 2) {
            store4(&c->even[4 * q], sums[q]);
        }
    }
    put_result(c, d, kind, out);
    return EXEC_OK;
}

/* ---- the same in vectors of 512 bits --------------------------------------------------------- */

enum { NOT_PLAIN = 0xB9 }; /* NaN, infinite or denormal, for the class instructions */

/* Lanes 4h .. 4h+3 of eight (or four) doubles, in both halves of a vector. */
INLINE WIDE512 __m512d
operand_half(const struct context *c, const struct dec *d, bool is_f8, int h) {
    uint64_t bits = pair_at(&RA(B));
    __m256 v;

    if (!is_f8) {
        return _mm512_broadcast_f64x4(_mm256_cvtps_pd(halves(bits)));
    }
    v = quarters(bits, (c->fp_nfmt & 2) != 0);
    return _mm512_mul_pd(
        _mm512_broadcast_f64x4(
            _mm256_cvtps_pd(h == 0 ? _mm256_castps256_ps128(v) : _mm256_extractf128_ps(v, 1))),
        _mm512_set1_pd(power_of_two(fp_scale(c))));
}

/* Four more products into the sums of the 8 units from k on. */
#define FOUR(sum, w, i, k, x)                                                                      \
    do {                                                                                           \
        (sum) = _mm512_fmadd_pd(                                                                   \
            _mm512_loadu_pd(&(w)[(i) + 0][k]), _mm512_permutex_pd((x), 0x00), (sum));              \
        (sum) = _mm512_fmadd_pd(                                                                   \
            _mm512_loadu_pd(&(w)[(i) + 1][k]), _mm512_permutex_pd((x), 0x55), (sum));              \
        (sum) = _mm512_fmadd_pd(                                                                   \
            _mm512_loadu_pd(&(w)[(i) + 2][k]), _mm512_permutex_pd((x), 0xAA), (sum));              \
        (sum) = _mm512_fmadd_pd(                                                                   \
            _mm512_loadu_pd(&(w)[(i) + 3][k]), _mm512_permutex_pd((x), 0xFF), (sum));              \
    } while (0)

INLINE WIDE512 __m256 dots8(const double (*w)[16], __m512d x0, __m512d x1, bool is_f8, int k) {
    __m512d sum = _mm512_setzero_pd();

    FOUR(sum, w, 0, k, x0);
    if (is_f8) {
        FOUR(sum, w, 4, k, x1);
    }
    return _mm512_cvtpd_ps(sum);
}

/* Both sets: accumulators of 16 units in one vector. False: nothing was written. */
INLINE WIDE512 bool sets_two(
    struct context *c, const double (*w)[16], __m512d x0, __m512d x1, bool is_f8, bool is_first,
    __m128 in) {
    const uint32_t *from = is_first ? c->even : c->odd, *base = is_first ? c->odd : c->even;
    __m256 low = dots8(w, x0, x1, is_f8, 0), high = dots8(w, x0, x1, is_f8, 8);
    __m512 dots = _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
    __m512 sums = _mm512_add_ps(_mm512_loadu_ps(base), dots);
    __m512i chain = _mm512_loadu_si512(from), next = _mm512_castsi128_si512(_mm_castps_si128(in));

    if (_mm512_fpclass_ps_mask(sums, NOT_PLAIN) != 0) {
        return false;
    }
    chain = _mm512_permutex2var_epi64(chain, _mm512_setr_epi64(1, 2, 3, 8, 5, 6, 7, 9), next);
    _mm512_storeu_si512(c->odd, chain);
    _mm512_storeu_ps(c->even, sums);
    return true;
}

INLINE WIDE512 bool
set_one(struct context *c, const double (*w)[16], __m512d x0, bool is_first, __m128 in) {
    const uint32_t *from = is_first ? c->even : c->odd, *base = is_first ? c->odd : c->even;
    __m256 sums = _mm256_add_ps(
        _mm256_loadu_ps((const float *)(const void *)base), dots8(w, x0, x0, false, 0));
    __m256i chain = _mm256_loadu_si256((const __m256i *)(const void *)from);
    __m256i next = _mm256_castsi128_si256(_mm_castps_si128(in));

    if (_mm256_fpclass_ps_mask(sums, NOT_PLAIN) != 0) {
        return false;
    }
    chain = _mm256_permutex2var_epi64(chain, _mm256_setr_epi64x(1, 2, 3, 4), next);
    _mm256_storeu_si256((__m256i *)(void *)c->odd, chain);
    _mm256_storeu_ps((float *)(void *)c->even, sums);
    return true;
}

INLINE WIDE512 int amp_avx512(
    struct tile *t, struct context *c, const struct dec *d, exec_fn *careful, enum kind kind,
    bool is_f8, bool is_first) {
    const double(*w)[16] = table_of(t, c, d, is_f8);
    uint64_t partial = partial_of(c, d, kind), out;
    __m128 result = heads(is_first ? c->even : c->odd, kind), in;
    __m512d x0, x1;
    bool is_done;

    if (w == NULL || (is_f8 && any_error_code(pair_at(&RA(B))))) {
        return careful(t, c, d);
    }
    if (kind == SINGLE2) {
        in = _mm_castsi128_ps(_mm_cvtsi64_si128((long long)partial));
        out = (uint64_t)_mm_cvtsi128_si64(_mm_castps_si128(result));
        if (_mm_fpclass_ps_mask(_mm_movelh_ps(result, in), NOT_PLAIN) != 0) {
            return careful(t, c, d);
        }
    } else {
        in = halves(partial);
        out = to_halves(result);
        if (any_special(out) || any_special(partial)) {
            return careful(t, c, d);
        }
    }
    x0 = operand_half(c, d, is_f8, 0);
    x1 = is_f8 ? operand_half(c, d, is_f8, 1) : x0;
    is_done = kind == HALF4 ? sets_two(c, w, x0, x1, is_f8, is_first, in)
                            : set_one(c, w, x0, is_first, in);
    if (!is_done) {
        return careful(t, c, d);
    }
    put_result(c, d, kind, out);
    return EXEC_OK;
}

#define AMP(name, kind, is_f8)                                                                     \
    static WIDE int avx2_##name(struct tile *t, struct context *c, const struct dec *d) {          \
        return amp_avx2(t, c, d, exec_##name##_aaan_ef, kind, is_f8);                              \
    }                                                                                              \
    static WIDE512 int first_##name(struct tile *t, struct context *c, const struct dec *d) {      \
        return amp_avx512(t, c, d, exec_##name##_aaan_ef, kind, is_f8, true);                      \
    }                                                                                              \
    static WIDE512 int later_##name(struct tile *t, struct context *c, const struct dec *d) {      \
        return amp_avx512(t, c, d, exec_##name##_aaan_ef, kind, is_f8, false);                     \
    }

AMP(f16v4sisoamp, SINGLE2, false)
AMP(f16v4hihoamp, HALF2, false)
AMP(f16v4hihov4amp, HALF4, false)
AMP(f8v8hihov4amp, HALF4, true)

/* ---- the choice ------------------------------------------------------------------------------ */

struct choice {
    exec_fn *avx2;
    exec_fn *first, *later; /* with 512 bits, by phase; NULL = as avx2 */
};

static const struct choice choices[ISA_OP_COUNT] = {
#define CHOICE(id) [ISA_OP_##id] = {wide_##id, NULL, NULL},
#define CHOICES(name)                                                                              \
    CHOICE(f16v2##name##_aaan)                                                                     \
    CHOICE(f16v2##name##_aaal)                                                                     \
    CHOICE(f16v2##name##_aaau) CHOICE(f16v4##name##_aaan) CHOICE(f16v4##name##_aaal)               \
        CHOICE(f16v4##name##_aaau)
#define CHOICE_AMP(name) [ISA_OP_##name##_aaan_ef] = {avx2_##name, first_##name, later_##name},
    CHOICES(add) CHOICES(sub) CHOICES(mul) CHOICE(f16v4cmac_aaan) CHOICE_AMP(f16v4sisoamp)
        CHOICE_AMP(f16v4hihoamp) CHOICE_AMP(f16v4hihov4amp) CHOICE_AMP(f8v8hihov4amp)};

exec_fn *exec_choose(const struct dec *d, enum exec_level level) {
    const struct choice *k = &choices[d->op];

    if (level == EXEC_SCALAR || k->avx2 == NULL || (k->first != NULL && IMM_ENGINES(d) != 4)) {
        return exec_table[d->op];
    }
    if (level == EXEC_AVX2 || k->first == NULL) {
        return k->avx2;
    }
    return IMM_PHASE(d) == 0 ? k->first : k->later;
}

#else

enum exec_level exec_level_best(void) {
    return EXEC_SCALAR;
}

exec_fn *exec_choose(const struct dec *d, enum exec_level level) {
    (void)level;
    return exec_table[d->op];
}

#endif
