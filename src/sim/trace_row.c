/* From instructions to events: decodes and traces the data-independent code after a barrier.
 *
 * It ends because every traced instruction advances the event count and both the count and the
 * number of instructions have a limit.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "sim/fabric.h"

enum {
    PUT_EVENTS = 13,   /* base write, measured (fact sheet 3.1) */
    BRANCH_EVENTS = 6, /* taken branch of the supervisor (instruction fact sheet 1.1) */
    MAX_INSTRUCTIONS = 1 << 20,
    MAX_EVENTS = 1 << 30,
    TYPE_EXCONF = 7,
    TYPE_INVALID_PC = 10,
    TYPE_INVALID_INSTR = 12,
};

bool row_list_grow(void **data, uint32_t *cap, uint32_t len, size_t element) {
    uint32_t bigger = len < 8 ? 16 : len * 2;
    if (bigger < len) {
        return false;
    }
    void *moved = reallocarray(*data, bigger, element);
    if (moved == NULL) {
        return false;
    }
    *data = moved;
    *cap = bigger;
    return true;
}

unsigned fabric_unit(uint32_t addr) {
    if (addr < TARGET_MEM_BASE || addr >= TARGET_MEM_END) {
        return 64;
    }
    if (addr < TARGET_REGION1) {
        return (addr - TARGET_MEM_BASE) / TARGET_ELEMENT_BYTES;
    }
    return 13 + (addr - TARGET_REGION1) / (2 * TARGET_ELEMENT_BYTES);
}

static struct row_insn decode_send(uint32_t w) {
    struct row_insn i = {.events = (int32_t)(w >> 21 & 63) + 1, .sctl = w & 7};
    if ((w & 0xf0000000u) == 0xf0000000u) {
        i.op = ROW_OP_SENDPICP;
        i.addr = w >> 3 & 0x3ffff;
        i.selector = w >> 27 & 1;
    } else if ((w & 0xf8000000u) == 0x78000000u) {
        i.op = ROW_OP_SEND;
        i.addr = w >> 3 & 0x3ffff;
    } else if ((w & 0x00100000u) == 0) {
        i.op = ROW_OP_SENDOFF;
        i.events += (int32_t)(w >> 14 & 63) * 64;
        i.addr = w >> 3 & 0x7ff;
    } else {
        i.op = ROW_OP_SENDPIC;
        i.selector = w >> 18 & 3;
        i.value = w & (i.selector < 2 ? 0x1fffu : 0x3ffffu);
        i.sctl = 0;
    }
    return i;
}

struct row_insn row_decode(uint32_t w) {
    struct row_insn i = {.op = ROW_OP_FOREIGN, .events = 1, .reg = w >> 20 & 15};
    if ((w & 0xf0000000u) == 0xf0000000u || (w & 0xf0000000u) == 0x70000000u) {
        return decode_send(w);
    }
    if ((w & 0xfff80000u) == 0x40a00000u) {
        i.op = ROW_OP_DELAY;
        i.events = (int32_t)(w & 0x7ffff) + 1;
    } else if ((w & 0xfc000000u) == 0x60000000u) {
        i.op = ROW_OP_DELAYPIC;
        i.events = (int32_t)(w >> 19 & 127) + 1;
        i.selector = w >> 18 & 1;
        i.value = w & 0x3ffff;
    } else if ((w & 0xfc000000u) == 0x64000000u) {
        i.op = ROW_OP_DELAYXPIC;
        i.events = (int32_t)(w >> 14 & 4095) + 1;
        i.selector = w >> 13 & 1;
        i.value = w & 0x1fff;
    } else if ((w & 0xff0fffffu) == 0x430080a7u || (w & 0xff0fffffu) == 0x430080a4u) {
        i.op = ROW_OP_PUT_BASE;
        i.events = PUT_EVENTS;
        i.selector = (w & 0xff) == 0xa7;
    } else if ((w & 0xff000000u) == 0x19000000u) {
        i.op = ROW_OP_SETZI;
        i.value = w & 0xfffff;
    } else if ((w & 0x7f000000u) == 0x18000000u) { /* call, k001 1000 aaaa b20 */
        i.op = ROW_OP_CALL;
        i.events = BRANCH_EVENTS;
        i.value = (w & 0xfffff) * 4;
    } else if ((w & 0xff0fffffu) == 0x43000000u) {
        i.op = ROW_OP_BR;
        i.events = BRANCH_EVENTS;
    } else if ((w & 0xfff80000u) == 0x40c00000u) {
        i.op = ROW_OP_SANS;
        i.value = w & 0x7ffff;
    }
    return i;
}

/* State of the outgoing stream beside the trace. */
struct stream {
    int32_t now;   /* event reached */
    int32_t sent;  /* event at which the last piece ended, -1 before the first */
    uint32_t item; /* next item address, relative */
    uint8_t sctl;
    bool is_broken; /* position unknown: a pause or a base write came in between */
};

