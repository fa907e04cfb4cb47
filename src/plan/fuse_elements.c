/* Steps element by element and along rows. */
#include "plan/fuse_internal.h"

#include <math.h>

/* ---- Element by element --------------------------------------------------------------------- */

bool fuse_map_of_pow(double exponent, uint8_t *ret) {
    static const struct {
        double exponent;
        uint8_t op;
    } rows[] = {{1, MAP_AFFINE}, {2, MAP_SQUARE},      {3, MAP_CUBE},
                {0.5, MAP_SQRT}, {-1, MAP_RECIPROCAL}, {-0.5, MAP_RSQRT}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].exponent == exponent) {
            *ret = rows[i].op;
            return true;
        }
    }
    return false;
}

bool fuse_map_of_node(const struct graph_node *n, uint8_t *ret) {
    switch (n->op) {
    case GRAPH_OP_Neg: *ret = MAP_NEG; return true;
    case GRAPH_OP_Sqrt: *ret = MAP_SQRT; return true;
    case GRAPH_OP_Exp: *ret = MAP_EXP; return true;
    case GRAPH_OP_Reciprocal: *ret = MAP_RECIPROCAL; return true;
    default: return false;
    }
}

/* Operand 0 of an elementwise step: any form, for what is done to each element alone. The result
 * shows its matrix as the operand does. */
static int take_elements(
    struct fuser *f, const struct graph_node *n, struct plan_step *s, struct value_id v,
    struct err *err) {
    const struct fuse_view *w = &f->view[v.n];
    if (fuse_is_constant(f, v)) {
        return fuse_node_error(n, ERR_UNSUPPORTED_OP, err, "one operand must be computed");
    }
    const struct fuse_root *to = &f->root[n->outputs[0].n];
    if (w->form != f->view[n->outputs[0].n].form || w->columns != to->columns ||
        f->root[w->root].rows != to->rows) {
        return fuse_node_error(
            n, ERR_UNSUPPORTED_OP, err, "the result is to lie in another form than the operand");
    }
    if (w->form == VIEW_PLAIN) {
        return fuse_take_plain(f, n, s, 0, v, err);
    }
    s->in[0] = fuse_operand(f, v);
    const struct plan_matrix *x = &f->matrices.data[s->in[0]];
    if (!fuse_column_panel(x, w->first, &s->in_panel[0])) {
        return fuse_node_error(
            n, ERR_UNSUPPORTED_OP, err, "a part of the columns does not start at a multiple of 16");
    }
    s->rows = x->rows;
    s->columns = w->columns;
    s->unit = x->unit == x->columns ? w->columns : x->unit;
    return 0;
}

static int fuse_map(
    struct fuser *f, uint32_t at, struct value_id x, uint8_t op, double a, double b,
    struct err *err) {
    const struct graph_node *n = &f->g->nodes[at];
    struct plan_step s = fuse_new_step(PLAN_MAP, at);
    int rc = take_elements(f, n, &s, x, err);
    if (rc != 0) {
        return rc;
    }
    s.op = op;
    s.a = (float)a;
    s.b = (float)b;
    struct value_id result = n->outputs[0];
    fuse_absorb(f, &s, &result, false);
    fuse_push_step(f, s, result);
    return 0;
}

/* An operation with a number that the compiler knows is a map; true when it was made one. */
static bool fuse_known(struct fuser *f, uint32_t at, int *ret_rc, struct err *err) {
    const struct graph_node *n = &f->g->nodes[at];
    double c = 0;
    bool second = fuse_is_known(f, n->inputs[1], &c);
    if (!second && !fuse_is_known(f, n->inputs[0], &c)) {
        return false;
    }
    struct value_id x = n->inputs[second ? 0 : 1];
    if (f->g->values[x.n].shape.rank < f->g->values[n->outputs[0].n].shape.rank) {
        return false;
    }
    double a = 1, b = 0;
    switch (n->op) {
    case GRAPH_OP_Add: b = c; break;
    case GRAPH_OP_Sub:
        a = second ? 1 : -1;
        b = second ? -c : c;
        break;
    case GRAPH_OP_Mul: a = c; break;
    case GRAPH_OP_Div:
        if (!second || c == 0) {
            return false;
        }
        a = 1 / c;
        break;
    default: return false;
    }
    if (!isfinite(a) || !isfinite(b)) {
        return false;
    }
    *ret_rc = fuse_map(f, at, x, MAP_AFFINE, a, b, err);
    return true;
}

