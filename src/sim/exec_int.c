/* Integer, logic and permutation instructions of both pipes (tile fact sheet 2.1, 2.2). All read
 * their sources before they write, none can fault. */
#include "sim/exec.h"

/* Main pipe: a = f(b, c) with c a register (x, y), or an immediate. */
#define ALU(name, expr)                                                                            \
    EXEC(name##_mmmn) {                                                                            \
        uint32_t x = RM(B), y = RM(C);                                                             \
        WM(A) = (expr);                                                                            \
        return EXEC_OK;                                                                            \
    }
#define ALU_IMM(name, form, expr)                                                                  \
    EXEC(name##_##form) {                                                                          \
        uint32_t x = RM(B), y = (uint32_t)d->imm;                                                  \
        WM(A) = (expr);                                                                            \
        return EXEC_OK;                                                                            \
    }
#define ALU1(name, expr)                                                                           \
    EXEC(name##_mmmn) {                                                                            \
        uint32_t x = RM(B);                                                                        \
        WM(A) = (expr);                                                                            \
        return EXEC_OK;                                                                            \
    }

static uint32_t abs32(uint32_t x) {
    if (x == 0x80000000u) {
        return 0; /* the manual's listing, not two's complement */
    }
    return (int32_t)x < 0 ? 0u - x : x;
}

static uint32_t smin(uint32_t x, uint32_t y) {
    return (int32_t)x < (int32_t)y ? x : y;
}

static uint32_t smax(uint32_t x, uint32_t y) {
    return (int32_t)x > (int32_t)y ? x : y;
}

static uint32_t bitrev8(uint32_t x) {
    x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
    x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
    return (x >> 4 & 0x0F0F0F0Fu) | (x & 0x0F0F0F0Fu) << 4;
}

static uint32_t clz32(uint32_t x) {
    return x == 0 ? 32u : (uint32_t)__builtin_clz(x);
}

ALU(add, x + y)
ALU_IMM(add, mmmn_si, x + y)
ALU_IMM(add, mmmn_zi, x + y)
ALU(sub, y - x) /* sub $a, $c, $b: the printed first source is letter c */
ALU_IMM(sub, mmmn_si, y - x)
ALU_IMM(sub, mmmn_zi, y - x)
ALU(mul, x *y)
ALU_IMM(mul, mmmn_si, x *y)
ALU(and, x &y)
ALU_IMM(and, mmmn_zi, x &y)
ALU(andc, x & ~y)
ALU_IMM(andc, mmmn_zi, x & ~y)
ALU(or, x | y)
ALU_IMM(or, mmmn_iz, x | y)
ALU_IMM(or, mmmn_zi, x | y)
ALU(xor, x ^ y)
ALU(xnor, ~(x ^ y))
ALU(shl, x << (y & 31))
ALU_IMM(shl, mmmn_zi, x << (y & 31))
ALU(shr, x >> (y & 31))
ALU_IMM(shr, mmmn_zi, x >> (y & 31))
ALU(shrs, (uint32_t)((int32_t)x >> (y & 31)))
ALU_IMM(shrs, mmmn_zi, (uint32_t)((int32_t)x >> (y & 31)))
ALU(min, smin(x, y))
ALU_IMM(min, mmmn_si, smin(x, y))
ALU_IMM(min, mmmn_zi, smin(x, y))
ALU(max, smax(x, y))
ALU_IMM(max, mmmn_si, smax(x, y))
ALU_IMM(max, mmmn_zi, smax(x, y))
ALU(cmpeq, x == y)
ALU_IMM(cmpeq, mmmn_si, x == y)
ALU_IMM(cmpeq, mmmn_zi, x == y)
ALU(cmpne, x != y)
ALU(cmpslt, (int32_t)x < (int32_t)y)
ALU_IMM(cmpslt, mmmn_si, (int32_t)x < (int32_t)y)
ALU(cmpult, x < y)
ALU_IMM(cmpult, mmmn_zi, x < y)
ALU1(abs, abs32(x))
ALU1(bitrev8, bitrev8(x))
ALU1(clz, clz32(x))
ALU1(cms, (uint32_t)__builtin_clrsb((int32_t)x))
ALU1(popc, (uint32_t)__builtin_popcount(x))
ALU(roll16, lane_roll16(x, y))
ALU(sort4x16lo, lane_lo(x, y))
ALU(sort4x16hi, lane_hi(x, y))
ALU(roll8l, lane_roll8l(x, y))
ALU(roll8r, lane_roll8r(x, y))
ALU(shuf8x8lo, lane_shuf_lo(x, y))
ALU(shuf8x8hi, lane_shuf_hi(x, y))
ALU(sort8x8lo, lane_sort8_lo(x, y))
ALU(sort8x8hi, lane_sort8_hi(x, y))
ALU1(sort8, lane_sort8(x))
ALU1(swap8, lane_swap8(x))

