/* What the kernels module shares with itself: the embedded texts. */
#ifndef KERNELS_INTERNAL_H
#define KERNELS_INTERNAL_H

#include "kernels/kernels.h"

/* Number of operations of the kernels that `op` selects from. */
#define KERNEL_OPS(X)                                                                              \
    X(BINARY, BINARY_COUNT)                                                                        \
    X(MAP, MAP_COUNT)                                                                              \
    X(ROW_REDUCE, ROW_REDUCE_COUNT)                                                                \
    X(RELAYOUT, RELAYOUT_COUNT)                                                                    \
    X(PICK, PICK_COUNT) X(CAST, CAST_COUNT) X(MAP_F32, MAP_F32_COUNT)                              \
        X(BINARY_F32, BINARY_F32_COUNT) X(ROW_REDUCE_F32, ROW_REDUCE_COUNT)

struct kernel_text {
    const char *text;
    size_t size;
};

struct kernel_text kernel_text_common(void);
struct kernel_text kernel_text(enum kernel_id id);

#endif
