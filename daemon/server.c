/* See server.h. This file is the wrapping of the library: callbacks, suspension, deadlines. */
#include "daemon/server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/log.h"
#include "base/monotonic.h"
#include "daemon/request.h"

struct server {
    struct daemon *daemon;
    struct MHD_Daemon *mhd;
    sd_event_source *io;
    sd_event_source *timer;
    sd_event_source *soon; /* a turn after the present callbacks: something was resumed */
    bool has_operator_group;
    gid_t operator_group;
    LIST_HEAD(, connection) connections;
    LIST_HEAD(, request) requests;
    LIST_HEAD(, stream) streams;
    size_t request_count;
    size_t stream_count;
    int listen_fd; /* ours again after quiesce, -1 before */
};

static void rearm(struct server *s) {
    MHD_UNSIGNED_LONG_LONG wait_ms;
    if (MHD_get_timeout(s->mhd, &wait_ms) != MHD_YES) {
        sd_event_source_set_enabled(s->timer, SD_EVENT_OFF);
        return;
    }
    uint64_t now = 0;
    sd_event_now(s->daemon->event, CLOCK_MONOTONIC, &now);
    sd_event_source_set_time(s->timer, now + (uint64_t)wait_ms * 1000);
    sd_event_source_set_enabled(s->timer, SD_EVENT_ONESHOT);
}

void server_turn(struct server *s) {
    MHD_run(s->mhd);
    rearm(s);
}

static int on_epoll(sd_event_source *source, int fd, uint32_t events, void *arg) {
    server_turn(arg);
    return 0;
}

static int on_timer(sd_event_source *source, uint64_t usec, void *arg) {
    server_turn(arg);
    return 0;
}

static int on_soon(sd_event_source *source, void *arg) {
    server_turn(arg);
    return 0;
}

static void on_log(void *arg, const char *format, va_list ap) {
    char line[512];
    vsnprintf(line, sizeof line, format, ap);
    line[strcspn(line, "\n")] = '\0';
    log_debug("http", "library says: %s", line);
}

/* ---- Connections ------------------------------------------------------------------------- */

static int count_connections(const struct server *s, uid_t uid) {
    int n = 0;
    const struct connection *c;
    LIST_FOREACH(c, &s->connections, link) {
        n += c->err.code == 0 && c->peer.uid == uid;
    }
    return n;
}

static void on_connection(
    void *arg, struct MHD_Connection *mhd, void **socket_context,
    enum MHD_ConnectionNotificationCode code) {
    struct server *s = arg;
    struct connection *c = *socket_context;
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (c != NULL) {
            LIST_REMOVE(c, link);
            free(c);
        }
        return;
    }
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
    c = calloc(1, sizeof *c);
    if (c == NULL) {
        return; /* the request is refused for want of a context */
    }
    c->fd = info != NULL ? info->connect_fd : -1;
    c->since_ms = monotonic_ms();
    if (peer_read(c->fd, s->has_operator_group, s->operator_group, &c->peer, &c->err) == 0 &&
        !c->peer.is_operator && count_connections(s, c->peer.uid) >= SERVER_MAX_USER_CONNECTIONS) {
        err_set(
            &c->err, ERR_QUEUE_FULL, "uid %d has %d connections already", (int)c->peer.uid,
            SERVER_MAX_USER_CONNECTIONS);
    }
    LIST_INSERT_HEAD(&s->connections, c, link);
    *socket_context = c;
}

static struct connection *connection_of(struct MHD_Connection *mhd) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info != NULL ? info->socket_context : NULL;
}

/* The raw target comes before anything else of a request; what is returned becomes its context.*/
static void *on_target(void *arg, const char *target, struct MHD_Connection *mhd) {
    struct server *s = arg;
    struct request *r = request_new(s->daemon, connection_of(mhd), mhd, target);
    if (r != NULL) {
        LIST_INSERT_HEAD(&s->requests, r, link);
        s->request_count++;
    }
    return r;
}

