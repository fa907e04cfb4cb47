/* The graph module: loading, shapes, faults with their places, canonical form, generators. */
#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "graph/graph.h"
#include "quoted.h"

static struct arena arena;

static void setup(void) {
    arena_init(&arena, 64 << 20);
}

static void teardown(void) {
    arena_done(&arena);
}

static struct graph *load_with(const char *text, graph_open_file_fn *open_file, void *arg) {
    struct err e = {0};
    struct graph *g = NULL;
    json_t *json = quoted_json(text);
    int r = graph_load(json, open_file, arg, &arena, &g, &e);
    json_decref(json); /* nothing of it is kept */
    ck_assert_msg(r == 0, "%s: %s", e.where, e.text);
    ck_assert_int_eq(graph_verify(g, &e), 0);
    return g;
}

static struct graph *load(const char *text) {
    return load_with(text, NULL, NULL);
}

static struct graph *canonical(const struct graph *g) {
    struct err e = {0};
    struct graph *c = NULL;
    ck_assert_msg(graph_canonical(g, &arena, &c, NULL, NULL, &e) == 0, "%s", e.text);
    return c;
}

static struct digest digest_of_model(const char *text) {
    struct digest d;
    ck_assert_int_eq(graph_digest(canonical(load(text)), &d, NULL), 0);
    return d;
}

static char *print(const struct graph *g) {
    static char text[65536];
    FILE *out = fmemopen(text, sizeof text, "w");
    graph_print(g, out);
    fclose(out);
    return text;
}

#define TENSORS                                                                                    \
    "'inputs':[{'name':'x','dtype':'float16','shape':[8,64]}],"                                    \
    "'initializers':[{'name':'w','dtype':'float16','shape':[64,10],"                               \
    "'generator':{'kind':'normal','seed':3,'scale':0.1}},"                                         \
    "{'name':'b','dtype':'float16','shape':[10],'generator':{'kind':'constant','value':0.5}},"     \
    "{'name':'s','dtype':'float16','shape':[],'values':[2]}],"
#define MODEL                                                                                      \
    "{" TENSORS "'nodes':["                                                                        \
    "{'op_type':'Gemm','inputs':['x','w','b'],'outputs':['h'],'attributes':{'alpha':0.5}},"        \
    "{'op_type':'Add','inputs':['h','s'],'outputs':['h2']},"                                       \
    "{'op_type':'Softmax','inputs':['h2'],'outputs':['y']}],'outputs':['y']}"

START_TEST(print_of_a_model) {
    ck_assert_str_eq(
        print(canonical(load(MODEL))),
        "graph values=7 nodes=3 inputs=1 parameters=2 outputs=1\n"
        "v0 input float16 [8,64] host  # x\n"
        "v1 initializer float16 [64,10] normal seed 3 scale 0.10000000000000001 offset 0  # w\n"
        "v2 initializer float16 [10] constant seed 0 scale 0 offset 0.5  # b\n"
        "v4 initializer float16 [] inline constant  # s\n"
        "n0 Gemm(v0, v1, v2) alpha=0.5 beta=1 transA=0 transB=0 -> v3 float16 [8,10]  # n0\n"
        "n1 Add(v3, v4) -> v5 float16 [8,10]  # n1\n"
        "n2 Softmax(v5) axis=1 -> v6 float16 [8,10]  # n2\n"
        "output 0 v6  # y\n");
}
END_TEST

