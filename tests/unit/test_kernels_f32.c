/* float32 kernels and PICK on one bare tile: moved bits are compared, sums within their
 * roundings. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/f16.h"
#include "kernel_bench.h"

#define LOW  (REGION0 + 8)
#define HIGH (REGION1 + 64)

static void put_float(struct bench *b, uint32_t addr, float value) {
    put_bytes(b, addr, &value, 4);
}

static float random_float(double scale) {
    return (float)(f16_to_f32(random_half(scale)) + f16_to_f32(random_half(scale / 4096)));
}

/* Within 5 % and 60 cycles. */
static void check_close(const struct bench *b, uint32_t d0, uint32_t d1, uint32_t d2) {
    uint32_t dims[] = {d0, d1, d2}, predicted = kernel_cycles(&b->variant, dims);
    char symbol[48];
    ck_assert_msg(
        fabs((double)predicted - b->cycles) <= fmax(0.05 * b->cycles, 60),
        "%s %u %u %u: %u cycles, predicted %u", kernel_symbol(&b->variant, symbol, sizeof(symbol)),
        d0, d1, d2, b->cycles, predicted);
}

/* Rows of random words in both regions, named in any order, some of them often. */
START_TEST(pick) {
    static const uint32_t counts[] = {2, 4, 6, 8, 30, 64, 514, 3000};
    const uint32_t unit = 2u << _i, per = _i == PICK_HALF ? 2 : 1;
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        struct kernel_variant v = {.id = KERNEL_PICK, .op = (uint8_t)_i};
        struct bench b;
        bench_init(&b, &v);
        uint32_t units = counts[i] * per, table = REGION1 + PAIR, out = REGION1 + 3 * PAIR;
        uint32_t *named = malloc(4 * units);
        for (uint32_t k = 0; k < 512; k++) {
            put_half(&b, LOW + 2 * k, (uint16_t)(3 * k + 1));
            put_half(&b, HIGH + 2 * k, (uint16_t)(40000 + k));
        }
        for (uint32_t k = 0; k < units; k++) {
            uint32_t at = k * 2654435761u >> 8, place = at % (1024 / unit);
            named[k] = (at >> 12 & 1 ? LOW : HIGH) + unit * place;
        }
        put_bytes(&b, table, named, 4 * units);
        allow_write(&b, out, counts[i] * (unit < 4 ? 4 : unit));
        b.words[PICK_TABLE] = table;
        b.words[PICK_OUT] = out;
        b.words[PICK_N] = counts[i];
        run(&b);
        for (uint32_t k = 0; k < units; k++) {
            ck_assert_msg(
                memcmp(
                    b.after + (out - TARGET_MEM_BASE) + unit * k,
                    b.before + (named[k] - TARGET_MEM_BASE), unit) == 0,
                "unit %u of %u", k, units);
        }
        check_close(&b, counts[i], 0, 0);
        free(named);
        bench_done(&b);
    }
}
END_TEST

START_TEST(cast) {
    static const uint32_t counts[] = {1, 2, 3, 7, 40};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        struct kernel_variant v = {.id = KERNEL_CAST, .op = (uint8_t)_i};
        struct bench b;
        bench_init(&b, &v);
        uint32_t n = 16 * counts[i];
        for (uint32_t k = 0; k < n; k++) {
            if (_i == CAST_WIDEN) {
                put_half(&b, LOW + 2 * k, random_half(k % 3 == 0 ? 60000 : 1));
            } else {
                put_float(&b, LOW + 4 * k, random_float(k % 3 == 0 ? 60000 : 1));
            }
        }
        allow_write(&b, HIGH, (_i == CAST_WIDEN ? 4 : 2) * n);
        b.words[CAST_X] = LOW;
        b.words[CAST_OUT] = HIGH;
        b.words[CAST_N] = counts[i];
        run(&b);
        for (uint32_t k = 0; k < n; k++) {
            double got = _i == CAST_WIDEN ? get_float(b.after, HIGH + 4 * k)
                                          : get_half(b.after, HIGH + 2 * k);
            double want = _i == CAST_WIDEN
                              ? get_half(b.before, LOW + 2 * k)
                              : f16_to_f32(f16_from_f64(get_float(b.before, LOW + 4 * k)));
            ck_assert_msg(got == want, "element %u: %.9g, expected %.9g", k, got, want);
        }
        check_close(&b, counts[i], 0, 0);
        bench_done(&b);
    }
}
END_TEST

static double map(int op, double x, double a, double b) {
    switch (op) {
    case MAP_AFFINE: return a * x + b;
    case MAP_NEG: return -x;
    case MAP_SQRT: return sqrt(x);
    case MAP_EXP: return exp(x);
    case MAP_RECIPROCAL: return 1 / x;
    case MAP_SQUARE: return x * x;
    case MAP_CUBE: return x * x * x;
    case MAP_RSQRT: return 1 / sqrt(x);
    default: return pow(x, a);
    }
}

