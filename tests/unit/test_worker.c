/* ipud-compile as its daemon sees it: a job on fd 3, staging on fd 4, events on fd 5. */
#include <check.h>
#include <fcntl.h>
#include <jansson.h>
#include <libgen.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/digest.h"
#include "base/err.h"
#include "base/tensor.h"
#include "graph/graph.h"
#include "quoted.h"
#include "reference/reference.h"

static char staging[64];
static char program[4096];

static void setup(void) {
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 64);
    ck_assert_int_gt(n, 0);
    program[n] = '\0';
    for (int i = 0; i < 3; i++) { /* <build>/tests/unit/test_worker */
        *strrchr(program, '/') = '\0';
    }
    strcat(program, "/ipud-compile");
    ck_assert_msg(access(program, X_OK) == 0, "%s is not built", program);
    strcpy(staging, "/tmp/ipud-test-worker-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(staging));
    char path[96];
    snprintf(path, sizeof path, "%s/blobs", staging);
    ck_assert_int_eq(mkdir(path, 0755), 0);
}

static void teardown(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", staging);
    ck_assert_int_eq(system(command), 0);
}

static void put_file(const char *name, const void *bytes, size_t n) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", staging, name);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(bytes, 1, n, file), n);
    ck_assert_int_eq(fclose(file), 0);
}

static size_t get_file(const char *name, void *bytes, size_t n) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", staging, name);
    FILE *file = fopen(path, "r");
    ck_assert_msg(file != NULL, "no %s", name);
    size_t got = fread(bytes, 1, n, file);
    fclose(file);
    return got;
}

/* "sha256:<hex>" of a new blob. */
static const char *put_blob(const void *bytes, size_t n) {
    static char text[80];
    char name[80];
    struct digest d;
    digest_of(bytes, n, &d);
    strcpy(text, "sha256:");
    digest_hex(&d, text + 7);
    snprintf(name, sizeof name, "blobs/%s", text + 7);
    put_file(name, bytes, n);
    return text;
}

/* The last event line, owned; NULL when there is none. `text` is the raw job. */
static json_t *run_text(const char *text, size_t n, int *ret_status) {
    char path[96];
    char events_path[96];
    snprintf(path, sizeof path, "%s/job", staging);
    snprintf(events_path, sizeof events_path, "%s/events", staging);
    put_file("job", text, n);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        int job = open(path, O_RDONLY);
        int dir = open(staging, O_RDONLY | O_DIRECTORY);
        int events = open(events_path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        int high[3] = {
            fcntl(job, F_DUPFD, 20), fcntl(dir, F_DUPFD, 20), fcntl(events, F_DUPFD, 20)};
        for (int i = 0; i < 3; i++) {
            dup2(high[i], 3 + i);
        }
        execl(program, "ipud-compile", (char *)NULL);
        _exit(127);
    }
    int status = 0;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFEXITED(status), "signal %d", WTERMSIG(status));
    *ret_status = WEXITSTATUS(status);
    FILE *file = fopen(events_path, "r");
    json_t *last = NULL;
    char *line = NULL;
    size_t cap = 0;
    for (ssize_t got; (got = getline(&line, &cap, file)) > 0;) {
        json_decref(last);
        last = json_loadb(line, (size_t)got, JSON_REJECT_DUPLICATES, NULL);
        ck_assert_ptr_nonnull(last);
        const char *event = json_string_value(json_object_get(last, "event"));
        ck_assert_ptr_nonnull(event);
        ck_assert_int_le(got, strcmp(event, "result") == 0 ? 4 << 20 : 65536);
    }
    free(line);
    fclose(file);
    return last;
}

static json_t *run(json_t *job, int *ret_status) {
    char *text = json_dumps(job, JSON_COMPACT);
    json_t *last = run_text(text, strlen(text), ret_status);
    free(text);
    return last;
}

static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

/* Steals nothing; more is an object text or NULL. */
static json_t *job_of(const char *kind, const char *model, const char *more) {
    json_t *job = quoted_json(more != NULL ? more : "{}");
    json_object_set_new(job, "kind", json_string(kind));
    json_object_set_new(job, "model", quoted_json(model));
    return job;
}

