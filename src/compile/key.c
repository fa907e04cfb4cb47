/* Key and the answer of a `key` job. */
#include "compile/key.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "compiler_id.h"

#define CHUNK_ELEMENTS 65536u
#define STAGED_ALIGN   64u /* starts of tensors in a staged file */

const char *key_compiler_id(void) {
    return COMPILER_ID;
}

int key_hash(
    const struct graph *canonical, const struct key_inputs *inputs, struct digest *ret,
    struct err *err) {
    struct digest graph;
    int r = graph_digest(canonical, &graph, err);
    if (r < 0) {
        return r;
    }
    struct digest_ctx *ctx = digest_new();
    if (ctx == NULL) {
        return err_set(err, ERR_NOMEM, "no memory to hash a key");
    }
    digest_text(ctx, inputs->version);
    digest_update(ctx, graph.bytes, sizeof graph.bytes);
    digest_text(ctx, inputs->options_json);
    digest_text(ctx, inputs->target);
    digest_text(ctx, inputs->compiler_id);
    digest_final(ctx, ret);
    digest_free(ctx);
    return 0;
}

int key_make(
    const struct graph *canonical, const char *options_json, struct digest *ret, struct err *err) {
    const struct key_inputs inputs = {KEY_VERSION, options_json, KEY_TARGET, COMPILER_ID};
    return key_hash(canonical, &inputs, ret, err);
}

/* A file of generated tensors, made when the first one comes. */
struct staged {
    const char *name;
    int fd; /* owned, -1 until then */
    uint64_t at;
    uint64_t seed;
    uint8_t *chunk; /* owned */
};

static int staged_write(struct staged *s, const uint8_t *bytes, size_t n, struct err *err) {
    while (n > 0) {
        ssize_t done = write(s->fd, bytes, n);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done < 0) {
            int code = errno == ENOSPC || errno == EDQUOT ? ERR_DISK_FULL : ERR_IO;
            return err_sys(err, (enum err_code)code, errno, "cannot write '%s'", s->name);
        }
        bytes += done;
        n -= (size_t)done;
        s->at += (uint64_t)done;
    }
    return 0;
}

