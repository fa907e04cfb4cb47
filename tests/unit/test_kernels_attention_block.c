/* ATTENTION_BLOCK and ATTENTION_MERGE on one bare tile, against plain loops in double. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/f16.h"
#include "kernel_bench.h"

struct block_case {
    uint32_t rows, keys, groups, panels;
    double spread; /* of q: large values make one key win */
    float scale;
};

enum { MAX_KEYS = 1024 };

static void fill(struct bench *b, uint32_t base, uint32_t rows, uint32_t panels, double size) {
    for (uint32_t i = 0; i < rows * panels * 16; i++) {
        put_half(b, base + 2 * i, random_half(size));
    }
}

static void check_within(const struct bench *b, const uint32_t *dims) {
    uint32_t predicted = kernel_cycles(&b->variant, dims);
    if (getenv("KERNEL_CYCLES") != NULL) {
        printf(
            "%u %u %u %u: %u cycles, predicted %u\n", dims[0], dims[1], dims[2], dims[3], b->cycles,
            predicted);
        return;
    }
    ck_assert_msg(
        fabs((double)predicted - b->cycles) <= 0.05 * b->cycles + 60,
        "%u %u %u %u: %u cycles, predicted %u", dims[0], dims[1], dims[2], dims[3], b->cycles,
        predicted);
}

/* Weights of a query as the kernel forms them from f16 scores, and what its result may be off by.
 * A score is a chain of roundings to f16, one a K group; as is a result. */
static void
check_query(struct bench *b, const struct block_case *t, uint32_t r, const uint32_t at[4]) {
    struct kernel_block_bytes bytes = kernel_block_bytes(t->rows, t->keys, t->panels);
    static double score[MAX_KEYS], off[MAX_KEYS];
    double shift = exp2(-ceil(log2(t->keys))), scale = f16_to_f32(f16_from_f64(t->scale));
    double largest = -INFINITY, sum = 0, sum_off = 0;
    for (uint32_t k = 0; k < t->keys; k++) {
        score[k] = off[k] = 0;
        for (uint32_t d = 0; d < 16 * t->groups; d++) {
            score[k] += get_half(b->before, element_addr(at[0], t->rows, r, d)) *
                        get_half(b->before, element_addr(at[1], t->keys, k, d));
            if (d % 16 == 15) {
                off[k] += (fabs(score[k]) + off[k]) * 0x1p-11;
            }
        }
        largest = fmax(largest, score[k]);
    }
    uint32_t stats = at[3] + bytes.stats + 4 * r;
    double got_largest = get_float(b->after, stats);
    double got_sum = get_float(b->after, stats + bytes.stats_stride);
    double range = 0; /* of scores */
    for (uint32_t k = 0; k < t->keys; k++) {
        range = fmax(range, off[k]);
        double x = scale * (score[k] - got_largest);
        score[k] = exp(x) * shift;
        /* relative: of the score, of the argument, of exp, of the product; and of subnormals */
        off[k] = score[k] * (exp(scale * off[k] + fabs(x) * 0x1p-11 + 0x1p-9) - 1) + 0x1p-24;
        sum += score[k];
        sum_off += off[k];
    }
    check_value(b, "largest", r, 0, got_largest, largest, range);
    check_value(b, "sum", r, 0, got_sum, sum, sum_off + sum * t->keys * 0x1p-24);
    for (uint32_t d = 0; d < 16 * t->panels; d++) {
        double want = 0, error = 0;
        for (uint32_t k = 0; k < t->keys; k++) {
            double v = get_half(b->before, element_addr(at[2], t->keys, k, d));
            want += score[k] * v;
            error += off[k] * fabs(v);
            if (k % 16 == 15) {
                error += (fabs(want) + error) * 0x1p-11;
            }
        }
        uint32_t addr = at[3] + d / 16 * bytes.out_stride + 32 * r + 2 * (d % 16);
        check_value(
            b, "out", r, d, get_half(b->after, addr), want, half_tolerance(want, error + 0x1p-25));
    }
}

