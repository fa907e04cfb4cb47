/* The simulated device through its register seam, with tiny tile programs: autoloader, barriers,
 * exchange, host packets, marks, debug interface, reports, determinism.
 *
 * Every program is broadcast to all tiles and branches on TILE_ID. `br $m15` ends a tile: a
 * branch to address 0, which counts as completion.
 */
#include <check.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "asm/asm.h"
#include "sim/sim.h"
#include "target/target.h"

#define VECTORS "tests/vectors/exchange-vectors.json"

enum {
    AUTOLDCSR = 0x2068,
    AUTOLDTRGTR = 0x206c,
    AUTOLDDATAR = 0x2070,
    GS1 = 0x302c,
    GS2 = 0x3030,
    DCXCR_WEST = 0x5404,
    DCXCR_EAST = 0x1b804,
    BASE = 0x4c000,
    POLLS = 1000000,
};

static struct ipu_device_ops ops;
static struct err err;

/* ---- registers ------------------------------------------------------------------------------ */

static void open_sim(const struct sim_options *options) {
    ck_assert_msg(sim_device_open(options, &ops, &err) == 0, "%s", err.text);
}

static void close_sim(void) {
    ops.close(ops.self);
}

static uint32_t rd(uint32_t offset) {
    uint32_t value = 0;
    ck_assert_msg(
        ops.read32(ops.self, offset, &value, &err) == 0, "read %#x: %s", offset, err.text);
    return value;
}

static void wr(uint32_t offset, uint32_t value) {
    ck_assert_msg(
        ops.write32(ops.self, offset, value, &err) == 0, "write %#x: %s", offset, err.text);
}

static uint32_t tdi(unsigned tile, unsigned reg) {
    return 0x30000 + tile * 0x40 + reg * 4;
}

static void load_words(const uint32_t *words, uint32_t n) {
    uint32_t kib = (n * 4 + 1023) / 1024;
    wr(AUTOLDCSR, 0);
    for (uint32_t i = 0; i < kib * 256; i++) {
        wr(AUTOLDDATAR, i < n ? words[i] : 0);
    }
    wr(AUTOLDTRGTR, 32u << 20 | kib << 10);
    wr(AUTOLDCSR, 1u << 20 | 1u << 8 | ((kib * 256 - 1) & 0x3f));
    ck_assert_uint_eq(rd(AUTOLDCSR) >> 8 & 1, 0);
    wr(AUTOLDTRGTR, 32u << 20 | 624u << 10 | kib);
    wr(AUTOLDCSR, 1471u << 9 | 1u << 8 | 0x3f);
    ck_assert_uint_eq(rd(AUTOLDCSR) >> 8 & 1, 0);
}

/* Assembles supervisor code for address BASE and starts it on every tile. */
static void boot(const char *text) {
    struct arena arena;
    struct asm_object *object;
    struct asm_image *image;
    struct asm_source source = {"program", text, strlen(text)};
    struct asm_placement place = {".text", BASE, 0x50000};
    arena_init(&arena, 16u << 20);
    ck_assert_int_eq(ARENA_RECOVER(&arena), 0);
    ck_assert_msg(
        asm_assemble(&source, ISA_SUPERVISOR, NULL, 0, &arena, &object, &err) == 0, "%s: %s",
        err.where, err.text);
    ck_assert_msg(
        asm_link(
            (const struct asm_object *const[]){object}, 1, &place, 1, NULL, 0, &arena, &image,
            &err) == 0,
        "%s", err.text);
    ck_assert_uint_eq(image->segment_count, 1);
    uint32_t words[1024] = {0};
    ck_assert_uint_le(image->segments[0].size, sizeof words);
    memcpy(words, image->segments[0].bytes, image->segments[0].size);
    load_words(words, (image->segments[0].size + 3) / 4);
    arena_done(&arena);
}

/* Polls a mark until it is 0; returns the code of the read that failed, 0 otherwise. */
static int wait_mark(uint32_t offset) {
    for (int i = 0; i < POLLS; i++) {
        uint32_t value = 0;
        int code = ops.read32(ops.self, offset, &value, &err);
        if (code != 0 || (value & 0xffff) == 0) {
            return code;
        }
    }
    ck_abort_msg("mark %#x stays set", offset);
    return 0;
}

/* Runs until nothing moves any more. */
static void settle(void) {
    for (int i = 0; i < POLLS; i++) {
        uint64_t before = ops.now_ns(ops.self);
        struct sim_counters a;
        struct sim_counters b;
        sim_device_counters(&ops, &a);
        (void)rd(tdi(0, 0));
        sim_device_counters(&ops, &b);
        if (memcmp(&a, &b, sizeof a) == 0 && ops.now_ns(ops.self) != before) {
            return;
        }
    }
    ck_abort_msg("the chip does not settle");
}

