/* `vectors isa FILE [PREFIX]`: one JSON object a line, each a few instructions with the state
 * before and everything that changed after. What a vector does not name must be unchanged: all
 * registers of the context, accumulators, coefficients, control registers and the whole memory
 * are compared. Prints a line a family, the first failing ids with the reason, and the total as
 * "N passed, N failed". With PREFIX only ids that start with it are run. */
#include "vectors.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "isa/isa.h"
#include "sim/sim.h"
#include "target/target.h"

#define CSRS        512
#define CTXT_STS    0x72
#define VERTEX_BASE 2
#define SHOWN       40 /* failing ids listed */
#define FAMILIES    1024

/* Everything of one context that a vector can name. */
struct state {
    uint64_t pc;
    uint64_t m[16], a[16], acc[32], cwei[64];
    uint64_t csr[CSRS]; /* those with a name in the unit */
};

struct run {
    struct sim_tile *tile;
    uint8_t *expected_mem, *mem; /* TARGET_MEM_SIZE each */
    int context;
    enum isa_unit unit;
    char why[200]; /* first difference of the vector at hand, empty = none */
};

struct family {
    char name[64];
    unsigned passed, failed;
};

static void differ(struct run *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void differ(struct run *r, const char *format, ...) {
    va_list args;

    if (r->why[0] == '\0') {
        va_start(args, format);
        vsnprintf(r->why, sizeof r->why, format, args);
        va_end(args);
    }
}

static uint64_t number(const json_t *v) {
    return json_is_string(v) ? strtoull(json_string_value(v), NULL, 0)
                             : (uint64_t)json_integer_value(v);
}

/* Which control registers the vectors speak of: of the supervisor's, four (the others depend on
 * more than the instruction); of a worker's, all but the counters and the pc. */
static bool csr_is_compared(int n, enum isa_unit unit) {
    const char *name = isa_csr_name(n, unit);

    if (name == NULL || strncmp(name, "COUNT_", 6) == 0 || strcmp(name, "PC") == 0) {
        return false;
    }
    return unit == ISA_WORKER || strcmp(name, "FP_ICTL") == 0 || strcmp(name, "FP_INFMT") == 0 ||
           strcmp(name, "FP_ISCL") == 0 || strcmp(name, "CCCSLOAD") == 0;
}

static void take_file(struct run *r, char file, uint64_t *to, int n) {
    for (int i = 0; i < n; i++) {
        if (sim_tile_get(r->tile, r->context, file, i, &to[i], NULL) != 0) {
            differ(r, "register %c%d cannot be read", file, i);
        }
    }
}

static void take_state(struct run *r, struct state *s) {
    memset(s, 0, sizeof *s);
    take_file(r, 'p', &s->pc, 1);
    take_file(r, 'm', s->m, 16);
    take_file(r, 'a', s->a, 16);
    take_file(r, 'c', s->acc, 32);
    take_file(r, 'w', s->cwei, 64);
    for (int i = 0; i < CSRS; i++) {
        if (csr_is_compared(i, r->unit) &&
            sim_tile_get(r->tile, r->context, 's', i, &s->csr[i], NULL) != 0) {
            differ(r, "%s cannot be read", isa_csr_name(i, r->unit));
        }
    }
}

/* ---- before ---------------------------------------------------------------------------------- */

static void set_file(struct run *r, char file, const json_t *values) {
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)values, key, v) {
        int n = file == 's' ? isa_csr_number(key, r->unit) : atoi(key);
        if (sim_tile_set(r->tile, r->context, file, n, number(v), NULL) != 0) {
            differ(r, "before: %c %s cannot be set", file, key);
        }
    }
}

/* Bytes into the image; false when they do not lie in tile memory or are no bytes. */
static bool put_bytes(uint8_t *image, uint32_t addr, const char *hex) {
    for (; hex != NULL && hex[0] != '\0' && hex[1] != '\0'; hex += 2, addr++) {
        char two[3] = {hex[0], hex[1], '\0'};
        if (addr - TARGET_MEM_BASE >= TARGET_MEM_SIZE) {
            return false;
        }
        image[addr - TARGET_MEM_BASE] = (uint8_t)strtoul(two, NULL, 16);
    }
    return hex != NULL && hex[0] == '\0';
}

static void put_mem(struct run *r, const json_t *mem) {
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)mem, key, v) {
        if (!put_bytes(r->expected_mem, (uint32_t)strtoul(key, NULL, 0), json_string_value(v))) {
            differ(r, "memory at %s is outside the tile or no bytes", key);
        }
    }
}

