/* One tile: state and the inline accessors that its files share (the inner view; the chip sees
 * sim_internal.h only).
 *
 *   context 0      supervisor, main pipe only, owns every slot that no worker holds
 *   context 1..6   workers; each holds one of the six slots from its launch until its exit
 *
 *   word in memory --predecode (exec_decode.c)--> struct dec --fn--> new state
 *
 * Invariants:
 *  1. An issue group commits wholly or not at all. Main-pipe functions check before they write;
 *     where the aux half can still raise an exception, step_group() keeps a copy of the context.
 *  2. The main half runs first, so it reads register values from before the bundle. Aux functions
 *     never touch $m. Where the main half writes an $a register that the aux half reads, it is
 *     decoded to write elsewhere, and the words move when the aux half is done (DEC_CROSSED).
 *  3. Registers that do not exist are written to the sink (index 16 up) and read as zero.
 *  4. A decoded word is dropped when the word is stored to, so code may be rewritten at any time.
 *  5. Time is in absolute cycles; of two contexts the one with the smaller `next` issues first,
 *     and no two share a slot, so results do not depend on how a run is cut into calls.
 */
#ifndef SIM_TILE_H
#define SIM_TILE_H

#include <string.h>

#include "sim/sim_internal.h"

/* NaN as single, as either half; odd as an address: whatever meets it shows it. */
#define TILE_POISON 0xFFBAFDADu

#define TILE_CONTEXTS 7
#define TILE_SLOTS    6
#define TILE_NEVER    UINT64_MAX
#define ADDR_MASK     0x1FFFFFu /* 21-bit byte addresses */

#define PAGE_BYTES 4096u
#define PAGE_WORDS 1024u
#define PAGE_COUNT (TARGET_MEM_SIZE / PAGE_BYTES)

#define CODE_WORDS  256u /* words per block of decoded code */
#define CODE_BLOCKS ((TARGET_REGION1 - TARGET_MEM_BASE) / (CODE_WORDS * 4))

#define SINK    16
#define CROSSED 20 /* in a[]: eight places for what the main half of a DEC_CROSSED writes */

enum {
#define TIMING(name, value, tag, source) TIME_##name = value,
#define LATENCY(op, value, tag, source)
#include "sim/timing.def"
#undef TIMING
#undef LATENCY
};

enum etype {
    ETYPE_NONE,
    ETYPE_RBRK,
    ETYPE_PBRK0,
    ETYPE_PBRK1,
    ETYPE_BOS,
    ETYPE_FP,
    ETYPE_CONFLICT,
    ETYPE_EXCONF,
    ETYPE_INVALID_ADDR,
    ETYPE_INVALID_OP,
    ETYPE_INVALID_PC,
    ETYPE_DBRK,
    ETYPE_INVALID_INSTR,
    ETYPE_EXERR,
    ETYPE_MEMERR,
    ETYPE_IBRK,
};

/* What an exec function answers besides an exception type (1..15). */
enum {
    EXEC_OK = 0,
    EXEC_EXIT = 16, /* worker ends, boolean in exit_status */
    EXEC_LOCAL,     /* supervisor waits for the workers */
    EXEC_SYNC,      /* barrier beyond this tile */
    EXEC_EXCHANGE,  /* the chip executes this one */
};

enum dec_kind {
    DEC_NONE, /* not decoded yet */
    DEC_BAD,  /* no legal group starts here */
    DEC_SOLO,
    DEC_BUNDLE,  /* second half in the next element */
    DEC_CROSSED, /* bundle whose main half writes an $a that the aux half reads */
};

enum dec_flag {
    DEC_NO_RPT = 1,  /* control or system: not in a repeat body (either half) */
    DEC_GUARDED = 2, /* the aux half can fault without FP traps */
};

struct tile;
struct context;
struct dec;
typedef int exec_fn(struct tile *t, struct context *c, const struct dec *d);

/* One decoded word. Registers by operand letter; pair and quad numbers are aligned. */
struct dec {
    exec_fn *fn;
    uint16_t op;
    uint8_t kind;    /* enum dec_kind, of the group that starts here */
    uint8_t flags;   /* enum dec_flag */
    int32_t imm;     /* first immediate; a second one stands in its letter of r[] */
    uint8_t r[4];    /* register read, by letter a..d */
    uint8_t w[4];    /* register written: as r, or the sink, or CROSSED up */
    uint8_t latency; /* worker cycles of the group */
    uint16_t reads;  /* supervisor: $m numbers as bits; worker: $a numbers */
    uint16_t writes;
};

enum { A, B, C, D }; /* operand letters */

struct page {
    uint32_t *words;   /* never NULL: shared poison or zero page until first written */
    uint64_t *written; /* bit per word; NULL = all written */
    uint16_t unwritten;
    bool is_own; /* words belongs to this tile and may be stored to */
};

