/* Outputs of a job, and the sending of files. Files are read by the store thread in
 * pieces; the loop only passes them on. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/npy.h"
#include "daemon/handlers.h"

#define PIECE_BYTES (512u << 10)

/* ---- Sending a file ---------------------------------------------------------------------- */

struct file_stream {
    struct stream stream;
    int fd;
    uint64_t offset, left;
    char *head; /* owned, sent first */
    size_t head_bytes;
};

struct piece_op {
    struct store_op op;
    struct file_stream *stream;
    int fd;
    uint64_t offset;
    size_t bytes;
    char *data; /* owned */
};

static int piece_run(struct store_op *op, struct cache *c, struct err *err) {
    struct piece_op *p = (struct piece_op *)op;
    for (size_t at = 0; at < p->bytes;) {
        ssize_t n = pread(p->fd, p->data + at, p->bytes - at, (off_t)(p->offset + at));
        if (n <= 0) {
            return err_sys(err, ERR_IO, n < 0 ? errno : EIO, "file being sent");
        }
        at += (size_t)n;
    }
    return 0;
}

static void piece_done(struct store_op *op) {
    struct piece_op *p = (struct piece_op *)op;
    struct file_stream *s = p->stream;
    if (op->result < 0) {
        free(p->data);
        stream_break(&s->stream);
    } else {
        s->offset += p->bytes;
        s->left -= p->bytes;
        stream_feed(&s->stream, p->data, p->bytes, s->left == 0);
    }
    free(p);
}

static void file_more(struct stream *stream) {
    struct file_stream *s = (struct file_stream *)stream;
    if (s->head != NULL || s->left == 0) {
        char *head = TAKE(s->head);
        stream_feed(stream, head, s->head_bytes, s->left == 0);
        return;
    }
    struct piece_op *p = calloc(1, sizeof *p);
    size_t bytes = s->left < PIECE_BYTES ? (size_t)s->left : PIECE_BYTES;
    if (p == NULL || (p->data = malloc(bytes)) == NULL) {
        free(p);
        stream_break(stream);
        return;
    }
    p->op.run = piece_run;
    p->op.done = piece_done;
    p->stream = s;
    p->fd = s->fd;
    p->offset = s->offset;
    p->bytes = bytes;
    store_submit(stream->request->daemon->store, &p->op);
}

static void file_free(struct stream *stream) {
    struct file_stream *s = (struct file_stream *)stream;
    cleanup_close(&s->fd);
    free(s->head);
    free(s);
}

void handler_send_file(
    struct request *r, int fd, uint64_t offset, uint64_t bytes, char *head, size_t head_bytes,
    const char *type, const char *etag) {
    struct file_stream *s = calloc(1, sizeof *s);
    if (s == NULL) {
        cleanup_close(&fd);
        free(head);
        reply_response(r, 500, NULL);
        return;
    }
    s->stream.more = file_more;
    s->stream.free = file_free;
    s->fd = fd;
    s->offset = offset;
    s->left = bytes;
    s->head = head;
    s->head_bytes = head != NULL ? head_bytes : 0;
    struct MHD_Response *response;
    reply_stream(r, 200, &response, bytes + s->head_bytes, &s->stream);
    if (response != NULL) {
        reply_header(response, "Content-Type", type);
        reply_header(response, "ETag", etag);
        reply_response(r, 200, response);
    }
}

bool handler_not_modified(struct request *r, const char *etag) {
    const char *have = request_header(r, "If-None-Match");
    if (have == NULL || (strstr(have, etag) == NULL && strcmp(have, "*") != 0)) {
        return false;
    }
    struct MHD_Response *response =
        MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    if (response != NULL) {
        reply_header(response, "ETag", etag);
    }
    reply_response(r, 304, response);
    return true;
}

/* ---- List -------------------------------------------------------------------------------- */

struct outputs_op {
    struct request_op q;
    json_t *list; /* owned */
    char id[PROTO_ID_CHARS + 1];
};

