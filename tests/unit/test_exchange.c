/* The exchange scheduler: limits, random phases, damaged rows, figures.
 *
 * Every schedule is judged twice: by the module's own replay and by the simulator's fabric, which
 * share no code. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exchange/exchange.h"
#include "sim/sim.h"

#define ROW_ADDR  TARGET_MEM_BASE /* element 0: no test puts data there */
#define DATA_BASE 0x50000u

struct phase_case {
    struct exchange_transfer *list;
    struct exchange_dest *dests;
    uint32_t count, dest_count;
};

static struct arena a;
static uint64_t seed;

static void setup(void) {
    arena_init(&a, (size_t)1 << 30);
    seed = 88172645463325252ull;
}

static void teardown(void) {
    arena_done(&a);
}

static uint32_t below(uint32_t n) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)((seed >> 11) % n);
}

static struct logical_tile tile(uint32_t n) {
    return (struct logical_tile){(uint16_t)n};
}

static struct phase_case case_new(uint32_t transfers, uint32_t dests) {
    return (struct phase_case){
        ARENA_ARRAY(&a, struct exchange_transfer, transfers),
        ARENA_ARRAY(&a, struct exchange_dest, dests), 0, 0};
}

static struct exchange_transfer *
add(struct phase_case *c, uint32_t source, uint32_t addr, uint32_t words, enum exchange_form form) {
    struct exchange_transfer *t = &c->list[c->count++];
    *t =
        (struct exchange_transfer){tile(source), addr, words, form, &c->dests[c->dest_count], 0, 0};
    return t;
}

static void to(struct phase_case *c, uint32_t dest, uint32_t addr) {
    c->dests[c->dest_count++] = (struct exchange_dest){tile(dest), addr};
    c->list[c->count - 1].dest_count++;
}

/* ---- the two judges ----------------------------------------------------------------------- */

static int delivery_order(const void *x, const void *y) {
    const struct sim_delivery *p = x;
    const struct sim_delivery *q = y;
    if (p->arrival != q->arrival) {
        return p->arrival < q->arrival ? -1 : 1;
    }
    if (p->tile.n != q->tile.n) {
        return p->tile.n < q->tile.n ? -1 : 1;
    }
    return (p->addr > q->addr) - (p->addr < q->addr);
}

static uint64_t expected_words(
    const struct phase_case *c, const struct exchange_phase *phase, struct sim_delivery **ret) {
    uint64_t total = 0;
    for (uint32_t i = 0; i < c->count; i++) {
        total += (uint64_t)c->list[i].words * c->list[i].dest_count;
    }
    struct sim_delivery *list = malloc((total + 1) * sizeof *list);
    uint64_t n = 0;
    for (uint32_t i = 0; i < c->count; i++) {
        const struct exchange_transfer *t = &c->list[i];
        struct physical_tile s = target_physical(t->source);
        bool wide = phase->forms[i] == EXCHANGE_PAIRED;
        for (uint32_t k = 0; k < t->dest_count; k++) {
            struct physical_tile d = target_physical(t->dests[k].tile);
            int time = target_route_time(s, d);
            int other = target_route_time(s, target_partner(d));
            if (wide) {
                time = time > other ? time : other;
            }
            int32_t first = phase->placed[i].send_start + 1 + time + target_arrival_delay(d);
            for (uint32_t w = 0; w < t->words; w++) {
                list[n++] = (struct sim_delivery){
                    d, t->dests[k].addr + 4 * w, s, t->source_addr + 4 * w,
                    first + (int32_t)(wide ? w / 2 : w)};
            }
        }
    }
    qsort(list, n, sizeof *list, delivery_order);
    *ret = list;
    return n;
}

