/* Which transfers of a phase must keep their list order because bytes overlap (4.4).
 *
 * Tile by tile. Most tiles have no overlap at all, which a sort shows; only the others are cut
 * into segments at every border of an access, and the accesses are walked in list order with the
 * last writer and the readers since then remembered for each segment. Edges are direct ones.
 */
#include "exchange/exchange_internal.h"

#include <stdlib.h>
#include <string.h>

struct access {
    uint32_t start, end;
    uint32_t transfer;
    bool is_write;
};

struct reader {
    uint32_t transfer;
    uint32_t next; /* index + 1, 0 ends */
};

typedef VEC(struct exchange_dependency) dependency_vec;

static int access_by_start(const void *x, const void *y) {
    const struct access *a = x;
    const struct access *b = y;
    if (a->start != b->start) {
        return a->start < b->start ? -1 : 1;
    }
    return a->is_write != b->is_write ? (a->is_write ? -1 : 1) : 0;
}

static bool tile_has_overlap(const struct access *list, uint32_t n, struct arena *a) {
    struct access *sorted = arena_memdup(a, list, n * sizeof *list);
    qsort(sorted, n, sizeof *sorted, access_by_start);
    uint32_t write_end = 0;
    uint32_t any_end = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (sorted[i].start < (sorted[i].is_write ? any_end : write_end)) {
            return true;
        }
        any_end = sorted[i].end > any_end ? sorted[i].end : any_end;
        if (sorted[i].is_write && sorted[i].end > write_end) {
            write_end = sorted[i].end;
        }
    }
    return false;
}

static int number_order(const void *x, const void *y) {
    uint32_t a = *(const uint32_t *)x;
    uint32_t b = *(const uint32_t *)y;
    return (a > b) - (a < b);
}

static uint32_t border_index(const uint32_t *borders, uint32_t n, uint32_t addr) {
    const uint32_t *at = bsearch(&addr, borders, n, sizeof addr, number_order);
    return (uint32_t)(at - borders);
}

static void add_edge(
    dependency_vec *edges, struct arena *a, uint32_t before, uint32_t after,
    struct logical_tile tile, enum exchange_hazard kind) {
    if (before == after) {
        return;
    }
    if (edges->len > 0) { /* neighbouring segments give the same edge */
        const struct exchange_dependency *last = &edges->data[edges->len - 1];
        if (last->before == before && last->after == after && last->tile.n == tile.n &&
            last->kind == kind) {
            return;
        }
    }
    vec_push(a, edges, (struct exchange_dependency){before, after, tile, (uint8_t)kind});
}

static void tile_edges(
    const struct access *list, uint32_t n, struct logical_tile tile, dependency_vec *edges,
    struct arena *keep, struct arena *a) {
    uint32_t *borders = ARENA_ARRAY(a, uint32_t, 2 * (size_t)n);
    for (uint32_t i = 0; i < n; i++) {
        borders[2 * i] = list[i].start;
        borders[2 * i + 1] = list[i].end;
    }
    qsort(borders, 2 * (size_t)n, sizeof *borders, number_order);
    uint32_t count = 0;
    for (uint32_t i = 0; i < 2 * n; i++) {
        if (count == 0 || borders[count - 1] != borders[i]) {
            borders[count++] = borders[i];
        }
    }
    uint32_t *writer = ARENA_ARRAY(a, uint32_t, count); /* transfer + 1 */
    uint32_t *readers = ARENA_ARRAY(a, uint32_t, count);
    VEC(struct reader) pool = {0};
    for (uint32_t i = 0; i < n; i++) {
        const struct access *x = &list[i];
        uint32_t last = border_index(borders, count, x->end);
        for (uint32_t g = border_index(borders, count, x->start); g < last; g++) {
            if (writer[g] != 0) {
                add_edge(
                    edges, keep, writer[g] - 1, x->transfer, tile,
                    x->is_write ? EXCHANGE_WRITE_AFTER_WRITE : EXCHANGE_READ_AFTER_WRITE);
            }
            if (!x->is_write) {
                vec_push(a, &pool, (struct reader){x->transfer, readers[g]});
                readers[g] = (uint32_t)pool.len;
                continue;
            }
            for (uint32_t r = readers[g]; r != 0; r = pool.data[r - 1].next) {
                add_edge(
                    edges, keep, pool.data[r - 1].transfer, x->transfer, tile,
                    EXCHANGE_WRITE_AFTER_READ);
            }
            readers[g] = 0;
            writer[g] = x->transfer + 1;
        }
    }
}

static int edge_order(const void *x, const void *y) {
    const struct exchange_dependency *a = x;
    const struct exchange_dependency *b = y;
    if (a->after != b->after) {
        return a->after < b->after ? -1 : 1;
    }
    if (a->before != b->before) {
        return a->before < b->before ? -1 : 1;
    }
    if (a->tile.n != b->tile.n) {
        return a->tile.n < b->tile.n ? -1 : 1;
    }
    return (a->kind > b->kind) - (a->kind < b->kind);
}

/* Accesses of all tiles, by tile and then list order; first[t] .. first[t + 1] are tile t's. */
static struct access *collect(
    const struct exchange_transfer *transfers, uint32_t count, uint32_t *first, struct arena *a) {
    for (uint32_t i = 0; i < count; i++) {
        first[transfers[i].source.n + 1]++;
        for (uint32_t k = 0; k < transfers[i].dest_count; k++) {
            first[transfers[i].dests[k].tile.n + 1]++;
        }
    }
    for (uint32_t t = 0; t < TARGET_TILES; t++) {
        first[t + 1] += first[t];
    }
    uint32_t *next = arena_memdup(a, first, TARGET_TILES * sizeof *first);
    struct access *list = ARENA_ARRAY(a, struct access, first[TARGET_TILES]);
    for (uint32_t i = 0; i < count; i++) {
        const struct exchange_transfer *t = &transfers[i];
        list[next[t->source.n]++] =
            (struct access){t->source_addr, t->source_addr + 4 * t->words, i, false};
        for (uint32_t k = 0; k < t->dest_count; k++) {
            list[next[t->dests[k].tile.n]++] =
                (struct access){t->dests[k].addr, t->dests[k].addr + 4 * t->words, i, true};
        }
    }
    return list;
}

void exchange_dependencies(
    const struct exchange_transfer *transfers, uint32_t count, struct arena *a,
    struct exchange_dependency **ret, uint32_t *ret_count) {
    uint32_t *first = ARENA_ARRAY(a, uint32_t, TARGET_TILES + 1);
    struct access *list = collect(transfers, count, first, a);
    dependency_vec edges = {0};
    for (uint32_t t = 0; t < TARGET_TILES; t++) {
        uint32_t n = first[t + 1] - first[t];
        if (n >= 2) {
            if (tile_has_overlap(&list[first[t]], n, a)) {
                tile_edges(&list[first[t]], n, (struct logical_tile){(uint16_t)t}, &edges, a, a);
            }
        }
    }
    uint32_t kept = 0;
    if (edges.len > 1) {
        qsort(edges.data, edges.len, sizeof *edges.data, edge_order);
    }
    for (size_t i = 0; i < edges.len; i++) {
        if (kept == 0 || edge_order(&edges.data[kept - 1], &edges.data[i]) != 0) {
            edges.data[kept++] = edges.data[i];
        }
    }
    *ret = edges.data;
    *ret_count = kept;
}
