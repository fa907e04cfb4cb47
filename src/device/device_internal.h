/* Shared by the files of src/device only: the steps of a session, in the order they happen.
 *
 *   lock_take -> open ops -> device_initialize -> config_replay -> boot_load -> session_start ->
 *   session_call(initialize) -> session_call(run)*
 *
 * All register numbers and orders: device fact sheet, sections named at each file's head.
 */
#ifndef DEVICE_DEVICE_INTERNAL_H
#define DEVICE_DEVICE_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "device/device.h"

/* Registers (device fact sheet 2.1, 2.3). */
#define REG_CCSR        0x2000u
#define REG_AUTOLDCSR   0x2068u
#define REG_AUTOLDTRGTR 0x206cu
#define REG_AUTOLDDATAR 0x2070u
#define REG_HSPGS1      0x302cu
#define REG_HSPGS2      0x3030u
#define REG_EXCHWINDOW  0x3044u
#define REG_XB_DCXCR    4u /* offset inside an exchange block */
#define REG_XB_XERDR    8u
#define REG_TDI_BASE    0x30000u
#define MARK_MASK       0xffffu
#define AUTOLD_GO       (1u << 8)

#define XB_COUNT 8
/* Byte offset of exchange block i (0..7) in order of use. */
uint32_t device_xb(bool is_east, int i);
/* DCXCR value that sends all requests of a block's contexts to interface `id` (0x3f = none). */
static inline uint32_t dcx_control(uint32_t id) {
    return 2u | id << 3 | id << 9 | id << 15 | id << 21;
}

/* What of a package a resident program needs, copied: the package itself may go. */
struct program {
    struct arena arena; /* owns all below */
    struct package_binding *bindings;
    uint64_t *binding_bytes;
    uint32_t binding_count;
    struct package_phase *phases;
    uint32_t *first_slice; /* phase_count + 1 entries */
    uint32_t phase_count;
    struct package_slice *slices;
    uint32_t slice_count;
    uint32_t *page_of; /* by slice: byte offset of its tile's page */
    uint32_t participant_count;
    struct package_symbol *symbols;
    uint32_t symbol_count;
};

struct device {
    struct ipu_device_ops ops;
    int lock_fd;
    struct loader_image *loader; /* owned; NULL = our own */
    bool is_resident;
    uint32_t runs_completed; /* of the resident program, as its tiles count them */
    struct digest residency;
    struct program *program; /* owned; NULL when empty */
    uint8_t *command_page;   /* owned, attached at host page 0 */
    uint8_t *pages;          /* owned, attached at host page 1 */
    uint32_t pages_bytes;
    char *postmortem;         /* owned text of the last failure, NULL when there is none */
    uint64_t tdi_deadline_ns; /* of a survey or a look in progress, 0 = none */
    uint32_t marks[2];        /* last value written or read */
    bool has_mark[2];
    atomic_bool stop; /* device_stop() while busy */
    atomic_bool is_busy;
};

/* lock.c: flock on path, or -ERR_DEVICE_BUSY naming the holder. */
/* Whether the file is there or can be made; -ERR_PERMISSION, -ERR_IO. */
int lock_check(const char *path, struct err *err);
int lock_take(const char *path, bool no_wait, int *ret_fd, struct err *err);
void lock_drop(int *fd);

/* pcie.c */
int pcie_open(const char *spec, struct ipu_device_ops *ret, struct err *err);

/* registers.c: checked access. */
int reg_read(struct device *d, uint32_t offset, uint32_t *ret, struct err *err);
int reg_write(struct device *d, uint32_t offset, uint32_t value, struct err *err);
/* Write and read back: PCIe writes are posted. */
int reg_write_flushed(struct device *d, uint32_t offset, uint32_t value, struct err *err);
/* Polls until (value & mask) == 0; limit in device time, 0 = none. `what` names the wait. */
int reg_wait_clear(
    struct device *d, uint32_t offset, uint32_t mask, uint64_t limit_ns, const char *what,
    struct err *err);
/* MARK := value, read back. */
int hsp_write(struct device *d, uint32_t group_register, uint32_t value, struct err *err);

/* config.c: the generated configuration image, and one from a file. */
struct config_write {
    uint32_t offset, value;
};
/* Writes of device fact sheet 3.4 in order; at most CONFIG_MAX of them. */
#define CONFIG_MAX 4096
uint32_t config_generate(struct config_write ret[CONFIG_MAX]);
/* "IPUCFG1\0", count, pairs; the size must fit exactly. */
int config_parse(
    const uint8_t *bytes, size_t n, struct config_write ret[CONFIG_MAX], uint32_t *ret_count,
    struct err *err);
int config_replay(
    struct device *d, const struct config_write *writes, uint32_t count, struct err *err);

/* loader_file.c: the secondary loader from an ELF file, for those who have another than ours.
 * Limits of that reader (device fact sheet 4.1 for the first): */
