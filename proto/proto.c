/* Ids, times, durations, JSON texts and problem documents: the small words of the contract.
 * Every loop runs over its argument's bytes once. */
#include "proto/proto.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Crockford's alphabet: no I, L, O, U, and in ASCII order, so ids sort like their numbers. */
static const char id_digits[] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

void proto_id_make(uint64_t ms, const uint8_t random[10], char ret[PROTO_ID_CHARS + 1]) {
    for (int i = 9; i >= 0; i--) {
        ret[i] = id_digits[ms & 31];
        ms >>= 5;
    }
    for (int half = 0; half < 2; half++) {
        uint64_t bits = 0;
        for (int i = 0; i < 5; i++) {
            bits = bits << 8 | random[5 * half + i];
        }
        for (int i = 7; i >= 0; i--) {
            ret[10 + 8 * half + i] = id_digits[bits & 31];
            bits >>= 5;
        }
    }
    ret[PROTO_ID_CHARS] = '\0';
}

bool proto_id_valid(const char *text) {
    size_t n = strnlen(text, PROTO_ID_CHARS + 1);
    if (n != PROTO_ID_CHARS || text[0] > '7') {
        return false;
    }
    return strspn(text, id_digits) == PROTO_ID_CHARS;
}

bool proto_alias_parse(const char *text, int64_t *ret) {
    size_t n = strnlen(text, 20);
    if (n == 0 || n > 18 || text[0] == '0' || strspn(text, "0123456789") != n) {
        return false;
    }
    *ret = strtoll(text, NULL, 10);
    return true;
}

void proto_time_print(uint64_t ms, char ret[PROTO_TIME_CHARS + 1]) {
    time_t seconds = (time_t)(ms / 1000);
    struct tm tm;
    if (seconds > 253402300799 || gmtime_r(&seconds, &tm) == NULL) { /* the year 9999 */
        memset(&tm, 0, sizeof tm);
        tm.tm_mday = 1;
    }
    char text[64];
    snprintf(
        text, sizeof text, "%04d-%02d-%02dT%02d:%02d:%02d.%03uZ", tm.tm_year + 1900, tm.tm_mon + 1,
        tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, (unsigned)(ms % 1000));
    memcpy(ret, text, PROTO_TIME_CHARS);
    ret[PROTO_TIME_CHARS] = '\0';
}

int proto_duration_parse(const char *text, uint64_t *ret_ms, struct err *err) {
    static const struct {
        const char *unit;
        uint64_t ms;
    } units[] = {{"", 1000}, {"s", 1000}, {"ms", 1}, {"m", 60000}, {"h", 3600000}};
    size_t digits = strspn(text, "0123456789");
    if (digits > 0 && digits <= 12) {
        uint64_t value = strtoull(text, NULL, 10);
        for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
            if (strcmp(text + digits, units[i].unit) == 0) {
                *ret_ms = value * units[i].ms;
                return 0;
            }
        }
    }
    return err_set(err, ERR_INVALID, "'%.40s' is no duration: 30s, 500ms, 5m, 2h", text);
}

/* ---- JSON texts -------------------------------------------------------------------------- */

/* The parser's own nesting limit is 2048, far too deep for recursive readers: count brackets
 * outside strings first. A malformed text is left to the parser. */
static bool json_too_deep(const char *text, size_t n, size_t *ret_at) {
    int depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (in_string) {
            i += c == '\\';
            in_string = c != '"';
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            if (++depth > PROTO_MAX_JSON_DEPTH) {
                *ret_at = i;
                return true;
            }
        } else if (c == '}' || c == ']') {
            depth--;
        }
    }
    return false;
}

static void json_place(const char *text, size_t at, char *ret, size_t n) {
    size_t line = 1;
    size_t column = 1;
    for (size_t i = 0; i < at; i++) {
        column++;
        if (text[i] == '\n') {
            line++;
            column = 1;
        }
    }
    snprintf(ret, n, "%zu:%zu", line, column);
}

int proto_json_parse(const char *text, size_t n, json_t **ret, struct err *err) {
    size_t at = 0;
    char place[48];
    if (json_too_deep(text, n, &at)) {
        json_place(text, at, place, sizeof place);
        return err_at(
            err, ERR_BAD_JSON, place, "nested deeper than %d levels", PROTO_MAX_JSON_DEPTH);
    }
    json_error_t e;
    json_t *document = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
    if (document == NULL) {
        snprintf(
            place, sizeof place, "%d:%d", e.line < 1 ? 1 : e.line, e.column < 1 ? 1 : e.column);
        /* The parser names its own switch, which nobody outside can set. */
        bool is_nul = strstr(e.text, "JSON_ALLOW_NUL") != NULL;
        return err_at(
            err, ERR_BAD_JSON, place, "%s", is_nul ? "a text must not hold \\u0000" : e.text);
    }
    *ret = document;
    return 0;
}

