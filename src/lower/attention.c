/* Attention in blocks (plan/attention.c): on every tile a call for its query part and key part, on
 * every tile of a query part a merge of its share of the rows.
 *
 *     result of a block   [panels][16 N][16] f16, f32 [16 N] largest scores, [16 N] sums
 *     share of a merge    rows [a, b) of all that: the own block's in place, each other one's moved
 *                         together: [panels][b - a][16], [b - a], [b - a] */
#include <math.h>
#include <string.h>

#include "base/f16.h"
#include "lower/lower_internal.h"

struct attention_tile {   /* one of a query part's tiles */
    uint32_t tile, rows;  /* rows of the query part */
    uint32_t first, last; /* own share of them */
    struct kernel_block_bytes bytes;
    struct buffer_id block; /* result of the block */
};

/* Power of two by which weights are multiplied so that no sum of them exceeds 1; the same for all
 * key parts, or the merge would have to know. */
static uint16_t weight_shift(const struct plan_step *s) {
    uint32_t largest = 1;
    for (uint32_t i = 0; i < s->k; i++) {
        uint32_t keys = plan_key_bound(s, i + 1) - plan_key_bound(s, i);
        largest = keys > largest ? keys : largest;
    }
    double shift = 1;
    while (shift * largest > 1) {
        shift /= 2;
    }
    return f16_from_f64(shift);
}

static void call_block(
    struct lowering *l, uint32_t step, const struct attention_tile *t, uint32_t part,
    const struct buffer_id in[PLAN_OPERANDS]) {
    const struct plan_step *s = &l->plan->steps[step];
    const struct step_time *time = &l->times[step];
    uint32_t keys = plan_key_bound(s, part + 1) - plan_key_bound(s, part);
    struct lower_vertex v =
        lower_new_vertex(plan_variant(s), t->tile, time->level, time->time, step);
    struct buffer_id scores = lower_new_buffer(l, t->tile, BUFFER_SCRATCH, t->bytes.s, step);
    struct buffer_id work = lower_new_buffer(l, t->tile, BUFFER_SCRATCH, t->bytes.work, step);
    lower_word_buffer(l, &v, BLOCK_Q, in[0], 0);
    lower_word_buffer(l, &v, BLOCK_K, in[1], 0);
    lower_word_buffer(l, &v, BLOCK_V, in[2], 0);
    lower_word_buffer(l, &v, BLOCK_OUT, t->block, 0);
    lower_word_buffer(l, &v, BLOCK_S, scores, 0);
    lower_word_buffer(l, &v, BLOCK_WORK, work, 0);
    uint32_t scale = f16_from_f64((double)s->product.scale);
    uint32_t groups = s->product.head_panels[0], panels = s->product.out_panels;
    v.words[BLOCK_ROWS].value = t->rows;
    v.words[BLOCK_KEYS].value = keys;
    v.words[BLOCK_GROUPS].value = groups;
    v.words[BLOCK_PANELS].value = panels;
    v.words[BLOCK_SCALE].value = scale | (scale ^ 0x8000u) << 16;
    v.words[BLOCK_SHIFT].value = weight_shift(s);
    lower_push_vertex(l, v, BLOCK_WORDS, (const uint32_t[]){t->rows, keys, groups, panels});
}

/* Rows [to->first, to->last) of another tile's block, to `at` in a buffer. */
static void move_share(
    struct lowering *l, uint32_t step, const struct attention_tile *from,
    const struct attention_tile *to, struct buffer_id in, uint32_t at) {
    uint32_t panels = l->plan->steps[step].product.out_panels, level = l->times[step].result_level;
    uint32_t rows = to->last - to->first;
    for (uint32_t panel = 0; panel < panels; panel++) {
        struct lower_dest dest = {in, at + 32 * panel * rows};
        uint32_t source = panel * from->bytes.out_stride + 32 * to->first;
        lower_add_move(l, level, from->block, source, 8 * rows, &dest, 1);
    }
    for (uint32_t i = 0; i < 2; i++) {
        struct lower_dest dest = {in, at + (32 * panels + 4 * i) * rows};
        uint32_t source = from->bytes.stats + i * from->bytes.stats_stride + 4 * to->first;
        lower_add_move(l, level, from->block, source, rows, &dest, 1);
    }
}

