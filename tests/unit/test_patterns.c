/* Communication over all 1,472 tiles, from tile graphs to words on the simulated chip: a
 * permutation, a pairwise all-reduce, a multicast, relays inside one exchange. Every tile takes
 * part in host transfers; expectations are computed on the host from the pattern alone. Each
 * pattern runs with one and with two simulator threads, and once more with one delivery left out,
 * which must be seen. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/f16.h"
#include "tests/support/patterns.h"

#define RUNS         2
#define MAX_PANELS   2
#define MAX_HALVES   (16 * MAX_PANELS)
#define STAGES       11 /* of the all-reduce: 2^11 > 1472 */
#define CHAIN        8  /* tiles of a relay; divides 1472 */
#define CHAINS       (TARGET_TILES / CHAIN)
#define RELAY_PHASES 3
#define F16_EXACT    2048 /* integers up to it are f16 */
#define DROPPED      5    /* delivery left out, see the table of scenarios */

static struct arena arena;
static char dir[64];
static char path[96];

static void setup(void) {
    arena_init(&arena, 512u << 20);
    strcpy(dir, "/tmp/ipud-test-patterns-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/pattern.ipuexe", dir);
}

static void teardown(void) {
    unlink(path);
    rmdir(dir);
    arena_done(&arena);
}

static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

/* Fisher and Yates; cyclic: Sattolo's variant, one cycle, so nothing stays where it was. */
static void shuffle(uint16_t *list, uint32_t count, uint64_t seed, bool is_cyclic) {
    for (uint32_t i = count - 1; i > 0; i--) {
        uint32_t k = (uint32_t)(mix(seed + i) % (is_cyclic ? i : i + 1));
        uint16_t swap = list[i];
        list[i] = list[k];
        list[k] = swap;
    }
}

static uint16_t *permutation_of_tiles(uint64_t seed, bool is_cyclic) {
    uint16_t *list = ARENA_ARRAY(&arena, uint16_t, TARGET_TILES);
    for (uint16_t t = 0; t < TARGET_TILES; t++) {
        list[t] = t;
    }
    shuffle(list, TARGET_TILES, seed, is_cyclic);
    return list;
}

/* ---- A scenario: a pattern, its input, what must come out ------------------------------------ */

typedef uint16_t rows_t[TARGET_TILES][MAX_HALVES];

struct scenario {
    const char *name;
    enum dtype dtype;
    uint32_t panels, outputs;
    void (*build)(struct pattern *p);
    /* outputs[o][t] from the input of one run */
    void (*expect)(rows_t *input, rows_t *outputs);
    uint16_t (*value)(uint64_t random);
    uint32_t spoiled; /* rows of a run that are wrong when delivery DROPPED is left out */
};

static uint16_t nonzero_half(uint64_t random) {
    return (uint16_t)(1 + random % 65535);
}

/* Small integers but zero; sums of all tiles stay exact. */
static uint16_t small_integer(uint64_t random) {
    int v = 1 + (int)(random % 8);
    return f16_from_f32((float)(random >> 32 & 1 ? -v : v));
}

static uint32_t halves(const struct scenario *s) {
    return 16 * s->panels;
}

static uint8_t *make_input(const struct scenario *s, rows_t *ret_rows) {
    uint8_t *bytes = arena_alloc(&arena, (size_t)RUNS * TARGET_TILES * halves(s) * 2, 8);
    uint8_t *at = bytes;
    for (uint64_t run = 0; run < RUNS; run++) {
        for (uint64_t t = 0; t < TARGET_TILES; t++) {
            for (uint64_t i = 0; i < halves(s); i++, at += 2) {
                uint16_t v = s->value(mix(run << 40 | t << 16 | i));
                ret_rows[run][t][i] = v;
                store_le16(at, v);
            }
        }
    }
    return bytes;
}

static void
compile(const struct scenario *s, uint32_t drop, struct pattern *p, struct pattern_figures *ret) {
    struct err err = {0};
    pattern_init(p, &arena, s->dtype, s->panels, s->outputs);
    p->drop = drop;
    s->build(p);
    unlink(path);
    ck_assert_msg(
        pattern_compile(p, path, ret, &err) == 0, "%s: %s %s", s->name, err.where, err.text);
}

static void
run(const struct scenario *s, const struct pattern_figures *f, int threads, const uint8_t *input,
    struct pattern_result *ret) {
    struct err err = {0};
    struct sim_options sim = {.threads = threads};
    int rc = pattern_run(path, &f->digest, dir, &sim, input, RUNS, ret, &err);
    ck_assert_msg(rc == 0, "%s: %s %s", s->name, err.where, err.text);
    ck_assert_uint_eq(ret->output_bytes, (uint64_t)TARGET_TILES * halves(s) * 2);
}

