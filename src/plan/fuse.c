/* Nodes to steps. A product takes the row addition and the activation behind it, an addition or
 * another elementwise step the activation, when nobody else reads the value in between; nodes that
 * are views only (views.c) make no step. One walk over the nodes in topological order, so it ends.
 */
#include "plan/fuse_internal.h"

#include <string.h>

bool fuse_is_constant(const struct fuser *f, struct value_id v) {
    uint32_t root = f->view[v.n].root;
    return root < f->g->value_count && f->g->values[root].kind == VALUE_INITIALIZER;
}

struct value_id fuse_root_of(const struct fuser *f, struct value_id v) {
    return (struct value_id){f->view[v.n].root};
}

bool fuse_act(const struct graph_node *n, enum kernel_act *ret) {
    switch (n->op) {
    case GRAPH_OP_Relu: *ret = ACT_RELU; return true;
    case GRAPH_OP_Tanh: *ret = ACT_TANH; return true;
    case GRAPH_OP_Sigmoid: *ret = ACT_SIGMOID; return true;
    case GRAPH_OP_Gelu: {
        const char *approximate = graph_attr(n, "approximate")->s;
        *ret =
            approximate != NULL && strcmp(approximate, "tanh") == 0 ? ACT_GELU_TANH : ACT_GELU_ERF;
        return true;
    }
    default: return false;
    }
}

/* All axes but the last are 1, the last one is 1 or `columns`. */
bool fuse_is_row(const struct fuser *f, struct value_id v, uint32_t columns) {
    uint64_t rows, own;
    struct value_id root = fuse_root_of(f, v);
    if (!fuse_is_constant(f, v)) {
        return false;
    }
    fuse_matrix_shape(&f->g->values[root.n].shape, &rows, &own);
    return rows == 1 && (own == columns || own == 1) && f->g->values[root.n].dtype == DTYPE_FLOAT16;
}

/* A constant of one element whose value the compiler knows. */
bool fuse_is_known(const struct fuser *f, struct value_id v, double *ret) {
    const struct graph_value *x = &f->g->values[fuse_is_constant(f, v) ? f->view[v.n].root : v.n];
    uint64_t rows, columns;
    fuse_matrix_shape(&x->shape, &rows, &columns);
    if (x->kind != VALUE_INITIALIZER || x->source.bytes == NULL || !x->is_hashed_constant ||
        rows != 1 || columns != 1) {
        return false;
    }
    *ret = tensor_get(x->dtype, x->source.bytes, 0);
    return true;
}

static int
check_value(const struct fuser *f, const struct graph_node *n, struct value_id v, struct err *err) {
    const struct graph_value *value = &f->g->values[v.n];
    if (value->dtype != DTYPE_FLOAT16 && value->dtype != DTYPE_FLOAT) {
        char text[160];
        snprintf(
            text, sizeof text, "'%.100s' is %s, only float16 and float32 are supported",
            value->name, dtype_name(value->dtype));
        return fuse_node_error(n, ERR_DTYPE, err, text);
    }
    uint64_t rows, columns;
    fuse_matrix_shape(&value->shape, &rows, &columns);
    if (rows == 0 || columns == 0 || rows > PLAN_MAX_ROWS || columns > PLAN_MAX_COLUMNS) {
        char text[192];
        snprintf(
            text, sizeof text,
            "'%.60s' has %llu rows of %llu columns, supported are 1 to %u "
            "rows and 1 to %u columns",
            value->name, (unsigned long long)rows, (unsigned long long)columns, PLAN_MAX_ROWS,
            PLAN_MAX_COLUMNS);
        return fuse_node_error(n, ERR_UNSUPPORTED_OP, err, text);
    }
    return 0;
}

uint32_t fuse_panels(uint32_t columns, uint32_t unit) {
    return columns / unit * ((unit + 15) / 16) + (columns % unit + 15) / 16;
}

static uint32_t add_matrix(
    struct fuser *f, enum plan_matrix_kind kind, struct value_id v, uint32_t rows, uint32_t columns,
    uint32_t unit) {
    vec_push(
        f->arena, &f->matrices,
        (struct plan_matrix){
            .kind = kind,
            .value = v,
            .rows = rows,
            .columns = columns,
            .unit = unit,
            .panels = fuse_panels(columns, unit),
            .is_single = fuse_is_single(f, v),
            .step = PLAN_NONE});
    return (uint32_t)f->matrices.len - 1;
}

