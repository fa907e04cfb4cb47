/* Text control: conditions, repeats, macros.
 *
 * A body is a stretch of the frame's text, found by reading statements until the closing directive;
 * .rept runs over it several times without copying, .irp and macros make new text with arguments
 * put in. Frames are at most ASM_MAX_DEPTH deep and the text made is bounded, so expansion ends. */
#include "asm/asm_internal.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

struct body {
    const char *text;
    size_t size;
    int line;
    size_t column; /* characters before text on its line */
};

struct arg {
    const char *text;
    size_t size;
};

bool macro_is_active(const struct assembler *as) {
    size_t n = as->conditions.len;
    return n == 0 || as->conditions.data[n - 1].is_active;
}

/* ---- bodies ---- */

/* The statement's directive, after its labels. */
static void directive_of(struct assembler *as, const struct statement *st, char *buf, size_t n) {
    struct cursor c = {.as = as, .p = st->text, .start = st->text};
    buf[0] = '\0';
    while (*c.p != '\0' && cursor_name(&c, buf, n) > 0 && *c.p == ':') {
        c.p++;
        buf[0] = '\0';
    }
}

/* Reads up to the directive that closes `opener`, whose statement has just been read. */
static int read_body(struct assembler *as, bool is_macro, struct body *ret) {
    const struct frame *f = &as->frames.data[as->frames.len - 1];
    const char *closer = is_macro ? ".endm" : ".endr";
    struct location opened_at = as->at;
    size_t start = f->pos;
    ret->text = f->text + start;
    ret->line = f->line;
    ret->column = start - f->line_start;
    for (int depth = 1;;) {
        struct statement st;
        char word[ASM_MAX_NAME + 1];
        int r = lexer_next(as, true, &st);
        if (r < 0) {
            return r;
        }
        if (r == 0) {
            return asm_fail(as->object, as->err, &opened_at, "%s is missing", closer);
        }
        directive_of(as, &st, word, sizeof word);
        if (strcmp(word, closer) == 0 || (is_macro && strcmp(word, ".endmacro") == 0)) {
            depth--;
        } else if (
            is_macro ? strcmp(word, ".macro") == 0
                     : strcmp(word, ".rept") == 0 || strcmp(word, ".irp") == 0) {
            depth++;
        }
        if (depth == 0) {
            ret->size = st.start - start;
            return 0;
        }
    }
}

static int push_frame(
    struct assembler *as, enum frame_kind kind, const struct body *body, int64_t loops_left,
    const struct origin *origin) {
    if (as->frames.len >= ASM_MAX_DEPTH) {
        return asm_fail(
            as->object, as->err, &as->at, "macros and repeats are nested more than %d deep",
            ASM_MAX_DEPTH);
    }
    /* Columns count from a line start that may lie before the body's first character. */
    size_t line_start = (size_t)0 - body->column;
    struct frame f = {
        .kind = kind,
        .text = body->text,
        .size = body->size,
        .line = body->line,
        .line_start = line_start,
        .first_line = body->line,
        .first_line_start = line_start,
        .loops_left = loops_left,
        .origin = origin,
        .condition_base = as->conditions.len};
    vec_push(as->arena, &as->frames, f);
    return 0;
}

int macro_pop_frame(struct assembler *as) {
    const struct frame *f = &as->frames.data[as->frames.len - 1];
    if (as->conditions.len > f->condition_base) {
        const struct condition *open = &as->conditions.data[as->conditions.len - 1];
        return asm_fail(as->object, as->err, &open->at, ".endif is missing");
    }
    as->frames.len--;
    return 0;
}

/* ---- arguments ---- */

static bool is_blank(char ch) {
    return ch == ' ' || ch == '\t' || ch == '\r';
}

/* Blanks at s end an argument unless an operator stands on either side of them. */
static bool blanks_separate(const char *first, const char *s) {
    static const char operators[] = "+-*/%~|^&!<>=?:";
    const char *next = s + strspn(s, " \t\r");
    return s > first && strchr(operators, s[-1]) == NULL && *next != '\0' && *next != ',' &&
           strchr(operators, *next) == NULL;
}

/* The end of an argument that begins at first: a comma, or blanks when `by_blanks`, outside
 * parentheses and quotes; the end of the text when `to_the_end`. */
