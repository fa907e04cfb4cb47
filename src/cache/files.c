/* Files of the state directory: blobs, staging folders, publication, the sweep.
 *
 * Publication is always: write, fsync, rename, fsync of the folder. After a failed fsync or
 * close the temporary is thrown away, never retried. Names below the state directory come from
 * digests, job ids and our own serial numbers. Each loop runs over bytes or folder entries. */
#include "cache/cache_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#define BLOB_GRACE_MS (10 * 60 * 1000) /* between upload and the job that names it */

static const char *const folders[] = {"packages", "imports", "blobs", "staging"};

static int files_error(struct cache *c, const char *what, int sys, struct err *err) {
    return err_sys(
        err, sys == ENOSPC || sys == EDQUOT ? ERR_DISK_FULL : ERR_IO, sys, "%s/%s", c->dir, what);
}

void files_remove_tree(int dir_fd, const char *name) {
    int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (d == NULL) {
        cleanup_close(&fd);
        unlinkat(dir_fd, name, 0);
        return;
    }
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) {
            continue;
        }
        if (unlinkat(dirfd(d), e->d_name, 0) != 0 && errno == EISDIR) {
            files_remove_tree(dirfd(d), e->d_name);
        }
    }
    closedir(d);
    unlinkat(dir_fd, name, AT_REMOVEDIR);
}

/* Makes the folders; what a dead daemon left in staging goes. */
int files_open_dirs(struct cache *c, struct err *err) {
    files_remove_tree(c->dir_fd, "staging");
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        if (mkdirat(c->dir_fd, folders[i], 0700) != 0 && errno != EEXIST) {
            return files_error(c, folders[i], errno, err);
        }
    }
    return 0;
}

int files_sync_dir(struct cache *c, const char *name, struct err *err) {
    int r = cache_step_allowed(c, err);
    if (r < 0) {
        return r;
    }
    CLEANUP(cleanup_close)
    int fd = openat(c->dir_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) != 0) {
        return files_error(c, name, errno, err);
    }
    return 0;
}

int files_publish(
    struct cache *c, const char *path, const char *folder, const char *name, struct err *err) {
    int r = cache_step_allowed(c, err);
    if (r < 0) {
        return r;
    }
    CLEANUP(cleanup_close) int fd = openat(c->dir_fd, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0) {
        return files_error(c, path, errno, err);
    }
    if (!S_ISREG(st.st_mode)) {
        return err_set(err, ERR_IO, "%s/%s is no regular file", c->dir, path);
    }
    if (fchmod(fd, 0400) != 0 || fsync(fd) != 0) {
        return files_error(c, path, errno, err);
    }
    char to[512];
    snprintf(to, sizeof to, "%s/%s", folder, name);
    if ((r = cache_step_allowed(c, err)) < 0) {
        return r;
    }
    if (renameat(c->dir_fd, path, c->dir_fd, to) != 0) {
        return files_error(c, to, errno, err);
    }
    return files_sync_dir(c, folder, err);
}

int files_room(struct cache *c, uint64_t bytes, struct err *err) {
    struct statvfs v;
    if (fstatvfs(c->dir_fd, &v) != 0) {
        return files_error(c, ".", errno, err);
    }
    uint64_t free_bytes = (uint64_t)v.f_bavail * v.f_frsize;
    if (free_bytes < c->options.min_free_bytes || free_bytes - c->options.min_free_bytes < bytes) {
        return err_set(
            err, ERR_DISK_FULL,
            "%llu bytes asked, %llu free, of which %llu are kept free (--min-free)",
            (unsigned long long)bytes, (unsigned long long)free_bytes,
            (unsigned long long)c->options.min_free_bytes);
    }
    return 0;
}

/* ---- Receiving --------------------------------------------------------------------------- */

struct cache_temp {
    struct cache *cache; /* borrowed */
    int fd;
    struct digest_ctx *hash; /* owned */
    uint64_t bytes;
    char *path;       /* absolute, owned */
    const char *name; /* its part below the state directory */
};