/* Returns NULL when the fabric delivers exactly what the transfers ask for. */
static const char *fabric_fault(const struct phase_case *c, const struct exchange_phase *phase) {
    static char text[256];
    struct sim_row *rows = calloc(phase->row_count + 1, sizeof *rows);
    for (uint32_t i = 0; i < phase->row_count; i++) {
        const struct exchange_row *r = &phase->rows[i];
        rows[i] = (struct sim_row){
            target_physical(r->tile), r->words, r->word_count, r->incoming_base, 0};
    }
    struct sim_rows_result got;
    struct err err = {0};
    int rc = sim_rows_run(rows, phase->row_count, ROW_ADDR, &got, &err);
    free(rows);
    if (rc != 0) {
        snprintf(text, sizeof text, "%.200s", err.text);
        return text;
    }
    struct sim_delivery *want;
    uint64_t n = expected_words(c, phase, &want);
    text[0] = '\0';
    if (got.fault_count > 0) {
        snprintf(
            text, sizeof text, "tile %u event %d: %s", got.faults[0].tile.n, got.faults[0].event,
            got.faults[0].text);
    } else if (got.delivery_count != n) {
        snprintf(
            text, sizeof text, "%lu words, expected %lu", (unsigned long)got.delivery_count,
            (unsigned long)n);
    }
    for (uint64_t i = 0; i < n && text[0] == '\0'; i++) {
        const struct sim_delivery *p = &want[i];
        const struct sim_delivery *q = &got.deliveries[i];
        if (delivery_order(p, q) != 0 || p->source.n != q->source.n ||
            p->source_addr != q->source_addr) {
            snprintf(
                text, sizeof text,
                "word %lu arrives at tile %u 0x%x event %d, expected %u "
                "0x%x %d",
                (unsigned long)i, q->tile.n, q->addr, q->arrival, p->tile.n, p->addr, p->arrival);
        }
    }
    free(want);
    sim_rows_result_done(&got);
    return text[0] == '\0' ? NULL : text;
}

static struct exchange_phase
schedule(const struct phase_case *c, const struct exchange_options *options, const char *what) {
    struct exchange_phase phase;
    struct err err = {0};
    int rc = exchange_schedule_phase(c->list, c->count, options, &a, &phase, &err);
    ck_assert_msg(rc == 0, "%s: %s", what, err.text);
    return phase;
}

static struct exchange_phase
judge(const struct phase_case *c, const struct exchange_options *options, const char *what) {
    struct exchange_phase phase = schedule(c, options, what);
    struct err err = {0};
    int rc = exchange_verify_phase(c->list, c->count, &phase, &a, &err);
    ck_assert_msg(rc == 0, "%s: %s", what, err.text);
    const char *fault = fabric_fault(c, &phase);
    ck_assert_msg(fault == NULL, "%s: fabric: %s", what, fault);
    ck_assert_uint_ge(phase.horizon, phase.lower_bound);
    return phase;
}

/* ---- rejections and limits ---------------------------------------------------------------- */

static int check_one(
    uint32_t source, uint32_t addr, uint32_t words, enum exchange_form form,
    const struct exchange_dest *dests, uint32_t n) {
    struct exchange_transfer t = {tile(source), addr, words, form, dests, n, 0};
    struct err err = {0};
    int rc = exchange_check(&t, &err);
    ck_assert_msg((rc == 0) == (err.text[0] == '\0'), "code and text disagree: %s", err.text);
    return rc;
}

