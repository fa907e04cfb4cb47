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
 */
#ifndef ASM_ASM_H
#define ASM_ASM_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/err.h"
#include "isa/isa.h"

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
int asm_assemble(const struct asm_source *source, enum isa_unit default_unit,
    const struct asm_def *defs, size_t def_count, struct arena *a, struct asm_object **ret,
    struct err *err);

/* Total bytes of a section over one object, alignment padding included; 0 when absent. */
size_t asm_section_size(const struct asm_object *object, const char *section);

/* Where a section goes. All objects' pieces of it are laid one after the other in input order,
 * each at its own alignment. `limit` 0 = no limit. */
struct asm_placement {
    const char *section; /* ".text" */
    uint32_t addr;
    uint32_t limit;      /* first address it may not reach */
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

struct asm_image { /* arena */
    struct asm_segment *segments; /* ascending addresses, no overlap */
    size_t segment_count;
    struct asm_symbol *symbols;   /* sorted by name; labels of all objects that are .globl */
    size_t symbol_count;
};

/* Resolves symbols across objects (globals only; locals stay private to their object). */
int asm_link(const struct asm_object *const *objects, size_t object_count,
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
