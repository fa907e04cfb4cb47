/* Placement, symbols across objects, and the values that depend on both.
 *
 * Every section named by a placement gets an address in each object, globals go into one table,
 * then each object's items are evaluated with all addresses known and written into the segments.
 * All loops are over the inputs. */
#include "asm/asm_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

struct global {
    int64_t value;
    const char *owner; /* object's name, NULL for an extern */
    bool is_known;     /* false while the objects' values are not evaluated */
    const struct expr *expr;
    size_t object;
};

struct linker {
    const struct asm_object *const *objects;
    size_t object_count;
    const struct asm_placement *places;
    size_t place_count;
    uint32_t **addrs; /* by object and section */
    bool **is_placed; /* likewise */
    struct intern names;
    VEC(struct global) globals; /* by id of names */
    struct arena *arena;
    struct err *err;
};

static int find_global(const struct resolver *r, const char *name, int64_t *ret) {
    const struct linker *link = r->link;
    uint32_t id = intern_find(&link->names, name);
    if (id == INTERN_NONE || !link->globals.data[id].is_known) {
        return -1;
    }
    *ret = link->globals.data[id].value;
    return 0;
}

static struct resolver resolver_of(const struct linker *link, size_t object) {
    return (struct resolver){
        .object = link->objects[object],
        .section_addrs = link->addrs[object],
        .find = find_global,
        .link = link};
}

/* ---- placement ---- */

/* ".text.f" goes with ".text" unless some placement names it. */
static bool
belongs(const struct linker *link, const struct asm_placement *place, const char *section) {
    size_t n = strlen(place->section);
    if (strcmp(section, place->section) == 0) {
        return true;
    }
    if (strncmp(section, place->section, n) != 0 || section[n] != '.') {
        return false;
    }
    for (size_t i = 0; i < link->place_count; i++) { /* the longest name that covers it wins */
        const char *name = link->places[i].section;
        size_t other = strlen(name);
        if (other > n && strncmp(section, name, other) == 0 &&
            (section[other] == '.' || section[other] == '\0')) {
            return false;
        }
    }
    return true;
}

/* Sets the addresses of one placement's pieces and makes its segment. */
static int
place_section(struct linker *link, const struct asm_placement *place, struct asm_segment *ret) {
    uint64_t at = place->addr;
    bool has_any = false;
    *ret = (struct asm_segment){.addr = place->addr};
    for (size_t i = 0; i < link->object_count; i++) {
        const struct asm_object *object = link->objects[i];
        for (size_t s = 0; s < object->sections.len; s++) {
            const struct section *section = &object->sections.data[s];
            if (!belongs(link, place, section->name)) {
                continue;
            }
            if (link->is_placed[i][s]) {
                return err_at(
                    link->err, ERR_ASM, place->section, "section '%s' is placed twice",
                    place->section);
            }
            at = (at + section->align - 1) / section->align * section->align;
            link->is_placed[i][s] = true;
            link->addrs[i][s] = (uint32_t)at;
            if (section->bytes.len == 0) {
                continue;
            }
            ret->addr = has_any ? ret->addr : (uint32_t)at;
            has_any = true;
            at += section->bytes.len;
            uint64_t limit = place->limit != 0 ? place->limit : UINT32_MAX;
            if (at > limit) {
                return err_at(
                    link->err, ERR_DOES_NOT_FIT, place->section,
                    "section '%s' ends at "
                    "0x%" PRIx64 " with the part of %s, its limit is 0x%" PRIx64,
                    place->section, at, object->name, limit);
            }
        }
    }
    ret->size = has_any ? (uint32_t)(at - ret->addr) : 0;
    return 0;
}

static bool has_label(const struct asm_object *object, size_t section) {
    for (size_t i = 0; i < object->symbols.len; i++) {
        const struct symbol *symbol = &object->symbols.data[i];
        if (symbol->kind == SYMBOL_LABEL && (size_t)symbol->value->section == section) {
            return true;
        }
    }
    return false;
}

static int check_all_placed(const struct linker *link) {
    for (size_t i = 0; i < link->object_count; i++) {
        const struct asm_object *object = link->objects[i];
        for (size_t s = 0; s < object->sections.len; s++) {
            const struct section *section = &object->sections.data[s];
            if (!link->is_placed[i][s] && (section->bytes.len > 0 || has_label(object, s))) {
                return err_at(
                    link->err, ERR_ASM, section->name,
                    "section '%s' of %s has %zu bytes but "
                    "no place",
                    section->name, object->name, section->bytes.len);
            }
        }
    }
    return 0;
}

