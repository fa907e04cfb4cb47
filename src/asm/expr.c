/* Expressions: precedence climbing into a tree, and its evaluation.
 *
 * While parsing, everything known is folded: constants, symbols that have a value, differences of
 * addresses in one section. The tree that is left is at most ASM_MAX_EXPR_DEPTH deep, so recursion
 * over it is bounded; symbols met in it lead to other trees, so evaluation counts its steps. */
#include "asm/asm_internal.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/f16.h"

#define MAX_EVAL_STEPS   1000 /* nodes of one evaluation, symbols' values included */
#define MAX_SYMBOL_DEPTH 64   /* symbols defined by one another */
static const struct expr *
node(struct cursor *c, enum expr_op op, const struct expr *a, const struct expr *b, int column);

const struct expr *expr_const(struct arena *a, int64_t k) {
    struct expr *e = ARENA_NEW(a, struct expr);
    *e = (struct expr){.op = EXPR_CONST, .k = k, .symbol = INTERN_NONE};
    return e;
}

/* ---- arithmetic: wraps at 64 bits like the two's complement machine ---- */

static bool apply(enum expr_op op, int64_t x, int64_t y, int64_t *ret) {
    uint64_t a = (uint64_t)x, b = (uint64_t)y;
    switch (op) {
    case EXPR_MUL: *ret = (int64_t)(a * b); return true;
    case EXPR_ADD: *ret = (int64_t)(a + b); return true;
    case EXPR_SUB: *ret = (int64_t)(a - b); return true;
    case EXPR_DIV: *ret = y == -1 ? (int64_t)(0 - a) : y != 0 ? x / y : 0; return y != 0;
    case EXPR_MOD: *ret = y == -1 || y == 0 ? 0 : x % y; return y != 0;
    case EXPR_SHL: *ret = b < 64 ? (int64_t)(a << b) : 0; return b < 64;
    case EXPR_SHR: *ret = b < 64 ? x >> b : 0; return b < 64;
    case EXPR_LT: *ret = x < y; return true;
    case EXPR_LE: *ret = x <= y; return true;
    case EXPR_GT: *ret = x > y; return true;
    case EXPR_GE: *ret = x >= y; return true;
    case EXPR_EQ: *ret = x == y; return true;
    case EXPR_NE: *ret = x != y; return true;
    case EXPR_AND: *ret = x & y; return true;
    case EXPR_XOR: *ret = x ^ y; return true;
    case EXPR_OR: *ret = x | y; return true;
    case EXPR_LAND: *ret = x != 0 && y != 0; return true;
    case EXPR_LOR: *ret = x != 0 || y != 0; return true;
    default: *ret = 0; return false;
    }
}

static int64_t apply_unary(enum expr_op op, int64_t x) {
    return op == EXPR_NEG ? (int64_t)(0 - (uint64_t)x) : op == EXPR_NOT ? ~x : x == 0;
}

/* Addresses add to numbers and subtract within a section; false when only the linker can tell. */
static bool apply_values(enum expr_op op, struct value x, struct value y, struct value *ret) {
    bool is_same = x.kind == VALUE_LOC && y.kind == VALUE_LOC && x.section == y.section;
    int64_t k = op == EXPR_SUB ? (int64_t)((uint64_t)x.k - (uint64_t)y.k)
                               : (int64_t)((uint64_t)x.k + (uint64_t)y.k);
    if (op == EXPR_SUB && is_same) {
        *ret = (struct value){.kind = VALUE_CONST, .k = k};
        return true;
    }
    if (is_same && op >= EXPR_LT && op <= EXPR_NE) {
        ret->kind = VALUE_CONST;
        return apply(op, x.k, y.k, &ret->k);
    }
    if (x.kind == VALUE_LOC && y.kind == VALUE_CONST && (op == EXPR_ADD || op == EXPR_SUB)) {
        *ret = (struct value){.kind = VALUE_LOC, .k = k, .section = x.section};
        return true;
    }
    if (x.kind == VALUE_CONST && y.kind == VALUE_LOC && op == EXPR_ADD) {
        *ret = (struct value){.kind = VALUE_LOC, .k = k, .section = y.section};
        return true;
    }
    return false;
}

