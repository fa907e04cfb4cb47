/* Package -> SQLite file. The file is new and private until the caller renames it, so journal and
 * sync are off and all rows go in one transaction; a failure leaves a file that the caller's
 * staging sweep removes (and that package_write() itself unlinks). */
#include "package/package_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/cleanup.h"

struct writer {
    sqlite3 *db;
    sqlite3_stmt *stmt; /* owned; the table in progress */
    int column;
    struct err *err;
    int failed; /* first -ERR_x */
};

static void writer_fail(struct writer *w, const char *what) {
    if (w->failed == 0) {
        bool is_full = sqlite3_errcode(w->db) == SQLITE_FULL;
        w->failed = err_set(
            w->err, is_full ? ERR_DISK_FULL : ERR_IO, "package: %s: %s", what,
            sqlite3_errmsg(w->db));
    }
}

static void writer_exec(struct writer *w, const char *sql) {
    if (w->failed == 0 && sqlite3_exec(w->db, sql, NULL, NULL, NULL) != SQLITE_OK) {
        writer_fail(w, sql);
    }
}

static void writer_table(struct writer *w, enum package_table t, int columns) {
    char sql[256];
    int n = snprintf(sql, sizeof sql, "INSERT INTO %s VALUES (", package_table_name(t));
    for (int i = 0; i < columns; i++) {
        n += snprintf(sql + n, sizeof sql - (size_t)n, i == 0 ? "?" : ",?");
    }
    snprintf(sql + n, sizeof sql - (size_t)n, ")");
    sqlite3_finalize(w->stmt);
    w->stmt = NULL;
    w->column = 0;
    if (w->failed == 0 && sqlite3_prepare_v2(w->db, sql, -1, &w->stmt, NULL) != SQLITE_OK) {
        writer_fail(w, sql);
    }
}

static void put_int(struct writer *w, int64_t v) {
    if (w->failed == 0 && sqlite3_bind_int64(w->stmt, ++w->column, v) != SQLITE_OK) {
        writer_fail(w, "bind");
    }
}

static void put_text(struct writer *w, const char *v) {
    if (w->failed == 0 &&
        sqlite3_bind_text(w->stmt, ++w->column, v, -1, SQLITE_STATIC) != SQLITE_OK) {
        writer_fail(w, "bind");
    }
}

static void put_blob(struct writer *w, const uint8_t *bytes, uint32_t n) {
    if (w->failed == 0 && sqlite3_bind_blob(
                              w->stmt, ++w->column, n > 0 ? bytes : (const void *)"", (int)n,
                              SQLITE_STATIC) != SQLITE_OK) {
        writer_fail(w, "bind");
    }
}

static void put_row(struct writer *w) {
    if (w->failed == 0) {
        if (sqlite3_step(w->stmt) != SQLITE_DONE) {
            writer_fail(w, "insert");
        }
        sqlite3_reset(w->stmt);
    }
    w->column = 0;
}

static void write_meta(struct writer *w, const struct package *p) {
    char tiles[16];
    snprintf(tiles, sizeof tiles, "%u", p->compute_tiles);
    const char *rows[][2] = {
        {"compiler_id", p->compiler_id},
        {"compute_tiles", tiles},
        {"key", p->key},
        {"options", p->options},
        {"target", p->target}};
    writer_table(w, PACKAGE_TABLE_meta, 2);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        put_text(w, rows[i][0]);
        put_text(w, rows[i][1]);
        put_row(w);
    }
}

static void write_interface(struct writer *w, const struct package *p) {
    writer_table(w, PACKAGE_TABLE_binding, 5 + TENSOR_MAX_DIMS);
    for (uint32_t i = 0; i < p->binding_count; i++) {
        const struct package_binding *b = &p->bindings[i];
        put_int(w, i);
        put_int(w, (int64_t)b->role);
        put_int(w, b->ordinal);
        put_text(w, dtype_name(b->dtype));
        put_int(w, b->shape.rank);
        for (int k = 0; k < TENSOR_MAX_DIMS; k++) {
            put_int(w, b->shape.dim[k]);
        }
        put_row(w);
    }
    writer_table(w, PACKAGE_TABLE_phase, 4);
    for (uint32_t i = 0; i < p->phase_count; i++) {
        put_int(w, i);
        put_int(w, (int64_t)p->phases[i].call);
        put_int(w, p->phases[i].index);
        put_int(w, p->phases[i].is_output);
        put_row(w);
    }
    writer_table(w, PACKAGE_TABLE_participant, 2);
    for (uint32_t i = 0; i < p->participant_count; i++) {
        put_int(w, i);
        put_int(w, p->participants[i]);
        put_row(w);
    }
    writer_table(w, PACKAGE_TABLE_slice, 6 + 3 * TENSOR_MAX_DIMS);
    for (uint32_t i = 0; i < p->slice_count; i++) {
        const struct package_slice *s = &p->slices[i];
        put_int(w, i);
        put_int(w, s->binding);
        put_int(w, s->phase);
        put_int(w, s->tile.n);
        put_int(w, (int64_t)s->tensor_offset);
        put_int(w, s->page_offset);
        for (int k = 0; k < TENSOR_MAX_DIMS; k++) {
            put_int(w, s->extent[k]);
        }
        for (int k = 0; k < TENSOR_MAX_DIMS; k++) {
            put_int(w, s->tensor_stride[k]);
        }
        for (int k = 0; k < TENSOR_MAX_DIMS; k++) {
            put_int(w, s->page_stride[k]);
        }
        put_row(w);
    }
}

