/* The table itself: isa.def expanded into one constant array, and look-ups by mnemonic. */
#include "isa/isa.h"

#include <string.h>

enum { BOTH = ISA_SUPERVISOR | ISA_WORKER, SUPERVISOR = ISA_SUPERVISOR, WORKER = ISA_WORKER };
enum { MAIN = ISA_MAIN, AUX = ISA_AUX };
enum { LETTER_a = 'a', LETTER_b = 'b', LETTER_c = 'c', LETTER_d = 'd', LETTER_e = 'e' };
enum {
    COISSUE = ISA_COISSUE,
    CONTROL = ISA_CONTROL,
    SYSTEM = ISA_SYSTEM,
    LOAD = ISA_LOAD,
    STORE = ISA_STORE,
};

#define P(hi, lo, at)                                                                              \
    { lo, (hi) - (lo) + 1, at }
#define REGISTER(l, kind, written, read, suffix, ...)                                              \
    {                                                                                              \
        LETTER_##l, ISA_##kind, 4, 1, written, read, suffix, "", {                                 \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define D(l, kind, at)         REGISTER(l, kind, true, false, "", P(3, 0, at))
#define R(l, kind, at)         REGISTER(l, kind, false, true, "", P(3, 0, at))
#define U(l, kind, at, suffix) REGISTER(l, kind, true, true, suffix, P(3, 0, at))
#define DX(l, kind, ...)       REGISTER(l, kind, true, false, "", __VA_ARGS__)
#define X(l, kind, bits, scale, meaning, ...)                                                      \
    {                                                                                              \
        LETTER_##l, ISA_##kind, bits, scale, false, true, "", meaning, {                           \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define I(l, kind, bits, at, scale, meaning) X(l, kind, bits, scale, meaning, P((bits)-1, 0, at))
#define COUNT_OPERANDS(...)                                                                        \
    (sizeof((const struct isa_operand[]){__VA_ARGS__}) / sizeof(struct isa_operand))

static const struct isa_info infos[ISA_OP_COUNT] = {
#define ISA_INSN(id, mnemonic, form, units, pipe, flags, match, mask, ...)                         \
    [ISA_OP_##id] = {mnemonic,     form, match, mask,                                              \
                     units,        pipe, flags, COUNT_OPERANDS(__VA_ARGS__),                       \
                     {__VA_ARGS__}},
#include "isa/isa.def"
#undef ISA_INSN
};

_Static_assert(ISA_OP_COUNT == 367, "366 instruction forms and ISA_OP_NONE");
_Static_assert(ISA_OP_ld32_mmmn_zi == 1, "the row with the lowest opcode comes first");
_Static_assert(ISA_OP_send_zi_zi_zi == ISA_OP_COUNT - 1, "forms with a short opcode come last");

const struct isa_info *isa_info(enum isa_op op) {
    return op > ISA_OP_NONE && op < ISA_OP_COUNT ? &infos[op] : NULL;
}

int isa_words(enum isa_op op) {
    return op == ISA_OP_sendpicp_word0 ? 2 : 1;
}

int isa_forms(const char *mnemonic, enum isa_unit unit, enum isa_op *ret, int n) {
    int found = 0;
    for (int op = 1; op < ISA_OP_COUNT; op++) {
        if ((infos[op].units & unit) == 0 || infos[op].mnemonic[0] != mnemonic[0] ||
            strcmp(infos[op].mnemonic, mnemonic) != 0) {
            continue;
        }
        if (found < n) {
            ret[found] = (enum isa_op)op;
        }
        found++;
    }
    return found;
}
