/* The key step: stage the job's blobs, let a worker name the graph, bind inputs and weights, look
 * the key up. A job on a package skips the worker: its bindings are in the package. What goes to
 * the store thread is one operation each; the job is busy from the start to the last answer. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/monotonic.h"
#include "base/npy.h"
#include "daemon/jobs.h"

static void json_cleanup(json_t **j) {
    json_decref(*j);
}

/* ---- Staging (store thread) -------------------------------------------------------------- */

json_t *steps_document(const char *kind, const json_t *model, const struct proto_job *spec) {
    json_t *d = json_pack(
        "{s:s, s:O, s:{s:I, s:s, s:s, s:s, s:I}}", "kind", kind, "model", model, "options", "tiles",
        (json_int_t)spec->options.tiles, "accumulate", spec->options.accumulate, "profile",
        spec->options.profile, "repeat", spec->options.repeat, "seed",
        (json_int_t)spec->options.seed);
    json_object_set_new(
        d, "files", spec->files != NULL ? json_deep_copy(spec->files) : json_object());
    return d;
}

struct link_state {
    struct cache *cache;
    int fd;
    struct err *err;
};

static int link_blob(const struct digest *blob, const char *pointer, void *arg) {
    struct link_state *s = arg;
    int r = cache_staging_link(s->cache, s->fd, blob, s->err);
    return r < 0 ? err_where(s->err, "%s", pointer) : 0;
}

/* The whole of a blob as JSON: a model that was uploaded. */
static int blob_json(struct cache *c, const struct digest *blob, json_t **ret, struct err *err) {
    CLEANUP(cleanup_close) int fd = -1;
    uint64_t bytes = 0;
    int r = cache_blob_open(c, blob, &fd, &bytes, err);
    if (r < 0) {
        return r;
    }
    if (bytes > PROTO_MAX_MODEL_BYTES) {
        return err_at(
            err, ERR_TOO_LARGE, "/model/blob", "model of %llu bytes, at most %u",
            (unsigned long long)bytes, PROTO_MAX_MODEL_BYTES);
    }
    CLEANUP(cleanup_free) char *text = malloc(bytes + 1);
    if (text == NULL) {
        return err_set(err, ERR_NOMEM, NULL);
    }
    for (uint64_t at = 0; at < bytes;) {
        ssize_t n = pread(fd, text + at, bytes - at, (off_t)at);
        if (n <= 0) {
            return err_sys(err, ERR_IO, n < 0 ? errno : EIO, "blob of the model");
        }
        at += (uint64_t)n;
    }
    r = proto_json_parse(text, bytes, ret, err);
    if (r == 0 && !json_is_object(*ret)) {
        json_decref(*ret);
        r = err_at(err, ERR_BAD_GRAPH, "/model/blob", "the model is no JSON object");
    }
    return r;
}