static void inject(unsigned tile, unsigned context, uint32_t word) {
    wr(tdi(tile, 9), 6);
    wr(tdi(tile, 4), context);
    wr(tdi(tile, 3), word);
    ck_assert_msg(
        (rd(tdi(tile, 8)) & 15) == 0, "tile %u context %u word %08x: status %x", tile, context,
        word, rd(tdi(tile, 8)));
}

/* Word of tile memory, by injection into worker 1 (device fact sheet 2.6). */
static uint32_t peek(unsigned tile, uint32_t addr) {
    wr(tdi(tile, 7), addr);
    inject(tile, 1, 0x41010070);
    inject(tile, 1, 0x01f01000);
    inject(tile, 1, 0x43008070);
    return rd(tdi(tile, 7));
}

static void poke(unsigned tile, uint32_t addr, uint32_t value) {
    wr(tdi(tile, 7), addr);
    inject(tile, 1, 0x41010070);
    wr(tdi(tile, 7), value);
    inject(tile, 1, 0x41000070);
    inject(tile, 1, 0x4f10f000);
}

static unsigned state(unsigned tile) {
    return rd(tdi(tile, 0)) & 3;
}

/* ---- start ---------------------------------------------------------------------------------- */

START_TEST(autoload_and_start) {
    open_sim(&(struct sim_options){0});
    boot("get $m0, $TILE_ID\n"
         "setzi $m1, 0x60000\n"
         "st32 $m0, $m1, $m15, 0\n"
         "br $m15\n");
    settle();
    for (unsigned t = 0; t < TARGET_TILES; t += 7) {
        ck_assert_uint_eq(state(t), 3);
        ck_assert_uint_eq(peek(t, 0x60000), t);
        ck_assert_uint_eq(peek(t, 0x60004), 0);
    }
    /* All are complete: no deadlock, no fault, and host time passes while nothing runs. */
    uint64_t before = ops.now_ns(ops.self);
    ck_assert_uint_eq(rd(GS1), 0);
    ck_assert_uint_gt(ops.now_ns(ops.self), before);
    /* After a reset memory is poison again and nothing runs. */
    ck_assert_int_eq(ops.request(ops.self, IPU_RESET_DEVICE, &err), 0);
    ck_assert_uint_eq(state(0), 0);
    ck_assert_uint_ne(peek(0, 0x60000), 0);
    close_sim();
}
END_TEST

START_TEST(plain_registers) {
    open_sim(NULL);
    uint32_t value;
    wr(0x4004, 0x180cc);
    ck_assert_uint_eq(rd(0x4004), 0x180cc);
    wr(0x5400, 0x80000001);
    ck_assert_uint_eq(rd(0x5400), 1);
    wr(0x24400, 0x80000000);
    ck_assert_uint_eq(rd(0x24400), 0);
    wr(0xa400, 0x81000000);
    ck_assert_uint_eq(rd(0xa400), 0x01000000);
    wr(0x404c, 0x80000000);
    ck_assert_uint_eq(rd(0x404c), 0x80000000);
    wr(tdi(1471, 1), 0x40000000);
    ck_assert_uint_eq(rd(tdi(1471, 1)), 0x40000000);
    ck_assert_int_eq(ops.read32(ops.self, 2, &value, &err), -ERR_INVALID);
    ck_assert_int_eq(ops.read32(ops.self, 0x80000, &value, &err), -ERR_INVALID);
    ck_assert_int_eq(ops.write32(ops.self, 0x80000, 0, &err), -ERR_INVALID);
    close_sim();
    ops.close(NULL);
}
END_TEST

