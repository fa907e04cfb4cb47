/* The instruction table against itself: every form encodes, decodes, prints and parses back; no
 * two forms of a unit share a word; wrong operands are refused with a reason. */
#include "isa/isa.h"

#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t random_state = 1;

static uint32_t random32(void) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 32);
}

static enum isa_unit unit_of(const struct isa_info *info) {
    return (info->units & ISA_WORKER) != 0 ? ISA_WORKER : ISA_SUPERVISOR;
}

/* Value number `round` of an operand: corners first, then random ones. */
static int32_t operand_value(const struct isa_operand *o, int round) {
    uint32_t ones = (1u << o->bits) - 1;
    uint32_t bits = round == 0   ? 0
                    : round == 1 ? ones
                    : round == 2 ? ones >> 1
                    : round == 3 ? (ones >> 1) + 1
                    : round == 4 ? 1
                                 : random32() & ones;
    switch (o->kind) {
    case ISA_M_PAIR:
    case ISA_A_PAIR: return (int32_t)(bits & 14);
    case ISA_A_QUAD: return (int32_t)(bits & 12);
    case ISA_SI: return (int32_t)(bits << (32 - o->bits)) >> (32 - o->bits);
    case ISA_IZ: return (int32_t)(bits << (32 - o->bits));
    case ISA_ABS: return (int32_t)(bits * 4);
    default: return (int32_t)bits;
    }
}

static void check_round_trip(const struct insn *insn, const struct isa_info *info) {
    uint32_t word;
    struct err err = {0};
    ck_assert_msg(
        isa_encode(insn, &word, &err) == 0, "%s %s: %s", info->mnemonic, info->form, err.text);
    for (int unit = 1; unit <= 2; unit++) {
        struct insn back = {0};
        bool is_known = isa_decode(word, (enum isa_unit)unit, &back);
        if ((info->units & unit) == 0) {
            ck_assert(!is_known || back.op != insn->op);
            continue;
        }
        ck_assert_msg(
            is_known && memcmp(&back, insn, sizeof back) == 0, "%08" PRIx32 " %s %s", word,
            info->mnemonic, info->form);
    }
    char text[128];
    struct insn parsed = {0};
    ck_assert_int_lt(isa_print(insn, text, sizeof text), sizeof text);
    ck_assert_msg(
        isa_parse(text, unit_of(info), &parsed, &err) == 0, "%s: %s: %s", text, err.where,
        err.text);
    parsed.coissue = insn->coissue;
    ck_assert_msg(
        memcmp(&parsed, insn, sizeof parsed) == 0, "%s is taken for form %s, not %s", text,
        isa_info((enum isa_op)parsed.op)->form, info->form);
    memset(&parsed, 0, sizeof parsed);
    isa_print_named(insn, unit_of(info), text, sizeof text);
    ck_assert_msg(isa_parse(text, unit_of(info), &parsed, &err) == 0, "%s: %s", text, err.text);
    parsed.coissue = insn->coissue;
    ck_assert_msg(memcmp(&parsed, insn, sizeof parsed) == 0, "%s", text);
}

START_TEST(every_form_round_trips) {
    for (int op = 1; op < ISA_OP_COUNT; op++) {
        const struct isa_info *info = isa_info((enum isa_op)op);
        for (int round = 0; round < 40; round++) {
            struct insn insn;
            memset(&insn, 0, sizeof insn);
            insn.op = (uint16_t)op;
            insn.coissue = (info->flags & ISA_COISSUE) != 0 && round % 2 == 1;
            for (int i = 0; i < info->operand_count; i++) {
                insn.v[info->operands[i].letter - 'a'] = operand_value(&info->operands[i], round);
            }
            check_round_trip(&insn, info);
        }
    }
}
END_TEST

START_TEST(rows_cover_each_bit_once) {
    for (int op = 1; op < ISA_OP_COUNT; op++) {
        const struct isa_info *info = isa_info((enum isa_op)op);
        uint32_t used = info->mask;
        ck_assert_uint_eq(info->match & ~info->mask, 0);
        ck_assert_int_ge(info->operand_count, 1);
        for (int i = 0; i < info->operand_count; i++) {
            const struct isa_operand *o = &info->operands[i];
            for (int p = 0; p < 3 && o->pieces[p].bits > 0; p++) {
                uint32_t field = ((1u << o->pieces[p].bits) - 1) << o->pieces[p].at;
                ck_assert_msg((used & field) == 0, "%s %s", info->mnemonic, info->form);
                used |= field;
            }
        }
        bool is_coissue = (info->flags & ISA_COISSUE) != 0;
        ck_assert_msg(
            used == (is_coissue ? 0x7fffffff : 0xffffffff), "%s %s: %08" PRIx32, info->mnemonic,
            info->form, used);
        ck_assert(info->pipe == ISA_MAIN || info->units == ISA_WORKER);
    }
}
END_TEST

