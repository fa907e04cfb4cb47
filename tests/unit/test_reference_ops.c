/* The reference's operators of a transformer: values worked out by hand, and identities between an
 * operator and the others that it is made of. */
#include <check.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "quoted.h"
#include "reference/reference.h"
#include "tests/support/random_graph.h"

static struct arena arena;

static void setup(void) {
    arena_init(&arena, 16 << 20);
}

static void teardown(void) {
    arena_done(&arena);
}

static struct graph *load(const char *text) {
    struct err e = {0};
    struct graph *g = NULL;
    struct graph *c = NULL;
    json_error_t fault;
    json_t *json = json_loads(text, JSON_REJECT_DUPLICATES, &fault);
    ck_assert_msg(json != NULL, "%s: %s", fault.text, text);
    ck_assert_msg(graph_load(json, NULL, NULL, &arena, &g, &e) == 0, "%s: %s", e.where, e.text);
    json_decref(json);
    ck_assert_msg(graph_canonical(g, &arena, &c, NULL, NULL, &e) == 0, "%s", e.text);
    return c;
}

static struct tensor_set eval(const struct graph *g) {
    struct err e = {0};
    struct tensor_set out;
    struct reference_data data = {0};
    ck_assert_msg(reference_eval(g, &data, &out, &e) == 0, "%s", e.text);
    return out;
}

#define NEAR(a, b) ck_assert_msg(fabs((a) - (b)) <= 1e-12 * (1 + fabs(b)), "%.17g, not %.17g", a, b)

#define MOST_OPERANDS 5

/* An operand: letter of the type (f float32, h float16, i int64, j int32), shape, values; "-" when
 * absent. `want` has the results one after the other. */
