/* Recomputes from the plan alone what plan.h promises; counts all faults, tells the first. */
#include "plan/plan_internal.h"

#include <string.h>

struct checker {
    const struct plan *p;
    struct err *err;
    uint32_t faults;
};

static void fault(struct checker *c, const char *what, uint32_t at, const char *text) {
    if (c->faults++ == 0) {
        err_set(c->err, ERR_INTERNAL, "plan: %s %u: %s", what, at, text);
    }
}

static bool ascends(const uint32_t *bound, uint32_t count, uint32_t total) {
    bool good = bound[0] == 0 && bound[count] == total;
    for (uint32_t i = 0; i < count; i++) {
        good = good && bound[i] < bound[i + 1];
    }
    return good;
}

static void check_dist(struct checker *c, uint32_t at, const struct plan_matrix *x) {
    const struct plan_dist *d = x->dist;
    if (plan_deferred_norm(c->p, at) != PLAN_NONE) {
        if (d != NULL || x->kind != PLAN_COMPUTED) {
            fault(c, "matrix", at, "is deferred and has a place");
        }
        return;
    }
    if (d == NULL) {
        fault(c, "matrix", at, "no distribution");
        return;
    }
    if ((d->quads != 4 && d->quads != 1) || !ascends(d->row_bound, d->m, x->rows) ||
        !ascends(d->panel_bound, d->n, x->panels * 4 / (d->quads == 1 ? 1 : 4))) {
        fault(c, "matrix", at, "blocks do not cover it exactly");
        return;
    }
    if (d->quads == 1 && d->m != x->rows) {
        fault(c, "matrix", at, "strips of several rows");
    }
    bool seen[TARGET_TILES] = {false};
    for (uint32_t i = 0; i < d->m * d->n; i++) {
        bool is_alone = d->m * d->n <= c->p->tiles;
        if (d->tile[i] >= c->p->tiles || (is_alone && seen[d->tile[i]])) {
            fault(c, "matrix", at, "tile out of range or used twice");
            return;
        }
        seen[d->tile[i]] = true;
    }
}

/* The parts that blocks need lie inside the operand; blocks of a product inside one head. */
static void check_needs(struct checker *c, uint32_t at, const struct plan_matrix *x, int o) {
    const struct plan_step *s = &c->p->steps[at];
    for (uint32_t i = 0; i < s->dist->m; i++) {
        for (uint32_t j = 0; j < s->dist->n; j++) {
            struct plan_need n = plan_need(s, s->dist, i, j, o);
            if (s->kind == PLAN_PICK && n.row_first == n.row_last) {
                continue;
            }
            if (n.row_first >= n.row_last || n.row_last > x->rows ||
                n.panel_first >= n.panel_last || n.panel_last > x->panels) {
                fault(c, "step", at, "an operand is smaller than what it needs");
                return;
            }
            bool is_product = s->kind == PLAN_PRODUCT || s->kind == PLAN_ATTENTION;
            uint32_t a_rows = s->product.a_rows, out = s->product.out_panels;
            if (is_product &&
                (s->dist->row_bound[i] / a_rows != (s->dist->row_bound[i + 1] - 1) / a_rows ||
                 (out > 0 ? s->dist->panel_bound[j] / out != (s->dist->panel_bound[j + 1] - 1) / out
                          : s->dist->n != 1))) {
                fault(c, "step", at, "a block lies in several heads");
                return;
            }
        }
    }
}

/* Limits of ATTENTION_BLOCK and of what may be summed in f16. */
static void check_attention(struct checker *c, uint32_t at) {
    const struct plan_step *s = &c->p->steps[at];
    uint32_t parts = s->dist->m / s->product.batches;
    bool good = s->k > 0 && s->k <= KERNEL_MERGE_PARTS && parts % s->k == 0 &&
                s->product.out_panels <= KERNEL_BLOCK_PANELS;
    for (uint32_t i = 0; good && i < s->k; i++) {
        uint32_t first = plan_key_bound(s, i), last = plan_key_bound(s, i + 1);
        good = first % 16 == 0 && first < last && last - first <= 16 * PLAN_F16_GROUPS;
    }
    for (uint32_t i = 0; good && i < s->dist->m; i += s->k) {
        good = s->dist->row_bound[i + s->k] - s->dist->row_bound[i] <= KERNEL_BLOCK_ROWS;
    }
    if (!good) {
        fault(c, "step", at, "attention in blocks of a wrong size");
    }
}

