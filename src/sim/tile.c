/* The tile as a machine: life cycle, one issue group, and the barrel.
 *
 * tile_run() repeats: of the supervisor and the six workers, the one whose next issue is earliest
 * goes. As slots are exclusive that order is total, whatever the call's limit. While the
 * supervisor cannot issue before some cycle, workers_run() turns the barrel in a tight loop up to
 * that cycle; it comes back for an exit or an exception. Each round either advances a context in
 * time or leaves, so a run with a limit ends. */
#include "sim/tile.h"

#include <stdlib.h>

struct tile *tile_new(uint16_t physical, const struct sim_options *options) {
    struct tile *t = aligned_alloc(64, (sizeof *t + 63) / 64 * 64);

    if (t == NULL) {
        return NULL;
    }
    memset(t, 0, sizeof *t);
    t->physical = physical;
    t->level = (uint8_t)exec_level_best();
    if (options != NULL) {
        if (options->vectors != SIM_VECTORS_BEST && options->vectors - 1 < t->level) {
            t->level = (uint8_t)(options->vectors - 1);
        }
        t->poison_launch = options->poison_launch;
        if (options->trace_tile < 0 || options->trace_tile == physical) {
            t->trace = options->trace;
        }
    }
    mem_init(t);
    tile_reset(t);
    return t;
}

void tile_free(struct tile *t) {
    if (t != NULL) {
        mem_done(t);
        code_free(t);
        free(t->coefs);
        free(t);
    }
}

static void poison_registers(struct context *c) {
    for (int i = 0; i < 12; i++) {
        c->m[i] = TILE_POISON;
    }
    for (int i = 0; i < 8; i++) {
        c->a[i] = TILE_POISON;
    }
    for (int i = 0; i < 16; i++) {
        c->even[i] = c->odd[i] = TILE_POISON;
    }
    c->tas = TILE_POISON;
}

void tile_reset(struct tile *t) {
    mem_done(t);
    code_free(t);
    free(t->coefs);
    t->coefs = NULL;
    memset(t->ctx, 0, sizeof t->ctx);
    memset(t->cwei, 0, sizeof t->cwei);
    memset(t->csr, 0, sizeof t->csr);
    memset(t->rdy, 0, sizeof t->rdy);
    memset(t->slot_ctx, 0, sizeof t->slot_ctx);
    for (int i = 0; i < TILE_CONTEXTS; i++) {
        struct context *c = &t->ctx[i];
        c->index = (uint8_t)i;
        c->ahead = i == 0 ? TARGET_FETCH_AHEAD : 16;
        c->pc = TARGET_MEM_BASE;
        c->exit_status = -1;
        c->next = TILE_NEVER;
        if (t->poison_launch) {
            poison_registers(c);
        }
    }
    t->now = t->sup_ready = t->free_at = 0;
    t->sup_slots = (1u << TILE_SLOTS) - 1;
    t->running = 0;
    t->wait = SUP_RUNS;
    t->consensus = true;
    t->raerr = false;
    t->is_starved = false;
    t->breaks_on_sync = t->is_past_break = false;
}

/* ---- one issue group ------------------------------------------------------------------------- */

/* Registers of the mask (bits of 0..7) from where the main half of a crossed bundle laid them. */
static inline void take_crossed(struct context *c, uint32_t mask) {
    while (mask != 0) {
        uint32_t n = (uint32_t)__builtin_ctz(mask);
        uint32_t width = (n & 1) == 0 && (mask >> n & 2) != 0 ? 2 : 1;

        if (width == 2) { /* at once: the aux half of the next group loads pairs */
            memcpy(&c->a[n], &c->a[CROSSED + n], 8);
        } else {
            c->a[n] = c->a[CROSSED + n];
        }
        mask &= ~(((1u << width) - 1) << n);
    }
}

static inline int exec_bundle(struct tile *t, struct context *c, const struct dec *d) {
    int r = d[0].fn(t, c, &d[0]);

    if (r != EXEC_OK) {
        return r;
    }
    r = d[1].fn(t, c, &d[1]);
    if (d->kind == DEC_CROSSED) {
        take_crossed(c, d->writes & 0xFFu);
    }
    return r;
}

