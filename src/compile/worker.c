/* Job documents, staging files and event lines of ipud-compile. */
#include "compile/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "compile/key.h"
#include "proto/proto.h"

#define READ_BYTES 65536u

static int read_all(int fd, char **ret, size_t *ret_n, struct err *err) {
    CLEANUP(cleanup_free) char *text = NULL;
    size_t n = 0;
    size_t cap = 0;
    for (;;) {
        if (cap - n < READ_BYTES) {
            cap = cap == 0 ? 4 * READ_BYTES : 2 * cap;
            char *grown = realloc(text, cap);
            if (grown == NULL) {
                return err_set(err, ERR_COMPILE_OOM, "no memory for a job of %zu bytes", n);
            }
            text = grown;
        }
        ssize_t got = read(fd, text + n, cap - n);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return err_sys(err, ERR_IO, errno, "cannot read the job");
        }
        if (got == 0) {
            break;
        }
        n += (size_t)got;
        if (n > WORKER_MAX_JOB_BYTES) {
            return err_set(
                err, ERR_TOO_LARGE, "job document of more than %u bytes", WORKER_MAX_JOB_BYTES);
        }
    }
    *ret_n = n;
    *ret = TAKE(text);
    return 0;
}

bool worker_is_plain_name(const char *name) {
    size_t n = strlen(name);
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    return n >= 1 && n <= 64 && name[0] != '.' && strspn(name, allowed) == n;
}

static int check_members(
    const json_t *object, const char *pointer, const char *const *allowed, struct err *err) {
    const char *key;
    json_t *value;
    if (!json_is_object(object)) {
        return err_at(err, ERR_BAD_JOB, pointer, "an object is required");
    }
    json_object_foreach((json_t *)object, key, value) {
        const char *const *known = allowed;
        while (*known != NULL && strcmp(*known, key) != 0) {
            known++;
        }
        if (*known == NULL) {
            char where[192];
            snprintf(where, sizeof where, "%s", pointer);
            proto_pointer(where, sizeof where, key);
            return err_at(err, ERR_BAD_JOB, where, "unknown member '%.64s'", key);
        }
    }
    return 0;
}

/* An integer of min..max, or the fallback when absent. */
static int read_count(
    const json_t *object, const char *key, const char *pointer, uint64_t fallback, json_int_t min,
    json_int_t max, uint64_t *ret, struct err *err) {
    const json_t *value = json_object_get(object, key);
    if (value == NULL) {
        *ret = fallback;
        return 0;
    }
    if (!json_is_integer(value) || json_integer_value(value) < min ||
        json_integer_value(value) > max) {
        char where[192];
        snprintf(where, sizeof where, "%s/%s", pointer, key);
        return err_at(
            err, ERR_BAD_JOB, where, "an integer of %lld to %lld is required", (long long)min,
            (long long)max);
    }
    *ret = (uint64_t)json_integer_value(value);
    return 0;
}

static int read_options(const json_t *options, struct worker_job *job, struct err *err) {
    static const char *const keys[] = {"tiles", "accumulate", "profile", "repeat", "seed", NULL};
    uint64_t tiles = 0;
    int r = options != NULL ? check_members(options, "/options", keys, err) : 0;
    if (r == 0) {
        r = read_count(
            options, "tiles", "/options", COMPILE_DEFAULT_TILES, 1, PROTO_MAX_TILES, &tiles, err);
    }
    if (r == 0) {
        r = read_count(options, "seed", "/options", 0, 0, INT64_MAX, &job->seed, err);
    }
    const json_t *accumulate = json_object_get(options, "accumulate");
    const char *text = accumulate != NULL ? json_string_value(accumulate) : "f32";
    if (r == 0 && (text == NULL || (strcmp(text, "f32") != 0 && strcmp(text, "f16") != 0))) {
        r = err_at(err, ERR_BAD_JOB, "/options/accumulate", "\"f32\" or \"f16\" is required");
    }
    const json_t *profile = json_object_get(options, "profile");
    const char *level = profile != NULL ? json_string_value(profile) : "phase";
    if (r == 0 && (level == NULL || !compile_profile_find(level, &job->options.profile))) {
        r = err_at(
            err, ERR_BAD_JOB, "/options/profile", "\"off\", \"phase\" or \"kernel\" is required");
    }
    const json_t *repeat = json_object_get(options, "repeat");
    const char *blocks = repeat != NULL ? json_string_value(repeat) : "auto";
    if (r == 0 && (blocks == NULL || (strcmp(blocks, "auto") != 0 && strcmp(blocks, "off") != 0))) {
        r = err_at(err, ERR_BAD_JOB, "/options/repeat", "\"auto\" or \"off\" is required");
    }
    if (r == 0) {
        job->options.repeat = strcmp(blocks, "off") == 0 ? REPEAT_OFF : REPEAT_AUTO;
        job->options.tiles = (uint32_t)tiles;
        job->options.accumulate = strcmp(text, "f16") == 0 ? ACCUMULATE_F16 : ACCUMULATE_F32;
    }
    return r;
}

