/* Packages: list, show, export, import, delete, prune. An import is a file from outside: a worker
 * opens it, never the daemon, and it stays apart from what was compiled here. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "daemon/handlers.h"

#define VERIFY_MS 120000

static json_t *package_json(const struct cache_package *p) {
    char digest[8 + DIGEST_HEX] = "sha256:";
    char created[PROTO_TIME_CHARS + 1];
    char used[PROTO_TIME_CHARS + 1];
    digest_hex(&p->digest, digest + 7);
    proto_time_print(p->created_ms, created);
    proto_time_print(p->used_ms, used);
    json_t *info = p->info != NULL ? json_loads(p->info, 0, NULL) : NULL;
    return json_pack(
        "{s:s, s:s, s:I, s:s, s:s, s:b, s:o}", "digest", digest, "key", p->key, "bytes",
        (json_int_t)p->bytes, "created", created, "used", used, "imported", p->is_imported,
        "program", info != NULL ? info : json_null());
}

/* ---- List -------------------------------------------------------------------------------- */

struct list_op {
    struct request_op q;
    bool everyone;
    int64_t limit;
    const char *key;
    const char *after;
    json_t *items; /* owned */
    char last[DIGEST_HEX + 1];
};

static int list_row(const struct cache_package *p, void *arg) {
    struct list_op *l = arg;
    json_array_append_new(l->items, package_json(p));
    digest_hex(&p->digest, l->last);
    return 0;
}

static int list_run(struct store_op *op, struct cache *c, struct err *err) {
    struct list_op *l = (struct list_op *)op;
    l->items = json_array();
    return cache_package_list(
        c, l->q.request->connection->peer.uid, l->everyone, l->key, l->after, (int)l->limit,
        list_row, l, err);
}

static void list_reply(struct request_op *q) {
    struct list_op *l = (struct list_op *)q;
    bool is_full = (int64_t)json_array_size(l->items) == l->limit;
    reply_json(
        q->request, 200,
        json_pack(
            "{s:O, s:o}", "items", l->items, "next", is_full ? json_string(l->last) : json_null()));
}

static void list_free(struct request_op *q) {
    json_decref(((struct list_op *)q)->items);
    free(q);
}

void on_package_list(struct request *r) {
    struct err err;
    int64_t limit;
    struct digest check;
    const char *user = request_query(r, "user");
    const char *after = request_query(r, "after");
    const struct peer *peer = &r->connection->peer;
    int result = request_query_int(r, "limit", 1, PROTO_MAX_PAGE, PROTO_DEFAULT_PAGE, &limit, &err);
    if (result == 0 && user != NULL && (strcmp(user, "*") != 0 || !peer->is_operator)) {
        result = strcmp(user, "*") == 0
                     ? err_set(&err, ERR_PERMISSION, "packages of others are for operators")
                     : err_at(&err, ERR_INVALID, "user", "user: only * is understood");
    }
    if (result == 0 && after != NULL && !digest_parse(after, &check)) {
        result = err_at(&err, ERR_INVALID, "after", "after: the `next` of a list is expected");
    }
    if (result < 0) {
        reply_err(r, &err);
        return;
    }
    struct list_op *l = request_op_new(r, sizeof *l, list_run, list_reply);
    if (l != NULL) {
        l->q.free = list_free;
        l->everyone = user != NULL;
        l->limit = limit;
        l->key = request_query(r, "key");
        l->after = after;
        request_op_submit(&l->q);
    }
}

/* ---- Show and export --------------------------------------------------------------------- */

struct show_op {
    struct request_op q;
    struct digest digest;
    struct cache_package package; /* owned info */
    bool wants_file;
    int fd;
    uint64_t bytes;
};

static int show_run(struct store_op *op, struct cache *c, struct err *err) {
    struct show_op *s = (struct show_op *)op;
    const struct peer *peer = &s->q.request->connection->peer;
    if (!peer->is_operator && !cache_package_visible(c, &s->digest, peer->uid)) {
        return err_set(err, ERR_NOT_FOUND, "no such package of this user");
    }
    int r = cache_package_get(c, &s->digest, &s->package, err);
    if (r < 0 || !s->wants_file) {
        return r;
    }
    char path[4200];
    struct stat st;
    cache_package_path(c, &s->package, path, sizeof path);
    s->fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (s->fd < 0 || fstat(s->fd, &st) != 0) {
        return err_sys(err, ERR_IO, errno, "package file");
    }
    s->bytes = (uint64_t)st.st_size;
    return 0;
}

