/* First fit, tile by tile: see place.h. For one buffer the blocked intervals of a region are
 * collected from all buffers placed before that live with it or conflict with it, sorted, and the
 * lowest gap that holds payload and tail is taken; on nearly full tiles the smallest one. */
#include "place/place_internal.h"

#include <stdlib.h>
#include <string.h>

/* Ways to place a tile, until one works: by birth or size, lowest or smallest gap, usual or other
 * region first. */
#define WAYS 8

struct interval {
    uint32_t first, last; /* exclusive */
};

struct placer {
    struct placement *p;
    struct interval *blocked; /* room for the largest tile */
    struct buffer_id *order;
    bool *is_placed;  /* by buffer */
    bool is_smallest; /* gaps are taken by how well they fit */
    bool is_swapped;  /* what may lie anywhere is tried in its other region first */
};

struct order_key {
    struct buffer_id id;
    uint32_t born, dies, bytes;
    bool by_size;
};

static int by_order(const void *pa, const void *pb) {
    const struct order_key *a = pa, *b = pb;
    bool a_stays = a->dies == LOWER_FOREVER, b_stays = b->dies == LOWER_FOREVER;
    if (a_stays != b_stays) {
        return a_stays ? -1 : 1;
    }
    if (!a->by_size && a->born != b->born) {
        return a->born < b->born ? -1 : 1;
    }
    if (!a->by_size && a->dies != b->dies) {
        return a->dies > b->dies ? -1 : 1;
    }
    if (a->bytes != b->bytes) {
        return a->bytes > b->bytes ? -1 : 1;
    }
    return a->id.n < b->id.n ? -1 : a->id.n > b->id.n;
}

static int by_first(const void *pa, const void *pb) {
    const struct interval *a = pa, *b = pb;
    if (a->first != b->first) {
        return a->first < b->first ? -1 : 1;
    }
    return a->last < b->last ? -1 : a->last > b->last;
}

static uint32_t round_up(uint32_t v, uint32_t align) {
    return (v + align - 1) & ~(align - 1);
}

static uint32_t total_bytes(const struct placement *p, struct buffer_id b) {
    return p->tg->buffers[b.n].bytes + p->need[b.n].tail;
}

/* Intervals that buffer b may not touch. */
static uint32_t collect_blocked(struct placer *q, struct buffer_id b, bool with_soft) {
    const struct placement *p = q->p;
    const struct lower_buffer *x = &p->tg->buffers[b.n];
    uint32_t count = 0;
    for (uint32_t i = p->tile_first[x->tile.n]; i < p->tile_first[x->tile.n + 1]; i++) {
        struct buffer_id o = p->by_tile[i];
        if (q->is_placed[o.n] && place_lives_overlap(x, &p->tg->buffers[o.n])) {
            q->blocked[count++] = (struct interval){p->addr[o.n], p->addr[o.n] + total_bytes(p, o)};
        }
    }
    for (uint32_t i = p->pair_first[b.n]; i < p->pair_first[b.n + 1]; i++) {
        struct buffer_id o = p->pairs[i].other;
        if (q->is_placed[o.n] && (p->pairs[i].is_hard || with_soft)) {
            q->blocked[count++] = (struct interval){
                place_unit_start(p->addr[o.n]),
                place_unit_end(p->addr[o.n] + total_bytes(p, o) - 1)};
        }
    }
    if (count > 0) {
        qsort(q->blocked, count, sizeof *q->blocked, by_first);
    }
    return count;
}

struct fit { /* where a buffer may go in a region */
    uint32_t lo, hi, bytes, align;
    uint32_t offset;  /* address + offset is aligned */
    bool is_smallest; /* in the gap that it fills best, else the lowest */
};

/* 0 when there is none. Gaps are what the sorted intervals leave of [lo, hi). */
static uint32_t find_gap(const struct interval *blocked, uint32_t count, const struct fit *f) {
    uint32_t best = 0, best_room = UINT32_MAX;
    uint32_t from = f->lo;
    for (uint32_t i = 0; i <= count; i++) {
        uint32_t end = i < count && blocked[i].first < f->hi ? blocked[i].first : f->hi;
        uint32_t at = round_up(from + f->offset, f->align) - f->offset;
        if (at >= from && at <= end && f->bytes <= end - at && end - from < best_room) {
            best = at;
            best_room = end - from;
            if (!f->is_smallest) {
                break;
            }
        }
        if (i < count && blocked[i].last > from) {
            from = blocked[i].last;
        }
    }
    return best;
}

