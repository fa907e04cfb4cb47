/* The search: see plan.h. A partial plan (struct state) holds the distribution of each matrix made
 * so far, what parameters take on each tile, and its cost; extending it by each entry of a step's
 * menu (extend_gemm.c, extend_local.c) and keeping the cheapest of each kind gives the partial
 * plans after that step. */
#include "plan/search_internal.h"

#include <stdlib.h>
#include <string.h>

static const uint32_t no_bound[1];
const struct plan_dist search_deferred = {0, 0, no_bound, no_bound, NULL, 4};

/* Whether residents of both regions leave room for the largest transients of any step so far. */
static bool has_room(
    const struct search *q, const struct footprint *most, uint64_t resident0, uint64_t resident1) {
    uint64_t used1 = resident1 + most->region1;
    if (resident0 > q->limit0 || used1 > q->limit1) {
        return false;
    }
    uint64_t left0 = q->limit0 - resident0, left1 = q->limit1 - used1;
    return most->largest <= larger(left0, left1) &&
           most->transient - most->region1 <= left0 + left1;
}

bool search_fits(struct search *q, const struct plan_step *s, struct draft *d) {
    const struct state *from = d->from;
    d->bytes.resident *= plan_param_copies(q->plan, (uint32_t)(s - q->plan->steps));
    uint32_t used = s->kind == PLAN_GEMM ? d->c.m * d->c.n * d->c.k : q->tiles;
    d->most = (struct footprint){
        .transient = larger(d->bytes.transient, from->most.transient),
        .region1 = larger(d->bytes.region1, from->most.region1),
        .largest = larger(d->bytes.largest, from->most.largest)};
    for (int region = 1; region >= 0; region--) {
        bool good = true;
        for (uint32_t t = 0; t < q->tiles && good; t++) {
            uint64_t own = t - d->c.form.first < used ? d->bytes.resident : 0;
            uint64_t one = from->region1[t] + (region == 1 ? own : 0);
            uint64_t zero = from->resident[t] - from->region1[t] + (region == 0 ? own : 0);
            good = has_room(q, &d->most, zero, one);
        }
        d->c.w_region1 = region == 1;
        if (good) {
            return true;
        }
    }
    struct shortage x = {
        .before = from->resident[0],
        .own = d->bytes.resident,
        .transient = d->most.transient,
        .region1 = d->most.region1,
        .largest = d->most.largest};
    x.bytes = x.before + x.own + x.transient;
    q->least = x.bytes < q->least.bytes ? x : q->least;
    return false;
}

static uint64_t mix(uint64_t h, uint64_t v) {
    h = (h ^ v) * 0x9E3779B97F4A7C15ull;
    return h ^ h >> 29;
}

/* Kind of a state: cut of every matrix still to be read. Content, not addresses (R22). */
static uint64_t dist_kind(const struct plan_dist *d) {
    uint64_t h = mix(mix(mix(0, d->m), d->n), d->quads);
    for (uint32_t i = 0; i < d->m * d->n; i++) {
        h = mix(h, d->tile[i]);
    }
    for (uint32_t j = 0; j <= d->n; j++) {
        h = mix(h, d->panel_bound[j]);
    }
    return h;
}

static uint64_t draft_kind(const struct search *q, uint32_t step, const struct draft *d) {
    const struct plan_step *s = &q->plan->steps[step];
    uint64_t h = 0;
    if (step + 1 == q->plan->step_count) { /* finalists may differ in the last step alone */
        h = mix(mix(mix(h, d->c.m), d->c.n), d->c.k);
    }
    for (uint32_t i = 0; i < q->plan->matrix_count; i++) {
        const struct plan_dist *dist = d->from->dist[i];
        for (int o = 0; o < PLAN_OPERANDS && dist == NULL; o++) {
            dist = i == s->in[o] ? d->c.inputs[o] : NULL;
        }
        dist = i == s->out ? d->c.dist : dist;
        if (dist != NULL && q->last_use[i] > step) {
            h = mix(mix(h, i), dist_kind(dist));
        }
    }
    return h;
}