/* As exec_bundle(), where the aux half may fault after the main half has written. */
static __attribute__((noinline)) int
exec_guarded(struct tile *t, struct context *c, const struct dec *d) {
    struct context saved = *c;
    int r = exec_bundle(t, c, d);

    if (r > EXEC_OK && r < EXEC_EXIT) {
        saved.fp_sts = c->fp_sts;
        *c = saved;
    }
    return r;
}

static inline int exec_group(struct tile *t, struct context *c, const struct dec *d) {
    if (d->kind > DEC_SOLO) {
        if (c->in_rpt && (d->flags & DEC_NO_RPT) != 0) {
            return ETYPE_INVALID_INSTR;
        }
        c->next_pc = c->pc + 8;
        if ((c->fp_ctl & 7) != 0 || (d->flags & DEC_GUARDED) != 0) {
            return exec_guarded(t, c, d);
        }
        return exec_bundle(t, c, d);
    }
    if (d->kind < DEC_SOLO) {
        return t->is_starved ? ETYPE_MEMERR : ETYPE_INVALID_INSTR;
    }
    if (c->in_rpt) {
        return ETYPE_INVALID_INSTR;
    }
    c->next_pc = c->pc + 4;
    return d->fn(t, c, d);
}

/* step_group() for the barrel's loop. */
static inline __attribute__((always_inline)) int
step(struct tile *t, struct context *c, uint8_t *ret_latency) {
    /* Word in region 0; a pc that is not a multiple of 4 becomes a large number. */
    uint32_t offset = c->pc - TARGET_MEM_BASE, word = offset >> 2 | offset << 30;
    const struct dec *block, *d;
    int r;

    if (word >= (TARGET_REGION1 - TARGET_MEM_BASE) / 4) {
        return ETYPE_INVALID_PC;
    }
    block = t->code[c->index != 0][word / CODE_WORDS];
    d = block != NULL ? &block[word % CODE_WORDS] : NULL;
    if (d == NULL || d->kind == DEC_NONE) {
        d = decode_at(t, c);
    }
    *ret_latency = d->latency;
    c->is_taken = false;
    c->extra = 0;
    r = exec_group(t, c, d);
    if (r == EXEC_EXCHANGE || (r > EXEC_OK && r < EXEC_EXIT)) {
        return r; /* nothing retired */
    }
    if (c->in_rpt && c->next_pc == c->rpt_end) {
        c->rpt_count--;
        if (c->rpt_count != 0) {
            c->next_pc = c->rpt_first;
        } else {
            c->in_rpt = false;
        }
    }
    c->pc = c->next_pc;
    t->groups++;
    return r;
}

int step_group(struct tile *t, struct context *c, uint8_t *ret_latency) {
    return step(t, c, ret_latency);
}

_Static_assert(TARGET_MEM_BASE / 4 % CODE_WORDS == 0, "blocks of code start at multiples");

/* ---- slots ----------------------------------------------------------------------------------- */

/* First cycle at or after `from` whose slot the supervisor owns. */
static uint64_t sup_slot_from(const struct tile *t, uint64_t from) {
    uint32_t phase = (uint32_t)(from % TILE_SLOTS);
    uint32_t turned = (uint32_t)(t->sup_slots | t->sup_slots << TILE_SLOTS) >> phase;

    return t->sup_slots == 0 ? TILE_NEVER : from + (uint64_t)__builtin_ctz(turned);
}

/* Puts a worker into the barrel: the earliest free slot from that cycle on. */
static void slot_take(struct tile *t, struct context *c, uint64_t from) {
    uint64_t cycle = sup_slot_from(t, from);

    c->slot = (uint8_t)(cycle % TILE_SLOTS);
    c->next = cycle;
    c->is_leaving = false;
    t->slot_ctx[c->slot] = c->index;
    t->sup_slots &= (uint8_t) ~(1u << c->slot);
    t->running |= (uint8_t)(1u << c->index);
}

static void slot_release(struct tile *t, struct context *c, uint64_t cycle) {
    c->is_leaving = false;
    c->next = TILE_NEVER;
    t->slot_ctx[c->slot] = 0;
    t->sup_slots |= (uint8_t)(1u << c->slot);
    t->running &= (uint8_t) ~(1u << c->index);
    t->free_at = cycle;
}

void worker_start(struct tile *t, int w, uint32_t pc, uint32_t vertex_base, uint64_t from) {
    struct context *c = &t->ctx[w];

    if (t->poison_launch) {
        poison_registers(c);
    }
    c->pc = pc;
    c->m[12] = t->csr[0x21 + w - 1];
    c->m[13] = vertex_base;
    c->fp_ctl = t->csr[0x20];
    c->fp_nfmt = t->csr[0x31];
    c->fp_scl = t->csr[0x33];
    c->fp_sts = 0;
    c->in_rpt = false;
    worker_activate(t, c, from);
}

