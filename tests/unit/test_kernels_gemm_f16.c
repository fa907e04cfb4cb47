/* GEMM_F16 on one bare tile, against plain loops in double. */
#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "base/f16.h"
#include "kernel_bench.h"

struct gemm_case {
    struct kernel_variant v;
    uint32_t rows, groups, panels;
    uint32_t x, w, bias, out, scratch; /* addresses */
    bool is_exact;                     /* small integers: no rounding anywhere */
};

static uint32_t weight_addr(const struct gemm_case *g, uint32_t channel, uint32_t k) {
    return g->w + 2 * (((channel / 16 * g->groups + k / 16) * 16 + channel % 16) * 16 + k % 16);
}

static uint16_t operand(const struct gemm_case *g, double scale) {
    double value = f16_to_f32(random_half(scale * 2));
    return f16_from_f64(g->is_exact ? rint(value) : value);
}

static void fill_gemm(struct bench *b, const struct gemm_case *g) {
    for (uint32_t k = 0; k < 16 * g->groups; k++) {
        for (uint32_t r = 0; r < g->rows; r++) {
            put_half(b, element_addr(g->x, g->rows, r, k), operand(g, 1));
        }
        for (uint32_t c = 0; c < 16 * g->panels; c++) {
            put_half(b, weight_addr(g, c, k), operand(g, 0.5));
        }
    }
    for (uint32_t c = 0; c < 16 * g->panels; c++) {
        if (g->v.has_bias) {
            put_half(b, g->bias + 2 * c, operand(g, 4));
        }
        for (uint32_t r = 0; g->v.accumulates && r < g->rows; r++) {
            put_half(b, element_addr(g->out, g->rows, r, c), operand(g, 4));
        }
    }
}

/* The chain of one output: a rounding to f16 after each group, each of at most half a unit of the
 * partial sum; the activations' slope is at most 1.13. */
static void check_output(struct bench *b, const struct gemm_case *g, uint32_t r, uint32_t c) {
    double sum = 0, roundings = 0;
    if (g->v.has_bias) {
        sum = get_half(b->before, g->bias + 2 * c);
    } else if (g->v.accumulates) {
        sum = get_half(b->before, element_addr(g->out, g->rows, r, c));
    }
    for (uint32_t k = 0; k < 16 * g->groups; k++) {
        sum += get_half(b->before, element_addr(g->x, g->rows, r, k)) *
               get_half(b->before, weight_addr(g, c, k));
        if (k % 16 == 15) {
            roundings += fmax(fabs(sum), 1) * 0x1p-11;
        }
    }
    double want = activate(g->v.act, sum);
    double got = get_half(b->after, element_addr(g->out, g->rows, r, c));
    if (g->is_exact && g->v.act <= ACT_RELU) {
        ck_assert_msg(got == want, "exact (%u, %u): %g, expected %g", r, c, got, want);
    }
    check_value(b, "out", r, c, got, want, half_tolerance(want, 1.3 * roundings));
}

static void check_gemm(const struct gemm_case *g) {
    struct bench b;
    bench_init(&b, &g->v);
    fill_gemm(&b, g);
    allow_write(&b, g->out, g->rows * g->panels * 32);
    allow_write(&b, g->scratch, kernel_scratch_bytes(&g->v, g->rows));
    b.words[GEMM_X] = g->x;
    b.words[GEMM_W] = g->w;
    b.words[GEMM_BIAS] = g->v.has_bias ? g->bias : 3; /* must not be looked at */
    b.words[GEMM_OUT] = g->out;
    b.words[GEMM_SCRATCH] = kernel_scratch_bytes(&g->v, g->rows) != 0 ? g->scratch : 3;
    b.words[GEMM_ROWS] = g->rows;
    b.words[GEMM_GROUPS] = g->groups;
    b.words[GEMM_PANELS] = g->panels;
    run(&b);
    for (uint32_t r = 0; r < g->rows; r++) {
        for (uint32_t c = 0; c < 16 * g->panels; c++) {
            check_output(&b, g, r, c);
        }
    }
    check_cycles(&b, g->rows, g->groups, g->panels);
    bench_done(&b);
}

