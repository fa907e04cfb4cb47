/* The search: see plan.h. A partial plan (struct state) holds the distribution of each matrix made
 * so far, what parameters take on each tile, and its cost; extending it by each entry of a step's
 * menu and keeping the cheapest of each kind gives the partial plans after that step. */
#include "plan/plan_internal.h"

#include <stdlib.h>
#include <string.h>

struct choice {
    uint32_t m, n, k;
    bool w_region1;
    const struct plan_dist *dist;
    const struct plan_dist *input; /* of a graph input that the step reads first, or NULL */
    uint64_t compute, exchange;
};

struct state {
    const struct plan_dist **dist; /* by matrix */
    uint32_t *level;               /* by matrix: superstep whose compute makes it, from 1; inputs 0 */
    uint32_t *resident;            /* by tile: parameter bytes */
    uint32_t *region1;             /* by tile: of them in region 1 */
    uint32_t levels;               /* supersteps with an exchange so far */
    uint64_t cost, exchange;
    uint64_t rank;                 /* cost, and the price of its parameter bytes */
    struct footprint most;         /* over the steps so far; resident unused */
    const struct state *before;
    struct choice choice;          /* of the last step */
};

struct search {
    const struct plan *plan; /* fused */
    uint32_t tiles;
    struct arena *arena;
    struct dist_pool pool;
    struct state *states, *next;
    uint32_t count, next_count, next_cap;
    uint32_t *last_use; /* by matrix: last step that reads it; outputs: step_count */
    uint64_t work;
    uint64_t byte_price;     /* 1/256 cycles a parameter byte: 0 until a plan does not fit */
    uint64_t limit0, limit1; /* bytes of the two regions that may be filled */
    uint64_t least_bytes; /* of the step at hand, over all rejected choices: on its fullest tile */
    uint64_t least_part[3]; /* of them: parameters of earlier steps, of this one, operands */
};

static const struct plan_matrix *matrix(const struct search *q, uint32_t at)
{
    return &q->plan->matrices[at];
}

struct draft { /* a choice with what it does to a state, before copying anything */
    struct choice c;
    uint32_t level;
    uint32_t new_levels;
    uint64_t cost, exchange, rank;
    struct footprint bytes, most;
    const struct state *from;
    uint64_t kind; /* hash of the live distributions */
};

static bool same_operand(const struct plan_dist *source, const struct plan_step *s,
    const struct choice *c, struct dist_pool *pool)
{
    return c->n == 1 &&
        plan_dist_equal(source, dist_operand(pool, s->rows, s->groups, c->m, c->n, c->k));
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Whether residents of both regions leave room for the largest transients of any step so far. */
static bool has_room(const struct search *q, const struct footprint *most, uint64_t resident0,
    uint64_t resident1)
{
    uint64_t used1 = resident1 + most->region1;
    if (resident0 > q->limit0 || used1 > q->limit1) {
        return false;
    }
    uint64_t left0 = q->limit0 - resident0, left1 = q->limit1 - used1;
    return most->largest <= larger(left0, left1) &&
        most->transient - most->region1 <= left0 + left1;
}

/* Remembers the choice that needs least on the fullest tile, for the message when none fits. */
static void note_least(struct search *q, uint64_t before, uint64_t own, uint64_t operands)
{
    if (before + own + operands < q->least_bytes) {
        q->least_bytes = before + own + operands;
        q->least_part[0] = before;
        q->least_part[1] = own;
        q->least_part[2] = operands;
    }
}

/* Memory of the draft's tiles; false when one is over a limit. Weights go to region 1 while there
 * is room on every tile of the step, else to region 0. */
static bool fits(struct search *q, const struct plan_step *s, struct draft *d)
{
    const struct state *from = d->from;
    uint32_t used = s->kind == PLAN_GEMM ? d->c.m * d->c.n * d->c.k : q->tiles;
    d->most = (struct footprint){.transient = larger(d->bytes.transient, from->most.transient),
        .region1 = larger(d->bytes.region1, from->most.region1),
        .largest = larger(d->bytes.largest, from->most.largest)};
    for (int region = 1; region >= 0; region--) {
        bool good = true;
        for (uint32_t t = 0; t < q->tiles && good; t++) {
            uint64_t own = t < used ? d->bytes.resident : 0;
            uint64_t one = from->region1[t] + (region == 1 ? own : 0);
            uint64_t zero = from->resident[t] - from->region1[t] + (region == 0 ? own : 0);
            good = has_room(q, &d->most, zero, one);
        }
        d->c.w_region1 = region == 1;
        if (good) {
            return true;
        }
    }
    note_least(q, from->resident[0], d->bytes.resident, d->most.transient);
    return false;
}

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9E3779B97F4A7C15ull;
    return h ^ h >> 29;
}

