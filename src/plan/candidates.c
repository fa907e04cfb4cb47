/* What a step may choose from: distributions (interned, so that equal cuts are equal pointers) and
 * the grids of a GEMM. Only cuts with a distinct largest part are listed: 100 panels in 34 to 49
 * parts are all "3 at most", so 34 stands for them. */
#include "plan/plan_internal.h"

#include <string.h>

struct dist_entry {
    struct dist_entry *next;
    uint32_t rows, panels, m, n, k;
    uint32_t parts;     /* of rows in a head: see dist_heads() */
    uint32_t row_parts; /* of a block: see dist_result() */
    enum dist_layout { DIST_RESULT, DIST_OPERAND, DIST_STREAM } layout;
    uint32_t quads; /* panels counts so many */
    uint32_t first; /* tile of block (0, 0) */
    struct plan_dist dist;
};

const uint32_t *dist_bounds(struct arena *a, uint32_t total, uint32_t count) {
    uint32_t *bound = ARENA_ARRAY(a, uint32_t, (size_t)count + 1);
    for (uint32_t i = 0; i <= count; i++) {
        bound[i] = (uint32_t)((uint64_t)total * i / count);
    }
    return bound;
}

static struct dist_entry *find(struct dist_pool *pool, const struct dist_entry *key) {
    for (struct dist_entry *e = pool->head; e != NULL; e = e->next) {
        if (e->rows == key->rows && e->panels == key->panels && e->m == key->m && e->n == key->n &&
            e->k == key->k && e->parts == key->parts && e->row_parts == key->row_parts &&
            e->layout == key->layout && e->quads == key->quads && e->first == key->first) {
            return e;
        }
    }
    return NULL;
}

/* More blocks than tiles: neighbours share one. */
static void fill_result(struct arena *a, uint32_t tiles, struct dist_entry *e) {
    const uint32_t *outer = dist_bounds(a, e->panels, e->n);
    uint32_t *bound = ARENA_ARRAY(a, uint32_t, (size_t)e->n * e->k + 1);
    uint16_t *column_tile = ARENA_ARRAY(a, uint16_t, (size_t)e->n * e->k);
    uint16_t *stride = ARENA_ARRAY(a, uint16_t, (size_t)e->n * e->k); /* to the next row part */
    uint32_t count = 0;
    for (uint32_t j = 0; j < e->n; j++) {
        uint32_t width = outer[j + 1] - outer[j];
        uint32_t parts = e->k / e->row_parts < width ? e->k / e->row_parts : width;
        for (uint32_t p = 0; p < parts; p++) {
            bound[count] = outer[j] + (uint32_t)((uint64_t)width * p / parts);
            stride[count] = (uint16_t)parts;
            column_tile[count++] = (uint16_t)(j * e->k + p);
        }
    }
    bound[count] = e->panels;
    uint64_t places = (uint64_t)e->m * e->n * e->k;
    uint32_t m = e->m * e->row_parts;
    uint16_t *tile = ARENA_ARRAY(a, uint16_t, (size_t)m * count);
    for (uint32_t i = 0; i < m; i++) {
        for (uint32_t c = 0; c < count; c++) {
            uint32_t block = i / e->row_parts, part = i % e->row_parts;
            uint32_t at = e->parts > 1 ? (i / e->parts * e->n + c) * e->parts + i % e->parts
                                       : block * e->n * e->k + column_tile[c] + part * stride[c];
            at = places > tiles ? (uint32_t)(at * (uint64_t)tiles / places) : at;
            tile[i * count + c] = (uint16_t)(e->first + at);
        }
    }
    e->dist = (struct plan_dist){m, count, dist_bounds(a, e->rows, m), bound, tile, e->quads};
}

static void fill_operand(struct arena *a, struct dist_entry *e) {
    uint16_t *tile = ARENA_ARRAY(a, uint16_t, (size_t)e->m * e->k);
    for (uint32_t i = 0; i < e->m; i++) {
        for (uint32_t kk = 0; kk < e->k; kk++) {
            tile[i * e->k + kk] = (uint16_t)(i * e->n * e->k + kk);
        }
    }
    e->dist = (struct plan_dist){
        e->m, e->k, dist_bounds(a, e->rows, e->m), dist_bounds(a, e->panels, e->k), tile, 4};
}

