/* Probes, versions, limits, queue, metrics. Probes answer from memory; only metrics ask the
 * store, for the sizes of what it keeps. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/handlers.h"

void on_ping(struct request *r) {
    struct MHD_Response *response =
        MHD_create_response_from_buffer(3, (void *)"OK\n", MHD_RESPMEM_PERSISTENT);
    if (response != NULL) {
        reply_header(response, "Content-Type", "text/plain");
        reply_header(response, "Api-Min-Version", PROTO_API_MIN_VERSION);
    }
    reply_response(r, 200, response);
}

static json_t *version_json(struct daemon *d) {
    char started[PROTO_TIME_CHARS + 1];
    proto_time_print(d->started_ms, started);
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "name", "ipud", "version", PROTO_SERVER_VERSION,
        "api", PROTO_API_VERSION, "api_min", PROTO_API_MIN_VERSION, "compiler", d->compiler_id,
        "boot", d->boot_id, "started", started);
}

void on_version(struct request *r) {
    reply_json(r, 200, version_json(r->daemon));
}

void on_root(struct request *r) {
    static const struct {
        const char *name;
        uint64_t value;
    } limits[] = {
        {"job_bytes", PROTO_MAX_JOB_BYTES},
        {"model_bytes", PROTO_MAX_MODEL_BYTES},
        {"blob_bytes", PROTO_MAX_BLOB_BYTES},
        {"package_bytes", PROTO_MAX_PACKAGE_BYTES},
        {"json_depth", PROTO_MAX_JSON_DEPTH},
        {"name_bytes", PROTO_MAX_NAME},
        {"files", PROTO_MAX_FILES},
        {"inputs", PROTO_MAX_INPUTS},
        {"runs", PROTO_MAX_RUNS},
        {"output_bytes", PROTO_MAX_OUTPUT_BYTES},
        {"event_bytes", PROTO_MAX_EVENT_BYTES},
        {"inline_bytes", PROTO_INLINE_BYTES},
        {"user_jobs", PROTO_MAX_USER_JOBS},
        {"jobs", PROTO_MAX_JOBS},
        {"idempotency_key_bytes", PROTO_MAX_IDEMPOTENCY},
        {"page", PROTO_MAX_PAGE},
        {"wait_ms", PROTO_MAX_WAIT_MS},
        {"tiles", PROTO_MAX_TILES},
    };
    json_t *o = json_object();
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        json_object_set_new(o, limits[i].name, json_integer((json_int_t)limits[i].value));
    }
    json_t *body = version_json(r->daemon);
    json_object_set_new(body, "limits", o);
    reply_json(r, 200, body);
}

void on_whoami(struct request *r) {
    const struct peer *p = &r->connection->peer;
    reply_json(
        r, 200,
        json_pack(
            "{s:I, s:I, s:I, s:s}", "uid", (json_int_t)p->uid, "gid", (json_int_t)p->gid, "pid",
            (json_int_t)p->pid, "role", p->is_operator ? "operator" : "user"));
}

void on_live(struct request *r) {
    reply_json(r, 200, json_pack("{s:b}", "live", 1));
}

static void unmet(json_t *list, bool is_unmet, const char *condition, const char *detail) {
    if (is_unmet) {
        json_array_append_new(
            list, json_pack("{s:s, s:s}", "condition", condition, "detail", detail));
    }
}

void on_ready(struct request *r) {
    struct daemon *d = r->daemon;
    struct runner_status device;
    struct store_health store;
    runner_status(d->runner, &device);
    store_health(d->store, &store);
    json_t *list = json_array();
    unmet(
        list, device.state == RUNNER_WAITING, "device_lock",
        device.detail[0] != '\0' ? device.detail : "the device is being opened");
    unmet(
        list, device.state == RUNNER_ABSENT || device.state == RUNNER_FAILED, "device_ok",
        device.detail);
    unmet(list, store.is_failing, "db", "the last changes could not be stored");
    unmet(list, store.stuck_ms > 10000, "disk", "the store has been busy for long");
    unmet(list, d->is_paused, "paused", d->pause_reason);
    unmet(list, d->is_draining, "draining", "the daemon is stopping");
    bool is_ready = json_array_size(list) == 0;
    struct MHD_Response *response =
        reply_json_response(json_pack("{s:b, s:o}", "ready", is_ready, "unmet", list));
    if (response != NULL && !is_ready) {
        reply_header(response, "Retry-After", "2");
    }
    reply_response(r, is_ready ? 200 : 503, response);
}

void on_openapi(struct request *r) {
    static const char etag[] = "\"" PROTO_SERVER_VERSION "-" PROTO_API_VERSION "\"";
    if (handler_not_modified(r, etag)) {
        return;
    }
    struct MHD_Response *response = reply_json_response(proto_openapi());
    if (response != NULL) {
        reply_header(response, "ETag", etag);
    }
    reply_response(r, 200, response);
}

/* ---- Queue ------------------------------------------------------------------------------- */

