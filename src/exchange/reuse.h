/* Orders of placement that outlive addresses (design.md D6).
 *
 * Job: schedule one phase so that its expensive part, the search for an order, can be read from a
 * store, and the result is the same whether it was read or made.
 *
 *   transfers ── structure ──┬─ known ──────────────► order, free horizon
 *      │                     └─ not: search, with no addresses in the problem ─► the same, kept
 *      └─ real addresses + order ─ placement, all rules ─┬─ legal, short: the phase
 *                                                        └─ else a search with addresses, not kept
 *
 * Invariants: (1) an order and its free horizon depend on nothing but the structure: they come from
 * a problem in which all addresses are the same constant and no memory element matters; (2) what
 * is used is placed anew at the real addresses under all rules of exchange.h, whoever gave the
 * order; (3) an order that is no permutation, contradicts a dependency, or ends later than 1.25
 * times the free horizon is refused; which phases are refused depends on structure and addresses
 * alone. So the phase is a pure function of the transfers.
 *
 * The dependencies belong to the structure: a relay needs its order in the search as well.
 */
#ifndef EXCHANGE_REUSE_H
#define EXCHANGE_REUSE_H

#include "exchange/exchange.h"

/* Refused when placed horizon * DENOMINATOR > free horizon * NUMERATOR. */
#define EXCHANGE_REUSE_NUMERATOR   5
#define EXCHANGE_REUSE_DENOMINATOR 4

struct exchange_order {
    uint32_t *order; /* a permutation of 0 .. count - 1 */
    uint32_t count;
    uint32_t horizon; /* of the problem without addresses */
    bool is_widened;  /* eligible transfers go as pairs (exchange_options.widen) */
};

struct exchange_orders { /* where orders are known from; either function may be NULL */
    /* Fills order[0 .. count - 1] and the rest of an order of that count. False: not known.
     * *ret_is_stored tells whether an earlier compile made it. */
    bool (*find)(
        void *arg, const struct digest *structure, struct exchange_order *ret, bool *ret_is_stored);
    /* Borrowed for the call. */
    void (*keep)(void *arg, const struct digest *structure, const struct exchange_order *order);
    void *arg;
};

/* Where the order of a phase comes from. */
enum exchange_origin {
    EXCHANGE_SCHEDULED, /* this compile made it, for this phase or an equal one before */
    EXCHANGE_REPLAYED,  /* an earlier compile made it */
    EXCHANGE_REFUSED,   /* the addresses refused it: searched with them */
};

/* exchange_schedule_phase() with default options, by way of an order without addresses. known may
 * be NULL. */
int exchange_reuse_phase(
    const struct exchange_transfer *transfers, uint32_t count, const struct exchange_orders *known,
    struct arena *a, struct exchange_phase *ret, enum exchange_origin *ret_origin, struct err *err);

/* The search without addresses; order->order has room for count. Uses the arena and rewinds it. */
int exchange_order_search(
    const struct exchange_transfer *transfers, uint32_t count,
    const struct exchange_dependency *dependencies, uint32_t dependency_count, struct arena *a,
    struct exchange_order *ret, struct err *err);

#endif
