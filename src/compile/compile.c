/* compile_run(): arenas, the pass loop, the package file. Any arena's exhaustion jumps back here
 * (R18); passes own nothing else, so nothing leaks. The loop ends with the table. */
#include "compile/compile_internal.h"

#include <malloc.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/monotonic.h"

static const char *const profile_names[] = {
    [EMIT_PROFILE_OFF] = "off", [EMIT_PROFILE_PHASE] = "phase", [EMIT_PROFILE_KERNEL] = "kernel"};

const char *compile_profile_name(enum emit_profile p) {
    return profile_names[p];
}

bool compile_profile_find(const char *name, enum emit_profile *ret) {
    for (int i = EMIT_PROFILE_OFF; i <= EMIT_PROFILE_KERNEL; i++) {
        if (strcmp(name, profile_names[i]) == 0) {
            *ret = (enum emit_profile)i;
            return true;
        }
    }
    return false;
}

const char *compile_options_json(const struct compile_options *o, struct arena *a) {
    return arena_printf(
        a, "{\"accumulate\":\"%s\",\"profile\":\"%s\",\"repeat\":\"%s\",\"tiles\":%u}",
        o->accumulate == ACCUMULATE_F16 ? "f16" : "f32", compile_profile_name(o->profile),
        o->repeat == REPEAT_OFF ? "off" : "auto", o->tiles);
}

int compile_options_check(const struct compile_options *o, struct err *err) {
    if (o->tiles < 1 || o->tiles > TARGET_TILES) {
        return err_at(
            err, ERR_INVALID, "/options/tiles", "tiles %u, allowed are 1 to %d", o->tiles,
            TARGET_TILES);
    }
    return 0;
}

void compile_event(
    struct compile_state *s, const char *event, const char *message, const char *fields, ...) {
    if (s->job->event == NULL) {
        return;
    }
    char text[2048];
    va_list args;
    va_start(args, fields);
    text[0] = '{';
    int n = vsnprintf(text + 1, sizeof text - 2, fields, args);
    va_end(args);
    if (n >= 0 && (size_t)n < sizeof text - 2) {
        memcpy(text + 1 + n, "}", 2);
        s->job->event(s->job->event_arg, event, message, text);
    }
}

void compile_keep_memory(void) {
    mallopt(M_MMAP_THRESHOLD, 32 << 20); /* larger chunks are few */
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    mallopt(M_TOP_PAD, 4 << 20);
}

static double now_ms(void) {
    return (double)monotonic_ns() / 1e6;
}

static double cpu_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* Whether `stage` is one of the comma-separated names. */
static bool is_listed(const char *list, const char *stage) {
    size_t n = stage != NULL ? strlen(stage) : 0;
    for (const char *at = list; n > 0 && at != NULL && *at != '\0';) {
        size_t length = strcspn(at, ",");
        if (length == n && memcmp(at, stage, n) == 0) {
            return true;
        }
        at += length + (at[length] == ',' ? 1 : 0);
    }
    return false;
}

static int run_pass(struct compile_state *s, const struct compile_pass *p, struct err *err) {
    if ((s->made & p->needs) != p->needs) {
        return err_set(err, ERR_INTERNAL, "pass %s runs before what it needs", p->name);
    }
    double start = now_ms(), cpu = cpu_ms();
    struct arena_mark mark = arena_mark(&s->scratch);
    s->at = p->name;
    int rc = p->run(s, err);
    arena_rewind(&s->scratch, mark);
    if (rc == 0 && p->verify != NULL) {
        rc = p->verify(s, err);
        arena_rewind(&s->scratch, mark);
    }
    double elapsed = now_ms() - start;
    compile_event(
        s, "package.phase", "package build phase finished",
        "\"phase\":\"%s\",\"elapsed_ms\":%.3f,\"success\":%s", p->name, elapsed,
        rc == 0 ? "true" : "false");
    if (rc != 0) {
        return rc;
    }
    s->made |= p->makes;
    s->result->passes[s->result->pass_count++] = (struct compile_pass_time){
        p->name, elapsed, cpu_ms() - cpu,
        s->arena.peak_bytes + s->exchanges.peak_bytes + s->scratch.peak_bytes};
    if (p->print != NULL && is_listed(s->job->print, p->stage)) {
        p->print(s, s->job->print_to);
    }
    return 0;
}

static int write_package(struct compile_state *s, struct err *err) {
    const char *path = s->job->package_path;
    compile_event(s, "package.write", "writing application package", "\"tiles\":%d", TARGET_TILES);
    int rc = package_write(s->package, path, &s->result->digest, err);
    if (rc != 0) {
        return rc;
    }
    struct stat st;
    if (stat(path, &st) != 0) {
        unlink(path);
        return err_set(err, ERR_IO, "package file vanished while it was written");
    }
    s->result->bytes = (uint64_t)st.st_size;
    compile_event(
        s, "package.written", "application package written", "\"bytes\":%llu",
        (unsigned long long)s->result->bytes);
    return 0;
}

static int out_of_memory(const struct compile_state *s, struct err *err) {
    return err_set(
        err, ERR_COMPILE_OOM,
        "pass %s needs more than the %llu bytes allowed, for a graph of %u nodes", s->at,
        (unsigned long long)s->memory.limit_bytes, s->job->graph->node_count);
}

/* The state lies behind a pointer that does not change: it is intact after a jump. */
static int run_passes(struct compile_state *s, struct err *err) {
    if (ARENA_RECOVER(&s->arena)) {
        return out_of_memory(s, err);
    }
    if (ARENA_RECOVER(&s->exchanges)) {
        return out_of_memory(s, err);
    }
    if (ARENA_RECOVER(&s->scratch)) {
        return out_of_memory(s, err);
    }
    s->arena.fail_after = s->job->fail_after;
    for (uint32_t i = 0; i < compile_pass_count; i++) {
        int rc = run_pass(s, &compile_passes[i], err);
        if (rc != 0) {
            return rc;
        }
    }
    s->at = "write";
    return write_package(s, err);
}

int compile_run(const struct compile_job *job, struct compile_result *ret, struct err *err) {
    struct err local = {0};
    err = err != NULL ? err : &local;
    int rc = compile_options_check(&job->options, err);
    if (rc != 0) {
        return rc;
    }
    struct compile_state *s = calloc(1, sizeof *s);
    struct compile_result *result = calloc(1, sizeof *result);
    if (s != NULL) {
        s->schedules = schedules_open(job->schedules_path, job->compiler_id);
    }
    if (s == NULL || result == NULL || s->schedules == NULL) {
        schedules_close(s != NULL ? s->schedules : NULL);
        free(s);
        free(result);
        return err_set(err, ERR_NOMEM, "no memory for a compile");
    }
    s->memory.limit_bytes = job->memory_bytes != 0 ? job->memory_bytes : COMPILE_DEFAULT_MEMORY;
    arena_init_shared(&s->arena, &s->memory);
    arena_init_shared(&s->exchanges, &s->memory);
    arena_init_shared(&s->scratch, &s->memory);
    s->job = job;
    s->result = result;
    s->made = MADE_GRAPH;
    s->at = "start";
    result->tiles = job->options.tiles;
    rc = run_passes(s, err);
    arena_done(&s->arena);
    arena_done(&s->exchanges);
    arena_done(&s->scratch);
    if (rc == 0 && job->staged_schedules_path != NULL) {
        schedules_stage(s->schedules, job->staged_schedules_path);
    }
    schedules_close(s->schedules);
    if (rc == 0) {
        *ret = *result;
    }
    free(result);
    free(s);
    return rc;
}
