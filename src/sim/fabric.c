/* Resolves ports: mux selections x sends -> captures -> stored runs (fabric.h).
 *
 * Per receiver: the selections of its multiplexer, own and borrowed from the partner, cut the
 * sends of the selected tiles into captures; captures come in order of arrival because the delay
 * from selection to memory is a constant of the tile. Pointer, base and format changes then cut
 * captures into stores. It ends because every step consumes a selection, a send or items.
 */
#include "sim/fabric.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    MUX_ORDINARY,
    MUX_EARLY, /* pair selection written by this tile */
    MUX_LATE,  /* pair selection written by the partner, one event later */
    ENTRY_EVENT = -(1 << 30),
    NEVER = INT32_MAX,
    LOAD_DELAY = 7, /* an item may be read that many events after its arrival */
    TYPE_EXCONF = 7,
    TYPE_EXERR = 13,
};

struct resolve {
    const struct row_trace *const *traces;
    const struct row_trace *own; /* NULL: the tile executes nothing in this phase */
    uint16_t tile;
    struct fabric_port *port;
    /* Cursor over the own controls while stores are made. */
    uint32_t control;
    uint32_t format;     /* first control that may be a format younger than two events */
    uint32_t old_format; /* the format in force before it */
    bool has_format;
    bool has_pointer;
    uint32_t pointer;
    uint32_t base;
    uint32_t send; /* first own send that has not ended */
    int64_t last_end;
};

void fabric_port_done(struct fabric_port *p) {
    free(p->captures.data);
    free(p->mux.data);
    free(p->stores.data);
    free(p->faults.data);
    *p = (struct fabric_port){.last_mux = TARGET_MUX_IDLE};
}

void fabric_fault(
    struct fabric_port *p, int code, int32_t event, uint32_t addr, const char *format, ...) {
    for (uint32_t i = 0; i < p->faults.len; i++) {
        if (p->faults.data[i].code == code) {
            return;
        }
    }
    struct row_fault f = {.code = code, .event = event, .addr = addr};
    va_list args;
    va_start(args, format);
    vsnprintf(f.text, sizeof f.text, format, args);
    va_end(args);
    if (!row_list_push(&p->faults, f)) {
        p->is_out_of_memory = true;
    }
}

/* ---- selections ---------------------------------------------------------------------------- */

static void add_mux(struct resolve *x, int32_t event, unsigned kind, uint32_t value) {
    if (!row_list_push(&x->port->mux, (struct row_control){event, value, (uint8_t)kind})) {
        x->port->is_out_of_memory = true;
    }
}

/* A pair selection names the writer's lane; the stream's sender follows from it. */
static uint32_t pair_sender(uint32_t value, uint16_t writer) {
    return value == TARGET_MUX_IDLE ? value : value ^ (writer & 2u);
}

static const struct row_control *next_of(const struct row_trace *t, uint32_t *i, bool ordinary) {
    for (; t != NULL && *i < t->controls.len; (*i)++) {
        const struct row_control *c = &t->controls.data[*i];
        if (c->kind == ROW_MUX_PAIR || (ordinary && c->kind == ROW_MUX)) {
            return c;
        }
    }
    return NULL;
}

static void check_writer(struct resolve *x, const struct row_control *c) {
    if (c->kind != ROW_MUX_PAIR || c->value == TARGET_MUX_IDLE) {
        return;
    }
    struct physical_tile s = {(uint16_t)pair_sender(c->value, x->tile)};
    struct physical_tile d = {x->tile};
    if (target_route_time(s, d) > target_route_time(s, target_partner(d))) {
        fabric_fault(
            x->port, ROW_ERROR_TYPE + TYPE_EXCONF, c->event, 0,
            "pair source %u written by the late half", s.n);
    }
}

/* Merges the tile's own selections with its partner's pair selections, which act here one event
 * after they are written. */
