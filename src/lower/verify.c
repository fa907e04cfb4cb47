/* Recomputes from the tile graph alone what lower.h promises: every write as an interval of a
 * buffer with its time, then coverage, order and lifetimes against every read. */
#include "lower/lower.h"

#include <stdlib.h>

#include "base/vec.h"

struct access {
    uint32_t buffer, first, last, time;
    bool is_move;
    uint32_t move; /* its index */
};

/* How a buffer is filled once: in order, without holes. */
struct filling {
    uint32_t bytes;       /* written so far */
    uint32_t first_write; /* times; it is complete after the last one */
    uint32_t last_write;
    bool by_move; /* last_write was an exchange */
    uint32_t last_move;
};

struct checker {
    const struct tile_graph *tg;
    struct err *err;
    struct arena *scratch;
    VEC(struct access) writes;
    VEC(struct access) reads;
    VEC(struct access) updates; /* of what is complete, in the order of time */
    struct filling *fillings;   /* by buffer: outside of the loop, and in it */
    uint32_t faults;
};

static void fault(struct checker *c, const char *what, uint32_t at, const char *text) {
    if (c->faults++ == 0) {
        err_set(c->err, ERR_INTERNAL, "lower: %s %u: %s", what, at, text);
    }
}

/* Bytes that a vertex writes, and the word that names where. */
static uint32_t written(const struct lower_vertex *v, uint32_t *ret_word) {
    const struct lower_word *w = v->words;
    switch (v->variant.id) {
    case KERNEL_GEMM_F16:
        *ret_word = GEMM_OUT;
        return w[GEMM_ROWS].value * w[GEMM_PANELS].value * 32;
    case KERNEL_GEMM_AMP:
        *ret_word = GEMM_OUT;
        return w[GEMM_ROWS].value * w[GEMM_PANELS].value * (v->variant.out_f32 ? 64 : 32);
    case KERNEL_GEMM_ROW: *ret_word = GEMM_ROW_OUT; return w[GEMM_ROW_PAIRS].value * 4;
    case KERNEL_REDUCE:
        *ret_word = REDUCE_OUT;
        return w[REDUCE_ROWS].value * w[REDUCE_PANELS].value * 32;
    case KERNEL_REDUCE_SHARE:
        *ret_word = REDUCE_SHARE_OUT;
        return w[REDUCE_SHARE_ROWS].value * w[REDUCE_SHARE_PANELS].value * 32;
    case KERNEL_UNARY: *ret_word = UNARY_OUT; return w[UNARY_QUADS].value * 8;
    case KERNEL_ADD: *ret_word = ADD_OUT; return w[ADD_N].value * 32;
    case KERNEL_ADD_ROW:
        *ret_word = ADD_ROW_OUT;
        return w[ADD_ROW_ROWS].value * w[ADD_ROW_PANELS].value * 32;
    case KERNEL_BINARY:
        *ret_word = BINARY_OUT;
        return w[BINARY_ROWS].value * w[BINARY_PANELS].value * 32;
    case KERNEL_MAP: *ret_word = MAP_OUT; return w[MAP_N].value * 32;
    case KERNEL_LAYERNORM:
        *ret_word = LAYERNORM_OUT;
        return w[LAYERNORM_ROWS].value * ((w[LAYERNORM_COLUMNS].value + 15) / 16) * 32;
    case KERNEL_ATTENTION:
        *ret_word = ATTENTION_OUT;
        return w[ATTENTION_ROWS].value * w[ATTENTION_OUT_PANELS].value * 32;
    case KERNEL_ATTENTION_BLOCK:
        *ret_word = BLOCK_OUT;
        return kernel_block_bytes(w[BLOCK_ROWS].value, w[BLOCK_KEYS].value, w[BLOCK_PANELS].value)
            .out;
    case KERNEL_ATTENTION_MERGE:
        *ret_word = MERGE_OUT;
        return w[MERGE_ROWS].value * w[MERGE_PANELS].value * 32;
    case KERNEL_RELAYOUT: {
        *ret_word = RELAYOUT_OUT;
        uint32_t r = w[RELAYOUT_ROWS].value, c = w[RELAYOUT_COLUMNS].value;
        return v->variant.op == RELAYOUT_TRANSPOSE ? c * ((r + 15) / 16) * 32
                                                   : (c + 15) / 16 * ((r + 15) / 16) * 512;
    }
    case KERNEL_CAST:
        *ret_word = CAST_OUT;
        return w[CAST_N].value * (v->variant.op == CAST_WIDEN ? 64 : 32);
    case KERNEL_MAP_F32: *ret_word = MAP_OUT; return w[MAP_N].value * 64;
    case KERNEL_BINARY_F32: *ret_word = BINARY_F32_OUT; return w[BINARY_F32_N].value * 64;
    case KERNEL_ROW_REDUCE_F32: *ret_word = ROW_REDUCE_OUT; return w[ROW_REDUCE_ROWS].value * 64;
    case KERNEL_GEMM_F32:
        *ret_word = GEMM_F32_OUT;
        return w[GEMM_F32_ROWS].value * w[GEMM_F32_PANELS].value * 64;
    case KERNEL_PICK:
        *ret_word = PICK_OUT;
        return w[PICK_N].value * (v->variant.op == PICK_DOUBLE ? 8 : 4);
    case KERNEL_ROW_REDUCE:
        *ret_word = ROW_REDUCE_OUT;
        return (w[ROW_REDUCE_ROWS].value + 1) / 2 * 4;
    case KERNEL_SOFTMAX:
    default:
        *ret_word = SOFTMAX_OUT;
        return w[SOFTMAX_ROWS].value * ((w[SOFTMAX_COLUMNS].value + 15) / 16) * 32;
    }
}

