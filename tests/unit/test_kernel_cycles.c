/* Every kernel's cycle formula against the simulated tile, over the shapes of tests/calibrate: a
 * kernel without shapes fails, and one with a prediction that is off
 * by more than 5 %. */
#include <check.h>

#include "../calibrate/sweep.h"

#define MOST      0.05 /* of any point */
#define MOST_MEAN 0.02 /* sums over many calls must not drift */

START_TEST(formula_is_honest) {
    struct sweep_summary s;
    struct err err = {0};
    const char *name = kernel_info((enum kernel_id)_i)->name;
    ck_assert_msg(sweep_summary((enum kernel_id)_i, 3, &s, &err) == 0, "%s", err.text);
    ck_assert_uint_ge(s.points, 2);
    char symbol[48];
    ck_assert_msg(
        s.worst <= MOST, "%s: %s %u %u %u %u: %u cycles, predicted %u; make calibrate prints all",
        name, kernel_symbol(&s.worst_point.variant, symbol, sizeof symbol), s.worst_point.dims[0],
        s.worst_point.dims[1], s.worst_point.dims[2], s.worst_point.dims[3], s.worst_point.measured,
        s.worst_point.predicted);
    ck_assert_msg(
        s.mean > -MOST_MEAN && s.mean < MOST_MEAN, "%s: mean error %+.1f %%", name, 100 * s.mean);
}
END_TEST

/* What a call does usefully is work, and never takes longer than the call. */
START_TEST(useful_work_is_below_cycles) {
    const struct sweep_kernel *k = sweep_kernel((enum kernel_id)_i);
    ck_assert_ptr_nonnull(k);
    struct kernel_variant v = {.id = (enum kernel_id)_i};
    for (int i = 0; i < SWEEP_SHAPES && k->shapes[i][0] > 0; i++) {
        double useful = kernel_useful_cycles(&v, k->shapes[i]);
        ck_assert_msg(useful > 0, "%s has no rate in roofline.c", kernel_info(v.id)->name);
        ck_assert_double_le(useful, 1.02 * kernel_cycles(&v, k->shapes[i]));
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("kernel_cycles");
    TCase *tc = tcase_create("kernel_cycles");
    tcase_set_timeout(tc, 300);
    tcase_add_loop_test(tc, formula_is_honest, 0, KERNEL_COUNT);
    tcase_add_loop_test(tc, useful_work_is_below_cycles, 0, KERNEL_COUNT);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
