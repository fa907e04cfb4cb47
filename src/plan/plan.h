/* Planning: which kernel, on which tiles, over which part of each matrix.
 *
 * Job: fuse the graph's nodes into steps, then choose for each step a partition. Input: a canonical
 * graph (borrowed) and the number of tiles. Output: up to PLAN_MAX_FINALISTS whole-program plans,
 * best estimate first; lowering and scheduling them decides which one is taken.
 *
 * Every activation is a matrix: all leading axes flattened to rows, the last axis as columns, in
 * panels of 16 columns (kernels/kernels.h). A *distribution* cuts rows in m parts and panels in
 * n parts and gives each of the m * n blocks to one tile. A tile holds two blocks of a matrix only
 * when there are more blocks than tiles (batches and heads of a product): it works on them in turn.
 *
 * Views move nothing (views.c): values that only name, regroup or window a matrix share it. Where
 * heads of 72 columns, say, must start at a panel each, the product that makes the matrix lays its
 * columns in *units* of 72, each padded to whole panels; weights and host data follow by their
 * maps, at no cost on the chip.
 *
 * Each node has a form that takes its operands as they lie (fuse*.c). Where they lie otherwise, it
 * becomes steps on plain matrices (general.c), and PICK steps (pick.c) move elements before and
 * behind: a table per tile says where each element of a block comes from. float32 values take twice
 * the bytes and have kernels of their own; softmax, normalisation and attention of them are put
 * together from simpler steps.
 *
 *          panels   0     3     6        GEMM grid m x n x k: tile (i, j, kk) multiplies rows i
 *   rows 0 ┌─────┬─────┐                 by its block of weights (K groups kk, panels j). With
 *          │ t0  │ t1  │                 k > 1 it makes partials, and some of the k tiles each
 *        4 ├─────┼─────┤                 reduce a share of block (i, j): its rows are cut in
 *          │ t2  │ t3  │                 row_parts, its panels in min(k / row_parts, panels).
 *        8 └─────┴─────┘                 Tile number: (i * n + j) * k + kk.
 *
 * Few rows (GEMM_ROW): a tile takes one row and a strip of columns, counted in quads of 4, since a
 * row's columns have no gaps anyway; so 144 columns make 12 strips of 12, a pair for each worker.
 * Three choices save levels or calls there: a NORM is *deferred* to the products that read it, each
 * tile normalising the rows it gathers; an ADD is *fused* into the product before it; products of
 * one operand run in *lanes*, side by side on disjoint tiles that share one gather. What waits for
 * nothing lies on the last tiles and runs when they are idle (lower/steps.c).
 *
 * Search: steps in order, a set of partial plans; a partial plan is characterised by the
 * distributions of matrices still needed, the cheapest of each kind survive, and the width is
 * bounded: for a chain of steps this is an exact dynamic programme over the menu. It ends because
 * the menu of each step is finite and cut to PLAN_MENU entries.
 *
 * Invariants, checked by plan_verify(): (1) distributions cover rows and panels exactly, on tiles
 * below the limit, one block a tile while there are enough; (2) steps that work along rows have
 * whole rows; (3) a step's out matrix has the step's distribution; (4) operands of an elementwise
 * step have the shape of its result; (5) blocks of a product lie in one batch and head; (6) strips
 * are of one row, and only products by rows and what is fused into them make strips; (7) what is
 * deferred or fused is read only by steps that make it themselves.
 */
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/err.h"
#include "graph/graph.h"
#include "kernels/kernels.h"
#include "target/target.h"

