/* Tensors of a model file: type, shape and where the values come from. */
#include <errno.h>
#include <float.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/safetensors.h"
#include "graph/load_internal.h"

#define POINTER_BYTES 256

static int load_dtype(const json_t *string, const char *pointer, enum dtype *ret, struct err *err) {
    char where[POINTER_BYTES];
    snprintf(where, sizeof where, "%s/dtype", pointer);
    if (!json_is_string(string)) {
        return err_at(err, ERR_BAD_GRAPH, where, "a string is required");
    }
    *ret = dtype_from_name(json_string_value(string));
    if (*ret == DTYPE_NONE) {
        return err_at(
            err, ERR_DTYPE, where, "unknown element type '%.40s'", json_string_value(string));
    }
    return 0;
}

static int load_shape(const json_t *list, const char *pointer, struct shape *ret, struct err *err) {
    char where[POINTER_BYTES];
    snprintf(where, sizeof where, "%s/shape", pointer);
    if (!json_is_array(list)) {
        return err_at(err, ERR_BAD_GRAPH, where, "a list of dimensions is required");
    }
    if (json_array_size(list) > TENSOR_MAX_DIMS) {
        return err_at(
            err, ERR_SHAPE, where, "%zu dimensions, at most %d", json_array_size(list),
            TENSOR_MAX_DIMS);
    }
    struct shape s = {.rank = (int)json_array_size(list)};
    for (int i = 0; i < s.rank; i++) {
        const json_t *dim = json_array_get(list, (size_t)i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 1) {
            return err_at(err, ERR_SHAPE, where, "dimension %d is not an integer of at least 1", i);
        }
        s.dim[i] = json_integer_value(dim);
    }
    *ret = s;
    return 0;
}

static int load_number(
    const json_t *object, const char *key, const char *pointer, double fallback, double *ret,
    struct err *err) {
    const json_t *number = json_object_get(object, key);
    *ret = number == NULL ? fallback : json_number_value(number);
    if (number != NULL && (!json_is_number(number) || !isfinite(*ret))) {
        char where[POINTER_BYTES];
        snprintf(where, sizeof where, "%s/%s", pointer, key);
        return err_at(err, ERR_BAD_GRAPH, where, "a finite number is required");
    }
    return 0;
}

static double largest(enum dtype t) {
    switch (t) {
    case DTYPE_FLOAT16: return 65504;
    case DTYPE_BFLOAT16: return 0x1.fep127;
    case DTYPE_FLOAT: return FLT_MAX;
    default: return DBL_MAX;
    }
}

static int find_generator(
    const json_t *object, const char *pointer, enum generator_kind *ret, struct err *err) {
    static const char *const names[] = {
        [GENERATOR_CONSTANT] = "constant",
        [GENERATOR_UNIFORM] = "uniform",
        [GENERATOR_NORMAL] = "normal"};
    const char *kind = json_string_value(json_object_get(object, "kind"));
    for (int i = 0; kind != NULL && i <= GENERATOR_NORMAL; i++) {
        if (strcmp(names[i], kind) == 0) {
            *ret = (enum generator_kind)i;
            return 0;
        }
    }
    char where[2 * POINTER_BYTES];
    snprintf(where, sizeof where, "%s/kind", pointer);
    return err_at(err, ERR_BAD_GRAPH, where, "\"constant\", \"uniform\" or \"normal\" is required");
}