static const char *arg_end(const char *first, bool by_blanks, bool to_the_end) {
    int depth = 0;
    bool is_quoted = false;
    const char *s = first;
    for (; *s != '\0'; s++) {
        if (*s == '"') {
            is_quoted = !is_quoted;
        } else if (is_quoted) {
            continue;
        } else if (*s == '(') {
            depth++;
        } else if (*s == ')') {
            depth--;
        } else if (
            depth <= 0 && !to_the_end &&
            (*s == ',' || (by_blanks && is_blank(*s) && blanks_separate(first, s)))) {
            break;
        }
    }
    return s;
}

/* A text up to the next comma, without the blanks around it. */
static struct arg cut_text(const char **p) {
    const char *first = *p + strspn(*p, " \t\r");
    const char *s = arg_end(first, false, false);
    *p = s;
    while (s > first && is_blank(s[-1])) {
        s--;
    }
    return (struct arg){first, (size_t)(s - first)};
}

/* An argument; quotes around the whole of it are dropped. */
static struct arg cut_arg(const char **p, bool to_the_end) {
    const char *first = *p + strspn(*p, " \t\r");
    const char *s = arg_end(first, true, to_the_end);
    *p = s + strspn(s, " \t\r");
    while (s > first && is_blank(s[-1])) {
        s--;
    }
    if (!to_the_end && s - first >= 2 && *first == '"' && s[-1] == '"') {
        return (struct arg){first + 1, (size_t)(s - first) - 2};
    }
    return (struct arg){first, (size_t)(s - first)};
}

/* ---- conditions ---- */

static int push_condition(struct assembler *as, bool in_active, bool is_true) {
    if (as->conditions.len >= ASM_MAX_CONDITIONS) {
        return asm_fail(
            as->object, as->err, &as->at, ".if is nested more than %d deep", ASM_MAX_CONDITIONS);
    }
    struct condition condition = {
        .is_active = in_active && is_true,
        .was_taken = is_true,
        .in_active = in_active,
        .at = as->at};
    vec_push(as->arena, &as->conditions, condition);
    return 1;
}

static int if_defined(struct cursor *c, bool wanted, bool *ret) {
    char name[ASM_MAX_NAME + 1];
    if (cursor_name(c, name, sizeof name) == 0) {
        return cursor_fail(c, "expected a symbol");
    }
    uint32_t id = intern_find(&c->as->object->names, name);
    bool is_defined = id != INTERN_NONE && symbol_of(c->as, id)->kind != SYMBOL_UNDEFINED;
    *ret = is_defined == wanted;
    return cursor_end(c);
}

static int condition_value(struct cursor *c, bool *ret) {
    int64_t value;
    int r = expr_number(c, "the condition", INT64_MIN, INT64_MAX, &value);
    *ret = r == 0 && value != 0;
    return r < 0 ? r : cursor_end(c);
}

/* ".ifc a, b": whether two texts are the same, quotes included. */
static int if_same(struct cursor *c, bool wanted, bool *ret) {
    struct arg a = cut_text(&c->p);
    if (*c->p != ',') {
        return cursor_fail(c, "expected ',' and a second text");
    }
    const char *first = c->p + 1 + strspn(c->p + 1, " \t\r");
    struct arg b = {first, strlen(first)}; /* the statement has no blanks at its end */
    c->p = first + b.size;
    *ret = (a.size == b.size && memcmp(a.text, b.text, a.size) == 0) == wanted;
    return cursor_end(c);
}

/* ".ifb text": whether there is none. */
static int if_blank(struct cursor *c, bool wanted, bool *ret) {
    cursor_blanks(c);
    *ret = (*c->p == '\0') == wanted;
    c->p += strlen(c->p);
    return 0;
}

/* ".ifgt expr": compares with 0. */
static int if_compared(struct cursor *c, char how, bool or_equal, bool *ret) {
    int64_t value;
    int r = expr_number(c, "the condition", INT64_MIN, INT64_MAX, &value);
    bool is_true = how == '<' ? value < 0 : how == '>' ? value > 0 : how == '!' && value != 0;
    *ret = r == 0 && (is_true || (or_equal && value == 0));
    return r < 0 ? r : cursor_end(c);
}

