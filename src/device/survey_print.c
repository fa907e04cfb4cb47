/* A survey as a JSON object of bounded size (proto/events.md describes its members). Single members
 * come first: texts are cut, so these always fit. Lists come behind them and are filled as far as
 * there is room; an item that no longer fits is left out whole, and `cut` is then true. */
#include "device/device_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TAIL_BYTES 64  /* room kept for what closes lists and object */
#define TEXT_CHARS 640 /* of one string */

struct text {
    char *bytes; /* DEVICE_POSTMORTEM_BYTES */
    size_t used;
    bool is_cut;
};

/* Appends; on overflow the text stays as it was and is_cut is set. */
static void put(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put(struct text *t, const char *format, ...) {
    size_t room = DEVICE_POSTMORTEM_BYTES - TAIL_BYTES - t->used;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(t->bytes + t->used, room, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= room) {
        t->is_cut = true;
    } else {
        t->used += (size_t)n;
    }
    t->bytes[t->used] = '\0';
}

/* A JSON string, or null. Bytes beyond ASCII and controls become '?': names are ours. */
static void put_string(struct text *t, const char *value) {
    if (value == NULL) {
        put(t, "null");
        return;
    }
    put(t, "\"");
    for (int n = 0; *value != '\0' && n < TEXT_CHARS; value++, n++) {
        unsigned char c = (unsigned char)*value;
        if (c == '"' || c == '\\') {
            put(t, "\\%c", c);
        } else {
            put(t, "%c", c < 0x20 || c > 0x7e ? '?' : c);
        }
    }
    put(t, "\"");
}

/* Runs one list: an item that does not fit is taken back, and the list ends. */
struct list {
    struct text *t;
    size_t before;
    bool was_cut, is_first, is_full, is_open;
};

static struct list list_open(struct text *t, const char *name) {
    size_t before = t->used;
    put(t, ",\"%s\":[", name);
    bool is_open = t->used != before;
    return (struct list){.t = t, .is_first = true, .is_full = !is_open, .is_open = is_open};
}

static bool list_item(struct list *l) {
    if (l->is_full) {
        return false;
    }
    l->before = l->t->used;
    l->was_cut = l->t->is_cut;
    l->t->is_cut = false;
    put(l->t, "%s", l->is_first ? "" : ",");
    l->is_first = false;
    return true;
}

static void list_item_end(struct list *l) {
    if (l->t->is_cut) {
        l->t->used = l->before;
        l->t->bytes[l->t->used] = '\0';
        l->is_full = true;
    }
    l->t->is_cut |= l->was_cut;
}

static void list_close(struct list *l) {
    if (l->is_open) { /* in the room kept for it */
        l->t->bytes[l->t->used++] = ']';
        l->t->bytes[l->t->used] = '\0';
    }
}

static void put_zone(struct text *t, const char *name, int zone) {
    if (zone >= 0) {
        put(t, "\"%s\":%d", name, zone);
    } else {
        put(t, "\"%s\":null", name);
    }
}

static const char *const class_names[TILE_CLASSES] = {
    "waiting", "running", "complete", "stopped", "excepted"};
static const char class_letters[TILE_CLASSES] = {'.', 'r', 'c', 's', 'E'};

static void put_tile(struct text *t, uint16_t tile) {
    struct physical_tile p = {tile};
    put(t, "\"tile\":%u,\"logical\":%u,\"row\":%d,\"column\":%d,\"sub\":%d", tile,
        target_logical(p).n, target_row(p), target_column(p), target_sub(p));
}

static void put_place(struct text *t, uint32_t pc, const char *symbol, uint32_t offset) {
    put(t, ",\"pc\":%u,\"symbol\":", pc);
    put_string(t, symbol);
    if (symbol != NULL) {
        put(t, ",\"offset\":%u", offset);
    }
}

static void put_counts(struct text *t, const struct survey *s) {
    put(t, ",\"tiles\":{");
    for (int k = 0; k < TILE_CLASSES; k++) {
        put(t, "%s\"%s\":%u", k > 0 ? "," : "", class_names[k], s->counts[k]);
    }
    put(t, "},\"map\":\"");
    for (uint32_t i = 0; i < TARGET_TILES; i++) {
        bool is_receive = (s->tiles[i].status >> 27 & 7) != 0;
        put(t, "%c", is_receive ? 'X' : class_letters[s->tiles[i].class]);
    }
    put(t, "\"");
}

static void put_barrier(struct text *t, const struct survey *s) {
    put(t, ",\"exception_count\":%u,\"receive_errors\":%u", s->exception_count, s->receive_errors);
    put(t, ",\"waits_known\":%s,", s->knows_waits ? "true" : "false");
    put_zone(t, "barrier", s->barrier);
    put(t, ",\"arrived\":%u,\"missing_count\":%u", s->waiting_at_barrier, s->missing_count);
}

static void put_chip(struct text *t, const struct survey *s) {
    put(t, ",\"marks\":[");
    for (int g = 0; g < 2; g++) {
        put(t, g > 0 ? "," : "");
        if (s->has_mark[g]) {
            put(t, "{\"value\":%u,\"now\":%s}", s->marks[g], s->is_mark_read[g] ? "true" : "false");
        } else {
            put(t, "null");
        }
    }
    put(t, "],\"ccsr\":%u,\"complex_csr\":%u,\"exchange_blocks\":[", s->ccsr, s->complex_csr);
    for (int i = 0; i < 2 * XB_COUNT; i++) {
        put(t, "%s%u", i > 0 ? "," : "", s->blocks[i]);
    }
    put(t, "]");
}

static void
put_exception(struct text *t, const struct survey *s, const struct survey_exception *x) {
    uint32_t code = s->tiles[x->tile].status >> 27 & 7;
    put(t, "{");
    put_tile(t, x->tile);
    put(t, ",\"context\":%u,\"state\":%u,\"exception\":\"%s\",\"type\":%u", x->context, x->state,
        tdi_exception_name(x->etype), x->etype);
    put_place(t, x->pc, x->symbol, x->offset);
    put(t, ",\"instruction\":");
    put_string(t, x->instruction[0] != '\0' ? x->instruction : NULL);
    put(t, ",\"receive_error\":");
    put_string(t, code != 0 ? tdi_receive_error_name(code) : NULL);
    put(t, ",\"phase\":");
    put_string(t, x->row);
    if (x->is_in_row) {
        put(t, ",\"row_word\":%u", x->word);
    }
    put(t, ",\"status\":%u,\"dcount\":%u,\"exchange_ctl\":%u", x->status, x->dcount & 0x1ffff,
        x->exchange_ctl);
    if (x->has_registers) {
        put(t, ",\"m\":[");
        for (int i = 0; i < DEVICE_M_REGISTERS; i++) {
            put(t, "%s%u", i > 0 ? "," : "", x->m[i]);
        }
        put(t, "]");
    }
    put(t, "}");
}

static void put_exceptions(struct text *t, const struct survey *s) {
    struct list l = list_open(t, "exceptions");
    for (uint32_t i = 0; i < s->exception_count && i < SURVEY_MAX_EXCEPTIONS && list_item(&l);
         i++) {
        put_exception(t, s, &s->exceptions[i]);
        list_item_end(&l);
    }
    list_close(&l);
}

static void put_waits(struct text *t, const struct survey *s) {
    struct list l = list_open(t, s->knows_waits ? "waits" : "last_work");
    for (uint32_t i = 0; i < s->group_count && list_item(&l); i++) {
        const struct survey_group *g = &s->groups[i];
        put(t, "{\"symbol\":");
        put_string(t, g->symbol);
        if (s->knows_waits) {
            put(t, ",");
            put_zone(t, "sync", g->zone);
            put(t, ",\"phase\":");
            put_string(t, g->phase);
        }
        put(t, ",\"count\":%u,\"tiles\":[", g->count);
        for (uint32_t k = 0; k < g->count && k < SURVEY_MAX_NAMED; k++) {
            put(t, "%s%u", k > 0 ? "," : "", g->tiles[k]);
        }
        put(t, "]}");
        list_item_end(&l);
    }
    list_close(&l);
}

static void put_missing(struct text *t, const struct survey *s) {
    struct list m = list_open(t, "missing");
    for (uint32_t i = 0; i < s->missing_count && i < SURVEY_MAX_MISSING && list_item(&m); i++) {
        const struct survey_tile *x = &s->tiles[s->missing[i]];
        put(t, "{");
        put_tile(t, s->missing[i]);
        put(t, ",\"class\":\"%s\",", class_names[x->class]);
        put_zone(t, "sync", x->zone);
        if (x->has_position) {
            put_place(t, x->pc, x->symbol, x->offset);
        }
        put(t, "}");
        list_item_end(&m);
    }
    list_close(&m);
}

static void put_running(struct text *t, const struct survey *s) {
    uint32_t told = 0;
    struct list l = list_open(t, "running");
    for (uint16_t i = 0; i < TARGET_TILES && told < SURVEY_MAX_NAMED; i++) {
        const struct survey_tile *x = &s->tiles[i];
        if (x->class != TILE_RUNNING || !x->has_position) {
            continue;
        }
        if (!list_item(&l)) {
            break;
        }
        told++;
        put(t, "{");
        put_tile(t, i);
        put(t, ",\"context\":%u", x->context);
        put_place(t, x->pc, x->symbol, x->offset);
        put(t, "}");
        list_item_end(&l);
    }
    list_close(&l);
}

char *survey_print(const struct survey *s, const char *seam_text) {
    char summary[320];
    struct text t = {.bytes = malloc(DEVICE_POSTMORTEM_BYTES)};
    if (t.bytes == NULL) {
        return NULL;
    }
    survey_summary(s, summary, sizeof summary);
    put(&t, "{\"verdict\":\"%s\",\"summary\":", survey_verdict(s));
    put_string(&t, summary);
    put(&t, ",\"error\":");
    put_string(&t, seam_text);
    put(&t, ",\"incomplete\":");
    put_string(&t, s->incomplete.code != 0 ? s->incomplete.text : NULL);
    put(&t, ",\"elapsed_ns\":%llu", (unsigned long long)s->elapsed_ns);
    put_counts(&t, s);
    put_chip(&t, s);
    put_barrier(&t, s);
    put_exceptions(&t, s);
    put_missing(&t, s);
    put_running(&t, s);
    put_waits(&t, s);
    /* TAIL_BYTES are kept for these. */
    t.used +=
        (size_t)snprintf(t.bytes + t.used, TAIL_BYTES, ",\"cut\":%s}", t.is_cut ? "true" : "false");
    return t.bytes;
}
