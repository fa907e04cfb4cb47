/* Programs that go wrong, on the simulated chip through the same calls a job makes: each ends in
 * its documented code, its post-mortem names tile, phase and cause, and the next load and run on
 * the same device work. Every tile has the same text and branches on TILE_ID.
 *
 *     test_faults --package NAME FILE    writes the package of a scenario, prints its digest: for
 *                                        tests that hand it to a daemon
 *                                        (tests/e2e/daemon-tiles.sh) */
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/bytes.h"
#include "device/device_internal.h"
#include "runtime/runtime.h"
#include "sim/sim.h"

#define VICTIM     5 /* does something wrong in most scenarios */
#define SENDER     0 /* of the exchange, seven words to RECEIVER */
#define RECEIVER   2
#define DESCRIPTOR (RT_TABLES_USER + 0)
#define LIMIT_NS   20000000ull
#define MAX_CPU_S  1.0 /* of the failing run, in a release build: wall time is the load's too */

static char dir[64];
static char lock_path[96];

static void setup(void) {
    strcpy(dir, "/tmp/ipud-test-faults-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(lock_path, sizeof lock_path, "%s/lock", dir);
}

static void teardown(void) {
    unlink(lock_path);
    rmdir(dir);
}

/* ---- packages by hand ----------------------------------------------------------------------- */

/* One run: a host phase without transfers, the body, another host phase. */
static const char frame[] =
    ".supervisor\n.globl program\nprogram:\n"
    "    setzi $m2, DESCRIPTOR\n    call $m10, rt_host_in\n"
    "    get $m0, $TILE_ID\n"
    "    cmpeq $m3, $m0, VICTIM\n"
    "    cmpeq $m4, $m0, RECEIVER\n"
    "    cmpeq $m5, $m0, SENDER\n"
    "%s\n.supervisor\n"
    "finish:\n"
    "    setzi $m2, DESCRIPTOR\n    call $m10, rt_host_out\n    bri program\n"
    "%s\n";

/* The boundary of an exchange phase, the same number of instructions on each tile. */
#define PHASE(row)                                                                                 \
    "    put $INCOMING_BASE, $m15\n    put $OUTGOING_BASE, $m15\n    setzi $m8, 1\n"               \
    "    put $INCOMING_DCOUNT, $m8\n    sync 3\n    call $m10, " row "\n    bri finish\n"
#define EXCHANGE                                                                                   \
    "    brnz $m4, take\n    brnz $m5, give\n" PHASE("row_idle") "take:\n" PHASE(                  \
        "row_take") "give:\n" PHASE("row_send")
/* Times of exchange fact sheet E3; to: word address, sctl: 1 = 32-bit items east, 5 = 64-bit. */
#define ROWS(to, sctl)                                                                             \
    ".globl row_idle\n.globl row_take\n.globl row_send\n.p2align 3\n"                              \
    "row_idle:\n    br $m10\n"                                                                     \
    "row_take:\n    delayxpic 0, 0, 0\n    delayxpic 6, 0, 1600\n    delaypic 44, 0, " to "\n"     \
    "    delay 11\n    br $m10\n"                                                                  \
    "row_send:\n    delay 27\n    send 6, 0x64000 / 4, " sctl "\n    br $m10\n"

struct scenario {
    const char *name;
    const char *body, *behind; /* text in the frame */
    int code;
    const char *verdict;
    int tile;              /* named first */
    const char *exception; /* NULL: none */
    const char *receive;   /* receive error, NULL: none */
    const char *phase;     /* NULL: none is named */
    const char *symbol;    /* where */
    const char *text;      /* in the error's text */
};

static const struct scenario scenarios[] = {
    {"missed sync", "    brnz $m3, finish\n    sync 3\n", "", ERR_DEADLOCK, "deadlock", VICTIM,
     NULL, NULL, NULL, "rt_host_out", "in sync 7"},
    {"width of a transfer", EXCHANGE, ROWS("0x64000 / 4", "5"), ERR_TILE_FAULT, "fault", RECEIVER,
     "EXERR", "CONF", "row.0", "program", "receive error CONF"},
    {"row beside its data", EXCHANGE, ROWS("0x4f000 / 4", "1"), ERR_TILE_FAULT, "fault", RECEIVER,
     "EXERR", "CLASH_IFETCH", "row.0", "program", "after row.0"},
    {"store to a bad address", "    brz $m3, finish\n    st32 $m0, $m15, $m15, 4\n", "",
     ERR_TILE_FAULT, "fault", VICTIM, "INVALID_ADDR", NULL, NULL, "program", "INVALID_ADDR"},
    {"floating point",
     "    brz $m3, finish\n    setzi $m6, 2\n    put $FP_ICTL, $m6\n    setzi $m6, divides\n"
     "    run $m6, $m15, 0\n    sync 2\n",
     ".worker\n.globl divides\n.p2align 3\ndivides:\n    f32oorx $a0, $azero\n    exitz $m15\n",
     ERR_TILE_FAULT, "fault", VICTIM, "FP", NULL, NULL, "divides", "worker 0"},
    {"trap", "    brz $m3, finish\n    trap 1\n", "", ERR_TILE_FAULT, "fault", VICTIM, "PBRK1",
     NULL, NULL, "program", "PBRK1"},
    {"endless loop", "    brz $m3, finish\nagain:\n    bri again\n", "", ERR_RUN_TIMEOUT, "running",
     VICTIM, NULL, NULL, NULL, "program", "run, first tile 5"},
    {"endless worker",
     "    brz $m3, finish\n    setzi $m6, again\n    run $m6, $m15, 0\n    sync 2\n",
     ".worker\n.globl again\nagain:\n    bri again\n", ERR_RUN_TIMEOUT, "running", VICTIM, NULL,
     NULL, NULL, "again", "run, first tile 5"},
    {"program that ends", "    brnz $m3, ends\n    sync 3\n    bri finish\nends:\n    br $m15\n",
     "", ERR_DEADLOCK, "deadlock", VICTIM, NULL, NULL, NULL, NULL, "has ended"},
};

static const struct scenario good = {
    "exchange", EXCHANGE, ROWS("0x64000 / 4", "1"), 0, NULL, 0, NULL, NULL, NULL, NULL, NULL};

struct built { /* a package for all tiles, in an arena */
    struct arena arena;
    struct package p;
    struct package_content contents[2];
    struct package_segment segments[2 * TARGET_TILES];
    struct package_phase phases[2];
    struct package_symbol symbols[64];
};

static const struct asm_image *assemble(struct built *b, const struct scenario *s) {
    static const struct asm_def defs[] = {
        {"DESCRIPTOR", DESCRIPTOR}, {"VICTIM", VICTIM}, {"SENDER", SENDER}, {"RECEIVER", RECEIVER}};
    struct err err = {0};
    char text[8192];
    snprintf(text, sizeof text, frame, s->body, s->behind);
    struct asm_source source = {s->name, text, strlen(text)};
    struct asm_object *objects[2];
    struct asm_image *image = NULL;
    struct asm_placement place = {".text", RT_TEXT_BASE, RT_TEXT_LIMIT};
    ck_assert_int_eq(runtime_assemble(&b->arena, &objects[0], &err), 0);
    int r = asm_assemble(&source, ISA_SUPERVISOR, defs, 4, &b->arena, &objects[1], &err);
    ck_assert_msg(r == 0, "%s: %s %s", s->name, err.where, err.text);
    r = asm_link(
        (const struct asm_object *const *)objects, 2, &place, 1, NULL, 0, &b->arena, &image, &err);
    ck_assert_msg(r == 0, "%s: %s %s", s->name, err.where, err.text);
    ck_assert_uint_eq(image->segment_count, 1);
    return image;
}

static int by_address(const void *a, const void *b) {
    const struct package_symbol *x = a, *y = b;
    if (x->tile != y->tile) {
        return x->tile < y->tile ? -1 : 1;
    }
    return x->addr < y->addr ? -1 : x->addr > y->addr;
}

/* Symbols as the compiler makes them: rows belong to their tile and are called row.N. */
static void add_symbols(struct built *b, const struct asm_image *image) {
    uint32_t end = image->segments[0].addr + image->segments[0].size;
    uint32_t n = 0;
    for (size_t i = 0; i < image->symbol_count; i++) {
        const struct asm_symbol *s = &image->symbols[i];
        bool is_take = strcmp(s->name, "row_take") == 0, is_send = strcmp(s->name, "row_send") == 0;
        bool is_row = is_take || is_send || strcmp(s->name, "row_idle") == 0;
        uint32_t next = end;
        for (size_t k = 0; k < image->symbol_count; k++) {
            uint32_t addr = image->symbols[k].addr;
            next = addr > s->addr && addr < next ? addr : next;
        }
        ck_assert_uint_lt(n, 64);
        b->symbols[n++] = (struct package_symbol){
            is_take   ? RECEIVER
            : is_send ? SENDER
                      : -1,
            s->addr, next - s->addr, is_row ? "row.0" : s->name};
    }
    qsort(b->symbols, n, sizeof b->symbols[0], by_address);
    b->p.symbols = b->symbols;
    b->p.symbol_count = n;
}

static struct built *build(const struct scenario *s) {
    struct built *b = calloc(1, sizeof *b);
    arena_init(&b->arena, 64u << 20);
    const struct asm_image *image = assemble(b, s);
    static uint8_t tables[64];
    uint32_t program = 0;
    ck_assert_int_eq(asm_image_symbol(image, "program", &program, NULL), 0);
    memset(tables, 0, sizeof tables);
    store_le32(tables, program);
    b->contents[0] = (struct package_content){image->segments[0].bytes, image->segments[0].size};
    b->contents[1] = (struct package_content){tables, sizeof tables};
    for (uint32_t i = 0; i < TARGET_TILES; i++) {
        struct physical_tile tile = {(uint16_t)i};
        b->segments[2 * i] = (struct package_segment){tile, RT_TEXT_BASE, 0};
        b->segments[2 * i + 1] = (struct package_segment){tile, RT_TABLES, 1};
    }
    b->phases[0] = (struct package_phase){PACKAGE_RUN, 0, false};
    b->phases[1] = (struct package_phase){PACKAGE_RUN, 1, true};
    static const char zeros[] = "0000000000000000000000000000000000000000000000000000000000000000";
    b->p = (struct package){
        .target = TARGET_NAME,
        .compiler_id = zeros,
        .key = zeros,
        .options = "{}",
        .compute_tiles = TARGET_TILES,
        .contents = b->contents,
        .content_count = 2,
        .segments = b->segments,
        .segment_count = 2 * TARGET_TILES,
        .phases = b->phases,
        .phase_count = 2};
    add_symbols(b, image);
    return b;
}

static void built_free(struct built *b) {
    arena_done(&b->arena);
    free(b);
}

/* ---- runs ----------------------------------------------------------------------------------- */

static int open_sim(const char *spec, void *arg, struct ipu_device_ops *ret, struct err *err) {
    (void)spec;
    return sim_device_open(arg, ret, err);
}

static struct device *open_device(struct sim_options *sim) {
    struct device_options options = {
        .spec = "sim",
        .lock_path = lock_path,
        .no_wait = true,
        .open_ops = open_sim,
        .open_arg = sim};
    struct device *d = NULL;
    struct err err = {0};
    ck_assert_msg(device_open(&options, &d, &err) == 0, "%s", err.text);
    return d;
}

static int load_and_run(
    struct device *d, const struct scenario *s, uint8_t number, double *ret_s, struct err *err) {
    struct built *b = build(s);
    struct digest digest = {{number}};
    struct device_run_report report;
    struct timespec start, end;
    bool loaded = false;
    int r = device_load(d, &b->p, NULL, 0, &digest, NULL, NULL, &loaded, err);
    ck_assert_msg(r == 0, "%s: load: %s", s->name, err->text);
    built_free(b); /* the device has its own copy */
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &start);
    const uint8_t *no_inputs[1] = {NULL};
    r = device_run(d, no_inputs, 2, NULL, NULL, LIMIT_NS, &report, err);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
    *ret_s = (double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec);
    return r;
}

