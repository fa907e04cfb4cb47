/* Bad sources and bad links, each with its place and reason; limits at their edge; failing
 * allocations; listings; several objects. */
#include "asm/asm.h"

#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/cleanup.h"

static struct arena arena;

static void set_up(void) {
    arena_init(&arena, 1u << 30);
}

static void tear_down(void) {
    arena_done(&arena);
}

static int assemble(
    const char *name, const char *text, enum isa_unit unit, struct asm_object **ret,
    struct err *err) {
    struct asm_source source = {name, text, strlen(text)};
    return asm_assemble(&source, unit, NULL, 0, &arena, ret, err);
}

static struct asm_object *object_of(const char *name, const char *text) {
    struct asm_object *object;
    struct err err = {0};
    ck_assert_msg(
        assemble(name, text, ISA_WORKER, &object, &err) == 0, "%s: %s", err.where, err.text);
    return object;
}

/* ---- bad sources ---- */

struct bad {
    const char *text, *where, *part;
};

static const struct bad bad_text[] = {
    {"frob $m0", "t.S:1:1", "unknown instruction 'frob'"},
    {"nop\n  add $m0, $m1, 70000", "t.S:2:17", "operand 3 of add: expected"},
    {"a: a: nop", "t.S:1:4", "'a' is already defined at line 1"},
    {"a:\na = 5", "t.S:2:1", "'a' is a label"},
    {".long 1 +", "t.S:1:10", "expected a number or a symbol"},
    {".long (1", "t.S:1:9", "expected ')'"},
    {".long 1 2", "t.S:1:9", "expected the end"},
    {".long 1 / 0", "t.S:1:9", "division by zero"},
    {".long 1 << 64", "t.S:1:9", "shift"},
    {".long 09", "t.S:1:7", "malformed number"},
    {".long 0x", "t.S:1:7", "malformed number"},
    {".long 99999999999999999999", "t.S:1:7", "64 bits"},
    {".long 0x100000000", "t.S:1:7", "4294967296 does not fit 32 bits"},
    {".byte 256", "t.S:1:7", "256 does not fit 8 bits"},
    {".long 1 ? 2", "t.S:1:12", "expected ':'"},
    {"/* never", "t.S:1:1", "not closed"},
    {"nop /* never\n\n", "t.S:1:5", "not closed"},
    {".ascii \"abc", "t.S:1:8", "is not closed on its line"},
    {".ascii \"\\q\"", "t.S:1:10", "after \\"},
    {".bogus 1", "t.S:1:1", "unknown directive '.bogus'"},
    {".align 3", "t.S:1:8", "3 is no power of 2"},
    {".p2align 17", "t.S:1:10", "must be 0..16"},
    {".skip x\nx:", "t.S:1:7", "must be known at this place"},
    {".if x\n.endif", "t.S:1:5", "must be known at this place"},
    {".if 1", "t.S:1:1", ".endif is missing"},
    {".endif", "t.S:1:7", "no .if is open"},
    {".if 1\n.else\n.else\n.endif", "t.S:3:6", "already given"},
    {".rept 3\nnop", "t.S:1:1", ".endr is missing"},
    {".endr", "t.S:1:6", "without its opening"},
    {".macro m\nnop", "t.S:1:1", ".endm is missing"},
    {".exitm", "t.S:1:7", "outside a macro"},
    {".macro m a:req\n.endm\nm", "t.S:3:2", "needs its argument 'a'"},
    {".macro m a\n.endm\nm 1, 2", "t.S:3:3", "at most 1 argument"},
    {".macro m\n  frob\n.endm\n\nm", "t.S:2:3", "'frob', in macro m called at line 5"},
    {".set a, $m0\n.long a", "t.S:2:7", "'a' names a register"},
    {".set a, $FP_CTL", "t.S:1:9", "expected a register"},
    {".set a, $m0\n.globl a", "t.S:1:6", "cannot be .globl"},
    {"add $m0, $m99, 1", "t.S:1:10", "no such register in a worker"},
    {"get $m0, $SSR", "t.S:1:10", "no such register in a worker"},
    {"a = a + 1\n.long a", "t.S:2:5", "defined by itself"},
    {".error \"stop here\"", "t.S:1:19", "stop here"},
    {".error \"\"", "t.S:1:10", ".error without a message"},
    {".section 5", "t.S:1:10", "expected the name of a section"},
    {".byte 1\nnop", "t.S:2:1", "no multiple of 4"},
    {"?", "t.S:1:1", "expected an instruction"},
    {"add $m0 $m1", "t.S:1:9", "expected the end"},
    {"ldconst $m0, 0x100000000", "t.S:1:14", "does not fit 32 bits"},
    {"ldconst $m0", "t.S:1:1", "takes a register and a number"},
    {"sync 1", "t.S:1:1", "no instruction of a worker"},
    {".supervisor\nsendpicp 1, 2, 3, 0", "t.S:2:1", "takes 6 operands, got 4"},
    {".supervisor\nsendpicp 1, 2, 3, 0, 0x4000, 0", "t.S:2:22", "expected 0..16383"},
    {".supervisor\nnop\nsendpicp 1, 2, 3, 0, 0, 0", "t.S:3:1", "multiple of 8"},
    {"bri x\nx = 2", "t.S:1:5", "divisible by 4"},
    {".half 1.5x", "t.S:1:7", "malformed number"},
};

