/* Figures of the exchange scheduler on phases as large workloads make them, all on 1,472 tiles (the
 * broadcasts on 64). Nothing here asserts. Horizons and bounds are in events, one is a tile cycle.
 *
 * exchange [name]: only the phases whose name begins so.
 *
 *   loss     horizon over the latency bound, in percent: no order of the transfers is shorter
 *   row      bytes of the longest row
 *   fresh    processor seconds with an empty store; replay: when the order is known
 *   free     horizon without addresses
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/vec.h"
#include "exchange/exchange.h"
#include "exchange/reuse.h"

#define SOURCE0 0x54000u /* region 0, whole elements */
#define DEST0   0x80000u /* region 1 */
#define LIMIT   ((size_t)6 << 30)

struct builder {
    struct arena *a;
    VEC(struct exchange_transfer) list;
    uint32_t *filled; /* by tile: bytes received, the next address to write */
    uint64_t seed;
};

static uint32_t draw(struct builder *b, uint32_t below) {
    b->seed = b->seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((b->seed >> 33) % below);
}

static void
add(struct builder *b, uint32_t source, uint32_t addr, uint32_t words, struct exchange_dest *dests,
    uint32_t dest_count) {
    vec_push(
        b->a, &b->list,
        (struct exchange_transfer){
            .source = {(uint16_t)source},
            .source_addr = addr,
            .words = words,
            .form = EXCHANGE_ABSOLUTE,
            .dests = dests,
            .dest_count = dest_count});
}

/* Every tile of a group multicasts `bytes` to all others, in pieces of one panel that land one
 * panel of the group's rows apart. Members are first + i * step. */
static void gather(
    struct builder *b, uint32_t first, uint32_t step, uint32_t size, uint32_t bytes, uint32_t piece,
    uint32_t source_addr, uint32_t dest_addr) {
    for (uint32_t i = 0; i < size; i++) {
        for (uint32_t k = 0; k < bytes / piece; k++) {
            struct exchange_dest *d = ARENA_ARRAY(b->a, struct exchange_dest, size - 1);
            uint32_t n = 0;
            for (uint32_t j = 0; j < size; j++) {
                if (j != i) {
                    d[n++] = (struct exchange_dest){
                        {(uint16_t)(first + j * step)}, dest_addr + (k * size + i) * piece};
                }
            }
            add(b, first + i * step, source_addr + k * piece, piece / 4, d, n);
        }
    }
}

/* Tile = (k * 16 + i) * 23 + j: rows of 23 and columns of 16 tiles at once, as the operands of a
 * matrix product on such a grid. */
static void grid(struct builder *b, uint32_t bytes, uint32_t piece) {
    uint32_t second = DEST0 + 23 * bytes;
    second = (second + 0x7FFF) & ~0x7FFFu;
    for (uint32_t k = 0; k < 4; k++) {
        for (uint32_t i = 0; i < 16; i++) {
            gather(b, (k * 16 + i) * 23, 1, 23, bytes, piece, SOURCE0, DEST0);
        }
        for (uint32_t j = 0; j < 23; j++) {
            gather(
                b, k * 368 + j, 23, 16, bytes / 2, piece, SOURCE0 + ((bytes + 0x3FFF) & ~0x3FFFu),
                second);
        }
    }
}

static void grid_small(struct builder *b) {
    grid(b, 6144, 512);
}

static void grid_fine(struct builder *b) {
    grid(b, 8192, 128);
}

static void grid_whole(struct builder *b) {
    grid(b, 12288, 12288);
}

/* Each tile sends `pieces` of 32 .. 512 bytes, each to another tile. */
static void scatter(struct builder *b, uint32_t least, uint32_t most, bool is_uniform) {
    for (uint32_t t = 0; t < TARGET_TILES; t++) {
        uint32_t pieces = least + draw(b, most - least + 1);
        uint32_t at = SOURCE0;
        for (uint32_t k = 0; k < pieces; k++) {
            uint32_t words = is_uniform ? 64 : 8 * (1 + draw(b, 16));
            uint32_t to = (t + 1 + draw(b, TARGET_TILES - 1)) % TARGET_TILES;
            struct exchange_dest *d = ARENA_ARRAY(b->a, struct exchange_dest, 1);
            *d = (struct exchange_dest){{(uint16_t)to}, DEST0 + b->filled[to]};
            b->filled[to] += 4 * words + 32 * draw(b, 2);
            add(b, t, at, words, d, 1);
            at += 4 * words + 32;
        }
    }
}

static void scatter_mixed(struct builder *b) {
    scatter(b, 50, 100, false);
}