static uint8_t binary_of_node(const struct graph_node *n, bool is_swapped) {
    switch (n->op) {
    case GRAPH_OP_Sub: return is_swapped ? BINARY_RSUB : BINARY_SUB;
    case GRAPH_OP_Mul: return BINARY_MUL;
    case GRAPH_OP_Div: return is_swapped ? BINARY_RDIV : BINARY_DIV;
    case GRAPH_OP_Max: return BINARY_MAX;
    case GRAPH_OP_Min: return BINARY_MIN;
    default: return BINARY_ADD;
    }
}

/* The second operand lies like the first: same form, shape and units. */
static int take_second(
    struct fuser *f, const struct graph_node *n, struct plan_step *s, struct value_id a,
    struct value_id b, struct err *err) {
    const struct fuse_view *va = &f->view[a.n], *vb = &f->view[b.n];
    if (fuse_is_constant(f, b)) {
        if (va->form != VIEW_PLAIN) {
            return fuse_node_error(
                n, ERR_UNSUPPORTED_OP, err,
                "an initializer of this shape cannot meet an operand that lies in heads");
        }
        s->in[1] = fuse_operand(f, b);
        return 0;
    }
    const struct shape *as = &f->g->values[a.n].shape, *bs = &f->g->values[b.n].shape;
    if (!shape_equal(as, bs)) {
        return fuse_node_error(n, ERR_UNSUPPORTED_OP, err, "only an initializer can be broadcast");
    }
    s->in[1] = fuse_operand(f, b);
    const struct plan_matrix *x = &f->matrices.data[s->in[1]];
    uint32_t unit = x->unit == x->columns ? vb->columns : x->unit;
    if (va->form != vb->form || va->heads != vb->heads || unit != s->unit ||
        !fuse_column_panel(x, vb->first, &s->in_panel[1])) {
        return fuse_node_error(
            n, ERR_UNSUPPORTED_OP, err,
            "the operands lie differently: their heads or parts of "
            "columns do not agree");
    }
    return 0;
}

int fuse_pair(struct fuser *f, uint32_t at, struct err *err) {
    const struct graph_node *n = &f->g->nodes[at];
    if (n->input_count != 2) {
        return fuse_node_error(n, ERR_UNSUPPORTED_OP, err, "exactly two operands are supported");
    }
    int rc = 0;
    if (fuse_known(f, at, &rc, err)) {
        return rc;
    }
    struct value_id a = n->inputs[0], b = n->inputs[1];
    bool is_swapped = fuse_is_constant(f, a);
    if (is_swapped) {
        a = n->inputs[1];
        b = n->inputs[0];
    }
    bool is_add = n->op == GRAPH_OP_Add;
    struct plan_step s = fuse_new_step(is_add ? PLAN_ADD : PLAN_BINARY, at);
    rc = take_elements(f, n, &s, a, err);
    if (rc != 0) {
        return rc;
    }
    if (!shape_equal(&f->g->values[n->outputs[0].n].shape, &f->g->values[a.n].shape)) {
        return fuse_node_error(n, ERR_UNSUPPORTED_OP, err, "only an initializer can be broadcast");
    }
    s.op = binary_of_node(n, is_swapped);
    bool is_plain = f->view[a.n].form == VIEW_PLAIN;
    uint64_t rows, own;
    fuse_matrix_shape(&f->g->values[b.n].shape, &rows, &own);
    if (fuse_is_row(f, b, s.columns) && (is_plain || own == 1)) {
        s.kind = is_add ? PLAN_ADD_ROW : PLAN_BINARY_ROW;
        s.row = fuse_root_of(f, b);
    } else {
        rc = take_second(f, n, &s, a, b, err);
    }
    if (rc != 0) {
        return rc;
    }
    struct value_id result = n->outputs[0];
    fuse_absorb(f, &s, &result, false);
    fuse_push_step(f, s, result);
    return 0;
}

