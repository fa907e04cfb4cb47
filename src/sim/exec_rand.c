/* Random numbers (tile fact sheet 2.7). Every one of these takes two words of the generator. */
#include "sim/exec.h"
#include "sim/fp.h"

EXEC(urand32_aaan) {
    uint64_t w[2];

    prng_words(c->prng, w);
    WA(A) = (uint32_t)w[0];
    return EXEC_OK;
}

EXEC(urand64_aaan) {
    uint64_t w[2];

    prng_words(c->prng, w);
    WA2(A, 0) = (uint32_t)w[0];
    WA2(A, 1) = (uint32_t)(w[0] >> 32);
    return EXEC_OK;
}

/* Nearly normal: twelve uniform 5-bit fields, centred, over 32. Exact in half and single. */
static double grand(uint64_t word) {
    int sum = 0;

    for (int i = 0; i < 12; i++) {
        sum += (int)(word >> 5 * i & 31);
    }
    return (sum - 186) / 32.0;
}

EXEC(f16v2grand_aaan) {
    struct fp f = fp_plain(c);
    uint64_t w[2];

    prng_words(c->prng, w);
    WA(A) = f16_pair(f16_nearest(&f, grand(w[0])), f16_nearest(&f, grand(w[1])));
    return EXEC_OK;
}

EXEC(f32v2grand_aaan) {
    uint64_t w[2];

    prng_words(c->prng, w);
    WA2(A, 0) = float_bits((float)grand(w[0]));
    WA2(A, 1) = float_bits((float)grand(w[1]));
    return EXEC_OK;
}

/* Keeps a lane with probability p / 65536: field below p. Bit 16 keeps all. */
static bool is_kept(uint64_t word, int field, uint32_t p) {
    return (p & 0x10000u) != 0 || (word >> 16 * field & 0xFFFFu) < (p & 0xFFFFu);
}

EXEC(f16v4rmask_aaan) {
    uint64_t w[2];
    uint32_t p = RA(C), mask[2] = {0, 0};

    prng_words(c->prng, w);
    for (int i = 0; i < 4; i++) {
        if (is_kept(w[0], i, p)) {
            mask[i >> 1] |= 0xFFFFu << 16 * (i & 1);
        }
    }
    WA2(A, 0) = RA2(B, 0) & mask[0];
    WA2(A, 1) = RA2(B, 1) & mask[1];
    return EXEC_OK;
}

EXEC(f32v2rmask_aaan) {
    uint64_t w[2];
    uint32_t p = RA(C);

    prng_words(c->prng, w);
    WA2(A, 0) = is_kept(w[0], 0, p) ? RA2(B, 0) : 0;
    WA2(A, 1) = is_kept(w[0], 2, p) ? RA2(B, 1) : 0;
    return EXEC_OK;
}