void proto_pointer(char *pointer, size_t n, const char *key) {
    size_t at = strlen(pointer);
    if (at + 1 < n) {
        pointer[at++] = '/';
    }
    for (; *key != '\0' && at + 3 < n; key++) {
        if (*key == '~' || *key == '/') {
            pointer[at++] = '~';
            pointer[at++] = *key == '~' ? '0' : '1';
        } else {
            pointer[at++] = *key;
        }
    }
    pointer[at] = '\0';
    /* Cutting may split a character; the text must stay UTF-8 for the reply. */
    while (at > 0 && *key != '\0' && ((unsigned char)pointer[at - 1] & 0x80) != 0) {
        pointer[--at] = '\0';
    }
}

/* ---- Problem documents ------------------------------------------------------------------- */

#define PROBLEM_TYPE "urn:ipud:error:"

bool proto_retriable(int code) {
    int http = err_http(code);
    return http == 429 || http == 503 || http == 507 || code == ERR_INTERRUPTED ||
           code == ERR_UNREACHABLE || code == ERR_TIMEOUT;
}

/* A text that reached an error from outside may have been cut inside a character. */
static json_t *json_text(const char *text) {
    json_t *s = json_string(text);
    if (s != NULL) {
        return s;
    }
    char clean[sizeof(((struct err *)NULL)->text)];
    snprintf(clean, sizeof clean, "%s", text);
    for (char *c = clean; *c != '\0'; c++) {
        if (((unsigned char)*c & 0x80) != 0) {
            *c = '?';
        }
    }
    return json_string(clean);
}

json_t *proto_problem_print(const struct err *e, const char *request_id, const char *instance) {
    int code = e->code > 0 && e->code < ERR_COUNT ? e->code : ERR_INTERNAL;
    char type[96];
    snprintf(type, sizeof type, PROBLEM_TYPE "%s", err_name(code));
    json_t *p = json_pack(
        "{s:s, s:s, s:i, s:o, s:s, s:b, s:i}", "type", type, "title", err_text(code), "status",
        err_http(code), "detail", json_text(e->text[0] != '\0' ? e->text : err_text(code)), "code",
        err_name(code), "retriable", proto_retriable(code), "exit", err_exit(code));
    if (p == NULL) {
        return NULL;
    }
    if (e->where[0] != '\0') {
        json_object_set_new(p, "where", json_text(e->where));
    }
    if (e->where[0] == '/') {
        json_object_set_new(
            p, "errors",
            json_pack(
                "[{s:o, s:o}]", "pointer", json_text(e->where), "detail", json_text(e->text)));
    }
    if (request_id != NULL) {
        json_object_set_new(p, "request_id", json_text(request_id));
    }
    if (instance != NULL) {
        json_object_set_new(p, "instance", json_text(instance));
    }
    return p;
}

void proto_problem_parse(const json_t *document, struct err *ret) {
    const char *name = json_string_value(json_object_get(document, "code"));
    int code = name != NULL ? err_from_name(name) : 0;
    if (code == 0) {
        err_set(ret, ERR_PROTOCOL, "the answer is no problem document");
        return;
    }
    const char *detail = json_string_value(json_object_get(document, "detail"));
    const char *where = json_string_value(json_object_get(document, "where"));
    err_at(ret, (enum err_code)code, where, "%s", detail != NULL ? detail : err_text(code));
}

/* ---- Job states -------------------------------------------------------------------------- */

static const char *const state_words[] = {
#define X(NAME, word) [PROTO_STATE_##NAME] = word,
    PROTO_STATE_LIST(X)
#undef X
};

_Static_assert(PROTO_STATE_STORING < PROTO_STATE_SUCCEEDED, "ended states come last");

const char *proto_state_name(enum proto_state s) {
    return (unsigned)s < PROTO_STATE_COUNT ? state_words[s] : "unknown";
}

bool proto_state_parse(const char *word, enum proto_state *ret) {
    for (int s = 0; s < PROTO_STATE_COUNT; s++) {
        if (strcmp(word, state_words[s]) == 0) {
            *ret = (enum proto_state)s;
            return true;
        }
    }
    return false;
}
