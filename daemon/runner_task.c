/* What the device thread does with one task: see runner.h. The package and all data come from
 * files; events, outputs and samples leave as letters. */
#include "daemon/runner_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/monotonic.h"

/* ---- Tasks ------------------------------------------------------------------------------- */

void run_task_free(struct run_task *t) {
    if (t == NULL) {
        return;
    }
    bindings_done(&t->inputs);
    bindings_done(&t->parameters);
    free(t->blob_dir);
    free(t->words);
    free(t->marks);
    profile_free(t->profile);
    json_decref(t->postmortem);
    free(t);
}

void run_output_free(struct run_output *o) {
    struct runner *r = o->task->runner;
    pthread_mutex_lock(&r->mutex);
    r->backlog -= o->size_bytes;
    pthread_cond_broadcast(&r->wake);
    pthread_mutex_unlock(&r->mutex);
    free(o->bytes);
    free(o);
}

/* ---- One task ---------------------------------------------------------------------------- */

struct event_letter {
    struct letter letter;
    struct run_task *task;
    char *event;
    char *message;
    json_t *fields;
};

static void deliver_event(struct letter *letter) {
    struct event_letter *e = (struct event_letter *)letter;
    e->task->event(e->task, e->event, e->message, e->fields); /* takes fields */
    free(e->event);
    free(e->message);
    free(e);
}

static void on_event(const char *event, const char *message, const char *fields, void *arg) {
    struct run_task *t = arg;
    struct event_letter *e = calloc(1, sizeof *e);
    if (e == NULL) {
        return;
    }
    e->letter.deliver = deliver_event;
    e->task = t;
    e->event = strdup(event);
    e->message = strdup(message);
    e->fields = json_loads(fields != NULL && fields[0] != '\0' ? fields : "{}", 0, NULL);
    if (e->event == NULL || e->message == NULL) {
        json_decref(e->fields);
        free(e->event);
        free(e->message);
        free(e);
        return;
    }
    mailbox_post(t->runner->mailbox, &e->letter);
}

static void deliver_output(struct letter *letter) {
    struct run_output *o = (struct run_output *)letter;
    o->task->output(o);
}

static uint32_t *copy_words(const uint32_t *words, size_t count) {
    uint32_t *copy = count > 0 ? reallocarray(NULL, count, sizeof *copy) : NULL;
    if (copy != NULL) {
        memcpy(copy, words, count * sizeof *copy);
    }
    return copy;
}

/* Of one run only: the others of a stream cost nothing. */
static void keep_samples(struct run_task *t, const struct device_output *output) {
    uint64_t wanted = t->profile_run < t->runs ? t->profile_run : t->runs - 1;
    if (output->run == wanted && output->profile_words != NULL) {
        t->words = copy_words(output->profile_words, output->profile_count);
        t->word_count = t->words != NULL ? output->profile_count : 0;
        t->marks = copy_words(output->marks, output->mark_count);
        t->mark_count = t->marks != NULL ? output->mark_count : 0;
    }
}

/* The plan is the package's, which is at hand here only. A profile never fails a job. */
static void make_profile(struct run_task *t, const struct package *p) {
    struct err err;
    uint64_t run = t->profile_run < t->runs ? t->profile_run : t->runs - 1;
    if (t->words != NULL && profile_collect(
                                p, &t->package, run, t->words, t->word_count, t->marks,
                                t->mark_count, &t->profile, &err) < 0) {
        log_warning("runs", "no profile job=%s reason=\"%s\"", t->id, err.text);
    }
}

