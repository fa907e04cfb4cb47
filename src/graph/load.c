/* model.json -> graph.
 *
 * Tensors first, then all nodes are read with their names, then the headers of tensor files; a
 * name is defined once, by an input, an initialiser or a node. Nodes are then added depth first in
 * file order, each after the makers of its operands, so the file's own order stays where it is
 * topological. The walk keeps its own stack and ends because a node is opened once; meeting an
 * open one again is a cycle. */
#include <string.h>

#include "graph/load_internal.h"

#define POINTER_BYTES 192

enum node_state { NODE_NEW, NODE_OPEN, NODE_ADDED };

/* What a name stands for. */
struct name_def {
    bool is_defined;
    uint32_t node;         /* index of the maker, UINT32_MAX for inputs and initialisers */
    struct value_id value; /* known at once for those, later for results */
};

struct load_node {
    enum graph_op op;
    enum node_state state;
    const char *name;
    const char *pointer;
    uint32_t inputs[GRAPH_MAX_ARITY];  /* name ids, INTERN_NONE when absent */
    uint32_t outputs[GRAPH_MAX_ARITY]; /* name ids */
    uint32_t input_count, output_count, next_input;
    struct graph_attr *attrs;
    uint32_t attr_count;
};

struct load_names {
    struct intern names;
    VEC(struct name_def) defs; /* by name id */
};

/* "<pointer>/<key>" with the escapes of RFC 6901, cut at the end. */
static void member_pointer(char ret[POINTER_BYTES], const char *pointer, const char *key) {
    size_t used = (size_t)snprintf(ret, POINTER_BYTES, "%s/", pointer);
    for (const char *p = key; *p != '\0' && used + 3 < POINTER_BYTES; p++) {
        bool is_special = *p == '~' || *p == '/';
        used += (size_t)snprintf(
            ret + used, POINTER_BYTES - used, "%s%c", is_special ? "~" : "",
            *p == '~'   ? '0'
            : *p == '/' ? '1'
                        : *p);
    }
}

int load_check_keys(
    const json_t *object, const char *pointer, const char *const *allowed, struct err *err) {
    if (!json_is_object(object)) {
        return err_at(err, ERR_BAD_GRAPH, pointer, "an object is required");
    }
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        const char *const *known = allowed;
        while (*known != NULL && strcmp(*known, key) != 0) {
            known++;
        }
        if (*known != NULL) {
            continue;
        }
        char where[POINTER_BYTES];
        member_pointer(where, pointer, key);
        return err_at(err, ERR_BAD_GRAPH, where, "unknown member '%.100s'", key);
    }
    return 0;
}

int load_text(
    struct load *l, const json_t *string, const char *pointer, const char **ret, struct err *err) {
    const char *text = json_string_value(string);
    size_t n = json_string_length(string);
    if (text == NULL || n == 0 || n > GRAPH_MAX_NAME) {
        return err_at(
            err, ERR_BAD_GRAPH, pointer, "a string of 1 to %d bytes is required", GRAPH_MAX_NAME);
    }
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)text[i] < ' ' || text[i] == 0x7f) {
            return err_at(err, ERR_BAD_GRAPH, pointer, "byte %zu is a control character", i);
        }
    }
    *ret = arena_strndup(l->arena, text, n);
    return 0;
}

int load_list(
    const json_t *object, const char *key, const char *pointer, size_t most, const json_t **ret,
    struct err *err) {
    const json_t *list = json_object_get(object, key);
    char where[POINTER_BYTES];
    snprintf(where, sizeof where, "%s/%s", pointer, key);
    if (list != NULL && !json_is_array(list)) {
        return err_at(err, ERR_BAD_GRAPH, where, "a list is required");
    }
    if (json_array_size(list) > most) {
        return err_at(
            err, ERR_TOO_LARGE, where, "%zu items, at most %zu", json_array_size(list), most);
    }
    *ret = list;
    return 0;
}

static uint32_t name_id(struct load *l, struct load_names *names, const char *name) {
    uint32_t id = intern_add(&names->names, name);
    if (id == names->defs.len) {
        vec_push(l->arena, &names->defs, (struct name_def){.node = UINT32_MAX});
    }
    return id;
}

