/* Lanes: what is placed on a tile, the search for the earliest offset, and the insertion.
 *
 * The search is a fixpoint (5.2): every constraint, asked alone, can only raise the offset, so
 * asking all of them until none moves gives the least offset that satisfies all. It ends because
 * beyond the last event of every lane involved nothing is in the way; the one thing that a shift
 * cannot cure, a tile that meets its own send start in a loopback, is ruled out by leg.hold.
 */
#include "exchange/exchange_internal.h"

#include <string.h>

#define HOLD_MOST 2

/* First control at or after an event. Most questions are about the end of the lane. */
static size_t control_at(const struct lane *l, int32_t event) {
    size_t low = 0;
    size_t high = l->controls.len;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (l->controls.data[mid].event < event) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low;
}

/* First send that ends after an event. */
static size_t send_after(const struct lane *l, int32_t event) {
    size_t low = 0;
    size_t high = l->sends.len;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (l->sends.data[mid].end <= event) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low;
}

/* A control may fall neither on the first two events of a send (2.5) nor inside a base write. */
static bool meets_send_start(const struct lane *l, int32_t event) {
    size_t i = send_after(l, event - 2);
    for (; i < l->sends.len && l->sends.data[i].start <= event; i++) {
        if (l->sends.data[i].start >= event - 1) {
            return true;
        }
    }
    for (i = l->switches.len; i-- > 0 && l->switches.data[i].end >= event;) {
        if (l->switches.data[i].start < event) {
            return true;
        }
    }
    return false;
}

static bool
control_fits(const struct lane *l, int32_t event, enum control_kind kind, bool can_merge) {
    if (meets_send_start(l, event)) {
        return false;
    }
    size_t i = control_at(l, event);
    for (; i < l->controls.len && l->controls.data[i].event == event; i++) {
        const struct control *c = &l->controls.data[i];
        if (event == l->idle_event && c->kind == kind && c->kind == l->idle_kind) {
            continue; /* idle selection, replaced by the new source */
        }
        if (!can_merge || !c->can_merge || c->kind == kind) {
            return false;
        }
    }
    return true;
}

static bool keeps_pointer(const struct lane *l, const struct leg *g, bool is_paired) {
    return !is_paired && l->next_addr != 0 && l->next_addr == g->addr;
}

static bool keeps_format(const struct lane *l, int32_t on, uint8_t direction) {
    return l->format_end == on && l->format == direction;
}

static bool
leg_controls_fit(const struct lane *l, const struct shape *s, const struct leg *g, int32_t o) {
    int32_t select = o + g->select;
    int32_t arrival = o + g->arrival;
    bool plain = !s->is_paired;
    enum control_kind mux = plain ? CONTROL_MUX : CONTROL_PAIR;
    if (!g->is_late && (!control_fits(l, select, mux, plain) ||
                        !control_fits(l, select + s->items + g->hold, mux, plain))) {
        return false;
    }
    if (!keeps_pointer(l, g, s->is_paired) && !control_fits(l, arrival, CONTROL_POINTER, plain)) {
        return false;
    }
    int32_t on = arrival - FORMAT_LEAD;
    return plain ||
           ((keeps_format(l, on, g->direction) || control_fits(l, on, CONTROL_FORMAT, false)) &&
            control_fits(l, on + s->items, CONTROL_FORMAT, false));
}

static int32_t
search_leg(const struct problem *p, const struct shape *s, const struct leg *g, int32_t o) {
    const struct lane *l = &p->lanes[g->lane];
    int32_t least = l->mux_end - g->select;
    int32_t drained = l->payload_end - g->arrival;
    least = drained > least ? drained : least;
    if (s->is_paired) {
        drained = l->plain_end - (g->arrival - FORMAT_LEAD);
        least = drained > least ? drained : least;
    }
    o = o > least ? o : least;
    while (!leg_controls_fit(l, s, g, o)) {
        o++;
    }
    return o;
}

static int32_t search_sender(const struct problem *p, const struct shape *s, int32_t o) {
    const struct lane *l = &p->lanes[s->lane];
    int32_t least = l->loan_end - s->send_start;
    if (l->switches.len > 0) {
        int32_t end = l->switches.data[l->switches.len - 1].end - s->send_start;
        least = end > least ? end : least;
    }
    if (s->is_paired) {
        const struct lane *partner = &p->lanes[s->partner];
        least = partner->send_end > least ? partner->send_end : least;
        least = partner->loan_end > least ? partner->loan_end : least;
    }
    o = o > least ? o : least;
    size_t i = send_after(l, o + s->send_start - HOLD_MOST);
    for (;;) {
        int32_t start = o + s->send_start;
        while (i < l->sends.len && l->sends.data[i].end + l->sends.data[i].hold <= start) {
            i++;
        }
        if (i < l->sends.len && l->sends.data[i].start < start + s->items + s->hold) {
            o = l->sends.data[i].end + l->sends.data[i].hold - s->send_start;
            continue;
        }
        size_t c = control_at(l, start);
        if (c == l->controls.len || l->controls.data[c].event > start + 1) {
            return o;
        }
        o++;
    }
}

