/* Half precision, every value: conversions from single precision at all ties, next to them and at
 * ten million random values; the classes and the sigmoid of all 65,536 halves. The reference here
 * knows integers only (the sigmoid, which the device computes coarsely, apart). Values stream
 * through a loop on one simulated worker, a table at a time.
 *
 * The other unary forms, whose exact results take more than a few lines, are swept by
 * tests/oracle/generate.py. */
#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "isa/isa.h"
#include "sim/sim.h"

#define CODE   0x4C100u
#define IN     0x80000u /* 16 bytes a step at most, in region 1 */
#define OUT    0xC0000u
#define STEPS  8192u
#define FP_CTL 258
#define FP_STS 256
#define OFLO   4u
#define INV    1u
#define NAN16  0x7ECEu
#define NANOO  (1u << 20)

static uint32_t word_of(const char *text) {
    struct insn insn;
    struct err err = {0};
    uint32_t word;

    ck_assert_msg(isa_parse(text, ISA_WORKER, &insn, &err) == 0, "%s: %s", text, err.text);
    insn.coissue = true;
    ck_assert_int_eq(isa_encode(&insn, &word, &err), 0);
    return word;
}

/* A worker with the loop {load ; -} {- ; work} {store ; -} over STEPS steps. */
static struct sim_tile *looping(const char *load, const char *work, const char *store) {
    const char *text[8] = {"rpt $m3, 2",    "setzi $a13, 0", load,
                           "setzi $a13, 0", "setzi $m14, 0", work,
                           store,           "setzi $a13, 0"};
    struct sim_tile *t = sim_tile_new(NULL);

    ck_assert_ptr_nonnull(t);
    sim_tile_zero(t);
    for (uint32_t i = 0; i < 8; i++) {
        uint32_t word = word_of(text[i]);
        ck_assert_int_eq(sim_tile_write(t, CODE + 4 * i, &word, 4, NULL), 0);
    }
    return t;
}

/* Runs the loop over in[] of in_bytes; out[] gets out_bytes. Returns the flags. */
static uint32_t stream(
    struct sim_tile *t, uint32_t fp_ctl, const void *in, uint32_t in_bytes, void *out,
    uint32_t out_bytes, uint32_t steps) {
    struct sim_stopped stop;
    uint64_t flags;

    ck_assert_int_eq(sim_tile_write(t, IN, in, in_bytes, NULL), 0);
    sim_tile_set(t, SIM_WORKER0, 'p', 0, CODE, NULL);
    sim_tile_set(t, SIM_WORKER0, 'm', 1, IN, NULL);
    sim_tile_set(t, SIM_WORKER0, 'm', 2, OUT, NULL);
    sim_tile_set(t, SIM_WORKER0, 'm', 3, steps, NULL);
    sim_tile_set(t, SIM_WORKER0, 's', FP_CTL, fp_ctl, NULL);
    sim_tile_set(t, SIM_WORKER0, 's', FP_STS, 0, NULL);
    sim_tile_step(t, SIM_WORKER0, 1 + 3 * (uint64_t)steps, &stop);
    ck_assert_int_eq(stop.why, SIM_STOP_STEPS);
    ck_assert_int_eq(sim_tile_get(t, SIM_WORKER0, 's', FP_STS, &flags, NULL), 0);
    ck_assert_int_eq(sim_tile_read(t, OUT, out, out_bytes, NULL), 0);
    return (uint32_t)flags;
}

/* ---- single to half -------------------------------------------------------------------------- */

