/* Fusion, distributions and search of the planner; and that its verifier sees faults. */
#include <check.h>

#include "dense_net.h"
#include "plan/plan.h"

static struct arena arena;

static void setup(void) {
    arena_init(&arena, 128u << 20);
}

static void teardown(void) {
    arena_done(&arena);
}

static const struct plan_set *plan_of(const struct graph *g, uint32_t tiles) {
    struct plan_set *set = NULL;
    struct err err = {0};
    int rc =
        plan_build(g, &(struct plan_options){tiles, 100, false, REPEATS_NONE}, &arena, &set, &err);
    ck_assert_msg(rc == 0, "%s %s", err.where, err.text);
    ck_assert_uint_ge(set->count, 1);
    for (uint32_t i = 0; i < set->count; i++) {
        rc = plan_verify(&set->finalists[i], &err);
        ck_assert_msg(rc == 0, "%s", err.text);
        ck_assert(
            i == 0 || set->finalists[i - 1].estimated_cycles <= set->finalists[i].estimated_cycles);
    }
    return set;
}

START_TEST(test_fuse_gemm) {
    const int64_t widths[] = {64, 32, 10};
    const struct plan *p = &plan_of(net_mlp(&arena, 8, widths, 3), 4)->finalists[0];
    ck_assert_uint_eq(p->step_count, 3);
    ck_assert_int_eq(p->steps[0].kind, PLAN_GEMM);
    ck_assert_int_eq(p->steps[0].act, ACT_RELU);
    ck_assert_uint_ne(p->steps[0].row.n, NO_VALUE.n);
    ck_assert_int_eq(p->steps[1].kind, PLAN_GEMM);
    ck_assert(p->steps[1].is_transposed);
    ck_assert_int_eq(p->steps[2].kind, PLAN_SOFTMAX);
}
END_TEST

/* MatMul + Add of a row + activation join; a value read twice, or that is an output, does not. */
START_TEST(test_fuse_add) {
    struct net n = net_new(&arena);
    struct value_id x = net_input(&n, 4, 32);
    struct value_id row = net_param(&n, (struct shape){.rank = 1, .dim = {48}});
    struct value_id w = net_param(&n, net_shape(32, 48));
    struct value_id y = net_node(&n, GRAPH_OP_MatMul, x, w, NO_VALUE, NULL, 0);
    y = net_node(&n, GRAPH_OP_Add, row, y, NO_VALUE, NULL, 0);
    struct value_id t = net_op(&n, GRAPH_OP_Tanh, y);
    const struct plan *p = &plan_of(net_finish(&n, &t, 1), 4)->finalists[0];
    ck_assert_uint_eq(p->step_count, 1);
    ck_assert_int_eq(p->steps[0].act, ACT_TANH);

    n = net_new(&arena);
    x = net_input(&n, 4, 32);
    y = net_gemm(&n, x, 32, 48, false, true);
    struct value_id both[2] = {net_op(&n, GRAPH_OP_Relu, y), y};
    p = &plan_of(net_finish(&n, both, 2), 4)->finalists[0];
    ck_assert_uint_eq(p->step_count, 2);
    ck_assert_int_eq(p->steps[0].act, ACT_NONE);
    ck_assert_int_eq(p->steps[1].kind, PLAN_UNARY);
}
END_TEST

START_TEST(test_grids) {
    static const uint32_t tiles[] = {1, 2, 7, 64, 1000, 1472};
    const int64_t widths[] = {300, 500, 100};
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++) {
        const struct plan_set *set = plan_of(net_mlp(&arena, 33, widths, 3), tiles[i]);
        ck_assert_uint_le(set->finalists[0].active_tiles, tiles[i]);
        ck_assert_uint_gt(set->candidates, 0);
    }
    /* More tiles are never estimated slower: the menu of fewer is part of theirs. */
    uint64_t one = plan_of(net_mlp(&arena, 33, widths, 3), 1)->finalists[0].estimated_cycles;
    uint64_t many = plan_of(net_mlp(&arena, 33, widths, 3), 64)->finalists[0].estimated_cycles;
    ck_assert_uint_lt(many, one);
}
END_TEST

