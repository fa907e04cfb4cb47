/* Chip time, and how much work one register read may do.
 *
 * Time is the latest cycle any tile has reached, plus what passes while the host polls a chip
 * that stands still; the second part never reaches a tile, so it can change no result.
 */
#include "base/monotonic.h"
#include "sim/chip.h"

enum { SLICE_NS = 10 * 1000 * 1000 };

void clock_start(struct chip *c) {
    c->slice_end_ns = c->options.slice_cycles != 0 ? 0 : monotonic_ns() + SLICE_NS;
}

bool clock_is_over(const struct chip *c) {
    return c->slice_end_ns != 0 && monotonic_ns() >= c->slice_end_ns;
}

void clock_idle(struct chip *c, bool is_dead) {
    c->idle_cycles += is_dead ? CHIP_DEAD_READ : CHIP_IDLE_READ;
}

uint64_t clock_now_ns(const struct chip *c) {
    return (c->cycles + c->idle_cycles) * 2 / 3; /* 1.5 GHz */
}

uint32_t clock_sync_release(const struct chip *c) {
    return c->options.sync_release != 0 ? c->options.sync_release : CHIP_SYNC_RELEASE;
}
