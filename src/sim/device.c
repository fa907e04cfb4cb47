/* The register seam of the simulated device: offsets and calls to the parts that answer them
 * (device fact sheet 1.3, 2, 10).
 *
 * Only reads of marks, context states and the autoloader drive the chip, one slice each; all other
 * accesses find it standing still (design.md D11).
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "sim/chip.h"

enum {
    AUTOLDCSR = 0x2068,
    AUTOLDDATAR = 0x2070,
    HSP1 = 0x302c,
    HSP2 = 0x3030,
    TDI = 0x30000,
    TDI_END = TDI + TARGET_TILES * 0x40,
};

/* Control registers whose bit 31 is cleared by writing 1 (2.3, 2.4). */
static bool clears_error(uint32_t offset) {
    static const uint32_t nlc[] = {0xa400,  0xc800,  0x12000, 0x14400, 0x16800,
                                   0x18c00, 0x1b000, 0x1f800, 0x21c00, 0x24000};
    for (unsigned i = 0; i < sizeof nlc / sizeof nlc[0]; i++) {
        if (offset == nlc[i]) {
            return true;
        }
    }
    bool is_block = (offset >= 0x5400 && offset < 0x5400 + 8 * 0x400) ||
                    (offset >= 0x1b800 && offset < 0x1b800 + 8 * 0x400);
    bool is_router =
        (offset >= 0xcc00 && offset <= 0xfc00) || (offset >= 0x24400 && offset <= 0x28c00);
    return (is_block || is_router) && offset % 0x400 == 0;
}

static int check_offset(uint32_t offset, struct err *err) {
    if (offset % 4 != 0 || offset >= IPU_CONFIG_BYTES) {
        return err_set(
            err, ERR_INVALID, "register offset %#x: not a word below %#x", offset,
            IPU_CONFIG_BYTES);
    }
    return 0;
}

static int check_chip(const struct chip *c, struct err *err) {
    if (c->failed.code != 0 && err != NULL) {
        *err = c->failed;
    }
    return -c->failed.code;
}

/* Lets the chip run for one read. `needs_progress`: a chip that can never run again is an error. */
static int drive(struct chip *c, bool needs_progress, struct err *err) {
    chip_slice(c);
    int code = check_chip(c, err);
    if (code != 0 || !c->is_quiet) {
        return code;
    }
    code = chip_verdict(c, err);
    clock_idle(c, code != 0);
    if (!needs_progress && code != 0) {
        if (err != NULL) {
            err_clear(err);
        }
        return 0;
    }
    return code;
}

static int sim_read32(void *self, uint32_t offset, uint32_t *ret_value, struct err *err) {
    struct chip *c = self;
    int code = check_offset(offset, err);
    if (code != 0) {
        return code;
    }
    if (offset == HSP1 || offset == HSP2) {
        code = drive(c, true, err);
        if (code == 0) {
            *ret_value = mark_read(c, offset == HSP1 ? 0 : 1);
        }
        return code;
    }
    if (offset >= TDI && offset < TDI_END) {
        uint16_t tile = (uint16_t)((offset - TDI) / 0x40);
        unsigned reg = (offset - TDI) / 4 % 16;
        code = reg == 0 ? drive(c, false, err) : 0;
        if (code == 0) {
            *ret_value = debug_read(c, tile, reg);
        }
        return code;
    }
    code = offset == AUTOLDCSR ? drive(c, false, err) : 0;
    if (code == 0) {
        *ret_value = c->regs[offset / 4];
    }
    return code;
}

static int sim_write32(void *self, uint32_t offset, uint32_t value, struct err *err) {
    struct chip *c = self;
    int code = check_offset(offset, err);
    if (code != 0) {
        return code;
    }
    c->is_quiet = false;
    if (offset == HSP1 || offset == HSP2) {
        mark_write(c, offset == HSP1 ? 0 : 1, value);
    } else if (offset >= AUTOLDCSR && offset <= AUTOLDDATAR) {
        autoload_write(c, offset, value);
    } else if (offset >= TDI && offset < TDI_END) {
        debug_write(c, (uint16_t)((offset - TDI) / 0x40), (offset - TDI) / 4 % 16, value);
    } else {
        c->regs[offset / 4] = clears_error(offset) ? value & 0x7fffffff : value;
    }
    return check_chip(c, err);
}

