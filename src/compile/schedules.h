/* Stored schedules of the exchange (design.md D6): read those of earlier compiles, stage new ones.
 *
 * A database has one table, schedule(key, value). Key: 64 hex of SHA-256(version, compiler id,
 * structure of the phase). Value: count, horizon without addresses, 1 for pairs, order, then
 * SHA-256 of key and all that, integers little-endian 32 bits. A value that is damaged, of another
 * count or no permutation counts as absent, as does a file that is absent, busy, truncated or no
 * database: then the order is made anew, and it is the same. Nothing here can fail a compile. */
#ifndef COMPILE_SCHEDULES_H
#define COMPILE_SCHEDULES_H

#include <stdint.h>

#include "exchange/reuse.h"

#define SCHEDULES_MAX_ENTRIES 4096        /* of one compile */
#define SCHEDULES_MAX_BYTES   (16u << 20) /* values of one compile */
#define SCHEDULES_MAX_VALUE   (4u << 20)  /* one value: a million transfers */

struct schedules; /* owned; free with schedules_close() */

/* path NULL: none are stored. NULL only when out of memory. compiler_id is borrowed. */
struct schedules *schedules_open(const char *path, const char *compiler_id);
void schedules_close(struct schedules *s); /* NULL accepted */
/* For exchange_build_known(); borrowed until the close. */
const struct exchange_orders *schedules_orders(struct schedules *s);
/* Writes what this compile made to a new file; returns how many. When there is none, or writing
 * fails, there is no file. */
uint32_t schedules_stage(const struct schedules *s, const char *path);

#endif
