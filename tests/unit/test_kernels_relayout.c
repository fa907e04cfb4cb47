/* RELAYOUT on one bare tile: bits are moved, so bits are compared. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/f16.h"
#include "kernel_bench.h"

struct relayout_case {
    int op;
    bool is_row_major;
    uint32_t rows, columns;
    uint32_t x, out, row_stride, panel_stride;
};

static uint32_t x_addr(const struct relayout_case *t, uint32_t r, uint32_t c) {
    return t->x + r * t->row_stride + c / 16 * t->panel_stride + 2 * (c % 16);
}

static uint32_t weight_addr(uint32_t base, uint32_t depth, uint32_t block, uint32_t n, uint32_t k) {
    uint32_t groups = (depth + 15) / 16;
    return base + 2 * (((n / block * groups + k / 16) * block + n % block) * 16 + k % 16);
}

static uint32_t round_up(uint32_t x, uint32_t to) {
    return (x + to - 1) / to * to;
}

/* out's rows and columns, and where x's element (row, column) of it lies. */
static void shape_of(const struct relayout_case *t, uint32_t *ret_rows, uint32_t *ret_columns) {
    bool is_copy = t->op >= RELAYOUT_COPY_W8;
    uint32_t n = is_copy ? t->rows : t->columns, k = is_copy ? t->columns : t->rows;
    *ret_rows = t->op == RELAYOUT_TRANSPOSE ? n : round_up(n, 16);
    *ret_columns = round_up(k, 16);
}

static void check_relayout(struct relayout_case *t) {
    struct kernel_variant v = {.id = KERNEL_RELAYOUT, .op = (uint8_t)t->op};
    struct bench b;
    bench_init(&b, &v);
    uint32_t stored = t->is_row_major ? round_up(t->columns, 4) : round_up(t->columns, 16);
    t->row_stride = t->is_row_major ? 2 * stored : 32;
    t->panel_stride = t->is_row_major ? 32 : 32 * t->rows;
    t->x = TARGET_MEM_END - 2 * t->rows * stored;
    t->out = REGION0 + 16;
    for (uint32_t r = 0; r < t->rows; r++) {
        for (uint32_t c = 0; c < stored; c++) { /* padding is finite, not 0 */
            put_half(&b, x_addr(t, r, c), c < t->columns ? random_half(60000) : 0x1234);
        }
    }
    uint32_t rows, columns;
    shape_of(t, &rows, &columns);
    allow_write(&b, t->out, 2 * rows * columns);
    b.words[RELAYOUT_X] = t->x;
    b.words[RELAYOUT_OUT] = t->out;
    b.words[RELAYOUT_ROWS] = t->rows;
    b.words[RELAYOUT_COLUMNS] = t->columns;
    b.words[RELAYOUT_ROW_STRIDE] = t->row_stride;
    b.words[RELAYOUT_PANEL_STRIDE] = t->panel_stride;
    run(&b);
    bool is_copy = t->op >= RELAYOUT_COPY_W8;
    uint32_t block = t->op == RELAYOUT_TRANSPOSE_W8 || t->op == RELAYOUT_COPY_W8 ? 8 : 16;
    for (uint32_t n = 0; n < rows; n++) {
        for (uint32_t k = 0; k < columns; k++) {
            uint32_t r = is_copy ? n : k, c = is_copy ? k : n;
            uint32_t at = t->op == RELAYOUT_TRANSPOSE ? element_addr(t->out, rows, n, k)
                                                      : weight_addr(t->out, columns, block, n, k);
            uint16_t got, want = 0;
            memcpy(&got, b.after + (at - TARGET_MEM_BASE), 2);
            if (r < t->rows && c < t->columns) {
                memcpy(&want, b.before + (x_addr(t, r, c) - TARGET_MEM_BASE), 2);
            }
            ck_assert_msg(
                got == want, "op %d %ux%u (%u, %u): 0x%04x, expected 0x%04x", t->op, t->rows,
                t->columns, n, k, got, want);
        }
    }
    if (t->row_stride <= 1360) {
        check_cycles(&b, t->rows, t->columns, 0);
    }
    bench_done(&b);
}

START_TEST(relayout_shapes) {
    static const uint32_t rows[] = {1, 3, 4, 7, 8, 16, 17, 30, 64, 129};
    static const uint32_t columns[] = {1, 2, 3, 4, 7, 15, 16, 17, 32, 50, 64};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (size_t j = 0; j < sizeof(columns) / sizeof(columns[0]); j++) {
            struct relayout_case t = {
                .op = _i, .is_row_major = (i + j) & 1, .rows = rows[i], .columns = columns[j]};
            check_relayout(&t);
        }
    }
}
END_TEST

/* Rows longer than the strides of one instruction. */
START_TEST(relayout_long_rows) {
    static const uint32_t columns[] = {680, 684, 2052, 2056, 2060};
    for (size_t j = 0; j < sizeof(columns) / sizeof(columns[0]); j++) {
        struct relayout_case t = {.op = _i, .is_row_major = true, .rows = 9, .columns = columns[j]};
        check_relayout(&t);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("kernels_relayout");
    TCase *tc = tcase_create("kernels_relayout");
    tcase_set_timeout(tc, 300);
    tcase_add_loop_test(tc, relayout_shapes, 0, RELAYOUT_COUNT);
    tcase_add_loop_test(tc, relayout_long_rows, 0, RELAYOUT_COUNT);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
