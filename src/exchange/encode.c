/* One lane -> the words of its row: the encoding rule of fact sheet 3.5.
 *
 * Walks the sends in time order; before each lies a gap (delays carry the controls), in each the
 * controls ride on sendpic. Two controls of one event need a sendpicp, whose two words must begin
 * at an even index; the rule knows how to shift by one word, and without `plain` any instruction
 * of two or more events since the last sendpicp is split instead. Ends with the return at the
 * lane's horizon.
 */
#include "exchange/exchange_internal.h"

#include <assert.h>
#include <string.h>

#define DELAY_MOST   524288
#define MUX_MOST     4096
#define POINTER_MOST 128
#define SEND_MOST    64
#define STREAM_MOST  4096

enum split_kind { SPLIT_NONE, SPLIT_GAP, SPLIT_STREAM };

struct encoder {
    const struct lane *l;
    struct arena *a; /* NULL: count only */
    bool plain;
    bool is_misaligned;
    VEC(uint32_t) words;
    uint32_t index; /* words emitted */
    int32_t now;
    size_t control, base_write; /* next ones */
    /* last splittable instruction since the last aligned pair, and what the second half is */
    uint32_t split_at;
    uint32_t split_words;
    uint32_t split_shift; /* of its count field */
    enum split_kind split;
    uint8_t split_sctl;
};

static void put_word(struct encoder *e, uint32_t word) {
    if (e->a != NULL) {
        vec_push(e->a, &e->words, word);
    }
    e->index++;
}

/* Remembers the instruction just emitted as one that can give up an event. */
static void mark_split(
    struct encoder *e, enum split_kind kind, int32_t events, uint32_t words, uint32_t shift,
    uint8_t sctl) {
    if (events >= 2) {
        e->split = kind;
        e->split_at = e->index - words;
        e->split_words = words;
        e->split_shift = shift;
        e->split_sctl = sctl;
    }
}

static void put_delay(struct encoder *e, int32_t events) {
    while (events > 0) {
        int32_t part = events < DELAY_MOST ? events : DELAY_MOST;
        put_word(e, 0x40A00000u + (uint32_t)(part - 1));
        mark_split(e, SPLIT_GAP, part, 1, 0, 0);
        e->now += part;
        events -= part;
    }
}

/* Shifts everything after the splittable instruction by one word. False when there is none. */
static bool split_earlier(struct encoder *e) {
    if (e->plain || e->split == SPLIT_NONE) {
        return false;
    }
    uint32_t filler = e->split == SPLIT_GAP ? 0x40A00000u : 0x70000000u + e->split_sctl;
    uint32_t at = e->split_at;
    put_word(e, 0);
    if (e->a != NULL) {
        uint32_t *w = e->words.data;
        /* the count field holds events - 1 >= 1, except a sendoff's, which is split in two
         * fields: there the whole count is taken apart again */
        if ((w[at] & 0xF8100000u) == 0x70000000u) {
            uint32_t count = (w[at] >> 21 & 63) + 64 * (w[at] >> 14 & 63) - 1;
            w[at] = 0x70000000u + (count % 64 << 21) + (count / 64 << 14) + e->split_sctl;
        } else {
            w[at] -= 1u << e->split_shift;
        }
        uint32_t to = at + e->split_words;
        memmove(&w[to + 1], &w[to], (e->index - 1 - to) * sizeof *w);
        w[to] = filler;
    }
    e->split = SPLIT_NONE;
    return true;
}

static bool align_fallback(struct encoder *e) {
    if (e->index % 2 == 0 || split_earlier(e)) {
        return true;
    }
    e->is_misaligned = true;
    return false;
}

static uint32_t control_count(const struct encoder *e) {
    const struct control *c = &e->l->controls.data[e->control];
    bool two = e->control + 1 < e->l->controls.len && c[1].event == c[0].event;
    return two ? 2 : 1;
}

/* Event at which the next control or base write up to `limit` begins to issue, or `end`. */
static int32_t next_issue(const struct encoder *e, int32_t limit, int32_t end) {
    if (e->control < e->l->controls.len && e->l->controls.data[e->control].event <= limit) {
        int32_t at = e->l->controls.data[e->control].event - 1;
        end = at < end ? at : end;
    }
    if (e->base_write < e->l->switches.len && e->l->switches.data[e->base_write].end <= limit) {
        int32_t at = e->l->switches.data[e->base_write].start;
        end = at < end ? at : end;
    }
    return end;
}

