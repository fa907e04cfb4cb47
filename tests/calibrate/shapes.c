/* What the sizes of each kernel mean: its shapes, and how they fill a descriptor. Shapes are those
 * that plans make: few and many rows, parts of a row of workers, odd tails. */
#include "sweep.h"

#include <math.h>
#include <string.h>

#include "base/f16.h"

static uint32_t float_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static uint32_t panels_of(uint32_t columns) {
    return (columns + 15) / 16;
}

static void fill_gemm(const struct kernel_variant *v, const uint32_t *d, struct sweep_call *c) {
    c->words[GEMM_ROWS] = d[0];
    c->words[GEMM_GROUPS] = d[1];
    c->words[GEMM_PANELS] = d[2];
    c->bytes[GEMM_X] = 32 * d[0] * d[1];
    c->bytes[GEMM_W] = 512 * d[1] * d[2];
    c->bytes[GEMM_BIAS] = 32 * d[2];
    c->bytes[GEMM_OUT] = (v->out_f32 ? 64 : 32) * d[0] * d[2];
    c->bytes[GEMM_SCRATCH] = kernel_scratch_bytes(v, d[0]);
}

static void fill_gemm_row(const struct kernel_variant *v, const uint32_t *d, struct sweep_call *c) {
    c->words[GEMM_ROW_GROUPS] = d[0];
    c->words[GEMM_ROW_PAIRS] = d[1];
    c->bytes[GEMM_ROW_X] = 32 * d[0];
    c->bytes[GEMM_ROW_W] = 64 * d[0] * d[1];
    c->bytes[GEMM_ROW_BIAS] = c->bytes[GEMM_ROW_RESIDUAL] = c->bytes[GEMM_ROW_OUT] = 4 * d[1];
}

static void fill_reduce(const struct kernel_variant *v, const uint32_t *d, struct sweep_call *c) {
    uint32_t part = (v->in_f16 ? 32 : 64) * d[1] * d[2];
    c->words[REDUCE_STRIDE] = part;
    c->words[REDUCE_PARTS] = d[0];
    c->words[REDUCE_ROWS] = d[1];
    c->words[REDUCE_PANELS] = d[2];
    c->bytes[REDUCE_IN] = part * d[0];
    c->bytes[REDUCE_BIAS] = 32 * d[2];
    c->bytes[REDUCE_OUT] = 32 * d[1] * d[2];
}

static void
fill_reduce_share(const struct kernel_variant *v, const uint32_t *d, struct sweep_call *c) {
    uint32_t part = (v->in_f16 ? 32 : 64) * d[1] * d[2];
    c->words[REDUCE_SHARE_OWN_PANEL] = part / d[2];
    c->words[REDUCE_SHARE_STRIDE] = part;
    c->words[REDUCE_SHARE_PARTS] = d[0];
    c->words[REDUCE_SHARE_ROWS] = d[1];
    c->words[REDUCE_SHARE_PANELS] = d[2];
    c->bytes[REDUCE_SHARE_OWN] = part;
    c->bytes[REDUCE_SHARE_IN] = part * d[0];
    c->bytes[REDUCE_SHARE_BIAS] = 32 * d[2];
    c->bytes[REDUCE_SHARE_OUT] = 32 * d[1] * d[2];
}

static void fill_unary(const struct kernel_variant *v, const uint32_t *d, struct sweep_call *c) {
    c->words[UNARY_QUADS] = d[0];
    c->bytes[UNARY_X] = c->bytes[UNARY_OUT] = 8 * d[0];
}

static void fill_add(const struct kernel_variant *v, const uint32_t *d, struct sweep_call *c) {
    c->words[ADD_N] = d[0];
    c->bytes[ADD_A] = c->bytes[ADD_B] = c->bytes[ADD_OUT] = 32 * d[0];
}

