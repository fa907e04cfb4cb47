/* The store thread: the only one that touches SQLite and the state directory's files.
 *
 * An operation is a struct with a store_op first: run() on the store thread, done() back on the
 * loop thread, in the order of submission. Operations that wait together share one commit;
 * done() comes only after it, so a reply made there speaks of durable things. An operation whose
 * run() fails is undone alone; when the commit fails, all of its group fail with that error. */
#ifndef DAEMON_STORE_H
#define DAEMON_STORE_H

#include "cache/cache.h"
#include "daemon/mailbox.h"

struct store_op {
    struct letter letter;
    struct store_op *next;
    int (*run)(struct store_op *op, struct cache *c, struct err *err);
    void (*done)(struct store_op *op); /* owns op */
    int result;                        /* of run() or of the commit */
    struct err err;                    /* when result < 0 */
};

struct store; /* owned; free with store_stop() */

/* Opens the state directory (so that faults show before the daemon says it is ready), then
 * starts the thread. */
int store_start(
    const struct cache_options *options, struct mailbox *m, struct store **ret, struct err *err);
/* The state directory, for use before any operation is submitted. */
struct cache *store_cache(struct store *s);
void store_submit(struct store *s, struct store_op *op); /* any thread */
/* Works off the queue, ends the thread, closes. Letters may still wait in the mailbox. */
void store_stop(struct store *s); /* NULL accepted */

struct store_health {
    uint64_t pending;  /* operations not yet run */
    uint64_t stuck_ms; /* how long the present group takes; 0 = idle */
    uint64_t commits;
    uint64_t failures; /* groups that did not commit */
    bool is_failing;   /* the last group did not commit */
    bool is_idle;      /* nothing waits, and all letters have been posted */
};

void store_health(struct store *s, struct store_health *ret); /* any thread */

#endif
