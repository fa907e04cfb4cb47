/* Equal consecutive blocks: found, planned once, lowered to a loop; and that verifiers see what a
 * loop may not do. That loops compute what they should is for tests/diff (--repeated). */
#include <check.h>
#include <string.h>

#include "dense_net.h"
#include "lower/lower.h"
#include "plan/plan.h"

static struct arena arena;

static void setup(void) {
    arena_init(&arena, 128u << 20);
}

static void teardown(void) {
    arena_done(&arena);
}

static struct plan *plan_of(const struct graph *g, enum plan_repeats repeats) {
    struct plan_set *set = NULL;
    struct err err = {0};
    struct plan_options options = {.tiles = 8, .fill_percent = 100, .repeats = repeats};
    int rc = plan_build(g, &options, &arena, &set, &err);
    ck_assert_msg(rc == 0, "%s %s", err.where, err.text);
    rc = plan_verify(&set->finalists[0], &err);
    ck_assert_msg(rc == 0, "%s", err.text);
    return &set->finalists[0];
}

static struct tile_graph *lower(const struct plan *p) {
    struct tile_graph *tg = NULL;
    struct err err = {0};
    int rc = lower_build(p, &arena, &tg, &err);
    rc = rc == 0 ? lower_verify(tg, &arena, &err) : rc;
    ck_assert_msg(rc == 0, "%s", err.text);
    return tg;
}

/* x + Gemm(Relu(Gemm(x))), `inner` columns inside. */
static struct value_id
block(struct net *n, struct value_id x, int64_t columns, int64_t inner, bool has_bias) {
    struct value_id h = net_op(n, GRAPH_OP_Relu, net_gemm(n, x, columns, inner, false, has_bias));
    struct value_id y = net_gemm(n, h, inner, columns, false, has_bias);
    return net_node(n, GRAPH_OP_Add, x, y, NO_VALUE, NULL, 0);
}

/* A product, `count` blocks, a Softmax. inner: of each block. shown: a block whose result is an
 * output, too, -1 for none. */
static const struct graph *blocks(int count, const int64_t *inner, int shown) {
    struct net n = net_new(&arena);
    struct value_id x = net_gemm(&n, net_input(&n, 4, 48), 48, 32, false, true);
    struct value_id outputs[2] = {NO_VALUE, NO_VALUE};
    for (int i = 0; i < count; i++) {
        x = block(&n, x, 32, inner[i], true);
        outputs[1] = i == shown ? x : outputs[1];
    }
    outputs[0] = net_op(&n, GRAPH_OP_Softmax, x);
    return net_finish(&n, outputs, shown >= 0 ? 2 : 1);
}

START_TEST(test_found) {
    const int64_t inner[] = {64, 64, 64, 64, 64};
    const struct plan *p = plan_of(blocks(5, inner, -1), REPEATS_LOOP);
    ck_assert_uint_eq(p->repeat.turns, 5);
    ck_assert_uint_eq(p->repeat.first, 1);
    ck_assert_uint_eq(p->repeat.count, 4); /* two products, the sum, the carry */
    ck_assert_uint_eq(p->step_count, 6);
    for (uint32_t turn = 1; turn < 5; turn++) {
        ck_assert_uint_ne(
            plan_param_value(p, 1, PARAM_WEIGHTS, turn).n,
            plan_param_value(p, 1, PARAM_WEIGHTS, turn - 1).n);
        ck_assert_uint_gt(
            p->repeat.nodes[turn * p->repeat.count].n,
            p->repeat.nodes[(turn - 1) * p->repeat.count].n);
    }
    ck_assert_uint_eq(plan_step_turns(p, 0), 1);
    ck_assert_uint_eq(plan_step_turns(p, 4), 5);
    ck_assert_uint_eq(plan_step_turns(p, 5), 1);
    p = plan_of(blocks(5, inner, -1), REPEATS_NONE);
    ck_assert_uint_eq(p->repeat.turns, 0);
    ck_assert_uint_eq(p->step_count, 17);
}
END_TEST

