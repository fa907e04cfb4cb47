/* Branches, repeats, exits, launches, barriers and control registers (tile fact sheet 1.2, 1.5,
 * 1.6, register fact sheet 3). */
#include "sim/exec.h"

/* ---- branches -------------------------------------------------------------------------------- */

/* Leaves the straight path. A worker pays one turn for a bundle at 4 mod 8, because it fetches
 * aligned pairs of words. */
static void branch_take(struct tile *t, struct context *c, uint32_t target) {
    c->next_pc = target;
    c->is_taken = true;
    if (c->index != 0 && (target & 4) != 0) {
        const struct page *p = &t->pages[(target - TARGET_MEM_BASE) / PAGE_BYTES];
        if (p->words[(target >> 2) % PAGE_WORDS] >> 31 != 0) {
            c->extra = TIME_CROSSED_HEAD;
        }
    }
}

/* The target is checked even when the branch is not taken. */
static int branch_if(struct tile *t, struct context *c, uint32_t target, bool is_taken) {
    if (!pc_is_valid(target)) {
        return ETYPE_INVALID_PC;
    }
    if (is_taken) {
        branch_take(t, c, target);
    }
    return EXEC_OK;
}

#define BRANCH(name, cond)                                                                         \
    EXEC(name##_mmmn_zi) {                                                                         \
        uint32_t x = RM(A);                                                                        \
        return branch_if(t, c, (uint32_t)d->imm & ADDR_MASK, (cond));                              \
    }

BRANCH(brz, x == 0)
BRANCH(brnz, x != 0)
BRANCH(brneg, x >> 31 != 0)
BRANCH(brpos, x >> 31 == 0)

EXEC(br_mmmn) {
    return branch_if(t, c, RM(A), true);
}

EXEC(bri_mmmn_zi) {
    return branch_if(t, c, (uint32_t)d->imm & ADDR_MASK, true);
}

/* The counter goes down whether or not the branch is taken (the manual's listing). */
EXEC(brnzdec_mmmn_zi) {
    uint32_t x = RM(A);
    int fault = branch_if(t, c, (uint32_t)d->imm & ADDR_MASK, x != 0);

    if (fault == EXEC_OK) {
        WM(A) = x - 1;
    }
    return fault;
}

/* Bit 19 of the word address is ignored. */
EXEC(call_mmmn_zi) {
    uint32_t link = c->next_pc;
    int fault = branch_if(t, c, (uint32_t)d->imm & ADDR_MASK, true);

    if (fault == EXEC_OK) {
        WM(A) = link;
    }
    return fault;
}

/* ---- repeats --------------------------------------------------------------------------------- */

static int repeat(struct context *c, uint32_t count, uint32_t last) {
    uint32_t first = c->next_pc, end = first + 8 * (last + 1);

    if ((first & 7) != 0 || !pc_is_valid(end)) {
        return ETYPE_INVALID_OP;
    }
    count &= 0xFFFFu;
    if (count == 0) {
        c->next_pc = end;
        return EXEC_OK;
    }
    c->rpt_count = count;
    c->rpt_first = first;
    c->rpt_end = end;
    c->in_rpt = true;
    return EXEC_OK;
}

EXEC(rpt_mmmn_zi) {
    return repeat(c, RM(A), (uint32_t)d->imm);
}

EXEC(rpt_mmmn_zi_zi) {
    return repeat(c, (uint32_t)d->imm, d->r[B]);
}

/* ---- exits, traps, launches, barriers -------------------------------------------------------- */

#define EXIT(name, cond)                                                                           \
    EXEC(name##_mmmn) {                                                                            \
        int32_t x = (int32_t)RM(A);                                                                \
        c->exit_status = (cond);                                                                   \
        return EXEC_EXIT;                                                                          \
    }

EXIT(exitz, x == 0)
EXIT(exitnz, x != 0)
EXIT(exitneg, x < 0)
EXIT(exitpos, x >= 0)