static void fill_add_row(const struct kernel_variant *v, const uint32_t *d, struct sweep_call *c) {
    c->words[ADD_ROW_ROWS] = d[0];
    c->words[ADD_ROW_PANELS] = d[1];
    c->bytes[ADD_ROW_X] = c->bytes[ADD_ROW_OUT] = 32 * d[0] * d[1];
    c->bytes[ADD_ROW_ROW] = 32 * d[1];
}

static void fill_softmax(const struct kernel_variant *v, const uint32_t *d, struct sweep_call *c) {
    c->words[SOFTMAX_ROWS] = d[0];
    c->words[SOFTMAX_COLUMNS] = d[1];
    c->bytes[SOFTMAX_X] = c->bytes[SOFTMAX_OUT] = 32 * d[0] * panels_of(d[1]);
}

static void fill_binary(const struct kernel_variant *v, const uint32_t *d, struct sweep_call *c) {
    uint32_t full = 32 * d[0] * d[1];
    c->words[BINARY_ROWS] = d[0];
    c->words[BINARY_PANELS] = d[1];
    c->bytes[BINARY_A] = c->bytes[BINARY_OUT] = full;
    c->bytes[BINARY_B] = v->form == FORM_FULL     ? full
                         : v->form == FORM_ROW    ? 32 * d[1]
                         : v->form == FORM_COLUMN ? 2 * d[0] + 2
                                                  : 4;
}

static void fill_map(const struct kernel_variant *v, const uint32_t *d, struct sweep_call *c) {
    c->words[MAP_N] = d[0];
    c->words[MAP_A] = float_bits(0.5f);
    c->words[MAP_B] = float_bits(0.25f);
    c->bytes[MAP_X] = c->bytes[MAP_OUT] = 32 * d[0];
}

static void
fill_layernorm(const struct kernel_variant *v, const uint32_t *d, struct sweep_call *c) {
    uint32_t matrix = 32 * d[0] * panels_of(d[1]);
    c->words[LAYERNORM_ROWS] = d[0];
    c->words[LAYERNORM_COLUMNS] = d[1];
    c->words[LAYERNORM_EPSILON] = float_bits(1e-5f);
    c->bytes[LAYERNORM_X] = c->bytes[LAYERNORM_RESIDUAL] = matrix;
    c->bytes[LAYERNORM_SUM] = c->bytes[LAYERNORM_OUT] = matrix;
    c->bytes[LAYERNORM_SCALE] = c->bytes[LAYERNORM_BIAS] = 32 * panels_of(d[1]);
}

static void
fill_row_reduce(const struct kernel_variant *v, const uint32_t *d, struct sweep_call *c) {
    c->words[ROW_REDUCE_ROWS] = d[0];
    c->words[ROW_REDUCE_COLUMNS] = d[1];
    c->bytes[ROW_REDUCE_X] = 32 * d[0] * panels_of(d[1]);
    c->bytes[ROW_REDUCE_OUT] = 4 * (d[0] + 1);
}

static void fill_relayout(const struct kernel_variant *v, const uint32_t *d, struct sweep_call *c) {
    c->words[RELAYOUT_ROWS] = d[0];
    c->words[RELAYOUT_COLUMNS] = d[1];
    c->words[RELAYOUT_ROW_STRIDE] = 32;
    c->words[RELAYOUT_PANEL_STRIDE] = 32 * d[0];
    c->bytes[RELAYOUT_X] = 32 * d[0] * panels_of(d[1]);
    c->bytes[RELAYOUT_OUT] = 512 * panels_of(d[0]) * panels_of(d[1]);
}

static void
fill_attention(const struct kernel_variant *v, const uint32_t *d, struct sweep_call *c) {
    c->words[ATTENTION_ROWS] = d[0];
    c->words[ATTENTION_KEYS] = d[1];
    c->words[ATTENTION_PANELS] = d[2];
    c->words[ATTENTION_OUT_PANELS] = d[3];
    c->words[ATTENTION_SCALE] = float_bits(0.01f);
    c->bytes[ATTENTION_Q] = 32 * d[0] * d[2];
    c->bytes[ATTENTION_OUT] = 32 * d[0] * d[3];
    c->bytes[ATTENTION_K] = 32 * d[1] * d[2];
    c->bytes[ATTENTION_V] = 32 * d[1] * d[3];
    c->bytes[ATTENTION_SCRATCH] = kernel_scratch_bytes(v, d[1]);
}

