/* Calls of all steps but GEMM: one block of the result on a tile, from operands that lie there or
 * are gathered. */
#include "lower/lower_internal.h"

#include <string.h>

static struct need need_of(const struct plan_step *s, uint32_t i, uint32_t j, int o) {
    struct plan_need n = plan_need(s, s->dist, i, j, o);
    return (struct need){n.row_first, n.row_last, 4 * n.panel_first, 4 * n.panel_last};
}

/* Operand buffers by block. Blocks with the same need are served by one multicast. */
static struct buffer_id *operand_buffers(struct lowering *l, uint32_t step, int o) {
    const struct plan_step *s = &l->plan->steps[step];
    const struct plan_dist *d = s->dist;
    const struct plan_matrix *x = &l->plan->matrices[s->in[o]];
    uint32_t blocks = d->m * d->n;
    bool may_share = s->kind == PLAN_PRODUCT || s->kind == PLAN_ATTENTION || s->kind == PLAN_PICK;
    struct buffer_id *ret = ARENA_ARRAY(l->arena, struct buffer_id, blocks);
    struct buffer_id *made = ARENA_ARRAY(l->arena, struct buffer_id, blocks);
    uint32_t *tiles = ARENA_ARRAY(l->arena, uint32_t, blocks);
    uint32_t *served = ARENA_ARRAY(l->arena, uint32_t, blocks);
    struct need *needs = ARENA_ARRAY(l->arena, struct need, blocks);
    for (uint32_t b = 0; b < blocks; b++) {
        needs[b] = need_of(s, b / d->n, b % d->n, o);
        ret[b] = NO_BUFFER;
    }
    for (uint32_t b = 0; b < blocks; b++) {
        if (ret[b].n != NO_BUFFER.n || needs[b].row_first == needs[b].row_last) {
            continue;
        }
        if (x->kind == PLAN_CONSTANT) {
            ret[b] = lower_constant(l, step, s->in[o], d->tile[b], &needs[b]);
            continue;
        }
        uint32_t count = 0;
        for (uint32_t c = b; c < (may_share ? blocks : b + 1); c++) {
            if (memcmp(&needs[b], &needs[c], sizeof needs[b]) == 0) {
                /* Blocks of one tile follow each other: they share the copy. */
                count += count == 0 || tiles[count - 1] != d->tile[c] ? 1 : 0;
                served[c] = count;
                tiles[count - 1] = d->tile[c];
            }
        }
        lower_gather(l, s->in[o], &needs[b], tiles, count, step, made);
        for (uint32_t c = b; c < blocks; c++) {
            ret[c] = served[c] > 0 ? made[served[c] - 1] : ret[c];
            served[c] = 0;
        }
    }
    return ret;
}

/* As above; what an earlier step with the same distribution gathered is used again. */
const struct buffer_id *lower_operands(struct lowering *l, uint32_t step, int o) {
    const struct plan_step *s = &l->plan->steps[step];
    bool is_alike = s->kind != PLAN_PRODUCT && s->kind != PLAN_ATTENTION && s->kind != PLAN_TURN &&
                    s->kind != PLAN_PICK && s->kind != PLAN_ROW_REDUCE &&
                    l->plan->matrices[s->in[o]].kind != PLAN_CONSTANT;
    struct gathered key = {
        .matrix = s->in[o],
        .dist = s->dist,
        .panel = s->in_panel[o],
        .level = l->times[step].level};
    const struct gathered *known = is_alike ? lower_find_gathered(l, &key) : NULL;
    if (known != NULL) {
        return known->buffers;
    }
    key.buffers = operand_buffers(l, step, o);
    return is_alike ? lower_keep_gathered(l, &key)->buffers : key.buffers;
}

struct local_call { /* one block */
    uint32_t step, tile, rows, panels, panel_first, panel_last;
    struct buffer_id in[PLAN_OPERANDS], out;
};

static struct lower_vertex
new_call(struct lowering *l, const struct local_call *c, struct kernel_variant v) {
    const struct step_time *t = &l->times[c->step];
    return lower_new_vertex(v, c->tile, t->level, t->time, c->step);
}

