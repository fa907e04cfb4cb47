/* Schedules that a worker staged, adopted after its exit 0.
 *
 * The file is a database with one table, schedule(key, value). Rows are copied, first come first
 * kept: a schedule is a pure function of its key (design.md D6). All is done on the store thread,
 * so that between two calls no transaction is open and no journal is hot: a plain copy of the file
 * is then a whole database, and each worker gets one of its own. It has nothing to wait for and
 * nothing to damage but itself. What a row says is not trusted either: workers place an order under
 * all rules, so that a wrong one costs cycles, never a result.
 *
 * The oldest rows go when values exceed STORE_MAX_BYTES; the file may reach twice that. */
#include "cache/cache_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#define SCHEDULE_MAX_ROWS  4096
#define SCHEDULE_MAX_BYTES (4 << 20)
#define ADOPT_MAX_BYTES    (16ll << 20) /* values of one staged file */
#define STORE_MAX_BYTES    (16ll << 20)

#define FILE_NAME "schedules.sqlite3"
#define COPY_NAME "known-schedules.sqlite3"

static const char schedule_schema[] =
    "CREATE TABLE IF NOT EXISTS schedule (key TEXT PRIMARY KEY, value BLOB NOT NULL);"
    "SELECT count(*) FROM (SELECT rowid, key, length(value) FROM schedule)";

/* Twice the values and some, in pages of 4096 bytes: a limit that nothing can pass. */
static const char schedule_settings[] =
    "PRAGMA busy_timeout = 2000; PRAGMA journal_mode = DELETE; PRAGMA trusted_schema = OFF;"
    "PRAGMA cell_size_check = ON; PRAGMA max_page_count = 10240";

/* 256 stands for a row's key and its share of pages. */
static const char schedule_trim[] =
    "DELETE FROM schedule WHERE rowid <= (SELECT max(rowid) FROM (SELECT rowid, sum(length(value) "
    "+ 256) OVER (ORDER BY rowid DESC) AS total FROM schedule) WHERE total > ?1)";

static void schedules_close(struct cache *c) {
    sqlite3_close_v2(c->schedules);
    c->schedules = NULL;
}

static bool schedules_try(struct cache *c) {
    char path[4200];
    snprintf(path, sizeof path, "%s/" FILE_NAME, c->dir);
    return sqlite3_open_v2(
               path, &c->schedules,
               SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOFOLLOW,
               NULL) == SQLITE_OK &&
           sqlite3_exec(c->schedules, schedule_settings, NULL, NULL, NULL) == SQLITE_OK &&
           sqlite3_exec(c->schedules, schedule_schema, NULL, NULL, NULL) == SQLITE_OK;
}

/* A file that cannot be read is removed: all it held can be made again. */
static bool schedules_open(struct cache *c) {
    if (c->schedules != NULL || schedules_try(c)) {
        return true;
    }
    log_warning(
        "cache", "stored schedules dropped reason=\"%s\"",
        c->schedules != NULL ? sqlite3_errmsg(c->schedules) : "out of memory");
    schedules_close(c);
    unlinkat(c->dir_fd, FILE_NAME, 0);
    unlinkat(c->dir_fd, FILE_NAME "-journal", 0);
    if (schedules_try(c)) {
        return true;
    }
    log_warning("cache", "schedules cannot be kept reason=\"%s\"", sqlite3_errmsg(c->schedules));
    schedules_close(c);
    return false;
}

static bool schedules_copy(sqlite3_stmt *from, sqlite3_stmt *to) {
    int64_t left = ADOPT_MAX_BYTES;
    int rc = SQLITE_DONE;
    for (int rows = 0; rows < SCHEDULE_MAX_ROWS; rows++) {
        rc = sqlite3_step(from);
        if (rc != SQLITE_ROW) {
            break;
        }
        const char *key = (const char *)sqlite3_column_text(from, 0);
        int key_bytes = sqlite3_column_bytes(from, 0);
        int bytes = sqlite3_column_bytes(from, 1);
        if (key == NULL || key_bytes != DIGEST_HEX || bytes == 0 || bytes > SCHEDULE_MAX_BYTES ||
            bytes > left) {
            continue;
        }
        left -= bytes;
        sqlite3_bind_text(to, 1, key, key_bytes, SQLITE_TRANSIENT);
        sqlite3_bind_blob(to, 2, sqlite3_column_blob(from, 1), bytes, SQLITE_TRANSIENT);
        if (sqlite3_step(to) != SQLITE_DONE) {
            return false;
        }
        sqlite3_reset(to);
    }
    return rc == SQLITE_DONE || rc == SQLITE_ROW;
}