static void call_merge(
    struct lowering *l, uint32_t step, const struct attention_tile *tiles, uint32_t part,
    struct buffer_id out) {
    const struct plan_step *s = &l->plan->steps[step];
    const struct attention_tile *own = &tiles[part];
    const struct step_time *time = &l->times[step];
    uint32_t panels = s->product.out_panels, rows = own->last - own->first;
    uint32_t stride = (32 * panels + 8) * rows;
    struct lower_vertex v = lower_new_vertex(
        (struct kernel_variant){.id = KERNEL_ATTENTION_MERGE}, own->tile, time->result_level,
        time->result_time, step);
    if (s->k > 1) {
        struct buffer_id in =
            lower_new_buffer(l, own->tile, BUFFER_OPERAND, (s->k - 1) * stride, step);
        uint32_t at = 0;
        for (uint32_t i = 0; i < s->k; i++) {
            if (i != part) {
                move_share(l, step, &tiles[i], own, in, at);
                at += stride;
            }
        }
        lower_word_buffer(l, &v, MERGE_IN, in, 0);
    }
    lower_word_buffer(l, &v, MERGE_OWN, own->block, 32 * own->first);
    lower_word_buffer(l, &v, MERGE_STATS, own->block, own->bytes.stats + 4 * own->first);
    lower_word_buffer(l, &v, MERGE_OUT, out, 0);
    v.words[MERGE_OWN_STRIDE].value = own->bytes.out_stride;
    v.words[MERGE_STATS_STRIDE].value = own->bytes.stats_stride;
    v.words[MERGE_STRIDE].value = stride;
    v.words[MERGE_PARTS].value = s->k;
    v.words[MERGE_ROWS].value = rows;
    v.words[MERGE_PANELS].value = panels;
    float scale = f16_to_f32(f16_from_f64((double)s->product.scale)); /* the blocks' */
    v.words[MERGE_SCALE].value = float_bits(scale);
    lower_push_vertex(l, v, MERGE_WORDS, (const uint32_t[]){s->k, rows, panels});
}

void lower_attention(struct lowering *l, uint32_t step) {
    const struct plan_step *s = &l->plan->steps[step];
    const struct plan_dist *d = s->dist;
    const struct buffer_id *in[PLAN_OPERANDS];
    for (int o = 0; o < PLAN_OPERANDS; o++) {
        in[o] = lower_operands(l, step, o);
    }
    struct attention_tile *tiles = ARENA_ARRAY(l->arena, struct attention_tile, s->k);
    for (uint32_t i = 0; i < d->m; i += s->k) { /* query part */
        uint32_t first = d->row_bound[i], rows = d->row_bound[i + s->k] - first;
        for (uint32_t j = 0; j < d->n; j++) {
            for (uint32_t part = 0; part < s->k; part++) {
                struct attention_tile *t = &tiles[part];
                uint32_t b = (i + part) * d->n + j;
                *t = (struct attention_tile){
                    .tile = d->tile[b],
                    .rows = rows,
                    .first = d->row_bound[i + part] - first,
                    .last = d->row_bound[i + part + 1] - first,
                    .bytes = kernel_block_bytes(
                        rows, plan_key_bound(s, part + 1) - plan_key_bound(s, part),
                        s->product.out_panels)};
                t->block = lower_new_buffer(l, t->tile, BUFFER_OPERAND, t->bytes.out, step);
                call_block(
                    l, step, t, part, (const struct buffer_id[]){in[0][b], in[1][b], in[2][b]});
            }
            for (uint32_t part = 0; part < s->k; part++) {
                call_merge(l, step, tiles, part, l->home[s->out][(i + part) * d->n + j]);
            }
        }
    }
}
