/* Graph nodes -> steps. A bias and an activation join the GEMM, Add or row addition before them
 * when nobody else reads the value in between; Identity only renames. One walk over the nodes in
 * topological order, so it ends. */
#include "plan/plan_internal.h"

#include <string.h>

#include "base/vec.h"

struct fuser {
    const struct graph *g;
    struct arena *arena;
    struct plan *plan;
    VEC(struct plan_step) steps;
    VEC(struct plan_matrix) matrices;
    struct value_id *root;  /* by value: what an Identity chain names */
    uint32_t *uses;         /* by root value: readers, outputs counted */
    uint32_t *matrix;       /* by root value, PLAN_NONE before it has one */
    bool *is_absorbed;      /* by node */
    struct node_id *reader; /* by root value: last reader found */
};

static int node_error(
    const struct graph_node *n, enum err_code code, struct err *err, const char *text)
{
    return err_at(err, code, n->pointer != NULL ? n->pointer : "", "node '%s' (%s): %s",
        n->name != NULL ? n->name : "", graph_op_name(n->op), text);
}

static void matrix_shape(const struct shape *s, uint64_t *ret_rows, uint64_t *ret_columns)
{
    *ret_rows = 1;
    *ret_columns = s->rank > 0 ? (uint64_t)s->dim[s->rank - 1] : 1;
    for (int d = 0; d + 1 < s->rank; d++) {
        *ret_rows *= (uint64_t)s->dim[d];
    }
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

static bool is_constant(const struct fuser *f, struct value_id v)
{
    return f->g->values[v.n].kind == VALUE_INITIALIZER;
}

/* All axes but the last are 1, the last one is 1 or `columns`. */
static bool is_row(const struct fuser *f, struct value_id v, uint32_t columns)
{
    uint64_t rows, own;
    matrix_shape(&f->g->values[v.n].shape, &rows, &own);
    return is_constant(f, v) && rows == 1 && (own == columns || own == 1);
}

static int check_value(
    const struct fuser *f, const struct graph_node *n, struct value_id v, struct err *err)
{
    const struct graph_value *value = &f->g->values[v.n];
    if (value->dtype != DTYPE_FLOAT16) {
        char text[160];
        snprintf(text, sizeof text, "'%s' is %s, only float16 is supported", value->name,
            dtype_name(value->dtype));
        return node_error(n, ERR_DTYPE, err, text);
    }
    uint64_t rows, columns;
    matrix_shape(&value->shape, &rows, &columns);
    if (rows == 0 || columns == 0 || rows > PLAN_MAX_ROWS || columns > PLAN_MAX_COLUMNS) {
        char text[192];
        snprintf(text, sizeof text, "'%s' has %llu rows of %llu columns, supported are 1 to %u "
            "rows and 1 to %u columns", value->name, (unsigned long long)rows,
            (unsigned long long)columns, PLAN_MAX_ROWS, PLAN_MAX_COLUMNS);
        return node_error(n, ERR_UNSUPPORTED_OP, err, text);
    }
    return 0;
}

static uint32_t add_matrix(struct fuser *f, enum plan_matrix_kind kind, struct value_id v)
{
    uint64_t rows, columns;
    matrix_shape(&f->g->values[v.n].shape, &rows, &columns);
    vec_push(f->arena, &f->matrices,
        (struct plan_matrix){.kind = kind,
            .value = v,
            .rows = (uint32_t)rows,
            .columns = (uint32_t)columns,
            .panels = (uint32_t)((columns + 15) / 16),
            .step = PLAN_NONE});
    f->matrix[v.n] = (uint32_t)f->matrices.len - 1;
    return f->matrix[v.n];
}

/* The matrix of an operand, made on first sight. */
static uint32_t operand(struct fuser *f, struct value_id v)
{
    struct value_id root = f->root[v.n];
    uint32_t at = f->matrix[root.n];
    if (at == PLAN_NONE) {
        at = add_matrix(f, is_constant(f, root) ? PLAN_CONSTANT : PLAN_INPUT, root);
    }
    f->matrices.data[at].uses++;
    return at;
}

/* The only reader of v, or NULL when it has several or is an output. */
static const struct graph_node *only_reader(
    const struct fuser *f, struct value_id v, uint32_t *ret_node)
{
    if (f->uses[v.n] != 1 || f->reader[v.n].n == NO_NODE.n) {
        return NULL;
    }
    *ret_node = f->reader[v.n].n;
    return &f->g->nodes[*ret_node];
}

/* Follows single readers from *v: first a row addition, then an activation. */
static void absorb(struct fuser *f, struct plan_step *s, struct value_id *v, bool take_row)
{
    uint32_t at = 0;
    const struct graph_node *n = only_reader(f, *v, &at);
    if (take_row && n != NULL && n->op == GRAPH_OP_Add) {
        uint32_t other = f->root[n->inputs[0].n].n == v->n ? 1 : 0;
        struct value_id row = f->root[n->inputs[other].n];
        if (row.n != v->n && is_row(f, row, s->columns) &&
            f->g->values[row.n].dtype == DTYPE_FLOAT16 &&
            shape_equal(&f->g->values[n->outputs[0].n].shape, &f->g->values[v->n].shape)) {
            s->row = row;
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

static void push_step(struct fuser *f, struct plan_step s, struct value_id result)
{
    s.out = add_matrix(f, PLAN_COMPUTED, result);
    f->matrices.data[s.out].step = (uint32_t)f->steps.len;
    s.groups = (s.inner + 15) / 16;
    s.panels = (s.columns + 15) / 16;
    vec_push(f->arena, &f->steps, s);
}

static struct plan_step new_step(enum plan_kind kind, uint32_t node, const struct plan_matrix *x)
{
    return (struct plan_step){.kind = kind,
        .node = {node},
        .in = {PLAN_NONE, PLAN_NONE},
        .weights = NO_VALUE,
        .row = NO_VALUE,
        .rows = x->rows,
        .inner = x->columns,
        .columns = x->columns,
        .k = 1};
}

static int fuse_gemm(struct fuser *f, uint32_t at, struct err *err)
{
    const struct graph_node *n = &f->g->nodes[at];
    struct value_id x = f->root[n->inputs[0].n];
    struct value_id w = f->root[n->inputs[1].n];
    if (is_constant(f, x) || !is_constant(f, w)) {
        return node_error(n, ERR_UNSUPPORTED_OP, err,
            "the first operand must be computed and the second an initializer");
    }
    const struct shape *ws = &f->g->values[w.n].shape;
    if (ws->rank != 2) {
        return node_error(n, ERR_UNSUPPORTED_OP, err, "the weights must have 2 dimensions");
    }
    bool is_gemm = n->op == GRAPH_OP_Gemm;
    struct value_id c = NO_VALUE;
    bool transposed = false;
    if (is_gemm) {
        double alpha = graph_attr(n, "alpha")->f;
        double beta = graph_attr(n, "beta")->f;
        if (graph_attr(n, "transA")->i != 0) {
            return node_error(n, ERR_UNSUPPORTED_OP, err, "transA must be 0");
        }
        if (alpha != 1.0 || (beta != 1.0 && beta != 0.0)) {
            return node_error(n, ERR_UNSUPPORTED_OP, err, "alpha must be 1 and beta 0 or 1");
        }
        transposed = graph_attr(n, "transB")->i != 0;
        if (n->input_count > 2 && n->inputs[2].n != NO_VALUE.n) {
            if (beta != 1.0) {
                return node_error(
                    n, ERR_UNSUPPORTED_OP, err, "with beta 0 the third operand must be left out");
            }
            c = f->root[n->inputs[2].n];
        }
    }
    uint32_t in = operand(f, x);
    struct plan_step s = new_step(PLAN_GEMM, at, &f->matrices.data[in]);
    s.in[0] = in;
    s.weights = w;
    s.is_transposed = transposed;
    s.columns = (uint32_t)ws->dim[transposed ? 0 : 1];
    if ((uint32_t)ws->dim[transposed ? 1 : 0] != s.inner) {
        return node_error(n, ERR_SHAPE, err, "inner dimensions differ");
    }
    struct value_id result = n->outputs[0];
    if (c.n != NO_VALUE.n && is_row(f, c, s.columns)) {
        s.row = c;
        c = NO_VALUE;
        absorb(f, &s, &result, false);
    } else if (c.n == NO_VALUE.n) {
        absorb(f, &s, &result, true);
    }
    push_step(f, s, result);
    if (c.n == NO_VALUE.n) {
        return 0;
    }
    /* A C of full shape is an addition of its own. */
    uint32_t product = f->steps.data[f->steps.len - 1].out;
    f->matrix[result.n] = PLAN_NONE;
    struct plan_step add = new_step(PLAN_ADD, at, &f->matrices.data[product]);
    add.in[0] = product;
    f->matrices.data[product].uses++;
    add.in[1] = operand(f, c);
    absorb(f, &add, &result, false);
    push_step(f, add, result);
    return 0;
}

static int fuse_add(struct fuser *f, uint32_t at, struct err *err)
{
    const struct graph_node *n = &f->g->nodes[at];
    struct value_id a = f->root[n->inputs[0].n];
    struct value_id b = f->root[n->inputs[1].n];
    if (is_constant(f, a)) {
        struct value_id swap = a;
        a = b;
        b = swap;
    }
    if (is_constant(f, a)) {
        return node_error(n, ERR_UNSUPPORTED_OP, err, "one operand must be computed");
    }
    const struct shape *as = &f->g->values[a.n].shape;
    const struct shape *bs = &f->g->values[b.n].shape;
    if (!shape_equal(&f->g->values[n->outputs[0].n].shape, as) ||
        (!is_constant(f, b) && !shape_equal(as, bs))) {
        return node_error(n, ERR_UNSUPPORTED_OP, err, "only an initializer can be broadcast");
    }
    uint32_t in = operand(f, a);
    struct plan_step s = new_step(PLAN_ADD, at, &f->matrices.data[in]);
    s.in[0] = in;
    if (is_row(f, b, s.columns)) {
        s.kind = PLAN_ADD_ROW;
        s.row = b;
    } else {
        s.in[1] = operand(f, b);
    }
    struct value_id result = n->outputs[0];
    absorb(f, &s, &result, false);
    push_step(f, s, result);
    return 0;
}

static int fuse_softmax(struct fuser *f, uint32_t at, struct err *err)
{
    const struct graph_node *n = &f->g->nodes[at];
    struct value_id x = f->root[n->inputs[0].n];
    int rank = f->g->values[x.n].shape.rank;
    int64_t axis = graph_attr(n, "axis")->i;
    if (rank == 0 || (axis != -1 && axis != rank - 1)) {
        return node_error(n, ERR_UNSUPPORTED_OP, err, "only the last axis is supported");
    }
    uint32_t in = operand(f, x);
    struct plan_step s = new_step(PLAN_SOFTMAX, at, &f->matrices.data[in]);
    s.in[0] = in;
    push_step(f, s, n->outputs[0]);
    return 0;
}

static int fuse_node(struct fuser *f, uint32_t at, struct err *err)
{
    const struct graph_node *n = &f->g->nodes[at];
    for (uint32_t i = 0; i < n->input_count; i++) {
        if (n->inputs[i].n != NO_VALUE.n && check_value(f, n, n->inputs[i], err) != 0) {
            return -err->code;
        }
    }
    enum kernel_act act;
    if (n->op == GRAPH_OP_MatMul || n->op == GRAPH_OP_Gemm) {
        return fuse_gemm(f, at, err);
    }
    if (n->op == GRAPH_OP_Add) {
        return fuse_add(f, at, err);
    }
    bool is_act = act_of_node(n, &act);
    if (!is_act && n->op != GRAPH_OP_Softmax) {
        return node_error(n, ERR_UNSUPPORTED_OP, err, "the compiler has no kernel for it");
    }
    if (is_constant(f, f->root[n->inputs[0].n])) {
        return node_error(n, ERR_UNSUPPORTED_OP, err, "the operand must not be an initializer");
    }
    if (!is_act) {
        return fuse_softmax(f, at, err);
    }
    uint32_t in = operand(f, f->root[n->inputs[0].n]);
    struct plan_step s = new_step(PLAN_UNARY, at, &f->matrices.data[in]);
    s.in[0] = in;
    s.act = act;
    push_step(f, s, n->outputs[0]);
    return 0;
}

static void count_uses(struct fuser *f)
{
    const struct graph *g = f->g;
    for (uint32_t v = 0; v < g->value_count; v++) {
        f->root[v] = (struct value_id){v};
        f->matrix[v] = PLAN_NONE;
        f->reader[v] = NO_NODE;
    }
    for (uint32_t i = 0; i < g->node_count; i++) {
        const struct graph_node *n = &g->nodes[i];
        if (n->op == GRAPH_OP_Identity) {
            f->root[n->outputs[0].n] = f->root[n->inputs[0].n];
            continue;
        }
        for (uint32_t k = 0; k < n->input_count; k++) {
            if (n->inputs[k].n != NO_VALUE.n) {
                uint32_t root = f->root[n->inputs[k].n].n;
                f->uses[root]++;
                f->reader[root] = (struct node_id){i};
            }
        }
    }
    for (uint32_t i = 0; i < g->output_count; i++) {
        f->uses[f->root[g->outputs[i].n].n]++;
        f->reader[f->root[g->outputs[i].n].n] = NO_NODE;
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
        struct value_id v = is_input ? g->inputs[i] : f->root[g->outputs[i - g->input_count].n];
        const struct graph_value *value = &g->values[v.n];
        uint64_t rows, columns;
        matrix_shape(&value->shape, &rows, &columns);
        if (is_constant(f, v) || value->dtype != DTYPE_FLOAT16 || rows == 0 || columns == 0 ||
            rows > PLAN_MAX_ROWS || columns > PLAN_MAX_COLUMNS) {
            return err_set(err, is_constant(f, v) ? ERR_UNSUPPORTED_OP : ERR_DTYPE,
                "%s '%s' must be a computed float16 tensor of 1 to %u rows and 1 to %u columns",
                is_input ? "input" : "output", value->name, PLAN_MAX_ROWS, PLAN_MAX_COLUMNS);
        }
        uint32_t at = f->matrix[v.n] != PLAN_NONE ? f->matrix[v.n] : add_matrix(f, PLAN_INPUT, v);
        *(is_input ? &p->inputs[i] : &p->outputs[i - g->input_count]) = at;
    }
    return 0;
}

int plan_fuse(const struct graph *g, struct arena *a, struct plan **ret, struct err *err)
{
    struct err local = {0};
    err = err != NULL ? err : &local;
    struct fuser f = {.g = g, .arena = a, .plan = ARENA_NEW(a, struct plan)};
    f.root = ARENA_ARRAY(a, struct value_id, g->value_count);
    f.uses = ARENA_ARRAY(a, uint32_t, g->value_count);
    f.matrix = ARENA_ARRAY(a, uint32_t, g->value_count);
    f.reader = ARENA_ARRAY(a, struct node_id, g->value_count);
    f.is_absorbed = ARENA_ARRAY(a, bool, g->node_count);
    count_uses(&f);
    for (uint32_t i = 0; i < g->node_count; i++) {
        if (!f.is_absorbed[i] && g->nodes[i].op != GRAPH_OP_Identity &&
            fuse_node(&f, i, err) != 0) {
            return -err->code;
        }
    }
    if (bind_interface(&f, err) != 0) {
        return -err->code;
    }
    f.plan->graph = g;
    f.plan->steps = f.steps.data;
    f.plan->step_count = (uint32_t)f.steps.len;
    f.plan->matrices = f.matrices.data;
    f.plan->matrix_count = (uint32_t)f.matrices.len;
    *ret = f.plan;
    return 0;
}
