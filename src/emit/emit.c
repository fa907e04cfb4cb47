/* Programs and tables of all tiles at their final addresses. Idle tiles share one of each. */
#include "emit/emit_internal.h"

int emit_code_build(
    const struct emit_context *c, const struct emit_layout *l, struct arena *a,
    struct emit_code **ret, struct err *err) {
    struct emit_code *code = ARENA_NEW(a, struct emit_code);
    code->programs = ARENA_ARRAY(a, uint32_t *, TARGET_TILES);
    code->tables = ARENA_ARRAY(a, uint32_t *, TARGET_TILES);
    code->traces = ARENA_ARRAY(a, struct emit_trace, TARGET_TILES);
    uint32_t idle = TARGET_TILES;
    for (uint32_t t = 0; t < TARGET_TILES; t++) {
        bool is_idle = emit_role(c, t) == ROLE_IDLE;
        if (is_idle && idle < TARGET_TILES) {
            code->programs[t] = code->programs[idle];
            code->tables[t] = code->tables[idle];
            continue;
        }
        const struct emit_tile_layout *x = &l->tiles[t];
        struct emit_program program;
        int rc = emit_tile_program(c, x, t, a, &program, err);
        if (rc != 0) {
            return rc;
        }
        if (program.count != x->program_words || emit_table_words(c, t) != x->table_words) {
            return err_set(
                err, ERR_INTERNAL,
                "emit: program of logical tile %u has %u words, %u were laid out", t, program.count,
                x->program_words);
        }
        code->programs[t] = program.words;
        code->traces[t] = program.trace;
        code->tables[t] = ARENA_ARRAY(a, uint32_t, x->table_words);
        emit_tile_table(c, x, t, code->tables[t]);
        idle = is_idle ? t : idle;
    }
    *ret = code;
    return 0;
}