START_TEST(faulty_transfers_are_refused) {
    struct exchange_dest one[] = {{tile(2), 0x70000}};
    struct exchange_dest twice[] = {{tile(2), 0x70000}, {tile(2), 0x74000}};
    struct exchange_dest pair[] = {{tile(2), 0x70000}, {tile(3), 0x70000}};
    struct exchange_dest odd[] = {{tile(2), 0x70004}, {tile(3), 0x70000}};
    struct exchange_dest self[] = {{tile(0), 0x70000}};
    struct exchange_dest self2[] = {{tile(0), 0x70000}, {tile(4), 0x70000}};
    struct exchange_dest far[] = {{tile(1472), 0x70000}};
    struct exchange_dest end[] = {{tile(2), TARGET_MEM_END - 4}};
    ck_assert_int_eq(check_one(0, 0x64000, 8, EXCHANGE_ABSOLUTE, one, 1), 0);
    ck_assert_int_eq(check_one(0, 0x64000, 1, EXCHANGE_ABSOLUTE, end, 1), 0);
    ck_assert_int_eq(check_one(0, 0x64000, 128, EXCHANGE_PAIRED, pair, 2), 0);
    ck_assert_int_eq(check_one(0, 0x64000, 8, EXCHANGE_ABSOLUTE, self2, 2), 0);
    ck_assert_int_lt(check_one(0, 0x64000, 0, EXCHANGE_ABSOLUTE, one, 1), 0);
    ck_assert_int_lt(check_one(0, 0x64000, 8, EXCHANGE_ABSOLUTE, one, 0), 0);
    ck_assert_int_lt(check_one(0, 0x64002, 8, EXCHANGE_ABSOLUTE, one, 1), 0);
    ck_assert_int_lt(check_one(0, 0x4BFFC, 8, EXCHANGE_ABSOLUTE, one, 1), 0);
    ck_assert_int_lt(check_one(0, 0x64000, 2, EXCHANGE_ABSOLUTE, end, 1), 0);
    ck_assert_int_lt(check_one(1472, 0x64000, 8, EXCHANGE_ABSOLUTE, one, 1), 0);
    ck_assert_int_lt(check_one(0, 0x64000, 8, EXCHANGE_ABSOLUTE, far, 1), 0);
    ck_assert_int_lt(check_one(0, 0x64000, 8, EXCHANGE_ABSOLUTE, twice, 2), 0);
    ck_assert_int_lt(check_one(0, 0x64000, 8, EXCHANGE_ABSOLUTE, self, 1), 0);
    ck_assert_int_lt(check_one(0, 0x64000, 8, EXCHANGE_POINT, pair, 2), 0);
    ck_assert_int_lt(check_one(0, 0x64000, 128, EXCHANGE_PAIRED, one, 1), 0);
    ck_assert_int_lt(check_one(0, 0x64000, 129, EXCHANGE_PAIRED, pair, 2), 0);
    ck_assert_int_lt(check_one(0, 0x64004, 128, EXCHANGE_PAIRED, pair, 2), 0);
    ck_assert_int_lt(check_one(0, 0x64000, 128, EXCHANGE_PAIRED, odd, 2), 0);
    ck_assert_int_lt(check_one(0, 0x64000, 4, EXCHANGE_PAIRED, pair, 2), 0);
    ck_assert_int_lt(check_one(0, 0x64000, 8, (enum exchange_form)3, one, 1), 0);
}
END_TEST

START_TEST(longest_transfers_pass_and_one_more_is_refused) {
    for (int wide = 0; wide < 2; wide++) {
        uint32_t most = wide != 0 ? 2 * EXCHANGE_MAX_ITEMS : EXCHANGE_MAX_ITEMS;
        enum exchange_form form = wide != 0 ? EXCHANGE_PAIRED : EXCHANGE_ABSOLUTE;
        struct phase_case c = case_new(2, 4);
        add(&c, 1471, 0x90000, most, form);
        to(&c, 0, 0xA0000);
        to(&c, 1, 0xA8000);
        judge(&c, NULL, "longest transfer");
        c.list[0].words += wide != 0 ? 2 : 1;
        struct exchange_phase phase;
        struct err err = {0};
        int rc = exchange_schedule_phase(c.list, 1, NULL, &a, &phase, &err);
        ck_assert_int_eq(rc, -ERR_SCHEDULE);
        ck_assert_ptr_nonnull(strstr(err.text, "transfer 0"));
    }
}
END_TEST

