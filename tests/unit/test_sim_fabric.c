/* The fabric against tests/vectors/exchange-vectors.json and against rows written by hand.
 *
 * Vectors: every phase, schedule and base switch must deliver exactly the words its transfers
 * name, in the recorded events, without a fault; every mutation must deliver exactly what is
 * predicted. Tiles of the file are logical.
 */
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/sim.h"
#include "target/target.h"

#define VECTORS   "tests/vectors/exchange-vectors.json"
#define ROW_ADDR  0x50000u /* an element that no vector uses for data */
#define MAX_ROWS  1472
#define MAX_WORDS 4096

static json_t *vectors;

static void load_vectors(void) {
    json_error_t error;
    vectors = json_load_file(VECTORS, JSON_REJECT_DUPLICATES, &error);
    ck_assert_msg(vectors != NULL, "%s: %s", VECTORS, error.text);
}

static void drop_vectors(void) {
    json_decref(vectors);
}

static uint16_t physical(json_int_t logical) {
    return target_physical((struct logical_tile){(uint16_t)logical}).n;
}

/* ---- expected and delivered, both as sorted arrays of sim_delivery -------------------------- */

static int compare(const void *a, const void *b) {
    const struct sim_delivery *x = a;
    const struct sim_delivery *y = b;
    if (x->arrival != y->arrival) {
        return x->arrival < y->arrival ? -1 : 1;
    }
    if (x->tile.n != y->tile.n) {
        return x->tile.n < y->tile.n ? -1 : 1;
    }
    return x->addr < y->addr ? -1 : x->addr > y->addr;
}

static void compare_all(
    const char *id, struct sim_delivery *want, size_t n, const struct sim_rows_result *got) {
    qsort(want, n, sizeof *want, compare);
    for (size_t i = 0; i < n && i < got->delivery_count; i++) {
        const struct sim_delivery *w = &want[i];
        const struct sim_delivery *g = &got->deliveries[i];
        if (w->tile.n != g->tile.n || w->addr != g->addr || w->source.n != g->source.n ||
            w->source_addr != g->source_addr || w->arrival != g->arrival) {
            ck_abort_msg(
                "%s: delivery %zu: want %u:%#x from %u:%#x at %d, got %u:%#x from %u:%#x at %d", id,
                i, w->tile.n, w->addr, w->source.n, w->source_addr, w->arrival, g->tile.n, g->addr,
                g->source.n, g->source_addr, g->arrival);
        }
    }
    ck_assert_msg(
        n == got->delivery_count, "%s: want %zu deliveries, got %llu", id, n,
        (unsigned long long)got->delivery_count);
}

/* ---- rows of a case ------------------------------------------------------------------------- */

struct rows {
    struct sim_row rows[MAX_ROWS];
    uint32_t words[MAX_ROWS][64];
    uint32_t count;
};

static struct rows *read_rows(const json_t *item) {
    struct rows *r = calloc(1, sizeof *r);
    ck_assert_ptr_nonnull(r);
    const char *tile;
    json_t *words;
    json_object_foreach(json_object_get(item, "rows"), tile, words) {
        struct sim_row *row = &r->rows[r->count];
        row->tile.n = physical(atoi(tile));
        row->words = r->words[r->count];
        row->word_count = (uint32_t)json_array_size(words);
        ck_assert_uint_le(row->word_count, 64);
        for (uint32_t i = 0; i < row->word_count; i++) {
            r->words[r->count][i] =
                (uint32_t)strtoul(json_string_value(json_array_get(words, i)), NULL, 16);
        }
        row->incoming_base = (uint32_t)json_integer_value(
            json_object_get(json_object_get(item, "incoming_base"), tile));
        r->count++;
    }
    return r;
}

