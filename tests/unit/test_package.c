/* The package file: what is written is what is read; every damaged file is refused with a
 * reason. */
#include <check.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../support/sample_package.h"
#include "package/package.h"

static char dir[64];
static char path[96];

static void setup(void) {
    strcpy(dir, "/tmp/ipud-test-package-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/p.ipuexe", dir);
}

static void teardown(void) {
    unlink(path);
    rmdir(dir);
}

START_TEST(round_trip) {
    struct sample s;
    sample_init(&s);
    struct err err = {0};
    struct digest written, read;
    ck_assert_msg(package_write(&s.p, path, &written, &err) == 0, "%s: %s", err.where, err.text);
    struct package *p = NULL;
    ck_assert_msg(package_open(path, &written, &p, &read, &err) == 0, "%s", err.text);
    ck_assert(digest_equal(&written, &read));
    ck_assert_int_eq(p->segment_count, TARGET_TILES);
    ck_assert_int_eq(p->slices[1].extent[5], 4);
    ck_assert_int_eq(p->slices[4].page_stride[5], 2);
    ck_assert_uint_eq(p->step_count, 3);
    ck_assert_int_eq(p->steps[2].kind, STEP_IDLE);
    ck_assert_uint_eq(p->steps[0].bytes, 4096);
    ck_assert_uint_eq(p->steps[1].first_call, 0);
    ck_assert_uint_eq(p->steps[1].call_count, 2);
    ck_assert_str_eq(p->calls[1].kernel, "k_add");
    ck_assert_uint_eq(p->traces[0].count, 3);
    ck_assert_uint_eq(p->traces[1].first, 2);
    ck_assert_uint_eq(p->traces[1].steps[1], 1);
    ck_assert_mem_eq(p->contents[0].bytes, sample_code, sizeof sample_code);
    ck_assert_str_eq(p->symbols[0].name, "rt_start");
    ck_assert_str_eq(p->report, "{\"a\":1}");
    package_free(p);
    ck_assert_int_eq(package_write(&s.p, path, &written, &err), -ERR_IO); /* exists */
}
END_TEST

START_TEST(digest_covers_all_but_the_report) {
    struct sample s;
    struct digest first, other;
    sample_init(&s);
    ck_assert_int_eq(package_write(&s.p, path, &first, NULL), 0);
    unlink(path);
    s.p.report = "{\"a\":2}";
    ck_assert_int_eq(package_write(&s.p, path, &other, NULL), 0);
    ck_assert(digest_equal(&first, &other));
    unlink(path);
    s.slices[0].page_offset = 4;
    ck_assert_int_eq(package_write(&s.p, path, &other, NULL), 0);
    ck_assert(!digest_equal(&first, &other));
    unlink(path);
    sample_init(&s);
    s.symbols[0].name = "rt_stars";
    ck_assert_int_eq(package_write(&s.p, path, &other, NULL), 0);
    ck_assert(!digest_equal(&first, &other));
}
END_TEST

/* A program may need a part of a parameter only. */
START_TEST(verify_takes_parts_of_parameters) {
    struct sample s;
    struct err err = {0};
    sample_init(&s);
    /* The input becomes a parameter, behind the output. */
    struct package_binding input = s.bindings[0];
    s.bindings[0] = s.bindings[1];
    s.bindings[1] = input;
    s.bindings[1].role = PACKAGE_PARAMETER;
    for (uint32_t i = 0; i < s.p.slice_count; i++) {
        s.slices[i].binding ^= s.slices[i].binding < 2;
    }
    s.phases[0].call = PACKAGE_INITIALIZE;
    s.phases[1].index = 0;
    ck_assert_msg(package_verify(&s.p, &err) == 0, "%s: %s", err.where, err.text);
    s.bindings[1].shape.dim[0] *= 2;
    ck_assert_msg(package_verify(&s.p, &err) == 0, "%s: %s", err.where, err.text);
    s.bindings[0].shape.dim[0] *= 2; /* of an output not */
    ck_assert_int_eq(package_verify(&s.p, &err), -ERR_PACKAGE_CORRUPT);
}
END_TEST