int cache_temp_open(
    struct cache *c, uint64_t expected_bytes, struct cache_temp **ret, struct err *err) {
    int r;
    if ((r = blob_evict(c, err)) < 0 || (r = files_room(c, expected_bytes, err)) < 0 ||
        (r = cache_step_allowed(c, err)) < 0) {
        return r;
    }
    struct cache_temp *t = calloc(1, sizeof *t);
    if (t == NULL) {
        return err_set(err, ERR_NOMEM, NULL);
    }
    t->cache = c;
    t->fd = -1;
    t->hash = digest_new();
    if (t->hash == NULL ||
        asprintf(&t->path, "%s/staging/tmp-%llu", c->dir, (unsigned long long)++c->serial) < 0) {
        t->path = NULL;
        cache_temp_abort(t);
        return err_set(err, ERR_NOMEM, NULL);
    }
    t->name = t->path + strlen(c->dir) + 1;
    t->fd = openat(c->dir_fd, t->name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (t->fd < 0) {
        r = files_error(c, t->name, errno, err);
        cache_temp_abort(t);
        return r;
    }
    *ret = t;
    return 0;
}

static int write_all(
    struct cache *c, int fd, const char *name, const uint8_t *bytes, size_t n, struct err *err) {
    int r = cache_step_allowed(c, err);
    while (r == 0 && n > 0) {
        ssize_t done = write(fd, bytes, n);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done < 0) {
            return files_error(c, name, errno, err);
        }
        bytes += done;
        n -= (size_t)done;
    }
    return r;
}

int cache_temp_write(struct cache_temp *t, const void *bytes, size_t n, struct err *err) {
    digest_update(t->hash, bytes, n);
    t->bytes += n;
    return write_all(t->cache, t->fd, t->name, bytes, n, err);
}

uint64_t cache_temp_bytes(const struct cache_temp *t) {
    return t->bytes;
}

void cache_temp_abort(struct cache_temp *t) {
    if (t == NULL) {
        return;
    }
    if (t->fd >= 0) {
        close(t->fd);
        unlinkat(t->cache->dir_fd, t->name, 0);
    }
    digest_free(t->hash);
    free(t->path);
    free(t);
}

int cache_temp_move(struct cache_temp *t, const char *name, const char *file, struct err *err) {
    struct cache *c = t->cache;
    char path[160];
    snprintf(path, sizeof path, "staging/%s/%s", name, file);
    int r = cache_step_allowed(c, err);
    if (r == 0 && renameat(c->dir_fd, t->name, c->dir_fd, path) != 0) {
        r = files_error(c, path, errno, err);
    }
    if (r == 0) {
        close(t->fd);
        t->fd = -1;
    }
    cache_temp_abort(t);
    return r;
}

static int
blob_row(struct cache *c, const struct digest *blob, uint64_t bytes, uid_t uid, struct err *err) {
    int r = stmt_run(c, STMT_BLOB_PUT, err, "dii", blob, (int64_t)bytes, (int64_t)cache_now_ms(c));
    return r < 0 ? r : stmt_run(c, STMT_BLOB_GRANT, err, "di", blob, (int64_t)uid);
}

int cache_temp_publish(
    struct cache_temp *t, uid_t uid, const struct digest *expected, bool *ret_is_new,
    struct err *err) {
    struct cache *c = t->cache;
    struct digest d;
    digest_final(t->hash, &d);
    int r = 0;
    char hex[DIGEST_HEX + 1];
    digest_hex(&d, hex);
    if (!digest_equal(&d, expected)) {
        r = err_set(
            err, ERR_DIGEST_MISMATCH, "%llu bytes came, their digest is sha256:%s",
            (unsigned long long)t->bytes, hex);
    }
    char path[DIGEST_HEX + 8];
    snprintf(path, sizeof path, "blobs/%s", hex);
    struct stat st;
    bool is_new = fstatat(c->dir_fd, path, &st, AT_SYMLINK_NOFOLLOW) != 0;
    if (r == 0 && is_new) {
        r = files_publish(c, t->name, "blobs", hex, err);
    }
    if (r == 0) {
        r = blob_row(c, &d, t->bytes, uid, err);
    }
    if (r == 0 && is_new) {
        close(t->fd); /* renamed: nothing to unlink */
        t->fd = -1;
    }
    if (r == 0) {
        *ret_is_new = is_new;
    }
    cache_temp_abort(t);
    return r;
}

/* ---- Blobs ------------------------------------------------------------------------------- */

