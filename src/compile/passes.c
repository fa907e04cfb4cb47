/* The pass table, in the order and with the names of design.md section 3, and the adapters that
 * unpack the job for the modules. A pass has no other way to run than compile_run()'s loop. */
#include "compile/compile_internal.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/runtime.h"

static uint64_t program_cycles(const struct tile_graph *tg, const struct exchange_plan *x) {
    return tg->compute_cycles + x->horizon_cycles + (uint64_t)PLAN_SYNC_CYCLES * x->phase_runs;
}

struct place_options compile_place_options(const uint8_t *overflow, uint32_t shift) {
    return (struct place_options){
        .data_base = RT_DATA0,
        .overflow_elements = overflow,
        .shift = shift,
        .literal_limit = RT_LOADER_IMAGE_END};
}

/* ---- Planning ------------------------------------------------------------------------------ */

static int make_finalists(struct compile_state *s, uint32_t fill_percent, struct err *err) {
    struct plan_options options = {
        .tiles = s->job->options.tiles,
        .fill_percent = fill_percent,
        .accumulate_f16 = s->job->options.accumulate == ACCUMULATE_F16,
        .repeats = s->repeats};
    int rc = plan_build(s->job->graph, &options, &s->arena, &s->finalists, err);
    if (rc != 0) {
        return rc;
    }
    for (uint32_t i = 0; i < s->finalists->count; i++) {
        const struct plan *p = &s->finalists->finalists[i];
        compile_event(
            s, "plan.finalist", "retained operator-plan finalist",
            "\"finalist\":%u,\"values\":%u,\"operations\":%u,\"estimated_cycles\":%llu,"
            "\"estimated_exchange_cycles\":%llu,\"peak_total_bytes\":%u,\"active_tiles\":%u",
            i, p->matrix_count, p->step_count, (unsigned long long)p->estimated_cycles,
            (unsigned long long)p->estimated_exchange_cycles, p->peak_bytes, p->active_tiles);
    }
    return 0;
}

/* Where one choice for all of several equal blocks does not fit, each gets one of its own. */
static int run_lower_mid(struct compile_state *s, struct err *err) {
    s->repeats = REPEATS_LOOP;
    int rc = make_finalists(s, 100, err);
    if (rc == -ERR_DOES_NOT_FIT) {
        s->repeats = REPEATS_NONE;
        rc = make_finalists(s, 100, err);
    }
    return rc;
}

static int verify_lower_mid(struct compile_state *s, struct err *err) {
    for (uint32_t i = 0; i < s->finalists->count; i++) {
        if (plan_verify(&s->finalists->finalists[i], err) != 0) {
            return err_wrap(err, "finalist %u", i);
        }
    }
    return 0;
}

static void print_lower_mid(struct compile_state *s, FILE *out) {
    for (uint32_t i = 0; i < s->finalists->count; i++) {
        fprintf(out, "finalist %u\n", i);
        plan_print(&s->finalists->finalists[i], out);
    }
}

int compile_build_exchange(
    struct compile_state *s, const struct placement *p, struct exchange_plan **ret,
    struct err *err) {
    return exchange_build_known(
        p, schedules_orders(s->schedules), &s->exchanges, &s->scratch, ret, err);
}

/* Lowers, places and schedules one finalist. */
static int schedule_finalist(
    struct compile_state *s, const struct plan *p, struct tile_graph **ret_tg,
    struct placement **ret_place, struct exchange_plan **ret_exchange, struct err *err) {
    struct place_options options = compile_place_options(NULL, 0);
    int rc = lower_build(p, &s->arena, ret_tg, err);
    if (rc == 0) {
        rc = place_build(*ret_tg, &options, &s->arena, ret_place, err);
    }
    if (rc == 0) {
        rc = compile_build_exchange(s, *ret_place, ret_exchange, err);
    }
    return rc;
}

#define TRIAL_MOVES 100000u /* that are scheduled to compare finalists, beyond the first one's */

/* Takes the finalist with the fewest scheduled cycles; the first failure when all fail. Finalists
 * that would need too much scheduling stand behind the first, whose estimate is the best. */
