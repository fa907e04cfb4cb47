/* A device's outputs against the reference. Files are mapped whole and read only; their sizes are
 * checked first, so nothing reads past an end. */
#include "compile/check.h"

#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "proto/proto.h"
#include "reference/reference.h"

/* A range of a mapped file. */
struct mapping {
    uint8_t *base; /* owned mapping, NULL when none */
    uint64_t size;
    const uint8_t *bytes; /* of the first run; NULL: the model generates it */
};

struct check {
    struct worker_job *job;
    const struct graph *g;
    uint64_t runs;
    struct mapping *inputs; /* by ordinal, owned */
    struct mapping *parameters;
    struct mapping *outputs;
    const uint8_t **input_bytes; /* of the present run */
    const uint8_t **parameter_bytes;
    struct reference_error *worst; /* by output */
    double *argmax_sum;
};

static void unmap_all(struct mapping *list, uint32_t count) {
    for (uint32_t i = 0; list != NULL && i < count; i++) {
        if (list[i].base != NULL) {
            munmap(list[i].base, list[i].size);
        }
    }
    free(list);
}

static void check_done(struct check *c) {
    unmap_all(c->inputs, c->g->input_count);
    unmap_all(c->parameters, c->g->parameter_count);
    unmap_all(c->outputs, c->g->output_count);
    free(c->input_bytes);
    free(c->parameter_bytes);
    free(c->worst);
    free(c->argmax_sum);
}

static int check_init(struct check *c, struct err *err) {
    const struct graph *g = c->g;
    c->inputs = calloc(g->input_count + 1, sizeof *c->inputs);
    c->parameters = calloc(g->parameter_count + 1, sizeof *c->parameters);
    c->outputs = calloc(g->output_count + 1, sizeof *c->outputs);
    c->input_bytes = calloc(g->input_count + 1, sizeof *c->input_bytes);
    c->parameter_bytes = calloc(g->parameter_count + 1, sizeof *c->parameter_bytes);
    c->worst = calloc(g->output_count + 1, sizeof *c->worst);
    c->argmax_sum = calloc(g->output_count + 1, sizeof *c->argmax_sum);
    if (c->inputs == NULL || c->parameters == NULL || c->outputs == NULL ||
        c->input_bytes == NULL || c->parameter_bytes == NULL || c->worst == NULL ||
        c->argmax_sum == NULL) {
        return err_set(err, ERR_COMPILE_OOM, "no memory for a check");
    }
    return 0;
}

static int map_range(
    int fd, uint64_t offset, uint64_t bytes, const char *name, struct mapping *ret,
    struct err *err) {
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        return err_set(err, ERR_IO, "data of '%s' is no regular file", name);
    }
    uint64_t size = (uint64_t)st.st_size;
    if (offset > size || size - offset < bytes || size == 0) {
        return err_set(
            err, ERR_INPUT, "'%s': bytes %llu to %llu of a file of %llu", name,
            (unsigned long long)offset, (unsigned long long)(offset + bytes),
            (unsigned long long)size);
    }
    void *base = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (base == MAP_FAILED) {
        return err_sys(err, ERR_COMPILE_OOM, errno, "cannot map the data of '%s'", name);
    }
    *ret = (struct mapping){base, size, (const uint8_t *)base + offset};
    return 0;
}

static uint64_t value_bytes(const struct graph_value *v) {
    uint64_t bytes = 0;
    return shape_elements(&v->shape, v->dtype, NULL, &bytes, NULL) == 0 ? bytes : 0;
}

/* One entry of check.inputs or check.outputs. */
static int map_entry(
    struct check *c, const json_t *entry, const struct graph_value *v, struct mapping *ret,
    struct err *err) {
    const char *blob = json_string_value(json_object_get(entry, "blob"));
    const char *file = json_string_value(json_object_get(entry, "file"));
    const json_t *offset = json_object_get(entry, "offset");
    const json_t *bytes = json_object_get(entry, "bytes");
    if (!json_is_integer(offset) || json_integer_value(offset) < 0 || !json_is_integer(bytes) ||
        (blob == NULL) == (file == NULL) || (file != NULL && !worker_is_plain_name(file))) {
        return err_set(
            err, ERR_BAD_JOB, "'%s': one of blob and file, offset and bytes are required", v->name);
    }
    if ((uint64_t)json_integer_value(bytes) != c->runs * value_bytes(v)) {
        return err_set(
            err, ERR_INPUT, "'%s': %lld bytes, %llu runs of %llu are needed", v->name,
            (long long)json_integer_value(bytes), (unsigned long long)c->runs,
            (unsigned long long)value_bytes(v));
    }
    CLEANUP(cleanup_close) int fd = -1;
    if (blob != NULL) {
        fd = worker_open_blob(blob, err);
        if (fd < 0) {
            return fd;
        }
    } else {
        fd = open(file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0) {
            return err_sys(err, errno == ENOENT ? ERR_MISSING : ERR_IO, errno, "'%s'", file);
        }
    }
    return map_range(
        fd, (uint64_t)json_integer_value(offset), (uint64_t)json_integer_value(bytes), v->name, ret,
        err);
}

static int map_entries(
    struct check *c, const char *member, const struct value_id *ids, uint32_t count,
    bool is_required, struct mapping *list, struct err *err) {
    const json_t *entries = json_object_get(c->job->check, member);
    for (uint32_t i = 0; i < count; i++) {
        const struct graph_value *v = &c->g->values[ids[i].n];
        const json_t *entry = json_object_get(entries, v->name);
        int r = 0;
        if (entry != NULL) {
            r = map_entry(c, entry, v, &list[i], err);
        } else if (is_required || v->source.kind == SOURCE_NONE) {
            r = err_set(err, ERR_MISSING, "no data for '%s'", v->name);
        }
        if (r < 0) {
            char where[192];
            snprintf(where, sizeof where, "/check/%s", member);
            proto_pointer(where, sizeof where, v->name);
            err_where(err, "%s", where);
            return r;
        }
    }
    return 0;
}