static const struct {
    const char *word;
    char how; /* d defined, s same text, b blank, else compared with 0 */
    bool flag;
} conditions[] = {
    {".if", '!', false},   {".ifne", '!', false},     {".ifeq", '=', true},
    {".ifgt", '>', false}, {".ifge", '>', true},      {".iflt", '<', false},
    {".ifle", '<', true},  {".ifdef", 'd', true},     {".ifndef", 'd', false},
    {".ifc", 's', true},   {".ifnc", 's', false},     {".ifb", 'b', true},
    {".ifnb", 'b', false}, {".ifnotdef", 'd', false},
};

#define CONDITIONS (sizeof conditions / sizeof conditions[0])

static size_t find_condition(const char *word) {
    size_t i = 0;
    while (i < CONDITIONS && strcmp(conditions[i].word, word) != 0) {
        i++;
    }
    return i;
}

static int open_condition(struct cursor *c, size_t which) {
    bool in_active = macro_is_active(c->as);
    bool is_true = false;
    bool flag = conditions[which].flag;
    int r = 0;
    if (in_active) {
        switch (conditions[which].how) {
        case 'd': r = if_defined(c, flag, &is_true); break;
        case 's': r = if_same(c, flag, &is_true); break;
        case 'b': r = if_blank(c, flag, &is_true); break;
        default: r = if_compared(c, conditions[which].how, flag, &is_true); break;
        }
    }
    return r < 0 ? r : push_condition(c->as, in_active, is_true);
}

static struct condition *innermost(struct assembler *as) {
    const struct frame *f = &as->frames.data[as->frames.len - 1];
    size_t n = as->conditions.len;
    return n > f->condition_base ? &as->conditions.data[n - 1] : NULL;
}

static int else_condition(struct cursor *c, bool has_condition) {
    struct condition *open = innermost(c->as);
    if (open == NULL || open->has_else) {
        return cursor_fail(c, open == NULL ? "no .if is open" : ".else was already given");
    }
    bool is_true = true;
    if (has_condition && open->in_active && !open->was_taken) {
        int r = condition_value(c, &is_true);
        if (r < 0) {
            return r;
        }
    }
    open->has_else = !has_condition;
    open->is_active = open->in_active && !open->was_taken && is_true;
    open->was_taken = open->was_taken || is_true;
    return 1;
}

static int close_condition(struct cursor *c) {
    if (innermost(c->as) == NULL) {
        return cursor_fail(c, "no .if is open");
    }
    c->as->conditions.len--;
    return 1;
}

/* ---- expansion ---- */

/* Puts arguments into a body: "\name", "\@", "\()". Other backslashes stay. */
static int expand(
    struct assembler *as, const struct body *body, const char *const *names, const struct arg *args,
    int count, struct body *ret) {
    VEC(char) out = {0};
    for (size_t i = 0; i < body->size; i++) {
        char number[24];
        struct arg put = {body->text + i, 1};
        const char *p = body->text + i + 1;
        size_t left = body->size - i - 1;
        size_t n = 0;
        if (*put.text == '\\' && left > 0 && *p == '@') {
            put = (struct arg){
                number,
                (size_t)snprintf(number, sizeof number, "%lld", (long long)as->expansion_count)};
            i++;
        } else if (*put.text == '\\' && left > 1 && p[0] == '(' && p[1] == ')') {
            put.size = 0;
            i += 2;
        } else if (*put.text == '\\') {
            while (n < left && (isalnum((unsigned char)p[n]) || p[n] == '_')) {
                n++;
            }
            for (int k = 0; k < count; k++) {
                if (n > 0 && strlen(names[k]) == n && memcmp(names[k], p, n) == 0) {
                    put = args[k];
                    i += n;
                    break;
                }
            }
        }
        as->expanded_bytes += put.size;
        if (as->expanded_bytes > ASM_MAX_EXPANSION) {
            return asm_fail(
                as->object, as->err, &as->at, "macros expand to more than %u bytes",
                ASM_MAX_EXPANSION);
        }
        for (size_t k = 0; k < put.size; k++) {
            vec_push(as->arena, &out, put.text[k]);
        }
    }
    *ret = (struct body){out.data, out.len, body->line, body->column};
    return 0;
}

