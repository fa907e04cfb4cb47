/* Words of a run -> samples. One pass over the participants; everything is copied, so that the
 * package may go. */
#include "profile/profile.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

#define ARENA_BYTES (1ull << 30)

void profile_free(struct profile *p) {
    if (p != NULL) {
        if (p->arena != NULL) {
            arena_done(p->arena);
            free(p->arena);
        }
        free(p);
    }
}

static void cleanup_profile(struct profile **p) {
    profile_free(*p);
}

/* The latest first sample: counters modulo 2^32, all of a run within 2^31 of each other. */
static uint32_t find_origin(const uint32_t *words, uint32_t participants) {
    uint32_t origin = words[0];
    for (uint32_t rank = 1; rank < participants; rank++) {
        uint32_t start = words[rank * PACKAGE_PROFILE_WORDS];
        origin = (int32_t)(start - origin) > 0 ? start : origin;
    }
    return origin;
}

static void copy_plan(struct profile *r, const struct package *p) {
    static const struct package_step whole = {.kind = STEP_REST};
    struct arena *a = r->arena;
    bool has_plan = p->step_count > 0;
    r->step_count = has_plan ? p->step_count : 1;
    r->steps = arena_memdup(a, has_plan ? p->steps : &whole, r->step_count * sizeof *r->steps);
    struct package_kernel_call *calls = arena_memdup(a, p->calls, p->call_count * sizeof *r->calls);
    for (uint32_t i = 0; i < p->call_count; i++) {
        calls[i].op = arena_strdup(a, p->calls[i].op);
        calls[i].kernel = arena_strdup(a, p->calls[i].kernel);
    }
    r->calls = calls;
    r->call_count = p->call_count;
}

static void
collect(struct profile *r, const struct package *p, const uint32_t *words, const uint32_t *marks) {
    uint32_t total = 0;
    for (uint32_t i = 0; i < p->participant_count; i++) {
        total += p->trace_count > 0 ? p->traces[i].count : 1;
    }
    r->samples = ARENA_ARRAY(r->arena, struct profile_sample, total);
    uint32_t origin = p->participant_count > 0 ? find_origin(words, p->participant_count) : 0;
    for (uint32_t rank = 0; rank < p->participant_count; rank++) {
        const uint32_t *own = words + rank * PACKAGE_PROFILE_WORDS;
        const struct package_trace *t = p->trace_count > 0 ? &p->traces[rank] : NULL;
        uint32_t count = t != NULL ? t->count : 1, last = own[0];
        int64_t at = (int32_t)(own[0] - origin);
        for (uint32_t i = 0; i < count; i++) {
            uint32_t end = i + 1 < count ? marks[t->first + i] : own[1];
            struct profile_sample *s = &r->samples[r->sample_count++];
            *s = (struct profile_sample){
                .tile = {p->participants[rank]},
                .index = i,
                .step = t != NULL ? t->steps[i] : 0,
                .start = at,
                .end = at + (uint32_t)(end - last)};
            at = s->end;
            last = end;
        }
        r->cycles = at > r->cycles ? at : r->cycles;
    }
}

int profile_collect(
    const struct package *p, const struct digest *digest, uint64_t run, const uint32_t *words,
    size_t word_count, const uint32_t *marks, size_t mark_count, struct profile **ret,
    struct err *err) {
    uint64_t needed = 0;
    for (uint32_t i = 0; i < p->trace_count; i++) {
        uint64_t end = p->traces[i].first + (uint64_t)p->traces[i].count - 1;
        needed = p->traces[i].count > 1 && end > needed ? end : needed;
    }
    if (word_count < (size_t)p->participant_count * PACKAGE_PROFILE_WORDS || mark_count < needed) {
        return err_set(
            err, ERR_INVALID, "profile of %u tiles: %zu words and %zu marks, %llu wanted",
            p->participant_count, word_count, mark_count, (unsigned long long)needed);
    }
    CLEANUP(cleanup_profile) struct profile *r = calloc(1, sizeof *r);
    if (r == NULL || (r->arena = calloc(1, sizeof *r->arena)) == NULL) {
        return err_set(err, ERR_NOMEM, "profile");
    }
    arena_init(r->arena, ARENA_BYTES);
    if (ARENA_RECOVER(r->arena)) {
        return err_set(err, ERR_NOMEM, "profile of %u tiles", p->participant_count);
    }
    char hex[DIGEST_HEX + 1];
    digest_hex(digest, hex);
    r->package = arena_strdup(r->arena, hex);
    r->options = arena_strdup(r->arena, p->options);
    r->key = arena_strdup(r->arena, p->key);
    r->run = run;
    r->compute_tiles = p->compute_tiles;
    r->participants = p->participant_count;
    copy_plan(r, p);
    collect(r, p, words, marks);
    r->arena->has_recover = false;
    *ret = TAKE(r);
    return 0;
}
