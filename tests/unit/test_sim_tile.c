/* One simulated tile: what the instruction vectors cannot see, i.e. time, launches, barriers,
 * conflicts by name, poison, code that is rewritten, and that nothing depends on how a run is
 * cut. Programs are written in the printer's syntax, one issue group a string. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "isa/isa.h"
#include "sim/sim.h"
#include "sim/fp.h"
#include "sim/sim_internal.h"

#define SUP  0x4C000u /* supervisor code: element 0 */
#define WORK 0x50000u /* worker code: element 1 */
#define DATA 0x80000u /* region 1 */

#define RBRK          ETYPE_RBRK
#define PBRK0         ETYPE_PBRK0
#define PBRK1         ETYPE_PBRK1
#define FP            ETYPE_FP
#define CONFLICT      ETYPE_CONFLICT
#define INVALID_ADDR  ETYPE_INVALID_ADDR
#define INVALID_OP    ETYPE_INVALID_OP
#define INVALID_PC    ETYPE_INVALID_PC
#define INVALID_INSTR ETYPE_INVALID_INSTR

static struct sim_tile *tile_of(bool poison) {
    struct sim_options options = {.poison_launch = poison, .trace_tile = -1};
    struct sim_tile *t = sim_tile_new(&options);

    ck_assert_ptr_nonnull(t);
    return t;
}

static uint32_t encode(const char *text, enum isa_unit unit, bool coissue) {
    struct insn insn;
    struct err err = {0};
    uint32_t word;

    ck_assert_msg(isa_parse(text, unit, &insn, &err) == 0, "%s: %s", text, err.text);
    insn.coissue = coissue;
    ck_assert_int_eq(isa_encode(&insn, &word, &err), 0);
    return word;
}

static void put(struct sim_tile *t, uint32_t addr, uint32_t word) {
    ck_assert_int_eq(sim_tile_write(t, addr, &word, 4, NULL), 0);
}

static uint32_t word_at(struct sim_tile *t, uint32_t addr) {
    uint32_t word;

    ck_assert_int_eq(sim_tile_read(t, addr, &word, 4, NULL), 0);
    return word;
}

/* Groups up to NULL at addr; "main ; aux" is a bundle. Returns the address after them. */
static uint32_t
code(struct sim_tile *t, uint32_t addr, enum isa_unit unit, const char *const *text) {
    for (; *text != NULL; text++) {
        const char *aux = strstr(*text, " ; ");
        char main_half[80];

        snprintf(
            main_half, sizeof main_half, "%.*s",
            aux != NULL ? (int)(aux - *text) : (int)strlen(*text), *text);
        put(t, addr, encode(main_half, unit, aux != NULL));
        addr += 4;
        if (aux != NULL) {
            put(t, addr, encode(aux + 3, unit, true));
            addr += 4;
        }
    }
    return addr;
}

#define SUPERVISOR(t, addr, ...)                                                                   \
    code(t, addr, ISA_SUPERVISOR, (const char *const[]){__VA_ARGS__, NULL})
#define WORKER(t, addr, ...) code(t, addr, ISA_WORKER, (const char *const[]){__VA_ARGS__, NULL})

static uint64_t get(struct sim_tile *t, int context, char file, int number) {
    uint64_t v = 0;

    ck_assert_int_eq(sim_tile_get(t, context, file, number, &v, NULL), 0);
    return v;
}

static void set(struct sim_tile *t, int context, char file, int number, uint64_t value) {
    ck_assert_int_eq(sim_tile_set(t, context, file, number, value, NULL), 0);
}

static struct sim_stopped run_from(struct sim_tile *t, int context, uint32_t pc, uint64_t limit) {
    struct sim_stopped stop;

    set(t, context, 'p', 0, pc);
    sim_tile_start(t, context);
    sim_tile_run(t, limit, &stop);
    return stop;
}

/* ---- supervisor time ------------------------------------------------------------------------- */

/* Cycle at which the last of these instructions issues; the first issues at 0. A breakpoint ends
 * the run at its own issue cycle. */
static uint64_t cycles_until_trap(const char *const *text) {
    struct sim_tile *t = tile_of(false);
    struct sim_stopped stop;

    code(t, SUP, ISA_SUPERVISOR, text);
    stop = run_from(t, SIM_SUPERVISOR, SUP, 1000);
    ck_assert_int_eq(stop.why, SIM_STOP_EXCEPTION);
    ck_assert_int_eq(stop.etype, PBRK0);
    sim_tile_free(t);
    return stop.cycles;
}

#define CYCLES(...) cycles_until_trap((const char *const[]){__VA_ARGS__, "trap 0", NULL})

START_TEST(supervisor_issue) {
    ck_assert_uint_eq(CYCLES("setzi $m0, 1"), 1);
    ck_assert_uint_eq(CYCLES("setzi $m0, 1", "setzi $m1, 1", "setzi $m2, 1"), 3);
    ck_assert_uint_eq(CYCLES("setzi $m0, 1", "add $m1, $m0, 1"), 7);
    ck_assert_uint_eq(CYCLES("setzi $m0, 1", "setzi $m2, 1", "add $m1, $m0, 1"), 7);
    ck_assert_uint_eq(CYCLES("setzi $m0, 1", "add $m0, $m0, 1", "add $m0, $m0, 1"), 13);
    ck_assert_uint_eq(CYCLES("bri 0x4c004"), 6);
    ck_assert_uint_eq(CYCLES("brz $m15, 0x4c004"), 6);
    ck_assert_uint_eq(CYCLES("brnz $m15, 0x4c004"), 1);
    ck_assert_uint_eq(
        CYCLES("setzi $m0, 0x80000", "ld32 $m1, $m0, $m15, 0", "add $m1, $m1, 1"), 13);
    ck_assert_uint_eq(CYCLES("setzi $m15, 1", "add $m1, $m15, 1"), 2); /* dropped, no dependence */
    ck_assert_uint_eq(CYCLES("sync 2"), 1);
}
END_TEST

