/* The control program of one tile (runtime.h describes its shape). Barriers in which a tile has no
 * part are counted and joined: one `sans n-1 ; sync 1` before its next own instruction. Every
 * instruction has a fixed size, so the length depends on no address. Between the first and the last
 * sample of a run, each change of work opens an interval of the profile (sample.c). */
#include "emit/emit_internal.h"

#include <assert.h>

enum { M2 = 2, M8 = 8, M9 = 9, M10 = 10, M11 = 11, M15 = 15 };

struct builder {
    const struct emit_context *c;
    const struct emit_tile_layout *l;
    struct arena *arena;
    struct emit_program *out;
    uint32_t logical;
    uint32_t idle;                  /* barriers to sit out before the next instruction */
    uint32_t idle_first, idle_last; /* levels of the first and the last of them, in sampling */
    uint32_t words;                 /* of the tile's marks, whose address is in $m11 */
    bool is_sampling;               /* between the first and the last sample */
    uint32_t table;                 /* word of the table where the next phase's descriptor lies */
    uint32_t call_table;            /* and the next call's: behind all phases */
    uint32_t vertex;                /* next call of the tile, index into index->vertex */
    struct emit_loop_plan moves;
    uint32_t turn;       /* address where a turn of the loop starts, 0 outside of it */
    uint32_t turn_start; /* barriers counted before it */
    uint32_t *barriers;  /* counter of the part being emitted */
    struct err *err;
    int rc;
};

static void put_insn(struct builder *b, const struct insn *insn) {
    struct emit_program *p = b->out;
    if (p->count == p->cap) {
        uint32_t cap = p->cap < 64 ? 64 : 2 * p->cap;
        uint32_t *grown = ARENA_ARRAY(b->arena, uint32_t, cap);
        for (uint32_t i = 0; i < p->count; i++) {
            grown[i] = p->words[i];
        }
        p->words = grown;
        p->cap = cap;
    }
    uint32_t word = 0;
    if (isa_encode(insn, &word, b->err) != 0 && b->rc == 0) {
        b->rc = err_wrap(b->err, "program of logical tile %u", b->logical);
    }
    p->words[p->count++] = word;
}

static void put_word(struct builder *b, enum isa_op op, int32_t v0, int32_t v1) {
    put_insn(b, &(struct insn){.op = (uint16_t)op, .v = {v0, v1}});
}

static void put_csr(struct builder *b, const char *name, int32_t reg) {
    int number = isa_csr_number(name, ISA_SUPERVISOR);
    assert(number >= 0);
    put_word(b, ISA_OP_put_mmmn_zi, reg, number); /* a = register, b = csr */
}

static void open_interval(struct builder *b, const struct emit_interval *x) {
    struct emit_trace *t = &b->out->trace;
    if (b->is_sampling && emit_open_interval(t, b->arena, b->words, x)) {
        int counter = isa_csr_number("SCOUNT_L", ISA_SUPERVISOR);
        assert(counter >= 0);
        put_word(b, ISA_OP_get_mmmn_zi, M8, counter);
        put_insn(/* base, delta, offset, data */
                 b, &(struct insn){
                        .op = ISA_OP_st32_mmmn_zi, .v = {M11, M15, (int32_t)t->count - 2, M8}});
    }
}

static void flush_idle(struct builder *b) {
    if (b->idle > 0) {
        open_interval(b, &(struct emit_interval){STEP_IDLE, b->idle_first, b->idle_last, 0, 0});
        put_word(b, ISA_OP_sans_zi, (int32_t)b->idle - 1, 0);
        put_word(b, ISA_OP_sync_zi, 1, 0);
        b->idle = 0;
    }
}

static void call(struct builder *b, uint32_t addr) {
    put_word(b, ISA_OP_call_mmmn_zi, M10, (int32_t)addr);
}

static void host_phase(struct builder *b, uint32_t phase) {
    const struct emit_phase *p = &b->c->host->phases[phase];
    uint32_t words = emit_phase_words(b->c, b->logical, phase);
    *b->barriers += 2;
    if (words == 0) {
        b->idle += 2;
        return;
    }
    flush_idle(b);
    put_word(b, ISA_OP_setzi_mmmn_zi, M2, (int32_t)emit_table_addr(b->l, b->table));
    call(b, p->stream == STREAM_OUTPUT ? b->c->text->host_out : b->c->text->host_in);
    b->table += words;
}

