/* Operators of a transformer in a graph: shapes, the key and what enters it, constants resolved for
 * those who read a graph. */
#include <check.h>
#include <fcntl.h>
#include <jansson.h>
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
    struct graph *c = NULL;
    json_t *json = quoted_json(text);
    int r = graph_load(json, open_file, arg, &arena, &g, &e);
    json_decref(json);
    ck_assert_msg(r == 0, "%s: %s in %s", e.where, e.text, text);
    ck_assert_msg(graph_canonical(g, &arena, &c, NULL, NULL, &e) == 0, "%s", e.text);
    return c;
}

static struct graph *load(const char *text) {
    return load_with(text, NULL, NULL);
}

static struct digest key_of(const struct graph *g) {
    struct digest d;
    ck_assert_int_eq(graph_digest(g, &d, NULL), 0);
    return d;
}

#define INPUT(NAME, SHAPE) "{'name':'" NAME "','dtype':'float16','shape':" SHAPE "}"
#define INTS(NAME, COUNT, VALUES)                                                                  \
    "{'name':'" NAME "','dtype':'int64','shape':[" COUNT "],'values':[" VALUES "]}"
/* One node; in what it reads, x is [2,3,4,6], y [6], z [2,3,4,1]. */
#define MODEL(OP, READS, ATTRIBUTES, RESULTS, CONSTANTS)                                           \
    "{'inputs':[" INPUT("x", "[2,3,4,6]") "," INPUT("y", "[6]") "," INPUT(                         \
        "z", "[2,3,4,1]") "],"                                                                     \
                          "'initializers':[" CONSTANTS "],'nodes':[{'op_type':'" OP                \
                          "','inputs':[" READS "],"                                                \
                          "'outputs':[" RESULTS "],'attributes':{" ATTRIBUTES                      \
                          "}}],'outputs':[" RESULTS "]}"

/* ---- Key --------------------------------------------------------------------------------- */

