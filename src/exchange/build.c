/* Adapter between placed moves and the phase scheduler: see build.h. */
#include "exchange/build.h"

static uint32_t cut_count(const struct lower_move *m) {
    return (m->words + EXCHANGE_MAX_ITEMS - 1) / EXCHANGE_MAX_ITEMS;
}

static void add_transfers(
    struct exchange_level *level, const struct placement *p, const struct lower_move *m,
    struct arena *a) {
    const struct tile_graph *tg = p->tg;
    uint32_t cuts = cut_count(m);
    for (uint32_t c = 0; c < cuts; c++) {
        uint32_t first = (uint32_t)((uint64_t)m->words * c / cuts);
        uint32_t last = (uint32_t)((uint64_t)m->words * (c + 1) / cuts);
        struct exchange_dest *dests = ARENA_ARRAY(a, struct exchange_dest, m->dest_count);
        for (uint32_t d = 0; d < m->dest_count; d++) {
            const struct lower_dest *to = &tg->dests[m->dest_first + d];
            dests[d] = (struct exchange_dest){
                lower_buffer(tg, to->buffer)->tile, p->addr[to->buffer.n] + to->offset + 4 * first};
        }
        level->transfers[level->transfer_count++] = (struct exchange_transfer){
            .source = lower_buffer(tg, m->source)->tile,
            .source_addr = p->addr[m->source.n] + m->offset + 4 * first,
            .words = last - first,
            .form = EXCHANGE_ABSOLUTE,
            .dests = dests,
            .dest_count = m->dest_count};
    }
}

/* Copies what outlives the search. */
static void
keep_phase(struct exchange_level *level, const struct exchange_phase *x, struct arena *a) {
    struct exchange_phase *phase = &level->phase;
    uint32_t count = level->transfer_count;
    *phase = *x;
    phase->order = NULL;
    phase->placed = arena_memdup(a, x->placed, count * sizeof *x->placed);
    phase->forms = arena_memdup(a, x->forms, count * sizeof *x->forms);
    phase->rows = arena_memdup(a, x->rows, x->row_count * sizeof *x->rows);
    for (uint32_t i = 0; i < x->row_count; i++) {
        struct exchange_row *row = &phase->rows[i];
        row->words = arena_memdup(a, row->words, row->word_count * sizeof *row->words);
    }
}

static int build_level(
    struct exchange_level *level, const struct exchange_orders *known, struct arena *a,
    struct arena *scratch, struct err *err) {
    struct arena_mark mark = arena_mark(scratch);
    struct exchange_phase phase;
    int rc = exchange_reuse_phase(
        level->transfers, level->transfer_count, known, scratch, &phase, &level->origin, err);
    if (rc == 0) {
        keep_phase(level, &phase, a);
    }
    if (scratch != a) {
        arena_rewind(scratch, mark);
    }
    return rc;
}

int exchange_build_known(
    const struct placement *p, const struct exchange_orders *known, struct arena *a,
    struct arena *scratch, struct exchange_plan **ret, struct err *err) {
    const struct tile_graph *tg = p->tg;
    struct exchange_plan *x = ARENA_NEW(a, struct exchange_plan);
    x->placement = p;
    x->level_count = tg->level_count;
    x->levels = ARENA_ARRAY(a, struct exchange_level, tg->level_count);
    for (uint32_t i = 0; i < tg->level_count; i++) {
        const struct lower_level *l = &tg->levels[i];
        struct exchange_level *level = &x->levels[i];
        uint32_t count = 0;
        for (uint32_t m = 0; m < l->move_count; m++) {
            count += cut_count(&tg->moves[l->move_first + m]);
        }
        if (count == 0) {
            continue;
        }
        level->transfers = ARENA_ARRAY(a, struct exchange_transfer, count);
        for (uint32_t m = 0; m < l->move_count; m++) {
            add_transfers(level, p, &tg->moves[l->move_first + m], a);
        }
        if (build_level(level, known, a, scratch, err) != 0) {
            return err_wrap(err, "exchange of level %u", i);
        }
        uint32_t turns = lower_level_turns(tg, i);
        x->phase_count++;
        x->phase_runs += turns;
        x->horizon_cycles += (uint64_t)level->phase.horizon * turns;
        x->bound_cycles += (uint64_t)level->phase.latency_bound * turns;
        x->free_cycles += (uint64_t)level->phase.free_horizon * turns;
        x->max_row_bytes = level->phase.max_row_bytes > x->max_row_bytes
                               ? level->phase.max_row_bytes
                               : x->max_row_bytes;
    }
    *ret = x;
    return 0;
}