static int choose_finalist(struct compile_state *s, struct err *err) {
    struct err first = {0};
    uint64_t best = UINT64_MAX, moves = 0;
    for (uint32_t i = 0; i < s->finalists->count; i++) {
        if (best != UINT64_MAX && moves + s->tg->move_count > TRIAL_MOVES) {
            break;
        }
        moves += best != UINT64_MAX ? s->tg->move_count : 0;
        const struct plan *p = &s->finalists->finalists[i];
        struct tile_graph *tg;
        struct placement *place;
        struct exchange_plan *exchange;
        struct err own = {0};
        struct arena_mark mark = arena_mark(&s->arena);
        struct arena_mark exchanges = arena_mark(&s->exchanges);
        if (schedule_finalist(s, p, &tg, &place, &exchange, &own) != 0) {
            first = first.code == 0 ? own : first;
            arena_rewind(&s->arena, mark);
            arena_rewind(&s->exchanges, exchanges);
            compile_event(
                s, "plan.refused", "refused operator-plan finalist",
                "\"finalist\":%u,\"code\":\"%s\"", i, err_name(own.code));
            continue;
        }
        uint64_t cycles = program_cycles(tg, exchange);
        compile_event(
            s, "plan.scheduled", "scheduled operator-plan finalist",
            "\"finalist\":%u,\"analytical_cycles\":%llu,\"analytical_exchange_cycles\":%llu,"
            "\"scheduled_exchange_cycles\":%llu,\"refined_cycles\":%llu",
            i, (unsigned long long)p->estimated_cycles,
            (unsigned long long)p->estimated_exchange_cycles,
            (unsigned long long)(cycles - tg->compute_cycles), (unsigned long long)cycles);
        if (cycles < best) {
            best = cycles;
            s->tg = tg;
            s->placement = place;
            s->exchange = exchange;
            s->result->selected = i;
        } else {
            arena_rewind(&s->arena, mark);
            arena_rewind(&s->exchanges, exchanges);
        }
    }
    if (best == UINT64_MAX) {
        *err = first;
        return -first.code;
    }
    return 0;
}

/* Plans whose estimate fits may still fail to be placed: elements are coarse. Then plans that fill
 * less are made, from `fill` percent on. */
static int choose_smaller(struct compile_state *s, uint32_t fill) {
    int rc = -ERR_DOES_NOT_FIT;
    struct err ignored;
    for (; rc == -ERR_DOES_NOT_FIT && fill >= 40; fill -= 15) {
        if (make_finalists(s, fill, &ignored) != 0) {
            break;
        }
        rc = choose_finalist(s, &ignored);
    }
    return rc;
}

/* The finalist taken as a loop, without it: choices and so results stay. */
static int unroll(struct compile_state *s, struct err *err) {
    struct plan *p = ARENA_NEW(&s->arena, struct plan);
    *p = *s->tg->plan;
    plan_repeat_unroll(p, &s->arena);
    arena_clear(&s->exchanges);
    int rc = plan_verify(p, err);
    return rc == 0 ? schedule_finalist(s, p, &s->tg, &s->placement, &s->exchange, err) : rc;
}

static int choose(struct compile_state *s, struct err *err) {
    int rc = choose_finalist(s, err);
    rc = rc == -ERR_DOES_NOT_FIT && choose_smaller(s, 85) == 0 ? 0 : rc;
    bool is_loop = rc == 0 && s->tg->plan->repeat.turns > 0;
    return is_loop && s->job->options.repeat == REPEAT_OFF ? unroll(s, err) : rc;
}

static void report_repeat(struct compile_state *s) {
    const struct plan_repeat *r = &s->tg->plan->repeat;
    if (r->turns == 0) {
        return;
    }
    compile_event(
        s, "plan.repeat", "compiled equal consecutive blocks as a loop",
        "\"first_node\":%u,\"operations\":%u,\"iterations\":%u,"
        "\"parameter_bytes_per_iteration\":%llu",
        r->nodes[0].n, r->count - 1, r->turns, (unsigned long long)lower_slot_total(s->tg));
}

/* The message is that of the first try. */
static int run_select_finalist(struct compile_state *s, struct err *err) {
    int rc = choose(s, err);
    if (rc == -ERR_DOES_NOT_FIT && s->finalists->repeats) {
        s->repeats = REPEATS_NONE;
        rc = choose_smaller(s, 100) == 0 ? 0 : rc;
    }
    if (rc != 0) {
        return rc;
    }
    report_repeat(s);
    s->result->finalists = s->finalists->count;
    compile_event(
        s, "plan.selected", "selected physically scheduled operator-plan finalist",
        "\"selected\":%u", s->result->selected);
    compile_event(
        s, "package.lowered", "lowered graph for package construction",
        "\"logical_shards\":%u,\"exchange_phases\":%u,\"kernel_calls\":%u", s->tg->buffer_count,
        s->tg->exchange_phases, s->tg->vertex_count);
    return 0;
}

static int verify_tile_graph(struct compile_state *s, struct err *err) {
    return lower_verify(s->tg, &s->scratch, err);
}

