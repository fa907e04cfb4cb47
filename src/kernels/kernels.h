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

/* What BINARY, MAP, ROW_REDUCE, RELAYOUT and PICK do, and how BINARY's b is spread: `op`,
 * `form`. */
enum kernel_binary {
    BINARY_ADD,
    BINARY_SUB,
    BINARY_MUL,
    BINARY_DIV,
    BINARY_MAX,
    BINARY_MIN,
    BINARY_RSUB,
    BINARY_RDIV,
    BINARY_COUNT,
    BINARY_POW = BINARY_COUNT, /* BINARY_F32 only */
    BINARY_F32_COUNT
};
enum kernel_form { FORM_FULL, FORM_ROW, FORM_COLUMN, FORM_SCALAR, FORM_COUNT };
enum kernel_map {
    MAP_AFFINE,
    MAP_NEG,
    MAP_SQRT,
    MAP_EXP,
    MAP_RECIPROCAL,
    MAP_SQUARE,
    MAP_CUBE,
    MAP_RSQRT,
    MAP_COUNT,
    MAP_POW = MAP_COUNT, /* MAP_F32 only: exponent a */
    MAP_F32_COUNT
};
enum kernel_row_reduce { ROW_REDUCE_SUM, ROW_REDUCE_MEAN, ROW_REDUCE_MAX, ROW_REDUCE_COUNT };
enum kernel_relayout {
    RELAYOUT_TRANSPOSE,
    RELAYOUT_TRANSPOSE_W8,
    RELAYOUT_TRANSPOSE_W16,
    RELAYOUT_COPY_W8,
    RELAYOUT_COPY_W16,
    RELAYOUT_COUNT
};

enum kernel_cast { CAST_WIDEN, CAST_NARROW, CAST_COUNT };           /* to float32, to float16 */
enum kernel_pick { PICK_HALF, PICK_WORD, PICK_DOUBLE, PICK_COUNT }; /* 2, 4, 8 bytes a unit */

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
    bool has_bias;     /* GEMM, GEMM_ROW, REDUCE, REDUCE_SHARE */
    bool out_f32;      /* GEMM: raw f32 partial panels, no bias, no activation; ROW_REDUCE */
    bool w_region1;    /* GEMM: weights lie in region 1: 128-bit coefficient loads */
    bool in_f16;       /* REDUCE, REDUCE_SHARE: parts are f16 panels */
    bool accumulates;  /* GEMM_F16: out += x . w; no bias */
    bool has_residual; /* LAYERNORM, GEMM_ROW */
    uint8_t op;        /* BINARY, MAP, ROW_REDUCE, RELAYOUT, PICK, CAST */
    uint8_t form;      /* BINARY: how b is spread */
};

