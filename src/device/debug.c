/* The tile debug interface (device fact sheet 2.5, 2.6): instructions injected into a context move
 * registers and memory words through the DBG_DATA mailbox.
 *
 * Two levels. tdi_peek_x() injects at once: for a context that is known to be stopped, inactive,
 * or waiting in a sync with its stop requested. tdi_read_x() brings a context there first and puts
 * it back afterwards.
 *
 *   running    --RBRK--> stopped (RBRK) --peek--> RBRK restored, ECLR: runs on
 *   waiting    --RBRK--> still waiting  --peek--> RBRK restored; the interface may refuse this
 *   inactive worker, excepted           --peek
 *
 * Whatever happens in between, a register that was saved is restored and the break register is put
 * back. Every wait ends: TDI_LIMIT_NS each, and d->tdi_deadline_ns over all. */
#include "device/device_internal.h"

#define TDI_LIMIT_NS 100000000ull
#define SETTLE_POLLS 10 /* for a supervisor that waits: a stop may take effect, or not */
#define POLL_NS      1000

#define INJECT_PUT_DATA(m) (0x43008070u | (uint32_t)(m) << 20) /* put DBG_DATA, mN */
#define INJECT_GET_CSR(c)  (0x41000000u | (uint32_t)(c))       /* get m0, csr */
#define INJECT_GET_DATA(m) (0x41000070u | (uint32_t)(m) << 16) /* get mN, DBG_DATA */
#define INJECT_LOAD        0x01f01000u                         /* ld32 m0, m15, m1, 0 */

uint32_t tdi(uint32_t tile, enum tdi_register reg) {
    return REG_TDI_BASE + tile * 0x40 + (uint32_t)reg * 4;
}

int tdi_context_state(
    struct device *d, uint32_t tile, int context, uint32_t *ret, struct err *err) {
    uint32_t status;
    int r = reg_read(d, tdi(tile, TDI_CTXT_STS), &status, err);
    if (r == 0) {
        *ret = tdi_state(status, context);
    }
    return r;
}

static int inject(struct device *d, uint32_t tile, int context, uint32_t word, struct err *err) {
    if (d->tdi_deadline_ns != 0 && d->ops.now_ns(d->ops.self) > d->tdi_deadline_ns) {
        return err_set(err, ERR_TIMEOUT, "tile %u: time is over", tile);
    }
    int r = reg_write(d, tdi(tile, TDI_CLR), 7, err);
    r = r < 0 ? r : reg_write(d, tdi(tile, TDI_IOWNER), (uint32_t)context, err);
    r = r < 0 ? r : reg_write(d, tdi(tile, TDI_IEXEC), word, err);
    r = r < 0 ? r : reg_wait_clear(d, tdi(tile, TDI_STS), 8, TDI_LIMIT_NS, "tile debug", err);
    uint32_t status = 0;
    r = r < 0 ? r : reg_read(d, tdi(tile, TDI_STS), &status, err);
    if (r == 0 && (status & 7) != 0) {
        return err_set(
            err, ERR_CONFLICT, "tile %u context %d refused instruction 0x%08x: status 0x%x", tile,
            context, word, status);
    }
    return r;
}

/* ---- at once ------------------------------------------------------------------------------- */

int tdi_peek_m(
    struct device *d, uint32_t tile, int context, int number, uint32_t *ret, struct err *err) {
    int r = inject(d, tile, context, INJECT_PUT_DATA(number), err);
    return r < 0 ? r : reg_read(d, tdi(tile, TDI_DATA), ret, err);
}

static int
set_m(struct device *d, uint32_t tile, int context, int number, uint32_t value, struct err *err) {
    int r = reg_write(d, tdi(tile, TDI_DATA), value, err);
    return r < 0 ? r : inject(d, tile, context, INJECT_GET_DATA(number), err);
}

int tdi_peek_csr(
    struct device *d, uint32_t tile, int context, int number, uint32_t *ret, struct err *err) {
    uint32_t m0;
    int r = tdi_peek_m(d, tile, context, 0, &m0, err);
    if (r < 0) {
        return r;
    }
    r = inject(d, tile, context, INJECT_GET_CSR(number), err);
    r = r < 0 ? r : tdi_peek_m(d, tile, context, 0, ret, err);
    int restored = set_m(d, tile, context, 0, m0, r < 0 ? NULL : err);
    return r < 0 ? r : restored;
}