static const struct {
    const char *op, *attributes;
    const char *operands[MOST_OPERANDS];
    const char *shapes; /* of the results */
    int n;
    double want[24];
} rows[] = {
    {"Sub", "", {"f [2,3] [1,2,3,4,5,6]", "f [3] [1,1,2]"}, "[2,3]", 6, {0, 1, 1, 3, 4, 4}},
    {"Mul", "", {"f [2,1] [2,3]", "f [3] [1,10,100]"}, "[2,3]", 6, {2, 20, 200, 3, 30, 300}},
    {"Div", "", {"f [3] [1,2,3]", "f [2,1] [2,-4]"}, "[2,3]", 6, {0.5, 1, 1.5, -0.25, -0.5, -0.75}},
    {"Pow", "", {"f [3] [1,2,-3]", "f [] [2]"}, "[3]", 3, {1, 4, 9}},
    {"Pow", "", {"f [3] [1,2,-3]", "i [] [3]"}, "[3]", 3, {1, 8, -27}},
    {"Pow", "", {"h [3] [4,4,4]", "f [2,1] [0.5,-1]"}, "[2,3]", 6, {2, 2, 2, .25, .25, .25}},
    {"Max", "", {"f [3] [1,5,3]", "f [1] [2]", "f [2,1] [4,0]"}, "[2,3]", 6, {4, 5, 4, 2, 5, 3}},
    {"Min", "", {"f [3] [1,5,3]", "f [1] [2]", "f [2,1] [4,0]"}, "[2,3]", 6, {1, 2, 2, 0, 0, 0}},
    {"Max", "", {"f [2] [1,-1]"}, "[2]", 2, {1, -1}},
    {"Sqrt", "", {"f [3] [0,4,2]"}, "[3]", 3, {0, 2, 1.4142135623730951}},
    {"Neg", "", {"f [2] [1,-2]"}, "[2]", 2, {-1, 2}},
    {"Exp", "", {"f [3] [0,1,-1]"}, "[3]", 3, {1, 2.7182818284590452, 0.36787944117144233}},
    {"Reciprocal", "", {"f [3] [1,2,-4]"}, "[3]", 3, {1, 0.5, -0.25}},
    {"Cast", "'to':10", {"f [2] [1.5,2049]"}, "[2]", 2, {1.5, 2049}}, /* nothing is rounded */
    {"Cast", "'to':'float32'", {"h [2] [1.5,2]"}, "[2]", 2, {1.5, 2}},

    {"ReduceMean", "", {"f [2,3] [1,2,3,4,5,6]", "i [1] [1]"}, "[2,1]", 2, {2, 5}},
    {"ReduceMean",
     "'keepdims':0",
     {"f [2,3] [1,2,3,4,5,6]", "i [1] [-2]"},
     "[3]",
     3,
     {2.5, 3.5, 4.5}},
    {"ReduceMean", "", {"f [2,3] [1,2,3,4,5,6]"}, "[1,1]", 1, {3.5}},
    {"ReduceMean", "'keepdims':0", {"f [2,3] [1,2,3,4,5,6]"}, "[]", 1, {3.5}},
    {"ReduceSum", "'noop_with_empty_axes':1", {"f [3] [1,2,3]"}, "[3]", 3, {1, 2, 3}},
    {"ReduceSum",
     "'keepdims':0",
     {"f [2,2,2] [1,2,3,4,5,6,7,8]", "i [2] [2,0]"},
     "[2]",
     2,
     {14, 22}},
    {"ReduceMax", "", {"f [2,3] [-1,-2,-3,4,6,5]", "i [1] [-1]"}, "[2,1]", 2, {-1, 6}},
    {"ReduceMax", "'keepdims':0", {"f [2,3] [-1,-2,-3,4,6,5]", "i [1] [0]"}, "[3]", 3, {4, 6, 5}},

    {"LayerNormalization",
     "'epsilon':2.75",
     {"f [1,4] [1,2,3,4]", "f [4] [1,1,1,1]"},
     "[1,4]",
     4,
     {-0.75, -0.25, 0.25, 0.75}},
    {"LayerNormalization",
     "'epsilon':0",
     {"f [1,4] [1,2,3,4]", "f [1,1] [2]", "f [4] [0,0,10,10]"},
     "[1,4]",
     4,
     {-2.6832815729997477, -0.89442719099991588, 10.894427190999916, 12.683281572999748}},
    {"LayerNormalization",
     "'axis':0,'epsilon':2.75",
     {"f [2,2] [1,2,3,4]", "f [2] [1,2]"},
     "[2,2]",
     4,
     {-0.75, -0.5, 0.25, 1.5}},
    {"LayerNormalization",
     "'epsilon':0.75",
     {"f [2,2] [1,2,3,4]", "f [2,1] [1,2]"},
     "[2,2]",
     4,
     {-0.5, 0.5, -1, 1}},

    {"Attention",
     "",
     {"f [1,1,1,2] [0,0]", "f [1,1,2,2] [1,2,3,4]", "f [1,1,2,1] [1,3]"},
     "[1,1,1,1]",
     1,
     {2}},
    {"Attention",
     "'scale':1",
     {"f [1,1,1,2] [1,0]", "f [1,1,2,2] [1,7,0,9]", "f [1,1,2,1] [0,1]"},
     "[1,1,1,1]",
     1,
     {0.26894142136999512}},
    {"Attention",
     "", /* scale 1/2 */
     {"f [1,1,1,4] [2,0,0,0]", "f [1,1,2,4] [1,0,0,0,0,0,0,0]", "f [1,1,2,2] [0,5,1,5]"},
     "[1,1,1,2]",
     2,
     {0.26894142136999512, 5}},
    {"Attention",
     "'q_num_heads':2,'kv_num_heads':2",
     {"f [1,1,2] [0,1]", "f [1,2,2] [0,1,0,0]", "f [1,2,2] [1,0,3,1]"},
     "[1,1,2]",
     2,
     {2, 0.26894142136999512}},
    {"Attention",
     "", /* four heads share two */
     {"f [1,4,1,1] [0,1,2,3]", "f [1,2,1,1] [1,1]", "f [1,2,1,1] [1,5]"},
     "[1,4,1,1]",
     4,
     {1, 1, 5, 5}},
    {"Attention",
     "'q_num_heads':4,'kv_num_heads':2",
     {"f [2,1,4] [0,1,2,3,0,1,2,3]", "f [2,1,2] [1,1,1,1]", "f [2,1,4] [1,2,5,6,3,4,7,8]"},
     "[2,1,8]",
     16,
     {1, 2, 1, 2, 5, 6, 5, 6, 3, 4, 3, 4, 7, 8, 7, 8}},

    {"Conv",
     "'strides':[2,2]",
     {"f [1,1,4,4] [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]", "f [1,1,2,2] [1,0,0,1]",
      "f [1] [100]"},
     "[1,1,2,2]",
     4,
     {107, 111, 123, 127}},
    {"Conv",
     "'strides':[2],'kernel_shape':[2],'pads':[0,0]",
     {"f [1,2,4] [1,2,3,4,10,20,30,40]", "f [2,2,2] [1,0,0,1,0,1,0,0]"},
     "[1,2,2]",
     4,
     {21, 43, 2, 4}},
    {"Conv", "'strides':[3]", {"f [1,1,5] [1,2,3,4,5]", "f [1,1,3] [1,1,1]"}, "[1,1,1]", 1, {6}},

    {"Reshape", "", {"f [2,3] [1,2,3,4,5,6]", "i [2] [3,-1]"}, "[3,2]", 6, {1, 2, 3, 4, 5, 6}},
    {"Reshape", "", {"f [2,3] [1,2,3,4,5,6]", "i [3] [0,1,3]"}, "[2,1,3]", 6, {1, 2, 3, 4, 5, 6}},
    {"Transpose", "", {"f [2,3] [1,2,3,4,5,6]"}, "[3,2]", 6, {1, 4, 2, 5, 3, 6}},
    {"Transpose", "'perm':[1,2,0]", {"f [2,1,3] [1,2,3,4,5,6]"}, "[1,3,2]", 6, {1, 4, 2, 5, 3, 6}},
    {"Transpose", "'perm':[1,0,2]", {"f [2,3,1] [1,2,3,4,5,6]"}, "[3,2,1]", 6, {1, 4, 2, 5, 3, 6}},
    {"Squeeze", "", {"f [1,2,1] [1,2]"}, "[2]", 2, {1, 2}},
    {"Squeeze", "", {"f [1,2,1] [1,2]", "i [1] [-1]"}, "[1,2]", 2, {1, 2}},
    {"Unsqueeze", "", {"f [2] [1,2]", "i [2] [0,-1]"}, "[1,2,1]", 2, {1, 2}},
    {"Slice",
     "",
     {"f [4] [1,2,3,4]", "i [1] [-3]", "i [1] [9223372036854775807]"},
     "[3]",
     3,
     {2, 3, 4}},
    {"Slice",
     "",
     {"f [4] [1,2,3,4]", "i [1] [99]", "i [1] [-9223372036854775808]", "i [1] [0]", "i [1] [-2]"},
     "[2]",
     2,
     {4, 2}},
    {"Slice",
     "",
     {"f [2,3] [1,2,3,4,5,6]", "j [2] [1,0]", "j [2] [3,1]", "j [2] [-1,0]", "j [2] [1,1]"},
     "[1,2]",
     2,
     {2, 3}},
    {"Slice",
     "",
     {"f [2,3] [1,2,3,4,5,6]", "i [1] [2]", "i [1] [3]", "i [1] [1]",
      "i [1] [9223372036854775807]"},
     "[2,1]",
     2,
     {3, 6}},
    {"Slice",
     "",
     {"f [2,3] [1,2,3,4,5,6]", "i [2] [1,0]", "i [2] [2,-1]", "-", "i [2] [1,2]"},
     "[1,1]",
     1,
     {4}},
    {"Split", "'num_outputs':2", {"f [5] [1,2,3,4,5]"}, "[3][2]", 5, {1, 2, 3, 4, 5}},
    {"Split",
     "'axis':-1",
     {"f [2,3] [1,2,3,4,5,6]", "i [2] [1,2]"},
     "[2,1][2,2]",
     6,
     {1, 4, 2, 3, 5, 6}},
    {"Concat",
     "'axis':1",
     {"f [2,1] [1,2]", "f [2,2] [3,4,5,6]", "f [2,1] [7,8]"},
     "[2,4]",
     8,
     {1, 3, 4, 7, 2, 5, 6, 8}},
    {"Concat", "'axis':-2", {"f [1,2] [1,2]", "f [2,2] [3,4,5,6]"}, "[3,2]", 6, {1, 2, 3, 4, 5, 6}},
    {"Gather", "", {"f [3,2] [1,2,3,4,5,6]", "i [2] [2,0]"}, "[2,2]", 4, {5, 6, 1, 2}},
    {"Gather", "'axis':1", {"f [2,3] [1,2,3,4,5,6]", "j [] [-1]"}, "[2]", 2, {3, 6}},
    {"Gather", "'axis':1", {"f [2,3] [1,2,3,4,5,6]", "i [2,1] [0,-2]"}, "[2,2,1]", 4, {1, 2, 4, 5}},
};

