/* The device's states (drawn in device.h): empty and resident. Every failure of a load or a run
 * passes through device_empty(), so what is resident is always known to work. */
#include "device/device_internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

/* What the tiles hold is still to be looked at, so its symbols stay. */
static void device_empty(struct device *d) {
    session_end(d);
    d->is_resident = false;
}

/* Before a load, a reset or the end. */
static void device_forget(struct device *d) {
    device_empty(d);
    program_free(d->program);
    d->program = NULL;
    free(d->postmortem);
    d->postmortem = NULL;
}

static void cleanup_device(struct device **d) {
    device_close(*d);
}

static int open_loader(const char *path, struct loader_image **ret, struct err *err) {
    if (path == NULL) {
        return 0;
    }
    CLEANUP(cleanup_free) struct loader_image *loader = malloc(sizeof *loader);
    int r = loader == NULL ? err_set(err, ERR_NOMEM, NULL) : loader_read(path, loader, err);
    if (r == 0) {
        *ret = TAKE(loader);
    }
    return r;
}

int device_check_options(const struct device_options *options, struct err *err) {
    CLEANUP(cleanup_free) struct loader_image *loader = NULL;
    int r = open_loader(options->loader_path, &loader, err);
    return r < 0 ? r : lock_check(options->lock_path, err);
}

int device_open(const struct device_options *options, struct device **ret, struct err *err) {
    CLEANUP(cleanup_device) struct device *d = calloc(1, sizeof *d);
    if (d == NULL) {
        return err_set(err, ERR_NOMEM, NULL);
    }
    d->lock_fd = -1;
    int r = open_loader(options->loader_path, &d->loader, err);
    r = r < 0 ? r : lock_take(options->lock_path, options->no_wait, &d->lock_fd, err);
    if (r < 0) {
        return r;
    }
    if (strncmp(options->spec, "/dev/", 5) == 0) {
        r = pcie_open(options->spec, &d->ops, err);
    } else if (options->open_ops != NULL) {
        r = options->open_ops(options->spec, options->open_arg, &d->ops, err);
    } else {
        r = err_set(
            err, ERR_DEVICE_ABSENT, "unknown device '%s': expected /dev/ipuN", options->spec);
    }
    r = r < 0 ? r : d->ops.request(d->ops.self, IPU_USER_ATTACH, err);
    r = r < 0 ? r : d->ops.request(d->ops.self, IPU_SET_IPU_ID, err);
    if (r < 0) {
        return err_wrap(err, "opening device %s", options->spec);
    }
    *ret = TAKE(d);
    return 0;
}

void device_close(struct device *d) {
    if (d == NULL) {
        return;
    }
    if (d->ops.close != NULL) {
        device_forget(d);
        d->ops.close(d->ops.self);
    }
    lock_drop(&d->lock_fd);
    free(d->loader);
    free(d);
}

const char *device_name(const struct device *d) {
    return d->ops.name;
}

static int begin(struct device *d) {
    atomic_store(&d->stop, false);
    atomic_store(&d->is_busy, true);
    return 0;
}

void device_stop(struct device *d) {
    if (atomic_load(&d->is_busy)) {
        atomic_store(&d->stop, true);
    }
}

int device_reset(struct device *d, struct err *err) {
    device_forget(d);
    return device_initialize(d, err);
}

static void
emit(device_event_fn *event, void *arg, const char *id, const char *message, const char *fields) {
    if (event != NULL) {
        event(id, message, fields, arg);
    }
}

/* Failures in which the tiles have a part; the others say all there is to say. */
static bool is_of_tiles(int code) {
    return code == ERR_DEADLOCK || code == ERR_TILE_FAULT || code == ERR_RUN_TIMEOUT ||
           code == ERR_TIMEOUT || code == ERR_BOOT || code == ERR_DEVICE_HANG ||
           code == ERR_DEVICE_ERROR;
}

/* The post-mortem of a load or run that failed, and its sentence behind the error's. An exception
 * explains a time limit; nothing else changes what the error says. */
static void explain(struct device *d, struct err *err) {
    struct survey *s = is_of_tiles(err->code) ? malloc(sizeof *s) : NULL;
    if (s == NULL) {
        return;
    }
    char summary[320];
    survey_take(d, true, s);
    d->postmortem = survey_print(s, err->text);
    survey_summary(s, summary, sizeof summary);
    size_t used = strlen(err->text);
    if (summary[0] != '\0' && used + 2 < sizeof err->text) {
        snprintf(err->text + used, sizeof err->text - used, "; %s", summary);
    }
    if (s->exception_count > 0 &&
        (err->code == ERR_RUN_TIMEOUT || err->code == ERR_DEADLOCK || err->code == ERR_TIMEOUT)) {
        err->code = ERR_TILE_FAULT;
    }
    free(s);
}

