/* The second mode of random_graph.h. A pool of values grows block by block; each value remembers
 * what may be done with it. Two streams of text (initialisers, nodes) are joined at the end. */
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "random_graph.h"

#define MAX_VALUES   160
#define MAX_RANK     5
#define MAX_ELEMENTS 6000
#define MIN_ELEMENTS 32
#define MIN_INNER    16 /* products of shorter rows may vanish, and grow when they are normalised */

enum kind {
    SPREAD,   /* mean near 0, varies along the last axis, in every row */
    POSITIVE, /* in [0.75, 1.75] */
    PLAIN     /* neither is promised */
};

struct val {
    int id, rank, dim[MAX_RANK];
    bool is_single; /* float32 */
    enum kind kind;
    double rms; /* about */
};

struct maker {
    uint64_t state; /* SplitMix64 */
    FILE *initializers, *nodes;
    int next; /* value number */
    int initializer_count, node_count;
    struct val pool[MAX_VALUES];
    int count;
};

static uint64_t draw(struct maker *m, uint64_t n) {
    m->state += 0x9e3779b97f4a7c15u;
    uint64_t z = m->state;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (z ^ z >> 31) % n;
}

static int draw_size(struct maker *m) {
    static const int sizes[] = {1, 2, 3, 4, 5, 7, 8, 11, 13, 16, 17, 24, 31, 32, 37, 48, 61};
    return sizes[draw(m, sizeof sizes / sizeof sizes[0])];
}

static int elements(const struct val *v) {
    int n = 1;
    for (int i = 0; i < v->rank; i++) {
        n *= v->dim[i];
    }
    return n;
}

static int last(const struct val *v) {
    return v->dim[v->rank - 1];
}

static struct val shaped(const struct val *like, int rank, ...) {
    struct val v = *like;
    va_list ap;
    va_start(ap, rank);
    v.rank = rank;
    for (int i = 0; i < rank; i++) {
        v.dim[i] = va_arg(ap, int);
    }
    va_end(ap);
    return v;
}

static void print_shape(FILE *out, const struct val *v) {
    fputc('[', out);
    for (int i = 0; i < v->rank; i++) {
        fprintf(out, "%s%d", i > 0 ? "," : "", v->dim[i]);
    }
    fputc(']', out);
}

/* ---- Tensors ------------------------------------------------------------------------------ */

/* Opens an initialiser of v's shape and type and gives v its number. */
static void begin_tensor(struct maker *m, struct val *v, const char *type) {
    v->id = m->next++;
    fprintf(
        m->initializers, "%s\n  {\"name\":\"v%d\",\"dtype\":\"%s\",\"shape\":",
        m->initializer_count++ > 0 ? "," : "", v->id, type);
    print_shape(m->initializers, v);
}

static const char *type_of(const struct val *v) {
    return v->is_single ? "float32" : "float16";
}

static struct val add_normal(struct maker *m, struct val v, double scale) {
    begin_tensor(m, &v, type_of(&v));
    fprintf(
        m->initializers, ",\"generator\":{\"kind\":\"normal\",\"seed\":%d,\"scale\":%.9g}}", v.id,
        scale);
    v.kind = SPREAD;
    v.rms = scale;
    return v;
}

static struct val add_positive(struct maker *m, struct val v) {
    begin_tensor(m, &v, type_of(&v));
    fprintf(
        m->initializers, ",\"generator\":{\"kind\":\"uniform\",\"seed\":%d,\"offset\":0.75}}",
        v.id);
    v.kind = POSITIVE;
    v.rms = 1.3;
    return v;
}

static int add_scalar(struct maker *m, const struct val *like, double value) {
    struct val v = {.is_single = like->is_single};
    begin_tensor(m, &v, type_of(&v));
    fprintf(m->initializers, ",\"values\":[%.9g]}", value);
    return v.id;
}

static int add_ints(struct maker *m, int count, const int *values) {
    struct val v = {.rank = 1, .dim = {count}};
    begin_tensor(m, &v, "int64");
    fprintf(m->initializers, ",\"values\":[");
    for (int i = 0; i < count; i++) {
        fprintf(m->initializers, "%s%d", i > 0 ? "," : "", values[i]);
    }
    fprintf(m->initializers, "]}");
    return v.id;
}

/* A shape that broadcasts to v: leading axes missing, some of 1. */
static struct val draw_narrow(struct maker *m, const struct val *v) {
    struct val s = *v;
    int gone = (int)draw(m, (uint64_t)v->rank + 1);
    s.rank = v->rank - gone;
    for (int i = 0; i < s.rank; i++) {
        s.dim[i] = draw(m, 3) == 0 ? 1 : v->dim[i + gone];
    }
    return s;
}

