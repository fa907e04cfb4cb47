/* The job document: JSON to struct proto_job and back.
 *
 * One table names the members of each object; a member that no row names is refused with its
 * pointer, so that a misspelt option never means its default. Values are checked where they are
 * read; nothing is copied. */
#include "proto/proto.h"

#include <string.h>

#define POINTER_BYTES 192

static int bad(struct err *err, const char *pointer, const char *what) {
    return err_at(err, ERR_BAD_JOB, pointer, "%s: %s", pointer[0] != '\0' ? pointer : "/", what);
}

static int bad_at(struct err *err, const char *base, const char *key, const char *what) {
    char pointer[POINTER_BYTES];
    strcpy(pointer, base);
    proto_pointer(pointer, sizeof pointer, key);
    return bad(err, pointer, what);
}

/* Refuses members of `object` that `known` (ended by NULL) does not list. */
static int
only_known(const json_t *object, const char *base, const char *const *known, struct err *err) {
    if (!json_is_object(object)) {
        return bad(err, base, "must be an object");
    }
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        size_t i = 0;
        while (known[i] != NULL && strcmp(known[i], key) != 0) {
            i++;
        }
        if (known[i] == NULL) {
            return bad_at(err, base, key, "unknown member");
        }
    }
    return 0;
}

static int
read_bool(const json_t *object, const char *base, const char *key, bool *ret, struct err *err) {
    const json_t *v = json_object_get(object, key);
    if (v != NULL && !json_is_boolean(v)) {
        return bad_at(err, base, key, "must be true or false");
    }
    *ret = v != NULL ? json_is_true(v) : *ret;
    return 0;
}

static int read_int(
    const json_t *object, const char *base, const char *key, int64_t low, int64_t high,
    int64_t *ret, struct err *err) {
    const json_t *v = json_object_get(object, key);
    if (v == NULL) {
        return 0;
    }
    int64_t value = json_integer_value(v);
    if (!json_is_integer(v) || value < low || value > high) {
        char what[96];
        snprintf(
            what, sizeof what, "must be an integer from %lld to %lld", (long long)low,
            (long long)high);
        return bad_at(err, base, key, what);
    }
    *ret = value;
    return 0;
}

/* A text of at most `limit` bytes without control bytes; *ret stays when the member is absent. */
static int read_text(
    const json_t *object, const char *base, const char *key, size_t limit, const char **ret,
    struct err *err) {
    const json_t *v = json_object_get(object, key);
    if (v == NULL) {
        return 0;
    }
    const char *text = json_string_value(v);
    char what[96];
    if (text == NULL || text[0] == '\0' || json_string_length(v) > limit) {
        snprintf(what, sizeof what, "must be a text of 1 to %zu bytes", limit);
        return bad_at(err, base, key, what);
    }
    for (const char *c = text; *c != '\0'; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f) {
            return bad_at(err, base, key, "must not hold control characters");
        }
    }
    *ret = text;
    return 0;
}

static int read_digest(const json_t *v, const char *pointer, struct digest *ret, struct err *err) {
    const char *text = json_string_value(v);
    if (text == NULL || !digest_parse(text, ret)) {
        return bad(err, pointer, "must be \"sha256:\" and 64 lower-case hexadecimal digits");
    }
    return 0;
}

/* An object of at most `limit` members whose names have 1 to PROTO_MAX_LABEL_BYTES bytes. */
static int
read_map(const json_t *object, const char *key, size_t limit, const json_t **ret, struct err *err) {
    const json_t *map = json_object_get(object, key);
    if (map == NULL) {
        return 0;
    }
    if (!json_is_object(map)) {
        return bad_at(err, "", key, "must be an object");
    }
    if (json_object_size(map) > limit) {
        char what[64];
        snprintf(what, sizeof what, "%zu members, at most %zu", json_object_size(map), limit);
        return bad_at(err, "", key, what);
    }
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)map, name, value) {
        size_t n = strlen(name);
        if (n == 0 || n > PROTO_MAX_LABEL_BYTES) {
            return bad_at(err, "", key, "a member's name is empty or too long");
        }
    }
    *ret = map;
    return 0;
}