static void check_block(const struct block_case *t) {
    struct kernel_variant v = {.id = KERNEL_ATTENTION_BLOCK};
    struct kernel_block_bytes bytes = kernel_block_bytes(t->rows, t->keys, t->panels);
    struct bench b;
    bench_init(&b, &v);
    const uint32_t k_bytes = t->keys * t->groups * 32, v_bytes = t->keys * t->panels * 32;
    const uint32_t q_bytes = t->rows * t->groups * 32;
    struct kernel_operand operands[6];
    int count = 0;
    kernel_operands(&v, operands, &count);
    /* q ends with tile memory and k with region 0, over-reads included; v with an element. */
    const uint32_t at[4] = {
        (TARGET_MEM_END - q_bytes - operands[0].over_read) & ~15u,
        REGION1 - ((k_bytes + operands[1].over_read + 7) & ~7u), REGION0 + 8, REGION1 + 16};
    const uint32_t s = REGION1 + 3 * PAIR + 16, work = REGION1 + 5 * PAIR;
    ck_assert_uint_le(at[2] + v_bytes + operands[2].over_read, at[1] & ~0x3FFFu);
    ck_assert_uint_le(bytes.s, 2 * PAIR - 16);
    ck_assert_uint_le(work + bytes.work, at[0] & ~(PAIR - 1));
    ck_assert_uint_le(bytes.out, 3 * PAIR - 16);
    fill(&b, at[0], t->rows, t->groups, t->spread);
    fill(&b, at[1], t->keys, t->groups, 1);
    fill(&b, at[2], t->keys, t->panels, t->keys % 2 == 0 ? 2 : 60000);
    allow_write(&b, at[3], bytes.out);
    allow_write(&b, s, bytes.s);
    allow_write(&b, work, bytes.work);
    b.words[BLOCK_Q] = at[0];
    b.words[BLOCK_K] = at[1];
    b.words[BLOCK_V] = at[2];
    b.words[BLOCK_OUT] = at[3];
    b.words[BLOCK_S] = s;
    b.words[BLOCK_WORK] = work;
    b.words[BLOCK_ROWS] = t->rows;
    b.words[BLOCK_KEYS] = t->keys;
    b.words[BLOCK_GROUPS] = t->groups;
    b.words[BLOCK_PANELS] = t->panels;
    uint32_t scale = f16_from_f64(t->scale);
    b.words[BLOCK_SCALE] = scale | (scale ^ 0x8000) << 16;
    b.words[BLOCK_SHIFT] = f16_from_f64(exp2(-ceil(log2(t->keys))));
    run(&b);
    for (uint32_t r = 0; r < t->rows; r++) {
        check_query(&b, t, r, at);
    }
    check_within(&b, (const uint32_t[]){t->rows, t->keys, t->groups, t->panels});
    bench_done(&b);
}

START_TEST(block_shapes) {
    static const uint32_t shapes[][4] = {
        {1, 1, 1, 1},    {16, 16, 1, 1},  {2, 3, 2, 1},    {16, 32, 4, 4}, {15, 7, 1, 2},
        {17, 13, 3, 3},  {31, 64, 4, 4},  {40, 77, 5, 5},  {33, 98, 4, 4}, {16, 365, 5, 5},
        {32, 192, 5, 5}, {32, 169, 5, 5}, {25, 130, 8, 8}, {64, 96, 2, 3}, {128, 50, 2, 8}};
    static const double spread[] = {1, 4, 20};
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        struct block_case t = {shapes[i][0], shapes[i][1],  shapes[i][2],
                               shapes[i][3], spread[i % 3], i % 2 == 0 ? 0.125f : 0.117851f};
        check_block(&t);
    }
}
END_TEST

/* ---- merge ----------------------------------------------------------------------------------- */

struct merge_case {
    uint32_t parts, rows, panels;
    uint32_t own_rows, first; /* rows of the first part, and those wanted of it */
};

static void put_float(struct bench *b, uint32_t addr, double value) {
    float f = (float)value;
    put_bytes(b, addr, &f, 4);
}

struct merge_part {
    uint32_t values, stride, largest, sums; /* addresses, of row 0 */
};

static struct merge_part
merge_part(const struct merge_case *t, uint32_t own, uint32_t in, uint32_t i) {
    struct kernel_block_bytes bytes = kernel_block_bytes(t->own_rows, 1, t->panels);
    if (i == 0) {
        uint32_t stats = own + bytes.stats + 4 * t->first;
        return (struct merge_part){
            own + 32 * t->first, bytes.out_stride, stats, stats + bytes.stats_stride};
    }
    uint32_t at = in + (i - 1) * t->rows * (32 * t->panels + 8);
    uint32_t stats = at + 32 * t->rows * t->panels;
    return (struct merge_part){at, 32 * t->rows, stats, stats + 4 * t->rows};
}

