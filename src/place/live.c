/* Which buffers live together, what kernels ask of each, and which may not share a memory unit. */
#include "place/place_internal.h"

#include <stdlib.h>

#include "base/vec.h"

struct raw_pair {
    uint32_t a, b;
    bool is_hard;
};

struct raw_pairs {
    VEC(struct raw_pair) list;
};

bool place_lives_overlap(const struct lower_buffer *a, const struct lower_buffer *b) {
    return a->born <= b->dies && b->born <= a->dies;
}

uint32_t place_unit_start(uint32_t addr) {
    uint32_t unit = addr < TARGET_REGION1 ? TARGET_ELEMENT_BYTES : 2 * TARGET_ELEMENT_BYTES;
    return addr & ~(unit - 1);
}

uint32_t place_unit_end(uint32_t addr) {
    uint32_t unit = addr < TARGET_REGION1 ? TARGET_ELEMENT_BYTES : 2 * TARGET_ELEMENT_BYTES;
    return (addr & ~(unit - 1)) + unit;
}

bool place_share_unit(uint32_t a, uint32_t a_bytes, uint32_t b, uint32_t b_bytes) {
    return place_unit_start(a) < place_unit_end(b + b_bytes - 1) &&
           place_unit_start(b) < place_unit_end(a + a_bytes - 1);
}

static void add_pair(struct raw_pairs *r, struct arena *a, uint32_t x, uint32_t y, bool is_hard) {
    if (x != y) {
        vec_push(a, &r->list, (struct raw_pair){x, y, is_hard});
        vec_push(a, &r->list, (struct raw_pair){y, x, is_hard});
    }
}

static void kernel_needs(struct placement *p, struct arena *a, struct raw_pairs *pairs) {
    const struct tile_graph *tg = p->tg;
    struct kernel_variant last = {.id = KERNEL_COUNT};
    struct kernel_operand operands[6];
    int count = 0;
    for (uint32_t i = 0; i < tg->vertex_count; i++) {
        const struct lower_vertex *v = &tg->vertices[i];
        if (last.id == KERNEL_COUNT || !kernel_variant_equal(&last, &v->variant)) {
            kernel_operands(&v->variant, operands, &count);
            last = v->variant;
        }
        for (int o = 0; o < count; o++) {
            struct buffer_id b = v->words[operands[o].word].buffer;
            if (b.n == NO_BUFFER.n) {
                continue;
            }
            struct place_need *n = &p->need[b.n];
            n->memory = operands[o].memory != MEMORY_ANY ? operands[o].memory : n->memory;
            n->align = operands[o].align > n->align ? operands[o].align : n->align;
            n->tail = operands[o].over_read > n->tail ? operands[o].over_read : n->tail;
            for (int other = 0; other < count; other++) {
                struct buffer_id x = v->words[operands[other].word].buffer;
                if ((operands[o].separate >> other & 1) != 0 && x.n != NO_BUFFER.n) {
                    add_pair(pairs, a, b.n, x.n, true);
                }
            }
        }
    }
}

struct endpoint {
    uint32_t tile, buffer;
};

static int by_endpoint(const void *pa, const void *pb) {
    const struct endpoint *a = pa, *b = pb;
    if (a->tile != b->tile) {
        return a->tile < b->tile ? -1 : 1;
    }
    return a->buffer < b->buffer ? -1 : a->buffer > b->buffer;
}

static uint32_t unique(struct endpoint *e, uint32_t count) {
    uint32_t kept = 0;
    if (count > 0) {
        qsort(e, count, sizeof *e, by_endpoint);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (kept == 0 || e[kept - 1].buffer != e[i].buffer) {
            e[kept++] = e[i];
        }
    }
    return kept;
}