/* ---- evaluation ---- */

struct evaluation {
    const struct resolver *r;
    const struct location *at;
    struct err *err;
    int steps;
    int symbol_depth;
};

static int eval(struct evaluation *ev, const struct expr *e, struct value *ret);

static int eval_fail(const struct evaluation *ev, const struct expr *e, const char *text) {
    struct location at = *ev->at;
    at.column = e->column > 0 ? e->column : at.column;
    return asm_fail(ev->r->object, ev->err, &at, "%s", text);
}

static int eval_symbol(struct evaluation *ev, const struct expr *e, struct value *ret) {
    const struct asm_object *object = ev->r->object;
    const char *name = intern_name(&object->names, e->symbol);
    const struct symbol *s =
        e->symbol < object->symbols.len ? &object->symbols.data[e->symbol] : NULL;
    struct location at = *ev->at;
    at.column = e->column > 0 ? e->column : at.column;
    if (s != NULL && s->kind == SYMBOL_REGISTER) {
        return asm_fail(object, ev->err, &at, "'%s' names a register", name);
    }
    if (s != NULL && s->kind != SYMBOL_UNDEFINED) {
        if (++ev->symbol_depth > MAX_SYMBOL_DEPTH) {
            return asm_fail(object, ev->err, &at, "'%s' is defined by itself or too deeply", name);
        }
        int r = eval(ev, s->value, ret);
        ev->symbol_depth--;
        return r;
    }
    if (ev->r->section_addrs == NULL) {
        *ret = (struct value){.kind = VALUE_LATER};
        return 0;
    }
    *ret = (struct value){.kind = VALUE_CONST};
    if (strchr(name, '#') != NULL) {
        return asm_fail(
            object, ev->err, &at, "no label %.*s: after this place", (int)strcspn(name, "#"), name);
    }
    if (ev->r->find(ev->r, name, &ret->k) < 0) {
        return asm_fail(object, ev->err, &at, "undefined symbol '%s'", name);
    }
    return 0;
}

static int eval_binary(struct evaluation *ev, const struct expr *e, struct value *ret) {
    struct value x, y;
    int r = eval(ev, e->a, &x);
    if (r == 0) {
        r = eval(ev, e->b, &y);
    }
    if (r < 0) {
        return r;
    }
    if (x.kind == VALUE_CONST && y.kind == VALUE_CONST) {
        *ret = (struct value){.kind = VALUE_CONST};
        if (!apply((enum expr_op)e->op, x.k, y.k, &ret->k)) {
            return eval_fail(
                ev, e,
                e->op == EXPR_DIV || e->op == EXPR_MOD ? "division by zero"
                                                       : "shift by less than 0 or more than 63");
        }
        return 0;
    }
    if (!apply_values((enum expr_op)e->op, x, y, ret)) {
        *ret = (struct value){.kind = VALUE_LATER};
    }
    return 0;
}

static int eval(struct evaluation *ev, const struct expr *e, struct value *ret) {
    if (++ev->steps > MAX_EVAL_STEPS) {
        return eval_fail(ev, e, "expression has too many terms");
    }
    switch ((enum expr_op)e->op) {
    case EXPR_CONST: *ret = (struct value){.kind = VALUE_CONST, .k = e->k}; return 0;
    case EXPR_LOC:
        *ret = (struct value){.kind = VALUE_LOC, .k = e->k, .section = e->section};
        if (ev->r->section_addrs != NULL) {
            ret->kind = VALUE_CONST;
            ret->k += ev->r->section_addrs[e->section];
        }
        return 0;
    case EXPR_SYMBOL: return eval_symbol(ev, e, ret);
    case EXPR_NEG:
    case EXPR_NOT:
    case EXPR_LNOT: {
        int r = eval(ev, e->a, ret);
        if (r == 0 && ret->kind == VALUE_CONST) {
            ret->k = apply_unary((enum expr_op)e->op, ret->k);
        } else if (r == 0) {
            *ret = (struct value){.kind = VALUE_LATER};
        }
        return r;
    }
    case EXPR_COND: {
        int r = eval(ev, e->a, ret);
        if (r < 0 || ret->kind == VALUE_LATER) {
            return r;
        }
        return eval(ev, ret->kind == VALUE_LOC || ret->k != 0 ? e->b : e->c, ret);
    }
    default: return eval_binary(ev, e, ret);
    }
}

