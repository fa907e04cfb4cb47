/* The trial of other placements: a case that it makes shorter, and one that leaves nothing to
 * it. */
#include <check.h>
#include <string.h>

#include "exchange/trial.h"

#define BUFFERS 6
#define CUTS    3 /* moves of a buffer */

static struct arena arena;

static void setup(void) {
    arena_init(&arena, 256u << 20);
}

static void teardown(void) {
    arena_done(&arena);
}

/* Two tiles with three buffers each, all alive in one exchange. Each sends the first two to the
 * other's last two, in three moves: what arrives and what leaves is in the same buffer too. */
static struct tile_graph *crossing(const uint32_t bytes[BUFFERS]) {
    struct tile_graph *tg = ARENA_NEW(&arena, struct tile_graph);
    tg->buffers = ARENA_ARRAY(&arena, struct lower_buffer, BUFFERS);
    tg->moves = ARENA_ARRAY(&arena, struct lower_move, 4 * CUTS);
    tg->dests = ARENA_ARRAY(&arena, struct lower_dest, 4 * CUTS);
    tg->levels = ARENA_NEW(&arena, struct lower_level);
    tg->buffer_count = BUFFERS;
    tg->level_count = 1;
    for (uint32_t i = 0; i < BUFFERS; i++) {
        tg->buffers[i] = (struct lower_buffer){
            .tile = {(uint16_t)(i / 3 * 2)},
            .kind = BUFFER_VALUE,
            .bytes = bytes[i],
            .dies = 2,
            .slots = 1};
    }
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t source = i / 2 + 3 * (i % 2), dest = i / 2 + 1 + 3 * (1 - i % 2);
        uint32_t words = (bytes[source] < bytes[dest] ? bytes[source] : bytes[dest]) / 4;
        for (uint32_t c = 0; c < CUTS; c++) {
            uint32_t first = words * c / CUTS, last = words * (c + 1) / CUTS;
            tg->dests[tg->move_count] = (struct lower_dest){{dest}, 4 * first};
            tg->moves[tg->move_count] = (struct lower_move){
                .source = {source},
                .offset = 4 * first,
                .words = last - first,
                .dest_first = tg->move_count,
                .dest_count = 1};
            tg->move_count++;
        }
    }
    tg->dest_count = tg->move_count;
    *tg->levels = (struct lower_level){.time = 1, .move_count = tg->move_count};
    return tg;
}

static struct exchange_trial
try(const struct tile_graph *tg, struct placement **ret_p, struct exchange_plan **ret_x) {
    struct place_options o = {.data_base = 0x54000, .literal_limit = 0x7C000};
    struct exchange_trial trial;
    struct err err = {0};
    int rc = place_build(tg, &o, &arena, ret_p, &err);
    rc = rc == 0 ? exchange_build(*ret_p, &arena, ret_x, &err) : rc;
    ck_assert_msg(rc == 0, "%s", err.text);
    exchange_try_placement(*ret_p, *ret_x, NULL, &arena, &arena, &trial);
    return trial;
}

START_TEST(a_trial_may_win) {
    static const uint32_t bytes[BUFFERS] = {0x29FC0, 0x30FA0, 0x29FC0, 0x28540, 0xD700, 0x50A80};
    struct placement *p;
    struct exchange_plan *x;
    struct err err = {0};
    struct exchange_trial t = try(crossing(bytes), &p, &x);
    ck_assert_uint_gt(x->horizon_cycles, x->free_cycles);
    ck_assert(t.is_made && t.is_shorter);
    ck_assert_uint_eq(t.placement->options.shift % EXCHANGE_TRIAL_STEP, 0);
    ck_assert_uint_gt(t.placement->options.shift, 0);
    ck_assert_uint_lt(t.placement->score, p->score);
    ck_assert_uint_lt(t.plan->horizon_cycles, x->horizon_cycles);
    int rc = place_verify(t.placement, &err);
    rc = rc == 0 ? exchange_plan_verify(t.plan, &arena, &err) : rc;
    ck_assert_msg(rc == 0, "%s", err.text);
    printf(
        "trial: offset %u, score %llu -> %llu, cycles %llu -> %llu, without addresses %llu\n",
        t.placement->options.shift, (unsigned long long)p->score,
        (unsigned long long)t.placement->score, (unsigned long long)x->horizon_cycles,
        (unsigned long long)t.plan->horizon_cycles, (unsigned long long)x->free_cycles);
}
END_TEST

START_TEST(no_loss_needs_no_trial) {
    static const uint32_t bytes[BUFFERS] = {0x4000, 0x4000, 0x4000, 0x4000, 0x4000, 0x4000};
    struct placement *p;
    struct exchange_plan *x;
    struct tile_graph *tg = crossing(bytes);
    tg->levels->move_count = 2 * CUTS; /* first buffers to second ones: elements of their own */
    struct exchange_trial t = try(tg, &p, &x);
    ck_assert_uint_le(x->horizon_cycles, x->free_cycles);
    ck_assert(!t.is_made);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("trial");
    TCase *t = tcase_create("trial");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_trial_may_win);
    tcase_add_test(t, no_loss_needs_no_trial);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
