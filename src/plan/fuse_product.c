/* Products of two computed operands and attention: blocks of matrices by batch and head. */
#include "plan/fuse_internal.h"

/* Panels of a head of `size` columns when every head behind the view's first column starts at a
 * panel and is padded by itself. */
static int head_panels(
    struct fuser *f, const struct graph_node *n, struct plan_step *s, int o, struct value_id v,
    uint32_t size, struct err *err) {
    const struct fuse_view *w = &f->view[v.n];
    if (fuse_is_constant(f, v)) {
        return fuse_node_error(
            n, ERR_UNSUPPORTED_OP, err, "the operands must be computed, not initializers");
    }
    s->in[o] = fuse_operand(f, v);
    const struct plan_matrix *x = &f->matrices.data[s->in[o]];
    bool good = fuse_column_panel(x, w->first, &s->in_panel[o]) &&
                (x->unit == size || size % 16 == 0) &&
                (x->unit == x->columns || x->unit % size == 0);
    if (!good) {
        char text[160];
        snprintf(
            text, sizeof text,
            "heads of %u columns do not start at multiples of 16: only the "
            "result of a product with weights can be laid so",
            size);
        return fuse_node_error(n, ERR_UNSUPPORTED_OP, err, text);
    }
    if (x->padding == PADDING_WILD) {
        return fuse_node_error(
            n, ERR_UNSUPPORTED_OP, err,
            "an operand is a quotient whose last axis is no multiple of 16");
    }
    s->product.head_panels[o] = (size + 15) / 16;
    return 0;
}

/* An operand that is no head: whole rows, one unit. */
static int plain_block(
    struct fuser *f, const struct graph_node *n, struct plan_step *s, int o, struct value_id v,
    struct err *err) {
    const struct fuse_view *w = &f->view[v.n];
    if (fuse_is_constant(f, v)) {
        return fuse_node_error(n, ERR_UNSUPPORTED_OP, err, "the first operand must be computed");
    }
    s->in[o] = fuse_operand(f, v);
    const struct plan_matrix *x = &f->matrices.data[s->in[o]];
    bool ends = (w->first + w->columns) % 16 == 0 || w->first + w->columns == x->columns;
    if (x->unit != x->columns || w->first % 16 != 0 || !ends) {
        return fuse_node_error(
            n, ERR_UNSUPPORTED_OP, err, "an operand's columns do not start at a multiple of 16");
    }
    if (x->padding == PADDING_WILD) {
        return fuse_node_error(
            n, ERR_UNSUPPORTED_OP, err,
            "an operand is a quotient whose last axis is no multiple of 16");
    }
    s->in_panel[o] = w->first / 16;
    return 0;
}

static uint64_t leading(const struct shape *s, int keep) {
    uint64_t n = 1;
    for (int d = 0; d + keep < s->rank; d++) {
        n *= (uint64_t)s->dim[d];
    }
    return n;
}

static int product_operands(
    struct fuser *f, const struct graph_node *n, struct plan_step *s, uint32_t inner,
    uint32_t columns, struct err *err) {
    struct value_id a = n->inputs[0], b = n->inputs[1];
    enum fuse_form fa = f->view[a.n].form, fb = f->view[b.n].form;
    int rc;
    if (fa == VIEW_HEADS) {
        rc = head_panels(f, n, s, 0, a, inner, err);
    } else if (fa == VIEW_PLAIN) {
        rc = plain_block(f, n, s, 0, a, err);
    } else {
        rc = fuse_node_error(
            n, ERR_UNSUPPORTED_OP, err, "the first operand must not be turned or split");
    }
    if (rc != 0) {
        return rc;
    }
    s->product.is_turned = fb == VIEW_HEADS_T || fb == VIEW_TURNED;
    if (fb == VIEW_HEADS || fb == VIEW_HEADS_T) {
        return head_panels(f, n, s, 1, b, fb == VIEW_HEADS ? columns : inner, err);
    }
    if (fb == VIEW_SPLIT || fb == VIEW_CHANNELS) {
        return fuse_node_error(
            n, ERR_UNSUPPORTED_OP, err,
            "the last two axes of the second operand are not those of its matrix");
    }
    return plain_block(f, n, s, 1, b, err);
}

