/* Profile -> SQLite file; on failure none is left. */
#include "package/row_writer.h"
#include "profile/profile.h"

static void write_meta(struct row_writer *w, const struct profile *p) {
    const struct {
        const char *key, *text;
        int64_t number; /* when there is no text */
    } rows[] = {
        {"clock_hz", NULL, PROFILE_CLOCK_HZ},
        {"compute_tiles", NULL, p->compute_tiles},
        {"cycles", NULL, p->cycles},
        {"idle_tiles", NULL, (int64_t)TARGET_TILES - p->participants},
        {"key", p->key, 0},
        {"options", p->options, 0},
        {"package", p->package, 0},
        {"run", NULL, (int64_t)p->run},
        {"target", TARGET_NAME, 0},
    };
    row_table(w, "meta", 2);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char number[24];
        snprintf(number, sizeof number, "%lld", (long long)rows[i].number);
        row_text(w, rows[i].key);
        row_text(w, rows[i].text != NULL ? rows[i].text : number);
        row_end(w);
    }
}

static void write_plan(struct row_writer *w, const struct profile *p) {
    row_table(w, "step", 8);
    for (uint32_t i = 0; i < p->step_count; i++) {
        row_int(w, i);
        row_text(w, package_step_kind_name(p->steps[i].kind));
        row_step_end(w, &p->steps[i]);
    }
    row_calls(w, p->calls, p->call_count);
}

static void write_samples(struct row_writer *w, const struct profile *p) {
    row_table(w, "sample", 5);
    for (uint32_t i = 0; i < p->sample_count; i++) {
        const struct profile_sample *s = &p->samples[i];
        row_int(w, s->tile.n);
        row_int(w, s->index);
        row_int(w, s->step);
        row_int(w, s->start);
        row_int(w, s->end);
        row_end(w);
    }
}

int profile_write(const struct profile *p, const char *path, struct err *err) {
    static const char *const tables[] = {
#define TABLE(name, sql) sql,
#include "profile/schema.def"
#undef TABLE
    };
    struct row_writer w;
    row_writer_create(&w, "profile", path, PROFILE_APPLICATION_ID, PROFILE_VERSION, err);
    for (size_t t = 0; t < sizeof tables / sizeof tables[0]; t++) {
        row_exec(&w, tables[t]);
    }
    write_meta(&w, p);
    write_plan(&w, p);
    write_samples(&w, p);
    return row_writer_finish(&w);
}
