/* Sections, data, gaps, and the directives that set a mode. */
#include "asm/asm_internal.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/f16.h"

struct section *section_now(struct assembler *as) {
    return &as->object->sections.data[as->section];
}

int section_switch(struct assembler *as, const char *name) {
    struct asm_object *object = as->object;
    for (size_t i = 0; i < object->sections.len; i++) {
        if (strcmp(object->sections.data[i].name, name) == 0) {
            as->section = (int)i;
            return 0;
        }
    }
    if (object->sections.len >= ASM_MAX_SECTIONS) {
        return asm_fail(object, as->err, &as->at, "more than %d sections", ASM_MAX_SECTIONS);
    }
    struct section section = {.name = arena_strdup(as->arena, name), .align = 4};
    section.has_code = strncmp(name, ".text", 5) == 0;
    vec_push(as->arena, &object->sections, section);
    as->section = (int)object->sections.len - 1;
    return 0;
}

int section_append(struct assembler *as, const void *bytes, size_t n, const struct location *at) {
    struct section *s = section_now(as);
    if (n > ASM_MAX_SECTION_BYTES - s->bytes.len) {
        return asm_fail(
            as->object, as->err, at, "section '%s' is larger than %u bytes", s->name,
            ASM_MAX_SECTION_BYTES);
    }
    vec_reserve(as->arena, &s->bytes, s->bytes.len + n);
    if (bytes != NULL && n > 0) {
        memcpy(s->bytes.data + s->bytes.len, bytes, n);
    } else if (n > 0) {
        memset(s->bytes.data + s->bytes.len, 0, n);
    }
    s->bytes.len += n;
    return 0;
}

/* ---- numbers ---- */

static int append_datum(struct cursor *c, int size) {
    struct assembler *as = c->as;
    cursor_blanks(c);
    struct item item = {
        .section = as->section,
        .at = cursor_at(c),
        .data_size = size,
        .offset = (uint32_t)section_now(as)->bytes.len};
    int r = expr_parse(c, &item.data);
    if (r < 0) {
        return r;
    }
    uint8_t bytes[8] = {0};
    struct resolver resolver = {.object = as->object};
    r = item_resolve(&resolver, &item, bytes, as->err);
    if (r < 0) {
        return r;
    }
    if (r > 0) {
        vec_push(as->arena, &as->object->items, item);
    }
    return section_append(as, bytes, (size_t)size, &item.at);
}

size_t float_literal(const char *p, bool takes_integers, double *ret) {
    const char *s = p + (*p == '-' || *p == '+');
    size_t n = strspn(s, "0123456789");
    bool is_float = takes_integers && n > 0;
    if (strncmp(s, "inf", 3) == 0 || strncmp(s, "nan", 3) == 0) {
        n = 3;
        is_float = true;
    } else if (s[0] == '0' && (s[1] == 'x' || s[1] == 'X')) {
        return 0;
    } else {
        if (s[n] == '.' && (n > 0 || isdigit((unsigned char)s[n + 1]))) {
            n += 1 + strspn(s + n + 1, "0123456789");
            is_float = true;
        }
        size_t sign = s[n] != '\0' && (s[n + 1] == '-' || s[n + 1] == '+');
        if (n > 0 && (s[n] == 'e' || s[n] == 'E') && isdigit((unsigned char)s[n + 1 + sign])) {
            n += 1 + sign + strspn(s + n + 1 + sign, "0123456789");
            is_float = true;
        }
    }
    if (n == 0 || n > 60 || (!is_float && s[n] != 'h')) {
        return 0;
    }
    char text[64];
    memcpy(text, s, n);
    text[n] = '\0';
    *ret = *p == '-' ? -strtod(text, NULL) : strtod(text, NULL);
    n += (size_t)(s - p);
    n += p[n] == 'h';
    return isalnum((unsigned char)p[n]) || p[n] == '_' || p[n] == '.' ? 0 : n;
}

static int append_float(struct cursor *c, int size) {
    double value;
    uint8_t bytes[8];
    cursor_blanks(c);
    struct location at = cursor_at(c);
    size_t n = float_literal(c->p, size != 2, &value);
    if (n == 0 && size == 2) {
        return append_datum(c, 2);
    }
    if (n == 0) {
        int64_t whole;
        int r = expr_number(c, "the number", -(1ll << 53), 1ll << 53, &whole);
        if (r < 0) {
            return r;
        }
        value = (double)whole;
    }
    c->p += n;
    if (size == 2) {
        store_le16(bytes, f16_from_f64(value));
    } else if (size == 4) {
        float narrow = (float)value;
        uint32_t bits;
        memcpy(&bits, &narrow, sizeof bits);
        store_le32(bytes, bits);
    } else {
        uint64_t bits;
        memcpy(&bits, &value, sizeof bits);
        store_le64(bytes, bits);
    }
    return section_append(c->as, bytes, (size_t)size, &at);
}

