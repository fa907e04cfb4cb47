/* Checked register access, and the one place that waits (device fact sheet 1.1, 9.1). */
#include "device/device_internal.h"

#define POLL_NS 100000u /* between two reads on a card */

static int check_offset(uint32_t offset, struct err *err) {
    if (offset % 4 != 0 || offset >= IPU_CONFIG_BYTES) {
        return err_set(
            err, ERR_INVALID, "register offset 0x%x: multiples of 4 below 0x%x", offset,
            IPU_CONFIG_BYTES);
    }
    return 0;
}

/* A simulator with a dead chip answers an error for a mark: a post-mortem then tells the last. */
static void note_mark(struct device *d, uint32_t offset, uint32_t value) {
    if (offset == REG_HSPGS1 || offset == REG_HSPGS2) {
        int group = offset == REG_HSPGS2;
        d->marks[group] = value & MARK_MASK;
        d->has_mark[group] = true;
    }
}

int reg_read(struct device *d, uint32_t offset, uint32_t *ret, struct err *err) {
    int r = check_offset(offset, err);
    r = r < 0 ? r : d->ops.read32(d->ops.self, offset, ret, err);
    if (r == 0) {
        note_mark(d, offset, *ret);
    }
    return r;
}

int reg_write(struct device *d, uint32_t offset, uint32_t value, struct err *err) {
    int r = check_offset(offset, err);
    r = r < 0 ? r : d->ops.write32(d->ops.self, offset, value, err);
    if (r == 0) {
        note_mark(d, offset, value);
    }
    return r;
}

int reg_write_flushed(struct device *d, uint32_t offset, uint32_t value, struct err *err) {
    uint32_t ignored;
    int r = reg_write(d, offset, value, err);
    return r < 0 ? r : reg_read(d, offset, &ignored, err);
}

int hsp_write(struct device *d, uint32_t group_register, uint32_t value, struct err *err) {
    d->ops.fence(d->ops.self);
    return reg_write_flushed(d, group_register, value, err);
}

int reg_wait_clear(
    struct device *d, uint32_t offset, uint32_t mask, uint64_t limit_ns, const char *what,
    struct err *err) {
    uint64_t start = d->ops.now_ns(d->ops.self);
    for (;;) {
        uint32_t value;
        int r = reg_read(d, offset, &value, err);
        if (r < 0) {
            return err_wrap(err, "%s", what);
        }
        if ((value & mask) == 0) {
            return 0;
        }
        if (atomic_load(&d->stop)) {
            return err_set(err, ERR_CANCELLED, "%s: stopped", what);
        }
        if (limit_ns != 0 && d->ops.now_ns(d->ops.self) - start > limit_ns) {
            return err_set(
                err, ERR_RUN_TIMEOUT,
                "%s: register 0x%x reads 0x%x after %llu ms, expected 0 under mask 0x%x", what,
                offset, value, (unsigned long long)(limit_ns / 1000000), mask);
        }
        d->ops.pause(d->ops.self, POLL_NS);
    }
}
