/* Predicted against simulated cycles of a model (bench). */
#ifndef TESTS_PERF_PREDICT_H
#define TESTS_PERF_PREDICT_H

#include <stdbool.h>
#include <stdint.h>

struct predict_model {
    const char *name;
    const char *path;
    uint32_t tiles;
    bool accumulate_f16;
};

/* Prints the model's table: text is the model, folder exists. */
void predict_model(const struct predict_model *m, const char *text, const char *folder);

#endif
