/* See sweep.h. Each operand gets elements of its own in the class that its contract asks for,
 * filled with ones; the call runs on a bare tile between two readings of the cycle counter. */
#include "sweep.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "asm/asm.h"
#include "base/arena.h"
#include "base/cleanup.h"
#include "sim/sim.h"
#include "target/target.h"

#define TEXT_BASE   0x4C010u
#define TEXT_LIMIT  0x4FFC0u
#define DESCRIPTOR  0x51800u
#define AREAS       0x51200u /* of the workers */
#define AREA_BYTES  0x100u
#define REGION0     0x54000u
#define REGION1     0x80000u
#define REGION1_END 0xE7BB0u
#define ELEMENT     0x4000u
#define PAIR        0x8000u
#define CYCLE_LIMIT 20000000u
#define ONES        0x3C00u /* f16 1; as f32 it is small and positive */

struct tile {
    struct sim_tile *sim;
    uint8_t *ones; /* owned, a memory full */
};

static void cleanup_tile(struct tile *t) {
    sim_tile_free(t->sim);
    free(t->ones);
}

static int open_tile(struct tile *t, struct err *err) {
    struct sim_options options = {.threads = 1, .trace_tile = -1};
    t->sim = sim_tile_new(&options);
    t->ones = malloc(TARGET_MEM_SIZE);
    if (t->sim == NULL || t->ones == NULL) {
        return err_set(err, ERR_NOMEM, NULL);
    }
    for (uint32_t i = 0; i < TARGET_MEM_SIZE; i += 2) {
        t->ones[i] = ONES & 0xff;
        t->ones[i + 1] = ONES >> 8;
    }
    sim_tile_zero(t->sim);
    return 0;
}

/* Kernel and caller; *ret is the entry. */
static int
load_code(struct tile *t, const struct kernel_variant *v, uint32_t *ret, struct err *err) {
    struct arena a;
    char symbol[48], caller[256];
    arena_init(&a, 64u << 20);
    snprintf(
        caller, sizeof caller,
        ".supervisor\n.globl start\nstart:\n setzi $m2, %u\n get $m11, $SCOUNT_L\n"
        " call $m10, %s\n get $m9, $SCOUNT_L\n trap 0\n",
        DESCRIPTOR, kernel_symbol(v, symbol, sizeof symbol));
    if (ARENA_RECOVER(&a)) {
        arena_done(&a);
        return err_set(err, ERR_NOMEM, "%s", symbol);
    }
    struct asm_source source = {"caller", caller, strlen(caller)};
    struct asm_object *objects[2];
    struct asm_placement place = {".text", TEXT_BASE, TEXT_LIMIT};
    struct asm_image *image = NULL;
    int r = asm_assemble(&source, ISA_SUPERVISOR, NULL, 0, &a, &objects[0], err);
    r = r < 0 ? r : kernel_assemble(v, &a, &objects[1], err);
    r = r < 0 ? r
              : asm_link(
                    (const struct asm_object *const *)objects, 2, &place, 1, NULL, 0, &a, &image,
                    err);
    for (size_t i = 0; r == 0 && i < image->segment_count; i++) {
        r = sim_tile_write(
            t->sim, image->segments[i].addr, image->segments[i].bytes,
            (image->segments[i].size + 3) & ~3u, err);
    }
    r = r < 0 ? r : asm_image_symbol(image, "start", ret, err);
    arena_done(&a);
    return r;
}

static uint32_t round_up(uint32_t x, uint32_t to) {
    return (x + to - 1) / to * to;
}

/* Addresses of all operands; false when they do not fit. */
static bool place_operands(const struct kernel_variant *v, struct sweep_call *c) {
    struct kernel_operand operands[6];
    int count = 0;
    uint32_t at0 = REGION0, at1 = REGION1;
    kernel_operands(v, operands, &count);
    for (int pass = 0; pass < 2; pass++) { /* those of region 1 first */
        for (int i = 0; i < count; i++) {
            const struct kernel_operand *o = &operands[i];
            uint32_t bytes = c->bytes[o->word] + o->over_read + 16;
            if ((o->memory == MEMORY_REGION1) != (pass == 0)) {
                continue;
            }
            uint32_t size0 = round_up(bytes, ELEMENT), size1 = round_up(bytes, PAIR);
            bool in_0 = o->memory != MEMORY_REGION1 && at0 + size0 <= REGION1;
            if (!in_0 && (o->memory == MEMORY_REGION0 || at1 + bytes > REGION1_END)) {
                return false;
            }
            c->words[o->word] = in_0 ? at0 : at1;
            *(in_0 ? &at0 : &at1) += in_0 ? size0 : size1;
        }
    }
    return true;
}

