/* Words of a run -> samples, file and report, on the sample package: two tiles, one of which
 * arrives at the exchange later; and a hand-made program whose critical path is known. */
#include <check.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../support/sample_package.h"
#include "profile/profile.h"

static struct sample s;
static struct digest digest;

static void setup(void) {
    sample_init(&s);
    ck_assert_int_eq(package_verify(&s.p, NULL), 0);
}

static struct profile *
collect(const uint32_t *words, const uint32_t *marks, size_t mark_count, uint64_t run) {
    struct profile *p = NULL;
    struct err err = {0};
    int r = profile_collect(&s.p, &digest, run, words, 6, marks, mark_count, &p, &err);
    ck_assert_msg(r == 0, "%s", err.text);
    return p;
}

/* Tile 3: exchange, compute, idle; tile 9: exchange, compute. The origin is the later start. */
static void check_samples(uint32_t base) {
    uint32_t words[] = {base, base + 1000, 1, base + 10, base + 900, 1};
    uint32_t marks[] = {base + 600, base + 700, base + 640};
    struct profile *p = collect(words, marks, 3, 7);
    static const int64_t expected[][5] = {
        {3, 0, 0, -10, 590},
        {3, 1, 1, 590, 690},
        {3, 2, 2, 690, 990},
        {9, 0, 0, 0, 630},
        {9, 1, 1, 630, 890}};
    ck_assert_uint_eq(p->sample_count, 5);
    ck_assert_int_eq(p->cycles, 990);
    ck_assert_uint_eq(p->run, 7);
    for (uint32_t i = 0; i < 5; i++) {
        const struct profile_sample *x = &p->samples[i];
        ck_assert_int_eq(x->tile.n, expected[i][0]);
        ck_assert_int_eq(x->index, expected[i][1]);
        ck_assert_int_eq(x->step, expected[i][2]);
        ck_assert_int_eq(x->start, expected[i][3]);
        ck_assert_int_eq(x->end, expected[i][4]);
    }
    profile_free(p);
}

START_TEST(samples_adjoin_and_wrap) {
    check_samples(1000000);
    check_samples(0);
    check_samples(UINT32_MAX - 5);
    check_samples(UINT32_MAX - 650);
    check_samples(UINT32_MAX - 950);
    check_samples(0x7ffffff0u);
}
END_TEST

START_TEST(too_few_words_are_refused) {
    uint32_t words[6] = {0}, marks[3] = {0};
    struct profile *p = NULL;
    struct err err = {0};
    ck_assert_int_eq(profile_collect(&s.p, &digest, 0, words, 5, marks, 3, &p, &err), -ERR_INVALID);
    ck_assert_int_eq(profile_collect(&s.p, &digest, 0, words, 6, marks, 2, &p, &err), -ERR_INVALID);
    ck_assert_ptr_null(p);
}
END_TEST

/* A program that samples nothing in between: one sample a tile. */
START_TEST(without_a_plan) {
    uint32_t words[] = {100, 300, 1, 110, 290, 1};
    s.p.step_count = s.p.call_count = s.p.trace_count = 0;
    struct profile *p = collect(words, NULL, 0, 0);
    ck_assert_uint_eq(p->sample_count, 2);
    ck_assert_int_eq(p->cycles, 190);
    json_t *report = profile_report(p);
    ck_assert_ptr_nonnull(report);
    ck_assert_str_eq(json_string_value(json_object_get(report, "level")), "off");
    ck_assert_uint_eq(
        json_array_size(json_object_get(json_object_get(report, "groups"), "tile")), 2);
    json_decref(report);
    profile_free(p);
}
END_TEST

static int64_t number(const json_t *o, const char *a, const char *b) {
    const json_t *x = json_object_get(o, a);
    x = b != NULL ? json_object_get(x, b) : x;
    ck_assert_msg(json_is_integer(x), "%s %s", a, b != NULL ? b : "");
    return json_integer_value(x);
}

