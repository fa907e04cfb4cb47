/* Kernel cycle formulas against the simulated tile: one line a kernel with its errors and the line
 * that would fit its points best; --points prints every point. Exit status 1 when a point is off by
 * more than 5 %.
 *
 *   calibrate [--points] [KERNEL...]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sweep.h"

static void print_point(const struct sweep_point *p, void *arg) {
    char symbol[48];
    printf(
        "%-36s %4u %4u %4u %4u: %8u cycles, predicted %8u, %+6.1f %%\n",
        kernel_symbol(&p->variant, symbol, sizeof symbol), p->dims[0], p->dims[1], p->dims[2],
        p->dims[3], p->measured, p->predicted, 100.0 * p->predicted / p->measured - 100);
}

static bool is_wanted(const char *name, int argc, char **argv) {
    bool any = false;
    for (int i = 1; i < argc; i++) {
        any = any || argv[i][0] != '-';
        if (strcmp(argv[i], name) == 0) {
            return true;
        }
    }
    return !any;
}

int main(int argc, char **argv) {
    bool points = false, bad = false;
    for (int i = 1; i < argc; i++) {
        points = points || strcmp(argv[i], "--points") == 0;
    }
    printf("kernel            variants points   median   p95    worst    mean   measured = a "
           "predicted + b\n");
    for (int id = 0; id < KERNEL_COUNT; id++) {
        const char *name = kernel_info((enum kernel_id)id)->name;
        struct sweep_summary s;
        struct err err = {0};
        if (!is_wanted(name, argc, argv)) {
            continue;
        }
        if (points) {
            sweep_run((enum kernel_id)id, 1, print_point, NULL, &err);
        }
        if (sweep_summary((enum kernel_id)id, 1, &s, &err) < 0) {
            printf("%-18s %s\n", name, err.text);
            bad = true;
            continue;
        }
        char symbol[48];
        printf(
            "%-18s %6u %6u %7.2f %% %5.1f %% %5.1f %% %+6.2f %%  %.4f x + %-7.1f  worst: %s %u %u "
            "%u %u: %u, predicted %u\n",
            name, s.variants, s.points, 100 * s.median, 100 * s.p95, 100 * s.worst, 100 * s.mean,
            s.slope, s.offset, kernel_symbol(&s.worst_point.variant, symbol, sizeof symbol),
            s.worst_point.dims[0], s.worst_point.dims[1], s.worst_point.dims[2],
            s.worst_point.dims[3], s.worst_point.measured, s.worst_point.predicted);
        bad = bad || s.worst > 0.05;
        fflush(stdout);
    }
    return bad;
}
