/* Words to decoded groups, once per word. Code of each unit is kept in blocks of 256 words that
 * are made when first executed; element 256 of a block is the second half of a bundle that
 * straddles its end. A store drops the decoded word and the group one word earlier, of which it
 * may be the second half. */
#include "sim/exec.h"

#include <stdlib.h>

#include "sim/exec_imm.h"

static const uint8_t latency_of[ISA_OP_COUNT] = {
#define TIMING(name, value, tag, source)
#define LATENCY(op, value, tag, source) [ISA_OP_##op] = value,
#include "sim/timing.def"
#undef TIMING
#undef LATENCY
};

static const struct dec bad = {.kind = DEC_BAD, .latency = 1};

static bool is_main_kind(uint8_t kind) {
    return kind == ISA_M || kind == ISA_M_PAIR;
}

static uint32_t kind_width(uint8_t kind) {
    switch (kind) {
    case ISA_M_PAIR:
    case ISA_A_PAIR: return 2;
    case ISA_A_QUAD: return 4;
    default: return 1;
    }
}

/* A register operand: number aligned, sink chosen, masks extended. */
static void take_register(struct dec *d, const struct isa_operand *o, uint32_t n, bool is_sup) {
    uint32_t width = kind_width(o->kind);
    uint32_t existing = is_main_kind(o->kind) ? 12 : 8;
    uint16_t bits;
    int letter = o->letter - 'a';

    n &= ~(width - 1);
    d->r[letter] = (uint8_t)n;
    d->w[letter] = (uint8_t)(n < existing ? n : SINK);
    if (is_main_kind(o->kind) != is_sup || (is_sup && n >= existing)) {
        return; /* masks: $m for the supervisor's scoreboard, $a for bundles of a worker */
    }
    bits = (uint16_t)(((1u << width) - 1) << n);
    if (o->is_read) {
        d->reads |= bits;
    }
    if (o->is_written) {
        d->writes |= bits;
    }
}

/* False when the form has no published meaning. */
static bool take_insn(const struct insn *insn, bool is_sup, enum exec_level level, struct dec *d) {
    const struct isa_info *info = isa_info((enum isa_op)insn->op);
    bool has_imm = false;

    *d = (struct dec){.op = insn->op, .latency = 1};
    if (latency_of[insn->op] != 0) {
        d->latency = latency_of[insn->op];
    }
    if ((info->flags & (ISA_CONTROL | ISA_SYSTEM)) != 0) {
        d->flags |= DEC_NO_RPT;
    }
    if (info->pipe == ISA_AUX && (info->flags & ISA_SYSTEM) != 0) {
        d->flags |= DEC_GUARDED;
    }
    for (int i = 0; i < info->operand_count; i++) {
        const struct isa_operand *o = &info->operands[i];
        int32_t v = insn->v[o->letter - 'a'];

        if (o->kind < ISA_ZI) {
            take_register(d, o, (uint32_t)v, is_sup);
        } else if (!has_imm) {
            d->imm = v;
            has_imm = true;
        } else if (o->letter <= 'd') {
            d->r[o->letter - 'a'] = (uint8_t)v;
        }
    }
    if (!imm_take(d)) {
        return false;
    }
    d->fn = exec_choose(d, level);
    return true;
}

bool decode_word(uint32_t word, enum isa_unit unit, struct dec *ret) {
    struct insn insn;

    if (!isa_decode(word, unit, &insn) ||
        !take_insn(&insn, unit == ISA_SUPERVISOR, EXEC_SCALAR, ret)) {
        return false;
    }
    ret->kind = DEC_SOLO;
    return true;
}

static uint32_t word_at(const struct tile *t, uint32_t addr) {
    return t->pages[(addr - TARGET_MEM_BASE) / PAGE_BYTES].words[(addr >> 2) % PAGE_WORDS];
}

