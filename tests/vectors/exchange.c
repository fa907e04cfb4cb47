/* `vectors exchange FILE`: a file of exchange vectors against the encoder and the fabric apart.
 *
 * Groups: numbering and routes; encoder (our rows for the case's transfers are the recorded words,
 * or deliver the same words at no later horizon); fabric (the simulator runs the recorded rows and
 * delivers exactly the case's words at the recorded arrivals); mutations (recorded damaged rows
 * leave the predicted words); rejections (inputs that the encoder must refuse). Every case counts
 * once as passed or failed; the last line is the total.
 */
#include "vectors.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exchange/exchange.h"
#include "sim/sim.h"

#define ARENA_LIMIT ((size_t)512 << 20)

struct group {
    const char *name;
    unsigned passed, failed;
};

struct run {
    struct arena a;
    struct group group[16];
    unsigned groups;
    unsigned identical, equivalent;
};

struct words { /* expected or observed deliveries */
    struct sim_delivery *data;
    size_t len;
};

struct row_set {
    struct sim_row *rows;
    uint32_t count;
};

static struct group *group_open(struct run *r, const char *name) {
    r->group[r->groups].name = name;
    return &r->group[r->groups++];
}

static void verdict(struct group *g, const char *id, const char *fault) {
    if (fault == NULL) {
        g->passed++;
        return;
    }
    g->failed++;
    if (g->failed <= 20) {
        printf("FAIL %s %s: %s\n", g->name, id, fault);
    }
}

static struct physical_tile physical(json_int_t logical) {
    return target_physical((struct logical_tile){(uint16_t)logical});
}

static bool is_tile(json_int_t n) {
    return n >= 0 && n < TARGET_TILES;
}

static bool is_range(json_int_t addr, json_int_t words) {
    return addr >= TARGET_MEM_BASE && words >= 1 && words <= TARGET_MEM_SIZE / 4 &&
           addr + 4 * words <= TARGET_MEM_END;
}

/* ---- reading ------------------------------------------------------------------------------ */

static const char *read_form(const char *form, enum exchange_form *ret) {
    static const char *const names[] = {"point", "absolute", "paired"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(form, names[i]) == 0) {
            *ret = (enum exchange_form)i;
            return NULL;
        }
    }
    return "unknown form";
}

static const char *read_transfer(struct run *r, json_t *j, struct exchange_transfer *ret) {
    json_int_t src = -1, addr = 0, words = 0, requested = 0;
    const char *form = "";
    json_t *dests = NULL;
    if (json_unpack(
            j, "{s:I,s:I,s:I,s:s,s:o,s?I}", "src", &src, "src_addr", &addr, "words", &words, "form",
            &form, "dests", &dests, "requested", &requested) != 0 ||
        !is_tile(src) || !is_range(addr, words) || !json_is_array(dests)) {
        return "malformed transfer";
    }
    size_t n = json_array_size(dests);
    struct exchange_dest *list = ARENA_ARRAY(&r->a, struct exchange_dest, n);
    for (size_t i = 0; i < n; i++) {
        json_int_t tile = -1, at = 0;
        if (json_unpack(json_array_get(dests, i), "[I,I]", &tile, &at) != 0 || !is_tile(tile) ||
            !is_range(at, words)) {
            return "malformed destination";
        }
        list[i] = (struct exchange_dest){{(uint16_t)tile}, (uint32_t)at};
    }
    *ret = (struct exchange_transfer){
        .source = {(uint16_t)src},
        .source_addr = (uint32_t)addr,
        .words = (uint32_t)words,
        .dests = list,
        .dest_count = (uint32_t)n,
        .requested = (uint32_t)requested,
    };
    return read_form(form, &ret->form);
}

