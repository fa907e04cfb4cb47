/* Options that a whole run of the tests forces on every simulated chip, whatever a test asks for:
 * environment variable IPUD_TEST_SIM, words separated by commas.
 *
 *     poison      registers hold poison at reset, those of workers also between launches
 *     threads=N   of the pool
 *     slice=N     cycles of one register read, where the test has not set its own
 *
 * The linker puts __wrap_sim_device_open() in the place of sim_device_open() in tests; the library
 * reads no environment. What is misspelt ends the test. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/sim.h"

int __real_sim_device_open(
    const struct sim_options *options, struct ipu_device_ops *ret, struct err *err);
int __wrap_sim_device_open(
    const struct sim_options *options, struct ipu_device_ops *ret, struct err *err);

static void apply(struct sim_options *o, const char *word, size_t n) {
    unsigned value;
    if (n == 6 && strncmp(word, "poison", n) == 0) {
        o->poison_launch = true;
    } else if (sscanf(word, "threads=%3u", &value) == 1 && value > 0) {
        o->threads = (int)value;
    } else if (sscanf(word, "slice=%9u", &value) == 1 && value > 0) {
        o->slice_cycles = o->slice_cycles != 0 || o->race_marks ? o->slice_cycles : value;
    } else {
        fprintf(
            stderr, "IPUD_TEST_SIM: '%.*s' is none of poison, threads=N, slice=N\n", (int)n, word);
        abort();
    }
}

int __wrap_sim_device_open(
    const struct sim_options *options, struct ipu_device_ops *ret, struct err *err) {
    const char *text = getenv("IPUD_TEST_SIM");
    struct sim_options forced = {.trace_tile = -1};
    if (options != NULL) {
        forced = *options;
    }
    while (text != NULL && *text != '\0') {
        size_t n = strcspn(text, ",");
        apply(&forced, text, n);
        text += n + (text[n] == ',');
    }
    return __real_sim_device_open(&forced, ret, err);
}
