/* Whole vectors at once, where the processor can (AVX2 and F16C, found out at run time): the
 * common case of the busiest instructions, in which nothing is infinite, NaN or too large and
 * stochastic rounding is off. Each call answers false when that is not so, having written
 * nothing; the caller then goes lane by lane. Results are the same bits either way:
 *
 *   half add, sub, mul   one operation in single and one rounding to half equals one rounding:
 *                        products are exact in 24 bits, and 24 >= 2 * 11 + 2 for sums
 *   dot products         products exact in double, added in the same order, one rounding to single
 */
#ifndef SIM_FP_WIDE_H
#define SIM_FP_WIDE_H

#include <stdbool.h>
#include <stdint.h>

enum wide_op { WIDE_ADD, WIDE_SUB, WIDE_MUL };

/* Four halves each, lane 0 lowest. */
bool wide_half(enum wide_op op, uint64_t x, uint64_t y, uint64_t *ret);

/* acc[0] += x0*y0 + x1*y1, acc[1] += x2*y2 + x3*y3 in place. */
bool wide_cmac(uint64_t x, uint64_t y, uint32_t acc[2]);

/* One issue of a matrix instruction with all engines, phase given. */
struct wide_amp {
    const double (*w)[16]; /* coefficients of the phase: [lane][unit] */
    const double *x;       /* 8 operand lanes, or NULL: the four halves of x_half */
    uint64_t x_half;
    int sets;              /* 1 or 2 */
    bool is_half;          /* partials and results are halves, else singles (one set) */
    bool is_first;         /* phase 0 */
    uint64_t partial;      /* two singles, or four halves (two with one set) */
    uint32_t *even, *odd;  /* accumulators, updated */
};
bool wide_amp(const struct wide_amp *s, uint64_t *ret);

#endif
