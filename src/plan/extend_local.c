/* Choices of all steps but products of weights. See plan.h. */
#include "plan/search_internal.h"

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
            source = lies_alike(q, s, o) ? dist : search_rows_home(q, matrix(q, s->in[o]));
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
    if (!search_fits(q, &q->plan->steps[step], &d)) {
        return;
    }
    d.c.w_region1 = s->kind != PLAN_PRODUCT && d.c.w_region1;
    d.c.compute = cut != NULL ? attention_compute(s, cut) : depth * cost_local(s, rows, panels);
    d.c.exchange = cut != NULL ? attention_merge_exchange(s, cut) : 0;
    search_offer(q, list, step, d, moved, avail);
}

/* Attention with the rows of a head in `parts`: each head's columns in parts, too, on the last
 * tiles; grids of products begin at tile 0, so those hold least of what is gathered. */
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

bool search_may_defer(const struct search *q, uint32_t step) {
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
        .from = from, .c = {.m = 1, .n = 1, .k = 1, .is_deferred = true, .dist = &search_deferred}};
    if (search_may_defer(q, step) && q->last_use[s->out] < q->plan->step_count &&
        from->dist[s->in[0]] != NULL && search_fits(q, s, &d)) {
        search_offer(q, list, step, d, 0, level_of(from, s->in[0]));
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
        !search_choice(from, step, x->step)->form.by_rows) {
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
    if (!search_fits(q, s, &d)) {
        return;
    }
    struct kernel_variant v = {.id = KERNEL_GEMM_ROW, .act = gemm->act};
    const uint32_t dims[] = {gemm->groups, 2 * quads};
    uint32_t bare = kernel_cycles(&v, dims);
    v.has_residual = true;
    d.c.compute = kernel_cycles(&v, dims) - bare;
    search_offer(q, list, step, d, moved, from->level[made]);
}

void extend_local(struct search *q, struct draft *list, uint32_t step, const struct state *from) {
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