static void check_map(int op, int act, uint32_t count, float exponent) {
    struct kernel_variant v = {.id = KERNEL_MAP_F32, .op = (uint8_t)op, .act = (uint8_t)act};
    struct bench b;
    bench_init(&b, &v);
    const float a = op == MAP_POW ? exponent : -1.7f, c = 0.3f;
    bool is_positive = op == MAP_SQRT || op == MAP_RSQRT || (op == MAP_POW && floorf(a) != a);
    for (uint32_t k = 0; k < 16 * count; k++) {
        float x = random_float(8);
        x = op == MAP_RECIPROCAL || op == MAP_RSQRT || a < 0 ? x + copysignf(0.1f, x) : x;
        put_float(&b, LOW + 4 * k, is_positive ? fabsf(x) : x);
    }
    allow_write(&b, HIGH, 64 * count);
    b.words[MAP_X] = LOW;
    b.words[MAP_OUT] = HIGH;
    b.words[MAP_N] = count;
    memcpy(&b.words[MAP_A], &a, 4);
    memcpy(&b.words[MAP_B], &c, 4);
    run(&b);
    for (uint32_t k = 0; k < 16 * count; k++) {
        double exact = map(op, get_float(b.before, LOW + 4 * k), a, c);
        double want = activate(act, exact);
        double steps = op == MAP_POW ? 64 : act >= ACT_GELU_ERF ? 32 : 8;
        double tolerance = steps * 0x1p-24 * (fabs(want) + 1);
        check_value(&b, "out", k, 0, get_float(b.after, HIGH + 4 * k), want, tolerance);
    }
    check_close(&b, count, 0, 0);
    bench_done(&b);
}

START_TEST(map_shapes) {
    static const uint32_t counts[] = {1, 2, 5, 23};
    static const float exponents[] = {1.5f, 5, -2, 4};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        check_map(_i, ACT_NONE, counts[i], exponents[i]);
    }
}
END_TEST

START_TEST(map_activations) {
    check_map(MAP_AFFINE, _i, 3, 1);
    check_map(MAP_NEG, _i, 24, 1);
}
END_TEST

static double binary(int op, double a, double b) {
    switch (op) {
    case BINARY_ADD: return a + b;
    case BINARY_SUB: return a - b;
    case BINARY_MUL: return a * b;
    case BINARY_DIV: return a / b;
    case BINARY_MAX: return fmax(a, b);
    case BINARY_MIN: return fmin(a, b);
    case BINARY_RSUB: return b - a;
    case BINARY_RDIV: return b / a;
    default: return pow(a, b);
    }
}

START_TEST(binary_shapes) {
    static const uint32_t counts[] = {1, 2, 5, 23};
    static const float exponents[] = {2, 3, 0, -1, 1.5f, 0.5f, -3, 1};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        struct kernel_variant v = {.id = KERNEL_BINARY_F32, .op = (uint8_t)_i};
        struct bench b;
        bench_init(&b, &v);
        uint32_t n = 16 * counts[i], y = REGION1 + 2 * PAIR, out = i & 1 ? LOW : HIGH;
        for (uint32_t k = 0; k < n; k++) {
            float a = random_float(8), e = exponents[k % 8];
            a += copysignf(0.1f, a);
            bool is_power = _i == BINARY_POW;
            put_float(&b, LOW + 4 * k, is_power && floorf(e) != e ? fabsf(a) : a);
            put_float(&b, y + 4 * k, is_power ? e : random_float(8) + 20);
        }
        if (_i == BINARY_POW) {
            put_float(&b, LOW, 0); /* 0 to the 0 */
            put_float(&b, y, 0);
        }
        allow_write(&b, out, 4 * n);
        b.words[BINARY_F32_A] = LOW;
        b.words[BINARY_F32_B] = y;
        b.words[BINARY_F32_OUT] = out;
        b.words[BINARY_F32_N] = counts[i];
        run(&b);
        for (uint32_t k = 0; k < n; k++) {
            double want =
                binary(_i, get_float(b.before, LOW + 4 * k), get_float(b.before, y + 4 * k));
            double tolerance = (_i == BINARY_POW ? 64 : 2) * 0x1p-24 * (fabs(want) + 1e-3);
            check_value(&b, "out", k, 0, get_float(b.after, out + 4 * k), want, tolerance);
        }
        check_close(&b, counts[i], 0, 0);
        bench_done(&b);
    }
}
END_TEST

static uint32_t single_addr(uint32_t base, uint32_t rows, uint32_t r, uint32_t c) {
    return base + 4 * ((c / 16 * rows + r) * 16 + c % 16);
}