static const char *
read_transfers(struct run *r, json_t *c, struct exchange_transfer **ret, uint32_t *ret_count) {
    json_t *list = json_object_get(c, "transfers");
    size_t n = json_array_size(list);
    if (n == 0) {
        return "no transfers";
    }
    *ret = ARENA_ARRAY(&r->a, struct exchange_transfer, n);
    *ret_count = (uint32_t)n;
    for (size_t i = 0; i < n; i++) {
        const char *fault = read_transfer(r, json_array_get(list, i), &(*ret)[i]);
        if (fault != NULL) {
            return fault;
        }
    }
    return NULL;
}

static const char *read_rows(struct run *r, json_t *c, struct row_set *ret) {
    json_t *rows = json_object_get(c, "rows");
    json_t *bases = json_object_get(c, "incoming_base");
    if (!json_is_object(rows) || json_object_size(rows) == 0) {
        return "no rows";
    }
    ret->rows = ARENA_ARRAY(&r->a, struct sim_row, json_object_size(rows));
    ret->count = 0;
    const char *key;
    json_t *list;
    json_object_foreach(rows, key, list) {
        long tile = strtol(key, NULL, 10);
        size_t n = json_array_size(list);
        if (!is_tile(tile) || n == 0) {
            return "malformed row";
        }
        uint32_t *words = ARENA_ARRAY(&r->a, uint32_t, n);
        for (size_t i = 0; i < n; i++) {
            const char *text = json_string_value(json_array_get(list, i));
            words[i] = text != NULL ? (uint32_t)strtoul(text, NULL, 16) : 0;
        }
        ret->rows[ret->count++] = (struct sim_row){
            physical(tile), words, (uint32_t)n,
            (uint32_t)json_integer_value(json_object_get(bases, key)), 0};
    }
    return NULL;
}

/* ---- fabric ------------------------------------------------------------------------------- */

static int delivery_order(const void *x, const void *y) {
    const struct sim_delivery *a = x;
    const struct sim_delivery *b = y;
    if (a->arrival != b->arrival) {
        return a->arrival < b->arrival ? -1 : 1;
    }
    if (a->tile.n != b->tile.n) {
        return a->tile.n < b->tile.n ? -1 : 1;
    }
    return (a->addr > b->addr) - (a->addr < b->addr);
}

static struct words
expected_words(struct run *r, json_t *c, const struct exchange_transfer *list, uint32_t count) {
    size_t total = 0;
    for (uint32_t i = 0; i < count; i++) {
        total += (size_t)list[i].words * list[i].dest_count;
    }
    struct words w = {ARENA_ARRAY(&r->a, struct sim_delivery, total), 0};
    for (uint32_t i = 0; i < count; i++) {
        const struct exchange_transfer *t = &list[i];
        json_t *receive =
            json_object_get(json_array_get(json_object_get(c, "transfers"), i), "receive");
        for (uint32_t k = 0; k < t->dest_count; k++) {
            json_t *first = json_array_get(json_array_get(receive, k), 0);
            for (uint32_t n = 0; n < t->words; n++) {
                uint32_t item = t->form == EXCHANGE_PAIRED ? n / 2 : n;
                w.data[w.len++] = (struct sim_delivery){
                    target_physical(t->dests[k].tile), t->dests[k].addr + 4 * n,
                    target_physical(t->source), t->source_addr + 4 * n,
                    (int32_t)(json_integer_value(first) + item)};
            }
        }
    }
    qsort(w.data, w.len, sizeof *w.data, delivery_order);
    return w;
}

static void forget_arrivals(struct words *w) {
    for (size_t i = 0; i < w->len; i++) {
        w->data[i].arrival = 0;
    }
    qsort(w->data, w->len, sizeof *w->data, delivery_order);
}

