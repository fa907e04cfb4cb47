/* Instructions: operands, bundles and their rules, repeats.
 *
 * An instruction is kept as written (struct code) only while something in it is unknown; with all
 * values known it becomes words at once. While values are open, form and bundle rules are checked
 * already, so that the message comes when the source is assembled. */
#include "asm/asm_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"

/* ---- operands ---- */

/* A register written out, or a name set to one; 1 when taken, 0 when it is something else. */
static int register_operand(struct cursor *c, struct operand *ret) {
    struct assembler *as = c->as;
    size_t used = isa_parse_register(c->p, strlen(c->p), as->unit, &ret->arg);
    if (*c->p == '$') {
        c->p += used;
        return used > 0 ? 1
                        : cursor_fail(
                              c, "no such register in a %s",
                              as->unit == ISA_WORKER ? "worker" : "supervisor");
    }
    char name[64], text[32];
    const char *before = c->p;
    if (cursor_name(c, name, sizeof name) > 0) {
        uint32_t id = intern_find(&as->object->names, name);
        const struct symbol *s = id != INTERN_NONE ? symbol_of(as, id) : NULL;
        if (s != NULL && s->kind == SYMBOL_REGISTER) {
            size_t own = strlen(s->register_text);
            size_t n = (size_t)snprintf(text, sizeof text, "%s%.4s", s->register_text, c->p);
            used = isa_parse_register(text, n, as->unit, &ret->arg);
            c->p += used - own;
            return 1;
        }
    }
    c->p = before;
    return 0;
}

static int parse_operands(struct cursor *c, struct code *code) {
    cursor_blanks(c);
    if (*c->p == '\0') {
        return 0;
    }
    do {
        cursor_blanks(c);
        if (code->operand_count == ISA_MAX_ARGS) {
            return cursor_fail(c, "an instruction has at most %d operands", ISA_MAX_ARGS);
        }
        struct operand *o = &code->operands[code->operand_count];
        *o = (struct operand){.column = cursor_at(c).column};
        int r = register_operand(c, o);
        if (r == 0) {
            o->arg.type = ISA_ARG_NUMBER;
            r = expr_parse(c, &o->expr);
        }
        if (r < 0) {
            return r;
        }
        code->operand_count++;
    } while (cursor_take(c, ','));
    return cursor_end(c);
}

/* ---- to words ---- */

static int code_fail(
    const struct resolver *r, const struct code *code, int operand, const struct err *cause,
    struct err *err) {
    struct location at = code->at;
    if (operand >= 0 && operand < code->operand_count) {
        at.column = code->operands[operand].column;
    }
    return asm_fail(r->object, err, &at, "%s", cause->text);
}

/* Operands with their values; *is_open when one is not known yet. */
static int evaluate(
    const struct resolver *r, const struct code *code, struct isa_arg *args, bool *is_open,
    struct err *err) {
    for (int i = 0; i < code->operand_count; i++) {
        const struct operand *o = &code->operands[i];
        struct location at = code->at;
        struct value v;
        args[i] = o->arg;
        if (o->expr == NULL) {
            continue;
        }
        at.column = o->column;
        int status = expr_eval(r, o->expr, &at, &v, err);
        if (status < 0) {
            return status;
        }
        args[i].value = v.k;
        args[i].is_open = v.kind != VALUE_CONST;
        *is_open = *is_open || args[i].is_open;
    }
    return 0;
}

static bool is_sendpicp(const struct code *code) {
    return strcmp(code->mnemonic, "sendpicp") == 0;
}

