/* One bare tile for tools and tests: the sim_tile_ calls of sim.h. */
#include <endian.h>
#include <stdlib.h>

#include "base/err.h"
#include "sim/tile.h"

struct sim_tile {
    struct tile *t;
};

struct sim_tile *sim_tile_new(const struct sim_options *options) {
    struct sim_tile *s = malloc(sizeof *s);

    if (s == NULL) {
        return NULL;
    }
    s->t = tile_new(0, options);
    if (s->t == NULL) {
        free(s);
        return NULL;
    }
    return s;
}

void sim_tile_free(struct sim_tile *s) {
    if (s != NULL) {
        tile_free(s->t);
        free(s);
    }
}

void sim_tile_zero(struct sim_tile *s) {
    mem_zero(s->t);
}

static int check_range(uint32_t addr, uint32_t n, struct err *err) {
    if ((addr & 3) != 0 || (n & 3) != 0) {
        return err_set(
            err, ERR_INVALID, "tile memory 0x%x, %u bytes: not a multiple of 4", addr, n);
    }
    if (addr < TARGET_MEM_BASE || addr > TARGET_MEM_END || n > TARGET_MEM_END - addr) {
        return err_set(
            err, ERR_INVALID, "tile memory 0x%x, %u bytes: outside 0x%x..0x%x", addr, n,
            TARGET_MEM_BASE, TARGET_MEM_END);
    }
    return 0;
}

int sim_tile_write(
    struct sim_tile *s, uint32_t addr, const void *bytes, uint32_t n, struct err *err) {
    const uint8_t *b = bytes;
    int r = check_range(addr, n, err);

    for (uint32_t i = 0; r == 0 && i < n; i += 4) {
        uint32_t word =
            b[i] | (uint32_t)b[i + 1] << 8 | (uint32_t)b[i + 2] << 16 | (uint32_t)b[i + 3] << 24;
        if (!mem_store32(s->t, addr + i, word)) {
            return err_set(err, ERR_NOMEM, "out of memory for tile memory");
        }
    }
    return r;
}

int sim_tile_read(struct sim_tile *s, uint32_t addr, void *ret, uint32_t n, struct err *err) {
    uint8_t *b = ret;
    int r = check_range(addr, n, err);

    for (uint32_t i = 0; r == 0 && i < n; i += 4) {
        const struct page *p = &s->t->pages[(addr + i - TARGET_MEM_BASE) / PAGE_BYTES];
        uint32_t word = htole32(p->words[(addr + i) / 4 % PAGE_WORDS]);
        memcpy(b + i, &word, sizeof word); /* looking is no poison read */
    }
    return r;
}

/* ---- registers ------------------------------------------------------------------------------- */

static int file_size(char file) {
    switch (file) {
    case 'm':
    case 'a': return 16;
    case 'c': return 32;
    case 'w': return 64;
    case 's': return 512;
    case 'p': return 1;
    default: return 0;
    }
}

static int check_register(int context, char file, int number, struct err *err) {
    if (context < 0 || context >= TILE_CONTEXTS) {
        return err_set(
            err, ERR_INVALID, "context %d: there are 0 to %d", context, TILE_CONTEXTS - 1);
    }
    if (number < 0 || number >= file_size(file)) {
        return err_set(err, ERR_INVALID, "register file '%c' has no number %d", file, number);
    }
    return 0;
}

int sim_tile_set(
    struct sim_tile *s, int context, char file, int number, uint64_t value, struct err *err) {
    struct context *c;
    int r = check_register(context, file, number, err);

    if (r != 0) {
        return r;
    }
    c = &s->t->ctx[context];
    switch (file) {
    case 'm':
        if (number < 12 || (context > 0 && number < 14)) {
            c->m[number] = (uint32_t)value;
            return 0;
        }
        break;
    case 'a':
        if (number < 8) {
            c->a[number] = (uint32_t)value;
            return 0;
        }
        break;
    case 'c': acc_set(c, number, (uint32_t)value); return 0;
    case 'w': cwei_set(s->t, (uint32_t)number, value); return 0;
    case 'p': c->pc = (uint32_t)value & ADDR_MASK; return 0;
    default:
        if (csr_poke(s->t, c, number, (uint32_t)value)) {
            return 0;
        }
    }
    if (value == 0) {
        return 0;
    }
    return err_set(
        err, ERR_INVALID, "register '%c' %d of context %d cannot be set", file, number, context);
}