int fuse_product(struct fuser *f, uint32_t at, struct err *err) {
    const struct graph_node *n = &f->g->nodes[at];
    const struct shape *a = shape_of(f, n->inputs[0]), *b = shape_of(f, n->inputs[1]);
    const struct shape *out = shape_of(f, n->outputs[0]);
    if (a->rank < 2 || b->rank < 2) {
        return fuse_node_error(
            n, ERR_UNSUPPORTED_OP, err, "computed operands must have 2 dimensions or more");
    }
    struct plan_step s = fuse_new_step(PLAN_PRODUCT, at);
    struct plan_product *p = &s.product;
    uint32_t inner = (uint32_t)a->dim[a->rank - 1], columns = (uint32_t)b->dim[b->rank - 1];
    int rc = product_operands(f, n, &s, inner, columns, err);
    if (rc != 0) {
        return rc;
    }
    uint64_t total = leading(out, 2), own_a = leading(a, 2), own_b = leading(b, 2);
    bool out_heads = f->view[n->outputs[0].n].form == VIEW_HEADS;
    bool has_heads = p->head_panels[0] > 0 || p->head_panels[1] > 0;
    if (out_heads && f->view[n->inputs[1].n].form != VIEW_HEADS) {
        return fuse_node_error(
            n, ERR_UNSUPPORTED_OP, err,
            "the result is to lie in heads, the second operand does not");
    }
    p->heads = has_heads ? (uint32_t)out->dim[out->rank - 3] : 1;
    p->batches = (uint32_t)(total / p->heads);
    p->b_share = 1;
    p->b_is_shared = own_b == 1 && total > 1;
    if (own_a != total || (own_b != total && own_b != 1) ||
        (has_heads && p->b_is_shared && p->head_panels[1] > 0)) {
        return fuse_node_error(
            n, ERR_UNSUPPORTED_OP, err, "batches of computed operands cannot be broadcast");
    }
    p->a_rows = (uint32_t)a->dim[a->rank - 2];
    p->b_rows = p->is_turned ? columns : inner;
    s.inner = s.inner_unit = inner;
    s.groups = (inner + 15) / 16;
    s.rows = out_heads ? p->batches * p->a_rows : (uint32_t)total * p->a_rows;
    s.columns = out_heads ? p->heads * columns : columns;
    s.unit = out_heads && columns % 16 != 0 ? columns : s.columns;
    p->out_panels = out_heads ? (columns + 15) / 16 : 0;
    fuse_push_step(f, s, n->outputs[0]);
    return 0;
}

/* ---- Attention ------------------------------------------------------------------------------- */

/* Q K', scaled, softmax, P V: four steps that find each other's blocks on their tiles. */
static void push_composed(
    struct fuser *f, const struct plan_step *whole, uint32_t inner, struct value_id result) {
    const struct plan_product *w = &whole->product;
    struct plan_step s = fuse_new_step(PLAN_PRODUCT, whole->node.n);
    s.in[0] = whole->in[0];
    s.in[1] = whole->in[1];
    s.in_panel[0] = whole->in_panel[0];
    s.in_panel[1] = whole->in_panel[1];
    s.product = *w;
    s.product.out_panels = 0;
    s.product.is_turned = true;
    s.inner = s.inner_unit = inner;
    s.groups = (inner + 15) / 16;
    s.rows = w->batches * w->heads * w->a_rows;
    s.columns = s.unit = w->b_rows;
    uint32_t scores = fuse_push_inner(f, s);
    for (int i = 0; i < 2; i++) {
        struct plan_step next = fuse_new_step(i == 0 ? PLAN_MAP : PLAN_SOFTMAX, whole->node.n);
        next.in[0] = scores;
        next.op = MAP_AFFINE;
        next.a = w->scale;
        next.rows = s.rows;
        next.columns = next.unit = s.columns;
        f->matrices.data[scores].uses++;
        scores = fuse_push_inner(f, next);
    }
    struct plan_step last = *whole;
    last.kind = PLAN_PRODUCT;
    last.in[0] = scores;
    last.in_panel[0] = 0;
    last.in[1] = whole->in[2];
    last.in_panel[1] = whole->in_panel[2];
    last.in[2] = PLAN_NONE;
    last.in_panel[2] = 0;
    last.product.head_panels[0] = 0;
    last.product.head_panels[1] = w->head_panels[2];
    last.product.head_panels[2] = 0;
    last.inner = last.inner_unit = w->b_rows;
    last.groups = (w->b_rows + 15) / 16;
    f->matrices.data[scores].uses++;
    fuse_push_step(f, last, result);
}

/* Cycles of a head with so many rows of queries on a tile by the composed steps. */
static uint64_t composed_cycles(const struct plan_product *p, uint32_t rows) {
    uint32_t keys = p->b_rows, panels = p->out_panels, key_panels = (keys + 15) / 16;
    struct kernel_variant product = {.id = KERNEL_GEMM_AMP};
    struct kernel_variant copy = {.id = KERNEL_RELAYOUT, .op = RELAYOUT_COPY_W8};
    struct kernel_variant turn = {.id = KERNEL_RELAYOUT, .op = RELAYOUT_TRANSPOSE_W8};
    struct kernel_variant map = {.id = KERNEL_MAP, .op = MAP_AFFINE};
    struct kernel_variant softmax = {.id = KERNEL_SOFTMAX};
    return (uint64_t)kernel_cycles(&copy, (const uint32_t[]){keys, 16 * panels}) +
           kernel_cycles(&turn, (const uint32_t[]){keys, 16 * panels}) +
           kernel_cycles(&product, (const uint32_t[]){rows, panels, key_panels}) +
           kernel_cycles(&product, (const uint32_t[]){rows, key_panels, panels}) +
           kernel_cycles(&map, (const uint32_t[]){rows * key_panels}) +
           kernel_cycles(&softmax, (const uint32_t[]){rows, keys});
}

