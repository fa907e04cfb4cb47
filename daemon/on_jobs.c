/* Submit, list, show and wait, delete, cancel, hold, release. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/monotonic.h"
#include "daemon/handlers.h"

/* ---- Rows -------------------------------------------------------------------------------- */

int handler_job(struct request *r, struct cache *c, struct cache_job *ret, struct err *err) {
    const char *id = r->match.params[0];
    int64_t alias;
    if (!proto_id_valid(id) && !proto_alias_parse(id, &alias)) {
        return err_set(err, ERR_NOT_FOUND, "no job '%.40s'", id);
    }
    int result = cache_job_find(c, id, ret, err);
    const struct peer *peer = &r->connection->peer;
    if (result == 0 && ret->uid != peer->uid && !peer->is_operator) {
        cache_job_done(ret);
        result = err_set(err, ERR_NOT_FOUND, "no job '%.40s'", id);
    }
    return result;
}

static void set_text(json_t *o, const char *key, const char *text) {
    json_object_set_new(o, key, text != NULL ? json_string(text) : json_null());
}

static void set_json(json_t *o, const char *key, const char *text) {
    json_t *value = text != NULL ? json_loads(text, 0, NULL) : NULL;
    json_object_set_new(o, key, value != NULL ? value : json_null());
}

static void set_time(json_t *o, const char *key, uint64_t ms) {
    char text[PROTO_TIME_CHARS + 1];
    proto_time_print(ms, text);
    set_text(o, key, ms > 0 ? text : NULL);
}

static json_t *job_links(const char *id) {
    static const char *const parts[] = {"events", "outputs", "profile", "cancel"};
    char path[96];
    json_t *links = json_object();
    snprintf(path, sizeof path, "/v1/jobs/%s", id);
    set_text(links, "self", path);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        snprintf(path, sizeof path, "/v1/jobs/%s/%s", id, parts[i]);
        set_text(links, parts[i], path);
    }
    return links;
}

json_t *handler_job_json(const struct cache_job *row) {
    enum proto_state state;
    bool is_ended = proto_state_parse(row->state, &state) && proto_state_ended(state);
    json_t *o = json_object();
    set_text(o, "id", row->id);
    json_object_set_new(o, "alias", json_integer(row->alias));
    json_object_set_new(o, "uid", json_integer((json_int_t)row->uid));
    set_text(o, "name", row->name);
    set_json(o, "labels", row->labels);
    set_text(o, "state", row->state);
    json_object_set_new(o, "terminal", json_boolean(is_ended));
    set_time(o, "created", row->created_ms);
    set_time(o, "state_since", row->state_ms);
    set_time(o, "started", row->started_ms);
    set_time(o, "finished", row->finished_ms);
    set_text(o, "key", row->key);
    set_json(o, "report", row->report);
    set_json(o, "error", row->error);
    json_object_set_new(o, "reason", json_null());
    json_object_set_new(o, "index", json_integer(row->last_event));
    set_text(o, "request_id", row->request_id);
    json_object_set_new(o, "links", job_links(row->id));
    return o;
}

void handler_add_reason(struct daemon *d, json_t *job) {
    const char *id = json_string_value(json_object_get(job, "id"));
    const struct job *j = id != NULL ? jobs_find(d->jobs, id) : NULL;
    json_t *reason = j != NULL ? jobs_reason(d->jobs, j) : NULL;
    if (reason != NULL) {
        json_object_set_new(job, "reason", reason);
    }
}

/* ---- Submit ------------------------------------------------------------------------------ */

struct submit_op {
    struct request_op q;
    struct proto_job spec; /* borrowed from the request's document */
    struct err refused;    /* over a quota, unless this is a replay */
    struct cache_job row;  /* texts owned */
    struct digest body;
    const char *key; /* Idempotency-Key, borrowed */
    char *event;
    bool is_replay;
    struct cache *cache; /* while run() runs */
    struct err *err;
};

static int check_blob(const struct digest *blob, const char *pointer, void *arg) {
    struct submit_op *s = arg;
    char hex[DIGEST_HEX + 1];
    digest_hex(blob, hex);
    if (!cache_blob_visible(s->cache, blob, s->row.uid)) {
        return err_at(
            s->err, ERR_MISSING, pointer, "blob sha256:%s has not been sent by this user", hex);
    }
    return cache_job_pin_blob(s->cache, s->row.id, blob, s->err);
}

/* The 202 of the first time, made again. */
static int replay(
    struct submit_op *s, struct cache *c, const char *id, const struct digest *body,
    struct err *err) {
    if (!digest_equal(body, &s->body)) {
        return err_set(
            err, ERR_IDEMPOTENCY_MISMATCH, "Idempotency-Key was used for job %s with another body",
            id);
    }
    struct cache_job row;
    int r = cache_job_find(c, id, &row, err);
    if (r < 0) {
        return r;
    }
    strcpy(s->row.id, row.id);
    s->row.alias = row.alias;
    s->row.created_ms = row.created_ms;
    cache_job_done(&row);
    s->is_replay = true;
    return 0;
}

