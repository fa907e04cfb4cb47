/* What each region needs from elsewhere. For one rectangle of a matrix: every home block that meets
 * it gives pieces that are contiguous on both sides, each sent once to all tiles that want it. */
#include "lower/lower_internal.h"

void lower_add_move(
    struct lowering *l, uint32_t level, struct buffer_id source, uint32_t offset, uint32_t words,
    const struct lower_dest *dests, uint32_t dest_count) {
    uint32_t time = l->exchange_time[level];
    struct lower_move m = {
        .source = source,
        .offset = offset,
        .words = words,
        .dest_first = (uint32_t)l->dests.len,
        .dest_count = dest_count};
    lower_use(l, source, time);
    for (uint32_t i = 0; i < dest_count; i++) {
        vec_push(l->arena, &l->dests, dests[i]);
        lower_use(l, dests[i].buffer, time);
    }
    vec_push(l->arena, &l->levels[level].moves, m);
}

/* By the elementwise kernel without activation: f16 to f16, bits kept. */
void lower_add_copy(
    struct lowering *l, uint32_t step, struct buffer_id source, uint32_t offset,
    struct lower_dest dest, uint32_t bytes) {
    const struct step_time *t = &l->times[step];
    struct kernel_variant v = {.id = KERNEL_UNARY, .act = ACT_NONE};
    struct lower_vertex x =
        lower_new_vertex(v, l->buffers.data[source.n].tile.n, t->level, t->time, step);
    lower_word_buffer(l, &x, UNARY_X, source, offset);
    lower_word_buffer(l, &x, UNARY_OUT, dest.buffer, dest.offset);
    x.words[UNARY_QUADS].value = bytes / 8;
    lower_push_vertex(l, x, UNARY_WORDS, (const uint32_t[]){bytes / 8});
}

struct piece {
    struct buffer_id source;
    uint32_t source_tile, source_offset, dest_offset, bytes, row_bytes;
};

static void send_piece(
    struct lowering *l, const struct piece *p, const uint32_t *tiles, uint32_t tile_count,
    uint32_t step, const struct buffer_id *buffers, struct lower_dest *dests) {
    bool is_own = false;
    for (uint32_t i = 0; i < tile_count; i++) {
        dests[i] = (struct lower_dest){buffers[i], p->dest_offset};
        is_own = is_own || tiles[i] == p->source_tile;
    }
    if (tile_count == 1 && is_own) {
        lower_add_copy(l, step, p->source, p->source_offset, dests[0], p->bytes);
        return;
    }
    lower_add_move(
        l, l->times[step].level, p->source, p->source_offset, p->bytes / 4, dests, tile_count);
}

/* The part of a block that meets the need, panel by panel unless both have its rows only. */
static void send_block(
    struct lowering *l, struct piece p, const struct need *n, const struct plan_dist *d,
    uint32_t at, const uint32_t *tiles, uint32_t tile_count, uint32_t step,
    const struct buffer_id *buffers, struct lower_dest *dests) {
    uint32_t i = at / d->n, j = at % d->n;
    uint32_t row_first = d->row_bound[i], row_last = d->row_bound[i + 1];
    uint32_t quad_first = plan_dist_quad(d, j), quad_last = plan_dist_quad(d, j + 1);
    uint32_t ra = n->row_first > row_first ? n->row_first : row_first;
    uint32_t rb = n->row_last < row_last ? n->row_last : row_last;
    uint32_t qa = n->quad_first > quad_first ? n->quad_first : quad_first;
    uint32_t qb = n->quad_last < quad_last ? n->quad_last : quad_last;
    uint32_t source_rows = row_last - row_first;
    uint32_t dest_rows = n->row_last - n->row_first;
    bool is_whole = rb - ra == source_rows && rb - ra == dest_rows;
    for (uint32_t q = qa, end; q < qb; q = end) {
        end = is_whole ? qb : (q / 4 + 1) * 4;
        end = end < qb ? end : qb;
        uint32_t from = q - quad_first, to = q - n->quad_first;
        p.source_offset =
            p.row_bytes * (from / 4 * source_rows + ra - row_first) + p.row_bytes / 4 * (from % 4);
        p.dest_offset =
            p.row_bytes * (to / 4 * dest_rows + ra - n->row_first) + p.row_bytes / 4 * (to % 4);
        p.bytes = p.row_bytes / 4 * (rb - ra) * (end - q);
        send_piece(l, &p, tiles, tile_count, step, buffers, dests);
    }
}