static int read_limits(const json_t *limits, struct worker_job *job, struct err *err) {
    static const char *const keys[] = {"memory_bytes", NULL};
    int r = limits != NULL ? check_members(limits, "/limits", keys, err) : 0;
    return r == 0 ? read_count(
                        limits, "memory_bytes", "/limits", COMPILE_DEFAULT_MEMORY, 1 << 20,
                        (json_int_t)1 << 40, &job->memory_bytes, err)
                  : r;
}

static int read_files(const json_t *files, struct worker_job *job, struct err *err) {
    const char *label;
    json_t *value;
    if (files != NULL && !json_is_object(files)) {
        return err_at(err, ERR_BAD_JOB, "/files", "an object is required");
    }
    json_object_foreach((json_t *)files, label, value) {
        struct digest d;
        if (!json_is_string(value) || !digest_parse(json_string_value(value), &d)) {
            char where[192] = "/files";
            proto_pointer(where, sizeof where, label);
            return err_at(
                err, ERR_BAD_JOB, where, "\"sha256:\" and 64 hexadecimal digits are required");
        }
    }
    job->files = files;
    return 0;
}

static int read_kind(const json_t *kind, enum worker_kind *ret, struct err *err) {
    static const char *const names[] = {
        [WORKER_KEY] = "key",
        [WORKER_COMPILE] = "compile",
        [WORKER_REFERENCE] = "reference",
        [WORKER_VERIFY] = "verify"};
    const char *text = json_string_value(kind);
    for (int i = 0; text != NULL && i <= WORKER_VERIFY; i++) {
        if (strcmp(names[i], text) == 0) {
            *ret = (enum worker_kind)i;
            return 0;
        }
    }
    return err_at(
        err, ERR_BAD_JOB, "/kind", "\"key\", \"compile\", \"reference\" or \"verify\" is required");
}

static int read_document(struct worker_job *job, struct err *err) {
    static const char *const keys[] = {"kind",   "model", "files",   "options",
                                       "limits", "check", "package", NULL};
    const json_t *d = job->document;
    int r = check_members(d, "", keys, err);
    if (r == 0) {
        r = read_kind(json_object_get(d, "kind"), &job->kind, err);
    }
    if (r == 0) {
        r = read_options(json_object_get(d, "options"), job, err);
    }
    if (r == 0) {
        r = read_limits(json_object_get(d, "limits"), job, err);
    }
    if (r == 0) {
        r = read_files(json_object_get(d, "files"), job, err);
    }
    if (r < 0) {
        return r;
    }
    job->model = json_object_get(d, "model");
    job->check = json_object_get(d, "check");
    job->package = json_string_value(json_object_get(d, "package"));
    if (job->kind != WORKER_VERIFY && !json_is_object(job->model)) {
        return err_at(err, ERR_BAD_JOB, "/model", "an object is required");
    }
    if (job->kind == WORKER_REFERENCE && !json_is_object(job->check)) {
        return err_at(err, ERR_BAD_JOB, "/check", "an object is required");
    }
    if (job->kind == WORKER_VERIFY &&
        (job->package == NULL || !worker_is_plain_name(job->package))) {
        return err_at(err, ERR_BAD_JOB, "/package", "a plain file name is required");
    }
    return 0;
}

int worker_read_job(int fd, struct worker_job *ret, struct err *err) {
    CLEANUP(cleanup_free) char *text = NULL;
    size_t n = 0;
    struct worker_job job = {0};
    int r = read_all(fd, &text, &n, err);
    if (r == 0) {
        r = proto_json_parse(text, n, &job.document, err);
    }
    if (r == 0) {
        r = read_document(&job, err);
    }
    if (r < 0) {
        worker_job_done(&job);
        return r;
    }
    *ret = job;
    return 0;
}

