/* The dispatch table: from isa.def, an exec function for every row. A row without a function
 * fails to link; a function without a row fails to compile (no prototype). */
#include "sim/exec.h"

exec_fn *const exec_table[ISA_OP_COUNT] = {
#define ISA_INSN(id, ...) [ISA_OP_##id] = exec_##id,
#include "isa/isa.def"
#undef ISA_INSN
};

_Static_assert(ISA_OP_COUNT > 300, "the whole instruction set is expected");
