/* Estimates of one choice. Exchange: payload of the busiest endpoint at 4 bytes an event, two
 * events a control, a fixed start and tail, and a constant a barrier [exchange 8]. Compute: the
 * kernels' own formulas. The estimate ranks; the schedule of each finalist decides. */
#include "plan/plan_internal.h"

uint32_t cost_ceil(uint32_t a, uint32_t b) {
    return (a + b - 1) / b;
}

static uint32_t largest_part(const uint32_t *bound, uint32_t count) {
    uint32_t largest = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t part = bound[i + 1] - bound[i];
        largest = part > largest ? part : largest;
    }
    return largest;
}

uint64_t
cost_move(const struct plan_dist *source, uint32_t rows, uint32_t panels, uint32_t m, uint32_t k) {
    uint32_t source_rows = largest_part(source->row_bound, source->m);
    uint32_t source_quads = largest_part(source->panel_bound, source->n) * source->quads;
    uint32_t source_panels = cost_ceil(source_quads, 4);
    uint32_t want_rows = cost_ceil(rows, m);
    uint32_t want_panels = cost_ceil(panels, k);
    bool same_rows = source->m == m;
    /* A piece is contiguous over panels only where both sides hold the same rows. */
    uint64_t from_columns = source->n == k ? 1 : 4 * want_panels / source_quads + 2;
    uint64_t from_rows = same_rows ? 1 : want_rows / source_rows + 2;
    from_columns = from_columns < source->n ? from_columns : source->n;
    from_rows = from_rows < source->m ? from_rows : source->m;
    uint64_t received = same_rows ? from_columns : from_rows * want_panels;
    uint64_t to_rows = same_rows ? 1 : source_rows / want_rows + 2;
    to_rows = to_rows < m ? to_rows : m;
    uint64_t sent = same_rows ? 1 : to_rows * source_panels;
    uint64_t in = 8ull * want_rows * want_panels + 3 * received;
    uint64_t out = 2ull * source_rows * source_quads + 2 * sent;
    return (in > out ? in : out) + PLAN_START_EVENTS;
}

uint64_t cost_gemm_compute(const struct plan_step *s, const struct grid *g, bool w_region1) {
    struct plan_step chosen = *s;
    chosen.k = g->k;
    chosen.form = g->form;
    chosen.w_region1 = w_region1;
    struct kernel_variant v = plan_variant(&chosen);
    if (g->form.by_rows) {
        return kernel_cycles(&v, (const uint32_t[]){s->groups, 2 * cost_ceil(4 * s->panels, g->n)});
    }
    uint32_t groups = cost_ceil(s->groups, g->k);
    uint32_t dims[3] = {
        cost_ceil(s->rows, g->m), groups / g->form.chunks, cost_ceil(s->panels, g->n)};
    uint32_t longer = groups % g->form.chunks; /* chunks with one group more */
    uint64_t cycles = (uint64_t)(g->form.chunks - longer) * kernel_cycles(&v, dims);
    dims[1]++;
    return longer > 0 ? cycles + (uint64_t)longer * kernel_cycles(&v, dims) : cycles;
}

struct share { /* of one reducer, the largest */
    uint32_t rows, panels;
    uint32_t reducers; /* of a block */
};

static struct share largest_share(const struct plan_step *s, const struct grid *g) {
    uint32_t panels = cost_ceil(s->panels, g->n), parts = g->k / g->form.row_parts;
    parts = parts < panels ? parts : panels;
    return (struct share){
        .rows = cost_ceil(s->rows, g->m * g->form.row_parts),
        .panels = cost_ceil(panels, parts),
        .reducers = parts * g->form.row_parts};
}

