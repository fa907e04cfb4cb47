/* The table of jobs, turns of users, limits, changes of state and the end. Loops run over the
 * table, which PROTO_MAX_JOBS bounds. Steps are in steps.c, flights.c and runs.c. */
#include "daemon/jobs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/monotonic.h"

/* ---- Records ----------------------------------------------------------------------------- */

char *job_event_body(const char *event, const char *message, json_t *fields) {
    json_t *body = json_pack(
        "{s:s, s:s, s:o}", "event", event, "message", message, "fields",
        fields != NULL ? fields : json_object());
    char *text = body != NULL ? json_dumps(body, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(body);
    return text;
}

static int job_op_run(struct store_op *op, struct cache *c, struct err *err) {
    struct job_op *o = (struct job_op *)op;
    int64_t seq;
    int r = o->event != NULL ? cache_event_append(c, o->id, o->event, &seq, err) : 0;
    if (r == 0 && o->change.state_ms != 0) {
        r = cache_job_update(c, &o->change, err);
    }
    return r;
}

static void job_op_done(struct store_op *op) {
    struct job_op *o = (struct job_op *)op;
    if (op->result < 0 && op->result != -ERR_NOT_FOUND) {
        log_error("jobs", "record not written job=%s reason=\"%s\"", o->id, op->err.text);
        struct job *j = jobs_find(o->jobs, o->id);
        if (j != NULL) {
            jobs_cancel(o->jobs, j, (enum err_code) - op->result, op->err.text);
        }
    }
    jobs_notify(o->jobs, o->id);
    cache_job_done(&o->change);
    free(o->event);
    free(o);
}

static struct job_op *job_op_new(struct jobs *js, const char *id) {
    struct job_op *o = calloc(1, sizeof *o);
    if (o != NULL) {
        o->op.run = job_op_run;
        o->op.done = job_op_done;
        o->jobs = js;
        strcpy(o->id, id);
        strcpy(o->change.id, id);
    }
    return o;
}

void job_event(
    struct jobs *js, const char *id, const char *event, const char *message, json_t *fields) {
    struct job_op *o = job_op_new(js, id);
    if (o == NULL) {
        json_decref(fields);
        return;
    }
    o->event = job_event_body(event, message, fields);
    store_submit(js->daemon->store, &o->op);
}

void job_move(struct jobs *js, struct job *j, enum proto_state state) {
    struct job_op *o = job_op_new(js, j->id);
    enum proto_state from = j->state;
    j->state = state;
    log_info(
        "jobs", "job=%s alias=%lld uid=%d state=%s", j->id, (long long)j->alias, (int)j->uid,
        proto_state_name(state));
    if (o == NULL) {
        return;
    }
    o->change.state = strdup(proto_state_name(state));
    o->change.state_ms = daemon_wall_ms();
    if (!j->is_started && state == PROTO_STATE_COMPILING) {
        j->is_started = true;
        o->change.started_ms = o->change.state_ms;
    }
    o->event = job_event_body(
        "job.state", "job changed state",
        json_pack(
            "{s:s, s:s, s:s}", "state", proto_state_name(state), "from", proto_state_name(from),
            "boot", js->daemon->boot_id));
    store_submit(js->daemon->store, &o->op);
}

json_t *job_report(struct job *j, const char *part) {
    if (j->report == NULL) {
        j->report = json_object();
    }
    json_t *p = json_object_get(j->report, part);
    if (p == NULL) {
        p = json_object();
        json_object_set_new(j->report, part, p);
    }
    return p;
}

/* ---- Users and turns --------------------------------------------------------------------- */

struct user *jobs_user(struct jobs *js, uid_t uid) {
    struct user *u = NULL;
    HASH_FIND(hh, js->users, &uid, sizeof uid, u);
    if (u == NULL && (u = calloc(1, sizeof *u)) != NULL) {
        u->uid = uid;
        u->at_ms = monotonic_ms();
        HASH_ADD(hh, js->users, uid, sizeof u->uid, u);
    }
    return u;
}

static double user_used(struct user *u) {
    uint64_t now = monotonic_ms();
    u->used_ms *= exp2(-(double)(now - u->at_ms) / JOBS_HALF_LIFE_MS);
    u->at_ms = now;
    return u->used_ms;
}

void jobs_charge(struct jobs *js, uid_t uid, uint64_t ms) {
    struct user *u = jobs_user(js, uid);
    if (u != NULL) {
        user_used(u);
        u->used_ms += (double)ms;
    }
}

/* The next job in a state: the user with the least used time, what is under way counting as a
 * second each; among one user's jobs the oldest. */
static struct job *next_job(struct jobs *js, enum proto_state state) {
    struct job *best = NULL;
    double best_used = 0;
    struct user *seen = NULL;
    for (struct job *j = js->table; j != NULL; j = j->hh.next) {
        if (j->state != state || j->is_busy || j->is_finishing) {
            continue;
        }
        struct user *u = jobs_user(js, j->uid);
        double used = u != NULL && u != seen ? user_used(u) + 1000.0 * u->active : INFINITY;
        seen = u;
        if (best == NULL || used < best_used) {
            best = j;
            best_used = used;
        }
    }
    return best;
}

int jobs_admit(struct jobs *js, uid_t uid, struct err *err) {
    struct user *u = jobs_user(js, uid);
    if (u == NULL) {
        return err_set(err, ERR_NOMEM, NULL);
    }
    if (u->queued >= PROTO_MAX_USER_JOBS) {
        return err_set(
            err, ERR_QUOTA_JOBS, "%u jobs of uid %d have not ended, at most %d", u->queued,
            (int)uid, PROTO_MAX_USER_JOBS);
    }
    if (HASH_COUNT(js->table) >= PROTO_MAX_JOBS) {
        return err_set(
            err, ERR_QUEUE_FULL, "%u jobs have not ended, at most %d", HASH_COUNT(js->table),
            PROTO_MAX_JOBS);
    }
    return 0;
}

void jobs_pump(struct jobs *js) {
    struct daemon *d = js->daemon;
    if (js->is_pumping || d->is_draining) {
        return;
    }
    js->is_pumping = true;
    for (;;) {
        struct job *j = NULL;
        if (js->workers < js->worker_limit) {
            if ((j = next_job(js, PROTO_STATE_CHECKING)) != NULL) {
                runs_check(js, j);
                continue;
            }
            if (flights_start_one(js)) {
                continue;
            }
            if (!d->is_paused && js->active < JOBS_MAX_ACTIVE &&
                (j = next_job(js, PROTO_STATE_QUEUED)) != NULL) {
                steps_key(js, j);
                continue;
            }
        }
        if (js->running == NULL && !d->is_paused && runner_idle(d->runner) &&
            (j = next_job(js, PROTO_STATE_WAITING_DEVICE)) != NULL) {
            runs_start(js, j);
            continue;
        }
        break;
    }
    js->is_pumping = false;
}

/* ---- Life of a job ----------------------------------------------------------------------- */

struct job *jobs_find(struct jobs *js, const char *id) {
    struct job *j = NULL;
    int64_t alias;
    if (proto_alias_parse(id, &alias)) {
        for (j = js->table; j != NULL && j->alias != alias; j = j->hh.next) {
        }
        return j;
    }
    HASH_FIND_STR(js->table, id, j);
    return j;
}

static void job_free(struct job *j) {
    json_decref(j->document);
    json_decref(j->report);
    json_decref(j->cycles);
    bindings_done(&j->inputs);
    bindings_done(&j->outputs);
    bindings_done(&j->parameters);
    free(j);
}

void jobs_submitted(struct jobs *js, const struct cache_job *row, const struct proto_job *spec) {
    struct job *j = calloc(1, sizeof *j);
    struct user *u = jobs_user(js, row->uid);
    if (j == NULL || u == NULL) {
        free(j);
        log_error("jobs", "job waits for the next start: out of memory job=%s", row->id);
        return;
    }
    strcpy(j->id, row->id);
    j->alias = row->alias;
    j->uid = row->uid;
    j->state = strcmp(row->state, "held") == 0 ? PROTO_STATE_HELD : PROTO_STATE_QUEUED;
    j->created_ms = monotonic_ms();
    j->queue_limit_ms = spec->limits.queue_ms;
    HASH_ADD_STR(js->table, id, j);
    u->queued++;
    log_info(
        "jobs", "job=%s alias=%lld uid=%d state=%s", j->id, (long long)j->alias, (int)j->uid,
        row->state);
    jobs_notify(js, j->id);
}

int jobs_hold(struct jobs *js, struct job *j, struct err *err) {
    if (j->state == PROTO_STATE_QUEUED && !j->is_busy) {
        job_move(js, j, PROTO_STATE_HELD);
    } else if (j->state != PROTO_STATE_HELD) {
        return err_set(
            err, ERR_CONFLICT, "job %s is %s: only a queued job can be held", j->id,
            proto_state_name(j->state));
    }
    return 0;
}

int jobs_release(struct jobs *js, struct job *j, struct err *err) {
    if (j->state == PROTO_STATE_HELD) {
        job_move(js, j, PROTO_STATE_QUEUED);
        jobs_pump(js);
    } else if (j->state != PROTO_STATE_QUEUED) {
        return err_set(
            err, ERR_CONFLICT, "job %s is %s: only a held job can be released", j->id,
            proto_state_name(j->state));
    }
    return 0;
}

void jobs_cancel(struct jobs *js, struct job *j, enum err_code code, const char *why) {
    if (j->is_finishing || j->end.code != 0) {
        return;
    }
    err_set(&j->end, code, "%s", why);
    j->end_ms = monotonic_ms();
    if (!j->is_busy) {
        struct err end = j->end;
        jobs_finish(js, j, &end);
        jobs_pump(js);
        return;
    }
    job_move(js, j, PROTO_STATE_CANCELLING);
    if (j->worker != NULL) {
        workers_kill(j->worker);
    }
    if (j->task != NULL) {
        runner_cancel(js->daemon->runner, j->task, false);
    }
}

bool job_step_ends(struct jobs *js, struct job *j, const struct err *err) {
    j->is_busy = false;
    if (j->end.code != 0) {
        struct err end = j->end;
        jobs_finish(js, j, &end);
        return false;
    }
    if (err != NULL && err->code != 0) {
        jobs_finish(js, j, err);
        return false;
    }
    return true;
}

/* ---- The end ----------------------------------------------------------------------------- */

static enum proto_state end_state(const struct err *err) {
    if (err == NULL) {
        return PROTO_STATE_SUCCEEDED;
    }
    switch (err->code) {
    case ERR_CANCELLED: return PROTO_STATE_CANCELLED;
    case ERR_COMPILE_TIMEOUT:
    case ERR_RUN_TIMEOUT:
    case ERR_TIMEOUT: return PROTO_STATE_TIMED_OUT;
    case ERR_INTERRUPTED: return PROTO_STATE_INTERRUPTED;
    default: return PROTO_STATE_FAILED;
    }
}

struct finish_op {
    struct store_op op;
    struct jobs *jobs;
    struct job *job;
    struct cache_job change;
    char *event;
    bool adopt;
    bool unpin;
    bool is_damaged; /* the package: dropped, so that the next job compiles it anew */
    struct digest package;
    bool has_staging;
};

/* Outputs, state and event in one commit. The folder goes after the rest has worked; if
 * the commit then fails, outputs are blobs already and only their rows are missing. */
static int finish_run(struct store_op *op, struct cache *c, struct err *err) {
    struct finish_op *f = (struct finish_op *)op;
    int64_t seq;
    int r = f->adopt ? runs_adopt_outputs(c, f->change.id, f->change.uid, err) : 0;
    if (r < 0 || (r = cache_event_append(c, f->change.id, f->event, &seq, err)) < 0 ||
        (r = cache_job_update(c, &f->change, err)) < 0) {
        return r;
    }
    if (f->unpin) {
        cache_package_unpin(c, &f->package);
        f->unpin = false;
    }
    struct err why;
    if (f->is_damaged && cache_package_remove(c, &f->package, &why) < 0) {
        log_warning("jobs", "damaged package stays reason=\"%s\"", why.text); /* pinned by others */
    }
    if (f->has_staging) {
        cache_staging_remove(c, f->change.id);
    }
    return 0;
}

static void job_remove(struct jobs *js, struct job *j) {
    struct user *u = jobs_user(js, j->uid);
    if (u != NULL && u->queued > 0) {
        u->queued--;
    }
    HASH_DEL(js->table, j);
    if (j->is_started && js->active > 0) {
        js->active--;
    }
    job_free(j);
}

static void finish_done(struct store_op *op) {
    struct finish_op *f = (struct finish_op *)op;
    struct jobs *js = f->jobs;
    struct job *j = f->job;
    j->is_busy = false;
    j->is_finishing = false;
    j->is_pinned = f->unpin;
    if (op->result < 0 && op->result != -ERR_NOT_FOUND && op->result != -ERR_CONFLICT) {
        log_error("jobs", "end not stored job=%s reason=\"%s\"", j->id, op->err.text);
        /* Tried again by the tick, now as a failure, without the outputs that did not fit. */
        j->end = op->err;
        j->end_ms = monotonic_ms();
    } else {
        enum proto_state state;
        if (proto_state_parse(f->change.state, &state)) {
            js->daemon->counters.ended[state]++;
        }
        log_info(
            "jobs", "job=%s alias=%lld uid=%d state=%s", j->id, (long long)j->alias, (int)j->uid,
            f->change.state);
        char id[sizeof j->id];
        strcpy(id, j->id);
        job_remove(js, j);
        jobs_notify(js, id);
    }
    cache_job_done(&f->change);
    free(f->event);
    free(f);
    jobs_pump(js);
}

void jobs_finish(struct jobs *js, struct job *j, const struct err *err) {
    struct finish_op *f = calloc(1, sizeof *f);
    if (f == NULL) {
        err_set(&j->end, ERR_NOMEM, NULL); /* the tick tries again */
        return;
    }
    if (j->flight != NULL) {
        flights_leave(js, j);
    }
    if (err == NULL) {
        job_move(js, j, PROTO_STATE_STORING);
    }
    enum proto_state state = end_state(err);
    json_t *fields = json_pack(
        "{s:s, s:s, s:s}", "state", proto_state_name(state), "from", proto_state_name(j->state),
        "boot", js->daemon->boot_id);
    if (err != NULL) {
        struct err told = *err;
        f->is_damaged = err->code == ERR_PACKAGE_CORRUPT && j->is_pinned;
        if (f->is_damaged) {
            err_wrap(&told, "the stored package is damaged and has been dropped, submit again");
        }
        json_t *problem = proto_problem_print(&told, NULL, NULL);
        f->change.error = json_dumps(problem, JSON_COMPACT);
        json_object_set_new(fields, "error", problem);
    }
    f->op.run = finish_run;
    f->op.done = finish_done;
    f->jobs = js;
    f->job = j;
    strcpy(f->change.id, j->id);
    f->change.uid = j->uid;
    f->change.state = strdup(proto_state_name(state));
    f->change.state_ms = daemon_wall_ms();
    f->change.finished_ms = f->change.state_ms;
    f->change.report =
        j->report != NULL ? json_dumps(j->report, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    f->event = job_event_body("job.state", "job ended", fields);
    f->adopt = j->outputs.count > 0 && j->end.code != ERR_DISK_FULL && j->end.code != ERR_IO;
    f->unpin = j->is_pinned;
    f->package = j->package;
    f->has_staging = j->has_staging;
    j->is_busy = true;
    j->is_finishing = true;
    store_submit(js->daemon->store, &f->op);
}

/* ---- Waiting ----------------------------------------------------------------------------- */

void jobs_wait(struct jobs *js, struct waiter *w) {
    TAILQ_INSERT_TAIL(&js->waiters, w, link);
}

void jobs_unwait(struct jobs *js, struct waiter *w) {
    TAILQ_REMOVE(&js->waiters, w, link);
}

void jobs_notify(struct jobs *js, const char *id) {
    struct waiter *next;
    for (struct waiter *w = TAILQ_FIRST(&js->waiters); w != NULL; w = next) {
        next = TAILQ_NEXT(w, link);
        if (strcmp(w->id, id) == 0) {
            TAILQ_REMOVE(&js->waiters, w, link);
            w->wake(w, WAKE_CHANGED);
        }
    }
}

static void wake_late(struct jobs *js, bool all) {
    uint64_t now = monotonic_ms();
    struct waiter *next;
    for (struct waiter *w = TAILQ_FIRST(&js->waiters); w != NULL; w = next) {
        next = TAILQ_NEXT(w, link);
        if (all || now >= w->deadline_ms) {
            TAILQ_REMOVE(&js->waiters, w, link);
            w->wake(w, all ? WAKE_STOP : WAKE_TIMEOUT);
        }
    }
}

json_t *jobs_reason(struct jobs *js, const struct job *j) {
    struct daemon *d = js->daemon;
    unsigned ahead = 0;
    for (const struct job *other = js->table; other != NULL && other != j; other = other->hh.next) {
        ahead += other->state == j->state;
    }
    struct runner_status device;
    runner_status(d->runner, &device);
    const char *code = NULL;
    const char *detail = device.detail;
    if (j->state == PROTO_STATE_HELD) {
        code = "held";
        detail = "held by its owner";
    } else if (d->is_draining) {
        code = "draining";
        detail = "the daemon is stopping";
    } else if (
        d->is_paused &&
        (j->state == PROTO_STATE_QUEUED || j->state == PROTO_STATE_WAITING_DEVICE)) {
        code = "paused_by_operator";
        detail = d->pause_reason;
    } else if (j->state == PROTO_STATE_QUEUED) {
        code = ahead > 0 ? "ahead_of_you" : "compile_slots";
        detail = ahead > 0 ? "other jobs go first" : "all compile workers are busy";
    } else if (j->state == PROTO_STATE_COMPILING && j->is_joined && j->flight != NULL) {
        code = "same_key_compiling";
        detail = "the program is being compiled";
    } else if (j->state == PROTO_STATE_WAITING_DEVICE) {
        static const char *const codes[] = {
            "device_busy", "device_absent", "device_busy", "device_busy", "device_failed"};
        code = codes[device.state];
        detail = device.detail[0] != '\0' ? device.detail : "another job runs";
    }
    return code != NULL ? json_pack(
                              "{s:s, s:s, s:i, s:i}", "code", code, "detail", detail, "position",
                              (int)ahead + 1, "ahead", (int)ahead)
                        : NULL;
}

/* ---- Time -------------------------------------------------------------------------------- */

static void tick_job(struct jobs *js, struct job *j, uint64_t now) {
    if (j->end.code != 0 && !j->is_busy) {
        struct err end = j->end;
        jobs_finish(js, j, &end);
    } else if (
        j->end.code != 0 && j->task != NULL && !j->is_stopped_hard &&
        now - j->end_ms > JOBS_CANCEL_MS) {
        j->is_stopped_hard = true;
        runner_cancel(js->daemon->runner, j->task, true);
    } else if (j->queue_limit_ms > 0 && !j->is_started && now - j->created_ms > j->queue_limit_ms) {
        jobs_cancel(js, j, ERR_TIMEOUT, "the job waited longer than limits.queue_ms");
    }
}

void jobs_tick(struct jobs *js) {
    uint64_t now = monotonic_ms();
    struct job *next;
    for (struct job *j = js->table; j != NULL; j = next) {
        next = j->hh.next;
        tick_job(js, j, now);
    }
    wake_late(js, false);
    jobs_pump(js);
}

struct forget_op {
    struct store_op op;
    uint64_t before_ms;
};

static int forget_run(struct store_op *op, struct cache *c, struct err *err) {
    return cache_job_forget(c, ((struct forget_op *)op)->before_ms, err);
}

static void forget_done(struct store_op *op) {
    free(op);
}

void jobs_forget(struct jobs *js) {
    uint64_t keep_ms = js->daemon->config.keep_hours * 3600000;
    struct forget_op *f = keep_ms > 0 ? calloc(1, sizeof *f) : NULL;
    if (f != NULL) {
        f->op.run = forget_run;
        f->op.done = forget_done;
        f->before_ms = daemon_wall_ms() - keep_ms;
        store_submit(js->daemon->store, &f->op);
    }
}

void jobs_drain(struct jobs *js) {
    struct job *next;
    for (struct job *j = js->table; j != NULL; j = next) {
        next = j->hh.next;
        if (j->is_started) {
            jobs_cancel(js, j, ERR_INTERRUPTED, "the daemon stopped");
        }
    }
    flights_drain(js);
    wake_late(js, true);
}

unsigned jobs_busy(const struct jobs *js) {
    unsigned busy = flights_busy(js) ? 1 : 0;
    for (const struct job *j = js->table; j != NULL; j = j->hh.next) {
        busy += j->is_busy;
    }
    return busy;
}

/* ---- Opening ----------------------------------------------------------------------------- */

struct recover {
    struct jobs *jobs;
    unsigned damaged;
};

static int recover_job(const struct cache_job *row, void *arg) {
    struct recover *r = arg;
    json_t *document = NULL;
    struct proto_job spec;
    struct err err;
    if (proto_json_parse(row->document, strlen(row->document), &document, &err) < 0 ||
        proto_job_parse(document, &spec, &err) < 0) {
        r->damaged++;
        log_error("jobs", "record cannot be read job=%s reason=\"%s\"", row->id, err.text);
    } else {
        jobs_submitted(r->jobs, row, &spec);
    }
    json_decref(document);
    return 0;
}

static int by_alias(const struct job *a, const struct job *b) {
    return a->alias < b->alias ? -1 : a->alias > b->alias;
}

static int recover(struct jobs *js, struct cache *c, struct err *err) {
    static const char *const states[] = {"queued", "held"};
    struct err why;
    err_set(&why, ERR_INTERRUPTED, "the daemon ended while the job was active");
    json_t *problem = proto_problem_print(&why, NULL, NULL);
    CLEANUP(cleanup_free) char *text = json_dumps(problem, JSON_COMPACT);
    CLEANUP(cleanup_free)
    char *event = job_event_body(
        "job.state", "job was interrupted by a restart of the daemon",
        json_pack(
            "{s:s, s:s, s:s, s:o}", "state", "interrupted", "cause", "daemon_restarted", "boot",
            js->daemon->boot_id, "error", problem));
    uint64_t count = 0;
    int r = text == NULL || event == NULL ? err_set(err, ERR_NOMEM, NULL) : cache_begin(c, err);
    if (r == 0) {
        r = cache_job_recover(c, text, event, &count, err);
    }
    struct recover state = {js, 0};
    for (size_t i = 0; i < 2 && r == 0; i++) {
        r = cache_job_list(c, 0, true, states[i], 0, PROTO_MAX_JOBS, recover_job, &state, err);
    }
    HASH_SORT(js->table, by_alias);
    for (int s = PROTO_STATE_SUCCEEDED; s < PROTO_STATE_COUNT && r == 0; s++) {
        r = cache_job_count(
            c, proto_state_name((enum proto_state)s), &js->daemon->counters.ended[s], err);
    }
    if (r == 0) {
        r = cache_commit(c, err);
    } else {
        cache_rollback(c);
    }
    if (r == 0 && (count > 0 || HASH_COUNT(js->table) > 0)) {
        log_notice(
            "jobs", "recovered queued=%u interrupted=%llu damaged=%u", HASH_COUNT(js->table),
            (unsigned long long)count, state.damaged);
    }
    return r;
}

int jobs_open(struct daemon *d, struct jobs **ret, struct err *err) {
    struct jobs *js = calloc(1, sizeof *js);
    if (js == NULL) {
        return err_set(err, ERR_NOMEM, NULL);
    }
    js->daemon = d;
    TAILQ_INIT(&js->waiters);
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    js->worker_limit = d->config.workers > 0 ? (unsigned)d->config.workers
                                             : (unsigned)(processors > 0 ? processors : 1);
    int r = recover(js, store_cache(d->store), err);
    if (r < 0) {
        jobs_close(js);
        return r;
    }
    *ret = js;
    return 0;
}

void jobs_close(struct jobs *js) {
    if (js == NULL) {
        return;
    }
    struct job *j;
    struct job *next_j;
    HASH_ITER(hh, js->table, j, next_j) {
        HASH_DEL(js->table, j);
        job_free(j);
    }
    struct user *u;
    struct user *next_u;
    HASH_ITER(hh, js->users, u, next_u) {
        HASH_DEL(js->users, u);
        free(u);
    }
    free(js);
}
