/* Figures for people: speed of the simulator, boot, compile by pass, cycles of the models. Nothing
 * here asserts. Every figure is printed with what it was measured on.
 * bench [simulator | predictions]: without the models, or predicted against simulated cycles
 * only. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../support/pipeline.h"
#include "asm/asm.h"
#include "device/device_internal.h"
#include "kernels/kernels.h"
#include "predict.h"
#include "sim/sim.h"
#include "workloads.h"

static double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- simulator speed ---------------------------------------------------------------------- */

#define CODE 0x4c010u

struct loop {
    const char *name;
    const char *text; /* supervisor entry `start`, launches all six workers, ends in trap 0 */
};

#define LAUNCH                                                                                     \
    ".supervisor\n.globl start\nstart: setzi $m0, work\n setzi $m1, 0x90000\n runall $m0, $m1, "   \
    "0\n"                                                                                          \
    " sync 2\n trap 0\n.worker\n.p2align 3\nwork:\n"

static const struct loop loops[] = {
    {"scalar integer, solo words",
     LAUNCH "setzi $m0, 0\n setzi $m1, 100000\nagain: add $m0, $m0, 3\n xor $m2, $m0, $m1\n"
            " shl $m3, $m2, 1\n brnzdec $m1, again\n exitz $mzero\n"},
    {"scalar integer, bundles in rpt",
     LAUNCH "setzi $m1, 60000\n .p2align 3\n nop\n rpt $m1, 7\n"
            ".rept 8\n{ add $m0, $m0, 3 ; fnop }\n.endr\n exitz $mzero\n"},
    {"f16 vectors with loads",
     LAUNCH "setzi $m1, 30000\n setzi $m2, 0x90000\n .p2align 3\n nop\n rpt $m1, 3\n"
            "{ ld64 $a0:1, $m2, $mzero, 0 ; f16v4add $a2:3, $a4:5, $a6:7 }\n"
            "{ ld64 $a4:5, $m2, $mzero, 1 ; f16v4mul $a6:7, $a0:1, $a2:3 }\n"
            "{ st64 $a2:3, $m2, $mzero, 2 ; f16v4add $a2:3, $a0:1, $a4:5 }\n"
            "{ nop ; f16v4cmac $a0:1, $a2:3 }\n exitz $mzero\n"},
    {"matrix unit, f16v4hihov4amp with loads",
     LAUNCH "setzi $m1, 30000\n setzi $m2, 0x90000\n .p2align 3\n nop\n rpt $m1, 3\n"
            "{ ld64 $a0:1, $m2, $mzero, 0 ; f16v4hihov4amp $a2:3, $a0:1, $azeros, 12 }\n"
            "{ ld64 $a0:1, $m2, $mzero, 1 ; f16v4hihov4amp $a2:3, $a0:1, $azeros, 13 }\n"
            "{ ld64 $a0:1, $m2, $mzero, 2 ; f16v4hihov4amp $a2:3, $a0:1, $azeros, 14 }\n"
            "{ ld64 $a0:1, $m2, $mzero, 3 ; f16v4hihov4amp $a2:3, $a0:1, $azeros, 15 }\n"
            " exitz $mzero\n"},
    {"matrix unit, f16v4sisoamp with loads",
     LAUNCH "setzi $m1, 30000\n setzi $m2, 0x90000\n .p2align 3\n nop\n rpt $m1, 3\n"
            "{ ld64 $a0:1, $m2, $mzero, 0 ; f16v4sisoamp $a2:3, $a0:1, $azeros, 12 }\n"
            "{ ld64 $a0:1, $m2, $mzero, 1 ; f16v4sisoamp $a2:3, $a0:1, $azeros, 13 }\n"
            "{ ld64 $a0:1, $m2, $mzero, 2 ; f16v4sisoamp $a2:3, $a0:1, $azeros, 14 }\n"
            "{ ld64 $a0:1, $m2, $mzero, 3 ; f16v4sisoamp $a2:3, $a0:1, $azeros, 15 }\n"
            " exitz $mzero\n"},
};

