/* The device step and the check. The device thread's letters arrive here: events become the
 * job's, outputs go to the store as they come (bytes into staging, one event an output), and the
 * end leads to the check or to the end of the job. */
#include <stdlib.h>
#include <string.h>

#include <openssl/evp.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/monotonic.h"
#include "daemon/jobs.h"

/* ---- Outputs (store thread) -------------------------------------------------------------- */

struct output_op {
    struct store_op op;
    struct jobs *jobs;
    struct run_output *output;
    char id[PROTO_ID_CHARS + 1];
    const struct bindings *outputs; /* the job's: it is busy until its task is done */
};

static int
output_one(struct output_op *o, struct cache *c, size_t i, const uint8_t *bytes, struct err *err) {
    const struct binding *b = &o->outputs->items[i];
    const struct run_output *run = o->output;
    char file[32];
    snprintf(file, sizeof file, "out.%zu", i);
    int r = cache_staging_append(c, o->id, file, bytes, b->bytes, err);
    json_t *shape = shape_json(&b->shape);
    CLEANUP(cleanup_free) char *shape_text = json_dumps(shape, JSON_COMPACT);
    json_t *fields = json_pack(
        "{s:s, s:i, s:I, s:s, s:o, s:I}", "name", b->name, "ordinal", (int)i, "run",
        (json_int_t)run->run, "dtype", dtype_name(b->dtype), "shape", shape, "bytes",
        (json_int_t)b->bytes);
    if (run->cycles > 0) {
        json_object_set_new(fields, "cycles", json_integer((json_int_t)run->cycles));
    }
    if (b->bytes <= PROTO_INLINE_BYTES) {
        CLEANUP(cleanup_free) char *text = malloc((b->bytes + 2) / 3 * 4 + 1);
        if (text != NULL) {
            EVP_EncodeBlock((unsigned char *)text, bytes, (int)b->bytes);
            json_object_set_new(fields, "data", json_string(text));
        }
    } else {
        char ref[96];
        snprintf(
            ref, sizeof ref, "/v1/jobs/%s/outputs/%zu?run=%llu", o->id, i,
            (unsigned long long)run->run);
        json_object_set_new(fields, "ref", json_string(ref));
    }
    CLEANUP(cleanup_free) char *body = job_event_body("output", "output of a run", fields);
    if (r == 0 && (shape_text == NULL || body == NULL)) {
        r = err_set(err, ERR_NOMEM, NULL);
    }
    struct cache_output row = {
        .ordinal = (int)i,
        .name = b->name,
        .dtype = dtype_name(b->dtype),
        .shape = shape_text,
        .run_bytes = b->bytes,
        .runs = run->run + 1};
    int64_t seq;
    if (r < 0 || (r = cache_output_put(c, o->id, &row, err)) < 0) {
        return r;
    }
    return run->run < PROTO_MAX_EVENTS / (i + 1) ? cache_event_append(c, o->id, body, &seq, err)
                                                 : 0;
}

static int output_run(struct store_op *op, struct cache *c, struct err *err) {
    struct output_op *o = (struct output_op *)op;
    const uint8_t *bytes = o->output->bytes;
    for (size_t i = 0; i < o->outputs->count; i++) {
        int r = output_one(o, c, i, bytes, err);
        if (r < 0) {
            return r;
        }
        bytes += o->outputs->items[i].bytes;
    }
    return 0;
}

static void output_done(struct store_op *op) {
    struct output_op *o = (struct output_op *)op;
    struct job *j = jobs_find(o->jobs, o->id);
    if (op->result < 0 && j != NULL) {
        jobs_cancel(o->jobs, j, (enum err_code) - op->result, op->err.text);
    }
    jobs_notify(o->jobs, o->id);
    run_output_free(o->output);
    free(o);
}

struct adopt {
    struct cache_output rows[64];
    size_t count;
};

static int adopt_row(const struct cache_output *row, void *arg) {
    struct adopt *a = arg;
    if (!row->has_blob && a->count < sizeof a->rows / sizeof a->rows[0]) {
        struct cache_output *copy = &a->rows[a->count++];
        *copy = *row;
        copy->name = strdup(row->name);
        copy->dtype = strdup(row->dtype);
        copy->shape = strdup(row->shape);
    }
    return 0;
}

