/* See fp_wide.h. On other processors every call answers false. */
#include "sim/fp_wide.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define WIDE __attribute__((target("avx2,f16c")))

static inline bool is_wide(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
}

/* Is any of the low n halves infinite or NaN? */
static inline WIDE bool any_special_half(__m128i h)
{
    __m128i top = _mm_set1_epi16(0x7C00);

    return _mm_movemask_epi8(_mm_cmpeq_epi16(_mm_and_si128(h, top), top)) != 0;
}

static inline WIDE bool any_special_single(__m128 v)
{
    __m128i top = _mm_set1_epi32(0x7F800000);

    return _mm_movemask_epi8(_mm_cmpeq_epi32(_mm_and_si128(_mm_castps_si128(v), top), top)) != 0;
}

/* Denormals to zeros of their sign. */
static inline WIDE __m128 flush(__m128 v)
{
    __m128i bits = _mm_castps_si128(v), top = _mm_set1_epi32(0x7F800000);
    __m128i tiny = _mm_cmpeq_epi32(_mm_and_si128(bits, top), _mm_setzero_si128());

    tiny = _mm_and_si128(tiny, _mm_set1_epi32(0x7FFFFFFF));
    return _mm_castsi128_ps(_mm_andnot_si128(tiny, bits));
}

static inline WIDE __m128 halves(uint64_t x)
{
    return _mm_cvtph_ps(_mm_cvtsi64_si128((long long)x));
}

static WIDE bool half_wide(enum wide_op op, uint64_t x, uint64_t y, uint64_t *ret)
{
    __m128 a = halves(x), b = halves(y), r;
    __m128i h;

    if (op == WIDE_ADD) {
        r = _mm_add_ps(a, b);
    } else if (op == WIDE_SUB) {
        r = _mm_sub_ps(a, b);
    } else {
        r = _mm_mul_ps(a, b);
    }
    h = _mm_cvtps_ph(r, _MM_FROUND_TO_NEAREST_INT);
    if (any_special_half(h)) {
        return false;
    }
    *ret = (uint64_t)_mm_cvtsi128_si64(h);
    return true;
}

bool wide_half(enum wide_op op, uint64_t x, uint64_t y, uint64_t *ret)
{
    return is_wide() && half_wide(op, x, y, ret);
}

static WIDE bool cmac_wide(uint64_t x, uint64_t y, uint32_t acc[2])
{
    __m256d p = _mm256_mul_pd(_mm256_cvtps_pd(halves(x)), _mm256_cvtps_pd(halves(y)));
    __m256d zero = _mm256_setzero_pd();
    /* +0 + p0 + p1 in the low lane of each half */
    __m256d sum = _mm256_add_pd(_mm256_add_pd(zero, p), _mm256_permute_pd(p, 0x5));
    __m128 dots = _mm256_cvtpd_ps(_mm256_permute4x64_pd(sum, 0x08));
    __m128 old = _mm_castsi128_ps(_mm_loadl_epi64((const __m128i *)(const void *)acc));
    __m128 r = flush(_mm_add_ps(flush(old), flush(dots)));

    r = _mm_movelh_ps(r, r); /* the upper two lanes hold nothing */
    if (any_special_single(r)) {
        return false;
    }
    _mm_storel_epi64((__m128i *)(void *)acc, _mm_castps_si128(r));
    return true;
}

bool wide_cmac(uint64_t x, uint64_t y, uint32_t acc[2])
{
    return is_wide() && cmac_wide(x, y, acc);
}

