/* Operators that move elements and compute nothing, as picks: a walk over the result's index
 * space that says for each element where the operator takes it from. */
#include "plan/fuse_internal.h"

#include <string.h>

/* C order, the last axis fastest; behind the last index comes the first. */
static void advance(int64_t *index, const struct shape *s) {
    for (int d = s->rank - 1; d >= 0 && ++index[d] == s->dim[d]; d--) {
        index[d] = 0;
    }
}

static uint64_t flat(const int64_t *index, const struct shape *s) {
    uint64_t at = 0;
    for (int d = 0; d < s->rank; d++) {
        at = at * (uint64_t)s->dim[d] + (uint64_t)index[d];
    }
    return at;
}

/* Element of operand `*ret_source` that lands at `index` of result `output`. */
static uint64_t source_of(
    const struct fuser *f, const struct graph_node *n, uint32_t output, const int64_t *index,
    uint16_t *ret_source) {
    const struct graph *g = f->g;
    const struct shape *x = shape_of(f, n->inputs[0]);
    int64_t from[TENSOR_MAX_DIMS] = {0};
    *ret_source = 0;
    switch (n->op) {
    case GRAPH_OP_Transpose: {
        const struct graph_attr *perm = graph_attr(n, "perm");
        for (int d = 0; d < x->rank; d++) {
            from[perm->ints[d]] = index[d];
        }
        return flat(from, x);
    }
    case GRAPH_OP_Slice: {
        int64_t start[TENSOR_MAX_DIMS], step[TENSOR_MAX_DIMS];
        graph_slice(g, n, start, step);
        for (int d = 0; d < x->rank; d++) {
            from[d] = start[d] + index[d] * step[d];
        }
        return flat(from, x);
    }
    case GRAPH_OP_Split: {
        int64_t axis = graph_attr(n, "axis")->i;
        memcpy(from, index, sizeof from);
        for (uint32_t i = 0; i < output; i++) {
            from[axis] += shape_of(f, n->outputs[i])->dim[axis];
        }
        return flat(from, x);
    }
    case GRAPH_OP_Concat: {
        int64_t axis = graph_attr(n, "axis")->i;
        memcpy(from, index, sizeof from);
        uint16_t source = 0;
        while (from[axis] >= shape_of(f, n->inputs[source])->dim[axis]) {
            from[axis] -= shape_of(f, n->inputs[source++])->dim[axis];
        }
        *ret_source = source;
        return flat(from, shape_of(f, n->inputs[source]));
    }
    default: { /* Gather: the axis is replaced by the axes of the indices */
        int axis = (int)graph_attr(n, "axis")->i;
        const struct graph_value *places = &g->values[n->inputs[1].n];
        int wide = places->shape.rank;
        memcpy(from, index, sizeof *from * (size_t)axis);
        int64_t place = graph_int(places, flat(index + axis, &places->shape));
        from[axis] = place < 0 ? place + x->dim[axis] : place;
        for (int d = axis + 1; d < x->rank; d++) {
            from[d] = index[d + wide - 1];
        }
        return flat(from, x);
    }
    }
}

static bool keeps_order(enum graph_op op) {
    return op == GRAPH_OP_Reshape || op == GRAPH_OP_Squeeze || op == GRAPH_OP_Unsqueeze ||
           op == GRAPH_OP_Identity;
}

/* Result `output`, whose view is the plain one of its own matrix. */
static int move_one(struct fuser *f, uint32_t at, uint32_t output, struct err *err) {
    const struct graph_node *n = &f->g->nodes[at];
    struct value_id to = n->outputs[output];
    int rc = fuse_check_pick(f, n, to, err);
    if (rc != 0) {
        return rc;
    }
    uint64_t count = fuse_elements(f, to);
    struct pick_ref *refs = fuse_refs(f, count);
    int64_t index[TENSOR_MAX_DIMS] = {0};
    for (uint64_t i = 0; i < count && !keeps_order(n->op); i++) {
        refs[i].element = (uint32_t)source_of(f, n, output, index, &refs[i].source);
        advance(index, shape_of(f, to));
    }
    uint32_t sources = n->op == GRAPH_OP_Concat ? n->input_count : 1;
    struct pick_source list[GRAPH_MAX_ARITY];
    for (uint32_t i = 0; i < sources; i++) {
        list[i] = (struct pick_source){.value = n->inputs[i]};
    }
    struct plan_step shape = fuse_shape_of(f, to);
    shape.unit = fuse_unit(f, to.n);
    fuse_pick(f, at, list, sources, refs, &shape, to);
    return 0;
}

int fuse_move(struct fuser *f, uint32_t at, struct err *err) {
    const struct graph_node *n = &f->g->nodes[at];
    int rc = 0;
    for (uint32_t i = 0; i < n->output_count && rc == 0; i++) {
        rc = f->root[n->outputs[i].n].uses == 0 ? 0 : move_one(f, at, i, err);
    }
    return rc;
}