static void call_elementwise(struct lowering *l, const struct local_call *c) {
    const struct plan_step *s = &l->plan->steps[c->step];
    struct lower_vertex v = new_call(l, c, plan_variant(s));
    uint32_t n = c->rows * c->panels;
    struct buffer_id row = NO_BUFFER;
    if (s->kind == PLAN_ADD_ROW || s->kind == PLAN_BINARY_ROW) {
        row = lower_row(l, c->step, PARAM_ROW, c->tile, c->panel_first, c->panel_last);
    }
    switch (s->kind == PLAN_UNARY && s->is_single ? PLAN_MAP : s->kind) {
    case PLAN_ADD:
        lower_word_buffer(l, &v, ADD_A, c->in[0], 0);
        lower_word_buffer(l, &v, ADD_B, c->in[1], 0);
        lower_word_buffer(l, &v, ADD_OUT, c->out, 0);
        v.words[ADD_N].value = n;
        lower_push_vertex(l, v, ADD_WORDS, (const uint32_t[]){n});
        break;
    case PLAN_ADD_ROW:
        lower_word_buffer(l, &v, ADD_ROW_X, c->in[0], 0);
        lower_word_buffer(l, &v, ADD_ROW_ROW, row, 0);
        lower_word_buffer(l, &v, ADD_ROW_OUT, c->out, 0);
        v.words[ADD_ROW_ROWS].value = c->rows;
        v.words[ADD_ROW_PANELS].value = c->panels;
        lower_push_vertex(l, v, ADD_ROW_WORDS, (const uint32_t[]){c->rows, c->panels});
        break;
    case PLAN_BINARY:
    case PLAN_BINARY_ROW:
        if (s->is_single) {
            lower_word_buffer(l, &v, BINARY_F32_A, c->in[0], 0);
            lower_word_buffer(l, &v, BINARY_F32_B, c->in[1], 0);
            lower_word_buffer(l, &v, BINARY_F32_OUT, c->out, 0);
            v.words[BINARY_F32_N].value = n;
            lower_push_vertex(l, v, BINARY_F32_WORDS, (const uint32_t[]){n});
            break;
        }
        lower_word_buffer(l, &v, BINARY_A, c->in[0], 0);
        lower_word_buffer(l, &v, BINARY_B, s->kind == PLAN_BINARY ? c->in[1] : row, 0);
        lower_word_buffer(l, &v, BINARY_OUT, c->out, 0);
        v.words[BINARY_ROWS].value = c->rows;
        v.words[BINARY_PANELS].value = c->panels;
        lower_push_vertex(l, v, BINARY_WORDS, (const uint32_t[]){c->rows, c->panels});
        break;
    case PLAN_MAP:
        lower_word_buffer(l, &v, MAP_X, c->in[0], 0);
        lower_word_buffer(l, &v, MAP_OUT, c->out, 0);
        v.words[MAP_N].value = n;
        v.words[MAP_A].value = float_bits(s->a);
        v.words[MAP_B].value = float_bits(s->b);
        lower_push_vertex(l, v, MAP_WORDS, (const uint32_t[]){n});
        break;
    case PLAN_CAST:
        lower_word_buffer(l, &v, CAST_X, c->in[0], 0);
        lower_word_buffer(l, &v, CAST_OUT, c->out, 0);
        v.words[CAST_N].value = n;
        lower_push_vertex(l, v, CAST_WORDS, (const uint32_t[]){n});
        break;
    default:
        lower_word_buffer(l, &v, UNARY_X, c->in[0], 0);
        lower_word_buffer(l, &v, UNARY_OUT, c->out, 0);
        v.words[UNARY_QUADS].value = 4 * n;
        lower_push_vertex(l, v, UNARY_WORDS, (const uint32_t[]){4 * n});
        break;
    }
}

/* Whole rows of x into out, at the time of v. */
static void call_norm(
    struct lowering *l, struct lower_vertex v, uint32_t norm, uint32_t rows, struct buffer_id x,
    struct buffer_id out) {
    const struct plan_step *s = &l->plan->steps[norm];
    uint32_t tile = v.tile.n;
    lower_word_buffer(l, &v, LAYERNORM_X, x, 0);
    lower_word_buffer(l, &v, LAYERNORM_SCALE, lower_row(l, norm, PARAM_ROW, tile, 0, s->panels), 0);
    lower_word_buffer(l, &v, LAYERNORM_BIAS, lower_row(l, norm, PARAM_ROW2, tile, 0, s->panels), 0);
    lower_word_buffer(l, &v, LAYERNORM_OUT, out, 0);
    v.words[LAYERNORM_ROWS].value = rows;
    v.words[LAYERNORM_COLUMNS].value = s->columns;
    v.words[LAYERNORM_EPSILON].value = float_bits(s->a);
    lower_push_vertex(l, v, LAYERNORM_WORDS, (const uint32_t[]){rows, s->columns});
}

