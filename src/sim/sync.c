/* Barriers: arrival, abstention, release (device fact sheet 6.2).
 *
 * A barrier concerns all tiles. It is due when every tile either waits in one of its zones or
 * abstains; it completes a constant after the latest of these. `sans n` adds n + 1 barriers that
 * the tile takes part in by itself, whatever their zone; `sync 1` waits until they are used up.
 * A tile may run ahead of barriers it abstains from: it is then already stopped at its next sync
 * while its counter still runs, and only becomes a waiter when the counter is used up.
 */
#include "sim/chip.h"

enum { MAX_ABSTAIN = (1 << 19) - 1 };

enum barrier_class sync_class(unsigned zone) {
    static const uint8_t classes[16] = {
        [3] = BARRIER_CHIP,    [4] = BARRIER_G1,       [12] = BARRIER_G1,
        [5] = BARRIER_G1_HOST, [13] = BARRIER_G1_HOST, [6] = BARRIER_G2,
        [14] = BARRIER_G2,     [7] = BARRIER_G2_HOST,  [15] = BARRIER_G2_HOST,
    };
    return (enum barrier_class)classes[zone & 15];
}

bool sync_arrive(struct chip_tile *t, unsigned zone) {
    uint64_t cycle = tile_cycle(t->tile);
    enum barrier_class k = sync_class(zone);
    if (k == BARRIER_NONE && zone > 1) {
        chip_raise(t, CHIP_EXCONF, 0, "sync %u: no such zone", zone);
        return true;
    }
    if (k > BARRIER_CHIP && !host_mux_is_external(tile_csr(t->tile, CSR_INCOMING_MUX))) {
        chip_raise(
            t, CHIP_EXCONF, 0, "sync %u with the internal multiplexer setting %#x", zone,
            tile_csr(t->tile, CSR_INCOMING_MUX));
        return true;
    }
    if ((zone == 1 && t->abstain == 0) ||
        (zone == 0 && t->requests.len == 0 && host_sync_is_done(t))) {
        t->moved_words = 0;
        tile_resume(t->tile, cycle + CHIP_SANS);
        return true;
    }
    t->state = TILE_WAITS;
    t->zone = (uint8_t)zone;
    t->cycle = cycle;
    return false;
}

void sync_abstain(struct chip_tile *t, uint32_t barriers) {
    if (t->abstain + barriers > MAX_ABSTAIN) {
        chip_raise(
            t, CHIP_EXCONF, 0, "abstention from %u barriers, at most %d", t->abstain + barriers,
            MAX_ABSTAIN);
        return;
    }
    if (t->abstain == 0) {
        t->abstain_cycle = tile_cycle(t->tile);
    }
    t->abstain += barriers;
    tile_set_csr(t->tile, CSR_ANS_DCOUNT, t->abstain);
}

bool sync_is_missing(const struct chip *c, uint16_t tile) {
    return c->options.fault.kind == SIM_FAULT_MISS_BARRIER && c->options.fault.tile == tile &&
           c->options.fault.at == c->barriers;
}

/* The class that every tile has arrived at; BARRIER_NONE when there is none. */
static enum barrier_class find_due(const struct chip *c, uint64_t *ret_cycle) {
    uint32_t waiting[BARRIER_COUNT] = {0};
    uint32_t abstaining = 0;
    uint64_t latest = 0;
    for (uint16_t i = 0; i < TARGET_TILES; i++) {
        const struct chip_tile *t = &c->tiles[i];
        uint64_t cycle = t->abstain_cycle;
        if (sync_is_missing(c, i)) {
            return BARRIER_NONE;
        }
        if (t->abstain > 0) {
            abstaining++;
        } else if (t->state == TILE_WAITS && sync_class(t->zone) != BARRIER_NONE) {
            waiting[sync_class(t->zone)]++;
            cycle = t->cycle;
        } else {
            return BARRIER_NONE;
        }
        latest = cycle > latest ? cycle : latest;
    }
    *ret_cycle = latest;
    for (int k = BARRIER_CHIP; k < BARRIER_COUNT; k++) {
        if (waiting[k] > 0 && waiting[k] + abstaining == TARGET_TILES) {
            return (enum barrier_class)k;
        }
    }
    return BARRIER_NONE;
}

/* One barrier less to abstain from. True when the tile stands at `sync 1` and goes on with the
 * others; a later one is resumed here. */
static bool use_abstention(struct chip *c, uint16_t tile, uint64_t release) {
    struct chip_tile *t = &c->tiles[tile];
    t->abstain--;
    t->abstain_cycle = release;
    tile_set_csr(t->tile, CSR_ANS_DCOUNT, t->abstain);
    if (t->abstain > 0 || t->state != TILE_WAITS || t->zone == 0) {
        return false;
    }
    if (t->zone != 1) {
        if (t->cycle < release) {
            chip_raise(t, CHIP_EXCONF, 0, "sync %u while abstention is active", t->zone);
            chip_wake(c, tile);
        }
        return false;
    }
    if (t->cycle <= release) {
        return true;
    }
    tile_resume(t->tile, t->cycle + CHIP_SANS);
    chip_wake(c, tile);
    return false;
}

static void release(struct chip *c, enum barrier_class k, uint64_t latest) {
    uint16_t tiles[TARGET_TILES];
    uint32_t n = 0;
    uint64_t cycle = latest + (k == BARRIER_CHIP ? clock_sync_release(c) : CHIP_HOST_RELEASE);
    c->barriers++;
    c->held_class = BARRIER_NONE;
    for (uint16_t i = 0; i < TARGET_TILES; i++) {
        if (c->tiles[i].abstain > 0 ? use_abstention(c, i, cycle)
                                    : sync_class(c->tiles[i].zone) == k) {
            tiles[n++] = i;
        }
    }
    if (k == BARRIER_CHIP) {
        phase_run(c, tiles, n, cycle);
    } else {
        for (uint32_t i = 0; i < n; i++) {
            tile_resume(c->tiles[tiles[i]].tile, cycle);
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        chip_wake(c, tiles[i]);
    }
}

static unsigned host_group(enum barrier_class k) {
    return k == BARRIER_G1_HOST ? 0 : 1;
}

bool sync_settle(struct chip *c) {
    uint64_t latest = 0;
    if (c->held_class != BARRIER_NONE) {
        return false;
    }
    enum barrier_class k = find_due(c, &latest);
    if (k == BARRIER_NONE) {
        return false;
    }
    if ((k == BARRIER_G1_HOST || k == BARRIER_G2_HOST) && !mark_arrive(c, host_group(k))) {
        c->held_class = k;
        return false;
    }
    release(c, k, latest);
    return true;
}

void sync_release_held(struct chip *c) {
    uint64_t latest = 0;
    enum barrier_class k = find_due(c, &latest);
    /* A tile may have been stopped by the debug interface meanwhile: then it is not due. */
    if (k != BARRIER_NONE && k == c->held_class) {
        release(c, k, latest);
    }
    c->held_class = BARRIER_NONE;
}
