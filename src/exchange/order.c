/* Own order of placement: list scheduling (5.2).
 *
 * A heap of ready transfers, keyed by the least offset that is open to each now and by the pressure
 * on its endpoints (items not yet placed there). Placing a transfer can only make the other keys
 * worse: offsets rise, pressure falls. So a key that is recomputed when it reaches the top, and put
 * back if it has worsened, gives exactly the order that fresh keys would. Each policy weighs the
 * two parts differently; the shortest result wins, the earlier policy on a tie. Then the best one
 * is repeated with a handicap on the lanes that ended last, which makes their transfers come
 * sooner (a squeaky wheel gets the grease). Waves (waves.c) come before all that. All stops at once
 * when the latency bound is reached, for large phases when it is near. The number of rounds is a
 * matter of work, never of time, so that equal input gives equal rows.
 */
#include "exchange/exchange_internal.h"

#include <string.h>

#define WINDOW_WIDE   32
#define WINDOW_NARROW 16     /* for large phases */
#define SEARCH_LEGS   8192   /* larger phases get few rounds, */
#define MANY_LEGS     131072 /* and those one */

struct entry {
    int64_t score; /* less is sooner */
    uint32_t pressure;
    uint32_t transfer;
};

struct greedy {
    struct problem *p;
    struct entry *heap;
    uint32_t heap_len;
    int32_t *offset;    /* last known least offset, by transfer */
    uint32_t *keyed_at; /* insertions when the key was made */
    uint32_t *waits;    /* predecessors not yet placed */
    uint32_t *succ_first, *succ;
    uint32_t window;
    uint32_t *send_bias, *receive_bias; /* by lane: pressure added to what is left */
    uint32_t *spread; /* transfers by rotation of the receiver, the order of first offers */
    uint32_t *next;   /* queue of ready transfers behind a source's window, + 1 */
    uint32_t *queue_head, *queue_tail, *open; /* by lane; open = entries in the heap */
    uint32_t inserted;
    bool is_directional;
    uint32_t weight; /* of pressure, in 1/16 events an item */
};

static bool entry_less(const struct entry *a, const struct entry *b) {
    if (a->score != b->score) {
        return a->score < b->score;
    }
    if (a->pressure != b->pressure) {
        return a->pressure > b->pressure;
    }
    return a->transfer < b->transfer;
}

static void heap_down(struct greedy *g, uint32_t i) {
    struct entry e = g->heap[i];
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child >= g->heap_len) {
            break;
        }
        if (child + 1 < g->heap_len && entry_less(&g->heap[child + 1], &g->heap[child])) {
            child++;
        }
        if (!entry_less(&g->heap[child], &e)) {
            break;
        }
        g->heap[i] = g->heap[child];
        i = child;
    }
    g->heap[i] = e;
}

