/* The state directory: groups, blobs, packages' index, jobs, recovery, and every write failing. */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/cache.h"

static char dir[64];
static uint64_t now_ms = 1796102000000;

static uint64_t test_now(void) {
    return ++now_ms;
}

static const struct cache_options *options(void) {
    static struct cache_options o;
    o = (struct cache_options){.dir = dir, .now_ms = test_now};
    return &o;
}

static struct cache *open_cache(void) {
    struct cache *c = NULL;
    struct err err;
    ck_assert_msg(cache_open(options(), &c, &err) == 0, "%s", err.text);
    return c;
}

static void setup(void) {
    strcpy(dir, "/tmp/test_cache.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
}

static void teardown(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    ck_assert_int_eq(system(command), 0);
}

static int
put_blob(struct cache *c, const char *text, uid_t uid, struct digest *ret, struct err *err) {
    struct cache_temp *t = NULL;
    bool is_new;
    digest_of(text, strlen(text), ret);
    int r = cache_temp_open(c, strlen(text), &t, err);
    if (r == 0 && (r = cache_temp_write(t, text, strlen(text), err)) < 0) {
        cache_temp_abort(t);
        t = NULL;
    }
    return r < 0 ? r : cache_temp_publish(t, uid, ret, &is_new, err);
}

static struct cache_job make_job(int n) {
    struct cache_job job;
    memset(&job, 0, sizeof job);
    snprintf(job.id, sizeof job.id, "01M8R0BJ6R9YGSMT190N24C%03d", n);
    job.uid = (uid_t)(1000 + n % 2);
    job.state = (char *)"queued";
    job.document = (char *)"{\"model\":{}}";
    job.created_ms = test_now();
    return job;
}

static int add_job(struct cache *c, int n, const char *key, struct err *err) {
    struct cache_job job = make_job(n);
    struct cache_idempotency idempotency = {.key = key};
    digest_of(job.document, strlen(job.document), &idempotency.body);
    int64_t alias, seq;
    int r = cache_job_insert(c, &job, &idempotency, &alias, err);
    return r < 0 ? r : cache_event_append(c, job.id, "{\"event\":\"job.state\"}", &seq, err);
}

START_TEST(second_owner_is_refused) {
    struct cache *c = open_cache();
    pid_t pid = fork();
    if (pid == 0) {
        struct cache *other = NULL;
        struct err err;
        char want[32];
        snprintf(want, sizeof want, "pid %d", (int)getppid());
        int r = cache_open(options(), &other, &err);
        _exit(r == -ERR_CONFLICT && strstr(err.text, want) != NULL ? 0 : 1);
    }
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    cache_close(c);
    cache_close(open_cache()); /* the lock goes with its owner */
}
END_TEST

START_TEST(blobs_belong_to_senders) {
    struct cache *c = open_cache();
    struct err err;
    struct digest d, wrong;
    ck_assert_int_eq(cache_begin(c, &err), 0);
    ck_assert_int_eq(cache_mark(c, &err), 0);
    ck_assert_int_eq(put_blob(c, "some bytes", 1000, &d, &err), 0);
    ck_assert(cache_blob_visible(c, &d, 1000));
    ck_assert(!cache_blob_visible(c, &d, 1001));
    ck_assert_int_eq(put_blob(c, "some bytes", 1001, &d, &err), 0);
    ck_assert(cache_blob_visible(c, &d, 1001));
    struct cache_temp *t = NULL;
    bool is_new;
    digest_of("other", 5, &wrong);
    ck_assert_int_eq(cache_temp_open(c, 1, &t, &err), 0);
    ck_assert_int_eq(cache_temp_write(t, "x", 1, &err), 0);
    ck_assert_int_eq(cache_temp_publish(t, 1000, &wrong, &is_new, &err), -ERR_DIGEST_MISMATCH);
    ck_assert_int_eq(cache_commit(c, &err), 0);
    int fd = -1;
    uint64_t bytes;
    ck_assert_int_eq(cache_blob_open(c, &d, &fd, &bytes, &err), 0);
    ck_assert_uint_eq(bytes, 10);
    close(fd);
    char path[256];
    cache_blob_path(c, &d, path, sizeof path);
    unlink(path); /* a row without file heals */
    ck_assert_int_eq(cache_blob_open(c, &d, &fd, &bytes, &err), -ERR_NOT_FOUND);
    ck_assert(!cache_blob_visible(c, &d, 1000));
    cache_close(c);
}
END_TEST

static int count_job(const struct cache_job *job, void *arg) {
    ++*(int *)arg;
    return 0;
}

static int last_event(int64_t seq, uint64_t ms, const char *body, void *arg) {
    *(int64_t *)arg = seq;
    return 0;
}

START_TEST(jobs_live_and_recover) {
    struct cache *c = open_cache();
    struct err err;
    ck_assert_int_eq(cache_begin(c, &err), 0);
    for (int n = 0; n < 6; n++) {
        ck_assert_int_eq(cache_mark(c, &err), 0);
        ck_assert_int_eq(add_job(c, n, n == 0 ? "key" : NULL, &err), 0);
    }
    ck_assert_int_eq(cache_mark(c, &err), 0);
    ck_assert_int_eq(add_job(c, 6, NULL, &err), 0);
    cache_undo(c); /* one piece of a group alone */
    static const char *const states[] = {"queued",     "held",      "running",
                                         "cancelling", "succeeded", "no-such-state"};
    for (int n = 0; n < 6; n++) {
        struct cache_job change = make_job(n);
        change.document = NULL;
        change.state = (char *)states[n];
        change.state_ms = test_now();
        ck_assert_int_eq(cache_job_update(c, &change, &err), 0);
        if (n == 4) {
            ck_assert_int_eq(cache_job_update(c, &change, &err), -ERR_CONFLICT);
        }
    }
    ck_assert_int_eq(cache_commit(c, &err), 0);
    cache_close(c);

    c = open_cache();
    uint64_t count = 0;
    ck_assert_int_eq(cache_begin(c, &err), 0);
    ck_assert_int_eq(cache_job_recover(c, "{}", "{\"event\":\"job.state\"}", &count, &err), 0);
    ck_assert_uint_eq(count, 3);
    static const char *const after[] = {"queued",    "held",      "interrupted",
                                        "cancelled", "succeeded", "interrupted"};
    for (int n = 0; n < 6; n++) {
        struct cache_job row;
        char alias[16];
        snprintf(alias, sizeof alias, "%d", n + 1);
        ck_assert_int_eq(cache_job_find(c, alias, &row, &err), 0);
        ck_assert_str_eq(row.state, after[n]);
        int64_t seq = 0;
        ck_assert_int_eq(cache_event_read(c, row.id, 1, last_event, &seq, &err), 0);
        ck_assert_int_eq(seq, row.last_event);
        ck_assert_int_eq(seq, n == 2 || n == 3 || n == 5 ? 2 : 1);
        cache_job_done(&row);
    }
    char id[27];
    struct digest body;
    ck_assert_int_eq(cache_idempotency_find(c, 1000, "key", id, &body, &err), 0);
    ck_assert_int_eq(cache_idempotency_find(c, 1001, "key", id, &body, &err), -ERR_NOT_FOUND);
    now_ms += 49ull * 3600 * 1000;
    ck_assert_int_eq(cache_idempotency_find(c, 1000, "key", id, &body, &err), -ERR_NOT_FOUND);
    int mine = 0, all = 0;
    ck_assert_int_eq(cache_job_list(c, 1000, false, NULL, 0, 100, count_job, &mine, &err), 0);
    ck_assert_int_eq(cache_job_list(c, 1000, true, NULL, 2, 100, count_job, &all, &err), 0);
    ck_assert_int_eq(mine, 3);
    ck_assert_int_eq(all, 4);
    ck_assert_int_eq(cache_job_delete(c, make_job(5).id, &err), 0);
    ck_assert_int_eq(add_job(c, 7, NULL, &err), 0); /* the alias of the dead is not given again */
    struct cache_job row;
    ck_assert_int_eq(cache_job_find(c, make_job(7).id, &row, &err), 0);
    ck_assert_int_eq(row.alias, 7);
    cache_job_done(&row);
    ck_assert_int_eq(cache_commit(c, &err), 0);
    cache_close(c);
}
END_TEST

static void stage_file(struct cache *c, const char *name, size_t bytes) {
    char *data = calloc(1, bytes);
    struct err err;
    int fd = -1;
    ck_assert_int_eq(cache_staging_make(c, name, &fd, &err), 0);
    close(fd);
    ck_assert_int_eq(cache_staging_append(c, name, "package.ipuexe", data, bytes, &err), 0);
    free(data);
}

static int
add_package(struct cache *c, int n, bool is_imported, struct cache_package *ret, struct err *err) {
    char path[64];
    char name[16];
    memset(ret, 0, sizeof *ret);
    snprintf(name, sizeof name, "p%d", n);
    snprintf(path, sizeof path, "staging/%s/package.ipuexe", name);
    digest_of(&n, sizeof n, &ret->digest);
    digest_hex(&ret->digest, ret->key);
    ret->bytes = 1000;
    ret->is_imported = is_imported;
    ret->info = (char *)"{}";
    stage_file(c, name, 1000);
    return cache_package_insert(c, path, ret, 1000, err);
}

START_TEST(packages_are_found_and_evicted) {
    struct cache_options o = *options();
    o.package_limit_bytes = 3500;
    struct cache *c = NULL;
    struct err err;
    ck_assert_int_eq(cache_open(&o, &c, &err), 0);
    ck_assert_int_eq(cache_begin(c, &err), 0);
    struct cache_package p[6], found;
    for (int n = 0; n < 3; n++) {
        ck_assert_int_eq(add_package(c, n, n == 2, &p[n], &err), 0);
    }
    ck_assert_int_eq(cache_package_find(c, p[2].key, &found, &err), -ERR_NOT_FOUND); /* foreign */
    ck_assert_int_eq(cache_package_get(c, &p[2].digest, &found, &err), 0);
    cache_package_done(&found);
    ck_assert_int_eq(cache_package_find(c, p[1].key, &found, &err), 0); /* used: now youngest */
    cache_package_done(&found);
    ck_assert_int_eq(cache_package_pin(c, &p[0].digest, &err), 0);
    ck_assert_int_eq(add_package(c, 3, false, &p[3], &err), 0); /* evicts 2: 0 is pinned */
    ck_assert_int_eq(cache_package_get(c, &p[2].digest, &found, &err), -ERR_NOT_FOUND);
    ck_assert_int_eq(cache_package_get(c, &p[0].digest, &found, &err), 0);
    cache_package_done(&found);
    ck_assert_int_eq(cache_package_remove(c, &p[0].digest, &err), -ERR_CONFLICT);
    cache_package_unpin(c, &p[0].digest);
    ck_assert_int_eq(cache_package_remove(c, &p[0].digest, &err), 0);
    ck_assert(cache_package_visible(c, &p[1].digest, 1000));
    ck_assert(!cache_package_visible(c, &p[1].digest, 1001));
    char path[256];
    cache_package_path(c, &p[1], path, sizeof path);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(cache_package_find(c, p[1].key, &found, &err), -ERR_NOT_FOUND);
    struct cache_stats stats;
    cache_stats(c, &stats);
    ck_assert_uint_eq(stats.package_count, 1);
    ck_assert_uint_eq(stats.healed, 1);
    uint64_t count, bytes;
    ck_assert_int_eq(cache_package_evict(c, 0, &count, &bytes, &err), 0);
    ck_assert_uint_eq(count, 1);
    ck_assert_int_eq(cache_commit(c, &err), 0);
    cache_close(c);
}
END_TEST

START_TEST(damaged_index_is_made_again) {
    struct cache *c = open_cache();
    struct err err;
    struct digest d;
    ck_assert_int_eq(cache_begin(c, &err), 0);
    ck_assert_int_eq(put_blob(c, "kept", 1000, &d, &err), 0);
    ck_assert_int_eq(add_job(c, 0, NULL, &err), 0);
    ck_assert_int_eq(cache_commit(c, &err), 0);
    cache_close(c);
    char path[128];
    snprintf(path, sizeof path, "%s/cache.sqlite3", dir);
    int fd = open(path, O_WRONLY);
    ck_assert_int_eq(pwrite(fd, "garbage garbage garbage", 23, 0), 23);
    close(fd);
    c = open_cache();
    struct cache_stats stats;
    cache_stats(c, &stats);
    ck_assert_uint_eq(stats.blob_count, 1);
    ck_assert(!cache_blob_visible(c, &d, 1000)); /* whose it was is lost */
    struct cache_job row;
    ck_assert_int_eq(cache_job_find(c, "1", &row, &err), 0);
    cache_job_done(&row);
    cache_close(c);
    snprintf(path, sizeof path, "%s/jobs.sqlite3", dir);
    fd = open(path, O_WRONLY);
    ck_assert_int_eq(pwrite(fd, "garbage garbage garbage", 23, 0), 23);
    close(fd);
    ck_assert_int_eq(cache_open(options(), &c, &err), -ERR_IO); /* precious: refused, kept */
    ck_assert_ptr_nonnull(strstr(err.text, dir));
}
END_TEST

START_TEST(newer_schema_is_refused) {
    cache_close(open_cache());
    char command[160];
    snprintf(
        command, sizeof command,
        "printf '\\0\\0\\0\\143' | dd of=%s/jobs.sqlite3 bs=1 seek=60 conv=notrunc 2>/dev/null",
        dir); /* user_version 99 */
    ck_assert_int_eq(system(command), 0);
    struct cache *c = NULL;
    struct err err;
    ck_assert_int_eq(cache_open(options(), &c, &err), -ERR_CONFLICT);
    ck_assert_ptr_nonnull(strstr(err.text, "99"));
}
END_TEST

/* One scenario with every step failing in turn: an error each time, and afterwards either the
 * whole of it is there or nothing. */
static int scenario(struct cache *c, int *ret_committed, struct err *err) {
    struct digest d;
    struct cache_package p;
    *ret_committed = 0;
    int r = cache_begin(c, err);
    if (r == 0 && (r = cache_mark(c, err)) == 0 && (r = put_blob(c, "bytes", 1000, &d, err)) == 0 &&
        (r = add_job(c, 0, "k", err)) == 0 &&
        (r = cache_job_pin_blob(c, make_job(0).id, &d, err)) == 0) {
        char name[] = "p9";
        int fd = -1;
        memset(&p, 0, sizeof p);
        digest_of("p", 1, &p.digest);
        digest_hex(&p.digest, p.key);
        p.bytes = 4;
        p.info = (char *)"{}";
        if ((r = cache_staging_make(c, name, &fd, err)) == 0) {
            close(fd);
            r = cache_staging_append(c, name, "package.ipuexe", "text", 4, err);
        }
        if (r == 0) {
            r = cache_package_insert(c, "staging/p9/package.ipuexe", &p, 1000, err);
        }
    }
    if (r < 0) {
        cache_rollback(c);
        return r;
    }
    r = cache_commit(c, err);
    *ret_committed = r == 0;
    return r;
}

START_TEST(every_step_may_fail) {
    int committed = 0;
    for (uint64_t n = 1; !committed; n++) {
        ck_assert_uint_lt(n, 200);
        struct cache *c = open_cache();
        struct err err;
        cache_fail_after(c, n);
        int r = scenario(c, &committed, &err);
        ck_assert_int_eq(r == 0, committed);
        ck_assert(committed || err.code == ERR_IO);
        cache_close(c);
        c = open_cache();
        struct cache_job row;
        struct cache_package p;
        struct digest d, body;
        char id[27];
        digest_of("p", 1, &d);
        int job = cache_job_find(c, make_job(0).id, &row, &err);
        int key = cache_idempotency_find(c, 1000, "k", id, &body, &err);
        int package = cache_package_get(c, &d, &p, &err);
        ck_assert_int_eq(job == 0, committed);
        ck_assert_int_eq(key == 0, committed);
        ck_assert_int_eq(package == 0, committed);
        if (committed) {
            cache_job_done(&row);
            cache_package_done(&p);
        }
        struct stat st;
        char path[128];
        snprintf(path, sizeof path, "%s/staging", dir);
        ck_assert_int_eq(stat(path, &st), 0);
        ck_assert_uint_eq(st.st_nlink, 2); /* swept */
        cache_close(c);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("cache");
    TCase *tc = tcase_create("cache");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, second_owner_is_refused);
    tcase_add_test(tc, blobs_belong_to_senders);
    tcase_add_test(tc, jobs_live_and_recover);
    tcase_add_test(tc, packages_are_found_and_evicted);
    tcase_add_test(tc, damaged_index_is_made_again);
    tcase_add_test(tc, newer_schema_is_refused);
    tcase_add_test(tc, every_step_may_fail);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
