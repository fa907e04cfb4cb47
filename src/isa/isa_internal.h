/* Shared by print.c and select.c: how text names one form where several take the same operands. */
#ifndef ISA_ISA_INTERNAL_H
#define ISA_ISA_INTERNAL_H

#include "isa/isa.h"

/* Suffix that forces the form: "z" when the signed form would be taken for this value, "iz" when
 * the zero-extended one would, else "". */
const char *isa_forced_suffix(const struct insn *insn);

#endif
