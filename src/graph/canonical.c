/* Canonical form and digest (graph.h). The walk keeps its own stack: a deep graph must not use up
 * the machine's. It ends because each value is opened once. */
#include <assert.h>
#include <string.h>

#include "graph/graph_internal.h"

#define UNVISITED UINT32_MAX

struct walk_step {
    uint32_t node; /* in the old graph */
    uint32_t next_input;
};

struct walk {
    const struct graph *from;
    struct graph *to;
    struct arena *arena;
    uint32_t *value_map; /* old id -> new id */
    uint32_t *node_map;
    struct walk_step *stack;
    uint32_t depth;
};

static void copy_leaf(struct walk *w, uint32_t old) {
    struct graph *to = w->to;
    w->value_map[old] = to->value_count;
    to->values[to->value_count] = w->from->values[old];
    if (w->from->values[old].kind == VALUE_INPUT) {
        to->inputs[to->input_count++] = (struct value_id){to->value_count};
    }
    to->value_count++;
}

static void copy_node(struct walk *w, uint32_t old) {
    struct graph *to = w->to;
    struct graph_node *n = &to->nodes[to->node_count];
    *n = w->from->nodes[old];
    w->node_map[old] = to->node_count;
    for (uint32_t i = 0; i < n->input_count; i++) {
        if (n->inputs[i].n != NO_VALUE.n) {
            n->inputs[i].n = w->value_map[n->inputs[i].n];
            assert(n->inputs[i].n != UNVISITED);
        }
    }
    for (uint32_t i = 0; i < n->output_count; i++) {
        uint32_t v = n->outputs[i].n;
        w->value_map[v] = to->value_count;
        to->values[to->value_count] = w->from->values[v];
        to->values[to->value_count].producer.n = to->node_count;
        n->outputs[i].n = to->value_count++;
    }
    to->node_count++;
}

/* Visits a value: a leaf is copied, the producer of a result is pushed. */
static void visit(struct walk *w, uint32_t value) {
    if (w->value_map[value] != UNVISITED) {
        return;
    }
    if (w->from->values[value].kind != VALUE_NODE) {
        copy_leaf(w, value);
        return;
    }
    w->stack[w->depth++] = (struct walk_step){w->from->values[value].producer.n, 0};
}

static void walk_from(struct walk *w, uint32_t value) {
    visit(w, value);
    while (w->depth > 0) {
        struct walk_step *top = &w->stack[w->depth - 1];
        const struct graph_node *n = &w->from->nodes[top->node];
        if (top->next_input == n->input_count) {
            copy_node(w, top->node);
            w->depth--;
            continue;
        }
        uint32_t input = n->inputs[top->next_input++].n;
        if (input != NO_VALUE.n) {
            visit(w, input); /* acyclic: a node on the stack is never pushed again */
        }
    }
}

static void warn_dropped(struct walk *w, const char *const **ret, uint32_t *ret_count) {
    const struct graph *g = w->from;
    VEC(const char *) texts = {0};
    for (uint32_t i = 0; i < g->node_count; i++) {
        if (w->node_map[i] == UNVISITED) {
            vec_push(
                w->arena, &texts,
                arena_printf(
                    w->arena, "node '%s' is not reached from an output: dropped",
                    g->nodes[i].name));
        }
    }
    for (uint32_t i = 0; i < g->value_count; i++) {
        if (w->value_map[i] == UNVISITED && g->values[i].kind != VALUE_NODE) {
            vec_push(
                w->arena, &texts,
                arena_printf(
                    w->arena, "%s '%s' is not read by any output: dropped",
                    g->values[i].kind == VALUE_INPUT ? "input" : "initializer", g->values[i].name));
        }
    }
    *ret = texts.data;
    *ret_count = (uint32_t)texts.len;
}

