/* HTTP on the event loop: libmicrohttpd in external epoll mode behind sd-event.
 *
 * The library calls back with a request's head, pieces of its body, and its end. A handler
 * (on_*.c) runs once per request, after the body of a JSON route has been gathered and parsed or
 * the body of a STREAM route has been stored in a temporary file. It either replies at once or
 * leaves; then the connection is suspended until some later reply_*() resumes it.
 *
 *   new -head ok-> body -last byte-> handled -reply-> replied -sent-> gone
 *     \__ refused __________________________________/
 *
 * Invariants: (1) a request with work under way elsewhere is suspended, so it cannot go away
 * before that work answers; (2) every suspended request is in the server's list and is resumed
 * before the library stops; (3) a body never exceeds its route's limit, and all gathered bodies
 * together SERVER_MAX_BODIES. */
#ifndef DAEMON_SERVER_H
#define DAEMON_SERVER_H

#include <jansson.h>
#include <microhttpd.h>
#include <sys/queue.h>

#include "daemon/daemon.h"
#include "daemon/peer.h"
#include "proto/proto.h"

#define SERVER_MAX_CONNECTIONS      1024 /* of the library; beyond them clients wait unanswered */
#define SERVER_MAX_REQUESTS         900  /* ours: 503 beyond */
#define SERVER_MAX_USER_CONNECTIONS 128  /* of one user who is no operator */
#define SERVER_MAX_BODIES           (64u << 20)
/* The library's buffer of a connection, which bounds the head of a request and, by half of it, one
 * read of a body: small ones make a turn of the loop every few KiB of an upload. Touched lazily. */
#define SERVER_BUFFER_BYTES (256u << 10)
#define SERVER_HEAD_MS      60000 /* silence between requests, or a slow head */
#define SERVER_BODY_MS      60000 /* plus one second for each SERVER_BODY_RATE bytes */
#define SERVER_BODY_RATE    (256u << 10)
#define SERVER_PIECE_BYTES  (4u << 20) /* of an upload handed to the store at a time */

struct cache_temp;
struct stream;

enum request_state { REQUEST_NEW, REQUEST_BODY, REQUEST_HANDLED, REQUEST_REPLIED };

struct request {
    struct daemon *daemon;
    struct connection *connection;
    struct MHD_Connection *mhd;
    char id[PROTO_MAX_REQUEST_ID + 1];
    char *raw_target;    /* owned */
    uintptr_t target_at; /* where it lies in the library's buffer; never followed */
    struct proto_target target;
    struct proto_match match;
    enum request_state state;
    bool is_head;
    bool is_suspended;
    uint64_t start_ms;    /* of the body */
    uint64_t deadline_ms; /* of the body */
    uint64_t received;    /* bytes of an upload */
    uint64_t content_bytes;
    char *body; /* owned: gathered JSON text, or a piece of an upload */
    size_t body_bytes;
    json_t *json;            /* owned, of a JSON route; NULL = empty body */
    struct cache_temp *temp; /* of a STREAM route; the store thread's */
    bool is_body_complete;
    struct err upload_err;         /* code 0 = none */
    struct MHD_Response *response; /* to be queued */
    unsigned status;
    LIST_ENTRY(request) link;
};

struct connection {
    struct peer peer;
    struct err err; /* why the peer is refused; code 0 = fine */
    int fd;
    uint64_t since_ms;       /* connected, or last request done */
    struct request *request; /* being served */
    LIST_ENTRY(connection) link;
};

struct server; /* owned; free with server_stop() */

/* listen_fd is taken. */
int server_start(struct daemon *d, int listen_fd, struct server **ret, struct err *err);
/* Once a second: deadlines of heads and bodies. */
void server_tick(struct server *s);
/* Stops accepting. */
void server_quiesce(struct server *s);
/* Requests being served. */
size_t server_request_count(const struct server *s);
size_t server_stream_count(const struct server *s);
/* One turn of the library; after a resume from outside its callbacks. */
void server_turn(struct server *s);
/* Closes what is left. No request may be suspended. */
void server_stop(struct server *s); /* NULL accepted */

/* ---- Replies: exactly one a request, now or later, on the loop thread -------------------- */

void reply_json(struct request *r, unsigned status, json_t *body); /* takes body */
void reply_err(struct request *r, const struct err *err);
void reply_text(struct request *r, unsigned status, const char *type, const char *text);
void reply_empty(struct request *r, unsigned status);
/* Response made by hand, with headers; taken. */
void reply_response(struct request *r, unsigned status, struct MHD_Response *response);
void reply_header(struct MHD_Response *response, const char *name, const char *value);
struct MHD_Response *reply_json_response(json_t *body); /* takes body */

/* ---- Streams: a body that comes in pieces from elsewhere --------------------------------- */

struct stream {
    struct request *request; /* not valid in free() */
    struct daemon *daemon;
    char *data; /* owned: the piece being sent */
    size_t bytes, at;
    bool is_end;     /* after this piece */
    bool is_broken;  /* after this piece, cut the connection */
    bool is_waiting; /* suspended until stream_feed() */
    /* Asks for the next piece; stream_feed() comes later or at once. */
    void (*more)(struct stream *s);
    void (*free)(struct stream *s); /* owns s */
    LIST_ENTRY(stream) link;
};

/* Starts the reply; size UINT64_MAX = not known. Takes s. */
void reply_stream(
    struct request *r, unsigned status, struct MHD_Response **ret_response, uint64_t size,
    struct stream *s);
void stream_feed(struct stream *s, char *data, size_t bytes, bool is_end); /* takes data */
void stream_break(struct stream *s);

#endif
