/* GEMM_ROW on one bare tile, against plain loops in double. */
#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "base/f16.h"
#include "kernel_bench.h"

static void check_gemm_row(const struct kernel_variant *v, uint32_t groups, uint32_t pairs) {
    struct bench b;
    bench_init(&b, v);
    const uint32_t depth = 16 * groups, columns = 2 * pairs;
    /* The first load past the end of w is allowed, so w must not end with tile memory. */
    const uint32_t x = TARGET_MEM_END - 2 * depth, w = REGION1 + 8, bias = REGION0 + 4;
    const uint32_t residual = REGION0 + 0x4004, out = pairs & 1 ? residual : REGION0 + 0x8004;
    for (uint32_t k = 0; k < depth; k++) {
        put_half(&b, x + 2 * k, random_half(1));
    }
    for (uint32_t c = 0; c < columns; c++) {
        for (uint32_t k = 0; k < depth; k++) {
            put_half(&b, w + 2 * (c * depth + k), random_half(1));
        }
        put_half(&b, bias + 2 * c, random_half(2));
        put_half(&b, residual + 2 * c, random_half(4));
    }
    allow_write(&b, out, 2 * columns);
    b.words[GEMM_ROW_X] = x;
    b.words[GEMM_ROW_W] = w;
    b.words[GEMM_ROW_BIAS] = v->has_bias ? bias : 3;
    b.words[GEMM_ROW_RESIDUAL] = v->has_residual ? residual : 3;
    b.words[GEMM_ROW_OUT] = out;
    b.words[GEMM_ROW_GROUPS] = groups;
    b.words[GEMM_ROW_PAIRS] = pairs;
    run(&b);
    for (uint32_t c = 0; c < columns; c++) {
        double sum = v->has_bias ? get_half(b.before, bias + 2 * c) : 0, terms = fabs(sum);
        for (uint32_t k = 0; k < depth; k++) {
            double product =
                get_half(b.before, x + 2 * k) * get_half(b.before, w + 2 * (c * depth + k));
            sum += product;
            terms += fabs(product);
        }
        double more = v->has_residual ? get_half(b.before, residual + 2 * c) : 0;
        double want = activate(v->act, sum) + more;
        double error = terms * (2 + depth / 8.0) * 0x1p-24 + (v->act < ACT_TANH ? 0 : 2e-6);
        check_value(
            &b, "out", 0, c, get_half(b.after, out + 2 * c), want, half_tolerance(want, error));
    }
    check_cycles(&b, groups, pairs, 0);
    bench_done(&b);
}

START_TEST(gemm_row_shapes) {
    static const uint32_t shapes[][2] = {{1, 1}, {1, 2},  {2, 6},  {9, 6},   {9, 7},
                                         {5, 8}, {37, 6}, {18, 6}, {72, 24}, {3, 100}};
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        for (int form = 0; form < 4; form++) {
            struct kernel_variant v = {
                .id = KERNEL_GEMM_ROW,
                .act = (enum kernel_act)_i,
                .has_bias = form & 1,
                .has_residual = form >> 1};
            check_gemm_row(&v, shapes[i][0], shapes[i][1]);
        }
    }
}
END_TEST

START_TEST(contracts) {
    struct kernel_operand operands[6];
    int count = 0;
    for (int form = 0; form < 4; form++) {
        struct kernel_variant v = {
            .id = KERNEL_GEMM_ROW, .has_bias = form & 1, .has_residual = form >> 1};
        kernel_operands(&v, operands, &count);
        ck_assert_int_eq(count, 3 + (form & 1) + (form >> 1));
        ck_assert_uint_eq(
            operands[count - 1].word, v.has_bias       ? GEMM_ROW_BIAS
                                      : v.has_residual ? GEMM_ROW_RESIDUAL
                                                       : GEMM_ROW_OUT);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("kernels_gemm_row");
    TCase *tc = tcase_create("kernels_gemm_row");
    tcase_set_timeout(tc, 300);
    tcase_add_test(tc, contracts);
    tcase_add_loop_test(tc, gemm_row_shapes, 0, ACT_COUNT);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
