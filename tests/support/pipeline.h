/* The whole path in one process, for differential tests and figures: model text -> graph ->
 * package file -> simulated device -> outputs -> comparison with the float reference. Models must
 * bring their own data (generators or inline values). */
#ifndef TESTS_SUPPORT_PIPELINE_H
#define TESTS_SUPPORT_PIPELINE_H

#include <stdint.h>

#include "base/digest.h"
#include "base/err.h"
#include "compile/compile.h"
#include "profile/profile.h"
#include "reference/reference.h"
#include "sim/sim.h"

#define PIPELINE_MAX_OUTPUTS  16
#define PIPELINE_MAX_RELEASES 4

struct pipeline_options {
    const uint32_t *releases; /* runs again with these sync_release, for figures only */
    uint32_t release_count;
    uint32_t tiles; /* compile options */
    bool accumulate_f16;
    enum emit_profile profile;
    bool keep_profile; /* of the first run */
    uint64_t seed;     /* enters every generator */
    uint64_t runs;     /* of the same input; at least 1 */
    struct sim_options sim;
    const char *print;          /* stages that the compiler prints (compile.h), or NULL */
    enum compile_repeat repeat; /* compile option */
    const char *folder;         /* scratch, exists; the package file is made and removed in it */
};

struct pipeline_result {
    bool pass;                    /* every output within its tolerance, in every run */
    struct reference_error worst; /* of the output that uses most of its tolerance */
    uint32_t worst_output;
    struct compile_result compile;
    uint64_t cycles;         /* device cycles of the last run */
    struct digest outputs;   /* of all output bytes of all runs */
    struct profile *profile; /* owned by the caller, profile_free(); NULL unless kept */
    struct sim_counters counters;
    double compile_s, load_s, run_s; /* wall times, for figures only */
    double compile_cpu_s;            /* of the process */
    double cosine;                   /* of all outputs and what is expected, the smallest */
    uint64_t release_cycles[PIPELINE_MAX_RELEASES];
};

int pipeline_run(
    const char *model, const struct pipeline_options *options, struct pipeline_result *ret,
    struct err *err);

#endif