const char *device_postmortem(const struct device *d) {
    return d->postmortem;
}

static int check_parameters(
    const struct program *g, const struct device_parameter *params, size_t n,
    const uint8_t **ret_tensors, struct err *err) {
    size_t seen = 0;
    for (uint32_t i = 0; i < g->binding_count; i++) {
        if (g->bindings[i].role != PACKAGE_PARAMETER) {
            continue;
        }
        uint32_t ordinal = g->bindings[i].ordinal;
        if (ordinal >= n || params[ordinal].size != g->binding_bytes[i]) {
            return err_set(
                err, ERR_INPUT, "parameter %u: %llu bytes given, the package wants %llu", ordinal,
                ordinal < n ? (unsigned long long)params[ordinal].size : 0ull,
                (unsigned long long)g->binding_bytes[i]);
        }
        ret_tensors[i] = params[ordinal].bytes;
        seen++;
    }
    return seen == n
               ? 0
               : err_set(err, ERR_INPUT, "%zu parameters given, the package wants %zu", n, seen);
}

static uint32_t count_phases(const struct program *g, enum package_call call) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < g->phase_count; i++) {
        count += g->phases[i].call == call;
    }
    return count;
}

static int bring_up(
    struct device *d, const struct package *p, const uint8_t *const *tensors,
    device_event_fn *event, void *arg, struct err *err) {
    char fields[96];
    emit(event, arg, "device.initialize", "initializing IPU device", "{}");
    int r = device_initialize(d, err);
    if (r < 0) {
        return r;
    }
    emit(event, arg, "device.initialized", "IPU device initialized", "{}");
    CLEANUP(cleanup_free) struct config_write *writes = malloc(CONFIG_MAX * sizeof *writes);
    if (writes == NULL) {
        return err_set(err, ERR_NOMEM, NULL);
    }
    uint32_t count = config_generate(writes);
    snprintf(fields, sizeof fields, "{\"register_writes\":%u}", count);
    emit(event, arg, "device.configuration", "replaying device configuration", fields);
    r = config_replay(d, writes, count, err);
    r = r < 0 ? r : boot_load(d, p, event, arg, err);
    r = r < 0 ? r : session_start(d, event, arg, err);
    if (r < 0) {
        return r;
    }
    snprintf(
        fields, sizeof fields, "{\"call\":\"initialize\",\"command\":0,\"phases\":%u}",
        2 * count_phases(d->program, PACKAGE_INITIALIZE));
    emit(event, arg, "device.call", "invoking streaming host exchange call", fields);
    return session_call(d, PACKAGE_INITIALIZE, tensors, NULL, 0, err);
}

int device_load(
    struct device *d, const struct package *p, const struct device_parameter *params, size_t n,
    const struct digest *residency, device_event_fn *event, void *arg, bool *ret_loaded,
    struct err *err) {
    if (d->is_resident && digest_equal(&d->residency, residency)) {
        *ret_loaded = false;
        return 0;
    }
    begin(d);
    device_forget(d);
    struct err local = {0};
    int r = program_copy(p, &d->program, &local);
    CLEANUP(cleanup_free) const uint8_t **tensors = NULL;
    if (r == 0) {
        tensors = calloc(p->binding_count + 1, sizeof *tensors);
        r = tensors == NULL ? err_set(&local, ERR_NOMEM, NULL)
                            : check_parameters(d->program, params, n, tensors, &local);
    }
    if (r == 0) {
        r = bring_up(d, p, tensors, event, arg, &local);
        if (r < 0) {
            explain(d, &local);
        }
    }
    atomic_store(&d->is_busy, false);
    if (r < 0) {
        device_empty(d);
        if (err != NULL) {
            *err = local;
        }
        return -local.code;
    }
    d->is_resident = true;
    d->runs_completed = 0;
    d->residency = *residency;
    *ret_loaded = true;
    return 0;
}

/* ---- runs -------------------------------------------------------------------------------- */

struct run_buffers {
    const uint8_t **inputs; /* by binding; advanced run by run */
    uint8_t **outputs;      /* by binding, owned bytes */
    const uint8_t **by_ordinal;
    uint64_t *bytes_by_ordinal;
    uint32_t output_count;
    uint32_t profile; /* binding index, UINT32_MAX when the program does not sample */
    uint32_t marks;   /* likewise, of the samples in between */
    uint32_t count;
};

static void run_buffers_done(struct run_buffers *b) {
    for (uint32_t i = 0; b->outputs != NULL && i < b->count; i++) {
        free(b->outputs[i]);
    }
    free(b->inputs);
    free(b->outputs);
    free(b->by_ordinal);
    free(b->bytes_by_ordinal);
}

