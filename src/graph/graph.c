/* The operator table and the builder. */
#include "graph/graph.h"

#include <assert.h>
#include <string.h>

#include "base/bytes.h"
#include "graph/graph_internal.h"

const char *graph_op_name(enum graph_op op) {
    return graph_op_rows[op].name;
}

bool graph_op_find(const char *name, enum graph_op *ret) {
    for (int op = 0; op < GRAPH_OP_COUNT; op++) {
        if (strcmp(graph_op_rows[op].name, name) == 0) {
            *ret = (enum graph_op)op;
            return true;
        }
    }
    return false;
}

const struct graph_attr *graph_attr(const struct graph_node *n, const char *name) {
    for (uint32_t i = 0; i < n->attr_count; i++) {
        if (strcmp(n->attrs[i].name, name) == 0) {
            return &n->attrs[i];
        }
    }
    assert(!"not an attribute of this operator");
    return NULL;
}

bool graph_is_hashed(enum dtype t, const struct shape *s) {
    bool is_float =
        t == DTYPE_FLOAT16 || t == DTYPE_BFLOAT16 || t == DTYPE_FLOAT || t == DTYPE_DOUBLE;
    return s->rank == 0 || !is_float;
}

int64_t graph_int(const struct graph_value *v, uint64_t i) {
    const uint8_t *at = v->source.bytes + i * dtype_bytes(v->dtype);
    return v->dtype == DTYPE_INT32 ? (int32_t)load_le32(at) : (int64_t)load_le64(at);
}

void graph_fill_constant(
    struct arena *a, enum dtype t, const struct shape *s, struct value_source *source) {
    uint64_t elements = 0;
    uint64_t bytes = 0;
    if (source->kind != SOURCE_GENERATOR || source->generator != GENERATOR_CONSTANT ||
        shape_elements(s, t, &elements, &bytes, NULL) < 0 || elements > GRAPH_MAX_INLINE_ELEMENTS) {
        return; /* graph_verify() refuses a hashed constant without bytes */
    }
    uint8_t *filled = arena_alloc(a, bytes, 16);
    for (uint64_t i = 0; i < elements; i++) {
        tensor_put(t, filled, i, graph_generate(source, 0, i));
    }
    source->bytes = filled;
}

struct graph_builder *graph_builder_new(struct arena *a) {
    struct graph_builder *b = ARENA_NEW(a, struct graph_builder);
    b->arena = a;
    return b;
}

static struct value_id push_value(struct graph_builder *b, struct graph_value v) {
    struct value_id id = {(uint32_t)b->values.len};
    vec_push(b->arena, &b->values, v);
    return id;
}

struct value_id graph_add_input(
    struct graph_builder *b, const char *name, enum dtype t, const struct shape *s,
    const struct value_source *source) {
    struct graph_value v = {
        .kind = VALUE_INPUT, .name = name, .dtype = t, .shape = *s, .producer = NO_NODE};
    if (source != NULL) {
        v.source = *source;
    }
    struct value_id id = push_value(b, v);
    vec_push(b->arena, &b->inputs, id);
    return id;
}

struct value_id graph_add_initializer(
    struct graph_builder *b, const char *name, enum dtype t, const struct shape *s,
    const struct value_source *source) {
    struct graph_value v = {
        .kind = VALUE_INITIALIZER,
        .name = name,
        .dtype = t,
        .shape = *s,
        .producer = NO_NODE,
        .source = *source,
        .is_hashed_constant = graph_is_hashed(t, s)};
    if (v.is_hashed_constant && v.source.bytes == NULL) {
        graph_fill_constant(b->arena, t, s, &v.source);
    }
    return push_value(b, v);
}

static int check_arity(
    const struct graph_builder *b, const struct op_row *row, const struct value_id *inputs,
    uint32_t input_count, uint32_t output_count, struct err *err) {
    if (input_count < row->least || input_count > row->most) {
        return err_set(
            err, ERR_BAD_GRAPH, "%u inputs, %s %u", input_count,
            input_count > row->most ? "at most" : "at least",
            input_count > row->most ? row->most : row->least);
    }
    if (output_count < 1 || output_count > row->outputs) {
        return err_set(
            err, ERR_BAD_GRAPH, "%u outputs, %s %u", output_count,
            row->outputs == 1 ? "exactly" : "1 to", row->outputs);
    }
    for (uint32_t i = 0; i < input_count; i++) {
        if (inputs[i].n == NO_VALUE.n && i < row->least) {
            return err_set(err, ERR_BAD_GRAPH, "input %u is required", i);
        }
        assert(inputs[i].n == NO_VALUE.n || inputs[i].n < b->values.len);
    }
    return 0;
}

/* Their initialisers become hashed constants, whatever their type. */
static void hash_exponents(struct graph_builder *b, const struct graph_node *n) {
    for (uint32_t i = 0; i < n->input_count; i++) {
        if (n->inputs[i].n == NO_VALUE.n || graph_operand_letter(n->op, i) != 'E') {
            continue;
        }
        struct graph_value *v = &b->values.data[n->inputs[i].n];
        v->is_hashed_constant = v->kind == VALUE_INITIALIZER;
        if (v->is_hashed_constant && v->source.bytes == NULL) {
            graph_fill_constant(b->arena, v->dtype, &v->shape, &v->source);
        }
    }
}

