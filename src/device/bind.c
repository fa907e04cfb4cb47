/* Tensors <-> host pages by affine maps (design.md D7). Tile code never reorders host data: all
 * of it happens here, element by element along the innermost dimension. */
#include "device/device_internal.h"

#include <stdlib.h>
#include <string.h>

#include "package/walk.h"

void program_free(struct program *g) {
    if (g != NULL) {
        arena_done(&g->arena);
        free(g);
    }
}

static uint32_t rank_of(const struct package *p, uint16_t tile) {
    uint32_t low = 0, high = p->participant_count;
    while (low < high) {
        uint32_t mid = (low + high) / 2;
        if (p->participants[mid] < tile) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low;
}

static void copy_tables(struct program *g, const struct package *p) {
    struct arena *a = &g->arena;
    g->bindings = arena_memdup(a, p->bindings, p->binding_count * sizeof *p->bindings);
    g->binding_count = p->binding_count;
    g->binding_bytes = ARENA_ARRAY(a, uint64_t, p->binding_count);
    for (uint32_t i = 0; i < p->binding_count; i++) {
        uint64_t elements;
        shape_elements(
            &p->bindings[i].shape, p->bindings[i].dtype, &elements, &g->binding_bytes[i], NULL);
    }
    g->phases = arena_memdup(a, p->phases, p->phase_count * sizeof *p->phases);
    g->phase_count = p->phase_count;
    g->slices = arena_memdup(a, p->slices, p->slice_count * sizeof *p->slices);
    g->slice_count = p->slice_count;
    g->page_of = ARENA_ARRAY(a, uint32_t, p->slice_count);
    for (uint32_t i = 0; i < p->slice_count; i++) {
        g->page_of[i] = IPU_PAGE_BYTES * rank_of(p, p->slices[i].tile.n);
    }
    g->first_slice = ARENA_ARRAY(a, uint32_t, p->phase_count + 1);
    uint32_t s = 0;
    for (uint32_t i = 0; i < p->phase_count; i++) {
        g->first_slice[i] = s;
        while (s < p->slice_count && p->slices[s].phase == i) {
            s++;
        }
    }
    g->first_slice[p->phase_count] = s;
    g->participant_count = p->participant_count;
    g->symbols = arena_memdup(a, p->symbols, p->symbol_count * sizeof *p->symbols);
    g->symbol_count = p->symbol_count;
    for (uint32_t i = 0; i < p->symbol_count; i++) {
        g->symbols[i].name = arena_strdup(a, p->symbols[i].name);
    }
}

int program_copy(const struct package *p, struct program **ret, struct err *err) {
    struct program *g = calloc(1, sizeof *g);
    if (g == NULL) {
        return err_set(err, ERR_NOMEM, "program tables");
    }
    arena_init(&g->arena, PACKAGE_MAX_BYTES);
    if (ARENA_RECOVER(&g->arena)) {
        program_free(g);
        return err_set(err, ERR_NOMEM, "program tables");
    }
    copy_tables(g, p);
    g->arena.has_recover = false;
    *ret = g;
    return 0;
}

/* Copies all elements of one slice; to_page says which way. */
static void move_slice(
    const struct package_slice *s, size_t size, uint8_t *page, uint8_t *tensor, bool to_page) {
    const int last = TENSOR_MAX_DIMS - 1;
    bool is_run = s->tensor_stride[last] == 1 && s->page_stride[last] == (int32_t)size;
    size_t step = is_run ? s->extent[last] : 1;
    struct package_walk w = package_walk_begin(s);
    do {
        uint8_t *a = page + w.byte, *b = tensor + (size_t)w.element * size;
        memcpy(to_page ? a : b, to_page ? b : a, step * size);
    } while (package_walk_next(s, is_run ? last - 1 : last, &w));
}

void bind_gather(
    const struct program *g, uint32_t phase, const uint8_t *const *tensors, uint8_t *pages) {
    uint32_t cleared = UINT32_MAX;
    for (uint32_t i = g->first_slice[phase]; i < g->first_slice[phase + 1]; i++) {
        const struct package_slice *s = &g->slices[i];
        if (g->page_of[i] != cleared) {
            cleared = g->page_of[i];
            memset(pages + cleared, 0, IPU_PAGE_BYTES); /* padding is zero by contract */
        }
        /* move_slice() only reads the tensor in this direction. */
        move_slice(
            s, dtype_bytes(g->bindings[s->binding].dtype), pages + g->page_of[i],
            (uint8_t *)(uintptr_t)tensors[s->binding], true);
    }
}

void bind_scatter(
    const struct program *g, uint32_t phase, const uint8_t *pages, uint8_t *const *tensors) {
    for (uint32_t i = g->first_slice[phase]; i < g->first_slice[phase + 1]; i++) {
        const struct package_slice *s = &g->slices[i];
        move_slice(
            s, dtype_bytes(g->bindings[s->binding].dtype),
            (uint8_t *)(uintptr_t)(pages + g->page_of[i]), tensors[s->binding], false);
    }
}