static void fill_block(const struct kernel_variant *v, const uint32_t *d, struct sweep_call *c) {
    struct kernel_block_bytes b = kernel_block_bytes(d[0], d[1], d[3]);
    uint32_t scale = f16_from_f64(0.01);
    c->words[BLOCK_ROWS] = d[0];
    c->words[BLOCK_KEYS] = d[1];
    c->words[BLOCK_GROUPS] = d[2];
    c->words[BLOCK_PANELS] = d[3];
    c->words[BLOCK_SCALE] = scale | (scale ^ 0x8000) << 16;
    c->words[BLOCK_SHIFT] = f16_from_f64(exp2(-ceil(log2(d[1]))));
    c->bytes[BLOCK_Q] = 32 * d[0] * d[2];
    c->bytes[BLOCK_K] = 32 * d[1] * d[2];
    c->bytes[BLOCK_V] = 32 * d[1] * d[3];
    c->bytes[BLOCK_OUT] = b.out;
    c->bytes[BLOCK_S] = b.s;
    c->bytes[BLOCK_WORK] = b.work;
}

static void fill_merge(const struct kernel_variant *v, const uint32_t *d, struct sweep_call *c) {
    struct kernel_block_bytes b = kernel_block_bytes(d[1], 1, d[2]);
    uint32_t out = 32 * d[1] * d[2];
    c->words[MERGE_OWN_STRIDE] = b.out_stride;
    c->words[MERGE_STATS_STRIDE] = b.stats_stride;
    c->words[MERGE_STRIDE] = out + 8 * d[1];
    c->words[MERGE_PARTS] = d[0];
    c->words[MERGE_ROWS] = d[1];
    c->words[MERGE_PANELS] = d[2];
    c->words[MERGE_SCALE] = float_bits(0.01f);
    c->bytes[MERGE_OWN] = b.out;
    c->bytes[MERGE_STATS] = 2 * b.stats_stride;
    c->bytes[MERGE_IN] = (out + 8 * d[1]) * d[0];
    c->bytes[MERGE_OUT] = out;
}

/* Every address of the table names the same place: an own one, of any content. */
static void fill_pick(const struct kernel_variant *v, const uint32_t *d, struct sweep_call *c) {
    c->words[PICK_N] = d[0];
    c->bytes[PICK_TABLE] = (v->op == PICK_HALF ? 8 : 4) * d[0];
    c->bytes[PICK_OUT] = (v->op == PICK_DOUBLE ? 8 : 4) * d[0];
    c->fill[PICK_TABLE] = SWEEP_FREE;
}

static void fill_cast(const struct kernel_variant *v, const uint32_t *d, struct sweep_call *c) {
    c->words[CAST_N] = d[0];
    c->bytes[CAST_X] = c->bytes[CAST_OUT] = 64 * d[0];
}

static void fill_map_f32(const struct kernel_variant *v, const uint32_t *d, struct sweep_call *c) {
    fill_map(v, d, c);
    c->bytes[MAP_X] = c->bytes[MAP_OUT] = 64 * d[0];
}

static void
fill_binary_f32(const struct kernel_variant *v, const uint32_t *d, struct sweep_call *c) {
    c->words[BINARY_F32_N] = d[0];
    c->bytes[BINARY_F32_A] = c->bytes[BINARY_F32_B] = c->bytes[BINARY_F32_OUT] = 64 * d[0];
}

static void
fill_row_reduce_f32(const struct kernel_variant *v, const uint32_t *d, struct sweep_call *c) {
    fill_row_reduce(v, d, c);
    c->bytes[ROW_REDUCE_X] *= 2;
    c->bytes[ROW_REDUCE_OUT] = 64 * d[0];
}