static void region_range(
    const struct placement *p, const struct lower_buffer *x, int region, uint32_t *ret_lo,
    uint32_t *ret_hi) {
    if (region == 1) {
        *ret_lo = TARGET_REGION1 + p->options.shift;
        *ret_hi = x->is_literal ? *ret_lo : TARGET_LOAD_END;
        return;
    }
    uint32_t elements =
        p->options.overflow_elements != NULL ? p->options.overflow_elements[x->tile.n] : 0;
    *ret_lo = p->options.data_base + elements * TARGET_ELEMENT_BYTES;
    *ret_hi = x->is_literal ? p->options.literal_limit : TARGET_REGION1;
}

static bool try_region(struct placer *q, struct buffer_id b, int region, uint32_t count) {
    struct placement *p = q->p;
    const struct lower_buffer *x = &p->tg->buffers[b.n];
    struct fit f = {.bytes = total_bytes(p, b), .is_smallest = q->is_smallest};
    region_range(p, x, region, &f.lo, &f.hi);
    uint32_t at = 0;
    if (x->split_at != 0) { /* what is sent and what is received in different units, if it fits */
        uint32_t unit = region == 1 ? 2 * TARGET_ELEMENT_BYTES : TARGET_ELEMENT_BYTES;
        f.align = unit;
        f.offset = x->split_at;
        at = find_gap(q->blocked, count, &f);
        at = at % p->need[b.n].align != 0 ? 0 : at;
    }
    if (at == 0) {
        f.align = p->need[b.n].align;
        f.offset = 0;
        at = find_gap(q->blocked, count, &f);
    }
    if (at == 0) {
        return false;
    }
    p->addr[b.n] = at;
    q->is_placed[b.n] = true;
    return true;
}

static bool place_buffer(struct placer *q, struct buffer_id b) {
    enum kernel_memory memory = q->p->need[b.n].memory;
    enum buffer_kind kind = q->p->tg->buffers[b.n].kind;
    int first = memory == MEMORY_REGION1 || kind == BUFFER_PARTIAL ? 1 : 0;
    first = q->is_swapped && memory == MEMORY_ANY ? 1 - first : first;
    for (int soft = 1; soft >= 0; soft--) {
        uint32_t count = collect_blocked(q, b, soft == 1);
        if (try_region(q, b, first, count) ||
            (memory == MEMORY_ANY && try_region(q, b, 1 - first, count))) {
            return true;
        }
    }
    return false;
}

static bool place_tile(
    struct placer *q, uint32_t tile, bool by_size, struct arena *a, struct buffer_id *ret_failed) {
    struct placement *p = q->p;
    uint32_t first = p->tile_first[tile];
    uint32_t count = p->tile_first[tile + 1] - first;
    struct arena_mark mark = arena_mark(a);
    struct order_key *keys = ARENA_ARRAY(a, struct order_key, count);
    for (uint32_t i = 0; i < count; i++) {
        const struct lower_buffer *x = &p->tg->buffers[p->by_tile[first + i].n];
        keys[i] = (struct order_key){p->by_tile[first + i], x->born, x->dies, x->bytes, by_size};
        q->is_placed[p->by_tile[first + i].n] = false;
    }
    if (count > 0) {
        qsort(keys, count, sizeof *keys, by_order);
    }
    bool good = true;
    for (uint32_t i = 0; good && i < count; i++) {
        good = place_buffer(q, keys[i].id);
        *ret_failed = keys[i].id;
    }
    arena_rewind(a, mark);
    return good;
}