static void put_pair_words(struct encoder *e, int32_t events, uint32_t item_addr, uint8_t sctl) {
    const struct control *c = &e->l->controls.data[e->control];
    uint32_t mux = c[0].kind == CONTROL_MUX ? c[0].value : c[1].value;
    uint32_t pointer = c[0].kind == CONTROL_POINTER ? c[0].value : c[1].value;
    put_word(e, 0xF0000000u + ((uint32_t)(events - 1) << 21) + item_addr * 8 + sctl);
    put_word(e, (mux << 18) + pointer);
    e->split = SPLIT_NONE;
    mark_split(e, sctl == 0 ? SPLIT_GAP : SPLIT_STREAM, events, 2, 21, sctl);
    e->now += events;
}

static void gap_pair(struct encoder *e, int32_t limit, int32_t end) {
    int32_t event = e->l->controls.data[e->control].event;
    int32_t wait = event - 1 - e->now;
    uint32_t pieces = (uint32_t)((wait + DELAY_MOST - 1) / DELAY_MOST);
    if ((e->index + pieces) % 2 != 0 && wait >= 2) {
        put_delay(e, wait - 1);
        put_delay(e, 1);
    } else {
        put_delay(e, wait);
    }
    if (!align_fallback(e)) {
        return;
    }
    e->control += 2;
    int32_t stop = next_issue(e, limit, end);
    e->control -= 2;
    int32_t events = stop - e->now < SEND_MOST ? stop - e->now : SEND_MOST;
    put_pair_words(e, events, 0, 0);
    e->control += 2;
}

static void gap_single(struct encoder *e) {
    const struct control *c = &e->l->controls.data[e->control];
    bool is_mux = c->kind == CONTROL_MUX || c->kind == CONTROL_PAIR;
    int32_t most = is_mux ? MUX_MOST : POINTER_MOST;
    int32_t events = c->event - e->now;
    if (events > most) {
        put_delay(e, events - most);
        events = most;
    }
    uint32_t selector = c->kind & 1;
    uint32_t shift = is_mux ? 14 : 19;
    put_word(
        e, (is_mux ? 0x64000000u + (selector << 13) : 0x60000000u + (selector << 18)) +
               ((uint32_t)(events - 1) << shift) + c->value);
    if (events >= 2) {
        /* the wait may be split off in front: the control stays at the end */
        e->split = SPLIT_GAP;
        e->split_at = e->index - 1;
        e->split_words = 0;
        e->split_shift = shift;
    }
    e->now = c->event;
    e->control++;
}

/* Everything up to and including event `limit`, then idles up to `end`. */
static void gap(struct encoder *e, int32_t end) {
    while (!e->is_misaligned) {
        bool has_control =
            e->control < e->l->controls.len && e->l->controls.data[e->control].event <= end;
        bool has_write =
            e->base_write < e->l->switches.len && e->l->switches.data[e->base_write].end <= end;
        if (has_write && (!has_control || e->l->switches.data[e->base_write].start <
                                              e->l->controls.data[e->control].event)) {
            const struct base_write *w = &e->l->switches.data[e->base_write];
            put_delay(e, w->start - e->now);
            put_word(e, 0x430080A7u + ((uint32_t)w->reg << 20));
            e->now = w->end;
            e->base_write++;
        } else if (!has_control) {
            break;
        } else if (control_count(e) == 2) {
            gap_pair(e, end, end);
        } else {
            gap_single(e);
        }
    }
    put_delay(e, end - e->now);
}

static void put_send(struct encoder *e, const struct send_piece *s, int32_t items) {
    if (e->now == s->start) {
        put_word(e, 0x78000000u + ((uint32_t)(items - 1) << 21) + s->item_addr * 8 + s->sctl);
        mark_split(e, SPLIT_STREAM, items, 1, 21, s->sctl);
    } else {
        uint32_t count = (uint32_t)(items - 1);
        put_word(e, 0x70000000u + (count % 64 << 21) + (count / 64 << 14) + s->sctl);
        mark_split(e, SPLIT_STREAM, items, 1, 21, s->sctl);
    }
    e->now += items;
}

