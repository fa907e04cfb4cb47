/* Programs, tables, host plan and images: verified, barrier by barrier and element by element; and
 * that the verifier sees faults. */
#include <check.h>

#include "dense_net.h"
#include "emit/emit.h"
#include "runtime/runtime.h"

static struct arena arena;

static void setup(void) {
    arena_init(&arena, 256u << 20);
}

static void teardown(void) {
    arena_done(&arena);
}

struct built {
    struct emit_context c;
    struct emit_index index;
    struct emit_layout *layout;
    struct emit_code *code;
    struct tile_graph *tg;
    struct placement *placement;
    struct exchange_plan *exchange;
    struct emit_kernels kernels;
    struct emit_text *text;
    struct emit_host *host;
    struct emit_samples *samples;
};

/* most_words: of marks on a tile. */
static void build_sampled(
    struct built *b, const struct graph *g, uint32_t tiles, enum emit_profile profile,
    uint32_t most_words) {
    struct plan_set *set = NULL;
    struct asm_object *runtime = NULL;
    struct place_options o = {.data_base = RT_DATA0, .literal_limit = RT_LOADER_IMAGE_END};
    struct err err = {0};
    memset(b, 0, sizeof *b);
    int rc =
        plan_build(g, &(struct plan_options){tiles, 100, false, REPEATS_NONE}, &arena, &set, &err);
    rc = rc == 0 ? lower_build(&set->finalists[0], &arena, &b->tg, &err) : rc;
    rc = rc == 0 ? place_build(b->tg, &o, &arena, &b->placement, &err) : rc;
    rc = rc == 0 ? exchange_build(b->placement, &arena, &b->exchange, &err) : rc;
    rc = rc == 0 ? runtime_assemble(&arena, &runtime, &err) : rc;
    ck_assert_msg(rc == 0, "%s", err.text);
    emit_plan_kernels(b->tg, &arena, &b->kernels);
    rc = emit_compile_kernels(&b->kernels, &arena, &err);
    rc = rc == 0 ? emit_link(runtime, &b->kernels, &arena, &b->text, &err) : rc;
    emit_index_build(b->tg, &arena, &b->index);
    emit_samples_build(b->tg, &b->index, profile, &arena, &b->samples);
    for (uint32_t t = 0; t < TARGET_TILES; t++) {
        uint32_t words = b->samples->words[t];
        b->samples->words[t] = words < most_words ? words : most_words;
    }
    rc = rc == 0 ? emit_host_build(b->tg, b->samples, &arena, &b->host, &err) : rc;
    b->c = (struct emit_context){&b->index, b->tg,   b->placement, b->exchange,
                                 b->text,   b->host, b->samples};
    rc = rc == 0 ? emit_layout_build(&b->c, &arena, &b->layout, &err) : rc;
    rc = rc == 0 ? emit_code_build(&b->c, b->layout, &arena, &b->code, &err) : rc;
    rc = rc == 0 ? emit_verify(&b->c, b->layout, b->code, &err) : rc;
    ck_assert_msg(rc == 0, "%s", err.text);
}

static void build(struct built *b, const struct graph *g, uint32_t tiles) {
    build_sampled(b, g, tiles, EMIT_PROFILE_PHASE, UINT32_MAX);
}

START_TEST(test_images) {
    static const uint32_t tiles[] = {1, 3, 64};
    const int64_t widths[] = {100, 70, 9};
    for (size_t t = 0; t < sizeof tiles / sizeof *tiles; t++) {
        struct built b;
        build(&b, net_mlp(&arena, 9, widths, 3), tiles[t]);
        char zero[65];
        memset(zero, '0', 64);
        zero[64] = '\0';
        struct emit_names names = {zero, zero, "{}", "{}"};
        struct package *p = NULL;
        struct err err = {0};
        int rc = emit_images(&b.c, b.layout, b.code, &names, &arena, &p, &err);
        rc = rc == 0 ? package_verify(p, &err) : rc;
        ck_assert_msg(rc == 0, "%s %s", err.where, err.text);
        /* Idle tiles share every content: far fewer contents than tiles. */
        ck_assert_uint_lt(p->content_count, 8 * (b.tg->active_count + 33));
        /* Parameters, input, output, profile words and marks. */
        ck_assert_uint_eq(p->binding_count, 4 + 4);
    }
}
END_TEST

