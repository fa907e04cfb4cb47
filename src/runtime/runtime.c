/* The tile runtime as an object for the linker, and what the emitter must know about its host
 * phases: packet headers and request grants (device fact sheet 6.1 and 6.3). */
#include "runtime/runtime.h"

#include <string.h>

#include "runtime/runtime_internal.h"

#define CHUNKS       16
#define CHUNK_BYTES  (RT_STAGING_BYTES / CHUNKS)
#define PAGE_BYTES   4096u
#define PAGES_BASE   0x1000u /* host address of the page of rank 0 */
#define WINDOW_FIELD 0x200u  /* destination field of 0x50000: units of 32 bytes from 0x4C000 */

/* First words of packets, device fact sheet 6.3: format in [31:29], end of stream in [27:26]. */
#define WRITE_LONG 0xA0000000u
#define READ_SHORT 0xC0000000u
#define READ_LONG  0xE0000000u
#define STREAM_END 0x0C000000u

#define GRANT_WORD_BITS 24 /* of the first grant word */

int runtime_assemble(struct arena *a, struct asm_object **ret, struct err *err) {
    static const struct asm_def defs[] = {
        {"RT_GRANT", RT_GRANT}, {"RT_HEADERS", RT_HEADERS}, {"RT_STAGING", RT_STAGING},
        {"RT_STATE", RT_STATE}, {"RT_PROGRAM", RT_PROGRAM},
    };
    struct asm_source source = runtime_text_runtime();
    return asm_assemble(&source, ISA_SUPERVISOR, defs, sizeof(defs) / sizeof(defs[0]), a, ret, err);
}

static uint32_t window_field(uint32_t addr) {
    return WINDOW_FIELD | (addr - RT_GRANT) >> 5;
}

void runtime_headers(struct physical_tile tile, uint32_t rank, uint32_t ret[RT_HEADER_WORDS]) {
    const uint32_t source = (uint32_t)tile.n << 15;
    const uint32_t odd = (uint32_t)(tile.n & 1) << 31;
    uint32_t *reads = ret;
    uint32_t *writes = ret + 2 * CHUNKS;
    uint32_t *close = ret + 4 * CHUNKS;
    memset(ret, 0, RT_HEADER_WORDS * sizeof(*ret));

    /* Long packets count host address and length in units of 64 bytes. */
    for (uint32_t i = 0; i < CHUNKS; i++) {
        uint32_t chunk = CHUNKS - 1 - i;
        uint32_t host = PAGES_BASE + PAGE_BYTES * rank + CHUNK_BYTES * chunk;
        uint32_t place = odd | (host / 64) << 4 | CHUNK_BYTES / 64;
        reads[2 * i] = READ_LONG | source | window_field(RT_STAGING + CHUNK_BYTES * chunk) |
                       (chunk == 0 ? STREAM_END : 0);
        reads[2 * i + 1] = place;
        writes[2 * i] = WRITE_LONG | source;
        writes[2 * i + 1] = place;
    }
    close[0] = READ_SHORT | STREAM_END | source | window_field(RT_DUMMY);
    close[1] = odd;
}

void runtime_grant(struct physical_tile owner, const bool *participates, uint32_t ret[2]) {
    ret[0] = 0;
    ret[1] = 0;
    for (uint16_t n = 0; n < TARGET_TILES; n++) {
        struct physical_tile tile = {n};
        if (!participates[n] || target_host_owner(tile).n != owner.n) {
            continue;
        }
        int bit = target_host_grant_bit(tile);
        if (bit < GRANT_WORD_BITS) {
            ret[0] |= 1u << bit;
        } else {
            ret[1] |= 1u << (bit - GRANT_WORD_BITS);
        }
    }
}