/* Descriptors, as word indices. Sizes count what the tile holds.
 *
 * GEMM_AMP  out[R][16 P] = act(x[R][16 G] . w + bias), f16 in and out, f32 partials (accumulate
 *           = f32), products by f16v4sisoamp. bias is f16[16 P].
 * GEMM_ROW  out[C] = act(x[16 G] . w + bias) + residual for one row, in f32, one rounding; C even,
 *           weights [C][16 G]. out may equal residual.
 * REDUCE    out[R][16 P] = act(sum of `parts` f32 partials + bias), in ascending part order; with
 *           in_f16 the parts are f16, summed in f32.
 *           Part i lies `stride` bytes (a multiple of 8) after part i - 1. bias is f16[16 P].
 * REDUCE_SHARE  out[R][16 P] = act(own + sum of `parts` received partials + bias), own first, then
 *           in ascending order, in f32. Partials are f32 panels, or f16 ones with in_f16. Received
 *           parts lie `stride` bytes (a multiple of 8) apart, each packed panels of R rows; the own
 *           part's panels start `own_panel` bytes after each other. bias is f16[16 P]. With
 *           in_f16 the sum is rounded to f16 before ACT_GELU_TANH, which works in f16 then.
 * UNARY     out = act(x) over 4 * quads elements; out may equal x.
 * ADD       out = act(a + b) over 16 * n elements (f32 sum, one rounding); out may equal a or b.
 * ADD_ROW   out[R][16 P] = act(x[R][16 P] + row[16 P]); out may equal x.
 * SOFTMAX   each row over `columns` logical columns; padding columns of out are written 0.
 *
 * GEMM_F16  GEMM_AMP's descriptor and result (accumulate = f16) by f16v4hihov4amp: weights are
 *           [N / 16][K / 16][16][16], panels of 16 channels; partials between K groups are f16
 *           and lie in out. Parts deeper than 512 are split by the caller, whose REDUCE of f16
 *           parts sums them in f32. Scratch: see kernel_scratch_bytes().
 * BINARY    out[R][16 P] = act(a op b). b: FORM_FULL like a, FORM_ROW f16[16 P], FORM_COLUMN
 *           f16[R], FORM_SCALAR f16. RSUB is b - a, RDIV b / a. out may equal a, or a full b.
 *           Inside f32, or exact and rounded once. x / 0 is NaN: the device has no f16 infinity.
 * MAP       out = act(op(x)) over 16 * n elements, in f32; out may equal x. AFFINE is a x + b with
 *           f32 words a, b. Pow: SQUARE, CUBE, SQRT, RECIPROCAL, RSQRT for 2, 3, 1/2, -1, -1/2.
 * LAYERNORM out = (h - mean) / sqrt(var + epsilon) * scale + bias by rows of `columns` logical
 *           columns, scale and bias f16[16 P] with padding 0, statistics in f32, in two passes.
 *           h = x, or f16(x + residual), which is then written to `sum` and may replace either.
 *           out may equal x (sum, with a residual).
 * ROW_REDUCE  sum, mean or largest of each row's logical columns -> f16[R] or f32[R], padded to an
 *           even number of values by a copy of the last row's.
 * RELAYOUT  x: element (r, c), c's panel p = c / 16, lies at x + r row_stride + p panel_stride +
 *           2 (c mod 16): panels have 32 and 32 R, row-major 2 C' (C' a multiple of 4) and 32.
 *           TRANSPOSE: out = panels of C rows and R columns. TRANSPOSE_W8, _W16: out = weights of
 *           C channels and depth R in blocks of 8 or 16. COPY_W8, _W16: R channels, depth C.
 *           All padding of out is written 0.
 * ATTENTION out[Rq][E] = softmax(scale Q K') V, by inner products. All panels, Q and K of 16 P
 *           columns, V and out of E = 16 P', which may be a part of the head's; padding
 *           columns of q and k are 0. scale is an f32 word. Scratch: kernel_scratch_bytes(keys).
 * ATTENTION_BLOCK  a part of an attention in blocks, accumulate = f16: a block of ROWS queries by a
 *           part of KEYS keys, not divided by its sums. q [ROWS][16 GROUPS], k [KEYS][16 GROUPS],
 *           v [KEYS][16 PANELS] in panels, padding columns of q and k 0; s, work and out as in
 *           kernel_block_bytes(). Weights are multiplied with `shift`, a power of two not above
 *           1 / KEYS, so that no sum of products overflows. At most KERNEL_BLOCK_PANELS panels and
 *           KERNEL_BLOCK_ROWS rows. Queries behind the last row are calculated from whatever
 *           follows q: they touch no other.
 * ATTENTION_MERGE  out[ROWS][16 PANELS] from PARTS (at most KERNEL_MERGE_PARTS) of them; scale is
 *           the f16 scale of the blocks as f32.
 * PICK      out = the units that `table` names by their absolute addresses, one after the other,
 *           bits kept: n words of two halves, n words, or n doublewords. A unit may be named often.
 * CAST      out = x over 16 n elements, one rounding at most.
 * MAP_F32   MAP's descriptor and operations, and UNARY's activations, on float32 panels.
 * BINARY_F32  out = a op b over 16 n elements of float32; out may equal a or b.
 * ROW_REDUCE_F32  ROW_REDUCE's descriptor on float32 panels; out has a panel row for each row, its
 *           other columns 0.
 * GEMM_F32  out[R][16 P] = x[R][K] . w[K][16 P], float32 panels; K need not fill them.
 */
enum {
    GEMM_ROW_X,
    GEMM_ROW_W,
    GEMM_ROW_BIAS,
    GEMM_ROW_RESIDUAL,
    GEMM_ROW_OUT,
    GEMM_ROW_GROUPS, /* K / 16 */
    GEMM_ROW_PAIRS,  /* C / 2 */
    GEMM_ROW_WORDS
};
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
enum {
    REDUCE_SHARE_OWN,
    REDUCE_SHARE_OWN_PANEL,
    REDUCE_SHARE_IN,
    REDUCE_SHARE_STRIDE,
    REDUCE_SHARE_PARTS, /* received ones, at least 1 */
    REDUCE_SHARE_BIAS,
    REDUCE_SHARE_OUT,
    REDUCE_SHARE_ROWS,
    REDUCE_SHARE_PANELS,
    REDUCE_SHARE_WORDS
};
enum { UNARY_X, UNARY_OUT, UNARY_QUADS, UNARY_WORDS };
enum { ADD_A, ADD_B, ADD_OUT, ADD_N, ADD_WORDS };
enum { ADD_ROW_X, ADD_ROW_ROW, ADD_ROW_OUT, ADD_ROW_ROWS, ADD_ROW_PANELS, ADD_ROW_WORDS };
enum { SOFTMAX_X, SOFTMAX_OUT, SOFTMAX_ROWS, SOFTMAX_COLUMNS, SOFTMAX_WORDS };

