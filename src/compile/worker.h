/* The worker's side of proto/worker.md: the job document on fd 3, files in the staging directory
 * on fd 4 (made the current directory at start), events on fd 5.
 *
 * Names in a job are labels and plain file names; what enters a path is a checked plain name or a
 * digest's hexadecimal text. */
#ifndef COMPILE_WORKER_H
#define COMPILE_WORKER_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/digest.h"
#include "base/err.h"
#include "compile/compile.h"
#include "graph/graph.h"

#define WORKER_JOB_FD        3
#define WORKER_STAGING_FD    4
#define WORKER_EVENT_FD      5
#define WORKER_MAX_JOB_BYTES (32u << 20)
#define WORKER_MAX_LINE      65536      /* an event */
#define WORKER_MAX_RESULT    (4u << 20) /* the result: it lists all tensors */
#define WORKER_MAX_RUNS      65536

enum worker_kind { WORKER_KEY, WORKER_COMPILE, WORKER_REFERENCE, WORKER_VERIFY };

struct worker_job {
    json_t *document; /* owned; the rest is borrowed from it */
    enum worker_kind kind;
    const json_t *model; /* NULL for verify */
    const json_t *files; /* object: label -> "sha256:..."; may be NULL */
    const json_t *check; /* for reference */
    const char *package; /* for verify */
    struct compile_options options;
    uint64_t seed;
    uint64_t memory_bytes;
};

/* Checks every member; err->where is a JSON pointer into the document. */
int worker_read_job(int fd, struct worker_job *ret, struct err *err);
void worker_job_done(struct worker_job *job);

/* Canonical graph and key of a job's model. Allocates in the arena, which may jump. */
struct worker_model {
    struct graph *graph;
    const char *const *warnings;
    uint32_t warning_count;
    const char *options_json;
    struct digest key;
};
int worker_load_model(
    struct worker_job *job, struct arena *a, struct worker_model *ret, struct err *err);

/* Descriptor of a blob of the staging directory; the caller closes it. */
int worker_open_blob(const char *digest_text, struct err *err);
/* Blob of a label of `files`: a graph_open_file_fn whose arg is the job. */
int worker_open_label(void *job, const char *label, struct err *err);
/* 1 to 64 of [A-Za-z0-9._-], not starting with a dot. */
bool worker_is_plain_name(const char *name);

/* Sends one line with one write(). Takes the line. -ERR_TOO_LARGE over WORKER_MAX_RESULT. */
int worker_send(json_t *line, struct err *err);
/* compile_event_fn. Lost events are no fault; oversized fields are left out. */
void worker_event(void *arg, const char *event, const char *message, const char *fields_json);
/* The closing error line; returns the exit status. */
int worker_send_error(const struct err *err);

#endif