static int outputs_row(const struct cache_output *row, void *arg) {
    struct outputs_op *o = arg;
    char url[96];
    char digest[8 + DIGEST_HEX] = "sha256:";
    snprintf(url, sizeof url, "/v1/jobs/%s/outputs/%d", o->id, row->ordinal);
    digest_hex(&row->blob, digest + 7);
    json_array_append_new(
        o->list, json_pack(
                     "{s:s, s:i, s:s, s:o, s:I, s:I, s:o, s:s}", "name", row->name, "ordinal",
                     row->ordinal, "dtype", row->dtype, "shape", json_loads(row->shape, 0, NULL),
                     "run_bytes", (json_int_t)row->run_bytes, "runs", (json_int_t)row->runs,
                     "digest", row->has_blob ? json_string(digest) : json_null(), "href", url));
    return 0;
}

static int outputs_run(struct store_op *op, struct cache *c, struct err *err) {
    struct outputs_op *o = (struct outputs_op *)op;
    struct cache_job row;
    int r = handler_job(o->q.request, c, &row, err);
    if (r < 0) {
        return r;
    }
    strcpy(o->id, row.id);
    cache_job_done(&row);
    o->list = json_array();
    return cache_output_list(c, o->id, outputs_row, o, err);
}

static void outputs_reply(struct request_op *q) {
    struct outputs_op *o = (struct outputs_op *)q;
    reply_json(q->request, 200, json_pack("{s:O}", "items", o->list));
}

static void outputs_free(struct request_op *q) {
    json_decref(((struct outputs_op *)q)->list);
    free(q);
}

void on_job_outputs(struct request *r) {
    struct outputs_op *o = request_op_new(r, sizeof *o, outputs_run, outputs_reply);
    if (o != NULL) {
        o->q.free = outputs_free;
        request_op_submit(&o->q);
    }
}

/* ---- One output -------------------------------------------------------------------------- */

struct output_get {
    struct request_op q;
    int64_t run; /* -1 = all */
    bool is_npy;
    bool is_found;
    int ordinal;
    enum dtype dtype;
    struct shape shape;
    uint64_t run_bytes, runs;
    bool has_blob;
    struct digest blob;
    int fd;
    char *head; /* npy, owned */
    size_t head_bytes;
};

static bool read_shape(const char *text, struct shape *ret) {
    json_t *list = json_loads(text, 0, NULL);
    memset(ret, 0, sizeof *ret);
    ret->rank = (int)json_array_size(list);
    bool fits = list != NULL && ret->rank <= TENSOR_MAX_DIMS;
    for (int i = 0; fits && i < ret->rank; i++) {
        ret->dim[i] = json_integer_value(json_array_get(list, (size_t)i));
    }
    json_decref(list);
    return fits;
}

/* By name; a number that is no name is the ordinal, for names that no path can hold. */
static int output_row(const struct cache_output *row, void *arg) {
    struct output_get *o = arg;
    const char *name = o->q.request->match.params[1];
    char ordinal[16];
    snprintf(ordinal, sizeof ordinal, "%d", row->ordinal);
    bool is_name = strcmp(row->name, name) == 0;
    if (!is_name && (o->is_found || strcmp(ordinal, name) != 0)) {
        return 0;
    }
    o->is_found = true;
    o->ordinal = row->ordinal;
    o->dtype = dtype_from_name(row->dtype);
    o->run_bytes = row->run_bytes;
    o->runs = row->runs;
    o->has_blob = row->has_blob;
    o->blob = row->blob;
    if (!read_shape(row->shape, &o->shape)) {
        o->is_found = false;
    }
    return is_name;
}

