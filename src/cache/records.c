/* Rows of jobs: insert, change, list, events, outputs. Each function is one or a few statements;
 * the caller's group makes them one transaction (invariant 6). */
#include "cache/cache_internal.h"

#include <ctype.h>

#define IDEMPOTENCY_KEEP_MS (48ll * 3600 * 1000)

/* Columns of `job`, in the order of its CREATE TABLE. */
enum {
    COL_ALIAS,
    COL_ID,
    COL_UID,
    COL_NAME,
    COL_STATE,
    COL_DOCUMENT,
    COL_LABELS,
    COL_REASON,
    COL_KEY,
    COL_PACKAGE,
    COL_REPORT,
    COL_ERROR,
    COL_REQUEST_ID,
    COL_CREATED,
    COL_STATE_MS,
    COL_STARTED,
    COL_FINISHED,
    COL_LAST_EVENT
};

void cache_job_done(struct cache_job *job) {
    char *texts[] = {job->name, job->state,   job->document, job->labels, job->reason,
                     job->key,  job->package, job->report,   job->error,  job->request_id};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        free(texts[i]);
    }
    memset(job, 0, sizeof *job);
}

static void job_row(sqlite3_stmt *s, struct cache_job *ret) {
    memset(ret, 0, sizeof *ret);
    const char *id = (const char *)sqlite3_column_text(s, COL_ID);
    snprintf(ret->id, sizeof ret->id, "%s", id != NULL ? id : "");
    ret->alias = sqlite3_column_int64(s, COL_ALIAS);
    ret->uid = (uid_t)sqlite3_column_int64(s, COL_UID);
    ret->name = stmt_text(s, COL_NAME);
    ret->state = stmt_text(s, COL_STATE);
    ret->document = stmt_text(s, COL_DOCUMENT);
    ret->labels = stmt_text(s, COL_LABELS);
    ret->reason = stmt_text(s, COL_REASON);
    ret->key = stmt_text(s, COL_KEY);
    ret->package = stmt_text(s, COL_PACKAGE);
    ret->report = stmt_text(s, COL_REPORT);
    ret->error = stmt_text(s, COL_ERROR);
    ret->request_id = stmt_text(s, COL_REQUEST_ID);
    ret->created_ms = stmt_u64(s, COL_CREATED);
    ret->state_ms = stmt_u64(s, COL_STATE_MS);
    ret->started_ms = stmt_u64(s, COL_STARTED);
    ret->finished_ms = stmt_u64(s, COL_FINISHED);
    ret->last_event = sqlite3_column_int64(s, COL_LAST_EVENT);
}

int cache_job_insert(
    struct cache *c, const struct cache_job *job, const struct cache_idempotency *idempotency,
    int64_t *ret_alias, struct err *err) {
    int r = stmt_run(
        c, STMT_JOB_INSERT, err, "sisssssi", job->id, (int64_t)job->uid, job->name, job->state,
        job->document, job->labels, job->request_id, (int64_t)job->created_ms);
    if (r < 0) {
        return r;
    }
    *ret_alias = sqlite3_last_insert_rowid(c->db[DB_JOBS]);
    if (idempotency == NULL || idempotency->key == NULL) {
        return 0;
    }
    int64_t oldest = (int64_t)job->created_ms - IDEMPOTENCY_KEEP_MS;
    r = stmt_run(c, STMT_IDEMPOTENCY_OLD, err, "i", oldest);
    return r < 0 ? r
                 : stmt_run(
                       c, STMT_IDEMPOTENCY_PUT, err, "isdsi", (int64_t)job->uid, idempotency->key,
                       &idempotency->body, job->id, (int64_t)job->created_ms);
}

int cache_idempotency_find(
    struct cache *c, uid_t uid, const char *key, char ret_id[CACHE_ID_CHARS + 1],
    struct digest *ret_body, struct err *err) {
    int64_t oldest = (int64_t)cache_now_ms(c) - IDEMPOTENCY_KEEP_MS;
    sqlite3_stmt *s = stmt_bind(c, STMT_IDEMPOTENCY_FIND, "isi", (int64_t)uid, key, oldest);
    int r = stmt_step(c, s, err);
    if (r == 1) {
        const char *id = (const char *)sqlite3_column_text(s, 0);
        const char *body = (const char *)sqlite3_column_text(s, 1);
        snprintf(ret_id, CACHE_ID_CHARS + 1, "%s", id != NULL ? id : "");
        if (body == NULL || !digest_parse(body, ret_body)) {
            memset(ret_body, 0, sizeof *ret_body);
        }
        r = 0;
    } else if (r == 0) {
        r = err_set(err, ERR_NOT_FOUND, "no job of this key");
    }
    sqlite3_reset(s);
    return r;
}