static void place_gemm(struct gemm_case *g) {
    g->x = REGION0 + 8;
    g->w = g->v.w_region1 ? REGION1 + 2 * PAIR + 16 : REGION0 + 0x8000;
    g->bias = REGION1 + 8 * PAIR + 0x30;
    g->out = REGION1 + 8 * PAIR + 0x1000;
    g->scratch = REGION1 + 8 * PAIR + 0x10;
}

START_TEST(gemm_shapes) {
    static const uint32_t rows[] = {1, 2, 3, 5, 6, 7, 8, 11, 12, 13, 18, 19, 25, 60};
    static const uint32_t groups[] = {1, 2, 5, 16};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (size_t j = 0; j < 4; j++) {
            for (uint32_t panels = 1; panels <= 2; panels++) {
                struct gemm_case g = {
                    .v = {.id = KERNEL_GEMM_F16},
                    .rows = rows[i],
                    .groups = groups[j],
                    .panels = panels,
                    .is_exact = (i + panels) & 1};
                g.v.w_region1 = (i + j) & 1;
                g.v.has_bias = i % 3 == 1;
                g.v.accumulates = i % 3 == 2;
                place_gemm(&g);
                check_gemm(&g);
            }
        }
    }
}
END_TEST

START_TEST(gemm_variants) {
    for (int act = 0; act < ACT_COUNT; act++) {
        for (int bits = 0; bits < 6; bits++) {
            struct gemm_case g = {
                .v =
                    {.id = KERNEL_GEMM_F16,
                     .act = act,
                     .has_bias = bits >> 1 == 1,
                     .accumulates = bits >> 1 == 2,
                     .w_region1 = bits & 1},
                .rows = bits & 1 ? 13 : 3,
                .groups = 3,
                .panels = 3,
                .is_exact = act <= ACT_RELU};
            place_gemm(&g);
            check_gemm(&g);
        }
    }
}
END_TEST

/* Each operand in turn ends, over-read included, with tile memory: reading more would fault. */
START_TEST(gemm_over_read) {
    for (int form = 0; form <= 2; form++) {
        for (uint32_t rows = 1; rows <= 19; rows += 3) {
            struct gemm_case g = {
                .v = {.id = KERNEL_GEMM_F16, .has_bias = form == 1, .accumulates = form == 2},
                .rows = rows,
                .groups = 2,
                .panels = 2};
            struct kernel_operand operands[6];
            int count = 0;
            kernel_operands(&g.v, operands, &count);
            for (int i = 0; i < count; i++) {
                place_gemm(&g);
                uint32_t bytes = operands[i].word == GEMM_X || operands[i].word == GEMM_OUT
                                     ? rows * 64
                                 : operands[i].word == GEMM_W    ? 2048
                                 : operands[i].word == GEMM_BIAS ? 64
                                                                 : kernel_scratch_bytes(&g.v, rows);
                uint32_t addr =
                    (TARGET_MEM_END - bytes - operands[i].over_read) & ~(operands[i].align - 1u);
                *(operands[i].word == GEMM_X      ? &g.x
                  : operands[i].word == GEMM_W    ? &g.w
                  : operands[i].word == GEMM_OUT  ? &g.out
                  : operands[i].word == GEMM_BIAS ? &g.bias
                                                  : &g.scratch) = addr;
                check_gemm(&g);
            }
        }
    }
}
END_TEST

START_TEST(contracts) {
    struct kernel_variant v = {.id = KERNEL_GEMM_F16, .has_bias = true, .accumulates = true};
    ck_assert(!kernel_variant_exists(&v));
    v.has_bias = false;
    ck_assert(kernel_variant_exists(&v));
    ck_assert_uint_eq(kernel_scratch_bytes(&v, 9), 0);
    struct kernel_operand operands[6];
    int count = 0;
    kernel_operands(&v, operands, &count);
    ck_assert_int_eq(count, 4);
    ck_assert_uint_eq(operands[0].separate, 1 << 1 | 1 << 2);
    v.op = 1;
    ck_assert(!kernel_variant_exists(&v));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("kernels_gemm_f16");
    TCase *tc = tcase_create("kernels_gemm_f16");
    tcase_set_timeout(tc, 300);
    tcase_add_test(tc, contracts);
    tcase_add_test(tc, gemm_shapes);
    tcase_add_test(tc, gemm_variants);
    tcase_add_test(tc, gemm_over_read);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
