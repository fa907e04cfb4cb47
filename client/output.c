/* See output.h. */
#include "client/output.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define BAR_CELLS 30

/* Bytes of the UTF-8 character at s, 0 when it is broken, overlong or a C1 control. */
static int utf8_bytes(const unsigned char *s) {
    int n = s[0] < 0x80 ? 1 : (s[0] & 0xe0) == 0xc0 ? 2 : (s[0] & 0xf0) == 0xe0 ? 3 : 4;
    if ((s[0] >= 0x80 && s[0] < 0xc2) || s[0] > 0xf4) {
        return 0;
    }
    for (int i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    bool is_low = (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xf0 && s[1] < 0x90);
    bool is_c1 = s[0] == 0xc2 && s[1] < 0xa0;
    return is_low || is_c1 ? 0 : n;
}

static void escape(FILE *out, const char *text, bool is_quoted) {
    for (const unsigned char *s = (const unsigned char *)text; *s != '\0';) {
        int n = utf8_bytes(s);
        if (is_quoted && (*s == '"' || *s == '\\')) {
            fprintf(out, "\\%c", *s++);
        } else if (n == 0 || *s < 0x20 || *s == 0x7f) {
            fprintf(out, "\\x%02x", *s++);
        } else {
            fwrite(s, 1, (size_t)n, out);
            s += n;
        }
    }
}

void output_text(FILE *out, const char *text) {
    escape(out, text, false);
}

void output_error(const struct err *err) {
    fputs("ipuctl: ", stderr);
    /* Many texts begin with their place already. */
    if (err->where[0] != '\0' && strncmp(err->text, err->where, strlen(err->where)) != 0) {
        output_text(stderr, err->where);
        fputs(": ", stderr);
    }
    output_text(stderr, err->text[0] != '\0' ? err->text : err_text(err->code));
    fprintf(stderr, " (%s)\n", err_name(err->code));
}

void output_json(const json_t *document) {
    /* All that is not ASCII is escaped: control characters of the upper half included. */
    json_dumpf(document, stdout, JSON_INDENT(1) | JSON_ENSURE_ASCII | JSON_ENCODE_ANY);
    fputc('\n', stdout);
}

json_t *output_member(const json_t *document, const char *name) {
    char part[64];
    const json_t *at = document;
    while (at != NULL && *name != '\0') {
        size_t n = strcspn(name, ".");
        snprintf(part, sizeof part, "%.*s", (int)n, name);
        at = json_object_get(at, part);
        name += n + (name[n] == '.');
    }
    return (json_t *)at;
}

/* ---- Documents --------------------------------------------------------------------------- */

static void print_scalar(FILE *out, const json_t *v) {
    if (json_is_string(v)) {
        output_text(out, json_string_value(v));
    } else if (json_is_integer(v)) {
        fprintf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    } else if (json_is_real(v)) {
        fprintf(out, "%.6g", json_real_value(v));
    } else if (json_is_boolean(v)) {
        fputs(json_is_true(v) ? "true" : "false", out);
    } else if (v == NULL || json_is_null(v)) {
        fputs("-", out);
    } else {
        char *text = json_dumps(v, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(6));
        fputs(text != NULL ? text : "?", out);
        free(text);
    }
}

static void print_members(const char *prefix, const json_t *object) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        char name[160];
        snprintf(name, sizeof name, "%s%s%s", prefix, prefix[0] != '\0' ? "." : "", key);
        size_t i;
        json_t *item;
        if (json_is_object(value)) {
            print_members(name, value);
        } else if (json_is_array(value) && json_is_object(json_array_get(value, 0))) {
            json_array_foreach(value, i, item) {
                char row[192];
                snprintf(row, sizeof row, "%s[%zu]", name, i);
                print_members(row, item);
            }
        } else if (!json_is_null(value)) {
            output_text(stdout, name);
            fputs(": ", stdout);
            print_scalar(stdout, value);
            fputc('\n', stdout);
        }
    }
}

void output_document(const json_t *document, bool as_json) {
    if (as_json || !json_is_object(document)) {
        output_json(document);
    } else {
        print_members("", document);
    }
}

/* ---- Tables ------------------------------------------------------------------------------ */

static void cell(const json_t *item, const struct output_column *c, char *ret, size_t n) {
    const json_t *v = output_member(item, c->member);
    memset(ret, 0, n);
    FILE *out = fmemopen(ret, n - 1, "w");
    if (out == NULL) {
        return;
    }
    const char *text = json_string_value(v);
    if (text != NULL && c->kind == OUTPUT_DIGEST) {
        text += strncmp(text, "sha256:", 7) == 0 ? 7 : 0;
        char cut[13];
        snprintf(cut, sizeof cut, "%.12s", text);
        output_text(out, cut);
    } else if (text != NULL && c->kind == OUTPUT_TIME && strlen(text) > 19) {
        char cut[20];
        snprintf(cut, sizeof cut, "%.19s", text); /* seconds are enough for a table */
        output_text(out, cut);
    } else {
        print_scalar(out, v);
    }
    fclose(out);
}

