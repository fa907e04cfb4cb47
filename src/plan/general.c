/* Any node, without regard to how its operands lie: each is laid out as a plain matrix, the node
 * becomes steps on plain matrices, and the result goes where its view says. fuse_node() comes here
 * when the forms that need no movement do not fit. */
#include "plan/fuse_internal.h"

#include <math.h>
#include <string.h>

struct plan_step fuse_step_on(struct fuser *f, enum plan_kind kind, uint32_t at, uint32_t matrix) {
    struct plan_matrix *x = &f->matrices.data[matrix];
    struct plan_step s = fuse_new_step(kind, at);
    s.in[0] = matrix;
    s.rows = x->rows;
    s.columns = s.unit = x->columns;
    s.is_single = x->is_single;
    x->uses++;
    return s;
}

int fuse_finish(
    struct fuser *f, uint32_t at, struct plan_step s, struct value_id result, struct err *err) {
    const struct fuse_root *r = &f->root[result.n];
    if (fuse_lies_plain(f, result) && r->rows == s.rows && r->columns == s.columns) {
        fuse_push_step(f, s, result);
        return 0;
    }
    return fuse_show(f, at, fuse_push_inner(f, s), NULL, result, err);
}

/* ---- Broadcasting ---------------------------------------------------------------------------- */

static uint64_t broadcast(uint64_t element, const struct shape *like, const struct shape *own) {
    uint64_t at = 0, stride = 1;
    for (int d = like->rank - 1; d >= 0; d--) {
        uint64_t index = element % (uint64_t)like->dim[d];
        int k = d - like->rank + own->rank;
        element /= (uint64_t)like->dim[d];
        if (k >= 0) {
            at += own->dim[k] == 1 ? 0 : index * stride;
            stride *= (uint64_t)own->dim[k];
        }
    }
    return at;
}

int fuse_expand(
    struct fuser *f, uint32_t at, struct value_id v, const struct shape *like, uint32_t *ret_matrix,
    struct err *err) {
    const struct shape *own = shape_of(f, v);
    if (shape_equal(own, like)) {
        return fuse_plain(f, at, v, ret_matrix, err);
    }
    uint64_t rows, columns;
    fuse_matrix_shape(like, &rows, &columns);
    if (rows * columns > PLAN_MAX_PICK) {
        return fuse_node_error(
            &f->g->nodes[at], ERR_UNSUPPORTED_OP, err, "too many elements to broadcast one by one");
    }
    struct plan_step shape = fuse_shape_of(f, v);
    shape.rows = (uint32_t)rows;
    shape.columns = shape.unit = (uint32_t)columns;
    struct pick_ref *refs = fuse_refs(f, rows * columns);
    for (uint64_t i = 0; i < rows * columns; i++) {
        refs[i].element = (uint32_t)broadcast(i, like, own);
    }
    struct pick_source source = {.value = v};
    *ret_matrix = fuse_pick(f, at, &source, 1, refs, &shape, NO_VALUE);
    return 0;
}

/* ---- Element by element ---------------------------------------------------------------------- */

/* Operand of an elementwise step: a constant is spread by the host. */
static int element_operand(
    struct fuser *f, uint32_t at, struct value_id v, const struct shape *like, uint32_t *ret,
    struct err *err) {
    if (fuse_is_constant(f, v) && fuse_is_whole(f, v)) {
        *ret = fuse_operand(f, v);
        return 0;
    }
    return fuse_expand(f, at, v, like, ret, err);
}

/* Step with the shape of the node's result on operand 0, which may be a constant. */
static struct plan_step
element_step(struct fuser *f, enum plan_kind kind, uint32_t at, uint32_t matrix) {
    struct value_id to = f->g->nodes[at].outputs[0];
    struct plan_step s = fuse_shape_of(f, to), made = fuse_step_on(f, kind, at, matrix);
    made.rows = s.rows;
    made.columns = made.unit = s.columns;
    made.is_single = s.is_single;
    return made;
}

