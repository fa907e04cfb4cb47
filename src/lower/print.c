/* A tile graph as stable text: buffers by tile, then level by level moves and calls. */
#include "lower/lower.h"

static const char *const kind_names[BUFFER_KINDS] = {
    [BUFFER_WEIGHTS] = "weights", [BUFFER_ROW] = "row",         [BUFFER_MATRIX] = "matrix",
    [BUFFER_VALUE] = "value",     [BUFFER_OPERAND] = "operand", [BUFFER_PARTIAL] = "partial",
    [BUFFER_SCRATCH] = "scratch", [BUFFER_TABLE] = "table",
};

const char *buffer_kind_name(enum buffer_kind k) {
    return k < BUFFER_KINDS ? kind_names[k] : "?";
}

static void print_level(const struct tile_graph *tg, uint32_t at, FILE *out) {
    const struct lower_level *l = &tg->levels[at];
    fprintf(
        out, "  level %u time=%u moves=%u calls=%u compute=%llu\n", at, l->time, l->move_count,
        l->vertex_count, (unsigned long long)l->compute_cycles);
    for (uint32_t i = l->move_first; i < l->move_first + l->move_count; i++) {
        const struct lower_move *m = &tg->moves[i];
        fprintf(out, "    move b%u+%u words=%u ->", m->source.n, m->offset, m->words);
        for (uint32_t d = 0; d < m->dest_count; d++) {
            fprintf(
                out, " b%u+%u", tg->dests[m->dest_first + d].buffer.n,
                tg->dests[m->dest_first + d].offset);
        }
        fputc('\n', out);
    }
    for (uint32_t i = l->vertex_first; i < l->vertex_first + l->vertex_count; i++) {
        const struct lower_vertex *v = &tg->vertices[i];
        char symbol[64];
        fprintf(out, "    t%u %s", v->tile.n, kernel_symbol(&v->variant, symbol, sizeof symbol));
        for (uint32_t w = 0; w < v->word_count; w++) {
            if (v->words[w].buffer.n == NO_BUFFER.n) {
                fprintf(out, " %u", v->words[w].value);
            } else {
                fprintf(out, " b%u+%u", v->words[w].buffer.n, v->words[w].value);
            }
        }
        fprintf(out, " cycles=%u\n", v->cycles);
    }
}

void lower_print(const struct tile_graph *tg, FILE *out) {
    fprintf(
        out,
        "tile_graph buffers=%u calls=%u moves=%u levels=%u phases=%u active=%u "
        "compute=%llu\n",
        tg->buffer_count, tg->vertex_count, tg->move_count, tg->level_count, tg->exchange_phases,
        tg->active_count, (unsigned long long)tg->compute_cycles);
    if (tg->loop.turns > 0) {
        fprintf(
            out, "  loop levels %u..%u, %u turns, time %u..%u\n", tg->loop.level_first,
            tg->loop.level_first + tg->loop.level_count - 1, tg->loop.turns, tg->loop.time_first,
            tg->loop.time_last);
    }
    for (uint32_t i = 0; i < tg->buffer_count; i++) {
        const struct lower_buffer *b = &tg->buffers[i];
        fprintf(out, "  b%u t%u %s bytes=%u", i, b->tile.n, buffer_kind_name(b->kind), b->bytes);
        if (b->slots > 1) {
            fprintf(out, " slots=%u", b->slots);
        }
        fprintf(out, " live=%u..", b->born);
        if (b->dies == LOWER_FOREVER) {
            fputs("ever\n", out);
        } else {
            fprintf(out, "%u\n", b->dies);
        }
    }
    for (uint32_t i = 0; i < tg->level_count; i++) {
        print_level(tg, i, out);
    }
}
