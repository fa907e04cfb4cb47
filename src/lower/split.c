/* Tensors into tile regions: home blocks of matrices, blocks of weights, rows and constants, and
 * the list of what the host writes and reads. */
#include "lower/lower_internal.h"

struct buffer_id lower_new_buffer(
    struct lowering *l, uint32_t tile, enum buffer_kind kind, uint32_t bytes, uint32_t step) {
    struct lower_buffer b = {
        .tile = {(uint16_t)tile},
        .kind = kind,
        .bytes = bytes,
        .born = LOWER_FOREVER,
        .step = step};
    if (kind == BUFFER_WEIGHTS || kind == BUFFER_ROW || kind == BUFFER_MATRIX ||
        kind == BUFFER_TABLE) {
        b.born = 0;
        b.dies = LOWER_FOREVER;
    }
    vec_push(l->arena, &l->buffers, b);
    l->tg->is_active[tile] = true;
    return (struct buffer_id){(uint32_t)l->buffers.len - 1};
}

void lower_use(struct lowering *l, struct buffer_id b, uint32_t time) {
    struct lower_buffer *x = &l->buffers.data[b.n];
    x->born = time < x->born ? time : x->born;
    x->dies = time > x->dies ? time : x->dies;
}

void lower_home_blocks(struct lowering *l, uint32_t matrix, uint32_t born) {
    const struct plan_matrix *x = &l->plan->matrices[matrix];
    const struct plan_dist *d = x->dist;
    l->home[matrix] = ARENA_ARRAY(l->arena, struct buffer_id, (size_t)d->m * d->n);
    for (uint32_t i = 0; i < d->m; i++) {
        for (uint32_t j = 0; j < d->n; j++) {
            uint32_t rows = d->row_bound[i + 1] - d->row_bound[i];
            uint32_t quads = plan_dist_quad(d, j + 1) - plan_dist_quad(d, j);
            struct buffer_id b = lower_new_buffer(
                l, d->tile[i * d->n + j], BUFFER_VALUE, plan_row_bytes(x) / 4 * rows * quads,
                x->step);
            lower_use(l, b, born);
            l->home[matrix][i * d->n + j] = b;
        }
    }
}

/* Constants whose value is part of the graph's key are not parameters: the image holds them. */
static void
push_constant(struct lowering *l, uint32_t step, enum plan_param param, struct lower_shard *shard) {
    struct lower_buffer *x = &l->buffers.data[shard->buffer.n];
    if (plan_param_varies(l->plan, step, param)) {
        x->slots = plan_step_turns(l->plan, step);
        x->bytes *= x->slots;
    }
    for (; shard->slot + 1 < x->slots; shard->slot++) {
        shard->value = plan_param_value(l->plan, step, param, shard->slot);
        vec_push(l->arena, &l->shards, *shard);
    }
    shard->value = plan_param_value(l->plan, step, param, shard->slot);
    l->buffers.data[shard->buffer.n].is_literal =
        shard->is_fill || l->plan->graph->values[shard->value.n].is_hashed_constant;
    vec_push(l->arena, &l->shards, *shard);
}

struct buffer_id lower_weights(
    struct lowering *l, uint32_t step, uint32_t tile, uint32_t group_first, uint32_t group_last,
    const struct lower_run *runs, uint32_t run_count) {
    const struct plan_step *s = &l->plan->steps[step];
    struct lower_shard shard = {
        .value = s->weights,
        .matrix_columns = s->columns,
        .unit = s->unit,
        .inner_unit = s->inner_unit,
        .lanes = s->form.is_f16 ? 16 : 8,
        .row_last = s->inner,
        .quads = 4,
        .group_first = group_first,
        .group_last = group_last,
        .is_transposed = s->is_transposed};
    uint32_t panels = 0;
    for (uint32_t r = 0; r < run_count; r++) {
        if (runs[r].last > runs[r].first) {
            shard.runs[shard.run_count++] = runs[r];
            panels += runs[r].last - runs[r].first;
        }
    }
    uint32_t bytes = 512 * panels * (shard.group_last - shard.group_first);
    shard.buffer = lower_new_buffer(l, tile, BUFFER_WEIGHTS, bytes, step);
    push_constant(l, step, PARAM_WEIGHTS, &shard);
    return shard.buffer;
}

struct buffer_id
lower_channels(struct lowering *l, uint32_t step, uint32_t tile, uint32_t first, uint32_t last) {
    const struct plan_step *s = &l->plan->steps[step];
    struct lower_shard shard = {
        .value = s->weights,
        .matrix_columns = s->columns,
        .unit = s->unit,
        .inner_unit = s->inner_unit,
        .row_last = s->inner,
        .quads = 1,
        .lanes = 1,
        .group_last = s->groups,
        .runs = {{first, last}},
        .run_count = 1,
        .is_transposed = s->is_transposed};
    shard.buffer =
        lower_new_buffer(l, tile, BUFFER_WEIGHTS, 128 * (last - first) * s->groups, step);
    push_constant(l, step, PARAM_WEIGHTS, &shard);
    return shard.buffer;
}

