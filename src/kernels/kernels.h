/* Tile kernels: assembly text specialised by symbols, and the contract of each.
 *
 * Job: (kernel, variant) -> text + symbols for the assembler; and for planner, placement and
 * emitter: operand layouts, alignment, over-read, memory class, element separation, cycle cost.
 *
 * Layout `panels`: a matrix of R rows and C columns is stored as P = ceil(C / 16) panels of
 * [R][16] elements, panel after panel: element (r, c) lies at ((c / 16) * R + r) * 16 + c % 16.
 * f16 panels have 32 bytes a row, f32 panels 64. Columns C..16P-1 are padding: always finite,
 * zero unless a kernel says otherwise. A tile holds the R rows and P panels of its share only.
 * Layout `weights`: [N / 8][K / 16][8][16] f16, K innermost: blocks of 8 output channels, each
 * block's K groups one after the other (the order in which the coefficient store is loaded), 256
 * bytes a group. K and N are padded with zeros to multiples of 16.
 *
 * Calling convention. Every kernel is a supervisor routine, symbol `k_<name>_<variant key>`:
 *   called   call $m10, symbol   with $m2 = address of its descriptor (4-aligned table of 32-bit
 *            words, layout per kernel below) and no worker running;
 *   returns  br $m10 with no worker running (it ends in `sync 2` where it launched workers);
 *   clobbers $m0..$m9, worker registers, accumulators, coefficients. Keeps $m10, $m11.
 * Addresses in descriptors are absolute bytes. Descriptor and code lie in different elements.
 * Each worker's base ($WORKERn_BASE) names 256 bytes, 8-aligned, in an element without code, that
 * kernels use as scratch and that hold nothing from one call to the next; worker n's lie 256 n
 * bytes after worker 0's.
 * All rounding is to nearest; kernels leave FP_CTL as the runtime set it.
 */
#ifndef KERNELS_KERNELS_H
#define KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "asm/asm.h"
#include "base/arena.h"
#include "base/err.h"

/* Activation applied in f32 before the final rounding to f16. Erf is Gelu approximate="none". */
enum kernel_act {
    ACT_NONE,
    ACT_RELU,
    ACT_TANH,
    ACT_SIGMOID,
    ACT_GELU_ERF,
    ACT_GELU_TANH,
    ACT_COUNT
};

enum kernel_id {
#define KERNEL(NAME, ...) KERNEL_##NAME,
#include "kernels/kernels.def"
#undef KERNEL
    KERNEL_COUNT
};

/* A variant: what the text is specialised by. Fields a kernel does not use are 0. */
struct kernel_variant {
    enum kernel_id id;
    enum kernel_act act;
    bool has_bias;  /* GEMM, REDUCE */
    bool out_f32;   /* GEMM: raw f32 partial panels, no bias, no activation */
    bool w_region1; /* GEMM: weights lie in region 1: 128-bit coefficient loads */
};

/* Descriptors, as word indices. Sizes count what the tile holds.
 *
 * GEMM_AMP  out[R][16 P] = act(x[R][16 G] . w + bias), f16 in and out, f32 partials (accumulate
 *           = f32), products by f16v4sisoamp. bias is f16[16 P].
 * REDUCE    out[R][16 P] = act(sum of `parts` f32 partials + bias), in ascending part order.
 *           Part i lies `stride` bytes (a multiple of 8) after part i - 1. bias is f16[16 P].
 * UNARY     out = act(x) over 16 * n elements; out may equal x.
 * ADD       out = act(a + b) over 16 * n elements (f32 sum, one rounding); out may equal a or b.
 * ADD_ROW   out[R][16 P] = act(x[R][16 P] + row[16 P]); out may equal x.
 * SOFTMAX   each row over `columns` logical columns; padding columns of out are written 0.
 */
enum {
    GEMM_X,
    GEMM_W,
    GEMM_BIAS,
    GEMM_OUT,
    GEMM_SCRATCH,
    GEMM_ROWS,
    GEMM_GROUPS,
    GEMM_PANELS,
    GEMM_WORDS
};
enum {
    REDUCE_IN,
    REDUCE_STRIDE,
    REDUCE_PARTS,
    REDUCE_BIAS,
    REDUCE_OUT,
    REDUCE_ROWS,
    REDUCE_PANELS,
    REDUCE_WORDS
};
enum { UNARY_X, UNARY_OUT, UNARY_N, UNARY_WORDS };
enum { ADD_A, ADD_B, ADD_OUT, ADD_N, ADD_WORDS };
enum { ADD_ROW_X, ADD_ROW_ROW, ADD_ROW_OUT, ADD_ROW_ROWS, ADD_ROW_PANELS, ADD_ROW_WORDS };
enum { SOFTMAX_X, SOFTMAX_OUT, SOFTMAX_ROWS, SOFTMAX_COLUMNS, SOFTMAX_WORDS };

enum kernel_memory { MEMORY_ANY, MEMORY_REGION0, MEMORY_REGION1 };

struct kernel_operand {
    const char *name;
    uint8_t word; /* index in the descriptor */
    bool is_written;
    enum kernel_memory memory;
    uint16_t align;     /* bytes */
    uint16_t over_read; /* bytes past the end that may be read (same class, finite) */
    uint8_t separate;   /* bit i: must share no memory element with operand i */
};

struct kernel {
    const char *name; /* "gemm_amp" */
    const char *file; /* "gemm_amp.S" */
    uint8_t descriptor_words;
    uint8_t operand_count;
    struct kernel_operand operands[6];
};

const struct kernel *kernel_info(enum kernel_id id);
/* The kernel's contract for one variant (memory classes can depend on it). */
void kernel_operands(const struct kernel_variant *v, struct kernel_operand ret[6], int *ret_count);
/* Symbol of a variant, e.g. "k_gemm_amp_1010"; buf of at least 48 bytes; returns buf. */
const char *kernel_symbol(const struct kernel_variant *v, char *buf, size_t n);
bool kernel_variant_equal(const struct kernel_variant *a, const struct kernel_variant *b);
/* Bytes of scratch that GEMM_SCRATCH needs for R rows. */
uint32_t kernel_gemm_scratch_bytes(uint32_t rows);
/* The same by variant: f32 output needs a row of zeros only; kernels without scratch give 0. */
uint32_t kernel_scratch_bytes(const struct kernel_variant *v, uint32_t rows);
/* Tile cycles of one call, from call to return. dims: the descriptor's words that are sizes, in
 * its order: GEMM rows, groups, panels; REDUCE parts, rows, panels; UNARY, ADD n; ADD_ROW rows,
 * panels; SOFTMAX rows, columns. Source and fit of the constants: see cycles.c. */
uint32_t kernel_cycles(const struct kernel_variant *v, const uint32_t *dims);
/* Assembles one variant. */
int kernel_assemble(
    const struct kernel_variant *v, struct arena *a, struct asm_object **ret, struct err *err);

#endif