/* Job, key, pins and first event in one piece: all of it or nothing is there after a crash. */
static int submit_run(struct store_op *op, struct cache *c, struct err *err) {
    struct submit_op *s = (struct submit_op *)op;
    char id[CACHE_ID_CHARS + 1];
    struct digest body;
    if (s->key != NULL) {
        int found = cache_idempotency_find(c, s->row.uid, s->key, id, &body, err);
        if (found != -ERR_NOT_FOUND) {
            return found < 0 ? found : replay(s, c, id, &body, err);
        }
        err_clear(err);
    }
    if (s->refused.code != 0) {
        *err = s->refused;
        return -err->code;
    }
    struct cache_idempotency idempotency = {s->key, s->body};
    int64_t seq;
    int r = cache_job_insert(c, &s->row, &idempotency, &s->row.alias, err);
    if (r < 0) {
        return r;
    }
    s->cache = c;
    s->err = err;
    if ((r = proto_job_blobs(&s->spec, check_blob, s)) < 0) {
        return r;
    }
    if (s->spec.has_package && !cache_package_visible(c, &s->spec.package, s->row.uid)) {
        return err_at(err, ERR_MISSING, "/package", "no such package of this user");
    }
    return cache_event_append(c, s->row.id, s->event, &seq, err);
}

static void submit_reply(struct request_op *q) {
    struct submit_op *s = (struct submit_op *)q;
    struct daemon *d = q->request->daemon;
    json_t *body = json_object();
    set_text(body, "id", s->row.id);
    json_object_set_new(body, "alias", json_integer(s->row.alias));
    set_text(body, "state", s->row.state);
    set_time(body, "created", s->row.created_ms);
    json_object_set_new(body, "links", job_links(s->row.id));
    struct MHD_Response *response = reply_json_response(body);
    if (response != NULL) {
        char location[64];
        snprintf(location, sizeof location, "/v1/jobs/%s", s->row.id);
        reply_header(response, "Location", location);
        reply_header(response, "Idempotency-Replayed", s->is_replay ? "true" : NULL);
    }
    reply_response(q->request, 202, response);
    d->counters.replayed += s->is_replay;
    d->counters.submitted += !s->is_replay;
    if (!s->is_replay) {
        jobs_submitted(d->jobs, &s->row, &s->spec);
        jobs_pump(d->jobs);
    }
}

static void submit_free(struct request_op *q) {
    struct submit_op *s = (struct submit_op *)q;
    cache_job_done(&s->row);
    free(s->event);
    free(s);
}

static int check_key(const char *key, struct err *err) {
    size_t n = key != NULL ? strlen(key) : 1;
    for (size_t i = 0; key != NULL && i < n; i++) {
        n = key[i] > 0x20 && key[i] < 0x7f ? n : 0;
    }
    if (n == 0 || n > PROTO_MAX_IDEMPOTENCY) {
        return err_set(
            err, ERR_INVALID, "Idempotency-Key: 1 to %d printable characters",
            PROTO_MAX_IDEMPOTENCY);
    }
    return 0;
}

void on_job_submit(struct request *r) {
    struct err err;
    struct proto_job spec;
    const char *key = request_header(r, "Idempotency-Key");
    if (r->json == NULL) {
        err_at(&err, ERR_BAD_JSON, "1:1", "the body is empty: a job document is expected");
        reply_err(r, &err);
        return;
    }
    if (check_key(key, &err) < 0 || proto_job_parse(r->json, &spec, &err) < 0) {
        reply_err(r, &err);
        return;
    }
    struct submit_op *s = request_op_new(r, sizeof *s, submit_run, submit_reply);
    if (s == NULL) {
        return;
    }
    s->q.free = submit_free;
    s->spec = spec;
    s->key = key;
    jobs_admit(r->daemon->jobs, r->connection->peer.uid, &s->refused);
    daemon_new_id(s->row.id);
    s->row.uid = r->connection->peer.uid;
    s->row.name = spec.name != NULL ? strdup(spec.name) : NULL;
    s->row.state = strdup(spec.hold ? "held" : "queued");
    s->row.document = strndup(r->body, r->body_bytes);
    s->row.labels = spec.labels != NULL ? json_dumps(spec.labels, JSON_COMPACT) : NULL;
    s->row.request_id = strdup(r->id);
    s->row.created_ms = daemon_wall_ms();
    digest_of(r->body, r->body_bytes, &s->body);
    s->event = job_event_body(
        "job.state", "job was accepted",
        json_pack(
            "{s:s, s:n, s:s}", "state", spec.hold ? "held" : "queued", "from", "boot",
            r->daemon->boot_id));
    request_op_submit(&s->q);
}

