/* What the host moves: parameters in `initialize`, inputs and outputs in `run`, at most one page of
 * 4096 bytes a tile and phase. Every tile's bytes fill its pages in order; page i of a tile travels
 * in phase i of its stream. The three profile words of every active tile go into the last output
 * phase; where a tile's page is full there, one more phase is made for all of them. Its marks, if
 * it has any, fill what is left of its pages, and more pages only after that. */
#include "emit/emit_internal.h"

struct host_builder {
    const struct tile_graph *tg;
    struct arena *arena;
    struct emit_host *h;
    struct slice_target target;
    uint32_t *parameter_binding; /* by value: index of its binding, UINT32_MAX */
};

static struct emit_page *page_at(struct host_builder *b, struct emit_pages *p, uint32_t index) {
    while (p->count <= index) {
        if (p->count == p->cap) {
            uint32_t cap = p->cap < 2 ? 2 : 2 * p->cap;
            struct emit_page *grown = ARENA_ARRAY(b->arena, struct emit_page, cap);
            for (uint32_t i = 0; i < p->count; i++) {
                grown[i] = p->pages[i];
            }
            p->pages = grown;
            p->cap = cap;
        }
        p->count++;
    }
    return &p->pages[index];
}

static void add_piece(struct host_builder *b, struct emit_page *page, struct emit_piece piece) {
    if (page->piece_count == page->piece_cap) {
        uint32_t cap = page->piece_cap < 2 ? 2 : 2 * page->piece_cap;
        struct emit_piece *grown = ARENA_ARRAY(b->arena, struct emit_piece, cap);
        for (uint32_t i = 0; i < page->piece_count; i++) {
            grown[i] = page->pieces[i];
        }
        page->pieces = grown;
        page->piece_cap = cap;
    }
    piece.page_offset = page->bytes;
    page->pieces[page->piece_count++] = piece;
    page->bytes += piece.bytes;
}

/* Streams a shard's buffer through the pages of its tile. Phase numbers of slices are those of the
 * stream until number_phases(). */
static void add_shard(
    struct host_builder *b, const struct lower_shard *s, enum emit_stream stream,
    uint32_t binding) {
    const struct lower_buffer *x = lower_buffer(b->tg, s->buffer);
    struct emit_pages *pages = &b->h->tiles[x->tile.n][stream];
    uint32_t granule = emit_shard_granule(s, x);
    b->target.binding = binding;
    b->target.tile = target_physical(x->tile);
    uint32_t done = 0, bytes = lower_slot_bytes(x);
    uint32_t index = pages->count > 0 ? pages->count - 1 : 0;
    while (done < bytes) {
        struct emit_page *page = page_at(b, pages, index);
        uint32_t room = (EMIT_PAGE_BYTES - page->bytes) & ~(granule - 1);
        uint32_t take = bytes - done < room ? bytes - done : room;
        if (take == 0) {
            index++;
            continue;
        }
        b->target.phase = index * STREAMS + stream;
        emit_shard_slices(&b->target, b->tg, s, done, done + take, page->bytes);
        add_piece(
            b, page,
            (struct emit_piece){
                .buffer = s->buffer, .offset = s->slot * bytes + done, .bytes = take});
        b->h->bytes[stream] += take;
        done += take;
    }
}

static void make_bindings(struct host_builder *b) {
    const struct graph *g = b->tg->plan->graph;
    struct emit_host *h = b->h;
    uint32_t count = g->input_count + g->output_count + g->parameter_count + 2;
    h->bindings = ARENA_ARRAY(b->arena, struct package_binding, count);
    b->parameter_binding = ARENA_ARRAY(b->arena, uint32_t, g->value_count);
    const struct value_id *lists[] = {g->inputs, g->outputs, g->parameters};
    const uint32_t counts[] = {g->input_count, g->output_count, g->parameter_count};
    for (int role = PACKAGE_INPUT; role <= PACKAGE_PARAMETER; role++) {
        for (uint32_t i = 0; i < counts[role]; i++) {
            const struct graph_value *v = &g->values[lists[role][i].n];
            if (role == PACKAGE_PARAMETER) {
                b->parameter_binding[lists[role][i].n] = h->binding_count;
            }
            h->bindings[h->binding_count++] = (struct package_binding){
                .role = (enum package_role)role,
                .ordinal = i,
                .dtype = v->dtype,
                .shape = v->shape};
        }
    }
}

static void find_participants(struct host_builder *b) {
    struct emit_host *h = b->h;
    h->participants = ARENA_ARRAY(b->arena, uint16_t, b->tg->active_count);
    for (uint16_t t = 0; t < TARGET_TILES; t++) {
        if (b->tg->is_active[target_logical((struct physical_tile){t}).n]) {
            h->participants[h->participant_count++] = t;
        }
    }
}

