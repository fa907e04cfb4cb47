/* Lowering: a plan -> buffers, kernel calls and moves of every tile, in ordered supersteps.
 *
 * Job: give each block of each matrix a buffer on its tile, say which calls run where, and what
 * must travel in between. Input: a plan (borrowed). Output: struct tile_graph, addresses still
 * open. A *level* is one superstep: its exchange, then its compute. A step runs at the first level
 * at which its operands can be there, so independent movements share a phase.
 *
 *   time 0      level 0           level 1                           end
 *   host input  │ compute steps │ exchange │ compute │ compute │ … │ host output
 *               └ one time point for each exchange and each step of a level
 *
 * Moves: a move reads one contiguous range of one buffer and writes it to one range of each
 * destination (multicast; the source's own tile may be among several, never alone: such pieces are
 * copied by a kernel). What a tile already holds in the right form is not moved. The moves of a
 * level are a list: one may send on what others before it complete (a relay inside one exchange).
 *
 * K split: tile kk of a GEMM block computes panels of partials of the whole block. When reducers
 * share its panels and the partials are f32, the own share comes last.
 * The buffer goes on with room for the other parts, so that the reduction finds own and received
 * parts at one stride and nothing is copied:
 *
 *     [ shares of the others, ascending | own share | part | part | ... ]
 *                                       └ REDUCE_IN, stride = bytes of the own share
 *
 * Otherwise the own share is read where it lies and received parts have a buffer of their own
 * (REDUCE_SHARE).
 *
 * Invariants, checked by lower_verify(): (1) home blocks cover each matrix exactly; (2) each byte
 * that a call or a move reads was written at an earlier time, by host, call or move, or is relayed
 * from a move before it in the list; (3) moves read and write inside their buffers, word-aligned,
 * on the tiles they name; (4) lifetimes cover all uses; (5) vertices are sorted by (level, time,
 * tile).
 */
#ifndef LOWER_LOWER_H
#define LOWER_LOWER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/err.h"
#include "graph/graph.h"
#include "kernels/kernels.h"
#include "plan/plan.h"
#include "target/target.h"

struct buffer_id {
    uint32_t n;
};
#define NO_BUFFER     ((struct buffer_id){UINT32_MAX})
#define LOWER_FOREVER UINT32_MAX /* time: beyond the end; parameters live from 0 to it */
#define LOWER_WORDS   12         /* descriptor words of a kernel at most */

enum buffer_kind {
    BUFFER_WEIGHTS, /* block of weights, layout of kernels.h */
    BUFFER_ROW,     /* one row of panels: bias */
    BUFFER_MATRIX,  /* constant block in panels */
    BUFFER_VALUE,   /* home block of a matrix */
    BUFFER_OPERAND, /* gathered copy for one or more steps */
    BUFFER_PARTIAL, /* panels of a K part, maybe with room for the other parts; received parts */
    BUFFER_SCRATCH,
    BUFFER_TABLE, /* addresses for a PICK */
    BUFFER_KINDS
};

struct lower_buffer {
    struct logical_tile tile;
    enum buffer_kind kind;
    uint32_t bytes;      /* payload, multiple of 4; of all slots */
    uint32_t slots;      /* above 1: a sequence, one slot of bytes / slots for each turn of the
                          * loop; words of descriptors name the first one */
    uint32_t born, dies; /* time points, both inclusive */
    uint32_t step;       /* that made or first needed it, PLAN_NONE for an input */
    uint32_t split_at;   /* PARTIAL: offset from which it is received into, else 0 */
    bool is_literal;     /* its bytes are in the image: a constant that the compiler knows */
};

struct lower_word {          /* one word of a descriptor */
    struct buffer_id buffer; /* NO_BUFFER: the value itself */
    uint32_t value;          /* or offset in the buffer */
};

struct lower_vertex {
    struct logical_tile tile;
    uint32_t level, time, step;
    struct kernel_variant variant;
    struct lower_word words[LOWER_WORDS];
    uint32_t word_count;
    uint32_t cycles; /* kernel_cycles() */
    uint32_t useful; /* kernel_useful_cycles(), without what only fills up panels */
};

