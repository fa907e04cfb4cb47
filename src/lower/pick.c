/* Calls of PICK: the table of one block, an address for each unit of the result. Elements that come
 * from nowhere are taken from a row of zeros. */
#include "lower/lower_internal.h"

/* Where each operand of the block begins in its buffer. */
struct pick_sources {
    struct plan_need need[PLAN_OPERANDS];
    const struct buffer_id *in;
    uint32_t row_bytes;
    struct buffer_id zeros;
};

static struct lower_word address_of(const struct pick_sources *from, const struct plan_element *e) {
    if (e->source == PLAN_FILL) {
        return (struct lower_word){from->zeros, 0};
    }
    const struct plan_need *n = &from->need[e->source];
    uint32_t row =
        (e->column / 16 - n->panel_first) * (n->row_last - n->row_first) + e->row - n->row_first;
    return (struct lower_word){
        from->in[e->source], from->row_bytes * row + from->row_bytes / 16 * (e->column % 16)};
}

void lower_pick_block(struct lowering *l, const struct lower_pick *p) {
    const struct plan_step *s = &l->plan->steps[p->step];
    const struct plan_dist *d = s->dist;
    uint32_t i = p->block / d->n, j = p->block % d->n;
    struct lower_vertex v = lower_new_vertex(
        plan_variant(s), p->tile, l->times[p->step].level, l->times[p->step].time, p->step);
    uint32_t row_bytes = plan_row_bytes(&l->plan->matrices[s->out]);
    uint32_t lanes = s->pick->unit == PICK_DOUBLE ? 8 * 16 / row_bytes : 1; /* of a unit */
    uint32_t rows = d->row_bound[i + 1] - d->row_bound[i];
    uint32_t panels = d->panel_bound[j + 1] - d->panel_bound[j];
    uint32_t count = rows * panels * 16 / lanes;
    struct pick_sources from = {
        .in = p->in,
        .row_bytes = row_bytes,
        .zeros = lower_row(l, p->step, PARAM_ROW, p->tile, 0, 1)};
    lower_use(l, from.zeros, v.time);
    for (int o = 0; o < PLAN_OPERANDS; o++) {
        if (s->in[o] != PLAN_NONE) {
            from.need[o] = plan_need(s, d, i, j, o);
        }
        if (p->in[o].n != NO_BUFFER.n) {
            lower_use(l, p->in[o], v.time);
        }
    }
    struct lower_word *words = ARENA_ARRAY(l->arena, struct lower_word, count);
    uint32_t at = 0;
    for (uint32_t panel = d->panel_bound[j]; panel < d->panel_bound[j + 1]; panel++) {
        for (uint32_t r = d->row_bound[i]; r < d->row_bound[i + 1]; r++) {
            for (uint32_t lane = 0; lane < 16; lane += lanes) {
                words[at++] = address_of(
                    &from, &s->pick->elements[16 * ((size_t)r * s->panels + panel) + lane]);
            }
        }
    }
    struct buffer_id table = lower_new_buffer(l, p->tile, BUFFER_TABLE, 4 * count, p->step);
    l->buffers.data[table.n].is_literal = true;
    vec_push(l->arena, &l->tables, (struct lower_table){table, words, count});
    lower_word_buffer(l, &v, PICK_TABLE, table, 0);
    lower_word_buffer(l, &v, PICK_OUT, p->out, 0);
    v.words[PICK_N].value = s->pick->unit == PICK_HALF ? count / 2 : count;
    lower_push_vertex(l, v, PICK_WORDS, &v.words[PICK_N].value);
}
