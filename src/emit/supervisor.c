/* The control program of one tile (runtime.h describes its shape). Barriers in which a tile has no
 * part are counted and joined: one `sans n-1 ; sync 1` before its next own instruction. Every
 * instruction has a fixed size, so the length depends on no address. */
#include "emit/emit_internal.h"

#include <assert.h>

enum { M2 = 2, M8 = 8, M10 = 10, M15 = 15 };

struct builder {
    const struct emit_context *c;
    const struct emit_tile_layout *l;
    struct arena *arena;
    struct emit_program *out;
    uint32_t logical;
    uint32_t idle;       /* barriers to sit out before the next instruction */
    uint32_t table;      /* word of the table where the next phase's descriptor lies */
    uint32_t call_table; /* and the next call's: behind all phases */
    uint32_t vertex;     /* next call of the tile, index into index->vertex */
    uint32_t *barriers;  /* counter of the part being emitted */
    struct err *err;
    int rc;
};

static void put_word(struct builder *b, enum isa_op op, int32_t v0, int32_t v1) {
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
    struct insn insn = {.op = (uint16_t)op, .v = {v0, v1}};
    uint32_t word = 0;
    if (isa_encode(&insn, &word, b->err) != 0 && b->rc == 0) {
        b->rc = err_wrap(b->err, "program of logical tile %u", b->logical);
    }
    p->words[p->count++] = word;
}

static void put_csr(struct builder *b, const char *name, int32_t reg) {
    int number = isa_csr_number(name, ISA_SUPERVISOR);
    assert(number >= 0);
    put_word(b, ISA_OP_put_mmmn_zi, reg, number); /* a = register, b = csr */
}

static void flush_idle(struct builder *b) {
    if (b->idle > 0) {
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
        b->idle += 1;
        return;
    }
    flush_idle(b);
    put_word(b, ISA_OP_setzi_mmmn_zi, M8, (int32_t)row->incoming_base);
    put_csr(b, "INCOMING_BASE", M8);
    put_csr(b, "OUTGOING_BASE", M15);
    put_word(b, ISA_OP_setzi_mmmn_zi, M8, 1);
    put_csr(b, "INCOMING_DCOUNT", M8);
    put_word(b, ISA_OP_sync_zi, 3, 0);
    call(b, b->l->row[level]);
}

static void calls(struct builder *b, uint32_t level) {
    const struct emit_index *x = b->c->index;
    for (; b->vertex < x->tile_first[b->logical + 1]; b->vertex++) {
        const struct lower_vertex *v = &b->c->tg->vertices[x->vertex[b->vertex]];
        if (v->level != level) {
            return;
        }
        flush_idle(b);
        put_word(b, ISA_OP_setzi_mmmn_zi, M2, (int32_t)emit_table_addr(b->l, b->call_table));
        call(b, emit_kernel_addr(b->c->text, &v->variant));
        b->call_table += v->word_count;
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
    }
    for (uint32_t level = 0; level < c->tg->level_count; level++) {
        if (c->tg->levels[level].move_count > 0) {
            exchange(&b, level);
        }
        calls(&b, level);
    }
    if (is_active) {
        flush_idle(&b);
        call(&b, c->text->sample_end);
    }
    host_phases(&b, STREAM_OUTPUT);
    flush_idle(&b);
    put_word(&b, ISA_OP_bri_mmmn_zi, (int32_t)loop, 0);
    *ret = p;
    return b.rc;
}
