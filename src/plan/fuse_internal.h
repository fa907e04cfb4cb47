/* The plan while its steps are found: shared by the files that make steps and repeat_find.c. */
#ifndef PLAN_FUSE_INTERNAL_H
#define PLAN_FUSE_INTERNAL_H

#include "base/vec.h"
#include "plan/plan_internal.h"

enum fuse_form { VIEW_PLAIN, VIEW_SPLIT, VIEW_HEADS, VIEW_HEADS_T, VIEW_TURNED, VIEW_CHANNELS };

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
    struct fuse_root *root; /* by value; then those of values laid out anew (pick.c) */
    uint32_t root_count;    /* used ones */
    bool *is_transposed;    /* by value: a Transpose reads it */
    bool *is_absorbed;      /* by node */
    bool *is_moved;         /* by node: a view operator whose result has a matrix of its own */
};

static inline const struct shape *shape_of(const struct fuser *f, struct value_id v) {
    return &f->g->values[v.n].shape;
}

/* views.c */
void fuse_trace(struct fuser *f);
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
/* Operand o: a computed value that must show its rows and columns plainly, a window perhaps. That
 * of operand 0 gives the step its shape. */
int fuse_take_plain(
    struct fuser *f, const struct graph_node *n, struct plan_step *s, int o, struct value_id v,
    struct err *err);
/* Follows single readers from *v: a row addition if wanted, then an activation. */
void fuse_absorb(struct fuser *f, struct plan_step *s, struct value_id *v, bool take_row);

/* pick.c */
struct pick_source { /* a value, or a matrix that no value names, in C order of rows and columns */
    struct value_id value;
    uint32_t matrix;
};
struct pick_ref { /* element of a source in C order; source PLAN_FILL: zero */
    uint16_t source;
    uint32_t element;
};
/* Row and column, padding not counted, of an element of v in its root's matrix. */
void fuse_locate(
    const struct fuser *f, struct value_id v, uint64_t element, uint32_t *ret_row,
    uint32_t *ret_column);
/* A matrix with rows, columns, unit and type of `shape`, a ref for each element, row by row. */
uint32_t fuse_pick(
    struct fuser *f, uint32_t node, const struct pick_source *sources, uint32_t count,
    const struct pick_ref *refs, const struct plan_step *shape,
    struct value_id result /* NO_VALUE: an inner one */);
/* Refs to elements 0, 1, .. of the first source. */
struct pick_ref *fuse_refs(struct fuser *f, uint64_t count);
uint64_t fuse_elements(const struct fuser *f, struct value_id v);
bool fuse_is_single(const struct fuser *f, struct value_id v); /* float32 */
/* Rows, columns and type of a value as a plain matrix. */
struct plan_step fuse_shape_of(const struct fuser *f, struct value_id v);
/* ERR_UNSUPPORTED_OP when v is too large to be moved element by element. */
int fuse_check_pick(
    const struct fuser *f, const struct graph_node *n, struct value_id v, struct err *err);
/* v as a plain matrix of its own rows and columns, with one unit and zeros as padding; made by a
 * step unless it is that. Later readers of v see that matrix. */
int fuse_plain(
    struct fuser *f, uint32_t node, struct value_id v, uint32_t *ret_matrix, struct err *err);
/* v's own matrix is to be such a one. */
bool fuse_lies_plain(const struct fuser *f, struct value_id v);
/* Fills result's matrix, however it is to lie, from one that holds its element i (in C order) at
 * place order[i] (row by row); order NULL: at place i. */
int fuse_show(
    struct fuser *f, uint32_t node, uint32_t matrix, const uint32_t *order, struct value_id result,
    struct err *err);
/* A step on a whole plain matrix, with a result like it. */
struct plan_step fuse_step_on(struct fuser *f, enum plan_kind kind, uint32_t node, uint32_t matrix);
/* Last step of a general node: its result is the elements of `result` in C order. */
int fuse_finish(
    struct fuser *f, uint32_t node, struct plan_step s, struct value_id result, struct err *err);
/* v as a plain matrix, broadcast to the shape of `like`. */
int fuse_expand(
    struct fuser *f, uint32_t node, struct value_id v, const struct shape *like,
    uint32_t *ret_matrix, struct err *err);
/* v with the marked axes last: rows are the others, columns the marked ones. order[i]: place of
 * element i in it. */
int fuse_axes_last(
    struct fuser *f, uint32_t node, struct value_id v, const bool *is_last, uint32_t *ret_matrix,
    const uint32_t **ret_order, struct err *err);

/* move.c: operators that move elements only, those of views that are no view. */
int fuse_move(struct fuser *f, uint32_t node, struct err *err);

/* general.c: any node, from plain matrices to a plain matrix, by as many steps as it takes. */
int fuse_general(struct fuser *f, uint32_t node, struct err *err);
/* general_product.c: the products among them. */
int fuse_general_product(struct fuser *f, uint32_t node, struct err *err);
int fuse_general_attention(struct fuser *f, uint32_t node, struct err *err);
int fuse_general_conv(struct fuser *f, uint32_t node, struct err *err);
uint32_t fuse_general_softmax(struct fuser *f, uint32_t node, uint32_t matrix);

/* fuse_gemm.c */
int fuse_gemm(struct fuser *f, uint32_t node, struct err *err);

/* fuse_elements.c */
bool fuse_map_of_node(const struct graph_node *n, uint8_t *ret);
/* A map cheaper than MAP_POW for this exponent. */
bool fuse_map_of_pow(double exponent, uint8_t *ret);
int fuse_pair(struct fuser *f, uint32_t node, struct err *err);
int fuse_unary(struct fuser *f, uint32_t node, struct err *err);
int fuse_softmax(struct fuser *f, uint32_t node, struct err *err);
int fuse_norm(struct fuser *f, uint32_t node, struct err *err);

/* fuse_product.c */
int fuse_product(struct fuser *f, uint32_t node, struct err *err);
int fuse_attention(struct fuser *f, uint32_t node, struct err *err);

#endif
