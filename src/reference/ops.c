/* One loop nest per operator, as its definition reads. */
#include <math.h>

#include "reference/reference_internal.h"

static uint64_t count(const struct shape *s) {
    uint64_t n = 1;
    for (int i = 0; i < s->rank; i++) {
        n *= (uint64_t)s->dim[i];
    }
    return n;
}

/* Flat index in an operand that is broadcast (right-aligned) to the result's element `flat`;
 * the last `skip` axes of both are left out. */
static uint64_t
broadcast_index(uint64_t flat, const struct shape *result, const struct shape *operand, int skip) {
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

/* out[m][n] += sum over k of a[m][k] * b[k][n], with strides. */
static void product(
    double *out, const double *a, const double *b, uint64_t rows, uint64_t inner, uint64_t columns,
    const uint64_t a_stride[2], const uint64_t b_stride[2]) {
    for (uint64_t m = 0; m < rows; m++) {
        for (uint64_t k = 0; k < inner; k++) {
            double left = a[m * a_stride[0] + k * a_stride[1]];
            for (uint64_t n = 0; n < columns; n++) {
                out[m * columns + n] += left * b[k * b_stride[0] + n * b_stride[1]];
            }
        }
    }
}

static void eval_MatMul(const struct reference_call *c) {
    struct shape a = *c->shapes[0];
    struct shape b = *c->shapes[1];
    struct shape s = *c->shape; /* of the batch axes, then rows and columns */
    if (b.rank == 1) {
        b = (struct shape){.rank = 2, .dim = {b.dim[0], 1}};
        s.dim[s.rank++] = 1;
    }
    if (a.rank == 1) {
        a = (struct shape){.rank = 2, .dim = {1, a.dim[0]}};
        int64_t columns = s.dim[s.rank - 1];
        s.dim[s.rank - 1] = 1;
        s.dim[s.rank++] = columns;
    }
    uint64_t rows = (uint64_t)a.dim[a.rank - 2];
    uint64_t inner = (uint64_t)a.dim[a.rank - 1];
    uint64_t columns = (uint64_t)b.dim[b.rank - 1];
    uint64_t batches = count(&s) / (rows * columns);
    for (uint64_t i = 0; i < batches; i++) {
        const double *left = c->in[0] + broadcast_index(i, &s, &a, 2) * rows * inner;
        const double *right = c->in[1] + broadcast_index(i, &s, &b, 2) * inner * columns;
        product(
            c->out + i * rows * columns, left, right, rows, inner, columns, (uint64_t[]){inner, 1},
            (uint64_t[]){columns, 1});
    }
}

static uint64_t matmul_inner(const struct reference_call *c) {
    return (uint64_t)c->shapes[0]->dim[c->shapes[0]->rank - 1];
}

static uint32_t sum_roundings(const struct reference_call *c, uint64_t inner, bool accumulate_f16) {
    if (c->graph->values[c->node->outputs[0].n].dtype != DTYPE_FLOAT16) {
        return (uint32_t)inner;
    }
    uint64_t part = inner < 512 ? inner : 512;
    return accumulate_f16 ? (uint32_t)(1 + (part + 15) / 16) : 1;
}

static uint32_t roundings_MatMul(const struct reference_call *c, bool accumulate_f16) {
    return sum_roundings(c, matmul_inner(c), accumulate_f16);
}

static void eval_Gemm(const struct reference_call *c) {
    uint64_t turn_a = graph_attr(c->node, "transA")->i != 0;
    uint64_t turn_b = graph_attr(c->node, "transB")->i != 0;
    double alpha = graph_attr(c->node, "alpha")->f;
    double beta = graph_attr(c->node, "beta")->f;
    uint64_t rows = (uint64_t)c->shape->dim[0];
    uint64_t columns = (uint64_t)c->shape->dim[1];
    uint64_t a_columns = (uint64_t)c->shapes[0]->dim[1];
    uint64_t b_columns = (uint64_t)c->shapes[1]->dim[1];
    uint64_t inner = (uint64_t)c->shapes[0]->dim[1 - turn_a];
    uint64_t a_stride[2] = {turn_a ? 1 : a_columns, turn_a ? a_columns : 1};
    uint64_t b_stride[2] = {turn_b ? 1 : b_columns, turn_b ? b_columns : 1};
    product(c->out, c->in[0], c->in[1], rows, inner, columns, a_stride, b_stride);
    for (uint64_t i = 0; i < rows * columns; i++) {
        c->out[i] *= alpha;
        if (c->in[2] != NULL) {
            c->out[i] += beta * c->in[2][broadcast_index(i, c->shape, c->shapes[2], 0)];
        }
    }
}

static uint32_t roundings_Gemm(const struct reference_call *c, bool accumulate_f16) {
    bool turn_a = graph_attr(c->node, "transA")->i != 0;
    uint64_t inner = (uint64_t)c->shapes[0]->dim[turn_a ? 0 : 1];
    uint32_t n = sum_roundings(c, inner, accumulate_f16);
    n += graph_attr(c->node, "alpha")->f != 1;
    if (c->shapes[2] != NULL) {
        n += 1 + (graph_attr(c->node, "beta")->f != 1);
    }
    return n;
}

static void eval_Add(const struct reference_call *c) {
    uint64_t n = count(c->shape);
    for (uint64_t i = 0; i < n; i++) {
        c->out[i] = c->in[0][broadcast_index(i, c->shape, c->shapes[0], 0)] +
                    c->in[1][broadcast_index(i, c->shape, c->shapes[1], 0)];
    }
}

static uint32_t roundings_Add(const struct reference_call *c, bool accumulate_f16) {
    return 1;
}

static void eval_Relu(const struct reference_call *c) {
    uint64_t n = count(c->shape);
    for (uint64_t i = 0; i < n; i++) {
        double x = c->in[0][i];
        c->out[i] = x < 0 ? 0 : x; /* a NaN stays one */
    }
}

static uint32_t roundings_Relu(const struct reference_call *c, bool accumulate_f16) {
    return 0;
}

static void eval_Tanh(const struct reference_call *c) {
    uint64_t n = count(c->shape);
    for (uint64_t i = 0; i < n; i++) {
        c->out[i] = tanh(c->in[0][i]);
    }
}

static uint32_t roundings_Tanh(const struct reference_call *c, bool accumulate_f16) {
    return 2;
}

static void eval_Sigmoid(const struct reference_call *c) {
    uint64_t n = count(c->shape);
    for (uint64_t i = 0; i < n; i++) {
        c->out[i] = 1 / (1 + exp(-c->in[0][i]));
    }
}

static uint32_t roundings_Sigmoid(const struct reference_call *c, bool accumulate_f16) {
    return 2;
}

static void eval_Gelu(const struct reference_call *c) {
    bool is_tanh = graph_attr(c->node, "approximate")->s[0] == 't';
    uint64_t n = count(c->shape);
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

static uint32_t roundings_Gelu(const struct reference_call *c, bool accumulate_f16) {
    return 4;
}

static void softmax_row(const double *in, double *out, uint64_t n, uint64_t stride) {
    double largest = in[0];
    double sum = 0;
    for (uint64_t i = 1; i < n; i++) {
        largest = fmax(largest, in[i * stride]);
    }
    for (uint64_t i = 0; i < n; i++) {
        out[i * stride] = exp(in[i * stride] - largest);
        sum += out[i * stride];
    }
    for (uint64_t i = 0; i < n; i++) {
        out[i * stride] /= sum;
    }
}

static void eval_Softmax(const struct reference_call *c) {
    int axis = (int)graph_attr(c->node, "axis")->i;
    uint64_t inner = 1;
    for (int i = axis + 1; i < c->shape->rank; i++) {
        inner *= (uint64_t)c->shape->dim[i];
    }
    uint64_t size = (uint64_t)c->shape->dim[axis];
    uint64_t outer = count(c->shape) / (inner * size);
    for (uint64_t o = 0; o < outer; o++) {
        for (uint64_t i = 0; i < inner; i++) {
            uint64_t at = o * size * inner + i;
            softmax_row(c->in[0] + at, c->out + at, size, inner);
        }
    }
}

static uint32_t roundings_Softmax(const struct reference_call *c, bool accumulate_f16) {
    return 8;
}

static void eval_Identity(const struct reference_call *c) {
    uint64_t n = count(c->shape);
    for (uint64_t i = 0; i < n; i++) {
        c->out[i] = c->in[0][i];
    }
}

static uint32_t roundings_Identity(const struct reference_call *c, bool accumulate_f16) {
    return 0;
}

const struct reference_op reference_ops[GRAPH_OP_COUNT] = {
#define GRAPH_OP(NAME, ...) [GRAPH_OP_##NAME] = {eval_##NAME, roundings_##NAME},
#include "graph/op.def"
#undef GRAPH_OP
};
