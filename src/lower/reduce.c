/* The reduction of a K split: what each reducer receives, and its call. */
#include "lower/lower_internal.h"

uint32_t lower_partial_bytes(const struct plan_step *s) {
    return s->form.is_f16 ? 32 : 64;
}

static struct buffer_id result_of(
    struct lowering *l, const struct plan_step *s, const struct gemm_tile *g, uint32_t column) {
    uint32_t row = g->i * s->form.row_parts + g->share.row_part;
    return l->home[s->out][row * s->dist->n + column + g->share.panel_part];
}

static struct buffer_id bias_of(struct lowering *l, uint32_t step, const struct gemm_tile *g) {
    return lower_row(l, step, PARAM_ROW, g->tile, g->share.panel_first, g->share.panel_last);
}

/* ---- The own share lies behind the others, received parts behind it (REDUCE) ----------------- */

/* Offset of share [first, ..) in the partial buffer of g. */
static uint32_t share_offset(const struct plan_step *s, const struct gemm_tile *g, uint32_t first) {
    uint32_t at = first - s->panel_bound[g->j];
    if (first >= g->share.panel_last && g->share.panel_last > g->share.panel_first) {
        at -= g->share.panel_last - g->share.panel_first;
    }
    return 64 * g->rows * at;
}

static void reduce_behind(
    struct lowering *l, uint32_t step, const struct gemm_tile *tiles, uint32_t kk,
    uint32_t column) {
    const struct plan_step *s = &l->plan->steps[step];
    const struct step_time *t = &l->times[step];
    const struct gemm_tile *g = &tiles[kk];
    uint32_t panels = g->share.panel_last - g->share.panel_first;
    uint32_t part = 64 * g->rows * panels;
    uint32_t own = 64 * g->rows * (g->width - panels);
    uint32_t slot = own + part;
    for (uint32_t from = 0; from < s->k; from++) {
        if (from != kk) {
            struct lower_dest dest = {g->out, slot};
            lower_add_move(
                l, t->result_level, tiles[from].out,
                share_offset(s, &tiles[from], g->share.panel_first), part / 4, &dest, 1);
            slot += part;
        }
    }
    struct lower_vertex v =
        lower_new_vertex(plan_reduce_variant(s), g->tile, t->result_level, t->result_time, step);
    lower_word_buffer(l, &v, REDUCE_IN, g->out, own);
    v.words[REDUCE_STRIDE].value = part;
    v.words[REDUCE_PARTS].value = s->k;
    if (v.variant.has_bias) {
        lower_word_buffer(l, &v, REDUCE_BIAS, bias_of(l, step, g), 0);
    }
    lower_word_buffer(l, &v, REDUCE_OUT, result_of(l, s, g, column), 0);
    v.words[REDUCE_ROWS].value = g->rows;
    v.words[REDUCE_PANELS].value = panels;
    lower_push_vertex(l, v, REDUCE_WORDS, (const uint32_t[]){s->k, g->rows, panels});
}

/* ---- The own share is read where it lies (REDUCE_SHARE) -------------------------------------- */

/* Panels [first, last) of a share: received parts in a buffer, one call. */
static void reduce_panels(
    struct lowering *l, uint32_t step, const struct gemm_tile *tiles, uint32_t kk, uint32_t column,
    uint32_t first, uint32_t last) {
    const struct plan_step *s = &l->plan->steps[step];
    const struct step_time *t = &l->times[step];
    const struct gemm_tile *g = &tiles[kk];
    const struct plan_share *share = &g->share;
    uint32_t unit = lower_partial_bytes(s), panels = last - first;
    uint32_t rows = share->row_last - share->row_first;
    uint32_t first_row = share->row_first - (uint32_t)((uint64_t)s->rows * g->i / s->m);
    uint32_t own = unit * ((first - s->panel_bound[g->j]) * g->rows + first_row);
    uint32_t part = unit * rows * panels;
    /* Panels that are whole in both places travel as one piece. */
    uint32_t pieces = rows == g->rows ? 1 : panels;
    struct buffer_id in = lower_new_buffer(l, g->tile, BUFFER_PARTIAL, (s->k - 1) * part, step);
    for (uint32_t from = 0, slot = 0; from < s->k; from++) {
        for (uint32_t p = 0; from != kk && p < pieces; p++) {
            struct lower_dest dest = {in, slot};
            lower_add_move(
                l, t->result_level, tiles[from].out, own + p * unit * g->rows, part / pieces / 4,
                &dest, 1);
            slot += part / pieces;
        }
    }
    struct lower_vertex v =
        lower_new_vertex(plan_reduce_variant(s), g->tile, t->result_level, t->result_time, step);
    lower_word_buffer(l, &v, REDUCE_SHARE_OWN, g->out, own);
    v.words[REDUCE_SHARE_OWN_PANEL].value = unit * g->rows;
    lower_word_buffer(l, &v, REDUCE_SHARE_IN, in, 0);
    v.words[REDUCE_SHARE_STRIDE].value = part;
    v.words[REDUCE_SHARE_PARTS].value = s->k - 1;
    if (v.variant.has_bias) {
        struct buffer_id row = lower_row(l, step, PARAM_ROW, g->tile, first, last);
        lower_word_buffer(l, &v, REDUCE_SHARE_BIAS, row, 0);
    }
    uint32_t at = 32 * rows * (first - share->panel_first);
    lower_word_buffer(l, &v, REDUCE_SHARE_OUT, result_of(l, s, g, column), at);
    v.words[REDUCE_SHARE_ROWS].value = rows;
    v.words[REDUCE_SHARE_PANELS].value = panels;
    lower_push_vertex(l, v, REDUCE_SHARE_WORDS, (const uint32_t[]){s->k - 1, rows, panels});
}

/* In as few calls as buffers of PLAN_RECEIVE_BYTES allow, with at least a panel each. */
static void reduce_in_place(
    struct lowering *l, uint32_t step, const struct gemm_tile *tiles, uint32_t kk,
    uint32_t column) {
    const struct plan_step *s = &l->plan->steps[step];
    const struct plan_share *share = &tiles[kk].share;
    uint32_t panels = share->panel_last - share->panel_first;
    uint64_t each = (uint64_t)(s->k - 1) * lower_partial_bytes(s) *
                    (share->row_last - share->row_first); /* received bytes a panel */
    uint32_t most = each < PLAN_RECEIVE_BYTES ? (uint32_t)(PLAN_RECEIVE_BYTES / each) : 1;
    uint32_t calls = (panels + most - 1) / most;
    for (uint32_t c = 0; c < calls; c++) {
        uint32_t first = share->panel_first + (uint32_t)((uint64_t)panels * c / calls);
        uint32_t last = share->panel_first + (uint32_t)((uint64_t)panels * (c + 1) / calls);
        reduce_panels(l, step, tiles, kk, column, first, last);
    }
}

void lower_reduce(
    struct lowering *l, uint32_t step, const struct gemm_tile *tiles, uint32_t column) {
    const struct plan_step *s = &l->plan->steps[step];
    for (uint32_t kk = 0; kk < s->k; kk++) {
        if (tiles[kk].share.panel_first == tiles[kk].share.panel_last) {
            continue;
        }
        if (plan_reduces_in_place(s)) {
            reduce_in_place(l, step, tiles, kk, column);
        } else {
            reduce_behind(l, step, tiles, kk, column);
        }
    }
}
