/* The configuration image: what brings the chip's links and routers to the state in which tiles
 * can reach host memory. Generated from tables of published values (device fact sheet 3.4), or
 * parsed from a captured file (3.1). Only the complete replay is known to work on a card. */
#include "device/device_internal.h"

#include <string.h>

#include "base/bytes.h"

static const uint32_t xb_west[XB_COUNT] = {0x5400, 0x5800, 0x5c00, 0x6000,
                                           0x7000, 0x6c00, 0x6800, 0x6400};
static const uint32_t xb_east[XB_COUNT] = {0x1b800, 0x1bc00, 0x1c000, 0x1c400,
                                           0x1d400, 0x1d000, 0x1cc00, 0x1c800};

uint32_t device_xb(bool is_east, int i) {
    return is_east ? xb_east[i] : xb_west[i];
}

/* Link controllers: CSR always 0, route mask in pass 1 and final. */
static const struct nlc {
    uint32_t base, pass1, final;
} nlcs[] = {
    {0xa400, 0xffff, 0xffff},          {0xc800, 0xffff, 0xffff},  {0x12000, 0xffff0000, 0xffff0000},
    {0x14400, 0xffff0000, 0xffff0000}, {0x16800, 0xffff, 0xffff}, {0x18c00, 0xffff0000, 0xffff},
    {0x1b000, 0xffff0000, 0xffff0000}, {0x1f800, 0xffff, 0xffff}, {0x21c00, 0xffff, 0xffff0000},
    {0x24000, 0xffff0000, 0xffff0000},
};

/* Trunk routers: CSR, XEGRNR, XEGRSR, XIGLRR in two passes. `skip` marks registers that pass 1
 * leaves alone (bit 0 XEGRNR, bit 1 XEGRSR). */
static const struct trunk {
    uint32_t base;
    uint32_t pass1[4];
    uint32_t final[4];
    uint8_t skip;
} trunks[] = {
    {0xcc00, {1, 0xaaaa0081, 0xaaaa0080, 0x2ffff5}, {1, 0, 0, 0}, 0},
    {0xd000, {1, 0xfc2, 0xfc0, 0xffaa1}, {1, 0x82, 0x80, 0x1ffaa3}, 0},
    {0xd400, {1, 0xf0c3, 0xf0c1, 0xffaa1}, {1, 0x83, 0x81, 0x1ffaa3}, 0},
    {0xd800, {1, 5, 4, 0xffaa1}, {1, 4, 5, 0xffaa1}, 0},
    {0xdc00, {1, 0x110c3, 0x110c3, 0x455003}, {1, 0x110c3, 0x110c3, 0x455003}, 0},
    {0xe000, {1, 0x120c3, 0x120c3, 0x455003}, {1, 0x120c3, 0x120c3, 0x455003}, 0},
    {0xe400, {1, 0x140c3, 0x140c3, 0x455003}, {1, 0x140c3, 0x140c3, 0x455003}, 0},
    {0xe800, {1, 0x180c3, 0x180c3, 0x455003}, {1, 0x180c3, 0x180c3, 0x455003}, 0},
    {0xec00, {1, 0x108c2, 0x108c2, 0x55003}, {1, 0x108c2, 0x108c2, 0x55003}, 0},
    {0xf000, {1, 0x104c2, 0x104c2, 0x55003}, {1, 0x104c2, 0x104c2, 0x55003}, 0},
    {0xf400, {1, 0x102c2, 0x102c2, 0x55003}, {1, 0x102c2, 0x102c2, 0x55003}, 0},
    {0xf800, {1, 0x101c2, 0x101c2, 0x55003}, {1, 0x101c2, 0x101c2, 0x55003}, 0},
    {0xfc00, {1, 4, 5, 0xffaa2}, {1, 4, 5, 0xffaa2}, 0},
    {0x24400, {1, 0xffff0f43, 0xfffff043, 6}, {0, 0, 0, 0}, 0},
    {0x24800, {1, 0xff40, 0, 0x3ffff2}, {0, 0, 0, 0}, 2},
    {0x24c00, {1, 0, 0x2f0c1, 0x3ffaa1}, {0, 0, 0, 0}, 1},
    {0x25000, {1, 0, 0x20fc0, 0x3ffaa1}, {0, 0, 0, 0}, 1},
    {0x25400, {1, 0x110c3, 0x110c3, 0x255003}, {1, 0x110c2, 0x110c2, 0x255a03}, 0},
    {0x25800, {1, 0x120c3, 0x120c3, 0x255003}, {1, 0x120c2, 0x120c2, 0x255a03}, 0},
    {0x25c00, {1, 0x140c3, 0x140c3, 0x255003}, {1, 0x140c0, 0x140c1, 0x3aaaa5}, 0},
    {0x26000, {1, 0x180c3, 0x180c3, 0x255003}, {1, 0x180c0, 0x180c1, 0x3aaaa5}, 0},
    {0x26400, {1, 0x108c2, 0x108c2, 0x255003}, {1, 0x108c0, 0x108c1, 0x3aaaa5}, 0},
    {0x26800, {1, 0x104c2, 0x104c2, 0x255003}, {1, 0x104c0, 0x104c1, 0x3aaaa5}, 0},
    {0x26c00, {1, 0x102c2, 0x102c2, 0x255003}, {1, 0x102c3, 0x102c3, 0x255a03}, 0},
    {0x27000, {1, 0x101c2, 0x101c2, 0x255003}, {1, 0x101c3, 0x101c3, 0x255a03}, 0},
    {0x27400, {1, 0x20fc0, 0, 0x3ffaa2}, {0, 0, 0, 0}, 2},
    {0x27800, {1, 0x2f0c1, 0, 0x3ffaa2}, {0, 0, 0, 0}, 2},
    {0x27c00, {1, 0, 0xff40, 0x3ffff1}, {0, 0, 0, 0}, 1},
    {0x28000, {1, 0xfffff043, 0xffff0f43, 6}, {0, 0, 0, 0}, 0},
    {0x28400, {1, 0xaaaa0080, 0xaaaa0081, 0x2ffff6}, {1, 0, 0, 0}, 0},
    {0x28800, {1, 0x55540fc0, 0x55540fc2, 0xffaa2}, {1, 0xfe0081, 0xfe0083, 0x1ffaa3}, 0},
    {0x28c00, {1, 0x5554f0c1, 0x5554f0c3, 0xffaa2}, {1, 0xfe0080, 0xfe0082, 0x1ffaa3}, 0},
};

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
_Static_assert(COUNT(nlcs) == 10 && COUNT(trunks) == 32, "device fact sheet 2.4");

