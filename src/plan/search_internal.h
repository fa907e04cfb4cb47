/* Shared by plan.c, extend_gemm.c and extend_local.c only: the search while it runs. */
#ifndef PLAN_SEARCH_INTERNAL_H
#define PLAN_SEARCH_INTERNAL_H

#include "plan/plan_internal.h"

struct choice {
    uint32_t m, n, k;
    struct plan_form form; /* GEMM */
    bool w_region1, is_deferred;
    uint8_t fused;
    const struct plan_dist *dist;
    const struct plan_dist *inputs[PLAN_OPERANDS]; /* of graph inputs first read here, or NULL */
    uint64_t compute, exchange;
};

struct state {
    const struct plan_dist **dist; /* by matrix */
    uint32_t *level;               /* by matrix: superstep whose compute makes it; inputs 0 */
    uint32_t *resident;            /* by tile: parameter bytes */
    uint32_t *region1;             /* by tile: of them in region 1 */
    uint32_t levels;               /* supersteps with an exchange so far */
    uint32_t base;                 /* level before which nothing may run: loops end and start */
    uint64_t cost, exchange;
    uint64_t rank;         /* cost, the price of its parameter bytes, and `ahead` */
    uint64_t ahead;        /* of the siblings of a product to come (extend_lanes) */
    struct footprint most; /* over the steps so far; resident unused */
    const struct state *before;
    struct choice choice; /* of the last step */
};

struct shortage { /* bytes of logical tile 0, which no plan leaves out */
    uint64_t bytes;
    uint64_t before, own; /* parameters of the steps before, and of the step */
    uint64_t transient;   /* the largest step's operands, result, scratch */
    uint64_t region1;     /* of them: interleaved ones */
    uint64_t largest;     /* single buffer */
};

struct search {
    const struct plan *plan; /* fused */
    const struct plan_options *options;
    uint32_t tiles;
    struct arena *arena;
    struct dist_pool pool;
    struct state *states, *next;
    uint32_t count, next_count, next_cap;
    uint32_t *last_use; /* by matrix: last step that reads it; outputs: step_count */
    uint64_t work;
    uint64_t byte_price;     /* 1/256 cycles a parameter byte: 0 until a plan does not fit */
    uint64_t limit0, limit1; /* bytes of the two regions that may be filled */
    struct shortage least;   /* of the step at hand: the rejected choice that needs least */
};

/* Stands for the distribution of a deferred NORM's result. */
extern const struct plan_dist search_deferred;

static inline const struct plan_matrix *matrix(const struct search *q, uint32_t at) {
    return &q->plan->matrices[at];
}

struct draft { /* a choice with what it does to a state, before copying anything */
    struct choice c;
    uint32_t level;
    uint32_t new_levels;
    uint64_t cost, exchange, rank;
    uint64_t ahead;
    struct footprint bytes, most;
    const struct state *from;
    uint64_t kind; /* hash of the live distributions */
};

static inline uint64_t larger(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

/* Level from which on a matrix can be read by the next step. */
static inline uint32_t level_of(const struct state *s, uint32_t matrix) {
    return s->level[matrix] > s->base ? s->level[matrix] : s->base;
}

/* plan.c */
/* Memory of the draft's tiles; false when one is over a limit. Weights go to region 1 while there
 * is room on every tile of the step, else to region 0. */
bool search_fits(struct search *q, const struct plan_step *s, struct draft *d);
/* Offers a draft of `step`. moved: events of bringing its operands, which are all there at level
 * `avail`. */
void search_offer(
    struct search *q, struct draft *list, uint32_t step, struct draft d, uint64_t moved,
    uint32_t avail);
/* Rows of an input on as many tiles as there are. */
const struct plan_dist *search_rows_home(struct search *q, const struct plan_matrix *x);
/* The choice of an earlier step in a state that `step` extends. */
const struct choice *search_choice(const struct state *from, uint32_t step, uint32_t earlier);

/* extend_gemm.c: all choices of a product in a state. */
void extend_gemm(
    struct search *q, struct draft *list, uint32_t step, const struct state *from,
    const struct grid *menu, uint32_t menu_count);
/* extend_local.c: of all other steps. */
void extend_local(struct search *q, struct draft *list, uint32_t step, const struct state *from);
/* A NORM may be left to its readers when they are products that read whole rows of it. */
bool search_may_defer(const struct search *q, uint32_t step);

#endif