static void print_operand(FILE *out, const char *text, int index, const char *separator) {
    static const char *const types[] = {
        ['f'] = "float32", ['h'] = "float16", ['i'] = "int64", ['j'] = "int32"};
    const char *values = strchr(text + 2, ' ');
    fprintf(
        out, "%s{\"name\":\"v%d\",\"dtype\":\"%s\",\"shape\":%.*s,\"values\":%s}", separator, index,
        types[(unsigned char)text[0]], (int)(values - text - 2), text + 2, values);
}

/* The row as a model; free(). */
static char *model_of(size_t row) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    const char *separator = "";
    fprintf(out, "{\"initializers\":[");
    for (int i = 0; i < MOST_OPERANDS && rows[row].operands[i] != NULL; i++) {
        if (rows[row].operands[i][0] != '-') {
            print_operand(out, rows[row].operands[i], i, separator);
            separator = ",";
        }
    }
    fprintf(out, "],\"nodes\":[{\"op_type\":\"%s\",\"inputs\":[", rows[row].op);
    for (int i = 0; i < MOST_OPERANDS && rows[row].operands[i] != NULL; i++) {
        bool is_absent = rows[row].operands[i][0] == '-';
        fprintf(out, is_absent ? "%s\"\"" : "%s\"v%d\"", i > 0 ? "," : "", i);
    }
    fprintf(out, "],\"attributes\":{");
    for (const char *p = rows[row].attributes; *p != '\0'; p++) {
        fputc(*p == '\'' ? '"' : *p, out);
    }
    const char *results = strchr(rows[row].shapes, ']')[1] == '\0' ? "\"y\"" : "\"y\",\"z\"";
    fprintf(out, "},\"outputs\":[%s]}],\"outputs\":[%s]}", results, results);
    fclose(out);
    return text;
}

