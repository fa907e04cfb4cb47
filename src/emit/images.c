/* Tile images and the package: every piece of memory becomes a segment, equal bytes are stored
 * once, and all lists get the order that package.h asks for. */
#include "emit/emit_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/vec.h"
#include "package/walk.h"

struct bucket {
    struct bucket *next;
    uint32_t content;
};

struct builder {
    const struct emit_context *c;
    const struct emit_layout *l;
    const struct emit_code *code;
    struct arena *arena;
    VEC(struct package_content) contents;
    VEC(struct package_segment) segments;
    VEC(struct package_symbol) symbols;
    struct bucket *buckets[4096];
};

static uint32_t hash_bytes(const uint8_t *bytes, uint32_t size) {
    uint32_t h = 2166136261u ^ size;
    for (uint32_t i = 0; i < size; i++) {
        h = (h ^ bytes[i]) * 16777619u;
    }
    return h ^ h >> 15;
}

/* Index of a content with these bytes; borrowed when new. */
static uint32_t share(struct builder *b, const uint8_t *bytes, uint32_t size) {
    struct bucket **head = &b->buckets[hash_bytes(bytes, size) % 4096];
    for (struct bucket *x = *head; x != NULL; x = x->next) {
        const struct package_content *k = &b->contents.data[x->content];
        if (k->size == size && memcmp(k->bytes, bytes, size) == 0) {
            return x->content;
        }
    }
    struct bucket *x = ARENA_NEW(b->arena, struct bucket);
    *x = (struct bucket){*head, (uint32_t)b->contents.len};
    *head = x;
    vec_push(b->arena, &b->contents, (struct package_content){bytes, size});
    return x->content;
}

static void add_segment(
    struct builder *b, struct physical_tile tile, uint32_t addr, const uint8_t *bytes,
    uint32_t size) {
    if (size > 0) {
        vec_push(
            b->arena, &b->segments, (struct package_segment){tile, addr, share(b, bytes, size)});
    }
}

static void add_words(
    struct builder *b, struct physical_tile tile, uint32_t addr, const uint32_t *words,
    uint32_t count) {
    uint8_t *bytes = arena_alloc(b->arena, 4 * (size_t)count, 4);
    for (uint32_t i = 0; i < count; i++) {
        store_le32(bytes + 4 * i, words[i]);
    }
    add_segment(b, tile, addr, bytes, 4 * count);
}

static void
add_symbol(struct builder *b, int32_t tile, uint32_t addr, uint32_t size, const char *n) {
    vec_push(b->arena, &b->symbols, (struct package_symbol){tile, addr, size, n});
}

/* Program and rows: a run of neighbours in memory becomes one segment. */
static void add_code(struct builder *b, uint32_t t, struct physical_tile tile) {
    const struct emit_tile_layout *x = &b->l->tiles[t];
    uint32_t area_first[2] = {RT_TEXT_BASE + b->c->text->size, RT_DATA0 + b->c->text->more_size};
    uint32_t area_bytes[2] = {x->main_bytes, x->more_bytes - b->c->text->more_size};
    uint8_t *area[2];
    for (int k = 0; k < 2; k++) {
        area[k] = arena_alloc(b->arena, area_bytes[k], 8);
        for (uint32_t i = 0; i + 4 <= area_bytes[k]; i += 4) {
            store_le32(area[k] + i, ISA_NOP_WORD);
        }
    }
    int k = x->program >= RT_DATA0;
    for (uint32_t i = 0; i < x->program_words; i++) {
        store_le32(area[k] + (x->program - area_first[k]) + 4 * i, b->code->programs[t][i]);
    }
    add_symbol(b, tile.n, x->program, 4 * x->program_words, "program");
    for (uint32_t level = 0; level < b->c->tg->level_count; level++) {
        const struct exchange_row *row =
            exchange_plan_row(b->c->exchange, level, (struct logical_tile){(uint16_t)t});
        if (row == NULL) {
            continue;
        }
        k = x->row[level] >= RT_DATA0;
        for (uint32_t i = 0; i < row->word_count; i++) {
            store_le32(area[k] + (x->row[level] - area_first[k]) + 4 * i, row->words[i]);
        }
        add_symbol(
            b, tile.n, x->row[level], 4 * row->word_count, arena_printf(b->arena, "row.%u", level));
    }
    add_segment(b, tile, area_first[0], area[0], area_bytes[0]);
    add_segment(b, tile, area_first[1], area[1], area_bytes[1]);
}

