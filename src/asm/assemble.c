/* Assembly of one source: set up, run all statements, resolve what could not be known earlier. */
#include "asm/asm_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MAX_ORIGINS 3 /* macro calls told in a message */

int asm_fail(
    const struct asm_object *object, struct err *err, const struct location *at, const char *format,
    ...) {
    char where[192];
    char text[640];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    size_t used = n < 0 ? 0 : (size_t)n < sizeof text ? (size_t)n : sizeof text - 1;
    const struct origin *origin = at->origin;
    for (int i = 0; origin != NULL && i < MAX_ORIGINS; i++, origin = origin->parent) {
        n = snprintf(
            text + used, sizeof text - used, ", in macro %s called at line %d", origin->macro,
            origin->line);
        used += n < 0 ? 0 : (size_t)n;
        if (used >= sizeof text) {
            break;
        }
    }
    snprintf(where, sizeof where, "%.140s:%d:%d", object->name, at->line, at->column);
    return err_at(err, ERR_ASM, where, "%s", text);
}

int cursor_fail(const struct cursor *c, const char *format, ...) {
    char text[512];
    struct location at = cursor_at(c);
    va_list args;
    if (cursor_name_length(c) > ASM_MAX_NAME) { /* whatever else was expected here */
        return asm_fail(
            c->as->object, c->as->err, &at, "a name of %zu characters, at most %d",
            cursor_name_length(c), ASM_MAX_NAME);
    }
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return asm_fail(c->as->object, c->as->err, &at, "%s", text);
}

static int run_all(struct assembler *as) {
    while (as->frames.len > 0) {
        struct statement st;
        int r = lexer_next(as, false, &st);
        if (r == 0) {
            r = macro_pop_frame(as);
        } else if (r > 0) {
            r = statement_run(as, &st);
        }
        if (r < 0) {
            return r;
        }
    }
    if (as->in_bundle) {
        return asm_fail(as->object, as->err, &as->bundle_at, "the bundle is not closed by '}'");
    }
    return 0;
}

/* Second try for all items; those that need addresses stay. */
static int resolve_items(struct assembler *as) {
    struct asm_object *object = as->object;
    struct resolver resolver = {.object = object};
    size_t kept = 0;
    as->is_open = ARENA_ARRAY(as->arena, bool, object->items.len);
    for (size_t i = 0; i < object->items.len; i++) {
        struct item item = object->items.data[i];
        uint8_t *bytes = object->sections.data[item.section].bytes.data + item.offset;
        int r = item_resolve(&resolver, &item, bytes, as->err);
        if (r < 0) {
            return r;
        }
        as->is_open[i] = r > 0;
        if (r > 0) {
            object->items.data[kept++] = item;
        }
    }
    object->items.len = kept;
    return 0;
}

static int check_globals(struct assembler *as) {
    struct asm_object *object = as->object;
    for (size_t i = 0; i < object->symbols.len; i++) {
        const struct symbol *s = &object->symbols.data[i];
        if (s->is_global && s->kind == SYMBOL_REGISTER) {
            return asm_fail(
                object, as->err, &s->defined_at,
                "'%s' names a register and cannot be "
                ".globl",
                intern_name(&object->names, (uint32_t)i));
        }
    }
    return 0;
}

static void set_up(
    struct assembler *as, const struct asm_source *source, const struct asm_def *defs,
    size_t def_count) {
    struct asm_object *object = ARENA_NEW(as->arena, struct asm_object);
    object->name = arena_strdup(as->arena, source->name);
    object->names.arena = as->arena;
    as->macro_names.arena = as->arena;
    as->object = object;
    struct frame f = {
        .kind = FRAME_SOURCE,
        .text = source->text,
        .size = source->size,
        .line = 1,
        .first_line = 1};
    vec_push(as->arena, &as->frames, f);
    struct section text = {.name = ".text", .align = 4, .has_code = true};
    vec_push(as->arena, &object->sections, text);
    for (size_t i = 0; i < def_count; i++) {
        struct symbol *s = symbol_of(as, symbol_id(as, defs[i].name));
        s->kind = SYMBOL_SET;
        s->value = expr_const(as->arena, defs[i].value);
    }
}

int asm_assemble(
    const struct asm_source *source, enum isa_unit default_unit, const struct asm_def *defs,
    size_t def_count, struct arena *a, struct asm_object **ret, struct err *err) {
    struct assembler *as = ARENA_NEW(a, struct assembler);
    as->arena = a;
    as->err = err;
    as->unit = default_unit;
    set_up(as, source, defs, def_count);
    int r = run_all(as);
    if (r == 0) {
        r = resolve_items(as);
    }
    if (r == 0) {
        r = code_check_repeats(as);
    }
    if (r == 0) {
        r = check_globals(as);
    }
    if (r < 0) {
        return r;
    }
    *ret = as->object;
    return 0;
}

size_t asm_section_size(const struct asm_object *object, const char *section) {
    size_t total = 0;
    size_t n = strlen(section);
    for (size_t i = 0; i < object->sections.len; i++) {
        const struct section *s = &object->sections.data[i];
        if (strncmp(s->name, section, n) == 0 && (s->name[n] == '\0' || s->name[n] == '.')) {
            total = (total + s->align - 1) / s->align * s->align + s->bytes.len;
        }
    }
    return total;
}