static const char *text_of(const json_t *o, const char *name) {
    return json_string_value(json_object_get(o, name));
}

static void
expect_text(const char *what, const char *expected, const char *found, const char *all) {
    bool same = expected == NULL ? found == NULL : found != NULL && strcmp(expected, found) == 0;
    ck_assert_msg(
        same, "%s: %s, expected %s\n%s", what, found != NULL ? found : "none",
        expected != NULL ? expected : "none", all);
}

static int count_of(const json_t *o, const char *list) {
    return (int)json_array_size(json_object_get(o, list));
}

/* The list that names the tile of this scenario: exceptions, those running, or those missing. */
static void check_named(const struct scenario *s, const json_t *o, const char *all) {
    const char *list = s->exception != NULL                 ? "exceptions"
                       : strcmp(s->verdict, "running") == 0 ? "running"
                                                            : "missing";
    const json_t *x = json_array_get(json_object_get(o, list), 0);
    ck_assert_msg(x != NULL, "no %s\n%s", list, all);
    struct physical_tile tile = {(uint16_t)s->tile};
    ck_assert_int_eq(json_integer_value(json_object_get(x, "tile")), s->tile);
    ck_assert_int_eq(json_integer_value(json_object_get(x, "row")), target_row(tile));
    ck_assert_int_eq(json_integer_value(json_object_get(x, "column")), target_column(tile));
    ck_assert_int_eq(json_integer_value(json_object_get(x, "sub")), target_sub(tile));
    expect_text("symbol", s->symbol, text_of(x, "symbol"), all);
    if (s->exception != NULL) {
        expect_text("exception", s->exception, text_of(x, "exception"), all);
        expect_text("receive error", s->receive, text_of(x, "receive_error"), all);
        expect_text("phase", s->phase, text_of(x, "phase"), all);
        ck_assert_msg(text_of(x, "instruction") != NULL, "%s", all);
        ck_assert_int_eq(count_of(x, "m"), DEVICE_M_REGISTERS);
    }
}

