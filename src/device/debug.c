/* The tile debug interface (device fact sheet 2.5, 2.6): instructions injected into a stopped
 * context move registers and memory words through the DBG_DATA mailbox. */
#include "device/device_internal.h"

#define TDI_CTXT_STS  0u
#define TDI_RBRK      1u
#define TDI_IEXEC     3u
#define TDI_IOWNER    4u
#define TDI_ECLR      6u
#define TDI_DATA      7u
#define TDI_STS       8u
#define TDI_CLR       9u
#define TDI_LIMIT_NS  100000000ull

#define INJECT_PUT_DATA(m) (0x43008070u | (uint32_t)(m) << 20) /* put DBG_DATA, mN */
#define INJECT_GET_CSR(c)  (0x41000000u | (uint32_t)(c))       /* get m0, csr */
#define INJECT_GET_DATA(m) (0x41000070u | (uint32_t)(m) << 16) /* get mN, DBG_DATA */
#define INJECT_LOAD        0x01f01000u                         /* ld32 m0, m15, m1, 0 */

static uint32_t tdi(uint32_t tile, uint32_t reg)
{
    return REG_TDI_BASE + tile * 0x40 + reg * 4;
}

int tdi_context_state(struct device *d, uint32_t tile, int context, uint32_t *ret, struct err *err)
{
    uint32_t status;
    int r = reg_read(d, tdi(tile, TDI_CTXT_STS), &status, err);
    if (r == 0) {
        *ret = status >> (2 * context) & 3;
    }
    return r;
}

static int inject(struct device *d, uint32_t tile, int context, uint32_t word, struct err *err)
{
    int r = reg_write(d, tdi(tile, TDI_CLR), 6, err);
    r = r < 0 ? r : reg_write(d, tdi(tile, TDI_IOWNER), (uint32_t)context, err);
    r = r < 0 ? r : reg_write(d, tdi(tile, TDI_IEXEC), word, err);
    r = r < 0 ? r : reg_wait_clear(d, tdi(tile, TDI_STS), 8, TDI_LIMIT_NS, "tile debug", err);
    uint32_t status = 0;
    r = r < 0 ? r : reg_read(d, tdi(tile, TDI_STS), &status, err);
    if (r == 0 && (status & 7) != 0) {
        return err_set(err, ERR_DEVICE_ERROR,
            "tile %u context %d refused instruction 0x%08x: status 0x%x", tile, context, word,
            status);
    }
    return r;
}

struct hold { /* a context stopped for us, and what to put back */
    uint32_t break_register;
    bool was_stopped;
};

static int hold_begin(struct device *d, uint32_t tile, int context, struct hold *h, struct err *err)
{
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
    while (r == 0) {
        r = tdi_context_state(d, tile, context, &state, err);
        if (r < 0 || state >= 2) {
            return r;
        }
        if (d->ops.now_ns(d->ops.self) - start > TDI_LIMIT_NS) {
            (void)reg_write(d, tdi(tile, TDI_RBRK), h->break_register, NULL);
            return err_set(err, ERR_TIMEOUT, "tile %u context %d does not stop", tile, context);
        }
        d->ops.pause(d->ops.self, 1000);
    }
    return r;
}

static int hold_end(struct device *d, uint32_t tile, int context, const struct hold *h,
    struct err *err)
{
    if (h->was_stopped) {
        return 0;
    }
    int r = reg_write(d, tdi(tile, TDI_RBRK), h->break_register, err);
    if (r == 0 && (h->break_register >> context & 1) == 0) {
        r = reg_write(d, tdi(tile, TDI_ECLR), 1u << context, err);
    }
    return r;
}

static int get_m(struct device *d, uint32_t tile, int context, int number, uint32_t *ret,
    struct err *err)
{
    int r = inject(d, tile, context, INJECT_PUT_DATA(number), err);
    return r < 0 ? r : reg_read(d, tdi(tile, TDI_DATA), ret, err);
}