/* Kind of a state: cut of every matrix still to be read. Content, not addresses (R22). */
static uint64_t dist_kind(const struct plan_dist *d)
{
    uint64_t h = mix(mix(0, d->m), d->n);
    for (uint32_t i = 0; i < d->m * d->n; i++) {
        h = mix(h, d->tile[i]);
    }
    for (uint32_t j = 0; j <= d->n; j++) {
        h = mix(h, d->panel_bound[j]);
    }
    return h;
}

static uint64_t draft_kind(const struct search *q, uint32_t step, const struct draft *d)
{
    const struct plan_step *s = &q->plan->steps[step];
    uint64_t h = 0;
    if (step + 1 == q->plan->step_count) { /* finalists may differ in the last step alone */
        h = mix(mix(mix(h, d->c.m), d->c.n), d->c.k);
    }
    for (uint32_t i = 0; i < q->plan->matrix_count; i++) {
        const struct plan_dist *dist = d->from->dist[i];
        if (i == s->out) {
            dist = d->c.dist;
        } else if (i == s->in[0] && d->c.input != NULL) {
            dist = d->c.input;
        }
        if (dist != NULL && q->last_use[i] > step) {
            h = mix(mix(h, i), dist_kind(dist));
        }
    }
    return h;
}

/* Puts a draft among the next states, which are sorted by rank: the cheapest PLAN_PER_KIND of its
 * kind, at most `next_cap` in all. */
static void offer(struct search *q, struct draft *list, uint32_t step, struct draft d)
{
    d.kind = draft_kind(q, step, &d);
    uint32_t same = 0, at = q->next_count;
    for (uint32_t i = 0; i < q->next_count && same < PLAN_PER_KIND; i++) {
        if (list[i].kind == d.kind) {
            if (list[i].from == d.from && list[i].c.m == d.c.m && list[i].c.n == d.c.n &&
                list[i].c.k == d.c.k) {
                return; /* the same choice met twice */
            }
            same++;
            at = i; /* the dearest of the kind once they are all counted */
        }
    }
    if (same < PLAN_PER_KIND && q->next_count < q->next_cap) {
        at = q->next_count++;
    } else {
        at = same < PLAN_PER_KIND ? q->next_count - 1 : at;
        if (list[at].rank <= d.rank) {
            return;
        }
    }
    while (at > 0 && list[at - 1].rank > d.rank) {
        list[at] = list[at - 1];
        at--;
    }
    list[at] = d;
}

static void finish_draft(struct search *q, struct draft *list, uint32_t step, struct draft d,
    uint64_t moved, uint32_t avail)
{
    const struct state *from = d.from;
    d.level = avail + (moved > 0 ? 1 : 0);
    uint32_t levels = d.level + (d.c.k > 1 ? 1 : 0);
    d.new_levels = levels > from->levels ? levels : from->levels;
    d.c.exchange += moved;
    d.exchange = from->exchange + d.c.exchange +
        (uint64_t)PLAN_SYNC_CYCLES * (d.new_levels - from->levels);
    d.cost = from->cost + d.c.compute + (d.exchange - from->exchange);
    d.rank = from->rank + (d.cost - from->cost) + q->byte_price * d.bytes.resident / 256;
    d.level = levels;
    q->work++;
    offer(q, list, step, d);
}

