/* ipuctl submit: the model file, the tensor files that it names, the inputs; then the job.
 *
 * Labels of tensor files are names, never paths (design.md D9): a label is looked for beside the
 * model file, and one that could lead elsewhere is refused unless --file says where it is. Files
 * are hashed here and sent only if the daemon has not got them of this user yet. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/digest.h"
#include "base/monotonic.h"
#include "client/follow.h"
#include "proto/proto.h"

#define INLINE_MODEL_BYTES (4u << 20) /* larger ones go as a blob: the job must stay below 8 MiB */
#define RETRY_MS           500

struct submit {
    const struct args *args;
    struct http *http;
    const char *model_path;
    char *text; /* of the model, owned */
    size_t bytes;
    json_t *model; /* owned */
    json_t *job;   /* owned */
    bool is_quiet;
    bool is_reached;   /* the daemon has answered: look for it when it goes away */
    uint64_t retry_ms; /* of --retry-for */
};

static void decref_cleanup(json_t **j) {
    json_decref(*j);
}

/* ---- Blobs ------------------------------------------------------------------------------- */

/* Asks for the blob and sends it when it is missing. */
static int send_once(
    struct submit *s, const char *path, int fd, const char *what, uint64_t bytes, struct err *err) {
    long status = 0;
    int r = http_head(s->http, path, &status, err);
    if (r < 0 || status == 200) {
        return r;
    }
    s->is_reached = true;
    if (!s->is_quiet) {
        fputs("sending ", stderr);
        output_text(stderr, what);
        fprintf(stderr, ", %llu bytes\n", (unsigned long long)bytes);
    }
    return http_put(s->http, path, fd, bytes, NULL, err);
}

/* A blob is named by its bytes, so it may be sent again. A daemon that was never there is waited
 * for only when the user has said how long. */
static int send_blob(
    struct submit *s, const char *path, int fd, const char *what, uint64_t bytes, struct err *err) {
    uint64_t until = monotonic_ms() + s->retry_ms;
    for (;;) {
        int r = send_once(s, path, fd, what, bytes, err);
        bool is_sought = s->is_reached || args_value(s->args, "retry-for") != NULL;
        if (r == 0 || !proto_retriable(-r) || !is_sought || monotonic_ms() >= until ||
            http_is_interrupted(s->http)) {
            s->is_reached = s->is_reached || r == 0;
            return r;
        }
        http_sleep(s->http, RETRY_MS);
    }
}

static int
send_fd(struct submit *s, int fd, const char *what, struct digest *ret, struct err *err) {
    struct stat st;
    uint64_t bytes = 0;
    char hex[DIGEST_HEX + 1], path[HTTP_MAX_PATH];
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        return err_set(err, ERR_IO, "%s is no regular file", what);
    }
    if ((uint64_t)st.st_size > PROTO_MAX_BLOB_BYTES) {
        return err_set(
            err, ERR_TOO_LARGE, "%s: %lld bytes, at most %llu", what, (long long)st.st_size,
            (unsigned long long)PROTO_MAX_BLOB_BYTES);
    }
    int r = digest_of_fd(fd, ret, &bytes, err);
    if (r < 0) {
        return err_wrap(err, "%s", what);
    }
    digest_hex(ret, hex);
    http_path(path, "/v1/blobs/", hex, "");
    return send_blob(s, path, fd, what, bytes, err);
}

static int send_file(
    struct submit *s, const char *file, const char *what, struct digest *ret, struct err *err) {
    CLEANUP(cleanup_close) int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return err_sys(err, ERR_IO, errno, "%s: '%.200s'", what, file);
    }
    return send_fd(s, fd, what, ret, err);
}

static int
send_text(struct submit *s, const char *text, size_t n, struct digest *ret, struct err *err) {
    CLEANUP(cleanup_fclose) FILE *temp = tmpfile();
    if (temp == NULL || fwrite(text, 1, n, temp) != n || fflush(temp) != 0) {
        return err_sys(err, ERR_IO, errno, "temporary file for the model");
    }
    return send_fd(s, fileno(temp), "model", ret, err);
}

static json_t *blob_text(const struct digest *d) {
    char text[8 + DIGEST_HEX] = "sha256:";
    digest_hex(d, text + 7);
    return json_string(text);
}

/* ---- Model ------------------------------------------------------------------------------- */

