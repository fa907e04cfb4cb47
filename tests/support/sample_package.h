/* The smallest package that passes the verifier: one input of 6 halves and one output of 4 on two
 * tiles, with a profile plan; every tile shares one image of two words. Tests damage it. */
#ifndef TESTS_SUPPORT_SAMPLE_PACKAGE_H
#define TESTS_SUPPORT_SAMPLE_PACKAGE_H

#include "package/package.h"

struct sample {
    struct package p;
    struct package_content contents[1];
    struct package_segment segments[TARGET_TILES];
    struct package_binding bindings[4];
    struct package_phase phases[2];
    struct package_slice slices[7];
    uint16_t participants[2];
    struct package_symbol symbols[1];
    struct package_step steps[3];
    struct package_kernel_call calls[2];
    struct package_trace traces[2];
};

extern const uint8_t sample_code[8];

/* Everything in p points into *s or is static. */
void sample_init(struct sample *s);

#endif