static void fill_stream(struct arena *a, struct dist_entry *e) {
    const uint32_t *part = dist_bounds(a, e->panels, e->k);
    uint32_t *bound = ARENA_ARRAY(a, uint32_t, (size_t)e->n * e->k + 1);
    uint16_t *column_tile = ARENA_ARRAY(a, uint16_t, (size_t)e->n * e->k);
    uint32_t count = 0;
    for (uint32_t kk = 0; kk < e->k; kk++) {
        uint32_t groups = part[kk + 1] - part[kk], parts = e->n < groups ? e->n : groups;
        for (uint32_t p = 0; p < parts; p++) {
            bound[count] = part[kk] + (uint32_t)((uint64_t)groups * p / parts);
            column_tile[count++] = (uint16_t)(p * e->k + kk);
        }
    }
    bound[count] = e->panels;
    uint16_t *tile = ARENA_ARRAY(a, uint16_t, (size_t)e->m * count);
    for (uint32_t i = 0; i < e->m; i++) {
        for (uint32_t c = 0; c < count; c++) {
            tile[i * count + c] = (uint16_t)(i * e->n * e->k + column_tile[c]);
        }
    }
    e->dist = (struct plan_dist){e->m, count, dist_bounds(a, e->rows, e->m), bound, tile, 4};
}

bool plan_dist_equal(const struct plan_dist *a, const struct plan_dist *b) {
    if (a == b) {
        return true;
    }
    return a != NULL && b != NULL && a->m == b->m && a->n == b->n && a->quads == b->quads &&
           memcmp(a->row_bound, b->row_bound, sizeof *a->row_bound * (a->m + 1)) == 0 &&
           memcmp(a->panel_bound, b->panel_bound, sizeof *a->panel_bound * (a->n + 1)) == 0 &&
           memcmp(a->tile, b->tile, sizeof *a->tile * a->m * a->n) == 0;
}

uint32_t dist_depth(const struct plan_dist *d) {
    uint32_t run = 0, longest = 0;
    for (uint32_t b = 0; b < d->m * d->n; b++) {
        run = b > 0 && d->tile[b] == d->tile[b - 1] ? run + 1 : 1;
        longest = run > longest ? run : longest;
    }
    return longest;
}

static const struct plan_dist *intern(struct dist_pool *pool, struct dist_entry key) {
    struct dist_entry *e = find(pool, &key);
    if (e != NULL) {
        return &e->dist;
    }
    e = ARENA_NEW(pool->arena, struct dist_entry);
    *e = key;
    switch (key.layout) {
    case DIST_OPERAND: fill_operand(pool->arena, e); break;
    case DIST_STREAM: fill_stream(pool->arena, e); break;
    case DIST_RESULT: fill_result(pool->arena, pool->tiles, e); break;
    }
    e->next = pool->head;
    pool->head = e;
    /* The same cut reached another way keeps the older pointer. */
    for (struct dist_entry *o = e->next; o != NULL; o = o->next) {
        if (o->rows == e->rows && o->panels == e->panels && plan_dist_equal(&o->dist, &e->dist)) {
            e->dist = o->dist;
            return &o->dist;
        }
    }
    return &e->dist;
}

/* A plain grid of m x n blocks, one a tile; callers change what differs. */
static struct dist_entry entry(uint32_t rows, uint32_t panels, uint32_t m, uint32_t n) {
    return (struct dist_entry){
        .rows = rows,
        .panels = panels,
        .m = m,
        .n = n,
        .k = 1,
        .parts = 1,
        .row_parts = 1,
        .layout = DIST_RESULT,
        .quads = 4};
}

const struct plan_dist *
dist_grid(struct dist_pool *pool, uint32_t rows, uint32_t panels, uint32_t m, uint32_t n) {
    return intern(pool, entry(rows, panels, m, n));
}