START_TEST(operators_by_hand) {
    char *text = model_of((size_t)_i);
    struct tensor_set out = eval(load(text));
    char shapes[400] = "";
    int n = 0;
    for (size_t k = 0; k < out.count; k++) {
        const struct tensor *t = &out.items[k];
        size_t used = strlen(shapes);
        shape_print(&t->shape, shapes + used, sizeof shapes - used);
        for (uint64_t i = 0; i < t->size_bytes / 8; i++) {
            ck_assert_msg(n < rows[_i].n, "%s", text);
            double has = tensor_get(DTYPE_DOUBLE, t->bytes, i);
            ck_assert_msg(
                fabs(has - rows[_i].want[n]) <= 1e-12 * (1 + fabs(has)), "%d: %.17g, not %.17g: %s",
                n, has, rows[_i].want[n], text);
            n++;
        }
    }
    ck_assert_int_eq(n, rows[_i].n);
    ck_assert_msg(strcmp(shapes, rows[_i].shapes) == 0, "%s: %s", shapes, text);
    free(text);
    tensor_set_done(&out);
}
END_TEST

/* ---- Identities -------------------------------------------------------------------------- */

#define T(NAME, SHAPE, SEED)                                                                       \
    "{'name':'" NAME "','dtype':'float16','shape':" SHAPE                                          \
    ",'generator':{'kind':'normal','seed':" SEED "}}"
#define LIST(NAME, COUNT, VALUES)                                                                  \
    "{'name':'" NAME "','dtype':'int64','shape':[" COUNT "],'values':[" VALUES "]}"
#define NODE(OP, INPUTS, OUTPUTS, ATTRIBUTES)                                                      \
    "{'op_type':'" OP "','inputs':[" INPUTS "],'outputs':[" OUTPUTS "],'attributes':{" ATTRIBUTES  \
    "}}"
#define MODEL(TENSORS, NODES)                                                                      \
    "{'initializers':[" TENSORS "],'nodes':[" NODES "],'outputs':['p','q']}"

