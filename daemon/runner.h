/* The device thread: lock, load, run, for as long as the daemon lives.
 *
 *   waiting -(lock)-> ready <-> busy          absent, waiting: tried again, with back-off
 *                       ^        | three device errors in a row
 *                       +-reset- failed       dispatch stops until somebody resets it
 *
 * The loop hands over one task at a time and gets it back by its done(). In between the device
 * thread posts events and outputs; it never waits for a client, only for the store when more
 * than RUNNER_MAX_BACKLOG bytes of outputs are not yet written. */
#ifndef DAEMON_RUNNER_H
#define DAEMON_RUNNER_H

#include <jansson.h>
#include <stdatomic.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "base/digest.h"
#include "base/tensor.h"
#include "daemon/bindings.h"
#include "daemon/config.h"
#include "daemon/mailbox.h"
#include "device/device.h"
#include "profile/profile.h"

#define RUNNER_MAX_BACKLOG (64u << 20)
#define RUNNER_MAX_LOOKS   16 /* waiting at a time */

struct runner; /* owned; runner_stop(), then runner_free() */

/* One finished run; owned by the loop, free with run_output_free(), which also tells the device
 * thread that the bytes have left the backlog. */
struct run_output {
    struct letter letter;
    struct run_task *task;
    uint64_t run;
    uint64_t cycles;
    uint8_t *bytes; /* owned: the outputs one after another */
    uint64_t size_bytes;
};

struct run_task {
    struct letter letter;
    struct runner *runner;
    char id[27];
    uid_t uid; /* of the job */
    char package_path[4200];
    struct digest package;
    char *blob_dir;             /* owned */
    struct bindings inputs;     /* owned, with blobs: offset, bytes = all runs */
    struct bindings parameters; /* owned, with blobs */
    uint64_t output_bytes[PACKAGE_MAX_BINDINGS];
    size_t output_count;
    uint64_t runs;
    uint64_t timeout_ns;
    atomic_bool is_cancelled;
    /* Called on the loop thread. */
    void (*event)(struct run_task *t, const char *event, const char *message, json_t *fields);
    void (*output)(struct run_output *o); /* owns o */
    void (*done)(struct run_task *t);     /* owns t */
    void *arg;
    /* Filled by the device thread. */
    int result;
    struct err err;
    bool is_loaded; /* booted and initialized for this task */
    uint64_t runs_done;
    uint64_t elapsed_ns;
    uint64_t load_ns;        /* wall clock */
    uint64_t profile_run;    /* set before: whose samples are kept; the last run if fewer */
    uint32_t *words, *marks; /* owned: those samples, as the device gave them */
    size_t word_count, mark_count;
    struct profile *profile;  /* owned, NULL = the run was not sampled or has not ended */
    uint32_t completed_tiles; /* the hardware test, device.h; 0 = not all runs have ended well */
    uint32_t quiet_tiles;
    json_t *postmortem; /* owned: what the tiles were doing when it failed, NULL = nothing to say */
};

void run_task_free(struct run_task *t); /* NULL accepted */
void run_output_free(struct run_output *o);

/* Starts the thread. A loader file that is none and a lock that cannot be made are errors here;
 * with config->no_wait also a device held by another process. */
int runner_start(
    const struct config *config, struct mailbox *m, struct runner **ret, struct err *err);
/* Loop thread; only when runner_idle(). */
void runner_submit(struct runner *r, struct run_task *t);
bool runner_idle(struct runner *r);
/* Ends the task in progress with ERR_CANCELLED: between runs, or by a stop of the device when
 * `at_once`. */
void runner_cancel(struct runner *r, struct run_task *t, bool at_once);

struct runner_reset {
    struct letter letter; /* deliver() is the caller's; it owns the struct */
    int result;
    struct err err;
};

void runner_reset(struct runner *r, struct runner_reset *reset);

/* A look at the tiles, done by the device thread between tasks: for the owner of the resident
 * program and for operators, asked again when its turn comes. */
struct runner_look {
    struct letter letter; /* deliver() is the caller's; it owns the struct */
    uid_t uid;
    bool is_operator;
    int (*look)(struct runner_look *l, struct device *d, struct err *err); /* device thread */
    int result;
    struct err err;
    TAILQ_ENTRY(runner_look) link; /* the runner's */
};

void runner_look(struct runner *r, struct runner_look *l);
/* True when its turn had not come: it is out of the queue and will not be delivered. */
bool runner_look_withdraw(struct runner *r, struct runner_look *l);
/* Wakes the loop (done of nothing) when the state changes: fn runs on the loop thread. */
void runner_on_change(struct runner *r, void (*fn)(void *arg), void *arg);
/* Cancels, closes, ends the thread. Its last letters may still wait in the mailbox. */
void runner_stop(struct runner *r); /* NULL accepted */
void runner_free(struct runner *r); /* after those letters */

enum runner_state { RUNNER_WAITING, RUNNER_ABSENT, RUNNER_READY, RUNNER_BUSY, RUNNER_FAILED };

struct runner_status {
    enum runner_state state;
    char detail[640]; /* who holds the lock, why it failed; "" = nothing to say */
    bool has_resident;
    struct digest resident; /* package */
    char resident_job[27];  /* that loaded it */
    uid_t resident_uid;     /* of that job */
    uint64_t resident_since_ms;
    uint64_t loads, runs, resets, busy_ms, failures;
};

const char *runner_state_name(enum runner_state s);
void runner_status(struct runner *r, struct runner_status *ret); /* any thread */

#endif
