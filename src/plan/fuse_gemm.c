/* Products with constant weights: MatMul and Gemm, with what of transA, alpha, beta and C needs a
 * step beside the product's. */
#include "plan/fuse_internal.h"

/* Out of a turned operand a plain one, by a step of its own. */
static int take_turned(
    struct fuser *f, const struct graph_node *n, uint32_t at, struct plan_step *s,
    struct value_id v, struct err *err) {
    const struct fuse_root *r = &f->root[f->view[v.n].root];
    const struct fuse_view *w = &f->view[v.n];
    struct plan_step turn = fuse_new_step(PLAN_TURN, at);
    turn.in[0] = fuse_operand(f, v);
    const struct shape *shape = &f->g->values[v.n].shape;
    int64_t rows = shape->dim[shape->rank - (w->form == VIEW_TURNED ? 1 : 2)];
    if (w->first != 0 || w->columns != r->columns ||
        f->matrices.data[turn.in[0]].unit != r->columns || rows != (int64_t)r->rows) {
        return fuse_node_error(
            n, ERR_UNSUPPORTED_OP, err, "only a whole matrix without batches can be turned");
    }
    turn.rows = r->columns;
    turn.columns = turn.unit = r->rows;
    s->in[0] = fuse_push_inner(f, turn);
    f->matrices.data[s->in[0]].uses++;
    s->rows = turn.rows;
    s->columns = s->unit = turn.columns;
    return 0;
}

struct gemm_spec {
    struct value_id x, w, c;
    bool turns_x, turns_w;
    double alpha, beta;
};

/* First operand of a product with weights: any of the forms. */
static int gemm_operand(
    struct fuser *f, const struct graph_node *n, uint32_t at, const struct gemm_spec *g,
    struct plan_step *s, struct err *err) {
    bool is_turned = (f->view[g->x.n].form == VIEW_TURNED) != g->turns_x;
    if (!is_turned && f->view[g->x.n].form != VIEW_TURNED) {
        int rc = fuse_take_plain(f, n, s, 0, g->x, err);
        if (rc != 0) {
            return rc;
        }
    } else if (is_turned && !fuse_is_constant(f, g->x)) {
        int rc = take_turned(f, n, at, s, g->x, err);
        if (rc != 0) {
            return rc;
        }
    } else {
        return fuse_node_error(n, ERR_UNSUPPORTED_OP, err, "the first operand must not be turned");
    }
    const struct plan_matrix *x = &f->matrices.data[s->in[0]];
    if (x->padding == PADDING_WILD) {
        return fuse_node_error(
            n, ERR_UNSUPPORTED_OP, err,
            "the first operand is a quotient whose last axis is no multiple of 16");
    }
    s->inner = s->columns;
    s->inner_unit = s->unit;
    s->groups = fuse_panels(s->inner, s->inner_unit);
    return 0;
}

/* alpha (x w) + beta c behind the bare product in *s: the steps that are needed beside it. */
static void push_gemm(
    struct fuser *f, uint32_t at, struct plan_step s, const struct gemm_spec *g,
    struct value_id result) {
    bool has_c = g->c.n != NO_VALUE.n;
    bool is_row_c = has_c && fuse_is_row(f, g->c, s.columns);
    bool scales = g->alpha != g->beta && has_c ? true : !has_c && g->alpha != 1;
    if (!scales && has_c && g->beta == 1 && is_row_c) {
        s.row = fuse_root_of(f, g->c);
        fuse_absorb(f, &s, &result, false);
        fuse_push_step(f, s, result);
        return;
    }
    if (!scales && !has_c) {
        fuse_absorb(f, &s, &result, true);
        fuse_push_step(f, s, result);
        return;
    }
    /* beta ((alpha / beta) x w + c): at most two scalings, each without the other's rounding. */
    double scale = has_c ? g->alpha / g->beta : g->alpha;
    bool last_scales = has_c && g->beta != 1;
    uint32_t made = fuse_push_inner(f, s);
    struct plan_step steps[3];
    int count = 0;
    if (scale != 1) {
        steps[count] = fuse_new_step(PLAN_MAP, at);
        steps[count].op = MAP_AFFINE;
        steps[count++].a = (float)scale;
    }
    if (has_c) {
        steps[count] = fuse_new_step(is_row_c ? PLAN_ADD_ROW : PLAN_ADD, at);
        if (is_row_c) {
            steps[count].row = fuse_root_of(f, g->c);
        } else {
            steps[count].in[1] = fuse_operand(f, g->c);
        }
        count++;
    }
    if (last_scales) {
        steps[count] = fuse_new_step(PLAN_MAP, at);
        steps[count].op = MAP_AFFINE;
        steps[count++].a = (float)g->beta;
    }
    for (int i = 0; i < count; i++) {
        steps[i].in[0] = made;
        f->matrices.data[made].uses++;
        steps[i].rows = s.rows;
        steps[i].columns = s.columns;
        steps[i].unit = s.unit;
        if (i + 1 == count) {
            fuse_absorb(f, &steps[i], &result, false);
            fuse_push_step(f, steps[i], result);
        } else {
            made = fuse_push_inner(f, steps[i]);
        }
    }
}

