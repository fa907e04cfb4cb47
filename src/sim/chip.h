/* The chip half of the simulator: what its files share.
 *
 *   device.c    the register seam: offsets to parts          autoload.c  the hardware autoloader
 *   chip.c      all tiles: new, reset, run until none can    debug.c     tile debug interface
 *   sync.c      barriers and abstention                      counters.c  counters, post-mortem
 *   phase.c     data of an exchange phase                    pool.c      threads over tiles
 *   fabric.c    what arrives where (fabric.h)                clock.c     chip time and slices
 *   host.c      pages, marks, packets
 *
 * States of a tile here:
 *
 *     TILE_OFF --autoloader--> TILE_RUNS --sync z--> TILE_WAITS --barrier, host--> TILE_RUNS
 *                                  |                                                   ^
 *                                  +--exception, idle--> TILE_STOPPED --ECLR-----------+
 *
 * Tiles run on their own, in any order and on any thread, until each of them is stopped by
 * something that concerns others. Only then (chip_settle) barriers and host traffic are looked
 * at, by one thread, in tile order, with cycles as the tiles brought them. So neither the number
 * of threads nor the cutting into slices can change a result.
 *
 * Invariants: (1) a struct chip_tile is touched by one thread at a time: the pool's while tiles
 * run, the caller's otherwise; (2) barriers complete at the latest arrival plus a constant; (3) a
 * mark the host writes is applied when no tile can run (design.md D11) unless race_marks is set.
 */
#ifndef SIM_CHIP_H
#define SIM_CHIP_H

#include <pthread.h>
#include <stdatomic.h>

#include "sim/fabric.h"
#include "sim/sim_internal.h"

#define CHIP_PAGES    IPU_HEXOPT_SLOTS
#define CHIP_BUFFERS  4096 /* attached at the same time */
#define CHIP_CONTEXTS 7

enum {
    CSR_DBG_DATA = 0x70,
    CSR_INCOMING_MUX = 0xa0,
    CSR_INCOMING_DELTA = 0xa2,
    CSR_INCOMING_FORMAT = 0xa3,
    CSR_INCOMING_BASE = 0xa4,
    CSR_INCOMING_DCOUNT = 0xa6,
    CSR_OUTGOING_BASE = 0xa7,
    CSR_OUTGOING_DELTA = 0xa8,
    CSR_EXCHANGE_CTL = 0xa9,
    CSR_ANS_DCOUNT = 0xaa,
};

enum chip_exception {
    CHIP_RBRK = 1,
    CHIP_PBRK0 = 2,
    CHIP_PBRK1 = 3,
    CHIP_BOS = 4,
    CHIP_EXCONF = 7,
    CHIP_INVALID_ADDR = 8,
    CHIP_INVALID_PC = 10,
    CHIP_EXERR = 13,
};

enum chip_timing {
#define CHIP_TIMING(name, value, tag, source) CHIP_##name = value,
#include "sim/chip_timing.def"
#undef CHIP_TIMING
};

enum chip_tile_state { TILE_OFF, TILE_RUNS, TILE_WAITS, TILE_STOPPED };

/* Barriers by what completes them together. */
enum barrier_class {
    BARRIER_NONE,    /* zones 0, 1: the tile alone */
    BARRIER_CHIP,    /* 3 */
    BARRIER_G1,      /* 4, 12 */
    BARRIER_G1_HOST, /* 5, 13 */
    BARRIER_G2,      /* 6, 14 */
    BARRIER_G2_HOST, /* 7, 15 */
    BARRIER_COUNT,
};

enum host_kind { HOST_GRANT, HOST_WRITE, HOST_READ, HOST_DONE /* grant given */ };

struct host_request {
    uint8_t kind;       /* enum host_kind */
    bool is_end;        /* closes the tile's stream */
    uint32_t host_addr; /* bytes */
    uint32_t bytes;     /* 0: the closing read, answered by one word */
    uint32_t tile_addr; /* of a read */
    uint32_t data;      /* write: index of the payload in host_words; grant: of its two words */
};