static void fill_gemm_f32(const struct kernel_variant *v, const uint32_t *d, struct sweep_call *c) {
    c->words[GEMM_F32_ROWS] = d[0];
    c->words[GEMM_F32_INNER] = d[1];
    c->words[GEMM_F32_PANELS] = d[2];
    c->bytes[GEMM_F32_X] = 64 * d[0] * panels_of(d[1]);
    c->bytes[GEMM_F32_W] = 64 * d[1] * d[2];
    c->bytes[GEMM_F32_OUT] = 64 * d[0] * d[2];
}

#define ELEMENTS                                                                                   \
    {                                                                                              \
        {1}, {2}, {3}, {6}, {9}, {12}, {18}, {36}, {64}, {100}, {288}, {                           \
            600                                                                                    \
        }                                                                                          \
    }
#define MATRICES                                                                                   \
    {                                                                                              \
        {1, 1}, {1, 3}, {1, 9}, {1, 24}, {2, 9}, {4, 1}, {4, 9}, {4, 18}, {5, 12}, {6, 3}, {7, 5}, \
            {12, 9}, {13, 2}, {24, 4}, {50, 5}, {                                                  \
            96, 3                                                                                  \
        }                                                                                          \
    }
#define ROWS                                                                                       \
    {                                                                                              \
        {1, 4}, {1, 16}, {1, 50}, {1, 144}, {1, 197}, {1, 768}, {2, 64}, {3, 144}, {4, 144},       \
            {5, 288}, {6, 64}, {7, 33}, {8, 144}, {12, 72}, {13, 1152}, {24, 96}, {                \
            60, 80                                                                                 \
        }                                                                                          \
    }

