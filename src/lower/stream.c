/* GEMMs whose K parts arrive in chunks (plan/stream.c): one level a chunk. Each chunk has buffers
 * of its own, so that placement finds their lives disjoint; the block of partials lives through
 * all.
 *
 * Streamed weights: the m tiles of a block column and K part hold its panels in turns, with all
 * their groups, and multicast each panel's groups of the chunk to the others and themselves. */
#include "lower/lower_internal.h"

struct stream {
    struct lowering *l;
    uint32_t step;
    const struct plan_step *s;
    struct gemm_tile *tiles;  /* by tile number */
    struct buffer_id *home_w; /* by tile number: streamed weights' home, NO_BUFFER when none */
};

static struct gemm_tile *tile_at(const struct stream *m, uint32_t i, uint32_t j, uint32_t kk) {
    return &m->tiles[plan_gemm_tile(m->s, i, j, kk)];
}

/* Whole rows of a home block are contiguous panels: a tile that is the only one to want them finds
 * any range of them in place. */
static bool find_x(struct stream *m, const struct need *n, uint32_t tile) {
    const struct plan_dist *d = m->l->plan->matrices[m->s->in[0]].dist;
    for (uint32_t b = 0; d != NULL && m->s->n == 1 && b < d->m * d->n; b++) {
        struct need block = lower_block_need(d, b / d->n, b % d->n);
        if (d->tile[b] == tile && block.row_first == n->row_first &&
            block.row_last == n->row_last && block.quad_first <= n->quad_first &&
            block.quad_last >= n->quad_last) {
            uint32_t rows = n->row_last - n->row_first;
            m->tiles[tile].x = m->l->home[m->s->in[0]][b];
            m->tiles[tile].x_offset = 8 * rows * (n->quad_first - block.quad_first);
            return true;
        }
    }
    return false;
}

/* Chunk c of the operand to all tiles of row part i and K part kk. */
static void send_x(
    struct stream *m, uint32_t i, uint32_t kk, uint32_t c, uint32_t *tiles,
    struct buffer_id *buffers) {
    const struct plan_step *s = m->s;
    uint32_t first, last, panel = s->in_panel[0];
    plan_chunk(s, kk, c, &first, &last);
    struct need n = {
        (uint32_t)((uint64_t)s->rows * i / s->m), (uint32_t)((uint64_t)s->rows * (i + 1) / s->m),
        4 * (panel + first), 4 * (panel + last)};
    if (find_x(m, &n, plan_gemm_tile(s, i, 0, kk))) {
        return;
    }
    bool is_constant = m->l->plan->matrices[s->in[0]].kind == PLAN_CONSTANT;
    for (uint32_t j = 0; j < s->n; j++) {
        tiles[j] = plan_gemm_tile(s, i, j, kk);
        if (is_constant) {
            buffers[j] = lower_constant(m->l, m->step, s->in[0], tiles[j], &n);
        }
    }
    if (!is_constant) {
        lower_gather(m->l, s->in[0], &n, tiles, s->n, m->step, buffers);
    }
    for (uint32_t j = 0; j < s->n; j++) {
        m->tiles[tiles[j]].x = buffers[j];
    }
}

/* Where block column j of K part kk lies between runs. */
static void place_w(struct stream *m, uint32_t j, uint32_t kk) {
    const struct plan_step *s = m->s;
    for (uint32_t i = 0; i < s->m; i++) {
        struct lower_run run;
        uint32_t tile = plan_gemm_tile(s, i, j, kk);
        plan_weights_home(s, i, j, &run.first, &run.last);
        if (run.first < run.last) {
            m->home_w[tile] = lower_weights(
                m->l, m->step, tile, s->group_bound[kk], s->group_bound[kk + 1], &run, 1);
        }
    }
}

