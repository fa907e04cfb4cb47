/* Nodes to steps. A product takes the row addition and the activation behind it, an addition or
 * another elementwise step the activation, when nobody else reads the value in between; nodes that
 * are views only (views.c) make no step. One walk over the nodes in topological order, so it ends.
 */
#include "plan/fuse_internal.h"

#include <math.h>
#include <string.h>

bool fuse_is_constant(const struct fuser *f, struct value_id v)
{
    return f->g->values[f->view[v.n].root].kind == VALUE_INITIALIZER;
}

static struct value_id root_of(const struct fuser *f, struct value_id v)
{
    return (struct value_id){f->view[v.n].root};
}

static bool act_of_node(const struct graph_node *n, enum kernel_act *ret)
{
    switch (n->op) {
    case GRAPH_OP_Relu:
        *ret = ACT_RELU;
        return true;
    case GRAPH_OP_Tanh:
        *ret = ACT_TANH;
        return true;
    case GRAPH_OP_Sigmoid:
        *ret = ACT_SIGMOID;
        return true;
    case GRAPH_OP_Gelu: {
        const char *approximate = graph_attr(n, "approximate")->s;
        *ret = approximate != NULL && strcmp(approximate, "tanh") == 0 ? ACT_GELU_TANH
                                                                       : ACT_GELU_ERF;
        return true;
    }
    default:
        return false;
    }
}

/* All axes but the last are 1, the last one is 1 or `columns`. */
static bool is_row(const struct fuser *f, struct value_id v, uint32_t columns)
{
    uint64_t rows, own;
    struct value_id root = root_of(f, v);
    fuse_matrix_shape(&f->g->values[root.n].shape, &rows, &own);
    return fuse_is_constant(f, v) && rows == 1 && (own == columns || own == 1) &&
        f->g->values[root.n].dtype == DTYPE_FLOAT16;
}

/* A constant of one element whose value the compiler knows. */
static bool is_known(const struct fuser *f, struct value_id v, double *ret)
{
    const struct graph_value *x = &f->g->values[f->view[v.n].root];
    uint64_t rows, columns;
    fuse_matrix_shape(&x->shape, &rows, &columns);
    if (x->kind != VALUE_INITIALIZER || x->source.bytes == NULL || !x->is_hashed_constant ||
        rows != 1 || columns != 1) {
        return false;
    }
    *ret = tensor_get(x->dtype, x->source.bytes, 0);
    return true;
}

static int check_value(
    const struct fuser *f, const struct graph_node *n, struct value_id v, struct err *err)
{
    const struct graph_value *value = &f->g->values[v.n];
    if (value->dtype != DTYPE_FLOAT16) {
        char text[160];
        snprintf(text, sizeof text, "'%.100s' is %s, only float16 is supported", value->name,
            dtype_name(value->dtype));
        return fuse_node_error(n, ERR_DTYPE, err, text);
    }
    uint64_t rows, columns;
    fuse_matrix_shape(&value->shape, &rows, &columns);
    if (rows == 0 || columns == 0 || rows > PLAN_MAX_ROWS || columns > PLAN_MAX_COLUMNS) {
        char text[192];
        snprintf(text, sizeof text, "'%.60s' has %llu rows of %llu columns, supported are 1 to %u "
            "rows and 1 to %u columns", value->name, (unsigned long long)rows,
            (unsigned long long)columns, PLAN_MAX_ROWS, PLAN_MAX_COLUMNS);
        return fuse_node_error(n, ERR_UNSUPPORTED_OP, err, text);
    }
    return 0;
}

static uint32_t panels_of(uint32_t columns, uint32_t unit)
{
    return columns / unit * ((unit + 15) / 16) + (columns % unit + 15) / 16;
}

static uint32_t add_matrix(struct fuser *f, enum plan_matrix_kind kind, struct value_id v,
    uint32_t rows, uint32_t columns, uint32_t unit)
{
    vec_push(f->arena, &f->matrices,
        (struct plan_matrix){.kind = kind,
            .value = v,
            .rows = rows,
            .columns = columns,
            .unit = unit,
            .panels = panels_of(columns, unit),
            .step = PLAN_NONE});
    return (uint32_t)f->matrices.len - 1;
}