static int
adopt_some(struct cache *c, const char *id, uid_t uid, size_t *ret_count, struct err *err) {
    struct adopt a;
    memset(&a, 0, sizeof a);
    int r = cache_output_list(c, id, adopt_row, &a, err);
    for (size_t i = 0; i < a.count; i++) {
        char path[96];
        uint64_t bytes;
        snprintf(path, sizeof path, "staging/%s/out.%d", id, a.rows[i].ordinal);
        if (r == 0 && (r = cache_blob_adopt(c, path, uid, &a.rows[i].blob, &bytes, err)) == 0 &&
            (r = cache_job_pin_blob(c, id, &a.rows[i].blob, err)) == 0) {
            a.rows[i].has_blob = true;
            r = cache_output_put(c, id, &a.rows[i], err);
        }
        free((char *)a.rows[i].name);
        free((char *)a.rows[i].dtype);
        free((char *)a.rows[i].shape);
    }
    *ret_count = a.count;
    return r;
}

/* In portions, because a statement's rows are gone once another of them is changed. */
int runs_adopt_outputs(struct cache *c, const char *id, uid_t uid, struct err *err) {
    size_t count = 0;
    int r;
    do {
        r = adopt_some(c, id, uid, &count, err);
    } while (r == 0 && count > 0);
    return r;
}

/* ---- The device's letters ---------------------------------------------------------------- */

static void task_event(struct run_task *t, const char *event, const char *message, json_t *fields) {
    struct jobs *js = t->arg;
    struct job *j = jobs_find(js, t->id);
    if (j == NULL) {
        json_decref(fields);
        return;
    }
    if (strcmp(event, "run.start") == 0) {
        if (j->state == PROTO_STATE_LOADING) {
            job_move(js, j, PROTO_STATE_RUNNING);
        }
        if (fields == NULL || json_object_size(fields) == 0) {
            json_decref(fields);
            fields = json_pack("{s:I}", "runs", (json_int_t)t->runs);
        }
    } else if (fields != NULL) {
        json_object_set_new(fields, "scope", json_string("device"));
    }
    job_event(js, t->id, event, message, fields);
}

static void task_output(struct run_output *output) {
    struct jobs *js = output->task->arg;
    struct job *j = jobs_find(js, output->task->id);
    struct output_op *o = j != NULL ? calloc(1, sizeof *o) : NULL;
    if (o == NULL) {
        if (j != NULL) {
            jobs_cancel(js, j, ERR_NOMEM, "outputs could not be kept");
        }
        run_output_free(output);
        return;
    }
    json_array_append_new(
        j->cycles, output->cycles > 0 ? json_integer((json_int_t)output->cycles) : json_null());
    o->op.run = output_run;
    o->op.done = output_done;
    o->jobs = js;
    o->output = output;
    o->outputs = &j->outputs;
    strcpy(o->id, j->id);
    store_submit(js->daemon->store, &o->op);
}

/* Runs behind all output operations, so their bytes and bindings are no longer in use. */
struct after_op {
    struct store_op op;
    struct jobs *jobs;
    struct run_task *task;
};

static int after_run(struct store_op *op, struct cache *c, struct err *err) {
    return 0;
}

static void after_done(struct store_op *op) {
    struct after_op *a = (struct after_op *)op;
    struct jobs *js = a->jobs;
    struct run_task *t = a->task;
    free(a);
    struct job *j = jobs_find(js, t->id);
    struct err err = t->err;
    bool failed = t->result < 0;
    run_task_free(t);
    if (j == NULL) {
        return;
    }
    if (job_step_ends(js, j, failed ? &err : NULL)) {
        if (j->spec.options.check) {
            job_move(js, j, PROTO_STATE_CHECKING);
        } else {
            jobs_finish(js, j, NULL);
        }
    }
    jobs_pump(js);
}

/* The hardware test of the reference's log: completion word, no exception, every tile reported. */
static void report_hardware(struct jobs *js, struct job *j, const struct run_task *t) {
    char package[8 + DIGEST_HEX] = "sha256:";
    digest_hex(&t->package, package + 7);
    json_t *fields = json_pack(
        "{s:s, s:I, s:I, s:s}", "package", package, "tiles", (json_int_t)t->quiet_tiles,
        "completed", (json_int_t)t->completed_tiles, "hardwareTest", "PASS");
    json_object_set_new(json_object_get(j->report, "run"), "hardware_test", json_true());
    job_event(js, j->id, "result.hardware", "hardware test", fields);
}