/* Memory: zeros, the named bytes, the code. Only pages that hold something are written. */
static void set_mem(struct run *r, const json_t *vector, const json_t *before, uint32_t pc) {
    const json_t *words = json_object_get(vector, "words");
    static const uint8_t zeros[4096];

    memset(r->expected_mem, 0, TARGET_MEM_SIZE);
    put_mem(r, json_object_get(before, "mem"));
    for (size_t i = 0; i < json_array_size(words); i++) {
        uint32_t w = (uint32_t)number(json_array_get(words, i));
        uint32_t at = pc - TARGET_MEM_BASE + 4 * (uint32_t)i;
        if (at > TARGET_MEM_SIZE - 4) {
            break; /* code that runs off the end of memory */
        }
        for (int b = 0; b < 4; b++) {
            r->expected_mem[at + (uint32_t)b] = (uint8_t)(w >> 8 * b);
        }
    }
    sim_tile_zero(r->tile);
    for (uint32_t at = 0; at < TARGET_MEM_SIZE; at += 4096) {
        if (memcmp(r->expected_mem + at, zeros, 4096) != 0 &&
            sim_tile_write(r->tile, TARGET_MEM_BASE + at, r->expected_mem + at, 4096, NULL) != 0) {
            differ(r, "memory cannot be written");
        }
    }
}

/* ---- after ----------------------------------------------------------------------------------- */

static void expect_file(struct run *r, const json_t *values, char file, uint64_t *to) {
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)values, key, v) {
        int n = file == 's' ? isa_csr_number(key, r->unit) : atoi(key);
        if (n < 0 || n >= CSRS) {
            differ(r, "after: unknown register %s", key);
        } else {
            to[n] = number(v);
        }
    }
}

