/* ipuctl tile status, read, regs, disasm: tiles of the daemon's device, by its debug interface. */
#include <errno.h>
#include <string.h>

#include "asm/asm.h"
#include "base/bytes.h"
#include "base/cleanup.h"
#include "client/commands.h"
#include "client/http.h"
#include "client/output.h"
#include "target/target.h"

#define MAX_WORDS   1024 /* as the daemon's */
#define CONTEXTS    7
#define SUBS        4
#define LINE_WORDS  4
#define M_REGISTERS 16

static void decref_cleanup(json_t **j) {
    json_decref(*j);
}

static int get(const struct args *a, const char *path, json_t **ret, struct err *err) {
    CLEANUP(http_cleanup) struct http *h = NULL;
    int r = http_open(a->socket, &h, err);
    return r < 0 ? r : http_get(h, path, ret, err);
}

static long long number_of(const json_t *o, const char *name) {
    return (long long)json_integer_value(json_object_get(o, name));
}

/* Operand i as a number, decimal or 0x. */
static int read_operand(
    const struct args *a, int i, const char *what, uint64_t low, uint64_t high, uint32_t *ret,
    struct err *err) {
    const char *text = a->operands[i];
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 0);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || value < low ||
        value > high) {
        return err_set(
            err, ERR_USAGE,
            high < TARGET_MEM_BASE ? "%s '%.40s' is no number from %llu to %llu"
                                   : "%s '%.40s' is no number from 0x%llx to 0x%llx",
            what, text, (unsigned long long)low, (unsigned long long)high);
    }
    *ret = (uint32_t)value;
    return 0;
}

/* ---- status ------------------------------------------------------------------------------ */

/* One line a row of the chip, a character a tile, columns apart. */
static void print_map(const char *map) {
    fputs("        ", stdout);
    for (int column = 0; column < TARGET_COLUMNS; column++) {
        printf(" %-4d", column);
    }
    fputc('\n', stdout);
    for (int row = 0; row < TARGET_ROWS; row++) {
        printf("row %2d  ", row);
        for (int column = 0; column < TARGET_COLUMNS; column++) {
            char four[SUBS + 1] = "";
            memcpy(four, map + (row * TARGET_COLUMNS + column) * SUBS, SUBS);
            fputc(' ', stdout);
            output_text(stdout, four);
        }
        fputc('\n', stdout);
    }
}

static void print_exceptions(const json_t *answer) {
    size_t i;
    json_t *x;
    json_array_foreach(json_object_get(answer, "exceptions"), i, x) {
        static const char *const names[] = {
            "exception", "symbol", "instruction", "receive_error", "phase"};
        printf(
            "tile %lld (row %lld, column %lld, sub %lld) context %lld pc 0x%05llx",
            number_of(x, "tile"), number_of(x, "row"), number_of(x, "column"), number_of(x, "sub"),
            number_of(x, "context"), number_of(x, "pc"));
        for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
            const char *text = json_string_value(json_object_get(x, names[k]));
            if (text != NULL) {
                printf("  %s ", names[k]);
                output_text(stdout, text);
            }
        }
        fputc('\n', stdout);
    }
}

int cmd_tile_status(const struct args *a, struct err *err) {
    CLEANUP(decref_cleanup) json_t *answer = NULL;
    bool as_json;
    int r = args_is_json(a, &as_json, err);
    if (r < 0 || (r = get(a, "/v1/device/tiles", &answer, err)) < 0) {
        return r;
    }
    const char *map = json_string_value(json_object_get(answer, "map"));
    if (map == NULL || strlen(map) != TARGET_TILES) {
        return err_set(err, ERR_PROTOCOL, "the answer has no map of %d tiles", TARGET_TILES);
    }
    if (as_json) {
        output_json(answer);
        return 0;
    }
    print_map(map);
    const json_t *tiles = json_object_get(answer, "tiles");
    printf(
        ". waiting or idle %lld   r running %lld   c complete %lld   s stopped %lld   "
        "E excepted %lld   X receive error %lld\n",
        number_of(tiles, "waiting"), number_of(tiles, "running"), number_of(tiles, "complete"),
        number_of(tiles, "stopped"), number_of(tiles, "excepted"),
        number_of(answer, "receive_errors"));
    print_exceptions(answer);
    return 0;
}

/* ---- read, disasm ------------------------------------------------------------------------ */

static int get_memory(const struct args *a, json_t **ret, struct err *err) {
    uint32_t tile, addr, words = 16;
    char path[HTTP_MAX_PATH];
    int r = read_operand(a, 0, "tile", 0, TARGET_TILES - 1, &tile, err);
    r = r < 0 ? r : read_operand(a, 1, "address", TARGET_MEM_BASE, TARGET_MEM_END - 4, &addr, err);
    if (r == 0 && a->operand_count > 2) {
        r = read_operand(a, 2, "number of words", 1, MAX_WORDS, &words, err);
    }
    if (r < 0) {
        return r;
    }
    snprintf(path, sizeof path, "/v1/device/tiles/%u/memory?addr=%u&words=%u", tile, addr, words);
    return get(a, path, ret, err);
}