void cost_gemm_reduce(
    const struct plan_step *s, const struct grid *g, uint64_t *ret_exchange,
    uint64_t *ret_compute) {
    *ret_exchange = 0;
    *ret_compute = 0;
    if (g->k == 1) {
        return;
    }
    struct share share = largest_share(s, g);
    uint64_t rows = cost_ceil(s->rows, g->m), panels = cost_ceil(s->panels, g->n);
    uint32_t unit = g->form.is_f16 ? 8 : 16; /* events a row of a panel */
    /* Fewer rows than the block has: each panel is a message of its own. */
    uint32_t pieces = g->form.row_parts > 1 ? share.panels : 1;
    uint64_t own = (uint64_t)unit * share.rows * share.panels;
    uint64_t in = (g->k - 1) * (own + 3ull * pieces);
    uint64_t out =
        unit * rows * panels - (share.reducers == g->k ? own : 0) + 2ull * share.reducers * pieces;
    *ret_exchange = (in > out ? in : out) + PLAN_START_EVENTS + PLAN_SYNC_CYCLES;
    struct plan_step chosen = *s;
    chosen.k = g->k;
    chosen.form = g->form;
    struct kernel_variant v = plan_reduce_variant(&chosen);
    uint32_t parts = plan_reduces_in_place(&chosen) ? g->k - 1 : g->k;
    uint32_t dims[3] = {parts, share.rows, share.panels};
    *ret_compute = kernel_cycles(&v, dims);
}

uint64_t cost_gemm_stream(const struct plan_step *s, const struct grid *g) {
    uint64_t groups = cost_ceil(s->groups, g->k), panels = cost_ceil(s->panels, g->n);
    uint64_t phases = (uint64_t)(g->form.chunks - 1) * (PLAN_START_EVENTS + PLAN_SYNC_CYCLES);
    uint64_t pieces = g->form.chunks > 1 ? panels * g->form.chunks : panels;
    return phases + (g->form.streams_w ? 128 * groups * panels + 3 * pieces : 0);
}

/* Bytes that a reduction takes beside the partials, in buffers of at most PLAN_RECEIVE_BYTES. */
static uint64_t reduce_bytes(const struct grid *g, const struct share *share) {
    uint64_t own = (uint64_t)share->rows * share->panels;
    return (g->form.is_f16 ? 32 : 64) * (g->k - 1) * own + 32 * own;
}

struct footprint cost_gemm_bytes(const struct plan_step *s, const struct grid *g) {
    uint64_t rows = cost_ceil(s->rows, g->m);
    uint64_t panels = cost_ceil(s->panels, g->n);
    uint64_t groups = cost_ceil(s->groups, g->k);
    uint64_t chunk = (groups + g->form.chunks - 1) / g->form.chunks;
    uint64_t x = 32 * rows * chunk + 64, result = 32 * rows * panels;
    uint64_t w = g->form.streams_w ? 512 * chunk * panels : 0;
    uint64_t kept = g->form.streams_w ? (panels + g->m - 1) / g->m : panels;
    if (g->form.by_rows) {
        uint64_t quads = cost_ceil(4 * s->panels, g->n);
        return (struct footprint){
            .resident = (128 * groups + 8) * quads + 8, .transient = x + 8 * quads, .largest = x};
    }
    struct footprint f = {
        .resident = 512 * groups * kept + 32 * panels,
        .region1 = kernel_gemm_scratch_bytes((uint32_t)rows) + 128};
    if (!g->form.is_f16) {
        uint64_t received = 0;
        if (g->k > 1) {
            struct share share = largest_share(s, g);
            uint64_t own = (uint64_t)share.rows * share.panels;
            received = 64 * (g->k - 1) * own;
            f.region1 += received + 2 * result;
            result = 32 * own;
        }
        f.transient = x + w + result + f.region1;
        f.largest = x > result ? x : result;
        f.largest = w > f.largest ? w : f.largest;
        return f;
    }
    uint64_t home = g->form.chunks > 1 ? 32 * rows * ((groups + g->n - 1) / g->n) : 0;
    uint64_t reduced = 0;
    if (g->k > 1) {
        struct share share = largest_share(s, g);
        reduced = reduce_bytes(g, &share);
    }
    /* Operands are gone when the reduction begins. Streamed weights lie beside the partials. */
    f.region1 = result + w + 160;
    f.transient = result + 160 + (x + w + home > reduced ? x + w + home : reduced);
    f.largest = x;
    return f;
}

