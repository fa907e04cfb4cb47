/* Samples -> pieces: spans of one tile and one purpose, from which all groups are summed.
 *
 * An exchange sample begins when its tile arrives at the phase's barrier. Up to the arrival of the
 * last tile it is a wait; the scheduled events are exchange, from their first one, which lies the
 * horizon before the end of the longest row; in between is the barrier's cost. A compute sample
 * with several calls is shared out among them by prediction; with one call, as a kernel profile
 * has it, nothing is. */
#include "profile/profile_internal.h"

#include <stdlib.h>
#include <string.h>

const char *profile_kind_name(enum profile_kind k) {
    static const char *const names[PROFILE_KINDS] = {
        [PROFILE_COMPUTE] = "compute", [PROFILE_EXCHANGE] = "exchange", [PROFILE_SYNC] = "sync",
        [PROFILE_WAIT] = "wait",       [PROFILE_IDLE] = "idle",         [PROFILE_REST] = "rest",
        [PROFILE_REPEAT] = "repeat"};
    return names[k];
}

/* Phases by level, with the first and the last to arrive and to leave. */
static int find_phases(const struct profile *p, struct profile_pieces *ret) {
    uint32_t levels = 0;
    for (uint32_t i = 0; i < p->step_count; i++) {
        if (p->steps[i].kind == STEP_EXCHANGE && p->steps[i].level >= levels) {
            levels = p->steps[i].level + 1;
        }
    }
    if (levels > PACKAGE_MAX_STEPS) { /* of a foreign package */
        return -1;
    }
    ret->phases = calloc(levels + 1u, sizeof *ret->phases);
    ret->phase_count = levels;
    if (ret->phases == NULL) {
        return -1;
    }
    for (uint32_t i = 0; i < p->sample_count; i++) {
        const struct profile_sample *s = &p->samples[i];
        const struct package_step *step = &p->steps[s->step];
        if (step->kind != STEP_EXCHANGE) {
            continue;
        }
        struct profile_phase *f = &ret->phases[step->level];
        bool is_first = f->tiles == 0;
        f->step = step;
        f->tiles++;
        f->first_arrival = is_first || s->start < f->first_arrival ? s->start : f->first_arrival;
        if (is_first || s->start > f->last_arrival) {
            f->last_arrival = s->start;
            f->last_tile = s->tile;
        }
        f->end = is_first || s->end > f->end ? s->end : f->end;
    }
    return 0;
}

static void add(struct profile_pieces *r, const struct profile_piece *x, int64_t from, int64_t to) {
    if (to > from) {
        r->pieces[r->count] = *x;
        r->pieces[r->count].start = from;
        r->pieces[r->count++].end = to;
    }
}

static void
add_exchange(struct profile_pieces *r, const struct profile_sample *s, struct profile_piece x) {
    const struct profile_phase *f = &r->phases[x.level];
    int64_t last = f->last_arrival < s->end ? f->last_arrival : s->end;
    int64_t first_event = f->end - f->step->horizon; /* the same on all tiles */
    int64_t sync = first_event < last ? last : first_event < s->end ? first_event : s->end;
    x.kind = PROFILE_WAIT;
    x.predicted = 0;
    add(r, &x, s->start, last);
    x.kind = PROFILE_SYNC;
    x.predicted = f->step->predicted - f->step->horizon;
    add(r, &x, last, sync);
    x.kind = PROFILE_EXCHANGE;
    x.predicted = f->step->horizon;
    add(r, &x, sync, s->end);
}

static void add_calls(
    const struct profile *p, struct profile_pieces *r, const struct profile_sample *s,
    struct profile_piece x) {
    const struct package_step *step = &p->steps[s->step];
    double total = 0, done = 0;
    for (uint32_t i = 0; i < step->call_count; i++) {
        total += p->calls[step->first_call + i].predicted;
    }
    int64_t from = s->start;
    for (uint32_t i = 0; i < step->call_count; i++) {
        const struct package_kernel_call *c = &p->calls[step->first_call + i];
        done += c->predicted;
        bool is_last = i + 1 == step->call_count;
        double share = total > 0 ? done / total : (double)(i + 1) / step->call_count;
        int64_t to = is_last ? s->end : s->start + (int64_t)(share * (double)(s->end - s->start));
        x.call = step->first_call + i;
        x.predicted = c->predicted;
        x.useful = c->useful;
        add(r, &x, from, to);
        from = to;
    }
}

/* Earlier turns of a loop did what the one that follows does. Pieces of a tile lie in order. */
static void price_repeats(struct profile_pieces *r) {
    for (size_t i = 0; i < r->count; i++) {
        struct profile_piece *x = &r->pieces[i];
        uint64_t useful = 0;
        for (size_t k = i + 1; x->turns > 0 && k < r->count; k++) {
            const struct profile_piece *c = &r->pieces[k];
            if (c->tile.n != x->tile.n || c->level > x->last_level) {
                break;
            }
            useful += c->useful;
        }
        useful *= x->turns;
        x->useful = x->turns == 0 ? x->useful : useful < UINT32_MAX ? (uint32_t)useful : UINT32_MAX;
    }
}

int profile_pieces_build(const struct profile *p, struct profile_pieces *ret) {
    memset(ret, 0, sizeof *ret);
    if (find_phases(p, ret) < 0) {
        return -1;
    }
    size_t most = 0;
    for (uint32_t i = 0; i < p->sample_count; i++) {
        uint32_t calls = p->steps[p->samples[i].step].call_count;
        most += calls > 3 ? calls : 3;
    }
    ret->pieces = malloc((most + 1) * sizeof *ret->pieces);
    if (ret->pieces == NULL) {
        return -1;
    }
    static const enum profile_kind kinds[STEP_KINDS] = {
        [STEP_EXCHANGE] = PROFILE_EXCHANGE,
        [STEP_COMPUTE] = PROFILE_COMPUTE,
        [STEP_IDLE] = PROFILE_IDLE,
        [STEP_REST] = PROFILE_REST,
        [STEP_REPEAT] = PROFILE_REPEAT};
    for (uint32_t i = 0; i < p->sample_count; i++) {
        const struct profile_sample *s = &p->samples[i];
        const struct package_step *step = &p->steps[s->step];
        struct profile_piece x = {
            .tile = s->tile,
            .kind = kinds[step->kind],
            .level = step->level,
            .call = PROFILE_NO_CALL,
            .predicted = step->kind == STEP_IDLE ? 0 : step->predicted,
            .turns = step->kind == STEP_REPEAT ? step->horizon : 0,
            .last_level = step->last_level};
        if (step->kind == STEP_EXCHANGE) {
            add_exchange(ret, s, x);
        } else if (step->kind == STEP_COMPUTE && step->call_count > 0) {
            add_calls(p, ret, s, x);
        } else {
            add(ret, &x, s->start, s->end);
        }
    }
    price_repeats(ret);
    return 0;
}

void profile_pieces_done(struct profile_pieces *r) {
    free(r->phases);
    free(r->pieces);
}