/* Scalars enter the key and cannot be random: they get an axis. */
static struct val draw_operand(struct maker *m, const struct val *v) {
    struct val s = draw_narrow(m, v);
    return s.rank > 0 ? s : shaped(v, 1, draw(m, 2) == 0 ? 1 : last(v));
}

/* ---- Nodes -------------------------------------------------------------------------------- */

/* Writes a node; result_count results get consecutive numbers, the first is returned. */
static int add_nodes(
    struct maker *m, const char *op, int count, const int *inputs, int result_count,
    const char *attributes) {
    fprintf(m->nodes, "%s\n  {\"op_type\":\"%s\",\"inputs\":[", m->node_count++ > 0 ? "," : "", op);
    for (int i = 0; i < count; i++) {
        fprintf(m->nodes, "%s\"v%d\"", i > 0 ? "," : "", inputs[i]);
    }
    fprintf(m->nodes, "],\"outputs\":[");
    for (int i = 0; i < result_count; i++) {
        fprintf(m->nodes, "%s\"v%d\"", i > 0 ? "," : "", m->next + i);
    }
    fprintf(m->nodes, "],\"attributes\":{%s}}", attributes);
    m->next += result_count;
    return m->next - result_count;
}

/* One result that looks like v. */
static struct val
add_node(struct maker *m, struct val v, const char *op, int a, int b, const char *attributes) {
    int inputs[2] = {a, b};
    v.id = add_nodes(m, op, b < 0 ? 1 : 2, inputs, 1, attributes);
    return v;
}

static struct val as(struct val v, enum kind kind, double rms) {
    v.kind = kind;
    v.rms = rms;
    return v;
}

static struct val reshape(struct maker *m, const struct val *v, struct val to) {
    int sizes[MAX_RANK];
    int from = (int)draw(m, (uint64_t)to.rank + 2);
    for (int i = 0; i < to.rank; i++) { /* one axis may be left to be found */
        sizes[i] = i == from ? -1 : to.dim[i];
    }
    to = as(to, v->kind == POSITIVE ? POSITIVE : PLAIN, v->rms);
    to.is_single = v->is_single;
    return add_node(m, to, "Reshape", v->id, add_ints(m, to.rank, sizes), "");
}

static struct val transpose(struct maker *m, const struct val *v, const int *perm) {
    char text[80] = "\"perm\":[";
    struct val y = as(*v, v->kind == POSITIVE ? POSITIVE : PLAIN, v->rms);
    for (int i = 0; i < v->rank; i++) {
        y.dim[i] = v->dim[perm[i]];
        snprintf(
            text + strlen(text), sizeof text - strlen(text), "%s%d", i > 0 ? "," : "", perm[i]);
    }
    strcat(text, "]");
    return add_node(m, y, "Transpose", v->id, -1, text);
}

/* ---- Blocks: each makes one value of a value, or gives it back ------------------------------- */

static struct val linear(struct maker *m, const struct val *x, int width) {
    double rms = fmin(fmax(x->rms, 0.01), 100);
    struct val w = shaped(x, 2, last(x), width);
    if (x->rank == 3 && draw(m, 6) == 0 && x->dim[0] * last(x) * width <= MAX_ELEMENTS) {
        w = shaped(x, 3, x->dim[0], last(x), width); /* weights of its own for each batch */
    }
    w = add_normal(m, w, 1 / (sqrt(last(x)) * rms));
    struct val y = *x;
    y.dim[y.rank - 1] = width;
    y = add_node(m, as(y, last(x) < MIN_INNER ? PLAIN : SPREAD, 1), "MatMul", x->id, w.id, "");
    if (draw(m, 3) == 0) {
        return y;
    }
    struct val b = add_normal(m, draw(m, 4) == 0 ? draw_operand(m, &y) : shaped(x, 1, width), 0.4);
    bool swap = draw(m, 2) == 0;
    return add_node(m, y, "Add", swap ? b.id : y.id, swap ? y.id : b.id, "");
}

