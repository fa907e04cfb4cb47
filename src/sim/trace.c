/* Instruction trace: one line an issue group, before it executes:
 *
 *   cycle tile context pc  text | text of the second half
 *
 * and one line an exception. The words are decoded afresh, so the trace shows memory, not the
 * decoded copies. */
#include "sim/tile.h"

static uint32_t word_at(const struct tile *t, uint32_t addr)
{
    if (addr - TARGET_MEM_BASE >= TARGET_MEM_SIZE) {
        return 0;
    }
    return t->pages[(addr - TARGET_MEM_BASE) / PAGE_BYTES].words[(addr >> 2) % PAGE_WORDS];
}

static bool print_word(const struct tile *t, const struct context *c, uint32_t addr,
    const char *before)
{
    char text[96];
    struct insn insn;
    uint32_t word = word_at(t, addr);

    if (!isa_decode(word, c->index == 0 ? ISA_SUPERVISOR : ISA_WORKER, &insn)) {
        fprintf(t->trace, "%s.long 0x%08x", before, word);
        return false;
    }
    isa_print(&insn, text, sizeof text);
    fprintf(t->trace, "%s%s", before, text);
    return insn.coissue;
}

void trace_group(struct tile *t, const struct context *c)
{
    fprintf(t->trace, "%llu %u %d 0x%05x", (unsigned long long)t->now, t->physical, c->index,
        c->pc);
    if (print_word(t, c, c->pc, "  ")) {
        print_word(t, c, c->pc + 4, " | ");
    }
    fputc('\n', t->trace);
}

void trace_fault(struct tile *t, const struct context *c)
{
    fprintf(t->trace, "%llu %u %d 0x%05x  exception %s\n", (unsigned long long)t->now, t->physical,
        c->index, c->pc, fault_name(c->etype));
}