int sim_tile_get(
    struct sim_tile *s, int context, char file, int number, uint64_t *ret, struct err *err) {
    const struct context *c;
    uint32_t value;
    int r = check_register(context, file, number, err);

    if (r != 0) {
        return r;
    }
    c = &s->t->ctx[context];
    switch (file) {
    case 'm': *ret = c->m[number]; return 0;
    case 'a': *ret = c->a[number]; return 0;
    case 'c': *ret = acc_get(c, number); return 0;
    case 'w': *ret = s->t->cwei[number]; return 0;
    case 'p': *ret = c->pc; return 0;
    default:
        if (csr_get(s->t, &s->t->ctx[context], number, &value) != EXEC_OK) {
            return err_set(err, ERR_INVALID, "context %d has no CSR %d", context, number);
        }
        *ret = value;
        return 0;
    }
}

/* ---- running --------------------------------------------------------------------------------- */

void sim_tile_start(struct sim_tile *s, int context) {
    struct tile *t = s->t;
    struct context *c;

    if (context < 0 || context >= TILE_CONTEXTS || t->ctx[context].state == 1) {
        return;
    }
    c = &t->ctx[context];
    if (context == 0) {
        tile_start_supervisor(t, c->pc, t->now);
    } else {
        worker_activate(t, c, t->now);
    }
}

static void
describe(const struct tile *t, int context, enum sim_stop why, struct sim_stopped *ret) {
    ret->why = why;
    ret->context = context;
    ret->etype = t->ctx[context].etype;
    ret->pc = t->ctx[context].pc;
}

/* By hand there is no barrel: the context's instructions follow each other one turn apart. */
void sim_tile_step(struct sim_tile *s, int context, uint64_t groups, struct sim_stopped *ret) {
    struct tile *t = s->t;
    struct context *c;
    uint64_t from = t->now, before = t->groups;
    uint8_t latency;
    int r = EXEC_OK;

    memset(ret, 0, sizeof *ret);
    if (context < 0 || context >= TILE_CONTEXTS) {
        ret->why = SIM_STOP_IDLE;
        return;
    }
    c = &t->ctx[context];
    for (uint64_t i = 0; i < groups && r == EXEC_OK; i++) {
        if (t->trace != NULL) {
            trace_group(t, c);
        }
        r = step_group(t, c, &latency);
        t->now += TIME_TURN;
    }
    if (r == EXEC_OK) {
        describe(t, context, SIM_STOP_STEPS, ret);
    } else if (r < EXEC_EXIT) {
        fault_set(t, c, r);
        describe(t, context, SIM_STOP_EXCEPTION, ret);
    } else {
        if (r == EXEC_EXIT) {
            worker_retire(t, c);
        }
        describe(t, context, SIM_STOP_IDLE, ret);
    }
    ret->cycles = t->now - from;
    ret->groups = t->groups - before;
}

static int faulted_context(const struct tile *t) {
    for (int i = 0; i < TILE_CONTEXTS; i++) {
        if (t->ctx[i].state >= 2) {
            return i;
        }
    }
    return 0;
}

void sim_tile_run(struct sim_tile *s, uint64_t max_cycles, struct sim_stopped *ret) {
    struct tile *t = s->t;
    uint64_t from = t->now, before = t->groups;
    uint64_t until = max_cycles > TILE_NEVER - 1 - from ? TILE_NEVER - 1 : from + max_cycles;
    enum tile_event event = tile_run(t, until);

    memset(ret, 0, sizeof *ret);
    switch (event) {
    case TILE_FAULT: describe(t, faulted_context(t), SIM_STOP_EXCEPTION, ret); break;
    case TILE_LIMIT:
        describe(t, 0, SIM_STOP_CYCLES, ret);
        t->now = until;
        break;
    default: describe(t, 0, SIM_STOP_IDLE, ret); break;
    }
    ret->cycles = t->now - from;
    ret->groups = t->groups - before;
}

int sim_tile_exit_status(const struct sim_tile *s, int context) {
    if (context < 1 || context >= TILE_CONTEXTS) {
        return -1;
    }
    return s->t->ctx[context].exit_status;
}
