/* Bump allocator: chunks in a list, newest first; each is at least CHUNK_BYTES. */
#include "base/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES ((size_t)256 * 1024)

struct arena_chunk {
    struct arena_chunk *next;
    size_t size;
    size_t used;
    _Alignas(64) unsigned char bytes[];
};

void arena_init(struct arena *a, size_t limit_bytes) {
    memset(a, 0, sizeof *a);
    a->own.limit_bytes = limit_bytes;
}

void arena_init_shared(struct arena *a, struct arena_pool *pool) {
    memset(a, 0, sizeof *a);
    a->pool = pool;
}

static struct arena_pool *arena_pool(struct arena *a) {
    return a->pool != NULL ? a->pool : &a->own;
}

static void arena_drop_head(struct arena *a) {
    struct arena_chunk *chunk = a->head;
    a->head = chunk->next;
    arena_pool(a)->chunk_bytes -= chunk->size;
    free(chunk);
}

void arena_clear(struct arena *a) {
    while (a->head != NULL) {
        arena_drop_head(a);
    }
    a->used_bytes = 0;
}

void arena_done(struct arena *a) {
    if (a != NULL) {
        arena_clear(a);
        a->has_recover = false;
    }
}

static bool arena_grow(struct arena *a, size_t need) {
    struct arena_pool *pool = arena_pool(a);
    size_t size = need > CHUNK_BYTES ? need : CHUNK_BYTES;
    if (size > pool->limit_bytes - pool->chunk_bytes) {
        size = need; /* near the limit take only what is needed */
        if (size > pool->limit_bytes - pool->chunk_bytes) {
            return false;
        }
    }
    void *memory = NULL;
    if (size > SIZE_MAX - sizeof(struct arena_chunk) ||
        posix_memalign(&memory, 64, sizeof(struct arena_chunk) + size) != 0) {
        return false;
    }
    struct arena_chunk *chunk = memory;
    chunk->next = a->head;
    chunk->size = size;
    chunk->used = 0;
    a->head = chunk;
    pool->chunk_bytes += size;
    return true;
}

void *arena_try_alloc(struct arena *a, size_t size, size_t align) {
    if (a->fail_after == ARENA_FAIL_NOW) {
        return NULL;
    }
    if (a->fail_after != 0 && --a->fail_after == 0) {
        a->fail_after = ARENA_FAIL_NOW; /* the next one and every later one */
    }
    if (size > SIZE_MAX / 2) {
        return NULL;
    }
    size_t start = 0;
    if (a->head != NULL) {
        start = (a->head->used + align - 1) & ~(align - 1);
    }
    if (a->head == NULL || start > a->head->size || a->head->size - start < size) {
        if (!arena_grow(a, size)) {
            return NULL;
        }
        start = 0;
    }
    struct arena_chunk *chunk = a->head;
    a->used_bytes += start + size - chunk->used;
    if (a->used_bytes > a->peak_bytes) {
        a->peak_bytes = a->used_bytes;
    }
    chunk->used = start + size;
    return memset(chunk->bytes + start, 0, size);
}

void *arena_alloc(struct arena *a, size_t size, size_t align) {
    void *p = arena_try_alloc(a, size, align);
    if (p == NULL) {
        if (!a->has_recover) {
            abort();
        }
        longjmp(a->recover, 1);
    }
    return p;
}

void *arena_array(struct arena *a, size_t n, size_t size, size_t align) {
    size_t total;
    if (__builtin_mul_overflow(n, size, &total)) {
        total = SIZE_MAX; /* arena_try_alloc() refuses it */
    }
    return arena_alloc(a, total, align);
}

struct arena_mark arena_mark(const struct arena *a) {
    return (struct arena_mark){a->head, a->head != NULL ? a->head->used : 0, a->used_bytes};
}

void arena_rewind(struct arena *a, struct arena_mark mark) {
    while (a->head != mark.chunk) {
        arena_drop_head(a);
    }
    if (a->head != NULL) {
        a->head->used = mark.chunk_used;
    }
    a->used_bytes = mark.used_bytes;
}

void *arena_memdup(struct arena *a, const void *bytes, size_t n) {
    void *copy = arena_alloc(a, n, 16);
    if (n > 0) {
        memcpy(copy, bytes, n);
    }
    return copy;
}

char *arena_strndup(struct arena *a, const char *text, size_t n) {
    char *copy = arena_alloc(a, n + 1, 1);
    memcpy(copy, text, n);
    return copy;
}

char *arena_strdup(struct arena *a, const char *text) {
    return arena_strndup(a, text, strlen(text));
}

char *arena_printf(struct arena *a, const char *format, ...) {
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(NULL, 0, format, ap);
    va_end(ap);
    char *text = arena_alloc(a, (size_t)n + 1, 1);
    va_start(ap, format);
    vsnprintf(text, (size_t)n + 1, format, ap);
    va_end(ap);
    return text;
}
