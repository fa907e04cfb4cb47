/* The device above the seam: one IPU, its lock, and at most one resident program.
 *
 *   closed -device_open-> empty -device_load-> resident -device_run-> resident
 *                           ^  \_ load fails _/  |  a run fails, device_stop(), device_reset()
 *                           +--------------------+
 *
 * All calls but device_stop() are made by one thread, the device thread. Invariants:
 *  (1) the lock is an flock on an open descriptor, close-on-exec, held from device_open() to
 *      device_close(); the file's text (pid, uid, command) informs and decides nothing;
 *  (2) a program is resident only after boot and `initialize` have both succeeded; any failure
 *      of a load or of a run leaves the device empty, and the next load starts with a reset;
 *  (3) what is resident is named by the residency digest that the caller gave (package and
 *      weights); an equal digest is not loaded again;
 *  (4) deadlines are in the device's own time (design.md D10).
 */
#ifndef DEVICE_DEVICE_H
#define DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"
#include "base/err.h"
#include "device/seam.h"
#include "package/package.h"

struct device; /* owned; free with device_close() */

struct device_options {
    const char *spec;      /* "sim" or "/dev/ipuN" */
    const char *lock_path; /* file to flock; created when absent, never removed */
    bool no_wait;          /* true: -ERR_DEVICE_BUSY at once; false: wait for the lock */
    /* ELF file with another secondary loader than our own, which NULL means. It is read when the
     * device opens; what does not boot with it says so. */
    const char *loader_path;
    /* Opens what spec names when it is not a card of the driver, i.e. the simulator, which lies
     * above this module. NULL refuses every spec but /dev/ipuN. Called once the lock is held. */
    int (*open_ops)(const char *spec, void *arg, struct ipu_device_ops *ret, struct err *err);
    void *open_arg;
};

/* Checks what no waiting will mend: the loader file, and that the lock's file can be opened or
 * made. Takes neither lock nor device. */
int device_check_options(const struct device_options *options, struct err *err);

/* Takes the lock, then opens. -ERR_DEVICE_BUSY names the holder: pid, uid, command. */
int device_open(const struct device_options *options, struct device **ret, struct err *err);
void device_close(struct device *d); /* NULL accepted */

/* Name of the backend, "sim" or "/dev/ipu0"; borrowed until device_close(). */
const char *device_name(const struct device *d);

/* What happens on the way, in the words of the event catalogue (proto/events.md). `fields` is
 * the text of a JSON object. Called by the device thread, before the call that caused it ends. */
typedef void device_event_fn(const char *event, const char *message, const char *fields, void *arg);

struct device_parameter {
    const uint8_t *bytes; /* borrowed for the call; C order, little-endian */
    uint64_t size;        /* must be the binding's size */
};

/* Makes the program resident: reset, boot, `initialize` with params[i] for parameter i. Nothing
 * is done when `residency` is resident already: *ret_loaded is then false. p and params are
 * borrowed for the call. */
int device_load(
    struct device *d, const struct package *p, const struct device_parameter *params, size_t n,
    const struct digest *residency, device_event_fn *event, void *arg, bool *ret_loaded,
    struct err *err);

/* One finished run; all pointers are borrowed for the call. */
struct device_output {
    uint64_t run;                  /* 0, 1, ... within this device_run() */
    const uint8_t *const *outputs; /* by ordinal */
    const uint64_t *output_bytes;  /* by ordinal: the binding's size */
    size_t output_count;
    const uint32_t *profile_words; /* [participants][PACKAGE_PROFILE_WORDS]; NULL = not sampled */
    size_t profile_count;          /* words */
    const uint32_t *marks; /* words of (PROFILE, 1), package.h; NULL = the program has none */
    size_t mark_count;
    uint64_t cycles; /* latest end minus latest first sample (D3); 0 = not sampled */
};

/* Nonzero ends the device_run() after this run with -ERR_CANCELLED; the program stays. */
typedef int device_output_fn(const struct device_output *output, void *arg);

struct device_run_report {
    uint64_t runs;       /* that ended well */
    uint64_t elapsed_ns; /* device time of the whole call */
    /* The hardware test: after the last run, what all tiles say. */
    uint32_t completed_tiles; /* that wrote the completion word of the last run; the participants */
    uint32_t quiet_tiles;     /* whose contexts are neither excepted nor stopped: all 1,472 */
};

/* Runs the resident program `runs` times. inputs[i] holds `runs` tensors of input i, one after
 * another, borrowed for the call. timeout_ns limits each run, 0 = none: -ERR_RUN_TIMEOUT. */
int device_run(
    struct device *d, const uint8_t *const *inputs, uint64_t runs, device_output_fn *output,
    void *arg, uint64_t timeout_ns, struct device_run_report *ret, struct err *err);

/* Any thread: the load or run in progress returns -ERR_CANCELLED at its next poll and leaves the
 * device empty. Without one in progress nothing happens, now or later. */
void device_stop(struct device *d);

/* ---- After a failure, and between loads and runs --------------------------------------------- */

#define DEVICE_POSTMORTEM_BYTES 32768
#define DEVICE_M_REGISTERS      16
#define DEVICE_LOOK_WORDS       1024 /* most words of one device_tile_read() */

/* What the tiles were doing when the last load or run failed: text of a JSON object (proto/
 * events.md, device.postmortem), borrowed until the next load, run or reset; NULL when the last
 * one did not fail, or failed without the tiles' doing. */
const char *device_postmortem(const struct device *d);

/* The calls below disturb no resident program; each ends within two seconds of device time.
 * Tiles are physical. Context 0 is the supervisor, 1..6 are workers. */

/* The states of all tiles as such an object. *ret is owned. */
int device_tiles(struct device *d, char **ret, struct err *err);
int device_tile_read(
    struct device *d, uint32_t tile, uint32_t addr, uint32_t *ret, uint32_t count, struct err *err);

struct device_registers {
    uint32_t pc, status;   /* SSR or WSR */
    uint8_t state;         /* 0 inactive or waiting, 1 active, 2 debug stop, 3 excepted */
    const char *exception; /* "NONE" or its name; static */
    uint32_t m[DEVICE_M_REGISTERS];
};

/* -ERR_CONFLICT when the context refuses, as a supervisor that waits in a sync may. */
int device_tile_registers(
    struct device *d, uint32_t tile, int context, struct device_registers *ret, struct err *err);

struct device_symbol {
    const char *name; /* borrowed until the next load or reset */
    uint32_t addr, size;
};

/* Symbols of the program last loaded that begin in, or cover the start of, [addr, addr + bytes),
 * by address; returns their number, at most n. */
size_t device_tile_symbols(
    const struct device *d, uint32_t tile, uint32_t addr, uint32_t bytes, struct device_symbol *ret,
    size_t n);

/* Resets chip and driver state; nothing is resident afterwards. */
int device_reset(struct device *d, struct err *err);

#endif