START_TEST(driver_calls) {
    static uint8_t page[3 * 4096] __attribute__((aligned(4096)));
    struct ipu_mailbox sent = {{0x4078020e, 0, 0, 0, 0}};
    struct ipu_mailbox got;
    open_sim(NULL);
    ck_assert_int_eq(ops.mailbox(ops.self, &sent, &got, &err), 0);
    ck_assert_uint_eq(got.words[0] >> 16, 0x4078);
    ck_assert_int_eq(ops.attach(ops.self, 0, page, 8192, &err), 0);
    ck_assert_int_eq(ops.attach(ops.self, 1, page, 4096, &err), -ERR_DEVICE_ERROR);
    ck_assert_int_eq(err.sys, EBUSY);
    ck_assert_int_eq(ops.attach(ops.self, 2, page, 0, &err), -ERR_DEVICE_ERROR);
    ck_assert_int_eq(ops.attach(ops.self, 2, page + 4, 4096, &err), -ERR_DEVICE_ERROR);
    ck_assert_int_eq(ops.attach(ops.self, 65535, page, 8192, &err), -ERR_DEVICE_ERROR);
    ck_assert_int_eq(ops.attach(ops.self, 65535, page, 4096, &err), 0);
    ck_assert_int_eq(ops.detach(ops.self, 1, &err), -ERR_DEVICE_ERROR);
    ck_assert_int_eq(err.sys, EINVAL);
    ck_assert_int_eq(ops.detach(ops.self, 0, &err), 0);
    ck_assert_int_eq(ops.detach_all(ops.self, &err), 0);
    ck_assert_int_eq(ops.detach(ops.self, 65535, &err), -ERR_DEVICE_ERROR);
    close_sim();
    /* The third driver call fails, those around it do not. */
    open_sim(&(struct sim_options){.fault = {.kind = SIM_FAULT_REQUEST, .at = 2}});
    ck_assert_int_eq(ops.request(ops.self, IPU_USER_ATTACH, &err), 0);
    ck_assert_int_eq(ops.request(ops.self, IPU_SET_IPU_ID, &err), 0);
    ck_assert_int_eq(ops.request(ops.self, IPU_STOP_MONITORING, &err), -ERR_DEVICE_ERROR);
    ck_assert_int_eq(err.sys, EIO);
    ck_assert_int_eq(ops.mailbox(ops.self, &sent, &got, &err), 0);
    close_sim();
    open_sim(&(struct sim_options){.fault = {.kind = SIM_FAULT_MAILBOX}});
    ck_assert_int_eq(ops.mailbox(ops.self, &sent, &got, &err), 0);
    ck_assert_uint_ne(got.words[0] >> 16, 0x4078);
    close_sim();
}
END_TEST

/* ---- barriers ------------------------------------------------------------------------------- */

#define IDLE_MUX "setzi $m1, 0x640\nput $INCOMING_MUX, $m1\n"
#define HOST_MUX "setzi $m1, 0x600\nput $INCOMING_MUX, $m1\n"

/* Tile 5 abstains from two barriers and then takes part in the third. */
static const char three_barriers[] = IDLE_MUX "get $m0, $TILE_ID\n"
                                              "setzi $m1, 5\n"
                                              "cmpeq $m2, $m0, $m1\n"
                                              "brnz $m2, away\n"
                                              "sync 3\n"
                                              "delay 1000\n"
                                              "sync 3\n"
                                              "bri third\n"
                                              "away:\n"
                                              "sans 1\n"
                                              "sync 1\n"
                                              "third:\n"
                                              "sync 3\n"
                                              "br $m15\n";

START_TEST(barriers_and_abstention) {
    struct sim_counters n;
    open_sim(&(struct sim_options){.sync_release = 500});
    boot(three_barriers);
    settle();
    sim_device_counters(&ops, &n);
    ck_assert_uint_eq(n.barriers, 3);
    ck_assert_uint_eq(state(0), 3);
    ck_assert_uint_eq(state(5), 3);
    /* Three releases and the delay, and little else. */
    ck_assert_uint_ge(n.cycles, 3 * 500 + 1001);
    ck_assert_uint_le(n.cycles, 3 * 500 + 1001 + 60);
    close_sim();
}
END_TEST

START_TEST(missing_barrier) {
    open_sim(
        &(struct sim_options){.fault = {.kind = SIM_FAULT_MISS_BARRIER, .tile = 777, .at = 1}});
    boot(three_barriers);
    settle();
    uint32_t value;
    ck_assert_int_eq(ops.read32(ops.self, GS1, &value, &err), -ERR_DEADLOCK);
    ck_assert_msg(strstr(err.text, "tile 777") != NULL, "%s", err.text);
    ck_assert_msg(strstr(err.text, "1 did not arrive") != NULL, "%s", err.text);
    ck_assert_msg(strstr(err.text, "sync 3") != NULL, "%s", err.text);
    /* Context states can still be read. */
    ck_assert_uint_eq(state(777), 0);
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    sim_device_describe(&ops, out);
    fclose(out);
    ck_assert_msg(strstr(text, "tile 777") != NULL, "%s", text);
    ck_assert_msg(strstr(text, "tile 776") == NULL, "%s", text);
    free(text);
    close_sim();
}
END_TEST

START_TEST(mixed_zones_deadlock) {
    open_sim(NULL);
    boot(HOST_MUX "get $m0, $TILE_ID\n"
                  "brnz $m0, rest\n"
                  "sync 7\n"
                  "rest:\n"
                  "sync 3\n"
                  "br $m15\n");
    settle();
    uint32_t value;
    ck_assert_int_eq(ops.read32(ops.self, GS2, &value, &err), -ERR_DEADLOCK);
    ck_assert_msg(strstr(err.text, "tile 0 waiting in sync 7") != NULL, "%s", err.text);
    close_sim();
}
END_TEST

