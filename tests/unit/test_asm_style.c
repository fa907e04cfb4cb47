/* Preprocessed tile assembly in the style of vendors' open codelets: each text must give the very
 * words of a plain one. */
#include "asm/asm.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

static struct arena arena;

static void set_up(void) {
    arena_init(&arena, 256u << 20);
}

static void tear_down(void) {
    arena_done(&arena);
}

static const struct asm_image *image_of(const char *text) {
    static const struct asm_placement places[] = {
        {".text", 0x4c010, 0}, {".text.apart", 0x60000, 0}, {".data", 0x70000, 0}};
    struct asm_source source = {"t.S", text, strlen(text)};
    struct asm_object *object;
    struct asm_image *image;
    struct err err = {0};
    int r = asm_assemble(&source, ISA_WORKER, NULL, 0, &arena, &object, &err);
    if (r == 0) {
        const struct asm_object *objects[] = {object};
        r = asm_link(objects, 1, places, 3, NULL, 0, &arena, &image, &err);
    }
    ck_assert_msg(r == 0, "%s\n%s: %s", text, err.where, err.text);
    return image;
}

static int refused(const char *text, struct err *err) {
    struct asm_source source = {"t.S", text, strlen(text)};
    struct asm_object *object;
    return asm_assemble(&source, ISA_WORKER, NULL, 0, &arena, &object, err);
}

static const struct same {
    const char *styled, *plain;
} sames[] = {
    /* Macros: arguments and parameters apart by blanks, blanks around operators belong to one. */
    {".macro three a b c=7 d=\"\"\n.long \\a, \\b, \\c\n\\d\n.endm\n"
     "three 1 2\nthree 1 + 2 (3 + 4) 5 nop\nthree c=9 a=1 b=2\nthree 1, 2, d=\"nop\"\n",
     ".long 1, 2, 7\n.long 3, 7, 5\nnop\n.long 1, 2, 9\n.long 1, 2, 7\nnop\n"},
    {".macro rest first others:vararg\n.long \\first\n.byte \\others\n.p2align 2, 0\n.endm\n"
     "rest 5 1, 2, 3, 4\nrest 6, 1, 2, 3, 4\n",
     ".long 5\n.byte 1, 2, 3, 4\n.long 6\n.byte 1, 2, 3, 4\n"},
    {".macro both a b\nadd $m0, \\a, \\b\n.endm\nboth $m1, -3\n.macro one a\nadd $m0, $m1, "
     "\\a\n.endm\n"
     "one 4 - 7\n.macro f name stack=0\n\\name\\()_START:\n.long \\stack\n.endm\nf fn 8\n",
     "add $m0, $m1, -3\nadd $m0, $m1, -3\n.long 8\n"},
    /* Conditions on texts, on blanks, and against 0. */
    {".macro pick kind value\n.ifc \\kind, fast\n.long \\value\n.else\n.ifnc \"\\kind\", \"slow\"\n"
     ".long 0\n.elseif \\value == 3\n.long 33\n.else\n.long -1\n.endif\n.endif\n.endm\n"
     "pick fast 1\npick slow 3\npick slow 4\npick other 5\n",
     ".long 1\n.long 33\n.long -1\n.long 0\n"},
    {".macro pad a\n.ifb \\a\n.long 1\n.endif\n.ifnb \\a\n.long 2\n.endif\n.endm\npad\npad x\n",
     ".long 1, 2\n"},
    {".ifeq 0\n.long 1\n.endif\n.ifne 0\n.long 2\n.endif\n.ifgt 1\n.long 3\n.endif\n.ifge 0\n"
     ".long 4\n.endif\n.iflt 0\n.long 5\n.endif\n.ifle -1\n.long 6\n.endif\n.ifc a b, a c\n"
     ".long 7\n.endif\n.ifnc , x, y\n.long 8\n.endif\n",
     ".long 1, 3, 4, 6, 8\n"},
    {".if 0\n.ifc a, a\n.long 1\n.endif\n.ifeq x\n.endif\n.endif\n.long 2\n", ".long 2\n"},
    /* Blanks that a preprocessor leaves inside operands. */
    {"ld64step $ a4 : 5 , $mzero , $m6 += , 1 ;\nf16v4mul $a0: 1, $a2 :BL, $a4:5\n"
     "ld2x64pace $azeros, $a4: 5, $m0 : 1 +=, $mzero, 0b0011\n",
     "ld64step $a4:5, $mzero, $m6+=, 1\nf16v4mul $a0:1, $a2:BL, $a4:5\n"
     "ld2x64pace $azeros, $a4:5, $m0:1+=, $mzero, 0b0011\n"},
    {".set base, $m3\nld32step $a0, $mzero, base +=, 1\n", "ld32step $a0, $mzero, $m3+=, 1\n"},
    /* The delta left out, a register as offset in elements; zero of the other file as delta. */
    {"ld32 $m1, $m2, $m3\nld32 $a1, $m2, $m3\nst32 $m1, $m2, 3\nld32 $m1, $m2, 3\n",
     "ld32 $m1, $m2, $mzero, $m3\nld32 $a1, $m2, $mzero, $m3\nst32 $m1, $m2, $mzero, 3\n"
     "ld32 $m1, $m2, $mzero, 3\n"},
    {"ld32 $a0, $m4, $azero, 0\n", "ld32 $a0, $m4, $mzero, 0\n"},
    {"f32v2mul $a0:1, $a4:BL, $a0:1\nf16v4mul $a2:3, $a0:B, $a4:5\n",
     "f32v2mul $a0:1, $a4:B, $a0:1\nf16v4mul $a2:3, $a0:BL, $a4:5\n"},
    /* Halves as operands. */
    {"setzi $a7, -1.0h\nsetzi $a6, 1.5h\n.short -2.0h, 0.5h\nldconst $a0, 1.0h | (1.0h << 16)\n",
     "setzi $a7, 0xbc00\nsetzi $a6, 0x3e00\n.short 0xc000, 0x3800\nldconst $a0, 0x3c003c00\n"},
    /* Functions in sections of their own, types and sizes. */
    {".section .text.a, \"ax\"\n.globl fa, @function\n.type fa, @function\nfa:\nnop\n"
     ".size fa, . - fa\n.section .text.b(x)_y,\"ax\"\n.align 4\n.worker\nfb:\nfnop\n",
     "nop\nfnop\n"},
};

