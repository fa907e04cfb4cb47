/* Shapes of the operators that move elements without computing. Their bounds, axes and shapes are
 * constants (op.def), so that every size is known here. */
#include <string.h>

#include "graph/graph_internal.h"

/* The integers of a constant operand, which must be a list. */
static int take_list(
    const struct rule_call *c, uint32_t operand, uint32_t most, int64_t *ret, uint32_t *ret_count,
    struct err *err) {
    const struct shape *s = c->in[operand];
    char text[SHAPE_TEXT];
    if (s->rank != 1 || s->dim[0] > most) {
        return err_set(
            err, ERR_SHAPE, "input %u: shape %s, required is a list of at most %u", operand,
            shape_print(s, text, sizeof text), most);
    }
    *ret_count = (uint32_t)s->dim[0];
    for (uint32_t i = 0; i < *ret_count; i++) {
        ret[i] = graph_int(&c->values[c->node->inputs[operand].n], i);
    }
    return 0;
}

static int
check_axis(const struct rule_call *c, int64_t axis, int rank, uint32_t operand, struct err *err) {
    char text[SHAPE_TEXT];
    if (axis < -rank || axis >= rank) {
        return err_set(
            err, ERR_SHAPE, "input %u: axis %lld, allowed is %d to %d; input 0 is %s", operand,
            (long long)axis, -rank, rank - 1, shape_print(c->in[0], text, sizeof text));
    }
    return 0;
}

int graph_take_axes(
    const struct rule_call *c, uint32_t operand, int rank, bool ret[TENSOR_MAX_DIMS],
    struct err *err) {
    int64_t axes[TENSOR_MAX_DIMS];
    uint32_t count = 0;
    memset(ret, 0, TENSOR_MAX_DIMS * sizeof *ret);
    if (c->in[operand] == NULL) {
        return 0;
    }
    int r = take_list(c, operand, TENSOR_MAX_DIMS, axes, &count, err);
    for (uint32_t i = 0; i < count && r == 0; i++) {
        r = check_axis(c, axes[i], rank, operand, err);
        int at = (int)(axes[i] < 0 ? axes[i] + rank : axes[i]);
        if (r == 0 && ret[at]) {
            r = err_set(err, ERR_BAD_GRAPH, "input %u: axis %d is named twice", operand, at);
        } else if (r == 0) {
            ret[at] = true;
        }
    }
    return r;
}

static uint64_t count_elements(const struct shape *s) {
    uint64_t n = 1;
    for (int i = 0; i < s->rank; i++) {
        n *= (uint64_t)s->dim[i];
    }
    return n;
}

int graph_rule_reshape(const struct rule_call *c, struct shape *ret, struct err *err) {
    int64_t want[TENSOR_MAX_DIMS];
    uint32_t count = 0;
    const struct shape *from = c->in[0];
    bool may_copy = graph_attr(c->node, "allowzero")->i == 0;
    char ta[SHAPE_TEXT];
    char tb[SHAPE_TEXT] = "";
    int free_axis = -1;
    int r = take_list(c, 1, TENSOR_MAX_DIMS, want, &count, err);
    if (r < 0) {
        return r;
    }
    uint64_t elements = count_elements(from);
    uint64_t product = 1;
    bool fits = true;
    struct shape s = {.rank = (int)count};
    size_t used = 0;
    for (int i = 0; i < s.rank; i++) {
        used += (size_t)snprintf(
            tb + used, sizeof tb - used, "%s%lld", i > 0 ? "," : "", (long long)want[i]);
        s.dim[i] = want[i] == 0 && may_copy && i < from->rank ? from->dim[i] : want[i];
        if (s.dim[i] == -1 && free_axis < 0) {
            free_axis = i;
            continue;
        }
        fits = fits && s.dim[i] >= 1 && (uint64_t)s.dim[i] <= elements / product;
        product *= fits ? (uint64_t)s.dim[i] : 1;
    }
    if (free_axis >= 0) {
        s.dim[free_axis] = (int64_t)(elements / product);
        product *= elements / product;
    }
    if (!fits || product != elements) {
        return err_set(
            err, ERR_SHAPE, "shape %s of %llu elements does not become [%s]",
            shape_print(from, ta, sizeof ta), (unsigned long long)elements, tb);
    }
    *ret = s;
    return 0;
}