static void check_postmortem(const struct scenario *s, const struct device *d, bool knows_waits) {
    const char *text = device_postmortem(d);
    ck_assert_msg(text != NULL, "%s: no post-mortem", s->name);
    ck_assert_uint_lt(strlen(text), DEVICE_POSTMORTEM_BYTES);
    json_error_t error;
    json_t *o = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    ck_assert_msg(o != NULL, "%s: %s\n%s", s->name, error.text, text);
    expect_text("verdict", s->verdict, text_of(o, "verdict"), text);
    expect_text("incomplete", NULL, text_of(o, "incomplete"), text);
    ck_assert(json_is_false(json_object_get(o, "cut")));
    ck_assert_uint_eq(strlen(text_of(o, "map")), TARGET_TILES);
    json_int_t tiles = 0;
    const char *class;
    json_t *count;
    json_object_foreach(json_object_get(o, "tiles"), class, count) {
        tiles += json_integer_value(count);
    }
    ck_assert_int_eq(tiles, TARGET_TILES);
    ck_assert_int_eq(count_of(o, "marks"), 2);
    ck_assert_int_eq(json_is_true(json_object_get(o, "waits_known")), knows_waits);
    if (knows_waits) {
        ck_assert_int_ge(count_of(o, "waits"), 1);
        check_named(s, o, text);
    } else if (strcmp(s->verdict, "deadlock") == 0) {
        /* The last work of its workers tells the tile from the others. */
        const char *summary = text_of(o, "summary");
        ck_assert_msg(
            summary != NULL && strstr(summary, "1 of them, first tile 5") != NULL, "%s", text);
        ck_assert_int_eq(count_of(o, "last_work"), 2);
    }
    if (getenv("SHOW_POSTMORTEM") != NULL) {
        printf("%s\n", text);
    }
    json_decref(o);
}