int graph_canonical(
    const struct graph *g, struct arena *a, struct graph **ret, const char *const **ret_warnings,
    uint32_t *ret_warning_count, struct err *err) {
    struct walk w = {.from = g, .to = ARENA_NEW(a, struct graph), .arena = a};
    w.value_map = ARENA_ARRAY(a, uint32_t, g->value_count);
    w.node_map = ARENA_ARRAY(a, uint32_t, g->node_count);
    w.stack = ARENA_ARRAY(a, struct walk_step, g->node_count);
    memset(w.value_map, 0xff, g->value_count * sizeof *w.value_map);
    memset(w.node_map, 0xff, g->node_count * sizeof *w.node_map);
    w.to->values = ARENA_ARRAY(a, struct graph_value, g->value_count);
    w.to->nodes = ARENA_ARRAY(a, struct graph_node, g->node_count);
    w.to->inputs = ARENA_ARRAY(a, struct value_id, g->input_count);
    w.to->outputs = ARENA_ARRAY(a, struct value_id, g->output_count);
    for (uint32_t i = 0; i < g->output_count; i++) {
        walk_from(&w, g->outputs[i].n);
        w.to->outputs[w.to->output_count++].n = w.value_map[g->outputs[i].n];
    }
    graph_index(w.to, a);
    int r = graph_verify(w.to, err);
    if (r < 0) {
        return r;
    }
    const char *const *texts = NULL;
    uint32_t count = 0;
    warn_dropped(&w, &texts, &count);
    if (ret_warnings != NULL && ret_warning_count != NULL) {
        *ret_warnings = texts;
        *ret_warning_count = count;
    }
    *ret = w.to;
    return 0;
}

static void digest_value(struct digest_ctx *ctx, const struct graph_value *v) {
    digest_u64(ctx, v->kind);
    digest_text(ctx, dtype_name(v->dtype));
    digest_u64(ctx, (uint64_t)v->shape.rank);
    for (int i = 0; i < v->shape.rank; i++) {
        digest_u64(ctx, (uint64_t)v->shape.dim[i]);
    }
    digest_u64(ctx, v->is_hashed_constant);
    if (v->is_hashed_constant) {
        uint64_t bytes = 0;
        int r = shape_elements(&v->shape, v->dtype, NULL, &bytes, NULL);
        assert(r == 0);
        (void)r;
        digest_u64(ctx, bytes);
        digest_update(ctx, v->source.bytes, bytes);
    }
}

static void digest_attr(struct digest_ctx *ctx, const struct graph_attr *a) {
    uint64_t bits;
    digest_text(ctx, a->name);
    digest_u64(ctx, a->kind);
    switch (a->kind) {
    case ATTR_INT: digest_u64(ctx, (uint64_t)a->i); break;
    case ATTR_FLOAT:
        memcpy(&bits, &a->f, sizeof bits);
        digest_u64(ctx, bits);
        break;
    case ATTR_STRING: digest_text(ctx, a->s); break;
    case ATTR_INTS:
        digest_u64(ctx, a->count);
        for (uint32_t i = 0; i < a->count; i++) {
            digest_u64(ctx, (uint64_t)a->ints[i]);
        }
        break;
    }
}

static void digest_node(struct digest_ctx *ctx, const struct graph_node *n) {
    digest_text(ctx, graph_op_name(n->op));
    digest_u64(ctx, n->input_count);
    for (uint32_t i = 0; i < n->input_count; i++) {
        digest_u64(ctx, n->inputs[i].n);
    }
    digest_u64(ctx, n->output_count);
    for (uint32_t i = 0; i < n->output_count; i++) {
        digest_u64(ctx, n->outputs[i].n);
    }
    digest_u64(ctx, n->attr_count);
    for (uint32_t i = 0; i < n->attr_count; i++) {
        digest_attr(ctx, &n->attrs[i]);
    }
}

int graph_digest(const struct graph *g, struct digest *ret, struct err *err) {
    struct digest_ctx *ctx = digest_new();
    if (ctx == NULL) {
        return err_set(err, ERR_NOMEM, "no memory to hash a graph");
    }
    digest_text(ctx, "graph 1");
    digest_u64(ctx, g->value_count);
    for (uint32_t i = 0; i < g->value_count; i++) {
        digest_value(ctx, &g->values[i]);
    }
    digest_u64(ctx, g->node_count);
    for (uint32_t i = 0; i < g->node_count; i++) {
        digest_node(ctx, &g->nodes[i]);
    }
    digest_u64(ctx, g->output_count);
    for (uint32_t i = 0; i < g->output_count; i++) {
        digest_u64(ctx, g->outputs[i].n);
    }
    digest_final(ctx, ret);
    digest_free(ctx);
    return 0;
}
