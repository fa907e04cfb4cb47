/* What a package's identity depends on, and what it does not: stored schedules, environment, names,
 * order of members and weights change nothing; every input of the key changes the key. */
#include <check.h>
#include <jansson.h>
#include <locale.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "compile/compile.h"
#include "compile/key.h"
#include "dense_net.h"

#define FIXED_ID "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static char directory[64];
static struct arena arena;

static void setup(void) {
    strcpy(directory, "/tmp/test_identity.XXXXXX");
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
    return arena_printf(&arena, "%s/%s", directory, name);
}

/* ---- Packages -------------------------------------------------------------------------------- */

/* known, staged: files of schedules, or NULL. */
static struct compile_result
compile(const struct graph *g, uint32_t tiles, const char *known, const char *staged) {
    const char *package = path_of("package");
    unlink(package);
    struct compile_job job = {
        .graph = g,
        .options = {.tiles = tiles},
        .key = FIXED_ID,
        .compiler_id = FIXED_ID,
        .package_path = package,
        .schedules_path = known,
        .staged_schedules_path = staged};
    struct compile_result ret;
    struct err err = {0};
    int rc = compile_run(&job, &ret, &err);
    ck_assert_msg(rc == 0, "%s %s", err.where, err.text);
    ck_assert_uint_eq(
        ret.exchange_phases, ret.phases_scheduled + ret.phases_replayed + ret.phases_refused);
    return ret;
}

static void run_sql(const char *path, const char *sql) {
    sqlite3 *db = NULL;
    ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
    ck_assert_msg(sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK, "%s", sqlite3_errmsg(db));
    ck_assert_int_eq(sqlite3_close(db), SQLITE_OK);
}

static void same_digest(const struct compile_result *a, const struct compile_result *b) {
    ck_assert(digest_equal(&a->digest, &b->digest));
    ck_assert_uint_eq(a->estimated_cycles, b->estimated_cycles);
    ck_assert_uint_eq(a->phases_refused, b->phases_refused);
}

static const struct graph *net_of(int which, uint32_t *ret_tiles) {
    static const int64_t widths[] = {256, 192, 100, 10};
    static const int64_t wide[] = {512, 300, 64};
    *ret_tiles = (const uint32_t[]){16, 32, 24}[which];
    return which == 0   ? net_mlp(&arena, 20, widths, 4)
           : which == 1 ? net_mlp(&arena, 33, wide, 3)
                        : net_residual(&arena, 12, 64, 256);
}

START_TEST(stored_schedules_change_no_package) {
    struct compile_result bare[3];
    uint32_t replayed = 0;
    for (int i = 0; i < 3; i++) { /* no store; an empty one; its own; that of all before */
        uint32_t tiles;
        const struct graph *g = net_of(i, &tiles);
        const char *own = arena_printf(&arena, "%s/own%d", directory, i);
        bare[i] = compile(g, tiles, NULL, NULL);
        struct compile_result empty = compile(g, tiles, path_of("none"), own);
        same_digest(&bare[i], &empty);
        ck_assert_uint_eq(empty.phases_replayed, 0);
        struct compile_result warm = compile(g, tiles, own, path_of("nothing_new"));
        same_digest(&bare[i], &warm);
        ck_assert_uint_eq(warm.phases_scheduled, 0);
        ck_assert_uint_eq(warm.phases_replayed, empty.phases_scheduled);
        ck_assert_int_ne(access(path_of("nothing_new"), F_OK), 0);
        replayed += warm.phases_replayed;
    }
    ck_assert_uint_gt(replayed, 0);
    for (int i = 0; i < 3; i++) { /* filled by others, with and without its own */
        uint32_t tiles;
        const struct graph *g = net_of(i, &tiles);
        const char *foreign = arena_printf(&arena, "%s/own%d", directory, (i + 1) % 3);
        struct compile_result other = compile(g, tiles, foreign, NULL);
        same_digest(&bare[i], &other);
        run_sql(
            foreign,
            arena_printf(
                &arena,
                "ATTACH '%s/own%d' AS o; INSERT OR IGNORE INTO schedule SELECT * FROM o.schedule",
                directory, i));
        struct compile_result both = compile(g, tiles, foreign, NULL);
        same_digest(&bare[i], &both);
        ck_assert_uint_eq(both.phases_scheduled, 0);
    }
}
END_TEST