/* The same graph with other names, node order, key order and spelled-out defaults. */
static const char *const same_models[] = {
    "{'outputs':[{'name':'out'}],'nodes':["
    "{'outputs':['out'],'name':'last','attributes':{'axis':1},'op_type':'Softmax','inputs':['q']},"
    "{'attributes':{'transB':0,'beta':1,'alpha':0.5,'transA':0},"
    "'op_type':'Gemm','outputs':['p'],'inputs':['in','weight','bias']},"
    "{'op_type':'Add','inputs':['p','two'],'outputs':['q']}],"
    "'initializers':[{'shape':[],'values':[2.0],'name':'two','dtype':'float16'},"
    "{'name':'bias','dtype':'float16','shape':[10],'generator':{'kind':'uniform','seed':9}},"
    "{'name':'weight','dtype':'float16','shape':[64,10],'generator':{'kind':'constant'}}],"
    "'inputs':[{'name':'in','dtype':'float16','shape':[8,64],'generator':{'kind':'normal'}}]}",
    /* A node and an input that no output needs. */
    "{'inputs':[{'name':'x','dtype':'float16','shape':[8,64]},"
    "{'name':'idle','dtype':'float32','shape':[3]}],"
    "'initializers':[{'name':'w','dtype':'float16','shape':[64,10],"
    "'generator':{'kind':'normal','seed':3,'scale':0.1}},"
    "{'name':'b','dtype':'float16','shape':[10],'generator':{'kind':'constant','value':0.5}},"
    "{'name':'s','dtype':'float16','shape':[],'values':[2]}],'nodes':["
    "{'op_type':'Relu','inputs':['h'],'outputs':['dead']},"
    "{'op_type':'Gemm','inputs':['x','w','b'],'outputs':['h'],'attributes':{'alpha':0.5}},"
    "{'op_type':'Add','inputs':['h','s'],'outputs':['h2']},"
    "{'op_type':'Softmax','inputs':['h2'],'outputs':['y'],'attributes':{'axis':-1}}],"
    "'outputs':['y']}"};

START_TEST(canonical_form_is_invariant) {
    struct digest a = digest_of_model(MODEL);
    struct digest b = digest_of_model(same_models[_i]);
    ck_assert(digest_equal(&a, &b));
}
END_TEST

START_TEST(canonical_form_is_stable) {
    struct graph *once = canonical(load(same_models[1]));
    char *text = strdup(print(once));
    ck_assert_str_eq(print(canonical(once)), text);
    free(text);
}
END_TEST

/* What must change the key: one replacement each in MODEL. */
static const char *const changes[][2] = {
    {"'alpha':0.5", "'alpha':0.25"},
    {"'alpha':0.5", "'beta':0.5"},
    {"'alpha':0.5", "'alpha':0.5,'beta':2"},
    {"'shape':[8,64]", "'shape':[9,64]"},
    {"'shape':[],'values':[2]", "'shape':[],'values':[3]"},
    {"'shape':[],'values':[2]", "'shape':[1],'values':[2]"},
    {"'shape':[10]", "'shape':[1]"},
    {"'op_type':'Softmax'", "'op_type':'Relu'"},
    {"'inputs':['h2'],'outputs':['y']", "'inputs':['h2'],'outputs':['y'],'attributes':{'axis':0}"},
    {"'inputs':['h','s']", "'inputs':['s','h']"},
    {"'inputs':['h','s']", "'inputs':['h','h']"},
    {"}],'outputs':['y']}", "}],'outputs':['y','h']}"},
    {"['x','w','b']", "['x','w']"}};

static char *replace(const char *text, const char *from, const char *to) {
    const char *at = strstr(text, from);
    if (at == NULL) {
        return NULL;
    }
    char *made = NULL;
    if (asprintf(&made, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from)) < 0) {
        return NULL;
    }
    return made;
}

START_TEST(canonical_digest_sees_changes) {
    char *text = replace(MODEL, changes[_i][0], changes[_i][1]);
    ck_assert_ptr_nonnull(text);
    struct digest a = digest_of_model(MODEL);
    struct digest b = digest_of_model(text);
    ck_assert(!digest_equal(&a, &b));
    free(text);
}
END_TEST

START_TEST(canonical_digest_sees_types) {
    char *text = strdup(MODEL);
    for (char *at; (at = strstr(text, "float16")) != NULL;) {
        memcpy(at, "float32", 7);
    }
    struct digest a = digest_of_model(MODEL);
    struct digest b = digest_of_model(text);
    ck_assert(!digest_equal(&a, &b));
    free(text);
}
END_TEST