static int define(
    struct load *l, struct load_names *names, const char *name, uint32_t node,
    struct value_id value, const char *pointer, uint32_t *ret_id, struct err *err) {
    uint32_t id = name_id(l, names, name);
    struct name_def *def = &names->defs.data[id];
    if (def->is_defined) {
        return err_at(err, ERR_BAD_GRAPH, pointer, "'%s' is defined twice", name);
    }
    *def = (struct name_def){true, node, value};
    if (ret_id != NULL) {
        *ret_id = id;
    }
    return 0;
}

static int load_tensors(
    struct load *l, struct load_names *names, const json_t *model, bool is_input, struct err *err) {
    const char *key = is_input ? "inputs" : "initializers";
    const json_t *list = NULL;
    int r = load_list(model, key, "", GRAPH_MAX_VALUES - l->builder->values.len, &list, err);
    for (size_t i = 0; i < json_array_size(list) && r == 0; i++) {
        const char *pointer = arena_printf(l->arena, "/%s/%zu", key, i);
        struct load_tensor t = {0};
        r = load_tensor(l, json_array_get(list, i), pointer, is_input, &t, err);
        if (r < 0) {
            break;
        }
        struct value_id value;
        if (is_input) {
            value = graph_add_input(l->builder, t.name, t.dtype, &t.shape, &t.source);
        } else {
            value = graph_add_initializer(l->builder, t.name, t.dtype, &t.shape, &t.source);
        }
        if (t.source.kind == SOURCE_FILE) {
            load_note_file(l, value, pointer);
        }
        char where[POINTER_BYTES];
        snprintf(where, sizeof where, "%s/name", pointer);
        r = define(l, names, t.name, UINT32_MAX, value, where, NULL, err);
    }
    return r;
}

static int load_ints(
    struct load *l, const json_t *list, const char *pointer, struct graph_attr *attr,
    struct err *err) {
    size_t n = json_array_size(list);
    if (n > GRAPH_MAX_ARITY) {
        return err_at(err, ERR_TOO_LARGE, pointer, "%zu integers, at most %d", n, GRAPH_MAX_ARITY);
    }
    int64_t *ints = ARENA_ARRAY(l->arena, int64_t, n);
    for (size_t i = 0; i < n; i++) {
        if (!json_is_integer(json_array_get(list, i))) {
            return err_at(err, ERR_BAD_GRAPH, pointer, "item %zu is no integer", i);
        }
        ints[i] = json_integer_value(json_array_get(list, i));
    }
    attr->kind = ATTR_INTS;
    attr->ints = ints;
    attr->count = (uint32_t)n;
    return 0;
}

/* ONNX numbers element types; the names of model files are taken too. */
static int load_type(int64_t number, const char *pointer, struct graph_attr *ret, struct err *err) {
    if (number != 1 && number != 10) {
        return err_at(
            err, ERR_DTYPE, pointer,
            "element type %lld, supported are 1 (float32) and 10 "
            "(float16)",
            (long long)number);
    }
    ret->kind = ATTR_STRING;
    ret->s = number == 1 ? "float32" : "float16";
    return 0;
}

/* An integer stands for a float where the operator wants one. */
static int load_attr(
    struct load *l, enum graph_op op, const char *key, const json_t *value, const char *pointer,
    struct graph_attr *ret, struct err *err) {
    const struct op_attr *row = graph_op_rows[op].attrs;
    while (row->name != NULL && strcmp(row->name, key) != 0) {
        row++;
    }
    if (row->name == NULL) {
        return err_at(
            err, ERR_BAD_GRAPH, pointer, "operator %s has no attribute '%.100s'", graph_op_name(op),
            key);
    }
    struct graph_attr attr = {.name = row->name};
    if (json_is_array(value)) {
        int r = load_ints(l, value, pointer, &attr, err);
        if (r < 0) {
            return r;
        }
    } else if (json_is_string(value)) {
        attr.kind = ATTR_STRING;
        int r = load_text(l, value, pointer, &attr.s, err);
        if (r < 0) {
            return r;
        }
    } else if (json_is_integer(value) && row->is_type) {
        int r = load_type(json_integer_value(value), pointer, &attr, err);
        if (r < 0) {
            return r;
        }
    } else if (json_is_integer(value) && row->kind == ATTR_INT) {
        attr.kind = ATTR_INT;
        attr.i = json_integer_value(value);
    } else if (json_is_number(value)) {
        attr.kind = ATTR_FLOAT;
        attr.f = json_number_value(value);
    } else {
        return err_at(err, ERR_BAD_GRAPH, pointer, "a number, a string or a list is required");
    }
    *ret = attr;
    return 0;
}

