/* A plan as stable text: one line a matrix and a step. */
#include "plan/plan.h"

static const char *const kind_names[PLAN_KINDS] = {
    [PLAN_GEMM] = "gemm",
    [PLAN_ADD] = "add",
    [PLAN_ADD_ROW] = "add_row",
    [PLAN_BINARY] = "binary",
    [PLAN_BINARY_ROW] = "binary_row",
    [PLAN_UNARY] = "unary",
    [PLAN_MAP] = "map",
    [PLAN_SOFTMAX] = "softmax",
    [PLAN_NORM] = "norm",
    [PLAN_TURN] = "turn",
    [PLAN_PRODUCT] = "product",
    [PLAN_ATTENTION] = "attention",
    [PLAN_CARRY] = "carry",
    [PLAN_PICK] = "pick",
    [PLAN_ROW_REDUCE] = "row_reduce",
    [PLAN_CAST] = "cast",
};
static const char *const act_names[] = {"",         " relu",     " tanh",
                                        " sigmoid", " gelu_erf", " gelu_tanh"};
_Static_assert(sizeof act_names / sizeof *act_names == ACT_COUNT, "a name for each activation");

const char *plan_kind_name(enum plan_kind k) {
    return k < PLAN_KINDS ? kind_names[k] : "?";
}

void plan_print(const struct plan *p, FILE *out) {
    fprintf(
        out, "plan tiles=%u active=%u estimate=%llu exchange=%llu phases=%u peak_bytes=%u\n",
        p->tiles, p->active_tiles, (unsigned long long)p->estimated_cycles,
        (unsigned long long)p->estimated_exchange_cycles, p->estimated_phases, p->peak_bytes);
    if (p->repeat.turns > 0) {
        const struct plan_repeat *r = &p->repeat;
        fprintf(
            out, "  repeat steps %u..%u %u turns, carried m%u\n", r->first, r->first + r->count - 1,
            r->turns, r->carried);
    }
    for (uint32_t i = 0; i < p->matrix_count; i++) {
        const struct plan_matrix *x = &p->matrices[i];
        static const char *const kinds[] = {"input", "computed", "constant"};
        fprintf(out, "  matrix %u %s %ux%u", i, kinds[x->kind], x->rows, x->columns);
        if (x->unit != x->columns) {
            fprintf(out, " units of %u", x->unit);
        }
        if (x->dist != NULL) {
            fprintf(out, " blocks %ux%u", x->dist->m, x->dist->n);
        }
        fputc('\n', out);
    }
    for (uint32_t i = 0; i < p->step_count; i++) {
        const struct plan_step *s = &p->steps[i];
        fprintf(out, "  step %u %s%s", i, plan_kind_name(s->kind), act_names[s->act]);
        for (int o = 0; o < PLAN_OPERANDS && s->in[o] != PLAN_NONE; o++) {
            fprintf(out, " m%u", s->in[o]);
            if (s->in_panel[o] > 0) {
                fprintf(out, "+%u", s->in_panel[o]);
            }
        }
        if (s->kind == PLAN_GEMM && s->form.row_parts > 1) {
            fprintf(out, " row_parts=%u", s->form.row_parts);
        }
        if (plan_is_streamed(s)) {
            fprintf(out, " chunks=%u%s", s->form.chunks, s->form.streams_w ? " streams_w" : "");
        }
        fprintf(
            out, " -> m%u %ux%ux%u grid %ux%ux%u%s%s%s%s%s compute=%llu exchange=%llu\n", s->out,
            s->rows, s->inner, s->columns, s->m, s->n, s->k, s->row.n != NO_VALUE.n ? " bias" : "",
            s->kind != PLAN_GEMM ? ""
            : s->form.by_rows    ? " by_rows"
            : s->w_region1       ? " region1"
                                 : " region0",
            s->form.lanes > 1 ? " lanes"
            : s->is_deferred  ? " deferred"
                              : "",
            s->is_fused || s->fused > 0 ? " fused" : "", s->form.is_f16 ? " f16" : "",
            (unsigned long long)s->compute_cycles, (unsigned long long)s->exchange_cycles);
    }
}