static struct val gemm(struct maker *m, const struct val *x) {
    int width = draw_size(m);
    if (x->rank != 2 || x->dim[0] * width < MIN_ELEMENTS) {
        return *x;
    }
    bool turn_a = draw(m, 3) == 0;
    bool turn_b = draw(m, 2) == 0;
    bool is_scaled = draw(m, 3) == 0;
    char text[120];
    struct val left = *x;
    if (turn_a) {
        left = transpose(m, x, (const int[]){1, 0});
    }
    double rms = fmin(fmax(x->rms, 0.01), 100);
    struct val w = turn_b ? shaped(x, 2, width, last(x)) : shaped(x, 2, last(x), width);
    w = add_normal(m, w, 1 / (sqrt(last(x)) * rms));
    struct val y = shaped(x, 2, x->dim[0], width);
    struct val c = add_normal(m, draw_operand(m, &y), 0.4);
    snprintf(
        text, sizeof text, "\"transA\":%d,\"transB\":%d%s", turn_a, turn_b,
        is_scaled ? ",\"alpha\":0.75,\"beta\":-1.5" : "");
    int inputs[3] = {left.id, w.id, c.id};
    y.id = add_nodes(m, "Gemm", draw(m, 4) == 0 ? 2 : 3, inputs, 1, text);
    return as(y, last(x) < MIN_INNER ? PLAIN : SPREAD, 1);
}

static struct val activation(struct maker *m, const struct val *x) {
    static const char *const names[] = {"Relu", "Tanh", "Sigmoid", "Gelu",
                                        "Gelu", "Neg",  "Identity"};
    uint64_t which = draw(m, 7);
    if (x->rms < 0.1 || x->rms > 3) {
        return *x;
    }
    if (which == 0 && x->kind != SPREAD) {
        which = 1; /* a Relu must not cut off nearly everything */
    }
    bool is_linear = which >= 5;
    struct val y = add_node(
        m, as(*x, PLAIN, x->rms), names[which], x->id, -1,
        which == 4 ? "\"approximate\":\"tanh\"" : "");
    return is_linear && x->kind == SPREAD ? as(y, SPREAD, x->rms) : y;
}

static struct val norm(struct maker *m, const struct val *x) {
    if (x->kind != SPREAD || last(x) < MIN_INNER || x->rms < 0.05) {
        return *x;
    }
    struct val scale =
        add_positive(m, draw(m, 3) == 0 ? draw_operand(m, x) : shaped(x, 1, last(x)));
    struct val bias = add_normal(m, shaped(x, 1, last(x)), 0.2);
    int inputs[3] = {x->id, scale.id, bias.id};
    struct val y = *x;
    y.id = add_nodes(
        m, "LayerNormalization", draw(m, 3) == 0 ? 2 : 3, inputs, 1,
        draw(m, 2) == 0 ? "\"epsilon\":1e-6" : "");
    return as(y, SPREAD, 1.3);
}

/* Of values in reach of 1: the largest of a hundred quotients stays near the others. */
static struct val softmax(struct maker *m, const struct val *x) {
    char text[40];
    int axis = draw(m, 3) == 0 ? (int)draw(m, (uint64_t)x->rank) : x->rank - 1;
    struct val y = x->rms > 0.7 ? add_node(m, *x, "Tanh", x->id, -1, "") : *x;
    snprintf(text, sizeof text, "\"axis\":%d", draw(m, 2) == 0 ? axis : axis - x->rank);
    return add_node(m, as(y, PLAIN, 1.2 / x->dim[axis]), "Softmax", y.id, -1, text);
}

/* In [0.75, 1.75]. */
static struct val positive(struct maker *m, const struct val *x) {
    if (x->kind == POSITIVE) {
        return *x;
    }
    struct val y = add_node(m, *x, "Sigmoid", x->id, -1, "");
    return add_node(m, as(y, POSITIVE, 1.3), "Add", y.id, add_scalar(m, x, 0.75), "");
}

static struct val power(struct maker *m, const struct val *x) {
    static const double exponents[] = {0.5, 2, 3, -1, 1.5};
    double exponent = exponents[draw(m, 5)];
    struct val p = positive(m, x);
    if (draw(m, 2) == 0) {
        int e = add_scalar(m, x, exponent);
        return add_node(m, as(p, PLAIN, 1.5), "Pow", p.id, e, "");
    }
    struct val e = shaped(x, 1, last(x));
    begin_tensor(m, &e, type_of(&e));
    fprintf(m->initializers, ",\"values\":[");
    for (int i = 0; i < last(x); i++) {
        fprintf(m->initializers, "%s%g", i > 0 ? "," : "", exponents[(i + e.id) % 5]);
    }
    fprintf(m->initializers, "]}");
    return add_node(m, as(p, PLAIN, 1.5), "Pow", p.id, e.id, "");
}

