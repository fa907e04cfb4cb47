/* The phase scheduler: checks, lanes and shapes, placement in a given or chosen order, rows.
 *
 * Placement is one loop over the order; every transfer goes to the least offset that dependencies,
 * lanes, controls and memory elements allow. Rows are encoded once at the end; only when one
 * cannot be aligned is everything placed again with an encoding trial at each insertion, which
 * moves the offending transfer one event later (5.7). The trial always succeeds beyond the last
 * event of the lanes involved, so that pass ends.
 */
#include "exchange/exchange_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define MAX_EVENTS (1 << 28) /* per lane; offsets stay far from overflow */

static const struct leg *leg_on(const struct problem *p, uint32_t t, uint16_t lane) {
    const struct shape *s = &p->shapes[t];
    for (uint32_t i = 0; i < s->leg_count; i++) {
        if (p->legs[s->first_leg + i].lane == lane) {
            return &p->legs[s->first_leg + i];
        }
    }
    return NULL;
}

static int32_t completion(const struct problem *p, uint32_t t) {
    const struct shape *s = &p->shapes[t];
    int32_t end = p->placed[t].send_end;
    for (uint32_t i = 0; i < s->leg_count; i++) {
        int32_t at = (int32_t)p->placed[t].offset + p->legs[s->first_leg + i].arrival + s->items;
        end = at > end ? at : end;
    }
    return end;
}

/* Least offset that one dependency leaves, in the events of the tile where the bytes overlap. */
static int32_t dependency_offset(const struct problem *p, const struct exchange_dependency *d) {
    if (p->options->plain) {
        return completion(p, d->before);
    }
    const struct shape *before = &p->shapes[d->before];
    const struct shape *after = &p->shapes[d->after];
    uint16_t lane = p->lane_of[d->tile.n];
    int32_t end = p->placed[d->before].send_end;
    if (d->kind != EXCHANGE_WRITE_AFTER_READ) {
        end = (int32_t)p->placed[d->before].offset + leg_on(p, d->before, lane)->arrival +
              before->items;
    }
    if (d->kind == EXCHANGE_READ_AFTER_WRITE) {
        return end + ROW_TAIL - after->send_start;
    }
    return end - leg_on(p, d->after, lane)->arrival;
}

int32_t dependency_start(const struct problem *p, uint32_t t) {
    const struct piece *first = &p->pieces[p->shapes[t].first_piece];
    int32_t start = (int32_t)p->transfers[first->transfer].requested;
    for (uint32_t i = p->dep_first[t]; i < p->dep_first[t + 1]; i++) {
        int32_t at = dependency_offset(p, &p->deps[i]);
        start = at > start ? at : start;
    }
    return start;
}

int32_t lane_settle(const struct problem *p, uint32_t t, int32_t o) {
    for (;;) {
        o = lane_search(p, t, o);
        if (p->options->ignore_elements) {
            return o;
        }
        int32_t later = lane_search_elements(p, t, o);
        if (later == o) {
            return o;
        }
        o = later;
    }
}

/* ---- encoding trials ---------------------------------------------------------------------- */

/* Lanes that an insertion changes: the source, its partner, the receivers; without repeats,
 * because undoing one twice would bring back a half-made state. */
static uint32_t touched_lanes(const struct problem *p, uint32_t t, uint16_t *ret) {
    const struct shape *s = &p->shapes[t];
    uint32_t n = 0;
    ret[n++] = s->lane;
    if (s->partner != s->lane) {
        ret[n++] = s->partner;
    }
    for (uint32_t i = 0; i < s->leg_count; i++) {
        uint16_t lane = p->legs[s->first_leg + i].lane;
        if (lane != s->lane && lane != s->partner) {
            ret[n++] = lane;
        }
    }
    return n;
}

static void lane_save(struct problem *p, struct lane *l, struct lane *copy) {
    *copy = *l;
    copy->sends.data = arena_memdup(p->a, l->sends.data, l->sends.len * sizeof *l->sends.data);
    copy->controls.data =
        arena_memdup(p->a, l->controls.data, l->controls.len * sizeof *l->controls.data);
}

