/* Assembler and linker for tile code in the vendor's published syntax (design.md section 5).
 *
 * Job: text -> object -> image. `.supervisor` / `.worker` choose the unit, `{ main ; aux }` is a
 * bundle, plus labels, `.set`, `.if/.else/.endif`, `.rept/.endr`, `.macro/.endm`, `.section`,
 * `.globl`, `.long/.half/.short/.byte/.float`, `.p2align/.balign`, `.skip/.space`, expressions
 * (C operators and precedence, 64-bit), comments `//`, `#`, and C block comments. Named
 * registers, `$NAME` CSR names, immediate selection and aliases as the vendor's assembler.
 *
 * Kernels are specialised by symbols given from outside (`defs`): they can be used in any
 * expression and in `.if`/`.ifdef`.
 *
 * Errors carry "file:line:column" in err->where and say what was expected.
 * Everything is made in the caller's arena; the source text is borrowed during the call only.
 *
 * Syntax beyond the vendor's pages, and choices where they are silent:
 * - Statements end at a newline or `;`. A bundle may span lines. `\` before a newline joins lines.
 * - `.set n, expr`, `.equ`, `n = expr` give a number or an address; a symbol may be set again, each
 *   use takes the value at that place. `.set base, $m3` names a register: `ld32 $m0, base+=, ...`.
 * - Expressions: C operators, `.` is the current address, `1f`/`1b` the next or last label `1:`.
 *   Symbols may be defined later or in another object, except where the size of something or a
 *   condition depends on them. Comparisons give 1 or 0.
 * - `.macro name a, b=1, c:req, d:vararg`: `\a` in the body, `\@` a number of the expansion, `\()`
 *   nothing. Arguments and parameters are separated by commas, or by blanks that have no operator
 *   on either side: `m 1 + 2 x` has two.
 * - Conditions: `.if`, `.ifeq/.ifne/.ifgt/.ifge/.iflt/.ifle` against 0, `.ifdef/.ifndef`,
 *   `.ifc/.ifnc a, b` on texts as they stand, `.ifb/.ifnb` on blank ones.
 * - Blanks may stand inside a register operand (`$ a4 : 5 +=`): C preprocessors put them there.
 * - `ld32 $m0, $m1, $m2` and `ld32 $m0, $m1, 2` leave out the delta $mzero. `1.5h` in an operand is
 *   the bits of a binary16. `:B` and `:BL` stand for each other where a form has only one of them.
 * - `.section .text.f, ...`: flags mean nothing; it is placed with `.text`.
 * - `.half 1.5`, `.half 1.0h`, `.half -infh` give binary16; `.half 7` the number 7. `.float` always
 *   converts. `.align n` and `.balign n` count bytes. Gaps in code hold `nop`.
 * - `rpt`: the second operand is the encoded number: `rpt $m0, ((end - start) / 8) - 1`. The body
 *   must start at a multiple of 8 and hold bundles only. `.allow_invalid_repeat` drops both checks,
 *   `.warn_on_invalid_bundles` those of bundles; `.error_on_invalid_...` brings them back.
 * - `ldconst $m0, expr` takes one word, or two when bits 31:20 are set, for which the value must be
 *   known at that place; otherwise it takes one. `sendpicp` has six operands: words - 1, address,
 *   sctl, high selector bit, mux control (14 bits), pointer control (18 bits).
 * - Sections start at multiples of 4 or of their largest alignment. Symbols are private unless
 *   `.globl`.
 *
 *     struct asm_source source = { "scale.S", text, strlen(text) };
 *     struct asm_def defs[] = { { "ROWS", 12 } };
 *     struct asm_object *object;
 *     if (asm_assemble(&source, ISA_WORKER, defs, 1, &arena, &object, err) < 0) {
 *         return -err->code;
 *     }
 *     struct asm_placement place = { ".text", 0x4c000, 0x80000 };
 *     struct asm_image *image;
 *     asm_link((const struct asm_object *const[]){ object }, 1, &place, 1, NULL, 0, &arena, &image,
 *         err);
 */
#ifndef ASM_ASM_H
#define ASM_ASM_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/err.h"
#include "isa/isa.h"

#define ASM_MAX_NAME          511          /* characters of a name */
#define ASM_MAX_DEPTH         64           /* macros and repeats open at once */
#define ASM_MAX_CONDITIONS    64           /* .if open at once */
#define ASM_MAX_STATEMENTS    4000000      /* of one source, each expansion counted */
#define ASM_MAX_SCAN          (256u << 20) /* bytes read, each repetition counted */
#define ASM_MAX_EXPANSION     (16u << 20)  /* bytes of expanded macro text of one source */
#define ASM_MAX_REPEAT        1000000      /* count of one .rept */
#define ASM_MAX_MACRO_ARGS    32
#define ASM_MAX_SECTIONS      256
#define ASM_MAX_SECTION_BYTES (1u << 20)
#define ASM_MAX_ALIGN_BITS    16  /* .p2align */
#define ASM_MAX_EXPR_DEPTH    128 /* operators within one another */

struct asm_def {
    const char *name;
    int64_t value;
};

struct asm_source {
    const char *name; /* file name for messages */
    const char *text;
    size_t size;
};

struct asm_object; /* arena */

/* Assembles one source. The first unit is `default_unit` until a directive says otherwise. */
int asm_assemble(
    const struct asm_source *source, enum isa_unit default_unit, const struct asm_def *defs,
    size_t def_count, struct arena *a, struct asm_object **ret, struct err *err);

/* Total bytes of a section over one object, alignment padding included; 0 when absent. ".text"
 * counts ".text.f" too, here and in placements that do not name it apart. */
size_t asm_section_size(const struct asm_object *object, const char *section);

/* Where a section goes. All objects' pieces of it are laid one after the other in input order,
 * each at its own alignment. `limit` 0 = no limit. */
struct asm_placement {
    const char *section; /* ".text" */
    uint32_t addr;
    uint32_t limit; /* first address it may not reach */
};

struct asm_symbol {
    const char *name;
    uint32_t addr;
};

struct asm_segment {
    uint32_t addr;
    uint32_t size;
    const uint8_t *bytes;
};

struct asm_image {                /* arena */
    struct asm_segment *segments; /* ascending addresses, no overlap */
    size_t segment_count;
    struct asm_symbol *symbols; /* sorted by name; labels of all objects that are .globl */
    size_t symbol_count;
};

/* Resolves symbols across objects (globals only; locals stay private to their object). */
int asm_link(
    const struct asm_object *const *objects, size_t object_count,
    const struct asm_placement *places, size_t place_count, const struct asm_def *externs,
    size_t extern_count, struct arena *a, struct asm_image **ret, struct err *err);
/* -ERR_MISSING when there is none. */
int asm_image_symbol(
    const struct asm_image *image, const char *name, uint32_t *ret_addr, struct err *err);

/* Listing of words from addr: "0004c010  19000001  setzi $m0, 1", bundles on one line. Appends to
 * out (a FILE of the caller). Unknown words print as ".long 0x...". */
void asm_disassemble(
    FILE *out, const uint8_t *bytes, size_t size, uint32_t addr, enum isa_unit unit);

#endif