static void add_access(struct checker *c, bool is_write, struct access x) {
    if (x.buffer >= c->tg->buffer_count || x.last > c->tg->buffers[x.buffer].bytes ||
        x.first > x.last || (x.first | x.last) % 4 != 0) {
        fault(c, "buffer", x.buffer, "an access leaves it or is not word-aligned");
        return;
    }
    const struct lower_buffer *b = &c->tg->buffers[x.buffer];
    if (b->slots > 1 &&
        (x.is_move || b->slots != c->tg->loop.turns || x.time < c->tg->loop.time_first ||
         x.time > c->tg->loop.time_last || x.first >= lower_slot_bytes(b))) {
        fault(
            c, "buffer", x.buffer,
            "a sequence is sent, read outside of the loop or not from its first slot");
    }
    if (x.time < b->born || x.time > b->dies) {
        fault(c, "buffer", x.buffer, "used outside its lifetime");
    }
    if (is_write) {
        vec_push(c->scratch, &c->writes, x);
    } else {
        vec_push(c->scratch, &c->reads, x);
    }
}

/* Operands that a kernel must find in separate elements are different buffers, and every slot of a
 * sequence is aligned when the first one is. */
static void check_operands(struct checker *c, uint32_t at) {
    const struct lower_vertex *v = &c->tg->vertices[at];
    struct kernel_operand operands[6];
    int count = 0;
    kernel_operands(&v->variant, operands, &count);
    for (int o = 0; o < count; o++) {
        struct buffer_id b = v->words[operands[o].word].buffer;
        if (b.n == NO_BUFFER.n) {
            continue;
        }
        if (c->tg->buffers[b.n].slots > 1 &&
            lower_slot_bytes(&c->tg->buffers[b.n]) % operands[o].align != 0) {
            fault(c, "vertex", at, "slots of a sequence are misaligned");
        }
        for (int other = 0; other < o; other++) {
            if ((operands[o].separate >> other & 1) != 0 &&
                v->words[operands[other].word].buffer.n == b.n) {
                fault(c, "vertex", at, "operands that must lie apart are one buffer");
            }
        }
    }
}

