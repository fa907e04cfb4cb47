/* A graph as text: values that have no producer, nodes, outputs, each in id order. */
#include "graph/graph.h"

static void print_source(const struct graph_value *v, FILE *out) {
    static const char *const generators[] = {
        [GENERATOR_CONSTANT] = "constant",
        [GENERATOR_UNIFORM] = "uniform",
        [GENERATOR_NORMAL] = "normal"};
    const struct value_source *s = &v->source;
    switch (s->kind) {
    case SOURCE_NONE: fprintf(out, " host"); break;
    case SOURCE_FILE:
        fprintf(
            out, " file \"%s\" tensor \"%s\" at %llu", s->file, s->tensor,
            (unsigned long long)s->file_offset);
        break;
    case SOURCE_INLINE: fprintf(out, " inline"); break;
    case SOURCE_GENERATOR:
        fprintf(
            out, " %s seed %llu scale %.17g offset %.17g", generators[s->generator],
            (unsigned long long)s->seed, s->scale, s->offset);
        break;
    }
    if (v->is_hashed_constant) {
        fprintf(out, " constant");
    }
}

static void print_attr(const struct graph_attr *a, FILE *out) {
    switch (a->kind) {
    case ATTR_INT: fprintf(out, " %s=%lld", a->name, (long long)a->i); break;
    case ATTR_FLOAT: fprintf(out, " %s=%.9g", a->name, a->f); break;
    case ATTR_STRING: fprintf(out, " %s=\"%s\"", a->name, a->s); break;
    case ATTR_INTS:
        fprintf(out, " %s=[", a->name);
        for (uint32_t i = 0; i < a->count; i++) {
            fprintf(out, "%s%lld", i > 0 ? "," : "", (long long)a->ints[i]);
        }
        fprintf(out, "]");
        break;
    }
}

static void print_node(const struct graph *g, uint32_t id, FILE *out) {
    const struct graph_node *n = &g->nodes[id];
    char shape[160];
    fprintf(out, "n%u %s(", id, graph_op_name(n->op));
    for (uint32_t i = 0; i < n->input_count; i++) {
        fprintf(out, "%s", i > 0 ? ", " : "");
        if (n->inputs[i].n == NO_VALUE.n) {
            fprintf(out, "-");
        } else {
            fprintf(out, "v%u", n->inputs[i].n);
        }
    }
    fprintf(out, ")");
    for (uint32_t i = 0; i < n->attr_count; i++) {
        print_attr(&n->attrs[i], out);
    }
    for (uint32_t i = 0; i < n->output_count; i++) {
        const struct graph_value *v = &g->values[n->outputs[i].n];
        fprintf(
            out, " -> v%u %s %s", n->outputs[i].n, dtype_name(v->dtype),
            shape_print(&v->shape, shape, sizeof shape));
    }
    fprintf(out, "  # %s\n", n->name);
}

void graph_print(const struct graph *g, FILE *out) {
    char shape[160];
    fprintf(
        out, "graph values=%u nodes=%u inputs=%u parameters=%u outputs=%u\n", g->value_count,
        g->node_count, g->input_count, g->parameter_count, g->output_count);
    for (uint32_t i = 0; i < g->value_count; i++) {
        const struct graph_value *v = &g->values[i];
        if (v->kind == VALUE_NODE) {
            continue;
        }
        fprintf(
            out, "v%u %s %s %s", i, v->kind == VALUE_INPUT ? "input" : "initializer",
            dtype_name(v->dtype), shape_print(&v->shape, shape, sizeof shape));
        print_source(v, out);
        fprintf(out, "  # %s\n", v->name);
    }
    for (uint32_t i = 0; i < g->node_count; i++) {
        print_node(g, i, out);
    }
    for (uint32_t i = 0; i < g->output_count; i++) {
        fprintf(out, "output %u v%u  # %s\n", i, g->outputs[i].n, g->values[g->outputs[i].n].name);
    }
}