START_TEST(dropped_parts_are_named) {
    struct graph *c = NULL;
    const char *const *warnings = NULL;
    uint32_t n = 0;
    ck_assert_int_eq(graph_canonical(load(same_models[1]), &arena, &c, &warnings, &n, NULL), 0);
    ck_assert_uint_eq(n, 2);
    ck_assert_str_eq(warnings[0], "node 'n0' is not reached from an output: dropped");
    ck_assert_str_eq(warnings[1], "input 'idle' is not read by any output: dropped");
    ck_assert_uint_eq(c->input_count, 1);
    ck_assert_uint_eq(c->parameter_count, 2);
}
END_TEST

/* ---- Shapes ------------------------------------------------------------------------------ */

static const struct {
    const char *op, *attributes, *a, *b, *want;
} shape_rows[] = {
    {"MatMul", "{}", "[8,64]", "[64,10]", "[8,10]"},
    {"MatMul", "{}", "[64]", "[64,10]", "[10]"},
    {"MatMul", "{}", "[8,64]", "[64]", "[8]"},
    {"MatMul", "{}", "[64]", "[64]", "[]"},
    {"MatMul", "{}", "[5,8,64]", "[64,10]", "[5,8,10]"},
    {"MatMul", "{}", "[8,64]", "[5,64,10]", "[5,8,10]"},
    {"MatMul", "{}", "[3,1,8,64]", "[5,64,10]", "[3,5,8,10]"},
    {"MatMul", "{}", "[64]", "[5,64,10]", "[5,10]"},
    {"MatMul", "{}", "[3,5,8,64]", "[64]", "[3,5,8]"},
    {"MatMul", "{}", "[1,1,1,1,8,64]", "[2,3,4,5,64,1]", "[2,3,4,5,8,1]"},
    {"Gemm", "{}", "[8,64]", "[64,10]", "[8,10]"},
    {"Gemm", "{'transA':1}", "[64,8]", "[64,10]", "[8,10]"},
    {"Gemm", "{'transB':1}", "[8,64]", "[10,64]", "[8,10]"},
    {"Gemm", "{'transA':1,'transB':1}", "[64,8]", "[10,64]", "[8,10]"},
    {"Add", "{}", "[2,3]", "[3]", "[2,3]"},
    {"Add", "{}", "[3]", "[2,1]", "[2,3]"},
    {"Add", "{}", "[]", "[]", "[]"},
    {"Add", "{}", "[2,1,4]", "[3,1]", "[2,3,4]"},
    {"Add", "{}", "[1]", "[2,3,4,5,6,7]", "[2,3,4,5,6,7]"},
};

START_TEST(shape_rules) {
    char *text = NULL;
    char got[160];
    ck_assert_int_gt(
        asprintf(
            &text,
            "{'inputs':[{'name':'a','dtype':'float32','shape':%s},"
            "{'name':'b','dtype':'float32','shape':%s}],"
            "'nodes':[{'op_type':'%s','inputs':['a','b'],'outputs':['y'],'attributes':%s}],"
            "'outputs':['y']}",
            shape_rows[_i].a, shape_rows[_i].b, shape_rows[_i].op, shape_rows[_i].attributes),
        0);
    struct graph *g = load(text);
    const struct graph_value *y = &g->values[g->outputs[0].n];
    ck_assert_str_eq(shape_print(&y->shape, got, sizeof got), shape_rows[_i].want);
    ck_assert_int_eq(y->dtype, DTYPE_FLOAT);
    free(text);
}
END_TEST

START_TEST(operator_table) {
    for (int i = 0; i < GRAPH_OP_COUNT; i++) {
        enum graph_op op;
        ck_assert(graph_op_find(graph_op_name((enum graph_op)i), &op));
        ck_assert_int_eq(op, i);
    }
    enum graph_op op;
    ck_assert(!graph_op_find("matmul", &op));
    struct graph *g = load(MODEL);
    ck_assert(graph_attr(&g->nodes[0], "alpha")->f == 0.5);
    ck_assert(graph_attr(&g->nodes[0], "beta")->f == 1);
    ck_assert_int_eq(graph_attr(&g->nodes[2], "axis")->i, 1);
    struct graph *h = load("{'inputs':[{'name':'x','dtype':'float16','shape':[4]}],'nodes':["
                           "{'op_type':'Gelu','inputs':['x'],'outputs':['y']}],'outputs':['y']}");
    ck_assert_str_eq(graph_attr(&h->nodes[0], "approximate")->s, "none");
}
END_TEST