static void check_transfers(const json_t *item) {
    const char *id = json_string_value(json_object_get(item, "id"));
    struct rows *r = read_rows(item);
    struct sim_rows_result got;
    struct err err = {0};
    ck_assert_msg(
        sim_rows_run(r->rows, r->count, ROW_ADDR, &got, &err) == 0, "%s: %s", id, err.text);
    for (uint32_t i = 0; i < got.fault_count; i++) {
        ck_abort_msg(
            "%s: tile %u event %d addr %#x code %#x: %s", id, got.faults[i].tile.n,
            got.faults[i].event, got.faults[i].addr, got.faults[i].code, got.faults[i].text);
    }
    size_t n = 0;
    size_t cap = got.delivery_count + 1;
    struct sim_delivery *want = calloc(cap, sizeof *want);
    ck_assert_ptr_nonnull(want);
    size_t t;
    json_t *transfer;
    json_array_foreach(json_object_get(item, "transfers"), t, transfer) {
        bool wide = strcmp(json_string_value(json_object_get(transfer, "form")), "paired") == 0;
        uint32_t words = (uint32_t)json_integer_value(json_object_get(transfer, "words"));
        json_t *dests = json_object_get(transfer, "dests");
        for (size_t d = 0; d < json_array_size(dests); d++) {
            json_t *dest = json_array_get(dests, d);
            json_t *receive = json_array_get(json_object_get(transfer, "receive"), d);
            for (uint32_t k = 0; k < words; k++) {
                if (n >= cap) {
                    ck_abort_msg(
                        "%s: too few deliveries: %llu", id, (unsigned long long)got.delivery_count);
                }
                want[n++] = (struct sim_delivery){
                    .tile = {physical(json_integer_value(json_array_get(dest, 0)))},
                    .addr = (uint32_t)json_integer_value(json_array_get(dest, 1)) + 4 * k,
                    .source = {physical(json_integer_value(json_object_get(transfer, "src")))},
                    .source_addr =
                        (uint32_t)json_integer_value(json_object_get(transfer, "src_addr")) + 4 * k,
                    .arrival = (int32_t)json_integer_value(json_array_get(receive, 0)) +
                               (int32_t)(wide ? k / 2 : k)};
            }
        }
    }
    compare_all(id, want, n, &got);
    for (uint32_t i = 0; i < r->count; i++) {
        char logical[8];
        snprintf(logical, sizeof logical, "%u", target_logical(r->rows[i].tile).n);
        json_int_t horizon =
            json_integer_value(json_object_get(json_object_get(item, "tile_horizon"), logical));
        ck_assert_msg(
            got.horizons[i] == horizon, "%s: tile %s: horizon %d, want %lld", id, logical,
            got.horizons[i], (long long)horizon);
    }
    free(want);
    free(r);
    sim_rows_result_done(&got);
}

static void check_section(const char *name, size_t count) {
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(vectors, name), i, item) {
        check_transfers(item);
    }
    ck_assert_uint_eq(i, count);
}

START_TEST(phases) {
    check_section("phases", 298);
}
END_TEST

START_TEST(schedules) {
    check_section("schedules", 33);
}
END_TEST

START_TEST(base_switch) {
    check_section("base_switch", 8);
}
END_TEST

START_TEST(mutations) {
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(vectors, "mutations"), i, item) {
        struct rows *r = read_rows(item);
        struct sim_rows_result got;
        ck_assert_int_eq(sim_rows_run(r->rows, r->count, ROW_ADDR, &got, NULL), 0);
        json_t *list = json_object_get(item, "deliveries");
        size_t n = json_array_size(list);
        struct sim_delivery *want = calloc(n + 1, sizeof *want);
        ck_assert_ptr_nonnull(want);
        for (size_t k = 0; k < n; k++) {
            json_int_t v[5];
            for (size_t j = 0; j < 5; j++) {
                v[j] = json_integer_value(json_array_get(json_array_get(list, k), j));
            }
            want[k] = (struct sim_delivery){
                .tile = {physical(v[0])},
                .addr = (uint32_t)v[1],
                .source = {physical(v[2])},
                .source_addr = (uint32_t)v[3],
                .arrival = (int32_t)v[4]};
        }
        compare_all(json_string_value(json_object_get(item, "id")), want, n, &got);
        free(want);
        free(r);
        sim_rows_result_done(&got);
    }
    ck_assert_uint_eq(i, 13);
}
END_TEST