#define PLAN_MAX_FINALISTS 4
#define PLAN_MAX_ROWS      65536u /* rows of one matrix */
#define PLAN_MAX_COLUMNS   65536u
#define PLAN_MAX_PICK      4194304u /* elements that a PICK moves one by one */
#define PLAN_BEAM          32       /* partial plans kept after a step */
#define PLAN_PER_KIND      2        /* of one kind: the cheapest, and others as finalists */
#define PLAN_MENU          40       /* grids tried for a GEMM */
#define PLAN_RECEIVE_BYTES 49152u   /* parts to be reduced arrive in buffers of at most so many */
#define PLAN_F16_GROUPS    32       /* 512 of K at most are summed in f16 (design.md D2) */
#define PLAN_SYNC_CYCLES   260u     /* a phase beyond its horizon: 229..294 measured [exchange 8] */
#define PLAN_FEW_ROWS      16u      /* a NORM of more is not left to all tiles that read it */
#define PLAN_START_EVENTS  110u     /* first send to last tail of a short phase [exchange 8] */
#define PLAN_REGION0_BYTES 163840u  /* data bytes of a tile that a plan may fill: 10 elements, */
#define PLAN_REGION1_BYTES 420000u  /* and interleaved */

struct plan_dist {
    uint32_t m, n;
    const uint32_t *row_bound;   /* m + 1, from 0 to rows, strictly ascending */
    const uint32_t *panel_bound; /* n + 1, in panels; in quads when quads is 1 */
    const uint16_t *tile;        /* logical tile of block (i, j): tile[i * n + j] */
    uint32_t quads;              /* of 4 columns that bounds count: 4, or 1 for strips of one row,
                                  * whose columns follow each other without a gap */
};

/* First column of block column j, in quads. */
static inline uint32_t plan_dist_quad(const struct plan_dist *d, uint32_t j) {
    return d->panel_bound[j] * d->quads;
}

enum plan_matrix_kind { PLAN_INPUT, PLAN_COMPUTED, PLAN_CONSTANT };
enum plan_padding { PADDING_ZERO, PADDING_FINITE, PADDING_WILD };

#define PLAN_NONE UINT32_MAX

struct plan_matrix {
    enum plan_matrix_kind kind;
    struct value_id value; /* root value; the last fused one of a step's result */
    uint32_t rows, columns, panels;
    uint32_t unit;                /* columns that start at a panel together; columns if all do */
    bool is_single;               /* float32: 64 bytes a row of a panel, else 32 */
    enum plan_padding padding;    /* of the columns that fill up panels */
    uint32_t step;                /* producer, PLAN_NONE unless PLAN_COMPUTED */
    uint32_t uses;                /* operands that read it */
    const struct plan_dist *dist; /* NULL for PLAN_CONSTANT: each reading step has its own copy */
};

enum plan_kind {
    PLAN_GEMM,
    PLAN_ADD,
    PLAN_ADD_ROW,
    PLAN_BINARY,     /* a matrix and another of its shape */
    PLAN_BINARY_ROW, /* a matrix and one constant row */
    PLAN_UNARY,
    PLAN_MAP,
    PLAN_SOFTMAX,
    PLAN_NORM,       /* layer normalisation of rows */
    PLAN_TURN,       /* rows and columns exchanged */
    PLAN_PRODUCT,    /* of two computed matrices, in batches and heads */
    PLAN_ATTENTION,  /* of three */
    PLAN_PICK,       /* elements of up to three matrices in a new order, zeros between */
    PLAN_ROW_REDUCE, /* one value a row */
    PLAN_CAST,       /* float16 to float32 or back */
    PLAN_CARRY,      /* end of a repeated block: its result becomes what the next turn reads */
    PLAN_KINDS
};

#define PLAN_OPERANDS 3

/* Blocks of a product or an attention, one for each batch and head. An operand in heads has block
 * (b, h) in rows [b * its rows, ..) and in `head_panels` panels from its window's h-th on; another
 * one has it in rows [(b * heads + h) * its rows, ..) and all panels of its window. */
