/* Requests to the daemon over its Unix socket, by libcurl.
 *
 * Job: method, path and body in, JSON or bytes out. Every call does one request on one kept
 * connection and waits for it; SIGINT, while http_watch_interrupt() is on, and a deadline end the
 * wait early.
 *
 * Errors: ERR_UNREACHABLE and ERR_PERMISSION say which step of the way to the socket fails and
 * what helps; a problem document becomes the error that it names; an answer that is none (what
 * the HTTP library of the daemon refuses itself has an HTML body) becomes the error of its status.
 * An upload that is refused early still yields its answer: bodies are sent after 100 Continue.
 *
 * Invariants: (1) nothing is printed here; (2) an answer kept in memory has at most
 * HTTP_MAX_ANSWER bytes, a line of a stream at most HTTP_MAX_LINE; (3) no proxy, no redirect, no
 * protocol but HTTP on the one socket.
 */
#ifndef CLIENT_HTTP_H
#define CLIENT_HTTP_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define HTTP_MAX_ANSWER (64u << 20)
#define HTTP_MAX_LINE   (1u << 20)
#define HTTP_MAX_PATH   1024
#define HTTP_SOCKET_MAX 107 /* sun_path without the final 0 */

struct http; /* owned; http_close() */

int http_open(const char *socket, struct http **ret, struct err *err);
void http_close(struct http *h); /* NULL accepted */
static inline void http_cleanup(struct http **h) {
    http_close(*h);
}

/* From now on SIGINT does not end the process but the request under way, with -ERR_CANCELLED. */
int http_watch_interrupt(struct http *h, struct err *err);
bool http_is_interrupted(const struct http *h);
/* Requests end with -ERR_TIMEOUT when the monotonic clock passes this; 0 = never. */
void http_deadline(struct http *h, uint64_t until_ms);
/* Waits, at most until interrupt or deadline. */
void http_sleep(struct http *h, unsigned ms);

/* "/v1/jobs/" + part with everything escaped that a path cannot hold. */
void http_path(char ret[HTTP_MAX_PATH], const char *before, const char *part, const char *after);

/* body NULL = none. `header` is one extra line or NULL. *ret is owned, NULL for an empty answer. */
int http_json(
    struct http *h, const char *method, const char *path, const char *header, const json_t *body,
    json_t **ret, struct err *err);
int http_get(struct http *h, const char *path, json_t **ret, struct err *err);
/* As http_get(), and an answer with this status is one too, not an error. */
int http_get_also(struct http *h, const char *path, long status, json_t **ret, struct err *err);
/* *ret_status is what came back, an error only when nothing did. */
int http_head(struct http *h, const char *path, long *ret_status, struct err *err);
/* Sends fd from offset 0, size bytes. */
int http_put(
    struct http *h, const char *path, int fd, uint64_t size, json_t **ret, struct err *err);
/* Writes the body to fd; nothing is written unless the status is 2xx. */
int http_download(struct http *h, const char *path, int fd, struct err *err);
/* Calls line() for each line of the body, without its newline; it stops the stream by a nonzero
 * return. 0 when the stream ended or was stopped, -ERR_UNREACHABLE when it broke. */
int http_lines(
    struct http *h, const char *path, int (*line)(const char *text, size_t n, void *arg), void *arg,
    struct err *err);

/* Why the socket cannot be used: walks the path. Returns 0 when a connection succeeds. */
int http_explain(const char *socket, struct err *err);

#endif
