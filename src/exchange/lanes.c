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
    if (high == 0 || l->controls.data[high - 1].event < event) {
        return high;
    }
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
    if (high == 0 || l->sends.data[high - 1].end <= event) {
        return high;
    }
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

/* The multiplexer stands on this source up to the very event. */
static bool keeps_mux(const struct problem *p, const struct lane *l, uint32_t mux, int32_t select) {
    return !p->options->plain && l->idle_event == select && l->idle_kind == CONTROL_MUX &&
           l->mux == mux;
}

/* Address of a piece at receiver `leg` of its stream. */
static uint32_t piece_addr(const struct problem *p, const struct piece *x, uint32_t leg) {
    return p->transfers[x->transfer].dests[leg].addr;
}

static uint32_t piece_bytes(const struct problem *p, const struct piece *x) {
    return 4u * p->transfers[x->transfer].words;
}

/* Whether a piece but the first needs its pointer written. */
static bool moves_pointer(const struct problem *p, const struct piece *x, uint32_t leg) {
    return piece_addr(p, &x[-1], leg) + piece_bytes(p, &x[-1]) != piece_addr(p, x, leg);
}

/* Pointers between pieces come later than all controls here but those of own sends. */
static bool pieces_fit(
    const struct problem *p, const struct lane *l, const struct shape *s, uint32_t leg,
    int32_t arrival) {
    if (s->piece_count == 1) {
        return true;
    }
    size_t i = send_after(l, arrival - 2);
    if (i == l->sends.len || l->sends.data[i].start > arrival + s->items) {
        return true;
    }
    const struct piece *x = &p->pieces[s->first_piece];
    for (uint32_t k = 1; k < s->piece_count; k++) {
        if (moves_pointer(p, &x[k], leg) && meets_send_start(l, arrival + x[k].at)) {
            return false;
        }
    }
    return true;
}

static bool leg_controls_fit(
    const struct problem *p, const struct lane *l, const struct shape *s, uint32_t leg, int32_t o) {
    const struct leg *g = &p->legs[s->first_leg + leg];
    int32_t select = o + g->select;
    int32_t arrival = o + g->arrival;
    bool plain = !s->is_paired;
    enum control_kind mux = plain ? CONTROL_MUX : CONTROL_PAIR;
    if (!g->is_late &&
        ((!(plain && keeps_mux(p, l, g->mux, select)) && !control_fits(l, select, mux, plain)) ||
         !control_fits(l, select + s->items + g->hold, mux, plain))) {
        return false;
    }
    if (!keeps_pointer(l, g, s->is_paired) && !control_fits(l, arrival, CONTROL_POINTER, plain)) {
        return false;
    }
    if (!pieces_fit(p, l, s, leg, arrival)) {
        return false;
    }
    int32_t on = arrival - FORMAT_LEAD;
    return plain ||
           ((keeps_format(l, on, g->direction) || control_fits(l, on, CONTROL_FORMAT, false)) &&
            control_fits(l, on + s->items, CONTROL_FORMAT, false));
}

static int32_t search_leg(const struct problem *p, const struct shape *s, uint32_t leg, int32_t o) {
    const struct leg *g = &p->legs[s->first_leg + leg];
    const struct lane *l = &p->lanes[g->lane];
    int32_t least = l->mux_end - g->select;
    int32_t drained = l->payload_end - g->arrival;
    least = drained > least ? drained : least;
    if (s->is_paired) {
        drained = l->plain_end - (g->arrival - FORMAT_LEAD);
        least = drained > least ? drained : least;
    }
    o = o > least ? o : least;
    while (!leg_controls_fit(p, l, s, leg, o)) {
        o++;
    }
    return o;
}

/* No control on the first two events of what the source sends anew (2.5). */
static bool
starts_fit(const struct problem *p, const struct lane *l, const struct shape *s, int32_t start) {
    const struct piece *x = &p->pieces[s->first_piece];
    for (uint32_t k = 0; k < (s->has_restart ? s->piece_count : 1); k++) {
        size_t c = x[k].is_restart ? control_at(l, start + x[k].at) : l->controls.len;
        if (c < l->controls.len && l->controls.data[c].event <= start + x[k].at + 1) {
            return false;
        }
    }
    return true;
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
        if (starts_fit(p, l, s, start)) {
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
            o = search_leg(p, s, i, o);
        }
        if (o == before) {
            return o;
        }
    }
}