const struct plan_dist *
dist_strips(struct dist_pool *pool, uint32_t rows, uint32_t panels, uint32_t n, uint32_t first) {
    bool is_whole = true;
    for (uint32_t j = 0; j <= n; j++) {
        is_whole = is_whole && (uint64_t)(4 * panels) * j / n % 4 == 0;
    }
    struct dist_entry e = entry(rows, is_whole ? panels : 4 * panels, rows, n);
    e.quads = is_whole ? 4 : 1;
    e.first = first;
    return intern(pool, e);
}

const struct plan_dist *
dist_result(struct dist_pool *pool, uint32_t rows, uint32_t panels, const struct grid *g) {
    if (g->form.by_rows) {
        return dist_strips(pool, rows, panels, g->n, g->form.first);
    }
    struct dist_entry e = entry(rows, panels, g->m, g->n);
    e.k = g->k;
    e.row_parts = g->form.row_parts;
    e.first = g->form.first;
    return intern(pool, e);
}

const struct plan_dist *dist_operand(
    struct dist_pool *pool, uint32_t rows, uint32_t groups, uint32_t m, uint32_t n, uint32_t k) {
    struct dist_entry e = entry(rows, groups, m, n);
    e.k = k;
    e.layout = DIST_OPERAND;
    return intern(pool, e);
}

const struct plan_dist *dist_stream(
    struct dist_pool *pool, uint32_t rows, uint32_t groups, uint32_t m, uint32_t n, uint32_t k) {
    struct dist_entry e = entry(rows, groups, m, n);
    e.k = k;
    e.layout = DIST_STREAM;
    return intern(pool, e);
}

const struct plan_dist *dist_heads(
    struct dist_pool *pool, uint32_t rows, uint32_t panels, uint32_t batches, uint32_t heads,
    uint32_t parts, uint32_t cuts, uint32_t first) {
    struct dist_entry e = entry(rows, panels, batches * parts, heads * cuts);
    e.parts = parts;
    e.first = first;
    return intern(pool, e);
}

const struct plan_dist *
dist_rows16(struct dist_pool *pool, uint32_t rows, uint32_t panels, uint32_t m) {
    const struct plan_dist *base = dist_grid(pool, cost_ceil(rows, 16), panels, m, 1);
    uint32_t *bound = ARENA_ARRAY(pool->arena, uint32_t, (size_t)m + 1);
    for (uint32_t i = 0; i <= m; i++) {
        bound[i] = i < m ? 16 * base->row_bound[i] : rows;
    }
    struct plan_dist *d = ARENA_NEW(pool->arena, struct plan_dist);
    *d = *base;
    d->row_bound = bound;
    return d;
}

/* The least number of parts after `parts` whose largest part is smaller; 0 when there is none. */
static uint32_t next_cut(uint32_t total, uint32_t parts) {
    uint32_t largest = cost_ceil(total, parts);
    return largest <= 1 ? 0 : cost_ceil(total, largest - 1);
}

uint32_t plan_row_menu(uint32_t rows, uint32_t tiles, uint32_t *ret, uint32_t limit) {
    uint32_t count = 0;
    for (uint32_t m = 1; m != 0 && m <= tiles; m = next_cut(rows, m)) {
        if (count == limit) {
            count--;
        }
        ret[count++] = m;
    }
    return count;
}

/* Keeps ret[] sorted by (score, m, n, k) and at most `limit` long. */
static uint32_t menu_insert(struct grid *ret, uint32_t count, uint32_t limit, struct grid g) {
    if (count == limit && ret[count - 1].score <= g.score) {
        return count;
    }
    uint32_t at = count < limit ? count++ : limit - 1;
    while (at > 0 && ret[at - 1].score > g.score) {
        ret[at] = ret[at - 1];
        at--;
    }
    ret[at] = g;
    return count;
}

static uint64_t grid_score(const struct plan_step *s, const struct grid *g) {
    uint64_t exchange, compute;
    cost_gemm_reduce(s, g, &exchange, &compute);
    uint64_t operand =
        (uint64_t)cost_ceil(s->rows, g->m) * cost_ceil(s->groups, g->k) * 8 + PLAN_START_EVENTS;
    return cost_gemm_compute(s, g, true) + exchange + compute + cost_gemm_stream(s, g) +
           (g->n > 1 ? operand + PLAN_SYNC_CYCLES : 0);
}

