/* Operators that move elements: each result element is found in the operand by its coordinates.
 * Bounds and axes are read from the constant operands here, as doubles, and not from what the graph
 * module makes of them. Nothing is rounded. */
#include <math.h>
#include <string.h>

#include "reference/reference_internal.h"

#define EXACT(NAME)                                                                                \
    uint32_t reference_roundings_##NAME(const struct reference_call *c, bool accumulate_f16) {     \
        return 0;                                                                                  \
    }
EXACT(Reshape)
EXACT(Transpose)
EXACT(Squeeze)
EXACT(Unsqueeze)
EXACT(Slice)
EXACT(Split)
EXACT(Concat)
EXACT(Gather)

static void copy(const struct reference_call *c) {
    memcpy(c->out, c->in[0], reference_count(c->shape) * sizeof *c->out);
}

void reference_eval_Reshape(const struct reference_call *c) {
    copy(c);
}

void reference_eval_Squeeze(const struct reference_call *c) {
    copy(c);
}

void reference_eval_Unsqueeze(const struct reference_call *c) {
    copy(c);
}

void reference_eval_Transpose(const struct reference_call *c) {
    const struct graph_attr *perm = graph_attr(c->node, "perm");
    uint64_t n = reference_count(c->shape);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t to[TENSOR_MAX_DIMS];
        uint64_t from[TENSOR_MAX_DIMS];
        reference_unravel(i, c->shape, to);
        for (uint32_t d = 0; d < perm->count; d++) {
            from[perm->ints[d]] = to[d];
        }
        c->out[i] = c->in[0][reference_ravel(from, c->shapes[0])];
    }
}

/* First element of an axis: bounds count from the end when negative, and are clamped. */
static double first_of(double start, double step, double size) {
    start += start < 0 ? size : 0;
    return fmin(fmax(start, 0), step > 0 ? size : size - 1);
}

void reference_eval_Slice(const struct reference_call *c) {
    double start[TENSOR_MAX_DIMS] = {0};
    double step[TENSOR_MAX_DIMS] = {1, 1, 1, 1, 1, 1};
    int rank = c->shape->rank;
    for (int i = 0; i < c->shapes[1]->dim[0]; i++) {
        double named = c->in[3] != NULL ? c->in[3][i] : i;
        int axis = (int)(named < 0 ? named + rank : named);
        step[axis] = c->in[4] != NULL ? c->in[4][i] : 1;
        start[axis] = first_of(c->in[1][i], step[axis], (double)c->shapes[0]->dim[axis]);
    }
    uint64_t n = reference_count(c->shape);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t to[TENSOR_MAX_DIMS];
        uint64_t from[TENSOR_MAX_DIMS];
        reference_unravel(i, c->shape, to);
        for (int d = 0; d < rank; d++) { /* an axis of one element may have a huge step */
            from[d] = (uint64_t)(start[d] + (to[d] > 0 ? (double)to[d] * step[d] : 0));
        }
        c->out[i] = c->in[0][reference_ravel(from, c->shapes[0])];
    }
}

/* Elements between a part of an axis and the whole, `offset` places along it. */
static uint64_t in_whole(
    uint64_t flat, const struct shape *part, const struct shape *whole, int axis, uint64_t offset) {
    uint64_t at[TENSOR_MAX_DIMS];
    reference_unravel(flat, part, at);
    at[axis] += offset;
    return reference_ravel(at, whole);
}

void reference_eval_Split(const struct reference_call *c) {
    int axis = (int)graph_attr(c->node, "axis")->i;
    uint64_t offset = 0;
    for (uint32_t k = 0; k < c->node->output_count; k++) {
        const struct shape *part = c->out_shapes[k];
        uint64_t n = reference_count(part);
        for (uint64_t i = 0; i < n; i++) {
            c->outs[k][i] = c->in[0][in_whole(i, part, c->shapes[0], axis, offset)];
        }
        offset += (uint64_t)part->dim[axis];
    }
}

void reference_eval_Concat(const struct reference_call *c) {
    int axis = (int)graph_attr(c->node, "axis")->i;
    uint64_t offset = 0;
    for (uint32_t k = 0; k < c->node->input_count; k++) {
        const struct shape *part = c->shapes[k];
        uint64_t n = reference_count(part);
        for (uint64_t i = 0; i < n; i++) {
            c->out[in_whole(i, part, c->shape, axis, offset)] = c->in[k][i];
        }
        offset += (uint64_t)part->dim[axis];
    }
}

/* [before, places, after] of the result from [before, axis, after] of the operand. */
void reference_eval_Gather(const struct reference_call *c) {
    int axis = (int)graph_attr(c->node, "axis")->i;
    uint64_t before = 1;
    uint64_t after = 1;
    uint64_t size = (uint64_t)c->shapes[0]->dim[axis];
    uint64_t places = reference_count(c->shapes[1]);
    for (int i = 0; i < c->shapes[0]->rank; i++) {
        before *= i < axis ? (uint64_t)c->shapes[0]->dim[i] : 1;
        after *= i > axis ? (uint64_t)c->shapes[0]->dim[i] : 1;
    }
    for (uint64_t b = 0; b < before; b++) {
        for (uint64_t p = 0; p < places; p++) {
            double named = c->in[1][p];
            uint64_t from = (uint64_t)(named < 0 ? named + (double)size : named);
            for (uint64_t a = 0; a < after; a++) {
                c->out[(b * places + p) * after + a] = c->in[0][(b * size + from) * after + a];
            }
        }
    }
}
