/* See follow.h. Each turn of the loop opens one stream; it ends by the `end` record, by an error
 * that a new attempt does not mend, or when retry_ms have passed without an answer. */
#include "client/follow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/monotonic.h"
#include "proto/proto.h"

#define RETRY_FIRST_MS   50
#define RETRY_MOST_MS    2000
#define DEFAULT_RETRY_MS 60000

static void decref_cleanup(json_t **j) {
    json_decref(*j);
}

int follow_check_job(const char *text, struct err *err) {
    int64_t alias;
    if (proto_id_valid(text) || proto_alias_parse(text, &alias)) {
        return 0;
    }
    return err_set(
        err, ERR_USAGE, "'%.60s' is no job: an id of %d characters or its number is expected", text,
        PROTO_ID_CHARS);
}

/* ---- Events ------------------------------------------------------------------------------ */

static void show(struct follow *f, const json_t *event, const char *text) {
    if (f->progress != NULL) {
        progress_clear(f->progress);
    }
    if (f->events_json) {
        fprintf(f->events, "%s\n", text); /* JSON escapes its control characters itself */
    } else {
        output_event(f->events, event);
    }
    fflush(f->events);
}

static void notice(struct follow *f, const char *name, const json_t *event) {
    const json_t *fields = json_object_get(event, "fields");
    const char *state = json_string_value(json_object_get(fields, "state"));
    if (strcmp(name, "job.state") == 0 && state != NULL) {
        if (f->progress != NULL) {
            progress_state(f->progress, f->job, state);
        }
    } else if (strcmp(name, "run.start") == 0) {
        f->runs = json_integer_value(json_object_get(fields, "runs"));
    } else if (strcmp(name, "output") == 0) {
        f->done = json_integer_value(json_object_get(fields, "run")) + 1;
    }
    if (f->progress != NULL && f->runs > 0) {
        progress_runs(f->progress, f->done, f->runs);
    }
}

/* The log's three result lines: profile, numeric test, hardware test. */
static void keep_result(struct follow *f, const char *name, const json_t *event) {
    static const char *const names[] = {"result.profile", "result.numeric", "result.hardware"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(name, names[i]) == 0) {
            json_decref(f->results[i]);
            f->results[i] = json_incref(json_object_get(event, "fields"));
        }
    }
}

static void print_results(const struct follow *f) {
    for (int i = 0; i < 3; i++) {
        if (json_is_object(f->results[i])) {
            output_fields(stderr, f->results[i]);
        }
    }
}

void follow_done(struct follow *f) {
    for (int i = 0; i < 3; i++) {
        json_decref(f->results[i]);
        f->results[i] = NULL;
    }
}

static int on_record(struct follow *f, const char *name, const json_t *event, const char *text) {
    const json_t *fields = json_object_get(event, "fields");
    if (strcmp(name, "error") == 0) {
        proto_problem_parse(fields, &f->err);
        return 1;
    }
    if (strcmp(name, "end") == 0) {
        f->has_end = json_is_true(json_object_get(fields, "terminal")) || f->once;
    }
    if (f->events_json && f->events != NULL && strcmp(name, "heartbeat") != 0) {
        show(f, event, text);
    }
    return f->has_end;
}

static int on_line(const char *text, size_t n, void *arg) {
    struct follow *f = arg;
    CLEANUP(decref_cleanup) json_t *event = NULL;
    struct err why;
    f->contact_ms = monotonic_ms();
    f->is_reached = true;
    if (proto_json_parse(text, n, &event, &why) < 0) {
        err_set(&f->err, ERR_PROTOCOL, "an event that is no JSON: %s", why.text);
        return 1;
    }
    const char *name = json_string_value(json_object_get(event, "event"));
    const json_t *seq = json_object_get(event, "seq");
    if (name == NULL || (seq != NULL && !json_is_integer(seq))) {
        err_set(&f->err, ERR_PROTOCOL, "an event without a name");
        return 1;
    }
    if (seq == NULL) {
        return on_record(f, name, event, text);
    }
    if (json_integer_value(seq) < f->next) {
        return 0; /* seen */
    }
    f->next = json_integer_value(seq) + 1;
    if (f->events != NULL) {
        show(f, event, text);
    }
    notice(f, name, event);
    keep_result(f, name, event);
    return 0;
}

static bool may_retry(const struct follow *f, int result) {
    bool is_gone = result == 0 || result == -ERR_UNREACHABLE || result == -ERR_DRAINING ||
                   result == -ERR_QUEUE_FULL;
    return is_gone && f->is_reached && monotonic_ms() - f->contact_ms < f->retry_ms;
}

static unsigned next_delay(unsigned delay) {
    delay = 2 * delay < RETRY_MOST_MS ? 2 * delay : RETRY_MOST_MS;
    return delay - (unsigned)(monotonic_ms() % (delay / 4 + 1)); /* clients spread out */
}