static void expect_fault(const char *program, const char *what) {
    uint32_t value;
    open_sim(NULL);
    boot(program);
    settle();
    ck_assert_int_eq(ops.read32(ops.self, GS1, &value, &err), -ERR_TILE_FAULT);
    ck_assert_msg(strstr(err.text, what) != NULL, "%s", err.text);
    ck_assert_msg(strstr(err.text, "tile 9 context 0 pc 0x4c0") != NULL, "%s", err.text);
    ck_assert_uint_eq(state(9), 3);
    close_sim();
}

#define ON_TILE_9(code)                                                                            \
    IDLE_MUX                                                                                       \
    "get $m0, $TILE_ID\n"                                                                          \
    "cmpeq $m2, $m0, 9\n"                                                                          \
    "brz $m2, rest\n" code "rest:\n"                                                               \
    "sync 3\n"                                                                                     \
    "br $m15\n"

START_TEST(faults) {
    expect_fault(ON_TILE_9("st32 $m0, $m15, $m15, 0\n"), "INVALID_ADDR");
    expect_fault(ON_TILE_9("sync 7\n"), "EXCONF");
    expect_fault(ON_TILE_9("sync 9\n"), "no such zone");
    expect_fault(ON_TILE_9("send 0, 0x60000 / 4, 3\n"), "outside an exchange phase");
    expect_fault(ON_TILE_9("sans 0x7ffff\n"), "abstention");
    expect_fault(ON_TILE_9("sans 0\nsync 3\n"), "abstention is active");
}
END_TEST

/* ---- exchange ------------------------------------------------------------------------------- */

/* Waits at a host barrier so that rows and data can be written, then runs one phase whose row
 * lies at 0x50000; INCOMING_BASE comes from 0x60000. */
static const char one_phase[] = HOST_MUX "setzi $m1, 0x50000\n"
                                         "setzi $m2, 0\n"
                                         "or $m2, $m2, 0x43a00000\n"
                                         "st32 $m2, $m1, $m15, 0\n"
                                         "sync 7\n" IDLE_MUX "setzi $m1, 0x60000\n"
                                         "ld32 $m2, $m1, $m15, 0\n"
                                         "put $INCOMING_BASE, $m2\n"
                                         "put $OUTGOING_BASE, $m15\n"
                                         "setzi $m6, 0\n"
                                         "sync 3\n"
                                         "call $m10, 0x50000\n"
                                         "sync 3\n"
                                         "br $m15\n";

static unsigned physical(json_int_t logical) {
    return target_physical((struct logical_tile){(uint16_t)logical}).n;
}

static uint32_t tag(unsigned tile, uint32_t addr) {
    return tile << 20 | addr;
}

static void write_rows(const json_t *item) {
    const char *tile;
    json_t *words;
    json_object_foreach(json_object_get(item, "rows"), tile, words) {
        for (uint32_t i = 0; i < json_array_size(words); i++) {
            poke(
                physical(atoi(tile)), 0x50000 + 4 * i,
                (uint32_t)strtoul(json_string_value(json_array_get(words, i)), NULL, 16));
        }
        poke(
            physical(atoi(tile)), 0x60000,
            (uint32_t)json_integer_value(
                json_object_get(json_object_get(item, "incoming_base"), tile)));
    }
}

static uint32_t field(const json_t *item, const char *name) {
    return (uint32_t)json_integer_value(json_object_get(item, name));
}

/* Expected memory, by playing the transfers in list order on a sparse model. */
struct word {
    unsigned tile;
    uint32_t addr;
    uint32_t value;
};
static struct word model[40000];
static size_t model_words;

static uint32_t *model_at(unsigned tile, uint32_t addr) {
    for (size_t i = 0; i < model_words; i++) {
        if (model[i].tile == tile && model[i].addr == addr) {
            return &model[i].value;
        }
    }
    ck_assert_uint_lt(model_words, sizeof model / sizeof model[0]);
    model[model_words] = (struct word){tile, addr, 0};
    return &model[model_words++].value;
}

