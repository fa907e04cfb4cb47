/* Words of a row -> sends, control writes and events: the masks of fact sheet 3.1, read the other
 * way round than encode.c writes them and sharing nothing with it. Ends with the words.
 */
#include "exchange/exchange_internal.h"

#include <string.h>

static int32_t field(uint32_t word, uint32_t shift, uint32_t bits) {
    return (int32_t)(word >> shift & ((1u << bits) - 1));
}

static void step_write(struct row_step *s, int32_t event, uint32_t kind, uint32_t value) {
    s->writes[s->write_count++] = (struct row_write){event, value, (uint8_t)kind};
}

static bool decode_delay(uint32_t w, struct row_step *s) {
    if ((w & 0xFFF80000u) == 0x40A00000u) {
        s->op = STEP_DELAY;
        s->events = field(w, 0, 19) + 1;
    } else if ((w & 0xFC000000u) == 0x60000000u) {
        s->op = STEP_WRITE;
        s->events = field(w, 19, 7) + 1;
        step_write(s, s->events, CONTROL_POINTER + (w >> 18 & 1), w & 0x3FFFFu);
    } else if ((w & 0xFC000000u) == 0x64000000u) {
        s->op = STEP_WRITE;
        s->events = field(w, 14, 12) + 1;
        step_write(s, s->events, CONTROL_MUX + (w >> 13 & 1), w & 0x1FFFu);
    } else {
        return false;
    }
    return true;
}

static bool decode_stream(uint32_t w, struct row_step *s) {
    s->sctl = (uint8_t)(w & 7);
    if ((w & 0xF8000000u) == 0x78000000u) {
        s->op = STEP_SEND;
        s->events = field(w, 21, 6) + 1;
        s->item_addr = w >> 3 & 0x3FFFFu;
    } else if ((w & 0xF8100000u) == 0x70000000u) {
        s->op = STEP_SENDOFF;
        s->events = field(w, 21, 6) + 64 * field(w, 14, 6) + 1;
        s->delta = w >> 3 & 0x7FFu;
    } else if ((w & 0xF8100000u) == 0x70100000u) {
        uint32_t selector = w >> 18 & 3;
        s->op = STEP_SENDPIC;
        s->events = field(w, 21, 6) + 1;
        step_write(s, 1, selector, w & (selector <= CONTROL_PAIR ? 0x1FFFu : 0x3FFFFu));
    } else {
        return false;
    }
    return true;
}

bool exchange_step_decode(const uint32_t *words, uint32_t left, struct row_step *ret) {
    uint32_t w = words[0];
    *ret = (struct row_step){.words = 1};
    if (w == ROW_RETURN) {
        ret->op = STEP_RETURN;
        return true;
    }
    if ((w & 0xF0000000u) == 0xF0000000u && left >= 2) {
        ret->op = STEP_SENDPICP;
        ret->words = 2;
        ret->events = field(w, 21, 6) + 1;
        ret->sctl = (uint8_t)(w & 7);
        ret->item_addr = w >> 3 & 0x3FFFFu;
        step_write(ret, 1, CONTROL_MUX + (words[1] >> 31), words[1] >> 18 & 0x1FFFu);
        step_write(ret, 1, CONTROL_POINTER + (w >> 27 & 1), words[1] & 0x3FFFFu);
        return true;
    }
    if ((w & 0xFF0FFFFFu) == 0x430080A7u) {
        ret->op = STEP_BASE;
        ret->events = BASE_WRITE;
        ret->reg = (uint8_t)(w >> 20 & 15);
        return true;
    }
    return decode_delay(w, ret) || decode_stream(w, ret);
}

/* Adds the items of a transmitting instruction; joins them to the piece before when both event and
 * address run on. Returns a fault or NULL. */
static const char *
add_items(struct row_decoded *d, struct arena *a, const struct row_step *s, int32_t now) {
    struct row_send *last = d->sends.len > 0 ? &d->sends.data[d->sends.len - 1] : NULL;
    bool runs_on = last != NULL && last->end == now;
    uint32_t next = runs_on ? last->item_addr + (uint32_t)(last->end - last->start) : 0;
    uint8_t sctl = s->op == STEP_SENDPIC && runs_on ? last->sctl : s->sctl;
    uint32_t from = s->item_addr;
    if (s->op == STEP_SENDOFF || s->op == STEP_SENDPIC) {
        if (!runs_on) {
            return "continues a stream that does not run";
        }
        if (s->delta != 0) {
            return "jumps inside a stream";
        }
        if (((sctl ^ last->sctl) & 4) != 0) {
            return "changes the item width inside a stream";
        }
        from = next;
    }
    if ((sctl & 3) == 0) {
        return "sends in no direction";
    }
    if (runs_on && from == next && sctl == last->sctl && s->op != STEP_SEND) {
        last->end += s->events;
    } else {
        vec_push(a, &d->sends, (struct row_send){now, now + s->events, from, sctl});
    }
    return NULL;
}

static const char *
add_step(struct row_decoded *d, struct arena *a, const struct row_step *s, uint32_t index) {
    int32_t now = d->horizon;
    if (s->op == STEP_SENDPICP && index % 2 != 0) {
        return "sendpicp is not 8-byte aligned";
    }
    if (s->op >= STEP_SEND && s->op <= STEP_SENDPIC) {
        const char *fault = add_items(d, a, s, now);
        if (fault != NULL) {
            return fault;
        }
    }
    if (s->op == STEP_SENDPICP && s->sctl != 0) {
        const char *fault = add_items(d, a, s, now);
        if (fault != NULL) {
            return fault;
        }
    }
    for (uint32_t i = 0; i < s->write_count; i++) {
        struct row_write w = s->writes[i];
        w.event += now;
        vec_push(a, &d->writes, w);
    }
    d->horizon += s->events;
    if (s->op == STEP_BASE) {
        vec_push(a, &d->switches, (struct base_write){now, d->horizon, s->reg});
    }
    return NULL;
}

int exchange_row_decode(
    const struct exchange_row *row, struct arena *a, struct row_decoded *ret, struct err *err) {
    *ret = (struct row_decoded){0};
    for (uint32_t i = 0; i < row->word_count;) {
        struct row_step s;
        if (!exchange_step_decode(&row->words[i], row->word_count - i, &s)) {
            return err_set(
                err, ERR_SCHEDULE, "tile %u: word %u (%08x) is no exchange instruction",
                row->tile.n, i, row->words[i]);
        }
        if ((s.op == STEP_RETURN) != (i + s.words == row->word_count)) {
            return err_set(
                err, ERR_SCHEDULE, "tile %u: word %u of %u, return expected last", row->tile.n, i,
                row->word_count);
        }
        const char *fault = add_step(ret, a, &s, i);
        if (fault != NULL) {
            return err_set(
                err, ERR_SCHEDULE, "tile %u: word %u (%08x) at event %d %s", row->tile.n, i,
                row->words[i], ret->horizon, fault);
        }
        i += s.words;
    }
    if (row->word_count == 0) {
        return err_set(err, ERR_SCHEDULE, "tile %u: empty row", row->tile.n);
    }
    return 0;
}