static int read_all(FILE *in, const char *name, char **ret, size_t *ret_bytes, struct err *err) {
    CLEANUP(cleanup_free) char *text = malloc(PROTO_MAX_MODEL_BYTES + 1);
    if (text == NULL) {
        return err_set(err, ERR_NOMEM, NULL);
    }
    size_t n = fread(text, 1, PROTO_MAX_MODEL_BYTES + 1, in);
    if (ferror(in)) {
        return err_sys(err, ERR_IO, errno, "'%s'", name);
    }
    if (n > PROTO_MAX_MODEL_BYTES) {
        return err_set(
            err, ERR_TOO_LARGE, "model '%s': more than %u bytes", name, PROTO_MAX_MODEL_BYTES);
    }
    *ret = TAKE(text);
    *ret_bytes = n;
    return 0;
}

static int read_model(struct submit *s, struct err *err) {
    bool is_stdin = strcmp(s->model_path, "-") == 0;
    if (is_stdin && isatty(STDIN_FILENO)) {
        return err_set(err, ERR_USAGE, "the model would be read from the terminal: give a file");
    }
    CLEANUP(cleanup_fclose) FILE *file = is_stdin ? NULL : fopen(s->model_path, "re");
    if (!is_stdin && file == NULL) {
        return err_sys(err, ERR_IO, errno, "model '%s'", s->model_path);
    }
    int r = read_all(is_stdin ? stdin : file, s->model_path, &s->text, &s->bytes, err);
    if (r < 0) {
        return r;
    }
    struct err why;
    if (proto_json_parse(s->text, s->bytes, &s->model, &why) < 0) {
        char where[sizeof why.where];
        snprintf(where, sizeof where, "%.120s:%.60s", s->model_path, why.where);
        return err_at(err, (enum err_code)why.code, where, "%s", why.text);
    }
    return 0;
}

/* ---- Files and inputs -------------------------------------------------------------------- */

/* The path given by --file, or the label beside the model. */
static int label_path(struct submit *s, const char *label, char **ret, struct err *err) {
    size_t at = 0;
    for (const char *pair; (pair = args_each(s->args, "file", &at)) != NULL;) {
        size_t n = strlen(label);
        if (strncmp(pair, label, n) == 0 && pair[n] == '=') {
            *ret = strdup(pair + n + 1);
            return *ret != NULL ? 0 : err_set(err, ERR_NOMEM, NULL);
        }
    }
    if (strchr(label, '/') != NULL || strcmp(label, ".") == 0 || strcmp(label, "..") == 0 ||
        label[0] == '\0') {
        return err_set(
            err, ERR_BAD_GRAPH,
            "tensor file '%.80s': a label is a plain name; --file '%.80s=PATH' says "
            "where the file is",
            label, label);
    }
    const char *slash = strrchr(s->model_path, '/');
    int n = slash != NULL ? (int)(slash - s->model_path) + 1 : 0;
    if (asprintf(ret, "%.*s%s", n, s->model_path, label) < 0) {
        *ret = NULL;
        return err_set(err, ERR_NOMEM, NULL);
    }
    return 0;
}

static int add_label(struct submit *s, json_t *files, const char *label, struct err *err) {
    CLEANUP(cleanup_free) char *path = NULL;
    struct digest blob;
    char what[128];
    if (json_object_get(files, label) != NULL) {
        return 0;
    }
    snprintf(what, sizeof what, "tensor file '%.80s'", label);
    int r = label_path(s, label, &path, err);
    if (r == 0) {
        r = send_file(s, path, what, &blob, err);
    }
    return r < 0 ? r : json_object_set_new(files, label, blob_text(&blob));
}

/* The model is checked by the daemon; here only what names a file matters. */
static int add_files(struct submit *s, struct err *err) {
    json_t *files = json_object();
    json_object_set_new(s->job, "files", files);
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(s->model, "initializers"), i, item) {
        const char *label = json_string_value(json_object_get(item, "file"));
        int r = label != NULL ? add_label(s, files, label, err) : 0;
        if (r < 0) {
            return err_where(err, "/initializers/%zu/file", i);
        }
    }
    return 0;
}

static int add_inputs(struct submit *s, struct err *err) {
    json_t *inputs = json_object();
    json_object_set_new(s->job, "inputs", inputs);
    size_t at = 0;
    for (const char *pair; (pair = args_each(s->args, "input", &at)) != NULL;) {
        CLEANUP(cleanup_free) char *name = NULL;
        const char *file;
        struct digest blob;
        char what[128];
        int r = follow_pair("input", pair, &name, &file, err);
        if (r < 0) {
            return r;
        }
        if (json_object_get(inputs, name) != NULL) {
            return err_set(err, ERR_USAGE, "--input: '%.80s' is given twice", name);
        }
        snprintf(what, sizeof what, "input '%.80s'", name);
        if ((r = send_file(s, file, what, &blob, err)) < 0) {
            return r;
        }
        json_object_set_new(
            inputs, name, json_pack("{s:o, s:s}", "blob", blob_text(&blob), "format", "npy"));
    }
    return 0;
}