/* k items without a control; `odd` asks for one word more if that makes the index even. */
static void stream(struct encoder *e, const struct send_piece *s, int32_t k, bool for_pair) {
    int32_t first = e->now == s->start ? (k < SEND_MOST ? k : SEND_MOST) : 0;
    int32_t rest = k - first;
    int32_t tail = rest % STREAM_MOST;
    uint32_t pieces = (first > 0) + (uint32_t)((rest + STREAM_MOST - 1) / STREAM_MOST);
    bool is_odd = for_pair && (e->index + pieces) % 2 != 0;
    /* which piece, counted from the end, is the last of two or more items */
    int32_t splits_at = -1;
    if (is_odd && rest > 0) {
        int32_t last = tail == 0 ? STREAM_MOST : tail;
        splits_at = last >= 2 ? rest - last : rest - last - STREAM_MOST;
        if (splits_at < 0) {
            splits_at = -1;
        }
    }
    bool split_first = is_odd && splits_at < 0 && first >= 2;
    if (first > 0 && split_first) {
        put_send(e, s, 1);
        put_send(e, s, first - 1);
    } else if (first > 0) {
        put_send(e, s, first);
    }
    for (int32_t done = 0; done < rest;) {
        int32_t part = rest - done < STREAM_MOST ? rest - done : STREAM_MOST;
        if (done == splits_at) {
            put_send(e, s, 1);
            put_send(e, s, part - 1);
        } else {
            put_send(e, s, part);
        }
        done += part;
    }
}

static void carrier(struct encoder *e, const struct send_piece *s, uint32_t count) {
    const struct control *c = &e->l->controls.data[e->control];
    e->control += count;
    int32_t items = next_issue(e, s->end, s->end) - e->now;
    bool next_is_pair = e->control < e->l->controls.len &&
                        e->l->controls.data[e->control].event <= s->end && control_count(e) == 2;
    if (next_is_pair && (e->index + count) % 2 != 0 && items > 1) {
        items--;
    }
    items = items < SEND_MOST ? items : SEND_MOST;
    if (count == 2) {
        e->control -= 2;
        put_pair_words(e, items, s->item_addr + (uint32_t)(e->now - s->start), s->sctl);
        e->control += 2;
        return;
    }
    put_word(
        e, 0x70100000u + ((uint32_t)(items - 1) << 21) + ((uint32_t)c->kind << 18) +
               (c->kind == CONTROL_PAIR || c->kind == CONTROL_MUX ? c->value & 0x1FFF : c->value));
    mark_split(e, SPLIT_STREAM, items, 1, 21, s->sctl);
    e->now += items;
}

static void message(struct encoder *e, const struct send_piece *s) {
    while (e->control < e->l->controls.len && e->l->controls.data[e->control].event <= s->end) {
        uint32_t count = control_count(e);
        int32_t k = e->l->controls.data[e->control].event - 1 - e->now;
        assert(e->now > s->start || k > 0); /* no control on S or S + 1 (2.5) */
        stream(e, s, k, count == 2);
        if (count == 2 && !align_fallback(e)) {
            return;
        }
        carrier(e, s, count);
    }
    stream(e, s, s->end - e->now, false);
}

bool exchange_row_encode(
    const struct lane *l, bool plain, struct arena *a, struct exchange_row *ret) {
    struct encoder e = {.l = l, .a = ret != NULL ? a : NULL, .plain = plain};
    if (e.a != NULL) {
        vec_reserve(a, &e.words, l->controls.len + 3 * l->sends.len + 8);
    }
    for (size_t i = 0; i < l->sends.len && !e.is_misaligned; i++) {
        gap(&e, l->sends.data[i].start);
        if (!e.is_misaligned) {
            message(&e, &l->sends.data[i]);
        }
    }
    if (!e.is_misaligned) {
        gap(&e, l->horizon);
    }
    if (e.is_misaligned) {
        return false;
    }
    assert(e.now == l->horizon);
    put_word(&e, ROW_RETURN);
    if (ret != NULL) {
        *ret = (struct exchange_row){
            target_logical(l->tile), e.words.data, e.index, (uint32_t)l->horizon, l->incoming_base};
    }
    return true;
}