static void extend_gemm(struct search *q, struct draft *list, uint32_t step,
    const struct state *from, const struct grid *menu, uint32_t menu_count)
{
    const struct plan_step *s = &q->plan->steps[step];
    const struct plan_dist *source = from->dist[s->in[0]];
    for (uint32_t i = 0; i < menu_count; i++) {
        const struct grid *g = &menu[i];
        struct draft d = {.from = from, .c = {.m = g->m, .n = g->n, .k = g->k}};
        d.bytes = cost_gemm_bytes(s, g);
        if (source != NULL) { /* its home blocks live beside what is gathered from them */
            d.bytes.transient += 32ull * cost_ceil(s->rows, source->m) *
                cost_ceil(s->groups, source->n);
        }
        if (!fits(q, s, &d)) {
            continue;
        }
        uint64_t reduce_exchange, reduce_compute;
        cost_gemm_reduce(s, g, &reduce_exchange, &reduce_compute);
        d.c.compute = cost_gemm_compute(s, g, d.c.w_region1) + reduce_compute;
        d.c.exchange = reduce_exchange - (g->k > 1 ? PLAN_SYNC_CYCLES : 0);
        d.c.dist = dist_grid(&q->pool, s->rows, s->panels, g->m, g->n, g->k);
        uint64_t moved = 0;
        if (source == NULL) {
            d.c.input = dist_operand(&q->pool, s->rows, s->groups, g->m, g->n, g->k);
            moved = g->n > 1 ? cost_move(d.c.input, s->rows, s->groups, g->m, g->k) : 0;
        } else if (!same_operand(source, s, &d.c, &q->pool)) {
            moved = cost_move(source, s->rows, s->groups, g->m, g->k);
        }
        finish_draft(q, list, step, d, moved, from->level[s->in[0]]);
    }
}

/* One choice of an elementwise step or a softmax: the result's distribution is `dist`. */
static void extend_one(struct search *q, struct draft *list, uint32_t step,
    const struct state *from, const struct plan_dist *dist)
{
    const struct plan_step *s = &q->plan->steps[step];
    struct draft d = {.from = from, .c = {.m = dist->m, .n = dist->n, .k = 1, .dist = dist}};
    uint32_t rows = 0, panels = 0;
    for (uint32_t i = 0; i < dist->m; i++) {
        uint32_t part = dist->row_bound[i + 1] - dist->row_bound[i];
        rows = part > rows ? part : rows;
    }
    for (uint32_t j = 0; j < dist->n; j++) {
        uint32_t part = dist->panel_bound[j + 1] - dist->panel_bound[j];
        panels = part > panels ? part : panels;
    }
    uint64_t moved = 0;
    uint32_t avail = 0;
    for (int o = 0; o < 2; o++) {
        if (s->in[o] == PLAN_NONE || matrix(q, s->in[o])->kind == PLAN_CONSTANT) {
            continue;
        }
        const struct plan_dist *source = from->dist[s->in[o]];
        uint32_t level = from->level[s->in[o]];
        if (source == NULL) {
            if (o == 0) {
                d.c.input = dist;
            } else {
                continue; /* a second input still without a place takes this distribution */
            }
        } else if (!plan_dist_equal(source, dist)) {
            moved += cost_move(source, s->rows, s->panels, dist->m, dist->n);
        }
        avail = level > avail ? level : avail;
    }
    uint64_t block = 32ull * rows * panels;
    uint32_t blocks = 2 + (s->in[1] != PLAN_NONE && s->in[1] != s->in[0] ? 1 : 0) + (moved > 0);
    d.bytes = (struct footprint){.transient = blocks * block + 256, .largest = block};
    if (s->in[1] != PLAN_NONE && matrix(q, s->in[1])->kind == PLAN_CONSTANT) {
        d.bytes.resident = block;
    }
    if (!fits(q, s, &d)) {
        return;
    }
    d.c.compute = cost_local(s, rows, panels);
    finish_draft(q, list, step, d, moved, avail);
}

static void extend_local(
    struct search *q, struct draft *list, uint32_t step, const struct state *from)
{
    const struct plan_step *s = &q->plan->steps[step];
    bool is_free = true;
    for (int o = 0; o < 2; o++) {
        const struct plan_dist *source = s->in[o] != PLAN_NONE ? from->dist[s->in[o]] : NULL;
        if (source != NULL) {
            is_free = false;
            if (s->kind != PLAN_SOFTMAX || source->n == 1) {
                extend_one(q, list, step, from, source);
            }
        }
    }
    if (s->kind != PLAN_SOFTMAX && !is_free) {
        return;
    }
    uint32_t menu[48];
    uint32_t count = plan_row_menu(s->rows, q->tiles, menu, 48);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t n = 1;
        if (s->kind != PLAN_SOFTMAX && i + 1 == count) {
            n = q->tiles / menu[i] < s->panels ? q->tiles / menu[i] : s->panels;
        }
        extend_one(q, list, step, from,
            dist_grid(&q->pool, s->rows, s->panels, menu[i], n > 0 ? n : 1, 1));
    }
}

