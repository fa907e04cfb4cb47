/* The API's contract, used by both ends: version, limits, routes, ids, request targets, job
 * documents and problem documents. README.md beside it tells the same to people.
 *
 * Everything here is a pure function of its arguments; nothing reads files, clocks or random
 * bytes. Input is hostile: each reader has limits below, and answers an error with a place (a
 * JSON pointer, or "line:column").
 *
 * Invariants: (1) a document that proto_job_parse() accepts prints (proto_job_print) to one that
 * parses to the same job; (2) a problem document reads back to the error that it was made of, code
 * and place included; (3) no name that enters a path in the state directory comes from a user:
 * ids and digests pass proto_id_valid() and digest_parse() first.
 */
#ifndef PROTO_PROTO_H
#define PROTO_PROTO_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"
#include "base/err.h"

#define PROTO_API_VERSION     "1.0"
#define PROTO_API_MIN_VERSION "1.0"
#define PROTO_SERVER_VERSION  "0.1.0"
#define PROTO_DEFAULT_SOCKET  "/run/ipud/ipud.sock"

/* Limits (R20). GET /v1 publishes those marked *. */
#define PROTO_MAX_TARGET_BYTES   2048 /* request target */
#define PROTO_MAX_SEGMENTS       8
#define PROTO_MAX_QUERY          16
#define PROTO_MAX_JOB_BYTES      (8u << 20)   /* * job document */
#define PROTO_MAX_VERB_BYTES     4096         /* body of cancel, reset ... */
#define PROTO_MAX_MODEL_BYTES    (8u << 20)   /* * model given as a blob */
#define PROTO_MAX_BLOB_BYTES     (4ull << 30) /* * one blob */
#define PROTO_MAX_PACKAGE_BYTES  (1ull << 30) /* * one imported package */
#define PROTO_MAX_JSON_DEPTH     64           /* * nesting */
#define PROTO_MAX_NAME           128          /* * bytes of a job's name or a label */
#define PROTO_MAX_LABELS         32
#define PROTO_MAX_FILES          256          /* * files of a job */
#define PROTO_MAX_INPUTS         256          /* * inputs of a job */
#define PROTO_MAX_LABEL_BYTES    256          /* name of a file or tensor */
#define PROTO_MAX_RUNS           65536        /* * runs of one job */
#define PROTO_MAX_OUTPUT_BYTES   (4ull << 30) /* * all outputs of one job */
#define PROTO_MAX_EVENT_BYTES    65536        /* * one line of an event stream */
#define PROTO_MAX_EVENTS         262144       /* events of one job; later ones are dropped */
#define PROTO_INLINE_BYTES       32768        /* * output bytes inline in an event */
#define PROTO_MAX_USER_JOBS      1000         /* * queued jobs of one user */
#define PROTO_MAX_JOBS           10000        /* * queued jobs of all */
#define PROTO_MAX_IDEMPOTENCY    128          /* * bytes of an Idempotency-Key */
#define PROTO_IDEMPOTENCY_MS     (48ull * 3600 * 1000)
#define PROTO_MAX_REQUEST_ID     64
#define PROTO_MAX_PAGE           500 /* * items of a list */
#define PROTO_DEFAULT_PAGE       50
#define PROTO_MAX_WAIT_MS        60000 /* * one long poll */
#define PROTO_HEARTBEAT_MS       10000 /* silence of a followed stream */
#define PROTO_MAX_TILES          1472
#define PROTO_DEFAULT_TILES      64
#define PROTO_MAX_LIMIT_MS       (7ull * 24 * 3600 * 1000)
#define PROTO_DEFAULT_COMPILE_MS (10ull * 60 * 1000)
#define PROTO_DEFAULT_RUN_MS     (60ull * 1000)

/* ---- Ids and times ----------------------------------------------------------------------- */

#define PROTO_ID_CHARS 26 /* sortable by creation: 48 bits of milliseconds, 80 random ones */

void proto_id_make(uint64_t ms, const uint8_t random[10], char ret[PROTO_ID_CHARS + 1]);
bool proto_id_valid(const char *text);
/* A decimal alias, 1 .. 2^62. */
bool proto_alias_parse(const char *text, int64_t *ret);
#define PROTO_TIME_CHARS 24
/* RFC 3339 in UTC with milliseconds: "2026-12-01T04:33:31.250Z". */
void proto_time_print(uint64_t ms, char ret[PROTO_TIME_CHARS + 1]);
/* "30s", "500ms", "5m", "2h", or seconds without a unit. */
int proto_duration_parse(const char *text, uint64_t *ret_ms, struct err *err);

/* ---- Request targets and routes ---------------------------------------------------------- */

struct proto_pair {
    const char *name; /* borrowed from the target's storage */
    const char *value;
};

struct proto_target {
    char storage[2 * PROTO_MAX_TARGET_BYTES + 2];
    const char *segments[PROTO_MAX_SEGMENTS]; /* decoded */
    size_t segment_count;
    struct proto_pair query[PROTO_MAX_QUERY];
    size_t query_count;
};

/* Origin form only. Refused: control bytes, %00, an encoded slash, '.' and '..' and empty
 * segments, broken escapes, a fragment, a repeated query name. */
int proto_target_parse(const char *raw, size_t n, struct proto_target *ret, struct err *err);
const char *proto_target_query(const struct proto_target *t, const char *name); /* or NULL */

enum proto_method { PROTO_GET, PROTO_PUT, PROTO_POST, PROTO_DELETE };
enum proto_body { PROTO_BODY_NONE, PROTO_BODY_JSON, PROTO_BODY_STREAM };
enum proto_role { PROTO_ANY, PROTO_OWNER, PROTO_OPERATOR };

