/* Text to struct insn for tests and listings, and the registers' names, which the assembler shares.
 * A pass over the text from left to right; every step consumes a character or fails. */
#include "isa/isa.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_MAX_CHARS 32

static size_t name_length(const char *text, size_t n) {
    size_t len = 0;
    while (len < n && (isalnum((unsigned char)text[len]) || text[len] == '_')) {
        len++;
    }
    return len;
}

/* Decimal of at most two digits; -1 when the text is none. */
static int small_number(const char *text, size_t n) {
    if (n == 0 || n > 2 || !isdigit((unsigned char)text[0]) ||
        (n == 2 && !isdigit((unsigned char)text[1]))) {
        return -1;
    }
    return n == 1 ? text[0] - '0' : (text[0] - '0') * 10 + (text[1] - '0');
}

static bool named_register(const char *name, struct isa_arg *ret) {
    static const struct {
        const char *name;
        uint8_t type, first, count;
    } names[] = {
        {"bp", ISA_ARG_M, 8, 1},
        {"fp", ISA_ARG_M, 9, 1},
        {"lr", ISA_ARG_M, 10, 1},
        {"sp", ISA_ARG_M, 11, 1},
        {"mworker_base", ISA_ARG_M, 12, 1},
        {"mvertex_base", ISA_ARG_M, 13, 1},
        {"mzero", ISA_ARG_M, 15, 1},
        {"azero", ISA_ARG_A, 15, 1},
        {"azeros", ISA_ARG_A, 14, 2},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i].name) == 0) {
            ret->type = names[i].type;
            ret->first = names[i].first;
            ret->count = names[i].count;
            return true;
        }
    }
    return false;
}

static bool numbered_register(const char *name, size_t n, struct isa_arg *ret) {
    int width = 1;
    size_t prefix = 1;
    if (n > 2 && name[1] == 'p') {
        width = 2;
        prefix = 2;
    } else if (n > 2 && name[0] == 'a' && name[1] == 'q') {
        width = 4;
        prefix = 2;
    }
    int number = small_number(name + prefix, n - prefix);
    if ((name[0] != 'm' && name[0] != 'a') || number < 0 || number >= 16 / width) {
        return false;
    }
    ret->type = name[0] == 'm' ? ISA_ARG_M : ISA_ARG_A;
    ret->first = (uint8_t)(number * width);
    ret->count = (uint8_t)width;
    return true;
}

static bool control_register(const char *name, enum isa_unit unit, struct isa_arg *ret) {
    unsigned row, column;
    int used = 0;
    if (sscanf(name, "CWEI_%2u_%1u%n", &row, &column, &used) == 2 && name[used] == '\0' &&
        row < 16 && column < 4) {
        ret->type = ISA_ARG_CWEI;
        ret->value = row * 4 + column;
        return true;
    }
    ret->type = ISA_ARG_CSR;
    ret->value = isa_csr_number(name, unit);
    return ret->value >= 0;
}

static size_t count_blanks(const char *text, size_t n) {
    size_t len = 0;
    while (len < n && (text[len] == ' ' || text[len] == '\t')) {
        len++;
    }
    return len;
}

/* ":3", ":BL" after a single register; returns the characters used. Blanks may stand on both sides
 * of the colon: a C preprocessor puts them there. */
static size_t register_range(const char *text, size_t n, struct isa_arg *ret) {
    size_t at = count_blanks(text, n);
    if (n - at < 2 || text[at] != ':' || ret->count != 1) {
        return 0;
    }
    at++;
    at += count_blanks(text + at, n - at);
    const char *end = text + at;
    size_t len = name_length(end, n - at);
    int last = small_number(end, len);
    if (last >= 0 && last < 16) {
        ret->count = (uint8_t)(last > ret->first ? last - ret->first + 1 : 0);
        return at + len;
    }
    if (ret->type == ISA_ARG_A && len > 0 && end[0] == 'B' &&
        (len == 1 || (len == 2 && (end[1] == 'L' || end[1] == 'U')))) {
        memcpy(ret->suffix, end, len);
        return at + len;
    }
    return 0;
}