static inline WIDE __m128 load4(const uint32_t *p)
{
    return _mm_castsi128_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

static inline WIDE void store4(uint32_t *p, __m128 v)
{
    _mm_storeu_si128((__m128i *)(void *)p, _mm_castps_si128(v));
}

/* base + dot for units k .. k+3; the sum begins with +0. */
static inline __attribute__((always_inline)) WIDE __m128 add_dots(const double (*w)[16],
    const __m256d *x, int lanes, const uint32_t *base, int k)
{
    __m256d sum = _mm256_setzero_pd();

#pragma GCC unroll 8
    for (int i = 0; i < lanes; i++) {
        sum = _mm256_add_pd(sum, _mm256_mul_pd(_mm256_loadu_pd(&w[i][k]), x[i]));
    }
    return flush(_mm_add_ps(flush(load4(&base[k])), flush(_mm256_cvtpd_ps(sum))));
}

static inline __attribute__((always_inline)) WIDE bool sums_all(const double (*w)[16],
    const __m256d *x, int lanes, int vectors, const uint32_t *base, __m128 *sums)
{
    __m128i bad = _mm_setzero_si128(), top = _mm_set1_epi32(0x7F800000);

#pragma GCC unroll 4
    for (int q = 0; q < vectors; q++) {
        sums[q] = add_dots(w, x, lanes, base, 4 * q);
        bad = _mm_or_si128(bad,
            _mm_cmpeq_epi32(_mm_and_si128(_mm_castps_si128(sums[q]), top), top));
    }
    return _mm_movemask_epi8(bad) == 0;
}

/* Dots of all units; false when one is not finite. */
static inline __attribute__((always_inline)) WIDE bool sums_of(const struct wide_amp *s,
    const uint32_t *base, __m128 *sums)
{
    __m256d x[8];

    if (s->x == NULL) {
        __m256d v = _mm256_cvtps_pd(halves(s->x_half));
        x[0] = _mm256_permute4x64_pd(v, 0x00);
        x[1] = _mm256_permute4x64_pd(v, 0x55);
        x[2] = _mm256_permute4x64_pd(v, 0xAA);
        x[3] = _mm256_permute4x64_pd(v, 0xFF);
        return s->sets == 2 ? sums_all(s->w, x, 4, 4, base, sums)
                            : sums_all(s->w, x, 4, 2, base, sums);
    }
    for (int i = 0; i < 8; i++) {
        x[i] = _mm256_broadcast_sd(&s->x[i]);
    }
    return s->sets == 2 ? sums_all(s->w, x, 8, 4, base, sums)
                        : sums_all(s->w, x, 8, 2, base, sums);
}

/* The chain of one set moves up by an engine; the last engine takes `in` (two singles, low). */
static inline WIDE void shift_set(const uint32_t *from, uint32_t *to, __m128 in)
{
    __m128 a = load4(from + 2), b = load4(from + 4);

    store4(to, a);
    store4(to + 4, _mm_movelh_ps(_mm_movehl_ps(b, b), in));
}

static WIDE bool amp_wide(const struct wide_amp *s, uint64_t *ret)
{
    const uint32_t *head = s->is_first ? s->even : s->odd;
    const uint32_t *base = s->is_first ? s->odd : s->even;
    __m128i pair = _mm_loadl_epi64((const __m128i *)(const void *)head);
    __m128 result = _mm_castsi128_ps(pair), in, sums[4];
    bool is_special = false;

    if (s->sets == 2) {
        pair = _mm_loadl_epi64((const __m128i *)(const void *)(head + 8));
        result = _mm_movelh_ps(result, _mm_castsi128_ps(pair));
    }
    if (s->is_half) {
        __m128i h = _mm_cvtps_ph(result, _MM_FROUND_TO_NEAREST_INT);
        in = halves(s->partial);
        is_special = any_special_half(h) || any_special_single(in);
        *ret = (uint64_t)_mm_cvtsi128_si64(h);
    } else {
        in = flush(_mm_castsi128_ps(_mm_cvtsi64_si128((long long)s->partial)));
        is_special = any_special_single(result) || any_special_single(in);
        *ret = (uint64_t)_mm_cvtsi128_si64(_mm_castps_si128(flush(result)));
    }
    if (is_special || !sums_of(s, base, sums)) {
        return false;
    }
    shift_set(head, s->odd, in);
    if (s->sets == 2) {
        shift_set(head + 8, s->odd + 8, _mm_movehl_ps(in, in));
    }
    for (int q = 0; q < 2 * s->sets; q++) {
        store4(&s->even[4 * q], sums[q]);
    }
    return true;
}

bool wide_amp(const struct wide_amp *s, uint64_t *ret)
{
    return is_wide() && amp_wide(s, ret);
}

#else

bool wide_half(enum wide_op op, uint64_t x, uint64_t y, uint64_t *ret)
{
    (void)op, (void)x, (void)y, (void)ret;
    return false;
}

bool wide_cmac(uint64_t x, uint64_t y, uint32_t acc[2])
{
    (void)x, (void)y, (void)acc;
    return false;
}

bool wide_amp(const struct wide_amp *s, uint64_t *ret)
{
    (void)s, (void)ret;
    return false;
}

#endif
