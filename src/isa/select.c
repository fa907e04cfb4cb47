/* Mnemonic and operands to one form.
 *
 * First aliases are rewritten into an instruction of the table, then every form of the mnemonic is
 * matched against the operands. Of the forms that fit, the one with the first kind of immediate in
 * the order signed, zero-extended, shifted wins, as in the vendor's assembler; a suffix of the
 * mnemonic (s, z, iz) admits one kind only. When no form fits, the message tells what the forms
 * that came furthest expected there. */
#include "isa/isa.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAX_FORMS 16

struct request {
    char mnemonic[ISA_MNEMONIC_MAX];
    struct isa_arg args[ISA_MAX_ARGS];
    int arg_count;
    int forced_kind; /* enum isa_kind, -1 when free */
};

static struct isa_arg reg(enum isa_arg_type type, int first, int count) {
    return (struct isa_arg){
        .type = (uint8_t)type, .first = (uint8_t)first, .count = (uint8_t)count};
}

static struct isa_arg number(int64_t value) {
    return (struct isa_arg){.type = ISA_ARG_NUMBER, .value = value};
}

static bool is_reg(const struct isa_arg *arg, enum isa_arg_type type, int count) {
    return arg->type == type && arg->count == count && arg->suffix[0] == '\0';
}

static void rename_to(struct request *q, const char *mnemonic) {
    snprintf(q->mnemonic, sizeof q->mnemonic, "%s", mnemonic);
}

static void set_args(
    struct request *q, const char *mnemonic, int n, struct isa_arg a, struct isa_arg b,
    struct isa_arg c) {
    rename_to(q, mnemonic);
    q->args[0] = a;
    q->args[1] = b;
    q->args[2] = c;
    q->arg_count = n;
}

/* mov and zero: by register file and width. */
static void rewrite_move(struct request *q) {
    const struct isa_arg none = {0};
    struct isa_arg d = q->args[0];
    struct isa_arg s = q->args[1];
    bool is_zero = strcmp(q->mnemonic, "zero") == 0 && q->arg_count == 1;
    bool is_mov = strcmp(q->mnemonic, "mov") == 0 && q->arg_count == 2;
    if (is_zero && is_reg(&d, ISA_ARG_M, 1)) {
        set_args(q, "or", 3, d, reg(ISA_ARG_M, 15, 1), reg(ISA_ARG_M, 15, 1));
    } else if (is_zero && is_reg(&d, ISA_ARG_A, 1)) {
        set_args(q, "or", 3, d, reg(ISA_ARG_A, 15, 1), reg(ISA_ARG_A, 15, 1));
    } else if (is_zero && is_reg(&d, ISA_ARG_A, 2)) {
        set_args(q, "or64", 3, d, reg(ISA_ARG_A, 14, 2), reg(ISA_ARG_A, 14, 2));
    } else if (is_mov && is_reg(&d, ISA_ARG_M, 1) && is_reg(&s, ISA_ARG_A, 1)) {
        set_args(q, "atom", 2, d, s, none);
    } else if (is_mov && is_reg(&d, ISA_ARG_A, 2)) {
        set_args(q, "or64", 3, d, s, reg(ISA_ARG_A, 14, 2));
    } else if (is_mov) {
        set_args(q, "or", 3, d, s, number(0));
    }
}

static void rewrite_suffix(struct request *q) {
    static const struct {
        const char *name, *mnemonic;
        int kind;
    } forced[] = {
        {"adds", "add", ISA_SI},     {"addz", "add", ISA_ZI}, {"cmpeqs", "cmpeq", ISA_SI},
        {"cmpeqz", "cmpeq", ISA_ZI}, {"maxs", "max", ISA_SI}, {"maxz", "max", ISA_ZI},
        {"mins", "min", ISA_SI},     {"minz", "min", ISA_ZI}, {"subs", "sub", ISA_SI},
        {"subz", "sub", ISA_ZI},     {"oriz", "or", ISA_IZ},  {"andiz", "and", ISA_IZ},
        {"andciz", "andc", ISA_IZ},
    };
    for (size_t i = 0; i < sizeof forced / sizeof forced[0]; i++) {
        if (strcmp(q->mnemonic, forced[i].name) == 0) {
            rename_to(q, forced[i].mnemonic);
            q->forced_kind = forced[i].kind;
            return;
        }
    }
}