enum proto_route_id {
#define ROUTE(id, method, path, body, limit, role, summary) PROTO_ROUTE_##id,
#include "proto/routes.def"
#undef ROUTE
    PROTO_ROUTE_COUNT
};

struct proto_route {
    enum proto_route_id id;
    const char *name;
    enum proto_method method;
    const char *path;
    enum proto_body body;
    uint64_t limit;
    enum proto_role role;
    const char *summary;
};

#define PROTO_MAX_PARAMS 2

struct proto_match {
    const struct proto_route *route;
    const char *params[PROTO_MAX_PARAMS]; /* values of {...} in order, borrowed from the target */
    size_t param_count;
};

const struct proto_route *proto_route(enum proto_route_id id);
const char *proto_method_name(enum proto_method m);
/* HEAD matches GET. -ERR_NOT_FOUND, or -ERR_METHOD with the methods allowed in err->where. */
int proto_route_match(
    const char *method, const struct proto_target *t, struct proto_match *ret, struct err *err);
/* -ERR_INVALID, with its name in err->where, when a query parameter is none of the route's. */
int proto_query_check(
    const struct proto_route *route, const struct proto_target *t, struct err *err);
/* OpenAPI 3.1 document of the table; owned. NULL when out of memory. */
json_t *proto_openapi(void);

/* ---- JSON texts -------------------------------------------------------------------------- */

/* Parses an object or array: duplicate keys, depth over the limit and trailing text are refused;
 * err->where is "line:column". *ret is owned. */
int proto_json_parse(const char *text, size_t n, json_t **ret, struct err *err);
/* Appends "/<escaped key>" to a JSON pointer of size n, cutting at the end. */
void proto_pointer(char *pointer, size_t n, const char *key);

/* ---- Problem documents (RFC 9457) -------------------------------------------------------- */

bool proto_retriable(int code);
/* request_id and instance may be NULL. Owned; NULL when out of memory. */
json_t *proto_problem_print(const struct err *e, const char *request_id, const char *instance);
/* Fills *ret from a problem document; what is no such document gives ERR_PROTOCOL. */
void proto_problem_parse(const json_t *document, struct err *ret);

/* ---- Job states -------------------------------------------------------------------------- */

/*        constant        word */
#define PROTO_STATE_LIST(X)                                                                        \
    X(QUEUED, "queued")                                                                            \
    X(HELD, "held")                                                                                \
    X(COMPILING, "compiling")                                                                      \
    X(COMPILED, "compiled")                                                                        \
    X(WAITING_DEVICE, "waiting_device")                                                            \
    X(LOADING, "loading")                                                                          \
    X(RUNNING, "running")                                                                          \
    X(CHECKING, "checking")                                                                        \
    X(STORING, "storing")                                                                          \
    X(CANCELLING, "cancelling")                                                                    \
    X(SUCCEEDED, "succeeded")                                                                      \
    X(FAILED, "failed")                                                                            \
    X(CANCELLED, "cancelled")                                                                      \
    X(TIMED_OUT, "timed_out")                                                                      \
    X(INTERRUPTED, "interrupted")

enum proto_state {
#define X(NAME, word) PROTO_STATE_##NAME,
    PROTO_STATE_LIST(X)
#undef X
        PROTO_STATE_COUNT
};

const char *proto_state_name(enum proto_state s);
bool proto_state_parse(const char *word, enum proto_state *ret);
static inline bool proto_state_ended(enum proto_state s) {
    return s >= PROTO_STATE_SUCCEEDED;
}

/* ---- Job documents (design.md D9) -------------------------------------------------------- */

enum proto_format { PROTO_NPY, PROTO_RAW };
enum proto_cache { PROTO_CACHE_USE, PROTO_CACHE_REFRESH, PROTO_CACHE_OFF };

struct proto_job {
    const char *name;    /* borrowed from the document, NULL when absent */
    const json_t *model; /* inline, borrowed, or NULL */
    bool has_model_blob;
    struct digest model_blob;
    bool has_package;
    struct digest package;
    const json_t *files;      /* label -> "sha256:...", borrowed, or NULL */
    const json_t *inputs;     /* name -> {blob, format}, borrowed, or NULL */
    const json_t *parameters; /* as inputs; only with a package */
    const json_t *labels;     /* text -> text, borrowed, or NULL */
    bool hold;
    struct {
        int64_t tiles;
        const char *accumulate; /* "f32" or "f16" */
        const char *profile;    /* "off", "phase" or "kernel" */
        int64_t profile_run;    /* whose samples are kept */
        const char *repeat;     /* "auto" or "off" */
        int64_t seed;
        bool check; /* compare with the reference after the run */
        bool run;   /* false: compile only */
        enum proto_cache cache;
    } options;
    struct {
        uint64_t queue_ms; /* 0 = none */
        uint64_t compile_ms;
        uint64_t run_ms; /* one run */
    } limits;
};

/* Everything in *ret is borrowed from the document. Errors: ERR_BAD_JOB with a JSON pointer. */
int proto_job_parse(const json_t *document, struct proto_job *ret, struct err *err);
/* The document again, defaults left out; owned, NULL when out of memory. */
json_t *proto_job_print(const struct proto_job *job);
/* {"blob": "sha256:...", "format": "npy"} of one checked input. */
bool proto_input_read(const json_t *input, struct digest *ret_blob, enum proto_format *ret_format);
/* Calls fn for each blob that the job names, with its pointer; stops at a nonzero return. */
int proto_job_blobs(
    const struct proto_job *job,
    int (*fn)(const struct digest *blob, const char *pointer, void *arg), void *arg);

#endif