/* Whether f16 partials are allowed and there is a kernel call for them. A bias of a block that is
 * not split lies in region 1, where no image holds a literal. */
static bool may_be_f16(const struct plan_step *s, const struct plan_options *o, uint32_t k) {
    return o->accumulate_f16 && cost_ceil(s->groups, k) <= PLAN_F16_GROUPS &&
           (k > 1 || s->row.n == NO_VALUE.n || !s->row_is_literal);
}

/* The cheapest ways to share the reduction of a block: by panels, by rows, by both. */
static void choose_row_parts(const struct plan_step *s, struct grid *g) {
    uint32_t panels = cost_ceil(s->panels, g->n), best = 1;
    const uint32_t tried[] = {1, g->k / (g->k < panels ? g->k : panels), g->k};
    uint64_t least = UINT64_MAX;
    for (size_t i = 0; i < sizeof tried / sizeof *tried; i++) {
        g->form.row_parts = tried[i];
        if (tried[i] * g->m > s->rows) {
            continue;
        }
        uint64_t exchange, compute;
        cost_gemm_reduce(s, g, &exchange, &compute);
        if (exchange + compute < least) {
            least = exchange + compute;
            best = tried[i];
        }
    }
    g->form.row_parts = best;
}

struct menu {
    const struct plan_step *step;
    struct grid *list; /* by score, `limit` at most */
    uint32_t count, limit;
    struct grid least[16]; /* those that need least memory, by bytes */
    uint32_t least_count, least_limit;
};

/* only_small: as one that needs little memory, not by its score. */
static void menu_offer(struct menu *menu, struct grid g, bool only_small) {
    struct footprint f = cost_gemm_bytes(menu->step, &g);
    uint64_t bytes = f.resident + f.transient;
    if (!only_small) {
        g.score = grid_score(menu->step, &g);
        menu->count = menu_insert(menu->list, menu->count, menu->limit, g);
    }
    g.score = bytes;
    menu->least_count = menu_insert(menu->least, menu->least_count, menu->least_limit, g);
}

static bool same_grid(const struct grid *a, const struct grid *b) {
    return a->m == b->m && a->n == b->n && a->k == b->k && plan_form_equal(&a->form, &b->form);
}

uint32_t plan_gemm_menu(
    const struct plan_step *s, const struct plan_options *options, bool may_stream,
    struct grid *ret, uint32_t limit, uint64_t *work) {
    uint32_t tiles = options->tiles;
    uint32_t small = limit / 5; /* places kept for the grids that need least memory */
    struct menu menu = {.step = s, .list = ret, .limit = limit - small};
    menu.least_limit = small < 16 ? small : 16;
    for (uint32_t k = 1; k != 0 && k <= tiles; k = next_cut(s->groups, k)) {
        for (uint32_t n = 1; n != 0 && n * k <= tiles; n = next_cut(s->panels, n)) {
            for (uint32_t m = 1; m != 0 && m * n * k <= tiles; m = next_cut(s->rows, m)) {
                for (int is_f16 = 0; is_f16 <= (may_be_f16(s, options, k) ? 1 : 0); is_f16++) {
                    struct grid g = {
                        m, n, k, {.is_f16 = is_f16 == 1, .row_parts = 1, .chunks = 1}, 0};
                    ++*work;
                    if (k > 1) {
                        choose_row_parts(s, &g);
                    }
                    bool fits = plan_stream_form(s, &g, false);
                    if (fits) {
                        menu_offer(&menu, g, false);
                    }
                    if (may_stream && m > 1 && plan_stream_form(s, &g, true)) {
                        menu_offer(&menu, g, fits);
                    }
                }
            }
        }
    }
    for (uint32_t n = 1; n != 0 && s->rows * n <= tiles; n = next_cut(4 * s->panels, n)) {
        ++*work;
        struct grid g = {s->rows, n, 1, {.row_parts = 1, .by_rows = true, .chunks = 1}, 0};
        if (plan_stream_form(s, &g, false)) {
            menu_offer(&menu, g, false);
        }
    }
    for (uint32_t i = 0; i < menu.least_count; i++) {
        bool is_listed = false;
        for (uint32_t j = 0; j < menu.count; j++) {
            is_listed = is_listed || same_grid(&ret[j], &menu.least[i]);
        }
        if (!is_listed && menu.count < limit) {
            menu.least[i].score = grid_score(s, &menu.least[i]);
            ret[menu.count++] = menu.least[i];
        }
    }
    return menu.count;
}