struct plan_product {
    uint32_t batches, heads;
    uint32_t a_rows;                     /* of a block of operand 0 and of the result */
    uint32_t b_rows;                     /* of a block of the other operands */
    bool b_is_shared;                    /* one block for all batches and heads */
    uint32_t b_share;                    /* heads of operand 0 for each of the others */
    uint32_t head_panels[PLAN_OPERANDS]; /* 0: not in heads */
    uint32_t out_panels;                 /* of the result, likewise */
    bool is_turned;                      /* operand 1 is [N][K], else [K][N] */
    float scale;                         /* ATTENTION */
    bool is_blocked; /* ATTENTION: in query and key parts (attention.c), k of the latter */
};

/* How a GEMM grid computes its blocks. With several chunks (stream.c) the K part of a tile arrives
 * and is multiplied piece by piece, one superstep each; only f16 partials are accumulated so. */
struct plan_form {
    bool is_f16; /* f16 partials between K groups, parts of at most PLAN_F16_GROUPS groups */
    /* Reducers of a block cut its rows in so many parts, its panels in others. */
    uint32_t row_parts;
    uint32_t chunks; /* of each K part, at least 1 */
    bool streams_w;  /* weights lie on the chip once and are multicast to those that need them */
    uint32_t first;  /* tile of the grid's first block */
    uint32_t lanes;  /* above 1: equal grids of so many products of one operand lie side by side,
                      * tiles / lanes apart, and run at once; 0 or 1: alone */
    bool by_rows;    /* one row a tile, n strips of the result's distribution, by inner products */
};

/* Part of an operand: rows and panels of its matrix. Empty when row_first = row_last. */
struct plan_need {
    uint32_t row_first, row_last, panel_first, panel_last;
};

/* Where an element of a picked matrix comes from. */
#define PLAN_FILL 0xffffu /* source: nowhere, it is zero */
struct plan_element {
    uint16_t source, row; /* operand, row of its matrix */
    uint32_t column;      /* counted over its panels, padding included */
};
struct plan_pick {
    const struct plan_element *elements; /* [rows][16 panels] of the result */
    const struct plan_need *needs; /* [rows][panels][PLAN_OPERANDS]: what these 16 come from */
    enum kernel_pick unit;         /* the largest that all elements can move in */
};

/* Matrices and values are named by the fields in, out, weights, row and row2 only: a repeat gives
 * them new numbers, and takes steps for equal when all other fields are. */
struct plan_step {
    enum plan_kind kind;
    enum kernel_act act;
    struct node_id node;        /* first node of the step */
    uint32_t in[PLAN_OPERANDS]; /* matrices; PLAN_NONE when absent */
    uint32_t out;
    struct value_id weights; /* GEMM: initialiser [K][N], or [N][K] when is_transposed */
    bool is_transposed;
    struct value_id row;  /* bias, ADD_ROW's or BINARY_ROW's row, NORM's scale, or NO_VALUE */
    struct value_id row2; /* NORM: bias, NO_VALUE when absent */
    bool row_is_literal;  /* row's bytes are in the image, see lower.h */
    bool is_single;       /* the result is float32 */
    uint8_t op;           /* BINARY, BINARY_ROW, MAP, ROW_REDUCE: the kernel's */
    float a, b;           /* MAP: of a x + b; NORM: a = epsilon */
    struct plan_product product;
    const struct plan_pick *pick;     /* PICK */
    uint32_t in_panel[PLAN_OPERANDS]; /* first panel of an operand: a window of its columns */
    uint32_t rows, inner, columns;
    uint32_t groups, panels; /* of 16: inner and columns, in units */
    uint32_t inner_unit, unit;
    /* The choice. */
    uint32_t m, n, k;            /* k = 1 unless GEMM, or ATTENTION in blocks */
    struct plan_form form;       /* GEMM */
    const uint32_t *group_bound; /* GEMM: k + 1 */
    const uint32_t *panel_bound; /* GEMM: n + 1, before the split by reducers */
    bool w_region1;
    /* Two choices that need no place for a result of their own: */
    bool is_deferred; /* NORM: makes nothing; each GEMM that reads it gathers the operand and
                       * normalises the rows that it needs on its own tiles */
    bool is_fused;    /* GEMM by rows: its only reader, an ADD of equal distribution, is done by the
                       * same calls */
    uint8_t fused;    /* that ADD: 1 + operand that is the product; 0 when it is no such */
    const struct plan_dist *dist; /* of the result; NULL when deferred, likewise its matrix's */
    uint64_t compute_cycles;      /* estimates */
    uint64_t exchange_cycles;
};