START_TEST(coefficient_stream_issues_every_cycle) {
    struct sim_tile *t = tile_of(false);
    struct sim_stopped stop;
    uint32_t at;

    sim_tile_zero(t);
    at = SUPERVISOR(t, SUP, "setzi $m0, 0x80000", "put 80, $m0");
    for (int i = 0; i < 64; i += 2) {
        char text[32];
        snprintf(text, sizeof text, "ld128putcs %d", i);
        at = SUPERVISOR(t, at, text);
    }
    SUPERVISOR(t, at, "trap 0");
    stop = run_from(t, SIM_SUPERVISOR, SUP, 1000);
    ck_assert_int_eq(stop.etype, PBRK0);
    ck_assert_uint_eq(stop.cycles, 6 + 1 + 32);
    ck_assert_uint_eq(get(t, SIM_SUPERVISOR, 's', 80), 0x80000 + 512);
    sim_tile_free(t);
}
END_TEST

/* ---- launches -------------------------------------------------------------------------------- */

/* setzi, setzi at 0, 1; runall waits for $m1 until 7; first worker at 17, each `groups` turns. */
static struct sim_stopped launch(struct sim_tile *t, int nops) {
    uint32_t at = WORK;

    SUPERVISOR(
        t, SUP, "setzi $m0, 0x50000", "setzi $m1, 0x80000", "runall $m0, $m1, 0", "sync 2",
        "trap 1");
    for (int i = 0; i < nops; i++) {
        at = WORKER(t, at, "setzi $m14, 0");
    }
    WORKER(t, at, "exitz $m15");
    return run_from(t, SIM_SUPERVISOR, SUP, 100000);
}

START_TEST(launch_and_sync) {
    for (int nops = 0; nops < 20; nops += 7) {
        struct sim_tile *t = tile_of(false);
        struct sim_stopped stop = launch(t, nops);
        /* Worker n issues at 17 + n, exits after `nops` turns; the last slot is back 6 later, the
         * sync completes in that cycle and the trap is next. */
        uint64_t last_exit = 17 + 5 + 6 * (uint64_t)nops;

        ck_assert_int_eq(stop.etype, PBRK1);
        ck_assert_uint_eq(stop.cycles, last_exit + 6 + 1);
        ck_assert_uint_eq(stop.groups, 4 + 6 * ((uint64_t)nops + 1));
        for (int w = SIM_WORKER0; w < SIM_WORKER0 + 6; w++) {
            ck_assert_int_eq(sim_tile_exit_status(t, w), 1);
            ck_assert_uint_eq(get(t, w, 'm', 13), 0x80000);
            ck_assert_uint_eq(get(t, w, 's', 1), (uint64_t)(w - 1));
        }
        ck_assert_uint_eq(get(t, SIM_SUPERVISOR, 's', 1) & 1, 1);
        sim_tile_free(t);
    }
}
END_TEST

START_TEST(lone_worker_uses_one_slot_in_six) {
    struct sim_tile *t = tile_of(false);
    struct sim_stopped stop;

    /* The supervisor goes on in the other five slots while the worker runs. */
    WORKER(t, WORK, "get $m0, 96", "get $m1, 96", "get $m2, 96", "exitnz $m0");
    SUPERVISOR(
        t, SUP, "setzi $m0, 0x50000", "run $m0, $m15, 0", "setzi $m2, 10", "brnzdec $m2, 0x4c00c",
        "sync 2", "trap 0");
    stop = run_from(t, SIM_SUPERVISOR, SUP, 1000);
    ck_assert_int_eq(stop.etype, PBRK0);
    ck_assert_uint_eq(get(t, 1, 'm', 0), 6 + 10); /* run at 6 */
    ck_assert_uint_eq(get(t, 1, 'm', 1), 6 + 16);
    ck_assert_uint_eq(get(t, 1, 'm', 2), 6 + 22);
    ck_assert_int_eq(sim_tile_exit_status(t, 1), 1);
    ck_assert_int_eq(sim_tile_exit_status(t, 2), -1);
    sim_tile_free(t);
}
END_TEST

START_TEST(consensus_is_the_and_of_all) {
    struct sim_tile *t = tile_of(false);

    WORKER(t, WORK, "get $m0, 1", "exitz $m0"); /* true for the first worker only */
    SUPERVISOR(
        t, SUP, "setzi $m0, 0x50000", "runall $m0, $m15, 0", "sync 2", "get $m2, 1", "setzi $m1, 2",
        "put 2, $m1", "get $m3, 1", "trap 0");
    ck_assert_int_eq(run_from(t, SIM_SUPERVISOR, SUP, 1000).etype, PBRK0);
    ck_assert_int_eq(sim_tile_exit_status(t, 1), 1);
    ck_assert_int_eq(sim_tile_exit_status(t, 6), 0);
    ck_assert_uint_eq(get(t, SIM_SUPERVISOR, 'm', 2) & 1, 0);
    ck_assert_uint_eq(get(t, SIM_SUPERVISOR, 'm', 3) & 1, 1);
    sim_tile_free(t);
}
END_TEST

START_TEST(runall_over_active_workers_is_fatal) {
    struct sim_tile *t = tile_of(false);
    struct sim_stopped stop;

    WORKER(t, WORK, "setzi $m14, 0", "setzi $m14, 0", "exitz $m15");
    SUPERVISOR(t, SUP, "setzi $m0, 0x50000", "run $m0, $m15, 0", "runall $m0, $m15, 0", "trap 0");
    stop = run_from(t, SIM_SUPERVISOR, SUP, 1000);
    ck_assert_int_eq(stop.why, SIM_STOP_EXCEPTION);
    ck_assert_int_eq(stop.context, SIM_SUPERVISOR);
    ck_assert_int_eq(stop.etype, INVALID_INSTR);
    ck_assert_uint_eq(stop.pc, SUP + 8);
    ck_assert_uint_eq(get(t, SIM_SUPERVISOR, 's', 1) >> 3 & 1, 1); /* RAERR */
    ck_assert_uint_eq(get(t, 1, 's', 1) >> 4 & 15, INVALID_INSTR);
    sim_tile_free(t);
}
END_TEST

/* ---- slow instructions, branches, repeats ---------------------------------------------------- */

/* Worker turns from the first to the last counter reading. */
static uint64_t turns(const char *const *text) {
    struct sim_tile *t = tile_of(false);
    uint32_t at = WORKER(t, WORK, "get $m0, 96");

    at = code(t, at, ISA_WORKER, text);
    WORKER(t, at, "get $m1, 96", "exitz $m15");
    ck_assert_int_eq(run_from(t, 1, WORK, 10000).why, SIM_STOP_IDLE);
    at = (uint32_t)(get(t, 1, 'm', 1) - get(t, 1, 'm', 0));
    sim_tile_free(t);
    ck_assert_uint_eq(at % 6, 0);
    return at / 6 - 1;
}