/* ---- Faults ------------------------------------------------------------------------------ */

/* tests/invalid/<case>: model.json and `error`, which holds code, place and text, a line each.
 * UPDATE_INVALID=1 writes them anew, to be read like code. */
START_TEST(invalid_models) {
    DIR *dir = opendir("tests/invalid");
    ck_assert_msg(dir != NULL, "run from the top of the tree");
    struct dirent *entry;
    int cases = 0;
    while ((entry = readdir(dir)) != NULL) {
        char path[512];
        char want[4096] = "";
        char got[4096];
        if (entry->d_name[0] == '.') {
            continue;
        }
        snprintf(path, sizeof path, "tests/invalid/%s/model.json", entry->d_name);
        json_t *model = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
        ck_assert_msg(model != NULL, "%s", path);
        struct err e = {0};
        struct graph *g = NULL;
        int r = graph_load(model, NULL, NULL, &arena, &g, &e);
        json_decref(model);
        ck_assert_msg(r < 0, "%s: accepted", path);
        ck_assert_int_eq(r, -e.code);
        snprintf(got, sizeof got, "%s\n%s\n%s\n", err_name(e.code), e.where, e.text);
        snprintf(path, sizeof path, "tests/invalid/%s/error", entry->d_name);
        bool is_update = getenv("UPDATE_INVALID") != NULL;
        FILE *file = fopen(path, is_update ? "w" : "r");
        ck_assert_msg(file != NULL, "%s", path);
        if (is_update) {
            fputs(got, file);
        } else {
            size_t n = fread(want, 1, sizeof want - 1, file);
            want[n] = '\0';
            ck_assert_msg(strcmp(got, want) == 0, "%s:\n%sexpected\n%s", path, got, want);
        }
        fclose(file);
        cases++;
    }
    closedir(dir);
    ck_assert_int_ge(cases, 160);
}
END_TEST

static int load_fails(const char *text, struct err *e) {
    json_t *json = quoted_json(text);
    struct graph *g = NULL;
    int r = graph_load(json, NULL, NULL, &arena, &g, e);
    json_decref(json);
    ck_assert(r == 0 || g == NULL);
    return r;
}

/* A chain of n Identity nodes; its depth must not use up the stack. */
static int load_chain(size_t n, struct err *e) {
    size_t cap = n * 80 + 400;
    char *text = malloc(cap);
    size_t used = (size_t)snprintf(
        text, cap,
        "{'inputs':[{'name':'v0','dtype':'float16','shape':[1]}],'outputs':['v%zu'],'nodes':[", n);
    for (size_t i = n; i > 0; i--) { /* last node first: the loader has to walk the whole chain */
        used += (size_t)snprintf(
            text + used, cap - used,
            "%s{'op_type':'Identity','inputs':['v%zu'],'outputs':['v%zu']}", i < n ? "," : "",
            i - 1, i);
    }
    snprintf(text + used, cap - used, "]}");
    json_t *json = quoted_json(text);
    struct graph *g = NULL;
    struct graph *c = NULL;
    free(text);
    int r = graph_load(json, NULL, NULL, &arena, &g, e);
    json_decref(json);
    if (r == 0) {
        r = graph_canonical(g, &arena, &c, NULL, NULL, e);
        ck_assert_uint_eq(c->node_count, n);
    }
    return r;
}

