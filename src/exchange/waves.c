/* Order of placement by waves: no tile sends twice in a wave, or receives twice.
 *
 * A wave is a colour of the edges source -> receiver. For streams with one receiver the classic
 * way with alternating paths needs no more colours than the busiest lane has streams: when the
 * source misses colour a and the receiver colour b, the path of edges a, b, a ... from the receiver
 * on is turned over, and a is free at both. It cannot come to the source, which would have to be
 * entered by a. With several receivers the least colour free at all ends is taken. Long streams
 * come first, so that those of a wave are of one length. Ends: a path visits an edge once.
 */
#include "exchange/exchange_internal.h"

#include <string.h>

#define NONE          UINT32_MAX
#define MOST_SLOTS    ((size_t)1 << 24) /* of both tables, 64 MiB; larger phases have no waves */
#define MOST_MULTIPLE 4                 /* colours of a phase with multicast, in degrees */

struct colouring {
    const struct problem *p;
    uint32_t colours;        /* of a lane in the tables */
    uint32_t *slots[2];      /* sending, receiving: [lane][colour], stream or NONE */
    uint32_t *low[2];        /* by lane: no colour below is free */
    uint32_t *colour, *path; /* by stream; scratch */
};

static uint32_t *slot(const struct colouring *c, int side, uint32_t lane, uint32_t colour) {
    return &c->slots[side][(size_t)lane * c->colours + colour];
}

static uint32_t first_free(const struct colouring *c, int side, uint32_t lane) {
    uint32_t *low = &c->low[side][lane];
    while (*low < c->colours && *slot(c, side, lane, *low) != NONE) {
        ++*low;
    }
    return *low;
}

/* Lane of a stream with one receiver. */
static uint16_t end_of(const struct problem *p, uint32_t t, int side) {
    return side == 0 ? p->shapes[t].lane : p->legs[p->shapes[t].first_leg].lane;
}

static void put(struct colouring *c, uint32_t t, uint32_t colour) {
    const struct shape *s = &c->p->shapes[t];
    c->colour[t] = colour;
    if (colour == c->colours) {
        return; /* beyond the tables: the last wave */
    }
    *slot(c, 0, s->lane, colour) = t;
    for (uint32_t i = 0; i < s->leg_count; i++) {
        *slot(c, 1, c->p->legs[s->first_leg + i].lane, colour) = t;
    }
}

