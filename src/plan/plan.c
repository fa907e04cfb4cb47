/* The search: see plan.h. A partial plan (struct state) holds the distribution of each matrix made
 * so far, what parameters take on each tile, and its cost; extending it by each entry of a step's
 * menu and keeping the cheapest of each kind gives the partial plans after that step. */
#include "plan/plan_internal.h"

#include <stdlib.h>
#include <string.h>

struct choice {
    uint32_t m, n, k;
    struct plan_form form; /* GEMM */
    bool w_region1, is_deferred;
    uint8_t fused;
    const struct plan_dist *dist;
    const struct plan_dist *inputs[PLAN_OPERANDS]; /* of graph inputs first read here, or NULL */
    uint64_t compute, exchange;
};

struct state {
    const struct plan_dist **dist; /* by matrix */
    uint32_t *level;               /* by matrix: superstep whose compute makes it; inputs 0 */
    uint32_t *resident;            /* by tile: parameter bytes */
    uint32_t *region1;             /* by tile: of them in region 1 */
    uint32_t levels;               /* supersteps with an exchange so far */
    uint32_t base;                 /* level before which nothing may run: loops end and start */
    uint64_t cost, exchange;
    uint64_t rank;         /* cost, the price of its parameter bytes, and `ahead` */
    uint64_t ahead;        /* of the siblings of a product to come (extend_lanes) */
    struct footprint most; /* over the steps so far; resident unused */
    const struct state *before;
    struct choice choice; /* of the last step */
};

struct shortage { /* bytes of logical tile 0, which no plan leaves out */
    uint64_t bytes;
    uint64_t before, own; /* parameters of the steps before, and of the step */
    uint64_t transient,
        region1;      /* the largest step's operands, result, scratch; interleaved ones */
    uint64_t largest; /* single buffer */
};

struct search {
    const struct plan *plan; /* fused */
    const struct plan_options *options;
    uint32_t tiles;
    struct arena *arena;
    struct dist_pool pool;
    struct state *states, *next;
    uint32_t count, next_count, next_cap;
    uint32_t *last_use; /* by matrix: last step that reads it; outputs: step_count */
    uint64_t work;
    uint64_t byte_price;     /* 1/256 cycles a parameter byte: 0 until a plan does not fit */
    uint64_t limit0, limit1; /* bytes of the two regions that may be filled */
    struct shortage least;   /* of the step at hand: the rejected choice that needs least */
};

/* Stands for the distribution of a deferred NORM's result. */
static const uint32_t no_bound[1];
static const struct plan_dist deferred = {0, 0, no_bound, no_bound, NULL, 4};

static const struct plan_matrix *matrix(const struct search *q, uint32_t at) {
    return &q->plan->matrices[at];
}

struct draft { /* a choice with what it does to a state, before copying anything */
    struct choice c;
    uint32_t level;
    uint32_t new_levels;
    uint64_t cost, exchange, rank;
    uint64_t ahead;
    struct footprint bytes, most;
    const struct state *from;
    uint64_t kind; /* hash of the live distributions */
};

static bool same_operand(
    const struct plan_dist *source, const struct plan_step *s, const struct choice *c,
    struct dist_pool *pool) {
    return c->n == 1 && c->form.chunks == 1 && s->in_panel[0] == 0 &&
           plan_dist_equal(source, dist_operand(pool, s->rows, s->groups, c->m, c->n, c->k));
}