#define TURNS(...) turns((const char *const[]){__VA_ARGS__, NULL})

START_TEST(worker_latencies) {
    ck_assert_uint_eq(TURNS("f32add $a0, $a1, $a2"), 1);
    ck_assert_uint_eq(TURNS("f32div $a0, $a1, $a2"), 3);
    ck_assert_uint_eq(TURNS("f32sqrt $a0, $a1"), 5);
    ck_assert_uint_eq(TURNS("f32ln $a0, $a1"), 6);
    ck_assert_uint_eq(TURNS("f16v2tanh $a0, $a1"), 1);
    ck_assert_uint_eq(TURNS("f16v2exp $a0, $a1"), 2);
    ck_assert_uint_eq(TURNS("setzi $m3, 1 ; f32oorx $a0, $a1"), 4);
    ck_assert_uint_eq(TURNS("bri 0x50008"), 1);
    ck_assert_uint_eq(TURNS("bri 0x50008", "setzi $m3, 1 ; setzi $a1, 2"), 2);
    /* The bundle at 4 mod 8 costs a turn when it is branched to, not when it is run into. */
    ck_assert_uint_eq(TURNS("setzi $m3, 0", "bri 0x5000c", "setzi $m3, 1 ; setzi $a1, 2"), 4);
    ck_assert_uint_eq(TURNS("setzi $m3, 0", "setzi $m4, 0", "setzi $m3, 1 ; setzi $a1, 2"), 3);
}
END_TEST

START_TEST(repeat_rules) {
    struct sim_tile *t = tile_of(false);
    struct sim_stopped stop;

    WORKER(
        t, WORK, "rpt 100, 1 ; setzi $a0, 1", "add $m3, $m3, 1 ; setzi $a1, 1",
        "add $m4, $m4, 2 ; setzi $a1, 1", "get $m5, 96", "exitz $m15");
    stop = run_from(t, 1, WORK, 10000);
    ck_assert_int_eq(stop.why, SIM_STOP_IDLE);
    ck_assert_uint_eq(get(t, 1, 'm', 3), 100);
    ck_assert_uint_eq(get(t, 1, 'm', 4), 200);
    ck_assert_uint_eq(get(t, 1, 'm', 5), 6 * (1 + 200));
    ck_assert_uint_eq(stop.groups, 1 + 200 + 2);
    sim_tile_free(t);

    t = tile_of(false); /* misaligned body */
    WORKER(t, WORK + 4, "rpt 2, 0 ; setzi $a0, 1", "add $m3, $m3, 1 ; setzi $a1, 1");
    stop = run_from(t, 1, WORK + 4, 10000);
    ck_assert_int_eq(stop.etype, INVALID_OP);
    ck_assert_uint_eq(stop.pc, WORK + 4);
    sim_tile_free(t);

    t = tile_of(false); /* solo word in the body */
    WORKER(t, WORK, "rpt 2, 1 ; setzi $a0, 1", "add $m3, $m3, 1 ; setzi $a1, 1", "setzi $m4, 1");
    stop = run_from(t, 1, WORK, 10000);
    ck_assert_int_eq(stop.etype, INVALID_INSTR);
    ck_assert_uint_eq(stop.pc, WORK + 16);
    ck_assert_uint_eq(get(t, 1, 's', 1) >> 9 & 1, 1); /* ERPT */
    sim_tile_free(t);
}
END_TEST

/* ---- faults by name -------------------------------------------------------------------------- */

static int worker_fault(const char *text, uint64_t m1, uint64_t m2) {
    struct sim_tile *t = tile_of(false);
    struct sim_stopped stop;

    sim_tile_zero(t);
    WORKER(t, WORK, text, "exitz $m15");
    set(t, 1, 'm', 1, m1);
    set(t, 1, 'm', 2, m2);
    stop = run_from(t, 1, WORK, 1000);
    if (stop.why == SIM_STOP_EXCEPTION) {
        ck_assert_int_eq(stop.context, 1);
        ck_assert_uint_eq(stop.pc, WORK);
        ck_assert_uint_eq(get(t, 1, 'm', 1), m1); /* nothing committed */
    }
    sim_tile_free(t);
    return stop.why == SIM_STOP_EXCEPTION ? stop.etype : 0;
}

/* Packed A0 and A2 (or A1) of a pace pair. */
static int pace_fault(const char *text, uint32_t a0, uint32_t a1, uint32_t a2) {
    struct sim_tile *t = tile_of(false);
    struct sim_stopped stop;

    sim_tile_zero(t);
    WORKER(t, WORK, text, "exitz $m15");
    set(t, 1, 'm', 2, a0 | a2 << 21);
    set(t, 1, 'm', 3, a1 | (a2 >> 11) << 21);
    stop = run_from(t, 1, WORK, 1000);
    sim_tile_free(t);
    return stop.why == SIM_STOP_EXCEPTION ? stop.etype : 0;
}

START_TEST(address_faults) {
    ck_assert_int_eq(worker_fault("ld32 $m3, $m1, $m15, 0", DATA, 0), 0);
    ck_assert_int_eq(worker_fault("ld32 $m3, $m1, $m15, 0", DATA + 2, 0), INVALID_ADDR);
    ck_assert_int_eq(worker_fault("ld32 $m3, $m1, $m15, 0", 0x4BFFC, 0), INVALID_ADDR);
    ck_assert_int_eq(worker_fault("ld32 $m3, $m1, $m15, 0", 0xE8000, 0), INVALID_ADDR);
    ck_assert_int_eq(worker_fault("ld128 $a0:3, $m1, $m15, 0", DATA + 16, 0), 0);
    ck_assert_int_eq(worker_fault("ld128 $a0:3, $m1, $m15, 0", DATA + 8, 0), INVALID_ADDR);
    ck_assert_int_eq(worker_fault("ld128 $a0:3, $m1, $m15, 0", 0x60000, 0), INVALID_ADDR);
    ck_assert_int_eq(worker_fault("br $m1", 0x80000, 0), INVALID_PC);
    ck_assert_int_eq(worker_fault("br $m1", WORK + 2, 0), INVALID_PC);
    ck_assert_int_eq(worker_fault("put 7, $m1", 1, 0), INVALID_OP);
}
END_TEST

