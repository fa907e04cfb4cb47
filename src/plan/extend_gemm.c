/* Choices of a product: grids, lanes of siblings. See plan.h. */
#include "plan/search_internal.h"

static bool same_operand(
    const struct plan_dist *source, const struct plan_step *s, const struct choice *c,
    struct dist_pool *pool) {
    return c->n == 1 && c->form.chunks == 1 && s->in_panel[0] == 0 &&
           plan_dist_equal(source, dist_operand(pool, s->rows, s->groups, c->m, c->n, c->k));
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
    if (o.source == &search_deferred) {
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
    if (!search_fits(q, s, &d)) {
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
        at = x->panels != s->groups ? search_rows_home(q, x)
             : g->form.chunks > 1   ? dist_stream(&q->pool, s->rows, s->groups, g->m, g->n, g->k)
                                    : dist_operand(&q->pool, s->rows, s->groups, g->m, g->n, g->k);
        d.c.inputs[0] = at;
    }
    if (at != NULL && (g->form.lanes > 1 || !same_operand(at, s, &d.c, &q->pool))) {
        moved = cost_move(at, s->rows, s->groups, g->m, g->k);
    }
    bool moves = moved > 0 || g->form.streams_w;
    uint32_t level = level_of(from, o->read) + (moves ? 1 : 0);
    search_offer(q, list, step, d, beside > 0 ? 0 : moved, level);
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
        const struct choice *c = search_choice(from, step, first);
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

void extend_gemm(
    struct search *q, struct draft *list, uint32_t step, const struct state *from,
    const struct grid *menu, uint32_t menu_count) {
    const struct plan_step *s = &q->plan->steps[step];
    struct operand o = product_operand(q, s, from);
    uint32_t count, first = siblings(q, step, &count);
    if (count > 1 && (step == first || search_choice(from, step, first)->form.lanes > 1)) {
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
