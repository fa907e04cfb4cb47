/* Small dense networks as graphs, for the tests of the compiler's stages. */
#ifndef TESTS_DENSE_NET_H
#define TESTS_DENSE_NET_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/graph.h"

struct net {
    struct arena *arena;
    struct graph_builder *b;
    uint32_t made; /* counter for names */
};

static inline struct shape net_shape(int64_t rows, int64_t columns) {
    return (struct shape){.rank = 2, .dim = {rows, columns}};
}

static inline struct net net_new(struct arena *a) {
    return (struct net){a, graph_builder_new(a), 0};
}

static inline struct value_id net_input(struct net *n, int64_t rows, int64_t columns) {
    struct shape s = net_shape(rows, columns);
    return graph_add_input(n->b, arena_printf(n->arena, "x%u", n->made++), DTYPE_FLOAT16, &s, NULL);
}

static inline struct value_id net_param(struct net *n, struct shape s) {
    struct value_source source = {
        .kind = SOURCE_GENERATOR, .generator = GENERATOR_UNIFORM, .seed = n->made, .scale = 0.1};
    return graph_add_initializer(
        n->b, arena_printf(n->arena, "p%u", n->made++), DTYPE_FLOAT16, &s, &source);
}

static inline struct value_id net_node(
    struct net *n, enum graph_op op, struct value_id a, struct value_id b, struct value_id c,
    const struct graph_attr *attrs, uint32_t attr_count) {
    struct value_id inputs[3] = {a, b, c};
    uint32_t count = c.n != NO_VALUE.n ? 3 : b.n != NO_VALUE.n ? 2 : 1;
    const char *name = arena_printf(n->arena, "n%u", n->made);
    const char *output = arena_printf(n->arena, "v%u", n->made++);
    struct value_id ret = NO_VALUE;
    struct err err = {0};
    if (graph_add_node(
            n->b, op, name, inputs, count, attrs, attr_count, &output, 1,
            arena_printf(n->arena, "/nodes/%s", name), &ret, &err) != 0) {
        fprintf(stderr, "graph_add_node: %s\n", err.text);
        exit(1);
    }
    return ret;
}

static inline struct value_id net_op(struct net *n, enum graph_op op, struct value_id x) {
    return net_node(n, op, x, NO_VALUE, NO_VALUE, NULL, 0);
}

/* x W + bias, with bias NO_VALUE-less Gemm. */
static inline struct value_id net_gemm(
    struct net *n, struct value_id x, int64_t inner, int64_t columns, bool transposed, bool bias) {
    struct value_id w =
        net_param(n, transposed ? net_shape(columns, inner) : net_shape(inner, columns));
    struct value_id c = bias ? net_param(n, (struct shape){.rank = 1, .dim = {columns}}) : NO_VALUE;
    struct graph_attr attr = {.name = "transB", .kind = ATTR_INT, .i = transposed ? 1 : 0};
    return net_node(n, GRAPH_OP_Gemm, x, w, c, &attr, 1);
}

static inline struct graph *
net_finish(struct net *n, const struct value_id *outputs, uint32_t count) {
    struct graph *g = NULL, *canonical = NULL;
    const char *const *warnings;
    uint32_t warning_count;
    struct err err = {0};
    if (graph_finish(n->b, outputs, count, &g, &err) != 0 ||
        graph_canonical(g, n->arena, &canonical, &warnings, &warning_count, &err) != 0) {
        fprintf(stderr, "graph_finish: %s\n", err.text);
        exit(1);
    }
    return canonical;
}

/* rows x widths[0] -> ... -> widths[count - 1], Relu between, Softmax at the end. */
static inline struct graph *
net_mlp(struct arena *a, int64_t rows, const int64_t *widths, int count) {
    struct net n = net_new(a);
    struct value_id x = net_input(&n, rows, widths[0]);
    for (int i = 1; i < count; i++) {
        x = net_gemm(&n, x, widths[i - 1], widths[i], i % 2 == 0, true);
        if (i + 1 < count) {
            x = net_op(&n, GRAPH_OP_Relu, x);
        }
    }
    x = net_op(&n, GRAPH_OP_Softmax, x);
    return net_finish(&n, &x, 1);
}

/* Residual block: y = Add(x, Gemm(Gelu(Gemm(x)))), two outputs. */
static inline struct graph *
net_residual(struct arena *a, int64_t rows, int64_t width, int64_t inner) {
    struct net n = net_new(a);
    struct value_id x = net_input(&n, rows, width);
    struct value_id h = net_op(&n, GRAPH_OP_Gelu, net_gemm(&n, x, width, inner, false, true));
    struct value_id y = net_node(
        &n, GRAPH_OP_Add, x, net_gemm(&n, h, inner, width, true, false), NO_VALUE, NULL, 0);
    struct value_id outputs[2] = {y, net_op(&n, GRAPH_OP_Tanh, h)};
    return net_finish(&n, outputs, 2);
}

#endif