/* ---- symbols ---- */

static int add_global(struct linker *link, const char *name, struct global global) {
    uint32_t id = intern_add(&link->names, name);
    if (id < link->globals.len) {
        const char *other = link->globals.data[id].owner;
        return err_at(
            link->err, ERR_ASM, global.owner != NULL ? global.owner : "externs",
            "symbol '%s' is defined by %s too", name, other != NULL ? other : "the caller");
    }
    vec_push(link->arena, &link->globals, global);
    return 0;
}

static int
collect_globals(struct linker *link, const struct asm_def *externs, size_t extern_count) {
    for (size_t i = 0; i < extern_count; i++) {
        struct global global = {.value = externs[i].value, .is_known = true};
        int r = add_global(link, externs[i].name, global);
        if (r < 0) {
            return r;
        }
    }
    for (size_t i = 0; i < link->object_count; i++) {
        const struct asm_object *object = link->objects[i];
        for (size_t s = 0; s < object->symbols.len; s++) {
            const struct symbol *symbol = &object->symbols.data[s];
            if (!symbol->is_global || symbol->kind == SYMBOL_UNDEFINED) {
                continue;
            }
            struct global global = {.owner = object->name, .expr = symbol->value, .object = i};
            int r = add_global(link, intern_name(&object->names, (uint32_t)s), global);
            if (r < 0) {
                return r;
            }
        }
    }
    return 0;
}

/* Values of globals: labels at once; a .set may name a global of another object that is not known
 * yet, so rounds go on while one of them becomes known. */
static int evaluate_globals(struct linker *link) {
    struct location at = {0};
    size_t known = 0, before;
    do {
        before = known;
        known = 0;
        for (size_t i = 0; i < link->globals.len; i++) {
            struct global *global = &link->globals.data[i];
            if (!global->is_known) {
                struct resolver r = resolver_of(link, global->object);
                struct value v;
                global->is_known = expr_eval(&r, global->expr, &at, &v, NULL) == 0;
                global->value = global->is_known ? v.k : 0;
            }
            known += global->is_known;
        }
    } while (known > before && known < link->globals.len);
    for (size_t i = 0; known < link->globals.len && i < link->globals.len; i++) {
        const struct global *global = &link->globals.data[i];
        if (!global->is_known) {
            struct resolver r = resolver_of(link, global->object);
            struct value v;
            at.line = 1;
            int status = expr_eval(&r, global->expr, &at, &v, link->err);
            return status < 0
                       ? err_wrap(link->err, "global '%s'", intern_name(&link->names, (uint32_t)i))
                       : status;
        }
    }
    return 0;
}

/* ---- the image ---- */

static int compare_segments(const void *a, const void *b) {
    const struct asm_segment *x = a, *y = b;
    return x->addr < y->addr   ? -1
           : x->addr > y->addr ? 1
           : x->size < y->size ? -1
                               : x->size > y->size;
}

static int compare_symbols(const void *a, const void *b) {
    return strcmp(((const struct asm_symbol *)a)->name, ((const struct asm_symbol *)b)->name);
}

static uint8_t *bytes_at(const struct asm_image *image, uint32_t addr) {
    for (size_t i = 0; i < image->segment_count; i++) {
        const struct asm_segment *s = &image->segments[i];
        if (addr >= s->addr && addr - s->addr < s->size) {
            return (uint8_t *)s->bytes + (addr - s->addr);
        }
    }
    return NULL;
}

/* Gaps between pieces of code hold nop words, others zeros. */
static void fill_gaps(uint8_t *bytes, uint32_t size, bool is_code) {
    for (uint32_t at = 0; is_code && at + 4 <= size; at += 4) {
        store_le32(bytes + at, ISA_NOP_WORD);
    }
}

static bool is_code_section(const struct linker *link, const char *name) {
    for (size_t i = 0; i < link->object_count; i++) {
        for (size_t s = 0; s < link->objects[i]->sections.len; s++) {
            const struct section *section = &link->objects[i]->sections.data[s];
            if (section->has_code && strcmp(section->name, name) == 0) {
                return true;
            }
        }
    }
    return false;
}