static void lane_restore(struct lane *l, const struct lane *copy) {
    struct lane now = *l;
    *l = *copy;
    l->sends.data = now.sends.data;
    l->controls.data = now.controls.data;
    if (copy->sends.len > 0) {
        memcpy(l->sends.data, copy->sends.data, copy->sends.len * sizeof *copy->sends.data);
    }
    if (copy->controls.len > 0) {
        memcpy(
            l->controls.data, copy->controls.data,
            copy->controls.len * sizeof *copy->controls.data);
    }
}

/* Inserts and keeps it if every row involved can still be encoded. */
static bool insert_if_encodable(struct problem *p, uint32_t t, int32_t offset) {
    uint16_t touched[TARGET_TILES + 2];
    uint32_t n = touched_lanes(p, t, touched);
    for (uint32_t i = 0; i < n; i++) { /* after this nothing below allocates but the copies */
        struct lane *l = &p->lanes[touched[i]];
        uint32_t pieces = p->shapes[t].piece_count;
        vec_reserve(p->a, &l->sends, l->sends.len + pieces);
        vec_reserve(p->a, &l->controls, l->controls.len + pieces + 8);
        vec_reserve(p->a, &l->receives, l->receives.len + pieces);
    }
    struct arena_mark mark = arena_mark(p->a);
    struct lane *copies = ARENA_ARRAY(p->a, struct lane, n);
    for (uint32_t i = 0; i < n; i++) {
        lane_save(p, &p->lanes[touched[i]], &copies[i]);
    }
    lane_insert(p, t, offset);
    bool fits = true;
    for (uint32_t i = 0; i < n && fits; i++) {
        const struct shape *s = &p->shapes[t];
        bool only_lends =
            touched[i] == s->partner && s->partner != s->lane && leg_on(p, t, s->partner) == NULL;
        fits =
            only_lends || exchange_row_encode(&p->lanes[touched[i]], p->options->plain, NULL, NULL);
    }
    for (uint32_t i = 0; i < n && !fits; i++) {
        lane_restore(&p->lanes[touched[i]], &copies[i]);
    }
    arena_rewind(p->a, mark);
    return fits;
}

static void place_transfer(struct problem *p, uint32_t t, int32_t from) {
    int32_t o = lane_settle(p, t, from);
    if (!p->try_rows) {
        lane_insert(p, t, o);
        return;
    }
    while (!insert_if_encodable(p, t, o)) {
        o = lane_settle(p, t, o + 1);
    }
}

/* ---- the problem -------------------------------------------------------------------------- */

static int check_all(
    const struct exchange_transfer *transfers, uint32_t count,
    const struct exchange_options *options, struct err *err) {
    for (uint32_t i = 0; i < count; i++) {
        const struct exchange_transfer *t = &transfers[i];
        int rc = exchange_check(t, err);
        if (rc != 0) {
            err_wrap(err, "transfer %u", i);
            return rc;
        }
        for (uint32_t k = 0; k < t->dest_count && !options->ignore_elements; k++) {
            if (t->dests[k].tile.n == t->source.n &&
                (element_mask(t->dests[k].addr, 4 * t->words) &
                 element_mask(t->source_addr, 4 * t->words)) != 0) {
                return err_set(
                    err, ERR_SCHEDULE,
                    "transfer %u: tile %u sends to itself inside one memory element", i,
                    t->source.n);
            }
        }
        if (t->requested > MAX_EVENTS) {
            return err_set(
                err, ERR_SCHEDULE, "transfer %u: offset %u, at most %d", i, t->requested,
                MAX_EVENTS);
        }
    }
    return 0;
}

