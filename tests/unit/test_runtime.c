/* Tile runtime and loader: packet words against published examples, sizes, and the pieces that
 * run without barriers and host on one bare tile. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "asm/asm.h"
#include "kernels/kernels.h"
#include "runtime/runtime.h"
#include "sim/sim.h"

static struct physical_tile tile(unsigned n) {
    return (struct physical_tile){(uint16_t)n};
}

/* Device fact sheet 6.7: 64-byte write of tile 1409 to host 0x40 is a2c08000 80000011, close of
 * tile 2 to dummy 0x50180 is cc01020c 00000000, read by tile 0 to 0x50120 ec000209 00000011. Ours
 * differ in host address, length and place only, so those fields are computed here by hand. */
START_TEST(headers) {
    uint32_t h[RT_HEADER_WORDS];
    runtime_headers(tile(0), 0, h);
    ck_assert_uint_eq(h[30], 0xec000000u | 0x200u | 0x180u / 32); /* chunk 0, last of the stream */
    ck_assert_uint_eq(h[31], 0x1000u / 64 << 4 | 4);
    ck_assert_uint_eq(h[0], 0xe0000000u | 0x200u | (0x180u + 15 * 256) / 32);
    ck_assert_uint_eq(h[1], (0x1000u + 15 * 256) / 64 << 4 | 4);
    ck_assert_uint_eq(h[62], 0xa0000000u);
    ck_assert_uint_eq(h[63], 0x1000u / 64 << 4 | 4);
    ck_assert_uint_eq(h[64], 0xcc000200u | 0x160u / 32);
    ck_assert_uint_eq(h[65], 0);
    for (unsigned i = 66; i < RT_HEADER_WORDS; i++) {
        ck_assert_uint_eq(h[i], 0);
    }

    runtime_headers(tile(1409), 700, h);
    ck_assert_uint_eq(h[32], 0xa2c08000u);
    ck_assert_uint_eq(h[33], 0x80000000u | (0x1000u + 700 * 4096 + 15 * 256) / 64 << 4 | 4);
    ck_assert_uint_eq(h[64], 0xcc000200u | 1409u << 15 | 11);
    ck_assert_uint_eq(h[65], 0x80000000u);

    runtime_headers(tile(2), 1, h);
    ck_assert_uint_eq(h[64] & ~0x1ffu, 0xcc01020cu & ~0x1ffu);
    runtime_headers(tile(260), 0, h);
    ck_assert_uint_eq(h[32], 0xa0820000u);
    ck_assert_uint_eq(h[30] & 0xffff8000u, 0xec820000u);
    for (int i = 0; i < 15; i++) { /* only the last read closes the stream */
        ck_assert_uint_eq(h[2 * i] & 0x0c000000u, 0);
    }
}
END_TEST

/* Device fact sheet 6.1: 31 -> owner 29, {2,0}; 81 -> 17, {4,0}; 768 -> 0, {0,1}; 1471 -> 61,
 * {0,1<<21}; 260 -> owner 4, {0x100,0}. */
START_TEST(grants) {
    static const struct {
        unsigned tile, owner;
        uint32_t words[2];
    } rows[] = {
        {31, 29, {2, 0}},          {81, 17, {4, 0}},     {768, 0, {0, 1}},
        {1471, 61, {0, 1u << 21}}, {260, 4, {0x100, 0}},
    };
    static bool participates[TARGET_TILES];
    uint32_t words[2];
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        memset(participates, 0, sizeof(participates));
        participates[rows[i].tile] = true;
        runtime_grant(tile(rows[i].owner), participates, words);
        ck_assert_uint_eq(words[0], rows[i].words[0]);
        ck_assert_uint_eq(words[1], rows[i].words[1]);
        runtime_grant(tile(rows[i].owner ^ 4), participates, words);
        ck_assert_uint_eq(words[0] | words[1], 0);
    }
    memset(participates, 1, sizeof(participates));
    runtime_grant(tile(5), participates, words);
    ck_assert_uint_eq(words[0], 0x00ffffff);
    ck_assert_uint_eq(words[1], 0x003fffff);
}
END_TEST

static void must(int r, const struct err *err) {
    ck_assert_msg(r == 0, "%s: %s", err->where, err->text);
}

static const struct asm_image *link_runtime(
    struct arena *a, const char *caller, const struct kernel_variant *variants, int count) {
    struct err err = {0};
    struct asm_object *objects[16];
    int n = 0;
    must(runtime_assemble(a, &objects[n++], &err), &err);
    for (int i = 0; i < count; i++) {
        must(kernel_assemble(&variants[i], a, &objects[n++], &err), &err);
    }
    struct asm_source source = {"caller", caller, strlen(caller)};
    must(asm_assemble(&source, ISA_SUPERVISOR, NULL, 0, a, &objects[n++], &err), &err);
    struct asm_placement place = {".text", RT_TEXT_BASE, RT_TEXT_LIMIT};
    struct asm_image *image = NULL;
    must(
        asm_link(
            (const struct asm_object *const *)objects, (size_t)n, &place, 1, NULL, 0, a, &image,
            &err),
        &err);
    return image;
}