/* A block of another shape, or whose result is seen outside, parts a run. */
START_TEST(test_parted) {
    const int64_t other[] = {64, 64, 64, 48, 64};
    const struct plan *p = plan_of(blocks(5, other, -1), REPEATS_LOOP);
    ck_assert_uint_eq(p->repeat.turns, 3);
    const int64_t equal[] = {64, 64, 64, 64, 64, 64};
    /* What is handed on is overwritten: the result shown may end a run, not start one. */
    p = plan_of(blocks(6, equal, 2), REPEATS_LOOP);
    ck_assert_uint_eq(p->repeat.turns, 3);
    ck_assert_uint_eq(p->repeat.first, 1);
    p = plan_of(blocks(1, equal, -1), REPEATS_LOOP);
    ck_assert_uint_eq(p->repeat.turns, 0);
}
END_TEST

/* Blocks that would fit best with their weights on the chip once, multicast when they are needed:
 * in a loop each turn's weights must lie where they are read. */
START_TEST(test_not_streamed) {
    struct net n = net_new(&arena);
    struct value_id x = net_input(&n, 256, 192);
    for (int i = 0; i < 6; i++) {
        x = block(&n, x, 192, 384, false);
    }
    const struct plan *p = plan_of(net_finish(&n, &x, 1), REPEATS_LOOP);
    ck_assert_uint_eq(p->repeat.turns, 6);
    lower(p);
}
END_TEST

/* Constants whose value the compiler knows must have the same one in all turns. */
START_TEST(test_known_constants) {
    static const uint8_t bytes[2][2] = {{0, 0x38}, {0, 0x3a}};
    for (int differ = 0; differ < 2; differ++) {
        struct net n = net_new(&arena);
        struct value_id x = net_input(&n, 4, 32);
        for (int i = 0; i < 3; i++) {
            struct shape scalar = {0};
            struct value_source source = {
                .kind = SOURCE_INLINE, .bytes = bytes[differ != 0 && i == 2]};
            struct value_id c = graph_add_initializer(
                n.b, arena_printf(&arena, "c%d", i), DTYPE_FLOAT16, &scalar, &source);
            x = net_node(&n, GRAPH_OP_Mul, block(&n, x, 32, 64, true), c, NO_VALUE, NULL, 0);
        }
        const struct plan *p = plan_of(net_finish(&n, &x, 1), REPEATS_LOOP);
        ck_assert_uint_eq(p->repeat.turns, differ != 0 ? 2 : 3);
    }
}
END_TEST

/* Unrolled, each turn has its steps, with the choices of the one that was planned. */
START_TEST(test_unroll) {
    const int64_t inner[] = {64, 64, 64};
    struct plan *p = plan_of(blocks(3, inner, -1), REPEATS_LOOP);
    struct plan loop = *p;
    struct err err = {0};
    plan_repeat_unroll(p, &arena);
    ck_assert_uint_eq(p->repeat.turns, 0);
    ck_assert_uint_eq(p->step_count, loop.step_count - 1 + 2 * (loop.repeat.count - 1));
    int rc = plan_verify(p, &err);
    ck_assert_msg(rc == 0, "%s", err.text);
    for (uint32_t turn = 0; turn < 3; turn++) {
        for (uint32_t k = 0; k + 1 < loop.repeat.count; k++) {
            uint32_t at = loop.repeat.first + turn * (loop.repeat.count - 1) + k;
            const struct plan_step *a = &p->steps[at], *b = &loop.steps[loop.repeat.first + k];
            ck_assert(a->m == b->m && a->n == b->n && a->k == b->k && a->dist == b->dist);
            ck_assert_uint_eq(
                a->weights.n,
                plan_param_value(&loop, loop.repeat.first + k, PARAM_WEIGHTS, turn).n);
        }
    }
    lower(p);
}
END_TEST

static void expect_fault(const struct plan *p, const char *text) {
    struct err err = {0};
    ck_assert_int_eq(plan_verify(p, &err), -ERR_INTERNAL);
    ck_assert_msg(strstr(err.text, text) != NULL, "%s", err.text);
}

