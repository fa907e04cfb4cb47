/* Shared by the files of plan/ only. */
#ifndef PLAN_PLAN_INTERNAL_H
#define PLAN_PLAN_INTERNAL_H

#include "plan/plan.h"

/* fuse.c: steps and matrices without any choice, but which kernels an attention becomes. */
int plan_fuse(
    const struct graph *g, const struct plan_options *options, bool may_block, struct arena *a,
    struct plan **ret, struct err *err);

/* repeat_find.c: the longest run of equal consecutive blocks of a fused plan that hand on one
 * matrix, as a plan whose steps are those of the first block, with its record; the plan itself when
 * there is none. */
const struct plan *plan_repeat_find(const struct plan *fused, struct arena *a);
/* repeat.c: how many values of its parameters a step holds: its turns when they vary. */
uint32_t plan_param_copies(const struct plan *p, uint32_t step);
int plan_repeat_verify(const struct plan *p, struct err *err);

struct grid { /* choice of a GEMM */
    uint32_t m, n, k;
    struct plan_form form;
    uint64_t score; /* cycles without the operand's source */
};

/* Distributions are interned: same cut, same pointer. */
struct dist_pool {
    struct arena *arena;
    struct dist_entry *head;
    uint32_t tiles; /* of which blocks take one each, in turn when there are more */
};
const struct plan_dist *
dist_grid(struct dist_pool *pool, uint32_t rows, uint32_t panels, uint32_t m, uint32_t n);
/* A row a tile, its columns in n strips: bounds in quads unless all fall on panels. */
const struct plan_dist *
dist_strips(struct dist_pool *pool, uint32_t rows, uint32_t panels, uint32_t n, uint32_t first);
/* The result of a GEMM grid: strips, shares of its reducers, or blocks when k = 1. */
const struct plan_dist *
dist_result(struct dist_pool *pool, uint32_t rows, uint32_t panels, const struct grid *g);
/* Blocks on the tile that has most. */
uint32_t dist_depth(const struct plan_dist *d);
/* What a GEMM grid reads: rows in m parts, groups in k parts, block (i, kk) on tile
 * (i * n + 0) * k + kk, its first reader. */
const struct plan_dist *dist_operand(
    struct dist_pool *pool, uint32_t rows, uint32_t groups, uint32_t m, uint32_t n, uint32_t k);
/* Home of the operand of a GEMM grid that takes it in chunks: rows in m parts, each K part on up to
 * n of its tiles, so that none holds much: group part p of K part kk on tile (i, p, kk). */
const struct plan_dist *dist_stream(
    struct dist_pool *pool, uint32_t rows, uint32_t groups, uint32_t m, uint32_t n, uint32_t k);
/* Result of a product or attention in heads: each head of a batch on `parts` tiles, each with a
 * part of its rows, and its columns in `cuts` parts. Tile number: first + ((batch * heads + head) *
 * cuts + cut) * parts + part. */
const struct plan_dist *dist_heads(
    struct dist_pool *pool, uint32_t rows, uint32_t panels, uint32_t batches, uint32_t heads,
    uint32_t parts, uint32_t cuts, uint32_t first);
/* Whole rows in m parts at multiples of 16. Not interned. */
const struct plan_dist *
dist_rows16(struct dist_pool *pool, uint32_t rows, uint32_t panels, uint32_t m);
/* count + 1 bounds of an even cut of `total`. */
const uint32_t *dist_bounds(struct arena *a, uint32_t total, uint32_t count);

/* candidates.c */
/* may_stream: forms with streams_w are offered too. */
uint32_t plan_gemm_menu(
    const struct plan_step *s, const struct plan_options *options, bool may_stream,
    struct grid *ret, uint32_t limit, uint64_t *work);
uint32_t plan_row_menu(uint32_t rows, uint32_t tiles, uint32_t *ret, uint32_t limit);

/* stream.c: the form with the fewest chunks that fits alone, with weights on the chip once or m
 * times; false when none does. */
bool plan_stream_form(const struct plan_step *s, struct grid *g, bool streams_w);

/* cost.c */
uint32_t cost_ceil(uint32_t a, uint32_t b);
/* Events of moving a matrix from `source` to consumers that cut rows in m and panels in k parts,
 * without the barrier. */
uint64_t
cost_move(const struct plan_dist *source, uint32_t rows, uint32_t panels, uint32_t m, uint32_t k);
uint64_t cost_gemm_compute(const struct plan_step *s, const struct grid *g, bool w_region1);
/* Exchange of partials and the reduction of a K split; 0 when k = 1. */
void cost_gemm_reduce(
    const struct plan_step *s, const struct grid *g, uint64_t *ret_exchange, uint64_t *ret_compute);
/* What chunks and streamed weights add to the exchange, barriers included. */
uint64_t cost_gemm_stream(const struct plan_step *s, const struct grid *g);
/* Bytes of one tile. */
struct footprint {
    uint64_t resident;  /* parameters of the step */
    uint64_t transient; /* all else that lives during it */
    uint64_t region1;   /* of transient: must be interleaved */
    uint64_t largest;   /* single buffer that may lie anywhere */
};
struct footprint cost_gemm_bytes(const struct plan_step *s, const struct grid *g);
/* Calls of one tile with a result of rows x panels. */
uint64_t cost_local(const struct plan_step *s, uint32_t rows, uint32_t panels);
/* The table of a PICK's block. */
uint64_t cost_pick_bytes(const struct plan_step *s, uint32_t rows, uint32_t panels);
/* Beside operands and result: what a tile makes of them in between. */
uint64_t cost_local_bytes(const struct plan_step *s, uint32_t rows);

/* attention.c: choices of an attention in blocks; s->product says what is to be done. */
struct attention_cut {
    uint32_t query_parts, key_parts; /* of each batch and head: a tile for each pair */
    uint64_t score;                  /* cycles without what the operands' sources add */
};
/* Within the limits of ATTENTION_BLOCK, whatever the cut. Scores are scaled in f16 (the exponent's
 * argument is rounded once), so scales that leave its range are not taken. */
bool attention_has_blocks(const struct plan_step *s);
/* The best, cheapest first; 0 when no cut fits the tiles. */
uint32_t attention_menu(
    const struct plan_step *s, uint32_t tiles, struct attention_cut *ret, uint32_t limit);
/* Result of the cut. Not interned. */
const struct plan_dist *
attention_dist(const struct plan_step *s, const struct attention_cut *c, struct dist_pool *pool);
/* Tiles that take the same keys come in pairs (exchange fact sheet 6): what goes to all of them in
 * pieces of 128 words or more can reach both members at once. */
bool attention_pairs_keys(const struct attention_cut *c);
uint64_t attention_compute(const struct plan_step *s, const struct attention_cut *c);
/* Events of the exchange before the merge, without its barrier; 0 when nothing is exchanged. */
uint64_t attention_merge_exchange(const struct plan_step *s, const struct attention_cut *c);
struct footprint attention_bytes(const struct plan_step *s, const struct attention_cut *c);

#endif