int graph_rule_transpose(const struct rule_call *c, struct shape *ret, struct err *err) {
    const struct graph_attr *perm = graph_attr(c->node, "perm");
    const struct shape *from = c->in[0];
    bool is_used[TENSOR_MAX_DIMS] = {false};
    char text[SHAPE_TEXT];
    if (perm->count != (uint32_t)from->rank) {
        return err_set(
            err, ERR_SHAPE, "attribute 'perm' has %u items, shape %s has %d dimensions",
            perm->count, shape_print(from, text, sizeof text), from->rank);
    }
    *ret = (struct shape){.rank = from->rank};
    for (int i = 0; i < from->rank; i++) {
        int64_t axis = perm->ints[i];
        if (axis < 0 || axis >= from->rank || is_used[axis]) {
            return err_set(
                err, ERR_BAD_GRAPH,
                "attribute 'perm': item %d is %lld, required is each of 0 to %d once", i,
                (long long)axis, from->rank - 1);
        }
        is_used[axis] = true;
        ret->dim[i] = from->dim[axis];
    }
    return 0;
}

int graph_rule_squeeze(const struct rule_call *c, struct shape *ret, struct err *err) {
    bool is_named[TENSOR_MAX_DIMS];
    const struct shape *from = c->in[0];
    char text[SHAPE_TEXT];
    int r = graph_take_axes(c, 1, from->rank, is_named, err);
    if (r < 0) {
        return r;
    }
    *ret = (struct shape){0};
    for (int i = 0; i < from->rank; i++) {
        bool goes = c->in[1] == NULL ? from->dim[i] == 1 : is_named[i];
        if (goes && from->dim[i] != 1) {
            return err_set(
                err, ERR_SHAPE, "shape %s: axis %d is %lld, only an axis of 1 can go",
                shape_print(from, text, sizeof text), i, (long long)from->dim[i]);
        }
        if (!goes) {
            ret->dim[ret->rank++] = from->dim[i];
        }
    }
    return 0;
}

int graph_rule_unsqueeze(const struct rule_call *c, struct shape *ret, struct err *err) {
    bool is_named[TENSOR_MAX_DIMS];
    const struct shape *from = c->in[0];
    char text[SHAPE_TEXT];
    int64_t added = c->in[1]->rank == 1 ? c->in[1]->dim[0] : 0;
    if (added > TENSOR_MAX_DIMS - from->rank) {
        return err_set(
            err, ERR_SHAPE, "shape %s and %lld new axes: at most %d dimensions",
            shape_print(from, text, sizeof text), (long long)added, TENSOR_MAX_DIMS);
    }
    struct shape s = {.rank = from->rank + (int)added};
    int r = graph_take_axes(c, 1, s.rank, is_named, err);
    if (r < 0) {
        return r;
    }
    for (int i = 0, next = 0; i < s.rank; i++) {
        s.dim[i] = is_named[i] ? 1 : from->dim[next++];
    }
    *ret = s;
    return 0;
}

/* One axis of a Slice, clamped as ONNX says; *ret_count 0 when nothing is left. */
static void slice_axis(
    int64_t size, int64_t start, int64_t end, int64_t step, int64_t *ret_start, int64_t *ret_step,
    int64_t *ret_count) {
    const int64_t far = (int64_t)1 << 40; /* past every axis: larger steps change nothing */
    step = step > far ? far : step < -far ? -far : step;
    start += start < 0 ? size : 0;
    end += end < 0 ? size : 0;
    int64_t low = step > 0 ? 0 : -1; /* of end; a start never lies before the first element */
    int64_t high = step > 0 ? size : size - 1;
    start = start < 0 ? 0 : start > high ? high : start;
    end = end < low ? low : end > high ? high : end;
    int64_t span = step > 0 ? end - start : start - end;
    *ret_start = start;
    *ret_step = step;
    *ret_count = span > 0 ? (span - 1) / (step > 0 ? step : -step) + 1 : 0;
}

