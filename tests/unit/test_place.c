/* Placements: rules hold on many programs, code elements are kept free, failures say what is
 * missing; and that the verifier sees faults. */
#include <check.h>

#include "dense_net.h"
#include "place/place.h"

static struct arena arena;

static void setup(void) {
    arena_init(&arena, 256u << 20);
}

static void teardown(void) {
    arena_done(&arena);
}

static struct tile_graph *lower(const struct graph *g, uint32_t tiles) {
    struct plan_set *set = NULL;
    struct tile_graph *tg = NULL;
    struct err err = {0};
    int rc =
        plan_build(g, &(struct plan_options){tiles, 100, false, REPEATS_NONE}, &arena, &set, &err);
    rc = rc == 0 ? lower_build(&set->finalists[0], &arena, &tg, &err) : rc;
    ck_assert_msg(rc == 0, "%s", err.text);
    return tg;
}

static struct placement *
place(const struct tile_graph *tg, const uint8_t *overflow, uint32_t shift) {
    struct place_options o = {
        .data_base = 0x54000,
        .overflow_elements = overflow,
        .shift = shift,
        .literal_limit = 0x7C000};
    struct placement *p = NULL;
    struct err err = {0};
    int rc = place_build(tg, &o, &arena, &p, &err);
    rc = rc == 0 ? place_verify(p, &err) : rc;
    ck_assert_msg(rc == 0, "%s", err.text);
    return p;
}

START_TEST(test_networks) {
    static const uint32_t tiles[] = {1, 4, 16, 64};
    const int64_t widths[] = {256, 300, 100, 10};
    for (size_t t = 0; t < sizeof tiles / sizeof *tiles; t++) {
        struct tile_graph *tg = lower(net_mlp(&arena, 30, widths, 4), tiles[t]);
        for (uint32_t shift = 0; shift < 32768; shift += 4096) {
            place(tg, NULL, shift);
        }
        place(lower(net_residual(&arena, 12, 64, 256), tiles[t]), NULL, 0);
    }
}
END_TEST

START_TEST(test_overflow) {
    const int64_t widths[] = {64, 64, 64};
    struct tile_graph *tg = lower(net_mlp(&arena, 8, widths, 3), 4);
    uint8_t overflow[TARGET_TILES] = {0};
    overflow[1] = 3;
    struct placement *p = place(tg, overflow, 0);
    for (uint32_t i = 0; i < tg->buffer_count; i++) {
        ck_assert(tg->buffers[i].tile.n != 1 || p->addr[i] >= 0x54000 + 3 * 0x4000);
    }
}
END_TEST

/* A tile without room: its number, class and largest buffers are named. */
START_TEST(test_does_not_fit) {
    const int64_t widths[] = {64, 64, 64};
    struct tile_graph *tg = lower(net_mlp(&arena, 8, widths, 3), 2);
    uint32_t at = 0;
    while (tg->buffers[at].kind != BUFFER_WEIGHTS) {
        at++;
    }
    tg->buffers[at].bytes = 600000;
    struct place_options o = {.data_base = 0x54000, .literal_limit = 0x7C000};
    struct placement *p = NULL;
    struct err err = {0};
    ck_assert_int_eq(place_build(tg, &o, &arena, &p, &err), -ERR_DOES_NOT_FIT);
    ck_assert_ptr_nonnull(strstr(err.text, "600000 bytes"));
    ck_assert_ptr_nonnull(strstr(err.text, "weights of step 0"));
}
END_TEST

START_TEST(test_verify) {
    const int64_t widths[] = {256, 192, 64};
    for (int fault = 0; fault < 4; fault++) {
        struct tile_graph *tg = lower(net_mlp(&arena, 20, widths, 3), 4);
        struct placement *p = place(tg, NULL, 0);
        uint32_t w = 0; /* a first call's weights and operand */
        struct buffer_id x = tg->vertices[0].words[GEMM_X].buffer;
        w = tg->vertices[0].words[GEMM_W].buffer.n;
        switch (fault) {
        case 0: p->addr[w] += 4; break;
        case 1: p->addr[w] = 0x50000; break;
        case 2:
            p->addr[x.n] = p->addr[w] + tg->buffers[w].bytes;
            p->addr[x.n] = (p->addr[x.n] + 31) & ~31u; /* same element as the weights */
            break;
        default: p->addr[x.n] = p->addr[w]; break;
        }
        struct err err = {0};
        ck_assert_int_eq(place_verify(p, &err), -ERR_INTERNAL);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("place");
    TCase *tc = tcase_create("place");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, test_networks);
    tcase_add_test(tc, test_overflow);
    tcase_add_test(tc, test_does_not_fit);
    tcase_add_test(tc, test_verify);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
