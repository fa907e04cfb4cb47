/* The compiler as a library: a canonical graph in, a package file out (design.md section 3).
 *
 * Job: runs the pass table of passes.c in one loop that checks what a pass needs, times it,
 * verifies its product, prints it on request, rewinds scratch memory and reports an event.
 * Input: a graph (borrowed), options, the graph's key. Output: one package file at a path that
 * does not exist yet, its digest, times and figures.
 *
 *   graph ─ plan (finalists) ─ tile_graph ─ placement ─ exchange_plan ─ images ─ package
 *
 * Events carry a stable id, the message of the run log, and fields as JSON text:
 *   plan.finalist            one a retained finalist: estimated cycles and bytes
 *   plan.scheduled           one a finalist that was lowered, placed and scheduled
 *   plan.refused             one a finalist that could not be: code of the reason
 *   plan.selected            the finalist taken
 *   plan.repeat              equal consecutive blocks that the selected plan runs as a loop
 *   package.phase            one a pass: phase, elapsed_ms, success
 *   exchange.reused          one a phase whose known order stands at the final addresses: phase
 *   package.lowered, package.support_memory, package.cost, exchange.placement
 *
 * Same graph and options give the same bytes (R22): no time, address or hash order reaches the
 * package, nor which schedules were stored; times and those counts reach events and the result
 * only.
 *
 * Everything is made in two arenas of this call, limited by memory_bytes. Running out of them is
 * ERR_COMPILE_OOM; a program too large for the tiles is ERR_DOES_NOT_FIT and names the tile.
 */
#ifndef COMPILE_COMPILE_H
#define COMPILE_COMPILE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/digest.h"
#include "base/err.h"
#include "emit/emit.h"
#include "graph/graph.h"

#define COMPILE_MAX_FINALISTS  4
#define COMPILE_MAX_PASSES     32
#define COMPILE_DEFAULT_TILES  64
#define COMPILE_DEFAULT_MEMORY (2ull << 30)

enum compile_accumulate { ACCUMULATE_F32, ACCUMULATE_F16 };
/* Equal consecutive blocks of the graph: one loop where it fits, or code for each of them. The
 * results are the same bit for bit, unless the loop does not fit. */
enum compile_repeat { REPEAT_AUTO, REPEAT_OFF };

/* Options that change code. */
struct compile_options {
    uint32_t tiles; /* first N logical tiles, 1..1472 */
    enum compile_accumulate accumulate;
    enum emit_profile profile;
    enum compile_repeat repeat;
};

/* "off", "phase", "kernel". */
const char *compile_profile_name(enum emit_profile p);
bool compile_profile_find(const char *name, enum emit_profile *ret);
/* Text of the options as the package holds them:
 * {"accumulate":"f32","profile":"phase","repeat":"auto","tiles":64}. */
const char *compile_options_json(const struct compile_options *o, struct arena *a);
/* -ERR_INVALID with the option's name and range. */
int compile_options_check(const struct compile_options *o, struct err *err);

/* fields_json: one JSON object, borrowed during the call. */
typedef void
compile_event_fn(void *arg, const char *event, const char *message, const char *fields_json);

struct compile_job {
    const struct graph *graph; /* canonical, borrowed */
    struct compile_options options;
    const char *key;                   /* 64 hex, borrowed */
    const char *compiler_id;           /* 64 hex, borrowed */
    const char *package_path;          /* new file */
    const char *schedules_path;        /* stored schedules, read only; NULL or unreadable = none */
    const char *staged_schedules_path; /* new file for those made here, NULL = not wanted */
    uint64_t memory_bytes;             /* limit of both arenas together, 0 = default */
    uint64_t fail_after;               /* test hook of the main arena (base/arena.h), 0 = off */
    compile_event_fn *event;           /* may be NULL */
    void *event_arg;
    const char *print; /* stages to print, comma-separated ("plan,place"), or NULL */
    FILE *print_to;    /* borrowed; required with print */
};

struct compile_pass_time {
    const char *name; /* static */
    double elapsed_ms;
    double cpu_ms;       /* of the process */
    uint64_t peak_bytes; /* of the arenas, each at its own time */
};

struct compile_result {
    struct digest digest;
    uint64_t bytes; /* of the package file */
    struct compile_pass_time passes[COMPILE_MAX_PASSES];
    uint32_t pass_count;
    uint32_t tiles;            /* option */
    uint32_t active_tiles;     /* that run kernels or exchange */
    uint32_t exchange_phases;  /* the sum of the next three */
    uint32_t phases_scheduled; /* order made by this compile */
    uint32_t phases_replayed;  /* order read from schedules_path */
    uint32_t phases_refused;   /* order did not suit the addresses: searched with them */
    uint32_t kernel_calls;     /* over all tiles */
    uint32_t repeat_turns;     /* of the loop over equal blocks; 0 without one */
    uint32_t code_bytes;       /* text, program and rows of the tile that has most */
    uint32_t table_bytes;      /* likewise */
    uint64_t estimated_cycles; /* compute + scheduled exchange + barriers of one run */
    uint64_t exchange_cycles;  /* the exchange part of it, barriers included */
    uint32_t finalists, selected;
};

int compile_run(const struct compile_job *job, struct compile_result *ret, struct err *err);

/* For the main() of a process that lives to compile: what an arena gives back stays with the
 * process for the next one, up to 1 GiB, because every page taken anew costs a fault.
 * Changes malloc for the whole process. */
void compile_keep_memory(void);

#endif