struct buffer_id lower_row(
    struct lowering *l, uint32_t step, enum plan_param param, uint32_t tile, uint32_t panel_first,
    uint32_t panel_last) {
    return lower_row_part(l, step, param, tile, (struct lower_run){panel_first, panel_last}, 4);
}

struct buffer_id lower_row_part(
    struct lowering *l, uint32_t step, enum plan_param param, uint32_t tile, struct lower_run run,
    uint32_t quads) {
    const struct plan_step *s = &l->plan->steps[step];
    struct value_id row = plan_param_value(l->plan, step, param, 0);
    struct lower_shard shard = {
        .value = row,
        .matrix_columns = s->columns,
        .unit = s->unit,
        .row_last = 1,
        .quads = quads,
        .is_fill = row.n == NO_VALUE.n,
        .fill = s->kind == PLAN_NORM && param == PARAM_ROW ? 0x3c00 /* 1 */ : 0,
        .runs = {run},
        .run_count = 1};
    shard.buffer = lower_new_buffer(l, tile, BUFFER_ROW, 8 * quads * (run.last - run.first), step);
    push_constant(l, step, param, &shard);
    return shard.buffer;
}

struct buffer_id lower_constant(
    struct lowering *l, uint32_t step, uint32_t matrix, uint32_t tile, const struct need *n) {
    const struct plan_matrix *x = &l->plan->matrices[matrix];
    const struct plan_step *s = &l->plan->steps[step];
    uint32_t quads = (n->quad_first | n->quad_last) % 4 == 0 ? 4 : 1;
    bool is_gemm = s->kind == PLAN_GEMM, is_own = s->kind == PLAN_PICK;
    struct lower_shard shard = {
        .value = x->value,
        .matrix_columns = is_gemm  ? s->inner
                          : is_own ? x->columns
                                   : s->columns,
        .unit = is_gemm  ? s->inner_unit
                : is_own ? x->unit
                         : s->unit,
        .is_single = x->is_single,
        .row_first = n->row_first,
        .row_last = n->row_last,
        .quads = quads,
        .runs = {{n->quad_first / quads, n->quad_last / quads}},
        .run_count = 1};
    uint32_t bytes =
        plan_row_bytes(x) / 4 * (n->row_last - n->row_first) * (n->quad_last - n->quad_first);
    shard.buffer = lower_new_buffer(l, tile, BUFFER_MATRIX, bytes, step);
    uint32_t o = 0; /* each operand that is constant has a matrix of its own */
    while (o + 1 < PLAN_OPERANDS && s->in[o] != matrix) {
        o++;
    }
    push_constant(l, step, (enum plan_param)(PARAM_OPERAND + o), &shard);
    return shard.buffer;
}

static struct lower_span matrix_shards(struct lowering *l, uint32_t matrix, struct value_id value) {
    const struct plan_matrix *x = &l->plan->matrices[matrix];
    const struct plan_dist *d = x->dist;
    struct lower_span span = {(uint32_t)l->shards.len, d->m * d->n};
    for (uint32_t i = 0; i < d->m; i++) {
        for (uint32_t j = 0; j < d->n; j++) {
            vec_push(
                l->arena, &l->shards,
                (struct lower_shard){
                    .buffer = l->home[matrix][i * d->n + j],
                    .value = value,
                    .matrix_columns = x->columns,
                    .unit = x->unit,
                    .is_single = x->is_single,
                    .row_first = d->row_bound[i],
                    .row_last = d->row_bound[i + 1],
                    .quads = d->quads,
                    .runs = {{d->panel_bound[j], d->panel_bound[j + 1]}},
                    .run_count = 1});
        }
    }
    return span;
}

void lower_interface(struct lowering *l) {
    const struct plan *p = l->plan;
    const struct graph *g = p->graph;
    l->tg->params = (struct lower_span){0, (uint32_t)l->shards.len};
    l->tg->inputs = ARENA_ARRAY(l->arena, struct lower_span, g->input_count);
    l->tg->outputs = ARENA_ARRAY(l->arena, struct lower_span, g->output_count);
    for (uint32_t i = 0; i < g->input_count; i++) {
        l->tg->inputs[i] = matrix_shards(l, p->inputs[i], g->inputs[i]);
    }
    for (uint32_t i = 0; i < g->output_count; i++) {
        const struct plan_dist *d = p->matrices[p->outputs[i]].dist;
        for (uint32_t b = 0; b < d->m * d->n; b++) {
            lower_use(l, l->home[p->outputs[i]][b], l->tg->end_time);
        }
        l->tg->outputs[i] = matrix_shards(l, p->outputs[i], g->outputs[i]);
    }
}