START_TEST(vendor_row) {
    json_t *sdk = json_array_get(json_object_get(vectors, "sdk"), 0);
    json_t *words = json_object_get(sdk, "row");
    uint32_t row[32];
    struct sim_row r = {.tile = {0}, .words = row, .word_count = (uint32_t)json_array_size(words)};
    for (uint32_t i = 0; i < r.word_count && i < 32; i++) {
        row[i] = (uint32_t)strtoul(json_string_value(json_array_get(words, i)), NULL, 16);
    }
    struct sim_rows_result got;
    ck_assert_int_eq(sim_rows_run(&r, 1, ROW_ADDR, &got, NULL), 0);
    ck_assert_int_eq(got.horizons[0], (int)json_integer_value(json_object_get(sdk, "horizon")));
    ck_assert_uint_eq(got.delivery_count, 0);
    ck_assert_uint_eq(got.fault_count, 0);
    sim_rows_result_done(&got);
}
END_TEST

/* ---- rows by hand --------------------------------------------------------------------------- */

static struct sim_rows_result run(const struct sim_row *rows, uint32_t n, uint32_t at) {
    struct sim_rows_result got;
    struct err err = {0};
    ck_assert_msg(sim_rows_run(rows, n, at, &got, &err) == 0, "%s", err.text);
    return got;
}

static bool has_fault(const struct sim_rows_result *r, uint16_t tile, int code) {
    for (uint32_t i = 0; i < r->fault_count; i++) {
        if (r->faults[i].tile.n == tile && r->faults[i].code == code) {
            return true;
        }
    }
    return false;
}

#define ROW(tile_, ...)                                                                            \
    {                                                                                              \
        .tile = {tile_}, .words = (const uint32_t[]){__VA_ARGS__},                                 \
        .word_count = sizeof((const uint32_t[]){__VA_ARGS__}) / 4                                  \
    }

/* Fact sheet E3: 7 words 0 -> 2 (physical), T = -28, mux at 1, arrival 53. */
#define SEND7 0x40a0001bu, 0x78cc8021u, 0x43a00000u
#define TAKE7 0x64000000u, 0x64018640u, 0x6161c008u, 0x40a0000bu, 0x43a00000u

START_TEST(error_codes) {
    struct sim_rows_result got;
    /* Row in the element of the destination 0x70020: CLASH_IFETCH, and the words still arrive. */
    struct sim_row plain[] = {ROW(0, SEND7), ROW(2, TAKE7)};
    got = run(plain, 2, 0x70000);
    ck_assert(has_fault(&got, 2, 2));
    ck_assert_uint_eq(got.delivery_count, 7);
    sim_rows_result_done(&got);
    /* No pointer before the first item: ADDR. */
    struct sim_row bare[] = {
        ROW(0, SEND7), ROW(2, 0x64000000u, 0x64018640u, 0x40a00034u, 0x43a00000u)};
    got = run(bare, 2, ROW_ADDR);
    ck_assert(has_fault(&got, 2, 3));
    ck_assert_uint_eq(got.delivery_count, 0);
    sim_rows_result_done(&got);
    /* Base outside memory: ADDR. */
    struct sim_row outside[] = {ROW(0, SEND7), ROW(2, TAKE7)};
    outside[1].incoming_base = 0x80000;
    got = run(outside, 2, ROW_ADDR);
    ck_assert(has_fault(&got, 2, 3));
    ck_assert_uint_eq(got.delivery_count, 0);
    sim_rows_result_done(&got);
    /* Horizon one event short: the last item is late. */
    struct sim_row shorter[] = {
        ROW(0, SEND7), ROW(2, 0x64000000u, 0x64018640u, 0x6161c008u, 0x40a0000au, 0x43a00000u)};
    got = run(shorter, 2, ROW_ADDR);
    ck_assert(has_fault(&got, 2, 0x100 + 13));
    sim_rows_result_done(&got);
    /* 64-bit items at an ordinary selection: CONF. */
    struct sim_row wide[] = {ROW(0, 0x40a0001bu, 0x78c64025u, 0x43a00000u), ROW(2, TAKE7)};
    got = run(wide, 2, ROW_ADDR);
    ck_assert(has_fault(&got, 2, 6));
    ck_assert_uint_eq(got.delivery_count, 0);
    sim_rows_result_done(&got);
    /* Format on before an ordinary payload has ended: MODI. 61640001.. = format 1 at 53. */
    struct sim_row early[] = {
        ROW(0, SEND7), ROW(2, 0x64000000u, 0x64018640u, 0x6159c008u, 0x60040001u, 0x60240000u,
                           0x40a00012u, 0x43a00000u)};
    got = run(early, 2, ROW_ADDR);
    ck_assert(has_fault(&got, 2, 7));
    sim_rows_result_done(&got);
}
END_TEST