static int read_files(const json_t *document, struct proto_job *job, struct err *err) {
    int r = read_map(document, "files", PROTO_MAX_FILES, &job->files, err);
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)job->files, name, value) {
        char pointer[POINTER_BYTES] = "/files";
        proto_pointer(pointer, sizeof pointer, name);
        struct digest blob;
        if (r == 0) {
            r = read_digest(value, pointer, &blob, err);
        }
    }
    return r;
}

bool proto_input_read(const json_t *input, struct digest *ret_blob, enum proto_format *ret_format) {
    const char *blob = json_string_value(json_object_get(input, "blob"));
    const char *format = json_string_value(json_object_get(input, "format"));
    *ret_format = format != NULL && strcmp(format, "raw") == 0 ? PROTO_RAW : PROTO_NPY;
    return blob != NULL && digest_parse(blob, ret_blob);
}

static int
read_inputs(const json_t *document, const char *key, const json_t **ret, struct err *err) {
    static const char *const known[] = {"blob", "format", NULL};
    int r = read_map(document, key, PROTO_MAX_INPUTS, ret, err);
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)*ret, name, value) {
        char pointer[POINTER_BYTES] = "";
        proto_pointer(pointer, sizeof pointer, key);
        proto_pointer(pointer, sizeof pointer, name);
        if (r == 0) {
            r = only_known(value, pointer, known, err);
        }
        const char *format = "npy";
        if (r == 0) {
            r = read_text(value, pointer, "format", 8, &format, err);
        }
        if (r == 0 && strcmp(format, "npy") != 0 && strcmp(format, "raw") != 0) {
            r = bad_at(err, pointer, "format", "must be \"npy\" or \"raw\"");
        }
        struct digest blob;
        proto_pointer(pointer, sizeof pointer, "blob");
        if (r == 0) {
            r = read_digest(json_object_get(value, "blob"), pointer, &blob, err);
        }
    }
    return r;
}

static int read_labels(const json_t *document, struct proto_job *job, struct err *err) {
    int r = read_map(document, "labels", PROTO_MAX_LABELS, &job->labels, err);
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)job->labels, name, value) {
        const char *text;
        if (r == 0) {
            r = read_text(job->labels, "/labels", name, PROTO_MAX_NAME, &text, err);
        }
    }
    return r;
}

static int read_source(const json_t *document, struct proto_job *job, struct err *err) {
    static const char *const known[] = {"blob", NULL};
    const json_t *model = json_object_get(document, "model");
    const json_t *package = json_object_get(document, "package");
    if ((model == NULL) == (package == NULL)) {
        return model == NULL ? bad(err, "/model", "is missing, and so is /package")
                             : bad(err, "/package", "cannot stand beside /model");
    }
    if (package != NULL) {
        job->has_package = true;
        return read_digest(package, "/package", &job->package, err);
    }
    if (!json_is_object(model)) {
        return bad(err, "/model", "must be an object");
    }
    if (json_object_get(model, "blob") == NULL) {
        job->model = model;
        return 0;
    }
    job->has_model_blob = true;
    int r = only_known(model, "/model", known, err);
    return r < 0
               ? r
               : read_digest(json_object_get(model, "blob"), "/model/blob", &job->model_blob, err);
}

