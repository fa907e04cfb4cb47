/* Kernels on one bare tile, against plain loops in double. Memory that a kernel may not read is
 * full of NaNs, memory that it may not write must keep every byte. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "asm/asm.h"
#include "base/arena.h"
#include "base/f16.h"
#include "kernel_bench.h"

/* ---- GEMM -------------------------------------------------------------------------------- */

struct gemm_case {
    struct kernel_variant v;
    uint32_t rows, groups, panels;
    uint32_t x, w, bias, out, scratch; /* addresses */
};

static uint32_t weight_addr(const struct gemm_case *g, uint32_t channel, uint32_t k) {
    return g->w + 2 * (((channel / 8 * g->groups + k / 16) * 8 + channel % 8) * 16 + k % 16);
}

static void check_gemm(const struct gemm_case *g) {
    struct bench b;
    bench_init(&b, &g->v);
    const uint32_t columns = 16 * g->panels, depth = 16 * g->groups;
    for (uint32_t r = 0; r < g->rows; r++) {
        for (uint32_t k = 0; k < depth; k++) {
            put_half(&b, element_addr(g->x, g->rows, r, k), random_half(2));
        }
    }
    for (uint32_t c = 0; c < columns; c++) {
        for (uint32_t k = 0; k < depth; k++) {
            put_half(&b, weight_addr(g, c, k), random_half(1));
        }
        if (g->v.has_bias) {
            put_half(&b, g->bias + 2 * c, random_half(4));
        }
    }
    uint32_t out_bytes = g->rows * columns * (g->v.out_f32 ? 4 : 2);
    allow_write(&b, g->out, out_bytes);
    allow_write(&b, g->scratch, kernel_scratch_bytes(&g->v, g->rows));
    b.words[GEMM_X] = g->x;
    b.words[GEMM_W] = g->w;
    b.words[GEMM_BIAS] = g->v.has_bias ? g->bias : 3; /* must not be looked at */
    b.words[GEMM_OUT] = g->out;
    b.words[GEMM_SCRATCH] = g->scratch;
    b.words[GEMM_ROWS] = g->rows;
    b.words[GEMM_GROUPS] = g->groups;
    b.words[GEMM_PANELS] = g->panels;
    run(&b);
    for (uint32_t r = 0; r < g->rows; r++) {
        for (uint32_t c = 0; c < columns; c++) {
            double sum = g->v.has_bias ? get_half(b.before, g->bias + 2 * c) : 0;
            double size = fabs(sum);
            for (uint32_t k = 0; k < depth; k++) {
                double product = get_half(b.before, element_addr(g->x, g->rows, r, k)) *
                                 get_half(b.before, weight_addr(g, c, k));
                sum += product;
                size += fabs(product);
            }
            double error = size * 0x1p-23 * (2 + g->groups);
            if (g->v.out_f32) {
                uint32_t addr = g->out + 4 * ((c / 16 * g->rows + r) * 16 + c % 16);
                check_value(&b, "out", r, c, get_float(b.after, addr), sum, error + 1e-30);
            } else {
                double want = activate(g->v.act, sum);
                double got = get_half(b.after, element_addr(g->out, g->rows, r, c));
                check_value(
                    &b, "out", r, c, got, saturate(want), half_tolerance(want, 1.2 * error + 1e-6));
            }
        }
    }
    check_cycles(&b, g->rows, g->groups, g->panels);
    bench_done(&b);
}

/* Operands as a placer would put them: x in region 0, partials alone in a pair. */
static void place_gemm(struct gemm_case *g) {
    g->x = REGION0 + 8;
    g->w = g->v.w_region1 ? REGION1 + 2 * PAIR + 16 : REGION0 + 0x8000;
    g->bias = REGION0 + 0x7000;
    g->out = g->v.out_f32 ? REGION1 + 6 * PAIR + 48 : REGION1 + 8 * PAIR + 8;
    g->scratch = REGION1 + 10 * PAIR + 0x100;
}

START_TEST(gemm_shapes) {
    static const uint32_t rows[] = {1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 18, 19, 25, 60};
    static const uint32_t groups[] = {1, 2, 5, 16};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (size_t j = 0; j < 4; j++) {
            for (uint32_t panels = 1; panels <= 2; panels++) {
                struct gemm_case g = {
                    .v = {.id = KERNEL_GEMM_AMP},
                    .rows = rows[i],
                    .groups = groups[j],
                    .panels = panels};
                g.v.w_region1 = (i + j) & 1;
                g.v.out_f32 = (i + j / 2 + panels) & 1;
                g.v.has_bias = !g.v.out_f32 && (i & 1);
                place_gemm(&g);
                check_gemm(&g);
            }
        }
    }
}
END_TEST

