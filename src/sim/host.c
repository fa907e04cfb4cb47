/* The host side as tiles see it: pages, packets, marks (device fact sheet 1.5, 4.5, 6).
 *
 * A tile whose incoming multiplexer is external sends packets: two header words, for a write
 * followed by its payload. They are parsed as they are sent, on the tile's thread, and answered
 * when no tile can run: first the grants of the owners, then the requests, tile by tile. What the
 * hardware would not answer stands still here and says why: no grant, no route, no page.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "sim/chip.h"

enum {
    MUX_EXTERNAL = 0x600,
    BOTH_DIRECTIONS = 3,
    MAX_WORDS = 1 << 16, /* of one tile, sent and not answered */
    DCXCR_NONE = 0x3f,
    XB_WEST = 0x5400,
    XB_EAST = 0x1b800,
    XB_STEP = 0x400,
    XB_DCXCR = 4,
    LONG_BYTES = 64,
};

enum packet_format { XREQ = 0, XPWRS = 4, XPWRL = 5, XPRDS = 6, XPRDL = 7 };

/* ---- pages --------------------------------------------------------------------------------- */

int host_attach(struct chip *c, uint32_t index, void *memory, uint32_t size, struct err *err) {
    uint32_t pages = size / IPU_PAGE_BYTES;
    if (size == 0 || size % IPU_PAGE_BYTES != 0 || (uintptr_t)memory % IPU_PAGE_BYTES != 0) {
        return err_sys(
            err, ERR_DEVICE_ERROR, EINVAL, "attach page %u: %u bytes, not whole pages", index,
            size);
    }
    if (index >= CHIP_PAGES || pages > CHIP_PAGES - index) {
        return err_sys(
            err, ERR_DEVICE_ERROR, EINVAL, "attach page %u: %u pages, table has %u", index, pages,
            CHIP_PAGES);
    }
    for (uint32_t i = index; i < index + pages; i++) {
        if (c->page_buffer[i] != 0) {
            return err_sys(
                err, ERR_DEVICE_ERROR, EBUSY, "attach page %u: slot %u is in use", index, i);
        }
    }
    uint16_t number = 0;
    while (number < CHIP_BUFFERS && c->buffers[number].pages != 0) {
        number++;
    }
    if (number == CHIP_BUFFERS) {
        return err_sys(
            err, ERR_DEVICE_ERROR, ENOSPC, "attach page %u: %u buffers", index, CHIP_BUFFERS);
    }
    c->buffers[number] = (struct host_buffer){index, pages, memory};
    for (uint32_t i = index; i < index + pages; i++) {
        c->page_buffer[i] = (uint16_t)(number + 1);
    }
    return 0;
}

static void detach(struct chip *c, struct host_buffer *b) {
    memset(&c->page_buffer[b->index], 0, b->pages * sizeof *c->page_buffer);
    *b = (struct host_buffer){.pages = 0};
}

int host_detach(struct chip *c, uint32_t index, struct err *err) {
    uint16_t number = index < CHIP_PAGES ? c->page_buffer[index] : 0;
    if (number == 0 || c->buffers[number - 1].index != index) {
        return err_sys(err, ERR_DEVICE_ERROR, EINVAL, "detach page %u: no buffer", index);
    }
    detach(c, &c->buffers[number - 1]);
    return 0;
}

void host_detach_all(struct chip *c) {
    for (uint32_t i = 0; i < CHIP_BUFFERS; i++) {
        if (c->buffers[i].pages != 0) {
            detach(c, &c->buffers[i]);
        }
    }
}

/* Host memory of a byte address as tiles count them; NULL when nothing is attached there. */
static uint8_t *host_memory(const struct chip *c, uint32_t addr) {
    uint32_t page = addr / IPU_PAGE_BYTES;
    uint16_t number = page < CHIP_PAGES ? c->page_buffer[page] : 0;
    if (number == 0) {
        return NULL;
    }
    const struct host_buffer *b = &c->buffers[number - 1];
    return b->memory + (size_t)(page - b->index) * IPU_PAGE_BYTES + addr % IPU_PAGE_BYTES;
}

/* ---- packets as they are sent -------------------------------------------------------------- */

bool host_mux_is_external(uint32_t mux) {
    return mux >= MUX_EXTERNAL && mux != TARGET_MUX_IDLE;
}

void host_reset_tile(struct chip_tile *t) {
    t->requests.len = 0;
    t->host_words.len = 0;
    t->header_words = 0;
    t->payload_left = 0;
    t->request = 0;
    t->out_item = 0;
    t->moved_words = 0;
    t->is_granted = false;
    t->hang[0] = '\0';
}

