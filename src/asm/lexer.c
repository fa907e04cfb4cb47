/* Cuts statements out of the top frame: up to a newline, ';' or a brace outside quotes, comments
 * blanked out so that columns stay true. Every call consumes at least one character or reports the
 * end of the frame; a repeat's frame starts over as often as loops_left says. */
#include "asm/asm_internal.h"

#include <ctype.h>
#include <string.h>

static void new_line(struct frame *f) {
    f->line++;
    f->line_start = f->pos;
}

static struct location frame_at(const struct frame *f) {
    return (struct location){f->line, (int)(f->pos - f->line_start) + 1, f->origin};
}

static char peek(const struct frame *f, size_t ahead) {
    return f->size - f->pos > ahead ? f->text[f->pos + ahead] : '\0';
}

/* Bounds what repeats can make of a short text. */
static int count_statement(struct assembler *as, const struct location *at) {
    if (++as->statement_count > ASM_MAX_STATEMENTS) {
        return asm_fail(as->object, as->err, at, "more than %d statements", ASM_MAX_STATEMENTS);
    }
    if (as->scanned_bytes > ASM_MAX_SCAN) {
        return asm_fail(
            as->object, as->err, at, "repeats make more than %u bytes of text", ASM_MAX_SCAN);
    }
    return 0;
}

/* Skips the comment at pos, if there is one: 1, 0 none, < 0 never closed. Line comments end before
 * their newline. */
static int skip_comment(struct assembler *as, struct frame *f) {
    if (peek(f, 0) == '#' || (peek(f, 0) == '/' && peek(f, 1) == '/')) {
        while (f->pos < f->size && f->text[f->pos] != '\n') {
            f->pos++;
        }
        return 1;
    }
    if (peek(f, 0) != '/' || peek(f, 1) != '*') {
        return 0;
    }
    struct location at = frame_at(f);
    for (f->pos += 2; f->pos < f->size; f->pos++) {
        if (peek(f, 0) == '*' && peek(f, 1) == '/') {
            f->pos += 2;
            return 1;
        }
        if (f->text[f->pos] == '\n') {
            f->pos++;
            new_line(f);
            f->pos--;
        }
    }
    return asm_fail(as->object, as->err, &at, "comment is not closed by */");
}

/* Moves to the first character of a statement: 1, or 0 at the end of the frame. */
static int skip_to_statement(struct assembler *as, struct frame *f, bool is_capture) {
    for (;;) {
        if (f->pos == f->size) {
            if (is_capture || f->loops_left == 0) {
                return 0;
            }
            f->loops_left--;
            as->scanned_bytes += f->size;
            f->pos = 0;
            f->line = f->first_line;
            f->line_start = f->first_line_start;
            int r = count_statement(as, &as->at);
            if (r < 0) {
                return r;
            }
            continue;
        }
        char ch = f->text[f->pos];
        if (ch == '\n') {
            f->pos++;
            new_line(f);
        } else if (ch == ' ' || ch == '\t' || ch == '\r' || ch == ';') {
            f->pos++;
        } else {
            int r = skip_comment(as, f);
            if (r <= 0) {
                return r < 0 ? r : 1;
            }
        }
    }
}

/* Copies a quoted string or character with its quotes. */
static int copy_quoted(struct assembler *as, struct frame *f) {
    char quote = f->text[f->pos];
    struct location at = frame_at(f);
    do {
        char ch = f->text[f->pos];
        vec_push(as->arena, &as->text, ch);
        f->pos++;
        if (ch == '\\' && f->pos < f->size && f->text[f->pos] != '\n') {
            vec_push(as->arena, &as->text, f->text[f->pos]);
            f->pos++;
        }
        if (f->pos == f->size || f->text[f->pos] == '\n') {
            return asm_fail(as->object, as->err, &at, "%c is not closed on its line", quote);
        }
    } while (f->text[f->pos] != quote);
    vec_push(as->arena, &as->text, quote);
    f->pos++;
    return 0;
}

