/* IEEE binary16 <-> binary32/64 by our own code (no _Float16: clang 14 on x86-64 rejects it).
 * These are the host's conversions: round to nearest even, overflow to infinity, NaN kept quiet.
 * The device's own rules (saturation, fixed NaN) live in src/sim. */
#ifndef BASE_F16_H
#define BASE_F16_H

#include <stdint.h>

float f16_to_f32(uint16_t bits);     /* exact */
uint16_t f16_from_f32(float value);  /* one rounding */
uint16_t f16_from_f64(double value); /* one rounding, straight from double */

float bf16_to_f32(uint16_t bits);     /* exact; bfloat16: upper half of a binary32 */
uint16_t bf16_from_f64(double value); /* one rounding */

#endif