int stage_run(struct stage *s, struct cache *c, bool keep, struct err *err) {
    CLEANUP(cleanup_close) int fd = -1;
    int r = 0;
    if (keep) {
        char path[64];
        snprintf(path, sizeof path, "staging/%s", s->name);
        fd = openat(cache_dir_fd(c), path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        r = fd < 0 ? err_sys(err, ERR_IO, errno, "%s", path) : 0;
    } else {
        r = cache_staging_make(c, s->name, &fd, err);
    }
    struct link_state links = {c, fd, err};
    if (r < 0 || (r = proto_job_blobs(s->spec, link_blob, &links)) < 0) {
        return r;
    }
    if (s->kind != NULL && strcmp(s->kind, "compile") == 0) {
        cache_schedules_copy(c, fd);
    }
    CLEANUP(json_cleanup) json_t *read_model = NULL;
    const json_t *model = s->spec->model;
    if (s->spec->has_model_blob) {
        if ((r = blob_json(c, &s->spec->model_blob, &read_model, err)) < 0) {
            return r;
        }
        model = read_model;
    }
    if (model != NULL && s->kind != NULL) {
        s->document = steps_document(s->kind, model, s->spec);
        if (s->document == NULL) {
            return err_set(err, ERR_NOMEM, NULL);
        }
    }
    s->fd = TAKE_FD(fd);
    return 0;
}

/* ---- Binding (store thread) -------------------------------------------------------------- */

struct step_op {
    struct store_op op;
    struct jobs *jobs;
    struct job *job;
    bool is_read; /* document and spec below were read by this operation */
    json_t *document;
    struct proto_job spec;
    struct stage stage;
    json_t *result; /* of the worker, owned */
    struct bindings inputs, outputs, parameters;
    uint64_t runs;
    char key[DIGEST_HEX + 1];
    bool is_hit;
    struct cache_package package; /* info is not kept */
    char package_path[4200];
};

static int adopt_staged(
    struct step_op *s, struct cache *c, struct bindings *b, const char *file, struct err *err) {
    bool wanted = false;
    for (size_t i = 0; i < b->count; i++) {
        wanted = wanted || (b->items[i].is_staged && strcmp(b->items[i].staged, file) == 0);
    }
    if (!wanted) {
        return 0;
    }
    char path[96];
    snprintf(path, sizeof path, "staging/%s/%s", s->job->id, file);
    struct digest blob;
    uint64_t bytes;
    int r = cache_blob_adopt(c, path, s->job->uid, &blob, &bytes, err);
    if (r < 0 || (r = cache_job_pin_blob(c, s->job->id, &blob, err)) < 0) {
        return r;
    }
    for (size_t i = 0; i < b->count; i++) {
        if (b->items[i].is_staged && strcmp(b->items[i].staged, file) == 0) {
            b->items[i].is_staged = false;
            b->items[i].blob = blob;
        }
    }
    return 0;
}

static int shape_error(
    const struct binding *b, const struct shape *got, const char *why, const char *pointer,
    struct err *err) {
    char want[96];
    char have[96];
    return err_at(
        err, ERR_INPUT, pointer,
        "'%s': %s: got %s, the model has %s; its first axis may be a multiple", b->name, why,
        shape_print(got, have, sizeof have), shape_print(&b->shape, want, sizeof want));
}

/* Runs that a tensor of shape `got` makes: its first axis is k times the model's. */
static int count_runs(
    const struct binding *b, const struct shape *got, const char *pointer, uint64_t *ret,
    struct err *err) {
    bool fits = got->rank == b->shape.rank;
    for (int i = 1; i < got->rank && fits; i++) {
        fits = got->dim[i] == b->shape.dim[i];
    }
    *ret = 1;
    if (fits && got->rank > 0) {
        int64_t one = b->shape.dim[0];
        fits = one > 0 ? got->dim[0] >= one && got->dim[0] % one == 0 : got->dim[0] == 0;
        *ret = fits && one > 0 ? (uint64_t)(got->dim[0] / one) : 1;
    }
    return fits ? 0 : shape_error(b, got, "shape does not match", pointer, err);
}

static int bind_npy(
    struct cache *c, struct binding *b, const char *pointer, uint64_t *ret_runs, struct err *err) {
    CLEANUP(cleanup_close) int fd = -1;
    uint64_t bytes = 0;
    int r = cache_blob_open(c, &b->blob, &fd, &bytes, err);
    if (r < 0) {
        return r;
    }
    CLEANUP(cleanup_free) uint8_t *head = malloc(NPY_MAX_HEADER_BYTES + 12);
    ssize_t n = head != NULL ? pread(fd, head, NPY_MAX_HEADER_BYTES + 12, 0) : -1;
    if (n < 0) {
        return err_sys(err, ERR_IO, errno, "blob of input '%s'", b->name);
    }
    struct npy_header header;
    struct err why;
    if (npy_parse(head, (size_t)n, bytes, &header, &why) < 0) {
        return err_at(
            err, ERR_INPUT, pointer, "'%s': %s%s%s", b->name, why.where,
            why.where[0] != '\0' ? ": " : "", why.text);
    }
    if (header.dtype != b->dtype) {
        return err_at(
            err, ERR_INPUT, pointer, "'%s': got %s, the model has %s", b->name,
            dtype_name(header.dtype), dtype_name(b->dtype));
    }
    b->offset = header.data_offset;
    b->source_bytes = header.data_bytes;
    return count_runs(b, &header.shape, pointer, ret_runs, err);
}

/* Raw bytes have no shape: the one they would have is made up for the message. */
static int bind_raw(
    struct cache *c, struct binding *b, const char *pointer, uint64_t *ret_runs, struct err *err) {
    CLEANUP(cleanup_close) int fd = -1;
    uint64_t bytes = 0;
    int r = cache_blob_open(c, &b->blob, &fd, &bytes, err);
    if (r < 0) {
        return r;
    }
    b->offset = 0;
    b->source_bytes = bytes;
    *ret_runs = b->bytes > 0 ? bytes / b->bytes : 1;
    if (b->bytes > 0 ? bytes == 0 || bytes % b->bytes != 0 : bytes != 0) {
        struct shape flat = {1, {(int64_t)(bytes / dtype_bytes(b->dtype))}};
        char why[96];
        snprintf(
            why, sizeof why, "%llu raw bytes are no multiple of %llu", (unsigned long long)bytes,
            (unsigned long long)b->bytes);
        return shape_error(b, &flat, why, pointer, err);
    }
    return 0;
}

static int bind_given(
    struct step_op *s, struct cache *c, const char *map, const json_t *given, struct bindings *b,
    bool one_run, struct err *err) {
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)given, name, value) {
        char pointer[192] = "";
        proto_pointer(pointer, sizeof pointer, map);
        proto_pointer(pointer, sizeof pointer, name);
        struct binding *item = (struct binding *)bindings_find(b, name);
        if (item == NULL) {
            return err_at(
                err, ERR_INPUT, pointer, "the model has no such %s: '%.80s'",
                one_run ? "parameter" : "input", name);
        }
        enum proto_format format;
        uint64_t runs = 1;
        if (!proto_input_read(value, &item->blob, &format)) {
            return err_at(err, ERR_BAD_JOB, pointer, "the record is damaged");
        }
        item->has_source = true;
        item->is_staged = false;
        int r = format == PROTO_NPY ? bind_npy(c, item, pointer, &runs, err)
                                    : bind_raw(c, item, pointer, &runs, err);
        if (r < 0) {
            return r;
        }
        if (one_run && runs != 1) {
            return err_at(
                err, ERR_INPUT, pointer, "a parameter is given once, not %llu times",
                (unsigned long long)runs);
        }
    }
    return 0;
}

