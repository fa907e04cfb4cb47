/* One exchange phase: tiles leave `sync 3` together, their exchange code is traced, words move.
 *
 *     trace  every tile alone -> sends, controls     (rows, fabric.h)
 *     resolve every port alone -> stores             (fabric.c)
 *     match   rules between ports
 *     capture what each send carries, from the sender's memory
 *     store   into each receiver's memory
 *     finish  registers, faults, and each tile goes on at release + events
 *
 * Between capture and store every word lies in a buffer of its sender, so that each step touches
 * one tile's memory by one thread. A tile that sends from pages it also receives into is a relay:
 * for those, capturing and storing go together in windows of events. An item sent at event q
 * depends on items sent at q - 25 at the latest (fact sheet 2.3), so windows of 16 are in order.
 */
#include "sim/chip.h"

#include <stdlib.h>

enum {
    WINDOW = 16,
    RESEND_DELAY = 6, /* a stored item can be sent that many events after its arrival */
    PAGE_SHIFT = 12,
    NEVER = INT32_MAX,
};

void phase_done(struct chip *c) {
    for (uint32_t i = 0; i < TARGET_TILES; i++) {
        struct phase_tile *p = c->phase[i];
        if (p != NULL) {
            row_trace_done(&p->trace);
            fabric_port_done(&p->port);
            free(p->words.data);
            free(p);
        }
    }
}

/* ---- trace --------------------------------------------------------------------------------- */

static bool fetch(void *self, uint32_t addr, uint32_t *ret_word) {
    if (addr < TARGET_MEM_BASE || addr >= TARGET_REGION1 || addr % 4 != 0) {
        return false;
    }
    *ret_word = tile_mem_load(self, addr);
    return true;
}

static void trace_tile(void *self, uint32_t i) {
    struct chip *c = self;
    uint16_t n = c->phase_tiles[i];
    struct tile *tile = c->tiles[n].tile;
    struct row_trace *t = &c->phase[n]->trace;
    row_trace_clear(t);
    t->tile = n;
    t->pc = tile_pc(tile, 0);
    t->incoming_base = tile_csr(tile, CSR_INCOMING_BASE);
    t->outgoing_base = tile_csr(tile, CSR_OUTGOING_BASE);
    t->mux = tile_csr(tile, CSR_INCOMING_MUX);
    t->format = tile_csr(tile, CSR_INCOMING_FORMAT) & 3;
    t->has_workers = tile_workers_active(tile);
    for (int m = 0; m < 16; m++) {
        t->m[m] = tile_m(tile, 0, m);
    }
    c->traces[n] = t;
    if (host_mux_is_external(t->mux)) {
        return; /* what it sends are host packets, and untimed */
    }
    if (!row_trace_run(t, &(struct row_code){fetch, tile}, false)) {
        c->phase[n]->port.is_out_of_memory = true;
    }
}

static void resolve_tile(void *self, uint32_t i) {
    struct chip *c = self;
    uint16_t n = c->phase_tiles[i];
    bool failed = c->phase[n]->port.is_out_of_memory;
    fabric_resolve((const struct row_trace *const *)c->traces, n, &c->phase[n]->port);
    c->phase[n]->port.is_out_of_memory |= failed;
    c->phase[n]->store = c->phase[n]->store_done = 0;
    c->phase[n]->send = c->phase[n]->send_done = 0;
}

/* ---- capture and store --------------------------------------------------------------------- */

static unsigned item_words(const struct row_send *s) {
    return (s->sctl & 4) != 0 ? 2 : 1;
}

static void set_pages(uint64_t pages[3], uint32_t addr, uint32_t bytes) {
    uint32_t last = (addr + bytes - 1 - TARGET_MEM_BASE) >> PAGE_SHIFT;
    for (uint32_t p = (addr - TARGET_MEM_BASE) >> PAGE_SHIFT; p <= last; p++) {
        pages[p / 64] |= 1ull << p % 64;
    }
}

static bool is_relay(const struct phase_tile *p) {
    uint64_t sent[3] = {0};
    uint64_t stored[3] = {0};
    for (uint32_t i = 0; i < p->trace.sends.len; i++) {
        const struct row_send *s = &p->trace.sends.data[i];
        if (s->is_taken) {
            set_pages(sent, s->addr, s->count * item_words(s) * 4);
        }
    }
    for (uint32_t i = 0; i < p->port.stores.len; i++) {
        const struct fabric_store *s = &p->port.stores.data[i];
        set_pages(stored, s->addr, s->count * (s->is_wide ? 8 : 4));
    }
    return (sent[0] & stored[0]) != 0 || (sent[1] & stored[1]) != 0 || (sent[2] & stored[2]) != 0;
}

