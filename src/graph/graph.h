/* The model as a graph in ONNX terms (design.md D1, D9).
 *
 * Job: model.json -> checked, shaped, typed graph -> canonical form and key. Input: parsed JSON
 * (borrowed) and the headers of tensor files. Output: arena data, const once made.
 *
 * A value is a tensor with one producer: a graph input, an initialiser or a node's output. Values
 * and nodes live in flat arrays and are named by one-member structs (R21).
 *
 * Invariants, checked by graph_verify(): (1) acyclic, nodes in topological order; (2) names
 * unique; (3) arity, attributes, dtypes and shapes as op.def says; (4) every value but an unused
 * input is read or is an output (after canonicalisation).
 *
 * Canonical form (D1): depth first from the outputs in declared order, operands in order. Inputs
 * and initialisers get their ids when first visited, a node and its results when all operands have
 * theirs, so nodes come out in topological order. Nodes, initialisers and inputs that no output
 * needs are dropped with a warning. Ordinals of inputs, parameters and outputs in packages are
 * those of the canonical graph.
 *
 * Hashed constants (D1): initialisers of rank 0, of an integer or bool type, or read as an exponent
 * (operand E of op.def). Their values are in `source.bytes` whatever the source; they are no
 * parameters. Their generator, if any, must be constant, so the key does not depend on the job's
 * seed. Operands that decide shapes, axes or bounds (I and J of op.def) are always of this kind.
 *
 * Generators (D9): `key` = mix(mix(job seed) ^ seed), with mix() one step of SplitMix64 from that
 * state; state = key ^ element index.
 *   constant  deviate 0: the value is `offset`
 *   uniform   (mix(state) >> 11) / 2^53, in [0, 1)
 *   normal    sum of twelve uniform 32-bit integers (the halves of six outputs of the SplitMix64
 *             stream from `state`), centred and divided by 2^32: mean 0, variance 1, within +-6
 * All of it is integer arithmetic and exact scaling; offset + scale * deviate is one fma(). So
 * every machine gives the same values.
 */
#ifndef GRAPH_GRAPH_H
#define GRAPH_GRAPH_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/digest.h"
#include "base/err.h"
#include "base/tensor.h"

#define GRAPH_MAX_NODES           65536
#define GRAPH_MAX_VALUES          131072
#define GRAPH_MAX_ARITY           16
#define GRAPH_MAX_INLINE_ELEMENTS 65536 /* values in the model file, and of a hashed constant */
#define GRAPH_MAX_TENSOR_BYTES    (1ull << 30)
#define GRAPH_MAX_NAME            256 /* bytes of a name */

struct value_id {
    uint32_t n;
};
struct node_id {
    uint32_t n;
};
#define NO_VALUE ((struct value_id){UINT32_MAX})
#define NO_NODE  ((struct node_id){UINT32_MAX})

enum graph_op { /* rows of op.def, ONNX names */
#define GRAPH_OP(NAME, ...) GRAPH_OP_##NAME,
#include "graph/op.def"
#undef GRAPH_OP
                GRAPH_OP_COUNT
};

enum value_kind { VALUE_INPUT, VALUE_INITIALIZER, VALUE_NODE };

enum source_kind { /* where an initialiser's (or a generated input's) bytes come from */
                   SOURCE_NONE,      /* a host input that the job must supply */
                   SOURCE_FILE,      /* tensor of a safetensors file label */
                   SOURCE_INLINE,    /* values in the model file */
                   SOURCE_GENERATOR, /* seeded, integer-defined (D9) */
};

enum generator_kind { GENERATOR_CONSTANT, GENERATOR_UNIFORM, GENERATOR_NORMAL };

struct value_source {
    enum source_kind kind;
    const char *file;     /* label in the job's `files` */
    const char *tensor;   /* name inside that file */
    uint64_t file_offset; /* bytes, SOURCE_FILE: filled from the header */
    const uint8_t *bytes; /* stored values, C order, dtype of the value: SOURCE_INLINE, and every
                           * hashed constant; else NULL */
    enum generator_kind generator;
    uint64_t seed;        /* generator's own seed; the job's --seed is mixed in */
    double scale, offset; /* generator: offset + scale * deviate */
};

struct graph_value {
    enum value_kind kind;
    const char *name;
    enum dtype dtype;
    struct shape shape;
    struct node_id producer;  /* NO_NODE unless VALUE_NODE */
    uint32_t producer_output; /* which output of it */
    struct value_source source;
    bool is_output;
    bool is_hashed_constant; /* D1: its value enters the key; the compiler may use it */
};

enum attr_kind { ATTR_INT, ATTR_FLOAT, ATTR_STRING, ATTR_INTS };
struct graph_attr {
    const char *name;
    enum attr_kind kind;
    int64_t i;
    double f;
    const char *s;
    const int64_t *ints;
    uint32_t count;
};