/* What a step reads of the parameters: one value for each turn of a repeat. */
enum plan_param {
    PARAM_WEIGHTS,
    PARAM_ROW,
    PARAM_ROW2,
    PARAM_OPERAND, /* the value of a constant operand 0, 1, .. */
    PLAN_PARAMS = PARAM_OPERAND + PLAN_OPERANDS
};

/* Equal consecutive blocks of steps, planned once and run in a loop (repeat.c). Steps [first, first
 * + count) are the block of the first turn; the last of them is the PLAN_CARRY, which takes the
 * block's result, its operand 0, to the home blocks of `carried`. So every turn, the first one
 * included, reads `carried`, and what follows the loop reads the result of the PLAN_CARRY. Steps
 * behind the block that do not depend on it may run before it. */
struct plan_repeat {
    uint32_t first, count;
    uint32_t turns;          /* 0 when nothing repeats, else 2 or more */
    uint32_t carried;        /* matrix */
    struct value_id *values; /* [turns][count][PLAN_PARAMS], NO_VALUE where a step has none */
    struct node_id *nodes;   /* [turns][count]: first node of each step */
};

struct plan {
    const struct graph *graph; /* borrowed */
    uint32_t tiles;
    struct plan_matrix *matrices;
    uint32_t matrix_count;
    struct plan_step *steps;
    uint32_t step_count;
    uint32_t *inputs;  /* matrix of graph input i */
    uint32_t *outputs; /* matrix of graph output i */
    struct plan_repeat repeat;
    uint64_t estimated_cycles, estimated_exchange_cycles; /* of a run: all turns */
    uint32_t estimated_phases;                            /* each counted once */
    uint32_t peak_bytes; /* worst tile, parameters and the largest step */
    uint32_t active_tiles;
};

struct plan_set {
    struct plan *finalists; /* best estimate first */
    uint32_t count;
    uint64_t candidates; /* evaluated during the search */
    bool repeats;        /* equal blocks were found, and made one choice for all */
};

enum plan_repeats {
    REPEATS_NONE, /* every step has a choice of its own */
    REPEATS_LOOP  /* equal consecutive blocks share one, and their code */
};

struct plan_options {
    uint32_t tiles;
    uint32_t fill_percent; /* share of a tile's data bytes that a plan may fill, 100 or less when
                            * placement of fuller plans has failed */
    bool accumulate_f16;   /* products may round to f16 between K groups (design.md D2) */
    enum plan_repeats repeats;
};

/* Errors: ERR_UNSUPPORTED_OP, ERR_DTYPE with the node's JSON pointer,
 * ERR_DOES_NOT_FIT with the step and the bytes of the smallest choice. All in arena a. */
int plan_build(
    const struct graph *g, const struct plan_options *options, struct arena *a,
    struct plan_set **ret, struct err *err);
/* Every turn of a plan's repeat with steps of its own: the same choices, so the same results. */
void plan_repeat_unroll(struct plan *p, struct arena *a);
int plan_verify(const struct plan *p, struct err *err);
void plan_print(const struct plan *p, FILE *out);

