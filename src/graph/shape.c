/* Attributes, types and shapes of nodes: everything that op.def says about an operator. */
#include <string.h>

#include "graph/graph_internal.h"

#define SHAPE_TEXT 160

static int graph_rule_same(
    const struct graph_node *n, const struct shape *const *in, struct shape *ret, struct err *err) {
    *ret = *in[0];
    return 0;
}

/* Right-aligned, sizes equal or 1 (numpy). The first `keep` axes from the right are left out.
 * Writes the axes of the result to ret, whose rank is set by the caller. */
static int broadcast_axes(
    const struct shape *a, const struct shape *b, int keep, struct shape *ret, struct err *err) {
    for (int i = keep; i < ret->rank; i++) { /* axes counted from the right */
        int64_t x = i < a->rank ? a->dim[a->rank - 1 - i] : 1;
        int64_t y = i < b->rank ? b->dim[b->rank - 1 - i] : 1;
        if (x != y && x != 1 && y != 1) {
            char ta[SHAPE_TEXT];
            char tb[SHAPE_TEXT];
            return err_set(
                err, ERR_SHAPE,
                "shapes %s and %s do not broadcast: sizes %lld and %lld on axis -%d",
                shape_print(a, ta, sizeof ta), shape_print(b, tb, sizeof tb), (long long)x,
                (long long)y, i + 1);
        }
        ret->dim[ret->rank - 1 - i] = x == 1 ? y : x;
    }
    return 0;
}

static int graph_rule_broadcast(
    const struct graph_node *n, const struct shape *const *in, struct shape *ret, struct err *err) {
    *ret = (struct shape){.rank = in[0]->rank > in[1]->rank ? in[0]->rank : in[1]->rank};
    return broadcast_axes(in[0], in[1], 0, ret, err);
}

static int graph_rule_matmul(
    const struct graph_node *n, const struct shape *const *in, struct shape *ret, struct err *err) {
    char ta[SHAPE_TEXT];
    char tb[SHAPE_TEXT];
    struct shape a = *in[0];
    struct shape b = *in[1];
    if (a.rank == 0 || b.rank == 0) {
        return err_set(
            err, ERR_SHAPE, "shapes %s and %s: an operand has no dimensions",
            shape_print(&a, ta, sizeof ta), shape_print(&b, tb, sizeof tb));
    }
    bool is_row = a.rank == 1; /* 1-D operands count as a row and a column */
    bool is_column = b.rank == 1;
    if (is_row) {
        a = (struct shape){.rank = 2, .dim = {1, a.dim[0]}};
    }
    if (is_column) {
        b = (struct shape){.rank = 2, .dim = {b.dim[0], 1}};
    }
    if (a.dim[a.rank - 1] != b.dim[b.rank - 2]) {
        return err_set(
            err, ERR_SHAPE, "shapes %s and %s: inner sizes %lld and %lld differ",
            shape_print(in[0], ta, sizeof ta), shape_print(in[1], tb, sizeof tb),
            (long long)a.dim[a.rank - 1], (long long)b.dim[b.rank - 2]);
    }
    struct shape s = {.rank = a.rank > b.rank ? a.rank : b.rank};
    int r = broadcast_axes(&a, &b, 2, &s, err);
    if (r < 0) {
        return r;
    }
    int rank = s.rank - 2;
    if (!is_row) {
        s.dim[rank++] = a.dim[a.rank - 2];
    }
    if (!is_column) {
        s.dim[rank++] = b.dim[b.rank - 1];
    }
    for (int i = rank; i < TENSOR_MAX_DIMS; i++) {
        s.dim[i] = 0;
    }
    s.rank = rank;
    *ret = s;
    return 0;
}

static int graph_rule_gemm(
    const struct graph_node *n, const struct shape *const *in, struct shape *ret, struct err *err) {
    char ta[SHAPE_TEXT];
    char tb[SHAPE_TEXT];
    const struct shape *a = in[0];
    const struct shape *b = in[1];
    if (a->rank != 2 || b->rank != 2) {
        return err_set(
            err, ERR_SHAPE, "shapes %s and %s: exactly 2 dimensions each",
            shape_print(a, ta, sizeof ta), shape_print(b, tb, sizeof tb));
    }
    int turn_a = graph_attr(n, "transA")->i != 0;
    int turn_b = graph_attr(n, "transB")->i != 0;
    if (a->dim[1 - turn_a] != b->dim[turn_b]) {
        return err_set(
            err, ERR_SHAPE,
            "shapes %s and %s with transA %d, transB %d: inner sizes %lld and %lld differ",
            shape_print(a, ta, sizeof ta), shape_print(b, tb, sizeof tb), turn_a, turn_b,
            (long long)a->dim[1 - turn_a], (long long)b->dim[turn_b]);
    }
    *ret = (struct shape){.rank = 2, .dim = {a->dim[turn_a], b->dim[1 - turn_b]}};
    const struct shape *c = in[2];
    bool fits = c == NULL || c->rank <= 2;
    for (int i = 0; fits && c != NULL && i < c->rank; i++) {
        int64_t size = c->dim[c->rank - 1 - i];
        fits = size == 1 || size == ret->dim[1 - i];
    }
    if (!fits) {
        return err_set(
            err, ERR_SHAPE, "input 2: shape %s does not broadcast to %s",
            shape_print(c, ta, sizeof ta), shape_print(ret, tb, sizeof tb));
    }
    return 0;
}

