/* See patterns.h. Times: level i exchanges at 1 + 2 i and computes at 2 + 2 i; a buffer lives from
 * its first use to its last, so what dies makes room as in any program. */
#include "tests/support/patterns.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "device/device.h"
#include "emit/emit.h"
#include "exchange/build.h"
#include "package/package.h"
#include "place/place.h"
#include "runtime/runtime.h"

/* ---- Building ------------------------------------------------------------------------------- */

static uint32_t exchange_time(const struct pattern *p) {
    return 2 * (uint32_t)p->levels.len - 1;
}

static void use(struct pattern *p, struct buffer_id b, uint32_t time) {
    struct lower_buffer *x = &p->buffers.data[b.n];
    x->born = time < x->born ? time : x->born;
    x->dies = time > x->dies ? time : x->dies;
}

static struct buffer_id new_buffer(struct pattern *p, uint32_t tile, uint32_t born, uint32_t step) {
    struct lower_buffer b = {
        .tile = {(uint16_t)tile},
        .kind = BUFFER_VALUE,
        .bytes = 32 * p->panels,
        .born = born,
        .step = step};
    vec_push(p->arena, &p->buffers, b);
    return (struct buffer_id){(uint32_t)p->buffers.len - 1};
}

static void add_matrix(struct pattern *p, uint32_t i, enum dtype dtype) {
    bool is_input = i == 0;
    p->graph.values[i] = (struct graph_value){
        .kind = is_input ? VALUE_INPUT : VALUE_NODE,
        .name = is_input ? "x" : "y",
        .dtype = dtype,
        .shape = {.rank = 2, .dim = {TARGET_TILES, 16 * p->panels}},
        .producer = NO_NODE,
        .is_output = !is_input};
    p->plan.matrices[i] = (struct plan_matrix){
        .kind = is_input ? PLAN_INPUT : PLAN_COMPUTED,
        .value = {i},
        .rows = TARGET_TILES,
        .columns = 16 * p->panels,
        .panels = p->panels,
        .unit = 16 * p->panels,
        .step = is_input ? PLAN_NONE : 0};
}

static void put_shard(struct pattern *p, uint32_t value, uint32_t tile, struct buffer_id b) {
    p->tg.shards[value * TARGET_TILES + tile] = (struct lower_shard){
        .buffer = b,
        .value = {value},
        .matrix_columns = 16 * p->panels,
        .unit = 16 * p->panels,
        .quads = 4,
        .row_first = tile,
        .row_last = tile + 1,
        .runs = {{0, p->panels}},
        .run_count = 1};
}

void pattern_init(
    struct pattern *p, struct arena *a, enum dtype dtype, uint32_t panels, uint32_t outputs) {
    *p = (struct pattern){.arena = a, .panels = panels, .drop = PATTERN_KEEP_ALL};
    uint32_t values = 1 + outputs;
    struct graph *g = &p->graph;
    g->values = ARENA_ARRAY(a, struct graph_value, values);
    g->value_count = values;
    g->inputs = ARENA_ARRAY(a, struct value_id, 1);
    g->input_count = 1;
    g->outputs = ARENA_ARRAY(a, struct value_id, outputs);
    g->output_count = outputs;
    p->plan.graph = g;
    p->plan.tiles = TARGET_TILES;
    p->plan.matrices = ARENA_ARRAY(a, struct plan_matrix, values);
    p->plan.matrix_count = values;
    p->plan.inputs = ARENA_ARRAY(a, uint32_t, 1);
    p->plan.outputs = ARENA_ARRAY(a, uint32_t, outputs);
    struct tile_graph *tg = &p->tg;
    tg->plan = &p->plan;
    tg->shard_count = values * TARGET_TILES;
    tg->shards = ARENA_ARRAY(a, struct lower_shard, tg->shard_count);
    tg->inputs = ARENA_ARRAY(a, struct lower_span, 1);
    tg->outputs = ARENA_ARRAY(a, struct lower_span, outputs);
    tg->inputs[0] = (struct lower_span){0, TARGET_TILES};
    add_matrix(p, 0, dtype);
    for (uint32_t i = 0; i < outputs; i++) {
        add_matrix(p, 1 + i, dtype);
        g->outputs[i] = (struct value_id){1 + i};
        p->plan.outputs[i] = 1 + i;
        tg->outputs[i] = (struct lower_span){(1 + i) * TARGET_TILES, TARGET_TILES};
    }
    tg->is_active = ARENA_ARRAY(a, bool, TARGET_TILES);
    tg->active_count = TARGET_TILES;
    for (uint32_t t = 0; t < TARGET_TILES; t++) {
        tg->is_active[t] = true;
        put_shard(p, 0, t, new_buffer(p, t, 0, PLAN_NONE));
    }
}

