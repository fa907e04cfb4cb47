/* The tensors of a program's interface with their names and, for inputs and parameters, the range
 * of a blob that holds their bytes. Read from a worker's result, which is checked like any other
 * outside data, or from a package, where the names are "input.0", "parameter.3", "output.0". */
#ifndef DAEMON_BINDINGS_H
#define DAEMON_BINDINGS_H

#include <jansson.h>

#include "base/digest.h"
#include "base/tensor.h"
#include "package/package.h"

#define BINDING_NAME 256

struct binding {
    char name[BINDING_NAME + 1];
    enum dtype dtype;
    struct shape shape;
    uint64_t bytes; /* of one run */
    bool has_source;
    bool is_staged; /* the source is a file of staging, `staged`; else a blob */
    char staged[16];
    struct digest blob;
    uint64_t offset;
    uint64_t source_bytes;
};

struct bindings {
    struct binding *items; /* owned, by ordinal */
    size_t count;
};

void bindings_done(struct bindings *b);
/* list: the array `inputs`, `outputs` or `parameters` of a result. */
int bindings_read(const json_t *list, const char *what, struct bindings *ret, struct err *err);
int bindings_of_package(
    const struct package *p, enum package_role role, struct bindings *ret, struct err *err);
const struct binding *bindings_find(const struct bindings *b, const char *name); /* or NULL */
json_t *bindings_json(const struct bindings *b); /* [{name, ordinal, dtype, shape}] */
json_t *shape_json(const struct shape *s);
/* Digest of package and weights: what is resident (design.md D8). */
void bindings_residency(
    const struct bindings *parameters, const struct digest *package, struct digest *ret);

#endif