/* One transaction: rows of the staged file and the removal of the oldest. */
static bool schedules_merge(struct cache *c, sqlite3_stmt *from) {
    sqlite3_stmt *to = NULL;
    sqlite3_stmt *trim = NULL;
    sqlite3 *db = c->schedules;
    bool good =
        sqlite3_prepare_v2(db, "INSERT OR IGNORE INTO schedule VALUES (?1, ?2)", -1, &to, NULL) ==
            SQLITE_OK &&
        sqlite3_prepare_v2(db, schedule_trim, -1, &trim, NULL) == SQLITE_OK &&
        sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL) == SQLITE_OK;
    if (good) {
        sqlite3_bind_int64(trim, 1, STORE_MAX_BYTES);
        good = schedules_copy(from, to) && sqlite3_step(trim) == SQLITE_DONE;
    }
    sqlite3_finalize(to);
    sqlite3_finalize(trim);
    good = good && sqlite3_exec(db, "COMMIT", NULL, NULL, NULL) == SQLITE_OK;
    if (!good) {
        log_warning("cache", "schedules not adopted reason=\"%s\"", sqlite3_errmsg(db));
        sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
    }
    return good;
}

void cache_schedules_adopt(struct cache *c, const char *path) {
    char absolute[4400];
    snprintf(absolute, sizeof absolute, "%s/%s", c->dir, path);
    struct stat st;
    if (lstat(absolute, &st) != 0 || !S_ISREG(st.st_mode) || !schedules_open(c)) {
        return;
    }
    sqlite3 *staged = NULL;
    sqlite3_stmt *from = NULL;
    bool good = true;
    if (sqlite3_open_v2(absolute, &staged, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOFOLLOW, NULL) ==
            SQLITE_OK &&
        sqlite3_db_config(staged, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL) == SQLITE_OK &&
        sqlite3_db_config(staged, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL) == SQLITE_OK) {
        sqlite3_limit(staged, SQLITE_LIMIT_LENGTH, SCHEDULE_MAX_BYTES + 4096);
        if (sqlite3_prepare_v2(
                staged, "SELECT key, value FROM schedule LIMIT 4096", -1, &from, NULL) ==
            SQLITE_OK) {
            good = schedules_merge(c, from);
        }
    }
    sqlite3_finalize(from);
    sqlite3_close_v2(staged);
    if (!good) {
        schedules_close(c); /* looked at anew, and perhaps dropped, at the next open */
    }
}

static bool copy_bytes(int from, int to, off_t left) {
    while (left > 0) {
        ssize_t n = copy_file_range(from, NULL, to, NULL, (size_t)left, 0);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            break; /* other file systems: by hand */
        }
        left -= n;
    }
    char buffer[65536];
    while (left > 0) {
        ssize_t n = read(from, buffer, sizeof buffer);
        if (n <= 0 || write(to, buffer, (size_t)n) != n) {
            return false;
        }
        left -= n;
    }
    return true;
}

void cache_schedules_copy(struct cache *c, int staging_fd) {
    CLEANUP(cleanup_close) int from = -1;
    CLEANUP(cleanup_close) int to = -1;
    struct stat st;
    /* Opening it has rolled back what a killed daemon left half done. */
    if (fstatat(c->dir_fd, FILE_NAME, &st, AT_SYMLINK_NOFOLLOW) != 0 || !schedules_open(c)) {
        return;
    }
    from = openat(c->dir_fd, FILE_NAME, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (from < 0 || fstat(from, &st) != 0) {
        return;
    }
    to = openat(staging_fd, COPY_NAME, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (to >= 0 && !copy_bytes(from, to, st.st_size)) {
        unlinkat(staging_fd, COPY_NAME, 0); /* no room, say: the compile does without */
    }
}
