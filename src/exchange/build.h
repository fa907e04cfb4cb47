/* From a placed tile graph to the rows of every tile: one phase a level with moves.
 *
 * Job: moves with addresses -> exchange_transfer lists (spans above EXCHANGE_MAX_ITEMS words are
 * cut) -> exchange_reuse_phase(). Input: a placement (borrowed). Output: struct exchange_plan.
 * Invariant, checked by exchange_plan_verify(): each phase replays to exactly its transfers, and
 * the transfers are exactly the moves.
 */
#ifndef EXCHANGE_BUILD_H
#define EXCHANGE_BUILD_H

#include "exchange/exchange.h"
#include "exchange/reuse.h"
#include "place/place.h"

struct exchange_level {
    struct exchange_transfer *transfers;
    uint32_t transfer_count;     /* 0: no exchange at this level */
    struct exchange_phase phase; /* without its order */
    enum exchange_origin origin; /* of the phase's order */
};

struct exchange_plan {
    const struct placement *placement; /* borrowed */
    struct exchange_level *levels;     /* by level of the tile graph */
    uint32_t level_count;
    uint32_t phase_count;    /* each counted once */
    uint32_t phase_runs;     /* of a run: in a loop once a turn */
    uint64_t horizon_cycles; /* sum over phase runs */
    uint64_t bound_cycles;   /* likewise, of their latency bounds */
    uint64_t free_cycles;    /* of their horizons without addresses */
    uint32_t max_row_bytes;
};

/* Orders are looked up in `known` and new ones are given to it; NULL = none are kept. The plan does
 * not depend on what is known (reuse.h). It lies in `a`; `scratch`, another arena or the same, is
 * rewound after each phase when it is another: a search needs many times the room of its rows. */
int exchange_build_known(
    const struct placement *p, const struct exchange_orders *known, struct arena *a,
    struct arena *scratch, struct exchange_plan **ret, struct err *err);
int exchange_build(
    const struct placement *p, struct arena *a, struct exchange_plan **ret, struct err *err);
int exchange_plan_verify(const struct exchange_plan *x, struct arena *scratch, struct err *err);
void exchange_plan_print(const struct exchange_plan *x, FILE *out);
/* Row of a logical tile in a level, NULL when it does not take part. */
const struct exchange_row *
exchange_plan_row(const struct exchange_plan *x, uint32_t level, struct logical_tile tile);

#endif
