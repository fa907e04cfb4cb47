/* What all tiles are doing, by the debug interface and the marks alone, so on a card as on the
 * simulator (device fact sheet 2.5, 2.6, 9.4).
 *
 *   freeze    every context is asked to stop: what ran stands still with RBRK
 *   states    one read of CTXT_STS a tile
 *   classes   the exception type of each context in state 2 or 3 -> class of the tile
 *   positions pc of each supervisor that waits, the sync before it, the row after it
 *   barrier   the zone most tiles wait in; who has not arrived there
 *
 * A supervisor that waits in a sync may refuse injection. Then no position is known, who has not
 * arrived are those that do not wait at all, and what tells tiles apart is the routine that their
 * workers last ran: an exited worker keeps its pc.
 *
 * Nothing here fails. A context that refuses, or keeps the interface busy, stays unknown; any other
 * error (a register that does not answer, the time limit) ends the survey, stays in `incomplete`,
 * and what was found up to there is told. Why it ends: every loop
 * runs over tiles, contexts or a table; injections have a limit each and one over all. */
#include "device/device_internal.h"

#include <stdio.h>
#include <string.h>

#include "isa/isa.h"

#define REG_COMPLEX_CSR 0x2004u
#define FREEZE_NS       1000000u /* for the stops to take effect on a card */
#define STATE_PASSES    4        /* reads of a tile that still runs after the freeze */
#define MAX_REFUSALS    4        /* in a row, before waiting supervisors are left alone */
#define MAX_ABSTENTIONS 64       /* tiles asked for their abstention counter */
#define ZONE_ABSTAIN    1

static bool keep(struct survey *s, int r, const struct err *err) {
    if (r < 0 && s->incomplete.code == 0) {
        s->incomplete = *err;
        s->incomplete.code = -r;
    }
    return r == 0;
}

/* The context did not take an instruction: said so, or was busy until the limit of one. */
static bool is_refusal(int r) {
    return r == -ERR_CONFLICT || r == -ERR_RUN_TIMEOUT;
}

static bool is_over(const struct survey *s) {
    return s->incomplete.code != 0;
}

int survey_reader(uint32_t status) {
    for (int pass = 0; pass < 2; pass++) {
        for (int context = 1; context < TDI_CONTEXTS; context++) {
            uint32_t state = tdi_state(status, context);
            if (pass == 0 ? state == 0 : state >= 2) {
                return context;
            }
        }
    }
    return tdi_state(status, 0) >= 2 ? 0 : -1;
}

/* Words of a tile, where memory can be read; false, and no error, where it cannot. */
static bool peek(
    struct device *d, const struct survey_tile *t, uint32_t tile, uint32_t addr, uint32_t *ret,
    uint32_t count) {
    int reader = survey_reader(t->status);
    return reader >= 0 && tdi_peek_words(d, tile, reader, addr, ret, count, NULL) == 0;
}

/* ---- Registers of the chip ------------------------------------------------------------------ */

static void read_chip(struct device *d, struct survey *s) {
    static const uint32_t marks[2] = {REG_HSPGS1, REG_HSPGS2};
    struct err err = {0};
    for (int g = 0; g < 2; g++) {
        uint32_t value;
        /* A simulator answers the verdict about a dead chip here, which is known already. */
        s->is_mark_read[g] = reg_read(d, marks[g], &value, NULL) == 0;
        s->has_mark[g] = d->has_mark[g];
        s->marks[g] = d->marks[g];
    }
    bool ok = keep(s, reg_read(d, REG_CCSR, &s->ccsr, &err), &err);
    ok = ok && keep(s, reg_read(d, REG_COMPLEX_CSR, &s->complex_csr, &err), &err);
    for (int i = 0; ok && i < 2 * XB_COUNT; i++) {
        uint32_t offset = device_xb(i >= XB_COUNT, i % XB_COUNT);
        ok = keep(s, reg_read(d, offset, &s->blocks[i], &err), &err);
    }
}

