/* Descriptors of calls in a loop: their words that name a slot of a sequence move to the next slot
 * once a turn, and back behind the loop. So neither code nor tables depend on the number of turns.
 *
 * Each such word is read by one call of a turn. All of a tile's move at once, in the level in which
 * the tile waits longest for the others: those that are read later in the turn start one slot
 * before the first, and are there when they are read. */
#include "emit/emit_internal.h"

static const struct lower_vertex *
call_of(const struct emit_context *c, uint32_t logical, uint32_t at) {
    return &c->tg->vertices[c->index->vertex[c->index->tile_first[logical] + at]];
}

static uint32_t call_count(const struct emit_context *c, uint32_t logical) {
    return c->index->tile_first[logical + 1] - c->index->tile_first[logical];
}

static bool is_moving(const struct emit_context *c, const struct lower_vertex *v, uint32_t word) {
    struct buffer_id b = v->words[word].buffer;
    return b.n != NO_BUFFER.n && lower_buffer(c->tg, b)->slots > 1;
}

static uint32_t moving_words(const struct emit_context *c, const struct lower_vertex *v) {
    uint32_t count = 0;
    for (uint32_t w = 0; w < v->word_count; w++) {
        count += is_moving(c, v, w) ? 1 : 0;
    }
    return count;
}

static uint32_t pairs_each(const struct emit_context *c, uint32_t logical) {
    uint32_t words = 0;
    for (uint32_t i = 0; c->tg->loop.turns > 0 && i < call_count(c, logical); i++) {
        words += moving_words(c, call_of(c, logical, i));
    }
    return (words + RT_WORKERS - 1) / RT_WORKERS;
}

/* Level in [first, last) in which the tile waits longest for others; the last one of equals. */
static uint32_t
idlest_level(const struct emit_context *c, uint32_t logical, uint32_t first, uint32_t last) {
    uint32_t best = first, call = 0;
    uint64_t best_slack = 0;
    for (uint32_t level = first; level < last; level++) {
        uint64_t own = 0;
        for (; call < call_count(c, logical) && call_of(c, logical, call)->level <= level; call++) {
            own +=
                call_of(c, logical, call)->level == level ? call_of(c, logical, call)->cycles : 0;
        }
        uint64_t slack = c->tg->levels[level].compute_cycles - own;
        if (slack >= best_slack) {
            best_slack = slack;
            best = level;
        }
    }
    return best;
}

struct emit_loop_plan emit_loop_plan(const struct emit_context *c, uint32_t logical) {
    const struct lower_loop *l = &c->tg->loop;
    if (pairs_each(c, logical) == 0) {
        return (struct emit_loop_plan){UINT32_MAX, UINT32_MAX};
    }
    uint32_t end = l->level_first + l->level_count;
    return (struct emit_loop_plan){
        idlest_level(c, logical, l->level_first, end),
        end < c->tg->level_count ? idlest_level(c, logical, end, c->tg->level_count) : UINT32_MAX};
}

uint32_t emit_loop_words(const struct emit_context *c, uint32_t logical) {
    if (c->tg->loop.turns == 0 || !emit_loop_is_busy(c, logical)) {
        return 0;
    }
    uint32_t each = pairs_each(c, logical);
    return 1 + (each > 0 ? 2 * RT_ADVANCE_WORDS + 1 + 2 * RT_WORKERS * each : 0);
}

void emit_loop_table(
    const struct emit_context *c, const struct emit_tile_layout *l, uint32_t logical,
    uint32_t *out) {
    uint32_t each = pairs_each(c, logical);
    if (each == 0) { /* at most the counter */
        return;
    }
    uint32_t calls = call_count(c, logical);
    uint32_t first = emit_table_words(c, logical) - emit_loop_words(c, logical);
    uint32_t spare = first + 1 + 2 * RT_ADVANCE_WORDS;
    uint32_t list = emit_table_addr(l, spare + 1);
    const uint32_t head[] = {0, each, 1, list, each, 0u - c->tg->loop.turns, list, 0};
    for (uint32_t i = 0; i < sizeof head / sizeof *head; i++) {
        *out++ = head[i];
    }
    uint32_t at = first, left = RT_WORKERS * each;
    for (uint32_t i = calls; i-- > 0;) {
        at -= call_of(c, logical, i)->word_count;
    }
    for (uint32_t i = 0; i < calls; i++) {
        const struct lower_vertex *v = call_of(c, logical, i);
        for (uint32_t w = 0; w < v->word_count; w++) {
            if (is_moving(c, v, w)) {
                *out++ = emit_table_addr(l, at + w);
                *out++ = lower_slot_bytes(lower_buffer(c->tg, v->words[w].buffer));
                left--;
            }
        }
        at += v->word_count;
    }
    for (; left > 0; left--) {
        *out++ = emit_table_addr(l, spare);
        *out++ = 0;
    }
}

uint32_t emit_loop_start(
    const struct emit_context *c, const struct emit_loop_plan *plan, const struct lower_vertex *v,
    uint32_t word) {
    bool is_early = is_moving(c, v, word) && v->level > plan->on;
    return is_early ? 0u - lower_slot_bytes(lower_buffer(c->tg, v->words[word].buffer)) : 0;
}

bool emit_loop_is_busy(const struct emit_context *c, uint32_t logical) {
    const struct lower_loop *l = &c->tg->loop;
    for (uint32_t i = 0; i < call_count(c, logical); i++) {
        if (lower_level_turns(c->tg, call_of(c, logical, i)->level) > 1) {
            return true;
        }
    }
    for (uint32_t level = l->level_first; level < l->level_first + l->level_count; level++) {
        if (exchange_plan_row(c->exchange, level, (struct logical_tile){(uint16_t)logical}) !=
            NULL) {
            return true;
        }
    }
    return false;
}

uint32_t emit_loop_barriers(const struct emit_context *c) {
    const struct lower_loop *l = &c->tg->loop;
    uint32_t count = 0;
    for (uint32_t level = l->level_first; level < l->level_first + l->level_count; level++) {
        count += c->tg->levels[level].move_count > 0 ? 1 : 0;
    }
    return count;
}
