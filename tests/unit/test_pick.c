/* What moves elements: which steps it becomes, what their tables name, and that faults in them are
 * seen. */
#include <check.h>

#include "dense_net.h"
#include "lower/lower.h"

static struct arena arena;

static void setup(void) {
    arena_init(&arena, 256u << 20);
}

static void teardown(void) {
    arena_done(&arena);
}

static const struct plan *plan_of(const struct graph *g, uint32_t tiles) {
    struct plan_set *set = NULL;
    struct err err = {0};
    int rc =
        plan_build(g, &(struct plan_options){tiles, 100, false, REPEATS_NONE}, &arena, &set, &err);
    ck_assert_msg(rc == 0, "%s", err.text);
    ck_assert_msg(plan_verify(&set->finalists[0], &err) == 0, "%s", err.text);
    return &set->finalists[0];
}

static const struct graph *softmax_of_columns(void) {
    struct net n = net_new(&arena);
    struct value_id x = net_input(&n, 5, 40);
    struct graph_attr axis = {.name = "axis", .kind = ATTR_INT, .i = 0};
    struct value_id y = net_node(&n, GRAPH_OP_Softmax, x, NO_VALUE, NO_VALUE, &axis, 1);
    return net_finish(&n, &y, 1);
}

/* Another axis comes last, and goes back. */
START_TEST(test_turned) {
    const struct plan *p = plan_of(softmax_of_columns(), 4);
    ck_assert_uint_eq(p->step_count, 3);
    ck_assert_int_eq(p->steps[0].kind, PLAN_PICK);
    ck_assert_int_eq(p->steps[1].kind, PLAN_SOFTMAX);
    ck_assert_int_eq(p->steps[2].kind, PLAN_PICK);
    ck_assert_uint_eq(p->steps[1].rows, 40);
    ck_assert_uint_eq(p->steps[1].columns, 5);
    const struct plan_element *e = &p->steps[0].pick->elements[16 * 17 + 3]; /* row 17, column 3 */
    ck_assert_uint_eq(e->source, 0);
    ck_assert_uint_eq(e->row, 3);
    ck_assert_uint_eq(e->column, 17);
    ck_assert_uint_eq(e[2].source, PLAN_FILL);
    ck_assert_int_eq(p->steps[0].pick->unit, PICK_HALF);
    ck_assert_uint_eq(p->matrices[p->steps[2].out].rows, 5);
}
END_TEST

/* Five matrices, three operands a step: two steps, and each element in its place. */
START_TEST(test_concat) {
    struct net n = net_new(&arena);
    struct value_id x[5], y;
    for (int i = 0; i < 5; i++) {
        x[i] = net_input(&n, 2, 3 + i);
    }
    struct graph_attr axis = {.name = "axis", .kind = ATTR_INT, .i = 1};
    const char *name = "y";
    struct err err = {0};
    ck_assert_int_eq(
        graph_add_node(
            n.b, GRAPH_OP_Concat, "concat", x, 5, &axis, 1, &name, 1, "/nodes/0", &y, &err),
        0);
    const struct plan *p = plan_of(net_finish(&n, &y, 1), 4);
    ck_assert_uint_eq(p->step_count, 2);
    const struct plan_step *last = &p->steps[1];
    ck_assert_uint_eq(last->columns, 25);
    ck_assert_uint_eq(last->in[0], p->steps[0].out);
    static const uint32_t first[6] = {0, 3, 7, 12, 18, 25};
    for (uint32_t c = 0; c < 32; c++) {
        const struct plan_element *e = &last->pick->elements[32 + c]; /* row 1 */
        uint32_t part = 0;
        while (part < 5 && c >= first[part + 1]) {
            part++;
        }
        ck_assert_uint_eq(e->source, part == 5 ? PLAN_FILL : part < 3 ? 0 : part - 2);
        ck_assert_uint_eq(e->column, part == 5 ? 0 : part < 3 ? c : c - first[part]);
    }
}
END_TEST