#define OP_INT(NAME, DEFAULT, MIN, MAX)                                                            \
    {.name = (NAME), .kind = ATTR_INT, .i = (DEFAULT), .min = (MIN), .max = (MAX)},
#define OP_AXIS(NAME, DEFAULT)  {.name = (NAME), .kind = ATTR_INT, .is_axis = true, .i = (DEFAULT)},
#define OP_FLOAT(NAME, DEFAULT) {.name = (NAME), .kind = ATTR_FLOAT, .f = (DEFAULT)},
#define OP_CHOICE(NAME, DEFAULT, CHOICES)                                                          \
    {.name = (NAME), .kind = ATTR_STRING, .s = (DEFAULT), .choices = (CHOICES)},

#define GRAPH_OP(NAME, least, most, outputs, types, rule, attributes)                              \
    static const struct op_attr attrs_##NAME[] = {attributes{.name = NULL}};
#include "graph/op.def"
#undef GRAPH_OP

const struct op_row graph_op_rows[GRAPH_OP_COUNT] = {
#define GRAPH_OP(NAME, least_, most_, outputs_, types_, rule_, attributes_)                        \
    [GRAPH_OP_##NAME] = {                                                                          \
        .name = #NAME,                                                                             \
        .least = (least_),                                                                         \
        .most = (most_),                                                                           \
        .outputs = (outputs_),                                                                     \
        .types = OP_TYPES_##types_,                                                                \
        .rule = graph_rule_##rule_,                                                                \
        .attrs = attrs_##NAME},
#include "graph/op.def"
#undef GRAPH_OP
};

#define GRAPH_OP(NAME, least, most, outputs, ...)                                                  \
    _Static_assert(                                                                                \
        (least) >= 1 && (least) <= (most) && (most) <= GRAPH_MAX_ARITY && (outputs) >= 1 &&        \
            (outputs) <= GRAPH_MAX_ARITY,                                                          \
        #NAME ": arity");
#include "graph/op.def"
#undef GRAPH_OP

static bool is_choice(const char *choices, const char *text) {
    size_t n = strlen(text);
    for (const char *p = choices; p != NULL; p = strchr(p, '|')) {
        p += *p == '|';
        if (n > 0 && strncmp(p, text, n) == 0 && (p[n] == '|' || p[n] == '\0')) {
            return true;
        }
    }
    return false;
}

int graph_check_attr(
    const struct op_attr *row, const struct graph_attr *attr, int rank, struct err *err) {
    static const char *const kinds[] = {
        [ATTR_INT] = "an integer",
        [ATTR_FLOAT] = "a number",
        [ATTR_STRING] = "a string",
        [ATTR_INTS] = "a list of integers"};
    if (attr->kind != row->kind) {
        return err_set(
            err, ERR_BAD_GRAPH, "attribute '%s' must be %s", row->name, kinds[row->kind]);
    }
    int64_t min = row->is_axis ? -rank : row->min;
    int64_t max = row->is_axis ? rank - 1 : row->max;
    if (row->kind == ATTR_INT && (attr->i < min || attr->i > max)) {
        if (row->is_axis && rank == 0) {
            return err_set(err, ERR_SHAPE, "attribute '%s': the operand [] has no axis", row->name);
        }
        return err_set(
            err, ERR_BAD_GRAPH, "attribute '%s' is %lld, allowed is %lld to %lld", row->name,
            (long long)attr->i, (long long)min, (long long)max);
    }
    if (row->kind == ATTR_FLOAT && !__builtin_isfinite((float)attr->f)) {
        return err_set(err, ERR_BAD_GRAPH, "attribute '%s' is no finite float32", row->name);
    }
    if (row->kind == ATTR_STRING && !is_choice(row->choices, attr->s)) {
        return err_set(
            err, ERR_BAD_GRAPH, "attribute '%s' is \"%.40s\", allowed is %s", row->name, attr->s,
            row->choices);
    }
    return 0;
}

static const struct graph_attr *
find_given(const struct graph_attr *given, uint32_t count, const char *name) {
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(given[i].name, name) == 0) {
            return &given[i];
        }
    }
    return NULL;
}

