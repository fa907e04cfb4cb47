/* Blobs: bytes under their SHA-256, visible to whoever sent them. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "daemon/handlers.h"

void handler_digest(const struct request *r, struct digest *ret) {
    digest_parse(r->match.params[0], ret);
}

/* ---- PUT --------------------------------------------------------------------------------- */

struct put_op {
    struct request_op q;
    struct cache_temp *temp;
    struct digest digest;
    uint64_t bytes;
    bool is_new;
};

static int put_run(struct store_op *op, struct cache *c, struct err *err) {
    struct put_op *p = (struct put_op *)op;
    struct cache_temp *temp = TAKE(p->temp);
    p->bytes = cache_temp_bytes(temp);
    return cache_temp_publish(
        temp, p->q.request->connection->peer.uid, &p->digest, &p->is_new, err);
}

static void put_reply(struct request_op *q) {
    struct put_op *p = (struct put_op *)q;
    char text[8 + DIGEST_HEX] = "sha256:";
    digest_hex(&p->digest, text + 7);
    reply_json(
        q->request, p->is_new ? 201 : 200,
        json_pack("{s:s, s:I}", "blob", text, "bytes", (json_int_t)p->bytes));
}

void on_blob_put(struct request *r) {
    struct put_op *p = request_op_new(r, sizeof *p, put_run, put_reply);
    if (p != NULL) {
        p->temp = TAKE(r->temp);
        handler_digest(r, &p->digest);
        request_op_submit(&p->q);
    }
}

/* ---- GET --------------------------------------------------------------------------------- */

struct get_op {
    struct request_op q;
    struct digest digest;
    int fd;
    uint64_t bytes;
};

static int get_run(struct store_op *op, struct cache *c, struct err *err) {
    struct get_op *g = (struct get_op *)op;
    const struct peer *peer = &g->q.request->connection->peer;
    if (!peer->is_operator && !cache_blob_visible(c, &g->digest, peer->uid)) {
        return err_set(err, ERR_NOT_FOUND, "no such blob of this user");
    }
    return cache_blob_open(c, &g->digest, &g->fd, &g->bytes, err);
}

static void get_reply(struct request_op *q) {
    struct get_op *g = (struct get_op *)q;
    char etag[DIGEST_HEX + 4] = "\"";
    digest_hex(&g->digest, etag + 1);
    strcat(etag, "\"");
    if (!handler_not_modified(q->request, etag)) {
        handler_send_file(
            q->request, TAKE_FD(g->fd), 0, g->bytes, NULL, 0, "application/octet-stream", etag);
    }
}

static void get_free(struct request_op *q) {
    cleanup_close(&((struct get_op *)q)->fd);
    free(q);
}

void on_blob_get(struct request *r) {
    struct get_op *g = request_op_new(r, sizeof *g, get_run, get_reply);
    if (g != NULL) {
        g->q.free = get_free;
        g->fd = -1;
        handler_digest(r, &g->digest);
        request_op_submit(&g->q);
    }
}