/* First receive that ends after an event; they are in order of time. */
static size_t receive_after(const struct lane *l, int32_t event) {
    size_t low = 0;
    size_t high = l->receives.len;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (l->receives.data[mid].end <= event) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low;
}

/* How much later the source must begin so as not to read what arrives. */
static int32_t raise_send(const struct problem *p, const struct shape *s, int32_t offset) {
    const struct lane *l = &p->lanes[s->lane];
    int32_t end = offset + s->send_length;
    int32_t raise = 0;
    for (size_t k = receive_after(l, offset + s->send_start);
         k < l->receives.len && l->receives.data[k].start < end; k++) {
        const struct receive_span *r = &l->receives.data[k];
        if ((r->elements & s->elements) == 0) {
            continue;
        }
        for (uint32_t i = 0; i < s->piece_count; i++) {
            const struct piece *x = &p->pieces[s->first_piece + i];
            const struct exchange_transfer *t = &p->transfers[x->transfer];
            int32_t start = offset + s->send_start + x->at;
            int32_t last = i + 1 == s->piece_count ? end : start + x->items;
            if (r->start < last && r->end - start > raise &&
                (s->piece_count == 1 ||
                 (r->elements & element_mask(t->source_addr, 4 * t->words)) != 0)) {
                raise = r->end - start;
            }
        }
    }
    return raise;
}

/* How much later the items must come at one receiver so as not to meet what it sends. */
static int32_t
raise_leg(const struct problem *p, const struct shape *s, uint32_t leg, int32_t offset) {
    const struct leg *g = &p->legs[s->first_leg + leg];
    const struct lane *l = &p->lanes[g->lane];
    int32_t tail = leg_tail(p, s);
    int32_t end = offset + g->arrival + s->items + tail;
    int32_t raise = 0;
    /* a horizon reaches at most SEND_LEAST beyond the end of its send */
    for (size_t k = send_after(l, offset + g->arrival - SEND_LEAST);
         k < l->sends.len && l->sends.data[k].start < end; k++) {
        const struct send_piece *other = &l->sends.data[k];
        if ((other->elements & g->elements) == 0) {
            continue;
        }
        for (uint32_t i = 0; i < s->piece_count; i++) {
            const struct piece *x = &p->pieces[s->first_piece + i];
            int32_t start = offset + g->arrival + x->at;
            if (other->start < start + x->items + tail && other->horizon - start > raise &&
                (s->piece_count == 1 ||
                 (other->elements & element_mask(piece_addr(p, x, leg), piece_bytes(p, x))) != 0)) {
                raise = other->horizon - start;
            }
        }
    }
    return raise;
}

