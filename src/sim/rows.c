/* sim_rows_run(): given rows against the fabric, without tiles, memory or time (sim.h).
 *
 * Deliveries name where a word came from instead of carrying it, so that the whole of what a set
 * of rows does can be compared with what was meant.
 */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "sim/fabric.h"
#include "sim/sim.h"

struct rows {
    struct row_trace *traces[TARGET_TILES];
    struct fabric_port *ports[TARGET_TILES];
    struct row_trace *trace_store;  /* one a row */
    struct fabric_port *port_store; /* two a row: the tile and its partner */
    uint32_t row_count;
    uint32_t port_count;
};

static void rows_free(struct rows **place) {
    struct rows *r = *place;
    if (r == NULL) {
        return;
    }
    for (uint32_t i = 0; r->trace_store != NULL && i < r->row_count; i++) {
        row_trace_done(&r->trace_store[i]);
    }
    for (uint32_t i = 0; i < r->port_count; i++) {
        fabric_port_done(&r->port_store[i]);
    }
    free(r->trace_store);
    free(r->port_store);
    free(r);
}

struct row_words {
    const struct sim_row *row;
    uint32_t addr;
};

static bool fetch(void *self, uint32_t addr, uint32_t *ret_word) {
    const struct row_words *w = self;
    uint32_t index = (addr - w->addr) / 4;
    if (addr < w->addr || addr % 4 != 0 || index >= w->row->word_count) {
        return false;
    }
    *ret_word = w->row->words[index];
    return true;
}

static int
check_rows(const struct sim_row *rows, uint32_t row_count, uint32_t row_addr, struct err *err) {
    bool seen[TARGET_TILES] = {false};
    if (row_count > TARGET_TILES) {
        return err_set(err, ERR_INVALID, "%u rows, at most %u", row_count, TARGET_TILES);
    }
    if (row_addr % 8 != 0 || row_addr < TARGET_MEM_BASE || row_addr >= TARGET_REGION1) {
        return err_set(
            err, ERR_INVALID, "row address %#x: not 8-aligned in %#x..%#x", row_addr,
            TARGET_MEM_BASE, TARGET_REGION1);
    }
    for (uint32_t i = 0; i < row_count; i++) {
        if (rows[i].tile.n >= TARGET_TILES) {
            return err_set(
                err, ERR_INVALID, "row %u: tile %u, at most %u", i, rows[i].tile.n,
                TARGET_TILES - 1);
        }
        if (seen[rows[i].tile.n]) {
            return err_set(err, ERR_INVALID, "row %u: second row of tile %u", i, rows[i].tile.n);
        }
        seen[rows[i].tile.n] = true;
        if (rows[i].word_count > (TARGET_REGION1 - row_addr) / 4) {
            return err_set(
                err, ERR_INVALID, "row %u: %u words, at most %u at %#x", i, rows[i].word_count,
                (TARGET_REGION1 - row_addr) / 4, row_addr);
        }
    }
    return 0;
}

static int
trace_all(struct rows *r, const struct sim_row *rows, uint32_t row_addr, struct err *err) {
    for (uint32_t i = 0; i < r->row_count; i++) {
        struct row_trace *t = &r->trace_store[i];
        t->tile = rows[i].tile.n;
        t->pc = row_addr;
        t->m[6] = rows[i].m6;
        t->incoming_base = rows[i].incoming_base;
        t->mux = TARGET_MUX_IDLE;
        struct row_words words = {&rows[i], row_addr};
        if (!row_trace_run(t, &(struct row_code){fetch, &words}, true)) {
            return err_set(err, ERR_NOMEM, "row of tile %u", t->tile);
        }
        r->traces[t->tile] = t;
    }
    return 0;
}

static int resolve_all(struct rows *r, struct err *err) {
    for (uint32_t i = 0; i < 2 * r->row_count; i++) {
        uint16_t tile = r->trace_store[i / 2].tile ^ (i % 2 == 0 ? 0 : 2);
        if (r->ports[tile] != NULL) {
            continue;
        }
        struct fabric_port *p = &r->port_store[r->port_count++];
        r->ports[tile] = p;
        fabric_resolve((const struct row_trace *const *)r->traces, tile, p);
    }
    fabric_match(r->traces, r->ports);
    for (uint32_t i = 0; i < r->port_count; i++) {
        if (r->port_store[i].is_out_of_memory) {
            return err_set(err, ERR_NOMEM, "deliveries of rows");
        }
    }
    return 0;
}

