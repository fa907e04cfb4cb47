/* The verifier: what the wires would carry, from the decoded rows alone.
 *
 * Every row is decoded again and its items are followed to whoever's multiplexer listens (7.1), run
 * by run. On each tile the runs come out ordered by arrival, and so do the receives that the
 * transfers ask for; the two sequences must agree in every word, address and event. The other
 * checks of 7.3 (sends, borrowed lanes, elements, list order, tails) are made beside that. It uses
 * the transfers, the send starts and the rows, no state of the scheduler. All faults are counted,
 * the first is described.
 */
#include "exchange/exchange_internal.h"

#include <stdlib.h>
#include <string.h>

struct select { /* state of a multiplexer from an event on */
    int32_t event;
    uint16_t source; /* physical; TARGET_MUX_IDLE = none */
    bool is_paired;
};

struct expect { /* a receive that a transfer asks for */
    int32_t arrival, items;
    uint32_t addr;
    uint32_t transfer;
};

struct own_send {
    int32_t start, end;
    uint32_t transfer;
    bool is_loan;
};

struct tile_view {
    struct row_decoded row;
    VEC(struct select) selects;
    VEC(struct expect) expects; /* by arrival */
    VEC(struct own_send) sends; /* by start, loans included */
    uint32_t incoming_base;
    uint32_t row_horizon;
    bool has_row, is_active;
};

struct verifier {
    const struct exchange_transfer *transfers;
    uint32_t count;
    const struct exchange_phase *phase;
    struct arena *a;
    struct tile_view *tiles; /* by physical number */
    struct err *err;
    unsigned faults;
};

__attribute__((format(printf, 2, 3))) static void
fault(struct verifier *v, const char *format, ...) {
    if (v->faults++ == 0 && v->err != NULL) {
        va_list args;
        char text[400];
        va_start(args, format);
        vsnprintf(text, sizeof text, format, args);
        va_end(args);
        err_set(v->err, ERR_SCHEDULE, "%s", text);
    }
}

static struct physical_tile phys(uint32_t n) {
    return (struct physical_tile){(uint16_t)n};
}

static uint32_t logical(uint32_t physical) {
    return target_logical(phys(physical)).n;
}

static bool is_wide(const struct verifier *v, uint32_t t) {
    return v->phase->forms[t] == EXCHANGE_PAIRED;
}

/* ---- what the transfers ask for ----------------------------------------------------------- */

static int expect_order(const void *x, const void *y) {
    const struct expect *a = x;
    const struct expect *b = y;
    if (a->arrival != b->arrival) {
        return a->arrival < b->arrival ? -1 : 1;
    }
    return (a->transfer > b->transfer) - (a->transfer < b->transfer);
}

static int send_order(const void *x, const void *y) {
    const struct own_send *a = x;
    const struct own_send *b = y;
    if (a->start != b->start) {
        return a->start < b->start ? -1 : 1;
    }
    return (a->transfer > b->transfer) - (a->transfer < b->transfer);
}

static void expect_transfer(struct verifier *v, uint32_t i) {
    const struct exchange_transfer *t = &v->transfers[i];
    int32_t start = v->phase->placed[i].send_start;
    bool wide = is_wide(v, i);
    int32_t items = (int32_t)(wide ? t->words / 2 : t->words);
    struct physical_tile s = target_physical(t->source);
    struct tile_view *from = &v->tiles[s.n];
    from->is_active = true;
    vec_push(v->a, &from->sends, (struct own_send){start, start + items, i, false});
    if (wide) {
        struct tile_view *partner = &v->tiles[target_partner(s).n];
        partner->is_active = true;
        vec_push(v->a, &partner->sends, (struct own_send){start, start + items, i, true});
    }
    for (uint32_t k = 0; k < t->dest_count; k++) {
        struct physical_tile d = target_physical(t->dests[k].tile);
        int time = target_route_time(s, d);
        if (wide) {
            int other = target_route_time(s, target_partner(d));
            time = (time < other ? time : other) + 1;
        }
        int32_t arrival = start + 1 + time + target_arrival_delay(d);
        v->tiles[d.n].is_active = true;
        vec_push(
            v->a, &v->tiles[d.n].expects, (struct expect){arrival, items, t->dests[k].addr, i});
    }
}