/* Shares of a block's reducers cover it exactly, whatever cuts it: panels, rows or both. */
START_TEST(test_reduce_shares) {
    const uint32_t bound[] = {0, 5, 7};
    static const uint32_t ks[] = {3, 6, 7};
    for (uint32_t form = 0; form < 9; form++) {
        struct plan_step s = {.m = 2, .n = 2, .k = ks[form / 3], .rows = 23, .panel_bound = bound};
        s.form.row_parts = 1 + form % 3;
        bool seen[23][7] = {{false}};
        for (uint32_t at = 0; at < 4 * s.k; at++) {
            uint32_t i = at / s.k / 2, j = at / s.k % 2;
            struct plan_share share = plan_reduce_share(&s, i, j, at % s.k);
            for (uint32_t p = share.panel_first; p < share.panel_last; p++) {
                for (uint32_t r = share.row_first; r < share.row_last; r++) {
                    ck_assert(!seen[r][p] && (r >= 11) == (i == 1) && (p >= 5) == (j == 1));
                    seen[r][p] = true;
                }
            }
        }
        for (uint32_t at = 0; at < 23 * 7; at++) {
            ck_assert_msg(seen[at / 7][at % 7], "form %u: %u, %u", form, at / 7, at % 7);
        }
    }
}
END_TEST

/* Damaged plans are refused, each for its own reason. */
START_TEST(test_verify) {
    const int64_t widths[] = {64, 64, 64};
    for (int fault = 0; fault < 5; fault++) {
        struct plan p = plan_of(net_mlp(&arena, 8, widths, 3), 16)->finalists[0];
        struct plan_dist d = *p.steps[0].dist;
        uint32_t *rows = arena_memdup(&arena, d.row_bound, sizeof *rows * (d.m + 1));
        uint16_t *tile = arena_memdup(&arena, d.tile, sizeof *tile * d.m * d.n);
        d.row_bound = rows;
        d.tile = tile;
        p.steps[0].dist = &d;
        p.matrices[p.steps[0].out].dist = &d;
        struct err err = {0};
        ck_assert_int_eq(plan_verify(&p, &err), 0);
        switch (fault) {
        case 0: rows[d.m]--; break;
        case 1: tile[0] = 16; break;
        case 2: p.matrices[p.steps[0].out].step = 1; break;
        case 3: p.steps[0].m = 17; break;
        default: p.steps[0].rows++; break;
        }
        ck_assert_int_eq(plan_verify(&p, &err), -ERR_INTERNAL);
        ck_assert_str_ne(err.text, "");
    }
}
END_TEST

START_TEST(test_refused) {
    struct err err = {0};
    struct plan_set *set;
    struct net n = net_new(&arena);
    struct value_id x = net_input(&n, 65537, 3);
    struct value_id y = net_op(&n, GRAPH_OP_Relu, x);
    int rc = plan_build(
        net_finish(&n, &y, 1), &(struct plan_options){4, 100, false, REPEATS_NONE}, &arena, &set,
        &err);
    ck_assert_int_eq(rc, -ERR_UNSUPPORTED_OP);
    ck_assert_ptr_nonnull(strstr(err.where, "/nodes/"));
    ck_assert_ptr_nonnull(strstr(err.text, "65537 rows"));

    n = net_new(&arena);
    struct shape s = net_shape(4, 8);
    x = graph_add_input(n.b, "x", DTYPE_INT64, &s, NULL);
    y = net_op(&n, GRAPH_OP_Identity, x);
    memset(&err, 0, sizeof err);
    rc = plan_build(
        net_finish(&n, &y, 1), &(struct plan_options){4, 100, false, REPEATS_NONE}, &arena, &set,
        &err);
    ck_assert_int_eq(rc, -ERR_DTYPE);

    const int64_t widths[] = {4096, 4096, 10};
    memset(&err, 0, sizeof err);
    rc = plan_build(
        net_mlp(&arena, 1, widths, 3), &(struct plan_options){8, 100, false, REPEATS_NONE}, &arena,
        &set, &err);
    ck_assert_int_eq(rc, -ERR_DOES_NOT_FIT);
    ck_assert_ptr_nonnull(strstr(err.text, "4096 inner"));
}
END_TEST