static void collect_mux(struct resolve *x) {
    const struct row_trace *partner = x->traces[x->tile ^ 2];
    uint32_t i = 0;
    uint32_t j = 0;
    if (x->own != NULL && x->own->mux < TARGET_TILES) {
        add_mux(x, ENTRY_EVENT, MUX_ORDINARY, x->own->mux);
    }
    for (;;) {
        const struct row_control *own = next_of(x->own, &i, true);
        const struct row_control *other = next_of(partner, &j, false);
        if (own == NULL && other == NULL) {
            break;
        }
        if (own != NULL && other != NULL && own->kind == ROW_MUX_PAIR &&
            own->event == other->event) {
            fabric_fault(
                x->port, ROW_ERROR_TYPE + TYPE_EXCONF, own->event, 0,
                "both halves write the pair source at once");
        }
        if (other != NULL && (own == NULL || other->event + 1 <= own->event)) {
            add_mux(x, other->event + 1, MUX_LATE, pair_sender(other->value, x->tile ^ 2));
            j++;
            continue;
        }
        check_writer(x, own);
        add_mux(
            x, own->event, own->kind == ROW_MUX ? MUX_ORDINARY : MUX_EARLY,
            own->kind == ROW_MUX ? own->value : pair_sender(own->value, x->tile));
        i++;
    }
}

/* ---- captures ------------------------------------------------------------------------------ */

/* First send that ends after event `after`. */
static uint32_t find_send(const struct row_trace *t, int64_t after) {
    uint32_t low = 0;
    uint32_t high = t->sends.len;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        const struct row_send *s = &t->sends.data[mid];
        if ((int64_t)s->start + s->count > after) {
            high = mid;
        } else {
            low = mid + 1;
        }
    }
    return low;
}

/* The bus of an ordinary source carries the other half of its partner's wide items: nobody may
 * listen to it alone. */
static void check_lent_bus(struct resolve *x, uint16_t source, int64_t x0, int64_t x1) {
    const struct row_trace *t = x->traces[source ^ 2];
    if (t == NULL || !t->has_wide) {
        return;
    }
    struct physical_tile s = {source ^ 2};
    struct physical_tile d = {x->tile};
    int64_t shift = 1 + target_route_time(s, d);
    unsigned direction = (unsigned)target_route_direction(s, d);
    for (uint32_t i = find_send(t, x0 - shift); i < t->sends.len; i++) {
        const struct row_send *send = &t->sends.data[i];
        if (send->start >= x1 - shift) {
            break;
        }
        if ((send->sctl & 4) != 0 && (send->sctl & direction) != 0) {
            fabric_fault(
                x->port, ROW_ERROR_CONF, (int32_t)(send->start + shift), 0,
                "multiplexer on tile %u whose bus is lent to tile %u", source, s.n);
            break;
        }
    }
}

/* Takes what `source` sends while it is selected over [x0, x1). */
static void capture(struct resolve *x, const struct row_control *c, int64_t x1) {
    struct physical_tile s = {(uint16_t)c->value};
    struct physical_tile d = {x->tile};
    const struct row_trace *t = x->traces[s.n];
    if (c->kind == MUX_ORDINARY) {
        check_lent_bus(x, s.n, c->event, x1);
    }
    if (t == NULL) {
        return;
    }
    int64_t shift = 1 + target_route_time(s, d);
    int64_t delay = shift + target_arrival_delay(d) + (c->kind == MUX_EARLY);
    unsigned direction = (unsigned)target_route_direction(s, d);
    bool wants_wide = c->kind != MUX_ORDINARY;
    int64_t low = c->event - shift;
    int64_t high = x1 - shift;
    for (uint32_t i = find_send(t, low); i < t->sends.len; i++) {
        const struct row_send *send = &t->sends.data[i];
        if (send->start >= high) {
            break;
        }
        bool is_wide = (send->sctl & 4) != 0;
        if ((send->sctl & direction) == 0) {
            continue;
        }
        int64_t from = send->start > low ? send->start : low;
        int64_t to = (int64_t)send->start + send->count;
        to = to < high ? to : high;
        if (is_wide != wants_wide) {
            fabric_fault(
                x->port, ROW_ERROR_CONF, (int32_t)(from + delay), 0,
                "%d-bit items of tile %u meet a %d-bit selection", is_wide ? 64 : 32, s.n,
                wants_wide ? 64 : 32);
            continue;
        }
        struct fabric_capture got = {
            .arrival = (int32_t)(from + delay),
            .count = (uint32_t)(to - from),
            .source = s.n,
            .send = i,
            .offset = (uint32_t)(from - send->start),
            .is_wide = is_wide,
            .is_early = c->kind == MUX_EARLY};
        if (!row_list_push(&x->port->captures, got)) {
            x->port->is_out_of_memory = true;
        }
    }
}

