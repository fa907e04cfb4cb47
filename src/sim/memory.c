/* Tile memory: 156 pages of 4 KiB, each in one of four states:
 *
 *   poison   never written: reads TILE_POISON, each load is counted
 *   zero     written zeros, no storage of its own (fills of whole pages)
 *   shared   a borrowed image of the loader, all written
 *   own      storage of this tile, with a bit per word that has been written
 *
 * The first three share read-only storage, so that an idle tile costs nothing; the first store
 * to a page makes it own. Word 1,024 of an own page is where its written map starts. */
#include "sim/tile.h"

#include <stdlib.h>

static const uint32_t poison_words[PAGE_WORDS] = {[0 ... PAGE_WORDS - 1] = TILE_POISON};
static const uint32_t zero_words[PAGE_WORDS];
static const uint64_t none_written[PAGE_WORDS / 64];

static void page_set(struct page *p, const uint32_t *words, bool is_written) {
    if (p->is_own) {
        free(p->words);
    }
    /* Never stored to while is_own is false, so dropping const is safe. */
    p->words = (uint32_t *)(uintptr_t)words;
    p->written = is_written ? NULL : (uint64_t *)(uintptr_t)none_written;
    p->unwritten = is_written ? 0 : PAGE_WORDS;
    p->is_own = false;
}

void mem_init(struct tile *t) {
    for (uint32_t i = 0; i < PAGE_COUNT; i++) {
        page_set(&t->pages[i], poison_words, false);
    }
}

void mem_done(struct tile *t) {
    mem_init(t);
}

void mem_zero(struct tile *t) {
    code_free(t);
    for (uint32_t i = 0; i < PAGE_COUNT; i++) {
        page_set(&t->pages[i], zero_words, true);
    }
}

bool mem_own(struct tile *t, uint32_t addr) {
    struct page *p = &t->pages[(addr - TARGET_MEM_BASE) / PAGE_BYTES];
    uint32_t *words = malloc(PAGE_BYTES + sizeof none_written);

    if (words == NULL) {
        t->is_starved = true;
        return false;
    }
    memcpy(words, p->words, PAGE_BYTES);
    if (p->written != NULL) {
        uint64_t *map = (uint64_t *)(void *)(words + PAGE_WORDS);
        memcpy(map, p->written, sizeof none_written);
        p->written = map;
    }
    p->words = words;
    p->is_own = true;
    return true;
}

void mem_mark(struct page *p, uint32_t index) {
    uint64_t bit = (uint64_t)1 << (index & 63);

    if ((p->written[index >> 6] & bit) == 0) {
        p->written[index >> 6] |= bit;
        p->unwritten--;
        if (p->unwritten == 0) {
            p->written = NULL;
        }
    }
}

/* ---- the chip's view ------------------------------------------------------------------------- */

bool tile_mem_mapped(uint32_t addr) {
    return addr - TARGET_MEM_BASE < TARGET_MEM_SIZE;
}

/* What is not mapped reads as poison and swallows stores: the chip reports it as a fault. */
uint32_t tile_mem_load(struct tile *t, uint32_t addr) {
    if (!tile_mem_mapped(addr)) {
        t->poison_reads++;
        return TILE_POISON;
    }
    return mem_load32(t, addr & ~3u);
}

void tile_mem_store(struct tile *t, uint32_t addr, uint32_t value) {
    if (tile_mem_mapped(addr)) {
        mem_store32(t, addr & ~3u, value); /* a failure is kept in is_starved */
    }
}

/* Decoded code of [addr, end) goes; blocks without any cost one look each. */
static void drop_run(struct tile *t, uint32_t addr, uint32_t end) {
    end = end < TARGET_REGION1 ? end : TARGET_REGION1;
    while (addr < end) {
        uint32_t block = (addr - TARGET_MEM_BASE) / (4 * CODE_WORDS);
        uint32_t next = TARGET_MEM_BASE + (block + 1) * 4 * CODE_WORDS;

        next = next < end ? next : end;
        code_drop(t, addr); /* also a group that starts in the word before */
        if (t->code[0][block] != NULL || t->code[1][block] != NULL) {
            for (addr += 4; addr < next; addr += 4) {
                code_drop(t, addr);
            }
        }
        addr = next;
    }
}

/* Words of a run that lie in the page of addr; 0 where nothing is mapped. */
static uint32_t run_in_page(uint32_t addr, uint32_t n) {
    uint32_t room = PAGE_WORDS - (addr >> 2) % PAGE_WORDS;

    return !tile_mem_mapped(addr) ? 0 : n < room ? n : room;
}

void tile_mem_store_run(struct tile *t, uint32_t addr, const uint32_t *words, uint32_t n) {
    addr &= ~3u;
    while (n > 0) {
        uint32_t count = run_in_page(addr, n);
        struct page *p;

        if (count == 0) {
            return;
        }
        p = &t->pages[(addr - TARGET_MEM_BASE) / PAGE_BYTES];
        if (!p->is_own && !mem_own(t, addr)) {
            return; /* kept in is_starved */
        }
        for (uint32_t k = 0; p->written != NULL && k < count; k++) {
            mem_mark(p, (addr >> 2) % PAGE_WORDS + k);
        }
        memcpy(&p->words[(addr >> 2) % PAGE_WORDS], words, count * sizeof *words);
        drop_run(t, addr, addr + 4 * count);
        addr += 4 * count;
        words += count;
        n -= count;
    }
}

void tile_mem_load_run(struct tile *t, uint32_t addr, uint32_t *ret, uint32_t n) {
    addr &= ~3u;
    while (n > 0) {
        uint32_t count = run_in_page(addr, n);

        if (count > 0 && t->pages[(addr - TARGET_MEM_BASE) / PAGE_BYTES].written == NULL) {
            const struct page *p = &t->pages[(addr - TARGET_MEM_BASE) / PAGE_BYTES];
            memcpy(ret, &p->words[(addr >> 2) % PAGE_WORDS], count * sizeof *ret);
        } else {
            count = count > 0 ? count : n;
            for (uint32_t k = 0; k < count; k++) {
                ret[k] = tile_mem_load(t, addr + 4 * k);
            }
        }
        addr += 4 * count;
        ret += count;
        n -= count;
    }
}

/* Whole pages of [addr, end) are set to `words` (page after page) or zeros, the rest by stores. */
static void fill(struct tile *t, uint32_t addr, uint32_t end, const uint32_t *words) {
    while (addr < end && tile_mem_mapped(addr)) {
        uint32_t page = (addr - TARGET_MEM_BASE) / PAGE_BYTES;
        uint32_t next = TARGET_MEM_BASE + (page + 1) * PAGE_BYTES;

        if ((addr - TARGET_MEM_BASE) % PAGE_BYTES == 0 && next <= end) {
            drop_run(t, addr, next);
            page_set(&t->pages[page], words != NULL ? words : zero_words, true);
            words = words != NULL ? words + PAGE_WORDS : NULL;
            addr = next;
            continue;
        }
        next = next < end ? next : end;
        tile_mem_store_run(t, addr, words != NULL ? words : zero_words, (next - addr) / 4);
        words = words != NULL ? words + (next - addr) / 4 : NULL;
        addr = next;
    }
}

void tile_mem_fill_zero(struct tile *t, uint32_t addr, uint32_t end) {
    fill(t, addr & ~3u, end, NULL);
}

void tile_mem_share(struct tile *t, uint32_t addr, const uint32_t *words, uint32_t n) {
    fill(t, addr & ~3u, (addr & ~3u) + 4 * n, words);
}