/* Copies a run's outputs and sends them on; waits while the backlog is full. */
static int on_output(const struct device_output *output, void *arg) {
    struct run_task *t = arg;
    struct runner *r = t->runner;
    struct run_output *o = calloc(1, sizeof *o);
    uint64_t total = 0;
    for (size_t i = 0; i < output->output_count; i++) {
        total += output->output_bytes[i];
    }
    if (o == NULL || (o->bytes = malloc(total > 0 ? total : 1)) == NULL) {
        free(o);
        err_set(&t->err, ERR_NOMEM, "outputs of %llu bytes", (unsigned long long)total);
        return 1;
    }
    uint64_t at = 0;
    for (size_t i = 0; i < output->output_count; i++) {
        memcpy(o->bytes + at, output->outputs[i], output->output_bytes[i]);
        at += output->output_bytes[i];
    }
    o->letter.deliver = deliver_output;
    o->task = t;
    o->run = output->run;
    o->cycles = output->cycles;
    o->size_bytes = total;
    keep_samples(t, output);
    t->runs_done = output->run + 1;
    pthread_mutex_lock(&r->mutex);
    while (r->backlog > 0 && r->backlog + total > RUNNER_MAX_BACKLOG && !r->is_stopping) {
        pthread_cond_wait(&r->wake, &r->mutex);
    }
    r->backlog += total;
    r->status.runs++;
    pthread_mutex_unlock(&r->mutex);
    mailbox_post(r->mailbox, &o->letter);
    return atomic_load(&t->is_cancelled) ? 1 : 0;
}

/* After a failed load or run: an event, and part of the job's report. */
static void keep_postmortem(struct runner *r, struct run_task *t) {
    const char *text = device_postmortem(r->device);
    if (text != NULL) {
        on_event("device.postmortem", "examined the tiles after a failure", text, t);
        t->postmortem = json_loads(text, 0, NULL);
    }
}

struct mapping {
    void *base;
    size_t size;
    const uint8_t *bytes;
};

static int map_binding(
    const struct run_task *t, const struct binding *b, struct mapping *ret, struct err *err) {
    char path[4400];
    char hex[DIGEST_HEX + 1];
    digest_hex(&b->blob, hex);
    snprintf(path, sizeof path, "%s/%s", t->blob_dir, hex);
    CLEANUP(cleanup_close) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0) {
        return err_sys(err, ERR_MISSING, errno, "bytes of '%s'", b->name);
    }
    if (b->offset > (uint64_t)st.st_size || b->source_bytes > (uint64_t)st.st_size - b->offset) {
        return err_set(
            err, ERR_TENSOR_FILE, "bytes of '%s': %llu at %llu, the blob has %lld", b->name,
            (unsigned long long)b->source_bytes, (unsigned long long)b->offset,
            (long long)st.st_size);
    }
    ret->size = (size_t)st.st_size;
    ret->base = ret->size > 0 ? mmap(NULL, ret->size, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    if (ret->base == MAP_FAILED) {
        ret->base = NULL;
        return err_sys(err, ERR_NOMEM, errno, "bytes of '%s'", b->name);
    }
    ret->bytes = ret->base != NULL ? (const uint8_t *)ret->base + b->offset : (const uint8_t *)"";
    return 0;
}

static void unmap(struct mapping *m, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (m[i].base != NULL) {
            munmap(m[i].base, m[i].size);
        }
    }
    free(m);
}

static int
map_all(const struct run_task *t, const struct bindings *b, struct mapping **ret, struct err *err) {
    struct mapping *m = calloc(b->count + 1, sizeof *m);
    if (m == NULL) {
        return err_set(err, ERR_NOMEM, NULL);
    }
    for (size_t i = 0; i < b->count; i++) {
        int r = map_binding(t, &b->items[i], &m[i], err);
        if (r < 0) {
            unmap(m, b->count);
            return r;
        }
    }
    *ret = m;
    return 0;
}

