/* Differential test: seeded random graphs, compiled and run on the simulator, against the float
 * reference. A failing seed is printed with the command that replays it.
 *
 *   diff [--all] [--count N] [--seed FIRST] [--threads N] [--print] [--same]
 *        --same runs each seed again with 1 and 2 threads, with registers poisoned between
 *        launches, and in slices of 1, 7 and 1,000 cycles: outputs and cycles must not change
 *        --all: networks of all operators; what the compiler refuses with the node's place is
 *        counted apart, and more than one in fifty is a failure
 *        --repeated: networks with equal blocks; all that the compiler makes a loop of runs without
 *        one too, and outputs must not change by a bit
 *   diff --model FILE [--tiles N] [--seed JOB_SEED] [--stages LIST] [--repeat auto|off]
 *        [--profile off|phase|kernel]
 *        a model that brings its own data; figures, before them what the compiler prints of the
 *        stages (compile.h): "plan,levels"
 *   --f16 with any: accumulate=f16
 * Random graphs take turns in how much they sample.
 */
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../support/pipeline.h"
#include "../support/random_graph.h"

static const uint32_t tile_choices[] = {4, 8, 16, 23, 32, 64};

/* Ways to run the simulator that must not matter. */
static const struct way {
    const char *name;
    struct sim_options sim;
} ways[] = {
    {"1 thread", {.threads = 1}},
    {"2 threads", {.threads = 2}},
    {"poisoned launches", {.threads = 2, .poison_launch = true}},
    {"slices of 1,000 cycles", {.threads = 2, .slice_cycles = 1000}},
    {"slices of 7 cycles", {.threads = 1, .slice_cycles = 7}},
    {"slices of 1 cycle", {.threads = 1, .slice_cycles = 1}},
};

struct totals {
    uint64_t passed, failed, refused, looped;
    bool repeated;       /* networks */
    bool all;            /* operators */
    bool accumulate_f16; /* option */
    double largest_use;
    uint64_t largest_seed;
};

static void run_ways(
    const char *model, const struct pipeline_options *options, const struct pipeline_result *first,
    struct totals *t) {
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        struct pipeline_options other = *options;
        struct pipeline_result result;
        struct err err = {0};
        other.sim = ways[i].sim;
        int r = pipeline_run(model, &other, &result, &err);
        if (r < 0 || result.cycles != first->cycles ||
            !digest_equal(&result.outputs, &first->outputs)) {
            printf(
                "seed %llu, %s: %s, cycles %llu, before %llu\n", (unsigned long long)options->seed,
                ways[i].name, r < 0 ? err.text : "differs", (unsigned long long)result.cycles,
                (unsigned long long)first->cycles);
            t->failed++;
        } else {
            t->passed++;
        }
    }
}

/* What runs as a loop gives the same without one. */
static void run_unrolled(
    const char *model, const struct pipeline_options *options, const struct pipeline_result *first,
    struct totals *t) {
    struct pipeline_options other = *options;
    struct pipeline_result result;
    struct err err = {0};
    other.repeat = REPEAT_OFF;
    int r = pipeline_run(model, &other, &result, &err);
    t->looped++;
    if (r < 0 || result.compile.repeat_turns > 0 ||
        !digest_equal(&result.outputs, &first->outputs)) {
        printf(
            "seed %llu, loop of %u turns: %s\n", (unsigned long long)options->seed,
            first->compile.repeat_turns, r < 0 ? err.text : "differs without it");
        t->failed++;
    }
}

static void
run_seed(uint64_t seed, const char *folder, int threads, int print, int same, struct totals *t) {
    char *model = t->repeated ? random_graph_repeated_json(seed)
                  : t->all    ? random_graph_all_json(seed)
                              : random_graph_json(seed);
    if (model == NULL) {
        printf("seed %llu: out of memory\n", (unsigned long long)seed);
        t->failed++;
        return;
    }
    struct pipeline_options options = {
        .tiles = tile_choices[seed % (sizeof tile_choices / sizeof tile_choices[0])],
        .profile = (enum emit_profile)(seed / 2 % 3),
        .seed = seed,
        .runs = 1 + seed % 2,
        .folder = folder,
        .accumulate_f16 = t->accumulate_f16,
        .sim = {.threads = threads}};
    struct pipeline_result result;
    struct err err = {0};
    if (print) {
        printf("%s\n", model);
    }
    int r = pipeline_run(model, &options, &result, &err);
    if (same && r == 0) {
        run_ways(model, &options, &result, t);
    }
    if (r == 0 && result.compile.repeat_turns > 0) {
        run_unrolled(model, &options, &result, t);
    }
    free(model);
    bool is_refused = r == -ERR_UNSUPPORTED_OP || r == -ERR_DTYPE || r == -ERR_DOES_NOT_FIT;
    if (t->all && is_refused && strncmp(err.where, "/nodes/", 7) == 0) {
        t->refused++;
        if (print) {
            printf("seed %llu: %s\n", (unsigned long long)seed, err.text);
        }
        return;
    }
    if (r == 0 && result.pass) {
        t->passed++;
        double use =
            result.worst.tolerance > 0 ? result.worst.max_abs_error / result.worst.tolerance : 0;
        if (use > t->largest_use) {
            t->largest_use = use;
            t->largest_seed = seed;
        }
        if (print) {
            printf(
                "seed %llu: error %.3g of tolerance %.3g, %llu cycles\n", (unsigned long long)seed,
                result.worst.max_abs_error, result.worst.tolerance,
                (unsigned long long)result.cycles);
        }
        return;
    }
    t->failed++;
    if (r < 0) {
        printf(
            "seed %llu, %u tiles: %s: %s %s\n", (unsigned long long)seed, options.tiles,
            err_name(r), err.text, err.where);
    } else {
        printf(
            "seed %llu, %u tiles: output %u element %llu: got %.9g, expected %.9g, tolerance "
            "%.3g\n",
            (unsigned long long)seed, options.tiles, result.worst_output,
            (unsigned long long)result.worst.worst_index, result.worst.got, result.worst.expected,
            result.worst.tolerance);
    }
    printf(
        "  replay: diff%s%s%s --seed %llu --count 1 --print\n", t->all ? " --all" : "",
        t->repeated ? " --repeated" : "", t->accumulate_f16 ? " --f16" : "",
        (unsigned long long)seed);
}

