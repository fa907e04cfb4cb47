/* Bytes of a buffer as affine maps between a tensor and a page (design.md D7).
 *
 * A buffer is a sequence of units: a row of a panel (16 elements; in strips 4) for matrices, a
 * block of 1, 8 or 16 channels by 16 K for weights. Units run over two indices, inner fastest: rows
 * inside panels, K groups inside blocks of channels. A range of units is cut into at most three
 * rectangles of (outer, inner), and each rectangle where the tensor ends, so that padding is in no
 * slice: the host's zeroed page supplies it. */
#include "emit/emit_internal.h"

#include <assert.h>

#include "base/vec.h"

struct walk {
    struct slice_target *target;
    const struct tile_graph *tg;
    const struct lower_shard *s;
    uint32_t first_unit; /* of the range: lies at page_offset */
    uint32_t page_offset;
    uint32_t inner; /* units in one outer step */
};

struct rect { /* outer steps [o0, o1) by inner units [i0, i1), local to the buffer */
    uint32_t o0, o1, i0, i1;
};

void emit_push_slice(struct slice_target *t, const struct package_slice *s) {
    struct emit_host *h = t->host;
    if (h->slice_count == t->cap) {
        uint32_t cap = t->cap < 64 ? 64 : 2 * t->cap;
        struct package_slice *grown = ARENA_ARRAY(t->arena, struct package_slice, cap);
        for (uint32_t i = 0; i < h->slice_count; i++) {
            grown[i] = h->slices[i];
        }
        h->slices = grown;
        t->cap = cap;
    }
    struct package_slice *x = &h->slices[h->slice_count++];
    *x = *s;
    x->binding = t->binding;
    x->phase = t->phase;
    x->tile = t->tile;
    for (int k = 0; k < TENSOR_MAX_DIMS; k++) {
        if (x->extent[k] <= 1) {
            x->extent[k] = 1;
            x->tensor_stride[k] = 0;
            x->page_stride[k] = 0;
        }
    }
}

/* Global panel of a local one, through the runs. */
static uint32_t panel_of(const struct lower_shard *s, uint32_t local, uint32_t *ret_left) {
    for (uint32_t r = 0; r < s->run_count; r++) {
        uint32_t width = s->runs[r].last - s->runs[r].first;
        if (local < width) {
            *ret_left = width - local;
            return s->runs[r].first + local;
        }
        local -= width;
    }
    assert(!"a panel outside the shard");
    return 0;
}

static uint32_t at_page(const struct walk *w, uint32_t outer, uint32_t inner, uint32_t unit_bytes) {
    return w->page_offset + (outer * w->inner + inner - w->first_unit) * unit_bytes;
}

/* The same of any axis of `size` in units: element at which piece `at` of `piece` (16 or 4)
 * starts. */
static uint32_t
unit_place(uint32_t at, uint32_t piece, uint32_t unit, uint32_t size, uint32_t *ret_left) {
    uint32_t each = (unit + 15) / 16 * (16 / piece);
    uint32_t start = at / each * unit, inside = at % each * piece;
    uint32_t end = start < size && unit < size - start ? start + unit : size;
    *ret_left = start + inside < end ? end - start - inside : 0;
    return start + inside;
}

uint32_t emit_panel_column(const struct lower_shard *s, uint32_t panel, uint32_t *ret_left) {
    return unit_place(panel, 4 * s->quads, s->unit, s->matrix_columns, ret_left);
}

/* ---- Weights ------------------------------------------------------------------------------ */

/* Channels [n0, n1) in whole or one partial block, K [k0, k1) in whole or one partial group. */
static void weight_rect(
    const struct walk *w, uint32_t page, uint32_t n0, uint32_t blocks, uint32_t lanes, uint32_t k0,
    uint32_t groups, uint32_t ks) {
    const struct lower_shard *s = w->s;
    if (blocks == 0 || groups == 0 || lanes == 0 || ks == 0) {
        return;
    }
    int64_t n_stride = s->is_transposed ? s->row_last : 1;
    int64_t k_stride = s->is_transposed ? 1 : s->matrix_columns;
    struct package_slice x = {
        .tensor_offset = (uint64_t)(n0 * n_stride + k0 * k_stride),
        .page_offset = page,
        .extent = {blocks, groups, lanes, ks},
        .tensor_stride = {s->lanes * n_stride, 16 * k_stride, n_stride, k_stride},
        .page_stride = {(int32_t)(32 * s->lanes * w->inner), (int32_t)(32 * s->lanes), 32, 2}};
    emit_push_slice(w->target, &x);
}

