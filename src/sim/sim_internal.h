/* What the simulator's files share. Two halves meet here:
 *
 *   tile half   tile.c exec.c memory.c fault.c trace.c: one tile's contexts, registers, barrel,
 *               memory, every instruction that concerns this tile alone;
 *   chip half   chip.c sync.c phase.c fabric.c trace_row.c rows.c host.c autoload.c debug.c
 *               clock.c counters.c pool.c device.c: all tiles, barriers, exchange, host side,
 *               register space.
 *
 * The tile runs itself until something concerns others, then returns to the chip with the reason;
 * the chip acts and resumes it. Cycles are absolute chip cycles, kept per tile (a tile may be
 * ahead of another between barriers; nothing but barriers, exchange and the host couples them).
 */
#ifndef SIM_SIM_INTERNAL_H
#define SIM_SIM_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "isa/isa.h"
#include "sim/sim.h"
#include "target/target.h"

/* Why tile_run() came back. */
enum tile_event {
    TILE_LIMIT, /* until_cycle reached */
    TILE_SYNC,  /* supervisor issued `sync z`, z != 2 (zone in t->insn.v[0]); pc is past it; blocked
                      until tile_resume() */
    TILE_EXCHANGE, /* supervisor is at a send*, delay*, or sans (decoded in t->insn, data word of
                      sendpicp in t->insn_data), not executed: the chip executes it, then sets pc
                      and cycle by tile_advance() */
    TILE_FAULT,    /* a context raised an exception: stays excepted */
    TILE_IDLE,     /* nothing active: supervisor never started or excepted, no workers */
};

struct tile; /* defined in tile.h by the tile half; the chip uses the calls below */

/* ---- tile half, called by the chip ------------------------------------------------------- */
struct tile *tile_new(uint16_t physical, const struct sim_options *options);
void tile_free(struct tile *t);
void tile_reset(struct tile *t); /* after RESET_DEVICE: poison, all stopped */
void tile_start_supervisor(struct tile *t, uint32_t pc, uint64_t cycle);
enum tile_event tile_run(struct tile *t, uint64_t until_cycle);
uint64_t tile_cycle(const struct tile *t);        /* cycle of the supervisor's next issue */
void tile_resume(struct tile *t, uint64_t cycle); /* after TILE_SYNC */
/* After TILE_EXCHANGE, or after a trace of rows: supervisor continues at pc at that cycle. */
void tile_advance(struct tile *t, uint32_t pc, uint64_t cycle);
const struct insn *tile_insn(const struct tile *t, uint32_t *ret_data);
uint32_t tile_pc(const struct tile *t, int context);
/* Supervisor CSRs; exchange registers (0xa0..0xab) are plain storage here, the chip gives them
 * their meaning. */
uint32_t tile_csr(const struct tile *t, int number);
void tile_set_csr(struct tile *t, int number, uint32_t value);
uint32_t tile_m(const struct tile *t, int context, int number);
void tile_set_m(struct tile *t, int context, int number, uint32_t value);
bool tile_workers_active(const struct tile *t);
/* Raises an exception on a context from outside (EXERR, EXCONF, DBRK ...). */
void tile_raise(struct tile *t, int context, int etype);
int tile_context_state(const struct tile *t, int context); /* 0..3 as CTXT_STS */
int tile_etype(const struct tile *t, int context);
const char *fault_name(int etype); /* of an exception type */
void tile_clear_exception(struct tile *t, int context, uint64_t cycle);
/* Debug: executes one word on a context (TDI injection); false = undecodable. */
bool tile_inject(struct tile *t, int context, uint32_t word);
/* Stop request of the debug interface (retirement break) for a context. */
void tile_set_break(struct tile *t, int context, bool enabled);
/* Break on sync: the supervisor stops at its next sync of any zone, before it is executed. Once
 * its exception is cleared it executes that one and stops at the next. */
void tile_set_break_on_sync(struct tile *t, bool enabled);
void tile_count(const struct tile *t, uint64_t *groups, uint64_t *poison_reads);

/* Memory (memory.c): 32-bit words, lazily mapped, with a written map. */
bool tile_mem_mapped(uint32_t addr);                                /* inside tile memory */
uint32_t tile_mem_load(struct tile *t, uint32_t addr);              /* poison counted */
void tile_mem_store(struct tile *t, uint32_t addr, uint32_t value); /* drops decoded code there */
void tile_mem_store_run(struct tile *t, uint32_t addr, const uint32_t *words, uint32_t n);
void tile_mem_load_run(struct tile *t, uint32_t addr, uint32_t *ret, uint32_t n);
void tile_mem_fill_zero(struct tile *t, uint32_t addr, uint32_t end); /* lazy: cheap for ranges */
/* Broadcast image shared by tiles (autoloader): copied on first use. */
void tile_mem_share(struct tile *t, uint32_t addr, const uint32_t *words, uint32_t n);

#endif
