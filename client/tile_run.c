/* ipu-tile-run: assembles a text, runs it on one bare simulated tile, prints what is left.
 *
 * A bare tile has no sync network, exchange or host: code that waits for one of them ends as idle.
 * Results go to stdout, everything else to stderr. Exit status 0 when the code ended by itself,
 * that of tile_fault on an exception, that of run_timeout at the cycle limit (src/base/err.def). */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "asm/asm.h"
#include "base/bytes.h"
#include "base/cleanup.h"
#include "sim/sim.h"
#include "target/target.h"

#define ARENA_BYTES    (1024u << 20)
#define MAX_SOURCE     (16u << 20)
#define MAX_ITEMS      256
#define DEFAULT_CYCLES 1000000000ull
#define CONTEXTS       7

static const char usage[] =
    "usage: ipu-tile-run FILE.S [options]\n\n"
    "Assembles a text and runs it on one simulated tile.\n\n"
    "      --entry SYMBOL     global label to start at (the start of .text)\n"
    "      --reg REG=VALUE    m0, a3 ...: integer, or a number with a point for an $a register\n"
    "      --mem ADDR=FILE    bytes of a file at an address, zero-filled to words\n"
    "      --dump ADDR=WORDS  print memory at the end\n"
    "      --define NAME=N    a symbol of the text\n"
    "      --addr A           address of .text (0x4c010); .rodata, .data, .bss follow\n"
    "      --worker           start worker 1 instead of the supervisor\n"
    "      --cycles N         stop after N tile cycles (1000000000)\n"
    "      --zero             memory starts as zeros; otherwise reading it unwritten is a fault\n"
    "                         of the text, and gives the poison pattern\n"
    "      --trace            print each instruction on stderr\n"
    "  -h, --help             print this\n";

struct pair {
    const char *name; /* up to the '=' */
    size_t name_bytes;
    const char *value;
};

struct list {
    struct pair items[MAX_ITEMS];
    size_t count;
};

struct run {
    const char *file;
    const char *entry;
    struct list regs, mems, dumps, defs;
    uint64_t addr, cycles;
    bool is_worker, zero, trace, help;
    struct asm_image *image; /* arena */
    struct sim_tile *tile;   /* owned */
};

/* ---- Arguments --------------------------------------------------------------------------- */

static int
parse_number(const char *what, const char *text, uint64_t most, uint64_t *ret, struct err *err) {
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 0);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || value > most) {
        return err_set(
            err, ERR_USAGE, "%s: '%.60s' is no number up to 0x%" PRIx64, what, text, most);
    }
    *ret = value;
    return 0;
}

static int add_pair(const char *what, const char *text, struct list *list, struct err *err) {
    const char *equals = strchr(text, '=');
    if (equals == NULL || equals == text || equals[1] == '\0') {
        return err_set(err, ERR_USAGE, "--%s: '%.80s' is not of the form A=B", what, text);
    }
    if (list->count == MAX_ITEMS) {
        return err_set(err, ERR_USAGE, "--%s: more than %d", what, MAX_ITEMS);
    }
    list->items[list->count++] = (struct pair){text, (size_t)(equals - text), equals + 1};
    return 0;
}

static int take_option(struct run *r, int c, const char *value, struct err *err) {
    switch (c) {
    case 'e': r->entry = value; return 0;
    case 'r': return add_pair("reg", value, &r->regs, err);
    case 'm': return add_pair("mem", value, &r->mems, err);
    case 'd': return add_pair("dump", value, &r->dumps, err);
    case 'D': return add_pair("define", value, &r->defs, err);
    case 'a': return parse_number("--addr", value, TARGET_MEM_END - 4, &r->addr, err);
    case 'c': return parse_number("--cycles", value, UINT64_MAX / 2, &r->cycles, err);
    case 'w': r->is_worker = true; return 0;
    case 'z': r->zero = true; return 0;
    case 't': r->trace = true; return 0;
    default: r->help = true; return 0;
    }
}