struct lower_table { /* content of a TABLE: an address a word */
    struct buffer_id buffer;
    const struct lower_word *words;
    uint32_t count;
};

struct lower_dest {
    struct buffer_id buffer;
    uint32_t offset;
};

struct lower_move {
    struct buffer_id source;
    uint32_t offset, words;
    uint32_t dest_first, dest_count; /* range of dests */
};

struct lower_level {
    uint32_t time; /* of its exchange */
    uint32_t move_first, move_count;
    uint32_t vertex_first, vertex_count;
    uint64_t compute_cycles; /* busiest tile */
};

/* Panels [first, last) of the whole matrix. */
struct lower_run {
    uint32_t first, last;
};

/* What the host writes to or reads from one buffer. */
struct lower_shard {
    struct buffer_id buffer;
    uint32_t slot;           /* of a sequence, else 0 */
    struct value_id value;   /* the graph's tensor */
    uint32_t matrix_columns; /* of the tensor as a matrix */
    uint32_t unit;           /* columns that start at a panel together (plan.h) */
    uint32_t inner_unit;     /* WEIGHTS: likewise of K */
    uint32_t lanes;          /* WEIGHTS: channels of a block, 1, 8 or 16 (kernels.h) */
    bool is_single;          /* float32: twice the bytes */
    bool is_fill;            /* ROW without a value: `fill` (f16) in every column */
    uint16_t fill;
    uint32_t row_first, row_last;     /* VALUE, MATRIX */
    uint32_t group_first, group_last; /* WEIGHTS */
    struct lower_run runs[3];         /* panels in the order in which the buffer holds them */
    uint32_t run_count;
    uint32_t quads;     /* of columns that `runs` counts: 4, or 1 (plan_dist) */
    bool is_transposed; /* WEIGHTS: the tensor is [N][K] */
};

struct lower_span {
    uint32_t first, count; /* range of shards */
};

/* Levels that run several times in a row (plan_repeat): no level lies partly inside, and what lives
 * at the loop's start and is read in it lives to its end. */
struct lower_loop {
    uint32_t level_first, level_count;
    uint32_t turns;                 /* 0: no loop */
    uint32_t time_first, time_last; /* both inclusive */
};

struct tile_graph {
    const struct plan *plan; /* borrowed */
    struct lower_loop loop;
    struct lower_buffer *buffers;
    uint32_t buffer_count;
    struct lower_vertex *vertices;
    uint32_t vertex_count;
    struct lower_move *moves;
    uint32_t move_count;
    struct lower_dest *dests;
    uint32_t dest_count;
    struct lower_level *levels;
    uint32_t level_count;
    uint32_t end_time; /* host output */
    struct lower_shard *shards;
    uint32_t shard_count;
    struct lower_table *tables; /* in the order of their buffers */
    uint32_t table_count;
    struct lower_span params;            /* shards of all constants, in step order */
    struct lower_span *inputs, *outputs; /* by graph input and output */
    bool *is_active; /* by logical tile: runs a kernel, exchanges or holds host data */
    uint32_t active_count;
    uint64_t compute_cycles;  /* sum over levels of the busiest tile */
    uint32_t exchange_phases; /* levels with moves */
};

int lower_build(const struct plan *p, struct arena *a, struct tile_graph **ret, struct err *err);
int lower_verify(const struct tile_graph *tg, struct arena *scratch, struct err *err);
void lower_print(const struct tile_graph *tg, FILE *out);

/* Turns of a level: 1 outside of the loop. */
static inline uint32_t lower_level_turns(const struct tile_graph *tg, uint32_t level) {
    const struct lower_loop *l = &tg->loop;
    return level >= l->level_first && level - l->level_first < l->level_count ? l->turns : 1;
}

static inline uint32_t lower_slot_bytes(const struct lower_buffer *b) {
    return b->slots > 1 ? b->bytes / b->slots : b->bytes;
}

/* Bytes of one turn's parameters, over all tiles. */
uint64_t lower_slot_total(const struct tile_graph *tg);
const char *buffer_kind_name(enum buffer_kind k);
static inline const struct lower_buffer *
lower_buffer(const struct tile_graph *tg, struct buffer_id id) {
    return &tg->buffers[id.n];
}

#endif