/* The matrix of an operand's root, an input's made on first sight; a constant's for this use. */
uint32_t fuse_operand(struct fuser *f, struct value_id v)
{
    struct value_id root = root_of(f, v);
    struct fuse_root *r = &f->root[root.n];
    if (fuse_is_constant(f, v)) {
        uint32_t at = add_matrix(f, PLAN_CONSTANT, root, r->rows, r->columns, r->columns);
        f->matrices.data[at].uses++;
        return at;
    }
    if (r->matrix == PLAN_NONE) {
        r->matrix = add_matrix(f, PLAN_INPUT, root, r->rows, r->columns, fuse_unit(f, root.n));
    }
    f->matrices.data[r->matrix].uses++;
    return r->matrix;
}

/* The only reader of v, or NULL when it has several, is an output or is read through a view. */
static const struct graph_node *only_reader(
    const struct fuser *f, struct value_id v, uint32_t *ret_node)
{
    const struct fuse_root *r = &f->root[f->view[v.n].root];
    if (r->uses != 1 || r->reader.n == NO_NODE.n || !fuse_is_whole(f, v)) {
        return NULL;
    }
    *ret_node = r->reader.n;
    const struct graph_node *n = &f->g->nodes[r->reader.n];
    for (uint32_t i = 0; i < n->input_count; i++) {
        if (n->inputs[i].n != NO_VALUE.n && f->view[n->inputs[i].n].root == f->view[v.n].root &&
            !fuse_is_whole(f, n->inputs[i])) {
            return NULL;
        }
    }
    return n;
}

/* The result of n is the whole matrix of a value of these columns. */
static bool keeps_shape(const struct fuser *f, const struct graph_node *n, struct value_id v)
{
    const struct fuse_root *a = &f->root[f->view[v.n].root], *b = &f->root[n->outputs[0].n];
    return fuse_is_whole(f, n->outputs[0]) && a->rows == b->rows && a->columns == b->columns;
}

/* Follows single readers from *v: first a row addition, then an activation. */
static void absorb(struct fuser *f, struct plan_step *s, struct value_id *v, bool take_row)
{
    uint32_t at = 0;
    const struct graph_node *n = only_reader(f, *v, &at);
    if (take_row && n != NULL && n->op == GRAPH_OP_Add && keeps_shape(f, n, *v)) {
        uint32_t other = f->view[n->inputs[0].n].root == f->view[v->n].root ? 1 : 0;
        if (is_row(f, n->inputs[other], s->columns)) {
            s->row = root_of(f, n->inputs[other]);
            f->is_absorbed[at] = true;
            *v = n->outputs[0];
            n = only_reader(f, *v, &at);
        }
    }
    enum kernel_act act;
    if (n != NULL && act_of_node(n, &act)) {
        s->act = act;
        f->is_absorbed[at] = true;
        *v = n->outputs[0];
    }
}

struct plan_step fuse_new_step(enum plan_kind kind, uint32_t node)
{
    return (struct plan_step){.kind = kind,
        .node = {node},
        .in = {PLAN_NONE, PLAN_NONE, PLAN_NONE},
        .weights = NO_VALUE,
        .row = NO_VALUE,
        .row2 = NO_VALUE,
        .a = 1,
        .k = 1};
}

/* What the columns that fill up panels hold after a step. */
static enum plan_padding padding_of(const struct fuser *f, const struct plan_step *s)
{
    enum plan_padding worst = PADDING_ZERO;
    for (int o = 0; o < PLAN_OPERANDS; o++) {
        if (s->in[o] != PLAN_NONE && f->matrices.data[s->in[o]].padding > worst) {
            worst = f->matrices.data[s->in[o]].padding;
        }
    }
    bool moves_zero = s->act == ACT_SIGMOID;
    switch (s->kind) {
    case PLAN_BINARY:
    case PLAN_BINARY_ROW:
        worst = s->op == BINARY_DIV || s->op == BINARY_RDIV ? PADDING_WILD : worst;
        break;
    case PLAN_MAP:
        moves_zero = moves_zero || s->op == MAP_EXP || (s->op == MAP_AFFINE && s->b != 0);
        worst = s->op == MAP_RECIPROCAL || s->op == MAP_RSQRT ? PADDING_WILD : worst;
        break;
    case PLAN_ADD:
    case PLAN_ADD_ROW:
    case PLAN_UNARY:
        break;
    default: /* make their padding anew */
        worst = PADDING_ZERO;
        break;
    }
    bool has_none = s->unit % 16 == 0;
    return has_none ? PADDING_ZERO
        : moves_zero && worst == PADDING_ZERO ? PADDING_FINITE
                                              : worst;
}

