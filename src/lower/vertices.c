/* Kernel calls of each step on its tiles, with the buffers that their descriptors name. */
#include "lower/lower_internal.h"

struct lower_vertex lower_new_vertex(
    struct kernel_variant v, uint32_t tile, uint32_t level, uint32_t time, uint32_t step) {
    struct lower_vertex x = {
        .tile = {(uint16_t)tile}, .level = level, .time = time, .step = step, .variant = v};
    for (uint32_t i = 0; i < LOWER_WORDS; i++) {
        x.words[i].buffer = NO_BUFFER;
    }
    return x;
}

void lower_word_buffer(
    struct lowering *l, struct lower_vertex *v, uint32_t word, struct buffer_id b,
    uint32_t offset) {
    v->words[word] = (struct lower_word){b, offset};
    lower_use(l, b, v->time);
}

/* Cycles at the roofline, less the share of panels and K groups that is padding. */
static uint32_t
useful_cycles(const struct plan_step *s, const struct kernel_variant *v, const uint32_t *dims) {
    double useful = kernel_useful_cycles(v, dims);
    if (s->panels > 0 && s->columns < 16 * s->panels) {
        useful *= (double)s->columns / (16.0 * s->panels);
    }
    if (s->groups > 0 && s->inner < 16 * s->groups) {
        useful *= (double)s->inner / (16.0 * s->groups);
    }
    return (uint32_t)(useful + 0.5);
}

void lower_push_vertex(
    struct lowering *l, struct lower_vertex v, uint32_t word_count, const uint32_t *dims) {
    v.word_count = word_count;
    v.cycles = kernel_cycles(&v.variant, dims);
    v.useful = useful_cycles(&l->plan->steps[v.step], &v.variant, dims);
    vec_push(l->arena, &l->vertices, v);
}

static struct gathered *find_gathered(const struct lowering *l, const struct gathered *key) {
    for (struct gathered *g = l->gathered; g != NULL; g = g->next) {
        if (g->matrix == key->matrix && g->dist == key->dist && g->panel == key->panel &&
            g->m == key->m && g->n == key->n && g->k == key->k && g->level <= key->level &&
            !lower_is_stale(l, g->matrix, g->level, key->level)) {
            return g;
        }
    }
    return NULL;
}

static struct gathered *new_gathered(struct lowering *l, const struct gathered *key) {
    struct gathered *g = ARENA_NEW(l->arena, struct gathered);
    *g = *key;
    g->buffers = ARENA_ARRAY(l->arena, struct buffer_id, l->plan->tiles);
    g->next = l->gathered;
    l->gathered = g;
    return g;
}

/* Operand buffers of a GEMM by tile. */
static const struct buffer_id *gemm_operand(struct lowering *l, uint32_t step) {
    const struct plan_step *s = &l->plan->steps[step];
    struct gathered key = {
        .matrix = s->in[0],
        .m = s->m,
        .n = s->n,
        .k = s->k,
        .panel = s->in_panel[0],
        .level = l->times[step].level};
    bool is_constant = l->plan->matrices[s->in[0]].kind == PLAN_CONSTANT;
    struct gathered *g = is_constant ? NULL : find_gathered(l, &key);
    if (g != NULL) {
        return g->buffers;
    }
    g = new_gathered(l, &key);
    uint32_t *tiles = ARENA_ARRAY(l->arena, uint32_t, s->n);
    struct buffer_id *buffers = ARENA_ARRAY(l->arena, struct buffer_id, s->n);
    for (uint32_t i = 0; i < s->m; i++) {
        for (uint32_t kk = 0; kk < s->k; kk++) {
            uint32_t panel = s->in_panel[0];
            struct need n = {
                (uint32_t)((uint64_t)s->rows * i / s->m),
                (uint32_t)((uint64_t)s->rows * (i + 1) / s->m), panel + s->group_bound[kk],
                panel + s->group_bound[kk + 1]};
            for (uint32_t j = 0; j < s->n; j++) {
                tiles[j] = plan_gemm_tile(s, i, j, kk);
                if (is_constant) {
                    buffers[j] = lower_constant(l, step, s->in[0], tiles[j], &n);
                }
            }
            if (!is_constant) {
                lower_gather(l, s->in[0], &n, tiles, s->n, step, buffers);
            }
            for (uint32_t j = 0; j < s->n; j++) {
                g->buffers[tiles[j]] = buffers[j];
            }
        }
    }
    return g->buffers;
}

struct gemm_tile { /* one call of a GEMM and what follows it */
    uint32_t i, j, kk, tile;
    uint32_t rows, groups, width; /* width: panels of block column j */
    uint32_t share_first, share_last;
    struct buffer_id x, out;
};

static void gemm_call(struct lowering *l, uint32_t step, const struct gemm_tile *g) {
    const struct plan_step *s = &l->plan->steps[step];
    const struct step_time *t = &l->times[step];
    uint32_t first = s->panel_bound[g->j], last = s->panel_bound[g->j + 1];
    struct lower_run runs[3] = {
        {first, g->share_first}, {g->share_last, last}, {g->share_first, g->share_last}};
    struct lower_vertex v = lower_new_vertex(plan_variant(s), g->tile, t->level, t->time, step);
    lower_word_buffer(l, &v, GEMM_X, g->x, 0);
    lower_word_buffer(l, &v, GEMM_W, lower_weights(l, step, g->tile, g->kk, runs, 3), 0);
    if (v.variant.has_bias) {
        lower_word_buffer(l, &v, GEMM_BIAS, lower_row(l, step, PARAM_ROW, g->tile, first, last), 0);
    }
    lower_word_buffer(l, &v, GEMM_OUT, g->out, 0);
    uint32_t scratch = kernel_scratch_bytes(&v.variant, g->rows);
    if (scratch > 0) {
        scratch = (scratch + 3) & ~3u;
        struct buffer_id b = lower_new_buffer(l, g->tile, BUFFER_SCRATCH, scratch, step);
        lower_word_buffer(l, &v, GEMM_SCRATCH, b, 0);
    }
    v.words[GEMM_ROWS].value = g->rows;
    v.words[GEMM_GROUPS].value = g->groups;
    v.words[GEMM_PANELS].value = g->width;
    lower_push_vertex(l, v, GEMM_WORDS, (const uint32_t[]){g->rows, g->groups, g->width});
}