static int
load_attrs(struct load *l, struct load_node *n, const json_t *attributes, struct err *err) {
    if (attributes == NULL) {
        return 0;
    }
    char list[64]; /* a node's pointer is short */
    char where[POINTER_BYTES];
    snprintf(list, sizeof list, "%s/attributes", n->pointer);
    if (!json_is_object(attributes) || json_object_size(attributes) > GRAPH_MAX_ARITY) {
        return err_at(
            err, ERR_BAD_GRAPH, list, "an object of at most %d members is required",
            GRAPH_MAX_ARITY);
    }
    n->attrs = ARENA_ARRAY(l->arena, struct graph_attr, json_object_size(attributes));
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)attributes, key, value) {
        member_pointer(where, list, key);
        int r = load_attr(l, n->op, key, value, where, &n->attrs[n->attr_count], err);
        if (r < 0) {
            return r;
        }
        n->attr_count++;
    }
    return 0;
}

static int load_operands(
    struct load *l, struct load_names *names, const json_t *object, struct load_node *n,
    struct err *err) {
    const json_t *list = NULL;
    int r = load_list(object, "inputs", n->pointer, GRAPH_MAX_ARITY, &list, err);
    for (size_t i = 0; i < json_array_size(list) && r == 0; i++) {
        const json_t *item = json_array_get(list, i);
        const char *text = NULL;
        char where[POINTER_BYTES];
        n->inputs[n->input_count++] = INTERN_NONE;
        if (json_is_string(item) && json_string_length(item) == 0) {
            continue; /* ONNX: an absent optional operand */
        }
        snprintf(where, sizeof where, "%s/inputs/%zu", n->pointer, i);
        r = load_text(l, item, where, &text, err);
        if (r == 0) {
            n->inputs[i] = name_id(l, names, text);
        }
    }
    return r;
}

static int load_results(
    struct load *l, struct load_names *names, const json_t *object, struct load_node *n,
    uint32_t index, struct err *err) {
    const json_t *list = NULL;
    int r = load_list(object, "outputs", n->pointer, GRAPH_MAX_ARITY, &list, err);
    for (size_t i = 0; i < json_array_size(list) && r == 0; i++) {
        const char *text = NULL;
        char where[POINTER_BYTES];
        snprintf(where, sizeof where, "%s/outputs/%zu", n->pointer, i);
        r = load_text(l, json_array_get(list, i), where, &text, err);
        if (r == 0) {
            r = define(l, names, text, index, NO_VALUE, where, &n->outputs[i], err);
        }
        n->output_count++;
    }
    return r;
}

static int load_node(
    struct load *l, struct load_names *names, const json_t *object, uint32_t index,
    struct load_node *n, struct err *err) {
    static const char *const keys[] = {"name", "op_type", "inputs", "outputs", "attributes", NULL};
    char where[POINTER_BYTES];
    n->pointer = arena_printf(l->arena, "/nodes/%u", index);
    int r = load_check_keys(object, n->pointer, keys, err);
    if (r < 0) {
        return r;
    }
    n->name = arena_printf(l->arena, "n%u", index);
    if (json_object_get(object, "name") != NULL) {
        snprintf(where, sizeof where, "%s/name", n->pointer);
        r = load_text(l, json_object_get(object, "name"), where, &n->name, err);
    }
    const char *op = json_string_value(json_object_get(object, "op_type"));
    snprintf(where, sizeof where, "%s/op_type", n->pointer);
    if (r == 0 && op == NULL) {
        r = err_at(err, ERR_BAD_GRAPH, where, "a string is required");
    }
    if (r == 0 && !graph_op_find(op, &n->op)) {
        r = err_at(
            err, ERR_UNSUPPORTED_OP, where, "node '%s': operator '%.100s' is not supported",
            n->name, op);
    }
    if (r == 0) {
        r = load_attrs(l, n, json_object_get(object, "attributes"), err);
    }
    if (r == 0) {
        r = load_operands(l, names, object, n, err);
    }
    return r == 0 ? load_results(l, names, object, n, index, err) : r;
}

