/* One statement: labels, then an assignment, a directive, a macro call or an instruction. Inside an
 * untaken .if branch only text control counts. Also the symbols. */
#include "asm/asm_internal.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

uint32_t symbol_id(struct assembler *as, const char *name) {
    return intern_add(&as->object->names, name);
}

struct symbol *symbol_of(struct assembler *as, uint32_t id) {
    struct asm_object *object = as->object;
    while (object->symbols.len <= id) {
        vec_push(as->arena, &object->symbols, (struct symbol){0});
    }
    return &object->symbols.data[id];
}

static int define_label(struct cursor *c, const char *name, const struct location *at) {
    struct assembler *as = c->as;
    uint32_t id = symbol_id(as, name);
    struct symbol *s = symbol_of(as, id);
    if (s->kind != SYMBOL_UNDEFINED) {
        return asm_fail(
            as->object, as->err, at, "'%s' is already defined at line %d", name,
            s->defined_at.line);
    }
    struct expr *e = ARENA_NEW(as->arena, struct expr);
    *e = (struct expr){
        .op = EXPR_LOC,
        .k = (int64_t)section_now(as)->bytes.len,
        .section = as->section,
        .symbol = id,
        .column = at->column};
    s->kind = SYMBOL_LABEL;
    s->value = e;
    s->defined_at = *at;
    return 0;
}

/* "1:" is the label "1#n" for the nth time; the symbol "1#" counts. */
static int define_local(struct cursor *c, const char *digits, size_t n, const struct location *at) {
    struct assembler *as = c->as;
    char *counter = arena_printf(as->arena, "%.*s#", (int)n, digits);
    struct symbol *s = symbol_of(as, symbol_id(as, counter));
    int64_t count = (s->value != NULL ? s->value->k : 0) + 1;
    s->kind = SYMBOL_SET;
    s->value = expr_const(as->arena, count);
    return define_label(c, arena_printf(as->arena, "%s%lld", counter, (long long)count), at);
}

/* Takes labels from the front of the statement. */
static int take_labels(struct cursor *c, bool is_active) {
    for (;;) {
        cursor_blanks(c);
        const char *first = c->p;
        struct location at = cursor_at(c);
        char name[ASM_MAX_NAME + 1];
        size_t digits = strspn(first, "0123456789");
        size_t n = digits > 0 ? digits : cursor_name(c, name, sizeof name);
        if (n == 0 || first[n] != ':') {
            c->p = first;
            return 0;
        }
        c->p = first + n + 1;
        if (!is_active) {
            continue;
        }
        if (c->as->in_bundle) {
            return asm_fail(c->as->object, c->as->err, &at, "a label cannot stand in a bundle");
        }
        if (digits > 9) {
            return asm_fail(c->as->object, c->as->err, &at, "local label has more than 9 digits");
        }
        int r = digits > 0 ? define_local(c, first, n, &at) : define_label(c, name, &at);
        if (r < 0) {
            return r;
        }
    }
}

static int assign(struct cursor *c, const char *name, const struct location *at) {
    struct assembler *as = c->as;
    struct symbol *s = symbol_of(as, symbol_id(as, name));
    if (s->kind == SYMBOL_LABEL || strcmp(name, ".") == 0) {
        return asm_fail(as->object, as->err, at, "'%s' is a label and cannot be set", name);
    }
    cursor_blanks(c);
    if (*c->p == '$') {
        struct isa_arg arg;
        size_t used = isa_parse_register(c->p, strlen(c->p), as->unit, &arg);
        if (used == 0 || arg.type > ISA_ARG_A || arg.suffix[0] != '\0') {
            return cursor_fail(c, "expected a register");
        }
        s->kind = SYMBOL_REGISTER;
        s->register_text = arena_strndup(as->arena, c->p, used);
        c->p += used;
    } else {
        const struct expr *e;
        int r = expr_parse(c, &e);
        if (r < 0) {
            return r;
        }
        s = symbol_of(as, symbol_id(as, name)); /* parsing may have moved the table */
        s->kind = SYMBOL_SET;
        s->value = e;
    }
    s->defined_at = *at;
    return cursor_end(c);
}

/* ".set name, expr" after the word. */
static int set_directive(struct cursor *c) {
    char name[ASM_MAX_NAME + 1];
    cursor_blanks(c);
    struct location at = cursor_at(c);
    if (cursor_name(c, name, sizeof name) == 0) {
        return cursor_fail(c, "expected a symbol");
    }
    if (!cursor_take(c, ',')) {
        return cursor_fail(c, "expected ',' and a value");
    }
    return assign(c, name, &at);
}

static int global_directive(struct cursor *c) {
    char name[ASM_MAX_NAME + 1];
    do {
        if (cursor_take(c, '@')) { /* a type, as after .type: means nothing here */
            if (cursor_name(c, name, sizeof name) == 0) {
                return cursor_fail(c, "expected a type");
            }
            continue;
        }
        if (cursor_name(c, name, sizeof name) == 0) {
            return cursor_fail(c, "expected a symbol");
        }
        symbol_of(c->as, symbol_id(c->as, name))->is_global = true;
    } while (cursor_take(c, ','));
    return cursor_end(c);
}

static int symbol_directive(struct cursor *c, const char *word) {
    if (strcmp(word, ".set") == 0 || strcmp(word, ".equ") == 0) {
        int r = set_directive(c);
        return r < 0 ? r : 1;
    }
    if (strcmp(word, ".globl") == 0 || strcmp(word, ".global") == 0) {
        int r = global_directive(c);
        return r < 0 ? r : 1;
    }
    return 0;
}

static int run_word(struct cursor *c, const char *word, const struct location *at) {
    cursor_blanks(c);
    if (*c->p == '=' && c->p[1] != '=') {
        c->p++;
        return assign(c, word, at);
    }
    int r = macro_call(c, word);
    if (r != 0) {
        return r < 0 ? r : 0;
    }
    if (word[0] != '.') {
        return code_statement(c, word, at);
    }
    r = symbol_directive(c, word);
    if (r == 0) {
        r = data_directive(c, word);
    }
    if (r == 0) {
        return asm_fail(c->as->object, c->as->err, at, "unknown directive '%s'", word);
    }
    return r < 0 ? r : 0;
}

int statement_run(struct assembler *as, const struct statement *st) {
    struct cursor c = {.as = as, .p = st->text, .start = st->text};
    bool is_active = macro_is_active(as);
    as->at = st->at;
    if (st->text[0] == '{' || st->text[0] == '}') {
        if (!is_active) {
            return 0;
        }
        return st->text[0] == '{' ? code_open_bundle(as, &st->at) : code_close_bundle(as, &st->at);
    }
    int r = take_labels(&c, is_active);
    cursor_blanks(&c);
    if (r < 0 || *c.p == '\0') {
        return r;
    }
    char word[ASM_MAX_NAME + 1];
    struct location at = cursor_at(&c);
    if (cursor_name(&c, word, sizeof word) == 0) {
        return is_active ? cursor_fail(&c, "expected an instruction, a directive or a label") : 0;
    }
    r = word[0] == '.' ? macro_directive(&c, word) : 0;
    if (r != 0) {
        return r < 0 ? r : 0;
    }
    return is_active ? run_word(&c, word, &at) : 0;
}
