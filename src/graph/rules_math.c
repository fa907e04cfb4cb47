/* Shapes of the operators that compute: broadcasting, products, reductions, normalisation,
 * attention, convolution. Each fault shows the shapes that do not fit. */
#include <string.h>

#include "graph/graph_internal.h"

int graph_rule_same(const struct rule_call *c, struct shape *ret, struct err *err) {
    *ret = *c->in[0];
    return 0;
}

/* Right-aligned, sizes equal or 1 (numpy). The first `keep` axes from the right are left out.
 * Writes the axes of the result to ret, whose rank is set by the caller. */
static int broadcast_axes(
    const struct shape *a, const struct shape *b, int keep, struct shape *ret, struct err *err) {
    for (int i = keep; i < ret->rank; i++) { /* axes counted from the right */
        int64_t x = i < a->rank ? a->dim[a->rank - 1 - i] : 1;
        int64_t y = i < b->rank ? b->dim[b->rank - 1 - i] : 1;
        if (x != y && x != 1 && y != 1) {
            char ta[SHAPE_TEXT];
            char tb[SHAPE_TEXT];
            return err_set(
                err, ERR_SHAPE,
                "shapes %s and %s do not broadcast: sizes %lld and %lld on axis -%d",
                shape_print(a, ta, sizeof ta), shape_print(b, tb, sizeof tb), (long long)x,
                (long long)y, i + 1);
        }
        ret->dim[ret->rank - 1 - i] = x == 1 ? y : x;
    }
    return 0;
}

int graph_rule_broadcast(const struct rule_call *c, struct shape *ret, struct err *err) {
    struct shape s = *c->in[0];
    for (uint32_t i = 1; i < c->node->input_count; i++) {
        const struct shape *next = c->in[i];
        if (next == NULL) {
            return err_set(err, ERR_BAD_GRAPH, "input %u must not be absent", i);
        }
        struct shape wide = {.rank = s.rank > next->rank ? s.rank : next->rank};
        int r = broadcast_axes(&s, next, 0, &wide, err);
        if (r < 0) {
            return r;
        }
        s = wide;
    }
    *ret = s;
    return 0;
}

/* An optional operand that is broadcast to `target` and does not widen it. */
static int check_fits(
    const struct rule_call *c, uint32_t operand, const struct shape *target, struct err *err) {
    const struct shape *s = c->in[operand];
    if (s == NULL) {
        return 0;
    }
    bool fits = s->rank <= target->rank;
    for (int i = 0; fits && i < s->rank; i++) {
        int64_t size = s->dim[s->rank - 1 - i];
        fits = size == 1 || size == target->dim[target->rank - 1 - i];
    }
    if (!fits) {
        char ta[SHAPE_TEXT];
        char tb[SHAPE_TEXT];
        return err_set(
            err, ERR_SHAPE, "input %u: shape %s does not broadcast to %s", operand,
            shape_print(s, ta, sizeof ta), shape_print(target, tb, sizeof tb));
    }
    return 0;
}

int graph_rule_matmul(const struct rule_call *c, struct shape *ret, struct err *err) {
    const struct shape *const *in = c->in;
    char ta[SHAPE_TEXT];
    char tb[SHAPE_TEXT];
    struct shape a = *in[0];
    struct shape b = *in[1];
    if (a.rank == 0 || b.rank == 0) {
        return err_set(
            err, ERR_SHAPE, "shapes %s and %s: an operand has no dimensions",
            shape_print(&a, ta, sizeof ta), shape_print(&b, tb, sizeof tb));
    }
    bool is_row = a.rank == 1; /* 1-D operands count as a row and a column */
    bool is_column = b.rank == 1;
    if (is_row) {
        a = (struct shape){.rank = 2, .dim = {1, a.dim[0]}};
    }
    if (is_column) {
        b = (struct shape){.rank = 2, .dim = {b.dim[0], 1}};
    }
    if (a.dim[a.rank - 1] != b.dim[b.rank - 2]) {
        return err_set(
            err, ERR_SHAPE, "shapes %s and %s: inner sizes %lld and %lld differ",
            shape_print(in[0], ta, sizeof ta), shape_print(in[1], tb, sizeof tb),
            (long long)a.dim[a.rank - 1], (long long)b.dim[b.rank - 2]);
    }
    struct shape s = {.rank = a.rank > b.rank ? a.rank : b.rank};
    int r = broadcast_axes(&a, &b, 2, &s, err);
    if (r < 0) {
        return r;
    }
    int rank = s.rank - 2;
    if (!is_row) {
        s.dim[rank++] = a.dim[a.rank - 2];
    }
    if (!is_column) {
        s.dim[rank++] = b.dim[b.rank - 1];
    }
    for (int i = rank; i < TENSOR_MAX_DIMS; i++) {
        s.dim[i] = 0;
    }
    s.rank = rank;
    *ret = s;
    return 0;
}