/* ---- Show and wait ----------------------------------------------------------------------- */

struct show_op {
    struct request_op q;
    bool is_waiting; /* may still wait */
    bool has_since;
    int64_t since;
    uint64_t deadline_ms;
    json_t *job; /* owned */
    bool is_ended;
    int64_t index;
    char id[PROTO_ID_CHARS + 1];
};

struct show_waiter {
    struct waiter waiter;
    struct request *request;
    bool has_since;
    int64_t since;
};

static void
show_submit(struct request *r, bool may_wait, bool has_since, int64_t since, uint64_t deadline_ms);

static int show_run(struct store_op *op, struct cache *c, struct err *err) {
    struct show_op *s = (struct show_op *)op;
    struct cache_job row;
    int r = handler_job(s->q.request, c, &row, err);
    if (r < 0) {
        return r;
    }
    s->job = handler_job_json(&row);
    s->is_ended = json_is_true(json_object_get(s->job, "terminal"));
    s->index = row.last_event;
    strcpy(s->id, row.id);
    cache_job_done(&row);
    return 0;
}

static void show_wake(struct waiter *w, enum wake why) {
    struct show_waiter *s = (struct show_waiter *)w;
    show_submit(s->request, why == WAKE_CHANGED, s->has_since, s->since, w->deadline_ms);
    free(s);
}

static void show_reply(struct request_op *q) {
    struct show_op *s = (struct show_op *)q;
    struct request *r = q->request;
    bool enough = s->is_ended || (s->has_since && s->index > s->since) ||
                  monotonic_ms() >= s->deadline_ms || r->daemon->is_draining;
    struct show_waiter *w = s->is_waiting && !enough ? calloc(1, sizeof *w) : NULL;
    if (w == NULL) {
        handler_add_reason(r->daemon, s->job);
        char etag[96];
        snprintf(etag, sizeof etag, "W/\"%s-%lld\"", s->id, (long long)s->index);
        struct MHD_Response *response = reply_json_response(json_incref(s->job));
        if (response != NULL) {
            reply_header(response, "ETag", etag);
        }
        reply_response(r, 200, response);
        return;
    }
    strcpy(w->waiter.id, s->id);
    w->waiter.deadline_ms = s->deadline_ms;
    w->waiter.wake = show_wake;
    w->request = r;
    w->has_since = s->has_since;
    w->since = s->since;
    jobs_wait(r->daemon->jobs, &w->waiter);
}

static void show_free(struct request_op *q) {
    json_decref(((struct show_op *)q)->job);
    free(q);
}

static void
show_submit(struct request *r, bool may_wait, bool has_since, int64_t since, uint64_t deadline_ms) {
    struct show_op *s = request_op_new(r, sizeof *s, show_run, show_reply);
    if (s != NULL) {
        s->q.free = show_free;
        s->is_waiting = may_wait;
        s->has_since = has_since;
        s->since = since;
        s->deadline_ms = deadline_ms;
        request_op_submit(&s->q);
    }
}

void on_job_show(struct request *r) {
    struct err err;
    const char *wait = request_query(r, "wait");
    uint64_t wait_ms = 0;
    int64_t since = 0;
    if ((wait != NULL && proto_duration_parse(wait, &wait_ms, &err) < 0) ||
        request_query_int(r, "since", 0, INT64_MAX, 0, &since, &err) < 0) {
        err_where(&err, "wait");
        reply_err(r, &err);
        return;
    }
    wait_ms = wait_ms < PROTO_MAX_WAIT_MS ? wait_ms : PROTO_MAX_WAIT_MS;
    show_submit(r, wait_ms > 0, request_query(r, "since") != NULL, since, monotonic_ms() + wait_ms);
}

/* ---- List -------------------------------------------------------------------------------- */

struct list_op {
    struct request_op q;
    bool everyone;
    uid_t uid;
    const char *state;
    int64_t after;
    int64_t limit;
    int64_t last;
    json_t *items; /* owned */
};

static int list_row(const struct cache_job *row, void *arg) {
    struct list_op *l = arg;
    json_array_append_new(l->items, handler_job_json(row));
    l->last = row->alias;
    return 0;
}

static int list_run(struct store_op *op, struct cache *c, struct err *err) {
    struct list_op *l = (struct list_op *)op;
    l->items = json_array();
    return cache_job_list(
        c, l->uid, l->everyone, l->state, l->after, (int)l->limit, list_row, l, err);
}

static void list_reply(struct request_op *q) {
    struct list_op *l = (struct list_op *)q;
    size_t i;
    json_t *item;
    json_array_foreach(l->items, i, item) {
        handler_add_reason(q->request->daemon, item);
    }
    bool is_full = (int64_t)json_array_size(l->items) == l->limit;
    char next[24];
    snprintf(next, sizeof next, "%lld", (long long)l->last);
    reply_json(
        q->request, 200,
        json_pack(
            "{s:O, s:o}", "items", l->items, "next", is_full ? json_string(next) : json_null()));
}

