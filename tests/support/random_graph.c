/* A network grows layer by layer; three streams of text (initialisers, nodes, outputs) are joined
 * at the end. Names of values are v0, v1 ... in order of creation. */
#include "random_graph.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_WIDTH 300
#define MAX_ROWS  48

struct maker {
    uint64_t state; /* SplitMix64 */
    FILE *initializers, *nodes;
    int next; /* value number */
    int initializer_count, node_count;
    int rows, batch; /* batch 0: rank 2 */
};

static uint64_t draw(struct maker *m, uint64_t n) {
    m->state += 0x9e3779b97f4a7c15u;
    uint64_t z = m->state;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (z ^ z >> 31) % n;
}

/* Small, odd, round and large widths alike. */
static int draw_width(struct maker *m) {
    static const int edges[] = {1,  2,  3,  15,  16,  17,  31,  32,  33,  48, 63,
                                64, 65, 96, 127, 128, 129, 255, 256, 257, 300};
    if (draw(m, 3) == 0) {
        return edges[draw(m, sizeof edges / sizeof edges[0])];
    }
    return 1 + (int)draw(m, draw(m, 2) == 0 ? 40 : MAX_WIDTH);
}

static int add_tensor(struct maker *m, const char *shape, double scale, double offset) {
    int id = m->next++;
    const char *kind = draw(m, 4) == 0 ? "uniform" : "normal";
    if (kind[0] == 'u') { /* in [-1.73, 1.73): the same deviation */
        offset -= 1.73 * scale;
        scale *= 3.46;
    }
    fprintf(
        m->initializers,
        "%s\n  {\"name\":\"v%d\",\"dtype\":\"float16\",\"shape\":%s,\"generator\":"
        "{\"kind\":\"%s\",\"seed\":%d,\"scale\":%.9g,\"offset\":%.9g}}",
        m->initializer_count++ > 0 ? "," : "", id, shape, kind, id + 1, scale, offset);
    return id;
}

static int add_node(struct maker *m, const char *op, const char *inputs, const char *attributes) {
    int id = m->next++;
    fprintf(
        m->nodes, "%s\n  {\"op_type\":\"%s\",\"inputs\":[%s],\"outputs\":[\"v%d\"]%s%s}",
        m->node_count++ > 0 ? "," : "", op, inputs, id,
        attributes[0] != '\0' ? ",\"attributes\":" : "", attributes);
    return id;
}

static int add_pair(struct maker *m, int a, int b) {
    char inputs[64];
    int swap = (int)draw(m, 2);
    snprintf(inputs, sizeof inputs, "\"v%d\",\"v%d\"", swap ? b : a, swap ? a : b);
    return add_node(m, "Add", inputs, "");
}

static int add_bias(struct maker *m, int width, int rank_limit) {
    char shape[64];
    switch (draw(m, 4)) {
    case 0: snprintf(shape, sizeof shape, rank_limit >= 2 ? "[1,%d]" : "[%d]", width); break;
    case 1: snprintf(shape, sizeof shape, draw(m, 4) == 0 ? "[1]" : "[%d]", width); break;
    default: snprintf(shape, sizeof shape, "[%d]", width); break;
    }
    return add_tensor(m, shape, 0.5, 0.1);
}

static int add_activation(struct maker *m, int x) {
    char inputs[32];
    snprintf(inputs, sizeof inputs, "\"v%d\"", x);
    switch (draw(m, 7)) {
    case 0: return add_node(m, "Relu", inputs, "");
    case 1: return add_node(m, "Tanh", inputs, "");
    case 2: return add_node(m, "Sigmoid", inputs, "");
    case 3: return add_node(m, "Gelu", inputs, draw(m, 2) == 0 ? "" : "{\"approximate\":\"none\"}");
    case 4: return add_node(m, "Gelu", inputs, "{\"approximate\":\"tanh\"}");
    case 5: return draw(m, 3) == 0 ? add_node(m, "Identity", inputs, "") : x;
    default: return x;
    }
}

/* gain: deviation of the result over that of x, before a bias. */
static int add_product(struct maker *m, int x, int inner, int width, double gain) {
    char shape[64];
    char inputs[96];
    int is_gemm = m->batch == 0 && draw(m, 2) == 0;
    int is_turned = is_gemm && draw(m, 2) == 0;
    snprintf(shape, sizeof shape, "[%d,%d]", is_turned ? width : inner, is_turned ? inner : width);
    int w = add_tensor(m, shape, gain / sqrt(inner), 0);
    if (!is_gemm) {
        snprintf(inputs, sizeof inputs, "\"v%d\",\"v%d\"", x, w);
        int y = add_node(m, "MatMul", inputs, "");
        return draw(m, 4) == 0 ? y : add_pair(m, y, add_bias(m, width, m->batch > 0 ? 3 : 2));
    }
    if (draw(m, 4) == 0) {
        snprintf(inputs, sizeof inputs, "\"v%d\",\"v%d\"", x, w);
    } else {
        snprintf(inputs, sizeof inputs, "\"v%d\",\"v%d\",\"v%d\"", x, w, add_bias(m, width, 2));
    }
    return add_node(m, "Gemm", inputs, is_turned ? "{\"transB\":1}" : "");
}

