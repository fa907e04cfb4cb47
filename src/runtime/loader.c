/* Makes the secondary loader's bytes from loader.S. Its text is assembled in two parts, because
 * the first part's words are constants of the second; the second twice, because the boot code
 * must know the size of the resident code. Ends after three assemblies. */
#include <string.h>

#include "runtime/runtime.h"
#include "runtime/runtime_internal.h"

#define LOADER_LIMIT  4096u
#define COPY_ADDR     0x78000u
#define RESIDENT_ADDR 0x7C000u
#define PATCH_WORDS   4 /* of the copy loop, and of the clear loop */

enum {
    DEF_PART,
    DEF_FROM,
    DEF_WORDS,
    DEF_COPY,
    DEF_CLEAR = DEF_COPY + PATCH_WORDS,
    DEF_FAULTS = DEF_CLEAR + PATCH_WORDS,
    DEF_COUNT = DEF_FAULTS + 5
};

static void default_defs(struct asm_def defs[DEF_COUNT]) {
    static const struct asm_def all[DEF_COUNT] = {
        {"PART", 0},
        {"RESIDENT_FROM", 0},
        {"RESIDENT_WORDS", 1},
        {"COPY_W0", 0},
        {"COPY_W1", 0},
        {"COPY_W2", 0},
        {"COPY_W3", 0},
        {"CLEAR_W0", 0},
        {"CLEAR_W1", 0},
        {"CLEAR_W2", 0},
        {"CLEAR_W3", 0},
        {"RT_LOADER_BAD_TILE", RT_LOADER_BAD_TILE},
        {"RT_LOADER_BAD_SEQUENCE", RT_LOADER_BAD_SEQUENCE},
        {"RT_LOADER_BAD_FLAGS", RT_LOADER_BAD_FLAGS},
        {"RT_LOADER_BAD_RESERVED", RT_LOADER_BAD_RESERVED},
        {"RT_LOADER_BAD_DESCRIPTOR", RT_LOADER_BAD_DESCRIPTOR},
    };
    memcpy(defs, all, sizeof(all));
}

static int link_sections(
    const struct asm_object *object, const char *low, uint32_t low_addr, const char *high,
    uint32_t high_addr, struct arena *a, struct asm_image **ret, struct err *err) {
    const struct asm_placement places[] = {
        {.section = low, .addr = low_addr},
        {.section = high, .addr = high_addr},
    };
    return asm_link(&object, 1, places, 2, NULL, 0, a, ret, err);
}

static const struct asm_segment *segment_at(const struct asm_image *image, uint32_t addr) {
    for (size_t i = 0; i < image->segment_count; i++) {
        if (image->segments[i].addr == addr) {
            return &image->segments[i];
        }
    }
    return NULL;
}

/* Words of the composed loops become symbols of the second part. */
static int
take_words(const struct asm_image *image, uint32_t addr, struct asm_def *defs, struct err *err) {
    const struct asm_segment *segment = segment_at(image, addr);
    if (segment == NULL || segment->size != 4 * PATCH_WORDS) {
        return err_set(
            err, ERR_ASM, "loader: composed loop at 0x%x is not %d words", (unsigned)addr,
            PATCH_WORDS);
    }
    for (int i = 0; i < PATCH_WORDS; i++) {
        uint32_t word = 0;
        for (int b = 3; b >= 0; b--) {
            word = word << 8 | segment->bytes[4 * i + b];
        }
        defs[i].value = word;
    }
    return 0;
}

int runtime_loader(
    struct arena *a, const uint8_t **ret_bytes, uint32_t *ret_size, struct err *err) {
    struct asm_source source = runtime_text_loader();
    struct asm_object *object = NULL;
    struct asm_image *image = NULL;
    struct asm_def defs[DEF_COUNT];
    default_defs(defs);

    int r = asm_assemble(&source, ISA_SUPERVISOR, defs, DEF_COUNT, a, &object, err);
    if (r == 0) {
        r = link_sections(object, ".clear", TARGET_MEM_BASE, ".copy", COPY_ADDR, a, &image, err);
    }
    if (r == 0) {
        r = take_words(image, TARGET_MEM_BASE, &defs[DEF_CLEAR], err);
    }
    if (r == 0) {
        r = take_words(image, COPY_ADDR, &defs[DEF_COPY], err);
    }
    if (r != 0) {
        return r;
    }

    defs[DEF_PART].value = 1;
    r = asm_assemble(&source, ISA_SUPERVISOR, defs, DEF_COUNT, a, &object, err);
    if (r != 0) {
        return r;
    }
    uint32_t boot_size = (uint32_t)asm_section_size(object, ".boot");
    uint32_t resident_size = (uint32_t)asm_section_size(object, ".resident");
    uint32_t total = boot_size + resident_size;
    if (total > LOADER_LIMIT) {
        return err_set(err, ERR_ASM, "loader: %u bytes, at most %u", (unsigned)total, LOADER_LIMIT);
    }
    defs[DEF_FROM].value = TARGET_MEM_BASE + boot_size;
    defs[DEF_WORDS].value = resident_size / 4;
    r = asm_assemble(&source, ISA_SUPERVISOR, defs, DEF_COUNT, a, &object, err);
    if (r == 0) {
        r = link_sections(
            object, ".boot", TARGET_MEM_BASE, ".resident", RESIDENT_ADDR, a, &image, err);
    }
    if (r != 0) {
        return r;
    }
    const struct asm_segment *boot = segment_at(image, TARGET_MEM_BASE);
    const struct asm_segment *resident = segment_at(image, RESIDENT_ADDR);
    if (boot == NULL || resident == NULL || boot->size != boot_size ||
        resident->size != resident_size) {
        return err_set(err, ERR_ASM, "loader: size changes with its own size");
    }
    uint8_t *bytes = arena_alloc(a, total, 4);
    memcpy(bytes, boot->bytes, boot_size);
    memcpy(bytes + boot_size, resident->bytes, resident_size);
    *ret_bytes = bytes;
    *ret_size = total;
    return 0;
}

const char *runtime_loader_fault(uint32_t code) {
    switch (code) {
    case RT_LOADER_BAD_TILE: return "the frame is for another tile";
    case RT_LOADER_BAD_SEQUENCE: return "the frame's sequence number is wrong";
    case RT_LOADER_BAD_FLAGS:
        return "the frame has an unknown flag, or the last-frame flag in the wrong place";
    case RT_LOADER_BAD_RESERVED: return "the frame's reserved word is not 0";
    case RT_LOADER_BAD_DESCRIPTOR:
        return "the descriptor's offset or frame count is wrong, or it starts without an image";
    default: return NULL;
    }
}