START_TEST(clash_with_own_send) {
    /* Tile 2 sends from 0x70100 while seven words arrive at 0x70020, events 53..59. */
    struct sim_row rows[] = {
        ROW(0, SEND7),
        ROW(2, 0x64000000u, 0x64018640u, 0x6161c008u, 0x784e0203u, 0x40a0000bu, 0x43a00000u)};
    struct sim_rows_result got = run(rows, 2, ROW_ADDR);
    ck_assert(has_fault(&got, 2, 1));
    ck_assert_uint_eq(got.delivery_count, 7);
    sim_rows_result_done(&got);
}
END_TEST

START_TEST(loopback_needs_company) {
    /* T(0,0) = -29: send at 29, own mux at 1, arrival 53. */
    struct sim_row alone[] = {
        ROW(0, 0x64000000u, 0x40a0001bu, 0x784c8003u, 0x64000640u, 0x6051c000u, 0x40a0000eu,
            0x40a00007u, 0x43a00000u)};
    struct sim_rows_result got = run(alone, 1, ROW_ADDR);
    ck_assert(has_fault(&got, 0, 3));
    sim_rows_result_done(&got);
}
END_TEST

START_TEST(bad_rows) {
    struct sim_rows_result got;
    struct sim_row unknown[] = {ROW(5, 0x40a00000u, 0x40000000u, 0x43a00000u)};
    got = run(unknown, 1, ROW_ADDR);
    ck_assert(has_fault(&got, 5, 0x100 + 12));
    sim_rows_result_done(&got);
    struct sim_row endless[] = {ROW(5, 0x40a00000u)};
    got = run(endless, 1, ROW_ADDR);
    ck_assert(has_fault(&got, 5, 0x100 + 10));
    sim_rows_result_done(&got);
    /* sendpicp at 4 modulo 8. */
    struct sim_row odd[] = {ROW(5, 0x40a00000u, 0xf6600000u, 0x0b3dc000u, 0x43a00000u)};
    got = run(odd, 1, ROW_ADDR);
    ck_assert(has_fault(&got, 5, 0x100 + 12));
    sim_rows_result_done(&got);
    /* A stream that goes on after a pause. */
    struct sim_row pause[] = {ROW(5, 0x784c8001u, 0x40a00000u, 0x70000001u, 0x43a00000u)};
    got = run(pause, 1, ROW_ADDR);
    ck_assert(has_fault(&got, 5, 0x100 + 7));
    sim_rows_result_done(&got);
    struct err err = {0};
    struct sim_row twice[] = {ROW(5, 0x43a00000u), ROW(5, 0x43a00000u)};
    ck_assert_int_eq(sim_rows_run(twice, 2, ROW_ADDR, &got, &err), -ERR_INVALID);
    ck_assert_int_eq(sim_rows_run(twice, 1, ROW_ADDR + 4, &got, &err), -ERR_INVALID);
    ck_assert_int_eq(sim_rows_run(twice, 1, 0x80000, &got, &err), -ERR_INVALID);
    struct sim_row nowhere[] = {ROW(1472, 0x43a00000u)};
    ck_assert_int_eq(sim_rows_run(nowhere, 1, ROW_ADDR, &got, &err), -ERR_INVALID);
}
END_TEST

/* ---- rows from sends and controls ----------------------------------------------------------- */

/* A row that waits for each control in turn and sends once; controls inside the send are not
 * supported, two controls of one event neither. */
struct control {
    int event;
    uint32_t word; /* delayxpic or delaypic with its value, no count */
};