int graph_rule_gemm(const struct rule_call *c, struct shape *ret, struct err *err) {
    char ta[SHAPE_TEXT];
    char tb[SHAPE_TEXT];
    const struct shape *a = c->in[0];
    const struct shape *b = c->in[1];
    if (a->rank != 2 || b->rank != 2) {
        return err_set(
            err, ERR_SHAPE, "shapes %s and %s: exactly 2 dimensions each",
            shape_print(a, ta, sizeof ta), shape_print(b, tb, sizeof tb));
    }
    int turn_a = graph_attr(c->node, "transA")->i != 0;
    int turn_b = graph_attr(c->node, "transB")->i != 0;
    if (a->dim[1 - turn_a] != b->dim[turn_b]) {
        return err_set(
            err, ERR_SHAPE,
            "shapes %s and %s with transA %d, transB %d: inner sizes %lld and %lld differ",
            shape_print(a, ta, sizeof ta), shape_print(b, tb, sizeof tb), turn_a, turn_b,
            (long long)a->dim[1 - turn_a], (long long)b->dim[turn_b]);
    }
    *ret = (struct shape){.rank = 2, .dim = {a->dim[turn_a], b->dim[1 - turn_b]}};
    return check_fits(c, 2, ret, err);
}

int graph_rule_reduce(const struct rule_call *c, struct shape *ret, struct err *err) {
    bool is_named[TENSOR_MAX_DIMS];
    const struct shape *s = c->in[0];
    int r = graph_take_axes(c, 1, s->rank, is_named, err);
    if (r < 0) {
        return r;
    }
    bool is_kept = graph_attr(c->node, "keepdims")->i != 0;
    bool is_all = c->in[1] == NULL && graph_attr(c->node, "noop_with_empty_axes")->i == 0;
    *ret = (struct shape){0};
    for (int i = 0; i < s->rank; i++) {
        if (!is_all && !is_named[i]) {
            ret->dim[ret->rank++] = s->dim[i];
        } else if (is_kept) {
            ret->dim[ret->rank++] = 1;
        }
    }
    return 0;
}

int graph_rule_norm(const struct rule_call *c, struct shape *ret, struct err *err) {
    *ret = *c->in[0];
    if (graph_attr(c->node, "epsilon")->f < 0) {
        return err_set(
            err, ERR_BAD_GRAPH, "attribute 'epsilon' is %g, at least 0",
            graph_attr(c->node, "epsilon")->f);
    }
    int r = check_fits(c, 1, ret, err);
    return r == 0 ? check_fits(c, 2, ret, err) : r;
}

/* Sizes that the shapes of Q, K and V must agree in. */
struct heads {
    int64_t batch, count, sequence, size;
};

