/* Useful work of kernel calls: the cycles in which a tile does a call's arithmetic at its peak. A
 * profile divides them by measured cycles: what is lost to loads, set-up, imbalance and waiting.
 *
 * Rates [compiler facts 8]: the matrix unit has 64 f16 products a cycle, whatever the partials are
 * kept in; element work counts issues of 4 halves, one issue a cycle: one for add or move and sums,
 * 12 for a GELU; softmax 8 issues a pair of columns and 5 a row; re-layout 4 bytes a cycle. */
#include "kernels/kernels_internal.h"

#define MACS_PER_CYCLE     64.0
#define F32_MACS_PER_CYCLE 16.0

/* Cycles an element of an activation; with its issues of 4 elements. */
static double act_cycles(enum kernel_act act) {
    switch (act) {
    case ACT_NONE: return 0;
    case ACT_RELU: return 0.25;
    case ACT_TANH:
    case ACT_SIGMOID: return 1;
    case ACT_GELU_ERF:
    case ACT_GELU_TANH: return 3;
    case ACT_COUNT: break;
    }
    return 0;
}

static double gemm(const struct kernel_variant *v, double rows, double groups, double panels) {
    double out = rows * 16 * panels;
    return out * 16 * groups / MACS_PER_CYCLE + out * act_cycles(v->act);
}

/* Q K', softmax, product with V; all keys, panels of head columns and of the result's. */
static double attention(double rows, double keys, double panels, double out_panels) {
    return rows * keys * 16 * (panels + out_panels) / MACS_PER_CYCLE + rows * (4 * keys + 5);
}

double kernel_useful_cycles(const struct kernel_variant *v, const uint32_t *dims) {
    bool has_one = v->id == KERNEL_UNARY || v->id == KERNEL_ADD || v->id == KERNEL_MAP ||
                   v->id == KERNEL_PICK || v->id == KERNEL_CAST || v->id == KERNEL_MAP_F32 ||
                   v->id == KERNEL_BINARY_F32;
    double a = dims[0], b = has_one ? 0 : dims[1], act = act_cycles(v->act);
    switch (v->id) {
    case KERNEL_GEMM_AMP:
    case KERNEL_GEMM_F16: return gemm(v, a, b, dims[2]);
    case KERNEL_GEMM_ROW: return gemm(v, 1, a, b / 8);
    case KERNEL_REDUCE: return b * 16 * dims[2] * (0.5 * a + act); /* f32 parts: 2 a cycle */
    case KERNEL_REDUCE_SHARE: return b * 16 * dims[2] * (0.5 * (a + 1) + act);
    case KERNEL_UNARY: return 4 * a * (act > 0 ? act : 0.25);
    case KERNEL_ADD: return 16 * a * (0.25 + act);
    case KERNEL_ADD_ROW:
    case KERNEL_BINARY: return a * 16 * b * (0.25 + act);
    case KERNEL_MAP: return 16 * a * (0.25 + act);
    case KERNEL_SOFTMAX: return a * (4 * b + 5);
    case KERNEL_LAYERNORM: return a * b * (v->has_residual ? 1.0 : 0.75); /* passes of 4 halves */
    case KERNEL_ROW_REDUCE: return a * b * 0.25;
    case KERNEL_RELAYOUT: return a * b * 0.5;
    case KERNEL_ATTENTION: return attention(a, b, dims[2], dims[3]);
    case KERNEL_MAP_F32: return 16 * a * (0.5 + act);
    case KERNEL_BINARY_F32: return 16 * a * 0.5;
    case KERNEL_ROW_REDUCE_F32: return a * b * 0.5;
    case KERNEL_PICK: return v->op == PICK_DOUBLE ? 2 * a : a; /* moves 4 bytes a cycle */
    case KERNEL_CAST: return 16 * a * 0.5;
    case KERNEL_GEMM_F32: return a * b * 16 * dims[2] / F32_MACS_PER_CYCLE;
    case KERNEL_ATTENTION_BLOCK: /* keys' share of columns that are padding counts */
        return a * b * (16.0 * dims[2] + 16.0 * dims[3]) / MACS_PER_CYCLE + a * (4 * b + 5);
    case KERNEL_ATTENTION_MERGE: return b * 16 * dims[2] * 0.25 * a;
    default: break; /* not priced: counts as no useful work */
    }
    return 0;
}