static const struct sweep_kernel kernels[] = {
    {KERNEL_GEMM_AMP,
     SWEEP_BIAS | SWEEP_F32 | SWEEP_REGION1,
     {{1, 1, 1},  {1, 9, 1},  {1, 9, 3},  {2, 4, 2},  {2, 18, 1}, {3, 9, 1},    {4, 2, 1},
      {4, 9, 1},  {4, 9, 2},  {4, 18, 1}, {5, 6, 1},  {6, 9, 2},  {8, 16, 1},   {12, 3, 4},
      {13, 9, 1}, {20, 8, 2}, {25, 4, 3}, {48, 9, 2}, {64, 8, 1}, {100, 12, 1}, {120, 4, 4}},
     fill_gemm},
    {KERNEL_GEMM_F16,
     SWEEP_BIAS | SWEEP_REGION1 | SWEEP_ACCUMULATES,
     {{1, 9, 1},
      {4, 9, 1},
      {6, 4, 2},
      {8, 16, 1},
      {12, 3, 4},
      {13, 9, 1},
      {20, 8, 2},
      {25, 4, 3},
      {48, 9, 2},
      {64, 8, 1},
      {92, 24, 2},
      {100, 12, 1},
      {120, 4, 4},
      {180, 12, 2}},
     fill_gemm},
    {KERNEL_REDUCE,
     SWEEP_BIAS | SWEEP_IN_F16,
     {{2, 1, 1},
      {2, 4, 1},
      {3, 4, 3},
      {4, 1, 9},
      {4, 4, 1},
      {5, 6, 2},
      {6, 8, 1},
      {8, 12, 2},
      {9, 1, 1},
      {9, 4, 2},
      {12, 13, 1},
      {16, 4, 4},
      {2, 64, 3}},
     fill_reduce},
    {KERNEL_REDUCE_SHARE,
     SWEEP_BIAS | SWEEP_IN_F16,
     {{1, 1, 1},
      {1, 4, 1},
      {2, 4, 3},
      {3, 1, 9},
      {3, 4, 1},
      {4, 6, 2},
      {5, 8, 1},
      {7, 12, 2},
      {8, 1, 1},
      {8, 4, 2},
      {11, 13, 1},
      {15, 4, 4},
      {1, 64, 3}},
     fill_reduce_share},
    {KERNEL_UNARY,
     0,
     {{1}, {4}, {6}, {9}, {36}, {40}, {72}, {150}, {400}, {1152}, {2400}},
     fill_unary},
    {KERNEL_GEMM_ROW,
     SWEEP_BIAS | SWEEP_RESIDUAL,
     {{1, 8},
      {2, 3},
      {5, 16},
      {9, 3},
      {9, 8},
      {9, 12},
      {9, 18},
      {18, 6},
      {18, 9},
      {18, 24},
      {9, 72},
      {48, 12}},
     fill_gemm_row},
    {KERNEL_ADD, 0, ELEMENTS, fill_add},
    {KERNEL_ADD_ROW, 0, MATRICES, fill_add_row},
    {KERNEL_SOFTMAX, 0, ROWS, fill_softmax},
    {KERNEL_BINARY, SWEEP_FORM, MATRICES, fill_binary},
    {KERNEL_MAP, 0, ELEMENTS, fill_map},
    {KERNEL_LAYERNORM, SWEEP_RESIDUAL, ROWS, fill_layernorm},
    {KERNEL_ROW_REDUCE, SWEEP_F32, ROWS, fill_row_reduce},
    {KERNEL_RELAYOUT,
     0,
     {{1, 16},
      {1, 72},
      {4, 16},
      {4, 72},
      {4, 144},
      {8, 32},
      {12, 40},
      {13, 17},
      {16, 16},
      {16, 64},
      {25, 80},
      {32, 144},
      {64, 72},
      {5, 5}},
     fill_relayout},
    {KERNEL_ATTENTION,
     0,
     {{1, 4, 5, 5},
      {1, 4, 5, 1},
      {2, 4, 5, 5},
      {4, 4, 5, 2},
      {4, 4, 5, 5},
      {1, 12, 3, 3},
      {4, 16, 5, 5},
      {6, 50, 4, 2},
      {8, 64, 5, 5},
      {12, 197, 4, 4},
      {13, 33, 2, 1},
      {32, 128, 4, 4}},
     fill_attention},
    {KERNEL_PICK, 0, {{1}, {2}, {6}, {9}, {16}, {40}, {72}, {100}, {288}, {600}}, fill_pick},
    {KERNEL_CAST, 0, ELEMENTS, fill_cast},
    {KERNEL_MAP_F32, 0, ELEMENTS, fill_map_f32},
    {KERNEL_BINARY_F32, 0, ELEMENTS, fill_binary_f32},
    {KERNEL_ROW_REDUCE_F32,
     0,
     {{1, 4}, {1, 50}, {1, 144}, {2, 64}, {3, 33}, {6, 64}, {7, 33}, {12, 72}, {24, 96}, {60, 80}},
     fill_row_reduce_f32},
    {KERNEL_GEMM_F32,
     0,
     {{1, 8, 1},
      {1, 50, 2},
      {2, 33, 1},
      {4, 16, 3},
      {6, 24, 2},
      {8, 40, 1},
      {13, 9, 2},
      {25, 64, 1}},
     fill_gemm_f32},
    {KERNEL_ATTENTION_BLOCK,
     0,
     {{16, 64, 5, 5},
      {32, 64, 4, 4},
      {47, 183, 5, 5},
      {64, 128, 4, 4},
      {92, 96, 5, 5},
      {128, 100, 2, 2},
      {17, 33, 5, 5}},
     fill_block},
    {KERNEL_ATTENTION_MERGE,
     0,
     {{2, 8, 5}, {4, 12, 5}, {1, 16, 4}, {4, 23, 5}, {8, 6, 2}, {16, 8, 5}},
     fill_merge},
};

const struct sweep_kernel *sweep_kernel(enum kernel_id id) {
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++) {
        if (kernels[i].id == id) {
            return &kernels[i];
        }
    }
    return NULL;
}
