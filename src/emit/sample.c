/* Cycle samples between the first and the last of a run: which intervals a tile's program has, how
 * many words it needs for the marks between them, and the package's profile plan.
 *
 * A program opens an interval whenever its work changes: an exchange phase, the kernel calls of a
 * level (all of them, or each alone), barriers that it sits out. supervisor.c does so through
 * emit_open_interval(), so that plan and code cannot disagree. The mark is the cycle counter,
 * stored as the interval opens; the first interval needs none. Words lie at the end of the tables'
 * area, and as many are set aside as the program can need whatever its exchange rows turn out to
 * be: one for each phase of the whole program, and one for each group of calls of the tile. A tile
 * that would need more than EMIT_MAX_MARKS stops sampling: its last interval is `rest`.
 *
 * In a loop each turn stores its marks over those of the turn before: the last one is what a
 * profile shows, and an interval `repeat` before it stands for all others. */
#include "emit/emit_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/vec.h"

void emit_samples_build(
    const struct tile_graph *tg, const struct emit_index *index, enum emit_profile profile,
    struct arena *a, struct emit_samples **ret) {
    struct emit_samples *s = ARENA_NEW(a, struct emit_samples);
    s->profile = profile;
    s->words = ARENA_ARRAY(a, uint32_t, TARGET_TILES);
    for (uint32_t t = 0; t < TARGET_TILES && profile != EMIT_PROFILE_OFF; t++) {
        if (!tg->is_active[t]) {
            continue;
        }
        uint32_t words = tg->exchange_phases, level = UINT32_MAX;
        for (uint32_t i = index->tile_first[t]; i < index->tile_first[t + 1]; i++) {
            const struct lower_vertex *v = &tg->vertices[index->vertex[i]];
            words += profile == EMIT_PROFILE_KERNEL || v->level != level;
            level = v->level;
        }
        s->words[t] = words < EMIT_MAX_MARKS ? words : EMIT_MAX_MARKS;
    }
    *ret = s;
}

uint32_t emit_mark_words(const struct emit_samples *s, uint32_t logical) {
    return s != NULL ? s->words[logical] : 0;
}

uint32_t emit_marks_addr(const struct emit_samples *s, uint32_t logical) {
    return RT_TABLES_LIMIT - ((4 * emit_mark_words(s, logical) + 7) & ~7u);
}

bool emit_open_interval(
    struct emit_trace *t, struct arena *a, uint32_t words, const struct emit_interval *x) {
    bool is_full = t->count > words;
    if (is_full) {
        struct emit_interval *last = &t->intervals[t->count - 1];
        last->kind = STEP_REST;
        last->last_level = x->last_level > last->last_level ? x->last_level : last->last_level;
        if (x->vertex_count > 0) { /* calls follow one another in the index */
            last->vertex_first = last->vertex_count > 0 ? last->vertex_first : x->vertex_first;
            last->vertex_count = x->vertex_first + x->vertex_count - last->vertex_first;
        }
        return false;
    }
    if (t->count == t->cap) {
        uint32_t cap = t->cap < 16 ? 16 : 2 * t->cap;
        struct emit_interval *grown = ARENA_ARRAY(a, struct emit_interval, cap);
        for (uint32_t i = 0; i < t->count; i++) {
            grown[i] = t->intervals[i];
        }
        t->intervals = grown;
        t->cap = cap;
    }
    t->intervals[t->count++] = *x;
    return t->count > 1;
}

/* ---- The package's plan --------------------------------------------------------------------- */

#define BUCKETS 4096u

struct known_step {
    struct known_step *next;
    uint32_t id;
};

struct planner {
    const struct emit_context *c;
    struct arena *arena;
    VEC(struct package_step) steps;
    VEC(struct package_kernel_call) calls;
    struct known_step *buckets[BUCKETS];
    char symbol[48];
};

static uint32_t mix(uint32_t h, uint32_t v) {
    h = (h ^ v) * 16777619u;
    return h ^ h >> 13;
}

static bool same_call(const struct package_kernel_call *a, const struct package_kernel_call *b) {
    return a->operation == b->operation && a->node == b->node && a->predicted == b->predicted &&
           a->useful == b->useful && strcmp(a->kernel, b->kernel) == 0;
}

static struct package_kernel_call call_of(struct planner *p, uint32_t vertex) {
    const struct tile_graph *tg = p->c->tg;
    const struct lower_vertex *v = &tg->vertices[vertex];
    const struct plan_step *s = &tg->plan->steps[v->step];
    const struct graph *g = tg->plan->graph;
    return (struct package_kernel_call){
        .operation = v->step,
        .node = s->node.n,
        .op = s->node.n < g->node_count ? graph_op_name(g->nodes[s->node.n].op)
                                        : plan_kind_name(s->kind),
        .kernel = kernel_symbol(&v->variant, p->symbol, sizeof p->symbol),
        .predicted = v->cycles,
        .useful = v->useful};
}