uint32_t fuse_push_inner(struct fuser *f, struct plan_step s)
{
    return fuse_push_step(f, s, NO_VALUE);
}

uint32_t fuse_push_step(struct fuser *f, struct plan_step s, struct value_id result)
{
    struct value_id named = result.n != NO_VALUE.n ? result : f->g->nodes[s.node.n].outputs[0];
    s.out = add_matrix(f, PLAN_COMPUTED, named, s.rows, s.columns, s.unit);
    if (result.n != NO_VALUE.n) {
        f->root[result.n].matrix = s.out;
    }
    struct plan_matrix *x = &f->matrices.data[s.out];
    x->step = (uint32_t)f->steps.len;
    x->padding = padding_of(f, &s);
    s.panels = x->panels;
    if (s.kind != PLAN_GEMM && s.kind != PLAN_PRODUCT) {
        s.groups = s.panels;
        s.inner = s.columns;
        s.inner_unit = s.unit;
    }
    vec_push(f->arena, &f->steps, s);
    return s.out;
}

/* Operand o: a computed value that must show its rows and columns plainly, a window perhaps. */
static int take_plain(struct fuser *f, const struct graph_node *n, struct plan_step *s, int o,
    struct value_id v, struct err *err)
{
    const struct fuse_view *w = &f->view[v.n];
    if (w->form != VIEW_PLAIN) {
        return fuse_node_error(
            n, ERR_UNSUPPORTED_OP, err, "an operand lies in heads or turned, which only products "
            "and attention can read");
    }
    s->in[o] = fuse_operand(f, v);
    const struct plan_matrix *x = &f->matrices.data[s->in[o]];
    uint32_t end;
    bool good = fuse_column_panel(x, w->first, &s->in_panel[o]) &&
        ((w->first + w->columns) % x->unit == 0 ||
            fuse_column_panel(x, w->first + w->columns, &end));
    if (!good) {
        return fuse_node_error(
            n, ERR_UNSUPPORTED_OP, err, "a part of the columns does not start at a multiple of 16");
    }
    if (o == 0) {
        s->rows = x->rows;
        s->columns = w->columns;
        s->unit = x->unit == x->columns ? w->columns : x->unit;
    }
    return 0;
}

/* For steps that work along rows: columns without gaps, and whole panels unless at the end. */
static int take_rows(struct fuser *f, const struct graph_node *n, struct plan_step *s,
    struct value_id v, struct err *err)
{
    int rc = take_plain(f, n, s, 0, v, err);
    if (rc == 0 && s->unit != s->columns) {
        rc = fuse_node_error(n, ERR_UNSUPPORTED_OP, err,
            "the operand's columns lie in parts that are no multiple of 16");
    }
    return rc;
}

/* Out of a turned operand a plain one, by a step of its own. */
static int take_turned(struct fuser *f, const struct graph_node *n, uint32_t at,
    struct plan_step *s, struct value_id v, struct err *err)
{
    const struct fuse_root *r = &f->root[f->view[v.n].root];
    const struct fuse_view *w = &f->view[v.n];
    struct plan_step turn = fuse_new_step(PLAN_TURN, at);
    turn.in[0] = fuse_operand(f, v);
    const struct shape *shape = &f->g->values[v.n].shape;
    int64_t rows = shape->dim[shape->rank - (w->form == VIEW_TURNED ? 1 : 2)];
    if (w->first != 0 || w->columns != r->columns ||
        f->matrices.data[turn.in[0]].unit != r->columns || rows != (int64_t)r->rows) {
        return fuse_node_error(n, ERR_UNSUPPORTED_OP, err,
            "only a whole matrix without batches can be turned");
    }
    turn.rows = r->columns;
    turn.columns = turn.unit = r->rows;
    s->in[0] = fuse_push_inner(f, turn);
    f->matrices.data[s->in[0]].uses++;
    s->rows = turn.rows;
    s->columns = s->unit = turn.columns;
    return 0;
}

/* ---- Products with constant weights --------------------------------------------------------- */

struct gemm_spec {
    struct value_id x, w, c;
    bool turns_x, turns_w;
    double alpha, beta;
};

