/* When each step runs. A step's level is the largest over its operands of the level that makes the
 * operand, plus one if it must move; a reduction runs one level after its products. Times number
 * the exchanges and the steps in the order level, step. */
#include "lower/lower_internal.h"

bool lower_gemm_is_local(const struct plan_step *s, const struct plan_dist *source) {
    if (s->n != 1 || s->in_panel[0] != 0 || source->m != s->m || source->n != s->k) {
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
    uint32_t norm = plan_deferred_norm(l->plan, s->in[o]);
    if (norm != PLAN_NONE) {
        x = &l->plan->matrices[l->plan->steps[norm].in[0]];
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

void lower_time_steps(struct lowering *l) {
    uint32_t steps = l->plan->step_count;
    l->times = ARENA_ARRAY(l->arena, struct step_time, steps);
    uint32_t highest = 0;
    for (uint32_t i = 0; i < steps; i++) {
        const struct plan_step *s = &l->plan->steps[i];
        l->times[i].level = lower_step_level(l, i, step_level(l, i));
        l->times[i].result_level = l->times[i].level + (s->k > 1 ? 1 : 0);
        highest = l->times[i].result_level > highest ? l->times[i].result_level : highest;
    }
    l->level_count = highest + 1;
    l->levels = ARENA_ARRAY(l->arena, struct level_moves, l->level_count);
    l->exchange_time = ARENA_ARRAY(l->arena, uint32_t, l->level_count);
    uint32_t time = 0;
    for (uint32_t level = 0; level < l->level_count; level++) {
        l->exchange_time[level] = ++time;
        for (uint32_t i = 0; i < steps; i++) {
            struct step_time *t = &l->times[i];
            if (t->level == level) {
                t->time = ++time;
            }
            if (t->result_level == level) {
                t->result_time = t->level == level ? t->time : ++time;
            }
        }
    }
    l->tg->end_time = time + 1;
    lower_loop_times(l);
}
