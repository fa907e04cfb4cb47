/* Seeded random dense networks as model documents, for differential tests. */
#ifndef TESTS_SUPPORT_RANDOM_GRAPH_H
#define TESTS_SUPPORT_RANDOM_GRAPH_H

#include <stdint.h>

/* The same seed gives the same text, on every machine. 1 to 4 layers of widths 1 to 300 on 1 to 48
 * rows (rank 2, or rank 3 with a batch axis); MatMul and Add in either order of operands, or Gemm
 * with plain or transposed weights; biases of all shapes that broadcast along rows; any activation
 * or none; residual sums where widths agree; sometimes a final Softmax, an Identity, a second
 * output. float16 throughout, all data from generators, magnitudes near 1 at each layer. Owned
 * (free()); NULL when out of memory. */
char *random_graph_json(uint64_t seed);

#endif
