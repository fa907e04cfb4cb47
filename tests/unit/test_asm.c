/* The assembler and linker: the project's instruction vectors word by word, directives, bundles,
 * repeats, macros, links, and every kind of bad source with its place. Runs in the project root. */
#include "asm/asm.h"

#include <check.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/cleanup.h"

#define BASE 0x4c000u

static struct arena arena;

static void set_up(void) {
    arena_init(&arena, 512u << 20);
}

static void tear_down(void) {
    arena_done(&arena);
}

static int
assemble(const char *text, enum isa_unit unit, struct asm_object **ret, struct err *err) {
    struct asm_source source = {"t.S", text, strlen(text)};
    struct asm_def defs[] = {{"ROWS", 12}, {"NEG", -3}};
    return asm_assemble(&source, unit, defs, 2, &arena, ret, err);
}

static int
link_text(const struct asm_object *object, uint32_t addr, struct asm_image **ret, struct err *err) {
    struct asm_placement places[] = {{".text", addr, 0}, {".data", 0x60000, 0}};
    const struct asm_object *objects[] = {object};
    return asm_link(objects, 1, places, 2, NULL, 0, &arena, ret, err);
}

/* Image of one source; fails the test on any error. */
static const struct asm_image *image_of(const char *text, enum isa_unit unit, uint32_t addr) {
    struct asm_object *object;
    struct asm_image *image;
    struct err err = {0};
    ck_assert_msg(assemble(text, unit, &object, &err) == 0, "%s: %s", err.where, err.text);
    ck_assert_msg(link_text(object, addr, &image, &err) == 0, "%s: %s", err.where, err.text);
    return image;
}

/* The words of the first segment are exactly these. */
static void check_words(const char *text, enum isa_unit unit, const uint32_t *words, size_t count) {
    const struct asm_image *image = image_of(text, unit, BASE);
    ck_assert_uint_eq(image->segment_count, 1);
    ck_assert_uint_eq(image->segments[0].size, count * 4);
    for (size_t i = 0; i < count; i++) {
        uint32_t word = load_le32(image->segments[0].bytes + 4 * i);
        ck_assert_msg(
            word == words[i], "%s\nword %zu is %08" PRIx32 ", not %08" PRIx32, text, i, word,
            words[i]);
    }
}
#define CHECK_WORDS(unit, text, ...)                                                               \
    check_words(                                                                                   \
        text, unit, (const uint32_t[]){__VA_ARGS__}, sizeof((const uint32_t[]){__VA_ARGS__}) / 4)

/* ---- vectors ---- */

static uint32_t word_of(const json_t *value) {
    if (json_is_integer(value)) {
        return (uint32_t)json_integer_value(value);
    }
    return (uint32_t)strtoul(json_string_value(value), NULL, 16);
}

/* A vector names its form; text alone would choose another one for some values. */
static const char *forced_suffix(const char *id, const char *text) {
    static const char *const twins[] = {"add", "cmpeq", "max",  "min", "sub",
                                        "or",  "and",   "andc", NULL};
    size_t n = strcspn(text, " ");
    for (int i = 0; twins[i] != NULL; i++) {
        if (strlen(twins[i]) == n && strncmp(text, twins[i], n) == 0 && strncmp(id, text, n) == 0) {
            bool is_shifted =
                strncmp(id + n, ".mmmn_iz", 8) == 0 || strncmp(id + n, ".aaan_iz", 8) == 0;
            return is_shifted ? "iz" : i < 5 && strncmp(id + n, ".mmmn_zi", 8) == 0 ? "z" : "";
        }
    }
    return "";
}