/* What needs a positive or a bounded operand. */
static struct val bounded(struct maker *m, const struct val *x) {
    struct val p = *x;
    switch (draw(m, 5)) {
    case 0: p = positive(m, x); return add_node(m, as(p, PLAIN, 1.1), "Sqrt", p.id, -1, "");
    case 1: p = positive(m, x); return add_node(m, as(p, PLAIN, 0.9), "Reciprocal", p.id, -1, "");
    case 2:
        p = add_node(m, p, "Tanh", x->id, -1, "");
        return add_node(m, as(p, PLAIN, 1.3), "Exp", p.id, -1, "");
    case 3:
        p = positive(m, x);
        if (x->rms > 4) {
            return p;
        }
        return add_node(m, as(*x, PLAIN, x->rms), "Div", x->id, p.id, "");
    default: return power(m, x);
    }
}

/* A parameter, or a part of a larger one. */
static struct val fresh(struct maker *m, struct val v, bool is_positive, double scale) {
    int axis = (int)draw(m, (uint64_t)v.rank), size = v.dim[axis];
    int start = draw(m, 4) == 0 ? (int)draw(m, 4) : -1;
    if (start < 0) {
        return is_positive ? add_positive(m, v) : add_normal(m, v, scale);
    }
    v.dim[axis] += start + (int)draw(m, 3);
    struct val whole = is_positive ? add_positive(m, v) : add_normal(m, v, scale);
    int end = start + size;
    int inputs[4] = {whole.id, add_ints(m, 1, &start), add_ints(m, 1, &end), add_ints(m, 1, &axis)};
    v = whole;
    v.dim[axis] = size;
    v.id = add_nodes(m, "Slice", 4, inputs, 1, "");
    return v;
}

/* With one or more fresh operands, which may be wider than a row or have one element. */
static struct val with_fresh(struct maker *m, const struct val *x) {
    static const char *const names[] = {"Add", "Sub", "Mul", "Div", "Max", "Min"};
    uint64_t which = draw(m, 6);
    double rms = fmin(fmax(x->rms, 0.05), 4);
    struct val b = fresh(m, draw_operand(m, x), which == 2 || which == 3, 0.7 * rms);
    struct val y = as(*x, which <= 1 && x->kind == SPREAD ? SPREAD : PLAIN, 1.2 * x->rms);
    if (which >= 4 && draw(m, 2) == 0) {
        struct val c = add_normal(m, draw_operand(m, x), 0.7 * rms);
        int inputs[4] = {b.id, x->id, c.id, x->id};
        y.id = add_nodes(m, names[which], 3 + (int)draw(m, 2), inputs, 1, "");
        return y;
    }
    bool swap = which != 3 && draw(m, 2) == 0;
    return add_node(m, y, names[which], swap ? b.id : x->id, swap ? x->id : b.id, "");
}

/* Both operands are the same value, or one is made of the other. */
static struct val doubled(struct maker *m, const struct val *x) {
    uint64_t which = draw(m, 3);
    if (x->rms > 3) {
        return *x;
    }
    if (which == 0) {
        return add_node(m, as(*x, PLAIN, 2 * x->rms), "Add", x->id, x->id, "");
    }
    if (which == 1) {
        return add_node(m, as(*x, PLAIN, x->rms), "Max", x->id, x->id, "");
    }
    struct val gate = add_node(m, *x, "Sigmoid", x->id, -1, "");
    return add_node(m, as(*x, PLAIN, 0.6 * x->rms), "Mul", x->id, gate.id, "");
}

/* Sums of values of both signs need many results: a single one may be near 0. */
static struct val reduce(struct maker *m, const struct val *x) {
    static const char *const names[] = {"ReduceMean", "ReduceSum", "ReduceMax"};
    uint64_t which = draw(m, 3);
    bool is_kept = draw(m, 2) == 0;
    int axes[MAX_RANK];
    int count = 0;
    struct val y = as(*x, PLAIN, x->rms);
    y.rank = 0;
    int gone = 1;
    for (int i = 0; i < x->rank; i++) {
        bool goes = draw(m, 2) == 0;
        gone *= goes ? x->dim[i] : 1;
        if (goes) {
            axes[count++] = draw(m, 2) == 0 ? i : i - x->rank;
        }
        if (!goes || is_kept) {
            y.dim[y.rank++] = goes ? 1 : x->dim[i];
        }
    }
    if (count == 0 || y.rank == 0 || elements(&y) < MIN_ELEMENTS || gone > 500) {
        return *x;
    }
    y.rms = which == 0   ? x->rms / (x->kind == SPREAD ? sqrt(gone) : 1)
            : which == 1 ? x->rms * (x->kind == SPREAD ? sqrt(gone) : gone)
                         : x->rms * 2;
    return add_node(
        m, y, names[which], x->id, add_ints(m, count, axes), is_kept ? "" : "\"keepdims\":0");
}

