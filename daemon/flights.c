/* Flights: one compile for all jobs that want one key at the same time (C-12).
 *
 *   waiting -slot-> staging -> worker -> publishing -> landed: every member goes to the device
 *       \____________ last member left: the worker is killed, the flight forgotten
 *
 * A flight has its own staging folder and its own reference to the first member's document, so
 * members come and go freely. Members are not busy: they wait. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/monotonic.h"
#include "daemon/jobs.h"

struct flight {
    char key[DIGEST_HEX + 24]; /* with a suffix when the job wants a compile of its own */
    struct jobs *jobs;
    struct stage stage;
    json_t *document; /* owned reference */
    struct proto_job spec;
    uid_t uid;            /* of the first member: pays */
    struct job **members; /* owned */
    size_t member_count;
    bool is_started; /* has a slot, or is past that */
    bool is_landing; /* publishing */
    struct worker *worker;
    uint64_t start_ms;
    struct store_op op;
    json_t *result;
    struct cache_package package;
    char package_path[4200];
    UT_hash_handle hh;
};

static struct flight *flight_of(struct store_op *op) {
    return (struct flight *)((char *)op - offsetof(struct flight, op));
}

static void flight_free(struct flight *f) {
    json_decref(f->document);
    json_decref(f->stage.document);
    json_decref(f->result);
    cache_package_done(&f->package);
    cleanup_close(&f->stage.fd);
    free(f->members);
    free(f);
}

/* The program is there: compile-only jobs are done, others wait for the device. */
static void go_on(struct jobs *js, struct job *j) {
    job_move(js, j, PROTO_STATE_COMPILED);
    if (!j->spec.options.run) {
        jobs_finish(js, j, NULL);
        return;
    }
    job_move(js, j, PROTO_STATE_WAITING_DEVICE);
}

static void give_package(struct flight *f, struct job *j, bool joined) {
    char hex[DIGEST_HEX + 1];
    digest_hex(&f->package.digest, hex);
    j->has_package = true;
    j->is_pinned = true;
    j->package = f->package.digest;
    strcpy(j->package_path, f->package_path);
    json_t *compile = job_report(j, "compile");
    json_object_set_new(compile, "digest", json_string(hex));
    json_object_set(
        json_object_get(compile, "cache"), "joined", joined ? json_true() : json_false());
    static const char *const parts[] = {"passes", "summary", "bytes"};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        json_t *part = json_object_get(f->result, parts[i]);
        if (part != NULL) {
            json_object_set(compile, parts[i], part);
        }
    }
}

static void flight_end(struct flight *f, const struct err *err) {
    struct jobs *js = f->jobs;
    HASH_DEL(js->flights, f);
    for (size_t i = 0; i < f->member_count; i++) {
        struct job *j = f->members[i];
        j->flight = NULL;
        if (err->code != 0) {
            jobs_finish(js, j, err);
        } else {
            give_package(f, j, i > 0);
            go_on(js, j);
        }
    }
    flight_free(f);
    jobs_pump(js);
}

/* ---- Publishing -------------------------------------------------------------------------- */

static char *package_info(const struct package *p, const json_t *result) {
    struct bindings in = {0};
    struct bindings out = {0};
    struct bindings par = {0};
    json_t *info = NULL;
    if (bindings_of_package(p, PACKAGE_INPUT, &in, NULL) == 0 &&
        bindings_of_package(p, PACKAGE_OUTPUT, &out, NULL) == 0 &&
        bindings_of_package(p, PACKAGE_PARAMETER, &par, NULL) == 0) {
        info = json_pack(
            "{s:s, s:s, s:s, s:i, s:o, s:o, s:o}", "target", p->target, "compiler", p->compiler_id,
            "options", p->options, "tiles", (int)p->compute_tiles, "inputs", bindings_json(&in),
            "outputs", bindings_json(&out), "parameters", bindings_json(&par));
    }
    const json_t *summary = json_object_get(result, "summary");
    if (info != NULL && summary != NULL) {
        json_object_set(info, "summary", (json_t *)summary);
    }
    char *text = info != NULL ? json_dumps(info, JSON_COMPACT) : NULL;
    json_decref(info);
    bindings_done(&in);
    bindings_done(&out);
    bindings_done(&par);
    return text;
}

/* Opens what the worker wrote as hostile data before anybody can be given it (C-10). */
static int verify_package(struct flight *f, const char *path, struct err *err) {
    const char *text = json_string_value(json_object_get(f->result, "digest"));
    struct digest claimed;
    if (text == NULL || !digest_parse(text, &claimed)) {
        return err_set(err, ERR_PROTOCOL, "the compile worker gave no digest");
    }
    struct package *p = NULL;
    int r = package_open(path, &claimed, &p, &f->package.digest, err);
    if (r < 0) {
        return err_wrap(err, "new package");
    }
    if (strncmp(f->key, p->key, DIGEST_HEX) != 0) {
        r = err_set(err, ERR_PROTOCOL, "the compile worker built another key than was asked");
    }
    memcpy(f->package.key, f->key, DIGEST_HEX);
    f->package.key[DIGEST_HEX] = '\0';
    f->package.info = package_info(p, f->result);
    package_free(p);
    return r == 0 && f->package.info == NULL ? err_set(err, ERR_NOMEM, NULL) : r;
}

