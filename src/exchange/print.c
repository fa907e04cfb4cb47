/* Text of a phase: what each transfer got, then every row instruction by instruction with the
 * events it covers. Sorted by transfer and tile, so that it can be compared. */
#include "exchange/exchange_internal.h"

#include <inttypes.h>

static const char *const control_names[] = {"mux", "pair", "pointer", "format"};
static const char *const form_names[] = {"point", "absolute", "paired"};

/* Both controls of an instruction take effect at one event. */
static void print_writes(const struct row_step *s, int32_t now, FILE *out) {
    if (s->write_count > 0) {
        fprintf(out, "; at %d", now + s->writes[0].event);
    }
    for (uint32_t i = 0; i < s->write_count; i++) {
        const struct row_write *w = &s->writes[i];
        if (w->kind <= CONTROL_PAIR && w->value == TARGET_MUX_IDLE) {
            fprintf(out, " %s idle", control_names[w->kind]);
        } else if (w->kind == CONTROL_POINTER) {
            fprintf(out, " pointer 0x%x", w->value * 4);
        } else {
            fprintf(out, " %s %u", control_names[w->kind], w->value);
        }
    }
}

static void print_step(
    const struct exchange_row *row, uint32_t i, const struct row_step *s, int32_t now, FILE *out) {
    static const char *const names[] = {
        "delay", "write", "send", "sendoff", "sendpic", "sendpicp", "put OUTGOING_BASE", "br $m10"};
    fprintf(out, "  %6d..%-6d %08" PRIx32, now, now + s->events, row->words[i]);
    fprintf(
        out, s->words == 2 ? " %08" PRIx32 "  " : "           ",
        s->words == 2 ? row->words[i + 1] : 0);
    fprintf(out, "%s", names[s->op]);
    if (s->op == STEP_SEND || (s->op == STEP_SENDPICP && s->sctl != 0)) {
        fprintf(out, " 0x%x", s->item_addr * (s->sctl & 4 ? 8 : 4));
    }
    if (s->op != STEP_SENDPIC && s->sctl != 0) {
        fprintf(
            out, " %s%s",
            (s->sctl & 3) == 3 ? "both"
            : s->sctl & 1      ? "east"
                               : "west",
            s->sctl & 4 ? " wide" : "");
    }
    if (s->op == STEP_BASE) {
        fprintf(out, " $m%u", s->reg);
    }
    print_writes(s, now, out);
    fprintf(out, "\n");
}

static void print_row(const struct exchange_row *row, FILE *out) {
    struct physical_tile p = target_physical(row->tile);
    fprintf(
        out, "tile %u (physical %u: row %d column %d sub %d): %u words, horizon %u", row->tile.n,
        p.n, target_row(p), target_column(p), target_sub(p), row->word_count, row->horizon);
    if (row->incoming_base != 0) {
        fprintf(out, ", base 0x%x", row->incoming_base);
    }
    fprintf(out, "\n");
    int32_t now = 0;
    for (uint32_t i = 0; i < row->word_count;) {
        struct row_step s;
        if (!exchange_step_decode(&row->words[i], row->word_count - i, &s)) {
            fprintf(out, "  %6d  %08" PRIx32 " unknown\n", now, row->words[i]);
            return;
        }
        print_step(row, i, &s, now, out);
        now += s.events;
        i += s.words;
    }
}

int exchange_print_phase(
    const struct exchange_transfer *transfers, uint32_t count, const struct exchange_phase *phase,
    FILE *out) {
    fprintf(
        out, "phase: %u transfers, %u rows, horizon %u, bound %u, largest row %u bytes\n", count,
        phase->row_count, phase->horizon, phase->lower_bound, phase->max_row_bytes);
    for (uint32_t i = 0; i < count; i++) {
        const struct exchange_transfer *t = &transfers[i];
        const struct exchange_placed *at = &phase->placed[i];
        fprintf(
            out, "transfer %u %s: %u words, tile %u 0x%x, offset %u, send %d..%d ->", i,
            form_names[phase->forms[i]], t->words, t->source.n, t->source_addr, at->offset,
            at->send_start, at->send_end);
        for (uint32_t k = 0; k < t->dest_count; k++) {
            fprintf(out, " %u:0x%x", t->dests[k].tile.n, t->dests[k].addr);
        }
        fprintf(out, "\n");
    }
    for (uint32_t i = 0; i < phase->row_count; i++) {
        print_row(&phase->rows[i], out);
    }
    return ferror(out) != 0 ? -ERR_IO : 0;
}