START_TEST(each_fault_is_named) {
    const struct scenario *s = &scenarios[_i];
    struct sim_options sim = {.threads = 2, .inject_waiting = true};
    struct device *d = open_device(&sim);
    struct err err = {0};
    double seconds = 0; /* of processor time */
    int r = load_and_run(d, s, 1, &seconds, &err);
    ck_assert_msg(r == -s->code && err.code == s->code, "%s: %d %s", s->name, r, err.text);
    ck_assert_msg(strstr(err.text, s->text) != NULL, "%s: %s", s->name, err.text);
    check_postmortem(s, d, true);
    printf(
        "faults: %-24s %-12s %.3f s of processor time: %s\n", s->name, err_name(err.code), seconds,
        err.text);
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    ck_assert_msg(seconds < MAX_CPU_S, "%s: %.2f s", s->name, seconds);
#endif
    /* The next load and run on the same device work, and there is nothing to explain. */
    r = load_and_run(d, &good, 2, &seconds, &err);
    ck_assert_msg(r == 0, "after %s: %s", s->name, err.text);
    ck_assert_ptr_null(device_postmortem(d));
    device_close(d);
}
END_TEST

/* As hardware has been seen to: a supervisor that waits refuses to be read. */
START_TEST(waits_may_stay_unknown) {
    static const int with[] = {0, 1, 6};
    const struct scenario *s = &scenarios[with[_i]];
    struct sim_options sim = {.threads = 1};
    struct device *d = open_device(&sim);
    struct err err = {0};
    double seconds = 0;
    int r = load_and_run(d, s, 1, &seconds, &err);
    ck_assert_msg(r == -s->code, "%s: %d %s", s->name, r, err.text);
    check_postmortem(s, d, false);
    r = load_and_run(d, &good, 2, &seconds, &err);
    ck_assert_msg(r == 0, "after %s: %s", s->name, err.text);
    device_close(d);
}
END_TEST

