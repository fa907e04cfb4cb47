/* The IPU21 tile instruction set: one table, isa.def, drives encoder, decoder, printer, parser
 * and the simulator's dispatch, so that they cannot disagree.
 *
 * Job: word <-> struct insn <-> text. Input: words in tile memory, assembly text. Output: the
 * other form. Nothing here executes anything.
 *
 * Words are 32-bit, little-endian in memory. Bit 31 is the co-issue bit of a bundle: a bundle is
 * two words, main lane first, with bit 31 set in both. The one instruction of two words is
 * sendpicp: its second word is data (struct insn carries the first; isa_words() says 2).
 *
 * Operands are named by the letters a..e of the encoding, as in isa.def:
 * insn.v[0] is letter a, v[1] letter b, and so on. Values are register numbers, the immediate as
 * written in assembly (absolute targets in bytes; zi12*4 and friends in units), or a CSR number.
 *
 * Invariants: (1) within one unit no two rows match one word; (2) decode(encode(x)) == x for all
 * legal x; (3) parse(print(x)) == x; (4) rows are ordered as in isa.def and enum isa_op follows.
 *
 * Pairs and quads are held as their first register number. The hardware ignores the low bits of
 * such a field, so isa_decode() clears them in v[]; isa_encode() refuses unaligned numbers.
 *
 * Several forms may take the same text (an immediate that both the signed and the zero-extended
 * form hold). isa_select() takes the signed form first, as the vendor's assembler does; the others
 * print with the vendor's suffix (`addz`), or, where the vendor has none, with ours (`oriz` for a
 * shifted immediate of 0), so that printed text names one form.
 */
#ifndef ISA_ISA_H
#define ISA_ISA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define ISA_MAX_OPERANDS 5

/* ISA_OP_<mnemonic>_<form>, e.g. ISA_OP_add_mmmn_si; value 0 is ISA_OP_NONE. */
enum isa_op {
    ISA_OP_NONE = 0,
#define ISA_INSN(id, ...) ISA_OP_##id,
#include "isa/isa.def"
#undef ISA_INSN
    ISA_OP_COUNT
};

enum isa_unit { ISA_SUPERVISOR = 1, ISA_WORKER = 2 }; /* bit set in isa_info.units: 3 = both */
enum isa_pipe { ISA_MAIN = 0, ISA_AUX = 1 };

enum isa_flag {
    ISA_COISSUE = 1, /* may be half of a bundle */
    ISA_CONTROL = 2, /* changes the program counter */
    ISA_SYSTEM = 4,  /* get, put, run, sync, send ...: not in a repeat body */
    ISA_LOAD = 8,
    ISA_STORE = 16,
};

enum isa_kind {
    ISA_M,      /* $mN */
    ISA_M_PAIR, /* $mN:N+1, N even */
    ISA_A,      /* $aN */
    ISA_A_PAIR,
    ISA_A_QUAD,
    ISA_A_B,  /* $aN:B  f32 broadcast */
    ISA_A_BL, /* $aN:BL low half broadcast */
    ISA_A_BU, /* $aN:BU high half broadcast */
    ISA_ZI,   /* unsigned immediate */
    ISA_SI,   /* two's complement immediate */
    ISA_IZ,   /* top bits of a 32-bit value; the value is held shifted (v = bits << (32-n)) */
    ISA_ABS,  /* absolute byte address, encoded / 4 */
};

/* One run of an operand's bits: bits v_lo .. v_lo + bits - 1 of the stored number lie from bit `at`
 * of the word upwards. */
struct isa_piece {
    uint8_t v_lo, bits, at;
};

struct isa_operand {
    char letter;                /* 'a'..'e' */
    uint8_t kind;               /* enum isa_kind */
    uint8_t bits;               /* width of an immediate, else 4 (register) */
    uint8_t scale;              /* bytes per unit of an offset or step, 1 when none */
    bool is_written;            /* letter in the writes column */
    bool is_read;               /* false for a pure destination */
    const char *suffix;         /* mandatory text after the register: "", "+=", "++", ">>", "@" */
    const char *meaning;        /* "csr", "rpt", "stride", "rnd", "synczone", "sctl", ... or "" */
    struct isa_piece pieces[3]; /* ends at the first with bits == 0 */
};