/* The data word of sendpicp from its operands 5 and 6. */
static int sendpicp_data(
    const struct resolver *r, const struct code *code, const struct isa_arg *args,
    uint32_t *ret_word, struct err *err) {
    static const int32_t limits[] = {0x3fff, 0x3ffff};
    struct err cause = {0};
    if (code->operand_count != 6) {
        err_set(&cause, ERR_ASM, "sendpicp takes 6 operands, got %d", code->operand_count);
        return code_fail(r, code, -1, &cause, err);
    }
    for (int i = 0; i < 2; i++) {
        const struct isa_arg *arg = &args[4 + i];
        bool is_number = arg->type == ISA_ARG_NUMBER;
        if (!is_number || (!arg->is_open && (arg->value < 0 || arg->value > limits[i]))) {
            err_set(
                &cause, ERR_ASM, "operand %d of sendpicp: expected 0..%" PRId32, 5 + i, limits[i]);
            return code_fail(r, code, 4 + i, &cause, err);
        }
    }
    *ret_word = isa_sendpicp_data((uint32_t)args[4].value, (uint32_t)args[5].value);
    return 0;
}

/* One bit a register: 0..15 main, 16..31 aux. Registers that drop what is written do not count. */
static uint32_t registers_written(const struct insn *insn) {
    const struct isa_info *info = isa_info((enum isa_op)insn->op);
    uint32_t set = 0;
    for (int i = 0; i < info->operand_count; i++) {
        const struct isa_operand *o = &info->operands[i];
        bool is_main = o->kind == ISA_M || o->kind == ISA_M_PAIR;
        uint32_t bits = o->kind == ISA_A_QUAD                            ? 15
                        : o->kind == ISA_M_PAIR || o->kind == ISA_A_PAIR ? 3
                                                                         : 1;
        if (o->is_written) {
            set |= bits << (insn->v[o->letter - 'a'] + (is_main ? 0 : 16));
        }
    }
    return set & ~(1u << 15 | 3u << 30);
}

static int
check_bundle(const struct code *code, const struct insn *insns, int *ret_half, struct err *err) {
    for (int i = 0; i < 2; i++) {
        const struct isa_info *info = isa_info((enum isa_op)insns[i].op);
        *ret_half = i;
        if ((info->flags & ISA_COISSUE) == 0) {
            return err_set(err, ERR_ASM, "%s cannot be half of a bundle", code[i].mnemonic);
        }
        if (info->pipe != (i == 0 ? ISA_MAIN : ISA_AUX)) {
            return err_set(
                err, ERR_ASM,
                "%s is an instruction of the %s lane, the %s of a bundle "
                "must be one of the %s lane",
                code[i].mnemonic, i == 0 ? "aux" : "main", i == 0 ? "first half" : "second half",
                i == 0 ? "main" : "aux");
        }
    }
    uint32_t both = registers_written(&insns[0]) & registers_written(&insns[1]);
    if (both != 0 && !code[1].may_break_rules) {
        int number = __builtin_ctz(both);
        return err_set(
            err, ERR_ASM, "both halves of the bundle (%s, %s) write $%c%d", code[0].mnemonic,
            code[1].mnemonic, number < 16 ? 'm' : 'a', number & 15);
    }
    return 0;
}

int code_resolve(
    const struct resolver *r, const struct code *code, int count, uint32_t words[2],
    struct err *err) {
    struct insn insns[2] = {0};
    struct err cause = {0};
    bool is_open = false;
    for (int i = 0; i < count; i++) {
        struct isa_arg args[ISA_MAX_ARGS];
        int bad = -1;
        int status = evaluate(r, &code[i], args, &is_open, err);
        if (status == 0 && is_sendpicp(&code[i])) {
            status = sendpicp_data(r, &code[i], args, &words[1], err);
        }
        if (status < 0) {
            return status;
        }
        int arg_count = is_sendpicp(&code[i]) ? 4 : code[i].operand_count;
        if (isa_select(
                code[i].mnemonic, (enum isa_unit)code[i].unit, args, arg_count, &insns[i], &bad,
                &cause) < 0) {
            return code_fail(r, &code[i], bad, &cause, err);
        }
        insns[i].coissue = count == 2;
    }
    int half = 0;
    if (count == 2 && check_bundle(code, insns, &half, &cause) < 0) {
        return code_fail(r, &code[half], -1, &cause, err);
    }
    for (int i = 0; i < count; i++) {
        if (isa_encode(&insns[i], &words[i], &cause) < 0) {
            return code_fail(r, &code[i], -1, &cause, err);
        }
    }
    return is_open ? 1 : 0;
}

