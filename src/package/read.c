/* SQLite file -> package, treated as hostile (design.md D4): ids and the exact schema text come
 * first, then the file is read immutable and defensive, each row typed and counted against a
 * limit, and the whole is verified and digested. No SQL from the file is ever run: the schema
 * equals ours, which has neither views nor triggers. */
#include "package/package_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "base/cleanup.h"

#define MAX_FILE_BYTES (2ull * PACKAGE_MAX_BYTES)
#define MAX_TEXT_BYTES (16u << 20)

struct reader {
    sqlite3 *db;
    struct arena *arena; /* owned by the package under construction */
    const char *path;
    int64_t file_bytes;
    struct err *err;
};

static int corrupt(struct reader *r, const char *what) {
    return err_at(r->err, ERR_PACKAGE_CORRUPT, r->path, "%s: %s", what, sqlite3_errmsg(r->db));
}

/* "file:" URI with every byte outside a small set escaped. */
static char *file_uri(const char *path) {
    size_t n = strlen(path);
    char *uri = malloc(3 * n + 32);
    if (uri == NULL) {
        return NULL;
    }
    char *out = uri + sprintf(uri, "file:");
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)path[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     c == '/' || c == '.' || c == '_' || c == '-';
        out += plain ? sprintf(out, "%c", c) : sprintf(out, "%%%02X", c);
    }
    sprintf(out, "?immutable=1");
    return uri;
}