static void
run_vector(const json_t *item, const struct sim_options *options, struct sim_counters *ret) {
    json_t *transfers = json_object_get(item, "transfers");
    size_t t;
    json_t *transfer;
    open_sim(options);
    boot(one_phase);
    settle(); /* a mark of 0 does not say that the tiles have arrived */
    model_words = 0;
    write_rows(item);
    json_array_foreach(transfers, t, transfer) {
        unsigned s = physical(json_integer_value(json_object_get(transfer, "src")));
        for (uint32_t k = 0; k < field(transfer, "words"); k++) {
            uint32_t addr = field(transfer, "src_addr") + 4 * k;
            *model_at(s, addr) = tag(s, addr);
            poke(s, addr, tag(s, addr));
        }
    }
    json_array_foreach(transfers, t, transfer) {
        unsigned s = physical(json_integer_value(json_object_get(transfer, "src")));
        json_t *dests = json_object_get(transfer, "dests");
        for (uint32_t k = 0; k < field(transfer, "words"); k++) {
            uint32_t value = *model_at(s, field(transfer, "src_addr") + 4 * k);
            for (size_t d = 0; d < json_array_size(dests); d++) {
                json_t *dest = json_array_get(dests, d);
                *model_at(
                    physical(json_integer_value(json_array_get(dest, 0))),
                    (uint32_t)json_integer_value(json_array_get(dest, 1)) + 4 * k) = value;
            }
        }
    }
    wr(GS2, 1);
    settle();
    ck_assert_msg(
        wait_mark(GS1) == 0, "%s: %s", json_string_value(json_object_get(item, "id")), err.text);
    for (size_t i = 0; i < model_words; i++) {
        uint32_t got = peek(model[i].tile, model[i].addr);
        ck_assert_msg(
            got == model[i].value, "%s: tile %u %#x: %08x, want %08x",
            json_string_value(json_object_get(item, "id")), model[i].tile, model[i].addr, got,
            model[i].value);
    }
    sim_device_counters(&ops, ret);
    close_sim();
}

static json_t *find_vector(const json_t *vectors, const char *section, const char *id) {
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(vectors, section), i, item) {
        if (strcmp(json_string_value(json_object_get(item, "id")), id) == 0) {
            return item;
        }
    }
    ck_abort_msg("no vector %s", id);
    return NULL;
}

START_TEST(phases_on_the_chip) {
    static const char *const ids[][2] = {
        {"phases", "point-000"},
        {"phases", "multicast-001"},
        {"phases", "paired_seq-000"},
        {"phases", "loopback-003"},
        {"phases", "duplex-008"},
        {"schedules", "schedule_relay-000"},
        {"schedules", "schedule_hazard-003"},
        {"base_switch", "base_switch-000"},
    };
    json_error_t error;
    json_t *vectors = json_load_file(VECTORS, 0, &error);
    ck_assert_msg(vectors != NULL, "%s", error.text);
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        struct sim_counters n;
        run_vector(find_vector(vectors, ids[i][0], ids[i][1]), &(struct sim_options){0}, &n);
        ck_assert_uint_eq(n.barriers, 3);
        ck_assert_uint_gt(n.exchange_words, 0);
    }
    json_decref(vectors);
}
END_TEST

/* Seven words from tile 0 to tile 2 (exchange fact sheet E3), into the element of the row. */
START_TEST(receive_error_is_reported) {
    static const uint32_t send[] = {0x40a0001b, 0x78cc8021, 0x43a00000};
    static const uint32_t take[] = {0x64000000, 0x64018640, 0x61614040, 0x40a0000b, 0x43a00000};
    open_sim(NULL);
    boot(one_phase);
    settle();
    for (uint32_t i = 0; i < 7; i++) {
        poke(0, 0x64000 + 4 * i, i);
    }
    for (uint32_t i = 0; i < 3; i++) {
        poke(0, 0x50000 + 4 * i, send[i]);
    }
    for (uint32_t i = 0; i < 5; i++) {
        poke(2, 0x50000 + 4 * i, take[i]);
    }
    wr(GS2, 1);
    settle();
    uint32_t value;
    ck_assert_int_eq(ops.read32(ops.self, GS1, &value, &err), -ERR_TILE_FAULT);
    ck_assert_msg(strstr(err.text, "tile 2 context 0") != NULL, "%s", err.text);
    ck_assert_msg(strstr(err.text, "EXERR") != NULL, "%s", err.text);
    ck_assert_uint_eq(state(2), 3);
    ck_assert_uint_eq(rd(tdi(2, 0)) >> 27, 8 + 2); /* EERR, CLASH_IFETCH */
    ck_assert_uint_eq(rd(tdi(0, 0)) >> 27, 0);
    wr(tdi(2, 6), 1);
    ck_assert_uint_eq(rd(tdi(2, 0)) >> 27, 0);
    close_sim();
}
END_TEST

START_TEST(same_with_any_threads_and_slices) {
    static const struct sim_options options[] = {
        {.threads = 1},
        {.threads = 2},
        {.threads = 1, .slice_cycles = 1000},
        {.threads = 2, .slice_cycles = 100},
    };
    json_error_t error;
    json_t *vectors = json_load_file(VECTORS, 0, &error);
    ck_assert_msg(vectors != NULL, "%s", error.text);
    struct sim_counters n[4];
    for (size_t i = 0; i < 4; i++) {
        run_vector(find_vector(vectors, "schedules", "schedule_relay-000"), &options[i], &n[i]);
        ck_assert_mem_eq(&n[i], &n[0], sizeof n[i]);
    }
    json_decref(vectors);
}
END_TEST