/* Counts a driver call; the one named by the options fails. */
static int call_driver(struct chip *c, const char *name, struct err *err) {
    uint32_t number = c->driver_calls++;
    c->is_quiet = false;
    if (c->options.fault.kind == SIM_FAULT_REQUEST && c->options.fault.at == number) {
        return err_sys(err, ERR_DEVICE_ERROR, EIO, "%s", name);
    }
    return 0;
}

static int
sim_attach(void *self, uint32_t index, void *memory, uint32_t size_bytes, struct err *err) {
    int code = call_driver(self, "attach", err);
    return code != 0 ? code : host_attach(self, index, memory, size_bytes, err);
}

static int sim_detach(void *self, uint32_t index, struct err *err) {
    int code = call_driver(self, "detach", err);
    return code != 0 ? code : host_detach(self, index, err);
}

static int sim_detach_all(void *self, struct err *err) {
    int code = call_driver(self, "detach all", err);
    if (code == 0) {
        host_detach_all(self);
    }
    return code;
}

static int sim_request(void *self, enum ipu_request request, struct err *err) {
    static const char *const names[] = {
        [IPU_USER_ATTACH] = "user attach",
        [IPU_SET_IPU_ID] = "set IPU id",
        [IPU_STOP_MONITORING] = "stop monitoring",
        [IPU_START_MONITORING] = "start monitoring",
        [IPU_ACCUMULATE_ERRORS] = "accumulate errors",
        [IPU_RESET_DEVICE] = "reset device",
        [IPU_SET_SECONDARY_IPU_ID] = "set secondary IPU id",
    };
    if ((unsigned)request >= sizeof names / sizeof names[0]) {
        return err_sys(err, ERR_DEVICE_ERROR, EINVAL, "request %d", (int)request);
    }
    int code = call_driver(self, names[request], err);
    if (code == 0 && request == IPU_RESET_DEVICE) {
        chip_reset(self);
    }
    return code;
}

static int sim_mailbox(
    void *self, const struct ipu_mailbox *sent, struct ipu_mailbox *ret_received, struct err *err) {
    struct chip *c = self;
    int code = call_driver(c, "mailbox", err);
    if (code != 0) {
        return code;
    }
    struct ipu_mailbox reply = *sent;
    reply.words[0] &= 0xffff0000u;
    if (c->options.fault.kind == SIM_FAULT_MAILBOX) {
        reply.words[0] ^= 0xffff0000u;
    }
    *ret_received = reply;
    return 0;
}

static void sim_fence(void *self) {
    (void)self;
    atomic_thread_fence(memory_order_seq_cst);
}

static uint64_t sim_now_ns(void *self) {
    return clock_now_ns(self);
}

static void sim_pause(void *self, uint64_t ns) {
    (void)self; /* reads drive the chip: nothing is to be waited for */
    (void)ns;
}

static void sim_close(void *self) {
    chip_free(self);
}

int sim_device_open(
    const struct sim_options *options, struct ipu_device_ops *ret, struct err *err) {
    struct chip *c = chip_new(options, err);
    if (c == NULL) {
        return -ERR_NOMEM;
    }
    *ret = (struct ipu_device_ops){
        .self = c,
        .name = "sim",
        .read32 = sim_read32,
        .write32 = sim_write32,
        .attach = sim_attach,
        .detach = sim_detach,
        .detach_all = sim_detach_all,
        .request = sim_request,
        .mailbox = sim_mailbox,
        .fence = sim_fence,
        .now_ns = sim_now_ns,
        .pause = sim_pause,
        .close = sim_close};
    return 0;
}
