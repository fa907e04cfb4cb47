/* Recomputes the invariants of graph.h from the graph alone; the first fault is reported. */
#include <stdlib.h>
#include <string.h>

#include "graph/graph_internal.h"

static int fault_of_value(const struct graph_value *v, struct err *err) {
    return err_wrap(err, "value '%s'", v->name);
}

static int verify_value(const struct graph *g, uint32_t id, bool is_hashed, struct err *err) {
    const struct graph_value *v = &g->values[id];
    if (v->name == NULL || v->name[0] == '\0' || strlen(v->name) > GRAPH_MAX_NAME) {
        return err_set(
            err, ERR_BAD_GRAPH, "value %u: a name of 1 to %d bytes is required", id,
            GRAPH_MAX_NAME);
    }
    if (v->dtype <= DTYPE_NONE || v->dtype >= DTYPE_COUNT) {
        return err_set(err, ERR_DTYPE, "value '%s': no element type", v->name);
    }
    if (graph_check_shape(v->dtype, &v->shape, err) < 0) {
        return fault_of_value(v, err);
    }
    if ((v->kind == VALUE_NODE) != (v->producer.n != NO_NODE.n)) {
        return err_set(err, ERR_BAD_GRAPH, "value '%s': kind and producer disagree", v->name);
    }
    if (v->kind == VALUE_NODE && (v->producer.n >= g->node_count ||
                                  v->producer_output >= g->nodes[v->producer.n].output_count ||
                                  g->nodes[v->producer.n].outputs[v->producer_output].n != id)) {
        return err_set(err, ERR_BAD_GRAPH, "value '%s': not a result of its producer", v->name);
    }
    if (v->kind == VALUE_INITIALIZER && v->source.kind == SOURCE_NONE) {
        return err_set(err, ERR_BAD_GRAPH, "initializer '%s': no source", v->name);
    }
    if (v->is_hashed_constant != is_hashed) {
        return err_set(err, ERR_BAD_GRAPH, "value '%s': wrong hashed-constant flag", v->name);
    }
    if (v->is_hashed_constant && v->source.bytes == NULL) {
        return err_set(
            err, ERR_BAD_GRAPH,
            "initializer '%s': scalars, integers and exponents enter the key: values, a file or a "
            "constant "
            "generator of at most %d elements are required",
            v->name, GRAPH_MAX_INLINE_ELEMENTS);
    }
    return 0;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int verify_names(const struct graph *g, struct err *err) {
    const char **names = calloc(g->value_count + 1, sizeof *names);
    int r = 0;
    if (names == NULL) {
        return err_set(err, ERR_NOMEM, "no memory to verify a graph");
    }
    for (uint32_t i = 0; i < g->value_count; i++) {
        names[i] = g->values[i].name;
    }
    qsort(names, g->value_count, sizeof *names, by_name);
    for (uint32_t i = 1; i < g->value_count && r == 0; i++) {
        if (strcmp(names[i - 1], names[i]) == 0) {
            r = err_set(err, ERR_BAD_GRAPH, "two values are named '%s'", names[i]);
        }
    }
    free(names);
    return r;
}

static int verify_attrs(const struct graph *g, const struct graph_node *n, struct err *err) {
    const struct op_attr *rows = graph_op_rows[n->op].attrs;
    int rank = g->values[n->inputs[0].n].shape.rank;
    uint32_t i = 0;
    for (; rows[i].name != NULL; i++) {
        if (i >= n->attr_count || strcmp(n->attrs[i].name, rows[i].name) != 0) {
            return err_set(err, ERR_BAD_GRAPH, "attribute '%s' is missing", rows[i].name);
        }
        int r = graph_check_attr(&rows[i], &n->attrs[i], rank, err);
        if (r < 0) {
            return r;
        }
    }
    if (i != n->attr_count) {
        return err_set(err, ERR_BAD_GRAPH, "%u attributes, %u expected", n->attr_count, i);
    }
    return 0;
}

static int verify_operands(const struct graph *g, uint32_t id, struct err *err) {
    const struct graph_node *n = &g->nodes[id];
    const struct op_row *row = &graph_op_rows[n->op];
    if (n->input_count < row->least || n->input_count > row->most || n->output_count < 1 ||
        n->output_count > row->outputs) {
        return err_set(
            err, ERR_BAD_GRAPH, "%u inputs and %u outputs, %u to %u and 1 to %u expected",
            n->input_count, n->output_count, row->least, row->most, row->outputs);
    }
    for (uint32_t i = 0; i < n->input_count; i++) {
        uint32_t v = n->inputs[i].n;
        if (v == NO_VALUE.n && i >= row->least) {
            continue;
        }
        if (v >= g->value_count) {
            return err_set(err, ERR_BAD_GRAPH, "input %u is no value", i);
        }
        if (g->values[v].kind == VALUE_NODE && g->values[v].producer.n >= id) {
            return err_set(
                err, ERR_BAD_GRAPH, "input %u ('%s') is made by a later node", i,
                g->values[v].name);
        }
    }
    for (uint32_t i = 0; i < n->output_count; i++) {
        uint32_t v = n->outputs[i].n;
        if (v >= g->value_count || g->values[v].kind != VALUE_NODE ||
            g->values[v].producer.n != id || g->values[v].producer_output != i) {
            return err_set(err, ERR_BAD_GRAPH, "output %u is not its own", i);
        }
    }
    return 0;
}

static int verify_node(const struct graph *g, uint32_t id, struct err *err) {
    const struct graph_node *n = &g->nodes[id];
    int r = verify_operands(g, id, err);
    if (r == 0) {
        r = verify_attrs(g, n, err);
    }
    if (r < 0) {
        err_wrap(err, "node '%s' (%s)", n->name, graph_op_name(n->op));
        err_where(err, "%s", n->pointer != NULL ? n->pointer : "");
        return r;
    }
    struct graph_type types[GRAPH_MAX_ARITY];
    r = graph_infer(g->values, n, types, err);
    for (uint32_t i = 0; i < n->output_count && r == 0; i++) {
        const struct graph_value *v = &g->values[n->outputs[i].n];
        if (v->dtype != types[i].dtype || !shape_equal(&v->shape, &types[i].shape)) {
            char has[160];
            char want[160];
            r = err_set(
                err, ERR_SHAPE, "node '%s': output %u is %s %s, inferred is %s %s", n->name, i,
                dtype_name(v->dtype), shape_print(&v->shape, has, sizeof has),
                dtype_name(types[i].dtype), shape_print(&types[i].shape, want, sizeof want));
        }
    }
    return r;
}

static int verify_interface(const struct graph *g, struct err *err) {
    uint32_t marked = 0;
    if (g->output_count == 0) {
        return err_set(err, ERR_BAD_GRAPH, "a graph needs at least 1 output");
    }
    for (uint32_t i = 0; i < g->output_count; i++) {
        uint32_t v = g->outputs[i].n;
        if (v >= g->value_count || g->values[v].kind != VALUE_NODE || !g->values[v].is_output) {
            return err_set(
                err, ERR_BAD_GRAPH, "output %u ('%s') is not the result of a node", i,
                v < g->value_count ? g->values[v].name : "?");
        }
    }
    for (uint32_t v = 0; v < g->value_count; v++) {
        marked += g->values[v].is_output;
    }
    if (marked != g->output_count) {
        return err_set(
            err, ERR_BAD_GRAPH, "%u outputs name %u values: each may be named once",
            g->output_count, marked);
    }
    for (uint32_t i = 0; i < g->input_count; i++) {
        uint32_t v = g->inputs[i].n;
        if (v >= g->value_count || g->values[v].kind != VALUE_INPUT) {
            return err_set(err, ERR_BAD_GRAPH, "input %u is no input value", i);
        }
    }
    return 0;
}

static int verify_values(const struct graph *g, struct err *err) {
    bool *is_hashed = calloc(g->value_count + 1, sizeof *is_hashed);
    int r = 0;
    if (is_hashed == NULL) {
        return err_set(err, ERR_NOMEM, "no memory to verify a graph");
    }
    graph_mark_hashed(g, is_hashed);
    for (uint32_t i = 0; i < g->value_count && r == 0; i++) {
        r = verify_value(g, i, is_hashed[i], err);
    }
    free(is_hashed);
    return r;
}

/* Operators first: all that follows looks them up in the table. */
static int verify_ops(const struct graph *g, struct err *err) {
    for (uint32_t i = 0; i < g->node_count; i++) {
        if (g->nodes[i].op < 0 || g->nodes[i].op >= GRAPH_OP_COUNT) {
            return err_set(err, ERR_BAD_GRAPH, "node %u: no operator", i);
        }
    }
    return 0;
}

int graph_verify(const struct graph *g, struct err *err) {
    int r = verify_ops(g, err);
    if (r == 0) {
        r = verify_values(g, err);
    }
    for (uint32_t i = 0; i < g->node_count && r == 0; i++) {
        r = verify_node(g, i, err);
    }
    if (r == 0) {
        r = verify_interface(g, err);
    }
    return r == 0 ? verify_names(g, err) : r;
}