struct chip_tile {
    struct tile *tile;
    uint8_t state;          /* enum chip_tile_state */
    uint8_t zone;           /* while it waits */
    uint64_t cycle;         /* of its arrival there */
    uint64_t limit;         /* it has run up to this cycle */
    uint64_t round;         /* of the pool in which it last ran */
    uint32_t abstain;       /* barriers it still takes part in by itself */
    uint64_t abstain_cycle; /* from when on it stands for the next of them */
    struct row_fault fault; /* receive error, code 0 when none */

    /* Host traffic: requests in the order sent, the last one perhaps without all its payload. */
    ROW_LIST(struct host_request) requests;
    ROW_LIST(uint32_t) host_words;
    uint32_t header[2];
    uint8_t header_words;  /* of a header not complete yet */
    uint32_t payload_left; /* words of the last request still to come */
    uint32_t request;      /* first one not yet answered */
    uint32_t out_item;     /* next word of the outgoing stream, for sendoff */
    uint64_t moved_words;  /* since the last sync 0 */
    bool is_granted;       /* its owner has named it and it has not closed its stream */
    char hang[96];         /* a packet the hardware could not have handled, "" when none */

    /* Debug interface. */
    uint32_t rbrk, rbrk_vert, iowner, ecsr, tdi_sts, tdi_ctl;
};

struct chip_mark {
    uint32_t value;  /* 16 bits */
    bool is_held;    /* all tiles stand at its barrier and the host is waited for */
    bool is_pending; /* host write not applied yet */
    uint32_t pending;
    uint64_t sequence; /* of the pending write */
};

struct host_buffer {
    uint32_t index;
    uint32_t pages;  /* 0: free */
    uint8_t *memory; /* borrowed */
};

/* One phase's working set for a tile (phase.c). */
struct phase_tile {
    struct row_trace trace;
    struct fabric_port port;
    ROW_LIST(uint32_t) words; /* what its sends carry */
    uint32_t store;           /* first store not yet done, and items of it done */
    uint32_t store_done;
    uint32_t send; /* first send not yet captured, and items of it captured */
    uint32_t send_done;
    bool is_relay; /* sends from where it also receives: order matters */
};

struct pool;

struct chip {
    struct sim_options options;
    uint32_t *regs; /* IPU_CONFIG_BYTES / 4: plain storage */
    struct chip_tile tiles[TARGET_TILES];
    struct pool *pool;

    /* Running. */
    uint16_t runnable[TARGET_TILES];
    uint32_t runnable_count;
    uint64_t round;
    uint64_t slice_end_ns; /* wall clock; 0 = slices counted in cycles */
    uint64_t cycles;       /* latest cycle any tile has reached */
    uint64_t idle_cycles;  /* host time passed while no tile could run */
    bool is_quiet;         /* no tile can run, no barrier is due, no mark is pending; cleared by
                            * whoever changes anything */
    struct err failed;     /* code != 0: out of memory; every later read answers it */

    /* Barriers. */
    uint32_t held_class; /* enum barrier_class, BARRIER_NONE when no barrier is held */
    uint64_t barriers;

    /* Exchange. */
    struct phase_tile *phase[TARGET_TILES];
    struct row_trace *traces[TARGET_TILES]; /* NULL: not in this phase */
    struct fabric_port *ports[TARGET_TILES];
    uint16_t phase_tiles[TARGET_TILES]; /* those with a port */
    uint32_t phase_count;
    uint64_t phase_cycle;
    uint64_t exchange_words;
    uint64_t traced_instructions;

    /* Host. */
    struct chip_mark marks[2];
    uint64_t mark_sequence;
    struct host_buffer buffers[CHIP_BUFFERS];
    uint16_t *page_buffer; /* CHIP_PAGES: number of the buffer plus 1, 0 = none */
    uint32_t driver_calls;
    uint64_t host_words;
    uint64_t mark_overwrites;

    /* Autoloader. */
    ROW_LIST(uint32_t) load_words;
    ROW_LIST(uint32_t *) images; /* borrowed by the tiles until reset */
};

/* ---- pool.c: threads over indices ---- */
/* NULL when not even one thread can be had. threads <= 1: no threads, the caller works. */
struct pool *pool_new(int threads);
void pool_free(struct pool *p);
/* Calls fn(self, i) for all i < count; returns when all are done. */
void pool_run(struct pool *p, void (*fn)(void *self, uint32_t i), void *self, uint32_t count);

