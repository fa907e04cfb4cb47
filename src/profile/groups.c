/* Groups of pieces: by kind, kernel, operation, phase and tile. A row has the cycles of all its
 * pieces together, those of its busiest tile, and the time in which at least one tile was at it
 * (`span`: overlaps count once). Two sorts a grouping. */
#include "profile/profile_internal.h"

#include <stdlib.h>
#include <string.h>

struct entry {
    uint32_t key;
    const struct profile_piece *piece;
};

struct row {
    uint32_t key, tiles, busiest_tile;
    size_t pieces;
    int64_t cycles, busiest, span, first, last;
    double predicted, useful;
};

struct grouping {
    const struct profile *p;
    const struct profile_pieces *pieces;
    const uint32_t *kernel_of; /* by call: the first call with that symbol */
    struct entry *entries;
    size_t count;
};

static int compare(uint64_t a, uint64_t b) {
    return a < b ? -1 : a > b;
}

static int by_tile(const void *pa, const void *pb) {
    const struct entry *a = pa, *b = pb;
    int c = compare(a->key, b->key);
    c = c != 0 ? c : compare(a->piece->tile.n, b->piece->tile.n);
    return c != 0 ? c : (a->piece->start > b->piece->start) - (a->piece->start < b->piece->start);
}

static int by_start(const void *pa, const void *pb) {
    const struct entry *a = pa, *b = pb;
    int c = compare(a->key, b->key);
    c = c != 0 ? c : (a->piece->start > b->piece->start) - (a->piece->start < b->piece->start);
    return c != 0 ? c : compare(a->piece->tile.n, b->piece->tile.n);
}

static void sum_tiles(const struct entry *e, size_t n, struct row *r) {
    int64_t own = 0;
    r->key = e[0].key;
    r->pieces = n;
    for (size_t i = 0; i < n; i++) {
        const struct profile_piece *x = e[i].piece;
        own += x->end - x->start;
        r->cycles += x->end - x->start;
        r->predicted += x->predicted;
        r->useful += x->useful;
        if (i + 1 == n || e[i + 1].piece->tile.n != x->tile.n) {
            r->tiles++;
            if (own > r->busiest) {
                r->busiest = own;
                r->busiest_tile = x->tile.n;
            }
            own = 0;
        }
    }
}

static void sum_span(const struct entry *e, size_t n, struct row *r) {
    int64_t end = INT64_MIN;
    r->first = e[0].piece->start;
    for (size_t i = 0; i < n; i++) {
        const struct profile_piece *x = e[i].piece;
        int64_t from = x->start > end ? x->start : end;
        r->span += x->end > from ? x->end - from : 0;
        end = x->end > end ? x->end : end;
    }
    r->last = end;
}

static int by_cost(const void *pa, const void *pb) {
    const struct row *a = pa, *b = pb;
    if (a->span != b->span) {
        return a->span > b->span ? -1 : 1;
    }
    return compare(a->key, b->key);
}

static json_t *name_of(const struct grouping *g, const char *by, uint32_t key) {
    if (strcmp(by, "kind") == 0) {
        return json_string(profile_kind_name((enum profile_kind)key));
    }
    if (strcmp(by, "kernel") == 0) {
        return json_string(g->p->calls[key].kernel);
    }
    if (strcmp(by, "operation") == 0) {
        for (uint32_t i = 0; i < g->p->call_count; i++) {
            if (g->p->calls[i].operation == key) {
                return json_sprintf("%u %s", key, g->p->calls[i].op);
            }
        }
    }
    return json_sprintf("%u", key);
}

static json_t *row_json(const struct grouping *g, const char *by, const struct row *r) {
    json_t *row = json_pack(
        "{s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "name", name_of(g, by, r->key),
        "pieces", (json_int_t)r->pieces, "tiles", (json_int_t)r->tiles, "span", (json_int_t)r->span,
        "cycles", (json_int_t)r->cycles, "busiest", (json_int_t)r->busiest, "busiest_tile",
        (json_int_t)r->busiest_tile, "first", (json_int_t)r->first, "last", (json_int_t)r->last,
        "predicted", (json_int_t)r->predicted, "useful", (json_int_t)r->useful);
    if (row != NULL && r->useful > 0 && r->cycles > 0) {
        json_object_set_new(row, "utilisation", json_real(r->useful / (double)r->cycles));
    }
    if (row != NULL && r->predicted > 0 && r->cycles > 0) {
        json_object_set_new(
            row, "prediction_error", json_real(r->predicted / (double)r->cycles - 1));
    }
    return row;
}