/* ---- host packets --------------------------------------------------------------------------- */

/* Tile 260 (owner 4) reads 64 bytes from host 0x40 to 0x50120, then writes them to host 0x80 and
 * closes: packets of the device fact sheet 6.7. GRANT is the owner's instruction. */
#define HOST_PROGRAM(grant)                                                                        \
    HOST_MUX                                                                                       \
    "get $m0, $TILE_ID\n"                                                                          \
    "sync 7\n"                                                                                     \
    "cmpeq $m2, $m0, 4\n"                                                                          \
    "brnz $m2, owner\n"                                                                            \
    "cmpeq $m2, $m0, 260\n"                                                                        \
    "brnz $m2, target\n"                                                                           \
    "sans 3\n"                                                                                     \
    "sync 1\n"                                                                                     \
    "br $m15\n"                                                                                    \
    "owner:\n"                                                                                     \
    "setzi $m1, 0x604\n"                                                                           \
    "put $INCOMING_MUX, $m1\n"                                                                     \
    "sync 15\n" grant "sync 7\n"                                                                   \
    "sync 15\n" grant "sync 7\n"                                                                   \
    "br $m15\n"                                                                                    \
    "target:\n"                                                                                    \
    "setzi $m1, 0x604\n"                                                                           \
    "put $INCOMING_MUX, $m1\n"                                                                     \
    "sync 7\n"                                                                                     \
    "setzi $m1, 16\n"                                                                              \
    "put $INCOMING_DCOUNT, $m1\n"                                                                  \
    "send 1, read / 4, 3\n"                                                                        \
    "sync 0\n"                                                                                     \
    "sync 7\n"                                                                                     \
    "sync 7\n"                                                                                     \
    "setzi $m1, 1\n"                                                                               \
    "put $INCOMING_DCOUNT, $m1\n"                                                                  \
    "send 1, write / 4, 3\n"                                                                       \
    "send 15, 0x50120 / 4, 3\n"                                                                    \
    "delay 1\n"                                                                                    \
    "send 1, close / 4, 3\n"                                                                       \
    "sync 0\n"                                                                                     \
    "sync 7\n"                                                                                     \
    "br $m15\n"                                                                                    \
    ".p2align 3\n"                                                                                 \
    "xreq: .long 0x00000100, 0\n"                                                                  \
    "read: .long 0xec820209, 0x00000011\n"                                                         \
    "write: .long 0xa0820000, 0x00000021\n"                                                        \
    "close: .long 0xcc82020c, 0x00000000\n"

static uint8_t host_page[4096] __attribute__((aligned(4096)));

static void start_host_program(bool attached, const char *program) {
    open_sim(NULL);
    if (attached) {
        ck_assert_int_eq(ops.attach(ops.self, 0, host_page, 4096, &err), 0);
    }
    boot(program);
    wr(GS2, 1); /* leave the startup barrier */
    ck_assert_int_eq(wait_mark(GS2), 0);
    wr(GS2, 1); /* entry */
}

START_TEST(host_read_and_write) {
    struct sim_counters n;
    for (size_t i = 0; i < sizeof host_page; i++) {
        host_page[i] = (uint8_t)(i < 0x80 ? i * 7 : 0);
    }
    start_host_program(true, HOST_PROGRAM("send 1, xreq / 4, 3\n"));
    ck_assert_int_eq(wait_mark(GS2), 0); /* at the exit of the read */
    for (uint32_t i = 0; i < 16; i++) {
        uint32_t want;
        memcpy(&want, host_page + 0x40 + 4 * i, 4);
        ck_assert_uint_eq(peek(260, 0x50120 + 4 * i), want);
    }
    ck_assert_uint_eq(host_page[0x80], 0);
    wr(GS2, 1); /* exit */
    ck_assert_int_eq(wait_mark(GS2), 0);
    wr(GS2, 1); /* entry of the write */
    ck_assert_int_eq(wait_mark(GS2), 0);
    ck_assert_mem_eq(host_page + 0x80, host_page + 0x40, 64);
    wr(GS2, 1);
    settle();
    ck_assert_uint_eq(state(260), 3);
    ck_assert_uint_eq(state(0), 3);
    sim_device_counters(&ops, &n);
    ck_assert_uint_eq(n.host_words, 16 + 16 + 1);
    ck_assert_uint_eq(n.barriers, 5);
    close_sim();
}
END_TEST

