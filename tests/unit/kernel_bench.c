#include "kernel_bench.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "asm/asm.h"
#include "base/f16.h"

static uint32_t seed = 1;

static uint32_t random_bits(void) {
    seed = seed * 1664525u + 1013904223u;
    return seed >> 8;
}

/* An f16 value in about [-scale, scale]. */
uint16_t random_half(double scale) {
    double u = (double)random_bits() / (1 << 23) - 1.0;
    return f16_from_f64(u * scale);
}

void bench_init(struct bench *b, const struct kernel_variant *v) {
    memset(b, 0, sizeof(*b));
    arena_init(&b->arena, 64u << 20);
    b->variant = *v;
    struct sim_options options = {.threads = 1, .trace_tile = -1, .poison_launch = true};
    b->tile = sim_tile_new(&options);
    ck_assert_ptr_nonnull(b->tile);
    b->before = malloc(TARGET_MEM_SIZE);
    b->after = malloc(TARGET_MEM_SIZE);
    b->may_write = calloc(1, TARGET_MEM_SIZE);
    memset(b->before, 0xFF, TARGET_MEM_SIZE);
    memset(b->may_write + (AREAS - TARGET_MEM_BASE), 1, 6 * AREA_BYTES);
}

void bench_done(struct bench *b) {
    sim_tile_free(b->tile);
    free(b->before);
    free(b->after);
    free(b->may_write);
    arena_done(&b->arena);
}

void put_bytes(struct bench *b, uint32_t addr, const void *bytes, size_t n) {
    ck_assert_uint_le(addr + n, TARGET_MEM_END);
    memcpy(b->before + (addr - TARGET_MEM_BASE), bytes, n);
}

void put_half(struct bench *b, uint32_t addr, uint16_t bits) {
    put_bytes(b, addr, &bits, 2);
}

double get_half(const uint8_t *memory, uint32_t addr) {
    uint16_t bits;
    memcpy(&bits, memory + (addr - TARGET_MEM_BASE), 2);
    return f16_to_f32(bits);
}

double get_float(const uint8_t *memory, uint32_t addr) {
    float value;
    memcpy(&value, memory + (addr - TARGET_MEM_BASE), 4);
    return value;
}

void allow_write(struct bench *b, uint32_t addr, uint32_t n) {
    ck_assert_uint_le(addr + n, TARGET_MEM_END);
    memset(b->may_write + (addr - TARGET_MEM_BASE), 1, n);
}

static void fail_with(const struct bench *b, const char *what, const struct err *err) {
    char symbol[48];
    ck_abort_msg(
        "%s: %s: %s: %s", kernel_symbol(&b->variant, symbol, sizeof(symbol)), what, err->where,
        err->text);
}

/* Kernel and caller, linked and put into memory; returns the entry. */
static uint32_t load_code(struct bench *b) {
    struct err err = {0};
    char symbol[48];
    kernel_symbol(&b->variant, symbol, sizeof(symbol));
    char *caller = arena_printf(
        &b->arena,
        ".supervisor\n.globl start\nstart:\n setzi $m2, %u\n get $m11, $SCOUNT_L\n"
        " call $m10, %s\n get $m9, $SCOUNT_L\n trap 0\n",
        DESCRIPTOR, symbol);
    struct asm_source source = {"caller", caller, strlen(caller)};
    struct asm_object *objects[2];
    if (asm_assemble(&source, ISA_SUPERVISOR, NULL, 0, &b->arena, &objects[0], &err) != 0) {
        fail_with(b, "caller", &err);
    }
    if (kernel_assemble(&b->variant, &b->arena, &objects[1], &err) != 0) {
        fail_with(b, "assemble", &err);
    }
    struct asm_placement place = {".text", TEXT_BASE, TEXT_LIMIT};
    struct asm_image *image = NULL;
    if (asm_link(
            (const struct asm_object *const *)objects, 2, &place, 1, NULL, 0, &b->arena, &image,
            &err) != 0) {
        fail_with(b, "link", &err);
    }
    for (size_t i = 0; i < image->segment_count; i++) {
        put_bytes(b, image->segments[i].addr, image->segments[i].bytes, image->segments[i].size);
    }
    uint32_t entry = 0;
    if (asm_image_symbol(image, "start", &entry, &err) != 0) {
        fail_with(b, "start", &err);
    }
    return entry;
}