static int
add_node(struct load *l, struct load_names *names, struct load_node *n, struct err *err) {
    struct value_id inputs[GRAPH_MAX_ARITY];
    struct value_id results[GRAPH_MAX_ARITY];
    const char *output_names[GRAPH_MAX_ARITY];
    for (uint32_t i = 0; i < n->input_count; i++) {
        inputs[i] = n->inputs[i] == INTERN_NONE ? NO_VALUE : names->defs.data[n->inputs[i]].value;
    }
    for (uint32_t i = 0; i < n->output_count; i++) {
        output_names[i] = intern_name(&names->names, n->outputs[i]);
    }
    int r = graph_add_node(
        l->builder, n->op, n->name, inputs, n->input_count, n->attrs, n->attr_count, output_names,
        n->output_count, n->pointer, results, err);
    for (uint32_t i = 0; i < n->output_count && r == 0; i++) {
        names->defs.data[n->outputs[i]].value = results[i];
    }
    n->state = NODE_ADDED;
    return r;
}

/* Opens the maker of the next operand, or adds the node when all are there. */
static int step(
    struct load *l, struct load_names *names, struct load_node *nodes, uint32_t *stack,
    uint32_t *depth, struct err *err) {
    struct load_node *n = &nodes[stack[*depth - 1]];
    if (n->next_input == n->input_count) {
        (*depth)--;
        return add_node(l, names, n, err);
    }
    uint32_t id = n->inputs[n->next_input];
    char where[POINTER_BYTES];
    snprintf(where, sizeof where, "%s/inputs/%u", n->pointer, n->next_input++);
    if (id == INTERN_NONE) {
        return 0;
    }
    const struct name_def *def = &names->defs.data[id];
    if (!def->is_defined) {
        return err_at(
            err, ERR_MISSING, where, "node '%s': nothing is named '%s'", n->name,
            intern_name(&names->names, id));
    }
    if (def->node == UINT32_MAX || nodes[def->node].state == NODE_ADDED) {
        return 0;
    }
    if (nodes[def->node].state == NODE_OPEN) {
        return err_at(
            err, ERR_BAD_GRAPH, where, "cycle: node '%s' needs its own result through '%s'",
            nodes[def->node].name, intern_name(&names->names, id));
    }
    nodes[def->node].state = NODE_OPEN;
    stack[(*depth)++] = def->node;
    return 0;
}

static int read_nodes(
    struct load *l, struct load_names *names, const json_t *model, struct load_node **ret,
    uint32_t *ret_count, struct err *err) {
    const json_t *list = NULL;
    int r = load_list(model, "nodes", "", GRAPH_MAX_NODES, &list, err);
    uint32_t count = (uint32_t)json_array_size(list);
    struct load_node *nodes = ARENA_ARRAY(l->arena, struct load_node, count);
    for (uint32_t i = 0; i < count && r == 0; i++) {
        r = load_node(l, names, json_array_get(list, i), i, &nodes[i], err);
    }
    *ret = nodes;
    *ret_count = count;
    return r;
}

/* Exponents enter the key: load_files() has to read them. */
static void mark_exponents(
    struct load *l, const struct load_names *names, const struct load_node *nodes, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t k = 0; k < nodes[i].input_count; k++) {
            uint32_t id = nodes[i].inputs[k];
            if (id == INTERN_NONE || graph_operand_letter(nodes[i].op, k) != 'E') {
                continue;
            }
            const struct name_def *def = &names->defs.data[id];
            if (!def->is_defined || def->node != UINT32_MAX) {
                continue;
            }
            struct graph_value *v = &l->builder->values.data[def->value.n];
            v->is_hashed_constant |= v->kind == VALUE_INITIALIZER;
        }
    }
}