static void show_reply(struct request_op *q) {
    struct show_op *s = (struct show_op *)q;
    char etag[DIGEST_HEX + 4] = "\"";
    digest_hex(&s->digest, etag + 1);
    strcat(etag, "\"");
    if (handler_not_modified(q->request, etag)) {
        return;
    }
    if (s->wants_file) {
        handler_send_file(
            q->request, TAKE_FD(s->fd), 0, s->bytes, NULL, 0, "application/vnd.ipud.package", etag);
        return;
    }
    struct MHD_Response *response = reply_json_response(package_json(&s->package));
    if (response != NULL) {
        reply_header(response, "ETag", etag);
    }
    reply_response(q->request, 200, response);
}

static void show_free(struct request_op *q) {
    struct show_op *s = (struct show_op *)q;
    cleanup_close(&s->fd);
    cache_package_done(&s->package);
    free(s);
}

static void show(struct request *r, bool wants_file) {
    struct show_op *s = request_op_new(r, sizeof *s, show_run, show_reply);
    if (s != NULL) {
        s->q.free = show_free;
        s->wants_file = wants_file;
        s->fd = -1;
        handler_digest(r, &s->digest);
        request_op_submit(&s->q);
    }
}

void on_package_show(struct request *r) {
    show(r, false);
}

void on_package_file(struct request *r) {
    show(r, true);
}

/* ---- Delete and prune -------------------------------------------------------------------- */

static int delete_run(struct store_op *op, struct cache *c, struct err *err) {
    struct digest digest;
    handler_digest(((struct request_op *)op)->request, &digest);
    return cache_package_remove(c, &digest, err);
}

static void delete_reply(struct request_op *q) {
    reply_empty(q->request, 204);
}

void on_package_delete(struct request *r) {
    struct request_op *q = request_op_new(r, sizeof *q, delete_run, delete_reply);
    if (q != NULL) {
        request_op_submit(q);
    }
}

struct prune_op {
    struct request_op q;
    uint64_t keep, count, bytes;
};

static int prune_run(struct store_op *op, struct cache *c, struct err *err) {
    struct prune_op *p = (struct prune_op *)op;
    return cache_package_evict(c, p->keep, &p->count, &p->bytes, err);
}

static void prune_reply(struct request_op *q) {
    struct prune_op *p = (struct prune_op *)q;
    reply_json(
        q->request, 200,
        json_pack("{s:I, s:I}", "packages", (json_int_t)p->count, "bytes", (json_int_t)p->bytes));
}

void on_package_prune(struct request *r) {
    struct err err;
    const json_t *keep = json_object_get(r->json, "keep_bytes");
    if (r->json != NULL &&
        (!json_is_object(r->json) || json_object_size(r->json) != (keep != NULL ? 1u : 0u) ||
         (keep != NULL && (!json_is_integer(keep) || json_integer_value(keep) < 0)))) {
        err_at(
            &err, ERR_BAD_JOB, "/keep_bytes", "only keep_bytes, a number of bytes, is understood");
        reply_err(r, &err);
        return;
    }
    struct prune_op *p = request_op_new(r, sizeof *p, prune_run, prune_reply);
    if (p != NULL) {
        p->keep = (uint64_t)json_integer_value(keep);
        request_op_submit(&p->q);
    }
}

/* ---- Import ------------------------------------------------------------------------------ */

/* temporary -> staging folder -> worker `verify` -> imports/. Each arrow is a function below;
 * the request is suspended from the first to the last. */
struct import {
    struct store_op op;
    struct request *request;
    struct cache_temp *temp;
    char name[40];
    struct digest digest;
    int fd;
    uint64_t bytes;
    struct worker *worker;
    json_t *result; /* owned */
};

static int import_sweep(struct store_op *op, struct cache *c, struct err *err) {
    cache_staging_remove(c, ((struct import *)op)->name);
    return 0;
}

static void import_free(struct store_op *op) {
    struct import *i = (struct import *)op;
    json_decref(i->result);
    cleanup_close(&i->fd);
    free(i);
}

