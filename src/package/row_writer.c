/* See row_writer.h. */
#include "package/row_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static void fail(struct row_writer *w, const char *what) {
    if (w->failed == 0) {
        bool is_full = sqlite3_errcode(w->db) == SQLITE_FULL;
        w->failed = err_set(
            w->err, is_full ? ERR_DISK_FULL : ERR_IO, "%s: %s: %s", w->what, what,
            sqlite3_errmsg(w->db));
    }
}

void row_fail(struct row_writer *w, int code) {
    w->failed = w->failed != 0 ? w->failed : code;
}

void row_exec(struct row_writer *w, const char *sql) {
    if (w->failed == 0 && sqlite3_exec(w->db, sql, NULL, NULL, NULL) != SQLITE_OK) {
        fail(w, sql);
    }
}

void row_writer_create(
    struct row_writer *w, const char *what, const char *path, int application_id, int version,
    struct err *err) {
    *w = (struct row_writer){.what = what, .path = path, .err = err};
    /* Created here so that an existing file is refused and the mode is right from birth. */
    int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0) {
        w->failed = err_sys(err, errno == ENOSPC ? ERR_DISK_FULL : ERR_IO, errno, "%s", path);
        return;
    }
    close(fd);
    w->is_made = true;
    if (sqlite3_open_v2(path, &w->db, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK) {
        w->failed = err_set(err, ERR_IO, "%s: %s", path, sqlite3_errmsg(w->db));
        return;
    }
    char pragma[160];
    snprintf(
        pragma, sizeof pragma,
        "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA page_size=4096; "
        "PRAGMA application_id=%d; PRAGMA user_version=%d; BEGIN",
        application_id, version);
    row_exec(w, pragma);
}

int row_writer_finish(struct row_writer *w) {
    sqlite3_finalize(w->stmt);
    row_exec(w, "COMMIT");
    sqlite3_close(w->db);
    if (w->failed != 0 && w->is_made) {
        unlink(w->path);
    }
    return w->failed;
}

void row_table(struct row_writer *w, const char *name, int columns) {
    char sql[256];
    int n = snprintf(sql, sizeof sql, "INSERT INTO %s VALUES (", name);
    for (int i = 0; i < columns; i++) {
        n += snprintf(sql + n, sizeof sql - (size_t)n, i == 0 ? "?" : ",?");
    }
    snprintf(sql + n, sizeof sql - (size_t)n, ")");
    sqlite3_finalize(w->stmt);
    w->stmt = NULL;
    w->column = 0;
    if (w->failed == 0 && sqlite3_prepare_v2(w->db, sql, -1, &w->stmt, NULL) != SQLITE_OK) {
        fail(w, sql);
    }
}

void row_int(struct row_writer *w, int64_t v) {
    if (w->failed == 0 && sqlite3_bind_int64(w->stmt, ++w->column, v) != SQLITE_OK) {
        fail(w, "bind");
    }
}

void row_text(struct row_writer *w, const char *v) {
    if (w->failed == 0 &&
        sqlite3_bind_text(w->stmt, ++w->column, v, -1, SQLITE_STATIC) != SQLITE_OK) {
        fail(w, "bind");
    }
}

void row_blob(struct row_writer *w, const uint8_t *bytes, uint32_t n) {
    const void *start = n > 0 ? bytes : (const void *)"";
    if (w->failed == 0 &&
        sqlite3_bind_blob(w->stmt, ++w->column, start, (int)n, SQLITE_STATIC) != SQLITE_OK) {
        fail(w, "bind");
    }
}

void row_end(struct row_writer *w) {
    if (w->failed == 0) {
        if (sqlite3_step(w->stmt) != SQLITE_DONE) {
            fail(w, "insert");
        }
        sqlite3_reset(w->stmt);
    }
    w->column = 0;
}

void row_step_end(struct row_writer *w, const struct package_step *s) {
    row_int(w, s->level);
    row_int(w, s->last_level);
    row_int(w, s->predicted);
    row_int(w, s->horizon);
    row_int(w, s->bound);
    row_int(w, (int64_t)s->bytes);
    row_end(w);
}

void row_calls(struct row_writer *w, const struct package_kernel_call *calls, uint32_t count) {
    row_table(w, "call", 8);
    for (uint32_t i = 0; i < count; i++) {
        row_int(w, i);
        row_int(w, calls[i].step);
        row_int(w, calls[i].operation);
        row_int(w, calls[i].node);
        row_text(w, calls[i].op);
        row_text(w, calls[i].kernel);
        row_int(w, calls[i].predicted);
        row_int(w, calls[i].useful);
        row_end(w);
    }
}