/* ---- Shares of a reduction ------------------------------------------------------------------- */

bool plan_form_equal(const struct plan_form *a, const struct plan_form *b) {
    return a->is_f16 == b->is_f16 && a->row_parts == b->row_parts && a->by_rows == b->by_rows &&
           a->chunks == b->chunks && a->streams_w == b->streams_w && a->first == b->first &&
           a->lanes == b->lanes;
}

bool plan_reduces_in_place(const struct plan_step *s) {
    return s->form.is_f16 || s->form.row_parts > 1 || s->form.streams_w;
}

uint32_t plan_panel_parts(const struct plan_step *s, uint32_t j) {
    uint32_t width = s->panel_bound[j + 1] - s->panel_bound[j], parts = s->k / s->form.row_parts;
    return parts < width ? parts : width;
}

struct plan_share
plan_reduce_share(const struct plan_step *s, uint32_t i, uint32_t j, uint32_t kk) {
    uint32_t first = s->panel_bound[j], width = s->panel_bound[j + 1] - first;
    uint32_t parts = plan_panel_parts(s, j), row_parts = s->form.row_parts;
    struct plan_share share = {.row_part = kk / parts, .panel_part = kk % parts};
    if (share.row_part >= row_parts) {
        share.panel_first = share.panel_last = first + width;
        return share;
    }
    uint64_t row = (uint64_t)i * row_parts + share.row_part, all = (uint64_t)s->m * row_parts;
    share.row_first = (uint32_t)(s->rows * row / all);
    share.row_last = (uint32_t)(s->rows * (row + 1) / all);
    share.panel_first = first + (uint32_t)((uint64_t)width * share.panel_part / parts);
    share.panel_last = first + (uint32_t)((uint64_t)width * (share.panel_part + 1) / parts);
    return share;
}

/* ---- What a block of a result needs of the operands ------------------------------------------ */

void plan_product_block(
    const struct plan_step *s, const struct plan_dist *dist, uint32_t i, uint32_t j,
    uint32_t *ret_batch, uint32_t *ret_head) {
    const struct plan_product *p = &s->product;
    uint32_t block = dist->row_bound[i] / p->a_rows;
    *ret_batch = p->out_panels > 0 ? block : block / p->heads;
    *ret_head = p->out_panels > 0 ? dist->panel_bound[j] / p->out_panels : block % p->heads;
}

static struct plan_need product_need(
    const struct plan_step *s, const struct plan_dist *dist, uint32_t i, uint32_t j, int o) {
    const struct plan_product *p = &s->product;
    uint32_t b, h;
    plan_product_block(s, dist, i, j, &b, &h);
    bool in_heads = p->head_panels[o] > 0;
    h = o == 0 ? h : h / p->b_share;
    uint32_t own_heads = o == 0 ? p->heads : p->heads / p->b_share;
    uint32_t block = in_heads ? b : b * own_heads + h;
    uint32_t rows = o == 0 ? p->a_rows : p->b_rows;
    block = o > 0 && p->b_is_shared ? 0 : block;
    uint32_t first = block * rows, last = first + rows;
    if (o == 0) {
        uint32_t inside = dist->row_bound[i] % p->a_rows;
        last = first + inside + dist->row_bound[i + 1] - dist->row_bound[i];
        first += inside;
        if (p->is_blocked) { /* of the whole query part, whose k tiles have consecutive rows */
            last += dist->row_bound[i - i % s->k + s->k] - dist->row_bound[i + 1];
            first -= dist->row_bound[i] - dist->row_bound[i - i % s->k];
        }
    } else if (p->is_blocked) {
        last = first + plan_key_bound(s, i % s->k + 1);
        first += plan_key_bound(s, i % s->k);
    }
    uint32_t panel = s->in_panel[o] + (in_heads ? h * p->head_panels[o] : 0);
    uint32_t wide = p->out_panels > 0 ? p->out_panels : s->panels;
    uint32_t panels = in_heads ? p->head_panels[o] : o == 1 && !p->is_turned ? wide : s->groups;
    if (s->kind == PLAN_ATTENTION && o == 2) { /* columns of V that the block has of its head's */
        panel += dist->panel_bound[j] % p->out_panels;
        panels = dist->panel_bound[j + 1] - dist->panel_bound[j];
    }
    return (struct plan_need){first, last, panel, panel + panels};
}