static uint64_t one_call_cycles(const struct plan_product *p, uint32_t rows) {
    struct kernel_variant one = {.id = KERNEL_ATTENTION};
    return kernel_cycles(
        &one, (const uint32_t[]){rows, p->b_rows, p->head_panels[0], p->out_panels});
}

/* The attention kernel works by inner products: good for few rows. Judged for a head on a tile. */
static bool one_call_pays(const struct plan_product *p) {
    return one_call_cycles(p, p->a_rows) < composed_cycles(p, p->a_rows);
}

/* Blocks against the other way when each head has its share of the tiles, operands to be moved. */
static bool
blocks_pay(const struct plan_step *s, const struct plan_options *options, bool is_one_call) {
    const struct plan_product *p = &s->product;
    struct attention_cut best;
    if (!options->accumulate_f16 || !attention_has_blocks(s) ||
        attention_menu(s, options->tiles, &best, 1) == 0) {
        return false;
    }
    uint32_t own = options->tiles / (p->batches * p->heads);
    uint32_t rows = cost_ceil(p->a_rows, own < p->a_rows ? own : p->a_rows);
    uint64_t loads = 8ull * p->b_rows * (p->head_panels[1] + p->out_panels);
    return best.score < loads + (is_one_call ? one_call_cycles(p, rows) : composed_cycles(p, rows));
}

int fuse_attention(struct fuser *f, uint32_t at, struct err *err) {
    const struct graph_node *n = &f->g->nodes[at];
    const struct shape *q = shape_of(f, n->inputs[0]), *v = shape_of(f, n->inputs[2]);
    struct plan_step s = fuse_new_step(PLAN_ATTENTION, at);
    struct plan_product *p = &s.product;
    uint32_t heads = (uint32_t)graph_attr(n, "q_num_heads")->i;
    uint32_t own = (uint32_t)graph_attr(n, "kv_num_heads")->i;
    bool is_split = q->rank == 4;
    for (int o = 0; o < 3; o++) {
        const struct shape *x = shape_of(f, n->inputs[o]);
        uint32_t size =
            is_split ? (uint32_t)x->dim[3] : (uint32_t)x->dim[2] / (o == 0 ? heads : own);
        if (f->view[n->inputs[o].n].form != (is_split ? VIEW_HEADS : VIEW_PLAIN)) {
            return fuse_node_error(
                n, ERR_UNSUPPORTED_OP, err,
                is_split ? "operands of 4 dimensions must come from Reshape and Transpose of rows"
                         : "the operands must not be turned or split");
        }
        int rc = head_panels(f, n, &s, o, n->inputs[o], size, err);
        if (rc != 0) {
            return rc;
        }
    }
    p->batches = (uint32_t)q->dim[0];
    p->heads = heads;
    p->b_share = heads / own;
    p->a_rows = (uint32_t)q->dim[is_split ? 2 : 1];
    p->b_rows = (uint32_t)v->dim[is_split ? 2 : 1];
    p->scale = (float)graph_attr(n, "scale")->f;
    uint32_t size = is_split ? (uint32_t)v->dim[3] : (uint32_t)v->dim[2] / own;
    s.rows = p->batches * p->a_rows;
    s.columns = heads * size;
    s.unit = size % 16 != 0 ? size : s.columns;
    p->out_panels = p->head_panels[2];
    uint32_t inner = (uint32_t)q->dim[q->rank - 1] / (is_split ? 1 : heads);
    bool is_clean = true; /* the kernel takes padding for zeros, the others make it so */
    for (int o = 0; o < 3; o++) {
        is_clean = is_clean && f->matrices.data[s.in[o]].padding == PADDING_ZERO;
    }
    bool is_one_call = is_clean && p->head_panels[2] == p->head_panels[0] && one_call_pays(p);
    p->is_blocked = is_clean && f->may_block && blocks_pay(&s, f->options, is_one_call);
    if (is_one_call || p->is_blocked) {
        fuse_push_step(f, s, n->outputs[0]);
    } else {
        push_composed(f, &s, inner, n->outputs[0]);
    }
    return 0;
}