static void expect_hang(const char *what) {
    uint32_t value;
    settle();
    ck_assert_int_eq(ops.read32(ops.self, GS2, &value, &err), -ERR_DEADLOCK);
    ck_assert_msg(strstr(err.text, "tile 260") != NULL, "%s", err.text);
    ck_assert_msg(strstr(err.text, what) != NULL, "%s", err.text);
    close_sim();
}

START_TEST(host_packets_that_hang) {
    start_host_program(false, HOST_PROGRAM("send 1, xreq / 4, 3\n"));
    expect_hang("host page 0 is not attached");
    start_host_program(true, HOST_PROGRAM("nop\n"));
    expect_hang("without a grant of owner 4");
    /* Context of owner 4: block 0, third identifier. */
    open_sim(NULL);
    ck_assert_int_eq(ops.attach(ops.self, 0, host_page, 4096, &err), 0);
    wr(DCXCR_WEST, 0x07fffffa);
    wr(DCXCR_EAST, 0x07fffffa);
    boot(HOST_PROGRAM("send 1, xreq / 4, 3\n"));
    wr(GS2, 1);
    ck_assert_int_eq(wait_mark(GS2), 0);
    wr(GS2, 1);
    expect_hang("is not routed");
}
END_TEST

/* ---- marks ---------------------------------------------------------------------------------- */

/* Counts the barriers it has passed, in 0x60000. */
static const char many_marks[] = HOST_MUX "setzi $m1, 0x60000\n"
                                          "setzi $m2, 0\n"
                                          "again:\n"
                                          "st32 $m2, $m1, $m15, 0\n"
                                          "sync 7\n"
                                          "add $m2, $m2, 1\n"
                                          "bri again\n";

START_TEST(mark_model_a) {
    open_sim(NULL);
    boot(many_marks);
    settle();
    ck_assert_uint_eq(peek(3, 0x60000), 0);
    wr(GS2, 1);
    ck_assert_int_eq(wait_mark(GS2), 0);
    ck_assert_uint_eq(peek(3, 0x60000), 1);
    wr(GS2, 3); /* the held one and two more */
    ck_assert_int_eq(wait_mark(GS2), 0);
    ck_assert_uint_eq(peek(3, 0x60000), 4);
    wr(GS1, 5); /* another group: nothing moves */
    settle();
    ck_assert_uint_eq(rd(GS1), 5);
    ck_assert_uint_eq(peek(3, 0x60000), 4);
    wr(GS1, 6);
    struct sim_counters n;
    sim_device_counters(&ops, &n);
    ck_assert_uint_eq(n.mark_overwrites, 1);
    wr(GS2, 0);
    settle();
    ck_assert_uint_eq(peek(3, 0x60000), 4);
    close_sim();
}
END_TEST

START_TEST(mark_model_c) {
    open_sim(&(struct sim_options){.model_c = true});
    boot(many_marks);
    settle();
    wr(GS2, 1);
    settle();
    ck_assert_uint_eq(rd(GS2), 0);
    ck_assert_uint_eq(peek(3, 0x60000), 1);
    wr(GS2, 3);
    settle();
    ck_assert_uint_eq(rd(GS2), 0);
    ck_assert_uint_eq(peek(3, 0x60000), 4);
    close_sim();
}
END_TEST

START_TEST(mark_before_arrival) {
    /* Applied at once, the arrival consumes the mark; else it waits for the arrival. */
    open_sim(&(struct sim_options){.race_marks = true, .slice_cycles = 1});
    boot(many_marks);
    wr(GS2, 1);
    ck_assert_int_eq(wait_mark(GS2), 0);
    ck_assert_uint_eq(peek(3, 0x60000), 0);
    close_sim();
    open_sim(&(struct sim_options){.slice_cycles = 1});
    boot(many_marks);
    wr(GS2, 1);
    ck_assert_int_eq(wait_mark(GS2), 0);
    ck_assert_uint_eq(peek(3, 0x60000), 1);
    close_sim();
}
END_TEST

/* ---- debug interface ------------------------------------------------------------------------ */