struct graph_node {
    enum graph_op op;
    const char *name;
    struct value_id inputs[GRAPH_MAX_ARITY]; /* NO_VALUE for an absent optional one */
    uint32_t input_count;
    struct value_id outputs[GRAPH_MAX_ARITY];
    uint32_t output_count;
    struct graph_attr
        *attrs; /* all attributes of the operator, defaults filled in, in op.def order */
    uint32_t attr_count;
    const char *pointer; /* JSON pointer of the node in the model file, for errors */
};

struct graph {
    struct graph_value *values;
    uint32_t value_count;
    struct graph_node *nodes; /* topological order */
    uint32_t node_count;
    struct value_id *inputs; /* declared order (canonical: first-visit order) */
    uint32_t input_count;
    struct value_id *outputs; /* declared order */
    uint32_t output_count;
    struct value_id *parameters; /* initialisers that are loaded by `initialize`, in id order */
    uint32_t parameter_count;
};

/* ---- Building (load.c and tests) -------------------------------------------------------- */
struct graph_builder; /* arena */
struct graph_builder *graph_builder_new(struct arena *a);
/* Names must be new and shapes within limits: graph_finish() checks. Texts, bytes and attribute
 * arrays are borrowed for as long as the graph lives. */
struct value_id graph_add_input(
    struct graph_builder *b, const char *name, enum dtype t, const struct shape *s,
    const struct value_source *source /* NULL = host data */);
struct value_id graph_add_initializer(
    struct graph_builder *b, const char *name, enum dtype t, const struct shape *s,
    const struct value_source *source);
/* Infers output shapes; attrs may be fewer than the operator has. Outputs get `names`. */
int graph_add_node(
    struct graph_builder *b, enum graph_op op, const char *name, const struct value_id *inputs,
    uint32_t input_count, const struct graph_attr *attrs, uint32_t attr_count,
    const char *const *output_names, uint32_t output_count, const char *pointer,
    struct value_id *ret_outputs, struct err *err);
int graph_finish(
    struct graph_builder *b, const struct value_id *outputs, uint32_t output_count,
    struct graph **ret, struct err *err);

/* ---- Loading ---------------------------------------------------------------------------- */
struct json_t;
/* Opens the tensor file of a label; returns a descriptor that the callee closes, or -ERR_x. */
typedef int graph_open_file_fn(void *arg, const char *label, struct err *err);
/* model: parsed model.json, borrowed (nothing of it is kept). Errors carry a JSON pointer into it
 * in err->where. open_file may be NULL: then initialisers from files are errors. Nodes may stand
 * in any order. An output must be the result of a node. Memory comes from the arena, whose jump
 * (arena.h) may leave this function: it then leaks nothing. */
int graph_load(
    const struct json_t *model, graph_open_file_fn *open_file, void *arg, struct arena *a,
    struct graph **ret, struct err *err);

/* ---- Canonical form and key ------------------------------------------------------------- */
/* warnings: one text a dropped node, initialiser or input; arena. Texts and bytes stay those
 * of g. */
int graph_canonical(
    const struct graph *g, struct arena *a, struct graph **ret, const char *const **ret_warnings,
    uint32_t *ret_warning_count, struct err *err);
/* Digest of a canonical graph without names and sources. */
int graph_digest(const struct graph *g, struct digest *ret, struct err *err);

int graph_verify(const struct graph *g, struct err *err);
void graph_print(const struct graph *g, FILE *out);

const char *graph_op_name(enum graph_op op); /* "MatMul" */
bool graph_op_find(const char *name, enum graph_op *ret);
const struct graph_attr *
graph_attr(const struct graph_node *n, const char *name); /* never NULL for an operator's own */

/* Element i (flat C order) of a hashed constant of type int64 or int32. */
int64_t graph_int(const struct graph_value *v, uint64_t i);
/* First element and step of each axis of input 0 of a Slice; steps may be negative. Of a checked
 * graph, as the next one. */
void graph_slice(
    const struct graph *g, const struct graph_node *n, int64_t ret_start[TENSOR_MAX_DIMS],
    int64_t ret_step[TENSOR_MAX_DIMS]);
/* Axes that a Reduce* or Squeeze names of its operand, an Unsqueeze of its result. */
void graph_axes(
    const struct graph *g, const struct graph_node *n, bool ret_is_named[TENSOR_MAX_DIMS]);

/* Stored bytes of elements first .. first+n-1 of a value whose data the model itself holds:
 * generated, inline, or a hashed constant. -ERR_MISSING for host inputs and file tensors. */
int graph_fill(
    const struct graph_value *v, uint64_t job_seed, uint64_t first, uint64_t n, uint8_t *bytes,
    struct err *err);
/* Element i (flat C order) of a generated tensor as a double before rounding to its dtype;
 * job_seed is the --seed option. */
double graph_generate(const struct value_source *source, uint64_t job_seed, uint64_t i);

#endif
