/* See sample_package.h. */
#include "sample_package.h"

#include <string.h>

#define HEX64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

const uint8_t sample_code[8] = {0, 0, 0xe0, 0x19, 0, 0, 0xe0, 0x19};

static struct package_slice
slice(uint32_t binding, uint32_t phase, uint16_t tile, uint64_t offset, uint32_t page, uint32_t n) {
    struct package_slice s = {
        .binding = binding,
        .phase = phase,
        .tile = {tile},
        .tensor_offset = offset,
        .page_offset = page,
        .extent = {1, 1, 1, 1, 1, n},
        .tensor_stride = {0, 0, 0, 0, 0, 1},
        .page_stride = {0, 0, 0, 0, 0, 2}};
    return s;
}

/* The same of 32-bit words. */
static struct package_slice
words(uint32_t binding, uint32_t phase, uint16_t tile, uint64_t offset, uint32_t page, uint32_t n) {
    struct package_slice s = slice(binding, phase, tile, offset, page, n);
    s.page_stride[5] = 4;
    return s;
}

static const uint32_t sample_steps[] = {0, 1, 2};

void sample_init(struct sample *s) {
    memset(s, 0, sizeof *s);
    s->contents[0] = (struct package_content){sample_code, sizeof sample_code};
    for (uint16_t t = 0; t < TARGET_TILES; t++) {
        s->segments[t] = (struct package_segment){{t}, TARGET_LOAD_BASE, 0};
    }
    s->bindings[0] = (struct package_binding){PACKAGE_INPUT, 0, DTYPE_FLOAT16, {2, {2, 3}}};
    s->bindings[1] = (struct package_binding){PACKAGE_OUTPUT, 0, DTYPE_FLOAT16, {1, {4}}};
    s->bindings[2] = (struct package_binding){PACKAGE_PROFILE, 0, DTYPE_UINT32, {2, {2, 3}}};
    s->bindings[3] = (struct package_binding){PACKAGE_PROFILE, 1, DTYPE_UINT32, {1, {3}}};
    s->phases[0] = (struct package_phase){PACKAGE_RUN, 0, false};
    s->phases[1] = (struct package_phase){PACKAGE_RUN, 1, true};
    s->slices[0] = slice(0, 0, 3, 0, 0, 2);
    s->slices[1] = slice(0, 0, 9, 2, 16, 4);
    s->slices[2] = words(2, 1, 3, 0, 0, 3);
    s->slices[3] = words(3, 1, 3, 0, 16, 2);
    s->slices[4] = slice(1, 1, 9, 0, 8, 4);
    s->slices[5] = words(2, 1, 9, 3, 16, 3);
    s->slices[6] = words(3, 1, 9, 2, 28, 1);
    s->steps[0] = (struct package_step){
        .kind = STEP_EXCHANGE, .predicted = 500, .horizon = 240, .bound = 100, .bytes = 4096};
    s->steps[1] = (struct package_step){.kind = STEP_COMPUTE, .call_count = 2, .predicted = 70};
    s->steps[2] = (struct package_step){.kind = STEP_IDLE, .level = 1, .last_level = 3};
    s->calls[0] = (struct package_kernel_call){1, 0, 0, "MatMul", "k_gemm", 50, 20};
    s->calls[1] = (struct package_kernel_call){1, 1, 2, "Add", "k_add", 20, 10};
    s->traces[0] = (struct package_trace){0, 3, sample_steps};
    s->traces[1] = (struct package_trace){2, 2, sample_steps};
    s->participants[0] = 3;
    s->participants[1] = 9;
    s->symbols[0] = (struct package_symbol){-1, TARGET_LOAD_BASE, 8, "rt_start"};
    s->p = (struct package){
        .target = TARGET_NAME,
        .compiler_id = HEX64,
        .key = HEX64,
        .options = "{}",
        .compute_tiles = 2,
        .contents = s->contents,
        .content_count = 1,
        .segments = s->segments,
        .segment_count = TARGET_TILES,
        .bindings = s->bindings,
        .binding_count = 4,
        .phases = s->phases,
        .phase_count = 2,
        .slices = s->slices,
        .slice_count = 7,
        .participants = s->participants,
        .participant_count = 2,
        .symbols = s->symbols,
        .symbol_count = 1,
        .steps = s->steps,
        .step_count = 3,
        .calls = s->calls,
        .call_count = 2,
        .traces = s->traces,
        .trace_count = 2,
        .report = "{\"a\":1}"};
}