static void count_states(const struct jobs *js, unsigned ret[PROTO_STATE_COUNT]) {
    memset(ret, 0, PROTO_STATE_COUNT * sizeof ret[0]);
    for (const struct job *j = js->table; j != NULL; j = j->hh.next) {
        ret[j->state]++;
    }
}

void on_queue(struct request *r) {
    struct jobs *js = r->daemon->jobs;
    unsigned counts[PROTO_STATE_COUNT];
    count_states(js, counts);
    json_t *states = json_object();
    for (int s = 0; s < PROTO_STATE_SUCCEEDED; s++) {
        json_object_set_new(states, proto_state_name((enum proto_state)s), json_integer(counts[s]));
    }
    json_t *users = json_array();
    for (const struct user *u = js->users; u != NULL; u = u->hh.next) {
        if (u->queued > 0) {
            json_array_append_new(
                users, json_pack(
                           "{s:I, s:i, s:i, s:f}", "uid", (json_int_t)u->uid, "jobs",
                           (int)u->queued, "active", (int)u->active, "used_ms", u->used_ms));
        }
    }
    reply_json(
        r, 200,
        json_pack(
            "{s:i, s:o, s:o, s:i, s:i, s:b}", "depth", (int)HASH_COUNT(js->table), "states", states,
            "users", users, "workers", (int)js->workers, "worker_limit", (int)js->worker_limit,
            "paused", r->daemon->is_paused));
}

/* ---- Metrics ----------------------------------------------------------------------------- */

struct metrics_op {
    struct request_op q;
    struct cache_stats stats;
};

static int metrics_run(struct store_op *op, struct cache *c, struct err *err) {
    cache_stats(c, &((struct metrics_op *)op)->stats);
    return 0;
}

static void metric(FILE *out, const char *name, const char *type, const char *help, double value) {
    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n%s %.17g\n", name, help, name, type, name, value);
}

static double open_files(void) {
    DIR *d = opendir("/proc/self/fd");
    double n = -3; /* two dots and the folder itself */
    for (; d != NULL && readdir(d) != NULL; n++) {
    }
    if (d != NULL) {
        closedir(d);
    }
    return n > 0 ? n : 0;
}