static void task_done(struct run_task *t) {
    struct jobs *js = t->arg;
    struct job *j = jobs_find(js, t->id);
    js->running = NULL;
    uint64_t took = monotonic_ms() - (j != NULL ? j->step_ms : monotonic_ms());
    js->daemon->counters.run_ms += took;
    if (j != NULL) {
        j->task = NULL;
        jobs_charge(js, j->uid, took);
        struct user *u = jobs_user(js, j->uid);
        if (u != NULL && u->active > 0) {
            u->active--;
        }
        json_t *run = job_report(j, "run");
        json_object_set_new(run, "runs", json_integer((json_int_t)t->runs_done));
        json_object_set_new(run, "loaded", json_boolean(t->is_loaded));
        json_object_set_new(run, "initialized", json_boolean(t->is_loaded));
        json_object_set_new(run, "load_ms", json_integer((json_int_t)(t->load_ns / 1000000)));
        json_object_set_new(run, "elapsed_ms", json_integer((json_int_t)took));
        json_object_set_new(run, "device_ns", json_integer((json_int_t)t->elapsed_ns));
        json_object_set(run, "device_cycles", j->cycles);
        if (t->postmortem != NULL) {
            json_object_set(j->report, "postmortem", t->postmortem); /* job_report() made it */
        }
        profiles_store(js, j, t);
        if (t->completed_tiles > 0) {
            report_hardware(js, j, t);
        }
    }
    struct after_op *a = calloc(1, sizeof *a);
    if (a == NULL) { /* cannot wait for the store: keep the task, end the job by the tick */
        log_error("runs", "out of memory job=%s", t->id);
        return;
    }
    a->op.run = after_run;
    a->op.done = after_done;
    a->jobs = js;
    a->task = t;
    store_submit(js->daemon->store, &a->op);
    jobs_pump(js);
}

static int copy_bindings(const struct bindings *from, struct bindings *ret) {
    ret->items = calloc(from->count + 1, sizeof *ret->items);
    if (ret->items == NULL) {
        return -1;
    }
    ret->count = from->count;
    if (from->count > 0) {
        memcpy(ret->items, from->items, from->count * sizeof *ret->items);
    }
    return 0;
}

void runs_start(struct jobs *js, struct job *j) {
    struct daemon *d = js->daemon;
    struct run_task *t = calloc(1, sizeof *t);
    j->cycles = j->cycles != NULL ? j->cycles : json_array();
    if (t == NULL || copy_bindings(&j->inputs, &t->inputs) < 0 ||
        copy_bindings(&j->parameters, &t->parameters) < 0 || j->cycles == NULL ||
        asprintf(&t->blob_dir, "%s/blobs", cache_dir(store_cache(d->store))) < 0) {
        run_task_free(t);
        struct err err;
        err_set(&err, ERR_NOMEM, NULL);
        jobs_finish(js, j, &err);
        return;
    }
    strcpy(t->id, j->id);
    t->uid = j->uid;
    strcpy(t->package_path, j->package_path);
    t->package = j->package;
    t->runs = j->runs;
    t->profile_run = (uint64_t)j->spec.options.profile_run;
    t->timeout_ns = j->spec.limits.run_ms * 1000000;
    t->event = task_event;
    t->output = task_output;
    t->done = task_done;
    t->arg = js;
    j->task = t;
    j->is_busy = true;
    j->step_ms = monotonic_ms();
    js->running = j;
    struct user *u = jobs_user(js, j->uid);
    if (u != NULL) {
        u->active++;
    }
    job_move(js, j, PROTO_STATE_LOADING);
    runner_submit(d->runner, t);
}

/* ---- The check --------------------------------------------------------------------------- */

struct check_op {
    struct store_op op;
    struct jobs *jobs;
    struct job *job;
    struct stage stage;
    json_t *check; /* owned */
};

static void check_free(struct check_op *o) {
    json_decref(o->stage.document);
    json_decref(o->check);
    cleanup_close(&o->stage.fd);
    free(o);
}

/* Slots and turns are given back in one place. */
static void check_end(struct check_op *o, const struct err *err) {
    struct jobs *js = o->jobs;
    struct job *j = o->job;
    check_free(o);
    j->worker = NULL;
    js->workers--;
    jobs_charge(js, j->uid, monotonic_ms() - j->step_ms);
    if (job_step_ends(js, j, err)) {
        jobs_finish(js, j, NULL);
    }
    jobs_pump(js);
}