/* ---- States --------------------------------------------------------------------------------- */

static bool has_active(uint32_t status) {
    for (int context = 0; context < TDI_CONTEXTS; context++) {
        if (tdi_state(status, context) == 1) {
            return true;
        }
    }
    return false;
}

static void read_states(struct device *d, bool freeze, struct survey *s) {
    struct err err = {0};
    if (freeze) {
        if (!keep(s, tdi_stop_all(d, &err), &err)) {
            return;
        }
        d->ops.pause(d->ops.self, FREEZE_NS);
    }
    for (int pass = 0; pass < (freeze ? STATE_PASSES : 1); pass++) {
        for (uint32_t i = 0; i < TARGET_TILES; i++) {
            struct survey_tile *t = &s->tiles[i];
            if ((pass == 0 || has_active(t->status)) &&
                !keep(s, reg_read(d, tdi(i, TDI_CTXT_STS), &t->status, &err), &err)) {
                return;
            }
        }
    }
}

/* ---- Classes and exceptions ----------------------------------------------------------------- */

/* The branch to address 0 that ends a program: the exception is raised at the branch. */
static bool is_end(struct device *d, const struct survey_tile *t, uint32_t tile, uint32_t pc) {
    uint32_t word;
    struct insn insn;
    if (pc == 0) {
        return true;
    }
    if (!peek(d, t, tile, pc, &word, 1) || !isa_decode(word, ISA_SUPERVISOR, &insn)) {
        return false;
    }
    const char *mnemonic = isa_info((enum isa_op)insn.op)->mnemonic;
    uint32_t target = 1;
    if (strcmp(mnemonic, "bri") == 0) {
        target = (uint32_t)insn.v[0];
    } else if (strcmp(mnemonic, "br") == 0) {
        target = insn.v[0] == 15 ? 0 : 1;
        if (insn.v[0] < 12 && tdi_peek_m(d, tile, 0, insn.v[0], &target, NULL) < 0) {
            target = 1;
        }
    }
    return target == 0;
}

static void
describe_instruction(struct device *d, const struct survey_tile *t, struct survey_exception *x) {
    uint32_t words[2];
    char first[64], second[64];
    struct insn insn, other;
    enum isa_unit unit = x->context == 0 ? ISA_SUPERVISOR : ISA_WORKER;
    if (!peek(d, t, x->tile, x->pc, words, 1)) {
        return;
    }
    if (!isa_decode(words[0], unit, &insn)) {
        snprintf(x->instruction, sizeof x->instruction, ".long 0x%08x", words[0]);
        return;
    }
    isa_print_named(&insn, unit, first, sizeof first);
    bool is_bundle = insn.coissue && peek(d, t, x->tile, x->pc + 4, &words[1], 1) &&
                     isa_decode(words[1], unit, &other);
    if (is_bundle) {
        isa_print_named(&other, unit, second, sizeof second);
        snprintf(x->instruction, sizeof x->instruction, "{ %.44s ; %.44s }", first, second);
    } else {
        snprintf(x->instruction, sizeof x->instruction, "%s", first);
    }
}

static bool is_row(const char *symbol) {
    return symbol != NULL && strncmp(symbol, "row.", 4) == 0;
}

/* The exchange row a word calls, or NULL. */
static const char *called_row(const struct device *d, uint32_t tile, uint32_t word) {
    struct insn insn;
    uint32_t offset;
    if (!isa_decode(word, ISA_SUPERVISOR, &insn) ||
        strcmp(isa_info((enum isa_op)insn.op)->mnemonic, "call") != 0) {
        return NULL;
    }
    const char *name = program_symbol(d->program, tile, (uint32_t)insn.v[1], &offset);
    return is_row(name) && offset == 0 ? name : NULL;
}

