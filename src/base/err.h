/* Error values (R13).
 *
 * A function that can fail returns int: 0, or -ERR_x, and takes the caller's `struct err *err`
 * as its last argument. The struct has a fixed size and owns nothing; it is written only on
 * failure. `err` may be NULL when the caller wants the code alone.
 *
 *     return err_set(err, ERR_SHAPE, "tensor '%s': %d dims, at most %d", name, n, MAX_DIMS);
 *
 * `where` names the place in the user's terms: a file, "file:line:column", a JSON pointer, a
 * section. err_at() sets it; err_wrap() prefixes context to the text on the way up.
 */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include <stdarg.h>

enum err_code {
    ERR_OK = 0,
#define ERR(NAME, code, http, exit, text) ERR_##NAME,
#include "base/err.def"
#undef ERR
    ERR_COUNT
};

struct err {
    int code;        /* enum err_code, 0 when unset */
    int sys;         /* errno at the failure, 0 when none */
    char where[192]; /* place, empty when unknown */
    char text[640];  /* one sentence without a full stop */
};

/* Sets err and returns -code. Keeps errno in err->sys for ERR_IO and friends only through
 * err_sys(). Long texts are cut, never overrun. */
int err_set(struct err *err, enum err_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* As err_set() with a place. */
int err_at(struct err *err, enum err_code code, const char *where, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* As err_set(), appends ": " and strerror(sys) and stores sys. */
int err_sys(struct err *err, enum err_code code, int sys, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Prefixes "<context>: " to the text and returns -err->code (or -ERR_INTERNAL when err is
 * NULL or unset). */
int err_wrap(struct err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Sets the place if none is set yet; returns -err->code. */
int err_where(struct err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));
void err_clear(struct err *err);

/* Rows of err.def. Unknown codes answer as ERR_INTERNAL. */
const char *err_name(int code);      /* "shape_mismatch" */
const char *err_text(int code);      /* default sentence */
int err_http(int code);              /* 422 */
int err_exit(int code);              /* 9 */
int err_from_name(const char *name); /* enum err_code, 0 when unknown */
int err_from_exit(int status);       /* first code with that exit status, 0 when none */

#endif