#define LOADER_MAX_BYTES      4096u      /* of the loadable segment, in tile memory */
#define LOADER_MAX_FILE_BYTES (1u << 20) /* of the file, symbols included */
#define LOADER_MAX_HEADERS    64u        /* program headers */
struct loader_image {
    uint8_t bytes[LOADER_MAX_BYTES];
    uint32_t size; /* 1 .. LOADER_MAX_BYTES */
};
/* -ERR_INVALID says what is wrong with the file. *ret is written on success only. */
int loader_parse(const uint8_t *bytes, size_t n, struct loader_image *ret, struct err *err);
int loader_read(const char *path, struct loader_image *ret, struct err *err);

/* boot.c */
int device_initialize(struct device *d, struct err *err);
int boot_load(
    struct device *d, const struct package *p, device_event_fn *event, void *arg, struct err *err);

/* bind.c: tensors <-> pages. tensors[binding] points at that binding's bytes. */
void bind_gather(
    const struct program *g, uint32_t phase, const uint8_t *const *tensors, uint8_t *pages);
void bind_scatter(
    const struct program *g, uint32_t phase, const uint8_t *pages, uint8_t *const *tensors);
int program_copy(const struct package *p, struct program **ret, struct err *err);
void program_free(struct program *g);

/* session.c */
int session_start(struct device *d, device_event_fn *event, void *arg, struct err *err);
void session_end(struct device *d);
/* All phases of one call: inputs from, outputs to tensors[binding] (NULL where unused). */
int session_call(
    struct device *d, enum package_call call, const uint8_t *const *inputs, uint8_t *const *outputs,
    uint64_t limit_ns, struct err *err);

/* debug.c: the tile debug interface. Context 0 is the supervisor, 1..6 are workers. */
enum tdi_register {
    TDI_CTXT_STS,
    TDI_RBRK,
    TDI_RBRK_VERT,
    TDI_IEXEC,
    TDI_IOWNER,
    TDI_ECSR,
    TDI_ECLR,
    TDI_DATA,
    TDI_STS,
    TDI_CLR,
    TDI_DCOUNT,
    TDI_EXCHANGE_CTL,
};
#define TDI_CONTEXTS 7
#define TDI_RBRK_ALL 0x4000007fu /* every context, and what the configuration writes */
#define TDI_ECSR_BOS (1u << 5)
/* Control registers of supervisor and worker. */
#define CSR_PC         0
#define CSR_STATUS     1 /* SSR, WSR */
#define CSR_ANS_DCOUNT 0xaa

/* Exception types (2.5). */
enum tdi_exception {
    TDI_NONE,
    TDI_EXC_RBRK,
    TDI_EXC_PBRK0,
    TDI_EXC_PBRK1,
    TDI_EXC_BOS,
    TDI_EXC_FP,
    TDI_EXC_CONFLICT,
    TDI_EXC_EXCONF,
    TDI_EXC_INVALID_ADDR,
    TDI_EXC_INVALID_OP,
    TDI_EXC_INVALID_PC,
    TDI_EXC_DBRK,
    TDI_EXC_INVALID_INSTR,
    TDI_EXC_EXERR,
    TDI_EXC_MEMERR,
    TDI_EXC_IBRK,
};

uint32_t tdi(uint32_t tile, enum tdi_register reg); /* offset of a register */
/* Of a context in a CTXT_STS word: 0 inactive or waiting, 1 active, 2 debug stop, 3 excepted. */
static inline uint32_t tdi_state(uint32_t status, int context) {
    return status >> (2 * context) & 3;
}
int tdi_context_state(struct device *d, uint32_t tile, int context, uint32_t *ret, struct err *err);
int tdi_read_m(
    struct device *d, uint32_t tile, int context, int number, uint32_t *ret, struct err *err);
int tdi_read_csr(
    struct device *d, uint32_t tile, int context, int number, uint32_t *ret, struct err *err);
int tdi_read_words(
    struct device *d, uint32_t tile, int context, uint32_t addr, uint32_t *ret, uint32_t count,
    struct err *err);
/* At once, without asking for a stop: -ERR_CONFLICT when the context refuses. */
int tdi_peek_m(
    struct device *d, uint32_t tile, int context, int number, uint32_t *ret, struct err *err);
int tdi_peek_csr(
    struct device *d, uint32_t tile, int context, int number, uint32_t *ret, struct err *err);
int tdi_peek_words(
    struct device *d, uint32_t tile, int context, uint32_t addr, uint32_t *ret, uint32_t count,
    struct err *err);
int tdi_read_registers(
    struct device *d, uint32_t tile, int context, struct device_registers *ret, struct err *err);
