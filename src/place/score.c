/* How much sending and receiving meet in memory units: see placement.score. Level by level; units
 * of a tile are counted in two rows of a table, which is cleared by the same walk that filled
 * it. */
#include "place/place_internal.h"

#define LOW_UNITS ((TARGET_REGION1 - TARGET_MEM_BASE) / TARGET_ELEMENT_BYTES)
#define UNITS     (LOW_UNITS + (TARGET_MEM_END - TARGET_REGION1) / (2 * TARGET_ELEMENT_BYTES) + 1)

struct traffic { /* bytes by unit of one tile */
    uint64_t sent[UNITS], received[UNITS];
};

static uint32_t unit_of(uint32_t addr) {
    return addr < TARGET_REGION1 ? (addr - TARGET_MEM_BASE) / TARGET_ELEMENT_BYTES
                                 : LOW_UNITS + (addr - TARGET_REGION1) / (2 * TARGET_ELEMENT_BYTES);
}

static void count(uint64_t *units, uint32_t addr, uint32_t bytes, bool is_clear) {
    for (uint32_t end = addr + bytes; addr < end;) {
        uint32_t next = place_unit_end(addr) < end ? place_unit_end(addr) : end;
        uint64_t *unit = &units[unit_of(addr)];
        *unit = is_clear ? 0 : *unit + (next - addr);
        addr = next;
    }
}

static void
walk(const struct placement *p, const struct lower_level *l, struct traffic *tiles, bool is_clear) {
    const struct tile_graph *tg = p->tg;
    for (uint32_t i = l->move_first; i < l->move_first + l->move_count; i++) {
        const struct lower_move *m = &tg->moves[i];
        uint32_t tile = lower_buffer(tg, m->source)->tile.n;
        count(tiles[tile].sent, p->addr[m->source.n] + m->offset, 4 * m->words, is_clear);
        for (uint32_t d = m->dest_first; d < m->dest_first + m->dest_count; d++) {
            const struct lower_dest *to = &tg->dests[d];
            tile = lower_buffer(tg, to->buffer)->tile.n;
            count(tiles[tile].received, p->addr[to->buffer.n] + to->offset, 4 * m->words, is_clear);
        }
    }
}

uint64_t place_score(const struct placement *p, struct arena *scratch) {
    struct arena_mark mark = arena_mark(scratch);
    struct traffic *tiles = ARENA_ARRAY(scratch, struct traffic, TARGET_TILES);
    uint64_t score = 0;
    for (uint32_t i = 0; i < p->tg->level_count; i++) {
        const struct lower_level *l = &p->tg->levels[i];
        if (l->move_count == 0) {
            continue;
        }
        walk(p, l, tiles, false);
        uint64_t of_level = 0;
        for (uint32_t t = 0; t < TARGET_TILES; t++) {
            for (uint32_t u = 0; u < UNITS; u++) {
                of_level += tiles[t].sent[u] * tiles[t].received[u];
            }
        }
        score += of_level * lower_level_turns(p->tg, i);
        walk(p, l, tiles, true);
    }
    arena_rewind(scratch, mark);
    return score;
}