/* ---- repeats ---- */

static const struct origin *frame_origin(const struct assembler *as) {
    return as->frames.data[as->frames.len - 1].origin;
}

static int repeat(struct cursor *c) {
    struct assembler *as = c->as;
    int64_t count;
    struct body body;
    int r = expr_number(c, "the count of .rept", 0, ASM_MAX_REPEAT, &count);
    if (r == 0) {
        r = cursor_end(c);
    }
    if (r == 0) {
        r = read_body(as, false, &body);
    }
    if (r == 0 && count > 0) {
        r = push_frame(as, FRAME_REPEAT, &body, count - 1, frame_origin(as));
    }
    return r < 0 ? r : 1;
}

static int repeat_over(struct cursor *c) {
    struct assembler *as = c->as;
    char name[ASM_MAX_NAME + 1];
    if (cursor_name(c, name, sizeof name) == 0) {
        return cursor_fail(c, "expected the name of the variable");
    }
    const char *names[] = {name};
    const char *values = cursor_take(c, ',') ? arena_strdup(as->arena, c->p) : "";
    struct body body;
    int r = read_body(as, false, &body);
    if (r < 0) {
        return r;
    }
    VEC(char) out = {0};
    while (*values != '\0') {
        struct arg arg = cut_arg(&values, false);
        values += *values == ',';
        struct body once;
        r = expand(as, &body, names, &arg, 1, &once);
        if (r < 0) {
            return r;
        }
        vec_reserve(as->arena, &out, out.len + once.size + 1);
        memcpy(out.data + out.len, once.text, once.size);
        out.len += once.size;
        out.data[out.len++] = '\n';
    }
    body.text = out.data;
    body.size = out.len;
    r = push_frame(as, FRAME_REPEAT, &body, 0, frame_origin(as));
    return r < 0 ? r : 1;
}

/* ---- macros ---- */

static int parse_param(struct cursor *c, struct macro_param *ret) {
    char name[ASM_MAX_NAME + 1];
    struct arena *a = c->as->arena;
    *ret = (struct macro_param){0};
    if (cursor_name(c, name, sizeof name) == 0) {
        return cursor_fail(c, "expected the name of a parameter");
    }
    ret->name = arena_strdup(a, name);
    if (cursor_take(c, ':')) {
        size_t n = cursor_name(c, name, sizeof name);
        ret->is_required = n > 0 && strcmp(name, "req") == 0;
        ret->is_vararg = n > 0 && strcmp(name, "vararg") == 0;
        if (!ret->is_required && !ret->is_vararg) {
            return cursor_fail(c, "expected req or vararg");
        }
    }
    if (cursor_take(c, '=')) {
        struct arg value = cut_arg(&c->p, false);
        ret->fallback = arena_strndup(a, value.text, value.size);
    }
    return 0;
}

static int define_macro(struct cursor *c) {
    struct assembler *as = c->as;
    char name[ASM_MAX_NAME + 1];
    if (cursor_name(c, name, sizeof name) == 0) {
        return cursor_fail(c, "expected the name of the macro");
    }
    struct macro *m = ARENA_NEW(as->arena, struct macro);
    m->name = arena_strdup(as->arena, name);
    cursor_take(c, ',');
    cursor_blanks(c);
    while (*c->p != '\0') {
        if (m->param_count == ASM_MAX_MACRO_ARGS) {
            return cursor_fail(c, "a macro has at most %d parameters", ASM_MAX_MACRO_ARGS);
        }
        int r = parse_param(c, &m->params[m->param_count]);
        if (r < 0) {
            return r;
        }
        m->param_count++;
        cursor_take(c, ',');
        cursor_blanks(c);
    }
    struct body body;
    int r = read_body(as, true, &body);
    if (r < 0) {
        return r;
    }
    m->body = body.text;
    m->body_size = body.size;
    m->first_line = body.line;
    m->first_column = body.column;
    uint32_t id = intern_add(&as->macro_names, m->name);
    if (id == as->macros.len) {
        vec_push(as->arena, &as->macros, m);
    } else {
        as->macros.data[id] = m;
    }
    return 1;
}