int cache_blob_adopt(
    struct cache *c, const char *path, uid_t uid, struct digest *ret, uint64_t *ret_bytes,
    struct err *err) {
    CLEANUP(cleanup_close) int fd = openat(c->dir_fd, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return files_error(c, path, errno, err);
    }
    uint64_t bytes = 0;
    struct digest d;
    int r = digest_of_fd(fd, &d, &bytes, err);
    if (r < 0) {
        return r;
    }
    char hex[DIGEST_HEX + 1];
    digest_hex(&d, hex);
    char to[DIGEST_HEX + 8];
    snprintf(to, sizeof to, "blobs/%s", hex);
    if (faccessat(c->dir_fd, to, F_OK, 0) == 0) {
        unlinkat(c->dir_fd, path, 0);
    } else if ((r = files_publish(c, path, "blobs", hex, err)) < 0) {
        return r;
    }
    r = blob_row(c, &d, bytes, uid, err);
    if (r == 0) {
        *ret = d;
        *ret_bytes = bytes;
    }
    return r;
}

int cache_blob_open(
    struct cache *c, const struct digest *blob, int *ret_fd, uint64_t *ret_bytes, struct err *err) {
    char path[DIGEST_HEX + 8] = "blobs/";
    digest_hex(blob, path + 6);
    CLEANUP(cleanup_close) int fd = openat(c->dir_fd, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;
    if (fd < 0 && errno == ENOENT) {
        int r = stmt_run(c, STMT_BLOB_DELETE, err, "d", blob);
        return r < 0 ? r : err_set(err, ERR_NOT_FOUND, "no blob sha256:%s", path + 6);
    }
    if (fd < 0 || fstat(fd, &st) != 0) {
        return files_error(c, path, errno, err);
    }
    *ret_bytes = (uint64_t)st.st_size;
    *ret_fd = TAKE_FD(fd);
    return 0;
}

bool cache_blob_visible(struct cache *c, const struct digest *blob, uid_t uid) {
    char path[DIGEST_HEX + 8] = "blobs/";
    digest_hex(blob, path + 6);
    sqlite3_stmt *s = stmt_bind(c, STMT_BLOB_VISIBLE, "di", blob, (int64_t)uid);
    bool visible = stmt_step(c, s, NULL) == 1;
    sqlite3_reset(s);
    return visible && faccessat(c->dir_fd, path, F_OK, 0) == 0;
}

void cache_blob_path(const struct cache *c, const struct digest *blob, char *ret, size_t n) {
    char hex[DIGEST_HEX + 1];
    digest_hex(blob, hex);
    snprintf(ret, n, "%s/blobs/%s", c->dir, hex);
}

static bool blob_is_used(struct cache *c, const char *hex) {
    sqlite3_stmt *s = stmt_bind(c, STMT_JOB_BLOB_USED, "s", hex);
    bool used = stmt_step(c, s, NULL) != 0; /* a doubt keeps the blob */
    sqlite3_reset(s);
    return used;
}

/* Removes blobs that no job names, longest unused first, until the limit holds. */
int blob_evict(struct cache *c, struct err *err) {
    sqlite3_stmt *s = stmt_bind(c, STMT_BLOB_TOTAL, "");
    int r = stmt_step(c, s, err);
    uint64_t total = r == 1 ? stmt_u64(s, 1) : 0;
    sqlite3_reset(s);
    uint64_t limit = c->options.blob_limit_bytes;
    while (r >= 0 && limit > 0 && total > limit) {
        char hex[DIGEST_HEX + 1] = "";
        uint64_t bytes = 0;
        s = stmt_bind(c, STMT_BLOB_OLDEST, "i", (int64_t)(cache_now_ms(c) - BLOB_GRACE_MS));
        while (hex[0] == '\0' && (r = stmt_step(c, s, err)) == 1) {
            const char *digest = (const char *)sqlite3_column_text(s, 0);
            bytes = stmt_u64(s, 1);
            if (digest != NULL && strlen(digest) == DIGEST_HEX && !blob_is_used(c, digest)) {
                strcpy(hex, digest);
            }
        }
        sqlite3_reset(s);
        if (hex[0] == '\0') {
            break;
        }
        char path[DIGEST_HEX + 8];
        snprintf(path, sizeof path, "blobs/%s", hex);
        struct digest d;
        digest_parse(hex, &d);
        r = stmt_run(c, STMT_BLOB_DELETE, err, "d", &d);
        unlinkat(c->dir_fd, path, 0);
        total -= bytes < total ? bytes : total;
        c->evicted_bytes += bytes;
    }
    return r < 0 ? r : 0;
}

/* ---- Staging ----------------------------------------------------------------------------- */

int cache_staging_make(struct cache *c, const char *name, int *ret_fd, struct err *err) {
    char path[128];
    int r = cache_step_allowed(c, err);
    if (r < 0) {
        return r;
    }
    snprintf(path, sizeof path, "staging/%s", name);
    files_remove_tree(c->dir_fd, path);
    if (mkdirat(c->dir_fd, path, 0700) != 0) {
        return files_error(c, path, errno, err);
    }
    CLEANUP(cleanup_close) int fd = openat(c->dir_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || mkdirat(fd, "blobs", 0700) != 0) {
        return files_error(c, path, errno, err);
    }
    *ret_fd = TAKE_FD(fd);
    return 0;
}

int cache_staging_link(
    struct cache *c, int staging_fd, const struct digest *blob, struct err *err) {
    char path[DIGEST_HEX + 8] = "blobs/";
    digest_hex(blob, path + 6);
    if (linkat(c->dir_fd, path, staging_fd, path, 0) != 0 && errno != EEXIST) {
        return errno == ENOENT ? err_set(err, ERR_MISSING, "blob sha256:%s is not here", path + 6)
                               : files_error(c, path, errno, err);
    }
    return 0;
}

void cache_staging_remove(struct cache *c, const char *name) {
    char path[128];
    snprintf(path, sizeof path, "staging/%s", name);
    files_remove_tree(c->dir_fd, path);
}

int cache_staging_append(
    struct cache *c, const char *name, const char *file, const void *bytes, size_t n,
    struct err *err) {
    char path[160];
    snprintf(path, sizeof path, "staging/%s/%s", name, file);
    CLEANUP(cleanup_close)
    int fd = openat(c->dir_fd, path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) {
        return files_error(c, path, errno, err);
    }
    return write_all(c, fd, path, bytes, n, err);
}

/* ---- After the index was lost ------------------------------------------------------------ */

/* Blobs get rows again, without owners: users send what they need anew. Packages go: their keys
 * are in the files, but compiling again is cheaper than trusting all of them at start. */
int files_index(struct cache *c, struct err *err) {
    for (size_t i = 0; i < 2; i++) {
        files_remove_tree(c->dir_fd, folders[i]);
        if (mkdirat(c->dir_fd, folders[i], 0700) != 0) {
            return files_error(c, folders[i], errno, err);
        }
    }
    int fd = openat(c->dir_fd, "blobs", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (d == NULL) {
        int r = files_error(c, "blobs", errno, err);
        cleanup_close(&fd);
        return r;
    }
    int r = 0;
    for (struct dirent *e = readdir(d); e != NULL && r == 0; e = readdir(d)) {
        struct digest digest;
        struct stat st;
        if (strlen(e->d_name) == DIGEST_HEX && digest_parse(e->d_name, &digest) &&
            fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
            r = stmt_run(
                c, STMT_BLOB_PUT, err, "dii", &digest, (int64_t)st.st_size,
                (int64_t)cache_now_ms(c));
        }
    }
    closedir(d);
    return r;
}

void cache_stats(struct cache *c, struct cache_stats *ret) {
    memset(ret, 0, sizeof *ret);
    sqlite3_stmt *s = stmt_bind(c, STMT_PACKAGE_TOTAL, "");
    if (stmt_step(c, s, NULL) == 1) {
        ret->package_count = stmt_u64(s, 0);
        ret->package_bytes = stmt_u64(s, 1);
    }
    sqlite3_reset(s);
    s = stmt_bind(c, STMT_BLOB_TOTAL, "");
    if (stmt_step(c, s, NULL) == 1) {
        ret->blob_count = stmt_u64(s, 0);
        ret->blob_bytes = stmt_u64(s, 1);
    }
    sqlite3_reset(s);
    ret->evicted_bytes = c->evicted_bytes;
    ret->healed = c->healed;
    struct statvfs v;
    if (fstatvfs(c->dir_fd, &v) == 0) {
        ret->disk_free_bytes = (uint64_t)v.f_bavail * v.f_frsize;
    }
    static const char *const logs[] = {
        "jobs.sqlite3-wal", "cache.sqlite3-wal", "schedules.sqlite3-journal"};
    for (size_t i = 0; i < sizeof logs / sizeof logs[0]; i++) {
        struct stat st;
        ret->wal_bytes += fstatat(c->dir_fd, logs[i], &st, 0) == 0 ? (uint64_t)st.st_size : 0;
    }
}
