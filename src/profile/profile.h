/* The profile of one run: where its cycles went, as a file and as a report.
 *
 * Job: the words that tiles stored during a run, and the package's profile plan that says what lies
 * between them -> samples; samples -> an .ipuprof file (SQLite, design.md D4; proto/profile.md),
 * and -> a JSON report: critical path, useful utilisation, groups.
 *
 * Time is in cycles from the origin of design.md D3, the latest first sample of any tile: before
 * it not every tile is at work, so samples may start below 0. Counters are 32 bits wide and wrap;
 * a tile's samples follow one another by differences, and tiles are set against each other by
 * differences below 2^31.
 *
 * Invariants: (1) samples are sorted by (tile, index) and those of a tile adjoin; (2) `cycles` is
 * the latest end of a sample; (3) a profile owns all it points to: free with profile_free().
 */
#ifndef PROFILE_PROFILE_H
#define PROFILE_PROFILE_H

#include <jansson.h>
#include <stdint.h>

#include "base/digest.h"
#include "base/err.h"
#include "package/package.h"

#define PROFILE_APPLICATION_ID 0x69707566 /* "ipuf" */
#define PROFILE_VERSION        1
#define PROFILE_CLOCK_HZ       1500000000u

struct profile_sample {
    struct physical_tile tile;
    uint32_t index;     /* 0, 1, ... on its tile */
    uint32_t step;      /* into steps */
    int64_t start, end; /* cycles from the origin */
};

struct profile {
    struct arena *arena; /* owned */
    const char *options; /* the package's, JSON text */
    const char *package; /* its digest, 64 hex */
    const char *key;
    uint64_t run;
    uint32_t compute_tiles, participants;
    int64_t cycles;                   /* device cycles of the run */
    const struct package_step *steps; /* step_count; at least 1 */
    uint32_t step_count;
    const struct package_kernel_call *calls;
    uint32_t call_count;
    struct profile_sample *samples;
    uint32_t sample_count;
};

/* words: the run's (PROFILE, 0); marks: its (PROFILE, 1), NULL when the package has none. p, words
 * and marks are borrowed for the call. *ret is owned. A program without traces gives one sample a
 * tile, of a step `rest`. */
int profile_collect(
    const struct package *p, const struct digest *digest, uint64_t run, const uint32_t *words,
    size_t word_count, const uint32_t *marks, size_t mark_count, struct profile **ret,
    struct err *err);
void profile_free(struct profile *p); /* NULL accepted */

/* A new file, which must not exist. Equal profiles give equal rows. */
int profile_write(const struct profile *p, const char *path, struct err *err);

/* The report of proto/profile.md; owned. NULL when out of memory. */
json_t *profile_report(const struct profile *p);

#endif
