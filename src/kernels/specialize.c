/* One variant -> assembler object: its entry macro, the common text, the kernel's text, and the
 * symbols that specialise them. Descriptor words and activation numbers come from kernels.h, so
 * that text and contract cannot disagree. */
#include <string.h>

#include "kernels/kernels_internal.h"

#define WORD(x)                                                                                    \
    { #x, x }

static const struct asm_def fixed_defs[] = {
    WORD(ACT_NONE),        WORD(ACT_RELU),      WORD(ACT_TANH),     WORD(ACT_SIGMOID),
    WORD(ACT_GELU_ERF),    WORD(ACT_GELU_TANH), WORD(GEMM_X),       WORD(GEMM_W),
    WORD(GEMM_BIAS),       WORD(GEMM_OUT),      WORD(GEMM_SCRATCH), WORD(GEMM_ROWS),
    WORD(GEMM_GROUPS),     WORD(GEMM_PANELS),   WORD(REDUCE_IN),    WORD(REDUCE_STRIDE),
    WORD(REDUCE_PARTS),    WORD(REDUCE_BIAS),   WORD(REDUCE_OUT),   WORD(REDUCE_ROWS),
    WORD(REDUCE_PANELS),   WORD(UNARY_X),       WORD(UNARY_OUT),    WORD(UNARY_N),
    WORD(ADD_A),           WORD(ADD_B),         WORD(ADD_OUT),      WORD(ADD_N),
    WORD(ADD_ROW_X),       WORD(ADD_ROW_ROW),   WORD(ADD_ROW_OUT),  WORD(ADD_ROW_ROWS),
    WORD(ADD_ROW_PANELS),  WORD(SOFTMAX_X),     WORD(SOFTMAX_OUT),  WORD(SOFTMAX_ROWS),
    WORD(SOFTMAX_COLUMNS),
};

#define FIXED_COUNT (sizeof(fixed_defs) / sizeof(fixed_defs[0]))

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
    if (v->id < 0 || v->id >= KERNEL_COUNT || v->act < 0 || v->act >= ACT_COUNT) {
        return err_set(
            err, ERR_INVALID, "kernel %d with activation %d does not exist", (int)v->id,
            (int)v->act);
    }
    const struct kernel *kernel = kernel_info(v->id);
    struct asm_source source = {.name = kernel->file};
    source.text = join_text(v, a, &source.size);

    struct asm_def defs[FIXED_COUNT + 4];
    memcpy(defs, fixed_defs, sizeof(fixed_defs));
    defs[FIXED_COUNT + 0] = (struct asm_def){"ACT", v->act};
    defs[FIXED_COUNT + 1] = (struct asm_def){"HAS_BIAS", v->has_bias};
    defs[FIXED_COUNT + 2] = (struct asm_def){"OUT_F32", v->out_f32};
    defs[FIXED_COUNT + 3] = (struct asm_def){"W_REGION1", v->w_region1};
    return asm_assemble(&source, ISA_SUPERVISOR, defs, FIXED_COUNT + 4, a, ret, err);
}
