/* Placement: an address for each buffer of a tile graph.
 *
 * Job: per tile, lay constants first (they live for ever), then everything else by lifetime, into
 * two data ranges, so that kernel contracts and exchange rules hold. Input: a tile graph and the
 * options (borrowed). Output: struct placement.
 *
 *   data_base + overflow elements .. 0x80000   region 0: elements of 16 KiB
 *   0x80000 + shift .. 0xE7BB0                 region 1: interleaved pairs, units of 32 KiB
 *
 * Two buffers *conflict* when a kernel must find them in different elements, or when one move reads
 * the first and writes the second on one tile; then they share no unit. Buffers that are sent and
 * received in one phase are kept apart where there is room: their windows need not wait for each
 * other then (exchange fact sheet 4.3).
 *
 * First fit by (birth, death, size); a tile that fails is tried again by size, then both once more
 * with the gap that each buffer fills best, then all that with the other region first.
 *
 * Invariants, checked by place_verify(): (1) live buffers never overlap, tails included; (2)
 * alignment, region and range as the kernels say; (3) conflicting buffers share no unit; (4)
 * literals lie where an image may hold them.
 */
#ifndef PLACE_PLACE_H
#define PLACE_PLACE_H

#include <stdint.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/err.h"
#include "lower/lower.h"

#define PLACE_MIN_ALIGN 32u /* panels have 32 bytes a row; weights 256 are 8-aligned by it */

struct place_options {
    uint32_t data_base; /* first data byte of region 0, element-aligned */
    /* By logical tile: taken by code from data_base on; or NULL. */
    const uint8_t *overflow_elements;
    uint32_t shift;         /* of region 1's start, a multiple of 4096 below 32 KiB */
    uint32_t literal_limit; /* first address that an image may not reach */
};

struct place_need { /* what kernels ask of a buffer */
    enum kernel_memory memory;
    uint32_t align;
    uint32_t tail; /* bytes past the end that may be read */
};

struct place_pair {
    struct buffer_id other;
    bool is_hard;
};

struct placement {
    const struct tile_graph *tg; /* borrowed */
    struct place_options options;
    uint32_t *addr;          /* by buffer */
    struct place_need *need; /* by buffer */
    uint32_t *pair_first;    /* by buffer, buffer_count + 1: its range of pairs */
    struct place_pair *pairs;
    uint32_t *tile_first;      /* by logical tile + 1: its range of by_tile */
    struct buffer_id *by_tile; /* buffers grouped by tile, ascending ids */
    uint32_t peak0, peak1;     /* highest used offset in each region over all tiles */
    /* Sum over tiles, phases and units of bytes sent from the unit x bytes received into it: what
     * may have to wait for one another. */
    uint64_t score;
};

/* -ERR_DOES_NOT_FIT names the physical tile, the class, the bytes and the largest buffers. */
int place_build(
    const struct tile_graph *tg, const struct place_options *options, struct arena *a,
    struct placement **ret, struct err *err);
int place_verify(const struct placement *p, struct err *err);
void place_print(const struct placement *p, FILE *out);

/* Contention unit of an address: 16 KiB in region 0, 32 KiB in region 1. */
uint32_t place_unit_start(uint32_t addr);
uint32_t place_unit_end(uint32_t addr); /* exclusive */

#endif