static const struct bad bad_bundles[] = {
    {"{ nop", "t.S:1:1", "not closed by '}'"},
    {"}", "t.S:1:1", "'}' without '{'"},
    {"{ nop }", "t.S:1:7", "two instructions, this one has 1"},
    {"{ nop ; fnop ; fnop }", "t.S:1:16", "a bundle holds two instructions"},
    {"{ { nop ; fnop }", "t.S:1:3", "'{' within the bundle of line 1"},
    {"{ fnop ; nop }", "t.S:1:3", "fnop is an instruction of the aux lane, the first half"},
    {"{ nop ; nop }", "t.S:1:9", "nop is an instruction of the main lane, the second half"},
    {"{ exitz $m0 ; fnop }", "t.S:1:3", "exitz cannot be half of a bundle"},
    {"{ ld32 $a2, $m0, 0 ; f32add $a2, $a0, $a1 }", "t.S:1:22",
     "both halves of the bundle (ld32, f32add) write $a2"},
    {"{ ld64 $a2:3, $m0, 0 ; f32add $a3, $a0, $a1 }", "t.S:1:24", "write $a3"},
    {"{ ld32 $a2, $m0, later ; f32add $a2, $a0, $a1 }\nlater = 4", "t.S:1:26", "write $a2"},
    {"{ a: nop ; fnop }", "t.S:1:3", "a label cannot stand in a bundle"},
    {"{ .long 1 ; fnop }", "t.S:1:9", "a directive cannot stand in a bundle"},
    {"rpt $m0, 0\n{ nop ; fnop }", "t.S:1:1", "must start at a multiple of 8"},
    {"{ rpt $m0, 1 ; fnop }\n{ nop ; fnop }", "t.S:1:3", "ends before the last"},
    {"{ rpt $m0, 0 ; fnop }\nnop\nnop", "t.S:1:3", "may hold bundles only"},
    {"{ rpt $m0, 0 ; fnop }\n{ bri 0 ; fnop }", "t.S:1:3", "may not hold bri"},
    {"{ rpt $m0, 0 ; fnop }\n{ nop ; uget $a0, $TAS }", "t.S:1:3", "may not hold uget"},
    {"{ rpt $m0, 256 ; fnop }", "t.S:1:12", "expected 0..255"},
};

static void check_bad(const struct bad *bad) {
    struct asm_object *object = NULL;
    struct asm_image *image;
    struct err err = {0};
    int r = assemble("t.S", bad->text, ISA_WORKER, &object, &err);
    if (r == 0) {
        /* Some faults show only when symbols have their last value. */
        struct asm_placement place = {".text", 0x4c000, 0};
        r = asm_link(
            (const struct asm_object *const[]){object}, 1, &place, 1, NULL, 0, &arena, &image,
            &err);
    }
    ck_assert_msg(r == -ERR_ASM, "accepted: %s", bad->text);
    ck_assert_msg(
        strcmp(err.where, bad->where) == 0 && strstr(err.text, bad->part) != NULL, "%s\n%s: %s",
        bad->text, err.where, err.text);
}

START_TEST(bad_sources_say_where) {
    for (size_t i = 0; i < sizeof bad_text / sizeof bad_text[0]; i++) {
        check_bad(&bad_text[i]);
    }
}
END_TEST

