/* BINARY and MAP on one bare tile, against plain loops in double. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/f16.h"
#include "kernel_bench.h"

static double combine(int op, double a, double b) {
    switch (op) {
    case BINARY_ADD: return a + b;
    case BINARY_SUB: return a - b;
    case BINARY_MUL: return a * b;
    case BINARY_DIV: return a / b;
    case BINARY_MAX: return fmax(a, b);
    case BINARY_MIN: return fmin(a, b);
    case BINARY_RSUB: return b - a;
    default: return b / a;
    }
}

struct binary_case {
    struct kernel_variant v;
    uint32_t rows, panels;
    int alias; /* out is: 0 apart, 1 a, 2 b */
};

static uint32_t b_addr(const struct binary_case *t, uint32_t base, uint32_t r, uint32_t c) {
    switch (t->v.form) {
    case FORM_FULL: return element_addr(base, t->rows, r, c);
    case FORM_ROW: return base + 2 * c;
    case FORM_COLUMN: return base + 2 * r;
    default: return base;
    }
}

/* Values away from 0, so that quotients stay finite. */
static uint16_t random_factor(bool is_wide) {
    double x = f16_to_f32(random_half(is_wide ? 3000 : 4));
    return f16_from_f64(x + (x < 0 ? -0.25 : 0.25));
}

static void check_binary(const struct binary_case *t) {
    struct bench b;
    bench_init(&b, &t->v);
    const uint32_t columns = 16 * t->panels, bytes = t->rows * columns * 2;
    const uint32_t b_bytes = t->v.form == FORM_FULL     ? bytes
                             : t->v.form == FORM_ROW    ? columns * 2
                             : t->v.form == FORM_COLUMN ? (t->rows + 1) / 2 * 4
                                                        : 4;
    uint32_t x = REGION1 + 8, y = (TARGET_MEM_END - b_bytes) & ~7u, out = REGION0;
    out = t->alias == 1 ? x : t->alias == 2 ? y : out;
    for (uint32_t r = 0; r < t->rows; r++) {
        for (uint32_t c = 0; c < columns; c++) {
            put_half(&b, element_addr(x, t->rows, r, c), random_factor(c % 5 == 0));
            put_half(&b, b_addr(t, y, r, c), random_factor(c % 7 == 0));
        }
    }
    allow_write(&b, out, bytes);
    b.words[BINARY_A] = x;
    b.words[BINARY_B] = y;
    b.words[BINARY_OUT] = out;
    b.words[BINARY_ROWS] = t->rows;
    b.words[BINARY_PANELS] = t->panels;
    run(&b);
    for (uint32_t r = 0; r < t->rows; r++) {
        for (uint32_t c = 0; c < columns; c++) {
            double value = combine(
                t->v.op, get_half(b.before, element_addr(x, t->rows, r, c)),
                get_half(b.before, b_addr(t, y, r, c)));
            double want = saturate(activate(t->v.act, value));
            double got = get_half(b.after, element_addr(out, t->rows, r, c));
            double error = t->v.act < ACT_TANH ? 0 : 2e-6 + fabs(want) * 0x1p-21;
            check_value(&b, "out", r, c, got, want, half_tolerance(want, error));
        }
    }
    check_cycles(&b, t->rows, t->panels, 0);
    bench_done(&b);
}

START_TEST(binary_shapes) {
    static const uint32_t shapes[][2] = {{1, 1}, {1, 7}, {2, 3}, {5, 4}, {6, 1}, {7, 3}, {40, 2}};
    for (int form = 0; form < FORM_COUNT; form++) {
        for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
            struct binary_case t = {
                .v =
                    {.id = KERNEL_BINARY,
                     .op = _i,
                     .form = form,
                     .act = (i + form) % 3 == 0 ? ACT_RELU : ACT_NONE},
                .rows = shapes[i][0],
                .panels = shapes[i][1],
                .alias = i % (form == FORM_FULL ? 3 : 2)};
            check_binary(&t);
        }
    }
}
END_TEST

