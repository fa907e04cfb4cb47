/* Everything that outlives a request: jobs, blobs, packages, schedules, and their indexes.
 *
 *   <dir>/lock               flock of the daemon that owns the directory, its text names it
 *   <dir>/jobs.sqlite3       precious: jobs, events, outputs, idempotency keys
 *   <dir>/cache.sqlite3      rebuildable: packages, blobs, who may see them
 *   <dir>/schedules.sqlite3  copied for workers, written here only
 *   <dir>/packages/<digest>.ipuexe   compiled here       <dir>/imports/<digest>.ipuexe   foreign
 *   <dir>/blobs/<sha256>     <dir>/staging/<job>/        <dir>/staging/tmp-*
 *
 * One thread calls all of this, the store thread; it owns the only connections. Invariants:
 *  (1) a published file is complete: temporary, fsync, rename, fsync of the folder, then the row;
 *      it is never opened for writing again;
 *  (2) a row without file heals to "not there", a file without row is swept or indexed;
 *  (3) an imported package never answers a look-up by key;
 *  (4) a blob is visible to a user only after that user sent its bytes or a job of that user
 *      produced them;
 *  (5) eviction skips what a pin, a job or a resident program holds;
 *  (6) each change of a job and its event are in one transaction; ended states never change.
 *
 * Work is grouped: cache_begin(), then for each piece cache_mark() and on failure cache_undo(),
 * then cache_commit(). Files published inside a group that fails are garbage that the sweep finds.
 */
#ifndef CACHE_CACHE_H
#define CACHE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/digest.h"
#include "base/err.h"

#define CACHE_ID_CHARS 26

struct cache; /* owned; free with cache_close() */

struct cache_options {
    const char *dir;
    uint64_t package_limit_bytes; /* of packages/ and imports/; 0 = none */
    uint64_t blob_limit_bytes;    /* of blobs/; 0 = none */
    uint64_t min_free_bytes;      /* of the file system */
    uint64_t (*now_ms)(void);     /* wall clock; NULL = the system's */
};

/* Creates what is missing, migrates, sweeps staging. -ERR_CONFLICT names the pid of a daemon that
 * has the directory. */
int cache_open(const struct cache_options *options, struct cache **ret, struct err *err);
void cache_close(struct cache *c); /* NULL accepted */
int cache_dir_fd(const struct cache *c);
const char *cache_dir(const struct cache *c);

int cache_begin(struct cache *c, struct err *err);
int cache_mark(struct cache *c, struct err *err);
void cache_undo(struct cache *c); /* back to the last mark */
int cache_commit(struct cache *c, struct err *err);
void cache_rollback(struct cache *c);
/* Folds the write-ahead logs into the databases; between groups only. */
void cache_checkpoint(struct cache *c);
/* Test hook: n file or SQL steps succeed, the next fails with EIO; 0 = off. */
void cache_fail_after(struct cache *c, uint64_t n);

/* ---- Blobs ------------------------------------------------------------------------------- */

struct cache_temp; /* a file being received; ends in _publish() or _abort() */

int cache_temp_open(
    struct cache *c, uint64_t expected_bytes, struct cache_temp **ret, struct err *err);
int cache_temp_write(struct cache_temp *t, const void *bytes, size_t n, struct err *err);
uint64_t cache_temp_bytes(const struct cache_temp *t);
/* Takes t in either case. -ERR_DIGEST_MISMATCH when the bytes are not `expected`. */
int cache_temp_publish(
    struct cache_temp *t, uid_t uid, const struct digest *expected, bool *ret_is_new,
    struct err *err);
void cache_temp_abort(struct cache_temp *t); /* NULL accepted */
/* Takes t in either case: its file becomes staging/<name>/<file>. */
int cache_temp_move(struct cache_temp *t, const char *name, const char *file, struct err *err);

