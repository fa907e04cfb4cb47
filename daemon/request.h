/* One request between head and reply; called by server.c. */
#ifndef DAEMON_REQUEST_H
#define DAEMON_REQUEST_H

#include "daemon/server.h"
#include "daemon/store.h"

struct request *request_new(
    struct daemon *d, struct connection *c, struct MHD_Connection *mhd,
    const char *target); /* NULL when out of memory */
void request_free(struct request *r, bool was_sent);
/* Target, route, headers, admission. */
void request_head(struct request *r, const char *method, const char *version, size_t in_service);
void request_piece(struct request *r, const char *bytes, size_t n);
/* The body is complete: calls the handler. */
void request_end(struct request *r);

/* server.c */
void request_suspend(struct request *r);
void request_resume(struct request *r);

/* Query parameters; a faulty value is ERR_INVALID with the name as place. */
const char *request_query(const struct request *r, const char *name);
int request_query_int(
    const struct request *r, const char *name, int64_t low, int64_t high, int64_t fallback,
    int64_t *ret, struct err *err);
const char *request_header(const struct request *r, const char *name); /* or NULL */

/* A store operation that answers a request. run() is the handler's; reply() runs on the loop
 * when run() succeeded, else the error is the reply. The request is suspended meanwhile. */
struct request_op {
    struct store_op op;
    struct request *request;
    void (*reply)(struct request_op *op);
    void (*free)(struct request_op *op); /* releases what run() made; NULL = plain free() */
};

/* Allocates with calloc(size); NULL after replying that memory is out. */
void *request_op_new(
    struct request *r, size_t size,
    int (*run)(struct store_op *op, struct cache *c, struct err *err),
    void (*reply)(struct request_op *op));
void request_op_submit(struct request_op *op);

/* Calls on_<route>() (routes.c). */
void route_dispatch(struct request *r);

#endif