START_TEST(debug_stop_and_resume) {
    open_sim(&(struct sim_options){.slice_cycles = 600});
    boot("setzi $m1, 0x60000\n"
         "again:\n"
         "add $m2, $m2, 1\n"
         "st32 $m2, $m1, $m15, 0\n"
         "bri again\n");
    ck_assert_uint_eq(state(8), 1);
    /* A running context refuses injection. */
    wr(tdi(8, 4), 0);
    wr(tdi(8, 3), 0x41000000);
    ck_assert_uint_eq(rd(tdi(8, 8)) & 15, 1);
    wr(tdi(8, 9), 7);
    ck_assert_uint_eq(rd(tdi(8, 8)) & 15, 0);
    wr(tdi(8, 1), 1);
    ck_assert_uint_eq(state(8), 2);
    ck_assert_uint_eq(state(9), 1);
    uint32_t stopped = peek(8, 0x60000);
    ck_assert_uint_eq(state(8), 2);
    ck_assert_uint_eq(peek(8, 0x60000), stopped);
    poke(8, 0x60004, 0x12345678);
    ck_assert_uint_eq(peek(8, 0x60004), 0x12345678);
    /* SSR of the stopped supervisor: type 1, RBRK. */
    inject(8, 0, 0x41000001);
    inject(8, 0, 0x43008070);
    ck_assert_uint_eq(rd(tdi(8, 7)) >> 4 & 15, 1);
    /* No instruction of the unit. */
    wr(tdi(8, 3), 0x7fffffff & 0x40000000);
    ck_assert_uint_eq(rd(tdi(8, 8)) & 2, 2);
    wr(tdi(8, 1), 0);
    wr(tdi(8, 6), 1);
    ck_assert_uint_eq(state(8), 1);
    ck_assert_uint_gt(peek(8, 0x60000), stopped);
    close_sim();
}
END_TEST

static uint32_t supervisor_csr(unsigned tile, unsigned number) {
    inject(tile, 0, 0x41000000 | number);
    inject(tile, 0, 0x43008070);
    return rd(tdi(tile, 7));
}

START_TEST(break_on_sync) {
    open_sim(&(struct sim_options){0});
    for (unsigned t = 0; t < TARGET_TILES; t++) {
        wr(tdi(t, 5), t == 8 ? 0x20 : 0);
    }
    boot("sync 3\n"
         "sync 2\n"
         "setzi $m1, 0x60000\n"
         "st32 $m1, $m1, $m15, 0\n"
         "sync 3\n"
         "br $m15\n");
    settle();
    ck_assert_uint_eq(state(8), 2);
    ck_assert_uint_eq(supervisor_csr(8, 1) >> 4 & 15, 4);
    ck_assert_uint_eq(supervisor_csr(8, 0), BASE); /* at the sync, not past it */
    ck_assert_uint_eq(state(9), 0);
    uint32_t value; /* the others wait for a tile that the host has stopped: no deadlock */
    ck_assert_int_eq(ops.read32(ops.self, GS1, &value, &err), 0);
    wr(tdi(8, 6), 1);
    settle();
    ck_assert_uint_eq(state(8), 2); /* zone 2 counts too */
    ck_assert_uint_eq(supervisor_csr(8, 0), BASE + 4);
    ck_assert_uint_eq(peek(9, 0x60000), 0x60000);
    wr(tdi(8, 5), 0);
    wr(tdi(8, 6), 1);
    settle();
    for (unsigned t = 7; t < 10; t++) {
        ck_assert_uint_eq(state(t), 3); /* complete */
    }
    close_sim();
}
END_TEST

START_TEST(injection_into_a_waiting_supervisor) {
    for (int allowed = 0; allowed < 2; allowed++) {
        open_sim(&(struct sim_options){
            .inject_waiting = allowed != 0, .fault = {.kind = SIM_FAULT_MISS_BARRIER, .tile = 5}});
        boot("setzi $m0, 77\n"
             "sync 3\n"
             "br $m15\n");
        settle();
        for (unsigned stop = 0; stop < 2; stop++) {
            wr(tdi(8, 1), stop); /* the stop must have been asked for */
            wr(tdi(8, 9), 7);
            wr(tdi(8, 4), 0);
            wr(tdi(8, 3), 0x43008070);
            bool is_taken = allowed != 0 && stop == 1;
            ck_assert_uint_eq(rd(tdi(8, 8)) & 15, is_taken ? 0 : 1);
            ck_assert_uint_eq(rd(tdi(8, 7)), is_taken ? 77 : 0);
            ck_assert_uint_eq(state(8), 0);
        }
        close_sim();
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("sim_chip");
    TCase *t = tcase_create("chip");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, autoload_and_start);
    tcase_add_test(t, break_on_sync);
    tcase_add_test(t, injection_into_a_waiting_supervisor);
    tcase_add_test(t, plain_registers);
    tcase_add_test(t, driver_calls);
    tcase_add_test(t, barriers_and_abstention);
    tcase_add_test(t, missing_barrier);
    tcase_add_test(t, mixed_zones_deadlock);
    tcase_add_test(t, faults);
    tcase_add_test(t, phases_on_the_chip);
    tcase_add_test(t, receive_error_is_reported);
    tcase_add_test(t, same_with_any_threads_and_slices);
    tcase_add_test(t, host_read_and_write);
    tcase_add_test(t, host_packets_that_hang);
    tcase_add_test(t, mark_model_a);
    tcase_add_test(t, mark_model_c);
    tcase_add_test(t, mark_before_arrival);
    tcase_add_test(t, debug_stop_and_resume);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