/* Copies the elements of one slice from a tensor in memory. */
static void
copy_slice(const struct package_slice *s, const uint8_t *tensor, uint32_t size, uint8_t *page) {
    struct package_walk w = package_walk_begin(s);
    do {
        memcpy(page + w.byte, tensor + w.element * size, size);
    } while (package_walk_next(s, TENSOR_MAX_DIMS - 1, &w));
}

/* A constant that the graph's key holds, laid out as the host would; or one value everywhere. */
static void add_literals(struct builder *b, uint32_t t, struct physical_tile tile) {
    const struct tile_graph *tg = b->c->tg;
    for (uint32_t i = tg->params.first; i < tg->params.first + tg->params.count; i++) {
        const struct lower_shard *s = &tg->shards[i];
        const struct lower_buffer *x = lower_buffer(tg, s->buffer);
        if (!x->is_literal || x->tile.n != t) {
            continue;
        }
        uint8_t *bytes = arena_alloc(b->arena, x->bytes, 8);
        memset(bytes, 0, x->bytes);
        for (uint32_t c = 0; s->is_fill && c < x->bytes / 2; c++) {
            uint32_t left;
            uint32_t wide = 4 * s->quads;
            emit_panel_column(s, s->runs[0].first + c / wide, &left);
            store_le16(bytes + 2 * c, c % wide < left ? s->fill : 0);
        }
        if (!s->is_fill) {
            const struct graph_value *v = &tg->plan->graph->values[s->value.n];
            struct emit_host host = {0};
            struct slice_target target = {.host = &host, .arena = b->arena};
            emit_shard_slices(&target, tg, s, 0, x->bytes, 0);
            for (uint32_t k = 0; k < host.slice_count; k++) {
                copy_slice(
                    &host.slices[k], v->source.bytes, (uint32_t)dtype_bytes(v->dtype), bytes);
            }
        }
        add_segment(b, tile, b->c->placement->addr[s->buffer.n], bytes, x->bytes);
    }
}

/* Addresses that calls of PICK read. */
static void add_tables(struct builder *b, uint32_t t, struct physical_tile tile) {
    const struct tile_graph *tg = b->c->tg;
    const uint32_t *addr = b->c->placement->addr;
    for (uint32_t i = 0; i < tg->table_count; i++) {
        const struct lower_table *x = &tg->tables[i];
        if (lower_buffer(tg, x->buffer)->tile.n != t) {
            continue;
        }
        uint32_t *words = ARENA_ARRAY(b->arena, uint32_t, x->count);
        for (uint32_t k = 0; k < x->count; k++) {
            words[k] = addr[x->words[k].buffer.n] + x->words[k].value;
        }
        add_words(b, tile, addr[x->buffer.n], words, x->count);
    }
}

static int rank_of(const struct emit_host *h, struct physical_tile tile) {
    for (uint32_t i = 0; i < h->participant_count; i++) {
        if (h->participants[i] == tile.n) {
            return (int)i;
        }
    }
    return -1;
}

static int by_segment(const void *pa, const void *pb) {
    const struct package_segment *a = pa, *b = pb;
    if (a->tile.n != b->tile.n) {
        return a->tile.n < b->tile.n ? -1 : 1;
    }
    return a->addr < b->addr ? -1 : a->addr > b->addr;
}

static int by_slice(const void *pa, const void *pb) {
    const struct package_slice *a = pa, *b = pb;
    if (a->phase != b->phase) {
        return a->phase < b->phase ? -1 : 1;
    }
    if (a->tile.n != b->tile.n) {
        return a->tile.n < b->tile.n ? -1 : 1;
    }
    return a->page_offset < b->page_offset ? -1 : a->page_offset > b->page_offset;
}

static int by_symbol(const void *pa, const void *pb) {
    const struct package_symbol *a = pa, *b = pb;
    if (a->tile != b->tile) {
        return a->tile < b->tile ? -1 : 1;
    }
    if (a->addr != b->addr) {
        return a->addr < b->addr ? -1 : 1;
    }
    return strcmp(a->name, b->name);
}