/* Copies one step of a statement: 1, 0 at its end, < 0. */
static int copy_step(struct assembler *as, struct frame *f) {
    if (f->pos == f->size) {
        return 0;
    }
    char ch = f->text[f->pos];
    if (ch == '\n' || ch == ';' || ch == '{' || ch == '}') {
        return 0;
    }
    if (ch == '"' || ch == '\'') {
        int r = copy_quoted(as, f);
        return r < 0 ? r : 1;
    }
    if (ch == '\0') {
        struct location at = frame_at(f);
        return asm_fail(as->object, as->err, &at, "the text holds a zero byte");
    }
    size_t before = f->pos;
    int r = skip_comment(as, f);
    if (r < 0) {
        return r;
    }
    if (r == 0 && ch == '\\' && peek(f, 1) == '\n') {
        f->pos += 2;
        new_line(f);
        r = 1;
    }
    if (r == 0) {
        f->pos++;
        vec_push(as->arena, &as->text, ch);
        return 1;
    }
    for (size_t i = before; i < f->pos; i++) {
        vec_push(as->arena, &as->text, ' ');
    }
    return 1;
}

int lexer_next(struct assembler *as, bool is_capture, struct statement *ret) {
    struct frame *f = &as->frames.data[as->frames.len - 1];
    int r = skip_to_statement(as, f, is_capture);
    if (r <= 0) {
        return r;
    }
    ret->at = frame_at(f);
    r = count_statement(as, &ret->at);
    if (r < 0) {
        return r;
    }
    ret->start = f->pos;
    as->text.len = 0;
    if (f->text[f->pos] == '{' || f->text[f->pos] == '}') {
        vec_push(as->arena, &as->text, f->text[f->pos]);
        f->pos++;
    } else {
        do {
            r = copy_step(as, f);
        } while (r > 0);
        if (r < 0) {
            return r;
        }
    }
    as->scanned_bytes += f->pos - ret->start;
    while (as->text.len > 0 && isspace((unsigned char)as->text.data[as->text.len - 1])) {
        as->text.len--;
    }
    vec_push(as->arena, &as->text, '\0');
    ret->text = as->text.data;
    return 1;
}

struct location cursor_at(const struct cursor *c) {
    struct location at = c->as->at;
    at.column += (int)(c->p - c->start);
    return at;
}

void cursor_blanks(struct cursor *c) {
    while (*c->p == ' ' || *c->p == '\t' || *c->p == '\r') {
        c->p++;
    }
}

bool cursor_take(struct cursor *c, char ch) {
    cursor_blanks(c);
    if (*c->p != ch) {
        return false;
    }
    c->p++;
    return true;
}

size_t cursor_name_length(const struct cursor *c) {
    size_t len = 0;
    const char *p = c->p;
    if (isdigit((unsigned char)*p)) {
        return 0;
    }
    while (isalnum((unsigned char)p[len]) || p[len] == '_' || p[len] == '.' ||
           (p[len] == '$' && len > 0)) {
        len++;
    }
    return len;
}

size_t cursor_name(struct cursor *c, char *buf, size_t n) {
    cursor_blanks(c);
    size_t len = cursor_name_length(c);
    if (len == 0 || len >= n) {
        return 0;
    }
    memcpy(buf, c->p, len);
    buf[len] = '\0';
    c->p += len;
    return len;
}

static int escape(struct cursor *c, char *ret) {
    static const char from[] = "ntr0\\\"'";
    static const char to[] = "\n\t\r\0\\\"'";
    const char *at = *c->p != '\0' ? strchr(from, *c->p) : NULL;
    if (at == NULL) {
        return cursor_fail(c, "expected one of n t r 0 \\ \" ' after \\");
    }
    *ret = to[at - from];
    c->p++;
    return 0;
}

int cursor_string(struct cursor *c, const char **ret_bytes, size_t *ret_size) {
    if (!cursor_take(c, '"')) {
        return cursor_fail(c, "expected a string in double quotes");
    }
    char *bytes = ARENA_ARRAY(c->as->arena, char, strlen(c->p) + 1);
    size_t n = 0;
    while (*c->p != '"' && *c->p != '\0') {
        char ch = *c->p++;
        if (ch == '\\') {
            int r = escape(c, &ch);
            if (r < 0) {
                return r;
            }
        }
        bytes[n++] = ch;
    }
    if (!cursor_take(c, '"')) {
        return cursor_fail(c, "expected the closing quote");
    }
    *ret_bytes = bytes;
    *ret_size = n;
    return 0;
}

int cursor_end(struct cursor *c) {
    cursor_blanks(c);
    return *c->p == '\0' ? 0 : cursor_fail(c, "expected the end of the statement");
}
