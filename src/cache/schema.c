/* Schemas and migrations. Each database has its own numbered steps; a step and its user_version
 * are one transaction, a copy of the file is kept beside it before the first step of an existing
 * one. A newer version than we know is refused, never touched. */
#include "cache/cache_internal.h"

#include <errno.h>
#include <fcntl.h>

#define JOBS_APPLICATION_ID  0x6970756a /* "ipuj" */
#define CACHE_APPLICATION_ID 0x69707563 /* "ipuc" */

static const char *const jobs_steps[] = {
    "CREATE TABLE job (alias INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,"
    " uid INTEGER NOT NULL, name TEXT, state TEXT NOT NULL, document TEXT NOT NULL, labels TEXT,"
    " reason TEXT, key TEXT, package TEXT, report TEXT, error TEXT, request_id TEXT,"
    " created_ms INTEGER NOT NULL, state_ms INTEGER NOT NULL, started_ms INTEGER NOT NULL DEFAULT "
    "0,"
    " finished_ms INTEGER NOT NULL DEFAULT 0, last_event INTEGER NOT NULL DEFAULT 0);"
    "CREATE INDEX job_uid ON job (uid, alias);"
    "CREATE INDEX job_state ON job (state);"
    "CREATE INDEX job_finished ON job (finished_ms);"
    "CREATE INDEX job_package ON job (package) WHERE package IS NOT NULL;"
    "CREATE TABLE event (job TEXT NOT NULL REFERENCES job (id) ON DELETE CASCADE,"
    " seq INTEGER NOT NULL, ms INTEGER NOT NULL, body TEXT NOT NULL, PRIMARY KEY (job, seq))"
    " WITHOUT ROWID;"
    "CREATE TABLE idempotency (uid INTEGER NOT NULL, key TEXT NOT NULL, body TEXT NOT NULL,"
    " job TEXT NOT NULL REFERENCES job (id) ON DELETE CASCADE, created_ms INTEGER NOT NULL,"
    " PRIMARY KEY (uid, key)) WITHOUT ROWID;"
    "CREATE INDEX idempotency_job ON idempotency (job);"
    "CREATE TABLE job_blob (job TEXT NOT NULL REFERENCES job (id) ON DELETE CASCADE,"
    " blob TEXT NOT NULL, PRIMARY KEY (job, blob)) WITHOUT ROWID;"
    "CREATE INDEX job_blob_blob ON job_blob (blob);"
    "CREATE TABLE output (job TEXT NOT NULL REFERENCES job (id) ON DELETE CASCADE,"
    " ordinal INTEGER NOT NULL, name TEXT NOT NULL, dtype TEXT NOT NULL, shape TEXT NOT NULL,"
    " run_bytes INTEGER NOT NULL, runs INTEGER NOT NULL, blob TEXT, PRIMARY KEY (job, ordinal))"
    " WITHOUT ROWID;"
    "CREATE TABLE profile (job TEXT PRIMARY KEY REFERENCES job (id) ON DELETE CASCADE,"
    " body TEXT NOT NULL) WITHOUT ROWID;",
};

static const char *const cache_steps[] = {
    "CREATE TABLE package (digest TEXT PRIMARY KEY, key TEXT NOT NULL, bytes INTEGER NOT NULL,"
    " created_ms INTEGER NOT NULL, used_ms INTEGER NOT NULL, imported INTEGER NOT NULL,"
    " info TEXT NOT NULL) WITHOUT ROWID;"
    "CREATE INDEX package_key ON package (key);"
    "CREATE INDEX package_used ON package (used_ms);"
    "CREATE TABLE package_owner (digest TEXT NOT NULL REFERENCES package (digest) ON DELETE "
    "CASCADE,"
    " uid INTEGER NOT NULL, PRIMARY KEY (digest, uid)) WITHOUT ROWID;"
    "CREATE TABLE blob (digest TEXT PRIMARY KEY, bytes INTEGER NOT NULL, used_ms INTEGER NOT NULL)"
    " WITHOUT ROWID;"
    "CREATE INDEX blob_used ON blob (used_ms);"
    "CREATE TABLE blob_owner (digest TEXT NOT NULL REFERENCES blob (digest) ON DELETE CASCADE,"
    " uid INTEGER NOT NULL, PRIMARY KEY (digest, uid)) WITHOUT ROWID;",
};