static int read_options(const json_t *document, struct proto_job *job, struct err *err) {
    static const char *const known[] = {"tiles", "accumulate", "repeat", "profile", "profile_run",
                                        "seed",  "check",      "run",    "cache",   NULL};
    static const char *const caches[] = {"use", "refresh", "off"};
    job->options.tiles = PROTO_DEFAULT_TILES;
    job->options.accumulate = "f32";
    job->options.repeat = "auto";
    job->options.profile = "phase";
    job->options.run = true;
    const json_t *o = json_object_get(document, "options");
    const char *cache = "use";
    int r = o != NULL ? only_known(o, "/options", known, err) : 0;
    if (r < 0 ||
        (r = read_int(o, "/options", "tiles", 1, PROTO_MAX_TILES, &job->options.tiles, err)) < 0 ||
        (r = read_int(o, "/options", "seed", 0, 1ll << 53, &job->options.seed, err)) < 0 ||
        (r = read_bool(o, "/options", "check", &job->options.check, err)) < 0 ||
        (r = read_bool(o, "/options", "run", &job->options.run, err)) < 0 ||
        (r = read_text(o, "/options", "accumulate", 8, &job->options.accumulate, err)) < 0 ||
        (r = read_text(o, "/options", "profile", 8, &job->options.profile, err)) < 0 ||
        (r = read_int(
             o, "/options", "profile_run", 0, PROTO_MAX_RUNS - 1, &job->options.profile_run, err)) <
            0 ||
        (r = read_text(o, "/options", "repeat", 8, &job->options.repeat, err)) < 0 ||
        (r = read_text(o, "/options", "cache", 8, &cache, err)) < 0) {
        return r;
    }
    if (strcmp(job->options.profile, "off") != 0 && strcmp(job->options.profile, "phase") != 0 &&
        strcmp(job->options.profile, "kernel") != 0) {
        return bad(err, "/options/profile", "must be \"off\", \"phase\" or \"kernel\"");
    }
    if (strcmp(job->options.accumulate, "f32") != 0 &&
        strcmp(job->options.accumulate, "f16") != 0) {
        return bad(err, "/options/accumulate", "must be \"f32\" or \"f16\"");
    }
    if (strcmp(job->options.repeat, "auto") != 0 && strcmp(job->options.repeat, "off") != 0) {
        return bad(err, "/options/repeat", "must be \"auto\" or \"off\"");
    }
    int choice = PROTO_CACHE_USE;
    while (choice <= PROTO_CACHE_OFF && strcmp(cache, caches[choice]) != 0) {
        choice++;
    }
    if (choice > PROTO_CACHE_OFF) {
        return bad(err, "/options/cache", "must be \"use\", \"refresh\" or \"off\"");
    }
    job->options.cache = (enum proto_cache)choice;
    if (job->options.check && (job->has_package || !job->options.run)) {
        return bad(err, "/options/check", "needs a model that is run");
    }
    return 0;
}

static int read_limits(const json_t *document, struct proto_job *job, struct err *err) {
    static const char *const known[] = {"queue_ms", "compile_ms", "run_ms", NULL};
    const json_t *o = json_object_get(document, "limits");
    int64_t queue = 0;
    int64_t compile = PROTO_DEFAULT_COMPILE_MS;
    int64_t run = PROTO_DEFAULT_RUN_MS;
    int r = o != NULL ? only_known(o, "/limits", known, err) : 0;
    if (r < 0 || (r = read_int(o, "/limits", "queue_ms", 1, PROTO_MAX_LIMIT_MS, &queue, err)) < 0 ||
        (r = read_int(o, "/limits", "compile_ms", 1, PROTO_MAX_LIMIT_MS, &compile, err)) < 0 ||
        (r = read_int(o, "/limits", "run_ms", 1, PROTO_MAX_LIMIT_MS, &run, err)) < 0) {
        return r;
    }
    job->limits.queue_ms = (uint64_t)queue;
    job->limits.compile_ms = (uint64_t)compile;
    job->limits.run_ms = (uint64_t)run;
    return 0;
}

int proto_job_parse(const json_t *document, struct proto_job *ret, struct err *err) {
    static const char *const known[] = {"name",    "model",      "package", "files",
                                        "inputs",  "parameters", "labels",  "hold",
                                        "options", "limits",     NULL};
    struct proto_job job;
    memset(&job, 0, sizeof job);
    int r = only_known(document, "", known, err);
    if (r < 0 || (r = read_text(document, "", "name", PROTO_MAX_NAME, &job.name, err)) < 0 ||
        (r = read_source(document, &job, err)) < 0 || (r = read_files(document, &job, err)) < 0 ||
        (r = read_inputs(document, "inputs", &job.inputs, err)) < 0 ||
        (r = read_inputs(document, "parameters", &job.parameters, err)) < 0 ||
        (r = read_labels(document, &job, err)) < 0 ||
        (r = read_bool(document, "", "hold", &job.hold, err)) < 0 ||
        (r = read_options(document, &job, err)) < 0 || (r = read_limits(document, &job, err)) < 0) {
        return r;
    }
    if (job.parameters != NULL && !job.has_package) {
        return bad(err, "/parameters", "are given with a package only; a model has initializers");
    }
    if (job.files != NULL && job.has_package) {
        return bad(err, "/files", "are given with a model only");
    }
    *ret = job;
    return 0;
}