/* The folder of an output file must take a file; what is no regular file is opened as it is. */
static int check_place(const char *name, const char *file, struct err *err) {
    struct stat st;
    const char *slash = strrchr(file, '/');
    bool is_there = stat(file, &st) == 0;
    int n = slash == file ? 1 : slash != NULL ? (int)(slash - file) : 1;
    CLEANUP(cleanup_free) char *folder = strndup(slash != NULL ? file : ".", (size_t)n);
    if (folder == NULL) {
        return err_set(err, ERR_NOMEM, NULL);
    }
    if (is_there && S_ISDIR(st.st_mode)) {
        return err_sys(err, ERR_IO, EISDIR, "output '%.80s': '%.200s'", name, file);
    }
    if (strcmp(file, "-") == 0 || (is_there && !S_ISREG(st.st_mode)) ||
        access(folder, W_OK | X_OK) == 0) {
        return 0;
    }
    return err_sys(err, ERR_IO, errno, "output '%.80s': '%.200s'", name, file);
}

/* What is wrong with an --output would be noticed only when the job has ended. */
static int check_outputs(const struct submit *s, struct err *err) {
    size_t at = 0;
    const json_t *known = json_object_get(s->model, "outputs");
    for (const char *pair; (pair = args_each(s->args, "output", &at)) != NULL;) {
        CLEANUP(cleanup_free) char *name = NULL;
        const char *file;
        int r = follow_pair("output", pair, &name, &file, err);
        bool found = false;
        size_t i;
        json_t *item;
        json_array_foreach(known, i, item) {
            found = found || (json_is_string(item) && name != NULL &&
                              strcmp(json_string_value(item), name) == 0);
        }
        if (r < 0) {
            return r;
        }
        if (!found && json_is_array(known)) {
            return err_set(err, ERR_USAGE, "--output: the model has no output '%.80s'", name);
        }
        if ((r = check_place(name, file, err)) < 0) {
            return r;
        }
    }
    return 0;
}

/* ---- The job document -------------------------------------------------------------------- */

static int add_number(
    const struct args *a, json_t *o, const char *name, int64_t low, int64_t high, struct err *err) {
    int64_t value = -1;
    int r = args_number(a, name, low, high, &value, err);
    if (r == 0 && value >= 0) {
        json_object_set_new(o, name, json_integer(value));
    }
    return r;
}

static void add_text(const struct args *a, json_t *o, const char *name) {
    const char *text = args_value(a, name);
    if (text != NULL) {
        json_t *value = json_string(text);
        json_object_set_new(o, name, value != NULL ? value : json_string("?"));
    }
}

static int add_options(struct submit *s, struct err *err) {
    const struct args *a = s->args;
    json_t *options = json_object();
    json_object_set_new(s->job, "options", options);
    int r = add_number(a, options, "tiles", 1, PROTO_MAX_TILES, err);
    if (r == 0) {
        r = add_number(a, options, "seed", 0, (int64_t)1 << 53, err);
    }
    int64_t run = 0;
    if (r == 0) {
        r = args_number(a, "profile-run", 0, PROTO_MAX_RUNS - 1, &run, err);
        json_object_set_new(run > 0 ? options : NULL, "profile_run", json_integer(run));
    }
    add_text(a, options, "accumulate");
    add_text(a, options, "profile");
    add_text(a, options, "repeat");
    add_text(a, options, "cache");
    add_text(a, s->job, "name");
    if (args_has(a, "check")) {
        json_object_set_new(options, "check", json_true());
    }
    if (args_has(a, "compile-only")) {
        json_object_set_new(options, "run", json_false());
    }
    if (args_has(a, "hold")) {
        json_object_set_new(s->job, "hold", json_true());
    }
    json_t *labels = args_has(a, "label") ? json_object() : NULL;
    size_t at = 0;
    for (const char *pair; r == 0 && (pair = args_each(a, "label", &at)) != NULL;) {
        CLEANUP(cleanup_free) char *key = NULL;
        const char *text;
        r = follow_pair("label", pair, &key, &text, err);
        if (r == 0) {
            json_object_set_new(labels, key, json_string(text));
        }
    }
    if (labels != NULL) {
        json_object_set_new(s->job, "labels", labels);
    }
    return r;
}

static int add_model(struct submit *s, struct err *err) {
    struct digest blob;
    if (s->bytes <= INLINE_MODEL_BYTES) {
        return json_object_set(s->job, "model", s->model);
    }
    int r = send_text(s, s->text, s->bytes, &blob, err);
    if (r == 0) {
        json_object_set_new(s->job, "model", json_pack("{s:o}", "blob", blob_text(&blob)));
    }
    return r;
}