#define MODEL                                                                                      \
    "{'inputs':[{'name':'x','dtype':'float16','shape':[3,4]},"                                     \
    "{'name':'z','dtype':'float16','shape':[2],'generator':{'kind':'uniform','seed':5}}],"         \
    "'initializers':[{'name':'w','dtype':'float16','shape':[4,2],"                                 \
    "'generator':{'kind':'normal','seed':1}},"                                                     \
    "{'name':'b','dtype':'float16','shape':[2],'values':[1,-2]}],"                                 \
    "'nodes':[{'op_type':'Gemm','inputs':['x','w','b'],'outputs':['h']},"                          \
    "{'op_type':'Add','inputs':['h','z'],'outputs':['y']}],'outputs':['y']}"

START_TEST(key_result) {
    int status = 0;
    json_t *job = job_of("key", MODEL, "{'options':{'seed':7}}");
    json_t *last = run(job, &status);
    ck_assert_int_eq(status, 0);
    ck_assert_str_eq(text_of(last, "event"), "result");
    struct digest d;
    ck_assert(digest_parse(text_of(last, "key"), &d));
    ck_assert(digest_parse(text_of(last, "compiler"), &d));
    json_t *want =
        quoted_json("[{'name':'x','ordinal':0,'dtype':'float16','shape':[3,4],'source':null},"
                    "{'name':'z','ordinal':1,'dtype':'float16','shape':[2],"
                    "'source':{'staged':'inputs.bin','offset':0,'bytes':4}}]");
    ck_assert(json_equal(json_object_get(last, "inputs"), want));
    json_decref(want);
    want = quoted_json("[{'name':'w','ordinal':0,'dtype':'float16','shape':[4,2],"
                       "'source':{'staged':'params.bin','offset':0,'bytes':16}},"
                       "{'name':'b','ordinal':1,'dtype':'float16','shape':[2],"
                       "'source':{'staged':'params.bin','offset':64,'bytes':4}}]");
    ck_assert(json_equal(json_object_get(last, "parameters"), want));
    json_decref(want);
    want = quoted_json("[{'name':'y','ordinal':0,'dtype':'float16','shape':[3,2]}]");
    ck_assert(json_equal(json_object_get(last, "outputs"), want));
    json_decref(want);
    uint8_t bytes[100];
    ck_assert_uint_eq(get_file("params.bin", bytes, sizeof bytes), 68);
    struct value_source s = {.generator = GENERATOR_NORMAL, .seed = 1, .scale = 1};
    for (uint64_t i = 0; i < 8; i++) {
        uint8_t stored[2];
        tensor_put(DTYPE_FLOAT16, stored, 0, graph_generate(&s, 7, i));
        ck_assert_mem_eq(bytes + 2 * i, stored, 2);
    }
    ck_assert(tensor_get(DTYPE_FLOAT16, bytes + 64, 1) == -2);
    ck_assert_uint_eq(get_file("inputs.bin", bytes, sizeof bytes), 4);
    json_decref(last);
    json_decref(job);
}
END_TEST

static void key_of(const char *model, const char *more, char ret[65]) {
    int status = 0;
    char path[96];
    json_t *job = job_of("key", model, more);
    json_t *last = run(job, &status);
    ck_assert_msg(status == 0, "%s", text_of(last, "detail"));
    snprintf(ret, 65, "%s", text_of(last, "key"));
    json_decref(job);
    json_decref(last);
    snprintf(path, sizeof path, "%s/params.bin", staging);
    unlink(path);
    snprintf(path, sizeof path, "%s/inputs.bin", staging);
    unlink(path);
}

