/* Schedules that a worker staged, adopted after its exit 0.
 *
 * The file is a database with one table, schedule(key, value). Rows are copied, first come first
 * kept: a schedule is a pure function of its key (design.md D6). The target is the only database
 * here in rollback-journal mode, because workers open it read-only. */
#include "cache/cache_internal.h"

#include <errno.h>
#include <sys/stat.h>

#define SCHEDULE_MAX_ROWS  65536
#define SCHEDULE_MAX_BYTES (4 << 20)

static const char schedule_schema[] =
    "CREATE TABLE IF NOT EXISTS schedule (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID";

static bool schedules_open(struct cache *c) {
    if (c->schedules != NULL) {
        return true;
    }
    char path[4200];
    snprintf(path, sizeof path, "%s/schedules.sqlite3", c->dir);
    if (sqlite3_open_v2(
            path, &c->schedules, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOFOLLOW,
            NULL) == SQLITE_OK &&
        sqlite3_exec(
            c->schedules,
            "PRAGMA busy_timeout = 2000; PRAGMA journal_mode = DELETE; PRAGMA trusted_schema = OFF",
            NULL, NULL, NULL) == SQLITE_OK &&
        sqlite3_exec(c->schedules, schedule_schema, NULL, NULL, NULL) == SQLITE_OK) {
        return true;
    }
    log_warning("cache", "schedules cannot be kept reason=\"%s\"", sqlite3_errmsg(c->schedules));
    sqlite3_close_v2(c->schedules);
    c->schedules = NULL;
    return false;
}

static void schedules_copy(struct cache *c, sqlite3_stmt *from, sqlite3_stmt *to) {
    for (int rows = 0; rows < SCHEDULE_MAX_ROWS && sqlite3_step(from) == SQLITE_ROW; rows++) {
        const char *key = (const char *)sqlite3_column_text(from, 0);
        int bytes = sqlite3_column_bytes(from, 1);
        if (key == NULL || bytes == 0 || bytes > SCHEDULE_MAX_BYTES) {
            continue;
        }
        sqlite3_bind_text(to, 1, key, -1, SQLITE_TRANSIENT);
        sqlite3_bind_blob(to, 2, sqlite3_column_blob(from, 1), bytes, SQLITE_TRANSIENT);
        if (sqlite3_step(to) != SQLITE_DONE) {
            return;
        }
        sqlite3_reset(to);
    }
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
    sqlite3_stmt *to = NULL;
    if (sqlite3_open_v2(absolute, &staged, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOFOLLOW, NULL) ==
            SQLITE_OK &&
        sqlite3_db_config(staged, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL) == SQLITE_OK &&
        sqlite3_db_config(staged, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL) == SQLITE_OK &&
        sqlite3_prepare_v2(
            staged, "SELECT key, value FROM schedule ORDER BY key", -1, &from, NULL) == SQLITE_OK &&
        sqlite3_prepare_v2(
            c->schedules, "INSERT OR IGNORE INTO schedule VALUES (?1, ?2)", -1, &to, NULL) ==
            SQLITE_OK &&
        sqlite3_exec(c->schedules, "BEGIN IMMEDIATE", NULL, NULL, NULL) == SQLITE_OK) {
        schedules_copy(c, from, to);
        sqlite3_reset(to);
        sqlite3_exec(c->schedules, "COMMIT", NULL, NULL, NULL);
    }
    sqlite3_finalize(from);
    sqlite3_finalize(to);
    sqlite3_close_v2(staged);
}