EXEC(setzi_mmmn_zi) {
    WM(A) = (uint32_t)d->imm;
    return EXEC_OK;
}

EXEC(movz_mmmn) /* moves when the condition is NOT zero, whatever the name says */
{
    if (RM(A) != 0) {
        WM(B) = RM(C);
    }
    return EXEC_OK;
}

EXEC(atom_mamn) {
    WM(A) = RA(B);
    return EXEC_OK;
}

EXEC(tapack_mmmn) {
    uint32_t p0 = RM(A), p1 = RM(B), p2 = RM(C);

    c->m[d->w[D]] = (p0 & ADDR_MASK) | p2 << 21;
    c->m[d->w[D] + 1] = (p1 & ADDR_MASK) | (p2 >> 11 & 0x3FFu) << 21;
    return EXEC_OK;
}

/* Aux pipe: one register, or two (64-bit forms). */
#define AUX(id, yexpr, expr)                                                                       \
    EXEC(id) {                                                                                     \
        uint32_t x = RA(B), y = (yexpr);                                                           \
        (void)y;                                                                                   \
        WA(A) = (expr);                                                                            \
        return EXEC_OK;                                                                            \
    }
#define AUX64(id, e0, e1)                                                                          \
    EXEC(id) {                                                                                     \
        uint32_t x0 = RA2(B, 0), x1 = RA2(B, 1);                                                   \
        uint32_t y0 = RA2(C, 0), y1 = RA2(C, 1), r0 = (e0), r1 = (e1);                             \
        (void)x0, (void)x1, (void)y0, (void)y1;                                                    \
        WA2(A, 0) = r0;                                                                            \
        WA2(A, 1) = r1;                                                                            \
        return EXEC_OK;                                                                            \
    }

AUX(and_aaan, RA(C), x &y)
AUX(and_aaan_iz, (uint32_t)d->imm, x &y)
AUX(and_aaan_zi, (uint32_t)d->imm, x &y)
AUX(andc_aaan, RA(C), x & ~y)
AUX(andc_aaan_iz, (uint32_t)d->imm, x & ~y)
AUX(andc_aaan_zi, (uint32_t)d->imm, x & ~y)
AUX(or_aaan, RA(C), x | y)
AUX(or_aaan_iz, (uint32_t)d->imm, x | y)
AUX(or_aaan_zi, (uint32_t)d->imm, x | y)
AUX(not_aaan, 0, ~x)
AUX64(and64_aaan, x0 &y0, x1 &y1)
AUX64(andc64_aaan, x0 & ~y0, x1 & ~y1)
AUX64(or64_aaan, x0 | y0, x1 | y1)
AUX64(not64_aaan, ~x0, ~x1)
AUX64(roll32_aaan, x1, y0)
AUX64(sort4x32lo_aaan, x0, y0)
AUX64(sort4x32hi_aaan, x1, y1)
AUX(roll16_aaan, RA(C), lane_roll16(x, y))
AUX(sort4x16lo_aaan, RA(C), lane_lo(x, y))
AUX(sort4x16lo_aaau, RA(C), lane_lo(x >> 16, y))
AUX(sort4x16hi_aaan, RA(C), lane_hi(x, y))
AUX(sort4x16hi_aaal, RA(C), lane_hi(x << 16, y))
AUX(roll8l_aaan, RA(C), lane_roll8l(x, y))
AUX(roll8r_aaan, RA(C), lane_roll8r(x, y))
AUX(shuf8x8lo_aaan, RA(C), lane_shuf_lo(x, y))
AUX(shuf8x8hi_aaan, RA(C), lane_shuf_hi(x, y))
AUX(sort8x8lo_aaan, RA(C), lane_sort8_lo(x, y))
AUX(sort8x8hi_aaan, RA(C), lane_sort8_hi(x, y))
AUX(sort8_aaan, 0, lane_sort8(x))
AUX(swap8_aaan, 0, lane_swap8(x))

EXEC(setzi_aaan_zi) {
    WA(A) = (uint32_t)d->imm;
    return EXEC_OK;
}
