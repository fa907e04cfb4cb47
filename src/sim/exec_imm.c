/* See exec_imm.h. A reserved bit that is set makes the form meaningless: INVALID_INSTR. */
#include "sim/exec_imm.h"

/* Widths of the fields, least significant first: phase, engines - 1, weight set. For gina, the
 * accumulator chain (bit 0: odd, bit 1: second set); for the permuters, the phase. */
struct imm_form {
    uint16_t op;
    uint8_t phase_bits, engine_bits, weight_bits;
};

static const struct imm_form forms[] = {
    {ISA_OP_f16v4sisoamp_aaan_ef, 2, 2, 0},    {ISA_OP_f16v4hihoamp_aaan_ef, 2, 2, 0},
    {ISA_OP_f16v4hihov4amp_aaan_ef, 2, 2, 0},  {ISA_OP_f8v8hihov4amp_aaan_ef, 2, 2, 0},
    {ISA_OP_f32sisoamp_aaan_ef, 3, 2, 0},      {ISA_OP_f32sisov2amp_aaan_ef, 3, 2, 0},
    {ISA_OP_f16v4sisoslic_aaan_ef, 0, 2, 2},   {ISA_OP_f16v4hihoslic_aaan_ef, 0, 2, 2},
    {ISA_OP_f16v4hihov4slic_aaan_ef, 0, 2, 2}, {ISA_OP_f8v8hihov4slic_aaan_ef, 0, 2, 2},
    {ISA_OP_f32sisoslic_aaan_ef, 1, 2, 2},     {ISA_OP_f32sisov2slic_aaan_ef, 1, 2, 2},
};

/* Others: the largest immediate with a meaning. */
static bool is_meant(const struct dec *d) {
    switch (d->op) {
    case ISA_OP_f16v2gina_aaan_zi:
    case ISA_OP_f32v2gina_aaan_zi: return d->imm <= 3;
    case ISA_OP_f16v4istacc_aaan_ef:
    case ISA_OP_f16v4stacc_aaan_ef: return d->imm <= 1;
    case ISA_OP_f32int_aaan_ef: return (d->imm & 7) <= 4; /* three bits count */
    case ISA_OP_f32v2aop_aaan_ef: return d->imm == 0;
    default: return true;
    }
}

static uint8_t take_bits(uint32_t *imm, unsigned bits) {
    uint8_t v = (uint8_t)(*imm & ((1u << bits) - 1));

    *imm >>= bits;
    return v;
}

bool imm_take(struct dec *d) {
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        if (forms[i].op == d->op) {
            uint32_t imm = (uint32_t)d->imm;

            IMM_PHASE(d) = take_bits(&imm, forms[i].phase_bits);
            IMM_ENGINES(d) = (uint8_t)(take_bits(&imm, forms[i].engine_bits) + 1);
            IMM_WEIGHTS(d) = take_bits(&imm, forms[i].weight_bits);
            return imm == 0;
        }
    }
    return is_meant(d);
}