static int staged_open(struct staged *s, struct err *err) {
    if (s->fd >= 0) {
        return 0;
    }
    s->fd = open(s->name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (s->fd < 0) {
        return err_sys(err, ERR_IO, errno, "cannot create '%s'", s->name);
    }
    s->chunk = malloc(CHUNK_ELEMENTS * sizeof(uint64_t));
    return s->chunk != NULL ? 0 : err_set(err, ERR_NOMEM, "no memory to write '%s'", s->name);
}

static int staged_add(
    struct staged *s, const struct graph_value *v, uint64_t *ret_offset, uint64_t *ret_bytes,
    struct err *err) {
    static const uint8_t padding[STAGED_ALIGN];
    uint64_t elements = 0;
    uint64_t bytes = 0;
    int r = shape_elements(&v->shape, v->dtype, &elements, &bytes, err);
    if (r == 0) {
        r = staged_open(s, err);
    }
    if (r == 0) {
        r = staged_write(s, padding, (size_t)(-s->at % STAGED_ALIGN), err);
    }
    uint64_t start = s->at;
    for (uint64_t first = 0; first < elements && r == 0; first += CHUNK_ELEMENTS) {
        uint64_t n = elements - first < CHUNK_ELEMENTS ? elements - first : CHUNK_ELEMENTS;
        r = graph_fill(v, s->seed, first, n, s->chunk, err);
        if (r == 0) {
            r = staged_write(s, s->chunk, n * dtype_bytes(v->dtype), err);
        }
    }
    if (r == 0) {
        *ret_offset = start;
        *ret_bytes = bytes;
    }
    return r;
}

static int staged_close(struct staged *s, int r, struct err *err) {
    if (s->fd >= 0 && close(s->fd) != 0 && r == 0) {
        r = err_sys(err, ERR_IO, errno, "cannot close '%s'", s->name);
    }
    if (s->fd >= 0 && r < 0) {
        unlink(s->name); /* never half a file */
    }
    free(s->chunk);
    return r;
}

json_t *
key_binding(const char *name, uint32_t ordinal, enum dtype dtype, const struct shape *shape) {
    json_t *dims = json_array();
    for (int i = 0; i < shape->rank; i++) {
        if (json_array_append_new(dims, json_integer(shape->dim[i])) != 0) {
            json_decref(dims);
            return NULL;
        }
    }
    return json_pack(
        "{s:s, s:I, s:s, s:o}", "name", name, "ordinal", (json_int_t)ordinal, "dtype",
        dtype_name(dtype), "shape", dims);
}

static json_t *staged_source(const char *name, uint64_t offset, uint64_t bytes) {
    return json_pack(
        "{s:s, s:I, s:I}", "staged", name, "offset", (json_int_t)offset, "bytes",
        (json_int_t)bytes);
}

/* Where a tensor's bytes are: null for host data, a range of a blob, or of a staged file. */
static int source_of(
    const struct graph_value *v, const json_t *files, struct staged *s, json_t **ret,
    struct err *err) {
    uint64_t offset = 0;
    uint64_t bytes = 0;
    json_t *made = NULL;
    if (v->source.kind == SOURCE_NONE) {
        made = json_null();
    } else if (v->source.kind == SOURCE_FILE) {
        const char *blob = json_string_value(json_object_get(files, v->source.file));
        int r = shape_elements(&v->shape, v->dtype, NULL, &bytes, err);
        if (r < 0) {
            return r;
        }
        if (blob == NULL) {
            return err_set(err, ERR_MISSING, "file '%s' is not given", v->source.file);
        }
        made = json_pack(
            "{s:s, s:I, s:I}", "blob", blob, "offset", (json_int_t)v->source.file_offset, "bytes",
            (json_int_t)bytes);
    } else {
        int r = staged_add(s, v, &offset, &bytes, err);
        if (r < 0) {
            return r;
        }
        made = staged_source(s->name, offset, bytes);
    }
    *ret = made;
    return made != NULL ? 0 : err_set(err, ERR_NOMEM, "no memory for a result");
}

/* files NULL: no sources (outputs). */
static int list_bindings(
    const struct graph *g, const struct value_id *ids, uint32_t count, const json_t *files,
    struct staged *s, json_t *list, struct err *err) {
    for (uint32_t i = 0; i < count; i++) {
        const struct graph_value *v = &g->values[ids[i].n];
        json_t *source = NULL;
        if (s != NULL) {
            int r = source_of(v, files, s, &source, err);
            if (r < 0) {
                return r;
            }
        }
        json_t *binding = key_binding(v->name, i, v->dtype, &v->shape);
        int failed = binding == NULL;
        if (source != NULL) {
            failed |= json_object_set_new(binding, "source", source) != 0;
        }
        if (failed || json_array_append_new(list, binding) != 0) {
            if (failed) {
                json_decref(binding);
            }
            return err_set(err, ERR_NOMEM, "no memory for a result");
        }
    }
    return 0;
}

static int fill_result(
    const struct graph *g, const json_t *files, uint64_t seed, json_t *result, struct err *err) {
    struct staged inputs = {.name = "inputs.bin", .fd = -1, .seed = seed};
    struct staged params = {.name = "params.bin", .fd = -1, .seed = seed};
    int r = list_bindings(
        g, g->inputs, g->input_count, files, &inputs, json_object_get(result, "inputs"), err);
    if (r == 0) {
        r = list_bindings(
            g, g->parameters, g->parameter_count, files, &params,
            json_object_get(result, "parameters"), err);
    }
    r = staged_close(&inputs, r, err);
    r = staged_close(&params, r, err);
    if (r == 0) {
        r = list_bindings(
            g, g->outputs, g->output_count, NULL, NULL, json_object_get(result, "outputs"), err);
    }
    return r;
}

int key_result(
    const struct graph *canonical, const struct digest *key, const json_t *files, uint64_t seed,
    const char *const *warnings, uint32_t warning_count, json_t **ret, struct err *err) {
    char hex[DIGEST_HEX + 1];
    digest_hex(key, hex);
    json_t *result = json_pack(
        "{s:s, s:s, s:s, s:s, s:[], s:[], s:[], s:[]}", "event", "result", "kind", "key", "key",
        hex, "compiler", COMPILER_ID, "inputs", "outputs", "parameters", "warnings");
    if (result == NULL) {
        return err_set(err, ERR_NOMEM, "no memory for a result");
    }
    int r = fill_result(canonical, files, seed, result, err);
    for (uint32_t i = 0; i < warning_count && r == 0; i++) {
        json_t *text = json_string(warnings[i]);
        if (json_array_append_new(json_object_get(result, "warnings"), text) != 0) {
            r = err_set(err, ERR_NOMEM, "no memory for a result");
        }
    }
    if (r < 0) {
        json_decref(result);
        return r;
    }
    *ret = result;
    return 0;
}