EXEC(trap_mmmn_zi) {
    return (d->imm & 1) != 0 ? ETYPE_PBRK1 : ETYPE_PBRK0;
}

#define VERTEX_BASE_MASK 0xFFFFCu /* the register has address bits 19:2 */

static bool launch_is_valid(uint32_t entry, uint32_t vertex_base) {
    return pc_is_valid(entry) && (vertex_base & 3) == 0;
}

/* With no worker free the launch cannot be done: same fault as runall with workers active. */
EXEC(run_mmmn_zi) {
    uint32_t entry = RM(A);
    uint32_t base = RM(B) + 4 * (uint32_t)d->imm + TARGET_MEM_BASE;

    if (!launch_is_valid(entry, RM(B))) {
        return ETYPE_INVALID_OP;
    }
    for (int w = 1; w < TILE_CONTEXTS; w++) {
        if (t->ctx[w].state == 0 && !t->ctx[w].is_leaving) {
            worker_start(t, w, entry, base & VERTEX_BASE_MASK, t->now + TIME_LAUNCH);
            return EXEC_OK;
        }
    }
    return ETYPE_INVALID_INSTR;
}

EXEC(runall_mmmn_zi) {
    uint32_t entry = RM(A), base = RM(B);

    for (int w = 1; w < TILE_CONTEXTS; w++) {
        if (t->ctx[w].state != 0 || t->ctx[w].is_leaving) {
            t->raerr = true; /* fatal to the workers too, at their next retirement */
            for (int v = 1; v < TILE_CONTEXTS; v++) {
                if (t->ctx[v].state == 1) {
                    fault_set(t, &t->ctx[v], ETYPE_INVALID_INSTR);
                }
            }
            return ETYPE_INVALID_INSTR;
        }
    }
    if (!launch_is_valid(entry, base)) {
        return ETYPE_INVALID_OP;
    }
    for (int w = 1; w < TILE_CONTEXTS; w++) {
        uint32_t own = base + (uint32_t)(w - 1) * 4 * (uint32_t)d->imm;
        worker_start(t, w, entry, own & VERTEX_BASE_MASK, t->now + TIME_LAUNCH);
    }
    return EXEC_OK;
}

EXEC(sync_zi) {
    return d->imm == 2 ? EXEC_LOCAL : EXEC_SYNC;
}

#define FOR_CHIP(id)                                                                               \
    EXEC(id) {                                                                                     \
        (void)c;                                                                                   \
        (void)d;                                                                                   \
        return EXEC_EXCHANGE;                                                                      \
    }

FOR_CHIP(delay_zi)
FOR_CHIP(sans_zi)
FOR_CHIP(delaypic_zi_zi_zi)
FOR_CHIP(delayxpic_zi_zi_zi)
FOR_CHIP(send_zi_zi_zi)
FOR_CHIP(sendoff_zi_zi_zi)
FOR_CHIP(sendpic_zi_zi_zi)
FOR_CHIP(sendpicp_word0)

/* ---- control registers ----------------------------------------------------------------------- */

enum {
    CSR_PC = 0x00,
    CSR_SR = 0x01,
    CSR_COUNT_L = 0x60,
    CSR_COUNT_U = 0x61,
    CSR_DBG_DATA = 0x70,
    CSR_DBG_BRK_ID = 0x71,
    CSR_CTXT_STS = 0x72,
    /* supervisor */
    CSR_CR = 0x02,
    CSR_TILE_ID = 0x03,
    CSR_FP_ICTL = 0x20,
    CSR_W0_BASE = 0x21,
    CSR_W5_BASE = 0x26,
    CSR_FP_INFMT = 0x31,
    CSR_FP_ISCL = 0x33,
    /* worker */
    CSR_VERTEX_BASE = 0x02,
    CSR_WORKER_BASE = 0x03,
    CSR_REPEAT_COUNT = 0x04,
    CSR_REPEAT_FIRST = 0x05,
    CSR_REPEAT_END = 0x06,
    CSR_UPPER = 0x100,
    CSR_FP_STS = 0x100,
    CSR_FP_CLR,
    CSR_FP_CTL,
    CSR_PRNG_0_0,
    CSR_PRNG_0_1,
    CSR_PRNG_1_0,
    CSR_PRNG_1_1,
    CSR_PRNG_SEED,
    CSR_TAS,
    CSR_FP_NFMT,
    CSR_FP_SCL,
};

