/* ipuctl ps, version, health, doctor: what the daemon says of itself, and why it cannot be asked.
 * `doctor` goes the way of a request step by step and stops at the first that fails. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "client/commands.h"
#include "client/http.h"
#include "client/output.h"
#include "proto/proto.h"

static void decref_cleanup(json_t **j) {
    json_decref(*j);
}

/* ---- ps ---------------------------------------------------------------------------------- */

static int
add_jobs(struct http *h, const char *state, const json_t *count, json_t *items, struct err *err) {
    CLEANUP(decref_cleanup) json_t *page = NULL;
    enum proto_state known;
    char path[HTTP_MAX_PATH];
    if (json_integer_value(count) == 0 || !proto_state_parse(state, &known)) {
        return 0;
    }
    snprintf(path, sizeof path, "/v1/jobs?state=%s&limit=%d", state, PROTO_MAX_PAGE);
    int r = http_get(h, path, &page, err);
    if (r == 0) {
        json_array_extend(items, json_object_get(page, "items"));
    }
    return r;
}

static void print_head(const json_t *device, const json_t *queue) {
    const json_t *resident = output_member(device, "resident.digest");
    const char *state = json_string_value(json_object_get(device, "state"));
    fputs("device ", stdout);
    output_text(stdout, state != NULL ? state : "?");
    fputs(", resident ", stdout);
    output_text(stdout, resident != NULL ? json_string_value(resident) : "none");
    printf(
        ", %lld jobs, %lld of %lld compile slots%s\n",
        (long long)json_integer_value(json_object_get(queue, "depth")),
        (long long)json_integer_value(json_object_get(queue, "workers")),
        (long long)json_integer_value(json_object_get(queue, "worker_limit")),
        json_is_true(json_object_get(queue, "paused")) ? ", paused" : "");
}

int cmd_ps(const struct args *a, struct err *err) {
    static const struct output_column columns[] = {
        {"JOB", "alias", OUTPUT_TEXT},
        {"STATE", "state", OUTPUT_TEXT},
        {"SINCE", "state_since", OUTPUT_TIME},
        {"NAME", "name", OUTPUT_TEXT},
        {"WAITS FOR", "reason.code", OUTPUT_TEXT},
        {"PLACE", "reason.position", OUTPUT_TEXT},
    };
    CLEANUP(http_cleanup) struct http *h = NULL;
    CLEANUP(decref_cleanup) json_t *device = NULL;
    CLEANUP(decref_cleanup) json_t *queue = NULL;
    CLEANUP(decref_cleanup) json_t *all = NULL;
    bool as_json;
    int r = args_is_json(a, &as_json, err);
    if (r < 0 || (r = http_open(a->socket, &h, err)) < 0 ||
        (r = http_get(h, "/v1/device", &device, err)) < 0 ||
        (r = http_get(h, "/v1/queue", &queue, err)) < 0) {
        return r;
    }
    all = json_pack("{s:O, s:O, s:[]}", "device", device, "queue", queue, "jobs");
    json_t *items = json_object_get(all, "jobs");
    const char *state;
    json_t *count;
    json_object_foreach(json_object_get(queue, "states"), state, count) {
        if ((r = add_jobs(h, state, count, items, err)) < 0) {
            return r;
        }
    }
    if (!as_json) {
        print_head(device, queue);
    }
    output_list(all, items, columns, (int)(sizeof columns / sizeof columns[0]), as_json);
    return 0;
}

/* ---- version, health --------------------------------------------------------------------- */

int cmd_version(const struct args *a, struct err *err) {
    CLEANUP(http_cleanup) struct http *h = NULL;
    CLEANUP(decref_cleanup) json_t *daemon = NULL;
    bool as_json;
    int r = args_is_json(a, &as_json, err);
    if (r < 0 || (r = http_open(a->socket, &h, err)) < 0) {
        return r;
    }
    /* The client's own version is told whether or not there is a daemon. */
    r = http_get(h, "/v1/version", &daemon, err);
    CLEANUP(decref_cleanup)
    json_t *both = json_pack(
        "{s:{s:s, s:s}, s:O?}", "client", "version", PROTO_SERVER_VERSION, "api", PROTO_API_VERSION,
        "daemon", r == 0 ? daemon : NULL);
    output_document(both, as_json);
    return r;
}

/* Not being ready is an answer, with 503 and a document that is no problem. */
static int get_ready(struct http *h, json_t **ret, struct err *err) {
    return http_get_also(h, "/v1/health/ready", 503, ret, err);
}

int cmd_health(const struct args *a, struct err *err) {
    CLEANUP(http_cleanup) struct http *h = NULL;
    CLEANUP(decref_cleanup) json_t *ready = NULL;
    bool as_json;
    int r = args_is_json(a, &as_json, err);
    if (r < 0 || (r = http_open(a->socket, &h, err)) < 0 || (r = get_ready(h, &ready, err)) < 0) {
        return r;
    }
    output_document(ready, as_json);
    const json_t *unmet = json_array_get(json_object_get(ready, "unmet"), 0);
    if (json_is_true(json_object_get(ready, "ready"))) {
        return 0;
    }
    const char *condition = json_string_value(json_object_get(unmet, "condition"));
    const char *detail = json_string_value(json_object_get(unmet, "detail"));
    return err_set(
        err, ERR_DEVICE_BUSY, "not ready: %s: %s", condition != NULL ? condition : "?",
        detail != NULL ? detail : "?");
}

/* ---- doctor ------------------------------------------------------------------------------ */

struct doctor {
    json_t *steps; /* owned */
    bool as_json;
    int failed; /* the first step's -ERR_x */
    struct err err;
};