/* Tile, class, bytes asked and free, and the largest buffers that live with the failed one. */
static int explain(struct placer *q, struct buffer_id failed, struct err *err) {
    const struct placement *p = q->p;
    const struct lower_buffer *x = &p->tg->buffers[failed.n];
    uint64_t live = 0;
    struct buffer_id largest[3] = {NO_BUFFER, NO_BUFFER, NO_BUFFER};
    for (uint32_t i = p->tile_first[x->tile.n]; i < p->tile_first[x->tile.n + 1]; i++) {
        struct buffer_id o = p->by_tile[i];
        if (!place_lives_overlap(x, &p->tg->buffers[o.n])) {
            continue;
        }
        live += total_bytes(p, o);
        for (int k = 0; k < 3; k++) {
            if (largest[k].n == NO_BUFFER.n ||
                p->tg->buffers[largest[k].n].bytes < p->tg->buffers[o.n].bytes) {
                memmove(&largest[k + 1], &largest[k], sizeof *largest * (size_t)(2 - k));
                largest[k] = o;
                break;
            }
        }
    }
    static const char *const classes[] = {"any region", "region 0", "region 1"};
    uint32_t lo0, hi0, lo1, hi1;
    struct lower_buffer any = *x;
    any.is_literal = false;
    region_range(p, &any, 0, &lo0, &hi0);
    region_range(p, &any, 1, &lo1, &hi1);
    uint32_t room = (p->need[failed.n].memory != MEMORY_REGION1 ? hi0 - lo0 : 0) +
                    (p->need[failed.n].memory != MEMORY_REGION0 ? hi1 - lo1 : 0);
    char list[160] = "";
    size_t used = 0;
    for (int k = 0; k < 3 && largest[k].n != NO_BUFFER.n; k++) {
        const struct lower_buffer *b = &p->tg->buffers[largest[k].n];
        used += (size_t)snprintf(
            list + used, sizeof list - used, "%s%s of step %d: %u bytes", k > 0 ? ", " : "",
            buffer_kind_name(b->kind), b->step == PLAN_NONE ? -1 : (int)b->step, b->bytes);
    }
    uint64_t missing = live > room ? live - room : 0;
    return err_set(
        err, ERR_DOES_NOT_FIT,
        "tile %u (logical %u): no room for %u bytes of %s in %s; %llu bytes live together, %u are "
        "there, %llu too many%s; largest: %s",
        target_physical(x->tile).n, x->tile.n, total_bytes(p, failed), buffer_kind_name(x->kind),
        classes[p->need[failed.n].memory], (unsigned long long)live, room,
        (unsigned long long)missing, missing == 0 ? " (separate elements do not suffice)" : "",
        list);
}

static void measure(struct placement *p, struct arena *scratch) {
    p->score = place_score(p, scratch);
    for (uint32_t i = 0; i < p->tg->buffer_count; i++) {
        struct buffer_id b = {i};
        uint32_t end = p->addr[i] + total_bytes(p, b);
        if (p->addr[i] < TARGET_REGION1) {
            p->peak0 =
                end - p->options.data_base > p->peak0 ? end - p->options.data_base : p->peak0;
        } else {
            p->peak1 = end - TARGET_REGION1 > p->peak1 ? end - TARGET_REGION1 : p->peak1;
        }
    }
}

int place_build(
    const struct tile_graph *tg, const struct place_options *options, struct arena *a,
    struct placement **ret, struct err *err) {
    struct placement *p = ARENA_NEW(a, struct placement);
    p->tg = tg;
    p->options = *options;
    p->addr = ARENA_ARRAY(a, uint32_t, tg->buffer_count);
    place_requirements(p, a);
    uint32_t most = 0;
    for (uint32_t t = 0; t < TARGET_TILES; t++) {
        uint32_t count = p->tile_first[t + 1] - p->tile_first[t];
        for (uint32_t i = p->tile_first[t]; i < p->tile_first[t + 1]; i++) {
            uint32_t b = p->by_tile[i].n;
            uint32_t pairs = p->pair_first[b + 1] - p->pair_first[b];
            most = count + pairs > most ? count + pairs : most;
        }
    }
    struct placer q = {.p = p};
    q.blocked = ARENA_ARRAY(a, struct interval, most);
    q.is_placed = ARENA_ARRAY(a, bool, tg->buffer_count);
    for (uint32_t t = 0; t < TARGET_TILES; t++) {
        struct buffer_id failed = NO_BUFFER;
        bool good = false;
        for (uint32_t way = 0; way < WAYS && !good; way++) {
            q.is_smallest = (way & 2) != 0;
            q.is_swapped = (way & 4) != 0;
            good = place_tile(&q, t, way % 2 == 1, a, &failed);
        }
        if (!good) {
            return explain(&q, failed, err);
        }
    }
    measure(p, a);
    *ret = p;
    return 0;
}