START_TEST(element_conflicts) {
    const char *two = "ld2x64pace $a0:1, $a2:3, $m2:3+=, $m15, 0";
    const char *store = "ldst64pace $a0:1, $a4:5, $m2:3+=, $m15, 0";
    const char *three = "ld2xst64pace $a0:3, $a4:5, $m2:3+=, $m15, 0";

    ck_assert_int_eq(pace_fault(two, DATA, DATA + 8, 0), 0);
    ck_assert_int_eq(pace_fault(two, DATA, DATA + 16, 0), CONFLICT);
    ck_assert_int_eq(pace_fault(two, DATA, DATA, 0), CONFLICT);
    ck_assert_int_eq(pace_fault(two, DATA, DATA + 0x8000, 0), 0);
    ck_assert_int_eq(pace_fault(two, 0x60000, 0x63FF8, 0), CONFLICT);
    ck_assert_int_eq(pace_fault(two, 0x60000, 0x64000, 0), 0);
    ck_assert_int_eq(pace_fault(two, 0x60000, DATA, 0), 0);
    ck_assert_int_eq(pace_fault(store, DATA, 0, DATA + 24), 0);
    ck_assert_int_eq(pace_fault(store, DATA, 0, DATA + 32), CONFLICT);
    ck_assert_int_eq(pace_fault(three, DATA, DATA + 0x8000, DATA + 8), 0);
    ck_assert_int_eq(pace_fault(three, DATA, DATA + 0x8000, DATA + 0x8010), CONFLICT);
    ck_assert_int_eq(pace_fault(three, DATA, 0x60000, DATA + 8), INVALID_ADDR);
    ck_assert_int_eq(
        pace_fault("ld2x64pace $a0:1, $a0:1, $m2:3+=, $m15, 0", DATA, DATA + 8, 0), INVALID_OP);
}
END_TEST

START_TEST(fetch_conflicts) {
    /* Worker code in element 1: data there clashes, data in element 2 does not. */
    ck_assert_int_eq(worker_fault("ld32 $m3, $m1, $m15, 0", WORK + 0x1000, 0), CONFLICT);
    ck_assert_int_eq(worker_fault("ld32 $m3, $m1, $m15, 0", WORK + 0x4000, 0), 0);
    ck_assert_int_eq(worker_fault("stm32 $m2, $m1, $m15", WORK + 0x1000, 0), CONFLICT);
}
END_TEST

/* ---- poison, rewritten code ------------------------------------------------------------------ */

START_TEST(poison) {
    struct sim_tile *t = tile_of(true);
    struct sim_stopped stop;

    WORKER(
        t, WORK, "setzi $m0, 0x80000", "ld64 $a0:1, $m0, $m15, 0", "ld32 $m4, $m0, $m15, 0",
        "f16v2add $a2, $a0, $a15", "exitz $m15");
    stop = run_from(t, 1, WORK, 1000);
    ck_assert_int_eq(stop.why, SIM_STOP_IDLE);
    ck_assert_uint_eq(get(t, 1, 'a', 0), get(t, 1, 'm', 4));
    ck_assert_uint_eq(get(t, 1, 'a', 2), 0x7ECE7ECE); /* poison is NaN in both halves */
    ck_assert_uint_ne(get(t, 1, 'm', 4), 0);

    /* So do registers that nothing has written since reset, the supervisor's too. */
    ck_assert_uint_eq(get(t, SIM_SUPERVISOR, 'm', 3), get(t, 1, 'm', 4));
    ck_assert_uint_eq(get(t, 2, 'a', 7), get(t, 1, 'm', 4));
    ck_assert_uint_eq(get(t, 2, 'm', 15), 0);

    /* Between launches the registers are poisoned too. */
    set(t, 1, 'm', 5, 77);
    WORKER(t, WORK, "setzi $m0, 1", "exitz $m15");
    SUPERVISOR(t, SUP, "setzi $m0, 0x50000", "runall $m0, $m15, 0", "sync 2", "trap 0");
    ck_assert_int_eq(run_from(t, SIM_SUPERVISOR, SUP, 1000).etype, PBRK0);
    ck_assert_uint_eq(get(t, 1, 'm', 5), get(t, 1, 'm', 4));
    ck_assert_uint_eq(get(t, 1, 'm', 0), 1);
    sim_tile_free(t);

    t = tile_of(false); /* without the option they survive */
    set(t, 1, 'm', 5, 77);
    WORKER(t, WORK, "exitz $m15");
    SUPERVISOR(t, SUP, "setzi $m0, 0x50000", "runall $m0, $m15, 0", "sync 2", "trap 0");
    ck_assert_int_eq(run_from(t, SIM_SUPERVISOR, SUP, 1000).etype, PBRK0);
    ck_assert_uint_eq(get(t, 1, 'm', 5), 77);
    sim_tile_free(t);
}
END_TEST

START_TEST(poison_reads_are_counted) {
    struct tile *t = tile_new(3, NULL);
    uint64_t groups, reads;

    ck_assert_ptr_nonnull(t);
    tile_mem_load(t, 0x90000);
    tile_mem_store(t, 0x90004, 5);
    tile_mem_load(t, 0x90004);
    tile_mem_load(t, 0x90000);
    tile_mem_fill_zero(t, 0x91000, 0x93004);
    for (uint32_t a = 0x91000; a < 0x93004; a += 4) {
        ck_assert_uint_eq(tile_mem_load(t, a), 0);
    }
    tile_count(t, &groups, &reads);
    ck_assert_uint_eq(reads, 2);
    tile_mem_load(t, 0x93004);
    tile_count(t, &groups, &reads);
    ck_assert_uint_eq(reads, 3);
    tile_free(t);
}
END_TEST

START_TEST(shared_image_is_copied_on_write) {
    static uint32_t image[3000];
    struct tile *t = tile_new(0, NULL), *u = tile_new(1, NULL);
    uint64_t groups, reads;

    for (uint32_t i = 0; i < 3000; i++) {
        image[i] = i * 3 + 1;
    }
    tile_mem_share(t, 0x4C010, image, 3000);
    tile_mem_share(u, 0x4C010, image, 3000);
    for (uint32_t i = 0; i < 3000; i++) {
        tile_mem_store(t, 0x4C010 + 4 * i, i);
    }
    for (uint32_t i = 0; i < 3000; i++) {
        ck_assert_uint_eq(image[i], i * 3 + 1);
        ck_assert_uint_eq(tile_mem_load(u, 0x4C010 + 4 * i), i * 3 + 1);
        ck_assert_uint_eq(tile_mem_load(t, 0x4C010 + 4 * i), i);
    }
    tile_count(u, &groups, &reads);
    ck_assert_uint_eq(reads, 0);
    tile_free(t);
    tile_free(u);
}
END_TEST