/* [batch, rows, heads * size] -> [batch, heads, rows, size] */
static struct val split_heads(struct maker *m, const struct val *x, int heads) {
    struct val y = reshape(m, x, shaped(x, 4, x->dim[0], x->dim[1], heads, last(x) / heads));
    return transpose(m, &y, (const int[]){0, 2, 1, 3});
}

static struct val attention(struct maker *m, const struct val *x) {
    static const int counts[] = {1, 2, 3};
    int kv_heads = counts[draw(m, 3)];
    int heads = kv_heads * (draw(m, 4) == 0 ? 2 : 1);
    int size = 3 + (int)draw(m, 14);
    char text[80];
    if (x->rank != 3 || last(x) < MIN_INNER ||
        x->dim[0] * x->dim[1] * heads * size > MAX_ELEMENTS) {
        return *x;
    }
    struct val q = draw(m, 4) != 0
                       ? linear(m, x, heads * size)
                       : add_normal(
                             m, shaped(x, 3, x->dim[0], 1 + (int)draw(m, 7), heads * size),
                             1); /* asked by constants */
    struct val k = heads == kv_heads && q.dim[1] == x->dim[1] && draw(m, 4) == 0
                       ? q /* one value for both, or for all three */
                       : linear(m, x, kv_heads * size);
    struct val v = k.id == q.id && draw(m, 2) == 0 ? q : linear(m, x, kv_heads * size);
    struct val y = as(q, PLAIN, 0.5);
    if (elements(&y) < MIN_ELEMENTS) {
        return *x;
    }
    if (draw(m, 2) == 0) {
        snprintf(text, sizeof text, "\"q_num_heads\":%d,\"kv_num_heads\":%d", heads, kv_heads);
        y.id = add_nodes(m, "Attention", 3, (const int[]){q.id, k.id, v.id}, 1, text);
        return y;
    }
    int rows = q.dim[1];
    q = split_heads(m, &q, heads);
    k = split_heads(m, &k, kv_heads);
    v = split_heads(m, &v, kv_heads);
    snprintf(text, sizeof text, draw(m, 2) == 0 ? "" : "\"scale\":%.6g", 0.8 / sqrt(size));
    y = as(q, PLAIN, 0.5);
    y.id = add_nodes(m, "Attention", 3, (const int[]){q.id, k.id, v.id}, 1, text);
    y = transpose(m, &y, (const int[]){0, 2, 1, 3});
    return reshape(m, &y, shaped(&y, 3, x->dim[0], rows, heads * size));
}

/* A matrix times its own transpose. */
static struct val scores(struct maker *m, const struct val *x) {
    int perm[MAX_RANK] = {0, 1, 2, 3, 4};
    if (x->rank < 2 || last(x) < MIN_INNER || x->rms > 2) {
        return *x;
    }
    int rows = x->dim[x->rank - 2];
    struct val y = *x;
    y.dim[y.rank - 1] = rows;
    if (elements(&y) < MIN_ELEMENTS || elements(&y) > MAX_ELEMENTS) {
        return *x;
    }
    perm[x->rank - 2] = x->rank - 1;
    perm[x->rank - 1] = x->rank - 2;
    struct val t = transpose(m, x, perm);
    double grown = x->rms * x->rms * last(x);
    return add_node(m, as(y, PLAIN, grown), "MatMul", x->id, t.id, "");
}

/* ---- Moves -------------------------------------------------------------------------------- */

static struct val flatten(struct maker *m, const struct val *x) {
    int at = (int)draw(m, (uint64_t)x->rank);
    struct val y = *x;
    if (at + 1 < x->rank && draw(m, 2) == 0) { /* two axes become one */
        y.rank--;
        y.dim[at] = x->dim[at] * x->dim[at + 1];
        memmove(y.dim + at + 1, x->dim + at + 2, (size_t)(y.rank - at - 1) * sizeof *y.dim);
        return reshape(m, x, y);
    }
    for (int part = 2; part <= 7 && x->rank < MAX_RANK; part++) { /* one becomes two */
        if (x->dim[at] % part == 0) {
            y.rank++;
            memmove(y.dim + at + 1, x->dim + at, (size_t)(x->rank - at) * sizeof *y.dim);
            y.dim[at] = part;
            y.dim[at + 1] = x->dim[at] / part;
            return reshape(m, x, y);
        }
    }
    return *x;
}