/* What a PICK reads: the units that its table names, each source as one range. */
static void collect_table(struct checker *c, uint32_t vertex) {
    const struct tile_graph *tg = c->tg;
    const struct lower_vertex *v = &tg->vertices[vertex];
    uint32_t table = v->words[PICK_TABLE].buffer.n, low = 0, high = tg->table_count;
    while (low < high) {
        uint32_t mid = (low + high) / 2;
        if (tg->tables[mid].buffer.n < table) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    if (low == tg->table_count || tg->tables[low].buffer.n != table) {
        fault(c, "vertex", vertex, "has no table");
        return;
    }
    const struct lower_table *t = &tg->tables[low];
    uint32_t units = v->words[PICK_N].value * (v->variant.op == PICK_HALF ? 2 : 1);
    if (t->count != units || 4 * t->count != tg->buffers[table].bytes) {
        fault(c, "vertex", vertex, "has a table of another size");
    }
    uint32_t bytes = v->variant.op == PICK_DOUBLE ? 8 : 4;
    for (uint32_t i = 0, next; i < t->count; i = next) {
        struct access x = {t->words[i].buffer.n, t->words[i].value, 0, v->time, false, 0};
        uint32_t last = t->words[i].value;
        for (next = i; next < t->count && t->words[next].buffer.n == x.buffer; next++) {
            x.first = t->words[next].value < x.first ? t->words[next].value : x.first;
            last = t->words[next].value > last ? t->words[next].value : last;
        }
        x.first &= ~3u;
        x.last = (last & ~3u) + bytes;
        if (x.buffer < tg->buffer_count && tg->buffers[x.buffer].tile.n != v->tile.n) {
            fault(c, "vertex", vertex, "names a buffer of another tile");
        }
        add_access(c, false, x);
    }
}

static void collect_vertices(struct checker *c) {
    for (uint32_t i = 0; i < c->tg->vertex_count; i++) {
        const struct lower_vertex *v = &c->tg->vertices[i];
        uint32_t out;
        uint32_t bytes = written(v, &out);
        check_operands(c, i);
        if (v->variant.id == KERNEL_PICK) {
            collect_table(c, i);
        }
        for (uint32_t w = 0; w < v->word_count; w++) {
            struct lower_word word = v->words[w];
            if (word.buffer.n == NO_BUFFER.n) {
                continue;
            }
            const struct lower_buffer *b = lower_buffer(c->tg, word.buffer);
            if (b->tile.n != v->tile.n) {
                fault(c, "vertex", i, "names a buffer of another tile");
            }
            bool is_write = w == out || b->kind == BUFFER_SCRATCH;
            uint32_t end = w == out ? word.value + bytes : b->bytes;
            if (w == out && v->variant.accumulates) {
                vec_push(
                    c->scratch, &c->updates,
                    (struct access){word.buffer.n, word.value, end, v->time, false, 0});
                continue;
            }
            add_access(
                c, is_write, (struct access){word.buffer.n, word.value, end, v->time, false, 0});
        }
    }
}

static void collect_moves(struct checker *c) {
    const struct tile_graph *tg = c->tg;
    for (uint32_t l = 0; l < tg->level_count; l++) {
        const struct lower_level *level = &tg->levels[l];
        for (uint32_t i = level->move_first; i < level->move_first + level->move_count; i++) {
            const struct lower_move *m = &tg->moves[i];
            uint32_t bytes = 4 * m->words;
            add_access(
                c, false,
                (struct access){m->source.n, m->offset, m->offset + bytes, level->time, true, i});
            bool is_own = false;
            for (uint32_t d = 0; d < m->dest_count; d++) {
                const struct lower_dest *dest = &tg->dests[m->dest_first + d];
                is_own = is_own || lower_buffer(tg, dest->buffer)->tile.n ==
                                       lower_buffer(tg, m->source)->tile.n;
                add_access(
                    c, true,
                    (struct access){
                        dest->buffer.n, dest->offset, dest->offset + bytes, level->time, true, i});
            }
            if (m->words == 0 || m->dest_count == 0 || (is_own && m->dest_count == 1)) {
                fault(c, "move", i, "is empty or goes to its own tile alone");
            }
        }
    }
}

static bool is_in_loop(const struct tile_graph *tg, uint32_t time) {
    return tg->loop.turns > 0 && time >= tg->loop.time_first && time <= tg->loop.time_last;
}

/* A buffer may be filled twice: before the loop, and in each turn for the next one. */
static struct filling *filling_of(const struct checker *c, uint32_t buffer, bool in_loop) {
    return &c->fillings[2 * (size_t)buffer + (in_loop ? 1 : 0)];
}

static int by_buffer(const void *pa, const void *pb) {
    const struct access *a = pa, *b = pb;
    if (a->buffer != b->buffer) {
        return a->buffer < b->buffer ? -1 : 1;
    }
    if (a->first != b->first) {
        return a->first < b->first ? -1 : 1;
    }
    return a->last < b->last ? -1 : a->last > b->last;
}

static bool is_filled_by_host(const struct lower_buffer *b) {
    return b->kind == BUFFER_WEIGHTS || b->kind == BUFFER_ROW || b->kind == BUFFER_MATRIX ||
           b->kind == BUFFER_TABLE || (b->kind == BUFFER_VALUE && b->step == PLAN_NONE);
}

static void check_filled(struct checker *c, uint32_t at) {
    const struct lower_buffer *b = &c->tg->buffers[at];
    const struct filling *before = filling_of(c, at, false), *inside = filling_of(c, at, true);
    bool is_carried = inside->bytes > 0 && (before->bytes > 0 || is_filled_by_host(b));
    bool good = inside->bytes == 0 || inside->bytes == b->bytes;
    if (is_filled_by_host(b)) {
        good = good && before->bytes == 0 && (!is_carried || b->kind == BUFFER_VALUE);
    } else {
        good = good && (before->bytes == b->bytes || (before->bytes == 0 && inside->bytes > 0));
    }
    if (!good) {
        fault(c, "buffer", at, "not written exactly once");
    }
    if (is_carried && (b->born > c->tg->loop.time_first || b->dies < c->tg->loop.time_last)) {
        fault(c, "buffer", at, "carried from turn to turn, but not alive in all of the loop");
    }
}

static void check_writes(struct checker *c) {
    if (c->writes.len > 0) {
        qsort(c->writes.data, c->writes.len, sizeof *c->writes.data, by_buffer);
    }
    for (size_t i = 0; i < c->writes.len; i++) {
        const struct access *w = &c->writes.data[i];
        struct filling *f = filling_of(c, w->buffer, is_in_loop(c->tg, w->time));
        if (w->first != f->bytes) {
            fault(c, "buffer", w->buffer, "written twice or with a hole");
        }
        f->first_write = f->bytes == 0 || w->time < f->first_write ? w->time : f->first_write;
        f->bytes = w->last;
        if (w->time > f->last_write) {
            f->last_write = w->time;
            f->by_move = w->is_move;
            f->last_move = w->move;
        } else if (w->time == f->last_write && w->move > f->last_move) {
            f->last_move = w->move;
        }
    }
    for (uint32_t i = 0; i < c->tg->buffer_count; i++) {
        check_filled(c, i);
    }
}

/* What is read was complete before, in the filling that the read means. */
static void check_complete(struct checker *c, const struct access *r, const struct filling *f) {
    /* A partial is sent before the other parts arrive behind it. */
    bool is_partial = c->tg->buffers[r->buffer].kind == BUFFER_PARTIAL && r->is_move;
    /* What moves of this exchange complete, a later one of its list may send on. */
    bool is_relay = r->is_move && f->by_move && r->time == f->last_write && r->move > f->last_move;
    bool early = r->is_move ? r->time <= f->last_write : r->time < f->last_write;
    if ((early || (r->time == f->last_write && f->by_move)) && !is_partial && !is_relay) {
        fault(c, "buffer", r->buffer, "read before it is complete");
    }
}

/* Sums are added to whole buffers that earlier calls have filled; a buffer is complete after the
 * last one. */
static void check_updates(struct checker *c) {
    for (size_t i = 0; i < c->updates.len; i++) {
        const struct access *u = &c->updates.data[i];
        const struct lower_buffer *b = &c->tg->buffers[u->buffer];
        if (u->first != 0 || u->last != b->bytes) {
            fault(c, "buffer", u->buffer, "added to in part");
        }
        struct filling *f = filling_of(c, u->buffer, is_in_loop(c->tg, u->time));
        if (f->bytes != b->bytes || u->time <= f->last_write || u->time < b->born ||
            u->time > b->dies) {
            fault(
                c, "buffer", u->buffer, "added to before it is complete, or outside its lifetime");
        }
        f->last_write = u->time;
        f->by_move = false;
    }
}

static void check_reads(struct checker *c) {
    const struct lower_loop *loop = &c->tg->loop;
    for (size_t i = 0; i < c->reads.len; i++) {
        const struct access *r = &c->reads.data[i];
        const struct lower_buffer *b = &c->tg->buffers[r->buffer];
        const struct filling *before = filling_of(c, r->buffer, false);
        const struct filling *inside = filling_of(c, r->buffer, true);
        bool is_inside = is_in_loop(c->tg, r->time);
        bool is_older = before->bytes > 0 || is_filled_by_host(b);
        if (is_inside && is_older) {
            check_complete(c, r, before);
            /* A turn reads what the one before it left: all of it, until it is replaced. An
             * elementwise call may replace what it reads. */
            if (inside->bytes > 0 &&
                (r->is_move ? r->time >= inside->first_write : r->time > inside->first_write)) {
                fault(c, "buffer", r->buffer, "read after its next value was begun");
            }
            if (b->born < loop->time_first && b->dies < loop->time_last) {
                fault(c, "buffer", r->buffer, "read in every turn, but dies in the first one");
            }
        } else {
            bool is_before = is_older && (inside->bytes == 0 || r->time < loop->time_first);
            check_complete(c, r, is_before ? before : inside);
        }
    }
}

static void check_shards(struct checker *c) {
    const struct tile_graph *tg = c->tg;
    const struct plan *p = tg->plan;
    for (uint32_t io = 0; io < p->graph->input_count + p->graph->output_count; io++) {
        bool is_input = io < p->graph->input_count;
        uint32_t at = is_input ? io : io - p->graph->input_count;
        const struct plan_matrix *x = &p->matrices[is_input ? p->inputs[at] : p->outputs[at]];
        struct lower_span span = is_input ? tg->inputs[at] : tg->outputs[at];
        uint64_t cells = 0;
        for (uint32_t i = span.first; i < span.first + span.count; i++) {
            const struct lower_shard *s = &tg->shards[i];
            uint64_t own =
                (uint64_t)(s->row_last - s->row_first) * (s->runs[0].last - s->runs[0].first);
            own *= s->quads;
            cells += own;
            if (s->row_last > x->rows || s->runs[0].last * s->quads > 4 * x->panels ||
                lower_buffer(tg, s->buffer)->bytes != plan_row_bytes(x) / 4 * own) {
                fault(c, "shard", i, "is outside its matrix or has another size");
            }
        }
        if (cells != 4ull * x->rows * x->panels) {
            fault(c, "interface tensor", io, "is not covered exactly");
        }
    }
}

static void check_order(struct checker *c) {
    for (uint32_t i = 1; i < c->tg->vertex_count; i++) {
        const struct lower_vertex *a = &c->tg->vertices[i - 1], *b = &c->tg->vertices[i];
        bool good = a->level != b->level ? a->level < b->level
                    : a->time != b->time ? a->time < b->time
                                         : a->tile.n <= b->tile.n;
        if (!good) {
            fault(c, "vertex", i, "out of order");
        }
    }
}

int lower_verify(const struct tile_graph *tg, struct arena *scratch, struct err *err) {
    struct checker c = {.tg = tg, .err = err, .scratch = scratch};
    c.fillings = ARENA_ARRAY(scratch, struct filling, 2 * (size_t)tg->buffer_count);
    collect_vertices(&c);
    collect_moves(&c);
    check_writes(&c);
    check_updates(&c);
    check_reads(&c);
    check_shards(&c);
    check_order(&c);
    return c.faults == 0 ? 0 : -ERR_INTERNAL;
}