START_TEST(stored_code_is_executed) {
    /* Worker code lives in element 1, the stored word in element 2, and is run twice. */
    struct sim_tile *t = tile_of(false);
    uint32_t target = 0x54000, first = encode("add $m3, $m3, 1", ISA_WORKER, false);

    put(t, target, first);
    WORKER(t, target + 4, "br $m10");
    WORKER(
        t, WORK, "setzi $m0, 0x54000", "call $m10, 0x54000", "ld32 $m1, $m2, $m15, 0",
        "stm32 $m1, $m0, $m15", "call $m10, 0x54000", "exitz $m15");
    set(t, 1, 'm', 2, DATA);
    put(t, DATA, encode("add $m3, $m3, 100", ISA_WORKER, false));
    ck_assert_int_eq(run_from(t, 1, WORK, 1000).why, SIM_STOP_IDLE);
    ck_assert_uint_eq(get(t, 1, 'm', 3), 101);
    sim_tile_free(t);
}
END_TEST

START_TEST(stored_second_half_is_executed) {
    /* A bundle over the end of a block of decoded code, whose second word changes. */
    struct sim_tile *t = tile_of(false);
    uint32_t target = 0x54000 + 0x3FC;

    WORKER(t, target, "add $m3, $m3, 1 ; setzi $a1, 5", "br $m10");
    WORKER(
        t, WORK, "setzi $m0, 0x54400", "call $m10, 0x543fc", "ld32 $m1, $m2, $m15, 0",
        "stm32 $m1, $m0, $m15", "call $m10, 0x543fc", "exitz $m15");
    set(t, 1, 'm', 2, DATA);
    put(t, DATA, encode("setzi $a2, 6", ISA_WORKER, true));
    ck_assert_int_eq(run_from(t, 1, WORK, 1000).why, SIM_STOP_IDLE);
    ck_assert_uint_eq(get(t, 1, 'm', 3), 2);
    ck_assert_uint_eq(get(t, 1, 'a', 1), 5);
    ck_assert_uint_eq(get(t, 1, 'a', 2), 6);
    sim_tile_free(t);
}
END_TEST

/* ---- traps and precision of bundles ---------------------------------------------------------- */

START_TEST(trapping_bundle_commits_nothing) {
    struct sim_tile *t = tile_of(false);
    struct sim_stopped stop;

    set(t, 1, 's', 0x102, 2); /* FP_CTL: trap on division by zero */
    set(t, 1, 'a', 1, 0x3F800000);
    set(t, 1, 'm', 1, DATA);
    put(t, DATA, 42);
    WORKER(t, WORK, "ld32step $a4, $m15, $m1+=, 1 ; f32div $a3, $a1, $a2", "exitz $m15");
    stop = run_from(t, 1, WORK, 100);
    ck_assert_int_eq(stop.etype, FP);
    ck_assert_uint_eq(stop.pc, WORK);
    ck_assert_uint_eq(get(t, 1, 'm', 1), DATA);
    ck_assert_uint_eq(get(t, 1, 'a', 4), 0);
    ck_assert_uint_eq(get(t, 1, 'a', 3), 0);
    ck_assert_uint_eq(get(t, 1, 's', 0x100), 2); /* FP_STS */
    sim_tile_free(t);
}
END_TEST

START_TEST(halves_read_the_old_state) {
    struct sim_tile *t = tile_of(false);

    put(t, DATA, 0x40000000);
    set(t, 1, 'm', 1, DATA);
    set(t, 1, 'a', 0, 0x3F800000);
    WORKER(
        t, WORK, "ld32 $a0, $m1, $m15, 0 ; f32add $a1, $a0, $a0",
        "atom $m2, $a1 ; f32add $a1, $a0, $a0", "exitz $m15");
    ck_assert_int_eq(run_from(t, 1, WORK, 100).why, SIM_STOP_IDLE);
    ck_assert_uint_eq(get(t, 1, 'a', 0), 0x40000000);
    ck_assert_uint_eq(get(t, 1, 'm', 2), 0x40000000); /* 1 + 1 */
    ck_assert_uint_eq(get(t, 1, 'a', 1), 0x40800000); /* 2 + 2 */
    sim_tile_free(t);
}
END_TEST

/* ---- runs do not depend on how they are cut -------------------------------------------------- */

static uint64_t mix(uint64_t h, uint64_t v) {
    h = (h ^ v) * 0x9E3779B97F4A7C15u;
    return h ^ h >> 29;
}

/* Six workers race over one word (read, add, store, in turns) while the supervisor loops. */
static uint64_t race(uint64_t slice) {
    struct sim_tile *t = tile_of(false);
    struct sim_stopped stop;
    uint64_t h = 0, cycles = 0;

    sim_tile_zero(t);
    WORKER(
        t, WORK, "get $m0, 1", "setzi $m1, 0x80000", "setzi $m4, 20", "ld32 $m2, $m1, $m15, 0",
        "mul $m2, $m2, 3", "add $m2, $m2, $m0", "add $m2, $m2, 1", "stm32 $m2, $m1, $m15",
        "f32div $a0, $a1, $a2", "brnzdec $m4, 0x5000c", "exitz $m15");
    SUPERVISOR(
        t, SUP, "setzi $m0, 0x50000", "setzi $m5, 4", "runall $m0, $m15, 0", "setzi $m3, 0x80000",
        "ld32 $m6, $m3, $m15, 0", "sync 2", "ld32 $m7, $m3, $m15, 0", "brnzdec $m5, 0x4c008",
        "trap 0");
    set(t, SIM_SUPERVISOR, 'p', 0, SUP);
    sim_tile_start(t, SIM_SUPERVISOR);
    do {
        sim_tile_run(t, slice, &stop);
        cycles += stop.cycles;
    } while (stop.why == SIM_STOP_CYCLES);
    ck_assert_int_eq(stop.etype, PBRK0);
    h = mix(mix(h, word_at(t, DATA)), cycles);
    for (int i = 0; i < 12; i++) {
        h = mix(h, get(t, SIM_SUPERVISOR, 'm', i));
        h = mix(h, get(t, 3, 'm', i));
    }
    sim_tile_free(t);
    return h;
}