/* Both outputs of a model must agree. */
static const char *const identities[] = {
    /* Attention is two products around a softmax. */
    MODEL(
        T("a", "[2,3,5,4]", "1") "," T("b", "[2,3,7,4]", "2") "," T(
            "c", "[2,3,7,6]", "3") ","
                                   "{'name':'s','dtype':'float16','shape':[],'values':[0.5]}",
        NODE("Attention", "'a','b','c'", "'p'", "") "," NODE("Transpose", "'b'", "'bt'", "'perm':[0,1,3,2]") "," NODE(
            "MatMul", "'a','bt'", "'ab'",
            "") "," NODE("Mul", "'ab','s'", "'scaled'", "") "," NODE("Softmax", "'scaled'", "'w'", "") "," NODE("MatMul", "'w','c'", "'q'", "")),
    /* Three dimensions are heads beside each other. */
    MODEL(
        T("a", "[2,5,12]", "1") "," T("b", "[2,7,6]", "2") "," T("c", "[2,7,10]", "3") "," LIST(
            "sa", "4", "0,0,4,3") "," LIST("sb", "4", "0,0,2,-1") "," LIST("sy", "3", "0,0,-1"),
        NODE("Attention", "'a','b','c'", "'p'", "'q_num_heads':4,'kv_num_heads':2,'scale':0.25") "," NODE("Reshape", "'a','sa'", "'a4'", "") "," NODE(
            "Reshape", "'b','sb'", "'b4'",
            "") "," NODE("Reshape", "'c','sb'", "'c4'", "") "," NODE("Transpose", "'a4'", "'ah'", "'perm':[0,2,1,3]") "," NODE("Transpose", "'b4'", "'bh'", "'perm':[0,2,1,3]") "," NODE("Transpose", "'c4'", "'ch'", "'perm':[0,2,1,3]") "," NODE("Attention", "'ah','bh','ch'", "'yh'", "'scale':0.25") "," NODE("Transpose", "'yh'", "'y4'", "'perm':[0,2,1,3]") "," NODE("Reshape", "'y4','sy'", "'q'", "")),
    /* A normalisation from means. */
    MODEL(
        T("x", "[3,5,7]", "1") "," T("s", "[1,1,7]", "2") "," T("b", "[7]", "3") "," LIST(
            "last", "1", "-1") ","
                               "{'name':'e','dtype':'float16','shape':[],'values':[0.25]},"
                               "{'name':'two','dtype':'float32','shape':[1],'values':[2]}",
        NODE("LayerNormalization", "'x','s','b'", "'p'", "'epsilon':0.25") "," NODE("ReduceMean", "'x','last'", "'m'", "") "," NODE("Sub", "'x','m'", "'d'", "") "," NODE("Pow", "'d','two'", "'d2'", "") "," NODE("ReduceMean", "'d2','last'", "'v'", "") "," NODE(
            "Add", "'v','e'", "'ve'",
            "") "," NODE("Sqrt", "'ve'", "'sd'", "") "," NODE("Div", "'d','sd'", "'n'", "") "," NODE("Mul", "'n','s'", "'ns'", "") "," NODE("Add", "'ns','b'", "'q'", "")),
    /* A softmax from exponentials. */
    MODEL(
        T("x", "[3,7]", "1") "," LIST("last", "1", "1"),
        NODE("Softmax", "'x'", "'p'", "") "," NODE("ReduceMax", "'x','last'", "'m'", "") "," NODE("Sub", "'x','m'", "'d'", "") "," NODE(
            "Exp", "'d'", "'e'",
            "") "," NODE("ReduceSum", "'e','last'", "'s'", "") "," NODE("Reciprocal", "'s'", "'r'", "") "," NODE("Mul", "'e','r'", "'q'", "")),
    /* Patches are rows of a product. */
    MODEL(
        T("x", "[2,3,4,6]", "1") "," T("w", "[5,3,2,3]", "2") "," T("b", "[5]", "3") "," LIST(
            "cut", "6",
            "2,3,2,2,2,3") "," LIST("rows", "3", "2,4,18") "," LIST("flat", "2", "5,18") "," LIST("back", "4", "2,5,2,2"),
        NODE("Conv", "'x','w','b'", "'p'", "'strides':[2,3]") "," NODE(
            "Reshape", "'x','cut'", "'x6'", "") "," NODE("Transpose", "'x6'", "'xt'", "'perm':[0,2,4,1,3,5]") "," NODE("Reshape", "'xt','rows'", "'xr'", "") "," NODE("Reshape", "'w','flat'", "'wf'", "") "," NODE("Transpose", "'wf'", "'wt'", "") "," NODE("MatMul", "'xr','wt'", "'m'", "") "," NODE("Add", "'m','b'", "'mb'", "") "," NODE("Transpose", "'mb'", "'mt'", "'perm':[0,2,1]") "," NODE("Reshape", "'mt','back'", "'q'", "")),
    /* Parts put together again, one of them read twice, one not at all. */
    MODEL(
        T("x", "[3,7]", "1") "," LIST("sizes", "3", "2,4,1") "," LIST("from", "1", "2") "," LIST(
            "to", "1", "6") "," LIST("axis", "1", "1") "," LIST("places", "4", "2,-4,4,5"),
        NODE("Split", "'x','sizes'", "'a','b','c'", "'axis':1") "," NODE("Concat", "'b','a','b'", "'p'", "'axis':1") "," NODE(
            "Slice", "'x','from','to','axis'", "'s'",
            "") "," NODE("Gather", "'x','places'", "'g'", "'axis':1") "," NODE("Concat", "'s','a','g'", "'q'", "'axis':1")),
    /* Moves there and back. */
    MODEL(
        T("x", "[3,1,7]", "1") "," LIST("one", "1", "1") "," LIST("ends", "2", "0,3"),
        NODE("Identity", "'x'", "'p'", "") "," NODE("Squeeze", "'x','one'", "'s'", "") "," NODE("Transpose", "'s'", "'t'", "") "," NODE("Unsqueeze", "'t','ends'", "'u'", "") "," NODE(
            "Squeeze", "'u'", "'v'",
            "") "," NODE("Transpose", "'v'", "'w'", "") "," NODE("Unsqueeze", "'w','one'", "'q'", "")),
    /* Smaller and larger add to the sum of both. */
    MODEL(
        T("x", "[3,5]", "1") "," T("y", "[5]", "2"),
        NODE("Add", "'x','y'", "'p'", "") "," NODE("Max", "'x','y'", "'a'", "") "," NODE(
            "Min", "'x','y'", "'b'",
            "") "," NODE("Neg", "'b'", "'n'", "") "," NODE("Sub", "'a','n'", "'q'", "")),
};

