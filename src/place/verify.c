/* Recomputes from addresses alone what place.h promises. */
#include "place/place_internal.h"

struct checker {
    const struct placement *p;
    struct err *err;
    uint32_t faults;
};

static void fault(struct checker *c, uint32_t buffer, const char *text) {
    if (c->faults++ == 0) {
        err_set(
            c->err, ERR_INTERNAL, "place: buffer %u at 0x%x on logical tile %u: %s", buffer,
            c->p->addr[buffer], c->p->tg->buffers[buffer].tile.n, text);
    }
}

static void check_buffer(struct checker *c, uint32_t i) {
    const struct placement *p = c->p;
    const struct lower_buffer *b = &p->tg->buffers[i];
    uint32_t at = p->addr[i];
    uint32_t end = at + b->bytes + p->need[i].tail;
    uint32_t elements =
        p->options.overflow_elements != NULL ? p->options.overflow_elements[b->tile.n] : 0;
    bool in0 =
        at >= p->options.data_base + elements * TARGET_ELEMENT_BYTES && end <= TARGET_REGION1;
    bool in1 = at >= TARGET_REGION1 && end <= TARGET_LOAD_END;
    if (!in0 && !in1) {
        fault(c, i, "outside the data ranges");
    }
    if ((p->need[i].memory == MEMORY_REGION0 && !in0) ||
        (p->need[i].memory == MEMORY_REGION1 && !in1)) {
        fault(c, i, "in the wrong region");
    }
    if (at % p->need[i].align != 0 || at % PLACE_MIN_ALIGN != 0) {
        fault(c, i, "misaligned");
    }
    if (b->is_literal && end > p->options.literal_limit) {
        fault(c, i, "a literal beyond the end of an image");
    }
    for (uint32_t k = p->pair_first[i]; k < p->pair_first[i + 1]; k++) {
        uint32_t o = p->pairs[k].other.n;
        if (p->pairs[k].is_hard && place_share_unit(
                                       at, b->bytes + p->need[i].tail, p->addr[o],
                                       p->tg->buffers[o].bytes + p->need[o].tail)) {
            fault(c, i, "shares a memory unit with a buffer that it must not meet");
        }
    }
}

int place_verify(const struct placement *p, struct err *err) {
    struct checker c = {.p = p, .err = err};
    for (uint32_t i = 0; i < p->tg->buffer_count; i++) {
        check_buffer(&c, i);
    }
    for (uint32_t t = 0; t < TARGET_TILES; t++) {
        for (uint32_t x = p->tile_first[t]; x < p->tile_first[t + 1]; x++) {
            uint32_t a = p->by_tile[x].n;
            for (uint32_t y = x + 1; y < p->tile_first[t + 1]; y++) {
                uint32_t b = p->by_tile[y].n;
                if (place_lives_overlap(&p->tg->buffers[a], &p->tg->buffers[b]) &&
                    p->addr[a] < p->addr[b] + p->tg->buffers[b].bytes + p->need[b].tail &&
                    p->addr[b] < p->addr[a] + p->tg->buffers[a].bytes + p->need[a].tail) {
                    fault(&c, a, "overlaps a buffer that lives with it");
                }
            }
        }
    }
    return c.faults == 0 ? 0 : -ERR_INTERNAL;
}