/* Each row damages the sample in one way and names a part of the message. */
static void damage(struct sample *s, int which) {
    switch (which) {
    case 0: s->p.segment_count--; break;
    case 1: s->segments[5].addr = TARGET_LOAD_BASE + 4; break;
    case 2: s->segments[7].content = 1; break;
    case 3: s->contents[0].size = 6; break;
    case 4: s->slices[1].tensor_offset = 3; break;
    case 5: s->slices[1].page_offset = 4090; break;
    case 6: s->slices[4].page_stride[5] = 0; break;
    case 7: s->slices[4].extent[5] = 3; break;
    case 8: s->slices[0].tile.n = 4; break;
    case 9: s->bindings[1].role = PACKAGE_PARAMETER; break;
    case 10: s->participants[0] = 9; break;
    case 11: s->p.target = "ipu2"; break;
    case 12: s->p.key = "00"; break;
    case 13: s->phases[0].index = 1; break;
    case 14: s->slices[4].phase = 0; break;
    case 15: s->p.compute_tiles = 1473; break;
    case 16: s->slices[4].tensor_stride[5] = 0; break;
    case 17: s->p.trace_count = 1; break;
    case 18: s->traces[1].first = 1; break; /* another tile's mark */
    case 19: s->traces[1].count = 3; break; /* beyond the binding */
    case 20: s->p.step_count = 2; break;
    case 21: s->calls[1].step = 0; break;
    case 22: s->steps[1].call_count = 1; break;
    case 23: s->steps[2].last_level = 0; break;
    case 24: s->traces[0].count = 0; break;
    default: ck_abort();
    }
}

START_TEST(verify_names_the_fault) {
    static const char *const expected[] = {
        "has no image",
        "lowest segment",
        "does not exist",
        "multiples of 4",
        "leaves the tensor",
        "leaves the tile's page",
        "used twice",
        "in no slice",
        "no participant",
        "role does not belong",
        "out of order",
        "expected 'ipu21'",
        "64 hex",
        "out of order",
        "out of order",
        "compute_tiles",
        "written twice",
        "traces for",
        "intervals from word 1",
        "intervals from word 2",
        "step 2 does not exist",
        "not of step 1",
        "of no step",
        "bad kind",
        "0 intervals"};
    struct sample s;
    sample_init(&s);
    damage(&s, _i);
    struct err err = {0};
    ck_assert_int_eq(package_verify(&s.p, &err), -ERR_PACKAGE_CORRUPT);
    ck_assert_msg(strstr(err.text, expected[_i]) != NULL, "%d: %s", _i, err.text);
}
END_TEST