START_TEST(test_verify_plan) {
    const int64_t inner[] = {64, 64, 64};
    const struct plan *good = plan_of(blocks(3, inner, -1), REPEATS_LOOP);
    struct plan p = *good;
    p.repeat.turns = 1;
    expect_fault(&p, "carry");
    p = *good;
    p.repeat.count--;
    expect_fault(&p, "carry");
    p = *good;
    p.steps = arena_memdup(&arena, good->steps, sizeof *p.steps * p.step_count);
    p.steps[p.step_count - 1].in[0] = p.repeat.carried;
    expect_fault(&p, "only lives in a turn");
    p = *good;
    size_t values = (size_t)p.repeat.turns * p.repeat.count * PLAN_PARAMS;
    p.repeat.values = arena_memdup(&arena, p.repeat.values, sizeof *p.repeat.values * values);
    p.repeat.values[p.repeat.count * PLAN_PARAMS + PARAM_WEIGHTS] = NO_VALUE;
    expect_fault(&p, "missing in a turn");
}
END_TEST

START_TEST(test_lower_loop) {
    const int64_t inner[] = {64, 64, 64, 64};
    const struct plan *p = plan_of(blocks(4, inner, -1), REPEATS_LOOP);
    const struct tile_graph *tg = lower(p);
    ck_assert_uint_eq(tg->loop.turns, 4);
    uint32_t sequences = 0;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < tg->buffer_count; i++) {
        const struct lower_buffer *b = &tg->buffers[i];
        ck_assert(b->slots <= 1 || b->slots == 4);
        sequences += b->slots > 1;
        bytes += b->slots > 1 ? lower_slot_bytes(b) : 0;
    }
    ck_assert_uint_ge(sequences, 4); /* weights and biases of two products */
    ck_assert_uint_eq(bytes, lower_slot_total(tg));
    ck_assert_uint_ge(bytes, 2 * (32 * 64 + 64 * 32));
    for (uint32_t i = 0; i < tg->vertex_count; i++) {
        const struct lower_vertex *v = &tg->vertices[i];
        bool is_inside = v->step >= p->repeat.first && v->step < p->repeat.first + p->repeat.count;
        ck_assert_uint_eq(lower_level_turns(tg, v->level), is_inside ? 4 : 1);
    }
    for (uint32_t i = 0; i < tg->shard_count; i++) {
        const struct lower_shard *s = &tg->shards[i];
        uint32_t slots = lower_buffer(tg, s->buffer)->slots;
        ck_assert(s->slot < slots || (s->slot == 0 && slots == 0));
    }
}
END_TEST

static void expect_lower_fault(const struct tile_graph *tg, const char *text) {
    struct err err = {0};
    ck_assert_int_eq(lower_verify(tg, &arena, &err), -ERR_INTERNAL);
    ck_assert_msg(strstr(err.text, text) != NULL, "%s", err.text);
}

START_TEST(test_verify_lower) {
    const int64_t inner[] = {64, 64, 64, 64};
    const struct tile_graph *good = lower(plan_of(blocks(4, inner, -1), REPEATS_LOOP));
    uint32_t sequence = 0, carried = 0;
    for (uint32_t i = 0; i < good->buffer_count; i++) {
        const struct lower_buffer *b = &good->buffers[i];
        sequence = b->slots > 1 ? i : sequence;
        bool lives = b->kind == BUFFER_VALUE && b->born < good->loop.time_first &&
                     b->dies > good->loop.time_last;
        carried = lives ? i : carried;
    }
    struct tile_graph tg = *good;
    tg.buffers = arena_memdup(&arena, good->buffers, sizeof *tg.buffers * tg.buffer_count);
    tg.buffers[sequence].slots = 3;
    expect_lower_fault(&tg, "sequence");
    tg.buffers[sequence] = good->buffers[sequence];
    ck_assert_uint_gt(carried, 0);
    tg.buffers[carried].dies = good->loop.time_last - 1;
    expect_lower_fault(&tg, "");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("repeat");
    TCase *tc = tcase_create("repeat");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, test_found);
    tcase_add_test(tc, test_parted);
    tcase_add_test(tc, test_not_streamed);
    tcase_add_test(tc, test_known_constants);
    tcase_add_test(tc, test_unroll);
    tcase_add_test(tc, test_verify_plan);
    tcase_add_test(tc, test_lower_loop);
    tcase_add_test(tc, test_verify_lower);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