/* "+=" and the like, after blanks too; returns the characters used. */
static size_t register_suffix(const char *text, size_t n, struct isa_arg *ret) {
    static const char suffixes[][3] = {"+=", "++", ">>", "@"};
    size_t at = count_blanks(text, n);
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0] && ret->suffix[0] == '\0'; i++) {
        size_t len = strlen(suffixes[i]);
        if (n - at >= len && memcmp(text + at, suffixes[i], len) == 0) {
            memcpy(ret->suffix, suffixes[i], len);
            return at + len;
        }
    }
    return 0;
}

size_t isa_parse_register(const char *text, size_t n, enum isa_unit unit, struct isa_arg *ret) {
    char name[NAME_MAX_CHARS];
    struct isa_arg arg = {0};
    if (n < 2 || text[0] != '$') {
        return 0;
    }
    size_t start = 1 + count_blanks(text + 1, n - 1);
    size_t len = name_length(text + start, n - start);
    if (len == 0 || len >= sizeof name) {
        return 0;
    }
    memcpy(name, text + start, len);
    name[len] = '\0';
    size_t used = start + len;
    if (!named_register(name, &arg) && !numbered_register(name, len, &arg)) {
        if (!control_register(name, unit, &arg)) {
            return 0;
        }
        *ret = arg;
        return used;
    }
    used += register_range(text + used, n - used, &arg);
    used += register_suffix(text + used, n - used, &arg);
    *ret = arg;
    return used;
}

static const char *skip_blanks(const char *p) {
    while (*p == ' ' || *p == '\t') {
        p++;
    }
    return p;
}

static int fail_at(const char *text, const char *p, struct err *err, const char *expected) {
    char where[32];
    snprintf(where, sizeof where, "column %d", (int)(p - text) + 1);
    return err_at(err, ERR_ASM, where, "expected %s", expected);
}

/* One operand: a register or a number. Returns the text after it, NULL when it is neither. */
static const char *parse_arg(const char *p, enum isa_unit unit, struct isa_arg *ret) {
    if (*p == '$') {
        size_t used = isa_parse_register(p, strlen(p), unit, ret);
        return used > 0 ? p + used : NULL;
    }
    char *end;
    *ret = (struct isa_arg){.type = ISA_ARG_NUMBER};
    ret->value = strtoll(p, &end, 0);
    return end != p ? end : NULL;
}

int isa_parse(const char *text, enum isa_unit unit, struct insn *ret, struct err *err) {
    char mnemonic[ISA_MNEMONIC_MAX];
    struct isa_arg args[ISA_MAX_ARGS];
    const char *starts[ISA_MAX_ARGS + 1];
    int count = 0;
    const char *p = skip_blanks(text);
    starts[ISA_MAX_ARGS] = p;
    size_t len = name_length(p, strlen(p));
    if (len == 0 || len >= sizeof mnemonic) {
        return fail_at(text, p, err, "an instruction");
    }
    memcpy(mnemonic, p, len);
    mnemonic[len] = '\0';
    p = skip_blanks(p + len);
    while (*p != '\0') {
        if (count == ISA_MAX_ARGS) {
            return fail_at(text, p, err, "fewer operands");
        }
        starts[count] = p;
        const char *end = parse_arg(p, unit, &args[count]);
        if (end == NULL) {
            return fail_at(text, p, err, "a register or a number");
        }
        count++;
        p = skip_blanks(end);
        if (*p == ',' && *skip_blanks(p + 1) != '\0') {
            p = skip_blanks(p + 1);
        } else if (*p != '\0') {
            return fail_at(text, p, err, "',' and an operand or the end");
        }
    }
    int bad;
    int r = isa_select(mnemonic, unit, args, count, ret, &bad, err);
    if (r < 0) {
        const char *at = starts[bad >= 0 ? bad : ISA_MAX_ARGS];
        return err_where(err, "column %d", (int)(at - text) + 1);
    }
    return 0;
}
