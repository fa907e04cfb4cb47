/* See bindings.h. */
#include "daemon/bindings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void bindings_done(struct bindings *b) {
    free(b->items);
    b->items = NULL;
    b->count = 0;
}

static bool read_shape(const json_t *list, struct shape *ret) {
    memset(ret, 0, sizeof *ret);
    if (!json_is_array(list) || json_array_size(list) > TENSOR_MAX_DIMS) {
        return false;
    }
    ret->rank = (int)json_array_size(list);
    for (int i = 0; i < ret->rank; i++) {
        const json_t *dim = json_array_get(list, (size_t)i);
        ret->dim[i] = json_integer_value(dim);
        if (!json_is_integer(dim) || ret->dim[i] < 0) {
            return false;
        }
    }
    return true;
}

static bool read_source(const json_t *source, struct binding *b) {
    if (source == NULL || json_is_null(source)) {
        return true;
    }
    const char *blob = json_string_value(json_object_get(source, "blob"));
    const char *staged = json_string_value(json_object_get(source, "staged"));
    const json_t *offset = json_object_get(source, "offset");
    const json_t *bytes = json_object_get(source, "bytes");
    if (!json_is_integer(offset) || json_integer_value(offset) < 0 || !json_is_integer(bytes) ||
        json_integer_value(bytes) < 0 || (blob == NULL) == (staged == NULL)) {
        return false;
    }
    b->has_source = true;
    b->offset = (uint64_t)json_integer_value(offset);
    b->source_bytes = (uint64_t)json_integer_value(bytes);
    if (staged != NULL) {
        b->is_staged = true;
        if (strcmp(staged, "params.bin") != 0 && strcmp(staged, "inputs.bin") != 0) {
            return false;
        }
        strcpy(b->staged, staged);
        return true;
    }
    return digest_parse(blob, &b->blob);
}

static int
read_one(const json_t *entry, const char *what, struct bindings *b, bool *seen, struct err *err) {
    const char *name = json_string_value(json_object_get(entry, "name"));
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    const json_t *ordinal = json_object_get(entry, "ordinal");
    int64_t at = json_integer_value(ordinal);
    if (name == NULL || strlen(name) > BINDING_NAME || dtype == NULL || !json_is_integer(ordinal) ||
        at < 0 || (size_t)at >= b->count || seen[at]) {
        return err_set(err, ERR_PROTOCOL, "the worker's %s are damaged", what);
    }
    seen[at] = true;
    struct binding *item = &b->items[at];
    strcpy(item->name, name);
    item->dtype = dtype_from_name(dtype);
    if (item->dtype == DTYPE_NONE || !read_shape(json_object_get(entry, "shape"), &item->shape) ||
        !read_source(json_object_get(entry, "source"), item)) {
        return err_set(err, ERR_PROTOCOL, "the worker's %s '%s' is damaged", what, name);
    }
    uint64_t elements;
    return shape_elements(&item->shape, item->dtype, &elements, &item->bytes, err);
}

int bindings_read(const json_t *list, const char *what, struct bindings *ret, struct err *err) {
    struct bindings b = {NULL, json_array_size(list)};
    if (!json_is_array(list) || b.count > PACKAGE_MAX_BINDINGS) {
        return err_set(err, ERR_PROTOCOL, "the worker gave no %s", what);
    }
    static const size_t at_least = 1;
    bool seen[PACKAGE_MAX_BINDINGS] = {false};
    b.items = calloc(b.count > at_least ? b.count : at_least, sizeof *b.items);
    if (b.items == NULL) {
        return err_set(err, ERR_NOMEM, NULL);
    }
    int r = 0;
    for (size_t i = 0; i < b.count && r == 0; i++) {
        r = read_one(json_array_get(list, i), what, &b, seen, err);
    }
    if (r < 0) {
        bindings_done(&b);
        return r;
    }
    *ret = b;
    return 0;
}

int bindings_of_package(
    const struct package *p, enum package_role role, struct bindings *ret, struct err *err) {
    static const char *const words[] = {
        [PACKAGE_INPUT] = "input", [PACKAGE_OUTPUT] = "output", [PACKAGE_PARAMETER] = "parameter"};
    struct bindings b = {calloc(p->binding_count + 1, sizeof *b.items), 0};
    if (b.items == NULL) {
        return err_set(err, ERR_NOMEM, NULL);
    }
    for (uint32_t i = 0; i < p->binding_count; i++) { /* sorted by (role, ordinal) */
        if (p->bindings[i].role != role) {
            continue;
        }
        struct binding *item = &b.items[b.count++];
        snprintf(item->name, sizeof item->name, "%s.%u", words[role], p->bindings[i].ordinal);
        item->dtype = p->bindings[i].dtype;
        item->shape = p->bindings[i].shape;
        uint64_t elements;
        int r = shape_elements(&item->shape, item->dtype, &elements, &item->bytes, err);
        if (r < 0) {
            bindings_done(&b);
            return r;
        }
    }
    *ret = b;
    return 0;
}

const struct binding *bindings_find(const struct bindings *b, const char *name) {
    for (size_t i = 0; i < b->count; i++) {
        if (strcmp(b->items[i].name, name) == 0) {
            return &b->items[i];
        }
    }
    return NULL;
}

json_t *shape_json(const struct shape *s) {
    json_t *list = json_array();
    for (int i = 0; i < s->rank; i++) {
        json_array_append_new(list, json_integer(s->dim[i]));
    }
    return list;
}

json_t *bindings_json(const struct bindings *b) {
    json_t *list = json_array();
    for (size_t i = 0; i < b->count; i++) {
        json_array_append_new(
            list, json_pack(
                      "{s:s, s:i, s:s, s:o, s:I}", "name", b->items[i].name, "ordinal", (int)i,
                      "dtype", dtype_name(b->items[i].dtype), "shape",
                      shape_json(&b->items[i].shape), "bytes", (json_int_t)b->items[i].bytes));
    }
    return list;
}

void bindings_residency(
    const struct bindings *parameters, const struct digest *package, struct digest *ret) {
    struct digest_ctx *ctx = digest_new();
    if (ctx == NULL) {
        memset(ret, 0, sizeof *ret);
        return;
    }
    digest_update(ctx, package->bytes, sizeof package->bytes);
    digest_u64(ctx, parameters->count);
    for (size_t i = 0; i < parameters->count; i++) {
        const struct binding *b = &parameters->items[i];
        digest_update(ctx, b->blob.bytes, sizeof b->blob.bytes);
        digest_u64(ctx, b->offset);
        digest_u64(ctx, b->source_bytes);
    }
    digest_final(ctx, ret);
    digest_free(ctx);
}