/* Two models: the key must be the same, or must not be. */
static const struct {
    bool is_same;
    const char *a, *b;
} pairs[] = {
#define SAME(OP, READS, A, B, CONSTANTS)                                                           \
    { true, MODEL(OP, READS, A, "'r'", CONSTANTS), MODEL(OP, READS, B, "'r'", CONSTANTS) }
#define OTHER(OP, READS, A, B, CONSTANTS)                                                          \
    { false, MODEL(OP, READS, A, "'r'", CONSTANTS), MODEL(OP, READS, B, "'r'", CONSTANTS) }
    /* Each attribute turned. */
    OTHER("LayerNormalization", "'x','y'", "", "'axis':2", ""),
    OTHER("LayerNormalization", "'x','y'", "", "'epsilon':1e-6", ""),
    OTHER("Attention", "'x','x','x'", "", "'scale':0.5", ""),
    OTHER(
        "Attention", "'f','f','f'", "'q_num_heads':2,'kv_num_heads':2",
        "'q_num_heads':1,'kv_num_heads':1",
        "{'name':'f','dtype':'float16','shape':[1,2,4],'generator':{'kind':'normal'}}"),
    OTHER("Cast", "'x'", "'to':1", "'to':10", ""),
    OTHER("Cast", "'x'", "'to':1", "'to':1,'saturate':0", ""),
    OTHER("ReduceMean", "'x','a'", "", "'keepdims':0", INTS("a", "1", "1")),
    OTHER("ReduceSum", "'x'", "", "'noop_with_empty_axes':1", ""),
    OTHER("ReduceMax", "'x'", "", "'keepdims':0", ""),
    OTHER("Reshape", "'x','a'", "", "'allowzero':1", INTS("a", "1", "144")),
    OTHER("Transpose", "'x'", "", "'perm':[3,2,0,1]", ""),
    OTHER("Concat", "'x','x'", "'axis':1", "'axis':0", ""),
    OTHER("Gather", "'x','a'", "", "'axis':1", INTS("a", "1", "0")),
    OTHER("Softmax", "'x'", "", "'axis':1", ""),
    OTHER("Gelu", "'x'", "", "'approximate':'tanh'", ""),
    /* Defaults spelled out, also those that follow from the operands. */
    SAME("LayerNormalization", "'x','y'", "", "'axis':3,'epsilon':1e-5,'stash_type':1", ""),
    SAME(
        "Attention", "'x','x','x'", "",
        "'scale':0.408248290463863,'q_num_heads':3,'kv_num_heads':3,'is_causal':0,'softcap':0,"
        "'qk_matmul_output_mode':0,'softmax_precision':1",
        ""),
    SAME("Cast", "'x'", "'to':1", "'to':'float32','saturate':1", ""),
    SAME("ReduceMean", "'x'", "", "'keepdims':1,'noop_with_empty_axes':0", ""),
    SAME("Transpose", "'x'", "", "'perm':[3,2,1,0]", ""),
    SAME("Concat", "'x','x'", "'axis':1", "'axis':-3", ""),
    SAME("Gather", "'x','a'", "", "'axis':-4", INTS("a", "1", "0")),
    SAME(
        "Conv", "'x','w'", "'strides':[2,3]",
        "'strides':[2,3],'kernel_shape':[2,3],'pads':[0,0,0,0],'dilations':[1,1],'group':1,"
        "'auto_pad':'NOTSET'",
        "{'name':'w','dtype':'float16','shape':[5,3,2,3],'generator':{'kind':'normal'}}"),
    OTHER(
        "Conv", "'x','w'", "'strides':[2,3]", "'strides':[2,3],'auto_pad':'VALID'",
        "{'name':'w','dtype':'float16','shape':[5,3,2,3],'generator':{'kind':'normal'}}"),
#define VALUES(IS_SAME, OP, READS, A, B)                                                           \
    { IS_SAME, MODEL(OP, READS, "", "'r'", A), MODEL(OP, READS, "", "'r'", B) }
    /* Constants enter by value: what decides shapes and places, and exponents. */
    VALUES(false, "Reshape", "'x','a'", INTS("a", "2", "2,72"), INTS("a", "2", "2,-1")),
    VALUES(false, "ReduceSum", "'x','a'", INTS("a", "1", "1"), INTS("a", "1", "-3")),
    VALUES(false, "Squeeze", "'z','a'", INTS("a", "1", "3"), INTS("a", "1", "-1")),
    VALUES(false, "Unsqueeze", "'x','a'", INTS("a", "1", "3"), INTS("a", "1", "4")),
    VALUES(false, "Gather", "'x','a'", INTS("a", "1", "0"), INTS("a", "1", "1")),
    VALUES(
        false, "Slice", "'x','a','b'", INTS("a", "1", "0") "," INTS("b", "1", "1"),
        INTS("a", "1", "1") "," INTS("b", "1", "2")),
#define EXPONENT(SOURCE) "{'name':'e','dtype':'float16','shape':[6]," SOURCE "}"
    VALUES(
        false, "Pow", "'x','e'", EXPONENT("'values':[1,2,3,1,2,3]"),
        EXPONENT("'values':[1,2,3,1,2,2]")),
    VALUES(
        true, "Pow", "'x','e'", EXPONENT("'values':[2,2,2,2,2,2]"),
        EXPONENT("'generator':{'kind':'constant','value':2}")),
    /* The same tensor anywhere else is a parameter. */
    VALUES(
        true, "Mul", "'x','e'", EXPONENT("'values':[1,2,3,1,2,3]"),
        EXPONENT("'values':[1,2,3,1,2,2]")),
    VALUES(
        true, "Mul", "'e','x'", EXPONENT("'generator':{'kind':'normal'}"),
        EXPONENT("'generator':{'kind':'constant','value':2}")),
    {false, MODEL("Split", "'x','a'", "'axis':3", "'r','s'", INTS("a", "2", "2,4")),
     MODEL("Split", "'x','a'", "'axis':3", "'r','s'", INTS("a", "2", "4,2"))},
    {false, MODEL("Split", "'x'", "'num_outputs':2", "'r','s'", ""),
     MODEL("Split", "'x'", "'num_outputs':2,'axis':2", "'r','s'", "")},
};

START_TEST(key) {
    struct graph *a = load(pairs[_i].a);
    struct graph *b = load(pairs[_i].b);
    struct digest da = key_of(a);
    struct digest db = key_of(b);
    ck_assert_msg(digest_equal(&da, &db) == pairs[_i].is_same, "%s\n%s", pairs[_i].a, pairs[_i].b);
}
END_TEST

