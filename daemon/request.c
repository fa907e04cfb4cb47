/* See request.h. What the library lets through is judged here, on the first callback: the raw
 * target, repeated or missing headers, transfer codings, types, sizes, admission. */
#include "daemon/request.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/monotonic.h"

struct request *request_new(
    struct daemon *d, struct connection *c, struct MHD_Connection *mhd, const char *target) {
    struct request *r = calloc(1, sizeof *r);
    if (r == NULL || (r->raw_target = strdup(target)) == NULL) {
        free(r);
        return NULL;
    }
    r->target_at = (uintptr_t)target;
    r->daemon = d;
    r->connection = c;
    r->mhd = mhd;
    daemon_new_id(r->id);
    if (c != NULL) {
        c->request = r;
    }
    return r;
}

/* ---- Uploads ----------------------------------------------------------------------------- */

/* Hands pieces of a body to the store, one at a time; the connection waits meanwhile. */
struct upload_op {
    struct store_op op;
    struct request *request; /* NULL: only throw the temporary away */
    struct cache_temp *temp;
    char *bytes; /* owned */
    size_t n;
    uint64_t expected;
};

static int upload_run(struct store_op *op, struct cache *c, struct err *err) {
    struct upload_op *u = (struct upload_op *)op;
    if (u->request == NULL) {
        cache_temp_abort(u->temp);
        return 0;
    }
    int r = u->temp == NULL ? cache_temp_open(c, u->expected, &u->temp, err) : 0;
    if (r == 0) {
        r = cache_temp_write(u->temp, u->bytes, u->n, err);
    }
    if (r < 0) {
        cache_temp_abort(u->temp);
        u->temp = NULL;
    }
    return r;
}

static void upload_done(struct store_op *op) {
    struct upload_op *u = (struct upload_op *)op;
    struct request *r = u->request;
    if (r != NULL) {
        r->temp = u->temp;
        if (op->result < 0) {
            reply_err(r, &op->err);
        }
        request_resume(r);
    }
    free(u->bytes);
    free(u);
}

static void upload_submit(struct request *r) {
    struct upload_op *u = calloc(1, sizeof *u);
    if (u == NULL) {
        struct err err;
        err_set(&err, ERR_NOMEM, NULL);
        reply_err(r, &err);
        return;
    }
    u->op.run = upload_run;
    u->op.done = upload_done;
    u->request = r;
    u->temp = r->temp;
    u->bytes = r->body;
    u->n = r->body_bytes;
    u->expected = r->content_bytes;
    r->body = NULL;
    r->body_bytes = 0;
    request_suspend(r);
    store_submit(r->daemon->store, &u->op);
}

static void upload_abandon(struct request *r) {
    /* Without store or memory the start of the next daemon sweeps it. */
    struct upload_op *u = r->daemon->store != NULL ? calloc(1, sizeof *u) : NULL;
    if (u != NULL) {
        u->op.run = upload_run;
        u->op.done = upload_done;
        u->temp = r->temp;
        store_submit(r->daemon->store, &u->op);
    }
    r->temp = NULL;
}

/* ---- End --------------------------------------------------------------------------------- */

static void request_log(const struct request *r, bool was_sent) {
    const struct proto_route *route = r->match.route;
    bool is_quiet = r->status < 400;
    log_print(
        is_quiet ? LOG_DEBUG : LOG_INFO, "http", "request=%s uid=%d route=%s status=%u sent=%s",
        r->id, r->connection != NULL ? (int)r->connection->peer.uid : -1,
        route != NULL ? route->name : "none", r->status, was_sent ? "yes" : "no");
}