int expr_eval(
    const struct resolver *r, const struct expr *e, const struct location *at, struct value *ret,
    struct err *err) {
    struct evaluation ev = {.r = r, .at = at, .err = err};
    return eval(&ev, e, ret);
}

const struct expr *expr_address(const struct expr *e) {
    if (e == NULL || e->op == EXPR_LOC || e->op == EXPR_SYMBOL) {
        return e;
    }
    const struct expr *found = expr_address(e->a);
    found = found != NULL ? found : expr_address(e->b);
    return found != NULL ? found : expr_address(e->c);
}

/* ---- parsing ---- */

static int parse(struct cursor *c, int least, int depth, const struct expr **ret);

static int value_of(struct cursor *c, const struct expr *e, struct value *ret) {
    struct resolver r = {.object = c->as->object};
    return expr_eval(&r, e, &c->as->at, ret, NULL);
}

/* A node, folded when its operands are known. Division by zero stays to be told when evaluated. */
static const struct expr *
node(struct cursor *c, enum expr_op op, const struct expr *a, const struct expr *b, int column) {
    struct expr e = {.op = (uint8_t)op, .a = a, .b = b, .column = column, .symbol = INTERN_NONE};
    uint8_t depth = b != NULL && b->depth > a->depth ? b->depth : a->depth;
    e.depth = (uint8_t)(depth + 1);
    struct value v;
    bool is_leaf = a->op <= EXPR_LOC && (b == NULL || b->op <= EXPR_LOC);
    if (is_leaf && value_of(c, &e, &v) == 0 && v.kind != VALUE_LATER) {
        uint32_t symbol = a->op == EXPR_LOC ? a->symbol : b != NULL ? b->symbol : INTERN_NONE;
        e = (struct expr){
            .op = v.kind == VALUE_CONST ? EXPR_CONST : EXPR_LOC,
            .k = v.k,
            .section = v.section,
            .symbol = symbol,
            .column = column};
    }
    struct expr *made = ARENA_NEW(c->as->arena, struct expr);
    *made = e;
    return made;
}

static int parse_number(struct cursor *c, const struct expr **ret) {
    uint64_t value = 0;
    const char *p = c->p;
    unsigned base = 10;
    if (p[0] == '0' && (p[1] == 'x' || p[1] == 'X')) {
        base = 16;
        p += 2;
    } else if (p[0] == '0' && (p[1] == 'b' || p[1] == 'B') && (p[2] == '0' || p[2] == '1')) {
        base = 2;
        p += 2;
    } else if (p[0] == '0') {
        base = 8;
    }
    const char *first = p;
    for (; isxdigit((unsigned char)*p); p++) {
        unsigned digit =
            isdigit((unsigned char)*p) ? (unsigned)(*p - '0') : (unsigned)(tolower(*p) - 'a') + 10;
        if (digit >= base) {
            break;
        }
        if (value > (UINT64_MAX - digit) / base) {
            return cursor_fail(c, "number does not fit 64 bits");
        }
        value = value * base + digit;
    }
    if (p == first || isalnum((unsigned char)*p) || *p == '_' || *p == '.') {
        return cursor_fail(c, "malformed number");
    }
    c->p = p;
    *ret = expr_const(c->as->arena, (int64_t)value);
    return 0;
}

static int parse_character(struct cursor *c, const struct expr **ret) {
    const char *p = c->p + 1;
    char ch = *p;
    if (ch == '\\') {
        static const char from[] = "ntr0\\\"'";
        static const char to[] = "\n\t\r\0\\\"'";
        p++;
        const char *at = *p != '\0' ? strchr(from, *p) : NULL;
        ch = at != NULL ? to[at - from] : *p;
    }
    if (*p == '\0' || p[1] != '\'') {
        return cursor_fail(c, "expected one character between quotes");
    }
    c->p = p + 2;
    *ret = expr_const(c->as->arena, (unsigned char)ch);
    return 0;
}