/* Nearest half of a single precision pattern, ties to even, by integers; adds flags. */
static uint32_t half_of_single(uint32_t x, bool nanoo, uint32_t *flags) {
    uint32_t sign = x >> 16 & 0x8000u, magnitude = x & 0x7FFFFFFFu;
    uint32_t exponent = magnitude >> 23, m = (magnitude & 0x7FFFFFu) | 0x800000u, drop, kept, rest;

    if (exponent == 255) {
        *flags |= magnitude == 0x7F800000u || (magnitude & 0x400000u) == 0 ? INV : 0;
        return NAN16;
    }
    if (exponent < 127 - 25) {
        return sign; /* below half of the smallest denormal */
    }
    drop = exponent >= 113 ? 13 : 13 + 113 - exponent;
    kept = m >> drop;
    rest = m & ((1u << drop) - 1);
    if (rest > 1u << (drop - 1) || (rest == 1u << (drop - 1) && (kept & 1) != 0)) {
        kept++;
    }
    if (exponent >= 113) {
        kept += (exponent - 113) << 10; /* the leading one counts as the first exponent unit */
    }
    if (kept > 0x7BFF) {
        *flags |= OFLO | (nanoo ? INV : 0);
        return nanoo ? NAN16 : sign | 0x7BFF;
    }
    return sign | kept;
}

struct narrowing {
    struct sim_tile *t;
    uint32_t in[4 * STEPS];
    uint16_t out[4 * STEPS];
    uint32_t count;
    uint64_t total;
};

static void narrowing_flush(struct narrowing *n) {
    for (int mode = 0; mode < 2; mode++) {
        uint32_t want = 0, got;
        memset(n->in + n->count, 0, (4 * STEPS - n->count) * sizeof n->in[0]);
        got =
            stream(n->t, mode == 1 ? NANOO : 0, n->in, sizeof n->in, n->out, sizeof n->out, STEPS);
        for (uint32_t i = 0; i < 4 * STEPS; i++) {
            uint32_t h = half_of_single(n->in[i], mode == 1, &want);
            if (h != n->out[i]) { /* the checking macro is too slow for every value */
                ck_abort_msg("%08x gives %04x, expected %04x", n->in[i], n->out[i], h);
            }
        }
        ck_assert_uint_eq(got, want);
    }
    n->total += n->count;
    n->count = 0;
}

static void narrow(struct narrowing *n, uint32_t x) {
    n->in[n->count++] = x;
    if (n->count == 4 * STEPS) {
        narrowing_flush(n);
    }
}

static void narrow_around(struct narrowing *n, uint32_t x) {
    for (uint32_t sign = 0; sign < 2; sign++) {
        narrow(n, (x - 1) | sign << 31);
        narrow(n, x | sign << 31);
        narrow(n, (x + 1) | sign << 31);
    }
}

static struct narrowing *narrowing_new(void) {
    struct narrowing *n = calloc(1, sizeof *n);

    ck_assert_ptr_nonnull(n);
    n->t = looping(
        "ld128step $a0:3, $m15, $m1+=, 1", "f32v4tof16 $a4:5, $a0:3",
        "st64step $a4:5, $m15, $m2+=, 1");
    return n;
}

static void narrowing_free(struct narrowing *n) {
    sim_tile_free(n->t);
    free(n);
}

START_TEST(single_to_half_at_ties) {
    struct narrowing *n = narrowing_new();

    /* Halfway between two normal halves: the bit below the last place alone. */
    for (uint32_t exponent = 113; exponent <= 143; exponent++) {
        for (uint32_t m = 0; m < 1024; m++) {
            narrow_around(n, exponent << 23 | m << 13 | 1u << 12);
        }
    }
    /* Between two denormals: (k + 1/2) * 2^-24, i.e. (2k + 1) * 2^-25. */
    for (uint32_t k = 0; k < 1024; k++) {
        uint32_t odd = 2 * k + 1, top = 31 - (uint32_t)__builtin_clz(odd);
        narrow_around(n, (127 - 25 + top) << 23 | (odd << (23 - top) & 0x7FFFFFu));
    }
    /* The halves themselves, and the special singles. */
    for (uint32_t h = 0x0400; h < 0x7C00; h++) {
        narrow_around(n, (h << 13) + (112u << 23));
    }
    narrow_around(n, 0x7F800000);
    narrow_around(n, 0x7FC00000);
    narrow_around(n, 0x00000001);
    narrow_around(n, 0x00800000);
    narrowing_flush(n);
    ck_assert_uint_gt(n->total, 190000);
    narrowing_free(n);
}
END_TEST

