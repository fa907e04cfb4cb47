/* Tile graphs of several networks and grids; and that the verifier sees faults. */
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

static struct tile_graph *lower_finalist(const struct graph *g, uint32_t tiles, uint32_t at) {
    struct plan_set *set = NULL;
    struct tile_graph *tg = NULL;
    struct err err = {0};
    ck_assert_int_eq(
        plan_build(g, &(struct plan_options){tiles, 100, false, REPEATS_NONE}, &arena, &set, &err),
        0);
    int rc = lower_build(&set->finalists[at % set->count], &arena, &tg, &err);
    rc = rc == 0 ? lower_verify(tg, &arena, &err) : rc;
    ck_assert_msg(rc == 0, "%s", err.text);
    return tg;
}

START_TEST(test_networks) {
    static const uint32_t tiles[] = {1, 2, 5, 16, 64, 333};
    static const int64_t shapes[][4] = {
        {8, 64, 32, 10}, {1, 17, 5, 3}, {50, 256, 100, 33}, {3, 1000, 33, 1}};
    for (size_t t = 0; t < sizeof tiles / sizeof *tiles; t++) {
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            struct graph *g = net_mlp(&arena, shapes[s][0], &shapes[s][1], 3);
            for (uint32_t f = 0; f < PLAN_MAX_FINALISTS; f++) {
                struct tile_graph *tg = lower_finalist(g, tiles[t], f);
                ck_assert_uint_le(tg->exchange_phases + 1, tg->level_count);
                ck_assert_uint_le(tg->active_count, tiles[t]);
            }
        }
        lower_finalist(net_residual(&arena, 12, 64, 256), tiles[t], 0);
    }
}
END_TEST

/* One tile moves nothing. */
START_TEST(test_one_tile) {
    struct tile_graph *tg = lower_finalist(net_residual(&arena, 5, 40, 70), 1, 0);
    ck_assert_uint_eq(tg->move_count, 0);
    ck_assert_uint_eq(tg->level_count, 1);
}
END_TEST

/* Two products of one input: one exchange serves both, the operand is gathered once. */
START_TEST(test_shared_phase) {
    struct net n = net_new(&arena);
    struct value_id x = net_input(&n, 16, 512);
    struct value_id outputs[2] = {
        net_gemm(&n, x, 512, 512, false, true), net_gemm(&n, x, 512, 512, false, true)};
    struct tile_graph *tg = lower_finalist(net_finish(&n, outputs, 2), 64, 0);
    ck_assert_uint_le(tg->exchange_phases, 2);
}
END_TEST

START_TEST(test_verify) {
    const int64_t widths[] = {256, 192, 64};
    for (int fault = 0; fault < 6; fault++) {
        struct tile_graph *tg = lower_finalist(net_mlp(&arena, 20, widths, 3), 16, 0);
        ck_assert_uint_gt(tg->move_count, 0);
        struct lower_move *m = &tg->moves[0];
        switch (fault) {
        case 0: m->words += 8; break;
        case 1: m->offset += 2; break;
        case 2: m->dest_count = 0; break;
        case 3: tg->dests[m->dest_first].offset += 32; break;
        case 4: tg->buffers[m->source.n].dies = 0; break;
        default: tg->outputs[0].count--; break;
        }
        struct err err = {0};
        ck_assert_int_eq(lower_verify(tg, &arena, &err), -ERR_INTERNAL);
    }
}
END_TEST

/* A product that fits only in chunks: every tile multiplies all its groups once, the first call
 * fills the block and the others add to it, each at a level of its own. */
START_TEST(test_stream) {
    struct net n = net_new(&arena);
    struct value_id x = net_input(&n, 1024, 1024), y = net_gemm(&n, x, 1024, 1024, false, false);
    struct graph *g = net_finish(&n, &y, 1);
    struct plan_set *set;
    struct err err = {0};
    struct plan_options options = {.tiles = 24, .fill_percent = 100, .accumulate_f16 = true};
    ck_assert_int_eq(plan_build(g, &options, &arena, &set, &err), 0);
    bool has_streamed_weights = false;
    for (uint32_t f = 0; f < set->count; f++) {
        const struct plan_step *s = &set->finalists[f].steps[0];
        struct tile_graph *tg;
        ck_assert_int_eq(lower_build(&set->finalists[f], &arena, &tg, &err), 0);
        ck_assert_msg(lower_verify(tg, &arena, &err) == 0, "%s", err.text);
        ck_assert_uint_gt(s->form.chunks, 1);
        has_streamed_weights = has_streamed_weights || s->form.streams_w;
        uint32_t groups[24] = {0}, level[24] = {0};
        for (uint32_t i = 0; i < tg->vertex_count; i++) {
            const struct lower_vertex *v = &tg->vertices[i];
            if (v->variant.id == KERNEL_GEMM_F16) {
                ck_assert_int_eq(v->variant.accumulates, groups[v->tile.n] > 0);
                ck_assert_uint_gt(v->level, level[v->tile.n]);
                groups[v->tile.n] += v->words[GEMM_GROUPS].value;
                level[v->tile.n] = v->level;
            }
        }
        for (uint32_t t = 0; t < s->m * s->n * s->k; t++) {
            ck_assert_uint_eq(groups[t], s->group_bound[t % s->k + 1] - s->group_bound[t % s->k]);
        }
        /* Adding to what nobody has filled is a fault. */
        for (uint32_t i = 0; i < tg->vertex_count; i++) {
            tg->vertices[i].variant.accumulates |= tg->vertices[i].variant.id == KERNEL_GEMM_F16;
        }
        ck_assert_int_eq(lower_verify(tg, &arena, &err), -ERR_INTERNAL);
    }
    ck_assert(has_streamed_weights);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("lower");
    TCase *tc = tcase_create("lower");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, test_networks);
    tcase_add_test(tc, test_one_tile);
    tcase_add_test(tc, test_shared_phase);
    tcase_add_test(tc, test_verify);
    tcase_add_test(tc, test_stream);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