/* ---- into the section ---- */

static int
note_repeat(struct assembler *as, const struct code *code, uint32_t offset, uint32_t size) {
    struct section *s = section_now(as);
    if (strcmp(code->mnemonic, "rpt") != 0 || as->may_break_repeats) {
        return 0;
    }
    if ((offset + size) % 8 != 0) {
        return asm_fail(
            as->object, as->err, &code->at,
            "the body of rpt must start at a multiple of "
            "8, this one starts at offset 0x%x of %s: put a nop or .p2align 3 before",
            offset + size, s->name);
    }
    s->align = s->align < 8 ? 8 : s->align;
    struct repeat repeat = {as->section, offset, offset + size, SIZE_MAX, code->at};
    const struct asm_object *object = as->object;
    size_t last = object->items.len - 1;
    if (object->items.len > 0 && object->items.data[last].section == as->section &&
        object->items.data[last].offset == offset) {
        repeat.item = last;
    }
    vec_push(as->arena, &as->repeats, repeat);
    return 0;
}

static int emit(struct assembler *as, const struct code *code, int count) {
    struct section *s = section_now(as);
    struct item item = {
        .section = as->section,
        .offset = (uint32_t)s->bytes.len,
        .at = code->at,
        .code_count = count,
        .code = (struct code *)code};
    uint8_t bytes[8] = {0};
    struct resolver resolver = {.object = as->object};
    if (item.offset % 4 != 0) {
        return asm_fail(
            as->object, as->err, &code->at,
            "instruction at offset 0x%x of %s, which is no "
            "multiple of 4",
            item.offset, s->name);
    }
    int r = item_resolve(&resolver, &item, bytes, as->err);
    if (r < 0) {
        return r;
    }
    uint32_t size = (uint32_t)item_size(&item);
    if (is_sendpicp(code) && item.offset % 8 != 0) {
        return asm_fail(
            as->object, as->err, &code->at,
            "sendpicp must stand at a multiple of 8, this "
            "one stands at offset 0x%x of %s",
            item.offset, s->name);
    }
    if (is_sendpicp(code)) {
        s->align = s->align < 8 ? 8 : s->align;
    }
    if (r > 0) {
        item.code = arena_memdup(as->arena, code, (size_t)count * sizeof *code);
        vec_push(as->arena, &as->object->items, item);
    }
    s->has_code = true;
    r = note_repeat(as, code, item.offset, size);
    return r < 0 ? r : section_append(as, bytes, size, &code->at);
}

/* ldconst R, value: setzi of the low 20 bits, then or of the rest. */
static int load_constant(struct assembler *as, struct code *code) {
    struct resolver resolver = {.object = as->object};
    struct value v = {0};
    if (code->operand_count != 2 || code->operands[0].expr != NULL ||
        code->operands[1].expr == NULL) {
        return asm_fail(as->object, as->err, &code->at, "ldconst takes a register and a number");
    }
    struct location at = code->at;
    at.column = code->operands[1].column;
    int r = expr_eval(&resolver, code->operands[1].expr, &at, &v, as->err);
    if (r < 0) {
        return r;
    }
    code->mnemonic = "setzi";
    if (v.kind != VALUE_CONST) {
        return emit(as, code, 1);
    }
    if (v.k < INT32_MIN || v.k > UINT32_MAX) {
        return asm_fail(as->object, as->err, &at, "%" PRId64 " does not fit 32 bits", v.k);
    }
    uint32_t high = (uint32_t)v.k & 0xfff00000u;
    code->operands[1].expr = expr_const(as->arena, v.k & 0xfffff);
    r = emit(as, code, 1);
    if (r < 0 || high == 0) {
        return r;
    }
    code->mnemonic = "or";
    code->operands[2] = code->operands[1];
    code->operands[2].expr = expr_const(as->arena, high);
    code->operands[1] = code->operands[0];
    code->operand_count = 3;
    return emit(as, code, 1);
}