/* All that the elements of the block come from. */
static struct plan_need
pick_need(const struct plan_step *s, const struct plan_dist *dist, uint32_t i, uint32_t j, int o) {
    struct plan_need all = {0, 0, 0, 0};
    for (uint32_t r = dist->row_bound[i]; r < dist->row_bound[i + 1]; r++) {
        for (uint32_t p = dist->panel_bound[j]; p < dist->panel_bound[j + 1]; p++) {
            struct plan_need n =
                s->pick->needs[((size_t)r * s->panels + p) * PLAN_OPERANDS + (size_t)o];
            if (n.row_first == n.row_last) {
                continue;
            }
            if (all.row_first == all.row_last) {
                all = n;
                continue;
            }
            all.row_first = n.row_first < all.row_first ? n.row_first : all.row_first;
            all.row_last = n.row_last > all.row_last ? n.row_last : all.row_last;
            all.panel_first = n.panel_first < all.panel_first ? n.panel_first : all.panel_first;
            all.panel_last = n.panel_last > all.panel_last ? n.panel_last : all.panel_last;
        }
    }
    return all;
}

struct plan_need
plan_need(const struct plan_step *s, const struct plan_dist *dist, uint32_t i, uint32_t j, int o) {
    if (s->kind == PLAN_PICK) {
        return pick_need(s, dist, i, j, o);
    }
    if (s->kind == PLAN_ROW_REDUCE) {
        return (struct plan_need){
            dist->row_bound[i], dist->row_bound[i + 1], s->in_panel[o], s->in_panel[o] + s->groups};
    }
    if (s->kind == PLAN_PRODUCT || s->kind == PLAN_ATTENTION) {
        return product_need(s, dist, i, j, o);
    }
    if (s->kind == PLAN_TURN) { /* its rows are the operand's columns */
        return (struct plan_need){
            0, s->columns, dist->row_bound[i] / 16, (dist->row_bound[i + 1] + 15) / 16};
    }
    uint32_t first = s->in_panel[o];
    return (struct plan_need){
        dist->row_bound[i], dist->row_bound[i + 1], first + dist->panel_bound[j],
        first + dist->panel_bound[j + 1]};
}

/* Index of a bound, count + 1 when it is none. */
static uint32_t find_bound(const uint32_t *bound, uint32_t count, uint32_t value) {
    uint32_t low = 0, high = count;
    while (low < high) {
        uint32_t mid = (low + high) / 2;
        if (bound[mid] < value) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return bound[low] == value ? low : count + 1;
}

bool plan_is_home(
    const struct plan_step *s, const struct plan_dist *dist, int o,
    const struct plan_dist *source) {
    for (uint32_t i = 0; i < dist->m; i++) {
        for (uint32_t j = 0; j < dist->n; j++) {
            struct plan_need n = plan_need(s, dist, i, j, o);
            if (n.row_first == n.row_last) {
                continue;
            }
            uint32_t r = find_bound(source->row_bound, source->m, n.row_first);
            uint32_t each = 4 / source->quads; /* bounds to a panel */
            uint32_t c = find_bound(source->panel_bound, source->n, each * n.panel_first);
            if (r >= source->m || c >= source->n || source->row_bound[r + 1] != n.row_last ||
                source->panel_bound[c + 1] != each * n.panel_last ||
                source->tile[r * source->n + c] != dist->tile[i * dist->n + j]) {
                return false;
            }
        }
    }
    return true;
}
