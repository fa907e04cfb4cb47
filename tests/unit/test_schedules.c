/* Orders without addresses: they depend on structure alone, are placed under all rules, survive a
 * database, and no fault of that database changes a phase. */
#include <check.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/cache.h"
#include "compile/schedules.h"

#define COUNT    60
#define TILES    12
#define SPAN     2048 /* bytes of a transfer at most */
#define ELEMENT  TARGET_ELEMENT_BYTES
#define COMPILER "0000000000000000000000000000000000000000000000000000000000000000"
#define OTHER    "1111111111111111111111111111111111111111111111111111111111111111"

static char directory[64];
static struct arena arena;

static void setup(void) {
    strcpy(directory, "/tmp/test_schedules.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(directory));
    arena_init(&arena, 256u << 20);
}

static void teardown(void) {
    char command[128];
    arena_done(&arena);
    snprintf(command, sizeof command, "rm -rf %s", directory);
    ck_assert_int_eq(system(command), 0);
}

static const char *path_of(const char *name) {
    static char path[4][128];
    static unsigned next;
    char *p = path[next++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", directory, name);
    return p;
}

static uint32_t draw(uint32_t *state, uint32_t below) {
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % below;
}

/* Structure by `shape`, addresses by `places`: sends from low memory, receives into high memory,
 * a slot each, so that no bytes overlap; places 0: receives of a tile one behind the other, so that
 * pointers may run on. Even shapes have short transfers, whose pointers matter. */
static struct exchange_transfer *make_phase(uint32_t shape, uint32_t places, uint32_t count) {
    struct exchange_transfer *list = ARENA_ARRAY(&arena, struct exchange_transfer, count);
    uint32_t *slot = ARENA_ARRAY(&arena, uint32_t, count);
    uint32_t filled[TILES] = {0};
    bool is_tight = places == 0;
    uint32_t longest = shape % 2 == 0 ? 3 : SPAN / 4;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t k = draw(&places, i + 1);
        slot[i] = slot[k];
        slot[k] = i;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t source = draw(&shape, TILES);
        uint32_t receivers = 1 + draw(&shape, 2);
        struct exchange_dest *dests = ARENA_ARRAY(&arena, struct exchange_dest, receivers);
        for (uint32_t k = 0; k < receivers; k++) {
            dests[k].tile.n = (uint16_t)((source + 1 + draw(&shape, 5) + 5 * k) % TILES);
            dests[k].addr = TARGET_MEM_BASE + 10 * ELEMENT + slot[i] * SPAN;
        }
        list[i] = (struct exchange_transfer){
            .source = {(uint16_t)source},
            .source_addr = TARGET_MEM_BASE + slot[i] * SPAN,
            .words = 1 + draw(&shape, longest),
            .form = EXCHANGE_ABSOLUTE,
            .dests = dests,
            .dest_count = receivers};
        for (uint32_t k = 0; k < receivers && is_tight; k++) {
            dests[k].addr = TARGET_MEM_BASE + 10 * ELEMENT + filled[dests[k].tile.n];
            filled[dests[k].tile.n] += 4 * list[i].words;
        }
    }
    return list;
}

static struct digest structure_of(const struct exchange_transfer *t, uint32_t count) {
    struct exchange_dependency *d;
    uint32_t n;
    struct digest ret;
    exchange_dependencies(t, count, &arena, &d, &n);
    ck_assert_int_eq(exchange_structure(t, count, d, n, &ret, NULL), 0);
    return ret;
}

static struct exchange_order search(const struct exchange_transfer *t, uint32_t count) {
    struct exchange_dependency *d;
    uint32_t n;
    struct exchange_order ret = {.order = ARENA_ARRAY(&arena, uint32_t, count)};
    exchange_dependencies(t, count, &arena, &d, &n);
    ck_assert_int_eq(exchange_order_search(t, count, d, n, &arena, &ret, NULL), 0);
    return ret;
}

static struct exchange_phase schedule(
    const struct exchange_transfer *t, uint32_t count, const struct exchange_orders *known,
    enum exchange_origin *ret_origin) {
    struct exchange_phase phase;
    struct err err = {0};
    int rc = exchange_reuse_phase(t, count, known, &arena, &phase, ret_origin, &err);
    ck_assert_msg(rc == 0, "%s", err.text);
    rc = exchange_verify_phase(t, count, &phase, &arena, &err);
    ck_assert_msg(rc == 0, "%s", err.text);
    return phase;
}

static bool same_phase(const struct exchange_phase *a, const struct exchange_phase *b) {
    bool same = a->row_count == b->row_count && a->horizon == b->horizon;
    for (uint32_t i = 0; i < a->row_count && same; i++) {
        same = a->rows[i].tile.n == b->rows[i].tile.n &&
               a->rows[i].word_count == b->rows[i].word_count &&
               memcmp(a->rows[i].words, b->rows[i].words, 4 * (size_t)a->rows[i].word_count) == 0;
    }
    return same;
}

START_TEST(orders_depend_on_structure_alone) {
    for (uint32_t shape = 1; shape <= 4; shape++) {
        struct exchange_transfer *first = make_phase(shape, 1, COUNT);
        struct digest structure = structure_of(first, COUNT);
        struct exchange_order order = search(first, COUNT);
        for (uint32_t places = 0; places <= 4; places++) {
            struct exchange_transfer *moved = make_phase(shape, places, COUNT);
            struct digest other = structure_of(moved, COUNT);
            struct exchange_order again = search(moved, COUNT);
            ck_assert(digest_equal(&structure, &other));
            ck_assert_uint_eq(order.horizon, again.horizon);
            ck_assert_mem_eq(order.order, again.order, COUNT * sizeof *order.order);
        }
        struct digest different = structure_of(make_phase(shape + 100, 1, COUNT), COUNT);
        ck_assert(!digest_equal(&structure, &different));
    }
}
END_TEST

/* Each thing that a schedule may depend on, one at a time. */
START_TEST(structures_differ_by_every_part) {
    struct exchange_transfer *t = make_phase(7, 1, COUNT);
    struct digest seen[8];
    seen[0] = structure_of(t, COUNT);
    seen[1] = structure_of(t, COUNT - 1);
    t[3].words++;
    seen[2] = structure_of(t, COUNT);
    t[3].words--;
    t[3].requested = 9;
    seen[3] = structure_of(t, COUNT);
    t[3].requested = 0;
    t[3].form = EXCHANGE_POINT;
    seen[4] = structure_of(t, COUNT);
    t[3].form = EXCHANGE_ABSOLUTE;
    t[3].source.n = TILES;
    seen[5] = structure_of(t, COUNT);
    t[3].source.n = TILES + 1;
    ((struct exchange_dest *)t[3].dests)[0].tile.n = TILES;
    seen[6] = structure_of(t, COUNT);
    t[4].source.n = TILES; /* what transfer 3 has brought there goes on: a dependency */
    struct digest without = structure_of(t, COUNT);
    t[4].source_addr = t[3].dests[0].addr;
    seen[7] = structure_of(t, COUNT);
    ck_assert(!digest_equal(&without, &seen[7]));
    for (size_t i = 0; i < 8; i++) {
        for (size_t k = 0; k < i; k++) {
            ck_assert_msg(!digest_equal(&seen[i], &seen[k]), "%zu and %zu", i, k);
        }
    }
}
END_TEST

START_TEST(phases_are_the_same_with_any_store) {
    struct schedules *s = schedules_open(NULL, COMPILER);
    for (uint32_t shape = 1; shape <= 6; shape++) {
        struct exchange_transfer *t = make_phase(shape, shape, COUNT);
        enum exchange_origin origin;
        struct exchange_phase bare = schedule(t, COUNT, NULL, &origin);
        enum exchange_origin wanted = origin;
        for (int i = 0; i < 2; i++) { /* made and kept, then found */
            struct exchange_phase phase = schedule(t, COUNT, schedules_orders(s), &origin);
            ck_assert(same_phase(&bare, &phase));
            ck_assert_int_eq(origin, wanted);
        }
    }
    schedules_close(s);
}
END_TEST

/* A store that answers what a test wants. */
struct liar {
    const uint32_t *order;
    uint32_t horizon;
};

static bool
lie(void *arg, const struct digest *structure, struct exchange_order *ret, bool *stored) {
    const struct liar *l = arg;
    (void)structure;
    memcpy(ret->order, l->order, ret->count * sizeof *ret->order);
    ret->horizon = l->horizon;
    *stored = true;
    return true;
}

START_TEST(illegal_and_long_orders_are_refused) {
    struct exchange_transfer *t = make_phase(3, 3, COUNT);
    struct exchange_options with_addresses = {0};
    struct exchange_phase searched;
    ck_assert_int_eq(
        exchange_schedule_phase(t, COUNT, &with_addresses, &arena, &searched, NULL), 0);
    struct exchange_order good = search(t, COUNT);
    uint32_t twice[COUNT], beyond[COUNT];
    memcpy(twice, good.order, sizeof twice);
    memcpy(beyond, good.order, sizeof beyond);
    twice[0] = twice[1];
    beyond[5] = COUNT;
    const struct {
        struct liar liar;
        enum exchange_origin origin;
    } rows[] = {
        {{good.order, good.horizon}, EXCHANGE_REPLAYED},
        {{good.order, 1}, EXCHANGE_REFUSED},
        {{twice, good.horizon}, EXCHANGE_REFUSED},
        {{beyond, good.horizon}, EXCHANGE_REFUSED},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct exchange_orders known = {.find = lie, .arg = (void *)&rows[i].liar};
        enum exchange_origin origin;
        struct exchange_phase phase = schedule(t, COUNT, &known, &origin);
        ck_assert_int_eq(origin, rows[i].origin);
        ck_assert(origin == EXCHANGE_REPLAYED || same_phase(&phase, &searched));
    }
}
END_TEST

/* A relay: its order is part of the structure, and an order against it is refused. */
START_TEST(relays_are_reused) {
    struct exchange_dest dests[3] = {{{2}, 0xA0000}, {{4}, 0xB0000}, {{6}, 0xC0000}};
    struct exchange_transfer t[3] = {
        {.source = {0}, .source_addr = 0x60000, .words = 64, .form = EXCHANGE_ABSOLUTE},
        {.source = {2}, .source_addr = 0xA0000, .words = 64, .form = EXCHANGE_ABSOLUTE},
        {.source = {4}, .source_addr = 0xB0000, .words = 64, .form = EXCHANGE_ABSOLUTE},
    };
    for (int i = 0; i < 3; i++) {
        t[i].dests = &dests[i];
        t[i].dest_count = 1;
    }
    enum exchange_origin origin;
    struct exchange_phase phase = schedule(t, 3, NULL, &origin);
    ck_assert_int_eq(origin, EXCHANGE_SCHEDULED);
    const uint32_t backwards[3] = {2, 1, 0};
    struct liar liar = {backwards, phase.horizon};
    struct exchange_orders known = {.find = lie, .arg = &liar};
    struct exchange_phase again = schedule(t, 3, &known, &origin);
    ck_assert_int_eq(origin, EXCHANGE_REFUSED);
    ck_assert_uint_eq(again.horizon, phase.horizon);
}
END_TEST

/* One tile to ten whole pairs: wide, from whatever store, and not when a piece is too short. */
START_TEST(pairs_are_used_where_shorter) {
    struct exchange_dest dests[20];
    struct exchange_transfer t[4];
    for (uint32_t words = 64; words <= 256; words *= 4) {
        for (uint32_t i = 0; i < 20; i++) {
            dests[i] = (struct exchange_dest){{(uint16_t)(10 + i)}, 0xA0000};
        }
        for (uint32_t i = 0; i < 4; i++) {
            t[i] = (struct exchange_transfer){
                .source = {0},
                .source_addr = 0x60000 + 8192 * i,
                .words = words,
                .form = EXCHANGE_ABSOLUTE,
                .dests = arena_memdup(&arena, dests, sizeof dests),
                .dest_count = 20};
            for (uint32_t k = 0; k < 20; k++) {
                dests[k].addr += 0x2000;
            }
        }
        struct schedules *s = schedules_open(NULL, COMPILER);
        enum exchange_origin origin;
        struct exchange_phase bare = schedule(t, 4, NULL, &origin);
        for (int i = 0; i < 2; i++) { /* made and kept, then found */
            struct exchange_phase phase = schedule(t, 4, schedules_orders(s), &origin);
            ck_assert(same_phase(&bare, &phase));
            ck_assert_int_eq(phase.is_widened, words >= 128);
            ck_assert_uint_lt(phase.horizon, words >= 128 ? 3 * words + 110 : 5 * words + 110);
            ck_assert_uint_eq(phase.horizon, phase.latency_bound);
        }
        schedules_close(s);
    }
}
END_TEST

/* Two tiles that send and receive at the same time inside one memory element each: without
 * addresses that goes at once, with them one must wait. */
START_TEST(addresses_may_refuse_an_order) {
    struct exchange_dest dests[2] = {{{2}, 0x50000 + 2 * SPAN}, {{0}, 0x50000 + 2 * SPAN}};
    struct exchange_transfer t[2] = {
        {.source = {0},
         .source_addr = 0x50000,
         .words = 256,
         .form = EXCHANGE_ABSOLUTE,
         .dests = &dests[0],
         .dest_count = 1},
        {.source = {2},
         .source_addr = 0x50000,
         .words = 256,
         .form = EXCHANGE_ABSOLUTE,
         .dests = &dests[1],
         .dest_count = 1},
    };
    struct schedules *s = schedules_open(NULL, COMPILER);
    enum exchange_origin origin;
    struct exchange_phase close = schedule(t, 2, schedules_orders(s), &origin);
    ck_assert_int_eq(origin, EXCHANGE_REFUSED);
    struct digest near = structure_of(t, 2);
    dests[0].addr = dests[1].addr = 0x50000 + 10 * ELEMENT;
    struct digest far = structure_of(t, 2);
    ck_assert(digest_equal(&near, &far));
    struct exchange_phase apart = schedule(t, 2, schedules_orders(s), &origin);
    ck_assert_int_eq(origin, EXCHANGE_SCHEDULED);
    ck_assert_uint_lt(apart.horizon, close.horizon);
    schedules_close(s);
}
END_TEST

/* ---- The database ---------------------------------------------------------------------------- */

static void stage_phases(const char *path, uint32_t shapes, const char *compiler) {
    struct schedules *s = schedules_open(NULL, compiler);
    for (uint32_t shape = 1; shape <= shapes; shape++) {
        enum exchange_origin origin;
        schedule(make_phase(shape, 1, COUNT), COUNT, schedules_orders(s), &origin);
    }
    ck_assert_uint_eq(schedules_stage(s, path), shapes);
    ck_assert_uint_eq(schedules_stage(s, path), 0); /* never over a file */
    schedules_close(s);
}

/* Orders found of shapes 1 .. shapes; each that is found is the right one. */
static uint32_t found_in(const char *path, uint32_t shapes, const char *compiler) {
    uint32_t found = 0;
    struct schedules *s = schedules_open(path, compiler);
    const struct exchange_orders *known = schedules_orders(s);
    for (uint32_t shape = 1; shape <= shapes; shape++) {
        struct exchange_transfer *t = make_phase(shape, 1, COUNT);
        struct digest structure = structure_of(t, COUNT);
        uint32_t order[COUNT];
        struct exchange_order got = {.order = order, .count = COUNT};
        bool is_stored = false;
        if (known->find(known->arg, &structure, &got, &is_stored)) {
            static struct exchange_order right[8]; /* searched once a shape */
            static uint32_t orders[8][COUNT];
            if (right[shape].order == NULL) {
                right[shape] = search(t, COUNT);
                memcpy(orders[shape], right[shape].order, sizeof orders[shape]);
                right[shape].order = orders[shape];
            }
            ck_assert(is_stored);
            ck_assert_uint_eq(got.horizon, right[shape].horizon);
            ck_assert_mem_eq(order, right[shape].order, sizeof order);
            found++;
        }
    }
    schedules_close(s);
    return found;
}

START_TEST(stored_orders_come_back) {
    const char *path = path_of("a");
    stage_phases(path, 3, COMPILER);
    ck_assert_uint_eq(found_in(path, 3, COMPILER), 3);
    ck_assert_uint_eq(found_in(path, 3, OTHER), 0);
    ck_assert_uint_eq(found_in(path_of("none"), 3, COMPILER), 0);
    struct schedules *s = schedules_open(path, COMPILER);
    enum exchange_origin origin;
    schedule(make_phase(2, 1, COUNT), COUNT, schedules_orders(s), &origin);
    ck_assert_int_eq(origin, EXCHANGE_REPLAYED);
    ck_assert_uint_eq(schedules_stage(s, path_of("b")), 0); /* nothing new */
    ck_assert_int_ne(access(path_of("b"), F_OK), 0);
    schedule(make_phase(4, 1, COUNT), COUNT, schedules_orders(s), &origin);
    ck_assert_int_eq(origin, EXCHANGE_SCHEDULED);
    ck_assert_uint_eq(schedules_stage(s, path_of("b")), 1);
    schedules_close(s);
    s = schedules_open(NULL, COMPILER); /* where no file can be made there is none */
    schedule(make_phase(4, 1, COUNT), COUNT, schedules_orders(s), &origin);
    ck_assert_uint_eq(schedules_stage(s, "/nonexistent/folder/schedules"), 0);
    schedules_close(s);
}
END_TEST

static uint8_t *read_file(const char *path, size_t *ret_n) {
    FILE *in = fopen(path, "rb");
    ck_assert_ptr_nonnull(in);
    uint8_t *bytes = arena_alloc(&arena, 1 << 20, 8);
    *ret_n = fread(bytes, 1, 1 << 20, in);
    fclose(in);
    return bytes;
}

static void write_file(const char *path, const uint8_t *bytes, size_t n) {
    FILE *out = fopen(path, "wb");
    ck_assert_ptr_nonnull(out);
    ck_assert_uint_eq(fwrite(bytes, 1, n, out), n);
    ck_assert_int_eq(fclose(out), 0);
}

/* Every found order is right (found_in() asserts it), whatever byte is wrong. */
START_TEST(damage_never_gives_a_wrong_order) {
    const char *path = path_of("a");
    const char *broken = path_of("broken");
    stage_phases(path, 3, COMPILER);
    size_t n;
    uint8_t *bytes = read_file(path, &n);
    uint32_t lost = 0;
    for (size_t at = 0; at < n; at += 1 + at / 64) {
        bytes[at] ^= 0x55;
        write_file(broken, bytes, n);
        lost += found_in(broken, 3, COMPILER) < 3;
        bytes[at] ^= 0x55;
    }
    ck_assert_uint_gt(lost, 3);
    for (size_t length = 0; length < n; length += 1 + n / 16) {
        write_file(broken, bytes, length);
        ck_assert_uint_lt(found_in(broken, 3, COMPILER), 3);
    }
    memset(bytes, 'x', n);
    write_file(broken, bytes, n);
    ck_assert_uint_eq(found_in(broken, 3, COMPILER), 0);
    ck_assert_uint_eq(found_in(directory, 3, COMPILER), 0);
}
END_TEST

static void run_sql(const char *path, const char *sql) {
    sqlite3 *db = NULL;
    ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
    ck_assert_int_eq(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    ck_assert_int_eq(sqlite3_close(db), SQLITE_OK);
}

/* Whole rows that say something else: swapped values, other types, another table. */
START_TEST(wrong_rows_count_as_absent) {
    static const char *const statements[] = {
        "UPDATE schedule SET value = (SELECT value FROM schedule ORDER BY key LIMIT 1)",
        "UPDATE schedule SET value = (SELECT value FROM schedule ORDER BY key DESC LIMIT 1)",
        "UPDATE schedule SET value = 7",
        "UPDATE schedule SET value = ''",
        "UPDATE schedule SET value = zeroblob(4000000)",
        "UPDATE schedule SET value = substr(value, 1, length(value) - 1)",
        "UPDATE schedule SET value = CAST(value || x'00' AS BLOB)",
        "DROP TABLE schedule; CREATE TABLE schedule (key, wrong)",
        "DROP TABLE schedule",
    };
    uint32_t most = 0;
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
        char name[8];
        snprintf(name, sizeof name, "w%zu", i);
        const char *path = path_of(name);
        stage_phases(path, 2, COMPILER);
        run_sql(path, statements[i]);
        uint32_t found = found_in(path, 2, COMPILER);
        most = found > most ? found : most;
        ck_assert_msg(found == (i < 2 ? 1 : 0), "%s: %u", statements[i], found);
    }
    ck_assert_uint_eq(most, 1); /* the row whose own value was copied over the other */
}
END_TEST

START_TEST(a_busy_file_counts_as_empty) {
    const char *path = path_of("a");
    stage_phases(path, 2, COMPILER);
    sqlite3 *db = NULL;
    ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
    ck_assert_int_eq(sqlite3_exec(db, "BEGIN EXCLUSIVE", NULL, NULL, NULL), SQLITE_OK);
    ck_assert_uint_eq(found_in(path, 2, COMPILER), 0);
    ck_assert_int_eq(sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    ck_assert_uint_eq(found_in(path, 2, COMPILER), 2);
    sqlite3_close(db);
}
END_TEST

/* Rows beyond the limit are not kept, and cost nothing but time. */
START_TEST(entries_have_a_limit) {
    struct schedules *s = schedules_open(NULL, COMPILER);
    const struct exchange_orders *known = schedules_orders(s);
    uint32_t none[1] = {0};
    struct exchange_order one = {.order = none, .count = 1, .horizon = 1};
    bool stored;
    for (uint32_t i = 0; i <= SCHEDULES_MAX_ENTRIES; i++) {
        struct digest d = {{(uint8_t)i, (uint8_t)(i >> 8)}};
        known->keep(known->arg, &d, &one);
        ck_assert(known->find(known->arg, &d, &one, &stored) == (i < SCHEDULES_MAX_ENTRIES));
    }
    ck_assert_uint_eq(schedules_stage(s, path_of("full")), SCHEDULES_MAX_ENTRIES);
    schedules_close(s);
    s = schedules_open(NULL, COMPILER);
    known = schedules_orders(s);
    uint32_t most = (SCHEDULES_MAX_VALUE - 44) / 4;
    struct exchange_order big = {.order = calloc(most + 1, 4), .count = most, .horizon = 1};
    struct digest d = {{1}};
    known->keep(known->arg, &d, &big);
    ck_assert(known->find(known->arg, &d, &big, &stored));
    big.count++;
    d.bytes[0] = 2;
    known->keep(known->arg, &d, &big);
    ck_assert(!known->find(known->arg, &d, &big, &stored));
    free(big.order);
    schedules_close(s);
}
END_TEST

/* ---- The daemon's side ----------------------------------------------------------------------- */

static uint64_t test_now(void) {
    static uint64_t now = 1796102000000;
    return ++now;
}

static struct cache *open_cache(void) {
    struct cache_options options = {.dir = directory, .now_ms = test_now};
    struct cache *c = NULL;
    struct err err = {0};
    ck_assert_msg(cache_open(&options, &c, &err) == 0, "%s", err.text);
    return c;
}

/* What a worker would get now: a fresh folder's copy, or no file. */
static const char *copy_of(struct cache *c, const char *name) {
    ck_assert_int_eq(mkdir(path_of(name), 0700), 0);
    int fd = open(path_of(name), O_RDONLY | O_DIRECTORY);
    cache_schedules_copy(c, fd);
    close(fd);
    return arena_printf(&arena, "%s/%s/known-schedules.sqlite3", directory, name);
}

static int64_t ask(const char *path, const char *sql) {
    sqlite3 *db = NULL;
    sqlite3_stmt *s = NULL;
    ck_assert_int_eq(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    ck_assert_int_eq(sqlite3_prepare_v2(db, sql, -1, &s, NULL), SQLITE_OK);
    ck_assert_int_eq(sqlite3_step(s), SQLITE_ROW);
    int64_t ret = sqlite3_column_int64(s, 0);
    sqlite3_finalize(s);
    sqlite3_close(db);
    return ret;
}

START_TEST(staged_orders_are_adopted) {
    struct cache *c = open_cache();
    ck_assert_int_ne(access(copy_of(c, "first"), F_OK), 0);
    stage_phases(path_of("staging/a"), 3, COMPILER);
    cache_schedules_adopt(c, "staging/none");
    cache_schedules_adopt(c, "staging/a");
    ck_assert_uint_eq(found_in(copy_of(c, "second"), 3, COMPILER), 3);
    stage_phases(path_of("staging/b"), 4, COMPILER); /* three of them are there */
    cache_schedules_adopt(c, "staging/b");
    ck_assert_uint_eq(found_in(copy_of(c, "third"), 4, COMPILER), 4);
    /* A worker's copy is its own. */
    run_sql(copy_of(c, "fourth"), "DELETE FROM schedule");
    ck_assert_uint_eq(found_in(copy_of(c, "fifth"), 4, COMPILER), 4);
    cache_close(c);
    c = open_cache();
    ck_assert_uint_eq(found_in(copy_of(c, "sixth"), 4, COMPILER), 4);
    cache_close(c);
}
END_TEST

START_TEST(hostile_staged_files_add_nothing) {
    struct cache *c = open_cache();
    stage_phases(path_of("staging/a"), 2, COMPILER);
    cache_schedules_adopt(c, "staging/a");
    static const char *const statements[] = {
        "DROP TABLE schedule",
        "DROP TABLE schedule; CREATE TABLE schedule (key, other)",
        "UPDATE schedule SET key = 'short' || rowid",
        "UPDATE schedule SET key = key || '0'",
        "UPDATE schedule SET value = ''",
        "UPDATE schedule SET value = zeroblob(4194305)",
    };
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
        char name[16], staged[32];
        snprintf(name, sizeof name, "staging/h%zu", i);
        snprintf(staged, sizeof staged, "%s", name);
        stage_phases(path_of(name), 3, COMPILER);
        run_sql(path_of(name), statements[i]);
        cache_schedules_adopt(c, staged);
        snprintf(name, sizeof name, "copy%zu", i);
        const char *copy = copy_of(c, name);
        ck_assert_msg(ask(copy, "SELECT count(*) FROM schedule") == 2, "%s: added", statements[i]);
        ck_assert_uint_eq(found_in(copy, 3, COMPILER), 2);
    }
    write_file(path_of("staging/junk"), (const uint8_t *)"junk", 4);
    ck_assert_int_eq(symlink("a", path_of("staging/link")), 0);
    cache_schedules_adopt(c, "staging/junk");
    cache_schedules_adopt(c, "staging/link");
    ck_assert_uint_eq(found_in(copy_of(c, "last"), 3, COMPILER), 2);
    cache_close(c);
}
END_TEST

/* A damaged store is dropped and begun anew. */
START_TEST(a_damaged_store_is_dropped) {
    static const char junk[] = "this is no database, and long enough to be looked at as one .....";
    for (int i = 0; i < 2; i++) {
        struct cache *c = open_cache();
        char name[16];
        snprintf(name, sizeof name, "staging/d%d", i);
        stage_phases(path_of(name), 2, COMPILER);
        cache_schedules_adopt(c, name);
        snprintf(name, sizeof name, "before%d", i);
        ck_assert_uint_eq(found_in(copy_of(c, name), 2, COMPILER), 2);
        cache_close(c);
        if (i == 0) {
            write_file(path_of("schedules.sqlite3"), (const uint8_t *)junk, sizeof junk);
        } else {
            ck_assert_int_eq(truncate(path_of("schedules.sqlite3"), 5000), 0);
        }
        c = open_cache();
        snprintf(name, sizeof name, "damaged%d", i);
        ck_assert_uint_eq(found_in(copy_of(c, name), 2, COMPILER), 0);
        cache_close(c);
    }
}
END_TEST

/* Ten files of 4 MB: the newest rows stay, values within 16 MiB, the file within twice that. */
START_TEST(the_store_has_a_limit) {
    struct cache *c = open_cache();
    for (int i = 0; i < 10; i++) {
        char name[32];
        snprintf(name, sizeof name, "staging/s%d", i);
        run_sql(
            path_of(name),
            arena_printf(
                &arena,
                "CREATE TABLE schedule (key TEXT PRIMARY KEY, value BLOB NOT NULL);"
                "INSERT INTO schedule VALUES (printf('%%064d', %d), zeroblob(2000000)),"
                "(printf('%%064d', %d), zeroblob(2000000))",
                2 * i, 2 * i + 1));
        cache_schedules_adopt(c, name);
    }
    const char *copy = copy_of(c, "copy");
    ck_assert_int_eq(ask(copy, "SELECT count(*) FROM schedule"), 8);
    ck_assert_int_eq(ask(copy, "SELECT CAST(min(key) AS INTEGER) FROM schedule"), 12);
    struct stat st;
    ck_assert_int_eq(stat(copy, &st), 0);
    ck_assert_int_le(st.st_size, 32 << 20);
    cache_close(c);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("schedules");
    TCase *tc = tcase_create("schedules");
    tcase_set_timeout(tc, 300);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, orders_depend_on_structure_alone);
    tcase_add_test(tc, structures_differ_by_every_part);
    tcase_add_test(tc, phases_are_the_same_with_any_store);
    tcase_add_test(tc, illegal_and_long_orders_are_refused);
    tcase_add_test(tc, relays_are_reused);
    tcase_add_test(tc, addresses_may_refuse_an_order);
    tcase_add_test(tc, pairs_are_used_where_shorter);
    tcase_add_test(tc, stored_orders_come_back);
    tcase_add_test(tc, damage_never_gives_a_wrong_order);
    tcase_add_test(tc, wrong_rows_count_as_absent);
    tcase_add_test(tc, a_busy_file_counts_as_empty);
    tcase_add_test(tc, entries_have_a_limit);
    tcase_add_test(tc, staged_orders_are_adopted);
    tcase_add_test(tc, hostile_staged_files_add_nothing);
    tcase_add_test(tc, a_damaged_store_is_dropped);
    tcase_add_test(tc, the_store_has_a_limit);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
