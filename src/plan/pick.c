/* Data movement as a step: the elements of a matrix, each from anywhere in up to PLAN_OPERANDS
 * others. fuse_locate() says where an element of a value lies in the matrix that it shows; a *ref*
 * names an element of a source by its number in C order; fuse_pick() turns a ref for each element
 * of a result into PICK steps, several when there are more sources than operands. */
#include "plan/fuse_internal.h"

#include <string.h>

void fuse_locate(
    const struct fuser *f, struct value_id v, uint64_t element, uint32_t *ret_row,
    uint32_t *ret_column) {
    const struct fuse_view *w = &f->view[v.n];
    const struct shape *s = &f->g->values[v.n].shape;
    int rank = s->rank;
    if (w->form == VIEW_PLAIN || w->form == VIEW_SPLIT) {
        *ret_row = (uint32_t)(element / w->columns);
        *ret_column = w->first + (uint32_t)(element % w->columns);
        return;
    }
    if (w->form == VIEW_HEADS || w->form == VIEW_HEADS_T) {
        uint64_t d = (uint64_t)s->dim[w->form == VIEW_HEADS ? rank - 1 : rank - 2];
        uint64_t t = (uint64_t)s->dim[w->form == VIEW_HEADS ? rank - 2 : rank - 1];
        uint64_t h = (uint64_t)s->dim[rank - 3], inside = element % (d * t);
        uint64_t at = w->form == VIEW_HEADS ? inside / d : inside % t;
        uint64_t lane = w->form == VIEW_HEADS ? inside % d : inside / t;
        uint64_t block = element / (d * t);
        *ret_row = (uint32_t)(block / h * t + at);
        *ret_column = w->first + (uint32_t)(block % h * d + lane);
        return;
    }
    uint64_t t = 1; /* TURNED, CHANNELS: [B, C, T] */
    for (int d = w->form == VIEW_TURNED ? rank - 1 : 2; d < rank; d++) {
        t *= (uint64_t)s->dim[d];
    }
    *ret_row = (uint32_t)(element / (t * w->columns) * t + element % t);
    *ret_column = w->first + (uint32_t)(element / t % w->columns);
}

static uint32_t padded_column(const struct plan_matrix *x, uint32_t column) {
    return column / x->unit * ((x->unit + 15) / 16 * 16) + column % x->unit;
}

/* No element of the tensor lies in that column. */
static bool is_padding(const struct plan_matrix *x, uint32_t padded) {
    uint32_t wide = (x->unit + 15) / 16 * 16, start = padded / wide * x->unit;
    return padded % wide >= x->unit || start + padded % wide >= x->columns;
}

/* ---- The table ------------------------------------------------------------------------------- */

/* `count` lanes from e on move as one: a run of a source's row, aligned, or zeros. */
static bool moves_as_one(
    const struct fuser *f, const struct plan_step *s, const struct plan_element *e,
    uint32_t count) {
    uint32_t there = 0;
    while (there < count && e[there].source != PLAN_FILL) {
        there++;
    }
    for (uint32_t i = there; i < count; i++) {
        if (e[i].source != PLAN_FILL) {
            return false;
        }
    }
    if (there == 0) {
        return true;
    }
    const struct plan_matrix *x = &f->matrices.data[s->in[e->source]];
    for (uint32_t i = 1; i < count; i++) {
        bool good = i < there ? e[i].source == e->source && e[i].row == e->row &&
                                    e[i].column == e->column + i
                              : x->padding == PADDING_ZERO && is_padding(x, e->column + i);
        if (!good) {
            return false;
        }
    }
    return e->column % count == 0;
}

static enum kernel_pick find_unit(
    const struct fuser *f, const struct plan_step *s, const struct plan_element *elements,
    uint64_t count, bool is_single) {
    uint32_t lanes = is_single ? 2 : 4;
    for (uint64_t i = 0; i < count; i += lanes) {
        if (!moves_as_one(f, s, &elements[i], lanes)) {
            return is_single ? PICK_WORD : PICK_HALF;
        }
    }
    return PICK_DOUBLE;
}

