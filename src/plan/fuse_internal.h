/* Shared by the files fuse*.c and views.c only: the plan while its steps are found. */
#ifndef PLAN_FUSE_INTERNAL_H
#define PLAN_FUSE_INTERNAL_H

#include "base/vec.h"
#include "plan/plan_internal.h"

enum fuse_form { VIEW_PLAIN, VIEW_SPLIT, VIEW_HEADS, VIEW_HEADS_T, VIEW_TURNED };

struct fuse_view { /* how a value shows its root's matrix: views.c */
    uint32_t root; /* value */
    enum fuse_form form;
    uint32_t first, columns; /* of the root's columns */
    uint32_t heads;
};

struct fuse_root { /* by value; of use for roots only */
    uint32_t rows, columns;
    uint32_t wish;         /* divides all columns that must start at a panel; 0: none do */
    uint32_t uses;         /* readers, outputs counted */
    struct node_id reader; /* last one, NO_NODE for an output */
    uint32_t matrix;       /* PLAN_NONE before it has one */
};

struct fuser {
    const struct graph *g;
    const struct plan_options *options;
    bool may_block; /* attention */
    struct arena *arena;
    struct plan *plan;
    VEC(struct plan_step) steps;
    VEC(struct plan_matrix) matrices;
    struct fuse_view *view; /* by value */
    struct fuse_root *root; /* by value */
    bool *is_absorbed;      /* by node */
};

/* views.c */
int fuse_trace(struct fuser *f, struct err *err);
void fuse_matrix_shape(const struct shape *s, uint64_t *ret_rows, uint64_t *ret_columns);
bool fuse_is_view(enum graph_op op);
bool fuse_is_elementwise(enum graph_op op);
/* The value is its root's whole matrix, rows and columns in place. */
bool fuse_is_whole(const struct fuser *f, struct value_id v);
uint32_t fuse_unit(const struct fuser *f, uint32_t root);
/* Panel at which a column starts; false when it starts inside one. */
bool fuse_column_panel(const struct plan_matrix *x, uint32_t column, uint32_t *ret);
int fuse_node_error(
    const struct graph_node *n, enum err_code code, struct err *err, const char *text);

/* fuse.c */
bool fuse_is_constant(const struct fuser *f, struct value_id v);
uint32_t fuse_operand(struct fuser *f, struct value_id v);
struct plan_step fuse_new_step(enum plan_kind kind, uint32_t node);
/* Result: rows, columns, unit from the step. */
uint32_t fuse_push_step(struct fuser *f, struct plan_step s, struct value_id result);
/* As above for a result that no value of the graph names. */
uint32_t fuse_push_inner(struct fuser *f, struct plan_step s);

struct value_id fuse_root_of(const struct fuser *f, struct value_id v);
bool fuse_act(const struct graph_node *n, enum kernel_act *ret);
/* A constant float16 row: all axes but the last are 1, the last one is 1 or `columns`. */
bool fuse_is_row(const struct fuser *f, struct value_id v, uint32_t columns);
/* A constant of one element whose value the compiler knows. */
bool fuse_is_known(const struct fuser *f, struct value_id v, double *ret);
uint32_t fuse_panels(uint32_t columns, uint32_t unit);
/* Operand o: a computed value that must show its rows and columns plainly, a window perhaps. That of
 * operand 0 gives the step its shape. */
int fuse_take_plain(
    struct fuser *f, const struct graph_node *n, struct plan_step *s, int o, struct value_id v,
    struct err *err);
/* Follows single readers from *v: a row addition if wanted, then an activation. */
void fuse_absorb(struct fuser *f, struct plan_step *s, struct value_id *v, bool take_row);

/* fuse_gemm.c */
int fuse_gemm(struct fuser *f, uint32_t node, struct err *err);

/* fuse_elements.c */
int fuse_pair(struct fuser *f, uint32_t node, struct err *err);
int fuse_unary(struct fuser *f, uint32_t node, struct err *err);
int fuse_softmax(struct fuser *f, uint32_t node, struct err *err);
int fuse_norm(struct fuser *f, uint32_t node, struct err *err);

/* fuse_product.c */
int fuse_product(struct fuser *f, uint32_t node, struct err *err);
int fuse_attention(struct fuser *f, uint32_t node, struct err *err);

#endif