/* Chunk c of block column j to the m tiles that multiply by it; buffers: theirs. */
static void
send_w(struct stream *m, uint32_t j, uint32_t kk, uint32_t c, struct buffer_id *buffers) {
    const struct plan_step *s = m->s;
    uint32_t first, last, base = s->group_bound[kk], all = s->group_bound[kk + 1] - base;
    plan_chunk(s, kk, c, &first, &last);
    uint32_t groups = last - first, width = s->panel_bound[j + 1] - s->panel_bound[j];
    struct lower_dest *dests = ARENA_ARRAY(m->l->arena, struct lower_dest, s->m);
    for (uint32_t i = 0; i < s->m; i++) {
        buffers[i] = lower_new_buffer(
            m->l, plan_gemm_tile(s, i, j, kk), BUFFER_OPERAND, 512 * groups * width, m->step);
    }
    for (uint32_t i = 0; i < s->m; i++) {
        uint32_t from, to;
        plan_weights_home(s, i, j, &from, &to);
        uint32_t panels = groups == all ? to - from : 1; /* contiguous on both sides */
        for (uint32_t p = from; p < to; p += panels) {
            for (uint32_t d = 0; d < s->m; d++) {
                uint32_t at = 512 * groups * (p - s->panel_bound[j]);
                dests[d] = (struct lower_dest){buffers[d], at};
            }
            uint32_t offset = 512 * ((p - from) * all + first - base);
            lower_add_move(
                m->l, m->l->times[m->step].level, m->home_w[plan_gemm_tile(s, i, j, kk)], offset,
                128 * groups * panels, dests, s->m);
        }
    }
}

/* The first call begins with the bias, the last one ends with the activation. */
static struct kernel_variant variant_of(const struct plan_step *s, uint32_t c) {
    struct kernel_variant v = plan_variant(s);
    if (c > 0) {
        v.accumulates = true;
        v.has_bias = false;
    }
    if (c + 1 < s->form.chunks) {
        v.act = ACT_NONE;
    }
    return v;
}

static void call_block(
    struct stream *m, uint32_t j, uint32_t kk, uint32_t c, struct buffer_id *buffers /* m */) {
    const struct plan_step *s = m->s;
    uint32_t first, last;
    plan_chunk(s, kk, c, &first, &last);
    if (s->form.streams_w) {
        send_w(m, j, kk, c, buffers);
    }
    for (uint32_t i = 0; i < s->m; i++) {
        struct gemm_tile *g = tile_at(m, i, j, kk);
        if (!s->form.streams_w) {
            struct lower_run run = {s->panel_bound[j], s->panel_bound[j + 1]};
            buffers[i] = lower_weights(m->l, m->step, g->tile, first, last, &run, 1);
        }
        lower_gemm_call(m->l, m->step, g, variant_of(s, c), buffers[i], last - first);
    }
}

static void lower_chunk(struct stream *m, uint32_t c) {
    const struct plan_step *s = m->s;
    uint32_t most = s->n > s->m ? s->n : s->m;
    uint32_t *tiles = ARENA_ARRAY(m->l->arena, uint32_t, most);
    struct buffer_id *buffers = ARENA_ARRAY(m->l->arena, struct buffer_id, most);
    for (uint32_t kk = 0; kk < s->k; kk++) {
        for (uint32_t i = 0; i < s->m; i++) {
            send_x(m, i, kk, c, tiles, buffers);
        }
        for (uint32_t j = 0; j < s->n; j++) {
            call_block(m, j, kk, c, buffers);
        }
    }
}

static void reduce(struct stream *m) {
    const struct plan_step *s = m->s;
    struct gemm_tile *tiles = ARENA_ARRAY(m->l->arena, struct gemm_tile, s->k);
    for (uint32_t i = 0; i < s->m; i++) {
        uint32_t column = 0;
        for (uint32_t j = 0; j < s->n; j++) {
            for (uint32_t kk = 0; kk < s->k; kk++) {
                tiles[kk] = *tile_at(m, i, j, kk);
            }
            lower_reduce(m->l, m->step, tiles, column);
            column += plan_panel_parts(s, j);
        }
    }
}

void lower_stream(struct lowering *l, uint32_t step) {
    const struct plan_step *s = &l->plan->steps[step];
    struct step_time *t = &l->times[step], first = *t;
    struct stream m = {.l = l, .step = step, .s = s};
    m.tiles = ARENA_ARRAY(l->arena, struct gemm_tile, l->plan->tiles);
    m.home_w = ARENA_ARRAY(l->arena, struct buffer_id, l->plan->tiles);
    for (uint32_t at = 0; at < s->m * s->n * s->k; at++) {
        uint32_t i = at / s->k / s->n, j = at / s->k % s->n, kk = at % s->k;
        *tile_at(&m, i, j, kk) = lower_gemm_tile(l, step, i, j, kk);
        if (s->form.streams_w && i == 0) {
            place_w(&m, j, kk);
        }
    }
    for (uint32_t c = 0; c < s->form.chunks; c++) { /* what is made now runs at the chunk's level */
        t->level = first.level + c;
        t->time = first.chunk_time[c];
        lower_chunk(&m, c);
    }
    *t = first;
    if (s->k > 1) {
        reduce(&m);
    }
}