int exchange_build(
    const struct placement *p, struct arena *a, struct exchange_plan **ret, struct err *err) {
    return exchange_build_known(p, NULL, a, a, ret, err);
}

const struct exchange_row *
exchange_plan_row(const struct exchange_plan *x, uint32_t level, struct logical_tile tile) {
    const struct exchange_phase *p = &x->levels[level].phase;
    uint32_t low = 0, high = p->row_count;
    while (low < high) {
        uint32_t mid = (low + high) / 2;
        if (p->rows[mid].tile.n < tile.n) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low < p->row_count && p->rows[low].tile.n == tile.n ? &p->rows[low] : NULL;
}

int exchange_plan_verify(const struct exchange_plan *x, struct arena *scratch, struct err *err) {
    for (uint32_t i = 0; i < x->level_count; i++) {
        const struct exchange_level *l = &x->levels[i];
        const struct lower_level *moves = &x->placement->tg->levels[i];
        uint64_t moved = 0, transferred = 0;
        for (uint32_t m = 0; m < moves->move_count; m++) {
            const struct lower_move *move = &x->placement->tg->moves[moves->move_first + m];
            moved += (uint64_t)move->words * move->dest_count;
        }
        for (uint32_t t = 0; t < l->transfer_count; t++) {
            transferred += (uint64_t)l->transfers[t].words * l->transfers[t].dest_count;
        }
        if (moved != transferred) {
            return err_set(
                err, ERR_INTERNAL, "exchange of level %u: transfers are not the moves", i);
        }
        if (l->transfer_count > 0 &&
            exchange_verify_phase(l->transfers, l->transfer_count, &l->phase, scratch, err) != 0) {
            return err_wrap(err, "exchange of level %u", i);
        }
    }
    return 0;
}

void exchange_plan_print(const struct exchange_plan *x, FILE *out) {
    fprintf(
        out, "exchange phases=%u horizon=%llu bound=%llu max_row_bytes=%u\n", x->phase_count,
        (unsigned long long)x->horizon_cycles, (unsigned long long)x->bound_cycles,
        x->max_row_bytes);
    for (uint32_t i = 0; i < x->level_count; i++) {
        const struct exchange_level *l = &x->levels[i];
        if (l->transfer_count == 0) {
            continue;
        }
        fprintf(
            out, "  level %u transfers=%u rows=%u horizon=%u bound=%u busiest=t%u %s %u\n", i,
            l->transfer_count, l->phase.row_count, l->phase.horizon, l->phase.latency_bound,
            l->phase.busiest.tile.n, l->phase.busiest.is_send ? "sends" : "receives",
            l->phase.busiest.items);
        for (uint32_t t = 0; t < l->transfer_count; t++) {
            const struct exchange_transfer *f = &l->transfers[t];
            fprintf(
                out, "    t%u 0x%05x words=%u at=%u ->", f->source.n, f->source_addr, f->words,
                l->phase.placed[t].offset);
            for (uint32_t d = 0; d < f->dest_count; d++) {
                fprintf(out, " t%u 0x%05x", f->dests[d].tile.n, f->dests[d].addr);
            }
            fputc('\n', out);
        }
    }
}