#define FP_CTL_MASK 0x00180007u

/* Writable bits of the supervisor's registers that are plain storage; 0 = no such register. */
static uint32_t sup_mask(int number) {
    switch (number) {
    case CSR_FP_ICTL: return FP_CTL_MASK;
    case CSR_W0_BASE ... CSR_W5_BASE: return 0xFFFFFu;
    case CSR_FP_INFMT: return 3;
    case CSR_FP_ISCL: return 0x3F;
    case 0x50: return 0xFFFFFu; /* CCCSLOAD */
    case CSR_DBG_DATA: return 0xFFFFFFFFu;
    case CSR_DBG_BRK_ID: return 1;
    case 0x73 ... 0x75: return 0xFFFFFFFFu; /* DBG_CTL, DBG_ECSR, DBG_ECLR */
    case 0x80 ... 0x82: return 0xFFFFFFFFu; /* instruction break */
    case 0x90 ... 0x92: return 0xFFFFFFFFu; /* data break */
    case 0xA0 ... 0xAB: return 0xFFFFFFFFu; /* exchange: the chip gives them meaning */
    default: return 0;
    }
}

static uint32_t context_states(const struct tile *t) {
    uint32_t v = 0;

    for (int i = 0; i < TILE_CONTEXTS; i++) {
        v |= (uint32_t)tile_context_state(t, i) << 2 * i;
    }
    return v;
}

static int sup_get(struct tile *t, struct context *c, int number, uint32_t *ret) {
    switch (number) {
    case CSR_PC: *ret = c->pc; return EXEC_OK;
    case CSR_SR:
        *ret = t->consensus | t->raerr << 3 | (uint32_t)c->etype << 4 | (t->csr[CSR_SR] & 0x206u);
        return EXEC_OK;
    case CSR_CR: *ret = 0; return EXEC_OK;
    case CSR_TILE_ID: *ret = t->physical; return EXEC_OK;
    case CSR_COUNT_L: *ret = (uint32_t)t->now; return EXEC_OK;
    case CSR_COUNT_U: *ret = (uint32_t)(t->now >> 32); return EXEC_OK;
    case CSR_CTXT_STS:
        *ret = context_states(t) | (t->csr[CSR_CTXT_STS] & 0xF8000000u);
        return EXEC_OK;
    default:
        if (number < 0 || sup_mask(number) == 0) {
            return ETYPE_INVALID_OP;
        }
        *ret = t->csr[number];
        return EXEC_OK;
    }
}

static int sup_put(struct tile *t, int number, uint32_t value) {
    switch (number) {
    case CSR_PC:
    case CSR_SR:
    case CSR_TILE_ID:
    case CSR_COUNT_L:
    case CSR_COUNT_U:
    case CSR_CTXT_STS: return EXEC_OK; /* read-only: accepted and dropped */
    case CSR_CR:
        if ((value & 1) != 0) {
            t->consensus = false;
        }
        if ((value & 2) != 0) {
            t->consensus = true;
        }
        if ((value & 4) != 0) {
            cwei_clear(t);
        }
        return EXEC_OK;
    case CSR_W0_BASE ... CSR_W5_BASE:
        if (t->ctx[number - CSR_W0_BASE + 1].state == 1) {
            return ETYPE_INVALID_INSTR;
        }
        t->csr[number] = value & 0xFFFFFu;
        t->ctx[number - CSR_W0_BASE + 1].m[12] = value & 0xFFFFFu;
        return EXEC_OK;
    default:
        if (sup_mask(number) == 0) {
            return ETYPE_INVALID_OP;
        }
        t->csr[number] = value & sup_mask(number);
        return EXEC_OK;
    }
}