void request_free(struct request *r, bool was_sent) {
    if (r->temp != NULL) {
        upload_abandon(r);
    }
    unsigned hundreds = r->status / 100 < 6 ? r->status / 100 : 5;
    if (r->match.route != NULL) {
        r->daemon->counters.requests[r->match.route->id][hundreds]++;
    } else {
        r->daemon->counters.unrouted++;
    }
    request_log(r, was_sent);
    if (r->connection != NULL && r->connection->request == r) {
        r->connection->request = NULL;
        r->connection->since_ms = monotonic_ms();
    }
    if (r->match.route != NULL && r->match.route->body == PROTO_BODY_JSON && r->body != NULL) {
        r->daemon->body_bytes -= (size_t)r->content_bytes;
    }
    if (r->response != NULL) {
        MHD_destroy_response(r->response);
    }
    json_decref(r->json);
    free(r->body);
    free(r->raw_target);
    free(r);
}

/* ---- Head -------------------------------------------------------------------------------- */

const char *request_header(const struct request *r, const char *name) {
    return MHD_lookup_connection_value(r->mhd, MHD_HEADER_KIND, name);
}

const char *request_query(const struct request *r, const char *name) {
    return proto_target_query(&r->target, name);
}

int request_query_int(
    const struct request *r, const char *name, int64_t low, int64_t high, int64_t fallback,
    int64_t *ret, struct err *err) {
    const char *text = request_query(r, name);
    *ret = fallback;
    if (text == NULL) {
        return 0;
    }
    char *end = NULL;
    errno = 0;
    int64_t value = strtoll(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || value < low ||
        value > high) {
        return err_at(
            err, ERR_INVALID, name, "%s: '%.40s' is no number from %lld to %lld", name, text,
            (long long)low, (long long)high);
    }
    *ret = value;
    return 0;
}

/* The library hands out the target as a C string, so a zero byte cuts it. Both texts lie in its one
 * buffer of the request line, the version right behind the target and the blank: a longer way
 * between them than the target is long means that something was cut. */
static int check_target(const struct request *r, const char *version, struct err *err) {
    uintptr_t at = (uintptr_t)version;
    size_t n = strlen(r->raw_target);
    if (at > r->target_at + n + 1 && at - r->target_at <= SERVER_BUFFER_BYTES) {
        return err_set(
            err, ERR_INVALID, "zero byte or blank in the request target, %zu bytes from its start",
            n);
    }
    return 0;
}

struct header_count {
    int content_length, transfer_encoding, host, content_type, idempotency;
    bool is_chunked;
};

static enum MHD_Result
count_header(void *arg, enum MHD_ValueKind kind, const char *name, const char *value) {
    struct header_count *n = arg;
    n->content_length += strcasecmp(name, "Content-Length") == 0;
    n->host += strcasecmp(name, "Host") == 0;
    n->content_type += strcasecmp(name, "Content-Type") == 0;
    n->idempotency += strcasecmp(name, "Idempotency-Key") == 0;
    if (strcasecmp(name, "Transfer-Encoding") == 0) {
        n->transfer_encoding++;
        n->is_chunked = value != NULL && strcasecmp(value, "chunked") == 0;
    }
    return MHD_YES;
}

static int check_headers(struct request *r, const char *version, struct err *err) {
    struct header_count n;
    memset(&n, 0, sizeof n);
    MHD_get_connection_values(r->mhd, MHD_HEADER_KIND, count_header, &n);
    if (n.content_length > 1 || n.content_type > 1 || n.idempotency > 1 || n.host > 1) {
        return err_set(err, ERR_INVALID, "a header that may stand once is repeated");
    }
    if (n.host == 0 && strcmp(version, MHD_HTTP_VERSION_1_1) == 0) {
        return err_set(err, ERR_INVALID, "the Host header is missing");
    }
    if (n.transfer_encoding > 0 && (n.transfer_encoding > 1 || !n.is_chunked)) {
        return err_set(err, ERR_INVALID, "transfer coding is not understood: only chunked is");
    }
    if (n.transfer_encoding > 0 && n.content_length > 0) {
        return err_set(err, ERR_INVALID, "Content-Length and Transfer-Encoding stand together");
    }
    const char *id = request_header(r, "X-Request-Id");
    if (id != NULL) {
        size_t length = strlen(id);
        for (size_t i = 0; i < length && length <= PROTO_MAX_REQUEST_ID; i++) {
            length = isgraph((unsigned char)id[i]) && id[i] != '"' ? length : SIZE_MAX - 1;
        }
        if (length == 0 || length > PROTO_MAX_REQUEST_ID) {
            return err_set(
                err, ERR_INVALID, "X-Request-Id: 1 to %d printable characters",
                PROTO_MAX_REQUEST_ID);
        }
        strcpy(r->id, id);
    }
    const char *length = request_header(r, "Content-Length");
    r->content_bytes = length != NULL ? strtoull(length, NULL, 10) : 0;
    return 0;
}