int code_statement(struct cursor *c, const char *mnemonic, const struct location *at) {
    struct assembler *as = c->as;
    struct code code = {
        .mnemonic = mnemonic,
        .unit = (uint8_t)as->unit,
        .at = *at,
        .may_break_rules = as->may_break_bundles};
    int r = parse_operands(c, &code);
    if (r < 0) {
        return r;
    }
    code.mnemonic = intern_name(&as->object->names, symbol_id(as, mnemonic));
    if (as->in_bundle && as->bundle_count == 2) {
        return asm_fail(as->object, as->err, &code.at, "a bundle holds two instructions");
    }
    if (as->in_bundle) {
        as->bundle[as->bundle_count++] = code;
        return 0;
    }
    return strcmp(mnemonic, "ldconst") == 0 ? load_constant(as, &code) : emit(as, &code, 1);
}

int code_open_bundle(struct assembler *as, const struct location *at) {
    if (as->in_bundle) {
        return asm_fail(
            as->object, as->err, at, "'{' within the bundle of line %d", as->bundle_at.line);
    }
    as->in_bundle = true;
    as->bundle_count = 0;
    as->bundle_at = *at;
    return 0;
}

int code_close_bundle(struct assembler *as, const struct location *at) {
    if (!as->in_bundle) {
        return asm_fail(as->object, as->err, at, "'}' without '{'");
    }
    if (as->bundle_count != 2) {
        return asm_fail(
            as->object, as->err, at, "a bundle holds two instructions, this one has %d",
            as->bundle_count);
    }
    as->in_bundle = false;
    return emit(as, as->bundle, 2);
}

/* ---- repeats ---- */

static int check_body(struct assembler *as, const struct repeat *repeat, uint32_t bundles) {
    const struct section *s = &as->object->sections.data[repeat->section];
    for (uint32_t i = 0; i < bundles; i++) {
        uint32_t at = repeat->body + i * 8;
        struct insn insn;
        if (at + 8 > s->bytes.len) {
            return asm_fail(
                as->object, as->err, &repeat->at,
                "the body of rpt has %u bundles, but "
                "section %s ends before the last",
                bundles, s->name);
        }
        bool has_pair = (s->bytes.data[at + 3] & 0x80) != 0 && (s->bytes.data[at + 7] & 0x80) != 0;
        if (!has_pair || !isa_decode(load_le32(s->bytes.data + at), ISA_WORKER, &insn)) {
            return asm_fail(
                as->object, as->err, &repeat->at,
                "the body of rpt may hold bundles only, "
                "at offset 0x%x of %s stands something else",
                at, s->name);
        }
        for (int half = 0; half < 2; half++) {
            uint32_t word = load_le32(s->bytes.data + at + 4 * (uint32_t)half);
            const struct isa_info *info =
                isa_decode(word, ISA_WORKER, &insn) ? isa_info((enum isa_op)insn.op) : NULL;
            if (info != NULL && (info->flags & (ISA_CONTROL | ISA_SYSTEM)) != 0) {
                return asm_fail(
                    as->object, as->err, &repeat->at,
                    "the body of rpt may not hold %s, "
                    "which stands at offset 0x%x of %s",
                    info->mnemonic, at + 4 * (uint32_t)half, s->name);
            }
        }
    }
    return 0;
}

int code_check_repeats(struct assembler *as) {
    for (size_t i = 0; i < as->repeats.len; i++) {
        const struct repeat *repeat = &as->repeats.data[i];
        const struct section *s = &as->object->sections.data[repeat->section];
        uint32_t bundles = (uint32_t)s->bytes.data[repeat->offset] + 1; /* n lies in bits 7:0 */
        if (repeat->item != SIZE_MAX && as->is_open[repeat->item]) {
            continue; /* the length is known to the linker alone */
        }
        int r = check_body(as, repeat, bundles);
        if (r < 0) {
            return r;
        }
    }
    return 0;
}
