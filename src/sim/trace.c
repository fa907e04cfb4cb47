/* Instruction trace: one line an issue group, before it executes:
 *
 *   cycle tile context pc  text | text of the second half
 *
 * and one line an exception. The words are decoded afresh, so the trace shows memory, not the
 * decoded copies. */
#include "sim/tile.h"

static uint32_t word_at(const struct tile *t, uint32_t addr) {
    if (addr - TARGET_MEM_BASE >= TARGET_MEM_SIZE) {
        return 0;
    }
    return t->pages[(addr - TARGET_MEM_BASE) / PAGE_BYTES].words[(addr >> 2) % PAGE_WORDS];
}

/* Appends to a line; what does not fit is cut. */
static size_t append(char *line, size_t used, size_t size, const char *a, const char *b) {
    int n = snprintf(line + used, size - used, "%s%s", a, b);

    used += n < 0 ? 0 : (size_t)n;
    return used < size ? used : size - 1;
}

/* The word at addr as text; true when it is the first half of a bundle. */
static bool
word_text(const struct tile *t, const struct context *c, uint32_t addr, char *ret, size_t size) {
    struct insn insn;
    uint32_t word = word_at(t, addr);

    if (!isa_decode(word, c->index == 0 ? ISA_SUPERVISOR : ISA_WORKER, &insn)) {
        snprintf(ret, size, ".long 0x%08x", word);
        return false;
    }
    isa_print(&insn, ret, size);
    return insn.coissue;
}

static size_t line_head(const struct tile *t, const struct context *c, char *line, size_t size) {
    char head[64];

    snprintf(
        head, sizeof head, "%llu %u %d 0x%05x  ", (unsigned long long)t->now, t->physical, c->index,
        c->pc);
    return append(line, 0, size, head, "");
}

/* A line goes out in one call, so that lines of tiles on several threads do not mix. */
void trace_group(struct tile *t, const struct context *c) {
    char line[320], text[96];
    size_t n = line_head(t, c, line, sizeof line);
    bool is_bundle = word_text(t, c, c->pc, text, sizeof text);

    n = append(line, n, sizeof line, text, "");
    if (is_bundle) {
        word_text(t, c, c->pc + 4, text, sizeof text);
        n = append(line, n, sizeof line, " | ", text);
    }
    append(line, n, sizeof line, "\n", "");
    fputs(line, t->trace);
}

void trace_fault(struct tile *t, const struct context *c) {
    char line[128];
    size_t n = line_head(t, c, line, sizeof line);

    n = append(line, n, sizeof line, "exception ", fault_name(c->etype));
    append(line, n, sizeof line, "\n", "");
    fputs(line, t->trace);
}
