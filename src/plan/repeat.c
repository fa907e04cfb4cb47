/* Access to the record of a repeat: see plan.h. */
#include "plan/plan_internal.h"

static bool is_inside(const struct plan *p, uint32_t step) {
    const struct plan_repeat *r = &p->repeat;
    return r->turns > 0 && step >= r->first && step - r->first < r->count;
}

uint32_t plan_step_turns(const struct plan *p, uint32_t step) {
    return is_inside(p, step) ? p->repeat.turns : 1;
}

static struct value_id own_value(const struct plan *p, uint32_t step, enum plan_param param) {
    const struct plan_step *s = &p->steps[step];
    switch (param) {
    case PARAM_WEIGHTS: return s->weights;
    case PARAM_ROW: return s->row;
    case PARAM_ROW2: return s->row2;
    default: break;
    }
    uint32_t matrix = s->in[param - PARAM_OPERAND];
    bool is_constant = matrix != PLAN_NONE && p->matrices[matrix].kind == PLAN_CONSTANT;
    return is_constant ? p->matrices[matrix].value : NO_VALUE;
}

struct value_id
plan_param_value(const struct plan *p, uint32_t step, enum plan_param param, uint32_t turn) {
    const struct plan_repeat *r = &p->repeat;
    if (!is_inside(p, step)) {
        return own_value(p, step, param);
    }
    return r->values[(turn * r->count + step - r->first) * PLAN_PARAMS + param];
}

bool plan_param_varies(const struct plan *p, uint32_t step, enum plan_param param) {
    struct value_id first = plan_param_value(p, step, param, 0);
    for (uint32_t turn = 1; turn < plan_step_turns(p, step); turn++) {
        if (plan_param_value(p, step, param, turn).n != first.n) {
            return true;
        }
    }
    return false;
}