static void
stop(struct row_trace *t, int code, int32_t event, uint32_t addr, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

static void
stop(struct row_trace *t, int code, int32_t event, uint32_t addr, const char *format, ...) {
    t->is_stopped = true;
    if (t->fault.code != 0) {
        return;
    }
    t->fault = (struct row_fault){.code = code, .event = event, .addr = addr};
    va_list args;
    va_start(args, format);
    vsnprintf(t->fault.text, sizeof t->fault.text, format, args);
    va_end(args);
}

static bool push_control(struct row_trace *t, int32_t event, unsigned kind, uint32_t value) {
    return row_list_push(
        &t->controls, (struct row_control){.event = event, .value = value, .kind = (uint8_t)kind});
}

static bool push_xpic(struct row_trace *t, int32_t event, unsigned selector, uint32_t value) {
    bool external = value >= TARGET_TILES && value != TARGET_MUX_IDLE;
    if (external) {
        stop(
            t, ROW_ERROR_TYPE + TYPE_EXCONF, event, t->pc, "multiplexer set to %#x in a row",
            value);
        return true;
    }
    return push_control(t, event, selector != 0 ? ROW_MUX_PAIR : ROW_MUX, value);
}

static bool push_pic(struct row_trace *t, int32_t event, unsigned selector, uint32_t value) {
    if (selector != 0) {
        if (value > 2) {
            stop(t, ROW_ERROR_TYPE + TYPE_EXCONF, event, t->pc, "format %u in a row", value);
            return true;
        }
        return push_control(t, event, ROW_FORMAT, value);
    }
    return push_control(t, event, ROW_POINTER, value * 4);
}

/* Puts one piece on the bus; pieces that continue in time and address are one send. */
static bool push_send(struct row_trace *t, struct stream *s, uint32_t events) {
    unsigned item_bytes = (s->sctl & 4) != 0 ? 8 : 4;
    uint32_t addr = t->outgoing_base + s->item * item_bytes;
    uint32_t bytes = events * item_bytes;
    bool drives = (s->sctl & 3) != 0;
    if (drives && (addr < TARGET_MEM_BASE || addr > TARGET_MEM_END ||
                   bytes > TARGET_MEM_END - addr || addr % item_bytes != 0)) {
        stop(
            t, ROW_ERROR_TYPE + 8, s->now, addr, "%u items of %u bytes sent from %#x", events,
            item_bytes, addr);
        return true;
    }
    s->item += events;
    s->sent = s->now + (int32_t)events;
    s->is_broken = false;
    if (!drives) {
        return true;
    }
    t->has_wide |= item_bytes == 8;
    if (t->sends.len > 0) {
        struct row_send *last = &t->sends.data[t->sends.len - 1];
        if (last->sctl == s->sctl && last->start + (int32_t)last->count == s->now &&
            last->addr + last->count * item_bytes == addr) {
            last->count += events;
            return true;
        }
    }
    return row_list_push(
        &t->sends,
        (struct row_send){.start = s->now, .count = events, .addr = addr, .sctl = s->sctl});
}

/* A piece without an address of its own goes on where the stream stands. */
static bool continue_stream(struct row_trace *t, struct stream *s) {
    if (s->sent != s->now || s->is_broken) {
        stop(t, ROW_ERROR_TYPE + TYPE_EXCONF, s->now, t->pc, "stream continues after a pause");
        return false;
    }
    return true;
}

/* sendpicp: its second word follows; it restarts the stream, or only waits when sctl is 0. */
static bool trace_pair(
    struct row_trace *t, struct stream *s, const struct row_insn *i, const struct row_code *code) {
    uint32_t data = 0;
    if (t->pc % 8 != 0) {
        stop(t, ROW_ERROR_TYPE + TYPE_INVALID_INSTR, s->now, t->pc, "sendpicp at 4 modulo 8");
        return true;
    }
    if (!code->fetch(code->self, t->pc + 4, &data)) {
        stop(t, ROW_ERROR_TYPE + TYPE_INVALID_PC, s->now, t->pc, "second word of sendpicp");
        return true;
    }
    if (!push_xpic(t, s->now + 1, data >> 31, data >> 18 & 0x1fff) ||
        !push_pic(t, s->now + 1, i->selector, data & 0x3ffff)) {
        return false;
    }
    if ((i->sctl & 3) == 0) {
        s->is_broken = true;
        return true;
    }
    s->item = i->addr;
    s->sctl = i->sctl;
    return push_send(t, s, (uint32_t)i->events);
}

static bool trace_sendpic(struct row_trace *t, struct stream *s, const struct row_insn *i) {
    if (!continue_stream(t, s)) {
        return true;
    }
    bool ok = i->selector < 2 ? push_xpic(t, s->now + 1, i->selector, i->value)
                              : push_pic(t, s->now + 1, i->selector - 2u, i->value);
    return ok && push_send(t, s, (uint32_t)i->events);
}

/* Executes one instruction at s->now; t->pc becomes the next one's address. */
static bool trace_one(
    struct row_trace *t, struct stream *s, const struct row_insn *i, const struct row_code *code) {
    int32_t after = s->now + i->events;
    uint32_t next = t->pc + (i->op == ROW_OP_SENDPICP ? 8 : 4);
    bool ok = true;
    switch (i->op) {
    case ROW_OP_DELAYPIC: ok = push_pic(t, after, i->selector, i->value); break;
    case ROW_OP_DELAYXPIC: ok = push_xpic(t, after, i->selector, i->value); break;
    case ROW_OP_SEND:
        s->item = i->addr;
        s->sctl = i->sctl;
        ok = push_send(t, s, (uint32_t)i->events);
        break;
    case ROW_OP_SENDOFF:
        if (continue_stream(t, s)) {
            s->item += i->addr;
            s->sctl = i->sctl;
            ok = push_send(t, s, (uint32_t)i->events);
        }
        break;
    case ROW_OP_SENDPIC: ok = trace_sendpic(t, s, i); break;
    case ROW_OP_SENDPICP: ok = trace_pair(t, s, i, code); break;
    case ROW_OP_PUT_BASE:
        s->is_broken = true;
        if (i->selector != 0) {
            t->outgoing_base = t->m[i->reg];
        } else {
            t->incoming_base = t->m[i->reg];
            ok = push_control(t, after, ROW_BASE, t->m[i->reg]);
        }
        break;
    case ROW_OP_SETZI:
    case ROW_OP_CALL:
        if (i->reg != 15) {
            t->m[i->reg] = i->op == ROW_OP_CALL ? next : i->value;
            t->m_written |= (uint16_t)(1u << i->reg);
        }
        next = i->op == ROW_OP_CALL ? i->value : next;
        break;
    case ROW_OP_BR:
        t->horizon = s->now;
        next = t->m[i->reg];
        break;
    default: /* a delay only takes time */ break;
    }
    t->pc = t->is_stopped ? t->pc : next;
    s->now = after;
    return ok;
}

static void note_fetch(struct row_trace *t) {
    unsigned first = fabric_unit(t->pc);
    unsigned last = fabric_unit(t->pc + TARGET_FETCH_AHEAD);
    t->code_units |= 1ull << first % 64;
    if (last < 64) {
        t->code_units |= 1ull << last;
    }
}

bool row_trace_run(struct row_trace *t, const struct row_code *code, bool ends_at_return) {
    struct stream s = {.sent = -1};
    bool is_return = false;
    t->entry_base = t->incoming_base;
    t->horizon = -1;
    while (!t->is_stopped) {
        uint32_t word = 0;
        if (!code->fetch(code->self, t->pc, &word)) {
            if (ends_at_return) {
                stop(t, ROW_ERROR_TYPE + TYPE_INVALID_PC, s.now, t->pc, "row without a return");
            }
            break; /* the tile itself raises what is to be raised */
        }
        struct row_insn i = row_decode(word);
        bool foreign = i.op == ROW_OP_FOREIGN || i.op == ROW_OP_SANS;
        if (foreign && ends_at_return) {
            stop(t, ROW_ERROR_TYPE + TYPE_INVALID_INSTR, s.now, t->pc, "word %08x in a row", word);
        }
        if (foreign) {
            break;
        }
        if (t->instructions >= MAX_INSTRUCTIONS || s.now > MAX_EVENTS) {
            stop(t, ROW_ERROR_TYPE + TYPE_EXCONF, s.now, t->pc, "exchange code without an end");
            break;
        }
        t->instructions++;
        note_fetch(t);
        is_return = i.op == ROW_OP_BR;
        if (!trace_one(t, &s, &i, code)) {
            return false;
        }
        if (is_return && ends_at_return) {
            break;
        }
    }
    t->end = s.now;
    /* A return takes longer than one event, but rows are built so that what follows one event
     * after it may load the last item: hold them to that. */
    t->visible = is_return ? t->horizon + 1 : s.now;
    return true;
}

void row_trace_clear(struct row_trace *t) {
    t->sends.len = 0;
    t->controls.len = 0;
    t->m_written = 0;
    t->has_wide = false;
    t->is_stopped = false;
    t->end = 0;
    t->visible = 0;
    t->horizon = -1;
    t->instructions = 0;
    t->code_units = 0;
    t->fault = (struct row_fault){.code = 0};
}

void row_trace_done(struct row_trace *t) {
    free(t->sends.data);
    free(t->controls.data);
    *t = (struct row_trace){.horizon = -1};
}