static void adopt(struct search *q, struct state *to, uint32_t step, const struct draft *d)
{
    const struct plan_step *s = &q->plan->steps[step];
    uint32_t matrices = q->plan->matrix_count;
    const struct state *from = d->from;
    *to = *from;
    to->dist = arena_memdup(q->arena, from->dist, sizeof *from->dist * matrices);
    to->level = arena_memdup(q->arena, from->level, sizeof *from->level * matrices);
    to->resident = arena_memdup(q->arena, from->resident, sizeof *from->resident * q->tiles);
    to->region1 = arena_memdup(q->arena, from->region1, sizeof *from->region1 * q->tiles);
    to->before = from;
    to->choice = d->c;
    to->dist[s->out] = d->c.dist;
    to->level[s->out] = d->level;
    for (int o = 0; o < 2; o++) {
        if (s->in[o] != PLAN_NONE && to->dist[s->in[o]] == NULL &&
            matrix(q, s->in[o])->kind == PLAN_INPUT) {
            to->dist[s->in[o]] = d->c.input != NULL ? d->c.input : d->c.dist;
        }
    }
    uint32_t used = s->kind == PLAN_GEMM ? d->c.m * d->c.n * d->c.k : q->tiles;
    for (uint32_t t = 0; t < used; t++) {
        to->resident[t] += (uint32_t)d->bytes.resident;
        to->region1[t] += d->c.w_region1 ? (uint32_t)d->bytes.resident : 0;
    }
    to->levels = d->new_levels;
    to->cost = d->cost;
    to->rank = d->rank;
    to->exchange = d->exchange;
    to->most = d->most;
}

/* Why no choice of a step has room. A GEMM whose every grid is too large by itself never got into
 * the menu: its leanest ones are looked at again here. */
static int does_not_fit(struct search *q, const struct plan_step *s, struct err *err)
{
    if (s->kind == PLAN_GEMM && q->least_bytes == UINT64_MAX) {
        for (uint32_t n = 1; n <= s->panels && n <= q->tiles; n++) {
            uint32_t k = q->tiles / n < s->groups ? q->tiles / n : s->groups;
            struct grid g = {.m = 1, .n = n, .k = k};
            struct footprint f = cost_gemm_bytes(s, &g);
            note_least(q, 0, f.resident, f.transient);
        }
    }
    const struct graph_node *n = &q->plan->graph->nodes[s->node.n];
    uint64_t limit = q->limit0 + q->limit1;
    uint64_t excess = q->least_bytes > limit ? q->least_bytes - limit : 0;
    char over[64] = "but not in one piece of one memory region";
    if (excess > 0) {
        snprintf(over, sizeof over, "%llu too many", (unsigned long long)excess);
    }
    return err_at(err, ERR_DOES_NOT_FIT, n->pointer != NULL ? n->pointer : "",
        "node '%s' (%s) with %u rows, %u inner and %u columns on %u tiles: tile %u needs at least "
        "%llu bytes of the %llu there are, %s: parameters of earlier nodes %llu, of this node %llu, "
        "operands and results %llu; use more tiles or a smaller model",
        n->name != NULL ? n->name : "", graph_op_name(n->op), s->rows, s->inner, s->columns,
        q->tiles, target_physical((struct logical_tile){0}).n, (unsigned long long)q->least_bytes,
        (unsigned long long)limit, over, (unsigned long long)q->least_part[0],
        (unsigned long long)q->least_part[1], (unsigned long long)q->least_part[2]);
}

static int advance(struct search *q, uint32_t step, struct err *err)
{
    const struct plan_step *s = &q->plan->steps[step];
    struct grid menu[PLAN_MENU];
    uint32_t menu_count = 0;
    q->least_bytes = UINT64_MAX;
    if (s->kind == PLAN_GEMM) {
        menu_count = plan_gemm_menu(s, q->tiles, menu, PLAN_MENU, &q->work);
    }
    struct draft list[PLAN_BEAM];
    q->next_count = 0;
    q->next_cap = PLAN_BEAM;
    for (uint32_t i = 0; i < q->count; i++) {
        if (s->kind == PLAN_GEMM) {
            extend_gemm(q, list, step, &q->states[i], menu, menu_count);
        } else {
            extend_local(q, list, step, &q->states[i]);
        }
    }
    if (q->next_count == 0) {
        return does_not_fit(q, s, err);
    }
    struct state *made = ARENA_ARRAY(q->arena, struct state, q->next_count);
    for (uint32_t i = 0; i < q->next_count; i++) {
        adopt(q, &made[i], step, &list[i]);
    }
    q->states = made;
    q->count = q->next_count;
    return 0;
}