static void widen(struct plan_need *n, uint32_t row, uint32_t panel) {
    if (n->row_first == n->row_last) {
        *n = (struct plan_need){row, row + 1, panel, panel + 1};
        return;
    }
    n->row_first = row < n->row_first ? row : n->row_first;
    n->row_last = row >= n->row_last ? row + 1 : n->row_last;
    n->panel_first = panel < n->panel_first ? panel : n->panel_first;
    n->panel_last = panel >= n->panel_last ? panel + 1 : n->panel_last;
}

static struct plan_need *
find_needs(struct arena *a, const struct plan_element *elements, uint32_t rows, uint32_t panels) {
    size_t cells = (size_t)rows * panels;
    struct plan_need *needs = ARENA_ARRAY(a, struct plan_need, cells * PLAN_OPERANDS);
    for (size_t i = 0; i < cells * 16; i++) {
        if (elements[i].source != PLAN_FILL) {
            widen(
                &needs[i / 16 * PLAN_OPERANDS + elements[i].source], elements[i].row,
                elements[i].column / 16);
        }
    }
    return needs;
}

/* Equal tables are one, so that repeated blocks are found to be alike; not those that name a
 * constant, whose address differs from turn to turn. */
static const struct plan_pick *find_equal(
    const struct fuser *f, const struct plan_step *s, const struct plan_element *e, size_t count,
    enum kernel_pick unit) {
    for (int o = 0; o < PLAN_OPERANDS; o++) {
        if (s->in[o] != PLAN_NONE && f->matrices.data[s->in[o]].kind == PLAN_CONSTANT) {
            return NULL;
        }
    }
    for (size_t i = 0; i < f->steps.len; i++) {
        const struct plan_step *other = &f->steps.data[i];
        if (other->kind == PLAN_PICK && other->rows == s->rows && other->panels == s->panels &&
            other->is_single == s->is_single && other->pick->unit == unit &&
            memcmp(other->pick->elements, e, count * sizeof *e) == 0) {
            return other->pick;
        }
    }
    return NULL;
}

static const struct plan_pick *
make_pick(const struct fuser *f, const struct plan_step *s, const struct plan_element *e) {
    size_t count = (size_t)s->rows * s->panels * 16;
    enum kernel_pick unit = find_unit(f, s, e, count, s->is_single);
    const struct plan_pick *equal = find_equal(f, s, e, count, unit);
    if (equal != NULL) {
        return equal;
    }
    struct plan_pick *pick = ARENA_NEW(f->arena, struct plan_pick);
    pick->elements = e;
    pick->needs = find_needs(f->arena, e, s->rows, s->panels);
    pick->unit = unit;
    return pick;
}

/* ---- From refs to steps ---------------------------------------------------------------------- */

struct picker {
    struct fuser *f;
    const struct pick_source *sources;
    const struct pick_ref *refs;
    struct plan_step step;
    uint32_t panels;
    uint32_t before; /* matrix that the step before made, PLAN_NONE at first */
};

/* Operands of one step: what the step before made, then sources from `first` on while there is
 * room, each matrix once. slot[]: operand by source, PLAN_FILL for those not taken. */
static uint32_t take_sources(
    struct picker *p, const uint32_t *matrices, uint32_t count, uint32_t first, uint16_t *slot) {
    uint32_t used = 0, next = first;
    if (p->before != PLAN_NONE) {
        p->step.in[used++] = p->before;
    }
    uint32_t own = used;
    for (uint32_t i = 0; i < count; i++) {
        slot[i] = PLAN_FILL;
    }
    for (; next < count; next++) {
        uint32_t at = own;
        while (at < used && p->step.in[at] != matrices[next]) {
            at++;
        }
        if (at == PLAN_OPERANDS) {
            break;
        }
        p->step.in[at] = matrices[next];
        used = at == used ? used + 1 : used;
        slot[next] = (uint16_t)at;
    }
    return next;
}