static int worker_get_upper(const struct context *c, int number, uint32_t *ret) {
    switch (number) {
    case CSR_FP_STS: *ret = c->fp_sts; return EXEC_OK;
    case CSR_FP_CLR:
    case CSR_PRNG_SEED: *ret = 0; return EXEC_OK;
    case CSR_FP_CTL: *ret = c->fp_ctl; return EXEC_OK;
    case CSR_PRNG_0_0:
    case CSR_PRNG_0_1:
    case CSR_PRNG_1_0:
    case CSR_PRNG_1_1:
        number -= CSR_PRNG_0_0;
        *ret = (uint32_t)(c->prng[number >> 1] >> 32 * (number & 1));
        return EXEC_OK;
    case CSR_TAS: *ret = c->tas; return EXEC_OK;
    case CSR_FP_NFMT: *ret = c->fp_nfmt; return EXEC_OK;
    case CSR_FP_SCL: *ret = c->fp_scl; return EXEC_OK;
    default: return ETYPE_INVALID_OP;
    }
}

static int worker_get(const struct tile *t, const struct context *c, int number, uint32_t *ret) {
    switch (number) {
    case CSR_PC: *ret = c->pc; return EXEC_OK;
    case CSR_SR:
        *ret = (uint32_t)(c->index - 1) | (uint32_t)c->etype << 4 | (uint32_t)c->erpt << 9;
        return EXEC_OK;
    case CSR_VERTEX_BASE: *ret = c->m[13]; return EXEC_OK;
    case CSR_WORKER_BASE: *ret = c->m[12]; return EXEC_OK;
    case CSR_REPEAT_COUNT: *ret = c->rpt_count; return EXEC_OK;
    case CSR_REPEAT_FIRST: *ret = c->rpt_first; return EXEC_OK;
    case CSR_REPEAT_END: *ret = c->rpt_end; return EXEC_OK;
    case CSR_COUNT_L: *ret = (uint32_t)t->now; return EXEC_OK;
    case CSR_COUNT_U: *ret = (uint32_t)(t->now >> 32); return EXEC_OK;
    case CSR_DBG_DATA: *ret = t->csr[CSR_DBG_DATA]; return EXEC_OK; /* one a tile */
    case CSR_DBG_BRK_ID: *ret = c->dbg_brk_id; return EXEC_OK;
    default: return worker_get_upper(c, number, ret);
    }
}

static void prng_set(struct context *c, int word, uint32_t value) {
    uint64_t *half = &c->prng[word >> 1];
    int shift = 32 * (word & 1);

    *half = (*half & ~((uint64_t)0xFFFFFFFFu << shift)) | (uint64_t)value << shift;
}

static void prng_seed(struct context *c, uint32_t v) {
    prng_set(c, 0, v);
    prng_set(c, 1, ~v);
    prng_set(c, 2, v << 13 | ~v >> 19);
    prng_set(c, 3, ~v << 13 | v >> 19);
}

static int worker_put_upper(struct context *c, int number, uint32_t value) {
    switch (number) {
    case CSR_FP_STS: return EXEC_OK;
    case CSR_FP_CLR:
        c->fp_sts &= ~(value & 7);
        if ((value & 8) != 0) {
            memset(c->even, 0, sizeof c->even);
            memset(c->odd, 0, sizeof c->odd);
        }
        return EXEC_OK;
    case CSR_FP_CTL: c->fp_ctl = value & FP_CTL_MASK; return EXEC_OK;
    case CSR_PRNG_0_0:
    case CSR_PRNG_0_1:
    case CSR_PRNG_1_0:
    case CSR_PRNG_1_1: prng_set(c, number - CSR_PRNG_0_0, value); return EXEC_OK;
    case CSR_PRNG_SEED: prng_seed(c, value); return EXEC_OK;
    case CSR_TAS: c->tas = value; return EXEC_OK;
    case CSR_FP_NFMT: c->fp_nfmt = (c->fp_nfmt & 1) | (value & 2); return EXEC_OK;
    case CSR_FP_SCL: c->fp_scl = value & 0x3F; return EXEC_OK;
    default: return ETYPE_INVALID_OP;
    }
}

