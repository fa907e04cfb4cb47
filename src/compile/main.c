/* ipud-compile: one job of proto/worker.md from fd 3, its products into the directory on fd 4, its
 * events to fd 5. A process per job: whatever a model does to it, only that job is lost. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compile/check.h"
#include "compile/compile.h"
#include "compile/key.h"
#include "compile/worker.h"
#include "package/package.h"

#define PACKAGE_NAME   "package.ipuexe"
#define SCHEDULES_NAME "schedules.sqlite3" /* those made here */
#define KNOWN_NAME     "known-schedules.sqlite3"

struct worker {
    struct worker_job job;
    struct worker_model model;
    struct arena arena;
    json_t *result; /* owned until sent */
};

/* Pointers into the model become pointers into the job, where its options have their own. */
static void to_job_pointer(struct err *err) {
    char pointer[sizeof err->where];
    if (err->where[0] == '/' && strncmp(err->where, "/options/", 9) != 0) {
        memcpy(pointer, err->where, sizeof pointer);
        snprintf(err->where, sizeof err->where, "/model%.*s", (int)sizeof pointer - 7, pointer);
    }
}

static int run_key(struct worker *w, struct err *err) {
    return key_result(
        w->model.graph, &w->model.key, w->job.files, w->job.seed, w->model.warnings,
        w->model.warning_count, &w->result, err);
}

static json_t *list_passes(const struct compile_result *c) {
    json_t *list = json_array();
    for (uint32_t i = 0; i < c->pass_count; i++) {
        json_array_append_new(
            list, json_pack(
                      "{s:s, s:f, s:I}", "name", c->passes[i].name, "elapsed_ms",
                      c->passes[i].elapsed_ms, "peak_bytes", (json_int_t)c->passes[i].peak_bytes));
    }
    return list;
}

static int run_compile(struct worker *w, struct err *err) {
    char key[DIGEST_HEX + 1];
    char digest[DIGEST_HEX + 1];
    digest_hex(&w->model.key, key);
    struct compile_job job = {
        .graph = w->model.graph,
        .options = w->job.options,
        .key = key,
        .compiler_id = key_compiler_id(),
        .package_path = PACKAGE_NAME,
        .schedules_path = KNOWN_NAME,
        .staged_schedules_path = SCHEDULES_NAME,
        .memory_bytes = w->job.memory_bytes,
        .event = worker_event,
    };
    struct compile_result done = {0};
    int r = compile_run(&job, &done, err);
    if (r < 0) {
        to_job_pointer(err);
        return r;
    }
    digest_hex(&done.digest, digest);
    w->result = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:I, s:o, s:{s:I, s:I, s:I, s:I, s:I, s:I, s:o}}", "event",
        "result", "kind", "compile", "key", key, "package", PACKAGE_NAME, "digest", digest, "bytes",
        (json_int_t)done.bytes, "passes", list_passes(&done), "summary", "tiles",
        (json_int_t)done.tiles, "active_tiles", (json_int_t)done.active_tiles, "exchange_phases",
        (json_int_t)done.exchange_phases, "kernel_calls", (json_int_t)done.kernel_calls,
        "estimated_cycles", (json_int_t)done.estimated_cycles, "exchange_cycles",
        (json_int_t)done.exchange_cycles, "schedules",
        json_pack(
            "{s:I, s:I, s:I}", "scheduled", (json_int_t)done.phases_scheduled, "replayed",
            (json_int_t)done.phases_replayed, "refused", (json_int_t)done.phases_refused));
    return w->result != NULL ? 0 : err_set(err, ERR_COMPILE_OOM, "no memory for a result");
}

static int run_reference(struct worker *w, struct err *err) {
    return check_run(&w->job, &w->model, &w->result, err);
}

/* Packages bind by ordinal: the names are made here. */
static int list_package(const struct package *p, json_t *result, struct err *err) {
    static const struct {
        enum package_role role;
        const char *list, *name;
    } rows[] = {
        {PACKAGE_INPUT, "inputs", "input"},
        {PACKAGE_OUTPUT, "outputs", "output"},
        {PACKAGE_PARAMETER, "parameters", "parameter"}};
    for (uint32_t i = 0; i < p->binding_count; i++) {
        const struct package_binding *b = &p->bindings[i];
        for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
            if (rows[k].role != b->role) {
                continue;
            }
            char name[32];
            snprintf(name, sizeof name, "%s%u", rows[k].name, b->ordinal);
            json_t *binding = key_binding(name, b->ordinal, b->dtype, &b->shape);
            if (json_array_append_new(json_object_get(result, rows[k].list), binding) != 0) {
                return err_set(err, ERR_COMPILE_OOM, "no memory for a result");
            }
        }
    }
    return 0;
}

static int run_verify(struct worker *w, struct err *err) {
    struct package *p = NULL;
    struct digest digest;
    char hex[DIGEST_HEX + 1];
    struct stat st;
    int r = package_open(w->job.package, NULL, &p, &digest, err);
    if (r < 0) {
        return r;
    }
    if (stat(w->job.package, &st) != 0) {
        st.st_size = 0;
    }
    digest_hex(&digest, hex);
    w->result = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:[], s:[], s:[], s:[]}", "event", "result",
        "kind", "verify", "package", w->job.package, "digest", hex, "key", p->key, "compiler",
        p->compiler_id, "bytes", (json_int_t)st.st_size, "tiles", (json_int_t)p->compute_tiles,
        "inputs", "outputs", "parameters", "warnings");
    r = w->result != NULL ? list_package(p, w->result, err)
                          : err_set(err, ERR_COMPILE_OOM, "no memory for a result");
    package_free(p);
    return r;
}

/* The graph's arena jumps here when it is full. Nothing else is owned then but *w. */
static int load_model(struct worker *w, struct err *err) {
    if (ARENA_RECOVER(&w->arena)) {
        w->arena.has_recover = false;
        return err_set(
            err, ERR_COMPILE_OOM, "the model needs more than %llu bytes of memory",
            (unsigned long long)w->job.memory_bytes);
    }
    int r = worker_load_model(&w->job, &w->arena, &w->model, err);
    w->arena.has_recover = false;
    if (r < 0) {
        to_job_pointer(err);
    }
    return r;
}

static int run(struct worker *w, struct err *err) {
    if (fchdir(WORKER_STAGING_FD) != 0) {
        return err_sys(err, ERR_IO, errno, "descriptor %d is no directory", WORKER_STAGING_FD);
    }
    int r = worker_read_job(WORKER_JOB_FD, &w->job, err);
    if (r < 0) {
        return r;
    }
    arena_init(&w->arena, w->job.memory_bytes);
    if (w->job.kind == WORKER_VERIFY) {
        return run_verify(w, err);
    }
    r = load_model(w, err);
    if (r < 0) {
        return r;
    }
    switch (w->job.kind) {
    case WORKER_KEY: return run_key(w, err);
    case WORKER_COMPILE: return run_compile(w, err);
    case WORKER_REFERENCE: return run_reference(w, err);
    case WORKER_VERIFY: break;
    }
    return err_set(err, ERR_INTERNAL, "unknown kind of job");
}

int main(void) {
    struct worker w = {0};
    struct err err = {0};
    signal(SIGPIPE, SIG_IGN);
    compile_keep_memory();
    int r = run(&w, &err);
    if (r == 0) {
        r = worker_send(w.result, &err);
        w.result = NULL;
    }
    int status = r < 0 ? worker_send_error(&err) : 0;
    json_decref(w.result);
    arena_done(&w.arena);
    worker_job_done(&w.job);
    return status;
}
