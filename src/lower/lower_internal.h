/* Shared by the files of lower/ only: the tile graph while it grows. */
#ifndef LOWER_LOWER_INTERNAL_H
#define LOWER_LOWER_INTERNAL_H

#include <string.h>

#include "base/vec.h"
#include "lower/lower.h"

/* A float32 as a word of a descriptor. */
static inline uint32_t float_bits(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* A rectangle of a matrix wanted by some tiles, all with the same layout. */
struct need {
    uint32_t row_first, row_last, quad_first, quad_last; /* quads: whole panels unless one row */
};
/* Block (i, j) of a distribution. */
static inline struct need lower_block_need(const struct plan_dist *d, uint32_t i, uint32_t j) {
    return (struct need){
        d->row_bound[i], d->row_bound[i + 1], plan_dist_quad(d, j), plan_dist_quad(d, j + 1)};
}

/* Levels and times of the steps (steps.c), known before anything is made. */
struct step_time {
    uint32_t level;        /* of the main call, of the first chunk's */
    uint32_t result_level; /* of the reduction, else of the last call */
    uint32_t time, result_time;
    uint32_t *chunk_time; /* by chunk; at its own level each */
};

/* An operand that was gathered: reused by later steps with the same need. */
struct gathered {
    struct gathered *next;
    uint32_t matrix;
    const struct plan_dist *dist; /* elementwise need, NULL for a GEMM's */
    uint32_t panel;               /* first one of the window */
    uint32_t m, n, k;             /* GEMM's */
    uint32_t lanes;               /* likewise: plan_form */
    uint32_t level;
    struct buffer_id *buffers; /* by logical tile for a GEMM, else by block */
};

struct lowering {
    const struct plan *plan;
    struct arena *arena;
    struct tile_graph *tg;
    VEC(struct lower_buffer) buffers;
    VEC(struct lower_vertex) vertices;
    VEC(struct lower_dest) dests;
    VEC(struct lower_shard) shards;
    VEC(struct lower_table) tables;
    struct level_moves {
        VEC(struct lower_move) moves;
    } * levels;
    uint32_t level_count;
    uint32_t *exchange_time; /* by level */
    struct step_time *times; /* by step */
    struct buffer_id **home; /* by matrix: block (i, j) */
    struct gathered *gathered;
};

/* steps.c */
void lower_time_steps(struct lowering *l);
uint32_t lower_operand_level(const struct lowering *l, uint32_t matrix);
/* The operand is where step needs it, without any move or copy. */
bool lower_is_local(const struct lowering *l, const struct plan_step *s, int o);
bool lower_gemm_is_local(const struct plan_step *s, const struct plan_dist *source);

/* repeat.c: the loop around the levels of a repeated block. Level of a step whose operands can be
 * there at level `earliest`; called in step order, with the levels of all steps before it. */
uint32_t lower_step_level(struct lowering *l, uint32_t step, uint32_t earliest);
/* Levels and times of the loop, from the times of all steps. */
void lower_loop_times(struct lowering *l);
/* What was gathered at a level before is out of date for a step at `level`: a turn in between. */
bool lower_is_stale(const struct lowering *l, uint32_t matrix, uint32_t gathered, uint32_t level);
/* The step makes the block's result, and may write it where the next turn reads it. */
bool lower_is_in_place(const struct lowering *l, uint32_t step);
void lower_carry(struct lowering *l, uint32_t step);
/* What is made before the loop and read in it lives to its end. */
void lower_keep_for_loop(struct lowering *l);

/* split.c */
struct buffer_id lower_new_buffer(
    struct lowering *l, uint32_t tile, enum buffer_kind kind, uint32_t bytes, uint32_t step);
void lower_use(struct lowering *l, struct buffer_id b, uint32_t time); /* extends its life */
void lower_home_blocks(struct lowering *l, uint32_t matrix, uint32_t born);
/* Groups [group_first, group_last) of the panels of the runs. */
struct buffer_id lower_weights(
    struct lowering *l, uint32_t step, uint32_t tile, uint32_t group_first, uint32_t group_last,
    const struct lower_run *runs, uint32_t run_count);
/* Weights of columns [first, last), in quads, a channel after the other. */
struct buffer_id
lower_channels(struct lowering *l, uint32_t step, uint32_t tile, uint32_t first, uint32_t last);
/* As lower_row(), columns counted in `quads`. */
struct buffer_id lower_row_part(
    struct lowering *l, uint32_t step, enum plan_param param, uint32_t tile, struct lower_run run,
    uint32_t quads);
/* Columns [panel_first, panel_last) of PARAM_ROW or PARAM_ROW2; zeros when the step has none, ones
 * for the scale of a NORM. */
struct buffer_id lower_row(
    struct lowering *l, uint32_t step, enum plan_param param, uint32_t tile, uint32_t panel_first,
    uint32_t panel_last);
struct buffer_id lower_constant(
    struct lowering *l, uint32_t step, uint32_t matrix, uint32_t tile, const struct need *n);
void lower_interface(struct lowering *l);

/* moves.c: brings need `n` of a matrix to `tiles` at level; buffers[i] = NO_BUFFER where a new one
 * is wanted, and is set. Pieces that stay on their tile become copy calls at `time`. */
void lower_gather(
    struct lowering *l, uint32_t matrix, const struct need *n, const uint32_t *tiles,
    uint32_t tile_count, uint32_t step, struct buffer_id *buffers);
/* The same into buffers that are there: `into` of each tile holds the need. Nothing is skipped. */
void lower_bring(
    struct lowering *l, uint32_t matrix, const struct need *n, const uint32_t *tiles,
    uint32_t tile_count, uint32_t step, const struct buffer_id *into);
/* A copy on one tile at the time of a step. */
void lower_add_copy(
    struct lowering *l, uint32_t step, struct buffer_id source, uint32_t offset,
    struct lower_dest dest, uint32_t bytes);
/* What was gathered before for the same need, NULL when nothing was or it is out of date. */
const struct gathered *lower_find_gathered(const struct lowering *l, const struct gathered *key);
/* A copy of g among those. */
const struct gathered *lower_keep_gathered(struct lowering *l, const struct gathered *g);
void lower_add_move(
    struct lowering *l, uint32_t level, struct buffer_id source, uint32_t offset, uint32_t words,
    const struct lower_dest *dests, uint32_t dest_count);

/* local.c */
/* Buffers with what each block of the result needs of operand o; of all steps but GEMM. */
const struct buffer_id *lower_operands(struct lowering *l, uint32_t step, int o);
/* Rows normalised on a tile for a step that reads them: norm is the NORM, x its operand there. */
struct buffer_id lower_normalised(
    struct lowering *l, uint32_t norm, uint32_t step, uint32_t tile, uint32_t rows,
    struct buffer_id x);
void lower_local(struct lowering *l, uint32_t step);

/* gemm.c */
struct gemm_tile { /* one tile of a GEMM grid */
    uint32_t i, j, kk, tile;
    uint32_t rows, groups, width; /* width: panels of block column j */
    struct plan_share share;
    struct buffer_id x, out; /* out: the result, or a partial */
    uint32_t x_offset;
};
void lower_gemm(struct lowering *l, uint32_t step);
/* One row and one strip of columns a tile; step is the product, or the ADD that it does. */
void lower_gemm_rows(struct lowering *l, uint32_t step);
/* Tile (i, j, kk) with its share and where its partials or result go. */
struct gemm_tile
lower_gemm_tile(struct lowering *l, uint32_t step, uint32_t i, uint32_t j, uint32_t kk);
/* The call of one tile on `groups` groups of x and w. */
void lower_gemm_call(
    struct lowering *l, uint32_t step, const struct gemm_tile *g, struct kernel_variant v,
    struct buffer_id w, uint32_t groups);

/* stream.c: GEMMs in several chunks or with streamed weights. */
void lower_stream(struct lowering *l, uint32_t step);

/* reduce.c: moves and calls that reduce one block; tiles: k of them; column: of the result's
 * distribution, where the block begins. */
void lower_reduce(
    struct lowering *l, uint32_t step, const struct gemm_tile *tiles, uint32_t column);
uint32_t lower_partial_bytes(const struct plan_step *s); /* of a row of a panel of partials */

/* pick.c: one block of a PICK, from its operands' buffers. */
struct lower_pick {
    uint32_t step, block, tile;
    const struct buffer_id *in; /* by operand */
    struct buffer_id out;
};
void lower_pick_block(struct lowering *l, const struct lower_pick *p);

/* attention.c */
void lower_attention(struct lowering *l, uint32_t step);

/* vertices.c */
void lower_step(struct lowering *l, uint32_t step);
struct lower_vertex lower_new_vertex(
    struct kernel_variant v, uint32_t tile, uint32_t level, uint32_t time, uint32_t step);
void lower_word_buffer(
    struct lowering *l, struct lower_vertex *v, uint32_t word, struct buffer_id b, uint32_t offset);
void lower_push_vertex(
    struct lowering *l, struct lower_vertex v, uint32_t word_count, const uint32_t *dims);

#endif
