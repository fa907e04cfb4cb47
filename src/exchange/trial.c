/* See trial.h. Every offset is placed once, the best once more. */
#include "exchange/trial.h"

static struct placement *place_at(const struct placement *p, uint32_t shift, struct arena *a) {
    struct place_options options = p->options;
    struct placement *ret;
    struct err ignored;
    options.shift = shift;
    return place_build(p->tg, &options, a, &ret, &ignored) == 0 ? ret : NULL;
}

static struct placement *best_placement(const struct placement *p, struct arena *a) {
    uint64_t least = p->score;
    uint32_t best = 0;
    for (uint32_t shift = EXCHANGE_TRIAL_STEP; shift < 2 * TARGET_ELEMENT_BYTES;
         shift += EXCHANGE_TRIAL_STEP) {
        struct arena_mark mark = arena_mark(a);
        const struct placement *other = place_at(p, shift, a);
        if (other != NULL && other->score < least) {
            least = other->score;
            best = shift;
        }
        arena_rewind(a, mark);
    }
    return best != 0 ? place_at(p, best, a) : NULL;
}

void exchange_try_placement(
    const struct placement *p, const struct exchange_plan *x, const struct exchange_orders *known,
    struct arena *a, struct arena *scratch, struct exchange_trial *ret) {
    *ret = (struct exchange_trial){0};
    if (x->horizon_cycles <= x->free_cycles || p->score == 0) {
        return;
    }
    struct err ignored;
    struct placement *best = best_placement(p, a);
    if (best == NULL || exchange_build_known(best, known, a, scratch, &ret->plan, &ignored) != 0) {
        return;
    }
    ret->is_made = true;
    ret->placement = best;
    ret->is_shorter = ret->plan->horizon_cycles < x->horizon_cycles;
}