START_TEST(gemm_variants) {
    static const uint32_t shapes[][3] = {{13, 3, 3}, {3, 9, 3}};
    for (int act = 0; act < ACT_COUNT; act++) {
        for (int bits = 0; bits < 8; bits++) {
            const uint32_t *shape = shapes[bits >> 2];
            struct gemm_case g = {
                .v =
                    {.id = KERNEL_GEMM_AMP,
                     .act = act,
                     .has_bias = bits & 1,
                     .w_region1 = bits >> 1 & 1},
                .rows = shape[0],
                .groups = shape[1],
                .panels = shape[2]};
            place_gemm(&g);
            check_gemm(&g);
        }
    }
}
END_TEST

/* Each operand in turn ends, over-read included, with tile memory: reading more would fault. */
START_TEST(gemm_over_read) {
    for (int f32 = 0; f32 <= 1; f32++) {
        for (uint32_t rows = 1; rows <= 19; rows += 3) {
            struct gemm_case g = {
                .v = {.id = KERNEL_GEMM_AMP, .has_bias = !f32, .out_f32 = f32},
                .rows = rows,
                .groups = 2,
                .panels = 2};
            struct kernel_operand operands[6];
            int count = 0;
            kernel_operands(&g.v, operands, &count);
            for (int i = 0; i < count; i++) {
                place_gemm(&g);
                uint32_t bytes = operands[i].word == GEMM_X      ? rows * 64
                                 : operands[i].word == GEMM_W    ? 2048
                                 : operands[i].word == GEMM_OUT  ? rows * 32 * (f32 ? 4 : 2)
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

/* Whatever the contract does not keep apart may share elements: out and bias with x, weights with
 * the partials, f32 output with the row of zeros. */
START_TEST(gemm_shared_elements) {
    static const uint32_t rows[] = {2, 4, 14, 20};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (int f32 = 0; f32 <= 1; f32++) {
            struct gemm_case g = {
                .v = {.id = KERNEL_GEMM_AMP, .has_bias = !f32, .out_f32 = f32, .w_region1 = true},
                .rows = rows[i],
                .groups = 4,
                .panels = 2};
            place_gemm(&g);
            g.scratch = REGION1 + 0x10;
            g.w = REGION1 + 0x4000;
            g.x = f32 ? REGION0 + 16 : REGION1 + PAIR + 0x1000;
            g.out = f32 ? REGION1 + 0x1000 : g.x + 0x2000;
            g.bias = REGION1 + PAIR + 0x100;
            check_gemm(&g);
        }
    }
}
END_TEST

/* ---- elementwise ------------------------------------------------------------------------- */

static void check_unary(enum kernel_act act, uint32_t n, bool in_place, double scale) {
    struct kernel_variant v = {.id = KERNEL_UNARY, .act = act};
    struct bench b;
    bench_init(&b, &v);
    uint32_t x = TARGET_MEM_END - 8 * n, out = in_place ? x : REGION0 + 8;
    for (uint32_t i = 0; i < 4 * n; i++) {
        put_half(&b, x + 2 * i, random_half(i % 3 == 0 ? 60000 : scale));
    }
    allow_write(&b, out, 8 * n);
    b.words[UNARY_X] = x;
    b.words[UNARY_OUT] = out;
    b.words[UNARY_QUADS] = n;
    run(&b);
    for (uint32_t i = 0; i < 4 * n; i++) {
        double want = activate(act, get_half(b.before, x + 2 * i));
        check_value(
            &b, "out", i, 0, get_half(b.after, out + 2 * i), want,
            half_tolerance(want, act == ACT_NONE ? 0 : 1e-6));
    }
    check_cycles(&b, n, 0, 0);
    bench_done(&b);
}

START_TEST(unary_shapes) {
    for (int act = 0; act < ACT_COUNT; act++) {
        static const uint32_t n[] = {1, 3, 4, 8, 21, 96, 268};
        for (size_t i = 0; i < sizeof(n) / sizeof(n[0]); i++) {
            check_unary(act, n[i], i & 1, i < 3 ? 6 : 0.01);
        }
    }
}
END_TEST

/* Every finite half through every activation. */
START_TEST(unary_all_halves) {
    struct kernel_variant v = {.id = KERNEL_UNARY, .act = (enum kernel_act)_i};
    struct bench b;
    bench_init(&b, &v);
    uint32_t count = 0;
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        if ((bits & 0x7C00) != 0x7C00) {
            put_half(&b, REGION1 + 2 * count++, (uint16_t)bits);
        }
    }
    b.words[UNARY_X] = b.words[UNARY_OUT] = REGION1;
    b.words[UNARY_QUADS] = count / 4;
    ck_assert_uint_eq(count % 16, 0);
    allow_write(&b, REGION1, 2 * count);
    run(&b);
    for (uint32_t i = 0; i < count; i++) {
        double x = get_half(b.before, REGION1 + 2 * i), want = activate(v.act, x);
        check_value(
            &b, "out", i, 0, get_half(b.after, REGION1 + 2 * i), want,
            half_tolerance(want, v.act == ACT_NONE || v.act == ACT_RELU ? 0 : 5e-7));
    }
    bench_done(&b);
}
END_TEST

static void check_add(enum kernel_act act, uint32_t n, int alias) {
    struct kernel_variant v = {.id = KERNEL_ADD, .act = act};
    struct bench b;
    bench_init(&b, &v);
    uint32_t a = TARGET_MEM_END - 64 * n, c = TARGET_MEM_END - 32 * n;
    uint32_t out = alias == 1 ? a : alias == 2 ? c : REGION0;
    for (uint32_t i = 0; i < 16 * n; i++) {
        put_half(&b, a + 2 * i, random_half(i % 5 == 0 ? 60000 : 4));
        put_half(&b, c + 2 * i, random_half(i % 7 == 0 ? 60000 : 4));
    }
    allow_write(&b, out, 32 * n);
    b.words[ADD_A] = a;
    b.words[ADD_B] = c;
    b.words[ADD_OUT] = out;
    b.words[ADD_N] = n;
    run(&b);
    for (uint32_t i = 0; i < 16 * n; i++) {
        double sum = get_half(b.before, a + 2 * i) + get_half(b.before, c + 2 * i);
        double want = saturate(activate(act, sum));
        check_value(
            &b, "out", i, 0, get_half(b.after, out + 2 * i), want,
            half_tolerance(want, act < ACT_TANH ? 0 : 1e-6 + fabs(want) * 0x1p-22));
    }
    check_cycles(&b, n, 0, 0);
    bench_done(&b);
}

START_TEST(add_shapes) {
    for (int act = 0; act < ACT_COUNT; act++) {
        static const uint32_t n[] = {1, 2, 5, 40};
        for (int i = 0; i < 4; i++) {
            check_add(act, n[i], i % 3);
        }
    }
}
END_TEST

static void check_add_row(enum kernel_act act, uint32_t rows, uint32_t panels, bool in_place) {
    struct kernel_variant v = {.id = KERNEL_ADD_ROW, .act = act};
    struct bench b;
    bench_init(&b, &v);
    uint32_t bytes = rows * panels * 32;
    uint32_t x = TARGET_MEM_END - bytes, row = REGION0, out = in_place ? x : REGION1 + 8;
    for (uint32_t c = 0; c < 16 * panels; c++) {
        put_half(&b, row + 2 * c, random_half(3));
        for (uint32_t r = 0; r < rows; r++) {
            put_half(&b, element_addr(x, rows, r, c), random_half(3));
        }
    }
    allow_write(&b, out, bytes);
    b.words[ADD_ROW_X] = x;
    b.words[ADD_ROW_ROW] = row;
    b.words[ADD_ROW_OUT] = out;
    b.words[ADD_ROW_ROWS] = rows;
    b.words[ADD_ROW_PANELS] = panels;
    run(&b);
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t c = 0; c < 16 * panels; c++) {
            double want = activate(
                act,
                get_half(b.before, element_addr(x, rows, r, c)) + get_half(b.before, row + 2 * c));
            check_value(
                &b, "out", r, c, get_half(b.after, element_addr(out, rows, r, c)), want,
                half_tolerance(want, act < ACT_TANH ? 0 : 1e-6));
        }
    }
    check_cycles(&b, rows, panels, 0);
    bench_done(&b);
}

