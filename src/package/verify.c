/* What must hold of a package, recomputed from its data alone: invariants (1) to (5) of
 * package.h. Writer and reader both ask; the first fault is reported with table and row. */
#include "package/package_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "package/walk.h"

#define PAGE 4096u

__attribute__((format(printf, 4, 5))) static int
fault(struct err *err, enum package_table t, uint64_t row, const char *format, ...) {
    char where[64];
    snprintf(where, sizeof where, "%s[%llu]", package_table_name(t), (unsigned long long)row);
    char text[256];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    return err_at(err, ERR_PACKAGE_CORRUPT, where, "%s", text);
}

static bool is_hex64(const char *text) {
    return text != NULL && strlen(text) == DIGEST_HEX &&
           strspn(text, "0123456789abcdef") == DIGEST_HEX;
}

static int verify_header(const struct package *p, struct err *err) {
    if (p->target == NULL || strcmp(p->target, TARGET_NAME) != 0) {
        return fault(
            err, PACKAGE_TABLE_meta, 0, "target '%s', expected '%s'",
            p->target != NULL ? p->target : "", TARGET_NAME);
    }
    if (!is_hex64(p->compiler_id) || !is_hex64(p->key)) {
        return fault(err, PACKAGE_TABLE_meta, 0, "compiler id and key must be 64 hex characters");
    }
    if (p->options == NULL) {
        return fault(err, PACKAGE_TABLE_meta, 0, "options missing");
    }
    if (p->compute_tiles < 1 || p->compute_tiles > TARGET_TILES) {
        return fault(
            err, PACKAGE_TABLE_meta, 0, "compute_tiles %u, allowed 1..%d", p->compute_tiles,
            TARGET_TILES);
    }
    if (p->content_count > PACKAGE_MAX_CONTENTS || p->segment_count > PACKAGE_MAX_SEGMENTS ||
        p->binding_count > PACKAGE_MAX_BINDINGS || p->phase_count > PACKAGE_MAX_PHASES ||
        p->slice_count > PACKAGE_MAX_SLICES || p->participant_count > TARGET_TILES) {
        return err_set(err, ERR_PACKAGE_CORRUPT, "a table has more rows than allowed");
    }
    return 0;
}

/* (1) and (2). */
static int verify_images(const struct package *p, struct err *err) {
    uint32_t i = 0;
    for (uint32_t tile = 0; tile < TARGET_TILES; tile++) {
        uint32_t end = TARGET_LOAD_BASE;
        bool is_first = true;
        while (i < p->segment_count && p->segments[i].tile.n == tile) {
            const struct package_segment *s = &p->segments[i];
            if (s->content >= p->content_count) {
                return fault(
                    err, PACKAGE_TABLE_segment, i, "content %u does not exist", s->content);
            }
            uint32_t size = p->contents[s->content].size;
            if (size == 0 || size % 4 != 0 || s->addr % 4 != 0) {
                return fault(
                    err, PACKAGE_TABLE_segment, i,
                    "segment of %u bytes at 0x%x: both must be multiples of 4, size not 0", size,
                    s->addr);
            }
            if (is_first ? s->addr != TARGET_LOAD_BASE : s->addr < end) {
                return fault(
                    err, PACKAGE_TABLE_segment, i,
                    is_first ? "lowest segment of tile %u at 0x%x, expected 0x%x"
                             : "segment of tile %u at 0x%x starts before 0x%x",
                    tile, s->addr, end);
            }
            if (s->addr > TARGET_LOAD_END || size > TARGET_LOAD_END - s->addr) {
                return fault(
                    err, PACKAGE_TABLE_segment, i, "segment of tile %u ends at 0x%llx, limit 0x%x",
                    tile, (unsigned long long)s->addr + size, TARGET_LOAD_END);
            }
            end = s->addr + size;
            is_first = false;
            i++;
        }
        if (is_first) {
            return fault(err, PACKAGE_TABLE_segment, i, "tile %u has no image", tile);
        }
    }
    if (i != p->segment_count) {
        return fault(
            err, PACKAGE_TABLE_segment, i, "tile %u is out of order or does not exist",
            p->segments[i].tile.n);
    }
    return 0;
}