void worker_activate(struct tile *t, struct context *c, uint64_t from) {
    c->state = 1;
    c->etype = 0;
    c->erpt = false;
    c->exit_status = -1;
    slot_take(t, c, from);
}

void worker_retire(struct tile *t, struct context *c) {
    c->state = 0;
    if ((t->running >> c->index & 1) != 0) {
        slot_release(t, c, t->now);
    }
}

/* A worker has exited at `cycle`: its slot comes back later. */
static void worker_exit(struct tile *t, struct context *c, uint64_t cycle) {
    c->state = 0;
    c->is_leaving = true;
    c->next = cycle + TIME_EXIT;
    t->consensus = t->consensus && c->exit_status == 1;
}

/* ---- the barrel ------------------------------------------------------------------------------ */

/* Turns the barrel for the workers alone, up to (not including) `limit`. True: one has raised an
 * exception. Comes back early when a slot is released, since that may wake the supervisor. */
static bool workers_run(struct tile *t, uint64_t first, uint64_t limit) {
    struct context *list[TILE_SLOTS];
    bool is_traced = t->trace != NULL;
    int n = 0;

    for (int s = 0; s < TILE_SLOTS; s++) {
        if ((t->running >> t->slot_ctx[s] & 1) != 0) {
            list[n++] = &t->ctx[t->slot_ctx[s]];
        }
    }
    for (uint64_t turn = first - first % TILE_SLOTS; turn < limit; turn += TIME_TURN) {
        for (int i = 0; i < n; i++) {
            struct context *c = list[i];
            uint64_t cycle = turn + c->slot;
            uint8_t latency = 1;
            int r;

            if (cycle < c->next) {
                continue;
            }
            if (cycle >= limit) {
                return false;
            }
            t->now = cycle;
            if (c->is_leaving) {
                slot_release(t, c, cycle);
                return false;
            }
            if (c->has_break) {
                fault_set(t, c, ETYPE_RBRK);
                return true;
            }
            if (is_traced) {
                trace_group(t, c);
            }
            r = step(t, c, &latency);
            c->next = cycle + (uint64_t)TIME_TURN * (unsigned)(latency + c->extra);
            if (__builtin_expect(r == EXEC_OK, 1)) {
                continue;
            }
            if (r != EXEC_EXIT) {
                fault_set(t, c, r);
                return true;
            }
            worker_exit(t, c, cycle);
        }
    }
    return false;
}

static uint64_t workers_next(const struct tile *t) {
    uint64_t next = TILE_NEVER;

    for (uint32_t m = t->running; m != 0; m &= m - 1) {
        uint64_t n = t->ctx[__builtin_ctz(m)].next;
        next = n < next ? n : next;
    }
    return next;
}

/* Does any worker still hold a slot (running, leaving or excepted)? */
static bool slots_are_held(const struct tile *t) {
    return t->sup_slots != (1u << TILE_SLOTS) - 1;
}

static uint64_t sup_next(const struct tile *t) {
    if (t->ctx[0].state != 1 || t->wait == SUP_BARRIER || t->wait == SUP_CHIP) {
        return TILE_NEVER;
    }
    if (t->wait == SUP_LOCAL && slots_are_held(t)) {
        return TILE_NEVER;
    }
    /* A slot that came back late cannot be used before it came back. */
    return sup_slot_from(t, t->free_at > t->sup_ready ? t->free_at : t->sup_ready);
}

/* The next instruction waits for the registers that it reads. */
static void sup_plan(struct tile *t, uint64_t earliest) {
    const struct dec *d;

    t->sup_ready = earliest;
    if (t->ctx[0].state != 1 || !pc_is_valid(t->ctx[0].pc)) {
        return;
    }
    d = decode_at(t, &t->ctx[0]);
    for (uint32_t m = d->reads; m != 0; m &= m - 1) {
        uint64_t ready = t->rdy[__builtin_ctz(m)];
        if (ready > t->sup_ready) {
            t->sup_ready = ready;
        }
    }
}