static int make_views(struct verifier *v) {
    for (uint32_t i = 0; i < v->count; i++) {
        struct exchange_transfer t = v->transfers[i];
        t.form = v->phase->forms[i];
        int rc = exchange_check(&t, v->err);
        if (rc != 0) {
            err_wrap(v->err, "transfer %u", i);
            return rc;
        }
        expect_transfer(v, i);
    }
    for (uint32_t n = 0; n < TARGET_TILES; n++) {
        struct tile_view *t = &v->tiles[n];
        if (t->expects.len > 1) {
            qsort(t->expects.data, t->expects.len, sizeof *t->expects.data, expect_order);
        }
        if (t->sends.len > 1) {
            qsort(t->sends.data, t->sends.len, sizeof *t->sends.data, send_order);
        }
    }
    return 0;
}

/* ---- rows --------------------------------------------------------------------------------- */

static void read_rows(struct verifier *v) {
    uint32_t horizon = 0;
    for (uint32_t i = 0; i < v->phase->row_count; i++) {
        const struct exchange_row *row = &v->phase->rows[i];
        if (row->tile.n >= TARGET_TILES) {
            fault(v, "row %u is for tile %u", i, row->tile.n);
            continue;
        }
        struct tile_view *t = &v->tiles[target_physical(row->tile).n];
        if (t->has_row) {
            fault(v, "tile %u has two rows", row->tile.n);
        }
        t->has_row = true;
        t->incoming_base = row->incoming_base;
        t->row_horizon = row->horizon;
        struct err err = {0};
        if (exchange_row_decode(row, v->a, &t->row, &err) != 0) {
            fault(v, "%s", err.text);
        } else if ((uint32_t)t->row.horizon != row->horizon) {
            fault(
                v, "tile %u: row takes %d events, not %u", row->tile.n, t->row.horizon,
                row->horizon);
        }
        horizon = row->horizon > horizon ? row->horizon : horizon;
    }
    if (horizon != v->phase->horizon) {
        fault(v, "phase horizon %u, longest row %u", v->phase->horizon, horizon);
    }
    for (uint32_t n = 0; n < TARGET_TILES; n++) {
        if (v->tiles[n].is_active != v->tiles[n].has_row) {
            fault(
                v, "tile %u %s", logical(n),
                v->tiles[n].has_row ? "has a row but no part in the phase" : "has no row");
        }
    }
}

/* Formats are 0, 1 and 2, and the next row begins with 0. */
static void check_formats(struct verifier *v, uint32_t n) {
    const struct tile_view *t = &v->tiles[n];
    uint32_t format = 0;
    for (size_t i = 0; i < t->row.writes.len; i++) {
        const struct row_write *w = &t->row.writes.data[i];
        if (w->kind == CONTROL_FORMAT) {
            format = w->value;
            if (format > 2) {
                fault(v, "tile %u: format %u at event %d", logical(n), format, w->event);
            }
        }
    }
    if (format != 0) {
        fault(v, "tile %u: the row ends with format %u", logical(n), format);
    }
}

static int select_order(const void *x, const void *y) {
    const struct select *a = x;
    const struct select *b = y;
    return (a->event > b->event) - (a->event < b->event);
}

/* A paired selection moves the writer's multiplexer at once, its partner's one event later. */
static void read_selects(struct verifier *v, uint32_t n) {
    struct tile_view *own = &v->tiles[n];
    struct tile_view *other = &v->tiles[n ^ 2];
    for (size_t i = 0; i < own->row.writes.len; i++) {
        const struct row_write *w = &own->row.writes.data[i];
        bool is_idle = w->value == TARGET_MUX_IDLE;
        if (w->kind > CONTROL_PAIR) {
            continue;
        }
        if (!is_idle && w->value >= TARGET_TILES) {
            fault(v, "tile %u: selects source %u at event %d", logical(n), w->value, w->event);
            continue;
        }
        if (w->kind == CONTROL_MUX) {
            vec_push(v->a, &own->selects, (struct select){w->event, (uint16_t)w->value, false});
            continue;
        }
        uint32_t source = is_idle ? w->value : w->value ^ (n & 2);
        if (!is_idle && target_route_time(phys(source), phys(n)) >
                            target_route_time(phys(source), phys(n ^ 2))) {
            fault(
                v, "tile %u: paired selection of %u at event %d by the late member", logical(n),
                source, w->event);
        }
        vec_push(v->a, &own->selects, (struct select){w->event, (uint16_t)source, true});
        vec_push(v->a, &other->selects, (struct select){w->event + 1, (uint16_t)source, true});
    }
}