/* Makes d write its $a registers where they do not disturb the other half of the bundle. */
static void lay_aside(enum isa_op op, struct dec *d) {
    const struct isa_info *info = isa_info(op);

    for (int i = 0; i < info->operand_count; i++) {
        const struct isa_operand *o = &info->operands[i];
        int letter = o->letter - 'a';

        if (o->kind < ISA_ZI && o->is_written && !is_main_kind(o->kind) && d->w[letter] < SINK) {
            d->w[letter] = (uint8_t)(CROSSED + d->w[letter]);
        }
    }
    if (op == ISA_OP_ld64a32_mmbn) {
        d->writes &= (uint16_t) ~(1u << d->r[D]); /* the one load that leaves a word of its quad */
    }
}

/* The group at addr into e[0] and, for a bundle, e[1]. */
static void decode_group(const struct tile *t, bool is_sup, uint32_t addr, struct dec *e) {
    enum isa_unit unit = is_sup ? ISA_SUPERVISOR : ISA_WORKER;
    struct insn x, y;
    struct dec second;

    if (!isa_decode(word_at(t, addr), unit, &x) || !take_insn(&x, is_sup, t->level, &e[0])) {
        e[0] = bad;
        return;
    }
    if (!x.coissue) {
        e[0].kind = DEC_SOLO;
        return;
    }
    if (is_sup || isa_info((enum isa_op)x.op)->pipe != ISA_MAIN || !pc_is_valid(addr + 4) ||
        !isa_decode(word_at(t, addr + 4), unit, &y) || !y.coissue ||
        isa_info((enum isa_op)y.op)->pipe != ISA_AUX || !take_insn(&y, is_sup, t->level, &second) ||
        (e[0].writes & second.writes & 0x3FFF) != 0) { /* $a14, $a15: dummies, once per half */
        e[0] = bad;
        return;
    }
    second.kind = DEC_BAD; /* nothing starts at the second word */
    e[0].flags |= second.flags;
    if (second.latency > e[0].latency) {
        e[0].latency = second.latency;
    }
    e[0].kind = DEC_BUNDLE;
    if ((e[0].writes & second.reads & 0xFF) != 0) {
        e[0].kind = DEC_CROSSED;
        lay_aside((enum isa_op)x.op, &e[0]);
    }
    e[1] = second;
}

const struct dec *decode_at(struct tile *t, const struct context *c) {
    bool is_sup = c->index == 0;
    struct dec **block = &t->code[is_sup ? 0 : 1][(c->pc - TARGET_MEM_BASE) / (4 * CODE_WORDS)];
    struct dec *e;

    if (!pc_is_valid(c->pc)) {
        return &bad;
    }
    if (*block == NULL) {
        *block = calloc(CODE_WORDS + 1, sizeof **block);
        if (*block == NULL) {
            t->is_starved = true;
            return &bad;
        }
    }
    e = &(*block)[(c->pc >> 2) % CODE_WORDS];
    if (e->kind == DEC_NONE) {
        decode_group(t, is_sup, c->pc, e);
    }
    return e;
}

void code_drop(struct tile *t, uint32_t addr) {
    uint32_t block = (addr - TARGET_MEM_BASE) / (4 * CODE_WORDS);
    uint32_t i = (addr >> 2) % CODE_WORDS;

    for (int unit = 0; unit < 2; unit++) {
        if (t->code[unit][block] != NULL) {
            t->code[unit][block][i].kind = DEC_NONE;
            if (i > 0) {
                t->code[unit][block][i - 1].kind = DEC_NONE;
            }
        }
        if (i == 0 && block > 0 && t->code[unit][block - 1] != NULL) {
            t->code[unit][block - 1][CODE_WORDS - 1].kind = DEC_NONE;
        }
    }
}

void code_free(struct tile *t) {
    for (int unit = 0; unit < 2; unit++) {
        for (uint32_t i = 0; i < CODE_BLOCKS; i++) {
            free(t->code[unit][i]);
            t->code[unit][i] = NULL;
        }
    }
}