int cache_job_find(struct cache *c, const char *id, struct cache_job *ret, struct err *err) {
    size_t n = strlen(id);
    bool is_alias = n > 0 && n <= 18 && strspn(id, "0123456789") == n;
    sqlite3_stmt *s = is_alias
                          ? stmt_bind(c, STMT_JOB_BY_ALIAS, "i", (int64_t)strtoll(id, NULL, 10))
                          : stmt_bind(c, STMT_JOB_BY_ID, "s", id);
    int r = stmt_step(c, s, err);
    if (r == 1) {
        job_row(s, ret);
        r = 0;
    } else if (r == 0) {
        r = err_set(err, ERR_NOT_FOUND, "no job '%.40s'", id);
    }
    sqlite3_reset(s);
    return r;
}

static bool state_ended(const char *state) {
    static const char *const ended[] = {
        "succeeded", "failed", "cancelled", "timed_out", "interrupted"};
    for (size_t i = 0; i < sizeof ended / sizeof ended[0]; i++) {
        if (strcmp(state, ended[i]) == 0) {
            return true;
        }
    }
    return false;
}

int cache_job_update(struct cache *c, const struct cache_job *job, struct err *err) {
    sqlite3_stmt *s = stmt_bind(c, STMT_JOB_STATE, "s", job->id);
    int r = stmt_step(c, s, err);
    if (r == 1) {
        const char *state = (const char *)sqlite3_column_text(s, 0);
        r = state != NULL && state_ended(state)
                ? err_set(err, ERR_CONFLICT, "job %s is %s already", job->id, state)
                : 0;
    } else if (r == 0) {
        r = err_set(err, ERR_NOT_FOUND, "no job '%s'", job->id);
    }
    sqlite3_reset(s);
    return r < 0 ? r
                 : stmt_run(
                       c, STMT_JOB_UPDATE, err, "sssssssiii", job->id, job->state, job->reason,
                       job->key, job->package, job->report, job->error, (int64_t)job->state_ms,
                       (int64_t)job->started_ms, (int64_t)job->finished_ms);
}

int cache_job_list(
    struct cache *c, uid_t uid, bool everyone, const char *state, int64_t after, int limit,
    cache_job_fn *fn, void *arg, struct err *err) {
    sqlite3_stmt *s = stmt_bind(
        c, STMT_JOB_LIST, "isii", everyone ? (int64_t)-1 : (int64_t)uid, state, after,
        (int64_t)limit);
    int r;
    while ((r = stmt_step(c, s, err)) == 1) {
        struct cache_job job;
        job_row(s, &job);
        int stop = fn(&job, arg);
        cache_job_done(&job);
        if (stop != 0) {
            r = 0;
            break;
        }
    }
    sqlite3_reset(s);
    return r;
}

int cache_job_delete(struct cache *c, const char *id, struct err *err) {
    return stmt_run(c, STMT_JOB_DELETE, err, "s", id);
}

int cache_job_forget(struct cache *c, uint64_t before_ms, struct err *err) {
    return stmt_run(c, STMT_JOB_FORGET, err, "i", (int64_t)before_ms);
}

int cache_job_recover(
    struct cache *c, const char *error, const char *event, uint64_t *ret_count, struct err *err) {
    int64_t now = (int64_t)cache_now_ms(c);
    *ret_count = 0;
    for (;;) {
        sqlite3_stmt *s = stmt_bind(c, STMT_JOB_ACTIVE, "");
        int r = stmt_step(c, s, err);
        char id[CACHE_ID_CHARS + 1] = "";
        bool was_cancelling = false;
        if (r == 1) {
            const char *text = (const char *)sqlite3_column_text(s, 0);
            const char *state = (const char *)sqlite3_column_text(s, 1);
            snprintf(id, sizeof id, "%s", text != NULL ? text : "");
            was_cancelling = state != NULL && strcmp(state, "cancelling") == 0;
        }
        sqlite3_reset(s);
        if (r <= 0) {
            return r;
        }
        int64_t seq;
        if ((r = cache_event_append(c, id, event, &seq, err)) < 0 ||
            (r = stmt_run(
                 c, STMT_JOB_UPDATE, err, "sssssssiii", id,
                 was_cancelling ? "cancelled" : "interrupted", NULL, NULL, NULL, NULL, error, now,
                 (int64_t)0, now)) < 0) {
            return r;
        }
        ++*ret_count;
    }
}