static void add_profile(struct host_builder *b) {
    struct emit_host *h = b->h;
    uint32_t binding = h->binding_count++;
    h->bindings[binding] = (struct package_binding){
        .role = PACKAGE_PROFILE,
        .dtype = DTYPE_UINT32,
        .shape = {.rank = 2, .dim = {h->participant_count, PACKAGE_PROFILE_WORDS}}};
    uint32_t last = 0;
    for (uint32_t t = 0; t < TARGET_TILES; t++) {
        uint32_t pages = h->tiles[t][STREAM_OUTPUT].count;
        last = pages > last ? pages : last;
    }
    last = last > 0 ? last - 1 : 0;
    for (uint32_t t = 0; t < TARGET_TILES; t++) {
        const struct emit_pages *p = &h->tiles[t][STREAM_OUTPUT];
        if (p->count == last + 1 &&
            p->pages[last].bytes + 4 * PACKAGE_PROFILE_WORDS > EMIT_PAGE_BYTES) {
            last++;
            break;
        }
    }
    for (uint32_t rank = 0; rank < h->participant_count; rank++) {
        struct physical_tile tile = {h->participants[rank]};
        struct emit_page *page = page_at(b, &h->tiles[target_logical(tile).n][STREAM_OUTPUT], last);
        b->target.binding = binding;
        b->target.tile = tile;
        b->target.phase = last * STREAMS + STREAM_OUTPUT;
        struct package_slice s = {
            .tensor_offset = (uint64_t)rank * PACKAGE_PROFILE_WORDS,
            .page_offset = page->bytes,
            .extent = {PACKAGE_PROFILE_WORDS},
            .tensor_stride = {1},
            .page_stride = {4}};
        emit_push_slice(&b->target, &s);
        add_piece(
            b, page,
            (struct emit_piece){
                .buffer = NO_BUFFER, .offset = RT_STATE, .bytes = 4 * PACKAGE_PROFILE_WORDS});
    }
}

/* Binding (PROFILE, 1): the words of all tiles one after another, in rank order. */
static void add_marks(struct host_builder *b, const struct emit_samples *samples) {
    struct emit_host *h = b->h;
    uint64_t total = 0;
    for (uint32_t rank = 0; samples != NULL && rank < h->participant_count; rank++) {
        total += samples->words[target_logical((struct physical_tile){h->participants[rank]}).n];
    }
    if (total == 0) {
        return;
    }
    uint64_t offset = 0;
    b->target.binding = h->binding_count;
    h->bindings[h->binding_count++] = (struct package_binding){
        .role = PACKAGE_PROFILE,
        .ordinal = 1,
        .dtype = DTYPE_UINT32,
        .shape = {.rank = 1, .dim = {(int64_t)total}}};
    for (uint32_t rank = 0; rank < h->participant_count; rank++) {
        struct physical_tile tile = {h->participants[rank]};
        uint32_t t = target_logical(tile).n;
        struct emit_pages *pages = &h->tiles[t][STREAM_OUTPUT];
        uint32_t index = pages->count - 1; /* with the words of add_profile() */
        for (uint32_t done = 0; done < samples->words[t];) {
            struct emit_page *page = page_at(b, pages, index);
            uint32_t left = samples->words[t] - done, room = (EMIT_PAGE_BYTES - page->bytes) / 4;
            uint32_t take = left < room ? left : room;
            if (take == 0) {
                index++;
                continue;
            }
            struct package_slice s = {
                .tensor_offset = offset + done,
                .page_offset = page->bytes,
                .extent = {take},
                .tensor_stride = {1},
                .page_stride = {4}};
            b->target.tile = tile;
            b->target.phase = index * STREAMS + STREAM_OUTPUT;
            emit_push_slice(&b->target, &s);
            add_piece(
                b, page,
                (struct emit_piece){
                    .buffer = NO_BUFFER,
                    .offset = emit_marks_addr(samples, t) + 4 * done,
                    .bytes = 4 * take});
            done += take;
        }
        offset += samples->words[t];
    }
}

static void make_grants(struct host_builder *b, struct emit_phase *p) {
    bool *moves = ARENA_ARRAY(b->arena, bool, TARGET_TILES);
    p->grants = ARENA_ARRAY(b->arena, struct emit_grant, 64);
    for (uint16_t t = 0; t < TARGET_TILES; t++) {
        moves[t] = emit_phase_page(b->h, target_logical((struct physical_tile){t}).n, p) != NULL;
    }
    for (uint16_t t = 0; t < 64; t++) {
        struct physical_tile owner = {t};
        if (target_host_owner(owner).n == t) {
            runtime_grant(owner, moves, p->grants[t].words);
        }
    }
}