/* A phase ends before its receive errors are known: the link register then tells which it was. */
static void find_row(struct device *d, const struct survey_tile *t, struct survey_exception *x) {
    uint32_t link, word;
    if (x->context != 0) {
        return;
    }
    if (is_row(x->symbol)) {
        x->row = x->symbol;
        x->is_in_row = true;
        x->word = x->offset / 4;
        return;
    }
    bool is_exchange = x->etype == TDI_EXC_EXERR || x->etype == TDI_EXC_EXCONF ||
                       x->etype == TDI_EXC_CONFLICT || (t->status >> 27 & 7) != 0;
    if (is_exchange && tdi_peek_m(d, x->tile, 0, 10, &link, NULL) == 0 &&
        peek(d, t, x->tile, link - 4, &word, 1)) {
        x->row = called_row(d, x->tile, word);
    }
}

static void
add_exception(struct device *d, struct survey *s, const struct survey_exception *found) {
    const struct survey_tile *t = &s->tiles[found->tile];
    if (s->exception_count++ >= SURVEY_MAX_EXCEPTIONS) {
        return;
    }
    struct survey_exception *x = &s->exceptions[s->exception_count - 1];
    *x = *found;
    x->symbol = program_symbol(d->program, x->tile, x->pc, &x->offset);
    (void)reg_read(d, tdi(x->tile, TDI_DCOUNT), &x->dcount, NULL);
    (void)reg_read(d, tdi(x->tile, TDI_EXCHANGE_CTL), &x->exchange_ctl, NULL);
    describe_instruction(d, t, x);
    find_row(d, t, x);
    if (s->exception_count <= SURVEY_MAX_REGISTERS) {
        int r = 0;
        for (int i = 0; r == 0 && i < DEVICE_M_REGISTERS; i++) {
            r = tdi_peek_m(d, x->tile, x->context, i, &x->m[i], NULL);
        }
        x->has_registers = r == 0;
    }
}

/* The class that one context in state 2 or 3 gives its tile. */
static enum tile_class
judge_context(struct device *d, struct survey *s, struct survey_exception *x, struct err *err) {
    struct survey_tile *t = &s->tiles[x->tile];
    int r = tdi_peek_csr(d, x->tile, x->context, CSR_STATUS, &x->status, err);
    r = r < 0 ? r : tdi_peek_csr(d, x->tile, x->context, CSR_PC, &x->pc, err);
    if (is_refusal(r)) { /* of which type stays unknown: NONE at 0 */
        x->status = x->pc = 0;
        if (x->state == 3) {
            add_exception(d, s, x);
        }
        return x->state == 3 ? TILE_EXCEPTED : TILE_STOPPED;
    }
    if (!keep(s, r, err)) {
        return TILE_CLASSES;
    }
    x->etype = x->status >> 4 & 15;
    bool is_trap = x->etype == TDI_EXC_PBRK0 || x->etype == TDI_EXC_PBRK1;
    if (x->state == 3 && x->context == 0 && x->etype == TDI_EXC_INVALID_PC &&
        is_end(d, t, x->tile, x->pc)) {
        return TILE_COMPLETE;
    }
    if (x->state == 2 && !is_trap) {
        if (!t->has_position) {
            t->has_position = true;
            t->context = x->context;
            t->pc = x->pc;
            t->symbol = program_symbol(d->program, x->tile, x->pc, &t->offset);
        }
        return x->etype == TDI_EXC_RBRK ? TILE_RUNNING : TILE_STOPPED;
    }
    add_exception(d, s, x);
    return TILE_EXCEPTED;
}