static void host_phases(struct builder *b, enum emit_stream stream) {
    for (uint32_t i = 0; i < b->c->host->phase_count; i++) {
        if (b->c->host->phases[i].stream == stream) {
            host_phase(b, i);
        }
    }
}

/* Exchange fact sheet 3.4; the same instructions on every tile that takes part. */
static void exchange(struct builder *b, uint32_t level) {
    *b->barriers += 1;
    const struct exchange_row *row =
        exchange_plan_row(b->c->exchange, level, (struct logical_tile){(uint16_t)b->logical});
    if (row == NULL) {
        b->idle_first = b->idle == 0 ? level : b->idle_first;
        b->idle_last = level;
        b->idle += 1;
        return;
    }
    flush_idle(b);
    open_interval(b, &(struct emit_interval){STEP_EXCHANGE, level, level, b->vertex, 0});
    put_word(b, ISA_OP_setzi_mmmn_zi, M8, (int32_t)row->incoming_base);
    put_csr(b, "INCOMING_BASE", M8);
    put_csr(b, "OUTGOING_BASE", M15);
    put_word(b, ISA_OP_setzi_mmmn_zi, M8, 1);
    put_csr(b, "INCOMING_DCOUNT", M8);
    put_word(b, ISA_OP_sync_zi, 3, 0);
    call(b, b->l->row[level]);
}

/* rt_advance with a descriptor of the loop's part of the table. */
static void advance(struct builder *b, uint32_t word) {
    uint32_t first = emit_table_words(b->c, b->logical) - emit_loop_words(b->c, b->logical);
    flush_idle(b);
    put_word(b, ISA_OP_setzi_mmmn_zi, M2, (int32_t)emit_table_addr(b->l, first + word));
    call(b, b->c->text->advance);
}

static void calls(struct builder *b, uint32_t level) {
    const struct emit_index *x = b->c->index;
    bool is_each = b->c->samples != NULL && b->c->samples->profile == EMIT_PROFILE_KERNEL;
    uint32_t first = b->vertex, end = x->tile_first[b->logical + 1], count = 0;
    while (first + count < end && b->c->tg->vertices[x->vertex[first + count]].level == level) {
        count++;
    }
    for (; b->vertex < x->tile_first[b->logical + 1]; b->vertex++) {
        const struct lower_vertex *v = &b->c->tg->vertices[x->vertex[b->vertex]];
        if (v->level != level) {
            return;
        }
        flush_idle(b);
        if (is_each || b->vertex == first) {
            open_interval(
                b, &(struct emit_interval){
                       STEP_COMPUTE, level, level, b->vertex, is_each ? 1 : count});
        }
        put_word(b, ISA_OP_setzi_mmmn_zi, M2, (int32_t)emit_table_addr(b->l, b->call_table));
        call(b, emit_kernel_addr(b->c->text, &v->variant));
        b->call_table += v->word_count;
    }
}

static void put_counter(struct builder *b, enum isa_op op, int32_t reg) {
    put_insn(/* base, delta, offset, data */
             b, &(struct insn){.op = (uint16_t)op, .v = {M2, M15, 0, reg}});
}

/* Address of the word that counts the turns left: no register is kept by all routines and free. */
static void find_counter(struct builder *b) {
    uint32_t word = emit_table_words(b->c, b->logical) - emit_loop_words(b->c, b->logical);
    put_word(b, ISA_OP_setzi_mmmn_zi, M2, (int32_t)emit_table_addr(b->l, word));
}

/* Marks in the loop are stored anew in each turn: the last one is what a profile shows, and one
 * interval before it that stands for all others. */
static void begin_loop(struct builder *b) {
    const struct lower_loop *loop = &b->c->tg->loop;
    flush_idle(b);
    open_interval(
        b, &(struct emit_interval){
               STEP_REPEAT, loop->level_first, loop->level_first + loop->level_count - 1, b->vertex,
               0});
    find_counter(b);
    put_word(b, ISA_OP_setzi_mmmn_zi, M8, (int32_t)loop->turns - 1);
    put_counter(b, ISA_OP_st32_mmmn_zi, M8);
    b->turn = b->l->program + 4 * b->out->count;
    b->turn_start = *b->barriers;
}