static int load_generator(
    const json_t *object, const char *pointer, enum dtype t, struct value_source *ret,
    struct err *err) {
    static const char *const constant_keys[] = {"kind", "value", NULL};
    static const char *const random_keys[] = {"kind", "seed", "scale", "offset", NULL};
    struct value_source s = {.kind = SOURCE_GENERATOR};
    if (!json_is_object(object)) {
        return err_at(err, ERR_BAD_GRAPH, pointer, "an object is required");
    }
    int r = find_generator(object, pointer, &s.generator, err);
    if (r < 0) {
        return r;
    }
    bool is_constant = s.generator == GENERATOR_CONSTANT;
    r = load_check_keys(object, pointer, is_constant ? constant_keys : random_keys, err);
    if (r == 0) {
        r = load_number(object, is_constant ? "value" : "offset", pointer, 0, &s.offset, err);
    }
    if (r == 0) {
        r = load_number(object, "scale", pointer, is_constant ? 0 : 1, &s.scale, err);
    }
    if (r < 0) {
        return r;
    }
    const json_t *seed = json_object_get(object, "seed");
    if (seed != NULL && (!json_is_integer(seed) || json_integer_value(seed) < 0)) {
        char where[2 * POINTER_BYTES];
        snprintf(where, sizeof where, "%s/seed", pointer);
        return err_at(err, ERR_BAD_GRAPH, where, "an integer of at least 0 is required");
    }
    s.seed = (uint64_t)json_integer_value(seed);
    double reach = fabs(s.offset) + fabs(s.scale) * (s.generator == GENERATOR_NORMAL ? 6 : 1);
    if (!(reach <= largest(t))) {
        return err_at(
            err, ERR_BAD_GRAPH, pointer, "values reach %g, %s ends at %g", reach, dtype_name(t),
            largest(t));
    }
    *ret = s;
    return 0;
}

/* One integer into an integer or bool type, exactly. */
static bool put_integer(enum dtype t, uint8_t *bytes, uint64_t index, json_int_t value) {
    bool is_signed = t == DTYPE_INT8 || t == DTYPE_INT16 || t == DTYPE_INT32 || t == DTYPE_INT64;
    int bits = t == DTYPE_BOOL ? 1 : (int)dtype_bytes(t) * 8;
    int64_t min = 0;
    int64_t max = INT64_MAX; /* of uint64 too: JSON integers here end at 2^63 - 1 */
    if (is_signed) {
        max = (int64_t)(UINT64_MAX >> (65 - bits));
        min = -max - 1;
    } else if (bits < 64) {
        max = (int64_t)(UINT64_MAX >> (64 - bits));
    }
    if (value < min || value > max) {
        return false;
    }
    uint8_t le[8];
    store_le64(le, (uint64_t)value);
    memcpy(bytes + index * dtype_bytes(t), le, dtype_bytes(t));
    return true;
}

static bool put_value(enum dtype t, uint8_t *bytes, uint64_t index, const json_t *value) {
    switch (t) {
    case DTYPE_FLOAT16:
    case DTYPE_BFLOAT16:
    case DTYPE_FLOAT:
    case DTYPE_DOUBLE:
        if (!json_is_number(value)) {
            return false;
        }
        tensor_put(t, bytes, index, json_number_value(value));
        return isfinite(tensor_get(t, bytes, index));
    case DTYPE_BOOL:
        if (json_is_boolean(value)) {
            return put_integer(t, bytes, index, json_is_true(value));
        }
        return json_is_integer(value) && put_integer(t, bytes, index, json_integer_value(value));
    default:
        return json_is_integer(value) && put_integer(t, bytes, index, json_integer_value(value));
    }
}

static int load_values(
    struct load *l, const json_t *list, const char *pointer, enum dtype t,
    const struct shape *shape, struct value_source *ret, struct err *err) {
    uint64_t elements = 0;
    uint64_t size = 0;
    char where[2 * POINTER_BYTES];
    char text[160];
    int r = shape_elements(shape, t, &elements, &size, err);
    if (r < 0) {
        err_where(err, "%s", pointer);
        return r;
    }
    if (!json_is_array(list) || json_array_size(list) != elements) {
        return err_at(
            err, ERR_SHAPE, pointer, "%zu values, shape %s needs a list of %llu",
            json_array_size(list), shape_print(shape, text, sizeof text),
            (unsigned long long)elements);
    }
    if (elements > GRAPH_MAX_INLINE_ELEMENTS) {
        return err_at(
            err, ERR_TOO_LARGE, pointer, "%llu values, at most %d in a model file",
            (unsigned long long)elements, GRAPH_MAX_INLINE_ELEMENTS);
    }
    uint8_t *bytes = arena_alloc(l->arena, size, 16);
    for (uint64_t i = 0; i < elements; i++) {
        if (!put_value(t, bytes, i, json_array_get(list, i))) {
            snprintf(where, sizeof where, "%s/%llu", pointer, (unsigned long long)i);
            return err_at(err, ERR_DTYPE, where, "not a value of %s", dtype_name(t));
        }
    }
    *ret = (struct value_source){.kind = SOURCE_INLINE, .bytes = bytes};
    return 0;
}