/* Without arrivals both sides lose them. */
static const char *
same_words(struct run *r, struct words *want, struct words got, bool with_arrival) {
    if (!with_arrival) {
        forget_arrivals(want);
        forget_arrivals(&got);
    }
    qsort(got.data, got.len, sizeof *got.data, delivery_order);
    for (size_t i = 0; i < want->len && i < got.len; i++) {
        const struct sim_delivery *a = &want->data[i];
        const struct sim_delivery *b = &got.data[i];
        if (a->tile.n != b->tile.n || a->addr != b->addr || a->source.n != b->source.n ||
            a->source_addr != b->source_addr || (with_arrival && a->arrival != b->arrival)) {
            return arena_printf(
                &r->a,
                "word %zu: tile %u 0x%x from tile %u 0x%x at %d, predicted tile %u 0x%x from tile "
                "%u 0x%x at %d (physical)",
                i, b->tile.n, b->addr, b->source.n, b->source_addr, b->arrival, a->tile.n, a->addr,
                a->source.n, a->source_addr, a->arrival);
        }
    }
    if (want->len != got.len) {
        return arena_printf(&r->a, "%zu words delivered, %zu predicted", got.len, want->len);
    }
    return NULL;
}

/* An element of region 0 that no transfer of the case touches. */
static uint32_t row_place(const struct exchange_transfer *list, uint32_t count) {
    uint32_t used = 0;
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t k = 0; k <= list[i].dest_count; k++) {
            uint32_t at = k == 0 ? list[i].source_addr : list[i].dests[k - 1].addr;
            for (uint32_t end = at + 4 * list[i].words; at < end && at < TARGET_REGION1; at += 4) {
                used |= 1u << (at - TARGET_MEM_BASE) / TARGET_ELEMENT_BYTES;
            }
        }
    }
    for (uint32_t n = 0; n < 13; n++) {
        if ((used >> n & 1) == 0) {
            return TARGET_MEM_BASE + n * TARGET_ELEMENT_BYTES;
        }
    }
    return TARGET_MEM_BASE;
}

enum compare {
    COMPARE_WORDS,    /* sound rows: no fault, arrivals do not matter */
    COMPARE_ARRIVALS, /* sound rows: no fault, arrivals as recorded */
    COMPARE_MEMORY,   /* damaged rows: the fabric may complain, the words must be there */
};

static const char *run_fabric(
    struct run *r, const struct row_set *rows, uint32_t row_addr, struct words *want,
    enum compare how) {
    struct sim_rows_result result;
    struct err err = {0};
    if (sim_rows_run(rows->rows, rows->count, row_addr, &result, &err) != 0) {
        return arena_printf(&r->a, "rows do not run: %s", err.text);
    }
    const char *fault = NULL;
    if (result.fault_count > 0 && how != COMPARE_MEMORY) {
        fault = arena_printf(
            &r->a, "%u faults, first: tile %u event %d code %d %s", result.fault_count,
            result.faults[0].tile.n, result.faults[0].event, result.faults[0].code,
            result.faults[0].text);
    } else {
        fault = same_words(
            r, want, (struct words){result.deliveries, result.delivery_count},
            how != COMPARE_WORDS);
    }
    sim_rows_result_done(&result);
    return fault;
}

/* ---- encoder ------------------------------------------------------------------------------ */

static const char *
case_options(struct run *r, json_t *c, uint32_t count, struct exchange_options *ret) {
    *ret = (struct exchange_options){.plain = true};
    json_t *order = json_object_get(c, "order");
    if (order == NULL) {
        ret->list_order = ret->ignore_elements = ret->always_trial = true;
    } else {
        uint32_t *list = ARENA_ARRAY(&r->a, uint32_t, count);
        if (json_array_size(order) != count) {
            return "order of another length";
        }
        for (uint32_t i = 0; i < count; i++) {
            list[i] = (uint32_t)json_integer_value(json_array_get(order, i));
        }
        ret->order = list;
    }
    json_t *switches = json_object_get(c, "switch_after_transfer_register_start_end");
    size_t n = json_array_size(switches);
    struct exchange_switch *list = ARENA_ARRAY(&r->a, struct exchange_switch, n);
    for (size_t i = 0; i < n; i++) {
        json_t *s = json_array_get(switches, i);
        list[i].after = (uint32_t)json_integer_value(json_array_get(s, 0));
        list[i].reg = (uint8_t)json_integer_value(json_array_get(s, 1));
    }
    ret->switches = list;
    ret->switch_count = (uint32_t)n;
    return NULL;
}

