/* Which transfers go together: see exchange_internal.h.
 *
 * Transfers join the youngest stream of the same source, receivers and form while it has room.
 * Without an order that is looked up in a table by source and receivers; with one only neighbours
 * of the order join, which gives the same streams back when the order has each in one run. Bytes
 * that depend on one another stay apart, so a dependency is one between streams. A walk over all
 * transfers, each compared with the one before it in its bucket until one is equal: ends.
 */
#include "exchange/exchange_internal.h"

#include <string.h>

/* Items of a stream at most, unless one transfer alone is longer. Short streams fill gaps, long
 * ones save controls and search; with several receivers there are few gaps that all of them
 * share. */
#define STREAM_ITEMS_ONE     256
#define STREAM_ITEMS_SEVERAL 2048

#define NONE UINT32_MAX

struct grouping {
    struct problem *p;
    const bool *chained;
    uint32_t *last;    /* by bucket: newest stream, or NONE */
    uint32_t *older;   /* by stream: next in its bucket */
    uint32_t mask;     /* buckets - 1 */
    uint32_t *of;      /* by transfer: its stream */
    uint32_t *first;   /* by stream: its first transfer */
    int32_t *items;    /* by stream */
    uint32_t *members; /* by stream */
};

static uint32_t bucket_of(const struct grouping *g, const struct exchange_transfer *t) {
    uint64_t h = (1469598103934665603u ^ t->source.n) * 1099511628211u;
    for (uint32_t i = 0; i < t->dest_count; i++) {
        h = (h ^ t->dests[i].tile.n) * 1099511628211u;
    }
    return (uint32_t)(h >> 20) & g->mask;
}

static bool same_ends(const struct exchange_transfer *a, const struct exchange_transfer *b) {
    if (a->source.n != b->source.n || a->dest_count != b->dest_count || a->form != b->form ||
        a->requested != b->requested) {
        return false;
    }
    for (uint32_t i = 0; i < a->dest_count; i++) {
        if (a->dests[i].tile.n != b->dests[i].tile.n) {
            return false;
        }
    }
    return true;
}

static bool runs_on(const struct exchange_transfer *transfers, uint32_t before, uint32_t t) {
    const struct exchange_transfer *x = &transfers[before];
    return x->source_addr + 4 * x->words == transfers[t].source_addr;
}

bool exchange_follows(const struct exchange_transfer *transfers, uint32_t i) {
    return i > 0 && same_ends(&transfers[i - 1], &transfers[i]) && runs_on(transfers, i - 1, i);
}

/* Pairs keep source and format like others their source. The idle selection may not meet a pointer
 * of theirs (6): what exchange_check() asks of one transfer holds for the last piece, and before
 * others lie too many items. A tile among its own receivers must keep controls off its send starts
 * (routes.c): alone. */
static bool may_join(const struct grouping *g, uint32_t t) {
    const struct exchange_transfer *x = &g->p->transfers[t];
    if (g->chained[t] || (g->p->forms[t] == EXCHANGE_PAIRED && x->words < WIDE_LEAST)) {
        return false;
    }
    for (uint32_t i = 0; i < x->dest_count; i++) {
        if (x->dests[i].tile.n == x->source.n) {
            return false;
        }
    }
    return true;
}

/* Stream that transfer t may join, NONE when it begins one. */
static uint32_t find(const struct grouping *g, uint32_t t, uint32_t bucket) {
    const struct problem *p = g->p;
    if (!may_join(g, t)) {
        return NONE;
    }
    for (uint32_t s = g->last[bucket]; s != NONE; s = g->older[s]) {
        if (may_join(g, g->first[s]) && p->forms[t] == p->forms[g->first[s]] &&
            same_ends(&p->transfers[t], &p->transfers[g->first[s]])) {
            int32_t most =
                p->transfers[t].dest_count == 1 ? STREAM_ITEMS_ONE : STREAM_ITEMS_SEVERAL;
            return g->items[s] + (int32_t)p->transfers[t].words <= most ? s : NONE;
        }
    }
    return NONE;
}

static void list_pieces(const struct grouping *g) {
    struct problem *p = g->p;
    uint32_t at = 0;
    p->shapes = ARENA_ARRAY(p->a, struct shape, p->count);
    p->pieces = ARENA_ARRAY(p->a, struct piece, p->transfer_count);
    for (uint32_t s = 0; s < p->count; s++) {
        p->shapes[s].first_piece = at;
        at += g->members[s];
    }
}

static void add_piece(struct problem *p, uint32_t s, uint32_t t) {
    struct shape *x = &p->shapes[s];
    uint32_t words = p->transfers[t].words;
    int32_t items = (int32_t)(p->forms[t] == EXCHANGE_PAIRED ? words / 2 : words);
    struct piece *piece = &p->pieces[x->first_piece + x->piece_count];
    *piece = (struct piece){t, x->items, items, x->piece_count == 0};
    if (x->piece_count > 0 && p->options->follows != NULL) {
        piece->is_restart = !(p->options->follows[t] && piece[-1].transfer + 1 == t);
    } else if (x->piece_count > 0) {
        piece->is_restart = !runs_on(p->transfers, piece[-1].transfer, t);
    }
    x->has_restart = x->has_restart || (x->piece_count > 0 && piece->is_restart);
    x->piece_count++;
    x->items += items;
    x->form = (uint8_t)p->forms[t];
}

void problem_streams(struct problem *p, const uint32_t *order, const bool *chained) {
    uint32_t n = p->transfer_count;
    struct grouping g = {
        .p = p,
        .chained = chained,
        .mask = 1,
        .older = ARENA_ARRAY(p->a, uint32_t, n),
        .of = ARENA_ARRAY(p->a, uint32_t, n),
        .first = ARENA_ARRAY(p->a, uint32_t, n),
        .items = ARENA_ARRAY(p->a, int32_t, n),
        .members = ARENA_ARRAY(p->a, uint32_t, n)};
    while (g.mask < n) {
        g.mask = 2 * g.mask + 1;
    }
    g.mask = order != NULL ? 0 : g.mask;
    g.last = ARENA_ARRAY(p->a, uint32_t, (size_t)g.mask + 1);
    memset(g.last, 0xFF, ((size_t)g.mask + 1) * sizeof *g.last);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t t = order != NULL ? order[i] : i;
        uint32_t bucket = order != NULL ? 0 : bucket_of(&g, &p->transfers[t]);
        uint32_t s = find(&g, t, bucket);
        if (s == NONE) {
            s = p->count++;
            g.first[s] = t;
            if (order != NULL || may_join(&g, t)) {
                g.older[s] = order != NULL ? NONE : g.last[bucket];
                g.last[bucket] = s;
            }
        }
        g.of[t] = s;
        g.items[s] += (int32_t)p->transfers[t].words;
        g.members[s]++;
    }
    list_pieces(&g);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t t = order != NULL ? order[i] : i;
        add_piece(p, g.of[t], t);
    }
}
