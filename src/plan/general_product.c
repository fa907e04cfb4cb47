/* Products, attention and convolution of plain matrices: see general.c. */
#include "plan/fuse_internal.h"

/* An operand as matrices [rows][columns], one after the other: axes counted from the right, -1 for
 * a missing one of 1. */
struct operand {
    struct value_id v;
    uint32_t rows, columns, batches;
    bool is_turned; /* it is stored as [columns][rows] */
};

static struct operand
operand_of(const struct fuser *f, struct value_id v, bool is_second, bool is_turned) {
    const struct shape *s = shape_of(f, v);
    struct operand o = {.v = v, .rows = 1, .columns = 1, .batches = 1, .is_turned = is_turned};
    if (s->rank == 1) { /* a row on the left, a column on the right */
        *(is_second ? &o.rows : &o.columns) = (uint32_t)s->dim[0];
        return o;
    }
    o.rows = (uint32_t)s->dim[s->rank - (is_turned ? 1 : 2)];
    o.columns = (uint32_t)s->dim[s->rank - (is_turned ? 2 : 1)];
    for (int d = 0; d + 2 < s->rank; d++) {
        o.batches *= (uint32_t)s->dim[d];
    }
    return o;
}

/* Number of the operand's matrix for batch `b` of the result. */
static uint64_t batch_of(const struct shape *own, const struct shape *out, int skip, uint64_t b) {
    uint64_t at = 0, stride = 1;
    for (int d = out->rank - 1 - skip, k = own->rank - 3; k >= 0; d--, k--) {
        uint64_t index = b % (uint64_t)out->dim[d];
        b /= (uint64_t)out->dim[d];
        at += own->dim[k] == 1 ? 0 : index * stride;
        stride *= (uint64_t)own->dim[k];
    }
    return at;
}

/* [batches * rows][columns], or turned: [batches * columns][rows]. */
static int lay_out(
    struct fuser *f, uint32_t at, const struct operand *o, uint32_t batches, int skip,
    bool wants_turned, uint32_t *ret, struct err *err) {
    const struct shape *own = shape_of(f, o->v);
    const struct shape *out = shape_of(f, f->g->nodes[at].outputs[0]);
    uint64_t size = (uint64_t)o->rows * o->columns, count = size * batches;
    uint32_t rows = wants_turned ? o->columns : o->rows,
             columns = wants_turned ? o->rows : o->columns;
    bool is_stored_so = o->is_turned == wants_turned && own->rank > 1;
    if (is_stored_so && batches == o->batches) {
        return fuse_plain(f, at, o->v, ret, err);
    }
    if (count > PLAN_MAX_PICK || (uint64_t)batches * rows > PLAN_MAX_ROWS) {
        return fuse_node_error(
            &f->g->nodes[at], ERR_UNSUPPORTED_OP, err,
            "an operand is too large to be laid out anew");
    }
    struct pick_ref *refs = fuse_refs(f, count);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t b = i / size, inside = i % size;
        uint64_t r = inside / columns, c = inside % columns;
        uint64_t from = o->batches == 1 ? 0 : batch_of(own, out, skip, b);
        uint64_t within = o->is_turned == wants_turned ? r * columns + c : c * rows + r;
        refs[i].element = (uint32_t)(from * size + within);
    }
    struct plan_step shape = fuse_shape_of(f, o->v);
    shape.rows = batches * rows;
    shape.columns = shape.unit = columns;
    struct pick_source source = {.value = o->v};
    *ret = fuse_pick(f, at, &source, 1, refs, &shape, NO_VALUE);
    return 0;
}

static void set_inner(struct plan_step *s, uint32_t inner) {
    s->inner = s->inner_unit = inner;
    s->groups = fuse_panels(inner, inner);
}

/* Weights go through the matrix unit as they come from the host. */
static struct plan_step weights_step(
    struct fuser *f, uint32_t at, uint32_t x, struct value_id weights, bool is_transposed,
    uint32_t columns) {
    struct plan_step s = fuse_step_on(f, PLAN_GEMM, at, x);
    set_inner(&s, s.columns);
    s.weights = fuse_root_of(f, weights);
    s.is_transposed = is_transposed;
    s.columns = s.unit = columns;
    return s;
}