static void sort_selects(struct verifier *v, uint32_t n) {
    struct tile_view *t = &v->tiles[n];
    if (t->selects.len == 0) {
        return;
    }
    qsort(t->selects.data, t->selects.len, sizeof *t->selects.data, select_order);
    for (size_t i = 1; i < t->selects.len; i++) {
        if (t->selects.data[i].event == t->selects.data[i - 1].event) {
            fault(v, "tile %u: two selections at event %d", logical(n), t->selects.data[i].event);
        }
    }
    if (t->selects.data[t->selects.len - 1].source != TARGET_MUX_IDLE) {
        fault(
            v, "tile %u: the row ends with the multiplexer on %u", logical(n),
            t->selects.data[t->selects.len - 1].source);
    }
}

/* ---- sends -------------------------------------------------------------------------------- */

/* Directions that the receivers of a transfer need. */
static unsigned directions_of(const struct exchange_transfer *t) {
    unsigned bits = 0;
    for (uint32_t k = 0; k < t->dest_count; k++) {
        bits |= (unsigned)target_route_direction(
            target_physical(t->source), target_physical(t->dests[k].tile));
    }
    return bits;
}

/* Whether decoded send r gives item 0 of transfer t at event `start`. */
static bool
gives_items(const struct verifier *v, const struct row_send *r, uint32_t t, int32_t start) {
    const struct exchange_transfer *x = &v->transfers[t];
    bool wide = is_wide(v, t);
    unsigned need = directions_of(x) | (wide ? 4u : 0u);
    return r->item_addr + (uint32_t)(start - r->start) == x->source_addr / (wide ? 8 : 4) &&
           (r->sctl & 4) == (need & 4) && (r->sctl & need) == need;
}

/* Decoded sends must cover the own sends exactly, in order; nothing may run beside them. What is
 * decoded as one may be several transfers that follow one another in memory, and the reverse. */
static void check_sends(struct verifier *v, uint32_t n) {
    const struct tile_view *t = &v->tiles[n];
    size_t at = 0;
    int32_t busy = 0;    /* all lanes so far */
    int32_t covered = 0; /* end of what decoded sends before `at` gave */
    for (size_t i = 0; i < t->sends.len; i++) {
        const struct own_send *s = &t->sends.data[i];
        if (s->start < busy) {
            fault(
                v, "tile %u: transfer %u sends at %d on a lane busy to %d", logical(n), s->transfer,
                s->start, busy);
        }
        busy = s->end > busy ? s->end : busy;
        int32_t now = s->start;
        while (!s->is_loan && now < s->end) {
            const struct row_send *r = at < t->row.sends.len ? &t->row.sends.data[at] : NULL;
            if (r == NULL || now < r->start || (now > r->start && now != covered) ||
                !gives_items(v, r, s->transfer, s->start)) {
                fault(
                    v, "tile %u: transfer %u is not sent at event %d", logical(n), s->transfer,
                    now);
                break;
            }
            now = r->end < s->end ? r->end : s->end;
            covered = now;
            at += now == r->end;
        }
    }
    if (at != t->row.sends.len) {
        fault(
            v, "tile %u: sends at event %d what no transfer asks for", logical(n),
            t->row.sends.data[at].start > covered ? t->row.sends.data[at].start : covered);
    }
}

/* ---- receives ----------------------------------------------------------------------------- */