/* Of 27 to 29 words the idle selection would meet the start of the tile's own send. */
START_TEST(loopbacks_of_every_length_pass) {
    for (uint32_t words = 1; words <= 70; words++) {
        for (uint32_t t = 0; t < 4; t++) {
            struct phase_case c = case_new(8, 40);
            for (uint32_t i = 0; i < 3; i++) {
                add(&c, t, 0x64000 + 0x200 * i, words, EXCHANGE_ABSOLUTE);
                to(&c, t, 0x70000 + 0x200 * i);
                to(&c, 40 + t, 0x70000 + 0x200 * i);
                to(&c, t ^ 1, 0x78000 + 0x200 * i);
            }
            if (words != 2) {
                add(&c, t, 0x6C000, 2 * words, EXCHANGE_PAIRED);
                to(&c, t, 0x74000);
                to(&c, t ^ 1, 0x74000);
                c.count -= exchange_check(&c.list[c.count - 1], NULL) != 0;
            }
            add(&c, t ^ 1, 0x64000, 9, EXCHANGE_ABSOLUTE);
            c.list[c.count - 1].dests = &c.dests[c.dest_count];
            to(&c, 50, 0x7C000);
            judge(&c, NULL, "loopback");
            struct exchange_options plain = {.plain = true, .list_order = true};
            judge(&c, &plain, "loopback, plain");
        }
    }
}
END_TEST

START_TEST(an_empty_phase_has_no_rows) {
    struct phase_case c = case_new(1, 1);
    struct exchange_phase phase = judge(&c, NULL, "empty");
    ck_assert_uint_eq(phase.row_count, 0);
    ck_assert_uint_eq(phase.horizon, 0);
    struct exchange_options plain = {.plain = true, .list_order = true, .always_trial = true};
    ck_assert_uint_eq(judge(&c, &plain, "empty").row_count, 0);
}
END_TEST

START_TEST(a_far_offset_needs_several_delays) {
    struct phase_case c = case_new(2, 2);
    add(&c, 5, 0x64000, 7, EXCHANGE_ABSOLUTE)->requested = 1200000;
    to(&c, 900, 0x70000);
    struct exchange_options list = {.list_order = true};
    ck_assert_uint_gt(judge(&c, &list, "far offset").horizon, 1200000);
}
END_TEST

/* ---- random phases ------------------------------------------------------------------------ */

struct shape {
    uint32_t tiles, transfers, most_dests, most_words;
    uint32_t data_bytes; /* small: overlapping bytes and shared elements */
    uint32_t wide_in_8;  /* paired transfers */
};

static bool shares_unit(uint32_t x, uint32_t y, uint32_t words) {
    uint32_t low = x < y ? x : y;
    uint32_t high = x < y ? y : x;
    return high / 0x8000 <= (low + 4 * words - 1) / 0x8000;
}

static void add_random(struct phase_case *c, const struct shape *s) {
    bool wide = below(8) < s->wide_in_8;
    uint32_t words = 1 + below(below(4) == 0 ? s->most_words : s->most_words / 8 + 1);
    uint32_t align = wide ? 8 : 4;
    words = wide ? 2 * words : words;
    uint32_t range = s->data_bytes - 4 * words;
    uint32_t count = c->count;
    uint32_t dest_count = c->dest_count;
    uint32_t source = below(s->tiles);
    struct exchange_transfer *t =
        add(c, source, DATA_BASE + below(range) / align * align, words,
            wide ? EXCHANGE_PAIRED : EXCHANGE_ABSOLUTE);
    if (count > 0 && below(4) == 0) { /* relay: forwards what an earlier one delivers */
        const struct exchange_transfer *from = &c->list[below(count)];
        const struct exchange_dest *d = &from->dests[below(from->dest_count)];
        if (d->addr % align == 0 && DATA_BASE + s->data_bytes - d->addr >= 4 * words) {
            t->source = d->tile;
            t->source_addr = d->addr;
            source = d->tile.n;
        }
    }
    uint32_t n = 1 + (below(3) == 0 ? below(s->most_dests) : 0);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t to_tile = below(s->tiles);
        uint32_t addr = DATA_BASE + below(range) / align * align;
        if (to_tile / 2 == source / 2 && shares_unit(addr, t->source_addr, words)) {
            continue;
        }
        to(c, to_tile, addr);
        if (wide) {
            to(c, to_tile ^ 1, addr);
        }
    }
    if (exchange_check(t, NULL) != 0) {
        c->count = count;
        c->dest_count = dest_count;
    }
}