/* Room for what the taken sends carry; false when out of memory. */
static bool reserve_words(struct phase_tile *p) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->trace.sends.len; i++) {
        struct row_send *s = &p->trace.sends.data[i];
        if (s->is_taken) {
            s->data = n;
            n += s->count * item_words(s);
        }
    }
    if (n > p->words.cap) {
        uint32_t *bigger = reallocarray(p->words.data, n, sizeof *bigger);
        if (bigger == NULL) {
            return false;
        }
        p->words.data = bigger;
        p->words.cap = n;
    }
    p->words.len = n;
    return true;
}

static void capture_items(
    struct phase_tile *p, struct tile *tile, const struct row_send *s, uint32_t from,
    uint32_t count) {
    unsigned words = item_words(s);
    tile_mem_load_run(
        tile, s->addr + from * words * 4, &p->words.data[s->data + from * words], count * words);
}

static void capture_tile(void *self, uint32_t i) {
    struct chip *c = self;
    uint16_t n = c->phase_tiles[i];
    struct phase_tile *p = c->phase[n];
    if (c->traces[n] == NULL || p->trace.sends.len == 0) {
        p->is_relay = false;
        return;
    }
    p->is_relay = is_relay(p);
    if (!reserve_words(p)) {
        p->port.is_out_of_memory = true;
        return;
    }
    for (uint32_t k = 0; !p->is_relay && k < p->trace.sends.len; k++) {
        const struct row_send *s = &p->trace.sends.data[k];
        if (s->is_taken) {
            capture_items(p, c->tiles[n].tile, s, 0, s->count);
        }
    }
}

static void store_items(
    struct chip *c, uint16_t n, const struct fabric_store *s, uint32_t from, uint32_t count) {
    const struct phase_tile *source = c->phase[s->source];
    unsigned words = s->is_wide ? 2 : 1;
    uint32_t data = source->trace.sends.data[s->send].data + (s->offset + from) * words;
    tile_mem_store_run(
        c->tiles[n].tile, s->addr + from * words * 4, &source->words.data[data], count * words);
}

/* Stores what arrives up to and including `event`; returns the arrival of the next item. */
static int32_t store_until(struct chip *c, uint16_t n, int32_t event) {
    struct phase_tile *p = c->phase[n];
    while (p->store < p->port.stores.len) {
        const struct fabric_store *s = &p->port.stores.data[p->store];
        int64_t due = (int64_t)event - s->arrival + 1;
        uint32_t end = due <= 0 ? 0 : due < s->count ? (uint32_t)due : s->count;
        if (end > p->store_done) {
            store_items(c, n, s, p->store_done, end - p->store_done);
            p->store_done = end;
        }
        if (p->store_done < s->count) {
            return s->arrival + (int32_t)p->store_done;
        }
        p->store++;
        p->store_done = 0;
    }
    return NEVER;
}

static void store_tile(void *self, uint32_t i) {
    struct chip *c = self;
    (void)store_until(c, c->phase_tiles[i], NEVER - 1);
}

/* Event of the next item a relay has to capture. */
static int32_t next_send(struct phase_tile *p) {
    while (p->send < p->trace.sends.len && !p->trace.sends.data[p->send].is_taken) {
        p->send++;
    }
    return p->send < p->trace.sends.len ? p->trace.sends.data[p->send].start + (int32_t)p->send_done
                                        : NEVER;
}

/* Captures a relay's items of events before `end`, each after what it may depend on is stored. */
static void relay_window(struct chip *c, uint16_t n, int32_t end) {
    struct phase_tile *p = c->phase[n];
    for (int32_t q = next_send(p); q < end; q = next_send(p)) {
        const struct row_send *s = &p->trace.sends.data[p->send];
        int32_t arrival = store_until(c, n, q - RESEND_DELAY);
        int32_t stop = arrival < end - RESEND_DELAY ? arrival + RESEND_DELAY : end;
        uint32_t left = s->count - p->send_done;
        uint32_t count = (uint32_t)(stop - q) < left ? (uint32_t)(stop - q) : left;
        capture_items(p, c->tiles[n].tile, s, p->send_done, count);
        p->send_done += count;
        if (p->send_done == s->count) {
            p->send++;
            p->send_done = 0;
        }
    }
}

static void run_relays(struct chip *c) {
    uint16_t relays[TARGET_TILES];
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->phase_count; i++) {
        if (c->phase[c->phase_tiles[i]]->is_relay) {
            relays[n++] = c->phase_tiles[i];
        }
    }
    for (;;) {
        int32_t first = NEVER;
        for (uint32_t i = 0; i < n; i++) {
            int32_t q = next_send(c->phase[relays[i]]);
            first = q < first ? q : first;
        }
        if (first == NEVER) {
            return;
        }
        for (uint32_t i = 0; i < n; i++) {
            relay_window(c, relays[i], first + WINDOW);
        }
    }
}