static void bench_loop(const struct loop *loop) {
    struct arena a;
    struct err err = {0};
    struct asm_object *object;
    struct asm_image *image;
    arena_init(&a, 64u << 20);
    if (ARENA_RECOVER(&a)) {
        printf("  out of memory\n");
        return;
    }
    struct asm_source source = {loop->name, loop->text, strlen(loop->text)};
    struct asm_placement place = {".text", CODE, 0};
    struct sim_options options = {.threads = 1};
    struct sim_tile *tile = sim_tile_new(&options);
    int r = tile == NULL ? -1 : asm_assemble(&source, ISA_SUPERVISOR, NULL, 0, &a, &object, &err);
    r = r < 0 ? r
              : asm_link(
                    (const struct asm_object *const *)&object, 1, &place, 1, NULL, 0, &a, &image,
                    &err);
    uint32_t start = 0;
    r = r < 0 ? r : asm_image_symbol(image, "start", &start, &err);
    if (r < 0) {
        printf("  %-40s %s %s\n", loop->name, err.where, err.text);
        sim_tile_free(tile);
        arena_done(&a);
        return;
    }
    sim_tile_zero(tile);
    for (size_t i = 0; i < image->segment_count; i++) {
        sim_tile_write(
            tile, image->segments[i].addr, image->segments[i].bytes, image->segments[i].size, &err);
    }
    double best = 0;
    for (int round = 0; round < 3; round++) {
        struct sim_stopped stopped;
        sim_tile_set(tile, SIM_SUPERVISOR, 'p', 0, start, &err);
        sim_tile_start(tile, SIM_SUPERVISOR);
        double before = cpu_seconds();
        sim_tile_run(tile, 1u << 30, &stopped);
        double rate = (double)stopped.groups / (cpu_seconds() - before) / 1e6;
        best = rate > best ? rate : best;
    }
    printf("  %-40s %7.1f M issue groups/s on one core\n", loop->name, best);
    sim_tile_free(tile);
    arena_done(&a);
}

/* ---- boot --------------------------------------------------------------------------------- */

/* An image of a few words for every tile: what remains is the loader and 1,472 simulated tiles. */
enum { BOOT_WORDS = 64 };

static int
open_simulated(const char *spec, void *arg, struct ipu_device_ops *ret, struct err *err) {
    (void)spec;
    return sim_device_open(arg, ret, err);
}

static double wall_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double process_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void bench_boot(const char *folder) {
    static struct package_content contents[TARGET_TILES];
    static struct package_segment segments[TARGET_TILES];
    static struct config_write writes[CONFIG_MAX];
    static const uint8_t image[BOOT_WORDS * 4] = {1, 2, 3, 4};
    struct package package = {
        .contents = contents,
        .content_count = TARGET_TILES,
        .segments = segments,
        .segment_count = TARGET_TILES};
    struct sim_options sim = {.trace_tile = -1};
    char lock[128];
    double best = 1e9, best_cpu = 1e9;
    snprintf(lock, sizeof lock, "%s/lock", folder);
    for (uint16_t i = 0; i < TARGET_TILES; i++) {
        contents[i] = (struct package_content){image, sizeof image};
        segments[i] = (struct package_segment){{i}, TARGET_LOAD_BASE, i};
    }
    struct device_options options = {
        .spec = "sim",
        .lock_path = lock,
        .no_wait = true,
        .open_ops = open_simulated,
        .open_arg = &sim};
    struct device *d = NULL;
    struct err err = {0};
    int r = device_open(&options, &d, &err);
    for (int round = 0; r == 0 && round < 5; round++) {
        r = device_initialize(d, &err);
        r = r < 0 ? r : config_replay(d, writes, config_generate(writes), &err);
        double wall = wall_seconds(), cpu = process_seconds();
        r = r < 0 ? r : boot_load(d, &package, NULL, NULL, &err);
        wall = wall_seconds() - wall;
        cpu = process_seconds() - cpu;
        best = wall < best ? wall : best;
        best_cpu = cpu < best_cpu ? cpu : best_cpu;
    }
    if (r < 0) {
        printf("  %s %s\n", err.where, err.text);
    } else {
        printf(
            "  boot_load, %u tiles, images of %u words: %.3f s, %.3f s of processor time\n",
            (unsigned)TARGET_TILES, (unsigned)BOOT_WORDS, best, best_cpu);
    }
    device_close(d);
    unlink(lock);
}