static int read_arguments(int argc, char **argv, struct run *r, struct err *err) {
    static const struct option longs[] = {
        {"entry", required_argument, NULL, 'e'},  {"reg", required_argument, NULL, 'r'},
        {"mem", required_argument, NULL, 'm'},    {"dump", required_argument, NULL, 'd'},
        {"define", required_argument, NULL, 'D'}, {"addr", required_argument, NULL, 'a'},
        {"cycles", required_argument, NULL, 'c'}, {"worker", no_argument, NULL, 'w'},
        {"zero", no_argument, NULL, 'z'},         {"trace", no_argument, NULL, 't'},
        {"help", no_argument, NULL, 'h'},         {NULL, 0, NULL, 0},
    };
    r->addr = TARGET_LOAD_BASE;
    r->cycles = DEFAULT_CYCLES;
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, ":h", longs, NULL)) != -1;) {
        if (c == '?' || c == ':') {
            return err_set(
                err, ERR_USAGE, "'%.80s' %s; --help lists the options", argv[optind - 1],
                c == ':' ? "needs a value" : "is no option");
        }
        int result = take_option(r, c, optarg, err);
        if (result < 0) {
            return result;
        }
    }
    if (r->help) {
        return 0;
    }
    if (optind + 1 != argc) {
        return err_set(err, ERR_USAGE, "one text is expected; --help explains");
    }
    if (r->addr < TARGET_MEM_BASE || r->addr % 8 != 0) {
        return err_set(
            err, ERR_USAGE, "--addr: 0x%" PRIx64 " is no multiple of 8 from 0x%x on", r->addr,
            TARGET_MEM_BASE);
    }
    r->file = argv[optind];
    return 0;
}

/* ---- Text -> image ----------------------------------------------------------------------- */

static int read_file(const char *path, size_t limit, char **ret, size_t *ret_n, struct err *err) {
    CLEANUP(cleanup_fclose) FILE *in = fopen(path, "re");
    if (in == NULL) {
        return err_sys(err, ERR_IO, errno, "'%s'", path);
    }
    CLEANUP(cleanup_free) char *bytes = calloc(1, limit + 4);
    if (bytes == NULL) {
        return err_set(err, ERR_NOMEM, NULL);
    }
    size_t n = fread(bytes, 1, limit + 1, in);
    if (ferror(in)) {
        return err_sys(err, ERR_IO, errno, "'%s'", path);
    }
    if (n > limit) {
        return err_set(err, ERR_TOO_LARGE, "'%s': more than %zu bytes", path, limit);
    }
    *ret = TAKE(bytes);
    *ret_n = n;
    return 0;
}

static int
read_defs(const struct run *r, struct arena *arena, struct asm_def *defs, struct err *err) {
    for (size_t i = 0; i < r->defs.count; i++) {
        const struct pair *p = &r->defs.items[i];
        char *end = NULL;
        errno = 0;
        defs[i].name = arena_strndup(arena, p->name, p->name_bytes);
        defs[i].value = strtoll(p->value, &end, 0);
        if (errno != 0 || end == p->value || *end != '\0') {
            return err_set(err, ERR_USAGE, "--define %.80s: a number is expected", p->name);
        }
    }
    return 0;
}

static int assemble(struct run *r, struct arena *arena, struct err *err) {
    static const char *const names[] = {".text", ".rodata", ".data", ".bss"};
    CLEANUP(cleanup_free) char *text = NULL;
    struct asm_def defs[MAX_ITEMS];
    struct asm_placement places[4];
    struct asm_object *object;
    size_t n = 0;
    int result = read_file(r->file, MAX_SOURCE, &text, &n, err);
    if (result < 0 || (result = read_defs(r, arena, defs, err)) < 0) {
        return result;
    }
    const char *kept = arena_memdup(arena, text, n); /* a full arena leaves nothing behind */
    free(TAKE(text));
    struct asm_source source = {r->file, kept, n};
    enum isa_unit unit = r->is_worker ? ISA_WORKER : ISA_SUPERVISOR;
    result = asm_assemble(&source, unit, defs, r->defs.count, arena, &object, err);
    if (result < 0) {
        return result;
    }
    uint32_t addr = (uint32_t)r->addr;
    for (size_t i = 0; i < 4; i++) {
        places[i] = (struct asm_placement){names[i], addr, TARGET_MEM_END};
        addr = (addr + (uint32_t)asm_section_size(object, names[i]) + 7) & ~7u;
    }
    return asm_link(
        (const struct asm_object *const[]){object}, 1, places, 4, NULL, 0, arena, &r->image, err);
}

/* ---- Image -> tile ----------------------------------------------------------------------- */

static int
write_bytes(struct sim_tile *t, uint64_t addr, const void *bytes, size_t n, struct err *err) {
    size_t whole = n & ~(size_t)3;
    uint8_t last[4] = {0};
    if (addr > TARGET_MEM_END || n > TARGET_MEM_END - addr) {
        return err_set(
            err, ERR_INVALID, "%zu bytes at 0x%" PRIx64 " end beyond tile memory (0x%x)", n, addr,
            TARGET_MEM_END);
    }
    int r = sim_tile_write(t, (uint32_t)addr, bytes, (uint32_t)whole, err);
    if (r == 0 && whole < n) {
        memcpy(last, (const uint8_t *)bytes + whole, n - whole);
        r = sim_tile_write(t, (uint32_t)(addr + whole), last, 4, err);
    }
    return r;
}

