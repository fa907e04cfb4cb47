/* Walks the nodes in order. A value's doubles are made when first read and freed after the last
 * reader, so the peak is what is alive, not the whole model. */
#include "reference/reference_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

struct walk {
    const struct graph *g;
    const struct reference_data *data;
    double **values;       /* by value id, owned */
    uint32_t *readers;     /* still to come */
    const uint8_t **bytes; /* stored data by value id, borrowed; NULL when the model has it */
};

static void walk_done(struct walk *w) {
    for (uint32_t i = 0; w->values != NULL && i < w->g->value_count; i++) {
        free(w->values[i]);
    }
    free(w->values);
    free(w->readers);
    free(w->bytes);
}

struct reference_call reference_describe(const struct graph *g, const struct graph_node *n) {
    struct reference_call c = {.graph = g, .node = n};
    for (uint32_t i = 0; i < n->input_count; i++) {
        if (n->inputs[i].n != NO_VALUE.n) {
            c.shapes[i] = &g->values[n->inputs[i].n].shape;
        }
    }
    for (uint32_t i = 0; i < n->output_count; i++) {
        c.out_shapes[i] = &g->values[n->outputs[i].n].shape;
    }
    c.shape = c.out_shapes[0];
    return c;
}

static int no_memory(const struct graph_value *v, struct err *err) {
    return err_set(err, ERR_NOMEM, "no memory to evaluate '%s'", v->name);
}

static int make_doubles(const struct graph_value *v, double **ret, struct err *err) {
    uint64_t elements = 0;
    int r = shape_elements(&v->shape, v->dtype, &elements, NULL, err);
    if (r < 0) {
        return r;
    }
    double *made = calloc(elements > 0 ? elements : 1, sizeof *made);
    if (made == NULL) {
        return no_memory(v, err);
    }
    *ret = made;
    return 0;
}

/* Stored bytes -> doubles. */
static int load_leaf(struct walk *w, uint32_t id, struct err *err) {
    const struct graph_value *v = &w->g->values[id];
    uint64_t elements = 0;
    uint64_t size = 0;
    CLEANUP(cleanup_free) uint8_t *made = NULL;
    const uint8_t *bytes = w->bytes[id];
    int r = shape_elements(&v->shape, v->dtype, &elements, &size, err);
    if (r == 0 && bytes == NULL) {
        made = malloc(size > 0 ? size : 1);
        bytes = made;
        r = made == NULL ? no_memory(v, err) : graph_fill(v, w->data->seed, 0, elements, made, err);
    }
    if (r == 0) {
        r = make_doubles(v, &w->values[id], err);
    }
    for (uint64_t i = 0; i < elements && r == 0; i++) {
        w->values[id][i] = tensor_get(v->dtype, bytes, i);
    }
    return r;
}

static int eval_node(struct walk *w, const struct graph_node *n, struct err *err) {
    struct reference_call c = reference_describe(w->g, n);
    for (uint32_t i = 0; i < n->input_count; i++) {
        uint32_t id = n->inputs[i].n;
        if (id == NO_VALUE.n) {
            continue;
        }
        if (w->values[id] == NULL) {
            int r = load_leaf(w, id, err);
            if (r < 0) {
                return r;
            }
        }
        c.in[i] = w->values[id];
    }
    for (uint32_t i = 0; i < n->output_count; i++) {
        uint32_t out = n->outputs[i].n;
        int r = make_doubles(&w->g->values[out], &w->values[out], err);
        if (r < 0) {
            return r;
        }
        c.outs[i] = w->values[out];
    }
    c.out = c.outs[0];
    reference_ops[n->op].eval(&c);
    for (uint32_t i = 0; i < n->output_count; i++) {
        uint32_t id = n->outputs[i].n;
        if (w->readers[id] == 0) { /* a result that nobody asks for */
            free(w->values[id]);
            w->values[id] = NULL;
        }
    }
    for (uint32_t i = 0; i < n->input_count; i++) {
        uint32_t id = n->inputs[i].n;
        if (id != NO_VALUE.n && --w->readers[id] == 0) {
            free(w->values[id]);
            w->values[id] = NULL;
        }
    }
    return 0;
}

static int walk_init(struct walk *w, struct err *err) {
    const struct graph *g = w->g;
    w->values = calloc(g->value_count + 1, sizeof *w->values);
    w->readers = calloc(g->value_count + 1, sizeof *w->readers);
    w->bytes = calloc(g->value_count + 1, sizeof *w->bytes);
    if (w->values == NULL || w->readers == NULL || w->bytes == NULL) {
        return err_set(err, ERR_NOMEM, "no memory to evaluate a graph");
    }
    for (uint32_t i = 0; i < g->input_count && w->data->inputs != NULL; i++) {
        w->bytes[g->inputs[i].n] = w->data->inputs[i];
    }
    for (uint32_t i = 0; i < g->parameter_count && w->data->parameters != NULL; i++) {
        w->bytes[g->parameters[i].n] = w->data->parameters[i];
    }
    for (uint32_t i = 0; i < g->node_count; i++) {
        for (uint32_t k = 0; k < g->nodes[i].input_count; k++) {
            if (g->nodes[i].inputs[k].n != NO_VALUE.n) {
                w->readers[g->nodes[i].inputs[k].n]++;
            }
        }
    }
    for (uint32_t i = 0; i < g->output_count; i++) {
        w->readers[g->outputs[i].n]++; /* kept for the result */
    }
    return 0;
}

static int take_outputs(struct walk *w, struct tensor_set *ret, struct err *err) {
    const struct graph *g = w->g;
    struct tensor_set set = {calloc(g->output_count, sizeof *set.items), 0};
    int r = set.items != NULL ? 0 : err_set(err, ERR_NOMEM, "no memory for outputs");
    for (uint32_t i = 0; i < g->output_count && r == 0; i++) {
        const struct graph_value *v = &g->values[g->outputs[i].n];
        struct tensor *t = &set.items[i];
        r = tensor_init(t, v->name, DTYPE_DOUBLE, &v->shape, err);
        if (r == 0) {
            set.count++;
            for (uint64_t k = 0; k < t->size_bytes / sizeof(double); k++) {
                tensor_put(DTYPE_DOUBLE, t->bytes, k, w->values[g->outputs[i].n][k]);
            }
        }
    }
    if (r < 0) {
        tensor_set_done(&set);
        return r;
    }
    *ret = set;
    return 0;
}

int reference_eval(
    const struct graph *g, const struct reference_data *data, struct tensor_set *ret,
    struct err *err) {
    struct walk w = {.g = g, .data = data};
    int r = walk_init(&w, err);
    for (uint32_t i = 0; i < g->node_count && r == 0; i++) {
        r = eval_node(&w, &g->nodes[i], err);
    }
    if (r == 0) {
        r = take_outputs(&w, ret, err);
    }
    walk_done(&w);
    return r;
}