static int make_segments(
    struct linker *link, const struct asm_placement *places, size_t place_count,
    struct asm_image *image) {
    image->segments = ARENA_ARRAY(link->arena, struct asm_segment, place_count);
    for (size_t p = 0; p < place_count; p++) {
        struct asm_segment segment;
        int r = place_section(link, &places[p], &segment);
        if (r < 0) {
            return r;
        }
        if (segment.size > 0) {
            uint8_t *bytes = arena_alloc(link->arena, segment.size, 8);
            fill_gaps(
                bytes, segment.size,
                is_code_section(link, places[p].section) && segment.addr % 4 == 0);
            segment.bytes = bytes;
            image->segments[image->segment_count++] = segment;
        }
    }
    qsort(image->segments, image->segment_count, sizeof image->segments[0], compare_segments);
    for (size_t i = 1; i < image->segment_count; i++) {
        const struct asm_segment *a = &image->segments[i - 1], *b = &image->segments[i];
        if (a->addr + (uint64_t)a->size > b->addr) {
            return err_set(
                link->err, ERR_ASM,
                "sections at 0x%" PRIx32 "..0x%" PRIx32 " and 0x%" PRIx32 "..0x%" PRIx32 " overlap",
                a->addr, a->addr + a->size, b->addr, b->addr + b->size);
        }
    }
    return check_all_placed(link);
}

static int write_object(struct linker *link, size_t index, const struct asm_image *image) {
    const struct asm_object *object = link->objects[index];
    struct resolver r = resolver_of(link, index);
    for (size_t s = 0; s < object->sections.len; s++) {
        const struct section *section = &object->sections.data[s];
        if (section->bytes.len > 0) {
            memcpy(bytes_at(image, link->addrs[index][s]), section->bytes.data, section->bytes.len);
        }
    }
    for (size_t i = 0; i < object->items.len; i++) {
        const struct item *item = &object->items.data[i];
        uint8_t *bytes = bytes_at(image, link->addrs[index][item->section] + item->offset);
        int status = item_resolve(&r, item, bytes, link->err);
        if (status < 0) {
            return status;
        }
    }
    return 0;
}

static int make_symbols(struct linker *link, struct asm_image *image) {
    image->symbols = ARENA_ARRAY(link->arena, struct asm_symbol, link->globals.len);
    for (size_t i = 0; i < link->globals.len; i++) {
        const struct global *global = &link->globals.data[i];
        const char *name = intern_name(&link->names, (uint32_t)i);
        if (global->owner == NULL) {
            continue;
        }
        if (global->value < 0 || global->value > UINT32_MAX) {
            return err_at(
                link->err, ERR_ASM, global->owner, "global '%s' is %" PRId64 ", must fit 32 bits",
                name, global->value);
        }
        image->symbols[image->symbol_count++] = (struct asm_symbol){name, (uint32_t)global->value};
    }
    qsort(image->symbols, image->symbol_count, sizeof image->symbols[0], compare_symbols);
    return 0;
}

int asm_link(
    const struct asm_object *const *objects, size_t object_count,
    const struct asm_placement *places, size_t place_count, const struct asm_def *externs,
    size_t extern_count, struct arena *a, struct asm_image **ret, struct err *err) {
    struct linker link = {
        .objects = objects,
        .object_count = object_count,
        .places = places,
        .place_count = place_count,
        .arena = a,
        .err = err,
        .names.arena = a};
    link.addrs = ARENA_ARRAY(a, uint32_t *, object_count);
    link.is_placed = ARENA_ARRAY(a, bool *, object_count);
    for (size_t i = 0; i < object_count; i++) {
        link.addrs[i] = ARENA_ARRAY(a, uint32_t, objects[i]->sections.len);
        link.is_placed[i] = ARENA_ARRAY(a, bool, objects[i]->sections.len);
    }
    struct asm_image *image = ARENA_NEW(a, struct asm_image);
    int r = make_segments(&link, places, place_count, image);
    if (r == 0) {
        r = collect_globals(&link, externs, extern_count);
    }
    if (r == 0) {
        r = evaluate_globals(&link);
    }
    for (size_t i = 0; r == 0 && i < object_count; i++) {
        r = write_object(&link, i, image);
    }
    if (r == 0) {
        r = make_symbols(&link, image);
    }
    if (r < 0) {
        return r;
    }
    *ret = image;
    return 0;
}

int asm_image_symbol(
    const struct asm_image *image, const char *name, uint32_t *ret_addr, struct err *err) {
    struct asm_symbol key = {.name = name};
    const struct asm_symbol *found =
        image->symbol_count == 0
            ? NULL
            : bsearch(&key, image->symbols, image->symbol_count, sizeof key, compare_symbols);
    if (found == NULL) {
        return err_set(err, ERR_MISSING, "no global symbol '%s' in the image", name);
    }
    *ret_addr = found->addr;
    return 0;
}