static int load_memory(const struct run *r, struct err *err) {
    if (r->zero) {
        sim_tile_zero(r->tile);
    }
    for (size_t i = 0; i < r->image->segment_count; i++) {
        const struct asm_segment *s = &r->image->segments[i];
        int result = write_bytes(r->tile, s->addr, s->bytes, s->size, err);
        if (result < 0) {
            return err_wrap(err, "'%s'", r->file);
        }
    }
    for (size_t i = 0; i < r->mems.count; i++) {
        CLEANUP(cleanup_free) char *bytes = NULL;
        char text[32];
        uint64_t addr;
        size_t n = 0;
        const struct pair *p = &r->mems.items[i];
        snprintf(
            text, sizeof text, "%.*s", (int)(p->name_bytes < 31 ? p->name_bytes : 31), p->name);
        int result = parse_number("--mem", text, TARGET_MEM_END, &addr, err);
        if (result < 0 || (result = read_file(p->value, TARGET_MEM_SIZE, &bytes, &n, err)) < 0 ||
            (result = write_bytes(r->tile, addr, bytes, n, err)) < 0) {
            return result;
        }
    }
    return 0;
}

static int set_register(const struct run *r, const struct pair *p, int context, struct err *err) {
    char name[8] = "";
    char *end = NULL;
    uint64_t number = 16, value = 0;
    if (p->name_bytes < sizeof name) {
        memcpy(name, p->name, p->name_bytes);
    }
    const char *at = name[0] == '$' ? name + 1 : name;
    bool is_known =
        (at[0] == 'm' || at[0] == 'a') && parse_number("--reg", at + 1, 15, &number, NULL) == 0;
    if (!is_known) {
        return err_set(err, ERR_USAGE, "--reg %.60s: m0 to m15 or a0 to a15 are expected", p->name);
    }
    errno = 0;
    if (strchr(p->value, '.') != NULL && at[0] == 'a') {
        float f = strtof(p->value, &end);
        uint32_t bits;
        memcpy(&bits, &f, sizeof bits);
        value = bits;
    } else {
        long long v = strtoll(p->value, &end, 0);
        if (v > UINT32_MAX || v < INT32_MIN) {
            errno = ERANGE;
        }
        value = (uint32_t)v;
    }
    if (errno != 0 || end == p->value || *end != '\0') {
        return err_set(err, ERR_USAGE, "--reg %.60s: a 32-bit number is expected", p->name);
    }
    return sim_tile_set(r->tile, context, at[0], (int)number, value, err);
}

static int start(const struct run *r, struct err *err) {
    int context = r->is_worker ? SIM_WORKER0 : SIM_SUPERVISOR;
    uint32_t entry = (uint32_t)r->addr;
    if (r->entry != NULL && asm_image_symbol(r->image, r->entry, &entry, err) < 0) {
        return err_set(
            err, ERR_MISSING, "--entry: '%.80s' is no global label of '%s' (.globl makes one)",
            r->entry, r->file);
    }
    int result = load_memory(r, err);
    for (size_t i = 0; i < r->regs.count && result == 0; i++) {
        result = set_register(r, &r->regs.items[i], context, err);
    }
    if (result == 0 && (result = sim_tile_set(r->tile, context, 'p', 0, entry, err)) == 0) {
        sim_tile_start(r->tile, context);
    }
    return result;
}

/* ---- What is left ------------------------------------------------------------------------ */

/* The device's exception codes (device fact sheet 2.5, tile ISA document). */
static const char *exception_name(int etype) {
    static const char *const names[] = {"NONE",          "RBRK",       "PBRK0",      "PBRK1",
                                        "BOS",           "FP",         "CONFLICT",   "EXCONF",
                                        "INVALID_ADDR",  "INVALID_OP", "INVALID_PC", "DBRK",
                                        "INVALID_INSTR", "EXERR",      "MEMERR",     "IBRK"};
    return etype >= 0 && etype < 16 ? names[etype] : "?";
}

/* "start+0x8", by the nearest global label at or below; empty when there is none. */
static void print_symbol(const struct asm_image *image, uint32_t pc) {
    const struct asm_symbol *nearest = NULL;
    for (size_t i = 0; i < image->symbol_count; i++) {
        const struct asm_symbol *s = &image->symbols[i];
        if (s->addr <= pc && (nearest == NULL || s->addr > nearest->addr)) {
            nearest = s;
        }
    }
    if (nearest != NULL) {
        printf(" %s+0x%x", nearest->name, pc - nearest->addr);
    }
}

static void print_code(const struct run *r, int context, uint32_t pc) {
    uint8_t bytes[8];
    enum isa_unit unit = context == SIM_SUPERVISOR ? ISA_SUPERVISOR : ISA_WORKER;
    uint32_t n = sim_tile_read(r->tile, pc, bytes, 8, NULL) == 0 ? 8 : 0;
    if (n == 8) {
        bool is_pair = load_le32(bytes) >> 31 != 0;
        asm_disassemble(stdout, bytes, is_pair ? 8 : 4, pc, unit);
    }
}