static void rewrite_alias(struct request *q) {
    const struct isa_arg none = {0};
    const char *m = q->mnemonic;
    int n = q->arg_count;
    if (strcmp(m, "nop") == 0 && n == 0) {
        set_args(q, "setzi", 2, reg(ISA_ARG_M, 14, 1), number(0), none);
    } else if (strcmp(m, "fnop") == 0 && n == 0) {
        set_args(q, "setzi", 2, reg(ISA_ARG_A, 13, 1), number(0), none);
    } else if (strcmp(m, "strap") == 0 && n == 0) {
        set_args(q, "put", 2, number(255), reg(ISA_ARG_M, 15, 1), none);
    } else if (strcmp(m, "movnz") == 0) {
        rename_to(q, "movz");
    } else if (strcmp(m, "get") == 0 && n == 2 && q->args[0].type == ISA_ARG_A) {
        rename_to(q, "uget");
    } else if (strcmp(m, "put") == 0 && n == 2 && q->args[1].type == ISA_ARG_A) {
        rename_to(q, "uput");
    } else if (strcmp(m, "swap16") == 0 && n == 2) {
        set_args(q, "roll16", 3, q->args[0], q->args[1], q->args[1]);
    } else if (strcmp(m, "f16v4sisov2amp") == 0) {
        rename_to(q, "f16v4sisoamp");
    } else if (strcmp(m, "f16v4sisov2slic") == 0) {
        rename_to(q, "f16v4sisoslic");
    } else if (
        strcmp(m, "sub") == 0 && n == 3 && q->args[1].type == ISA_ARG_M &&
        q->args[2].type == ISA_ARG_NUMBER && !q->args[2].is_open && q->args[2].value > INT32_MIN &&
        q->args[2].value <= INT32_MAX) {
        rename_to(q, "add");
        q->args[2].value = -q->args[2].value;
    } else if (strcmp(m, "mov") == 0 || strcmp(m, "zero") == 0) {
        rewrite_move(q);
    } else {
        rewrite_suffix(q);
    }
}

/* Vendors' sources write the broadcast of the low half and that of a whole register for each other
 * where only one of them exists. */
static bool matches_broadcast(const struct isa_operand *o, const char *suffix) {
    return (o->kind == ISA_A_B && strcmp(suffix, "BL") == 0) ||
           (o->kind == ISA_A_BL && strcmp(suffix, "B") == 0);
}

/* ... and $azero for $mzero as an access's delta. */
static bool
is_zero_delta(const struct isa_info *info, const struct isa_operand *o, const struct isa_arg *arg) {
    return (info->flags & (ISA_LOAD | ISA_STORE)) != 0 && o->letter == 'b' && o->kind == ISA_M &&
           o->suffix[0] == '\0' && is_reg(arg, ISA_ARG_A, 1) && arg->first == 15;
}

static bool matches_register(
    const struct isa_info *info, const struct isa_operand *o, const struct isa_arg *arg) {
    static const struct {
        uint8_t type, count;
        const char *broadcast;
    } shapes[] = {
        [ISA_M] = {ISA_ARG_M, 1, ""},      [ISA_M_PAIR] = {ISA_ARG_M, 2, ""},
        [ISA_A] = {ISA_ARG_A, 1, ""},      [ISA_A_PAIR] = {ISA_ARG_A, 2, ""},
        [ISA_A_QUAD] = {ISA_ARG_A, 4, ""}, [ISA_A_B] = {ISA_ARG_A, 1, "B"},
        [ISA_A_BL] = {ISA_ARG_A, 1, "BL"}, [ISA_A_BU] = {ISA_ARG_A, 1, "BU"},
    };
    const char *suffix = o->suffix[0] != '\0' ? o->suffix : shapes[o->kind].broadcast;
    if (is_zero_delta(info, o, arg)) {
        return true;
    }
    return arg->type == shapes[o->kind].type && arg->count == shapes[o->kind].count &&
           arg->first % shapes[o->kind].count == 0 && arg->first < 16 &&
           (strcmp(arg->suffix, suffix) == 0 || matches_broadcast(o, arg->suffix));
}

