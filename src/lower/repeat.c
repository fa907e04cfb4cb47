/* The loop around a repeated block (plan.h). Its levels are the block's own: steps before it end
 * below them, steps that depend on it start above; others may run before it. One turn leaves its
 * result in the home blocks of the carried matrix, where the next one, and in the end what follows
 * the loop, finds it: so every turn executes the same exchange rows and calls, and only words that
 * point into sequences of parameters move on.
 *
 * A result goes there directly when its blocks lie like those and nobody reads the old ones any
 * more; else the PLAN_CARRY copies or sends them. */
#include "lower/lower_internal.h"

static const struct plan_repeat *repeat_of(const struct lowering *l) {
    return &l->plan->repeat;
}

static bool is_inside(const struct lowering *l, uint32_t step) {
    return plan_step_turns(l->plan, step) > 1;
}

/* First level above all steps [first, last). */
static uint32_t level_above(const struct lowering *l, uint32_t first, uint32_t last) {
    uint32_t level = 0;
    for (uint32_t i = first; i < last; i++) {
        level = l->times[i].result_level + 1 > level ? l->times[i].result_level + 1 : level;
    }
    return level;
}

static bool reads_from(const struct lowering *l, uint32_t step, uint32_t level) {
    for (int o = 0; o < PLAN_OPERANDS; o++) {
        uint32_t m = l->plan->steps[step].in[o];
        uint32_t maker = m != PLAN_NONE ? l->plan->matrices[m].step : PLAN_NONE;
        if (maker != PLAN_NONE && l->times[maker].result_level >= level) {
            return true;
        }
    }
    return false;
}

uint32_t lower_step_level(struct lowering *l, uint32_t step, uint32_t earliest) {
    const struct plan_repeat *r = repeat_of(l);
    struct lower_loop *loop = &l->tg->loop;
    if (r->turns == 0 || step < r->first) {
        return earliest;
    }
    if (step == r->first) {
        loop->level_first = level_above(l, 0, r->first);
    }
    if (is_inside(l, step)) {
        return earliest > loop->level_first ? earliest : loop->level_first;
    }
    if (step == r->first + r->count) {
        loop->level_count = level_above(l, r->first, step) - loop->level_first;
    }
    uint32_t end = loop->level_first + loop->level_count;
    uint32_t last = earliest + (l->plan->steps[step].k > 1 ? 1 : 0);
    const struct plan_step *s = &l->plan->steps[step];
    bool is_alone = !s->is_fused && s->fused == 0; /* a fused pair runs at one level */
    bool may_be_before =
        is_alone && last < loop->level_first && !reads_from(l, step, loop->level_first);
    return may_be_before || earliest > end ? earliest : end;
}

void lower_loop_times(struct lowering *l) {
    const struct plan_repeat *r = repeat_of(l);
    struct lower_loop *loop = &l->tg->loop;
    if (r->turns == 0) {
        return;
    }
    uint32_t end = level_above(l, r->first, r->first + r->count);
    loop->turns = r->turns;
    loop->level_count = end - loop->level_first;
    loop->time_first = l->exchange_time[loop->level_first];
    loop->time_last = (end < l->level_count ? l->exchange_time[end] : l->tg->end_time) - 1;
}

bool lower_is_stale(const struct lowering *l, uint32_t matrix, uint32_t gathered, uint32_t level) {
    const struct lower_loop *loop = &l->tg->loop;
    return loop->turns > 0 && matrix == repeat_of(l)->carried && gathered < loop->level_first &&
           level >= loop->level_first;
}

/* Kernels whose result may replace an operand that lies like it (kernels.h). */
static bool may_replace(const struct plan_step *s, int o) {
    switch (s->kind) {
    case PLAN_ADD:
    case PLAN_ADD_ROW:
    case PLAN_UNARY:
    case PLAN_MAP:
    case PLAN_BINARY:
    case PLAN_BINARY_ROW: return s->in_panel[o] == 0;
    default: return false;
    }
}

/* The step whose calls do the work of this one. */
static uint32_t doer(const struct lowering *l, uint32_t step) {
    return l->plan->steps[step].fused > 0 ? plan_fused_gemm(l->plan, step) : step;
}

/* Step reads the carried matrix after the time at which its successor is written, or at it. */
static bool reads_too_late(const struct lowering *l, uint32_t step, uint32_t maker) {
    const struct plan_step *s = &l->plan->steps[step];
    const struct step_time *t = &l->times[doer(l, maker)];
    if (l->times[doer(l, step)].time < t->result_time) {
        return false;
    }
    for (int o = 0; o < PLAN_OPERANDS; o++) {
        uint32_t norm = s->in[o] != PLAN_NONE ? plan_deferred_norm(l->plan, s->in[o]) : PLAN_NONE;
        uint32_t read = norm != PLAN_NONE ? l->plan->steps[norm].in[0] : s->in[o];
        if (read == repeat_of(l)->carried &&
            !(step == maker && norm == PLAN_NONE && may_replace(s, o) && lower_is_local(l, s, o))) {
            return true;
        }
    }
    return false;
}

bool lower_is_in_place(const struct lowering *l, uint32_t step) {
    const struct plan_repeat *r = repeat_of(l);
    if (!is_inside(l, step)) {
        return false;
    }
    const struct plan_step *carry = &l->plan->steps[r->first + r->count - 1];
    const struct plan_matrix *carried = &l->plan->matrices[r->carried];
    if (l->plan->steps[step].out != carry->in[0] ||
        !plan_dist_equal(l->plan->matrices[carry->in[0]].dist, carried->dist)) {
        return false;
    }
    for (uint32_t i = r->first; i + 1 < r->first + r->count; i++) {
        if (reads_too_late(l, i, step)) {
            return false;
        }
    }
    return true;
}

/* Whether anything is left to do after the step that makes the block's result. */
static bool is_done(const struct lowering *l, uint32_t carry) {
    return lower_is_in_place(l, l->plan->matrices[l->plan->steps[carry].in[0]].step);
}

void lower_carry(struct lowering *l, uint32_t step) {
    const struct plan_step *s = &l->plan->steps[step];
    const struct plan_dist *d = s->dist;
    l->home[s->out] = l->home[repeat_of(l)->carried];
    if (is_done(l, step)) {
        return;
    }
    for (uint32_t b = 0; b < d->m * d->n; b++) {
        uint32_t i = b / d->n, j = b % d->n, tile = d->tile[b];
        struct need n = lower_block_need(d, i, j);
        lower_bring(l, s->in[0], &n, &tile, 1, step, &l->home[s->out][b]);
    }
}

void lower_keep_for_loop(struct lowering *l) {
    const struct lower_loop *loop = &l->tg->loop;
    for (size_t i = 0; loop->turns > 0 && i < l->buffers.len; i++) {
        struct lower_buffer *b = &l->buffers.data[i];
        if (b->born < loop->time_first && b->dies >= loop->time_first &&
            b->dies < loop->time_last) {
            b->dies = loop->time_last;
        }
    }
}

uint64_t lower_slot_total(const struct tile_graph *tg) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < tg->buffer_count; i++) {
        bytes += tg->buffers[i].slots > 1 ? lower_slot_bytes(&tg->buffers[i]) : 0;
    }
    return bytes;
}