/* Each changes the store of a warm compile; those marked leave nothing to replay. */
START_TEST(damaged_stores_change_no_package) {
    static const struct {
        const char *sql;
        off_t length; /* -1: not cut */
        bool is_empty;
    } rows[] = {
        {"UPDATE schedule SET value = zeroblob(length(value))", -1, true},
        {"UPDATE schedule SET value = (SELECT value FROM schedule ORDER BY key LIMIT 1)", -1,
         false},
        {"UPDATE schedule SET value = NULL WHERE 0; DELETE FROM schedule", -1, true},
        {"SELECT 1", 0, true},
        {"SELECT 1", 100, true},
        {"SELECT 1", 5000, false},
        {"DROP TABLE schedule", -1, true},
    };
    uint32_t tiles;
    const struct graph *g = net_of(0, &tiles);
    struct compile_result bare = compile(g, tiles, NULL, NULL);
    ck_assert_uint_gt(bare.phases_scheduled, 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *store = arena_printf(&arena, "%s/damaged%zu", directory, i);
        compile(g, tiles, NULL, store);
        run_sql(store, rows[i].sql);
        if (rows[i].length >= 0) {
            ck_assert_int_eq(truncate(store, rows[i].length), 0);
        }
        struct compile_result r = compile(g, tiles, store, NULL);
        same_digest(&bare, &r);
        ck_assert(!rows[i].is_empty || r.phases_replayed == 0);
    }
}
END_TEST

/* Digest and file of a compile in a process whose environment is `which`. */
static void compile_apart(int which, struct digest ret[2]) {
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    fflush(NULL);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        umask(which == 1 ? 077 : 022);
        setenv("LC_ALL", which == 2 ? "C.UTF-8" : which == 3 ? "de_DE.UTF-8" : "C", 1);
        setlocale(LC_ALL, "");
        setenv("TZ", which == 4 ? "Pacific/Kiritimati" : "UTC", 1);
        tzset();
        if (which == 5) {
            setenv("HOME", "/nonexistent", 1);
            setenv("TMPDIR", "/nonexistent", 1);
            ck_assert_int_eq(chdir("/"), 0);
        }
        uint32_t tiles;
        const struct graph *g = net_of(2, &tiles);
        struct compile_result r = compile(g, tiles, NULL, NULL);
        struct digest made[2] = {r.digest};
        FILE *file = fopen(path_of("package"), "rb");
        _Static_assert(sizeof made == 2 * DIGEST_BYTES, "written as it lies");
        bool good = file != NULL && digest_of_fd(fileno(file), &made[1], NULL, NULL) == 0 &&
                    write(ends[1], made, sizeof made) == (ssize_t)sizeof made;
        _exit(good ? 0 : 1);
    }
    close(ends[1]);
    ck_assert_int_eq(read(ends[0], ret, 2 * sizeof *ret), (ssize_t)(2 * sizeof *ret));
    close(ends[0]);
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
}

START_TEST(environment_changes_no_package) {
    struct digest plain[2], other[2];
    compile_apart(0, plain);
    for (int which = 1; which <= 5; which++) {
        compile_apart(which, other);
        ck_assert_msg(digest_equal(&plain[0], &other[0]), "environment %d", which);
        ck_assert_msg(digest_equal(&plain[1], &other[1]), "file in environment %d", which);
    }
}
END_TEST

/* ---- Keys ------------------------------------------------------------------------------------ */

