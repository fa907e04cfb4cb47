/* Package -> SQLite file; on failure none is left. */
#include "package/package_internal.h"

#include <stdlib.h>

#include "base/bytes.h"
#include "base/cleanup.h"
#include "package/row_writer.h"

static void write_meta(struct row_writer *w, const struct package *p) {
    char tiles[16];
    snprintf(tiles, sizeof tiles, "%u", p->compute_tiles);
    const char *rows[][2] = {
        {"compiler_id", p->compiler_id},
        {"compute_tiles", tiles},
        {"key", p->key},
        {"options", p->options},
        {"target", p->target}};
    row_table(w, "meta", 2);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        row_text(w, rows[i][0]);
        row_text(w, rows[i][1]);
        row_end(w);
    }
}

static void write_interface(struct row_writer *w, const struct package *p) {
    row_table(w, "binding", 5 + TENSOR_MAX_DIMS);
    for (uint32_t i = 0; i < p->binding_count; i++) {
        const struct package_binding *b = &p->bindings[i];
        row_int(w, i);
        row_int(w, (int64_t)b->role);
        row_int(w, b->ordinal);
        row_text(w, dtype_name(b->dtype));
        row_int(w, b->shape.rank);
        for (int k = 0; k < TENSOR_MAX_DIMS; k++) {
            row_int(w, b->shape.dim[k]);
        }
        row_end(w);
    }
    row_table(w, "phase", 4);
    for (uint32_t i = 0; i < p->phase_count; i++) {
        row_int(w, i);
        row_int(w, (int64_t)p->phases[i].call);
        row_int(w, p->phases[i].index);
        row_int(w, p->phases[i].is_output);
        row_end(w);
    }
    row_table(w, "participant", 2);
    for (uint32_t i = 0; i < p->participant_count; i++) {
        row_int(w, i);
        row_int(w, p->participants[i]);
        row_end(w);
    }
    row_table(w, "slice", 6 + 3 * TENSOR_MAX_DIMS);
    for (uint32_t i = 0; i < p->slice_count; i++) {
        const struct package_slice *s = &p->slices[i];
        row_int(w, i);
        row_int(w, s->binding);
        row_int(w, s->phase);
        row_int(w, s->tile.n);
        row_int(w, (int64_t)s->tensor_offset);
        row_int(w, s->page_offset);
        for (int k = 0; k < TENSOR_MAX_DIMS; k++) {
            row_int(w, s->extent[k]);
        }
        for (int k = 0; k < TENSOR_MAX_DIMS; k++) {
            row_int(w, s->tensor_stride[k]);
        }
        for (int k = 0; k < TENSOR_MAX_DIMS; k++) {
            row_int(w, s->page_stride[k]);
        }
        row_end(w);
    }
}

static void write_profile_plan(struct row_writer *w, const struct package *p) {
    row_table(w, "step", 8);
    for (uint32_t i = 0; i < p->step_count; i++) {
        row_int(w, i);
        row_int(w, (int64_t)p->steps[i].kind);
        row_step_end(w, &p->steps[i]);
    }
    row_calls(w, p->calls, p->call_count);
    row_table(w, "trace", 3);
    for (uint32_t i = 0; i < p->trace_count; i++) {
        const struct package_trace *t = &p->traces[i];
        CLEANUP(cleanup_free) uint8_t *bytes = malloc(4 * (size_t)t->count + 1);
        if (bytes == NULL) {
            row_fail(w, err_set(w->err, ERR_NOMEM, NULL));
            return;
        }
        for (uint32_t k = 0; k < t->count; k++) {
            store_le32(bytes + 4 * (size_t)k, t->steps[k]);
        }
        row_int(w, i);
        row_int(w, t->first);
        row_blob(w, bytes, 4 * t->count);
        row_end(w);
    }
}

static void write_images(struct row_writer *w, const struct package *p) {
    row_table(w, "content", 2);
    for (uint32_t i = 0; i < p->content_count; i++) {
        row_int(w, i);
        row_blob(w, p->contents[i].bytes, p->contents[i].size);
        row_end(w);
    }
    row_table(w, "segment", 3);
    for (uint32_t i = 0; i < p->segment_count; i++) {
        row_int(w, p->segments[i].tile.n);
        row_int(w, p->segments[i].addr);
        row_int(w, p->segments[i].content);
        row_end(w);
    }
    row_table(w, "symbol", 5);
    for (uint32_t i = 0; i < p->symbol_count; i++) {
        const struct package_symbol *s = &p->symbols[i];
        row_int(w, i);
        row_int(w, s->tile);
        row_int(w, s->addr);
        row_int(w, s->size);
        row_text(w, s->name);
        row_end(w);
    }
    if (p->report != NULL) {
        row_table(w, "report", 2);
        row_int(w, 1);
        row_text(w, p->report);
        row_end(w);
    }
}

int package_write(const struct package *p, const char *path, struct digest *ret, struct err *err) {
    int r = package_verify(p, err);
    if (r < 0) {
        return err_wrap(err, "package to write");
    }
    struct row_writer w;
    row_writer_create(&w, "package", path, PACKAGE_APPLICATION_ID, PACKAGE_VERSION, err);
    for (int t = 0; t < PACKAGE_TABLES; t++) {
        row_exec(&w, package_table_sql((enum package_table)t));
    }
    write_meta(&w, p);
    write_interface(&w, p);
    write_images(&w, p);
    write_profile_plan(&w, p);
    r = row_writer_finish(&w);
    if (r == 0) {
        package_digest(p, ret);
    }
    return r;
}
