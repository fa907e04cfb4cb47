/* Loads and stores (tile fact sheet 1.7, 2.3, 2.4). Addresses are sums modulo 2^32 and are checked
 * as such; only packed addresses have 21 bits. Every function checks all addresses first:
 * validity and alignment of each, then clashes with the fetch and with each other, and only then
 * touches memory or registers. A store that has happened stays even if the other half of its
 * bundle faults later, as on the device. */
#include "sim/exec.h"

/* ---- one access ------------------------------------------------------------------------------ */

static inline uint32_t load8(struct tile *t, uint32_t addr) {
    return mem_load32(t, addr & ~3u) >> (addr & 3) * 8 & 0xFFu;
}

static inline uint32_t load16(struct tile *t, uint32_t addr) {
    return mem_load32(t, addr & ~3u) >> (addr & 2) * 8 & 0xFFFFu;
}

static inline uint32_t twice16(uint32_t half) {
    return half | half << 16;
}

/* Two destinations of one instruction must differ, the sink apart. */
static inline bool is_same_written(const struct dec *d, int x, int y) {
    return d->w[x] == d->w[y] && d->w[x] < SINK;
}

#define EA_IMM(size) (RM(A) + RM(B) + (uint32_t)d->imm * (size))
#define EA_REG(size) (RM(A) + RM(B) + RM(C) * (size))
#define EA_STEP      (RM(A) + RM(B))

/* The four forms of a load: offset immediate or register, step immediate or register. `put`
 * stores what lies at `ea` into letter D. is_m: the destination is an $m, so that it can collide
 * with the pointer of a step form. */
#define LOAD_AT(id, size, region, ea_expr, put)                                                    \
    EXEC(id) {                                                                                     \
        uint32_t ea = (ea_expr);                                                                   \
        int fault = mem_check(c, ea, size);                                                        \
        if ((region) && fault != ETYPE_INVALID_ADDR && ea < TARGET_REGION1) {                      \
            fault = ETYPE_INVALID_ADDR;                                                            \
        }                                                                                          \
        if (fault != EXEC_OK) {                                                                    \
            return fault;                                                                          \
        }                                                                                          \
        put;                                                                                       \
        return EXEC_OK;                                                                            \
    }
#define LOAD_STEP(id, size, region, is_m, step_expr, put)                                          \
    EXEC(id) {                                                                                     \
        uint32_t ea = EA_STEP, after = RM(B) + (step_expr) * (size);                               \
        int fault = mem_check(c, ea, size);                                                        \
        if ((is_m) && is_same_written(d, B, D)) {                                                  \
            return ETYPE_INVALID_OP;                                                               \
        }                                                                                          \
        if ((region) && fault != ETYPE_INVALID_ADDR && ea < TARGET_REGION1) {                      \
            fault = ETYPE_INVALID_ADDR;                                                            \
        }                                                                                          \
        if (fault != EXEC_OK) {                                                                    \
            return fault;                                                                          \
        }                                                                                          \
        put;                                                                                       \
        WM(B) = after;                                                                             \
        return EXEC_OK;                                                                            \
    }