int follow_run(struct follow *f, struct err *err) {
    unsigned delay = RETRY_FIRST_MS;
    f->contact_ms = monotonic_ms();
    for (;;) {
        char after[64], path[HTTP_MAX_PATH];
        snprintf(after, sizeof after, "/events?from=%lld&follow=%d", (long long)f->next, !f->once);
        http_path(path, "/v1/jobs/", f->job, after);
        uint64_t before = f->contact_ms;
        int r = http_lines(f->http, path, on_line, f, err);
        if (f->err.code != 0) {
            *err = f->err;
            return -err->code;
        }
        if (f->has_end) {
            return 0;
        }
        if (!may_retry(f, r)) {
            return r < 0 ? r : err_set(err, ERR_UNREACHABLE, "the event stream ended early");
        }
        delay = f->contact_ms != before ? RETRY_FIRST_MS : next_delay(delay);
        http_sleep(f->http, delay);
        if (http_is_interrupted(f->http)) {
            return err_set(err, ERR_CANCELLED, "interrupted");
        }
    }
}

int follow_stopped(const struct follow *f, int result, struct err *err) {
    if (f->progress != NULL) {
        progress_clear(f->progress);
    }
    if (result == -ERR_CANCELLED && http_is_interrupted(f->http)) {
        fprintf(
            stderr,
            "\nipuctl: no longer watching job %s, which goes on\n"
            "ipuctl: to watch it again: ipuctl job wait %s\n"
            "ipuctl: to end it:         ipuctl job cancel %s\n",
            f->job, f->job, f->job);
        return FOLLOW_INTERRUPTED;
    }
    if (result == -ERR_TIMEOUT) {
        return err_set(
            err, ERR_TIMEOUT, "job %s has not ended and goes on; ipuctl job wait %s", f->job,
            f->job);
    }
    return result;
}

int follow_result(const json_t *job, struct err *err) {
    enum proto_state state;
    const char *word = json_string_value(json_object_get(job, "state"));
    if (word == NULL || !proto_state_parse(word, &state)) {
        return err_set(err, ERR_PROTOCOL, "the job's document has no state");
    }
    if (state == PROTO_STATE_SUCCEEDED) {
        return 0;
    }
    const json_t *problem = json_object_get(job, "error");
    if (json_is_object(problem)) {
        struct err found;
        proto_problem_parse(problem, &found);
        *err = found;
        return -err->code;
    }
    switch (state) {
    case PROTO_STATE_CANCELLED: return err_set(err, ERR_CANCELLED, NULL);
    case PROTO_STATE_TIMED_OUT: return err_set(err, ERR_RUN_TIMEOUT, "the job ran out of time");
    case PROTO_STATE_INTERRUPTED: return err_set(err, ERR_INTERRUPTED, NULL);
    default: return err_set(err, ERR_INTERNAL, "the job is %s and says nothing more", word);
    }
}

/* ---- Outputs ----------------------------------------------------------------------------- */

int follow_pair(
    const char *option, const char *text, char **ret_name, const char **ret_file, struct err *err) {
    const char *equals = strchr(text, '=');
    if (equals == NULL || equals == text || equals[1] == '\0') {
        return err_set(err, ERR_USAGE, "--%s: '%.80s' is not NAME=FILE", option, text);
    }
    *ret_name = strndup(text, (size_t)(equals - text));
    *ret_file = equals + 1;
    return *ret_name != NULL ? 0 : err_set(err, ERR_NOMEM, NULL);
}

int follow_save(struct http *h, const char *path, const char *file, struct err *err) {
    if (strcmp(file, "-") == 0) {
        fflush(stdout);
        return http_download(h, path, STDOUT_FILENO, err);
    }
    struct stat st;
    if (stat(file, &st) == 0 && !S_ISREG(st.st_mode)) { /* /dev/stdout, a pipe: no renaming */
        CLEANUP(cleanup_fclose) FILE *out = fopen(file, "we");
        return out != NULL ? http_download(h, path, fileno(out), err)
                           : err_sys(err, ERR_IO, errno, "'%s'", file);
    }
    CLEANUP(cleanup_free) char *temp = NULL;
    if (asprintf(&temp, "%s.XXXXXX", file) < 0) {
        temp = NULL;
        return err_set(err, ERR_NOMEM, NULL);
    }
    int fd = mkstemp(temp);
    if (fd < 0) {
        return err_sys(err, ERR_IO, errno, "'%s'", file);
    }
    mode_t mask = umask(0);
    umask(mask);
    int r = http_download(h, path, fd, err);
    if (r == 0 && fchmod(fd, 0666 & ~mask) != 0) {
        r = err_sys(err, ERR_IO, errno, "'%s'", file);
    }
    if (close(fd) != 0 && r == 0) {
        r = err_sys(err, ERR_IO, errno, "'%s'", file);
    }
    if (r == 0 && rename(temp, file) != 0) {
        r = err_sys(err, ERR_IO, errno, "'%s'", file);
    }
    if (r < 0) {
        unlink(temp);
    }
    return r;
}

