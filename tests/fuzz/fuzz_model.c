/* Model files: an accepted one verifies, has a stable canonical form and prints. */
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>

#include "graph/graph.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_graph(const struct graph *g, struct arena *a) {
    struct err err = {0};
    struct graph *once = NULL;
    struct graph *twice = NULL;
    struct digest d;
    struct digest e;
    if (graph_canonical(g, a, &once, NULL, NULL, &err) < 0 ||
        graph_canonical(once, a, &twice, NULL, NULL, &err) < 0 ||
        graph_digest(once, &d, &err) < 0 || graph_digest(twice, &e, &err) < 0 ||
        !digest_equal(&d, &e)) {
        abort();
    }
    FILE *out = fopen("/dev/null", "w");
    if (out != NULL) {
        graph_print(once, out);
        fclose(out);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    json_t *model = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL);
    struct arena a;
    struct err err = {0};
    struct graph *g = NULL;
    if (model == NULL) {
        return 0;
    }
    arena_init(&a, 16 << 20);
    if (ARENA_RECOVER(&a) == 0) {
        if (graph_load(model, NULL, NULL, &a, &g, &err) == 0) {
            check_graph(g, &a);
        } else if (err.code == 0 || err.text[0] == '\0') {
            abort(); /* a refusal says why */
        }
    }
    arena_done(&a);
    json_decref(model);
    return 0;
}