static double resident_bytes(void) {
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (f != NULL) {
        if (fscanf(f, "%*d %ld", &pages) != 1) {
            pages = 0;
        }
        fclose(f);
    }
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

static void metrics_requests(FILE *out, const struct daemon *d) {
    fputs(
        "# HELP ipud_http_requests_total Requests by route and hundreds of the status.\n"
        "# TYPE ipud_http_requests_total counter\n",
        out);
    for (int i = 0; i < PROTO_ROUTE_COUNT; i++) {
        for (int code = 1; code < 6; code++) {
            if (d->counters.requests[i][code] > 0) {
                fprintf(
                    out, "ipud_http_requests_total{route=\"%s\",code=\"%dxx\"} %llu\n",
                    proto_route((enum proto_route_id)i)->name, code,
                    (unsigned long long)d->counters.requests[i][code]);
            }
        }
    }
    fprintf(
        out, "ipud_http_requests_total{route=\"none\",code=\"4xx\"} %llu\n",
        (unsigned long long)d->counters.unrouted);
}

static void metrics_jobs(FILE *out, const struct daemon *d) {
    unsigned counts[PROTO_STATE_COUNT];
    count_states(d->jobs, counts);
    fputs("# HELP ipud_jobs_total Ended jobs by outcome.\n# TYPE ipud_jobs_total counter\n", out);
    for (int s = PROTO_STATE_SUCCEEDED; s < PROTO_STATE_COUNT; s++) {
        fprintf(
            out, "ipud_jobs_total{outcome=\"%s\"} %llu\n", proto_state_name((enum proto_state)s),
            (unsigned long long)d->counters.ended[s]);
    }
    fputs(
        "# HELP ipud_queue_depth Jobs that have not ended, by state.\n"
        "# TYPE ipud_queue_depth gauge\n",
        out);
    for (int s = 0; s < PROTO_STATE_SUCCEEDED; s++) {
        fprintf(
            out, "ipud_queue_depth{state=\"%s\"} %u\n", proto_state_name((enum proto_state)s),
            counts[s]);
    }
}

static void metrics_device(FILE *out, struct daemon *d) {
    struct runner_status s;
    runner_status(d->runner, &s);
    fputs(
        "# HELP ipud_device_state 1 for the present state.\n# TYPE ipud_device_state gauge\n", out);
    for (int i = RUNNER_WAITING; i <= RUNNER_FAILED; i++) {
        fprintf(
            out, "ipud_device_state{state=\"%s\"} %d\n", runner_state_name((enum runner_state)i),
            (int)s.state == i);
    }
    metric(
        out, "ipud_device_busy_seconds_total", "counter", "Time with a job on the device.",
        (double)s.busy_ms / 1000);
    metric(out, "ipud_device_loads_total", "counter", "Programs loaded.", (double)s.loads);
    metric(out, "ipud_device_runs_total", "counter", "Runs.", (double)s.runs);
    metric(out, "ipud_device_resets_total", "counter", "Resets asked for.", (double)s.resets);
}

static void metrics_reply(struct request_op *q) {
    struct daemon *d = q->request->daemon;
    const struct cache_stats *c = &((struct metrics_op *)q)->stats;
    struct store_health h;
    store_health(d->store, &h);
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    if (out == NULL) {
        reply_response(q->request, 500, NULL);
        return;
    }
    fprintf(
        out,
        "# HELP ipud_build_info Versions.\n# TYPE ipud_build_info gauge\n"
        "ipud_build_info{version=\"%s\",compiler=\"%s\"} 1\n",
        PROTO_SERVER_VERSION, d->compiler_id);
    const struct {
        const char *name, *type, *help;
        double value;
    } rows[] = {
        {"ipud_start_time_seconds", "gauge", "Start of the daemon.", (double)d->started_ms / 1000},
        {"ipud_submitted_total", "counter", "Jobs accepted.", (double)d->counters.submitted},
        {"ipud_replayed_total", "counter", "Submits answered by their idempotency key.",
         (double)d->counters.replayed},
        {"ipud_queue_wait_seconds_total", "counter", "Time that jobs waited to start.",
         (double)d->counters.queue_wait_ms / 1000},
        {"ipud_compile_seconds_total", "counter", "Time in compile workers.",
         (double)d->counters.compile_ms / 1000},
        {"ipud_run_seconds_total", "counter", "Time of loads and runs.",
         (double)d->counters.run_ms / 1000},
        {"ipud_workers_started_total", "counter", "Compile workers started.",
         (double)d->counters.workers_started},
        {"ipud_workers_crashed_total", "counter", "Compile workers that crashed.",
         (double)d->counters.workers_crashed},
        {"ipud_cache_hits_total", "counter", "Keys found.", (double)d->counters.cache_hits},
        {"ipud_cache_misses_total", "counter", "Keys not found.", (double)d->counters.cache_misses},
        {"ipud_cache_joined_total", "counter", "Jobs that joined a compile of the same key.",
         (double)d->counters.joined},
        {"ipud_cache_bytes", "gauge", "Bytes of packages.", (double)c->package_bytes},
        {"ipud_cache_bytes_limit", "gauge", "Their limit.", (double)d->config.package_limit},
        {"ipud_cache_packages", "gauge", "Packages.", (double)c->package_count},
        {"ipud_cache_evicted_bytes_total", "counter", "Bytes evicted.", (double)c->evicted_bytes},
        {"ipud_cache_corrupt_total", "counter", "Entries found damaged or gone.",
         (double)c->healed},
        {"ipud_blobs", "gauge", "Blobs.", (double)c->blob_count},
        {"ipud_blob_bytes", "gauge", "Bytes of blobs.", (double)c->blob_bytes},
        {"ipud_db_wal_bytes", "gauge", "Bytes of write-ahead logs.", (double)c->wal_bytes},
        {"ipud_db_commits_total", "counter", "Groups committed.", (double)h.commits},
        {"ipud_db_failures_total", "counter", "Groups that failed.", (double)h.failures},
        {"ipud_disk_free_bytes", "gauge", "Free space of the state directory.",
         (double)c->disk_free_bytes},
        {"ipud_http_inflight", "gauge", "Requests in service.",
         (double)server_request_count(d->server)},
        {"ipud_streams_open", "gauge", "Streams in service.",
         (double)server_stream_count(d->server)},
        {"ipud_fds", "gauge", "Open files.", open_files()},
        {"ipud_rss_bytes", "gauge", "Resident memory.", resident_bytes()},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        metric(out, rows[i].name, rows[i].type, rows[i].help, rows[i].value);
    }
    metrics_jobs(out, d);
    metrics_device(out, d);
    metrics_requests(out, d);
    fclose(out);
    reply_text(q->request, 200, "text/plain; version=0.0.4", text);
    free(text);
}

void on_metrics(struct request *r) {
    struct metrics_op *m = request_op_new(r, sizeof *m, metrics_run, metrics_reply);
    if (m != NULL) {
        request_op_submit(&m->q);
    }
}
