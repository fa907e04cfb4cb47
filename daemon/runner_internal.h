/* Shared by runner.c and runner_task.c only. */
#ifndef DAEMON_RUNNER_INTERNAL_H
#define DAEMON_RUNNER_INTERNAL_H

#include <pthread.h>

#include "daemon/runner.h"

struct runner {
    const struct config *config; /* borrowed */
    struct mailbox *mailbox;     /* borrowed */
    pthread_t thread;
    bool is_started;
    struct device *device; /* device thread's; device_stop() under the mutex */
    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t wake;
    struct run_task *task; /* handed over, not yet done */
    struct runner_reset *reset;
    TAILQ_HEAD(, runner_look) looks;
    unsigned look_count;
    uint64_t backlog;
    bool is_stopping;
    struct runner_status status;
    struct letter change; /* posted at most once at a time */
    bool is_change_posted;
    void (*on_change)(void *arg);
    void *on_change_arg;
};

/* runner_task.c; device thread: does the task and fills its results. */
void runner_perform(struct runner *r, struct run_task *t);

#endif
