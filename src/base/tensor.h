/* Element types, and named host tensors: C order, little-endian (design.md D7).
 *
 * dtype names are ONNX's lower-case ones ("float16"); npy and safetensors spellings are mapped by
 * their readers. */
#ifndef BASE_TENSOR_H
#define BASE_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define TENSOR_MAX_DIMS 6 /* D7 */

/*      constant  ONNX name   bytes  npy     safetensors */
#define DTYPE_LIST(X)                                                                              \
    X(BOOL, "bool", 1, "|b1", "BOOL")                                                              \
    X(INT8, "int8", 1, "|i1", "I8")                                                                \
    X(UINT8, "uint8", 1, "|u1", "U8")                                                              \
    X(INT16, "int16", 2, "<i2", "I16")                                                             \
    X(UINT16, "uint16", 2, "<u2", "U16")                                                           \
    X(INT32, "int32", 4, "<i4", "I32")                                                             \
    X(UINT32, "uint32", 4, "<u4", "U32")                                                           \
    X(INT64, "int64", 8, "<i8", "I64")                                                             \
    X(UINT64, "uint64", 8, "<u8", "U64")                                                           \
    X(FLOAT16, "float16", 2, "<f2", "F16")                                                         \
    X(BFLOAT16, "bfloat16", 2, "", "BF16")                                                         \
    X(FLOAT, "float32", 4, "<f4", "F32")                                                           \
    X(DOUBLE, "float64", 8, "<f8", "F64")

enum dtype {
    DTYPE_NONE = 0,
#define X(NAME, onnx, bytes, npy, st) DTYPE_##NAME,
    DTYPE_LIST(X)
#undef X
        DTYPE_COUNT
};

size_t dtype_bytes(enum dtype t);     /* 0 for DTYPE_NONE */
const char *dtype_name(enum dtype t); /* "float16" */
const char *dtype_npy(enum dtype t);  /* "<f2", "" when npy has none */
enum dtype dtype_from_name(const char *name);
enum dtype dtype_from_npy(const char *descr); /* '=' and '|' accepted for one byte */
enum dtype dtype_from_safetensors(const char *name);

struct shape {
    int rank;                     /* 0..TENSOR_MAX_DIMS */
    int64_t dim[TENSOR_MAX_DIMS]; /* >= 0; unused entries 0 */
};

/* Product of the dimensions; -ERR_TOO_LARGE when it or its bytes pass 2^48. */
int shape_elements(
    const struct shape *s, enum dtype t, uint64_t *ret_elements, uint64_t *ret_bytes,
    struct err *err);
bool shape_equal(const struct shape *a, const struct shape *b);
/* "[2,3]"; returns buf. */
const char *shape_print(const struct shape *s, char *buf, size_t n);

/* A named tensor with its bytes. */
struct tensor {
    char *name; /* owned */
    enum dtype dtype;
    struct shape shape;
    uint8_t *bytes; /* owned; elements * dtype_bytes(dtype) */
    uint64_t size_bytes;
};

struct tensor_set {
    struct tensor *items; /* owned */
    size_t count;
};

void tensor_done(struct tensor *t);
void tensor_set_done(struct tensor_set *s);
/* Allocates zeroed bytes. */
int tensor_init(
    struct tensor *ret, const char *name, enum dtype t, const struct shape *s, struct err *err);
/* One element as a double, and back with one rounding. The index is a flat C-order one. */
double tensor_get(enum dtype t, const uint8_t *bytes, uint64_t index);
void tensor_put(enum dtype t, uint8_t *bytes, uint64_t index, double value);

#endif