static void hang(struct chip_tile *t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void hang(struct chip_tile *t, const char *format, ...) {
    if (t->hang[0] != '\0') {
        return;
    }
    va_list args;
    va_start(args, format);
    vsnprintf(t->hang, sizeof t->hang, format, args);
    va_end(args);
}

/* Address and size of a read or write; false with the reason set when no packet is like that. */
static bool parse_transfer(struct chip_tile *t, struct host_request *r, unsigned format) {
    bool is_long = format == XPWRL || format == XPRDL;
    uint32_t unit = is_long ? LONG_BYTES : 4;
    uint32_t length = t->header[1] & 15;
    uint64_t host_addr = (uint64_t)(t->header[1] >> 4 & 0x7ffffff) * unit;
    r->kind = format == XPRDS || format == XPRDL ? HOST_READ : HOST_WRITE;
    r->bytes = (is_long && length == 0 ? 16 : length) * unit;
    r->host_addr = (uint32_t)host_addr;
    r->tile_addr = TARGET_MEM_BASE + (t->header[0] & 0x7fff) * 32;
    if (host_addr >= (uint64_t)CHIP_PAGES * IPU_PAGE_BYTES) {
        hang(t, "packet for host address %#llx", (unsigned long long)host_addr);
    } else if (r->host_addr % IPU_PAGE_BYTES + r->bytes > IPU_PAGE_BYTES) {
        hang(t, "packet of %u bytes at %#x crosses a host page", r->bytes, r->host_addr);
    } else if (r->kind == HOST_WRITE && r->bytes == 0) {
        hang(t, "write packet without payload");
    } else if (
        r->kind == HOST_READ && r->tile_addr + (r->bytes == 0 ? 4 : r->bytes) > TARGET_MEM_END) {
        hang(t, "read packet for tile address %#x", r->tile_addr);
    }
    return t->hang[0] == '\0';
}

static bool parse_header(struct chip_tile *t, uint16_t tile) {
    unsigned format = t->header[0] >> 29;
    struct host_request r = {.is_end = (t->header[0] >> 26 & 3) == 3, .data = t->host_words.len};
    if (format == XREQ) {
        r.kind = HOST_GRANT;
        return row_list_push(&t->host_words, t->header[0]) &&
               row_list_push(&t->host_words, t->header[1]) && row_list_push(&t->requests, r);
    }
    if (format < XPWRS) {
        hang(t, "packet of format %u", format);
        return true;
    }
    if ((t->header[0] >> 15 & 0x7ff) != tile) {
        hang(t, "packet names tile %u", t->header[0] >> 15 & 0x7ff);
        return true;
    }
    if (!parse_transfer(t, &r, format)) {
        return true;
    }
    t->payload_left = r.kind == HOST_WRITE ? r.bytes / 4 : 0;
    return row_list_push(&t->requests, r);
}

static void take_word(struct chip_tile *t, uint16_t tile, uint32_t word) {
    bool ok = true;
    if (t->hang[0] != '\0') {
        return; /* the stream is lost */
    }
    if (t->host_words.len >= MAX_WORDS || t->requests.len >= MAX_WORDS) {
        hang(t, "more than %d words sent and not answered", MAX_WORDS);
    } else if (t->payload_left > 0) {
        t->payload_left--;
        ok = row_list_push(&t->host_words, word);
    } else {
        t->header[t->header_words++] = word;
        if (t->header_words == 2) {
            t->header_words = 0;
            ok = parse_header(t, tile);
        }
    }
    if (!ok) {
        hang(t, "out of memory");
    }
}

static void send_words(struct chip_tile *t, uint16_t tile, const struct row_insn *i) {
    uint32_t addr = tile_csr(t->tile, CSR_OUTGOING_BASE) + t->out_item * 4;
    if (i->sctl != BOTH_DIRECTIONS) {
        hang(t, "host packet sent in direction %u", i->sctl);
    }
    for (int32_t k = 0; k < i->events; k++, addr += 4) {
        if (!tile_mem_mapped(addr) || addr % 4 != 0) {
            chip_raise(t, CHIP_INVALID_ADDR, 0, "host packet sent from %#x", addr);
            return;
        }
        take_word(t, tile, tile_mem_load(t->tile, addr));
    }
    t->out_item += (uint32_t)i->events;
}

/* False after an exception. */
static bool execute(struct chip_tile *t, uint16_t tile, const struct row_insn *i) {
    bool is_external = host_mux_is_external(tile_csr(t->tile, CSR_INCOMING_MUX));
    switch (i->op) {
    case ROW_OP_DELAY: break;
    case ROW_OP_SANS: sync_abstain(t, i->value + 1); break;
    case ROW_OP_DELAYPIC:
        tile_set_csr(
            t->tile, i->selector != 0 ? CSR_INCOMING_FORMAT : CSR_INCOMING_DELTA,
            i->selector != 0 ? i->value & 3 : i->value * 4);
        break;
    case ROW_OP_DELAYXPIC: tile_set_csr(t->tile, CSR_INCOMING_MUX, i->value); break;
    case ROW_OP_SEND:
    case ROW_OP_SENDOFF:
        if (is_external) {
            t->out_item = i->op == ROW_OP_SEND ? i->addr : t->out_item + i->addr;
            send_words(t, tile, i);
            break;
        }
        /* fallthrough */
    default: chip_raise(t, CHIP_EXCONF, 0, "send outside an exchange phase"); break;
    }
    return tile_context_state(t->tile, 0) < 2;
}

void host_execute(struct chip *c, struct chip_tile *t) {
    uint32_t pc = tile_pc(t->tile, 0);
    uint64_t cycle = tile_cycle(t->tile);
    struct row_insn i = row_decode(tile_mem_load(t->tile, pc));
    if (execute(t, (uint16_t)(t - c->tiles), &i)) {
        tile_advance(t->tile, pc + 4, cycle + (uint64_t)i.events);
    }
}

/* ---- answering ----------------------------------------------------------------------------- */

/* Are requests of that owner's context routed to any interface? */
static bool is_routed(const struct chip *c, uint16_t owner) {
    unsigned context = (owner >> 2 & 15u) * 2 + (owner & 1u);
    unsigned shift = 3 + 6 * (context % 4);
    unsigned offset = XB_STEP * (context / 4) + XB_DCXCR;
    return (c->regs[(XB_WEST + offset) / 4] >> shift & 0x3f) != DCXCR_NONE ||
           (c->regs[(XB_EAST + offset) / 4] >> shift & 0x3f) != DCXCR_NONE;
}

/* Gives the grants that an owner has sent; false when it has sent none. */
static bool give_grants(struct chip *c, uint16_t tile) {
    struct chip_tile *t = &c->tiles[tile];
    bool any = false;
    uint16_t owner = target_host_owner((struct physical_tile){tile}).n;
    for (uint32_t i = t->request; i < t->requests.len; i++) {
        struct host_request *r = &t->requests.data[i];
        if (r->kind != HOST_GRANT || !is_routed(c, owner)) {
            continue;
        }
        if (tile != owner) {
            hang(t, "grant sent by a tile that owns none");
            continue;
        }
        r->kind = HOST_DONE;
        any = true;
        uint64_t bits = (t->host_words.data[r->data] & 0xffffff) |
                        (uint64_t)t->host_words.data[r->data + 1] << 24;
        for (unsigned b = 0; b < 2 * TARGET_ROWS; b++) {
            if ((bits >> b & 1) != 0) {
                c->tiles[64 * (b / 2) + 2 * (b & 1) + owner].is_granted = true;
            }
        }
    }
    return any;
}

static bool is_incomplete(const struct chip_tile *t) {
    return t->request + 1 == t->requests.len && t->payload_left > 0;
}

bool host_is_blocked(const struct chip *c, uint16_t tile, char *text, size_t n) {
    const struct chip_tile *t = &c->tiles[tile];
    uint16_t owner = target_host_owner((struct physical_tile){tile}).n;
    text[0] = '\0';
    if (t->hang[0] != '\0') {
        snprintf(text, n, "%s", t->hang);
        return true;
    }
    if (t->request >= t->requests.len) {
        return false;
    }
    const struct host_request *r = &t->requests.data[t->request];
    uint32_t mux = tile_csr(t->tile, CSR_INCOMING_MUX);
    uint32_t words = r->bytes == 0 ? 1 : r->bytes / 4;
    uint32_t expected = tile_csr(t->tile, CSR_INCOMING_DCOUNT);
    if (r->kind == HOST_DONE) {
        return false;
    }
    if (!is_routed(c, owner)) {
        snprintf(text, n, "host packet is not routed: requests of owner %u are disabled", owner);
    } else if (r->kind == HOST_GRANT) {
        return false;
    } else if (!t->is_granted) {
        snprintf(text, n, "host packet without a grant of owner %u", owner);
    } else if (is_incomplete(t)) {
        snprintf(text, n, "host write lacks %u words", t->payload_left);
    } else if (r->bytes != 0 && host_memory(c, r->host_addr) == NULL) {
        snprintf(text, n, "host page %u is not attached", r->host_addr / IPU_PAGE_BYTES);
    } else if (r->kind == HOST_READ && mux != target_host_mux((struct physical_tile){tile})) {
        snprintf(text, n, "multiplexer %#x while words come from the host", mux);
    } else if (r->kind == HOST_READ && words > expected) {
        snprintf(text, n, "%u words come from the host, %u are expected", words, expected);
    } else if (r->kind == HOST_READ && tile_csr(t->tile, CSR_INCOMING_FORMAT) != 0) {
        snprintf(text, n, "64-bit format while words come from the host");
    }
    return text[0] != '\0';
}

static void answer(struct chip *c, struct chip_tile *t, const struct host_request *r) {
    uint32_t words[1024 / 4] = {0};
    uint32_t n = r->bytes / 4;
    if (r->kind == HOST_WRITE) {
        memcpy(host_memory(c, r->host_addr), &t->host_words.data[r->data], r->bytes);
    } else {
        if (n > 0) {
            memcpy(words, host_memory(c, r->host_addr), r->bytes);
        }
        n = n > 0 ? n : 1; /* the closing read is answered by one word */
        tile_mem_store_run(t->tile, r->tile_addr, words, n);
        tile_set_csr(t->tile, CSR_INCOMING_DCOUNT, tile_csr(t->tile, CSR_INCOMING_DCOUNT) - n);
    }
    if (r->is_end) {
        t->is_granted = false;
    }
    t->moved_words += n;
    c->host_words += n;
}

static bool answer_requests(struct chip *c, uint16_t tile) {
    struct chip_tile *t = &c->tiles[tile];
    bool any = false;
    char text[96];
    while (t->request < t->requests.len && !host_is_blocked(c, tile, text, sizeof text)) {
        const struct host_request *r = &t->requests.data[t->request];
        if (r->kind == HOST_GRANT) {
            break;
        }
        if (r->kind != HOST_DONE) {
            answer(c, t, r);
        }
        t->request++;
        any = true;
    }
    if (t->request == t->requests.len && t->payload_left == 0) {
        t->request = t->requests.len = t->host_words.len = 0;
    }
    return any;
}

bool host_sync_is_done(const struct chip_tile *t) {
    return t->hang[0] == '\0' && t->requests.len == 0 && t->header_words == 0 &&
           tile_csr(t->tile, CSR_INCOMING_DCOUNT) == 0;
}

bool host_settle(struct chip *c) {
    bool moved = false;
    for (uint16_t i = 0; i < TARGET_TILES; i++) {
        moved |= c->tiles[i].requests.len > 0 && give_grants(c, i);
    }
    for (uint16_t i = 0; i < TARGET_TILES; i++) {
        moved |= c->tiles[i].requests.len > 0 && answer_requests(c, i);
    }
    for (uint16_t i = 0; i < TARGET_TILES; i++) {
        struct chip_tile *t = &c->tiles[i];
        if (t->state == TILE_WAITS && t->zone == 0 && host_sync_is_done(t)) {
            tile_resume(t->tile, t->cycle + CHIP_HOST_READ + t->moved_words * CHIP_HOST_WORD);
            t->moved_words = 0;
            chip_wake(c, i);
            moved = true;
        }
    }
    return moved;
}

/* ---- marks --------------------------------------------------------------------------------- */

static unsigned held_group(const struct chip *c) {
    switch (c->held_class) {
    case BARRIER_G1_HOST: return 0;
    case BARRIER_G2_HOST: return 1;
    default: return 2;
    }
}

bool mark_arrive(struct chip *c, unsigned group) {
    struct chip_mark *m = &c->marks[group];
    bool had_credit = m->value > 0;
    m->value -= had_credit;
    /* Model A holds when the credits are used up, model C when there were none. */
    return c->options.model_c ? had_credit : m->value > 0;
}

static void apply(struct chip *c, unsigned group, uint32_t value) {
    struct chip_mark *m = &c->marks[group];
    bool releases = value > 0 && held_group(c) == group;
    c->mark_overwrites += m->value != 0;
    m->is_pending = false;
    m->value = releases && c->options.model_c ? value - 1 : value;
    if (releases) {
        sync_release_held(c);
    }
}

void mark_write(struct chip *c, unsigned group, uint32_t value) {
    struct chip_mark *m = &c->marks[group];
    value &= 0xffff;
    c->is_quiet = false;
    if (c->options.race_marks) {
        apply(c, group, value);
        return;
    }
    c->mark_overwrites += m->is_pending && m->pending != 0;
    m->is_pending = true;
    m->pending = value;
    m->sequence = c->mark_sequence++;
    chip_slice(c);
}

uint32_t mark_read(const struct chip *c, unsigned group) {
    const struct chip_mark *m = &c->marks[group];
    return m->is_pending ? m->pending : m->value;
}

bool mark_settle(struct chip *c) {
    unsigned group = c->marks[0].is_pending ? 0 : 1;
    if (c->marks[1].is_pending && c->marks[1].sequence < c->marks[group].sequence) {
        group = 1;
    }
    if (!c->marks[group].is_pending) {
        return false;
    }
    apply(c, group, c->marks[group].pending);
    return true;
}