static const struct expr *symbol_node(struct cursor *c, uint32_t id, int column) {
    const struct symbol *s = symbol_of(c->as, id);
    if (s->kind == SYMBOL_LABEL || s->kind == SYMBOL_SET) {
        return s->value;
    }
    struct expr *e = ARENA_NEW(c->as->arena, struct expr);
    *e = (struct expr){.op = EXPR_SYMBOL, .symbol = id, .column = column};
    return e;
}

/* "1f", "1b"; false when the text is a plain number. The label's count lies in the symbol "1#". */
static bool parse_local(struct cursor *c, const struct expr **ret) {
    size_t digits = strspn(c->p, "0123456789");
    char ch = c->p[digits];
    char after = ch != '\0' ? c->p[digits + 1] : '\0';
    if (digits > 9 || (ch != 'f' && ch != 'b') || isalnum((unsigned char)after) || after == '_') {
        return false;
    }
    struct assembler *as = c->as;
    char *counter = arena_printf(as->arena, "%.*s#", (int)digits, c->p);
    const struct symbol *s = symbol_of(as, symbol_id(as, counter));
    int64_t count = s->value != NULL ? s->value->k : 0;
    char *name = arena_printf(as->arena, "%s%lld", counter, (long long)count + (ch == 'f'));
    *ret = symbol_node(c, symbol_id(as, name), cursor_at(c).column);
    c->p += digits + 1;
    return true;
}

static int parse_primary(struct cursor *c, int depth, const struct expr **ret) {
    char name[ASM_MAX_NAME + 1];
    cursor_blanks(c);
    int column = cursor_at(c).column;
    if (isdigit((unsigned char)*c->p)) {
        return parse_local(c, ret) ? 0 : parse_number(c, ret);
    }
    if (*c->p == '\'') {
        return parse_character(c, ret);
    }
    if (cursor_take(c, '(')) {
        int r = parse(c, 0, depth, ret);
        if (r == 0 && !cursor_take(c, ')')) {
            r = cursor_fail(c, "expected ')'");
        }
        return r;
    }
    if (cursor_name(c, name, sizeof name) == 0) {
        return cursor_fail(c, "expected a number or a symbol");
    }
    if (strcmp(name, ".") == 0) {
        struct expr *e = ARENA_NEW(c->as->arena, struct expr);
        *e = (struct expr){
            .op = EXPR_LOC,
            .k = (int64_t)section_now(c->as)->bytes.len,
            .section = c->as->section,
            .symbol = INTERN_NONE,
            .column = column};
        *ret = e;
        return 0;
    }
    *ret = symbol_node(c, symbol_id(c->as, name), column);
    return 0;
}

static int parse_unary(struct cursor *c, int depth, const struct expr **ret) {
    cursor_blanks(c);
    if (depth >= ASM_MAX_EXPR_DEPTH) {
        return cursor_fail(c, "expression is nested more than %d deep", ASM_MAX_EXPR_DEPTH);
    }
    int column = cursor_at(c).column;
    char ch = *c->p;
    double value;
    size_t literal = float_literal(c->p, false, &value);
    if (literal > 0 && c->p[literal - 1] == 'h') { /* "-1.5h": the bits of a binary16 */
        c->p += literal;
        *ret = expr_const(c->as->arena, f16_from_f64(value));
        return 0;
    }
    if (ch != '-' && ch != '~' && ch != '!' && ch != '+') {
        return parse_primary(c, depth + 1, ret);
    }
    c->p++;
    const struct expr *a;
    int r = parse_unary(c, depth + 1, &a);
    if (r < 0 || ch == '+') {
        *ret = r < 0 ? NULL : a;
        return r;
    }
    *ret = node(c, ch == '-' ? EXPR_NEG : ch == '~' ? EXPR_NOT : EXPR_LNOT, a, NULL, column);
    return 0;
}

