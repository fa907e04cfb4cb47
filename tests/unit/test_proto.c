/* The contract: ids, times, targets, routes, JSON texts, problems, job documents. */
#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/proto.h"

START_TEST(ids_sort_by_time) {
    static const uint8_t low[10] = {0};
    static const uint8_t high[10] = {255, 255, 255, 255, 255, 255, 255, 255, 255, 255};
    char a[27], b[27], c[27];
    proto_id_make(1796101999999, high, a);
    proto_id_make(1796102000000, low, b);
    proto_id_make(1796102000000, high, c);
    ck_assert(proto_id_valid(a) && proto_id_valid(b) && proto_id_valid(c));
    ck_assert(strcmp(a, b) < 0 && strcmp(b, c) < 0);
    ck_assert_str_eq(b + 10, "0000000000000000");
    ck_assert_str_eq(c + 10, "ZZZZZZZZZZZZZZZZ");
    ck_assert(!proto_id_valid("8ZZZZZZZZZZZZZZZZZZZZZZZZZ"));
    ck_assert(!proto_id_valid("01M8R0BJ6R9YGSMT190N24CG2"));
    ck_assert(!proto_id_valid("01M8R0BJ6R9YGSMT190N24CG2CC"));
    ck_assert(!proto_id_valid("01M8R0BJ6R9YGSMT190N24CG2U"));
    ck_assert(!proto_id_valid("../../../../../etc/passwd0"));
    int64_t alias;
    ck_assert(proto_alias_parse("42", &alias) && alias == 42);
    ck_assert(!proto_alias_parse("042", &alias) && !proto_alias_parse("", &alias));
    ck_assert(
        !proto_alias_parse("-1", &alias) && !proto_alias_parse("1234567890123456789", &alias));
}
END_TEST

START_TEST(times_and_durations) {
    char text[PROTO_TIME_CHARS + 1];
    proto_time_print(1796102011250, text);
    ck_assert_str_eq(text, "2026-12-01T05:13:31.250Z");
    proto_time_print(UINT64_MAX, text);
    ck_assert_uint_eq(strlen(text), PROTO_TIME_CHARS);
    static const struct {
        const char *text;
        int64_t ms;
    } rows[] = {{"30s", 30000}, {"500ms", 500}, {"5m", 300000}, {"2h", 7200000},
                {"7", 7000},    {"0", 0},       {"", -1},       {"s", -1},
                {"-1s", -1},    {"1d", -1},     {"1.5s", -1},   {"9999999999999s", -1}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint64_t ms = 0;
        struct err err;
        int r = proto_duration_parse(rows[i].text, &ms, &err);
        ck_assert_msg(
            rows[i].ms < 0 ? r == -ERR_INVALID : r == 0 && ms == (uint64_t)rows[i].ms, "'%s'",
            rows[i].text);
    }
}
END_TEST

