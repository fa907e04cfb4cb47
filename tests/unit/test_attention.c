/* Attention in blocks of queries and keys, planned, compiled, run and compared: sizes that leave
 * incomplete groups, several batches, shared keys, one key part and many. */
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../support/pipeline.h"
#include "graph/graph.h"
#include "plan/plan.h"

struct attention_case {
    int batch, queries, keys, heads, kv_heads, size;
    uint32_t tiles;
};

#define NORMAL "\"generator\":{\"kind\":\"normal\",\"seed\":%d,\"scale\":%g}"

/* Queries from one input, keys and values from another, each by a product; 3 dimensions. */
static char *model_of(const struct attention_case *t, double spread) {
    int width = t->heads * t->size, kv = t->kv_heads * t->size;
    char *text = NULL;
    int n = asprintf(
        &text,
        "{\"inputs\":["
        "{\"name\":\"x\",\"dtype\":\"float16\",\"shape\":[%d,%d,32]," NORMAL "},"
        "{\"name\":\"y\",\"dtype\":\"float16\",\"shape\":[%d,%d,32]," NORMAL "}],"
        "\"initializers\":["
        "{\"name\":\"wq\",\"dtype\":\"float16\",\"shape\":[32,%d]," NORMAL "},"
        "{\"name\":\"wk\",\"dtype\":\"float16\",\"shape\":[32,%d]," NORMAL "},"
        "{\"name\":\"wv\",\"dtype\":\"float16\",\"shape\":[32,%d]," NORMAL "}],"
        "\"nodes\":["
        "{\"op_type\":\"MatMul\",\"inputs\":[\"x\",\"wq\"],\"outputs\":[\"q\"]},"
        "{\"op_type\":\"MatMul\",\"inputs\":[\"y\",\"wk\"],\"outputs\":[\"k\"]},"
        "{\"op_type\":\"MatMul\",\"inputs\":[\"y\",\"wv\"],\"outputs\":[\"v\"]},"
        "{\"op_type\":\"Attention\",\"inputs\":[\"q\",\"k\",\"v\"],\"outputs\":[\"z\"],"
        "\"attributes\":{\"q_num_heads\":%d,\"kv_num_heads\":%d}}],"
        "\"outputs\":[\"z\"]}",
        t->batch, t->queries, 1, 1.0, t->batch, t->keys, 2, 1.0, width, 3, 0.18 * spread, kv, 4,
        0.18, kv, 5, 0.18, t->heads, t->kv_heads);
    ck_assert_int_gt(n, 0);
    return text;
}

static int no_files(void *arg, const char *label, struct err *err) {
    (void)arg;
    return err_set(err, ERR_MISSING, "file '%s'", label);
}

/* Tiles of an even number of query parts take their keys in pairs. */
static void check_pairs(const struct plan_step *s) {
    uint32_t parts = s->dist->m / s->product.batches, queries = parts / s->k;
    for (uint32_t i = 0; queries % 2 == 0 && i < s->dist->m; i++) {
        uint32_t query = i % parts / s->k, other = i - query * s->k + (query ^ 1) * s->k;
        for (uint32_t j = 0; j < s->dist->n; j++) {
            uint32_t tile = s->dist->tile[i * s->dist->n + j];
            ck_assert_uint_eq(s->dist->tile[other * s->dist->n + j], tile ^ 1);
        }
    }
}

/* The last step of the best plan; 0, or the error that there is none. */
static int try_plan(
    const char *model, uint32_t tiles, bool f16, uint32_t fill_percent, struct plan_step *ret) {
    struct arena arena;
    struct err err = {0};
    arena_init(&arena, 256u << 20);
    json_t *document = json_loads(model, 0, NULL);
    ck_assert_ptr_nonnull(document);
    struct graph *g, *canonical;
    const char *const *warnings;
    uint32_t count;
    ck_assert_msg(graph_load(document, no_files, NULL, &arena, &g, &err) == 0, "%s", err.text);
    ck_assert_int_eq(graph_canonical(g, &arena, &canonical, &warnings, &count, &err), 0);
    struct plan_options options = {
        .tiles = tiles, .fill_percent = fill_percent, .accumulate_f16 = f16};
    struct plan_set *set = NULL;
    int rc = plan_build(canonical, &options, &arena, &set, &err);
    for (uint32_t i = 0; rc == 0 && i < set->count; i++) {
        ck_assert_msg(plan_verify(&set->finalists[i], &err) == 0, "%s", err.text);
    }
    if (rc == 0) {
        *ret = set->finalists[0].steps[set->finalists[0].step_count - 1];
        if (ret->product.is_blocked) {
            check_pairs(ret);
        }
    }
    json_decref(document);
    arena_done(&arena);
    return rc;
}

