/* Reset and load (device fact sheet 1.4, 4.2 to 4.5): the autoloader puts the secondary loader,
 * ours or one from a file, on every tile, then 23 batches of 64 tiles travel through one transport
 * buffer, each acknowledged by group 1's mark. Afterwards all tiles wait in the loader's last
 * barrier.
 *
 * Why it ends: every wait has a limit in device time, every loop runs over tiles or frames. */
#include "device/device_internal.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/bytes.h"
#include "base/cleanup.h"
#include "runtime/runtime.h"

#define BATCH_TILES      64u
#define FRAME_BYTES      1024u
#define FRAME_PAYLOAD    992u
#define DESCRIPTOR_BYTES 4096u
#define TRANSPORT_BYTES  0x2842000u
#define MIN_FRAMES       17u
#define MAX_FRAMES       643u
#define LAST_FRAME       0x08000000u
#define FINAL_MARK       23u
#define BATCHES          (TARGET_TILES / BATCH_TILES)

#define AUTOLOADER_LIMIT_NS  2000000000ull
#define MARK_LIMIT_NS        10000000000ull
#define BEFORE_FIRST_MARK_NS 5000000u /* the tiles must stand at the first barrier (4.5) */

int device_initialize(struct device *d, struct err *err) {
    struct ipu_mailbox sent = {{0x4078020e, 0, 0, 0, 0}}, received = {{0}};
    int r = d->ops.request(d->ops.self, IPU_STOP_MONITORING, err);
    r = r < 0 ? r : d->ops.mailbox(d->ops.self, &sent, &received, err);
    if (r < 0) {
        return err_wrap(err, "device reset");
    }
    if (received.words[0] >> 16 != sent.words[0] >> 16) {
        return err_set(
            err, ERR_DEVICE_ERROR, "unexpected reset response 0x%08x to 0x%08x", received.words[0],
            sent.words[0]);
    }
    static const enum ipu_request rest[] = {
        IPU_START_MONITORING, IPU_ACCUMULATE_ERRORS, IPU_RESET_DEVICE, IPU_SET_SECONDARY_IPU_ID};
    for (size_t i = 0; r == 0 && i < sizeof rest / sizeof rest[0]; i++) {
        r = d->ops.request(d->ops.self, rest[i], err);
    }
    return r < 0 ? err_wrap(err, "device reset") : 0;
}

static int autoload_wait(struct device *d, struct err *err) {
    return reg_wait_clear(d, REG_AUTOLDCSR, AUTOLD_GO, AUTOLOADER_LIMIT_NS, "autoloader", err);
}

/* 4.2: loader to every tile, zeros behind it. The supervisors then run from 0x4c000. */
static int install_loader(struct device *d, const uint8_t *bytes, uint32_t size, struct err *err) {
    if (size == 0 || size > LOADER_MAX_BYTES) {
        return err_set(err, ERR_BOOT, "loader of %u bytes: at most %u", size, LOADER_MAX_BYTES);
    }
    uint32_t padded = (size + FRAME_BYTES - 1) / FRAME_BYTES * FRAME_BYTES;
    uint32_t ignored;
    int r = reg_write(d, REG_AUTOLDCSR, 0, err);
    for (uint32_t at = 0; r == 0 && at < padded; at += 4) {
        uint8_t word[4] = {0};
        if (at < size) {
            memcpy(word, bytes + at, size - at < 4 ? size - at : 4);
        }
        r = reg_write(d, REG_AUTOLDDATAR, load_le32(word), err);
        if (r == 0 && (at / 4) % 32 == 31) {
            r = reg_read(d, REG_AUTOLDCSR, &ignored, err);
        }
    }
    uint32_t kib = padded / 1024;
    r = r < 0 ? r : reg_write(d, REG_AUTOLDTRGTR, 32u << 20 | kib << 10, err);
    r = r < 0 ? r
              : reg_write(d, REG_AUTOLDCSR, 1u << 20 | AUTOLD_GO | ((padded / 4 - 1) & 0x3f), err);
    r = r < 0 ? r : autoload_wait(d, err);
    r = r < 0 ? r : reg_write(d, REG_AUTOLDTRGTR, 32u << 20 | 624u << 10 | kib, err);
    r = r < 0 ? r : reg_write(d, REG_AUTOLDCSR, (TARGET_TILES - 1u) << 9 | AUTOLD_GO | 0x3f, err);
    r = r < 0 ? r : autoload_wait(d, err);
    return r < 0 ? err_wrap(err, "secondary loader") : 0;
}