static uint64_t larger(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

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

/* Memory of the draft's tiles; false when one is over a limit. Weights go to region 1 while there
 * is room on every tile of the step, else to region 0. */
static bool fits(struct search *q, const struct plan_step *s, struct draft *d) {
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

static void finish_draft(
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

/* Level from which on a matrix can be read by the next step. */
static uint32_t level_of(const struct state *s, uint32_t matrix) {
    return s->level[matrix] > s->base ? s->level[matrix] : s->base;
}

static const struct plan_dist *rows_home(struct search *q, const struct plan_matrix *x) {
    uint32_t m = x->rows < q->tiles ? x->rows : q->tiles;
    return dist_grid(&q->pool, x->rows, x->panels, m, 1);
}

/* Products of one operand that follow each other: [first, first + count), step one of them. */
static uint32_t siblings(const struct search *q, uint32_t step, uint32_t *ret_count) {
    const struct plan_step *all = q->plan->steps, *s = &all[step];
    uint32_t first = step, end = step + 1;
    while (first > 0 && all[first - 1].kind == PLAN_GEMM && all[first - 1].in[0] == s->in[0] &&
           all[first - 1].in_panel[0] == s->in_panel[0] &&
           plan_is_same_part(q->plan, first - 1, step)) {
        first--;
    }
    while (end < q->plan->step_count && all[end].kind == PLAN_GEMM && all[end].in[0] == s->in[0] &&
           all[end].in_panel[0] == s->in_panel[0] && plan_is_same_part(q->plan, end, step)) {
        end++;
    }
    *ret_count = matrix(q, s->in[0])->kind == PLAN_CONSTANT ? 1 : end - first;
    return first;
}

struct operand {                    /* of a product, in a state */
    uint32_t read;                  /* matrix */
    const struct plan_dist *source; /* its distribution, NULL of an input first read here */
    const struct plan_step *norm;   /* deferred, between it and the product */
};

static struct operand
product_operand(const struct search *q, const struct plan_step *s, const struct state *from) {
    struct operand o = {s->in[0], from->dist[s->in[0]], NULL};
    if (o.source == &deferred) {
        o.norm = &q->plan->steps[matrix(q, s->in[0])->step];
        o.read = o.norm->in[0];
        o.source = from->dist[o.read];
    }
    return o;
}

/* One grid. beside: cycles of a sibling that runs at the same time and shares the operand, or 0. */
static void extend_grid(
    struct search *q, struct draft *list, uint32_t step, const struct state *from,
    const struct grid *g, const struct operand *o, uint64_t beside, uint64_t ahead) {
    const struct plan_step *s = &q->plan->steps[step];
    const struct plan_matrix *x = matrix(q, o->read);
    struct draft d = {
        .from = from, .ahead = ahead, .c = {.m = g->m, .n = g->n, .k = g->k, .form = g->form}};
    d.bytes = cost_gemm_bytes(s, g);
    if (o->source != NULL &&
        g->form.chunks == 1) { /* its home blocks live beside what is gathered from them */
        d.bytes.transient +=
            32ull * cost_ceil(s->rows, o->source->m) * cost_ceil(s->groups, o->source->n);
    }
    if (x->kind == PLAN_CONSTANT) {
        d.bytes.resident += 32ull * cost_ceil(s->rows, g->m) * cost_ceil(s->groups, g->k);
    }
    if (o->norm != NULL) {
        d.bytes.resident += 64ull * s->groups;
        d.bytes.transient += 32ull * cost_ceil(s->rows, g->m) * s->groups;
    }
    if (!fits(q, s, &d)) {
        return;
    }
    uint64_t reduce_exchange, reduce_compute;
    cost_gemm_reduce(s, g, &reduce_exchange, &reduce_compute);
    d.c.compute = cost_gemm_compute(s, g, d.c.w_region1) + reduce_compute;
    if (o->norm != NULL) {
        d.c.compute += cost_local(o->norm, cost_ceil(s->rows, g->m), s->groups);
    }
    d.c.compute -= beside < d.c.compute ? beside : d.c.compute;
    d.c.exchange = reduce_exchange - (g->k > 1 ? PLAN_SYNC_CYCLES : 0) + cost_gemm_stream(s, g) -
                   (uint64_t)PLAN_SYNC_CYCLES * (g->form.chunks - 1);
    d.c.dist = dist_result(&q->pool, s->rows, s->panels, g);
    uint64_t moved = 0;
    const struct plan_dist *at = o->source;
    if (x->kind == PLAN_INPUT && at == NULL) {
        at = x->panels != s->groups ? rows_home(q, x)
             : g->form.chunks > 1   ? dist_stream(&q->pool, s->rows, s->groups, g->m, g->n, g->k)
                                    : dist_operand(&q->pool, s->rows, s->groups, g->m, g->n, g->k);
        d.c.inputs[0] = at;
    }
    if (at != NULL && (g->form.lanes > 1 || !same_operand(at, s, &d.c, &q->pool))) {
        moved = cost_move(at, s->rows, s->groups, g->m, g->k);
    }
    bool moves = moved > 0 || g->form.streams_w;
    uint32_t level = level_of(from, o->read) + (moves ? 1 : 0);
    finish_draft(q, list, step, d, beside > 0 ? 0 : moved, level);
}

/* The choice of an earlier step in a state that `step` extends. */
static const struct choice *choice_of(const struct state *from, uint32_t step, uint32_t earlier) {
    for (uint32_t i = step; i > earlier + 1; i--) {
        from = from->before;
    }
    return &from->choice;
}

/* Siblings that share the tiles and run at once: the first one chooses for all. The others cost
 * nothing then, which must show at once: without lanes `ahead` stands for them. */
static void extend_lanes(
    struct search *q, struct draft *list, uint32_t step, const struct state *from,
    const struct operand *o, uint32_t first, uint32_t count) {
    const struct plan_step *s = &q->plan->steps[step];
    uint32_t each = q->tiles / count;
    struct grid g = {.m = s->rows, .k = 1};
    g.form = (struct plan_form){
        .row_parts = 1,
        .chunks = 1,
        .by_rows = true,
        .lanes = count,
        .first = (step - first) * each};
    if (step > first) {
        const struct choice *c = choice_of(from, step, first);
        g.n = c->n;
        if (g.n <= 4 * s->panels) {
            extend_grid(q, list, step, from, &g, o, c->compute, 0);
        }
        return;
    }
    uint32_t menu[48], most = each / s->rows;
    uint32_t cuts = plan_row_menu(4 * s->panels, most, menu, 48);
    for (uint32_t i = 0; i < cuts; i++) {
        g.n = menu[i];
        extend_grid(q, list, step, from, &g, o, 0, 0);
    }
}

static void extend_gemm(
    struct search *q, struct draft *list, uint32_t step, const struct state *from,
    const struct grid *menu, uint32_t menu_count) {
    const struct plan_step *s = &q->plan->steps[step];
    struct operand o = product_operand(q, s, from);
    uint32_t count, first = siblings(q, step, &count);
    if (count > 1 && (step == first || choice_of(from, step, first)->form.lanes > 1)) {
        extend_lanes(q, list, step, from, &o, first, count);
        if (step > first) {
            return;
        }
    }
    uint32_t left = count > 1 ? first + count - step - 1 : 0;
    for (uint32_t i = 0; i < menu_count; i++) {
        struct grid g = menu[i];
        bool streams = g.form.chunks > 1 || g.form.streams_w;
        if (matrix(q, o.read)->kind == PLAN_CONSTANT) { /* waits for nothing: beside the others */
            g.form.first = q->tiles - g.m * g.n * g.k;
        }
        if (o.norm == NULL || (g.k == 1 && !streams)) {
            extend_grid(q, list, step, from, &g, &o, 0, left * cost_gemm_compute(s, &g, true));
        }
    }
}

/* Steps whose operands lie like the result, but for a window. */
static bool is_elementwise(const struct plan_step *s) {
    return s->kind != PLAN_PRODUCT && s->kind != PLAN_ATTENTION && s->kind != PLAN_TURN &&
           s->kind != PLAN_PICK && s->kind != PLAN_ROW_REDUCE;
}

static bool needs_whole_rows(const struct plan_step *s) {
    return s->kind == PLAN_SOFTMAX || s->kind == PLAN_NORM;
}

static bool lies_alike(const struct search *q, const struct plan_step *s, int o) {
    return is_elementwise(s) && s->in_panel[o] == 0 && matrix(q, s->in[o])->panels == s->panels;
}

static uint64_t move_operand(
    struct search *q, const struct plan_step *s, const struct plan_dist *dist, int o,
    const struct plan_dist *source, const struct attention_cut *cut) {
    if (lies_alike(q, s, o)) {
        return plan_dist_equal(source, dist)
                   ? 0
                   : cost_move(source, s->rows, s->panels, dist->m, dist->n);
    }
    if (plan_is_home(s, dist, o, source)) {
        return 0;
    }
    struct plan_need n = plan_need(s, dist, 0, 0, o);
    uint32_t rows = n.row_last - n.row_first, panels = n.panel_last - n.panel_first;
    uint32_t sources = 1 + rows * source->m / matrix(q, s->in[o])->rows;
    bool is_paired = cut != NULL && o > 0 && attention_pairs_keys(cut) && rows >= 16 * sources;
    return (is_paired ? 4ull : 8ull) * rows * panels + 3ull * panels * sources + PLAN_START_EVENTS;
}

/* Bytes of one tile: blocks of operands and result, a gathered one beside its source. */
static struct footprint local_bytes(
    const struct search *q, const struct plan_step *s, const struct plan_dist *dist, uint32_t rows,
    uint32_t panels, bool moves) {
    uint64_t block = (s->is_single ? 64ull : 32ull) * rows * panels;
    struct footprint f = {.transient = block + 256, .largest = block};
    for (int o = 0; o < PLAN_OPERANDS; o++) {
        if (s->in[o] == PLAN_NONE || (o == 1 && s->in[1] == s->in[0])) {
            continue;
        }
        struct plan_need n = plan_need(s, dist, 0, 0, o);
        uint64_t own = is_elementwise(s)
                           ? block
                           : (uint64_t)plan_row_bytes(matrix(q, s->in[o])) *
                                 (n.row_last - n.row_first) * (n.panel_last - n.panel_first);
        if (matrix(q, s->in[o])->kind == PLAN_CONSTANT) {
            f.resident += own;
        } else {
            f.transient += own;
            f.largest = larger(f.largest, own);
        }
    }
    f.transient += (moves ? block : 0) + cost_local_bytes(s, rows);
    f.region1 =
        s->kind == PLAN_PRODUCT && !s->is_single ? kernel_gemm_scratch_bytes(rows) + 128 : 0;
    f.resident += s->kind == PLAN_NORM ? 64ull * panels : 0;
    f.resident += s->kind == PLAN_PICK ? 32 + cost_pick_bytes(s, rows, panels) : 0;
    return f;
}

/* One choice of a step other than a GEMM: the result's distribution is `dist`. cut: of attention
 * in blocks, else NULL. */
static void extend_one(
    struct search *q, struct draft *list, uint32_t step, const struct state *from,
    const struct plan_dist *dist, const struct attention_cut *cut) {
    struct plan_step chosen = q->plan->steps[step];
    const struct plan_step *s = &chosen;
    chosen.k = cut != NULL ? cut->key_parts : 1;
    struct draft d = {.from = from, .c = {.m = dist->m, .n = dist->n, .k = s->k, .dist = dist}};
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
    uint32_t avail = from->base; /* level after which all operands can be there */
    for (int o = 0; o < PLAN_OPERANDS; o++) {
        if (s->in[o] == PLAN_NONE || matrix(q, s->in[o])->kind == PLAN_CONSTANT) {
            continue;
        }
        const struct plan_dist *source = from->dist[s->in[o]];
        if (source == NULL) {
            source = lies_alike(q, s, o) ? dist : rows_home(q, matrix(q, s->in[o]));
            d.c.inputs[o] = source;
        }
        uint64_t cost = move_operand(q, s, dist, o, source, cut);
        uint32_t level = level_of(from, s->in[o]) + (cost > 0 ? 1 : 0);
        moved += cost;
        avail = level > avail ? level : avail;
    }
    uint32_t depth = dist_depth(dist); /* blocks that a tile works on in turn */
    d.bytes =
        cut != NULL ? attention_bytes(s, cut) : local_bytes(q, s, dist, rows, panels, moved > 0);
    d.bytes.resident *= depth;
    d.bytes.transient *= depth;
    d.bytes.region1 *= depth;
    if (!fits(q, &q->plan->steps[step], &d)) {
        return;
    }
    d.c.w_region1 = s->kind != PLAN_PRODUCT && d.c.w_region1;
    d.c.compute = cut != NULL ? attention_compute(s, cut) : depth * cost_local(s, rows, panels);
    d.c.exchange = cut != NULL ? attention_merge_exchange(s, cut) : 0;
    finish_draft(q, list, step, d, moved, avail);
}

/* Attention with the rows of a head in `parts`: each head's columns in parts, too, on the last tiles;
 * grids of products begin at tile 0, so those hold least of what is gathered. */
static void extend_cuts(
    struct search *q, struct draft *list, uint32_t step, const struct state *from, uint32_t parts) {
    const struct plan_step *s = &q->plan->steps[step];
    const struct plan_product *p = &s->product;
    uint32_t blocks = p->batches * p->heads * parts, menu[8];
    uint32_t most = blocks > q->tiles ? 1 : q->tiles / blocks; /* 1: they take turns */
    uint32_t count = plan_row_menu(p->out_panels, most, menu, 8);
    for (uint32_t i = 0; i < count; i++) {
        const struct plan_dist *dist = dist_heads(
            &q->pool, s->rows, s->panels, p->batches, p->heads, parts, menu[i],
            blocks > q->tiles ? 0 : q->tiles - blocks * menu[i]);
        extend_one(q, list, step, from, dist, NULL);
    }
}

/* Turned matrices, products and attention: blocks of their own. */
static void
extend_blocks(struct search *q, struct draft *list, uint32_t step, const struct state *from) {
    const struct plan_step *s = &q->plan->steps[step];
    const struct plan_product *p = &s->product;
    uint32_t blocks = s->kind == PLAN_TURN ? 1 : p->batches * p->heads;
    uint32_t rows = s->kind == PLAN_TURN ? cost_ceil(s->rows, 16) : p->a_rows;
    uint32_t menu[48];
    uint32_t count = plan_row_menu(rows, blocks > q->tiles ? 1 : q->tiles / blocks, menu, 48);
    for (uint32_t i = 0; i < count; i++) {
        const struct plan_dist *dist;
        if (s->kind == PLAN_TURN) {
            dist = dist_rows16(&q->pool, s->rows, s->panels, menu[i]);
        } else if (s->kind == PLAN_ATTENTION) {
            extend_cuts(q, list, step, from, menu[i]);
            continue;
        } else if (p->out_panels > 0) {
            dist = dist_heads(&q->pool, s->rows, s->panels, p->batches, p->heads, menu[i], 1, 0);
        } else {
            dist = dist_grid(&q->pool, s->rows, s->panels, blocks * menu[i], 1);
        }
        extend_one(q, list, step, from, dist, NULL);
    }
}

static void
extend_attention(struct search *q, struct draft *list, uint32_t step, const struct state *from) {
    const struct plan_step *s = &q->plan->steps[step];
    struct attention_cut menu[8];
    uint32_t count = attention_menu(s, q->tiles, menu, 8);
    for (uint32_t i = 0; i < count; i++) {
        const struct plan_dist *dist = attention_dist(s, &menu[i], &q->pool);
        extend_one(q, list, step, from, dist, &menu[i]);
    }
}

/* A NORM may be left to its readers when they are products that read whole rows of it. */
static bool may_defer(const struct search *q, uint32_t step) {
    const struct plan_step *s = &q->plan->steps[step];
    if (s->kind != PLAN_NORM || s->rows > PLAN_FEW_ROWS || s->in_panel[0] != 0 ||
        matrix(q, s->in[0])->panels != s->panels) {
        return false;
    }
    uint32_t readers = 0;
    for (uint32_t i = step + 1; i < q->plan->step_count; i++) {
        const struct plan_step *r = &q->plan->steps[i];
        readers += r->kind == PLAN_GEMM && r->in[0] == s->out && r->groups == s->panels &&
                   plan_is_same_part(q->plan, step, i);
    }
    return readers > 0 && readers == matrix(q, s->out)->uses;
}

static void
extend_deferred(struct search *q, struct draft *list, uint32_t step, const struct state *from) {
    const struct plan_step *s = &q->plan->steps[step];
    struct draft d = {
        .from = from, .c = {.m = 1, .n = 1, .k = 1, .is_deferred = true, .dist = &deferred}};
    if (may_defer(q, step) && q->last_use[s->out] < q->plan->step_count &&
        from->dist[s->in[0]] != NULL && fits(q, s, &d)) {
        finish_draft(q, list, step, d, 0, level_of(from, s->in[0]));
    }
}

/* An ADD done by the product that makes its operand o, when the other one can be there in time. */
static void
extend_fused(struct search *q, struct draft *list, uint32_t step, const struct state *from, int o) {
    const struct plan_step *s = &q->plan->steps[step];
    uint32_t other = s->in[1 - o], made = s->in[o];
    const struct plan_matrix *x = matrix(q, made), *y = matrix(q, other);
    if (s->act != ACT_NONE || other == made || x->step == PLAN_NONE || x->uses != 1 ||
        q->last_use[made] != step || !lies_alike(q, s, 0) || !lies_alike(q, s, 1) ||
        !plan_is_same_part(q->plan, x->step, step) ||
        !choice_of(from, step, x->step)->form.by_rows) {
        return;
    }
    const struct plan_dist *dist = from->dist[made], *source = from->dist[other];
    struct draft d = {
        .from = from,
        .c = {.m = dist->m, .n = dist->n, .k = 1, .fused = (uint8_t)(1 + o), .dist = dist}};
    const struct plan_step *gemm = &q->plan->steps[x->step];
    uint32_t quads = cost_ceil(4 * s->panels, dist->n);
    uint64_t moved = 0;
    if (y->kind == PLAN_CONSTANT) {
        d.bytes.resident = 8 * quads;
    } else if (source == NULL) {
        d.c.inputs[1 - o] = dist;
    } else {
        bool is_there = plan_dist_equal(source, dist);
        moved = is_there ? 0 : cost_move(source, s->rows, s->panels, dist->m, dist->n);
        if (level_of(from, other) + (is_there ? 0 : 1) > from->level[made] ||
            (y->step != PLAN_NONE && y->step > x->step && is_there)) {
            return;
        }
    }
    d.bytes.transient = d.bytes.largest = 8 * quads;
    if (!fits(q, s, &d)) {
        return;
    }
    struct kernel_variant v = {.id = KERNEL_GEMM_ROW, .act = gemm->act};
    const uint32_t dims[] = {gemm->groups, 2 * quads};
    uint32_t bare = kernel_cycles(&v, dims);
    v.has_residual = true;
    d.c.compute = kernel_cycles(&v, dims) - bare;
    finish_draft(q, list, step, d, moved, from->level[made]);
}

static void
extend_local(struct search *q, struct draft *list, uint32_t step, const struct state *from) {
    const struct plan_step *s = &q->plan->steps[step];
    if (s->kind == PLAN_CARRY) { /* a turn ends as it starts */
        extend_one(q, list, step, from, from->dist[q->plan->repeat.carried], NULL);
        return;
    }
    if (!is_elementwise(s) && s->kind != PLAN_PICK && s->kind != PLAN_ROW_REDUCE) {
        if (s->product.is_blocked) {
            extend_attention(q, list, step, from);
        } else {
            extend_blocks(q, list, step, from);
        }
        return;
    }
    extend_deferred(q, list, step, from);
    for (int o = 0; o < 2 && s->kind == PLAN_ADD; o++) {
        extend_fused(q, list, step, from, o);
    }
    bool is_free = true;
    for (int o = 0; o < PLAN_OPERANDS; o++) {
        const struct plan_dist *source = s->in[o] != PLAN_NONE ? from->dist[s->in[o]] : NULL;
        if (source != NULL && lies_alike(q, s, o) && source->quads == 4) {
            is_free = false;
            if (!needs_whole_rows(s) || source->n == 1) {
                extend_one(q, list, step, from, source, NULL);
            }
        }
    }
    if (!needs_whole_rows(s) && !is_free) {
        return;
    }
    uint32_t menu[48];
    uint32_t count = plan_row_menu(s->rows, q->tiles, menu, 48);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t n = 1;
        if (!needs_whole_rows(s) && i + 1 == count) {
            n = q->tiles / menu[i] < s->panels ? q->tiles / menu[i] : s->panels;
        }
        extend_one(
            q, list, step, from, dist_grid(&q->pool, s->rows, s->panels, menu[i], n > 0 ? n : 1),
            NULL);
    }
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
        menu_count = plan_gemm_menu(s, q->options, menu, PLAN_MENU, &q->work);
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
        if (may_defer(q, i) && q->last_use[n->in[0]] < q->last_use[n->out]) {
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
        x->dist = x->kind == PLAN_CONSTANT || s->dist[i] == &deferred ? NULL : s->dist[i];
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
