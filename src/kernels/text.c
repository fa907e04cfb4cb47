/* Embeds the kernels' texts. The assembler of the host copies the files' bytes; paths are relative
 * to the project root, where make runs. */
#include "kernels/kernels_internal.h"

#define TEXT(NAME, FILE_NAME)                                                                      \
    __asm__(".pushsection .rodata\n"                                                               \
            ".global kernel_text_" #NAME "_begin\n"                                                \
            "kernel_text_" #NAME "_begin:\n"                                                       \
            ".incbin \"src/kernels/" FILE_NAME "\"\n"                                              \
            ".global kernel_text_" #NAME "_end\n"                                                  \
            "kernel_text_" #NAME "_end: .byte 0\n"                                                 \
            ".popsection\n");                                                                      \
    extern const char kernel_text_##NAME##_begin[], kernel_text_##NAME##_end[];

TEXT(common, "common.S")
#define KERNEL(NAME, name, file, ...) TEXT(name, file)
#include "kernels/kernels.def"
#undef KERNEL

struct kernel_text kernel_text_common(void) {
    return (struct kernel_text){
        kernel_text_common_begin, (size_t)(kernel_text_common_end - kernel_text_common_begin)};
}

struct kernel_text kernel_text(enum kernel_id id) {
    switch (id) {
#define KERNEL(NAME, name, file, ...)                                                              \
    case KERNEL_##NAME:                                                                            \
        return (struct kernel_text){                                                               \
            kernel_text_##name##_begin,                                                            \
            (size_t)(kernel_text_##name##_end - kernel_text_##name##_begin)};
#include "kernels/kernels.def"
#undef KERNEL
    case KERNEL_COUNT: break;
    }
    return (struct kernel_text){"", 0};
}
