/* npy headers (versions 1 to 3, little-endian, C order), treated as hostile. Data follows the
 * header; nothing here reads it. */
#ifndef BASE_NPY_H
#define BASE_NPY_H

#include "base/tensor.h"

#define NPY_MAX_HEADER_BYTES 10240

struct npy_header {
    enum dtype dtype;
    struct shape shape;
    size_t data_offset;  /* from the start of the file */
    uint64_t data_bytes; /* shape times dtype */
};

/* bytes holds at least the start of the file (NPY_MAX_HEADER_BYTES + 12 always suffice).
 * file_bytes is the size of the whole file: data_offset + data_bytes must equal it. */
int npy_parse(
    const uint8_t *bytes, size_t n, uint64_t file_bytes, struct npy_header *ret, struct err *err);
/* Writes a version 1 header, padded to 64 bytes; *ret_bytes is its size, at most n. */
int npy_print(
    enum dtype t, const struct shape *s, uint8_t *buf, size_t n, size_t *ret_bytes,
    struct err *err);
/* Whole file -> tensor (owned by the caller), and back. `name` is copied. */
int npy_load(const char *path, const char *name, struct tensor *ret, struct err *err);
int npy_save(const char *path, const struct tensor *t, struct err *err);

#endif