START_TEST(bad_bundles_say_which_rule) {
    for (size_t i = 0; i < sizeof bad_bundles / sizeof bad_bundles[0]; i++) {
        check_bad(&bad_bundles[i]);
    }
    object_of("t.S", ".warn_on_invalid_bundles\n{ ld32 $a2, $m0, 0 ; f32add $a2, $a0, $a1 }\n");
    object_of("t.S", "{ ld32 $azero, $m0, 0 ; f32add $azero, $a0, $a1 }\n");
}
END_TEST

START_TEST(zero_bytes_are_refused) {
    struct asm_source source = {"t.S", "nop\n  \0 nop", 11};
    struct asm_object *object;
    struct err err = {0};
    ck_assert_int_eq(asm_assemble(&source, ISA_WORKER, NULL, 0, &arena, &object, &err), -ERR_ASM);
    ck_assert_str_eq(err.where, "t.S:2:3");
}
END_TEST

/* ---- limits ---- */

/* "head" n times, then "tail" n times. */
static char *nested(const char *head, const char *middle, const char *tail, size_t n) {
    size_t size = n * (strlen(head) + strlen(tail)) + strlen(middle) + 1;
    char *text = calloc(1, size);
    for (size_t i = 0; i < n; i++) {
        strcat(text, head);
    }
    strcat(text, middle);
    for (size_t i = 0; i < n; i++) {
        strcat(text, tail);
    }
    return text;
}

/* At the limit the source is fine, one further it is refused with the limit in the text. */
static void check_limit(char *fits, char *fails, const char *part) {
    CLEANUP(cleanup_free) char *good = fits;
    CLEANUP(cleanup_free) char *bad = fails;
    struct asm_object *object;
    struct err err = {0};
    ck_assert_msg(
        assemble("t.S", good, ISA_WORKER, &object, &err) == 0, "%s: %s", err.where, err.text);
    ck_assert_int_eq(assemble("t.S", bad, ISA_WORKER, &object, &err), -ERR_ASM);
    ck_assert_msg(strstr(err.text, part) != NULL, "%s", err.text);
}

START_TEST(limits_hold_at_their_edge) {
    /* The source is a frame of its own. */
    check_limit(
        nested(".rept 1\n", "nop\n", ".endr\n", ASM_MAX_DEPTH - 1),
        nested(".rept 1\n", "nop\n", ".endr\n", ASM_MAX_DEPTH), "nested more than 64");
    check_limit(
        nested(".if 1\n", "nop\n", ".endif\n", ASM_MAX_CONDITIONS),
        nested(".if 1\n", "nop\n", ".endif\n", ASM_MAX_CONDITIONS + 1), "nested more than 64");
    check_limit(strdup(".rept 1000000\n.endr"), strdup(".rept 1000001\n.endr"), "0..1000000");
    check_limit(strdup(".skip 0x100000"), strdup(".skip 0x100000\n.byte 1"), "larger than 1048576");
    char *fits = nested("(", "1", ")", ASM_MAX_EXPR_DEPTH / 2 - 1);
    char *good = NULL, *bad = NULL;
    ck_assert_int_gt(asprintf(&good, ".long %s", fits), 0);
    free(fits);
    char *fails = nested("(", "1", ")", ASM_MAX_EXPR_DEPTH);
    ck_assert_int_gt(asprintf(&bad, ".long %s", fails), 0);
    free(fails);
    check_limit(good, bad, "nested more than 128");
    /* Operators in a row make a tree as deep as they are many. */
    fits = nested("x+", "x\n", "", ASM_MAX_EXPR_DEPTH - 2);
    fails = nested("x+", "x\n", "", ASM_MAX_EXPR_DEPTH);
    ck_assert_int_gt(asprintf(&good, ".long %s", fits), 0);
    ck_assert_int_gt(asprintf(&bad, ".long %s", fails), 0);
    free(fits);
    free(fails);
    check_limit(good, bad, "nested more than 128");
}
END_TEST

