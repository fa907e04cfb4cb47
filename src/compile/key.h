/* The key of a compile (design.md D1): what must be equal for two compiles to give one package.
 *
 *   key = SHA-256(key version, canonical graph digest, options text, target, compiler id)
 *
 * The compiler id is the digest of the compiler's sources and tile code, made by the build. Names,
 * sources of tensors, values of ordinary initialisers and the job's seed do not enter. */
#ifndef COMPILE_KEY_H
#define COMPILE_KEY_H

#include "base/digest.h"
#include "base/err.h"
#include "compile/compile.h"
#include "graph/graph.h"

#define KEY_VERSION "ipud key 3"
#define KEY_TARGET  "ipu21"

struct key_inputs { /* what enters besides the graph; texts, borrowed */
    const char *version;
    const char *options_json; /* of compile_options_json() */
    const char *target;
    const char *compiler_id;
};

const char *key_compiler_id(void); /* 64 hex */
int key_hash(
    const struct graph *canonical, const struct key_inputs *inputs, struct digest *ret,
    struct err *err);
/* key_hash() with this compiler's version, target and id. */
int key_make(
    const struct graph *canonical, const char *options_json, struct digest *ret, struct err *err);

/* Result of a `key` job (proto/worker.md). Generated and inline values are written to params.bin
 * and inputs.bin in the current directory; files maps labels to "sha256:..." texts. *ret is
 * owned. Makes no arena call. */
struct json_t;
int key_result(
    const struct graph *canonical, const struct digest *key, const struct json_t *files,
    uint64_t seed, const char *const *warnings, uint32_t warning_count, struct json_t **ret,
    struct err *err);

/* {"name","ordinal","dtype","shape"}; owned, NULL when out of memory. */
struct json_t *
key_binding(const char *name, uint32_t ordinal, enum dtype dtype, const struct shape *shape);

#endif