static void number_phases(struct host_builder *b) {
    struct emit_host *h = b->h;
    uint32_t first[STREAMS];
    for (int s = 0; s < STREAMS; s++) {
        for (uint32_t t = 0; t < TARGET_TILES; t++) {
            uint32_t pages = h->tiles[t][s].count;
            h->stream_phases[s] = pages > h->stream_phases[s] ? pages : h->stream_phases[s];
        }
        first[s] = h->phase_count;
        h->phase_count += h->stream_phases[s];
    }
    h->phases = ARENA_ARRAY(b->arena, struct emit_phase, h->phase_count);
    for (int s = 0; s < STREAMS; s++) {
        for (uint32_t i = 0; i < h->stream_phases[s]; i++) {
            struct emit_phase *p = &h->phases[first[s] + i];
            p->stream = (enum emit_stream)s;
            p->index = i;
            make_grants(b, p);
        }
    }
    for (uint32_t i = 0; i < h->slice_count; i++) {
        struct package_slice *s = &h->slices[i];
        s->phase = first[s->phase % STREAMS] + s->phase / STREAMS;
    }
}

const struct emit_page *
emit_phase_page(const struct emit_host *h, uint32_t logical, const struct emit_phase *p) {
    const struct emit_pages *pages = &h->tiles[logical][p->stream];
    return p->index < pages->count && pages->pages[p->index].bytes > 0 ? &pages->pages[p->index]
                                                                       : NULL;
}

const struct emit_grant *
emit_phase_grant(const struct emit_host *h, uint32_t logical, const struct emit_phase *p) {
    struct physical_tile tile = target_physical((struct logical_tile){(uint16_t)logical});
    if (target_host_owner(tile).n != tile.n) {
        return NULL;
    }
    const struct emit_grant *g = &p->grants[tile.n];
    return g->words[0] != 0 || g->words[1] != 0 ? g : NULL;
}

enum emit_role emit_role(const struct emit_context *c, uint32_t logical) {
    if (c->tg->is_active[logical]) {
        return ROLE_ACTIVE;
    }
    for (uint32_t i = 0; i < c->host->phase_count; i++) {
        if (emit_phase_grant(c->host, logical, &c->host->phases[i]) != NULL) {
            return ROLE_OWNER;
        }
    }
    for (uint32_t level = 0; level < c->exchange->level_count; level++) {
        if (exchange_plan_row(c->exchange, level, (struct logical_tile){(uint16_t)logical})) {
            return ROLE_LENDER;
        }
    }
    return ROLE_IDLE;
}

int emit_host_build(
    const struct tile_graph *tg, const struct emit_samples *samples, struct arena *a,
    struct emit_host **ret, struct err *err) {
    struct emit_host *h = ARENA_NEW(a, struct emit_host);
    struct host_builder b = {.tg = tg, .arena = a, .h = h, .target = {.host = h, .arena = a}};
    h->tiles = (struct emit_pages(*)[STREAMS])ARENA_ARRAY(
        a, struct emit_pages, (size_t)TARGET_TILES * STREAMS);
    make_bindings(&b);
    find_participants(&b);
    const struct graph *g = tg->plan->graph;
    for (uint32_t i = tg->params.first; i < tg->params.first + tg->params.count; i++) {
        const struct lower_shard *s = &tg->shards[i];
        if (!lower_buffer(tg, s->buffer)->is_literal) {
            add_shard(&b, s, STREAM_INITIALIZE, b.parameter_binding[s->value.n]);
        }
    }
    for (uint32_t io = 0; io < g->input_count + g->output_count; io++) {
        bool is_input = io < g->input_count;
        struct lower_span span = is_input ? tg->inputs[io] : tg->outputs[io - g->input_count];
        for (uint32_t i = span.first; i < span.first + span.count; i++) {
            add_shard(&b, &tg->shards[i], is_input ? STREAM_INPUT : STREAM_OUTPUT, io);
        }
    }
    add_profile(&b);
    add_marks(&b, samples);
    number_phases(&b);
    if (h->phase_count > PACKAGE_MAX_PHASES || h->slice_count > PACKAGE_MAX_SLICES) {
        return err_set(
            err, ERR_DOES_NOT_FIT, "host plan: %u phases and %u slices, at most %u and %u",
            h->phase_count, h->slice_count, PACKAGE_MAX_PHASES, PACKAGE_MAX_SLICES);
    }
    *ret = h;
    return 0;
}
