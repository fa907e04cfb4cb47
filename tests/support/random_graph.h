/* Seeded random networks as model documents, for differential tests. The same seed gives the same
 * text, on every machine. Owned (free()); NULL when out of memory. */
#ifndef TESTS_SUPPORT_RANDOM_GRAPH_H
#define TESTS_SUPPORT_RANDOM_GRAPH_H

#include <stdint.h>

/* Dense networks: 1 to 4 layers of widths 1 to 300 on 1 to 48 rows (rank 2, or rank 3 with a batch
 * axis); MatMul and Add in either order of operands, or Gemm with plain or transposed weights;
 * biases of all shapes that broadcast along rows; any activation or none; residual sums where
 * widths agree; sometimes a final Softmax, an Identity, a second output. float16 throughout, all
 * data from generators, magnitudes near 1 at each layer. */
char *random_graph_json(uint64_t seed);

/* Dense networks of 2 to 6 equal blocks with parameters of their own: plain or residual, some with
 * a normalisation, a row that all blocks share, or a value from before them. */
char *random_graph_repeated_json(uint64_t seed);

/* Networks of all operators: a start (tokens, a matrix, or patches of an image through Conv), then
 * 3 to 12 blocks on the last value or an older one, some of them repeated: projections, attention,
 * normalisation, element by element, reductions, moves; odd and prime extents, operands that
 * broadcast, shared operands, up to 3 outputs, parts in float32.
 *
 * No operator amplifies the relative error of its operands more than 4 times, in the sense of root
 * mean squares: denominators, roots and bases lie in [0.75, 1.75], exponentials are taken of values
 * in [-1, 1], sums never cancel (a computed value meets a fresh tensor or a projection), values
 * that are normalised vary along the axis, and no value that may become an output has fewer than 32
 * elements. */
char *random_graph_all_json(uint64_t seed);

#endif