static int install_own_loader(struct device *d, struct err *err) {
    CLEANUP(arena_done) struct arena a;
    arena_init(&a, 16u << 20);
    if (ARENA_RECOVER(&a)) {
        return err_set(err, ERR_NOMEM, "secondary loader");
    }
    const uint8_t *bytes;
    uint32_t size;
    int r = runtime_loader(&a, &bytes, &size, err);
    a.has_recover = false;
    return r < 0 ? r : install_loader(d, bytes, size, err);
}

/* ---- transport --------------------------------------------------------------------------- */

struct transport {
    uint8_t *bytes; /* TRANSPORT_BYTES, mapped */
    uint32_t used;  /* bytes that may be nonzero */
};

static void transport_done(struct transport *t) {
    if (t->bytes != NULL) {
        munmap(t->bytes, TRANSPORT_BYTES);
    }
}

static uint32_t image_end(const struct package *p, uint32_t last) {
    const struct package_segment *s = &p->segments[last - 1];
    return s->addr + p->contents[s->content].size;
}

/* Bytes [at, at + n) of a tile's image, gaps zero. */
static void image_copy(
    const struct package *p, uint32_t first, uint32_t last, uint32_t at, uint32_t n, uint8_t *out) {
    for (uint32_t i = first; i < last; i++) {
        const struct package_segment *s = &p->segments[i];
        uint32_t start = s->addr, end = s->addr + p->contents[s->content].size;
        uint32_t low = start > at ? start : at;
        uint32_t high = end < at + n ? end : at + n;
        if (low < high) {
            memcpy(out + (low - at), p->contents[s->content].bytes + (low - start), high - low);
        }
    }
}

static void put_frames(
    struct transport *t, const struct package *p, uint32_t tile, uint32_t first, uint32_t last,
    uint32_t frames) {
    for (uint32_t k = 0; k < frames; k++) {
        uint8_t *frame = t->bytes + t->used;
        store_le32(frame, k);
        store_le32(frame + 4, tile);
        store_le32(frame + 8, k + 1 == frames ? LAST_FRAME : 0);
        store_le32(frame + 12, 0);
        memset(frame + 16, 0, FRAME_PAYLOAD);
        image_copy(p, first, last, TARGET_LOAD_BASE + k * FRAME_PAYLOAD, FRAME_PAYLOAD, frame + 16);
        memset(frame + 16 + FRAME_PAYLOAD, 0xff, 16);
        t->used += FRAME_BYTES;
    }
}

static int fill_batch(
    struct transport *t, const struct package *p, const uint32_t *first, uint32_t batch,
    uint32_t limit, struct err *err) {
    memset(t->bytes, 0, t->used);
    t->used = DESCRIPTOR_BYTES;
    for (uint32_t slot = 0; slot < BATCH_TILES; slot++) {
        uint32_t tile = batch * BATCH_TILES + slot;
        uint32_t end = image_end(p, first[tile + 1]);
        uint32_t frames = (end - TARGET_LOAD_BASE + FRAME_PAYLOAD - 1) / FRAME_PAYLOAD;
        frames = frames < MIN_FRAMES ? MIN_FRAMES : frames;
        if (end > limit || frames > MAX_FRAMES) {
            return err_set(
                err, ERR_BOOT,
                "image of tile %u ends at 0x%x: the loader reaches 0x%x (%u frames, at most %u)",
                tile, end, limit, frames, MAX_FRAMES);
        }
        store_le32(t->bytes + slot * 8, t->used);
        store_le32(t->bytes + slot * 8 + 4, frames);
        put_frames(t, p, tile, first[tile], first[tile + 1], frames);
    }
    return 0;
}

/* One acknowledged step: group 1's mark, then wait until the tiles stand at a barrier again. */
static int mark_step(struct device *d, uint32_t mark, const char *what, struct err *err) {
    int r = hsp_write(d, REG_HSPGS1, mark, err);
    return r < 0 ? r : reg_wait_clear(d, REG_HSPGS1, MARK_MASK, MARK_LIMIT_NS, what, err);
}

static int
send_batches(struct device *d, struct transport *t, const struct package *p, struct err *err) {
    const uint32_t limit = d->loader != NULL ? TARGET_LOAD_END : RT_LOADER_IMAGE_END;
    uint32_t first[TARGET_TILES + 1];
    uint32_t i = 0;
    for (uint32_t tile = 0; tile < TARGET_TILES; tile++) {
        first[tile] = i;
        while (i < p->segment_count && p->segments[i].tile.n == tile) {
            i++;
        }
    }
    first[TARGET_TILES] = i;
    for (uint32_t batch = 0; batch < BATCHES; batch++) {
        char what[32];
        snprintf(what, sizeof what, "load batch %u", batch);
        int r = fill_batch(t, p, first, batch, limit, err);
        r = r < 0 ? r : mark_step(d, 1, what, err);
        if (r < 0) {
            return r;
        }
    }
    memset(t->bytes, 0xff, t->used);
    int r = reg_wait_clear(d, REG_HSPGS1, MARK_MASK, MARK_LIMIT_NS, "before the sentinel", err);
    r = r < 0 ? r : mark_step(d, 1, "execute sentinel", err);
    return r < 0 ? r : mark_step(d, FINAL_MARK, "initial synchronization", err);
}