START_TEST(text_fits) {
    struct arena a;
    arena_init(&a, 64u << 20);
    const struct kernel_variant variants[] = {
        {.id = KERNEL_GEMM_AMP, .act = ACT_GELU_ERF, .has_bias = true, .w_region1 = true},
        {.id = KERNEL_GEMM_AMP, .out_f32 = true},
        {.id = KERNEL_REDUCE, .act = ACT_GELU_ERF, .has_bias = true},
        {.id = KERNEL_UNARY, .act = ACT_GELU_ERF},
        {.id = KERNEL_ADD, .act = ACT_GELU_ERF},
        {.id = KERNEL_ADD_ROW, .act = ACT_GELU_ERF},
        {.id = KERNEL_SOFTMAX},
    };
    const struct asm_image *image = link_runtime(&a, "nop\n", variants, 7);
    struct err err = {0};
    uint32_t start = 0, bytes = 0;
    must(asm_image_symbol(image, "rt_start", &start, &err), &err);
    ck_assert_uint_eq(start, RT_TEXT_BASE);
    for (size_t i = 0; i < image->segment_count; i++) {
        bytes += image->segments[i].size;
    }
    printf("runtime and seven kernels: %u bytes\n", bytes);
    ck_assert_uint_lt(bytes, 12 * 1024);
    static const char *const names[] = {
        "rt_host_in", "rt_host_out", "rt_sample_start", "rt_sample_end"};
    for (int i = 0; i < 4; i++) {
        uint32_t addr = 0;
        must(asm_image_symbol(image, names[i], &addr, &err), &err);
        ck_assert_uint_eq(addr % 4, 0);
    }
    arena_done(&a);
}
END_TEST

START_TEST(loader_fits) {
    struct arena a;
    arena_init(&a, 16u << 20);
    struct err err = {0};
    const uint8_t *bytes = NULL, *again = NULL;
    uint32_t size = 0, size_again = 0;
    must(runtime_loader(&a, &bytes, &size, &err), &err);
    ck_assert_uint_le(size, 4096);
    ck_assert_uint_eq(size % 4, 0);
    must(runtime_loader(&a, &again, &size_again, &err), &err);
    ck_assert_uint_eq(size, size_again);
    ck_assert_int_eq(memcmp(bytes, again, size), 0);
    /* 198 frames end, trailer included, below the element the loader works from. */
    ck_assert_uint_eq(0x4C000 + 198 * 992 + 32, RT_LOADER_IMAGE_END + 16);
    ck_assert_uint_lt(RT_LOADER_IMAGE_END + 16, 0x7C000);
    arena_done(&a);
}
END_TEST

static void load(struct sim_tile *t, const struct asm_image *image) {
    struct err err = {0};
    sim_tile_zero(t);
    for (size_t i = 0; i < image->segment_count; i++) {
        const struct asm_segment *s = &image->segments[i];
        must(sim_tile_write(t, s->addr, s->bytes, s->size, &err), &err);
    }
}

/* The loader moves itself out of the element it is loaded to and runs to its first barrier. */
START_TEST(loader_moves) {
    struct arena a;
    arena_init(&a, 16u << 20);
    struct err err = {0};
    const uint8_t *bytes = NULL;
    uint32_t size = 0;
    must(runtime_loader(&a, &bytes, &size, &err), &err);
    struct sim_options options = {.threads = 1, .trace_tile = -1};
    struct sim_tile *t = sim_tile_new(&options);
    sim_tile_zero(t);
    must(sim_tile_write(t, 0x4C000, bytes, size, &err), &err);
    must(sim_tile_set(t, SIM_SUPERVISOR, 'p', 0, 0x4C000, &err), &err);
    sim_tile_start(t, SIM_SUPERVISOR);
    struct sim_stopped stopped;
    sim_tile_run(t, 100000, &stopped);
    uint64_t pc = 0;
    must(sim_tile_get(t, SIM_SUPERVISOR, 'p', 0, &pc, &err), &err);
    ck_assert_msg(
        stopped.why == SIM_STOP_IDLE, "stopped: why %d, exception %d at 0x%x", stopped.why,
        stopped.etype, stopped.pc);
    ck_assert_uint_ge(pc, 0x7C000);
    ck_assert_uint_lt(pc, 0x7C000 + size);
    uint32_t words[4];
    must(sim_tile_read(t, 0x78000, words, 16, &err), &err); /* the copy loop is gone */
    ck_assert_uint_eq(words[0] | words[1] | words[2] | words[3], 0);
    sim_tile_free(t);
    arena_done(&a);
}
END_TEST