static bool is_ignored(const json_t *vector, const char *name) {
    const json_t *list = json_object_get(vector, "ignore");

    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *v = json_string_value(json_array_get(list, i));
        if (v != NULL && strcmp(v, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Distance of two patterns on the number line of a sign-and-magnitude format. */
static unsigned long ulps(uint32_t x, uint32_t y, uint32_t sign) {
    long a = (x & sign) != 0 ? -(long)(x & (sign - 1)) : (long)x;
    long b = (y & sign) != 0 ? -(long)(y & (sign - 1)) : (long)y;

    return (unsigned long)(a > b ? a - b : b - a);
}

static bool is_near(const json_t *vector, const char *key, uint32_t got, uint32_t want) {
    const json_t *after = json_object_get(json_object_get(vector, "after"), "a");
    const char *fmt = json_string_value(json_object_get(vector, "fmt"));
    unsigned long limit = (unsigned long)json_integer_value(json_object_get(vector, "ulp"));

    if (limit == 0 || fmt == NULL || json_object_get(after, key) == NULL) {
        return got == want;
    }
    if (strcmp(fmt, "f32") == 0) {
        return ulps(got, want, 0x80000000u) <= limit;
    }
    return ulps(got & 0xFFFF, want & 0xFFFF, 0x8000) <= limit &&
           ulps(got >> 16, want >> 16, 0x8000) <= limit;
}

static void compare_file(
    struct run *r, const json_t *vector, char file, const uint64_t *got, const uint64_t *want,
    int n) {
    for (int i = 0; i < n; i++) {
        char name[32], key[12];
        const json_t *mask;
        uint64_t bits = ~(uint64_t)0;

        snprintf(key, sizeof key, "%d", i);
        snprintf(name, sizeof name, "%c%d", file, i);
        if (file == 's') {
            const char *csr = isa_csr_name(i, r->unit);
            snprintf(name, sizeof name, "%s", csr != NULL ? csr : "");
        }
        mask = json_object_get(json_object_get(vector, "mask"), name);
        if (mask != NULL) {
            bits = number(mask);
        }
        if ((got[i] & bits) == (want[i] & bits) || is_ignored(vector, name)) {
            continue;
        }
        if (file != 'a' || !is_near(vector, key, (uint32_t)got[i], (uint32_t)want[i])) {
            differ(
                r, "%s is 0x%llx, expected 0x%llx", name, (unsigned long long)got[i],
                (unsigned long long)want[i]);
        }
    }
}

static void compare_mem(struct run *r, const json_t *vector) {
    if (is_ignored(vector, "mem")) {
        return;
    }
    if (sim_tile_read(r->tile, TARGET_MEM_BASE, r->mem, TARGET_MEM_SIZE, NULL) != 0) {
        differ(r, "memory cannot be read");
        return;
    }
    for (uint32_t i = 0; memcmp(r->mem, r->expected_mem, TARGET_MEM_SIZE) != 0; i++) {
        if (r->mem[i] != r->expected_mem[i]) {
            differ(
                r, "byte 0x%x is %02x, expected %02x", TARGET_MEM_BASE + i, r->mem[i],
                r->expected_mem[i]);
            return;
        }
    }
}

/* Workers started: active ones in order, each with its pc and vertex base. */
static void compare_launch(struct run *r, const json_t *launch) {
    size_t n = 0;

    for (int w = SIM_WORKER0; w < SIM_WORKER0 + TARGET_WORKERS; w++) {
        uint64_t states = 0, pc = 0, base = 0;
        const json_t *want;

        sim_tile_get(r->tile, SIM_SUPERVISOR, 's', CTXT_STS, &states, NULL);
        if ((states >> 2 * w & 3) != 1) {
            continue;
        }
        sim_tile_get(r->tile, w, 'p', 0, &pc, NULL);
        sim_tile_get(r->tile, w, 's', VERTEX_BASE, &base, NULL);
        want = json_array_get(launch, n++);
        if (want != NULL && (pc != number(json_object_get(want, "pc")) ||
                             base != number(json_object_get(want, "VERTEX_BASE")))) {
            differ(
                r, "worker %d starts at 0x%llx with 0x%llx", w - 1, (unsigned long long)pc,
                (unsigned long long)base);
        }
    }
    if (n != json_array_size(launch)) {
        differ(r, "%zu workers started, expected %zu", n, json_array_size(launch));
    }
}

static int etype_of(const char *name) {
    static const char *const names[] = {"RBRK",       "PBRK0",      "PBRK1",  "BOS",
                                        "FP",         "CONFLICT",   "EXCONF", "INVALID_ADDR",
                                        "INVALID_OP", "INVALID_PC", "DBRK",   "INVALID_INSTR"};

    for (int i = 0; i < (int)(sizeof names / sizeof names[0]); i++) {
        if (strcmp(names[i], name) == 0) {
            return i + 1;
        }
    }
    return -1;
}

static void compare_stop(struct run *r, const json_t *vector, const struct sim_stopped *stop) {
    const char *name = json_string_value(json_object_get(vector, "exception"));
    uint64_t steps = (uint64_t)json_integer_value(json_object_get(vector, "steps"));
    int want = name == NULL ? 0 : etype_of(name);
    int got = stop->why == SIM_STOP_EXCEPTION ? stop->etype : 0;

    if (got != want) {
        differ(r, "exception type %d, expected %d", got, want);
    }
    if (stop->groups != (want != 0 ? steps - 1 : steps)) {
        differ(r, "%llu groups retired", (unsigned long long)stop->groups);
    }
}

/* ---- a vector -------------------------------------------------------------------------------- */

/* Unit, context and a fresh tile in the state before; false when there is no memory. */
static bool set_up(struct run *r, const json_t *vector, const json_t *before) {
    const json_t *csr = json_object_get(before, "csr");
    uint32_t pc = (uint32_t)number(json_object_get(before, "pc"));
    const char *unit = json_string_value(json_object_get(vector, "unit"));

    r->unit = unit != NULL && strcmp(unit, "supervisor") == 0 ? ISA_SUPERVISOR : ISA_WORKER;
    r->context = SIM_SUPERVISOR;
    if (r->unit == ISA_WORKER) {
        r->context = SIM_WORKER0 + (int)(number(json_object_get(csr, "WSR")) & 7);
    }
    r->tile = sim_tile_new(NULL);
    if (r->tile == NULL) {
        differ(r, "out of memory");
        return false;
    }
    set_mem(r, vector, before, pc);
    sim_tile_set(r->tile, r->context, 'p', 0, pc, NULL);
    set_file(r, 'm', json_object_get(before, "m"));
    set_file(r, 'a', json_object_get(before, "a"));
    set_file(r, 'c', json_object_get(before, "acc"));
    set_file(r, 'w', json_object_get(before, "cwei"));
    set_file(r, 's', csr);
    return true;
}

static void expect(struct run *r, const json_t *after, struct state *want) {
    take_state(r, want);
    expect_file(r, json_object_get(after, "m"), 'm', want->m);
    expect_file(r, json_object_get(after, "a"), 'a', want->a);
    expect_file(r, json_object_get(after, "acc"), 'c', want->acc);
    expect_file(r, json_object_get(after, "cwei"), 'w', want->cwei);
    expect_file(r, json_object_get(after, "csr"), 's', want->csr);
    put_mem(r, json_object_get(after, "mem"));
}

static void
compare(struct run *r, const json_t *vector, const json_t *after, const struct state *want) {
    const json_t *v = json_object_get(after, "pc");
    struct state got;

    take_state(r, &got);
    if (v != NULL && !is_ignored(vector, "pc") && got.pc != number(v)) {
        differ(
            r, "pc is 0x%llx, expected 0x%llx", (unsigned long long)got.pc,
            (unsigned long long)number(v));
    }
    compare_file(r, vector, 'm', got.m, want->m, 16);
    compare_file(r, vector, 'a', got.a, want->a, 16);
    compare_file(r, vector, 'c', got.acc, want->acc, 32);
    compare_file(r, vector, 'w', got.cwei, want->cwei, 64);
    compare_file(r, vector, 's', got.csr, want->csr, CSRS);
    compare_mem(r, vector);
    compare_launch(r, json_object_get(after, "launch"));
    v = json_object_get(after, "exit");
    if (v != NULL && sim_tile_exit_status(r->tile, r->context) != json_is_true(v)) {
        differ(r, "exit status %d", sim_tile_exit_status(r->tile, r->context));
    }
}

static void run_vector(struct run *r, const json_t *vector) {
    const json_t *after = json_object_get(vector, "after");
    json_int_t steps = json_integer_value(json_object_get(vector, "steps"));
    struct state want;
    struct sim_stopped stop;

    r->why[0] = '\0';
    if (!json_is_array(json_object_get(vector, "words")) || !json_is_object(after) || steps < 1 ||
        !json_is_object(json_object_get(vector, "before"))) {
        differ(r, "words, before, after or steps is missing");
        return;
    }
    if (set_up(r, vector, json_object_get(vector, "before"))) {
        expect(r, after, &want);
        sim_tile_step(r->tile, r->context, (uint64_t)steps, &stop);
        compare_stop(r, vector, &stop);
        compare(r, vector, after, &want);
        sim_tile_free(r->tile);
    }
}

/* ---- the file -------------------------------------------------------------------------------- */

struct tally {
    struct family family[FAMILIES];
    size_t families;
    unsigned passed, failed;
};

/* The family of an id: up to the slash. Beyond the limit the last one takes all. */
static struct family *family_of(struct tally *t, const char *id) {
    size_t length = strcspn(id, "/");
    struct family *f;

    for (size_t i = t->families; i > 0; i--) {
        f = &t->family[i - 1];
        if (strncmp(f->name, id, length) == 0 && f->name[length] == '\0') {
            return f;
        }
    }
    if (t->families == FAMILIES || length >= sizeof t->family[0].name) {
        return &t->family[FAMILIES - 1];
    }
    f = &t->family[t->families++];
    snprintf(f->name, sizeof f->name, "%.*s", (int)length, id);
    return f;
}

static void run_line(struct run *r, struct tally *t, const char *line, const char *prefix) {
    json_error_t error;
    json_t *vector = json_loads(line, JSON_REJECT_DUPLICATES, &error);
    const char *id = json_string_value(json_object_get(vector, "id"));

    if (id == NULL) {
        printf("FAILED: %s: %.60s\n", vector == NULL ? error.text : "no id", line);
        t->failed++;
    } else if (strncmp(id, prefix, strlen(prefix)) == 0) {
        struct family *f = family_of(t, id);

        run_vector(r, vector);
        if (r->why[0] == '\0') {
            f->passed++;
            t->passed++;
        } else {
            f->failed++;
            t->failed++;
            if (t->failed <= SHOWN) {
                printf("FAILED %s: %s\n", id, r->why);
            }
        }
    }
    json_decref(vector);
}

int vectors_isa(int argc, char **argv) {
    struct tally *t = calloc(1, sizeof *t);
    struct run r = {.expected_mem = malloc(TARGET_MEM_SIZE), .mem = malloc(TARGET_MEM_SIZE)};
    FILE *in = argc > 1 ? fopen(argv[1], "r") : NULL;
    size_t size = 0;
    char *line = NULL;
    int status = 1;

    if (in == NULL || t == NULL || r.expected_mem == NULL || r.mem == NULL) {
        fprintf(stderr, "vectors isa: cannot read %s\n", argc > 1 ? argv[1] : "(no file)");
        goto out;
    }
    while (getline(&line, &size, in) > 0) {
        run_line(&r, t, line, argc > 2 ? argv[2] : "");
    }
    for (size_t i = 0; i < t->families; i++) {
        printf(
            "%-28s %5u passed, %u failed\n", t->family[i].name, t->family[i].passed,
            t->family[i].failed);
    }
    printf("%u passed, %u failed\n", t->passed, t->failed);
    status = t->failed == 0 && t->passed > 0 ? 0 : 1;
out:
    free(line);
    free(t);
    free(r.expected_mem);
    free(r.mem);
    if (in != NULL) {
        fclose(in);
    }
    return status;
}
