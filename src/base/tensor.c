/* Element types, shapes, host tensors. */
#include "base/tensor.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/f16.h"

#define MAX_TENSOR_BYTES ((uint64_t)1 << 48)

struct dtype_row {
    const char *name;
    size_t bytes;
    const char *npy;
    const char *safetensors;
};

static const struct dtype_row dtype_rows[] = {
    [DTYPE_NONE] = {"none", 0, "", ""},
#define X(NAME, onnx, bytes, npy, st) [DTYPE_##NAME] = {onnx, bytes, npy, st},
    DTYPE_LIST(X)
#undef X
};

_Static_assert(sizeof dtype_rows / sizeof dtype_rows[0] == DTYPE_COUNT, "one row a type");

size_t dtype_bytes(enum dtype t) {
    return dtype_rows[t].bytes;
}

const char *dtype_name(enum dtype t) {
    return dtype_rows[t].name;
}

const char *dtype_npy(enum dtype t) {
    return dtype_rows[t].npy;
}

enum dtype dtype_from_name(const char *name) {
    for (int t = 1; t < DTYPE_COUNT; t++) {
        if (strcmp(dtype_rows[t].name, name) == 0) {
            return (enum dtype)t;
        }
    }
    return DTYPE_NONE;
}

enum dtype dtype_from_npy(const char *descr) {
    if (descr[0] == '\0') {
        return DTYPE_NONE;
    }
    for (int t = 1; t < DTYPE_COUNT; t++) {
        const struct dtype_row *row = &dtype_rows[t];
        if (row->npy[0] == '\0' || strcmp(descr + 1, row->npy + 1) != 0) {
            continue;
        }
        bool any_order = row->bytes == 1 && (descr[0] == '<' || descr[0] == '>');
        if (descr[0] == row->npy[0] || descr[0] == '=' || any_order) {
            return (enum dtype)t;
        }
    }
    return DTYPE_NONE;
}

enum dtype dtype_from_safetensors(const char *name) {
    for (int t = 1; t < DTYPE_COUNT; t++) {
        if (strcmp(dtype_rows[t].safetensors, name) == 0) {
            return (enum dtype)t;
        }
    }
    return DTYPE_NONE;
}

int shape_elements(
    const struct shape *s, enum dtype t, uint64_t *ret_elements, uint64_t *ret_bytes,
    struct err *err) {
    char text[160];
    if (s->rank < 0 || s->rank > TENSOR_MAX_DIMS) {
        return err_set(err, ERR_SHAPE, "%d dimensions, at most %d", s->rank, TENSOR_MAX_DIMS);
    }
    bool is_empty = false;
    for (int i = 0; i < s->rank; i++) {
        if (s->dim[i] < 0) {
            return err_set(
                err, ERR_SHAPE, "shape %s: dimension %d is negative",
                shape_print(s, text, sizeof text), i);
        }
        is_empty = is_empty || s->dim[i] == 0;
    }
    uint64_t size = dtype_bytes(t) > 0 ? dtype_bytes(t) : 1;
    uint64_t n = is_empty ? 0 : 1;
    for (int i = 0; i < s->rank && !is_empty; i++) {
        if ((uint64_t)s->dim[i] > MAX_TENSOR_BYTES / size / n) {
            return err_set(
                err, ERR_TOO_LARGE, "shape %s of %s: more than 2^48 bytes",
                shape_print(s, text, sizeof text), dtype_name(t));
        }
        n *= (uint64_t)s->dim[i];
    }
    if (ret_elements != NULL) {
        *ret_elements = n;
    }
    if (ret_bytes != NULL) {
        *ret_bytes = n * dtype_bytes(t);
    }
    return 0;
}

bool shape_equal(const struct shape *a, const struct shape *b) {
    if (a->rank != b->rank) {
        return false;
    }
    for (int i = 0; i < a->rank; i++) {
        if (a->dim[i] != b->dim[i]) {
            return false;
        }
    }
    return true;
}

const char *shape_print(const struct shape *s, char *buf, size_t n) {
    size_t used = (size_t)snprintf(buf, n, "[");
    for (int i = 0; i < s->rank && i < TENSOR_MAX_DIMS && used < n; i++) {
        used += (size_t)snprintf(
            buf + used, n - used, "%s%lld", i > 0 ? "," : "", (long long)s->dim[i]);
    }
    if (used < n) {
        snprintf(buf + used, n - used, "]");
    }
    return buf;
}

void tensor_done(struct tensor *t) {
    if (t != NULL) {
        free(t->name);
        free(t->bytes);
        memset(t, 0, sizeof *t);
    }
}

void tensor_set_done(struct tensor_set *s) {
    if (s != NULL) {
        for (size_t i = 0; i < s->count; i++) {
            tensor_done(&s->items[i]);
        }
        free(s->items);
        memset(s, 0, sizeof *s);
    }
}