START_TEST(slices_do_not_matter) {
    uint64_t whole = race(1000000);

    ck_assert_uint_eq(race(1000000), whole);
    for (uint64_t slice = 1; slice < 40; slice += 3) {
        ck_assert_uint_eq(race(slice), whole);
    }
}
END_TEST

/* ---- the shape of a matrix kernel (tile fact sheet 3.6) -------------------------------------- */

/* Cycles per K16 x C16 group: `most` workers run n rows, the others n - 1. A worker takes
 * 16 + 4n groups; the supervisor loads 32 x 128 bits of coefficients and tests its loop. */
static double gemm_group(int rows, int most) {
    enum { GROUPS = 50 };
    struct sim_tile *t = tile_of(false);
    char text[64];
    struct sim_stopped stop;
    uint32_t at;

    sim_tile_zero(t);
    snprintf(text, sizeof text, "cmpslt $m2, $m1, %d", most);
    /* 10 set-up groups, the repeat with 4 (rows - 1) bundles, 9 after it: 16 + 4 rows in all. */
    WORKER(
        t, WORK, "get $m1, 1", text, "setzi $m3, 0", "setzi $m14, 0", "setzi $m14, 0",
        "setzi $m14, 0", "setzi $m14, 0", "setzi $m14, 0");
    snprintf(text, sizeof text, "add $m3, $m2, %d", rows - 2);
    at = WORKER(
        t, WORK + 32, text, "setzi $m14, 0", "rpt $m3, 3 ; setzi $a13, 0",
        "setzi $m14, 0 ; setzi $a13, 0", "setzi $m14, 0 ; setzi $a13, 0",
        "setzi $m14, 0 ; setzi $a13, 0", "setzi $m14, 0 ; setzi $a13, 0");
    WORKER(
        t, at, "setzi $m14, 0", "setzi $m14, 0", "setzi $m14, 0", "setzi $m14, 0", "setzi $m14, 0",
        "setzi $m14, 0", "setzi $m14, 0", "setzi $m14, 0", "exitz $m15");
    at = SUPERVISOR(t, SUP, "setzi $m0, 0x50000", "setzi $m4, 0x80000", "put 80, $m4");
    at = SUPERVISOR(t, at, "sync 2");
    for (int i = 0; i < 32; i++) {
        snprintf(text, sizeof text, "ld128putcs %d", 2 * i);
        at = SUPERVISOR(t, at, text);
    }
    snprintf(text, sizeof text, "setzi $m6, %d", GROUPS);
    SUPERVISOR(
        t, at, "runall $m0, $m15, 0", "setzi $m7, 1", "add $m5, $m5, 1", text,
        "cmpult $m8, $m5, $m6", "brnz $m8, 0x4c00c", "sync 2", "trap 0");
    stop = run_from(t, SIM_SUPERVISOR, SUP, 1000000);
    ck_assert_int_eq(stop.etype, PBRK0);
    sim_tile_free(t);
    return (double)(stop.cycles - 8) / GROUPS;
}

START_TEST(matrix_kernel_shape) {
    static const struct {
        int rows, most;
        double group; /* of the slot model with 10 cycles from launch to first issue */
    } rows[] = {{20, 6, 642.2}, {31, 4, 887.9}, {31, 2, 884.8}, {25, 2, 740.3}};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        double got = gemm_group(rows[i].rows, rows[i].most);
        ck_assert_msg(
            got > rows[i].group * 0.994 && got < rows[i].group * 1.006,
            "%d rows, %d workers: %.1f cycles a group, expected %.1f", rows[i].rows, rows[i].most,
            got, rows[i].group);
    }
}
END_TEST

/* ---- the chip's side ------------------------------------------------------------------------- */

static void put_text(struct tile *t, uint32_t addr, const char *text) {
    tile_mem_store(t, addr, encode(text, ISA_SUPERVISOR, false));
}

START_TEST(trace_shows_groups_and_faults) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    struct sim_options options = {.trace = out, .trace_tile = -1};
    struct sim_tile *t = sim_tile_new(&options);
    struct sim_stopped stop;

    ck_assert_ptr_nonnull(t);
    WORKER(t, WORK, "setzi $m0, 3 ; setzi $a1, 4", "trap 1");
    stop = run_from(t, 2, WORK, 100);
    ck_assert_int_eq(stop.etype, PBRK1);
    sim_tile_free(t);
    fclose(out);
    ck_assert_str_eq(
        text, "0 0 2 0x50000  setzi $m0, 3 | setzi $a1, 4\n"
              "6 0 2 0x50008  trap 1\n"
              "6 0 2 0x50008  exception PBRK1\n");
    free(text);
}
END_TEST

START_TEST(chip_events) {
    struct tile *t = tile_new(77, NULL);
    uint32_t data;

    ck_assert_ptr_nonnull(t);
    ck_assert_int_eq(tile_run(t, 1000), TILE_IDLE);
    put_text(t, SUP, "setzi $m0, 5");
    put_text(t, SUP + 4, "put 160, $m0");
    put_text(t, SUP + 8, "sync 3");
    put_text(t, SUP + 12, "delay 9");
    put_text(t, SUP + 16, "get $m2, 3");
    put_text(t, SUP + 20, "br $m10");
    tile_start_supervisor(t, SUP, 100);
    ck_assert_int_eq(tile_run(t, 103), TILE_LIMIT);
    ck_assert_int_eq(tile_run(t, 1000), TILE_SYNC);
    ck_assert_int_eq(tile_insn(t, &data)->v[0], 3);
    ck_assert_uint_eq(tile_pc(t, 0), SUP + 12);
    ck_assert_uint_eq(tile_cycle(t), 100 + 6 + 1 + 1);
    ck_assert_int_eq(tile_context_state(t, 0), 0);
    ck_assert_uint_eq(tile_csr(t, 160), 5);
    ck_assert_int_eq(tile_run(t, 2000), TILE_SYNC); /* still there */
    tile_resume(t, 500);
    ck_assert_int_eq(tile_run(t, 2000), TILE_EXCHANGE);
    ck_assert_int_eq(tile_insn(t, &data)->op, ISA_OP_delay_zi);
    ck_assert_uint_eq(tile_pc(t, 0), SUP + 12);
    ck_assert_uint_eq(tile_cycle(t), 500);
    tile_advance(t, SUP + 16, 510);
    ck_assert_int_eq(tile_run(t, 2000), TILE_FAULT); /* br to 0 */
    ck_assert_int_eq(tile_etype(t, 0), INVALID_PC);
    ck_assert_int_eq(tile_context_state(t, 0), 3);
    ck_assert_uint_eq(tile_m(t, 0, 2), 77);
    ck_assert_int_eq(tile_run(t, 3000), TILE_IDLE);
    tile_free(t);
}
END_TEST