static void check_merge(const struct merge_case *t) {
    struct kernel_variant v = {.id = KERNEL_ATTENTION_MERGE};
    struct kernel_block_bytes bytes = kernel_block_bytes(t->own_rows, 1, t->panels);
    struct bench b;
    bench_init(&b, &v);
    const float scale = 0.25f;
    const uint32_t out_bytes = 32 * t->rows * t->panels;
    const uint32_t in_bytes = (t->parts - 1) * (out_bytes + 8 * t->rows);
    const uint32_t own = REGION0 + 8, in = TARGET_MEM_END - in_bytes, out = REGION1 + 8;
    for (uint32_t i = 0; i < t->parts; i++) {
        struct merge_part p = merge_part(t, own, in, i);
        for (uint32_t r = 0; r < t->rows; r++) {
            for (uint32_t d = 0; d < 16 * t->panels; d++) {
                put_half(&b, p.values + d / 16 * p.stride + 32 * r + 2 * (d % 16), random_half(9));
            }
            put_float(&b, p.largest + 4 * r, f16_to_f32(random_half(r % 3 == 0 ? 900 : 6)));
            put_float(&b, p.sums + 4 * r, 2 + f16_to_f32(random_half(1)));
        }
    }
    allow_write(&b, out, out_bytes);
    b.words[MERGE_OWN] = own + 32 * t->first;
    b.words[MERGE_OWN_STRIDE] = bytes.out_stride;
    b.words[MERGE_STATS] = own + bytes.stats + 4 * t->first;
    b.words[MERGE_STATS_STRIDE] = bytes.stats_stride;
    b.words[MERGE_IN] = t->parts > 1 ? in : 3; /* must not be looked at */
    b.words[MERGE_STRIDE] = out_bytes + 8 * t->rows;
    b.words[MERGE_PARTS] = t->parts;
    b.words[MERGE_OUT] = out;
    b.words[MERGE_ROWS] = t->rows;
    b.words[MERGE_PANELS] = t->panels;
    memcpy(&b.words[MERGE_SCALE], &scale, 4);
    run(&b);
    for (uint32_t r = 0; r < t->rows; r++) {
        double factor[KERNEL_MERGE_PARTS], largest = -INFINITY, sum = 0;
        for (uint32_t i = 0; i < t->parts; i++) {
            struct merge_part p = merge_part(t, own, in, i);
            largest = fmax(largest, get_float(b.before, p.largest + 4 * r));
        }
        for (uint32_t i = 0; i < t->parts; i++) {
            struct merge_part p = merge_part(t, own, in, i);
            factor[i] = exp(scale * (get_float(b.before, p.largest + 4 * r) - largest));
            sum += factor[i] * get_float(b.before, p.sums + 4 * r);
        }
        for (uint32_t d = 0; d < 16 * t->panels; d++) {
            double want = 0, error = 0;
            for (uint32_t i = 0; i < t->parts; i++) {
                struct merge_part p = merge_part(t, own, in, i);
                double x = get_half(b.before, p.values + d / 16 * p.stride + 32 * r + 2 * (d % 16));
                want += factor[i] / sum * x;
                error += factor[i] / sum * fabs(x) * 0x1p-11 + fabs(x) * 0x1p-25;
                error += i % 2 == 1 && i > 1 ? fabs(want) * 0x1p-11 + error * 0x1p-11 : 0;
            }
            double got = get_half(b.after, element_addr(out, t->rows, r, d));
            check_value(&b, "merged", r, d, got, want, half_tolerance(want, error + 1e-6));
        }
    }
    check_within(&b, (const uint32_t[]){t->parts, t->rows, t->panels, 0});
    bench_done(&b);
}

START_TEST(merge_shapes) {
    static const uint32_t shapes[][5] = {{1, 1, 1, 1, 0},   {1, 16, 2, 16, 0},   {2, 3, 1, 20, 17},
                                         {2, 8, 5, 16, 8},  {3, 7, 3, 40, 30},   {4, 8, 5, 32, 24},
                                         {5, 13, 4, 13, 0}, {16, 6, 8, 128, 122}};
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        struct merge_case t = {
            shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3], shapes[i][4]};
        check_merge(&t);
    }
}
END_TEST

START_TEST(contracts) {
    struct kernel_block_bytes bytes = kernel_block_bytes(17, 33, 5);
    ck_assert_uint_eq(bytes.s, 512 * 3 + 256 + 512 * 5 + 256);
    ck_assert_uint_eq(bytes.work, 512 * 3 * 6 + 64);
    ck_assert_uint_eq(bytes.out_stride, 1024);
    ck_assert_uint_eq(bytes.out, 5 * 1024 + 2 * 32 * 4);
    struct kernel_variant v = {.id = KERNEL_ATTENTION_BLOCK};
    ck_assert(kernel_variant_exists(&v));
    v.act = ACT_RELU;
    ck_assert(!kernel_variant_exists(&v));
    v.id = KERNEL_ATTENTION_MERGE;
    ck_assert(!kernel_variant_exists(&v));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("kernels_attention_block");
    TCase *tc = tcase_create("kernels_attention_block");
    tcase_set_timeout(tc, 300);
    tcase_add_test(tc, contracts);
    tcase_add_test(tc, block_shapes);
    tcase_add_test(tc, merge_shapes);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