static void import_end(struct import *i, const struct err *err) {
    struct request *r = i->request;
    if (err != NULL) {
        reply_err(r, err);
    } else {
        char digest[8 + DIGEST_HEX] = "sha256:";
        digest_hex(&i->digest, digest + 7);
        reply_json(
            r, 201,
            json_pack(
                "{s:s, s:I, s:b}", "digest", digest, "bytes", (json_int_t)i->bytes, "imported", 1));
    }
    i->op.run = import_sweep;
    i->op.done = import_free;
    store_submit(r->daemon->store, &i->op);
}

static int import_publish(struct store_op *op, struct cache *c, struct err *err) {
    struct import *i = (struct import *)op;
    struct cache_package p = {.digest = i->digest, .bytes = i->bytes, .is_imported = true};
    const char *key = json_string_value(json_object_get(i->result, "key"));
    snprintf(p.key, sizeof p.key, "%s", key != NULL ? key : "");
    json_t *info = json_pack(
        "{s:O*, s:O*, s:O*, s:O*}", "compiler", json_object_get(i->result, "compiler"), "inputs",
        json_object_get(i->result, "inputs"), "outputs", json_object_get(i->result, "outputs"),
        "parameters", json_object_get(i->result, "parameters"));
    p.info = info != NULL ? json_dumps(info, JSON_COMPACT) : NULL;
    json_decref(info);
    if (p.info == NULL) {
        return err_set(err, ERR_NOMEM, NULL);
    }
    char path[96];
    snprintf(path, sizeof path, "staging/%s/package.ipuexe", i->name);
    int r = cache_package_insert(c, path, &p, i->request->connection->peer.uid, err);
    cache_package_done(&p);
    return r;
}

static void import_published(struct store_op *op) {
    import_end((struct import *)op, op->result < 0 ? &op->err : NULL);
}

static void import_verified(void *arg, json_t *result, const struct err *err) {
    struct import *i = arg;
    struct digest digest;
    struct err mismatch;
    i->worker = NULL;
    i->result = result;
    const char *text = json_string_value(json_object_get(result, "digest"));
    if (result == NULL) {
        import_end(i, err);
    } else if (text == NULL || !digest_parse(text, &digest) || !digest_equal(&digest, &i->digest)) {
        err_set(
            &mismatch, ERR_DIGEST_MISMATCH, "the package's digest is sha256:%.64s",
            text != NULL ? text : "unknown");
        import_end(i, &mismatch);
    } else {
        i->op.run = import_publish;
        i->op.done = import_published;
        store_submit(i->request->daemon->store, &i->op);
    }
}

static int import_stage(struct store_op *op, struct cache *c, struct err *err) {
    struct import *i = (struct import *)op;
    struct cache_temp *temp = TAKE(i->temp);
    i->bytes = cache_temp_bytes(temp);
    int r = cache_staging_make(c, i->name, &i->fd, err);
    if (r < 0) {
        cache_temp_abort(temp);
        return r;
    }
    return cache_temp_move(temp, i->name, "package.ipuexe", err);
}

static void import_staged(struct store_op *op) {
    struct import *i = (struct import *)op;
    struct err err = op->err;
    if (op->result < 0) {
        import_end(i, &err);
        return;
    }
    json_t *document = json_pack("{s:s, s:s}", "kind", "verify", "package", "package.ipuexe");
    struct worker_order order = {
        .document = document,
        .staging_fd = i->fd,
        .total_ms = VERIFY_MS,
        .done = import_verified,
        .arg = i,
    };
    int r = workers_start(i->request->daemon, &order, &i->worker, &err);
    json_decref(document);
    if (r < 0) {
        import_end(i, &err);
    }
}

void on_package_put(struct request *r) {
    struct import *i = calloc(1, sizeof *i);
    if (i == NULL) {
        struct err err;
        err_set(&err, ERR_NOMEM, NULL);
        reply_err(r, &err);
        return;
    }
    i->op.run = import_stage;
    i->op.done = import_staged;
    i->request = r;
    i->temp = TAKE(r->temp);
    i->fd = -1;
    snprintf(i->name, sizeof i->name, "import-%llu", (unsigned long long)++r->daemon->jobs->serial);
    handler_digest(r, &i->digest);
    store_submit(r->daemon->store, &i->op);
}