static void edit(const char *sql) {
    sqlite3 *db;
    ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
    ck_assert_int_eq(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

START_TEST(tampered_file_is_refused) {
    static const char *const sql[] = {
        "PRAGMA user_version=1",
        "PRAGMA application_id=1",
        "CREATE TABLE extra (x)",
        "CREATE INDEX i ON symbol(name)",
        "CREATE VIEW v AS SELECT 1",
        "DROP TABLE symbol",
        "DELETE FROM segment WHERE tile=1471",
        "UPDATE slice SET e5=1000000 WHERE id=0",
        "UPDATE slice SET t5=9000000000000000000 WHERE id=0",
        "UPDATE slice SET binding=4000 WHERE id=0",
        "UPDATE content SET bytes=x''",
        "UPDATE binding SET rank=7 WHERE id=0",
        "UPDATE binding SET dtype='float17' WHERE id=0",
        "UPDATE binding SET d0=1099511627776, d1=1099511627776 WHERE id=0",
        "UPDATE meta SET value='2 ' WHERE key='compute_tiles'",
        "DELETE FROM meta WHERE key='options'",
        "UPDATE symbol SET id=5",
        "INSERT INTO report VALUES (2,'x')",
        "UPDATE content SET bytes=x'0000e0190000e018'", /* digest only */
        "UPDATE trace SET steps=x'000000' WHERE rank=0",
        "UPDATE trace SET steps=x'ff000000' WHERE rank=0",
        "UPDATE call SET step=7 WHERE id=1",
        "UPDATE step SET kind=9 WHERE id=1",
        "UPDATE step SET predicted=71 WHERE id=1", /* digest only */
    };
    struct sample s;
    sample_init(&s);
    struct digest digest;
    ck_assert_int_eq(package_write(&s.p, path, &digest, NULL), 0);
    edit(sql[_i]);
    struct package *p = NULL;
    struct err err = {0};
    ck_assert_int_eq(package_open(path, &digest, &p, NULL, &err), -ERR_PACKAGE_CORRUPT);
    ck_assert_ptr_null(p);
    ck_assert_msg(err.text[0] != '\0', "reason");
}
END_TEST

/* Bytes behind the pages, and pages that hold no row, are under no digest: they are refused. */
START_TEST(appended_bytes_are_refused) {
    static const size_t counts[] = {1, 4096, 8192};
    struct sample s;
    struct digest digest;
    struct package *p = NULL;
    struct err err = {0};
    sample_init(&s);
    ck_assert_int_eq(package_write(&s.p, path, &digest, NULL), 0);
    int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    uint8_t *zeros = calloc(1, counts[_i]);
    ck_assert_int_eq(write(fd, zeros, counts[_i]), (ssize_t)counts[_i]);
    free(zeros);
    close(fd);
    ck_assert_int_eq(package_open(path, &digest, &p, NULL, &err), -ERR_PACKAGE_CORRUPT);
    ck_assert_msg(strstr(err.text, "pages of") != NULL, "%s", err.text);
}
END_TEST

START_TEST(free_pages_are_refused) {
    struct sample s;
    struct digest digest;
    struct package *p = NULL;
    struct err err = {0};
    sample_init(&s);
    ck_assert_int_eq(package_write(&s.p, path, &digest, NULL), 0);
    edit("CREATE TABLE extra (x); INSERT INTO extra VALUES (zeroblob(100000)); DROP TABLE extra");
    ck_assert_int_eq(package_open(path, &digest, &p, NULL, &err), -ERR_PACKAGE_CORRUPT);
    ck_assert_msg(strstr(err.text, "freelist_count") != NULL, "%s", err.text);
}
END_TEST

START_TEST(truncated_or_flipped_file_never_passes) {
    struct sample s;
    sample_init(&s);
    struct digest digest;
    ck_assert_int_eq(package_write(&s.p, path, &digest, NULL), 0);
    struct stat st;
    ck_assert_int_eq(stat(path, &st), 0);
    uint8_t *bytes = malloc((size_t)st.st_size);
    int fd = open(path, O_RDONLY);
    ck_assert_int_eq(read(fd, bytes, (size_t)st.st_size), st.st_size);
    close(fd);
    for (int i = 0; i < 150; i++) {
        size_t size = (size_t)st.st_size;
        size_t at = (size_t)i * 7919 % size;
        fd = open(path, O_WRONLY | O_TRUNC);
        if (i % 3 == 0) {
            ck_assert_int_eq(write(fd, bytes, at), (ssize_t)at);
        } else {
            bytes[at] ^= 0x41;
            ck_assert_int_eq(write(fd, bytes, size), (ssize_t)size);
            bytes[at] ^= 0x41;
        }
        close(fd);
        struct package *p = NULL;
        struct digest found;
        /* A flipped byte in free space or the report changes nothing that is digested. */
        if (package_open(path, &digest, &p, &found, NULL) == 0) {
            ck_assert(i % 3 != 0);
            ck_assert(digest_equal(&digest, &found));
        }
        package_free(p);
    }
    free(bytes);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("package");
    TCase *t = tcase_create("package");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, round_trip);
    tcase_add_test(t, digest_covers_all_but_the_report);
    tcase_add_loop_test(t, verify_names_the_fault, 0, 25);
    tcase_add_test(t, verify_takes_parts_of_parameters);
    tcase_add_loop_test(t, tampered_file_is_refused, 0, 24);
    tcase_add_loop_test(t, appended_bytes_are_refused, 0, 3);
    tcase_add_test(t, free_pages_are_refused);
    tcase_add_test(t, truncated_or_flipped_file_never_passes);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
