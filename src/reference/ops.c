/* The operator table; operators that work element by element, as their definition reads; how flat
 * indices and coordinates go together. */
#include <math.h>

#include "reference/reference_internal.h"

uint64_t reference_count(const struct shape *s) {
    uint64_t n = 1;
    for (int i = 0; i < s->rank; i++) {
        n *= (uint64_t)s->dim[i];
    }
    return n;
}

uint64_t reference_broadcast(
    uint64_t flat, const struct shape *result, const struct shape *operand, int skip) {
    uint64_t index = 0;
    uint64_t stride = 1;
    for (int i = skip; i < result->rank; i++) {
        uint64_t size = (uint64_t)result->dim[result->rank - 1 - i];
        uint64_t at = flat % size;
        flat /= size;
        if (i < operand->rank) {
            uint64_t own = (uint64_t)operand->dim[operand->rank - 1 - i];
            index += own == 1 ? 0 : at * stride;
            stride *= own;
        }
    }
    return index;
}

void reference_unravel(uint64_t flat, const struct shape *s, uint64_t ret[TENSOR_MAX_DIMS]) {
    for (int i = s->rank - 1; i >= 0; i--) {
        ret[i] = flat % (uint64_t)s->dim[i];
        flat /= (uint64_t)s->dim[i];
    }
}

uint64_t reference_ravel(const uint64_t at[TENSOR_MAX_DIMS], const struct shape *s) {
    uint64_t flat = 0;
    for (int i = 0; i < s->rank; i++) {
        flat = flat * (uint64_t)s->dim[i] + at[i];
    }
    return flat;
}

/* One operand, x. */
#define UNARY(NAME, ROUNDINGS, EXPRESSION)                                                         \
    void reference_eval_##NAME(const struct reference_call *c) {                                   \
        uint64_t n = reference_count(c->shape);                                                    \
        for (uint64_t i = 0; i < n; i++) {                                                         \
            double x = c->in[0][i];                                                                \
            c->out[i] = (EXPRESSION);                                                              \
        }                                                                                          \
    }                                                                                              \
    uint32_t reference_roundings_##NAME(const struct reference_call *c, bool accumulate_f16) {     \
        return (ROUNDINGS);                                                                        \
    }

UNARY(Relu, 0, x < 0 ? 0 : x) /* a NaN stays one */
UNARY(Tanh, 2, tanh(x))
UNARY(Sigmoid, 2, 1 / (1 + exp(-x)))
UNARY(Identity, 0, x)
UNARY(Sqrt, 2, sqrt(x))
UNARY(Neg, 0, -x)
UNARY(Exp, 2, exp(x))
UNARY(Reciprocal, 2, 1 / x)

/* Two operands or more, folded from the left: x, then y. */
#define FOLD(NAME, ROUNDINGS, EXPRESSION)                                                          \
    void reference_eval_##NAME(const struct reference_call *c) {                                   \
        uint64_t n = reference_count(c->shape);                                                    \
        for (uint64_t i = 0; i < n; i++) {                                                         \
            double x = c->in[0][reference_broadcast(i, c->shape, c->shapes[0], 0)];                \
            for (uint32_t k = 1; k < c->node->input_count; k++) {                                  \
                double y = c->in[k][reference_broadcast(i, c->shape, c->shapes[k], 0)];            \
                x = (EXPRESSION);                                                                  \
            }                                                                                      \
            c->out[i] = x;                                                                         \
        }                                                                                          \
    }                                                                                              \
    uint32_t reference_roundings_##NAME(const struct reference_call *c, bool accumulate_f16) {     \
        return (ROUNDINGS);                                                                        \
    }

FOLD(Add, 1, x + y)
FOLD(Sub, 1, x - y)
FOLD(Mul, 1, x *y)
FOLD(Div, 2, x / y)
FOLD(Pow, 4, pow(x, y))
FOLD(Max, 0, isnan(x) || x > y ? x : y)
FOLD(Min, 0, isnan(x) || x < y ? x : y)

void reference_eval_Gelu(const struct reference_call *c) {
    bool is_tanh = graph_attr(c->node, "approximate")->s[0] == 't';
    uint64_t n = reference_count(c->shape);
    for (uint64_t i = 0; i < n; i++) {
        double x = c->in[0][i];
        if (is_tanh) {
            double inner = sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
            c->out[i] = 0.5 * x * (1 + tanh(inner));
        } else {
            c->out[i] = 0.5 * x * (1 + erf(x * M_SQRT1_2));
        }
    }
}

uint32_t reference_roundings_Gelu(const struct reference_call *c, bool accumulate_f16) {
    return 4;
}

/* The value is not rounded: what casts to float16 loses is part of the tolerance. */
void reference_eval_Cast(const struct reference_call *c) {
    uint64_t n = reference_count(c->shape);
    for (uint64_t i = 0; i < n; i++) {
        c->out[i] = c->in[0][i];
    }
}

uint32_t reference_roundings_Cast(const struct reference_call *c, bool accumulate_f16) {
    enum dtype from = c->graph->values[c->node->inputs[0].n].dtype;
    return from != c->graph->values[c->node->outputs[0].n].dtype && from == DTYPE_FLOAT;
}

const struct reference_op reference_ops[GRAPH_OP_COUNT] = {
#define GRAPH_OP(NAME, ...) [GRAPH_OP_##NAME] = {reference_eval_##NAME, reference_roundings_##NAME},
#include "graph/op.def"
#undef GRAPH_OP
};