static bool check_vector(const json_t *vector) {
    const char *id = json_string_value(json_object_get(vector, "id"));
    bool is_worker = strcmp(json_string_value(json_object_get(vector, "unit")), "worker") == 0;
    enum isa_unit unit = is_worker ? ISA_WORKER : ISA_SUPERVISOR;
    const json_t *lines = json_object_get(vector, "asm");
    const json_t *words = json_object_get(vector, "words");
    const json_t *pc = json_object_get(json_object_get(vector, "before"), "pc");
    char source[8192] = ".allow_invalid_repeat\n.warn_on_invalid_bundles\n";
    bool has_raw_words = false;
    size_t i;
    const json_t *line;
    json_array_foreach(lines, i, line) {
        const char *text = json_string_value(line);
        has_raw_words = has_raw_words || strncmp(text, ".long", 5) == 0;
        size_t used = strlen(source);
        ck_assert_uint_lt(used + strlen(text) + 4, sizeof source);
        int n = (int)strcspn(text, " ");
        snprintf(
            source + used, sizeof source - used, "%.*s%s%s\n", n, text, forced_suffix(id, text),
            text + n);
    }
    struct asm_object *object;
    struct asm_image *image;
    struct err err = {0};
    struct arena_mark mark = arena_mark(&arena);
    uint32_t addr = (uint32_t)json_integer_value(pc);
    if (assemble(source, unit, &object, &err) < 0 || link_text(object, addr, &image, &err) < 0) {
        ck_abort_msg("%s: %s: %s", id, err.where, err.text);
    }
    bool is_same =
        image->segments[0].size == 4 * json_array_size(words) && image->segments[0].addr == addr;
    for (i = 0; is_same && i < json_array_size(words); i++) {
        uint32_t word = load_le32(image->segments[0].bytes + 4 * i);
        struct insn insn;
        is_same = word == word_of(json_array_get(words, i)) &&
                  (has_raw_words || isa_decode(word, unit, &insn));
    }
    arena_rewind(&arena, mark);
    if (!is_same) {
        printf("%s differs\n%s", id, source);
    }
    return is_same;
}

START_TEST(instruction_vectors) {
    CLEANUP(cleanup_fclose) FILE *file = fopen("tests/vectors/isa-vectors.jsonl", "r");
    ck_assert_ptr_nonnull(file);
    int count = 0, wrong = 0;
    json_t *vector;
    while ((vector = json_loadf(file, JSON_DISABLE_EOF_CHECK, NULL)) != NULL) {
        wrong += !check_vector(vector);
        count++;
        json_decref(vector);
    }
    ck_assert_int_eq(count, 8259);
    ck_assert_int_eq(wrong, 0);
}
END_TEST

static int64_t field(const json_t *fields, const char *name) {
    return json_integer_value(json_object_get(fields, name));
}

/* One entry of the exchange encodings in our syntax. */
static void exchange_text(const char *op, const json_t *f, char *buf, size_t n) {
    long long items = field(f, "items") - 1, events = field(f, "events") - 1;
    long long selector = field(f, "selector"), value = field(f, "value");
    const json_t *stream = json_object_get(f, "stream");
    if (strcmp(op, "delay") == 0) {
        snprintf(buf, n, "delay %lld", events);
    } else if (strcmp(op, "delaypic") == 0 || strcmp(op, "delayxpic") == 0) {
        snprintf(buf, n, "%s %lld, %lld, %lld", op, events, selector, value);
    } else if (strcmp(op, "send") == 0) {
        snprintf(
            buf, n, "send %lld, %lld, %lld", items, (long long)field(f, "address_items"),
            (long long)field(f, "control"));
    } else if (strcmp(op, "sendoff") == 0) {
        snprintf(
            buf, n, "sendoff %lld, %lld, %lld", items, (long long)field(f, "delta"),
            (long long)field(f, "control"));
    } else if (strcmp(op, "sendpic") == 0) {
        bool is_pic = strcmp(json_string_value(stream), "pic") == 0;
        snprintf(buf, n, "sendpic %lld, %lld, %lld", items, selector + (is_pic ? 2 : 0), value);
    } else if (strcmp(op, "sendpicp") == 0) {
        snprintf(
            buf, n, "sendpicp %lld, %lld, %lld, %lld, %lld | %lld << 13, %lld", items,
            (long long)field(f, "address_items"), (long long)field(f, "control"),
            (long long)field(f, "pic_selector"), (long long)field(f, "xpic"),
            (long long)field(f, "xpic_selector"), (long long)field(f, "pic"));
    } else if (strcmp(op, "sync") == 0) {
        snprintf(buf, n, "sync %lld", (long long)field(f, "zone"));
    } else if (strcmp(op, "sans") == 0) {
        snprintf(buf, n, "sans %lld", (long long)field(f, "count"));
    } else if (strcmp(op, "br") == 0) {
        snprintf(buf, n, "br $m%lld", (long long)field(f, "register"));
    } else if (strncmp(op, "put_", 4) == 0) {
        snprintf(
            buf, n, "put %lld, $m%lld", (long long)field(f, "special"),
            (long long)field(f, "register"));
    } else {
        snprintf(buf, n, "%s $m%lld, %lld", op, (long long)field(f, "register"), value);
    }
}

