/* Any text: assembling, linking and listing never crash, hang or leak; what is assembled is made
 * of whole words again when it is listed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "asm/asm.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void list_segments(const struct asm_image *image, enum isa_unit unit) {
    char *text = NULL;
    size_t text_size = 0;
    FILE *out = open_memstream(&text, &text_size);
    if (out == NULL) {
        return;
    }
    for (size_t i = 0; i < image->segment_count; i++) {
        const struct asm_segment *s = &image->segments[i];
        asm_disassemble(out, s->bytes, s->size < 4096 ? s->size : 4096, s->addr, unit);
        if (i > 0 && image->segments[i - 1].addr + image->segments[i - 1].size > s->addr) {
            abort();
        }
    }
    fclose(out);
    free(text);
}

static void assemble(const uint8_t *data, size_t size, enum isa_unit unit, struct arena *a) {
    struct asm_source source = {"fuzz.S", (const char *)data, size};
    struct asm_def defs[] = {{"N", 3}};
    struct asm_placement places[] = {{".text", 0x4c000, 0x80000}, {".data", 0x80000, 0}};
    struct asm_object *object;
    struct asm_image *image;
    struct err err = {0};
    if (asm_assemble(&source, unit, defs, 1, a, &object, &err) < 0) {
        if (err.where[0] == '\0' || err.text[0] == '\0') {
            abort();
        }
        return;
    }
    const struct asm_object *objects[] = {object};
    if (asm_link(objects, 1, places, 2, NULL, 0, a, &image, &err) == 0) {
        list_segments(image, unit);
    } else if (err.text[0] == '\0') {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    for (int unit = ISA_SUPERVISOR; unit <= ISA_WORKER; unit++) {
        struct arena a;
        arena_init(&a, 256u << 20);
        if (ARENA_RECOVER(&a) == 0) {
            assemble(data, size, (enum isa_unit)unit, &a);
        }
        arena_done(&a);
    }
    return 0;
}