/* NULL when all rows are the recorded ones. */
static const char *
same_rows(struct run *r, const struct row_set *want, const struct exchange_phase *got) {
    if (want->count != got->row_count) {
        return arena_printf(&r->a, "%u rows, %u recorded", got->row_count, want->count);
    }
    for (uint32_t i = 0; i < want->count; i++) {
        const struct sim_row *w = &want->rows[i];
        const struct exchange_row *g = got->rows;
        while (g < got->rows + got->row_count && target_physical(g->tile).n != w->tile.n) {
            g++;
        }
        if (g == got->rows + got->row_count || g->word_count != w->word_count ||
            g->incoming_base != w->incoming_base ||
            memcmp(g->words, w->words, 4 * (size_t)g->word_count) != 0) {
            return arena_printf(
                &r->a, "row of tile %u (logical) differs", target_logical(w->tile).n);
        }
    }
    return NULL;
}

static const char *check_encoder(
    struct run *r, json_t *c, const struct row_set *recorded, const struct exchange_transfer *list,
    uint32_t count, const struct words *want) {
    struct exchange_options options;
    struct exchange_phase phase;
    struct err err = {0};
    const char *fault = case_options(r, c, count, &options);
    if (fault != NULL) {
        return fault;
    }
    if (exchange_schedule_phase(list, count, &options, &r->a, &phase, &err) != 0) {
        return arena_printf(&r->a, "refused: %s", err.text);
    }
    fault = same_rows(r, recorded, &phase);
    if (fault == NULL) {
        r->identical++;
        return NULL;
    }
    struct row_set own = {ARENA_ARRAY(&r->a, struct sim_row, phase.row_count), phase.row_count};
    for (uint32_t i = 0; i < phase.row_count; i++) {
        const struct exchange_row *row = &phase.rows[i];
        own.rows[i] = (struct sim_row){
            target_physical(row->tile), row->words, row->word_count, row->incoming_base, 0};
    }
    json_int_t horizon = json_integer_value(json_object_get(c, "horizon"));
    if (phase.horizon > horizon) {
        return arena_printf(
            &r->a, "%s; horizon %u, recorded %" JSON_INTEGER_FORMAT, fault, phase.horizon, horizon);
    }
    struct words loose = {
        arena_memdup(&r->a, want->data, want->len * sizeof *want->data), want->len};
    const char *words = run_fabric(r, &own, row_place(list, count), &loose, COMPARE_WORDS);
    if (words != NULL) {
        return arena_printf(&r->a, "%s; %s", fault, words);
    }
    r->equivalent++;
    printf(
        "other words, same result: %s (%s)\n", json_string_value(json_object_get(c, "id")), fault);
    return NULL;
}

static void run_cases(
    struct run *r, json_t *file, const char *key, const char *encoder_name,
    const char *fabric_name) {
    struct group *encoder = group_open(r, encoder_name);
    struct group *fabric = group_open(r, fabric_name);
    size_t i;
    json_t *c;
    json_array_foreach(json_object_get(file, key), i, c) {
        struct arena_mark mark = arena_mark(&r->a);
        const char *id = json_string_value(json_object_get(c, "id"));
        id = id != NULL ? id : key;
        struct exchange_transfer *list = NULL;
        uint32_t count = 0;
        struct row_set rows = {0};
        const char *fault = read_transfers(r, c, &list, &count);
        fault = fault != NULL ? fault : read_rows(r, c, &rows);
        if (fault != NULL) {
            verdict(encoder, id, fault);
            verdict(fabric, id, fault);
        } else {
            struct words want = expected_words(r, c, list, count);
            verdict(encoder, id, check_encoder(r, c, &rows, list, count, &want));
            verdict(
                fabric, id, run_fabric(r, &rows, row_place(list, count), &want, COMPARE_ARRIVALS));
        }
        arena_rewind(&r->a, mark);
    }
}