static void take_insn(struct tile *t, uint32_t pc) {
    uint32_t word = mem_load32(t, pc);

    if (isa_decode(word, ISA_SUPERVISOR, &t->insn) && isa_words((enum isa_op)t->insn.op) == 2 &&
        tile_mem_mapped(pc + 4)) {
        t->insn_data = mem_load32(t, pc + 4);
    }
}

/* Break on sync: true at a sync that has not been stopped at yet. */
static bool stops_at_sync(struct tile *t, const struct context *c) {
    if (!pc_is_valid(c->pc) || decode_at(t, c)->op != ISA_OP_sync_zi) {
        return false;
    }
    t->is_past_break = !t->is_past_break;
    return t->is_past_break;
}

/* One supervisor instruction at `cycle`. -1: go on, else why to leave. */
static int sup_issue(struct tile *t, uint64_t cycle) {
    struct context *c = &t->ctx[0];
    uint32_t pc = c->pc;
    uint16_t writes;
    uint8_t latency;
    int r;

    t->now = cycle;
    if (c->has_break) {
        fault_set(t, c, ETYPE_RBRK);
        return TILE_FAULT;
    }
    if (t->breaks_on_sync && t->wait == SUP_RUNS && stops_at_sync(t, c)) {
        fault_set(t, c, ETYPE_BOS);
        return TILE_FAULT;
    }
    if (t->wait == SUP_LOCAL) { /* the sync completes in this slot */
        t->wait = SUP_RUNS;
        sup_plan(t, cycle + TIME_SUP_ISSUE);
        return -1;
    }
    if (t->trace != NULL) {
        trace_group(t, c);
    }
    writes = pc_is_valid(pc) ? decode_at(t, c)->writes : 0;
    r = step_group(t, c, &latency);
    switch (r) {
    case EXEC_OK:
        for (uint32_t m = writes; m != 0; m &= m - 1) {
            t->rdy[__builtin_ctz(m)] = cycle + TIME_SUP_DEPENDENT;
        }
        sup_plan(t, cycle + (c->is_taken ? TIME_SUP_BRANCH : TIME_SUP_ISSUE));
        return -1;
    case EXEC_LOCAL:
        t->sup_ready = cycle + TIME_SUP_ISSUE;
        if (slots_are_held(t)) {
            t->wait = SUP_LOCAL;
        } else {
            sup_plan(t, t->sup_ready);
        }
        return -1;
    case EXEC_SYNC:
        take_insn(t, pc);
        t->sup_ready = cycle + TIME_SUP_ISSUE;
        t->wait = SUP_BARRIER;
        return TILE_SYNC;
    case EXEC_EXCHANGE:
        take_insn(t, pc);
        t->sup_ready = cycle;
        t->wait = SUP_CHIP;
        return TILE_EXCHANGE;
    default: fault_set(t, c, r); return TILE_FAULT;
    }
}

static enum tile_event blocked_event(const struct tile *t) {
    if (t->ctx[0].state == 1 && t->wait == SUP_BARRIER) {
        return TILE_SYNC;
    }
    if (t->ctx[0].state == 1 && t->wait == SUP_CHIP) {
        return TILE_EXCHANGE;
    }
    return TILE_IDLE;
}

enum tile_event tile_run(struct tile *t, uint64_t until_cycle) {
    if (t->is_starved) {
        fault_set(t, &t->ctx[0], ETYPE_MEMERR);
        t->is_starved = false;
        return TILE_FAULT;
    }
    for (;;) {
        uint64_t sup = sup_next(t), work = workers_next(t);

        if (sup == TILE_NEVER && work == TILE_NEVER) {
            return blocked_event(t);
        }
        if (sup >= until_cycle && work >= until_cycle) {
            return TILE_LIMIT;
        }
        if (sup < work) {
            int event = sup_issue(t, sup);
            if (event >= 0) {
                return (enum tile_event)event;
            }
        } else {
            /* On a tie a slot is released in the cycle in which the supervisor issues. */
            uint64_t limit = sup == work ? sup + 1 : sup;
            if (workers_run(t, work, limit < until_cycle ? limit : until_cycle)) {
                return TILE_FAULT;
            }
        }
    }
}

/* ---- the chip's calls ------------------------------------------------------------------------ */

void tile_start_supervisor(struct tile *t, uint32_t pc, uint64_t cycle) {
    struct context *c = &t->ctx[0];

    c->pc = pc;
    c->state = 1;
    c->etype = 0;
    t->wait = SUP_RUNS;
    sup_plan(t, cycle);
}