START_TEST(targets_are_strict) {
    static const struct {
        const char *raw;
        int code;
        const char *last; /* segment */
    } rows[] = {
        {"/v1/jobs", 0, "jobs"},
        {"/v1/jobs/%41b?x=1", 0, "Ab"},
        {"/v1/jobs/a+b", 0, "a+b"},
        {"/", 0, NULL},
        {"", ERR_INVALID, NULL},
        {"*", ERR_INVALID, NULL},
        {"http://x/v1", ERR_INVALID, NULL},
        {"/a%00b", ERR_INVALID, NULL},
        {"/b%2fc", ERR_INVALID, NULL},
        {"/b%5Cc", ERR_INVALID, NULL},
        {"/v1/../x", ERR_INVALID, NULL},
        {"/v1/%2e%2e/x", ERR_INVALID, NULL},
        {"/v1/./x", ERR_INVALID, NULL},
        {"/v1//x", ERR_INVALID, NULL},
        {"/v1/x/", ERR_INVALID, NULL},
        {"/v1/%", ERR_INVALID, NULL},
        {"/v1/%4", ERR_INVALID, NULL},
        {"/v1/%zz", ERR_INVALID, NULL},
        {"/v1/a\tb", ERR_INVALID, NULL},
        {"/v1#f", ERR_INVALID, NULL},
        {"/v1?a=1&a=2", ERR_INVALID, NULL},
        {"/v1?a=%0a", ERR_INVALID, NULL},
        {"/1/2/3/4/5/6/7/8", 0, "8"},
        {"/1/2/3/4/5/6/7/8/9", ERR_NOT_FOUND, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct proto_target t;
        struct err err;
        int r = proto_target_parse(rows[i].raw, strlen(rows[i].raw), &t, &err);
        ck_assert_msg(r == -rows[i].code, "'%s': %d", rows[i].raw, r);
        if (r == 0 && rows[i].last != NULL) {
            ck_assert_str_eq(t.segments[t.segment_count - 1], rows[i].last);
        }
    }
    char longest[PROTO_MAX_TARGET_BYTES + 2];
    memset(longest, 'a', sizeof longest);
    longest[0] = '/';
    struct proto_target t;
    struct err err;
    ck_assert_int_eq(proto_target_parse(longest, PROTO_MAX_TARGET_BYTES, &t, &err), 0);
    ck_assert_int_eq(
        proto_target_parse(longest, PROTO_MAX_TARGET_BYTES + 1, &t, &err), -ERR_INVALID);
}
END_TEST

static int match(const char *method, const char *path, struct proto_match *m, struct err *err) {
    static struct proto_target t;
    ck_assert_int_eq(proto_target_parse(path, strlen(path), &t, err), 0);
    return proto_route_match(method, &t, m, err);
}

START_TEST(queries_are_known) {
    static const struct {
        const char *target, *unknown; /* NULL: all are known */
    } rows[] = {
        {"/v1/jobs?state=queued&limit=1&after=2&user=3", NULL},
        {"/v1/jobs?", NULL},
        {"/v1/jobs?wait=1s", "wait"},
        {"/v1/jobs/7?wait=1s&since=1", NULL},
        {"/v1/jobs/7?wait=1s&Since=1", "Since"},
        {"/v1/queue?x", "x"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct proto_target t;
        struct proto_match m;
        struct err err = {0};
        ck_assert_int_eq(proto_target_parse(rows[i].target, strlen(rows[i].target), &t, &err), 0);
        ck_assert_int_eq(proto_route_match("GET", &t, &m, &err), 0);
        int r = proto_query_check(m.route, &t, &err);
        ck_assert_msg(r == (rows[i].unknown != NULL ? -ERR_INVALID : 0), "%s", rows[i].target);
        if (rows[i].unknown != NULL) {
            ck_assert_str_eq(err.where, rows[i].unknown);
        }
    }
}
END_TEST

START_TEST(routes_match) {
    struct proto_match m;
    struct err err;
    ck_assert_int_eq(match("GET", "/v1/jobs/7/outputs/y", &m, &err), 0);
    ck_assert_int_eq(m.route->id, PROTO_ROUTE_job_output);
    ck_assert_uint_eq(m.param_count, 2);
    ck_assert_str_eq(m.params[0], "7");
    ck_assert_str_eq(m.params[1], "y");
    ck_assert_int_eq(match("HEAD", "/_ping", &m, &err), 0);
    ck_assert_int_eq(match("PATCH", "/v1/jobs", &m, &err), -ERR_METHOD);
    ck_assert_str_eq(err.where, "POST, GET, HEAD");
    ck_assert_int_eq(match("GET", "/v2/jobs", &m, &err), -ERR_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(err.text, "v2"));
    ck_assert_int_eq(match("GET", "/", &m, &err), -ERR_NOT_FOUND);
    for (int i = 0; i < PROTO_ROUTE_COUNT; i++) {
        const struct proto_route *r = proto_route((enum proto_route_id)i);
        char path[128] = "";
        for (const char *p = r->path; *p != '\0'; p++) { /* {x} -> x */
            if (*p != '{' && *p != '}') {
                strncat(path, p, 1);
            }
        }
        ck_assert_int_eq(match(proto_method_name(r->method), path, &m, &err), 0);
        ck_assert_ptr_eq(m.route, r);
    }
}
END_TEST

static char *slurp(const char *path, size_t *ret) {
    FILE *f = fopen(path, "rb");
    ck_assert_msg(f != NULL, "%s", path);
    char *text = calloc(1, 1 << 20);
    *ret = fread(text, 1, (1 << 20) - 1, f);
    fclose(f);
    return text;
}

/* The document for people and the generated one name every route. */
START_TEST(documents_name_every_route) {
    json_t *api = proto_openapi();
    size_t n;
    char *readme = slurp("proto/README.md", &n);
    for (int i = 0; i < PROTO_ROUTE_COUNT; i++) {
        const struct proto_route *r = proto_route((enum proto_route_id)i);
        ck_assert_ptr_nonnull(json_object_get(json_object_get(api, "paths"), r->path));
        const char *last = strrchr(r->path, '/');
        ck_assert_msg(strstr(readme, last[1] == '{' ? r->path : last) != NULL, "%s", r->path);
    }
    free(readme);
    json_decref(api);
}
END_TEST

START_TEST(json_texts_have_places) {
    static const struct {
        const char *text;
        const char *where; /* NULL = fine */
    } rows[] = {
        {"{\"a\": 1}", NULL},
        {"{\"a\": 1,\n \"a\": 2}", "2:4"},
        {"{\n  \"model\": {,}\n}", "2:13"},
        {"{\"a\": 1} x", "1:10"},
        {"", "1:1"},
        {"{\"a\": NaN}", "1:9"},
        {"{\"a\": 9223372036854775808}", "1:25"},
        {"{\"a\": \"\xff\"}", "1:7"},
        {"3", "1:1"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        json_t *j = NULL;
        struct err err;
        int r = proto_json_parse(rows[i].text, strlen(rows[i].text), &j, &err);
        if (rows[i].where == NULL) {
            ck_assert_int_eq(r, 0);
        } else {
            ck_assert_int_eq(r, -ERR_BAD_JSON);
            ck_assert_msg(
                strcmp(err.where, rows[i].where) == 0, "'%s': %s (%s)", rows[i].text, err.where,
                err.text);
        }
        json_decref(j);
    }
    for (int depth = PROTO_MAX_JSON_DEPTH; depth <= PROTO_MAX_JSON_DEPTH + 1; depth++) {
        char text[2 * PROTO_MAX_JSON_DEPTH + 8] = "";
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        json_t *j = NULL;
        int r = proto_json_parse(text, strlen(text), &j, NULL);
        ck_assert_int_eq(r, depth > PROTO_MAX_JSON_DEPTH ? -ERR_BAD_JSON : 0);
        json_decref(j);
    }
}
END_TEST

START_TEST(problems_read_back) {
    for (int code = 1; code < ERR_COUNT; code++) {
        struct err e, back;
        err_at(&e, (enum err_code)code, code % 2 ? "/inputs/a~1b" : "3:7", "text \"of\" %d", code);
        json_t *p = proto_problem_print(&e, "req", "/v1/jobs");
        ck_assert_int_eq(json_integer_value(json_object_get(p, "status")), err_http(code));
        ck_assert_int_eq(json_object_get(p, "errors") != NULL, code % 2);
        proto_problem_parse(p, &back);
        ck_assert_int_eq(back.code, code);
        ck_assert_str_eq(back.where, e.where);
        ck_assert_str_eq(back.text, e.text);
        json_decref(p);
    }
    struct err back;
    proto_problem_parse(NULL, &back);
    ck_assert_int_eq(back.code, ERR_PROTOCOL);
    struct err cut = {.code = ERR_INPUT, .text = "half a character: \xe2\x82"};
    json_t *p = proto_problem_print(&cut, NULL, NULL);
    ck_assert_ptr_nonnull(json_object_get(p, "detail"));
    json_decref(p);
}
END_TEST

#define D64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

START_TEST(job_faults_have_pointers) {
    static const struct {
        const char *text;
        const char *where;
    } rows[] = {
        {"{}", "/model"},
        {"[]", ""},
        {"{'model': {}, 'package': '" D64 "'}", "/package"},
        {"{'model': 3}", "/model"},
        {"{'model': {'blob': 'x'}}", "/model/blob"},
        {"{'model': {'blob': 'sha256:" D64 "', 'x': 1}}", "/model/x"},
        {"{'model': {}, 'tils': 1}", "/tils"},
        {"{'model': {}, 'a/b~c': 1}", "/a~1b~0c"},
        {"{'model': {}, 'options': {'tils': 1}}", "/options/tils"},
        {"{'model': {}, 'options': {'tiles': 0}}", "/options/tiles"},
        {"{'model': {}, 'options': {'tiles': 1473}}", "/options/tiles"},
        {"{'model': {}, 'options': {'tiles': '64'}}", "/options/tiles"},
        {"{'model': {}, 'options': {'seed': -1}}", "/options/seed"},
        {"{'model': {}, 'options': {'accumulate': 'f64'}}", "/options/accumulate"},
        {"{'model': {}, 'options': {'profile': 'all'}}", "/options/profile"},
        {"{'model': {}, 'options': {'profile_run': -1}}", "/options/profile_run"},
        {"{'model': {}, 'options': {'profile_run': 65536}}", "/options/profile_run"},
        {"{'model': {}, 'options': {'check': 1}}", "/options/check"},
        {"{'model': {}, 'options': {'check': true, 'run': false}}", "/options/check"},
        {"{'model': {}, 'options': {'cache': 'maybe'}}", "/options/cache"},
        {"{'model': {}, 'options': 3}", "/options"},
        {"{'model': {}, 'limits': {'run_ms': 0}}", "/limits/run_ms"},
        {"{'model': {}, 'limits': {'timout': 1}}", "/limits/timout"},
        {"{'model': {}, 'files': {'w': 'md5:x'}}", "/files/w"},
        {"{'model': {}, 'files': {'': 'sha256:" D64 "'}}", "/files"},
        {"{'model': {}, 'inputs': {'x': 1}}", "/inputs/x"},
        {"{'model': {}, 'inputs': {'x': {}}}", "/inputs/x/blob"},
        {"{'model': {}, 'inputs': {'x': {'blob': 'sha256:" D64 "', 'format': 'csv'}}}",
         "/inputs/x/format"},
        {"{'model': {}, 'inputs': {'x': {'blob': 'sha256:" D64 "', 'path': '/etc'}}}",
         "/inputs/x/path"},
        {"{'model': {}, 'parameters': {'x': {'blob': 'sha256:" D64 "'}}}", "/parameters"},
        {"{'package': '" D64 "', 'files': {}}", "/files"},
        {"{'model': {}, 'name': ''}", "/name"},
        {"{'model': {}, 'name': 'a\\u0007b'}", "/name"},
        {"{'model': {}, 'labels': {'a': 1}}", "/labels/a"},
        {"{'model': {}, 'hold': 'yes'}", "/hold"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[512];
        snprintf(text, sizeof text, "%s", rows[i].text);
        for (char *c = text; *c != '\0'; c++) {
            *c = *c == '\'' ? '"' : *c;
        }
        json_t *j = NULL;
        struct err err;
        ck_assert_int_eq(proto_json_parse(text, strlen(text), &j, &err), 0);
        struct proto_job job;
        ck_assert_msg(proto_job_parse(j, &job, &err) == -ERR_BAD_JOB, "%s", text);
        ck_assert_msg(strcmp(err.where, rows[i].where) == 0, "%s: '%s'", text, err.where);
        json_decref(j);
    }
}
END_TEST

START_TEST(json_faults_are_told_once) {
    static const struct {
        const char *text, *where, *part, *not_there;
    } rows[] = {
        {"{\"a\":\n {,}}", "2:3", "string or '}' expected", "line"},
        {"{\"a\": \"x\\u0000y\"}", "1:16", "\\u0000", "JSON_ALLOW_NUL"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        json_t *j = NULL;
        struct err err = {0};
        ck_assert_int_eq(
            proto_json_parse(rows[i].text, strlen(rows[i].text), &j, &err), -ERR_BAD_JSON);
        ck_assert_msg(
            rows[i].part == NULL || strstr(err.text, rows[i].part) != NULL, "%s", err.text);
        ck_assert_msg(strstr(err.text, rows[i].not_there) == NULL, "%s", err.text);
        ck_assert_msg(strcmp(err.where, rows[i].where) == 0, "%s", err.where);
    }
}
END_TEST

START_TEST(job_limits_hold) {
    for (size_t n = PROTO_MAX_NAME; n <= PROTO_MAX_NAME + 1; n++) {
        char name[PROTO_MAX_NAME + 2];
        memset(name, 'n', n);
        json_t *j = json_pack("{s:{}, s:s%}", "model", "name", name, n);
        struct proto_job job;
        ck_assert_int_eq(proto_job_parse(j, &job, NULL), n > PROTO_MAX_NAME ? -ERR_BAD_JOB : 0);
        json_decref(j);
    }
    for (int n = PROTO_MAX_FILES; n <= PROTO_MAX_FILES + 1; n++) {
        json_t *files = json_object();
        for (int i = 0; i < n; i++) {
            char key[16];
            snprintf(key, sizeof key, "f%d", i);
            json_object_set_new(files, key, json_string("sha256:" D64));
        }
        json_t *j = json_pack("{s:{}, s:o}", "model", "files", files);
        struct proto_job job;
        ck_assert_int_eq(proto_job_parse(j, &job, NULL), n > PROTO_MAX_FILES ? -ERR_BAD_JOB : 0);
        json_decref(j);
    }
}
END_TEST

static int count_blob(const struct digest *blob, const char *pointer, void *arg) {
    ++*(int *)arg;
    return pointer[0] != '/';
}

/* Every example of a job parses, prints, and means the same afterwards. */
START_TEST(examples_print_again) {
    DIR *d = opendir("proto/examples");
    ck_assert_ptr_nonnull(d);
    int jobs = 0;
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        char path[300];
        snprintf(path, sizeof path, "proto/examples/%s", e->d_name);
        size_t n;
        if (strstr(e->d_name, ".json") == NULL) {
            continue;
        }
        char *text = slurp(path, &n);
        json_t *j = NULL;
        struct err err;
        ck_assert_msg(proto_json_parse(text, n, &j, &err) == 0, "%s: %s", path, err.text);
        if (strncmp(e->d_name, "job-", 4) == 0) {
            struct proto_job job, again;
            ck_assert_msg(proto_job_parse(j, &job, &err) == 0, "%s: %s", path, err.text);
            json_t *once = proto_job_print(&job);
            ck_assert_int_eq(proto_job_parse(once, &again, &err), 0);
            json_t *twice = proto_job_print(&again);
            ck_assert(json_equal(once, twice));
            const char *key;
            json_t *value;
            json_object_foreach(j, key, value) {
                if (strcmp(key, "options") != 0 && strcmp(key, "limits") != 0) {
                    ck_assert_msg(json_equal(value, json_object_get(once, key)), "%s", key);
                }
            }
            int blobs = 0;
            ck_assert_int_eq(proto_job_blobs(&job, count_blob, &blobs), 0);
            ck_assert_int_ge(blobs, 1);
            json_decref(twice);
            json_decref(once);
            jobs++;
        } else if (strncmp(e->d_name, "problem-", 8) == 0) {
            struct err read;
            proto_problem_parse(j, &read);
            json_t *printed = proto_problem_print(
                &read, json_string_value(json_object_get(j, "request_id")),
                json_string_value(json_object_get(j, "instance")));
            ck_assert_msg(json_equal(j, printed), "%s", path);
            json_decref(printed);
        }
        json_decref(j);
        free(text);
    }
    closedir(d);
    ck_assert_int_ge(jobs, 3);
}
END_TEST

START_TEST(states_have_words) {
    for (int s = 0; s < PROTO_STATE_COUNT; s++) {
        enum proto_state back;
        ck_assert(proto_state_parse(proto_state_name((enum proto_state)s), &back));
        ck_assert_int_eq(back, s);
    }
    enum proto_state none;
    ck_assert(!proto_state_parse("done", &none));
    ck_assert(proto_state_ended(PROTO_STATE_CANCELLED) && !proto_state_ended(PROTO_STATE_STORING));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("proto");
    TCase *tc = tcase_create("proto");
    tcase_add_test(tc, ids_sort_by_time);
    tcase_add_test(tc, times_and_durations);
    tcase_add_test(tc, targets_are_strict);
    tcase_add_test(tc, queries_are_known);
    tcase_add_test(tc, routes_match);
    tcase_add_test(tc, documents_name_every_route);
    tcase_add_test(tc, json_texts_have_places);
    tcase_add_test(tc, problems_read_back);
    tcase_add_test(tc, job_faults_have_pointers);
    tcase_add_test(tc, json_faults_are_told_once);
    tcase_add_test(tc, job_limits_hold);
    tcase_add_test(tc, examples_print_again);
    tcase_add_test(tc, states_have_words);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