static void random_phase(const struct shape *s, unsigned round) {
    char what[96];
    snprintf(what, sizeof what, "round %u: %u tiles, %u transfers", round, s->tiles, s->transfers);
    struct phase_case c = case_new(s->transfers + 1, 2 * s->transfers * s->most_dests + 2);
    for (uint32_t i = 0; i < s->transfers; i++) {
        add_random(&c, s);
    }
    struct exchange_options own = {.effort = 1 + round % 3, .try_paired = round % 5 == 0};
    struct exchange_phase phase = judge(&c, &own, what);
    struct exchange_options given = {.order = phase.order};
    if (!own.try_paired) { /* a stored order gives the same rows again */
        struct exchange_phase again = judge(&c, &given, what);
        ck_assert_uint_eq(again.horizon, phase.horizon);
        ck_assert_uint_eq(again.total_row_bytes, phase.total_row_bytes);
        for (uint32_t i = 0; i < phase.row_count; i++) {
            ck_assert_uint_eq(again.rows[i].word_count, phase.rows[i].word_count);
            ck_assert_mem_eq(
                again.rows[i].words, phase.rows[i].words, 4 * (size_t)phase.rows[i].word_count);
        }
    }
    struct exchange_options list = {
        .list_order = true, .plain = round % 2 == 0, .always_trial = round % 3 == 0};
    judge(&c, &list, what);
}

START_TEST(random_phases_deliver_exactly) {
    static const struct shape shapes[] = {
        {64, 30, 5, 80, 0x90000, 0},      {64, 200, 4, 60, 0x80000, 0},
        {64, 60, 12, 300, 0x20000, 0},    {64, 40, 4, 40, 0x2000, 0},
        {128, 120, 6, 200, 0x90000, 4},   {64, 90, 4, 64, 0x30000, 3},
        {1472, 200, 30, 700, 0x90000, 1}, {1472, 1, 400, 3000, 0x90000, 0},
        {4, 120, 3, 56, 0x90000, 0},      {4, 80, 2, 60, 0x18000, 4},
        {64, 150, 3, 8, 0x4000, 0},       {8, 200, 4, 16, 0x90000, 2},
    };
    struct arena_mark mark = arena_mark(&a);
    for (unsigned round = 0; round < 48; round++) {
        random_phase(&shapes[round % (sizeof shapes / sizeof shapes[0])], round);
        arena_rewind(&a, mark);
    }
}
END_TEST

START_TEST(rows_that_need_aligning_are_retried) {
    /* messages of 52 words to a tile of row 0: every new source meets the pointer before */
    unsigned trials = 0;
    for (uint32_t words = 1; words <= 56; words++) {
        struct phase_case c = case_new(24, 24);
        for (uint32_t i = 0; i < 24; i++) {
            add(&c, 2 + 2 * i, 0x64000, i % 3 == 0 ? words : 52, EXCHANGE_ABSOLUTE);
            to(&c, i % 5 == 4 ? 1 : 0, 0x70000 + (23 - i) * 0x100);
        }
        struct exchange_options plain = {.plain = true, .list_order = true};
        struct exchange_phase phase = judge(&c, &plain, "alignment");
        trials += phase.used_trials;
        phase = judge(&c, NULL, "alignment, own");
        ck_assert(!phase.used_trials);
    }
    ck_assert_uint_gt(trials, 0);
}
END_TEST

START_TEST(orders_against_the_bytes_are_refused) {
    struct phase_case c = case_new(3, 3);
    add(&c, 10, 0x64000, 64, EXCHANGE_ABSOLUTE);
    to(&c, 20, 0x70000);
    add(&c, 20, 0x70000, 64, EXCHANGE_ABSOLUTE);
    to(&c, 30, 0x70000);
    struct exchange_phase phase;
    struct err err = {0};
    uint32_t backward[] = {1, 0};
    uint32_t repeated[] = {0, 0};
    struct exchange_options o = {.order = backward};
    ck_assert_int_eq(exchange_schedule_phase(c.list, 2, &o, &a, &phase, &err), -ERR_SCHEDULE);
    ck_assert_ptr_nonnull(strstr(err.text, "needs in tile 20"));
    o.order = repeated;
    ck_assert_int_eq(exchange_schedule_phase(c.list, 2, &o, &a, &phase, &err), -ERR_SCHEDULE);
    phase = judge(&c, NULL, "relay");
    ck_assert_int_ge(phase.placed[1].send_start, phase.placed[0].send_start + 64);
}
END_TEST