/* Rows of all outputs that differ from what is expected, by run; returns the sum. */
static uint32_t wrong_rows(
    const struct scenario *s, const struct pattern_result *r, rows_t *input,
    uint32_t ret_run[RUNS]) {
    rows_t *expected = (rows_t *)arena_alloc(&arena, s->outputs * sizeof(rows_t), 8);
    const uint8_t *at = r->outputs;
    uint32_t total = 0;
    for (uint32_t run_index = 0; run_index < RUNS; run_index++) {
        s->expect(&input[run_index], expected);
        ret_run[run_index] = 0;
        for (uint32_t row = 0; row < s->outputs * TARGET_TILES; row++) {
            bool is_wrong = false;
            for (uint32_t i = 0; i < halves(s); i++, at += 2) {
                is_wrong = is_wrong ||
                           load_le16(at) != expected[row / TARGET_TILES][row % TARGET_TILES][i];
            }
            ret_run[run_index] += is_wrong;
        }
        total += ret_run[run_index];
    }
    return total;
}

static void check_counts(const struct pattern_figures *f, const struct pattern_result *r) {
    ck_assert_uint_eq(r->counters.exchange_words, RUNS * f->moved_words);
    ck_assert_uint_ge(f->horizon, f->latency_bound);
    ck_assert_uint_ge(f->latency_bound, f->lower_bound);
    ck_assert_uint_ge(r->cycles, f->horizon);
    /* A phase costs 229 to 294 cycles beyond its horizon. */
    ck_assert_uint_le(r->cycles, f->horizon + f->compute_cycles + 400 * (uint64_t)f->phases + 200);
}

/* lower_bound: words of the busiest endpoint; latency_bound adds the way of each word. */
static void print_figures(
    const struct scenario *s, const struct pattern_figures *f, const struct pattern_result *r) {
    printf(
        "patterns: %s tiles=%u phases=%u words=%llu cycles=%llu compute=%llu horizon=%llu "
        "lower_bound=%llu latency_bound=%llu row_bytes=%u\n",
        s->name, TARGET_TILES, f->phases, (unsigned long long)f->moved_words,
        (unsigned long long)r->cycles, (unsigned long long)f->compute_cycles,
        (unsigned long long)f->horizon, (unsigned long long)f->lower_bound,
        (unsigned long long)f->latency_bound, f->max_row_bytes);
    fflush(stdout);
}

static void check_scenario(const struct scenario *s) {
    struct pattern p;
    struct pattern_figures f;
    struct pattern_result one, two;
    uint32_t wrong[RUNS];
    rows_t *input = (rows_t *)arena_alloc(&arena, RUNS * sizeof(rows_t), 8);
    uint8_t *bytes = make_input(s, input);
    compile(s, PATTERN_KEEP_ALL, &p, &f);
    run(s, &f, 1, bytes, &one);
    print_figures(s, &f, &one);
    ck_assert_uint_eq(wrong_rows(s, &one, input, wrong), 0);
    check_counts(&f, &one);
    run(s, &f, 2, bytes, &two);
    ck_assert_mem_eq(one.outputs, two.outputs, RUNS * s->outputs * one.output_bytes);
    ck_assert_uint_eq(one.cycles, two.cycles);
    ck_assert_mem_eq(&one.counters, &two.counters, sizeof one.counters);
    pattern_result_done(&one);
    pattern_result_done(&two);
}

/* The same checks find one delivery that is left out: the verifier of the tile graph at once, and
 * the words that come out when it is not asked. */
static void check_fault(const struct scenario *s) {
    struct pattern p;
    struct pattern_figures f;
    struct pattern_result r;
    uint32_t wrong[RUNS];
    struct err err = {0};
    rows_t *input = (rows_t *)arena_alloc(&arena, RUNS * sizeof(rows_t), 8);
    uint8_t *bytes = make_input(s, input);
    compile(s, DROPPED, &p, &f);
    ck_assert_int_eq(lower_verify(&p.tg, &arena, &err), -ERR_INTERNAL);
    run(s, &f, 2, bytes, &r);
    wrong_rows(s, &r, input, wrong);
    printf(
        "patterns: %s without delivery %u: %u and %u rows wrong\n", s->name, DROPPED, wrong[0],
        wrong[1]);
    fflush(stdout);
    for (uint32_t i = 0; i < RUNS; i++) {
        ck_assert_uint_eq(wrong[i], s->spoiled);
    }
    pattern_result_done(&r);
}

/* ---- Permutation ----------------------------------------------------------------------------- */