/* Where absorption will end, so that the product gets the unit that is wanted there. */
static uint32_t final_unit(const struct fuser *f, struct value_id v, uint32_t columns) {
    return f->root[v.n].columns == columns ? fuse_unit(f, v.n) : columns;
}

int fuse_gemm(struct fuser *f, uint32_t at, struct err *err) {
    const struct graph_node *n = &f->g->nodes[at];
    struct gemm_spec g = {
        .x = n->inputs[0],
        .w = fuse_root_of(f, n->inputs[1]),
        .c = NO_VALUE,
        .alpha = 1,
        .beta = 1};
    if (n->op == GRAPH_OP_Gemm) {
        g.alpha = graph_attr(n, "alpha")->f;
        g.beta = graph_attr(n, "beta")->f;
        g.turns_x = graph_attr(n, "transA")->i != 0;
        g.turns_w = graph_attr(n, "transB")->i != 0;
        if (n->input_count > 2 && n->inputs[2].n != NO_VALUE.n) {
            g.c = n->inputs[2];
        }
        if (g.c.n != NO_VALUE.n && g.beta == 0) {
            return fuse_node_error(
                n, ERR_UNSUPPORTED_OP, err, "with beta 0 the third operand must be left out");
        }
        if (g.alpha == 0) {
            return fuse_node_error(n, ERR_UNSUPPORTED_OP, err, "alpha must not be 0");
        }
    }
    const struct shape *ws = &f->g->values[g.w.n].shape;
    uint64_t rows, columns;
    fuse_matrix_shape(ws, &rows, &columns);
    bool is_flat = ws->rank >= 2;
    for (int d = 0; d + 2 < ws->rank; d++) {
        is_flat = is_flat && ws->dim[d] == 1;
    }
    if (!is_flat) {
        return fuse_node_error(n, ERR_UNSUPPORTED_OP, err, "the weights must have 2 dimensions");
    }
    struct plan_step s = fuse_new_step(PLAN_GEMM, at);
    int rc = gemm_operand(f, n, at, &g, &s, err);
    if (rc != 0) {
        return rc;
    }
    s.weights = g.w;
    s.is_transposed = g.turns_w;
    s.columns = (uint32_t)(g.turns_w ? rows : columns);
    if ((uint32_t)(g.turns_w ? columns : rows) != s.inner) {
        return fuse_node_error(n, ERR_SHAPE, err, "inner dimensions differ");
    }
    if (g.c.n != NO_VALUE.n && !fuse_is_row(f, g.c, s.columns) &&
        (!fuse_is_whole(f, g.c) ||
         (!fuse_is_constant(f, g.c) && (f->root[f->view[g.c.n].root].rows != s.rows ||
                                        f->root[f->view[g.c.n].root].columns != s.columns)))) {
        return fuse_node_error(n, ERR_UNSUPPORTED_OP, err, "only an initializer can be broadcast");
    }
    s.unit = final_unit(f, n->outputs[0], s.columns);
    if (g.c.n != NO_VALUE.n && !fuse_is_constant(f, g.c)) {
        uint32_t c = fuse_operand(f, g.c);
        f->matrices.data[c].uses--;
        if (f->matrices.data[c].unit != s.unit) {
            return fuse_node_error(
                n, ERR_UNSUPPORTED_OP, err, "the third operand's columns lie in other parts");
        }
    }
    push_gemm(f, at, s, &g, n->outputs[0]);
    return 0;
}
