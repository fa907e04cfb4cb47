/* The whole compiler on small graphs: packages that verify, equal bytes for equal input, errors
 * that name the place. */
#include <check.h>
#include <jansson.h>
#include <unistd.h>

#include "compile/compile.h"
#include "dense_net.h"
#include "package/package.h"

struct events {
    uint32_t phases, finalists, scheduled, refused, selected;
    bool all_good;
};

static void on_event(void *arg, const char *event, const char *message, const char *fields) {
    struct events *e = arg;
    if (getenv("SHOW_EVENTS") != NULL) {
        fprintf(stderr, "%s | %s | %s\n", event, message, fields);
    }
    size_t n = strlen(fields);
    e->all_good = e->all_good && n >= 2 && fields[0] == '{' && fields[n - 1] == '}';
    e->phases += strcmp(event, "package.phase") == 0;
    e->finalists += strcmp(event, "plan.finalist") == 0;
    e->scheduled += strcmp(event, "plan.scheduled") == 0;
    e->refused += strcmp(event, "plan.refused") == 0;
    e->selected += strcmp(event, "plan.selected") == 0;
}

static const char ZERO_KEY[] = "0000000000000000000000000000000000000000000000000000000000000000";

static int compile_graph(
    const struct graph *g, uint32_t tiles, const char *path, struct compile_result *ret,
    struct events *events, struct err *err) {
    unlink(path);
    struct compile_job job = {
        .graph = g,
        .options = {.tiles = tiles},
        .key = ZERO_KEY,
        .compiler_id = ZERO_KEY,
        .package_path = path,
        .event = on_event,
        .event_arg = events,
        .print = getenv("SHOW_STAGES"),
        .print_to = stderr};
    *events = (struct events){.all_good = true};
    return compile_run(&job, ret, err);
}

static const char *temporary(const char *name, char *buf, size_t n) {
    snprintf(
        buf, n, "%s/%s.%d.ipuexe", getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp", name,
        (int)getpid());
    return buf;
}

/* Compiles twice and once more on read-back. */
static struct compile_result check_graph(const struct graph *g, uint32_t tiles) {
    char path[256], other[256];
    temporary("compile_a", path, sizeof path);
    temporary("compile_b", other, sizeof other);
    struct compile_result first = {0}, second = {0};
    struct events events;
    struct err err = {0};
    int rc = compile_graph(g, tiles, path, &first, &events, &err);
    ck_assert_msg(rc == 0, "%s %s", err.where, err.text);
    ck_assert(events.all_good);
    ck_assert_uint_eq(events.phases, first.pass_count);
    ck_assert_uint_ge(events.finalists, first.finalists);
    ck_assert_uint_eq(events.selected, 1);
    ck_assert_uint_eq(events.scheduled + events.refused, events.finalists); /* all are reported */
    ck_assert_uint_eq(first.pass_count, 13);
    rc = compile_graph(g, tiles, other, &second, &events, &err);
    ck_assert_msg(rc == 0, "%s %s", err.where, err.text);
    ck_assert(digest_equal(&first.digest, &second.digest));
    struct package *p = NULL;
    struct digest digest;
    rc = package_open(path, &first.digest, &p, &digest, &err);
    ck_assert_msg(rc == 0, "%s %s", err.where, err.text);
    ck_assert_uint_eq(p->compute_tiles, tiles);
    ck_assert_uint_le(first.active_tiles, tiles);
    ck_assert_uint_eq(p->participant_count, first.active_tiles);
    package_free(p);
    unlink(path);
    unlink(other);
    return first;
}

START_TEST(test_one_tile) {
    struct arena a;
    arena_init(&a, 64u << 20);
    const int64_t widths[] = {64, 32, 10};
    struct compile_result r = check_graph(net_mlp(&a, 8, widths, 3), 1);
    ck_assert_uint_eq(r.exchange_phases, 0);
    ck_assert_uint_eq(r.active_tiles, 1);
    ck_assert_uint_eq(r.kernel_calls, 3);
    arena_done(&a);
}
END_TEST

START_TEST(test_mlp_tiles) {
    static const uint32_t tiles[] = {2, 3, 4, 16, 64, 200};
    const int64_t widths[] = {256, 192, 100, 10};
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++) {
        struct arena a;
        arena_init(&a, 64u << 20);
        struct compile_result r = check_graph(net_mlp(&a, 20, widths, 4), tiles[i]);
        ck_assert_uint_ge(r.active_tiles, 1);
        arena_done(&a);
    }
}
END_TEST

