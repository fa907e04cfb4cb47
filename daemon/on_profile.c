/* The profile of a job: its report, or its file. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "daemon/handlers.h"

struct profile_get {
    struct request_op q;
    bool is_file;
    char *body; /* owned */
    int fd;
    uint64_t bytes;
    struct digest blob;
};

static int open_file(struct profile_get *p, struct cache *c, struct err *err) {
    json_t *report = json_loads(p->body, 0, NULL);
    const char *digest =
        json_string_value(json_object_get(json_object_get(report, "file"), "digest"));
    int r = digest != NULL && digest_parse(digest, &p->blob)
                ? cache_blob_open(c, &p->blob, &p->fd, &p->bytes, err)
                : err_set(err, ERR_GONE, "the profile's file was not kept");
    json_decref(report);
    return r;
}

static int profile_get_run(struct store_op *op, struct cache *c, struct err *err) {
    struct profile_get *p = (struct profile_get *)op;
    struct cache_job row;
    int r = handler_job(p->q.request, c, &row, err);
    if (r == 0) {
        r = cache_profile_get(c, row.id, &p->body, err);
        r = r == 0 && p->is_file ? open_file(p, c, err) : r;
        cache_job_done(&row);
    }
    return r;
}

static void profile_get_reply(struct request_op *q) {
    struct profile_get *p = (struct profile_get *)q;
    if (!p->is_file) {
        reply_text(q->request, 200, "application/json", p->body);
        return;
    }
    char etag[DIGEST_HEX + 8] = "\"";
    digest_hex(&p->blob, etag + 1);
    strcat(etag, "\"");
    if (!handler_not_modified(q->request, etag)) {
        handler_send_file(
            q->request, TAKE_FD(p->fd), 0, p->bytes, NULL, 0, "application/vnd.ipud.profile", etag);
    }
}

static void profile_get_free(struct request_op *q) {
    struct profile_get *p = (struct profile_get *)q;
    cleanup_close(&p->fd);
    free(p->body);
    free(p);
}

void on_job_profile(struct request *r) {
    const char *format = request_query(r, "format");
    bool is_file = format != NULL && strcmp(format, "ipuprof") == 0;
    if (format != NULL && !is_file && strcmp(format, "json") != 0) {
        struct err err;
        err_at(&err, ERR_INVALID, "format", "format: json or ipuprof, not '%.40s'", format);
        reply_err(r, &err);
        return;
    }
    struct profile_get *p = request_op_new(r, sizeof *p, profile_get_run, profile_get_reply);
    if (p != NULL) {
        p->q.free = profile_get_free;
        p->is_file = is_file;
        p->fd = -1;
        request_op_submit(&p->q);
    }
}