static int compare_delivery(const void *a, const void *b) {
    const struct sim_delivery *x = a;
    const struct sim_delivery *y = b;
    if (x->arrival != y->arrival) {
        return x->arrival < y->arrival ? -1 : 1;
    }
    if (x->tile.n != y->tile.n) {
        return x->tile.n < y->tile.n ? -1 : 1;
    }
    return x->addr < y->addr ? -1 : x->addr > y->addr;
}

static struct sim_delivery *expand(
    const struct rows *r, uint16_t tile, const struct fabric_store *s, struct sim_delivery *out) {
    unsigned words = s->is_wide ? 2 : 1;
    uint32_t source_addr = r->traces[s->source]->sends.data[s->send].addr + s->offset * words * 4;
    for (uint32_t k = 0; k < s->count * words; k++) {
        *out++ = (struct sim_delivery){
            .tile = {tile},
            .addr = s->addr + 4 * k,
            .source = {s->source},
            .source_addr = source_addr + 4 * k,
            .arrival = s->arrival + (int32_t)(k / words)};
    }
    return out;
}

static void add_fault(struct sim_rows_result *ret, uint16_t tile, const struct row_fault *f) {
    struct sim_row_fault *out = &ret->faults[ret->fault_count++];
    *out =
        (struct sim_row_fault){.tile = {tile}, .code = f->code, .event = f->event, .addr = f->addr};
    _Static_assert(sizeof out->text >= sizeof f->text, "fault texts must fit");
    memcpy(out->text, f->text, sizeof f->text);
}

static int collect(const struct rows *r, struct sim_rows_result *ret, struct err *err) {
    uint64_t words = 0;
    uint32_t faults = r->row_count;
    for (uint16_t t = 0; t < TARGET_TILES; t++) {
        words += r->ports[t] != NULL ? r->ports[t]->words : 0;
        faults += r->ports[t] != NULL ? r->ports[t]->faults.len : 0;
    }
    ret->deliveries = calloc(words + 1, sizeof *ret->deliveries);
    ret->faults = calloc(faults + 1, sizeof *ret->faults);
    ret->horizons = calloc(r->row_count + 1, sizeof *ret->horizons);
    if (ret->deliveries == NULL || ret->faults == NULL || ret->horizons == NULL) {
        return err_set(err, ERR_NOMEM, "%llu deliveries", (unsigned long long)words);
    }
    struct sim_delivery *out = ret->deliveries;
    for (uint16_t t = 0; t < TARGET_TILES; t++) {
        const struct fabric_port *p = r->ports[t];
        for (uint32_t i = 0; p != NULL && i < p->stores.len; i++) {
            out = expand(r, t, &p->stores.data[i], out);
        }
        if (r->traces[t] != NULL && r->traces[t]->fault.code != 0) {
            add_fault(ret, t, &r->traces[t]->fault);
        }
        for (uint32_t i = 0; p != NULL && i < p->faults.len; i++) {
            add_fault(ret, t, &p->faults.data[i]);
        }
    }
    ret->delivery_count = (uint64_t)(out - ret->deliveries);
    qsort(ret->deliveries, ret->delivery_count, sizeof *ret->deliveries, compare_delivery);
    for (uint32_t i = 0; i < r->row_count; i++) {
        ret->horizons[i] = r->trace_store[i].horizon;
    }
    return 0;
}

int sim_rows_run(
    const struct sim_row *rows, uint32_t row_count, uint32_t row_addr, struct sim_rows_result *ret,
    struct err *err) {
    int code = check_rows(rows, row_count, row_addr, err);
    if (code != 0) {
        return code;
    }
    CLEANUP(rows_free) struct rows *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return err_set(err, ERR_NOMEM, "%u rows", row_count);
    }
    r->trace_store = calloc(row_count + 1, sizeof *r->trace_store);
    r->port_store = calloc(2 * (size_t)row_count + 1, sizeof *r->port_store);
    if (r->trace_store == NULL || r->port_store == NULL) {
        return err_set(err, ERR_NOMEM, "%u rows", row_count);
    }
    r->row_count = row_count;
    struct sim_rows_result result = {0};
    if ((code = trace_all(r, rows, row_addr, err)) != 0 || (code = resolve_all(r, err)) != 0 ||
        (code = collect(r, &result, err)) != 0) {
        sim_rows_result_done(&result);
        return code;
    }
    *ret = result;
    return 0;
}

void sim_rows_result_done(struct sim_rows_result *r) {
    free(r->deliveries);
    free(r->faults);
    free(r->horizons);
    *r = (struct sim_rows_result){0};
}
