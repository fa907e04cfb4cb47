/* Profile -> SQLite file. The file is new and private until its owner moves it, so journal and sync
 * are off and all rows go in one transaction; a failure leaves nothing. */
#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "profile/profile.h"

struct writer {
    sqlite3 *db;
    sqlite3_stmt *stmt; /* owned; of the table in progress */
    int column;
    struct err *err;
    int failed; /* first -ERR_x */
};

static void fail(struct writer *w, const char *what) {
    if (w->failed == 0) {
        bool is_full = sqlite3_errcode(w->db) == SQLITE_FULL;
        w->failed = err_set(
            w->err, is_full ? ERR_DISK_FULL : ERR_IO, "profile: %s: %s", what,
            sqlite3_errmsg(w->db));
    }
}

static void run_sql(struct writer *w, const char *sql) {
    if (w->failed == 0 && sqlite3_exec(w->db, sql, NULL, NULL, NULL) != SQLITE_OK) {
        fail(w, sql);
    }
}

static void begin_table(struct writer *w, const char *insert) {
    sqlite3_finalize(w->stmt);
    w->stmt = NULL;
    w->column = 0;
    if (w->failed == 0 && sqlite3_prepare_v2(w->db, insert, -1, &w->stmt, NULL) != SQLITE_OK) {
        fail(w, insert);
    }
}

static void put_int(struct writer *w, int64_t v) {
    if (w->failed == 0 && sqlite3_bind_int64(w->stmt, ++w->column, v) != SQLITE_OK) {
        fail(w, "bind");
    }
}

static void put_text(struct writer *w, const char *v) {
    if (w->failed == 0 &&
        sqlite3_bind_text(w->stmt, ++w->column, v, -1, SQLITE_STATIC) != SQLITE_OK) {
        fail(w, "bind");
    }
}

static void end_row(struct writer *w) {
    if (w->failed == 0) {
        if (sqlite3_step(w->stmt) != SQLITE_DONE) {
            fail(w, "insert");
        }
        sqlite3_reset(w->stmt);
    }
    w->column = 0;
}

static void write_meta(struct writer *w, const struct profile *p) {
    const struct {
        const char *key, *text;
        int64_t number; /* when there is no text */
    } rows[] = {
        {"clock_hz", NULL, PROFILE_CLOCK_HZ},
        {"compute_tiles", NULL, p->compute_tiles},
        {"cycles", NULL, p->cycles},
        {"idle_tiles", NULL, (int64_t)TARGET_TILES - p->participants},
        {"key", p->key, 0},
        {"options", p->options, 0},
        {"package", p->package, 0},
        {"run", NULL, (int64_t)p->run},
        {"target", TARGET_NAME, 0},
    };
    begin_table(w, "INSERT INTO meta VALUES (?,?)");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char number[24];
        snprintf(number, sizeof number, "%lld", (long long)rows[i].number);
        put_text(w, rows[i].key);
        put_text(w, rows[i].text != NULL ? rows[i].text : number);
        end_row(w);
    }
}

static void write_plan(struct writer *w, const struct profile *p) {
    begin_table(w, "INSERT INTO step VALUES (?,?,?,?,?,?,?,?)");
    for (uint32_t i = 0; i < p->step_count; i++) {
        const struct package_step *s = &p->steps[i];
        put_int(w, i);
        put_text(w, package_step_kind_name(s->kind));
        put_int(w, s->level);
        put_int(w, s->last_level);
        put_int(w, s->predicted);
        put_int(w, s->horizon);
        put_int(w, s->bound);
        put_int(w, (int64_t)s->bytes);
        end_row(w);
    }
    begin_table(w, "INSERT INTO call VALUES (?,?,?,?,?,?,?,?)");
    for (uint32_t i = 0; i < p->call_count; i++) {
        const struct package_kernel_call *c = &p->calls[i];
        put_int(w, i);
        put_int(w, c->step);
        put_int(w, c->operation);
        put_int(w, c->node);
        put_text(w, c->op);
        put_text(w, c->kernel);
        put_int(w, c->predicted);
        put_int(w, c->useful);
        end_row(w);
    }
}

static void write_samples(struct writer *w, const struct profile *p) {
    begin_table(w, "INSERT INTO sample VALUES (?,?,?,?,?)");
    for (uint32_t i = 0; i < p->sample_count; i++) {
        const struct profile_sample *s = &p->samples[i];
        put_int(w, s->tile.n);
        put_int(w, s->index);
        put_int(w, s->step);
        put_int(w, s->start);
        put_int(w, s->end);
        end_row(w);
    }
}

static void cleanup_db(sqlite3 **db) {
    sqlite3_close(*db);
}

int profile_write(const struct profile *p, const char *path, struct err *err) {
    static const char *const tables[] = {
#define TABLE(name, sql) sql,
#include "profile/schema.def"
#undef TABLE
    };
    int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0) {
        return err_sys(err, errno == ENOSPC ? ERR_DISK_FULL : ERR_IO, errno, "%s", path);
    }
    close(fd);
    CLEANUP(cleanup_db) sqlite3 *db = NULL;
    struct writer w = {.err = err};
    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK) {
        w.failed = err_set(err, ERR_IO, "%s: %s", path, sqlite3_errmsg(db));
    }
    w.db = db;
    char pragma[160];
    snprintf(
        pragma, sizeof pragma,
        "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA page_size=4096; "
        "PRAGMA application_id=%d; PRAGMA user_version=%d; BEGIN",
        PROFILE_APPLICATION_ID, PROFILE_VERSION);
    run_sql(&w, pragma);
    for (size_t t = 0; t < sizeof tables / sizeof tables[0]; t++) {
        run_sql(&w, tables[t]);
    }
    write_meta(&w, p);
    write_plan(&w, p);
    write_samples(&w, p);
    sqlite3_finalize(w.stmt);
    run_sql(&w, "COMMIT");
    if (w.failed < 0) {
        unlink(path);
    }
    return w.failed;
}