/* An immediate that fits, as the value for v[]. */
static bool matches_immediate(
    const struct isa_info *info, const struct isa_operand *o, const struct isa_arg *arg,
    int32_t *ret_value) {
    int64_t v = arg->value;
    bool is_csr = strcmp(o->meaning, "csr") == 0;
    if (arg->type == ISA_ARG_CSR) {
        bool is_upper = info->mnemonic[0] == 'u';
        *ret_value = (int32_t)(v & 0xff);
        return is_csr && is_upper == (v >= 256);
    }
    if (arg->type == ISA_ARG_CWEI) {
        *ret_value = (int32_t)v;
        return strcmp(info->mnemonic, "ld64putcs") == 0 ||
               strcmp(info->mnemonic, "ld128putcs") == 0;
    }
    if (arg->type != ISA_ARG_NUMBER) {
        return false;
    }
    if (arg->is_open) {
        *ret_value = 0;
        return true;
    }
    *ret_value = (int32_t)(uint32_t)(uint64_t)v;
    switch (o->kind) {
    case ISA_ZI: return v >= 0 && v < 1ll << o->bits;
    case ISA_SI: return v >= -(1ll << (o->bits - 1)) && v < 1ll << (o->bits - 1);
    case ISA_IZ:
        return v >= INT32_MIN && v <= UINT32_MAX && (v & ((1ll << (32 - o->bits)) - 1)) == 0;
    case ISA_ABS: return v >= 0 && v < 4ll << o->bits && v % 4 == 0;
    default: return false;
    }
}

/* Operand as a message names it. */
static void
describe(const struct isa_info *info, const struct isa_operand *o, char *buf, size_t n) {
    static const char *const registers[] = {
        [ISA_M] = "$mN",
        [ISA_M_PAIR] = "$mN:N+1 (N even)",
        [ISA_A] = "$aN",
        [ISA_A_PAIR] = "$aN:N+1 (N even)",
        [ISA_A_QUAD] = "$aN:N+3 (N a multiple of 4)",
        [ISA_A_B] = "$aN:B",
        [ISA_A_BL] = "$aN:BL",
        [ISA_A_BU] = "$aN:BU",
    };
    int64_t limit = 1ll << o->bits;
    if (o->kind < ISA_ZI) {
        snprintf(
            buf, n, "%s%s%s", registers[o->kind], o->suffix[0] != '\0' ? " with " : "", o->suffix);
    } else if (strcmp(o->meaning, "csr") == 0) {
        snprintf(
            buf, n, "%s control register or 0..255",
            info->mnemonic[0] == 'u' ? "an upper worker" : "a");
    } else if (o->kind == ISA_SI) {
        snprintf(buf, n, "%" PRId64 "..%" PRId64, -limit / 2, limit / 2 - 1);
    } else if (o->kind == ISA_IZ) {
        snprintf(buf, n, "32 bits of which the low %d are 0", 32 - o->bits);
    } else if (o->kind == ISA_ABS) {
        snprintf(buf, n, "an address 0..0x%" PRIx64 " divisible by 4", (uint64_t)(limit - 1) * 4);
    } else {
        snprintf(buf, n, "0..%" PRId64, limit - 1);
    }
}

/* An access `ld32 $m1, $m2, 0` or `ld32 $m1, $m2, $m3` leaves out its delta $mzero; what is left is
 * the offset in elements. */
static bool may_omit_delta(const struct isa_info *info) {
    return (info->flags & (ISA_LOAD | ISA_STORE)) != 0 && info->operand_count == 4 &&
           info->operands[2].letter == 'b' && info->operands[2].kind == ISA_M &&
           info->operands[2].suffix[0] == '\0' &&
           (info->operands[3].kind == ISA_ZI || info->operands[3].kind == ISA_M);
}

struct match {
    struct insn insn;
    int rank;    /* of the immediate's kind, lower is taken first */
    int matched; /* operands that fitted, as counted in the text */
};

/* Matches one form; true when all operands fit. */
static bool match_form(const struct request *q, enum isa_op op, struct match *ret) {
    const struct isa_info *info = isa_info(op);
    int gap = q->arg_count == info->operand_count - 1 && may_omit_delta(info) ? 2 : -1;
    *ret = (struct match){.insn.op = (uint16_t)op};
    int at = 0;
    for (int i = 0; i < info->operand_count; i++) {
        const struct isa_operand *o = &info->operands[i];
        int index = o->letter - 'a';
        if (i == gap) {
            ret->insn.v[index] = 15;
            continue;
        }
        const struct isa_arg *arg = &q->args[at++];
        if (o->kind < ISA_ZI) {
            if (!matches_register(info, o, arg)) {
                return false;
            }
            ret->insn.v[index] = arg->first;
        } else {
            bool is_forced_out = q->forced_kind >= 0 && o->kind != q->forced_kind;
            if (is_forced_out || !matches_immediate(info, o, arg, &ret->insn.v[index])) {
                return false;
            }
            ret->rank = o->kind == ISA_SI ? 1 : o->kind == ISA_ZI ? 2 : 3;
        }
        ret->matched++;
    }
    return q->forced_kind < 0 || ret->rank > 0;
}