static int take_slices(
    const struct rule_call *c, int64_t ret_start[TENSOR_MAX_DIMS],
    int64_t ret_step[TENSOR_MAX_DIMS], struct shape *ret, struct err *err) {
    int64_t lists[4][TENSOR_MAX_DIMS] = {{0}, {0}, {0, 1, 2, 3, 4, 5}, {1, 1, 1, 1, 1, 1}};
    uint32_t counts[4] = {0};
    const struct shape *from = c->in[0];
    int rank = from->rank;
    bool is_named[TENSOR_MAX_DIMS] = {false};
    char text[SHAPE_TEXT];
    for (uint32_t i = 0; i < 4; i++) {
        int r = c->in[i + 1] != NULL
                    ? take_list(c, i + 1, TENSOR_MAX_DIMS, lists[i], &counts[i], err)
                    : 0;
        if (r < 0) {
            return r;
        }
        if (c->in[i + 1] != NULL && counts[i] != counts[0]) {
            return err_set(
                err, ERR_SHAPE, "input %u has %u items, input 1 has %u", i + 1, counts[i],
                counts[0]);
        }
    }
    struct shape s = *from;
    for (int i = 0; i < rank; i++) {
        ret_start[i] = 0;
        ret_step[i] = 1;
    }
    for (uint32_t i = 0; i < counts[0]; i++) {
        int r = check_axis(c, lists[2][i], rank, 3, err);
        if (r < 0) {
            return r;
        }
        int at = (int)(lists[2][i] < 0 ? lists[2][i] + rank : lists[2][i]);
        if (is_named[at] || lists[3][i] == 0) {
            return err_set(
                err, ERR_BAD_GRAPH, "axis %d: %s", at, is_named[at] ? "named twice" : "step 0");
        }
        is_named[at] = true;
        slice_axis(
            from->dim[at], lists[0][i], lists[1][i], lists[3][i], &ret_start[at], &ret_step[at],
            &s.dim[at]);
        if (s.dim[at] < 1) {
            return err_set(
                err, ERR_SHAPE, "shape %s: nothing is left of axis %d from %lld to %lld",
                shape_print(from, text, sizeof text), at, (long long)lists[0][i],
                (long long)lists[1][i]);
        }
    }
    *ret = s;
    return 0;
}

int graph_rule_slice(const struct rule_call *c, struct shape *ret, struct err *err) {
    int64_t start[TENSOR_MAX_DIMS];
    int64_t step[TENSOR_MAX_DIMS];
    return take_slices(c, start, step, ret, err);
}

static int split_sizes(
    const struct rule_call *c, int64_t size, int64_t ret[GRAPH_MAX_ARITY], struct err *err) {
    uint32_t outputs = c->node->output_count;
    uint32_t count = outputs;
    int64_t told = graph_attr(c->node, "num_outputs")->i;
    if ((c->in[1] != NULL) == (told != 0)) {
        return err_set(
            err, ERR_BAD_GRAPH, "exactly one of input 1 and attribute 'num_outputs' is required");
    }
    if (c->in[1] != NULL) {
        int r = take_list(c, 1, GRAPH_MAX_ARITY, ret, &count, err);
        if (r < 0) {
            return r;
        }
    } else {
        count = (uint32_t)told;
        int64_t part = (size + told - 1) / told;
        for (uint32_t i = 0; i < count; i++) { /* the last one takes what is left */
            ret[i] = i + 1 < count ? part : size - part * (told - 1);
        }
    }
    if (count != outputs) {
        return err_set(err, ERR_BAD_GRAPH, "%u parts, %u outputs", count, outputs);
    }
    return 0;
}

int graph_rule_split(const struct rule_call *c, struct shape *ret, struct err *err) {
    int axis = (int)graph_attr(c->node, "axis")->i;
    const struct shape *from = c->in[0];
    int64_t sizes[GRAPH_MAX_ARITY] = {0};
    char text[SHAPE_TEXT];
    int64_t sum = 0;
    int r = split_sizes(c, from->dim[axis], sizes, err);
    if (r < 0) {
        return r;
    }
    for (uint32_t i = 0; i < c->node->output_count; i++) {
        ret[i] = *from;
        ret[i].dim[axis] = sizes[i];
        if (sizes[i] < 1 || sizes[i] > from->dim[axis]) {
            return err_set(
                err, ERR_SHAPE, "shape %s: part %u of axis %d is %lld, allowed is 1 to %lld",
                shape_print(from, text, sizeof text), i, axis, (long long)sizes[i],
                (long long)from->dim[axis]);
        }
        sum += sizes[i];
    }
    if (sum != from->dim[axis]) {
        return err_set(
            err, ERR_SHAPE, "shape %s: the parts of axis %d add to %lld",
            shape_print(from, text, sizeof text), axis, (long long)sum);
    }
    return 0;
}

