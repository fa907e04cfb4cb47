/* Emission: from a scheduled tile graph to what each tile holds at start, and what the host does.
 *
 * Job: link runtime and kernels; plan the host's pages; lay out programs, rows and tables; emit the
 * supervisor program of each tile; put images together. Input: products of lower, place and
 * exchange (borrowed). Output: a struct package in the arena.
 *
 * A tile's memory before the first barrier (runtime/runtime.h has the map):
 *
 *   RT_TEXT_BASE   runtime, kernels         the same bytes on every tile
 *   after it       program, rows            8-aligned; what does not fit element 0 goes on
 *   RT_DATA0       more kernels, rows       in whole elements that data does not get
 *   RT_HEADERS     packet headers           tiles with a host page
 *   RT_TABLES      program address, phase descriptors, kernel descriptors; what does not fit goes
 *                  on in elements behind the code of RT_DATA0; at its end the words of marks
 *
 * Roles: *active* tiles run kernels, exchange or hold host data; *owner* tiles are not active but
 * grant host transfers to some that are; all others are *idle* and share one image.
 *
 * Invariants, checked by emit_verify(): (1) every word of program and row decodes; (2) every branch
 * target lies in code; (3) pieces of an image neither overlap nor leave their limits; (4) all tiles
 * count the same barriers in `initialize` and in one turn of `run`.
 */
#ifndef EMIT_EMIT_H
#define EMIT_EMIT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "asm/asm.h"
#include "base/arena.h"
#include "base/err.h"
#include "exchange/build.h"
#include "kernels/kernels.h"
#include "lower/lower.h"
#include "package/package.h"
#include "place/place.h"

#define EMIT_MAX_OVERFLOW 9 /* elements of region 0 that code may take from data */

/* ---- Text: runtime and kernels --------------------------------------------------------- */
struct emit_kernels {
    struct kernel_variant *variants; /* first use first */
    uint32_t count;
    const struct asm_object **objects;
};

struct emit_text {
    const uint8_t *bytes, *more; /* at RT_TEXT_BASE, and at RT_DATA0 what did not fit */
    uint32_t size, more_size;
    uint32_t host_in, host_out, sample_start, sample_end, advance; /* runtime routines: addresses */
    const struct kernel_variant *variants;
    uint32_t *kernel_addr; /* by variant */
    uint32_t variant_count;
    struct asm_symbol *symbols; /* ascending addresses */
    uint32_t symbol_count;
};

void emit_plan_kernels(const struct tile_graph *tg, struct arena *a, struct emit_kernels *ret);
int emit_compile_kernels(struct emit_kernels *k, struct arena *a, struct err *err);
int emit_link(
    const struct asm_object *runtime, const struct emit_kernels *k, struct arena *a,
    struct emit_text **ret, struct err *err);

/* ---- Samples (sample.c) ------------------------------------------------------------------ */
/* Cycle samples in the program: none but the first and the last of a run, one at each change
 * between exchange and compute (the default of jobs), or one a kernel call too. */
enum emit_profile { EMIT_PROFILE_OFF, EMIT_PROFILE_PHASE, EMIT_PROFILE_KERNEL };

#define EMIT_MAX_MARKS 1024u /* words of one tile: a page */

struct emit_index;

struct emit_samples {
    enum emit_profile profile;
    uint32_t *words; /* set aside for marks, by logical tile */
};

void emit_samples_build(
    const struct tile_graph *tg, const struct emit_index *index, enum emit_profile profile,
    struct arena *a, struct emit_samples **ret);

struct emit_interval {
    enum package_step_kind kind;
    uint32_t level, last_level;
    uint32_t vertex_first, vertex_count; /* range of emit_index.vertex */
};

struct emit_trace {
    struct emit_interval *intervals;
    uint32_t count, cap;
};

/* ---- Host plan -------------------------------------------------------------------------- */
enum emit_stream { STREAM_INITIALIZE, STREAM_INPUT, STREAM_OUTPUT, STREAMS };

struct emit_piece {          /* bytes between a page and tile memory */
    struct buffer_id buffer; /* NO_BUFFER: offset is an absolute address */
    uint32_t offset, page_offset, bytes;
};

