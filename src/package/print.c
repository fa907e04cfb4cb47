/* Listing of a package: header, interface, host phases, then each distinct image once with the
 * tiles that have it, disassembled. Stable: everything is in key order. */
#include "package/package_internal.h"

#include <string.h>

#include "asm/asm.h"

static const char *const role_names[] = {"input", "output", "parameter", "profile"};

const char *package_step_kind_name(enum package_step_kind k) {
    static const char *const names[STEP_KINDS] = {
        [STEP_EXCHANGE] = "exchange",
        [STEP_COMPUTE] = "compute",
        [STEP_IDLE] = "idle",
        [STEP_REST] = "rest",
        [STEP_REPEAT] = "repeat"};
    return k < STEP_KINDS ? names[k] : "?";
}

static void print_profile_plan(const struct package *p, FILE *out) {
    for (uint32_t i = 0; i < p->step_count; i++) {
        const struct package_step *s = &p->steps[i];
        fprintf(
            out, "step %u: %s level %u..%u predicted=%u horizon=%u bound=%u bytes=%llu\n", i,
            package_step_kind_name(s->kind), s->level, s->last_level, s->predicted, s->horizon,
            s->bound, (unsigned long long)s->bytes);
        for (uint32_t k = 0; k < s->call_count; k++) {
            const struct package_kernel_call *c = &p->calls[s->first_call + k];
            fprintf(
                out, "  call %s of operation %u, node %u %s, predicted=%u useful=%u\n", c->kernel,
                c->operation, c->node, c->op, c->predicted, c->useful);
        }
    }
    for (uint32_t i = 0; i < p->trace_count; i++) {
        const struct package_trace *t = &p->traces[i];
        fprintf(out, "trace of tile %u from word %u:", p->participants[i], t->first);
        for (uint32_t k = 0; k < t->count; k++) {
            fprintf(out, " %u", t->steps[k]);
        }
        fprintf(out, "\n");
    }
}

static void print_interface(const struct package *p, FILE *out) {
    for (uint32_t i = 0; i < p->binding_count; i++) {
        char shape[96];
        const struct package_binding *b = &p->bindings[i];
        fprintf(
            out, "binding %u: %s %u %s %s\n", i, role_names[b->role], b->ordinal,
            dtype_name(b->dtype), shape_print(&b->shape, shape, sizeof shape));
    }
    uint32_t s = 0;
    for (uint32_t i = 0; i < p->phase_count; i++) {
        const struct package_phase *f = &p->phases[i];
        uint32_t first = s;
        while (s < p->slice_count && p->slices[s].phase == i) {
            s++;
        }
        fprintf(
            out, "phase %u: %s %u %s, %u slices\n", i,
            f->call == PACKAGE_INITIALIZE ? "initialize" : "run", f->index,
            f->is_output ? "out" : "in", s - first);
    }
}

/* First segment index of each tile lies in first[tile], first[TARGET_TILES] is the end. */
static void index_tiles(const struct package *p, uint32_t first[TARGET_TILES + 1]) {
    uint32_t i = 0;
    for (uint32_t tile = 0; tile < TARGET_TILES; tile++) {
        first[tile] = i;
        while (i < p->segment_count && p->segments[i].tile.n == tile) {
            i++;
        }
    }
    first[TARGET_TILES] = i;
}

static bool same_image(const struct package *p, const uint32_t *first, uint32_t a, uint32_t b) {
    uint32_t n = first[a + 1] - first[a];
    if (n != first[b + 1] - first[b]) {
        return false;
    }
    for (uint32_t i = 0; i < n; i++) {
        const struct package_segment *x = &p->segments[first[a] + i];
        const struct package_segment *y = &p->segments[first[b] + i];
        if (x->addr != y->addr || x->content != y->content) {
            return false;
        }
    }
    return true;
}

static void print_image(const struct package *p, const uint32_t *first, uint32_t tile, FILE *out) {
    for (uint32_t i = first[tile]; i < first[tile + 1]; i++) {
        const struct package_segment *s = &p->segments[i];
        const struct package_content *c = &p->contents[s->content];
        fprintf(out, "segment 0x%05x, %u bytes, content %u\n", s->addr, c->size, s->content);
        for (uint32_t k = 0; k < p->symbol_count; k++) {
            const struct package_symbol *y = &p->symbols[k];
            if ((y->tile < 0 || y->tile == (int32_t)tile) && y->addr >= s->addr &&
                y->addr < s->addr + c->size) {
                fprintf(out, "  0x%05x %s\n", y->addr, y->name);
            }
        }
        if (s->addr < TARGET_LOAD_BASE + TARGET_ELEMENT_BYTES - 16) {
            asm_disassemble(out, c->bytes, c->size, s->addr, ISA_SUPERVISOR);
        }
    }
}

int package_print(const struct package *p, FILE *out, struct err *err) {
    fprintf(
        out, "target %s, compute tiles %u\nkey %s\ncompiler %s\noptions %s\n", p->target,
        p->compute_tiles, p->key, p->compiler_id, p->options);
    print_interface(p, out);
    print_profile_plan(p, out);
    uint32_t first[TARGET_TILES + 1];
    index_tiles(p, first);
    bool is_done[TARGET_TILES] = {false};
    for (uint32_t tile = 0; tile < TARGET_TILES; tile++) {
        if (is_done[tile]) {
            continue;
        }
        fprintf(out, "image of tiles");
        for (uint32_t other = tile; other < TARGET_TILES; other++) {
            if (same_image(p, first, tile, other)) {
                is_done[other] = true;
                fprintf(out, " %u", other);
            }
        }
        fprintf(out, "\n");
        print_image(p, first, tile, out);
    }
    return ferror(out) ? err_set(err, ERR_IO, "listing could not be written") : 0;
}