static const json_t *row(const json_t *report, const char *by, const char *name) {
    size_t i;
    json_t *x;
    json_array_foreach(json_object_get(json_object_get(report, "groups"), by), i, x) {
        if (strcmp(json_string_value(json_object_get(x, "name")), name) == 0) {
            return x;
        }
    }
    ck_abort_msg("no %s %s", by, name);
    return NULL;
}

/* Tile 3 arrives at -10, tile 9 at 0; the phase's horizon is 240 of the 600 and 630 cycles that
 * follow; then calls predicted at 50 and 20 share 100 and 260 cycles. */
START_TEST(report_adds_up) {
    uint32_t words[] = {0, 1000, 1, 10, 900, 1};
    uint32_t marks[] = {600, 700, 640};
    struct profile *p = collect(words, marks, 3, 0);
    json_t *report = profile_report(p);
    ck_assert_ptr_nonnull(report);
    const json_t *path = json_object_get(report, "path");
    const json_t *cycles = json_object_get(path, "cycles");
    ck_assert_int_eq(number(report, "cycles", NULL), 990);
    ck_assert_int_eq(number(cycles, "exchange", NULL), 240);
    ck_assert_int_eq(number(cycles, "sync", NULL), 390);
    ck_assert_int_eq(number(cycles, "compute", NULL), 360); /* 630 to 990 */
    int64_t sum = 0;
    size_t i;
    json_t *x;
    json_array_foreach(json_object_get(path, "segments"), i, x) {
        sum += number(x, "cycles", NULL);
        ck_assert_int_eq(number(x, "predicted", NULL), i == 0 ? 500 : 70); /* of whole calls */
    }
    ck_assert_int_eq(sum, 990);
    ck_assert_int_eq(number(row(report, "kind", "wait"), "cycles", NULL), 10);
    ck_assert_int_eq(number(row(report, "kind", "exchange"), "cycles", NULL), 200 + 240);
    ck_assert_int_eq(number(row(report, "kind", "sync"), "cycles", NULL), 390 + 390);
    ck_assert_int_eq(number(row(report, "kind", "compute"), "cycles", NULL), 100 + 260);
    ck_assert_int_eq(number(row(report, "kind", "compute"), "span", NULL), 890 - 590);
    ck_assert_int_eq(number(row(report, "kind", "idle"), "cycles", NULL), 300);
    ck_assert_int_eq(number(row(report, "kernel", "k_gemm"), "cycles", NULL), 71 + 185);
    ck_assert_int_eq(number(row(report, "kernel", "k_gemm"), "busiest", NULL), 185);
    ck_assert_int_eq(number(row(report, "kernel", "k_gemm"), "busiest_tile", NULL), 9);
    ck_assert_int_eq(number(row(report, "kernel", "k_add"), "cycles", NULL), 29 + 75);
    ck_assert_int_eq(number(row(report, "operation", "1 Add"), "tiles", NULL), 2);
    ck_assert_int_eq(number(report, "useful", NULL), 2 * (20 + 10));
    ck_assert_int_eq(number(report, "predicted", NULL), 500 + 70);
    ck_assert_double_eq_tol(
        json_real_value(json_object_get(report, "utilisation")), 60 / (2 * 990.0), 1e-9);
    ck_assert_double_eq_tol(
        json_real_value(json_object_get(row(report, "kernel", "k_add"), "prediction_error")),
        40 / 104.0 - 1, 1e-9);
    json_decref(report);
    profile_free(p);
}
END_TEST

/* Tile 3's last interval, all turns of a loop but the last, say: a part of the path of its own. */
START_TEST(loops_are_one_segment) {
    uint32_t words[] = {0, 1000, 1, 10, 900, 1};
    uint32_t marks[] = {600, 700, 640};
    s.steps[2].kind = STEP_REPEAT;
    s.steps[2].predicted = 290;
    s.steps[2].horizon = 3; /* turns; nothing of them follows */
    struct profile *p = collect(words, marks, 3, 0);
    json_t *report = profile_report(p);
    const json_t *cycles = json_object_get(json_object_get(report, "path"), "cycles");
    ck_assert_int_eq(number(cycles, "repeat", NULL), 300);
    ck_assert_int_eq(number(cycles, "compute", NULL), 60);
    ck_assert_int_eq(number(row(report, "kind", "repeat"), "cycles", NULL), 300);
    ck_assert_int_eq(number(report, "predicted", NULL), 500 + 70 + 290);
    json_decref(report);
    profile_free(p);
}
END_TEST