struct list {
    struct config_write *at;
    uint32_t count;
};

static void put(struct list *l, uint32_t offset, uint32_t value) {
    l->at[l->count++] = (struct config_write){offset, value};
}

static void put_blocks(struct list *l, bool is_east, uint32_t offset, uint32_t value) {
    for (int i = 0; i < XB_COUNT; i++) {
        put(l, device_xb(is_east, i) + offset, value);
    }
}

static void put_trunks(struct list *l, bool is_final) {
    for (size_t i = 0; i < COUNT(trunks); i++) {
        const struct trunk *t = &trunks[i];
        const uint32_t *v = is_final ? t->final : t->pass1;
        uint8_t skip = is_final ? 0 : t->skip;
        put(l, t->base + 12, v[3]);
        if ((skip & 2) == 0) {
            put(l, t->base + 8, v[2]);
        }
        if ((skip & 1) == 0) {
            put(l, t->base + 4, v[1]);
        }
        put(l, t->base, v[0]);
    }
}

static void put_nlcs(struct list *l, bool is_final) {
    for (size_t i = 0; i < COUNT(nlcs); i++) {
        put(l, nlcs[i].base + 8, is_final ? nlcs[i].final : nlcs[i].pass1);
        put(l, nlcs[i].base, 0);
    }
}

static void put_block_routes(struct list *l, bool is_east, bool is_final) {
    for (int i = 0; i < XB_COUNT; i++) {
        uint32_t base = device_xb(is_east, i);
        uint32_t mask = is_east ? 0xffff0000u : 0xfffcu;
        if (is_east && (base == 0x1b800 || base == 0x1bc00 || base == 0x1d000 || base == 0x1d400)) {
            mask = 0xffff;
        }
        if (is_final) {
            mask = is_east ? 0 : 0xfe;
        }
        put(l, base + REG_XB_XERDR, mask);
        put(l, base, is_final && is_east ? 0 : 1);
    }
}

