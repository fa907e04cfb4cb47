/* The kernel variants of a step's calls. */
#include "plan/plan_internal.h"

struct kernel_variant plan_variant(const struct plan_step *s) {
    struct kernel_variant v = {.act = s->act};
    switch (s->kind) {
    case PLAN_GEMM:
        if (s->form.by_rows) {
            v.id = KERNEL_GEMM_ROW;
            v.has_bias = s->row.n != NO_VALUE.n;
            break;
        }
        v.id = s->form.is_f16 ? KERNEL_GEMM_F16 : KERNEL_GEMM_AMP;
        v.w_region1 = s->w_region1;
        v.out_f32 = !s->form.is_f16 && s->k > 1;
        v.has_bias = s->k == 1 && s->row.n != NO_VALUE.n;
        v.act = s->k == 1 ? s->act : ACT_NONE;
        break;
    case PLAN_PRODUCT: v.id = s->is_single ? KERNEL_GEMM_F32 : KERNEL_GEMM_AMP; break;
    case PLAN_ADD: v.id = KERNEL_ADD; break;
    case PLAN_ADD_ROW: v.id = KERNEL_ADD_ROW; break;
    case PLAN_BINARY:
    case PLAN_BINARY_ROW:
        v.id = s->is_single ? KERNEL_BINARY_F32 : KERNEL_BINARY;
        v.op = s->op;
        v.form = s->kind == PLAN_BINARY || s->is_single ? FORM_FULL : FORM_ROW;
        break;
    case PLAN_UNARY: /* MAP_AFFINE with 1 and 0 */
        v.id = s->is_single ? KERNEL_MAP_F32 : KERNEL_UNARY;
        break;
    case PLAN_MAP:
        v.id = s->is_single ? KERNEL_MAP_F32 : KERNEL_MAP;
        v.op = s->op;
        break;
    case PLAN_NORM: v.id = KERNEL_LAYERNORM; break;
    case PLAN_TURN:
        v.id = KERNEL_RELAYOUT;
        v.op = RELAYOUT_TRANSPOSE;
        break;
    case PLAN_ATTENTION:
        v.id = s->product.is_blocked ? KERNEL_ATTENTION_BLOCK : KERNEL_ATTENTION;
        break;
    case PLAN_CARRY: v.id = KERNEL_UNARY; break; /* a copy, where one is needed */
    case PLAN_PICK:
        v.id = KERNEL_PICK;
        v.op = s->pick->unit;
        break;
    case PLAN_ROW_REDUCE:
        v.id = s->is_single ? KERNEL_ROW_REDUCE_F32 : KERNEL_ROW_REDUCE;
        v.op = s->op;
        break;
    case PLAN_CAST:
        v.id = KERNEL_CAST;
        v.op = s->is_single ? CAST_WIDEN : CAST_NARROW;
        break;
    case PLAN_SOFTMAX:
    case PLAN_KINDS: v.id = KERNEL_SOFTMAX; break;
    }
    return v;
}

struct kernel_variant plan_relayout_variant(const struct plan_step *s) {
    return (struct kernel_variant){
        .id = KERNEL_RELAYOUT,
        .op = s->product.is_turned ? RELAYOUT_COPY_W8 : RELAYOUT_TRANSPOSE_W8};
}

struct kernel_variant plan_unpack_variant(void) {
    return (struct kernel_variant){.id = KERNEL_RELAYOUT, .op = RELAYOUT_TRANSPOSE};
}

struct kernel_variant plan_reduce_variant(const struct plan_step *s) {
    return (struct kernel_variant){
        .id = plan_reduces_in_place(s) ? KERNEL_REDUCE_SHARE : KERNEL_REDUCE,
        .act = s->act,
        .has_bias = s->row.n != NO_VALUE.n,
        .in_f16 = s->form.is_f16};
}
