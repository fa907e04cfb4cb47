/* Limits of the readers of outside bytes that no other suite tests: each at the limit and one past
 * it. tests/README.md has the whole table. */
#include <check.h>
#include <jansson.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../support/sample_package.h"
#include "base/bytes.h"
#include "device/device_internal.h"
#include "graph/graph.h"
#include "proto/proto.h"

#define D64 "0000000000000000000000000000000000000000000000000000000000000000"

/* ---- configuration image ------------------------------------------------------------------ */

START_TEST(configuration_writes) {
    static struct config_write writes[CONFIG_MAX];
    for (uint32_t n = CONFIG_MAX; n <= CONFIG_MAX + 1; n++) {
        uint8_t *bytes = calloc(1, 12 + 8 * (size_t)n);
        uint32_t count = 0;
        struct err err = {0};
        memcpy(bytes, "IPUCFG1", 8);
        store_le32(bytes + 8, n);
        int r = config_parse(bytes, 12 + 8 * (size_t)n, writes, &count, &err);
        ck_assert_int_eq(r, n > CONFIG_MAX ? -ERR_INVALID : 0);
        ck_assert_msg(r == 0 || strstr(err.text, "at most 4096") != NULL, "%s", err.text);
        ck_assert(r < 0 || count == n);
        free(bytes);
    }
}
END_TEST

/* ---- request targets ---------------------------------------------------------------------- */

START_TEST(query_parameters) {
    for (int n = PROTO_MAX_QUERY; n <= PROTO_MAX_QUERY + 1; n++) {
        char text[512] = "/v1?";
        struct proto_target t;
        struct err err = {0};
        for (int i = 0; i < n; i++) {
            sprintf(text + strlen(text), "%sp%d=%d", i > 0 ? "&" : "", i, i);
        }
        int r = proto_target_parse(text, strlen(text), &t, &err);
        ck_assert_int_eq(r, n > PROTO_MAX_QUERY ? -ERR_INVALID : 0);
        ck_assert_msg(r == 0 || strstr(err.text, "more than 16") != NULL, "%s", err.text);
    }
}
END_TEST

/* ---- job documents ------------------------------------------------------------------------ */

/* Parses and drops `document`; past the limit its error names `where`. */
static void job(json_t *document, bool fits, const char *where) {
    struct proto_job parsed;
    struct err err = {0};
    ck_assert_ptr_nonnull(document);
    int r = proto_job_parse(document, &parsed, &err);
    ck_assert_msg(r == (fits ? 0 : -ERR_BAD_JOB), "%s: %d, %s", where, r, err.text);
    ck_assert_msg(fits || strcmp(err.where, where) == 0, "%s: '%s'", where, err.where);
    json_decref(document);
}

/* n members "<letter>0", ... of one value each. */
static json_t *members(char letter, size_t n, json_t *value) {
    json_t *o = json_object();
    for (size_t i = 0; i < n; i++) {
        char key[16];
        snprintf(key, sizeof key, "%c%zu", letter, i);
        json_object_set(o, key, value);
    }
    json_decref(value);
    return o;
}

static char *letters(size_t n) {
    char *text = calloc(1, n + 1);
    memset(text, 'n', n);
    return text;
}

START_TEST(job_documents) {
    for (size_t over = 0; over <= 1; over++) {
        bool fits = over == 0;
        json_t *input = json_pack("{s:s}", "blob", "sha256:" D64);
        job(json_pack(
                "{s:{}, s:o}", "model", "inputs", members('i', PROTO_MAX_INPUTS + over, input)),
            fits, "/inputs");
        job(json_pack(
                "{s:{}, s:o}", "model", "labels",
                members('l', PROTO_MAX_LABELS + over, json_string("x"))),
            fits, "/labels");
        char *name = letters(PROTO_MAX_LABEL_BYTES + over);
        job(json_pack("{s:{}, s:{s:s}}", "model", "files", name, "sha256:" D64), fits, "/files");
        free(name);
        name = letters(PROTO_MAX_NAME + over);
        job(json_pack("{s:{}, s:{s:s}}", "model", "labels", "k", name), fits, "/labels/k");
        free(name);
        job(json_pack(
                "{s:{}, s:{s:I}}", "model", "options", "tiles",
                (json_int_t)(PROTO_MAX_TILES + over)),
            fits, "/options/tiles");
        job(json_pack(
                "{s:{}, s:{s:I}}", "model", "options", "seed",
                (json_int_t)((1ll << 53) + (long long)over)),
            fits, "/options/seed");
        job(json_pack(
                "{s:{}, s:{s:I}}", "model", "limits", "run_ms",
                (json_int_t)(PROTO_MAX_LIMIT_MS + over)),
            fits, "/limits/run_ms");
    }
}
END_TEST

START_TEST(json_nesting) {
    for (int n = PROTO_MAX_JSON_DEPTH; n <= PROTO_MAX_JSON_DEPTH + 1; n++) {
        char text[2 * PROTO_MAX_JSON_DEPTH + 8];
        json_t *document = NULL;
        struct err err = {0};
        memset(text, '[', (size_t)n);
        memset(text + n, ']', (size_t)n);
        int r = proto_json_parse(text, 2 * (size_t)n, &document, &err);
        ck_assert_int_eq(r, n > PROTO_MAX_JSON_DEPTH ? -ERR_BAD_JSON : 0);
        ck_assert_msg(r == 0 || strstr(err.text, "64 levels") != NULL, "%s", err.text);
        json_decref(document);
    }
}
END_TEST

/* ---- models ------------------------------------------------------------------------------- */