static int bind_inputs(struct step_op *s, struct cache *c, struct err *err) {
    int r = bind_given(s, c, "inputs", s->spec.inputs, &s->inputs, false, err);
    if (r == 0) {
        r = bind_given(s, c, "parameters", s->spec.parameters, &s->parameters, true, err);
    }
    const struct binding *first = NULL;
    uint64_t first_runs = 1;
    for (size_t i = 0; i < s->inputs.count && r == 0 && s->spec.options.run; i++) {
        const struct binding *b = &s->inputs.items[i];
        if (!b->has_source) {
            return err_at(
                err, ERR_INPUT, "/inputs", "input '%s' is not given and has no generator", b->name);
        }
        if (b->bytes == 0) {
            continue;
        }
        uint64_t runs = b->source_bytes / b->bytes;
        if (first == NULL) {
            first = b;
            first_runs = runs;
        } else if (runs != first_runs) {
            return err_at(
                err, ERR_INPUT, "/inputs", "'%s' is for %llu runs, '%s' for %llu", first->name,
                (unsigned long long)first_runs, b->name, (unsigned long long)runs);
        }
    }
    s->runs = first_runs;
    uint64_t output_bytes = 0;
    for (size_t i = 0; i < s->outputs.count; i++) {
        output_bytes += s->outputs.items[i].bytes;
    }
    if (r == 0 && (s->runs > PROTO_MAX_RUNS ||
                   (output_bytes > 0 && s->runs > PROTO_MAX_OUTPUT_BYTES / output_bytes))) {
        return err_at(
            err, ERR_INPUT, "/inputs",
            "%llu runs with %llu bytes of outputs each: at most %d runs and %llu bytes in all",
            (unsigned long long)s->runs, (unsigned long long)output_bytes, PROTO_MAX_RUNS,
            (unsigned long long)PROTO_MAX_OUTPUT_BYTES);
    }
    return r;
}