/* Three earlier turns did three times what the last one does. */
START_TEST(earlier_turns_are_useful) {
    static const uint32_t order[] = {0, 2, 1};
    uint32_t words[] = {0, 1000, 1, 10, 900, 1};
    uint32_t marks[] = {600, 700, 640};
    s.steps[2] = (struct package_step){.kind = STEP_REPEAT, .predicted = 210, .horizon = 3};
    s.traces[0].steps = order;
    struct profile *p = collect(words, marks, 3, 0);
    json_t *report = profile_report(p);
    const json_t *cycles = json_object_get(json_object_get(report, "path"), "cycles");
    ck_assert_int_eq(number(row(report, "kind", "repeat"), "useful", NULL), 3 * 30);
    ck_assert_int_eq(number(report, "useful", NULL), 2 * 30 + 3 * 30);
    ck_assert_int_eq(number(cycles, "repeat", NULL), 60);
    ck_assert_int_eq(number(cycles, "compute", NULL), 300);
    json_decref(report);
    profile_free(p);
}
END_TEST

static int64_t query(sqlite3 *db, const char *sql) {
    sqlite3_stmt *stmt = NULL;
    ck_assert_msg(sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) == SQLITE_OK, "%s", sql);
    ck_assert_int_eq(sqlite3_step(stmt), SQLITE_ROW);
    int64_t v = sqlite3_column_int64(stmt, 0);
    sqlite3_finalize(stmt);
    return v;
}

START_TEST(file_holds_all) {
    char path[64];
    snprintf(path, sizeof path, "/tmp/test_profile.%d.ipuprof", (int)getpid());
    unlink(path);
    uint32_t words[] = {0, 1000, 1, 10, 900, 1};
    uint32_t marks[] = {600, 700, 640};
    struct profile *p = collect(words, marks, 3, 0);
    struct err err = {0};
    ck_assert_msg(profile_write(p, path, &err) == 0, "%s", err.text);
    ck_assert_int_eq(profile_write(p, path, &err), -ERR_IO); /* exists */
    sqlite3 *db = NULL;
    ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
    ck_assert_int_eq(query(db, "PRAGMA application_id"), PROFILE_APPLICATION_ID);
    ck_assert_int_eq(query(db, "PRAGMA user_version"), PROFILE_VERSION);
    ck_assert_int_eq(query(db, "SELECT count(*) FROM sample"), 5);
    ck_assert_int_eq(query(db, "SELECT end_cycle FROM sample WHERE tile = 9 AND idx = 1"), 890);
    ck_assert_int_eq(
        query(
            db, "SELECT sum(end_cycle - start_cycle) FROM sample JOIN step ON step.id = step "
                "WHERE kind = 'exchange'"),
        600 + 630);
    ck_assert_int_eq(query(db, "SELECT value FROM meta WHERE key = 'cycles'"), 990);
    ck_assert_int_eq(query(db, "SELECT value FROM meta WHERE key = 'idle_tiles'"), 1470);
    ck_assert_int_eq(query(db, "SELECT useful FROM call WHERE kernel = 'k_add'"), 10);
    sqlite3_close(db);
    unlink(path);
    profile_free(p);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("profile");
    TCase *tc = tcase_create("profile");
    tcase_add_checked_fixture(tc, setup, NULL);
    tcase_add_test(tc, samples_adjoin_and_wrap);
    tcase_add_test(tc, too_few_words_are_refused);
    tcase_add_test(tc, without_a_plan);
    tcase_add_test(tc, report_adds_up);
    tcase_add_test(tc, loops_are_one_segment);
    tcase_add_test(tc, earlier_turns_are_useful);
    tcase_add_test(tc, file_holds_all);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