static void print_tile_graph(struct compile_state *s, FILE *out) {
    lower_print(s->tg, out);
}

/* ---- Tile code common to all tiles ---------------------------------------------------------- */

static int run_compile_runtime(struct compile_state *s, struct err *err) {
    return runtime_assemble(&s->arena, &s->runtime, err);
}

static int run_plan_kernels(struct compile_state *s, struct err *err) {
    (void)err;
    emit_plan_kernels(s->tg, &s->arena, &s->kernels);
    return 0;
}

static int run_compile_kernels(struct compile_state *s, struct err *err) {
    return emit_compile_kernels(&s->kernels, &s->arena, err);
}

static int run_link_runtime(struct compile_state *s, struct err *err) {
    return emit_link(s->runtime, &s->kernels, &s->arena, &s->text, err);
}

/* ---- Sizes, placement, exchange -------------------------------------------------------------- */

struct emit_context compile_context(const struct compile_state *s) {
    return (struct emit_context){
        .index = &s->index,
        .tg = s->tg,
        .placement = s->placement,
        .exchange = s->exchange,
        .text = s->text,
        .host = s->host,
        .samples = s->samples};
}

/* True when some tile's code needs more elements than are reserved; reserves them. */
static bool reserve_more(struct compile_state *s, const struct emit_layout *l) {
    bool grew = false;
    for (uint32_t t = 0; t < TARGET_TILES; t++) {
        if (l->overflow_elements[t] > s->overflow_elements[t]) {
            s->overflow_elements[t] = l->overflow_elements[t];
            grew = true;
        }
    }
    return grew;
}

static uint32_t profile_bytes(const struct compile_state *s) {
    uint32_t most = 0;
    for (uint32_t t = 0; t < TARGET_TILES; t++) {
        most = s->samples->words[t] > most ? s->samples->words[t] : most;
    }
    return 4 * (most + PACKAGE_PROFILE_WORDS);
}

static int run_size_tile_code(struct compile_state *s, struct err *err) {
    emit_index_build(s->tg, &s->arena, &s->index);
    emit_samples_build(s->tg, &s->index, s->job->options.profile, &s->arena, &s->samples);
    int rc = emit_host_build(s->tg, s->samples, &s->arena, &s->host, err);
    if (rc != 0) {
        return rc;
    }
    struct emit_context c = compile_context(s);
    rc = emit_layout_build(&c, &s->arena, &s->layout, err);
    if (rc != 0) {
        return rc;
    }
    s->overflow_elements = ARENA_ARRAY(&s->arena, uint8_t, TARGET_TILES);
    s->is_provisional = reserve_more(s, s->layout);
    compile_event(
        s, "package.support_memory", "allocated package support memory",
        "\"linked_end\":%u,\"profile_bytes\":%u,\"exchange_table_bytes\":%u,\"host_code_bytes\":%u,"
        "\"generated_code_bytes\":%u,\"code_address\":%u",
        RT_TEXT_BASE + s->text->size, profile_bytes(s), s->layout->max_row_bytes,
        s->layout->max_table_bytes, s->layout->max_program_bytes, RT_TEXT_BASE + s->text->size);
    return 0;
}

static int run_place_storage(struct compile_state *s, struct err *err) {
    if (!s->is_provisional) {
        s->placement->options.overflow_elements = s->overflow_elements;
        return 0; /* no code in data elements: the finalist's placement is the final one */
    }
    struct place_options options = compile_place_options(s->overflow_elements, 0);
    return place_build(s->tg, &options, &s->arena, &s->placement, err);
}

static int verify_placement(struct compile_state *s, struct err *err) {
    return place_verify(s->placement, err);
}

static void print_placement(struct compile_state *s, FILE *out) {
    place_print(s->placement, out);
}

static void count_origins(struct compile_state *s) {
    uint32_t *const counts[] = {
        [EXCHANGE_SCHEDULED] = &s->result->phases_scheduled,
        [EXCHANGE_REPLAYED] = &s->result->phases_replayed,
        [EXCHANGE_REFUSED] = &s->result->phases_refused};
    for (uint32_t i = 0; i < s->exchange->level_count; i++) {
        if (s->exchange->levels[i].transfer_count > 0) {
            ++*counts[s->exchange->levels[i].origin];
        }
    }
}

/* Rows depend on addresses and addresses on how much code there is: each turn reserves at least one
 * element more on some tile, so it ends at EMIT_MAX_OVERFLOW at the latest. */
