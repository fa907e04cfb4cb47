/* The record of a repeat (plan.h): access, unrolling, verifying. */
#include "plan/plan_internal.h"

#include <string.h>

static bool is_inside(const struct plan *p, uint32_t step) {
    const struct plan_repeat *r = &p->repeat;
    return r->turns > 0 && step >= r->first && step - r->first < r->count;
}

uint32_t plan_step_turns(const struct plan *p, uint32_t step) {
    return is_inside(p, step) ? p->repeat.turns : 1;
}

static int part_of(const struct plan *p, uint32_t step) {
    return is_inside(p, step) ? 1 : p->repeat.turns > 0 && step > p->repeat.first ? 2 : 0;
}

bool plan_is_same_part(const struct plan *p, uint32_t a, uint32_t b) {
    return part_of(p, a) == part_of(p, b);
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
    if (first.n != NO_VALUE.n && p->graph->values[first.n].is_hashed_constant) {
        return false; /* equal blocks have equal known constants */
    }
    for (uint32_t turn = 1; turn < plan_step_turns(p, step); turn++) {
        if (plan_param_value(p, step, param, turn).n != first.n) {
            return true;
        }
    }
    return false;
}

uint32_t plan_param_copies(const struct plan *p, uint32_t step) {
    for (int param = 0; param < PLAN_PARAMS; param++) {
        if (plan_param_varies(p, step, (enum plan_param)param)) {
            return p->repeat.turns;
        }
    }
    return 1;
}

/* ---- Unrolling ------------------------------------------------------------------------------- */

struct unroller {
    const struct plan *from;
    struct plan *to;
    struct arena *arena;
    uint32_t *number; /* by matrix of from: its number in this turn */
    uint32_t handed;  /* matrix of to that this turn reads as the carried one */
};

static uint32_t add_matrix(struct unroller *u, uint32_t old) {
    u->to->matrices[u->to->matrix_count] = u->from->matrices[old];
    u->to->matrices[u->to->matrix_count].step = PLAN_NONE;
    u->number[old] = u->to->matrix_count;
    return u->to->matrix_count++;
}

/* A constant has a matrix for each step that reads it, with the value of this turn. */
static uint32_t unrolled_operand(struct unroller *u, uint32_t step, int o, uint32_t turn) {
    uint32_t old = u->from->steps[step].in[o];
    if (old == PLAN_NONE || u->from->matrices[old].kind != PLAN_CONSTANT) {
        return old == PLAN_NONE                 ? PLAN_NONE
               : old == u->from->repeat.carried ? u->handed
               : u->number[old] != PLAN_NONE    ? u->number[old]
                                                : add_matrix(u, old);
    }
    uint32_t at = add_matrix(u, old);
    u->to->matrices[at].value =
        plan_param_value(u->from, step, (enum plan_param)(PARAM_OPERAND + o), turn);
    return at;
}

static void unroll_step(struct unroller *u, uint32_t step, uint32_t turn) {
    const struct plan_repeat *r = &u->from->repeat;
    struct plan_step s = u->from->steps[step];
    if (is_inside(u->from, step)) {
        s.node = r->nodes[turn * r->count + step - r->first];
        s.weights = plan_param_value(u->from, step, PARAM_WEIGHTS, turn);
        s.row = plan_param_value(u->from, step, PARAM_ROW, turn);
        s.row2 = plan_param_value(u->from, step, PARAM_ROW2, turn);
    }
    for (int o = 0; o < PLAN_OPERANDS; o++) {
        s.in[o] = unrolled_operand(u, step, o, turn);
    }
    s.out = add_matrix(u, s.out);
    u->to->matrices[s.out].step = u->to->step_count;
    u->to->steps[u->to->step_count++] = s;
    u->handed = u->from->steps[step].out == r->carried ? s.out : u->handed;
}