static void fill_row(
    const struct picker *p, uint32_t row, uint32_t first, const uint16_t *slot,
    struct plan_element *to) {
    const struct plan_step *s = &p->step;
    const struct plan_matrix out = {.unit = s->unit, .columns = s->columns};
    for (uint32_t c = 0; c < 16 * p->panels; c++) {
        to[c] = (struct plan_element){.source = PLAN_FILL};
    }
    for (uint32_t c = 0; c < s->columns; c++) {
        struct pick_ref ref = p->refs[(uint64_t)row * s->columns + c];
        uint32_t at = padded_column(&out, c);
        if (ref.source == PLAN_FILL) {
            continue;
        }
        if (ref.source < first) { /* a step before has it in place */
            to[at] = (struct plan_element){0, (uint16_t)row, at};
        } else if (slot[ref.source] != PLAN_FILL) {
            const struct pick_source *source = &p->sources[ref.source];
            const struct plan_matrix *x = &p->f->matrices.data[s->in[slot[ref.source]]];
            uint32_t r = ref.element / x->columns, column = ref.element % x->columns;
            if (source->value.n != NO_VALUE.n) {
                fuse_locate(p->f, source->value, ref.element, &r, &column);
            }
            to[at] = (struct plan_element){slot[ref.source], (uint16_t)r, padded_column(x, column)};
        }
    }
}

uint32_t fuse_pick(
    struct fuser *f, uint32_t at, const struct pick_source *sources, uint32_t count,
    const struct pick_ref *refs, const struct plan_step *shape, struct value_id result) {
    struct picker p = {.f = f, .sources = sources, .refs = refs, .before = PLAN_NONE};
    uint32_t *matrices = ARENA_ARRAY(f->arena, uint32_t, count);
    uint16_t *slot = ARENA_ARRAY(f->arena, uint16_t, count);
    for (uint32_t i = 0; i < count; i++) {
        matrices[i] = sources[i].value.n != NO_VALUE.n ? fuse_operand(f, sources[i].value)
                                                       : sources[i].matrix;
    }
    for (uint32_t first = 0, next = 0; first < count; first = next) {
        p.step = fuse_new_step(PLAN_PICK, at);
        p.step.rows = shape->rows;
        p.step.columns = shape->columns;
        p.step.unit = shape->unit;
        p.step.is_single = shape->is_single;
        p.panels = fuse_panels(shape->columns, shape->unit);
        next = take_sources(&p, matrices, count, first, slot);
        uint64_t each = 16ull * p.panels;
        struct plan_element *e = ARENA_ARRAY(f->arena, struct plan_element, each * shape->rows);
        for (uint32_t r = 0; r < shape->rows; r++) {
            fill_row(&p, r, first, slot, &e[r * each]);
        }
        p.step.panels = p.panels;
        p.step.pick = make_pick(f, &p.step, e);
        p.before = next < count ? fuse_push_inner(f, p.step) : fuse_push_step(f, p.step, result);
    }
    return p.before;
}

/* ---- Whole values ---------------------------------------------------------------------------- */

struct pick_ref *fuse_refs(struct fuser *f, uint64_t count) {
    struct pick_ref *refs = ARENA_ARRAY(f->arena, struct pick_ref, count);
    for (uint64_t i = 0; i < count; i++) {
        refs[i] = (struct pick_ref){0, (uint32_t)i};
    }
    return refs;
}

uint64_t fuse_elements(const struct fuser *f, struct value_id v) {
    uint64_t rows, columns;
    fuse_matrix_shape(&f->g->values[v.n].shape, &rows, &columns);
    return rows * columns;
}

int fuse_check_pick(
    const struct fuser *f, const struct graph_node *n, struct value_id v, struct err *err) {
    uint64_t elements = fuse_elements(f, v);
    if (elements <= PLAN_MAX_PICK) {
        return 0;
    }
    char text[160];
    snprintf(
        text, sizeof text, "'%.60s' has %llu elements, at most %u can be moved one by one",
        f->g->values[v.n].name, (unsigned long long)elements, PLAN_MAX_PICK);
    return fuse_node_error(n, ERR_UNSUPPORTED_OP, err, text);
}