/* Every weight is there in full. */
static int check_parameters(struct step_op *s, struct cache *c, struct err *err) {
    for (size_t i = 0; i < s->parameters.count; i++) {
        const struct binding *b = &s->parameters.items[i];
        if (!b->has_source) {
            return err_at(err, ERR_INPUT, "/parameters", "parameter '%s' is not given", b->name);
        }
        CLEANUP(cleanup_close) int fd = -1;
        uint64_t bytes = 0;
        int r = cache_blob_open(c, &b->blob, &fd, &bytes, err);
        if (r < 0) {
            return err_wrap(err, "parameter '%s'", b->name);
        }
        if (b->source_bytes != b->bytes || b->offset > bytes || bytes - b->offset < b->bytes) {
            return err_set(
                err, ERR_TENSOR_FILE,
                "parameter '%s' takes %llu bytes, %llu at %llu were named of a blob of %llu",
                b->name, (unsigned long long)b->bytes, (unsigned long long)b->source_bytes,
                (unsigned long long)b->offset, (unsigned long long)bytes);
        }
    }
    return 0;
}

/* Records the key; pins the package if it is there. */
static int look_up(struct step_op *s, struct cache *c, struct err *err) {
    struct cache_job change;
    memset(&change, 0, sizeof change);
    strcpy(change.id, s->job->id);
    change.key = s->key;
    int r = cache_job_update(c, &change, err);
    if (r < 0) {
        return r;
    }
    if (!s->spec.has_package) {
        if (s->spec.options.cache != PROTO_CACHE_USE) {
            return 0;
        }
        struct err none;
        r = cache_package_find(c, s->key, &s->package, &none);
        if (r < 0) {
            return 0; /* a cache that fails costs a compile, never the job (C-6) */
        }
    }
    cache_package_path(c, &s->package, s->package_path, sizeof s->package_path);
    cache_package_done(&s->package);
    r = cache_package_grant(c, &s->package.digest, s->job->uid, err);
    if (r == 0) {
        r = cache_package_pin(c, &s->package.digest, err);
    }
    s->is_hit = r == 0;
    return r;
}

static int read_result(struct step_op *s, struct cache *c, struct err *err) {
    const char *key = json_string_value(json_object_get(s->result, "key"));
    struct digest check;
    if (key == NULL || strlen(key) != DIGEST_HEX || !digest_parse(key, &check)) {
        return err_set(err, ERR_PROTOCOL, "the compile worker gave no key");
    }
    strcpy(s->key, key);
    int r;
    if ((r = bindings_read(json_object_get(s->result, "inputs"), "inputs", &s->inputs, err)) < 0 ||
        (r = bindings_read(json_object_get(s->result, "outputs"), "outputs", &s->outputs, err)) <
            0 ||
        (r = bindings_read(
             json_object_get(s->result, "parameters"), "parameters", &s->parameters, err)) < 0 ||
        (r = adopt_staged(s, c, &s->inputs, "inputs.bin", err)) < 0) {
        return r;
    }
    return adopt_staged(s, c, &s->parameters, "params.bin", err);
}