static void start(struct search *q)
{
    uint32_t matrices = q->plan->matrix_count;
    struct state *s = ARENA_NEW(q->arena, struct state);
    s->dist = ARENA_ARRAY(q->arena, const struct plan_dist *, matrices);
    s->level = ARENA_ARRAY(q->arena, uint32_t, matrices);
    s->resident = ARENA_ARRAY(q->arena, uint32_t, q->tiles);
    s->region1 = ARENA_ARRAY(q->arena, uint32_t, q->tiles);
    q->states = s;
    q->count = 1;
    q->last_use = ARENA_ARRAY(q->arena, uint32_t, matrices);
    for (uint32_t i = 0; i < q->plan->step_count; i++) {
        for (int o = 0; o < 2; o++) {
            if (q->plan->steps[i].in[o] != PLAN_NONE) {
                q->last_use[q->plan->steps[i].in[o]] = i;
            }
        }
    }
    for (uint32_t i = 0; i < q->plan->graph->output_count; i++) {
        q->last_use[q->plan->outputs[i]] = q->plan->step_count;
    }
}

/* Writes a complete state's choices into a copy of the fused plan. */
static void settle(struct search *q, const struct state *s, struct plan *to)
{
    struct arena *a = q->arena;
    *to = *q->plan;
    to->tiles = q->tiles;
    to->steps = arena_memdup(a, to->steps, sizeof *to->steps * to->step_count);
    to->matrices = arena_memdup(a, to->matrices, sizeof *to->matrices * to->matrix_count);
    for (uint32_t i = 0; i < to->matrix_count; i++) {
        struct plan_matrix *x = &to->matrices[i];
        x->dist = x->kind == PLAN_CONSTANT ? NULL : s->dist[i];
        if (x->kind == PLAN_INPUT && x->dist == NULL) { /* read by nobody, or an output as it is */
            uint32_t m = x->rows < q->tiles ? x->rows : q->tiles;
            x->dist = dist_grid(&q->pool, x->rows, x->panels, m, 1, 1);
        }
    }
    const struct state *at = s;
    for (uint32_t i = to->step_count; i-- > 0; at = at->before) {
        struct plan_step *step = &to->steps[i];
        const struct choice *c = &at->choice;
        step->m = c->m;
        step->n = c->n;
        step->k = c->k;
        step->w_region1 = c->w_region1;
        step->dist = c->dist;
        step->compute_cycles = c->compute;
        step->exchange_cycles = c->exchange;
        step->group_bound = dist_bounds(a, step->groups, step->k);
        step->panel_bound = dist_bounds(a, step->panels, step->n);
        uint32_t used = step->kind == PLAN_GEMM ? c->m * c->n * c->k : 0;
        for (uint32_t t = 0; t < c->dist->m * c->dist->n; t++) {
            used = c->dist->tile[t] + 1u > used ? c->dist->tile[t] + 1u : used;
        }
        to->active_tiles = used > to->active_tiles ? used : to->active_tiles;
    }
    to->estimated_cycles = s->cost;
    to->estimated_exchange_cycles = s->exchange;
    to->estimated_phases = s->levels;
    uint32_t worst = 0;
    for (uint32_t t = 0; t < q->tiles; t++) {
        worst = s->resident[t] > worst ? s->resident[t] : worst;
    }
    to->peak_bytes = worst + (uint32_t)s->most.transient;
}

/* Plans that make the same choice everywhere count once. */
static bool is_alike(const struct plan *a, const struct plan *b)
{
    uint32_t different = 0;
    for (uint32_t i = 0; i < a->step_count; i++) {
        different += a->steps[i].m != b->steps[i].m || a->steps[i].n != b->steps[i].n ||
            a->steps[i].k != b->steps[i].k;
    }
    return different == 0;
}