static void make_lanes(struct problem *p) {
    p->lane_of = ARENA_ARRAY(p->a, uint16_t, TARGET_TILES);
    uint32_t *receives = ARENA_ARRAY(p->a, uint32_t, TARGET_TILES);
    for (uint32_t i = 0; i < p->transfer_count; i++) {
        const struct exchange_transfer *t = &p->transfers[i];
        p->lane_of[t->source.n] = 1;
        if (p->forms[i] == EXCHANGE_PAIRED) {
            p->lane_of[t->source.n ^ 1] = 1;
        }
        for (uint32_t k = 0; k < t->dest_count; k++) {
            p->lane_of[t->dests[k].tile.n] = 1;
            receives[t->dests[k].tile.n]++;
        }
    }
    for (uint32_t i = 0; i < TARGET_TILES; i++) {
        p->lane_count += p->lane_of[i];
    }
    p->lanes = ARENA_ARRAY(p->a, struct lane, p->lane_count);
    uint16_t n = 0;
    for (uint32_t i = 0; i < TARGET_TILES; i++) {
        if (p->lane_of[i] != 0) {
            p->lanes[n].tile = target_physical((struct logical_tile){(uint16_t)i});
            p->lanes[n].receive_count = receives[i];
            p->lane_of[i] = n++;
        } else {
            p->lane_of[i] = UINT16_MAX;
        }
    }
}

/* A tile that receives one message in point form gets its address from INCOMING_BASE (5.7). */
static void set_bases(struct problem *p) {
    for (uint32_t i = 0; i < p->transfer_count; i++) {
        const struct exchange_transfer *t = &p->transfers[i];
        struct lane *l = &p->lanes[p->lane_of[t->dests[0].tile.n]];
        if (p->forms[i] == EXCHANGE_POINT && l->receive_count == 1) {
            l->incoming_base = t->dests[0].addr;
        }
    }
}

static int dependency_order(const void *x, const void *y) {
    const struct exchange_dependency *a = x;
    const struct exchange_dependency *b = y;
    return (a->after > b->after) - (a->after < b->after);
}

/* From transfers to streams, which for those with dependencies are one and the same. */
static void index_dependencies(struct problem *p) {
    uint32_t *stream = ARENA_ARRAY(p->a, uint32_t, p->transfer_count);
    for (uint32_t s = 0; s < p->count; s++) {
        for (uint32_t i = 0; i < p->shapes[s].piece_count; i++) {
            stream[p->pieces[p->shapes[s].first_piece + i].transfer] = s;
        }
    }
    struct exchange_dependency *deps = arena_memdup(p->a, p->deps, p->dep_count * sizeof *deps);
    bool is_sorted = true;
    for (uint32_t i = 0; i < p->dep_count; i++) {
        deps[i].before = stream[deps[i].before];
        deps[i].after = stream[deps[i].after];
        is_sorted = is_sorted && (i == 0 || deps[i - 1].after <= deps[i].after);
    }
    if (!is_sorted) {
        qsort(deps, p->dep_count, sizeof *deps, dependency_order);
    }
    p->deps = deps;
    p->dep_first = ARENA_ARRAY(p->a, uint32_t, (size_t)p->count + 1);
    uint32_t at = 0;
    for (uint32_t t = 0; t <= p->count; t++) {
        while (at < p->dep_count && p->deps[at].after < t) {
            at++;
        }
        p->dep_first[t] = at;
    }
}

static void find_dependencies(struct problem *p) {
    if (p->options->given_dependencies) {
        p->deps = p->options->dependencies;
        p->dep_count = p->options->dependency_count;
    } else {
        struct exchange_dependency *found;
        exchange_dependencies(p->transfers, p->transfer_count, p->a, &found, &p->dep_count);
        p->deps = found;
    }
}

/* Streams: by the given order, by list order when one is to be chosen, else each transfer alone. */
static void make_streams(struct problem *p) {
    bool *chained = ARENA_ARRAY(p->a, bool, p->transfer_count);
    bool alone = p->options->plain || p->options->list_order || p->options->switch_count > 0;
    for (uint32_t i = 0; i < p->transfer_count; i++) {
        chained[i] = alone;
    }
    for (uint32_t i = 0; i < p->dep_count; i++) {
        chained[p->deps[i].before] = chained[p->deps[i].after] = true;
    }
    problem_streams(p, p->options->order, chained);
}

/* Whether an ordinary transfer may be widened: legal as a pair, and long enough to be a form that
 * has run on hardware (fact sheet 9). */
static bool can_widen(const struct exchange_transfer *t) {
    struct exchange_transfer wide = *t;
    wide.form = EXCHANGE_PAIRED;
    return t->words >= WIDE_LEAST && exchange_check(&wide, NULL) == 0;
}