static int open_database(struct reader *r) {
    struct stat st;
    if (stat(r->path, &st) < 0) {
        return err_sys(r->err, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, errno, "%s", r->path);
    }
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size > MAX_FILE_BYTES) {
        return err_at(
            r->err, ERR_PACKAGE_CORRUPT, r->path, "not a regular file of at most %llu bytes",
            (unsigned long long)MAX_FILE_BYTES);
    }
    r->file_bytes = (int64_t)st.st_size;
    CLEANUP(cleanup_free) char *uri = file_uri(r->path);
    if (uri == NULL) {
        return err_set(r->err, ERR_NOMEM, NULL);
    }
    if (sqlite3_open_v2(uri, &r->db, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, NULL) != SQLITE_OK) {
        return corrupt(r, "cannot open");
    }
    sqlite3_db_config(r->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(r->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    sqlite3_limit(r->db, SQLITE_LIMIT_LENGTH, (int)MAX_TEXT_BYTES);
    sqlite3_limit(r->db, SQLITE_LIMIT_VDBE_OP, 10000);
    if (sqlite3_exec(r->db, "PRAGMA cell_size_check=ON", NULL, NULL, NULL) != SQLITE_OK) {
        return corrupt(r, "not a package");
    }
    return 0;
}

static int prepare(struct reader *r, const char *sql, sqlite3_stmt **ret) {
    return sqlite3_prepare_v2(r->db, sql, -1, ret, NULL) == SQLITE_OK ? 0 : corrupt(r, sql);
}

static int check_pragma(struct reader *r, const char *name, int expected) {
    char sql[64];
    snprintf(sql, sizeof sql, "PRAGMA %s", name);
    CLEANUP(package_cleanup_stmt) sqlite3_stmt *stmt = NULL;
    int e = prepare(r, sql, &stmt);
    if (e < 0) {
        return e;
    }
    if (sqlite3_step(stmt) != SQLITE_ROW) {
        return corrupt(r, "not a package");
    }
    int found = sqlite3_column_int(stmt, 0);
    if (found != expected) {
        return err_at(
            r->err, ERR_PACKAGE_CORRUPT, r->path, "%s is %d, expected %d", name, found, expected);
    }
    return 0;
}

static int read_pragma(struct reader *r, const char *name, int64_t *ret) {
    char sql[64];
    snprintf(sql, sizeof sql, "PRAGMA %s", name);
    CLEANUP(package_cleanup_stmt) sqlite3_stmt *stmt = NULL;
    int e = prepare(r, sql, &stmt);
    if (e == 0 && sqlite3_step(stmt) != SQLITE_ROW) {
        e = corrupt(r, "not a package");
    }
    *ret = e == 0 ? sqlite3_column_int64(stmt, 0) : 0;
    return e;
}

/* The file is its pages and nothing behind them, none of them free: what the digest of the rows
 * does not cover has no place to lie in. */
static int check_size(struct reader *r) {
    int64_t page = 0, pages = 0;
    int e = read_pragma(r, "page_size", &page);
    e = e < 0 ? e : read_pragma(r, "page_count", &pages);
    e = e < 0 ? e : check_pragma(r, "freelist_count", 0);
    if (e == 0 && page * pages != r->file_bytes) {
        return err_at(
            r->err, ERR_PACKAGE_CORRUPT, r->path, "%lld bytes, but %lld pages of %lld",
            (long long)r->file_bytes, (long long)pages, (long long)page);
    }
    return e;
}

static int check_schema(struct reader *r) {
    CLEANUP(package_cleanup_stmt) sqlite3_stmt *stmt = NULL;
    int e = prepare(r, "SELECT type, name, sql FROM sqlite_schema ORDER BY name", &stmt);
    if (e < 0) {
        return e;
    }
    for (int t = 0; t < PACKAGE_TABLES; t++) {
        const char *name = package_table_name((enum package_table)t);
        int step = sqlite3_step(stmt);
        if (step != SQLITE_ROW && step != SQLITE_DONE) {
            return corrupt(r, "schema");
        }
        const char *type = step == SQLITE_ROW ? (const char *)sqlite3_column_text(stmt, 0) : NULL;
        const char *found = step == SQLITE_ROW ? (const char *)sqlite3_column_text(stmt, 1) : NULL;
        const char *sql = step == SQLITE_ROW ? (const char *)sqlite3_column_text(stmt, 2) : NULL;
        if (type == NULL || found == NULL || sql == NULL || strcmp(type, "table") != 0 ||
            strcmp(found, name) != 0 ||
            strcmp(sql, package_table_sql((enum package_table)t)) != 0) {
            return err_at(
                r->err, ERR_PACKAGE_CORRUPT, r->path,
                "table '%s' is missing or differs from the schema", name);
        }
    }
    if (sqlite3_step(stmt) != SQLITE_DONE) {
        return err_at(r->err, ERR_PACKAGE_CORRUPT, r->path, "unknown table or index");
    }
    return 0;
}

/* ---- rows -------------------------------------------------------------------------------- */

struct rows {
    struct reader *r;
    sqlite3_stmt *stmt; /* owned */
    uint32_t count;
    int error;
};

static void rows_done(struct rows *s) {
    sqlite3_finalize(s->stmt);
}

/* Counts, allocates count elements of size bytes, prepares the ordered SELECT. */
static int rows_begin(
    struct rows *s, struct reader *r, enum package_table t, const char *order, uint32_t limit,
    size_t size, void *ret_array) {
    memset(s, 0, sizeof *s);
    s->r = r;
    char sql[128];
    {
        CLEANUP(package_cleanup_stmt) sqlite3_stmt *stmt = NULL;
        snprintf(sql, sizeof sql, "SELECT count(*) FROM %s", package_table_name(t));
        int e = prepare(r, sql, &stmt);
        if (e < 0) {
            return e;
        }
        if (sqlite3_step(stmt) != SQLITE_ROW) {
            return corrupt(r, sql);
        }
        int64_t count = sqlite3_column_int64(stmt, 0);
        if (count < 0 || count > limit) {
            return err_at(
                r->err, ERR_PACKAGE_CORRUPT, r->path, "%s: %lld rows, at most %u",
                package_table_name(t), (long long)count, limit);
        }
        s->count = (uint32_t)count;
    }
    void *array = arena_try_alloc(r->arena, (size_t)s->count * size, 16);
    if (array == NULL) {
        return err_set(r->err, ERR_NOMEM, "%s: %u rows", package_table_name(t), s->count);
    }
    memcpy(ret_array, &array, sizeof array);
    snprintf(sql, sizeof sql, "SELECT * FROM %s ORDER BY %s", package_table_name(t), order);
    return prepare(r, sql, &s->stmt);
}

/* Next row; its first column must equal `id` when id >= 0. */
static int rows_next(struct rows *s, int64_t id) {
    if (sqlite3_step(s->stmt) != SQLITE_ROW) {
        return corrupt(s->r, "row");
    }
    if (id >= 0 && sqlite3_column_int64(s->stmt, 0) != id) {
        return err_at(
            s->r->err, ERR_PACKAGE_CORRUPT, s->r->path, "row %lld is numbered %lld", (long long)id,
            (long long)sqlite3_column_int64(s->stmt, 0));
    }
    return 0;
}

/* A column within [low, high]; the first fault is kept in s->error. */
static int64_t get_int(struct rows *s, int column, int64_t low, int64_t high) {
    int64_t v = sqlite3_column_int64(s->stmt, column);
    if (sqlite3_column_type(s->stmt, column) != SQLITE_INTEGER || v < low || v > high) {
        if (s->error == 0) {
            s->error = err_at(
                s->r->err, ERR_PACKAGE_CORRUPT, s->r->path, "column %s: %lld is outside %lld..%lld",
                sqlite3_column_name(s->stmt, column), (long long)v, (long long)low,
                (long long)high);
        }
        return low;
    }
    return v;
}

static const char *get_text(struct rows *s, int column) {
    const char *text = (const char *)sqlite3_column_text(s->stmt, column);
    int n = sqlite3_column_bytes(s->stmt, column);
    char *copy = text != NULL && (int)strlen(text) == n
                     ? arena_try_alloc(s->r->arena, (size_t)n + 1, 1)
                     : NULL;
    if (copy == NULL) {
        if (s->error == 0) {
            s->error = err_at(
                s->r->err, ERR_PACKAGE_CORRUPT, s->r->path, "column %s: bad text",
                sqlite3_column_name(s->stmt, column));
        }
        return "";
    }
    memcpy(copy, text, (size_t)n);
    return copy;
}

static int read_meta(struct reader *r, struct package *p) {
    CLEANUP(rows_done) struct rows s = {0};
    char *unused;
    int e = rows_begin(&s, r, PACKAGE_TABLE_meta, "key", 5, 1, &unused);
    if (e == 0 && s.count != 5) {
        e = err_at(r->err, ERR_PACKAGE_CORRUPT, r->path, "meta: %u rows, expected 5", s.count);
    }
    static const char *const keys[] = {"compiler_id", "compute_tiles", "key", "options", "target"};
    const char *values[5] = {0};
    for (int i = 0; e == 0 && i < 5; i++) {
        e = rows_next(&s, -1);
        if (e == 0 && strcmp(get_text(&s, 0), keys[i]) != 0 && s.error == 0) {
            s.error = err_at(r->err, ERR_PACKAGE_CORRUPT, r->path, "meta: '%s' missing", keys[i]);
        }
        values[i] = e == 0 ? get_text(&s, 1) : NULL;
        e = e < 0 ? e : s.error;
    }
    if (e < 0) {
        return e;
    }
    char *end;
    p->compiler_id = values[0];
    p->compute_tiles = (uint32_t)strtoul(values[1], &end, 10);
    p->key = values[2];
    p->options = values[3];
    p->target = values[4];
    char back[16];
    snprintf(back, sizeof back, "%u", p->compute_tiles);
    if (strcmp(back, values[1]) != 0) {
        return err_at(r->err, ERR_PACKAGE_CORRUPT, r->path, "meta: compute_tiles is no number");
    }
    return 0;
}

static int read_bindings(struct reader *r, struct package *p) {
    CLEANUP(rows_done) struct rows s = {0};
    int e = rows_begin(
        &s, r, PACKAGE_TABLE_binding, "id", PACKAGE_MAX_BINDINGS, sizeof *p->bindings,
        &p->bindings);
    for (uint32_t i = 0; e == 0 && i < s.count; i++) {
        e = rows_next(&s, i);
        if (e < 0) {
            break;
        }
        struct package_binding *b = &p->bindings[i];
        b->role = (enum package_role)get_int(&s, 1, 0, PACKAGE_PROFILE);
        b->ordinal = (uint32_t)get_int(&s, 2, 0, PACKAGE_MAX_BINDINGS);
        b->dtype = dtype_from_name(get_text(&s, 3));
        b->shape.rank = (int)get_int(&s, 4, 0, TENSOR_MAX_DIMS);
        for (int k = 0; k < TENSOR_MAX_DIMS; k++) {
            b->shape.dim[k] = get_int(&s, 5 + k, 0, INT64_C(1) << 40);
        }
        e = s.error;
    }
    p->binding_count = s.count;
    return e;
}

static int read_phases(struct reader *r, struct package *p) {
    CLEANUP(rows_done) struct rows s = {0};
    int e = rows_begin(
        &s, r, PACKAGE_TABLE_phase, "id", PACKAGE_MAX_PHASES, sizeof *p->phases, &p->phases);
    for (uint32_t i = 0; e == 0 && i < s.count; i++) {
        e = rows_next(&s, i);
        if (e == 0) {
            p->phases[i].call = (enum package_call)get_int(&s, 1, 0, PACKAGE_CALLS - 1);
            p->phases[i].index = (uint32_t)get_int(&s, 2, 0, PACKAGE_MAX_PHASES);
            p->phases[i].is_output = get_int(&s, 3, 0, 1) != 0;
            e = s.error;
        }
    }
    p->phase_count = s.count;
    return e;
}

static int read_participants(struct reader *r, struct package *p) {
    CLEANUP(rows_done) struct rows s = {0};
    int e = rows_begin(
        &s, r, PACKAGE_TABLE_participant, "rank", TARGET_TILES, sizeof *p->participants,
        &p->participants);
    for (uint32_t i = 0; e == 0 && i < s.count; i++) {
        e = rows_next(&s, i);
        if (e == 0) {
            p->participants[i] = (uint16_t)get_int(&s, 1, 0, TARGET_TILES - 1);
            e = s.error;
        }
    }
    p->participant_count = s.count;
    return e;
}

static int read_slices(struct reader *r, struct package *p) {
    CLEANUP(rows_done) struct rows s = {0};
    int e = rows_begin(
        &s, r, PACKAGE_TABLE_slice, "id", PACKAGE_MAX_SLICES, sizeof *p->slices, &p->slices);
    for (uint32_t i = 0; e == 0 && i < s.count; i++) {
        e = rows_next(&s, i);
        if (e < 0) {
            break;
        }
        struct package_slice *slice = &p->slices[i];
        slice->binding = (uint32_t)get_int(&s, 1, 0, PACKAGE_MAX_BINDINGS);
        slice->phase = (uint32_t)get_int(&s, 2, 0, PACKAGE_MAX_PHASES);
        slice->tile.n = (uint16_t)get_int(&s, 3, 0, TARGET_TILES - 1);
        slice->tensor_offset = (uint64_t)get_int(&s, 4, 0, INT64_C(1) << 40);
        slice->page_offset = (uint32_t)get_int(&s, 5, 0, 4095);
        for (int k = 0; k < TENSOR_MAX_DIMS; k++) {
            slice->extent[k] = (uint32_t)get_int(&s, 6 + k, 1, 1 << 20);
            slice->tensor_stride[k] =
                get_int(&s, 6 + TENSOR_MAX_DIMS + k, -(INT64_C(1) << 40), INT64_C(1) << 40);
            slice->page_stride[k] = (int32_t)get_int(&s, 6 + 2 * TENSOR_MAX_DIMS + k, -4096, 4096);
        }
        e = s.error;
    }
    p->slice_count = s.count;
    return e;
}

static int read_contents(struct reader *r, struct package *p) {
    CLEANUP(rows_done) struct rows s = {0};
    int e = rows_begin(
        &s, r, PACKAGE_TABLE_content, "id", PACKAGE_MAX_CONTENTS, sizeof *p->contents,
        &p->contents);
    uint64_t total = 0;
    for (uint32_t i = 0; e == 0 && i < s.count; i++) {
        e = rows_next(&s, i);
        if (e < 0) {
            break;
        }
        const void *bytes = sqlite3_column_blob(s.stmt, 1);
        int n = sqlite3_column_bytes(s.stmt, 1);
        total += (uint64_t)n;
        void *copy = total <= PACKAGE_MAX_BYTES ? arena_try_alloc(r->arena, (size_t)n, 16) : NULL;
        if (copy == NULL || bytes == NULL) {
            return err_at(
                r->err, ERR_PACKAGE_CORRUPT, r->path, "content %u is empty or too large", i);
        }
        memcpy(copy, bytes, (size_t)n);
        p->contents[i].bytes = copy;
        p->contents[i].size = (uint32_t)n;
    }
    p->content_count = s.count;
    return e;
}

static int read_segments(struct reader *r, struct package *p) {
    CLEANUP(rows_done) struct rows s = {0};
    int e = rows_begin(
        &s, r, PACKAGE_TABLE_segment, "tile, addr", PACKAGE_MAX_SEGMENTS, sizeof *p->segments,
        &p->segments);
    for (uint32_t i = 0; e == 0 && i < s.count; i++) {
        e = rows_next(&s, -1);
        if (e == 0) {
            p->segments[i].tile.n = (uint16_t)get_int(&s, 0, 0, TARGET_TILES - 1);
            p->segments[i].addr = (uint32_t)get_int(&s, 1, 0, TARGET_MEM_END);
            p->segments[i].content = (uint32_t)get_int(&s, 2, 0, PACKAGE_MAX_CONTENTS);
            e = s.error;
        }
    }
    p->segment_count = s.count;
    return e;
}

static int read_symbols(struct reader *r, struct package *p) {
    CLEANUP(rows_done) struct rows s = {0};
    int e = rows_begin(
        &s, r, PACKAGE_TABLE_symbol, "id", PACKAGE_MAX_SEGMENTS, sizeof *p->symbols, &p->symbols);
    for (uint32_t i = 0; e == 0 && i < s.count; i++) {
        e = rows_next(&s, i);
        if (e == 0) {
            p->symbols[i].tile = (int32_t)get_int(&s, 1, -1, TARGET_TILES - 1);
            p->symbols[i].addr = (uint32_t)get_int(&s, 2, 0, TARGET_MEM_END);
            p->symbols[i].size = (uint32_t)get_int(&s, 3, 0, TARGET_MEM_SIZE);
            p->symbols[i].name = get_text(&s, 4);
            e = s.error;
        }
    }
    p->symbol_count = s.count;
    return e;
}

static int read_steps(struct reader *r, struct package *p) {
    CLEANUP(rows_done) struct rows s = {0};
    int e =
        rows_begin(&s, r, PACKAGE_TABLE_step, "id", PACKAGE_MAX_STEPS, sizeof *p->steps, &p->steps);
    for (uint32_t i = 0; e == 0 && i < s.count; i++) {
        e = rows_next(&s, i);
        if (e == 0) {
            p->steps[i] = (struct package_step){
                .kind = (enum package_step_kind)get_int(&s, 1, 0, STEP_KINDS - 1),
                .level = (uint32_t)get_int(&s, 2, 0, UINT32_MAX),
                .last_level = (uint32_t)get_int(&s, 3, 0, UINT32_MAX),
                .predicted = (uint32_t)get_int(&s, 4, 0, UINT32_MAX),
                .horizon = (uint32_t)get_int(&s, 5, 0, UINT32_MAX),
                .bound = (uint32_t)get_int(&s, 6, 0, UINT32_MAX),
                .bytes = (uint64_t)get_int(&s, 7, 0, INT64_C(1) << 48)};
            e = s.error;
        }
    }
    p->step_count = s.count;
    return e;
}

/* Their steps find their calls here: those that name them, which stand together. */
static int read_calls(struct reader *r, struct package *p) {
    CLEANUP(rows_done) struct rows s = {0};
    int e =
        rows_begin(&s, r, PACKAGE_TABLE_call, "id", PACKAGE_MAX_CALLS, sizeof *p->calls, &p->calls);
    uint32_t last = 0;
    for (uint32_t i = 0; e == 0 && i < s.count; i++) {
        e = rows_next(&s, i);
        if (e < 0 || p->step_count == 0) {
            return e < 0 ? e : err_at(r->err, ERR_PACKAGE_CORRUPT, r->path, "calls without steps");
        }
        struct package_kernel_call *c = &p->calls[i];
        c->step = (uint32_t)get_int(&s, 1, last, p->step_count - 1);
        c->operation = (uint32_t)get_int(&s, 2, 0, UINT32_MAX);
        c->node = (uint32_t)get_int(&s, 3, 0, UINT32_MAX);
        c->op = get_text(&s, 4);
        c->kernel = get_text(&s, 5);
        c->predicted = (uint32_t)get_int(&s, 6, 0, UINT32_MAX);
        c->useful = (uint32_t)get_int(&s, 7, 0, UINT32_MAX);
        last = c->step;
        struct package_step *step = &p->steps[c->step];
        step->first_call = step->call_count == 0 ? i : step->first_call;
        step->call_count++;
        e = s.error;
    }
    p->call_count = s.count;
    return e;
}

static int read_traces(struct reader *r, struct package *p) {
    CLEANUP(rows_done) struct rows s = {0};
    int e =
        rows_begin(&s, r, PACKAGE_TABLE_trace, "rank", TARGET_TILES, sizeof *p->traces, &p->traces);
    for (uint32_t i = 0; e == 0 && i < s.count; i++) {
        e = rows_next(&s, i);
        if (e < 0) {
            break;
        }
        struct package_trace *t = &p->traces[i];
        t->first = (uint32_t)get_int(&s, 1, 0, UINT32_MAX);
        const uint8_t *bytes = sqlite3_column_blob(s.stmt, 2);
        int n = sqlite3_column_bytes(s.stmt, 2);
        uint32_t *steps = n > 0 && n % 4 == 0 && n <= 4 * PACKAGE_MAX_INTERVALS && bytes != NULL
                              ? arena_try_alloc(r->arena, (size_t)n, 4)
                              : NULL;
        if (steps == NULL) {
            return err_at(
                r->err, ERR_PACKAGE_CORRUPT, r->path, "trace %u: %d bytes of steps", i, n);
        }
        t->count = (uint32_t)n / 4;
        for (uint32_t k = 0; k < t->count; k++) {
            steps[k] = load_le32(bytes + 4 * (size_t)k);
        }
        t->steps = steps;
        e = s.error;
    }
    p->trace_count = s.count;
    return e;
}

static int read_report(struct reader *r, struct package *p) {
    CLEANUP(rows_done) struct rows s = {0};
    char *unused;
    int e = rows_begin(&s, r, PACKAGE_TABLE_report, "id", 1, 1, &unused);
    if (e == 0 && s.count == 1) {
        e = rows_next(&s, 1);
        p->report = e == 0 ? get_text(&s, 1) : NULL;
        e = e < 0 ? e : s.error;
    }
    return e;
}

void package_free(struct package *p) {
    if (p != NULL) {
        arena_done(p->owner);
        free(p->owner);
        free(p);
    }
}

static void cleanup_package(struct package **p) {
    package_free(*p);
}

int package_open(
    const char *path, const struct digest *expected, struct package **ret,
    struct digest *ret_digest, struct err *err) {
    CLEANUP(cleanup_package) struct package *p = calloc(1, sizeof *p);
    if (p == NULL || (p->owner = calloc(1, sizeof *p->owner)) == NULL) {
        return err_set(err, ERR_NOMEM, NULL);
    }
    arena_init(p->owner, PACKAGE_MAX_BYTES + (256u << 20));
    CLEANUP(package_cleanup_db) sqlite3 *db = NULL;
    struct reader r = {.arena = p->owner, .path = path, .err = err};
    int e = open_database(&r);
    db = r.db;
    e = e < 0 ? e : check_pragma(&r, "application_id", PACKAGE_APPLICATION_ID);
    e = e < 0 ? e : check_pragma(&r, "user_version", PACKAGE_VERSION);
    e = e < 0 ? e : check_size(&r);
    e = e < 0 ? e : check_schema(&r);
    e = e < 0 ? e : read_meta(&r, p);
    e = e < 0 ? e : read_bindings(&r, p);
    e = e < 0 ? e : read_phases(&r, p);
    e = e < 0 ? e : read_participants(&r, p);
    e = e < 0 ? e : read_slices(&r, p);
    e = e < 0 ? e : read_contents(&r, p);
    e = e < 0 ? e : read_segments(&r, p);
    e = e < 0 ? e : read_symbols(&r, p);
    e = e < 0 ? e : read_steps(&r, p);
    e = e < 0 ? e : read_calls(&r, p);
    e = e < 0 ? e : read_traces(&r, p);
    e = e < 0 ? e : read_report(&r, p);
    e = e < 0 ? e : package_verify(p, err);
    if (e < 0) {
        return e;
    }
    struct digest found;
    package_digest(p, &found);
    if (expected != NULL && !digest_equal(expected, &found)) {
        char want[DIGEST_HEX + 1], have[DIGEST_HEX + 1];
        digest_hex(expected, want);
        digest_hex(&found, have);
        return err_at(err, ERR_PACKAGE_CORRUPT, path, "digest is %s, expected %s", have, want);
    }
    if (ret_digest != NULL) {
        *ret_digest = found;
    }
    *ret = TAKE(p);
    return 0;
}