int tensor_init(
    struct tensor *ret, const char *name, enum dtype t, const struct shape *s, struct err *err) {
    uint64_t bytes = 0;
    int r = shape_elements(s, t, NULL, &bytes, err);
    if (r < 0) {
        return err_wrap(err, "tensor '%s'", name);
    }
    struct tensor made = {.dtype = t, .shape = *s, .size_bytes = bytes};
    made.name = strdup(name);
    made.bytes = calloc(1, bytes > 0 ? bytes : 1);
    if (made.name == NULL || made.bytes == NULL) {
        tensor_done(&made);
        return err_set(
            err, ERR_NOMEM, "tensor '%s': no memory for %llu bytes", name,
            (unsigned long long)bytes);
    }
    *ret = made;
    return 0;
}

static double f64_of_bits(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float f32_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

double tensor_get(enum dtype t, const uint8_t *bytes, uint64_t index) {
    const uint8_t *p = bytes + index * dtype_bytes(t);
    switch (t) {
    case DTYPE_BOOL: return p[0] != 0;
    case DTYPE_INT8: return (int8_t)p[0];
    case DTYPE_UINT8: return p[0];
    case DTYPE_INT16: return (int16_t)load_le16(p);
    case DTYPE_UINT16: return load_le16(p);
    case DTYPE_INT32: return (int32_t)load_le32(p);
    case DTYPE_UINT32: return load_le32(p);
    case DTYPE_INT64: return (double)(int64_t)load_le64(p);
    case DTYPE_UINT64: return (double)load_le64(p);
    case DTYPE_FLOAT16: return (double)f16_to_f32(load_le16(p));
    case DTYPE_BFLOAT16: return (double)bf16_to_f32(load_le16(p));
    case DTYPE_FLOAT: return (double)f32_of_bits(load_le32(p));
    case DTYPE_DOUBLE: return f64_of_bits(load_le64(p));
    case DTYPE_NONE:
    case DTYPE_COUNT: break;
    }
    return NAN;
}

/* Nearest integer, ties to even, saturating at a type of `bits` bits; NaN gives 0. */
static uint64_t saturate(double value, int bits, bool is_signed) {
    value = nearbyint(value);
    if (isnan(value)) {
        return 0;
    }
    if (is_signed) {
        int64_t max = (int64_t)(UINT64_MAX >> (65 - bits));
        if (value >= ldexp(1, bits - 1)) {
            return (uint64_t)max;
        }
        return value <= -ldexp(1, bits - 1) ? (uint64_t)(-max - 1) : (uint64_t)(int64_t)value;
    }
    if (value >= ldexp(1, bits)) {
        return UINT64_MAX >> (64 - bits);
    }
    return value <= 0 ? 0 : (uint64_t)value;
}

static void put_float(enum dtype t, uint8_t *p, double value) {
    float single = (float)value;
    uint32_t bits32;
    uint64_t bits64;
    memcpy(&bits32, &single, sizeof bits32);
    memcpy(&bits64, &value, sizeof bits64);
    if (t == DTYPE_FLOAT16) {
        store_le16(p, f16_from_f64(value));
    } else if (t == DTYPE_BFLOAT16) {
        store_le16(p, bf16_from_f64(value));
    } else if (t == DTYPE_FLOAT) {
        store_le32(p, bits32);
    } else {
        store_le64(p, bits64);
    }
}

void tensor_put(enum dtype t, uint8_t *bytes, uint64_t index, double value) {
    uint8_t *p = bytes + index * dtype_bytes(t);
    switch (t) {
    case DTYPE_BOOL: p[0] = value != 0; break;
    case DTYPE_INT8: p[0] = (uint8_t)saturate(value, 8, true); break;
    case DTYPE_UINT8: p[0] = (uint8_t)saturate(value, 8, false); break;
    case DTYPE_INT16: store_le16(p, (uint16_t)saturate(value, 16, true)); break;
    case DTYPE_UINT16: store_le16(p, (uint16_t)saturate(value, 16, false)); break;
    case DTYPE_INT32: store_le32(p, (uint32_t)saturate(value, 32, true)); break;
    case DTYPE_UINT32: store_le32(p, (uint32_t)saturate(value, 32, false)); break;
    case DTYPE_INT64: store_le64(p, saturate(value, 64, true)); break;
    case DTYPE_UINT64: store_le64(p, saturate(value, 64, false)); break;
    case DTYPE_FLOAT16:
    case DTYPE_BFLOAT16:
    case DTYPE_FLOAT:
    case DTYPE_DOUBLE: put_float(t, p, value); break;
    case DTYPE_NONE:
    case DTYPE_COUNT: break;
    }
}