static bool has_attr(const struct op_row *row, const char *name) {
    for (const struct op_attr *a = row->attrs; a->name != NULL; a++) {
        if (strcmp(a->name, name) == 0) {
            return true;
        }
    }
    return false;
}

int graph_fill_attrs(
    struct arena *a, const struct graph_value *values, struct graph_node *n,
    const struct graph_attr *given, uint32_t given_count, struct err *err) {
    const struct op_row *row = &graph_op_rows[n->op];
    int rank = n->input_count > 0 ? values[n->inputs[0].n].shape.rank : 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < given_count; i++) {
        if (!has_attr(row, given[i].name)) {
            return err_set(err, ERR_BAD_GRAPH, "unknown attribute '%.100s'", given[i].name);
        }
    }
    while (row->attrs[count].name != NULL) {
        count++;
    }
    n->attrs = ARENA_ARRAY(a, struct graph_attr, count);
    n->attr_count = count;
    for (uint32_t i = 0; i < count; i++) {
        const struct op_attr *r = &row->attrs[i];
        const struct graph_attr *g = find_given(given, given_count, r->name);
        struct graph_attr attr = {
            .name = r->name, .kind = r->kind, .i = r->i, .f = r->f, .s = r->s};
        if (g != NULL) {
            attr = *g;
            attr.name = r->name;
        }
        int result = graph_check_attr(r, &attr, rank, err);
        if (result < 0) {
            return result;
        }
        attr.f = (double)(float)attr.f; /* ONNX stores float32 */
        attr.i += r->is_axis && attr.i < 0 ? rank : 0;
        n->attrs[i] = attr;
    }
    return 0;
}

int graph_check_shape(enum dtype t, const struct shape *s, struct err *err) {
    char text[SHAPE_TEXT];
    uint64_t bytes = 0;
    int r = shape_elements(s, t, NULL, &bytes, err);
    if (r < 0) {
        return r;
    }
    for (int i = 0; i < s->rank; i++) {
        if (s->dim[i] < 1) {
            return err_set(
                err, ERR_SHAPE, "shape %s: dimension %d is 0, at least 1",
                shape_print(s, text, sizeof text), i);
        }
    }
    if (bytes > GRAPH_MAX_TENSOR_BYTES) {
        return err_set(
            err, ERR_TOO_LARGE, "shape %s of %s: %llu bytes, at most %llu",
            shape_print(s, text, sizeof text), dtype_name(t), (unsigned long long)bytes,
            GRAPH_MAX_TENSOR_BYTES);
    }
    return 0;
}

static int
check_types(const struct graph_value *values, const struct graph_node *n, struct err *err) {
    enum dtype first = values[n->inputs[0].n].dtype;
    bool is_any = graph_op_rows[n->op].types == OP_TYPES_ANY;
    if (!is_any && first != DTYPE_FLOAT16 && first != DTYPE_FLOAT) {
        return err_set(
            err, ERR_DTYPE, "input 0 is %s, supported are float16 and float32", dtype_name(first));
    }
    for (uint32_t i = 1; i < n->input_count; i++) {
        if (n->inputs[i].n != NO_VALUE.n && values[n->inputs[i].n].dtype != first) {
            return err_set(
                err, ERR_DTYPE, "input 0 is %s, input %u is %s: one type is required",
                dtype_name(first), i, dtype_name(values[n->inputs[i].n].dtype));
        }
    }
    return 0;
}

int graph_infer(
    const struct graph_value *values, const struct graph_node *n, enum dtype *ret_dtype,
    struct shape *ret_shape, struct err *err) {
    const struct shape *in[GRAPH_MAX_ARITY] = {NULL};
    struct shape shape = {0};
    for (uint32_t i = 0; i < n->input_count; i++) {
        in[i] = n->inputs[i].n != NO_VALUE.n ? &values[n->inputs[i].n].shape : NULL;
    }
    int r = check_types(values, n, err);
    if (r == 0) {
        r = graph_op_rows[n->op].rule(n, in, &shape, err);
    }
    if (r == 0) {
        r = graph_check_shape(values[n->inputs[0].n].dtype, &shape, err);
    }
    if (r < 0) {
        err_wrap(err, "node '%s' (%s)", n->name, graph_op_rows[n->op].name);
        err_where(err, "%s", n->pointer != NULL ? n->pointer : "");
        return r;
    }
    *ret_dtype = values[n->inputs[0].n].dtype;
    *ret_shape = shape;
    return 0;
}