START_TEST(sections_and_parameters_are_limited) {
    for (int over = 0; over <= 1; over++) {
        char *text = calloc(1, 32 * ASM_MAX_SECTIONS + 64);
        char *end = text;
        for (int i = 1; i < ASM_MAX_SECTIONS + over; i++) {
            end += sprintf(end, ".section s%d\n", i);
        }
        struct asm_object *object;
        struct err err = {0};
        ck_assert_int_eq(assemble("t.S", text, ISA_WORKER, &object, &err), over ? -ERR_ASM : 0);
        end = text + sprintf(text, ".macro m ");
        for (int i = 0; i < ASM_MAX_MACRO_ARGS + over; i++) {
            end += sprintf(end, "a%d ", i);
        }
        sprintf(end, "\n.endm\n");
        ck_assert_int_eq(assemble("t.S", text, ISA_WORKER, &object, &err), over ? -ERR_ASM : 0);
        free(text);
    }
}
END_TEST

START_TEST(endless_sources_end) {
    static const struct bad endless[] = {
        {".macro m\nm\n.endm\nm", "t.S:2:1", "nested more than 64"},
        {".rept 1000000\n.rept 1000000\n.endr\n.endr", NULL, "more than 4000000 statements"},
        {".rept 1000000\nnop\n.endr", NULL, "larger than 1048576 bytes"},
        {".macro d x:vararg\nd \\x \\x\n.endm\nd aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", NULL,
         "expand to more than 16777216"},
        {"b = a + a\nc = b + b\nd = c + c\ne = d + d\nf = e + e\ng = f + f\nh = g + g\ni = h + h\n"
         "j = i + i\nk = j + j\nl = k + k\nm = l + l\nn = m + m\no = n + n\np = o + o\nq = p + p\n"
         "r = q + q\ns = r + r\nt = s + s\nu = t + t\n.long u\n",
         NULL, "too many terms"},
    };
    for (size_t i = 0; i < sizeof endless / sizeof endless[0]; i++) {
        struct asm_object *object;
        struct err err = {0};
        ck_assert_int_eq(assemble("t.S", endless[i].text, ISA_WORKER, &object, &err), -ERR_ASM);
        ck_assert_msg(strstr(err.text, endless[i].part) != NULL, "%s: %s", err.where, err.text);
        ck_assert(endless[i].where == NULL || strcmp(err.where, endless[i].where) == 0);
    }
}
END_TEST

/* ---- links ---- */

START_TEST(objects_share_globals) {
    struct asm_object *a = object_of(
        "a.S",
        ".globl start, size\nstart: call $lr, helper\n"
        "size = end - start\nlocal: bri local\nend:\n.section .data\n.long helper + 4, EXT\n");
    struct asm_object *b = object_of(
        "b.S", ".globl helper\n.p2align 4\nlocal: nop\nhelper: br $lr\n"
               ".long size, local\n");
    struct asm_placement places[] = {{".data", 0x50000, 0}, {".text", 0x4c000, 0x4c020}};
    struct asm_def externs[] = {{"EXT", 0x1234}};
    struct asm_image *image;
    struct err err = {0};
    const struct asm_object *objects[] = {a, b};
    int r = asm_link(objects, 2, places, 2, externs, 1, &arena, &image, &err);
    ck_assert_msg(r == 0, "%s: %s", err.where, err.text);
    static const uint32_t words[] = {0x18a13005, 0x40813001, 0x19e00000, 0x19e00000,
                                     0x19e00000, 0x43a00000, 8,          0x4c010};
    ck_assert_uint_eq(image->segment_count, 2);
    ck_assert_uint_eq(image->segments[0].addr, 0x4c000);
    ck_assert_uint_eq(image->segments[0].size, sizeof words);
    for (size_t i = 0; i < sizeof words / 4; i++) {
        ck_assert_uint_eq(load_le32(image->segments[0].bytes + 4 * i), words[i]);
    }
    ck_assert_uint_eq(load_le32(image->segments[1].bytes), 0x4c018);
    ck_assert_uint_eq(load_le32(image->segments[1].bytes + 4), 0x1234);
    uint32_t addr = 0;
    ck_assert_uint_eq(image->symbol_count, 3);
    ck_assert_int_eq(asm_image_symbol(image, "helper", &addr, &err), 0);
    ck_assert_uint_eq(addr, 0x4c014);
    ck_assert_int_eq(asm_image_symbol(image, "local", &addr, &err), -ERR_MISSING);
    ck_assert_uint_eq(asm_section_size(a, ".data"), 8);
    ck_assert_uint_eq(asm_section_size(a, ".none"), 0);
}
END_TEST

