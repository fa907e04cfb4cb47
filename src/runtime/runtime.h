/* Tile runtime: start, barrier, host phases, sampling, run loop; and our secondary loader.
 *
 * Job: tile code that every program links, as text for the assembler, with the constants and table
 * formats that the emitter must know. Facts: device fact sheet 6 and 7, exchange fact sheet 3.4.
 *
 * Memory map of a tile (one for all programs):
 *
 *   0x4C000 +--------------------------------+ element 0: executable
 *           | (16 bytes of the loader)       |
 *   0x4C010 | rt_start, runtime, kernels     | RT_TEXT_BASE, same bytes on every active tile
 *           | tile program, exchange rows    | per tile, 8-aligned rows
 *   0x4FFC0 | fetch look-ahead guard         | RT_TEXT_LIMIT
 *   0x50000 +--------------------------------+ element 1: host window (host-to-tile packets)
 *           | request grant      2 words     | RT_GRANT
 *           | packet headers                 | RT_HEADERS
 *           | dummy of the close packet      | RT_DUMMY
 *   0x50180 | staging 4096 bytes             | RT_STAGING
 *   0x51180 | runtime state                  | RT_STATE: profile words, worker scratch
 *           | tables: phase descriptors,     | RT_TABLES .. RT_TABLES_LIMIT
 *           | kernel descriptors             |
 *   0x54000 +--------------------------------+ elements 2..12: standard data; when element 0 is
 *           | data, region 0                 | too small, code continues in element 2, 3, ...
 *   0x80000 +--------------------------------+
 *           | data, region 1 (interleaved)   |
 *   0xE7BB0 +--------------------------------+
 *
 * Code never shares an element with data that it touches: fetch clashes are impossible (isa
 * semantics 1.7 rules 8 to 10).
 *
 * Start: the loader enters at RT_TEXT_BASE. rt_start does the start-up of the device fact sheet 7
 * up to and including the startup barrier (group 2 with host), then jumps to the word at
 * RT_PROGRAM, an absolute address in the tables: the tile's program.
 *
 * A program (made by the emitter) is supervisor code:
 *     host phases of `initialize`, in order
 *  loop:
 *     input phases of `run`; rt_sample_start; exchange and kernels; rt_sample_end; output phases
 *     bri loop
 * A repeated block of the graph is a loop inside it, whose turns a word of the tables counts.
 * rt_advance moves the words of descriptors that name parameters on, and back behind the loop:
 *     setzi $m2, counter ; setzi $m8, turns - 1 ; st32 $m8, $m2, $m15, 0
 *  turn:
 *     exchange and kernels; setzi $m2, d ; call $m10, rt_advance; further exchange and kernels
 *     setzi $m2, counter ; ld32 $m8, $m2, $m15, 0 ; add $m9, $m8, -1 ; st32 $m9, $m2, $m15, 0
 *     brnz $m8, turn
 *     ... setzi $m2, d + 4 * RT_ADVANCE_WORDS ; call $m10, rt_advance
 * Idle tiles have a program of `sans n-1; sync 1` counting all barriers of one turn.
 *
 * Host phase, called as:  setzi $m2, descriptor ; call $m10, rt_host_in (or rt_host_out).
 * Entry and exit barriers are inside. rt_host_in copies from staging after the exit barrier,
 * rt_host_out copies to staging before the entry barrier. Descriptor words:
 *     0  packet chunks n of 256 bytes, 0..16 (0: grant only, an owner without own transfer)
 *     1  bit 0: this tile is an owner that must grant (it enters by sync 15, others by sync 7)
 *     2  grant word 0     3  grant word 1      (0 when not an owner)
 *     4  number of pieces k
 *     5+3i  tile address (4-aligned)   6+3i  offset in staging (4-aligned)   7+3i  words (>= 1)
 * A tile that neither transfers nor grants in a phase executes `sans 1; sync 1` instead.
 * Each tile's page is at host byte address 0x1000 + 4096 * rank, so its packet headers are
 * constant: the emitter asks runtime_headers() for them and places them at RT_HEADERS in the
 * image. Chunks are always whole 256 bytes: what a page holds beyond a slice travels too and is
 * ignored.
 *
 * State words (RT_STATE): +0 cycle counter at rt_sample_start, +4 at rt_sample_end, +8 runs
 * completed (incremented by rt_sample_end): the three profile words of a tile.
 *
 * Exchange phase, inline in the program, per exchange fact sheet 3.4:
 *     setzi $m8, incoming_base ; put $INCOMING_BASE, $m8 ; put $OUTGOING_BASE, $m15
 *     setzi $m8, 1 ; put $INCOMING_DCOUNT, $m8 ; sync 3 ; call $m10, row
 * All active tiles execute the same instructions between sync 3 and the row. No worker runs.
 *
 * Registers: runtime routines clobber $m0..$m9; $m10 is the link, $m11 a stack pointer that
 * nothing uses yet.
 */
