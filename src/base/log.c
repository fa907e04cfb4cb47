/* Log lines. A line is built on the stack and leaves with one write(), so lines of threads never
 * mix; errno is the caller's afterwards. */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define LINE_BYTES 4096
#define UNSET      (-1)

/* The only mutable variables of the library. The sink is set before threads start. */
static _Atomic int log_level = LOG_INFO;
static _Atomic int log_journal = UNSET;
static log_sink_fn *log_sink;
static void *log_sink_arg;

void log_set_level(enum log_level level) {
    atomic_store(&log_level, (int)level);
}

void log_set_journal(int on) {
    atomic_store(&log_journal, on != 0);
}

void log_set_sink(log_sink_fn *sink, void *arg) {
    log_sink = sink;
    log_sink_arg = arg;
}

static int has_journal(void) {
    int on = atomic_load(&log_journal);
    return on != UNSET ? on : getenv("JOURNAL_STREAM") != NULL;
}

/* Copies text, control characters as \xNN, leaving room for a newline and the final 0. */
static size_t escape(char *line, size_t used, const char *text) {
    static const char digits[] = "0123456789abcdef";
    for (const char *p = text; *p != '\0'; p++) {
        unsigned char c = (unsigned char)*p;
        int is_control = c < ' ' || c == 0x7f;
        if (used + (is_control ? 4 : 1) > LINE_BYTES - 2) {
            break;
        }
        if (is_control) {
            line[used++] = '\\';
            line[used++] = 'x';
            line[used++] = digits[c >> 4];
            line[used++] = digits[c & 15];
        } else {
            line[used++] = (char)c;
        }
    }
    return used;
}

static void write_line(const char *line, size_t n) {
    while (n > 0) {
        ssize_t done = write(STDERR_FILENO, line, n);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            return; /* nowhere left to complain */
        }
        line += done;
        n -= (size_t)done;
    }
}

void log_print(enum log_level level, const char *module, const char *format, ...) {
    if ((int)level > atomic_load(&log_level)) {
        return;
    }
    int saved = errno;
    char text[LINE_BYTES];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);

    char line[LINE_BYTES];
    size_t used = 0;
    if (log_sink == NULL && has_journal()) {
        used = (size_t)snprintf(line, sizeof line, "<%d>", (int)level);
    }
    used = escape(line, used, module);
    used = escape(line, used, ": ");
    used = escape(line, used, text);
    if (log_sink != NULL) {
        line[used] = '\0';
        log_sink(level, line, log_sink_arg);
    } else {
        line[used++] = '\n';
        write_line(line, used);
    }
    errno = saved;
}