/* 4 dimensions are [batch, heads, sequence, size], 3 are [batch, sequence, heads * size]. */
static int take_heads(
    const struct shape *s, const char *attr, int64_t told, struct heads *ret, struct err *err) {
    char text[SHAPE_TEXT];
    shape_print(s, text, sizeof text);
    if (s->rank == 4) {
        *ret = (struct heads){s->dim[0], s->dim[1], s->dim[2], s->dim[3]};
        return told == ret->count ? 0
                                  : err_set(
                                        err, ERR_SHAPE, "attribute '%s' is %lld, shape %s has %lld",
                                        attr, (long long)told, text, (long long)ret->count);
    }
    if (told < 1) {
        return err_set(err, ERR_BAD_GRAPH, "attribute '%s' is required with shape %s", attr, text);
    }
    if (s->dim[2] % told != 0) {
        return err_set(
            err, ERR_SHAPE, "shape %s: %lld columns are no multiple of %s %lld", text,
            (long long)s->dim[2], attr, (long long)told);
    }
    *ret = (struct heads){s->dim[0], told, s->dim[1], s->dim[2] / told};
    return 0;
}

static int
check_heads(const struct heads *q, const struct heads *k, const struct heads *v, struct err *err) {
    const char *what = NULL;
    int64_t a = 0;
    int64_t b = 0;
    if (q->batch != k->batch || q->batch != v->batch) {
        what = "batch sizes";
        a = q->batch;
        b = q->batch != k->batch ? k->batch : v->batch;
    } else if (q->size != k->size) {
        what = "head sizes of Q and K";
        a = q->size;
        b = k->size;
    } else if (k->sequence != v->sequence) {
        what = "sequences of K and V";
        a = k->sequence;
        b = v->sequence;
    } else if (k->count != v->count) {
        what = "heads of K and V";
        a = k->count;
        b = v->count;
    }
    if (what != NULL) {
        return err_set(err, ERR_SHAPE, "%s %lld and %lld differ", what, (long long)a, (long long)b);
    }
    if (q->count % k->count != 0) {
        return err_set(
            err, ERR_SHAPE, "%lld heads of Q are no multiple of %lld heads of K",
            (long long)q->count, (long long)k->count);
    }
    return 0;
}

/* What op.def reads and nothing here can do. */
static int refuse_attention(const struct graph_node *n, struct err *err) {
    static const char *const names[] = {"is_causal", "qk_matmul_output_mode"};
    for (int i = 0; i < 2; i++) {
        if (graph_attr(n, names[i])->i != 0) {
            return err_set(
                err, ERR_UNSUPPORTED_OP, "attribute '%s' is %lld, only 0 is supported", names[i],
                (long long)graph_attr(n, names[i])->i);
        }
    }
    if (graph_attr(n, "softcap")->f != 0) {
        return err_set(
            err, ERR_UNSUPPORTED_OP, "attribute 'softcap' is %g, only 0 is supported",
            graph_attr(n, "softcap")->f);
    }
    return 0;
}

int graph_rule_attention(const struct rule_call *c, struct shape *ret, struct err *err) {
    struct heads h[3];
    char text[3][SHAPE_TEXT];
    const struct graph_attr *q_heads = graph_attr(c->node, "q_num_heads");
    const struct graph_attr *kv_heads = graph_attr(c->node, "kv_num_heads");
    int rank = c->in[0]->rank;
    int r = refuse_attention(c->node, err);
    if (r < 0) {
        return r;
    }
    for (int i = 0; i < 3; i++) {
        shape_print(c->in[i], text[i], SHAPE_TEXT);
    }
    if ((rank != 3 && rank != 4) || c->in[1]->rank != rank || c->in[2]->rank != rank) {
        return err_set(
            err, ERR_SHAPE, "shapes %s, %s and %s: 3 or 4 dimensions, the same number each",
            text[0], text[1], text[2]);
    }
    for (int i = 0; i < 3 && r == 0; i++) {
        const struct graph_attr *told = i == 0 ? q_heads : kv_heads;
        r = take_heads(c->in[i], told->name, told->i, &h[i], err);
    }
    if (r == 0) {
        r = check_heads(&h[0], &h[1], &h[2], err);
    }
    if (r < 0) {
        err_wrap(err, "shapes %s, %s and %s", text[0], text[1], text[2]);
        return r;
    }
    *ret = *c->in[0];
    ret->dim[rank - 1] = rank == 4 ? h[2].size : h[0].count * h[2].size;
    return 0;
}