static struct value_id net_ints(struct net *n, const int64_t *values, int64_t count) {
    struct shape s = {.rank = 1, .dim = {count}};
    struct value_source source = {.kind = SOURCE_INLINE, .bytes = (const uint8_t *)values};
    return graph_add_initializer(
        n->b, arena_printf(n->arena, "i%u", n->made++), DTYPE_INT64, &s, &source);
}

/* Heads of 72 columns: the product lays them at panels of their own, and no step moves them. */
START_TEST(test_heads) {
    static const int64_t split[4] = {1, 4, 2, 72}, merged[3] = {1, 4, 144};
    static const int64_t swap[4] = {0, 2, 1, 3};
    struct net n = net_new(&arena);
    struct graph_attr perm = {.name = "perm", .kind = ATTR_INTS, .ints = swap, .count = 4};
    struct value_id x = net_input(&n, 4, 144), part[3];
    for (int i = 0; i < 3; i++) {
        part[i] =
            net_node(&n, GRAPH_OP_MatMul, x, net_param(&n, net_shape(144, 144)), NO_VALUE, NULL, 0);
        part[i] =
            net_node(&n, GRAPH_OP_Reshape, part[i], net_ints(&n, split, 4), NO_VALUE, NULL, 0);
        part[i] = net_node(&n, GRAPH_OP_Transpose, part[i], NO_VALUE, NO_VALUE, &perm, 1);
    }
    struct value_id y = net_node(&n, GRAPH_OP_Attention, part[0], part[1], part[2], NULL, 0);
    y = net_node(&n, GRAPH_OP_Transpose, y, NO_VALUE, NO_VALUE, &perm, 1);
    y = net_node(&n, GRAPH_OP_Reshape, y, net_ints(&n, merged, 3), NO_VALUE, NULL, 0);
    y = net_node(&n, GRAPH_OP_MatMul, y, net_param(&n, net_shape(144, 20)), NO_VALUE, NULL, 0);
    struct graph *g = net_finish(&n, &y, 1);
    const struct plan *p = &plan_of(g, 16)->finalists[0];
    ck_assert_uint_eq(p->step_count, 5);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(p->steps[i].kind, PLAN_GEMM);
        ck_assert_uint_eq(p->matrices[p->steps[i].out].unit, 72);
        ck_assert_uint_eq(p->matrices[p->steps[i].out].panels, 10);
    }
    ck_assert_int_eq(p->steps[3].kind, PLAN_ATTENTION);
    ck_assert_uint_eq(p->steps[3].dist->n % 2, 0); /* a part of one head each */
    ck_assert_uint_eq(p->steps[4].groups, 10);
    struct plan_set *set;
    struct err err = {0};
    /* With fewer tiles than heads they take turns. */
    ck_assert_int_eq(
        plan_build(g, &(struct plan_options){1, 100, false, REPEATS_NONE}, &arena, &set, &err), 0);
    const struct plan_dist *d = set->finalists[0].steps[3].dist;
    ck_assert_uint_eq(d->n, 2);
    ck_assert_uint_eq(d->tile[0], 0);
    ck_assert_uint_eq(d->tile[1], 0);
    ck_assert_int_eq(plan_verify(&set->finalists[0], &err), 0);
}
END_TEST

/* Windows and regrouped axes make no step; a known scalar becomes a map; a row keeps its kernel. */
/* Few rows: a residual fused into its product, a normalisation deferred to two products of one
 * operand, which run side by side. */
static struct graph *net_few_rows(void) {
    struct net n = net_new(&arena);
    struct graph_attr axis = {.name = "axis", .kind = ATTR_INT, .i = 1};
    struct graph_attr epsilon = {.name = "epsilon", .kind = ATTR_FLOAT, .f = 1e-5};
    struct graph_attr attrs[] = {axis, epsilon};
    struct value_id x = net_input(&n, 4, 48), out[2];
    struct value_id h =
        net_node(&n, GRAPH_OP_MatMul, x, net_param(&n, net_shape(48, 48)), NO_VALUE, NULL, 0);
    struct value_id y = net_node(&n, GRAPH_OP_Add, h, x, NO_VALUE, NULL, 0);
    y = net_node(
        &n, GRAPH_OP_LayerNormalization, y, net_param(&n, net_shape(1, 48)),
        net_param(&n, net_shape(1, 48)), attrs, 2);
    for (int i = 0; i < 2; i++) {
        out[i] =
            net_node(&n, GRAPH_OP_MatMul, y, net_param(&n, net_shape(48, 40)), NO_VALUE, NULL, 0);
    }
    return net_finish(&n, out, 2);
}