static int
write_filled(struct tile *t, uint32_t addr, uint32_t bytes, uint32_t word, struct err *err) {
    int r = 0;
    for (uint32_t i = 0; i < bytes && r == 0; i += 4) {
        r = sim_tile_write(t->sim, addr + i, &word, sizeof word, err);
    }
    return r;
}

static int write_operands(
    struct tile *t, const struct kernel_variant *v, const struct sweep_call *c, struct err *err) {
    struct kernel_operand operands[6];
    int count = 0, r = 0;
    kernel_operands(v, operands, &count);
    for (int i = 0; i < count && r == 0; i++) {
        uint32_t bytes = round_up(c->bytes[operands[i].word] + operands[i].over_read, 4);
        uint32_t word = operands[i].word, addr = c->words[word];
        r = c->fill[word] != 0 ? write_filled(t, addr, bytes, c->fill[word], err)
                               : sim_tile_write(t->sim, addr, t->ones, bytes, err);
    }
    return r;
}

/* One call; *ret_cycles stays when the operands do not fit on a tile. */
static int time_call(
    struct tile *t, const struct sweep_kernel *k, const struct kernel_variant *v,
    const uint32_t *dims, uint32_t entry, uint32_t *ret_cycles, struct err *err) {
    struct sweep_call c = {0};
    k->fill(v, dims, &c);
    if (!place_operands(v, &c)) {
        return 0;
    }
    int r = write_operands(t, v, &c, err);
    r = r < 0 ? r : sim_tile_write(t->sim, DESCRIPTOR, c.words, sizeof c.words, err);
    for (uint32_t w = 0; w < 6 && r == 0; w++) {
        r = sim_tile_set(t->sim, SIM_SUPERVISOR, 's', 0x21 + (int)w, AREAS + AREA_BYTES * w, err);
    }
    r = r < 0 ? r : sim_tile_set(t->sim, SIM_SUPERVISOR, 'p', 0, entry, err);
    if (r < 0) {
        return r;
    }
    struct sim_stopped stopped;
    sim_tile_start(t->sim, SIM_SUPERVISOR);
    sim_tile_run(t->sim, CYCLE_LIMIT, &stopped);
    if (stopped.why != SIM_STOP_EXCEPTION || stopped.context != SIM_SUPERVISOR ||
        stopped.etype != 2) {
        char symbol[48];
        return err_set(
            err, ERR_TILE_FAULT,
            "%s %u %u %u %u does not return: stopped by %d, context %d, exception %d at 0x%x",
            kernel_symbol(v, symbol, sizeof symbol), dims[0], dims[1], dims[2], dims[3],
            (int)stopped.why, stopped.context, stopped.etype, stopped.pc);
    }
    uint64_t from = 0, to = 0;
    sim_tile_get(t->sim, SIM_SUPERVISOR, 'm', 11, &from, NULL);
    sim_tile_get(t->sim, SIM_SUPERVISOR, 'm', 9, &to, NULL);
    *ret_cycles = (uint32_t)(to - from);
    return 0;
}

static int sweep_variant(
    struct tile *t, const struct sweep_kernel *k, const struct kernel_variant *v, uint32_t first,
    uint32_t stride, sweep_fn *fn, void *arg, struct err *err) {
    uint32_t entry = 0;
    int r = load_code(t, v, &entry, err);
    for (uint32_t i = first; r == 0 && i < SWEEP_SHAPES && k->shapes[i][0] > 0; i += stride) {
        struct sweep_point p = {.variant = *v};
        memcpy(p.dims, k->shapes[i], sizeof p.dims);
        r = time_call(t, k, v, p.dims, entry, &p.measured, err);
        if (r == 0 && p.measured > 0) {
            p.predicted = kernel_cycles(v, p.dims);
            fn(&p, arg);
        }
    }
    return r;
}

