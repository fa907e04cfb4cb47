/* Log lines: "module: what happened key=value". The library is silent above debug (R29 of the
 * style's logging row); programs log. Sinks: stderr as plain text, stderr with journal priority
 * prefixes ("<6>"), or a test's callback. The level and the sink are the only mutable file-level
 * variables of src/. Thread-safe: one write() a line; errno is preserved. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

enum log_level { LOG_ERROR = 3, LOG_WARNING = 4, LOG_NOTICE = 5, LOG_INFO = 6, LOG_DEBUG = 7 };

typedef void log_sink_fn(enum log_level level, const char *line, void *arg);

void log_set_level(enum log_level level);        /* default LOG_INFO */
void log_set_journal(int on);                    /* default: on when $JOURNAL_STREAM is set */
void log_set_sink(log_sink_fn *sink, void *arg); /* NULL restores stderr */
/* Control characters in the text are escaped, lines are cut at 4 KiB. */
void log_print(enum log_level level, const char *module, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#define log_error(module, ...)   log_print(LOG_ERROR, module, __VA_ARGS__)
#define log_warning(module, ...) log_print(LOG_WARNING, module, __VA_ARGS__)
#define log_notice(module, ...)  log_print(LOG_NOTICE, module, __VA_ARGS__)
#define log_info(module, ...)    log_print(LOG_INFO, module, __VA_ARGS__)
#define log_debug(module, ...)   log_print(LOG_DEBUG, module, __VA_ARGS__)

#endif
