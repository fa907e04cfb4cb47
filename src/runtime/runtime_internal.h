/* What the runtime module shares with itself: the embedded texts. */
#ifndef RUNTIME_INTERNAL_H
#define RUNTIME_INTERNAL_H

#include "runtime/runtime.h"

struct asm_source runtime_text_runtime(void);
struct asm_source runtime_text_loader(void);

#endif