/* An exponent whose reader is dropped is a parameter again, and the key forgets its value. */
START_TEST(key_forgets_dropped_exponents) {
#define SHARED(VALUES, DEAD)                                                                       \
    "{'inputs':[" INPUT("x", "[6]") "],'initializers':[" EXPONENT(                                 \
        VALUES) "],'nodes':[" DEAD                                                                 \
                "{'op_type':'Add','inputs':['x','e'],'outputs':['r']}],'outputs':['r']}"
#define DEAD_POW "{'op_type':'Pow','inputs':['x','e'],'outputs':['d']},"
    struct graph *alone = load(SHARED("'generator':{'kind':'normal'}", ""));
    struct graph *with = load(SHARED("'generator':{'kind':'constant','value':3}", DEAD_POW));
    struct digest a = key_of(alone);
    struct digest b = key_of(with);
    ck_assert(digest_equal(&a, &b));
    ck_assert_uint_eq(with->parameter_count, 1);
    ck_assert_ptr_null(with->values[with->parameters[0].n].source.bytes);
    struct graph *g = load(
        MODEL("Pow", "'x','e'", "", "'r'", EXPONENT("'generator':{'kind':'constant','value':3}")));
    ck_assert_uint_eq(g->parameter_count, 0);
    ck_assert_uint_eq(load_le16(g->values[g->nodes[0].inputs[1].n].source.bytes), 0x4200);
}
END_TEST

static int open_file(void *arg, const char *label, struct err *err) {
    return open(arg, O_RDONLY | O_CLOEXEC);
}

/* Read whether the node that raises to it stands first or last; its bytes are in the key. */
START_TEST(exponent_from_a_file) {
    const char *header = "{\"e\":{\"dtype\":\"F16\",\"shape\":[6],\"data_offsets\":[0,12]}}";
    char path[] = "/tmp/ipud-test-graph-XXXXXX";
    int fd = mkstemp(path);
    uint8_t size[8];
    ck_assert_int_ge(fd, 0);
    store_le64(size, strlen(header));
    ck_assert_int_eq(write(fd, size, 8), 8);
    ck_assert_int_eq(write(fd, header, strlen(header)), (ssize_t)strlen(header));
    for (uint8_t i = 0; i < 6; i++) {
        ck_assert_int_eq(write(fd, "\0\x40", 2), 2); /* 2.0 */
    }
    close(fd);
    struct graph *g =
        load_with(MODEL("Pow", "'x','e'", "", "'r'", EXPONENT("'file':'w.st'")), open_file, path);
    unlink(path);
    struct digest a = key_of(g);
    struct digest b =
        key_of(load(MODEL("Pow", "'x','e'", "", "'r'", EXPONENT("'values':[2,2,2,2,2,2]"))));
    ck_assert(digest_equal(&a, &b));
}
END_TEST

/* ---- For those who read a graph ----------------------------------------------------------- */

START_TEST(slices_are_resolved) {
    struct graph *g = load(MODEL(
        "Slice", "'x','a','b','c','d'", "", "'r'",
        INTS("a", "3", "-1,1,99") "," INTS("b", "3", "-99,3,0") "," INTS(
            "c", "3", "3,-3,2") "," INTS("d", "3", "-2,2,-9223372036854775808")));
    int64_t start[TENSOR_MAX_DIMS];
    int64_t step[TENSOR_MAX_DIMS];
    char text[160];
    graph_slice(g, &g->nodes[0], start, step);
    ck_assert_int_eq(start[0], 0);
    ck_assert_int_eq(start[1], 1);
    ck_assert_int_eq(start[2], 3);
    ck_assert_int_eq(start[3], 5);
    ck_assert_int_eq(step[0], 1);
    ck_assert_int_eq(step[1], 2);
    ck_assert_int_lt(step[2], -4);
    ck_assert_int_eq(step[3], -2);
    ck_assert_str_eq(
        shape_print(&g->values[g->outputs[0].n].shape, text, sizeof text), "[2,1,1,3]");
}
END_TEST