/* The matrix of an operand's root, an input's made on first sight; a constant's for this use. */
uint32_t fuse_operand(struct fuser *f, struct value_id v) {
    struct value_id root = fuse_root_of(f, v);
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
static const struct graph_node *
only_reader(const struct fuser *f, struct value_id v, uint32_t *ret_node) {
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
static bool keeps_shape(const struct fuser *f, const struct graph_node *n, struct value_id v) {
    const struct fuse_root *a = &f->root[f->view[v.n].root], *b = &f->root[n->outputs[0].n];
    return fuse_is_whole(f, n->outputs[0]) && a->rows == b->rows && a->columns == b->columns;
}

/* Follows single readers from *v: first a row addition, then an activation. */
void fuse_absorb(struct fuser *f, struct plan_step *s, struct value_id *v, bool take_row) {
    uint32_t at = 0;
    const struct graph_node *n = only_reader(f, *v, &at);
    if (take_row && n != NULL && n->op == GRAPH_OP_Add && keeps_shape(f, n, *v)) {
        uint32_t other = f->view[n->inputs[0].n].root == f->view[v->n].root ? 1 : 0;
        if (fuse_is_row(f, n->inputs[other], s->columns)) {
            s->row = fuse_root_of(f, n->inputs[other]);
            f->is_absorbed[at] = true;
            *v = n->outputs[0];
            n = only_reader(f, *v, &at);
        }
    }
    enum kernel_act act;
    if (n != NULL && fuse_act(n, &act)) {
        s->act = act;
        f->is_absorbed[at] = true;
        *v = n->outputs[0];
    }
}

struct plan_step fuse_new_step(enum plan_kind kind, uint32_t node) {
    struct plan_step s;
    memset(&s, 0, sizeof s); /* padding too: repeat_find.c compares whole steps */
    s.kind = kind;
    s.node = (struct node_id){node};
    for (int o = 0; o < PLAN_OPERANDS; o++) {
        s.in[o] = PLAN_NONE;
    }
    s.weights = s.row = s.row2 = NO_VALUE;
    s.a = 1;
    s.k = 1;
    return s;
}

/* What the columns that fill up panels hold after a step. */
static enum plan_padding padding_of(const struct fuser *f, const struct plan_step *s) {
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
    case PLAN_UNARY: break;
    default: /* make their padding anew */ worst = PADDING_ZERO; break;
    }
    bool has_none = s->unit % 16 == 0;
    return has_none ? PADDING_ZERO : moves_zero && worst == PADDING_ZERO ? PADDING_FINITE : worst;
}

uint32_t fuse_push_inner(struct fuser *f, struct plan_step s) {
    return fuse_push_step(f, s, NO_VALUE);
}

uint32_t fuse_push_step(struct fuser *f, struct plan_step s, struct value_id result) {
    struct value_id named = result.n != NO_VALUE.n ? result : f->g->nodes[s.node.n].outputs[0];
    s.out = add_matrix(f, PLAN_COMPUTED, named, s.rows, s.columns, s.unit);
    if (result.n != NO_VALUE.n) {
        f->root[result.n].matrix = s.out;
    }
    struct plan_matrix *x = &f->matrices.data[s.out];
    x->is_single = s.is_single;
    x->step = (uint32_t)f->steps.len;
    x->padding = padding_of(f, &s);
    s.panels = x->panels;
    if (s.kind != PLAN_GEMM && s.kind != PLAN_PRODUCT && s.kind != PLAN_ROW_REDUCE) {
        s.groups = s.panels;
        s.inner = s.columns;
        s.inner_unit = s.unit;
    }
    vec_push(f->arena, &f->steps, s);
    return s.out;
}

/* Operand o: a computed value that must show its rows and columns plainly, a window perhaps. */
int fuse_take_plain(
    struct fuser *f, const struct graph_node *n, struct plan_step *s, int o, struct value_id v,
    struct err *err) {
    const struct fuse_view *w = &f->view[v.n];
    if (w->form != VIEW_PLAIN) {
        return fuse_node_error(
            n, ERR_UNSUPPORTED_OP, err,
            "an operand lies in heads or turned, which only products "
            "and attention can read");
    }
    s->in[o] = fuse_operand(f, v);
    const struct plan_matrix *x = &f->matrices.data[s->in[o]];
    uint32_t end;
    bool good = fuse_column_panel(x, w->first, &s->in_panel[o]) &&
                (w->first + w->columns == x->columns || (w->first + w->columns) % x->unit == 0 ||
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

/* ---- The walk -------------------------------------------------------------------------------- */

static int check_values(struct fuser *f, const struct graph_node *n, struct err *err) {
    bool has_table = n->op == GRAPH_OP_Pow || n->op == GRAPH_OP_Gather || n->op == GRAPH_OP_Slice ||
                     n->op == GRAPH_OP_Split || n->op == GRAPH_OP_Reshape ||
                     n->op == GRAPH_OP_Squeeze || n->op == GRAPH_OP_Unsqueeze ||
                     n->op == GRAPH_OP_ReduceMean || n->op == GRAPH_OP_ReduceSum ||
                     n->op == GRAPH_OP_ReduceMax; /* the operands behind the first */
    for (uint32_t i = 0; i < (has_table ? 1 : n->input_count); i++) {
        if (n->inputs[i].n != NO_VALUE.n && check_value(f, n, n->inputs[i], err) != 0) {
            return -err->code;
        }
    }
    for (uint32_t i = 0; i < n->output_count; i++) {
        if (check_value(f, n, n->outputs[i], err) != 0) {
            return -err->code;
        }
    }
    return 0;
}

/* All operands and results are float16. */
static bool is_half(const struct fuser *f, const struct graph_node *n) {
    return !fuse_is_single(f, n->outputs[0]) && !fuse_is_single(f, n->inputs[0]);
}

/* Without moving operands beforehand; an error when they do not lie as it takes. */
static int fuse_direct(struct fuser *f, uint32_t at, struct err *err) {
    const struct graph_node *n = &f->g->nodes[at];
    switch (is_half(f, n) ? n->op : GRAPH_OP_COUNT) {
    case GRAPH_OP_MatMul:
    case GRAPH_OP_Gemm:
        if (fuse_is_constant(f, n->inputs[1])) {
            return fuse_gemm(f, at, err);
        }
        return n->op == GRAPH_OP_MatMul ? fuse_product(f, at, err) : -ERR_UNSUPPORTED_OP;
    case GRAPH_OP_Attention: return fuse_attention(f, at, err);
    case GRAPH_OP_Softmax: return fuse_softmax(f, at, err);
    case GRAPH_OP_LayerNormalization: return fuse_norm(f, at, err);
    case GRAPH_OP_Add:
    case GRAPH_OP_Sub:
    case GRAPH_OP_Mul:
    case GRAPH_OP_Div:
    case GRAPH_OP_Max:
    case GRAPH_OP_Min: return fuse_pair(f, at, err);
    default:
        return is_half(f, n) && fuse_is_elementwise(n->op) ? fuse_unary(f, at, err)
                                                           : -ERR_UNSUPPORTED_OP;
    }
}

/* A step each where operands lie well; else what was begun is undone and they are laid out. */
static int fuse_node(struct fuser *f, uint32_t at, struct err *err) {
    const struct graph_node *n = &f->g->nodes[at];
    int rc = check_values(f, n, err);
    if (rc != 0) {
        return rc;
    }
    struct err why = {0};
    size_t steps = f->steps.len, matrices = f->matrices.len;
    if (fuse_direct(f, at, &why) == 0) {
        return 0;
    }
    for (uint32_t r = 0; r < f->root_count; r++) {
        uint32_t x = f->root[r].matrix;
        f->root[r].matrix = x != PLAN_NONE && x >= matrices ? PLAN_NONE : x;
    }
    f->steps.len = steps;
    f->matrices.len = matrices;
    return fuse_general(f, at, err);
}

/* A view that moves nothing. */
static bool is_free(const struct fuser *f, uint32_t node) {
    return fuse_is_view(f->g->nodes[node].op) && !f->is_moved[node];
}

static void count_uses(struct fuser *f) {
    const struct graph *g = f->g;
    for (uint32_t v = 0; v < g->value_count; v++) {
        f->root[v].matrix = PLAN_NONE;
        f->root[v].reader = NO_NODE;
    }
    for (uint32_t i = 0; i < g->node_count; i++) {
        const struct graph_node *n = &g->nodes[i];
        for (uint32_t k = 0; k < n->input_count && !is_free(f, i); k++) {
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

static int bind_interface(struct fuser *f, struct err *err) {
    const struct graph *g = f->g;
    struct plan *p = f->plan;
    p->inputs = ARENA_ARRAY(f->arena, uint32_t, g->input_count);
    p->outputs = ARENA_ARRAY(f->arena, uint32_t, g->output_count);
    for (uint32_t i = 0; i < g->input_count + g->output_count; i++) {
        bool is_input = i < g->input_count;
        struct value_id v = is_input ? g->inputs[i] : g->outputs[i - g->input_count];
        const struct graph_value *value = &g->values[v.n];
        /* An input keeps its own root, whatever its readers have made of it. */
        struct fuse_root *root = &f->root[is_input ? v.n : f->view[v.n].root];
        bool is_float = value->dtype == DTYPE_FLOAT16 || value->dtype == DTYPE_FLOAT;
        if (!is_float || root->rows == 0 || root->columns == 0 || root->rows > PLAN_MAX_ROWS ||
            root->columns > PLAN_MAX_COLUMNS) {
            return err_set(
                err, is_float ? ERR_UNSUPPORTED_OP : ERR_DTYPE,
                "%s '%s' must be a float16 or float32 tensor of 1 to %u rows and 1 to %u columns",
                is_input ? "input" : "output", value->name, PLAN_MAX_ROWS, PLAN_MAX_COLUMNS);
        }
        bool is_split = f->view[v.n].form == VIEW_SPLIT && f->view[v.n].first == 0 &&
                        f->view[v.n].columns == root->columns;
        if (!is_input && (fuse_is_constant(f, v) || (!fuse_is_whole(f, v) && !is_split))) {
            int rc = fuse_plain(f, value->producer.n, v, &p->outputs[i - g->input_count], err);
            if (rc != 0) {
                return rc;
            }
            continue;
        }
        if (root->matrix == PLAN_NONE) {
            struct value_id r = {(uint32_t)(root - f->root)};
            root->matrix =
                add_matrix(f, PLAN_INPUT, r, root->rows, root->columns, fuse_unit(f, r.n));
        }
        *(is_input ? &p->inputs[i] : &p->outputs[i - g->input_count]) = root->matrix;
    }
    return 0;
}

int plan_fuse(
    const struct graph *g, const struct plan_options *options, bool may_block, struct arena *a,
    struct plan **ret, struct err *err) {
    struct err local = {0};
    err = err != NULL ? err : &local;
    struct fuser f = {
        .g = g,
        .options = options,
        .may_block = may_block,
        .arena = a,
        .plan = ARENA_NEW(a, struct plan)};
    f.view = ARENA_ARRAY(a, struct fuse_view, g->value_count);
    f.root = ARENA_ARRAY(a, struct fuse_root, 2 * (size_t)g->value_count);
    f.root_count = g->value_count;
    f.is_transposed = ARENA_ARRAY(a, bool, g->value_count);
    f.is_absorbed = ARENA_ARRAY(a, bool, g->node_count);
    f.is_moved = ARENA_ARRAY(a, bool, g->node_count);
    fuse_trace(&f);
    count_uses(&f);
    for (uint32_t i = 0; i < g->node_count; i++) {
        if (!f.is_absorbed[i] && !is_free(&f, i)) {
            int rc = fuse_node(&f, i, err);
            if (rc != 0) {
                return rc;
            }
        }
    }
    int rc = bind_interface(&f, err);
    f.plan->graph = g;
    f.plan->steps = f.steps.data;
    f.plan->step_count = (uint32_t)f.steps.len;
    f.plan->matrices = f.matrices.data;
    f.plan->matrix_count = (uint32_t)f.matrices.len;
    *ret = f.plan;
    return rc;
}