START_TEST(key_depends_on_what_changes_code) {
    char base[65];
    char other[65];
    key_of(MODEL, NULL, base);
    key_of(MODEL, "{'options':{'tiles':64,'accumulate':'f32','seed':9}}", other);
    ck_assert_str_eq(base, other);
    key_of(MODEL, "{'options':{'tiles':63}}", other);
    ck_assert_str_ne(base, other);
    key_of(MODEL, "{'options':{'accumulate':'f16'}}", other);
    ck_assert_str_ne(base, other);
    key_of(MODEL, "{'options':{'profile':'kernel'}}", other);
    ck_assert_str_ne(base, other);
    key_of(MODEL, "{'options':{'profile':'phase'}}", other);
    ck_assert_str_eq(base, other);
    char *changed = strdup(MODEL);
    *strstr(changed, "[1,-2]") = ' '; /* another value of an ordinary initialiser */
    memcpy(strstr(changed, " 1,-2]"), "[3,-2]", 6);
    key_of(changed, NULL, other);
    ck_assert_str_eq(base, other);
    free(changed);
}
END_TEST

static const struct {
    const char *job; /* whole document, ' for " */
    int code;
    const char *where;
} bad_jobs[] = {
    {"", ERR_BAD_JSON, NULL},
    {"[]", ERR_BAD_JOB, ""},
    {"{}", ERR_BAD_JOB, "/kind"},
    {"{'kind':'run','model':{}}", ERR_BAD_JOB, "/kind"},
    {"{'kind':'key'}", ERR_BAD_JOB, "/model"},
    {"{'kind':'key','model':{},'x~/y':1}", ERR_BAD_JOB, "/x~0~1y"},
    {"{'kind':'key','model':{},'options':{'tiles':0}}", ERR_BAD_JOB, "/options/tiles"},
    {"{'kind':'key','model':{},'options':{'tiles':1473}}", ERR_BAD_JOB, "/options/tiles"},
    {"{'kind':'key','model':{},'options':{'accumulate':'f64'}}", ERR_BAD_JOB,
     "/options/accumulate"},
    {"{'kind':'key','model':{},'options':{'profile':'all'}}", ERR_BAD_JOB, "/options/profile"},
    {"{'kind':'key','model':{},'options':{'profile':1}}", ERR_BAD_JOB, "/options/profile"},
    {"{'kind':'key','model':{},'options':{'seed':-1}}", ERR_BAD_JOB, "/options/seed"},
    {"{'kind':'key','model':{},'options':[]}", ERR_BAD_JOB, "/options"},
    {"{'kind':'key','model':{},'limits':{'memory_bytes':1}}", ERR_BAD_JOB, "/limits/memory_bytes"},
    {"{'kind':'key','model':{},'files':{'a':'b'}}", ERR_BAD_JOB, "/files/a"},
    {"{'kind':'key','model':{},'files':{'a':7}}", ERR_BAD_JOB, "/files/a"},
    {"{'kind':'key','model':{}}", ERR_BAD_GRAPH, "/model/outputs"},
    {"{'kind':'key','model':{'nodes':[{'op_type':'Convolve'}]}}", ERR_UNSUPPORTED_OP,
     "/model/nodes/0/op_type"},
    {"{'kind':'key','model':{'initializers':[{'name':'w','dtype':'float16','shape':[1],"
     "'file':'w.st'}]}}",
     ERR_MISSING, "/model/initializers/0/file"},
    {"{'kind':'key','files':{'w.st':'sha256:"
     "0000000000000000000000000000000000000000000000000000000000000000'},"
     "'model':{'initializers':[{'name':'w','dtype':'float16','shape':[1],"
     "'file':'w.st'}]}}",
     ERR_MISSING, "/model/initializers/0/file"},
    {"{'kind':'compile','model':{'inputs':[{'name':'x','dtype':'int32','shape':[3,4]}],'nodes':["
     "{'op_type':'Add','inputs':['x','x'],'outputs':['y']}],'outputs':['y']}}",
     ERR_DTYPE, "/model/nodes/0"},
    {"{'kind':'reference','model':{}}", ERR_BAD_JOB, "/check"},
    {"{'kind':'verify'}", ERR_BAD_JOB, "/package"},
    {"{'kind':'verify','package':'../x'}", ERR_BAD_JOB, "/package"},
    {"{'kind':'verify','package':'.hidden'}", ERR_BAD_JOB, "/package"},
    {"{'kind':'verify','package':'job'}", ERR_PACKAGE_CORRUPT, NULL}};

