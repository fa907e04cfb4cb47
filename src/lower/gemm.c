/* GEMM: operands gathered, one call a tile of the grid, partials reduced (reduce.c). */
#include "lower/lower_internal.h"

/* Operand buffers of a GEMM by tile. */
static const struct buffer_id *gemm_operand(struct lowering *l, uint32_t step) {
    const struct plan_step *s = &l->plan->steps[step];
    struct gathered key = {
        .matrix = s->in[0],
        .m = s->m,
        .n = s->n,
        .k = s->k,
        .lanes = s->form.lanes,
        .panel = s->in_panel[0],
        .level = l->times[step].level};
    bool is_constant = l->plan->matrices[s->in[0]].kind == PLAN_CONSTANT;
    const struct gathered *known = is_constant ? NULL : lower_find_gathered(l, &key);
    if (known != NULL) {
        return known->buffers;
    }
    key.buffers = ARENA_ARRAY(l->arena, struct buffer_id, l->plan->tiles);
    const struct gathered *g = lower_keep_gathered(l, &key);
    uint32_t norm = plan_deferred_norm(l->plan, s->in[0]);
    uint32_t matrix = norm != PLAN_NONE ? l->plan->steps[norm].in[0] : s->in[0];
    /* Siblings in lanes have one gather: the first one's, for the tiles of all. */
    uint32_t lanes = s->form.lanes > 1 ? s->form.lanes : 1, each = l->plan->tiles / lanes;
    uint32_t base = lanes > 1 ? s->form.first % each : s->form.first;
    uint32_t *tiles = ARENA_ARRAY(l->arena, uint32_t, s->n * lanes);
    struct buffer_id *buffers = ARENA_ARRAY(l->arena, struct buffer_id, s->n * lanes);
    for (uint32_t i = 0; i < s->m; i++) {
        for (uint32_t kk = 0; kk < s->k; kk++) {
            uint32_t panel = s->in_panel[0], count = 0;
            struct need n = {
                (uint32_t)((uint64_t)s->rows * i / s->m),
                (uint32_t)((uint64_t)s->rows * (i + 1) / s->m), 4 * (panel + s->group_bound[kk]),
                4 * (panel + s->group_bound[kk + 1])};
            for (uint32_t j = 0; j < s->n * lanes; j++, count++) {
                uint32_t inside = plan_gemm_tile(s, i, j % s->n, kk) - s->form.first;
                tiles[j] = base + j / s->n * each + inside;
                if (is_constant) {
                    buffers[j] = lower_constant(l, step, s->in[0], tiles[j], &n);
                }
            }
            if (!is_constant) {
                lower_gather(l, matrix, &n, tiles, count, step, buffers);
            }
            for (uint32_t j = 0; j < count; j++) {
                if (norm != PLAN_NONE) {
                    buffers[j] = lower_normalised(
                        l, norm, step, tiles[j], n.row_last - n.row_first, buffers[j]);
                }
                g->buffers[tiles[j]] = buffers[j];
            }
        }
    }
    return g->buffers;
}

void lower_gemm_call(
    struct lowering *l, uint32_t step, const struct gemm_tile *g, struct kernel_variant v,
    struct buffer_id w, uint32_t groups) {
    const struct plan_step *s = &l->plan->steps[step];
    const struct step_time *t = &l->times[step];
    uint32_t first = s->panel_bound[g->j], last = s->panel_bound[g->j + 1];
    struct lower_vertex x = lower_new_vertex(v, g->tile, t->level, t->time, step);
    lower_word_buffer(l, &x, GEMM_X, g->x, g->x_offset);
    lower_word_buffer(l, &x, GEMM_W, w, 0);
    if (v.has_bias) {
        lower_word_buffer(l, &x, GEMM_BIAS, lower_row(l, step, PARAM_ROW, g->tile, first, last), 0);
    }
    lower_word_buffer(l, &x, GEMM_OUT, g->out, 0);
    uint32_t scratch = kernel_scratch_bytes(&v, g->rows);
    if (scratch > 0) {
        scratch = (scratch + 3) & ~3u;
        struct buffer_id b = lower_new_buffer(l, g->tile, BUFFER_SCRATCH, scratch, step);
        lower_word_buffer(l, &x, GEMM_SCRATCH, b, 0);
    }
    x.words[GEMM_ROWS].value = g->rows;
    x.words[GEMM_GROUPS].value = groups;
    x.words[GEMM_PANELS].value = g->width;
    lower_push_vertex(l, x, GEMM_WORDS, (const uint32_t[]){g->rows, groups, g->width});
}

static struct buffer_id weights(struct lowering *l, uint32_t step, const struct gemm_tile *g) {
    const struct plan_step *s = &l->plan->steps[step];
    uint32_t first = s->panel_bound[g->j], last = s->panel_bound[g->j + 1];
    struct lower_run runs[3] = {{first, last}};
    if (!plan_reduces_in_place(s)) { /* the own share last, see lower.h */
        runs[0].last = g->share.panel_first;
        runs[1] = (struct lower_run){g->share.panel_last, last};
        runs[2] = (struct lower_run){g->share.panel_first, g->share.panel_last};
    }
    return lower_weights(
        l, step, g->tile, s->group_bound[g->kk], s->group_bound[g->kk + 1], runs, 3);
}