static void collect_captures(struct resolve *x) {
    const struct row_control *mux = x->port->mux.data;
    uint32_t n = x->port->mux.len;
    for (uint32_t i = 0; i < n; i++) {
        int64_t until = i + 1 < n ? mux[i + 1].event : NEVER;
        if (mux[i].value < TARGET_TILES && until > mux[i].event) {
            capture(x, &mux[i], until);
        }
    }
    x->port->last_mux = n > 0 ? mux[n - 1].value : TARGET_MUX_IDLE;
}

/* ---- stores -------------------------------------------------------------------------------- */

/* Applies pointer and base writes up to an event; returns the event of the next one. */
static int32_t apply_controls(struct resolve *x, int32_t event) {
    if (x->own == NULL) {
        return NEVER;
    }
    for (; x->control < x->own->controls.len; x->control++) {
        const struct row_control *c = &x->own->controls.data[x->control];
        if (c->kind != ROW_POINTER && c->kind != ROW_BASE) {
            continue;
        }
        if (c->event > event) {
            return c->event;
        }
        if (c->kind == ROW_POINTER) {
            x->pointer = c->value;
            x->has_pointer = true;
        } else {
            x->base = c->value;
        }
    }
    return NEVER;
}

/* Format in force two events before `event`, whether any format is on from then to `event`, and
 * the next event at which one of the two answers changes. */
static void
formats_at(struct resolve *x, int32_t event, uint32_t *ret_old, bool *ret_any, int32_t *ret_next) {
    const struct row_trace *t = x->own;
    *ret_next = NEVER;
    bool any = false;
    for (uint32_t i = x->format; i < t->controls.len; i++) {
        const struct row_control *c = &t->controls.data[i];
        if (c->kind != ROW_FORMAT) {
            continue;
        }
        if (c->event <= event - 2) {
            x->old_format = c->value;
            x->format = i + 1;
        } else if (c->event <= event) {
            any |= c->value != 0;
            *ret_next = c->event + 2 < *ret_next ? c->event + 2 : *ret_next;
        } else {
            *ret_next = c->event < *ret_next ? c->event : *ret_next;
            break;
        }
    }
    *ret_old = x->old_format;
    *ret_any = any || x->old_format != 0;
}

/* A send of the tile in the very event of a store, from the same unit of memory. */
static void check_send_clash(struct resolve *x, const struct fabric_store *s, unsigned bytes) {
    const struct row_trace *t = x->own;
    int64_t end = (int64_t)s->arrival + s->count;
    while (x->send < t->sends.len &&
           (int64_t)t->sends.data[x->send].start + t->sends.data[x->send].count <= s->arrival) {
        x->send++;
    }
    for (uint32_t i = x->send; i < t->sends.len && t->sends.data[i].start < end; i++) {
        const struct row_send *send = &t->sends.data[i];
        unsigned send_bytes = (send->sctl & 4) != 0 ? 8 : 4;
        int64_t from = send->start > s->arrival ? send->start : s->arrival;
        int64_t to = (int64_t)send->start + send->count;
        to = to < end ? to : end;
        if (fabric_unit(s->addr + (uint32_t)(to - 1 - s->arrival) * bytes) <
                fabric_unit(send->addr + (uint32_t)(from - send->start) * send_bytes) ||
            fabric_unit(s->addr + (uint32_t)(from - s->arrival) * bytes) >
                fabric_unit(send->addr + (uint32_t)(to - 1 - send->start) * send_bytes)) {
            continue;
        }
        for (int64_t e = from; e < to; e++) {
            uint32_t addr = s->addr + (uint32_t)(e - s->arrival) * bytes;
            if (fabric_unit(addr) ==
                fabric_unit(send->addr + (uint32_t)(e - send->start) * send_bytes)) {
                fabric_fault(
                    x->port, ROW_ERROR_CLASH_INSTR, (int32_t)e, addr,
                    "item arrives in the memory element of a send");
                return;
            }
        }
    }
}

