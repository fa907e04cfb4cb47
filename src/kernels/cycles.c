/* Tile cycles of kernel calls.
 *
 * A launch lasts as long as its slowest worker: 6 tile cycles an issue group, more for groups with
 * slow functions (isa semantics 1.1, 1.4). Groups are counted from the texts; the supervisor's
 * part and the launch itself are fitted to runs on the simulated tile over the shapes of
 * tests/calibrate; tests/unit/test_kernel_cycles.c checks every prediction against its run.
 */
#include <assert.h>

#include "kernels/kernels_internal.h"

#define MASK_GROUPS 20 /* LANE_MASKS of common.S */

static uint32_t div_up(uint32_t a, uint32_t b) {
    return (a + b - 1) / b;
}

/* Worker cycles of ACT_CONSTANTS. */
static uint32_t constants_groups(enum kernel_act act) {
    return act == ACT_GELU_ERF ? 15 : act == ACT_GELU_TANH ? 5 : 0;
}

/* Worker cycles of FINISH_QUAD: f32tanh and f32sigm take 5. */
static uint32_t finish_groups(enum kernel_act act) {
    switch (act) {
    case ACT_NONE: return 2;
    case ACT_RELU: return 4;
    case ACT_TANH:
    case ACT_SIGMOID: return 2 + 4 * 5;
    case ACT_GELU_ERF: return 6 + 2 * (17 + 2 * 4);
    case ACT_GELU_TANH: return 6 + 2 * (7 + 2 * 4);
    case ACT_COUNT: break;
    }
    return 0;
}

static bool is_f16_path(enum kernel_act act) {
    return act == ACT_NONE || act == ACT_RELU;
}

static uint32_t unary_groups(enum kernel_act act, uint32_t n /* quads */) {
    uint32_t quads = div_up(n, 6);
    if (is_f16_path(act)) {
        return 26 + 2 * (quads - 1);
    }
    return 23 + constants_groups(act) + quads * (4 + finish_groups(act));
}

static uint32_t add_groups(enum kernel_act act, uint32_t n) {
    uint32_t quads = div_up(4 * n, 6);
    if (is_f16_path(act)) {
        return 29 + (act == ACT_RELU) + 3 * (quads - 1);
    }
    return 26 + constants_groups(act) + quads * (8 + finish_groups(act));
}

/* Share of the slowest worker under SPLIT_MATRIX. */
static void split_matrix(uint32_t rows, uint32_t panels, uint32_t *ret_rows, uint32_t *ret_quads) {
    *ret_rows = rows < 6 ? rows : div_up(rows, 6);
    *ret_quads = rows < 6 ? div_up(4 * panels, 6) : 4 * panels;
}

static uint32_t add_row_groups(enum kernel_act act, uint32_t rows, uint32_t panels) {
    uint32_t own_rows, quads;
    split_matrix(rows, panels, &own_rows, &quads);
    if (is_f16_path(act)) {
        uint32_t each = act == ACT_RELU ? 3 : 2;
        return 26 + quads * (23 + (act == ACT_RELU) + each * (own_rows - 1));
    }
    return 26 + constants_groups(act) + quads * (19 + own_rows * (8 + finish_groups(act)));
}

static uint32_t
reduce_groups(const struct kernel_variant *v, uint32_t parts, uint32_t rows, uint32_t panels) {
    uint32_t own_rows, quads;
    split_matrix(rows, panels, &own_rows, &quads);
    uint32_t row = 5 + 2 * (parts - 1) + (v->has_bias ? 4 : 0) + finish_groups(v->act) + 1;
    if (v->in_f16) {
        row = 8 + 4 * (parts - 1) + (v->has_bias ? 5 : 0) + finish_groups(v->act) + 1;
    }
    return 30 + constants_groups(v->act) + quads * (17 + (v->has_bias ? 3 : 0) + own_rows * row);
}

