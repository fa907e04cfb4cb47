/* See store.h. The thread sleeps on a condition; a group takes what waits, at most GROUP
 * operations, so one commit is bounded. It ends when stopped and empty. */
#include "daemon/store.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/log.h"
#include "base/monotonic.h"

#define GROUP              256
#define CHECKPOINT_IDLE_MS 5000

struct store {
    struct cache *cache;
    struct mailbox *mailbox;
    pthread_t thread;
    bool is_started;
    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t wake;
    struct store_op *head;
    struct store_op **tail;
    bool is_stopping;
    struct store_health health;
    uint64_t group_since_ms;
};

static void run_one(struct store *s, struct store_op *op) {
    err_clear(&op->err);
    op->result = cache_mark(s->cache, &op->err);
    if (op->result == 0) {
        op->result = op->run(op, s->cache, &op->err);
        if (op->result < 0) {
            cache_undo(s->cache);
        }
    }
    if (op->result < 0 && op->err.code == 0) {
        err_set(&op->err, ERR_INTERNAL, "operation failed without a reason");
    }
}

static void run_group(struct store *s, struct store_op *group) {
    struct err err;
    int begun = cache_begin(s->cache, &err);
    for (struct store_op *op = group; op != NULL && begun == 0; op = op->next) {
        run_one(s, op);
    }
    int r = begun == 0 ? cache_commit(s->cache, &err) : begun;
    if (r < 0) {
        log_error("store", "group not stored reason=\"%s\"", err.text);
    }
    pthread_mutex_lock(&s->mutex);
    s->health.commits += r == 0;
    s->health.failures += r < 0;
    s->health.is_failing = r < 0;
    pthread_mutex_unlock(&s->mutex);
    for (struct store_op *op = group; op != NULL;) {
        struct store_op *next = op->next;
        if (r < 0 && (begun < 0 || op->result >= 0)) {
            op->result = r;
            op->err = err;
        }
        mailbox_post(s->mailbox, &op->letter); /* op is the loop's from here */
        op = next;
    }
}

/* Waits for work; NULL = stop. The log is folded in once things have been quiet for a while. */
static struct store_op *take_group(struct store *s) {
    static const uint64_t quiet_s = CHECKPOINT_IDLE_MS / 1000;
    pthread_mutex_lock(&s->mutex);
    s->group_since_ms = 0;
    bool is_dirty = s->health.commits > 0;
    while (s->head == NULL && !s->is_stopping) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += (time_t)quiet_s;
        if (!is_dirty) {
            pthread_cond_wait(&s->wake, &s->mutex);
        } else if (pthread_cond_timedwait(&s->wake, &s->mutex, &until) != 0) {
            pthread_mutex_unlock(&s->mutex);
            cache_checkpoint(s->cache);
            is_dirty = false;
            pthread_mutex_lock(&s->mutex);
        }
    }
    struct store_op *group = s->head;
    struct store_op **end = &s->head;
    for (int n = 0; n < GROUP && *end != NULL; n++) {
        end = &(*end)->next;
        s->health.pending--;
    }
    s->head = *end;
    if (s->head == NULL) {
        s->tail = &s->head;
    }
    if (group != NULL) {
        *end = NULL;
        s->group_since_ms = monotonic_ms();
    }
    pthread_mutex_unlock(&s->mutex);
    return group;
}

static void *store_main(void *arg) {
    struct store *s = arg;
    for (struct store_op *group = take_group(s); group != NULL; group = take_group(s)) {
        run_group(s, group);
    }
    return NULL;
}

int store_start(
    const struct cache_options *options, struct mailbox *m, struct store **ret, struct err *err) {
    struct store *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return err_set(err, ERR_NOMEM, NULL);
    }
    s->mailbox = m;
    s->tail = &s->head;
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->wake, NULL);
    int r = cache_open(options, &s->cache, err);
    if (r == 0) {
        int failed = pthread_create(&s->thread, NULL, store_main, s);
        s->is_started = failed == 0;
        r = failed == 0 ? 0 : err_sys(err, ERR_INTERNAL, failed, "store thread");
    }
    if (r < 0) {
        store_stop(s);
        return r;
    }
    *ret = s;
    return 0;
}

struct cache *store_cache(struct store *s) {
    return s->cache;
}

static void on_done(struct letter *letter) {
    struct store_op *op = (struct store_op *)letter;
    op->done(op);
}

void store_submit(struct store *s, struct store_op *op) {
    op->letter.deliver = on_done;
    op->next = NULL;
    pthread_mutex_lock(&s->mutex);
    *s->tail = op;
    s->tail = &op->next;
    s->health.pending++;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->mutex);
}

void store_stop(struct store *s) {
    if (s == NULL) {
        return;
    }
    if (s->is_started) {
        pthread_mutex_lock(&s->mutex);
        s->is_stopping = true;
        pthread_cond_signal(&s->wake);
        pthread_mutex_unlock(&s->mutex);
        pthread_join(s->thread, NULL);
        cache_checkpoint(s->cache);
    }
    cache_close(s->cache);
    pthread_cond_destroy(&s->wake);
    pthread_mutex_destroy(&s->mutex);
    free(s);
}

void store_health(struct store *s, struct store_health *ret) {
    pthread_mutex_lock(&s->mutex);
    *ret = s->health;
    ret->is_idle = s->head == NULL && s->group_since_ms == 0;
    ret->stuck_ms = s->group_since_ms != 0 ? monotonic_ms() - s->group_since_ms : 0;
    pthread_mutex_unlock(&s->mutex);
}