static int publish_run(struct store_op *op, struct cache *c, struct err *err) {
    struct flight *f = flight_of(op);
    char name[96];
    char path[4400];
    snprintf(name, sizeof name, "staging/%s/package.ipuexe", f->stage.name);
    snprintf(path, sizeof path, "%s/%s", cache_dir(c), name);
    int r = verify_package(f, path, err);
    if (r < 0) {
        return r;
    }
    const json_t *bytes = json_object_get(f->result, "bytes");
    f->package.bytes = json_integer_value(bytes) > 0 ? (uint64_t)json_integer_value(bytes) : 0;
    f->package.is_imported = false;
    if ((r = cache_package_insert(c, name, &f->package, f->uid, err)) < 0) {
        return r;
    }
    cache_package_path(c, &f->package, f->package_path, sizeof f->package_path);
    char schedules[96];
    snprintf(schedules, sizeof schedules, "staging/%s/schedules.sqlite3", f->stage.name);
    cache_schedules_adopt(c, schedules);
    cache_staging_remove(c, f->stage.name);
    /* One pin for the flight, until the members have theirs. */
    return cache_package_pin(c, &f->package.digest, err);
}

struct pin_op {
    struct store_op op;
    struct digest digest;
    struct flight *flight;
    size_t n;
    uid_t *uids; /* owned */
};

static int pin_run(struct store_op *op, struct cache *c, struct err *err) {
    struct pin_op *p = (struct pin_op *)op;
    int r = 0;
    for (size_t i = 0; i < p->n && r == 0; i++) {
        r = cache_package_grant(c, &p->digest, p->uids[i], err);
        if (r == 0) {
            r = cache_package_pin(c, &p->digest, err);
        }
    }
    cache_package_unpin(c, &p->digest);
    return r;
}

static void pin_done(struct store_op *op) {
    struct pin_op *p = (struct pin_op *)op;
    if (op->result < 0) {
        log_error("flights", "members not recorded reason=\"%s\"", op->err.text);
    }
    free(p->uids);
    free(p);
}

/* Members go on at once: the store works in order, so their pins are taken before anything that
 * they ask of it later. */
static void pin_members(struct flight *f) {
    struct pin_op *p = calloc(1, sizeof *p);
    uid_t *uids = calloc(f->member_count + 1, sizeof *uids);
    if (p == NULL || uids == NULL) {
        free(p);
        free(uids);
        return; /* the flight's own pin stays: the package is safe, not evictable */
    }
    for (size_t i = 0; i < f->member_count; i++) {
        uids[i] = f->members[i]->uid;
    }
    p->op.run = pin_run;
    p->op.done = pin_done;
    p->digest = f->package.digest;
    p->n = f->member_count;
    p->uids = uids;
    store_submit(f->jobs->daemon->store, &p->op);
}

static void publish_done(struct store_op *op) {
    struct flight *f = flight_of(op);
    struct err err;
    err_clear(&err);
    if (op->result < 0) {
        err = op->err;
    } else {
        pin_members(f);
    }
    flight_end(f, &err);
}

/* ---- The worker -------------------------------------------------------------------------- */

static void compile_event(void *arg, const json_t *event) {
    struct flight *f = arg;
    const char *name = json_string_value(json_object_get(event, "event"));
    const char *message = json_string_value(json_object_get(event, "message"));
    const json_t *fields = json_object_get(event, "fields");
    for (size_t i = 0; i < f->member_count; i++) {
        job_event(
            f->jobs, f->members[i]->id, name, message != NULL ? message : name,
            json_is_object(fields) ? json_deep_copy(fields) : NULL);
    }
}

struct sweep_op {
    struct store_op op;
    char name[40];
};

static int sweep_run(struct store_op *op, struct cache *c, struct err *err) {
    cache_staging_remove(c, ((struct sweep_op *)op)->name);
    return 0;
}

static void sweep_done(struct store_op *op) {
    free(op);
}

static void sweep(struct flight *f) {
    struct sweep_op *s = calloc(1, sizeof *s);
    if (s != NULL) { /* else the next start sweeps */
        s->op.run = sweep_run;
        s->op.done = sweep_done;
        strcpy(s->name, f->stage.name);
        store_submit(f->jobs->daemon->store, &s->op);
    }
}