static int run_buffers_init(
    struct run_buffers *b, const struct program *g, const uint8_t *const *inputs, struct err *err) {
    size_t n = g->binding_count + 1;
    b->count = g->binding_count;
    b->profile = UINT32_MAX;
    b->marks = UINT32_MAX;
    b->inputs = calloc(n, sizeof *b->inputs);
    b->outputs = calloc(n, sizeof *b->outputs);
    b->by_ordinal = calloc(n, sizeof *b->by_ordinal);
    b->bytes_by_ordinal = calloc(n, sizeof *b->bytes_by_ordinal);
    if (b->inputs == NULL || b->outputs == NULL || b->by_ordinal == NULL ||
        b->bytes_by_ordinal == NULL) {
        return err_set(err, ERR_NOMEM, NULL);
    }
    for (uint32_t i = 0; i < g->binding_count; i++) {
        const struct package_binding *binding = &g->bindings[i];
        if (binding->role == PACKAGE_INPUT) {
            b->inputs[i] = inputs[binding->ordinal];
        } else if (binding->role == PACKAGE_OUTPUT || binding->role == PACKAGE_PROFILE) {
            b->outputs[i] = malloc((size_t)g->binding_bytes[i] + 1);
            if (b->outputs[i] == NULL) {
                return err_set(err, ERR_NOMEM, NULL);
            }
            if (binding->role == PACKAGE_PROFILE) {
                *(binding->ordinal == 0 ? &b->profile : &b->marks) = i;
            } else {
                b->by_ordinal[binding->ordinal] = b->outputs[i];
                b->bytes_by_ordinal[binding->ordinal] = g->binding_bytes[i];
                b->output_count++;
            }
        }
    }
    return 0;
}

/* D3: latest end sample minus latest first sample, counters modulo 2^32; *ret_runs_ok says that
 * every tile reports `expected` runs completed. */
static uint64_t profile_cycles(const uint8_t *bytes, uint64_t n, uint32_t expected, bool *ret_ok) {
    uint32_t base = 0, start = 0, end = 0;
    bool ok = true;
    for (uint64_t i = 0; i + 4 * PACKAGE_PROFILE_WORDS <= n; i += 4 * PACKAGE_PROFILE_WORDS) {
        uint32_t words[PACKAGE_PROFILE_WORDS];
        memcpy(words, bytes + i, sizeof words);
        if (i == 0) {
            base = words[0] - 0x40000000u; /* all samples of a run lie within 2^30 cycles */
        }
        uint32_t s = words[0] - base, e = words[1] - base;
        start = s > start ? s : start;
        end = e > end ? e : end;
        ok = ok && words[2] == expected;
    }
    *ret_ok = ok;
    return end >= start ? end - start : 0;
}

static int one_run(
    struct device *d, struct run_buffers *b, uint64_t run, uint64_t limit_ns,
    device_output_fn *output, void *arg, struct err *err) {
    const struct program *g = d->program;
    /* Stale data must not pass for a result. */
    memset(d->pages, 0xa5, d->pages_bytes);
    int r = session_call(d, PACKAGE_RUN, b->inputs, b->outputs, limit_ns, err);
    if (r < 0) {
        return r;
    }
    d->runs_completed++;
    struct device_output out = {
        .run = run,
        .outputs = b->by_ordinal,
        .output_bytes = b->bytes_by_ordinal,
        .output_count = b->output_count};
    if (b->profile != UINT32_MAX) {
        bool ok;
        if (b->marks != UINT32_MAX) {
            out.marks = (const uint32_t *)(const void *)b->outputs[b->marks];
            out.mark_count = (size_t)(g->binding_bytes[b->marks] / 4);
        }
        out.profile_words = (const uint32_t *)(const void *)b->outputs[b->profile];
        out.profile_count = (size_t)(g->binding_bytes[b->profile] / 4);
        out.cycles = profile_cycles(
            b->outputs[b->profile], g->binding_bytes[b->profile], d->runs_completed, &ok);
        if (!ok) {
            return err_set(
                err, ERR_DEVICE_ERROR,
                "run %llu: a tile reports another number of completed runs than %u",
                (unsigned long long)run, d->runs_completed);
        }
    }
    for (uint32_t i = 0; i < g->binding_count; i++) {
        if (g->bindings[i].role == PACKAGE_INPUT) {
            b->inputs[i] += g->binding_bytes[i];
        }
    }
    return output != NULL && output(&out, arg) != 0 ? err_set(err, ERR_CANCELLED, "run cancelled")
                                                    : 0;
}

/* Every participant has written the completion word of each run, or one_run() had failed; here the
 * contexts of all tiles are asked whether one has stopped or raised an exception. */