static uint32_t widen(struct fuser *f, uint32_t at, uint32_t x) {
    if (f->matrices.data[x].is_single) {
        return x;
    }
    struct plan_step s = fuse_step_on(f, PLAN_CAST, at, x);
    s.is_single = true;
    return fuse_push_inner(f, s);
}

/* Powers are taken in float32. */
static int general_pow(struct fuser *f, uint32_t at, struct err *err) {
    const struct graph_node *n = &f->g->nodes[at];
    struct value_id to = n->outputs[0];
    double exponent;
    uint32_t x, y;
    bool is_known = fuse_is_known(f, n->inputs[1], &exponent);
    enum dtype type = f->g->values[n->inputs[1].n].dtype;
    if (!is_known && type != DTYPE_FLOAT16 && type != DTYPE_FLOAT) {
        return fuse_node_error(
            n, ERR_DTYPE, err, "exponents of more than one element must be float16 or float32");
    }
    int rc = fuse_expand(f, at, n->inputs[0], shape_of(f, to), &x, err);
    rc = rc != 0 || is_known ? rc : fuse_expand(f, at, n->inputs[1], shape_of(f, to), &y, err);
    if (rc != 0) {
        return rc;
    }
    struct plan_step s = fuse_step_on(f, is_known ? PLAN_MAP : PLAN_BINARY, at, widen(f, at, x));
    if (is_known) {
        s.op = MAP_POW;
        s.a = fuse_map_of_pow(exponent, &s.op) ? 1 : (float)exponent;
    } else {
        s.op = BINARY_POW;
        s.in[1] = widen(f, at, y);
    }
    if (!fuse_is_single(f, to)) {
        s = fuse_step_on(f, PLAN_CAST, at, fuse_push_inner(f, s));
        s.is_single = false;
    }
    return fuse_finish(f, at, s, to, err);
}

static uint8_t binary_op(enum graph_op op) {
    switch (op) {
    case GRAPH_OP_Sub: return BINARY_SUB;
    case GRAPH_OP_Mul: return BINARY_MUL;
    case GRAPH_OP_Div: return BINARY_DIV;
    case GRAPH_OP_Max: return BINARY_MAX;
    case GRAPH_OP_Min: return BINARY_MIN;
    default: return BINARY_ADD;
    }
}

/* Folded from the left, operand by operand. */
static int general_fold(struct fuser *f, uint32_t at, struct err *err) {
    const struct graph_node *n = &f->g->nodes[at];
    struct value_id to = n->outputs[0];
    uint32_t left;
    int rc = n->input_count == 1
                 ? fuse_expand(f, at, n->inputs[0], shape_of(f, to), &left, err)
                 : element_operand(f, at, n->inputs[0], shape_of(f, to), &left, err);
    if (rc != 0 || n->input_count == 1) {
        return rc != 0 ? rc : fuse_show(f, at, left, NULL, to, err);
    }
    for (uint32_t i = 1; i < n->input_count; i++) {
        struct plan_step s = element_step(f, PLAN_BINARY, at, left);
        s.op = binary_op(n->op);
        rc = element_operand(f, at, n->inputs[i], shape_of(f, to), &s.in[1], err);
        if (rc != 0) {
            return rc;
        }
        if (i + 1 == n->input_count) {
            return fuse_finish(f, at, s, to, err);
        }
        left = fuse_push_inner(f, s);
    }
    return 0;
}

static int general_unary(struct fuser *f, uint32_t at, struct err *err) {
    const struct graph_node *n = &f->g->nodes[at];
    uint32_t x;
    int rc = fuse_plain(f, at, n->inputs[0], &x, err);
    if (rc != 0) {
        return rc;
    }
    struct plan_step s = fuse_step_on(f, PLAN_UNARY, at, x);
    if (fuse_map_of_node(n, &s.op)) {
        s.kind = PLAN_MAP;
    } else {
        fuse_act(n, &s.act);
    }
    return fuse_finish(f, at, s, n->outputs[0], err);
}