static void print_registers(const struct run *r, int context) {
    for (const char *file = "ma"; *file != '\0'; file++) {
        if (context == SIM_SUPERVISOR && *file == 'a') {
            return; /* the supervisor has none */
        }
        for (int i = 0; i < 16; i++) {
            uint64_t value = 0;
            sim_tile_get(r->tile, context, *file, i, &value, NULL);
            printf("%c%-2d %08" PRIx64 "%s", *file, i, value, i % 4 == 3 ? "\n" : "  ");
        }
    }
}

static int print_dumps(const struct run *r, struct err *err) {
    for (size_t i = 0; i < r->dumps.count; i++) {
        const struct pair *p = &r->dumps.items[i];
        char text[32];
        uint64_t addr, words;
        snprintf(
            text, sizeof text, "%.*s", (int)(p->name_bytes < 31 ? p->name_bytes : 31), p->name);
        int result = parse_number("--dump", text, TARGET_MEM_END, &addr, err);
        if (result == 0) {
            result = parse_number("--dump", p->value, TARGET_MEM_SIZE / 4, &words, err);
        }
        for (uint64_t w = 0; result == 0 && w < words; w++) {
            uint8_t bytes[4];
            result = sim_tile_read(r->tile, (uint32_t)(addr + 4 * w), bytes, 4, err);
            if (result == 0 && w % 4 == 0) {
                printf("%s%08" PRIx64 " ", w > 0 ? "\n" : "", addr + 4 * w);
            }
            if (result == 0) {
                printf(" %08x", load_le32(bytes));
            }
        }
        if (result < 0) {
            return result;
        }
        putchar('\n');
    }
    return 0;
}

static int report(const struct run *r, const struct sim_stopped *s, struct err *err) {
    int status = 0;
    printf("cycles %" PRIu64 ", issue groups %" PRIu64 "\n", s->cycles, s->groups);
    if (s->why == SIM_STOP_EXCEPTION) {
        printf("exception %s in context %d at 0x%x", exception_name(s->etype), s->context, s->pc);
        print_symbol(r->image, s->pc);
        putchar('\n');
        print_code(r, s->context, s->pc);
        status = err_exit(ERR_TILE_FAULT);
    } else if (s->why == SIM_STOP_CYCLES) {
        printf("stopped at the limit of %" PRIu64 " cycles\n", r->cycles);
        status = err_exit(ERR_RUN_TIMEOUT);
    }
    for (int c = 0; c < CONTEXTS; c++) {
        int exited = sim_tile_exit_status(r->tile, c);
        bool is_started = c == (r->is_worker ? SIM_WORKER0 : SIM_SUPERVISOR);
        bool is_faulted = s->why == SIM_STOP_EXCEPTION && s->context == c;
        if (is_started || is_faulted || exited >= 0) {
            printf(c == 0 ? "supervisor" : "worker %d", c);
            printf(exited >= 0 ? ", exit %d\n" : "\n", exited);
            print_registers(r, c);
        }
    }
    int result = print_dumps(r, err);
    return result < 0 ? result : status;
}

static int run(struct run *r, struct arena *arena, struct err *err) {
    struct sim_options options = {.trace = r->trace ? stderr : NULL, .trace_tile = -1};
    struct sim_stopped stopped;
    int result = assemble(r, arena, err);
    if (result < 0) {
        return result;
    }
    r->tile = sim_tile_new(&options);
    if (r->tile == NULL) {
        return err_set(err, ERR_NOMEM, NULL);
    }
    if ((result = start(r, err)) < 0) {
        return result;
    }
    sim_tile_run(r->tile, r->cycles, &stopped);
    return report(r, &stopped, err);
}

int main(int argc, char **argv) {
    static struct run r; /* large: the lists */
    static struct arena arena;
    struct err err;
    err_clear(&err);
    int result = read_arguments(argc, argv, &r, &err);
    if (result == 0 && r.help) {
        fputs(usage, stdout);
    } else if (result == 0) {
        arena_init(&arena, ARENA_BYTES);
        if (ARENA_RECOVER(&arena)) {
            result = err_set(&err, ERR_NOMEM, "the text needs more than %u bytes", ARENA_BYTES);
        } else {
            result = run(&r, &arena, &err);
        }
        sim_tile_free(r.tile);
        arena_done(&arena);
    }
    if (fflush(stdout) != 0 && result == 0) {
        result = err_sys(&err, ERR_IO, errno, "standard output");
    }
    if (result < 0) {
        fprintf(
            stderr, "ipu-tile-run: %s%s%s (%s)\n", err.where, err.where[0] != '\0' ? ": " : "",
            err.text, err_name(err.code));
        return err_exit(err.code);
    }
    return result;
}