static void
step(struct doctor *d, const char *name, int result, bool is_warning, const char *detail) {
    const char *word = result == 0 ? "ok" : is_warning ? "warn" : "fail";
    json_t *text = json_string(detail);
    json_array_append_new(
        d->steps, json_pack(
                      "{s:s, s:s, s:o}", "step", name, "result", word, "detail",
                      text != NULL ? text : json_string("?")));
    if (!d->as_json) {
        printf("%-5s %-10s ", word, name);
        output_text(stdout, detail);
        fputc('\n', stdout);
    }
    if (result < 0 && !is_warning && d->failed == 0) {
        d->failed = result;
    }
}

/* Names what the connection needs: /v1/version and its API. */
static void ask_version(struct doctor *d, struct http *h) {
    CLEANUP(decref_cleanup) json_t *v = NULL;
    char detail[256];
    int r = http_get(h, "/v1/version", &v, &d->err);
    const char *version = json_string_value(json_object_get(v, "version"));
    const char *api = json_string_value(json_object_get(v, "api"));
    if (r < 0 || version == NULL || api == NULL) {
        r = r < 0 ? r : err_set(&d->err, ERR_PROTOCOL, "no version in the answer");
        step(d, "daemon", r, false, d->err.text);
        return;
    }
    bool is_same = strtol(api, NULL, 10) == strtol(PROTO_API_VERSION, NULL, 10);
    snprintf(
        detail, sizeof detail, "ipud %.40s, API %.20s; client %s, API %s", version, api,
        PROTO_SERVER_VERSION, PROTO_API_VERSION);
    if (!is_same) {
        err_set(&d->err, ERR_PROTOCOL, "%s", detail);
    }
    step(d, "daemon", is_same ? 0 : -ERR_PROTOCOL, false, detail);
}

static void ask_who(struct doctor *d, struct http *h) {
    CLEANUP(decref_cleanup) json_t *v = NULL;
    char detail[128];
    int r = http_get(h, "/v1/whoami", &v, &d->err);
    const char *role = json_string_value(json_object_get(v, "role"));
    snprintf(
        detail, sizeof detail, "uid %lld, role %.40s",
        (long long)json_integer_value(json_object_get(v, "uid")), role != NULL ? role : "?");
    step(d, "identity", r, false, r < 0 ? d->err.text : detail);
}

static void ask_device(struct doctor *d, struct http *h) {
    CLEANUP(decref_cleanup) json_t *v = NULL;
    char detail[400];
    int r = http_get(h, "/v1/device", &v, &d->err);
    const char *device = json_string_value(json_object_get(v, "device"));
    const char *state = json_string_value(json_object_get(v, "state"));
    const char *more = json_string_value(json_object_get(v, "detail"));
    state = state != NULL ? state : "?";
    snprintf(
        detail, sizeof detail, "%.80s is %.20s%s%.200s", device != NULL ? device : "?", state,
        more != NULL && more[0] != '\0' ? ": " : "", more != NULL ? more : "");
    bool is_good = strcmp(state, "ready") == 0 || strcmp(state, "busy") == 0;
    if (r == 0 && !is_good) {
        bool is_busy = strcmp(state, "waiting") == 0;
        r = err_set(&d->err, is_busy ? ERR_DEVICE_BUSY : ERR_DEVICE_ABSENT, "%s", detail);
    }
    step(d, "device", r, strcmp(state, "waiting") == 0, r < 0 ? d->err.text : detail);
}

static void ask_ready(struct doctor *d, struct http *h) {
    CLEANUP(decref_cleanup) json_t *v = NULL;
    int r = get_ready(h, &v, &d->err);
    const json_t *unmet = json_array_get(json_object_get(v, "unmet"), 0);
    const char *detail = json_string_value(json_object_get(unmet, "detail"));
    if (r < 0) {
        step(d, "ready", r, true, d->err.text);
    } else {
        bool is_ready = json_is_true(json_object_get(v, "ready"));
        step(
            d, "ready", is_ready ? 0 : -ERR_DEVICE_BUSY, true,
            is_ready         ? "jobs are taken and started"
            : detail != NULL ? detail
                             : "not ready");
    }
}

static void ask_queue(struct doctor *d, struct http *h) {
    CLEANUP(decref_cleanup) json_t *v = NULL;
    char detail[96];
    int r = http_get(h, "/v1/queue", &v, &d->err);
    snprintf(
        detail, sizeof detail, "%lld jobs",
        (long long)json_integer_value(json_object_get(v, "depth")));
    step(d, "queue", r, false, r < 0 ? d->err.text : detail);
}

static void examine(struct doctor *d, const char *socket) {
    struct http *h = NULL;
    char detail[192];
    int r = http_open(socket, &h, &d->err);
    snprintf(
        detail, sizeof detail, "'%.120s', %zu of %d bytes", socket, strlen(socket),
        HTTP_SOCKET_MAX);
    step(d, "path", r, false, r < 0 ? d->err.text : detail);
    if (r == 0) {
        r = http_explain(socket, &d->err);
        step(d, "socket", r, false, r < 0 ? d->err.text : "folders, permissions and connection");
    }
    if (r == 0) {
        ask_version(d, h);
    }
    if (r == 0 && d->failed == 0) {
        ask_who(d, h);
        ask_device(d, h);
        ask_ready(d, h);
        ask_queue(d, h);
    }
    http_close(h);
}

int cmd_doctor(const struct args *a, struct err *err) {
    struct doctor d = {.steps = json_array()};
    int r = args_is_json(a, &d.as_json, err);
    if (r == 0) {
        examine(&d, a->socket);
        if (d.as_json) {
            output_json(d.steps);
        }
    }
    json_decref(d.steps);
    return r < 0 ? r : d.failed < 0 ? err_exit(d.failed) : 0; /* the step has told why */
}