START_TEST(styles_give_the_plain_words) {
    const struct same *s = &sames[_i];
    const struct asm_image *styled = image_of(s->styled);
    const struct asm_image *plain = image_of(s->plain);
    ck_assert_uint_eq(styled->segment_count, plain->segment_count);
    for (size_t i = 0; i < plain->segment_count; i++) {
        ck_assert_uint_eq(styled->segments[i].addr, plain->segments[i].addr);
        ck_assert_msg(
            styled->segments[i].size == plain->segments[i].size, "%s\n%u bytes, expected %u",
            s->styled, styled->segments[i].size, plain->segments[i].size);
        for (uint32_t k = 0; k < plain->segments[i].size; k += 4) {
            uint32_t found = load_le32(styled->segments[i].bytes + k);
            uint32_t expected = load_le32(plain->segments[i].bytes + k);
            ck_assert_msg(
                found == expected, "%s\nword %u: 0x%08x, expected 0x%08x", s->styled, k / 4, found,
                expected);
        }
    }
}
END_TEST

START_TEST(sections_of_functions_follow_their_placement) {
    const struct asm_image *image =
        image_of(".section .text.a\nnop\n.section .text.apart.x\nfnop\n.section .text.apart\nnop\n"
                 ".section .text.apartment\nnop\n.text\nnop\n.section .data.d\n.long 5\n");
    ck_assert_uint_eq(image->segment_count, 3);
    ck_assert_uint_eq(image->segments[0].size, 12); /* .text.a, .text.apartment, .text */
    ck_assert_uint_eq(image->segments[1].addr, 0x60000);
    ck_assert_uint_eq(image->segments[1].size, 8);
    ck_assert_uint_eq(image->segments[2].addr, 0x70000);
}
END_TEST

START_TEST(names_are_limited) {
    static const char *const forms[] = {
        "%s: nop\n", ".long %s\n", ".globl %s\n%s: nop\n", ".section %s\n", ".macro %s\n.endm\n"};
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        for (size_t over = 0; over <= 1; over++) {
            char name[ASM_MAX_NAME + 2], text[2048];
            struct err err = {0};
            memset(name, 'n', sizeof name);
            name[ASM_MAX_NAME + over] = '\0';
            snprintf(text, sizeof text, forms[i], name, name);
            ck_assert_msg(
                refused(text, &err) == (over ? -ERR_ASM : 0), "%s: %s", forms[i], err.text);
            ck_assert_msg(over == 0 || strstr(err.text, "511") != NULL, "%s", err.text);
        }
    }
}
END_TEST

START_TEST(faults_in_them_are_named) {
    static const struct {
        const char *text, *where, *part;
    } rows[] = {
        {".ifc a\n.endif", "t.S:1:7", "expected ',' and a second text"},
        {".ifeq x\n.endif", "t.S:1:7", "must be known at this place"},
        {".macro m a b\n.endm\nm 1 2 3", "t.S:3:3", "at most 2 arguments"},
        {"add $m0, $azero, $m1", "t.S:1:10", "expected $mN"},
        {"ld32step $m0, $azero, $m1+=, 1", "t.S:1:15", "expected $mN"},
        {"ld32 $m0, $m1, $a2", "t.S:1:16", "operand 3 of ld32"},
        {"setzi $m0, 1.0hx", "t.S:1:12", "malformed number"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct err err = {0};
        ck_assert_msg(refused(rows[i].text, &err) == -ERR_ASM, "accepted: %s", rows[i].text);
        ck_assert_msg(
            strcmp(err.where, rows[i].where) == 0 && strstr(err.text, rows[i].part) != NULL,
            "%s\n%s: %s", rows[i].text, err.where, err.text);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("asm_style");
    TCase *t = tcase_create("style");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_loop_test(t, styles_give_the_plain_words, 0, (int)(sizeof sames / sizeof sames[0]));
    tcase_add_test(t, sections_of_functions_follow_their_placement);
    tcase_add_test(t, names_are_limited);
    tcase_add_test(t, faults_in_them_are_named);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