static void call_softmax(struct lowering *l, const struct local_call *c) {
    const struct plan_step *s = &l->plan->steps[c->step];
    struct lower_vertex v = new_call(l, c, plan_variant(s));
    lower_word_buffer(l, &v, SOFTMAX_X, c->in[0], 0);
    lower_word_buffer(l, &v, SOFTMAX_OUT, c->out, 0);
    v.words[SOFTMAX_ROWS].value = c->rows;
    v.words[SOFTMAX_COLUMNS].value = s->columns;
    lower_push_vertex(l, v, SOFTMAX_WORDS, (const uint32_t[]){c->rows, s->columns});
}

struct buffer_id lower_normalised(
    struct lowering *l, uint32_t norm, uint32_t step, uint32_t tile, uint32_t rows,
    struct buffer_id x) {
    const struct plan_step *s = &l->plan->steps[norm];
    const struct step_time *t = &l->times[step];
    struct buffer_id out = lower_new_buffer(l, tile, BUFFER_OPERAND, 32 * rows * s->panels, step);
    call_norm(
        l, lower_new_vertex(plan_variant(s), tile, t->level, t->time, norm), norm, rows, x, out);
    return out;
}

static void call_relayout(
    struct lowering *l, const struct local_call *c, struct kernel_variant k, struct buffer_id x,
    struct buffer_id out, uint32_t rows, uint32_t columns) {
    struct lower_vertex v = new_call(l, c, k);
    lower_word_buffer(l, &v, RELAYOUT_X, x, 0);
    lower_word_buffer(l, &v, RELAYOUT_OUT, out, 0);
    v.words[RELAYOUT_ROWS].value = rows;
    v.words[RELAYOUT_COLUMNS].value = columns;
    v.words[RELAYOUT_ROW_STRIDE].value = 32;
    v.words[RELAYOUT_PANEL_STRIDE].value = 32 * rows;
    lower_push_vertex(l, v, RELAYOUT_WORDS, (const uint32_t[]){rows, columns});
}

static struct buffer_id scratch(struct lowering *l, const struct local_call *c, uint32_t bytes) {
    return lower_new_buffer(l, c->tile, BUFFER_SCRATCH, (bytes + 3) & ~3u, c->step);
}

static void call_product_f32(struct lowering *l, const struct local_call *c) {
    const struct plan_step *s = &l->plan->steps[c->step];
    struct lower_vertex v = new_call(l, c, plan_variant(s));
    lower_word_buffer(l, &v, GEMM_F32_X, c->in[0], 0);
    lower_word_buffer(l, &v, GEMM_F32_W, c->in[1], 0);
    lower_word_buffer(l, &v, GEMM_F32_OUT, c->out, 0);
    v.words[GEMM_F32_ROWS].value = c->rows;
    v.words[GEMM_F32_INNER].value = s->inner;
    v.words[GEMM_F32_PANELS].value = c->panels;
    lower_push_vertex(l, v, GEMM_F32_WORDS, (const uint32_t[]){c->rows, s->inner, c->panels});
}

static void call_product(struct lowering *l, const struct local_call *c) {
    const struct plan_step *s = &l->plan->steps[c->step];
    const struct plan_product *p = &s->product;
    if (s->is_single) {
        call_product_f32(l, c);
        return;
    }
    uint32_t columns = p->out_panels > 0 ? s->columns / p->heads : s->columns;
    struct buffer_id w =
        lower_new_buffer(l, c->tile, BUFFER_OPERAND, 512 * s->groups * c->panels, c->step);
    call_relayout(
        l, c, plan_relayout_variant(s), c->in[1], w, p->b_rows, p->is_turned ? s->inner : columns);
    struct lower_vertex v = new_call(l, c, plan_variant(s));
    lower_word_buffer(l, &v, GEMM_X, c->in[0], 0);
    lower_word_buffer(l, &v, GEMM_W, w, 0);
    lower_word_buffer(l, &v, GEMM_OUT, c->out, 0);
    uint32_t bytes = kernel_scratch_bytes(&v.variant, c->rows);
    if (bytes > 0) {
        lower_word_buffer(l, &v, GEMM_SCRATCH, scratch(l, c, bytes), 0);
    }
    v.words[GEMM_ROWS].value = c->rows;
    v.words[GEMM_GROUPS].value = s->groups;
    v.words[GEMM_PANELS].value = c->panels;
    lower_push_vertex(l, v, GEMM_WORDS, (const uint32_t[]){c->rows, s->groups, c->panels});
}

/* Queries and keys that are one value have one buffer where it lies, and the kernel must find them
 * in two: the keys are copied then. */