int fuse_unary(struct fuser *f, uint32_t at, struct err *err) {
    const struct graph_node *n = &f->g->nodes[at];
    uint8_t op = MAP_AFFINE;
    if (fuse_map_of_node(n, &op)) {
        return fuse_map(f, at, n->inputs[0], op, 1, 0, err);
    }
    if (n->op == GRAPH_OP_Pow) {
        double exponent;
        if (!fuse_is_known(f, n->inputs[1], &exponent)) {
            return fuse_node_error(
                n, ERR_UNSUPPORTED_OP, err, "the exponent must be an initializer of one element");
        }
        return fuse_map_of_pow(exponent, &op) ? fuse_map(f, at, n->inputs[0], op, 1, 0, err)
                                              : -ERR_UNSUPPORTED_OP;
    }
    struct plan_step s = fuse_new_step(PLAN_UNARY, at);
    int rc = take_elements(f, n, &s, n->inputs[0], err);
    if (rc != 0) {
        return rc;
    }
    fuse_act(n, &s.act);
    fuse_push_step(f, s, n->outputs[0]);
    return 0;
}

/* ---- Along rows ------------------------------------------------------------------------------ */

/* For steps that work along rows: columns without gaps, and whole panels unless at the end. */
static int take_rows(
    struct fuser *f, const struct graph_node *n, struct plan_step *s, struct value_id v,
    struct err *err) {
    int rc = fuse_take_plain(f, n, s, 0, v, err);
    if (rc == 0 && s->unit != s->columns) {
        rc = fuse_node_error(
            n, ERR_UNSUPPORTED_OP, err,
            "the operand's columns lie in parts that are no multiple of 16");
    }
    return rc;
}

static int check_last_axis(const struct fuser *f, const struct graph_node *n, struct err *err) {
    int rank = f->g->values[n->inputs[0].n].shape.rank;
    if (rank == 0 || graph_attr(n, "axis")->i != rank - 1) {
        return fuse_node_error(n, ERR_UNSUPPORTED_OP, err, "only the last axis is supported");
    }
    if (fuse_is_constant(f, n->inputs[0])) {
        return fuse_node_error(
            n, ERR_UNSUPPORTED_OP, err, "the operand must not be an initializer");
    }
    return 0;
}

int fuse_softmax(struct fuser *f, uint32_t at, struct err *err) {
    const struct graph_node *n = &f->g->nodes[at];
    struct plan_step s = fuse_new_step(PLAN_SOFTMAX, at);
    int rc = check_last_axis(f, n, err);
    rc = rc != 0 ? rc : take_rows(f, n, &s, n->inputs[0], err);
    if (rc == 0) {
        fuse_push_step(f, s, n->outputs[0]);
    }
    return rc;
}

int fuse_norm(struct fuser *f, uint32_t at, struct err *err) {
    const struct graph_node *n = &f->g->nodes[at];
    struct plan_step s = fuse_new_step(PLAN_NORM, at);
    int rc = check_last_axis(f, n, err);
    rc = rc != 0 ? rc : take_rows(f, n, &s, n->inputs[0], err);
    if (rc != 0) {
        return rc;
    }
    bool has_bias = n->input_count > 2 && n->inputs[2].n != NO_VALUE.n;
    if (!fuse_is_row(f, n->inputs[1], s.columns) ||
        (has_bias && !fuse_is_row(f, n->inputs[2], s.columns))) {
        return fuse_node_error(
            n, ERR_UNSUPPORTED_OP, err, "scale and bias must be initializers of one row");
    }
    s.row = fuse_root_of(f, n->inputs[1]);
    s.row2 = has_bias ? fuse_root_of(f, n->inputs[2]) : NO_VALUE;
    s.a = (float)graph_attr(n, "epsilon")->f;
    fuse_push_step(f, s, n->outputs[0]);
    return 0;
}
