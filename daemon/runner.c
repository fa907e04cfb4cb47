/* See runner.h. The thread's loop: get the device, then take commands until told to stop. Waits
 * are on one condition with a timeout for the next attempt; every command ends, because the
 * device's calls have deadlines or can be stopped. */
#include "daemon/runner.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "sim/sim.h"

#define RETRY_MIN_MS 250
#define RETRY_MAX_MS 4000
#define MAX_FAILURES 3 /* device errors in a row before dispatch stops */

struct runner {
    const struct config *config; /* borrowed */
    struct mailbox *mailbox;     /* borrowed */
    pthread_t thread;
    bool is_started;
    struct device *device; /* device thread's; device_stop() under the mutex */
    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t wake;
    struct run_task *task; /* handed over, not yet done */
    struct runner_reset *reset;
    TAILQ_HEAD(, runner_look) looks;
    unsigned look_count;
    uint64_t backlog;
    bool is_stopping;
    struct runner_status status;
    struct letter change; /* posted at most once at a time */
    bool is_change_posted;
    void (*on_change)(void *arg);
    void *on_change_arg;
};

static uint64_t monotonic_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

const char *runner_state_name(enum runner_state s) {
    static const char *const names[] = {"waiting", "absent", "ready", "busy", "failed"};
    return names[s];
}

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

/* ---- State ------------------------------------------------------------------------------- */

static void deliver_change(struct letter *letter) {
    struct runner *r = (struct runner *)((char *)letter - offsetof(struct runner, change));
    pthread_mutex_lock(&r->mutex);
    r->is_change_posted = false;
    pthread_mutex_unlock(&r->mutex);
    if (r->on_change != NULL) {
        r->on_change(r->on_change_arg);
    }
}

static void set_state(struct runner *r, enum runner_state state, const char *detail) {
    pthread_mutex_lock(&r->mutex);
    bool is_usual = state == RUNNER_BUSY || r->status.state == RUNNER_BUSY; /* jobs come and go */
    bool changed = r->status.state != state || strcmp(r->status.detail, detail) != 0;
    r->status.state = state;
    snprintf(r->status.detail, sizeof r->status.detail, "%s", detail);
    bool post = changed && !r->is_change_posted;
    r->is_change_posted = r->is_change_posted || post;
    pthread_mutex_unlock(&r->mutex);
    if (changed) {
        log_print(
            is_usual && state != RUNNER_FAILED ? LOG_DEBUG : LOG_NOTICE, "device", "state=%s%s%s",
            runner_state_name(state), detail[0] != '\0' ? " " : "", detail);
    }
    if (post) {
        r->change.deliver = deliver_change;
        mailbox_post(r->mailbox, &r->change);
    }
}

void runner_on_change(struct runner *r, void (*fn)(void *arg), void *arg) {
    pthread_mutex_lock(&r->mutex);
    r->on_change = fn;
    r->on_change_arg = arg;
    pthread_mutex_unlock(&r->mutex);
}

void runner_status(struct runner *r, struct runner_status *ret) {
    pthread_mutex_lock(&r->mutex);
    *ret = r->status;
    pthread_mutex_unlock(&r->mutex);
}

/* ---- Opening ----------------------------------------------------------------------------- */

static int open_sim(const char *spec, void *arg, struct ipu_device_ops *ret, struct err *err) {
    const struct config *config = arg;
    if (strcmp(spec, "sim") != 0) {
        return err_set(err, ERR_DEVICE_ABSENT, "device '%s' is neither sim nor /dev/ipuN", spec);
    }
    struct sim_options options;
    memset(&options, 0, sizeof options);
    options.threads = (int)config->sim_threads;
    options.trace_tile = -1;
    options.sync_release = (uint32_t)config->sim_sync_release;
    options.inject_waiting = true; /* a post-mortem then says where each tile waits */
    return sim_device_open(&options, ret, err);
}

static struct device_options device_options(const struct config *config) {
    /* The waiting is done here, where a stop can interrupt it. */
    return (struct device_options){
        .spec = config->device,
        .lock_path = config->lock,
        .loader_path = config->loader,
        .no_wait = true,
        .open_ops = open_sim,
        .open_arg = (void *)config,
    };
}

static int open_device(struct runner *r, struct device **ret, struct err *err) {
    struct device_options options = device_options(r->config);
    return device_open(&options, ret, err);
}

