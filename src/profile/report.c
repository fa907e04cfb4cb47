/* The report: figures of the whole run, its critical path, its groups. */
#include "profile/profile_internal.h"

#include <string.h>

#include "base/cleanup.h"

/* "phase" of the package's options; a package without the option samples nothing in between. */
static json_t *level_of(const struct profile *p) {
    json_t *options = json_loads(p->options, JSON_REJECT_DUPLICATES, NULL);
    json_t *level = json_incref(json_object_get(options, "profile"));
    json_decref(options);
    return json_is_string(level) ? level : json_string("off");
}

/* Of the path through the program that the plan foresaw: all phases, and in each level between them
 * the tile with the most predicted work. */
static int64_t predicted_cycles(const struct profile *p, const struct profile_pieces *r) {
    int64_t sum = 0;
    for (uint32_t level = 0; level < r->phase_count; level++) {
        sum += r->phases[level].tiles > 0 ? r->phases[level].step->predicted : 0;
    }
    int64_t own[TARGET_TILES] = {0}, most = 0;
    uint32_t level = 0;
    /* Steps are few: levels in order, busiest tile of each. */
    for (;;) {
        uint32_t next = UINT32_MAX;
        memset(own, 0, sizeof own);
        most = 0;
        for (uint32_t i = 0; i < p->sample_count; i++) {
            const struct package_step *s = &p->steps[p->samples[i].step];
            if (s->kind != STEP_COMPUTE && s->kind != STEP_REST && s->kind != STEP_REPEAT) {
                continue;
            }
            if (s->level == level) {
                int64_t *tile = &own[p->samples[i].tile.n];
                *tile += s->predicted;
                most = *tile > most ? *tile : most;
            } else if (s->level > level && s->level < next) {
                next = s->level;
            }
        }
        sum += most;
        if (next == UINT32_MAX) {
            return sum;
        }
        level = next;
    }
}

json_t *profile_report(const struct profile *p) {
    CLEANUP(profile_pieces_done) struct profile_pieces r;
    if (profile_pieces_build(p, &r) < 0) {
        return NULL;
    }
    double useful = 0;
    for (size_t i = 0; i < r.count; i++) {
        useful += r.pieces[i].useful;
    }
    int64_t predicted = predicted_cycles(p, &r);
    json_t *report = json_pack(
        "{s:s, s:o, s:I, s:I, s:{s:I, s:I, s:I}, s:I, s:I, s:I, s:I, s:o, s:o}", "package",
        p->package, "level", level_of(p), "run", (json_int_t)p->run, "clock_hz",
        (json_int_t)PROFILE_CLOCK_HZ, "tiles", "compute", (json_int_t)p->compute_tiles,
        "participants", (json_int_t)p->participants, "idle",
        (json_int_t)TARGET_TILES - (json_int_t)p->participants, "samples",
        (json_int_t)p->sample_count, "cycles", (json_int_t)p->cycles, "predicted",
        (json_int_t)predicted, "useful", (json_int_t)useful, "path", profile_path(p, &r), "groups",
        profile_groups(p, &r));
    if (report != NULL && p->cycles > 0) {
        double all = (double)p->cycles * p->compute_tiles;
        json_object_set_new(report, "utilisation", json_real(useful / all));
        if (predicted > 0) {
            json_object_set_new(
                report, "prediction_error", json_real((double)predicted / (double)p->cycles - 1));
        }
    }
    return report;
}