static int check_order(const struct problem *p, const uint32_t *order, struct err *err) {
    uint32_t *place = ARENA_ARRAY(p->a, uint32_t, p->transfer_count); /* + 1 */
    for (uint32_t i = 0; i < p->transfer_count; i++) {
        if (order[i] >= p->transfer_count || place[order[i]] != 0) {
            return err_set(
                err, ERR_SCHEDULE, "order is not a permutation of %u transfers", p->transfer_count);
        }
        place[order[i]] = i + 1;
    }
    for (uint32_t i = 0; i < p->dep_count; i++) {
        if (place[p->deps[i].before] > place[p->deps[i].after]) {
            return err_set(
                err, ERR_SCHEDULE,
                "order places transfer %u before transfer %u, whose bytes it needs in tile %u",
                p->deps[i].after, p->deps[i].before, p->deps[i].tile.n);
        }
    }
    return 0;
}

static int problem_make(struct problem *p, bool all_paired, struct err *err) {
    size_t legs = 0;
    p->is_widened = all_paired;
    p->forms = ARENA_ARRAY(p->a, enum exchange_form, p->transfer_count);
    uint64_t events = 0;
    for (uint32_t i = 0; i < p->transfer_count; i++) {
        enum exchange_form form = p->transfers[i].form;
        if (form == EXCHANGE_POINT && !p->options->plain) {
            form = EXCHANGE_ABSOLUTE; /* saves the wait of up to 110 events (2.4) */
        }
        if (all_paired && can_widen(&p->transfers[i])) {
            form = EXCHANGE_PAIRED;
        }
        p->forms[i] = form;
        events += (uint64_t)p->transfers[i].words + 256;
    }
    if (events > MAX_EVENTS) {
        return err_set(
            err, ERR_SCHEDULE, "%u transfers need up to %llu events, at most %d", p->transfer_count,
            (unsigned long long)events, MAX_EVENTS);
    }
    find_dependencies(p);
    if (p->options->order != NULL) {
        int rc = check_order(p, p->options->order, err);
        if (rc != 0) {
            return rc;
        }
    }
    make_streams(p);
    index_dependencies(p);
    for (uint32_t i = 0; i < p->count; i++) {
        legs += p->transfers[p->pieces[p->shapes[i].first_piece].transfer].dest_count;
    }
    make_lanes(p);
    p->legs = ARENA_ARRAY(p->a, struct leg, legs);
    p->placed = ARENA_ARRAY(p->a, struct exchange_placed, p->count);
    problem_shapes(p);
    set_bases(p);
    lanes_reset(p);
    return 0;
}

static struct exchange_endpoint busiest_endpoint(const struct problem *p) {
    struct exchange_endpoint most = {0};
    for (uint32_t i = 0; i < p->lane_count; i++) {
        const struct lane *l = &p->lanes[i];
        uint32_t items = l->send_left > l->receive_left ? l->send_left : l->receive_left;
        if (items > most.items) {
            most = (struct exchange_endpoint){
                target_logical(l->tile), l->send_left >= l->receive_left, items};
        }
    }
    return most;
}

static int32_t larger(int32_t a, int32_t b) {
    return a > b ? a : b;
}

/* What each transfer needs when nothing but its predecessors is in its way, and what each lane
 * needs when it is never idle after its earliest start. Uses `placed` as scratch: list order is
 * an order of the dependencies. */
static int32_t latency_bound(struct problem *p) {
    int32_t bound = 0;
    int32_t *first_send = ARENA_ARRAY(p->a, int32_t, p->lane_count);
    int32_t *first_arrival = ARENA_ARRAY(p->a, int32_t, p->lane_count);
    memset(first_send, 0x7F, p->lane_count * sizeof *first_send);
    memset(first_arrival, 0x7F, p->lane_count * sizeof *first_arrival);
    for (uint32_t t = 0; t < p->count; t++) {
        const struct shape *s = &p->shapes[t];
        int32_t o = dependency_start(p, t);
        int32_t start = o + s->send_start;
        p->placed[t] =
            (struct exchange_placed){(uint32_t)o, start, start + s->items, o + s->send_length};
        first_send[s->lane] = start < first_send[s->lane] ? start : first_send[s->lane];
        bound = larger(bound, o + s->send_length);
        for (uint32_t i = 0; i < s->leg_count; i++) {
            const struct leg *g = &p->legs[s->first_leg + i];
            int32_t at = o + g->arrival;
            first_arrival[g->lane] = at < first_arrival[g->lane] ? at : first_arrival[g->lane];
            bound = larger(bound, at + s->items + ROW_TAIL);
        }
    }
    for (uint32_t i = 0; i < p->lane_count; i++) {
        const struct lane *l = &p->lanes[i];
        if (l->receive_left > 0) {
            bound = larger(bound, first_arrival[i] + (int32_t)l->receive_left + ROW_TAIL);
        }
        if (first_send[i] < MAX_EVENTS) {
            bound = larger(bound, first_send[i] + (int32_t)l->send_left);
        }
    }
    return bound;
}

