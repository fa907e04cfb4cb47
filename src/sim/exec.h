/* Frame of the exec_*.c files: one function an instruction form, named exec_<id>, declared here
 * from the same rows that fill exec_table, so that a missing or misspelt one does not link.
 *
 * Contract: read registers, check, compute; then write. A nonzero answer before the first write
 * leaves the context as it was (FP_STS and the exception type apart). */
#ifndef SIM_EXEC_H
#define SIM_EXEC_H

#include "sim/tile.h"

#define ISA_INSN(id, ...) exec_fn exec_##id;
#include "isa/isa.def"
#undef ISA_INSN

#define EXEC(id)                                                                                   \
    int exec_##id(struct tile *t __attribute__((unused)), struct context *c, const struct dec *d)

#define RM(letter)     (c->m[d->r[letter]])
#define WM(letter)     (c->m[d->w[letter]])
#define RA(letter)     (c->a[d->r[letter]])
#define WA(letter)     (c->a[d->w[letter]])
#define RA2(letter, i) (c->a[d->r[letter] + (i)])
#define WA2(letter, i) (c->a[d->w[letter] + (i)])

/* Lane permutations that both pipes have. */
static inline uint32_t lane_lo(uint32_t x, uint32_t y) {
    return (x & 0xFFFFu) | y << 16;
}

static inline uint32_t lane_hi(uint32_t x, uint32_t y) {
    return x >> 16 | (y & 0xFFFF0000u);
}

static inline uint32_t lane_roll16(uint32_t x, uint32_t y) {
    return x >> 16 | y << 16;
}

static inline uint32_t lane_bytes(uint32_t b0, uint32_t b1, uint32_t b2, uint32_t b3) {
    return (b0 & 0xFFu) | (b1 & 0xFFu) << 8 | (b2 & 0xFFu) << 16 | b3 << 24;
}

static inline uint32_t lane_roll8l(uint32_t x, uint32_t y) {
    return x >> 24 | y << 8;
}

static inline uint32_t lane_roll8r(uint32_t x, uint32_t y) {
    return x >> 8 | y << 24;
}

static inline uint32_t lane_shuf_lo(uint32_t x, uint32_t y) {
    return lane_bytes(x, y, x >> 8, y >> 8);
}

static inline uint32_t lane_shuf_hi(uint32_t x, uint32_t y) {
    return lane_bytes(x >> 16, y >> 16, x >> 24, y >> 24);
}

static inline uint32_t lane_sort8_lo(uint32_t x, uint32_t y) {
    return lane_bytes(x, x >> 16, y, y >> 16);
}

static inline uint32_t lane_sort8_hi(uint32_t x, uint32_t y) {
    return lane_bytes(x >> 8, x >> 24, y >> 8, y >> 24);
}

static inline uint32_t lane_sort8(uint32_t x) {
    return lane_bytes(x, x >> 16, x >> 8, x >> 24);
}

static inline uint32_t lane_swap8(uint32_t x) {
    return lane_bytes(x >> 8, x, x >> 24, x >> 16);
}

#endif