static int
save_output(struct http *h, const char *id, const json_t *list, const char *pair, struct err *err) {
    CLEANUP(cleanup_free) char *name = NULL;
    const char *file;
    int r = follow_pair("output", pair, &name, &file, err);
    if (r < 0) {
        return r;
    }
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(list, "items"), i, item) {
        const char *found = json_string_value(json_object_get(item, "name"));
        if (found != NULL && strcmp(found, name) == 0) {
            char after[64], path[HTTP_MAX_PATH];
            snprintf(
                after, sizeof after, "/outputs/%lld?format=npy",
                (long long)json_integer_value(json_object_get(item, "ordinal")));
            http_path(path, "/v1/jobs/", id, after);
            r = follow_save(h, path, file, err);
            return r < 0 ? err_wrap(err, "output '%s'", name) : 0;
        }
    }
    return err_set(err, ERR_NOT_FOUND, "job %s has no output '%.80s'", id, name);
}

static int save_outputs(const struct args *a, struct http *h, const char *id, struct err *err) {
    CLEANUP(decref_cleanup) json_t *list = NULL;
    if (!args_has(a, "output")) {
        return 0;
    }
    char path[HTTP_MAX_PATH];
    http_path(path, "/v1/jobs/", id, "/outputs");
    int r = http_get(h, path, &list, err);
    size_t at = 0;
    for (const char *pair; r == 0 && (pair = args_each(a, "output", &at)) != NULL;) {
        r = save_output(h, id, list, pair, err);
    }
    return r;
}

/* ---- The end ----------------------------------------------------------------------------- */

static int read_duration(const struct args *a, const char *name, uint64_t *ms, struct err *err) {
    const char *text = args_value(a, name);
    if (text != NULL && proto_duration_parse(text, ms, err) < 0) {
        err->code = ERR_USAGE;
        return -ERR_USAGE;
    }
    return 0;
}

int follow_retry(const struct args *a, uint64_t *ret_ms, struct err *err) {
    *ret_ms = DEFAULT_RETRY_MS;
    return read_duration(a, "retry-for", ret_ms, err);
}

int follow_options(const struct args *a, struct follow *f, struct err *err) {
    uint64_t ms = 0;
    int r = follow_retry(a, &f->retry_ms, err);
    if (r == 0 && (r = read_duration(a, "timeout", &ms, err)) == 0 &&
        args_value(a, "timeout") != NULL) {
        f->deadline_ms = monotonic_ms() + ms;
        http_deadline(f->http, f->deadline_ms);
    }
    return r;
}

static void summarize(const json_t *job) {
    const json_t *run = output_member(job, "report.run");
    const json_t *check = output_member(job, "report.check");
    const json_t *hit = output_member(job, "report.compile.cache.hit");
    const json_t *cycles = json_array_get(json_object_get(run, "device_cycles"), 0);
    fputs("ipuctl: job ", stderr);
    fprintf(
        stderr, "%lld %s", (long long)json_integer_value(json_object_get(job, "alias")),
        json_string_value(json_object_get(job, "state")));
    if (hit != NULL) {
        fprintf(stderr, ", %s", json_is_true(hit) ? "package from the cache" : "compiled");
    }
    if (run != NULL) {
        fprintf(
            stderr, ", %s, %lld runs",
            json_is_true(json_object_get(run, "loaded")) ? "loaded" : "was resident",
            (long long)json_integer_value(json_object_get(run, "runs")));
    }
    if (json_is_integer(cycles)) {
        fprintf(stderr, ", %lld device cycles a run", (long long)json_integer_value(cycles));
    }
    if (check != NULL) {
        fprintf(
            stderr, ", largest error %.6g",
            json_number_value(json_object_get(check, "max_abs_error")));
    }
    fputc('\n', stderr);
}

/* Outputs of a job that failed its check are of use too; then the job's error is the one told. */
int follow_to_end(const struct args *a, struct follow *f, struct err *err) {
    CLEANUP(decref_cleanup) json_t *job = NULL;
    bool as_json;
    int r = args_is_json(a, &as_json, err);
    if (r < 0) {
        return r;
    }
    if ((r = http_watch_interrupt(f->http, err)) < 0 || (r = follow_run(f, err)) < 0) {
        return follow_stopped(f, r, err);
    }
    if (f->progress != NULL) {
        progress_clear(f->progress);
    }
    char path[HTTP_MAX_PATH];
    http_path(path, "/v1/jobs/", f->job, "");
    if ((r = http_get(f->http, path, &job, err)) < 0) {
        return follow_stopped(f, r, err);
    }
    const char *id = json_string_value(json_object_get(job, "id"));
    struct err result;
    err_clear(&result);
    r = follow_result(job, &result);
    bool has_outputs = r == 0 || r == -ERR_CHECK_FAILED;
    int saved = has_outputs && id != NULL ? save_outputs(a, f->http, id, err) : 0;
    if (as_json) {
        output_json(job);
    }
    if (!args_has(a, "quiet") && !as_json) {
        print_results(f);
    }
    if (!args_has(a, "quiet") && r == 0) {
        summarize(job);
    }
    if (r < 0) {
        *err = result;
        return r;
    }
    return saved < 0 ? follow_stopped(f, saved, err) : 0;
}
