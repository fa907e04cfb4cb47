/* Open addressing with linear probing; the table doubles at half load, so a probe always ends. */
#include "base/intern.h"

#include <assert.h>
#include <string.h>

static uint64_t hash_name(const char *name) {
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */
    for (const char *p = name; *p != '\0'; p++) {
        h = (h ^ (unsigned char)*p) * 0x100000001b3u;
    }
    return h ^ h >> 32;
}

/* Slot of the name, or the free slot where it belongs. */
static uint32_t probe(const struct intern *t, const char *name) {
    uint32_t mask = t->slot_count - 1;
    uint32_t at = (uint32_t)hash_name(name) & mask;
    while (t->slots[at] != 0 && strcmp(t->names[t->slots[at] - 1], name) != 0) {
        at = (at + 1) & mask;
    }
    return at;
}

static void grow(struct intern *t) {
    uint32_t cap = t->cap == 0 ? 32 : t->cap * 2;
    const char **names = ARENA_ARRAY(t->arena, const char *, cap);
    uint32_t *slots = ARENA_ARRAY(t->arena, uint32_t, (size_t)cap * 2);
    if (t->count > 0) {
        memcpy(names, t->names, t->count * sizeof *names);
    }
    t->names = names;
    t->cap = cap;
    t->slots = slots;
    t->slot_count = cap * 2;
    for (uint32_t id = 0; id < t->count; id++) {
        t->slots[probe(t, t->names[id])] = id + 1;
    }
}

uint32_t intern_add(struct intern *t, const char *name) {
    if (t->count == t->cap) {
        grow(t);
    }
    uint32_t at = probe(t, name);
    if (t->slots[at] == 0) {
        t->names[t->count] = arena_strdup(t->arena, name);
        t->slots[at] = ++t->count;
    }
    return t->slots[at] - 1;
}

uint32_t intern_find(const struct intern *t, const char *name) {
    if (t->count == 0) {
        return INTERN_NONE;
    }
    uint32_t slot = t->slots[probe(t, name)];
    return slot != 0 ? slot - 1 : INTERN_NONE;
}

const char *intern_name(const struct intern *t, uint32_t id) {
    assert(id < t->count);
    return t->names[id];
}
