/* The event stream of a job: what is stored from `from` on, then, with follow=1, what comes, until
 * the job has ended. A piece holds whole lines; the store is asked for the next one only when the
 * last is sent, so a slow client costs one piece. */
#include <stdlib.h>
#include <string.h>

#include "base/monotonic.h"
#include "daemon/handlers.h"

#define PIECE_BYTES (256u << 10)

struct text {
    char *data;
    size_t bytes, size;
    bool failed;
};

struct event_stream {
    struct stream stream;
    struct waiter waiter;
    char id[PROTO_ID_CHARS + 1];
    int64_t next; /* first sequence number not yet read */
    bool follow;
    bool is_greeted;
    bool is_watching;   /* in the list of waiters */
    struct read_op *op; /* under way */
};

struct read_op {
    struct store_op op;
    struct event_stream *stream;
    char id[PROTO_ID_CHARS + 1];
    int64_t next;
    struct text text;
    enum proto_state state;
    json_t *error;
};

static void put(struct text *t, const char *s) {
    size_t n = strlen(s);
    if (t->bytes + n > t->size) {
        size_t size = t->size > 0 ? t->size : 4096;
        while (size < t->bytes + n) {
            size *= 2;
        }
        char *data = realloc(t->data, size);
        if (data == NULL) {
            t->failed = true;
            return;
        }
        t->data = data;
        t->size = size;
    }
    memcpy(t->data + t->bytes, s, n);
    t->bytes += n;
}

/* A line that is of the stream, not of the job: no sequence number. */
static void put_record(struct text *t, const char *event, const char *message, json_t *fields) {
    char *body = job_event_body(event, message, fields);
    if (body == NULL) {
        t->failed = true;
        return;
    }
    char now[PROTO_TIME_CHARS + 1];
    proto_time_print(daemon_wall_ms(), now);
    put(t, "{\"time\":\"");
    put(t, now);
    put(t, "\",");
    put(t, body + 1);
    put(t, "\n");
    free(body);
}

/* ---- Reading (store thread) -------------------------------------------------------------- */

static int read_event(int64_t seq, uint64_t ms, const char *body, void *arg) {
    struct read_op *o = arg;
    char head[64 + PROTO_TIME_CHARS];
    char when[PROTO_TIME_CHARS + 1];
    proto_time_print(ms, when);
    snprintf(head, sizeof head, "{\"seq\":%lld,\"time\":\"%s\",", (long long)seq, when);
    if (body[0] == '{' && strlen(head) + strlen(body) < PROTO_MAX_EVENT_BYTES) {
        put(&o->text, head);
        put(&o->text, body + 1);
        put(&o->text, "\n");
    }
    o->next = seq + 1;
    return o->text.bytes >= PIECE_BYTES || o->text.failed;
}

static int read_run(struct store_op *op, struct cache *c, struct err *err) {
    struct read_op *o = (struct read_op *)op;
    struct cache_job row;
    int r = cache_job_find(c, o->id, &row, err);
    if (r < 0) {
        return r;
    }
    if (!proto_state_parse(row.state, &o->state)) {
        o->state = PROTO_STATE_FAILED;
    }
    o->error = row.error != NULL ? json_loads(row.error, 0, NULL) : NULL;
    cache_job_done(&row);
    return cache_event_read(c, o->id, o->next, read_event, o, err);
}

/* ---- The stream (loop) ------------------------------------------------------------------- */

static void feed_text(struct event_stream *s, struct text *t, bool is_end) {
    if (t->failed) {
        free(t->data);
        stream_break(&s->stream);
    } else {
        stream_feed(&s->stream, t->data, t->bytes, is_end);
    }
}

static void put_end(struct text *t, struct read_op *o) {
    bool is_ended = proto_state_ended(o->state);
    json_t *fields = json_pack(
        "{s:s, s:b, s:I}", "state", proto_state_name(o->state), "terminal", is_ended, "next",
        (json_int_t)o->next);
    if (o->error != NULL) {
        json_object_set(fields, "error", o->error);
    }
    put_record(t, "end", is_ended ? "the job has ended" : "no more events yet", fields);
}

static void read_submit(struct event_stream *s);

static void on_wake(struct waiter *w, enum wake why) {
    struct event_stream *s =
        (struct event_stream *)((char *)w - offsetof(struct event_stream, waiter));
    s->is_watching = false;
    if (why == WAKE_CHANGED) {
        read_submit(s);
    } else if (why == WAKE_TIMEOUT) {
        struct text t = {0};
        put_record(&t, "heartbeat", "still here", json_pack("{s:I}", "next", (json_int_t)s->next));
        feed_text(s, &t, false);
    } else {
        stream_feed(&s->stream, NULL, 0, true); /* without `end`: to be taken up again */
    }
}

