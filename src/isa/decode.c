/* Word to struct insn. Rows of isa.def are sorted by bits 30:24; last_row[] gives the last row of
 * each value, from which the search goes backwards while the value stays the same. The few
 * supervisor forms whose opcode is shorter than seven bits follow at the end of the table and are
 * tried when that search has found nothing. Both loops are bounded by the table. */
#include "isa/isa.h"

#define ISA_FIRST_SHORT ISA_OP_delaypic_zi_zi_zi

struct key {
    uint32_t match, mask;
};

static const struct key keys[ISA_OP_COUNT] = {
#define ISA_INSN(id, mnemonic, form, units, pipe, flags, match, mask, ...)                         \
    [ISA_OP_##id] = {match, mask},
#include "isa/isa.def"
#undef ISA_INSN
};

/* Later rows overwrite earlier ones, on purpose. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"
static const uint16_t last_row[128] = {
#define ISA_INSN(id, mnemonic, form, units, pipe, flags, match, mask, ...)                         \
    [(match) >> 24 & 0x7f] = ISA_OP_##id,
#include "isa/isa.def"
#undef ISA_INSN
};
#pragma GCC diagnostic pop

_Static_assert(ISA_OP_COUNT < UINT16_MAX, "row numbers fit last_row");

static int find(uint32_t word, enum isa_unit unit) {
    uint32_t top = word >> 24 & 0x7f;
    for (int op = last_row[top]; op > 0 && (keys[op].match >> 24 & 0x7f) == top; op--) {
        if ((word & keys[op].mask) == keys[op].match &&
            (isa_info((enum isa_op)op)->units & unit) != 0) {
            return op;
        }
    }
    for (int op = ISA_FIRST_SHORT; op < ISA_OP_COUNT; op++) {
        if ((word & keys[op].mask) == keys[op].match &&
            (isa_info((enum isa_op)op)->units & unit) != 0) {
            return op;
        }
    }
    return ISA_OP_NONE;
}

static int32_t operand_value(const struct isa_operand *o, uint32_t word) {
    uint32_t v = 0;
    for (int p = 0; p < 3 && o->pieces[p].bits > 0; p++) {
        const struct isa_piece *piece = &o->pieces[p];
        v |= (word >> piece->at & ((1u << piece->bits) - 1)) << piece->v_lo;
    }
    switch ((enum isa_kind)o->kind) {
    case ISA_M_PAIR:
    case ISA_A_PAIR: return (int32_t)(v & 14);
    case ISA_A_QUAD: return (int32_t)(v & 12);
    case ISA_SI: {
        uint32_t sign = 1u << (o->bits - 1);
        return (int32_t)((v ^ sign) - sign);
    }
    case ISA_IZ: return (int32_t)(v << (32 - o->bits));
    case ISA_ABS: return (int32_t)(v * 4);
    case ISA_M:
    case ISA_A:
    case ISA_A_B:
    case ISA_A_BL:
    case ISA_A_BU:
    case ISA_ZI: break;
    }
    return (int32_t)v;
}

bool isa_decode(uint32_t word, enum isa_unit unit, struct insn *ret) {
    int op = find(word, unit);
    if (op == ISA_OP_NONE) {
        return false;
    }
    const struct isa_info *info = isa_info((enum isa_op)op);
    *ret = (struct insn){.op = (uint16_t)op};
    ret->coissue = (info->flags & ISA_COISSUE) != 0 && word >> 31 != 0;
    for (int i = 0; i < info->operand_count; i++) {
        const struct isa_operand *o = &info->operands[i];
        ret->v[o->letter - 'a'] = operand_value(o, word);
    }
    return true;
}