static void check_reduce(int op, uint32_t rows, uint32_t columns) {
    struct kernel_variant v = {.id = KERNEL_ROW_REDUCE_F32, .op = (uint8_t)op};
    struct bench b;
    bench_init(&b, &v);
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t c = 0; c < (columns + 15) / 16 * 16; c++) { /* padding must not count */
            put_float(&b, single_addr(LOW, rows, r, c), c < columns ? random_float(8) : 1000);
        }
    }
    allow_write(&b, HIGH, 64 * rows);
    b.words[ROW_REDUCE_X] = LOW;
    b.words[ROW_REDUCE_OUT] = HIGH;
    b.words[ROW_REDUCE_ROWS] = rows;
    b.words[ROW_REDUCE_COLUMNS] = columns;
    run(&b);
    for (uint32_t r = 0; r < rows; r++) {
        double sum = 0, most = -INFINITY, size = 0;
        for (uint32_t c = 0; c < columns; c++) {
            double x = get_float(b.before, single_addr(LOW, rows, r, c));
            sum += x;
            size += fabs(x);
            most = fmax(most, x);
        }
        double want = op == ROW_REDUCE_MAX ? most : op == ROW_REDUCE_SUM ? sum : sum / columns;
        check_value(
            &b, "out", r, 0, get_float(b.after, HIGH + 64 * r), want,
            8 * 0x1p-24 * (op == ROW_REDUCE_MEAN ? size / columns : size));
        for (uint32_t c = 1; c < 16; c++) {
            ck_assert(get_float(b.after, HIGH + 64 * r + 4 * c) == 0);
        }
    }
    check_close(&b, rows, columns, 0);
    bench_done(&b);
}

START_TEST(row_reduce_shapes) {
    static const uint32_t rows[] = {1, 5, 6, 7, 40};
    static const uint32_t columns[] = {1, 2, 3, 15, 16, 17, 30, 48, 65};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (size_t j = 0; j < sizeof(columns) / sizeof(columns[0]); j++) {
            check_reduce(_i, rows[i], columns[j]);
        }
    }
}
END_TEST

static void check_gemm(uint32_t rows, uint32_t inner, uint32_t panels) {
    struct kernel_variant v = {.id = KERNEL_GEMM_F32};
    struct bench b;
    bench_init(&b, &v);
    uint32_t w = REGION1 + 2 * PAIR, out = REGION1 + 6 * PAIR;
    for (uint32_t k = 0; k < (inner + 15) / 16 * 16; k++) {
        for (uint32_t r = 0; r < rows; r++) {
            put_float(&b, single_addr(HIGH, rows, r, k), k < inner ? random_float(2) : NAN);
        }
        for (uint32_t c = 0; k < inner && c < 16 * panels; c++) {
            put_float(&b, single_addr(w, inner, k, c), random_float(2));
        }
    }
    allow_write(&b, out, 64 * rows * panels);
    b.words[GEMM_F32_X] = HIGH;
    b.words[GEMM_F32_W] = w;
    b.words[GEMM_F32_OUT] = out;
    b.words[GEMM_F32_ROWS] = rows;
    b.words[GEMM_F32_INNER] = inner;
    b.words[GEMM_F32_PANELS] = panels;
    run(&b);
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t c = 0; c < 16 * panels; c++) {
            double want = 0, size = 0;
            for (uint32_t k = 0; k < inner; k++) {
                double x = get_float(b.before, single_addr(HIGH, rows, r, k)) *
                           (double)get_float(b.before, single_addr(w, inner, k, c));
                want += x;
                size += fabs(x);
            }
            check_value(
                &b, "out", r, c, get_float(b.after, single_addr(out, rows, r, c)), want,
                8 * 0x1p-24 * size);
        }
    }
    check_close(&b, rows, inner, panels);
    bench_done(&b);
}

START_TEST(gemm_shapes) {
    static const uint32_t rows[] = {1, 5, 8, 19}, inner[] = {1, 7, 16, 33, 64};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (size_t j = 0; j < sizeof(inner) / sizeof(inner[0]); j++) {
            check_gemm(rows[i], inner[j], 1 + (uint32_t)((i + j) % 3));
        }
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("kernels_f32");
    TCase *tc = tcase_create("kernels_f32");
    tcase_set_timeout(tc, 300);
    tcase_add_loop_test(tc, pick, 0, PICK_COUNT);
    tcase_add_loop_test(tc, cast, 0, CAST_COUNT);
    tcase_add_loop_test(tc, map_shapes, 0, MAP_F32_COUNT);
    tcase_add_loop_test(tc, map_activations, 0, ACT_COUNT);
    tcase_add_loop_test(tc, binary_shapes, 0, BINARY_F32_COUNT);
    tcase_add_loop_test(tc, row_reduce_shapes, 0, ROW_REDUCE_COUNT);
    tcase_add_test(tc, gemm_shapes);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