struct buffer_id pattern_input(const struct pattern *p, uint32_t tile) {
    return p->tg.shards[tile].buffer;
}

struct buffer_id pattern_buffer(struct pattern *p, uint32_t tile) {
    return new_buffer(p, tile, UINT32_MAX, 0);
}

void pattern_level(struct pattern *p) {
    struct lower_level level = {
        .move_first = (uint32_t)p->moves.len, .vertex_first = (uint32_t)p->vertices.len};
    vec_push(p->arena, &p->levels, level);
    p->levels.data[p->levels.len - 1].time = exchange_time(p);
}

void pattern_move(
    struct pattern *p, struct buffer_id source, const struct buffer_id *dests, uint32_t count) {
    struct lower_move m = {
        .source = source, .words = 8 * p->panels, .dest_first = (uint32_t)p->dests.len};
    use(p, source, exchange_time(p));
    for (uint32_t i = 0; i < count; i++) {
        use(p, dests[i], exchange_time(p)); /* of a dropped one too: places stay equal */
        if (p->delivered++ != p->drop) {
            vec_push(p->arena, &p->dests, (struct lower_dest){dests[i], 0});
            m.dest_count++;
        }
    }
    if (m.dest_count > 0) {
        vec_push(p->arena, &p->moves, m);
        p->levels.data[p->levels.len - 1].move_count++;
    }
}

struct buffer_id pattern_add(struct pattern *p, struct buffer_id a, struct buffer_id b) {
    struct lower_level *level = &p->levels.data[p->levels.len - 1];
    uint32_t time = exchange_time(p) + 1;
    struct logical_tile tile = p->buffers.data[a.n].tile;
    struct buffer_id out = pattern_buffer(p, tile.n);
    struct lower_vertex v = {
        .tile = tile,
        .level = (uint32_t)p->levels.len - 1,
        .time = time,
        .variant = {.id = KERNEL_ADD},
        .word_count = ADD_WORDS};
    v.words[ADD_A] = (struct lower_word){a, 0};
    v.words[ADD_B] = (struct lower_word){b, 0};
    v.words[ADD_OUT] = (struct lower_word){out, 0};
    v.words[ADD_N] = (struct lower_word){NO_BUFFER, p->panels};
    v.cycles = kernel_cycles(&v.variant, &p->panels);
    use(p, a, time);
    use(p, b, time);
    use(p, out, time);
    vec_push(p->arena, &p->vertices, v);
    level->vertex_count++;
    level->compute_cycles = v.cycles > level->compute_cycles ? v.cycles : level->compute_cycles;
    return out;
}

void pattern_output(struct pattern *p, uint32_t output, uint32_t tile, struct buffer_id b) {
    put_shard(p, 1 + output, tile, b);
}