#ifndef RUNTIME_RUNTIME_H
#define RUNTIME_RUNTIME_H

#include <stdbool.h>
#include <stdint.h>

#include "asm/asm.h"
#include "base/arena.h"
#include "base/err.h"
#include "target/target.h"

#define RT_TEXT_BASE     0x4C010u
#define RT_TEXT_LIMIT    0x4FFC0u
#define RT_GRANT         0x50000u
#define RT_HEADERS       0x50008u
#define RT_DUMMY         0x50160u
#define RT_STAGING       0x50180u
#define RT_STAGING_BYTES 4096u
#define RT_STATE         0x51180u
#define RT_STATE_BYTES   0x680u /* profile words, six worker areas of 0x100 */
#define RT_TABLES        0x51800u
#define RT_PROGRAM       RT_TABLES        /* word: address of the tile's program */
#define RT_TABLES_USER   (RT_TABLES + 8u) /* first byte free for descriptors */
#define RT_TABLES_LIMIT  0x54000u
#define RT_DATA0         0x54000u
#define RT_HEADER_WORDS  80u /* packet headers: words placed at RT_HEADERS by the image */

#define RT_PHASE_FIXED_WORDS 5u

/* Descriptor of rt_advance, called as:  setzi $m2, descriptor ; call $m10, rt_advance. It adds
 * factor * stride to each word of a list of pairs, with all workers: how a loop's calls find the
 * parameters of the next turn, and after the last one those of the first again.
 *     0  pairs for each of the six workers (>= 1)   1  factor, signed   2  address of the list
 *     list: 6 n times: address of a word, stride in bytes; pair i is worker i % 6's. Words that
 *     several pairs name must have strides of 0 (they fill up the list). */
#define RT_ADVANCE_WORDS 3u
#define RT_WORKERS       6u

/* Assembles the runtime (unit supervisor, section .text, rt_start first). */
int runtime_assemble(struct arena *a, struct asm_object **ret, struct err *err);
/* The constant packet header words of a tile whose page has this rank; RT_HEADER_WORDS words for
 * address RT_HEADERS. Words of read requests come first, then write requests, then the close. */
void runtime_headers(struct physical_tile tile, uint32_t rank, uint32_t ret[RT_HEADER_WORDS]);
/* Grant words of owner `owner` when the tiles in `participates` (by physical number) transfer in
 * a phase: ORed bits, both 0 when none of its targets does. */
void runtime_grant(struct physical_tile owner, const bool *participates, uint32_t ret[2]);

/* Our secondary loader: at most 4096 bytes for 0x4c000; it speaks the framing of the device fact
 * sheet 4.3 and moves itself to the last executable element, so images must end at or below
 * RT_LOADER_IMAGE_END: 198 frames of 992 bytes, whose last trailer still misses that element.
 * It leaves memory above the image as it found it. At a fault it stops in `trap 1` (exception
 * PBRK1) with one of these codes in $m0; $m9 is the tile, $m4 the frame expected. */
#define RT_LOADER_IMAGE_END 0x7BF50u
enum rt_loader_fault {
    RT_LOADER_BAD_TILE = 0xBAD01,       /* frame of another tile */
    RT_LOADER_BAD_SEQUENCE = 0xBAD02,   /* frame out of order */
    RT_LOADER_BAD_FLAGS = 0xBAD03,      /* unknown flag, or last-frame flag in the wrong frame */
    RT_LOADER_BAD_RESERVED = 0xBAD04,   /* reserved word is not 0 */
    RT_LOADER_BAD_DESCRIPTOR = 0xBAD05, /* offset, frame count, second image, start without one */
};
int runtime_loader(struct arena *a, const uint8_t **ret_bytes, uint32_t *ret_size, struct err *err);
/* Sentence for the code that a refusing loader leaves in $m0 before its trap 1, e.g. "frame
 * sequence is wrong"; NULL when it is none of ours. */
const char *runtime_loader_fault(uint32_t code);

#endif