/* ---- a debug interface that hangs ----------------------------------------------------------- */

struct sticky { /* the interface of one tile stays busy */
    struct ipu_device_ops inner;
    struct sim_options sim;
    uint32_t tile;
    uint64_t polls_ns; /* host time passes with each poll, as on a card */
};

static int sticky_read(void *self, uint32_t offset, uint32_t *ret, struct err *err) {
    struct sticky *s = self;
    int r = s->inner.read32(s->inner.self, offset, ret, err);
    if (r == 0 && offset == tdi(s->tile, TDI_STS)) {
        *ret |= 8;
        s->polls_ns += 1000000;
    }
    return r;
}

static int sticky_write(void *self, uint32_t offset, uint32_t value, struct err *err) {
    struct sticky *s = self;
    return s->inner.write32(s->inner.self, offset, value, err);
}

static int sticky_attach(void *self, uint32_t index, void *memory, uint32_t size, struct err *err) {
    struct sticky *s = self;
    return s->inner.attach(s->inner.self, index, memory, size, err);
}

static int sticky_detach(void *self, uint32_t index, struct err *err) {
    struct sticky *s = self;
    return s->inner.detach(s->inner.self, index, err);
}

static int sticky_detach_all(void *self, struct err *err) {
    struct sticky *s = self;
    return s->inner.detach_all(s->inner.self, err);
}

static int sticky_request(void *self, enum ipu_request request, struct err *err) {
    struct sticky *s = self;
    return s->inner.request(s->inner.self, request, err);
}

static int sticky_mailbox(
    void *self, const struct ipu_mailbox *sent, struct ipu_mailbox *got, struct err *err) {
    struct sticky *s = self;
    return s->inner.mailbox(s->inner.self, sent, got, err);
}

static void sticky_fence(void *self) {
    struct sticky *s = self;
    s->inner.fence(s->inner.self);
}

static uint64_t sticky_now_ns(void *self) {
    struct sticky *s = self;
    return s->inner.now_ns(s->inner.self) + s->polls_ns;
}

static void sticky_pause(void *self, uint64_t ns) {
    struct sticky *s = self;
    s->inner.pause(s->inner.self, ns);
}

static void sticky_close(void *self) {
    struct sticky *s = self;
    s->inner.close(s->inner.self);
}

static int open_sticky(const char *spec, void *arg, struct ipu_device_ops *ret, struct err *err) {
    struct sticky *s = arg;
    (void)spec;
    int r = sim_device_open(&s->sim, &s->inner, err);
    *ret = (struct ipu_device_ops){
        s,
        "sim",
        sticky_read,
        sticky_write,
        sticky_attach,
        sticky_detach,
        sticky_detach_all,
        sticky_request,
        sticky_mailbox,
        sticky_fence,
        sticky_now_ns,
        sticky_pause,
        sticky_close};
    return r;
}