static void finish(struct pattern *p) {
    struct tile_graph *tg = &p->tg;
    tg->end_time = 2 * (uint32_t)p->levels.len + 1;
    for (uint32_t i = TARGET_TILES; i < tg->shard_count; i++) {
        use(p, tg->shards[i].buffer, tg->end_time);
    }
    tg->buffers = p->buffers.data;
    tg->buffer_count = (uint32_t)p->buffers.len;
    tg->vertices = p->vertices.data;
    tg->vertex_count = (uint32_t)p->vertices.len;
    tg->moves = p->moves.data;
    tg->move_count = (uint32_t)p->moves.len;
    tg->dests = p->dests.data;
    tg->dest_count = (uint32_t)p->dests.len;
    tg->levels = p->levels.data;
    tg->level_count = (uint32_t)p->levels.len;
    for (uint32_t i = 0; i < tg->level_count; i++) {
        tg->exchange_phases += tg->levels[i].move_count > 0 ? 1 : 0;
        tg->compute_cycles += tg->levels[i].compute_cycles;
    }
}

/* ---- Stages --------------------------------------------------------------------------------- */

struct stages {
    struct emit_context c;
    struct emit_index index;
    struct emit_kernels kernels;
    struct placement *placement;
    struct exchange_plan *exchange;
    struct emit_text *text;
    struct emit_host *host;
    struct emit_layout *layout;
    struct emit_code *code;
};

static int
place_and_schedule(struct pattern *p, struct stages *s, const uint8_t *overflow, struct err *err) {
    struct place_options o = {
        .data_base = RT_DATA0, .overflow_elements = overflow, .literal_limit = RT_LOADER_IMAGE_END};
    int rc = place_build(&p->tg, &o, p->arena, &s->placement, err);
    rc = rc == 0 ? place_verify(s->placement, err) : rc;
    rc = rc == 0 ? exchange_build(s->placement, p->arena, &s->exchange, err) : rc;
    rc = rc == 0 ? exchange_plan_verify(s->exchange, p->arena, err) : rc;
    s->c =
        (struct emit_context){&s->index, &p->tg, s->placement, s->exchange, s->text, s->host, NULL};
    return rc == 0 ? emit_layout_build(&s->c, p->arena, &s->layout, err) : rc;
}

/* Code may need elements of data: then everything is placed again without them, until it fits. */
static int settle(struct pattern *p, struct stages *s, struct err *err) {
    uint8_t *overflow = ARENA_ARRAY(p->arena, uint8_t, TARGET_TILES);
    for (bool grew = true; grew;) {
        int rc = place_and_schedule(p, s, overflow, err);
        if (rc != 0) {
            return rc;
        }
        grew = false;
        for (uint32_t t = 0; t < TARGET_TILES; t++) {
            grew = grew || s->layout->overflow_elements[t] > overflow[t];
            overflow[t] = s->layout->overflow_elements[t] > overflow[t]
                              ? s->layout->overflow_elements[t]
                              : overflow[t];
        }
    }
    return 0;
}

static int make_text(struct pattern *p, struct stages *s, struct err *err) {
    struct asm_object *runtime;
    int rc = runtime_assemble(p->arena, &runtime, err);
    if (rc != 0) {
        return rc;
    }
    emit_plan_kernels(&p->tg, p->arena, &s->kernels);
    rc = emit_compile_kernels(&s->kernels, p->arena, err);
    rc = rc == 0 ? emit_link(runtime, &s->kernels, p->arena, &s->text, err) : rc;
    emit_index_build(&p->tg, p->arena, &s->index);
    return rc == 0 ? emit_host_build(&p->tg, NULL, p->arena, &s->host, err) : rc;
}

static void
take_figures(const struct pattern *p, const struct exchange_plan *x, struct pattern_figures *ret) {
    ret->phases = x->phase_count;
    ret->horizon = x->horizon_cycles;
    ret->max_row_bytes = x->max_row_bytes;
    ret->compute_cycles = p->tg.compute_cycles;
    for (uint32_t i = 0; i < p->tg.move_count; i++) {
        ret->moved_words += (uint64_t)p->tg.moves[i].words * p->tg.moves[i].dest_count;
    }
    for (uint32_t i = 0; i < x->level_count; i++) {
        ret->lower_bound += x->levels[i].phase.lower_bound;
        ret->latency_bound += x->levels[i].phase.latency_bound;
    }
}

