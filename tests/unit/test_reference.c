/* The reference: operators against hand-computed values and identities, tolerance, comparison. */
#include <check.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "quoted.h"
#include "reference/reference.h"

static struct arena arena;

static void setup(void) {
    arena_init(&arena, 16 << 20);
}

static void teardown(void) {
    arena_done(&arena);
}

static struct graph *load(const char *format, ...) {
    char text[4096];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    quoted(text);
    struct err e = {0};
    struct graph *g = NULL;
    struct graph *c = NULL;
    json_error_t fault;
    json_t *json = json_loads(text, 0, &fault);
    ck_assert_msg(json != NULL, "%s: %s", fault.text, text);
    ck_assert_msg(graph_load(json, NULL, NULL, &arena, &g, &e) == 0, "%s: %s", e.where, e.text);
    json_decref(json);
    ck_assert_int_eq(graph_canonical(g, &arena, &c, NULL, NULL, &e), 0);
    return c;
}

static struct tensor_set eval(const struct graph *g) {
    struct err e = {0};
    struct tensor_set out;
    struct reference_data data = {0};
    ck_assert_msg(reference_eval(g, &data, &out, &e) == 0, "%s", e.text);
    return out;
}

static double at(const struct tensor_set *s, uint64_t i) {
    return tensor_get(DTYPE_DOUBLE, s->items[0].bytes, i);
}

#define NEAR(a, b) ck_assert_msg(fabs((a) - (b)) <= 1e-12 * (1 + fabs(b)), "%.17g, not %.17g", a, b)