/* ---- damage ------------------------------------------------------------------------------- */

/* Flips every bit of every word. What the verifier lets pass must be harmless on the fabric too;
 * most flips must be found. */
static void flip_all(
    const struct phase_case *c, struct exchange_phase *phase, unsigned *ret_passed,
    unsigned *ret_refused) {
    for (uint32_t i = 0; i < phase->row_count; i++) {
        for (uint32_t w = 0; w < phase->rows[i].word_count; w++) {
            for (unsigned bit = 0; bit < 32; bit++) {
                struct arena_mark mark = arena_mark(&a);
                uint32_t *word = &phase->rows[i].words[w];
                *word ^= 1u << bit;
                struct err err = {0};
                if (exchange_verify_phase(c->list, c->count, phase, &a, &err) == 0) {
                    const char *fault = fabric_fault(c, phase);
                    ck_assert_msg(
                        fault == NULL, "row %u word %u bit %u passes the verifier: %s", i, w, bit,
                        fault);
                    ++*ret_passed;
                } else {
                    ++*ret_refused;
                }
                *word ^= 1u << bit;
                arena_rewind(&a, mark);
            }
        }
    }
}

START_TEST(damaged_rows_are_found) {
    struct phase_case c = case_new(8, 16);
    unsigned passed = 0;
    unsigned refused = 0;
    add(&c, 10, 0x64000, 6, EXCHANGE_ABSOLUTE);
    to(&c, 100, 0x70000);
    add(&c, 40, 0x64000, 53, EXCHANGE_ABSOLUTE);
    to(&c, 100, 0x74000);
    to(&c, 10, 0x74000);
    add(&c, 100, 0x64000, 90, EXCHANGE_ABSOLUTE);
    to(&c, 40, 0x70000);
    add(&c, 200, 0x64000, 128, EXCHANGE_PAIRED);
    to(&c, 100, 0x78000);
    to(&c, 101, 0x79000);
    struct exchange_phase phase = judge(&c, NULL, "undamaged");
    flip_all(&c, &phase, &passed, &refused);
    ck_assert_uint_gt(refused, 20 * passed);
    ck_assert_uint_gt(passed, 0); /* the unneeded direction of a single receiver */
}
END_TEST

START_TEST(damaged_schedules_are_found) {
    struct phase_case c = case_new(4, 8);
    add(&c, 10, 0x64000, 60, EXCHANGE_ABSOLUTE);
    to(&c, 20, 0x70000);
    add(&c, 20, 0x70000, 60, EXCHANGE_ABSOLUTE);
    to(&c, 30, 0x70000);
    struct exchange_phase phase = judge(&c, NULL, "relay");
    struct err err = {0};
    struct exchange_phase bad = phase;
    bad.row_count--;
    ck_assert_int_lt(exchange_verify_phase(c.list, c.count, &bad, &a, &err), 0);
    bad = phase;
    bad.horizon++;
    ck_assert_int_lt(exchange_verify_phase(c.list, c.count, &bad, &a, &err), 0);
    phase.placed[0].send_start++;
    ck_assert_int_lt(exchange_verify_phase(c.list, c.count, &phase, &a, &err), 0);
    phase.placed[0].send_start--;
    phase.rows[1].incoming_base = 4;
    ck_assert_int_lt(exchange_verify_phase(c.list, c.count, &phase, &a, &err), 0);
    phase.rows[1].incoming_base = 0;
    /* rows made without the element rule must not pass with it: tile 20 stores and sends in one
     * element at a time */
    struct exchange_options loose = {.ignore_elements = true};
    c.list[1].source_addr = 0x70000 + 60 * 4;
    phase = schedule(&c, &loose, "loose");
    ck_assert_int_eq(exchange_verify_phase(c.list, c.count, &phase, &a, &err), 0);
    phase.ignore_elements = false;
    ck_assert_int_lt(exchange_verify_phase(c.list, c.count, &phase, &a, &err), 0);
    ck_assert_ptr_nonnull(strstr(err.text, "memory element"));
}
END_TEST