static int add_nodes(
    struct load *l, struct load_names *names, struct load_node *nodes, uint32_t count,
    struct err *err) {
    uint32_t *stack = ARENA_ARRAY(l->arena, uint32_t, count);
    int r = 0;
    for (uint32_t i = 0; i < count && r == 0; i++) {
        if (nodes[i].state == NODE_ADDED) {
            continue;
        }
        uint32_t depth = 1;
        stack[0] = i;
        nodes[i].state = NODE_OPEN;
        while (depth > 0 && r == 0) {
            r = step(l, names, nodes, stack, &depth, err);
        }
    }
    return r;
}

static int load_output(
    struct load *l, struct load_names *names, const json_t *item, size_t index,
    struct value_id *ret, struct err *err) {
    static const char *const keys[] = {"name", NULL};
    char where[POINTER_BYTES];
    const char *name = NULL;
    snprintf(where, sizeof where, "/outputs/%zu", index);
    if (json_is_object(item)) {
        int r = load_check_keys(item, where, keys, err);
        if (r < 0) {
            return r;
        }
        item = json_object_get(item, "name");
    }
    int r = load_text(l, item, where, &name, err);
    if (r < 0) {
        return r;
    }
    uint32_t id = intern_find(&names->names, name);
    if (id == INTERN_NONE || !names->defs.data[id].is_defined) {
        return err_at(err, ERR_MISSING, where, "nothing is named '%s'", name);
    }
    if (names->defs.data[id].node == UINT32_MAX) {
        return err_at(
            err, ERR_BAD_GRAPH, where,
            "output '%s' is not the result of a node (Identity makes it one)", name);
    }
    *ret = names->defs.data[id].value;
    return 0;
}

static int load_outputs(
    struct load *l, struct load_names *names, const json_t *model, struct graph **ret,
    struct err *err) {
    const json_t *list = NULL;
    int r = load_list(model, "outputs", "", GRAPH_MAX_VALUES, &list, err);
    uint32_t count = (uint32_t)json_array_size(list);
    if (r == 0 && count == 0) {
        return err_at(err, ERR_BAD_GRAPH, "/outputs", "at least 1 output is required");
    }
    struct value_id *outputs = ARENA_ARRAY(l->arena, struct value_id, count);
    for (uint32_t i = 0; i < count && r == 0; i++) {
        r = load_output(l, names, json_array_get(list, i), i, &outputs[i], err);
    }
    if (r == 0) {
        r = graph_finish(l->builder, outputs, count, ret, err);
        if (r < 0) {
            err_where(err, "/outputs");
        }
    }
    return r;
}

int graph_load(
    const json_t *model, graph_open_file_fn *open_file, void *arg, struct arena *a,
    struct graph **ret, struct err *err) {
    static const char *const keys[] = {"inputs", "initializers", "nodes", "outputs", NULL};
    struct load l = {
        .arena = a,
        .open_file = open_file,
        .open_arg = arg,
        .builder = graph_builder_new(a),
        .labels = {.arena = a}};
    struct load_names names = {.names = {.arena = a}};
    int r = load_check_keys(model, "", keys, err);
    if (r == 0) {
        r = load_tensors(&l, &names, model, true, err);
    }
    if (r == 0) {
        r = load_tensors(&l, &names, model, false, err);
    }
    struct load_node *nodes = NULL;
    uint32_t count = 0;
    if (r == 0) {
        r = read_nodes(&l, &names, model, &nodes, &count, err);
    }
    if (r == 0) {
        mark_exponents(&l, &names, nodes, count);
        r = load_files(&l, err);
    }
    if (r == 0) {
        r = add_nodes(&l, &names, nodes, count, err);
    }
    return r == 0 ? load_outputs(&l, &names, model, ret, err) : r;
}