static void write_profile_plan(struct writer *w, const struct package *p) {
    writer_table(w, PACKAGE_TABLE_step, 8);
    for (uint32_t i = 0; i < p->step_count; i++) {
        const struct package_step *s = &p->steps[i];
        put_int(w, i);
        put_int(w, (int64_t)s->kind);
        put_int(w, s->level);
        put_int(w, s->last_level);
        put_int(w, s->predicted);
        put_int(w, s->horizon);
        put_int(w, s->bound);
        put_int(w, (int64_t)s->bytes);
        put_row(w);
    }
    writer_table(w, PACKAGE_TABLE_call, 8);
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
        put_row(w);
    }
    writer_table(w, PACKAGE_TABLE_trace, 3);
    for (uint32_t i = 0; i < p->trace_count; i++) {
        const struct package_trace *t = &p->traces[i];
        CLEANUP(cleanup_free) uint8_t *bytes = malloc(4 * (size_t)t->count + 1);
        if (bytes == NULL) {
            w->failed = w->failed < 0 ? w->failed : err_set(w->err, ERR_NOMEM, NULL);
            return;
        }
        for (uint32_t k = 0; k < t->count; k++) {
            store_le32(bytes + 4 * (size_t)k, t->steps[k]);
        }
        put_int(w, i);
        put_int(w, t->first);
        put_blob(w, bytes, 4 * t->count);
        put_row(w);
    }
}

static void write_images(struct writer *w, const struct package *p) {
    writer_table(w, PACKAGE_TABLE_content, 2);
    for (uint32_t i = 0; i < p->content_count; i++) {
        put_int(w, i);
        put_blob(w, p->contents[i].bytes, p->contents[i].size);
        put_row(w);
    }
    writer_table(w, PACKAGE_TABLE_segment, 3);
    for (uint32_t i = 0; i < p->segment_count; i++) {
        put_int(w, p->segments[i].tile.n);
        put_int(w, p->segments[i].addr);
        put_int(w, p->segments[i].content);
        put_row(w);
    }
    writer_table(w, PACKAGE_TABLE_symbol, 5);
    for (uint32_t i = 0; i < p->symbol_count; i++) {
        const struct package_symbol *s = &p->symbols[i];
        put_int(w, i);
        put_int(w, s->tile);
        put_int(w, s->addr);
        put_int(w, s->size);
        put_text(w, s->name);
        put_row(w);
    }
    if (p->report != NULL) {
        writer_table(w, PACKAGE_TABLE_report, 2);
        put_int(w, 1);
        put_text(w, p->report);
        put_row(w);
    }
}

int package_write(const struct package *p, const char *path, struct digest *ret, struct err *err) {
    int r = package_verify(p, err);
    if (r < 0) {
        return err_wrap(err, "package to write");
    }
    /* Created here so that an existing file is refused and the mode is right from birth. */
    int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0) {
        return err_sys(err, errno == ENOSPC ? ERR_DISK_FULL : ERR_IO, errno, "%s", path);
    }
    close(fd);
    CLEANUP(package_cleanup_db) sqlite3 *db = NULL;
    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK) {
        r = err_set(err, ERR_IO, "%s: %s", path, sqlite3_errmsg(db));
        unlink(path);
        return r;
    }
    struct writer w = {.db = db, .err = err};
    char pragma[128];
    writer_exec(&w, "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA page_size=4096;");
    snprintf(
        pragma, sizeof pragma, "PRAGMA application_id=%d; PRAGMA user_version=%d;",
        PACKAGE_APPLICATION_ID, PACKAGE_VERSION);
    writer_exec(&w, pragma);
    writer_exec(&w, "BEGIN");
    for (int t = 0; t < PACKAGE_TABLES; t++) {
        writer_exec(&w, package_table_sql((enum package_table)t));
    }
    write_meta(&w, p);
    write_interface(&w, p);
    write_images(&w, p);
    write_profile_plan(&w, p);
    sqlite3_finalize(w.stmt);
    writer_exec(&w, "COMMIT");
    if (w.failed != 0) {
        unlink(path);
        return w.failed;
    }
    package_digest(p, ret);
    return 0;
}
