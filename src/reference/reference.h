/* The graph evaluated plainly on the host, to judge what a device gives (design.md D2).
 *
 * Job: operands as stored (halves, singles), everything after that in double, no intermediate
 * rounding, one loop nest an operator. It shares no code with the compiler or the simulator, so a
 * misunderstanding cannot sit on both sides of a comparison (R3).
 *
 * Tolerance of one output, from the graph and the expected values alone:
 *
 *     tolerance = REFERENCE_C * u * sqrt(r) * rms(expected)
 *     u = 2^-11, or 2^-24 where no result on the way to the output is float16
 *     r = roundings on the longest path from a leaf to the output, see reference_roundings()
 *
 * Element i passes when |got - expected| <= tolerance + u_out * |expected|, u_out being the unit
 * of the output's own type (at least half its smallest subnormal): that last term is the rounding
 * of the element when it is stored, which no program avoids and which the rms of an output with few
 * large elements does not show.
 *
 * REFERENCE_C: one rounding is uniform within half a unit, so it has a deviation of at most
 * u / sqrt(3); r independent ones of sizes around the rms add to 0.6 u sqrt(r) rms; the largest of
 * a million such sums lies below 5 deviations, that is 3; elements of 2 to 3 times the rms carry
 * proportionally more.
 */
#ifndef REFERENCE_REFERENCE_H
#define REFERENCE_REFERENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/tensor.h"
#include "graph/graph.h"

#define REFERENCE_C 8.0

/* Data of a canonical graph, by ordinal: stored bytes, borrowed. An entry (or a whole list) may be
 * NULL when the model generates the tensor or holds it. */
struct reference_data {
    const uint8_t *const *inputs;
    const uint8_t *const *parameters;
    uint64_t seed; /* of the job, for generators */
};

/* ret: one float64 tensor an output, by ordinal; owned by the caller (tensor_set_done()).
 * -ERR_MISSING names the tensor without data. */
int reference_eval(
    const struct graph *g, const struct reference_data *data, struct tensor_set *ret,
    struct err *err);

/* Roundings on the longest path to output `ordinal`. A result counts 1 for being stored, and more
 * where its kernel rounds inside: one for a bias or a scale that is applied apart, two for the
 * approximations of tanh and sigmoid, four for gelu, eight for softmax (difference, exponential,
 * sum, quotient, each of up to two units). Div, Sqrt, Exp and Reciprocal count two, Pow four (a
 * logarithm, a product, an exponential); LayerNormalization its sums, two for the inverse root, one
 * each for scale and bias; Attention its two products and a softmax; Conv a product and its bias;
 * ReduceSum a sum, ReduceMean one more; Cast to float16 one. Exact operators (Relu, Neg, Max, Min,
 * ReduceMax, Identity, all that only move elements) count 0. A sum over K
 * counts nothing more in f32 partials of a float16 result; K where the result is float32; one per
 * group of 16, at most 512 / 16, with `accumulate_f16`. */
uint32_t reference_roundings(const struct graph *g, uint32_t ordinal, bool accumulate_f16);
/* u of the output: 2^-11 or 2^-24. */
double reference_unit(const struct graph *g, uint32_t ordinal);

struct reference_error {
    bool pass;
    double max_abs_error; /* infinite when an element is not a number */
    double tolerance;
    uint64_t worst_index; /* flat C order */
    double got, expected; /* there */
    double argmax_equal;  /* share of rows (last axis) whose largest element is the same one */
};

/* expected: a tensor of reference_eval(); got: the output's dtype, C order. */
void reference_compare(
    const struct graph *g, uint32_t ordinal, bool accumulate_f16, const struct tensor *expected,
    const uint8_t *got, struct reference_error *ret);

#endif