static int data_list(struct cursor *c, int size, bool is_float) {
    cursor_blanks(c);
    if (*c->p == '\0') {
        return 0;
    }
    do {
        int r = is_float ? append_float(c, size) : append_datum(c, size);
        if (r < 0) {
            return r;
        }
    } while (cursor_take(c, ','));
    return cursor_end(c);
}

static int text_list(struct cursor *c, bool has_zero) {
    do {
        const char *bytes;
        size_t n;
        struct location at = cursor_at(c);
        int r = cursor_string(c, &bytes, &n);
        if (r == 0) {
            r = section_append(c->as, bytes, n, &at);
        }
        if (r == 0 && has_zero) {
            r = section_append(c->as, NULL, 1, &at);
        }
        if (r < 0) {
            return r;
        }
    } while (cursor_take(c, ','));
    return cursor_end(c);
}

/* ---- gaps ---- */

static int skip(struct cursor *c) {
    int64_t n, fill = 0;
    struct assembler *as = c->as;
    struct location at = cursor_at(c);
    int r = expr_number(c, "the size of the gap", 0, ASM_MAX_SECTION_BYTES, &n);
    if (r == 0 && cursor_take(c, ',')) {
        r = expr_number(c, "the fill", -128, 255, &fill);
    }
    if (r == 0) {
        r = cursor_end(c);
    }
    if (r == 0) {
        r = section_append(as, NULL, (size_t)n, &at);
    }
    if (r == 0 && n > 0) {
        struct section *s = section_now(as);
        memset(s->bytes.data + s->bytes.len - n, (int)(fill & 0xff), (size_t)n);
    }
    return r;
}

/* Gap up to the alignment: in code nop words from the next word on. */
static int align_to(struct assembler *as, uint32_t align, int fill, bool has_fill) {
    struct section *s = section_now(as);
    size_t from = s->bytes.len;
    size_t n = (align - from % align) % align;
    bool is_code = s->has_code && !has_fill;
    s->align = s->align < align ? align : s->align;
    int r = section_append(as, NULL, n, &as->at);
    if (r < 0 || n == 0) {
        return r;
    }
    s = section_now(as);
    memset(s->bytes.data + from, fill, n);
    for (size_t at = (from + 3) / 4 * 4; is_code && at + 4 <= from + n; at += 4) {
        store_le32(s->bytes.data + at, ISA_NOP_WORD);
    }
    return 0;
}

static int align_directive(struct cursor *c, bool is_power) {
    int64_t n, fill = 0;
    bool has_fill = false;
    cursor_blanks(c);
    struct location at = cursor_at(c);
    int r = expr_number(
        c, "the alignment", is_power ? 0 : 1,
        is_power ? ASM_MAX_ALIGN_BITS : 1 << ASM_MAX_ALIGN_BITS, &n);
    if (r == 0 && cursor_take(c, ',')) {
        r = expr_number(c, "the fill", -128, 255, &fill);
        has_fill = true;
    }
    if (r == 0) {
        r = cursor_end(c);
    }
    if (r < 0) {
        return r;
    }
    uint32_t align = is_power ? 1u << n : (uint32_t)n;
    if ((align & (align - 1)) != 0) {
        return asm_fail(c->as->object, c->as->err, &at, "the alignment %u is no power of 2", align);
    }
    return align_to(c->as, align, (int)(fill & 0xff), has_fill);
}

/* ---- sections and modes ---- */

static int section_directive(struct cursor *c) {
    char name[ASM_MAX_NAME + 1];
    cursor_blanks(c);
    if (*c->p == '"') {
        const char *text;
        size_t n;
        int r = cursor_string(c, &text, &n);
        if (r < 0) {
            return r;
        }
        if (n == 0 || n >= sizeof name || memchr(text, '\0', n) != NULL) {
            return cursor_fail(c, "expected a name of 1 to %d characters", ASM_MAX_NAME);
        }
        memcpy(name, text, n);
        name[n] = '\0';
    } else { /* anything but blanks and commas */
        size_t n = strcspn(c->p, " \t\r,");
        if (n == 0 || n >= sizeof name || isdigit((unsigned char)*c->p)) {
            return cursor_fail(
                c, "expected the name of a section, 1 to %d characters", ASM_MAX_NAME);
        }
        memcpy(name, c->p, n);
        name[n] = '\0';
        c->p += n;
    }
    cursor_blanks(c);
    if (*c->p != '\0' && *c->p != ',') {
        return cursor_fail(c, "expected ',' or the end of the statement");
    }
    return section_switch(c->as, name); /* flags and type mean nothing here */
}