static int map_parameters(struct check *c, struct err *err) {
    for (uint32_t i = 0; i < c->g->parameter_count; i++) {
        const struct graph_value *v = &c->g->values[c->g->parameters[i].n];
        if (v->source.kind != SOURCE_FILE) {
            continue;
        }
        CLEANUP(cleanup_close) int fd = worker_open_label(c->job, v->source.file, err);
        if (fd < 0) {
            return fd;
        }
        int r =
            map_range(fd, v->source.file_offset, value_bytes(v), v->name, &c->parameters[i], err);
        if (r < 0) {
            return r;
        }
        c->parameter_bytes[i] = c->parameters[i].bytes;
    }
    return 0;
}

/* Keeps the run that is worst: a failed one before a passed one, then the larger error. */
static void keep_worst(
    struct check *c, uint32_t output, uint64_t run, uint64_t elements, struct reference_error e) {
    struct reference_error *worst = &c->worst[output];
    c->argmax_sum[output] += e.argmax_equal;
    e.worst_index += run * elements;
    bool is_worse = e.pass != worst->pass ? !e.pass : e.max_abs_error > worst->max_abs_error;
    if (run == 0 || is_worse) {
        *worst = e;
    }
}

static int check_one_run(struct check *c, uint64_t run, struct err *err) {
    const struct graph *g = c->g;
    bool is_f16 = c->job->options.accumulate == ACCUMULATE_F16;
    for (uint32_t i = 0; i < g->input_count; i++) {
        const uint8_t *first = c->inputs[i].bytes;
        c->input_bytes[i] =
            first != NULL ? first + run * value_bytes(&g->values[g->inputs[i].n]) : NULL;
    }
    struct reference_data data = {c->input_bytes, c->parameter_bytes, c->job->seed};
    struct tensor_set expected = {0};
    int r = reference_eval(g, &data, &expected, err);
    for (uint32_t i = 0; i < g->output_count && r == 0; i++) {
        const struct graph_value *v = &g->values[g->outputs[i].n];
        struct reference_error e;
        reference_compare(
            g, i, is_f16, &expected.items[i], c->outputs[i].bytes + run * value_bytes(v), &e);
        keep_worst(c, i, run, value_bytes(v) / dtype_bytes(v->dtype), e);
    }
    tensor_set_done(&expected);
    return r;
}

/* JSON has no infinity: an error that is none is the largest number, a value that is none null. */
static json_t *error_json(double error) {
    return json_real(isfinite(error) ? error : DBL_MAX);
}

static json_t *value_json(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

static int make_result(const struct check *c, json_t **ret, struct err *err) {
    bool pass = true;
    double largest = 0;
    json_t *outputs = json_array();
    int failed = outputs == NULL;
    for (uint32_t i = 0; i < c->g->output_count && !failed; i++) {
        const struct reference_error *e = &c->worst[i];
        pass = pass && e->pass;
        largest = fmax(largest, e->max_abs_error);
        json_t *row = json_pack(
            "{s:s, s:b, s:o, s:f, s:I, s:o, s:o, s:f}", "name",
            c->g->values[c->g->outputs[i].n].name, "pass", e->pass, "max_abs_error",
            error_json(e->max_abs_error), "tolerance", e->tolerance, "worst_index",
            (json_int_t)e->worst_index, "got", value_json(e->got), "expected",
            value_json(e->expected), "argmax_equal", c->argmax_sum[i] / (double)c->runs);
        failed = json_array_append_new(outputs, row) != 0;
    }
    *ret = json_pack(
        "{s:s, s:s, s:b, s:o, s:o}", "event", "result", "kind", "reference", "pass", pass,
        "max_abs_error", error_json(largest), "outputs", outputs);
    if (failed || *ret == NULL) {
        json_decref(*ret);
        *ret = NULL;
        return err_set(err, ERR_COMPILE_OOM, "no memory for a result");
    }
    return 0;
}

int check_run(
    struct worker_job *job, const struct worker_model *model, json_t **ret, struct err *err) {
    const json_t *runs = json_object_get(job->check, "runs");
    struct check c = {.job = job, .g = model->graph, .runs = 1};
    if (runs != NULL) {
        if (!json_is_integer(runs) || json_integer_value(runs) < 1 ||
            json_integer_value(runs) > WORKER_MAX_RUNS) {
            return err_at(
                err, ERR_BAD_JOB, "/check/runs", "an integer of 1 to %d is required",
                WORKER_MAX_RUNS);
        }
        c.runs = (uint64_t)json_integer_value(runs);
    }
    int r = check_init(&c, err);
    if (r == 0) {
        r = map_entries(&c, "inputs", c.g->inputs, c.g->input_count, false, c.inputs, err);
    }
    if (r == 0) {
        r = map_entries(&c, "outputs", c.g->outputs, c.g->output_count, true, c.outputs, err);
    }
    if (r == 0) {
        r = map_parameters(&c, err);
    }
    for (uint64_t run = 0; run < c.runs && r == 0; run++) {
        r = check_one_run(&c, run, err);
    }
    if (r == 0) {
        r = make_result(&c, ret, err);
    }
    check_done(&c);
    return r;
}