static void compile_done(void *arg, json_t *result, const struct err *err) {
    struct flight *f = arg;
    struct jobs *js = f->jobs;
    uint64_t took = monotonic_ms() - f->start_ms;
    js->workers--;
    js->daemon->counters.compile_ms += took;
    jobs_charge(js, f->uid, took);
    f->worker = NULL;
    f->result = result;
    if (result == NULL || f->member_count == 0) {
        sweep(f);
        flight_end(f, err);
        return;
    }
    f->is_landing = true;
    f->op.run = publish_run;
    f->op.done = publish_done;
    store_submit(js->daemon->store, &f->op);
}

static int flight_stage_run(struct store_op *op, struct cache *c, struct err *err) {
    struct flight *f = flight_of(op);
    f->stage.spec = &f->spec;
    f->stage.kind = "compile";
    return stage_run(&f->stage, c, false, err);
}

static void flight_stage_done(struct store_op *op) {
    struct flight *f = flight_of(op);
    struct jobs *js = f->jobs;
    struct err err = op->err;
    int r = op->result;
    if (r == 0 && f->member_count == 0) {
        r = err_set(&err, ERR_CANCELLED, NULL);
    }
    if (r == 0) {
        struct worker_order order = {
            .document = f->stage.document,
            .staging_fd = f->stage.fd,
            .total_ms = f->spec.limits.compile_ms,
            .no_progress_ms = js->daemon->config.no_progress_ms,
            .event = compile_event,
            .done = compile_done,
            .arg = f,
        };
        r = workers_start(js->daemon, &order, &f->worker, &err);
    }
    if (r < 0) {
        js->workers--;
        sweep(f);
        flight_end(f, &err);
    }
}

bool flights_start_one(struct jobs *js) {
    struct flight *f = js->flights;
    while (f != NULL && f->is_started) {
        f = f->hh.next;
    }
    if (f == NULL) {
        return false;
    }
    f->is_started = true;
    f->start_ms = monotonic_ms();
    js->workers++;
    f->op.run = flight_stage_run;
    f->op.done = flight_stage_done;
    store_submit(js->daemon->store, &f->op);
    return true;
}

/* ---- Members ----------------------------------------------------------------------------- */

static struct flight *flight_new(struct jobs *js, struct job *j, const char *key) {
    struct flight *f = calloc(1, sizeof *f);
    if (f == NULL) {
        return NULL;
    }
    strcpy(f->key, key);
    f->jobs = js;
    f->stage.fd = -1;
    snprintf(f->stage.name, sizeof f->stage.name, "flight-%llu", (unsigned long long)++js->serial);
    f->document = json_incref(j->document);
    f->spec = j->spec;
    f->uid = j->uid;
    HASH_ADD_STR(js->flights, key, f);
    return f;
}

void flights_join(struct jobs *js, struct job *j) {
    if (j->has_package) {
        go_on(js, j);
        return;
    }
    char key[sizeof((struct flight *)NULL)->key];
    snprintf(key, sizeof key, "%s", j->key);
    if (j->spec.options.cache == PROTO_CACHE_OFF) {
        snprintf(key, sizeof key, "%s#%llu", j->key, (unsigned long long)++js->serial);
    }
    struct flight *f = NULL;
    HASH_FIND_STR(js->flights, key, f);
    bool joined = f != NULL && !f->is_landing;
    if (f != NULL && f->is_landing) { /* its members are counted: fly alone, which is rare */
        snprintf(key, sizeof key, "%s#%llu", j->key, (unsigned long long)++js->serial);
        f = NULL;
    }
    if (f == NULL) {
        f = flight_new(js, j, key);
    }
    struct job **members =
        f != NULL ? reallocarray(f->members, f->member_count + 1, sizeof *members) : NULL;
    if (members == NULL) {
        struct err err;
        err_set(&err, ERR_NOMEM, NULL);
        jobs_finish(js, j, &err);
        return;
    }
    f->members = members;
    f->members[f->member_count++] = j;
    j->flight = f;
    j->is_joined = joined;
    js->daemon->counters.joined += joined;
    if (joined) {
        job_event(
            js, j->id, "compile.joined", "waiting for a compile of the same key",
            json_pack("{s:s}", "key", j->key));
    }
}

void flights_leave(struct jobs *js, struct job *j) {
    struct flight *f = j->flight;
    j->flight = NULL;
    for (size_t i = 0; i < f->member_count; i++) {
        if (f->members[i] == j) {
            memmove(
                &f->members[i], &f->members[i + 1],
                (f->member_count - i - 1) * sizeof f->members[0]);
            f->member_count--;
            break;
        }
    }
    if (f->member_count > 0) {
        return;
    }
    if (!f->is_started) {
        HASH_DEL(js->flights, f);
        flight_free(f);
    } else if (f->worker != NULL) {
        workers_kill(f->worker); /* ends in compile_done() */
    }
}

bool flights_busy(const struct jobs *js) {
    return js->flights != NULL;
}

void flights_drain(struct jobs *js) {
    for (struct flight *f = js->flights; f != NULL; f = f->hh.next) {
        if (f->worker != NULL) {
            workers_kill(f->worker);
        }
    }
}
