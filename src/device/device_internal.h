/* Shared by the files of src/device only: the steps of a session, in the order they happen.
 *
 *   lock_take -> open ops -> device_initialize -> config_replay -> boot_load -> session_start ->
 *   session_call(initialize) -> session_call(run)*
 *
 * All register numbers and orders: device fact sheet, sections named at each file's head.
 */
#ifndef DEVICE_DEVICE_INTERNAL_H
#define DEVICE_DEVICE_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "device/device.h"

/* Registers (device fact sheet 2.1, 2.3). */
#define REG_CCSR        0x2000u
#define REG_AUTOLDCSR   0x2068u
#define REG_AUTOLDTRGTR 0x206cu
#define REG_AUTOLDDATAR 0x2070u
#define REG_HSPGS1      0x302cu
#define REG_HSPGS2      0x3030u
#define REG_EXCHWINDOW  0x3044u
#define REG_XB_DCXCR    4u /* offset inside an exchange block */
#define REG_XB_XERDR    8u
#define REG_TDI_BASE    0x30000u
#define MARK_MASK       0xffffu
#define AUTOLD_GO       (1u << 8)

#define XB_COUNT 8
/* Byte offset of exchange block i (0..7) in order of use. */
uint32_t device_xb(bool is_east, int i);
/* DCXCR value that sends all requests of a block's contexts to interface `id` (0x3f = none). */
static inline uint32_t dcx_control(uint32_t id)
{
    return 2u | id << 3 | id << 9 | id << 15 | id << 21;
}

/* What of a package a resident program needs, copied: the package itself may go. */
struct program {
    struct arena arena; /* owns all below */
    struct package_binding *bindings;
    uint64_t *binding_bytes;
    uint32_t binding_count;
    struct package_phase *phases;
    uint32_t *first_slice;            /* phase_count + 1 entries */
    uint32_t phase_count;
    struct package_slice *slices;
    uint32_t slice_count;
    uint32_t *page_of;                /* by slice: byte offset of its tile's page */
    uint32_t participant_count;
    struct package_symbol *symbols;
    uint32_t symbol_count;
};

struct device {
    struct ipu_device_ops ops;
    int lock_fd;
    bool is_resident;
    uint32_t runs_completed;  /* of the resident program, as its tiles count them */
    struct digest residency;
    struct program *program;  /* owned; NULL when empty */
    uint8_t *command_page;    /* owned, attached at host page 0 */
    uint8_t *pages;           /* owned, attached at host page 1 */
    uint32_t pages_bytes;
    atomic_bool stop;         /* device_stop() while busy */
    atomic_bool is_busy;
};

/* lock.c: flock on path, or -ERR_DEVICE_BUSY naming the holder. */
int lock_take(const char *path, bool no_wait, int *ret_fd, struct err *err);
void lock_drop(int *fd);

/* pcie.c */
int pcie_open(const char *spec, struct ipu_device_ops *ret, struct err *err);

/* registers.c: checked access. */
int reg_read(struct device *d, uint32_t offset, uint32_t *ret, struct err *err);
int reg_write(struct device *d, uint32_t offset, uint32_t value, struct err *err);
/* Write and read back: PCIe writes are posted. */
int reg_write_flushed(struct device *d, uint32_t offset, uint32_t value, struct err *err);
/* Polls until (value & mask) == 0; limit in device time, 0 = none. `what` names the wait. */
int reg_wait_clear(struct device *d, uint32_t offset, uint32_t mask, uint64_t limit_ns,
    const char *what, struct err *err);
/* MARK := value, read back. */
int hsp_write(struct device *d, uint32_t group_register, uint32_t value, struct err *err);

/* config.c: the generated configuration image, and one from a file. */
struct config_write {
    uint32_t offset, value;
};
/* Writes of device fact sheet 3.4 in order; at most CONFIG_MAX of them. */
#define CONFIG_MAX 4096
uint32_t config_generate(struct config_write ret[CONFIG_MAX]);
/* "IPUCFG1\0", count, pairs; the size must fit exactly. */
int config_parse(const uint8_t *bytes, size_t n, struct config_write ret[CONFIG_MAX],
    uint32_t *ret_count, struct err *err);
int config_replay(
    struct device *d, const struct config_write *writes, uint32_t count, struct err *err);

/* boot.c */
int device_initialize(struct device *d, struct err *err);
int boot_load(struct device *d, const struct package *p, device_event_fn *event, void *arg,
    struct err *err);

/* bind.c: tensors <-> pages. tensors[binding] points at that binding's bytes. */
void bind_gather(const struct program *g, uint32_t phase, const uint8_t *const *tensors,
    uint8_t *pages);
void bind_scatter(const struct program *g, uint32_t phase, const uint8_t *pages,
    uint8_t *const *tensors);
int program_copy(const struct package *p, struct program **ret, struct err *err);
void program_free(struct program *g);

/* session.c */
int session_start(struct device *d, device_event_fn *event, void *arg, struct err *err);
void session_end(struct device *d);
/* All phases of one call: inputs from, outputs to tensors[binding] (NULL where unused). */
int session_call(struct device *d, enum package_call call, const uint8_t *const *inputs,
    uint8_t *const *outputs, uint64_t limit_ns, struct err *err);

/* debug.c: the tile debug interface. Context 0 is the supervisor, 1..6 are workers. */
int tdi_context_state(struct device *d, uint32_t tile, int context, uint32_t *ret, struct err *err);
int tdi_read_m(struct device *d, uint32_t tile, int context, int number, uint32_t *ret,
    struct err *err);
int tdi_read_csr(struct device *d, uint32_t tile, int context, int number, uint32_t *ret,
    struct err *err);
int tdi_read_words(struct device *d, uint32_t tile, int context, uint32_t addr, uint32_t *ret,
    uint32_t count, struct err *err);
/* First tile whose supervisor is excepted, or -1. Reads every tile's status once. */
int tdi_find_fault(struct device *d, int *ret_tile, uint32_t *ret_status, struct err *err);
const char *tdi_exception_name(uint32_t etype);

#endif
