/* /dev/ipuN through the public driver: one mapping of the configuration space and the ioctls of
 * device fact sheet 1.3. Compiled and refused politely where there is no card: opening a node
 * that does not exist says so. Never run against a card by its authors: every result is checked,
 * and orders follow the fact sheet to the letter. */
#include "device/device_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/monotonic.h"

/* dir << 30 | size << 16 | 0xED << 8 | number. */
#define IOC_USER_ATTACH          0xC008ED0Aul
#define IOC_BUFFER_ATTACH        0xC008ED0Bul
#define IOC_BUFFER_DETACH        0xC008ED0Cul
#define IOC_SET_IPU_ID           0xC008ED0Eul
#define IOC_BUFFER_DETACH_ALL    0x0000ED12ul
#define IOC_MAILBOX_WRITE_READ   0xC008ED1Ful
#define IOC_STOP_MONITORING      0x0000ED22ul
#define IOC_START_MONITORING     0x0000ED23ul
#define IOC_ACCUMULATE_ERRORS    0x0000ED24ul
#define IOC_RESET_DEVICE         0x4004ED2Dul
#define IOC_SET_SECONDARY_IPU_ID 0x4008ED2Ful

struct pcie {
    int fd;
    volatile uint32_t *registers;
    char name[64];
};

struct buffer_attach {
    uint32_t index;
    uint32_t size;
    uint64_t address;
};

struct mailbox_exchange {
    const struct ipu_mailbox *sent;
    struct ipu_mailbox *received;
};

static int pcie_read32(void *self, uint32_t offset, uint32_t *ret, struct err *err) {
    (void)err;
    *ret = ((struct pcie *)self)->registers[offset / 4];
    return 0;
}

static int pcie_write32(void *self, uint32_t offset, uint32_t value, struct err *err) {
    (void)err;
    ((struct pcie *)self)->registers[offset / 4] = value;
    return 0;
}

static int
pcie_ioctl(struct pcie *p, unsigned long code, void *arg, const char *what, struct err *err) {
    if (ioctl(p->fd, code, arg) != 0) {
        return err_sys(err, ERR_DEVICE_ERROR, errno, "%s: %s", p->name, what);
    }
    return 0;
}

static int pcie_attach(void *self, uint32_t index, void *memory, uint32_t size, struct err *err) {
    struct buffer_attach a = {index, size, (uint64_t)(uintptr_t)memory};
    return pcie_ioctl(self, IOC_BUFFER_ATTACH, &a, "attach buffer", err);
}

static int pcie_detach(void *self, uint32_t index, struct err *err) {
    return pcie_ioctl(self, IOC_BUFFER_DETACH, (void *)(uintptr_t)index, "detach buffer", err);
}

static int pcie_detach_all(void *self, struct err *err) {
    return pcie_ioctl(self, IOC_BUFFER_DETACH_ALL, NULL, "detach all buffers", err);
}

static int pcie_request(void *self, enum ipu_request request, struct err *err) {
    static const struct {
        unsigned long code;
        const char *what;
    } rows[] = {
        [IPU_USER_ATTACH] = {IOC_USER_ATTACH, "attach user"},
        [IPU_SET_IPU_ID] = {IOC_SET_IPU_ID, "set IPU id"},
        [IPU_STOP_MONITORING] = {IOC_STOP_MONITORING, "stop monitoring"},
        [IPU_START_MONITORING] = {IOC_START_MONITORING, "start monitoring"},
        [IPU_ACCUMULATE_ERRORS] = {IOC_ACCUMULATE_ERRORS, "accumulate errors"},
        [IPU_RESET_DEVICE] = {IOC_RESET_DEVICE, "reset device"},
        [IPU_SET_SECONDARY_IPU_ID] = {IOC_SET_SECONDARY_IPU_ID, "set secondary IPU id"},
    };
    /* The number codes 8 bytes where public code passes 4: a zeroed 64-bit word serves both. */
    uint64_t zero = 0;
    void *arg = request == IPU_SET_SECONDARY_IPU_ID ? &zero : NULL;
    return pcie_ioctl(self, rows[request].code, arg, rows[request].what, err);
}

static int
pcie_mailbox(void *self, const struct ipu_mailbox *sent, struct ipu_mailbox *ret, struct err *err) {
    struct mailbox_exchange x = {sent, ret};
    return pcie_ioctl(self, IOC_MAILBOX_WRITE_READ, &x, "mailbox", err);
}

static void pcie_fence(void *self) {
    (void)self;
    __sync_synchronize();
}

static uint64_t pcie_now_ns(void *self) {
    (void)self;
    return monotonic_ns();
}

static void pcie_pause(void *self, uint64_t ns) {
    (void)self;
    struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    nanosleep(&t, NULL);
}

static void pcie_close(void *self) {
    struct pcie *p = self;
    if (p == NULL) {
        return;
    }
    if (p->registers != NULL) {
        munmap((void *)(uintptr_t)p->registers, IPU_CONFIG_BYTES);
    }
    if (p->fd >= 0) {
        close(p->fd);
    }
    free(p);
}

static void cleanup_pcie(struct pcie **p) {
    pcie_close(*p);
}

int pcie_open(const char *spec, struct ipu_device_ops *ret, struct err *err) {
    CLEANUP(cleanup_pcie) struct pcie *p = calloc(1, sizeof *p);
    if (p == NULL) {
        return err_set(err, ERR_NOMEM, NULL);
    }
    p->fd = open(spec, O_RDWR | O_CLOEXEC);
    if (p->fd < 0) {
        return err_sys(
            err, errno == EACCES ? ERR_PERMISSION : ERR_DEVICE_ABSENT, errno,
            "cannot open %s (without a card use --device sim)", spec);
    }
    void *map = mmap(NULL, IPU_CONFIG_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, p->fd, 0);
    if (map == MAP_FAILED) {
        return err_sys(
            err, ERR_DEVICE_ERROR, errno, "%s: cannot map the configuration space", spec);
    }
    p->registers = map;
    snprintf(p->name, sizeof p->name, "%s", spec);
    *ret = (struct ipu_device_ops){
        .name = p->name,
        .read32 = pcie_read32,
        .write32 = pcie_write32,
        .attach = pcie_attach,
        .detach = pcie_detach,
        .detach_all = pcie_detach_all,
        .request = pcie_request,
        .mailbox = pcie_mailbox,
        .fence = pcie_fence,
        .now_ns = pcie_now_ns,
        .pause = pcie_pause,
        .close = pcie_close};
    ret->self = TAKE(p);
    return 0;
}