START_TEST(bad_job_says_where) {
    int status = 0;
    char text[1024];
    snprintf(text, sizeof text, "%s", bad_jobs[_i].job);
    quoted(text);
    json_t *last = run_text(text, strlen(text), &status);
    ck_assert_str_eq(text_of(last, "event"), "error");
    ck_assert_str_eq(text_of(last, "code"), err_name(bad_jobs[_i].code));
    ck_assert_int_eq(status, err_exit(bad_jobs[_i].code));
    if (bad_jobs[_i].where != NULL) {
        ck_assert_str_eq(text_of(last, "where"), bad_jobs[_i].where);
    }
    ck_assert_uint_gt(strlen(text_of(last, "detail")), 5);
    json_decref(last);
}
END_TEST

START_TEST(cut_jobs_are_refused) {
    json_t *job = job_of("key", MODEL, NULL);
    char *text = json_dumps(job, JSON_COMPACT);
    for (size_t n = 0; n < strlen(text); n += 23) {
        int status = 0;
        json_t *last = run_text(text, n, &status);
        ck_assert_int_eq(status, err_exit(ERR_BAD_JSON));
        ck_assert_str_eq(text_of(last, "code"), "bad_json");
        json_decref(last);
    }
    free(text);
    json_decref(job);
}
END_TEST

START_TEST(memory_limit_is_an_error) {
    static const char head[] = "{'inputs':[{'name':'x','dtype':'float16','shape':[1]}],"
                               "'nodes':[{'op_type':'Relu','inputs':['x'],'outputs':['v0']}";
    char *model = malloc(1 << 20);
    size_t used = (size_t)sprintf(model, "%s", head);
    for (int i = 0; i < 2000; i++) {
        used += (size_t)sprintf(
            model + used, ",{'op_type':'Relu','inputs':['v%d'],'outputs':['v%d']}", i, i + 1);
    }
    sprintf(model + used, "],'outputs':['v2000']}");
    for (int enough = 0; enough <= 1; enough++) {
        int status = 0;
        json_t *job = job_of(
            "key", model,
            enough ? "{'limits':{'memory_bytes':104857600}}"
                   : "{'limits':{'memory_bytes':1048576}}");
        json_t *last = run(job, &status);
        ck_assert_int_eq(status, enough ? 0 : err_exit(ERR_COMPILE_OOM));
        ck_assert(enough || strcmp(text_of(last, "code"), "compile_oom") == 0);
        json_decref(last);
        json_decref(job);
    }
    free(model);
}
END_TEST

/* `count` inputs, nodes and outputs with names of about `pad` bytes. */
static char *wide_model(int count, int pad) {
    char *model = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&model, &size);
    fprintf(out, "{'inputs':[");
    for (int i = 0; i < count; i++) {
        fprintf(out, "%s{'name':'i%0*d','dtype':'float16','shape':[1]}", i > 0 ? "," : "", pad, i);
    }
    fprintf(out, "],'nodes':[");
    for (int i = 0; i < count; i++) {
        fprintf(
            out, "%s{'op_type':'Relu','inputs':['i%0*d'],'outputs':['o%d']}", i > 0 ? "," : "", pad,
            i, i);
    }
    fprintf(out, "],'outputs':[");
    for (int i = 0; i < count; i++) {
        fprintf(out, "%s'o%d'", i > 0 ? "," : "", i);
    }
    fprintf(out, "]}");
    fclose(out);
    return model;
}

START_TEST(long_results) {
    static const struct {
        int count, pad, code;
    } rows[] = {{1000, 1, 0}, {15000, 250, ERR_TOO_LARGE}};
    for (int i = 0; i < 2; i++) {
        int status = 0;
        char *model = wide_model(rows[i].count, rows[i].pad);
        json_t *job = job_of("key", model, NULL);
        json_t *last = run(job, &status);
        ck_assert_int_eq(status, rows[i].code != 0 ? err_exit(rows[i].code) : 0);
        if (rows[i].code == 0) {
            ck_assert_uint_eq(json_array_size(json_object_get(last, "inputs")), 1000);
        } else {
            ck_assert_str_eq(text_of(last, "code"), err_name(rows[i].code));
        }
        json_decref(last);
        json_decref(job);
        free(model);
    }
}
END_TEST