static int no_files(void *arg, const char *label, struct err *err) {
    return err_set(err, ERR_MISSING, "no file '%s'", label);
}

static struct graph *load(const json_t *model) {
    struct graph *loaded = NULL, *g = NULL;
    const char *const *warnings;
    uint32_t warning_count;
    struct err err = {0};
    int rc = graph_load(model, no_files, NULL, &arena, &loaded, &err);
    rc = rc == 0 ? graph_canonical(loaded, &arena, &g, &warnings, &warning_count, &err) : rc;
    ck_assert_msg(rc == 0, "%s %s", err.where, err.text);
    return g;
}

static struct digest key_of(const json_t *model, const struct key_inputs *inputs) {
    struct digest key;
    ck_assert_int_eq(key_hash(load(model), inputs, &key, NULL), 0);
    return key;
}

static const struct key_inputs fixed = {
    KEY_VERSION, "{\"accumulate\":\"f32\",\"profile\":\"off\",\"repeat\":\"auto\",\"tiles\":64}",
    KEY_TARGET, FIXED_ID};

static const char model_text[] =
    "{'inputs':[{'name':'x','dtype':'float16','shape':[8,64]}],"
    "'initializers':["
    "{'name':'w','dtype':'float16','shape':[64,64],"
    "'generator':{'kind':'uniform','seed':1,'scale':0.1}},"
    "{'name':'b','dtype':'float16','shape':[64],'values':VALUES},"
    "{'name':'s','dtype':'float16','shape':[],'values':[2]}],"
    "'nodes':["
    "{'name':'n0','op_type':'Gemm','inputs':['x','w','b'],'outputs':['h'],"
    "'attributes':{'transB':1}},"
    "{'name':'n1','op_type':'Relu','inputs':['h'],'outputs':['r']},"
    "{'name':'n2','op_type':'Add','inputs':['r','s'],'outputs':['a']},"
    "{'name':'n3','op_type':'Softmax','inputs':['a'],'outputs':['p']},"
    "{'name':'n4','op_type':'Tanh','inputs':['x'],'outputs':['q']}],"
    "'outputs':['p','q']}";

/* Replaces every `from` (NULL: none) and the vector's values; owned. */
static json_t *model_with(const char *from, const char *to, double weight) {
    const char *text = model_text;
    if (from != NULL) {
        const char *rest = text;
        text = "";
        ck_assert_msg(strstr(rest, from) != NULL, "no %s", from);
        for (const char *at; (at = strstr(rest, from)) != NULL; rest = at + strlen(from)) {
            text = arena_printf(&arena, "%s%.*s%s", text, (int)(at - rest), rest, to);
        }
        text = arena_printf(&arena, "%s%s", text, rest);
    }
    char *quoted = arena_strdup(&arena, text);
    for (char *c = quoted; *c != '\0'; c++) {
        *c = *c == '\'' ? '"' : *c;
    }
    json_t *values = json_array();
    for (int i = 0; i < 64; i++) {
        json_array_append_new(values, json_real(weight * i));
    }
    char *list = json_dumps(values, 0);
    char *place = strstr(quoted, "VALUES");
    text = arena_printf(&arena, "%.*s%s%s", (int)(place - quoted), quoted, list, place + 6);
    free(list);
    json_decref(values);
    json_error_t error;
    json_t *model = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    ck_assert_msg(model != NULL, "%s: %s", error.text, text);
    return model;
}

static struct digest key_with(const char *from, const char *to, double weight) {
    json_t *model = model_with(from, to, weight);
    struct digest key = key_of(model, &fixed);
    json_decref(model);
    return key;
}