START_TEST(add_row_shapes) {
    static const uint32_t shapes[][2] = {{1, 1}, {1, 7}, {2, 3}, {5, 4}, {6, 1}, {7, 3}, {40, 2}};
    for (int act = 0; act < ACT_COUNT; act++) {
        for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
            check_add_row(act, shapes[i][0], shapes[i][1], i & 1);
        }
    }
}
END_TEST

/* ---- reduction, softmax ------------------------------------------------------------------ */

static void
check_reduce(const struct kernel_variant *v, uint32_t parts, uint32_t rows, uint32_t panels) {
    enum kernel_act act = v->act;
    bool has_bias = v->has_bias;
    struct bench b;
    bench_init(&b, v);
    uint32_t bytes = rows * panels * (v->in_f16 ? 32 : 64), stride = bytes + 24;
    uint32_t in = TARGET_MEM_END - stride * (parts - 1) - bytes;
    uint32_t bias = REGION0 + 0x100, out = REGION0 + 0x1008;
    for (uint32_t p = 0; p < parts; p++) {
        for (uint32_t i = 0; i < rows * panels * 16; i++) {
            float value = f16_to_f32(random_half(2)) * 1.0003f;
            if (v->in_f16) {
                put_half(&b, in + stride * p + 2 * i, random_half(2));
            } else {
                put_bytes(&b, in + stride * p + 4 * i, &value, 4);
            }
        }
    }
    for (uint32_t c = 0; has_bias && c < 16 * panels; c++) {
        put_half(&b, bias + 2 * c, random_half(2));
    }
    allow_write(&b, out, rows * panels * 32);
    b.words[REDUCE_IN] = in;
    b.words[REDUCE_STRIDE] = stride;
    b.words[REDUCE_PARTS] = parts;
    b.words[REDUCE_BIAS] = has_bias ? bias : 3;
    b.words[REDUCE_OUT] = out;
    b.words[REDUCE_ROWS] = rows;
    b.words[REDUCE_PANELS] = panels;
    run(&b);
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t c = 0; c < 16 * panels; c++) {
            float sum = 0; /* same order, same roundings: bits match but for the activation */
            for (uint32_t p = 0; p < parts; p++) {
                uint32_t part = in + stride * p, at = (c / 16 * rows + r) * 16 + c % 16;
                double term = v->in_f16 ? get_half(b.before, part + 2 * at)
                                        : get_float(b.before, part + 4 * at);
                sum += (float)term;
            }
            if (has_bias) {
                sum += (float)get_half(b.before, bias + 2 * c);
            }
            double want = activate(act, sum);
            check_value(
                &b, "out", r, c, get_half(b.after, element_addr(out, rows, r, c)), want,
                half_tolerance(want, act < ACT_TANH ? 0 : 1e-6));
        }
    }
    check_cycles(&b, parts, rows, panels);
    bench_done(&b);
}

