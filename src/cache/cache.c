/* Opening and closing, groups of changes, and the index of packages: find, insert, evict.
 * Loops run over rows of one statement or over pins; both are bounded by the limits of cache.h. */
#include "cache/cache_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

uint64_t cache_now_ms(const struct cache *c) {
    if (c->options.now_ms != NULL) {
        return c->options.now_ms();
    }
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

void cache_fail_after(struct cache *c, uint64_t n) {
    c->fail_after = n;
}

int cache_step_allowed(struct cache *c, struct err *err) {
    if (c->fail_after > 0 && --c->fail_after == 0) {
        c->fail_after = 1; /* a device that fails goes on failing */
        return err_sys(err, ERR_IO, EIO, "write to '%s'", c->dir);
    }
    return 0;
}

/* The owner writes its pid into the file for people; the flock alone decides. */
static int cache_lock(struct cache *c, struct err *err) {
    c->lock_fd = openat(c->dir_fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (c->lock_fd < 0) {
        return err_sys(err, ERR_IO, errno, "%s/lock", c->dir);
    }
    char text[64] = "";
    if (flock(c->lock_fd, LOCK_EX | LOCK_NB) != 0) {
        ssize_t n = pread(c->lock_fd, text, sizeof text - 1, 0);
        text[n > 0 ? n : 0] = '\0';
        text[strcspn(text, "\n")] = '\0';
        return err_set(
            err, ERR_CONFLICT, "state directory '%s' is in use by %s", c->dir,
            text[0] != '\0' ? text : "another process");
    }
    int n = snprintf(text, sizeof text, "pid %d\n", (int)getpid());
    if (ftruncate(c->lock_fd, 0) != 0 || pwrite(c->lock_fd, text, (size_t)n, 0) != n) {
        return err_sys(err, ERR_IO, errno, "%s/lock", c->dir);
    }
    return 0;
}

int cache_open(const struct cache_options *options, struct cache **ret, struct err *err) {
    struct cache *c = calloc(1, sizeof *c);
    if (c == NULL) {
        return err_set(err, ERR_NOMEM, NULL);
    }
    c->dir_fd = -1;
    c->lock_fd = -1;
    c->options = *options;
    if (mkdir(options->dir, 0700) != 0 && errno != EEXIST) {
        int r = err_sys(err, ERR_IO, errno, "state directory '%s'", options->dir);
        cache_close(c);
        return r;
    }
    c->dir = realpath(options->dir, NULL);
    c->dir_fd = open(options->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r = 0;
    if (c->dir == NULL || c->dir_fd < 0) {
        r = err_sys(err, ERR_IO, errno, "state directory '%s'", options->dir);
    }
    if (r < 0 || (r = cache_lock(c, err)) < 0 || (r = files_open_dirs(c, err)) < 0 ||
        (r = schema_open(c, DB_JOBS, err)) < 0 || (r = schema_open(c, DB_CACHE, err)) < 0) {
        cache_close(c);
        return r;
    }
    c->options.dir = c->dir;
    *ret = c;
    return 0;
}

void cache_close(struct cache *c) {
    if (c == NULL) {
        return;
    }
    for (int i = 0; i < STMT_COUNT; i++) {
        sqlite3_finalize(c->stmt[i]);
    }
    for (int i = 0; i < DB_COUNT; i++) {
        sqlite3_close_v2(c->db[i]);
    }
    sqlite3_close_v2(c->schedules);
    cleanup_close(&c->lock_fd);
    cleanup_close(&c->dir_fd);
    free(c->pins);
    free(c->dir);
    free(c);
}

int cache_dir_fd(const struct cache *c) {
    return c->dir_fd;
}

const char *cache_dir(const struct cache *c) {
    return c->dir;
}

/* ---- Statements and groups --------------------------------------------------------------- */

static sqlite3_stmt *stmt_vbind(struct cache *c, enum cache_stmt s, const char *types, va_list ap) {
    sqlite3_stmt *stmt = c->stmt[s];
    sqlite3_reset(stmt);
    sqlite3_clear_bindings(stmt);
    for (int i = 1; *types != '\0'; i++, types++) {
        if (*types == 's') {
            sqlite3_bind_text(stmt, i, va_arg(ap, const char *), -1, SQLITE_TRANSIENT);
        } else if (*types == 'd') {
            char hex[DIGEST_HEX + 1];
            digest_hex(va_arg(ap, const struct digest *), hex);
            sqlite3_bind_text(stmt, i, hex, -1, SQLITE_TRANSIENT);
        } else {
            sqlite3_bind_int64(stmt, i, va_arg(ap, int64_t));
        }
    }
    return stmt;
}

sqlite3_stmt *stmt_bind(struct cache *c, enum cache_stmt s, const char *types, ...) {
    va_list ap;
    va_start(ap, types);
    sqlite3_stmt *stmt = stmt_vbind(c, s, types, ap);
    va_end(ap);
    return stmt;
}

int stmt_step(struct cache *c, sqlite3_stmt *s, struct err *err) {
    int r = cache_step_allowed(c, err);
    if (r < 0) {
        return r;
    }
    switch (sqlite3_step(s)) {
    case SQLITE_ROW: return 1;
    case SQLITE_DONE: return 0;
    default: return schema_sql_error(sqlite3_db_handle(s), "state database", err);
    }
}

int stmt_run(struct cache *c, enum cache_stmt s, struct err *err, const char *types, ...) {
    va_list ap;
    va_start(ap, types);
    sqlite3_stmt *stmt = stmt_vbind(c, s, types, ap);
    va_end(ap);
    int r = stmt_step(c, stmt, err);
    sqlite3_reset(stmt);
    return r < 0 ? r : 0;
}

char *stmt_text(sqlite3_stmt *s, int column) {
    const char *text = (const char *)sqlite3_column_text(s, column);
    return text != NULL ? strdup(text) : NULL;
}

uint64_t stmt_u64(sqlite3_stmt *s, int column) {
    int64_t v = sqlite3_column_int64(s, column);
    return v > 0 ? (uint64_t)v : 0;
}

static int group_exec(struct cache *c, const char *sql, struct err *err) {
    int r = cache_step_allowed(c, err);
    for (int i = 0; i < DB_COUNT && r == 0; i++) {
        if (sqlite3_exec(c->db[i], sql, NULL, NULL, NULL) != SQLITE_OK) {
            r = schema_sql_error(c->db[i], "state database", err);
        }
    }
    return r;
}

int cache_begin(struct cache *c, struct err *err) {
    c->is_marked = false;
    int r = group_exec(c, "BEGIN", err);
    if (r < 0) {
        cache_rollback(c);
    }
    return r;
}

int cache_mark(struct cache *c, struct err *err) {
    int r = group_exec(c, c->is_marked ? "RELEASE mark; SAVEPOINT mark" : "SAVEPOINT mark", err);
    c->is_marked = r == 0;
    return r;
}

void cache_undo(struct cache *c) {
    for (int i = 0; i < DB_COUNT; i++) {
        sqlite3_exec(c->db[i], "ROLLBACK TO mark", NULL, NULL, NULL);
    }
}

/* The cache first: a package or blob without its job is garbage, a job without its blob is not. */
int cache_commit(struct cache *c, struct err *err) {
    int r = cache_step_allowed(c, err);
    for (int i = DB_COUNT - 1; i >= 0 && r == 0; i--) {
        if (sqlite3_exec(c->db[i], "COMMIT", NULL, NULL, NULL) != SQLITE_OK) {
            r = schema_sql_error(c->db[i], "state database", err);
        }
    }
    if (r < 0) {
        cache_rollback(c);
    }
    return r;
}

void cache_rollback(struct cache *c) {
    for (int i = 0; i < DB_COUNT; i++) {
        if (!sqlite3_get_autocommit(c->db[i])) {
            sqlite3_exec(c->db[i], "ROLLBACK", NULL, NULL, NULL);
        }
    }
}

void cache_checkpoint(struct cache *c) {
    for (int i = 0; i < DB_COUNT; i++) {
        sqlite3_wal_checkpoint_v2(c->db[i], NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    }
}

/* ---- Packages ---------------------------------------------------------------------------- */

void cache_package_done(struct cache_package *p) {
    free(p->info);
    p->info = NULL;
}

static const char *package_folder(bool is_imported) {
    return is_imported ? "imports" : "packages";
}

static void package_name(const struct digest *digest, char ret[DIGEST_HEX + 8]) {
    digest_hex(digest, ret);
    strcpy(ret + DIGEST_HEX, ".ipuexe");
}

void cache_package_path(const struct cache *c, const struct cache_package *p, char *ret, size_t n) {
    char name[DIGEST_HEX + 8];
    package_name(&p->digest, name);
    snprintf(ret, n, "%s/%s/%s", c->dir, package_folder(p->is_imported), name);
}

static void package_row(sqlite3_stmt *s, struct cache_package *ret) {
    memset(ret, 0, sizeof *ret);
    const char *digest = (const char *)sqlite3_column_text(s, 0);
    const char *key = (const char *)sqlite3_column_text(s, 1);
    if (digest != NULL) {
        digest_parse(digest, &ret->digest);
    }
    snprintf(ret->key, sizeof ret->key, "%s", key != NULL ? key : "");
    ret->bytes = stmt_u64(s, 2);
    ret->created_ms = stmt_u64(s, 3);
    ret->used_ms = stmt_u64(s, 4);
    ret->is_imported = sqlite3_column_int(s, 5) != 0;
    ret->info = stmt_text(s, 6);
}

/* Row, then file: a row whose file has gone is removed and counts as absent. */
static int
package_read(struct cache *c, sqlite3_stmt *s, struct cache_package *ret, struct err *err) {
    int r = stmt_step(c, s, err);
    if (r == 1) {
        package_row(s, ret);
    }
    sqlite3_reset(s);
    if (r < 0) {
        return r;
    }
    if (r == 0) {
        return err_set(err, ERR_NOT_FOUND, "no such package");
    }
    char path[4200];
    struct stat st;
    cache_package_path(c, ret, path, sizeof path);
    if (stat(path, &st) != 0 && errno == ENOENT) {
        log_warning("cache", "package file has gone path=%s", path);
        c->healed++;
        r = stmt_run(c, STMT_PACKAGE_DELETE, err, "d", &ret->digest);
        cache_package_done(ret);
        return r < 0 ? r : err_set(err, ERR_NOT_FOUND, "no such package");
    }
    return stmt_run(c, STMT_PACKAGE_USED, err, "di", &ret->digest, (int64_t)cache_now_ms(c));
}

int cache_package_find(
    struct cache *c, const char *key, struct cache_package *ret, struct err *err) {
    return package_read(c, stmt_bind(c, STMT_PACKAGE_FIND, "s", key), ret, err);
}

int cache_package_get(
    struct cache *c, const struct digest *digest, struct cache_package *ret, struct err *err) {
    return package_read(c, stmt_bind(c, STMT_PACKAGE_GET, "d", digest), ret, err);
}

int cache_package_insert(
    struct cache *c, const char *path, const struct cache_package *p, uid_t uid, struct err *err) {
    uint64_t limit = c->options.package_limit_bytes;
    if (limit > 0 && p->bytes > limit) {
        return err_set(
            err, ERR_DISK_FULL, "package of %llu bytes, the cache holds %llu",
            (unsigned long long)p->bytes, (unsigned long long)limit);
    }
    int r = 0;
    if (limit > 0) {
        r = cache_package_evict(c, limit - p->bytes, NULL, NULL, err);
    }
    char name[DIGEST_HEX + 8];
    package_name(&p->digest, name);
    if (r < 0 || (r = files_publish(c, path, package_folder(p->is_imported), name, err)) < 0 ||
        (r = stmt_run(
             c, STMT_PACKAGE_PUT, err, "dsiiis", &p->digest, p->key, (int64_t)p->bytes,
             (int64_t)cache_now_ms(c), (int64_t)p->is_imported, p->info)) < 0) {
        return r;
    }
    return cache_package_grant(c, &p->digest, uid, err);
}

int cache_package_grant(struct cache *c, const struct digest *digest, uid_t uid, struct err *err) {
    return stmt_run(c, STMT_PACKAGE_GRANT, err, "di", digest, (int64_t)uid);
}

bool cache_package_visible(struct cache *c, const struct digest *digest, uid_t uid) {
    sqlite3_stmt *s = stmt_bind(c, STMT_PACKAGE_VISIBLE, "di", digest, (int64_t)uid);
    bool visible = stmt_step(c, s, NULL) == 1;
    sqlite3_reset(s);
    return visible;
}

int cache_package_list(
    struct cache *c, uid_t uid, bool everyone, const char *key, const char *after, int limit,
    cache_package_fn *fn, void *arg, struct err *err) {
    sqlite3_stmt *s = stmt_bind(
        c, STMT_PACKAGE_LIST, "issi", everyone ? (int64_t)-1 : (int64_t)uid, key, after,
        (int64_t)limit);
    int r;
    while ((r = stmt_step(c, s, err)) == 1) {
        struct cache_package p;
        package_row(s, &p);
        int stop = fn(&p, arg);
        cache_package_done(&p);
        if (stop != 0) {
            r = 0;
            break;
        }
    }
    sqlite3_reset(s);
    return r;
}

static bool package_pinned(const struct cache *c, const struct digest *digest) {
    for (size_t i = 0; i < c->pin_count; i++) {
        if (digest_equal(&c->pins[i].digest, digest)) {
            return true;
        }
    }
    return false;
}

static int
package_drop(struct cache *c, const struct digest *digest, bool is_imported, struct err *err) {
    char path[DIGEST_HEX + 32];
    char name[DIGEST_HEX + 8];
    package_name(digest, name);
    snprintf(path, sizeof path, "%s/%s", package_folder(is_imported), name);
    int r = stmt_run(c, STMT_PACKAGE_DELETE, err, "d", digest);
    if (r == 0 && unlinkat(c->dir_fd, path, 0) != 0 && errno != ENOENT) {
        r = err_sys(err, ERR_IO, errno, "%s/%s", c->dir, path);
    }
    return r;
}

int cache_package_remove(struct cache *c, const struct digest *digest, struct err *err) {
    struct cache_package p;
    int r = cache_package_get(c, digest, &p, err);
    if (r < 0) {
        return r;
    }
    bool is_imported = p.is_imported;
    cache_package_done(&p);
    if (package_pinned(c, digest)) {
        return err_set(err, ERR_CONFLICT, "package is in use");
    }
    return package_drop(c, digest, is_imported, err);
}

int cache_package_evict(
    struct cache *c, uint64_t keep_bytes, uint64_t *ret_count, uint64_t *ret_bytes,
    struct err *err) {
    sqlite3_stmt *s = stmt_bind(c, STMT_PACKAGE_TOTAL, "");
    int r = stmt_step(c, s, err);
    uint64_t total = r == 1 ? stmt_u64(s, 1) : 0;
    sqlite3_reset(s);
    uint64_t count = 0;
    uint64_t freed = 0;
    while (r >= 0 && total > keep_bytes) {
        /* A row is dropped only after its statement is reset; so one pass a victim. */
        struct cache_package victim = {0};
        s = stmt_bind(c, STMT_PACKAGE_OLDEST, "");
        bool found = false;
        while (!found && (r = stmt_step(c, s, err)) == 1) {
            const char *digest = (const char *)sqlite3_column_text(s, 0);
            victim.bytes = stmt_u64(s, 1);
            victim.is_imported = sqlite3_column_int(s, 2) != 0;
            found = digest != NULL && digest_parse(digest, &victim.digest) &&
                    !package_pinned(c, &victim.digest);
        }
        sqlite3_reset(s);
        if (!found) {
            break;
        }
        r = package_drop(c, &victim.digest, victim.is_imported, err);
        count++;
        freed += victim.bytes;
        total -= victim.bytes < total ? victim.bytes : total;
    }
    c->evicted_bytes += freed;
    if (ret_count != NULL) {
        *ret_count = count;
    }
    if (ret_bytes != NULL) {
        *ret_bytes = freed;
    }
    return r < 0 ? r : 0;
}

int cache_package_pin(struct cache *c, const struct digest *digest, struct err *err) {
    for (size_t i = 0; i < c->pin_count; i++) {
        if (digest_equal(&c->pins[i].digest, digest)) {
            c->pins[i].count++;
            return 0;
        }
    }
    struct cache_pin *pins = reallocarray(c->pins, c->pin_count + 1, sizeof *pins);
    if (pins == NULL) {
        return err_set(err, ERR_NOMEM, NULL);
    }
    c->pins = pins;
    pins[c->pin_count++] = (struct cache_pin){*digest, 1};
    return 0;
}

void cache_package_unpin(struct cache *c, const struct digest *digest) {
    for (size_t i = 0; i < c->pin_count; i++) {
        if (digest_equal(&c->pins[i].digest, digest) && --c->pins[i].count == 0) {
            c->pins[i] = c->pins[--c->pin_count];
            return;
        }
    }
}
