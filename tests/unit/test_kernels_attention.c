/* ATTENTION on one bare tile, against plain loops in double. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/f16.h"
#include "kernel_bench.h"

struct attention_case {
    uint32_t rows, keys, panels, out_panels;
    double spread; /* of q: large values make one key win */
};

enum { MAX_KEYS = 1024 };

static const float scale = 0.125f;

static void fill(struct bench *b, uint32_t base, uint32_t rows, uint32_t panels, double size) {
    for (uint32_t i = 0; i < rows * panels * 16; i++) {
        put_half(b, base + 2 * i, random_half(size));
    }
}

static void
check_row(struct bench *b, const struct attention_case *t, uint32_t r, const uint32_t at[4]) {
    double weights[MAX_KEYS], largest = -INFINITY, sum = 0, size = 0;
    for (uint32_t k = 0; k < t->keys; k++) {
        double score = 0, terms = 0;
        for (uint32_t d = 0; d < 16 * t->panels; d++) {
            double product = get_half(b->before, element_addr(at[0], t->rows, r, d)) *
                             get_half(b->before, element_addr(at[1], t->keys, k, d));
            score += product;
            terms += fabs(product);
        }
        weights[k] = score * scale;
        largest = fmax(largest, weights[k]);
        size = fmax(size, terms * scale);
    }
    for (uint32_t k = 0; k < t->keys; k++) {
        weights[k] = exp(weights[k] - largest);
        sum += weights[k];
    }
    /* relative error of a weight: of its score (f32 sums), of exp, of the sum */
    double relative = size * 0x1p-22 * (1 + t->panels) + (2 + t->keys / 6.0) * 0x1p-23 + 1e-6;
    for (uint32_t d = 0; d < 16 * t->out_panels; d++) {
        double want = 0, terms = 0;
        for (uint32_t k = 0; k < t->keys; k++) {
            double v = get_half(b->before, element_addr(at[2], t->keys, k, d));
            want += weights[k] / sum * v;
            terms += weights[k] / sum * fabs(v);
        }
        double error = terms * (2 * relative + t->keys * 0x1p-23);
        double got = get_half(b->after, element_addr(at[3], t->rows, r, d));
        check_value(b, "out", r, d, got, want, half_tolerance(want, error));
    }
}

static void check_attention(const struct attention_case *t) {
    struct kernel_variant v = {.id = KERNEL_ATTENTION};
    struct bench b;
    bench_init(&b, &v);
    const uint32_t kv_bytes = t->keys * t->panels * 32, bytes = t->rows * t->out_panels * 32;
    ck_assert_uint_le(kv_bytes, 0x22000);
    /* k ends with tile memory, q with an element: reading more of k would fault. */
    const uint32_t at[4] = {REGION0 + 8, TARGET_MEM_END - kv_bytes, REGION1 + 8, REGION0 + 0x8008};
    const uint32_t scratch = REGION0 + 0x10008;
    fill(&b, at[0], t->rows, t->panels, t->spread);
    fill(&b, at[1], t->keys, t->panels, 1);
    fill(&b, at[2], t->keys, t->out_panels, 2);
    allow_write(&b, at[3], bytes);
    allow_write(&b, scratch, kernel_scratch_bytes(&v, t->keys));
    b.words[ATTENTION_Q] = at[0];
    b.words[ATTENTION_K] = at[1];
    b.words[ATTENTION_V] = at[2];
    b.words[ATTENTION_OUT] = at[3];
    b.words[ATTENTION_SCRATCH] = scratch;
    b.words[ATTENTION_ROWS] = t->rows;
    b.words[ATTENTION_KEYS] = t->keys;
    b.words[ATTENTION_PANELS] = t->panels;
    b.words[ATTENTION_OUT_PANELS] = t->out_panels;
    memcpy(&b.words[ATTENTION_SCALE], &scale, 4);
    run(&b);
    for (uint32_t r = 0; r < t->rows; r++) {
        check_row(&b, t, r, at);
    }
    check_cycles4(&b, t->rows, t->keys, t->panels, t->out_panels);
    bench_done(&b);
}

START_TEST(attention_shapes) {
    static const uint32_t shapes[][4] = {
        {1, 1, 1, 1},  {1, 2, 1, 1},   {2, 3, 2, 2},   {1, 6, 4, 4},   {1, 4, 5, 5},  {1, 4, 5, 1},
        {1, 16, 3, 2}, {1, 17, 2, 2},  {3, 7, 1, 1},   {4, 13, 3, 1},  {5, 64, 4, 4}, {2, 77, 5, 5},
        {7, 32, 2, 2}, {2, 130, 8, 3}, {1, 729, 5, 5}, {3, 1024, 4, 4}};
    static const double spread[] = {1, 6, 40};
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        struct attention_case t = {
            shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3], spread[i % 3]};
        check_attention(&t);
    }
}
END_TEST

START_TEST(contracts) {
    struct kernel_variant v = {.id = KERNEL_ATTENTION};
    ck_assert(kernel_variant_exists(&v));
    ck_assert_uint_eq(kernel_scratch_bytes(&v, 100), 816);
    v.act = ACT_RELU;
    ck_assert(!kernel_variant_exists(&v));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("kernels_attention");
    TCase *tc = tcase_create("kernels_attention");
    tcase_set_timeout(tc, 300);
    tcase_add_test(tc, contracts);
    tcase_add_test(tc, attention_shapes);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
