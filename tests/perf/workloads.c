#include "workloads.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/pipeline.h"
#include "target/target.h"

#define MAC_PER_CYCLE 64 /* of a tile: f16v4hihov4amp */

struct workload {
    const char *name;
    bool accumulate_f16;
    uint64_t published; /* cycles [compiler 1.5], 0 when there is no figure for this precision */
    uint64_t accepted;  /* at most so many */
    double products;    /* multiply-adds */
};

#define TOKENS 729.0
#define WIDTH  1152.0
#define HIDDEN 4304.0

/* The encoder layer, then the patch embedding, then keys and values of the pooling head; what works
 * on its one row does not count. */
#define LAYER                                                                                      \
    (TOKENS * WIDTH * (4 * WIDTH + 2 * HIDDEN + 2 * TOKENS) + TOKENS * 588 * WIDTH +               \
     2 * TOKENS * WIDTH * WIDTH)

static const struct workload workloads[] = {
    {"mlp", true, 172236, 200000, 2 * TOKENS *WIDTH *HIDDEN},
    {"mlp", false, 0, 0, 2 * TOKENS *WIDTH *HIDDEN},
    {"gemm", true, 2262696, 1300000, 4096.0 * 4096.0 * 4096.0},
    {"attention", true, 195096, 230000, TOKENS *WIDTH *(3 * WIDTH + 2 * TOKENS)},
    {"so400m", true, 0, 800000, LAYER},
};

static char *read_model(const char *folder, const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s.json", folder, name);
    FILE *in = fopen(path, "rb");
    char *text = calloc(1, 1u << 20);
    if (in == NULL || text == NULL || fread(text, 1, (1u << 20) - 1, in) == 0) {
        perror(path);
        free(text);
        text = NULL;
    }
    if (in != NULL) {
        fclose(in);
    }
    return text;
}

static void print_count(uint64_t count) {
    if (count == 0) {
        printf(" %9s", "-");
    } else {
        printf(" %9llu", (unsigned long long)count);
    }
}

static void print_row(const struct workload *w, const struct pipeline_result *r) {
    const struct compile_result *c = &r->compile;
    double cpu_ms = 0;
    for (uint32_t i = 0; i < c->pass_count; i++) {
        cpu_ms += c->passes[i].cpu_ms;
    }
    printf(
        "  %-9s %s %9llu %9llu %9llu", w->name, w->accumulate_f16 ? "f16" : "f32",
        (unsigned long long)r->release_cycles[0], (unsigned long long)r->cycles,
        (unsigned long long)r->release_cycles[1]);
    print_count(w->published);
    print_count(w->accepted);
    print_count((uint64_t)(w->products / MAC_PER_CYCLE / TARGET_TILES));
    printf(
        " %9llu %6.3f %6u %6.1f %6.1f %9.2e %9.2e %.6f %s |",
        (unsigned long long)c->estimated_cycles, (double)c->estimated_cycles / (double)r->cycles,
        c->exchange_phases, cpu_ms / 1e3, r->run_s, r->worst.max_abs_error, r->worst.tolerance,
        r->cosine, r->pass ? "pass" : "FAIL");
    for (uint32_t i = 0; i < c->pass_count; i++) {
        if (c->passes[i].cpu_ms > 0.01 * cpu_ms) {
            printf(" %s %.1f", c->passes[i].name, c->passes[i].cpu_ms / 1e3);
        }
    }
    putchar('\n');
}

static void bench_workload(const struct workload *w, const char *folder) {
    static const uint32_t releases[] = {100, 300};
    char *model = read_model(folder, w->name);
    struct pipeline_options options = {
        .tiles = TARGET_TILES,
        .accumulate_f16 = w->accumulate_f16,
        .seed = 1,
        .runs = 1,
        .folder = folder,
        .sim = {.sync_release = 180},
        .releases = releases,
        .release_count = 2};
    struct pipeline_result result;
    struct err err = {0};
    if (model == NULL) {
        return;
    }
    if (pipeline_run(model, &options, &result, &err) < 0) {
        printf("  %s: %s %s\n", w->name, err.where, err.text);
    } else {
        print_row(w, &result);
    }
    fflush(stdout);
    free(model);
}

void bench_workloads(const char *folder, const char *only) {
    printf(
        "workloads, %d tiles; cycles at sync_release 100, 180 and 300; bound: %d products a cycle "
        "and tile\n",
        TARGET_TILES, MAC_PER_CYCLE);
    printf(
        "  %-9s %s %9s %9s %9s %9s %9s %9s %9s %6s %6s %6s %6s %9s %9s %-8s %s\n", "name", "acc",
        "at 100", "at 180", "at 300", "published", "accepted", "bound", "predicted", "ratio",
        "phases", "comp.s", "sim. s", "error", "tolerance", "cosine", "     | processor s by pass");
    for (size_t i = 0; i < sizeof workloads / sizeof workloads[0]; i++) {
        if (only == NULL || strcmp(only, workloads[i].name) == 0) {
            bench_workload(&workloads[i], folder);
        }
    }
}
