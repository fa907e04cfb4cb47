/* The tile debug interface: 16 registers a tile (device fact sheet 2.5, 2.6).
 *
 * Injection executes one word on a stopped context at once, so BUSY is never seen. A context that
 * runs, or a supervisor that stands in a barrier (but see sim_options.inject_waiting), refuses with
 * CNQ; a word that is no instruction of the context with INV.
 */
#include "sim/chip.h"

enum {
    REG_CTXT_STS,
    REG_RBRK,
    REG_RBRK_VERT,
    REG_IEXEC,
    REG_IOWNER,
    REG_ECSR,
    REG_ECLR,
    REG_DATA,
    REG_TDI_STS,
    REG_TDI_CLR,
    REG_DCOUNT,
    REG_EXCHANGE_CTL,
    REG_TDI_CTL,
    ECSR_BOS = 5, /* break on sync */
    STS_CNQ = 1,
    STS_INV = 2,
    CSR_CTXT_STS = 0x72,
};

static uint32_t receive_error(const struct chip_tile *t) {
    bool is_error = t->fault.code > ROW_ERROR_NONE && t->fault.code <= ROW_ERROR_MODI;
    return is_error ? (uint32_t)t->fault.code << 27 | 1u << 30 : 0;
}

static uint32_t context_states(const struct chip_tile *t) {
    uint32_t value = receive_error(t);
    for (int k = 0; k < CHIP_CONTEXTS; k++) {
        value |= (uint32_t)(tile_context_state(t->tile, k) & 3) << (2 * k);
    }
    return value;
}

uint32_t debug_read(struct chip *c, uint16_t tile, unsigned reg) {
    const struct chip_tile *t = &c->tiles[tile];
    switch (reg) {
    case REG_CTXT_STS: return context_states(t);
    case REG_RBRK: return t->rbrk;
    case REG_RBRK_VERT: return t->rbrk_vert;
    case REG_IOWNER: return t->iowner;
    case REG_ECSR: return t->ecsr;
    case REG_DATA: return tile_csr(t->tile, CSR_DBG_DATA);
    case REG_TDI_STS: return t->tdi_sts;
    case REG_DCOUNT: return tile_csr(t->tile, CSR_INCOMING_DCOUNT) & 0x1ffff;
    case REG_EXCHANGE_CTL: return tile_csr(t->tile, CSR_EXCHANGE_CTL);
    case REG_TDI_CTL: return t->tdi_ctl;
    default: /* write-only or unused */ return 0;
    }
}

static void inject(const struct chip *c, struct chip_tile *t, uint32_t word) {
    int context = (int)(t->iowner & 7);
    if (context >= CHIP_CONTEXTS) {
        t->tdi_sts |= STS_INV;
        return;
    }
    bool waits = context == 0 && t->state == TILE_WAITS && tile_etype(t->tile, 0) == 0;
    bool is_quiescent = tile_context_state(t->tile, context) != 1 &&
                        (!waits || (c->options.inject_waiting && (t->rbrk & 1) != 0));
    if (!is_quiescent) {
        t->tdi_sts |= STS_CNQ;
    } else if (!tile_inject(t->tile, context, word)) {
        t->tdi_sts |= STS_INV;
    }
}

static void set_break(struct chip *c, uint16_t tile, uint32_t value) {
    struct chip_tile *t = &c->tiles[tile];
    for (int k = 0; k < CHIP_CONTEXTS; k++) {
        bool wanted = (value >> k & 1) != 0;
        tile_set_break(t->tile, k, wanted);
        /* Workers may run beside a waiting supervisor: let them meet the stop. */
        if (wanted && t->state == TILE_WAITS && tile_workers_active(t->tile)) {
            chip_wake(c, tile);
        }
    }
    t->rbrk = value;
}

static void clear_exceptions(struct chip *c, uint16_t tile, uint32_t contexts) {
    struct chip_tile *t = &c->tiles[tile];
    for (int k = 0; k < CHIP_CONTEXTS; k++) {
        if ((contexts >> k & 1) == 0 || tile_context_state(t->tile, k) < 2) {
            continue;
        }
        if (k == 0) {
            t->fault = (struct row_fault){.code = 0};
            tile_set_csr(t->tile, CSR_CTXT_STS, 0);
        }
        tile_clear_exception(t->tile, k, tile_cycle(t->tile));
        chip_wake(c, tile);
    }
}

void debug_write(struct chip *c, uint16_t tile, unsigned reg, uint32_t value) {
    struct chip_tile *t = &c->tiles[tile];
    switch (reg) {
    case REG_RBRK: set_break(c, tile, value); break;
    case REG_RBRK_VERT: t->rbrk_vert = value; break;
    case REG_IEXEC: inject(c, t, value); break;
    case REG_IOWNER: t->iowner = value & 7; break;
    case REG_ECSR:
        t->ecsr = value;
        tile_set_break_on_sync(t->tile, (value >> ECSR_BOS & 1) != 0);
        break;
    case REG_ECLR: clear_exceptions(c, tile, value); break;
    case REG_DATA: tile_set_csr(t->tile, CSR_DBG_DATA, value); break;
    case REG_TDI_CLR: t->tdi_sts &= ~(value & 7); break;
    case REG_TDI_CTL: t->tdi_ctl = value; break;
    default: /* read-only or unused */ break;
    }
}