START_TEST(axes_are_resolved) {
    static const struct {
        const char *model;
        int named; /* bit an axis */
    } cases[] = {
        {MODEL("ReduceMax", "'x','a'", "", "'r'", INTS("a", "2", "-1,0")), 9},
        {MODEL("ReduceMax", "'x'", "", "'r'", ""), 15},
        {MODEL("ReduceMax", "'x'", "'noop_with_empty_axes':1", "'r'", ""), 0},
        {MODEL("Squeeze", "'z'", "", "'r'", ""), 8},
        {MODEL("Squeeze", "'z','a'", "", "'r'", INTS("a", "1", "-1")), 8},
        {MODEL("Unsqueeze", "'x','a'", "", "'r'", INTS("a", "2", "-1,2")), 36},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bool is_named[TENSOR_MAX_DIMS];
        struct graph *g = load(cases[i].model);
        graph_axes(g, &g->nodes[0], is_named);
        for (int k = 0; k < TENSOR_MAX_DIMS; k++) {
            ck_assert_msg(is_named[k] == (cases[i].named >> k & 1), "case %zu, axis %d", i, k);
        }
    }
}
END_TEST

/* ---- Damage and memory -------------------------------------------------------------------- */

#define SEVERAL                                                                                    \
    "{'inputs':[" INPUT("x", "[2,3,4,6]") "],'initializers':[" INTS("a", "2", "2,-1") "," INTS(    \
        "s", "2", "2,4") "," EXPONENT("'generator':{'kind':'constant','value':"                    \
                                      "2}") "],"                                                   \
                                            "'nodes':[{'op_type':'Split','"                        \
                                            "inputs':['x','s'],'outputs':['p','"                   \
                                            "q'],'attributes':{'axis':3}},"                        \
                                            "{'op_type':'Transpose','inputs':['"                   \
                                            "x'],'outputs':['t']},"                                \
                                            "{'op_type':'Attention','inputs':['"                   \
                                            "x','x','x'],'outputs':['y']},"                        \
                                            "{'op_type':'Pow','inputs':['y','e']"                  \
                                            ",'outputs':['z']},"                                   \
                                            "{'op_type':'Reshape','inputs':['z',"                  \
                                            "'a'],'outputs':['r']}],'outputs':['"                  \
                                            "q','t','r']}"

START_TEST(verify_finds_damage) {
    for (int damage = 0; damage < 8; damage++) {
        struct graph *g = load(SEVERAL);
        struct err e = {0};
        struct graph_node *split = &g->nodes[0];
        struct graph_node *reshape = &g->nodes[g->node_count - 1];
        ck_assert_int_eq(graph_verify(g, &e), 0);
        ck_assert_int_eq(split->op, GRAPH_OP_Split);
        switch (damage) {
        case 0: split->output_count = 1; break;
        case 1: split->output_count = 17; break;
        case 2: g->values[split->outputs[1].n].shape.dim[3] = 5; break;
        case 3: g->values[reshape->inputs[1].n].source.bytes = NULL; break;
        case 4: g->values[reshape->inputs[1].n].is_hashed_constant = false; break;
        case 5: reshape->inputs[1] = reshape->inputs[0]; break;
        case 6: g->nodes[0].op = GRAPH_OP_COUNT; break;
        case 7: g->nodes[1].attrs[0].count = 3; break;
        }
        ck_assert_msg(graph_verify(g, &e) < 0, "damage %d", damage);
        ck_assert_uint_gt(strlen(e.text), 5);
    }
}
END_TEST

/* Allocation 1, 2, 3 ... fails until none does. */
START_TEST(every_allocation_may_fail) {
    json_t *json = quoted_json(SEVERAL);
    struct err e = {0};
    volatile uint64_t n = ARENA_FAIL_NOW;
    volatile bool is_done = false;
    while (!is_done) {
        struct graph *made = NULL;
        arena_done(&arena);
        arena_init(&arena, 64 << 20);
        arena.fail_after = n;
        if (ARENA_RECOVER(&arena) == 0) {
            int r = graph_load(json, NULL, NULL, &arena, &made, &e);
            ck_assert(r == 0 || r == -ERR_NOMEM);
            is_done = r == 0;
        }
        ck_assert_uint_lt(n == ARENA_FAIL_NOW ? 0 : n, 10000);
        n = n == ARENA_FAIL_NOW ? 1 : n + 1;
    }
    ck_assert_uint_gt(n, 20);
    json_decref(json);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("graph_ops");
    TCase *t = tcase_create("graph_ops");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, key, 0, (int)(sizeof pairs / sizeof pairs[0]));
    tcase_add_test(t, key_forgets_dropped_exponents);
    tcase_add_test(t, exponent_from_a_file);
    tcase_add_test(t, slices_are_resolved);
    tcase_add_test(t, axes_are_resolved);
    tcase_add_test(t, verify_finds_damage);
    tcase_add_test(t, every_allocation_may_fail);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