/* Whole quads move as one. */
START_TEST(test_units) {
    struct net n = net_new(&arena);
    struct value_id x[2] = {net_input(&n, 3, 20), net_input(&n, 4, 20)}, y;
    struct graph_attr axis = {.name = "axis", .kind = ATTR_INT, .i = 0};
    const char *name = "y";
    struct err err = {0};
    ck_assert_int_eq(
        graph_add_node(
            n.b, GRAPH_OP_Concat, "concat", x, 2, &axis, 1, &name, 1, "/nodes/0", &y, &err),
        0);
    const struct plan *p = plan_of(net_finish(&n, &y, 1), 4);
    ck_assert_uint_eq(p->step_count, 1);
    ck_assert_int_eq(p->steps[0].pick->unit, PICK_DOUBLE);
}
END_TEST

START_TEST(test_damaged_table) {
    for (int fault = 0; fault < 6; fault++) {
        struct tile_graph *tg = NULL;
        struct err err = {0};
        ck_assert_int_eq(lower_build(plan_of(softmax_of_columns(), 4), &arena, &tg, &err), 0);
        ck_assert_msg(lower_verify(tg, &arena, &err) == 0, "%s", err.text);
        ck_assert_uint_gt(tg->table_count, 0);
        struct lower_table *t = &tg->tables[0];
        struct lower_word *words = arena_memdup(&arena, t->words, sizeof *words * t->count);
        t->words = words;
        switch (fault) {
        case 0: words[5].value = tg->buffers[words[5].buffer.n].bytes; break;
        case 1: words[5].buffer.n = tg->buffer_count; break;
        case 2: /* another tile's */
            for (uint32_t b = 0; b < tg->buffer_count; b++) {
                if (tg->buffers[b].tile.n != tg->buffers[t->buffer.n].tile.n) {
                    words[5] = (struct lower_word){{b}, 0};
                }
            }
            break;
        case 3: t->count--; break;
        case 4: t->buffer = (struct buffer_id){tg->buffer_count}; break;
        default: tg->buffers[words[0].buffer.n].dies = 0; break;
        }
        ck_assert_int_eq(lower_verify(tg, &arena, &err), -ERR_INTERNAL);
    }
}
END_TEST

/* Lanes without an element are taken from a row of zeros, never from what lies beside them. */
START_TEST(test_fill) {
    struct tile_graph *tg = NULL;
    struct err err = {0};
    const struct plan *p = plan_of(softmax_of_columns(), 1);
    ck_assert_int_eq(lower_build(p, &arena, &tg, &err), 0);
    ck_assert_uint_eq(tg->table_count, 2);
    const struct lower_table *t = &tg->tables[0]; /* 40 rows of 5 columns */
    ck_assert_uint_eq(t->count, 16 * 40);
    struct buffer_id zeros = t->words[5].buffer;
    ck_assert_int_eq(tg->buffers[zeros.n].kind, BUFFER_ROW);
    for (uint32_t i = 0; i < tg->shard_count; i++) {
        const struct lower_shard *s = &tg->shards[i];
        ck_assert(s->buffer.n != zeros.n || (s->is_fill && s->fill == 0));
    }
    for (uint32_t i = 0; i < t->count; i++) {
        bool is_there = i % 16 < 5;
        ck_assert((t->words[i].buffer.n != zeros.n) == is_there);
        /* Element (row, column) comes from (column, row). */
        uint32_t row = i / 16, column = i % 16;
        uint32_t offset = is_there ? 32 * (row / 16 * 5 + column) + 2 * (row % 16) : 0;
        ck_assert_uint_eq(t->words[i].value, offset);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("pick");
    TCase *tc = tcase_create("pick");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, test_turned);
    tcase_add_test(tc, test_concat);
    tcase_add_test(tc, test_units);
    tcase_add_test(tc, test_fill);
    tcase_add_test(tc, test_damaged_table);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