static void scatter_even(struct builder *b) {
    scatter(b, 75, 75, true);
}

static void scatter_many(struct builder *b) {
    scatter(b, 136, 136, false);
}

/* A matrix of 64 * 23 blocks moves from a grid of m x n to one of n' x m': panel pieces between the
 * blocks that meet, `rows` x `panels` in all. */
static void relayout(
    struct builder *b, uint32_t rows, uint32_t panels, uint32_t m, uint32_t n, uint32_t m2,
    uint32_t n2) {
    for (uint32_t t = 0; t < m * n; t++) {
        uint32_t r0 = rows * (t / n) / m, r1 = rows * (t / n + 1) / m;
        uint32_t p0 = panels * (t % n) / n, p1 = panels * (t % n + 1) / n;
        for (uint32_t u = 0; u < m2 * n2; u++) {
            uint32_t s0 = rows * (u / n2) / m2, s1 = rows * (u / n2 + 1) / m2;
            uint32_t q0 = panels * (u % n2) / n2, q1 = panels * (u % n2 + 1) / n2;
            uint32_t ra = r0 > s0 ? r0 : s0, rb = r1 < s1 ? r1 : s1;
            uint32_t pa = p0 > q0 ? p0 : q0, pb = p1 < q1 ? p1 : q1;
            for (uint32_t p = pa; t != u && ra < rb && p < pb; p++) {
                struct exchange_dest *d = ARENA_ARRAY(b->a, struct exchange_dest, 1);
                *d = (struct exchange_dest){
                    {(uint16_t)u}, DEST0 + 32 * ((p - q0) * (s1 - s0) + ra - s0)};
                add(b, t, SOURCE0 + 32 * ((p - p0) * (r1 - r0) + ra - r0), 8 * (rb - ra), d, 1);
            }
        }
    }
}

static void relayout_square(struct builder *b) {
    relayout(b, 4096, 256, 64, 23, 23, 64);
}

static void relayout_tokens(struct builder *b) {
    relayout(b, 729, 72, 729, 2, 20, 72);
}

/* Groups of `size` tiles, each member sends every other one its own part. */
static void exchange_parts(struct builder *b, uint32_t size, uint32_t bytes) {
    for (uint32_t g = 0; g < TARGET_TILES / size; g++) {
        for (uint32_t i = 0; i < size; i++) {
            for (uint32_t j = 0; j < size; j++) {
                if (i != j) {
                    struct exchange_dest *d = ARENA_ARRAY(b->a, struct exchange_dest, 1);
                    *d = (struct exchange_dest){
                        {(uint16_t)(g * size + j)}, DEST0 + (i < j ? i : i - 1) * bytes};
                    add(b, g * size + i, SOURCE0 + j * bytes, bytes / 4, d, 1);
                }
            }
        }
    }
}

static void parts_8(struct builder *b) {
    exchange_parts(b, 8, 7680);
}

static void parts_27(struct builder *b) {
    exchange_parts(b, 27, 3072);
}

static void parts_32(struct builder *b) {
    exchange_parts(b, 32, 512);
}

/* Parts of a row go from their owners to all of 64 tiles. */
static void broadcast(struct builder *b, uint32_t owners, uint32_t words) {
    for (uint32_t i = 0; i < owners; i++) {
        uint32_t from = i * 64 / owners;
        struct exchange_dest *d = ARENA_ARRAY(b->a, struct exchange_dest, 63);
        uint32_t n = 0;
        for (uint32_t t = 0; t < 64; t++) {
            if (t != from) {
                d[n++] = (struct exchange_dest){{(uint16_t)t}, DEST0 + 4 * i * words};
            }
        }
        add(b, from, SOURCE0, words, d, n);
    }
}

static void broadcast_4(struct builder *b) {
    broadcast(b, 4, 288);
}

static void broadcast_9(struct builder *b) {
    broadcast(b, 9, 32);
}

static void broadcast_36(struct builder *b) {
    broadcast(b, 36, 288);
}