START_TEST(test_few_rows) {
    struct graph *g = net_few_rows();
    const struct plan *p = &plan_of(g, 32)->finalists[0];
    ck_assert_uint_eq(p->step_count, 5);
    const struct plan_step *s = p->steps;
    ck_assert(s[0].form.by_rows && s[0].is_fused && s[0].dist->quads == 1);
    ck_assert_uint_eq(s[1].fused, 1);
    ck_assert_uint_eq(plan_fused_gemm(p, 1), 0);
    ck_assert(s[2].is_deferred && s[2].dist == NULL);
    ck_assert_uint_eq(plan_deferred_norm(p, s[2].out), 2);
    for (int i = 3; i < 5; i++) {
        ck_assert(s[i].form.by_rows);
        ck_assert_uint_eq(s[i].form.lanes, 2);
        ck_assert_uint_eq(s[i].form.first, i == 3 ? 0 : 16);
        ck_assert_uint_eq(plan_gemm_tile(&s[i], 0, 1, 0), s[i].form.first + 1);
    }
    ck_assert_uint_eq(p->estimated_phases, 2);
    for (int fault = 0; fault < 5; fault++) {
        struct plan bad = plan_of(g, 32)->finalists[0];
        struct plan_dist d = *bad.steps[3].dist;
        struct err err = {0};
        switch (fault) {
        case 0: bad.steps[0].is_fused = false; break;
        case 1: bad.steps[1].fused = 0; break;
        case 2: bad.steps[3].k = 2; break;
        case 3: bad.matrices[bad.steps[2].out].dist = bad.steps[0].dist; break;
        default:
            d.quads = 2;
            bad.steps[3].dist = bad.matrices[bad.steps[3].out].dist = &d;
            break;
        }
        ck_assert_int_eq(plan_verify(&bad, &err), -ERR_INTERNAL);
    }
}
END_TEST

START_TEST(test_views) {
    static const int64_t shape[3] = {2, 3, 48}, start[1] = {16}, end[1] = {48}, axis[1] = {1};
    struct net n = net_new(&arena);
    struct value_id x = net_input(&n, 6, 48);
    struct value_id ops[4] = {
        x, net_ints(&n, start, 1), net_ints(&n, end, 1), net_ints(&n, axis, 1)};
    struct value_id window;
    const char *names[1] = {"window"};
    struct err err = {0};
    ck_assert_int_eq(
        graph_add_node(
            n.b, GRAPH_OP_Slice, "slice", ops, 4, NULL, 0, names, 1, "/nodes/0", &window, &err),
        0);
    struct value_id row = net_param(&n, (struct shape){.rank = 1, .dim = {32}});
    struct value_id y = net_node(&n, GRAPH_OP_Mul, window, row, NO_VALUE, NULL, 0);
    struct value_id grouped =
        net_node(&n, GRAPH_OP_Reshape, x, net_ints(&n, shape, 3), NO_VALUE, NULL, 0);
    struct value_id z = net_op(&n, GRAPH_OP_Sqrt, grouped);
    struct value_id outputs[2] = {y, z};
    const struct plan *p = &plan_of(net_finish(&n, outputs, 2), 4)->finalists[0];
    ck_assert_uint_eq(p->step_count, 2);
    ck_assert_int_eq(p->steps[0].kind, PLAN_BINARY_ROW);
    ck_assert_uint_eq(p->steps[0].in_panel[0], 1);
    ck_assert_uint_eq(p->steps[0].panels, 2);
    ck_assert_int_eq(p->steps[1].kind, PLAN_MAP);
    ck_assert_uint_eq(p->steps[0].in[0], p->steps[1].in[0]);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("plan");
    TCase *tc = tcase_create("plan");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, test_fuse_gemm);
    tcase_add_test(tc, test_fuse_add);
    tcase_add_test(tc, test_grids);
    tcase_add_test(tc, test_reduce_shares);
    tcase_add_test(tc, test_verify);
    tcase_add_test(tc, test_refused);
    tcase_add_test(tc, test_heads);
    tcase_add_test(tc, test_few_rows);
    tcase_add_test(tc, test_views);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
