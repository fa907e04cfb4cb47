/* Memory map of each tile as stable text. */
#include "place/place.h"

void place_print(const struct placement *p, FILE *out) {
    fprintf(
        out, "placement region0=%u region1=%u score=%llu\n", p->peak0, p->peak1,
        (unsigned long long)p->score);
    for (uint32_t t = 0; t < TARGET_TILES; t++) {
        if (p->tile_first[t] == p->tile_first[t + 1]) {
            continue;
        }
        fprintf(
            out, "  tile %u (physical %u)\n", t,
            target_physical((struct logical_tile){(uint16_t)t}).n);
        for (uint32_t i = p->tile_first[t]; i < p->tile_first[t + 1]; i++) {
            uint32_t b = p->by_tile[i].n;
            const struct lower_buffer *x = &p->tg->buffers[b];
            fprintf(
                out, "    0x%05x +%u b%u %s live=%u..", p->addr[b], x->bytes, b,
                buffer_kind_name(x->kind), x->born);
            if (x->dies == LOWER_FOREVER) {
                fputs("ever\n", out);
            } else {
                fprintf(out, "%u\n", x->dies);
            }
        }
    }
}
