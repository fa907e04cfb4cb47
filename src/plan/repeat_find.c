/* Equal consecutive blocks of steps. Canonical order puts the nodes of one layer behind those of
 * the layer before (graph.h), so a network of equal layers is a periodic sequence of steps. For
 * each period, runs of steps that are like the one a period later; for each start in such a run, as
 * many blocks as the flow of data allows:
 *
 *   first           first + count                                first + turns * count
 *   | block of turn 0 | block of turn 1 | ...     | block of the last turn |
 *        reads x0 -> makes x1, reads x1 -> makes x2 ...                makes xn -> read behind it
 *
 * (1) every operand is made by the same step of the same block, or before the first block and the
 * same in all of them, or is the one matrix handed on; (2) nobody else reads a block's results, or
 * x0 once the blocks run; (3) parameters correspond one to one in type and shape, and those whose
 * value the compiler knows have the same one. The most steps saved win, then the shorter block,
 * then the earlier one. It ends because periods, starts and turns are finite; their product is cut
 * by a budget of compared steps. */
#include "plan/fuse_internal.h"

#include <string.h>

#define REPEAT_MAX_COUNT 1024u    /* steps of a block */
#define REPEAT_BUDGET    8000000u /* compared steps */

struct found {
    uint32_t first, count, turns;
    uint32_t carried;      /* x0 */
    uint32_t carried_step; /* of a block: makes what the next one reads */
};

struct finder {
    const struct plan *p;
    uint32_t *last_reader; /* by matrix: step, step_count for an output, 0 for none */
    uint64_t work;
};

static bool value_alike(const struct graph *g, struct value_id a, struct value_id b) {
    if (a.n == b.n || a.n == NO_VALUE.n || b.n == NO_VALUE.n) {
        return a.n == b.n;
    }
    const struct graph_value *x = &g->values[a.n], *y = &g->values[b.n];
    if (x->kind != y->kind || x->dtype != y->dtype || !shape_equal(&x->shape, &y->shape) ||
        x->is_hashed_constant != y->is_hashed_constant) {
        return false;
    }
    uint64_t elements = 0, bytes = 0; /* within bounds: the graph was loaded */
    shape_elements(&x->shape, x->dtype, &elements, &bytes, NULL);
    return !x->is_hashed_constant || memcmp(x->source.bytes, y->source.bytes, bytes) == 0;
}

static bool matrix_alike(const struct plan *p, uint32_t a, uint32_t b) {
    if (a == PLAN_NONE || b == PLAN_NONE) {
        return a == b;
    }
    const struct plan_matrix *x = &p->matrices[a], *y = &p->matrices[b];
    bool is_constant = x->kind == PLAN_CONSTANT;
    return is_constant == (y->kind == PLAN_CONSTANT) && x->rows == y->rows &&
           x->columns == y->columns && x->panels == y->panels && x->unit == y->unit &&
           x->is_single == y->is_single &&
           (!is_constant || value_alike(p->graph, x->value, y->value));
}

/* Without what is compared apart. Fused steps have no choice yet, and padding of 0. */
static struct plan_step neutral(const struct plan_step *s) {
    struct plan_step n;
    memcpy(&n, s, sizeof n);
    n.node = (struct node_id){0};
    memset(n.in, 0, sizeof n.in);
    n.out = 0;
    n.weights = n.row = n.row2 = NO_VALUE;
    return n;
}

static bool step_alike(const struct plan *p, uint32_t ia, uint32_t ib) {
    const struct plan_step *a = &p->steps[ia], *b = &p->steps[ib];
    if (a->kind != b->kind || a->rows != b->rows || a->columns != b->columns) {
        return false;
    }
    struct plan_step x = neutral(a), y = neutral(b);
    bool good = memcmp(&x, &y, sizeof x) == 0 && matrix_alike(p, a->out, b->out) &&
                value_alike(p->graph, a->weights, b->weights) &&
                value_alike(p->graph, a->row, b->row) && value_alike(p->graph, a->row2, b->row2);
    for (int o = 0; o < PLAN_OPERANDS && good; o++) {
        good = matrix_alike(p, a->in[o], b->in[o]);
    }
    return good;
}

static bool is_flow(const struct plan *p, uint32_t matrix) {
    return matrix != PLAN_NONE && p->matrices[matrix].kind != PLAN_CONSTANT;
}

static bool is_made_in(const struct plan *p, uint32_t matrix, uint32_t first, uint32_t count) {
    uint32_t step = p->matrices[matrix].step;
    return step != PLAN_NONE && step >= first && step - first < count;
}

