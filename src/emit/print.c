/* Distinct programs with disassembly, once each, and the host's phases. */
#include "emit/emit_internal.h"

#include <string.h>

#include "base/bytes.h"

static void print_words(const uint32_t *words, uint32_t count, uint32_t addr, FILE *out) {
    for (uint32_t i = 0; i < count; i++) {
        uint8_t bytes[4];
        store_le32(bytes, words[i]);
        asm_disassemble(out, bytes, 4, addr + 4 * i, ISA_SUPERVISOR);
    }
}

void emit_print(
    const struct emit_context *c, const struct emit_layout *l, const struct emit_code *code,
    FILE *out) {
    const struct emit_host *h = c->host;
    fprintf(
        out, "emit text=%u more=%u program<=%u rows<=%u tables<=%u participants=%u\n",
        c->text->size, c->text->more_size, l->max_program_bytes, l->max_row_bytes,
        l->max_table_bytes, h->participant_count);
    fprintf(
        out, "  host phases initialize=%u input=%u output=%u slices=%u\n",
        h->stream_phases[STREAM_INITIALIZE], h->stream_phases[STREAM_INPUT],
        h->stream_phases[STREAM_OUTPUT], h->slice_count);
    static const char *const roles[] = {"idle", "lender", "owner", "active"};
    for (uint32_t t = 0; t < TARGET_TILES; t++) {
        const struct emit_tile_layout *x = &l->tiles[t];
        bool is_new = true;
        for (uint32_t o = 0; o < t && is_new; o++) {
            is_new =
                l->tiles[o].program_words != x->program_words ||
                l->tiles[o].program != x->program ||
                memcmp(code->programs[o], code->programs[t], 4 * (size_t)x->program_words) != 0;
        }
        if (is_new) {
            fprintf(
                out, "  program of tile %u (%s) at 0x%05x, %u words\n", t, roles[emit_role(c, t)],
                x->program, x->program_words);
            print_words(code->programs[t], x->program_words, x->program, out);
        }
    }
}