/* Copies of a host phase. A phase needs its barriers, so the workers' routine is entered alone. */
START_TEST(copies) {
    struct arena a;
    arena_init(&a, 16u << 20);
    struct err err = {0};
    const char *caller = ".globl go\ngo: setzi $m0, 0x51900\n setzi $m1, rt_copy_in\n"
                         " runall $m1, $m0, 0\n sync 2\n setzi $m1, rt_copy_out\n"
                         " setzi $m0, 0x51a00\n runall $m1, $m0, 0\n sync 2\n trap 0\n";
    const struct asm_image *image = link_runtime(&a, caller, NULL, 0);
    struct sim_options options = {.threads = 1, .trace_tile = -1};
    struct sim_tile *t = sim_tile_new(&options);
    load(t, image);
    static const uint32_t in[] = {16, 0,  0,       0,  4,   0x60004, 0,    1, 0x60010,
                                  4,  13, 0x81000, 60, 300, 0x60100, 1260, 5};
    static const uint32_t out[] = {16, 0, 0, 0, 1, 0x60010, 2048, 13};
    uint32_t staging[512], got[300], old[512];
    for (uint32_t i = 0; i < 512; i++) {
        staging[i] = 0x1000000 + i;
    }
    must(sim_tile_write(t, 0x51900, in, sizeof(in), &err), &err);
    must(sim_tile_write(t, 0x51a00, out, sizeof(out), &err), &err);
    must(sim_tile_write(t, RT_STAGING, staging, sizeof(staging), &err), &err);
    uint32_t go = 0;
    must(asm_image_symbol(image, "go", &go, &err), &err);
    must(sim_tile_set(t, SIM_SUPERVISOR, 'p', 0, go, &err), &err);
    sim_tile_start(t, SIM_SUPERVISOR);
    struct sim_stopped stopped;
    sim_tile_run(t, 100000, &stopped);
    ck_assert_msg(
        stopped.why == SIM_STOP_EXCEPTION && stopped.etype == 2,
        "stopped: why %d, exception %d at 0x%x", stopped.why, stopped.etype, stopped.pc);
    for (uint32_t i = 0; i < in[4]; i++) {
        const uint32_t *p = &in[5 + 3 * i];
        must(sim_tile_read(t, p[0] - 4, got, 4 * (p[2] + 2 > 300 ? 300 : p[2] + 2), &err), &err);
        ck_assert_uint_eq(got[0], 0);
        for (uint32_t j = 0; j + 1 < 300 && j < p[2]; j++) {
            ck_assert_uint_eq(got[j + 1], staging[p[1] / 4 + j]);
        }
        if (p[2] < 298) {
            ck_assert_uint_eq(got[p[2] + 1], 0);
        }
    }
    must(sim_tile_read(t, RT_STAGING, old, sizeof(old), &err), &err);
    ck_assert_int_eq(memcmp(old, staging, sizeof(old)), 0);
    must(sim_tile_read(t, RT_STAGING + 2048, got, 4 * 14, &err), &err);
    for (uint32_t j = 0; j < 13; j++) {
        ck_assert_uint_eq(got[j], staging[1 + j]);
    }
    ck_assert_uint_eq(got[13], 0);
    sim_tile_free(t);
    arena_done(&a);
}
END_TEST

START_TEST(samples) {
    struct arena a;
    arena_init(&a, 16u << 20);
    struct err err = {0};
    const char *caller = ".globl go\ngo: call $m10, rt_sample_start\n nop\n nop\n"
                         " call $m10, rt_sample_end\n call $m10, rt_sample_end\n trap 0\n";
    const struct asm_image *image = link_runtime(&a, caller, NULL, 0);
    struct sim_options options = {.threads = 1, .trace_tile = -1};
    struct sim_tile *t = sim_tile_new(&options);
    load(t, image);
    uint32_t go = 0, words[3];
    must(asm_image_symbol(image, "go", &go, &err), &err);
    must(sim_tile_set(t, SIM_SUPERVISOR, 'p', 0, go, &err), &err);
    sim_tile_start(t, SIM_SUPERVISOR);
    struct sim_stopped stopped;
    sim_tile_run(t, 100000, &stopped);
    ck_assert_int_eq(stopped.why, SIM_STOP_EXCEPTION);
    must(sim_tile_read(t, RT_STATE, words, sizeof(words), &err), &err);
    ck_assert_uint_gt(words[1], words[0]);
    ck_assert_uint_lt(words[1] - words[0], 200);
    ck_assert_uint_eq(words[2], 2);
    sim_tile_free(t);
    arena_done(&a);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("runtime");
    TCase *tc = tcase_create("runtime");
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, headers);
    tcase_add_test(tc, grants);
    tcase_add_test(tc, text_fits);
    tcase_add_test(tc, loader_fits);
    tcase_add_test(tc, loader_moves);
    tcase_add_test(tc, copies);
    tcase_add_test(tc, samples);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