struct context {
    _Alignas(64) uint32_t even[16]; /* AACC[2k], raw f32; whole cache lines */
    uint32_t odd[16];               /* AACC[2k + 1] */
    uint32_t m[SINK + 4];
    uint32_t a[CROSSED + 8];
    uint32_t pc;
    uint32_t next_pc; /* of the group in flight */
    uint32_t rpt_count, rpt_first, rpt_end;
    uint32_t fp_ctl, fp_sts, fp_nfmt, fp_scl, tas;
    uint64_t prng[2];
    uint32_t dbg_brk_id;
    uint32_t ahead; /* fetch look-ahead in bytes */
    bool in_rpt;
    bool is_taken; /* the group in flight branches */
    uint8_t extra; /* worker cycles added by the branch target */
    uint8_t index; /* 0 supervisor, 1..6 */
    uint8_t state; /* as CTXT_STS: 0 inactive, 1 active, 2 debug, 3 other exception */
    uint8_t etype;
    bool erpt;          /* exception inside a repeat */
    bool has_break;     /* retirement break wanted */
    int8_t exit_status; /* boolean of the last exit, -1 none */
    bool is_leaving;    /* exited, slot not yet released */
    uint8_t slot;
    uint64_t next; /* cycle of the next issue; TILE_NEVER when none */
};

enum sup_wait { SUP_RUNS, SUP_LOCAL, SUP_BARRIER, SUP_CHIP };

/* Coefficients as numbers, rebuilt when stale: in the widest case 8 lanes of 4 phases. */
enum coef_form { COEF_NONE, COEF_F16, COEF_F8_152, COEF_F8_143, COEF_F32 };
struct coefs {
    _Alignas(64) double lane[4][8][16]; /* [p][lane][unit]; f32: [p][half] */
    uint64_t stale;                     /* bit per CWEI entry */
    uint8_t form;                       /* enum coef_form of `lane` */
};

struct tile {
    struct context ctx[TILE_CONTEXTS];
    struct page pages[PAGE_COUNT];
    struct dec *code[2][CODE_BLOCKS]; /* [0] supervisor, [1] worker; CODE_WORDS + 1 each */
    uint64_t cwei[64];
    struct coefs *coefs; /* NULL until the first matrix instruction */
    uint64_t now;        /* cycle of the group in flight */
    uint64_t rdy[16];    /* supervisor scoreboard: $m readable from this cycle on */
    uint64_t sup_ready;  /* earliest cycle of the next supervisor issue, operands apart */
    uint64_t free_at;    /* cycle at which the last slot came back */
    uint64_t groups;
    uint64_t poison_reads;
    uint8_t slot_ctx[TILE_SLOTS]; /* holder, 0 = supervisor */
    uint8_t sup_slots;            /* mask of the supervisor's slots */
    uint8_t running;              /* mask of contexts 1..6 holding a slot and not excepted */
    uint8_t level;                /* enum exec_level */
    enum sup_wait wait;
    bool is_starved; /* host memory ran out: the next run raises MEMERR */
    bool breaks_on_sync;
    bool is_past_break; /* the sync at pc has been stopped at and is to be executed */
    uint16_t physical;
    bool poison_launch;
    uint32_t csr[256];     /* supervisor registers without a place of their own */
    bool consensus, raerr; /* SSR.LC, SSR.RAERR */
    struct insn insn;      /* of TILE_SYNC and TILE_EXCHANGE */
    uint32_t insn_data;
    FILE *trace; /* borrowed, NULL = off */
};

extern exec_fn *const exec_table[ISA_OP_COUNT]; /* the careful function of every instruction */

/* exec_wide.c: what the processor at hand can do, and the function for d at that level. */
enum exec_level { EXEC_SCALAR, EXEC_AVX2, EXEC_AVX512 };
enum exec_level exec_level_best(void);
exec_fn *exec_choose(const struct dec *d, enum exec_level level);

/* exec_decode.c: the decoded group at c->pc; never NULL (a DEC_BAD when out of memory). */
const struct dec *decode_at(struct tile *t, const struct context *c);
/* One word as a group of its own, for injection and the chip. False: undecodable. */
bool decode_word(uint32_t word, enum isa_unit unit, struct dec *ret);
void code_drop(struct tile *t, uint32_t addr); /* after a store, addr in region 0 */
void code_free(struct tile *t);

/* memory.c */
void mem_init(struct tile *t);
void mem_done(struct tile *t);
void mem_zero(struct tile *t);                 /* all of it, as written zeros */
bool mem_own(struct tile *t, uint32_t addr);   /* makes the page storable; false: no memory */
void mem_mark(struct page *p, uint32_t index); /* word becomes written */

/* fault.c */
void fault_set(struct tile *t, struct context *c, int etype);
const char *fault_name(int etype);

/* exec_ctl.c */
int csr_get(struct tile *t, struct context *c, int number, uint32_t *ret);
int csr_put(struct tile *t, struct context *c, int number, uint32_t value);
/* Any register, read-only ones included; false when there is none of that number. */
bool csr_poke(struct tile *t, struct context *c, int number, uint32_t value);
void cwei_set(struct tile *t, uint32_t entry, uint64_t value);
void cwei_clear(struct tile *t);

/* tile.c: executes the group at c->pc and advances it; 0, an exception type or an EXEC_ event.
 * c->next_pc, extra and is_taken stay for the caller's timing. */