/* Readers of what has no place of its own. */
static void check_deferred(struct checker *c, uint32_t at) {
    const struct plan_step *s = &c->p->steps[at];
    for (uint32_t i = 0; i < c->p->step_count; i++) {
        const struct plan_step *r = &c->p->steps[i];
        for (int o = 0; o < PLAN_OPERANDS; o++) {
            bool makes_rows = r->kind == PLAN_GEMM && o == 0 && r->k == 1 && r->in_panel[0] == 0 &&
                              r->groups == s->panels;
            if (r->in[o] == s->out && s->is_deferred && !makes_rows) {
                fault(c, "step", i, "reads a deferred operand that it cannot make");
            }
            if (r->in[o] == s->out && s->is_fused && r->fused != 1 + o) {
                fault(c, "step", i, "reads a product that is fused into another step");
            }
        }
    }
    if (s->fused > 0) {
        const struct plan_step *gemm = &c->p->steps[plan_fused_gemm(c->p, at)];
        if (s->kind != PLAN_ADD || !gemm->is_fused || !gemm->form.by_rows ||
            !plan_dist_equal(gemm->dist, s->dist)) {
            fault(c, "step", at, "is fused into what is no product by rows like it");
        }
    }
}

static void check_step(struct checker *c, uint32_t at) {
    const struct plan_step *s = &c->p->steps[at];
    const struct plan_matrix *out = &c->p->matrices[s->out];
    if (out->dist != s->dist || out->step != at) {
        fault(c, "step", at, "its result has another distribution or producer");
    }
    if (out->rows != s->rows || out->columns != s->columns) {
        fault(c, "step", at, "its result has another shape");
    }
    for (int o = 0; o < PLAN_OPERANDS; o++) {
        if (s->in[o] == PLAN_NONE) {
            continue;
        }
        const struct plan_matrix *x = &c->p->matrices[s->in[o]];
        if (x->kind == PLAN_COMPUTED && x->step >= at) {
            fault(c, "step", at, "reads what a later step makes");
        }
        if (s->kind == PLAN_GEMM) {
            if (x->rows != s->rows || s->in_panel[o] + s->groups > x->panels) {
                fault(c, "step", at, "operand has another shape");
            }
        } else if (
            x->kind != PLAN_CONSTANT && !s->is_deferred && s->fused == 0 && s->kind != PLAN_CARRY) {
            check_needs(c, at, x, o);
        }
    }
    if (s->product.is_blocked && c->faults == 0) {
        check_attention(c, at);
    }
    check_deferred(c, at);
    if (s->is_deferred) {
        return;
    }
    if (s->kind != PLAN_GEMM && s->kind != PLAN_CARRY && s->fused == 0 && s->dist->quads != 4) {
        fault(c, "step", at, "its result lies in strips");
    }
    if (s->form.by_rows && (s->kind != PLAN_GEMM || s->k != 1 || s->m != s->rows ||
                            s->dist->m != s->m || s->dist->n != s->n)) {
        fault(c, "step", at, "works by rows without one row a tile");
    }
    if ((s->kind == PLAN_SOFTMAX || s->kind == PLAN_NORM || s->kind == PLAN_ROW_REDUCE) &&
        s->dist->n != 1) {
        fault(c, "step", at, "works along rows without whole ones");
    }
    if (s->kind == PLAN_GEMM && (s->form.first + s->m * s->n * s->k > c->p->tiles ||
                                 !ascends(s->group_bound, s->k, s->groups) ||
                                 (!s->form.by_rows && !ascends(s->panel_bound, s->n, s->panels)))) {
        fault(c, "step", at, "grid does not fit");
    }
}

int plan_verify(const struct plan *p, struct err *err) {
    struct checker c = {.p = p, .err = err};
    for (uint32_t i = 0; i < p->matrix_count; i++) {
        if (p->matrices[i].kind != PLAN_CONSTANT) {
            check_dist(&c, i, &p->matrices[i]);
        }
    }
    for (uint32_t i = 0; i < p->step_count && c.faults == 0; i++) {
        check_step(&c, i);
    }
    if (c.faults == 0) {
        return plan_repeat_verify(p, err);
    }
    return -ERR_INTERNAL;
}
