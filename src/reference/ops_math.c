/* Operators that sum: products, normalisation, attention, reductions. One loop nest each, as the
 * definition reads. */
#include <math.h>

#include "reference/reference_internal.h"

#define BLOCK_ROWS 16u

/* out[m][n] += sum over k of a[m][k] * b[k][n], with strides. Rows go in blocks, so that a large b
 * is fetched once for all rows of one; each sum runs over k in order all the same. */
static void product(
    double *out, const double *a, const double *b, uint64_t rows, uint64_t inner, uint64_t columns,
    const uint64_t a_stride[2], const uint64_t b_stride[2]) {
    for (uint64_t first = 0; first < rows; first += BLOCK_ROWS) {
        uint64_t last = rows - first < BLOCK_ROWS ? rows : first + BLOCK_ROWS;
        for (uint64_t k = 0; k < inner; k++) {
            for (uint64_t m = first; m < last; m++) {
                double left = a[m * a_stride[0] + k * a_stride[1]];
                for (uint64_t n = 0; n < columns; n++) {
                    out[m * columns + n] += left * b[k * b_stride[0] + n * b_stride[1]];
                }
            }
        }
    }
}

void reference_eval_MatMul(const struct reference_call *c) {
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
    uint64_t batches = reference_count(&s) / (rows * columns);
    for (uint64_t i = 0; i < batches; i++) {
        const double *left = c->in[0] + reference_broadcast(i, &s, &a, 2) * rows * inner;
        const double *right = c->in[1] + reference_broadcast(i, &s, &b, 2) * inner * columns;
        product(
            c->out + i * rows * columns, left, right, rows, inner, columns, (uint64_t[]){inner, 1},
            (uint64_t[]){columns, 1});
    }
}

static uint64_t matmul_inner(const struct reference_call *c) {
    return (uint64_t)c->shapes[0]->dim[c->shapes[0]->rank - 1];
}

uint32_t
reference_sum_roundings(const struct reference_call *c, uint64_t inner, bool accumulate_f16) {
    if (c->graph->values[c->node->outputs[0].n].dtype != DTYPE_FLOAT16) {
        return (uint32_t)inner;
    }
    uint64_t part = inner < 512 ? inner : 512;
    return accumulate_f16 ? (uint32_t)(1 + (part + 15) / 16) : 1;
}

uint32_t reference_roundings_MatMul(const struct reference_call *c, bool accumulate_f16) {
    return reference_sum_roundings(c, matmul_inner(c), accumulate_f16);
}

void reference_eval_Gemm(const struct reference_call *c) {
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
            c->out[i] += beta * c->in[2][reference_broadcast(i, c->shape, c->shapes[2], 0)];
        }
    }
}