static struct val shuffle(struct maker *m, const struct val *x) {
    int perm[MAX_RANK];
    for (int i = 0; i < x->rank; i++) {
        int k = (int)draw(m, (uint64_t)i + 1);
        perm[i] = perm[k];
        perm[k] = i;
    }
    return transpose(m, x, perm);
}

static struct val squeeze(struct maker *m, const struct val *x) {
    int at = (int)draw(m, (uint64_t)x->rank);
    struct val y = *x;
    if (x->dim[at] == 1 && x->rank > 1) {
        y.rank--;
        memmove(y.dim + at, x->dim + at + 1, (size_t)(y.rank - at) * sizeof *y.dim);
        int axis = draw(m, 2) == 0 ? at : at - x->rank;
        return add_node(m, as(y, PLAIN, x->rms), "Squeeze", x->id, add_ints(m, 1, &axis), "");
    }
    if (x->rank == MAX_RANK) {
        return *x;
    }
    y.rank++;
    memmove(y.dim + at + 1, x->dim + at, (size_t)(x->rank - at) * sizeof *y.dim);
    y.dim[at] = 1;
    return add_node(m, as(y, PLAIN, x->rms), "Unsqueeze", x->id, add_ints(m, 1, &at), "");
}

static struct val slice(struct maker *m, const struct val *x) {
    int axis = (int)draw(m, (uint64_t)x->rank);
    int size = x->dim[axis];
    int step = 1 + (int)draw(m, 3);
    int start = (int)draw(m, (uint64_t)(size + 1) / 2);
    int end = size - (int)draw(m, (uint64_t)(size - start + 3) / 4);
    struct val y = as(*x, PLAIN, x->rms);
    y.dim[axis] = (end - start + step - 1) / step;
    if (elements(&y) < MIN_ELEMENTS) {
        return *x;
    }
    if (draw(m, 3) == 0) { /* the same elements, last one first */
        int first = start + (y.dim[axis] - 1) * step;
        int before = start - 1 < 0 ? -size - 1 : start - 1;
        int back[3] = {first, before, -step};
        int inputs[5] = {
            x->id, add_ints(m, 1, &back[0]), add_ints(m, 1, &back[1]), add_ints(m, 1, &axis),
            add_ints(m, 1, &back[2])};
        y.id = add_nodes(m, "Slice", 5, inputs, 1, "");
        return y;
    }
    int told = draw(m, 2) == 0 ? axis : axis - x->rank;
    int inputs[5] = {
        x->id, add_ints(m, 1, &start), add_ints(m, 1, &end), add_ints(m, 1, &told),
        add_ints(m, 1, &step)};
    y.id = add_nodes(m, "Slice", step == 1 && draw(m, 2) == 0 ? 4 : 5, inputs, 1, "");
    return y;
}

/* Split in two or three, joined in another order, perhaps with a fresh part or a part twice. */
static struct val split_concat(struct maker *m, const struct val *x) {
    int axis = (int)draw(m, (uint64_t)x->rank);
    int parts = 2 + (int)draw(m, 2);
    char text[60];
    int sizes[3] = {0};
    if (x->dim[axis] < 5 || 2 * elements(x) > MAX_ELEMENTS) {
        return *x;
    }
    snprintf(text, sizeof text, "\"axis\":%d", axis - x->rank);
    int first;
    if (draw(m, 2) == 0) {
        int part = (x->dim[axis] + parts - 1) / parts;
        for (int i = 0; i < parts; i++) {
            sizes[i] = i + 1 < parts ? part : x->dim[axis] - part * (parts - 1);
        }
        if (sizes[parts - 1] < 1) {
            return *x;
        }
        snprintf(text + strlen(text), sizeof text - strlen(text), ",\"num_outputs\":%d", parts);
        first = add_nodes(m, "Split", 1, &x->id, parts, text);
    } else {
        sizes[0] = 1 + (int)draw(m, (uint64_t)x->dim[axis] - 3);
        sizes[1] = parts == 2 ? x->dim[axis] - sizes[0] : 1;
        sizes[2] = x->dim[axis] - sizes[0] - sizes[1];
        int inputs[2] = {x->id, add_ints(m, parts, sizes)};
        first = add_nodes(m, "Split", 2, inputs, parts, text);
    }
    struct val fresh = *x;
    fresh.dim[axis] = draw_size(m) % 5 + 1;
    fresh = add_normal(m, fresh, x->rms);
    int joined[4] = {first + 1, first, fresh.id, first + 1};
    int count = 2 + (int)draw(m, 3);
    struct val y = as(*x, PLAIN, x->rms);
    y.dim[axis] =
        sizes[1] + sizes[0] + (count > 2 ? fresh.dim[axis] : 0) + (count > 3 ? sizes[1] : 0);
    if (elements(&y) < MIN_ELEMENTS) {
        return *x;
    }
    snprintf(text, sizeof text, "\"axis\":%d", axis);
    y.id = add_nodes(m, "Concat", count, joined, 1, text);
    return y;
}

