/* The assembler's inner view.
 *
 * One pass over the text: lexer.c cuts statements out of a stack of frames (the source, and one
 * frame for each open macro or repeat), statement.c takes labels and assignments, and hands over to
 * macro.c (text control), data.c (directives) or code.c (instructions). Everything whose value
 * is known is written into its section at once. What refers to later labels becomes an item, tried
 * again at the end of the source; what depends on addresses or other objects stays an item of the
 * object until link.c evaluates it.
 *
 * Invariants: (1) the size of everything is known when it is met, so labels have their final
 * offset; (2) an expression is a tree that never changes, symbols that had a value when it was
 * parsed are folded in; (3) until an item is resolved its bytes hold the value 0, an instruction's
 * form is right all the same; (4) all memory is the arena's, so a jump out of arena_alloc() leaves
 * nothing behind.
 */
#ifndef ASM_ASM_INTERNAL_H
#define ASM_ASM_INTERNAL_H

#include <stdbool.h>

#include "asm/asm.h"
#include "base/intern.h"
#include "base/vec.h"

/* Where text came from when it is the body of a macro. */
struct origin {
    const char *macro;
    int line; /* of the call */
    const struct origin *parent;
};

struct location {
    int line, column; /* from 1 */
    const struct origin *origin;
};

enum expr_op {
    EXPR_CONST,
    EXPR_LOC,    /* section and offset k */
    EXPR_SYMBOL, /* not defined when parsed */
    EXPR_NEG,
    EXPR_NOT,
    EXPR_LNOT,
    EXPR_MUL,
    EXPR_DIV,
    EXPR_MOD,
    EXPR_ADD,
    EXPR_SUB,
    EXPR_SHL,
    EXPR_SHR,
    EXPR_LT,
    EXPR_LE,
    EXPR_GT,
    EXPR_GE,
    EXPR_EQ,
    EXPR_NE,
    EXPR_AND,
    EXPR_XOR,
    EXPR_OR,
    EXPR_LAND,
    EXPR_LOR,
    EXPR_COND,
};

struct expr {
    uint8_t op;    /* enum expr_op */
    uint8_t depth; /* of the tree below, at most ASM_MAX_EXPR_DEPTH */
    int column;
    int64_t k;       /* EXPR_CONST, EXPR_LOC */
    int section;     /* EXPR_LOC */
    uint32_t symbol; /* EXPR_SYMBOL; EXPR_LOC: name for messages or INTERN_NONE */
    const struct expr *a, *b, *c;
};

enum value_kind { VALUE_CONST, VALUE_LOC, VALUE_LATER };

struct value {
    enum value_kind kind; /* VALUE_LATER: known at link time only, k is 0 */
    int64_t k;
    int section; /* VALUE_LOC */
};

enum symbol_kind { SYMBOL_UNDEFINED, SYMBOL_LABEL, SYMBOL_SET, SYMBOL_REGISTER };

struct symbol {
    uint8_t kind; /* enum symbol_kind */
    bool is_global;
    const struct expr *value;  /* SYMBOL_LABEL (an EXPR_LOC), SYMBOL_SET */
    const char *register_text; /* SYMBOL_REGISTER: "$m3" */
    struct location defined_at;
};

struct operand {
    struct isa_arg arg;
    const struct expr *expr; /* of ISA_ARG_NUMBER, NULL for registers */
    int column;
};

/* One instruction as written; mnemonic is interned in the object's names. */
struct code {
    const char *mnemonic;
    uint8_t unit;         /* enum isa_unit */
    bool may_break_rules; /* .warn_on_invalid_bundles */
    int operand_count;
    struct operand operands[ISA_MAX_ARGS];
    struct location at;
};

struct item {
    int section;
    uint32_t offset;
    struct location at;
    int data_size;           /* 1, 2, 4, 8; 0 for code */
    const struct expr *data; /* the datum */
    int code_count;          /* 1, or 2 for a bundle */
    struct code *code;
};

struct section {
    const char *name;
    uint32_t align; /* power of two, at least 4 */
    bool has_code;
    VEC(uint8_t) bytes;
};

struct repeat { /* an rpt to be checked at the end */
    int section;
    uint32_t offset; /* of the rpt word */
    uint32_t body;   /* offset of the body */
    size_t item;     /* of the rpt, SIZE_MAX when all was known at once */
    struct location at;
};

struct asm_object {
    const char *name; /* of the source */
    struct intern names;
    VEC(struct symbol) symbols; /* by id of names; may be shorter than names */
    VEC(struct section) sections;
    VEC(struct item) items;
};

/* Evaluation at link time: addresses of sections and symbols of others. */
struct resolver {
    const struct asm_object *object;
    const uint32_t *section_addrs; /* by section, NULL while assembling */
    int (*find)(const struct resolver *r, const char *name, int64_t *ret); /* 0 or -1 */
    const void *link;
};

enum frame_kind { FRAME_SOURCE, FRAME_MACRO, FRAME_REPEAT };