static int
open_output(struct output_get *o, struct cache *c, const struct cache_job *row, struct err *err) {
    enum proto_state state;
    bool is_ended = proto_state_parse(row->state, &state) && proto_state_ended(state);
    uint64_t bytes;
    if (o->has_blob) {
        return cache_blob_open(c, &o->blob, &o->fd, &bytes, err);
    }
    if (is_ended) {
        return err_set(
            err, ERR_GONE, "the outputs of job %s were not kept: it is %s", row->id, row->state);
    }
    if (o->run < 0) {
        return err_set(
            err, ERR_CONFLICT, "job %s is %s: until it ends, ask for one run with ?run=", row->id,
            row->state);
    }
    char path[96];
    snprintf(path, sizeof path, "staging/%s/out.%d", row->id, o->ordinal);
    o->fd = openat(cache_dir_fd(c), path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    return o->fd < 0 ? err_sys(err, ERR_IO, errno, "%s", path) : 0;
}

static int make_head(struct output_get *o, struct err *err) {
    struct shape shape = o->shape;
    if (o->run < 0 && shape.rank > 0) {
        shape.dim[0] *= (int64_t)o->runs;
    } else if (o->run < 0 && o->runs > 1) {
        shape.rank = 1;
        shape.dim[0] = (int64_t)o->runs;
    }
    o->head = malloc(NPY_MAX_HEADER_BYTES);
    if (o->head == NULL) {
        return err_set(err, ERR_NOMEM, NULL);
    }
    return npy_print(
        o->dtype, &shape, (uint8_t *)o->head, NPY_MAX_HEADER_BYTES, &o->head_bytes, err);
}

static int output_get_run(struct store_op *op, struct cache *c, struct err *err) {
    struct output_get *o = (struct output_get *)op;
    struct cache_job row;
    int r = handler_job(o->q.request, c, &row, err);
    if (r < 0) {
        return r;
    }
    r = cache_output_list(c, row.id, output_row, o, err);
    if (r == 0 && !o->is_found) {
        r = err_set(
            err, ERR_NOT_FOUND, "job %s has no output '%.80s'", row.id,
            o->q.request->match.params[1]);
    }
    if (r == 0 && o->run >= 0 && (uint64_t)o->run >= o->runs) {
        r = err_set(
            err, ERR_NOT_FOUND, "run %lld of output '%.80s': %llu are stored", (long long)o->run,
            o->q.request->match.params[1], (unsigned long long)o->runs);
    }
    if (r == 0 && o->is_npy) {
        r = make_head(o, err);
    }
    if (r == 0) {
        r = open_output(o, c, &row, err);
    }
    cache_job_done(&row);
    return r;
}

static void output_get_reply(struct request_op *q) {
    struct output_get *o = (struct output_get *)q;
    char etag[DIGEST_HEX + 64] = "\"";
    digest_hex(&o->blob, etag + 1);
    size_t used = strlen(etag);
    snprintf(
        etag + used, sizeof etag - used, "-%s-%lld\"", o->is_npy ? "npy" : "raw",
        (long long)o->run);
    if (o->has_blob && handler_not_modified(q->request, etag)) {
        return;
    }
    uint64_t offset = o->run < 0 ? 0 : (uint64_t)o->run * o->run_bytes;
    uint64_t bytes = o->run < 0 ? o->runs * o->run_bytes : o->run_bytes;
    handler_send_file(
        q->request, TAKE_FD(o->fd), offset, bytes, TAKE(o->head), o->head_bytes,
        o->is_npy ? "application/x-npy" : "application/octet-stream", o->has_blob ? etag : NULL);
}

static void output_get_free(struct request_op *q) {
    struct output_get *o = (struct output_get *)q;
    cleanup_close(&o->fd);
    free(o->head);
    free(o);
}

void on_job_output(struct request *r) {
    struct err err;
    int64_t run;
    const char *format = request_query(r, "format");
    int result = request_query_int(r, "run", 0, PROTO_MAX_RUNS, -1, &run, &err);
    if (result == 0 && format != NULL && strcmp(format, "npy") != 0 && strcmp(format, "raw") != 0) {
        result = err_at(&err, ERR_INVALID, "format", "format: npy or raw, not '%.40s'", format);
    }
    if (result < 0) {
        reply_err(r, &err);
        return;
    }
    struct output_get *o = request_op_new(r, sizeof *o, output_get_run, output_get_reply);
    if (o != NULL) {
        o->q.free = output_get_free;
        o->run = run;
        o->is_npy = format == NULL || strcmp(format, "npy") == 0;
        o->fd = -1;
        request_op_submit(&o->q);
    }
}
