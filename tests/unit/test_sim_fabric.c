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

#define VECTORS  "tests/vectors/exchange-vectors.json"
#define ROW_ADDR 0x50000u /* an element that no vector uses for data */
#define MAX_ROWS 1472
#define MAX_WORDS 4096

static json_t *vectors;

static void load_vectors(void)
{
    json_error_t error;
    vectors = json_load_file(VECTORS, JSON_REJECT_DUPLICATES, &error);
    ck_assert_msg(vectors != NULL, "%s: %s", VECTORS, error.text);
}

static void drop_vectors(void)
{
    json_decref(vectors);
}

static uint16_t physical(json_int_t logical)
{
    return target_physical((struct logical_tile){(uint16_t)logical}).n;
}

/* ---- expected and delivered, both as sorted arrays of sim_delivery -------------------------- */

static int compare(const void *a, const void *b)
{
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

static void compare_all(const char *id, struct sim_delivery *want, size_t n,
    const struct sim_rows_result *got)
{
    qsort(want, n, sizeof *want, compare);
    for (size_t i = 0; i < n && i < got->delivery_count; i++) {
        const struct sim_delivery *w = &want[i];
        const struct sim_delivery *g = &got->deliveries[i];
        ck_assert_msg(w->tile.n == g->tile.n && w->addr == g->addr && w->source.n == g->source.n &&
                w->source_addr == g->source_addr && w->arrival == g->arrival,
            "%s: delivery %zu: want %u:%#x from %u:%#x at %d, got %u:%#x from %u:%#x at %d", id, i,
            w->tile.n, w->addr, w->source.n, w->source_addr, w->arrival, g->tile.n, g->addr,
            g->source.n, g->source_addr, g->arrival);
    }
    ck_assert_msg(n == got->delivery_count, "%s: want %zu deliveries, got %llu", id, n,
        (unsigned long long)got->delivery_count);
}

/* ---- rows of a case ------------------------------------------------------------------------- */

struct rows {
    struct sim_row rows[MAX_ROWS];
    uint32_t words[MAX_ROWS][64];
    uint32_t count;
};

static struct rows *read_rows(const json_t *item)
{
    struct rows *r = calloc(1, sizeof *r);
    ck_assert_ptr_nonnull(r);
    const char *tile;
    json_t *words;
    json_object_foreach(json_object_get(item, "rows"), tile, words)
    {
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

static void check_transfers(const json_t *item)
{
    const char *id = json_string_value(json_object_get(item, "id"));
    struct rows *r = read_rows(item);
    struct sim_rows_result got;
    struct err err = {0};
    ck_assert_msg(sim_rows_run(r->rows, r->count, ROW_ADDR, &got, &err) == 0, "%s: %s", id,
        err.text);
    for (uint32_t i = 0; i < got.fault_count; i++) {
        ck_abort_msg("%s: tile %u event %d addr %#x code %#x: %s", id, got.faults[i].tile.n,
            got.faults[i].event, got.faults[i].addr, got.faults[i].code, got.faults[i].text);
    }
    size_t n = 0;
    size_t cap = got.delivery_count + 1;
    struct sim_delivery *want = calloc(cap, sizeof *want);
    ck_assert_ptr_nonnull(want);
    size_t t;
    json_t *transfer;
    json_array_foreach(json_object_get(item, "transfers"), t, transfer)
    {
        bool wide = strcmp(json_string_value(json_object_get(transfer, "form")), "paired") == 0;
        uint32_t words = (uint32_t)json_integer_value(json_object_get(transfer, "words"));
        json_t *dests = json_object_get(transfer, "dests");
        for (size_t d = 0; d < json_array_size(dests); d++) {
            json_t *dest = json_array_get(dests, d);
            json_t *receive = json_array_get(json_object_get(transfer, "receive"), d);
            for (uint32_t k = 0; k < words; k++) {
                ck_assert_msg(n < cap, "%s: too few deliveries: %llu", id,
                    (unsigned long long)got.delivery_count);
                want[n++] = (struct sim_delivery){
                    .tile = {physical(json_integer_value(json_array_get(dest, 0)))},
                    .addr = (uint32_t)json_integer_value(json_array_get(dest, 1)) + 4 * k,
                    .source = {physical(
                        json_integer_value(json_object_get(transfer, "src")))},
                    .source_addr =
                        (uint32_t)json_integer_value(json_object_get(transfer, "src_addr")) +
                        4 * k,
                    .arrival = (int32_t)json_integer_value(json_array_get(receive, 0)) +
                        (int32_t)(wide ? k / 2 : k)};
            }
        }
    }
    compare_all(id, want, n, &got);
    for (uint32_t i = 0; i < r->count; i++) {
        char logical[8];
        snprintf(logical, sizeof logical, "%u", target_logical(r->rows[i].tile).n);
        json_int_t horizon = json_integer_value(
            json_object_get(json_object_get(item, "tile_horizon"), logical));
        ck_assert_msg(got.horizons[i] == horizon, "%s: tile %s: horizon %d, want %lld", id,
            logical, got.horizons[i], (long long)horizon);
    }
    free(want);
    free(r);
    sim_rows_result_done(&got);
}

static void check_section(const char *name, size_t count)
{
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(vectors, name), i, item)
    {
        check_transfers(item);
    }
    ck_assert_uint_eq(i, count);
}

START_TEST(phases)
{
    check_section("phases", 298);
}
END_TEST

START_TEST(schedules)
{
    check_section("schedules", 33);
}
END_TEST

START_TEST(base_switch)
{
    check_section("base_switch", 8);
}
END_TEST

START_TEST(mutations)
{
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(vectors, "mutations"), i, item)
    {
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
            want[k] = (struct sim_delivery){.tile = {physical(v[0])}, .addr = (uint32_t)v[1],
                .source = {physical(v[2])}, .source_addr = (uint32_t)v[3],
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

START_TEST(vendor_row)
{
    json_t *sdk = json_array_get(json_object_get(vectors, "sdk"), 0);
    json_t *words = json_object_get(sdk, "row");
    uint32_t row[32];
    struct sim_row r = {.tile = {0}, .words = row, .word_count = (uint32_t)json_array_size(words)};
    for (uint32_t i = 0; i < r.word_count && i < 32; i++) {
        row[i] = (uint32_t)strtoul(json_string_value(json_array_get(words, i)), NULL, 16);
    }
    struct sim_rows_result got;
    ck_assert_int_eq(sim_rows_run(&r, 1, ROW_ADDR, &got, NULL), 0);
    ck_assert_int_eq(got.horizons[0],
        (int)json_integer_value(json_object_get(sdk, "horizon")));
    ck_assert_uint_eq(got.delivery_count, 0);
    ck_assert_uint_eq(got.fault_count, 0);
    sim_rows_result_done(&got);
}
END_TEST

/* ---- rows by hand --------------------------------------------------------------------------- */

static struct sim_rows_result run(const struct sim_row *rows, uint32_t n, uint32_t at)
{
    struct sim_rows_result got;
    struct err err = {0};
    ck_assert_msg(sim_rows_run(rows, n, at, &got, &err) == 0, "%s", err.text);
    return got;
}

static bool has_fault(const struct sim_rows_result *r, uint16_t tile, int code)
{
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
#define SEND7   0x40a0001bu, 0x78cc8021u, 0x43a00000u
#define TAKE7   0x64000000u, 0x64018640u, 0x6161c008u, 0x40a0000bu, 0x43a00000u

START_TEST(error_codes)
{
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
    struct sim_row shorter[] = {ROW(0, SEND7),
        ROW(2, 0x64000000u, 0x64018640u, 0x6161c008u, 0x40a0000au, 0x43a00000u)};
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
    struct sim_row early[] = {ROW(0, SEND7),
        ROW(2, 0x64000000u, 0x64018640u, 0x6159c008u, 0x60040001u, 0x60240000u, 0x40a00012u,
            0x43a00000u)};
    got = run(early, 2, ROW_ADDR);
    ck_assert(has_fault(&got, 2, 7));
    sim_rows_result_done(&got);
}
END_TEST

START_TEST(clash_with_own_send)
{
    /* Tile 2 sends from 0x70100 while seven words arrive at 0x70020, events 53..59. */
    struct sim_row rows[] = {ROW(0, SEND7),
        ROW(2, 0x64000000u, 0x64018640u, 0x6161c008u, 0x784e0203u, 0x40a0000bu, 0x43a00000u)};
    struct sim_rows_result got = run(rows, 2, ROW_ADDR);
    ck_assert(has_fault(&got, 2, 1));
    ck_assert_uint_eq(got.delivery_count, 7);
    sim_rows_result_done(&got);
}
END_TEST

START_TEST(loopback_needs_company)
{
    /* T(0,0) = -29: send at 29, own mux at 1, arrival 53. */
    struct sim_row alone[] = {
        ROW(0, 0x64000000u, 0x40a0001bu, 0x784c8003u, 0x64000640u, 0x6051c000u, 0x40a0000eu,
            0x40a00007u, 0x43a00000u)};
    struct sim_rows_result got = run(alone, 1, ROW_ADDR);
    ck_assert(has_fault(&got, 0, 3));
    sim_rows_result_done(&got);
}
END_TEST

START_TEST(bad_rows)
{
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
    struct sim_row pause[] = {
        ROW(5, 0x784c8001u, 0x40a00000u, 0x70000001u, 0x43a00000u)};
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

/* One tile to all others and itself, 64 words: every tile stores them, none faults. */
START_TEST(whole_chip_multicast)
{
    enum { WORDS = 64, SOURCE = 640 };
    static struct sim_row rows[TARGET_TILES];
    static uint32_t words[TARGET_TILES][8];
    struct physical_tile s = {SOURCE};
    int start = 0;
    for (uint16_t t = 0; t < TARGET_TILES; t++) {
        int least = -target_route_time(s, (struct physical_tile){t});
        start = least > start ? least : start;
    }
    start++; /* the sender itself must select at event 1 at the earliest, before its send */
    for (uint16_t t = 0; t < TARGET_TILES; t++) {
        struct physical_tile d = {t};
        int x = start + 1 + target_route_time(s, d);
        int a = x + target_arrival_delay(d);
        uint32_t *w = words[t];
        uint32_t n = 0;
        int now = 0;
        if (t == SOURCE) {
            /* mux in a delay before the send, idle and pointer after it */
            w[n++] = 0x64000000u | (uint32_t)(x - 1) << 14 | SOURCE;
            w[n++] = 0x40a00000u | (uint32_t)(start - x - 1);
            w[n++] = 0x78000000u | 63u << 21 | 0x19000u * 8 | 3;
            now = start + WORDS;
            ck_assert_int_lt(x + WORDS - 1, now);
        } else {
            w[n++] = 0x64000000u | (uint32_t)(x - 1) << 14 | SOURCE;
            now = x;
        }
        if (t == SOURCE) {
            /* its window ended inside the send: nobody sends any more, so idle may be late, but
             * the pointer is due while the send runs: take the base and no pointer instead */
            w[2] = 0x78000000u | 19u << 21 | 0x19000u * 8 | 3;
            w[n++] = 0x70100000u | 43u << 21 | 2u << 18 | 0x1c000u;
            ck_assert_int_ge(a, start + 21);
            w[n++] = 0x64000640u;
            now = start + WORDS + 1;
        } else if (x + WORDS <= a) {
            w[n++] = 0x64000000u | (uint32_t)(WORDS - 1) << 14 | 0x640;
            if (a > x + WORDS) {
                w[n++] = 0x60000000u | (uint32_t)(a - x - WORDS - 1) << 19 | 0x1c000u;
            }
            now = a;
        } else {
            w[n++] = 0x60000000u | (uint32_t)(a - now - 1) << 19 | 0x1c000u;
            w[n++] = 0x64000000u | (uint32_t)(x + WORDS - a - 1) << 14 | 0x640;
            now = x + WORDS;
        }
        if (x + WORDS == a && t != SOURCE) {
            n--; /* both at one event: idle one event late is harmless, nobody sends */
            w[n++] = 0x60000000u | (uint32_t)(a - x - 1) << 19 | 0x1c000u;
            w[n++] = 0x64000640u;
            now = a + 1;
        }
        w[n++] = 0x40a00000u | (uint32_t)(a + WORDS + 5 - now - 1);
        w[n++] = 0x43a00000u;
        rows[t] = (struct sim_row){.tile = d, .words = w, .word_count = n};
    }
    struct sim_rows_result got = run(rows, TARGET_TILES, ROW_ADDR);
    for (uint32_t i = 0; i < got.fault_count; i++) {
        ck_abort_msg("tile %u event %d: %s", got.faults[i].tile.n, got.faults[i].event,
            got.faults[i].text);
    }
    ck_assert_uint_eq(got.delivery_count, (uint64_t)TARGET_TILES * WORDS);
    for (uint64_t i = 0; i < got.delivery_count; i++) {
        ck_assert_uint_eq(got.deliveries[i].source.n, SOURCE);
        ck_assert_uint_eq(got.deliveries[i].source_addr - 0x64000u,
            got.deliveries[i].addr - 0x70000u);
    }
    sim_rows_result_done(&got);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("sim_fabric");
    TCase *v = tcase_create("vectors");
    tcase_add_unchecked_fixture(v, load_vectors, drop_vectors);
    tcase_set_timeout(v, 120);
    tcase_add_test(v, phases);
    tcase_add_test(v, schedules);
    tcase_add_test(v, base_switch);
    tcase_add_test(v, mutations);
    tcase_add_test(v, vendor_row);
    suite_add_tcase(s, v);
    TCase *t = tcase_create("rows");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, error_codes);
    tcase_add_test(t, clash_with_own_send);
    tcase_add_test(t, loopback_needs_company);
    tcase_add_test(t, bad_rows);
    tcase_add_test(t, whole_chip_multicast);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