/* Puts a draft among the next states, which are sorted by rank: the cheapest PLAN_PER_KIND of its
 * kind, at most `next_cap` in all. */
static void offer(struct search *q, struct draft *list, uint32_t step, struct draft d) {
    d.kind = draft_kind(q, step, &d);
    uint32_t same = 0, at = q->next_count;
    for (uint32_t i = 0; i < q->next_count && same < PLAN_PER_KIND; i++) {
        if (list[i].kind == d.kind) {
            if (list[i].from == d.from && list[i].c.m == d.c.m && list[i].c.n == d.c.n &&
                list[i].c.k == d.c.k && plan_form_equal(&list[i].c.form, &d.c.form) &&
                list[i].c.is_deferred == d.c.is_deferred && list[i].c.fused == d.c.fused) {
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

void search_offer(
    struct search *q, struct draft *list, uint32_t step, struct draft d, uint64_t moved,
    uint32_t avail /* level at which all operands are there */) {
    const struct state *from = d.from;
    uint32_t turns = plan_step_turns(q->plan, step);
    d.level = avail;
    uint32_t levels = d.level + d.c.form.chunks - (d.c.form.chunks > 0) + (d.c.k > 1 ? 1 : 0);
    d.new_levels = levels > from->levels ? levels : from->levels;
    d.c.exchange += moved;
    uint64_t syncs = (uint64_t)PLAN_SYNC_CYCLES * (d.new_levels - from->levels);
    d.exchange = from->exchange + turns * (d.c.exchange + syncs);
    d.cost = from->cost + turns * d.c.compute + (d.exchange - from->exchange);
    d.ahead *= turns;
    d.rank = from->rank - from->ahead + d.ahead + (d.cost - from->cost) +
             q->byte_price * d.bytes.resident / 256;
    d.level = levels;
    q->work++;
    offer(q, list, step, d);
}

const struct plan_dist *search_rows_home(struct search *q, const struct plan_matrix *x) {
    uint32_t m = x->rows < q->tiles ? x->rows : q->tiles;
    return dist_grid(&q->pool, x->rows, x->panels, m, 1);
}

const struct choice *search_choice(const struct state *from, uint32_t step, uint32_t earlier) {
    for (uint32_t i = step; i > earlier + 1; i--) {
        from = from->before;
    }
    return &from->choice;
}

static void adopt(struct search *q, struct state *to, uint32_t step, const struct draft *d) {
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
    for (int o = 0; o < PLAN_OPERANDS; o++) {
        if (s->in[o] != PLAN_NONE && to->dist[s->in[o]] == NULL) {
            to->dist[s->in[o]] = d->c.inputs[o];
        }
    }
    uint32_t used = s->kind == PLAN_GEMM ? d->c.m * d->c.n * d->c.k : q->tiles;
    for (uint32_t t = d->c.form.first; t < d->c.form.first + used; t++) {
        to->resident[t] += (uint32_t)d->bytes.resident;
        to->region1[t] += d->c.w_region1 ? (uint32_t)d->bytes.resident : 0;
    }
    to->levels = d->new_levels;
    if (step + 1 == q->plan->repeat.first || s->kind == PLAN_CARRY) {
        to->base = to->levels;
    }
    to->cost = d->cost;
    to->rank = d->rank;
    to->ahead = d->ahead;
    to->exchange = d->exchange;
    to->most = d->most;
}

static int no_choice(const struct search *q, const struct plan_step *s, struct err *err) {
    const struct graph_node *n = &q->plan->graph->nodes[s->node.n];
    const char *pointer = n->pointer != NULL ? n->pointer : "";
    const char *name = n->name != NULL ? n->name : "";
    const struct shortage *x = &q->least;
    uint64_t there = q->limit0 + q->limit1;
    if (x->bytes == UINT64_MAX) {
        return err_at(
            err, ERR_DOES_NOT_FIT, pointer,
            "node '%s' (%s) with %u rows, %u inner and %u columns: no cut of it is small enough "
            "for the %llu bytes of each of %u tiles",
            name, graph_op_name(n->op), s->rows, s->inner, s->columns, (unsigned long long)there,
            q->tiles);
    }
    char missing[96] = "too many in one of the regions";
    if (x->bytes > there) {
        snprintf(missing, sizeof missing, "%llu too many", (unsigned long long)(x->bytes - there));
    }
    return err_at(
        err, ERR_DOES_NOT_FIT, pointer,
        "node '%s' (%s) with %u rows, %u inner and %u columns: tile %u (logical 0) of %u needs at "
        "least %llu bytes, %s: parameters before %llu, its own %llu, operands, result and scratch "
        "%llu (of them interleaved %llu, largest buffer %llu); there are %llu in region 0 and %llu "
        "in region 1",
        name, graph_op_name(n->op), s->rows, s->inner, s->columns,
        target_physical((struct logical_tile){0}).n, q->tiles, (unsigned long long)x->bytes,
        missing, (unsigned long long)x->before, (unsigned long long)x->own,
        (unsigned long long)x->transient, (unsigned long long)x->region1,
        (unsigned long long)x->largest, (unsigned long long)q->limit0,
        (unsigned long long)q->limit1);
}

static int advance(struct search *q, uint32_t step, struct err *err) {
    const struct plan_step *s = &q->plan->steps[step];
    struct grid menu[PLAN_MENU];
    uint32_t menu_count = 0;
    q->least = (struct shortage){.bytes = UINT64_MAX};
    if (s->kind == PLAN_GEMM) {
        /* A loop reads each turn's weights where they lie: they cannot be sent. */
        bool may_stream = !plan_param_varies(q->plan, step, PARAM_WEIGHTS);
        menu_count = plan_gemm_menu(s, q->options, may_stream, menu, PLAN_MENU, &q->work);
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
        return no_choice(q, s, err);
    }
    struct state *made = ARENA_ARRAY(q->arena, struct state, q->next_count);
    for (uint32_t i = 0; i < q->next_count; i++) {
        adopt(q, &made[i], step, &list[i]);
    }
    q->states = made;
    q->count = q->next_count;
    return 0;
}

static void start(struct search *q) {
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
        for (int o = 0; o < PLAN_OPERANDS; o++) {
            if (q->plan->steps[i].in[o] != PLAN_NONE) {
                q->last_use[q->plan->steps[i].in[o]] = i;
            }
        }
    }
    for (uint32_t i = q->plan->step_count; i-- > 0;) { /* of a NORM read later: its operand, too */
        const struct plan_step *n = &q->plan->steps[i];
        if (search_may_defer(q, i) && q->last_use[n->in[0]] < q->last_use[n->out]) {
            q->last_use[n->in[0]] = q->last_use[n->out];
        }
    }
    for (uint32_t i = 0; i < q->plan->graph->output_count; i++) {
        q->last_use[q->plan->outputs[i]] = q->plan->step_count;
    }
    if (q->plan->repeat.turns > 0) {
        const struct plan_repeat *r = &q->plan->repeat;
        q->last_use[r->carried] = r->first + r->count - 1;
    }
}

/* Writes a complete state's choices into a copy of the fused plan. */
static void settle(struct search *q, const struct state *s, struct plan *to) {
    struct arena *a = q->arena;
    *to = *q->plan;
    to->tiles = q->tiles;
    to->steps = arena_memdup(a, to->steps, sizeof *to->steps * to->step_count);
    to->matrices = arena_memdup(a, to->matrices, sizeof *to->matrices * to->matrix_count);
    for (uint32_t i = 0; i < to->matrix_count; i++) {
        struct plan_matrix *x = &to->matrices[i];
        x->dist = x->kind == PLAN_CONSTANT || s->dist[i] == &search_deferred ? NULL : s->dist[i];
        if (x->kind == PLAN_INPUT && x->dist == NULL) { /* read by nobody, or an output as it is */
            uint32_t m = x->rows < q->tiles ? x->rows : q->tiles;
            x->dist = dist_grid(&q->pool, x->rows, x->panels, m, 1);
        }
    }
    const struct state *at = s;
    for (uint32_t i = to->step_count; i-- > 0; at = at->before) {
        struct plan_step *step = &to->steps[i];
        const struct choice *c = &at->choice;
        step->m = c->m;
        step->n = c->n;
        step->k = c->k;
        step->form = c->form;
        step->is_deferred = c->is_deferred;
        step->fused = c->fused;
        step->w_region1 = c->w_region1;
        step->dist = c->is_deferred ? NULL : c->dist;
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
    for (uint32_t i = 0; i < to->step_count; i++) {
        if (to->steps[i].fused > 0) {
            to->steps[plan_fused_gemm(to, i)].is_fused = true;
        }
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
static bool is_alike(const struct plan *a, const struct plan *b) {
    uint32_t different = 0;
    for (uint32_t i = 0; i < a->step_count; i++) {
        different += a->steps[i].m != b->steps[i].m || a->steps[i].n != b->steps[i].n ||
                     a->steps[i].k != b->steps[i].k ||
                     !plan_form_equal(&a->steps[i].form, &b->steps[i].form) ||
                     a->steps[i].is_deferred != b->steps[i].is_deferred ||
                     a->steps[i].fused != b->steps[i].fused;
    }
    return different == 0;
}

static int search(struct search *q, uint64_t byte_price, struct err *err) {
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

static int by_cost(const void *pa, const void *pb) {
    const struct plan *a = pa, *b = pb;
    if (a->estimated_cycles != b->estimated_cycles) {
        return a->estimated_cycles < b->estimated_cycles ? -1 : 1;
    }
    return a->peak_bytes < b->peak_bytes ? -1 : a->peak_bytes > b->peak_bytes;
}

/* Fuses and searches. may_block: attention may be taken in blocks where that pays. */
static int choose(struct search *q, const struct graph *g, bool may_block, struct err *err) {
    struct plan *fused;
    int rc = plan_fuse(g, q->options, may_block, q->arena, &fused, err);
    if (rc != 0) {
        return rc;
    }
    for (uint32_t i = 0; i < fused->step_count; i++) {
        struct plan_step *s = &fused->steps[i];
        s->row_is_literal = s->row.n != NO_VALUE.n && g->values[s->row.n].is_hashed_constant;
    }
    q->plan = q->options->repeats != REPEATS_NONE ? plan_repeat_find(fused, q->arena) : fused;
    /* The fastest choice of each step may fill tiles so that later steps have no room: then bytes
     * get a price, a higher one each time, until the plan fits or saving does not help. */
    rc = search(q, 0, err);
    for (uint64_t price = 4; rc == -ERR_DOES_NOT_FIT && price <= 4096; price *= 8) {
        rc = search(q, price, err);
    }
    return rc;
}

static bool has_blocks(const struct plan *p) {
    bool has = false;
    for (uint32_t i = 0; p != NULL && i < p->step_count; i++) {
        has = has || p->steps[i].product.is_blocked;
    }
    return has;
}

int plan_build(
    const struct graph *g, const struct plan_options *options, struct arena *a,
    struct plan_set **ret, struct err *err) {
    struct search q = {
        .options = options, .tiles = options->tiles, .arena = a, .pool = {a, NULL, options->tiles}};
    q.limit0 = (uint64_t)PLAN_REGION0_BYTES * options->fill_percent / 100;
    q.limit1 = (uint64_t)PLAN_REGION1_BYTES * options->fill_percent / 100;
    int rc = choose(&q, g, true, err);
    if (rc == -ERR_DOES_NOT_FIT && has_blocks(q.plan)) { /* they hold more at once */
        rc = choose(&q, g, false, err);
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
    set->repeats = q.plan->repeat.turns > 0;
    *ret = set;
    return 0;
}

uint32_t plan_deferred_norm(const struct plan *p, uint32_t matrix) {
    uint32_t step = p->matrices[matrix].step;
    return step != PLAN_NONE && p->steps[step].is_deferred ? step : PLAN_NONE;
}

uint32_t plan_fused_gemm(const struct plan *p, uint32_t step) {
    return p->matrices[p->steps[step].in[p->steps[step].fused - 1]].step;
}

uint32_t plan_gemm_tile(const struct plan_step *s, uint32_t i, uint32_t j, uint32_t kk) {
    return s->form.first + (i * s->n + j) * s->k + kk;
}
