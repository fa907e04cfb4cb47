/* Tiles: states, memory, registers. The device thread looks between tasks; a timer withdraws a
 * request whose turn does not come. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/handlers.h"

#define LOOK_WAIT_MS  5000
#define DEFAULT_WORDS 16
#define MAX_SYMBOLS   64 /* of one answer */
#define CONTEXTS      7

struct tile_look {
    struct runner_look look;
    struct request *request;
    sd_event_source *timer;
    uint32_t tile, addr, words;
    int context;
    json_t *answer; /* owned, made by the device thread */
};

static void look_free(struct tile_look *l) {
    sd_event_source_disable_unref(l->timer);
    json_decref(l->answer);
    free(l);
}

static void on_looked(struct letter *letter) {
    struct tile_look *l = (struct tile_look *)letter;
    if (l->look.result < 0) {
        reply_err(l->request, &l->look.err);
    } else {
        reply_json(l->request, 200, json_incref(l->answer));
    }
    look_free(l);
}

static int on_late(sd_event_source *source, uint64_t usec, void *arg) {
    struct tile_look *l = arg;
    if (runner_look_withdraw(l->request->daemon->runner, &l->look)) {
        struct err err;
        err_set(&err, ERR_DEVICE_BUSY, "the device has been busy for %d ms", LOOK_WAIT_MS);
        reply_err(l->request, &err);
        look_free(l);
    }
    return 0; /* else its turn has come, and its letter will */
}

/* Parameter {tile} and a query number, decimal or 0x. */
static int read_number(
    const struct request *r, const char *name, const char *text, uint64_t low, uint64_t high,
    uint32_t fallback, uint32_t *ret, struct err *err) {
    *ret = fallback;
    if (text == NULL) {
        return 0;
    }
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 0);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || value < low ||
        value > high) {
        return err_at(
            err, ERR_INVALID, name,
            high < TARGET_MEM_BASE ? "%s: '%.40s' is no number from %llu to %llu"
                                   : "%s: '%.40s' is no number from 0x%llx to 0x%llx",
            name, text, (unsigned long long)low, (unsigned long long)high);
    }
    *ret = (uint32_t)value;
    return 0;
}

static struct tile_look *
look_new(struct request *r, int (*look)(struct runner_look *l, struct device *d, struct err *err)) {
    struct tile_look *l = calloc(1, sizeof *l);
    if (l == NULL) {
        struct err err;
        err_set(&err, ERR_NOMEM, NULL);
        reply_err(r, &err);
        return NULL;
    }
    l->request = r;
    l->look.letter.deliver = on_looked;
    l->look.uid = r->connection->peer.uid;
    l->look.is_operator = r->connection->peer.is_operator;
    l->look.look = look;
    return l;
}

static void look_submit(struct tile_look *l) {
    struct daemon *d = l->request->daemon;
    int r = sd_event_add_time_relative(
        d->event, &l->timer, CLOCK_MONOTONIC, LOOK_WAIT_MS * 1000ull, 0, on_late, l);
    if (r < 0) {
        struct err err;
        err_sys(&err, ERR_INTERNAL, -r, "timer");
        reply_err(l->request, &err);
        look_free(l);
        return;
    }
    runner_look(d->runner, &l->look);
}

/* {"tile", "logical", "row", "column", "sub"} */
static json_t *tile_json(uint32_t tile) {
    struct physical_tile t = {(uint16_t)tile};
    return json_pack(
        "{s:i, s:i, s:i, s:i, s:i}", "tile", (int)tile, "logical", (int)target_logical(t).n, "row",
        target_row(t), "column", target_column(t), "sub", target_sub(t));
}

/* ---- States ------------------------------------------------------------------------------ */

static int look_at_states(struct runner_look *look, struct device *d, struct err *err) {
    struct tile_look *l = (struct tile_look *)look;
    char *text = NULL;
    int r = device_tiles(d, &text, err);
    if (r < 0) {
        return r;
    }
    l->answer = json_loads(text, 0, NULL);
    free(text);
    return l->answer != NULL ? 0 : err_set(err, ERR_NOMEM, "states of the tiles");
}

void on_tile_states(struct request *r) {
    struct tile_look *l = look_new(r, look_at_states);
    if (l != NULL) {
        look_submit(l);
    }
}

/* ---- Memory ------------------------------------------------------------------------------ */

