/* Names <-> small ids 0, 1, 2 ... in order of first appearance, on an arena.
 *
 *     struct intern names = {.arena = a};
 *     uint32_t id = intern_add(&names, "w0");
 *     intern_name(&names, id)
 *
 * Iterate over ids: insertion order, never hash order (R22). Names are copied into the arena. */
#ifndef BASE_INTERN_H
#define BASE_INTERN_H

#include <stdint.h>

#include "base/arena.h"

#define INTERN_NONE UINT32_MAX

struct intern {
    struct arena *arena;
    const char **names; /* by id */
    uint32_t count;
    uint32_t cap;
    uint32_t *slots; /* id + 1, 0 = free; a power of two, at most half full */
    uint32_t slot_count;
};

uint32_t intern_add(struct intern *t, const char *name);        /* known or new */
uint32_t intern_find(const struct intern *t, const char *name); /* INTERN_NONE when unknown */
const char *intern_name(const struct intern *t, uint32_t id);

#endif