/* Tables name the buffers of the calls, phases hold whole pages. */
START_TEST(test_tables) {
    struct built b;
    const int64_t widths[] = {64, 32, 10};
    build(&b, net_mlp(&arena, 8, widths, 3), 1);
    const uint32_t *table = b.code->tables[0];
    uint32_t words = b.layout->tiles[0].table_words;
    ck_assert_uint_eq(table[0], b.layout->tiles[0].program);
    const struct lower_vertex *last = &b.tg->vertices[b.tg->vertex_count - 1];
    ck_assert_int_eq(last->variant.id, KERNEL_SOFTMAX);
    ck_assert_uint_eq(table[words - SOFTMAX_WORDS + SOFTMAX_ROWS], 8);
    ck_assert_uint_eq(table[words - SOFTMAX_WORDS + SOFTMAX_COLUMNS], 10);
    ck_assert_uint_eq(
        table[words - SOFTMAX_WORDS + SOFTMAX_X],
        b.placement->addr[last->words[SOFTMAX_X].buffer.n]);
    /* 64x32 and 32x16 weights, two bias rows: 5 KiB and a bit, two pages. */
    ck_assert_uint_eq(b.host->stream_phases[STREAM_INITIALIZE], 2);
    ck_assert_uint_eq(b.host->stream_phases[STREAM_INPUT], 1);
    ck_assert_uint_eq(b.host->stream_phases[STREAM_OUTPUT], 1);
}
END_TEST

/* Tiles that only lend their bus have rows, and no other tile has theirs. */
START_TEST(test_lender) {
    struct net n = net_new(&arena);
    struct value_id x = net_gemm(&n, net_input(&n, 28, 84), 84, 204, false, false);
    x = net_gemm(&n, net_op(&n, GRAPH_OP_Tanh, x), 204, 96, true, true);
    x = net_gemm(&n, net_op(&n, GRAPH_OP_Relu, x), 96, 33, false, true);
    struct built b;
    build(&b, net_finish(&n, &x, 1), 8);
    uint32_t lenders = 0;
    for (uint32_t t = 0; t < TARGET_TILES; t++) {
        for (uint32_t level = 0; level < b.exchange->level_count; level++) {
            const struct exchange_row *row =
                exchange_plan_row(b.exchange, level, (struct logical_tile){(uint16_t)t});
            ck_assert_uint_eq(b.layout->tiles[t].row[level] != 0, row != NULL);
            lenders += row != NULL && !b.tg->is_active[t];
        }
    }
    ck_assert_uint_ge(lenders, 1);
    struct err err = {0};
    b.layout->tiles[TARGET_TILES - 1].row = b.layout->tiles[0].row;
    ck_assert_int_eq(emit_verify(&b.c, b.layout, b.code, &err), -ERR_INTERNAL);
}
END_TEST

START_TEST(test_verify) {
    const int64_t widths[] = {256, 192, 64};
    for (int fault = 0; fault < 4; fault++) {
        struct built b;
        build(&b, net_mlp(&arena, 20, widths, 3), 16);
        uint32_t *program = b.code->programs[0];
        uint32_t count = b.layout->tiles[0].program_words;
        switch (fault) {
        case 0:
            program[0] = 0x43ff0000;
            ck_assert(!isa_decode(program[0], ISA_SUPERVISOR, &(struct insn){0}));
            break;
        case 1:
            program[count - 1] = ISA_NOP_WORD; /* no loop: all barriers count once */
            break;
        case 2:
            program[1] += 0x8000; /* the call leaves the code */
            break;
        default: b.layout->tiles[3].main_bytes += 0x4000; break;
        }
        struct err err = {0};
        ck_assert_int_eq(emit_verify(&b.c, b.layout, b.code, &err), -ERR_INTERNAL);
    }
}
END_TEST

