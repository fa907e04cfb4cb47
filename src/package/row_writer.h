/* Rows into a new SQLite file: of a package, and of a profile (src/profile).
 *
 * The file is private until its owner moves it, so journal and sync are off and all rows go in one
 * transaction. The first failure is kept; what follows it does nothing, and row_writer_finish()
 * tells it and leaves no file.
 *
 *     struct row_writer w;
 *     row_writer_create(&w, "package", path, APPLICATION_ID, VERSION, err);
 *     row_exec(&w, "CREATE TABLE ..."); ...
 *     row_table(&w, "meta", 2);
 *     row_text(&w, "key"); row_text(&w, "value"); row_end(&w); ...
 *     return row_writer_finish(&w);
 */
#ifndef PACKAGE_ROW_WRITER_H
#define PACKAGE_ROW_WRITER_H

#include <sqlite3.h>

#include "package/package.h"

struct row_writer {
    sqlite3 *db;
    sqlite3_stmt *stmt; /* of the table in progress */
    const char *what;   /* first word of messages; borrowed, as path is */
    const char *path;
    int column;
    bool is_made; /* the file is ours to remove */
    int failed;   /* first -ERR_x */
    struct err *err;
};

/* A path that exists is refused. */
void row_writer_create(
    struct row_writer *w, const char *what, const char *path, int application_id, int version,
    struct err *err);
int row_writer_finish(struct row_writer *w); /* commits and closes */

void row_exec(struct row_writer *w, const char *sql);
void row_table(struct row_writer *w, const char *name, int columns); /* the next rows' table */
/* The next column of a row. Texts and bytes must stay until row_end(). */
void row_int(struct row_writer *w, int64_t v);
void row_text(struct row_writer *w, const char *v);
void row_blob(struct row_writer *w, const uint8_t *bytes, uint32_t n);
void row_end(struct row_writer *w);
void row_fail(struct row_writer *w, int code); /* of the caller's own: -ERR_x with w->err set */

/* The rest of a row of table `step`, behind id and kind: packages hold the kind's number, profiles
 * its name. */
void row_step_end(struct row_writer *w, const struct package_step *s);
/* Table `call`, which packages and profiles have alike. */
void row_calls(struct row_writer *w, const struct package_kernel_call *calls, uint32_t count);

#endif