static int run_lower_exchanges(struct compile_state *s, struct err *err) {
    if (!s->is_provisional) {
        compile_report_exchange(s, s->exchange);
        return 0;
    }
    for (;;) {
        arena_clear(&s->exchanges); /* the finalists', or the last turn's */
        int rc = compile_build_exchange(s, s->placement, &s->exchange, err);
        if (rc != 0) {
            return rc;
        }
        struct emit_context c = compile_context(s);
        rc = emit_layout_build(&c, &s->arena, &s->layout, err);
        if (rc != 0) {
            return rc;
        }
        if (!reserve_more(s, s->layout)) {
            compile_report_exchange(s, s->exchange);
            return 0;
        }
        rc = run_place_storage(s, err);
        if (rc != 0) {
            return rc;
        }
    }
}

static int verify_exchange(struct compile_state *s, struct err *err) {
    return exchange_plan_verify(s->exchange, &s->scratch, err);
}

static void print_exchange(struct compile_state *s, FILE *out) {
    exchange_plan_print(s->exchange, out);
}

/* Calls of one tile in one level, as "kernel cycles". */
static void print_calls(const struct tile_graph *tg, uint32_t level, uint16_t tile, FILE *out) {
    const struct lower_level *l = &tg->levels[level];
    for (uint32_t i = l->vertex_first; i < l->vertex_first + l->vertex_count; i++) {
        const struct lower_vertex *v = &tg->vertices[i];
        if (v->tile.n == tile) {
            fprintf(out, " %s %u", kernel_info(v->variant.id)->name, v->cycles);
        }
    }
}

/* What each superstep costs: its exchange, and the calls of its busiest tile. */
static void print_levels(struct compile_state *s, FILE *out) {
    const struct tile_graph *tg = s->tg;
    for (uint32_t i = 0; i < tg->level_count; i++) {
        const struct lower_level *l = &tg->levels[i];
        const struct exchange_phase *x = &s->exchange->levels[i].phase;
        uint64_t busy[TARGET_TILES] = {0};
        uint16_t busiest = 0;
        for (uint32_t k = l->vertex_first; k < l->vertex_first + l->vertex_count; k++) {
            uint16_t t = tg->vertices[k].tile.n;
            busy[t] += tg->vertices[k].cycles;
            busiest = busy[t] > busy[busiest] ? t : busiest;
        }
        fprintf(
            out, "level %u exchange=%u bound=%u moves=%u compute=%llu tile %u:", i, x->horizon,
            x->lower_bound, l->move_count, (unsigned long long)l->compute_cycles, busiest);
        print_calls(tg, i, busiest, out);
        fputc('\n', out);
    }
}

static int verify_final_exchange(struct compile_state *s, struct err *err) {
    int rc = place_verify(s->placement, err);
    return rc == 0 ? exchange_plan_verify(s->exchange, &s->scratch, err) : rc;
}

/* ---- Code and images ------------------------------------------------------------------------- */

static int run_prepare_tile_code(struct compile_state *s, struct err *err) {
    uint64_t cycles = program_cycles(s->tg, s->exchange);
    s->result->estimated_cycles = cycles;
    s->result->exchange_cycles = cycles - s->tg->compute_cycles;
    s->result->exchange_phases = s->exchange->phase_count;
    count_origins(s);
    s->result->kernel_calls = s->tg->vertex_count;
    s->result->active_tiles = s->tg->active_count;
    compile_event(
        s, "package.cost", "costed final placed program",
        "\"final_cycles\":%llu,\"final_exchange\":%llu", (unsigned long long)cycles,
        (unsigned long long)s->result->exchange_cycles);
    s->result->repeat_turns = s->tg->loop.turns;
    struct emit_context c = compile_context(s);
    int rc = emit_layout_build(&c, &s->arena, &s->layout, err);
    for (uint32_t t = 0; rc == 0 && t < TARGET_TILES; t++) {
        const struct emit_tile_layout *x = &s->layout->tiles[t];
        uint32_t code = s->text->size + x->main_bytes + x->more_bytes;
        s->result->code_bytes = code > s->result->code_bytes ? code : s->result->code_bytes;
        s->result->table_bytes = s->layout->max_table_bytes;
    }
    return rc;
}

static int run_emit_tile_code(struct compile_state *s, struct err *err) {
    struct emit_context c = compile_context(s);
    return emit_code_build(&c, s->layout, &s->arena, &s->code, err);
}

static int verify_code(struct compile_state *s, struct err *err) {
    struct emit_context c = compile_context(s);
    return emit_verify(&c, s->layout, s->code, err);
}

static void print_code(struct compile_state *s, FILE *out) {
    struct emit_context c = compile_context(s);
    emit_print(&c, s->layout, s->code, out);
}