enum { BINARY_A, BINARY_B, BINARY_OUT, BINARY_ROWS, BINARY_PANELS, BINARY_WORDS };
enum { MAP_X, MAP_OUT, MAP_N, MAP_A, MAP_B, MAP_WORDS };
enum {
    LAYERNORM_X,
    LAYERNORM_RESIDUAL,
    LAYERNORM_SUM,
    LAYERNORM_SCALE,
    LAYERNORM_BIAS,
    LAYERNORM_OUT,
    LAYERNORM_ROWS,
    LAYERNORM_COLUMNS,
    LAYERNORM_EPSILON, /* f32 */
    LAYERNORM_WORDS
};
enum { ROW_REDUCE_X, ROW_REDUCE_OUT, ROW_REDUCE_ROWS, ROW_REDUCE_COLUMNS, ROW_REDUCE_WORDS };
enum {
    RELAYOUT_X,
    RELAYOUT_OUT,
    RELAYOUT_ROWS,
    RELAYOUT_COLUMNS,
    RELAYOUT_ROW_STRIDE, /* bytes, multiples of 8 */
    RELAYOUT_PANEL_STRIDE,
    RELAYOUT_WORDS
};
enum {
    ATTENTION_Q,
    ATTENTION_K,
    ATTENTION_V,
    ATTENTION_OUT,
    ATTENTION_SCRATCH,
    ATTENTION_ROWS,
    ATTENTION_KEYS,
    ATTENTION_PANELS,     /* of q and k */
    ATTENTION_OUT_PANELS, /* of v and out */
    ATTENTION_SCALE,      /* f32 */
    ATTENTION_WORDS
};
enum {
    BLOCK_Q,
    BLOCK_K,
    BLOCK_V,
    BLOCK_OUT,
    BLOCK_S,
    BLOCK_WORK,
    BLOCK_ROWS,
    BLOCK_KEYS,
    BLOCK_GROUPS,
    BLOCK_PANELS,
    BLOCK_SCALE, /* f16: scale, - scale */
    BLOCK_SHIFT, /* f16 in the low half */
    BLOCK_WORDS
};
enum {
    MERGE_OWN,
    MERGE_OWN_STRIDE,
    MERGE_STATS,
    MERGE_STATS_STRIDE,
    MERGE_IN,
    MERGE_STRIDE, /* a multiple of 8 */
    MERGE_PARTS,
    MERGE_OUT,
    MERGE_ROWS,
    MERGE_PANELS,
    MERGE_SCALE, /* f32 */
    MERGE_WORDS
};
enum { CAST_X, CAST_OUT, CAST_N, CAST_WORDS };
enum { BINARY_F32_A, BINARY_F32_B, BINARY_F32_OUT, BINARY_F32_N, BINARY_F32_WORDS };
enum {
    GEMM_F32_X,
    GEMM_F32_W,
    GEMM_F32_OUT,
    GEMM_F32_ROWS,
    GEMM_F32_INNER,
    GEMM_F32_PANELS,
    GEMM_F32_WORDS
};
enum { PICK_TABLE, PICK_OUT, PICK_N, PICK_WORDS };

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
/* Whether such a variant can be assembled. */
bool kernel_variant_exists(const struct kernel_variant *v);
bool kernel_variant_equal(const struct kernel_variant *a, const struct kernel_variant *b);
/* Bytes of scratch that GEMM_SCRATCH needs for R rows. */
uint32_t kernel_gemm_scratch_bytes(uint32_t rows);
/* The same by variant: f32 output needs a row of zeros only; kernels without scratch give 0.
 * ATTENTION: by its keys. */
uint32_t kernel_scratch_bytes(const struct kernel_variant *v, uint32_t rows);
/* What ATTENTION_BLOCK needs beside its operands, and its result. */
#define KERNEL_BLOCK_PANELS 8u
#define KERNEL_BLOCK_ROWS   128u
#define KERNEL_MERGE_PARTS  16u
struct kernel_block_bytes {
    uint32_t s, work, out;
    uint32_t out_stride;   /* bytes from a panel of out to the next */
    uint32_t stats;        /* offset of the largest scores in out, f32 [out_stride / 32] */
    uint32_t stats_stride; /* bytes to the sums */
};
struct kernel_block_bytes kernel_block_bytes(uint32_t rows, uint32_t keys, uint32_t panels);
/* Tile cycles of one call, from call to return. dims: the descriptor's words that are sizes, in
 * its order: GEMM rows, groups, panels; GEMM_ROW groups, pairs; REDUCE, REDUCE_SHARE parts, rows,
 * panels; UNARY quads; ADD n; ADD_ROW rows, panels; SOFTMAX rows, columns; BINARY rows, panels;
 * MAP n; LAYERNORM, ROW_REDUCE, RELAYOUT rows, columns; ATTENTION rows, keys, panels, out_panels;
 * ATTENTION_BLOCK rows, keys, groups, panels; ATTENTION_MERGE parts, rows, panels; PICK, CAST,
 * MAP_F32, BINARY_F32 n; ROW_REDUCE_F32 rows, columns; GEMM_F32 rows, inner, panels. Source and
 * fit of the constants: see cycles.c. */
uint32_t kernel_cycles(const struct kernel_variant *v, const uint32_t *dims);
/* Cycles that the call's arithmetic takes at the tile's peak, whatever the kernel does besides
 * (roofline.c has the rates); dims as above, padding of panels counted. */
double kernel_useful_cycles(const struct kernel_variant *v, const uint32_t *dims);
/* Assembles one variant. */
int kernel_assemble(
    const struct kernel_variant *v, struct arena *a, struct asm_object **ret, struct err *err);

#endif
