/* Jobs that have not ended, and what moves them on. Ended ones live in the store only.
 *
 *   queued -> compiling -> compiled -> waiting_device -> loading -> running -> checking -> storing
 *     ^|          |            (joined a flight, or compiled)                                 |
 *    held         +-- cancel, time limit, error: (cancelling ->) cancelled timed_out failed   v
 *                                                                                         succeeded
 *
 *   submit    jobs_submitted()       queued -> held -> queued   jobs_hold(), jobs_release()
 *   key step  steps.c: stage blobs, worker `key`, bind inputs, look up the key
 *   flight    flights.c: one compile for all jobs of one key
 *   device    runs.c: load, run, outputs       check  runs.c: worker `reference`
 *   end       jobs_finish(): outputs become blobs, state and event in one commit
 *
 * Invariants: (1) a job has at most one step under way (`is_busy`), and is freed only when it has
 * none; whoever cancels a busy job leaves the reason in `end` and the step's return finishes it;
 * (2) what is shown is what was committed: requests read the store, this table only decides;
 * (3) one key is compiled once at a time, all who want it wait for that flight;
 * (4) users take turns: the one with the least recent device and compile time goes first. */
#ifndef DAEMON_JOBS_H
#define DAEMON_JOBS_H

#include <jansson.h>
#include <sys/queue.h>
#include <uthash.h>

#include "daemon/bindings.h"
#include "daemon/daemon.h"
#include "daemon/runner.h"
#include "daemon/store.h"
#include "daemon/workers.h"

#define JOBS_MAX_ACTIVE   64      /* compiled and waiting for the device: documents are in memory */
#define JOBS_CANCEL_MS    5000    /* between a polite and a hard end of a run */
#define JOBS_HALF_LIFE_MS 3600000 /* of a user's used time */

struct flight;

struct job {
    char id[PROTO_ID_CHARS + 1];
    int64_t alias;
    uid_t uid;
    enum proto_state state;
    uint64_t created_ms; /* monotonic; 0 = before this daemon started */
    uint64_t queue_limit_ms;
    bool is_started; /* has left the queue once */
    bool is_busy;
    bool is_finishing;
    struct err end;  /* why it is to end early; code 0 = go on */
    uint64_t end_ms; /* when that was decided */
    bool is_stopped_hard;
    json_t *document;      /* owned; from the key step on */
    struct proto_job spec; /* borrowed from document */
    struct worker *worker; /* key or reference */
    struct flight *flight;
    bool is_joined; /* the flight was another job's */
    struct run_task *task;
    struct bindings inputs, outputs, parameters;
    uint64_t runs;
    char key[DIGEST_HEX + 1];
    bool has_package, is_pinned, has_staging;
    struct digest package;
    char package_path[4200];
    json_t *report;   /* owned */
    json_t *cycles;   /* owned: one number a run */
    uint64_t step_ms; /* start of the present step */
    UT_hash_handle hh;
};

struct user {
    uid_t uid;
    double used_ms; /* decayed */
    uint64_t at_ms;
    unsigned active; /* key steps and runs under way */
    unsigned queued;
    UT_hash_handle hh;
};

enum wake { WAKE_CHANGED, WAKE_TIMEOUT, WAKE_STOP };

/* Somebody who wants to know when a job's record changes. wake() removes it first. */
struct waiter {
    char id[PROTO_ID_CHARS + 1];
    uint64_t deadline_ms;
    void (*wake)(struct waiter *w, enum wake why);
    TAILQ_ENTRY(waiter) link;
};

struct jobs {
    struct daemon *daemon;
    struct job *table;      /* in order of creation */
    struct flight *flights; /* by key, in order of creation */
    struct user *users;
    TAILQ_HEAD(, waiter) waiters;
    struct job *running; /* on the device */
    unsigned workers;    /* slots taken */
    unsigned worker_limit;
    unsigned active; /* jobs past the queue */
    uint64_t serial;
    bool is_pumping;
};