static void judge_tiles(struct device *d, struct survey *s) {
    struct err err = {0};
    for (uint32_t i = 0; i < TARGET_TILES && !is_over(s); i++) {
        struct survey_tile *t = &s->tiles[i];
        bool has[TILE_CLASSES + 1] = {false};
        for (int context = 0; context < TDI_CONTEXTS && !is_over(s); context++) {
            uint32_t state = tdi_state(t->status, context);
            struct survey_exception x = {
                .tile = (uint16_t)i, .context = (uint8_t)context, .state = (uint8_t)state};
            if (state >= 2) {
                has[judge_context(d, s, &x, &err)] = true;
            }
            has[TILE_RUNNING] |= state == 1;
        }
        t->class = has[TILE_EXCEPTED]   ? TILE_EXCEPTED
                   : has[TILE_STOPPED]  ? TILE_STOPPED
                   : has[TILE_RUNNING]  ? TILE_RUNNING
                   : has[TILE_COMPLETE] ? TILE_COMPLETE
                                        : TILE_WAITING;
        s->counts[t->class]++;
        s->receive_errors += (t->status >> 27 & 7) != 0;
    }
}

/* ---- Positions ------------------------------------------------------------------------------ */

static int sync_zone(uint32_t word) {
    struct insn insn;
    bool is_sync = isa_decode(word, ISA_SUPERVISOR, &insn) && insn.op == ISA_OP_sync_zi;
    return is_sync ? insn.v[0] : -1;
}

/* The sync lies before pc when the instruction counts as executed, else at it. */
static void find_wait(struct device *d, struct survey *s, uint32_t tile) {
    struct survey_tile *t = &s->tiles[tile];
    uint32_t words[3];
    if (!peek(d, t, tile, t->pc - 4, words, 3)) {
        return;
    }
    for (int at = 0; at < 2; at++) {
        t->zone = (int8_t)sync_zone(words[at]);
        if (t->zone >= 0) {
            t->pc += 4 * (uint32_t)at - 4;
            t->phase = called_row(d, tile, words[at + 1]);
            break;
        }
    }
    t->symbol = program_symbol(d->program, tile, t->pc, &t->offset);
}

static void read_positions(struct device *d, struct survey *s) {
    struct err err = {0};
    int refusals = 0;
    for (uint32_t i = 0; i < TARGET_TILES && !is_over(s) && refusals < MAX_REFUSALS; i++) {
        struct survey_tile *t = &s->tiles[i];
        if (t->class != TILE_WAITING) {
            continue;
        }
        int r = tdi_peek_csr(d, i, 0, CSR_PC, &t->pc, &err);
        if (is_refusal(r)) {
            refusals++;
        } else if (keep(s, r, &err)) {
            refusals = 0;
            s->knows_waits = true;
            t->has_position = true;
            find_wait(d, s, i);
        }
    }
}

static void read_work(struct device *d, struct survey *s) {
    struct err err = {0};
    for (uint32_t i = 0; i < TARGET_TILES && !is_over(s); i++) {
        struct survey_tile *t = &s->tiles[i];
        uint32_t pc, offset;
        int r = t->class == TILE_WAITING ? tdi_peek_csr(d, i, 1, CSR_PC, &pc, &err) : -ERR_CONFLICT;
        if (!is_refusal(r) && keep(s, r, &err)) {
            t->work = program_symbol(d->program, i, pc - 4, &offset);
        }
    }
}

/* ---- The barrier ---------------------------------------------------------------------------- */

/* Zones that one barrier completes together (6.2): 4 and 12, 5 and 13, 6 and 14, 7 and 15. */
static int barrier_of(int zone) {
    return zone >= 12 ? zone - 8 : zone;
}