static int load_file_source(
    struct load *l, const json_t *object, const char *pointer, const char *name,
    struct value_source *ret, struct err *err) {
    char where[POINTER_BYTES];
    struct value_source s = {.kind = SOURCE_FILE, .tensor = name};
    snprintf(where, sizeof where, "%s/file", pointer);
    int r = load_text(l, json_object_get(object, "file"), where, &s.file, err);
    const json_t *tensor = json_object_get(object, "tensor");
    if (r == 0 && tensor != NULL) {
        snprintf(where, sizeof where, "%s/tensor", pointer);
        r = load_text(l, tensor, where, &s.tensor, err);
    }
    if (r == 0) {
        *ret = s;
    }
    return r;
}

static int load_source(
    struct load *l, const json_t *object, const char *pointer, bool is_input, struct load_tensor *t,
    struct err *err) {
    char where[POINTER_BYTES];
    const json_t *values = json_object_get(object, "values");
    const json_t *generator = json_object_get(object, "generator");
    int given = (values != NULL) + (generator != NULL) + (json_object_get(object, "file") != NULL);
    if (given == 0 && is_input) {
        return 0;
    }
    if (given != 1) {
        return err_at(
            err, ERR_BAD_GRAPH, pointer,
            "initializer '%s': %d sources, exactly one of file, values, generator", t->name, given);
    }
    if (values != NULL) {
        snprintf(where, sizeof where, "%s/values", pointer);
        return load_values(l, values, where, t->dtype, &t->shape, &t->source, err);
    }
    if (generator != NULL) {
        snprintf(where, sizeof where, "%s/generator", pointer);
        return load_generator(generator, where, t->dtype, &t->source, err);
    }
    return load_file_source(l, object, pointer, t->name, &t->source, err);
}

int load_tensor(
    struct load *l, const json_t *object, const char *pointer, bool is_input,
    struct load_tensor *ret, struct err *err) {
    static const char *const input_keys[] = {"name", "dtype", "shape", "generator", NULL};
    static const char *const initializer_keys[] = {"name",   "dtype",  "shape",     "file",
                                                   "tensor", "values", "generator", NULL};
    char where[POINTER_BYTES];
    struct load_tensor t = {0};
    int r = load_check_keys(object, pointer, is_input ? input_keys : initializer_keys, err);
    if (r == 0) {
        snprintf(where, sizeof where, "%s/name", pointer);
        r = load_text(l, json_object_get(object, "name"), where, &t.name, err);
    }
    if (r == 0) {
        r = load_dtype(json_object_get(object, "dtype"), pointer, &t.dtype, err);
    }
    if (r == 0) {
        r = load_shape(json_object_get(object, "shape"), pointer, &t.shape, err);
    }
    if (r < 0) {
        return r;
    }
    r = graph_check_shape(t.dtype, &t.shape, err);
    if (r < 0) {
        err_wrap(err, "'%s'", t.name);
        err_where(err, "%s/shape", pointer);
        return r;
    }
    if (json_object_get(object, "tensor") != NULL && json_object_get(object, "file") == NULL) {
        return err_at(err, ERR_BAD_GRAPH, pointer, "'%s': a tensor without a file", t.name);
    }
    r = load_source(l, object, pointer, is_input, &t, err);
    if (r == 0 && !is_input && t.source.kind == SOURCE_GENERATOR &&
        t.source.generator != GENERATOR_CONSTANT && graph_is_hashed(t.dtype, &t.shape)) {
        r = err_at(
            err, ERR_BAD_GRAPH, pointer,
            "initializer '%s': scalars and integers enter the key, their generator must be "
            "constant",
            t.name);
    }
    if (r == 0) {
        *ret = t;
    }
    return r;
}

