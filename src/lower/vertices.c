/* Kernel calls, with the buffers that their descriptors name. */
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

void lower_step(struct lowering *l, uint32_t step) {
    const struct plan_step *s = &l->plan->steps[step];
    if (lower_is_in_place(l, step)) {
        l->home[s->out] = l->home[l->plan->repeat.carried];
    } else if (s->is_deferred || s->is_fused) {
        return; /* a later step does it */
    } else if (s->kind != PLAN_CARRY) {
        uint32_t maker = s->fused > 0 ? plan_fused_gemm(l->plan, step) : step;
        lower_home_blocks(l, s->out, l->times[maker].result_time);
    }
    if (s->kind == PLAN_CARRY) {
        lower_carry(l, step);
    } else if (s->fused > 0) {
        lower_gemm_rows(l, step);
    } else if (plan_is_streamed(s)) {
        lower_stream(l, step);
    } else if (s->kind == PLAN_GEMM) {
        lower_gemm(l, step);
    } else if (s->product.is_blocked) {
        lower_attention(l, step);
    } else {
        lower_local(l, step);
    }
}