int step_group(struct tile *t, struct context *c, uint8_t *ret_latency);
/* Makes a worker active at its pc, registers untouched; first issue at or after `from`. */
void worker_activate(struct tile *t, struct context *c, uint64_t from);
/* Ends a worker at once, without the time an exit takes (stepping by hand). */
void worker_retire(struct tile *t, struct context *c);
/* Gives worker w a slot; its first issue is at or after `from`. */
void worker_start(struct tile *t, int w, uint32_t pc, uint32_t vertex_base, uint64_t from);

/* trace.c */
void trace_group(struct tile *t, const struct context *c);
void trace_fault(struct tile *t, const struct context *c);

/* ---- memory, inline because every second instruction goes through it ------------------------- */

static inline uint32_t mem_load32(struct tile *t, uint32_t addr) {
    const struct page *p = &t->pages[(addr - TARGET_MEM_BASE) / PAGE_BYTES];
    uint32_t i = (addr >> 2) % PAGE_WORDS;

    if (p->written != NULL && (p->written[i >> 6] >> (i & 63) & 1) == 0) {
        t->poison_reads++;
    }
    return p->words[i];
}

/* Two words at an address that is a multiple of 8. */
static inline void mem_load64(struct tile *t, uint32_t addr, uint32_t *ret) {
    const struct page *p = &t->pages[(addr - TARGET_MEM_BASE) / PAGE_BYTES];
    uint32_t i = (addr >> 2) % PAGE_WORDS;

    if (p->written == NULL) {
        ret[0] = p->words[i];
        ret[1] = p->words[i + 1];
        return;
    }
    ret[0] = mem_load32(t, addr);
    ret[1] = mem_load32(t, addr + 4);
}

/* May a store there hit decoded code? The first word of a block ends a bundle of the one before. */
static inline bool code_is_near(const struct tile *t, uint32_t addr) {
    uint32_t block = (addr - TARGET_MEM_BASE) / (4 * CODE_WORDS);

    return t->code[0][block] != NULL || t->code[1][block] != NULL || (addr >> 2) % CODE_WORDS == 0;
}

/* False when memory for the page cannot be had. */
static inline bool mem_store32(struct tile *t, uint32_t addr, uint32_t value) {
    struct page *p = &t->pages[(addr - TARGET_MEM_BASE) / PAGE_BYTES];
    uint32_t i = (addr >> 2) % PAGE_WORDS;

    if (!p->is_own && !mem_own(t, addr)) {
        return false;
    }
    if (p->written != NULL) {
        mem_mark(p, i);
    }
    p->words[i] = value;
    if (addr < TARGET_REGION1 && code_is_near(t, addr)) {
        code_drop(t, addr);
    }
    return true;
}

/* Two words at an address that is a multiple of 8. */
static inline bool mem_store64(struct tile *t, uint32_t addr, const uint32_t *words) {
    struct page *p = &t->pages[(addr - TARGET_MEM_BASE) / PAGE_BYTES];

    if (!p->is_own || p->written != NULL || addr < TARGET_REGION1) {
        return mem_store32(t, addr, words[0]) && mem_store32(t, addr + 4, words[1]);
    }
    memcpy(&p->words[(addr >> 2) % PAGE_WORDS], words, 8);
    return true;
}

/* Does an access in region 0 meet the element being fetched from (tile fact sheet 1.7)? */
static inline bool mem_meets_fetch(const struct context *c, uint32_t addr) {
    uint32_t first = c->in_rpt ? c->rpt_first : c->pc + 4;
    uint32_t last = c->in_rpt ? c->rpt_end : c->pc + c->ahead;
    uint32_t element = (addr - TARGET_MEM_BASE) / TARGET_ELEMENT_BYTES;

    return element >= (first - TARGET_MEM_BASE) / TARGET_ELEMENT_BYTES &&
           element <= (last - TARGET_MEM_BASE) / TARGET_ELEMENT_BYTES;
}

/* 0 or the exception of an access of `size` bytes (a power of two) at addr. */
static inline int mem_check(const struct context *c, uint32_t addr, uint32_t size) {
    if (addr - TARGET_MEM_BASE >= TARGET_MEM_SIZE || (addr & (size - 1)) != 0) {
        return ETYPE_INVALID_ADDR;
    }
    if (addr < TARGET_REGION1 && mem_meets_fetch(c, addr)) {
        return ETYPE_CONFLICT;
    }
    return EXEC_OK;
}

static inline bool pc_is_valid(uint32_t pc) {
    return pc - TARGET_MEM_BASE < TARGET_REGION1 - TARGET_MEM_BASE && (pc & 3) == 0;
}

static inline uint32_t acc_get(const struct context *c, int i) {
    return (i & 1) != 0 ? c->odd[i >> 1] : c->even[i >> 1];
}

static inline void acc_set(struct context *c, int i, uint32_t value) {
    if ((i & 1) != 0) {
        c->odd[i >> 1] = value;
    } else {
        c->even[i >> 1] = value;
    }
}

#endif
