/* See runner.h. The thread's loop: get the device, then take commands until told to stop. Waits
 * are on one condition with a timeout for the next attempt; every command ends, because the
 * device's calls have deadlines or can be stopped. */
#include "daemon/runner_internal.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/monotonic.h"
#include "sim/sim.h"

#define RETRY_MIN_MS 250
#define RETRY_MAX_MS 4000
#define MAX_FAILURES 3 /* device errors in a row before dispatch stops */

const char *runner_state_name(enum runner_state s) {
    static const char *const names[] = {"waiting", "absent", "ready", "busy", "failed"};
    return names[s];
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

/* ---- The thread -------------------------------------------------------------------------- */

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
            runner_perform(r, t);
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
