/* Values that are only another look at a matrix: names, regrouped leading axes, windows of columns,
 * heads. One walk in topological order gives each value its root, the value whose matrix it shares,
 * and the form in which it shows it:
 *
 *   PLAIN    the matrix itself, or columns [first, first + columns) of it
 *   SPLIT    [.., T, H, d]: the columns are H heads of d
 *   HEADS    [B, H, T, d]: rows B T, columns H d
 *   HEADS_T  [B, H, d, T]: the same, last axes turned
 *   TURNED   [.., C, T]: rows and columns of PLAIN turned
 *   CHANNELS [B, C, ..]: what a convolution makes, rows B times all axes behind, columns C
 *
 * The result of a view operator that would need elements in another order than these, or a window
 * whose padding would cost more than moving it, gets a matrix of its own, which a PICK fills.
 * The walk also collects where columns must start at a panel, which gives each root its unit. */
#include "plan/fuse_internal.h"

#include <string.h>

#define MIN_WINDOW_UNIT 24 /* columns padded to whole panels: at most a third is padding */
#define MIN_HEAD        8  /* of a Reshape that no Transpose reads */

static uint32_t gcd(uint32_t a, uint32_t b) {
    while (b != 0) {
        uint32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

void fuse_matrix_shape(const struct shape *s, uint64_t *ret_rows, uint64_t *ret_columns) {
    *ret_rows = 1;
    *ret_columns = s->rank > 0 ? (uint64_t)s->dim[s->rank - 1] : 1;
    for (int d = 0; d + 1 < s->rank; d++) {
        *ret_rows *= (uint64_t)s->dim[d];
    }
}

int fuse_node_error(
    const struct graph_node *n, enum err_code code, struct err *err, const char *text) {
    return err_at(
        err, code, n->pointer != NULL ? n->pointer : "", "node '%s' (%s): %s",
        n->name != NULL ? n->name : "", graph_op_name(n->op), text);
}

bool fuse_is_whole(const struct fuser *f, struct value_id v) {
    const struct fuse_view *w = &f->view[v.n];
    return w->form == VIEW_PLAIN && w->first == 0 && w->columns == f->root[w->root].columns;
}

/* A bound of columns that must fall on a panel. */
static void wish(struct fuser *f, uint32_t root, uint32_t column) {
    f->root[root].wish = gcd(f->root[root].wish, column);
}

uint32_t fuse_unit(const struct fuser *f, uint32_t root) {
    const struct fuse_root *r = &f->root[root];
    return r->wish == 0 || r->wish % 16 == 0 || r->wish >= r->columns ? r->columns : r->wish;
}

static void
own_root(struct fuser *f, struct value_id v, enum fuse_form form, uint64_t rows, uint64_t columns) {
    uint32_t heads = form == VIEW_HEADS || form == VIEW_SPLIT ? f->view[v.n].heads : 1;
    f->root[v.n].rows = (uint32_t)(rows < UINT32_MAX ? rows : UINT32_MAX);
    f->root[v.n].columns = (uint32_t)(columns < UINT32_MAX ? columns : UINT32_MAX);
    f->view[v.n] = (struct fuse_view){
        .root = v.n, .form = form, .columns = f->root[v.n].columns, .heads = heads};
}

static void plain_root(struct fuser *f, struct value_id v) {
    uint64_t rows, columns;
    fuse_matrix_shape(shape_of(f, v), &rows, &columns);
    own_root(f, v, VIEW_PLAIN, rows, columns);
}

/* ---- View operators ------------------------------------------------------------------------- */

static int view_reshape(struct fuser *f, const struct graph_node *n, struct err *err) {
    struct value_id to = n->outputs[0];
    struct fuse_view x = f->view[n->inputs[0].n];
    const struct shape *a = shape_of(f, n->inputs[0]), *b = shape_of(f, to);
    int64_t last_a = a->rank > 0 ? a->dim[a->rank - 1] : 1;
    int64_t last_b = b->rank > 0 ? b->dim[b->rank - 1] : 1;
    if (x.form == VIEW_PLAIN && last_a == last_b) {
        f->view[to.n] = x;
        return 0;
    }
    if (x.form == VIEW_CHANNELS && b->rank == 3 && b->dim[0] == a->dim[0] &&
        b->dim[1] == a->dim[1]) {
        x.form = VIEW_TURNED;
        f->view[to.n] = x;
        return 0;
    }
    /* Each head is padded to a panel, in all that lies like it: narrow ones must be worth it. */
    bool is_worth = last_b >= MIN_HEAD || f->is_transposed[to.n];
    if (x.form == VIEW_PLAIN && b->rank >= 2 && b->dim[b->rank - 2] * last_b == last_a &&
        is_worth) {
        x.form = VIEW_SPLIT;
        x.heads = (uint32_t)b->dim[b->rank - 2];
        wish(f, x.root, (uint32_t)last_b);
        f->view[to.n] = x;
        return 0;
    }
    if (x.form == VIEW_SPLIT && last_b == (int64_t)x.columns) {
        x.form = VIEW_PLAIN;
        x.heads = 1;
        f->view[to.n] = x;
        return 0;
    }
    if (x.form == VIEW_SPLIT && b->rank >= 2 && last_a == last_b &&
        b->dim[b->rank - 2] == (int64_t)x.heads) {
        f->view[to.n] = x;
        return 0;
    }
    return fuse_node_error(
        n, ERR_UNSUPPORTED_OP, err,
        "only leading axes can be regrouped, and the last axis split in heads or joined again");
}

static bool is_swap(const struct graph_attr *perm, int rank, int a, int b) {
    for (int i = 0; i < rank; i++) {
        int64_t want = i == a ? b : i == b ? a : i;
        if (perm->ints[i] != want) {
            return false;
        }
    }
    return true;
}

/* All axes but those at a and b keep their order, or are 1 and do not matter. */
static int view_transpose(struct fuser *f, const struct graph_node *n, struct err *err) {
    struct value_id to = n->outputs[0];
    struct fuse_view x = f->view[n->inputs[0].n];
    const struct graph_attr *perm = graph_attr(n, "perm");
    int rank = shape_of(f, to)->rank;
    bool keeps = true;
    int last = -1; /* axes of 1 may go anywhere */
    for (int i = 0; i < rank; i++) {
        if (shape_of(f, to)->dim[i] != 1) {
            keeps = keeps && perm->ints[i] > last;
            last = (int)perm->ints[i];
        }
    }
    bool swaps_middle = rank >= 4 && is_swap(perm, rank, rank - 3, rank - 2);
    bool swaps_last = rank >= 2 && is_swap(perm, rank, rank - 2, rank - 1);
    bool turns_heads = rank == 4 && perm->ints[0] == 0 && perm->ints[1] == 2 &&
                       perm->ints[2] == 3 && perm->ints[3] == 1;
    if (rank == 3) { /* [T, H, d]: one batch */
        swaps_middle = is_swap(perm, rank, 0, 1);
        turns_heads = perm->ints[0] == 1 && perm->ints[1] == 2 && perm->ints[2] == 0;
    }
    bool good = true;
    if (swaps_middle && x.form == VIEW_SPLIT) {
        x.form = VIEW_HEADS;
    } else if (swaps_middle && x.form == VIEW_HEADS) {
        x.form = VIEW_SPLIT;
    } else if (turns_heads && x.form == VIEW_SPLIT) {
        x.form = VIEW_HEADS_T;
    } else if (swaps_last && x.form == VIEW_HEADS) {
        x.form = VIEW_HEADS_T;
    } else if (swaps_last && x.form == VIEW_HEADS_T) {
        x.form = VIEW_HEADS;
    } else if (swaps_last && x.form == VIEW_PLAIN) {
        x.form = VIEW_TURNED;
    } else if (swaps_last && x.form == VIEW_TURNED) {
        x.form = VIEW_PLAIN;
    } else {
        good = keeps && x.form == VIEW_PLAIN && (rank == 0 || perm->ints[rank - 1] == rank - 1);
    }
    if (!good) {
        return fuse_node_error(
            n, ERR_UNSUPPORTED_OP, err,
            "only heads and rows can be exchanged, and the last two axes");
    }
    f->view[to.n] = x;
    return 0;
}

static int view_window(
    struct fuser *f, const struct graph_node *n, uint32_t output, uint32_t first, uint32_t columns,
    struct err *err) {
    struct fuse_view x = f->view[n->inputs[0].n];
    if (x.form != VIEW_PLAIN) {
        return fuse_node_error(n, ERR_UNSUPPORTED_OP, err, "the operand lies in heads");
    }
    x.first += first;
    x.columns = columns;
    uint32_t unit = gcd(gcd(f->root[x.root].wish, x.first), x.first + columns);
    if (unit % 16 != 0 && unit < MIN_WINDOW_UNIT) {
        return fuse_node_error(n, ERR_UNSUPPORTED_OP, err, "the window is too narrow for a view");
    }
    wish(f, x.root, x.first);
    wish(f, x.root, x.first + columns);
    f->view[n->outputs[output].n] = x;
    return 0;
}

static int view_split(struct fuser *f, const struct graph_node *n, struct err *err) {
    int rank = shape_of(f, n->inputs[0])->rank;
    if (graph_attr(n, "axis")->i != rank - 1) {
        return fuse_node_error(n, ERR_UNSUPPORTED_OP, err, "only the last axis can be split");
    }
    uint32_t first = 0;
    for (uint32_t i = 0; i < n->output_count; i++) {
        uint32_t columns = (uint32_t)shape_of(f, n->outputs[i])->dim[rank - 1];
        int rc = view_window(f, n, i, first, columns, err);
        if (rc != 0) {
            return rc;
        }
        first += columns;
    }
    return 0;
}

static int view_slice(struct fuser *f, const struct graph_node *n, struct err *err) {
    int64_t start[TENSOR_MAX_DIMS], step[TENSOR_MAX_DIMS];
    graph_slice(f->g, n, start, step);
    const struct shape *a = shape_of(f, n->inputs[0]), *b = shape_of(f, n->outputs[0]);
    bool good = a->rank > 0;
    for (int d = 0; d < a->rank; d++) {
        good = good && (a->dim[d] == b->dim[d] || d + 1 == a->rank) &&
               (step[d] == 1 || b->dim[d] == 1);
    }
    if (!good) {
        return fuse_node_error(
            n, ERR_UNSUPPORTED_OP, err, "only the last axis can be sliced, with step 1");
    }
    return view_window(f, n, 0, (uint32_t)start[a->rank - 1], (uint32_t)b->dim[a->rank - 1], err);
}

bool fuse_is_view(enum graph_op op) {
    switch (op) {
    case GRAPH_OP_Identity:
    case GRAPH_OP_Reshape:
    case GRAPH_OP_Squeeze:
    case GRAPH_OP_Unsqueeze:
    case GRAPH_OP_Transpose:
    case GRAPH_OP_Slice:
    case GRAPH_OP_Split: return true;
    default: return false;
    }
}

static int view_of(struct fuser *f, const struct graph_node *n, struct err *err) {
    uint32_t root = f->view[n->inputs[0].n].root;
    if (f->g->values[root].kind == VALUE_INITIALIZER && n->op != GRAPH_OP_Identity) {
        return fuse_node_error(
            n, ERR_UNSUPPORTED_OP, err,
            "the operand is an initializer: store it in the result's "
            "shape");
    }
    switch (n->op) {
    case GRAPH_OP_Reshape:
    case GRAPH_OP_Squeeze:
    case GRAPH_OP_Unsqueeze: return view_reshape(f, n, err);
    case GRAPH_OP_Transpose: return view_transpose(f, n, err);
    case GRAPH_OP_Slice: return view_slice(f, n, err);
    case GRAPH_OP_Split: return view_split(f, n, err);
    default: f->view[n->outputs[0].n] = f->view[n->inputs[0].n]; return 0;
    }
}

/* What is no view moves: each result gets a plain matrix. */
static void trace_view(struct fuser *f, uint32_t at) {
    const struct graph_node *n = &f->g->nodes[at];
    struct err why = {0};
    f->is_moved[at] = view_of(f, n, &why) != 0;
    for (uint32_t i = 0; i < n->output_count && f->is_moved[at]; i++) {
        plain_root(f, n->outputs[i]);
    }
}

/* ---- Results of steps ----------------------------------------------------------------------- */

/* A product of computed operands: in heads when the right operand is. */
static void trace_product(struct fuser *f, const struct graph_node *n) {
    struct value_id to = n->outputs[0];
    struct fuse_view b = f->view[n->inputs[1].n];
    const struct shape *s = shape_of(f, to);
    if (n->op == GRAPH_OP_MatMul && b.form == VIEW_HEADS && s->rank >= 3) {
        uint64_t rows = 1;
        for (int d = 0; d + 3 < s->rank; d++) {
            rows *= (uint64_t)s->dim[d];
        }
        f->view[to.n].heads = (uint32_t)s->dim[s->rank - 3];
        own_root(
            f, to, VIEW_HEADS, rows * (uint64_t)s->dim[s->rank - 2],
            (uint64_t)(s->dim[s->rank - 3] * s->dim[s->rank - 1]));
        wish(f, to.n, (uint32_t)s->dim[s->rank - 1]);
        return;
    }
    plain_root(f, to);
}

static void trace_attention(struct fuser *f, const struct graph_node *n) {
    struct value_id to = n->outputs[0];
    const struct shape *s = shape_of(f, to);
    if (s->rank == 4) {
        f->view[to.n].heads = (uint32_t)s->dim[1];
        own_root(
            f, to, VIEW_HEADS, (uint64_t)(s->dim[0] * s->dim[2]),
            (uint64_t)(s->dim[1] * s->dim[3]));
        wish(f, to.n, (uint32_t)s->dim[3]);
        return;
    }
    plain_root(f, to);
    int64_t heads = graph_attr(n, "q_num_heads")->i;
    wish(f, to.n, (uint32_t)(s->dim[s->rank - 1] / heads));
    for (int i = 0; i < 3; i++) {
        const struct shape *x = shape_of(f, n->inputs[i]);
        int64_t own = i == 0 ? heads : graph_attr(n, "kv_num_heads")->i;
        const struct fuse_view *w = &f->view[n->inputs[i].n];
        wish(f, w->root, (uint32_t)(x->dim[x->rank - 1] / own));
        wish(f, w->root, w->first);
    }
}

bool fuse_is_elementwise(enum graph_op op) {
    switch (op) {
    case GRAPH_OP_Add:
    case GRAPH_OP_Sub:
    case GRAPH_OP_Mul:
    case GRAPH_OP_Div:
    case GRAPH_OP_Max:
    case GRAPH_OP_Min:
    case GRAPH_OP_Pow:
    case GRAPH_OP_Relu:
    case GRAPH_OP_Tanh:
    case GRAPH_OP_Sigmoid:
    case GRAPH_OP_Gelu:
    case GRAPH_OP_Sqrt:
    case GRAPH_OP_Neg:
    case GRAPH_OP_Exp:
    case GRAPH_OP_Reciprocal: return true;
    default: return false;
    }
}

/* The result lies like the first operand that has its shape. */
static void trace_elementwise(struct fuser *f, const struct graph_node *n) {
    struct value_id to = n->outputs[0];
    for (uint32_t i = 0; i < n->input_count; i++) {
        const struct fuse_view *x = &f->view[n->inputs[i].n];
        if (f->g->values[x->root].kind != VALUE_INITIALIZER &&
            shape_equal(shape_of(f, n->inputs[i]), shape_of(f, to)) && x->form != VIEW_PLAIN) {
            enum fuse_form form = x->form;
            f->view[to.n].heads = x->heads;
            uint32_t heads = x->heads;
            own_root(f, to, form, f->root[x->root].rows, x->columns);
            f->view[to.n].heads = heads;
            if (heads > 1) {
                wish(f, to.n, x->columns / heads);
            }
            return;
        }
    }
    plain_root(f, to);
}

/* Elementwise results hand their wishes on to the operands that lie like them. */
static void spread_wishes(struct fuser *f) {
    for (uint32_t i = f->g->node_count; i-- > 0;) {
        const struct graph_node *n = &f->g->nodes[i];
        if (!fuse_is_elementwise(n->op)) {
            continue;
        }
        uint32_t root = n->outputs[0].n;
        for (uint32_t k = 0; k < n->input_count && f->root[root].wish != 0; k++) {
            const struct fuse_view *x = &f->view[n->inputs[k].n];
            if (x->first == 0 && x->columns == f->root[root].columns &&
                x->columns == f->root[x->root].columns) {
                wish(f, x->root, f->root[root].wish);
            }
        }
    }
}

void fuse_trace(struct fuser *f) {
    const struct graph *g = f->g;
    for (uint32_t v = 0; v < g->value_count; v++) {
        if (g->values[v].kind != VALUE_NODE) {
            plain_root(f, (struct value_id){v});
        }
    }
    for (uint32_t i = 0; i < g->node_count; i++) {
        if (g->nodes[i].op == GRAPH_OP_Transpose) {
            f->is_transposed[g->nodes[i].inputs[0].n] = true;
        }
    }
    for (uint32_t i = 0; i < g->node_count; i++) {
        const struct graph_node *n = &g->nodes[i];
        if (fuse_is_view(n->op)) {
            trace_view(f, i);
            continue;
        }
        if (n->op == GRAPH_OP_MatMul) {
            trace_product(f, n);
        } else if (n->op == GRAPH_OP_Attention) {
            trace_attention(f, n);
        } else if (fuse_is_elementwise(n->op)) {
            trace_elementwise(f, n);
        } else if (n->op == GRAPH_OP_Conv) {
            const struct shape *s = shape_of(f, n->outputs[0]);
            own_root(
                f, n->outputs[0], VIEW_CHANNELS,
                fuse_elements(f, n->outputs[0]) / (uint64_t)s->dim[1], (uint64_t)s->dim[1]);
        } else {
            for (uint32_t o = 0; o < n->output_count; o++) {
                plain_root(f, n->outputs[o]);
            }
        }
    }
    spread_wishes(f);
}

bool fuse_column_panel(const struct plan_matrix *x, uint32_t column, uint32_t *ret) {
    uint32_t unit_panels = (x->unit + 15) / 16;
    uint32_t inside = column % x->unit;
    if (inside % 16 != 0) {
        return false;
    }
    *ret = column / x->unit * unit_panels + inside / 16;
    return true;
}