START_TEST(exchange_encodings) {
    json_error_t error;
    json_t *root = json_load_file("tests/vectors/exchange-vectors.json", 0, &error);
    ck_assert_msg(root != NULL, "%s", error.text);
    const json_t *list = json_object_get(root, "encodings"), *entry;
    size_t i;
    ck_assert_uint_eq(json_array_size(list), 67);
    json_array_foreach(list, i, entry) {
        char text[200];
        uint32_t words[2];
        const json_t *word = json_object_get(entry, "word");
        size_t count = json_is_array(word) ? 2 : 1;
        exchange_text(
            json_string_value(json_object_get(entry, "op")), json_object_get(entry, "fields"), text,
            sizeof text);
        words[0] = word_of(count == 2 ? json_array_get(word, 0) : word);
        words[1] = count == 2 ? word_of(json_array_get(word, 1)) : 0;
        check_words(text, ISA_SUPERVISOR, words, count);
    }
    json_decref(root);
}
END_TEST

/* ---- text ---- */

START_TEST(data_and_expressions) {
    CHECK_WORDS(
        ISA_WORKER, ".long 1 + 2 * 3, (1+2)*3, -1, ~0 & 0xff, 'a', '\\n', 0b101, 017\n", 7, 9,
        0xffffffff, 0xff, 97, 10, 5, 15);
    CHECK_WORDS(
        ISA_WORKER, ".long 7 / 2, -7 / 2, 7 % 4, 1 << 4 | 1, 0xf0 ^ 0xff, 3 > 2, 2 >= 3, !5\n", 3,
        0xfffffffd, 3, 17, 15, 1, 0, 0);
    CHECK_WORDS(
        ISA_WORKER, ".long 1 ? 2 : 3, 0 ? 2 : 0 ? 4 : 5, 1 && 0 || 1, 10 - 2 - 3, ROWS*NEG\n", 2, 5,
        1, 5, (uint32_t)-36);
    CHECK_WORDS(
        ISA_WORKER, ".short 1, -2 ; .byte 1, 2, 255, -1 # comment\n .ascii \"ab\\0\\\"\"",
        0xfffe0001, 0xffff0201, 0x22006261);
    CHECK_WORDS(
        ISA_WORKER, ".half 1.0, -2.5h, infh, 7 // comment\n .float 1.5, 2\n .quad -2\n", 0xc1003c00,
        0x00077c00, 0x3fc00000, 0x40000000, 0xfffffffe, 0xffffffff);
    CHECK_WORDS(
        ISA_WORKER, ".byte 1\n.p2align 2\n.long 5 /* a\n b */ , 6\n.skip 3, 9\n.byte 1\n", 1, 5, 6,
        0x01090909);
    CHECK_WORDS(
        ISA_WORKER, "a = 5\n.long a, b - .\na = a + 1\n.long a\nb: .set a, a * 2\n.long a, b\n", 5,
        8, 6, 12, BASE + 12);
}
END_TEST

START_TEST(labels_and_code) {
    CHECK_WORDS(ISA_WORKER, "start: add $m0, $m1, 5\n bri start\n", 0x22100005, 0x40813000);
    CHECK_WORDS(
        ISA_WORKER, "1: brnz $m0, 1f\n1: brnz $m0, 1b\n bri 1b\n", 0x11013001, 0x11013001,
        0x40813001);
    CHECK_WORDS(
        ISA_WORKER, "call $lr, f ; br $lr\n.p2align 4\nf: setzi $m1, f + 4", 0x18a13004, 0x43a00000,
        ISA_NOP_WORD, ISA_NOP_WORD, 0x1914c014);
    CHECK_WORDS(
        ISA_WORKER,
        ".set base, $m3\n.set acc, $a0:1\n ld64step acc, $mzero, base+=, 1\n"
        " ldconst base, 0x12345678\n ldconst $m1, 5\n ldconst $a1, -1\n",
        0x1ef03201, 0x19345678, 0x4233c123, 0x19100005, 0x1a1fffff, 0x5211dfff);
    CHECK_WORDS(
        ISA_WORKER, "{ nop\n fnop }\n { add $m0, $m0, 1 ; f32add $a0, $a1, $a2 }\n", 0x99e00000,
        0x9ad00000, 0xa2000001, 0xd8102000);
    CHECK_WORDS(
        ISA_SUPERVISOR, "sendpicp 42, 0x14021, 1, 0, 0x640, 0x15000\n", 0xf54a0109, 0x19015000);
    CHECK_WORDS(
        ISA_SUPERVISOR, "put $OUTGOING_BASE, $m6\n.worker\nget $m5, $WSR\n", 0x436080a7,
        0x41050001);
}
END_TEST