START_TEST(debug_break_inject_continue) {
    struct tile *t = tile_new(1, NULL);

    ck_assert_ptr_nonnull(t);
    put_text(t, SUP, "add $m0, $m0, 1");
    put_text(t, SUP + 4, "bri 0x4c000");
    tile_start_supervisor(t, SUP, 0);
    ck_assert_int_eq(tile_run(t, 1000), TILE_LIMIT);
    tile_set_break(t, 0, true);
    ck_assert_int_eq(tile_run(t, 2000), TILE_FAULT);
    ck_assert_int_eq(tile_etype(t, 0), RBRK);
    ck_assert_int_eq(tile_context_state(t, 0), 2);
    ck_assert(tile_inject(t, 0, encode("setzi $m0, 0", ISA_SUPERVISOR, false)));
    ck_assert(tile_inject(t, 0, encode("put 112, $m0", ISA_SUPERVISOR, false)));
    ck_assert(!tile_inject(t, 0, 0x1a100001u)); /* of the other pipe */
    ck_assert_uint_eq(tile_csr(t, 112), 0);
    tile_set_break(t, 0, false);
    tile_clear_exception(t, 0, 2000);
    ck_assert_int_eq(tile_run(t, 3000), TILE_LIMIT);
    ck_assert_uint_gt(tile_m(t, 0, 0), 140); /* 7 cycles a round */
    ck_assert_uint_lt(tile_m(t, 0, 0), 145);
    tile_free(t);
}
END_TEST

START_TEST(bad_requests_are_refused) {
    struct sim_tile *t = tile_of(false);
    struct err err = {0};
    uint32_t word = 0;
    uint64_t v;

    ck_assert_int_ne(sim_tile_write(t, 0x4BFFC, &word, 4, &err), 0);
    ck_assert_int_ne(sim_tile_write(t, 0x4C002, &word, 4, &err), 0);
    ck_assert_int_ne(sim_tile_read(t, 0xE7FFC, &word, 8, &err), 0);
    ck_assert_int_eq(sim_tile_read(t, 0xE7FFC, &word, 4, &err), 0);
    ck_assert_int_ne(sim_tile_set(t, 7, 'm', 0, 1, &err), 0);
    ck_assert_int_ne(sim_tile_set(t, 1, 'm', 16, 1, &err), 0);
    ck_assert_int_ne(sim_tile_set(t, 1, 'a', 9, 1, &err), 0);
    ck_assert_int_ne(sim_tile_set(t, 1, 'z', 0, 1, &err), 0);
    ck_assert_int_ne(sim_tile_get(t, 1, 's', 99, &v, &err), 0);
    ck_assert_int_eq(err.code, ERR_INVALID);
    sim_tile_free(t);
}
END_TEST

/* The aux half reads what was before the bundle, whatever the main half loads into it; a word of a
 * quad that the load leaves alone stays. */
START_TEST(crossed_bundles) {
    struct sim_tile *t = tile_of(false);
    struct sim_stopped stopped;

    for (uint32_t i = 0; i < 4; i++) {
        put(t, DATA + 4 * i, 0x11111111 * (i + 1));
        set(t, 1, 'a', (int)i, 100 + i);
    }
    put(t, DATA + 0x8010, 0x55555555);
    set(t, 1, 'm', 2, DATA);
    set(t, 1, 'm', 3, DATA + 0x8010);
    put(t, WORK, encode("ld64 $a0:1, $m2, $mzero, 0", ISA_WORKER, true));
    put(t, WORK + 4, encode("sort4x32lo $a4:5, $a0:1, $a2:3", ISA_WORKER, true));
    put(t, WORK + 8, encode("ld64a32 $a0:3, $m2++, $m3, $m4", ISA_WORKER, true));
    put(t, WORK + 12, encode("sort4x32hi $a6:7, $a0:1, $a2:3", ISA_WORKER, true));
    set(t, 1, 'p', 0, WORK);
    sim_tile_step(t, 1, 1, &stopped);
    ck_assert_uint_eq(get(t, 1, 'a', 0), 0x11111111);
    ck_assert_uint_eq(get(t, 1, 'a', 1), 0x22222222);
    ck_assert_uint_eq(get(t, 1, 'a', 4), 100);
    ck_assert_uint_eq(get(t, 1, 'a', 5), 102);
    sim_tile_step(t, 1, 1, &stopped);
    ck_assert_int_eq(stopped.why, SIM_STOP_STEPS);
    ck_assert_uint_eq(get(t, 1, 'a', 0), 0x11111111); /* left */
    ck_assert_uint_eq(get(t, 1, 'a', 1), 0x55555555);
    ck_assert_uint_eq(get(t, 1, 'a', 2), 0x11111111);
    ck_assert_uint_eq(get(t, 1, 'a', 3), 0x22222222);
    ck_assert_uint_eq(get(t, 1, 'a', 6), 0x22222222);
    ck_assert_uint_eq(get(t, 1, 'a', 7), 103);
    sim_tile_free(t);
}
END_TEST

/* ---- vectors of the processor: the same bits with all, with some and with none of them ------- */

static uint32_t next_random(uint64_t *s) {
    *s = *s * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*s >> 32);
}

/* Round 0: small numbers only; 1: any bits; 2: small numbers, one in 32 any bits. Small as
 * halves, and as singles; quarters have no large ones. */
static uint32_t next_operand(uint64_t *s, uint32_t round, bool is_single) {
    uint32_t bits = next_random(s);

    if (round == 1 || (round == 2 && next_random(s) % 32 == 0)) {
        return bits;
    }
    if (is_single && round == 2 && bits % 16 == 0) {
        return bits & 0x807FFFFF; /* denormal */
    }
    return is_single ? (bits & 0x83FFFFFF) | 0x3C000000 : bits & 0xBBFFBBFF;
}