#define MUX(source)   (0x64000000u | (uint32_t)(source))
#define PAIR(source)  (0x64002000u | (uint32_t)(source))
#define POINTER(addr) (0x60000000u | (uint32_t)(addr) / 4)
#define FORMAT(value) (0x60040000u | (uint32_t)(value))
#define IDLE          0x640

struct built {
    uint32_t words[64];
    uint32_t n;
    int now;
};

static void wait_until(struct built *b, int event) {
    if (event > b->now) {
        b->words[b->n++] = 0x40a00000u | (uint32_t)(event - b->now - 1);
        b->now = event;
    }
}

static void add_control(struct built *b, struct control c) {
    bool is_mux = (c.word & 0xfc000000u) == 0x64000000u;
    int most = is_mux ? 4096 : 128;
    ck_assert_int_gt(c.event, b->now);
    wait_until(b, c.event - most > b->now ? c.event - most : b->now);
    b->words[b->n++] = c.word | (uint32_t)(c.event - b->now - 1) << (is_mux ? 14 : 19);
    b->now = c.event;
}

static void add_send(struct built *b, int start, uint32_t items, uint32_t item, unsigned sctl) {
    uint32_t first = items < 64 ? items : 64;
    wait_until(b, start);
    b->words[b->n++] = 0x78000000u | (first - 1) << 21 | item << 3 | sctl;
    if (items > first) {
        uint32_t rest = items - first - 1;
        b->words[b->n++] = 0x70000000u | (rest & 63) << 21 | rest >> 6 << 14 | sctl;
    }
    b->now += (int)items;
}

static struct sim_row finish(struct built *b, uint16_t tile, int horizon) {
    wait_until(b, horizon);
    b->words[b->n++] = 0x43a00000u;
    return (struct sim_row){.tile = {tile}, .words = b->words, .word_count = b->n};
}

static void add_controls(struct built *b, struct control *c, size_t n) {
    for (size_t i = 1; i < n; i++) {
        for (size_t k = i; k > 0 && c[k].event < c[k - 1].event; k--) {
            struct control moved = c[k];
            c[k] = c[k - 1];
            c[k - 1] = moved;
        }
    }
    for (size_t i = 0; i < n; i++) {
        add_control(b, c[i]);
    }
}

/* One tile to all others, 64 words: every tile stores them, none faults. */
START_TEST(whole_chip_multicast) {
    enum { WORDS = 64, SOURCE = 640 };
    static struct sim_row rows[TARGET_TILES];
    static struct built built[TARGET_TILES];
    struct physical_tile s = {SOURCE};
    int start = 0;
    for (uint16_t t = 0; t < TARGET_TILES; t++) {
        int least = -target_route_time(s, (struct physical_tile){t});
        start = least > start ? least : start;
    }
    for (uint16_t t = 0; t < TARGET_TILES; t++) {
        struct physical_tile d = {t};
        if (t == SOURCE) {
            add_send(&built[t], start, WORDS, 0x64000 / 4, 3);
            rows[t] = finish(&built[t], t, start + WORDS);
            continue;
        }
        int x = start + 1 + target_route_time(s, d);
        int a = x + target_arrival_delay(d);
        /* Idle may be one event late: nobody sends any more. */
        struct control c[] = {
            {x, MUX(SOURCE)}, {x + WORDS + (x + WORDS == a), MUX(IDLE)}, {a, POINTER(0x70000)}};
        add_controls(&built[t], c, 3);
        rows[t] = finish(&built[t], t, a + WORDS + 5);
    }
    struct sim_rows_result got = run(rows, TARGET_TILES, ROW_ADDR);
    for (uint32_t i = 0; i < got.fault_count; i++) {
        ck_abort_msg(
            "tile %u event %d: %s", got.faults[i].tile.n, got.faults[i].event, got.faults[i].text);
    }
    ck_assert_uint_eq(got.delivery_count, (uint64_t)(TARGET_TILES - 1) * WORDS);
    for (uint64_t i = 0; i < got.delivery_count; i++) {
        if (got.deliveries[i].source.n != SOURCE ||
            got.deliveries[i].source_addr - 0x64000u != got.deliveries[i].addr - 0x70000u) {
            ck_abort_msg(
                "tile %u: %#x from %#x", got.deliveries[i].tile.n, got.deliveries[i].addr,
                got.deliveries[i].source_addr);
        }
    }
    sim_rows_result_done(&got);
}
END_TEST