static int find_param(const struct macro *m, const char *name, size_t n) {
    for (int i = 0; i < m->param_count; i++) {
        if (strlen(m->params[i].name) == n && memcmp(m->params[i].name, name, n) == 0) {
            return i;
        }
    }
    return -1;
}

/* Fills args[] from the call's text; a given argument has text != NULL. */
static int read_args(struct cursor *c, const struct macro *m, const char *text, struct arg *args) {
    int at = 0;
    while (*text != '\0') {
        size_t n = strspn(text, " \t");
        size_t name_size = strcspn(text + n, " \t=,()\"$");
        const char *after = text + n + name_size + strspn(text + n + name_size, " \t");
        int named = *after == '=' && after[1] != '=' ? find_param(m, text + n, name_size) : -1;
        int index = named >= 0 ? named : at++;
        if (index >= m->param_count) {
            return cursor_fail(
                c, "macro %s takes at most %d argument%s", m->name, m->param_count,
                m->param_count == 1 ? "" : "s");
        }
        text = named >= 0 ? after + 1 : text;
        args[index] = cut_arg(&text, m->params[index].is_vararg);
        text += *text == ',';
    }
    for (int i = 0; i < m->param_count; i++) {
        const struct macro_param *p = &m->params[i];
        if (args[i].text != NULL && (args[i].size > 0 || p->fallback == NULL) &&
            !(args[i].size == 0 && p->is_required)) {
            continue;
        }
        if (p->is_required) {
            return cursor_fail(c, "macro %s needs its argument '%s'", m->name, p->name);
        }
        args[i].text = p->fallback != NULL ? p->fallback : "";
        args[i].size = strlen(args[i].text);
    }
    return 0;
}

int macro_call(struct cursor *c, const char *word) {
    struct assembler *as = c->as;
    uint32_t id = intern_find(&as->macro_names, word);
    if (id == INTERN_NONE) {
        return 0;
    }
    const struct macro *m = as->macros.data[id];
    struct arg args[ASM_MAX_MACRO_ARGS] = {0};
    const char *names[ASM_MAX_MACRO_ARGS];
    for (int i = 0; i < m->param_count; i++) {
        names[i] = m->params[i].name;
    }
    int r = read_args(c, m, arena_strdup(as->arena, c->p), args);
    if (r < 0) {
        return r;
    }
    struct body body = {m->body, m->body_size, m->first_line, m->first_column};
    r = expand(as, &body, names, args, m->param_count, &body);
    if (r < 0) {
        return r;
    }
    as->expansion_count++;
    struct origin *origin = ARENA_NEW(as->arena, struct origin);
    *origin = (struct origin){m->name, as->at.line, as->at.origin};
    r = push_frame(as, FRAME_MACRO, &body, 0, origin);
    return r < 0 ? r : 1;
}

/* .exitm: leaves the innermost macro with the repeats and conditions opened in it. */
static int exit_macro(struct cursor *c) {
    struct assembler *as = c->as;
    size_t i = as->frames.len;
    while (i > 0 && as->frames.data[i - 1].kind != FRAME_MACRO) {
        i--;
    }
    if (i == 0) {
        return cursor_fail(c, ".exitm outside a macro");
    }
    as->conditions.len = as->frames.data[i - 1].condition_base;
    as->frames.len = i - 1;
    return 1;
}

int macro_directive(struct cursor *c, const char *word) {
    size_t condition = find_condition(word);
    if (condition < CONDITIONS) {
        return open_condition(c, condition);
    }
    if (strcmp(word, ".else") == 0 || strcmp(word, ".elseif") == 0) {
        return else_condition(c, word[5] == 'i');
    }
    if (strcmp(word, ".endif") == 0) {
        return close_condition(c);
    }
    if (!macro_is_active(c->as)) {
        return 0;
    }
    if (strcmp(word, ".rept") == 0) {
        return repeat(c);
    }
    if (strcmp(word, ".irp") == 0) {
        return repeat_over(c);
    }
    if (strcmp(word, ".macro") == 0) {
        return define_macro(c);
    }
    if (strcmp(word, ".exitm") == 0) {
        return exit_macro(c);
    }
    if (strcmp(word, ".endm") == 0 || strcmp(word, ".endr") == 0) {
        return cursor_fail(c, "%s without its opening directive", word);
    }
    return 0;
}
