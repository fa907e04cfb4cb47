/* Bounded little-endian access (R23). All device and file formats of this project are
 * little-endian; nothing casts a struct over a buffer. */
#ifndef BASE_BYTES_H
#define BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline uint16_t load_le16(const void *p) {
    const uint8_t *b = p;
    return (uint16_t)(b[0] | b[1] << 8);
}

static inline uint32_t load_le32(const void *p) {
    const uint8_t *b = p;
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static inline uint64_t load_le64(const void *p) {
    const uint8_t *b = p;
    return (uint64_t)load_le32(b) | (uint64_t)load_le32(b + 4) << 32;
}

static inline void store_le16(void *p, uint16_t v) {
    uint8_t *b = p;
    b[0] = (uint8_t)v;
    b[1] = (uint8_t)(v >> 8);
}

static inline void store_le32(void *p, uint32_t v) {
    uint8_t *b = p;
    store_le16(b, (uint16_t)v);
    store_le16(b + 2, (uint16_t)(v >> 16));
}

static inline void store_le64(void *p, uint64_t v) {
    uint8_t *b = p;
    store_le32(b, (uint32_t)v);
    store_le32(b + 4, (uint32_t)(v >> 32));
}

/* A reader that remembers its first overrun: read all fields, then ask `failed` once. */
struct bytes_reader {
    const uint8_t *data; /* borrowed */
    size_t size;
    size_t at;
    bool failed;
};

static inline const uint8_t *bytes_take(struct bytes_reader *r, size_t n) {
    if (r->failed || r->size - r->at < n) {
        r->failed = true;
        return NULL;
    }
    const uint8_t *p = r->data + r->at;
    r->at += n;
    return p;
}

static inline uint32_t bytes_le32(struct bytes_reader *r) {
    const uint8_t *p = bytes_take(r, 4);
    return p != NULL ? load_le32(p) : 0;
}

static inline uint64_t bytes_le64(struct bytes_reader *r) {
    const uint8_t *p = bytes_take(r, 8);
    return p != NULL ? load_le64(p) : 0;
}

#endif