static struct val gather(struct maker *m, const struct val *x) {
    int axis = (int)draw(m, (uint64_t)x->rank);
    int count = 1 + (int)draw(m, 9);
    int places[9];
    char text[40];
    struct val y = as(*x, PLAIN, x->rms);
    y.dim[axis] = count;
    if (elements(&y) < MIN_ELEMENTS || elements(&y) > MAX_ELEMENTS) {
        return *x;
    }
    for (int i = 0; i < count; i++) {
        places[i] = (int)draw(m, 2 * (uint64_t)x->dim[axis]) - x->dim[axis];
    }
    snprintf(text, sizeof text, "\"axis\":%d", axis);
    return add_node(m, y, "Gather", x->id, add_ints(m, count, places), text);
}

static struct val move(struct maker *m, const struct val *x) {
    switch (draw(m, 6)) {
    case 0: return flatten(m, x);
    case 1: return shuffle(m, x);
    case 2: return squeeze(m, x);
    case 3: return slice(m, x);
    case 4: return split_concat(m, x);
    default: return gather(m, x);
    }
}

/* ---- Growth ------------------------------------------------------------------------------- */

static struct val cast(struct maker *m, const struct val *x) {
    struct val y = *x;
    y.is_single = !x->is_single;
    return add_node(m, y, "Cast", x->id, -1, y.is_single ? "\"to\":1" : "\"to\":10");
}

/* The layer of a transformer or of a perceptron, 1 to 3 times. */
static struct val repeated(struct maker *m, const struct val *x) {
    int times = 1 + (int)draw(m, 3);
    int hidden = 4 + draw_size(m);
    bool has_norm = draw(m, 2) == 0, has_scalar = draw(m, 3) == 0, is_equal = draw(m, 2) == 0;
    struct val y = *x;
    if (elements(x) / last(x) * hidden > MAX_ELEMENTS) {
        return y;
    }
    for (int i = 0; i < times; i++) {
        struct val h = has_norm ? norm(m, &y) : y;
        h = linear(m, &h, hidden);
        if (has_scalar) {
            int shift = add_scalar(m, &h, is_equal ? 0.25 : 0.25 + 0.125 * i);
            h = add_node(m, h, "Add", h.id, shift, "");
        }
        h = add_node(m, as(h, PLAIN, 0.7), "Gelu", h.id, -1, "\"approximate\":\"tanh\"");
        h = linear(m, &h, last(&y));
        y = add_node(m, as(y, h.kind, sqrt(y.rms * y.rms + 1)), "Add", y.id, h.id, "");
    }
    return y;
}

static struct val block(struct maker *m, const struct val *x) {
    if (x->rms < 0.05 || x->rms > 6) { /* brought back to 1 */
        return linear(m, x, last(x));
    }
    switch (draw(m, 14)) {
    case 0: return gemm(m, x);
    case 1: {
        int width = draw_size(m);
        int n = elements(x) / last(x) * width;
        return n < MIN_ELEMENTS || n > MAX_ELEMENTS ? *x : linear(m, x, width);
    }
    case 2: return activation(m, x);
    case 3: return norm(m, x);
    case 4: return softmax(m, x);
    case 5: return bounded(m, x);
    case 6: return with_fresh(m, x);
    case 7: return draw(m, 3) == 0 ? doubled(m, x) : scores(m, x);
    case 8: return reduce(m, x);
    case 9: return attention(m, x);
    case 10: return repeated(m, x);
    case 11: return draw(m, 2) == 0 || x->is_single ? cast(m, x) : *x;
    default: return move(m, x);
    }
}