struct isa_info {
    const char *mnemonic;
    const char *form;
    uint32_t match, mask; /* word & mask == match; bit 31 excluded when ISA_COISSUE */
    uint8_t units;        /* bits of enum isa_unit */
    uint8_t pipe;         /* enum isa_pipe */
    uint8_t flags;        /* bits of enum isa_flag */
    uint8_t operand_count;
    struct isa_operand operands[ISA_MAX_OPERANDS]; /* in assembly order */
};

struct insn {
    uint16_t op;                 /* enum isa_op */
    bool coissue;                /* bit 31 of a co-issuable form */
    int32_t v[ISA_MAX_OPERANDS]; /* by letter: v[0] = a */
};

const struct isa_info *isa_info(enum isa_op op); /* valid for 1..ISA_OP_COUNT-1 */
/* Words the instruction occupies: 2 for sendpicp, else 1. */
int isa_words(enum isa_op op);
/* False when the word is no instruction of that unit. Low bits of pairs and quads are cleared. */
bool isa_decode(uint32_t word, enum isa_unit unit, struct insn *ret);
/* -ERR_ASM when an operand does not fit; the text names it and its range. */
int isa_encode(const struct insn *insn, uint32_t *ret_word, struct err *err);
/* sendpicp's data word: xpic 14 bits, pic 18 bits. */
uint32_t isa_sendpicp_data(uint32_t xpic, uint32_t pic);

/* Text of one instruction without label or newline: "add $m0, $m1, 5". Returns the length that
 * snprintf would. */
int isa_print(const struct insn *insn, char *buf, size_t n);
/* As isa_print() with "$NAME" for the control registers of that unit (get, put, uget, uput). */
int isa_print_named(const struct insn *insn, enum isa_unit unit, char *buf, size_t n);
/* One instruction in the syntax of isa_print(), plus the aliases of the vendor's assembler (nop,
 * mov, ...). Used by tests and listings; the assembler has expressions and labels of its own.
 * err->where is "column N". */
int isa_parse(const char *text, enum isa_unit unit, struct insn *ret, struct err *err);

/* All forms of a mnemonic in a unit, in table order; returns their number (at most n stored). */
int isa_forms(const char *mnemonic, enum isa_unit unit, enum isa_op *ret, int n);

/* One operand as written, before a form is chosen. */
enum isa_arg_type {
    ISA_ARG_M,      /* $m registers first .. first + count - 1 */
    ISA_ARG_A,      /* $a registers */
    ISA_ARG_NUMBER, /* value */
    ISA_ARG_CSR,    /* value is isa_csr_number() */
    ISA_ARG_CWEI,   /* value is the weight entry of "$CWEI_m_n" */
};

struct isa_arg {
    uint8_t type; /* enum isa_arg_type */
    uint8_t first, count;
    char suffix[3]; /* "", "B", "BL", "BU", "+=", "++", ">>", "@" */
    bool is_open;   /* ISA_ARG_NUMBER not known yet: fits every immediate, v[] gets 0 */
    int64_t value;
};

#define ISA_MAX_ARGS     8
#define ISA_MNEMONIC_MAX 24 /* with the final 0 */

/* A register as in "$m0", "$a0:3", "$a2:BL", "$m4+=", "$ap1", "$azeros", "$FP_CTL", "$CWEI_0_1".
 * text starts at '$'. Returns the characters used, or 0 when it is no register or CSR. */
size_t isa_parse_register(const char *text, size_t n, enum isa_unit unit, struct isa_arg *ret);

/* Picks the form of a mnemonic (or alias) that takes these operands and fills insn. On failure the
 * text says why and *ret_bad is the operand at fault, -1 for the mnemonic or the number of
 * operands. ret_bad may not be NULL. */
int isa_select(
    const char *mnemonic, enum isa_unit unit, const struct isa_arg *args, int arg_count,
    struct insn *ret, int *ret_bad, struct err *err);

/* Control and status registers, by the vendor's names without '$' ("WSR", "INCOMING_MUX").
 * Upper worker registers (uget/uput) have numbers 256..; their instructions encode the low 8
 * bits. Returns -1 when there is no such register in that unit. */
int isa_csr_number(const char *name, enum isa_unit unit);
const char *isa_csr_name(int number, enum isa_unit unit); /* NULL when unlisted */

#define ISA_NOP_WORD  0x19e00000u /* setzi $m14, 0 */
#define ISA_FNOP_WORD 0x1ad00000u /* setzi $a13, 0 */

#endif