/* ---- the other groups --------------------------------------------------------------------- */

static const char *check_mutation(struct run *r, json_t *c) {
    struct row_set rows = {0};
    const char *fault = read_rows(r, c, &rows);
    json_t *list = json_object_get(c, "deliveries");
    if (fault != NULL || !json_is_array(list)) {
        return fault != NULL ? fault : "no deliveries";
    }
    struct words want = {ARENA_ARRAY(&r->a, struct sim_delivery, json_array_size(list)), 0};
    struct exchange_transfer *used =
        ARENA_ARRAY(&r->a, struct exchange_transfer, json_array_size(list));
    size_t i;
    json_t *d;
    json_array_foreach(list, i, d) {
        json_int_t v[5] = {-1, 0, -1, 0, 0};
        if (json_unpack(d, "[I,I,I,I,I]", &v[0], &v[1], &v[2], &v[3], &v[4]) != 0 ||
            !is_tile(v[0]) || !is_tile(v[2]) || !is_range(v[1], 1) || !is_range(v[3], 1)) {
            return "malformed delivery";
        }
        struct exchange_dest *to = ARENA_NEW(&r->a, struct exchange_dest);
        *to = (struct exchange_dest){{(uint16_t)v[0]}, (uint32_t)v[1]};
        used[i] = (struct exchange_transfer){
            .source_addr = (uint32_t)v[3], .words = 1, .dests = to, .dest_count = 1};
        want.data[want.len++] = (struct sim_delivery){
            physical(v[0]), (uint32_t)v[1], physical(v[2]), (uint32_t)v[3], (int32_t)v[4]};
    }
    qsort(want.data, want.len, sizeof *want.data, delivery_order);
    return run_fabric(r, &rows, row_place(used, (uint32_t)want.len), &want, COMPARE_MEMORY);
}

static void run_mutations(struct run *r, json_t *file) {
    struct group *g = group_open(r, "mutations");
    size_t i;
    json_t *c;
    json_array_foreach(json_object_get(file, "mutations"), i, c) {
        struct arena_mark mark = arena_mark(&r->a);
        const char *id = json_string_value(json_object_get(c, "id"));
        verdict(g, id != NULL ? id : "mutation", check_mutation(r, c));
        arena_rewind(&r->a, mark);
    }
}

static const char *check_rejection(struct run *r, json_t *c) {
    json_int_t src = -1, words = -1;
    const char *form = "";
    json_t *dests = NULL;
    struct exchange_transfer t = {.source_addr = 0x64000};
    if (json_unpack(
            c, "{s:I,s:I,s:s,s:o}", "src", &src, "words", &words, "form", &form, "dests", &dests) !=
            0 ||
        read_form(form, &t.form) != NULL || !json_is_array(dests)) {
        return "malformed rejection";
    }
    size_t n = json_array_size(dests);
    struct exchange_dest *list = ARENA_ARRAY(&r->a, struct exchange_dest, n);
    for (size_t i = 0; i < n; i++) {
        list[i] = (struct exchange_dest){
            {(uint16_t)json_integer_value(json_array_get(dests, i))}, 0x70000};
    }
    t.source.n = (uint16_t)src;
    t.words = (uint32_t)words;
    t.dests = list;
    t.dest_count = (uint32_t)n;
    struct exchange_options options = {.plain = true, .list_order = true};
    struct exchange_phase phase;
    struct err err = {0};
    if (exchange_check(&t, &err) == 0) {
        return "accepted by the check";
    }
    return exchange_schedule_phase(&t, 1, &options, &r->a, &phase, &err) == 0
               ? "accepted by the scheduler"
               : NULL;
}