START_TEST(identities_hold) {
    char *text = strdup(identities[_i]);
    quoted(text);
    struct tensor_set out = eval(load(text));
    ck_assert(shape_equal(&out.items[0].shape, &out.items[1].shape));
    for (uint64_t i = 0; i < out.items[0].size_bytes / 8; i++) {
        NEAR(
            tensor_get(DTYPE_DOUBLE, out.items[0].bytes, i),
            tensor_get(DTYPE_DOUBLE, out.items[1].bytes, i));
    }
    free(text);
    tensor_set_done(&out);
}
END_TEST

/* ---- Tolerance --------------------------------------------------------------------------- */

/* One operator on operands x [4,6] and, where it takes one, y [6]. */
static const struct {
    const char *op, *attributes, *inputs;
    uint32_t half, single;
} counts[] = {
    {"Sub", "", "\"x\",\"y\"", 1, 1},
    {"Div", "", "\"x\",\"y\"", 2, 2},
    {"Pow", "", "\"x\",\"y\"", 4, 4},
    {"Max", "", "\"x\",\"y\"", 0, 0},
    {"Neg", "", "\"x\"", 0, 0},
    {"Sqrt", "", "\"x\"", 2, 2},
    {"Transpose", "", "\"x\"", 0, 0},
    {"ReduceSum", "", "\"x\"", 1, 24},
    {"ReduceMean", "", "\"x\"", 2, 25},
    {"ReduceMax", "", "\"x\"", 0, 0},
    {"LayerNormalization", "", "\"x\",\"y\"", 4, 9},
    {"LayerNormalization", "", "\"x\",\"y\",\"y\"", 5, 10},
    {"Cast", "\"to\":10", "\"x\"", 0, 1},
    {"Cast", "\"to\":1", "\"x\"", 0, 0},
    {"Attention", "\"q_num_heads\":3,\"kv_num_heads\":3", "\"q\",\"q\",\"q\"", 10, 14},
};

START_TEST(roundings_of_operators) {
    for (int is_single = 0; is_single <= 1; is_single++) {
        char *text = NULL;
        const char *type = is_single ? "float32" : "float16";
        ck_assert_int_gt(
            asprintf(
                &text,
                "{\"inputs\":[{\"name\":\"x\",\"dtype\":\"%s\",\"shape\":[4,6]},"
                "{\"name\":\"y\",\"dtype\":\"%s\",\"shape\":[6]},"
                "{\"name\":\"q\",\"dtype\":\"%s\",\"shape\":[1,4,6]}],"
                "\"nodes\":[{\"op_type\":\"%s\",\"inputs\":[%s],\"outputs\":[\"z\"],"
                "\"attributes\":{%s}}],\"outputs\":[\"z\"]}",
                type, type, type, counts[_i].op, counts[_i].inputs, counts[_i].attributes),
            0);
        ck_assert_uint_eq(
            reference_roundings(load(text), 0, false),
            is_single ? counts[_i].single : counts[_i].half);
        free(text);
    }
}
END_TEST