int tdi_peek_words(
    struct device *d, uint32_t tile, int context, uint32_t addr, uint32_t *ret, uint32_t count,
    struct err *err) {
    if (addr % 4 != 0 || addr < TARGET_MEM_BASE || addr > TARGET_MEM_END ||
        count > (TARGET_MEM_END - addr) / 4) {
        return err_set(
            err, ERR_INVALID, "0x%x: %u words leave tile memory (0x%x to 0x%x)", addr, count,
            TARGET_MEM_BASE, TARGET_MEM_END);
    }
    uint32_t m0, m1;
    int r = tdi_peek_m(d, tile, context, 0, &m0, err);
    r = r < 0 ? r : tdi_peek_m(d, tile, context, 1, &m1, err);
    if (r < 0) {
        return r;
    }
    for (uint32_t i = 0; r == 0 && i < count; i++) {
        r = set_m(d, tile, context, 1, addr + 4 * i, err);
        r = r < 0 ? r : inject(d, tile, context, INJECT_LOAD, err);
        r = r < 0 ? r : tdi_peek_m(d, tile, context, 0, &ret[i], err);
    }
    int restored = set_m(d, tile, context, 1, m1, r < 0 ? NULL : err);
    int also = set_m(d, tile, context, 0, m0, r < 0 || restored < 0 ? NULL : err);
    return r < 0 ? r : restored < 0 ? restored : also;
}

/* ---- with a stop --------------------------------------------------------------------------- */

struct hold { /* a context stopped for us, and what to put back */
    uint32_t break_register;
    bool was_stopped;
};

static int
hold_begin(struct device *d, uint32_t tile, int context, struct hold *h, struct err *err) {
    uint32_t state = 0;
    int r = reg_read(d, tdi(tile, TDI_RBRK), &h->break_register, err);
    r = r < 0 ? r : tdi_context_state(d, tile, context, &state, err);
    if (r < 0) {
        return r;
    }
    /* State 0 of a worker is inactive and may be borrowed; of the supervisor it may be waiting. */
    h->was_stopped = state >= 2 || (context != 0 && state == 0);
    if (h->was_stopped) {
        return 0;
    }
    r = reg_write(d, tdi(tile, TDI_RBRK), h->break_register | 1u << context, err);
    uint64_t start = d->ops.now_ns(d->ops.self);
    for (int polls = 0; r == 0; polls++) {
        r = tdi_context_state(d, tile, context, &state, err);
        if (r < 0 || state >= 2 || (context == 0 && state == 0 && polls >= SETTLE_POLLS)) {
            break;
        }
        if (d->ops.now_ns(d->ops.self) - start > TDI_LIMIT_NS) {
            r = err_set(err, ERR_TIMEOUT, "tile %u context %d does not stop", tile, context);
            break;
        }
        d->ops.pause(d->ops.self, POLL_NS);
    }
    if (r < 0) {
        (void)reg_write(d, tdi(tile, TDI_RBRK), h->break_register, NULL);
    }
    return r;
}

static int
hold_end(struct device *d, uint32_t tile, int context, const struct hold *h, struct err *err) {
    if (h->was_stopped) {
        return 0;
    }
    int r = reg_write(d, tdi(tile, TDI_RBRK), h->break_register, err);
    if (r == 0 && (h->break_register >> context & 1) == 0) {
        r = reg_write(d, tdi(tile, TDI_ECLR), 1u << context, err);
    }
    return r;
}

int tdi_read_m(
    struct device *d, uint32_t tile, int context, int number, uint32_t *ret, struct err *err) {
    struct hold h;
    int r = hold_begin(d, tile, context, &h, err);
    if (r < 0) {
        return r;
    }
    r = tdi_peek_m(d, tile, context, number, ret, err);
    int ended = hold_end(d, tile, context, &h, r < 0 ? NULL : err);
    return r < 0 ? r : ended;
}

int tdi_read_csr(
    struct device *d, uint32_t tile, int context, int number, uint32_t *ret, struct err *err) {
    struct hold h;
    int r = hold_begin(d, tile, context, &h, err);
    if (r < 0) {
        return r;
    }
    r = tdi_peek_csr(d, tile, context, number, ret, err);
    int ended = hold_end(d, tile, context, &h, r < 0 ? NULL : err);
    return r < 0 ? r : ended;
}