static int search(struct search *q, uint64_t byte_price, struct err *err)
{
    q->byte_price = byte_price;
    start(q);
    for (uint32_t i = 0; i < q->plan->step_count; i++) {
        int rc = advance(q, i, err);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

static int by_cost(const void *pa, const void *pb)
{
    const struct plan *a = pa, *b = pb;
    if (a->estimated_cycles != b->estimated_cycles) {
        return a->estimated_cycles < b->estimated_cycles ? -1 : 1;
    }
    return a->peak_bytes < b->peak_bytes ? -1 : a->peak_bytes > b->peak_bytes;
}

int plan_build(const struct graph *g, uint32_t tiles, uint32_t fill_percent, struct arena *a,
    struct plan_set **ret, struct err *err)
{
    struct plan *fused;
    int rc = plan_fuse(g, a, &fused, err);
    if (rc != 0) {
        return rc;
    }
    struct search q = {.plan = fused, .tiles = tiles, .arena = a, .pool = {a, NULL}};
    q.limit0 = (uint64_t)PLAN_REGION0_BYTES * fill_percent / 100;
    q.limit1 = (uint64_t)PLAN_REGION1_BYTES * fill_percent / 100;
    /* The fastest choice of each step may fill tiles so that later steps have no room: then bytes
     * get a price, a higher one each time, until the plan fits or saving does not help. */
    rc = search(&q, 0, err);
    for (uint64_t price = 4; rc == -ERR_DOES_NOT_FIT && price <= 4096; price *= 8) {
        rc = search(&q, price, err);
    }
    if (rc != 0) {
        return rc;
    }
    struct plan_set *set = ARENA_NEW(a, struct plan_set);
    set->finalists = ARENA_ARRAY(a, struct plan, PLAN_MAX_FINALISTS);
    for (uint32_t i = 0; i < q.count && set->count < PLAN_MAX_FINALISTS; i++) {
        struct plan *p = &set->finalists[set->count];
        settle(&q, &q.states[i], p);
        bool is_new = true;
        for (uint32_t j = 0; j < set->count; j++) {
            is_new = is_new && !is_alike(p, &set->finalists[j]);
        }
        set->count += is_new ? 1 : 0;
    }
    qsort(set->finalists, set->count, sizeof *set->finalists, by_cost);
    set->candidates = q.work;
    *ret = set;
    return 0;
}

struct kernel_variant plan_variant(const struct plan_step *s)
{
    struct kernel_variant v = {.act = s->act};
    switch (s->kind) {
    case PLAN_GEMM:
        v.id = KERNEL_GEMM_AMP;
        v.w_region1 = s->w_region1;
        v.out_f32 = s->k > 1;
        v.has_bias = s->k == 1 && s->row.n != NO_VALUE.n;
        v.act = s->k == 1 ? s->act : ACT_NONE;
        break;
    case PLAN_ADD:
        v.id = KERNEL_ADD;
        break;
    case PLAN_ADD_ROW:
        v.id = KERNEL_ADD_ROW;
        break;
    case PLAN_UNARY:
        v.id = KERNEL_UNARY;
        break;
    case PLAN_SOFTMAX:
    case PLAN_KINDS:
        v.id = KERNEL_SOFTMAX;
        break;
    }
    return v;
}

struct kernel_variant plan_reduce_variant(const struct plan_step *s)
{
    return (struct kernel_variant){
        .id = KERNEL_REDUCE, .act = s->act, .has_bias = s->row.n != NO_VALUE.n};
}

uint32_t plan_gemm_tile(const struct plan_step *s, uint32_t i, uint32_t j, uint32_t kk)
{
    return (i * s->n + j) * s->k + kk;
}

void plan_reduce_share(const struct plan_step *s, uint32_t j, uint32_t kk, uint32_t *ret_first,
    uint32_t *ret_last)
{
    uint32_t first = s->panel_bound[j];
    uint32_t width = s->panel_bound[j + 1] - first;
    uint32_t parts = s->k < width ? s->k : width;
    if (kk >= parts) {
        *ret_first = *ret_last = first + width;
        return;
    }
    *ret_first = first + (uint32_t)((uint64_t)width * kk / parts);
    *ret_last = first + (uint32_t)((uint64_t)width * (kk + 1) / parts);
}
