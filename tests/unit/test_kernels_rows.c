/* LAYERNORM and ROW_REDUCE on one bare tile, against plain loops in double. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/f16.h"
#include "kernel_bench.h"

/* ---- LAYERNORM --------------------------------------------------------------------------- */

struct norm_case {
    bool has_residual;
    uint32_t rows, columns;
    double scale, offset; /* of x */
    int alias;            /* 0 none, 1 out = x (or sum), 2 also sum = x, 3 sum = residual */
    uint32_t x, residual, sum, gain, bias, out;
};

static const float epsilon = 1e-5f;

static void place_norm(struct norm_case *t) {
    uint32_t panels = (t->columns + 15) / 16, bytes = t->rows * panels * 32;
    t->x = TARGET_MEM_END - bytes - 16; /* 8 bytes may be read past its end */
    t->gain = REGION0 + 8;
    t->bias = REGION0 + 0x2000 + 8;
    t->residual = REGION1 + 8;
    t->sum = t->alias == 2 ? t->x : t->alias == 3 ? t->residual : REGION1 + 4 * PAIR;
    t->out = REGION0 + 0x4000;
    if (t->alias != 0) {
        t->out = t->has_residual ? t->sum : t->x;
    }
}

static void check_norm_row(struct bench *b, const struct norm_case *t, uint32_t r) {
    const uint32_t padded = (t->columns + 15) / 16 * 16;
    double h[4096], mean = 0, var = 0;
    for (uint32_t c = 0; c < padded; c++) {
        h[c] = get_half(b->before, element_addr(t->x, t->rows, r, c));
        if (t->has_residual) {
            double sum = h[c] + get_half(b->before, element_addr(t->residual, t->rows, r, c));
            h[c] = f16_to_f32(f16_from_f64(sum));
            if (t->sum != t->out) {
                double got = get_half(b->after, element_addr(t->sum, t->rows, r, c));
                check_value(b, "sum", r, c, got, sum, half_tolerance(sum, 0));
            }
        }
        mean += c < t->columns ? h[c] / t->columns : 0;
    }
    for (uint32_t c = 0; c < t->columns; c++) {
        var += (h[c] - mean) * (h[c] - mean) / t->columns;
    }
    double inverse = 1 / sqrt(var + epsilon);
    for (uint32_t c = 0; c < padded; c++) {
        double got = get_half(b->after, element_addr(t->out, t->rows, r, c));
        if (c >= t->columns) {
            ck_assert_msg(got == 0, "padding (%u, %u) is %g", r, c, got);
            continue;
        }
        double gain = get_half(b->before, t->gain + 2 * c);
        double want = (h[c] - mean) * inverse * gain + get_half(b->before, t->bias + 2 * c);
        /* the mean's last bits, and a few more roundings in f32 */
        double error = fabs(gain) * (inverse * (fabs(mean) + fabs(h[c])) + 4) * 0x1p-21;
        check_value(b, "out", r, c, got, want, half_tolerance(want, error));
    }
}

static void check_norm(struct norm_case *t) {
    struct kernel_variant v = {.id = KERNEL_LAYERNORM, .has_residual = t->has_residual};
    struct bench b;
    bench_init(&b, &v);
    place_norm(t);
    const uint32_t padded = (t->columns + 15) / 16 * 16, bytes = t->rows * padded * 2;
    for (uint32_t r = 0; r < t->rows; r++) {
        for (uint32_t c = 0; c < padded; c++) { /* padding of x is finite, no more */
            double x = f16_to_f32(random_half(t->scale)) + t->offset;
            put_half(&b, element_addr(t->x, t->rows, r, c), f16_from_f64(c < t->columns ? x : 999));
            if (t->has_residual) {
                put_half(&b, element_addr(t->residual, t->rows, r, c), random_half(t->scale));
            }
        }
    }
    for (uint32_t c = 0; c < padded; c++) {
        put_half(&b, t->gain + 2 * c, c < t->columns ? random_half(2) : 0);
        put_half(&b, t->bias + 2 * c, c < t->columns ? random_half(2) : 0);
    }
    allow_write(&b, t->out, bytes);
    if (t->has_residual) {
        allow_write(&b, t->sum, bytes);
    }
    b.words[LAYERNORM_X] = t->x;
    b.words[LAYERNORM_RESIDUAL] = t->has_residual ? t->residual : 3;
    b.words[LAYERNORM_SUM] = t->has_residual ? t->sum : 3;
    b.words[LAYERNORM_SCALE] = t->gain;
    b.words[LAYERNORM_BIAS] = t->bias;
    b.words[LAYERNORM_OUT] = t->out;
    b.words[LAYERNORM_ROWS] = t->rows;
    b.words[LAYERNORM_COLUMNS] = t->columns;
    memcpy(&b.words[LAYERNORM_EPSILON], &epsilon, 4);
    run(&b);
    for (uint32_t r = 0; r < t->rows; r++) {
        check_norm_row(&b, t, r);
    }
    check_cycles(&b, t->rows, t->columns, 0);
    bench_done(&b);
}