static bool is_same_name(const char *a, const char *b) {
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

static void group_waits(struct survey *s) {
    for (uint16_t i = 0; i < TARGET_TILES; i++) {
        const struct survey_tile *t = &s->tiles[i];
        const char *symbol = s->knows_waits ? t->symbol : t->work;
        if (t->class != TILE_WAITING || (s->knows_waits ? !t->has_position : symbol == NULL)) {
            continue;
        }
        struct survey_group *g = s->groups;
        const struct survey_group *end = s->groups + s->group_count;
        while (g < end && (g->zone != t->zone || !is_same_name(g->symbol, symbol) ||
                           !is_same_name(g->phase, t->phase))) {
            g++;
        }
        if (g == s->groups + SURVEY_MAX_GROUPS) {
            s->more_groups++;
            continue;
        }
        if (g == end) {
            *g = (struct survey_group){.zone = t->zone, .symbol = symbol, .phase = t->phase};
            s->group_count++;
        }
        if (g->count < SURVEY_MAX_NAMED) {
            g->tiles[g->count] = i;
        }
        g->count++;
    }
}

static bool has_arrived(const struct survey *s, const struct survey_tile *t) {
    if (t->class != TILE_WAITING) {
        return false;
    }
    return !s->knows_waits || t->zone == ZONE_ABSTAIN || t->is_abstaining ||
           barrier_of(t->zone) == s->barrier;
}

static void find_barrier(struct survey *s) {
    uint32_t waiting[16] = {0};
    s->barrier = -1;
    for (uint32_t i = 0; i < TARGET_TILES; i++) {
        if (s->tiles[i].class == TILE_WAITING && s->tiles[i].zone > 2) {
            waiting[barrier_of(s->tiles[i].zone)]++;
        }
    }
    for (int zone = 3; zone < 16; zone++) {
        if (waiting[zone] > 0 && (s->barrier < 0 || waiting[zone] > waiting[s->barrier])) {
            s->barrier = zone;
        }
    }
    s->waiting_at_barrier = s->barrier >= 0 ? waiting[s->barrier] : s->counts[TILE_WAITING];
}

static void find_missing(struct device *d, struct survey *s) {
    struct err err = {0};
    uint32_t asked = 0;
    if (s->barrier < 0 && s->knows_waits) {
        return; /* nobody stands at a barrier of all */
    }
    for (uint16_t i = 0; i < TARGET_TILES; i++) {
        struct survey_tile *t = &s->tiles[i];
        uint32_t count = 0;
        if (t->class == TILE_WAITING && !has_arrived(s, t) && asked++ < MAX_ABSTENTIONS &&
            !is_over(s)) {
            int r = tdi_peek_csr(d, i, 0, CSR_ANS_DCOUNT, &count, &err);
            t->is_abstaining = !is_refusal(r) && keep(s, r, &err) && count > 0;
        }
        if (!has_arrived(s, t) && s->missing_count++ < SURVEY_MAX_MISSING) {
            s->missing[s->missing_count - 1] = i;
        }
    }
}

/* ---- All of it ------------------------------------------------------------------------------ */

void survey_take(struct device *d, bool freeze, struct survey *s) {
    uint64_t start = d->ops.now_ns(d->ops.self);
    memset(s, 0, sizeof *s);
    s->is_frozen = freeze;
    for (uint32_t i = 0; i < TARGET_TILES; i++) {
        s->tiles[i].zone = -1;
    }
    s->barrier = -1;
    d->tdi_deadline_ns = start + SURVEY_LIMIT_NS;
    read_states(d, freeze, s);
    read_chip(d, s);
    if (!is_over(s)) {
        judge_tiles(d, s);
    }
    if (freeze && !is_over(s)) {
        read_positions(d, s);
        if (!s->knows_waits) {
            read_work(d, s);
        }
        group_waits(s);
        find_barrier(s);
        find_missing(d, s);
    }
    d->tdi_deadline_ns = 0;
    s->elapsed_ns = d->ops.now_ns(d->ops.self) - start;
}

const char *survey_verdict(const struct survey *s) {
    return s->exception_count > 0                        ? "fault"
           : s->counts[TILE_RUNNING] > 0                 ? "running"
           : s->is_frozen && s->counts[TILE_WAITING] > 0 ? "deadlock"
                                                         : "quiet";
}

static size_t put_tile(const struct survey *s, uint16_t i, char *text, size_t n) {
    static const char *const words[TILE_CLASSES] = {
        "waits", "runs", "has ended", "is stopped", "is excepted"};
    const struct survey_tile *t = &s->tiles[i];
    struct physical_tile p = {i};
    char zone[24] = "", place[112] = "";
    if (t->class == TILE_WAITING && t->zone >= 0) {
        snprintf(zone, sizeof zone, " in sync %d", t->zone);
    }
    if (t->has_position) {
        snprintf(
            place, sizeof place, " at 0x%05x%s%.64s+0x%x", t->pc, t->symbol != NULL ? " " : "",
            t->symbol != NULL ? t->symbol : "", t->offset);
        if (t->symbol == NULL) {
            snprintf(place, sizeof place, " at 0x%05x", t->pc);
        }
    }
    int used = snprintf(
        text, n, "tile %u (row %d, column %d, sub %d) %s%s%s", i, target_row(p), target_column(p),
        target_sub(p), words[t->class], zone, place);
    return used < 0 || (size_t)used >= n ? n - 1 : (size_t)used;
}

/* All wait and nobody knows where: those whose last work is the rarest are the ones to look at. */
static void summarize_work(const struct survey *s, char *text, size_t n) {
    const struct survey_group *rare = &s->groups[0];
    if (s->knows_waits || s->group_count < 2) {
        return;
    }
    for (uint32_t i = 1; i < s->group_count; i++) {
        rare = s->groups[i].count < rare->count ? &s->groups[i] : rare;
    }
    snprintf(
        text, n, "%u tiles wait; %u of them, first tile %u, last worked in %.64s",
        s->counts[TILE_WAITING], rare->count, rare->tiles[0], rare->symbol);
}

void survey_summary(const struct survey *s, char *text, size_t n) {
    text[0] = '\0';
    if (s->exception_count > 0) {
        const struct survey_exception *x = &s->exceptions[0];
        char who[16];
        snprintf(who, sizeof who, x->context == 0 ? "supervisor" : "worker %d", x->context - 1);
        size_t used = (size_t)snprintf(
            text, n, "tile %u %s: exception %s", x->tile, who, tdi_exception_name(x->etype));
        uint32_t code = s->tiles[x->tile].status >> 27 & 7;
        if (used < n && code != 0) {
            used += (size_t)snprintf(
                text + used, n - used, ", receive error %s", tdi_receive_error_name(code));
        }
        if (used < n) {
            used += (size_t)snprintf(text + used, n - used, " at 0x%05x", x->pc);
        }
        if (used < n && x->symbol != NULL) {
            used += (size_t)snprintf(text + used, n - used, " %.64s+0x%x", x->symbol, x->offset);
        }
        if (used < n && x->row != NULL && !x->is_in_row) {
            snprintf(text + used, n - used, " after %.64s", x->row);
        }
        return;
    }
    uint32_t running = s->counts[TILE_RUNNING];
    if (running == 0 && s->missing_count == 0) {
        summarize_work(s, text, n);
        return;
    }
    uint16_t first = s->missing_count > 0 ? s->missing[0] : 0;
    for (uint16_t i = 0; running > 0 && i < TARGET_TILES; i++) {
        if (s->tiles[i].class == TILE_RUNNING) {
            first = i;
            break;
        }
    }
    int used =
        running > 0 ? snprintf(text, n, "%u tile%s run, first ", running, running == 1 ? "" : "s")
        : s->barrier >= 0 ? snprintf(
                                text, n, "%u tiles wait in sync %d, %u did not arrive, first ",
                                s->waiting_at_barrier, s->barrier, s->missing_count)
                          : snprintf(
                                text, n, "%u tiles wait, %u do not, first ",
                                s->counts[TILE_WAITING], s->missing_count);
    if (used > 0 && (size_t)used < n) {
        (void)put_tile(s, first, text + used, n - (size_t)used);
    }
}