int pattern_compile(
    struct pattern *p, const char *path, struct pattern_figures *ret, struct err *err) {
    static const char none[] = "0000000000000000000000000000000000000000000000000000000000000000";
    struct emit_names names = {none, none, "{}", "{}"};
    struct package *package = NULL;
    struct stages s = {0};
    finish(p);
    *ret = (struct pattern_figures){0};
    int rc = p->drop == PATTERN_KEEP_ALL ? lower_verify(&p->tg, p->arena, err) : 0;
    rc = rc == 0 ? make_text(p, &s, err) : rc;
    rc = rc == 0 ? settle(p, &s, err) : rc;
    rc = rc == 0 ? emit_code_build(&s.c, s.layout, p->arena, &s.code, err) : rc;
    rc = rc == 0 ? emit_verify(&s.c, s.layout, s.code, err) : rc;
    rc = rc == 0 ? emit_images(&s.c, s.layout, s.code, &names, p->arena, &package, err) : rc;
    rc = rc == 0 ? package_verify(package, err) : rc;
    rc = rc == 0 ? package_write(package, path, &ret->digest, err) : rc;
    if (rc == 0) {
        take_figures(p, s.exchange, ret);
    }
    return rc;
}

/* ---- Running -------------------------------------------------------------------------------- */

struct session {
    const struct sim_options *sim;
    struct ipu_device_ops ops;
    struct pattern_result *result;
    uint32_t runs;
    bool is_short; /* memory ran out */
};

static int open_sim(const char *spec, void *arg, struct ipu_device_ops *ret, struct err *err) {
    struct session *s = arg;
    (void)spec;
    int rc = sim_device_open(s->sim, ret, err);
    s->ops = rc == 0 ? *ret : s->ops;
    return rc;
}

static int keep_output(const struct device_output *o, void *arg) {
    struct session *s = arg;
    struct pattern_result *r = s->result;
    if (r->outputs == NULL) {
        r->output_bytes = o->output_bytes[0];
        r->outputs = calloc(s->runs, o->output_count * o->output_bytes[0]);
        r->cycles = o->cycles;
    }
    if (r->outputs == NULL) {
        s->is_short = true;
        return 1;
    }
    for (size_t i = 0; i < o->output_count; i++) {
        memcpy(
            r->outputs + (o->run * o->output_count + i) * r->output_bytes, o->outputs[i],
            r->output_bytes);
    }
    return 0;
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void package_cleanup(struct package **p) {
    package_free(*p);
}

static void device_cleanup(struct device **d) {
    device_close(*d);
}

int pattern_run(
    const char *path, const struct digest *digest, const char *folder,
    const struct sim_options *sim, const uint8_t *input, uint32_t runs, struct pattern_result *ret,
    struct err *err) {
    *ret = (struct pattern_result){0};
    CLEANUP(package_cleanup) struct package *package = NULL;
    CLEANUP(device_cleanup) struct device *device = NULL;
    struct session s = {.sim = sim, .result = ret, .runs = runs};
    char lock[256];
    snprintf(lock, sizeof lock, "%s/lock%ld", folder, (long)getpid());
    struct device_options options = {
        .spec = "sim", .lock_path = lock, .no_wait = true, .open_ops = open_sim, .open_arg = &s};
    struct device_run_report report;
    bool loaded;
    int rc = package_open(path, digest, &package, NULL, err);
    rc = rc == 0 ? device_open(&options, &device, err) : rc;
    unlink(lock);
    double start = seconds();
    rc = rc == 0 ? device_load(device, package, NULL, 0, digest, NULL, NULL, &loaded, err) : rc;
    double load_end = seconds();
    rc = rc == 0 ? device_run(device, &input, runs, keep_output, &s, 0, &report, err) : rc;
    ret->load_s = load_end - start;
    ret->run_s = seconds() - load_end;
    if (device != NULL) {
        sim_device_counters(&s.ops, &ret->counters);
    }
    return s.is_short ? err_set(err, ERR_NOMEM, "outputs of %u runs", runs) : rc;
}

void pattern_result_done(struct pattern_result *r) {
    free(r->outputs);
    r->outputs = NULL;
}