int cache_job_count(struct cache *c, const char *state, uint64_t *ret, struct err *err) {
    sqlite3_stmt *s = stmt_bind(c, STMT_JOB_COUNT, "s", state);
    int r = stmt_step(c, s, err);
    if (r == 1) {
        *ret = stmt_u64(s, 0);
    }
    sqlite3_reset(s);
    return r < 0 ? r : 0;
}

int cache_job_pin_blob(
    struct cache *c, const char *id, const struct digest *blob, struct err *err) {
    return stmt_run(c, STMT_JOB_BLOB_PUT, err, "sd", id, blob);
}

/* ---- Events ------------------------------------------------------------------------------ */

int cache_event_append(
    struct cache *c, const char *id, const char *body, int64_t *ret_seq, struct err *err) {
    sqlite3_stmt *s = stmt_bind(c, STMT_EVENT_LAST, "s", id);
    int r = stmt_step(c, s, err);
    int64_t seq = r == 1 ? sqlite3_column_int64(s, 0) + 1 : 0;
    sqlite3_reset(s);
    if (r <= 0) {
        return r < 0 ? r : err_set(err, ERR_NOT_FOUND, "no job '%s'", id);
    }
    if ((r = stmt_run(c, STMT_EVENT_APPEND, err, "siis", id, seq, (int64_t)cache_now_ms(c), body)) <
            0 ||
        (r = stmt_run(c, STMT_EVENT_COUNTED, err, "si", id, seq)) < 0) {
        return r;
    }
    *ret_seq = seq;
    return 0;
}

int cache_event_read(
    struct cache *c, const char *id, int64_t from, cache_event_fn *fn, void *arg, struct err *err) {
    sqlite3_stmt *s = stmt_bind(c, STMT_EVENT_READ, "si", id, from);
    int r;
    while ((r = stmt_step(c, s, err)) == 1) {
        const char *body = (const char *)sqlite3_column_text(s, 2);
        if (body != NULL && fn(sqlite3_column_int64(s, 0), stmt_u64(s, 1), body, arg) != 0) {
            r = 0;
            break;
        }
    }
    sqlite3_reset(s);
    return r;
}

/* ---- Outputs ----------------------------------------------------------------------------- */

int cache_output_put(
    struct cache *c, const char *id, const struct cache_output *o, struct err *err) {
    char hex[DIGEST_HEX + 1];
    digest_hex(&o->blob, hex);
    return stmt_run(
        c, STMT_OUTPUT_PUT, err, "sisssiis", id, (int64_t)o->ordinal, o->name, o->dtype, o->shape,
        (int64_t)o->run_bytes, (int64_t)o->runs, o->has_blob ? hex : NULL);
}

int cache_output_list(
    struct cache *c, const char *id, cache_output_fn *fn, void *arg, struct err *err) {
    sqlite3_stmt *s = stmt_bind(c, STMT_OUTPUT_LIST, "s", id);
    int r;
    while ((r = stmt_step(c, s, err)) == 1) {
        const char *blob = (const char *)sqlite3_column_text(s, 6);
        struct cache_output o = {
            .ordinal = sqlite3_column_int(s, 0),
            .name = (const char *)sqlite3_column_text(s, 1),
            .dtype = (const char *)sqlite3_column_text(s, 2),
            .shape = (const char *)sqlite3_column_text(s, 3),
            .run_bytes = stmt_u64(s, 4),
            .runs = stmt_u64(s, 5),
        };
        o.has_blob = blob != NULL && digest_parse(blob, &o.blob);
        if (fn(&o, arg) != 0) {
            r = 0;
            break;
        }
    }
    sqlite3_reset(s);
    return r;
}

int cache_profile_put(struct cache *c, const char *id, const char *body, struct err *err) {
    return stmt_run(c, STMT_PROFILE_PUT, err, "ss", id, body);
}

int cache_profile_get(struct cache *c, const char *id, char **ret, struct err *err) {
    sqlite3_stmt *s = stmt_bind(c, STMT_PROFILE_GET, "s", id);
    int r = stmt_step(c, s, err);
    char *body = r == 1 ? stmt_text(s, 0) : NULL;
    sqlite3_reset(s);
    if (r < 0) {
        return r;
    }
    if (body == NULL) {
        return err_set(err, r == 1 ? ERR_NOMEM : ERR_NOT_FOUND, "job '%.40s' has no profile", id);
    }
    *ret = body;
    return 0;
}