static void heap_push(struct greedy *g, struct entry e) {
    uint32_t i = g->heap_len++;
    while (i > 0 && entry_less(&e, &g->heap[(i - 1) / 2])) {
        g->heap[i] = g->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    g->heap[i] = e;
}

static void heap_drop_top(struct greedy *g) {
    g->heap[0] = g->heap[--g->heap_len];
    if (g->heap_len > 1) {
        heap_down(g, 0);
    }
}

static uint32_t pressure_of(const struct greedy *g, const struct shape *s) {
    const struct problem *p = g->p;
    const struct lane *l = &p->lanes[s->lane];
    uint32_t most =
        g->send_bias[s->lane] + l->send_left + (g->is_directional ? 0 : l->receive_left);
    for (uint32_t i = 0; i < s->leg_count; i++) {
        uint16_t lane = p->legs[s->first_leg + i].lane;
        l = &p->lanes[lane];
        uint32_t here =
            g->receive_bias[lane] + l->receive_left + (g->is_directional ? 0 : l->send_left);
        most = here > most ? here : most;
    }
    return most;
}

static struct entry make_entry(struct greedy *g, uint32_t t) {
    const struct shape *s = &g->p->shapes[t];
    g->offset[t] = lane_settle(g->p, t, g->offset[t]);
    g->keyed_at[t] = g->inserted;
    uint32_t pressure = pressure_of(g, s);
    int64_t start = (int64_t)g->offset[t] * 16;
    return (struct entry){start - (int64_t)g->weight * pressure, pressure, t};
}

static bool is_current(const struct greedy *g, uint32_t t) {
    const struct problem *p = g->p;
    const struct shape *s = &p->shapes[t];
    uint32_t at = g->keyed_at[t];
    if (p->lanes[s->lane].changed_at > at || p->lanes[s->partner].changed_at > at) {
        return false;
    }
    for (uint32_t i = 0; i < s->leg_count; i++) {
        if (p->lanes[p->legs[s->first_leg + i].lane].changed_at > at) {
            return false;
        }
    }
    return true;
}

static void mark_changed(struct greedy *g, uint32_t t) {
    struct problem *p = g->p;
    const struct shape *s = &p->shapes[t];
    g->inserted++;
    p->lanes[s->lane].changed_at = g->inserted;
    p->lanes[s->partner].changed_at = g->inserted;
    for (uint32_t i = 0; i < s->leg_count; i++) {
        p->lanes[p->legs[s->first_leg + i].lane].changed_at = g->inserted;
    }
}

/* A source offers only `window` transfers at a time: every placement makes all entries of its two
 * ends stale, which for an all-to-all would cost the square of the degree. */
static void make_ready(struct greedy *g, uint32_t t) {
    uint16_t lane = g->p->shapes[t].lane;
    g->offset[t] = dependency_start(g->p, t);
    g->next[t] = 0;
    if (g->open[lane] < g->window) {
        g->open[lane]++;
        heap_push(g, make_entry(g, t));
    } else if (g->queue_head[lane] == 0) {
        g->queue_head[lane] = g->queue_tail[lane] = t + 1;
    } else {
        g->next[g->queue_tail[lane] - 1] = t + 1;
        g->queue_tail[lane] = t + 1;
    }
}

static void refill(struct greedy *g, uint16_t lane) {
    g->open[lane]--;
    if (g->queue_head[lane] != 0) {
        uint32_t t = g->queue_head[lane] - 1;
        g->queue_head[lane] = g->next[t];
        g->open[lane]++;
        heap_push(g, make_entry(g, t));
    }
}

static uint32_t rotation(const struct problem *p, uint32_t stream) {
    const struct exchange_transfer *t =
        &p->transfers[p->pieces[p->shapes[stream].first_piece].transfer];
    return (uint32_t)(t->dests[0].tile.n + TARGET_TILES - t->source.n) % TARGET_TILES;
}

static void index_successors(struct greedy *g) {
    const struct problem *p = g->p;
    g->succ_first = ARENA_ARRAY(p->a, uint32_t, (size_t)p->count + 2);
    g->succ = ARENA_ARRAY(p->a, uint32_t, p->dep_count);
    for (uint32_t i = 0; i < p->dep_count; i++) {
        g->succ_first[p->deps[i].before + 2]++;
    }
    for (uint32_t t = 0; t < p->count; t++) {
        g->succ_first[t + 2] += g->succ_first[t + 1];
    }
    for (uint32_t i = 0; i < p->dep_count; i++) {
        g->succ[g->succ_first[p->deps[i].before + 1]++] = p->deps[i].after;
    }
}

static void run(struct greedy *g, uint32_t *order) {
    struct problem *p = g->p;
    lanes_reset(p);
    g->heap_len = 0;
    g->inserted = 0;
    memset(g->open, 0, p->lane_count * sizeof *g->open);
    memset(g->queue_head, 0, p->lane_count * sizeof *g->queue_head);
    for (uint32_t i = 0; i < p->count; i++) {
        uint32_t t = g->spread[i];
        g->waits[t] = p->dep_first[t + 1] - p->dep_first[t];
        if (g->waits[t] == 0) {
            make_ready(g, t);
        }
    }
    for (uint32_t n = 0; n < p->count;) {
        uint32_t t = g->heap[0].transfer;
        if (!is_current(g, t)) {
            g->heap[0] = make_entry(g, t);
            heap_down(g, 0);
            continue;
        }
        heap_drop_top(g);
        lane_insert(p, t, g->offset[t]);
        mark_changed(g, t);
        order[n++] = t;
        refill(g, p->shapes[t].lane);
        for (uint32_t i = g->succ_first[t]; i < g->succ_first[t + 1]; i++) {
            if (--g->waits[g->succ[i]] == 0) {
                make_ready(g, g->succ[i]);
            }
        }
    }
}

/* Counting sort by how far the first receiver lies behind the source: neighbours in the list then
 * start with different receivers. */
static void index_spread(struct greedy *g) {
    const struct problem *p = g->p;
    uint32_t *first = ARENA_ARRAY(p->a, uint32_t, TARGET_TILES + 1);
    for (uint32_t t = 0; t < p->count; t++) {
        first[rotation(p, t) + 1]++;
    }
    for (uint32_t i = 0; i < TARGET_TILES; i++) {
        first[i + 1] += first[i];
    }
    g->spread = ARENA_ARRAY(p->a, uint32_t, p->count);
    for (uint32_t t = 0; t < p->count; t++) {
        g->spread[first[rotation(p, t)]++] = t;
    }
}

struct policy {
    bool is_directional;
    uint32_t weight;
};

static const struct policy policies[] = {
    {true, 16}, {false, 16}, {true, 64}, {true, 4}, {false, 64}, {true, 32}, {false, 4}, {true, 0},
};

#define POLICIES ((uint32_t)(sizeof policies / sizeof policies[0]))

struct effort {
    uint32_t policies, rounds; /* rounds with bias after the policies */
};

static uint32_t legs_of(const struct problem *p) {
    uint32_t legs = 0;
    for (uint32_t t = 0; t < p->count; t++) {
        legs += p->shapes[t].leg_count;
    }
    return legs;
}

static struct effort effort_of(const struct problem *p) {
    uint32_t n = p->options->effort;
    if (n != 0) {
        return (struct effort){n < POLICIES ? n : POLICIES, n > POLICIES ? n - POLICIES : 0};
    }
    uint32_t legs = legs_of(p);
    if (legs <= 2048) {
        return (struct effort){POLICIES, 8};
    }
    if (legs <= SEARCH_LEGS) {
        return (struct effort){4, 4};
    }
    return (struct effort){legs <= MANY_LEGS ? 2 : 1, legs <= 32768 ? 2 : 0};
}

/* Lanes that end in the last eighth get more weight, the later the more. */
static void raise_bias(struct greedy *g) {
    const struct problem *p = g->p;
    int32_t horizon = lanes_horizon(p);
    int32_t from = horizon - horizon / 8;
    for (uint32_t i = 0; i < p->lane_count; i++) {
        const struct lane *l = &p->lanes[i];
        g->send_bias[i] += l->send_end > from ? (uint32_t)(l->send_end - from) / 8 : 0;
        g->receive_bias[i] += l->payload_end > from ? (uint32_t)(l->payload_end - from) / 8 : 0;
    }
}

static void set_policy(struct greedy *g, uint32_t policy) {
    g->is_directional = policies[policy].is_directional;
    g->weight = policies[policy].weight;
}

static void make_greedy(struct greedy *g, struct problem *p) {
    *g = (struct greedy){
        .p = p,
        .window = p->count <= 32768 ? WINDOW_WIDE : WINDOW_NARROW,
        .heap = ARENA_ARRAY(p->a, struct entry, (size_t)p->count + 1),
        .offset = ARENA_ARRAY(p->a, int32_t, p->count),
        .keyed_at = ARENA_ARRAY(p->a, uint32_t, p->count),
        .waits = ARENA_ARRAY(p->a, uint32_t, p->count),
        .next = ARENA_ARRAY(p->a, uint32_t, p->count),
        .queue_head = ARENA_ARRAY(p->a, uint32_t, p->lane_count),
        .queue_tail = ARENA_ARRAY(p->a, uint32_t, p->lane_count),
        .open = ARENA_ARRAY(p->a, uint32_t, p->lane_count),
        .send_bias = ARENA_ARRAY(p->a, uint32_t, p->lane_count),
        .receive_bias = ARENA_ARRAY(p->a, uint32_t, p->lane_count),
    };
    index_spread(g);
    index_successors(g);
}

static void place(struct problem *p, const uint32_t *order) {
    lanes_reset(p);
    for (uint32_t i = 0; i < p->count; i++) {
        lane_insert(p, order[i], lane_settle(p, order[i], dependency_start(p, order[i])));
    }
}

/* Near enough to the bound that a large phase need not be searched further. */
static int32_t good_enough(const struct problem *p) {
    uint32_t legs = legs_of(p);
    int32_t part = legs > MANY_LEGS ? 32 : 64;
    return p->latency_bound + (legs > SEARCH_LEGS ? p->latency_bound / part : 0);
}

void order_choose(struct problem *p, uint32_t *order) {
    uint32_t *tried = ARENA_ARRAY(p->a, uint32_t, p->count);
    int32_t best = INT32_MAX, enough = good_enough(p);
    if (order_waves(p, tried)) {
        place(p, tried);
        best = lanes_horizon(p);
        memcpy(order, tried, p->count * sizeof *order);
    }
    if (best <= enough) {
        return;
    }
    struct greedy g;
    make_greedy(&g, p);
    struct effort effort = effort_of(p);
    uint32_t best_policy = 0;
    int32_t best_greedy = INT32_MAX;
    for (uint32_t i = 0; i < effort.policies + effort.rounds && best > enough; i++) {
        if (i >= effort.policies) { /* the first round learns from the last policy's lanes */
            raise_bias(&g);
        }
        set_policy(&g, i < effort.policies ? i : best_policy);
        run(&g, tried);
        int32_t horizon = lanes_horizon(p);
        if (horizon < best_greedy) {
            best_greedy = horizon;
            best_policy = i < effort.policies ? i : best_policy;
        }
        if (horizon < best) {
            best = horizon;
            memcpy(order, tried, p->count * sizeof *order);
        }
    }
}