/* Figures of the program, no times: equal jobs give equal reports. */
static const char *build_report(struct compile_state *s) {
    char *levels = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&levels, &size);
    if (out == NULL) {
        return NULL;
    }
    fprintf(
        out,
        "{\"estimated_cycles\":%llu,\"compute_cycles\":%llu,\"exchange_cycles\":%llu,"
        "\"exchange_phases\":%u,\"kernel_calls\":%u,\"active_tiles\":%u,\"finalists\":%u,"
        "\"selected\":%u,\"repeat_iterations\":%u,\"levels\":[",
        (unsigned long long)s->result->estimated_cycles, (unsigned long long)s->tg->compute_cycles,
        (unsigned long long)s->result->exchange_cycles, s->result->exchange_phases,
        s->result->kernel_calls, s->result->active_tiles, s->result->finalists, s->result->selected,
        s->result->repeat_turns);
    for (uint32_t i = 0; i < s->tg->level_count; i++) {
        fprintf(
            out, "%s{\"turns\":%u,\"exchange\":%u,\"bound\":%u,\"compute\":%llu}", i > 0 ? "," : "",
            lower_level_turns(s->tg, i), s->exchange->levels[i].phase.horizon,
            s->exchange->levels[i].phase.lower_bound,
            (unsigned long long)s->tg->levels[i].compute_cycles);
    }
    fputs("]}", out);
    const char *text = NULL;
    if (fclose(out) == 0) {
        text = arena_try_alloc(&s->arena, size + 1, 1);
        if (text != NULL) {
            memcpy((char *)text, levels, size + 1);
        }
    }
    free(levels);
    return text;
}

static int run_build_images(struct compile_state *s, struct err *err) {
    struct emit_names names = {
        .compiler_id = s->job->compiler_id,
        .key = s->job->key,
        .options = compile_options_json(&s->job->options, &s->arena),
        .report = build_report(s)};
    struct emit_context c = compile_context(s);
    return emit_images(&c, s->layout, s->code, &names, &s->arena, &s->package, err);
}

static void print_images(struct compile_state *s, FILE *out) {
    struct err ignored;
    (void)package_print(s->package, out, &ignored);
}

/*   name, needs, makes, run, verify, print, stage                                              */
const struct compile_pass compile_passes[] = {
    {"lower_mid", MADE_GRAPH, MADE_FINALISTS, run_lower_mid, verify_lower_mid, print_lower_mid,
     "plan"},
    {"select_finalist", MADE_FINALISTS, MADE_TILE_GRAPH, run_select_finalist, verify_tile_graph,
     print_tile_graph, "lower"},
    {"compile_runtime", MADE_GRAPH, MADE_RUNTIME, run_compile_runtime, NULL, NULL, NULL},
    {"plan_kernels", MADE_TILE_GRAPH, MADE_KERNEL_LIST, run_plan_kernels, NULL, NULL, NULL},
    {"compile_kernels", MADE_KERNEL_LIST, MADE_KERNELS, run_compile_kernels, NULL, NULL, NULL},
    {"link_runtime", MADE_RUNTIME | MADE_KERNELS, MADE_TEXT, run_link_runtime, NULL, NULL, NULL},
    {"size_tile_code", MADE_TEXT | MADE_TILE_GRAPH, MADE_SIZES, run_size_tile_code, NULL, NULL,
     NULL},
    {"place_storage", MADE_SIZES, MADE_PLACEMENT, run_place_storage, verify_placement, NULL, NULL},
    {"lower_exchanges", MADE_PLACEMENT, MADE_EXCHANGE, run_lower_exchanges, verify_exchange,
     print_levels, "levels"},
    {"optimize_exchange_placement", MADE_EXCHANGE, 0, compile_optimize_placement,
     verify_final_exchange, print_placement, "place"},
    {"prepare_tile_code", MADE_EXCHANGE, MADE_LAYOUT, run_prepare_tile_code, NULL, print_exchange,
     "exchange"},
    {"emit_tile_code", MADE_LAYOUT, MADE_CODE, run_emit_tile_code, verify_code, print_code, "emit"},
    /* package_write() verifies what it writes */
    {"build_tile_images", MADE_CODE, MADE_PACKAGE, run_build_images, NULL, print_images, "package"},
};
const uint32_t compile_pass_count = sizeof compile_passes / sizeof *compile_passes;
_Static_assert(
    sizeof compile_passes / sizeof *compile_passes <= COMPILE_MAX_PASSES,
    "compile_result has room for every pass");