int32_t lane_search(const struct problem *p, uint32_t t, int32_t offset) {
    const struct shape *s = &p->shapes[t];
    int32_t o = offset;
    for (;;) {
        int32_t before = o;
        o = search_sender(p, s, o);
        for (uint32_t i = 0; i < s->leg_count; i++) {
            o = search_leg(p, s, &p->legs[s->first_leg + i], o);
        }
        if (o == before) {
            return o;
        }
    }
}

int32_t lane_search_elements(const struct problem *p, uint32_t t, int32_t offset) {
    const struct shape *s = &p->shapes[t];
    const struct lane *l = &p->lanes[s->lane];
    int32_t start = offset + s->send_start;
    int32_t end = offset + s->send_length;
    int32_t raise = 0;
    size_t low = 0;
    size_t high = l->receives.len;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (l->receives.data[mid].end <= start) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    for (; low < l->receives.len && l->receives.data[low].start < end; low++) {
        const struct receive_span *r = &l->receives.data[low];
        if ((r->elements & s->elements) != 0 && r->end - start > raise) {
            raise = r->end - start;
        }
    }
    int32_t tail = leg_tail(p, s);
    for (uint32_t i = 0; i < s->leg_count; i++) {
        const struct leg *g = &p->legs[s->first_leg + i];
        l = &p->lanes[g->lane];
        start = offset + g->arrival;
        end = start + s->items + tail;
        uint32_t elements = 0;
        /* a horizon reaches at most SEND_LEAST beyond the end of its send */
        for (size_t k = send_after(l, start - SEND_LEAST);
             k < l->sends.len && l->sends.data[k].start < end; k++) {
            const struct send_piece *other = &l->sends.data[k];
            if (elements == 0) {
                elements = element_mask(g->addr, 4u * p->transfers[t].words);
            }
            if ((other->elements & elements) != 0 && other->horizon - start > raise) {
                raise = other->horizon - start;
            }
        }
    }
    return offset + raise;
}

static void add_control(
    struct problem *p, struct lane *l, int32_t event, enum control_kind kind, uint32_t value,
    bool can_merge) {
    size_t i = control_at(l, event);
    vec_push(p->a, &l->controls, (struct control){0});
    memmove(
        &l->controls.data[i + 1], &l->controls.data[i],
        (l->controls.len - 1 - i) * sizeof *l->controls.data);
    l->controls.data[i] = (struct control){event, value, (uint8_t)kind, can_merge};
}

static struct control *find_control(struct lane *l, int32_t event, enum control_kind kind) {
    for (size_t i = control_at(l, event); i < l->controls.len && l->controls.data[i].event == event;
         i++) {
        if (l->controls.data[i].kind == kind) {
            return &l->controls.data[i];
        }
    }
    return NULL;
}

static void insert_mux(
    struct problem *p, struct lane *l, const struct leg *g, int32_t select, int32_t end,
    bool is_paired) {
    enum control_kind kind = is_paired ? CONTROL_PAIR : CONTROL_MUX;
    struct control *idle =
        l->idle_event == select && l->idle_kind == kind ? find_control(l, select, kind) : NULL;
    if (idle != NULL) {
        idle->value = g->mux;
    } else {
        add_control(p, l, select, kind, g->mux, !is_paired);
    }
    add_control(p, l, end, kind, TARGET_MUX_IDLE, !is_paired);
    l->idle_event = end;
    l->idle_kind = (uint8_t)kind;
}

static void
insert_format(struct problem *p, struct lane *l, const struct leg *g, int32_t on, int32_t off) {
    if (keeps_format(l, on, g->direction)) {
        struct control *c = find_control(l, on, CONTROL_FORMAT);
        size_t i = (size_t)(c - l->controls.data);
        memmove(c, c + 1, (l->controls.len - 1 - i) * sizeof *c);
        l->controls.len--;
    } else {
        add_control(p, l, on, CONTROL_FORMAT, g->direction, false);
    }
    add_control(p, l, off, CONTROL_FORMAT, 0, false);
    l->format_end = off;
    l->format = g->direction;
}

