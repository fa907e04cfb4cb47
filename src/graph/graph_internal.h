/* What the files of the module share: the operator table and the builder. */
#ifndef GRAPH_GRAPH_INTERNAL_H
#define GRAPH_GRAPH_INTERNAL_H

#include "base/vec.h"
#include "graph/graph.h"

#define SHAPE_TEXT 160 /* bytes of a printed shape */

struct op_attr {
    const char *name; /* NULL ends a list */
    enum attr_kind kind;
    bool is_axis;     /* an int in [-rank, rank) of input 0 */
    bool is_type;     /* a string, or ONNX's number of an element type in its place */
    bool is_required; /* no default */
    bool is_derived;  /* default from the operands */
    int64_t i, min, max;
    double f;
    const char *s;
    const char *choices; /* "a|b" */
};

/* A node whose attributes are complete, and the shapes of its operands (NULL: absent). */
struct rule_call {
    const struct graph_node *node;
    const struct graph_value *values;
    const struct shape *in[GRAPH_MAX_ARITY];
};

/* Writes a shape a result. Faults are texts without place. */
typedef int graph_rule_fn(const struct rule_call *c, struct shape *ret, struct err *err);

struct op_row {
    const char *name;
    uint32_t least, most, outputs;
    const char *operands;
    graph_rule_fn *rule;
    const struct op_attr *attrs;
};

struct graph_type {
    enum dtype dtype;
    struct shape shape;
};

extern const struct op_row graph_op_rows[GRAPH_OP_COUNT];

struct graph_builder {
    struct arena *arena;
    VEC(struct graph_value) values;
    VEC(struct graph_node) nodes;
    VEC(struct value_id) inputs;
};

/* Letter of op.def for an operand. */
char graph_operand_letter(enum graph_op op, uint32_t operand);
/* Types and shapes of the results of a node whose attributes are complete. Names node and
 * operator. */
int graph_infer(
    const struct graph_value *values, const struct graph_node *n,
    struct graph_type ret[GRAPH_MAX_ARITY], struct err *err);
/* Attributes given -> all attributes in table order, checked, axes made non-negative. */
int graph_fill_attrs(
    struct arena *a, const struct graph_value *values, struct graph_node *n,
    const struct graph_attr *given, uint32_t given_count, struct err *err);
/* An attribute's value against its row; rank is that of input 0. */
int graph_check_attr(
    const struct op_attr *row, const struct graph_attr *attr, int rank, struct err *err);
int graph_check_shape(enum dtype t, const struct shape *s, struct err *err);
bool graph_is_hashed(enum dtype t, const struct shape *s);
/* Which values are hashed constants, by type, shape and readers; ret: zeroed, one a value. */
void graph_mark_hashed(const struct graph *g, bool *ret);
/* Fills parameters and the flags of values from the outputs and the nodes. */
void graph_index(struct graph *g, struct arena *a);
/* Stores the constant generator's value in bytes for a hashed constant. */
void graph_fill_constant(
    struct arena *a, enum dtype t, const struct shape *s, struct value_source *source);

/* rules_math.c */
graph_rule_fn graph_rule_same, graph_rule_broadcast, graph_rule_matmul, graph_rule_gemm,
    graph_rule_reduce, graph_rule_norm, graph_rule_attention, graph_rule_conv;
/* rules_view.c */
graph_rule_fn graph_rule_reshape, graph_rule_transpose, graph_rule_squeeze, graph_rule_unsqueeze,
    graph_rule_slice, graph_rule_split, graph_rule_concat, graph_rule_gather;
/* Axes named by a constant operand, each in [-rank, rank) and named once; none when absent. */
int graph_take_axes(
    const struct rule_call *c, uint32_t operand, int rank, bool ret[TENSOR_MAX_DIMS],
    struct err *err);

#endif
