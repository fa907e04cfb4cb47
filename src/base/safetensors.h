/* safetensors headers, treated as hostile: 8-byte little-endian header length, JSON object of
 * name -> {dtype, shape, data_offsets}, then the data without gap or overlap. */
#ifndef BASE_SAFETENSORS_H
#define BASE_SAFETENSORS_H

#include "base/tensor.h"

#define SAFETENSORS_MAX_HEADER_BYTES (16u << 20)
#define SAFETENSORS_MAX_TENSORS      65536

struct safetensors_entry {
    char *name; /* owned by the index */
    enum dtype dtype;
    struct shape shape;
    uint64_t offset; /* from the start of the file */
    uint64_t size_bytes;
};

struct safetensors {
    struct safetensors_entry *entries; /* owned, sorted by name */
    size_t count;
};

/* Reads the header from fd (not its data). label names the file in errors. */
int safetensors_open(int fd, const char *label, struct safetensors *ret, struct err *err);
void safetensors_done(struct safetensors *s);
const struct safetensors_entry *safetensors_find(const struct safetensors *s, const char *name);

#endif