START_TEST(nobody_listens) {
    int events[2];
    int status = 0;
    ck_assert_int_eq(pipe(events), 0);
    close(events[0]);
    char path[96];
    snprintf(path, sizeof path, "%s/job", staging);
    put_file("job", "{}", 2);
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGPIPE, SIG_DFL);
        int high[3] = {
            fcntl(open(path, O_RDONLY), F_DUPFD, 20),
            fcntl(open(staging, O_RDONLY | O_DIRECTORY), F_DUPFD, 20),
            fcntl(events[1], F_DUPFD, 20)};
        for (int i = 0; i < 3; i++) {
            dup2(high[i], 3 + i);
        }
        execl(program, "ipud-compile", (char *)NULL);
        _exit(127);
    }
    close(events[1]);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), err_exit(ERR_BAD_JOB));
}
END_TEST

/* ---- reference --------------------------------------------------------------------------- */

#define FILE_MODEL                                                                                 \
    "{'inputs':[{'name':'x','dtype':'float16','shape':[1,2]}],"                                    \
    "'initializers':[{'name':'w','dtype':'float16','shape':[2,3],'file':'w.st'}],"                 \
    "'nodes':[{'op_type':'MatMul','inputs':['x','w'],'outputs':['y']}],'outputs':['y']}"

/* Two runs: x = (1, 2) and (3, -1); w = 1 2 3 / 4 5 6. */
static json_t *reference_job(const double *outputs, const char *damage) {
    static const char header[] =
        "{\"w\":{\"dtype\":\"F16\",\"shape\":[2,3],\"data_offsets\":[0,12]}}";
    uint8_t weights[256] = {0};
    uint8_t x[10] = {0};
    uint8_t y[16] = {0};
    static const double xs[] = {1, 2, 3, -1};
    size_t n = strlen(header);
    store_le64(weights, n);
    memcpy(weights + 8, header, n);
    for (uint64_t i = 0; i < 6; i++) {
        tensor_put(DTYPE_FLOAT16, weights + 8 + n, i, (double)(i + 1));
        tensor_put(DTYPE_FLOAT16, y + 4, i, outputs[i]);
    }
    for (uint64_t i = 0; i < 4; i++) {
        tensor_put(DTYPE_FLOAT16, x + 2, i, xs[i]);
    }
    json_t *job = job_of("reference", FILE_MODEL, "{'files':{}}");
    json_object_set_new(
        json_object_get(job, "files"), "w.st", json_string(put_blob(weights, 8 + n + 12)));
    put_file("out.0", y, sizeof y);
    json_t *check = json_pack(
        "{s:i, s:{s:{s:s, s:i, s:i}}, s:{s:{s:s, s:i, s:i}}}", "runs", 2, "inputs", "x", "blob",
        put_blob(x, sizeof x), "offset", 2, "bytes", 8, "outputs", "y", "file", "out.0", "offset",
        4, "bytes", 12);
    if (damage != NULL) {
        json_t *change = quoted_json(damage);
        const char *key;
        json_t *value;
        json_object_foreach(change, key, value) {
            json_object_set(json_object_get(json_object_get(check, "outputs"), "y"), key, value);
        }
        json_decref(change);
    }
    json_object_set_new(job, "check", check);
    return job;
}