static int set_blocks(struct device *d, bool is_east, uint32_t value, struct err *err) {
    int r = 0;
    for (int i = 0; r == 0 && i < XB_COUNT; i++) {
        r = reg_write(d, device_xb(is_east, i) + REG_XB_DCXCR, value, err);
    }
    return r;
}

/* Steps 4 to 6: only the west blocks carry requests while loading. */
static int guard_set(struct device *d, uint32_t *ret_ccsr, struct err *err) {
    int r = reg_read(d, REG_CCSR, ret_ccsr, err);
    r = r < 0 ? r : set_blocks(d, false, dcx_control(0x3f), err);
    r = r < 0 ? r : set_blocks(d, true, dcx_control(0x3f), err);
    r = r < 0 ? r : reg_write_flushed(d, REG_CCSR, *ret_ccsr & ~(1u << 1 | 1u << 10), err);
    return r < 0 ? r : set_blocks(d, false, dcx_control(0), err);
}

/* Step 11, on every path: both halves on, as a session needs them. */
static int guard_restore(struct device *d, uint32_t ccsr, struct err *err) {
    int r = set_blocks(d, false, dcx_control(0), err);
    r = r < 0 ? r : set_blocks(d, true, dcx_control(1), err);
    return r < 0 ? r : reg_write_flushed(d, REG_CCSR, ccsr, err);
}

/* A tile that refuses what it was sent stops in a trap with the reason in $m0: name it. */
static int explain_boot(struct device *d, struct err *err) {
    int tile;
    uint32_t status, code;
    struct err ignored;
    if (tdi_find_fault(d, &tile, &status, &ignored) < 0 || tile < 0 ||
        tdi_read_m(d, (uint32_t)tile, 0, 0, &code, &ignored) < 0) {
        return -err->code;
    }
    const char *reason = runtime_loader_fault(code);
    if (reason == NULL) {
        return -err->code;
    }
    char before[sizeof err->text];
    memcpy(before, err->text, sizeof before);
    return err_set(err, ERR_BOOT, "tile %d refused its load: %s (%.300s)", tile, reason, before);
}

static void pass_event(
    device_event_fn *event, void *arg, const char *id, const char *message, const char *fields) {
    if (event != NULL) {
        event(id, message, fields, arg);
    }
}

int boot_load(
    struct device *d, const struct package *p, device_event_fn *event, void *arg, struct err *err) {
    uint32_t ccsr;
    CLEANUP(transport_done) struct transport t = {.used = DESCRIPTOR_BYTES};
    t.bytes =
        mmap(NULL, TRANSPORT_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (t.bytes == MAP_FAILED) {
        t.bytes = NULL;
        return err_set(err, ERR_NOMEM, "transport buffer of %u bytes", TRANSPORT_BYTES);
    }
    char fields[96];
    snprintf(
        fields, sizeof fields, "{\"tile_count\":%d,\"final_mark\":%u}", TARGET_TILES, FINAL_MARK);
    pass_event(event, arg, "device.load", "loading application", fields);
    int r = d->loader != NULL ? install_loader(d, d->loader->bytes, d->loader->size, err)
                              : install_own_loader(d, err);
    r = r < 0 ? r : reg_write(d, REG_EXCHWINDOW, 0x800, err);
    r = r < 0 ? r : d->ops.attach(d->ops.self, 0, t.bytes, TRANSPORT_BYTES, err);
    if (r < 0) {
        return r;
    }
    r = guard_set(d, &ccsr, err);
    if (r == 0) {
        d->ops.pause(d->ops.self, BEFORE_FIRST_MARK_NS);
        r = send_batches(d, &t, p, err);
        if (r < 0 && r != -ERR_CANCELLED) {
            r = d->loader == NULL ? explain_boot(d, err) : err_wrap(err, "loader file");
        }
    }
    struct err later = {0};
    int restored = guard_restore(d, ccsr, &later);
    int detached = d->ops.detach(d->ops.self, 0, &later);
    if (r == 0 && (restored < 0 || detached < 0)) {
        *err = later;
        r = restored < 0 ? restored : detached;
    }
    if (r == 0) {
        snprintf(fields, sizeof fields, "{\"tile_count\":%d}", TARGET_TILES);
        pass_event(
            event, arg, "device.loaded", "application loaded and initial synchronization completed",
            fields);
    }
    return r;
}