/* The matrix that the second block reads of the first, and who makes it. */
static bool find_carried(const struct plan *p, struct found *f) {
    for (uint32_t k = 0; k < f->count; k++) {
        for (int o = 0; o < PLAN_OPERANDS; o++) {
            uint32_t own = p->steps[f->first + k].in[o];
            uint32_t next = p->steps[f->first + f->count + k].in[o];
            if (is_flow(p, own) && own != next && !is_made_in(p, own, f->first, f->count)) {
                f->carried = own;
                f->carried_step = p->matrices[next].step - f->first;
                return is_made_in(p, next, f->first, f->count) && matrix_alike(p, own, next);
            }
        }
    }
    return false;
}

/* Operand o of step k in a turn is what the rule at the head of this file allows. */
static bool
operand_follows(const struct plan *p, const struct found *f, uint32_t turn, uint32_t k, int o) {
    uint32_t own = p->steps[f->first + k].in[o];
    uint32_t here = p->steps[f->first + turn * f->count + k].in[o];
    if (!is_flow(p, own)) {
        return true; /* alike: compared with the step */
    }
    uint32_t maker = p->matrices[here].step;
    if (own == f->carried) {
        return maker == f->first + (turn - 1) * f->count + f->carried_step;
    }
    if (is_made_in(p, own, f->first, f->count)) {
        return maker == p->matrices[own].step + turn * f->count;
    }
    return here == own;
}

/* Nobody behind its block reads a result, but for the one that is handed on. */
static bool result_stays(const struct finder *q, const struct found *f, uint32_t turn, uint32_t k) {
    uint32_t end = f->first + (turn + 1) * f->count;
    uint32_t last = q->last_reader[q->p->steps[end - f->count + k].out];
    if (k != f->carried_step) {
        return last < end;
    }
    return turn + 1 == f->turns || last < end + f->count;
}

static bool flows(struct finder *q, struct found *f) {
    if (!find_carried(q->p, f) || q->last_reader[f->carried] >= f->first + f->count) {
        return false;
    }
    for (uint32_t turn = 0; turn < f->turns; turn++) {
        for (uint32_t k = 0; k < f->count; k++) {
            q->work++;
            bool good = result_stays(q, f, turn, k);
            for (int o = 0; o < PLAN_OPERANDS && turn > 0 && good; o++) {
                good = operand_follows(q->p, f, turn, k, o);
            }
            if (!good) {
                return false;
            }
        }
    }
    return true;
}

static uint64_t saved(const struct found *f) {
    return f->turns < 2 ? 0 : (uint64_t)(f->turns - 1) * f->count;
}

/* Steps [first, last) are each like the one `count` later: the best start and number of turns. */
static void
search_run(struct finder *q, uint32_t first, uint32_t last, uint32_t count, struct found *best) {
    for (uint32_t at = first; at + count <= last; at++) {
        struct found f = {at, count, (last - at) / count + 1, 0, 0};
        for (; saved(&f) > saved(best) && q->work < REPEAT_BUDGET; f.turns--) {
            if (flows(q, &f)) {
                *best = f;
            }
        }
    }
}

static struct found search(struct finder *q) {
    struct found best = {0};
    uint32_t steps = q->p->step_count;
    for (uint32_t count = 1; count <= REPEAT_MAX_COUNT && 2 * count <= steps; count++) {
        uint32_t first = 0;
        for (uint32_t i = 0; i + count <= steps && q->work < REPEAT_BUDGET; i++) {
            q->work++;
            if (i + count == steps || !step_alike(q->p, i, i + count)) {
                search_run(q, first, i, count, &best);
                first = i + 1;
            }
        }
    }
    return best;
}

static void find_readers(struct finder *q, struct arena *a) {
    const struct plan *p = q->p;
    q->last_reader = ARENA_ARRAY(a, uint32_t, p->matrix_count);
    for (uint32_t i = 0; i < p->step_count; i++) {
        for (int o = 0; o < PLAN_OPERANDS; o++) {
            if (p->steps[i].in[o] != PLAN_NONE) {
                q->last_reader[p->steps[i].in[o]] = i;
            }
        }
    }
    for (uint32_t i = 0; i < p->graph->output_count; i++) {
        q->last_reader[p->outputs[i]] = p->step_count;
    }
}

/* ---- The plan without the other blocks ------------------------------------------------------- */

