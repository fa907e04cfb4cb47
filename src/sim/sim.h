/* The simulated device: an IPU21 at instruction level behind the register seam, and one bare tile
 * for tools and tests. The only exports of src/sim.
 *
 * Invariants: (1) nothing here knows graphs, plans or packages; (2) results depend on neither
 * thread count nor slice length (design.md D11); (3) what nothing has written reads as poison and
 * is counted; (4) a chip where no tile can advance and no host event is pending answers
 * ERR_DEADLOCK at once (D10).
 */
#ifndef SIM_SIM_H
#define SIM_SIM_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "device/seam.h"
#include "target/target.h"

/* Vector instructions of the processor that the simulator may use; results are the same. */
enum sim_vectors { SIM_VECTORS_BEST, SIM_VECTORS_NONE, SIM_VECTORS_AVX2 };

struct sim_options {
    int threads; /* 0 = number of processors */
    enum sim_vectors vectors;
    uint32_t slice_cycles; /* most cycles one register read may run; 0 = about 10 ms of work */
    bool model_c;          /* host sync model C instead of A (device fact sheet 4.5) */
    bool race_marks;       /* apply mark writes at once instead of at quiescence */
    bool poison_launch;    /* poison registers at reset, those of workers also between launches */
    /* A supervisor that waits in a sync takes injected instructions while its stop is requested.
     * Hardware has been seen to refuse (CNQ), and debug tools there live with it; without this the
     * simulator always refuses, with it a post-mortem can say where each tile waits. */
    bool inject_waiting;
    uint32_t sync_release; /* cycles; 0 = the table's default */
    FILE *trace;           /* instruction trace, NULL = none; borrowed */
    int trace_tile;        /* physical tile, -1 = all */
    struct sim_fault {     /* injected faults for tests; kind 0 = none */
        int kind;          /* enum sim_fault_kind */
        uint32_t tile;
        uint32_t at; /* barriers since reset, or driver calls since open, counted from 0 */
    } fault;
};

enum sim_fault_kind {
    SIM_FAULT_NONE = 0,
    SIM_FAULT_MISS_BARRIER, /* tile never arrives at barrier `at` */
    SIM_FAULT_REQUEST,      /* driver call `at` (request, mailbox, attach, detach) gives EIO */
    SIM_FAULT_MAILBOX,      /* wrong mailbox reply */
};

/* Opens a simulated device in the state after power-on. *ret->close frees it. */
int sim_device_open(const struct sim_options *options, struct ipu_device_ops *ret, struct err *err);

struct sim_counters {
    uint64_t cycles;       /* chip time */
    uint64_t issue_groups; /* solo instructions and bundles over all tiles */
    uint64_t barriers;
    uint64_t exchange_words; /* delivered, counted per receiver */
    uint64_t host_words;
    uint64_t poison_reads;    /* loads that met unwritten bytes */
    uint64_t mark_overwrites; /* host writes to a nonzero mark */
};
/* ops must be one that sim_device_open() filled. */
void sim_device_counters(const struct ipu_device_ops *ops, struct sim_counters *ret);
/* One line a tile that is not idle in a barrier: state, pc, exception. For post-mortems. */
void sim_device_describe(const struct ipu_device_ops *ops, FILE *out);

/* ---- One bare tile: no sync network, no exchange, no host. ------------------------------- */

struct sim_tile; /* owned; free with sim_tile_free() */

enum sim_context { SIM_SUPERVISOR = 0, SIM_WORKER0 = 1 /* .. 6 */ };

enum sim_stop {
    SIM_STOP_STEPS,     /* the number of issue groups asked for has retired */
    SIM_STOP_EXCEPTION, /* a context raised one */
    SIM_STOP_IDLE,      /* nothing is running: supervisor waits on a barrier or all exited */
    SIM_STOP_CYCLES,    /* cycle limit */
};

struct sim_stopped {
    enum sim_stop why;
    int context;     /* of the exception */
    int etype;       /* its code, device fact sheet 2.5 */
    uint32_t pc;     /* where */
    uint64_t cycles; /* tile cycles run by this call */
    uint64_t groups; /* issue groups retired by this call */
};

struct sim_tile *sim_tile_new(const struct sim_options *options); /* NULL when out of memory */
void sim_tile_free(struct sim_tile *t);
/* Byte access, 4-aligned, inside tile memory. zero: sets all memory to written zeros first
 * (vectors say that everything unnamed is zero). */
void sim_tile_zero(struct sim_tile *t);
int sim_tile_write(
    struct sim_tile *t, uint32_t addr, const void *bytes, uint32_t n, struct err *err);
int sim_tile_read(struct sim_tile *t, uint32_t addr, void *ret, uint32_t n, struct err *err);
/* Registers of a context. Files: 'm' 0..15, 'a' 0..15, 'c' accumulators 0..31 (raw bits),
 * 'w' coefficients 0..63 (64 bits, shared by the tile), 's' CSR numbers (upper ones from 256),
 * 'p' the program counter (number 0). */
int sim_tile_set(
    struct sim_tile *t, int context, char file, int number, uint64_t value, struct err *err);
int sim_tile_get(
    struct sim_tile *t, int context, char file, int number, uint64_t *ret, struct err *err);
/* Makes one context active at its pc (workers included); the others are untouched. */
void sim_tile_start(struct sim_tile *t, int context);
/* Steps one context alone by issue groups, without timing. */
void sim_tile_step(struct sim_tile *t, int context, uint64_t groups, struct sim_stopped *ret);
/* Runs all active contexts on the barrel until an exception, idleness or the limit. */
void sim_tile_run(struct sim_tile *t, uint64_t max_cycles, struct sim_stopped *ret);
/* Result of a worker's last exit (its boolean), -1 if it has not exited. */
int sim_tile_exit_status(const struct sim_tile *t, int context);

/* ---- Exchange rows alone: runs given rows against the fabric (vectors). ------------------ */

struct sim_row {
    struct physical_tile tile;
    const uint32_t *words; /* up to and including `br $m10`, borrowed */
    uint32_t word_count;
    uint32_t incoming_base;
    uint32_t m6; /* value of $m6 (moving base) */
};

struct sim_delivery {
    struct physical_tile tile; /* receiver */
    uint32_t addr;             /* of the 32-bit word stored */
    struct physical_tile source;
    uint32_t source_addr;
    int32_t arrival; /* receiver-local event */
};

struct sim_row_fault {
    struct physical_tile tile;
    int code; /* receive error code ERERR, or 0x100 + exception type */
    int32_t event;
    uint32_t addr;
    char text[128];
};

struct sim_rows_result {             /* owned arrays, free with sim_rows_result_done() */
    struct sim_delivery *deliveries; /* sorted by (arrival, tile, addr) */
    uint64_t delivery_count;
    struct sim_row_fault *faults;
    uint32_t fault_count;
    int32_t *horizons; /* by row index: event of the return */
};

/* Row i is placed at `row_addr` of its tile (8-aligned, in region 0). */
int sim_rows_run(
    const struct sim_row *rows, uint32_t row_count, uint32_t row_addr, struct sim_rows_result *ret,
    struct err *err);
void sim_rows_result_done(struct sim_rows_result *r);

#endif
