/* Shared by compile.c, passes.c and exchange.c: the job's state between passes, and the shape of a
 * pass. */
#ifndef COMPILE_COMPILE_INTERNAL_H
#define COMPILE_COMPILE_INTERNAL_H

#include "compile/compile.h"
#include "compile/schedules.h"
#include "emit/emit.h"
#include "exchange/build.h"
#include "lower/lower.h"
#include "place/place.h"
#include "plan/plan.h"

/* Products of passes, as bits: what a pass needs and makes. */
enum compile_product {
    MADE_GRAPH = 1 << 0,
    MADE_FINALISTS = 1 << 1,
    MADE_TILE_GRAPH = 1 << 2, /* with a provisional placement and schedule */
    MADE_RUNTIME = 1 << 3,
    MADE_KERNEL_LIST = 1 << 4,
    MADE_KERNELS = 1 << 5,
    MADE_TEXT = 1 << 6,
    MADE_SIZES = 1 << 7,
    MADE_PLACEMENT = 1 << 8,
    MADE_EXCHANGE = 1 << 9,
    MADE_LAYOUT = 1 << 10,
    MADE_CODE = 1 << 11,
    MADE_PACKAGE = 1 << 12,
};

struct compile_state {
    const struct compile_job *job;
    struct compile_result *result;
    struct arena_pool memory;    /* of the three arenas */
    struct arena arena;          /* owns all products but the exchange */
    struct arena exchanges;      /* owns exchange plans: the largest product, and made twice */
    struct arena scratch;        /* rewound after each pass and verifier */
    struct schedules *schedules; /* owned */
    uint32_t made;               /* bits of enum compile_product */
    const char *at;              /* pass that runs, for messages */
    /* Products. */
    enum plan_repeats repeats; /* how the finalists treat equal blocks */
    struct plan_set *finalists;
    struct tile_graph *tg;
    struct asm_object *runtime;
    struct emit_kernels kernels;
    struct emit_text *text;
    struct emit_index index;
    struct emit_samples *samples;
    struct emit_host *host;
    struct emit_layout *layout;
    uint8_t *overflow_elements; /* reserved for code, by logical tile */
    struct placement *placement;
    struct exchange_plan *exchange;
    bool is_provisional; /* placement of the finalist is not the final one */
    struct emit_code *code;
    struct package *package;
};

struct compile_pass {
    const char *name;
    uint32_t needs, makes;
    int (*run)(struct compile_state *s, struct err *err);
    int (*verify)(struct compile_state *s, struct err *err); /* NULL: nothing to check */
    void (*print)(struct compile_state *s, FILE *out);       /* NULL: nothing to show */
    const char *stage;                                       /* name for --print, or NULL */
};

extern const struct compile_pass compile_passes[];
extern const uint32_t compile_pass_count;

/* passes.c */
struct place_options compile_place_options(const uint8_t *overflow, uint32_t shift);
struct emit_context compile_context(const struct compile_state *s);
int compile_build_exchange(
    struct compile_state *s, const struct placement *p, struct exchange_plan **ret,
    struct err *err);

/* exchange.c */
void compile_report_exchange(struct compile_state *s, const struct exchange_plan *x);
int compile_optimize_placement(struct compile_state *s, struct err *err);

/* fields: format of one JSON object's members. */
void compile_event(
    struct compile_state *s, const char *event, const char *message, const char *fields, ...)
    __attribute__((format(printf, 4, 5)));

#endif