static void end_loop(struct builder *b) {
    flush_idle(b);
    find_counter(b);
    put_counter(b, ISA_OP_ld32_mmmn_zi, M8);
    put_insn(b, &(struct insn){.op = ISA_OP_add_mmmn_si, .v = {M9, M8, -1}});
    put_counter(b, ISA_OP_st32_mmmn_zi, M9);
    put_word(b, ISA_OP_brnz_mmmn_zi, M8, (int32_t)b->turn);
    *b->barriers += (b->c->tg->loop.turns - 1) * (*b->barriers - b->turn_start);
    b->turn = 0;
    if (b->moves.on != UINT32_MAX && b->moves.back == UINT32_MAX) {
        advance(b, 1 + RT_ADVANCE_WORDS);
    }
}

/* A tile without anything to do in a loop only sits out its barriers. */
static void levels(struct builder *b) {
    const struct lower_loop *loop = &b->c->tg->loop;
    bool is_busy = loop->turns > 0 && emit_loop_is_busy(b->c, b->logical);
    for (uint32_t level = 0; level < b->c->tg->level_count; level++) {
        if (level == loop->level_first && loop->turns > 0 && !is_busy) {
            uint32_t barriers = loop->turns * emit_loop_barriers(b->c);
            b->idle_first = b->idle == 0 ? level : b->idle_first;
            b->idle_last = level + loop->level_count - 1;
            b->idle += barriers;
            *b->barriers += barriers;
            level += loop->level_count - 1;
            continue;
        }
        if (level == loop->level_first && is_busy) {
            begin_loop(b);
        }
        if (b->c->tg->levels[level].move_count > 0) {
            exchange(b, level);
        }
        calls(b, level);
        if (level == b->moves.on || level == b->moves.back) {
            advance(b, level == b->moves.on ? 1 : 1 + RT_ADVANCE_WORDS);
        }
        if (b->turn != 0 && level + 1 == loop->level_first + loop->level_count) {
            end_loop(b);
        }
    }
}

int emit_tile_program(
    const struct emit_context *c, const struct emit_tile_layout *l, uint32_t logical,
    struct arena *a, struct emit_program *ret, struct err *err) {
    bool is_active = c->tg->is_active[logical];
    struct emit_program p = {0};
    struct builder b = {
        .c = c,
        .l = l,
        .arena = a,
        .out = &p,
        .logical = logical,
        .table = EMIT_TABLE_HEAD,
        .call_table = EMIT_TABLE_HEAD,
        .vertex = c->index->tile_first[logical],
        .words = emit_mark_words(c->samples, logical),
        .moves = emit_loop_plan(c, logical),
        .barriers = &p.init_barriers,
        .err = err};
    for (uint32_t i = 0; i < c->host->phase_count; i++) {
        b.call_table += emit_phase_words(c, logical, i);
    }
    host_phases(&b, STREAM_INITIALIZE);
    flush_idle(&b);
    uint32_t loop = l->program + 4 * p.count;
    b.barriers = &p.turn_barriers;
    host_phases(&b, STREAM_INPUT);
    if (is_active) {
        flush_idle(&b);
        call(&b, c->text->sample_start);
        b.is_sampling = c->samples != NULL && c->samples->profile != EMIT_PROFILE_OFF;
        if (b.words > 0) {
            put_word(&b, ISA_OP_setzi_mmmn_zi, M11, (int32_t)l->marks);
        }
    }
    levels(&b);
    if (is_active) {
        flush_idle(&b);
        if (p.trace.count == 0) { /* neither exchanges nor computes */
            open_interval(&b, &(struct emit_interval){STEP_IDLE, 0, c->tg->level_count, 0, 0});
        }
        b.is_sampling = false;
        call(&b, c->text->sample_end);
    }
    host_phases(&b, STREAM_OUTPUT);
    flush_idle(&b);
    put_word(&b, ISA_OP_bri_mmmn_zi, (int32_t)loop, 0);
    *ret = p;
    return b.rc;
}