/* One node on inline float32 tensors a, b, c. */
static const struct {
    const char *op, *attributes, *inputs;
    const char *a_shape, *a, *b_shape, *b;
    int n;
    double want[16];
} rows[] = {
    {"MatMul",
     "{}",
     "['a','b']",
     "[2,3]",
     "[1,2,3,4,5,6]",
     "[3,2]",
     "[7,8,9,10,11,12]",
     4,
     {58, 64, 139, 154}},
    {"MatMul", "{}", "['a','b']", "[3]", "[1,2,3]", "[3,2]", "[7,8,9,10,11,12]", 2, {58, 64}},
    {"MatMul", "{}", "['a','b']", "[2,3]", "[1,2,3,4,5,6]", "[3]", "[7,8,9]", 2, {50, 122}},
    {"MatMul", "{}", "['a','b']", "[3]", "[1,2,3]", "[3]", "[4,5,6]", 1, {32}},
    {"MatMul", "{}", "['a','b']", "[2,1,2]", "[1,2,3,4]", "[2,1]", "[5,6]", 2, {17, 39}},
    {"MatMul", "{}", "['a','b']", "[1,2]", "[1,2]", "[2,2,1]", "[5,6,7,8]", 2, {17, 23}},
    {"MatMul",
     "{}",
     "['a','b']",
     "[2,1,1,2]",
     "[1,2,3,4]",
     "[2,2,1]",
     "[5,6,7,8]",
     4,
     {17, 23, 39, 53}},
    {"MatMul",
     "{}",
     "['a','b']",
     "[2]",
     "[1,2]",
     "[2,2,2]",
     "[1,2,3,4,5,6,7,8]",
     4,
     {7, 10, 19, 22}},
    {"MatMul",
     "{}",
     "['a','b']",
     "[2,2,2]",
     "[1,2,3,4,5,6,7,8]",
     "[2]",
     "[1,2]",
     4,
     {5, 11, 17, 23}},
    {"Gemm",
     "{}",
     "['a','b']",
     "[2,3]",
     "[1,2,3,4,5,6]",
     "[3,2]",
     "[7,8,9,10,11,12]",
     4,
     {58, 64, 139, 154}},
    {"Gemm",
     "{'transA':1}",
     "['a','b']",
     "[3,2]",
     "[1,4,2,5,3,6]",
     "[3,2]",
     "[7,8,9,10,11,12]",
     4,
     {58, 64, 139, 154}},
    {"Gemm",
     "{'transB':1}",
     "['a','b']",
     "[2,3]",
     "[1,2,3,4,5,6]",
     "[2,3]",
     "[7,9,11,8,10,12]",
     4,
     {58, 64, 139, 154}},
    {"Gemm",
     "{'transA':1,'transB':1,'alpha':0.5}",
     "['a','b']",
     "[3,2]",
     "[1,4,2,5,3,6]",
     "[2,3]",
     "[7,9,11,8,10,12]",
     4,
     {29, 32, 69.5, 77}},
    {"Gemm",
     "{'beta':2}",
     "['a','a','b']",
     "[2,2]",
     "[1,2,3,4]",
     "[2]",
     "[10,20]",
     4,
     {27, 50, 35, 62}},
    {"Gemm", "{}", "['a','a','b']", "[2,2]", "[1,2,3,4]", "[2,1]", "[10,20]", 4, {17, 20, 35, 42}},
    {"Gemm",
     "{'beta':-1,'alpha':0}",
     "['a','a','b']",
     "[2,2]",
     "[1,2,3,4]",
     "[1]",
     "[10]",
     4,
     {-10, -10, -10, -10}},
    {"Add",
     "{}",
     "['a','b']",
     "[2,3]",
     "[1,2,3,4,5,6]",
     "[3]",
     "[10,20,30]",
     6,
     {11, 22, 33, 14, 25, 36}},
    {"Add",
     "{}",
     "['b','a']",
     "[2,3]",
     "[1,2,3,4,5,6]",
     "[2,1]",
     "[10,20]",
     6,
     {11, 12, 13, 24, 25, 26}},
    {"Add", "{}", "['a','b']", "[2,1]", "[1,2]", "[3]", "[10,20,30]", 6, {11, 21, 31, 12, 22, 32}},
    {"Add",
     "{}",
     "['a','b']",
     "[2,1,2]",
     "[1,2,3,4]",
     "[2,1]",
     "[10,20]",
     8,
     {11, 12, 21, 22, 13, 14, 23, 24}},
    {"Relu", "{}", "['a']", "[4]", "[-1,0,2,-0.5]", "[1]", "[0]", 4, {0, 0, 2, 0}},
    {"Tanh",
     "{}",
     "['a']",
     "[3]",
     "[0,1,-1]",
     "[1]",
     "[0]",
     3,
     {0, 0.76159415595576489, -0.76159415595576489}},
    {"Sigmoid",
     "{}",
     "['a']",
     "[3]",
     "[0,1,-1]",
     "[1]",
     "[0]",
     3,
     {0.5, 0.73105857863000490, 0.26894142136999510}},
    {"Gelu",
     "{}",
     "['a']",
     "[3]",
     "[0,1,-1]",
     "[1]",
     "[0]",
     3,
     {0, 0.84134474606854293, -0.15865525393145707}},
    {"Gelu",
     "{'approximate':'tanh'}",
     "['a']",
     "[3]",
     "[0,1,-1]",
     "[1]",
     "[0]",
     3,
     {0, 0.84119199060827676, -0.15880800939172324}},
    {"Softmax",
     "{}",
     "['a']",
     "[2,2]",
     "[0,0,1000,1001]",
     "[1]",
     "[0]",
     4,
     {0.5, 0.5, 0.26894142136999510, 0.73105857863000490}},
    {"Softmax",
     "{'axis':0}",
     "['a']",
     "[2,2]",
     "[0,1000,0,1001]",
     "[1]",
     "[0]",
     4,
     {0.5, 0.26894142136999510, 0.5, 0.73105857863000490}},
    {"Softmax",
     "{'axis':1}",
     "['a']",
     "[1,2,2]",
     "[0,1000,0,1001]",
     "[1]",
     "[0]",
     4,
     {0.5, 0.26894142136999510, 0.5, 0.73105857863000490}},
    {"Identity", "{}", "['a']", "[3]", "[1,-2,3]", "[1]", "[0]", 3, {1, -2, 3}},
};

