/* All tiles: life cycle, running them until none can, and what that means.
 *
 * chip_slice() repeats: run every tile that can run, on the pool, until it waits or stops; then
 * settle what concerns more than one tile: host traffic, then a barrier, then a mark the host has
 * written. It ends when the slice is over or nothing moves any more.
 */
#include "sim/chip.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum {
    QUANTUM = 32768, /* cycles between two looks at the clock */
    TURN = 8,        /* quanta before another tile has its turn */
};

/* ---- life cycle ---------------------------------------------------------------------------- */

struct chip *chip_new(const struct sim_options *options, struct err *err) {
    struct chip *c = calloc(1, sizeof *c);
    if (c == NULL) {
        err_set(err, ERR_NOMEM, "simulated device");
        return NULL;
    }
    if (options != NULL) {
        c->options = *options;
    }
    c->regs = calloc(IPU_CONFIG_BYTES / 4, sizeof *c->regs);
    c->page_buffer = calloc(CHIP_PAGES, sizeof *c->page_buffer);
    /* A trace is written in the order in which tiles run: keep that order. */
    c->pool = pool_new(c->options.trace != NULL ? 1 : c->options.threads);
    bool ok = c->regs != NULL && c->page_buffer != NULL && c->pool != NULL;
    for (uint16_t i = 0; ok && i < TARGET_TILES; i++) {
        c->tiles[i].tile = tile_new(i, &c->options);
        ok = c->tiles[i].tile != NULL;
    }
    if (!ok) {
        chip_free(c);
        err_set(err, ERR_NOMEM, "%u simulated tiles", TARGET_TILES);
        return NULL;
    }
    return c;
}

void chip_free(struct chip *c) {
    if (c == NULL) {
        return;
    }
    pool_free(c->pool);
    for (uint16_t i = 0; i < TARGET_TILES; i++) {
        tile_free(c->tiles[i].tile);
        free(c->tiles[i].requests.data);
        free(c->tiles[i].host_words.data);
    }
    phase_done(c);
    autoload_done(c);
    free(c->regs);
    free(c->page_buffer);
    free(c);
}

void chip_reset(struct chip *c) {
    for (uint16_t i = 0; i < TARGET_TILES; i++) {
        struct chip_tile *t = &c->tiles[i];
        tile_reset(t->tile);
        host_reset_tile(t);
        t->state = TILE_OFF;
        t->zone = 0;
        t->cycle = t->limit = 0;
        t->abstain = 0;
        t->abstain_cycle = 0;
        t->fault = (struct row_fault){.code = 0};
        t->rbrk = t->rbrk_vert = t->iowner = t->ecsr = t->tdi_sts = t->tdi_ctl = 0;
    }
    for (uint32_t i = 0; i < IPU_CONFIG_BYTES / 4; i++) {
        c->regs[i] = 0;
    }
    for (int g = 0; g < 2; g++) {
        c->marks[g] = (struct chip_mark){.value = 0};
    }
    c->runnable_count = 0;
    c->held_class = BARRIER_NONE;
    c->barriers = 0;
    autoload_reset(c);
}

void chip_out_of_memory(struct chip *c, const char *what) {
    if (c->failed.code == 0) {
        err_set(&c->failed, ERR_NOMEM, "simulator: %s", what);
    }
}

/* ---- running ------------------------------------------------------------------------------- */

void chip_wake(struct chip *c, uint16_t tile) {
    c->is_quiet = false;
    if (c->tiles[tile].state != TILE_RUNS) {
        c->tiles[tile].state = TILE_RUNS;
        c->runnable[c->runnable_count++] = tile;
    }
}

void chip_start_tile(struct chip *c, uint16_t tile, uint32_t pc) {
    tile_start_supervisor(c->tiles[tile].tile, pc, c->cycles);
    chip_wake(c, tile);
}

void chip_raise(struct chip_tile *t, int etype, int32_t event, const char *format, ...) {
    tile_raise(t->tile, 0, etype);
    if (t->fault.code != 0) {
        return;
    }
    t->fault = (struct row_fault){.code = ROW_ERROR_TYPE + etype, .event = event};
    va_list args;
    va_start(args, format);
    vsnprintf(t->fault.text, sizeof t->fault.text, format, args);
    va_end(args);
}