static void check_done(void *arg, json_t *result, const struct err *err) {
    struct check_op *o = arg;
    struct err verdict = *err;
    if (result != NULL) {
        json_t *report = job_report(o->job, "check");
        static const char *const parts[] = {"pass", "max_abs_error", "outputs"};
        for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
            json_t *part = json_object_get(result, parts[i]);
            if (part != NULL) {
                json_object_set(report, parts[i], part);
            }
        }
        if (!json_is_true(json_object_get(result, "pass"))) {
            err_set(
                &verdict, ERR_CHECK_FAILED, "the largest error is %g; report.check has more",
                json_number_value(json_object_get(result, "max_abs_error")));
        }
        job_event(
            o->jobs, o->job->id, "check.done", "compared with the reference",
            json_deep_copy(report));
        job_event(
            o->jobs, o->job->id, "result.numeric", "numeric test",
            json_pack(
                "{s:O, s:s}", "referenceMaximumAbsoluteError",
                json_object_get(report, "max_abs_error"), "numericalTest",
                verdict.code == 0 ? "PASS" : "FAIL"));
        json_decref(result);
    }
    check_end(o, &verdict);
}

static json_t *check_document(const struct job *j) {
    json_t *inputs = json_object();
    json_t *outputs = json_object();
    for (size_t i = 0; i < j->inputs.count; i++) {
        const struct binding *b = &j->inputs.items[i];
        char blob[8 + DIGEST_HEX] = "sha256:";
        digest_hex(&b->blob, blob + 7);
        json_object_set_new(
            inputs, b->name,
            json_pack(
                "{s:s, s:I, s:I}", "blob", blob, "offset", (json_int_t)b->offset, "bytes",
                (json_int_t)b->source_bytes));
    }
    for (size_t i = 0; i < j->outputs.count; i++) {
        const struct binding *b = &j->outputs.items[i];
        char file[32];
        snprintf(file, sizeof file, "out.%zu", i);
        json_object_set_new(
            outputs, b->name,
            json_pack(
                "{s:s, s:I, s:I}", "file", file, "offset", (json_int_t)0, "bytes",
                (json_int_t)(b->bytes * j->runs)));
    }
    return json_pack(
        "{s:I, s:o, s:o}", "runs", (json_int_t)j->runs, "inputs", inputs, "outputs", outputs);
}

static int check_run(struct store_op *op, struct cache *c, struct err *err) {
    struct check_op *o = (struct check_op *)op;
    o->stage.kind = "reference";
    int r = stage_run(&o->stage, c, true, err);
    for (size_t i = 0; i < o->job->inputs.count && r == 0; i++) {
        r = cache_staging_link(c, o->stage.fd, &o->job->inputs.items[i].blob, err);
    }
    for (size_t i = 0; i < o->job->parameters.count && r == 0; i++) {
        r = cache_staging_link(c, o->stage.fd, &o->job->parameters.items[i].blob, err);
    }
    if (r == 0) {
        json_object_set(o->stage.document, "check", o->check);
    }
    return r;
}

static void check_staged(struct store_op *op) {
    struct check_op *o = (struct check_op *)op;
    struct jobs *js = o->jobs;
    struct job *j = o->job;
    struct err err = op->err;
    int r = op->result;
    if (r == 0 && j->end.code != 0) {
        err = j->end;
        r = -err.code;
    }
    if (r == 0) {
        struct worker_order order = {
            .document = o->stage.document,
            .staging_fd = o->stage.fd,
            .total_ms = j->spec.limits.compile_ms,
            .no_progress_ms = js->daemon->config.no_progress_ms,
            .done = check_done,
            .arg = o,
        };
        r = workers_start(js->daemon, &order, &j->worker, &err);
    }
    if (r < 0) {
        check_end(o, &err);
    }
}

void runs_check(struct jobs *js, struct job *j) {
    struct check_op *o = calloc(1, sizeof *o);
    json_t *check = o != NULL ? check_document(j) : NULL;
    if (check == NULL) {
        free(o);
        struct err err;
        err_set(&err, ERR_NOMEM, NULL);
        jobs_finish(js, j, &err);
        return;
    }
    o->op.run = check_run;
    o->op.done = check_staged;
    o->jobs = js;
    o->job = j;
    o->stage.fd = -1;
    o->stage.spec = &j->spec;
    snprintf(o->stage.name, sizeof o->stage.name, "%s", j->id);
    o->check = check;
    js->workers++;
    j->is_busy = true;
    j->step_ms = monotonic_ms();
    store_submit(js->daemon->store, &o->op);
}
