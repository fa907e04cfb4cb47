/* Shared by the files of emit/ only. */
#ifndef EMIT_EMIT_INTERNAL_H
#define EMIT_EMIT_INTERNAL_H

#include "emit/emit.h"
#include "runtime/runtime.h"

#define EMIT_PAGE_BYTES 4096u

enum emit_role {
    ROLE_IDLE,   /* all such tiles have one program */
    ROLE_LENDER, /* its bus, to its partner's pairs: rows of its own, nothing else */
    ROLE_OWNER,  /* grants host transfers */
    ROLE_ACTIVE
};

/* host.c */
enum emit_role emit_role(const struct emit_context *c, uint32_t logical);
/* The page a tile moves in a phase, NULL when it moves none. */
const struct emit_page *
emit_phase_page(const struct emit_host *h, uint32_t logical, const struct emit_phase *p);
/* The grant an owner gives in a phase, NULL for other tiles and for empty grants. */
const struct emit_grant *
emit_phase_grant(const struct emit_host *h, uint32_t logical, const struct emit_phase *p);

/* sample.c */
uint32_t emit_mark_words(const struct emit_samples *s, uint32_t logical);
/* Address of a tile's words: the end of the tables' area. */
uint32_t emit_marks_addr(const struct emit_samples *s, uint32_t logical);
/* The next interval of a tile with `words` words: true when its mark is stored (in word count - 2
 * of the tile's), false for the first one and when the words are used up. */
bool emit_open_interval(
    struct emit_trace *t, struct arena *a, uint32_t words, const struct emit_interval *x);
/* Fills steps, calls and traces of the package. */
void emit_profile_plan(
    const struct emit_context *c, const struct emit_code *code, struct arena *a, struct package *p);

/* slices.c: bytes [first, last) of a shard's buffer at page_offset of a page, as affine maps. */
struct slice_target {
    struct emit_host *host;
    struct arena *arena;
    uint32_t cap;
    uint32_t binding, phase;
    struct physical_tile tile;
};
/* First column of a panel; *ret_left columns of the tensor from it to the end of its unit. */
uint32_t emit_panel_column(const struct lower_shard *s, uint32_t panel, uint32_t *ret_left);
uint32_t emit_shard_granule(const struct lower_shard *s, const struct lower_buffer *b);
void emit_shard_slices(
    struct slice_target *t, const struct tile_graph *tg, const struct lower_shard *s,
    uint32_t first, uint32_t last, uint32_t page_offset);
void emit_push_slice(struct slice_target *t, const struct package_slice *s);

/* supervisor.c: the program of one tile. */
struct emit_program {
    uint32_t *words;
    uint32_t count, cap;
    uint32_t init_barriers, turn_barriers;
    struct emit_trace trace;
};
int emit_tile_program(
    const struct emit_context *c, const struct emit_tile_layout *l, uint32_t logical,
    struct arena *a, struct emit_program *ret, struct err *err);

/* worker.c: descriptors. Order of a tile's table: program address, a zero, phases, calls,
 * what a loop advances; supervisor.c and this file walk it in this order and so agree on every
 * address. */
#define EMIT_TABLE_HEAD 2u
uint32_t emit_phase_words(const struct emit_context *c, uint32_t logical, uint32_t phase);
uint32_t emit_table_words(const struct emit_context *c, uint32_t logical);
/* Words of the longest prefix of whole descriptors that has at most `limit` words. */
uint32_t emit_table_prefix(const struct emit_context *c, uint32_t logical, uint32_t limit);
uint32_t emit_table_addr(const struct emit_tile_layout *l, uint32_t word);
void emit_tile_table(
    const struct emit_context *c, const struct emit_tile_layout *l, uint32_t logical,
    uint32_t *out);

/* loop.c: what moves on from turn to turn. Words of the loop's part of a table, its last one: the
 * turns left, and where anything moves two descriptors of rt_advance (on, and back to the start), a
 * spare word, the list; 0 for a tile that is idle in the loop. */
uint32_t emit_loop_words(const struct emit_context *c, uint32_t logical);
void emit_loop_table(
    const struct emit_context *c, const struct emit_tile_layout *l, uint32_t logical,
    uint32_t *out);
/* Levels after whose calls the words move on, and back: UINT32_MAX where nothing moves, and for the
 * way back when no level follows the loop. */
struct emit_loop_plan {
    uint32_t on, back;
};
struct emit_loop_plan emit_loop_plan(const struct emit_context *c, uint32_t logical);
/* What is added to a word of a call at first: it may start one slot early. */
uint32_t emit_loop_start(
    const struct emit_context *c, const struct emit_loop_plan *plan, const struct lower_vertex *v,
    uint32_t word);
/* The tile exchanges or computes in the loop. */
bool emit_loop_is_busy(const struct emit_context *c, uint32_t logical);
/* Barriers of one turn. */
uint32_t emit_loop_barriers(const struct emit_context *c);

/* link.c */
uint32_t emit_kernel_addr(const struct emit_text *t, const struct kernel_variant *v);

#endif
