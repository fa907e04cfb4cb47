/* Addresses to names. A package's symbols are sorted by (tile, addr, name), those of every tile
 * (-1) first, so both lists are found by bisection. */
#include "device/device_internal.h"

#define MAX_UNSIZED 0x4000u /* bytes a symbol without a size reaches at most */

/* Number of symbols that are before (tile, addr + 1). */
static uint32_t upper_bound(const struct program *g, int32_t tile, uint32_t addr) {
    uint32_t low = 0, high = g->symbol_count;
    while (low < high) {
        uint32_t mid = (low + high) / 2;
        const struct package_symbol *s = &g->symbols[mid];
        if (s->tile < tile || (s->tile == tile && s->addr <= addr)) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low;
}

static const struct package_symbol *find(const struct program *g, int32_t tile, uint32_t addr) {
    uint32_t at = upper_bound(g, tile, addr);
    if (at == 0) {
        return NULL;
    }
    const struct package_symbol *s = &g->symbols[at - 1];
    uint32_t reach = s->size > 0 ? s->size : MAX_UNSIZED;
    return s->tile == tile && addr - s->addr < reach ? s : NULL;
}

const char *
program_symbol(const struct program *g, uint32_t tile, uint32_t addr, uint32_t *ret_offset) {
    const struct package_symbol *s = g != NULL ? find(g, (int32_t)tile, addr) : NULL;
    s = s == NULL && g != NULL ? find(g, -1, addr) : s;
    if (s == NULL) {
        return NULL;
    }
    *ret_offset = addr - s->addr;
    return s->name;
}

size_t device_tile_symbols(
    const struct device *d, uint32_t tile, uint32_t addr, uint32_t bytes, struct device_symbol *ret,
    size_t n) {
    const struct program *g = d->program;
    const int32_t lists[2] = {-1, (int32_t)tile};
    size_t count = 0;
    uint64_t end = (uint64_t)addr + bytes;
    for (int k = 0; g != NULL && k < 2; k++) {
        uint32_t at = upper_bound(g, lists[k], addr);
        at -= find(g, lists[k], addr) != NULL; /* the one that covers the start */
        for (; at < g->symbol_count && g->symbols[at].tile == lists[k] &&
               g->symbols[at].addr < end && count < n;
             at++) {
            const struct package_symbol *s = &g->symbols[at];
            size_t place = count++;
            for (; place > 0 && ret[place - 1].addr > s->addr; place--) {
                ret[place] = ret[place - 1];
            }
            ret[place] = (struct device_symbol){s->name, s->addr, s->size};
        }
    }
    return count;
}