START_TEST(reduce_shapes) {
    static const uint32_t shapes[][3] = {{1, 1, 1}, {2, 1, 5},  {3, 4, 2},
                                         {7, 6, 1}, {2, 25, 2}, {16, 8, 3}};
    for (int act = 0; act < ACT_COUNT; act++) {
        for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
            for (int in_f16 = 0; in_f16 <= 1; in_f16++) {
                struct kernel_variant v = {
                    .id = KERNEL_REDUCE, .act = act, .has_bias = (i + act) & 1, .in_f16 = in_f16};
                check_reduce(&v, shapes[i][0], shapes[i][1], shapes[i][2]);
            }
        }
    }
}
END_TEST

static void check_softmax(uint32_t rows, uint32_t columns, double scale) {
    struct kernel_variant v = {.id = KERNEL_SOFTMAX};
    struct bench b;
    bench_init(&b, &v);
    uint32_t panels = (columns + 15) / 16, bytes = rows * panels * 32;
    uint32_t x = TARGET_MEM_END - bytes, out = REGION1;
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t c = 0; c < 16 * panels; c++) { /* padding is finite, and larger */
            put_half(
                &b, element_addr(x, rows, r, c),
                c < columns ? random_half(scale) : f16_from_f64(65504));
        }
    }
    allow_write(&b, out, bytes);
    b.words[SOFTMAX_X] = x;
    b.words[SOFTMAX_OUT] = out;
    b.words[SOFTMAX_ROWS] = rows;
    b.words[SOFTMAX_COLUMNS] = columns;
    run(&b);
    for (uint32_t r = 0; r < rows; r++) {
        double largest = -1e30, sum = 0;
        for (uint32_t c = 0; c < columns; c++) {
            largest = fmax(largest, get_half(b.before, element_addr(x, rows, r, c)));
        }
        for (uint32_t c = 0; c < columns; c++) {
            sum += exp(get_half(b.before, element_addr(x, rows, r, c)) - largest);
        }
        for (uint32_t c = 0; c < 16 * panels; c++) {
            double got = get_half(b.after, element_addr(out, rows, r, c));
            if (c >= columns) {
                ck_assert_msg(got == 0 && !signbit(got), "padding (%u, %u) is %g", r, c, got);
                continue;
            }
            double want = exp(get_half(b.before, element_addr(x, rows, r, c)) - largest) / sum;
            check_value(&b, "out", r, c, got, want, half_tolerance(want, want * 2e-6));
        }
    }
    check_cycles(&b, rows, columns, 0);
    bench_done(&b);
}