START_TEST(operators_by_hand) {
    struct graph *g = load(
        "{'initializers':["
        "{'name':'a','dtype':'float32','shape':%s,'values':%s},"
        "{'name':'b','dtype':'float32','shape':%s,'values':%s}],"
        "'nodes':[{'op_type':'%s','inputs':%s,'outputs':['y'],"
        "'attributes':%s}],'outputs':['y']}",
        rows[_i].a_shape, rows[_i].a, rows[_i].b_shape, rows[_i].b, rows[_i].op, rows[_i].inputs,
        rows[_i].attributes);
    /* Inline values are parameters, held by the model. */
    struct tensor_set out = eval(g);
    ck_assert_uint_eq(out.items[0].size_bytes, (uint64_t)rows[_i].n * 8);
    for (int i = 0; i < rows[_i].n; i++) {
        NEAR(at(&out, (uint64_t)i), rows[_i].want[i]);
    }
    tensor_set_done(&out);
}
END_TEST

#define RANDOM(NAME, SHAPE, SEED)                                                                  \
    "{'name':'" NAME "','dtype':'float16','shape':" SHAPE                                          \
    ",'generator':{'kind':'normal','seed':" SEED "}}"

/* Both outputs of a graph must agree. */
static const char *const identities[] = {
    /* Gemm with a bias is a product and a sum; transposing both operands transposes the result. */
    "{'initializers':[" RANDOM("x", "[7,13]", "1") "," RANDOM("w", "[13,5]", "2") "," RANDOM(
        "b", "[5]",
        "3") "],'nodes':["
             "{'op_type':'Gemm','inputs':['x','w','b'],'outputs':['p']},"
             "{'op_type':'MatMul','inputs':['x','w'],'outputs':['m']},"
             "{'op_type':'Add','inputs':['b','m'],'outputs':['q']}],'outputs':['p','q']}",
    /* A softmax ignores a shift. */
    "{'initializers':[" RANDOM("x", "[7,13]", "1") "," RANDOM(
        "b", "[7,1]",
        "2") "],'nodes':["
             "{'op_type':'Softmax','inputs':['x'],'outputs':['p']},"
             "{'op_type':'Add','inputs':['x','b'],'outputs':['s']},"
             "{'op_type':'Softmax','inputs':['s'],'outputs':['q']}],'outputs':['p','q']}",
    /* Associativity of the product. */
    "{'initializers':[" RANDOM("x", "[3,4]", "1") "," RANDOM("v", "[4,5]", "2") "," RANDOM(
        "w", "[5,6]",
        "3") "],'nodes':["
             "{'op_type':'MatMul','inputs':['x','v'],'outputs':['xv']},"
             "{'op_type':'MatMul','inputs':['xv','w'],'outputs':['p']},"
             "{'op_type':'MatMul','inputs':['v','w'],'outputs':['vw']},"
             "{'op_type':'MatMul','inputs':['x','vw'],'outputs':['q']}],'outputs':['p','q']}",
};

START_TEST(identities_hold) {
    struct tensor_set out = eval(load("%s", identities[_i]));
    for (uint64_t i = 0; i < out.items[0].size_bytes / 8; i++) {
        NEAR(tensor_get(DTYPE_DOUBLE, out.items[1].bytes, i), at(&out, i));
    }
    tensor_set_done(&out);
}
END_TEST

START_TEST(data_by_ordinal) {
    struct graph *g =
        load("{'inputs':[{'name':'x','dtype':'float16','shape':[2]}],"
             "'initializers':[" RANDOM(
                 "w", "[2]", "1") "],'nodes':["
                                  "{'op_type':'Add','inputs':['x','w'],'outputs':['y']}],"
                                  "'outputs':['y']}");
    uint8_t x[4];
    uint8_t w[4];
    struct err e = {0};
    struct tensor_set out = {0};
    tensor_put(DTYPE_FLOAT16, x, 0, 1);
    tensor_put(DTYPE_FLOAT16, x, 1, 2);
    tensor_put(DTYPE_FLOAT16, w, 0, 0.1); /* as stored: the nearest half */
    tensor_put(DTYPE_FLOAT16, w, 1, 20);
    const uint8_t *inputs[] = {x};
    const uint8_t *parameters[] = {w};
    struct reference_data data = {inputs, parameters, 0};
    ck_assert_int_eq(reference_eval(g, &data, &out, &e), 0);
    ck_assert(at(&out, 0) == 1 + tensor_get(DTYPE_FLOAT16, w, 0));
    ck_assert(at(&out, 1) == 22);
    tensor_set_done(&out);
    data.parameters = NULL; /* the model generates it */
    ck_assert_int_eq(reference_eval(g, &data, &out, &e), 0);
    double first = at(&out, 0);
    tensor_set_done(&out);
    data.seed = 1;
    ck_assert_int_eq(reference_eval(g, &data, &out, &e), 0);
    ck_assert(at(&out, 0) != first);
    tensor_set_done(&out);
    data.inputs = NULL;
    ck_assert_int_eq(reference_eval(g, &data, &out, &e), -ERR_MISSING);
    ck_assert_ptr_nonnull(strstr(e.text, "'x'"));
}
END_TEST