int32_t lane_search_elements(const struct problem *p, uint32_t t, int32_t offset) {
    const struct shape *s = &p->shapes[t];
    int32_t raise = raise_send(p, s, offset);
    for (uint32_t i = 0; i < s->leg_count; i++) {
        int32_t own = raise_leg(p, s, i, offset);
        raise = own > raise ? own : raise;
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

static void drop_control(struct lane *l, struct control *c) {
    size_t i = (size_t)(c - l->controls.data);
    memmove(c, c + 1, (l->controls.len - 1 - i) * sizeof *c);
    l->controls.len--;
}

static void insert_mux(
    struct problem *p, struct lane *l, const struct leg *g, int32_t select, int32_t end,
    bool is_paired) {
    enum control_kind kind = is_paired ? CONTROL_PAIR : CONTROL_MUX;
    struct control *idle =
        l->idle_event == select && l->idle_kind == kind ? find_control(l, select, kind) : NULL;
    if (idle != NULL && !is_paired && keeps_mux(p, l, g->mux, select)) {
        drop_control(l, idle);
    } else if (idle != NULL) {
        idle->value = g->mux;
    } else {
        add_control(p, l, select, kind, g->mux, !is_paired);
    }
    l->mux = g->mux;
    add_control(p, l, end, kind, TARGET_MUX_IDLE, !is_paired);
    l->idle_event = end;
    l->idle_kind = (uint8_t)kind;
}

static void
insert_format(struct problem *p, struct lane *l, const struct leg *g, int32_t on, int32_t off) {
    if (keeps_format(l, on, g->direction)) {
        drop_control(l, find_control(l, on, CONTROL_FORMAT));
    } else {
        add_control(p, l, on, CONTROL_FORMAT, g->direction, false);
    }
    add_control(p, l, off, CONTROL_FORMAT, 0, false);
    l->format_end = off;
    l->format = g->direction;
}

/* Pointers and receives of all pieces; neighbours in the same elements are one receive. */
static void insert_pieces(
    struct problem *p, struct lane *l, const struct shape *s, uint32_t leg, int32_t arrival) {
    int32_t tail = leg_tail(p, s);
    const struct piece *x = &p->pieces[s->first_piece];
    for (uint32_t k = 0; k < s->piece_count; k++) {
        uint32_t addr = piece_addr(p, &x[k], leg);
        int32_t at = arrival + x[k].at;
        bool is_moved = k == 0 ? !keeps_pointer(l, &p->legs[s->first_leg + leg], s->is_paired)
                               : moves_pointer(p, &x[k], leg);
        if (is_moved) {
            add_control(p, l, at, CONTROL_POINTER, (addr - l->incoming_base) / 4, !s->is_paired);
        }
        uint32_t elements = element_mask(addr, piece_bytes(p, &x[k]));
        struct receive_span *last = k > 0 ? &l->receives.data[l->receives.len - 1] : NULL;
        if (last != NULL && last->elements == elements) {
            last->end = at + x[k].items + tail;
        } else {
            vec_push(
                p->a, &l->receives, (struct receive_span){at, at + x[k].items + tail, elements});
        }
    }
}

static void insert_leg(struct problem *p, const struct shape *s, uint32_t leg, int32_t offset) {
    const struct leg *g = &p->legs[s->first_leg + leg];
    struct lane *l = &p->lanes[g->lane];
    int32_t select = offset + g->select;
    int32_t arrival = offset + g->arrival;
    if (!g->is_late) {
        insert_mux(p, l, g, select, select + s->items + g->hold, s->is_paired);
    }
    if (s->is_paired) {
        insert_format(p, l, g, arrival - FORMAT_LEAD, arrival - FORMAT_LEAD + s->items);
    }
    insert_pieces(p, l, s, leg, arrival);
    l->mux_end = select + s->items + g->hold;
    l->payload_end = arrival + s->items;
    if (!s->is_paired) {
        l->plain_end = l->payload_end + g->hold; /* the pair's write must not meet the idle one */
    }
    const struct piece *last = &p->pieces[s->first_piece + s->piece_count - 1];
    l->next_addr = s->is_paired ? 0 : piece_addr(p, last, leg) + piece_bytes(p, last);
    int32_t horizon = l->payload_end + leg_tail(p, s);
    l->horizon = horizon > l->horizon ? horizon : l->horizon;
    l->receive_left -= (uint32_t)s->items;
}

/* Pieces first .. last - 1 lie in one range of the source's memory. */
static struct send_piece make_send(
    const struct problem *p, const struct shape *s, uint32_t first, uint32_t last, int32_t offset) {
    const struct piece *x = &p->pieces[s->first_piece];
    const struct exchange_transfer *t = &p->transfers[x[first].transfer];
    bool is_end = last == s->piece_count;
    int32_t start = offset + s->send_start + x[first].at;
    int32_t end = offset + s->send_start + x[last - 1].at + x[last - 1].items;
    return (struct send_piece){
        .start = start,
        .end = end,
        .horizon = is_end ? offset + s->send_length : end,
        .item_addr = t->source_addr / (s->is_paired ? 8 : 4),
        .elements = element_mask(t->source_addr, (uint32_t)(end - start) * (s->is_paired ? 8 : 4)),
        .sctl = s->sctl,
        .hold = is_end ? s->hold : 0,
    };
}

static void insert_send(struct problem *p, const struct shape *s, int32_t offset) {
    struct lane *l = &p->lanes[s->lane];
    struct send_piece piece = {0};
    for (uint32_t k = 0; k < s->piece_count;) {
        uint32_t next = k + 1;
        while (next < s->piece_count && !p->pieces[s->first_piece + next].is_restart) {
            next++;
        }
        piece = make_send(p, s, k, next, offset);
        size_t i = send_after(l, piece.start);
        vec_push(p->a, &l->sends, piece);
        memmove(&l->sends.data[i + 1], &l->sends.data[i], (l->sends.len - 1 - i) * sizeof piece);
        l->sends.data[i] = piece;
        k = next;
    }
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
    insert_send(p, s, offset);
    for (uint32_t i = 0; i < s->leg_count; i++) {
        insert_leg(p, s, i, offset);
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
        l->next_addr = l->mux = 0;
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