static void on_completed(
    void *arg, struct MHD_Connection *mhd, void **context, enum MHD_RequestTerminationCode code) {
    struct server *s = arg;
    struct request *r = *context;
    if (r == NULL) {
        return;
    }
    *context = NULL;
    LIST_REMOVE(r, link);
    s->request_count--;
    request_free(r, code == MHD_REQUEST_TERMINATED_COMPLETED_OK);
}

static enum MHD_Result on_request(
    void *arg, struct MHD_Connection *mhd, const char *url, const char *method, const char *version,
    const char *upload, size_t *upload_bytes, void **context) {
    struct server *s = arg;
    struct request *r = *context;
    if (r == NULL || r->connection == NULL) {
        return MHD_NO; /* out of memory: nothing to answer with */
    }
    bool has_piece = *upload_bytes > 0;
    if (r->state == REQUEST_NEW) {
        request_head(r, method, version, s->request_count);
    } else if (r->response == NULL && *upload_bytes > 0) {
        size_t n = *upload_bytes;
        *upload_bytes = 0;
        request_piece(r, upload, n);
    } else if (*upload_bytes > 0) {
        *upload_bytes = 0; /* refused already: the rest is thrown away */
    } else if (r->state == REQUEST_BODY && r->response == NULL) {
        request_end(r);
    }
    /* In the middle of a body the library takes no response: it waits for the end. */
    if (r->response != NULL && r->state != REQUEST_REPLIED && !has_piece) {
        struct MHD_Response *response = r->response;
        r->response = NULL;
        r->state = REQUEST_REPLIED;
        enum MHD_Result queued = MHD_queue_response(mhd, r->status, response);
        MHD_destroy_response(response);
        return queued;
    }
    return MHD_YES;
}

/* ---- Suspension -------------------------------------------------------------------------- */

void request_suspend(struct request *r) {
    if (!r->is_suspended) {
        r->is_suspended = true;
        MHD_suspend_connection(r->mhd);
    }
}

void request_resume(struct request *r) {
    if (r->is_suspended) {
        r->is_suspended = false;
        MHD_resume_connection(r->mhd);
        /* Driven from outside, the library does not wake its own epoll descriptor for this. */
        sd_event_source_set_enabled(r->daemon->server->soon, SD_EVENT_ONESHOT);
    }
}

/* ---- Streams ----------------------------------------------------------------------------- */

static ssize_t on_read(void *arg, uint64_t position, char *buffer, size_t max) {
    struct stream *s = arg;
    if (s->at == s->bytes) {
        if (s->is_broken) {
            return MHD_CONTENT_READER_END_WITH_ERROR;
        }
        if (s->is_end) {
            return MHD_CONTENT_READER_END_OF_STREAM;
        }
        s->is_waiting = true;
        request_suspend(s->request); /* before `more`, which may feed at once */
        s->more(s);
        return 0;
    }
    size_t n = s->bytes - s->at < max ? s->bytes - s->at : max;
    memcpy(buffer, s->data + s->at, n);
    s->at += n;
    return (ssize_t)n;
}

static void on_stream_free(void *arg) {
    struct stream *s = arg;
    LIST_REMOVE(s, link);
    s->daemon->server->stream_count--; /* the request is gone by now */
    free(s->data);
    s->free(s);
}

void stream_feed(struct stream *s, char *data, size_t bytes, bool is_end) {
    free(s->data);
    s->data = data;
    s->bytes = bytes;
    s->at = 0;
    s->is_end = is_end;
    if (s->is_waiting) {
        s->is_waiting = false;
        request_resume(s->request);
    }
}

void stream_break(struct stream *s) {
    s->is_broken = true;
    stream_feed(s, NULL, 0, false);
}

void reply_stream(
    struct request *r, unsigned status, struct MHD_Response **ret_response, uint64_t size,
    struct stream *stream) {
    struct server *s = r->daemon->server;
    stream->request = r;
    stream->daemon = r->daemon;
    LIST_INSERT_HEAD(&s->streams, stream, link);
    s->stream_count++;
    *ret_response = MHD_create_response_from_callback(
        size == UINT64_MAX ? MHD_SIZE_UNKNOWN : size, 64 << 10, on_read, stream, on_stream_free);
    if (*ret_response == NULL) {
        on_stream_free(stream);
        struct err err;
        err_set(&err, ERR_NOMEM, NULL);
        reply_err(r, &err);
    }
}

