/* Listing of words. */
#include "asm/asm.h"

#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"

#define TEXT_MAX 96

/* A word that is half of a bundle in its lane. */
static bool is_half(uint32_t word, enum isa_unit unit, enum isa_pipe pipe, struct insn *ret) {
    return word >> 31 != 0 && isa_decode(word, unit, ret) && ret->coissue &&
           isa_info((enum isa_op)ret->op)->pipe == pipe;
}

static void print_pair(
    FILE *out, const struct insn *main_half, const struct insn *aux_half, enum isa_unit unit) {
    char first[TEXT_MAX], second[TEXT_MAX];
    isa_print_named(main_half, unit, first, sizeof first);
    isa_print_named(aux_half, unit, second, sizeof second);
    fprintf(out, "{ %s ; %s }\n", first, second);
}

/* Prints what starts with `word`; returns its words. */
static int print_one(FILE *out, uint32_t word, uint32_t next, bool has_next, enum isa_unit unit) {
    struct insn insn, aux;
    char text[TEXT_MAX];
    if (has_next && is_half(word, unit, ISA_MAIN, &insn) && is_half(next, unit, ISA_AUX, &aux)) {
        fprintf(out, "%08" PRIx32 " %08" PRIx32 "  ", word, next);
        print_pair(out, &insn, &aux, unit);
        return 2;
    }
    bool is_known = isa_decode(word, unit, &insn) && !insn.coissue;
    int words = is_known ? isa_words((enum isa_op)insn.op) : 1;
    if (!is_known || (words == 2 && !has_next)) {
        fprintf(out, "%08" PRIx32 "           .long 0x%08" PRIx32 "\n", word, word);
        return 1;
    }
    isa_print_named(&insn, unit, text, sizeof text);
    if (words == 2) {
        fprintf(
            out, "%08" PRIx32 " %08" PRIx32 "  %s, 0x%" PRIx32 ", 0x%" PRIx32 "\n", word, next,
            text, next >> 18, next & 0x3ffff);
        return 2;
    }
    fprintf(out, "%08" PRIx32 "           %s\n", word, text);
    return 1;
}

void asm_disassemble(
    FILE *out, const uint8_t *bytes, size_t size, uint32_t addr, enum isa_unit unit) {
    size_t at = 0;
    while (size - at >= 4) {
        bool has_next = size - at >= 8;
        fprintf(out, "%08" PRIx32 "  ", addr + (uint32_t)at);
        at += 4 * (size_t)print_one(
                      out, load_le32(bytes + at), has_next ? load_le32(bytes + at + 4) : 0,
                      has_next, unit);
    }
    for (; at < size; at++) {
        fprintf(
            out, "%08" PRIx32 "  %02x                 .byte 0x%02x\n", addr + (uint32_t)at,
            bytes[at], bytes[at]);
    }
}
