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

/* Barriers of a host routine are two. Counts from the words alone: sans, sync 3, known calls. */
static int check_program(
    const struct emit_context *c, const struct emit_tile_layout *x, uint32_t t,
    const uint32_t *words, struct barriers *ret, struct err *err) {
    uint64_t counted = 0, at_loop = 0;
    uint32_t loop = 0;
    for (int pass = 0; pass < 2; pass++) { /* first finds the loop, then counts on both sides */
        counted = 0;
        for (uint32_t i = 0; i < x->program_words; i++) {
            struct insn insn;
            if (!isa_decode(words[i], ISA_SUPERVISOR, &insn)) {
                return fault(err, t, "a word of the program is no instruction");
            }
            if (pass == 1 && x->program + 4 * i == loop) {
                at_loop = counted;
            }
            uint32_t target = (uint32_t)insn.v[insn.op == ISA_OP_call_mmmn_zi ? 1 : 0];
            if (insn.op == ISA_OP_call_mmmn_zi || insn.op == ISA_OP_bri_mmmn_zi) {
                if (!is_code(c, x, target)) {
                    return fault(err, t, "a branch leaves the code");
                }
                bool is_host = target == c->text->host_in || target == c->text->host_out;
                counted += is_host ? 2 : 0;
                loop = insn.op == ISA_OP_bri_mmmn_zi ? target : loop;
            } else if (insn.op == ISA_OP_sans_zi) {
                counted += (uint64_t)insn.v[0] + 1;
            } else if (insn.op == ISA_OP_sync_zi && insn.v[0] == 3) {
                counted++;
            }
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
        return 0;
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
        c->exchange->phase_count;
    return first.init == host && first.turn == turn
               ? 0
               : fault(err, 0, "does not take part in every barrier");
}
