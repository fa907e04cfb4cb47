/* The exchange fabric: what rows put on the wires and what arrives where, in local events.
 *
 * Input: one trace per tile (struct row_trace): the data-independent instructions a tile executes
 * after a barrier, turned into sends and controls with event numbers that count from the barrier's
 * release. Output: one port per tile (struct fabric_port): runs of stored words in order of
 * arrival, and faults. No data moves here; phase.c moves it, rows.c only reports it.
 *
 *     tile s   send q ----------------------------> bus of s
 *     tile r   multiplexer selects s over [x0, x1): takes items with x0 <= q + 1 + T(s,r) < x1
 *              arrival a = q + 1 + T + 52 + 2 * row(r), one event later on the early half of a pair
 *              address = base + pointer in force at a, then the pointer advances
 *
 * Invariants: (1) a port depends on the traces only, so ports may be resolved in any order and by
 * any thread; (2) runs of a port are in order of arrival and never overlap in time; (3) what the
 * hardware would answer with a receive error is a fault here and stores nothing, except for
 * clashes and late items, which store and fault.
 *
 * Rules and numbers: exchange fact sheet 2.3, 3.1, 3.2, 6, 7.1 and 7.2.
 */
#ifndef SIM_FABRIC_H
#define SIM_FABRIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "target/target.h"

/* Receive error codes, as ERERR of the debug interface; 0x100 + type for other exceptions. */
enum row_error {
    ROW_ERROR_NONE,
    ROW_ERROR_CLASH_INSTR,
    ROW_ERROR_CLASH_IFETCH,
    ROW_ERROR_ADDR,
    ROW_ERROR_WORKERS,
    ROW_ERROR_DBRK,
    ROW_ERROR_CONF,
    ROW_ERROR_MODI,
    ROW_ERROR_TYPE = 0x100, /* plus an exception type */
};

struct row_fault {
    int code; /* enum row_error */
    int32_t event;
    uint32_t addr;
    char text[96];
};

/* Growable arrays of this module: data, len, cap. */
#define ROW_LIST(type)                                                                             \
    struct {                                                                                       \
        type *data;                                                                                \
        uint32_t len;                                                                              \
        uint32_t cap;                                                                              \
    }
/* Makes room for one more element; false when out of memory. */
bool row_list_grow(void **data, uint32_t *cap, uint32_t len, size_t element);
#define row_list_push(list, ...)                                                                   \
    (((list)->len < (list)->cap ||                                                                 \
      row_list_grow((void **)&(list)->data, &(list)->cap, (list)->len, sizeof *(list)->data)) &&   \
     (((list)->data[(list)->len++] = (__VA_ARGS__)), true))

enum row_control_kind {
    ROW_MUX,      /* value: source tile or TARGET_MUX_IDLE */
    ROW_MUX_PAIR, /* value: as written */
    ROW_POINTER,  /* value: bytes beyond the base */
    ROW_FORMAT,   /* value: 0, 1, 2 */
    ROW_BASE,     /* value: INCOMING_BASE */
};

struct row_control {
    int32_t event;
    uint32_t value;
    uint8_t kind;
};

struct row_send {
    int32_t start;  /* event of item 0; item k leaves at start + k */
    uint32_t count; /* items */
    uint32_t addr;  /* byte address of item 0 */
    uint8_t sctl;   /* bit 0 east, 1 west, 2 64-bit items */
    bool is_taken;  /* some tile stores an item of it */
    bool has_other; /* ... and one that is not the sender */
    uint32_t data;  /* phase.c: index of item 0 in the captured words */
};

struct row_trace {
    /* Entry state, set by the caller; m and the bases are left as the trace left them. */
    uint16_t tile;
    uint32_t pc;
    uint32_t m[16];
    uint32_t incoming_base;
    uint32_t outgoing_base;
    uint32_t mux;
    uint32_t format;
    bool has_workers; /* a worker is active: nothing may arrive */