static int link_two(
    const char *a, const char *b, const struct asm_placement *places, size_t place_count,
    struct err *err) {
    const struct asm_object *objects[] = {object_of("a.S", a), object_of("b.S", b)};
    struct asm_def externs[] = {{"EXT", 1}};
    struct asm_image *image;
    return asm_link(objects, 2, places, place_count, externs, 1, &arena, &image, err);
}

START_TEST(bad_links_name_what_is_wrong) {
    static const struct {
        const char *a, *b;
        struct asm_placement places[2];
        int code;
        const char *where, *part;
    } cases[] = {
        {"nop\nbri nowhere",
         "",
         {{".text", 0x4c000, 0}},
         ERR_ASM,
         "a.S:2:5",
         "undefined symbol 'nowhere'"},
        {".globl f\nf: nop",
         ".globl f\nf: nop",
         {{".text", 0x4c000, 0}},
         ERR_ASM,
         "b.S",
         "symbol 'f' is defined by a.S too"},
        {".globl EXT\nEXT: nop",
         "",
         {{".text", 0x4c000, 0}},
         ERR_ASM,
         "a.S",
         "defined by the caller too"},
        {"nop\nnop",
         "nop",
         {{".text", 0x4c000, 0x4c008}},
         ERR_DOES_NOT_FIT,
         ".text",
         "section '.text' ends at 0x4c00c with the part of b.S, its limit is 0x4c008"},
        {".section .far\nnop",
         "",
         {{".text", 0x4c000, 0}},
         ERR_ASM,
         ".far",
         "section '.far' of a.S has 4 bytes but no place"},
        {"nop\n.section .x\nnop",
         "",
         {{".text", 0x4c000, 0}, {".x", 0x4c000, 0}},
         ERR_ASM,
         "",
         "overlap"},
        {"nop",
         "",
         {{".text", 0x4c000, 0}, {".text", 0x5c000, 0}},
         ERR_ASM,
         ".text",
         "placed twice"},
        {"f: setzi $m0, f",
         "",
         {{".text", 0x100000, 0}},
         ERR_ASM,
         "a.S:1:15",
         "expected 0..1048575; 'f' of section .text is 0x100000"},
        {"f: bri f", "", {{".text", 0x200000, 0}}, ERR_ASM, "a.S:1:8", "0x1ffffc"},
        {"1: nop\nbri 1f", "", {{".text", 0x4c000, 0}}, ERR_ASM, "a.S:2:5", "no label 1: after"},
        {".globl x\nx = y",
         "",
         {{".text", 0x4c000, 0}},
         ERR_ASM,
         "a.S:1:5",
         "global 'x': undefined symbol 'y'"},
        {".globl x\nx = y",
         ".globl y\ny = x",
         {{".text", 0x4c000, 0}},
         ERR_ASM,
         "a.S:1:5",
         "undefined symbol"},
        {"f: nop\n.byte f",
         "",
         {{".text", 0x4c000, 0}},
         ERR_ASM,
         "a.S:2:7",
         "311296 does not fit 8 bits; 'f' of section .text is 0x4c000"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct err err = {0};
        size_t place_count = cases[i].places[1].section != NULL ? 2 : 1;
        int r = link_two(cases[i].a, cases[i].b, cases[i].places, place_count, &err);
        ck_assert_msg(r == -cases[i].code, "%s: %d %s", cases[i].a, r, err.text);
        ck_assert_msg(
            strcmp(err.where, cases[i].where) == 0 && strstr(err.text, cases[i].part) != NULL,
            "%s\n%s: %s", cases[i].a, err.where, err.text);
    }
}
END_TEST

/* ---- memory, listing ---- */

static const char full_source[] =
    ".macro m a, b=2\n.long \\a, \\b, f\n.endm\n.globl f\nf: { rpt 3, ((2f - 1f) / 8) - 1 ; fnop "
    "}\n"
    "1: { ld32step $a0, $mzero, $m0+=, 1 ; f32add $a1, $a0, $a1 }\n2: ldconst $m1, 0x12345678\n"
    " bri f\n.rept 3\n m 1\n.endr\n.irp x, 1, 2\n m \\x, 3\n.endr\n.section .data\n.ascii "
    "\"abc\"\n";

START_TEST(failing_allocations_leak_nothing) {
    volatile bool did_finish = false;
    for (volatile uint64_t n = 1; n < 5000 && !did_finish; n++) {
        struct arena a;
        struct asm_object *volatile object = NULL;
        arena_init(&a, 64u << 20);
        a.fail_after = n;
        if (ARENA_RECOVER(&a) == 0) {
            struct asm_source source = {"t.S", full_source, strlen(full_source)};
            struct asm_object *made;
            struct asm_image *image;
            struct asm_placement places[] = {{".text", 0x4c000, 0}, {".data", 0x60000, 0}};
            ck_assert_int_eq(asm_assemble(&source, ISA_WORKER, NULL, 0, &a, &made, NULL), 0);
            object = made;
            ck_assert_int_eq(
                asm_link(
                    (const struct asm_object *const[]){made}, 1, places, 2, NULL, 0, &a, &image,
                    NULL),
                0);
            did_finish = true;
        }
        arena_done(&a);
        ck_assert(object != NULL || !did_finish);
    }
    ck_assert(did_finish);
}
END_TEST

START_TEST(same_source_same_bytes) {
    const struct asm_object *one = object_of("a.S", full_source);
    const struct asm_object *two = object_of("a.S", full_source);
    struct asm_placement places[] = {{".text", 0x4c000, 0}, {".data", 0x60000, 0}};
    struct asm_image *x, *y;
    ck_assert_int_eq(asm_link(&one, 1, places, 2, NULL, 0, &arena, &x, NULL), 0);
    ck_assert_int_eq(asm_link(&two, 1, places, 2, NULL, 0, &arena, &y, NULL), 0);
    ck_assert_uint_eq(x->segments[0].size, y->segments[0].size);
    ck_assert_int_eq(memcmp(x->segments[0].bytes, y->segments[0].bytes, x->segments[0].size), 0);
}
END_TEST

static void check_listing(
    const uint32_t *words, size_t count, size_t tail, enum isa_unit unit, const char *expected) {
    uint8_t bytes[64] = {0};
    char *text = NULL;
    size_t size = 0;
    for (size_t i = 0; i < count; i++) {
        store_le32(bytes + 4 * i, words[i]);
    }
    FILE *out = open_memstream(&text, &size);
    asm_disassemble(out, bytes, count * 4 + tail, 0x4c000, unit);
    fclose(out);
    ck_assert_str_eq(text, expected);
    free(text);
}

START_TEST(listings) {
    static const uint32_t worker[] = {0x19100001, 0xa2000001, 0xd8102000,
                                      0xa2000001, 0x41050001, 0x99e00000};
    check_listing(
        worker, 6, 1, ISA_WORKER,
        "0004c000  19100001           setzi $m1, 1\n"
        "0004c004  a2000001 d8102000  { add $m0, $m0, 1 ; f32add $a0, $a1, $a2 }\n"
        "0004c00c  a2000001           .long 0xa2000001\n"
        "0004c010  41050001           get $m5, $WSR\n"
        "0004c014  99e00000           .long 0x99e00000\n"
        "0004c018  00                 .byte 0x00\n");
    static const uint32_t supervisor[] = {0xf54a0109, 0x19015000, 0x436080a7, 0xf54a0109};
    check_listing(
        supervisor, 4, 0, ISA_SUPERVISOR,
        "0004c000  f54a0109 19015000  sendpicp 42, 81953, 1, 0, 0x640, 0x15000\n"
        "0004c008  436080a7           put $OUTGOING_BASE, $m6\n"
        "0004c00c  f54a0109           .long 0xf54a0109\n");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("asm_errors");
    TCase *tc = tcase_create("errors");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_set_timeout(tc, 240);
    tcase_add_test(tc, bad_sources_say_where);
    tcase_add_test(tc, bad_bundles_say_which_rule);
    tcase_add_test(tc, zero_bytes_are_refused);
    tcase_add_test(tc, limits_hold_at_their_edge);
    tcase_add_test(tc, sections_and_parameters_are_limited);
    tcase_add_test(tc, endless_sources_end);
    tcase_add_test(tc, objects_share_globals);
    tcase_add_test(tc, bad_links_name_what_is_wrong);
    tcase_add_test(tc, failing_allocations_leak_nothing);
    tcase_add_test(tc, same_source_same_bytes);
    tcase_add_test(tc, listings);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