static int load(struct runner *r, struct run_task *t, const struct package *p, struct err *err) {
    struct mapping *m = NULL;
    int result = map_all(t, &t->parameters, &m, err);
    if (result < 0) {
        return result;
    }
    size_t n = t->parameters.count;
    struct device_parameter *params = calloc(n + 1, sizeof *params);
    if (params == NULL) {
        unmap(m, n);
        return err_set(err, ERR_NOMEM, NULL);
    }
    for (size_t i = 0; i < n; i++) {
        params[i] = (struct device_parameter){m[i].bytes, t->parameters.items[i].source_bytes};
    }
    struct digest residency;
    bindings_residency(&t->parameters, &t->package, &residency);
    uint64_t before = monotonic_ms();
    result = device_load(r->device, p, params, n, &residency, on_event, t, &t->is_loaded, err);
    t->load_ns = (monotonic_ms() - before) * 1000000;
    if (result < 0) {
        keep_postmortem(r, t);
    }
    free(params);
    unmap(m, n);
    pthread_mutex_lock(&r->mutex);
    r->status.has_resident = result == 0;
    if (result == 0 && t->is_loaded) {
        r->status.resident = t->package;
        memcpy(r->status.resident_job, t->id, sizeof t->id);
        r->status.resident_uid = t->uid;
        r->status.resident_since_ms = (uint64_t)time(NULL) * 1000;
        r->status.loads++;
    }
    pthread_mutex_unlock(&r->mutex);
    return result;
}

static int run(struct runner *r, struct run_task *t, struct err *err) {
    struct mapping *m = NULL;
    int result = map_all(t, &t->inputs, &m, err);
    if (result < 0) {
        return result;
    }
    const uint8_t **inputs = calloc(t->inputs.count + 1, sizeof *inputs);
    if (inputs == NULL) {
        unmap(m, t->inputs.count);
        return err_set(err, ERR_NOMEM, NULL);
    }
    for (size_t i = 0; i < t->inputs.count; i++) {
        inputs[i] = m[i].bytes;
    }
    struct device_run_report report;
    memset(&report, 0, sizeof report);
    on_event("run.start", "invoking runs", "{}", t);
    result = device_run(r->device, inputs, t->runs, on_output, t, t->timeout_ns, &report, err);
    t->elapsed_ns = report.elapsed_ns;
    t->completed_tiles = result == 0 ? report.completed_tiles : 0;
    t->quiet_tiles = result == 0 ? report.quiet_tiles : 0;
    if (result < 0) {
        keep_postmortem(r, t);
    }
    free(inputs);
    unmap(m, t->inputs.count);
    return result;
}

/* The package is opened anew by its digest: nothing damaged reaches the device. */
void runner_perform(struct runner *r, struct run_task *t) {
    struct err err;
    err_clear(&err);
    struct package *p = NULL;
    struct digest digest;
    on_event("package.read", "reading application package", "{}", t);
    int result = package_open(t->package_path, &t->package, &p, &digest, &err);
    if (result == 0) {
        char fields[160];
        snprintf(
            fields, sizeof fields, "{\"tiles\":%d,\"compiler\":\"%s\"}", TARGET_TILES,
            p->compiler_id); /* 64 hexadecimal digits: it has been verified */
        on_event("package.opened", "application package read", fields, t);
    }
    if (result == 0 && atomic_load(&t->is_cancelled)) {
        result = err_set(&err, ERR_CANCELLED, "cancelled before the load");
    }
    if (result == 0) {
        result = load(r, t, p, &err);
    }
    if (result == 0 && atomic_load(&t->is_cancelled)) {
        result = err_set(&err, ERR_CANCELLED, "cancelled before the first run");
    }
    if (result == 0) {
        result = run(r, t, &err);
        make_profile(t, p);
        if (result < 0 && result != -ERR_CANCELLED) {
            pthread_mutex_lock(&r->mutex);
            r->status.has_resident = false;
            pthread_mutex_unlock(&r->mutex);
        }
    }
    package_free(p);
    if (result == -ERR_CANCELLED && !atomic_load(&t->is_cancelled) && t->err.code == 0) {
        result = err_set(&err, ERR_DEVICE_ERROR, "the device was reset during the run");
    }
    if (result == -ERR_CANCELLED && t->err.code != 0) {
        result = -t->err.code; /* on_output() ended the run for a reason of its own */
    } else if (result < 0) {
        t->err = err;
    }
    t->result = result;
}
