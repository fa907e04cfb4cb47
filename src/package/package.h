/* The application package: what a compile makes and a device loads (design.md D4).
 *
 * Job: tile_image_set + bindings + host calls -> one SQLite file (.ipuexe) -> struct package.
 * Writer: package_write() into staging, journal and sync off; the caller fsyncs and renames.
 * Reader: package_open() treats the file as hostile: application_id, user_version and the exact
 * schema text first, then immutable + defensive + untrusted, every row against limits.
 * Digest: SHA-256 over the rows of all tables but `report`, tables by name, rows by primary key.
 *
 * Invariants the verifier and the reader check:
 *  (1) every tile 0..1471 has exactly one image; images are lists of segments in ascending
 *      address order without overlap, the lowest at 0x4c010, all below 0xe7bb0;
 *  (2) segments name contents by index; a content is stored once;
 *  (3) host pages: rank i (ascending physical tile over participants) owns bytes
 *      [4096 i, 4096 (i+1)) of page area 1, tile-visible at 0x1000 + 4096 i;
 *  (4) a phase holds per tile one transfer of at most 4096 bytes; slices stay inside it and
 *      share no byte. What no slice maps is zero: the host clears a tile's page before it gathers
 *      an input phase, so padding arrives as zeros;
 *  (5) slices of one binding cover each tensor element exactly once (outputs), at least once
 *      (inputs) or as often as it is needed (parameters: a Slice of one may be all that is
 *      read), and nothing outside it;
 *  (6) the profile plan is empty, or has a trace for each participant, in rank order: intervals
 *      that name steps, with their marks inside binding (PROFILE, 1) and shared with no other
 *      trace; calls are sorted by step, and a step names exactly its own.
 *
 * Ownership: a struct package read from a file owns all it points to; free with package_free().
 * One built by the compiler lives in an arena and is only borrowed by package_write().
 */
#ifndef PACKAGE_PACKAGE_H
#define PACKAGE_PACKAGE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/digest.h"
#include "base/err.h"
#include "base/tensor.h"
#include "target/target.h"

#define PACKAGE_APPLICATION_ID 0x69707565 /* "ipue" */
#define PACKAGE_VERSION        2
#define PACKAGE_MAX_BINDINGS   4096
#define PACKAGE_MAX_PHASES     65536
#define PACKAGE_MAX_SLICES     (1u << 22)
#define PACKAGE_MAX_CONTENTS   65536
#define PACKAGE_MAX_SEGMENTS   262144
#define PACKAGE_MAX_BYTES      (1ull << 30)
#define PACKAGE_MAX_STEPS      (1u << 20)
#define PACKAGE_MAX_CALLS      (1u << 21)
#define PACKAGE_MAX_INTERVALS  65536 /* of one tile */

struct package_content {
    const uint8_t *bytes;
    uint32_t size;
};

struct package_segment {
    struct physical_tile tile;
    uint32_t addr;    /* 4-aligned */
    uint32_t content; /* index into contents; its size is the segment's */
};

enum package_role { PACKAGE_INPUT, PACKAGE_OUTPUT, PACKAGE_PARAMETER, PACKAGE_PROFILE };

/* A tensor of the interface. Names live in the job: bindings are found by role and ordinal, in
 * canonical order (D1). */
struct package_binding {
    enum package_role role;
    uint32_t ordinal;
    enum dtype dtype;
    struct shape shape;
};

enum package_call { PACKAGE_INITIALIZE, PACKAGE_RUN, PACKAGE_CALLS };

/* One host phase of a call: an entry and an exit barrier with transfers in between. */
struct package_phase {
    enum package_call call;
    uint32_t index; /* 0, 1, ... within its call */
    bool is_output; /* tile to host */
};

/* An affine map between a tensor and one tile's page in one phase (D7). Element (i0..i5) with
 * 0 <= ik < extent[k] lies at tensor element  tensor_offset + sum ik * tensor_stride[k]  and at
 * page byte  page_offset + sum ik * page_stride[k]. Unused dimensions have extent 1, stride 0. */
struct package_slice {
    uint32_t binding; /* index into bindings */
    uint32_t phase;   /* index into phases */
    struct physical_tile tile;
    uint64_t tensor_offset; /* elements */
    uint32_t page_offset;   /* bytes */
    uint32_t extent[TENSOR_MAX_DIMS];
    int64_t tensor_stride[TENSOR_MAX_DIMS]; /* elements */
    int32_t page_stride[TENSOR_MAX_DIMS];   /* bytes */
};