int csr_get(struct tile *t, struct context *c, int number, uint32_t *ret) {
    return c->index == 0 ? sup_get(t, c, number, ret) : worker_get(t, c, number, ret);
}

int csr_put(struct tile *t, struct context *c, int number, uint32_t value) {
    uint32_t unused;

    if (c->index == 0) {
        return sup_put(t, number, value);
    }
    if (number >= CSR_UPPER) {
        return worker_put_upper(c, number, value);
    }
    if (number == CSR_DBG_DATA) {
        t->csr[CSR_DBG_DATA] = value;
        return EXEC_OK;
    }
    return worker_get(t, c, number, &unused); /* others: read-only, or unknown */
}

static bool poke_sup(struct tile *t, struct context *c, int number, uint32_t value) {
    switch (number) {
    case CSR_PC: c->pc = value & ADDR_MASK; return true;
    case CSR_SR:
        t->consensus = value & 1;
        t->raerr = value >> 3 & 1;
        c->etype = value >> 4 & 15;
        t->csr[CSR_SR] = value & 0x206u;
        return true;
    case CSR_CTXT_STS: t->csr[CSR_CTXT_STS] = value & 0xF8000000u; return true;
    case CSR_TILE_ID:
    case CSR_COUNT_L:
    case CSR_COUNT_U: return false;
    default: return number != CSR_CR && sup_put(t, number, value) == EXEC_OK;
    }
}

bool csr_poke(struct tile *t, struct context *c, int number, uint32_t value) {
    if (c->index == 0) {
        return poke_sup(t, c, number, value);
    }
    switch (number) {
    case CSR_PC: c->pc = value & ADDR_MASK; return true;
    case CSR_SR:
        c->etype = value >> 4 & 15;
        c->erpt = value >> 9 & 1;
        return true;
    case CSR_VERTEX_BASE: c->m[13] = value & 0xFFFFCu; return true;
    case CSR_WORKER_BASE: c->m[12] = value & 0xFFFFFu; return true;
    case CSR_REPEAT_COUNT: c->rpt_count = value & 0xFFFFu; return true;
    case CSR_REPEAT_FIRST: c->rpt_first = value & 0xFFFF8u; return true;
    case CSR_REPEAT_END: c->rpt_end = value & 0xFFFF8u; return true;
    case CSR_DBG_BRK_ID: c->dbg_brk_id = value & 1; return true;
    case CSR_FP_STS: c->fp_sts = value & 7; return true;
    case CSR_FP_NFMT: c->fp_nfmt = value & 3; return true;
    default: return csr_put(t, c, number, value) == EXEC_OK;
    }
}

EXEC(get_mmmn_zi) {
    uint32_t value;
    int fault = csr_get(t, c, d->imm, &value);

    if (fault == EXEC_OK) {
        WM(A) = value;
    }
    return fault;
}

EXEC(put_mmmn_zi) {
    return csr_put(t, c, d->imm, RM(A));
}

EXEC(uget_aaan_zi) {
    uint32_t value;
    int fault = csr_get(t, c, CSR_UPPER + d->imm, &value);

    if (fault == EXEC_OK) {
        WA(A) = value;
    }
    return fault;
}

EXEC(uput_aaan_zi) {
    return csr_put(t, c, CSR_UPPER + d->imm, RA(A));
}
