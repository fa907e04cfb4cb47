/* See pipeline.h. One function a step; everything is released on every path. */
#include "pipeline.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "compile/key.h"
#include "device/device.h"

#define GRAPH_BYTES (512u << 20)

struct pipeline {
    const struct pipeline_options *options;
    struct pipeline_result *result;
    struct arena arena;
    struct graph *graph; /* canonical */
    char path[256];      /* package file, empty before it is made */
    uint8_t **inputs;
    uint8_t **parameters;
    struct device_parameter *device_parameters;
    struct tensor_set expected;
    struct package *package;
    struct device *device;
    struct ipu_device_ops ops;
    struct digest_ctx *outputs; /* owned */
};

static double clock_s(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double seconds(void) {
    return clock_s(CLOCK_MONOTONIC);
}

static void pipeline_done(struct pipeline *p) {
    digest_free(p->outputs);
    device_close(p->device);
    package_free(p->package);
    tensor_set_done(&p->expected);
    for (uint32_t i = 0; p->graph != NULL && p->inputs != NULL && i < p->graph->input_count; i++) {
        free(p->inputs[i]);
    }
    for (uint32_t i = 0; p->graph != NULL && p->parameters != NULL && i < p->graph->parameter_count;
         i++) {
        free(p->parameters[i]);
    }
    free(p->inputs);
    free(p->parameters);
    free(p->device_parameters);
    if (p->path[0] != '\0') {
        unlink(p->path);
    }
    arena_done(&p->arena);
}

static void json_cleanup(json_t **j) {
    json_decref(*j);
}

static int no_files(void *arg, const char *label, struct err *err) {
    (void)arg;
    return err_set(
        err, ERR_MISSING, "file '%s': models of this harness bring their own data", label);
}

static int load_graph(struct pipeline *p, const char *model, struct err *err) {
    json_error_t at;
    CLEANUP(json_cleanup) json_t *document = json_loads(model, JSON_REJECT_DUPLICATES, &at);
    if (document == NULL) {
        return err_set(err, ERR_BAD_JSON, "%s", at.text);
    }
    if (ARENA_RECOVER(&p->arena)) {
        return err_set(err, ERR_NOMEM, "graph");
    }
    struct graph *g;
    const char *const *warnings;
    uint32_t warning_count;
    int r = graph_load(document, no_files, NULL, &p->arena, &g, err);
    r = r < 0 ? r : graph_canonical(g, &p->arena, &p->graph, &warnings, &warning_count, err);
    p->arena.has_recover = false;
    return r;
}

static int materialise(
    const struct graph *g, struct value_id id, uint64_t seed, uint8_t **ret, uint64_t *ret_bytes,
    struct err *err) {
    const struct graph_value *v = &g->values[id.n];
    uint64_t elements, bytes;
    int r = shape_elements(&v->shape, v->dtype, &elements, &bytes, err);
    if (r < 0) {
        return r;
    }
    uint8_t *data = malloc((size_t)bytes + 1);
    if (data == NULL) {
        return err_set(err, ERR_NOMEM, NULL);
    }
    for (uint64_t i = 0; i < elements; i++) {
        if (v->source.kind == SOURCE_INLINE) {
            tensor_put(v->dtype, data, i, tensor_get(v->dtype, v->source.bytes, i));
        } else if (v->source.kind == SOURCE_GENERATOR) {
            tensor_put(v->dtype, data, i, graph_generate(&v->source, seed, i));
        } else {
            free(data);
            return err_set(err, ERR_MISSING, "'%s' has no data of its own", v->name);
        }
    }
    *ret = data;
    *ret_bytes = bytes;
    return 0;
}

static int make_data(struct pipeline *p, struct err *err) {
    const struct graph *g = p->graph;
    uint64_t bytes;
    int r = 0;
    p->inputs = calloc(g->input_count + 1, sizeof *p->inputs);
    p->parameters = calloc(g->parameter_count + 1, sizeof *p->parameters);
    p->device_parameters = calloc(g->parameter_count + 1, sizeof *p->device_parameters);
    if (p->inputs == NULL || p->parameters == NULL || p->device_parameters == NULL) {
        return err_set(err, ERR_NOMEM, NULL);
    }
    for (uint32_t i = 0; r == 0 && i < g->input_count; i++) {
        uint8_t *one = NULL;
        r = materialise(g, g->inputs[i], p->options->seed, &one, &bytes, err);
        if (r == 0) {
            p->inputs[i] = malloc((size_t)(bytes * p->options->runs) + 1);
            for (uint64_t k = 0; p->inputs[i] != NULL && k < p->options->runs; k++) {
                memcpy(p->inputs[i] + k * bytes, one, (size_t)bytes);
            }
            free(one);
            r = p->inputs[i] == NULL ? err_set(err, ERR_NOMEM, NULL) : 0;
        }
    }
    for (uint32_t i = 0; r == 0 && i < g->parameter_count; i++) {
        r = materialise(g, g->parameters[i], p->options->seed, &p->parameters[i], &bytes, err);
        p->device_parameters[i] = (struct device_parameter){p->parameters[i], bytes};
    }
    return r;
}

static int compile_graph(struct pipeline *p, struct err *err) {
    struct digest key;
    char key_hex[DIGEST_HEX + 1];
    struct compile_job job = {
        .graph = p->graph,
        .options =
            {.tiles = p->options->tiles,
             .profile = p->options->profile,
             .repeat = p->options->repeat,
             .accumulate = p->options->accumulate_f16 ? ACCUMULATE_F16 : ACCUMULATE_F32},
        .compiler_id = key_compiler_id()};
    int r = key_make(p->graph, "{}", &key, err);
    if (r < 0) {
        return r;
    }
    digest_hex(&key, key_hex);
    job.key = key_hex;
    snprintf(p->path, sizeof p->path, "%s/p%ld.ipuexe", p->options->folder, (long)getpid());
    job.package_path = p->path;
    job.print = p->options->print;
    job.print_to = stdout;
    double start = seconds(), cpu = clock_s(CLOCK_PROCESS_CPUTIME_ID);
    r = compile_run(&job, &p->result->compile, err);
    p->result->compile_s = seconds() - start;
    p->result->compile_cpu_s = clock_s(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    return r < 0 ? r : package_open(p->path, &p->result->compile.digest, &p->package, NULL, err);
}

static int open_sim(const char *spec, void *arg, struct ipu_device_ops *ret, struct err *err) {
    struct pipeline *p = arg;
    (void)spec;
    int r = sim_device_open(&p->options->sim, ret, err);
    if (r == 0) {
        p->ops = *ret;
    }
    return r;
}

static int load_device(struct pipeline *p, struct err *err) {
    char lock[256];
    snprintf(lock, sizeof lock, "%s/lock%ld", p->options->folder, (long)getpid());
    struct device_options options = {
        .spec = "sim", .lock_path = lock, .no_wait = true, .open_ops = open_sim, .open_arg = p};
    int r = device_open(&options, &p->device, err);
    unlink(lock);
    if (r < 0) {
        return r;
    }
    double start = seconds();
    bool loaded;
    r = device_load(
        p->device, p->package, p->device_parameters, p->graph->parameter_count,
        &p->result->compile.digest, NULL, NULL, &loaded, err);
    p->result->load_s = seconds() - start;
    return r;
}

/* Of one output and what is expected; 1 when both are zero. */
static double
cosine(const struct graph *g, uint32_t ordinal, const struct tensor *want, const uint8_t *got) {
    enum dtype t = g->values[g->outputs[ordinal].n].dtype;
    uint64_t n = want->size_bytes / sizeof(double);
    double ab = 0, aa = 0, bb = 0;
    for (uint64_t i = 0; i < n; i++) {
        double a = tensor_get(DTYPE_DOUBLE, want->bytes, i), b = tensor_get(t, got, i);
        ab += a * b;
        aa += a * a;
        bb += b * b;
    }
    return aa == 0 && bb == 0 ? 1 : ab / sqrt(aa * bb);
}

/* How much of its tolerance an output uses; NaN and infinite errors use infinitely much. */
static double use(const struct reference_error *e) {
    return isfinite(e->max_abs_error) && e->tolerance > 0 ? e->max_abs_error / e->tolerance
           : e->pass                                      ? 0
                                                          : INFINITY;
}

static int compare_run(const struct device_output *output, void *arg) {
    struct pipeline *p = arg;
    p->result->cycles = output->cycles;
    if (p->options->keep_profile && output->run == 0 && output->profile_words != NULL) {
        profile_collect(
            p->package, &p->result->compile.digest, 0, output->profile_words, output->profile_count,
            output->marks, output->mark_count, &p->result->profile, NULL);
    }
    for (uint32_t i = 0; i < output->output_count; i++) {
        struct reference_error e;
        digest_update(p->outputs, output->outputs[i], (size_t)output->output_bytes[i]);
        reference_compare(
            p->graph, i, p->options->accumulate_f16, &p->expected.items[i], output->outputs[i], &e);
        p->result->pass = p->result->pass && e.pass;
        double c = cosine(p->graph, i, &p->expected.items[i], output->outputs[i]);
        p->result->cosine = c < p->result->cosine ? c : p->result->cosine;
        if ((output->run == 0 && i == 0) || use(&e) > use(&p->result->worst)) {
            p->result->worst = e;
            p->result->worst_output = i;
        }
    }
    return 0;
}

static int count_cycles(const struct device_output *output, void *arg) {
    *(uint64_t *)arg = output->cycles;
    return 0;
}

/* One run each on devices with other sync_release. */
static int run_releases(struct pipeline *p, struct err *err) {
    struct pipeline_options other = *p->options;
    const struct pipeline_options *options = p->options;
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < options->release_count && i < PIPELINE_MAX_RELEASES; i++) {
        struct device_run_report report;
        double load_s = p->result->load_s;
        device_close(p->device);
        p->device = NULL;
        other.sim.sync_release = options->releases[i];
        p->options = &other;
        r = load_device(p, err);
        p->options = options;
        p->result->load_s = load_s;
        r = r < 0 ? r
                  : device_run(
                        p->device, (const uint8_t *const *)p->inputs, 1, count_cycles,
                        &p->result->release_cycles[i], 0, &report, err);
    }
    return r;
}

int pipeline_run(
    const char *model, const struct pipeline_options *options, struct pipeline_result *ret,
    struct err *err) {
    memset(ret, 0, sizeof *ret);
    ret->pass = true;
    ret->cosine = 1;
    CLEANUP(pipeline_done) struct pipeline p = {.options = options, .result = ret};
    arena_init(&p.arena, GRAPH_BYTES);
    int r = load_graph(&p, model, err);
    r = r < 0 ? r : make_data(&p, err);
    if (r < 0) {
        return r;
    }
    struct reference_data data = {
        (const uint8_t *const *)p.inputs, (const uint8_t *const *)p.parameters, options->seed};
    r = reference_eval(p.graph, &data, &p.expected, err);
    r = r < 0 ? err_wrap(err, "reference") : compile_graph(&p, err);
    if (r < 0) {
        return err_wrap(err, "compile");
    }
    r = load_device(&p, err);
    if (r < 0) {
        return err_wrap(err, "load");
    }
    struct device_run_report report;
    p.outputs = digest_new();
    if (p.outputs == NULL) {
        return err_set(err, ERR_NOMEM, NULL);
    }
    double start = seconds();
    r = device_run(
        p.device, (const uint8_t *const *)p.inputs, options->runs, compare_run, &p, 0, &report,
        err);
    ret->run_s = seconds() - start;
    digest_final(p.outputs, &ret->outputs);
    sim_device_counters(&p.ops, &ret->counters);
    r = r < 0 ? r : run_releases(&p, err);
    return r < 0 ? err_wrap(err, "run") : 0;
}