/* Runs a tile up to a cycle; false once it waits or has stopped. */
static bool run_until(struct chip *c, struct chip_tile *t, uint64_t until) {
    for (;;) {
        switch (tile_run(t->tile, until)) {
        case TILE_LIMIT: return true;
        case TILE_SYNC:
            if (!sync_arrive(t, (unsigned)tile_insn(t->tile, NULL)->v[0])) {
                return false;
            }
            break;
        case TILE_EXCHANGE: host_execute(c, t); break;
        case TILE_IDLE: t->state = TILE_STOPPED; return false;
        default: /* after an exception the other contexts go on */ break;
        }
    }
}

/* One tile's turn: until it waits, stops, has had enough, or the slice is over. Touches nothing
 * but the tile. */
static void run_tile(void *self, uint32_t i) {
    struct chip *c = self;
    struct chip_tile *t = &c->tiles[c->runnable[i]];
    bool is_counted = c->options.slice_cycles != 0;
    uint64_t quantum = is_counted ? c->options.slice_cycles : QUANTUM;
    for (int k = 0; k < (is_counted ? 1 : TURN) && !clock_is_over(c); k++) {
        uint64_t cycle = tile_cycle(t->tile);
        uint64_t until = (cycle > t->limit ? cycle : t->limit) + quantum;
        t->round = c->round;
        if (!run_until(c, t, until)) {
            return;
        }
        t->limit = until;
    }
}

/* Keeps the tiles that can still run, those first that have not had a turn. */
static void keep_runnable(struct chip *c) {
    uint16_t list[TARGET_TILES];
    uint32_t kept = 0;
    for (int had_turn = 0; had_turn < 2; had_turn++) {
        for (uint32_t i = 0; i < c->runnable_count; i++) {
            const struct chip_tile *t = &c->tiles[c->runnable[i]];
            if (t->state == TILE_RUNS && (t->round == c->round) == (had_turn != 0)) {
                list[kept++] = c->runnable[i];
            }
        }
    }
    memcpy(c->runnable, list, kept * sizeof list[0]);
    c->runnable_count = kept;
}

/* Gives every tile a turn; true when none can run any more. */
static bool run_tiles(struct chip *c) {
    c->round++;
    pool_run(c->pool, run_tile, c, c->runnable_count);
    for (uint32_t i = 0; i < c->runnable_count; i++) {
        const struct chip_tile *t = &c->tiles[c->runnable[i]];
        uint64_t cycle = t->state == TILE_WAITS ? t->cycle : tile_cycle(t->tile);
        c->cycles = cycle > c->cycles ? cycle : c->cycles;
    }
    keep_runnable(c);
    return c->runnable_count == 0;
}

void chip_slice(struct chip *c) {
    if (c->is_quiet) {
        return;
    }
    clock_start(c);
    while (c->failed.code == 0) {
        if (run_tiles(c) && !host_settle(c) && !sync_settle(c) && !mark_settle(c)) {
            c->is_quiet = true;
            return;
        }
        if (c->options.slice_cycles != 0 || clock_is_over(c)) {
            return;
        }
    }
}

int chip_verdict(const struct chip *c, struct err *err) {
    bool waits = false;
    bool debugged = false;
    if (!c->is_quiet || c->held_class != BARRIER_NONE) {
        return 0;
    }
    for (uint16_t i = 0; i < TARGET_TILES; i++) {
        const struct chip_tile *t = &c->tiles[i];
        int context = t->state == TILE_OFF ? -1 : chip_fault_context(t);
        if (context >= 0) {
            char text[200];
            chip_describe_tile(c, i, text, sizeof text);
            return err_set(err, ERR_TILE_FAULT, "%s", text);
        }
        waits |= t->state == TILE_WAITS;
        for (int k = 0; k < CHIP_CONTEXTS; k++) {
            debugged |= tile_context_state(t->tile, k) == 2;
        }
    }
    return waits && !debugged ? chip_describe_deadlock(c, err) : 0;
}
