/* Error values: see err.h. Nothing here allocates or fails. */
#include "base/err.h"

#include <stdio.h>
#include <string.h>

struct err_row {
    const char *name;
    int http;
    int exit;
    const char *text;
};

static const struct err_row err_rows[] = {
    [ERR_OK] = {"ok", 200, 0, "no error"},
#define ERR(NAME, code, http, exit, text) [ERR_##NAME] = {code, http, exit, text},
#include "base/err.def"
#undef ERR
};

_Static_assert(sizeof err_rows / sizeof err_rows[0] == ERR_COUNT, "one row a code");

static const struct err_row *err_row(int code) {
    if (code < 0) {
        code = -code;
    }
    return code < ERR_COUNT ? &err_rows[code] : &err_rows[ERR_INTERNAL];
}

const char *err_name(int code) {
    return err_row(code)->name;
}

const char *err_text(int code) {
    return err_row(code)->text;
}

int err_http(int code) {
    return err_row(code)->http;
}

int err_exit(int code) {
    return err_row(code)->exit;
}

int err_from_name(const char *name) {
    for (int code = 1; code < ERR_COUNT; code++) {
        if (strcmp(err_rows[code].name, name) == 0) {
            return code;
        }
    }
    return 0;
}

int err_from_exit(int status) {
    for (int code = 1; code < ERR_COUNT; code++) {
        if (err_rows[code].exit == status) {
            return code;
        }
    }
    return 0;
}

void err_clear(struct err *err) {
    if (err != NULL) {
        memset(err, 0, sizeof *err);
    }
}

__attribute__((format(printf, 5, 0))) static int err_fill(
    struct err *err, enum err_code code, int sys, const char *where, const char *format,
    va_list ap) {
    if (err == NULL) {
        return -(int)code;
    }
    err_clear(err);
    err->code = (int)code;
    err->sys = sys;
    if (where != NULL) {
        snprintf(err->where, sizeof err->where, "%s", where);
    }
    if (format == NULL || format[0] == '\0') {
        snprintf(err->text, sizeof err->text, "%s", err_text((int)code));
    } else {
        vsnprintf(err->text, sizeof err->text, format, ap);
    }
    return -(int)code;
}

int err_set(struct err *err, enum err_code code, const char *format, ...) {
    va_list ap;
    va_start(ap, format);
    int r = err_fill(err, code, 0, NULL, format, ap);
    va_end(ap);
    return r;
}

int err_at(struct err *err, enum err_code code, const char *where, const char *format, ...) {
    va_list ap;
    va_start(ap, format);
    int r = err_fill(err, code, 0, where, format, ap);
    va_end(ap);
    return r;
}

int err_sys(struct err *err, enum err_code code, int sys, const char *format, ...) {
    va_list ap;
    va_start(ap, format);
    int r = err_fill(err, code, sys, NULL, format, ap);
    va_end(ap);
    if (err != NULL) {
        size_t used = strlen(err->text);
        snprintf(err->text + used, sizeof err->text - used, ": %s", strerror(sys));
    }
    return r;
}

int err_wrap(struct err *err, const char *format, ...) {
    if (err == NULL || err->code == 0) {
        return -ERR_INTERNAL;
    }
    char context[sizeof err->text];
    va_list ap;
    va_start(ap, format);
    vsnprintf(context, sizeof context, format, ap);
    va_end(ap);
    char joined[2 * sizeof err->text + 2];
    snprintf(joined, sizeof joined, "%s: %s", context, err->text);
    joined[sizeof err->text - 1] = '\0';
    memcpy(err->text, joined, strlen(joined) + 1);
    return -err->code;
}

int err_where(struct err *err, const char *format, ...) {
    if (err == NULL || err->code == 0) {
        return -ERR_INTERNAL;
    }
    if (err->where[0] == '\0') {
        va_list ap;
        va_start(ap, format);
        vsnprintf(err->where, sizeof err->where, format, ap);
        va_end(ap);
    }
    return -err->code;
}