static int verify_interface(const struct package *p, struct err *err) {
    for (uint32_t i = 0; i < p->binding_count; i++) {
        const struct package_binding *b = &p->bindings[i];
        const struct package_binding *last = i > 0 ? &p->bindings[i - 1] : NULL;
        uint32_t expected = last != NULL && last->role == b->role ? last->ordinal + 1 : 0;
        if (b->role > PACKAGE_PROFILE || (last != NULL && b->role < last->role) ||
            b->ordinal != expected) {
            return fault(
                err, PACKAGE_TABLE_binding, i, "role %d ordinal %u out of order", (int)b->role,
                b->ordinal);
        }
        uint64_t elements, bytes;
        if (b->dtype == DTYPE_NONE || b->dtype >= DTYPE_COUNT || b->shape.rank < 0 ||
            b->shape.rank > TENSOR_MAX_DIMS ||
            shape_elements(&b->shape, b->dtype, &elements, &bytes, NULL) < 0 ||
            bytes > PACKAGE_MAX_BYTES) {
            return fault(err, PACKAGE_TABLE_binding, i, "bad dtype or shape");
        }
    }
    for (uint32_t i = 0; i < p->phase_count; i++) {
        const struct package_phase *f = &p->phases[i];
        const struct package_phase *last = i > 0 ? &p->phases[i - 1] : NULL;
        uint32_t expected = last != NULL && last->call == f->call ? last->index + 1 : 0;
        if (f->call >= PACKAGE_CALLS || (last != NULL && f->call < last->call) ||
            f->index != expected || (f->call == PACKAGE_INITIALIZE && f->is_output)) {
            return fault(
                err, PACKAGE_TABLE_phase, i, "call %d phase %u out of order or direction",
                (int)f->call, f->index);
        }
        if (last != NULL && last->call == f->call && last->is_output && !f->is_output) {
            return fault(err, PACKAGE_TABLE_phase, i, "an input phase follows an output phase");
        }
    }
    for (uint32_t i = 0; i < p->participant_count; i++) {
        if (p->participants[i] >= TARGET_TILES ||
            (i > 0 && p->participants[i] <= p->participants[i - 1])) {
            return fault(
                err, PACKAGE_TABLE_participant, i, "tile %u out of order or range",
                p->participants[i]);
        }
    }
    return 0;
}