static int set_m(struct device *d, uint32_t tile, int context, int number, uint32_t value,
    struct err *err)
{
    int r = reg_write(d, tdi(tile, TDI_DATA), value, err);
    return r < 0 ? r : inject(d, tile, context, INJECT_GET_DATA(number), err);
}

int tdi_read_m(struct device *d, uint32_t tile, int context, int number, uint32_t *ret,
    struct err *err)
{
    struct hold h;
    int r = hold_begin(d, tile, context, &h, err);
    if (r < 0) {
        return r;
    }
    r = get_m(d, tile, context, number, ret, err);
    int ended = hold_end(d, tile, context, &h, r < 0 ? NULL : err);
    return r < 0 ? r : ended;
}

int tdi_read_csr(struct device *d, uint32_t tile, int context, int number, uint32_t *ret,
    struct err *err)
{
    struct hold h;
    uint32_t m0;
    int r = hold_begin(d, tile, context, &h, err);
    if (r < 0) {
        return r;
    }
    r = get_m(d, tile, context, 0, &m0, err);
    r = r < 0 ? r : inject(d, tile, context, INJECT_GET_CSR(number), err);
    r = r < 0 ? r : get_m(d, tile, context, 0, ret, err);
    r = r < 0 ? r : set_m(d, tile, context, 0, m0, err);
    int ended = hold_end(d, tile, context, &h, r < 0 ? NULL : err);
    return r < 0 ? r : ended;
}

int tdi_read_words(struct device *d, uint32_t tile, int context, uint32_t addr, uint32_t *ret,
    uint32_t count, struct err *err)
{
    if (addr % 4 != 0 || addr < TARGET_MEM_BASE || addr > TARGET_MEM_END ||
        count > (TARGET_MEM_END - addr) / 4) {
        return err_set(err, ERR_INVALID, "0x%x: %u words leave tile memory", addr, count);
    }
    struct hold h;
    uint32_t m0, m1;
    int r = hold_begin(d, tile, context, &h, err);
    if (r < 0) {
        return r;
    }
    r = get_m(d, tile, context, 0, &m0, err);
    r = r < 0 ? r : get_m(d, tile, context, 1, &m1, err);
    for (uint32_t i = 0; r == 0 && i < count; i++) {
        r = set_m(d, tile, context, 1, addr + 4 * i, err);
        r = r < 0 ? r : inject(d, tile, context, INJECT_LOAD, err);
        r = r < 0 ? r : get_m(d, tile, context, 0, &ret[i], err);
    }
    r = r < 0 ? r : set_m(d, tile, context, 1, m1, err);
    r = r < 0 ? r : set_m(d, tile, context, 0, m0, err);
    int ended = hold_end(d, tile, context, &h, r < 0 ? NULL : err);
    return r < 0 ? r : ended;
}

int tdi_find_fault(struct device *d, int *ret_tile, uint32_t *ret_status, struct err *err)
{
    *ret_tile = -1;
    for (uint32_t tile = 0; tile < TARGET_TILES; tile++) {
        uint32_t status;
        int r = reg_read(d, tdi(tile, TDI_CTXT_STS), &status, err);
        if (r < 0) {
            return r;
        }
        for (int context = 0; context < 7; context++) {
            if ((status >> (2 * context) & 3) >= 2) {
                *ret_tile = (int)tile;
                *ret_status = status;
                return 0;
            }
        }
    }
    return 0;
}

const char *tdi_exception_name(uint32_t etype)
{
    static const char *const names[16] = {"NONE", "RBRK", "PBRK0", "PBRK1", "BOS", "FP", "CONFLICT",
        "EXCONF", "INVALID_ADDR", "INVALID_OP", "INVALID_PC", "DBRK", "INVALID_INSTR", "EXERR",
        "MEMERR", "IBRK"};
    return names[etype & 15];
}
