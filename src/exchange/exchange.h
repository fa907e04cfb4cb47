/* On-chip exchange: transfers with addresses -> a timed row of instructions for every tile.
 *
 * Job: schedule each transfer of a phase at the earliest event that all constraints allow, encode
 * rows, verify them by replay on the wires. Facts: exchange fact sheet; section numbers below are
 * its own. Everything is in local events: T (target_route_time) converts.
 *
 * Two layers: the phase scheduler (exchange_schedule_phase: pure, tiles and addresses in, rows
 * out), used by the vectors runner as well, and build.h which feeds it a placed tile graph.
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
#include <stdio.h>

#include "base/arena.h"
#include "base/digest.h"
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
    uint32_t source_addr; /* 4-aligned, 8 when paired */
    uint32_t words;       /* 32-bit words */
    enum exchange_form form;
    const struct exchange_dest *dests;
    uint32_t dest_count;
    uint32_t requested; /* least schedule offset */
};

struct exchange_placed { /* what the schedule decided for transfer i */
    uint32_t offset;
    int32_t send_start, send_end, send_horizon;
};

struct exchange_row {
    struct logical_tile tile;
    uint32_t *words; /* up to and including br $m10 */
    uint32_t word_count;
    uint32_t horizon;       /* events */
    uint32_t incoming_base; /* INCOMING_BASE on entry, 0 in absolute form */
};

struct exchange_switch { /* write of OUTGOING_BASE in the row of a transfer's source (5.5) */
    uint32_t after;      /* index of the transfer that it follows in order of placement */
    uint8_t reg;         /* $m register that holds the base */
    int32_t start, end;  /* events; filled by the scheduler */
};

struct exchange_options {
    bool list_order;      /* place in list order with `requested` as lower bound (vectors) */
    bool ignore_elements; /* no SRAM rule (vectors' `phases`) */
    bool always_trial;    /* encoding trial at each insertion (5.7 phases) */
    bool plain;           /* rows, dependency starts and tails exactly as 3.5, 4.4 and 2.4 say; else
                           * point form is placed as absolute, 52 words have the common tail, a
                           * dependent transfer waits for its own tile only, rows may be aligned
                           * by splitting any earlier instruction */
    bool try_paired;      /* own order only: also schedule with every eligible transfer of 128 words
                           * or more paired, where the bound allows a gain, and keep the shorter;
                           * exchange_phase.forms tells what became of each */
    bool widen;           /* every eligible transfer of 128 words or more is paired */
    uint32_t effort;      /* own order only: rounds of list scheduling, 0 = by size of the phase */
    const uint32_t *order; /* given order of placement (vectors' `schedules`), NULL = choose */
    const struct exchange_placed *least; /* with order: no transfer is placed at an offset below its
                                          * own here; NULL = as early as possible */
    const struct exchange_switch *switches; /* base writes, ascending `after`; vectors */
    uint32_t switch_count;
    const bool *follows;     /* the addresses mean nothing (reuse.h): by transfer, whether it
                              * exchange_follows() its neighbour; NULL = as the addresses say */
    bool given_dependencies; /* those below, as exchange_dependencies() made them, instead of what
                              * the addresses say */
    const struct exchange_dependency *dependencies;
    uint32_t dependency_count;
};

struct exchange_endpoint { /* the lane with most items */
    struct logical_tile tile;
    bool is_send;
    uint32_t items;
};

struct exchange_phase {
    struct exchange_row *rows; /* active tiles, ascending logical */
    uint32_t row_count;
    struct exchange_placed *placed; /* by transfer */
    uint32_t horizon;               /* max over rows */
    uint32_t lower_bound;           /* busiest endpoint (5.1): items alone */
    struct exchange_endpoint busiest;
    /* No order is shorter: busiest endpoint with its latency, each transfer alone, chains of
     * dependent ones. */
    uint32_t latency_bound;
    /* reuse.h: of the same order without addresses; what the phase is longer is the fault of where
     * data lies. 0: not known. */
    uint32_t free_horizon;
    uint32_t max_row_bytes;
    struct logical_tile longest_row;
    uint64_t total_row_bytes;
    uint32_t *order;                  /* order of placement; address-free, can be given again */
    enum exchange_form *forms;        /* form used, by transfer */
    bool is_widened;                  /* eligible transfers were paired */
    struct exchange_switch *switches; /* by index of the options' */
    uint32_t switch_count;
    bool ignore_elements; /* as scheduled: the verifier skips the SRAM rule too */
    bool used_trials;     /* a misaligned row made every insertion a trial (5.7) */
};

struct exchange_dependency { /* list order that overlapping bytes impose (4.4) */
    uint32_t before, after;
    struct logical_tile tile;
    uint8_t kind; /* enum exchange_hazard */
};

enum exchange_hazard {
    EXCHANGE_READ_AFTER_WRITE,
    EXCHANGE_WRITE_AFTER_READ,
    EXCHANGE_WRITE_AFTER_WRITE
};

/* Checks each transfer alone: the rejections of the vectors (zero words, too long, source only,
 * duplicate receiver, incomplete pair, coinciding controls ...). Text says which rule. */
int exchange_check(const struct exchange_transfer *t, struct err *err);
/* Schedules one phase. Rows are 8-byte aligned sequences. -ERR_SCHEDULE names the transfer. */
int exchange_schedule_phase(
    const struct exchange_transfer *transfers, uint32_t count,
    const struct exchange_options *options, struct arena *a, struct exchange_phase *ret,
    struct err *err);
/* Replays the rows on the wires (own code, not the simulator): every destination word written
 * exactly once by the intended source word, all rules of 7.3. */
int exchange_verify_phase(
    const struct exchange_transfer *transfers, uint32_t count, const struct exchange_phase *phase,
    struct arena *a, struct err *err);

/* Direct dependencies, ascending (after, before, tile, kind), arena. */
void exchange_dependencies(
    const struct exchange_transfer *transfers, uint32_t count, struct arena *a,
    struct exchange_dependency **ret, uint32_t *ret_count);
/* Whether transfer i > 0 goes from the tile of transfer i - 1 to the same receivers, in the same
 * order and form, and its bytes lie right behind the other's: both may leave as one. */
bool exchange_follows(const struct exchange_transfer *transfers, uint32_t i);
/* Structure of a phase without addresses: transfers with their tiles, which follow one another, and
 * the dependencies as a relation. Equal structures may try each other's order (reuse.h). */
int exchange_structure(
    const struct exchange_transfer *transfers, uint32_t count,
    const struct exchange_dependency *dependencies, uint32_t dependency_count, struct digest *ret,
    struct err *err);
/* Timeline of every row: instructions, events covered, controls. Stable text. */
int exchange_print_phase(
    const struct exchange_transfer *transfers, uint32_t count, const struct exchange_phase *phase,
    FILE *out);

#endif