void worker_job_done(struct worker_job *job) {
    json_decref(job->document);
    memset(job, 0, sizeof *job);
}

int worker_open_blob(const char *digest_text, struct err *err) {
    struct digest d;
    char path[sizeof "blobs/" + DIGEST_HEX] = "blobs/";
    if (digest_text == NULL || !digest_parse(digest_text, &d)) {
        return err_set(
            err, ERR_BAD_JOB, "a blob is named by \"sha256:\" and 64 hexadecimal digits");
    }
    digest_hex(&d, path + strlen("blobs/"));
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return err_sys(err, errno == ENOENT ? ERR_MISSING : ERR_IO, errno, "blob %s", path + 6);
    }
    return fd;
}

int worker_open_label(void *arg, const char *label, struct err *err) {
    const struct worker_job *job = arg;
    const char *blob = json_string_value(json_object_get(job->files, label));
    if (blob == NULL) {
        return err_set(err, ERR_MISSING, "the job gives no file for label '%s'", label);
    }
    return worker_open_blob(blob, err);
}

int worker_load_model(
    struct worker_job *job, struct arena *a, struct worker_model *ret, struct err *err) {
    struct worker_model m = {0};
    struct graph *loaded = NULL;
    int r = graph_load(job->model, worker_open_label, job, a, &loaded, err);
    if (r == 0) {
        r = graph_canonical(loaded, a, &m.graph, &m.warnings, &m.warning_count, err);
    }
    if (r == 0) {
        m.options_json = compile_options_json(&job->options, a);
        r = key_make(m.graph, m.options_json, &m.key, err);
    }
    if (r == 0) {
        *ret = m;
    }
    return r;
}

static int write_all(int fd, const char *text, size_t n, struct err *err) {
    while (n > 0) {
        ssize_t done = write(fd, text, n);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done < 0) {
            return err_sys(err, ERR_IO, errno, "cannot write an event");
        }
        text += done;
        n -= (size_t)done;
    }
    return 0;
}

int worker_send(json_t *line, struct err *err) {
    CLEANUP(cleanup_free)
    char *text = line != NULL ? json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    if (text == NULL) {
        json_decref(line);
        return err_set(err, ERR_COMPILE_OOM, "no memory for an event");
    }
    size_t n = strlen(text);
    text[n] = '\n'; /* in place of the final 0: the length is known */
    int r = n + 1 > WORKER_MAX_RESULT
                ? err_set(
                      err, ERR_TOO_LARGE, "the result takes %zu bytes, at most %u: fewer tensors",
                      n + 1, WORKER_MAX_RESULT)
                : write_all(WORKER_EVENT_FD, text, n + 1, err);
    json_decref(line);
    return r;
}

void worker_event(void *arg, const char *event, const char *message, const char *fields_json) {
    json_t *fields = json_loads(fields_json, JSON_REJECT_DUPLICATES, NULL);
    if (fields == NULL || strlen(fields_json) > WORKER_MAX_LINE / 2) {
        json_decref(fields);
        fields = json_object();
    }
    json_t *line =
        json_pack("{s:s, s:s, s:o}", "event", event, "message", message, "fields", fields);
    worker_send(line, NULL); /* the closing line tells whether anyone listens */
}

/* jansson takes UTF-8 only; a cut text may end inside a character. */
static json_t *json_text(const char *text) {
    json_t *string = json_string(text);
    if (string != NULL) {
        return string;
    }
    char plain[sizeof((struct err *)NULL)->text];
    size_t n = 0;
    for (; text[n] != '\0' && n + 1 < sizeof plain; n++) {
        unsigned char c = (unsigned char)text[n];
        plain[n] = c < 0x80 ? (char)c : '?';
    }
    plain[n] = '\0';
    return json_string(plain);
}

int worker_send_error(const struct err *err) {
    int code = err->code != 0 ? err->code : ERR_INTERNAL;
    const char *detail = err->text[0] != '\0' ? err->text : err_text(code);
    worker_send(
        json_pack(
            "{s:s, s:s, s:{}, s:s, s:o, s:o}", "event", "error", "message", err_text(code),
            "fields", "code", err_name(code), "detail", json_text(detail), "where",
            json_text(err->where)),
        NULL);
    return err_exit(code);
}