static struct buffer_id keys_apart(struct lowering *l, const struct local_call *c) {
    struct buffer_id keys = c->in[1];
    if (keys.n != c->in[0].n) {
        return keys;
    }
    uint32_t bytes = l->buffers.data[keys.n].bytes;
    struct buffer_id copy = lower_new_buffer(l, c->tile, BUFFER_OPERAND, bytes, c->step);
    lower_add_copy(l, c->step, keys, 0, (struct lower_dest){copy, 0}, bytes);
    return copy;
}

static void call_attention(struct lowering *l, const struct local_call *c) {
    const struct plan_step *s = &l->plan->steps[c->step];
    struct buffer_id keys = keys_apart(l, c);
    struct lower_vertex v = new_call(l, c, plan_variant(s));
    lower_word_buffer(l, &v, ATTENTION_Q, c->in[0], 0);
    lower_word_buffer(l, &v, ATTENTION_K, keys, 0);
    lower_word_buffer(l, &v, ATTENTION_V, c->in[2], 0);
    lower_word_buffer(l, &v, ATTENTION_OUT, c->out, 0);
    uint32_t bytes = kernel_scratch_bytes(&v.variant, s->product.b_rows);
    if (bytes > 0) {
        lower_word_buffer(l, &v, ATTENTION_SCRATCH, scratch(l, c, bytes), 0);
    }
    v.words[ATTENTION_ROWS].value = c->rows;
    v.words[ATTENTION_KEYS].value = s->product.b_rows;
    v.words[ATTENTION_PANELS].value = s->product.head_panels[0];
    v.words[ATTENTION_OUT_PANELS].value = c->panels;
    v.words[ATTENTION_SCALE].value = float_bits(s->product.scale);
    lower_push_vertex(
        l, v, ATTENTION_WORDS,
        (const uint32_t[]){c->rows, s->product.b_rows, s->product.head_panels[0], c->panels});
}

/* One value a row, packed; then a row of a panel for each. */
static void call_row_reduce(struct lowering *l, const struct local_call *c) {
    const struct plan_step *s = &l->plan->steps[c->step];
    struct buffer_id packed = c->out;
    if (!s->is_single) {
        packed = lower_new_buffer(l, c->tile, BUFFER_OPERAND, (c->rows + 1) / 2 * 4, c->step);
    }
    struct lower_vertex v = new_call(l, c, plan_variant(s));
    lower_word_buffer(l, &v, ROW_REDUCE_X, c->in[0], 0);
    lower_word_buffer(l, &v, ROW_REDUCE_OUT, packed, 0);
    v.words[ROW_REDUCE_ROWS].value = c->rows;
    v.words[ROW_REDUCE_COLUMNS].value = s->inner;
    lower_push_vertex(l, v, ROW_REDUCE_WORDS, (const uint32_t[]){c->rows, s->inner});
    if (!s->is_single) {
        call_relayout(l, c, plan_unpack_variant(), packed, c->out, 1, c->rows);
    }
}

void lower_local(struct lowering *l, uint32_t step) {
    const struct plan_step *s = &l->plan->steps[step];
    const struct plan_dist *d = s->dist;
    const struct buffer_id *in[PLAN_OPERANDS] = {NULL};
    for (int o = 0; o < PLAN_OPERANDS; o++) {
        in[o] = s->in[o] != PLAN_NONE ? lower_operands(l, step, o) : NULL;
    }
    for (uint32_t b = 0; b < d->m * d->n; b++) {
        uint32_t i = b / d->n, j = b % d->n;
        struct local_call c = {
            .step = step,
            .tile = d->tile[b],
            .rows = d->row_bound[i + 1] - d->row_bound[i],
            .panel_first = d->panel_bound[j],
            .panel_last = d->panel_bound[j + 1],
            .out = l->home[s->out][b]};
        c.panels = c.panel_last - c.panel_first;
        for (int o = 0; o < PLAN_OPERANDS; o++) {
            c.in[o] = in[o] != NULL ? in[o][b] : NO_BUFFER;
        }
        switch (s->kind) {
        case PLAN_SOFTMAX: call_softmax(l, &c); break;
        case PLAN_NORM:
            call_norm(l, new_call(l, &c, plan_variant(s)), step, c.rows, c.in[0], c.out);
            break;
        case PLAN_TURN:
            call_relayout(l, &c, plan_variant(s), c.in[0], c.out, s->columns, c.rows);
            break;
        case PLAN_PICK: {
            struct lower_pick pick = {step, b, c.tile, c.in, c.out};
            lower_pick_block(l, &pick);
            break;
        }
        case PLAN_ROW_REDUCE: call_row_reduce(l, &c); break;
        case PLAN_PRODUCT: call_product(l, &c); break;
        case PLAN_ATTENTION: call_attention(l, &c); break;
        default: call_elementwise(l, &c); break;
        }
    }
}
