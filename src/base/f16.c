/* Half-float conversions on the bit patterns; every path is a fixed number of integer steps. */
#include "base/f16.h"

#include <string.h>

static uint32_t f32_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float f32_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

float f16_to_f32(uint16_t bits) {
    uint32_t sign = (uint32_t)(bits & 0x8000u) << 16;
    uint32_t exponent = (bits >> 10) & 0x1fu;
    uint32_t fraction = bits & 0x3ffu;
    if (exponent == 0x1f) {
        uint32_t quiet = fraction != 0 ? 0x400000u : 0;
        return f32_of_bits(sign | 0x7f800000u | quiet | fraction << 13);
    }
    if (exponent == 0) { /* zero or subnormal: fraction * 2^-24, exact in binary32 */
        float magnitude = (float)fraction * 0x1p-24f;
        return f32_of_bits(sign | f32_bits(magnitude));
    }
    return f32_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

/* Rounds to a 16-bit format with `fraction_bits` of fraction, to nearest even. The carry out of
 * the fraction runs into the exponent, and out of the largest exponent into infinity: the two
 * fields are neighbours, so one increment does both. */
static uint16_t round_to_16(double value, int fraction_bits) {
    int exponent_bits = 15 - fraction_bits;
    int bias = (1 << (exponent_bits - 1)) - 1;
    uint64_t infinity = (((uint64_t)1 << exponent_bits) - 1) << fraction_bits;
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint64_t sign = bits >> 63 << 15;
    int exponent = (int)(bits >> 52 & 0x7ff);
    uint64_t fraction = bits & 0xfffffffffffffu;
    if (exponent == 0x7ff) {
        uint64_t quiet = (uint64_t)1 << (fraction_bits - 1);
        uint64_t nan = fraction != 0 ? quiet | fraction >> (52 - fraction_bits) : 0;
        return (uint16_t)(sign | infinity | nan);
    }
    exponent -= 1023;
    if (exponent > bias) {
        return (uint16_t)(sign | infinity);
    }
    int shift = 52 - fraction_bits;
    uint64_t base = 0; /* what the exponent field adds once the implicit bit is in the sum */
    fraction |= (uint64_t)1 << 52;
    if (exponent >= 1 - bias) {
        base = (uint64_t)(exponent + bias - 1) << fraction_bits;
    } else {
        shift += 1 - bias - exponent;
        if (shift > 53) { /* below half of the smallest subnormal; binary64 subnormals too */
            return (uint16_t)sign;
        }
    }
    uint64_t kept = base + (fraction >> shift);
    uint64_t rest = fraction & (((uint64_t)1 << shift) - 1);
    uint64_t half = (uint64_t)1 << (shift - 1);
    if (rest > half || (rest == half && (kept & 1) != 0)) {
        kept++;
    }
    return (uint16_t)(sign | kept);
}

uint16_t f16_from_f64(double value) {
    return round_to_16(value, 10);
}

uint16_t f16_from_f32(float value) {
    return round_to_16((double)value, 10); /* widening is exact */
}

float bf16_to_f32(uint16_t bits) {
    return f32_of_bits((uint32_t)bits << 16);
}

uint16_t bf16_from_f64(double value) {
    return round_to_16(value, 7);
}