void run(struct bench *b) {
    struct err err = {0};
    put_bytes(b, DESCRIPTOR, b->words, sizeof(b->words));
    uint32_t entry = load_code(b);
    ck_assert_int_eq(sim_tile_write(b->tile, TARGET_MEM_BASE, b->before, TARGET_MEM_SIZE, &err), 0);
    for (int w = 0; w < 6; w++) {
        ck_assert_int_eq(
            sim_tile_set(
                b->tile, SIM_SUPERVISOR, 's', 0x21 + w, AREAS + AREA_BYTES * (uint32_t)w, &err),
            0);
    }
    ck_assert_int_eq(sim_tile_set(b->tile, SIM_SUPERVISOR, 'p', 0, entry, &err), 0);
    sim_tile_start(b->tile, SIM_SUPERVISOR);
    struct sim_stopped stopped;
    sim_tile_run(b->tile, CYCLE_LIMIT, &stopped);
    char symbol[48];
    kernel_symbol(&b->variant, symbol, sizeof(symbol));
    ck_assert_msg(
        stopped.why == SIM_STOP_EXCEPTION && stopped.context == SIM_SUPERVISOR &&
            stopped.etype == 2,
        "%s stopped: why %d, context %d, exception %d at 0x%x", symbol, stopped.why,
        stopped.context, stopped.etype, stopped.pc);
    uint64_t from = 0, to = 0;
    ck_assert_int_eq(sim_tile_get(b->tile, SIM_SUPERVISOR, 'm', 11, &from, &err), 0);
    ck_assert_int_eq(sim_tile_get(b->tile, SIM_SUPERVISOR, 'm', 9, &to, &err), 0);
    b->cycles = (uint32_t)(to - from);
    ck_assert_int_eq(sim_tile_read(b->tile, TARGET_MEM_BASE, b->after, TARGET_MEM_SIZE, &err), 0);
    for (uint32_t i = 0; i < TARGET_MEM_SIZE; i++) {
        if (!b->may_write[i] && b->before[i] != b->after[i]) {
            ck_abort_msg("%s wrote 0x%x, no output", symbol, TARGET_MEM_BASE + i);
        }
    }
}

/* The cost formula must be honest: within 15 % and 60 cycles. With KERNEL_CYCLES set the figures
 * are printed instead, to fit it. */
void check_cycles(const struct bench *b, uint32_t d0, uint32_t d1, uint32_t d2) {
    check_cycles4(b, d0, d1, d2, 0);
}

void check_cycles4(const struct bench *b, uint32_t d0, uint32_t d1, uint32_t d2, uint32_t d3) {
    uint32_t dims[4] = {d0, d1, d2, d3};
    uint32_t predicted = kernel_cycles(&b->variant, dims);
    double difference = fabs((double)predicted - b->cycles);
    char symbol[48];
    kernel_symbol(&b->variant, symbol, sizeof(symbol));
    if (getenv("KERNEL_CYCLES") != NULL) {
        printf("%s %u %u %u: %u cycles, predicted %u\n", symbol, d0, d1, d2, b->cycles, predicted);
        return;
    }
    ck_assert_msg(
        difference <= 0.15 * b->cycles || difference <= 60, "%s %u %u %u: %u cycles, predicted %u",
        symbol, d0, d1, d2, b->cycles, predicted);
}

void check_value(
    struct bench *b, const char *what, uint32_t r, uint32_t c, double got, double want,
    double tol) {
    char symbol[48];
    double ratio = fabs(got - want) / tol;
    if (!(ratio <= 1.0)) {
        ck_abort_msg(
            "%s %s (%u, %u): %.9g, expected %.9g within %.3g",
            kernel_symbol(&b->variant, symbol, sizeof(symbol)), what, r, c, got, want, tol);
    }
    if (ratio > b->worst) {
        b->worst = ratio;
    }
}

double activate(enum kernel_act act, double x) {
    switch (act) {
    case ACT_RELU: return x > 0 ? x : 0;
    case ACT_TANH: return tanh(x);
    case ACT_SIGMOID: return 1 / (1 + exp(-x));
    case ACT_GELU_ERF: return 0.5 * x * erfc(-x / sqrt(2.0));
    case ACT_GELU_TANH: return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    default: return x;
    }
}

/* One rounding to f16 of a value that carries `error`; saturates as the device does. */
double half_tolerance(double want, double error) {
    return 0.501 * ldexp(fmax(fabs(want), 0x1p-14), -10) + 0x1p-25 + error;
}

double saturate(double x) {
    return fmax(-65504.0, fmin(65504.0, x));
}

uint32_t element_addr(uint32_t base, uint32_t rows, uint32_t r, uint32_t c) {
    return base + 2 * ((c / 16 * rows + r) * 16 + c % 16);
}
