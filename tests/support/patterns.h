/* Communication patterns over all 1,472 tiles as tile graphs, without a model: built by hand,
 * then placed, scheduled, emitted, packed, loaded and run by the same stages as any program.
 *
 * All tensors have the shape [1472][16 x panels]; logical tile t holds row t. Input 0 is written
 * by the host at the start of a run, outputs are read by it at the end. A pattern is built level
 * by level: pattern_level() opens one, pattern_move() and pattern_add() fill it, and what is moved
 * in a level is there for its calls and for later moves of its list.
 *
 *     pattern_init(&p, arena, DTYPE_UINT16, 2, 1);
 *     pattern_level(&p);
 *     struct buffer_id to = pattern_buffer(&p, 7);
 *     pattern_move(&p, pattern_input(&p, 3), &to, 1);
 *     pattern_output(&p, 0, 7, to); ... for every tile
 *     pattern_compile(&p, path, &figures, &err), pattern_run(path, ...)
 *
 * Everything a pattern owns lies in the arena; calls that build have no errors but its limit. */
#ifndef TESTS_SUPPORT_PATTERNS_H
#define TESTS_SUPPORT_PATTERNS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/digest.h"
#include "base/err.h"
#include "base/vec.h"
#include "lower/lower.h"
#include "sim/sim.h"

#define PATTERN_KEEP_ALL UINT32_MAX

struct pattern {
    struct arena *arena; /* borrowed */
    struct graph graph;
    struct plan plan;
    struct tile_graph tg;
    uint32_t panels;    /* of 16 elements of 2 bytes, by tile and tensor */
    uint32_t drop;      /* destination, counted over the pattern, that no move serves: a fault
                          * that a test injects; PATTERN_KEEP_ALL = none */
    uint32_t delivered; /* destinations so far, the dropped one included */
    VEC(struct lower_buffer) buffers;
    VEC(struct lower_vertex) vertices;
    VEC(struct lower_move) moves;
    VEC(struct lower_dest) dests;
    VEC(struct lower_level) levels;
};

/* dtype: any of 2 bytes. */
void pattern_init(
    struct pattern *p, struct arena *a, enum dtype dtype, uint32_t panels, uint32_t outputs);
struct buffer_id pattern_input(const struct pattern *p, uint32_t tile);
struct buffer_id pattern_buffer(struct pattern *p, uint32_t tile);
void pattern_level(struct pattern *p);
/* Moves a whole buffer to buffers of other tiles. */
void pattern_move(
    struct pattern *p, struct buffer_id source, const struct buffer_id *dests, uint32_t count);
/* A call of the addition kernel on f16; tiles ascend inside a level. */
struct buffer_id pattern_add(struct pattern *p, struct buffer_id a, struct buffer_id b);
void pattern_output(struct pattern *p, uint32_t output, uint32_t tile, struct buffer_id b);

struct pattern_figures {
    struct digest digest; /* of the package */
    uint32_t phases;
    uint64_t moved_words;                         /* counted per receiver */
    uint64_t compute_cycles;                      /* estimate, busiest tile of each level */
    uint64_t horizon, lower_bound, latency_bound; /* sums over phases */
    uint32_t max_row_bytes;
};

/* Closes the pattern, runs and verifies all stages and writes the package to path, which must not
 * exist. lower_verify() runs on unharmed patterns only; call it for the others. */
int pattern_compile(
    struct pattern *p, const char *path, struct pattern_figures *ret, struct err *err);

struct pattern_result {
    uint8_t *outputs;             /* owned: [runs][output][1472][32 x panels] bytes */
    uint64_t output_bytes;        /* of one output of one run */
    uint64_t cycles;              /* device cycles of the first run */
    struct sim_counters counters; /* of load and runs */
    double load_s, run_s;         /* wall times, for benches */
};

/* Loads the package into a new simulated device and runs it. input: `runs` tensors, borrowed.
 * folder: for the lock file. */
int pattern_run(
    const char *path, const struct digest *digest, const char *folder,
    const struct sim_options *sim, const uint8_t *input, uint32_t runs, struct pattern_result *ret,
    struct err *err);
void pattern_result_done(struct pattern_result *r);

#endif