static uint64_t received_bytes(const struct tile_graph *tg, uint32_t level) {
    const struct lower_level *l = &tg->levels[level];
    uint64_t words = 0;
    for (uint32_t i = l->move_first; i < l->move_first + l->move_count; i++) {
        words += (uint64_t)tg->moves[i].words * tg->moves[i].dest_count;
    }
    return 4 * words;
}

/* Cycles of all turns of the loop but the last, whose samples are kept. */
static uint32_t earlier_turns(const struct emit_context *c) {
    const struct lower_loop *loop = &c->tg->loop;
    uint64_t turn = 0;
    for (uint32_t i = loop->level_first; i < loop->level_first + loop->level_count; i++) {
        const struct exchange_level *x = &c->exchange->levels[i];
        turn += c->tg->levels[i].compute_cycles;
        turn += x->transfer_count > 0 ? x->phase.horizon + PLAN_SYNC_CYCLES : 0;
    }
    turn *= loop->turns - 1;
    return turn < UINT32_MAX ? (uint32_t)turn : UINT32_MAX;
}

static struct package_step head_of(struct planner *p, const struct emit_interval *x) {
    struct package_step s = {
        .kind = x->kind,
        .level = x->level,
        .last_level = x->last_level,
        .first_call = (uint32_t)p->calls.len,
        .call_count = x->vertex_count};
    if (x->kind == STEP_EXCHANGE) {
        const struct exchange_phase *phase = &p->c->exchange->levels[x->level].phase;
        s.horizon = phase->horizon;
        s.bound = phase->latency_bound;
        s.predicted = phase->horizon + PLAN_SYNC_CYCLES;
        s.bytes = received_bytes(p->c->tg, x->level);
    }
    if (x->kind == STEP_REPEAT) {
        s.predicted = earlier_turns(p->c);
        s.horizon = p->c->tg->loop.turns - 1;
    }
    for (uint32_t i = 0; i < x->vertex_count; i++) {
        s.predicted += p->c->tg->vertices[p->c->index->vertex[x->vertex_first + i]].cycles;
    }
    return s;
}

static bool same_step(
    struct planner *p, const struct package_step *known, const struct package_step *s,
    const struct emit_interval *x) {
    bool same = known->kind == s->kind && known->level == s->level &&
                known->last_level == s->last_level && known->call_count == s->call_count;
    for (uint32_t i = 0; same && i < x->vertex_count; i++) {
        struct package_kernel_call c = call_of(p, p->c->index->vertex[x->vertex_first + i]);
        same = same_call(&p->calls.data[known->first_call + i], &c);
    }
    return same;
}

static uint32_t step_of(struct planner *p, const struct emit_interval *x) {
    struct package_step s = head_of(p, x);
    uint32_t h = mix(mix(mix(mix(17, (uint32_t)s.kind), s.level), s.last_level), s.call_count);
    for (uint32_t i = 0; i < x->vertex_count; i++) {
        const struct lower_vertex *v =
            &p->c->tg->vertices[p->c->index->vertex[x->vertex_first + i]];
        h = mix(mix(h, v->step), v->cycles);
    }
    struct known_step **head = &p->buckets[h % BUCKETS];
    for (struct known_step *k = *head; k != NULL; k = k->next) {
        if (same_step(p, &p->steps.data[k->id], &s, x)) {
            return k->id;
        }
    }
    struct known_step *k = ARENA_NEW(p->arena, struct known_step);
    *k = (struct known_step){*head, (uint32_t)p->steps.len};
    *head = k;
    for (uint32_t i = 0; i < x->vertex_count; i++) {
        struct package_kernel_call c = call_of(p, p->c->index->vertex[x->vertex_first + i]);
        c.step = k->id;
        c.kernel = arena_strdup(p->arena, c.kernel);
        vec_push(p->arena, &p->calls, c);
    }
    vec_push(p->arena, &p->steps, s);
    return k->id;
}

void emit_profile_plan(
    const struct emit_context *c, const struct emit_code *code, struct arena *a,
    struct package *p) {
    if (c->samples == NULL || c->samples->profile == EMIT_PROFILE_OFF) {
        return;
    }
    struct planner *planner = ARENA_NEW(a, struct planner);
    planner->c = c;
    planner->arena = a;
    const struct emit_host *h = c->host;
    p->traces = ARENA_ARRAY(a, struct package_trace, h->participant_count);
    uint32_t word = 0;
    for (uint32_t rank = 0; rank < h->participant_count; rank++) {
        struct physical_tile tile = {h->participants[rank]};
        uint32_t t = target_logical(tile).n;
        const struct emit_trace *trace = &code->traces[t];
        uint32_t *steps = ARENA_ARRAY(a, uint32_t, trace->count);
        for (uint32_t i = 0; i < trace->count; i++) {
            steps[i] = step_of(planner, &trace->intervals[i]);
        }
        p->traces[rank] =
            (struct package_trace){.first = word, .count = trace->count, .steps = steps};
        word += c->samples->words[t];
    }
    p->trace_count = h->participant_count;
    p->steps = planner->steps.data;
    p->step_count = (uint32_t)planner->steps.len;
    p->calls = planner->calls.data;
    p->call_count = (uint32_t)planner->calls.len;
}
