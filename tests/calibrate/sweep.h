/* Kernel calls on one simulated tile, timed: every variant that exists, over shapes. Variants are
 * found by themselves from kernels.def and kernel_variant_exists(); only what a kernel's sizes mean
 * has to be said, in shapes.c: a kernel without a row there is an error that names it.
 *
 * The tile is the simulator's, which knows nothing of cycles.c: what differs is the formula.
 */
#ifndef TESTS_CALIBRATE_SWEEP_H
#define TESTS_CALIBRATE_SWEEP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "kernels/kernels.h"

#define SWEEP_WORDS  16 /* of a descriptor */
#define SWEEP_DIMS   4
#define SWEEP_SHAPES 24
#define SWEEP_FREE   0x53F00u /* address that no operand lies at */

/* A call's descriptor: sizes and scalars in `words`; `bytes` of each operand at its word, from
 * which the sweep makes addresses. */
struct sweep_call {
    uint32_t words[SWEEP_WORDS];
    uint32_t bytes[SWEEP_WORDS];
    uint32_t fill[SWEEP_WORDS]; /* word that fills the operand; 0 = two f16 ones */
};

/* Fields of a variant that a kernel looks at, beside op and act. */
enum {
    SWEEP_BIAS = 1 << 0,
    SWEEP_F32 = 1 << 1,
    SWEEP_REGION1 = 1 << 2,
    SWEEP_IN_F16 = 1 << 3,
    SWEEP_ACCUMULATES = 1 << 4,
    SWEEP_RESIDUAL = 1 << 5,
    SWEEP_FORM = 1 << 6,
};

struct sweep_kernel {
    enum kernel_id id;
    unsigned fields;
    uint32_t shapes[SWEEP_SHAPES][SWEEP_DIMS]; /* dims of kernel_cycles(); ended by zeros */
    void (*fill)(const struct kernel_variant *v, const uint32_t *dims, struct sweep_call *ret);
};

/* NULL when shapes.c has no row for the kernel. */
const struct sweep_kernel *sweep_kernel(enum kernel_id id);

struct sweep_point {
    struct kernel_variant variant;
    uint32_t dims[SWEEP_DIMS];
    uint32_t measured, predicted; /* tile cycles */
};

typedef void sweep_fn(const struct sweep_point *p, void *arg);

/* All variants of a kernel, each over every stride-th of its shapes, in turn with the variants so
 * that all shapes are met. -ERR_NOT_FOUND without a row in shapes.c; -ERR_TILE_FAULT when a call
 * does not return. */
int sweep_run(enum kernel_id id, uint32_t stride, sweep_fn *fn, void *arg, struct err *err);

struct sweep_summary { /* of a kernel's points; errors are predicted / measured - 1 */
    uint32_t points, variants;
    double median, p95, worst; /* of the absolute error */
    double mean;               /* signed */
    double slope, offset;      /* least squares: measured = slope * predicted + offset */
    struct sweep_point worst_point;
};

/* Sweeps and sums up. */
int sweep_summary(enum kernel_id id, uint32_t stride, struct sweep_summary *ret, struct err *err);

#endif
