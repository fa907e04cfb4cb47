/* Bump allocator with a byte limit (R17, R18).
 *
 * One arena owns everything of one compile; nothing in it is freed singly, and nothing in it may
 * hold a descriptor, a lock or a heap pointer. Memory is zeroed.
 *
 * arena_alloc() never returns NULL. At the limit, or when malloc fails, it jumps to the recovery
 * point set by ARENA_RECOVER(); without one it returns through abort(), which is a programming
 * error. Code that must not be left by a jump uses arena_try_alloc().
 *
 *     struct arena a;
 *     arena_init(&a, 64u << 20);
 *     if (ARENA_RECOVER(&a)) { arena_done(&a); return err_set(err, ERR_NOMEM, ...); }
 */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena_chunk;

/* What the arenas of one job hold together. */
struct arena_pool {
    size_t limit_bytes; /* chunk_bytes stays at or below it */
    size_t chunk_bytes; /* held from malloc */
};

#define ARENA_FAIL_NOW UINT64_MAX

struct arena {
    struct arena_chunk *head; /* newest chunk, owned */
    struct arena_pool own;    /* of an arena that shares none */
    struct arena_pool *pool;  /* borrowed; NULL = own */
    size_t used_bytes;        /* handed out, padding included */
    size_t peak_bytes;        /* largest used_bytes seen */
    uint64_t fail_after;      /* test hook: that many allocations succeed, all later ones fail;
                               * 0 off, ARENA_FAIL_NOW fails the very next */
    jmp_buf recover;          /* valid while has_recover */
    bool has_recover;
};

struct arena_mark {
    struct arena_chunk *chunk;
    size_t chunk_used;
    size_t used_bytes;
};

/* Nonzero when an allocation has jumped back. */
#define ARENA_RECOVER(a) ((a)->has_recover = true, setjmp((a)->recover))

void arena_init(struct arena *a, size_t limit_bytes);
void arena_init_shared(struct arena *a, struct arena_pool *pool); /* pool outlives the arena */
void arena_done(struct arena *a);                                 /* NULL accepted */
/* align is a power of two, at most 64. size 0 gives a valid pointer. */
void *arena_alloc(struct arena *a, size_t size, size_t align);
void *arena_try_alloc(struct arena *a, size_t size, size_t align); /* NULL at the limit */
struct arena_mark arena_mark(const struct arena *a);
void arena_rewind(struct arena *a, struct arena_mark mark); /* frees all that came later */
void arena_clear(struct arena *a);                          /* frees all */
char *arena_strdup(struct arena *a, const char *text);
char *arena_strndup(struct arena *a, const char *text, size_t n);
char *arena_printf(struct arena *a, const char *format, ...) __attribute__((format(printf, 2, 3)));
void *arena_memdup(struct arena *a, const void *bytes, size_t n);

#define ARENA_NEW(a, type) ((type *)arena_alloc((a), sizeof(type), _Alignof(type)))
/* n is checked against overflow inside arena_array(). */
#define ARENA_ARRAY(a, type, n) ((type *)arena_array((a), (n), sizeof(type), _Alignof(type)))
void *arena_array(struct arena *a, size_t n, size_t size, size_t align);

#endif
