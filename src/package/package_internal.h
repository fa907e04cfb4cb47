/* Shared by the files of src/package only. */
#ifndef PACKAGE_PACKAGE_INTERNAL_H
#define PACKAGE_PACKAGE_INTERNAL_H

#include <sqlite3.h>

#include "package/package.h"

enum package_table {
#define TABLE(name, sql) PACKAGE_TABLE_##name,
#include "package/schema.def"
#undef TABLE
    PACKAGE_TABLES
};

/* Name and CREATE text of a table. */
const char *package_table_name(enum package_table t);
const char *package_table_sql(enum package_table t);

/* SHA-256 over the rows of all tables but `report`: tables by name, rows by primary key, integers
 * as 8 bytes, texts and blobs as length and bytes (digest.c). */
void package_digest(const struct package *p, struct digest *ret);

static inline void package_cleanup_db(sqlite3 **db) {
    sqlite3_close(*db);
}

static inline void package_cleanup_stmt(sqlite3_stmt **stmt) {
    sqlite3_finalize(*stmt);
}

#endif