struct frame {
    enum frame_kind kind;
    const char *text;
    size_t size, pos;
    int line;
    size_t line_start; /* pos of the first character of the line */
    int first_line;
    size_t first_line_start;
    int64_t loops_left; /* FRAME_REPEAT: passes after this one */
    const struct origin *origin;
    size_t condition_base; /* conditions open when the frame was */
};

struct condition {
    bool is_active; /* this branch is assembled */
    bool was_taken; /* some branch was */
    bool in_active; /* the surroundings are */
    bool has_else;
    struct location at;
};

struct macro_param {
    const char *name;
    const char *fallback; /* NULL when none */
    bool is_required, is_vararg;
};

struct macro {
    const char *name;
    struct macro_param params[ASM_MAX_MACRO_ARGS];
    int param_count;
    const char *body;
    size_t body_size;
    int first_line;
    size_t first_column; /* characters before body on its line */
};

struct statement {
    const char *text; /* NUL-terminated, comments blanked; valid until the next is read */
    size_t start;     /* pos in the frame */
    struct location at;
};

struct assembler {
    struct arena *arena;
    struct err *err;
    struct asm_object *object;
    enum isa_unit unit;
    int section;
    VEC(struct frame) frames;
    VEC(struct condition) conditions;
    struct intern macro_names;
    VEC(struct macro *) macros; /* by id of macro_names, newest definition */
    VEC(char) text;             /* of the current statement */
    VEC(struct repeat) repeats;
    bool *is_open; /* by item, after the second try */
    uint64_t statement_count;
    uint64_t scanned_bytes;
    uint64_t expanded_bytes;
    int64_t expansion_count; /* \@ */
    bool may_break_repeats, may_break_bundles;
    bool in_bundle;
    int bundle_count;
    struct code bundle[2];
    struct location bundle_at;
    struct location at; /* of the current statement */
};

/* A position in the current statement. */
struct cursor {
    struct assembler *as;
    const char *p;
    const char *start; /* of the statement */
};

/* Errors: places are "file:line:column", macro calls are told in the text. */
int asm_fail(
    const struct asm_object *object, struct err *err, const struct location *at, const char *format,
    ...) __attribute__((format(printf, 4, 5)));
int cursor_fail(const struct cursor *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
struct location cursor_at(const struct cursor *c);

/* lexer.c */
int lexer_next(struct assembler *as, bool is_capture, struct statement *ret); /* 1, 0 end, < 0 */
void cursor_blanks(struct cursor *c);
bool cursor_take(struct cursor *c, char ch);               /* after blanks */
size_t cursor_name(struct cursor *c, char *buf, size_t n); /* 0 when there is none, or too long */
size_t cursor_name_length(const struct cursor *c);         /* of the name at this very place */
int cursor_string(struct cursor *c, const char **ret_bytes, size_t *ret_size);
int cursor_end(struct cursor *c); /* nothing may follow */

/* expr.c */
int expr_parse(struct cursor *c, const struct expr **ret);
int expr_number(struct cursor *c, const char *what, int64_t low, int64_t high, int64_t *ret);
const struct expr *expr_const(struct arena *a, int64_t k);
int expr_eval(
    const struct resolver *r, const struct expr *e, const struct location *at, struct value *ret,
    struct err *err);
/* First address in the tree, for messages; NULL when none. */
const struct expr *expr_address(const struct expr *e);

/* statement.c */
int statement_run(struct assembler *as, const struct statement *st);
uint32_t symbol_id(struct assembler *as, const char *name);
struct symbol *symbol_of(struct assembler *as, uint32_t id);

/* macro.c: 1 when the word was theirs, 0 when not. */
int macro_directive(struct cursor *c, const char *word);
int macro_call(struct cursor *c, const char *word);
int macro_pop_frame(struct assembler *as);
bool macro_is_active(const struct assembler *as);

/* data.c */
int data_directive(struct cursor *c, const char *word); /* 1 when known, 0 when not */
struct section *section_now(struct assembler *as);
int section_switch(struct assembler *as, const char *name);
int section_append(struct assembler *as, const void *bytes, size_t n, const struct location *at);
/* A floating literal: digits with '.', exponent or 'h', inf, nan. Returns its length, 0 when the
 * text is something else. */
size_t float_literal(const char *p, bool takes_integers, double *ret);

/* code.c */
int code_statement(struct cursor *c, const char *mnemonic, const struct location *at);
int code_open_bundle(struct assembler *as, const struct location *at);
int code_close_bundle(struct assembler *as, const struct location *at);
/* Fills words, with 0 for values that are not known before linking: then 1. Negative on errors. */
int code_resolve(
    const struct resolver *r, const struct code *code, int count, uint32_t words[2],
    struct err *err);
int code_check_repeats(struct assembler *as);

/* item.c: writes the item at `bytes` (of its section); returns as code_resolve(). */
int item_resolve(
    const struct resolver *r, const struct item *item, uint8_t *bytes, struct err *err);
size_t item_size(const struct item *item);

#endif
