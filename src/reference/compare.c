/* Tolerance and comparison (reference.h). */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "reference/reference_internal.h"

/* Longest path by a table over values: nodes stand in topological order. Without memory for the
 * table the answer is that of a path of one rounding, which only makes the judgement stricter. */
uint32_t reference_roundings(const struct graph *g, uint32_t ordinal, bool accumulate_f16) {
    uint32_t *longest = calloc(g->value_count + 1, sizeof *longest);
    if (longest == NULL) {
        return 1;
    }
    for (uint32_t i = 0; i < g->node_count; i++) {
        const struct graph_node *n = &g->nodes[i];
        struct reference_call c = reference_describe(g, n);
        uint32_t before = 0;
        for (uint32_t k = 0; k < n->input_count; k++) {
            uint32_t id = n->inputs[k].n;
            if (id != NO_VALUE.n && longest[id] > before) {
                before = longest[id];
            }
        }
        for (uint32_t k = 0; k < n->output_count; k++) {
            longest[n->outputs[k].n] = before + reference_ops[n->op].roundings(&c, accumulate_f16);
        }
    }
    uint32_t r = longest[g->outputs[ordinal].n];
    free(longest);
    return r;
}

static bool is_any_needed(const struct graph_node *n, const bool *is_needed) {
    bool is_any = false;
    for (uint32_t i = 0; i < n->output_count; i++) {
        is_any |= is_needed[n->outputs[i].n];
    }
    return is_any;
}

double reference_unit(const struct graph *g, uint32_t ordinal) {
    bool *is_needed = calloc(g->value_count + 1, sizeof *is_needed);
    if (is_needed == NULL) {
        return 0x1p-24; /* the stricter one */
    }
    double u = 0x1p-24;
    is_needed[g->outputs[ordinal].n] = true;
    for (uint32_t i = g->node_count; i-- > 0;) {
        const struct graph_node *n = &g->nodes[i];
        if (!is_any_needed(n, is_needed)) {
            continue;
        }
        if (g->values[n->outputs[0].n].dtype == DTYPE_FLOAT16) { /* results are of one type */
            u = 0x1p-11;
        }
        for (uint32_t k = 0; k < n->input_count; k++) {
            if (n->inputs[k].n != NO_VALUE.n) {
                is_needed[n->inputs[k].n] = true;
            }
        }
    }
    free(is_needed);
    return u;
}

/* Largest error of storing a value: half a unit, which subnormals bound from below. */
static double storage_error(enum dtype t, double value) {
    switch (t) {
    case DTYPE_FLOAT16: return fmax(0x1p-11 * fabs(value), 0x1p-25);
    case DTYPE_FLOAT: return fmax(0x1p-24 * fabs(value), 0x1p-150);
    default: return 0; /* integers and bools are exact */
    }
}

static double root_mean_square(const struct tensor *t, uint64_t n) {
    double sum = 0;
    for (uint64_t i = 0; i < n; i++) {
        double x = tensor_get(DTYPE_DOUBLE, t->bytes, i);
        sum += x * x;
    }
    return n > 0 ? sqrt(sum / (double)n) : 0;
}

static uint64_t argmax(enum dtype t, const uint8_t *bytes, uint64_t first, uint64_t n) {
    uint64_t best = 0;
    for (uint64_t i = 1; i < n; i++) {
        if (tensor_get(t, bytes, first + i) > tensor_get(t, bytes, first + best)) {
            best = i;
        }
    }
    return best;
}

static double
argmax_share(const struct tensor *expected, enum dtype t, const uint8_t *got, uint64_t n) {
    const struct shape *s = &expected->shape;
    uint64_t row = s->rank > 0 ? (uint64_t)s->dim[s->rank - 1] : 1;
    uint64_t rows = row > 0 ? n / row : 0;
    uint64_t equal = 0;
    for (uint64_t i = 0; i < rows; i++) {
        equal +=
            argmax(t, got, i * row, row) == argmax(DTYPE_DOUBLE, expected->bytes, i * row, row);
    }
    return rows > 0 ? (double)equal / (double)rows : 1;
}

void reference_compare(
    const struct graph *g, uint32_t ordinal, bool accumulate_f16, const struct tensor *expected,
    const uint8_t *got, struct reference_error *ret) {
    enum dtype t = g->values[g->outputs[ordinal].n].dtype;
    uint64_t n = expected->size_bytes / sizeof(double);
    double r = reference_roundings(g, ordinal, accumulate_f16);
    double u = reference_unit(g, ordinal);
    struct reference_error e = {.pass = true};
    e.tolerance = REFERENCE_C * u * sqrt(r) * root_mean_square(expected, n);
    for (uint64_t i = 0; i < n; i++) {
        double want = tensor_get(DTYPE_DOUBLE, expected->bytes, i);
        double has = tensor_get(t, got, i);
        double error = has == want ? 0 : fabs(has - want);
        if (isnan(error)) {
            error = INFINITY;
        }
        if (!(error <= e.tolerance + storage_error(t, want))) {
            e.pass = false;
        }
        if (i == 0 || error > e.max_abs_error) {
            e.max_abs_error = error;
            e.worst_index = i;
            e.got = has;
            e.expected = want;
        }
    }
    e.argmax_equal = argmax_share(expected, t, got, n);
    *ret = e;
}