/* ---- memory and text ---------------------------------------------------------------------- */

static int schedule_with_limit(const struct phase_case *c, uint64_t after) {
    struct arena own;
    arena_init(&own, 64u << 20);
    own.fail_after = after;
    int rc = -ERR_NOMEM;
    if (!ARENA_RECOVER(&own)) {
        struct exchange_phase phase;
        struct exchange_options o = {.try_paired = true, .effort = 2, .always_trial = true};
        struct err err = {0};
        rc = exchange_schedule_phase(c->list, c->count, &o, &own, &phase, &err);
        rc = rc != 0 ? rc : exchange_verify_phase(c->list, c->count, &phase, &own, &err);
    }
    arena_done(&own);
    return rc;
}

START_TEST(every_allocation_may_fail) {
    static const struct shape s = {64, 20, 3, 60, 0x8000, 3};
    struct phase_case c = case_new(40, 400);
    for (uint32_t i = 0; i < s.transfers; i++) {
        add_random(&c, &s);
    }
    uint64_t n = 1;
    while (schedule_with_limit(&c, n) == -ERR_NOMEM) {
        n++;
        ck_assert_uint_lt(n, 100000);
    }
    ck_assert_uint_gt(n, 50);
    ck_assert_int_eq(schedule_with_limit(&c, n), 0);
}
END_TEST

START_TEST(the_timeline_names_every_row) {
    struct phase_case c = case_new(2, 2);
    add(&c, 0, 0x64010, 7, EXCHANGE_ABSOLUTE);
    to(&c, 1, 0x70020);
    struct exchange_phase phase = judge(&c, NULL, "E3");
    static const uint32_t sender[] = {0x40A0001B, 0x78CC8021, 0x43A00000};
    ck_assert_mem_eq(phase.rows[0].words, sender, sizeof sender);
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    ck_assert_ptr_nonnull(out);
    ck_assert_int_eq(exchange_print_phase(c.list, c.count, &phase, out), 0);
    fclose(out);
    ck_assert_ptr_nonnull(strstr(text, "tile 1 (physical 2: row 0 column 0 sub 2)"));
    ck_assert_ptr_nonnull(strstr(text, "28..35     78cc8021           send 0x64010 east"));
    ck_assert_ptr_nonnull(strstr(text, "at 53 pointer 0x70020"));
    free(text);
}
END_TEST

/* ---- streams ------------------------------------------------------------------------------ */

/* Pieces from one tile to the same others leave back to back: the source sends them as one where
 * they lie together, receivers select it once, and a pointer is written only where pieces do not
 * follow one another.
 * `gap` bytes lie between pieces at the source, they land `stride` bytes apart. */
static void pieces(uint32_t gap, uint32_t stride, uint32_t send_words, uint32_t receive_words) {
    struct phase_case c = case_new(16, 16 * 3);
    for (uint32_t i = 0; i < 16; i++) {
        add(&c, 0, 0x64000 + (64 + gap) * i, 16, EXCHANGE_ABSOLUTE);
        for (uint32_t k = 1; k <= 3; k++) {
            to(&c, 100 * k, 0x70000 + stride * i);
        }
    }
    struct exchange_phase phase = judge(&c, NULL, "pieces");
    ck_assert_uint_eq(phase.horizon, phase.latency_bound);
    ck_assert_uint_eq(phase.rows[0].word_count, send_words);
    ck_assert_uint_eq(phase.rows[1].word_count, receive_words);
}