/* Rows of the entries, dearest first; those of tiles and phases in their order. */
static json_t *rows_of(struct grouping *g, const char *by, bool is_ordered) {
    size_t count = 0;
    for (size_t i = 0; i < g->count; i++) {
        count += i == 0 || g->entries[i].key != g->entries[i - 1].key;
    }
    struct row *rows = calloc(count + 1, sizeof *rows);
    json_t *list = json_array();
    for (int pass = 0; rows != NULL && pass < 2; pass++) {
        qsort(g->entries, g->count, sizeof *g->entries, pass == 0 ? by_tile : by_start);
        struct row *r = rows;
        for (size_t first = 0, n; first < g->count; first += n, r++) {
            n = 1;
            while (first + n < g->count && g->entries[first + n].key == g->entries[first].key) {
                n++;
            }
            (pass == 0 ? sum_tiles : sum_span)(&g->entries[first], n, r);
        }
    }
    if (rows != NULL && !is_ordered) {
        qsort(rows, count, sizeof *rows, by_cost);
    }
    for (size_t i = 0; rows != NULL && i < count; i++) {
        json_array_append_new(list, row_json(g, by, &rows[i]));
    }
    free(rows);
    return list;
}

static uint32_t key_of(const struct grouping *g, const char *by, const struct profile_piece *x) {
    if (strcmp(by, "kind") == 0) {
        return (uint32_t)x->kind;
    }
    if (strcmp(by, "kernel") == 0) {
        return g->kernel_of[x->call];
    }
    if (strcmp(by, "operation") == 0) {
        return g->p->calls[x->call].operation;
    }
    return strcmp(by, "phase") == 0 ? x->level : x->tile.n;
}

static json_t *group(struct grouping *g, const char *by) {
    bool of_calls = strcmp(by, "kernel") == 0 || strcmp(by, "operation") == 0;
    bool is_tile = strcmp(by, "tile") == 0, is_phase = strcmp(by, "phase") == 0;
    g->count = 0;
    for (size_t i = 0; i < g->pieces->count; i++) {
        const struct profile_piece *x = &g->pieces->pieces[i];
        bool is_in = of_calls ? x->call != PROFILE_NO_CALL
                     : is_tile || is_phase
                         ? x->kind == PROFILE_COMPUTE || x->kind == PROFILE_EXCHANGE ||
                               x->kind == PROFILE_SYNC || x->kind == PROFILE_REST ||
                               x->kind == PROFILE_REPEAT
                         : true;
        if (is_in) {
            g->entries[g->count++] = (struct entry){key_of(g, by, x), x};
        }
    }
    qsort(g->entries, g->count, sizeof *g->entries, by_start);
    return rows_of(g, by, is_tile || is_phase);
}

struct symbol {
    const char *name;
    uint32_t call;
};

static int by_symbol(const void *pa, const void *pb) {
    const struct symbol *a = pa, *b = pb;
    int c = strcmp(a->name, b->name);
    return c != 0 ? c : compare(a->call, b->call);
}

/* The first call of each symbol stands for it. */
static uint32_t *find_kernels(const struct profile *p) {
    struct symbol *symbols = calloc(p->call_count + 1u, sizeof *symbols);
    uint32_t *ret = calloc(p->call_count + 1u, sizeof *ret);
    if (symbols == NULL || ret == NULL) {
        free(symbols);
        free(ret);
        return NULL;
    }
    for (uint32_t i = 0; i < p->call_count; i++) {
        symbols[i] = (struct symbol){p->calls[i].kernel, i};
    }
    qsort(symbols, p->call_count, sizeof *symbols, by_symbol);
    for (uint32_t i = 0; i < p->call_count; i++) {
        bool is_same = i > 0 && strcmp(symbols[i].name, symbols[i - 1].name) == 0;
        ret[symbols[i].call] = is_same ? ret[symbols[i - 1].call] : symbols[i].call;
    }
    free(symbols);
    return ret;
}

json_t *profile_groups(const struct profile *p, const struct profile_pieces *r) {
    static const char *const ways[] = {"kind", "kernel", "operation", "phase", "tile"};
    uint32_t *kernel_of = find_kernels(p);
    struct entry *entries = malloc((r->count + 1) * sizeof *entries);
    json_t *groups = kernel_of != NULL && entries != NULL ? json_object() : NULL;
    struct grouping g = {.p = p, .pieces = r, .kernel_of = kernel_of, .entries = entries};
    for (size_t i = 0; groups != NULL && i < sizeof ways / sizeof ways[0]; i++) {
        json_object_set_new(groups, ways[i], group(&g, ways[i]));
    }
    free(kernel_of);
    free(entries);
    return groups;
}