/* Whole and partial blocks of channels of one unit by K groups of one unit. */
static void weights_unit(
    const struct walk *w, uint32_t o, uint32_t blocks, uint32_t n0, uint32_t n_left, uint32_t i,
    uint32_t groups, uint32_t k0, uint32_t k_left) {
    uint32_t lanes = w->s->lanes, unit = 32 * lanes;
    uint32_t full_n = n_left / lanes < blocks ? n_left / lanes : blocks;
    uint32_t part_n = full_n < blocks ? n_left % lanes : 0;
    uint32_t full_k = k_left / 16 < groups ? k_left / 16 : groups;
    uint32_t part_k = full_k < groups ? k_left % 16 : 0;
    uint32_t page = at_page(w, o, i, unit);
    uint32_t page_n = page + full_n * unit * w->inner, page_k = full_k * unit;
    uint32_t rest = n0 + lanes * full_n;
    weight_rect(w, page, n0, full_n, lanes, k0, full_k, 16);
    weight_rect(w, page + page_k, n0, full_n, lanes, k0 + 16 * full_k, 1, part_k);
    weight_rect(w, page_n, rest, 1, part_n, k0, full_k, 16);
    weight_rect(w, page_n + page_k, rest, 1, part_n, k0 + 16 * full_k, 1, part_k);
}

static void weights_rect(const struct walk *w, struct rect r) {
    const struct lower_shard *s = w->s;
    uint32_t unit_panels = (s->unit + 15) / 16, unit_groups = (s->inner_unit + 15) / 16;
    uint32_t each = 16 / s->lanes; /* blocks of a panel */
    for (uint32_t o = r.o0; o < r.o1;) {
        uint32_t left, n_left;
        uint32_t panel = panel_of(s, o / each, &left), skipped = s->lanes * (o % each);
        uint32_t n0 = emit_panel_column(s, panel, &n_left) + skipped;
        n_left -= n_left < skipped ? n_left : skipped;
        left = unit_panels - panel % unit_panels < left ? unit_panels - panel % unit_panels : left;
        uint32_t blocks = each * left - o % each;
        blocks = blocks < r.o1 - o ? blocks : r.o1 - o;
        for (uint32_t i = r.i0; i < r.i1;) {
            uint32_t k_left, group = s->group_first + i;
            uint32_t groups = unit_groups - group % unit_groups;
            groups = groups < r.i1 - i ? groups : r.i1 - i;
            uint32_t k0 = unit_place(group, 16, s->inner_unit, s->row_last, &k_left);
            weights_unit(w, o, blocks, n0, n_left, i, groups, k0, k_left);
            i += groups;
        }
        o += blocks;
    }
}

/* Channels [o0, o1) by whole or partial K groups, a channel after the other. */
static void channels_rect(const struct walk *w, struct rect r) {
    const struct lower_shard *s = w->s;
    int64_t n_stride = s->is_transposed ? s->row_last : 1;
    int64_t k_stride = s->is_transposed ? 1 : s->matrix_columns;
    uint32_t unit_groups = (s->inner_unit + 15) / 16, unit_quads = (s->unit + 15) / 16 * 4;
    for (uint32_t o = r.o0, channels; o < r.o1; o += channels) {
        uint32_t left, n_left, skip = o % 4;
        uint32_t quad = panel_of(s, o / 4, &left);
        uint32_t n = emit_panel_column(s, quad, &n_left) + skip;
        left = unit_quads - quad % unit_quads < left ? unit_quads - quad % unit_quads : left;
        channels = 4 * left - skip < r.o1 - o ? 4 * left - skip : r.o1 - o;
        uint32_t there = n_left > skip ? n_left - skip : 0;
        there = there < channels ? there : channels;
        for (uint32_t i = r.i0, groups; there > 0 && i < r.i1; i += groups) {
            uint32_t k_left, group = s->group_first + i;
            groups = unit_groups - group % unit_groups;
            groups = groups < r.i1 - i ? groups : r.i1 - i;
            uint32_t k = unit_place(group, 16, s->inner_unit, s->row_last, &k_left);
            struct package_slice x = {
                .tensor_offset = (uint64_t)(n * n_stride + k * k_stride),
                .page_offset = at_page(w, o, i, 32),
                .extent = {there, k_left < 16 * groups ? k_left : 16 * groups},
                .tensor_stride = {n_stride, k_stride},
                .page_stride = {(int32_t)(32 * w->inner), 2}};
            emit_push_slice(w->target, &x);
        }
    }
}

/* ---- Matrices in panels ------------------------------------------------------------------- */

/* Element stride of the last axis and offset of each row in a tensor that is broadcast to the
 * matrix of `like`: equal axes count, axes of 1 do not move. */
struct broadcast {
    struct shape own, like;
    int64_t column_stride;
};

static int64_t row_offset(const struct broadcast *b, uint32_t row) {
    int64_t offset = 0, stride = b->own.rank > 0 ? b->own.dim[b->own.rank - 1] : 1;
    int64_t rest = row;
    for (int d = b->like.rank - 2; d >= 0; d--) {
        int64_t index = rest % b->like.dim[d];
        rest /= b->like.dim[d];
        int own = d - b->like.rank + b->own.rank;
        if (own >= 0) {
            offset += b->own.dim[own] == 1 ? 0 : index * stride;
            stride *= b->own.dim[own];
        }
    }
    return offset;
}