static const struct {
    const char *file;
    uint32_t application_id;
    const char *const *steps;
    int step_count;
    const char *synchronous; /* losing the cache's last rows at a power cut only costs a compile */
} schemas[DB_COUNT] = {
    [DB_JOBS] = {"jobs.sqlite3", JOBS_APPLICATION_ID, jobs_steps, 1, "FULL"},
    [DB_CACHE] = {"cache.sqlite3", CACHE_APPLICATION_ID, cache_steps, 1, "NORMAL"},
};

int schema_sql_error(sqlite3 *db, const char *what, struct err *err) {
    int code = db != NULL ? sqlite3_errcode(db) : SQLITE_NOMEM;
    enum err_code e = ERR_IO;
    if (code == SQLITE_FULL) {
        e = ERR_DISK_FULL;
    } else if (code == SQLITE_NOMEM) {
        e = ERR_NOMEM;
    }
    return err_set(err, e, "%s: %s", what, db != NULL ? sqlite3_errmsg(db) : "out of memory");
}

static int schema_exec(sqlite3 *db, const char *what, const char *sql, struct err *err) {
    return sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0
                                                                : schema_sql_error(db, what, err);
}

static int
schema_pragma(sqlite3 *db, const char *what, const char *sql, int64_t *ret, struct err *err) {
    sqlite3_stmt *s = NULL;
    int r = -1;
    if (sqlite3_prepare_v2(db, sql, -1, &s, NULL) == SQLITE_OK && sqlite3_step(s) == SQLITE_ROW) {
        *ret = sqlite3_column_int64(s, 0);
        r = 0;
    }
    sqlite3_finalize(s);
    return r == 0 ? 0 : schema_sql_error(db, what, err);
}

static int schema_backup(struct cache *c, enum cache_db which, int version, struct err *err) {
    char sql[4200];
    char *quoted = sqlite3_mprintf("VACUUM INTO '%q/%q.v%d'", c->dir, schemas[which].file, version);
    if (quoted == NULL) {
        return err_set(err, ERR_NOMEM, NULL);
    }
    snprintf(sql, sizeof sql, "%s", quoted);
    sqlite3_free(quoted);
    char name[64];
    snprintf(name, sizeof name, "%s.v%d", schemas[which].file, version);
    unlinkat(c->dir_fd, name, 0);
    return schema_exec(c->db[which], "backup before migration", sql, err);
}

static int schema_migrate(struct cache *c, enum cache_db which, struct err *err) {
    sqlite3 *db = c->db[which];
    const char *file = schemas[which].file;
    int64_t id = 0;
    int64_t version = 0;
    int r;
    if ((r = schema_pragma(db, file, "PRAGMA application_id", &id, err)) < 0 ||
        (r = schema_pragma(db, file, "PRAGMA user_version", &version, err)) < 0) {
        return r;
    }
    if (id != 0 && (uint32_t)id != schemas[which].application_id) {
        return err_set(
            err, ERR_IO, "%s/%s: application id %08x is not ours", c->dir, file, (unsigned)id);
    }
    if (version > schemas[which].step_count) {
        return err_set(
            err, ERR_CONFLICT,
            "%s/%s has schema version %lld, this daemon knows %d: it was written by a newer one",
            c->dir, file, (long long)version, schemas[which].step_count);
    }
    if (version > 0 && version < schemas[which].step_count &&
        (r = schema_backup(c, which, (int)version, err)) < 0) {
        return r;
    }
    for (int step = (int)version; step < schemas[which].step_count; step++) {
        char tail[128];
        snprintf(
            tail, sizeof tail, "PRAGMA application_id = %u; PRAGMA user_version = %d; COMMIT",
            schemas[which].application_id, step + 1);
        if ((r = schema_exec(db, file, "BEGIN IMMEDIATE", err)) < 0 ||
            (r = schema_exec(db, file, schemas[which].steps[step], err)) < 0 ||
            (r = schema_exec(db, file, tail, err)) < 0) {
            sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
            return r;
        }
    }
    return 0;
}