static void list_free(struct request_op *q) {
    json_decref(((struct list_op *)q)->items);
    free(q);
}

static int list_user(struct request *r, struct list_op *l, struct err *err) {
    const struct peer *peer = &r->connection->peer;
    const char *user = request_query(r, "user");
    l->uid = peer->uid;
    if (user == NULL) {
        return 0;
    }
    int64_t uid = 0;
    l->everyone = strcmp(user, "*") == 0;
    if (!l->everyone && request_query_int(r, "user", 0, UINT32_MAX, 0, &uid, err) < 0) {
        return -err->code;
    }
    l->uid = l->everyone ? peer->uid : (uid_t)uid;
    return peer->is_operator || (!l->everyone && l->uid == peer->uid)
               ? 0
               : err_set(err, ERR_PERMISSION, "jobs of others are for operators");
}

void on_job_list(struct request *r) {
    struct list_op *l = request_op_new(r, sizeof *l, list_run, list_reply);
    if (l == NULL) {
        return;
    }
    struct err err;
    enum proto_state state;
    l->q.free = list_free;
    l->state = request_query(r, "state");
    int result = 0;
    if (l->state != NULL && !proto_state_parse(l->state, &state)) {
        result = err_at(&err, ERR_INVALID, "state", "no state '%.40s'", l->state);
    }
    if (result < 0 || list_user(r, l, &err) < 0 ||
        request_query_int(r, "after", 0, INT64_MAX, 0, &l->after, &err) < 0 ||
        request_query_int(r, "limit", 1, PROTO_MAX_PAGE, PROTO_DEFAULT_PAGE, &l->limit, &err) < 0) {
        free(l);
        reply_err(r, &err);
        return;
    }
    request_op_submit(&l->q);
}

/* ---- Delete ------------------------------------------------------------------------------ */

static int delete_run(struct store_op *op, struct cache *c, struct err *err) {
    struct request_op *q = (struct request_op *)op;
    struct cache_job row;
    int r = handler_job(q->request, c, &row, err);
    if (r < 0) {
        return r;
    }
    enum proto_state state;
    if (proto_state_parse(row.state, &state) && !proto_state_ended(state)) {
        r = err_set(err, ERR_CONFLICT, "job %s is %s: cancel it first", row.id, row.state);
    } else {
        r = cache_job_delete(c, row.id, err);
    }
    cache_job_done(&row);
    return r;
}

static void delete_reply(struct request_op *q) {
    reply_empty(q->request, 204);
}

void on_job_delete(struct request *r) {
    struct request_op *q = request_op_new(r, sizeof *q, delete_run, delete_reply);
    if (q != NULL) {
        request_op_submit(q);
    }
}

/* ---- Cancel, hold, release --------------------------------------------------------------- */

static int ended_run(struct store_op *op, struct cache *c, struct err *err) {
    struct cache_job row;
    int r = handler_job(((struct request_op *)op)->request, c, &row, err);
    if (r == 0) {
        r = err_set(err, ERR_CONFLICT, "job %s is %s", row.id, row.state);
        cache_job_done(&row);
    }
    return r;
}

/* The change is submitted to the store first, the reply reads the row behind it: a 2xx speaks of
 * what is durable. An ended job is not in the table; its row answers. */
static void verb(
    struct request *r, int (*fn)(struct jobs *js, struct job *j, struct err *err),
    bool needs_active) {
    struct jobs *js = r->daemon->jobs;
    const struct peer *peer = &r->connection->peer;
    struct job *j = jobs_find(js, r->match.params[0]);
    struct err err;
    if (j != NULL && (j->uid == peer->uid || peer->is_operator)) {
        if (fn(js, j, &err) < 0) {
            reply_err(r, &err);
            return;
        }
    } else if (j != NULL) {
        err_set(&err, ERR_NOT_FOUND, "no job '%.40s'", r->match.params[0]);
        reply_err(r, &err);
        return;
    } else if (needs_active) {
        struct request_op *q = request_op_new(r, sizeof *q, ended_run, delete_reply);
        if (q != NULL) {
            request_op_submit(q);
        }
        return;
    }
    show_submit(r, false, false, 0, 0);
}

static int do_cancel(struct jobs *js, struct job *j, struct err *err) {
    jobs_cancel(js, j, ERR_CANCELLED, "cancelled by request");
    return 0;
}

void on_job_cancel(struct request *r) {
    verb(r, do_cancel, false);
}

void on_job_hold(struct request *r) {
    verb(r, jobs_hold, true);
}

void on_job_release(struct request *r) {
    verb(r, jobs_release, true);
}