static int check_body(struct request *r, struct err *err) {
    const struct proto_route *route = r->match.route;
    bool is_chunked = request_header(r, "Transfer-Encoding") != NULL;
    const char *type = request_header(r, "Content-Type");
    const char *coding = request_header(r, "Content-Encoding");
    bool has_body = is_chunked || r->content_bytes > 0;
    if (r->content_bytes > route->limit) {
        return err_set(
            err, ERR_TOO_LARGE, "body of %llu bytes, at most %llu",
            (unsigned long long)r->content_bytes, (unsigned long long)route->limit);
    }
    if (is_chunked && route->body == PROTO_BODY_NONE) {
        return err_set(err, ERR_TOO_LARGE, "this request takes no body");
    }
    if (coding != NULL && strcasecmp(coding, "identity") != 0) {
        return err_set(
            err, ERR_UNSUPPORTED_MEDIA, "Content-Encoding '%.40s': only identity", coding);
    }
    if (has_body && route->body == PROTO_BODY_JSON && type != NULL &&
        (strncasecmp(type, "application/json", 16) != 0 ||
         (type[16] != '\0' && type[16] != ';' && type[16] != ' '))) {
        return err_set(err, ERR_UNSUPPORTED_MEDIA, "Content-Type '%.40s': application/json", type);
    }
    if (route->body == PROTO_BODY_JSON) {
        uint64_t wanted = is_chunked ? route->limit : r->content_bytes;
        if (r->daemon->body_bytes + wanted > SERVER_MAX_BODIES) {
            return err_set(err, ERR_QUEUE_FULL, "too many request bodies at a time");
        }
        r->body = malloc((size_t)wanted + 1);
        if (r->body == NULL) {
            return err_set(err, ERR_NOMEM, "body of %llu bytes", (unsigned long long)wanted);
        }
        r->content_bytes = wanted;
        r->daemon->body_bytes += (size_t)wanted;
    }
    return 0;
}

void request_head(struct request *r, const char *method, const char *version, size_t in_service) {
    struct err err;
    err_clear(&err);
    r->state = REQUEST_BODY;
    r->is_head = strcmp(method, "HEAD") == 0;
    if (r->connection->err.code != 0) {
        err = r->connection->err;
    } else if (
        check_target(r, version, &err) == 0 &&
        proto_target_parse(r->raw_target, strlen(r->raw_target), &r->target, &err) == 0 &&
        check_headers(r, version, &err) == 0 &&
        proto_route_match(method, &r->target, &r->match, &err) == 0 &&
        proto_query_check(r->match.route, &r->target, &err) == 0) {
        const struct proto_route *route = r->match.route;
        bool is_probe = route->id == PROTO_ROUTE_ping || route->id == PROTO_ROUTE_live;
        struct digest digest;
        if (strstr(route->path, "{digest}") != NULL && !digest_parse(r->match.params[0], &digest)) {
            err_set(
                &err, ERR_INVALID, "'%.80s' is no SHA-256: 64 lower-case hexadecimal digits",
                r->match.params[0]);
        } else if (route->role == PROTO_OPERATOR && !r->connection->peer.is_operator) {
            err_set(
                &err, ERR_PERMISSION, "operators only; this is uid %d",
                (int)r->connection->peer.uid);
        } else if (in_service > SERVER_MAX_REQUESTS && !is_probe) {
            err_set(
                &err, ERR_QUEUE_FULL, "%zu requests in service, at most %d", in_service,
                SERVER_MAX_REQUESTS);
        } else if (r->daemon->is_draining && !is_probe && route->method != PROTO_GET) {
            err_set(&err, ERR_DRAINING, NULL);
        } else {
            check_body(r, &err);
        }
    }
    r->start_ms = monotonic_ms();
    r->deadline_ms = r->start_ms + SERVER_BODY_MS + 1000 * (r->content_bytes / SERVER_BODY_RATE);
    if (err.code != 0) {
        reply_err(r, &err);
    }
}