/* ---- clock.c ---- */
/* Starts a slice and ends it; between, clock_is_over() says when to stop. */
void clock_start(struct chip *c);
bool clock_is_over(const struct chip *c);
/* A register read found the chip quiet: host time passes. */
void clock_idle(struct chip *c, bool is_dead);
uint64_t clock_now_ns(const struct chip *c);
uint32_t clock_sync_release(const struct chip *c);

/* ---- chip.c ---- */
struct chip *chip_new(const struct sim_options *options, struct err *err);
void chip_free(struct chip *c);
void chip_reset(struct chip *c);
void chip_start_tile(struct chip *c, uint16_t tile, uint32_t pc);
/* Runs at most one slice. Sets is_quiet. */
void chip_slice(struct chip *c);
void chip_wake(struct chip *c, uint16_t tile); /* becomes TILE_RUNS */
/* Raises an exception on the supervisor with a text for the post-mortem. */
void chip_raise(struct chip_tile *t, int etype, int32_t event, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* For a read of a mark: 0, or ERR_TILE_FAULT or ERR_DEADLOCK when the chip is quiet for good. */
int chip_verdict(const struct chip *c, struct err *err);
void chip_out_of_memory(struct chip *c, const char *what);

/* ---- sync.c ---- */
enum barrier_class sync_class(unsigned zone);
/* Tile issued `sync zone`; called on the tile's thread. True when it goes on at once. */
bool sync_arrive(struct chip_tile *t, unsigned zone);
void sync_abstain(struct chip_tile *t, uint32_t barriers);
/* Completes the barrier that is due; false when none is. */
bool sync_settle(struct chip *c);
/* The host lets the held barrier go. */
void sync_release_held(struct chip *c);
bool sync_is_missing(const struct chip *c, uint16_t tile); /* injected fault */

/* ---- phase.c ---- */
/* Resumes the tiles listed at `cycle` and executes the exchange code they start with. */
void phase_run(struct chip *c, const uint16_t *tiles, uint32_t count, uint64_t cycle);
void phase_done(struct chip *c);

/* ---- host.c ---- */
int host_attach(struct chip *c, uint32_t index, void *memory, uint32_t size, struct err *err);
int host_detach(struct chip *c, uint32_t index, struct err *err);
void host_detach_all(struct chip *c);
void host_reset_tile(struct chip_tile *t);
bool host_mux_is_external(uint32_t mux);
/* An exchange instruction outside a phase; called on the tile's thread. */
void host_execute(struct chip *c, struct chip_tile *t);
/* Answers requests and wakes tiles whose sync 0 is satisfied; false when nothing moved. */
bool host_settle(struct chip *c);
bool host_sync_is_done(const struct chip_tile *t);
/* Why the tile's next request stands still; false when it can go or there is none. */
bool host_is_blocked(const struct chip *c, uint16_t tile, char *text, size_t n);
void mark_write(struct chip *c, unsigned group, uint32_t value);
uint32_t mark_read(const struct chip *c, unsigned group);
bool mark_settle(struct chip *c); /* applies the oldest pending write; false when none */
/* All tiles stand at the barrier of a group: true when it may go, false when it is held. */
bool mark_arrive(struct chip *c, unsigned group);

/* ---- autoload.c ---- */
void autoload_write(struct chip *c, uint32_t offset, uint32_t value);
void autoload_reset(struct chip *c);
void autoload_done(struct chip *c);

/* ---- debug.c ---- */
uint32_t debug_read(struct chip *c, uint16_t tile, unsigned reg);
void debug_write(struct chip *c, uint16_t tile, unsigned reg, uint32_t value);

/* ---- counters.c ---- */
bool chip_is_complete(const struct chip_tile *t); /* stopped at the branch to address 0 */
/* First context with an exception that is no debug stop, -1 when none. */
int chip_fault_context(const struct chip_tile *t);
void chip_describe_tile(const struct chip *c, uint16_t tile, char *text, size_t n);
int chip_describe_deadlock(const struct chip *c, struct err *err); /* always -ERR_DEADLOCK */

#endif
