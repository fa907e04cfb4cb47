/* The logical digest of a package: what it says, not how SQLite laid it out. Each row enters as
 * its columns in schema order; each table is introduced by its name and row count, so that no two
 * packages can feed the same bytes. */
#include "package/package_internal.h"

#include "base/bytes.h"

struct package_table_row {
    const char *name;
    const char *sql;
};

static const struct package_table_row package_tables[PACKAGE_TABLES] = {
#define TABLE(name, sql) {#name, sql},
#include "package/schema.def"
#undef TABLE
};

const char *package_table_name(enum package_table t) {
    return package_tables[t].name;
}

const char *package_table_sql(enum package_table t) {
    return package_tables[t].sql;
}

static void digest_table(struct digest_ctx *ctx, enum package_table t, uint64_t rows) {
    digest_text(ctx, package_tables[t].name);
    digest_u64(ctx, rows);
}

static void digest_meta(struct digest_ctx *ctx, const char *key, const char *value) {
    digest_text(ctx, key);
    digest_text(ctx, value);
}

static void digest_slices(struct digest_ctx *ctx, const struct package *p) {
    digest_table(ctx, PACKAGE_TABLE_slice, p->slice_count);
    for (uint32_t i = 0; i < p->slice_count; i++) {
        const struct package_slice *s = &p->slices[i];
        digest_u64(ctx, i);
        digest_u64(ctx, s->binding);
        digest_u64(ctx, s->phase);
        digest_u64(ctx, s->tile.n);
        digest_u64(ctx, s->tensor_offset);
        digest_u64(ctx, s->page_offset);
        for (int k = 0; k < TENSOR_MAX_DIMS; k++) {
            digest_u64(ctx, s->extent[k]);
        }
        for (int k = 0; k < TENSOR_MAX_DIMS; k++) {
            digest_u64(ctx, (uint64_t)s->tensor_stride[k]);
        }
        for (int k = 0; k < TENSOR_MAX_DIMS; k++) {
            digest_u64(ctx, (uint64_t)(int64_t)s->page_stride[k]);
        }
    }
}

void package_digest(const struct package *p, struct digest *ret) {
    struct digest_ctx *ctx = digest_new();
    digest_table(ctx, PACKAGE_TABLE_binding, p->binding_count);
    for (uint32_t i = 0; i < p->binding_count; i++) {
        const struct package_binding *b = &p->bindings[i];
        digest_u64(ctx, i);
        digest_u64(ctx, (uint64_t)b->role);
        digest_u64(ctx, b->ordinal);
        digest_text(ctx, dtype_name(b->dtype));
        digest_u64(ctx, (uint64_t)b->shape.rank);
        for (int k = 0; k < TENSOR_MAX_DIMS; k++) {
            digest_u64(ctx, (uint64_t)b->shape.dim[k]);
        }
    }
    digest_table(ctx, PACKAGE_TABLE_call, p->call_count);
    for (uint32_t i = 0; i < p->call_count; i++) {
        const struct package_kernel_call *c = &p->calls[i];
        digest_u64(ctx, i);
        digest_u64(ctx, c->step);
        digest_u64(ctx, c->operation);
        digest_u64(ctx, c->node);
        digest_text(ctx, c->op);
        digest_text(ctx, c->kernel);
        digest_u64(ctx, c->predicted);
        digest_u64(ctx, c->useful);
    }
    digest_table(ctx, PACKAGE_TABLE_content, p->content_count);
    for (uint32_t i = 0; i < p->content_count; i++) {
        digest_u64(ctx, i);
        digest_u64(ctx, p->contents[i].size);
        digest_update(ctx, p->contents[i].bytes, p->contents[i].size);
    }
    char tiles[16];
    snprintf(tiles, sizeof tiles, "%u", p->compute_tiles);
    digest_table(ctx, PACKAGE_TABLE_meta, 5);
    digest_meta(ctx, "compiler_id", p->compiler_id);
    digest_meta(ctx, "compute_tiles", tiles);
    digest_meta(ctx, "key", p->key);
    digest_meta(ctx, "options", p->options);
    digest_meta(ctx, "target", p->target);
    digest_table(ctx, PACKAGE_TABLE_participant, p->participant_count);
    for (uint32_t i = 0; i < p->participant_count; i++) {
        digest_u64(ctx, i);
        digest_u64(ctx, p->participants[i]);
    }
    digest_table(ctx, PACKAGE_TABLE_phase, p->phase_count);
    for (uint32_t i = 0; i < p->phase_count; i++) {
        digest_u64(ctx, i);
        digest_u64(ctx, (uint64_t)p->phases[i].call);
        digest_u64(ctx, p->phases[i].index);
        digest_u64(ctx, p->phases[i].is_output);
    }
    digest_table(ctx, PACKAGE_TABLE_segment, p->segment_count);
    for (uint32_t i = 0; i < p->segment_count; i++) {
        digest_u64(ctx, p->segments[i].tile.n);
        digest_u64(ctx, p->segments[i].addr);
        digest_u64(ctx, p->segments[i].content);
    }
    digest_slices(ctx, p);
    digest_table(ctx, PACKAGE_TABLE_step, p->step_count);
    for (uint32_t i = 0; i < p->step_count; i++) {
        const struct package_step *s = &p->steps[i];
        digest_u64(ctx, i);
        digest_u64(ctx, (uint64_t)s->kind);
        digest_u64(ctx, s->level);
        digest_u64(ctx, s->last_level);
        digest_u64(ctx, s->predicted);
        digest_u64(ctx, s->horizon);
        digest_u64(ctx, s->bound);
        digest_u64(ctx, s->bytes);
    }
    digest_table(ctx, PACKAGE_TABLE_symbol, p->symbol_count);
    for (uint32_t i = 0; i < p->symbol_count; i++) {
        digest_u64(ctx, i);
        digest_u64(ctx, (uint64_t)(int64_t)p->symbols[i].tile);
        digest_u64(ctx, p->symbols[i].addr);
        digest_u64(ctx, p->symbols[i].size);
        digest_text(ctx, p->symbols[i].name);
    }
    digest_table(ctx, PACKAGE_TABLE_trace, p->trace_count);
    for (uint32_t i = 0; i < p->trace_count; i++) {
        digest_u64(ctx, i);
        digest_u64(ctx, p->traces[i].first);
        digest_u64(ctx, 4 * (uint64_t)p->traces[i].count);
        for (uint32_t k = 0; k < p->traces[i].count; k++) {
            uint8_t word[4];
            store_le32(word, p->traces[i].steps[k]);
            digest_update(ctx, word, sizeof word);
        }
    }
    digest_final(ctx, ret);
    digest_free(ctx);
}
