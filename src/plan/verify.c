/* Recomputes from the plan alone what plan.h promises; counts all faults, tells the first. */
#include "plan/plan_internal.h"

#include <string.h>

struct checker {
    const struct plan *p;
    struct err *err;
    uint32_t faults;
};

static void fault(struct checker *c, const char *what, uint32_t at, const char *text)
{
    if (c->faults++ == 0) {
        err_set(c->err, ERR_INTERNAL, "plan: %s %u: %s", what, at, text);
    }
}

static bool ascends(const uint32_t *bound, uint32_t count, uint32_t total)
{
    bool good = bound[0] == 0 && bound[count] == total;
    for (uint32_t i = 0; i < count; i++) {
        good = good && bound[i] < bound[i + 1];
    }
    return good;
}

static void check_dist(struct checker *c, uint32_t at, const struct plan_matrix *x)
{
    const struct plan_dist *d = x->dist;
    if (d == NULL) {
        fault(c, "matrix", at, "no distribution");
        return;
    }
    if (!ascends(d->row_bound, d->m, x->rows) || !ascends(d->panel_bound, d->n, x->panels)) {
        fault(c, "matrix", at, "blocks do not cover it exactly");
    }
    bool seen[TARGET_TILES] = {false};
    for (uint32_t i = 0; i < d->m * d->n; i++) {
        if (d->tile[i] >= c->p->tiles || seen[d->tile[i]]) {
            fault(c, "matrix", at, "tile out of range or used twice");
            return;
        }
        seen[d->tile[i]] = true;
    }
}

static void check_step(struct checker *c, uint32_t at)
{
    const struct plan_step *s = &c->p->steps[at];
    const struct plan_matrix *out = &c->p->matrices[s->out];
    if (out->dist != s->dist || out->step != at) {
        fault(c, "step", at, "its result has another distribution or producer");
    }
    if (out->rows != s->rows || out->columns != s->columns) {
        fault(c, "step", at, "its result has another shape");
    }
    for (int o = 0; o < 2; o++) {
        if (s->in[o] == PLAN_NONE) {
            continue;
        }
        const struct plan_matrix *x = &c->p->matrices[s->in[o]];
        if (x->kind == PLAN_COMPUTED && x->step >= at) {
            fault(c, "step", at, "reads what a later step makes");
        }
        if (s->kind == PLAN_GEMM ? x->rows != s->rows || x->columns != s->inner
                                 : x->kind != PLAN_CONSTANT &&
                    (x->rows != s->rows || x->columns != s->columns)) {
            fault(c, "step", at, "operand has another shape");
        }
    }
    if (s->kind == PLAN_SOFTMAX && s->dist->n != 1) {
        fault(c, "step", at, "softmax without whole rows");
    }
    if (s->kind == PLAN_GEMM &&
        (s->m * s->n * s->k > c->p->tiles || !ascends(s->group_bound, s->k, s->groups) ||
            !ascends(s->panel_bound, s->n, s->panels))) {
        fault(c, "step", at, "grid does not fit");
    }
}

int plan_verify(const struct plan *p, struct err *err)
{
    struct checker c = {.p = p, .err = err};
    for (uint32_t i = 0; i < p->matrix_count; i++) {
        if (p->matrices[i].kind != PLAN_CONSTANT) {
            check_dist(&c, i, &p->matrices[i]);
        }
    }
    for (uint32_t i = 0; i < p->step_count && c.faults == 0; i++) {
        check_step(&c, i);
    }
    return c.faults == 0 ? 0 : -ERR_INTERNAL;
}
