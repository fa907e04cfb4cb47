/* struct insn to text, in the assembly order of the operands. */
#include "isa/isa.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "isa/isa_internal.h"

struct out {
    char *buf;
    size_t size;
    size_t len; /* what the whole text needs */
};

static void put(struct out *out, const char *text) {
    for (; *text != '\0'; text++) {
        if (out->len + 1 < out->size) {
            out->buf[out->len] = *text;
        }
        out->len++;
    }
}

const char *isa_forced_suffix(const struct insn *insn) {
    const struct isa_info *info = isa_info((enum isa_op)insn->op);
    enum isa_op forms[8];
    int form_count =
        isa_forms(info->mnemonic, (enum isa_unit)(info->units & -info->units), forms, 8);
    const struct isa_operand *o = NULL;
    for (int i = 0; i < info->operand_count; i++) {
        if (info->operands[i].kind == ISA_ZI || info->operands[i].kind == ISA_IZ) {
            o = &info->operands[i];
        }
    }
    if (o == NULL) {
        return "";
    }
    int32_t v = insn->v[o->letter - 'a'];
    if (o->kind == ISA_IZ) {
        return v == 0 ? "iz" : "";
    }
    for (int f = 0; f < form_count && f < 8; f++) {
        /* The signed twin differs in the kind of one operand alone, so its form's name says it. */
        if (strcmp(isa_info(forms[f])->form, "mmmn_si") == 0 && v < 1 << (o->bits - 1)) {
            return "z";
        }
    }
    return "";
}

static void put_register(struct out *out, const struct isa_operand *o, int number) {
    static const struct {
        char file;
        uint8_t count;
        const char *broadcast;
    } shapes[] = {
        [ISA_M] = {'m', 1, ""},       [ISA_M_PAIR] = {'m', 2, ""},  [ISA_A] = {'a', 1, ""},
        [ISA_A_PAIR] = {'a', 2, ""},  [ISA_A_QUAD] = {'a', 4, ""},  [ISA_A_B] = {'a', 1, ":B"},
        [ISA_A_BL] = {'a', 1, ":BL"}, [ISA_A_BU] = {'a', 1, ":BU"},
    };
    char text[40];
    snprintf(text, sizeof text, "$%c%d", shapes[o->kind].file, number);
    put(out, text);
    if (shapes[o->kind].count > 1) {
        snprintf(text, sizeof text, ":%d", number + shapes[o->kind].count - 1);
        put(out, text);
    }
    put(out, shapes[o->kind].broadcast);
    put(out, o->suffix);
}

/* unit 0 prints control registers as numbers. */
static void put_operand(
    struct out *out, const struct isa_info *info, const struct isa_operand *o, int32_t v,
    int unit) {
    char text[40];
    if (o->kind < ISA_ZI) {
        put_register(out, o, v);
        return;
    }
    if (unit != 0 && strcmp(o->meaning, "csr") == 0) {
        int number = info->mnemonic[0] == 'u' ? 256 + v : v;
        const char *name = isa_csr_name(number, (enum isa_unit)unit);
        if (name != NULL) {
            put(out, "$");
            put(out, name);
            return;
        }
    }
    if (o->kind == ISA_IZ || o->kind == ISA_ABS) {
        snprintf(text, sizeof text, "0x%" PRIx32, (uint32_t)v);
    } else {
        snprintf(text, sizeof text, "%" PRId32, v);
    }
    put(out, text);
}

static int print(const struct insn *insn, int unit, char *buf, size_t n) {
    struct out out = {.buf = buf, .size = n};
    const struct isa_info *info = isa_info((enum isa_op)insn->op);
    if (info == NULL) {
        put(&out, "?");
    } else {
        put(&out, info->mnemonic);
        put(&out, isa_forced_suffix(insn));
        for (int i = 0; i < info->operand_count; i++) {
            const struct isa_operand *o = &info->operands[i];
            put(&out, i == 0 ? " " : ", ");
            put_operand(&out, info, o, insn->v[o->letter - 'a'], unit);
        }
    }
    if (n > 0) {
        buf[out.len < n ? out.len : n - 1] = '\0';
    }
    return (int)out.len;
}

int isa_print(const struct insn *insn, char *buf, size_t n) {
    return print(insn, 0, buf, n);
}

int isa_print_named(const struct insn *insn, enum isa_unit unit, char *buf, size_t n) {
    return print(insn, (int)unit, buf, n);
}