/* Marks that a program stores: st32 through $m11, which no kernel and no routine of ours uses. */
static uint32_t count_marks(const struct built *b, uint32_t t) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < b->layout->tiles[t].program_words; i++) {
        struct insn insn;
        ck_assert(isa_decode(b->code->programs[t][i], ISA_SUPERVISOR, &insn));
        if (insn.op == ISA_OP_st32_mmmn_zi && insn.v[0] == 11) {
            ck_assert_int_eq(insn.v[2], (int32_t)count); /* in order, each its own word */
            count++;
        }
    }
    return count;
}

/* Intervals of a trace name each exchange row and each call of the tile once, in order. */
static void check_trace(const struct built *b, uint32_t t, enum emit_profile profile) {
    const struct emit_trace *trace = &b->code->traces[t];
    uint32_t vertex = b->index.tile_first[t], level = 0;
    ck_assert_uint_ge(trace->count, 1);
    ck_assert_uint_le(trace->count - 1, b->samples->words[t]);
    ck_assert_uint_eq(count_marks(b, t), trace->count - 1);
    for (uint32_t i = 0; i < trace->count; i++) {
        const struct emit_interval *x = &trace->intervals[i];
        ck_assert_uint_ge(x->level, level);
        level = x->level;
        if (x->kind == STEP_EXCHANGE) {
            ck_assert_ptr_nonnull(
                exchange_plan_row(b->exchange, x->level, (struct logical_tile){(uint16_t)t}));
        }
        ck_assert(x->kind != STEP_COMPUTE || x->vertex_first == vertex);
        ck_assert(x->kind != STEP_COMPUTE || profile == EMIT_PROFILE_PHASE || x->vertex_count == 1);
        vertex += x->vertex_count;
    }
    ck_assert_uint_eq(vertex, b->index.tile_first[t + 1]);
}

START_TEST(test_samples) {
    const int64_t widths[] = {256, 192, 64, 10};
    const struct graph *g = net_mlp(&arena, 20, widths, 4);
    for (int profile = EMIT_PROFILE_OFF; profile <= EMIT_PROFILE_KERNEL; profile++) {
        struct built b;
        build_sampled(&b, g, 16, (enum emit_profile)profile, UINT32_MAX);
        for (uint32_t t = 0; t < TARGET_TILES; t++) {
            if (profile == EMIT_PROFILE_OFF || !b.tg->is_active[t]) {
                ck_assert_uint_eq(b.samples->words[t], 0);
                ck_assert_uint_eq(b.code->traces[t].count, 0);
                ck_assert_uint_eq(count_marks(&b, t), 0);
            } else {
                check_trace(&b, t, (enum emit_profile)profile);
            }
        }
    }
    /* Few words: the last interval stands for all that follows. */
    for (uint32_t words = 0; words < 4; words++) {
        struct built b;
        build_sampled(&b, g, 16, EMIT_PROFILE_KERNEL, words);
        for (uint32_t t = 0; t < TARGET_TILES; t++) {
            const struct emit_trace *trace = &b.code->traces[t];
            if (b.tg->is_active[t]) {
                ck_assert_uint_eq(trace->count, words + 1);
                ck_assert_int_eq(trace->intervals[words].kind, STEP_REST);
                check_trace(&b, t, EMIT_PROFILE_KERNEL);
            }
        }
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("emit");
    TCase *tc = tcase_create("emit");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, test_images);
    tcase_add_test(tc, test_tables);
    tcase_add_test(tc, test_samples);
    tcase_add_test(tc, test_lender);
    tcase_add_test(tc, test_verify);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
