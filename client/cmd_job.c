/* ipuctl job ...: list, show, events, wait, outputs, cancel, hold, release, delete. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/monotonic.h"
#include "client/follow.h"
#include "proto/proto.h"

static void decref_cleanup(json_t **j) {
    json_decref(*j);
}

/* Opens the connection and builds "/v1/jobs/JOB<after>" of the first operand. */
static int begin(
    const struct args *a, const char *after, struct http **ret, char path[HTTP_MAX_PATH],
    struct err *err) {
    int r = follow_check_job(a->operands[0], err);
    if (r < 0) {
        return r;
    }
    http_path(path, "/v1/jobs/", a->operands[0], after);
    return http_open(a->socket, ret, err);
}

/* ---- List -------------------------------------------------------------------------------- */

static const struct output_column job_columns[] = {
    {"JOB", "alias", OUTPUT_TEXT},
    {"ID", "id", OUTPUT_TEXT},
    {"UID", "uid", OUTPUT_TEXT},
    {"STATE", "state", OUTPUT_TEXT},
    {"CREATED", "created", OUTPUT_TIME},
    {"NAME", "name", OUTPUT_TEXT},
    {"REASON", "reason.code", OUTPUT_TEXT},
    {"ERROR", "error.code", OUTPUT_TEXT},
};

#define LOOK_MS     2000 /* for the state of a job that may have ended */
#define JOB_COLUMNS ((int)(sizeof job_columns / sizeof job_columns[0]))

static int list_path(const struct args *a, const char *next, char *ret, size_t n, struct err *err) {
    const char *state = args_value(a, "state");
    const char *user = args_value(a, "user");
    enum proto_state known;
    if (state != NULL && !proto_state_parse(state, &known)) {
        return err_set(err, ERR_USAGE, "--state: no state '%.40s'", state);
    }
    if (user != NULL && strcmp(user, "*") != 0 &&
        (user[0] == '\0' || strspn(user, "0123456789") != strlen(user) || strlen(user) > 10)) {
        return err_set(err, ERR_USAGE, "--user: a number or *, not '%.40s'", user);
    }
    snprintf(
        ret, n, "/v1/jobs?limit=%d%s%s%s%s%s%s", PROTO_MAX_PAGE, state != NULL ? "&state=" : "",
        state != NULL ? state : "", user != NULL ? "&user=" : "", user != NULL ? user : "",
        next != NULL ? "&after=" : "", next != NULL ? next : "");
    return 0;
}

/* The API gives the oldest first, page by page; the newest are kept. */
static int cmd_list_pages(
    const struct args *a, struct http *h, int64_t limit, json_t *items, struct err *err) {
    char next[32] = "";
    do {
        CLEANUP(decref_cleanup) json_t *page = NULL;
        char path[HTTP_MAX_PATH];
        int r = list_path(a, next[0] != '\0' ? next : NULL, path, sizeof path, err);
        if (r < 0 || (r = http_get(h, path, &page, err)) < 0) {
            return r;
        }
        json_array_extend(items, json_object_get(page, "items"));
        while ((int64_t)json_array_size(items) > limit) {
            json_array_remove(items, 0);
        }
        const char *more = json_string_value(json_object_get(page, "next"));
        int64_t number;
        if (more != NULL && !proto_alias_parse(more, &number)) {
            return err_set(err, ERR_PROTOCOL, "GET /v1/jobs: a `next` that is no number");
        }
        snprintf(next, sizeof next, "%s", more != NULL ? more : "");
    } while (next[0] != '\0');
    return 0;
}

int cmd_job_list(const struct args *a, struct err *err) {
    CLEANUP(http_cleanup) struct http *h = NULL;
    CLEANUP(decref_cleanup) json_t *list = json_pack("{s:[], s:n}", "items", "next");
    int64_t limit = INT64_MAX;
    bool as_json;
    int r = args_is_json(a, &as_json, err);
    if (r < 0 || (r = args_number(a, "limit", 1, INT64_MAX, &limit, err)) < 0 ||
        (r = http_open(a->socket, &h, err)) < 0) {
        return r;
    }
    json_t *items = json_object_get(list, "items");
    if ((r = cmd_list_pages(a, h, limit, items, err)) == 0) {
        output_list(list, items, job_columns, JOB_COLUMNS, as_json);
    }
    return r;
}

/* ---- Show, outputs, verbs ---------------------------------------------------------------- */

static int request(
    const struct args *a, const char *method, const char *after, json_t **ret, struct err *err) {
    CLEANUP(http_cleanup) struct http *h = NULL;
    char path[HTTP_MAX_PATH];
    int r = begin(a, after, &h, path, err);
    if (r == 0) {
        r = http_json(h, method, path, NULL, NULL, ret, err);
    }
    if (r == 0 && *ret == NULL && strcmp(method, "DELETE") != 0) {
        r = err_set(err, ERR_PROTOCOL, "%s %.200s: an empty answer", method, path);
    }
    return r;
}

