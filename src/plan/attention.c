/* Attention in blocks: each batch and head on a grid of tiles, query parts x key parts. A tile
 * weights its keys for its queries (ATTENTION_BLOCK); the tiles of one query part then exchange
 * shares of their rows and merge them (ATTENTION_MERGE), so that the result lies in even parts of
 * rows, as that of every other product in heads does:
 *
 *   rows of a head   tile of key part 0   1   2   3       rows of the result
 *   query part 0           t0  t2  t4  t6       ->        t0 t2 t4 t6, a quarter each
 *   query part 1           t1  t3  t5  t7       ->        t1 t3 t5 t7
 *
 * Keys are cut at multiples of 16, so that at most one part has an incomplete group. Parts have at
 * most 512 keys, which is what may be summed in f16 (design.md D2); the merge is in f32. */
#include "plan/plan_internal.h"

#include <math.h>

static uint32_t key_groups(const struct plan_step *s) {
    return cost_ceil(s->product.b_rows, 16);
}

uint32_t plan_key_bound(const struct plan_step *s, uint32_t part) {
    uint32_t keys = 16 * (uint32_t)((uint64_t)key_groups(s) * part / s->k);
    return keys < s->product.b_rows ? keys : s->product.b_rows;
}

/* Largest query block, key part and share of merged rows. */
struct extent {
    uint32_t rows, keys, share;
};

static struct extent extent_of(const struct plan_step *s, const struct attention_cut *c) {
    return (struct extent){
        cost_ceil(s->product.a_rows, c->query_parts), 16 * cost_ceil(key_groups(s), c->key_parts),
        cost_ceil(s->product.a_rows, c->query_parts * c->key_parts)};
}

uint64_t attention_compute(const struct plan_step *s, const struct attention_cut *c) {
    const struct plan_product *p = &s->product;
    struct extent e = extent_of(s, c);
    uint32_t keys = e.keys < p->b_rows ? e.keys : p->b_rows;
    struct kernel_variant block = {.id = KERNEL_ATTENTION_BLOCK};
    struct kernel_variant merge = {.id = KERNEL_ATTENTION_MERGE};
    return kernel_cycles(
               &block, (const uint32_t[]){e.rows, keys, p->head_panels[0], p->out_panels}) +
           kernel_cycles(&merge, (const uint32_t[]){c->key_parts, e.share, p->out_panels});
}

uint64_t attention_merge_exchange(const struct plan_step *s, const struct attention_cut *c) {
    struct extent e = extent_of(s, c);
    uint64_t part = 8ull * e.share * s->product.out_panels + 2ull * e.share;
    uint64_t controls = 3ull * (s->product.out_panels + 2);
    return c->key_parts == 1 ? 0 : (c->key_parts - 1) * (part + controls) + PLAN_START_EVENTS;
}

struct footprint attention_bytes(const struct plan_step *s, const struct attention_cut *c) {
    const struct plan_product *p = &s->product;
    struct extent e = extent_of(s, c);
    struct kernel_block_bytes b = kernel_block_bytes(e.rows, e.keys, p->out_panels);
    uint64_t q = 32ull * e.rows * p->head_panels[0] + 512;
    uint64_t k = 32ull * e.keys * p->head_panels[1] + 64;
    uint64_t v = 32ull * e.keys * p->out_panels + 704;
    uint64_t share = (32ull * p->out_panels + 8) * e.share;
    struct footprint f = {
        .transient = q + k + v + b.s + b.work + b.out + c->key_parts * share,
        .region1 = q + b.s + b.work};
    f.largest = k > b.out ? k : b.out;
    f.largest = v > f.largest ? v : f.largest;
    return f;
}

bool attention_pairs_keys(const struct attention_cut *c) {
    return c->query_parts % 2 == 0;
}

/* As dist_heads(), but with the tiles of one key part, not of one query part, in a row. */
const struct plan_dist *
attention_dist(const struct plan_step *s, const struct attention_cut *c, struct dist_pool *pool) {
    uint32_t parts = c->query_parts * c->key_parts;
    const struct plan_dist *base =
        dist_heads(pool, s->rows, s->panels, s->product.batches, s->product.heads, parts, 1, 0);
    struct plan_dist *d = ARENA_NEW(pool->arena, struct plan_dist);
    uint16_t *tile = ARENA_ARRAY(pool->arena, uint16_t, (size_t)base->m * base->n);
    for (uint32_t i = 0; i < base->m * base->n; i++) {
        uint32_t own = base->tile[i] % parts;
        uint32_t turned = own % c->key_parts * c->query_parts + own / c->key_parts;
        tile[i] = (uint16_t)(base->tile[i] - own + turned);
    }
    *d = *base;
    d->tile = tile;
    return d;
}

static uint32_t
cut_insert(struct attention_cut *ret, uint32_t count, uint32_t limit, struct attention_cut c) {
    if (count == limit && ret[count - 1].score <= c.score) {
        return count;
    }
    uint32_t at = count < limit ? count++ : limit - 1;
    for (; at > 0 && ret[at - 1].score > c.score; at--) {
        ret[at] = ret[at - 1];
    }
    ret[at] = c;
    return count;
}

uint32_t attention_menu(
    const struct plan_step *s, uint32_t tiles, struct attention_cut *ret, uint32_t limit) {
    const struct plan_product *p = &s->product;
    uint32_t own = tiles / (p->batches * p->heads), count = 0, groups = key_groups(s);
    for (uint32_t keys = cost_ceil(groups, PLAN_F16_GROUPS); keys <= groups; keys++) {
        uint32_t largest = 0; /* of the queries, in 16 */
        for (uint32_t queries = 1;
             queries * keys <= own && queries * keys <= p->a_rows && keys <= KERNEL_MERGE_PARTS;
             queries++) {
            struct attention_cut c = {queries, keys, 0};
            struct extent e = extent_of(s, &c);
            if (e.rows > KERNEL_BLOCK_ROWS || cost_ceil(e.rows, 16) == largest) {
                continue;
            }
            largest = cost_ceil(e.rows, 16);
            struct footprint bytes = attention_bytes(s, &c);
            if (bytes.transient > PLAN_REGION0_BYTES + PLAN_REGION1_BYTES ||
                bytes.region1 > PLAN_REGION1_BYTES) {
                continue;
            }
            uint64_t key_events = attention_pairs_keys(&c) ? 4 : 8;
            c.score = attention_compute(s, &c) + attention_merge_exchange(s, &c) +
                      (keys > 1 ? PLAN_SYNC_CYCLES : 0) + 8ull * e.rows * p->head_panels[0] +
                      key_events * e.keys * (p->head_panels[1] + p->out_panels);
            count = cut_insert(ret, count, limit, c);
        }
    }
    return count;
}

bool attention_has_blocks(const struct plan_step *s) {
    const struct plan_product *p = &s->product;
    return p->head_panels[0] == p->head_panels[1] && p->head_panels[2] == p->out_panels &&
           p->out_panels <= KERNEL_BLOCK_PANELS && !p->b_is_shared && isfinite(p->scale) &&
           p->scale >= 0x1p-14f && p->scale <= 0.5f;
}
