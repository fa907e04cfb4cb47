/* One operator on doubles. */
#ifndef REFERENCE_REFERENCE_INTERNAL_H
#define REFERENCE_REFERENCE_INTERNAL_H

#include "reference/reference.h"

struct reference_call {
    const struct graph *graph;
    const struct graph_node *node;
    const double *in[GRAPH_MAX_ARITY]; /* NULL: absent operand */
    const struct shape *shapes[GRAPH_MAX_ARITY];
    double *out;               /* zeroed */
    const struct shape *shape; /* of the result */
};

struct reference_op {
    void (*eval)(const struct reference_call *c);
    uint32_t (*roundings)(const struct reference_call *c, bool accumulate_f16);
};

extern const struct reference_op reference_ops[GRAPH_OP_COUNT];

/* Operand shapes and the node; values stay NULL. */
struct reference_call reference_describe(const struct graph *g, const struct graph_node *n);

#endif