START_TEST(every_input_changes_the_key) {
    static const char *const edits[][2] = {
        {"'op_type':'Tanh'", "'op_type':'Sigmoid'"},
        {"'transB':1", "'transB':0"},
        {"'outputs':['p']}", "'outputs':['p'],'attributes':{'axis':0}}"},
        {"float16", "float32"},
        {"'shape':[8,64]", "'shape':[9,64]"},
        {"'inputs':['x','w','b']", "'inputs':['x','w']"},
        {"'inputs':['r','s']", "'inputs':['s','r']"},
        {"'op_type':'Tanh','inputs':['x']", "'op_type':'Tanh','inputs':['r']"},
        {"'values':[2]", "'values':[3]"},
        {"'outputs':['p','q']}", "'outputs':['q','p']}"},
        {"'outputs':['p','q']}", "'outputs':['p']}"},
    };
    struct digest seen[32];
    size_t n = 0;
    seen[n++] = key_with(NULL, NULL, 1);
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        seen[n++] = key_with(edits[i][0], edits[i][1], 1);
    }
    struct key_inputs inputs[4] = {fixed, fixed, fixed, fixed};
    inputs[0].version = "ipud key 0";
    inputs[1].options_json =
        "{\"accumulate\":\"f32\",\"profile\":\"off\",\"repeat\":\"auto\",\"tiles\":65}";
    inputs[2].target = "ipu22";
    inputs[3].compiler_id = "1123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    json_t *model = model_with(NULL, NULL, 1);
    for (size_t i = 0; i < 4; i++) {
        seen[n++] = key_of(model, &inputs[i]);
    }
    json_decref(model);
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < i; k++) {
            ck_assert_msg(!digest_equal(&seen[i], &seen[k]), "%zu and %zu", k, i);
        }
    }
}
END_TEST

/* All options that change code are in the text that the key hashes. */
START_TEST(options_are_in_their_text) {
    struct compile_options o = {.tiles = 64};
    ck_assert_str_eq(compile_options_json(&o, &arena), fixed.options_json);
    struct compile_options tiles = {.tiles = 65};
    struct compile_options f16 = {.tiles = 64, .accumulate = ACCUMULATE_F16};
    struct compile_options phase = {.tiles = 64, .profile = EMIT_PROFILE_PHASE};
    struct compile_options kernel = {.tiles = 64, .profile = EMIT_PROFILE_KERNEL};
    ck_assert_str_ne(compile_options_json(&phase, &arena), fixed.options_json);
    ck_assert_str_ne(compile_options_json(&phase, &arena), compile_options_json(&kernel, &arena));
    ck_assert_str_ne(compile_options_json(&tiles, &arena), fixed.options_json);
    ck_assert_str_ne(compile_options_json(&f16, &arena), fixed.options_json);
}
END_TEST

/* Objects with their members in reverse, arrays as they are; owned. */
static json_t *reversed(const json_t *json) {
    if (json_is_array(json)) {
        json_t *list = json_array();
        for (size_t i = 0; i < json_array_size(json); i++) {
            json_array_append_new(list, reversed(json_array_get(json, i)));
        }
        return list;
    }
    if (!json_is_object(json)) {
        return json_deep_copy(json);
    }
    const char *names[16];
    size_t n = 0;
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)json, name, value) {
        ck_assert_uint_lt(n, 16);
        names[n++] = name;
    }
    json_t *object = json_object();
    while (n-- > 0) {
        json_object_set_new(object, names[n], reversed(json_object_get(json, names[n])));
    }
    return object;
}

static void reverse_list(json_t *model, const char *name) {
    json_t *list = json_object_get(model, name);
    json_t *turned = json_array();
    for (size_t i = json_array_size(list); i-- > 0;) {
        json_array_append(turned, json_array_get(list, i));
    }
    json_object_set_new(model, name, turned);
}