static struct plan_step attention_step(const char *model, uint32_t tiles, bool f16) {
    struct plan_step s = {0};
    ck_assert_int_eq(try_plan(model, tiles, f16, 100, &s), 0);
    return s;
}

static const struct attention_case cases[] = {
    {1, 100, 100, 2, 2, 72, 2}, {1, 65, 197, 3, 3, 64, 24},  {2, 50, 130, 2, 2, 40, 16},
    {1, 100, 90, 4, 2, 16, 16}, {1, 40, 300, 2, 1, 128, 24}, {1, 33, 600, 1, 1, 24, 12},
    {3, 20, 77, 1, 1, 8, 6},    {2, 75, 58, 3, 1, 72, 18},
};
enum { CASES = sizeof cases / sizeof cases[0] };

START_TEST(cuts) {
    uint32_t fewest = UINT32_MAX, most = 0;
    for (int i = 0; i < CASES; i++) {
        char *model = model_of(&cases[i], 1);
        struct plan_step s = attention_step(model, cases[i].tiles, true);
        ck_assert_int_eq(s.kind, PLAN_ATTENTION);
        ck_assert_msg(s.product.is_blocked, "case %d: not in blocks", i);
        fewest = s.k < fewest ? s.k : fewest;
        most = s.k > most ? s.k : most;
        ck_assert_msg(
            !attention_step(model, cases[i].tiles, false).product.is_blocked,
            "case %d: scores in f16 unasked", i);
        free(model);
    }
    ck_assert_uint_eq(fewest, 1);
    ck_assert_uint_ge(most, 4);
}
END_TEST

START_TEST(results) {
    char folder[] = "/tmp/attention-XXXXXX";
    ck_assert_ptr_nonnull(mkdtemp(folder));
    char *model = model_of(&cases[_i], _i % 2 == 0 ? 1 : 1.5);
    struct pipeline_options options = {
        .tiles = cases[_i].tiles,
        .seed = 3,
        .runs = 1,
        .accumulate_f16 = true,
        .folder = folder,
        .sim = {.threads = 1, .poison_launch = true}};
    struct pipeline_result result;
    struct err err = {0};
    int rc = pipeline_run(model, &options, &result, &err);
    rmdir(folder);
    free(model);
    ck_assert_msg(rc == 0, "case %d: %s %s", _i, err.where, err.text);
    ck_assert_msg(
        result.pass, "case %d: error %g of %g", _i, result.worst.max_abs_error,
        result.worst.tolerance);
}
END_TEST

START_TEST(not_in_blocks) {
    static const struct attention_case few_rows = {1, 1, 20, 2, 2, 64, 16},
                                       wide = {1, 100, 100, 2, 2, 144, 16},
                                       few_tiles = {1, 300, 100, 2, 2, 64, 2};
    const struct attention_case *list[] = {&few_rows, &wide, &few_tiles};
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        char *model = model_of(list[i], 1);
        ck_assert(!attention_step(model, list[i]->tiles, true).product.is_blocked);
        free(model);
    }
}
END_TEST

/* With less and less memory there is a plan as long as there is one without blocks. */
START_TEST(little_memory) {
    static const struct attention_case few = {1, 100, 480, 1, 1, 128, 1};
    char *model = model_of(&few, 1);
    uint32_t with = 0, without = 0;
    for (uint32_t percent = 100; percent > 0; percent -= 2) {
        struct plan_step s;
        int rc = try_plan(model, few.tiles, true, percent, &s);
        if (rc == 0) {
            *(s.product.is_blocked ? &with : &without) += 1;
        } else {
            ck_assert_int_ne(try_plan(model, few.tiles, false, percent, &s), 0);
        }
    }
    free(model);
    ck_assert_uint_gt(with, 0);
    ck_assert_uint_gt(without, 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("attention");
    TCase *tc = tcase_create("attention");
    tcase_set_timeout(tc, 600);
    tcase_add_test(tc, not_in_blocks);
    tcase_add_test(tc, cuts);
    tcase_add_test(tc, little_memory);
    tcase_add_loop_test(tc, results, 0, CASES);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