/* Moves a finished file (a path below dir) into blobs/, visible to uid. */
int cache_blob_adopt(
    struct cache *c, const char *path, uid_t uid, struct digest *ret, uint64_t *ret_bytes,
    struct err *err);
int cache_blob_open(
    struct cache *c, const struct digest *blob, int *ret_fd, uint64_t *ret_bytes, struct err *err);
bool cache_blob_visible(struct cache *c, const struct digest *blob, uid_t uid);
void cache_blob_path(const struct cache *c, const struct digest *blob, char *ret, size_t n);

/* ---- Staging folders --------------------------------------------------------------------- */

/* staging/<name>/ with blobs/ inside, empty. *ret_fd is owned. */
int cache_staging_make(struct cache *c, const char *name, int *ret_fd, struct err *err);
/* Hard link of a blob at blobs/<hex> of the folder. */
int cache_staging_link(struct cache *c, int staging_fd, const struct digest *blob, struct err *err);
void cache_staging_remove(struct cache *c, const char *name);
/* Appends to staging/<name>/<file>. */
int cache_staging_append(
    struct cache *c, const char *name, const char *file, const void *bytes, size_t n,
    struct err *err);

/* ---- Packages ---------------------------------------------------------------------------- */

struct cache_package {
    struct digest digest;
    char key[DIGEST_HEX + 1];
    uint64_t bytes;
    uint64_t created_ms;
    uint64_t used_ms;
    bool is_imported;
    char *info; /* owned JSON text; free with cache_package_done() */
};

typedef int cache_package_fn(const struct cache_package *p, void *arg); /* nonzero stops */

void cache_package_done(struct cache_package *p);
/* Compiled here for this key: -ERR_NOT_FOUND when none, or its file is gone (the row goes too). */
int cache_package_find(
    struct cache *c, const char *key, struct cache_package *ret, struct err *err);
int cache_package_get(
    struct cache *c, const struct digest *digest, struct cache_package *ret, struct err *err);
/* Moves a verified file into place and evicts others until the limit holds. */
int cache_package_insert(
    struct cache *c, const char *path, const struct cache_package *p, uid_t uid, struct err *err);
int cache_package_grant(struct cache *c, const struct digest *digest, uid_t uid, struct err *err);
bool cache_package_visible(struct cache *c, const struct digest *digest, uid_t uid);
void cache_package_path(const struct cache *c, const struct cache_package *p, char *ret, size_t n);
/* In order of creation; key and after may be NULL; everyone: not only those that uid may see. */
int cache_package_list(
    struct cache *c, uid_t uid, bool everyone, const char *key, const char *after, int limit,
    cache_package_fn *fn, void *arg, struct err *err);
int cache_package_remove(struct cache *c, const struct digest *digest, struct err *err);
/* Removes the longest unused ones until at most `keep_bytes` are left. Pinned ones stay. */
int cache_package_evict(
    struct cache *c, uint64_t keep_bytes, uint64_t *ret_count, uint64_t *ret_bytes,
    struct err *err);
int cache_package_pin(struct cache *c, const struct digest *digest, struct err *err);
void cache_package_unpin(struct cache *c, const struct digest *digest);

/* ---- Jobs -------------------------------------------------------------------------------- */

/* A row. Texts are owned when read (cache_job_done()), borrowed when written; NULL = none. */
struct cache_job {
    char id[CACHE_ID_CHARS + 1];
    int64_t alias;
    uid_t uid;
    char *name;
    char *state;
    char *document; /* as submitted */
    char *labels;   /* JSON */
    char *reason;   /* JSON, why it waits */
    char *key;
    char *package;
    char *report; /* JSON */
    char *error;  /* problem document */
    char *request_id;
    uint64_t created_ms;
    uint64_t state_ms;
    uint64_t started_ms; /* 0 = not yet */
    uint64_t finished_ms;
    int64_t last_event; /* sequence number, 0 = none */
};

struct cache_idempotency {
    const char *key; /* NULL = none */
    struct digest body;
};

