/* Seeded values (graph.h, generators). SplitMix64 is Steele, Lea and Flood's mixing of a Weyl
 * sequence; constants from their paper (OOPSLA 2014). */
#include <math.h>
#include <string.h>

#include "graph/graph.h"

#define WEYL_STEP 0x9e3779b97f4a7c15u

/* Output of SplitMix64 for a state that has already been advanced. */
static uint64_t finalize(uint64_t z) {
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static uint64_t mix(uint64_t state) {
    return finalize(state + WEYL_STEP);
}

static double normal(uint64_t state) {
    uint64_t sum = 0;
    for (int i = 0; i < 6; i++) {
        state += WEYL_STEP;
        uint64_t z = finalize(state);
        sum += (z & 0xffffffffu) + (z >> 32);
    }
    /* Twelve integers of mean (2^32 - 1) / 2: doubled to stay whole, so at most 37 bits. */
    int64_t centred = 2 * (int64_t)sum - 12 * (int64_t)0xffffffff;
    return (double)centred * 0x1p-33;
}

double graph_generate(const struct value_source *source, uint64_t job_seed, uint64_t i) {
    uint64_t state = mix(mix(job_seed) ^ source->seed) ^ i;
    double deviate = 0;
    switch (source->generator) {
    case GENERATOR_CONSTANT: break;
    case GENERATOR_UNIFORM: deviate = (double)(mix(state) >> 11) * 0x1p-53; break;
    case GENERATOR_NORMAL: deviate = normal(state); break;
    }
    return fma(source->scale, deviate, source->offset);
}

int graph_fill(
    const struct graph_value *v, uint64_t job_seed, uint64_t first, uint64_t n, uint8_t *bytes,
    struct err *err) {
    size_t size = dtype_bytes(v->dtype);
    if (v->source.bytes != NULL) {
        memcpy(bytes, v->source.bytes + first * size, n * size);
        return 0;
    }
    if (v->source.kind != SOURCE_GENERATOR) {
        return err_set(err, ERR_MISSING, "no data for '%s'", v->name);
    }
    for (uint64_t i = 0; i < n; i++) {
        tensor_put(v->dtype, bytes, i, graph_generate(&v->source, job_seed, first + i));
    }
    return 0;
}