START_TEST(limits) {
    struct err e = {0};
    arena_done(&arena);
    arena_init(&arena, (size_t)1 << 30);
    ck_assert_msg(load_chain(GRAPH_MAX_NODES, &e) == 0, "%s", e.text);
    ck_assert_int_eq(load_chain(GRAPH_MAX_NODES + 1, &e), -ERR_TOO_LARGE);
    ck_assert_str_eq(e.where, "/nodes");

    for (size_t extra = 0; extra <= 1; extra++) { /* inline values */
        size_t n = GRAPH_MAX_INLINE_ELEMENTS + extra;
        char *text = malloc(n * 2 + 400);
        size_t used = (size_t)sprintf(
            text,
            "{'inputs':[{'name':'x','dtype':'float16','shape':[1]}],'initializers':["
            "{'name':'w','dtype':'float16','shape':[%zu],'values':[",
            n);
        for (size_t i = 0; i < n; i++) {
            used += (size_t)sprintf(text + used, i > 0 ? ",0" : "0");
        }
        sprintf(
            text + used, "]}],'nodes':[{'op_type':'Add','inputs':['x','w'],'outputs':['y']}],"
                         "'outputs':['y']}");
        ck_assert_int_eq(load_fails(text, &e), extra ? -ERR_TOO_LARGE : 0);
        free(text);
    }
    static const struct {
        int64_t dim;
        int want;
    } sizes[] = {{1 << 29, 0}, {(1 << 29) + 1, -ERR_TOO_LARGE}}; /* 2^30 bytes of halves */
    for (int i = 0; i < 2; i++) {
        char text[400];
        snprintf(
            text, sizeof text,
            "{'inputs':[{'name':'x','dtype':'float16','shape':[%lld]}],'nodes':["
            "{'op_type':'Relu','inputs':['x'],'outputs':['y']}],'outputs':['y']}",
            (long long)sizes[i].dim);
        ck_assert_int_eq(load_fails(text, &e), sizes[i].want);
    }
    char name[GRAPH_MAX_NAME + 2];
    for (size_t n = GRAPH_MAX_NAME; n <= GRAPH_MAX_NAME + 1; n++) {
        char text[2000];
        memset(name, 'n', n);
        name[n] = '\0';
        snprintf(
            text, sizeof text,
            "{'inputs':[{'name':'%s','dtype':'float16','shape':[1]}],'nodes':["
            "{'op_type':'Relu','inputs':['%s'],'outputs':['y']}],'outputs':['y']}",
            name, name);
        ck_assert_int_eq(load_fails(text, &e), n > GRAPH_MAX_NAME ? -ERR_BAD_GRAPH : 0);
    }
}
END_TEST

START_TEST(verify_finds_damage) {
    struct err e = {0};
    for (int damage = 0; damage < 9; damage++) {
        struct graph *g = load(MODEL);
        ck_assert_int_eq(graph_verify(g, &e), 0);
        switch (damage) {
        case 0: g->nodes[0].inputs[0].n = g->outputs[0].n; break;
        case 1: g->values[g->outputs[0].n].shape.dim[0]++; break;
        case 2: g->values[g->outputs[0].n].dtype = DTYPE_FLOAT; break;
        case 3: g->values[1].name = g->values[0].name; break;
        case 4: g->nodes[0].attr_count--; break;
        case 5: g->nodes[2].input_count = 2; break;
        case 6: g->values[g->outputs[0].n].is_output = false; break;
        case 7: g->values[g->nodes[1].outputs[0].n].producer.n = 0; break;
        case 8: g->nodes[2].attrs[0].i = 2; break;
        }
        ck_assert_msg(graph_verify(g, &e) < 0, "damage %d", damage);
        ck_assert_uint_gt(strlen(e.text), 5);
    }
}
END_TEST

/* ---- Files ------------------------------------------------------------------------------- */

struct files {
    char path[64];
    int opened;
};

static int open_file(void *arg, const char *label, struct err *err) {
    struct files *files = arg;
    files->opened++;
    if (strcmp(label, "w.st") != 0) {
        return err_set(err, ERR_MISSING, "no file '%s'", label);
    }
    return open(files->path, O_RDONLY | O_CLOEXEC);
}

static void make_file(struct files *files) {
    const char *header = "{\"w\":{\"dtype\":\"F16\",\"shape\":[4,2],\"data_offsets\":[0,16]},"
                         "\"n\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[16,24]}}";
    uint8_t bytes[8];
    strcpy(files->path, "/tmp/ipud-test-graph-XXXXXX");
    int fd = mkstemp(files->path);
    ck_assert_int_ge(fd, 0);
    store_le64(bytes, strlen(header));
    ck_assert_int_eq(write(fd, bytes, 8), 8);
    ck_assert_int_eq(write(fd, header, strlen(header)), (ssize_t)strlen(header));
    for (uint8_t i = 0; i < 24; i++) {
        ck_assert_int_eq(write(fd, &i, 1), 1);
    }
    close(fd);
}