/* The unit follows the results that an output needs, whichever of a node's results it is. */
START_TEST(unit_of_a_second_result) {
    const struct graph *g =
        load("{\"inputs\":[{\"name\":\"x\",\"dtype\":\"float16\",\"shape\":[4]}],\"nodes\":["
             "{\"op_type\":\"Exp\",\"inputs\":[\"x\"],\"outputs\":[\"e\"]},"
             "{\"op_type\":\"Split\",\"inputs\":[\"e\"],\"outputs\":[\"a\",\"b\"],"
             "\"attributes\":{\"num_outputs\":2}},"
             "{\"op_type\":\"Cast\",\"inputs\":[\"b\"],\"outputs\":[\"c\"],"
             "\"attributes\":{\"to\":1}}],\"outputs\":[\"c\"]}");
    ck_assert(reference_unit(g, 0) == 0x1p-11);
    ck_assert_uint_eq(reference_roundings(g, 0, false), 2);
}
END_TEST

/* ---- Random networks and stored models ---------------------------------------------------- */

static bool is_finite(const struct tensor *t) {
    for (uint64_t i = 0; i < t->size_bytes / 8; i++) {
        if (!isfinite(tensor_get(DTYPE_DOUBLE, t->bytes, i))) {
            return false;
        }
    }
    return true;
}

/* Stored bytes of a generated value, the last bit of about half of its elements turned; free(). */
static uint8_t *disturbed(const struct graph_value *v) {
    struct err e = {0};
    uint64_t elements = 0;
    uint64_t size = 0;
    ck_assert_int_eq(shape_elements(&v->shape, v->dtype, &elements, &size, &e), 0);
    uint8_t *bytes = malloc(size);
    ck_assert_msg(graph_fill(v, 0, 0, elements, bytes, &e) == 0, "%s", e.text);
    uint64_t state = 12345;
    for (uint64_t i = 0; i < elements; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        bytes[i * dtype_bytes(v->dtype)] ^= (uint8_t)(state >> 63);
    }
    return bytes;
}

static struct tensor_set eval_disturbed(const struct graph *g) {
    uint8_t **inputs = calloc(g->input_count + 1, sizeof *inputs);
    uint8_t **parameters = calloc(g->parameter_count + 1, sizeof *parameters);
    struct err e = {0};
    struct tensor_set out;
    for (uint32_t i = 0; i < g->input_count; i++) {
        inputs[i] = disturbed(&g->values[g->inputs[i].n]);
    }
    for (uint32_t i = 0; i < g->parameter_count; i++) {
        parameters[i] = disturbed(&g->values[g->parameters[i].n]);
    }
    struct reference_data data = {
        (const uint8_t *const *)inputs, (const uint8_t *const *)parameters, 0};
    ck_assert_msg(reference_eval(g, &data, &out, &e) == 0, "%s", e.text);
    for (uint32_t i = 0; i < g->input_count; i++) {
        free(inputs[i]);
    }
    for (uint32_t i = 0; i < g->parameter_count; i++) {
        free(parameters[i]);
    }
    free(inputs);
    free(parameters);
    return out;
}

/* Difference of two results in units of the tolerance (reference.h). A bit turned in every second
 * element has 2.4 times the deviation of a rounding: it weighs as six. */
static double share_of_tolerance(
    const struct graph *g, uint32_t ordinal, const struct tensor *a, const struct tensor *b) {
    uint64_t n = a->size_bytes / 8;
    double worst = 0;
    double square = 0;
    for (uint64_t i = 0; i < n; i++) {
        double x = tensor_get(DTYPE_DOUBLE, a->bytes, i);
        square += x * x / (double)n;
        worst = fmax(worst, fabs(x - tensor_get(DTYPE_DOUBLE, b->bytes, i)));
    }
    uint32_t roundings = reference_roundings(g, ordinal, false);
    return worst / (REFERENCE_C * 0x1p-11 * sqrt(roundings + 6.0) * sqrt(square));
}

/* Every seed gives a model that evaluates; together they meet all operators. A last bit of the
 * operands moves the results by less than the tolerance: nothing in these networks amplifies. */
