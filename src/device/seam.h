/* The device seam, at register level (design.md section 4): all that a card's driver offers and
 * nothing above it. `pcie` is /dev/ipuN, `sim` the same registers in memory; session, boot and
 * debug code above is one for both.
 *
 * Offsets are bytes in the 512 KiB configuration space, 4-aligned, 0..0x7fffc; anything else is
 * refused with ERR_INVALID before it reaches the device. Numbers and orders: device fact sheet
 * (sections 1, 2).
 *
 * Calls may block for at most some tens of milliseconds (a slice of simulation) and are made by
 * one thread. err->code: ERR_DEVICE_ERROR with errno in err->sys for a failing call, ERR_DEADLOCK
 * and ERR_TILE_FAULT from a simulator that knows no tile can advance.
 */
#ifndef DEVICE_SEAM_H
#define DEVICE_SEAM_H

#include <stdint.h>

#include "base/err.h"

#define IPU_CONFIG_BYTES 0x80000u
#define IPU_PAGE_BYTES   4096u
#define IPU_HEXOPT_SLOTS 65536u /* 256 MiB of host pages */

/* Driver requests (_IOC numbers in pcie.c). */
enum ipu_request {
    IPU_USER_ATTACH,
    IPU_SET_IPU_ID,
    IPU_STOP_MONITORING,
    IPU_START_MONITORING,
    IPU_ACCUMULATE_ERRORS,
    IPU_RESET_DEVICE,
    IPU_SET_SECONDARY_IPU_ID,
};

struct ipu_mailbox {
    uint32_t words[5];
};

struct ipu_device_ops {
    void *self;       /* owned by whoever opened the device; released by close() */
    const char *name; /* "sim" or "/dev/ipu0", borrowed from self */

    int (*read32)(void *self, uint32_t offset, uint32_t *ret_value, struct err *err);
    int (*write32)(void *self, uint32_t offset, uint32_t value, struct err *err);
    /* Pins `memory` (page-aligned, size a multiple of 4 KiB, below 4 GiB) at host page `index`:
     * tiles see it at host byte address index * 4096. Borrowed until detached. */
    int (*attach)(void *self, uint32_t index, void *memory, uint32_t size_bytes, struct err *err);
    int (*detach)(void *self, uint32_t index, struct err *err);
    int (*detach_all)(void *self, struct err *err);
    int (*request)(void *self, enum ipu_request request, struct err *err);
    int (*mailbox)(
        void *self, const struct ipu_mailbox *sent, struct ipu_mailbox *ret_received,
        struct err *err);
    /* Full fence between host memory accesses and register accesses. */
    void (*fence)(void *self);
    /* Monotonic nanoseconds on a card; cycles / 1.5 GHz on the simulator (design.md D10). */
    uint64_t (*now_ns)(void *self);
    /* Waits between two polls. The simulator does nothing: reads drive it. */
    void (*pause)(void *self, uint64_t ns);
    void (*close)(void *self); /* NULL self accepted */
};

#endif