typedef int cache_job_fn(const struct cache_job *job, void *arg); /* nonzero stops */

void cache_job_done(struct cache_job *job);
int cache_job_insert(
    struct cache *c, const struct cache_job *job, const struct cache_idempotency *idempotency,
    int64_t *ret_alias, struct err *err);
/* The job that this user made with this key: -ERR_NOT_FOUND when none or too old. */
int cache_idempotency_find(
    struct cache *c, uid_t uid, const char *key, char ret_id[CACHE_ID_CHARS + 1],
    struct digest *ret_body, struct err *err);
/* By id, or by decimal alias. */
int cache_job_find(struct cache *c, const char *id, struct cache_job *ret, struct err *err);
/* Texts that are NULL, times that are 0 stay as they are. -ERR_CONFLICT on an ended job. */
int cache_job_update(struct cache *c, const struct cache_job *job, struct err *err);
/* Oldest first from alias `after`; state NULL = all; everyone: not only uid's. */
int cache_job_list(
    struct cache *c, uid_t uid, bool everyone, const char *state, int64_t after, int limit,
    cache_job_fn *fn, void *arg, struct err *err);
int cache_job_delete(struct cache *c, const char *id, struct err *err);
/* Deletes at most some hundred jobs that ended before. */
int cache_job_forget(struct cache *c, uint64_t before_ms, struct err *err);
/* At start: active jobs become `interrupted` with `error` and an event each, those being
 * cancelled `cancelled`, rows with unknown states `failed`; queued and held ones stay. */
int cache_job_recover(
    struct cache *c, const char *error, const char *event, uint64_t *ret_count, struct err *err);
/* Jobs by state, for counters. */
int cache_job_count(struct cache *c, const char *state, uint64_t *ret, struct err *err);

int cache_job_pin_blob(struct cache *c, const char *id, const struct digest *blob, struct err *err);

/* body is a JSON object's text; *ret_seq counts from 1 in each job. */
int cache_event_append(
    struct cache *c, const char *id, const char *body, int64_t *ret_seq, struct err *err);
typedef int cache_event_fn(int64_t seq, uint64_t ms, const char *body, void *arg);
int cache_event_read(
    struct cache *c, const char *id, int64_t from, cache_event_fn *fn, void *arg, struct err *err);

struct cache_output {
    int ordinal;
    const char *name;
    const char *dtype;
    const char *shape; /* JSON, of one run */
    uint64_t run_bytes;
    uint64_t runs; /* stored so far */
    bool has_blob; /* false: still in staging/<job>/out.<ordinal> */
    struct digest blob;
};

typedef int cache_output_fn(const struct cache_output *output, void *arg);

int cache_output_put(
    struct cache *c, const char *id, const struct cache_output *output, struct err *err);
int cache_output_list(
    struct cache *c, const char *id, cache_output_fn *fn, void *arg, struct err *err);

/* The profile of a job's runs: a JSON text. *ret is owned; -ERR_NOT_FOUND when there is none. */
int cache_profile_put(struct cache *c, const char *id, const char *body, struct err *err);
int cache_profile_get(struct cache *c, const char *id, char **ret, struct err *err);

/* ---- Schedules --------------------------------------------------------------------------- */

/* Copies the rows of a worker's staged schedules (a path below dir) into schedules.sqlite3.
 * A file that is absent or damaged adds nothing: schedules only save time. */
void cache_schedules_adopt(struct cache *c, const char *path);
/* Copies schedules.sqlite3 into a staging folder as known-schedules.sqlite3, for one worker. None
 * when there is none or no room. */
void cache_schedules_copy(struct cache *c, int staging_fd);

/* ---- Figures ----------------------------------------------------------------------------- */

struct cache_stats {
    uint64_t package_count, package_bytes, blob_count, blob_bytes;
    uint64_t evicted_bytes, healed, disk_free_bytes, wal_bytes;
};

void cache_stats(struct cache *c, struct cache_stats *ret);

#endif