/* Units of `rows` rows of `panels` panels, as the kernel counts them. */
static uint32_t pick_count(const struct plan_step *s, uint32_t rows, uint32_t panels) {
    uint32_t bytes = (s->is_single ? 64 : 32) * rows * panels;
    return bytes / (s->pick->unit == PICK_DOUBLE ? 8 : 4);
}

uint64_t cost_pick_bytes(const struct plan_step *s, uint32_t rows, uint32_t panels) {
    return pick_count(s, rows, panels) * (s->pick->unit == PICK_HALF ? 8ull : 4ull);
}

uint64_t cost_local_bytes(const struct plan_step *s, uint32_t rows) {
    const struct plan_product *p = &s->product;
    struct kernel_variant v = plan_variant(s);
    if (s->kind == PLAN_PRODUCT && !s->is_single) {
        uint32_t panels = p->out_panels > 0 ? p->out_panels : s->panels;
        return 512ull * s->groups * panels + kernel_scratch_bytes(&v, rows) + 128;
    }
    if (s->kind == PLAN_ROW_REDUCE) {
        return 4ull * rows + 64;
    }
    return s->kind == PLAN_ATTENTION ? kernel_scratch_bytes(&v, p->b_rows) + 64ull : 0;
}

uint64_t cost_local(const struct plan_step *s, uint32_t rows, uint32_t panels) {
    struct kernel_variant v = plan_variant(s);
    uint32_t elements = rows * panels; /* in units of 16 */
    const struct plan_product *p = &s->product;
    switch (s->kind) {
    case PLAN_UNARY: return kernel_cycles(&v, (const uint32_t[]){4 * elements});
    case PLAN_ADD:
    case PLAN_MAP: return kernel_cycles(&v, (const uint32_t[]){elements});
    case PLAN_ADD_ROW:
    case PLAN_BINARY:
    case PLAN_BINARY_ROW:
        if (s->is_single) {
            return kernel_cycles(&v, (const uint32_t[]){elements});
        }
        return kernel_cycles(&v, (const uint32_t[]){rows, panels});
    case PLAN_SOFTMAX:
    case PLAN_NORM: return kernel_cycles(&v, (const uint32_t[]){rows, s->columns});
    case PLAN_TURN: return kernel_cycles(&v, (const uint32_t[]){s->columns, rows});
    case PLAN_PRODUCT: {
        struct kernel_variant r = plan_relayout_variant(s);
        uint32_t wide = p->out_panels > 0 ? p->out_panels : s->panels;
        if (s->is_single) {
            return kernel_cycles(&v, (const uint32_t[]){rows, s->inner, wide});
        }
        uint32_t b_columns = p->is_turned ? s->inner : 16 * wide;
        return kernel_cycles(&r, (const uint32_t[]){p->b_rows, b_columns}) +
               kernel_cycles(&v, (const uint32_t[]){rows, s->groups, wide});
    }
    case PLAN_ATTENTION:
        return kernel_cycles(&v, (const uint32_t[]){rows, p->b_rows, p->head_panels[0], panels});
    case PLAN_PICK: return kernel_cycles(&v, (const uint32_t[]){pick_count(s, rows, panels)});
    case PLAN_ROW_REDUCE: {
        struct kernel_variant unpack = plan_unpack_variant();
        return kernel_cycles(&v, (const uint32_t[]){rows, s->inner}) +
               (s->is_single ? 0 : kernel_cycles(&unpack, (const uint32_t[]){1, rows}));
    }
    case PLAN_CAST: return kernel_cycles(&v, (const uint32_t[]){elements});
    case PLAN_CARRY:
    case PLAN_GEMM:
    case PLAN_KINDS: break;
    }
    return 0;
}