START_TEST(test_odd_sizes) {
    static const struct {
        int64_t rows, widths[3];
        uint32_t tiles;
    } rows[] = {
        {1, {1, 1, 1}, 1},        {1, {17, 5, 3}, 7},      {3, {1000, 33, 1}, 64},
        {50, {15, 16, 17}, 1472}, {7, {300, 1000, 2}, 31},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct arena a;
        arena_init(&a, 64u << 20);
        check_graph(net_mlp(&a, rows[i].rows, rows[i].widths, 3), rows[i].tiles);
        arena_done(&a);
    }
}
END_TEST

START_TEST(test_residual) {
    static const uint32_t tiles[] = {1, 8, 64};
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++) {
        struct arena a;
        arena_init(&a, 64u << 20);
        check_graph(net_residual(&a, 12, 64, 256), tiles[i]);
        arena_done(&a);
    }
}
END_TEST

START_TEST(test_large) {
    struct arena a;
    arena_init(&a, 64u << 20);
    const int64_t widths[] = {1024, 2048, 1024};
    check_graph(net_mlp(&a, 64, widths, 3), 512);
    arena_done(&a);
}
END_TEST

/* Broadcast of constants: row, scalar, one axis; same value used twice; Identity to an output. */
START_TEST(test_constants) {
    struct arena a;
    arena_init(&a, 64u << 20);
    struct net n = net_new(&a);
    struct shape in = {.rank = 3, .dim = {4, 3, 24}};
    struct value_id x = graph_add_input(n.b, "x", DTYPE_FLOAT16, &in, NULL);
    struct shape middle = {.rank = 3, .dim = {4, 1, 24}};
    struct shape column = {.rank = 2, .dim = {3, 1}};
    struct value_id y = net_node(&n, GRAPH_OP_Add, x, net_param(&n, middle), NO_VALUE, NULL, 0);
    y = net_node(&n, GRAPH_OP_Add, net_param(&n, column), y, NO_VALUE, NULL, 0);
    static const uint8_t half[2] = {0x00, 0x38};
    struct shape none = {0};
    struct value_source inline_half = {.kind = SOURCE_INLINE, .bytes = half};
    struct value_id scalar = graph_add_initializer(n.b, "half", DTYPE_FLOAT16, &none, &inline_half);
    y = net_node(&n, GRAPH_OP_Add, y, scalar, NO_VALUE, NULL, 0);
    y = net_op(&n, GRAPH_OP_Relu, y);
    struct value_id z = net_node(&n, GRAPH_OP_Add, y, y, NO_VALUE, NULL, 0);
    struct value_id outputs[3] = {z, net_op(&n, GRAPH_OP_Identity, x), y};
    struct graph *g = net_finish(&n, outputs, 3);
    check_graph(g, 1);
    check_graph(g, 5);
    check_graph(g, 64);
    arena_done(&a);
}
END_TEST

START_TEST(test_errors) {
    struct arena a;
    arena_init(&a, 64u << 20);
    char path[256];
    temporary("compile_e", path, sizeof path);
    struct compile_result r;
    struct events events;
    struct err err = {0};
    const int64_t widths[] = {64, 32, 10};
    struct graph *g = net_mlp(&a, 8, widths, 3);
    ck_assert_int_eq(compile_graph(g, 0, path, &r, &events, &err), -ERR_INVALID);
    ck_assert_int_eq(compile_graph(g, 1473, path, &r, &events, &err), -ERR_INVALID);
    /* Weights beyond one tile: says what and how much. */
    const int64_t wide[] = {1024, 1024, 10};
    struct graph *big = net_mlp(&a, 8, wide, 3);
    memset(&err, 0, sizeof err);
    ck_assert_int_eq(compile_graph(big, 2, path, &r, &events, &err), -ERR_DOES_NOT_FIT);
    ck_assert_str_ne(err.text, "");
    ck_assert_int_ne(access(path, F_OK), 0);
    /* More rows than a matrix may have. */
    struct net n = net_new(&a);
    struct value_id x = net_input(&n, 65537, 3);
    struct value_id y = net_op(&n, GRAPH_OP_Relu, x);
    memset(&err, 0, sizeof err);
    ck_assert_int_eq(
        compile_graph(net_finish(&n, &y, 1), 4, path, &r, &events, &err), -ERR_UNSUPPORTED_OP);
    ck_assert_ptr_nonnull(strstr(err.where, "/nodes/"));
    arena_done(&a);
}
END_TEST

static int no_files(void *arg, const char *label, struct err *err) {
    return err_set(err, ERR_MISSING, "golden models have no file '%s'", label);
}

