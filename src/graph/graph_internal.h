/* What the files of the module share: the operator table and the builder. */
#ifndef GRAPH_GRAPH_INTERNAL_H
#define GRAPH_GRAPH_INTERNAL_H

#include "base/vec.h"
#include "graph/graph.h"

struct op_attr {
    const char *name; /* NULL ends a list */
    enum attr_kind kind;
    bool is_axis; /* an int in [-rank, rank) of input 0 */
    int64_t i, min, max;
    double f;
    const char *s;
    const char *choices; /* "a|b" */
};

enum op_types { OP_TYPES_FLOATS, OP_TYPES_ANY };

/* Operand shapes (NULL: absent) -> result shape. Faults are texts without place. */
typedef int graph_rule_fn(
    const struct graph_node *n, const struct shape *const *in, struct shape *ret, struct err *err);

struct op_row {
    const char *name;
    uint32_t least, most, outputs;
    enum op_types types;
    graph_rule_fn *rule;
    const struct op_attr *attrs;
};

extern const struct op_row graph_op_rows[GRAPH_OP_COUNT];

struct graph_builder {
    struct arena *arena;
    VEC(struct graph_value) values;
    VEC(struct graph_node) nodes;
    VEC(struct value_id) inputs;
};

/* Result type and shape of a node whose attributes are complete. Names node and operator. */
int graph_infer(
    const struct graph_value *values, const struct graph_node *n, enum dtype *ret_dtype,
    struct shape *ret_shape, struct err *err);
/* Attributes given -> all attributes in table order, checked, axes made non-negative. */
int graph_fill_attrs(
    struct arena *a, const struct graph_value *values, struct graph_node *n,
    const struct graph_attr *given, uint32_t given_count, struct err *err);
/* An attribute's value against its row; rank is that of input 0. */
int graph_check_attr(
    const struct op_attr *row, const struct graph_attr *attr, int rank, struct err *err);
int graph_check_shape(enum dtype t, const struct shape *s, struct err *err);
bool graph_is_hashed(enum dtype t, const struct shape *s);
/* Fills parameters and the flags of values from the outputs. */
void graph_index(struct graph *g, struct arena *a);
/* Stores the constant generator's value in bytes for a hashed constant. */
void graph_fill_constant(
    struct arena *a, enum dtype t, const struct shape *s, struct value_source *source);

#endif