struct capture { /* state while the arrivals of one tile are replayed */
    struct verifier *v;
    uint32_t tile;       /* physical */
    size_t write;        /* next pointer write */
    size_t format_write; /* next format write, and the format before it */
    uint32_t format;
    size_t expect; /* next receive, and how much of it has come */
    int32_t expect_done;
    int32_t last_end; /* arrivals so far end here */
    bool has_pointer;
    uint32_t addr;
};

/* Whether the format equals `value` at every event of [from, to]; `from` never falls. */
static bool format_holds(struct capture *c, int32_t from, int32_t to, uint32_t value) {
    const struct tile_view *t = &c->v->tiles[c->tile];
    for (; c->format_write < t->row.writes.len && t->row.writes.data[c->format_write].event <= from;
         c->format_write++) {
        if (t->row.writes.data[c->format_write].kind == CONTROL_FORMAT) {
            c->format = t->row.writes.data[c->format_write].value;
        }
    }
    bool holds = c->format == value;
    for (size_t i = c->format_write; i < t->row.writes.len && t->row.writes.data[i].event <= to;
         i++) {
        holds = holds && (t->row.writes.data[i].kind != CONTROL_FORMAT ||
                          t->row.writes.data[i].value == value);
    }
    return holds;
}

/* Compares a piece whose address runs on with what is expected next. */
static void match(
    struct capture *c, const struct row_send *from, uint32_t source, int32_t item, int32_t arrival,
    int32_t items) {
    struct verifier *v = c->v;
    struct tile_view *t = &v->tiles[c->tile];
    uint32_t bytes = (from->sctl & 4) != 0 ? 8 : 4;
    while (items > 0) {
        const struct expect *e = c->expect < t->expects.len ? &t->expects.data[c->expect] : NULL;
        uint32_t from_addr = (from->item_addr + (uint32_t)item) * bytes;
        const struct exchange_transfer *x = e != NULL ? &v->transfers[e->transfer] : NULL;
        uint32_t done = (uint32_t)c->expect_done * bytes;
        if (e == NULL || e->arrival + c->expect_done != arrival || e->addr + done != c->addr ||
            x->source_addr + done != from_addr || target_physical(x->source).n != source ||
            is_wide(v, e->transfer) != (bytes == 8)) {
            fault(
                v, "tile %u: %d items from tile %u 0x%x arrive at event %d at 0x%x, %s%u",
                logical(c->tile), items, logical(source), from_addr, arrival, c->addr,
                e == NULL ? "nothing is expected after receive " : "not as expected by transfer ",
                e == NULL ? (uint32_t)c->expect : e->transfer);
            c->addr += bytes * (uint32_t)items;
            return;
        }
        int32_t n = e->items - c->expect_done < items ? e->items - c->expect_done : items;
        c->expect_done += n;
        if (c->expect_done == e->items) {
            c->expect++;
            c->expect_done = 0;
        }
        c->addr += bytes * (uint32_t)n;
        item += n;
        arrival += n;
        items -= n;
    }
}

/* Items that the multiplexer let through: width, pointer, then the comparison. */
static void arrive(
    struct capture *c, const struct row_send *from, uint32_t source, int32_t item, int32_t arrival,
    int32_t items) {
    struct tile_view *t = &c->v->tiles[c->tile];
    bool wide = (from->sctl & 4) != 0;
    uint32_t format = wide ? (uint32_t)target_route_direction(phys(source), phys(c->tile)) : 0;
    int32_t end = arrival + items;
    if (arrival < c->last_end) {
        fault(c->v, "tile %u: two items arrive at event %d", logical(c->tile), arrival);
    }
    c->last_end = end;
    if (!format_holds(c, arrival - 2, wide ? end - 3 : end - 1, format)) {
        fault(
            c->v, "tile %u: items of tile %u at event %d meet another format", logical(c->tile),
            logical(source), arrival);
    }
    while (items > 0) {
        for (; c->write < t->row.writes.len && t->row.writes.data[c->write].event <= arrival;
             c->write++) {
            const struct row_write *w = &t->row.writes.data[c->write];
            if (w->kind == CONTROL_POINTER) {
                c->addr = t->incoming_base + 4 * w->value;
                c->has_pointer = true;
            }
        }
        int32_t n = items;
        for (size_t i = c->write; i < t->row.writes.len && t->row.writes.data[i].event < end; i++) {
            if (t->row.writes.data[i].kind == CONTROL_POINTER) {
                n = t->row.writes.data[i].event - arrival;
                break;
            }
        }
        if (!c->has_pointer) {
            fault(
                c->v, "tile %u: items arrive at event %d before any pointer", logical(c->tile),
                arrival);
        }
        match(c, from, source, item, arrival, n);
        item += n;
        arrival += n;
        items -= n;
    }
}