static void record_values(struct plan *to, const struct plan *from, struct arena *a) {
    struct plan_repeat *r = &to->repeat;
    uint32_t block = r->count - 1; /* steps without the PLAN_CARRY */
    r->values = ARENA_ARRAY(a, struct value_id, (size_t)r->turns * r->count * PLAN_PARAMS);
    r->nodes = ARENA_ARRAY(a, struct node_id, (size_t)r->turns * r->count);
    for (uint32_t turn = 0; turn < r->turns; turn++) {
        for (uint32_t k = 0; k < r->count; k++) {
            bool is_carry = k == block;
            uint32_t step = r->first + turn * block + (is_carry ? k - 1 : k);
            size_t at = (size_t)turn * r->count + k;
            r->nodes[at] = from->steps[step].node;
            for (int param = 0; param < PLAN_PARAMS; param++) {
                r->values[at * PLAN_PARAMS + (size_t)param] =
                    is_carry ? NO_VALUE : plan_param_value(from, step, (enum plan_param)param, 0);
            }
        }
    }
}

static struct plan_step carry_step(const struct plan_matrix *x, struct node_id node) {
    struct plan_step s = fuse_new_step(PLAN_CARRY, node.n);
    s.rows = x->rows;
    s.inner = s.columns = x->columns;
    s.inner_unit = s.unit = x->unit;
    s.groups = s.panels = x->panels;
    return s;
}

/* Steps of the first block, the PLAN_CARRY and all steps outside; numbers of `from`. */
static void keep_steps(struct plan *to, const struct plan *from, const struct found *f) {
    uint32_t behind = f->first + f->turns * f->count;
    const struct plan_step *last = &from->steps[behind - f->count + f->carried_step];
    for (uint32_t i = 0; i < f->first + f->count; i++) {
        to->steps[to->step_count++] = from->steps[i];
    }
    struct plan_step carry = carry_step(&from->matrices[last->out], last->node);
    carry.in[0] = from->steps[f->first + f->carried_step].out;
    carry.out = last->out;
    to->steps[to->step_count++] = carry;
    for (uint32_t i = behind; i < from->step_count; i++) {
        to->steps[to->step_count++] = from->steps[i];
    }
}

static uint32_t
keep_matrix(struct plan *to, const struct plan *from, uint32_t *number, uint32_t old) {
    if (old != PLAN_NONE && number[old] == PLAN_NONE) {
        number[old] = to->matrix_count;
        to->matrices[to->matrix_count] = from->matrices[old];
        to->matrices[to->matrix_count++].step = PLAN_NONE;
    }
    return old != PLAN_NONE ? number[old] : PLAN_NONE;
}

static void renumber(struct plan *to, const struct plan *from, struct arena *a) {
    uint32_t *number = ARENA_ARRAY(a, uint32_t, from->matrix_count);
    memset(number, 0xFF, sizeof *number * from->matrix_count);
    to->inputs = ARENA_ARRAY(a, uint32_t, from->graph->input_count);
    to->outputs = ARENA_ARRAY(a, uint32_t, from->graph->output_count);
    for (uint32_t i = 0; i < to->step_count; i++) {
        struct plan_step *s = &to->steps[i];
        for (int o = 0; o < PLAN_OPERANDS; o++) {
            s->in[o] = keep_matrix(to, from, number, s->in[o]);
        }
        s->out = keep_matrix(to, from, number, s->out);
        to->matrices[s->out].step = i;
    }
    for (uint32_t i = 0; i < from->graph->input_count; i++) {
        to->inputs[i] = keep_matrix(to, from, number, from->inputs[i]);
    }
    for (uint32_t i = 0; i < from->graph->output_count; i++) {
        to->outputs[i] = keep_matrix(to, from, number, from->outputs[i]);
    }
    to->repeat.carried = number[to->repeat.carried];
}

const struct plan *plan_repeat_find(const struct plan *fused, struct arena *a) {
    struct finder q = {.p = fused};
    find_readers(&q, a);
    struct found f = search(&q);
    if (f.turns < 2) {
        return fused;
    }
    struct plan *p = ARENA_NEW(a, struct plan);
    p->graph = fused->graph;
    p->repeat = (struct plan_repeat){
        .first = f.first, .count = f.count + 1, .turns = f.turns, .carried = f.carried};
    record_values(p, fused, a);
    p->steps = ARENA_ARRAY(a, struct plan_step, fused->step_count - saved(&f) + 1);
    p->matrices = ARENA_ARRAY(a, struct plan_matrix, fused->matrix_count);
    keep_steps(p, fused, &f);
    renumber(p, fused, a);
    return p;
}