START_TEST(single_to_half_at_random) {
    struct narrowing *n = narrowing_new();
    uint64_t s = 0x9E3779B97F4A7C15u;

    while (n->total < 10000000) {
        uint32_t x;
        s ^= s << 13;
        s ^= s >> 7;
        s ^= s << 17;
        x = (uint32_t)(s >> 32);
        if ((s & 3) != 0) { /* mostly within the range of halves and a little beyond */
            x = (x & 0x807FFFFFu) | (96 + (uint32_t)(s >> 2 & 0xFF) % 52) << 23;
        }
        narrow(n, x);
    }
    narrowing_free(n);
}
END_TEST

/* ---- all halves ------------------------------------------------------------------------------ */

/* Streams all 65,536 halves, two to a step; out[] gets one word a step. */
static void all_halves(const char *work, uint32_t out[32768]) {
    struct sim_tile *t =
        looping("ld32step $a0, $m15, $m1+=, 1", work, "st32step $a1, $m15, $m2+=, 1");
    static uint16_t in[65536];

    for (uint32_t i = 0; i < 65536; i++) {
        in[i] = (uint16_t)i;
    }
    stream(t, 0, in, sizeof in, out, 32768 * 4, 32768);
    sim_tile_free(t);
}

/* signalling, quiet, infinite, zero, denormal or normal; the last four with their sign. */
static uint32_t kind_of(uint32_t h) {
    uint32_t sign = h >> 15, magnitude = h & 0x7FFFu;

    if (magnitude > 0x7C00) {
        return (magnitude & 0x200) != 0 ? 1 : 0;
    }
    return 2 + sign +
           2 * (magnitude == 0x7C00 ? 0u
                : magnitude == 0    ? 1u
                : magnitude < 0x400 ? 2u
                                    : 3u);
}

START_TEST(classes) {
    static uint32_t out[32768];
    uint32_t code[10] = {1, 2}; /* the two that are known; the others must differ */

    all_halves("f16v2class $a1, $a0", out);
    for (uint32_t h = 0; h < 65536; h++) {
        uint32_t got = out[h / 2] >> 8 * (h & 1) & 0xFF, kind = kind_of(h);
        if (code[kind] == 0) {
            code[kind] = got;
        }
        if (got != code[kind] || out[h / 2] >> 16 != 0) {
            ck_abort_msg("class of %04x: %u, expected %u", h, got, code[kind]);
        }
    }
    for (int i = 0; i < 10; i++) {
        for (int k = 0; k < i; k++) {
            ck_assert_uint_ne(code[i], code[k]);
        }
        ck_assert(code[i] != 0);
    }
}
END_TEST

static double value_of(uint32_t h) {
    double m = (h >> 10 & 31) == 0 ? (h & 0x3FF) : (h & 0x3FF) + 1024;
    double v = ldexp(m, (int)((h >> 10 & 31) == 0 ? 1 : h >> 10 & 31) - 25);

    return (h & 0x8000) != 0 ? -v : v;
}

START_TEST(sigmoids) {
    static uint32_t out[32768];

    all_halves("f16v2sigm $a1, $a0", out);
    for (uint32_t h = 0; h < 65536; h++) {
        uint32_t got = out[h / 2] >> 16 * (h & 1) & 0xFFFF;
        double want, place;
        if ((h & 0x7C00) == 0x7C00) {
            ck_assert_uint_eq(got, NAN16);
            continue;
        }
        want = 1 / (1 + exp(-value_of(h)));
        place = ldexp(1, (want < 0x1p-14 ? -14 : ilogb(want)) - 10);
        if (got > 0x7BFF || fabs(value_of(got) - want) > 16.5 * place) {
            ck_abort_msg("sigmoid of %04x: %04x", h, got);
        }
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("f16_all");
    TCase *c = tcase_create("all");
    SRunner *runner;
    int failed;

    tcase_set_timeout(c, 300);
    tcase_add_test(c, single_to_half_at_ties);
    tcase_add_test(c, single_to_half_at_random);
    tcase_add_test(c, classes);
    tcase_add_test(c, sigmoids);
    suite_add_tcase(suite, c);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
