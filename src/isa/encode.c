/* struct insn to word. Every operand is checked against its field, so that a word never carries
 * less than the caller meant. */
#include "isa/isa.h"

#include <inttypes.h>

/* Range check of one operand; *ret_bits is the number to store. */
static int operand_bits(
    const struct isa_info *info, const struct isa_operand *o, int32_t v, uint32_t *ret_bits,
    struct err *err) {
    int64_t low = 0;
    int64_t high = (1ll << o->bits) - 1;
    int64_t step = 1;
    switch ((enum isa_kind)o->kind) {
    case ISA_M:
    case ISA_A:
    case ISA_A_B:
    case ISA_A_BL:
    case ISA_A_BU:
    case ISA_ZI: break;
    case ISA_M_PAIR:
    case ISA_A_PAIR: step = 2; break;
    case ISA_A_QUAD: step = 4; break;
    case ISA_SI:
        low = -(1ll << (o->bits - 1));
        high = -low - 1;
        break;
    case ISA_IZ: {
        int shift = 32 - o->bits;
        if (((uint32_t)v & ((1u << shift) - 1)) != 0) {
            return err_set(
                err, ERR_ASM, "%s: operand %c is 0x%" PRIx32 ", the low %d bits must be 0",
                info->mnemonic, o->letter, (uint32_t)v, shift);
        }
        *ret_bits = (uint32_t)v >> shift;
        return 0;
    }
    case ISA_ABS:
        high = ((1ll << o->bits) - 1) * 4;
        step = 4;
        break;
    }
    if (v < low || v > high || v % step != 0) {
        return err_set(
            err, ERR_ASM, "%s: operand %c is %" PRId32 ", must be %" PRId64 "..%" PRId64 "%s",
            info->mnemonic, o->letter, v, low, high,
            step == 2   ? " and even"
            : step == 4 ? " and a multiple of 4"
                        : "");
    }
    *ret_bits = o->kind == ISA_ABS ? (uint32_t)v / 4 : (uint32_t)v;
    return 0;
}

int isa_encode(const struct insn *insn, uint32_t *ret_word, struct err *err) {
    const struct isa_info *info = isa_info((enum isa_op)insn->op);
    if (info == NULL) {
        return err_set(err, ERR_ASM, "instruction number %d does not exist", insn->op);
    }
    if (insn->coissue && (info->flags & ISA_COISSUE) == 0) {
        return err_set(err, ERR_ASM, "%s cannot be half of a bundle", info->mnemonic);
    }
    uint32_t word = info->match | (insn->coissue ? 1u << 31 : 0);
    for (int i = 0; i < info->operand_count; i++) {
        const struct isa_operand *o = &info->operands[i];
        uint32_t bits = 0;
        int r = operand_bits(info, o, insn->v[o->letter - 'a'], &bits, err);
        if (r < 0) {
            return r;
        }
        for (int p = 0; p < 3 && o->pieces[p].bits > 0; p++) {
            const struct isa_piece *piece = &o->pieces[p];
            word |= (bits >> piece->v_lo & ((1u << piece->bits) - 1)) << piece->at;
        }
    }
    *ret_word = word;
    return 0;
}

uint32_t isa_sendpicp_data(uint32_t xpic, uint32_t pic) {
    return (xpic & 0x3fff) << 18 | (pic & 0x3ffff);
}