static void build_permutation(struct pattern *p) {
    const uint16_t *to = permutation_of_tiles(1, true);
    pattern_level(p);
    for (uint32_t t = 0; t < TARGET_TILES; t++) {
        struct buffer_id b = pattern_buffer(p, to[t]);
        pattern_move(p, pattern_input(p, t), &b, 1);
        pattern_output(p, 0, to[t], b);
    }
}

static void expect_permutation(rows_t *input, rows_t *outputs) {
    const uint16_t *to = permutation_of_tiles(1, true);
    for (uint32_t t = 0; t < TARGET_TILES; t++) {
        ck_assert_uint_ne(to[t], t);
        memcpy(outputs[0][to[t]], (*input)[t], sizeof outputs[0][0]);
    }
}

/* ---- All-reduce ------------------------------------------------------------------------------ */

static void build_all_reduce(struct pattern *p) {
    struct buffer_id *own = ARENA_ARRAY(&arena, struct buffer_id, TARGET_TILES);
    struct buffer_id *received = ARENA_ARRAY(&arena, struct buffer_id, TARGET_TILES);
    for (uint32_t t = 0; t < TARGET_TILES; t++) {
        own[t] = pattern_input(p, t);
    }
    for (uint32_t k = 0; k < STAGES; k++) {
        pattern_level(p);
        for (uint32_t t = 0; t < TARGET_TILES; t++) {
            uint32_t partner = t ^ 1u << k;
            if (partner < TARGET_TILES) {
                received[partner] = pattern_buffer(p, partner);
                pattern_move(p, own[t], &received[partner], 1);
            }
        }
        for (uint32_t t = 0; t < TARGET_TILES; t++) {
            if ((t ^ 1u << k) < TARGET_TILES) {
                own[t] = pattern_add(p, own[t], received[t]);
            }
        }
    }
    for (uint32_t t = 0; t < TARGET_TILES; t++) {
        pattern_output(p, 0, t, own[t]);
    }
}

static void expect_all_reduce(rows_t *input, rows_t *outputs) {
    int(*own)[16] = arena_alloc(&arena, sizeof(int) * TARGET_TILES * 16, 8);
    int(*next)[16] = arena_alloc(&arena, sizeof(int) * TARGET_TILES * 16, 8);
    for (uint32_t t = 0; t < TARGET_TILES; t++) {
        for (uint32_t i = 0; i < 16; i++) {
            own[t][i] = (int)f16_to_f32((*input)[t][i]);
        }
    }
    for (uint32_t k = 0; k < STAGES; k++) {
        for (uint32_t t = 0; t < TARGET_TILES; t++) {
            uint32_t partner = t ^ 1u << k;
            for (uint32_t i = 0; i < 16; i++) {
                next[t][i] = own[t][i] + (partner < TARGET_TILES ? own[partner][i] : 0);
                ck_assert_int_le(abs(next[t][i]), F16_EXACT);
            }
        }
        memcpy(own, next, sizeof(int) * TARGET_TILES * 16);
    }
    for (uint32_t t = 0; t < TARGET_TILES; t++) {
        for (uint32_t i = 0; i < 16; i++) {
            outputs[0][t][i] = f16_from_f32((float)own[t][i]);
        }
    }
}

/* ---- Multicast ------------------------------------------------------------------------------- */

#define MULTICAST_SOURCE 777

static void build_multicast(struct pattern *p) {
    struct buffer_id dests[TARGET_TILES];
    uint32_t count = 0;
    pattern_level(p);
    for (uint32_t t = 0; t < TARGET_TILES; t++) {
        struct buffer_id b = pattern_input(p, t);
        if (t != MULTICAST_SOURCE) {
            b = dests[count++] = pattern_buffer(p, t);
        }
        pattern_output(p, 0, t, b);
    }
    pattern_move(p, pattern_input(p, MULTICAST_SOURCE), dests, count);
}

static void expect_multicast(rows_t *input, rows_t *outputs) {
    for (uint32_t t = 0; t < TARGET_TILES; t++) {
        memcpy(outputs[0][t], (*input)[MULTICAST_SOURCE], sizeof outputs[0][0]);
    }
}

/* ---- Relay ----------------------------------------------------------------------------------- */

/* Chain c of a phase is tiles [8 c, 8 c + 8) of a random order. From the second phase on it starts
 * where chain c of the phase before ended, so that a block goes through 7 tiles a phase. */
static uint16_t *relay_order(uint32_t phase) {
    uint16_t *order = permutation_of_tiles(100 + phase, false);
    if (phase == 0) {
        return order;
    }
    const uint16_t *before = relay_order(phase - 1);
    for (uint32_t c = 0; c < CHAINS; c++) {
        uint16_t head = before[CHAIN * c + CHAIN - 1];
        uint32_t at = 0;
        while (order[at] != head) {
            at++;
        }
        order[at] = order[CHAIN * c];
        order[CHAIN * c] = head;
    }
    return order;
}