static bool is_participant(const struct package *p, uint16_t tile) {
    uint32_t low = 0, high = p->participant_count;
    while (low < high) {
        uint32_t mid = (low + high) / 2;
        if (p->participants[mid] < tile) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low < p->participant_count && p->participants[low] == tile;
}

/* Lowest and highest value of offset + sum i*stride, exact in 64 bits because extents are checked
 * to at most 2^20 and strides to 2^40. */
static bool
span(int64_t offset, const struct package_slice *s, bool is_page, int64_t *low, int64_t *high) {
    *low = *high = offset;
    for (int k = 0; k < TENSOR_MAX_DIMS; k++) {
        int64_t stride = is_page ? s->page_stride[k] : s->tensor_stride[k];
        if (s->extent[k] < 1 || s->extent[k] > 1u << 20 || stride > 1ll << 40 ||
            stride < -(1ll << 40)) {
            return false;
        }
        int64_t reach = (int64_t)(s->extent[k] - 1) * stride;
        *(reach < 0 ? low : high) += reach;
    }
    return true;
}

static int verify_slice_fields(
    const struct package *p, uint32_t i, uint64_t elements, uint32_t size, struct err *err) {
    const struct package_slice *s = &p->slices[i];
    const struct package_slice *last = i > 0 ? &p->slices[i - 1] : NULL;
    if (last != NULL && (s->phase < last->phase ||
                         (s->phase == last->phase &&
                          (s->tile.n < last->tile.n ||
                           (s->tile.n == last->tile.n && s->page_offset <= last->page_offset))))) {
        return fault(err, PACKAGE_TABLE_slice, i, "out of order");
    }
    if (!is_participant(p, s->tile.n)) {
        return fault(err, PACKAGE_TABLE_slice, i, "tile %u is no participant", s->tile.n);
    }
    int64_t low, high;
    if (s->tensor_offset > INT64_MAX / 2 ||
        !span((int64_t)s->tensor_offset, s, false, &low, &high) || low < 0 ||
        (uint64_t)high >= elements) {
        return fault(
            err, PACKAGE_TABLE_slice, i, "map leaves the tensor of %llu elements",
            (unsigned long long)elements);
    }
    if (!span(s->page_offset, s, true, &low, &high) || low < 0 || high + size > PAGE) {
        return fault(err, PACKAGE_TABLE_slice, i, "map leaves the tile's page of %u bytes", PAGE);
    }
    enum package_role role = p->bindings[s->binding].role;
    const struct package_phase *f = &p->phases[s->phase];
    bool ok = role == PACKAGE_PARAMETER
                  ? f->call == PACKAGE_INITIALIZE
                  : f->call == PACKAGE_RUN && f->is_output == (role != PACKAGE_INPUT);
    return ok ? 0
              : fault(err, PACKAGE_TABLE_slice, i, "binding's role does not belong in that phase");
}

struct coverage {
    uint8_t **seen;      /* per binding: one bit an element */
    uint64_t *remaining; /* per binding: elements not seen yet */
    uint64_t *elements;
    uint32_t count;
    uint8_t page[PAGE]; /* bytes in use by the present (phase, tile) */
};

static void coverage_done(struct coverage *c) {
    for (uint32_t i = 0; c->seen != NULL && i < c->count; i++) {
        free(c->seen[i]);
    }
    free(c->seen);
    free(c->remaining);
    free(c->elements);
}

static int coverage_init(struct coverage *c, const struct package *p, struct err *err) {
    memset(c, 0, sizeof *c);
    c->count = p->binding_count;
    c->seen = calloc(c->count + 1, sizeof *c->seen);
    c->remaining = calloc(c->count + 1, sizeof *c->remaining);
    c->elements = calloc(c->count + 1, sizeof *c->elements);
    if (c->seen == NULL || c->remaining == NULL || c->elements == NULL) {
        return err_set(err, ERR_NOMEM, NULL);
    }
    for (uint32_t i = 0; i < c->count; i++) {
        uint64_t bytes;
        shape_elements(&p->bindings[i].shape, p->bindings[i].dtype, &c->elements[i], &bytes, NULL);
        c->remaining[i] = c->elements[i];
        c->seen[i] = calloc((size_t)(c->elements[i] / 8 + 1), 1);
        if (c->seen[i] == NULL) {
            return err_set(err, ERR_NOMEM, NULL);
        }
    }
    return 0;
}

/* Takes `size` bytes of the page; false when one of them is taken already. */
static bool claim(uint8_t *bytes, size_t size) {
    bool is_free = memchr(bytes, 1, size) == NULL;
    memset(bytes, 1, size);
    return is_free;
}

/* (4) and (5) for every element that a slice maps; the last dimension that has any goes without
 * the walk, as a row. */
static int cover_slice(struct coverage *c, const struct package *p, uint32_t i, struct err *err) {
    const struct package_slice *s = &p->slices[i];
    const bool is_output = p->phases[s->phase].is_output;
    const size_t size = dtype_bytes(p->bindings[s->binding].dtype);
    uint8_t *const seen = c->seen[s->binding];
    uint64_t fresh = 0;
    struct package_walk w = package_walk_begin(s);
    int last = TENSOR_MAX_DIMS - 1;
    while (last > 0 && s->extent[last] == 1) {
        last--;
    }
    const uint32_t row = s->extent[last];
    const bool is_packed = s->page_stride[last] == (int64_t)size; /* then claimed as one piece */
    const uint32_t pieces = is_packed ? 1 : row;
    const size_t piece = is_packed ? row * size : size;
    do {
        for (uint32_t e = 0; e < pieces; e++) {
            int64_t byte = w.byte + (int64_t)e * s->page_stride[last];
            if (!claim(c->page + byte, piece)) {
                return fault(
                    err, PACKAGE_TABLE_slice, i, "one of %zu page bytes from %lld is used twice",
                    piece, (long long)byte);
            }
        }
        uint64_t element = (uint64_t)w.element;
        for (uint32_t e = 0; e < row; e++, element += (uint64_t)s->tensor_stride[last]) {
            const unsigned was = seen[element / 8], bit = 1u << element % 8;
            if ((was & bit) != 0 && is_output) {
                return fault(
                    err, PACKAGE_TABLE_slice, i, "element %llu is written twice",
                    (unsigned long long)element);
            }
            seen[element / 8] = (uint8_t)(was | bit);
            fresh += (was & bit) == 0;
        }
    } while (package_walk_next(s, last - 1, &w));
    c->remaining[s->binding] -= fresh;
    return 0;
}

static int verify_slices(struct coverage *c, const struct package *p, struct err *err) {
    for (uint32_t i = 0; i < p->slice_count; i++) {
        const struct package_slice *s = &p->slices[i];
        if (s->binding >= p->binding_count || s->phase >= p->phase_count) {
            return fault(err, PACKAGE_TABLE_slice, i, "names a binding or phase that is not there");
        }
        if (i == 0 || s->phase != p->slices[i - 1].phase || s->tile.n != p->slices[i - 1].tile.n) {
            memset(c->page, 0, sizeof c->page);
        }
        uint32_t size = (uint32_t)dtype_bytes(p->bindings[s->binding].dtype);
        int r = verify_slice_fields(p, i, c->elements[s->binding], size, err);
        if (r == 0) {
            r = cover_slice(c, p, i, err);
        }
        if (r < 0) {
            return r;
        }
    }
    for (uint32_t i = 0; i < p->binding_count; i++) {
        if (c->remaining[i] != 0 && p->bindings[i].role != PACKAGE_PARAMETER) {
            return fault(
                err, PACKAGE_TABLE_binding, i, "%llu of %llu elements are in no slice",
                (unsigned long long)c->remaining[i], (unsigned long long)c->elements[i]);
        }
    }
    return 0;
}

/* Elements of binding (PROFILE, 1), 0 when there is none. */
static uint64_t mark_words(const struct package *p) {
    for (uint32_t i = 0; i < p->binding_count; i++) {
        const struct package_binding *b = &p->bindings[i];
        if (b->role == PACKAGE_PROFILE && b->ordinal == 1) {
            return b->shape.rank == 1 && b->dtype == DTYPE_UINT32 ? (uint64_t)b->shape.dim[0] : 0;
        }
    }
    return 0;
}

static int verify_calls(const struct package *p, struct err *err) {
    uint32_t call = 0;
    for (uint32_t i = 0; i < p->step_count; i++) {
        const struct package_step *s = &p->steps[i];
        if (s->kind >= STEP_KINDS || s->last_level < s->level) {
            return fault(err, PACKAGE_TABLE_step, i, "bad kind or levels");
        }
        if (s->call_count > 0 && s->first_call != call) {
            return fault(err, PACKAGE_TABLE_step, i, "its calls are not where they should be");
        }
        for (uint32_t k = 0; k < s->call_count; k++, call++) {
            if (call >= p->call_count || p->calls[call].step != i || p->calls[call].op == NULL ||
                p->calls[call].kernel == NULL) {
                return fault(err, PACKAGE_TABLE_call, call, "is not of step %u", i);
            }
        }
    }
    return call == p->call_count ? 0 : fault(err, PACKAGE_TABLE_call, call, "is of no step");
}

/* (6). */
static int verify_profile_plan(const struct package *p, struct err *err) {
    uint64_t words = mark_words(p), end = 0;
    if (p->step_count > PACKAGE_MAX_STEPS || p->call_count > PACKAGE_MAX_CALLS ||
        (p->trace_count != 0 && p->trace_count != p->participant_count)) {
        return fault(
            err, PACKAGE_TABLE_trace, p->trace_count,
            "%u traces for %u participants, or too many "
            "steps or calls",
            p->trace_count, p->participant_count);
    }
    for (uint32_t i = 0; i < p->trace_count; i++) {
        const struct package_trace *t = &p->traces[i];
        if (t->count < 1 || t->count > PACKAGE_MAX_INTERVALS ||
            (t->count > 1 && (t->first < end || t->first + (uint64_t)t->count - 1 > words))) {
            return fault(
                err, PACKAGE_TABLE_trace, i, "%u intervals from word %u of %llu", t->count,
                t->first, (unsigned long long)words);
        }
        end = t->count > 1 ? t->first + (uint64_t)t->count - 1 : end;
        for (uint32_t k = 0; k < t->count; k++) {
            if (t->steps[k] >= p->step_count) {
                return fault(err, PACKAGE_TABLE_trace, i, "step %u does not exist", t->steps[k]);
            }
        }
    }
    return verify_calls(p, err);
}

int package_verify(const struct package *p, struct err *err) {
    int r = verify_header(p, err);
    r = r < 0 ? r : verify_images(p, err);
    r = r < 0 ? r : verify_interface(p, err);
    r = r < 0 ? r : verify_profile_plan(p, err);
    if (r < 0) {
        return r;
    }
    CLEANUP(coverage_done) struct coverage c;
    r = coverage_init(&c, p, err);
    return r < 0 ? r : verify_slices(&c, p, err);
}