void output_list(
    const json_t *document, const json_t *items, const struct output_column *columns, int n,
    bool as_json) {
    if (as_json) {
        output_json(document);
        return;
    }
    bool is_table = isatty(STDOUT_FILENO) == 1;
    int width[16] = {0};
    char text[256];
    size_t i;
    json_t *item;
    for (int c = 0; c < n && is_table; c++) {
        width[c] = (int)strlen(columns[c].title);
        json_array_foreach(items, i, item) {
            cell(item, &columns[c], text, sizeof text);
            width[c] = (int)strlen(text) > width[c] ? (int)strlen(text) : width[c];
        }
    }
    for (int c = 0; c < n && is_table; c++) {
        printf("%-*s%s", c + 1 < n ? width[c] : 0, columns[c].title, c + 1 < n ? "  " : "\n");
    }
    json_array_foreach(items, i, item) {
        for (int c = 0; c < n; c++) {
            cell(item, &columns[c], text, sizeof text);
            const char *gap = c + 1 == n ? "\n" : is_table ? "  " : "\t";
            printf("%-*s%s", is_table && c + 1 < n ? width[c] : 0, text, gap);
        }
    }
}

/* ---- Events ------------------------------------------------------------------------------ */

static void print_value(FILE *out, const char *key, const json_t *value) {
    fputc(' ', out);
    output_text(out, key);
    fputc('=', out);
    const char *text = json_string_value(value);
    if (text != NULL && strcmp(key, "data") == 0) {
        fprintf(out, "<%zu characters>", strlen(text)); /* tensor bytes are not for people */
    } else if (text != NULL) {
        fputc('"', out);
        escape(out, text, true);
        fputc('"', out);
    } else {
        print_scalar(out, value);
    }
}

void output_event(FILE *out, const json_t *event) {
    const char *time = json_string_value(json_object_get(event, "time"));
    const char *message = json_string_value(json_object_get(event, "message"));
    if (time != NULL) {
        output_text(out, time);
        fputc(' ', out);
    }
    output_text(out, message != NULL ? message : "?");
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(event, "fields"), key, value) {
        print_value(out, key, value);
    }
    fputc('\n', out);
}

void output_fields(FILE *out, const json_t *fields) {
    const char *key, *gap = "";
    json_t *value;
    json_object_foreach((json_t *)fields, key, value) {
        fputs(gap, out);
        output_text(out, key);
        fputc('=', out);
        if (json_is_real(value)) {
            fprintf(out, "%.6f", json_real_value(value));
        } else if (json_is_string(value)) {
            output_text(out, json_string_value(value));
        } else {
            print_scalar(out, value);
        }
        gap = " ";
    }
    fputc('\n', out);
}

/* ---- Progress ---------------------------------------------------------------------------- */

void progress_init(struct progress *p, bool is_quiet) {
    memset(p, 0, sizeof *p);
    p->is_quiet = is_quiet;
    p->is_bar = isatty(STDERR_FILENO) == 1;
}

void progress_clear(struct progress *p) {
    if (p->is_open) {
        fputs("\r\033[K", stderr);
        p->is_open = false;
    }
}

static void draw(struct progress *p) {
    int filled = p->runs > 0 ? (int)(p->done * BAR_CELLS / p->runs) : 0;
    char bar[BAR_CELLS + 1];
    for (int i = 0; i < BAR_CELLS; i++) {
        bar[i] = i < filled ? '#' : '.';
    }
    bar[BAR_CELLS] = '\0';
    if (p->runs > 0) {
        fprintf(stderr, "\r\033[K%s [%s] %lld/%lld", p->state, bar, p->done, p->runs);
    } else {
        fprintf(stderr, "\r\033[K%s ...", p->state);
    }
    fflush(stderr);
    p->is_open = true;
}

void progress_state(struct progress *p, const char *job, const char *state) {
    snprintf(
        p->state, sizeof p->state, "%.*s", (int)strspn(state, "abcdefghijklmnopqrstuvwxyz_"),
        state);
    if (p->is_quiet) {
        return;
    }
    if (p->is_bar) {
        draw(p);
    } else {
        fprintf(stderr, "job %s: %s\n", job, p->state);
    }
}

void progress_runs(struct progress *p, long long done, long long runs) {
    p->done = done;
    p->runs = runs;
    if (!p->is_quiet && p->is_bar) {
        draw(p);
    }
}