/* Recovers: active jobs become interrupted, queued and held ones come back. */
int jobs_open(struct daemon *d, struct jobs **ret, struct err *err);
void jobs_close(struct jobs *js); /* NULL accepted; nothing may be busy */
/* Once a second: time limits, hard stops, retries. */
void jobs_tick(struct jobs *js);
/* Drops some records that ended longer ago than the setting keep-hours. */
void jobs_forget(struct jobs *js);
/* Starts whatever can start. */
void jobs_pump(struct jobs *js);
/* Ends everything that is under way; jobs_busy() falls to 0. */
void jobs_drain(struct jobs *js);
unsigned jobs_busy(const struct jobs *js);

struct job *
jobs_find(struct jobs *js, const char *id); /* by id or alias; NULL = ended or unknown */
/* -ERR_QUOTA_JOBS or -ERR_QUEUE_FULL. */
int jobs_admit(struct jobs *js, uid_t uid, struct err *err);
/* A row has been committed. */
void jobs_submitted(struct jobs *js, const struct cache_job *row, const struct proto_job *spec);
/* Both make the change durable before anything that is submitted to the store afterwards. */
int jobs_hold(struct jobs *js, struct job *j, struct err *err);
int jobs_release(struct jobs *js, struct job *j, struct err *err);
void jobs_cancel(struct jobs *js, struct job *j, enum err_code code, const char *why);
/* Why it waits: {code, detail, position, ahead}; owned, NULL when it does not. */
json_t *jobs_reason(struct jobs *js, const struct job *j);

void jobs_wait(struct jobs *js, struct waiter *w);
void jobs_unwait(struct jobs *js, struct waiter *w);

/* ---- Among jobs.c, steps.c, flights.c, runs.c -------------------------------------------- */

/* An operation that changes a job's record; the loop's copy is `job`, which is busy meanwhile
 * when then() is set. */
struct job_op {
    struct store_op op;
    struct jobs *jobs;
    struct job *job;
    char id[PROTO_ID_CHARS + 1];
    struct cache_job change; /* texts owned */
    char *event;             /* owned body, NULL = none */
    void (*then)(struct job_op *op);
};

void job_move(struct jobs *js, struct job *j, enum proto_state state);
/* Takes fields. */
void job_event(
    struct jobs *js, const char *id, const char *event, const char *message, json_t *fields);
char *job_event_body(const char *event, const char *message, json_t *fields); /* takes fields */
/* Tells those who wait for this job. */
void jobs_notify(struct jobs *js, const char *id);
/* Ends the job; err NULL = succeeded. The job must not be busy. */
void jobs_finish(struct jobs *js, struct job *j, const struct err *err);
/* The end of a step: true when the job goes on; else it has been finished. */
bool job_step_ends(struct jobs *js, struct job *j, const struct err *err);
json_t *job_report(struct job *j, const char *part); /* borrowed object of the report */
struct user *jobs_user(struct jobs *js, uid_t uid);
void jobs_charge(struct jobs *js, uid_t uid, uint64_t ms);

void steps_key(struct jobs *js, struct job *j);
json_t *steps_document(const char *kind, const json_t *model, const struct proto_job *spec);

void flights_join(struct jobs *js, struct job *j);
void flights_leave(struct jobs *js, struct job *j);
bool flights_start_one(struct jobs *js);
bool flights_busy(const struct jobs *js);
void flights_drain(struct jobs *js);

void runs_start(struct jobs *js, struct job *j);
void runs_check(struct jobs *js, struct job *j);
/* profiles.c: the task's profile, if it has one, becomes a file and a report of the job. Takes
 * t->profile. */
void profiles_store(struct jobs *js, struct job *j, struct run_task *t);
/* Outputs into the store; called on the store thread by the end of a job. */
int runs_adopt_outputs(struct cache *c, const char *id, uid_t uid, struct err *err);

/* Stages a folder for a worker (store thread): blobs linked, model read, document built. */
struct stage {
    char name[40]; /* folder in staging */
    const struct proto_job *spec;
    const char *kind;
    int fd;           /* result, owned */
    json_t *document; /* result, owned: for the worker */
};

int stage_run(struct stage *s, struct cache *c, bool keep, struct err *err);

#endif
