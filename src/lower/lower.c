/* Driver: times of all steps first, then buffers, calls and moves step by step, then everything in
 * its final order. After lower_time_steps() no time changes; after lower_step() of the last step
 * lifetimes are final but for the host's reads, which lower_interface() adds. */
#include "lower/lower_internal.h"

#include <stdlib.h>

static int by_place(const void *pa, const void *pb) {
    const struct lower_vertex *a = pa, *b = pb;
    if (a->level != b->level) {
        return a->level < b->level ? -1 : 1;
    }
    if (a->time != b->time) {
        return a->time < b->time ? -1 : 1;
    }
    if (a->tile.n != b->tile.n) {
        return a->tile.n < b->tile.n ? -1 : 1;
    }
    return 0;
}

/* Stable counting by (level, time, tile): copies of a step were pushed before its main call on
 * that tile, and must stay there. */
static void sort_vertices(struct lowering *l) {
    uint32_t count = (uint32_t)l->vertices.len;
    struct lower_vertex *sorted = ARENA_ARRAY(l->arena, struct lower_vertex, count);
    uint32_t *order = ARENA_ARRAY(l->arena, uint32_t, count);
    uint32_t *other = ARENA_ARRAY(l->arena, uint32_t, count);
    for (uint32_t i = 0; i < count; i++) {
        order[i] = i;
    }
    for (uint32_t width = 1; width < count; width *= 2) { /* bottom-up merge sort */
        for (uint32_t at = 0; at < count; at += 2 * width) {
            uint32_t mid = at + width < count ? at + width : count;
            uint32_t end = at + 2 * width < count ? at + 2 * width : count;
            uint32_t x = at, y = mid;
            for (uint32_t i = at; i < end; i++) {
                bool left =
                    x < mid &&
                    (y >= end ||
                     by_place(&l->vertices.data[order[x]], &l->vertices.data[order[y]]) <= 0);
                other[i] = left ? order[x++] : order[y++];
            }
        }
        uint32_t *swap = order;
        order = other;
        other = swap;
    }
    for (uint32_t i = 0; i < count; i++) {
        sorted[i] = l->vertices.data[order[i]];
    }
    l->tg->vertices = sorted;
    l->tg->vertex_count = count;
}

static void collect_levels(struct lowering *l) {
    struct tile_graph *tg = l->tg;
    tg->level_count = l->level_count;
    tg->levels = ARENA_ARRAY(l->arena, struct lower_level, l->level_count);
    for (uint32_t i = 0; i < l->level_count; i++) {
        tg->move_count += (uint32_t)l->levels[i].moves.len;
    }
    tg->moves = ARENA_ARRAY(l->arena, struct lower_move, tg->move_count);
    uint64_t *busy = ARENA_ARRAY(l->arena, uint64_t, l->plan->tiles);
    uint32_t move = 0, vertex = 0;
    for (uint32_t i = 0; i < l->level_count; i++) {
        struct lower_level *level = &tg->levels[i];
        level->time = l->exchange_time[i];
        level->move_first = move;
        level->move_count = (uint32_t)l->levels[i].moves.len;
        for (uint32_t k = 0; k < level->move_count; k++) {
            tg->moves[move++] = l->levels[i].moves.data[k];
        }
        tg->exchange_phases += level->move_count > 0 ? 1 : 0;
        level->vertex_first = vertex;
        memset(busy, 0, sizeof *busy * l->plan->tiles);
        for (; vertex < tg->vertex_count && tg->vertices[vertex].level == i; vertex++) {
            uint64_t *tile = &busy[tg->vertices[vertex].tile.n];
            *tile += tg->vertices[vertex].cycles;
            level->compute_cycles = *tile > level->compute_cycles ? *tile : level->compute_cycles;
        }
        level->vertex_count = vertex - level->vertex_first;
        tg->compute_cycles += level->compute_cycles * lower_level_turns(tg, i);
    }
}

int lower_build(const struct plan *p, struct arena *a, struct tile_graph **ret, struct err *err) {
    (void)err;
    struct tile_graph *tg = ARENA_NEW(a, struct tile_graph);
    struct lowering l = {.plan = p, .arena = a, .tg = tg};
    tg->plan = p;
    tg->is_active = ARENA_ARRAY(a, bool, TARGET_TILES);
    lower_time_steps(&l);
    l.home = ARENA_ARRAY(a, struct buffer_id *, p->matrix_count);
    for (uint32_t i = 0; i < p->matrix_count; i++) {
        if (p->matrices[i].kind == PLAN_INPUT) {
            lower_home_blocks(&l, i, 0);
        }
    }
    for (uint32_t i = 0; i < p->step_count; i++) {
        lower_step(&l, i);
    }
    lower_interface(&l);
    lower_keep_for_loop(&l);
    tg->buffers = l.buffers.data;
    tg->buffer_count = (uint32_t)l.buffers.len;
    tg->dests = l.dests.data;
    tg->dest_count = (uint32_t)l.dests.len;
    tg->tables = l.tables.data;
    tg->table_count = (uint32_t)l.tables.len;
    tg->shards = l.shards.data;
    tg->shard_count = (uint32_t)l.shards.len;
    sort_vertices(&l);
    collect_levels(&l);
    for (uint32_t t = 0; t < TARGET_TILES; t++) {
        tg->active_count += tg->is_active[t] ? 1 : 0;
    }
    *ret = tg;
    return 0;
}
