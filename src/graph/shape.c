/* The operator table; types and shapes of results: everything that op.def says about operands. */
#include <string.h>

#include "graph/graph_internal.h"

#define OP_INT(NAME, DEFAULT, MIN, MAX)                                                            \
    {.name = (NAME), .kind = ATTR_INT, .i = (DEFAULT), .min = (MIN), .max = (MAX)},
#define OP_AXIS(NAME, DEFAULT) {.name = (NAME), .kind = ATTR_INT, .is_axis = true, .i = (DEFAULT)},
#define OP_NEEDED_AXIS(NAME)                                                                       \
    {.name = (NAME), .kind = ATTR_INT, .is_axis = true, .is_required = true},
#define OP_FLOAT(NAME, DEFAULT) {.name = (NAME), .kind = ATTR_FLOAT, .f = (DEFAULT)},
#define OP_CHOICE(NAME, DEFAULT, CHOICES)                                                          \
    {.name = (NAME), .kind = ATTR_STRING, .s = (DEFAULT), .choices = (CHOICES)},
#define OP_TYPE(NAME)                                                                              \
    {.name = (NAME),                                                                               \
     .kind = ATTR_STRING,                                                                          \
     .is_type = true,                                                                              \
     .is_required = true,                                                                          \
     .choices = "float16|float32"},
#define OP_OWN_INT(NAME, MIN, MAX)                                                                 \
    {.name = (NAME), .kind = ATTR_INT, .is_derived = true, .min = (MIN), .max = (MAX)},
#define OP_OWN_FLOAT(NAME) {.name = (NAME), .kind = ATTR_FLOAT, .is_derived = true},
#define OP_OWN_INTS(NAME)  {.name = (NAME), .kind = ATTR_INTS, .is_derived = true},

#define GRAPH_OP(NAME, least, most, outputs, operands, rule, attributes)                           \
    static const struct op_attr attrs_##NAME[] = {attributes{.name = NULL}};
#include "graph/op.def"
#undef GRAPH_OP

const struct op_row graph_op_rows[GRAPH_OP_COUNT] = {
#define GRAPH_OP(NAME, least_, most_, outputs_, operands_, rule_, attributes_)                     \
    [GRAPH_OP_##NAME] = {                                                                          \
        .name = #NAME,                                                                             \
        .least = (least_),                                                                         \
        .most = (most_),                                                                           \
        .outputs = (outputs_),                                                                     \
        .operands = (operands_),                                                                   \
        .rule = graph_rule_##rule_,                                                                \
        .attrs = attrs_##NAME},
#include "graph/op.def"
#undef GRAPH_OP
};

#define GRAPH_OP(NAME, least, most, outputs, ...)                                                  \
    _Static_assert(                                                                                \
        (least) >= 1 && (least) <= (most) && (most) <= GRAPH_MAX_ARITY && (outputs) >= 1 &&        \
            (outputs) <= GRAPH_MAX_ARITY &&                                                        \
            sizeof attrs_##NAME / sizeof *attrs_##NAME <= GRAPH_MAX_ARITY,                         \
        #NAME ": arity");
#include "graph/op.def"
#undef GRAPH_OP

char graph_operand_letter(enum graph_op op, uint32_t operand) {
    const char *letters = graph_op_rows[op].operands;
    size_t n = strlen(letters);
    return letters[operand < n ? operand : n - 1];
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
check_constant(const struct graph_value *v, uint32_t operand, char letter, struct err *err) {
    if (letter == 'E' && v->kind != VALUE_INITIALIZER) {
        return 0;
    }
    if (v->kind != VALUE_INITIALIZER) {
        return err_set(
            err, ERR_UNSUPPORTED_OP,
            "input %u ('%s') must be an initializer: its values are needed when a model is "
            "compiled",
            operand, v->name);
    }
    if (letter == 'I' && v->dtype != DTYPE_INT64) {
        return err_set(
            err, ERR_DTYPE, "input %u is %s, required is int64", operand, dtype_name(v->dtype));
    }
    if (letter == 'J' && v->dtype != DTYPE_INT64 && v->dtype != DTYPE_INT32) {
        return err_set(
            err, ERR_DTYPE, "input %u is %s, required is int32 or int64", operand,
            dtype_name(v->dtype));
    }
    if (v->source.bytes == NULL) {
        return err_set(
            err, ERR_BAD_GRAPH,
            "input %u ('%s') enters the key: values, a file or a constant generator of at most %d "
            "elements are required",
            operand, v->name, GRAPH_MAX_INLINE_ELEMENTS);
    }
    return 0;
}

static int check_operand(
    const struct graph_value *values, const struct graph_node *n, uint32_t i, struct err *err) {
    const struct graph_value *v = &values[n->inputs[i].n];
    enum dtype first = values[n->inputs[0].n].dtype;
    char letter = graph_operand_letter(n->op, i);
    switch (letter) {
    case 'F':
    case 'A':
        if (letter == 'F' && i == 0 && first != DTYPE_FLOAT16 && first != DTYPE_FLOAT) {
            return err_set(
                err, ERR_DTYPE, "input 0 is %s, supported are float16 and float32",
                dtype_name(first));
        }
        if (v->dtype != first) {
            return err_set(
                err, ERR_DTYPE, "input 0 is %s, input %u is %s: one type is required",
                dtype_name(first), i, dtype_name(v->dtype));
        }
        return 0;
    case 'X':
        return err_set(
            err, ERR_UNSUPPORTED_OP,
            "input %u ('%s') must be absent: masks and past keys are not supported", i, v->name);
    default:
        if (letter == 'E' && v->dtype == DTYPE_BOOL) {
            return err_set(err, ERR_DTYPE, "input %u is bool, a number is required", i);
        }
        return check_constant(v, i, letter, err);
    }
}

static enum dtype result_type(const struct graph_value *values, const struct graph_node *n) {
    return n->op == GRAPH_OP_Cast ? dtype_from_name(graph_attr(n, "to")->s)
                                  : values[n->inputs[0].n].dtype;
}

int graph_infer(
    const struct graph_value *values, const struct graph_node *n,
    struct graph_type ret[GRAPH_MAX_ARITY], struct err *err) {
    struct rule_call c = {.node = n, .values = values};
    struct shape shapes[GRAPH_MAX_ARITY] = {0};
    int r = 0;
    for (uint32_t i = 0; i < n->input_count && r == 0; i++) {
        if (n->inputs[i].n != NO_VALUE.n) {
            c.in[i] = &values[n->inputs[i].n].shape;
            r = check_operand(values, n, i, err);
        }
    }
    if (r == 0) {
        r = graph_op_rows[n->op].rule(&c, shapes, err);
    }
    for (uint32_t i = 0; i < n->output_count && r == 0; i++) {
        ret[i] = (struct graph_type){result_type(values, n), shapes[i]};
        r = graph_check_shape(ret[i].dtype, &ret[i].shape, err);
    }
    if (r < 0) {
        err_wrap(err, "node '%s' (%s)", n->name, graph_op_rows[n->op].name);
        err_where(err, "%s", n->pointer != NULL ? n->pointer : "");
    }
    return r;
}