static int model(json_t *document, struct err *err) {
    struct arena a;
    struct graph *g = NULL;
    volatile int r = -ERR_NOMEM;
    arena_init(&a, (size_t)1 << 30);
    if (ARENA_RECOVER(&a) == 0) {
        r = graph_load(document, NULL, NULL, &a, &g, err);
    }
    arena_done(&a);
    json_decref(document);
    return r;
}

/* One node a value: an input, initializers that are only declared, and the rest are results. */
START_TEST(model_values) {
    for (size_t over = 0; over <= 1; over++) {
        json_t *inputs = json_array(), *nodes = json_array();
        size_t count = GRAPH_MAX_VALUES - GRAPH_MAX_NODES + over;
        for (size_t i = 0; i < count; i++) {
            char name[16];
            snprintf(name, sizeof name, "i%zu", i);
            json_array_append_new(
                inputs,
                json_pack("{s:s, s:s, s:[i]}", "name", name, "dtype", "float16", "shape", 1));
        }
        for (size_t i = 0; i < GRAPH_MAX_NODES; i++) {
            char from[16], to[16];
            snprintf(from, sizeof from, "i%zu", i % count);
            snprintf(to, sizeof to, "v%zu", i);
            json_array_append_new(
                nodes,
                json_pack("{s:s, s:[s], s:[s]}", "op_type", "Relu", "inputs", from, "outputs", to));
        }
        struct err err = {0};
        json_t *m =
            json_pack("{s:o, s:o, s:[s]}", "inputs", inputs, "nodes", nodes, "outputs", "v0");
        int r = model(m, &err);
        ck_assert_msg(r == (over ? -ERR_TOO_LARGE : 0), "%d: %s", r, err.text);
    }
}
END_TEST

START_TEST(model_arity) {
    for (size_t n = GRAPH_MAX_ARITY; n <= GRAPH_MAX_ARITY + 1; n++) {
        json_t *names = json_array();
        for (size_t i = 0; i < n; i++) {
            json_array_append_new(names, json_string("x"));
        }
        struct err err = {0};
        int r = model(
            json_pack(
                "{s:[{s:s, s:s, s:[i]}], s:[{s:s, s:o, s:[s], s:{s:i}}], s:[s]}", "inputs", "name",
                "x", "dtype", "float16", "shape", 1, "nodes", "op_type", "Concat", "inputs", names,
                "outputs", "y", "attributes", "axis", 0, "outputs", "y"),
            &err);
        ck_assert_msg((r == 0) == (n <= GRAPH_MAX_ARITY), "%zu inputs: %d, %s", n, r, err.text);
        ck_assert_msg(r == 0 || strncmp(err.where, "/nodes/0", 8) == 0, "%s", err.where);
    }
}
END_TEST

/* ---- packages ----------------------------------------------------------------------------- */

/* Rows of a table up to `count`, then what package_open() says. */
static void package_rows(const char *insert, uint32_t count, const char *limit) {
    char dir[] = "/tmp/ipud-test-limits-XXXXXX", path[64], sql[512];
    struct sample s;
    struct digest digest;
    struct package *p = NULL;
    struct err err = {0};
    sqlite3 *db;
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/p", dir);
    sample_init(&s);
    ck_assert_int_eq(package_write(&s.p, path, &digest, NULL), 0);
    ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
    sqlite3_exec(db, "PRAGMA synchronous=OFF; PRAGMA journal_mode=OFF", NULL, NULL, NULL);
    snprintf(sql, sizeof sql, insert, count);
    int r = sqlite3_exec(db, sql, NULL, NULL, NULL);
    ck_assert_msg(r == SQLITE_OK, "%s: %s", sql, sqlite3_errmsg(db));
    sqlite3_close(db);
    r = package_open(path, NULL, &p, NULL, &err);
    package_free(p);
    if (limit != NULL) {
        ck_assert_int_eq(r, -ERR_PACKAGE_CORRUPT);
        ck_assert_msg(strstr(err.text, limit) != NULL, "%s: %s", sql, err.text);
    } else { /* accepted, or refused for what the rows say: their number is no reason */
        ck_assert_msg(r == 0 || strstr(err.text, "rows, at most") == NULL, "%s: %s", sql, err.text);
    }
    unlink(path);
    rmdir(dir);
}

/* Numbers from the table's count of rows up to %u - 1. */
#define SERIES(table)                                                                              \
    "WITH RECURSIVE n(i) AS (SELECT count(*) FROM " table                                          \
    " UNION ALL SELECT i+1 FROM n WHERE i<%u-1) "

static const struct {
    const char *insert;
    uint32_t limit;
    const char *text;
} tables[] = {
    {"INSERT INTO binding " SERIES("binding") "SELECT i,1,i-1,'float16',1,1,1,1,1,1,1 FROM n",
     PACKAGE_MAX_BINDINGS, "4096"},
    {"INSERT INTO phase " SERIES("phase") "SELECT i,1,i,0 FROM n", PACKAGE_MAX_PHASES, "65536"},
    {"INSERT INTO content " SERIES("content") "SELECT i,x'0000e019' FROM n", PACKAGE_MAX_CONTENTS,
     "65536"},
    {"INSERT INTO symbol " SERIES("symbol") "SELECT i,-1,311312,4,'s' FROM n", PACKAGE_MAX_SEGMENTS,
     "262144"},
};

START_TEST(package_tables) {
    package_rows(tables[_i].insert, tables[_i].limit, NULL);
    package_rows(tables[_i].insert, tables[_i].limit + 1, tables[_i].text);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("limits");
    TCase *t = tcase_create("limits");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, configuration_writes);
    tcase_add_test(t, query_parameters);
    tcase_add_test(t, job_documents);
    tcase_add_test(t, json_nesting);
    tcase_add_test(t, model_values);
    tcase_add_test(t, model_arity);
    tcase_add_loop_test(t, package_tables, 0, (int)(sizeof tables / sizeof tables[0]));
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