static void insert_leg(struct problem *p, uint32_t t, const struct leg *g, int32_t offset) {
    const struct shape *s = &p->shapes[t];
    struct lane *l = &p->lanes[g->lane];
    int32_t select = offset + g->select;
    int32_t arrival = offset + g->arrival;
    uint32_t bytes = 4u * p->transfers[t].words;
    if (!g->is_late) {
        insert_mux(p, l, g, select, select + s->items + g->hold, s->is_paired);
    }
    if (s->is_paired) {
        insert_format(p, l, g, arrival - FORMAT_LEAD, arrival - FORMAT_LEAD + s->items);
    }
    if (!keeps_pointer(l, g, s->is_paired)) {
        add_control(
            p, l, arrival, CONTROL_POINTER, (g->addr - l->incoming_base) / 4, !s->is_paired);
    }
    l->mux_end = select + s->items + g->hold;
    l->payload_end = arrival + s->items;
    if (!s->is_paired) {
        l->plain_end = l->payload_end + g->hold; /* the pair's write must not meet the idle one */
    }
    l->next_addr = s->is_paired ? 0 : g->addr + bytes;
    int32_t horizon = l->payload_end + leg_tail(p, s);
    vec_push(
        p->a, &l->receives, (struct receive_span){arrival, horizon, element_mask(g->addr, bytes)});
    l->horizon = horizon > l->horizon ? horizon : l->horizon;
    l->receive_left -= (uint32_t)s->items;
}

static void insert_send(struct problem *p, uint32_t t, int32_t offset) {
    const struct shape *s = &p->shapes[t];
    struct lane *l = &p->lanes[s->lane];
    struct send_piece piece = {
        .start = offset + s->send_start,
        .end = offset + s->send_start + s->items,
        .horizon = offset + s->send_length,
        .item_addr = p->transfers[t].source_addr / (s->is_paired ? 8 : 4),
        .elements = s->elements,
        .sctl = s->sctl,
        .hold = s->hold,
    };
    size_t i = send_after(l, piece.start);
    vec_push(p->a, &l->sends, piece);
    memmove(&l->sends.data[i + 1], &l->sends.data[i], (l->sends.len - 1 - i) * sizeof piece);
    l->sends.data[i] = piece;
    l->send_end = piece.end > l->send_end ? piece.end : l->send_end;
    l->horizon = piece.horizon > l->horizon ? piece.horizon : l->horizon;
    l->send_left -= (uint32_t)s->items;
    if (s->is_paired) {
        struct lane *partner = &p->lanes[s->partner];
        partner->loan_end = piece.horizon + s->hold;
        partner->horizon = piece.horizon > partner->horizon ? piece.horizon : partner->horizon;
        partner->send_left -= (uint32_t)s->items;
    }
}

void lane_insert(struct problem *p, uint32_t t, int32_t offset) {
    const struct shape *s = &p->shapes[t];
    insert_send(p, t, offset);
    for (uint32_t i = 0; i < s->leg_count; i++) {
        insert_leg(p, t, &p->legs[s->first_leg + i], offset);
    }
    p->placed[t] = (struct exchange_placed){
        (uint32_t)offset, offset + s->send_start, offset + s->send_start + s->items,
        offset + s->send_length};
}

void lane_switch(struct problem *p, struct exchange_switch *s) {
    struct lane *l = &p->lanes[p->shapes[s->after].lane];
    int32_t start = l->send_end;
    if (l->switches.len > 0 && l->switches.data[l->switches.len - 1].end > start) {
        start = l->switches.data[l->switches.len - 1].end;
    }
    for (size_t i = control_at(l, start + 1);
         i < l->controls.len && l->controls.data[i].event <= start + BASE_WRITE; i++) {
        start = l->controls.data[i].event;
    }
    s->start = start;
    s->end = start + BASE_WRITE;
    vec_push(p->a, &l->switches, (struct base_write){s->start, s->end, s->reg});
    l->horizon = s->end > l->horizon ? s->end : l->horizon;
}

void lanes_reset(struct problem *p) {
    for (uint32_t i = 0; i < p->lane_count; i++) {
        struct lane *l = &p->lanes[i];
        l->sends.len = l->controls.len = l->receives.len = l->switches.len = 0;
        l->loan_end = l->send_end = l->mux_end = l->payload_end = l->plain_end = l->horizon = 0;
        l->idle_event = l->format_end = -1;
        l->next_addr = 0;
        l->send_left = l->receive_left = 0;
        l->changed_at = 0;
    }
    for (uint32_t t = 0; t < p->count; t++) {
        const struct shape *s = &p->shapes[t];
        p->lanes[s->lane].send_left += (uint32_t)s->items;
        if (s->is_paired) {
            p->lanes[s->partner].send_left += (uint32_t)s->items;
        }
        for (uint32_t i = 0; i < s->leg_count; i++) {
            p->lanes[p->legs[s->first_leg + i].lane].receive_left += (uint32_t)s->items;
        }
    }
}