/* Steps 1 to 6: clear, clock, errors. */
static void put_bring_up(struct list *l) {
    put_blocks(l, false, 0, 4);
    put_blocks(l, true, 0, 4);
    for (size_t i = 0; i < COUNT(nlcs); i++) {
        put(l, nlcs[i].base, 0);
    }
    put(l, 0x404c, 0);
    put(l, 0x4050, 0);
    put(l, 0x403c, 0x2125024);
    put(l, 0x403c, 0x212503d);
    put_blocks(l, false, 0, 1);
    put_blocks(l, true, 0, 1);
    put(l, 0x2004, 0x8c);
    put(l, 0x2010, 0x1444);
    put(l, 0x404c, 0x80000000);
    put_blocks(l, false, 0, 0x80000001);
    put_blocks(l, true, 0, 0x80000001);
    for (size_t i = 0; i < COUNT(trunks); i++) {
        put(l, trunks[i].base, 0x80000000);
    }
    for (size_t i = 0; i < COUNT(nlcs); i++) {
        put(l, nlcs[i].base, 0x81000000);
    }
    put(l, 0x403c, 0x212503d);
    put(l, 0x4004, 0x180cc);
    put(l, 0x4008, 6);
    put(l, 0x4004, 0x180cc);
    put(l, 0x4004, 0x180cc);
    put(l, REG_CCSR, 0);
}

uint32_t config_generate(struct config_write ret[CONFIG_MAX]) {
    struct list l = {ret, 0};
    put_bring_up(&l);
    put_trunks(&l, false); /* step 7 */
    put_block_routes(&l, false, false);
    put_block_routes(&l, true, false);
    put_nlcs(&l, false);
    put_blocks(&l, false, REG_XB_DCXCR, dcx_control(0x3f)); /* step 8 */
    put_blocks(&l, true, REG_XB_DCXCR, dcx_control(0x3f));
    put(&l, 0x404c, 0);
    put_nlcs(&l, true); /* step 9 */
    put_trunks(&l, true);
    put_block_routes(&l, true, true);
    put_block_routes(&l, false, true);
    put(&l, REG_CCSR, 0); /* step 10 */
    put(&l, REG_CCSR, 4);
    put_blocks(&l, false, 0, 5);
    put_blocks(&l, true, 0, 4);
    put(&l, REG_CCSR, 4);
    put_blocks(&l, false, 0, 5);
    put_blocks(&l, true, 0, 4);
    for (uint32_t tile = 0; tile < TARGET_TILES; tile++) { /* step 12 */
        put(&l, REG_TDI_BASE + tile * 0x40 + 4, 0x40000000);
    }
    return l.count;
}

int config_parse(
    const uint8_t *bytes, size_t n, struct config_write ret[CONFIG_MAX], uint32_t *ret_count,
    struct err *err) {
    if (n < 12 || memcmp(bytes, "IPUCFG1", 8) != 0) {
        return err_set(err, ERR_INVALID, "configuration image: magic 'IPUCFG1' missing");
    }
    uint32_t count = load_le32(bytes + 8);
    if (count > CONFIG_MAX || n != 12 + (size_t)count * 8) {
        return err_set(
            err, ERR_INVALID,
            "configuration image: %zu bytes for %u writes, expected %llu (at most %d writes)", n,
            count, 12 + 8ull * count, CONFIG_MAX);
    }
    for (uint32_t i = 0; i < count; i++) {
        ret[i].offset = load_le32(bytes + 12 + 8 * (size_t)i);
        ret[i].value = load_le32(bytes + 16 + 8 * (size_t)i);
        if (ret[i].offset % 4 != 0 || ret[i].offset >= IPU_CONFIG_BYTES) {
            return err_set(
                err, ERR_INVALID, "configuration image: write %u to offset 0x%x", i, ret[i].offset);
        }
    }
    *ret_count = count;
    return 0;
}

int config_replay(
    struct device *d, const struct config_write *writes, uint32_t count, struct err *err) {
    uint32_t ignored;
    for (uint32_t i = 0; i < count; i++) {
        /* Captured host sync writes belong to the capturing program's handshake. */
        if (writes[i].offset == REG_HSPGS1 || writes[i].offset == REG_HSPGS2) {
            continue;
        }
        int r = reg_write(d, writes[i].offset, writes[i].value, err);
        r = r < 0 ? r : reg_read(d, REG_CCSR, &ignored, err);
        if (r < 0) {
            return err_wrap(err, "configuration write %u", i);
        }
    }
    static const uint32_t marks[] = {REG_HSPGS1, REG_HSPGS2};
    for (size_t i = 0; i < COUNT(marks); i++) {
        uint32_t value;
        int r = reg_write(d, marks[i], 0, err);
        r = r < 0 ? r : reg_read(d, marks[i], &value, err);
        if (r < 0) {
            return r;
        }
        if ((value & MARK_MASK) != 0) {
            return err_set(
                err, ERR_DEVICE_ERROR, "mark register 0x%x reads 0x%x after clearing", marks[i],
                value);
        }
    }
    return 0;
}