/* Seen on hardware (fact sheet 7.1): 972 words to r, then 352 words paired to r and its partner,
 * with only the pointer waiting for the earlier payload. Logical 3 and 46 fault, 2 and 47 pass;
 * with the format waiting too all four pass. */
static struct sim_rows_result
ordinary_then_paired(uint16_t r_logical, int offset, uint16_t *ret_r) {
    enum { FIRST = 972, ITEMS = 352 / 2 };
    static struct built b[4];
    memset(b, 0, sizeof b);
    struct physical_tile r = {physical(r_logical)};
    struct physical_tile p = target_partner(r);
    struct physical_tile s1 = {physical(0)};
    struct physical_tile s2 = {physical(4)};
    int t1 = target_route_time(s1, r);
    int start1 = t1 < 0 ? -t1 : 0;
    int x1 = start1 + 1 + t1;
    int a1 = x1 + target_arrival_delay(r);
    int tr = target_route_time(s2, r);
    int tp = target_route_time(s2, p);
    int least = tr < tp ? tr : tp;
    int start2 = offset + (least < 0 ? -least : 0);
    int x2 = start2 + least + 1;
    int format = x2 + 51 + 2 * target_row(r);
    struct sim_row rows[4];
    add_send(&b[0], start1, FIRST, 0x80000 / 4, (unsigned)target_route_direction(s1, r));
    rows[0] = finish(&b[0], s1.n, 0);
    add_send(&b[1], start2, ITEMS, 0x81000 / 8, 4 | (unsigned)target_route_direction(s2, r));
    rows[1] = finish(&b[1], s2.n, 0);
    for (int k = 0; k < 2; k++) {
        struct physical_tile d = k == 0 ? r : p;
        struct physical_tile early = tr < tp ? r : p;
        struct control c[10];
        size_t n = 0;
        if (k == 0) {
            c[n++] = (struct control){x1, MUX(s1.n)};
            c[n++] = (struct control){x1 + FIRST, MUX(IDLE)};
            c[n++] = (struct control){a1, POINTER(0x90000)};
        }
        if (d.n == early.n) {
            c[n++] = (struct control){x2, PAIR(s2.n ^ (early.n & 2))};
            c[n++] = (struct control){x2 + ITEMS, PAIR(IDLE)};
        }
        c[n++] = (struct control){format, FORMAT(target_route_direction(s2, d))};
        c[n++] = (struct control){format + 2, POINTER(0x91000)};
        c[n++] = (struct control){format + ITEMS, FORMAT(0)};
        add_controls(&b[2 + k], c, n);
        rows[2 + k] = finish(&b[2 + k], d.n, format + 2 + ITEMS + 5);
    }
    *ret_r = r.n;
    return run(rows, 4, ROW_ADDR);
}

