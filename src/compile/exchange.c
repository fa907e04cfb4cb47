/* What the passes say about the exchange, and the trial of another placement for its sake. */
#include "compile/compile_internal.h"

#include "exchange/trial.h"
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

/* The candidate is taken when it is shorter and code and rows have the room they had. */
int compile_optimize_placement(struct compile_state *s, struct err *err) {
    (void)err;
    struct arena_mark mark = arena_mark(&s->exchanges);
    struct exchange_trial t;
    exchange_try_placement(
        s->placement, s->exchange, schedules_orders(s->schedules), &s->exchanges, &s->scratch, &t);
    if (!t.is_made) {
        arena_rewind(&s->exchanges, mark);
        return 0;
    }
    struct compile_state trial = *s; /* read only: arenas stay with s */
    struct err ignored;
    trial.placement = t.placement;
    trial.exchange = t.plan;
    struct emit_context c = compile_context(&trial);
    bool accepted = t.is_shorter && emit_layout_build(&c, &s->arena, &trial.layout, &ignored) == 0;
    for (uint32_t i = 0; accepted && i < TARGET_TILES; i++) {
        accepted = trial.layout->overflow_elements[i] <= s->overflow_elements[i];
    }
    compile_event(
        s, "exchange.placement", "evaluated exchange placement finalist",
        "\"offset\":%u,\"baseline_score\":%llu,\"score\":%llu,\"baseline_cycles\":%llu,"
        "\"candidate_cycles\":%llu,\"row_bytes\":%u,\"row_capacity\":%u,\"accepted\":%s",
        t.placement->options.shift, (unsigned long long)s->placement->score,
        (unsigned long long)t.placement->score, (unsigned long long)s->exchange->horizon_cycles,
        (unsigned long long)t.plan->horizon_cycles, t.plan->max_row_bytes,
        RT_TEXT_LIMIT - (RT_TEXT_BASE + s->text->size), accepted ? "true" : "false");
    if (accepted) {
        s->placement = t.placement;
        s->exchange = t.plan;
        compile_report_exchange(s, s->exchange);
    } else {
        arena_rewind(&s->exchanges, mark);
    }
    return 0;
}