/* The first error stays what it was, and what the other tiles say is still told. */
START_TEST(busy_interface_ends_nothing) {
    /* A tile that only waits; the one that has trapped. */
    static const uint32_t tiles[] = {9, VICTIM};
    const struct scenario *s = &scenarios[5];
    struct sticky sticky = {.sim = {.threads = 1, .inject_waiting = true}, .tile = tiles[_i]};
    struct device_options options = {
        .spec = "sim",
        .lock_path = lock_path,
        .no_wait = true,
        .open_ops = open_sticky,
        .open_arg = &sticky};
    struct device *d = NULL;
    struct err err = {0};
    double seconds = 0;
    ck_assert_msg(device_open(&options, &d, &err) == 0, "%s", err.text);
    int r = load_and_run(d, s, 1, &seconds, &err);
    ck_assert_msg(r == -ERR_TILE_FAULT, "%d %s", r, err.text);
    ck_assert_msg(strstr(err.text, "tile 5 context 0") != NULL, "%s", err.text);
    const char *text = device_postmortem(d);
    ck_assert_ptr_nonnull(text);
    json_t *o = json_loads(text, 0, NULL);
    ck_assert_ptr_nonnull(o);
    expect_text("incomplete", NULL, text_of(o, "incomplete"), text);
    ck_assert(json_is_true(json_object_get(o, "waits_known")));
    ck_assert_int_eq(
        json_integer_value(json_object_get(json_object_get(o, "tiles"), "waiting")),
        TARGET_TILES - 1);
    ck_assert_int_eq(count_of(o, "exceptions"), _i == 0 ? 1 : 0);
    json_decref(o);
    sticky.tile = TARGET_TILES;
    r = load_and_run(d, &good, 2, &seconds, &err);
    ck_assert_msg(r == 0, "%s", err.text);
    device_close(d);
}
END_TEST

/* ---- looking at a resident program ---------------------------------------------------------- */

START_TEST(looks_disturb_nothing) {
    struct sim_options sim = {.threads = 1, .inject_waiting = _i != 0};
    struct device *d = open_device(&sim);
    struct err err = {0};
    double seconds = 0;
    ck_assert_msg(load_and_run(d, &good, 1, &seconds, &err) == 0, "%s", err.text);
    char *text = NULL;
    ck_assert_msg(device_tiles(d, &text, &err) == 0, "%s", err.text);
    json_t *o = json_loads(text, 0, NULL);
    ck_assert_ptr_nonnull(o);
    expect_text("verdict", "quiet", text_of(o, "verdict"), text);
    ck_assert_int_eq(
        json_integer_value(json_object_get(json_object_get(o, "tiles"), "waiting")), TARGET_TILES);
    json_decref(o);
    free(text);

    uint32_t words[2];
    ck_assert_msg(device_tile_read(d, VICTIM, RT_PROGRAM, words, 2, &err) == 0, "%s", err.text);
    struct device_symbol symbols[8];
    ck_assert_uint_ge(device_tile_symbols(d, VICTIM, words[0], 4, symbols, 8), 1);
    ck_assert_str_eq(symbols[0].name, "program");
    ck_assert_uint_eq(symbols[0].addr, words[0]);
    ck_assert_int_eq(device_tile_read(d, VICTIM, TARGET_MEM_END - 4, words, 2, &err), -ERR_INVALID);
    ck_assert_int_eq(device_tile_read(d, VICTIM, RT_PROGRAM + 1, words, 1, &err), -ERR_INVALID);
    ck_assert_int_eq(device_tile_read(d, TARGET_TILES, RT_PROGRAM, words, 1, &err), -ERR_INVALID);
    ck_assert_int_eq(
        device_tile_read(d, 0, RT_PROGRAM, words, DEVICE_LOOK_WORDS + 1, &err), -ERR_INVALID);

    struct device_registers found;
    ck_assert_msg(device_tile_registers(d, VICTIM, 1, &found, &err) == 0, "%s", err.text);
    ck_assert_uint_eq(found.state, 0);
    ck_assert_uint_eq(found.m[15], 0);
    ck_assert_int_eq(device_tile_registers(d, VICTIM, 7, &found, &err), -ERR_INVALID);
    int r = device_tile_registers(d, VICTIM, 0, &found, &err);
    ck_assert_int_eq(r, _i != 0 ? 0 : -ERR_CONFLICT);

    /* The program goes on as if nothing had been. */
    struct device_run_report report;
    const uint8_t *no_inputs[1] = {NULL};
    r = device_run(d, no_inputs, 3, NULL, NULL, LIMIT_NS, &report, &err);
    ck_assert_msg(r == 0, "%s", err.text);
    device_close(d);
}
END_TEST

