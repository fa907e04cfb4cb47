/* Predicted against simulated cycles on whole models: the sum, each kernel, and what sampling
 * costs. Predictions hold constants of single-kernel sweeps only (make calibrate). Models that the
 * others use for speed are the ones predicted. */
#include "predict.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/pipeline.h"
#include "profile/profile.h"

static int
run(const struct predict_model *m, const char *text, enum emit_profile profile, const char *folder,
    struct pipeline_result *ret) {
    struct pipeline_options options = {
        .tiles = m->tiles,
        .accumulate_f16 = m->accumulate_f16,
        .profile = profile,
        .seed = 1,
        .runs = 1,
        .folder = folder,
        .keep_profile = true};
    struct err err = {0};
    int r = pipeline_run(text, &options, ret, &err);
    if (r < 0) {
        printf("  %s: %s %s\n", m->name, err.where, err.text);
    }
    return r;
}

static void print_kernels(const json_t *report, double *worst) {
    size_t i;
    json_t *row;
    json_array_foreach(json_object_get(json_object_get(report, "groups"), "kernel"), i, row) {
        double error = json_real_value(json_object_get(row, "prediction_error"));
        printf(
            "    %-28s %8lld calls %12lld cycles of all tiles, predicted %+6.1f %%\n",
            json_string_value(json_object_get(row, "name")),
            (long long)json_integer_value(json_object_get(row, "pieces")),
            (long long)json_integer_value(json_object_get(row, "cycles")), 100 * error);
        *worst = fabs(error) > *worst ? fabs(error) : *worst;
    }
}

void predict_model(const struct predict_model *m, const char *text, const char *folder) {
    static const char *const levels[] = {"off", "phase", "kernel"};
    double worst = 0;
    uint64_t off = 0;
    for (int level = EMIT_PROFILE_OFF; level <= EMIT_PROFILE_KERNEL; level++) {
        struct pipeline_result result;
        if (run(m, text, (enum emit_profile)level, folder, &result) < 0) {
            return;
        }
        off = level == EMIT_PROFILE_OFF ? result.cycles : off;
        if (level == EMIT_PROFILE_OFF) {
            double error = (double)result.compile.estimated_cycles / (double)result.cycles - 1;
            printf(
                "  %s, %u tiles: %llu cycles, predicted %llu, %+.1f %%\n", m->name, m->tiles,
                (unsigned long long)result.cycles,
                (unsigned long long)result.compile.estimated_cycles, 100 * error);
        } else {
            printf(
                "    profile %s: %llu cycles, %+.2f %%\n", levels[level],
                (unsigned long long)result.cycles,
                100.0 * (double)result.cycles / (double)off - 100);
        }
        if (level == EMIT_PROFILE_KERNEL && result.profile != NULL) {
            json_t *report = profile_report(result.profile);
            print_kernels(report, &worst);
            json_decref(report);
        }
        profile_free(result.profile);
    }
    printf("    largest error of a kernel: %.1f %%\n", 100 * worst);
}