static void check_store(struct resolve *x, const struct fabric_store *s, unsigned bytes) {
    int64_t last = (int64_t)s->arrival + s->count - 1;
    if (x->own == NULL) {
        fabric_fault(
            x->port, ROW_ERROR_TYPE + TYPE_EXERR, s->arrival, s->addr,
            "item of tile %u arrives at a tile outside the phase", s->source);
        return;
    }
    if (last + LOAD_DELAY > x->own->visible) {
        int64_t first = (int64_t)x->own->visible - LOAD_DELAY + 1;
        first = first > s->arrival ? first : s->arrival;
        fabric_fault(
            x->port, ROW_ERROR_TYPE + TYPE_EXERR, (int32_t)first, s->addr,
            "item of tile %u arrives after the row's horizon %d", s->source, x->own->visible - 1);
    }
    if (x->own->has_workers) {
        fabric_fault(
            x->port, ROW_ERROR_WORKERS, s->arrival, s->addr,
            "item of tile %u arrives while a worker is active", s->source);
    }
    unsigned unit = fabric_unit(s->addr);
    unsigned last_unit = fabric_unit(s->addr + s->count * bytes - 1);
    for (; unit <= last_unit && unit < 64; unit++) {
        if ((x->own->code_units >> unit & 1) != 0) {
            fabric_fault(
                x->port, ROW_ERROR_CLASH_IFETCH, s->arrival, s->addr,
                "item arrives in the memory element of the row");
        }
    }
    check_send_clash(x, s, bytes);
}

/* Stores `count` items of a capture at the cursor, as far as they lie in memory. */
static void
store(struct resolve *x, const struct fabric_capture *c, uint32_t done, uint32_t count) {
    unsigned bytes = c->is_wide ? 8 : 4;
    uint32_t addr = x->base + x->pointer;
    int32_t arrival = c->arrival + (int32_t)done;
    uint32_t room = addr >= TARGET_MEM_BASE && addr < TARGET_MEM_END && addr % bytes == 0
                        ? (TARGET_MEM_END - addr) / bytes
                        : 0;
    x->pointer += count * bytes;
    if (!x->has_pointer) {
        fabric_fault(
            x->port, ROW_ERROR_ADDR, arrival, addr, "item of tile %u before the first pointer",
            c->source);
        return;
    }
    if (room < count) {
        fabric_fault(
            x->port, ROW_ERROR_ADDR, arrival + (int32_t)room, addr + room * bytes,
            "item of tile %u for address %#x", c->source, addr + room * bytes);
        count = room;
    }
    if (count == 0) {
        return;
    }
    struct fabric_store s = {
        .arrival = arrival,
        .count = count,
        .addr = addr,
        .source = c->source,
        .send = c->send,
        .offset = c->offset + done,
        .is_wide = c->is_wide};
    check_store(x, &s, bytes);
    x->port->words += (uint64_t)count * bytes / 4;
    if (!row_list_push(&x->port->stores, s)) {
        x->port->is_out_of_memory = true;
    }
}

/* True when an item of that width may be stored at `event`; else adds the fault. *ret_next is
 * when the answer may change. */
static bool
check_format(struct resolve *x, const struct fabric_capture *c, int32_t event, int32_t *ret_next) {
    *ret_next = NEVER;
    if (!c->is_wide && !x->has_format) {
        return true;
    }
    uint32_t old = 0;
    bool any = false;
    if (x->own != NULL) {
        formats_at(x, event, &old, &any, ret_next);
    }
    if (!c->is_wide) {
        if (any) {
            fabric_fault(
                x->port, ROW_ERROR_MODI, event, 0,
                "32-bit item of tile %u while a 64-bit format is set", c->source);
        }
        return !any;
    }
    struct physical_tile d = {x->tile};
    if (old != (uint32_t)target_route_direction((struct physical_tile){c->source}, d)) {
        fabric_fault(
            x->port, ROW_ERROR_CONF, event, 0, "64-bit item of tile %u while the format is %u",
            c->source, old);
        return false;
    }
    return true;
}

static void store_capture(struct resolve *x, const struct fabric_capture *c) {
    if (c->arrival < x->last_end) {
        fabric_fault(x->port, ROW_ERROR_CONF, c->arrival, 0, "two items arrive in one event");
    }
    x->last_end = (int64_t)c->arrival + c->count;
    for (uint32_t done = 0; done < c->count;) {
        int32_t event = c->arrival + (int32_t)done;
        int32_t next = 0;
        bool good = check_format(x, c, event, &next);
        int32_t next_pointer = apply_controls(x, event);
        next = next < next_pointer ? next : next_pointer;
        uint32_t part = c->count - done;
        if (next != NEVER && (uint32_t)(next - event) < part) {
            part = (uint32_t)(next - event);
        }
        if (good) {
            store(x, c, done, part);
        }
        done += part;
    }
}