static int hardware_test(struct device *d, struct device_run_report *ret, struct err *err) {
    ret->completed_tiles = d->program->participant_count;
    ret->quiet_tiles = 0;
    for (uint32_t tile = 0; tile < TARGET_TILES; tile++) {
        uint32_t status = 0;
        int r = reg_read(d, tdi(tile, TDI_CTXT_STS), &status, err);
        if (r < 0) {
            return r;
        }
        bool is_quiet = true;
        for (int context = 0; context < TDI_CONTEXTS; context++) {
            is_quiet = is_quiet && tdi_state(status, context) < 2;
        }
        ret->quiet_tiles += is_quiet;
    }
    if (ret->quiet_tiles < TARGET_TILES) {
        return err_set(
            err, ERR_TILE_FAULT, "after the last run %u of %d tiles are stopped or excepted",
            TARGET_TILES - ret->quiet_tiles, TARGET_TILES);
    }
    return 0;
}

int device_run(
    struct device *d, const uint8_t *const *inputs, uint64_t runs, device_output_fn *output,
    void *arg, uint64_t timeout_ns, struct device_run_report *ret, struct err *err) {
    if (!d->is_resident) {
        return err_set(err, ERR_CONFLICT, "no program is resident");
    }
    memset(ret, 0, sizeof *ret);
    CLEANUP(run_buffers_done) struct run_buffers b = {0};
    int r = run_buffers_init(&b, d->program, inputs, err);
    if (r < 0) {
        return r;
    }
    begin(d);
    free(d->postmortem);
    d->postmortem = NULL;
    struct err local = {0};
    uint64_t start = d->ops.now_ns(d->ops.self);
    while (r == 0 && ret->runs < runs) {
        r = one_run(d, &b, ret->runs, timeout_ns, output, arg, &local);
        ret->runs += r == 0;
    }
    ret->elapsed_ns = d->ops.now_ns(d->ops.self) - start;
    if (r == 0 && runs > 0) {
        r = hardware_test(d, ret, &local);
    }
    bool stopped_between = r == -ERR_CANCELLED && !atomic_load(&d->stop);
    atomic_store(&d->is_busy, false);
    if (r < 0) {
        if (!stopped_between) {
            explain(d, &local);
            device_empty(d);
        }
        if (err != NULL) {
            *err = local;
        }
        return -local.code;
    }
    return 0;
}

/* ---- looking at tiles ----------------------------------------------------------------------- */

int device_tiles(struct device *d, char **ret, struct err *err) {
    struct survey *s = malloc(sizeof *s);
    char *text = NULL;
    struct err found = {0};
    if (s != NULL) {
        survey_take(d, false, s);
        found = s->incomplete;
        text = survey_print(s, NULL);
        free(s);
    }
    if (text == NULL) {
        return err_set(err, ERR_NOMEM, "states of %d tiles", TARGET_TILES);
    }
    if (found.code != 0) {
        free(text);
        return err_set(err, (enum err_code)found.code, "%s", found.text);
    }
    *ret = text;
    return 0;
}

static int look_begin(struct device *d, uint32_t tile, struct err *err) {
    if (tile >= TARGET_TILES) {
        return err_set(err, ERR_INVALID, "tile %u: 0 to %d", tile, TARGET_TILES - 1);
    }
    d->tdi_deadline_ns = d->ops.now_ns(d->ops.self) + SURVEY_LIMIT_NS;
    return 0;
}

int device_tile_read(
    struct device *d, uint32_t tile, uint32_t addr, uint32_t *ret, uint32_t count,
    struct err *err) {
    uint32_t status = 0;
    if (count > DEVICE_LOOK_WORDS) {
        return err_set(err, ERR_INVALID, "%u words, at most %u", count, DEVICE_LOOK_WORDS);
    }
    int r = look_begin(d, tile, err);
    if (r < 0) {
        return r;
    }
    r = reg_read(d, tdi(tile, TDI_CTXT_STS), &status, err);
    if (r == 0) {
        int reader = survey_reader(status);
        /* All workers run: stop one for as long as it takes. */
        r = tdi_read_words(d, tile, reader >= 0 ? reader : 1, addr, ret, count, err);
    }
    d->tdi_deadline_ns = 0;
    return r;
}

int device_tile_registers(
    struct device *d, uint32_t tile, int context, struct device_registers *ret, struct err *err) {
    if (context < 0 || context >= TDI_CONTEXTS) {
        return err_set(err, ERR_INVALID, "context %d: 0 to %d", context, TDI_CONTEXTS - 1);
    }
    int r = look_begin(d, tile, err);
    r = r < 0 ? r : tdi_read_registers(d, tile, context, ret, err);
    d->tdi_deadline_ns = 0;
    return r;
}