void load_note_file(struct load *l, struct value_id value, const char *pointer) {
    const char *label = l->builder->values.data[value.n].source.file;
    uint32_t use = (uint32_t)l->uses.len;
    uint32_t id = intern_add(&l->labels, label);
    vec_push(l->arena, &l->uses, (struct file_use){value, pointer, UINT32_MAX});
    if (id == l->files.len) {
        vec_push(l->arena, &l->files, (struct file_label){use, use});
    } else {
        l->uses.data[l->files.data[id].last].next = use;
        l->files.data[id].last = use;
    }
}

static int read_bytes(int fd, uint8_t *buf, uint64_t n, uint64_t at, struct err *err) {
    while (n > 0) {
        ssize_t got = pread(fd, buf, n, (off_t)at);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return got < 0 ? err_sys(err, ERR_IO, errno, "cannot read")
                           : err_set(
                                 err, ERR_TENSOR_FILE, "file ends at byte %llu",
                                 (unsigned long long)at);
        }
        buf += got;
        at += (uint64_t)got;
        n -= (uint64_t)got;
    }
    return 0;
}

/* No arena call that may jump: the index belongs to the heap. */
static int resolve(
    struct load *l, const struct safetensors *index, int fd, struct graph_value *v,
    struct err *err) {
    char has[160];
    char want[160];
    const struct safetensors_entry *e = safetensors_find(index, v->source.tensor);
    if (e == NULL) {
        return err_set(
            err, ERR_MISSING, "file '%s' has no tensor '%s'", v->source.file, v->source.tensor);
    }
    if (e->dtype != v->dtype) {
        return err_set(
            err, ERR_DTYPE, "initializer '%s' is %s, tensor '%s' of file '%s' is %s", v->name,
            dtype_name(v->dtype), e->name, v->source.file, dtype_name(e->dtype));
    }
    if (!shape_equal(&e->shape, &v->shape)) {
        return err_set(
            err, ERR_SHAPE, "initializer '%s' is %s, tensor '%s' of file '%s' is %s", v->name,
            shape_print(&v->shape, want, sizeof want), e->name, v->source.file,
            shape_print(&e->shape, has, sizeof has));
    }
    v->source.file_offset = e->offset;
    if (!v->is_hashed_constant) {
        return 0;
    }
    if (e->size_bytes > GRAPH_MAX_INLINE_ELEMENTS * dtype_bytes(e->dtype)) {
        return err_set(
            err, ERR_TOO_LARGE, "initializer '%s': its values enter the key, at most %d elements",
            v->name, GRAPH_MAX_INLINE_ELEMENTS);
    }
    uint8_t *bytes = arena_try_alloc(l->arena, e->size_bytes, 16);
    if (bytes == NULL) {
        return err_set(err, ERR_NOMEM, "no memory for initializer '%s'", v->name);
    }
    v->source.bytes = bytes;
    return read_bytes(fd, bytes, e->size_bytes, e->offset, err);
}

static int resolve_label(struct load *l, uint32_t label, struct err *err) {
    const struct file_use *first = &l->uses.data[l->files.data[label].first];
    if (l->open_file == NULL) {
        return err_at(
            err, ERR_MISSING, first->pointer, "file '%s': no files are given",
            intern_name(&l->labels, label));
    }
    CLEANUP(cleanup_close) int fd = l->open_file(l->open_arg, intern_name(&l->labels, label), err);
    if (fd < 0) {
        int r = fd;
        err_where(err, "%s/file", first->pointer);
        return r;
    }
    struct safetensors index = {0};
    int r = safetensors_open(fd, intern_name(&l->labels, label), &index, err);
    if (r < 0) {
        err_wrap(err, "file '%s'", intern_name(&l->labels, label));
        return r;
    }
    for (uint32_t u = l->files.data[label].first; u != UINT32_MAX && r == 0;
         u = l->uses.data[u].next) {
        const struct file_use *use = &l->uses.data[u];
        r = resolve(l, &index, fd, &l->builder->values.data[use->value.n], err);
        if (r < 0) {
            err_where(err, "%s", use->pointer);
        }
    }
    safetensors_done(&index);
    return r;
}

int load_files(struct load *l, struct err *err) {
    for (uint32_t label = 0; label < l->files.len; label++) {
        int r = resolve_label(l, label, err);
        if (r < 0) {
            return r;
        }
    }
    return 0;
}