static int general_cast(struct fuser *f, uint32_t at, struct err *err) {
    const struct graph_node *n = &f->g->nodes[at];
    uint32_t x;
    int rc = fuse_plain(f, at, n->inputs[0], &x, err);
    if (rc != 0) {
        return rc;
    }
    if (fuse_is_single(f, n->inputs[0]) == fuse_is_single(f, n->outputs[0])) {
        return fuse_show(f, at, x, NULL, n->outputs[0], err);
    }
    struct plan_step s = fuse_step_on(f, PLAN_CAST, at, x);
    s.is_single = !s.is_single;
    return fuse_finish(f, at, s, n->outputs[0], err);
}

/* ---- Along axes ------------------------------------------------------------------------------ */

int fuse_axes_last(
    struct fuser *f, uint32_t at, struct value_id v, const bool *is_last, uint32_t *ret_matrix,
    const uint32_t **ret_order, struct err *err) {
    const struct shape *s = shape_of(f, v);
    int perm[TENSOR_MAX_DIMS], rank = 0;
    uint64_t count = fuse_elements(f, v), columns = 1;
    bool is_plain = true; /* only the last axis is marked, or axes of 1 beside it */
    for (int pass = 0; pass < 2; pass++) {
        for (int d = 0; d < s->rank; d++) {
            if (is_last[d] == (pass == 1)) {
                perm[rank++] = d;
                columns *= pass == 1 ? (uint64_t)s->dim[d] : 1;
            }
        }
    }
    for (int d = 0; d + 1 < s->rank; d++) {
        is_plain = is_plain && (!is_last[d] || s->dim[d] == 1);
    }
    *ret_order = NULL;
    if (is_plain && s->rank > 0 && columns == (uint64_t)s->dim[s->rank - 1]) {
        return fuse_plain(f, at, v, ret_matrix, err);
    }
    if (columns > PLAN_MAX_COLUMNS || count / columns > PLAN_MAX_ROWS) {
        return fuse_node_error(
            &f->g->nodes[at], ERR_UNSUPPORTED_OP, err,
            "the axes worked along have more than 65536 elements together, or the others");
    }
    int rc = fuse_check_pick(f, &f->g->nodes[at], v, err);
    if (rc != 0) {
        return rc;
    }
    struct pick_ref *refs = fuse_refs(f, count);
    uint32_t *order = ARENA_ARRAY(f->arena, uint32_t, count);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t rest = i, element = 0;
        int64_t index[TENSOR_MAX_DIMS];
        for (int k = rank - 1; k >= 0; k--) {
            index[perm[k]] = (int64_t)(rest % (uint64_t)s->dim[perm[k]]);
            rest /= (uint64_t)s->dim[perm[k]];
        }
        for (int d = 0; d < s->rank; d++) {
            element = element * (uint64_t)s->dim[d] + (uint64_t)index[d];
        }
        refs[i].element = (uint32_t)element;
        order[element] = (uint32_t)i;
    }
    struct plan_step shape = fuse_shape_of(f, v);
    shape.rows = (uint32_t)(count / columns);
    shape.columns = shape.unit = (uint32_t)columns;
    struct pick_source source = {.value = v};
    *ret_matrix = fuse_pick(f, at, &source, 1, refs, &shape, NO_VALUE);
    *ret_order = order;
    return 0;
}

static struct plan_step
reduce_step(struct fuser *f, uint32_t at, uint32_t matrix, enum kernel_row_reduce op) {
    struct plan_step s = fuse_step_on(f, PLAN_ROW_REDUCE, at, matrix);
    s.op = (uint8_t)op;
    s.inner = s.inner_unit = s.columns;
    s.groups = fuse_panels(s.columns, s.columns);
    s.columns = s.unit = 1;
    return s;
}

