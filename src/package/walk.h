/* The affine map of a slice, element by element (package.h): the one walk that the verifier, the
 * compiler's literals and the host's gather and scatter share.
 *
 *     struct package_walk w = package_walk_begin(s);
 *     do {
 *         ... w.element of the tensor lies at byte w.byte of the page ...
 *     } while (package_walk_next(s, TENSOR_MAX_DIMS - 1, &w));
 *
 * The last dimension runs fastest. It ends: each step advances a counter below its extent. */
#ifndef PACKAGE_WALK_H
#define PACKAGE_WALK_H

#include "package/package.h"

struct package_walk {
    uint32_t at[TENSOR_MAX_DIMS];
    int64_t element; /* of the tensor */
    int64_t byte;    /* of the tile's page */
};

static inline struct package_walk package_walk_begin(const struct package_slice *s) {
    return (struct package_walk){.element = (int64_t)s->tensor_offset, .byte = s->page_offset};
}

/* Steps dimension `from` and those before it: the caller handles whole rows of the ones behind.
 * False when all have been seen. */
static inline bool
package_walk_next(const struct package_slice *s, int from, struct package_walk *w) {
    for (int k = from; k >= 0; k--) {
        w->element += s->tensor_stride[k];
        w->byte += s->page_stride[k];
        if (++w->at[k] < s->extent[k]) {
            return true;
        }
        w->element -= (int64_t)s->extent[k] * s->tensor_stride[k];
        w->byte -= (int64_t)s->extent[k] * s->page_stride[k];
        w->at[k] = 0;
    }
    return false;
}

#endif