static uint32_t reduce_share_cycles(
    const struct kernel_variant *v, uint32_t parts, uint32_t rows, uint32_t panels) {
    uint32_t units = (v->in_f16 ? 2 : 4) * panels;
    uint32_t own_rows = rows < 6 ? rows : div_up(rows, 6);
    uint32_t own_units = rows < 6 ? div_up(units, 6) : units;
    uint32_t row = 6 + 2 * parts + (v->has_bias ? 3 : 0);
    if (v->in_f16 && v->act == ACT_GELU_TANH) {
        row += 2 + 2 * 9 + 4;
    } else if (is_f16_path(v->act)) {
        row += (v->in_f16 ? 5 : 3) + (v->act == ACT_RELU ? (v->in_f16 ? 2 : 1) : 0);
    } else {
        row += (v->in_f16 ? 2 : 1) * (2 + finish_groups(v->act));
    }
    uint32_t unit = 25 + (v->has_bias ? 4 : 0);
    uint32_t constants = v->in_f16 && v->act == ACT_GELU_TANH ? 12 : constants_groups(v->act);
    return 30 + 6 * (31 + constants + own_units * (unit + own_rows * row));
}

/* Worker cycles of the three passes over `full` panels and `tail` columns of another. */
static uint32_t softmax_passes(uint32_t full, uint32_t tail) {
    const uint32_t sum_quad = 1 + 4 + 4 * 3, scale_quad = sum_quad + 4;
    uint32_t groups = full * 4 * (1 + sum_quad + scale_quad);
    if (tail != 0) {
        groups += 14 + tail / 4 * (2 + sum_quad + scale_quad) + (16 - tail) / 4;
        if (tail % 4 != 0) {
            groups += 5 + 3 + sum_quad + 3 + scale_quad;
        }
    }
    return groups;
}

static uint32_t softmax_cycles(uint32_t rows, uint32_t columns) {
    uint32_t tail = columns % 16, masks = tail % 4 != 0 ? 18 : 0;
    uint32_t panels = div_up(columns, 16), own = div_up(panels, 6);
    if (rows < 6 && rows * own + 1 < panels) { /* few wide rows: the rule of softmax.S */
        uint32_t passes = rows * softmax_passes(own, 0);
        if (tail != 0) { /* the last worker with panels has the tail among them */
            uint32_t last = panels < 6 ? 1 : panels / 6;
            uint32_t other = masks + rows * softmax_passes(last - 1, tail);
            passes = other > passes ? other : passes;
        }
        return 130 + 6 * (85 + rows * 66 + passes);
    }
    uint32_t row = 40 + softmax_passes(columns / 16, tail);
    return 45 + 6 * (34 + masks + div_up(rows, 6) * row);
}

/* The rule by which gemm_amp.S turns to inner products. */
static bool gemm_is_inner(uint32_t rows, uint32_t groups) {
    return rows < 6 && rows * (64 * groups + 230) < 370 * groups + 150;
}

static uint32_t
gemm_inner_cycles(const struct kernel_variant *v, uint32_t rows, uint32_t groups, uint32_t panels) {
    uint32_t items = div_up(8 * panels * rows, 6);
    uint32_t finish = v->out_f32 ? 1 : 2 + (finish_groups(v->act) - 2) / 2;
    uint32_t item = 13 + 2 * (5 + 4 * groups) + (v->has_bias ? 3 : 0) + finish;
    return 60 + 6 * (38 + constants_groups(v->act) + items * item);
}

static uint32_t gemm_row_cycles(const struct kernel_variant *v, uint32_t groups, uint32_t pairs) {
    uint32_t pair = 2 * (4 * groups + 1) + 1; /* sums, and the jump */
    if (v->act == ACT_NONE) {
        pair += 5 + 2 * v->has_bias + 2 * v->has_residual;
    } else {
        pair += 6 + 1 * v->has_bias + 3 * v->has_residual + (finish_groups(v->act) - 2) / 2;
    }
    uint32_t before = 27 + 2 * v->has_bias + 2 * v->has_residual + constants_groups(v->act);
    return 40 + 6 * (before + div_up(pairs, 6) * pair);
}