static const struct {
    const char *text;
    uint8_t op, level; /* a higher level binds closer */
} binaries[] = {
    /* longer ones first */
    {"<<", EXPR_SHL, 9}, {">>", EXPR_SHR, 9}, {"<=", EXPR_LE, 8},   {">=", EXPR_GE, 8},
    {"==", EXPR_EQ, 7},  {"!=", EXPR_NE, 7},  {"&&", EXPR_LAND, 3}, {"||", EXPR_LOR, 2},
    {"*", EXPR_MUL, 11}, {"/", EXPR_DIV, 11}, {"%", EXPR_MOD, 11},  {"+", EXPR_ADD, 10},
    {"-", EXPR_SUB, 10}, {"<", EXPR_LT, 8},   {">", EXPR_GT, 8},    {"&", EXPR_AND, 6},
    {"^", EXPR_XOR, 5},  {"|", EXPR_OR, 4},
};

static int find_binary(struct cursor *c, int least) {
    cursor_blanks(c);
    for (size_t i = 0; i < sizeof binaries / sizeof binaries[0]; i++) {
        size_t n = strlen(binaries[i].text);
        if (strncmp(c->p, binaries[i].text, n) == 0) {
            return binaries[i].level >= least ? (int)i : -1;
        }
    }
    return -1;
}

static int
parse_conditional(struct cursor *c, int depth, const struct expr *a, const struct expr **ret) {
    const struct expr *b, *otherwise;
    int column = cursor_at(c).column;
    int r = parse(c, 0, depth + 1, &b);
    if (r == 0 && !cursor_take(c, ':')) {
        r = cursor_fail(c, "expected ':' of '?'");
    }
    if (r == 0) {
        r = parse(c, 0, depth + 1, &otherwise);
    }
    if (r < 0) {
        return r;
    }
    if (a->op == EXPR_CONST) {
        *ret = a->k != 0 ? b : otherwise;
        return 0;
    }
    struct expr *e = ARENA_NEW(c->as->arena, struct expr);
    uint8_t deepest = a->depth > b->depth ? a->depth : b->depth;
    deepest = otherwise->depth > deepest ? otherwise->depth : deepest;
    *e = (struct expr){
        .op = EXPR_COND,
        .a = a,
        .b = b,
        .c = otherwise,
        .column = column,
        .symbol = INTERN_NONE,
        .depth = (uint8_t)(deepest + 1)};
    *ret = e;
    return deepest < ASM_MAX_EXPR_DEPTH
               ? 0
               : cursor_fail(c, "expression is nested more than %d deep", ASM_MAX_EXPR_DEPTH);
}

/* Operators of at least the level `least`; level 0 takes '?' too. */
static int parse(struct cursor *c, int least, int depth, const struct expr **ret) {
    const struct expr *a;
    int r = parse_unary(c, depth, &a);
    while (r == 0) {
        int i = find_binary(c, least);
        if (i < 0) {
            break;
        }
        int column = cursor_at(c).column;
        c->p += strlen(binaries[i].text);
        const struct expr *b;
        r = parse(c, binaries[i].level + 1, depth + 1, &b);
        if (r == 0) {
            a = node(c, (enum expr_op)binaries[i].op, a, b, column);
            if (a->depth >= ASM_MAX_EXPR_DEPTH) {
                return cursor_fail(c, "expression is nested more than %d deep", ASM_MAX_EXPR_DEPTH);
            }
        }
    }
    if (r == 0 && least == 0 && cursor_take(c, '?')) {
        r = parse_conditional(c, depth, a, &a);
    }
    if (r == 0) {
        *ret = a;
    }
    return r;
}

int expr_parse(struct cursor *c, const struct expr **ret) {
    return parse(c, 0, 0, ret);
}

int expr_number(struct cursor *c, const char *what, int64_t low, int64_t high, int64_t *ret) {
    const struct expr *e;
    struct value v;
    struct resolver r = {.object = c->as->object};
    cursor_blanks(c);
    struct location at = cursor_at(c);
    int status = expr_parse(c, &e);
    if (status == 0) {
        status = expr_eval(&r, e, &at, &v, c->as->err);
    }
    if (status < 0) {
        return status;
    }
    if (v.kind != VALUE_CONST) {
        return asm_fail(c->as->object, c->as->err, &at, "%s must be known at this place", what);
    }
    if (v.k < low || v.k > high) {
        return asm_fail(
            c->as->object, c->as->err, &at, "%s is %" PRId64 ", must be %" PRId64 "..%" PRId64,
            what, v.k, low, high);
    }
    *ret = v.k;
    return 0;
}
