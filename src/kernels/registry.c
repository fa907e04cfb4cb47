/* The kernels' contracts: operands by variant, symbols, scratch sizes and cycle costs. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "kernels/kernels_internal.h"

#define OPERAND(op_name, op_word, op_written, op_memory, op_align, op_over_read, op_separate)      \
    {                                                                                              \
        .name = (op_name), .word = (op_word), .is_written = (op_written), .memory = (op_memory),   \
        .align = (op_align), .over_read = (op_over_read), .separate = (op_separate)                \
    }
#define OPERAND_COUNT(...)                                                                         \
    (sizeof((struct kernel_operand[]){__VA_ARGS__}) / sizeof(struct kernel_operand))

static const struct kernel kernels[] = {
#define KERNEL(NAME, id_name, id_file, words, ...)                                                 \
    [KERNEL_##NAME] = {                                                                            \
        .name = #id_name,                                                                          \
        .file = id_file,                                                                           \
        .descriptor_words = (words),                                                               \
        .operand_count = OPERAND_COUNT(__VA_ARGS__),                                               \
        .operands = {__VA_ARGS__}},
#include "kernels/kernels.def"
#undef KERNEL
};

static_assert(sizeof(kernels) / sizeof(kernels[0]) == KERNEL_COUNT, "one row a kernel");

/* Positions in the rows of GEMM_AMP and GEMM_F16. */
enum { GEMM_OPERAND_X, GEMM_OPERAND_W, GEMM_OPERAND_OUT, GEMM_OPERAND_SCRATCH, GEMM_OPERAND_BIAS };

const struct kernel *kernel_info(enum kernel_id id) {
    assert(id >= 0 && id < KERNEL_COUNT);
    return &kernels[id];
}

void kernel_operands(const struct kernel_variant *v, struct kernel_operand ret[6], int *ret_count) {
    const struct kernel *kernel = kernel_info(v->id);
    int count = kernel->operand_count;
    memcpy(ret, kernel->operands, sizeof(kernel->operands));
    if (strcmp(ret[count - 1].name, "bias") == 0 && !v->has_bias) {
        count--;
    }
    if (v->id == KERNEL_GEMM_AMP) {
        if (v->w_region1) {
            ret[GEMM_OPERAND_W].memory = MEMORY_REGION1;
        }
        if (v->out_f32) { /* out takes over what the partials in scratch were subject to */
            struct kernel_operand *out = &ret[GEMM_OPERAND_OUT];
            struct kernel_operand *scratch = &ret[GEMM_OPERAND_SCRATCH];
            out->memory = scratch->memory;
            out->align = scratch->align;
            out->over_read = scratch->over_read;
            out->separate = 1u << GEMM_OPERAND_X;
            scratch->over_read = 0;
            ret[GEMM_OPERAND_X].separate |= 1u << GEMM_OPERAND_OUT;
        }
    }
    if (v->id == KERNEL_GEMM_ROW && !v->has_residual) {
        if (v->has_bias) {
            ret[count - 2] = ret[count - 1];
        }
        count--;
    }
    if (v->id == KERNEL_LAYERNORM && !v->has_residual) {
        count -= 2; /* residual, sum */
    }
    if (v->id == KERNEL_GEMM_F16) {
        if (v->w_region1) {
            ret[GEMM_OPERAND_W].memory = MEMORY_REGION1;
        }
        if (kernel_scratch_bytes(v, 1) == 0) { /* is not looked at */
            ret[GEMM_OPERAND_SCRATCH].memory = MEMORY_ANY;
            ret[GEMM_OPERAND_SCRATCH].align = 4;
            ret[GEMM_OPERAND_SCRATCH].separate = 0;
            ret[GEMM_OPERAND_X].separate &= (uint8_t) ~(1u << GEMM_OPERAND_SCRATCH);
        }
        if (!v->has_bias) {
            ret[GEMM_OPERAND_X].separate &= (uint8_t) ~(1u << GEMM_OPERAND_BIAS);
        }
    }
    *ret_count = count;
}

const char *kernel_symbol(const struct kernel_variant *v, char *buf, size_t n) {
    int size = snprintf(
        buf, n, "k_%s_%d%d%d%d", kernel_info(v->id)->name, (int)v->act, (int)v->has_bias,
        (int)v->out_f32, (int)v->w_region1);
    if (v->op || v->form || v->in_f16 || v->accumulates || v->has_residual) {
        snprintf(
            buf + size, n - (size_t)size, "_%u_%u_%d%d%d", v->op, v->form, (int)v->in_f16,
            (int)v->accumulates, (int)v->has_residual);
    }
    return buf;
}

bool kernel_variant_exists(const struct kernel_variant *v) {
    static const uint8_t ops[KERNEL_COUNT] = {
#define OPS(ID, COUNT) [KERNEL_##ID] = (COUNT),
        KERNEL_OPS(OPS)
#undef OPS
    };
    if (v->id < 0 || v->id >= KERNEL_COUNT || v->act < 0 || v->act >= ACT_COUNT) {
        return false;
    }
    if (v->op >= (ops[v->id] == 0 ? 1 : ops[v->id]) || v->form >= FORM_COUNT) {
        return false;
    }
    bool is_activated =
        v->id != KERNEL_LAYERNORM && v->id != KERNEL_ROW_REDUCE && v->id != KERNEL_RELAYOUT &&
        v->id != KERNEL_ATTENTION && v->id != KERNEL_ATTENTION_BLOCK &&
        v->id != KERNEL_ATTENTION_MERGE && v->id != KERNEL_PICK && v->id != KERNEL_CAST &&
        v->id != KERNEL_BINARY_F32 && v->id != KERNEL_ROW_REDUCE_F32 && v->id != KERNEL_GEMM_F32;
    if (v->act != ACT_NONE && !is_activated) {
        return false;
    }
    return !(v->id == KERNEL_GEMM_F16 && v->has_bias && v->accumulates);
}

bool kernel_variant_equal(const struct kernel_variant *a, const struct kernel_variant *b) {
    return a->id == b->id && a->act == b->act && a->has_bias == b->has_bias &&
           a->out_f32 == b->out_f32 && a->w_region1 == b->w_region1 && a->in_f16 == b->in_f16 &&
           a->accumulates == b->accumulates && a->has_residual == b->has_residual &&
           a->op == b->op && a->form == b->form;
}

uint32_t kernel_gemm_scratch_bytes(uint32_t rows) {
    return 64 + 64 * rows; /* row of first partials, then an f32 panel */
}

uint32_t kernel_scratch_bytes(const struct kernel_variant *v, uint32_t rows) {
    if (v->id == KERNEL_GEMM_F16) {
        return v->has_bias || v->accumulates ? 0 : 32; /* a row of zeros */
    }
    if (v->id == KERNEL_ATTENTION) {
        return 16 + 8 * rows; /* of keys: two f32 weights each */
    }
    if (v->id != KERNEL_GEMM_AMP) {
        return 0;
    }
    return v->out_f32 ? 64 : kernel_gemm_scratch_bytes(rows);
}

struct kernel_block_bytes kernel_block_bytes(uint32_t rows, uint32_t keys, uint32_t panels) {
    uint32_t key_groups = (keys + 15) / 16, row_groups = (rows + 15) / 16;
    uint32_t out = 512 * row_groups * panels;
    return (struct kernel_block_bytes){
        .s = 512 * key_groups + 256 + 512 * panels + 256,
        .work = 512 * key_groups * (1 + panels) + 64,
        .out = out + 128 * row_groups,
        .out_stride = 512 * row_groups,
        .stats = out,
        .stats_stride = 64 * row_groups};
}