static const struct phase {
    const char *name, *what;
    void (*build)(struct builder *b);
} phases[] = {
    {"gather-small", "row groups of 23, column groups of 16, pieces of 512 bytes", grid_small},
    {"gather-fine", "the same, pieces of 128 bytes", grid_fine},
    {"gather-whole", "the same, whole blocks", grid_whole},
    {"scatter", "50 .. 100 pieces a tile, 32 .. 512 bytes", scatter_mixed},
    {"scatter-even", "75 pieces a tile, 256 bytes", scatter_even},
    {"scatter-many", "136 pieces a tile, 32 .. 512 bytes", scatter_many},
    {"relayout-square", "4096 x 4096 from 64 x 23 to 23 x 64", relayout_square},
    {"relayout-tokens", "729 x 1152 from 729 x 2 to 20 x 72", relayout_tokens},
    {"parts-8", "groups of 8, 7,680 bytes to each other", parts_8},
    {"parts-27", "groups of 27, 3,072 bytes to each other", parts_27},
    {"parts-32", "groups of 32, 512 bytes to each other", parts_32},
    {"broadcast-4", "4 owners, 1,152 bytes each to 64 tiles", broadcast_4},
    {"broadcast-9", "9 owners, 128 bytes each to 64 tiles", broadcast_9},
    {"broadcast-36", "36 owners, 1,152 bytes each to 64 tiles", broadcast_36},
};

static double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool
find(void *arg, const struct digest *structure, struct exchange_order *ret, bool *ret_is_stored) {
    (void)structure;
    const struct exchange_order *kept = arg;
    if (kept->count == 0) {
        return false;
    }
    memcpy(ret->order, kept->order, kept->count * sizeof *ret->order);
    ret->horizon = kept->horizon;
    ret->is_widened = kept->is_widened;
    *ret_is_stored = true;
    return true;
}

static void keep(void *arg, const struct digest *structure, const struct exchange_order *order) {
    (void)structure;
    struct exchange_order *kept = arg;
    memcpy(kept->order, order->order, order->count * sizeof *kept->order);
    kept->count = order->count;
    kept->horizon = order->horizon;
    kept->is_widened = order->is_widened;
}

static void measure(const struct phase *f) {
    struct arena a;
    arena_init(&a, LIMIT);
    if (ARENA_RECOVER(&a)) {
        printf("%-16s needs more than %zu MiB\n", f->name, LIMIT >> 20);
        arena_done(&a);
        return;
    }
    struct builder b = {.a = &a, .seed = 1};
    b.filled = ARENA_ARRAY(&a, uint32_t, TARGET_TILES);
    f->build(&b);
    uint32_t count = (uint32_t)b.list.len;
    uint64_t legs = 0;
    for (uint32_t i = 0; i < count; i++) {
        legs += b.list.data[i].dest_count;
    }
    size_t before = a.used_bytes;
    struct err err = {0};
    struct exchange_order order = {.order = ARENA_ARRAY(&a, uint32_t, count)};
    const struct exchange_orders store = {.find = find, .keep = keep, .arg = &order};
    struct exchange_phase phase;
    enum exchange_origin origin;
    double start = cpu_seconds();
    int rc = exchange_reuse_phase(b.list.data, count, &store, &a, &phase, &origin, &err);
    double searched = cpu_seconds();
    size_t peak = a.peak_bytes - before;
    if (rc == 0) {
        rc = exchange_reuse_phase(b.list.data, count, &store, &a, &phase, &origin, &err);
    }
    double placed = cpu_seconds();
    if (rc == 0) {
        rc = exchange_verify_phase(b.list.data, count, &phase, &a, &err);
    }
    if (rc != 0) {
        printf("%-16s %s\n", f->name, err.text);
    } else {
        printf(
            "%-16s %7u %8llu %7u %7u %7u %7u %6.1f%% %7u %7.2f %7.2f %6zu%s%s%s\n", f->name, count,
            (unsigned long long)legs, phase.lower_bound, phase.latency_bound, order.horizon,
            phase.horizon, 100.0 * ((double)phase.horizon / (double)phase.latency_bound - 1.0),
            phase.max_row_bytes, searched - start, placed - searched, peak >> 20,
            phase.used_trials ? " trials" : "", phase.is_widened ? " paired" : "",
            origin == EXCHANGE_REFUSED ? " refused" : "");
    }
    fflush(stdout);
    arena_done(&a);
}

int main(int argc, char **argv) {
    printf("exchange scheduler, phases of 1,472 tiles:\n");
    for (size_t i = 0; i < sizeof phases / sizeof *phases; i++) {
        printf("  %-16s %s\n", phases[i].name, phases[i].what);
    }
    printf(
        "%-16s %7s %8s %7s %7s %7s %7s %7s %7s %7s %7s %6s\n", "phase", "moves", "receive", "items",
        "latency", "free", "horizon", "loss", "row B", "fresh", "replay", "MiB");
    for (size_t i = 0; i < sizeof phases / sizeof *phases; i++) {
        if (argc < 2 || strncmp(phases[i].name, argv[1], strlen(argv[1])) == 0) {
            measure(&phases[i]);
        }
    }
    return 0;
}
