/* When each step runs. A step's level is the largest over its operands of the level that makes the
 * operand, plus one if it must move; a reduction runs one level after its products. Times number
 * the exchanges and the steps in the order level, step. */
#include "lower/lower_internal.h"

bool lower_gemm_is_local(const struct plan_step *s, const struct plan_dist *source) {
    /* In lanes the operand goes to the tiles of all siblings. */
    bool is_alone = s->form.lanes <= 1;
    if (!is_alone || s->n != 1 || s->in_panel[0] != 0 || source->m != s->m || source->n != s->k) {
        return false;
    }
    for (uint32_t i = 0; i <= s->m; i++) {
        if (source->row_bound[i] != (uint32_t)((uint64_t)s->rows * i / s->m)) {
            return false;
        }
    }
    for (uint32_t kk = 0; kk <= s->k; kk++) {
        if (plan_dist_quad(source, kk) != 4 * s->group_bound[kk]) {
            return false;
        }
    }
    for (uint32_t i = 0; i < s->m; i++) {
        for (uint32_t kk = 0; kk < s->k; kk++) {
            if (source->tile[i * s->k + kk] != plan_gemm_tile(s, i, 0, kk)) {
                return false;
            }
        }
    }
    return true;
}

uint32_t lower_operand_level(const struct lowering *l, uint32_t matrix) {
    const struct plan_matrix *x = &l->plan->matrices[matrix];
    return x->kind == PLAN_COMPUTED ? l->times[x->step].result_level : 0;
}

bool lower_is_local(const struct lowering *l, const struct plan_step *s, int o) {
    const struct plan_matrix *x = &l->plan->matrices[s->in[o]];
    if (x->kind == PLAN_CONSTANT) {
        return true;
    }
    if (plan_is_streamed(s)) {
        return false;
    }
    uint32_t norm = plan_deferred_norm(l->plan, s->in[o]);
    if (norm != PLAN_NONE) {
        x = &l->plan->matrices[l->plan->steps[norm].in[0]];
    }
    if (s->kind == PLAN_CARRY || s->fused > 0) { /* strips, maybe */
        return plan_dist_equal(x->dist, s->dist);
    }
    return s->kind == PLAN_GEMM ? lower_gemm_is_local(s, x->dist)
                                : plan_is_home(s, s->dist, o, x->dist);
}

static uint32_t step_level(const struct lowering *l, uint32_t step) {
    const struct plan_step *s = &l->plan->steps[step];
    if (s->is_deferred) {
        return lower_operand_level(l, s->in[0]);
    }
    if (s->fused > 0) {
        return l->times[plan_fused_gemm(l->plan, step)].level;
    }
    uint32_t level = 0;
    for (int o = 0; o < PLAN_OPERANDS; o++) {
        if (s->in[o] == PLAN_NONE || l->plan->matrices[s->in[o]].kind == PLAN_CONSTANT) {
            continue;
        }
        uint32_t at = lower_operand_level(l, s->in[o]) + (lower_is_local(l, s, o) ? 0 : 1);
        level = at > level ? at : level;
    }
    return level;
}

/* First level of the steps that read a step's result. */
static uint32_t first_reader(const struct lowering *l, uint32_t step, uint32_t levels) {
    uint32_t first = levels;
    for (uint32_t i = step + 1; i < l->plan->step_count; i++) {
        for (int o = 0; o < PLAN_OPERANDS; o++) {
            bool reads = l->plan->steps[i].in[o] == l->plan->steps[step].out;
            first = reads && l->times[i].level < first ? l->times[i].level : first;
        }
    }
    return first;
}

/* A product of parameters alone waits for nothing: it goes to the level before its readers' where
 * its tiles are idle while others compute, the first one if there are several. Estimates. */
static void delay_free(struct lowering *l, uint32_t step, uint32_t levels, const uint64_t *load) {
    const struct plan_step *s = &l->plan->steps[step];
    uint32_t end = first_reader(l, step, levels), tiles = l->plan->tiles;
    uint64_t least = UINT64_MAX;
    for (uint32_t level = 0; level < end; level++) {
        uint64_t most = 0, own = 0;
        for (uint32_t t = 0; t < tiles; t++) {
            uint64_t there = load[(size_t)level * tiles + t];
            bool is_own = t - s->form.first < s->m * s->n;
            most = there > most ? there : most;
            own = is_own && there > own ? there : own;
        }
        uint64_t more = own + s->compute_cycles > most ? own + s->compute_cycles - most : 0;
        if (more < least) {
            least = more;
            l->times[step].level = l->times[step].result_level = level;
        }
    }
}

static bool is_free(const struct plan *p, const struct plan_step *s) {
    return s->kind == PLAN_GEMM && s->k == 1 && s->dist != NULL &&
           p->matrices[s->in[0]].kind == PLAN_CONSTANT;
}

static void delay_all_free(struct lowering *l, uint32_t levels) {
    const struct plan *p = l->plan;
    bool any = false;
    for (uint32_t i = 0; i < p->step_count; i++) {
        any = any || is_free(p, &p->steps[i]);
    }
    if (!any || p->repeat.turns > 0) {
        return;
    }
    uint64_t *load = ARENA_ARRAY(l->arena, uint64_t, (size_t)levels * p->tiles);
    for (int turn = 0; turn < 2; turn++) { /* all others, then the free */
        for (uint32_t i = 0; i < p->step_count; i++) {
            const struct plan_step *s = &p->steps[i];
            if (is_free(p, s) != (turn == 1) || s->dist == NULL) {
                continue;
            }
            if (turn == 1) {
                delay_free(l, i, levels, load);
            }
            for (uint32_t b = 0; b < s->dist->m * s->dist->n; b++) {
                load[(size_t)l->times[i].level * p->tiles + s->dist->tile[b]] += s->compute_cycles;
            }
        }
    }
}

void lower_time_steps(struct lowering *l) {
    uint32_t steps = l->plan->step_count;
    l->times = ARENA_ARRAY(l->arena, struct step_time, steps);
    uint32_t highest = 0;
    for (uint32_t i = 0; i < steps; i++) {
        const struct plan_step *s = &l->plan->steps[i];
        l->times[i].level = lower_step_level(l, i, step_level(l, i));
        uint32_t chunks = plan_chunks(s);
        l->times[i].chunk_time = ARENA_ARRAY(l->arena, uint32_t, chunks);
        l->times[i].result_level = l->times[i].level + chunks - 1 + (s->k > 1 ? 1 : 0);
        highest = l->times[i].result_level > highest ? l->times[i].result_level : highest;
    }
    l->level_count = highest + 1;
    delay_all_free(l, l->level_count);
    l->levels = ARENA_ARRAY(l->arena, struct level_moves, l->level_count);
    l->exchange_time = ARENA_ARRAY(l->arena, uint32_t, l->level_count);
    uint32_t time = 0;
    for (uint32_t level = 0; level < l->level_count; level++) {
        l->exchange_time[level] = ++time;
        for (uint32_t i = 0; i < steps; i++) {
            struct step_time *t = &l->times[i];
            uint32_t chunk = level - t->level, chunks = plan_chunks(&l->plan->steps[i]);
            if (t->level <= level && chunk < chunks) {
                t->chunk_time[chunk] = ++time;
            }
            if (t->result_level == level) {
                t->result_time = chunk < chunks ? t->chunk_time[chunk] : ++time;
            }
        }
    }
    for (uint32_t i = 0; i < steps; i++) {
        l->times[i].time = l->times[i].chunk_time[0];
    }
    l->tg->end_time = time + 1;
    lower_loop_times(l);
}
