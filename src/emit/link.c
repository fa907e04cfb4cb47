/* Runtime and kernels at their addresses. Element 0 takes the runtime and as many kernels, in order
 * of first use, as leave room for a small program; the rest is linked at RT_DATA0. Kernels call
 * nobody, so the two images share no symbol but the runtime's. */
#include "emit/emit_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/vec.h"

#define LINK_RESERVE 2048u /* of element 0: for programs and rows */

void emit_plan_kernels(const struct tile_graph *tg, struct arena *a, struct emit_kernels *ret) {
    VEC(struct kernel_variant) list = {0};
    for (uint32_t i = 0; i < tg->vertex_count; i++) {
        const struct kernel_variant *v = &tg->vertices[i].variant;
        bool is_known = false;
        for (size_t k = 0; k < list.len && !is_known; k++) {
            is_known = kernel_variant_equal(&list.data[k], v);
        }
        if (!is_known) {
            vec_push(a, &list, *v);
        }
    }
    *ret = (struct emit_kernels){.variants = list.data, .count = (uint32_t)list.len};
}

int emit_compile_kernels(struct emit_kernels *k, struct arena *a, struct err *err) {
    k->objects = ARENA_ARRAY(a, const struct asm_object *, k->count);
    for (uint32_t i = 0; i < k->count; i++) {
        struct asm_object *object;
        if (kernel_assemble(&k->variants[i], a, &object, err) != 0) {
            char symbol[64];
            return err_wrap(
                err, "kernel %s", kernel_symbol(&k->variants[i], symbol, sizeof symbol));
        }
        k->objects[i] = object;
    }
    return 0;
}

static int by_addr(const void *pa, const void *pb) {
    const struct asm_symbol *a = pa, *b = pb;
    if (a->addr != b->addr) {
        return a->addr < b->addr ? -1 : 1;
    }
    return strcmp(a->name, b->name);
}

/* One image as flat bytes from `base`. */
static int flatten(
    const struct asm_image *image, uint32_t base, struct arena *a, const uint8_t **ret_bytes,
    uint32_t *ret_size, struct err *err) {
    uint32_t end = base;
    for (size_t i = 0; i < image->segment_count; i++) {
        const struct asm_segment *s = &image->segments[i];
        if (s->addr < base) {
            return err_set(err, ERR_ASM, "tile code at 0x%x, below 0x%x", s->addr, base);
        }
        end = s->addr + s->size > end ? s->addr + s->size : end;
    }
    uint32_t size = (end - base + 7) & ~7u;
    uint8_t *bytes = arena_alloc(a, size, 8);
    for (size_t i = 0; i < image->segment_count; i++) {
        const struct asm_segment *s = &image->segments[i];
        memcpy(bytes + (s->addr - base), s->bytes, s->size);
    }
    *ret_bytes = bytes;
    *ret_size = size;
    return 0;
}

static int
find_entry(const struct asm_image *image, const char *name, uint32_t *ret, struct err *err) {
    return asm_image_symbol(image, name, ret, err) == 0 ? 0 : err_wrap(err, "runtime");
}

static int link_at(
    const struct asm_object *const *objects, uint32_t count, uint32_t base, uint32_t limit,
    struct arena *a, struct asm_image **ret, struct err *err) {
    struct asm_placement place = {".text", base, limit};
    return asm_link(objects, count, &place, 1, NULL, 0, a, ret, err) == 0
               ? 0
               : err_wrap(err, "linking tile code");
}

static int kernel_addresses(
    struct emit_text *t, const struct emit_kernels *k, uint32_t near,
    const struct asm_image *main_image, const struct asm_image *more_image, struct err *err) {
    for (uint32_t i = 0; i < k->count; i++) {
        char symbol[64];
        kernel_symbol(&k->variants[i], symbol, sizeof symbol);
        int rc =
            asm_image_symbol(i < near ? main_image : more_image, symbol, &t->kernel_addr[i], err);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

int emit_link(
    const struct asm_object *runtime, const struct emit_kernels *k, struct arena *a,
    struct emit_text **ret, struct err *err) {
    struct emit_text *t = ARENA_NEW(a, struct emit_text);
    const struct asm_object **objects = ARENA_ARRAY(a, const struct asm_object *, k->count + 1);
    uint32_t room = RT_TEXT_LIMIT - RT_TEXT_BASE - LINK_RESERVE;
    uint32_t used = (uint32_t)asm_section_size(runtime, ".text") + 16;
    objects[0] = runtime;
    uint32_t near = 0;
    while (near < k->count) {
        uint32_t size = (uint32_t)asm_section_size(k->objects[near], ".text") + 16;
        if (used + size > room) {
            break;
        }
        used += size;
        objects[1 + near] = k->objects[near];
        near++;
    }
    struct asm_image *main_image, *more_image = NULL;
    if (link_at(objects, near + 1, RT_TEXT_BASE, RT_TEXT_LIMIT, a, &main_image, err) != 0 ||
        flatten(main_image, RT_TEXT_BASE, a, &t->bytes, &t->size, err) != 0 ||
        find_entry(main_image, "rt_host_in", &t->host_in, err) != 0 ||
        find_entry(main_image, "rt_host_out", &t->host_out, err) != 0 ||
        find_entry(main_image, "rt_sample_start", &t->sample_start, err) != 0 ||
        find_entry(main_image, "rt_sample_end", &t->sample_end, err) != 0 ||
        find_entry(main_image, "rt_advance", &t->advance, err) != 0) {
        return -err->code;
    }
    if (near < k->count &&
        (link_at(
             &k->objects[near], k->count - near, RT_DATA0,
             RT_DATA0 + EMIT_MAX_OVERFLOW * TARGET_ELEMENT_BYTES, a, &more_image, err) != 0 ||
         flatten(more_image, RT_DATA0, a, &t->more, &t->more_size, err) != 0)) {
        return -err->code;
    }
    t->variants = k->variants;
    t->variant_count = k->count;
    t->kernel_addr = ARENA_ARRAY(a, uint32_t, k->count);
    if (kernel_addresses(t, k, near, main_image, more_image, err) != 0) {
        return -err->code;
    }
    size_t more = more_image != NULL ? more_image->symbol_count : 0;
    t->symbol_count = (uint32_t)(main_image->symbol_count + more);
    t->symbols = ARENA_ARRAY(a, struct asm_symbol, t->symbol_count);
    for (uint32_t i = 0; i < t->symbol_count; i++) {
        t->symbols[i] = i < main_image->symbol_count
                            ? main_image->symbols[i]
                            : more_image->symbols[i - main_image->symbol_count];
    }
    if (t->symbol_count > 0) {
        qsort(t->symbols, t->symbol_count, sizeof *t->symbols, by_addr);
    }
    *ret = t;
    return 0;
}

uint32_t emit_kernel_addr(const struct emit_text *t, const struct kernel_variant *v) {
    for (uint32_t i = 0; i < t->variant_count; i++) {
        if (kernel_variant_equal(&t->variants[i], v)) {
            return t->kernel_addr[i];
        }
    }
    return 0;
}