START_TEST(roundings) {
    struct graph *g =
        load("{'inputs':[{'name':'x','dtype':'float16','shape':[4,600]}],'initializers':["
             "{'name':'w','dtype':'float16','shape':[600,8],'generator':{'kind':'normal'}},"
             "{'name':'b','dtype':'float16','shape':[8],'generator':{'kind':'normal'}}],'nodes':["
             "{'op_type':'MatMul','inputs':['x','w'],'outputs':['m']},"
             "{'op_type':'Add','inputs':['m','b'],'outputs':['a']},"
             "{'op_type':'Relu','inputs':['a'],'outputs':['r']},"
             "{'op_type':'Identity','inputs':['m'],'outputs':['i']},"
             "{'op_type':'Add','inputs':['r','i'],'outputs':['s']}],'outputs':['s','i']}");
    ck_assert_uint_eq(reference_roundings(g, 0, false), 3);
    ck_assert_uint_eq(reference_roundings(g, 1, false), 1);
    ck_assert_uint_eq(reference_roundings(g, 0, true), 3 + 32);
    ck_assert(reference_unit(g, 0) == 0x1p-11);
    struct graph *f = load("{'inputs':[{'name':'x','dtype':'float32','shape':[4,600]}],"
                           "'initializers':[{'name':'w','dtype':'float32','shape':[600,8],"
                           "'generator':{'kind':'normal'}}],'nodes':["
                           "{'op_type':'Gemm','inputs':['x','w'],'outputs':['y'],"
                           "'attributes':{'alpha':0.5}}],'outputs':['y']}");
    ck_assert_uint_eq(reference_roundings(f, 0, false), 601);
    ck_assert(reference_unit(f, 0) == 0x1p-24);
}
END_TEST

START_TEST(comparison) {
    struct graph *g = load("{'initializers':[" RANDOM("x", "[50,20]", "1") "," RANDOM(
        "w", "[20,10]",
        "2") "],'nodes':["
             "{'op_type':'MatMul','inputs':['x','w'],'outputs':['y']}],'outputs':['y']}");
    struct tensor_set out = eval(g);
    struct reference_error e;
    uint8_t got[1000];
    double sum = 0;
    for (uint64_t i = 0; i < 500; i++) {
        tensor_put(DTYPE_FLOAT16, got, i, at(&out, i));
        sum += at(&out, i) * at(&out, i);
    }
    reference_compare(g, 0, false, &out.items[0], got, &e);
    ck_assert(e.pass);
    NEAR(e.tolerance, REFERENCE_C * 0x1p-11 * sqrt(sum / 500));
    ck_assert(e.max_abs_error > 0 && e.max_abs_error < e.tolerance);
    ck_assert(e.argmax_equal > 0.9);

    double right = at(&out, 123);
    double slack = e.tolerance + 0x1p-11 * fabs(right);
    tensor_put(DTYPE_FLOAT16, got, 123, right + 0.95 * slack);
    reference_compare(g, 0, false, &out.items[0], got, &e);
    ck_assert(e.pass);
    tensor_put(DTYPE_FLOAT16, got, 123, right + 1.2 * slack);
    reference_compare(g, 0, false, &out.items[0], got, &e);
    ck_assert(!e.pass);
    ck_assert_uint_eq(e.worst_index, 123);
    ck_assert(e.expected == right && e.got == tensor_get(DTYPE_FLOAT16, got, 123));

    store_le16(got + 2 * 77, 0x7e00); /* not a number */
    reference_compare(g, 0, false, &out.items[0], got, &e);
    ck_assert(!e.pass && isinf(e.max_abs_error) && e.worst_index == 77 && isnan(e.got));
    memset(got, 0, sizeof got);
    reference_compare(g, 0, false, &out.items[0], got, &e);
    ck_assert(!e.pass);
    ck_assert(e.argmax_equal < 0.5);
    tensor_set_done(&out);
}
END_TEST

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* A program that rounds each result to half stays inside the tolerance, one that is wrong in one
 * operand element does not: both checked on a net of four layers. */