static int look_at_memory(struct runner_look *look, struct device *d, struct err *err) {
    struct tile_look *l = (struct tile_look *)look;
    uint32_t words[DEVICE_LOOK_WORDS];
    struct device_symbol symbols[MAX_SYMBOLS];
    int r = device_tile_read(d, l->tile, l->addr, words, l->words, err);
    if (r < 0) {
        return r;
    }
    json_t *list = json_array();
    json_t *names = json_array();
    for (uint32_t i = 0; i < l->words; i++) {
        json_array_append_new(list, json_integer(words[i]));
    }
    size_t n = device_tile_symbols(d, l->tile, l->addr, 4 * l->words, symbols, MAX_SYMBOLS);
    for (size_t i = 0; i < n; i++) {
        json_array_append_new(
            names, json_pack(
                       "{s:s, s:I, s:I}", "name", symbols[i].name, "addr",
                       (json_int_t)symbols[i].addr, "size", (json_int_t)symbols[i].size));
    }
    l->answer = tile_json(l->tile);
    json_object_set_new(l->answer, "addr", json_integer(l->addr));
    json_object_set_new(l->answer, "words", list);
    json_object_set_new(l->answer, "symbols", names);
    return 0;
}

void on_tile_memory(struct request *r) {
    struct err err;
    struct tile_look *l = look_new(r, look_at_memory);
    if (l == NULL) {
        return;
    }
    const char *addr = request_query(r, "addr");
    int result =
        addr != NULL ? 0 : err_at(&err, ERR_INVALID, "addr", "addr: an address is expected");
    result =
        result < 0
            ? result
            : read_number(r, "tile", r->match.params[0], 0, TARGET_TILES - 1, 0, &l->tile, &err);
    result =
        result < 0
            ? result
            : read_number(r, "addr", addr, TARGET_MEM_BASE, TARGET_MEM_END - 4, 0, &l->addr, &err);
    uint32_t most = (TARGET_MEM_END - l->addr) / 4;
    most = most < DEVICE_LOOK_WORDS ? most : DEVICE_LOOK_WORDS;
    uint32_t fallback = most < DEFAULT_WORDS ? most : DEFAULT_WORDS;
    result = result < 0
                 ? result
                 : read_number(
                       r, "words", request_query(r, "words"), 1, most, fallback, &l->words, &err);
    if (result == 0 && l->addr % 4 != 0) {
        result = err_at(&err, ERR_INVALID, "addr", "addr: 0x%x is no multiple of 4", l->addr);
    }
    if (result < 0) {
        reply_err(r, &err);
        look_free(l);
        return;
    }
    look_submit(l);
}

/* ---- Registers --------------------------------------------------------------------------- */

static int look_at_registers(struct runner_look *look, struct device *d, struct err *err) {
    struct tile_look *l = (struct tile_look *)look;
    struct device_registers found;
    struct device_symbol symbol;
    int r = device_tile_registers(d, l->tile, l->context, &found, err);
    if (r < 0) {
        return r;
    }
    bool has_symbol =
        device_tile_symbols(d, l->tile, found.pc, 4, &symbol, 1) > 0 && symbol.addr <= found.pc;
    json_t *m = json_array();
    for (int i = 0; i < DEVICE_M_REGISTERS; i++) {
        json_array_append_new(m, json_integer(found.m[i]));
    }
    json_t *rest = json_pack(
        "{s:i, s:i, s:I, s:s?, s:I, s:I, s:s, s:o}", "context", l->context, "state", found.state,
        "pc", (json_int_t)found.pc, "symbol", has_symbol ? symbol.name : NULL, "offset",
        (json_int_t)(has_symbol ? found.pc - symbol.addr : 0), "status", (json_int_t)found.status,
        "exception", found.exception, "m", m);
    l->answer = tile_json(l->tile);
    json_object_update(l->answer, rest);
    json_decref(rest);
    return 0;
}

void on_tile_registers(struct request *r) {
    struct err err;
    uint32_t context = 0;
    struct tile_look *l = look_new(r, look_at_registers);
    if (l == NULL) {
        return;
    }
    if (read_number(r, "tile", r->match.params[0], 0, TARGET_TILES - 1, 0, &l->tile, &err) < 0 ||
        read_number(r, "context", request_query(r, "context"), 0, CONTEXTS - 1, 0, &context, &err) <
            0) {
        reply_err(r, &err);
        look_free(l);
        return;
    }
    l->context = (int)context;
    look_submit(l);
}