static size_t first_send_after(const struct tile_view *t, int32_t event) {
    size_t low = 0;
    size_t high = t->row.sends.len;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (t->row.sends.data[mid].end <= event) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low;
}

/* What one selection, in force over [from, to), lets through. */
static void listen(struct capture *c, const struct select *s, int32_t from, int32_t to) {
    struct physical_tile source = phys(s->source);
    struct physical_tile tile = phys(c->tile);
    int time = target_route_time(source, tile);
    bool is_late = s->is_paired && target_route_time(source, target_partner(tile)) < time;
    int direction = target_route_direction(source, tile);
    int delay = target_arrival_delay(tile) + (s->is_paired && !is_late);
    const struct tile_view *t = &c->v->tiles[source.n];
    for (size_t i = first_send_after(t, from - 1 - time); i < t->row.sends.len; i++) {
        const struct row_send *r = &t->row.sends.data[i];
        int32_t begin = r->start + 1 + time > from ? r->start + 1 + time : from;
        int32_t end = r->end + 1 + time < to ? r->end + 1 + time : to;
        if (r->start + 1 + time >= to) {
            break;
        }
        if (begin >= end) {
            continue;
        }
        if (((r->sctl & 4) != 0) != s->is_paired) {
            fault(
                c->v, "tile %u: selects %s items of tile %u at event %d", logical(c->tile),
                s->is_paired ? "wide, gets ordinary" : "ordinary, gets wide", logical(source.n),
                begin);
            continue;
        }
        if ((r->sctl & direction) != 0) {
            arrive(c, r, source.n, begin - 1 - time - r->start, begin + delay, end - begin);
        }
    }
}

/* An ordinary selection of a tile whose bus its partner has borrowed hears half a wide item. */
static void check_borrowed(struct capture *c, const struct select *s, int32_t from, int32_t to) {
    struct physical_tile source = phys(s->source);
    const struct tile_view *t = &c->v->tiles[target_partner(source).n];
    int time = target_route_time(source, phys(c->tile));
    for (size_t i = first_send_after(t, from - 1 - time);
         i < t->row.sends.len && t->row.sends.data[i].start + 1 + time < to; i++) {
        if ((t->row.sends.data[i].sctl & 4) != 0) {
            fault(
                c->v, "tile %u: listens at event %d to tile %u, whose lane is lent",
                logical(c->tile), from, logical(source.n));
            return;
        }
    }
}

static void check_receives(struct verifier *v, uint32_t n) {
    struct tile_view *t = &v->tiles[n];
    struct capture c = {.v = v, .tile = n};
    for (size_t i = 0; i < t->selects.len; i++) {
        const struct select *s = &t->selects.data[i];
        int32_t to = i + 1 < t->selects.len ? t->selects.data[i + 1].event : INT32_MAX;
        if (s->source == TARGET_MUX_IDLE) {
            continue;
        }
        listen(&c, s, s->event, to);
        if (!s->is_paired) {
            check_borrowed(&c, s, s->event, to);
        }
    }
    if (c.expect < t->expects.len) {
        const struct expect *e = &t->expects.data[c.expect];
        fault(
            v, "tile %u: %d items of transfer %u do not arrive", logical(n),
            e->items - c.expect_done, e->transfer);
    }
    for (size_t i = 0; i < t->expects.len; i++) {
        const struct expect *e = &t->expects.data[i];
        if (e->arrival + e->items + ROW_TAIL > t->row.horizon) {
            fault(
                v, "tile %u: the row ends at %d, transfer %u at %d", logical(n), t->row.horizon,
                e->transfer, e->arrival + e->items + ROW_TAIL);
        }
    }
}