/* b: [batches or 1][inner][columns], or turned. */
static struct plan_step product_step(
    struct fuser *f, uint32_t at, uint32_t a, uint32_t b, uint32_t batches, bool is_shared,
    bool is_turned) {
    struct plan_step s = fuse_step_on(f, PLAN_PRODUCT, at, a);
    const struct plan_matrix *y = &f->matrices.data[b];
    uint32_t own = is_shared ? 1 : batches;
    set_inner(&s, s.columns);
    s.in[1] = b;
    s.product = (struct plan_product){
        .batches = batches,
        .heads = 1,
        .b_share = 1,
        .a_rows = s.rows / batches,
        .b_rows = y->rows / own,
        .b_is_shared = is_shared,
        .is_turned = is_turned};
    s.columns = s.unit = is_turned ? s.product.b_rows : y->columns;
    return s;
}

/* The bare product of the node's first two operands: [all rows][columns]. */
static int product(
    struct fuser *f, uint32_t at, bool turns_a, bool turns_b, struct plan_step *ret,
    struct err *err) {
    const struct graph_node *n = &f->g->nodes[at];
    struct operand a = operand_of(f, n->inputs[0], false, turns_a);
    struct operand b = operand_of(f, n->inputs[1], true, turns_b);
    int skip = (shape_of(f, a.v)->rank > 1) + (shape_of(f, b.v)->rank > 1);
    uint64_t total = fuse_elements(f, n->outputs[0]) / a.rows / b.columns;
    if (total * a.rows > PLAN_MAX_ROWS || a.columns > PLAN_MAX_COLUMNS ||
        b.columns > PLAN_MAX_COLUMNS) {
        return fuse_node_error(
            n, ERR_UNSUPPORTED_OP, err, "more than 65536 rows of all batches, or columns");
    }
    uint32_t batches = (uint32_t)total, x, y;
    int rc = lay_out(f, at, &a, batches, skip, false, &x, err);
    if (rc != 0) {
        return rc;
    }
    if (fuse_is_constant(f, b.v) && fuse_is_whole(f, b.v) && b.batches == 1 &&
        !fuse_is_single(f, b.v)) {
        *ret = weights_step(f, at, x, b.v, b.is_turned, b.columns);
        return 0;
    }
    bool is_shared = b.batches == 1;
    bool turned = b.is_turned && !fuse_is_single(f, b.v);
    rc = lay_out(f, at, &b, is_shared ? 1 : batches, skip, turned, &y, err);
    if (rc == 0) {
        *ret = product_step(f, at, x, y, is_shared ? 1 : batches, is_shared, turned);
    }
    return rc;
}

/* alpha (a b) + beta c, where each factor of 1 costs nothing. */
int fuse_general_product(struct fuser *f, uint32_t at, struct err *err) {
    const struct graph_node *n = &f->g->nodes[at];
    struct value_id to = n->outputs[0];
    bool is_gemm = n->op == GRAPH_OP_Gemm;
    double alpha = is_gemm ? graph_attr(n, "alpha")->f : 1;
    double beta = is_gemm ? graph_attr(n, "beta")->f : 0;
    bool has_c = n->input_count > 2 && n->inputs[2].n != NO_VALUE.n && beta != 0;
    struct plan_step s;
    int rc = product(
        f, at, is_gemm && graph_attr(n, "transA")->i != 0,
        is_gemm && graph_attr(n, "transB")->i != 0, &s, err);
    if (rc != 0) {
        return rc;
    }
    if (alpha != 1) {
        s = fuse_step_on(f, PLAN_MAP, at, fuse_push_inner(f, s));
        s.op = MAP_AFFINE;
        s.a = (float)alpha;
    }
    if (has_c) {
        uint32_t c;
        rc = fuse_expand(f, at, n->inputs[2], shape_of(f, to), &c, err);
        if (rc != 0) {
            return rc;
        }
        if (beta != 1) {
            struct plan_step scaled = fuse_step_on(f, PLAN_MAP, at, c);
            scaled.op = MAP_AFFINE;
            scaled.a = (float)beta;
            c = fuse_push_inner(f, scaled);
        }
        s = fuse_step_on(f, PLAN_BINARY, at, fuse_push_inner(f, s));
        s.op = BINARY_ADD;
        s.in[1] = c;
    }
    return fuse_finish(f, at, s, to, err);
}

/* ---- Attention ------------------------------------------------------------------------------- */

struct heads { /* of one operand */
    uint32_t batches, heads, rows, size;
};

static struct heads heads_of(const struct fuser *f, struct value_id v, uint32_t heads) {
    const struct shape *s = shape_of(f, v);
    uint32_t last = (uint32_t)s->dim[s->rank - 1];
    if (s->rank == 4) {
        return (struct heads){(uint32_t)s->dim[0], heads, (uint32_t)s->dim[2], last};
    }
    return (struct heads){(uint32_t)s->dim[0], heads, (uint32_t)s->dim[1], last / heads};
}