/* ---- finish -------------------------------------------------------------------------------- */

static void raise_fault(struct chip_tile *t, const struct row_fault *f) {
    int etype = f->code < ROW_ERROR_TYPE ? CHIP_EXERR : f->code - ROW_ERROR_TYPE;
    tile_raise(t->tile, 0, etype);
    if (t->fault.code == 0) {
        t->fault = *f;
    }
}

static void finish_tile(struct chip *c, uint16_t n) {
    struct chip_tile *t = &c->tiles[n];
    struct phase_tile *p = c->phase[n];
    const struct row_trace *r = &p->trace;
    tile_resume(t->tile, c->phase_cycle);
    c->traced_instructions += r->instructions;
    if (r->instructions > 0 || r->is_stopped) {
        for (int m = 0; m < 12; m++) {
            if ((r->m_written >> m & 1) != 0) {
                tile_set_m(t->tile, 0, m, r->m[m]);
            }
        }
        tile_set_csr(t->tile, CSR_INCOMING_BASE, r->incoming_base);
        tile_set_csr(t->tile, CSR_OUTGOING_BASE, r->outgoing_base);
        if (r->controls.len > 0) {
            tile_set_csr(t->tile, CSR_INCOMING_MUX, p->port.last_mux);
            tile_set_csr(t->tile, CSR_INCOMING_FORMAT, p->port.last_format);
        }
        tile_advance(t->tile, r->pc, c->phase_cycle + (uint64_t)r->end);
    }
    if (r->fault.code != 0) {
        raise_fault(t, &r->fault);
    }
}

/* Ports of the tiles listed and of their partners, to whom a pair selection may lead. */
static bool prepare(struct chip *c, const uint16_t *tiles, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        for (uint16_t k = 0; k < 4; k += 2) {
            uint16_t n = tiles[i] ^ k;
            if (c->phase[n] == NULL) {
                c->phase[n] = calloc(1, sizeof *c->phase[n]);
            }
            if (c->phase[n] == NULL) {
                return false;
            }
        }
        c->phase_tiles[i] = tiles[i];
    }
    c->phase_count = count;
    return true;
}

static bool has_exchange(const struct chip *c) {
    for (uint32_t i = 0; i < c->phase_count; i++) {
        const struct row_trace *t = &c->phase[c->phase_tiles[i]]->trace;
        if (t->sends.len > 0 || t->controls.len > 0) {
            return true;
        }
    }
    return false;
}

static void add_partners(struct chip *c) {
    uint32_t count = c->phase_count;
    for (uint32_t i = 0; i < count; i++) {
        uint16_t partner = c->phase_tiles[i] ^ 2;
        if (c->traces[partner] == NULL) {
            row_trace_clear(&c->phase[partner]->trace);
            c->phase_tiles[c->phase_count++] = partner;
        }
    }
    for (uint32_t i = 0; i < c->phase_count; i++) {
        c->ports[c->phase_tiles[i]] = &c->phase[c->phase_tiles[i]]->port;
    }
}

static void move_words(struct chip *c) {
    add_partners(c);
    pool_run(c->pool, resolve_tile, c, c->phase_count);
    fabric_match(c->traces, c->ports);
    pool_run(c->pool, capture_tile, c, c->phase_count);
    for (uint32_t i = 0; i < c->phase_count; i++) {
        if (c->phase[c->phase_tiles[i]]->port.is_out_of_memory) {
            chip_out_of_memory(c, "exchange phase");
            return;
        }
    }
    run_relays(c);
    pool_run(c->pool, store_tile, c, c->phase_count);
    for (uint32_t i = 0; i < c->phase_count; i++) {
        const struct fabric_port *p = &c->phase[c->phase_tiles[i]]->port;
        c->exchange_words += p->words;
    }
}

void phase_run(struct chip *c, const uint16_t *tiles, uint32_t count, uint64_t cycle) {
    if (!prepare(c, tiles, count)) {
        chip_out_of_memory(c, "exchange phase");
        return;
    }
    for (uint32_t i = 0; i < TARGET_TILES; i++) {
        c->traces[i] = NULL;
        c->ports[i] = NULL;
    }
    c->phase_cycle = cycle;
    pool_run(c->pool, trace_tile, c, count);
    bool moves = has_exchange(c);
    if (moves) {
        move_words(c);
    }
    for (uint32_t i = 0; i < count; i++) {
        finish_tile(c, tiles[i]);
    }
    for (uint32_t i = 0; moves && i < c->phase_count; i++) {
        uint16_t n = c->phase_tiles[i];
        for (uint32_t k = 0; k < c->phase[n]->port.faults.len; k++) {
            raise_fault(&c->tiles[n], &c->phase[n]->port.faults.data[k]);
        }
    }
}