/* ---- Body -------------------------------------------------------------------------------- */

static void too_large(struct request *r) {
    struct err err;
    err_set(
        &err, ERR_TOO_LARGE, "body of more than %llu bytes",
        (unsigned long long)r->match.route->limit);
    reply_err(r, &err);
}

void request_piece(struct request *r, const char *bytes, size_t n) {
    const struct proto_route *route = r->match.route;
    if (route->body == PROTO_BODY_NONE) {
        too_large(r);
        return;
    }
    if (route->body == PROTO_BODY_JSON) {
        if (n > (size_t)r->content_bytes - r->body_bytes) {
            too_large(r);
            return;
        }
        memcpy(r->body + r->body_bytes, bytes, n);
        r->body_bytes += n;
        return;
    }
    r->received += n;
    if (r->received > route->limit) { /* chunked: its length was not known before */
        too_large(r);
        return;
    }
    r->deadline_ms = r->start_ms + SERVER_BODY_MS +
                     1000 * ((r->received > r->content_bytes ? r->received : r->content_bytes) /
                             SERVER_BODY_RATE);
    if (r->body == NULL) {
        r->body = malloc(SERVER_PIECE_BYTES);
    }
    if (r->body == NULL || n > SERVER_PIECE_BYTES) {
        struct err err;
        err_set(&err, ERR_NOMEM, "piece of an upload");
        reply_err(r, &err);
        return;
    }
    memcpy(r->body + r->body_bytes, bytes, n);
    r->body_bytes += n;
    r->is_body_complete = false;
    /* Room for one more piece of the library's. */
    if (r->body_bytes > SERVER_PIECE_BYTES - SERVER_BUFFER_BYTES) {
        upload_submit(r);
    }
}

void request_end(struct request *r) {
    const struct proto_route *route = r->match.route;
    struct err err;
    if (route->body == PROTO_BODY_STREAM && !r->is_body_complete) {
        r->is_body_complete = true;
        if (r->body == NULL && r->temp == NULL) {
            r->body = malloc(1); /* an empty file is a file */
        }
        if (r->body != NULL) {
            upload_submit(r); /* the last piece; comes back here */
            return;
        }
    }
    if (route->body == PROTO_BODY_JSON && r->body_bytes > 0) {
        if (proto_json_parse(r->body, r->body_bytes, &r->json, &err) < 0) {
            reply_err(r, &err);
            return;
        }
    }
    r->state = REQUEST_HANDLED;
    route_dispatch(r);
    if (r->response == NULL) {
        request_suspend(r);
    }
}

/* ---- Store operations -------------------------------------------------------------------- */

static void op_done(struct store_op *op) {
    struct request_op *q = (struct request_op *)op;
    if (op->result < 0) {
        reply_err(q->request, &op->err);
    } else {
        q->reply(q);
    }
    if (q->free != NULL) {
        q->free(q);
    } else {
        free(q);
    }
}

void *request_op_new(
    struct request *r, size_t size,
    int (*run)(struct store_op *op, struct cache *c, struct err *err),
    void (*reply)(struct request_op *op)) {
    struct request_op *q = calloc(1, size);
    if (q == NULL) {
        struct err err;
        err_set(&err, ERR_NOMEM, NULL);
        reply_err(r, &err);
        return NULL;
    }
    q->op.run = run;
    q->op.done = op_done;
    q->request = r;
    q->reply = reply;
    return q;
}

void request_op_submit(struct request_op *op) {
    store_submit(op->request->daemon->store, &op->op);
}
