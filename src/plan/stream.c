/* GEMM grids whose operands do not fit at once: each K part in chunks, weights on the chip once. A
 * tile keeps its block of f16 partials; chunk after chunk of its operand, and of its weights when
 * they are streamed, arrives in a superstep of its own and is added to them. More chunks cost a
 * barrier and a pass over the panels each, so the fewest that fit are taken. */
#include "plan/plan_internal.h"

#define CHUNK_GROUPS 4      /* fewer of K are not worth a superstep */
#define CHUNK_SLACK  49152u /* bytes left free, for operands must lie in elements of their own */

uint32_t plan_chunks(const struct plan_step *s) {
    return s->kind == PLAN_GEMM ? s->form.chunks : 1;
}

bool plan_is_streamed(const struct plan_step *s) {
    return s->kind == PLAN_GEMM && (s->form.chunks > 1 || s->form.streams_w);
}

void plan_chunk(
    const struct plan_step *s, uint32_t kk, uint32_t c, uint32_t *ret_first, uint32_t *ret_last) {
    uint32_t first = s->group_bound[kk], groups = s->group_bound[kk + 1] - first;
    *ret_first = first + (uint32_t)((uint64_t)groups * c / s->form.chunks);
    *ret_last = first + (uint32_t)((uint64_t)groups * (c + 1) / s->form.chunks);
}

void plan_weights_home(
    const struct plan_step *s, uint32_t i, uint32_t j, uint32_t *ret_first, uint32_t *ret_last) {
    uint32_t first = s->panel_bound[j], width = s->panel_bound[j + 1] - first;
    *ret_first = first + (uint32_t)((uint64_t)width * i / s->m);
    *ret_last = first + (uint32_t)((uint64_t)width * (i + 1) / s->m);
}

bool plan_stream_form(const struct plan_step *s, struct grid *g, bool streams_w) {
    uint32_t groups = s->groups / g->k; /* of the smallest K part */
    g->form.streams_w = streams_w;
    for (uint32_t chunks = 1; chunks == 1 || (g->form.is_f16 && chunks * CHUNK_GROUPS <= groups);
         chunks++) {
        g->form.chunks = chunks;
        struct footprint f = cost_gemm_bytes(s, g);
        uint64_t slack = chunks > 1 ? CHUNK_SLACK : 0;
        if (f.resident + f.transient + slack <= PLAN_REGION0_BYTES + PLAN_REGION1_BYTES &&
            f.region1 <= PLAN_REGION1_BYTES) {
            return true;
        }
    }
    return false;
}