/* A GEMM whose result stays f32 has neither bias nor activation (kernels.h). */
static bool is_called(const struct kernel_variant *v) {
    bool is_raw = v->id == KERNEL_GEMM_AMP && v->out_f32;
    return !(is_raw && (v->has_bias || v->act != ACT_NONE)) && kernel_variant_exists(v);
}

int sweep_run(enum kernel_id id, uint32_t stride, sweep_fn *fn, void *arg, struct err *err) {
    const struct sweep_kernel *k = sweep_kernel(id);
    if (k == NULL) {
        return err_set(
            err, ERR_NOT_FOUND, "kernel %s has no row in tests/calibrate/shapes.c",
            kernel_info(id)->name);
    }
    CLEANUP(cleanup_tile) struct tile t = {0};
    int r = open_tile(&t, err);
    uint32_t turn = 0;
    for (uint32_t op = 0; op < 16; op++) {
        for (uint32_t form = 0; form < (k->fields & SWEEP_FORM ? FORM_COUNT : 1); form++) {
            for (int act = 0; act < ACT_COUNT; act++) {
                for (uint32_t bits = 0; bits < SWEEP_FORM && r == 0; bits++) {
                    struct kernel_variant v = {
                        .id = id,
                        .act = (enum kernel_act)act,
                        .has_bias = bits & SWEEP_BIAS,
                        .out_f32 = bits & SWEEP_F32,
                        .w_region1 = bits & SWEEP_REGION1,
                        .in_f16 = bits & SWEEP_IN_F16,
                        .accumulates = bits & SWEEP_ACCUMULATES,
                        .has_residual = bits & SWEEP_RESIDUAL,
                        .op = (uint8_t)op,
                        .form = (uint8_t)form};
                    if ((bits & ~k->fields) == 0 && is_called(&v)) {
                        r = sweep_variant(&t, k, &v, turn++ % stride, stride, fn, arg, err);
                    }
                }
            }
        }
    }
    return r;
}

/* ---- Summary -------------------------------------------------------------------------------- */

struct gathered {
    struct sweep_summary *s;
    double *errors;
    uint32_t cap;
    struct kernel_variant last;
    double sx, sy, sxx, sxy;
};

static void gather(const struct sweep_point *p, void *arg) {
    struct gathered *g = arg;
    struct sweep_summary *s = g->s;
    double x = p->predicted, y = p->measured, error = x / y - 1;
    if (s->points == g->cap) {
        uint32_t cap = 2 * g->cap + 256;
        double *grown = realloc(g->errors, cap * sizeof *grown);
        if (grown == NULL) {
            return;
        }
        g->errors = grown;
        g->cap = cap;
    }
    s->variants += s->points == 0 || !kernel_variant_equal(&g->last, &p->variant);
    g->last = p->variant;
    g->errors[s->points++] = fabs(error);
    s->mean += error;
    if (fabs(error) >= s->worst) {
        s->worst = fabs(error);
        s->worst_point = *p;
    }
    g->sx += x;
    g->sy += y;
    g->sxx += x * x;
    g->sxy += x * y;
}

static int by_value(const void *pa, const void *pb) {
    double a = *(const double *)pa, b = *(const double *)pb;
    return (a > b) - (a < b);
}

int sweep_summary(enum kernel_id id, uint32_t stride, struct sweep_summary *ret, struct err *err) {
    memset(ret, 0, sizeof *ret);
    struct gathered g = {.s = ret};
    int r = sweep_run(id, stride, gather, &g, err);
    double n = ret->points;
    if (r == 0 && n > 0) {
        qsort(g.errors, ret->points, sizeof *g.errors, by_value);
        ret->median = g.errors[ret->points / 2];
        ret->p95 = g.errors[(ret->points * 95 - 1) / 100];
        ret->mean /= n;
        double d = n * g.sxx - g.sx * g.sx;
        ret->slope = d > 0 ? (n * g.sxy - g.sx * g.sy) / d : 1;
        ret->offset = (g.sy - ret->slope * g.sx) / n;
    }
    free(g.errors);
    return r;
}