static int check_list(
    const struct graph_node *n, const char *name, int count, const int64_t *want, const char *why,
    struct err *err) {
    const struct graph_attr *attr = graph_attr(n, name);
    if (attr->count != (uint32_t)count) {
        return err_set(
            err, ERR_BAD_GRAPH, "attribute '%s' has %u items, required are %d", name, attr->count,
            count);
    }
    for (int i = 0; i < count; i++) {
        int64_t wanted = want != NULL ? want[i] : 0;
        if (attr->ints[i] != wanted) {
            return err_set(
                err, ERR_UNSUPPORTED_OP, "attribute '%s': item %d is %lld, %s %lld", name, i,
                (long long)attr->ints[i], why, (long long)wanted);
        }
    }
    return 0;
}

/* Patches only: the kernel steps by its own size and sees no border. */
static int check_conv(const struct rule_call *c, int spatial, struct err *err) {
    static const int64_t ones[TENSOR_MAX_DIMS] = {1, 1, 1, 1, 1, 1};
    const struct graph_node *n = c->node;
    const int64_t *kernel = c->in[1]->dim + 2;
    const char *pad = graph_attr(n, "auto_pad")->s;
    if (graph_attr(n, "group")->i != 1) {
        return err_set(
            err, ERR_UNSUPPORTED_OP, "attribute 'group' is %lld, only 1 is supported",
            (long long)graph_attr(n, "group")->i);
    }
    if (pad[0] == 'S') {
        return err_set(
            err, ERR_UNSUPPORTED_OP, "attribute 'auto_pad' is %s, only without padding", pad);
    }
    int r = check_list(n, "kernel_shape", spatial, kernel, "the weights have", err);
    if (r == 0) {
        r = check_list(n, "strides", spatial, kernel, "supported is the kernel's", err);
    }
    if (r == 0) {
        r = check_list(n, "dilations", spatial, ones, "supported is", err);
    }
    return r == 0 ? check_list(n, "pads", 2 * spatial, NULL, "supported is", err) : r;
}

int graph_rule_conv(const struct rule_call *c, struct shape *ret, struct err *err) {
    const struct shape *x = c->in[0];
    const struct shape *w = c->in[1];
    char tx[SHAPE_TEXT];
    char tw[SHAPE_TEXT];
    shape_print(x, tx, sizeof tx);
    shape_print(w, tw, sizeof tw);
    if (x->rank < 3 || w->rank != x->rank) {
        return err_set(
            err, ERR_SHAPE, "shapes %s and %s: at least 3 dimensions, the same number each", tx,
            tw);
    }
    int r = check_conv(c, x->rank - 2, err);
    if (r < 0) {
        err_wrap(err, "shapes %s and %s", tx, tw);
        return r;
    }
    if (x->dim[1] != w->dim[1]) {
        return err_set(
            err, ERR_SHAPE, "shapes %s and %s: %lld and %lld channels", tx, tw,
            (long long)x->dim[1], (long long)w->dim[1]);
    }
    *ret = (struct shape){.rank = x->rank, .dim = {x->dim[0], w->dim[0]}};
    for (int i = 2; i < x->rank; i++) {
        ret->dim[i] = x->dim[i] / w->dim[i];
        if (ret->dim[i] < 1) {
            return err_set(
                err, ERR_SHAPE, "shapes %s and %s: the kernel is longer than axis %d", tx, tw, i);
        }
    }
    if (c->in[2] != NULL && (c->in[2]->rank != 1 || c->in[2]->dim[0] != w->dim[0])) {
        return err_set(
            err, ERR_SHAPE, "input 2: shape %s, required is [%lld] with weights %s",
            shape_print(c->in[2], tx, sizeof tx), (long long)w->dim[0], tw);
    }
    return 0;
}