    /* Result. */
    ROW_LIST(struct row_send) sends;       /* by start, disjoint */
    ROW_LIST(struct row_control) controls; /* by event */
    uint32_t entry_base;                   /* INCOMING_BASE on entry */
    uint16_t m_written;                    /* bit n: m[n] changed */
    bool has_wide;                         /* some send has 64-bit items */
    bool is_stopped;                       /* ended by a fault, not by a foreign instruction */
    int32_t end;     /* event of the first instruction that is not part of the trace */
    int32_t visible; /* items must arrive 7 events before this one */
    int32_t horizon; /* event of the last return, -1 if none */
    uint32_t instructions;
    uint64_t code_units;    /* memory units that instructions are fetched from */
    struct row_fault fault; /* code 0 when none */
};

struct row_code {
    /* False when addr is no executable word. */
    bool (*fetch)(void *self, uint32_t addr, uint32_t *ret_word);
    void *self;
};

/* Row instructions as bit fields (fact sheet 3.1). */
enum row_op {
    ROW_OP_FOREIGN, /* not part of a trace */
    ROW_OP_DELAY,
    ROW_OP_DELAYPIC,
    ROW_OP_DELAYXPIC,
    ROW_OP_SEND,
    ROW_OP_SENDOFF,
    ROW_OP_SENDPIC,
    ROW_OP_SENDPICP,
    ROW_OP_PUT_BASE, /* selector 0 incoming, 1 outgoing; value = register */
    ROW_OP_SETZI,    /* reg, value */
    ROW_OP_CALL,     /* reg, value = byte address */
    ROW_OP_BR,       /* reg */
    ROW_OP_SANS,     /* value = count - 1 */
};

struct row_insn {
    enum row_op op;
    int32_t events;
    uint32_t addr;  /* item address, or delta of sendoff */
    uint32_t value; /* control value */
    uint8_t sctl;
    uint8_t selector;
    uint8_t reg;
};

struct row_insn row_decode(uint32_t word);

/* Traces from t->pc on: until an instruction that is not exchange, delay, setzi, put of a base,
 * call or br (design.md D12), or, if ends_at_return, until `br $m10`. False when out of memory. */
bool row_trace_run(struct row_trace *t, const struct row_code *code, bool ends_at_return);
/* Empties the result and keeps its storage. */
void row_trace_clear(struct row_trace *t);
void row_trace_done(struct row_trace *t);

/* A run of items that the multiplexer of a tile took. */
struct fabric_capture {
    int32_t arrival;
    uint32_t count;
    uint16_t source;
    uint32_t send;   /* index in the source's trace */
    uint32_t offset; /* items into that send */
    bool is_wide;
    bool is_early; /* arrives one event later than on an ordinary route */
};

/* A run of words that was stored: word k of item i arrives at arrival + i. */
struct fabric_store {
    int32_t arrival;
    uint32_t count; /* items */
    uint32_t addr;  /* byte address of item 0 */
    uint16_t source;
    uint32_t send;
    uint32_t offset; /* items into that send */
    bool is_wide;
};

struct fabric_port {
    ROW_LIST(struct fabric_capture) captures; /* scratch */
    ROW_LIST(struct row_control) mux;         /* scratch: own selections and the partner's */
    ROW_LIST(struct fabric_store) stores;     /* by arrival */
    ROW_LIST(struct row_fault) faults;        /* at most one of a code */
    uint64_t words;
    uint32_t last_mux; /* selection left at the end */
    uint32_t last_format;
    bool is_out_of_memory;
};

void fabric_port_done(struct fabric_port *p);
/* What arrives at a tile. traces[n] is the trace of physical tile n, NULL if it has none. */
void fabric_resolve(
    const struct row_trace *const traces[], uint16_t receiver, struct fabric_port *ret);
/* Rules between ports, after all are resolved: both halves of a pair take the same items, a
 * sender is never the only receiver. Sets is_taken of the sends. */
void fabric_match(struct row_trace *const traces[], struct fabric_port *const ports[]);
/* Adds a fault unless the port has one of that code. */
void fabric_fault(
    struct fabric_port *p, int code, int32_t event, uint32_t addr, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* Memory unit of contention of a byte address: 16 KiB below TARGET_REGION1, 32 KiB above;
 * 64 when outside tile memory. */
unsigned fabric_unit(uint32_t addr);

#endif
