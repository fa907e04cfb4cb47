/* The hardware autoloader (device fact sheet 4.2): words from the host, broadcast to all tiles.
 *
 *   AUTOLDCSR   bit 8 GO, bit 20 data present; 0 rewinds the data
 *   AUTOLDTRGTR [9:0] first KiB, [19:10] end KiB, [..:20] zone, 32 = all tiles
 *   AUTOLDDATAR data
 *
 * With data the range is filled from them; without, it becomes zero and the supervisors start at
 * the base of memory [inf: the loader runs after the second fill]. A fill is done at once, so GO
 * always reads 0. Tiles share the image and the zero page: a fill costs no memory for whole pages.
 */
#include <stdlib.h>
#include <string.h>

#include "sim/chip.h"

enum {
    AUTOLDCSR = 0x2068,
    AUTOLDTRGTR = 0x206c,
    GO = 1 << 8,
    DATA_PRESENT = 1 << 20,
    BROADCAST = 32,
};

static void drop_images(struct chip *c) {
    for (uint32_t i = 0; i < c->images.len; i++) {
        free(c->images.data[i]);
    }
    c->images.len = 0;
}

void autoload_reset(struct chip *c) {
    c->load_words.len = 0;
    drop_images(c);
}

void autoload_done(struct chip *c) {
    drop_images(c);
    free(c->images.data);
    free(c->load_words.data);
}

static void fill_with_data(struct chip *c, uint32_t addr, uint32_t words) {
    uint32_t *image = calloc(words, sizeof *image);
    if (image == NULL || !row_list_push(&c->images, image)) {
        free(image);
        chip_out_of_memory(c, "image of the autoloader");
        return;
    }
    uint32_t n = c->load_words.len < words ? c->load_words.len : words;
    if (n > 0) {
        memcpy(image, c->load_words.data, n * sizeof *image);
    }
    for (uint16_t i = 0; i < TARGET_TILES; i++) {
        tile_mem_share(c->tiles[i].tile, addr, image, words);
    }
}

static void fill_with_zeros(struct chip *c, uint32_t addr, uint32_t end) {
    for (uint16_t i = 0; i < TARGET_TILES; i++) {
        tile_mem_fill_zero(c->tiles[i].tile, addr, end);
        if (c->tiles[i].state == TILE_OFF && c->images.len > 0) {
            chip_start_tile(c, i, TARGET_MEM_BASE);
        }
    }
}

static void go(struct chip *c, uint32_t csr) {
    uint32_t target = c->regs[AUTOLDTRGTR / 4];
    uint32_t first = target & 0x3ff;
    uint32_t end = target >> 10 & 0x3ff;
    if (target >> 20 != BROADCAST || end > TARGET_MEM_SIZE / 1024 || first >= end) {
        return; /* no such tiles, or no such memory: nothing is filled */
    }
    uint32_t addr = TARGET_MEM_BASE + first * 1024;
    if ((csr & DATA_PRESENT) != 0) {
        fill_with_data(c, addr, (end - first) * 256);
    } else {
        fill_with_zeros(c, addr, TARGET_MEM_BASE + end * 1024);
    }
}

void autoload_write(struct chip *c, uint32_t offset, uint32_t value) {
    if (offset == AUTOLDCSR) {
        c->regs[offset / 4] = value & ~(uint32_t)GO;
        if (value == 0) {
            c->load_words.len = 0;
        }
        if ((value & GO) != 0) {
            go(c, value);
        }
    } else if (offset == AUTOLDTRGTR) {
        c->regs[offset / 4] = value;
    } else if (c->load_words.len < TARGET_MEM_SIZE / 4) { /* more than a tile holds is lost */
        if (!row_list_push(&c->load_words, value)) {
            chip_out_of_memory(c, "data of the autoloader");
        }
    }
}