/* The input, and what it becomes first. */
static struct val start(struct maker *m, struct val *ret_input) {
    struct val x = {.id = m->next++, .rms = 1, .kind = SPREAD};
    if (draw(m, 5) != 0) {
        int batch = 1 + (int)draw(m, 3);
        int rows = draw_size(m);
        int width = draw_size(m) + (rows < MIN_ELEMENTS ? MIN_ELEMENTS / rows : 0);
        x = draw(m, 2) == 0 ? shaped(&x, 2, rows, width) : shaped(&x, 3, batch, rows, width);
        *ret_input = x;
        return x;
    }
    int channels = 1 + (int)draw(m, 3);
    int high = 1 + (int)draw(m, 4);
    int wide = 1 + (int)draw(m, 5);
    int down = 1 + (int)draw(m, 4);
    int across = 1 + (int)draw(m, 3);
    int width = MIN_ELEMENTS + draw_size(m);
    char text[60];
    x = shaped(&x, 4, 1 + (int)draw(m, 2), channels, high * down, wide * across);
    *ret_input = x;
    struct val w =
        add_normal(m, shaped(&x, 4, width, channels, high, wide), 1 / sqrt(channels * high * wide));
    struct val b = add_normal(m, shaped(&x, 1, width), 0.3);
    int inputs[3] = {x.id, w.id, b.id};
    struct val y = shaped(&x, 4, x.dim[0], width, down, across);
    snprintf(text, sizeof text, "\"strides\":[%d,%d]", high, wide);
    y.id = add_nodes(m, "Conv", 2 + (int)draw(m, 2), inputs, 1, text);
    if (draw(m, 3) == 0) { /* channels first */
        return as(y, PLAIN, 1);
    }
    struct val t = reshape(m, &y, shaped(&y, 3, x.dim[0], width, down * across));
    t = transpose(m, &t, (const int[]){0, 2, 1});
    return as(t, channels * high * wide < MIN_INNER ? PLAIN : SPREAD, 1); /* channels last */
}

static void grow(struct maker *m, struct val x) {
    int blocks = 3 + (int)draw(m, 10);
    m->pool[m->count++] = x;
    for (int i = 0; i < blocks; i++) {
        int at = draw(m, 5) == 0 ? (int)draw(m, (uint64_t)m->count) : m->count - 1;
        struct val from = m->pool[at];
        if (draw(m, 30) == 0 && from.rms < 6) { /* of a parameter alone */
            from = add_normal(m, from, 1);
        }
        struct val y = block(m, &from);
        if (y.id != from.id && m->count < MAX_VALUES) {
            m->pool[m->count++] = y;
        }
    }
    if (m->pool[m->count - 1].id == x.id) { /* nothing fitted: an output must be a result */
        m->pool[m->count++] = linear(m, &x, MIN_ELEMENTS + 1);
    }
}

/* Joins the streams, which are closed by then. */
static char *
join(struct maker *m, const struct val *input, const char *initializers, const char *nodes) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL) {
        return NULL;
    }
    fprintf(out, "{\"inputs\":[{\"name\":\"v%d\",\"dtype\":\"float16\",\"shape\":", input->id);
    print_shape(out, input);
    fprintf(
        out,
        ",\"generator\":{\"kind\":\"normal\",\"seed\":1}}],\n\"initializers\":[%s],\n"
        "\"nodes\":[%s],\n\"outputs\":[\"v%d\"",
        initializers, nodes, m->pool[m->count - 1].id);
    int more = draw(m, 3) == 0 ? 1 + (int)draw(m, 2) : 0;
    for (int i = 0; i < more && i + 2 < m->count; i++) { /* pool[0] may be the input */
        fprintf(out, ",\"v%d\"", m->pool[m->count - 2 - i].id);
    }
    fprintf(out, "]}\n");
    bool is_failed = ferror(out);
    is_failed |= fclose(out) != 0;
    if (is_failed) {
        free(text);
        return NULL;
    }
    return text;
}

char *random_graph_all_json(uint64_t seed) {
    struct maker m = {.state = seed};
    char *initializers = NULL;
    char *nodes = NULL;
    size_t sizes[2];
    m.initializers = open_memstream(&initializers, &sizes[0]);
    m.nodes = open_memstream(&nodes, &sizes[1]);
    if (m.initializers == NULL || m.nodes == NULL) {
        if (m.initializers != NULL) {
            fclose(m.initializers);
        }
        free(initializers);
        return NULL;
    }
    struct val input;
    grow(&m, start(&m, &input));
    bool is_failed = ferror(m.initializers) || ferror(m.nodes);
    is_failed |= fclose(m.initializers) != 0;
    is_failed |= fclose(m.nodes) != 0;
    char *text = is_failed ? NULL : join(&m, &input, initializers, nodes);
    free(initializers);
    free(nodes);
    return text;
}