/* ---- memory ------------------------------------------------------------------------------- */

static void check_elements(struct verifier *v, uint32_t n) {
    const struct tile_view *t = &v->tiles[n];
    size_t low = 0;
    for (size_t i = 0; i < t->sends.len; i++) {
        const struct own_send *s = &t->sends.data[i];
        const struct exchange_transfer *x = &v->transfers[s->transfer];
        if (s->is_loan) {
            continue;
        }
        uint32_t mask = element_mask(x->source_addr, 4 * x->words);
        while (low < t->expects.len &&
               t->expects.data[low].arrival + t->expects.data[low].items + ROW_TAIL <= s->start) {
            low++;
        }
        for (size_t k = low; k < t->expects.len && t->expects.data[k].arrival < s->end; k++) {
            const struct expect *e = &t->expects.data[k];
            if ((mask & element_mask(e->addr, 4 * v->transfers[e->transfer].words)) != 0 &&
                e->arrival + e->items + ROW_TAIL > s->start) {
                fault(
                    v, "tile %u: transfers %u and %u use one memory element at event %d",
                    logical(n), s->transfer, e->transfer,
                    s->start > e->arrival ? s->start : e->arrival);
            }
        }
    }
}

static int32_t arrival_of(const struct verifier *v, uint32_t transfer, uint32_t tile) {
    const struct tile_view *t = &v->tiles[tile];
    for (size_t i = 0; i < t->expects.len; i++) {
        if (t->expects.data[i].transfer == transfer) {
            return t->expects.data[i].arrival;
        }
    }
    return INT32_MAX;
}

/* Overlapping bytes keep list order, in the events of the tile that holds them (4.4). */
static void check_list_order(struct verifier *v) {
    struct exchange_dependency *deps = NULL;
    uint32_t count = 0;
    exchange_dependencies(v->transfers, v->count, v->a, &deps, &count);
    for (uint32_t i = 0; i < count; i++) {
        const struct exchange_dependency *d = &deps[i];
        uint32_t tile = target_physical(d->tile).n;
        const struct exchange_placed *before = &v->phase->placed[d->before];
        int32_t done = before->send_end;
        if (d->kind != EXCHANGE_WRITE_AFTER_READ) {
            done = arrival_of(v, d->before, tile) + before->send_end - before->send_start;
        }
        int32_t next = v->phase->placed[d->after].send_start;
        if (d->kind == EXCHANGE_READ_AFTER_WRITE) {
            done += ROW_TAIL;
        } else {
            next = arrival_of(v, d->after, tile);
        }
        if (next < done) {
            fault(
                v, "tile %u: transfer %u at event %d does not wait for transfer %u to %d",
                d->tile.n, d->after, next, d->before, done);
        }
    }
}

int exchange_verify_phase(
    const struct exchange_transfer *transfers, uint32_t count, const struct exchange_phase *phase,
    struct arena *a, struct err *err) {
    struct err own = {0};
    struct verifier v = {
        .transfers = transfers,
        .count = count,
        .phase = phase,
        .a = a,
        .tiles = ARENA_ARRAY(a, struct tile_view, TARGET_TILES),
        .err = err != NULL ? err : &own};
    int rc = make_views(&v);
    if (rc != 0) {
        return rc;
    }
    read_rows(&v);
    for (uint32_t n = 0; n < TARGET_TILES; n++) {
        read_selects(&v, n);
    }
    for (uint32_t n = 0; n < TARGET_TILES; n++) {
        sort_selects(&v, n);
        check_formats(&v, n);
        check_sends(&v, n);
        check_receives(&v, n);
        if (!phase->ignore_elements) {
            check_elements(&v, n);
        }
    }
    check_list_order(&v);
    if (v.faults > 1) {
        return err_wrap(v.err, "%u faults, the first", v.faults);
    }
    return v.faults > 0 ? -ERR_SCHEDULE : 0;
}