const struct gathered *lower_find_gathered(const struct lowering *l, const struct gathered *key) {
    for (const struct gathered *g = l->gathered; g != NULL; g = g->next) {
        if (g->matrix == key->matrix && g->dist == key->dist && g->panel == key->panel &&
            g->m == key->m && g->n == key->n && g->k == key->k && g->lanes == key->lanes &&
            g->level <= key->level && !lower_is_stale(l, g->matrix, g->level, key->level)) {
            return g;
        }
    }
    return NULL;
}

const struct gathered *lower_keep_gathered(struct lowering *l, const struct gathered *g) {
    struct gathered *kept = arena_memdup(l->arena, g, sizeof *g);
    kept->next = l->gathered;
    l->gathered = kept;
    return kept;
}

void lower_gather(
    struct lowering *l, uint32_t matrix, const struct need *n, const uint32_t *tiles,
    uint32_t tile_count, uint32_t step, struct buffer_id *buffers) {
    const struct plan_dist *d = l->plan->matrices[matrix].dist;
    uint32_t row_bytes = plan_row_bytes(&l->plan->matrices[matrix]);
    uint32_t bytes = row_bytes / 4 * (n->row_last - n->row_first) * (n->quad_last - n->quad_first);
    /* A tile whose home block is the rectangle itself uses it in place. */
    uint32_t *wanting = ARENA_ARRAY(l->arena, uint32_t, tile_count);
    struct buffer_id *into = ARENA_ARRAY(l->arena, struct buffer_id, tile_count);
    uint32_t count = 0;
    struct buffer_id home = NO_BUFFER;
    uint32_t home_tile = PLAN_NONE;
    for (uint32_t b = 0; b < d->m * d->n; b++) {
        uint32_t i = b / d->n, j = b % d->n;
        if (d->row_bound[i] == n->row_first && d->row_bound[i + 1] == n->row_last &&
            plan_dist_quad(d, j) == n->quad_first && plan_dist_quad(d, j + 1) == n->quad_last) {
            home = l->home[matrix][b];
            home_tile = d->tile[b];
        }
    }
    for (uint32_t t = 0; t < tile_count; t++) {
        if (tiles[t] == home_tile) {
            buffers[t] = home;
            continue;
        }
        buffers[t] = lower_new_buffer(l, tiles[t], BUFFER_OPERAND, bytes, step);
        wanting[count] = tiles[t];
        into[count++] = buffers[t];
    }
    lower_bring(l, matrix, n, wanting, count, step, into);
}

void lower_bring(
    struct lowering *l, uint32_t matrix, const struct need *n, const uint32_t *tiles,
    uint32_t tile_count, uint32_t step, const struct buffer_id *into) {
    const struct plan_dist *d = l->plan->matrices[matrix].dist;
    struct lower_dest *dests = ARENA_ARRAY(l->arena, struct lower_dest, tile_count);
    for (uint32_t i = 0; tile_count > 0 && i < d->m; i++) {
        if (d->row_bound[i] >= n->row_last || d->row_bound[i + 1] <= n->row_first) {
            continue;
        }
        for (uint32_t j = 0; j < d->n; j++) {
            uint32_t b = i * d->n + j;
            if (plan_dist_quad(d, j) < n->quad_last && plan_dist_quad(d, j + 1) > n->quad_first) {
                struct piece p = {
                    .source = l->home[matrix][b],
                    .source_tile = d->tile[b],
                    .row_bytes = plan_row_bytes(&l->plan->matrices[matrix])};
                send_block(l, p, n, d, b, tiles, tile_count, step, into, dests);
            }
        }
    }
}