/* Offset of share [first, ..) of tile other in the partial buffer of g: shares of the others come
 * first in ascending order, without the own one. */
static uint32_t share_offset(const struct plan_step *s, const struct gemm_tile *g, uint32_t first) {
    uint32_t at = first - s->panel_bound[g->j];
    if (first >= g->share_last && g->share_last > g->share_first) {
        at -= g->share_last - g->share_first;
    }
    return 64 * g->rows * at;
}

static void
reduce_block(struct lowering *l, uint32_t step, const struct gemm_tile *tiles /* k of them */) {
    const struct plan_step *s = &l->plan->steps[step];
    const struct step_time *t = &l->times[step];
    for (uint32_t kk = 0; kk < s->k; kk++) {
        const struct gemm_tile *g = &tiles[kk];
        uint32_t panels = g->share_last - g->share_first;
        if (panels == 0) {
            continue;
        }
        uint32_t part = 64 * g->rows * panels;
        uint32_t own = 64 * g->rows * (g->width - panels);
        uint32_t slot = own + part;
        for (uint32_t from = 0; from < s->k; from++) {
            if (from != kk) {
                struct lower_dest dest = {g->out, slot};
                lower_add_move(
                    l, t->result_level, tiles[from].out,
                    share_offset(s, &tiles[from], g->share_first), part / 4, &dest, 1);
                slot += part;
            }
        }
        struct lower_vertex v = lower_new_vertex(
            plan_reduce_variant(s), g->tile, t->result_level, t->result_time, step);
        lower_word_buffer(l, &v, REDUCE_IN, g->out, own);
        v.words[REDUCE_STRIDE].value = part;
        v.words[REDUCE_PARTS].value = s->k;
        if (v.variant.has_bias) {
            struct buffer_id row =
                lower_row(l, step, PARAM_ROW, g->tile, g->share_first, g->share_last);
            lower_word_buffer(l, &v, REDUCE_BIAS, row, 0);
        }
        uint32_t column = 0; /* of the result: blocks before j, then kk */
        for (uint32_t j = 0; j < g->j; j++) {
            uint32_t width = s->panel_bound[j + 1] - s->panel_bound[j];
            column += s->k < width ? s->k : width;
        }
        struct buffer_id out = l->home[s->out][g->i * s->dist->n + column + kk];
        lower_word_buffer(l, &v, REDUCE_OUT, out, 0);
        v.words[REDUCE_ROWS].value = g->rows;
        v.words[REDUCE_PANELS].value = panels;
        lower_push_vertex(l, v, REDUCE_WORDS, (const uint32_t[]){s->k, g->rows, panels});
    }
}

static void lower_gemm(struct lowering *l, uint32_t step) {
    const struct plan_step *s = &l->plan->steps[step];
    const struct buffer_id *x = gemm_operand(l, step);
    struct gemm_tile *tiles = ARENA_ARRAY(l->arena, struct gemm_tile, s->k);
    for (uint32_t i = 0; i < s->m; i++) {
        for (uint32_t j = 0; j < s->n; j++) {
            for (uint32_t kk = 0; kk < s->k; kk++) {
                struct gemm_tile *g = &tiles[kk];
                uint32_t tile = plan_gemm_tile(s, i, j, kk);
                *g = (struct gemm_tile){.i = i, .j = j, .kk = kk, .tile = tile, .x = x[tile]};
                g->rows = s->dist->row_bound[i + 1] - s->dist->row_bound[i];
                g->groups = s->group_bound[kk + 1] - s->group_bound[kk];
                g->width = s->panel_bound[j + 1] - s->panel_bound[j];
                plan_reduce_share(s, j, kk, &g->share_first, &g->share_last);
                if (s->k == 1) {
                    g->out = l->home[s->out][i * s->n + j];
                } else {
                    uint32_t panels = g->share_last - g->share_first;
                    uint32_t bytes = 64 * g->rows * (g->width + (s->k - 1) * panels);
                    g->out = lower_new_buffer(l, tile, BUFFER_PARTIAL, bytes, step);
                    l->buffers.data[g->out.n].split_at = 64 * g->rows * (g->width - panels);
                }
                gemm_call(l, step, g);
            }
            if (s->k > 1) {
                reduce_block(l, step, tiles);
            }
        }
    }
}

void lower_step(struct lowering *l, uint32_t step) {
    const struct plan_step *s = &l->plan->steps[step];
    if (lower_is_in_place(l, step)) {
        l->home[s->out] = l->home[l->plan->repeat.carried];
    } else if (s->kind != PLAN_CARRY) {
        lower_home_blocks(l, s->out, l->times[step].result_time);
    }
    if (s->kind == PLAN_CARRY) {
        lower_carry(l, step);
    } else if (s->kind == PLAN_GEMM) {
        lower_gemm(l, step);
    } else {
        lower_local(l, step);
    }
}