static int read_package(struct step_op *s, struct cache *c, struct err *err) {
    if (!cache_package_visible(c, &s->spec.package, s->job->uid)) {
        return err_at(err, ERR_NOT_FOUND, "/package", "no such package of this user");
    }
    int r = cache_package_get(c, &s->spec.package, &s->package, err);
    if (r < 0) {
        return r;
    }
    char path[4200];
    cache_package_path(c, &s->package, path, sizeof path);
    cache_package_done(&s->package);
    strcpy(s->key, s->package.key);
    struct package *p = NULL;
    struct digest digest;
    if ((r = package_open(path, &s->spec.package, &p, &digest, err)) < 0) {
        return r;
    }
    if ((r = bindings_of_package(p, PACKAGE_INPUT, &s->inputs, err)) == 0 &&
        (r = bindings_of_package(p, PACKAGE_OUTPUT, &s->outputs, err)) == 0) {
        r = bindings_of_package(p, PACKAGE_PARAMETER, &s->parameters, err);
    }
    package_free(p);
    return r;
}

static int bind_run(struct store_op *op, struct cache *c, struct err *err) {
    struct step_op *s = (struct step_op *)op;
    int r = s->spec.has_package ? read_package(s, c, err) : read_result(s, c, err);
    if (r < 0 || (r = bind_inputs(s, c, err)) < 0) {
        return r;
    }
    if (s->spec.options.run && (r = check_parameters(s, c, err)) < 0) {
        return r;
    }
    return look_up(s, c, err);
}

static void step_free(struct step_op *s) {
    json_decref(s->result);
    json_decref(s->stage.document);
    json_decref(s->document);
    cleanup_close(&s->stage.fd);
    bindings_done(&s->inputs);
    bindings_done(&s->outputs);
    bindings_done(&s->parameters);
    free(s);
}

static struct step_op *step_new(struct jobs *js, struct job *j) {
    struct step_op *s = calloc(1, sizeof *s);
    if (s != NULL) {
        s->jobs = js;
        s->job = j;
        s->spec = j->spec;
        s->stage.fd = -1;
        snprintf(s->stage.name, sizeof s->stage.name, "%s", j->id);
    }
    return s;
}

/* ---- On the loop ------------------------------------------------------------------------- */

static void slot_return(struct jobs *js, struct job *j) {
    js->workers--;
    struct user *u = jobs_user(js, j->uid);
    if (u != NULL && u->active > 0) {
        u->active--;
    }
    jobs_charge(js, j->uid, monotonic_ms() - j->step_ms);
}

static void bind_done(struct store_op *op) {
    struct step_op *s = (struct step_op *)op;
    struct jobs *js = s->jobs;
    struct job *j = s->job;
    if (op->result == 0 && s->is_hit) {
        j->is_pinned = true; /* before anything may end the job */
        j->has_package = true;
        j->package = s->package.digest;
        strcpy(j->package_path, s->package_path);
    }
    if (job_step_ends(js, j, op->result < 0 ? &op->err : NULL)) {
        j->inputs = s->inputs;
        j->outputs = s->outputs;
        j->parameters = s->parameters;
        memset(&s->inputs, 0, sizeof s->inputs);
        memset(&s->outputs, 0, sizeof s->outputs);
        memset(&s->parameters, 0, sizeof s->parameters);
        j->runs = s->runs;
        strcpy(j->key, s->key);
        json_t *compile = job_report(j, "compile");
        json_object_set_new(
            compile, "cache",
            json_pack("{s:b, s:s, s:b}", "hit", s->is_hit, "key", j->key, "joined", 0));
        job_event(
            js, j->id, "cache.lookup", s->is_hit ? "found a package" : "found no package",
            json_pack("{s:s, s:b}", "key", j->key, "hit", s->is_hit));
        if (s->is_hit) {
            js->daemon->counters.cache_hits++;
            char hex[DIGEST_HEX + 1];
            digest_hex(&j->package, hex);
            json_object_set_new(compile, "digest", json_string(hex));
        } else {
            js->daemon->counters.cache_misses++;
        }
        flights_join(js, j);
    }
    step_free(s);
    jobs_pump(js);
}