/* Element (b, h, r, c) of a tensor of 3 or 4 dimensions. */
static uint64_t
head_element(const struct heads *x, bool is_split, uint64_t b, uint64_t h, uint64_t r, uint64_t c) {
    return is_split ? ((b * x->heads + h) * x->rows + r) * x->size + c
                    : ((b * x->rows + r) * x->heads + h) * x->size + c;
}

/* A block of rows by columns for each of `heads` heads, which share the operand's own ones;
 * turned: columns by rows. */
static int lay_heads(
    struct fuser *f, uint32_t at, struct value_id v, const struct heads *x, uint32_t heads,
    bool is_turned, uint32_t *ret, struct err *err) {
    uint64_t block = (uint64_t)x->rows * x->size, count = block * x->batches * heads;
    uint32_t rows = is_turned ? x->size : x->rows, columns = is_turned ? x->rows : x->size;
    if (count > PLAN_MAX_PICK || (uint64_t)x->batches * heads * rows > PLAN_MAX_ROWS) {
        return fuse_node_error(
            &f->g->nodes[at], ERR_UNSUPPORTED_OP, err,
            "an operand is too large to be laid out anew");
    }
    bool is_split = shape_of(f, v)->rank == 4;
    struct pick_ref *refs = fuse_refs(f, count);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t r = i % block / columns, c = i % columns, at_block = i / block;
        uint64_t h = at_block % heads / (heads / x->heads), b = at_block / heads;
        refs[i].element =
            (uint32_t)head_element(x, is_split, b, h, is_turned ? c : r, is_turned ? r : c);
    }
    struct plan_step shape = fuse_shape_of(f, v);
    shape.rows = x->batches * heads * rows;
    shape.columns = shape.unit = columns;
    struct pick_source source = {.value = v};
    *ret = fuse_pick(f, at, &source, 1, refs, &shape, NO_VALUE);
    return 0;
}

int fuse_general_attention(struct fuser *f, uint32_t at, struct err *err) {
    const struct graph_node *n = &f->g->nodes[at];
    struct value_id to = n->outputs[0];
    uint32_t heads = (uint32_t)graph_attr(n, "q_num_heads")->i;
    uint32_t own = (uint32_t)graph_attr(n, "kv_num_heads")->i, in[3];
    bool is_single = fuse_is_single(f, to);
    struct heads x[3];
    for (int o = 0; o < 3; o++) {
        x[o] = heads_of(f, n->inputs[o], o == 0 ? heads : own);
        int rc = lay_heads(f, at, n->inputs[o], &x[o], heads, is_single && o == 1, &in[o], err);
        if (rc != 0) {
            return rc;
        }
    }
    uint32_t batches = x[0].batches * heads;
    struct plan_step s = product_step(f, at, in[0], in[1], batches, false, !is_single);
    s = fuse_step_on(f, PLAN_MAP, at, fuse_push_inner(f, s));
    s.op = MAP_AFFINE;
    s.a = (float)graph_attr(n, "scale")->f;
    uint32_t weights = fuse_general_softmax(f, at, fuse_push_inner(f, s));
    s = product_step(f, at, weights, in[2], batches, false, false);
    struct heads result = {x[0].batches, heads, x[0].rows, x[2].size};
    uint64_t count = fuse_elements(f, to);
    uint32_t *order = ARENA_ARRAY(f->arena, uint32_t, count);
    bool is_split = shape_of(f, to)->rank == 4;
    for (uint64_t i = 0; i < count; i++) { /* i counts (b, h, r, c) */
        uint64_t block = i / result.size / result.rows;
        uint64_t e = head_element(
            &result, is_split, block / heads, block % heads, i / result.size % result.rows,
            i % result.size);
        order[e] = (uint32_t)i;
    }
    return fuse_show(f, at, fuse_push_inner(f, s), order, to, err);
}

/* ---- Convolution of patches that do not overlap ---------------------------------------------- */