/* Break on sync and retirement break, by the calls of debug.c. */
START_TEST(breaks_stop_and_resume) {
    struct sim_options sim = {.threads = 1};
    struct device *d = open_device(&sim);
    struct err err = {0};
    double seconds = 0;
    uint32_t value;
    ck_assert_msg(load_and_run(d, &good, 1, &seconds, &err) == 0, "%s", err.text);
    ck_assert_int_eq(tdi_break_on_sync(d, VICTIM, true, &err), 0);
    /* The first run meets the exit barrier of its first phase and stops there. */
    ck_assert_int_eq(hsp_write(d, REG_HSPGS2, 1, &err), 0);
    for (int i = 0; i < 100; i++) {
        ck_assert_int_eq(tdi_context_state(d, VICTIM, 0, &value, &err), 0);
    }
    ck_assert_uint_eq(value, 2);
    ck_assert_int_eq(tdi_read_csr(d, VICTIM, 0, CSR_STATUS, &value, &err), 0);
    ck_assert_uint_eq(value >> 4 & 15, TDI_EXC_BOS);
    ck_assert_int_eq(tdi_read_csr(d, VICTIM, 0, CSR_PC, &value, &err), 0);
    uint32_t word, offset;
    ck_assert_int_eq(device_tile_read(d, VICTIM, value, &word, 1, &err), 0);
    struct insn insn;
    ck_assert(isa_decode(word, ISA_SUPERVISOR, &insn));
    ck_assert_int_eq(insn.op, ISA_OP_sync_zi);
    ck_assert_ptr_nonnull(program_symbol(d->program, VICTIM, value, &offset));
    ck_assert_int_eq(tdi_break_on_sync(d, VICTIM, false, &err), 0);
    ck_assert_int_eq(tdi_resume(d, VICTIM, 0, &err), 0);
    int r = reg_wait_clear(d, REG_HSPGS2, MARK_MASK, LIMIT_NS, "barrier", &err);
    ck_assert_msg(r == 0, "%s", err.text);
    device_close(d);
}
END_TEST

static char **wanted; /* NAME FILE of the command line */

/* As a test, because building asserts. */
START_TEST(package_is_written) {
    for (size_t i = 0; i < sizeof scenarios / sizeof scenarios[0]; i++) {
        if (strcmp(scenarios[i].name, wanted[0]) == 0) {
            struct built *b = build(&scenarios[i]);
            struct err err = {0};
            struct digest digest;
            char hex[DIGEST_HEX + 1];
            int r = package_write(&b->p, wanted[1], &digest, &err);
            ck_assert_msg(r == 0, "%s %s", err.where, err.text);
            built_free(b);
            digest_hex(&digest, hex);
            puts(hex);
            return;
        }
    }
    ck_abort_msg("no scenario '%s'", wanted[0]);
}
END_TEST

int main(int argc, char **argv) {
    if (argc == 4 && strcmp(argv[1], "--package") == 0) {
        wanted = argv + 2;
    }
    int n = (int)(sizeof scenarios / sizeof scenarios[0]);
    Suite *suite = suite_create("faults");
    TCase *t = tcase_create("faults");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, setup, teardown);
    if (wanted != NULL) {
        tcase_add_test(t, package_is_written);
    } else {
        tcase_add_loop_test(t, each_fault_is_named, 0, n);
        tcase_add_loop_test(t, waits_may_stay_unknown, 0, 3);
        tcase_add_loop_test(t, busy_interface_ends_nothing, 0, 2);
        tcase_add_loop_test(t, looks_disturb_nothing, 0, 2);
        tcase_add_test(t, breaks_stop_and_resume);
    }
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, wanted != NULL ? CK_SILENT : CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