static void bind_submit(struct jobs *js, struct job *j, json_t *result) {
    struct step_op *s = step_new(js, j);
    if (s == NULL) {
        struct err err;
        err_set(&err, ERR_NOMEM, NULL);
        json_decref(result);
        job_step_ends(js, j, &err);
        return;
    }
    s->op.run = bind_run;
    s->op.done = bind_done;
    s->result = result;
    store_submit(js->daemon->store, &s->op);
}

static void key_event(void *arg, const json_t *event) {
    /* The key step says nothing that a job's owner needs before its result. */
}

static void key_done(void *arg, json_t *result, const struct err *err) {
    struct step_op *s = arg;
    struct jobs *js = s->jobs;
    struct job *j = s->job;
    step_free(s);
    j->worker = NULL;
    slot_return(js, j);
    if (result == NULL) {
        job_step_ends(js, j, err);
        jobs_pump(js);
        return;
    }
    const json_t *warnings = json_object_get(result, "warnings");
    if (json_array_size(warnings) > 0) {
        json_object_set(job_report(j, "compile"), "warnings", (json_t *)warnings);
    }
    const char *compiler = json_string_value(json_object_get(result, "compiler"));
    if (compiler != NULL && strlen(compiler) == DIGEST_HEX) {
        strcpy(js->daemon->compiler_id, compiler);
    }
    bind_submit(js, j, result);
    jobs_pump(js);
}

static int read_record(struct step_op *s, struct cache *c, struct err *err) {
    struct cache_job row;
    int r = cache_job_find(c, s->job->id, &row, err);
    if (r < 0) {
        return r;
    }
    r = proto_json_parse(row.document, strlen(row.document), &s->document, err);
    cache_job_done(&row);
    return r < 0 ? r : proto_job_parse(s->document, &s->spec, err);
}

static int key_stage_run(struct store_op *op, struct cache *c, struct err *err) {
    struct step_op *s = (struct step_op *)op;
    int r = read_record(s, c, err);
    s->stage.spec = &s->spec;
    s->stage.kind = "key";
    return r < 0 ? r : stage_run(&s->stage, c, false, err);
}

static void key_stage_done(struct store_op *op) {
    struct step_op *s = (struct step_op *)op;
    struct jobs *js = s->jobs;
    struct job *j = s->job;
    struct err err = op->err;
    int r = op->result;
    if (r == 0) {
        j->has_staging = true;
        j->document = TAKE(s->document);
        j->spec = s->spec; /* points into the document */
    }
    if (r < 0 || j->end.code != 0 || j->spec.has_package) {
        step_free(s);
        slot_return(js, j);
        if (r == 0 && j->end.code == 0) {
            bind_submit(js, j, NULL);
        } else {
            job_step_ends(js, j, r < 0 ? &err : NULL);
        }
        jobs_pump(js);
        return;
    }
    struct worker_order order = {
        .document = s->stage.document,
        .staging_fd = s->stage.fd,
        .total_ms = j->spec.limits.compile_ms,
        .no_progress_ms = js->daemon->config.no_progress_ms,
        .event = key_event,
        .done = key_done,
        .arg = s,
    };
    if (workers_start(js->daemon, &order, &j->worker, &err) < 0) {
        step_free(s);
        slot_return(js, j);
        job_step_ends(js, j, &err);
        jobs_pump(js);
    }
}

void steps_key(struct jobs *js, struct job *j) {
    struct step_op *s = step_new(js, j);
    if (s == NULL) {
        struct err err;
        err_set(&err, ERR_NOMEM, NULL);
        jobs_finish(js, j, &err);
        return;
    }
    struct user *u = jobs_user(js, j->uid);
    if (u != NULL) {
        u->active++;
    }
    js->workers++;
    js->active++;
    js->daemon->counters.queue_wait_ms += monotonic_ms() - j->created_ms;
    j->is_busy = true;
    j->step_ms = monotonic_ms();
    job_move(js, j, PROTO_STATE_COMPILING);
    s->op.run = key_stage_run;
    s->op.done = key_stage_done;
    store_submit(js->daemon->store, &s->op);
}