START_TEST(no_two_rows_match_one_word) {
    for (int a = 1; a < ISA_OP_COUNT; a++) {
        for (int b = a + 1; b < ISA_OP_COUNT; b++) {
            const struct isa_info *x = isa_info((enum isa_op)a);
            const struct isa_info *y = isa_info((enum isa_op)b);
            uint32_t common = x->mask & y->mask;
            ck_assert_msg(
                (x->units & y->units) == 0 || ((x->match ^ y->match) & common) != 0,
                "%s %s and %s %s overlap", x->mnemonic, x->form, y->mnemonic, y->form);
            bool is_same_name =
                strcmp(x->mnemonic, y->mnemonic) == 0 && strcmp(x->form, y->form) == 0;
            ck_assert(!is_same_name);
        }
    }
}
END_TEST

/* decode.c needs rows of one opcode byte together and short opcodes last. */
START_TEST(rows_are_sorted) {
    uint32_t last = 0;
    bool in_short = false;
    for (int op = 1; op < ISA_OP_COUNT; op++) {
        const struct isa_info *info = isa_info((enum isa_op)op);
        bool is_short = (info->mask & 0x7f000000) != 0x7f000000;
        uint32_t top = info->match >> 24 & 0x7f;
        ck_assert(is_short || !in_short);
        ck_assert_int_eq(is_short, op >= ISA_OP_delaypic_zi_zi_zi);
        ck_assert(is_short || top >= last);
        in_short = is_short;
        last = top;
    }
}
END_TEST

START_TEST(decode_survives_any_word) {
    int known = 0;
    for (int i = 0; i < 60000; i++) {
        uint32_t word = random32();
        for (int unit = 1; unit <= 2; unit++) {
            struct insn insn, back;
            uint32_t again;
            if (!isa_decode(word, (enum isa_unit)unit, &insn)) {
                continue;
            }
            known++;
            const struct isa_info *info = isa_info((enum isa_op)insn.op);
            ck_assert_int_eq(isa_encode(&insn, &again, NULL), 0);
            ck_assert_uint_eq(word & info->mask, info->match);
            ck_assert(isa_decode(again, (enum isa_unit)unit, &back));
            ck_assert_int_eq(memcmp(&back, &insn, sizeof back), 0);
        }
    }
    ck_assert_int_gt(known, 15000);
}
END_TEST

START_TEST(odd_pairs_decode_but_do_not_encode) {
    struct insn insn;
    struct err err = {0};
    uint32_t word;
    /* f32v2mac with pair fields 3 and 5 */
    ck_assert(isa_decode(0x5a305080, ISA_WORKER, &insn));
    ck_assert_int_eq(insn.v[0], 2);
    ck_assert_int_eq(insn.v[1], 4);
    insn.v[0] = 3;
    ck_assert_int_eq(isa_encode(&insn, &word, &err), -ERR_ASM);
    ck_assert_ptr_nonnull(strstr(err.text, "even"));
    ck_assert(isa_decode(0x59708900, ISA_WORKER, &insn));
    ck_assert_int_eq(insn.v[0], 4);
    insn.v[0] = 6;
    ck_assert_int_eq(isa_encode(&insn, &word, &err), -ERR_ASM);
    ck_assert_ptr_nonnull(strstr(err.text, "multiple of 4"));
}
END_TEST

