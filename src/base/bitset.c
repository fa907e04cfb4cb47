/* Dense sets, word by word. */
#include "base/bitset.h"

#include <string.h>

static uint32_t word_count(const struct bitset *s) {
    return (uint32_t)(((uint64_t)s->size + 63) / 64);
}

struct bitset bitset_new(struct arena *a, uint32_t size) {
    struct bitset s = {NULL, size};
    s.words = ARENA_ARRAY(a, uint64_t, word_count(&s)); /* zeroed */
    return s;
}

void bitset_clear(struct bitset *s) {
    memset(s->words, 0, word_count(s) * sizeof *s->words);
}

void bitset_copy(struct bitset *to, const struct bitset *from) {
    assert(to->size == from->size);
    memcpy(to->words, from->words, word_count(to) * sizeof *to->words);
}

void bitset_union(struct bitset *to, const struct bitset *from) {
    assert(to->size == from->size);
    for (uint32_t i = 0; i < word_count(to); i++) {
        to->words[i] |= from->words[i];
    }
}

void bitset_subtract(struct bitset *to, const struct bitset *from) {
    assert(to->size == from->size);
    for (uint32_t i = 0; i < word_count(to); i++) {
        to->words[i] &= ~from->words[i];
    }
}

void bitset_intersect(struct bitset *to, const struct bitset *from) {
    assert(to->size == from->size);
    for (uint32_t i = 0; i < word_count(to); i++) {
        to->words[i] &= from->words[i];
    }
}

bool bitset_equal(const struct bitset *a, const struct bitset *b) {
    return a->size == b->size && memcmp(a->words, b->words, word_count(a) * sizeof *a->words) == 0;
}

bool bitset_meets(const struct bitset *a, const struct bitset *b) {
    assert(a->size == b->size);
    for (uint32_t i = 0; i < word_count(a); i++) {
        if ((a->words[i] & b->words[i]) != 0) {
            return true;
        }
    }
    return false;
}

uint32_t bitset_count(const struct bitset *s) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < word_count(s); i++) {
        n += (uint32_t)__builtin_popcountll(s->words[i]);
    }
    return n;
}

uint32_t bitset_next(const struct bitset *s, uint32_t from) {
    if (from >= s->size) {
        return s->size;
    }
    uint32_t i = from >> 6;
    uint64_t word = s->words[i] & ~(uint64_t)0 << (from & 63);
    while (word == 0) {
        if (++i == word_count(s)) {
            return s->size;
        }
        word = s->words[i];
    }
    return i * 64 + (uint32_t)__builtin_ctzll(word);
}

void bitset_add_range(struct bitset *s, uint32_t first, uint32_t n) {
    assert(first <= s->size && n <= s->size - first);
    for (uint32_t i = first; i < first + n;) {
        uint32_t bits = 64 - (i & 63);
        if (bits > first + n - i) {
            bits = first + n - i;
        }
        uint64_t mask = bits == 64 ? ~(uint64_t)0 : ((uint64_t)1 << bits) - 1;
        s->words[i >> 6] |= mask << (i & 63);
        i += bits;
    }
}