int cmd_job_show(const struct args *a, struct err *err) {
    CLEANUP(decref_cleanup) json_t *job = NULL;
    const char *wait = args_value(a, "wait");
    char after[64] = "";
    uint64_t ms = 0;
    bool as_json;
    int r = args_is_json(a, &as_json, err);
    if (r == 0 && wait != NULL && (r = proto_duration_parse(wait, &ms, err)) == 0) {
        snprintf(after, sizeof after, "?wait=%llums", (unsigned long long)ms);
    }
    if (r < 0 || (r = request(a, "GET", after, &job, err)) < 0) {
        return r;
    }
    json_object_del(as_json ? NULL : job, "links"); /* for programs */
    output_document(job, as_json);
    return 0;
}

int cmd_job_outputs(const struct args *a, struct err *err) {
    static const struct output_column columns[] = {
        {"OUTPUT", "ordinal", OUTPUT_TEXT},  {"NAME", "name", OUTPUT_TEXT},
        {"DTYPE", "dtype", OUTPUT_TEXT},     {"SHAPE", "shape", OUTPUT_TEXT},
        {"RUNS", "runs", OUTPUT_TEXT},       {"BYTES", "run_bytes", OUTPUT_TEXT},
        {"DIGEST", "digest", OUTPUT_DIGEST},
    };
    CLEANUP(decref_cleanup) json_t *list = NULL;
    bool as_json;
    int r = args_is_json(a, &as_json, err);
    if (r < 0 || (r = request(a, "GET", "/outputs", &list, err)) < 0) {
        return r;
    }
    output_list(
        list, json_object_get(list, "items"), columns, (int)(sizeof columns / sizeof columns[0]),
        as_json);
    return 0;
}

int cmd_job_verb(const struct args *a, struct err *err) {
    CLEANUP(decref_cleanup) json_t *job = NULL;
    char after[32];
    bool as_json;
    snprintf(after, sizeof after, "/%s", strchr(a->command->name, ' ') + 1);
    int r = args_is_json(a, &as_json, err);
    if (r < 0 || (r = request(a, "POST", after, &job, err)) < 0) {
        return r;
    }
    if (as_json) {
        output_json(job);
    } else {
        const char *state = json_string_value(json_object_get(job, "state"));
        output_text(stdout, state != NULL ? state : "?");
        fputc('\n', stdout);
    }
    return 0;
}

int cmd_job_delete(const struct args *a, struct err *err) {
    CLEANUP(decref_cleanup) json_t *nothing = NULL;
    return request(a, "DELETE", "", &nothing, err);
}

/* ---- Events and wait --------------------------------------------------------------------- */

int cmd_job_events(const struct args *a, struct err *err) {
    CLEANUP(http_cleanup) struct http *h = NULL;
    char path[HTTP_MAX_PATH];
    bool as_json;
    int r = args_is_json(a, &as_json, err);
    if (r < 0 || (r = begin(a, "", &h, path, err)) < 0) {
        return r;
    }
    struct follow f = {
        .http = h,
        .job = a->operands[0],
        .next = 1,
        .once = !args_has(a, "follow"),
        .events = stdout,
        .events_json = as_json};
    if ((r = args_number(a, "from", 0, INT64_MAX, &f.next, err)) < 0 ||
        (r = follow_options(a, &f, err)) < 0 || (r = http_watch_interrupt(h, err)) < 0) {
        return r;
    }
    r = follow_stopped(&f, follow_run(&f, err), err);
    follow_done(&f);
    return r;
}

/* A job that has ended already needs no waiting, so no time of --timeout either. */
static int skip_deadline(struct follow *f, struct err *err) {
    CLEANUP(decref_cleanup) json_t *job = NULL;
    char path[HTTP_MAX_PATH];
    enum proto_state state;
    uint64_t least = monotonic_ms() + LOOK_MS;
    http_path(path, "/v1/jobs/", f->job, "");
    http_deadline(f->http, f->deadline_ms > least ? f->deadline_ms : least);
    int r = http_get(f->http, path, &job, err);
    if (r < 0) {
        return r == -ERR_UNREACHABLE ? 0 : r; /* follow_run() looks for the daemon */
    }
    const char *word = json_string_value(json_object_get(job, "state"));
    bool has_ended = word != NULL && proto_state_parse(word, &state) && proto_state_ended(state);
    f->is_reached = true;
    http_deadline(f->http, has_ended ? 0 : f->deadline_ms);
    return 0;
}

int cmd_job_wait(const struct args *a, struct err *err) {
    CLEANUP(http_cleanup) struct http *h = NULL;
    char path[HTTP_MAX_PATH];
    struct progress progress;
    int r = begin(a, "", &h, path, err);
    if (r < 0) {
        return r;
    }
    bool is_verbose = args_has(a, "verbose");
    progress_init(&progress, args_has(a, "quiet") || is_verbose);
    struct follow f = {
        .http = h,
        .job = a->operands[0],
        .next = 1,
        .progress = &progress,
        .events = is_verbose ? stderr : NULL};
    r = follow_options(a, &f, err);
    if (r == 0 && f.deadline_ms != 0) {
        r = follow_stopped(&f, skip_deadline(&f, err), err);
    }
    r = r != 0 ? r : follow_to_end(a, &f, err);
    follow_done(&f);
    return r;
}
