/* What the parts of the daemon share on the loop thread.
 *
 *   loop thread   sd-event: HTTP (server.c), letters, children (workers.c), timers; no disk
 *   store thread  store.c: all of src/cache
 *   device thread runner.c, runner_task.c: the device
 */
#ifndef DAEMON_DAEMON_H
#define DAEMON_DAEMON_H

#include <stdbool.h>
#include <stdint.h>
#include <systemd/sd-event.h>

#include "daemon/config.h"
#include "daemon/mailbox.h"
#include "proto/proto.h"

struct daemon {
    struct config config;
    sd_event *event;
    struct mailbox *mailbox;
    struct store *store;
    struct runner *runner;
    struct jobs *jobs;
    struct server *server;
    char boot_id[PROTO_ID_CHARS + 1]; /* of this start of the daemon */
    uint64_t started_ms;              /* wall clock */
    size_t body_bytes;                /* of all JSON bodies being gathered */
    bool is_draining;                 /* stopping: nothing new is accepted */
    bool is_paused;                   /* an operator's drain: accepted, not dispatched */
    char pause_reason[PROTO_MAX_NAME + 1];
    char compiler_id[65]; /* of the last key step, "" = none yet */
    struct {
        uint64_t requests[PROTO_ROUTE_COUNT][6]; /* by route and hundreds of the status */
        uint64_t unrouted;
        uint64_t cache_hits, cache_misses, joined;
        uint64_t workers_started, workers_crashed;
        uint64_t ended[PROTO_STATE_COUNT];
        uint64_t submitted, replayed;
        uint64_t queue_wait_ms, compile_ms, run_ms;
    } counters;
};

uint64_t daemon_wall_ms(void);
void daemon_new_id(char ret[PROTO_ID_CHARS + 1]);

#endif
