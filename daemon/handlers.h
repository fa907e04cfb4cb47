/* One handler a route, and what they share. A handler parses, asks the store or the table of jobs,
 * and replies; nothing else. */
#ifndef DAEMON_HANDLERS_H
#define DAEMON_HANDLERS_H

#include "daemon/jobs.h"
#include "daemon/request.h"
#include "daemon/server.h"
#include "daemon/store.h"

#define ROUTE(id, method, path, body, limit, role, summary) void on_##id(struct request *r);
#include "proto/routes.def"
#undef ROUTE

/* Store thread: the row of the request's {job} if the caller may see it; else not found. */
int handler_job(struct request *r, struct cache *c, struct cache_job *ret, struct err *err);
/* The row as the API shows it; owned. */
json_t *handler_job_json(const struct cache_job *row);
/* Loop: adds why a job waits, if it does. */
void handler_add_reason(struct daemon *d, json_t *job);
/* The request's {digest}; it has been checked with the head. */
void handler_digest(const struct request *r, struct digest *ret);
/* True after replying 304: the caller's If-None-Match names this tag. */
bool handler_not_modified(struct request *r, const char *etag);
/* Streams `bytes` of fd from offset, after `head`. Takes fd and head. etag may be NULL. */
void handler_send_file(
    struct request *r, int fd, uint64_t offset, uint64_t bytes, char *head, size_t head_bytes,
    const char *type, const char *etag);

#endif