static int mode_directive(struct cursor *c, const char *word) {
    struct assembler *as = c->as;
    bool is_error = strncmp(word, ".error_on_", 10) == 0;
    bool allows = strncmp(word, ".allow_", 7) == 0 || strncmp(word, ".warn_on_", 9) == 0;
    if (!is_error && !allows) {
        return 0;
    }
    if (strstr(word, "_invalid_repeat") != NULL) {
        as->may_break_repeats = allows;
    } else if (strstr(word, "_invalid_bundle") != NULL) {
        as->may_break_bundles = allows;
    }
    int r = cursor_end(c);
    return r < 0 ? r : 1;
}

static int error_directive(struct cursor *c) {
    const char *text;
    size_t n;
    int r = cursor_string(c, &text, &n);
    if (r == 0 && (n == 0 || text[0] == '\0')) {
        return cursor_fail(c, ".error without a message");
    }
    return r < 0 ? r : cursor_fail(c, "%.*s", (int)(n < 200 ? n : 200), text);
}

static int unit_directive(struct cursor *c, enum isa_unit unit) {
    c->as->unit = unit;
    return cursor_end(c);
}

enum what {
    LONG,
    SHORT,
    BYTE,
    QUAD,
    HALF,
    FLOAT,
    DOUBLE,
    ASCII,
    ASCIZ,
    SKIP,
    P2ALIGN,
    BALIGN,
    SECTION,
    NAMED,
    SUPERVISOR,
    WORKER,
    ERROR,
    IGNORE
};

static const struct {
    const char *word;
    uint8_t what; /* enum what */
} directives[] = {
    {".long", LONG},
    {".word", LONG},
    {".int", LONG},
    {".4byte", LONG},
    {".short", SHORT},
    {".hword", SHORT},
    {".2byte", SHORT},
    {".byte", BYTE},
    {".quad", QUAD},
    {".8byte", QUAD},
    {".half", HALF},
    {".float", FLOAT},
    {".single", FLOAT},
    {".double", DOUBLE},
    {".ascii", ASCII},
    {".asciz", ASCIZ},
    {".string", ASCIZ},
    {".skip", SKIP},
    {".space", SKIP},
    {".zero", SKIP},
    {".p2align", P2ALIGN},
    {".balign", BALIGN},
    {".align", BALIGN},
    {".section", SECTION},
    {".text", NAMED},
    {".data", NAMED},
    {".rodata", NAMED},
    {".bss", NAMED},
    {".supervisor", SUPERVISOR},
    {".worker", WORKER},
    {".error", ERROR},
    {".type", IGNORE},
    {".size", IGNORE},
    {".file", IGNORE},
    {".extern", IGNORE},
    {".ident", IGNORE},
};

static int run(struct cursor *c, enum what what, const char *word) {
    switch (what) {
    case LONG: return data_list(c, 4, false);
    case SHORT: return data_list(c, 2, false);
    case BYTE: return data_list(c, 1, false);
    case QUAD: return data_list(c, 8, false);
    case HALF: return data_list(c, 2, true);
    case FLOAT: return data_list(c, 4, true);
    case DOUBLE: return data_list(c, 8, true);
    case ASCII: return text_list(c, false);
    case ASCIZ: return text_list(c, true);
    case SKIP: return skip(c);
    case P2ALIGN: return align_directive(c, true);
    case BALIGN: return align_directive(c, false);
    case SECTION: return section_directive(c);
    case NAMED: return section_switch(c->as, word);
    case SUPERVISOR: return unit_directive(c, ISA_SUPERVISOR);
    case WORKER: return unit_directive(c, ISA_WORKER);
    case ERROR: return error_directive(c);
    case IGNORE: return 0;
    }
    return 0;
}

int data_directive(struct cursor *c, const char *word) {
    if (c->as->in_bundle) {
        return cursor_fail(c, "a directive cannot stand in a bundle");
    }
    for (size_t i = 0; i < sizeof directives / sizeof directives[0]; i++) {
        if (strcmp(word, directives[i].word) == 0) {
            int r = run(c, (enum what)directives[i].what, word);
            return r < 0 ? r : 1;
        }
    }
    return mode_directive(c, word);
}