/* ---- Back to JSON ------------------------------------------------------------------------ */

static json_t *digest_json(const struct digest *d) {
    char text[8 + DIGEST_HEX] = "sha256:";
    digest_hex(d, text + 7);
    return json_string(text);
}

static void set_borrowed(json_t *object, const char *key, const json_t *value) {
    if (value != NULL) {
        json_object_set(object, key, (json_t *)value);
    }
}

json_t *proto_job_print(const struct proto_job *job) {
    static const char *const caches[] = {"use", "refresh", "off"};
    json_t *d = json_object();
    if (job->name != NULL) {
        json_object_set_new(d, "name", json_string(job->name));
    }
    set_borrowed(d, "model", job->model);
    if (job->has_model_blob) {
        json_object_set_new(d, "model", json_pack("{s:o}", "blob", digest_json(&job->model_blob)));
    }
    if (job->has_package) {
        json_object_set_new(d, "package", digest_json(&job->package));
    }
    set_borrowed(d, "files", job->files);
    set_borrowed(d, "inputs", job->inputs);
    set_borrowed(d, "parameters", job->parameters);
    set_borrowed(d, "labels", job->labels);
    if (job->hold) {
        json_object_set_new(d, "hold", json_true());
    }
    json_t *options = json_pack(
        "{s:I, s:s, s:s, s:s, s:I, s:I, s:b, s:b, s:s}", "tiles", (json_int_t)job->options.tiles,
        "accumulate", job->options.accumulate, "repeat", job->options.repeat, "profile",
        job->options.profile, "profile_run", (json_int_t)job->options.profile_run, "seed",
        (json_int_t)job->options.seed, "check", job->options.check, "run", job->options.run,
        "cache", caches[job->options.cache]);
    json_object_set_new(d, "options", options);
    json_t *limits = json_pack(
        "{s:I, s:I}", "compile_ms", (json_int_t)job->limits.compile_ms, "run_ms",
        (json_int_t)job->limits.run_ms);
    if (job->limits.queue_ms > 0) {
        json_object_set_new(limits, "queue_ms", json_integer((json_int_t)job->limits.queue_ms));
    }
    json_object_set_new(d, "limits", limits);
    return d;
}

/* ---- Blobs of a job ---------------------------------------------------------------------- */

typedef int blob_fn(const struct digest *blob, const char *pointer, void *arg);

static int each_input(const json_t *map, const char *key, blob_fn *fn, void *arg) {
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)map, name, value) {
        char pointer[POINTER_BYTES] = "";
        proto_pointer(pointer, sizeof pointer, key);
        proto_pointer(pointer, sizeof pointer, name);
        proto_pointer(pointer, sizeof pointer, "blob");
        struct digest blob;
        enum proto_format format;
        int r = proto_input_read(value, &blob, &format) ? fn(&blob, pointer, arg) : 0;
        if (r != 0) {
            return r;
        }
    }
    return 0;
}

int proto_job_blobs(const struct proto_job *job, blob_fn *fn, void *arg) {
    int r = job->has_model_blob ? fn(&job->model_blob, "/model/blob", arg) : 0;
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)job->files, name, value) {
        char pointer[POINTER_BYTES] = "/files";
        proto_pointer(pointer, sizeof pointer, name);
        struct digest blob;
        if (r == 0 && digest_parse(json_string_value(value), &blob)) {
            r = fn(&blob, pointer, arg);
        }
    }
    if (r == 0) {
        r = each_input(job->inputs, "inputs", fn, arg);
    }
    return r != 0 ? r : each_input(job->parameters, "parameters", fn, arg);
}
