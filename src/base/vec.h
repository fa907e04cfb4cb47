/* Typed growable arrays on an arena. Old storage stays in the arena until it is rewound.
 *
 *     VEC(struct move) moves = {0};
 *     vec_push(arena, &moves, (struct move){...});
 *     for (size_t i = 0; i < moves.len; i++) ... moves.data[i]
 *
 * Pointers into data are valid until the next push (R21).
 */
#ifndef BASE_VEC_H
#define BASE_VEC_H

#include <string.h>

#include "base/arena.h"

#define VEC(type)                                                                                  \
    struct {                                                                                       \
        type *data;                                                                                \
        size_t len;                                                                                \
        size_t cap;                                                                                \
    }

#define vec_reserve(arena, v, n)                                                                   \
    do {                                                                                           \
        if ((v)->cap < (n)) {                                                                      \
            size_t vec_cap_ = (v)->cap < 8 ? 8 : (v)->cap;                                         \
            while (vec_cap_ < (n)) {                                                               \
                vec_cap_ *= 2;                                                                     \
            }                                                                                      \
            __typeof__((v)->data) vec_data_ =                                                      \
                arena_array((arena), vec_cap_, sizeof *(v)->data, _Alignof(max_align_t));          \
            if ((v)->len > 0) {                                                                    \
                memcpy(vec_data_, (v)->data, (v)->len * sizeof *(v)->data);                        \
            }                                                                                      \
            (v)->data = vec_data_;                                                                 \
            (v)->cap = vec_cap_;                                                                   \
        }                                                                                          \
    } while (0)

#define vec_push(arena, v, ...)                                                                    \
    do {                                                                                           \
        vec_reserve((arena), (v), (v)->len + 1);                                                   \
        (v)->data[(v)->len++] = (__VA_ARGS__);                                                     \
    } while (0)

#endif