static int fail_mnemonic(const char *mnemonic, enum isa_unit unit, struct err *err) {
    enum isa_op forms[MAX_FORMS];
    enum isa_unit other = unit == ISA_WORKER ? ISA_SUPERVISOR : ISA_WORKER;
    if (isa_forms(mnemonic, other, forms, MAX_FORMS) > 0) {
        return err_set(
            err, ERR_ASM, "'%s' is no instruction of a %s", mnemonic,
            unit == ISA_WORKER ? "worker" : "supervisor");
    }
    return err_set(err, ERR_ASM, "unknown instruction '%s'", mnemonic);
}

/* Says what was expected at the furthest operand that any form reached. */
static int fail_operands(
    const struct request *q, const enum isa_op *forms, int form_count, int *ret_bad,
    struct err *err) {
    int furthest = -1;
    int wanted = 0;
    char expected[400] = "";
    for (int f = 0; f < form_count; f++) {
        const struct isa_info *info = isa_info(forms[f]);
        wanted = info->operand_count;
        struct match match;
        bool has_gap = q->arg_count == info->operand_count - 1 && may_omit_delta(info);
        if ((q->arg_count != info->operand_count && !has_gap) || match_form(q, forms[f], &match)) {
            continue;
        }
        int index = match.matched + (has_gap && match.matched >= 2 ? 1 : 0);
        if (index >= info->operand_count || match.matched < furthest) {
            continue;
        }
        if (match.matched > furthest) {
            expected[0] = '\0';
        }
        furthest = match.matched;
        char text[80];
        describe(info, &info->operands[index], text, sizeof text);
        if (strstr(expected, text) == NULL) {
            size_t used = strlen(expected);
            snprintf(expected + used, sizeof expected - used, "%s%s", used > 0 ? " or " : "", text);
        }
    }
    *ret_bad = furthest;
    if (furthest < 0) {
        return err_set(
            err, ERR_ASM, "%s takes %d operand%s, got %d", q->mnemonic, wanted,
            wanted == 1 ? "" : "s", q->arg_count);
    }
    return err_set(
        err, ERR_ASM, "operand %d of %s: expected %s", furthest + 1, q->mnemonic, expected);
}

int isa_select(
    const char *mnemonic, enum isa_unit unit, const struct isa_arg *args, int arg_count,
    struct insn *ret, int *ret_bad, struct err *err) {
    struct request q = {.arg_count = arg_count, .forced_kind = -1};
    enum isa_op forms[MAX_FORMS];
    *ret_bad = -1;
    if (strlen(mnemonic) >= sizeof q.mnemonic || arg_count > ISA_MAX_ARGS) {
        return err_set(err, ERR_ASM, "unknown instruction '%.40s'", mnemonic);
    }
    rename_to(&q, mnemonic);
    if (arg_count > 0) {
        memcpy(q.args, args, (size_t)arg_count * sizeof args[0]);
    }
    rewrite_alias(&q);
    int form_count = isa_forms(q.mnemonic, unit, forms, MAX_FORMS);
    if (form_count == 0) {
        return fail_mnemonic(mnemonic, unit, err);
    }
    form_count = form_count < MAX_FORMS ? form_count : MAX_FORMS;
    struct match best = {.rank = 9};
    for (int f = 0; f < form_count; f++) {
        const struct isa_info *info = isa_info(forms[f]);
        struct match match;
        bool has_gap = q.arg_count == info->operand_count - 1 && may_omit_delta(info);
        if ((q.arg_count == info->operand_count || has_gap) && match_form(&q, forms[f], &match) &&
            match.rank < best.rank) {
            best = match;
        }
    }
    if (best.insn.op == ISA_OP_NONE) {
        return fail_operands(&q, forms, form_count, ret_bad, err);
    }
    *ret = best.insn;
    return 0;
}