static void add_tile(struct builder *b, uint32_t t) {
    struct physical_tile tile = target_physical((struct logical_tile){(uint16_t)t});
    const struct emit_text *text = b->c->text;
    enum emit_role role = emit_role(b->c, t);
    add_segment(b, tile, RT_TEXT_BASE, text->bytes, text->size);
    if (role == ROLE_ACTIVE) {
        add_segment(b, tile, RT_DATA0, text->more, text->more_size);
    }
    add_code(b, t, tile);
    int rank = rank_of(b->c->host, tile);
    if (rank >= 0) {
        uint32_t headers[RT_HEADER_WORDS];
        runtime_headers(tile, (uint32_t)rank, headers);
        add_words(b, tile, RT_HEADERS, headers, RT_HEADER_WORDS);
    }
    const struct emit_tile_layout *x = &b->l->tiles[t];
    add_words(b, tile, RT_TABLES, b->code->tables[t], x->table_main_words);
    if (x->table_words > x->table_main_words) {
        add_words(
            b, tile, x->table_more, b->code->tables[t] + x->table_main_words,
            x->table_words - x->table_main_words);
    }
    add_literals(b, t, tile);
    add_tables(b, t, tile);
}

static void add_text_symbols(struct builder *b) {
    const struct emit_text *text = b->c->text;
    for (uint32_t i = 0; i < text->symbol_count; i++) {
        const struct asm_symbol *s = &text->symbols[i];
        uint32_t end = s->addr >= RT_DATA0 ? RT_DATA0 + text->more_size : RT_TEXT_BASE + text->size;
        if (i + 1 < text->symbol_count && text->symbols[i + 1].addr < end) {
            end = text->symbols[i + 1].addr;
        }
        add_symbol(b, -1, s->addr, end - s->addr, s->name);
    }
}

static struct package_phase *make_phases(const struct emit_host *h, struct arena *a) {
    struct package_phase *phases = ARENA_ARRAY(a, struct package_phase, h->phase_count);
    for (uint32_t i = 0; i < h->phase_count; i++) {
        const struct emit_phase *p = &h->phases[i];
        phases[i] = (struct package_phase){
            .call = p->stream == STREAM_INITIALIZE ? PACKAGE_INITIALIZE : PACKAGE_RUN,
            .index = p->index + (p->stream == STREAM_OUTPUT ? h->stream_phases[STREAM_INPUT] : 0),
            .is_output = p->stream == STREAM_OUTPUT};
    }
    return phases;
}

int emit_images(
    const struct emit_context *c, const struct emit_layout *l, const struct emit_code *code,
    const struct emit_names *names, struct arena *a, struct package **ret, struct err *err) {
    struct builder *b = ARENA_NEW(a, struct builder);
    *b = (struct builder){.c = c, .l = l, .code = code, .arena = a};
    for (uint32_t t = 0; t < TARGET_TILES; t++) {
        add_tile(b, t);
    }
    add_text_symbols(b);
    const struct emit_host *h = c->host;
    struct package_slice *slices = arena_memdup(a, h->slices, sizeof *slices * h->slice_count);
    qsort(b->segments.data, b->segments.len, sizeof *b->segments.data, by_segment);
    qsort(b->symbols.data, b->symbols.len, sizeof *b->symbols.data, by_symbol);
    if (h->slice_count > 0) {
        qsort(slices, h->slice_count, sizeof *slices, by_slice);
    }
    if (b->contents.len > PACKAGE_MAX_CONTENTS || b->segments.len > PACKAGE_MAX_SEGMENTS) {
        return err_set(
            err, ERR_DOES_NOT_FIT,
            "package: %zu contents and %zu segments, at most %u "
            "and %u",
            b->contents.len, b->segments.len, PACKAGE_MAX_CONTENTS, PACKAGE_MAX_SEGMENTS);
    }
    struct package *p = ARENA_NEW(a, struct package);
    *p = (struct package){
        .target = TARGET_NAME,
        .compiler_id = names->compiler_id,
        .key = names->key,
        .options = names->options,
        .compute_tiles = c->tg->plan->tiles,
        .contents = b->contents.data,
        .content_count = (uint32_t)b->contents.len,
        .segments = b->segments.data,
        .segment_count = (uint32_t)b->segments.len,
        .bindings = h->bindings,
        .binding_count = h->binding_count,
        .phases = make_phases(h, a),
        .phase_count = h->phase_count,
        .slices = slices,
        .slice_count = h->slice_count,
        .participants = h->participants,
        .participant_count = h->participant_count,
        .symbols = b->symbols.data,
        .symbol_count = (uint32_t)b->symbols.len,
        .report = names->report};
    emit_profile_plan(c, code, a, p);
    *ret = p;
    return 0;
}
