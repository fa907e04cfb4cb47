/* Immediates whose fields the manual shows only as figures: where phase, engines and weight set
 * lie in the matrix instructions, and which chain a gina reads. The one place of those
 * assumptions (named amp-imm and gina-imm in the vectors). */
#ifndef SIM_EXEC_IMM_H
#define SIM_EXEC_IMM_H

#include "sim/tile.h"

/* Fields of a matrix instruction, unpacked into letters of the decoded word that hold no
 * register there. */
#define IMM_PHASE(d)   ((d)->r[D])
#define IMM_ENGINES(d) ((d)->w[D]) /* 1..4 */
#define IMM_WEIGHTS(d) ((d)->w[B]) /* 0..3, slic only */

/* Checks the immediate of d and unpacks it; false when it has no published meaning. */
bool imm_take(struct dec *d);

#endif
