/* The one target: a C600 card with an IPU21 chip (design.md D13). Constants, tile numbering and
 * exchange route timing that the compiler and the simulator both need; both are checked against
 * tests/vectors, and nothing else of the two is shared (style R3).
 *
 * Sources: [isa] the vendor's tile ISA document 1.3.1; [re] constants recovered by the public
 * project osmarks/ipu-stack; [doc] vendor publications.
 *
 * Numbering. A logical tile walks the chip so that neighbours share a bus pair; a physical tile
 * is what the hardware calls a tile: row * 64 + column * 4 + sub, rows 0..22, columns 0..15,
 * subs 0..3. The two are different types so that they cannot be mixed.
 */
#ifndef TARGET_TARGET_H
#define TARGET_TARGET_H

#include <stdbool.h>
#include <stdint.h>

#define TARGET_NAME     "ipu21"
#define TARGET_TILES    1472
#define TARGET_ROWS     23
#define TARGET_COLUMNS  16
#define TARGET_WORKERS  6
#define TARGET_CLOCK_HZ 1500000000ull /* C600 nominal */

/* Tile memory, byte addresses [isa 4.1.6]. */
#define TARGET_MEM_BASE      0x4C000u
#define TARGET_MEM_SIZE      0x9C000u /* 624 KiB */
#define TARGET_MEM_END       0xE8000u
#define TARGET_REGION1       0x80000u /* below: executable, elements of 16 KiB */
#define TARGET_ELEMENT_BYTES 0x4000u  /* region 1: pairs of 32 KiB, interleaved by 8 */
#define TARGET_ELEMENTS      39       /* 13 + 26 */
#define TARGET_LOAD_BASE     0x4C010u /* first loadable byte = entry point [re] */
#define TARGET_LOAD_END      0xE7BB0u /* end of what a boot loader can fill [re] */
#define TARGET_FETCH_AHEAD   64u      /* supervisor fetch look-ahead, bytes [isa] */

/* Exchange multiplexer values [re]. */
#define TARGET_MUX_IDLE 0x640u

struct logical_tile {
    uint16_t n; /* 0..1471 */
};

struct physical_tile {
    uint16_t n; /* 0..1471 */
};

struct physical_tile target_physical(struct logical_tile t);
struct logical_tile target_logical(struct physical_tile t);
int target_row(struct physical_tile t);    /* 0..22 */
int target_column(struct physical_tile t); /* 0..15 */
int target_sub(struct physical_tile t);    /* 0..3 */
/* The other member of a bus pair: physical xor 2, logical xor 1. */
struct physical_tile target_partner(struct physical_tile t);

/* Memory element that serves a byte address, 0..38, or -1 outside tile memory. Region 0: 16 KiB
 * each. Region 1: 13 + 2 * pair + (address bit 3). */
int target_element(uint32_t addr);

/* Routes (exchange fact sheet 2.1, 2.2).
 * direction: 1 = east, 2 = west: the SCTL bit that reaches the receiver.
 * time: T(s,d) in events, -78..112 for distinct tiles: an item sent at sender-local event q can
 * be selected by the receiver's multiplexer at receiver-local event q + 1 + T and arrives in its
 * memory 52 + 2 * row(d) events after that. */
int target_route_direction(struct physical_tile source, struct physical_tile destination);
int target_route_time(struct physical_tile source, struct physical_tile destination);

/* Events from multiplexer selection to arrival in memory at tile d: 52 + 2 * row(d). */
int target_arrival_delay(struct physical_tile d);

/* Host exchange owner of a tile (row 0, bit 1 cleared): physical & 0x3d; 32 owners. */
struct physical_tile target_host_owner(struct physical_tile t);
/* Bit of tile t in its owner's two-word request grant: 0..45. */
int target_host_grant_bit(struct physical_tile t);
/* Incoming multiplexer value for host exchange: 0x600 + owner. */
uint32_t target_host_mux(struct physical_tile t);

#endif