int graph_add_node(
    struct graph_builder *b, enum graph_op op, const char *name, const struct value_id *inputs,
    uint32_t input_count, const struct graph_attr *attrs, uint32_t attr_count,
    const char *const *output_names, uint32_t output_count, const char *pointer,
    struct value_id *ret_outputs, struct err *err) {
    const struct op_row *row = &graph_op_rows[op];
    struct graph_node n = {.op = op, .name = name, .pointer = pointer};
    while (input_count > 0 && inputs[input_count - 1].n == NO_VALUE.n) {
        input_count--; /* absent optional inputs at the end say nothing */
    }
    int r = check_arity(b, row, inputs, input_count, output_count, err);
    if (r == 0) {
        n.input_count = input_count;
        memcpy(n.inputs, inputs, input_count * sizeof *inputs);
        r = graph_fill_attrs(b->arena, b->values.data, &n, attrs, attr_count, err);
    }
    if (r < 0) {
        err_wrap(err, "node '%s' (%s)", name, row->name);
        err_where(err, "%s", pointer != NULL ? pointer : "");
        return r;
    }
    struct graph_type types[GRAPH_MAX_ARITY];
    n.output_count = output_count;
    hash_exponents(b, &n);
    r = graph_infer(b->values.data, &n, types, err);
    if (r < 0) {
        return r;
    }
    for (uint32_t i = 0; i < output_count; i++) {
        struct graph_value v = {
            .kind = VALUE_NODE,
            .name = output_names[i],
            .dtype = types[i].dtype,
            .shape = types[i].shape,
            .producer = {(uint32_t)b->nodes.len},
            .producer_output = i};
        n.outputs[i] = push_value(b, v);
        ret_outputs[i] = n.outputs[i];
    }
    vec_push(b->arena, &b->nodes, n);
    return 0;
}

void graph_mark_hashed(const struct graph *g, bool *ret) {
    for (uint32_t i = 0; i < g->value_count; i++) {
        const struct graph_value *v = &g->values[i];
        ret[i] = v->kind == VALUE_INITIALIZER && graph_is_hashed(v->dtype, &v->shape);
    }
    for (uint32_t i = 0; i < g->node_count; i++) {
        const struct graph_node *n = &g->nodes[i];
        for (uint32_t k = 0; k < n->input_count && k < GRAPH_MAX_ARITY; k++) {
            uint32_t id = n->inputs[k].n;
            if (id < g->value_count && g->values[id].kind == VALUE_INITIALIZER &&
                graph_operand_letter(n->op, k) == 'E') {
                ret[id] = true;
            }
        }
    }
}

void graph_index(struct graph *g, struct arena *a) {
    uint32_t n = 0;
    bool *is_hashed = ARENA_ARRAY(a, bool, g->value_count);
    graph_mark_hashed(g, is_hashed);
    for (uint32_t i = 0; i < g->value_count; i++) {
        struct graph_value *v = &g->values[i];
        v->is_hashed_constant = is_hashed[i];
        if (!is_hashed[i] && v->source.kind != SOURCE_INLINE) {
            v->source.bytes = NULL; /* an exponent of a node that canonicalisation dropped */
        }
    }
    for (uint32_t i = 0; i < g->output_count; i++) {
        g->values[g->outputs[i].n].is_output = true;
    }
    g->parameters = ARENA_ARRAY(a, struct value_id, g->value_count);
    for (uint32_t i = 0; i < g->value_count; i++) {
        if (g->values[i].kind == VALUE_INITIALIZER && !g->values[i].is_hashed_constant) {
            g->parameters[n++] = (struct value_id){i};
        }
    }
    g->parameter_count = n;
}

int graph_finish(
    struct graph_builder *b, const struct value_id *outputs, uint32_t output_count,
    struct graph **ret, struct err *err) {
    struct graph *g = ARENA_NEW(b->arena, struct graph);
    if (b->values.len > GRAPH_MAX_VALUES || b->nodes.len > GRAPH_MAX_NODES) {
        return err_set(
            err, ERR_TOO_LARGE, "%zu values and %zu nodes, at most %d and %d", b->values.len,
            b->nodes.len, GRAPH_MAX_VALUES, GRAPH_MAX_NODES);
    }
    g->values = b->values.data;
    g->value_count = (uint32_t)b->values.len;
    g->nodes = b->nodes.data;
    g->node_count = (uint32_t)b->nodes.len;
    g->inputs = b->inputs.data;
    g->input_count = (uint32_t)b->inputs.len;
    g->outputs = arena_memdup(b->arena, outputs, output_count * sizeof *outputs);
    g->output_count = output_count;
    for (uint32_t i = 0; i < output_count; i++) {
        assert(outputs[i].n < g->value_count);
    }
    graph_index(g, b->arena);
    int r = graph_verify(g, err);
    if (r < 0) {
        return r;
    }
    *ret = g;
    return 0;
}