struct package_symbol {
    int32_t tile; /* physical, -1 = every tile */
    uint32_t addr;
    uint32_t size;
    const char *name;
};

/* ---- Profile plan: what the cycle samples of a run mean. Profile words of a run are two tensors:
 * binding (PROFILE, 0), uint32 [participants][PACKAGE_PROFILE_WORDS]: cycle counter at the first
 * and at the last sample, and runs completed; and, if any tile samples in between, (PROFILE, 1),
 * uint32 [words]: *marks*. A tile with n intervals has n - 1 marks: interval i lasts from mark
 * i - 1 (or the first sample) to mark i (or the last one). */
#define PACKAGE_PROFILE_WORDS 3

enum package_step_kind {
    STEP_EXCHANGE, /* from the arrival at the phase's barrier to the end of its row */
    STEP_COMPUTE,  /* kernel calls */
    STEP_IDLE,     /* barriers of phases in which the tile has no part */
    STEP_REST,     /* everything until the end: the tile had no words left */
    STEP_REPEAT,   /* all turns of a loop but the last */
    STEP_KINDS
};

struct package_step { /* what an interval of one or more tiles holds */
    enum package_step_kind kind;
    uint32_t level, last_level;      /* levels of the program, equal but for IDLE, REST, REPEAT */
    uint32_t first_call, call_count; /* COMPUTE, REST, REPEAT */
    uint32_t predicted;              /* cycles; EXCHANGE: horizon and barrier */
    uint32_t horizon, bound;         /* EXCHANGE: scheduled events, and no schedule is shorter;
                                      * REPEAT: horizon is the number of turns */
    uint64_t bytes;                  /* EXCHANGE: received by all tiles together */
};

struct package_kernel_call {
    uint32_t step;
    uint32_t operation; /* step of the operator plan */
    uint32_t node;      /* its first node in canonical order */
    const char *op;     /* operator of that node, "MatMul" */
    const char *kernel; /* symbol */
    uint32_t predicted; /* cycles */
    uint32_t useful;    /* cycles at the roofline, padding not counted */
};

struct package_trace { /* of the participant with this index */
    uint32_t first;    /* word of (PROFILE, 1) of its first mark */
    uint32_t count;    /* intervals, at least 1 */
    const uint32_t *steps;
};

struct package {
    const char *target;      /* "ipu21" */
    const char *compiler_id; /* 64 hex */
    const char *key;         /* graph key, 64 hex */
    const char *options;     /* canonical JSON of the options that change code */
    uint32_t compute_tiles;  /* --tiles N: the first N logical tiles */
    struct package_content *contents;
    uint32_t content_count;
    struct package_segment *segments; /* sorted by (tile, addr) */
    uint32_t segment_count;
    struct package_binding *bindings; /* sorted by (role, ordinal) */
    uint32_t binding_count;
    struct package_phase *phases; /* sorted by (call, index) */
    uint32_t phase_count;
    struct package_slice *slices; /* sorted by (phase, tile, page_offset) */
    uint32_t slice_count;
    uint16_t *participants; /* physical tiles, ascending: rank -> tile */
    uint32_t participant_count;
    struct package_symbol *symbols; /* sorted by (tile, addr, name) */
    uint32_t symbol_count;
    struct package_step *steps;
    uint32_t step_count;
    struct package_kernel_call *calls; /* by step */
    uint32_t call_count;
    struct package_trace *traces; /* by rank */
    uint32_t trace_count;         /* 0, or participant_count */
    const char *report;           /* JSON build report, not in the digest; may be NULL */
    struct arena *owner;          /* set by package_open(), NULL otherwise */
};

/* Checks all invariants; reports the first fault with table and row in err->where. */
int package_verify(const struct package *p, struct err *err);
/* Writes a new file at path (must not exist). *ret is its digest. */
int package_write(const struct package *p, const char *path, struct digest *ret, struct err *err);
/* Reads and verifies. expected may be NULL; otherwise the digest must equal it. */
int package_open(
    const char *path, const struct digest *expected, struct package **ret,
    struct digest *ret_digest, struct err *err);
void package_free(struct package *p); /* of package_open(); NULL accepted */

const char *package_step_kind_name(enum package_step_kind k);
/* Human-readable listing: header, interface, phases, each distinct image once with disassembly. */
int package_print(const struct package *p, FILE *out, struct err *err);

#endif