void plan_repeat_unroll(struct plan *p, struct arena *a) {
    const struct plan_repeat *r = &p->repeat;
    if (r->turns == 0) {
        return;
    }
    struct plan *to = ARENA_NEW(a, struct plan);
    struct unroller u = {.from = p, .to = to, .arena = a};
    size_t steps = p->step_count + (size_t)r->turns * r->count;
    *to = *p;
    to->repeat = (struct plan_repeat){0};
    to->step_count = to->matrix_count = 0;
    to->steps = ARENA_ARRAY(a, struct plan_step, steps);
    to->matrices =
        ARENA_ARRAY(a, struct plan_matrix, p->matrix_count + (1 + PLAN_OPERANDS) * steps);
    u.number = ARENA_ARRAY(a, uint32_t, p->matrix_count);
    memset(u.number, 0xFF, sizeof *u.number * p->matrix_count);
    to->inputs = ARENA_ARRAY(a, uint32_t, p->graph->input_count);
    to->outputs = ARENA_ARRAY(a, uint32_t, p->graph->output_count);
    for (uint32_t i = 0; i < p->graph->input_count; i++) {
        to->inputs[i] = add_matrix(&u, p->inputs[i]);
        u.handed = p->inputs[i] == r->carried ? to->inputs[i] : u.handed;
    }
    uint32_t carry = r->first + r->count - 1;
    for (uint32_t i = 0; i < r->first; i++) {
        unroll_step(&u, i, 0);
    }
    for (uint32_t turn = 0; turn < r->turns; turn++) {
        for (uint32_t i = r->first; i < carry; i++) {
            unroll_step(&u, i, turn);
        }
        u.handed = u.number[p->steps[carry].in[0]];
    }
    u.number[p->steps[carry].out] = u.handed;
    for (uint32_t i = carry + 1; i < p->step_count; i++) {
        unroll_step(&u, i, 0);
    }
    for (uint32_t i = 0; i < p->graph->output_count; i++) {
        to->outputs[i] = u.number[p->outputs[i]];
    }
    *p = *to;
}

/* ---- Verifying ------------------------------------------------------------------------------- */

static int fault(struct err *err, uint32_t step, const char *text) {
    return err_set(err, ERR_INTERNAL, "plan: repeat, step %u: %s", step, text);
}

static int verify_values(const struct plan *p, uint32_t step, struct err *err) {
    for (int param = 0; param < PLAN_PARAMS; param++) {
        struct value_id own = own_value(p, step, (enum plan_param)param);
        if (plan_param_value(p, step, (enum plan_param)param, 0).n != own.n) {
            return fault(err, step, "the first turn has another parameter than the step");
        }
        for (uint32_t turn = 1; turn < p->repeat.turns; turn++) {
            struct value_id v = plan_param_value(p, step, (enum plan_param)param, turn);
            if ((v.n == NO_VALUE.n) != (own.n == NO_VALUE.n)) {
                return fault(err, step, "a parameter is missing in a turn");
            }
        }
    }
    return 0;
}

/* What is made inside is read inside; what is carried is not read behind the loop. */
static int verify_readers(const struct plan *p, uint32_t step, struct err *err) {
    uint32_t end = p->repeat.first + p->repeat.count;
    for (int o = 0; o < PLAN_OPERANDS; o++) {
        uint32_t m = p->steps[step].in[o];
        if (m == PLAN_NONE || is_inside(p, step)) {
            continue;
        }
        uint32_t maker = p->matrices[m].step;
        if ((m == p->repeat.carried && step >= end) ||
            (maker != PLAN_NONE && is_inside(p, maker) && maker + 1 != end)) {
            return fault(err, step, "reads from outside what only lives in a turn");
        }
    }
    return 0;
}

int plan_repeat_verify(const struct plan *p, struct err *err) {
    const struct plan_repeat *r = &p->repeat;
    if (r->turns == 0) {
        return 0;
    }
    if (r->turns < 2 || r->count < 2 || r->first + r->count > p->step_count ||
        p->steps[r->first + r->count - 1].kind != PLAN_CARRY) {
        return fault(err, r->first, "the block does not end in a carry");
    }
    const struct plan_step *carry = &p->steps[r->first + r->count - 1];
    const struct plan_matrix *in = &p->matrices[r->carried];
    if (!plan_dist_equal(carry->dist, in->dist) || carry->rows != in->rows ||
        carry->columns != in->columns || carry->unit != in->unit) {
        return fault(err, r->first + r->count - 1, "a turn does not end as it starts");
    }
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < p->step_count; i++) {
        rc = verify_readers(p, i, err);
        if (rc == 0 && is_inside(p, i)) {
            rc = verify_values(p, i, err);
        }
    }
    for (uint32_t i = 0; rc == 0 && i < p->graph->output_count; i++) {
        uint32_t maker = p->matrices[p->outputs[i]].step;
        if (p->outputs[i] == r->carried ||
            (maker != PLAN_NONE && is_inside(p, maker) && &p->steps[maker] != carry)) {
            rc = fault(err, r->first, "an output only lives in a turn");
        }
    }
    return rc;
}
