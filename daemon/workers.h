/* Compile workers: one process each, started from the loop, watched by its pipe and its pidfd.
 *
 * The child has descriptors 3 (job document), 4 (staging folder), 5 (events) and /dev/null on 0
 * and 1; 2 is the daemon's. It leads a session of its own, so that all of it can be killed, dies
 * with the daemon, has limits and a fixed environment. It is not trusted: lines are bounded, the
 * result is the last event, and an end without one is a crash. */
#ifndef DAEMON_WORKERS_H
#define DAEMON_WORKERS_H

#include <jansson.h>

#include "daemon/daemon.h"

#define WORKER_MAX_LINE  (4u << 20) /* results list tensors; other events 64 KiB */
#define WORKER_MAX_FILES 64
#define WORKER_MAX_CPU_S 3600
#define WORKER_MAX_FILE  (4ull << 30)

struct worker; /* ended by its done() */

struct worker_order {
    json_t *document;        /* borrowed */
    int staging_fd;          /* borrowed for the call */
    uint64_t total_ms;       /* 0 = no limit */
    uint64_t no_progress_ms; /* 0 = no limit */
    /* An event that is neither result nor error; borrowed. May be NULL. */
    void (*event)(void *arg, const json_t *event);
    /* Once, after the process is gone: the result (owned by the callee) or NULL and an error. */
    void (*done)(void *arg, json_t *result, const struct err *err);
    void *arg;
};

/* done() is called only when this succeeds, and never before it returns. */
int workers_start(
    struct daemon *d, const struct worker_order *order, struct worker **ret, struct err *err);
/* Kills the process and all it started; done() follows with ERR_CANCELLED. */
void workers_kill(struct worker *w);

#endif