bool fuse_is_single(const struct fuser *f, struct value_id v) {
    return f->g->values[v.n].dtype == DTYPE_FLOAT;
}

struct plan_step fuse_shape_of(const struct fuser *f, struct value_id v) {
    uint64_t rows, columns;
    fuse_matrix_shape(&f->g->values[v.n].shape, &rows, &columns);
    struct plan_step s = fuse_new_step(PLAN_PICK, 0);
    s.rows = (uint32_t)rows;
    s.columns = s.unit = (uint32_t)columns;
    s.is_single = fuse_is_single(f, v);
    return s;
}

/* v's own rows and columns, one unit, zeros as padding. */
static bool is_plain(const struct fuser *f, struct value_id v) {
    const struct fuse_root *r = &f->root[f->view[v.n].root];
    if (fuse_is_constant(f, v) || !fuse_is_whole(f, v)) {
        return false;
    }
    if (r->matrix == PLAN_NONE) {
        return fuse_unit(f, f->view[v.n].root) == r->columns;
    }
    const struct plan_matrix *x = &f->matrices.data[r->matrix];
    return x->unit == x->columns && x->padding == PADDING_ZERO;
}

int fuse_plain(
    struct fuser *f, uint32_t at, struct value_id v, uint32_t *ret_matrix, struct err *err) {
    if (is_plain(f, v)) {
        *ret_matrix = fuse_operand(f, v);
        return 0;
    }
    int rc = fuse_check_pick(f, &f->g->nodes[at], v, err);
    if (rc != 0) {
        return rc;
    }
    struct plan_step shape = fuse_shape_of(f, v);
    struct pick_source source = {.value = v};
    struct pick_ref *refs = fuse_refs(f, fuse_elements(f, v));
    *ret_matrix = fuse_pick(f, at, &source, 1, refs, &shape, NO_VALUE);
    /* From here on the value shows its new matrix, under a root of its own. */
    uint32_t root = f->root_count++;
    f->root[root] = (struct fuse_root){
        .rows = shape.rows,
        .columns = shape.columns,
        .uses = 2, /* of unknown readers: nothing may be fused across it */
        .reader = NO_NODE,
        .matrix = *ret_matrix};
    f->view[v.n] = (struct fuse_view){.root = root, .columns = shape.columns, .heads = 1};
    return 0;
}

bool fuse_lies_plain(const struct fuser *f, struct value_id v) {
    uint32_t root = f->view[v.n].root;
    return root == v.n && f->view[v.n].form == VIEW_PLAIN &&
           fuse_unit(f, root) == f->root[root].columns;
}

int fuse_show(
    struct fuser *f, uint32_t at, uint32_t matrix, const uint32_t *order, struct value_id result,
    struct err *err) {
    struct fuse_root *r = &f->root[result.n];
    const struct plan_matrix *x = &f->matrices.data[matrix];
    if (order == NULL && fuse_lies_plain(f, result) && x->unit == x->columns &&
        x->kind == PLAN_COMPUTED && r->rows == x->rows && r->columns == x->columns) {
        r->matrix = matrix;
        return 0;
    }
    int rc = fuse_check_pick(f, &f->g->nodes[at], result, err);
    if (rc != 0) {
        return rc;
    }
    struct plan_step shape = fuse_new_step(PLAN_PICK, at);
    shape.rows = r->rows;
    shape.columns = r->columns;
    shape.unit = fuse_unit(f, result.n);
    shape.is_single = fuse_is_single(f, result);
    uint64_t count = fuse_elements(f, result);
    struct pick_ref *refs = ARENA_ARRAY(f->arena, struct pick_ref, count);
    for (uint64_t i = 0; i < count; i++) {
        uint32_t row, column;
        fuse_locate(f, result, i, &row, &column);
        refs[(uint64_t)row * r->columns + column] =
            (struct pick_ref){0, order != NULL ? order[i] : (uint32_t)i};
    }
    struct pick_source source = {.value = NO_VALUE, .matrix = matrix};
    fuse_pick(f, at, &source, 1, refs, &shape, result);
    return 0;
}
