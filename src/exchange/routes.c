/* Who can send what to whom, and when: the rejections of one transfer, and its shape at offset 0.
 *
 * exchange_check() refuses what the fabric cannot do or what has never been seen to work (1.4, 4.2,
 * 6). problem_shapes() then only computes: it relies on the checks. Both end after one walk over
 * the receivers.
 */
#include "exchange/exchange_internal.h"

#include <string.h>

#define LOW_ELEMENTS ((TARGET_REGION1 - TARGET_MEM_BASE) / TARGET_ELEMENT_BYTES)

uint32_t element_mask(uint32_t addr, uint32_t bytes) {
    uint32_t mask = 0;
    uint32_t last = addr + bytes - 1;
    for (uint32_t at = addr; at <= last;) {
        bool low = at < TARGET_REGION1;
        uint32_t unit = low ? TARGET_ELEMENT_BYTES : 2 * TARGET_ELEMENT_BYTES;
        uint32_t base = low ? TARGET_MEM_BASE : TARGET_REGION1;
        uint32_t index = (at - base) / unit;
        mask |= 1u << (index + (low ? 0 : LOW_ELEMENTS));
        at = base + (index + 1) * unit;
    }
    return mask;
}

static int check_range(
    const char *what, uint32_t tile, uint32_t addr, uint32_t words, uint32_t align,
    struct err *err) {
    if (tile >= TARGET_TILES) {
        return err_set(err, ERR_SCHEDULE, "%s tile %u, at most %d", what, tile, TARGET_TILES - 1);
    }
    if (addr % align != 0) {
        return err_set(
            err, ERR_SCHEDULE, "%s address 0x%x of tile %u is not a multiple of %u", what, addr,
            tile, align);
    }
    if (addr < TARGET_MEM_BASE || addr >= TARGET_MEM_END || words > (TARGET_MEM_END - addr) / 4) {
        return err_set(
            err, ERR_SCHEDULE, "%s of %u words at 0x%x of tile %u leaves tile memory", what, words,
            addr, tile);
    }
    return 0;
}

/* A pair that writes two of its controls on one event cannot be encoded, or faults (section 6). */
static int check_pair_events(const struct exchange_transfer *t, uint32_t tile, struct err *err) {
    struct physical_tile s = target_physical(t->source);
    struct physical_tile d = target_physical((struct logical_tile){(uint16_t)tile});
    uint32_t items = t->words / 2;
    bool is_early = target_route_time(s, d) < target_route_time(s, target_partner(d));
    uint32_t meet = 51 + 2 * (uint32_t)target_row(d);
    if (items == 2) {
        return err_set(
            err, ERR_SCHEDULE, "4 words paired: format and pointer of tile %u meet", tile);
    }
    if (is_early && (items == meet || items == meet + 2)) {
        return err_set(
            err, ERR_SCHEDULE, "%u words paired: idle selection and %s of tile %u meet", t->words,
            items == meet ? "format" : "pointer", tile);
    }
    return 0;
}

