/* Counters, and words about a chip that stands still. */
#include "sim/chip.h"

#include <stdarg.h>
#include <string.h>

enum {
    NAMED_TILES = 3, /* of each group in a message */
    BRI_0 = 0x40800000,
};

/* The exception is raised at the branch, so the branch tells where it led; after a trace the
 * program counter itself is 0. */
bool chip_is_complete(const struct chip_tile *t) {
    uint32_t pc = tile_pc(t->tile, 0);
    if (tile_context_state(t->tile, 0) != 3 || tile_etype(t->tile, 0) != CHIP_INVALID_PC) {
        return false;
    }
    if (pc == 0) {
        return true;
    }
    if (!tile_mem_mapped(pc)) {
        return false;
    }
    uint32_t word = tile_mem_load(t->tile, pc);
    struct row_insn i = row_decode(word);
    return word == BRI_0 || (i.op == ROW_OP_BR && tile_m(t->tile, 0, i.reg) == 0);
}

/* A context that can go on by nobody's doing: any exception but a stop that the host itself asked
 * for (RBRK, BOS), and but the jump to address 0 that ends a program. A `trap` counts: a program
 * that traps has failed, unless a debugger planted it, and then the debugger polls CTXT_STS. */
int chip_fault_context(const struct chip_tile *t) {
    for (int k = 0; k < CHIP_CONTEXTS; k++) {
        int state = tile_context_state(t->tile, k);
        int etype = tile_etype(t->tile, k);
        bool is_trap = state == 2 && (etype == CHIP_PBRK0 || etype == CHIP_PBRK1);
        if ((state == 3 || is_trap) && !(k == 0 && chip_is_complete(t))) {
            return k;
        }
    }
    return -1;
}

/* Appends to text of size n; cuts what does not fit. */
static void append(char *text, size_t n, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void append(char *text, size_t n, const char *format, ...) {
    size_t length = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + length, n - length, format, args);
    va_end(args);
}

static void describe_exception(const struct chip_tile *t, int context, char *text, size_t n) {
    append(
        text, n, ", exception %s (%d)", fault_name(tile_etype(t->tile, context)),
        tile_etype(t->tile, context));
    if (context == 0 && t->fault.code != 0) {
        append(text, n, ": event %d: %s", t->fault.event, t->fault.text);
    }
}

void chip_describe_tile(const struct chip *c, uint16_t tile, char *text, size_t n) {
    static const char *const states[] = {"never started", "running", "waiting", "stopped"};
    const struct chip_tile *t = &c->tiles[tile];
    int context = t->state == TILE_OFF ? -1 : chip_fault_context(t);
    snprintf(text, n, "tile %u", tile);
    if (context >= 0) {
        append(text, n, " context %d pc %#x", context, tile_pc(t->tile, context));
        describe_exception(t, context, text, n);
        return;
    }
    append(text, n, " %s", chip_is_complete(t) ? "complete" : states[t->state]);
    if (t->state == TILE_WAITS) {
        append(text, n, " in sync %u", t->zone);
    }
    append(text, n, ", pc %#x", tile_pc(t->tile, 0));
    if (tile_context_state(t->tile, 0) == 2) {
        describe_exception(t, 0, text, n);
    }
    if (t->abstain > 0) {
        append(text, n, ", abstains from %u barriers", t->abstain);
    }
    char reason[96];
    if (host_is_blocked(c, tile, reason, sizeof reason)) {
        append(text, n, ", %s", reason);
    } else if (t->state == TILE_WAITS && t->zone == 0) {
        append(text, n, ", expects %u words", tile_csr(t->tile, CSR_INCOMING_DCOUNT));
    }
    if (sync_is_missing(c, tile)) {
        append(text, n, ", held back from barrier %u", c->options.fault.at);
    }
}

/* The class most tiles wait in. */
static enum barrier_class main_class(const struct chip *c, uint32_t waiting[BARRIER_COUNT]) {
    int best = BARRIER_NONE;
    for (uint16_t i = 0; i < TARGET_TILES; i++) {
        const struct chip_tile *t = &c->tiles[i];
        if (t->state == TILE_WAITS && t->abstain == 0) {
            waiting[sync_class(t->zone)]++;
        }
    }
    for (int k = BARRIER_CHIP; k < BARRIER_COUNT; k++) {
        best = best == BARRIER_NONE || waiting[k] > waiting[best] ? k : best;
    }
    return waiting[best] > 0 ? (enum barrier_class)best : BARRIER_NONE;
}

static bool has_arrived(const struct chip *c, uint16_t tile, enum barrier_class k) {
    const struct chip_tile *t = &c->tiles[tile];
    return !sync_is_missing(c, tile) &&
           (t->abstain > 0 || (t->state == TILE_WAITS && sync_class(t->zone) == k));
}

int chip_describe_deadlock(const struct chip *c, struct err *err) {
    uint32_t waiting[BARRIER_COUNT] = {0};
    enum barrier_class k = main_class(c, waiting);
    char text[560] = "";
    uint32_t named = 0;
    uint32_t missing = 0;
    if (k != BARRIER_NONE) {
        append(
            text, sizeof text, "barrier %llu: %u tiles wait (", (unsigned long long)c->barriers,
            waiting[k]);
        for (uint16_t i = 0; i < TARGET_TILES && named < NAMED_TILES; i++) {
            const struct chip_tile *t = &c->tiles[i];
            if (t->abstain == 0 && has_arrived(c, i, k)) {
                append(
                    text, sizeof text, "%stile %u in sync %u pc %#x", named++ > 0 ? ", " : "", i,
                    t->zone, tile_pc(t->tile, 0));
            }
        }
        append(text, sizeof text, named < waiting[k] ? ", ...); " : "); ");
    }
    char absent[400] = "";
    for (uint16_t i = 0; i < TARGET_TILES; i++) {
        if (k != BARRIER_NONE && has_arrived(c, i, k)) {
            continue;
        }
        if (missing++ < NAMED_TILES) {
            char one[160];
            chip_describe_tile(c, i, one, sizeof one);
            append(absent, sizeof absent, "%s%s", missing > 1 ? "; " : "", one);
        }
    }
    append(
        text, sizeof text, "%u did not arrive: %s%s", missing, absent,
        missing > NAMED_TILES ? "; ..." : "");
    return err_set(err, ERR_DEADLOCK, "no tile can advance: %s", text);
}

void sim_device_counters(const struct ipu_device_ops *ops, struct sim_counters *ret) {
    const struct chip *c = ops->self;
    struct sim_counters n = {
        .cycles = c->cycles,
        .issue_groups = c->traced_instructions,
        .barriers = c->barriers,
        .exchange_words = c->exchange_words,
        .host_words = c->host_words,
        .mark_overwrites = c->mark_overwrites};
    for (uint16_t i = 0; i < TARGET_TILES; i++) {
        uint64_t groups = 0;
        uint64_t poison = 0;
        tile_count(c->tiles[i].tile, &groups, &poison);
        n.issue_groups += groups;
        n.poison_reads += poison;
    }
    *ret = n;
}

void sim_device_describe(const struct ipu_device_ops *ops, FILE *out) {
    const struct chip *c = ops->self;
    for (uint16_t i = 0; i < TARGET_TILES; i++) {
        const struct chip_tile *t = &c->tiles[i];
        bool is_idle = t->state == TILE_WAITS && chip_fault_context(t) < 0 && t->zone != 0 &&
                       !sync_is_missing(c, i);
        if (!is_idle) {
            char text[256];
            chip_describe_tile(c, i, text, sizeof text);
            fprintf(out, "%s\n", text);
        }
    }
}