/* Where a K part goes: the block, and behind it what an own share that lies last goes on with. */
static struct buffer_id partial(struct lowering *l, uint32_t step, const struct gemm_tile *g) {
    const struct plan_step *s = &l->plan->steps[step];
    if (plan_reduces_in_place(s)) {
        uint32_t bytes = lower_partial_bytes(s) * g->rows * g->width;
        return lower_new_buffer(l, g->tile, BUFFER_PARTIAL, bytes, step);
    }
    uint32_t panels = g->share.panel_last - g->share.panel_first;
    uint32_t bytes = 64 * g->rows * (g->width + (s->k - 1) * panels);
    struct buffer_id b = lower_new_buffer(l, g->tile, BUFFER_PARTIAL, bytes, step);
    l->buffers.data[b.n].split_at = 64 * g->rows * (g->width - panels);
    return b;
}

/* The other operand of an ADD that a product does, for one block of its result. */
static struct buffer_id residual(struct lowering *l, uint32_t step, uint32_t gemm, uint32_t block) {
    const struct plan_step *s = &l->plan->steps[step];
    const struct plan_dist *d = s->dist;
    uint32_t other = s->in[s->fused == 1 ? 1 : 0], tile = d->tile[block];
    const struct plan_matrix *x = &l->plan->matrices[other];
    struct need n = lower_block_need(d, block / d->n, block % d->n);
    if (x->kind == PLAN_CONSTANT) {
        return lower_constant(l, step, other, tile, &n);
    }
    if (plan_dist_equal(x->dist, d)) {
        return l->home[other][block];
    }
    struct buffer_id b;
    lower_gather(l, other, &n, &tile, 1, gemm, &b);
    return b;
}

/* One row and one strip of columns on each tile. step: the product, or the ADD that it does too. */
void lower_gemm_rows(struct lowering *l, uint32_t step) {
    bool adds = l->plan->steps[step].fused > 0;
    uint32_t gemm = adds ? plan_fused_gemm(l->plan, step) : step;
    const struct plan_step *s = &l->plan->steps[gemm];
    const struct step_time *t = &l->times[gemm];
    const struct buffer_id *x = gemm_operand(l, gemm);
    const struct buffer_id *home = l->home[l->plan->steps[step].out];
    const struct plan_dist *d = s->dist;
    for (uint32_t b = 0; b < d->m * d->n; b++) {
        uint32_t tile = d->tile[b];
        struct lower_run run = {plan_dist_quad(d, b % d->n), plan_dist_quad(d, b % d->n + 1)};
        struct lower_vertex v = lower_new_vertex(plan_variant(s), tile, t->level, t->time, gemm);
        v.variant.has_residual = adds;
        lower_word_buffer(l, &v, GEMM_ROW_X, x[tile], 0);
        lower_word_buffer(l, &v, GEMM_ROW_W, lower_channels(l, gemm, tile, run.first, run.last), 0);
        if (v.variant.has_bias) {
            lower_word_buffer(
                l, &v, GEMM_ROW_BIAS, lower_row_part(l, gemm, PARAM_ROW, tile, run, 1), 0);
        }
        if (adds) {
            lower_word_buffer(l, &v, GEMM_ROW_RESIDUAL, residual(l, step, gemm, b), 0);
        }
        lower_word_buffer(l, &v, GEMM_ROW_OUT, home[b], 0);
        v.words[GEMM_ROW_GROUPS].value = s->groups;
        v.words[GEMM_ROW_PAIRS].value = 2 * (run.last - run.first);
        lower_push_vertex(
            l, v, GEMM_ROW_WORDS, (const uint32_t[]){s->groups, v.words[GEMM_ROW_PAIRS].value});
    }
}

struct gemm_tile
lower_gemm_tile(struct lowering *l, uint32_t step, uint32_t i, uint32_t j, uint32_t kk) {
    const struct plan_step *s = &l->plan->steps[step];
    struct gemm_tile g = {.i = i, .j = j, .kk = kk, .tile = plan_gemm_tile(s, i, j, kk)};
    uint32_t first = (uint32_t)((uint64_t)s->rows * i / s->m);
    g.rows = (uint32_t)((uint64_t)s->rows * (i + 1) / s->m) - first;
    g.groups = s->group_bound[kk + 1] - s->group_bound[kk];
    g.width = s->panel_bound[j + 1] - s->panel_bound[j];
    g.share = plan_reduce_share(s, i, j, kk);
    g.out = s->k == 1 ? l->home[s->out][i * s->n + j] : partial(l, step, &g);
    return g;
}

void lower_gemm(struct lowering *l, uint32_t step) {
    const struct plan_step *s = &l->plan->steps[step];
    if (s->form.by_rows) {
        lower_gemm_rows(l, step);
        return;
    }
    const struct buffer_id *x = gemm_operand(l, step);
    struct gemm_tile *tiles = ARENA_ARRAY(l->arena, struct gemm_tile, s->k);
    for (uint32_t i = 0; i < s->m; i++) {
        uint32_t column = 0; /* of the result's distribution */
        for (uint32_t j = 0; j < s->n; j++) {
            for (uint32_t kk = 0; kk < s->k; kk++) {
                struct gemm_tile *g = &tiles[kk];
                *g = lower_gemm_tile(l, step, i, j, kk);
                g->x = x[g->tile];
                lower_gemm_call(l, step, g, plan_variant(s), weights(l, step, g), g->groups);
            }
            if (s->k > 1) {
                lower_reduce(l, step, tiles, column);
            }
            column += plan_panel_parts(s, j);
        }
    }
}
