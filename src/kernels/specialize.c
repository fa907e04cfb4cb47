/* One variant -> assembler object: its entry macro, the common text, the kernel's text, and the
 * symbols that specialise them. Descriptor words and activation numbers come from kernels.h, so
 * that text and contract cannot disagree. */
#include <assert.h>
#include <string.h>

#include "kernels/kernels_internal.h"

#define WORD(x)                                                                                    \
    { #x, x }

static const struct asm_def fixed_defs[] = {
    WORD(ACT_NONE),
    WORD(ACT_RELU),
    WORD(ACT_TANH),
    WORD(ACT_SIGMOID),
    WORD(ACT_GELU_ERF),
    WORD(ACT_GELU_TANH),
    WORD(GEMM_X),
    WORD(GEMM_W),
    WORD(GEMM_BIAS),
    WORD(GEMM_OUT),
    WORD(GEMM_SCRATCH),
    WORD(GEMM_ROWS),
    WORD(GEMM_GROUPS),
    WORD(GEMM_PANELS),
    WORD(GEMM_ROW_X),
    WORD(GEMM_ROW_W),
    WORD(GEMM_ROW_BIAS),
    WORD(GEMM_ROW_RESIDUAL),
    WORD(GEMM_ROW_OUT),
    WORD(GEMM_ROW_GROUPS),
    WORD(GEMM_ROW_PAIRS),
    WORD(REDUCE_IN),
    WORD(REDUCE_STRIDE),
    WORD(REDUCE_PARTS),
    WORD(REDUCE_BIAS),
    WORD(REDUCE_OUT),
    WORD(REDUCE_ROWS),
    WORD(REDUCE_PANELS),
    WORD(REDUCE_SHARE_OWN),
    WORD(REDUCE_SHARE_OWN_PANEL),
    WORD(REDUCE_SHARE_IN),
    WORD(REDUCE_SHARE_STRIDE),
    WORD(REDUCE_SHARE_PARTS),
    WORD(REDUCE_SHARE_BIAS),
    WORD(REDUCE_SHARE_OUT),
    WORD(REDUCE_SHARE_ROWS),
    WORD(REDUCE_SHARE_PANELS),
    WORD(UNARY_X),
    WORD(UNARY_OUT),
    WORD(UNARY_QUADS),
    WORD(ADD_A),
    WORD(ADD_B),
    WORD(ADD_OUT),
    WORD(ADD_N),
    WORD(ADD_ROW_X),
    WORD(ADD_ROW_ROW),
    WORD(ADD_ROW_OUT),
    WORD(ADD_ROW_ROWS),
    WORD(ADD_ROW_PANELS),
    WORD(SOFTMAX_X),
    WORD(SOFTMAX_OUT),
    WORD(SOFTMAX_ROWS),
    WORD(SOFTMAX_COLUMNS),
    WORD(BINARY_A),
    WORD(BINARY_B),
    WORD(BINARY_OUT),
    WORD(BINARY_ROWS),
    WORD(BINARY_PANELS),
    WORD(BINARY_ADD),
    WORD(BINARY_SUB),
    WORD(BINARY_MUL),
    WORD(BINARY_DIV),
    WORD(BINARY_MAX),
    WORD(BINARY_MIN),
    WORD(BINARY_RSUB),
    WORD(BINARY_RDIV),
    WORD(FORM_FULL),
    WORD(FORM_ROW),
    WORD(FORM_COLUMN),
    WORD(FORM_SCALAR),
    WORD(MAP_X),
    WORD(MAP_OUT),
    WORD(MAP_N),
    WORD(MAP_A),
    WORD(MAP_B),
    WORD(MAP_AFFINE),
    WORD(MAP_NEG),
    WORD(MAP_SQRT),
    WORD(MAP_EXP),
    WORD(MAP_RECIPROCAL),
    WORD(MAP_SQUARE),
    WORD(MAP_CUBE),
    WORD(MAP_RSQRT),
    WORD(LAYERNORM_X),
    WORD(LAYERNORM_RESIDUAL),
    WORD(LAYERNORM_SUM),
    WORD(LAYERNORM_SCALE),
    WORD(LAYERNORM_BIAS),
    WORD(LAYERNORM_OUT),
    WORD(LAYERNORM_ROWS),
    WORD(LAYERNORM_COLUMNS),
    WORD(LAYERNORM_EPSILON),
    WORD(ROW_REDUCE_X),
    WORD(ROW_REDUCE_OUT),
    WORD(ROW_REDUCE_ROWS),
    WORD(ROW_REDUCE_COLUMNS),
    WORD(ROW_REDUCE_SUM),
    WORD(ROW_REDUCE_MEAN),
    WORD(ROW_REDUCE_MAX),
    WORD(RELAYOUT_X),
    WORD(RELAYOUT_OUT),
    WORD(RELAYOUT_ROWS),
    WORD(RELAYOUT_COLUMNS),
    WORD(RELAYOUT_ROW_STRIDE),
    WORD(RELAYOUT_PANEL_STRIDE),
    WORD(RELAYOUT_TRANSPOSE),
    WORD(RELAYOUT_TRANSPOSE_W8),
    WORD(RELAYOUT_TRANSPOSE_W16),
    WORD(RELAYOUT_COPY_W8),
    WORD(RELAYOUT_COPY_W16),
    WORD(ATTENTION_Q),
    WORD(ATTENTION_K),
    WORD(ATTENTION_V),
    WORD(ATTENTION_OUT),
    WORD(ATTENTION_SCRATCH),
    WORD(ATTENTION_ROWS),
    WORD(ATTENTION_KEYS),
    WORD(ATTENTION_PANELS),
    WORD(ATTENTION_OUT_PANELS),
    WORD(ATTENTION_SCALE),
    WORD(BLOCK_Q),
    WORD(BLOCK_K),
    WORD(BLOCK_V),
    WORD(BLOCK_OUT),
    WORD(BLOCK_S),
    WORD(BLOCK_WORK),
    WORD(BLOCK_ROWS),
    WORD(BLOCK_KEYS),
    WORD(BLOCK_GROUPS),
    WORD(BLOCK_PANELS),
    WORD(BLOCK_SCALE),
    WORD(BLOCK_SHIFT),
    WORD(MERGE_OWN),
    WORD(MERGE_OWN_STRIDE),
    WORD(MERGE_STATS),
    WORD(MERGE_STATS_STRIDE),
    WORD(MERGE_IN),
    WORD(MERGE_STRIDE),
    WORD(MERGE_PARTS),
    WORD(MERGE_OUT),
    WORD(MERGE_ROWS),
    WORD(MERGE_PANELS),
    WORD(MERGE_SCALE),
    WORD(PICK_TABLE),
    WORD(PICK_OUT),
    WORD(PICK_N),
    WORD(PICK_HALF),
    WORD(PICK_WORD),
    WORD(PICK_DOUBLE),
    WORD(BINARY_POW),
    WORD(MAP_POW),
    WORD(CAST_X),
    WORD(CAST_OUT),
    WORD(CAST_N),
    WORD(CAST_WIDEN),
    WORD(CAST_NARROW),
    WORD(BINARY_F32_A),
    WORD(BINARY_F32_B),
    WORD(BINARY_F32_OUT),
    WORD(BINARY_F32_N),
    WORD(GEMM_F32_X),
    WORD(GEMM_F32_W),
    WORD(GEMM_F32_OUT),
    WORD(GEMM_F32_ROWS),
    WORD(GEMM_F32_INNER),
    WORD(GEMM_F32_PANELS),
};

#define FIXED_COUNT   (sizeof(fixed_defs) / sizeof(fixed_defs[0]))
#define VARIANT_COUNT 9

static char *join_text(const struct kernel_variant *v, struct arena *a, size_t *ret_size) {
    char symbol[48];
    kernel_symbol(v, symbol, sizeof(symbol));
    const char *entry = arena_printf(a, ".macro ENTRY\n.globl %s\n%s:\n.endm\n", symbol, symbol);
    const struct kernel_text parts[] = {
        {entry, strlen(entry)},
        kernel_text_common(),
        kernel_text(v->id),
    };
    size_t size = 0;
    for (size_t i = 0; i < 3; i++) {
        size += parts[i].size;
    }
    char *text = arena_alloc(a, size + 1, 1);
    size_t at = 0;
    for (size_t i = 0; i < 3; i++) {
        memcpy(text + at, parts[i].text, parts[i].size);
        at += parts[i].size;
    }
    *ret_size = size;
    return text;
}

int kernel_assemble(
    const struct kernel_variant *v, struct arena *a, struct asm_object **ret, struct err *err) {
    if (!kernel_variant_exists(v)) {
        return err_set(
            err, ERR_INVALID, "kernel %d with activation %d, operation %d does not exist",
            (int)v->id, (int)v->act, v->op);
    }
    const struct kernel *kernel = kernel_info(v->id);
    struct asm_source source = {.name = kernel->file};
    source.text = join_text(v, a, &source.size);

    const struct asm_def variant_defs[] = {
        {"ACT", v->act},
        {"HAS_BIAS", v->has_bias},
        {"OUT_F32", v->out_f32},
        {"W_REGION1", v->w_region1},
        {"IN_F16", v->in_f16},
        {"ACCUMULATES", v->accumulates},
        {"HAS_RESIDUAL", v->has_residual},
        {"OP", v->op},
        {"FORM", v->form},
    };
    struct asm_def defs[FIXED_COUNT + VARIANT_COUNT];
    static_assert(
        sizeof(variant_defs) == VARIANT_COUNT * sizeof(variant_defs[0]), "symbols of a variant");
    memcpy(defs, fixed_defs, sizeof(fixed_defs));
    memcpy(defs + FIXED_COUNT, variant_defs, sizeof(variant_defs));
    return asm_assemble(&source, ISA_SUPERVISOR, defs, FIXED_COUNT + VARIANT_COUNT, a, ret, err);
}