/* Asks every context of every tile to stop after the instruction it executes. */
int tdi_stop_all(struct device *d, struct err *err);
/* The supervisor stops at its next sync, before executing it (state 2, BOS). */
int tdi_break_on_sync(struct device *d, uint32_t tile, bool enabled, struct err *err);
/* Clears a context's exception: it goes on. */
int tdi_resume(struct device *d, uint32_t tile, int context, struct err *err);
/* First tile whose supervisor is excepted, or -1. Reads every tile's status once. */
int tdi_find_fault(struct device *d, int *ret_tile, uint32_t *ret_status, struct err *err);
const char *tdi_exception_name(uint32_t etype);
const char *tdi_receive_error_name(uint32_t code);

/* symbols.c: the symbol that holds addr on a tile, and the offset in it; NULL when none does. */
const char *
program_symbol(const struct program *g, uint32_t tile, uint32_t addr, uint32_t *ret_offset);

/* survey.c: what all tiles are doing, by the debug interface alone. */
enum tile_class {
    TILE_WAITING, /* supervisor in state 0, no worker running: in a sync, or never started */
    TILE_RUNNING,
    TILE_COMPLETE, /* branched to address 0 */
    TILE_STOPPED,  /* by a debug stop that is no trap */
    TILE_EXCEPTED, /* some context has an exception, or has trapped */
    TILE_CLASSES
};

#define SURVEY_MAX_EXCEPTIONS 16 /* described; more are counted */
#define SURVEY_MAX_REGISTERS  8  /* of these with registers */
#define SURVEY_MAX_GROUPS     16
#define SURVEY_MAX_NAMED      8 /* tiles of a group */
#define SURVEY_MAX_MISSING    16
#define SURVEY_LIMIT_NS       2000000000ull

struct survey_tile {
    uint32_t status; /* CTXT_STS */
    uint8_t class;   /* enum tile_class */
    int8_t zone;     /* of the sync that its supervisor waits in; -1 not known, or in none */
    bool has_position;
    bool is_abstaining; /* stands for barriers by `sans` */
    uint32_t pc;        /* of the supervisor (or the first running context); has_position */
    uint8_t context;    /* whose pc */
    const char *symbol; /* of pc, NULL */
    uint32_t offset;
    const char *phase; /* exchange row that follows the sync, NULL */
    const char *work;  /* routine that its first worker last ran, NULL; when no position is known */
};

struct survey_exception {
    uint16_t tile;
    uint8_t context, state, etype;
    uint32_t pc, status, dcount, exchange_ctl;
    const char *symbol; /* NULL */
    uint32_t offset;
    char instruction[96]; /* "" when memory could not be read */
    const char *row;      /* exchange phase, NULL */
    bool is_in_row;       /* pc is in it: word counts from its start */
    uint32_t word;
    bool has_registers;
    uint32_t m[DEVICE_M_REGISTERS];
};

/* Tiles that wait in the same place; where that is not known, whose workers last ran the same
 * routine (symbol). */
struct survey_group {
    int zone;
    const char *symbol, *phase;
    uint32_t count;
    uint16_t tiles[SURVEY_MAX_NAMED];
};

struct survey {
    struct survey_tile tiles[TARGET_TILES];
    uint32_t counts[TILE_CLASSES];
    struct survey_exception exceptions[SURVEY_MAX_EXCEPTIONS];
    uint32_t exception_count, receive_errors;
    struct survey_group groups[SURVEY_MAX_GROUPS];
    uint32_t group_count, more_groups; /* tiles that no group had room for */
    bool is_frozen;
    bool knows_waits; /* supervisors that wait let themselves be read */
    int barrier;      /* zone that most tiles wait in, -1 */
    uint16_t missing[SURVEY_MAX_MISSING];
    uint32_t missing_count, waiting_at_barrier;
    uint32_t marks[2];
    bool has_mark[2], is_mark_read[2]; /* known at all; read now, not remembered */
    uint32_t ccsr, complex_csr, blocks[2 * XB_COUNT];
    uint64_t elapsed_ns;
    struct err incomplete; /* why it ends early, code 0 = it is whole */
};

/* Fills *s. `freeze` stops all tiles first and leaves them so: for programs that are lost. Without
 * it nothing is disturbed. Errors end the survey early and stay in s->incomplete. */
void survey_take(struct device *d, bool freeze, struct survey *s);
/* A context of the tile through which memory can be read, -1 when none is. */
int survey_reader(uint32_t status);
/* One sentence about the cause, "" when there is nothing to say. */
void survey_summary(const struct survey *s, char *text, size_t n);
/* "fault": an exception; "running": some tile does; "deadlock": after a failure neither; else
 * "quiet". */
const char *survey_verdict(const struct survey *s);

/* survey_print.c: as a JSON object of at most DEVICE_POSTMORTEM_BYTES, owned; NULL: no memory.
 * seam_text is the error that caused it, or NULL. */
char *survey_print(const struct survey *s, const char *seam_text);

#endif