static void panel_rect(
    const struct walk *w, const struct broadcast *b, uint32_t panel, uint32_t local,
    struct rect r) {
    const struct lower_shard *s = w->s;
    uint32_t panels = r.o1 - r.o0;
    uint32_t wide = 4 * s->quads, left;
    uint32_t element = s->is_single ? 4 : 2, unit = element * wide;
    uint32_t column = emit_panel_column(s, panel, &left);
    uint32_t full = left / wide < panels ? left / wide : panels;
    uint32_t part = full < panels ? left % wide : 0;
    int64_t first = row_offset(b, s->row_first + r.i0);
    int64_t step = r.i1 - r.i0 > 1 ? row_offset(b, s->row_first + r.i0 + 1) - first : 0;
    for (int p = 0; p < 2; p++) {
        uint32_t count = p == 0 ? full : (part > 0 ? 1 : 0);
        if (count == 0) {
            continue;
        }
        uint32_t skip = p == 0 ? 0 : full;
        struct package_slice x = {
            .tensor_offset = (uint64_t)(first + (int64_t)(column + wide * skip) * b->column_stride),
            .page_offset = at_page(w, local + skip, r.i0, unit),
            .extent = {count, r.i1 - r.i0, p == 0 ? wide : part},
            .tensor_stride = {wide * b->column_stride, step, b->column_stride},
            .page_stride = {(int32_t)(unit * w->inner), (int32_t)unit, (int32_t)element}};
        emit_push_slice(w->target, &x);
    }
}

static void panels_rect(const struct walk *w, struct rect r) {
    const struct lower_shard *s = w->s;
    const struct graph *g = w->tg->plan->graph;
    uint32_t step = lower_buffer(w->tg, s->buffer)->step;
    /* Inputs and outputs: rows one after the other, however the tensor's axes group them. */
    struct shape flat = {.rank = 2, .dim = {PLAN_MAX_ROWS, s->matrix_columns}};
    struct broadcast b = {.own = flat, .like = flat};
    const struct plan_step *owner = step != PLAN_NONE ? &w->tg->plan->steps[step] : NULL;
    /* Constants are broadcast to the node's result, but for those that are picked from. The step's
     * own may be of another shape: a Reshape behind the node is part of it. */
    if (g->values[s->value.n].kind == VALUE_INITIALIZER && owner != NULL &&
        owner->kind != PLAN_PICK) {
        b.own = g->values[s->value.n].shape;
        b.like = g->values[g->nodes[owner->node.n].outputs[0].n].shape;
        if (lower_buffer(w->tg, s->buffer)->kind == BUFFER_ROW) {
            b.like = (struct shape){.rank = 1, .dim = {s->matrix_columns}};
        }
    }
    int64_t last = b.own.rank > 0 ? b.own.dim[b.own.rank - 1] : 1;
    b.column_stride = last == 1 ? 0 : 1;
    for (uint32_t o = r.o0; o < r.o1;) {
        uint32_t left;
        uint32_t panel = panel_of(s, o, &left);
        uint32_t unit_panels = (s->unit + 15) / 16 * (4 / s->quads);
        left = unit_panels - panel % unit_panels < left ? unit_panels - panel % unit_panels : left;
        uint32_t count = left < r.o1 - o ? left : r.o1 - o;
        /* Rows with one stride go together. */
        for (uint32_t i = r.i0; i < r.i1;) {
            uint32_t end = i + 1;
            int64_t at = row_offset(&b, s->row_first + i);
            int64_t stride = end < r.i1 ? row_offset(&b, s->row_first + end) - at : 0;
            while (end < r.i1 &&
                   row_offset(&b, s->row_first + end) == at + stride * (int64_t)(end - i)) {
                end++;
            }
            panel_rect(w, &b, panel, o, (struct rect){o, o + count, i, end});
            i = end;
        }
        o += count;
    }
}

uint32_t emit_shard_granule(const struct lower_shard *s, const struct lower_buffer *b) {
    return b->kind == BUFFER_WEIGHTS ? 32 * s->lanes : (s->is_single ? 16 : 8) * s->quads;
}

void emit_shard_slices(
    struct slice_target *t, const struct tile_graph *tg, const struct lower_shard *s,
    uint32_t first, uint32_t last, uint32_t page_offset) {
    const struct lower_buffer *b = lower_buffer(tg, s->buffer);
    bool is_weights = b->kind == BUFFER_WEIGHTS;
    uint32_t unit = emit_shard_granule(s, b);
    struct walk w = {
        .target = t,
        .tg = tg,
        .s = s,
        .first_unit = first / unit,
        .page_offset = page_offset,
        .inner = is_weights              ? s->group_last - s->group_first
                 : b->kind == BUFFER_ROW ? 1
                                         : s->row_last - s->row_first};
    uint32_t at = first / unit, end = last / unit;
    while (at < end) {
        uint32_t o = at / w.inner, i = at % w.inner;
        struct rect r = {o, o + 1, i, w.inner};
        if (i == 0 && end - at >= w.inner) {
            r.o1 = o + (end - at) / w.inner;
        } else if (end - at < w.inner - i) {
            r.i1 = i + end - at;
        }
        if (is_weights && s->lanes == 1) {
            channels_rect(&w, r);
        } else if (is_weights) {
            weights_rect(&w, r);
        } else {
            panels_rect(&w, r);
        }
        at = (r.o1 - 1) * w.inner + r.i1;
    }
}
