/* Decodes all that was emitted: every word an instruction, every target in code, equal barriers on
 * all tiles, tables inside their area. Programs are read back as a stranger would. */
#include "emit/emit_internal.h"

struct barriers {
    uint64_t init, turn;
};

static int fault(struct err *err, uint32_t tile, const char *text) {
    return err_set(err, ERR_INTERNAL, "emit: logical tile %u: %s", tile, text);
}

static bool is_code(const struct emit_context *c, const struct emit_tile_layout *x, uint32_t addr) {
    return addr % 4 == 0 &&
           ((addr >= RT_TEXT_BASE && addr < RT_TEXT_BASE + c->text->size + x->main_bytes) ||
            (addr >= RT_DATA0 && addr < RT_DATA0 + x->more_bytes));
}

/* A loop inside a program: from setzi $m8, turns - 1 ; st32 $m8 through $m2 to the branch back. */
struct turns {
    uint32_t start; /* address; 0 outside */
    uint64_t m8;    /* last value set */
    uint64_t counted, more;
};

/* Barriers that one word adds. */
static int count_word(
    const struct emit_context *c, const struct emit_tile_layout *x, uint32_t t, uint32_t addr,
    const struct insn *insn, struct turns *loop, uint64_t *counted, struct err *err) {
    bool is_call = insn->op == ISA_OP_call_mmmn_zi;
    bool is_back = insn->op == ISA_OP_brnz_mmmn_zi;
    uint32_t target = (uint32_t)insn->v[is_call || is_back ? 1 : 0];
    if ((is_call || is_back || insn->op == ISA_OP_bri_mmmn_zi) && !is_code(c, x, target)) {
        return fault(err, t, "a branch leaves the code");
    }
    if (insn->op == ISA_OP_setzi_mmmn_zi && insn->v[0] == 8) {
        loop->m8 = (uint64_t)insn->v[1];
    } else if (insn->op == ISA_OP_st32_mmmn_zi && insn->v[0] == 2 && insn->v[3] == 8) {
        *loop = (struct turns){addr + 4, loop->m8, *counted, loop->m8};
    } else if (is_back) {
        if (insn->v[0] != 8 || target != loop->start) {
            return fault(err, t, "a loop does not branch to its start");
        }
        *counted += loop->more * (*counted - loop->counted);
        loop->start = 0;
    } else if (is_call) {
        *counted += target == c->text->host_in || target == c->text->host_out ? 2 : 0;
    } else if (insn->op == ISA_OP_sans_zi) {
        *counted += (uint64_t)insn->v[0] + 1;
    } else if (insn->op == ISA_OP_sync_zi && insn->v[0] == 3) {
        ++*counted;
    }
    return 0;
}

/* Barriers of a host routine are two. Counts from the words alone: sans, sync 3, known calls. */
static int check_program(
    const struct emit_context *c, const struct emit_tile_layout *x, uint32_t t,
    const uint32_t *words, struct barriers *ret, struct err *err) {
    uint64_t counted = 0, at_loop = 0;
    uint32_t run = 0; /* address to which the last word branches: a run starts there */
    for (int pass = 0; pass < 2; pass++) { /* first finds it, then counts on both sides */
        struct turns loop = {0};
        counted = 0;
        for (uint32_t i = 0; i < x->program_words; i++) {
            struct insn insn;
            uint32_t addr = x->program + 4 * i;
            if (!isa_decode(words[i], ISA_SUPERVISOR, &insn)) {
                return fault(err, t, "a word of the program is no instruction");
            }
            if (pass == 1 && addr == run) {
                at_loop = counted;
            }
            if (count_word(c, x, t, addr, &insn, &loop, &counted, err) != 0) {
                return -err->code;
            }
            run = insn.op == ISA_OP_bri_mmmn_zi ? (uint32_t)insn.v[0] : run;
        }
        if (loop.start != 0) {
            return fault(err, t, "a loop without end");
        }
    }
    *ret = (struct barriers){at_loop, counted - at_loop};
    return 0;
}

static int check_row(
    const struct emit_context *c, const struct emit_tile_layout *x, uint32_t t, uint32_t level,
    struct err *err) {
    const struct exchange_row *row =
        exchange_plan_row(c->exchange, level, (struct logical_tile){(uint16_t)t});
    if (row == NULL) {
        return x->row[level] == 0 ? 0 : fault(err, t, "has another tile's row");
    }
    if (x->row[level] % 8 != 0 || !is_code(c, x, x->row[level])) {
        return fault(err, t, "a row is misplaced");
    }
    for (uint32_t i = 0; i < row->word_count; i++) {
        struct insn insn;
        if (!isa_decode(row->words[i], ISA_SUPERVISOR, &insn)) {
            return fault(err, t, "a word of a row is no instruction");
        }
        i += isa_words((enum isa_op)insn.op) - 1;
    }
    return 0;
}

int emit_verify(
    const struct emit_context *c, const struct emit_layout *l, const struct emit_code *code,
    struct err *err) {
    struct barriers first = {0};
    for (uint32_t t = 0; t < TARGET_TILES; t++) {
        const struct emit_tile_layout *x = &l->tiles[t];
        struct barriers own = {0};
        int rc = check_program(c, x, t, code->programs[t], &own, err);
        for (uint32_t level = 0; rc == 0 && level < c->tg->level_count; level++) {
            rc = check_row(c, x, t, level, err);
        }
        if (rc != 0) {
            return rc;
        }
        first = t == 0 ? own : first;
        if (own.init != first.init || own.turn != first.turn) {
            return fault(err, t, "counts other barriers than logical tile 0");
        }
        if (RT_TEXT_BASE + c->text->size + x->main_bytes > RT_TEXT_LIMIT ||
            x->program < RT_TEXT_BASE + c->text->size ||
            RT_TABLES + 4 * x->table_main_words > x->marks ||
            (x->table_words > x->table_main_words &&
             (x->table_more < RT_DATA0 + x->more_bytes ||
              x->table_more + 4 * (x->table_words - x->table_main_words) >
                  RT_DATA0 + l->overflow_elements[t] * TARGET_ELEMENT_BYTES)) ||
            x->more_bytes > l->overflow_elements[t] * TARGET_ELEMENT_BYTES) {
            return fault(err, t, "code or tables leave their area");
        }
    }
    uint64_t host = 2ull * c->host->stream_phases[STREAM_INITIALIZE];
    uint64_t turn =
        2ull * (c->host->stream_phases[STREAM_INPUT] + c->host->stream_phases[STREAM_OUTPUT]) +
        c->exchange->phase_runs;
    return first.init == host && first.turn == turn
               ? 0
               : fault(err, 0, "does not take part in every barrier");
}