START_TEST(layernorm_shapes) {
    static const uint32_t columns[] = {1,  2,  3,  4,   7,   15,  16,  17,  31,   32,  33,
                                       50, 90, 96, 144, 191, 192, 193, 384, 1000, 1152};
    static const uint32_t rows[] = {1, 2, 5, 6, 13};
    static const double scale[] = {1, 40, 0.01, 3}, offset[] = {0, 100, 0, -8};
    for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++) {
        for (size_t j = 0; j < 5; j++) {
            struct norm_case t = {
                .has_residual = _i,
                .rows = rows[j],
                .columns = columns[i],
                .scale = scale[(i + j) % 4],
                .offset = offset[(i + j) % 4],
                .alias = (int)((i + j) % (_i ? 4 : 2))};
            check_norm(&t);
        }
    }
}
END_TEST

/* ---- ROW_REDUCE -------------------------------------------------------------------------- */

static void check_row_reduce(int op, bool out_f32, uint32_t rows, uint32_t columns) {
    struct kernel_variant v = {.id = KERNEL_ROW_REDUCE, .op = op, .out_f32 = out_f32};
    struct bench b;
    bench_init(&b, &v);
    const uint32_t padded = (columns + 15) / 16 * 16;
    uint32_t x = TARGET_MEM_END - rows * padded * 2, out = REGION1;
    double shift = rows & 1 ? -7 : 0; /* all negative: the largest is not 0 */
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t c = 0; c < padded; c++) {
            put_half(
                &b, element_addr(x, rows, r, c),
                c < columns ? f16_from_f64(f16_to_f32(random_half(3)) + shift)
                            : f16_from_f64(30000));
        }
    }
    allow_write(&b, out, (rows + 1) / 2 * (out_f32 ? 8 : 4));
    b.words[ROW_REDUCE_X] = x;
    b.words[ROW_REDUCE_OUT] = out;
    b.words[ROW_REDUCE_ROWS] = rows;
    b.words[ROW_REDUCE_COLUMNS] = columns;
    run(&b);
    for (uint32_t r = 0; r < rows; r++) {
        double want = 0, size = 0, largest = -1e30;
        for (uint32_t c = 0; c < columns; c++) {
            double value = get_half(b.before, element_addr(x, rows, r, c));
            want += value;
            size += fabs(value);
            largest = fmax(largest, value);
        }
        want = op == ROW_REDUCE_MAX ? largest : op == ROW_REDUCE_MEAN ? want / columns : want;
        size = op == ROW_REDUCE_MAX ? 0 : op == ROW_REDUCE_MEAN ? size / columns : size;
        double got = out_f32 ? get_float(b.after, out + 4 * r) : get_half(b.after, out + 2 * r);
        double error = size * 0x1p-22 + 1e-30;
        check_value(&b, "out", r, 0, got, want, out_f32 ? error : half_tolerance(want, error));
    }
    check_cycles(&b, rows, columns, 0);
    bench_done(&b);
}

START_TEST(row_reduce_shapes) {
    static const uint32_t columns[] = {1, 3, 4, 15, 16, 17, 34, 96, 193, 1000};
    static const uint32_t rows[] = {1, 2, 5, 12, 13, 31};
    for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++) {
        for (size_t j = 0; j < sizeof(rows) / sizeof(rows[0]); j++) {
            check_row_reduce(_i, (i + j) & 1, rows[j], columns[i]);
        }
    }
}
END_TEST

START_TEST(contracts) {
    struct kernel_variant v = {.id = KERNEL_LAYERNORM, .has_residual = true};
    struct kernel_operand operands[6];
    int count = 0;
    kernel_operands(&v, operands, &count);
    ck_assert_int_eq(count, 6);
    v.has_residual = false;
    kernel_operands(&v, operands, &count);
    ck_assert_int_eq(count, 4);
    v.act = ACT_RELU;
    ck_assert(!kernel_variant_exists(&v));
    struct kernel_variant w = {.id = KERNEL_ROW_REDUCE, .op = ROW_REDUCE_COUNT};
    ck_assert(!kernel_variant_exists(&w));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("kernels_rows");
    TCase *tc = tcase_create("kernels_rows");
    tcase_set_timeout(tc, 300);
    tcase_add_test(tc, contracts);
    tcase_add_loop_test(tc, layernorm_shapes, 0, 2);
    tcase_add_loop_test(tc, row_reduce_shapes, 0, ROW_REDUCE_COUNT);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