static void build_relay(struct pattern *p) {
    struct buffer_id *own = ARENA_ARRAY(&arena, struct buffer_id, TARGET_TILES);
    for (uint32_t t = 0; t < TARGET_TILES; t++) {
        own[t] = pattern_input(p, t);
    }
    for (uint32_t phase = 0; phase < p->graph.output_count; phase++) {
        const uint16_t *order = relay_order(phase);
        pattern_level(p);
        for (uint32_t i = 0; i < TARGET_TILES; i++) {
            if (i % CHAIN != 0) {
                own[order[i]] = pattern_buffer(p, order[i]);
                pattern_move(p, own[order[i - 1]], &own[order[i]], 1);
            }
        }
        for (uint32_t t = 0; t < TARGET_TILES; t++) {
            pattern_output(p, phase, t, own[t]);
        }
    }
}

static void expect_relays(rows_t *input, rows_t *outputs, uint32_t phases) {
    for (uint32_t phase = 0; phase < phases; phase++) {
        const uint16_t *order = relay_order(phase);
        const rows_t *before = phase == 0 ? input : &outputs[phase - 1];
        for (uint32_t i = 0; i < TARGET_TILES; i++) {
            memcpy(outputs[phase][order[i]], (*before)[order[i - i % CHAIN]], sizeof outputs[0][0]);
        }
    }
}

static void expect_relay(rows_t *input, rows_t *outputs) {
    expect_relays(input, outputs, 1);
}

static void expect_long_relay(rows_t *input, rows_t *outputs) {
    expect_relays(input, outputs, RELAY_PHASES);
}

/* What delivery 5 spoils: one receiver's block in the permutation and in the multicast. In the
 * all-reduce it goes from tile 5 to 4 in the first stage and is then missing in all sums that tile
 * 4's enters: those of the even tiles. In the relays it is the sixth hop of the first chain, so the
 * last two tiles of it are wrong, and the last is the head of chain 0 in later phases. */
static const struct scenario scenarios[] = {
    {"permutation", DTYPE_UINT16, 2, 1, build_permutation, expect_permutation, nonzero_half, 1},
    {"all_reduce", DTYPE_FLOAT16, 1, 1, build_all_reduce, expect_all_reduce, small_integer,
     TARGET_TILES / 2},
    {"multicast", DTYPE_UINT16, 2, 1, build_multicast, expect_multicast, nonzero_half, 1},
    {"relay", DTYPE_UINT16, 2, 1, build_relay, expect_relay, nonzero_half, 2},
    {"relay_phases", DTYPE_UINT16, 1, RELAY_PHASES, build_relay, expect_long_relay, nonzero_half,
     2 + (RELAY_PHASES - 1) * CHAIN},
};

START_TEST(test_arrives) {
    check_scenario(&scenarios[_i]);
}
END_TEST

START_TEST(test_missing_delivery_is_seen) {
    check_fault(&scenarios[_i]);
}
END_TEST

/* Within an exchange only what moves before it in the list complete may be sent on. */
START_TEST(test_relay_order) {
    for (int is_reversed = 0; is_reversed < 2; is_reversed++) {
        struct pattern p;
        struct pattern_figures f;
        struct err err = {0};
        pattern_init(&p, &arena, DTYPE_UINT16, 1, 1);
        pattern_level(&p);
        struct buffer_id b[2] = {pattern_buffer(&p, 1), pattern_buffer(&p, 2)};
        for (int i = 0; i < 2; i++) {
            bool is_first = i == is_reversed;
            pattern_move(&p, is_first ? pattern_input(&p, 0) : b[0], &b[is_first ? 0 : 1], 1);
        }
        for (uint32_t t = 0; t < TARGET_TILES; t++) {
            pattern_output(&p, 0, t, t == 1 || t == 2 ? b[t - 1] : pattern_input(&p, t));
        }
        unlink(path);
        ck_assert_int_eq(pattern_compile(&p, path, &f, &err), is_reversed ? -ERR_INTERNAL : 0);
        ck_assert(!is_reversed || strstr(err.text, "before it is complete") != NULL);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("patterns");
    TCase *t = tcase_create("patterns");
    int count = (int)(sizeof scenarios / sizeof *scenarios);
    tcase_set_timeout(t, 300);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, test_arrives, 0, count);
    tcase_add_loop_test(t, test_missing_delivery_is_seen, 0, count);
    tcase_add_test(t, test_relay_order);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