START_TEST(softmax_shapes) {
    static const uint32_t columns[] = {1,  2,  3,  4,  7,   15,  16,  17,  31,   32,  33,
                                       50, 65, 90, 96, 191, 192, 193, 384, 1000, 2048};
    static const uint32_t rows[] = {1, 2, 5, 6, 13};
    for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++) {
        for (size_t j = 0; j < 5; j++) {
            if (columns[i] < 2048 || rows[j] < 6) {
                static const double scale[] = {1, 8, 60000, 0.01};
                check_softmax(rows[j], columns[i], scale[(i + j) % 4]);
            }
        }
    }
}
END_TEST

/* ---- contracts --------------------------------------------------------------------------- */

START_TEST(contracts) {
    char a[48], c[48];
    struct kernel_variant v = {.id = KERNEL_GEMM_AMP, .act = ACT_RELU, .out_f32 = true};
    ck_assert_str_eq(kernel_symbol(&v, a, sizeof(a)), "k_gemm_amp_1010");
    struct kernel_variant w = v;
    ck_assert(kernel_variant_equal(&v, &w));
    w.w_region1 = true;
    ck_assert(!kernel_variant_equal(&v, &w));
    ck_assert_str_ne(kernel_symbol(&w, c, sizeof(c)), a);
    for (int id = 0; id < KERNEL_COUNT; id++) {
        const struct kernel *k = kernel_info((enum kernel_id)id);
        ck_assert_int_le(k->operand_count, 6);
        for (int i = 0; i < k->operand_count; i++) {
            ck_assert_int_lt(k->operands[i].word, k->descriptor_words);
            for (int j = 0; j < k->operand_count; j++) { /* symmetric where both say so */
                ck_assert(
                    i == j || !(k->operands[i].separate >> j & 1) ||
                    (k->operands[j].separate >> i & 1));
            }
        }
    }
    struct kernel_operand operands[6];
    int count = 0;
    kernel_operands(&w, operands, &count);
    ck_assert_int_eq(count, 4); /* no bias */
    ck_assert_int_eq(operands[1].memory, MEMORY_REGION1);
    ck_assert_int_eq(operands[2].memory, MEMORY_REGION1);
    struct err err = {0};
    struct arena arena;
    arena_init(&arena, 1u << 20);
    struct asm_object *object = NULL;
    w.act = (enum kernel_act)ACT_COUNT;
    ck_assert_int_eq(kernel_assemble(&w, &arena, &object, &err), -ERR_INVALID);
    arena_done(&arena);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("kernels");
    TCase *tc = tcase_create("kernels");
    tcase_set_timeout(tc, 300);
    tcase_add_test(tc, contracts);
    tcase_add_test(tc, gemm_shapes);
    tcase_add_test(tc, gemm_variants);
    tcase_add_test(tc, gemm_over_read);
    tcase_add_test(tc, gemm_shared_elements);
    tcase_add_test(tc, unary_shapes);
    tcase_add_loop_test(tc, unary_all_halves, 0, ACT_COUNT);
    tcase_add_test(tc, add_shapes);
    tcase_add_test(tc, add_row_shapes);
    tcase_add_test(tc, reduce_shapes);
    tcase_add_test(tc, softmax_shapes);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