START_TEST(early_format_faults_as_seen) {
    static const struct {
        uint16_t logical;
        int offset;
        bool faults;
    } cases[] = {{3, 971, true},   {46, 971, true}, {2, 973, false},
                 {47, 973, false}, {3, 973, false}, {46, 973, false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint16_t r;
        struct sim_rows_result got = ordinary_then_paired(cases[i].logical, cases[i].offset, &r);
        ck_assert_msg(
            has_fault(&got, r, 7) == cases[i].faults, "logical %u offset %d: %u faults%s%s",
            cases[i].logical, cases[i].offset, got.fault_count, got.fault_count > 0 ? ": " : "",
            got.fault_count > 0 ? got.faults[0].text : "");
        if (!cases[i].faults) {
            ck_assert_uint_eq(got.fault_count, 0);
            ck_assert_uint_eq(got.delivery_count, 972 + 2 * 352);
        }
        sim_rows_result_done(&got);
    }
}
END_TEST

/* The vendor's sequence with every pointer one event early: the last word of each of the first
 * three messages lands at the start of the next buffer, whose own words shift by one. */
START_TEST(early_pointers_shift_as_seen) {
    json_t *item = NULL;
    size_t i;
    json_array_foreach(json_object_get(vectors, "phases"), i, item) {
        if (strcmp(json_string_value(json_object_get(item, "id")), "sdk_sequence-000") == 0) {
            break;
        }
    }
    ck_assert_ptr_nonnull(item);
    struct rows *r = read_rows(item);
    struct built *b = calloc(r->count, sizeof *b);
    ck_assert_ptr_nonnull(b);
    for (uint32_t k = 0; k < r->count; k++) {
        char logical[8];
        snprintf(logical, sizeof logical, "%u", target_logical(r->rows[k].tile).n);
        json_t *controls = json_object_get(json_object_get(item, "controls"), logical);
        struct control c[16];
        size_t n = json_array_size(controls);
        if (n == 0) {
            continue;
        }
        for (size_t j = 0; j < n; j++) {
            json_t *v = json_array_get(controls, j);
            bool is_pic = strcmp(json_string_value(json_array_get(v, 1)), "pic") == 0;
            c[j] = (struct control){
                (int)json_integer_value(json_array_get(v, 0)) - is_pic,
                (is_pic ? 0x60000000u : 0x64000000u) |
                    (uint32_t)json_integer_value(json_array_get(v, 3))};
        }
        add_controls(&b[k], c, n);
        r->rows[k] = finish(
            &b[k], r->rows[k].tile.n,
            (int)json_integer_value(
                json_object_get(json_object_get(item, "tile_horizon"), logical)));
    }
    struct sim_rows_result got = run(r->rows, r->count, ROW_ADDR);
    ck_assert_uint_eq(got.fault_count, 0);
    json_t *transfers = json_object_get(item, "transfers");
    uint64_t found = 0;
    for (size_t t = 0; t < 4; t++) {
        json_t *transfer = json_array_get(transfers, t);
        uint32_t words = (uint32_t)json_integer_value(json_object_get(transfer, "words"));
        uint32_t source = (uint32_t)json_integer_value(json_object_get(transfer, "src_addr"));
        uint16_t from = physical(json_integer_value(json_object_get(transfer, "src")));
        for (size_t d = 0; d < 2; d++) {
            json_t *dest = json_array_get(json_object_get(transfer, "dests"), d);
            uint16_t tile = physical(json_integer_value(json_array_get(dest, 0)));
            uint32_t addr = (uint32_t)json_integer_value(json_array_get(dest, 1));
            json_t *next = json_array_get(
                json_object_get(json_array_get(transfers, t < 3 ? t + 1 : t), "dests"), d);
            uint32_t next_addr = (uint32_t)json_integer_value(json_array_get(next, 1));
            for (uint64_t j = 0; j < got.delivery_count; j++) {
                const struct sim_delivery *g = &got.deliveries[j];
                if (g->tile.n != tile || g->source.n != from || g->source_addr < source ||
                    g->source_addr >= source + 4 * words) {
                    continue;
                }
                uint32_t k = (g->source_addr - source) / 4;
                bool is_last = k + 1 == words && t < 3;
                ck_assert_uint_eq(g->addr, is_last ? next_addr : addr + 4 * (k + (t > 0)));
                found++;
            }
        }
    }
    ck_assert_uint_eq(found, got.delivery_count);
    sim_rows_result_done(&got);
    free(b);
    free(r);
}
END_TEST

int main(void) {
    Suite *s = suite_create("sim_fabric");
    TCase *v = tcase_create("vectors");
    tcase_add_unchecked_fixture(v, load_vectors, drop_vectors);
    tcase_set_timeout(v, 120);
    tcase_add_test(v, phases);
    tcase_add_test(v, schedules);
    tcase_add_test(v, base_switch);
    tcase_add_test(v, mutations);
    tcase_add_test(v, vendor_row);
    tcase_add_test(v, early_pointers_shift_as_seen);
    suite_add_tcase(s, v);
    TCase *t = tcase_create("rows");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, error_codes);
    tcase_add_test(t, clash_with_own_send);
    tcase_add_test(t, loopback_needs_company);
    tcase_add_test(t, bad_rows);
    tcase_add_test(t, whole_chip_multicast);
    tcase_add_test(t, early_format_faults_as_seen);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
