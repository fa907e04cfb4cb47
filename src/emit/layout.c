/* Where programs and rows go. On each tile: the program, then its rows by level, each 8-aligned,
 * into what the text leaves of element 0; from the first that does not fit on, into elements from
 * RT_DATA0, which data then does not get. Descriptors that do not fit the tables' area follow in
 * elements of their own. Rows of a tile that are equal word for word, as those of equal layers
 * whose data lies at the same addresses, are stored once. Idle tiles all have the same program. */
#include "emit/emit_internal.h"

#include <string.h>

static uint32_t even_bytes(uint32_t words) {
    return (4 * words + 7) & ~7u;
}

static uint32_t whole_elements(uint32_t bytes) {
    return (bytes + TARGET_ELEMENT_BYTES - 1) / TARGET_ELEMENT_BYTES;
}

struct cursor {
    uint32_t main, more; /* next free addresses */
};

static uint32_t take(struct cursor *at, uint32_t bytes) {
    uint32_t addr;
    if (at->more == RT_DATA0 && at->main + bytes <= RT_TEXT_LIMIT) {
        addr = at->main;
        at->main += bytes;
    } else {
        addr = at->more;
        at->more += bytes;
    }
    return addr;
}

/* Level of an earlier row with the same words: it serves both. `level` itself when there is none.
 * rows: those of the tile so far, NULL where there is none. */
static uint32_t equal_row(const struct exchange_row *const *rows, uint32_t level) {
    const struct exchange_row *row = rows[level];
    for (uint32_t i = 0; i < level; i++) {
        const struct exchange_row *other = rows[i];
        if (other != NULL && other->word_count == row->word_count &&
            memcmp(other->words, row->words, row->word_count * sizeof *row->words) == 0) {
            return i;
        }
    }
    return level;
}

static int layout_tile(
    const struct emit_context *c, struct emit_layout *l, uint32_t t, struct arena *a,
    struct err *err) {
    struct emit_tile_layout *x = &l->tiles[t];
    struct emit_program program;
    x->row = ARENA_ARRAY(a, uint32_t, c->tg->level_count);
    x->program = RT_TEXT_BASE; /* any legal address: sizes depend on none */
    x->table_words = emit_table_words(c, t);
    x->marks = emit_marks_addr(c->samples, t);
    x->table_main_words = emit_table_prefix(c, t, (x->marks - RT_TABLES) / 4);
    x->table_more = RT_DATA0;
    struct arena_mark mark = arena_mark(a);
    int rc = emit_tile_program(c, x, t, a, &program, err);
    x->program_words = program.count;
    arena_rewind(a, mark);
    if (rc != 0) {
        return rc;
    }
    struct cursor at = {RT_TEXT_BASE + c->text->size, RT_DATA0};
    struct cursor start = at;
    /* Kernels beyond element 0 come first there; programs still may use element 0. */
    uint32_t bytes = even_bytes(x->program_words);
    x->program = take(&at, bytes);
    l->max_program_bytes = bytes > l->max_program_bytes ? bytes : l->max_program_bytes;
    uint32_t row_bytes = 0;
    const struct exchange_row **rows =
        ARENA_ARRAY(a, const struct exchange_row *, c->tg->level_count);
    for (uint32_t level = 0; level < c->tg->level_count; level++) {
        rows[level] = exchange_plan_row(c->exchange, level, (struct logical_tile){(uint16_t)t});
        uint32_t same = rows[level] != NULL ? equal_row(rows, level) : level;
        if (same < level) {
            x->row[level] = x->row[same];
        } else if (rows[level] != NULL) {
            x->row[level] = take(&at, even_bytes(rows[level]->word_count));
            row_bytes += even_bytes(rows[level]->word_count);
        }
    }
    l->max_row_bytes = row_bytes > l->max_row_bytes ? row_bytes : l->max_row_bytes;
    x->main_bytes = at.main - start.main;
    uint32_t moved = at.more - RT_DATA0;
    if (c->text->more_size > 0 && moved > 0) { /* behind the kernels that lie there */
        x->program += x->program >= RT_DATA0 ? c->text->more_size : 0;
        for (uint32_t level = 0; level < c->tg->level_count; level++) {
            x->row[level] += x->row[level] >= RT_DATA0 ? c->text->more_size : 0;
        }
    }
    x->more_bytes = moved + c->text->more_size;
    uint32_t elements = whole_elements(x->more_bytes > 0 ? x->more_bytes + TARGET_FETCH_AHEAD : 0);
    x->table_more = RT_DATA0 + elements * TARGET_ELEMENT_BYTES;
    bytes = 4 * x->table_words;
    l->max_table_bytes = bytes > l->max_table_bytes ? bytes : l->max_table_bytes;
    elements += whole_elements(bytes - 4 * x->table_main_words);
    struct logical_tile tile = {(uint16_t)t};
    if (elements > EMIT_MAX_OVERFLOW) {
        return err_set(
            err, ERR_DOES_NOT_FIT,
            "tile %u (logical %u): exchange rows need %u bytes, beside a program of %u bytes and "
            "tables of %u; all that takes %u elements of %u bytes behind the first two, limit %u",
            target_physical(tile).n, t, row_bytes, 4 * x->program_words, bytes, elements,
            TARGET_ELEMENT_BYTES, EMIT_MAX_OVERFLOW);
    }
    l->overflow_elements[t] = (uint8_t)elements;
    return 0;
}

int emit_layout_build(
    const struct emit_context *c, struct arena *a, struct emit_layout **ret, struct err *err) {
    struct emit_layout *l = ARENA_NEW(a, struct emit_layout);
    l->tiles = ARENA_ARRAY(a, struct emit_tile_layout, TARGET_TILES);
    l->overflow_elements = ARENA_ARRAY(a, uint8_t, TARGET_TILES);
    uint32_t idle = TARGET_TILES;
    for (uint32_t t = 0; t < TARGET_TILES; t++) {
        bool is_idle = emit_role(c, t) == ROLE_IDLE;
        if (is_idle && idle < TARGET_TILES) {
            l->tiles[t] = l->tiles[idle];
            l->overflow_elements[t] = l->overflow_elements[idle];
            continue;
        }
        int rc = layout_tile(c, l, t, a, err);
        if (rc != 0) {
            return rc;
        }
        idle = is_idle ? t : idle;
    }
    *ret = l;
    return 0;
}