/* Rows: one a patch; columns: its elements, channels outermost, as the weights have them. */
static int lay_patches(
    struct fuser *f, uint32_t at, const struct shape *x, const struct shape *w, uint32_t *ret,
    struct err *err) {
    const struct graph_node *n = &f->g->nodes[at];
    const struct shape *out = shape_of(f, n->outputs[0]);
    uint64_t rows = fuse_elements(f, n->outputs[0]) / (uint64_t)out->dim[1];
    uint64_t columns = fuse_elements(f, n->inputs[1]) / (uint64_t)w->dim[0];
    if (rows * columns > PLAN_MAX_PICK || rows > PLAN_MAX_ROWS || columns > PLAN_MAX_COLUMNS) {
        return fuse_node_error(
            n, ERR_UNSUPPORTED_OP, err,
            "the patches have too many elements to be moved one by one");
    }
    struct pick_ref *refs = fuse_refs(f, rows * columns);
    for (uint64_t i = 0; i < rows * columns; i++) {
        uint64_t row = i / columns, column = i % columns, at_x = 0, stride = 1;
        for (int d = x->rank - 1; d >= 2; d--) {
            uint64_t inside = column % (uint64_t)w->dim[d], place = row % (uint64_t)out->dim[d];
            column /= (uint64_t)w->dim[d];
            row /= (uint64_t)out->dim[d];
            at_x += (place * (uint64_t)w->dim[d] + inside) * stride;
            stride *= (uint64_t)x->dim[d];
        }
        refs[i].element = (uint32_t)(at_x + stride * (column + row * (uint64_t)x->dim[1]));
    }
    struct plan_step shape = fuse_shape_of(f, n->inputs[0]);
    shape.rows = (uint32_t)rows;
    shape.columns = shape.unit = (uint32_t)columns;
    struct pick_source source = {.value = n->inputs[0]};
    *ret = fuse_pick(f, at, &source, 1, refs, &shape, NO_VALUE);
    return 0;
}

int fuse_general_conv(struct fuser *f, uint32_t at, struct err *err) {
    const struct graph_node *n = &f->g->nodes[at];
    struct value_id to = n->outputs[0], w = n->inputs[1];
    const struct shape *ws = shape_of(f, w);
    bool has_bias = n->input_count > 2 && n->inputs[2].n != NO_VALUE.n;
    uint32_t x = PLAN_NONE, channels = (uint32_t)ws->dim[0];
    int rc = lay_patches(f, at, shape_of(f, n->inputs[0]), ws, &x, err);
    if (rc != 0) {
        return rc;
    }
    struct plan_step s;
    if (fuse_is_constant(f, w) && fuse_is_whole(f, w) && !fuse_is_single(f, w)) {
        s = weights_step(f, at, x, w, true, channels);
    } else { /* the weights as [channels][columns], or turned for float32 */
        uint32_t columns = f->matrices.data[x].columns, y;
        bool is_single = fuse_is_single(f, w);
        struct plan_step shape = fuse_shape_of(f, w);
        shape.rows = is_single ? columns : channels;
        shape.columns = shape.unit = is_single ? channels : columns;
        struct pick_ref *refs = fuse_refs(f, (uint64_t)channels * columns);
        for (uint64_t i = 0; is_single && i < (uint64_t)channels * columns; i++) {
            refs[i].element = (uint32_t)(i % channels * columns + i / channels);
        }
        struct pick_source source = {.value = w};
        y = fuse_pick(f, at, &source, 1, refs, &shape, NO_VALUE);
        s = product_step(f, at, x, y, 1, true, !is_single);
    }
    if (has_bias && s.kind == PLAN_GEMM && fuse_is_row(f, n->inputs[2], channels)) {
        s.row = fuse_root_of(f, n->inputs[2]);
    } else if (has_bias) {
        uint32_t made = fuse_push_inner(f, s), c;
        struct plan_step shape = fuse_step_on(f, PLAN_PICK, at, made);
        struct pick_ref *refs = fuse_refs(f, (uint64_t)shape.rows * channels);
        for (uint64_t i = 0; i < (uint64_t)shape.rows * channels; i++) {
            refs[i].element = (uint32_t)(i % channels);
        }
        struct pick_source source = {.value = n->inputs[2]};
        c = fuse_pick(f, at, &source, 1, refs, &shape, NO_VALUE);
        s = fuse_step_on(f, PLAN_BINARY, at, made);
        s.op = BINARY_ADD;
        s.in[1] = c;
    }
    /* The view of the result is what was made: rows are patches, columns channels. */
    uint32_t unit = fuse_unit(f, to.n);
    if (s.kind == PLAN_GEMM || unit == s.columns) {
        s.unit = unit;
        fuse_push_step(f, s, to);
        return 0;
    }
    struct plan_step shape = fuse_step_on(f, PLAN_PICK, at, fuse_push_inner(f, s));
    struct pick_source source = {.value = NO_VALUE, .matrix = shape.in[0]};
    struct pick_ref *refs = fuse_refs(f, (uint64_t)s.rows * s.columns);
    shape.unit = unit;
    fuse_pick(f, at, &source, 1, refs, &shape, to);
    return 0;
}
