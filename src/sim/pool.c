/* Threads over indices: the calling thread hands out a range, helpers take indices from it.
 *
 * Helpers run at a lower priority, so that other threads of the process stay responsive on a
 * small machine; with helpers the caller only waits, at its own priority. Nothing here orders
 * the work, so whoever uses it must make results independent of the order.
 */
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sim/chip.h"

enum { POOL_MAX = 64, POOL_NICE = 10, POOL_BLOCK = 4 };

struct pool {
    pthread_mutex_t lock;
    pthread_cond_t work; /* round changed or is_closing */
    pthread_cond_t idle; /* busy became 0 */
    pthread_t threads[POOL_MAX];
    int thread_count;
    int busy;
    uint64_t round;
    bool is_closing;
    void (*fn)(void *self, uint32_t i);
    void *self;
    uint32_t count;
    _Atomic uint32_t next;
};

static void work(struct pool *p) {
    for (;;) {
        uint32_t first = atomic_fetch_add_explicit(&p->next, POOL_BLOCK, memory_order_relaxed);
        if (first >= p->count) {
            return;
        }
        uint32_t end = p->count - first < POOL_BLOCK ? p->count : first + POOL_BLOCK;
        for (uint32_t i = first; i < end; i++) {
            p->fn(p->self, i);
        }
    }
}

static void *helper(void *self) {
    struct pool *p = self;
    uint64_t seen = 0;
    /* Of no consequence where it is refused: the work is done all the same. */
    (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), POOL_NICE);
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (p->round == seen && !p->is_closing) {
            pthread_cond_wait(&p->work, &p->lock);
        }
        if (p->is_closing) {
            break;
        }
        seen = p->round;
        pthread_mutex_unlock(&p->lock);
        work(p);
        pthread_mutex_lock(&p->lock);
        if (--p->busy == 0) {
            pthread_cond_signal(&p->idle);
        }
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

struct pool *pool_new(int threads) {
    struct pool *p = calloc(1, sizeof *p);
    if (p == NULL) {
        return NULL;
    }
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    pthread_cond_init(&p->idle, NULL);
    if (threads == 0) {
        threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
    }
    threads = threads > POOL_MAX ? POOL_MAX : threads;
    for (int i = 0; threads > 1 && i < threads; i++) {
        if (pthread_create(&p->threads[p->thread_count], NULL, helper, p) != 0) {
            break; /* fewer threads, same results */
        }
        p->thread_count++;
    }
    return p;
}

void pool_free(struct pool *p) {
    if (p == NULL) {
        return;
    }
    pthread_mutex_lock(&p->lock);
    p->is_closing = true;
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->thread_count; i++) {
        pthread_join(p->threads[i], NULL);
    }
    pthread_cond_destroy(&p->work);
    pthread_cond_destroy(&p->idle);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

void pool_run(struct pool *p, void (*fn)(void *self, uint32_t i), void *self, uint32_t count) {
    if (count <= POOL_BLOCK || p->thread_count == 0) {
        for (uint32_t i = 0; i < count; i++) {
            fn(self, i);
        }
        return;
    }
    pthread_mutex_lock(&p->lock);
    p->fn = fn;
    p->self = self;
    p->count = count;
    atomic_store_explicit(&p->next, 0, memory_order_relaxed);
    p->busy = p->thread_count;
    p->round++;
    pthread_cond_broadcast(&p->work);
    while (p->busy > 0) {
        pthread_cond_wait(&p->idle, &p->lock);
    }
    pthread_mutex_unlock(&p->lock);
}
