/* Numbering and routes of src/target against the vectors' complete tables. */
#include <check.h>
#include <jansson.h>
#include <stdlib.h>

#include "target/target.h"

#define VECTORS "tests/vectors/exchange-vectors.json"

static json_t *vectors;

static void load(void) {
    json_error_t where;
    vectors = json_load_file(VECTORS, 0, &where);
    ck_assert_msg(vectors != NULL, "%s: %s", VECTORS, where.text);
}

static void unload(void) {
    json_decref(vectors);
}

static struct physical_tile phys(int n) {
    return (struct physical_tile){(uint16_t)n};
}

START_TEST(numbering_is_the_recorded_permutation) {
    json_t *map = json_object_get(json_object_get(vectors, "topology"), "physical_by_logical");
    ck_assert_uint_eq(json_array_size(map), TARGET_TILES);
    for (int i = 0; i < TARGET_TILES; i++) {
        struct physical_tile p = target_physical((struct logical_tile){(uint16_t)i});
        ck_assert_int_eq(p.n, json_integer_value(json_array_get(map, (size_t)i)));
        ck_assert_int_eq(target_logical(p).n, i);
        ck_assert_int_eq(target_logical(target_partner(p)).n, i ^ 1);
        ck_assert_int_eq(64 * target_row(p) + 4 * target_column(p) + target_sub(p), p.n);
    }
}
END_TEST

START_TEST(route_tables_hold_for_every_pair) {
    json_t *base = json_object_get(vectors, "route_base");
    json_t *times = json_object_get(base, "time");
    json_t *displacements = json_object_get(base, "displacement");
    int least = 1000;
    int most = -1000;
    for (int s = 0; s < TARGET_TILES; s++) {
        json_t *row = json_array_get(times, (size_t)s % 64);
        json_t *far = json_array_get(displacements, (size_t)s % 64);
        int row_time[64];
        int row_far[64];
        for (size_t d = 0; d < 64; d++) {
            row_time[d] = (int)json_integer_value(json_array_get(row, d));
            row_far[d] = (int)json_integer_value(json_array_get(far, d));
        }
        for (int d = 0; d < TARGET_TILES; d++) {
            int time = row_time[d % 64];
            int displacement = row_far[d % 64];
            int got = target_route_time(phys(s), phys(d));
            bool same = got == time + 2 * (s / 64 - d / 64) &&
                        target_route_direction(phys(s), phys(d)) == (displacement < 1 ? 2 : 1) &&
                        abs(got - target_route_time(phys(s), phys(d ^ 2))) == 1;
            if (!same) { /* two million asserts would cost minutes */
                ck_abort_msg("route %d -> %d", s, d);
            }
            if (s != d) {
                least = got < least ? got : least;
                most = got > most ? got : most;
            }
        }
    }
    ck_assert_int_eq(least, -78);
    ck_assert_int_eq(most, 112);
}
END_TEST

START_TEST(recorded_routes_agree) {
    json_t *rows = json_object_get(json_object_get(vectors, "routes"), "rows");
    size_t i;
    json_t *r;
    ck_assert_uint_eq(json_array_size(rows), 300);
    json_array_foreach(rows, i, r) {
        int v[7];
        for (size_t k = 0; k < 7; k++) {
            v[k] = (int)json_integer_value(json_array_get(r, k));
        }
        struct physical_tile s = phys(v[0]);
        struct physical_tile d = phys(v[1]);
        int time = target_route_time(s, d);
        int other = target_route_time(s, target_partner(d));
        ck_assert_int_eq(target_route_direction(s, d), v[3]);
        ck_assert_int_eq(time, v[4]);
        ck_assert_int_eq(time > other ? time : other, v[5]);
        ck_assert_int_eq(time + 1 + target_arrival_delay(d), v[6]);
    }
}
END_TEST

START_TEST(elements_follow_the_two_regions) {
    ck_assert_int_eq(target_element(TARGET_MEM_BASE - 1), -1);
    ck_assert_int_eq(target_element(TARGET_MEM_BASE), 0);
    ck_assert_int_eq(target_element(TARGET_REGION1 - 1), 12);
    ck_assert_int_eq(target_element(TARGET_REGION1), 13);
    ck_assert_int_eq(target_element(TARGET_REGION1 + 8), 14);
    ck_assert_int_eq(target_element(TARGET_REGION1 + 0x8000), 15);
    ck_assert_int_eq(target_element(TARGET_MEM_END - 1), TARGET_ELEMENTS - 1);
    ck_assert_int_eq(target_element(TARGET_MEM_END), -1);
}
END_TEST

START_TEST(host_owners_have_distinct_grants) {
    bool seen[64][46] = {{false}};
    int owners = 0;
    for (int n = 0; n < TARGET_TILES; n++) {
        struct physical_tile owner = target_host_owner(phys(n));
        int bit = target_host_grant_bit(phys(n));
        ck_assert_int_lt(owner.n, 64);
        ck_assert_int_eq(owner.n & 2, 0);
        ck_assert_int_ge(bit, 0);
        ck_assert_int_lt(bit, 46);
        ck_assert_msg(!seen[owner.n][bit], "tile %d shares its grant bit", n);
        seen[owner.n][bit] = true;
        owners += owner.n == n;
        ck_assert_uint_eq(target_host_mux(phys(n)), 0x600u + owner.n);
    }
    ck_assert_int_eq(owners, 32);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("target");
    TCase *tables = tcase_create("tables");
    tcase_add_checked_fixture(tables, load, unload);
    tcase_set_timeout(tables, 60);
    tcase_add_test(tables, numbering_is_the_recorded_permutation);
    tcase_add_test(tables, route_tables_hold_for_every_pair);
    tcase_add_test(tables, recorded_routes_agree);
    suite_add_tcase(suite, tables);
    TCase *rules = tcase_create("rules");
    tcase_add_test(rules, elements_follow_the_two_regions);
    tcase_add_test(rules, host_owners_have_distinct_grants);
    suite_add_tcase(suite, rules);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
