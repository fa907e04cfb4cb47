/* Embeds the texts of the tile runtime and of the secondary boot loader; paths are relative to
 * the project root, where make runs. */
#include "runtime/runtime_internal.h"

#define TEXT(NAME)                                                                                 \
    __asm__(".pushsection .rodata\n"                                                               \
            ".global runtime_text_" #NAME "_begin\n"                                               \
            "runtime_text_" #NAME "_begin:\n"                                                      \
            ".incbin \"src/runtime/" #NAME ".S\"\n"                                                \
            ".global runtime_text_" #NAME "_end\n"                                                 \
            "runtime_text_" #NAME "_end: .byte 0\n"                                                \
            ".popsection\n");                                                                      \
    extern const char runtime_text_##NAME##_begin[], runtime_text_##NAME##_end[];

TEXT(runtime)
TEXT(loader)

struct asm_source runtime_text_runtime(void) {
    return (struct asm_source){
        "runtime.S", runtime_text_runtime_begin,
        (size_t)(runtime_text_runtime_end - runtime_text_runtime_begin)};
}

struct asm_source runtime_text_loader(void) {
    return (struct asm_source){
        "loader.S", runtime_text_loader_begin,
        (size_t)(runtime_text_loader_end - runtime_text_loader_begin)};
}
