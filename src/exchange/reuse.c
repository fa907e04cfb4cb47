/* Structure of a phase, the search without addresses, and its materialisation: see reuse.h. Ends
 * because each phase is scheduled at most five times. */
#include "exchange/reuse.h"

#include <string.h>

#define STRUCTURE_VERSION "exchange structure 2"

#define EARLY_MOST 8192 /* transfers of a phase that is always placed both ways */

/* Equal addresses never continue one another, so no pointer is kept; both lie in memory with room
 * for the longest paired transfer, and have the alignment of any form. */
#define FREE_SOURCE TARGET_MEM_BASE
#define FREE_DEST   (TARGET_MEM_BASE + 0x20000u)

_Static_assert(
    FREE_DEST + 8 * EXCHANGE_MAX_ITEMS <= TARGET_MEM_END &&
        FREE_SOURCE + 8 * EXCHANGE_MAX_ITEMS <= FREE_DEST && FREE_SOURCE % 8 == 0,
    "the constant addresses are legal for every transfer");

int exchange_structure(
    const struct exchange_transfer *transfers, uint32_t count,
    const struct exchange_dependency *dependencies, uint32_t dependency_count, struct digest *ret,
    struct err *err) {
    struct digest_ctx *ctx = digest_new();
    if (ctx == NULL) {
        return err_set(err, ERR_NOMEM, "no memory to hash a phase");
    }
    digest_text(ctx, STRUCTURE_VERSION);
    digest_u64(ctx, count);
    for (uint32_t i = 0; i < count; i++) {
        const struct exchange_transfer *t = &transfers[i];
        digest_u64(ctx, (uint64_t)t->words << 32 | (uint64_t)t->form << 16 | t->source.n);
        digest_u64(ctx, (uint64_t)t->requested << 32 | t->dest_count);
        digest_u64(ctx, exchange_follows(transfers, i));
        for (uint32_t k = 0; k < t->dest_count; k++) {
            digest_u64(ctx, t->dests[k].tile.n);
        }
    }
    digest_u64(ctx, dependency_count);
    for (uint32_t i = 0; i < dependency_count; i++) {
        const struct exchange_dependency *d = &dependencies[i];
        digest_u64(ctx, (uint64_t)d->before << 32 | d->after);
        digest_u64(ctx, (uint64_t)d->kind << 16 | d->tile.n);
    }
    digest_final(ctx, ret);
    digest_free(ctx);
    return 0;
}

static struct exchange_transfer *
without_addresses(const struct exchange_transfer *transfers, uint32_t count, struct arena *a) {
    size_t legs = 0;
    for (uint32_t i = 0; i < count; i++) {
        legs += transfers[i].dest_count;
    }
    struct exchange_transfer *bare = arena_memdup(a, transfers, count * sizeof *transfers);
    struct exchange_dest *dests = ARENA_ARRAY(a, struct exchange_dest, legs);
    for (uint32_t i = 0; i < count; i++) {
        bare[i].source_addr = FREE_SOURCE;
        bare[i].dests = dests;
        for (uint32_t k = 0; k < bare[i].dest_count; k++) {
            *dests++ = (struct exchange_dest){transfers[i].dests[k].tile, FREE_DEST};
        }
    }
    return bare;
}

/* The problem without addresses: its order is searched, or given and only placed. */
static int free_phase(
    const struct exchange_transfer *transfers, uint32_t count, const struct exchange_options *given,
    const uint32_t *order, struct arena *a, struct exchange_phase *ret, struct err *err) {
    struct exchange_options options = *given;
    bool *follows = ARENA_ARRAY(a, bool, count);
    for (uint32_t i = 0; i < count; i++) {
        follows[i] = exchange_follows(transfers, i);
    }
    options.ignore_elements = true;
    options.follows = follows;
    options.order = order;
    return exchange_schedule_phase(
        without_addresses(transfers, count, a), count, &options, a, ret, err);
}

int exchange_order_search(
    const struct exchange_transfer *transfers, uint32_t count,
    const struct exchange_dependency *dependencies, uint32_t dependency_count, struct arena *a,
    struct exchange_order *ret, struct err *err) {
    struct arena_mark mark = arena_mark(a);
    struct exchange_options options = {
        .try_paired = true,
        .given_dependencies = true,
        .dependencies = dependencies,
        .dependency_count = dependency_count};
    struct exchange_phase phase;
    int rc = free_phase(transfers, count, &options, NULL, a, &phase, err);
    if (rc == 0) {
        memcpy(ret->order, phase.order, count * sizeof *ret->order);
        ret->count = count;
        ret->horizon = phase.horizon;
        ret->is_widened = phase.is_widened;
    }
    arena_rewind(a, mark);
    return rc;
}

