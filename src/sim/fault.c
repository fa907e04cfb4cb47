/* Exceptions as values: a context that raises one stops, keeps its pc and its slot, and says why
 * in SSR or WSR. Debug exceptions (a breakpoint, a retirement stop) give another context state
 * than the rest, because only they are meant to be continued. */
#include "sim/tile.h"

static const char *const names[16] = {
    [ETYPE_NONE] = "none",
    [ETYPE_RBRK] = "RBRK",
    [ETYPE_PBRK0] = "PBRK0",
    [ETYPE_PBRK1] = "PBRK1",
    [ETYPE_BOS] = "BOS",
    [ETYPE_FP] = "FP",
    [ETYPE_CONFLICT] = "CONFLICT",
    [ETYPE_EXCONF] = "EXCONF",
    [ETYPE_INVALID_ADDR] = "INVALID_ADDR",
    [ETYPE_INVALID_OP] = "INVALID_OP",
    [ETYPE_INVALID_PC] = "INVALID_PC",
    [ETYPE_DBRK] = "DBRK",
    [ETYPE_INVALID_INSTR] = "INVALID_INSTR",
    [ETYPE_EXERR] = "EXERR",
    [ETYPE_MEMERR] = "MEMERR",
    [ETYPE_IBRK] = "IBRK",
};

const char *fault_name(int etype) {
    return etype >= 0 && etype < 16 ? names[etype] : "?";
}

static bool is_debug(int etype) {
    return etype == ETYPE_RBRK || etype == ETYPE_PBRK0 || etype == ETYPE_PBRK1 ||
           etype == ETYPE_BOS || etype == ETYPE_DBRK || etype == ETYPE_IBRK;
}

void fault_set(struct tile *t, struct context *c, int etype) {
    c->etype = (uint8_t)etype;
    c->erpt = c->in_rpt;
    c->state = is_debug(etype) ? 2 : 3;
    c->next = TILE_NEVER;
    t->running &= (uint8_t) ~(1u << c->index);
    if (t->trace != NULL) {
        trace_fault(t, c);
    }
}

void tile_raise(struct tile *t, int context, int etype) {
    fault_set(t, &t->ctx[context], etype);
}

int tile_etype(const struct tile *t, int context) {
    return t->ctx[context].etype;
}