uint32_t reference_roundings_Gemm(const struct reference_call *c, bool accumulate_f16) {
    bool turn_a = graph_attr(c->node, "transA")->i != 0;
    uint64_t inner = (uint64_t)c->shapes[0]->dim[turn_a ? 0 : 1];
    uint32_t n = reference_sum_roundings(c, inner, accumulate_f16);
    n += graph_attr(c->node, "alpha")->f != 1;
    if (c->shapes[2] != NULL) {
        n += 1 + (graph_attr(c->node, "beta")->f != 1);
    }
    return n;
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

void reference_eval_Softmax(const struct reference_call *c) {
    int axis = (int)graph_attr(c->node, "axis")->i;
    uint64_t inner = 1;
    for (int i = axis + 1; i < c->shape->rank; i++) {
        inner *= (uint64_t)c->shape->dim[i];
    }
    uint64_t size = (uint64_t)c->shape->dim[axis];
    uint64_t outer = reference_count(c->shape) / (inner * size);
    for (uint64_t o = 0; o < outer; o++) {
        for (uint64_t i = 0; i < inner; i++) {
            uint64_t at = o * size * inner + i;
            softmax_row(c->in[0] + at, c->out + at, size, inner);
        }
    }
}

uint32_t reference_roundings_Softmax(const struct reference_call *c, bool accumulate_f16) {
    return 8;
}

static uint64_t tail(const struct shape *s, int axis) {
    uint64_t n = 1;
    for (int i = axis; i < s->rank; i++) {
        n *= (uint64_t)s->dim[i];
    }
    return n;
}

void reference_eval_LayerNormalization(const struct reference_call *c) {
    uint64_t n = tail(c->shape, (int)graph_attr(c->node, "axis")->i);
    double epsilon = graph_attr(c->node, "epsilon")->f;
    uint64_t rows = reference_count(c->shape) / n;
    for (uint64_t r = 0; r < rows; r++) {
        const double *x = c->in[0] + r * n;
        double mean = 0;
        double variance = 0;
        for (uint64_t i = 0; i < n; i++) {
            mean += x[i] / (double)n;
        }
        for (uint64_t i = 0; i < n; i++) {
            variance += (x[i] - mean) * (x[i] - mean) / (double)n;
        }
        for (uint64_t i = 0; i < n; i++) {
            uint64_t at = r * n + i;
            double y = (x[i] - mean) / sqrt(variance + epsilon);
            y *= c->in[1][reference_broadcast(at, c->shape, c->shapes[1], 0)];
            if (c->in[2] != NULL) {
                y += c->in[2][reference_broadcast(at, c->shape, c->shapes[2], 0)];
            }
            c->out[at] = y;
        }
    }
}

/* The sums, two for the inverse root, one for the scale, one for the bias. */
uint32_t
reference_roundings_LayerNormalization(const struct reference_call *c, bool accumulate_f16) {
    uint64_t n = tail(c->shape, (int)graph_attr(c->node, "axis")->i);
    return reference_sum_roundings(c, n, false) + 3 + (c->shapes[2] != NULL);
}

/* Q, K or V as [batch][head][row][size], whatever its rank. */
struct heads {
    uint64_t count, rows, size;
    uint64_t batch_stride, head_stride, row_stride;
};

static struct heads heads_of(const struct shape *s, uint64_t count) {
    uint64_t last = (uint64_t)s->dim[s->rank - 1];
    if (s->rank == 4) {
        uint64_t rows = (uint64_t)s->dim[2];
        return (struct heads){count, rows, last, count * rows * last, rows * last, last};
    }
    uint64_t rows = (uint64_t)s->dim[1];
    return (struct heads){count, rows, last / count, rows * last, last / count, last};
}

static double dot(const double *a, const double *b, uint64_t n) {
    double sum = 0;
    for (uint64_t i = 0; i < n; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

/* One row of one head. The scores are formed twice: once for their maximum, once to be used. */
static void attend(
    const double *q, const double *k, const double *v, double *out, double scale,
    const struct heads *kh, const struct heads *vh) {
    double largest = -INFINITY;
    double sum = 0;
    for (uint64_t j = 0; j < kh->rows; j++) {
        largest = fmax(largest, scale * dot(q, k + j * kh->row_stride, kh->size));
    }
    for (uint64_t j = 0; j < kh->rows; j++) {
        double e = exp(scale * dot(q, k + j * kh->row_stride, kh->size) - largest);
        sum += e;
        for (uint64_t i = 0; i < vh->size; i++) {
            out[i] += e * v[j * vh->row_stride + i];
        }
    }
    for (uint64_t i = 0; i < vh->size; i++) {
        out[i] /= sum;
    }
}

/* Fewer heads of K and V than of Q: consecutive heads of Q share one. */
void reference_eval_Attention(const struct reference_call *c) {
    uint64_t q_count = (uint64_t)graph_attr(c->node, "q_num_heads")->i;
    uint64_t kv_count = (uint64_t)graph_attr(c->node, "kv_num_heads")->i;
    double scale = graph_attr(c->node, "scale")->f;
    struct heads q = heads_of(c->shapes[0], q_count);
    struct heads k = heads_of(c->shapes[1], kv_count);
    struct heads v = heads_of(c->shapes[2], kv_count);
    struct heads y = heads_of(c->shape, q_count);
    for (uint64_t b = 0; b < (uint64_t)c->shape->dim[0]; b++) {
        for (uint64_t h = 0; h < q_count; h++) {
            uint64_t shared = h / (q_count / kv_count);
            for (uint64_t i = 0; i < q.rows; i++) {
                attend(
                    c->in[0] + b * q.batch_stride + h * q.head_stride + i * q.row_stride,
                    c->in[1] + b * k.batch_stride + shared * k.head_stride,
                    c->in[2] + b * v.batch_stride + shared * v.head_stride,
                    c->out + b * y.batch_stride + h * y.head_stride + i * y.row_stride, scale, &k,
                    &v);
            }
        }
    }
}

uint32_t reference_roundings_Attention(const struct reference_call *c, bool accumulate_f16) {
    struct heads k = heads_of(c->shapes[1], (uint64_t)graph_attr(c->node, "kv_num_heads")->i);
    return reference_sum_roundings(c, k.size, accumulate_f16) + 8 +
           reference_sum_roundings(c, k.rows, accumulate_f16);
}

/* Each output element is a sum over the channels and the kernel. */
void reference_eval_Conv(const struct reference_call *c) {
    const struct shape *x = c->shapes[0];
    const struct shape *w = c->shapes[1];
    struct shape kernel = {.rank = w->rank - 1};
    for (int i = 0; i < kernel.rank; i++) {
        kernel.dim[i] = w->dim[i + 1]; /* channels first */
    }
    uint64_t inner = reference_count(&kernel);
    uint64_t n = reference_count(c->shape);
    for (uint64_t o = 0; o < n; o++) {
        uint64_t to[TENSOR_MAX_DIMS];
        reference_unravel(o, c->shape, to);
        double sum = c->in[2] != NULL ? c->in[2][to[1]] : 0;
        for (uint64_t k = 0; k < inner; k++) {
            uint64_t in_kernel[TENSOR_MAX_DIMS];
            uint64_t from[TENSOR_MAX_DIMS];
            reference_unravel(k, &kernel, in_kernel);
            from[0] = to[0];
            from[1] = in_kernel[0];
            for (int i = 2; i < x->rank; i++) {
                from[i] = to[i] * (uint64_t)w->dim[i] + in_kernel[i - 1];
            }
            sum += c->in[0][reference_ravel(from, x)] * c->in[1][to[1] * inner + k];
        }
        c->out[o] = sum;
    }
}

uint32_t reference_roundings_Conv(const struct reference_call *c, bool accumulate_f16) {
    const struct shape *w = c->shapes[1];
    uint64_t inner = reference_count(w) / (uint64_t)w->dim[0];
    return reference_sum_roundings(c, inner, accumulate_f16) + (c->shapes[2] != NULL);
}

/* ---- Reductions -------------------------------------------------------------------------- */

/* The operand's shape with 1 for each axis that goes. Axes are doubles here, as all values. */
static struct shape kept_shape(const struct reference_call *c, const double *axes) {
    struct shape s = *c->shapes[0];
    bool is_all = c->shapes[1] == NULL && graph_attr(c->node, "noop_with_empty_axes")->i == 0;
    for (int i = 0; i < s.rank && is_all; i++) {
        s.dim[i] = 1;
    }
    for (int64_t i = 0; axes != NULL && i < c->shapes[1]->dim[0]; i++) {
        s.dim[(int)(axes[i] < 0 ? axes[i] + s.rank : axes[i])] = 1;
    }
    return s;
}

static uint64_t reduced_count(const struct reference_call *c) {
    return reference_count(c->shapes[0]) / reference_count(c->shape);
}

static void add_terms(const struct reference_call *c, double weight) {
    struct shape kept = kept_shape(c, c->in[1]);
    uint64_t n = reference_count(c->shapes[0]);
    for (uint64_t i = 0; i < n; i++) {
        c->out[reference_broadcast(i, c->shapes[0], &kept, 0)] += weight * c->in[0][i];
    }
}

void reference_eval_ReduceSum(const struct reference_call *c) {
    add_terms(c, 1);
}

uint32_t reference_roundings_ReduceSum(const struct reference_call *c, bool accumulate_f16) {
    return reference_sum_roundings(c, reduced_count(c), false);
}

void reference_eval_ReduceMean(const struct reference_call *c) {
    add_terms(c, 1 / (double)reduced_count(c));
}

uint32_t reference_roundings_ReduceMean(const struct reference_call *c, bool accumulate_f16) {
    return reference_sum_roundings(c, reduced_count(c), false) + 1;
}

void reference_eval_ReduceMax(const struct reference_call *c) {
    struct shape kept = kept_shape(c, c->in[1]);
    uint64_t n = reference_count(c->shapes[0]);
    uint64_t results = reference_count(c->shape);
    for (uint64_t i = 0; i < results; i++) {
        c->out[i] = -INFINITY;
    }
    for (uint64_t i = 0; i < n; i++) {
        double *out = &c->out[reference_broadcast(i, c->shapes[0], &kept, 0)];
        *out = c->in[0][i] > *out || isnan(c->in[0][i]) ? c->in[0][i] : *out;
    }
}

uint32_t reference_roundings_ReduceMax(const struct reference_call *c, bool accumulate_f16) {
    return 0;
}