static void run_rejections(struct run *r, json_t *file) {
    struct group *g = group_open(r, "rejections");
    size_t i;
    json_t *c;
    json_array_foreach(json_object_get(file, "rejections"), i, c) {
        const char *reason = json_string_value(json_object_get(c, "reason"));
        verdict(g, reason != NULL ? reason : "?", check_rejection(r, c));
    }
}

static void run_numbering(struct run *r, json_t *file) {
    struct group *g = group_open(r, "numbering");
    json_t *map = json_object_get(json_object_get(file, "topology"), "physical_by_logical");
    size_t i;
    json_t *v;
    json_array_foreach(map, i, v) {
        bool same = i < TARGET_TILES && physical((json_int_t)i).n == json_integer_value(v) &&
                    target_logical(physical((json_int_t)i)).n == i;
        verdict(g, "tile", same ? NULL : arena_printf(&r->a, "logical tile %zu", i));
    }
}

static void run_routes(struct run *r, json_t *file) {
    struct group *g = group_open(r, "routes");
    size_t i;
    json_t *c;
    json_array_foreach(json_object_get(json_object_get(file, "routes"), "rows"), i, c) {
        json_int_t v[7] = {-1, -1, 0, 0, 0, 0, 0};
        const char *fault = "malformed route";
        if (json_unpack(c, "[I,I,I,I,I,I,I]", &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6]) ==
                0 &&
            is_tile(v[0]) && is_tile(v[1])) {
            struct physical_tile s = {(uint16_t)v[0]};
            struct physical_tile d = {(uint16_t)v[1]};
            int time = target_route_time(s, d);
            int other = target_route_time(s, target_partner(d));
            bool same = target_route_direction(s, d) == v[3] && time == v[4] &&
                        (time > other ? time : other) == v[5] &&
                        time + 1 + target_arrival_delay(d) == v[6];
            fault = same ? NULL : "another route";
        }
        verdict(g, arena_printf(&r->a, "%zu", i), fault);
    }
}

static int run_file(struct run *r, json_t *file) {
    run_numbering(r, file);
    run_routes(r, file);
    run_cases(r, file, "phases", "encoder phases", "fabric phases");
    run_cases(r, file, "schedules", "encoder schedules", "fabric schedules");
    run_cases(r, file, "base_switch", "encoder base_switch", "fabric base_switch");
    run_mutations(r, file);
    run_rejections(r, file);
    unsigned passed = 0;
    unsigned failed = 0;
    for (unsigned i = 0; i < r->groups; i++) {
        printf(
            "%-20s %5u passed %5u failed\n", r->group[i].name, r->group[i].passed,
            r->group[i].failed);
        passed += r->group[i].passed;
        failed += r->group[i].failed;
    }
    printf(
        "encoder rows: %u cases identical word for word, %u with other words\n", r->identical,
        r->equivalent);
    printf("%u passed, %u failed\n", passed, failed);
    return failed > 0 || passed == 0 ? 1 : 0;
}

int vectors_exchange(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: vectors exchange FILE\n");
        return 2;
    }
    json_error_t where;
    json_t *file = json_load_file(argv[1], JSON_REJECT_DUPLICATES, &where);
    if (file == NULL) {
        fprintf(stderr, "%s:%d: %s\n", argv[1], where.line, where.text);
        return 2;
    }
    struct run r = {0};
    arena_init(&r.a, ARENA_LIMIT);
    int status = 1;
    if (ARENA_RECOVER(&r.a)) {
        fprintf(stderr, "%s: needs more than %zu MiB\n", argv[1], ARENA_LIMIT >> 20);
    } else {
        status = run_file(&r, file);
    }
    arena_done(&r.a);
    json_decref(file);
    return status;
}
