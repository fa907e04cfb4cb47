/* One operator on doubles. */
#ifndef REFERENCE_REFERENCE_INTERNAL_H
#define REFERENCE_REFERENCE_INTERNAL_H

#include "reference/reference.h"

struct reference_call {
    const struct graph *graph;
    const struct graph_node *node;
    const double *in[GRAPH_MAX_ARITY]; /* NULL: absent operand */
    const struct shape *shapes[GRAPH_MAX_ARITY];
    double *out;               /* first result, zeroed */
    const struct shape *shape; /* of it */
    double *outs[GRAPH_MAX_ARITY];
    const struct shape *out_shapes[GRAPH_MAX_ARITY];
};

struct reference_op {
    void (*eval)(const struct reference_call *c);
    uint32_t (*roundings)(const struct reference_call *c, bool accumulate_f16);
};

/* Elements of a shape. */
uint64_t reference_count(const struct shape *s);
/* Flat index in an operand that is broadcast (right-aligned) to the result's element `flat`;
 * the last `skip` axes of both are left out. */
uint64_t reference_broadcast(
    uint64_t flat, const struct shape *result, const struct shape *operand, int skip);
/* Flat index -> a coordinate an axis, and back. */
void reference_unravel(uint64_t flat, const struct shape *s, uint64_t ret[TENSOR_MAX_DIMS]);
uint64_t reference_ravel(const uint64_t at[TENSOR_MAX_DIMS], const struct shape *s);
/* Roundings of a sum of `inner` terms that is stored. */
uint32_t
reference_sum_roundings(const struct reference_call *c, uint64_t inner, bool accumulate_f16);

#define REFERENCE_DECLARE(NAME)                                                                    \
    void reference_eval_##NAME(const struct reference_call *c);                                    \
    uint32_t reference_roundings_##NAME(const struct reference_call *c, bool accumulate_f16);
#define GRAPH_OP(NAME, ...) REFERENCE_DECLARE(NAME)
#include "graph/op.def"
#undef GRAPH_OP

extern const struct reference_op reference_ops[GRAPH_OP_COUNT];

/* Operand shapes and the node; values stay NULL. */
struct reference_call reference_describe(const struct graph *g, const struct graph_node *n);

#endif