#define LOADS_M(name, size, put)                                                                   \
    LOAD_AT(name##_mmmn_zi, size, false, EA_IMM(size), put)                                        \
    LOAD_AT(name##_mmmn, size, false, EA_REG(size), put)                                           \
    LOAD_STEP(name##step_mmmn_si, size, false, true, (uint32_t)d->imm, put)                        \
    LOAD_STEP(name##step_mmmn, size, false, true, RM(C), put)
#define LOADS_A(name, size, region, put)                                                           \
    LOAD_AT(name##_mman_zi, size, region, EA_IMM(size), put)                                       \
    LOAD_AT(name##_mman, size, region, EA_REG(size), put)                                          \
    LOAD_STEP(name##step_mmbn_si, size, region, false, (uint32_t)d->imm, put)                      \
    LOAD_STEP(name##step_mmbn, size, region, false, RM(C), put)

static inline void load_words(struct tile *t, uint32_t *ret, uint32_t addr, uint32_t n) {
    if (n == 1) {
        ret[0] = mem_load32(t, addr);
        return;
    }
    for (uint32_t i = 0; i < n; i += 2) {
        mem_load64(t, addr + 4 * i, ret + i);
    }
}

LOADS_M(ld32, 4, WM(D) = mem_load32(t, ea))
LOADS_M(lds16, 2, WM(D) = (uint32_t)(int16_t)load16(t, ea))
LOADS_M(ldz16, 2, WM(D) = load16(t, ea))
LOADS_M(lds8, 1, WM(D) = (uint32_t)(int8_t)load8(t, ea))
LOADS_M(ldz8, 1, WM(D) = load8(t, ea))
LOADS_A(ld32, 4, false, WA(D) = mem_load32(t, ea))
LOADS_A(ld64, 8, false, load_words(t, &WA(D), ea, 2))
LOADS_A(ld128, 16, true, load_words(t, &WA(D), ea, 4))
LOADS_A(ldb16, 2, false, WA(D) = twice16(load16(t, ea)))
LOADS_A(ldb8, 1, false, WA(D) = load8(t, ea) * 0x01010101u)

/* One word or two. */
static inline int store_words(
    struct tile *t, const struct context *c, uint32_t addr, const uint32_t *words, uint32_t n) {
    int fault = mem_check(c, addr, 4 * n);

    if (fault != EXEC_OK) {
        return fault;
    }
    return (n == 1 ? mem_store32(t, addr, words[0]) : mem_store64(t, addr, words)) ? EXEC_OK
                                                                                   : ETYPE_MEMERR;
}

#define STORE_AT(id, n, ea_expr, data)                                                             \
    EXEC(id) {                                                                                     \
        return store_words(t, c, (ea_expr), &(data), n);                                           \
    }
#define STORE_STEP(id, n, step_expr, data)                                                         \
    EXEC(id) {                                                                                     \
        uint32_t after = RM(B) + (step_expr)*4u * (n);                                             \
        int fault = store_words(t, c, EA_STEP, &(data), n);                                        \
        if (fault == EXEC_OK) {                                                                    \
            WM(B) = after;                                                                         \
        }                                                                                          \
        return fault;                                                                              \
    }

STORE_AT(st32_mmmn_zi, 1, EA_IMM(4), RM(D))
STORE_STEP(st32step_mmmn_si, 1, (uint32_t)d->imm, RM(D))
STORE_AT(st32_mbmn_zi, 1, EA_IMM(4), RA(D))
STORE_AT(st32_mbmn, 1, EA_REG(4), RA(D))
STORE_STEP(st32step_mbmn_si, 1, (uint32_t)d->imm, RA(D))
STORE_STEP(st32step_mbmn, 1, RM(C), RA(D))
STORE_AT(st64_mbmn_zi, 2, EA_IMM(8), RA(D))
STORE_AT(st64_mbmn, 2, EA_REG(8), RA(D))
STORE_STEP(st64step_mbmn_si, 2, (uint32_t)d->imm, RA(D))
STORE_STEP(st64step_mbmn, 2, RM(C), RA(D))

EXEC(stm32_mmmn) {
    return store_words(t, c, RM(A) + RM(B) * 4, &RM(C), 1);
}

EXEC(stm32step_mmmn) {
    uint32_t after = RM(B) + RM(A) * 4;
    int fault = store_words(t, c, RM(B), &RM(C), 1);

    if (fault == EXEC_OK) {
        WM(B) = after;
    }
    return fault;
}

/* ---- packed addresses ------------------------------------------------------------------------ */

struct access {
    uint32_t addr;
    uint32_t size; /* bytes */
};

static inline uint32_t element_of(uint32_t addr) {
    if (addr < TARGET_REGION1) {
        return (addr - TARGET_MEM_BASE) / TARGET_ELEMENT_BYTES;
    }
    return 13 + (addr - TARGET_REGION1) / (2 * TARGET_ELEMENT_BYTES) * 2 + (addr >> 3 & 1);
}

/* All accesses of one instruction, two or three: each valid, none meeting the fetch, no two in one
 * element. */
static inline __attribute__((always_inline)) int
check_all(const struct context *c, const struct access *x, int n) {
    int fault = EXEC_OK;

#pragma GCC unroll 3
    for (int i = 0; i < n; i++) {
        int f = mem_check(c, x[i].addr, x[i].size);
        if (f == ETYPE_INVALID_ADDR) {
            return f;
        }
        fault |= f;
    }
    if (element_of(x[0].addr) == element_of(x[1].addr) ||
        (n == 3 && (element_of(x[0].addr) == element_of(x[2].addr) ||
                    element_of(x[1].addr) == element_of(x[2].addr)))) {
        fault = ETYPE_CONFLICT;
    }
    return fault;
}

static inline uint32_t pace_a0(const struct context *c, const struct dec *d) {
    return c->m[d->r[B]] & ADDR_MASK;
}

static inline uint32_t pace_a1(const struct context *c, const struct dec *d) {
    return c->m[d->r[B] + 1] & ADDR_MASK;
}

static inline uint32_t pace_a2(const struct context *c, const struct dec *d) {
    return c->m[d->r[B]] >> 21 | (c->m[d->r[B] + 1] >> 21 & 0x3FFu) << 11;
}

/* The address after this use: selector `sel` of the immediate, atoms of `unit` bytes. */
static inline uint32_t pace_next(uint32_t addr, uint32_t strides, uint32_t sel, uint32_t unit) {
    uint32_t atoms = 1;

    if (sel != 0) {
        atoms = (uint32_t)((int32_t)(strides << (32 - 10 * sel)) >> 22);
    }
    return (addr + atoms * unit) & ADDR_MASK;
}

static inline void
pace_write(struct context *c, const struct dec *d, uint32_t a0, uint32_t a1, uint32_t a2) {
    c->m[d->w[B]] = a0 | a2 << 21;
    c->m[d->w[B] + 1] = a1 | (a2 >> 11) << 21;
}

/* Two loads: 64 bits from A0 and `size1` bytes from A1, which is also the second atom. */
static inline int
pace_loads(struct tile *t, struct context *c, const struct dec *d, uint32_t size1) {
    struct access x[2] = {{pace_a0(c, d), 8}, {pace_a1(c, d), size1}};
    uint32_t strides = RM(A), imm = (uint32_t)d->imm, a2 = pace_a2(c, d);
    int fault = check_all(c, x, 2);

    if (fault != EXEC_OK) {
        return fault;
    }
    load_words(t, &WA(C), x[0].addr, 2);
    if (size1 == 8) {
        load_words(t, &WA(D), x[1].addr, 2);
    } else if (size1 == 4) {
        WA(D) = mem_load32(t, x[1].addr);
    } else {
        WA(D) = twice16(load16(t, x[1].addr));
    }
    pace_write(
        c, d, pace_next(x[0].addr, strides, imm & 3, 8),
        pace_next(x[1].addr, strides, imm >> 2 & 3, size1), a2);
    return EXEC_OK;
}

/* Destinations overlap (a pair with its register included). A dummy may not be written twice
 * either, so the register numbers are compared, not the sinks. */
static inline bool pace_collides(const struct dec *d, bool is_pair) {
    return d->r[C] == (is_pair ? d->r[D] : d->r[D] & 0xEu);
}

EXEC(ld2x64pace_mmbn_ef) {
    return pace_collides(d, true) ? ETYPE_INVALID_OP : pace_loads(t, c, d, 8);
}

EXEC(ld64a32pace_mmbn_ef) {
    return pace_collides(d, false) ? ETYPE_INVALID_OP : pace_loads(t, c, d, 4);
}

EXEC(ld64b16pace_mmbn_ef) {
    return pace_collides(d, false) ? ETYPE_INVALID_OP : pace_loads(t, c, d, 2);
}

EXEC(ldst64pace_mbbn_ef) {
    struct access x[2] = {{pace_a0(c, d), 8}, {pace_a2(c, d), 8}};
    uint32_t strides = RM(A), imm = (uint32_t)d->imm, a1 = pace_a1(c, d);
    uint32_t data[2] = {RA2(D, 0), RA2(D, 1)};
    int fault = check_all(c, x, 2);

    if (fault != EXEC_OK) {
        return fault;
    }
    load_words(t, &WA(C), x[0].addr, 2);
    if (!mem_store64(t, x[1].addr, data)) {
        return ETYPE_MEMERR;
    }
    pace_write(
        c, d, pace_next(x[0].addr, strides, imm & 3, 8), a1,
        pace_next(x[1].addr, strides, imm >> 2 & 3, 8));
    return EXEC_OK;
}

EXEC(ld2xst64pace_mbbn_ef) {
    struct access x[3] = {{pace_a0(c, d), 8}, {pace_a1(c, d), 8}, {pace_a2(c, d), 8}};
    uint32_t strides = RM(A), imm = (uint32_t)d->imm;
    uint32_t data[2] = {RA2(D, 0), RA2(D, 1)};
    int fault = check_all(c, x, 3);

    if (fault != ETYPE_INVALID_ADDR && x[1].addr < TARGET_REGION1) {
        fault = ETYPE_INVALID_ADDR; /* the second load must lie in region 1 */
    }
    if (fault != EXEC_OK) {
        return fault;
    }
    load_words(t, &WA2(C, 0), x[0].addr, 2);
    load_words(t, &WA2(C, 2), x[1].addr, 2);
    if (!mem_store64(t, x[2].addr, data)) {
        return ETYPE_MEMERR;
    }
    pace_write(
        c, d, pace_next(x[0].addr, strides, imm & 3, 8),
        pace_next(x[1].addr, strides, imm >> 2 & 3, 8),
        pace_next(x[2].addr, strides, imm >> 4 & 3, 8));
    return EXEC_OK;
}

EXEC(st64pace_mbmn_ef) {
    uint32_t addr = pace_a2(c, d), a0 = pace_a0(c, d), a1 = pace_a1(c, d);
    uint32_t next = pace_next(addr, RM(A), (uint32_t)d->imm & 3, 8);
    int fault = store_words(t, c, addr, &RA(D), 2);

    if (fault == EXEC_OK) {
        pace_write(c, d, a0, a1, next);
    }
    return fault;
}

/* ---- delta-driven loads: data at base + delta, the next delta from a running pointer --------- */

/* Checks and loads the next delta; data bytes are fetched by the caller. */
static inline int delta_loads(
    struct tile *t, struct context *c, const struct dec *d, struct access data, uint32_t delta_size,
    uint32_t *ret, uint32_t words) {
    struct access x[2] = {{RM(B), delta_size}, data};
    uint32_t after = RM(B) + delta_size, delta;
    int fault = check_all(c, x, 2);

    if (is_same_written(d, B, C)) {
        return ETYPE_INVALID_OP;
    }
    if (fault != EXEC_OK) {
        return fault;
    }
    delta = delta_size == 4 ? mem_load32(t, x[0].addr) : load16(t, x[0].addr);
    if (words == 0) {
        *ret = twice16(load16(t, data.addr));
    } else {
        load_words(t, ret, data.addr, words);
    }
    WM(B) = after;
    WM(C) = delta;
    return EXEC_OK;
}

static inline struct access
delta_data(const struct context *c, const struct dec *d, bool high, uint32_t size) {
    uint32_t delta = high ? RM(C) >> 16 : RM(C) & 0xFFFFu;
    struct access x = {RM(A) + delta, size};

    return x;
}

EXEC(ldd16a32_mmbn) {
    return delta_loads(t, c, d, delta_data(c, d, false, 4), 2, &WA(D), 1);
}

EXEC(ldd16a64_mmbn) {
    return delta_loads(t, c, d, delta_data(c, d, false, 8), 2, &WA(D), 2);
}

EXEC(ldd16b16_mmbn) {
    return delta_loads(t, c, d, delta_data(c, d, false, 2), 2, &WA(D), 0);
}

EXEC(ldd16v2a32_mmbn) {
    return delta_loads(t, c, d, delta_data(c, d, true, 4), 4, &WA(D), 1);
}

EXEC(ld64a32_mmbn) {
    struct access x[2] = {{RM(B), 8}, delta_data(c, d, false, 4)};
    uint32_t after = RM(B) + 8;
    int fault = check_all(c, x, 2);

    if (fault != EXEC_OK) {
        return fault;
    }
    load_words(t, &WA2(D, 2), x[0].addr, 2);
    WA2(D, 1) = mem_load32(t, x[1].addr);
    WM(B) = after;
    return EXEC_OK;
}

/* c: two deltas, the upper one dense and the lower one sparse, each modulo 2^16; b: four-bit
 * distances of the sparse side, used up from below. */
EXEC(ldb16b16_mmbn) {
    uint32_t base = RM(A), delta = RM(C), mini = RM(B);
    struct access x[2] = {{base + (delta >> 16), 2}, {base + (delta & 0xFFFFu), 2}};
    int fault = check_all(c, x, 2);

    if (is_same_written(d, B, C)) {
        return ETYPE_INVALID_OP;
    }
    if (fault != EXEC_OK) {
        return fault;
    }
    WA2(D, 0) = twice16(load16(t, x[0].addr));
    WA2(D, 1) = twice16(load16(t, x[1].addr));
    WM(C) = ((delta >> 16) + 2) << 16 | ((delta + 2 * ((mini & 15) + 1)) & 0xFFFFu);
    WM(B) = mini >> 4;
    return EXEC_OK;
}

/* ---- coefficients, supervisor ---------------------------------------------------------------- */

enum { CSR_CCCSLOAD = 0x50 };

static int load_coefficients(struct tile *t, const struct context *c, uint32_t entry, uint32_t n) {
    uint32_t addr = t->csr[CSR_CCCSLOAD];
    int fault = mem_check(c, addr, 8 * n);

    if (entry >= 64 || entry % n != 0) {
        return ETYPE_INVALID_OP;
    }
    if (n == 2 && fault != ETYPE_INVALID_ADDR && addr < TARGET_REGION1) {
        fault = ETYPE_INVALID_ADDR;
    }
    if (fault != EXEC_OK) {
        return fault;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint64_t low = mem_load32(t, addr + 8 * i);
        cwei_set(t, entry + i, low | (uint64_t)mem_load32(t, addr + 8 * i + 4) << 32);
    }
    t->csr[CSR_CCCSLOAD] = addr + 8 * n;
    return EXEC_OK;
}

EXEC(ld64putcs_mmmn_zi) {
    return load_coefficients(t, c, (uint32_t)d->imm, 1);
}

EXEC(ld128putcs_mmmn_zi) {
    return load_coefficients(t, c, (uint32_t)d->imm, 2);
}
