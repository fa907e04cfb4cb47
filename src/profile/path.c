/* The critical path: what the program would have to shorten to be faster. Phases are passed by all
 * tiles, so the path goes through each: from the end of one phase to the last arrival at the next
 * it is the work of the tile that arrives last, then the phase itself. The segments adjoin and
 * their cycles add up to those of the run. */
#include "profile/profile_internal.h"

#include <string.h>

struct path {
    const struct profile *p;
    const struct profile_pieces *pieces;
    json_t *segments;
    int64_t cycles[PROFILE_KINDS];
};

static void push(struct path *x, enum profile_kind kind, json_t *segment) {
    json_object_set_new(segment, "kind", json_string(profile_kind_name(kind)));
    json_array_append_new(x->segments, segment);
}

/* Compute from `from` to `to` on a tile: what was predicted for it, and its longest call. */
static void
push_compute(struct path *x, uint32_t level, struct physical_tile tile, int64_t from, int64_t to) {
    const struct profile_piece *longest = NULL;
    int64_t predicted = 0;
    if (to <= from) {
        return;
    }
    for (size_t i = 0; i < x->pieces->count; i++) {
        const struct profile_piece *c = &x->pieces->pieces[i];
        if (c->tile.n == tile.n && c->kind == PROFILE_COMPUTE && c->end > from && c->start < to) {
            predicted += c->predicted;
            if (longest == NULL || c->end - c->start > longest->end - longest->start) {
                longest = c;
            }
        }
    }
    x->cycles[PROFILE_COMPUTE] += to - from;
    json_t *segment = json_pack(
        "{s:I, s:I, s:I, s:I}", "level", (json_int_t)level, "tile", (json_int_t)tile.n, "cycles",
        (json_int_t)(to - from), "predicted", (json_int_t)predicted);
    if (longest != NULL && longest->call != PROFILE_NO_CALL) {
        const struct package_kernel_call *c = &x->p->calls[longest->call];
        json_object_set_new(segment, "operation", json_integer(c->operation));
        json_object_set_new(segment, "op", json_string(c->op));
        json_object_set_new(segment, "kernel", json_string(c->kernel));
    }
    push(x, PROFILE_COMPUTE, segment);
}

/* The same where all turns of a loop but the last lie in between: they are one segment. */
static void
push_between(struct path *x, uint32_t level, struct physical_tile tile, int64_t from, int64_t to) {
    for (size_t i = 0; i < x->pieces->count; i++) {
        const struct profile_piece *c = &x->pieces->pieces[i];
        if (c->tile.n != tile.n || c->kind != PROFILE_REPEAT || c->end <= from || c->start >= to) {
            continue;
        }
        int64_t start = c->start > from ? c->start : from, end = c->end < to ? c->end : to;
        push_compute(x, level, tile, from, start);
        x->cycles[PROFILE_REPEAT] += end - start;
        push(
            x, PROFILE_REPEAT,
            json_pack(
                "{s:I, s:I, s:I, s:I}", "level", (json_int_t)c->level, "tile", (json_int_t)tile.n,
                "cycles", (json_int_t)(end - start), "predicted", (json_int_t)c->predicted));
        from = end;
    }
    push_compute(x, level, tile, from, to);
}

/* Sync and exchange of a phase, from its last arrival on. */
static void push_phase(struct path *x, uint32_t level, int64_t end) {
    const struct profile_phase *f = &x->pieces->phases[level];
    int64_t all = end - f->last_arrival;
    int64_t events = all < f->step->horizon ? all : f->step->horizon;
    x->cycles[PROFILE_SYNC] += all - events;
    x->cycles[PROFILE_EXCHANGE] += events;
    push(
        x, PROFILE_EXCHANGE,
        json_pack(
            "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "level", (json_int_t)level, "tile",
            (json_int_t)f->last_tile.n, "tiles", (json_int_t)f->tiles, "cycles", (json_int_t)all,
            "predicted", (json_int_t)f->step->predicted, "horizon", (json_int_t)f->step->horizon,
            "bound", (json_int_t)f->step->bound, "bytes", (json_int_t)f->step->bytes, "spread",
            (json_int_t)(f->last_arrival - f->first_arrival)));
}

static struct physical_tile last_tile(const struct profile *p) {
    struct physical_tile tile = {0};
    int64_t end = INT64_MIN;
    for (uint32_t i = 0; i < p->sample_count; i++) {
        if (p->samples[i].end > end) {
            end = p->samples[i].end;
            tile = p->samples[i].tile;
        }
    }
    return tile;
}

/* Last arrival at the first phase from `level` on, or the end of the run. */
static int64_t next_arrival(const struct path *x, uint32_t level) {
    for (; level < x->pieces->phase_count; level++) {
        if (x->pieces->phases[level].tiles > 0) {
            return x->pieces->phases[level].last_arrival;
        }
    }
    return x->p->cycles;
}

json_t *profile_path(const struct profile *p, const struct profile_pieces *r) {
    struct path x = {.p = p, .pieces = r, .segments = json_array()};
    int64_t at = 0;
    uint32_t level = 0;
    for (uint32_t i = 0; i < r->phase_count; i++) {
        const struct profile_phase *f = &r->phases[i];
        if (f->tiles == 0) {
            continue;
        }
        /* A tile without a part in the next phase may leave this one after the next has begun. */
        int64_t next = next_arrival(&x, i + 1);
        int64_t end = f->end < next ? f->end : next;
        push_between(&x, level, f->last_tile, at, f->last_arrival);
        push_phase(&x, i, end > f->last_arrival ? end : f->last_arrival);
        at = end > f->last_arrival ? end : f->last_arrival;
        level = i;
    }
    push_between(&x, level, last_tile(p), at, p->cycles);
    return json_pack(
        "{s:{s:I, s:I, s:I, s:I}, s:o}", "cycles", "compute", (json_int_t)x.cycles[PROFILE_COMPUTE],
        "exchange", (json_int_t)x.cycles[PROFILE_EXCHANGE], "sync",
        (json_int_t)x.cycles[PROFILE_SYNC], "repeat", (json_int_t)x.cycles[PROFILE_REPEAT],
        "segments", x.segments);
}
