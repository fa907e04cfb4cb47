/* Attributes of nodes: checked against op.def, completed with defaults. A default that follows
 * from the operands is written out too, so that a model that spells it gets the same key. */
#include <math.h>
#include <string.h>

#include "graph/graph_internal.h"

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

static int
check_int(const struct op_attr *row, const struct graph_attr *attr, int rank, struct err *err) {
    int64_t min = row->is_axis ? -rank : row->min;
    int64_t max = row->is_axis ? rank - 1 : row->max;
    if (row->is_axis && rank == 0) {
        return err_set(err, ERR_SHAPE, "attribute '%s': the operand [] has no axis", row->name);
    }
    if (attr->i == row->i && !row->is_axis) {
        return 0; /* a default may say "not given" and lie outside */
    }
    if (attr->i < min || attr->i > max) {
        return err_set(
            err, ERR_BAD_GRAPH, "attribute '%s' is %lld, allowed is %lld to %lld", row->name,
            (long long)attr->i, (long long)min, (long long)max);
    }
    return 0;
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
    if (row->kind == ATTR_INT) {
        return check_int(row, attr, rank, err);
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

static struct graph_attr *own(struct graph_node *n, const char *name) {
    for (uint32_t i = 0; i < n->attr_count; i++) {
        if (strcmp(n->attrs[i].name, name) == 0) {
            return &n->attrs[i];
        }
    }
    return NULL;
}

static void set_ints(struct graph_attr *attr, const int64_t *ints, int count) {
    attr->ints = ints;
    attr->count = (uint32_t)count;
}

/* Absent perm turns all axes round. */
static void derive_transpose(struct arena *a, struct graph_attr *perm, int rank) {
    int64_t *ints = ARENA_ARRAY(a, int64_t, TENSOR_MAX_DIMS);
    for (int i = 0; i < rank; i++) {
        ints[i] = rank - 1 - i;
    }
    set_ints(perm, ints, rank);
}

/* Operands of 4 dimensions carry their heads; heads that are not told stay 0 and are refused by
 * the rule. */
static void derive_attention(
    struct graph_node *n, const struct shape *q, const struct shape *k, const bool *is_absent) {
    for (uint32_t i = 0; i < n->attr_count; i++) {
        struct graph_attr *attr = &n->attrs[i];
        if (!is_absent[i]) {
            continue;
        }
        if (strcmp(attr->name, "q_num_heads") == 0 && q->rank == 4) {
            attr->i = q->dim[1];
        } else if (strcmp(attr->name, "kv_num_heads") == 0 && k->rank == 4) {
            attr->i = k->dim[1];
        } else if (strcmp(attr->name, "scale") == 0 && q->rank >= 3) {
            int64_t heads =
                q->rank == 3 && own(n, "q_num_heads")->i > 0 ? own(n, "q_num_heads")->i : 1;
            int64_t size = q->dim[q->rank - 1] / heads;
            attr->f = (double)(float)(1 / sqrt((double)(size > 0 ? size : 1)));
        }
    }
}

static void
derive_conv(struct arena *a, struct graph_node *n, const struct shape *w, const bool *is_absent) {
    int spatial = w->rank > 2 ? w->rank - 2 : 0;
    for (uint32_t i = 0; i < n->attr_count; i++) {
        struct graph_attr *attr = &n->attrs[i];
        if (!is_absent[i] || attr->kind != ATTR_INTS) {
            continue;
        }
        bool is_pads = strcmp(attr->name, "pads") == 0;
        bool is_kernel = strcmp(attr->name, "kernel_shape") == 0;
        int count = is_pads ? 2 * spatial : spatial;
        int64_t *ints = ARENA_ARRAY(a, int64_t, 2 * TENSOR_MAX_DIMS);
        for (int d = 0; d < count; d++) {
            ints[d] = is_pads ? 0 : is_kernel ? w->dim[2 + d] : 1;
        }
        set_ints(attr, ints, count);
    }
}

/* Defaults that ONNX derives from the operands. */
static void derive_attrs(
    struct arena *a, const struct graph_value *values, struct graph_node *n,
    const bool *is_absent) {
    const struct shape *first = &values[n->inputs[0].n].shape;
    switch (n->op) {
    case GRAPH_OP_Transpose:
        if (is_absent[0]) {
            derive_transpose(a, &n->attrs[0], first->rank);
        }
        break;
    case GRAPH_OP_Attention:
        derive_attention(n, first, &values[n->inputs[1].n].shape, is_absent);
        break;
    case GRAPH_OP_Conv: derive_conv(a, n, &values[n->inputs[1].n].shape, is_absent); break;
    default: break;
    }
}

int graph_fill_attrs(
    struct arena *a, const struct graph_value *values, struct graph_node *n,
    const struct graph_attr *given, uint32_t given_count, struct err *err) {
    const struct op_row *row = &graph_op_rows[n->op];
    int rank = n->input_count > 0 ? values[n->inputs[0].n].shape.rank : 0;
    bool is_absent[GRAPH_MAX_ARITY] = {false};
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
        if (g == NULL && r->is_required) {
            return err_set(err, ERR_BAD_GRAPH, "attribute '%s' is required", r->name);
        }
        if (g != NULL) {
            attr = *g;
            attr.name = r->name;
        }
        is_absent[i] = g == NULL;
        int result = graph_check_attr(r, &attr, rank, err);
        if (result < 0) {
            return result;
        }
        attr.f = (double)(float)attr.f; /* ONNX stores float32 */
        attr.i += r->is_axis && attr.i < 0 ? rank : 0;
        n->attrs[i] = attr;
    }
    if (n->input_count > 0) {
        derive_attrs(a, values, n, is_absent);
    }
    return 0;
}
