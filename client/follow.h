/* Watching a job: its events, its end, its outputs. Shared by `submit` and the verbs of `job`.
 *
 * A stream that breaks is taken up again with from = last + 1, so no event is shown twice and none
 * is lost over a restart of the daemon; it is given up when the daemon cannot be reached for
 * retry_ms. Watching never changes the job.
 */
#ifndef CLIENT_FOLLOW_H
#define CLIENT_FOLLOW_H

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

#include "client/commands.h"
#include "client/http.h"
#include "client/output.h"

#define FOLLOW_INTERRUPTED 130 /* exit status after Ctrl-C */

struct follow {
    struct http *http; /* borrowed */
    const char *job;   /* id or alias, checked */
    int64_t next;      /* first event wanted */
    uint64_t retry_ms;
    uint64_t deadline_ms;      /* of --timeout, 0 = none */
    bool is_reached;           /* the daemon has answered before: look for it when it goes away */
    bool once;                 /* stop at the last event that is stored */
    FILE *events;              /* where every event is printed, NULL = nowhere */
    bool events_json;          /* ... as the line that came */
    struct progress *progress; /* or NULL */
    /* Results */
    bool has_end;
    long long runs, done; /* of the outputs seen */
    json_t *results[3]; /* owned: fields of the result lines, in the log's order; NULL = not seen */
    /* Inner */
    uint64_t contact_ms;
    struct err err;
};

/* A job's id or alias, as given by a user. */
int follow_check_job(const char *text, struct err *err);
void follow_done(struct follow *f); /* releases the results */
/* Until the job has ended. -ERR_CANCELLED after SIGINT, -ERR_TIMEOUT at the deadline. */
int follow_run(struct follow *f, struct err *err);
/* Turns these two into the words and the exit status for people. */
int follow_stopped(const struct follow *f, int result, struct err *err);
/* The ended job's result: 0, or the error that it ended with. */
int follow_result(const json_t *job, struct err *err);

/* Options that submit and job wait share: follow, then fetch outputs, print, give the result. */
int follow_to_end(const struct args *a, struct follow *f, struct err *err);
/* --timeout and --retry-for; the deadline begins now. */
int follow_retry(const struct args *a, uint64_t *ret_ms, struct err *err);
int follow_options(const struct args *a, struct follow *f, struct err *err);
/* Prints "NAME=FILE" -> its parts; the name has at least one character, so has the file. */
int follow_pair(
    const char *option, const char *text, char **ret_name, const char **ret_file, struct err *err);

/* Writes the body of `path` to a file: beside it first, then renamed, so that nobody sees half of
 * one. "-" is stdout. */
int follow_save(struct http *h, const char *path, const char *file, struct err *err);

#endif