/* Waits until the device is ours or a stop is asked for. */
static void acquire(struct runner *r) {
    uint64_t wait_ms = RETRY_MIN_MS;
    while (r->device == NULL) {
        struct err err;
        struct device *device = NULL;
        int result = open_device(r, &device, &err);
        pthread_mutex_lock(&r->mutex);
        r->device = device;
        bool stop = r->is_stopping;
        pthread_mutex_unlock(&r->mutex);
        if (result == 0) {
            set_state(r, RUNNER_READY, "");
            return;
        }
        if (stop) {
            return;
        }
        set_state(r, result == -ERR_DEVICE_BUSY ? RUNNER_WAITING : RUNNER_ABSENT, err.text);
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += (long)(wait_ms % 1000) * 1000000;
        until.tv_sec += (time_t)(wait_ms / 1000) + until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_mutex_lock(&r->mutex);
        if (!r->is_stopping) {
            pthread_cond_timedwait(&r->wake, &r->mutex, &until);
        }
        pthread_mutex_unlock(&r->mutex);
        wait_ms = wait_ms * 2 < RETRY_MAX_MS ? wait_ms * 2 : RETRY_MAX_MS;
    }
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
static void perform(struct runner *r, struct run_task *t) {
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

static void deliver_task(struct letter *letter) {
    struct run_task *t = (struct run_task *)letter;
    struct runner *r = t->runner;
    pthread_mutex_lock(&r->mutex);
    r->task = NULL;
    pthread_mutex_unlock(&r->mutex);
    t->done(t);
}

/* A device that goes on failing is taken out of service; a faulty program alone never does it. */
static void judge(struct runner *r, const struct run_task *t) {
    bool failed = t->result == -ERR_DEVICE_ERROR || t->result == -ERR_DEVICE_HANG;
    pthread_mutex_lock(&r->mutex);
    r->status.failures = failed ? r->status.failures + 1 : 0;
    bool out = r->status.failures >= MAX_FAILURES;
    pthread_mutex_unlock(&r->mutex);
    set_state(r, out ? RUNNER_FAILED : RUNNER_READY, out ? t->err.text : "");
}

static void do_reset(struct runner *r, struct runner_reset *reset) {
    err_clear(&reset->err);
    reset->result = device_reset(r->device, &reset->err);
    pthread_mutex_lock(&r->mutex);
    r->status.resets++;
    r->status.has_resident = false;
    r->status.failures = 0;
    pthread_mutex_unlock(&r->mutex);
    set_state(r, reset->result == 0 ? RUNNER_READY : RUNNER_FAILED, reset->err.text);
    mailbox_post(r->mailbox, &reset->letter);
}

/* Whether this user may see tiles now; the mutex is held. */
static int look_allowed(const struct runner *r, const struct runner_look *l, struct err *err) {
    if (l->is_operator || (r->status.has_resident && r->status.resident_uid == l->uid)) {
        return 0;
    }
    return err_set(
        err, ERR_PERMISSION, "tiles are for the owner of the resident program and for operators");
}

static void do_look(struct runner *r, struct runner_look *l) {
    pthread_mutex_lock(&r->mutex);
    l->result = look_allowed(r, l, &l->err);
    pthread_mutex_unlock(&r->mutex);
    if (l->result == 0) {
        l->result = l->look(l, r->device, &l->err);
    }
    mailbox_post(r->mailbox, &l->letter);
}

static void *runner_main(void *arg) {
    struct runner *r = arg;
    acquire(r);
    pthread_mutex_lock(&r->mutex);
    while (!r->is_stopping || r->task != NULL || r->reset != NULL || !TAILQ_EMPTY(&r->looks)) {
        struct run_task *t = r->task;
        struct runner_reset *reset = r->reset;
        struct runner_look *look = TAILQ_FIRST(&r->looks);
        if (look != NULL) {
            TAILQ_REMOVE(&r->looks, look, link);
            r->look_count--;
            pthread_mutex_unlock(&r->mutex);
            do_look(r, look);
            pthread_mutex_lock(&r->mutex);
        } else if (reset != NULL) {
            r->reset = NULL;
            pthread_mutex_unlock(&r->mutex);
            do_reset(r, reset);
            pthread_mutex_lock(&r->mutex);
        } else if (t != NULL && t->letter.deliver == NULL) {
            pthread_mutex_unlock(&r->mutex);
            set_state(r, RUNNER_BUSY, "");
            uint64_t before = monotonic_ms();
            perform(r, t);
            judge(r, t);
            pthread_mutex_lock(&r->mutex);
            r->status.busy_ms += monotonic_ms() - before;
            t->letter.deliver = deliver_task;
            mailbox_post(r->mailbox, &t->letter);
        } else if (r->is_stopping) {
            break;
        } else {
            pthread_cond_wait(&r->wake, &r->mutex);
        }
    }
    pthread_mutex_unlock(&r->mutex);
    return NULL;
}

/* ---- The loop's side --------------------------------------------------------------------- */

int runner_start(
    const struct config *config, struct mailbox *m, struct runner **ret, struct err *err) {
    struct runner *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return err_set(err, ERR_NOMEM, NULL);
    }
    r->config = config;
    r->mailbox = m;
    pthread_mutex_init(&r->mutex, NULL);
    pthread_cond_init(&r->wake, NULL);
    r->status.state = RUNNER_WAITING;
    TAILQ_INIT(&r->looks);
    struct device_options options = device_options(config);
    int result = device_check_options(&options, err);
    if (result == 0 && config->no_wait) {
        result = open_device(r, &r->device, err);
    }
    if (result == 0 && r->device != NULL) {
        r->status.state = RUNNER_READY;
    }
    if (result == 0) {
        int failed = pthread_create(&r->thread, NULL, runner_main, r);
        r->is_started = failed == 0;
        result = failed == 0 ? 0 : err_sys(err, ERR_INTERNAL, failed, "device thread");
    }
    if (result < 0) {
        runner_stop(r);
        runner_free(r);
        return result;
    }
    *ret = r;
    return 0;
}

bool runner_idle(struct runner *r) {
    pthread_mutex_lock(&r->mutex);
    bool is_idle =
        r->task == NULL && r->reset == NULL && !r->is_stopping && r->status.state == RUNNER_READY;
    pthread_mutex_unlock(&r->mutex);
    return is_idle;
}

void runner_submit(struct runner *r, struct run_task *t) {
    t->runner = r;
    t->letter.deliver = NULL;
    pthread_mutex_lock(&r->mutex);
    r->task = t;
    pthread_cond_broadcast(&r->wake);
    pthread_mutex_unlock(&r->mutex);
}

void runner_cancel(struct runner *r, struct run_task *t, bool at_once) {
    atomic_store(&t->is_cancelled, true);
    pthread_mutex_lock(&r->mutex);
    if (at_once && r->device != NULL && r->task == t) {
        device_stop(r->device);
    }
    pthread_mutex_unlock(&r->mutex);
}

void runner_reset(struct runner *r, struct runner_reset *reset) {
    pthread_mutex_lock(&r->mutex);
    bool refused = r->device == NULL || r->reset != NULL || r->is_stopping;
    if (!refused) {
        r->reset = reset;
        if (r->task != NULL) {
            device_stop(r->device);
        }
        pthread_cond_broadcast(&r->wake);
    } else {
        reset->result = err_set(
            &reset->err, r->device == NULL ? ERR_DEVICE_ABSENT : ERR_CONFLICT,
            r->device == NULL ? "the device is not open" : "a reset is in progress");
    }
    pthread_mutex_unlock(&r->mutex);
    if (refused) {
        mailbox_post(r->mailbox, &reset->letter);
    }
}

void runner_look(struct runner *r, struct runner_look *l) {
    struct err *err = &l->err;
    pthread_mutex_lock(&r->mutex);
    int result = look_allowed(r, l, err);
    if (result == 0 && (r->device == NULL || r->is_stopping)) {
        result = err_set(
            err, r->is_stopping ? ERR_DRAINING : ERR_DEVICE_ABSENT, "the device is not open");
    }
    if (result == 0 && r->look_count == RUNNER_MAX_LOOKS) {
        result = err_set(err, ERR_QUEUE_FULL, "%d looks at tiles wait already", RUNNER_MAX_LOOKS);
    }
    l->result = result;
    if (result == 0) {
        TAILQ_INSERT_TAIL(&r->looks, l, link);
        r->look_count++;
        pthread_cond_broadcast(&r->wake);
    }
    pthread_mutex_unlock(&r->mutex);
    if (result < 0) {
        mailbox_post(r->mailbox, &l->letter);
    }
}

bool runner_look_withdraw(struct runner *r, struct runner_look *l) {
    bool is_found = false;
    struct runner_look *x;
    pthread_mutex_lock(&r->mutex);
    TAILQ_FOREACH(x, &r->looks, link) {
        is_found = is_found || x == l;
    }
    if (is_found) {
        TAILQ_REMOVE(&r->looks, l, link);
        r->look_count--;
    }
    pthread_mutex_unlock(&r->mutex);
    return is_found;
}

void runner_stop(struct runner *r) {
    if (r == NULL) {
        return;
    }
    pthread_mutex_lock(&r->mutex);
    r->is_stopping = true;
    if (r->task != NULL) {
        atomic_store(&r->task->is_cancelled, true);
        if (r->device != NULL) {
            device_stop(r->device);
        }
    }
    pthread_cond_broadcast(&r->wake);
    pthread_mutex_unlock(&r->mutex);
    if (r->is_started) {
        pthread_join(r->thread, NULL);
        r->is_started = false;
    }
    device_close(r->device);
    r->device = NULL;
}

void runner_free(struct runner *r) {
    if (r == NULL) {
        return;
    }
    pthread_cond_destroy(&r->wake);
    pthread_mutex_destroy(&r->mutex);
    free(r);
}
