/* Tables of a tile: the program's address, phase descriptors, kernel descriptors, in the order in
 * which the program uses them (runtime.h, kernels.h have the formats). */
#include "emit/emit_internal.h"

void emit_index_build(const struct tile_graph *tg, struct arena *a, struct emit_index *ret) {
    ret->tile_first = ARENA_ARRAY(a, uint32_t, TARGET_TILES + 1);
    ret->vertex = ARENA_ARRAY(a, uint32_t, tg->vertex_count);
    for (uint32_t i = 0; i < tg->vertex_count; i++) {
        ret->tile_first[tg->vertices[i].tile.n + 1]++;
    }
    for (uint32_t t = 0; t < TARGET_TILES; t++) {
        ret->tile_first[t + 1] += ret->tile_first[t];
    }
    uint32_t *at = arena_memdup(a, ret->tile_first, sizeof *at * (TARGET_TILES + 1));
    for (uint32_t i = 0; i < tg->vertex_count; i++) {
        ret->vertex[at[tg->vertices[i].tile.n]++] = i;
    }
}

uint32_t emit_phase_words(const struct emit_context *c, uint32_t logical, uint32_t phase) {
    const struct emit_phase *p = &c->host->phases[phase];
    const struct emit_page *page = emit_phase_page(c->host, logical, p);
    if (page == NULL) {
        return emit_phase_grant(c->host, logical, p) != NULL ? RT_PHASE_FIXED_WORDS : 0;
    }
    return RT_PHASE_FIXED_WORDS + 3 * page->piece_count;
}

uint32_t emit_table_words(const struct emit_context *c, uint32_t logical) {
    uint32_t words = EMIT_TABLE_HEAD;
    for (uint32_t i = 0; i < c->host->phase_count; i++) {
        words += emit_phase_words(c, logical, i);
    }
    for (uint32_t i = c->index->tile_first[logical]; i < c->index->tile_first[logical + 1]; i++) {
        words += c->tg->vertices[c->index->vertex[i]].word_count;
    }
    return words + emit_loop_words(c, logical);
}

uint32_t emit_table_prefix(const struct emit_context *c, uint32_t logical, uint32_t limit) {
    uint32_t words = EMIT_TABLE_HEAD;
    uint32_t calls = c->index->tile_first[logical + 1] - c->index->tile_first[logical];
    for (uint32_t i = 0; i <= c->host->phase_count + calls; i++) {
        uint32_t own =
            i < c->host->phase_count ? emit_phase_words(c, logical, i)
            : i == c->host->phase_count + calls
                ? emit_loop_words(c, logical)
                : c->tg
                      ->vertices[c->index->vertex
                                     [c->index->tile_first[logical] + i - c->host->phase_count]]
                      .word_count;
        if (words + own > limit) {
            break;
        }
        words += own;
    }
    return words;
}

uint32_t emit_table_addr(const struct emit_tile_layout *l, uint32_t word) {
    return word < l->table_main_words ? RT_TABLES + 4 * word
                                      : l->table_more + 4 * (word - l->table_main_words);
}

static uint32_t *
phase_descriptor(const struct emit_context *c, uint32_t logical, uint32_t phase, uint32_t *out) {
    const struct emit_phase *p = &c->host->phases[phase];
    const struct emit_page *page = emit_phase_page(c->host, logical, p);
    const struct emit_grant *grant = emit_phase_grant(c->host, logical, p);
    if (page == NULL && grant == NULL) {
        return out;
    }
    *out++ = page != NULL ? (page->bytes + 255) / 256 : 0;
    *out++ = grant != NULL ? 1 : 0;
    *out++ = grant != NULL ? grant->words[0] : 0;
    *out++ = grant != NULL ? grant->words[1] : 0;
    *out++ = page != NULL ? page->piece_count : 0;
    for (uint32_t i = 0; page != NULL && i < page->piece_count; i++) {
        const struct emit_piece *x = &page->pieces[i];
        uint32_t base = x->buffer.n == NO_BUFFER.n ? 0 : c->placement->addr[x->buffer.n];
        *out++ = base + x->offset;
        *out++ = x->page_offset;
        *out++ = x->bytes / 4;
    }
    return out;
}

void emit_tile_table(
    const struct emit_context *c, const struct emit_tile_layout *l, uint32_t logical,
    uint32_t *out) {
    *out++ = l->program;
    *out++ = 0;
    for (uint32_t i = 0; i < c->host->phase_count; i++) {
        out = phase_descriptor(c, logical, i, out);
    }
    struct emit_loop_plan plan = emit_loop_plan(c, logical);
    for (uint32_t i = c->index->tile_first[logical]; i < c->index->tile_first[logical + 1]; i++) {
        const struct lower_vertex *v = &c->tg->vertices[c->index->vertex[i]];
        for (uint32_t w = 0; w < v->word_count; w++) {
            const struct lower_word *x = &v->words[w];
            uint32_t base = x->buffer.n == NO_BUFFER.n ? 0 : c->placement->addr[x->buffer.n];
            *out++ = base + x->value + emit_loop_start(c, &plan, v, w);
        }
    }
    emit_loop_table(c, l, logical, out);
}