START_TEST(encode_refuses_what_does_not_fit) {
    static const struct {
        enum isa_op op;
        int letter;
        int32_t fits, fails;
    } cases[] = {
        {ISA_OP_add_mmmn_si, 2, 32767, 32768},
        {ISA_OP_add_mmmn_si, 2, -32768, -32769},
        {ISA_OP_add_mmmn_zi, 2, 65535, 65536},
        {ISA_OP_add_mmmn_zi, 2, 0, -1},
        {ISA_OP_setzi_mmmn_zi, 1, 0xfffff, 0x100000},
        {ISA_OP_or_mmmn_iz, 2, INT32_MIN, 1 << 19},
        {ISA_OP_bri_mmmn_zi, 0, 0x1ffffc, 0x200000},
        {ISA_OP_bri_mmmn_zi, 0, 4, 2},
        {ISA_OP_add_mmmn, 0, 15, 16},
        {ISA_OP_add_mmmn, 0, 0, -1},
        {ISA_OP_sendoff_zi_zi_zi, 0, 4095, 4096},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct insn insn = {.op = (uint16_t)cases[i].op};
        struct err err = {0};
        uint32_t word = 0;
        insn.v[cases[i].letter] = cases[i].fits;
        ck_assert_int_eq(isa_encode(&insn, &word, &err), 0);
        insn.v[cases[i].letter] = cases[i].fails;
        ck_assert_int_eq(isa_encode(&insn, &word, &err), -ERR_ASM);
        ck_assert_str_ne(err.text, "");
    }
    struct insn run = {.op = ISA_OP_run_mmmn_zi, .coissue = true};
    uint32_t word;
    ck_assert_int_eq(isa_encode(&run, &word, NULL), -ERR_ASM);
    struct insn none = {.op = ISA_OP_COUNT};
    ck_assert_int_eq(isa_encode(&none, &word, NULL), -ERR_ASM);
}
END_TEST

START_TEST(text_becomes_the_published_word) {
    static const struct {
        enum isa_unit unit;
        const char *text;
        uint32_t word;
    } cases[] = {
        {ISA_WORKER, "nop", ISA_NOP_WORD},
        {ISA_WORKER, "fnop", ISA_FNOP_WORD},
        {ISA_SUPERVISOR, "zero $m8", 0x44f0f381},
        {ISA_SUPERVISOR, "mov $m3, $m5", 0x42539000},
        {ISA_SUPERVISOR, "trap 1", 0x41801001},
        {ISA_WORKER, "exitz $mzero", 0x43f04000},
        {ISA_SUPERVISOR, "sync 3", 0x41800003},
        {ISA_SUPERVISOR, "br $lr", 0x43a00000},
        {ISA_SUPERVISOR, "put $OUTGOING_BASE, $m6", 0x436080a7},
        {ISA_SUPERVISOR, "put 167, $m6", 0x436080a7},
        {ISA_SUPERVISOR, "strap", 0x43f080ff},
        {ISA_WORKER, "add $m6, $m1, -1", 0x2216ffff},
        {ISA_WORKER, "add $m6, $m1, 40000", 0x20169c40},
        {ISA_WORKER, "addz $m6, $m1, 1", 0x20160001},
        {ISA_WORKER, "sub $m6, $m1, 1", 0x2216ffff},
        {ISA_WORKER, "sub $m3, -1234, $m0", 0x3903fb2e},
        {ISA_WORKER, "ld32 $m9, $m1, 4095", 0x0119ffff},
        {ISA_WORKER, "put $FP_CTL, $a0", 0x51008002},
        {ISA_WORKER, "uput $FP_CTL, $a0", 0x51008002},
        {ISA_WORKER, "get $a1, $TAS", 0x51010808},
        {ISA_WORKER, "ld2x64pace $aq0, $ap3, $m2:3+=, $m7, 0", 0},
        {ISA_WORKER, "ld2x64pace $ap1, $ap3, $m2:3+=, $m7, 0", 0x46722060},
        {ISA_WORKER, "swap16 $m1, $m2", 0x44202312},
        {ISA_SUPERVISOR, "ld64putcs $CWEI_15_3", 0x4100c03f},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct insn insn;
        struct err err = {0};
        uint32_t word = 0;
        int r = isa_parse(cases[i].text, cases[i].unit, &insn, &err);
        if (cases[i].word == 0) {
            ck_assert_msg(r < 0, "%s is accepted", cases[i].text);
            continue;
        }
        ck_assert_msg(r == 0, "%s: %s: %s", cases[i].text, err.where, err.text);
        ck_assert_int_eq(isa_encode(&insn, &word, &err), 0);
        ck_assert_msg(
            word == cases[i].word, "%s: %08" PRIx32 ", not %08" PRIx32, cases[i].text, word,
            cases[i].word);
    }
}
END_TEST