START_TEST(pieces_of_one_way_share_their_controls) {
    pieces(0, 64, 4, 5); /* delay, send and its rest, return; mux, pointer, idle, delay, return */
    pieces(0, 4096, 4, 5 + 15); /* a pointer for each piece more */
    pieces(32, 64, 2 + 16, 5);
}
END_TEST

/* ---- figures ------------------------------------------------------------------------------ */

/* most: events that may be lost above what no order can beat */
static void figure(const struct phase_case *c, const char *what, bool try_paired, uint32_t most) {
    struct exchange_options o = {.try_paired = try_paired};
    struct exchange_phase phase = judge(c, &o, what);
    printf(
        "%-35s %5u transfers: horizon %5u, endpoint bound %5u, with latency %5u, row %4u B\n", what,
        c->count, phase.horizon, phase.lower_bound, phase.latency_bound, phase.max_row_bytes);
    ck_assert_uint_ge(phase.horizon, phase.latency_bound);
    ck_assert_msg(
        phase.horizon <= phase.latency_bound + most, "%s: horizon %u, bound %u", what,
        phase.horizon, phase.latency_bound);
}

START_TEST(horizons_stay_near_the_bound) {
    struct phase_case c = case_new(TARGET_TILES, TARGET_TILES);
    uint16_t map[TARGET_TILES];
    for (uint32_t i = 0; i < TARGET_TILES; i++) {
        map[i] = (uint16_t)i;
    }
    for (uint32_t i = TARGET_TILES - 1; i > 0; i--) { /* one cycle: nobody sends to itself */
        uint32_t k = below(i);
        uint16_t kept = map[i];
        map[i] = map[k];
        map[k] = kept;
    }
    for (uint32_t i = 0; i < TARGET_TILES; i++) {
        add(&c, i, 0x64000, 64, EXCHANGE_ABSOLUTE);
        to(&c, map[i], 0x70000);
    }
    figure(&c, "random permutation, 1472 x 64 words", false, 10);

    c = case_new(1, TARGET_TILES);
    add(&c, 0, 0x64000, 256, EXCHANGE_ABSOLUTE);
    for (uint32_t i = 2; i < TARGET_TILES; i++) {
        to(&c, i, 0x70000);
    }
    figure(&c, "multicast to 1470 tiles, 256 words", false, 0);
    figure(&c, "the same, paired allowed", true, 0);

    c = case_new(64 * 63, 64 * 63);
    for (uint32_t r = 1; r < 64; r++) {
        for (uint32_t i = 0; i < 64; i++) {
            uint32_t k = (i + r) % 64;
            add(&c, i, 0x60000 + 64 * k, 16, EXCHANGE_ABSOLUTE);
            to(&c, k, 0x70000 + 64 * i);
        }
    }
    figure(&c, "64 tiles all-to-all, 16 words", false, 200);

    c = case_new(16, 16);
    for (uint32_t i = 0; i < 16; i++) {
        add(&c, 37 * i, 0x70000, 64, EXCHANGE_ABSOLUTE);
        to(&c, 37 * i + 37, 0x70000);
    }
    figure(&c, "relay chain, 16 hops of 64 words", false, 0);
}
END_TEST

int main(void) {
    const TTest *const tests[] = {
        faulty_transfers_are_refused,
        longest_transfers_pass_and_one_more_is_refused,
        loopbacks_of_every_length_pass,
        an_empty_phase_has_no_rows,
        a_far_offset_needs_several_delays,
        random_phases_deliver_exactly,
        rows_that_need_aligning_are_retried,
        orders_against_the_bytes_are_refused,
        damaged_rows_are_found,
        damaged_schedules_are_found,
        every_allocation_may_fail,
        the_timeline_names_every_row,
        pieces_of_one_way_share_their_controls,
        horizons_stay_near_the_bound,
    };
    Suite *suite = suite_create("exchange");
    TCase *all = tcase_create("exchange");
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_set_timeout(all, 120);
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        tcase_add_test(all, tests[i]);
    }
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
