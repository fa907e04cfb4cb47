/* Shared by the files of cache/: the struct, statements by number, and the steps that a test can
 * make fail. */
#ifndef CACHE_CACHE_INTERNAL_H
#define CACHE_CACHE_INTERNAL_H

#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "cache/cache.h"

enum cache_db { DB_JOBS, DB_CACHE, DB_COUNT };

enum cache_stmt {
#define STMT(id, db, sql) STMT_##id,
#include "cache/stmt.def"
#undef STMT
    STMT_COUNT
};

struct cache_pin {
    struct digest digest;
    uint32_t count;
};

struct cache {
    char *dir; /* owned, absolute */
    int dir_fd;
    int lock_fd;
    sqlite3 *db[DB_COUNT];
    sqlite3 *schedules; /* opened when first needed */
    sqlite3_stmt *stmt[STMT_COUNT];
    struct cache_options options; /* dir is borrowed from above */
    struct cache_pin *pins;       /* owned; few */
    size_t pin_count;
    bool is_marked; /* the group has a savepoint */
    uint64_t fail_after;
    uint64_t evicted_bytes;
    uint64_t healed;
    uint64_t serial; /* names of temporary files */
};

/* 0, or an EIO made for a test. Called before each file or SQL step. */
int cache_step_allowed(struct cache *c, struct err *err);
uint64_t cache_now_ms(const struct cache *c);

/* Opens, checks, migrates (schema.c). */
int schema_open(struct cache *c, enum cache_db which, struct err *err);
int schema_sql_error(sqlite3 *db, const char *what, struct err *err);

/* Binds by letters and returns the statement, reset: s text or NULL, i int64_t, d digest. */
sqlite3_stmt *stmt_bind(struct cache *c, enum cache_stmt s, const char *types, ...);
/* One step: 1 = a row, 0 = done. */
int stmt_step(struct cache *c, sqlite3_stmt *s, struct err *err);
/* bind + step + reset for statements without rows. */
int stmt_run(struct cache *c, enum cache_stmt s, struct err *err, const char *types, ...);
char *stmt_text(sqlite3_stmt *s, int column); /* owned copy or NULL */
uint64_t stmt_u64(sqlite3_stmt *s, int column);

/* files.c */
int files_open_dirs(struct cache *c, struct err *err);
int files_sync_dir(struct cache *c, const char *name, struct err *err);
/* fsync(path), rename to target, fsync of the target's folder. */
int files_publish(
    struct cache *c, const char *path, const char *folder, const char *name, struct err *err);
int files_room(struct cache *c, uint64_t bytes, struct err *err);
void files_remove_tree(int dir_fd, const char *name);
int files_index(struct cache *c, struct err *err); /* rows for files, after a rebuild */
int blob_evict(struct cache *c, struct err *err);

#endif