START_TEST(reference_compares_runs) {
    double outputs[] = {9, 12, 15, -1, 1, 3}; /* exact */
    int status = 0;
    for (int wrong = 0; wrong <= 1; wrong++) {
        outputs[4] = wrong ? 1.5 : 1;
        json_t *job = reference_job(outputs, NULL);
        json_t *last = run(job, &status);
        ck_assert_msg(status == 0, "%s: %s", text_of(last, "where"), text_of(last, "detail"));
        ck_assert_int_eq(json_is_true(json_object_get(last, "pass")), !wrong);
        const json_t *y = json_array_get(json_object_get(last, "outputs"), 0);
        ck_assert_str_eq(text_of(y, "name"), "y");
        ck_assert(json_number_value(json_object_get(y, "max_abs_error")) == (wrong ? 0.5 : 0));
        if (wrong) {
            ck_assert_int_eq(json_integer_value(json_object_get(y, "worst_index")), 4);
            ck_assert(json_number_value(json_object_get(y, "got")) == 1.5);
            ck_assert(json_number_value(json_object_get(y, "expected")) == 1);
        }
        json_decref(last);
        json_decref(job);
    }
}
END_TEST

static const struct {
    const char *damage;
    int code;
} bad_checks[] = {{"{'bytes':11}", ERR_INPUT},          {"{'bytes':24}", ERR_INPUT},
                  {"{'offset':5}", ERR_INPUT},          {"{'offset':-1}", ERR_BAD_JOB},
                  {"{'file':'no'}", ERR_MISSING},       {"{'file':'../job'}", ERR_BAD_JOB},
                  {"{'blob':'sha256:00'}", ERR_BAD_JOB}};

START_TEST(reference_refuses) {
    static const double outputs[6];
    int status = 0;
    json_t *job = reference_job(outputs, bad_checks[_i].damage);
    json_t *last = run(job, &status);
    ck_assert_str_eq(text_of(last, "code"), err_name(bad_checks[_i].code));
    ck_assert_int_eq(status, err_exit(bad_checks[_i].code));
    ck_assert_str_eq(text_of(last, "where"), "/check/outputs/y");
    json_decref(last);
    json_decref(job);
}
END_TEST

/* ---- compile and verify ------------------------------------------------------------------ */

START_TEST(compile_then_verify) {
    static const char model[] =
        "{'inputs':[{'name':'x','dtype':'float16','shape':[4,20]}],'initializers':["
        "{'name':'w','dtype':'float16','shape':[20,12],'generator':{'kind':'normal','seed':1}}],"
        "'nodes':[{'op_type':'MatMul','inputs':['x','w'],'outputs':['y']}],'outputs':['y']}";
    int status = 0;
    json_t *job = job_of("compile", model, "{'options':{'tiles':4}}");
    json_t *made = run(job, &status);
    ck_assert_msg(status == 0, "%s: %s", text_of(made, "where"), text_of(made, "detail"));
    ck_assert_str_eq(text_of(made, "package"), "package.ipuexe");
    ck_assert_uint_gt(json_array_size(json_object_get(made, "passes")), 5);
    json_t *verify = quoted_json("{'kind':'verify','package':'package.ipuexe'}");
    json_t *seen = run(verify, &status);
    ck_assert_msg(status == 0, "%s: %s", text_of(seen, "where"), text_of(seen, "detail"));
    ck_assert_str_eq(text_of(seen, "digest"), text_of(made, "digest"));
    ck_assert_str_eq(text_of(seen, "key"), text_of(made, "key"));
    const json_t *x = json_array_get(json_object_get(seen, "inputs"), 0);
    json_t *shape = quoted_json("[4,20]");
    ck_assert(json_equal(json_object_get(x, "shape"), shape));
    json_decref(shape);
    json_decref(seen);
    json_decref(verify);
    json_decref(made);
    json_decref(job);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("worker");
    TCase *t = tcase_create("worker");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, key_result);
    tcase_add_test(t, key_depends_on_what_changes_code);
    tcase_add_loop_test(t, bad_job_says_where, 0, (int)(sizeof bad_jobs / sizeof bad_jobs[0]));
    tcase_add_test(t, cut_jobs_are_refused);
    tcase_add_test(t, memory_limit_is_an_error);
    tcase_add_test(t, long_results);
    tcase_add_test(t, nobody_listens);
    tcase_add_test(t, reference_compares_runs);
    tcase_add_loop_test(t, reference_refuses, 0, (int)(sizeof bad_checks / sizeof bad_checks[0]));
    tcase_add_test(t, compile_then_verify);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
