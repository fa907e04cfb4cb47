/* Dense sets of small integers (tiles, buffers, values) on an arena.
 *
 *     struct bitset s = bitset_new(arena, 1472);
 *     bitset_add(&s, 7);
 *     for (uint32_t i = bitset_next(&s, 0); i < s.size; i = bitset_next(&s, i + 1)) ...
 *
 * Members are 0 .. size-1; asking for another is a programming error. Bits above size stay 0, so
 * equality and count work on whole words. */
#ifndef BASE_BITSET_H
#define BASE_BITSET_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"

struct bitset {
    uint64_t *words; /* arena */
    uint32_t size;   /* bits */
};

struct bitset bitset_new(struct arena *a, uint32_t size); /* empty */
void bitset_clear(struct bitset *s);
/* Both of one size. */
void bitset_copy(struct bitset *to, const struct bitset *from);
void bitset_union(struct bitset *to, const struct bitset *from);
void bitset_subtract(struct bitset *to, const struct bitset *from);
void bitset_intersect(struct bitset *to, const struct bitset *from);
bool bitset_equal(const struct bitset *a, const struct bitset *b);
bool bitset_meets(const struct bitset *a, const struct bitset *b); /* common member? */
uint32_t bitset_count(const struct bitset *s);
/* Smallest member >= from; size when there is none. */
uint32_t bitset_next(const struct bitset *s, uint32_t from);
/* Adds first .. first+n-1. */
void bitset_add_range(struct bitset *s, uint32_t first, uint32_t n);

static inline void bitset_add(struct bitset *s, uint32_t i) {
    assert(i < s->size);
    s->words[i >> 6] |= (uint64_t)1 << (i & 63);
}

static inline void bitset_remove(struct bitset *s, uint32_t i) {
    assert(i < s->size);
    s->words[i >> 6] &= ~((uint64_t)1 << (i & 63));
}

static inline bool bitset_has(const struct bitset *s, uint32_t i) {
    assert(i < s->size);
    return (s->words[i >> 6] >> (i & 63) & 1) != 0;
}

#endif