static int check_paired(const struct exchange_transfer *t, const uint64_t *seen, struct err *err) {
    if (t->words % 2 != 0) {
        return err_set(err, ERR_SCHEDULE, "odd word count %u of a paired transfer", t->words);
    }
    for (uint32_t i = 0; i < t->dest_count; i++) {
        uint32_t other = t->dests[i].tile.n ^ 1u;
        if ((seen[other / 64] >> other % 64 & 1) == 0) {
            return err_set(
                err, ERR_SCHEDULE, "incomplete pair: tile %u receives without tile %u",
                t->dests[i].tile.n, other);
        }
        int rc = check_pair_events(t, t->dests[i].tile.n, err);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

static int check_dests(const struct exchange_transfer *t, struct err *err) {
    uint64_t seen[TARGET_TILES / 64] = {0};
    uint32_t align = t->form == EXCHANGE_PAIRED ? 8 : 4;
    for (uint32_t i = 0; i < t->dest_count; i++) {
        uint32_t tile = t->dests[i].tile.n;
        int rc = check_range("destination", tile, t->dests[i].addr, t->words, align, err);
        if (rc != 0) {
            return rc;
        }
        if ((seen[tile / 64] >> tile % 64 & 1) != 0) {
            return err_set(err, ERR_SCHEDULE, "tile %u receives the same transfer twice", tile);
        }
        seen[tile / 64] |= 1ull << tile % 64;
    }
    if (t->form == EXCHANGE_PAIRED) {
        return check_paired(t, seen, err);
    }
    if (t->dest_count == 1 && t->dests[0].tile.n == t->source.n) {
        return err_set(err, ERR_SCHEDULE, "tile %u is its own only receiver", t->source.n);
    }
    return 0;
}

int exchange_check(const struct exchange_transfer *t, struct err *err) {
    if ((unsigned)t->form > EXCHANGE_PAIRED) {
        return err_set(err, ERR_SCHEDULE, "unknown form %d", (int)t->form);
    }
    uint32_t limit = t->form == EXCHANGE_PAIRED ? 2 * EXCHANGE_MAX_ITEMS : EXCHANGE_MAX_ITEMS;
    if (t->words == 0 || t->words > limit) {
        return err_set(err, ERR_SCHEDULE, "%u words, between 1 and %u", t->words, limit);
    }
    if (t->dest_count == 0 || t->dest_count > TARGET_TILES) {
        return err_set(
            err, ERR_SCHEDULE, "%u receivers, between 1 and %d", t->dest_count, TARGET_TILES);
    }
    if (t->form == EXCHANGE_POINT && t->dest_count != 1) {
        return err_set(err, ERR_SCHEDULE, "%u receivers in point form, exactly 1", t->dest_count);
    }
    int rc = check_range(
        "source", t->source.n, t->source_addr, t->words, t->form == EXCHANGE_PAIRED ? 8 : 4, err);
    return rc != 0 ? rc : check_dests(t, err);
}

int32_t leg_tail(const struct problem *p, const struct shape *s) {
    bool longer = s->is_paired ? s->items == 1 : p->options->plain && s->items == 52;
    return ROW_TAIL + longer;
}

/* Receiver events of one leg; *ret_time is what the sender's start must compensate. */
static struct leg leg_make(
    const struct problem *p, const struct shape *s, struct physical_tile from,
    const struct exchange_dest *d, int *ret_time) {
    struct physical_tile to = target_physical(d->tile);
    int time = target_route_time(from, to);
    struct leg leg = {
        .lane = p->lane_of[d->tile.n],
        .direction = (uint8_t)target_route_direction(from, to),
        .addr = d->addr,
        .mux = from.n,
    };
    int to_memory = target_arrival_delay(to);
    int select = 1 + time;
    if (s->is_paired) {
        int other = target_route_time(from, target_partner(to));
        leg.is_late = other < time;
        struct physical_tile early = leg.is_late ? target_partner(to) : to;
        leg.mux = from.n ^ (early.n & 2u);
        select = time > other ? time : other;
        to_memory += 1; /* the pair waits for its late lane */
    }
    leg.arrival = (int16_t)(select + to_memory);
    leg.select = (int16_t)(leg.is_late ? leg.arrival - FORMAT_LEAD : select);
    *ret_time = time;
    return leg;
}

/* A tile that receives its own items must not write a control on the first two events of its send
 * (2.5), and in a loopback the distance is fixed, so no offset cures it. The idle selection is put
 * off instead, until after those events; the tile keeps its own bus silent for as long. */
static uint8_t hold_of(const struct shape *s, const struct leg *g, int start) {
    int idle = g->select + s->items - start;
    return (uint8_t)(g->lane == s->lane && !g->is_late && (idle == 0 || idle == 1) ? 2 - idle : 0);
}

static void shape_elements(const struct problem *p, struct shape *s, struct leg *legs) {
    for (uint32_t k = 0; k < s->piece_count; k++) {
        const struct exchange_transfer *t = &p->transfers[p->pieces[s->first_piece + k].transfer];
        s->elements |= element_mask(t->source_addr, 4 * t->words);
        for (uint32_t i = 0; i < t->dest_count; i++) {
            legs[i].elements |= element_mask(t->dests[i].addr, 4 * t->words);
        }
    }
}

static void shape_make(struct problem *p, uint32_t index, struct leg *legs) {
    struct shape *s = &p->shapes[index];
    const struct exchange_transfer *t = &p->transfers[p->pieces[s->first_piece].transfer];
    struct physical_tile from = target_physical(t->source);
    s->is_paired = s->form == EXCHANGE_PAIRED;
    s->lane = p->lane_of[t->source.n];
    s->partner = s->is_paired ? p->lane_of[t->source.n ^ 1] : s->lane;
    s->leg_count = t->dest_count;
    int least = 0;
    unsigned directions = 0;
    bool own_pair = false;
    for (uint32_t i = 0; i < t->dest_count; i++) {
        int time = 0;
        legs[i] = leg_make(p, s, from, &t->dests[i], &time);
        least = time < least ? time : least;
        directions |= legs[i].direction;
        own_pair |= (t->dests[i].tile.n ^ t->source.n) <= 1;
    }
    int start = s->form == EXCHANGE_POINT
                    ? 112 - target_route_time(from, target_physical(t->dests[0].tile))
                    : -least;
    for (uint32_t i = 0; i < t->dest_count; i++) {
        legs[i].select = (int16_t)(legs[i].select + start);
        legs[i].arrival = (int16_t)(legs[i].arrival + start);
        legs[i].hold = hold_of(s, &legs[i], start);
        s->hold = legs[i].hold > s->hold ? legs[i].hold : s->hold;
    }
    bool several = t->dest_count > (s->is_paired ? 2u : 1u) || (s->is_paired && own_pair);
    s->sctl = (uint8_t)((several ? 3u : directions) | (s->is_paired ? 4u : 0u));
    shape_elements(p, s, legs);
    s->send_start = (int16_t)start;
    s->send_length = start + s->items > SEND_LEAST ? start + s->items : SEND_LEAST;
}

void problem_shapes(struct problem *p) {
    uint32_t leg_count = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        p->shapes[i].first_leg = leg_count;
        shape_make(p, i, &p->legs[leg_count]);
        leg_count += p->shapes[i].leg_count;
    }
}