START_TEST(random_networks) {
    bool is_met[GRAPH_OP_COUNT] = {false};
    int several = 0;
    for (uint64_t seed = 0; seed < 300; seed++) {
        char *text = random_graph_all_json(seed);
        char *again = random_graph_all_json(seed);
        ck_assert_ptr_nonnull(text);
        ck_assert_str_eq(text, again);
        free(again);
        struct graph *g = load(text);
        for (uint32_t i = 0; i < g->node_count; i++) {
            is_met[g->nodes[i].op] = true;
        }
        struct tensor_set out = eval(g);
        struct tensor_set moved = eval_disturbed(g);
        several += out.count > 1;
        for (uint32_t i = 0; i < out.count; i++) {
            double share = share_of_tolerance(g, i, &out.items[i], &moved.items[i]);
            ck_assert_msg(is_finite(&out.items[i]), "seed %llu", (unsigned long long)seed);
            ck_assert_msg(
                share < 1, "seed %llu, output %u: %g\n%s", (unsigned long long)seed, i, share,
                text);
        }
        tensor_set_done(&out);
        tensor_set_done(&moved);
        free(text);
        arena_done(&arena);
        arena_init(&arena, 16 << 20);
    }
    for (int i = 0; i < GRAPH_OP_COUNT; i++) {
        ck_assert_msg(is_met[i], "no network has %s", graph_op_name((enum graph_op)i));
    }
    ck_assert_int_gt(several, 40);
}
END_TEST

/* Elements of the result worked out by another program from the model file alone. */
static const struct {
    const char *path;
    double want[5]; /* at 0, 1, 71, 72, 143 */
    double rms;
} stored[] = {
    {"tests/models/vit-small/model.json",
     {0.8622969800977037, 1.0334245300677964, 0.42447911876979366, 0.2521926028793422,
      -0.7127263339922528},
     1.0302095365986266},
    {"tests/models/vit-small-affine/model.json",
     {0.9383557674179737, 1.1343926086191338, 1.5201895080251873, -0.3107520794711895,
      -1.481634615869213},
     1.0702257129209694},
};

START_TEST(stored_transformers) {
    static const uint64_t places[] = {0, 1, 71, 72, 143};
    json_t *json = json_load_file(stored[_i].path, JSON_REJECT_DUPLICATES, NULL);
    ck_assert_msg(json != NULL, "run from the top of the tree: %s", stored[_i].path);
    char *text = json_dumps(json, 0);
    json_decref(json);
    struct graph *g = load(text);
    free(text);
    int nodes[GRAPH_OP_COUNT] = {0};
    for (uint32_t i = 0; i < g->node_count; i++) {
        nodes[g->nodes[i].op]++;
    }
    ck_assert_int_eq(nodes[GRAPH_OP_MatMul], 13);
    ck_assert_int_eq(nodes[GRAPH_OP_Add], 17);
    ck_assert_int_eq(nodes[GRAPH_OP_LayerNormalization], 4);
    ck_assert_int_eq(nodes[GRAPH_OP_Attention], 2);
    ck_assert_int_eq(nodes[GRAPH_OP_Gelu], 2);
    ck_assert_int_eq(nodes[GRAPH_OP_Reshape], 8);
    ck_assert_int_eq(nodes[GRAPH_OP_Transpose], 8);
    ck_assert_uint_eq(g->node_count, 54);
    ck_assert_uint_eq(g->input_count, 1);
    ck_assert_uint_eq(g->parameter_count, 36);
    struct tensor_set out = eval(g);
    char shape[160];
    double square = 0;
    ck_assert_str_eq(shape_print(&out.items[0].shape, shape, sizeof shape), "[1,1,144]");
    for (uint64_t i = 0; i < 144; i++) {
        double x = tensor_get(DTYPE_DOUBLE, out.items[0].bytes, i);
        square += x * x / 144;
    }
    ck_assert_msg(fabs(sqrt(square) - stored[_i].rms) < 1e-12, "%.17g", sqrt(square));
    for (int i = 0; i < 5; i++) {
        double x = tensor_get(DTYPE_DOUBLE, out.items[0].bytes, places[i]);
        ck_assert_msg(fabs(x - stored[_i].want[i]) < 1e-12, "%d: %.17g", i, x);
    }
    tensor_set_done(&out);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("reference_ops");
    TCase *t = tcase_create("reference_ops");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, operators_by_hand, 0, (int)(sizeof rows / sizeof rows[0]));
    tcase_add_loop_test(t, identities_hold, 0, (int)(sizeof identities / sizeof identities[0]));
    tcase_add_loop_test(t, roundings_of_operators, 0, (int)(sizeof counts / sizeof counts[0]));
    tcase_add_test(t, unit_of_a_second_result);
    tcase_add_test(t, random_networks);
    tcase_add_loop_test(t, stored_transformers, 0, (int)(sizeof stored / sizeof stored[0]));
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