START_TEST(tolerance_separates) {
    struct graph *exact = load("{'inputs':[" RANDOM(
        "x", "[16,100]",
        "9") "],'initializers':["
             "{'name':'v','dtype':'float16','shape':[100,200],"
             "'generator':{'kind':'normal','seed':1,'scale':0.1}},"
             "{'name':'w','dtype':'float16','shape':[200,40],"
             "'generator':{'kind':'normal','seed':2,'scale':0.1}}],'nodes':["
             "{'op_type':'MatMul','inputs':['x','v'],'outputs':['a']},"
             "{'op_type':'Gelu','inputs':['a'],'outputs':['b']},"
             "{'op_type':'MatMul','inputs':['b','w'],'outputs':['y']}],'outputs':['y']}");
    struct tensor_set want = eval(exact);
    /* The same in halves, node by node, each result rounded. */
    static double a[16 * 200];
    static uint8_t got[16 * 40 * 2];
    static uint8_t x[16 * 100 * 2], v[100 * 200 * 2], w[200 * 40 * 2], h[2];
    struct err e = {0};
    ck_assert_int_eq(graph_fill(&exact->values[exact->inputs[0].n], 0, 0, 1600, x, &e), 0);
    ck_assert_int_eq(graph_fill(&exact->values[exact->parameters[0].n], 0, 0, 20000, v, &e), 0);
    ck_assert_int_eq(graph_fill(&exact->values[exact->parameters[1].n], 0, 0, 8000, w, &e), 0);
    for (uint64_t m = 0; m < 16; m++) {
        for (uint64_t n = 0; n < 200; n++) {
            double sum = 0;
            for (uint64_t k = 0; k < 100; k++) {
                sum += tensor_get(DTYPE_FLOAT16, x, m * 100 + k) *
                       tensor_get(DTYPE_FLOAT16, v, k * 200 + n);
            }
            tensor_put(DTYPE_FLOAT16, h, 0, sum);
            sum = tensor_get(DTYPE_FLOAT16, h, 0);
            tensor_put(DTYPE_FLOAT16, h, 0, 0.5 * sum * (1 + erf(sum * M_SQRT1_2)));
            a[m * 200 + n] = tensor_get(DTYPE_FLOAT16, h, 0);
        }
        for (uint64_t n = 0; n < 40; n++) {
            double sum = 0;
            for (uint64_t k = 0; k < 200; k++) {
                sum += a[m * 200 + k] * tensor_get(DTYPE_FLOAT16, w, k * 40 + n);
            }
            tensor_put(DTYPE_FLOAT16, got, m * 40 + n, sum);
        }
    }
    struct reference_error r;
    reference_compare(exact, 0, false, &want.items[0], got, &r);
    ck_assert(r.pass);
    ck_assert(r.max_abs_error < r.tolerance / 2);
    /* One operand element, the median one of its row, missing from one sum. */
    double terms[200];
    for (uint64_t k = 0; k < 200; k++) {
        terms[k] = fabs(a[k] * tensor_get(DTYPE_FLOAT16, w, k * 40));
    }
    qsort(terms, 200, sizeof terms[0], by_size);
    double lost = terms[100];
    tensor_put(DTYPE_FLOAT16, got, 0, at(&want, 0) - lost);
    reference_compare(exact, 0, false, &want.items[0], got, &r);
    ck_assert(!r.pass);
    ck_assert_uint_eq(r.worst_index, 0);
    tensor_set_done(&want);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("reference");
    TCase *t = tcase_create("reference");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, operators_by_hand, 0, (int)(sizeof rows / sizeof rows[0]));
    tcase_add_loop_test(t, identities_hold, 0, (int)(sizeof identities / sizeof identities[0]));
    tcase_add_test(t, data_by_ordinal);
    tcase_add_test(t, roundings);
    tcase_add_test(t, comparison);
    tcase_add_test(t, tolerance_separates);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