/* Bytes of one row of a panel. */
static inline uint32_t plan_row_bytes(const struct plan_matrix *x) {
    return x->is_single ? 64 : 32;
}
const char *plan_kind_name(enum plan_kind k);
bool plan_dist_equal(const struct plan_dist *a, const struct plan_dist *b);
/* Kernel variant of a step's main call. reduce: of the second call of a K split. */
struct kernel_variant plan_variant(const struct plan_step *s);
/* The call that makes weights of a product's second operand. */
struct kernel_variant plan_relayout_variant(const struct plan_step *s);
/* The call that gives a row reduction's packed results a row of a panel each. */
struct kernel_variant plan_unpack_variant(void);
struct kernel_variant plan_reduce_variant(const struct plan_step *s);
/* Groups [first, last) of chunk c of K part kk, and panels [first, last) of block column j whose
 * weights tile (i, j, kk) holds when they are streamed: maybe none. */
void plan_chunk(
    const struct plan_step *s, uint32_t kk, uint32_t c, uint32_t *ret_first, uint32_t *ret_last);
void plan_weights_home(
    const struct plan_step *s, uint32_t i, uint32_t j, uint32_t *ret_first, uint32_t *ret_last);
uint32_t plan_chunks(const struct plan_step *s);  /* 1 unless GEMM */
bool plan_is_streamed(const struct plan_step *s); /* in chunks, or its weights are */
/* Logical tile (i, j, kk) of a GEMM grid. */
uint32_t plan_gemm_tile(const struct plan_step *s, uint32_t i, uint32_t j, uint32_t kk);
/* Part of operand o that block (i, j) of the result needs when the result lies in `dist`; of all
 * steps but GEMM. Empty only for a PICK that takes nothing of it. */
struct plan_need
plan_need(const struct plan_step *s, const struct plan_dist *dist, uint32_t i, uint32_t j, int o);
/* Every block of the result finds that part as a home block of `source` on its own tile. */
bool plan_is_home(
    const struct plan_step *s, const struct plan_dist *dist, int o, const struct plan_dist *source);
/* First key of a key part; of attention in blocks. */
uint32_t plan_key_bound(const struct plan_step *s, uint32_t part);
/* Batch and head of block (i, j) of a product's or attention's result. */
void plan_product_block(
    const struct plan_step *s, const struct plan_dist *dist, uint32_t i, uint32_t j,
    uint32_t *ret_batch, uint32_t *ret_head);
/* The NORM whose rows the readers of a matrix make themselves, PLAN_NONE when there is none. */
uint32_t plan_deferred_norm(const struct plan *p, uint32_t matrix);
/* The GEMM that does a fused ADD. */
uint32_t plan_fused_gemm(const struct plan *p, uint32_t step);
/* How often a step runs: the turns of the repeat it lies in, else once. */
uint32_t plan_step_turns(const struct plan *p, uint32_t step);
/* Both before the repeat, in it or behind it: one may do the work of the other. */
bool plan_is_same_part(const struct plan *p, uint32_t a, uint32_t b);
/* The value that a step reads in a turn; outside of a repeat turn is 0. NO_VALUE when it reads
 * none. */
struct value_id
plan_param_value(const struct plan *p, uint32_t step, enum plan_param param, uint32_t turn);
/* Different values in different turns. */
bool plan_param_varies(const struct plan *p, uint32_t step, enum plan_param param);
/* What tile kk reduces of block (i, j), relative to the matrix; without panels when kk has no
 * share. With k = 1 the whole block. */
struct plan_share {
    uint32_t row_first, row_last, panel_first, panel_last;
    uint32_t row_part, panel_part; /* of the block */
};
bool plan_form_equal(const struct plan_form *a, const struct plan_form *b);
struct plan_share plan_reduce_share(const struct plan_step *s, uint32_t i, uint32_t j, uint32_t kk);
/* Panels of block column j are shared by so many reducers of each row part. */
uint32_t plan_panel_parts(const struct plan_step *s, uint32_t j);
/* The reduction reads the own part where it lies (REDUCE_SHARE), else behind it (REDUCE). */
bool plan_reduces_in_place(const struct plan_step *s);

#endif