/* ---- placement ---------------------------------------------------------------------------- */

/* The first transfer of a stream. */
static uint32_t transfer_of(const struct problem *p, uint32_t t) {
    return p->pieces[p->shapes[t].first_piece].transfer;
}

static void place_in_order(struct problem *p, const uint32_t *order) {
    lanes_reset(p);
    uint32_t next_switch = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        int32_t start = dependency_start(p, order[i]);
        if (p->options->least != NULL) {
            int32_t least = (int32_t)p->options->least[transfer_of(p, order[i])].offset;
            start = least > start ? least : start;
        }
        place_transfer(p, order[i], start);
        while (next_switch < p->options->switch_count &&
               p->switches[next_switch].after == transfer_of(p, order[i])) {
            lane_switch(p, &p->switches[next_switch++]);
        }
    }
}

static bool all_encodable(const struct problem *p) {
    for (uint32_t i = 0; i < p->lane_count; i++) {
        if (!exchange_row_encode(&p->lanes[i], p->options->plain, NULL, NULL)) {
            return false;
        }
    }
    return true;
}

int32_t lanes_horizon(const struct problem *p) {
    int32_t most = 0;
    for (uint32_t i = 0; i < p->lane_count; i++) {
        most = p->lanes[i].horizon > most ? p->lanes[i].horizon : most;
    }
    return most;
}

static void place_all(struct problem *p, const uint32_t *order) {
    p->try_rows = p->options->always_trial;
    place_in_order(p, order);
    if (!p->try_rows && !all_encodable(p)) {
        p->try_rows = true;
        place_in_order(p, order);
    }
}

/* ---- result ------------------------------------------------------------------------------- */

static int make_rows(struct problem *p, struct exchange_phase *ret, struct err *err) {
    ret->rows = ARENA_ARRAY(p->a, struct exchange_row, p->lane_count);
    for (uint32_t i = 0; i < p->lane_count; i++) {
        struct exchange_row *row = &ret->rows[i];
        if (!exchange_row_encode(&p->lanes[i], p->options->plain, p->a, row)) {
            return err_set(
                err, ERR_SCHEDULE, "row of tile %u cannot be aligned",
                target_logical(p->lanes[i].tile).n);
        }
        uint32_t bytes = 4 * row->word_count;
        if (bytes > ret->max_row_bytes) {
            ret->max_row_bytes = bytes;
            ret->longest_row = row->tile;
        }
        ret->total_row_bytes += bytes;
        ret->horizon = row->horizon > ret->horizon ? row->horizon : ret->horizon;
    }
    ret->row_count = p->lane_count;
    ret->forms = p->forms;
    ret->is_widened = p->is_widened;
    ret->switches = p->switches;
    ret->switch_count = p->options->switch_count;
    ret->ignore_elements = p->options->ignore_elements;
    ret->used_trials = p->try_rows;
    return 0;
}

/* Order and places of transfers from those of streams. */
static void list_placed(struct problem *p, const uint32_t *order, struct exchange_phase *ret) {
    ret->order = ARENA_ARRAY(p->a, uint32_t, p->transfer_count);
    ret->placed = ARENA_ARRAY(p->a, struct exchange_placed, p->transfer_count);
    uint32_t at = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        const struct shape *s = &p->shapes[order[i]];
        const struct exchange_placed *whole = &p->placed[order[i]];
        for (uint32_t k = 0; k < s->piece_count; k++) {
            const struct piece *x = &p->pieces[s->first_piece + k];
            int32_t start = whole->send_start + x->at;
            bool is_last = k + 1 == s->piece_count;
            ret->order[at++] = x->transfer;
            ret->placed[x->transfer] = (struct exchange_placed){
                whole->offset + (uint32_t)x->at, start, start + x->items,
                is_last ? whole->send_horizon : start + x->items};
        }
    }
}