#define FILE_MODEL(TENSOR)                                                                         \
    "{'inputs':[{'name':'x','dtype':'float16','shape':[3,4]}],'initializers':[" TENSOR "],"        \
    "'nodes':[{'op_type':'MatMul','inputs':['x','w'],'outputs':['y']},"                            \
    "{'op_type':'Identity','inputs':['n'],'outputs':['m']}],'outputs':['y','m']}"
#define FILE_W "{'name':'w','dtype':'float16','shape':[4,2],'file':'w.st'},"
#define FILE_N "{'name':'n','dtype':'int64','shape':[1],'file':'w.st','tensor':'n'}"

START_TEST(tensors_of_files) {
    struct files files = {.opened = 0};
    make_file(&files);
    struct graph *g = canonical(load_with(FILE_MODEL(FILE_W FILE_N), open_file, &files));
    ck_assert_int_eq(files.opened, 1);
    ck_assert_uint_eq(g->parameter_count, 1);
    const struct graph_value *w = &g->values[g->parameters[0].n];
    ck_assert_int_eq(w->source.kind, SOURCE_FILE);
    ck_assert_uint_gt(w->source.file_offset, 8);
    ck_assert_ptr_null(w->source.bytes);
    const struct graph_value *n = &g->values[g->nodes[1].inputs[0].n];
    ck_assert(n->is_hashed_constant);
    ck_assert_uint_eq(load_le64(n->source.bytes), 0x1716151413121110u);

    static const struct {
        const char *model;
        int code;
        const char *where, *text;
    } faults[] = {
        {FILE_MODEL("{'name':'w','dtype':'float16','shape':[2,4],'file':'w.st'}," FILE_N),
         ERR_SHAPE, "/initializers/0", "[2,4]"},
        {FILE_MODEL("{'name':'w','dtype':'float32','shape':[4,2],'file':'w.st'}," FILE_N),
         ERR_DTYPE, "/initializers/0", "float32"},
        {FILE_MODEL(FILE_W "{'name':'n','dtype':'int64','shape':[1],'file':'w.st','tensor':'q'}"),
         ERR_MISSING, "/initializers/1", "no tensor 'q'"},
        {FILE_MODEL(FILE_W "{'name':'n','dtype':'int64','shape':[1],'file':'v.st'}"), ERR_MISSING,
         "/initializers/1/file", "v.st"}};
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        struct err e = {0};
        struct graph *none = NULL;
        json_t *json = quoted_json(faults[i].model);
        ck_assert_int_eq(graph_load(json, open_file, &files, &arena, &none, &e), -faults[i].code);
        ck_assert_str_eq(e.where, faults[i].where);
        ck_assert_msg(strstr(e.text, faults[i].text) != NULL, "%s", e.text);
        json_decref(json);
    }
    unlink(files.path);
}
END_TEST

/* ---- Memory ------------------------------------------------------------------------------ */

/* Allocation 1, 2, 3 ... fails until none does; the sanitizer watches for leaks. */
START_TEST(every_allocation_may_fail) {
    struct files files = {.opened = 0};
    make_file(&files);
    static const char *const models[] = {MODEL, FILE_MODEL(FILE_W FILE_N)};
    json_t *json = quoted_json(models[_i]);
    struct err e = {0};
    volatile uint64_t n = ARENA_FAIL_NOW;
    volatile bool is_done = false;
    while (!is_done) {
        struct graph *volatile g = NULL;
        struct graph *made = NULL;
        arena_done(&arena);
        arena_init(&arena, 64 << 20);
        arena.fail_after = n;
        if (ARENA_RECOVER(&arena) == 0) {
            int r = graph_load(json, open_file, &files, &arena, &made, &e);
            if (r == 0) {
                g = made;
                r = graph_canonical(g, &arena, &made, NULL, NULL, &e);
            }
            ck_assert(r == 0 || r == -ERR_NOMEM);
            is_done = r == 0;
        }
        ck_assert_uint_lt(n == ARENA_FAIL_NOW ? 0 : n, 10000);
        n = n == ARENA_FAIL_NOW ? 1 : n + 1;
    }
    ck_assert_uint_gt(n, 20);
    json_decref(json);
    unlink(files.path);
}
END_TEST