START_TEST(repeats_of_hardware) {
    CHECK_WORDS(
        ISA_WORKER, " nop\n rpt $m0, ((2f - 1f) / 8) - 1\n1: { nop ; fnop }\n{ nop ; fnop }\n2:\n",
        ISA_NOP_WORD, 0x4300a001, 0x99e00000, 0x9ad00000, 0x99e00000, 0x9ad00000);
    CHECK_WORDS(
        ISA_WORKER, "{ rpt 5, 0 ; fnop }\n{ nop ; fnop }\n", 0xc0000500, 0x9ad00000, 0x99e00000,
        0x9ad00000);
    CHECK_WORDS(ISA_WORKER, ".allow_invalid_repeat\nrpt 5, 0\nnop\n", 0x40000500, ISA_NOP_WORD);
}
END_TEST

START_TEST(text_control) {
    CHECK_WORDS(ISA_WORKER, ".rept 3\n.long 7\n.endr\n", 7, 7, 7);
    CHECK_WORDS(
        ISA_WORKER, "i = 0\n.rept 2\n.rept 2\n.long i\ni = i + 1\n.endr\n.endr\n", 0, 1, 2, 3);
    CHECK_WORDS(ISA_WORKER, ".irp r, 1, (2 + 3), 4\n.long (\\r)\n.endr\n", 1, 5, 4);
    CHECK_WORDS(ISA_WORKER, ".rept 0\n.long 1\n.endr\n.irp r\n.long 1\n.endr\n.long \\\n 8\n", 8);
    CHECK_WORDS(ISA_WORKER, ".irp r, $m1, $m2\nadd \\r, \\r, 1\n.endr\n", 0x22110001, 0x22220001);
}
END_TEST

START_TEST(conditions) {
    CHECK_WORDS(ISA_WORKER, ".if ROWS == 12\n.long 1\n.else\n.long 2\n.endif\n", 1);
    CHECK_WORDS(
        ISA_WORKER, ".if ROWS < 4\n.long 1\n.elseif ROWS < 20\n.long 2\n.else\n.long 3\n.endif\n",
        2);
    CHECK_WORDS(
        ISA_WORKER,
        ".ifdef ROWS\n.ifndef NOPE\n.long 4\n.endif\n.endif\n.ifdef NOPE\nrubbish?\n"
        ".if garbage garbage\n.else\n.endif\n.endif\n",
        4);
    CHECK_WORDS(
        ISA_WORKER, ".if 0\n.rept 5\n.long 1\n.endr\n{ bad }\n.macro x\n.endm\n.endif\n.long 9\n",
        9);
}
END_TEST

START_TEST(macros) {
    CHECK_WORDS(
        ISA_WORKER,
        ".macro two a, b=9\n.long \\a\n.long \\b\n.endm\n two 1\n two 2, 3\n"
        " two b=5, a=4\n",
        1, 9, 2, 3, 4, 5);
    CHECK_WORDS(ISA_WORKER, ".macro lab\nl\\@: .long l\\@\n.endm\nlab\nlab\n", BASE, BASE + 4);
    CHECK_WORDS(
        ISA_WORKER,
        ".macro list first, rest:vararg\n.long \\first\n.byte \\rest\n.endm\n"
        "list 1, 2, 3, 4, 5\n",
        1, 0x05040302);
    CHECK_WORDS(
        ISA_WORKER, ".macro down n\n.if \\n\n.long \\n\n down \\n - 1\n.endif\n.endm\n down 3\n", 3,
        2, 1);
    CHECK_WORDS(
        ISA_WORKER,
        ".macro out n\n.if \\n > 2\n.exitm\n.endif\n.long \\n\\()0\n.endm\nout 2\nout 3\n", 20);
    CHECK_WORDS(
        ISA_WORKER, ".macro half d, s\nadd \\d, \\s, 1\n.endm\n{ half $m0, $m1\n fnop }\n",
        0xa2100001, 0x9ad00000);
    CHECK_WORDS(
        ISA_WORKER,
        ".macro outer v\n.macro inner w\n.long \\v + \\w\n.endm\n.endm\nouter 5\ninner 6\n", 11);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("asm");
    TCase *tc = tcase_create("asm");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_set_timeout(tc, 240);
    tcase_add_test(tc, instruction_vectors);
    tcase_add_test(tc, exchange_encodings);
    tcase_add_test(tc, data_and_expressions);
    tcase_add_test(tc, labels_and_code);
    tcase_add_test(tc, repeats_of_hardware);
    tcase_add_test(tc, conditions);
    tcase_add_test(tc, macros);
    tcase_add_test(tc, text_control);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