static void read_done(struct store_op *op) {
    struct read_op *o = (struct read_op *)op;
    struct event_stream *s = o->stream;
    struct daemon *d = s->stream.request->daemon;
    s->op = NULL;
    if (op->result < 0) {
        json_t *problem = proto_problem_print(&op->err, s->stream.request->id, NULL);
        put_record(&o->text, "error", "the job's events cannot be read", problem);
        put_record(
            &o->text, "end", "the stream ends here",
            json_pack(
                "{s:s, s:b, s:I}", "state", "unknown", "terminal", 0, "next", (json_int_t)o->next));
        feed_text(s, &o->text, true);
    } else if (o->text.bytes > 0) {
        s->next = o->next;
        feed_text(s, &o->text, false);
    } else if (proto_state_ended(o->state) || !s->follow) {
        put_end(&o->text, o);
        feed_text(s, &o->text, true);
    } else if (d->is_draining) {
        stream_feed(&s->stream, NULL, 0, true);
    } else {
        strcpy(s->waiter.id, s->id);
        s->waiter.wake = on_wake;
        s->waiter.deadline_ms = monotonic_ms() + PROTO_HEARTBEAT_MS;
        s->is_watching = true;
        jobs_wait(d->jobs, &s->waiter);
    }
    json_decref(o->error);
    free(o);
}

static void read_submit(struct event_stream *s) {
    struct read_op *o = calloc(1, sizeof *o);
    if (o == NULL) {
        stream_break(&s->stream);
        return;
    }
    o->op.run = read_run;
    o->op.done = read_done;
    o->stream = s;
    strcpy(o->id, s->id);
    o->next = s->next;
    s->op = o;
    store_submit(s->stream.request->daemon->store, &o->op);
}

static void stream_more(struct stream *stream) {
    struct event_stream *s = (struct event_stream *)stream;
    if (s->is_greeted) {
        read_submit(s);
        return;
    }
    s->is_greeted = true;
    struct text t = {0};
    put_record(
        &t, "hello", "events of a job",
        json_pack(
            "{s:s, s:I, s:s, s:b}", "job", s->id, "from", (json_int_t)s->next, "boot",
            stream->request->daemon->boot_id, "follow", s->follow));
    feed_text(s, &t, false);
}

static void stream_free(struct stream *stream) {
    struct event_stream *s = (struct event_stream *)stream;
    if (s->is_watching) {
        jobs_unwait(stream->daemon->jobs, &s->waiter);
    }
    free(s);
}

/* ---- The request ------------------------------------------------------------------------- */

struct open_op {
    struct request_op q;
    int64_t from;
    bool follow;
    char id[PROTO_ID_CHARS + 1];
};

static int open_run(struct store_op *op, struct cache *c, struct err *err) {
    struct open_op *o = (struct open_op *)op;
    struct cache_job row;
    int r = handler_job(o->q.request, c, &row, err);
    if (r == 0) {
        strcpy(o->id, row.id);
        cache_job_done(&row);
    }
    return r;
}

static void open_reply(struct request_op *q) {
    struct open_op *o = (struct open_op *)q;
    struct event_stream *s = calloc(1, sizeof *s);
    if (s == NULL) {
        reply_response(q->request, 500, NULL);
        return;
    }
    s->stream.more = stream_more;
    s->stream.free = stream_free;
    strcpy(s->id, o->id);
    s->next = o->from;
    s->follow = o->follow;
    struct MHD_Response *response;
    reply_stream(q->request, 200, &response, UINT64_MAX, &s->stream);
    if (response != NULL) {
        reply_header(response, "Content-Type", "application/x-ndjson");
        reply_response(q->request, 200, response);
    }
}

void on_job_events(struct request *r) {
    struct err err;
    int64_t from;
    int64_t follow;
    if (request_query_int(r, "from", 0, INT64_MAX, 1, &from, &err) < 0 ||
        request_query_int(r, "follow", 0, 1, 0, &follow, &err) < 0) {
        reply_err(r, &err);
        return;
    }
    struct open_op *o = request_op_new(r, sizeof *o, open_run, open_reply);
    if (o != NULL) {
        o->from = from;
        o->follow = follow != 0;
        request_op_submit(&o->q);
    }
}