/* ---- Life -------------------------------------------------------------------------------- */

int server_start(struct daemon *d, int listen_fd, struct server **ret, struct err *err) {
    struct server *s = calloc(1, sizeof *s);
    if (s == NULL) {
        close(listen_fd);
        return err_set(err, ERR_NOMEM, NULL);
    }
    s->daemon = d;
    s->listen_fd = -1;
    int r = 0;
    if (d->config.operator_group != NULL) {
        s->has_operator_group = true;
        r = peer_group(d->config.operator_group, &s->operator_group, err);
    }
    if (r == 0) {
        s->mhd = MHD_start_daemon(
            MHD_USE_EPOLL | MHD_USE_ITC | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL,
            NULL, on_request, s, MHD_OPTION_LISTEN_SOCKET, listen_fd, MHD_OPTION_EXTERNAL_LOGGER,
            on_log, s, MHD_OPTION_NOTIFY_COMPLETED, on_completed, s, MHD_OPTION_NOTIFY_CONNECTION,
            on_connection, s, MHD_OPTION_URI_LOG_CALLBACK, on_target, s,
            MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)SERVER_BUFFER_BYTES,
            MHD_OPTION_CONNECTION_MEMORY_INCREMENT, (size_t)SERVER_BUFFER_BYTES / 4,
            MHD_OPTION_CONNECTION_LIMIT, (unsigned)SERVER_MAX_CONNECTIONS,
            MHD_OPTION_CONNECTION_TIMEOUT, 120u, MHD_OPTION_STRICT_FOR_CLIENT, 1,
            MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_END);
        if (s->mhd == NULL) {
            r = err_sys(err, ERR_INTERNAL, errno, "HTTP server");
        }
    }
    if (r < 0) {
        close(listen_fd);
        free(s);
        return r;
    }
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(s->mhd, MHD_DAEMON_INFO_EPOLL_FD);
    int failed = info != NULL
                     ? sd_event_add_io(d->event, &s->io, info->epoll_fd, EPOLLIN, on_epoll, s)
                     : -EINVAL;
    if (failed >= 0) {
        failed = sd_event_add_time(d->event, &s->timer, CLOCK_MONOTONIC, 0, 1000, on_timer, s);
    }
    if (failed >= 0) {
        failed = sd_event_add_defer(d->event, &s->soon, on_soon, s);
    }
    if (failed < 0) {
        server_stop(s);
        return err_sys(err, ERR_INTERNAL, -failed, "event loop");
    }
    *ret = s;
    return 0;
}

/* The library counts silence only; a client that dribbles is cut here. */
void server_tick(struct server *s) {
    uint64_t now = monotonic_ms();
    struct connection *c;
    LIST_FOREACH(c, &s->connections, link) {
        const struct request *r = c->request;
        bool is_late = r == NULL || r->state == REQUEST_NEW
                           ? now - c->since_ms > SERVER_HEAD_MS
                           : r->state == REQUEST_BODY && !r->is_suspended && now > r->deadline_ms;
        if (is_late) {
            shutdown(c->fd, SHUT_RDWR);
        }
    }
}

void server_quiesce(struct server *s) {
    if (s->listen_fd < 0) {
        s->listen_fd = MHD_quiesce_daemon(s->mhd);
    }
}

size_t server_request_count(const struct server *s) {
    return s->request_count;
}

size_t server_stream_count(const struct server *s) {
    return s->stream_count;
}

void server_stop(struct server *s) {
    if (s == NULL) {
        return;
    }
    sd_event_source_disable_unref(s->io);
    sd_event_source_disable_unref(s->timer);
    sd_event_source_disable_unref(s->soon);
    if (s->mhd != NULL) {
        MHD_stop_daemon(s->mhd);
    }
    if (s->listen_fd >= 0) {
        close(s->listen_fd);
    }
    free(s);
}