/* ---- models ------------------------------------------------------------------------------- */

static char *read_text(const char *path) {
    FILE *file = fopen(path, "rb");
    char *text = calloc(1, 1u << 20);
    if (file == NULL || text == NULL || fread(text, 1, (1u << 20) - 1, file) == 0) {
        free(text);
        text = NULL;
    }
    if (file != NULL) {
        fclose(file);
    }
    return text;
}

static void bench_model(const char *name, const char *path, uint32_t tiles, const char *folder) {
    static const uint32_t releases[] = {100, 180, 300};
    char *model = read_text(path);
    if (model == NULL) {
        printf("  %s: cannot read %s\n", name, path);
        return;
    }
    uint64_t cycles[3] = {0};
    struct pipeline_result result;
    struct err err = {0};
    for (int i = 0; i < 3; i++) {
        struct pipeline_options options = {
            .tiles = tiles,
            .seed = 1,
            .runs = 1,
            .folder = folder,
            .sim = {.sync_release = releases[i]}};
        if (pipeline_run(model, &options, &result, &err) < 0) {
            printf("  %s: %s %s\n", name, err.where, err.text);
            free(model);
            return;
        }
        cycles[i] = result.cycles;
    }
    printf(
        "  %-18s %4u tiles: %llu / %llu / %llu cycles at sync_release 100 / 180 / 300, predicted "
        "%llu, %u phases, error %.3g of %.3g\n",
        name, tiles, (unsigned long long)cycles[0], (unsigned long long)cycles[1],
        (unsigned long long)cycles[2], (unsigned long long)result.compile.estimated_cycles,
        result.compile.exchange_phases, result.worst.max_abs_error, result.worst.tolerance);
    printf(
        "  %-18s compile %.3f s, boot and initialize %.3f s, run %.3f s\n", "", result.compile_s,
        result.load_s, result.run_s);
    for (uint32_t i = 0; i < result.compile.pass_count; i++) {
        printf(
            "    %-30s %9.2f ms\n", result.compile.passes[i].name,
            result.compile.passes[i].elapsed_ms);
    }
    free(model);
}

static void bench_predictions(const char *folder) {
    static const struct predict_model models[] = {
        {"vision transformer", "tests/models/vit-small/model.json", 64, false},
        {"mlp 64-512-128-10", "tests/perf/mlp.json", 64, false},
        {"mlp 64-512-128-10", "tests/perf/mlp.json", TARGET_TILES, false},
    };
    printf("predicted against simulated cycles:\n");
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        char *text = read_text(models[i].path);
        if (text != NULL) {
            predict_model(&models[i], text, folder);
        }
        free(text);
    }
}

int main(int argc, char **argv) {
    compile_keep_memory();
    if (argc > 2 && strcmp(argv[1], "workloads") == 0) {
        bench_workloads(argv[2], argc > 3 ? argv[3] : NULL);
        return 0;
    }
    char folder[] = "/tmp/ipud-bench-XXXXXX";
    if (mkdtemp(folder) == NULL) {
        perror("mkdtemp");
        return 2;
    }
    if (argc > 1 && strcmp(argv[1], "predictions") == 0) {
        bench_predictions(folder);
        rmdir(folder);
        return 0;
    }
    printf("simulator, release build, processor time of one thread, best of 3:\n");
    for (size_t i = 0; i < sizeof loops / sizeof loops[0]; i++) {
        bench_loop(&loops[i]);
    }
    printf("boot, all threads, best of 5:\n");
    bench_boot(folder);
    if (argc > 1 && strcmp(argv[1], "simulator") == 0) {
        rmdir(folder);
        return 0;
    }
    printf("models, whole path in one process:\n");
    bench_model("tiny", "tests/perf/tiny.json", 4, folder);
    bench_model("mlp 64-512-128-10", "tests/perf/mlp.json", 64, folder);
    bench_model("mlp 64-512-128-10", "tests/perf/mlp.json", TARGET_TILES, folder);
    bench_predictions(folder);
    rmdir(folder);
    return 0;
}