static int general_reduce(struct fuser *f, uint32_t at, struct err *err) {
    const struct graph_node *n = &f->g->nodes[at];
    bool is_named[TENSOR_MAX_DIMS];
    const uint32_t *order;
    uint32_t x;
    graph_axes(f->g, n, is_named);
    int rc = fuse_axes_last(f, at, n->inputs[0], is_named, &x, &order, err);
    if (rc != 0) {
        return rc;
    }
    enum kernel_row_reduce op = n->op == GRAPH_OP_ReduceMean  ? ROW_REDUCE_MEAN
                                : n->op == GRAPH_OP_ReduceSum ? ROW_REDUCE_SUM
                                                              : ROW_REDUCE_MAX;
    return fuse_finish(f, at, reduce_step(f, at, x, op), n->outputs[0], err);
}

/* One value a row, spread over `columns`. */
static uint32_t spread(struct fuser *f, uint32_t at, uint32_t matrix, uint32_t columns) {
    struct plan_step shape = fuse_step_on(f, PLAN_PICK, at, matrix);
    shape.columns = shape.unit = columns;
    struct pick_ref *refs = fuse_refs(f, (uint64_t)shape.rows * columns);
    for (uint64_t i = 0; i < (uint64_t)shape.rows * columns; i++) {
        refs[i].element = (uint32_t)(i / columns);
    }
    struct pick_source source = {.value = NO_VALUE, .matrix = matrix};
    return fuse_pick(f, at, &source, 1, refs, &shape, NO_VALUE);
}

static uint32_t
map(struct fuser *f, uint32_t at, uint32_t x, enum kernel_map op, float a, float b) {
    struct plan_step s = fuse_step_on(f, PLAN_MAP, at, x);
    s.op = (uint8_t)op;
    s.a = a;
    s.b = b;
    return fuse_push_inner(f, s);
}

static uint32_t
binary(struct fuser *f, uint32_t at, enum kernel_binary op, uint32_t a, uint32_t b) {
    struct plan_step s = fuse_step_on(f, PLAN_BINARY, at, a);
    s.op = (uint8_t)op;
    s.in[1] = b;
    return fuse_push_inner(f, s);
}

/* float16 has a kernel; float32 is put together. */
uint32_t fuse_general_softmax(struct fuser *f, uint32_t at, uint32_t x) {
    if (!f->matrices.data[x].is_single) {
        return fuse_push_inner(f, fuse_step_on(f, PLAN_SOFTMAX, at, x));
    }
    uint32_t columns = f->matrices.data[x].columns;
    uint32_t most = fuse_push_inner(f, reduce_step(f, at, x, ROW_REDUCE_MAX));
    x = binary(f, at, BINARY_SUB, x, spread(f, at, most, columns));
    x = map(f, at, x, MAP_EXP, 1, 0);
    uint32_t sum = fuse_push_inner(f, reduce_step(f, at, x, ROW_REDUCE_SUM));
    return binary(f, at, BINARY_DIV, x, spread(f, at, sum, columns));
}

static int general_softmax(struct fuser *f, uint32_t at, struct err *err) {
    const struct graph_node *n = &f->g->nodes[at];
    bool is_last[TENSOR_MAX_DIMS] = {false};
    const uint32_t *order;
    uint32_t x;
    is_last[graph_attr(n, "axis")->i] = true;
    int rc = fuse_axes_last(f, at, n->inputs[0], is_last, &x, &order, err);
    return rc != 0 ? rc
                   : fuse_show(f, at, fuse_general_softmax(f, at, x), order, n->outputs[0], err);
}