START_TEST(bad_text_says_where) {
    static const struct {
        enum isa_unit unit;
        const char *text, *where, *part;
    } cases[] = {
        {ISA_WORKER, "", "column 1", "an instruction"},
        {ISA_WORKER, "frobnicate $m0", "column 1", "unknown instruction 'frobnicate'"},
        {ISA_WORKER, "sync 1", "column 1", "no instruction of a worker"},
        {ISA_SUPERVISOR, " rpt $m0, 1", "column 2", "no instruction of a supervisor"},
        {ISA_WORKER, "add $m0, $m1", "column 1", "takes 3 operands, got 2"},
        {ISA_WORKER, "add $m0, $m1, 65536", "column 15", "0..65535 or -32768..32767 or $mN"},
        {ISA_WORKER, "add $m0, $a1, 5", "column 10", "expected $mN"},
        {ISA_WORKER, "add $m0, $m1, 5 5", "column 17", "','"},
        {ISA_WORKER, "add $m0, $m1,", "column 13", "','"},
        {ISA_WORKER, "add $m0, $m16, 5", "column 10", "a register or a number"},
        {ISA_WORKER, "f32v2add $a1:2, $a0:1, $a2:3", "column 10", "N even"},
        {ISA_WORKER, "ld64 $a0, $m0, $m1, 0", "column 6", "$aN:N+1"},
        {ISA_WORKER, "get $m0, $FP_CTL", "column 10", "a control register or 0..255"},
        {ISA_WORKER, "bri 2", "column 5", "divisible by 4"},
        {ISA_WORKER, "or $m0, $m1, 0x1001", "column 14", "or 32 bits of which the low 20 are 0"},
        {ISA_WORKER, "ld32step $m0, $m1, $m2, 1", "column 20", "$mN with +="},
        {ISA_WORKER, "nop 1, 2, 3, 4, 5, 6, 7, 8, 9", "column 29", "fewer operands"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct insn insn;
        struct err err = {0};
        ck_assert_int_eq(isa_parse(cases[i].text, cases[i].unit, &insn, &err), -ERR_ASM);
        ck_assert_msg(
            strcmp(err.where, cases[i].where) == 0, "'%s': %s: %s", cases[i].text, err.where,
            err.text);
        ck_assert_msg(
            strstr(err.text, cases[i].part) != NULL, "'%s': %s: %s", cases[i].text, err.where,
            err.text);
    }
}
END_TEST

START_TEST(print_cuts_and_counts) {
    struct insn insn = {.op = ISA_OP_add_mmmn_si, .v = {0, 1, 5}};
    char text[8];
    ck_assert_int_eq(isa_print(&insn, NULL, 0), 15);
    ck_assert_int_eq(isa_print(&insn, text, sizeof text), 15);
    ck_assert_str_eq(text, "add $m0");
    struct insn none = {0};
    ck_assert_int_eq(isa_print(&none, text, sizeof text), 1);
}
END_TEST

START_TEST(control_registers_by_name) {
    ck_assert_int_eq(isa_csr_number("WSR", ISA_WORKER), 1);
    ck_assert_int_eq(isa_csr_number("WSR", ISA_SUPERVISOR), -1);
    ck_assert_int_eq(isa_csr_number("INCOMING_MUX", ISA_SUPERVISOR), 0xa0);
    ck_assert_int_eq(isa_csr_number("FP_CTL", ISA_WORKER), 258);
    ck_assert_ptr_null(isa_csr_name(255, ISA_SUPERVISOR));
    int listed = 0;
    for (int unit = 1; unit <= 2; unit++) {
        for (int number = 0; number < 512; number++) {
            const char *name = isa_csr_name(number, (enum isa_unit)unit);
            if (name != NULL) {
                listed++;
                ck_assert_int_eq(isa_csr_number(name, (enum isa_unit)unit), number);
            }
        }
    }
    ck_assert_int_eq(listed, 62);
}
END_TEST

START_TEST(sendpicp_has_two_words) {
    ck_assert_int_eq(isa_words(ISA_OP_sendpicp_word0), 2);
    ck_assert_int_eq(isa_words(ISA_OP_add_mmmn), 1);
    ck_assert_uint_eq(isa_sendpicp_data(0x640, 0x15000), 0x19015000);
    ck_assert_uint_eq(isa_sendpicp_data(0x5bf, 0x3ffff), 0x16ffffff);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("isa");
    TCase *tc = tcase_create("table");
    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, every_form_round_trips);
    tcase_add_test(tc, rows_cover_each_bit_once);
    tcase_add_test(tc, no_two_rows_match_one_word);
    tcase_add_test(tc, rows_are_sorted);
    tcase_add_test(tc, decode_survives_any_word);
    tcase_add_test(tc, odd_pairs_decode_but_do_not_encode);
    tcase_add_test(tc, encode_refuses_what_does_not_fit);
    tcase_add_test(tc, text_becomes_the_published_word);
    tcase_add_test(tc, bad_text_says_where);
    tcase_add_test(tc, print_cuts_and_counts);
    tcase_add_test(tc, control_registers_by_name);
    tcase_add_test(tc, sendpicp_has_two_words);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