/* Problem and bounds; nothing is placed yet. */
static int begin(struct problem *p, bool all_paired, struct exchange_phase *ret, struct err *err) {
    int rc = problem_make(p, all_paired, err);
    if (rc != 0) {
        return rc;
    }
    *ret = (struct exchange_phase){.busiest = busiest_endpoint(p)};
    ret->lower_bound = ret->busiest.items;
    p->latency_bound = latency_bound(p);
    ret->latency_bound = (uint32_t)p->latency_bound;
    return 0;
}

static int finish(struct problem *p, struct exchange_phase *ret, struct err *err) {
    if (p->options->switch_count > 0) {
        p->switches = arena_memdup(
            p->a, p->options->switches, p->options->switch_count * sizeof *p->options->switches);
    }
    uint32_t *order = ARENA_ARRAY(p->a, uint32_t, p->count);
    for (uint32_t i = 0; i < p->count; i++) {
        order[i] = i; /* streams are numbered by the order they came in */
    }
    if (p->options->order == NULL && !p->options->list_order) {
        order_choose(p, order);
    }
    place_all(p, order);
    list_placed(p, order, ret);
    return make_rows(p, ret, err);
}

static int check_switches(const struct exchange_options *o, uint32_t count, struct err *err) {
    for (uint32_t i = 0; i < o->switch_count; i++) {
        if (o->switches[i].after >= count || o->switches[i].reg > 15) {
            return err_set(
                err, ERR_SCHEDULE, "base write %u after transfer %u from $m%u", i,
                o->switches[i].after, o->switches[i].reg);
        }
    }
    return 0;
}

static bool any_widens(const struct exchange_transfer *transfers, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        if (transfers[i].form != EXCHANGE_PAIRED && can_widen(&transfers[i])) {
            return true;
        }
    }
    return false;
}

/* The one with the lower bound first; the other only where its bound leaves a gain. Ordinary forms
 * win a tie. */
static int finish_shorter(
    struct problem *p, struct problem *q, struct exchange_phase *ordinary,
    struct exchange_phase *wide, struct err *err) {
    bool wide_first = wide->latency_bound < ordinary->latency_bound;
    struct exchange_phase *first = wide_first ? wide : ordinary;
    struct exchange_phase *second = wide_first ? ordinary : wide;
    int rc = finish(wide_first ? q : p, first, err);
    if (rc == 0 && second->latency_bound < first->horizon + wide_first) {
        rc = finish(wide_first ? p : q, second, err);
    } else {
        second->horizon = UINT32_MAX;
    }
    if (rc == 0 && wide->horizon < ordinary->horizon) {
        *ordinary = *wide;
    }
    return rc;
}

int exchange_schedule_phase(
    const struct exchange_transfer *transfers, uint32_t count,
    const struct exchange_options *options, struct arena *a, struct exchange_phase *ret,
    struct err *err) {
    static const struct exchange_options none = {0};
    options = options != NULL ? options : &none;
    int rc = check_all(transfers, count, options, err);
    rc = rc != 0 ? rc : check_switches(options, count, err);
    if (rc != 0) {
        return rc;
    }
    struct problem p = {
        .transfers = transfers, .transfer_count = count, .options = options, .a = a};
    rc = begin(&p, options->widen, ret, err);
    if (rc != 0 || !options->try_paired || options->order != NULL || options->list_order ||
        !any_widens(transfers, count)) {
        return rc != 0 ? rc : finish(&p, ret, err);
    }
    struct problem q = {
        .transfers = transfers, .transfer_count = count, .options = options, .a = a};
    struct exchange_phase wide;
    rc = begin(&q, true, &wide, err);
    return rc != 0 ? rc : finish_shorter(&p, &q, ret, &wide, err);
}