/* Matrix unit: preparation, then for each panel 2 * groups launches and its rounding. */
static uint32_t
gemm_unit_cycles(const struct kernel_variant *v, uint32_t rows, uint32_t groups, uint32_t panels) {
    uint32_t own_rows = div_up(rows, 6);
    uint32_t group = 185 + (v->w_region1 ? 0 : 16) + 24 * (own_rows - 1);
    if (v->out_f32) {
        return 230 + panels * (203 + 2 * groups * group);
    }
    uint32_t quad = v->act == ACT_NONE ? 2 : 2 + finish_groups(v->act);
    uint32_t round = 107 + 6 * 4 * own_rows * quad + (v->has_bias ? 110 : 0);
    return 370 + 6 * constants_groups(v->act) + (v->has_bias ? 40 : 0) +
           panels * (round + 2 * groups * group);
}

static uint32_t
gemm_cycles(const struct kernel_variant *v, uint32_t rows, uint32_t groups, uint32_t panels) {
    return gemm_is_inner(rows, groups) ? gemm_inner_cycles(v, rows, groups, panels)
                                       : gemm_unit_cycles(v, rows, groups, panels);
}

static uint32_t binary_groups(const struct kernel_variant *v, uint32_t rows, uint32_t panels) {
    static const uint32_t load_b[FORM_COUNT] = {1, 1, 2, 2}, bundles[FORM_COUNT] = {3, 2, 4, 2};
    bool is_division = v->op == BINARY_DIV || v->op == BINARY_RDIV;
    uint32_t constants = constants_groups(v->act), first, each;
    if (is_f16_path(v->act) && !is_division) {
        each = bundles[v->form];
        first = 4 + load_b[v->form] + (v->act == ACT_RELU) - each;
    } else {
        each = 1 + load_b[v->form] + 5 + (is_division ? 12 : 2) + finish_groups(v->act);
        first = 0;
    }
    if (v->form == FORM_ROW || v->form == FORM_COLUMN) {
        uint32_t own_rows, quads;
        split_matrix(rows, panels, &own_rows, &quads);
        uint32_t column = 18 + first;
        column += v->form == FORM_COLUMN && is_f16_path(v->act) && !is_division;
        column += v->act == ACT_GELU_ERF; /* its loop needs a filler to be aligned */
        return (rows < 6 ? 27 : 25) + constants + quads * (column + own_rows * each);
    }
    return (v->form == FORM_FULL ? 28 : 27) + constants + first +
           div_up(4 * rows * panels, 6) * each;
}

static uint32_t map_groups(const struct kernel_variant *v, uint32_t n) {
    static const uint32_t ops[MAP_COUNT] = {4, 2, 20, 14, 12, 2, 4, 16};
    uint32_t quads = div_up(4 * n, 6);
    if (is_f16_path(v->act)) {
        return 27 + quads * (3 + ops[v->op] + (v->act == ACT_RELU ? 2 : 0));
    }
    return 23 + constants_groups(v->act) + quads * (4 + ops[v->op] + finish_groups(v->act));
}

/* Worker cycles of LAYERNORM's three passes over `full` panels and `tail` columns of another. */
static uint32_t layernorm_passes(bool has_residual, uint32_t full, uint32_t tail) {
    uint32_t all = full + (tail != 0);
    uint32_t groups = full * (has_residual ? 16 : 4) + full * 20 + all * 68;
    if (tail != 0) {
        groups += 6 + (has_residual ? 28 : 0) + tail / 4 * 6 + (tail % 4 != 0 ? 18 : 0);
    }
    return groups;
}