uint64_t tile_cycle(const struct tile *t) {
    uint64_t next = sup_next(t);

    if (next != TILE_NEVER) {
        return next;
    }
    /* Waiting for its workers, or stopped: not before what they have reached. */
    if ((t->wait == SUP_LOCAL || t->ctx[0].state != 1) && t->now > t->sup_ready) {
        return t->now;
    }
    return t->sup_ready;
}

void tile_resume(struct tile *t, uint64_t cycle) {
    t->wait = SUP_RUNS;
    sup_plan(t, cycle);
}

void tile_advance(struct tile *t, uint32_t pc, uint64_t cycle) {
    t->ctx[0].pc = pc;
    t->wait = SUP_RUNS;
    sup_plan(t, cycle);
}

const struct insn *tile_insn(const struct tile *t, uint32_t *ret_data) {
    if (ret_data != NULL) {
        *ret_data = t->insn_data;
    }
    return &t->insn;
}

uint32_t tile_pc(const struct tile *t, int context) {
    return t->ctx[context].pc;
}

uint32_t tile_csr(const struct tile *t, int number) {
    uint32_t value = 0;

    /* csr_get() changes nothing; it takes the tile writable for exec functions. */
    (void)csr_get(
        (struct tile *)(uintptr_t)t, (struct context *)(uintptr_t)&t->ctx[0], number, &value);
    return value;
}

void tile_set_csr(struct tile *t, int number, uint32_t value) {
    (void)csr_poke(t, &t->ctx[0], number, value);
}

uint32_t tile_m(const struct tile *t, int context, int number) {
    return t->ctx[context].m[number & 15];
}

void tile_set_m(struct tile *t, int context, int number, uint32_t value) {
    if (number >= 0 && number < 12) {
        t->ctx[context].m[number] = value;
    }
}

bool tile_workers_active(const struct tile *t) {
    for (int i = 1; i < TILE_CONTEXTS; i++) {
        if (t->ctx[i].state == 1) {
            return true;
        }
    }
    return false;
}

int tile_context_state(const struct tile *t, int context) {
    const struct context *c = &t->ctx[context];

    if (context == 0 && c->state == 1 && (t->wait == SUP_LOCAL || t->wait == SUP_BARRIER)) {
        return 0;
    }
    return c->state;
}

void tile_clear_exception(struct tile *t, int context, uint64_t cycle) {
    struct context *c = &t->ctx[context];

    if (c->state < 2) {
        return;
    }
    c->state = 1;
    c->etype = 0;
    c->erpt = false;
    if (context == 0) {
        sup_plan(t, cycle);
        return;
    }
    c->next = cycle + (TILE_SLOTS + c->slot - cycle % TILE_SLOTS) % TILE_SLOTS;
    t->running |= (uint8_t)(1u << c->index);
}

bool tile_inject(struct tile *t, int context, uint32_t word) {
    struct context *c = &t->ctx[context];
    struct context before;
    struct dec d;
    int r;

    if (!decode_word(word, context == 0 ? ISA_SUPERVISOR : ISA_WORKER, &d)) {
        return false;
    }
    before = *c;
    c->next_pc = c->pc;
    c->is_taken = false;
    /* Nothing is fetched, so no access can meet the fetch: an empty repeat body says so. */
    c->in_rpt = true;
    c->rpt_first = TARGET_MEM_END;
    c->rpt_end = TARGET_MEM_BASE;
    r = exec_table[d.op](t, c, &d);
    c->in_rpt = before.in_rpt;
    c->rpt_first = before.rpt_first;
    c->rpt_end = before.rpt_end;
    if (r > EXEC_OK && r < EXEC_EXIT) {
        c->etype = (uint8_t)r; /* the context is stopped already; only the reason is new */
    } else if (r == EXEC_OK && c->is_taken) {
        c->pc = c->next_pc;
    }
    t->groups++;
    return true;
}

void tile_set_break(struct tile *t, int context, bool enabled) {
    t->ctx[context].has_break = enabled;
}

void tile_set_break_on_sync(struct tile *t, bool enabled) {
    t->breaks_on_sync = enabled;
    t->is_past_break = enabled && t->is_past_break;
}

void tile_count(const struct tile *t, uint64_t *groups, uint64_t *poison_reads) {
    *groups = t->groups;
    *poison_reads = t->poison_reads;
}