int tdi_read_words(
    struct device *d, uint32_t tile, int context, uint32_t addr, uint32_t *ret, uint32_t count,
    struct err *err) {
    struct hold h;
    int r = hold_begin(d, tile, context, &h, err);
    if (r < 0) {
        return r;
    }
    r = tdi_peek_words(d, tile, context, addr, ret, count, err);
    int ended = hold_end(d, tile, context, &h, r < 0 ? NULL : err);
    return r < 0 ? r : ended;
}

int tdi_read_registers(
    struct device *d, uint32_t tile, int context, struct device_registers *ret, struct err *err) {
    struct hold h;
    struct device_registers found = {0};
    uint32_t state = 0;
    int r = hold_begin(d, tile, context, &h, err);
    if (r < 0) {
        return r;
    }
    r = tdi_context_state(d, tile, context, &state, err);
    r = r < 0 ? r : tdi_peek_csr(d, tile, context, CSR_PC, &found.pc, err);
    r = r < 0 ? r : tdi_peek_csr(d, tile, context, CSR_STATUS, &found.status, err);
    for (int i = 0; r == 0 && i < DEVICE_M_REGISTERS; i++) {
        r = tdi_peek_m(d, tile, context, i, &found.m[i], err);
    }
    int ended = hold_end(d, tile, context, &h, r < 0 ? NULL : err);
    r = r < 0 ? r : ended;
    if (r == 0) {
        /* A stop that was only ours is no state of the context. */
        bool is_ours = !h.was_stopped && state >= 2;
        found.state = is_ours ? 1 : (uint8_t)state;
        found.exception = found.state >= 2 ? tdi_exception_name(found.status >> 4) : "NONE";
        *ret = found;
    }
    return r;
}

/* ---- breaks -------------------------------------------------------------------------------- */

int tdi_stop_all(struct device *d, struct err *err) {
    int r = 0;
    for (uint32_t tile = 0; r == 0 && tile < TARGET_TILES; tile++) {
        r = reg_write(d, tdi(tile, TDI_RBRK), TDI_RBRK_ALL, err);
    }
    return r;
}

int tdi_break_on_sync(struct device *d, uint32_t tile, bool enabled, struct err *err) {
    uint32_t value;
    int r = reg_read(d, tdi(tile, TDI_ECSR), &value, err);
    value = enabled ? value | TDI_ECSR_BOS : value & ~TDI_ECSR_BOS;
    return r < 0 ? r : reg_write_flushed(d, tdi(tile, TDI_ECSR), value, err);
}

int tdi_resume(struct device *d, uint32_t tile, int context, struct err *err) {
    return reg_write_flushed(d, tdi(tile, TDI_ECLR), 1u << context, err);
}

int tdi_find_fault(struct device *d, int *ret_tile, uint32_t *ret_status, struct err *err) {
    *ret_tile = -1;
    for (uint32_t tile = 0; tile < TARGET_TILES; tile++) {
        uint32_t status;
        int r = reg_read(d, tdi(tile, TDI_CTXT_STS), &status, err);
        if (r < 0) {
            return r;
        }
        for (int context = 0; context < 7; context++) {
            if (tdi_state(status, context) >= 2) {
                *ret_tile = (int)tile;
                *ret_status = status;
                return 0;
            }
        }
    }
    return 0;
}

const char *tdi_exception_name(uint32_t etype) {
    static const char *const names[16] = {"NONE",          "RBRK",       "PBRK0",      "PBRK1",
                                          "BOS",           "FP",         "CONFLICT",   "EXCONF",
                                          "INVALID_ADDR",  "INVALID_OP", "INVALID_PC", "DBRK",
                                          "INVALID_INSTR", "EXERR",      "MEMERR",     "IBRK"};
    return names[etype & 15];
}

const char *tdi_receive_error_name(uint32_t code) {
    static const char *const names[8] = {"NONE",    "CLASH_INSTR", "CLASH_IFETCH", "ADDR",
                                         "WORKERS", "DBRK",        "CONF",         "MODI"};
    return names[code & 7];
}