void fabric_resolve(
    const struct row_trace *const traces[], uint16_t receiver, struct fabric_port *ret) {
    struct resolve x = {
        .traces = traces,
        .own = traces[receiver],
        .tile = receiver,
        .port = ret,
        .last_end = ENTRY_EVENT};
    ret->captures.len = 0;
    ret->mux.len = 0;
    ret->stores.len = 0;
    ret->faults.len = 0;
    ret->words = 0;
    ret->is_out_of_memory = false;
    ret->last_format = 0;
    if (x.own != NULL) {
        x.base = x.own->entry_base;
        x.has_format = x.own->format != 0;
        x.old_format = x.own->format;
        ret->last_format = x.own->format;
        for (uint32_t i = 0; i < x.own->controls.len; i++) {
            if (x.own->controls.data[i].kind == ROW_FORMAT) {
                x.has_format = true;
                ret->last_format = x.own->controls.data[i].value;
            }
        }
    }
    collect_mux(&x);
    collect_captures(&x);
    for (uint32_t i = 0; i < ret->captures.len; i++) {
        store_capture(&x, &ret->captures.data[i]);
    }
}

/* ---- rules between ports ------------------------------------------------------------------- */

static bool is_same_item(const struct fabric_capture *a, const struct fabric_capture *b) {
    return a->source == b->source && a->send == b->send && a->offset == b->offset &&
           a->count == b->count;
}

static const struct fabric_capture *next_wide(const struct fabric_port *p, uint32_t *i) {
    for (; p != NULL && *i < p->captures.len; (*i)++) {
        if (p->captures.data[*i].is_wide) {
            return &p->captures.data[(*i)++];
        }
    }
    return NULL;
}

/* A wide item comes as two halves over the two multiplexers: both must take it. */
static void match_pair(struct fabric_port *const ports[], uint16_t tile) {
    struct fabric_port *both[2] = {ports[tile], ports[tile ^ 2]};
    uint32_t i[2] = {0, 0};
    for (;;) {
        const struct fabric_capture *a = next_wide(both[0], &i[0]);
        const struct fabric_capture *b = next_wide(both[1], &i[1]);
        if (a == NULL && b == NULL) {
            return;
        }
        if (a == NULL || b == NULL || !is_same_item(a, b)) {
            const struct fabric_capture *c = a != NULL ? a : b;
            struct fabric_port *p = a != NULL ? both[0] : both[1];
            fabric_fault(
                p, ROW_ERROR_CONF, c->arrival, 0,
                "64-bit items of tile %u reach one half of the pair only", c->source);
            return;
        }
    }
}

/* While a tile sends 64-bit items its partner's bus is taken. */
static void match_loan(struct row_trace *const traces[], struct fabric_port *port, uint16_t tile) {
    const struct row_trace *t = traces[tile];
    const struct row_trace *partner = traces[tile ^ 2];
    if (!t->has_wide || partner == NULL) {
        return;
    }
    for (uint32_t i = 0; i < t->sends.len; i++) {
        const struct row_send *send = &t->sends.data[i];
        uint32_t j = (send->sctl & 4) != 0 ? find_send(partner, send->start) : partner->sends.len;
        if (j < partner->sends.len &&
            partner->sends.data[j].start < (int64_t)send->start + send->count) {
            fabric_fault(
                port, ROW_ERROR_TYPE + TYPE_EXCONF, send->start, send->addr,
                "64-bit send while tile %u sends over the same bus", tile ^ 2);
            return;
        }
    }
}

void fabric_match(struct row_trace *const traces[], struct fabric_port *const ports[]) {
    for (uint16_t r = 0; r < TARGET_TILES; r++) {
        for (uint32_t i = 0; ports[r] != NULL && i < ports[r]->stores.len; i++) {
            const struct fabric_store *s = &ports[r]->stores.data[i];
            struct row_send *send = &traces[s->source]->sends.data[s->send];
            send->is_taken = true;
            send->has_other |= s->source != r;
        }
    }
    for (uint16_t r = 0; r < TARGET_TILES; r++) {
        struct fabric_port *p = ports[r];
        if (p == NULL) {
            continue;
        }
        for (uint32_t i = 0; i < p->stores.len; i++) {
            const struct fabric_store *s = &p->stores.data[i];
            if (s->source == r && !traces[r]->sends.data[s->send].has_other) {
                fabric_fault(
                    p, ROW_ERROR_ADDR, s->arrival, s->addr,
                    "tile %u is the only receiver of its own send", r);
            }
        }
        if ((r & 2) == 0 || ports[r ^ 2] == NULL) {
            match_pair(ports, r);
        }
        if (traces[r] != NULL) {
            match_loan(traces, p, r);
        }
    }
}
