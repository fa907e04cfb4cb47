/* What load.c and load_tensor.c share: reading checked members of JSON objects, and the sources
 * of tensors. Every fault carries the JSON pointer of the place. */
#ifndef GRAPH_LOAD_INTERNAL_H
#define GRAPH_LOAD_INTERNAL_H

#include <jansson.h>

#include "base/intern.h"
#include "base/vec.h"
#include "graph/graph_internal.h"

/* An initialiser whose bytes lie in a file; a list per label, resolved when all are known. */
struct file_use {
    struct value_id value;
    const char *pointer;
    uint32_t next; /* use of the same label, UINT32_MAX at the end */
};

struct file_label {
    uint32_t first, last; /* uses */
};

struct load_tensor {
    const char *name;
    enum dtype dtype;
    struct shape shape;
    struct value_source source;
};

struct load {
    struct arena *arena;
    graph_open_file_fn *open_file;
    void *open_arg;
    struct graph_builder *builder;
    struct intern labels;
    VEC(struct file_label) files; /* by label id */
    VEC(struct file_use) uses;
};

/* The members of an object are all in `allowed` (NULL-terminated). */
int load_check_keys(
    const json_t *object, const char *pointer, const char *const *allowed, struct err *err);
/* A string of 1 to GRAPH_MAX_NAME bytes without control characters, copied to the arena. */
int load_text(
    struct load *l, const json_t *string, const char *pointer, const char **ret, struct err *err);
/* Absent gives NULL and success; otherwise a list of at most `most` items. */
int load_list(
    const json_t *object, const char *key, const char *pointer, size_t most, const json_t **ret,
    struct err *err);
/* Name, dtype, shape, source; initialisers must have a source, inputs may have a generator. */
int load_tensor(
    struct load *l, const json_t *object, const char *pointer, bool is_input,
    struct load_tensor *ret, struct err *err);
void load_note_file(struct load *l, struct value_id value, const char *pointer);
/* Opens each label once, checks its tensors, reads hashed constants. */
int load_files(struct load *l, struct err *err);

#endif