static uint32_t layernorm_cycles(const struct kernel_variant *v, uint32_t rows, uint32_t columns) {
    uint32_t tail = columns % 16, masks = tail % 4 != 0 ? 21 : 0;
    uint32_t panels = div_up(columns, 16), own = div_up(panels, 6);
    if (rows == 1 && tail == 0 && !v->has_residual) {
        uint32_t quads = div_up(columns / 4, 6);
        return 70 + 6 * (31 + 8 * quads + 37 + 14 * quads);
    }
    if (rows < 6 && rows * own + 1 < panels) { /* the rule of layernorm.S */
        uint32_t passes = rows * layernorm_passes(v->has_residual, own, 0);
        if (tail != 0) { /* the last worker with panels has the tail among them */
            uint32_t last = panels < 6 ? 1 : panels / 6;
            uint32_t other = masks + rows * layernorm_passes(v->has_residual, last - 1, tail);
            passes = other > passes ? other : passes;
        }
        uint32_t row = v->has_residual ? 100 : 96;
        return 130 + 6 * ((v->has_residual ? 73 : 67) + rows * row + passes);
    }
    uint32_t row =
        (v->has_residual ? 58 : 54) + layernorm_passes(v->has_residual, columns / 16, tail);
    uint32_t start = (v->has_residual ? 41 : 34) + (rows < 6 ? 6 : 0);
    return 75 + 6 * (start + masks + div_up(rows, 6) * row);
}

static uint32_t row_reduce_cycles(const struct kernel_variant *v, uint32_t rows, uint32_t columns) {
    const bool is_max = v->op == ROW_REDUCE_MAX, is_masked = columns % 4 != 0;
    uint32_t masks = is_masked ? MASK_GROUPS + (is_max ? 7 : 0) : 0;
    uint32_t row = 14 + columns / 16 * 4 + columns % 16 / 4 + (is_masked ? 4 + is_max : 0);
    uint32_t pair = (rows == 1 ? row - 1 : 2 * row) + (v->op == ROW_REDUCE_MEAN ? 19 : 12) -
                    (v->out_f32 ? 1 : 0);
    return 45 + 6 * (31 + masks + div_up(div_up(rows, 2), 6) * pair);
}

/* An item of `there` of 8 rows and `width` columns, and of transposing forms with `width`. */
static uint32_t relayout_copy_item(uint32_t op, uint32_t there, uint32_t width) {
    uint32_t row = 13 + width / 4 * 2 + (width % 4 != 0 ? 4 : 0) + (16 - width) / 4;
    uint32_t slow = there == 8 ? 23 : 21; /* it is found by its columns, or by its rows before */
    uint32_t item = there == 8 && width == 16 ? 62 : slow + there * row + (8 - there) * 10;
    return item + (op == RELAYOUT_COPY_W16 ? 4 : 0);
}

static uint32_t relayout_transpose_item(uint32_t op, bool is_whole, uint32_t width) {
    if (is_whole) {
        return 69;
    }
    return op == RELAYOUT_TRANSPOSE ? 83 + 23 * div_up(width, 4) : 107 + 17 * div_up(width, 4);
}

/* The deal of relayout.S: item after item to the six workers in turn, panel by panel. On its way to
 * its next item a worker passes panels in which it has none. */
static uint32_t relayout_cycles(const struct kernel_variant *v, uint32_t rows, uint32_t columns) {
    bool is_copy = v->op == RELAYOUT_COPY_W8 || v->op == RELAYOUT_COPY_W16;
    uint32_t height = is_copy ? 8 : 4, items = div_up(rows, 16) * 16 / height;
    uint32_t step = is_copy ? 12 : 0, pass = is_copy ? 6 : 9, panels = div_up(columns, 16);
    uint32_t groups[6] = {0}, own[6] = {0}, most = 0;
    for (uint32_t first = 0, item = 0; first < columns; first += 16) {
        uint32_t width = columns - first < 16 ? columns - first : 16;
        for (uint32_t i = 0; i < items; i++, item++) {
            uint32_t left = rows > i * height ? rows - i * height : 0;
            uint32_t there = left < height ? left : height, w = item % 6;
            groups[w] += own[w]++ > 0 ? step : 0;
            groups[w] +=
                is_copy ? relayout_copy_item(v->op, there, width)
                        : relayout_transpose_item(v->op, width == 16 && there == height, width);
        }
    }
    for (int w = 0; w < 6; w++) {
        uint32_t all = groups[w] + (panels > own[w] ? pass * (panels - own[w]) : 0);
        most = own[w] > 0 && all > most ? all : most;
    }
    return 30 + 6 * (31 + (is_copy && columns % 4 != 0 ? MASK_GROUPS : 0) + most);
}

