/* A host exchange session (device fact sheet 5): pages, then phases, each an entry and an exit
 * barrier that the host acknowledges through group 2's mark.
 *
 * Start is the deterministic variant of 5.2: group 2's mark is written before the tiles are let
 * go, so that "mark reads 0" means that all tiles stand at the startup barrier. From there the
 * n-th acknowledgement moves the device from barrier n-1 to barrier n:
 *
 *   startup -ack-> entry 0 -ack-> exit 0 -ack-> entry 1 -ack-> exit 1 ... -ack-> entry of next run
 *
 * The host touches pages only while the device stands outside [entry, exit]: it gathers before the
 * acknowledgement that leads to an entry, and scatters after the exit is reached. */
#include "device/device_internal.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define START_LIMIT_NS 10000000000ull
#define SHORT_LIMIT_NS 10000000000ull

static const char *const call_names[] = {"initialize", "run"};

static uint8_t *pages_new(uint32_t size) {
    void *p =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static int attach_pages(struct device *d, struct err *err) {
    uint32_t pages = d->program->participant_count;
    d->pages_bytes = (pages > 0 ? pages : 1) * IPU_PAGE_BYTES;
    d->command_page = pages_new(IPU_PAGE_BYTES);
    d->pages = pages_new(d->pages_bytes);
    if (d->command_page == NULL || d->pages == NULL) {
        return err_set(err, ERR_NOMEM, "%u host pages", pages + 1);
    }
    int r = d->ops.detach_all(d->ops.self, err);
    r = r < 0 ? r : reg_write(d, REG_EXCHWINDOW, 0x800, err);
    r = r < 0 ? r : d->ops.attach(d->ops.self, 0, d->command_page, IPU_PAGE_BYTES, err);
    r = r < 0 ? r : reg_write(d, REG_EXCHWINDOW, 0x800, err);
    return r < 0 ? r : d->ops.attach(d->ops.self, 1, d->pages, d->pages_bytes, err);
}

void session_end(struct device *d) {
    if (d->pages != NULL || d->command_page != NULL) {
        (void)d->ops.detach_all(d->ops.self, NULL);
    }
    if (d->pages != NULL) {
        munmap(d->pages, d->pages_bytes);
    }
    if (d->command_page != NULL) {
        munmap(d->command_page, IPU_PAGE_BYTES);
    }
    d->pages = NULL;
    d->command_page = NULL;
}

int session_start(struct device *d, device_event_fn *event, void *arg, struct err *err) {
    char fields[64];
    if (event != NULL) {
        event("device.session", "starting host exchange session", "{\"startup_mark\":23}", arg);
    }
    int r = reg_write(d, REG_EXCHWINDOW, 0x800, err);
    r = r < 0 ? r : hsp_write(d, REG_HSPGS2, 1, err);
    r = r < 0 ? r : hsp_write(d, REG_HSPGS1, 1, err);
    r = r < 0 ? r
              : reg_wait_clear(d, REG_HSPGS2, MARK_MASK, START_LIMIT_NS, "startup barrier", err);
    if (r == 0 && event != NULL) {
        snprintf(
            fields, sizeof fields, "{\"pages\":2,\"participants\":%u}",
            d->program->participant_count);
        event("device.pages", "attaching host exchange pages", fields, arg);
    }
    r = r < 0 ? r : attach_pages(d, err);
    if (r == 0 && event != NULL) {
        event("device.session.started", "host exchange session started", "{}", arg);
    }
    return r;
}

/* One acknowledgement: the device moves to its next barrier. */
static int acknowledge(struct device *d, uint64_t limit_ns, const char *what, struct err *err) {
    int r = hsp_write(d, REG_HSPGS2, 1, err);
    return r < 0 ? r : reg_wait_clear(d, REG_HSPGS2, MARK_MASK, limit_ns, what, err);
}

int session_call(
    struct device *d, enum package_call call, const uint8_t *const *inputs, uint8_t *const *outputs,
    uint64_t limit_ns, struct err *err) {
    const struct program *g = d->program;
    for (uint32_t i = 0; i < g->phase_count; i++) {
        const struct package_phase *f = &g->phases[i];
        if (f->call != call) {
            continue;
        }
        char what[64];
        snprintf(what, sizeof what, "%s phase %u", call_names[call], f->index);
        if (!f->is_output) {
            bind_gather(g, i, inputs, d->pages);
        }
        /* Computing happens on the way to the first output phase: only that wait is the caller's
         * to limit. */
        uint64_t limit = f->is_output ? limit_ns : SHORT_LIMIT_NS;
        int r = acknowledge(d, limit, what, err);
        r = r < 0 ? r : acknowledge(d, SHORT_LIMIT_NS, what, err);
        if (r < 0) {
            return r;
        }
        d->ops.fence(d->ops.self);
        if (f->is_output) {
            bind_scatter(g, i, d->pages, outputs);
        }
    }
    return 0;
}