static uint32_t normalise(struct fuser *f, uint32_t at, uint32_t x, double epsilon) {
    if (!f->matrices.data[x].is_single) {
        struct plan_step s = fuse_step_on(f, PLAN_NORM, at, x);
        s.a = (float)epsilon;
        return fuse_push_inner(f, s);
    }
    uint32_t columns = f->matrices.data[x].columns;
    uint32_t mean = fuse_push_inner(f, reduce_step(f, at, x, ROW_REDUCE_MEAN));
    x = binary(f, at, BINARY_SUB, x, spread(f, at, mean, columns));
    uint32_t square = map(f, at, x, MAP_SQUARE, 1, 0);
    uint32_t v = fuse_push_inner(f, reduce_step(f, at, square, ROW_REDUCE_MEAN));
    v = map(f, at, v, MAP_AFFINE, 1, (float)epsilon);
    v = map(f, at, v, MAP_RSQRT, 1, 0);
    return binary(f, at, BINARY_MUL, x, spread(f, at, v, columns));
}

/* Statistics over all axes from `axis` on; scale and bias element by element in the result's own
 * shape. */
static int general_norm(struct fuser *f, uint32_t at, struct err *err) {
    const struct graph_node *n = &f->g->nodes[at];
    struct value_id to = n->outputs[0];
    const struct shape *s = shape_of(f, to);
    bool is_last[TENSOR_MAX_DIMS] = {false};
    const uint32_t *order;
    uint32_t x, scale, bias = PLAN_NONE;
    for (int d = (int)graph_attr(n, "axis")->i; d < s->rank; d++) {
        is_last[d] = true;
    }
    int rc = fuse_axes_last(f, at, n->inputs[0], is_last, &x, &order, err);
    if (rc != 0) {
        return rc;
    }
    x = normalise(f, at, x, graph_attr(n, "epsilon")->f);
    struct plan_step shape = fuse_shape_of(f, to);
    if (f->matrices.data[x].columns != shape.columns) {
        struct pick_source source = {.value = NO_VALUE, .matrix = x};
        struct pick_ref *refs = fuse_refs(f, fuse_elements(f, to));
        x = fuse_pick(f, at, &source, 1, refs, &shape, NO_VALUE);
    }
    bool has_bias = n->input_count > 2 && n->inputs[2].n != NO_VALUE.n;
    rc = element_operand(f, at, n->inputs[1], s, &scale, err);
    rc = rc != 0 || !has_bias ? rc : element_operand(f, at, n->inputs[2], s, &bias, err);
    if (rc != 0) {
        return rc;
    }
    struct plan_step last = fuse_step_on(f, PLAN_BINARY, at, x);
    last.op = BINARY_MUL;
    last.in[1] = scale;
    if (has_bias) {
        last = fuse_step_on(f, PLAN_BINARY, at, fuse_push_inner(f, last));
        last.op = BINARY_ADD;
        last.in[1] = bias;
    }
    return fuse_finish(f, at, last, to, err);
}

/* ---- All of them ----------------------------------------------------------------------------- */

int fuse_general(struct fuser *f, uint32_t at, struct err *err) {
    const struct graph_node *n = &f->g->nodes[at];
    switch (n->op) {
    case GRAPH_OP_MatMul:
    case GRAPH_OP_Gemm: return fuse_general_product(f, at, err);
    case GRAPH_OP_Attention: return fuse_general_attention(f, at, err);
    case GRAPH_OP_Conv: return fuse_general_conv(f, at, err);
    case GRAPH_OP_Softmax: return general_softmax(f, at, err);
    case GRAPH_OP_LayerNormalization: return general_norm(f, at, err);
    case GRAPH_OP_ReduceMean:
    case GRAPH_OP_ReduceSum:
    case GRAPH_OP_ReduceMax: return general_reduce(f, at, err);
    case GRAPH_OP_Cast: return general_cast(f, at, err);
    case GRAPH_OP_Pow: return general_pow(f, at, err);
    case GRAPH_OP_Add:
    case GRAPH_OP_Sub:
    case GRAPH_OP_Mul:
    case GRAPH_OP_Div:
    case GRAPH_OP_Max:
    case GRAPH_OP_Min: return general_fold(f, at, err);
    default: return fuse_is_elementwise(n->op) ? general_unary(f, at, err) : fuse_move(f, at, err);
    }
}