static uint32_t
attention_cycles(uint32_t rows, uint32_t keys, uint32_t panels, uint32_t out_panels) {
    uint32_t own_keys = div_up(keys, 6), own_pairs = div_up(8 * out_panels, 6);
    if (rows == 1 && keys <= 16) { /* the rule of attention.S */
        uint32_t one_scores = 28 + own_keys * (8 + 5 * panels);
        uint32_t one_values = 43 + keys * (1 + 7) + own_pairs * (12 + 2 * keys);
        return 55 + 6 * (one_scores + one_values);
    }
    uint32_t scores = 30 + own_keys * (2 * (7 + 6 * panels) + 5);
    uint32_t weights = 24 + own_keys * 6;
    uint32_t values = 45 + own_pairs * (25 + 2 * keys);
    return 40 + div_up(rows, 2) * (90 + 6 * (scores + weights + values));
}

/* Roofline: 24 cycles a six rows, group and panel is the unit's 64 products a cycle. */
static uint32_t
gemm_f16_cycles(const struct kernel_variant *v, uint32_t rows, uint32_t groups, uint32_t panels) {
    uint32_t own_rows = div_up(rows, 6);
    uint32_t group = 207 + (v->w_region1 ? 0 : 32) + 24 * (own_rows - 1);
    uint32_t act = 0;
    if (v->act == ACT_RELU) {
        act = 90 + 6 * 8 * own_rows;
    } else if (v->act != ACT_NONE) {
        act = 80 + 6 * 4 * own_rows * (4 + finish_groups(v->act));
    }
    return 175 + 6 * constants_groups(v->act) + panels * (43 + act + groups * group);
}

static uint32_t block_cycles(uint32_t rows, uint32_t keys, uint32_t groups, uint32_t panels) {
    uint32_t key_groups = div_up(keys, 16), own_groups = div_up(key_groups, 6);
    uint32_t own_rows = 16 * own_groups < keys ? 16 * own_groups : keys;
    uint32_t turn = 16 * own_groups + 12;
    uint32_t padding = 16 * key_groups - keys;
    uint32_t once = 100 + 4 * padding + panels * (4 * turn + 3);
    once += padding > 0 ? 30 + 16 * panels : 0;
    uint32_t scores = groups * (207 + 24 * (div_up(keys, 6) - 1));
    uint32_t largest = 30 + 4 * div_up(keys, 6);
    uint32_t weights = 30 + 4 * (24 + 6 * own_rows) + 2 * (15 + own_rows) + 4 * turn;
    uint32_t values = key_groups * (207 + 24 * (div_up(16 * panels, 6) - 1));
    uint32_t finish = 20 + 16 * panels;
    return 100 + 6 * once +
           div_up(rows, 16) * (200 + scores + values + 6 * (largest + weights + finish));
}

static uint32_t merge_cycles(uint32_t parts, uint32_t rows, uint32_t panels) {
    uint32_t pairs = div_up(parts, 2);
    uint32_t row = 48 + 12 * parts + 5 * pairs + 12 * panels + (pairs - 1) * (20 + 16 * panels);
    return 45 + 6 * (20 + div_up(rows, 6) * row);
}

static uint32_t pick_groups(uint8_t unit, uint32_t n) {
    return 23 + div_up(n, 6) * (unit == PICK_HALF ? 6 : 3);
}

/* ---- float32: plain loops -------------------------------------------------------------------- */

static uint32_t act_pair_groups(enum kernel_act act) {
    switch (act) {
    case ACT_NONE: return 0;
    case ACT_RELU: return 1;
    case ACT_TANH:
    case ACT_SIGMOID: return 2 * 5;
    case ACT_GELU_ERF: return 17 + 2 * 4;
    case ACT_GELU_TANH: return 7 + 2 * 4;
    case ACT_COUNT: break;
    }
    return 0;
}

static uint32_t map_f32_groups(const struct kernel_variant *v, uint32_t n) {
    static const uint32_t ops[MAP_F32_COUNT] = {3, 1, 10, 6, 6, 1, 2, 8, 54};
    uint32_t each = 3 + ops[v->op] + act_pair_groups(v->act);
    return 22 + constants_groups(v->act) + div_up(8 * n, 6) * each;
}