int graph_rule_concat(const struct rule_call *c, struct shape *ret, struct err *err) {
    int axis = (int)graph_attr(c->node, "axis")->i;
    struct shape s = *c->in[0];
    for (uint32_t i = 1; i < c->node->input_count; i++) {
        const struct shape *next = c->in[i];
        char ta[SHAPE_TEXT];
        char tb[SHAPE_TEXT];
        if (next == NULL) {
            return err_set(err, ERR_BAD_GRAPH, "input %u must not be absent", i);
        }
        bool fits = next->rank == s.rank;
        for (int d = 0; d < s.rank && fits; d++) {
            fits = d == axis || next->dim[d] == s.dim[d];
        }
        if (!fits) {
            return err_set(
                err, ERR_SHAPE, "shapes %s and %s of inputs 0 and %u differ beside axis %d",
                shape_print(c->in[0], ta, sizeof ta), shape_print(next, tb, sizeof tb), i, axis);
        }
        s.dim[axis] += next->dim[axis];
    }
    *ret = s;
    return 0;
}

int graph_rule_gather(const struct rule_call *c, struct shape *ret, struct err *err) {
    int axis = (int)graph_attr(c->node, "axis")->i;
    const struct shape *from = c->in[0];
    const struct shape *places = c->in[1];
    const struct graph_value *v = &c->values[c->node->inputs[1].n];
    char text[SHAPE_TEXT];
    uint64_t n = count_elements(places);
    for (uint64_t i = 0; i < n; i++) {
        int64_t at = graph_int(v, i);
        if (at < -from->dim[axis] || at >= from->dim[axis]) {
            return err_set(
                err, ERR_SHAPE,
                "input 1: item %llu is %lld, axis %d of shape %s allows %lld to "
                "%lld",
                (unsigned long long)i, (long long)at, axis, shape_print(from, text, sizeof text),
                (long long)-from->dim[axis], (long long)from->dim[axis] - 1);
        }
    }
    int rank = from->rank - 1 + places->rank;
    if (rank > TENSOR_MAX_DIMS) {
        char places_text[SHAPE_TEXT];
        return err_set(
            err, ERR_SHAPE, "shapes %s and %s: %d dimensions, at most %d",
            shape_print(from, text, sizeof text),
            shape_print(places, places_text, sizeof places_text), rank, TENSOR_MAX_DIMS);
    }
    struct shape s = {0};
    for (int i = 0; i < from->rank; i++) {
        for (int k = 0; i == axis && k < places->rank; k++) {
            s.dim[s.rank++] = places->dim[k];
        }
        if (i != axis) {
            s.dim[s.rank++] = from->dim[i];
        }
    }
    *ret = s;
    return 0;
}

/* ---- For readers of a finished graph ------------------------------------------------------ */

static struct rule_call call_of(const struct graph *g, const struct graph_node *n) {
    struct rule_call c = {.node = n, .values = g->values};
    for (uint32_t i = 0; i < n->input_count; i++) {
        c.in[i] = n->inputs[i].n != NO_VALUE.n ? &g->values[n->inputs[i].n].shape : NULL;
    }
    return c;
}

void graph_slice(
    const struct graph *g, const struct graph_node *n, int64_t ret_start[TENSOR_MAX_DIMS],
    int64_t ret_step[TENSOR_MAX_DIMS]) {
    struct rule_call c = call_of(g, n);
    struct shape s;
    (void)take_slices(&c, ret_start, ret_step, &s, NULL); /* the graph was checked */
}

void graph_axes(
    const struct graph *g, const struct graph_node *n, bool ret_is_named[TENSOR_MAX_DIMS]) {
    struct rule_call c = call_of(g, n);
    int rank = n->op == GRAPH_OP_Unsqueeze ? g->values[n->outputs[0].n].shape.rank : c.in[0]->rank;
    (void)graph_take_axes(&c, 1, rank, ret_is_named, NULL);
    if (c.in[1] != NULL || n->op == GRAPH_OP_Unsqueeze) {
        return;
    }
    bool is_squeeze = n->op == GRAPH_OP_Squeeze;
    bool is_all = !is_squeeze && graph_attr(n, "noop_with_empty_axes")->i == 0;
    for (int i = 0; i < rank; i++) {
        ret_is_named[i] = is_squeeze ? c.in[0]->dim[i] == 1 : is_all;
    }
}