/* First operand of a product with weights: any of the forms. */
static int gemm_operand(struct fuser *f, const struct graph_node *n, uint32_t at,
    const struct gemm_spec *g, struct plan_step *s, struct err *err)
{
    bool is_turned = (f->view[g->x.n].form == VIEW_TURNED) != g->turns_x;
    if (!is_turned && f->view[g->x.n].form != VIEW_TURNED) {
        int rc = take_plain(f, n, s, 0, g->x, err);
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
        return fuse_node_error(n, ERR_UNSUPPORTED_OP, err,
            "the first operand is a quotient whose last axis is no multiple of 16");
    }
    s->inner = s->columns;
    s->inner_unit = s->unit;
    s->groups = panels_of(s->inner, s->inner_unit);
    return 0;
}

/* alpha (x w) + beta c behind the bare product in *s: the steps that are needed beside it. */
static void push_gemm(struct fuser *f, uint32_t at, struct plan_step s, const struct gemm_spec *g,
    struct value_id result)
{
    bool has_c = g->c.n != NO_VALUE.n;
    bool is_row_c = has_c && is_row(f, g->c, s.columns);
    bool scales = g->alpha != g->beta && has_c ? true : !has_c && g->alpha != 1;
    if (!scales && has_c && g->beta == 1 && is_row_c) {
        s.row = root_of(f, g->c);
        absorb(f, &s, &result, false);
        fuse_push_step(f, s, result);
        return;
    }
    if (!scales && !has_c) {
        absorb(f, &s, &result, true);
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
            steps[count].row = root_of(f, g->c);
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
            absorb(f, &steps[i], &result, false);
            fuse_push_step(f, steps[i], result);
        } else {
            made = fuse_push_inner(f, steps[i]);
        }
    }
}

/* Where absorption will end, so that the product gets the unit that is wanted there. */
static uint32_t final_unit(const struct fuser *f, struct value_id v, uint32_t columns)
{
    return f->root[v.n].columns == columns ? fuse_unit(f, v.n) : columns;
}

static int fuse_gemm(struct fuser *f, uint32_t at, struct err *err)
{
    const struct graph_node *n = &f->g->nodes[at];
    struct gemm_spec g = {
        .x = n->inputs[0], .w = root_of(f, n->inputs[1]), .c = NO_VALUE, .alpha = 1, .beta = 1};
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
    if (g.c.n != NO_VALUE.n && !is_row(f, g.c, s.columns) &&
        (!fuse_is_whole(f, g.c) || (!fuse_is_constant(f, g.c) &&
            (f->root[f->view[g.c.n].root].rows != s.rows ||
                f->root[f->view[g.c.n].root].columns != s.columns)))) {
        return fuse_node_error(
            n, ERR_UNSUPPORTED_OP, err, "only an initializer can be broadcast");
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

/* ---- Element by element --------------------------------------------------------------------- */

static int map_of_pow(const struct graph_node *n, double exponent, uint8_t *ret, struct err *err)
{
    static const struct {
        double exponent;
        uint8_t op;
    } rows[] = {{1, MAP_AFFINE}, {2, MAP_SQUARE}, {3, MAP_CUBE}, {0.5, MAP_SQRT},
        {-1, MAP_RECIPROCAL}, {-0.5, MAP_RSQRT}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].exponent == exponent) {
            *ret = rows[i].op;
            return 0;
        }
    }
    char text[96];
    snprintf(text, sizeof text, "exponent %g is not supported, only 1, 2, 3, 1/2, -1 and -1/2",
        exponent);
    return fuse_node_error(n, ERR_UNSUPPORTED_OP, err, text);
}

static bool map_of_node(const struct graph_node *n, uint8_t *ret)
{
    switch (n->op) {
    case GRAPH_OP_Neg:
        *ret = MAP_NEG;
        return true;
    case GRAPH_OP_Sqrt:
        *ret = MAP_SQRT;
        return true;
    case GRAPH_OP_Exp:
        *ret = MAP_EXP;
        return true;
    case GRAPH_OP_Reciprocal:
        *ret = MAP_RECIPROCAL;
        return true;
    default:
        return false;
    }
}

/* Operand 0 of an elementwise step: any form, for what is done to each element alone. The result
 * shows its matrix as the operand does. */
