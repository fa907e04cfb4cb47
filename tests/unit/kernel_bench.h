/* A bare tile that runs one kernel: operands are put into memory full of NaNs, the run may write
 * only what was allowed, and its cycles are compared with the kernel's formula. */
#ifndef TESTS_UNIT_KERNEL_BENCH_H
#define TESTS_UNIT_KERNEL_BENCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "kernels/kernels.h"
#include "sim/sim.h"
#include "target/target.h"

#define TEXT_BASE   0x4C010u
#define TEXT_LIMIT  0x4FFC0u
#define DESCRIPTOR  0x51800u
#define AREAS       0x51200u /* worker areas */
#define AREA_BYTES  0x100u
#define REGION0     0x54000u
#define REGION1     0x80000u
#define PAIR        0x8000u
#define CYCLE_LIMIT 3000000u

struct bench {
    struct arena arena;
    struct sim_tile *tile;
    struct kernel_variant variant;
    uint8_t *before, *after;
    uint8_t *may_write; /* a byte each */
    uint32_t words[12];
    uint32_t cycles;
    double worst; /* largest error over tolerance */
};

uint16_t random_half(double scale);
void bench_init(struct bench *b, const struct kernel_variant *v);
void bench_done(struct bench *b);
void put_bytes(struct bench *b, uint32_t addr, const void *bytes, size_t n);
void put_half(struct bench *b, uint32_t addr, uint16_t bits);
double get_half(const uint8_t *memory, uint32_t addr);
double get_float(const uint8_t *memory, uint32_t addr);
void allow_write(struct bench *b, uint32_t addr, uint32_t n);
void run(struct bench *b);
void check_cycles(const struct bench *b, uint32_t d0, uint32_t d1, uint32_t d2);
void check_cycles4(const struct bench *b, uint32_t d0, uint32_t d1, uint32_t d2, uint32_t d3);
void check_value(
    struct bench *b, const char *what, uint32_t r, uint32_t c, double got, double want, double tol);
double activate(enum kernel_act act, double x);
double half_tolerance(double want, double error);
double saturate(double x);
uint32_t element_addr(uint32_t base, uint32_t rows, uint32_t r, uint32_t c);

#endif