/* Swaps colours a and b along the path that leaves the receiver by a. */
static void turn_over(struct colouring *c, uint32_t receiver, uint32_t a, uint32_t b) {
    uint32_t n = 0, lane = receiver;
    int side = 1;
    for (uint32_t t = *slot(c, 1, receiver, a); t != NONE;
         t = *slot(c, side, lane, n % 2 == 0 ? a : b)) {
        c->path[n++] = t;
        side = 1 - side;
        lane = end_of(c->p, t, side);
    }
    for (uint32_t i = 0; i < n; i++) {
        for (int end = 0; end < 2; end++) {
            *slot(c, end, end_of(c->p, c->path[i], end), i % 2 == 0 ? a : b) = NONE;
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        put(c, c->path[i], i % 2 == 0 ? b : a);
    }
    uint32_t freed = n % 2 == 1 ? a : b; /* at the last lane; the receiver's a is used at once */
    if (freed < c->low[side][lane]) {
        c->low[side][lane] = freed;
    }
}

static void colour_single(struct colouring *c, uint32_t t) {
    uint16_t source = end_of(c->p, t, 0), receiver = end_of(c->p, t, 1);
    uint32_t a = first_free(c, 0, source);
    uint32_t b = first_free(c, 1, receiver);
    if (*slot(c, 0, source, b) == NONE) {
        a = b;
    } else if (*slot(c, 1, receiver, a) != NONE) {
        turn_over(c, receiver, a, b);
    }
    put(c, t, a);
}

static bool is_free(const struct colouring *c, const struct shape *s, uint32_t colour) {
    bool good = *slot(c, 0, s->lane, colour) == NONE;
    for (uint32_t i = 0; good && i < s->leg_count; i++) {
        good = *slot(c, 1, c->p->legs[s->first_leg + i].lane, colour) == NONE;
    }
    return good;
}

static void colour_several(struct colouring *c, uint32_t t) {
    const struct shape *s = &c->p->shapes[t];
    uint32_t colour = first_free(c, 0, s->lane);
    while (colour < c->colours && !is_free(c, s, colour)) {
        colour++;
    }
    put(c, t, colour);
}

/* Streams of the busiest lane. */
static uint32_t degree(const struct problem *p, bool *ret_several) {
    uint32_t *count[2] = {
        ARENA_ARRAY(p->a, uint32_t, p->lane_count), ARENA_ARRAY(p->a, uint32_t, p->lane_count)};
    uint32_t most = 0;
    *ret_several = false;
    for (uint32_t t = 0; t < p->count; t++) {
        const struct shape *s = &p->shapes[t];
        uint32_t n = ++count[0][s->lane];
        most = n > most ? n : most;
        *ret_several = *ret_several || s->leg_count > 1;
        for (uint32_t i = 0; i < s->leg_count; i++) {
            n = ++count[1][p->legs[s->first_leg + i].lane];
            most = n > most ? n : most;
        }
    }
    return most;
}

/* Streams by falling length, equal ones as they are numbered: a counting sort. */
static uint32_t *by_length(const struct problem *p) {
    int32_t longest = 0;
    for (uint32_t t = 0; t < p->count; t++) {
        longest = p->shapes[t].items > longest ? p->shapes[t].items : longest;
    }
    uint32_t *first = ARENA_ARRAY(p->a, uint32_t, (size_t)longest + 2);
    for (uint32_t t = 0; t < p->count; t++) {
        first[longest - p->shapes[t].items + 1]++;
    }
    for (int32_t i = 0; i <= longest; i++) {
        first[i + 1] += first[i];
    }
    uint32_t *list = ARENA_ARRAY(p->a, uint32_t, p->count);
    for (uint32_t t = 0; t < p->count; t++) {
        list[first[longest - p->shapes[t].items]++] = t;
    }
    return list;
}

/* Items that the waves take one after the other. */
static uint64_t length_of(const struct colouring *c) {
    int32_t *longest = ARENA_ARRAY(c->p->a, int32_t, (size_t)c->colours + 1);
    uint64_t sum = 0;
    for (uint32_t t = 0; t < c->p->count; t++) {
        int32_t *most = &longest[c->colour[t]];
        *most = c->p->shapes[t].items > *most ? c->p->shapes[t].items : *most;
    }
    for (uint32_t i = 0; i <= c->colours; i++) {
        sum += (uint64_t)longest[i];
    }
    return sum;
}

bool order_waves(struct problem *p, uint32_t *order) {
    bool several;
    struct colouring c = {.p = p, .colours = degree(p, &several)};
    c.colours *= several ? MOST_MULTIPLE : 1;
    size_t slots = (size_t)c.colours * p->lane_count;
    if (p->dep_count > 0 || 2 * slots > MOST_SLOTS) {
        return false;
    }
    for (int side = 0; side < 2; side++) {
        c.slots[side] = ARENA_ARRAY(p->a, uint32_t, slots);
        c.low[side] = ARENA_ARRAY(p->a, uint32_t, p->lane_count);
        memset(c.slots[side], 0xFF, slots * sizeof *c.slots[side]);
    }
    c.colour = ARENA_ARRAY(p->a, uint32_t, p->count);
    c.path = ARENA_ARRAY(p->a, uint32_t, p->count);
    const uint32_t *list = by_length(p);
    for (uint32_t i = 0; i < p->count; i++) {
        if (several) {
            colour_several(&c, list[i]);
        } else {
            colour_single(&c, list[i]);
        }
    }
    if (length_of(&c) > 2 * (uint64_t)p->latency_bound) {
        return false; /* of many lengths */
    }
    uint32_t *first = ARENA_ARRAY(p->a, uint32_t, (size_t)c.colours + 2);
    for (uint32_t t = 0; t < p->count; t++) {
        first[c.colour[t] + 1]++;
    }
    for (uint32_t i = 0; i <= c.colours; i++) {
        first[i + 1] += first[i];
    }
    for (uint32_t t = 0; t < p->count; t++) {
        order[first[c.colour[t]]++] = t;
    }
    return true;
}