/* ---- Sending it -------------------------------------------------------------------------- */

static int make_key(const struct args *a, char *ret, size_t n, struct err *err) {
    const char *key = args_value(a, "idempotency-key");
    unsigned char random[16];
    ret[0] = '\0';
    if (key == NULL) {
        return 0;
    }
    if (strcmp(key, "auto") != 0) {
        for (const char *c = key; *c != '\0'; c++) {
            if ((unsigned char)*c <= 0x20 || (unsigned char)*c >= 0x7f) {
                return err_set(err, ERR_USAGE, "--idempotency-key: only printable characters");
            }
        }
        snprintf(ret, n, "Idempotency-Key: %.*s", PROTO_MAX_IDEMPOTENCY + 1, key);
        return 0;
    }
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) {
        return err_sys(err, ERR_INTERNAL, errno, "random bytes");
    }
    int at = snprintf(ret, n, "Idempotency-Key: ");
    for (size_t i = 0; i < sizeof random; i++) {
        at += snprintf(ret + at, n - (size_t)at, "%02x", random[i]);
    }
    return 0;
}

/* Only with a key may a POST be sent again: without, a lost answer would mean two jobs. */
static int post(struct submit *s, uint64_t retry_ms, json_t **ret, struct err *err) {
    char key[PROTO_MAX_IDEMPOTENCY + 64];
    int r = make_key(s->args, key, sizeof key, err);
    uint64_t until = monotonic_ms() + retry_ms;
    while (r == 0) {
        int sent =
            http_json(s->http, "POST", "/v1/jobs", key[0] != '\0' ? key : NULL, s->job, ret, err);
        bool again = key[0] != '\0' && sent < 0 && proto_retriable(-sent);
        if (!again || monotonic_ms() >= until) {
            return sent;
        }
        http_sleep(s->http, RETRY_MS);
    }
    return r;
}

static int prepare(struct submit *s, struct err *err) {
    bool as_json;
    int r = args_is_json(s->args, &as_json, err);
    s->job = json_object();
    if (r < 0 || (r = follow_retry(s->args, &s->retry_ms, err)) < 0 ||
        (r = read_model(s, err)) < 0 || (r = check_outputs(s, err)) < 0 ||
        (r = add_options(s, err)) < 0 || (r = http_open(s->args->socket, &s->http, err)) < 0 ||
        (r = add_files(s, err)) < 0 || (r = add_inputs(s, err)) < 0 ||
        (r = add_model(s, err)) < 0) {
        return r < -1 || err->code != 0 ? r : err_set(err, ERR_NOMEM, NULL);
    }
    return 0;
}

static bool prints_output(const struct args *a) {
    size_t at = 0;
    for (const char *pair; (pair = args_each(a, "output", &at)) != NULL;) {
        const char *equals = strchr(pair, '=');
        if (equals != NULL && strcmp(equals, "=-") == 0) {
            return true;
        }
    }
    return false;
}

static int submit(struct submit *s, struct err *err) {
    const struct args *a = s->args;
    CLEANUP(decref_cleanup) json_t *accepted = NULL;
    struct progress progress;
    struct follow f = {.next = 1, .is_reached = true};
    bool as_json;
    int r = prepare(s, err);
    f.http = s->http;
    if (r < 0 || (r = follow_options(a, &f, err)) < 0 ||
        (r = post(s, f.retry_ms, &accepted, err)) < 0) {
        return r;
    }
    const char *id = json_string_value(json_object_get(accepted, "id"));
    if (id == NULL || !proto_id_valid(id)) {
        return err_set(err, ERR_PROTOCOL, "POST /v1/jobs: the answer has no job id");
    }
    args_is_json(a, &as_json, err);
    if (as_json && args_has(a, "detach")) {
        output_json(accepted);
    } else if (!as_json && !prints_output(a)) {
        printf("%s\n", id);
        fflush(stdout);
    }
    if (args_has(a, "detach")) {
        return 0;
    }
    bool is_verbose = args_has(a, "verbose");
    progress_init(&progress, s->is_quiet || is_verbose);
    f.job = id;
    f.progress = &progress;
    f.events = is_verbose ? stderr : NULL;
    r = follow_to_end(a, &f, err);
    follow_done(&f);
    return r;
}

int cmd_submit(const struct args *a, struct err *err) {
    struct submit s = {.args = a, .model_path = a->operands[0], .is_quiet = args_has(a, "quiet")};
    int r = submit(&s, err);
    http_close(s.http);
    json_decref(s.model);
    json_decref(s.job);
    free(s.text);
    return r;
}