/* Text of the first stages; malloc'd. */
static char *stage_text(const char *folder) {
    char path[256], package[256];
    struct arena a;
    arena_init(&a, 64u << 20);
    snprintf(path, sizeof path, "%s/model.json", folder);
    json_t *model = json_load_file(path, 0, NULL);
    snprintf(path, sizeof path, "%s/options.json", folder);
    json_t *options = json_load_file(path, 0, NULL);
    ck_assert_ptr_nonnull(model);
    ck_assert_ptr_nonnull(options);
    struct graph *loaded = NULL, *g = NULL;
    const char *const *warnings;
    uint32_t warning_count;
    struct err err = {0};
    int rc = graph_load(model, no_files, NULL, &a, &loaded, &err);
    rc = rc == 0 ? graph_canonical(loaded, &a, &g, &warnings, &warning_count, &err) : rc;
    ck_assert_msg(rc == 0, "%s %s", err.where, err.text);
    const char *accumulate = json_string_value(json_object_get(options, "accumulate"));
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    temporary("compile_g", package, sizeof package);
    unlink(package);
    struct compile_result r;
    struct compile_job job = {
        .graph = g,
        .options =
            {.tiles = (uint32_t)json_integer_value(json_object_get(options, "tiles")),
             .accumulate = accumulate != NULL && strcmp(accumulate, "f16") == 0 ? ACCUMULATE_F16
                                                                                : ACCUMULATE_F32},
        .key = ZERO_KEY,
        .compiler_id = ZERO_KEY,
        .package_path = package,
        .print = "plan,lower,place,exchange",
        .print_to = out};
    rc = compile_run(&job, &r, &err);
    ck_assert_msg(rc == 0, "%s %s", err.where, err.text);
    fclose(out);
    unlink(package);
    json_decref(model);
    json_decref(options);
    arena_done(&a);
    return text;
}

static void compare_golden(const char *folder) {
    char path[256];
    char *text = stage_text(folder);
    snprintf(path, sizeof path, "%s/stages.txt", folder);
    if (getenv("UPDATE_GOLDEN") != NULL) {
        FILE *out = fopen(path, "w");
        ck_assert_ptr_nonnull(out);
        fputs(text, out);
        fclose(out);
        free(text);
        return;
    }
    FILE *in = fopen(path, "r");
    ck_assert_msg(in != NULL, "%s is missing: run make golden from the top folder", path);
    char line[8192];
    size_t at = 0;
    for (int number = 1; fgets(line, sizeof line, in) != NULL; number++) {
        size_t n = strlen(line);
        ck_assert_msg(
            strncmp(text + at, line, n) == 0, "%s:%d: expected %s, have %.*s", path, number, line,
            (int)strcspn(text + at, "\n"), text + at);
        at += n;
    }
    ck_assert_msg(text[at] == '\0', "%s ends early", path);
    fclose(in);
    free(text);
}

START_TEST(test_golden) {
    compare_golden("tests/golden/mlp");
    compare_golden("tests/golden/residual");
    compare_golden("tests/golden/ksplit");
    compare_golden("tests/golden/heads");
    compare_golden("tests/golden/rows");
    compare_golden("tests/golden/halves");
}
END_TEST

/* Every allocation of the main arena fails once, in steps: an error, no leak, no file. */
START_TEST(test_out_of_memory) {
    struct arena a;
    arena_init(&a, 64u << 20);
    const int64_t widths[] = {64, 32, 10};
    struct graph *g = net_mlp(&a, 8, widths, 3);
    char path[256];
    temporary("compile_m", path, sizeof path);
    unlink(path);
    int rc = -1;
    uint32_t failures = 0;
    for (uint64_t at = 1; rc != 0; at += 1 + at / 4) {
        struct compile_result r;
        struct err err = {0};
        struct compile_job job = {
            .graph = g,
            .options = {.tiles = 4},
            .key = ZERO_KEY,
            .compiler_id = ZERO_KEY,
            .package_path = path,
            .fail_after = at};
        rc = compile_run(&job, &r, &err);
        if (rc != 0) {
            ck_assert_int_eq(rc, -ERR_COMPILE_OOM);
            ck_assert_int_ne(access(path, F_OK), 0);
            failures++;
        }
    }
    ck_assert_uint_gt(failures, 10);
    unlink(path);
    arena_done(&a);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("compile");
    TCase *tc = tcase_create("graphs");
    tcase_set_timeout(tc, 300);
    tcase_add_test(tc, test_one_tile);
    tcase_add_test(tc, test_mlp_tiles);
    tcase_add_test(tc, test_odd_sizes);
    tcase_add_test(tc, test_residual);
    tcase_add_test(tc, test_constants);
    tcase_add_test(tc, test_large);
    tcase_add_test(tc, test_errors);
    tcase_add_test(tc, test_golden);
    tcase_add_test(tc, test_out_of_memory);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