/* ---- Generators -------------------------------------------------------------------------- */

START_TEST(generators) {
    struct value_source s = {.kind = SOURCE_GENERATOR, .generator = GENERATOR_NORMAL, .scale = 1};
    /* Pinned: the values are part of the format, on every machine. Worked out by an independent
     * program from the definition in graph.h. */
    static const struct {
        enum generator_kind kind;
        uint64_t seed, job_seed, index;
        double value;
    } pinned[] = {
#include "graph_vectors.inc"
    };
    for (size_t i = 0; i < sizeof pinned / sizeof pinned[0]; i++) {
        s.generator = pinned[i].kind;
        s.seed = pinned[i].seed;
        ck_assert_msg(
            graph_generate(&s, pinned[i].job_seed, pinned[i].index) == pinned[i].value,
            "row %zu: %a", i, graph_generate(&s, pinned[i].job_seed, pinned[i].index));
    }
    double mean[3] = {0};
    double square[3] = {0};
    const int n = 100000;
    for (int i = 0; i < n; i++) {
        for (int k = 0; k <= GENERATOR_NORMAL; k++) {
            s.generator = (enum generator_kind)k;
            s.seed = 5;
            double x = graph_generate(&s, 0, (uint64_t)i);
            mean[k] += x / n;
            square[k] += x * x / n;
        }
    }
    ck_assert(mean[GENERATOR_CONSTANT] == 0 && square[GENERATOR_CONSTANT] == 0);
    ck_assert(fabs(mean[GENERATOR_UNIFORM] - 0.5) < 0.005);
    ck_assert(fabs(square[GENERATOR_UNIFORM] - 1.0 / 3) < 0.005);
    ck_assert(fabs(mean[GENERATOR_NORMAL]) < 0.015);
    ck_assert(fabs(square[GENERATOR_NORMAL] - 1) < 0.02);
    s.scale = 3;
    s.offset = -7;
    s.generator = GENERATOR_CONSTANT;
    ck_assert(graph_generate(&s, 0, 3) == -7);
}
END_TEST

START_TEST(fill_gives_stored_bytes) {
    struct graph *g = load(MODEL);
    uint8_t whole[1280];
    uint8_t part[64];
    struct err e = {0};
    ck_assert_int_eq(graph_fill(&g->values[1], 0, 0, 640, whole, &e), 0);
    ck_assert_int_eq(graph_fill(&g->values[1], 0, 100, 32, part, &e), 0);
    ck_assert_mem_eq(part, whole + 200, 64);
    ck_assert_int_eq(graph_fill(&g->values[1], 1, 100, 32, part, &e), 0);
    ck_assert_mem_ne(part, whole + 200, 64);
    ck_assert_int_eq(graph_fill(&g->values[3], 0, 0, 1, part, &e), 0);
    ck_assert_uint_eq(load_le16(part), 0x4000); /* 2.0 */
    ck_assert_int_eq(graph_fill(&g->values[0], 0, 0, 1, part, &e), -ERR_MISSING);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("graph");
    TCase *t = tcase_create("graph");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, print_of_a_model);
    tcase_add_loop_test(t, canonical_form_is_invariant, 0, 2);
    tcase_add_test(t, canonical_form_is_stable);
    tcase_add_loop_test(
        t, canonical_digest_sees_changes, 0, (int)(sizeof changes / sizeof changes[0]));
    tcase_add_test(t, canonical_digest_sees_types);
    tcase_add_test(t, dropped_parts_are_named);
    tcase_add_loop_test(t, shape_rules, 0, (int)(sizeof shape_rows / sizeof shape_rows[0]));
    tcase_add_test(t, operator_table);
    tcase_add_test(t, invalid_models);
    tcase_add_test(t, limits);
    tcase_add_test(t, verify_finds_damage);
    tcase_add_test(t, tensors_of_files);
    tcase_add_loop_test(t, every_allocation_may_fail, 0, 2);
    tcase_add_test(t, generators);
    tcase_add_test(t, fill_gives_stored_bytes);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