/* Words of the answer as bytes; *ret is owned. */
static int take_words(const json_t *answer, uint8_t **ret, size_t *ret_bytes, struct err *err) {
    const json_t *words = json_object_get(answer, "words");
    size_t n = json_array_size(words);
    uint8_t *bytes = n > 0 && n <= MAX_WORDS ? malloc(4 * n) : NULL;
    if (bytes == NULL) {
        return err_set(err, ERR_PROTOCOL, "the answer has %zu words", n);
    }
    for (size_t i = 0; i < n; i++) {
        store_le32(bytes + 4 * i, (uint32_t)json_integer_value(json_array_get(words, i)));
    }
    *ret = bytes;
    *ret_bytes = 4 * n;
    return 0;
}

int cmd_tile_read(const struct args *a, struct err *err) {
    CLEANUP(decref_cleanup) json_t *answer = NULL;
    CLEANUP(cleanup_free) uint8_t *bytes = NULL;
    size_t n = 0;
    bool as_json;
    int r = args_is_json(a, &as_json, err);
    if (r < 0 || (r = get_memory(a, &answer, err)) < 0 ||
        (r = take_words(answer, &bytes, &n, err)) < 0) {
        return r;
    }
    if (as_json) {
        output_json(answer);
        return 0;
    }
    uint32_t addr = (uint32_t)number_of(answer, "addr");
    for (size_t i = 0; i < n; i += 4) {
        if (i % (4 * LINE_WORDS) == 0) {
            printf("%s%08x ", i > 0 ? "\n" : "", addr + (uint32_t)i);
        }
        printf(" %08x", load_le32(bytes + i));
    }
    fputc('\n', stdout);
    return 0;
}

/* A label before each symbol, as its place in the listing comes. */
static void
print_listing(const json_t *answer, const uint8_t *bytes, size_t n, enum isa_unit unit) {
    uint32_t start = (uint32_t)number_of(answer, "addr");
    size_t at = 0;
    size_t i;
    json_t *s;
    json_array_foreach(json_object_get(answer, "symbols"), i, s) {
        const char *name = json_string_value(json_object_get(s, "name"));
        uint32_t addr = (uint32_t)number_of(s, "addr");
        size_t upto = addr > start ? addr - start : 0;
        if (name == NULL || upto < at || upto >= n || upto % 4 != 0) {
            continue;
        }
        asm_disassemble(stdout, bytes + at, upto - at, start + (uint32_t)at, unit);
        at = upto;
        output_text(stdout, name);
        if (addr < start) {
            printf("+0x%x", start - addr);
        }
        puts(":");
    }
    asm_disassemble(stdout, bytes + at, n - at, start + (uint32_t)at, unit);
}

int cmd_tile_disasm(const struct args *a, struct err *err) {
    CLEANUP(decref_cleanup) json_t *answer = NULL;
    CLEANUP(cleanup_free) uint8_t *bytes = NULL;
    size_t n = 0;
    if (args_has(a, "worker") && args_has(a, "supervisor")) {
        return err_set(err, ERR_USAGE, "--worker and --supervisor exclude each other");
    }
    int r = get_memory(a, &answer, err);
    if (r < 0 || (r = take_words(answer, &bytes, &n, err)) < 0) {
        return r;
    }
    print_listing(answer, bytes, n, args_has(a, "worker") ? ISA_WORKER : ISA_SUPERVISOR);
    return 0;
}

/* ---- regs -------------------------------------------------------------------------------- */

int cmd_tile_regs(const struct args *a, struct err *err) {
    static const char *const states[] = {"inactive or waiting", "active", "stopped", "excepted"};
    CLEANUP(decref_cleanup) json_t *answer = NULL;
    uint32_t tile;
    int64_t context = 0;
    char path[HTTP_MAX_PATH];
    bool as_json;
    int r = args_is_json(a, &as_json, err);
    r = r < 0 ? r : args_number(a, "context", 0, CONTEXTS - 1, &context, err);
    r = r < 0 ? r : read_operand(a, 0, "tile", 0, TARGET_TILES - 1, &tile, err);
    if (r < 0) {
        return r;
    }
    snprintf(path, sizeof path, "/v1/device/tiles/%u/registers?context=%d", tile, (int)context);
    if ((r = get(a, path, &answer, err)) < 0) {
        return r;
    }
    if (as_json) {
        output_json(answer);
        return 0;
    }
    const char *symbol = json_string_value(json_object_get(answer, "symbol"));
    const char *exception = json_string_value(json_object_get(answer, "exception"));
    printf(
        "tile %u (row %lld, column %lld, sub %lld) context %d: %s", tile, number_of(answer, "row"),
        number_of(answer, "column"), number_of(answer, "sub"), (int)context,
        states[number_of(answer, "state") & 3]);
    if (exception != NULL && strcmp(exception, "NONE") != 0) {
        fputs(", exception ", stdout);
        output_text(stdout, exception);
    }
    printf("\npc 0x%05llx ", number_of(answer, "pc"));
    if (symbol != NULL) {
        output_text(stdout, symbol);
        printf("+0x%llx", number_of(answer, "offset"));
    }
    printf("  status 0x%llx\n", number_of(answer, "status"));
    const json_t *m = json_object_get(answer, "m");
    for (size_t i = 0; i < M_REGISTERS; i++) {
        printf(
            "$m%-2zu %08x%s", i, (unsigned)json_integer_value(json_array_get(m, i)),
            i % 4 == 3 ? "\n" : "   ");
    }
    return 0;
}