START_TEST(names_order_and_weights_do_not) {
    struct digest key = key_with(NULL, NULL, 1), other;
    static const char *const edits[][2] = {
        {"'seed':1", "'seed':2"},
        {"'scale':0.1", "'scale':0.3"},
        {"'kind':'uniform'", "'kind':'normal'"},
        {"'name':'n", "'name':'another"},
        {"'x'", "'input'"},
        {"'w'", "'weight/of a b'"},
        {"'h'", "'zz'"},
        {"'p'", "'aa'"},
        {"'outputs':['p']}", "'outputs':['p'],'attributes':{'axis':-1}}"}, /* the default */
    };
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        other = key_with(edits[i][0], edits[i][1], 1);
        ck_assert_msg(digest_equal(&key, &other), "%s", edits[i][0]);
    }
    other = key_with(NULL, NULL, 3); /* values of an ordinary vector */
    ck_assert(digest_equal(&key, &other));
    json_t *model = model_with(NULL, NULL, 1);
    json_t *turned = reversed(model);
    char *text = json_dumps(turned, 0);
    char *straight = json_dumps(model, 0);
    ck_assert_str_ne(text, straight);
    other = key_of(turned, &fixed);
    ck_assert(digest_equal(&key, &other));
    reverse_list(turned, "nodes");
    reverse_list(turned, "initializers");
    other = key_of(turned, &fixed);
    ck_assert(digest_equal(&key, &other));
    free(text);
    free(straight);
    json_decref(turned);
    json_decref(model);
}
END_TEST

/* The keys of the golden models with a fixed compiler id. Another key function needs another
 * KEY_VERSION: only then does UPDATE_GOLDEN write new ones. */
START_TEST(keys_keep_their_version) {
    static const char file[] = "tests/golden/keys.json";
    json_t *golden = json_load_file(file, 0, NULL);
    ck_assert_msg(golden != NULL, "%s is missing: run from the top folder", file);
    const char *version = json_string_value(json_object_get(golden, "version"));
    ck_assert_ptr_nonnull(version);
    bool may_update = getenv("UPDATE_GOLDEN") != NULL && strcmp(version, KEY_VERSION) != 0;
    json_t *keys = json_object_get(golden, "keys");
    ck_assert_uint_ge(json_object_size(keys), 3);
    const char *name;
    json_t *wanted;
    json_object_foreach(keys, name, wanted) {
        json_t *model =
            json_load_file(arena_printf(&arena, "tests/golden/%s/model.json", name), 0, NULL);
        json_t *options =
            json_load_file(arena_printf(&arena, "tests/golden/%s/options.json", name), 0, NULL);
        struct compile_options o = {
            .tiles = (uint32_t)json_integer_value(json_object_get(options, "tiles"))};
        struct key_inputs inputs = fixed;
        inputs.options_json = compile_options_json(&o, &arena);
        char hex[DIGEST_HEX + 1];
        struct digest key = key_of(model, &inputs);
        digest_hex(&key, hex);
        ck_assert_msg(
            may_update ||
                (strcmp(version, KEY_VERSION) == 0 && strcmp(json_string_value(wanted), hex) == 0),
            "%s: '%s' of version '%s' is '%s' in version '%s': a changed key needs a new "
            "KEY_VERSION, then UPDATE_GOLDEN=1",
            name, json_string_value(wanted), version, hex, KEY_VERSION);
        if (may_update) {
            json_string_set(wanted, hex);
        }
        json_decref(model);
        json_decref(options);
    }
    if (may_update) {
        json_object_set_new(golden, "version", json_string(KEY_VERSION));
        ck_assert_int_eq(json_dump_file(golden, file, JSON_INDENT(1)), 0);
    }
    json_decref(golden);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("identity");
    TCase *tc = tcase_create("identity");
    tcase_set_timeout(tc, 300);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, stored_schedules_change_no_package);
    tcase_add_test(tc, damaged_stores_change_no_package);
    tcase_add_test(tc, environment_changes_no_package);
    tcase_add_test(tc, every_input_changes_the_key);
    tcase_add_test(tc, options_are_in_their_text);
    tcase_add_test(tc, names_order_and_weights_do_not);
    tcase_add_test(tc, keys_keep_their_version);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
