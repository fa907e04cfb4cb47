/* Trial of other placements for the sake of the exchange.
 *
 * Job: move the base of interleaved data inside its element pair, in steps of 4,096 bytes, so that
 * what is sent and what is received in one phase meet less; schedule the one with the least score
 * (placement.score; the smaller offset on a tie). Input: a placement and its exchange plan
 * (borrowed). Output: struct exchange_trial.
 *
 * Made only where some phase is longer than without addresses: all else no placement can cure.
 * Placements that do not fit, or do not lower the score, are no candidates. */
#ifndef EXCHANGE_TRIAL_H
#define EXCHANGE_TRIAL_H

#include "exchange/build.h"

#define EXCHANGE_TRIAL_STEP 4096u

struct exchange_trial {
    bool is_made;                /* else there was no loss, or no candidate */
    struct placement *placement; /* the candidate; offset = placement->options.shift */
    struct exchange_plan *plan;
    bool is_shorter; /* than the plan it was tried against */
};

/* Arenas as in build.h. Fails only when out of arena, by its jump: a candidate that cannot be
 * scheduled is none. */
void exchange_try_placement(
    const struct placement *p, const struct exchange_plan *x, const struct exchange_orders *known,
    struct arena *a, struct arena *scratch, struct exchange_trial *ret);

#endif