static int take_elements(struct fuser *f, const struct graph_node *n, struct plan_step *s,
    struct value_id v, struct err *err)
{
    const struct fuse_view *w = &f->view[v.n];
    if (fuse_is_constant(f, v)) {
        return fuse_node_error(n, ERR_UNSUPPORTED_OP, err, "one operand must be computed");
    }
    if (w->form == VIEW_PLAIN) {
        return take_plain(f, n, s, 0, v, err);
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

static int fuse_map(struct fuser *f, uint32_t at, struct value_id x, uint8_t op, double a,
    double b, struct err *err)
{
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
    absorb(f, &s, &result, false);
    fuse_push_step(f, s, result);
    return 0;
}

/* An operation with a number that the compiler knows is a map; true when it was made one. */
static bool fuse_known(struct fuser *f, uint32_t at, int *ret_rc, struct err *err)
{
    const struct graph_node *n = &f->g->nodes[at];
    double c = 0;
    bool second = is_known(f, n->inputs[1], &c);
    if (!second && !is_known(f, n->inputs[0], &c)) {
        return false;
    }
    struct value_id x = n->inputs[second ? 0 : 1];
    if (f->g->values[x.n].shape.rank < f->g->values[n->outputs[0].n].shape.rank) {
        return false;
    }
    double a = 1, b = 0;
    switch (n->op) {
    case GRAPH_OP_Add:
        b = c;
        break;
    case GRAPH_OP_Sub:
        a = second ? 1 : -1;
        b = second ? -c : c;
        break;
    case GRAPH_OP_Mul:
        a = c;
        break;
    case GRAPH_OP_Div:
        if (!second || c == 0) {
            return false;
        }
        a = 1 / c;
        break;
    default:
        return false;
    }
    if (!isfinite(a) || !isfinite(b)) {
        return false;
    }
    *ret_rc = fuse_map(f, at, x, MAP_AFFINE, a, b, err);
    return true;
}

static uint8_t binary_of_node(const struct graph_node *n, bool is_swapped)
{
    switch (n->op) {
    case GRAPH_OP_Sub:
        return is_swapped ? BINARY_RSUB : BINARY_SUB;
    case GRAPH_OP_Mul:
        return BINARY_MUL;
    case GRAPH_OP_Div:
        return is_swapped ? BINARY_RDIV : BINARY_DIV;
    case GRAPH_OP_Max:
        return BINARY_MAX;
    case GRAPH_OP_Min:
        return BINARY_MIN;
    default:
        return BINARY_ADD;
    }
}

/* The second operand lies like the first: same form, shape and units. */
static int take_second(struct fuser *f, const struct graph_node *n, struct plan_step *s,
    struct value_id a, struct value_id b, struct err *err)
{
    const struct fuse_view *va = &f->view[a.n], *vb = &f->view[b.n];
    if (fuse_is_constant(f, b)) {
        if (va->form != VIEW_PLAIN) {
            return fuse_node_error(n, ERR_UNSUPPORTED_OP, err,
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
            n, ERR_UNSUPPORTED_OP, err, "the operands lie differently: their heads or parts of "
            "columns do not agree");
    }
    return 0;
}

static int fuse_pair(struct fuser *f, uint32_t at, struct err *err)
{
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
    if (is_row(f, b, s.columns) && (is_plain || own == 1)) {
        s.kind = is_add ? PLAN_ADD_ROW : PLAN_BINARY_ROW;
        s.row = root_of(f, b);
    } else {
        rc = take_second(f, n, &s, a, b, err);
    }
    if (rc != 0) {
        return rc;
    }
    struct value_id result = n->outputs[0];
    absorb(f, &s, &result, false);
    fuse_push_step(f, s, result);
    return 0;
}

static int fuse_unary(struct fuser *f, uint32_t at, struct err *err)
{
    const struct graph_node *n = &f->g->nodes[at];
    uint8_t op = MAP_AFFINE;
    if (map_of_node(n, &op)) {
        return fuse_map(f, at, n->inputs[0], op, 1, 0, err);
    }
    if (n->op == GRAPH_OP_Pow) {
        double exponent;
        if (!is_known(f, n->inputs[1], &exponent)) {
            return fuse_node_error(
                n, ERR_UNSUPPORTED_OP, err, "the exponent must be an initializer of one element");
        }
        int rc = map_of_pow(n, exponent, &op, err);
        return rc != 0 ? rc : fuse_map(f, at, n->inputs[0], op, 1, 0, err);
    }
    struct plan_step s = fuse_new_step(PLAN_UNARY, at);
    int rc = take_elements(f, n, &s, n->inputs[0], err);
    if (rc != 0) {
        return rc;
    }
    act_of_node(n, &s.act);
    fuse_push_step(f, s, n->outputs[0]);
    return 0;
}

/* ---- Along rows ------------------------------------------------------------------------------ */

static int check_last_axis(
    const struct fuser *f, const struct graph_node *n, struct err *err)
{
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

static int fuse_softmax(struct fuser *f, uint32_t at, struct err *err)
{
    const struct graph_node *n = &f->g->nodes[at];
    struct plan_step s = fuse_new_step(PLAN_SOFTMAX, at);
    int rc = check_last_axis(f, n, err);
    rc = rc != 0 ? rc : take_rows(f, n, &s, n->inputs[0], err);
    if (rc == 0) {
        fuse_push_step(f, s, n->outputs[0]);
    }
    return rc;
}

static int fuse_norm(struct fuser *f, uint32_t at, struct err *err)
{
    const struct graph_node *n = &f->g->nodes[at];
    struct plan_step s = fuse_new_step(PLAN_NORM, at);
    int rc = check_last_axis(f, n, err);
    rc = rc != 0 ? rc : take_rows(f, n, &s, n->inputs[0], err);
    if (rc != 0) {
        return rc;
    }
    bool has_bias = n->input_count > 2 && n->inputs[2].n != NO_VALUE.n;
    if (!is_row(f, n->inputs[1], s.columns) ||
        (has_bias && !is_row(f, n->inputs[2], s.columns))) {
        return fuse_node_error(
            n, ERR_UNSUPPORTED_OP, err, "scale and bias must be initializers of one row");
    }
    s.row = root_of(f, n->inputs[1]);
    s.row2 = has_bias ? root_of(f, n->inputs[2]) : NO_VALUE;
    s.a = (float)graph_attr(n, "epsilon")->f;
    fuse_push_step(f, s, n->outputs[0]);
    return 0;
}

/* ---- The walk -------------------------------------------------------------------------------- */

static int check_operands(struct fuser *f, const struct graph_node *n, struct err *err)
{
    for (uint32_t i = 0; i < n->input_count; i++) {
        bool is_exponent = n->op == GRAPH_OP_Pow && i == 1;
        if (n->inputs[i].n != NO_VALUE.n && !is_exponent &&
            check_value(f, n, n->inputs[i], err) != 0) {
            return -err->code;
        }
    }
    return 0;
}

static bool has_steps(enum graph_op op)
{
    switch (op) {
    case GRAPH_OP_MatMul:
    case GRAPH_OP_Gemm:
    case GRAPH_OP_Attention:
    case GRAPH_OP_Softmax:
    case GRAPH_OP_LayerNormalization:
        return true;
    default:
        return fuse_is_elementwise(op);
    }
}

static int fuse_node(struct fuser *f, uint32_t at, struct err *err)
{
    const struct graph_node *n = &f->g->nodes[at];
    if (!has_steps(n->op)) {
        return fuse_node_error(n, ERR_UNSUPPORTED_OP, err, "the compiler has no kernel for it");
    }
    int rc = check_operands(f, n, err);
    if (rc != 0) {
        return rc;
    }
    switch (n->op) {
    case GRAPH_OP_MatMul:
    case GRAPH_OP_Gemm:
        if (fuse_is_constant(f, n->inputs[1])) {
            return fuse_gemm(f, at, err);
        }
        return n->op == GRAPH_OP_MatMul
            ? fuse_product(f, at, err)
            : fuse_node_error(n, ERR_UNSUPPORTED_OP, err, "the second operand must be an "
                                                          "initializer");
    case GRAPH_OP_Attention:
        return fuse_attention(f, at, err);
    case GRAPH_OP_Softmax:
        return fuse_softmax(f, at, err);
    case GRAPH_OP_LayerNormalization:
        return fuse_norm(f, at, err);
    case GRAPH_OP_Add:
    case GRAPH_OP_Sub:
    case GRAPH_OP_Mul:
    case GRAPH_OP_Div:
    case GRAPH_OP_Max:
    case GRAPH_OP_Min:
        return fuse_pair(f, at, err);
    default:
        return fuse_unary(f, at, err);
    }
}

static void count_uses(struct fuser *f)
{
    const struct graph *g = f->g;
    for (uint32_t v = 0; v < g->value_count; v++) {
        f->root[v].matrix = PLAN_NONE;
        f->root[v].reader = NO_NODE;
    }
    for (uint32_t i = 0; i < g->node_count; i++) {
        const struct graph_node *n = &g->nodes[i];
        for (uint32_t k = 0; k < n->input_count && !fuse_is_view(n->op); k++) {
            if (n->inputs[k].n != NO_VALUE.n) {
                struct fuse_root *r = &f->root[f->view[n->inputs[k].n].root];
                r->uses++;
                r->reader = (struct node_id){i};
            }
        }
    }
    for (uint32_t i = 0; i < g->output_count; i++) {
        struct fuse_root *r = &f->root[f->view[g->outputs[i].n].root];
        r->uses++;
        r->reader = NO_NODE;
    }
}

static int bind_interface(struct fuser *f, struct err *err)
{
    const struct graph *g = f->g;
    struct plan *p = f->plan;
    p->inputs = ARENA_ARRAY(f->arena, uint32_t, g->input_count);
    p->outputs = ARENA_ARRAY(f->arena, uint32_t, g->output_count);
    for (uint32_t i = 0; i < g->input_count + g->output_count; i++) {
        bool is_input = i < g->input_count;
        struct value_id v = is_input ? g->inputs[i] : g->outputs[i - g->input_count];
        const struct graph_value *value = &g->values[v.n];
        struct fuse_root *root = &f->root[f->view[v.n].root];
        bool is_constant = fuse_is_constant(f, v);
        if (is_constant || value->dtype != DTYPE_FLOAT16 || root->rows == 0 ||
            root->columns == 0 || root->rows > PLAN_MAX_ROWS || root->columns > PLAN_MAX_COLUMNS) {
            return err_set(err, is_constant ? ERR_UNSUPPORTED_OP : ERR_DTYPE,
                "%s '%s' must be a computed float16 tensor of 1 to %u rows and 1 to %u columns",
                is_input ? "input" : "output", value->name, PLAN_MAX_ROWS, PLAN_MAX_COLUMNS);
        }
        bool is_split = f->view[v.n].form == VIEW_SPLIT && f->view[v.n].first == 0 &&
            f->view[v.n].columns == root->columns;
        if (!fuse_is_whole(f, v) && !is_split) {
            const struct graph_node *n = &g->nodes[value->producer.n];
            return fuse_node_error(n, ERR_UNSUPPORTED_OP, err,
                "the result is an output that is turned, in heads or a part of the columns");
        }
        if (root->matrix == PLAN_NONE) {
            struct value_id r = {f->view[v.n].root};
            root->matrix = add_matrix(
                f, PLAN_INPUT, r, root->rows, root->columns, fuse_unit(f, r.n));
        }
        *(is_input ? &p->inputs[i] : &p->outputs[i - g->input_count]) = root->matrix;
    }
    return 0;
}

int plan_fuse(const struct graph *g, struct arena *a, struct plan **ret, struct err *err)
{
    struct err local = {0};
    err = err != NULL ? err : &local;
    struct fuser f = {.g = g, .arena = a, .plan = ARENA_NEW(a, struct plan)};
    f.view = ARENA_ARRAY(a, struct fuse_view, g->value_count);
    f.root = ARENA_ARRAY(a, struct fuse_root, g->value_count);
    f.is_absorbed = ARENA_ARRAY(a, bool, g->node_count);
    int rc = fuse_trace(&f, err);
    if (rc != 0) {
        return rc;
    }
    count_uses(&f);
    for (uint32_t i = 0; i < g->node_count; i++) {
        if (!f.is_absorbed[i] && !fuse_is_view(g->nodes[i].op)) {
            rc = fuse_node(&f, i, err);
            if (rc != 0) {
                return rc;
            }
        }
    }
    rc = bind_interface(&f, err);
    f.plan->graph = g;
    f.plan->steps = f.steps.data;
    f.plan->step_count = (uint32_t)f.steps.len;
    f.plan->matrices = f.matrices.data;
    f.plan->matrix_count = (uint32_t)f.matrices.len;
    *ret = f.plan;
    return rc;
}