static int schema_try(struct cache *c, enum cache_db which, struct err *err) {
    char path[4096];
    char sql[512];
    const char *file = schemas[which].file;
    snprintf(path, sizeof path, "%s/%s", c->dir, file);
    int flags =
        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_EXRESCODE;
    if (sqlite3_open_v2(path, &c->db[which], flags, NULL) != SQLITE_OK) {
        return schema_sql_error(c->db[which], path, err);
    }
    sqlite3_db_config(c->db[which], SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    snprintf(
        sql, sizeof sql,
        "PRAGMA busy_timeout = 5000; PRAGMA journal_mode = WAL; PRAGMA synchronous = %s;"
        "PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;"
        "PRAGMA journal_size_limit = 16777216; PRAGMA secure_delete = OFF;",
        schemas[which].synchronous);
    int r = schema_exec(c->db[which], path, sql, err);
    if (r == 0) {
        r = schema_migrate(c, which, err);
    }
    int64_t faults = 0;
    if (r == 0 &&
        (r = schema_pragma(
             c->db[which], path,
             "SELECT count(*) FROM pragma_quick_check(1) WHERE quick_check <> 'ok'", &faults,
             err)) == 0 &&
        faults > 0) {
        r = err_set(err, ERR_IO, "%s: the database is damaged", path);
    }
    return r;
}

static int schema_prepare(struct cache *c, enum cache_db which, struct err *err) {
    static const struct {
        enum cache_db db;
        const char *sql;
    } rows[] = {
#define STMT(id, db, sql) {DB_##db, sql},
#include "cache/stmt.def"
#undef STMT
    };
    for (int i = 0; i < STMT_COUNT; i++) {
        if (rows[i].db == which && sqlite3_prepare_v3(
                                       c->db[which], rows[i].sql, -1, SQLITE_PREPARE_PERSISTENT,
                                       &c->stmt[i], NULL) != SQLITE_OK) {
            return schema_sql_error(c->db[which], schemas[which].file, err);
        }
    }
    return 0;
}

/* The cache's index can be made again from the files: a damaged one is set aside. The jobs are
 * precious: their database is refused with the reason, and stays as it is. */
int schema_open(struct cache *c, enum cache_db which, struct err *err) {
    int r = schema_try(c, which, err);
    bool is_new = false;
    if (r < 0 && r != -ERR_CONFLICT && r != -ERR_NOMEM && which == DB_CACHE) {
        char aside[64];
        snprintf(
            aside, sizeof aside, "cache.sqlite3.damaged-%llu", (unsigned long long)cache_now_ms(c));
        log_warning(
            "cache", "index set aside as=%s reason=\"%s\"", aside, err != NULL ? err->text : "");
        sqlite3_close_v2(c->db[which]);
        c->db[which] = NULL;
        if (renameat(c->dir_fd, "cache.sqlite3", c->dir_fd, aside) != 0) {
            return r;
        }
        unlinkat(c->dir_fd, "cache.sqlite3-wal", 0);
        unlinkat(c->dir_fd, "cache.sqlite3-shm", 0);
        is_new = true;
        r = schema_try(c, which, err);
    }
    if (r == 0) {
        r = schema_prepare(c, which, err);
    }
    if (r < 0) {
        return err_wrap(err, "state directory '%s'", c->dir);
    }
    return is_new ? files_index(c, err) : 0;
}