struct emit_page {
    struct emit_piece *pieces;
    uint32_t piece_count, piece_cap;
    uint32_t bytes;
};

struct emit_pages { /* of one tile and stream; page i travels in phase i of the stream */
    struct emit_page *pages;
    uint32_t count, cap;
};

struct emit_grant {
    uint32_t words[2];
};

struct emit_phase {
    enum emit_stream stream;
    uint32_t index;            /* in its stream */
    struct emit_grant *grants; /* by owner slot (physical & 0x3d of row 0), 64 entries */
};

struct emit_host {
    struct emit_pages (*tiles)[STREAMS]; /* by logical tile */
    struct emit_phase *phases;           /* initialize, then input, then output */
    uint32_t phase_count;
    uint32_t stream_phases[STREAMS];
    struct package_binding *bindings;
    uint32_t binding_count;
    struct package_slice *slices; /* unsorted until emit_images() */
    uint32_t slice_count;
    uint16_t *participants; /* physical, ascending */
    uint32_t participant_count;
    uint64_t bytes[STREAMS];
};

/* samples NULL: no marks. Marks follow the outputs' bytes in a tile's pages: they make another
 * output phase only where those are full. */
int emit_host_build(
    const struct tile_graph *tg, const struct emit_samples *samples, struct arena *a,
    struct emit_host **ret, struct err *err);

/* ---- Code layout ------------------------------------------------------------------------ */
struct emit_index {       /* calls of each logical tile, in program order */
    uint32_t *tile_first; /* TARGET_TILES + 1 */
    uint32_t *vertex;     /* indices into tg->vertices */
};

void emit_index_build(const struct tile_graph *tg, struct arena *a, struct emit_index *ret);

struct emit_context { /* what the later steps read; all borrowed */
    const struct emit_index *index;
    const struct tile_graph *tg;
    const struct placement *placement;
    const struct exchange_plan *exchange;
    const struct emit_text *text;
    const struct emit_host *host;
    const struct emit_samples *samples; /* NULL: the first and the last sample only */
};

struct emit_tile_layout {
    uint32_t program, program_words;
    uint32_t *row;             /* by level: address, 0 without a row */
    uint32_t main_bytes;       /* used of element 0 after the text */
    uint32_t more_bytes;       /* used from RT_DATA0 on, text included */
    uint32_t table_words;      /* the first of them from RT_TABLES on, */
    uint32_t table_main_words; /* the others, if any, in elements of their own behind the code */
    uint32_t table_more;       /* address of the first of those */
    uint32_t marks;            /* address of the marks' words: the end of the tables' area */
};

struct emit_layout {
    struct emit_tile_layout *tiles; /* by logical tile */
    uint8_t *overflow_elements;     /* by logical tile, for place_options */
    uint32_t max_program_bytes, max_row_bytes, max_table_bytes;
};

/* Sizes depend on no address, so the layout may be made before the final placement. */
int emit_layout_build(
    const struct emit_context *c, struct arena *a, struct emit_layout **ret, struct err *err);

/* ---- Code and images -------------------------------------------------------------------- */
struct emit_code {
    uint32_t **programs;       /* by logical tile, layout's program_words each */
    uint32_t **tables;         /* by logical tile, layout's table_words each, from RT_TABLES */
    struct emit_trace *traces; /* by logical tile: what lies between its samples */
};

int emit_code_build(
    const struct emit_context *c, const struct emit_layout *l, struct arena *a,
    struct emit_code **ret, struct err *err);
int emit_verify(
    const struct emit_context *c, const struct emit_layout *l, const struct emit_code *code,
    struct err *err);
void emit_print(
    const struct emit_context *c, const struct emit_layout *l, const struct emit_code *code,
    FILE *out);

struct emit_names { /* texts that the package carries; borrowed */
    const char *compiler_id, *key, *options, *report;
};
int emit_images(
    const struct emit_context *c, const struct emit_layout *l, const struct emit_code *code,
    const struct emit_names *names, struct arena *a, struct package **ret, struct err *err);

#endif