START_TEST(binary_activations) {
    for (int act = ACT_TANH; act < ACT_COUNT; act++) {
        for (int form = 0; form < FORM_COUNT; form++) {
            struct binary_case t = {
                .v = {.id = KERNEL_BINARY, .op = _i, .form = form, .act = act},
                .rows = form & 1 ? 3 : 13,
                .panels = 2,
                .alias = act & 1};
            check_binary(&t);
        }
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
    default: return 1 / sqrt(x);
    }
}

static void check_map(const struct kernel_variant *v, uint32_t n, bool in_place) {
    struct bench b;
    bench_init(&b, v);
    const bool is_positive = v->op == MAP_SQRT || v->op == MAP_RSQRT;
    const float a = -1.7f, c = 0.3f;
    uint32_t x = TARGET_MEM_END - 32 * n, out = in_place ? x : REGION0 + 8;
    for (uint32_t i = 0; i < 16 * n; i++) {
        double value = f16_to_f32(random_half(i % 3 == 0 ? 60000 : 8));
        value = v->op == MAP_RECIPROCAL && value == 0 ? 1 : value;
        value = v->op == MAP_RSQRT ? fabs(value) + 0.1 : value;
        put_half(&b, x + 2 * i, f16_from_f64(is_positive ? fabs(value) : value));
    }
    allow_write(&b, out, 32 * n);
    b.words[MAP_X] = x;
    b.words[MAP_OUT] = out;
    b.words[MAP_N] = n;
    b.words[MAP_A] = b.words[MAP_B] = 3; /* must not be looked at */
    if (v->op == MAP_AFFINE) {
        memcpy(&b.words[MAP_A], &a, 4);
        memcpy(&b.words[MAP_B], &c, 4);
    }
    run(&b);
    for (uint32_t i = 0; i < 16 * n; i++) {
        double want = saturate(activate(v->act, map(v->op, get_half(b.before, x + 2 * i), a, c)));
        double error = fabs(want) * 0x1p-21 + (v->act < ACT_TANH ? 1e-7 : 2e-6);
        check_value(
            &b, "out", i, 0, get_half(b.after, out + 2 * i), want, half_tolerance(want, error));
    }
    check_cycles(&b, n, 0, 0);
    bench_done(&b);
}

START_TEST(map_shapes) {
    static const uint32_t n[] = {1, 2, 3, 5, 24, 67};
    for (size_t i = 0; i < sizeof(n) / sizeof(n[0]); i++) {
        for (int act = 0; act <= (i < 2 ? ACT_COUNT - 1 : ACT_RELU); act++) {
            struct kernel_variant v = {.id = KERNEL_MAP, .op = _i, .act = act};
            check_map(&v, n[i], (i + act) & 1);
        }
    }
}
END_TEST

START_TEST(contracts) {
    struct kernel_variant v = {.id = KERNEL_BINARY, .op = BINARY_COUNT};
    ck_assert(!kernel_variant_exists(&v));
    v.op = BINARY_COUNT - 1;
    v.form = FORM_COUNT;
    ck_assert(!kernel_variant_exists(&v));
    v.form = FORM_SCALAR;
    ck_assert(kernel_variant_exists(&v));
    struct kernel_variant w = v;
    w.form = FORM_ROW;
    char a[48], c[48];
    ck_assert(!kernel_variant_equal(&v, &w));
    ck_assert_str_ne(kernel_symbol(&v, a, sizeof(a)), kernel_symbol(&w, c, sizeof(c)));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("kernels_elementwise");
    TCase *tc = tcase_create("kernels_elementwise");
    tcase_set_timeout(tc, 300);
    tcase_add_test(tc, contracts);
    tcase_add_loop_test(tc, binary_shapes, 0, BINARY_COUNT);
    tcase_add_loop_test(tc, binary_activations, 0, BINARY_COUNT);
    tcase_add_loop_test(tc, map_shapes, 0, MAP_COUNT);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