/* Sent and received buffers of one phase on one tile; a loopback needs them apart. */
static void phase_needs(
    struct placement *p, struct arena *a, struct raw_pairs *pairs, const struct lower_level *l) {
    const struct tile_graph *tg = p->tg;
    uint32_t dests = 0;
    for (uint32_t i = l->move_first; i < l->move_first + l->move_count; i++) {
        dests += tg->moves[i].dest_count;
    }
    struct endpoint *sent = ARENA_ARRAY(a, struct endpoint, l->move_count);
    struct endpoint *received = ARENA_ARRAY(a, struct endpoint, dests);
    uint32_t sent_count = 0, received_count = 0;
    for (uint32_t i = l->move_first; i < l->move_first + l->move_count; i++) {
        const struct lower_move *m = &tg->moves[i];
        uint32_t tile = lower_buffer(tg, m->source)->tile.n;
        sent[sent_count++] = (struct endpoint){tile, m->source.n};
        for (uint32_t d = 0; d < m->dest_count; d++) {
            struct buffer_id b = tg->dests[m->dest_first + d].buffer;
            uint32_t to = lower_buffer(tg, b)->tile.n;
            received[received_count++] = (struct endpoint){to, b.n};
            if (to == tile) {
                add_pair(pairs, a, m->source.n, b.n, true);
            }
        }
    }
    sent_count = unique(sent, sent_count);
    received_count = unique(received, received_count);
    uint32_t r = 0;
    for (uint32_t s = 0; s < sent_count; s++) {
        while (r < received_count && received[r].tile < sent[s].tile) {
            r++;
        }
        for (uint32_t x = r; x < received_count && received[x].tile == sent[s].tile; x++) {
            add_pair(pairs, a, sent[s].buffer, received[x].buffer, false);
        }
    }
}

static void index_pairs(struct placement *p, struct arena *a, const struct raw_pairs *raw) {
    uint32_t buffers = p->tg->buffer_count;
    p->pair_first = ARENA_ARRAY(a, uint32_t, (size_t)buffers + 1);
    p->pairs = ARENA_ARRAY(a, struct place_pair, raw->list.len);
    for (size_t i = 0; i < raw->list.len; i++) {
        p->pair_first[raw->list.data[i].a + 1]++;
    }
    for (uint32_t b = 0; b < buffers; b++) {
        p->pair_first[b + 1] += p->pair_first[b];
    }
    uint32_t *at = arena_memdup(a, p->pair_first, sizeof *at * ((size_t)buffers + 1));
    for (size_t i = 0; i < raw->list.len; i++) {
        const struct raw_pair *x = &raw->list.data[i];
        p->pairs[at[x->a]++] = (struct place_pair){{x->b}, x->is_hard};
    }
}

static void group_by_tile(struct placement *p, struct arena *a) {
    const struct tile_graph *tg = p->tg;
    p->tile_first = ARENA_ARRAY(a, uint32_t, TARGET_TILES + 1);
    p->by_tile = ARENA_ARRAY(a, struct buffer_id, tg->buffer_count);
    for (uint32_t i = 0; i < tg->buffer_count; i++) {
        p->tile_first[tg->buffers[i].tile.n + 1]++;
    }
    for (uint32_t t = 0; t < TARGET_TILES; t++) {
        p->tile_first[t + 1] += p->tile_first[t];
    }
    uint32_t *at = arena_memdup(a, p->tile_first, sizeof *at * (TARGET_TILES + 1));
    for (uint32_t i = 0; i < tg->buffer_count; i++) {
        p->by_tile[at[tg->buffers[i].tile.n]++] = (struct buffer_id){i};
    }
}

void place_requirements(struct placement *p, struct arena *a) {
    const struct tile_graph *tg = p->tg;
    p->need = ARENA_ARRAY(a, struct place_need, tg->buffer_count);
    for (uint32_t i = 0; i < tg->buffer_count; i++) {
        p->need[i].align = PLACE_MIN_ALIGN;
    }
    struct raw_pairs pairs = {0};
    kernel_needs(p, a, &pairs);
    for (uint32_t i = 0; i < tg->level_count; i++) {
        phase_needs(p, a, &pairs, &tg->levels[i]);
    }
    index_pairs(p, a, &pairs);
    group_by_tile(p, a);
}
