/* On-chip exchange: transfers with addresses -> a timed row of instructions for every tile.
 *
 * Job: schedule each transfer of a phase at the earliest event that all constraints allow, encode
 * rows, verify them by replay on the wires. Facts: exchange fact sheet; section numbers below are
 * its own. Everything is in local events: T (target_route_time) converts.
 *
 * Two layers: the phase scheduler (exchange_schedule_phase: pure, tiles and addresses in, rows
 * out), used by the vectors runner as well, and exchange_build() which feeds it a placed tile
 * graph (declared in exchange_build.c's users' header lower/lower.h types).
 *
 * Invariants: (1) transmit lanes, multiplexer and payload windows of a tile never overlap (4.1);
 * (2) a control never falls on S or S+1 of an own send (2.5); (3) send and receive of a tile never
 * share a memory element inside the windows of 4.3; (4) list order of overlapping bytes is kept
 * (4.4); (5) rows decode to exactly the scheduled events; (6) a row ends with the multiplexer idle.
 */
#ifndef EXCHANGE_EXCHANGE_H
#define EXCHANGE_EXCHANGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "target/target.h"

#define EXCHANGE_MAX_ITEMS 4148 /* one transfer (4.2); longer spans are split by the caller side */

enum exchange_form {
    EXCHANGE_POINT,    /* 2.4 point form */
    EXCHANGE_ABSOLUTE, /* 2.4 absolute form */
    EXCHANGE_PAIRED,   /* section 6, 64-bit items */
};

struct exchange_dest {
    struct logical_tile tile;
    uint32_t addr;
};

struct exchange_transfer {
    struct logical_tile source;
    uint32_t source_addr;       /* 4-aligned, 8 when paired */
    uint32_t words;             /* 32-bit words */
    enum exchange_form form;
    const struct exchange_dest *dests;
    uint32_t dest_count;
    uint32_t requested;         /* least schedule offset */
};

struct exchange_placed { /* what the schedule decided for transfer i */
    uint32_t offset;
    int32_t send_start, send_end, send_horizon;
};

struct exchange_row {
    struct logical_tile tile;
    uint32_t *words;            /* up to and including br $m10 */
    uint32_t word_count;
    uint32_t horizon;           /* events */
    uint32_t incoming_base;     /* INCOMING_BASE on entry, 0 in absolute form */
};

struct exchange_options {
    bool list_order;      /* place in list order with `requested` as lower bound (vectors) */
    bool ignore_elements; /* no SRAM rule (vectors' `phases`) */
    bool always_trial;    /* encoding trial at each insertion (5.7 phases) */
    const uint32_t *order; /* given order of placement (vectors' `schedules`), NULL = choose */
};

struct exchange_phase {
    struct exchange_row *rows;       /* active tiles, ascending logical */
    uint32_t row_count;
    struct exchange_placed *placed;  /* by transfer */
    uint32_t horizon;                /* max over rows */
    uint32_t lower_bound;            /* busiest endpoint (5.1) */
    uint32_t max_row_bytes;
};

/* Checks each transfer alone: the rejections of the vectors (zero words, too long, source only,
 * duplicate receiver, incomplete pair, coinciding controls ...). Text says which rule. */
int exchange_check(const struct exchange_transfer *t, struct err *err);
/* Schedules one phase. Rows are 8-byte aligned sequences. -ERR_SCHEDULE names the transfer. */
int exchange_schedule_phase(const struct exchange_transfer *transfers, uint32_t count,
    const struct exchange_options *options, struct arena *a, struct exchange_phase *ret,
    struct err *err);
/* Replays the rows on the wires (own code, not the simulator): every destination word written
 * exactly once by the intended source word, all rules of 7.3. */
int exchange_verify_phase(const struct exchange_transfer *transfers, uint32_t count,
    const struct exchange_phase *phase, struct arena *a, struct err *err);

#endif