/* Returns the last value; *ret_hidden is that of the layer before. */
static int add_layers(struct maker *m, int x, int width, int *ret_hidden) {
    int layers = 1 + (int)draw(m, 4);
    int has_softmax = draw(m, 3) == 0;
    *ret_hidden = x;
    for (int i = 0; i < layers; i++) {
        int next = draw(m, 4) == 0 ? width : draw_width(m);
        /* Softmax multiplies the relative error of its operand by the operand's size: what goes
         * into it stays of the order of 1, as D2's tolerance takes for granted. */
        int is_logits = has_softmax && i + 1 == layers;
        int y = add_product(m, x, width, next, is_logits ? 0.25 : 1);
        y = is_logits ? y : add_activation(m, y);
        if (next == width && !is_logits && draw(m, 2) == 0) {
            y = add_pair(m, y, x);
        }
        *ret_hidden = i > 0 ? x : *ret_hidden;
        x = y;
        width = next;
    }
    if (has_softmax) {
        char inputs[32];
        snprintf(inputs, sizeof inputs, "\"v%d\"", x);
        x = add_node(m, "Softmax", inputs, draw(m, 2) == 0 ? "" : "{\"axis\":-1}");
    }
    return x;
}

/* Joins the streams, which are closed by then. */
static char *join(
    const struct maker *m, int width, int out, int hidden, const char *initializers,
    const char *nodes) {
    char shape[64];
    char second[32] = "";
    char *text = NULL;
    if (m->batch > 0) {
        snprintf(shape, sizeof shape, "[%d,%d,%d]", m->batch, m->rows, width);
    } else {
        snprintf(shape, sizeof shape, "[%d,%d]", m->rows, width);
    }
    if (hidden > 0 && hidden != out) {
        snprintf(second, sizeof second, ",\"v%d\"", hidden);
    }
    int n = asprintf(
        &text,
        "{\"inputs\":[{\"name\":\"v0\",\"dtype\":\"float16\",\"shape\":%s,"
        "\"generator\":{\"kind\":\"normal\",\"seed\":1}}],\n\"initializers\":[%s],\n"
        "\"nodes\":[%s],\n\"outputs\":[\"v%d\"%s]}\n",
        shape, initializers, nodes, out, second);
    return n < 0 ? NULL : text;
}

/* A tolerance goes with the mean square of an output: of few elements, that may be small by
 * chance. */
static int draw_wide(struct maker *m) {
    int width = draw_width(m);
    return width < 32 ? width + 32 : width;
}

/* One block of a repeated network; `old`, when not negative, is a value from before all blocks. */
static int add_block(struct maker *m, int x, int width, int old, int shared) {
    char inputs[96];
    int kind = (int)draw(m, 4);
    int y = x;
    if (kind == 0) {
        char shape[32];
        snprintf(shape, sizeof shape, "[%d]", width);
        int scale = add_tensor(m, shape, 0.2, 1), bias = add_tensor(m, shape, 0.2, 0);
        snprintf(inputs, sizeof inputs, "\"v%d\",\"v%d\",\"v%d\"", x, scale, bias);
        y = add_node(m, "LayerNormalization", inputs, "{\"axis\":-1,\"epsilon\":0.001}");
    }
    if (shared >= 0 && draw(m, 2) == 0) {
        y = add_pair(m, y, shared);
    }
    int inner = kind == 1 ? width : draw_width(m);
    y = add_activation(m, add_product(m, y, width, inner, 1));
    y = kind == 1 ? y : add_product(m, y, inner, width, 0.5);
    if (old >= 0 && draw(m, 2) == 0) {
        y = add_pair(m, y, old);
    }
    return kind == 1 && draw(m, 2) == 0 ? y : add_pair(m, y, x);
}

/* Blocks are made with the same draws; their tensors differ by their seeds. */
static int add_blocks(struct maker *m, int width) {
    int x = draw(m, 2) == 0 ? 0 : add_product(m, 0, width, width, 1);
    int old = draw(m, 3) == 0 ? x : -1, shared = -1;
    if (draw(m, 3) == 0) {
        char shape[32];
        snprintf(shape, sizeof shape, "[%d]", width);
        shared = add_tensor(m, shape, 0.5, 0.1);
    }
    int turns = 2 + (int)draw(m, 5);
    uint64_t state = m->state;
    for (int i = 0; i < turns; i++) {
        m->state = state;
        x = add_block(m, x, width, old, shared);
    }
    return draw(m, 2) == 0 ? add_product(m, x, width, draw_wide(m), 0.5) : x;
}

static char *make(uint64_t seed, int is_repeated) {
    struct maker m = {.state = seed, .next = 1};
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
    int width = is_repeated ? draw_wide(&m) : draw_width(&m);
    m.rows = draw(&m, 3) == 0 ? 1 : 1 + (int)draw(&m, MAX_ROWS);
    if (draw(&m, 4) == 0) {
        m.batch = 1 + (int)draw(&m, 4);
        m.rows = 1 + (m.rows - 1) / 4;
    }
    int hidden = 0;
    int out = is_repeated ? add_blocks(&m, width) : add_layers(&m, 0, width, &hidden);
    int is_failed = ferror(m.initializers) || ferror(m.nodes);
    is_failed |= fclose(m.initializers) != 0;
    is_failed |= fclose(m.nodes) != 0;
    int shown = draw(&m, 8) == 0 ? hidden : 0;
    char *text = is_failed ? NULL : join(&m, width, out, shown, initializers, nodes);
    free(initializers);
    free(nodes);
    return text;
}

char *random_graph_json(uint64_t seed) {
    return make(seed, 0);
}

char *random_graph_repeated_json(uint64_t seed) {
    return make(seed, 1);
}