/* Places an order at real addresses: no transfer earlier than where it stands without addresses,
 * and once as early as possible. The first keeps all places that can be kept; the second is
 * disturbed by everything that addresses change, because what is a little early or late may take
 * the place of another, but may be shorter. It is made where it may help or costs little. */
static int materialise(
    const struct exchange_transfer *transfers, uint32_t count, const struct exchange_options *given,
    const struct exchange_order *order, struct arena *a, struct exchange_phase *ret,
    struct err *err) {
    struct exchange_options options = *given;
    options.widen = order->is_widened;
    struct exchange_phase bare, early;
    struct exchange_placed *least = ARENA_ARRAY(a, struct exchange_placed, count);
    struct arena_mark mark = arena_mark(a);
    int rc = free_phase(transfers, count, &options, order->order, a, &bare, err);
    if (rc != 0) {
        return rc;
    }
    memcpy(least, bare.placed, count * sizeof *least);
    arena_rewind(a, mark); /* but for bare's numbers */
    options.order = order->order;
    options.least = least;
    rc = exchange_schedule_phase(transfers, count, &options, a, ret, err);
    if (rc == 0 && ret->horizon > ret->latency_bound &&
        (ret->horizon > bare.horizon || count <= EARLY_MOST)) {
        options.least = NULL;
        rc = exchange_schedule_phase(transfers, count, &options, a, &early, err);
        if (rc == 0 && early.horizon < ret->horizon) {
            *ret = early;
        }
    }
    ret->free_horizon = bare.horizon;
    return rc;
}

/* Whether a phase that was placed in a free order may stand. */
static bool is_short(const struct exchange_phase *phase, const struct exchange_order *order) {
    return (uint64_t)phase->horizon * EXCHANGE_REUSE_DENOMINATOR <=
           (uint64_t)order->horizon * EXCHANGE_REUSE_NUMERATOR;
}

/* The order of a structure, from the store or by a search, which is then kept. */
static int get_order(
    const struct exchange_transfer *transfers, uint32_t count,
    const struct exchange_options *options, const struct exchange_orders *known, struct arena *a,
    struct exchange_order *ret, bool *ret_is_stored, struct err *err) {
    struct digest structure;
    int rc = exchange_structure(
        transfers, count, options->dependencies, options->dependency_count, &structure, err);
    if (rc != 0) {
        return rc;
    }
    *ret_is_stored = false;
    if (known != NULL && known->find != NULL &&
        known->find(known->arg, &structure, ret, ret_is_stored)) {
        return 0;
    }
    rc = exchange_order_search(
        transfers, count, options->dependencies, options->dependency_count, a, ret, err);
    if (rc == 0 && known != NULL && known->keep != NULL) {
        known->keep(known->arg, &structure, ret);
    }
    return rc;
}

int exchange_reuse_phase(
    const struct exchange_transfer *transfers, uint32_t count, const struct exchange_orders *known,
    struct arena *a, struct exchange_phase *ret, enum exchange_origin *ret_origin,
    struct err *err) {
    struct exchange_options options = {.given_dependencies = true};
    struct exchange_dependency *dependencies;
    exchange_dependencies(transfers, count, a, &dependencies, &options.dependency_count);
    options.dependencies = dependencies;
    struct exchange_order order = {.order = ARENA_ARRAY(a, uint32_t, count), .count = count};
    bool is_stored = false;
    struct err refusal = {0};
    int rc = get_order(transfers, count, &options, known, a, &order, &is_stored, &refusal);
    if (rc == -ERR_NOMEM) {
        *err = refusal;
        return rc;
    }
    struct arena_mark mark = arena_mark(a);
    if (rc == 0) {
        rc = materialise(transfers, count, &options, &order, a, ret, &refusal);
        if (rc == 0 && is_short(ret, &order)) {
            *ret_origin = is_stored ? EXCHANGE_REPLAYED : EXCHANGE_SCHEDULED;
            return 0;
        }
        arena_rewind(a, mark);
    }
    *ret_origin = EXCHANGE_REFUSED;
    options.order = NULL;
    options.try_paired = true;
    rc = exchange_schedule_phase(transfers, count, &options, a, ret, err);
    ret->free_horizon = order.horizon;
    return rc;
}