static uint32_t binary_f32_groups(uint8_t op, uint32_t n) {
    static const uint32_t ops[BINARY_F32_COUNT] = {1, 1, 1, 6, 1, 1, 1, 6, 52};
    return 24 + div_up(8 * n, 6) * (4 + ops[op]);
}

static uint32_t row_reduce_f32_groups(uint8_t op, uint32_t rows, uint32_t columns) {
    uint32_t tail = columns % 16, full = columns / 16;
    uint32_t row = 28 +
                   (op == ROW_REDUCE_MAX    ? 1
                    : op == ROW_REDUCE_MEAN ? 5
                                            : 0) +
                   (full > 0 ? 1 : 0) + full * 27 + (tail > 1 ? 1 : 0) + tail / 2 * 3 +
                   (tail % 2 != 0 ? 2 : 0);
    return 26 + div_up(rows, 6) * row;
}

static uint32_t gemm_f32_groups(uint32_t rows, uint32_t inner, uint32_t panels) {
    uint32_t items = div_up(8 * rows * panels, 6), groups = div_up(inner, 16);
    return 12 + 5 * panels + items * (23 + 4 * inner + 8 * groups);
}

uint32_t kernel_cycles(const struct kernel_variant *v, const uint32_t *dims) {
    const uint32_t launch = 30;
    switch (v->id) {
    case KERNEL_GEMM_AMP: return gemm_cycles(v, dims[0], dims[1], dims[2]);
    case KERNEL_GEMM_ROW: return gemm_row_cycles(v, dims[0], dims[1]);
    case KERNEL_REDUCE: return launch + 6 * reduce_groups(v, dims[0], dims[1], dims[2]);
    case KERNEL_REDUCE_SHARE: return reduce_share_cycles(v, dims[0], dims[1], dims[2]);
    case KERNEL_UNARY: return launch + 6 * unary_groups(v->act, dims[0]);
    case KERNEL_ADD: return launch + 6 * add_groups(v->act, dims[0]);
    case KERNEL_ADD_ROW: return launch + 6 * add_row_groups(v->act, dims[0], dims[1]);
    case KERNEL_SOFTMAX: return softmax_cycles(dims[0], dims[1]);
    case KERNEL_BINARY: return launch + 6 * binary_groups(v, dims[0], dims[1]);
    case KERNEL_MAP: return launch + 6 * map_groups(v, dims[0]);
    case KERNEL_LAYERNORM: return layernorm_cycles(v, dims[0], dims[1]);
    case KERNEL_ROW_REDUCE: return row_reduce_cycles(v, dims[0], dims[1]);
    case KERNEL_RELAYOUT: return relayout_cycles(v, dims[0], dims[1]);
    case KERNEL_ATTENTION: return attention_cycles(dims[0], dims[1], dims[2], dims[3]);
    case KERNEL_GEMM_F16: return gemm_f16_cycles(v, dims[0], dims[1], dims[2]);
    case KERNEL_ATTENTION_BLOCK: return block_cycles(dims[0], dims[1], dims[2], dims[3]);
    case KERNEL_ATTENTION_MERGE: return merge_cycles(dims[0], dims[1], dims[2]);
    case KERNEL_PICK: return launch + 6 * pick_groups(v->op, dims[0]);
    case KERNEL_CAST: return launch + 6 * (25 + div_up(4 * dims[0], 6) * 4);
    case KERNEL_MAP_F32: return launch + 6 * map_f32_groups(v, dims[0]);
    case KERNEL_BINARY_F32: return launch + 6 * binary_f32_groups(v->op, dims[0]);
    case KERNEL_ROW_REDUCE_F32: return launch + 6 * row_reduce_f32_groups(v->op, dims[0], dims[1]);
    case KERNEL_GEMM_F32: return launch + 6 * gemm_f32_groups(dims[0], dims[1], dims[2]);
    case KERNEL_COUNT: break;
    }
    assert(false);
    return 0;
}