static char *read_file(const char *path) {
    FILE *in = fopen(path, "rb");
    char *text = NULL;
    size_t size = 0, got = 0;
    while (in != NULL && (text = realloc(text, size + 65536)) != NULL &&
           (got = fread(text + size, 1, 65535, in)) > 0) {
        size += got;
    }
    if (in != NULL) {
        fclose(in);
    }
    if (text != NULL) {
        text[size] = '\0';
    }
    return text;
}

/* One model: its figures, and whether every output is within its tolerance. */
static int run_model(const char *path, const struct pipeline_options *options) {
    char *model = read_file(path);
    if (model == NULL) {
        perror(path);
        return 2;
    }
    struct pipeline_result r;
    struct err err = {0};
    int rc = pipeline_run(model, options, &r, &err);
    free(model);
    if (rc < 0) {
        printf(
            "%s, %u tiles: %s: %s %s\n", path, options->tiles, err_name(rc), err.text, err.where);
        return 1;
    }
    printf(
        "%s, %u tiles: %s, error %.3g of tolerance %.3g, %llu cycles (estimate %llu, exchange "
        "%llu), %u phases, %u calls, %u active tiles, loop of %u turns, code %u bytes, tables %u "
        "bytes, compile %.2f s (%.3f s of the processor)\n",
        path, options->tiles, r.pass ? "pass" : "FAIL", r.worst.max_abs_error, r.worst.tolerance,
        (unsigned long long)r.cycles, (unsigned long long)r.compile.estimated_cycles,
        (unsigned long long)r.compile.exchange_cycles, r.compile.exchange_phases,
        r.compile.kernel_calls, r.compile.active_tiles, r.compile.repeat_turns,
        r.compile.code_bytes, r.compile.table_bytes, r.compile_s, r.compile_cpu_s);
    return r.pass ? 0 : 1;
}

int main(int argc, char **argv) {
    uint64_t count = 20, seed = 1;
    int threads = 0, print = 0, same = 0, c;
    const char *path = NULL, *stages = NULL;
    uint32_t tiles = 16;
    enum emit_profile profile = EMIT_PROFILE_OFF;
    enum compile_repeat repeat = REPEAT_AUTO;
    struct totals t = {0};
    compile_keep_memory();
    static const struct option options[] = {
        {"count", required_argument, NULL, 'n'},   {"seed", required_argument, NULL, 's'},
        {"threads", required_argument, NULL, 't'}, {"print", no_argument, NULL, 'p'},
        {"same", no_argument, NULL, 'w'},          {"all", no_argument, NULL, 'a'},
        {"f16", no_argument, NULL, 'f'},           {"model", required_argument, NULL, 'm'},
        {"stages", required_argument, NULL, 'g'},  {"tiles", required_argument, NULL, 'i'},
        {"profile", required_argument, NULL, 'r'}, {"repeated", no_argument, NULL, 'R'},
        {"repeat", required_argument, NULL, 'o'},  {NULL, 0, NULL, 0}};
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (c) {
        case 'n': count = strtoull(optarg, NULL, 10); break;
        case 's': seed = strtoull(optarg, NULL, 10); break;
        case 't': threads = atoi(optarg); break;
        case 'p': print = 1; break;
        case 'w': same = 1; break;
        case 'a': t.all = true; break;
        case 'R': t.repeated = true; break;
        case 'o': repeat = strcmp(optarg, "off") == 0 ? REPEAT_OFF : REPEAT_AUTO; break;
        case 'f': t.accumulate_f16 = true; break;
        case 'm': path = optarg; break;
        case 'g': stages = optarg; break;
        case 'r':
            if (!compile_profile_find(optarg, &profile)) {
                return 2;
            }
            break;
        case 'i': tiles = (uint32_t)strtoul(optarg, NULL, 10); break;
        default: return 2;
        }
    }
    char folder[] = "/tmp/ipud-diff-XXXXXX";
    if (mkdtemp(folder) == NULL) {
        perror("mkdtemp");
        return 2;
    }
    if (path != NULL) {
        struct pipeline_options one = {
            .tiles = tiles,
            .profile = profile,
            .repeat = repeat,
            .seed = seed,
            .runs = 1,
            .print = stages,
            .accumulate_f16 = t.accumulate_f16,
            .folder = folder,
            .sim = {.threads = threads}};
        int rc = run_model(path, &one);
        rmdir(folder);
        return rc;
    }
    for (uint64_t i = 0; i < count; i++) {
        run_seed(seed + i, folder, threads, print, same, &t);
        fflush(stdout);
    }
    rmdir(folder);
    printf(
        "largest share of a tolerance: %.3f (seed %llu)\n", t.largest_use,
        (unsigned long long)t.largest_seed);
    if (t.looped > 0) {
        printf("%llu loops\n", (unsigned long long)t.looped);
    }
    if (t.all) {
        printf("%llu refused\n", (unsigned long long)t.refused);
    }
    printf(
        "%llu passed, %llu failed\n", (unsigned long long)t.passed, (unsigned long long)t.failed);
    return t.failed == 0 && t.refused * 50 <= count ? 0 : 1;
}
