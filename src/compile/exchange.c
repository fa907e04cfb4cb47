/* What the passes say about the exchange, and the trial of another placement for its sake. */
#include "compile/compile_internal.h"

#include "runtime/runtime.h"

/* One phase against what no order of its transfers can beat. Loss is what the horizon is longer;
 * the part of it beyond the horizon without addresses is due to where data lies. */
static void report_phase(
    struct compile_state *s, const struct exchange_level *l, uint32_t phase, uint32_t level) {
    static const char *const origins[] = {
        [EXCHANGE_SCHEDULED] = "scheduled",
        [EXCHANGE_REPLAYED] = "replayed",
        [EXCHANGE_REFUSED] = "refused"};
    const struct exchange_phase *p = &l->phase;
    compile_event(
        s, "exchange.phase", "scheduled exchange phase",
        "\"phase\":%u,\"level\":%u,\"turns\":%u,\"transfers\":%u,\"rows\":%u,\"busiest_tile\":%u,"
        "\"busiest_lane\":\"%s\",\"busiest_items\":%u,\"latency_bound\":%u,\"horizon\":%u,"
        "\"loss\":%u,\"address_loss\":%d,\"row_bytes\":%u,\"row_tile\":%u,\"order\":\"%s\"",
        phase, level, lower_level_turns(s->tg, level), l->transfer_count, p->row_count,
        target_physical(p->busiest.tile).n, p->busiest.is_send ? "send" : "receive",
        p->busiest.items, p->latency_bound, p->horizon, p->horizon - p->latency_bound,
        (int)p->horizon - (int)p->free_horizon, p->max_row_bytes, target_physical(p->longest_row).n,
        origins[l->origin]);
}

/* Finalists have made or found the order of every phase; here it met the final addresses. */
void compile_report_exchange(struct compile_state *s, const struct exchange_plan *x) {
    uint32_t phase = 0;
    for (uint32_t i = 0; i < x->level_count; i++) {
        if (x->levels[i].transfer_count == 0) {
            continue;
        }
        if (x->levels[i].origin != EXCHANGE_REFUSED) {
            compile_event(
                s, "exchange.reused",
                "reused exchange optimization after validating relocated rows", "\"phase\":%u",
                phase);
        }
        report_phase(s, &x->levels[i], phase, i);
        phase++;
    }
    compile_event(
        s, "exchange.bound", "compared exchange schedules with their lower bounds",
        "\"phases\":%u,\"phase_runs\":%u,\"latency_bound\":%llu,\"horizon\":%llu,\"loss\":%llu,"
        "\"address_loss\":%lld,\"row_bytes\":%u",
        x->phase_count, x->phase_runs, (unsigned long long)x->bound_cycles,
        (unsigned long long)x->horizon_cycles,
        (unsigned long long)(x->horizon_cycles - x->bound_cycles),
        (long long)(x->horizon_cycles - x->free_cycles), x->max_row_bytes);
}

/* Placement with the least score below the present one; NULL when there is none. */
static struct placement *best_shift(struct compile_state *s) {
    struct err ignored;
    uint64_t least = s->placement->score;
    uint32_t best = 0;
    struct arena_mark mark = arena_mark(&s->arena);
    for (uint32_t shift = 4096; shift < 2 * TARGET_ELEMENT_BYTES; shift += 4096) {
        struct place_options options = compile_place_options(s->overflow_elements, shift);
        struct placement *p;
        if (place_build(s->tg, &options, &s->arena, &p, &ignored) == 0 && p->score < least) {
            least = p->score;
            best = shift;
        }
        arena_rewind(&s->arena, mark);
    }
    struct placement *ret = NULL;
    struct place_options options = compile_place_options(s->overflow_elements, best);
    return best != 0 && place_build(s->tg, &options, &s->arena, &ret, &ignored) == 0 ? ret : NULL;
}

/* The base of interleaved data moved inside its element pair, so that what is sent and what is
 * received in one phase meet less: the best by score is scheduled, and taken only if shorter. Not
 * worth a try when no phase is longer than without addresses. */
int compile_optimize_placement(struct compile_state *s, struct err *err) {
    (void)err;
    if (s->exchange->horizon_cycles <= s->exchange->free_cycles) {
        return 0;
    }
    struct placement *best = best_shift(s);
    if (best == NULL) {
        return 0;
    }
    struct compile_state trial = *s; /* read only: arenas stay with s */
    struct err ignored;
    trial.placement = best;
    if (compile_build_exchange(s, best, &trial.exchange, &ignored) != 0) {
        return 0;
    }
    struct emit_context c = compile_context(&trial);
    bool accepted = trial.exchange->horizon_cycles < s->exchange->horizon_cycles &&
                    emit_layout_build(&c, &s->arena, &trial.layout, &ignored) == 0;
    for (uint32_t t = 0; accepted && t < TARGET_TILES; t++) {
        accepted = trial.layout->overflow_elements[t] <= s->overflow_elements[t];
    }
    compile_event(
        s, "exchange.placement", "evaluated exchange placement finalist",
        "\"offset\":%u,\"baseline_score\":%llu,\"score\":%llu,\"baseline_cycles\":%llu,"
        "\"candidate_cycles\":%llu,\"row_bytes\":%u,\"row_capacity\":%u,\"accepted\":%s",
        best->options.shift, (unsigned long long)s->placement->score,
        (unsigned long long)best->score, (unsigned long long)s->exchange->horizon_cycles,
        (unsigned long long)trial.exchange->horizon_cycles, trial.exchange->max_row_bytes,
        RT_TEXT_LIMIT - (RT_TEXT_BASE + s->text->size), accepted ? "true" : "false");
    if (accepted) {
        s->placement = best;
        s->exchange = trial.exchange;
        compile_report_exchange(s, s->exchange);
    }
    return 0;
}