static void set_random(struct sim_tile *t, uint64_t seed, uint32_t round) {
    uint32_t ctl = round == 1 ? next_random(&seed) & 0x180000 : next_random(&seed) & 0x100000;

    for (int i = 0; i < 8; i++) {
        /* Pair 4:5 serves as singles too. */
        sim_tile_set(t, 1, 'a', i, next_operand(&seed, round, (i & 6) == 4 && seed % 2 == 0), NULL);
    }
    for (int i = 0; i < 32; i++) {
        sim_tile_set(t, 1, 'c', i, next_operand(&seed, round, true), NULL);
    }
    for (int i = 0; i < 64; i++) {
        uint64_t low = next_operand(&seed, round, false);
        sim_tile_set(t, 1, 'w', i, low | (uint64_t)next_operand(&seed, round, false) << 32, NULL);
    }
    sim_tile_set(t, 1, 's', 0x102, ctl, NULL);
    sim_tile_set(t, 1, 's', 0x109, next_random(&seed) & 3, NULL);
    sim_tile_set(t, 1, 's', 0x10A, next_random(&seed) & 63, NULL);
    for (int i = 0; i < 4; i++) {
        sim_tile_set(t, 1, 's', 0x103 + i, next_random(&seed), NULL);
    }
}

static void check_same(struct sim_tile *x, struct sim_tile *y, const char *text, uint64_t seed) {
    static const struct {
        char file;
        int from, to;
    } files[] = {{'a', 0, 8}, {'c', 0, 32}, {'s', 0x100, 0x10B}, {'p', 0, 1}};

    for (size_t k = 0; k < sizeof files / sizeof files[0]; k++) {
        for (int i = files[k].from; i < files[k].to; i++) {
            uint64_t v = 0, w = 0;
            bool is_read = sim_tile_get(x, 1, files[k].file, i, &v, NULL) == 0 &&
                           sim_tile_get(y, 1, files[k].file, i, &w, NULL) == 0;
            if (!is_read || v != w) { /* a check each would be most of the time */
                ck_abort_msg(
                    "%s, state %llu: %c%d is %#llx and %#llx", text, (unsigned long long)seed,
                    files[k].file, i, (unsigned long long)v, (unsigned long long)w);
            }
        }
    }
}

static void compare_levels(const char *text, uint32_t states) {
    struct sim_tile *t[3];

    for (int k = 0; k < 3; k++) {
        struct sim_options options = {.vectors = (enum sim_vectors)k, .trace_tile = -1};
        t[k] = sim_tile_new(&options);
        ck_assert_ptr_nonnull(t[k]);
        put(t[k], SUP, encode(text, ISA_WORKER, false));
    }
    for (uint64_t seed = 0; seed < states; seed++) {
        for (int k = 0; k < 3; k++) {
            struct sim_stopped stopped;
            set_random(t[k], seed * 0x9E3779B97F4A7C15u, (uint32_t)(seed % 3));
            set(t[k], 1, 'p', 0, SUP);
            sim_tile_step(t[k], 1, 1, &stopped);
            ck_assert_int_eq(stopped.why, SIM_STOP_STEPS);
        }
        check_same(t[0], t[1], text, seed);
        check_same(t[0], t[2], text, seed);
    }
    for (int k = 0; k < 3; k++) {
        sim_tile_free(t[k]);
    }
}

START_TEST(vectors_of_the_processor_change_nothing) {
    static const char *const halves[] = {"add", "sub", "mul"};
    static const char *const forms[] = {
        "f16v2%s $a0, $a2, $a4",        "f16v2%s $a0, $a2:BL, $a4",
        "f16v2%s $a0, $a2:BU, $a4",     "f16v4%s $a0:1, $a2:3, $a4:5",
        "f16v4%s $a0:1, $a2:BL, $a4:5", "f16v4%s $a0:1, $a2:BU, $a4:5"};
    static const char *const matrix[] = {
        "f16v4sisoamp $a0:1, $a2:3, $a4:5, %d", "f16v4hihoamp $a0, $a2:3, $a4, %d",
        "f16v4hihov4amp $a0:1, $a2:3, $a4:5, %d", "f8v8hihov4amp $a0:1, $a2:3, $a4:5, %d"};
    char text[80];

    for (int i = 0; i < 18; i++) {
        snprintf(text, sizeof text, forms[i % 6], halves[i / 6]);
        compare_levels(text, 60);
    }
    compare_levels("f16v4cmac $a0:1, $a2:3", 200);
    for (int i = 0; i < 32; i++) { /* engines 3 and 4, all phases */
        snprintf(text, sizeof text, matrix[i / 8], 8 + i % 8);
        compare_levels(text, 60);
    }
}
END_TEST

static Suite *suite(void) {
    Suite *s = suite_create("sim_tile");
    TCase *c = tcase_create("tile");

    tcase_set_timeout(c, 60);
    tcase_add_test(c, supervisor_issue);
    tcase_add_test(c, coefficient_stream_issues_every_cycle);
    tcase_add_test(c, launch_and_sync);
    tcase_add_test(c, lone_worker_uses_one_slot_in_six);
    tcase_add_test(c, consensus_is_the_and_of_all);
    tcase_add_test(c, runall_over_active_workers_is_fatal);
    tcase_add_test(c, worker_latencies);
    tcase_add_test(c, repeat_rules);
    tcase_add_test(c, address_faults);
    tcase_add_test(c, element_conflicts);
    tcase_add_test(c, fetch_conflicts);
    tcase_add_test(c, poison);
    tcase_add_test(c, poison_reads_are_counted);
    tcase_add_test(c, shared_image_is_copied_on_write);
    tcase_add_test(c, stored_code_is_executed);
    tcase_add_test(c, stored_second_half_is_executed);
    tcase_add_test(c, trapping_bundle_commits_nothing);
    tcase_add_test(c, halves_read_the_old_state);
    tcase_add_test(c, slices_do_not_matter);
    tcase_add_test(c, matrix_kernel_shape);
    tcase_add_test(c, crossed_bundles);
    tcase_add_test(c, vectors_of_the_processor_change_nothing);
    tcase_add_test(c, trace_shows_groups_and_faults);
    tcase_add_test(c, chip_events);
    tcase_add_test(c, debug_break_inject_continue);
    tcase_add_test(c, bad_requests_are_refused);
    suite_add_tcase(s, c);
    return s;
}

int main(void) {
    SRunner *r = srunner_create(suite());
    int failed;

    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed == 0 ? 0 : 1;
}
