/* ipuctl asm, disasm, tile run: tile code without a daemon. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "asm/asm.h"
#include "base/bytes.h"
#include "base/cleanup.h"
#include "client/commands.h"

#define MAX_SOURCE   (16u << 20)
#define MAX_DEFS     256
#define ARENA_BYTES  (1024u << 20)
#define DEFAULT_ADDR 0x4c010 /* first loadable byte of a tile */

static int read_file(const char *path, char **ret, size_t *ret_bytes, struct err *err) {
    bool is_stdin = strcmp(path, "-") == 0;
    CLEANUP(cleanup_fclose) FILE *file = is_stdin ? NULL : fopen(path, "re");
    if (!is_stdin && file == NULL) {
        return err_sys(err, ERR_IO, errno, "'%s'", path);
    }
    CLEANUP(cleanup_free) char *text = malloc(MAX_SOURCE + 1);
    if (text == NULL) {
        return err_set(err, ERR_NOMEM, NULL);
    }
    FILE *in = is_stdin ? stdin : file;
    size_t n = fread(text, 1, MAX_SOURCE + 1, in);
    if (ferror(in)) {
        return err_sys(err, ERR_IO, errno, "'%s'", path);
    }
    if (n > MAX_SOURCE) {
        return err_set(err, ERR_TOO_LARGE, "'%s': more than %u bytes", path, MAX_SOURCE);
    }
    *ret = TAKE(text);
    *ret_bytes = n;
    return 0;
}

/* The unit that the code starts with, and the address of its first word. */
static int
read_place(const struct args *a, enum isa_unit *ret_unit, int64_t *ret_addr, struct err *err) {
    bool is_worker = args_has(a, "worker");
    if (is_worker && args_has(a, "supervisor")) {
        return err_set(err, ERR_USAGE, "--worker and --supervisor exclude each other");
    }
    *ret_unit = is_worker ? ISA_WORKER : ISA_SUPERVISOR;
    *ret_addr = DEFAULT_ADDR;
    int r = args_number(a, "addr", 0, 0x1ffffc, ret_addr, err);
    if (r == 0 && *ret_addr % 4 != 0) {
        r = err_set(err, ERR_USAGE, "--addr: 0x%llx is no multiple of 4", (long long)*ret_addr);
    }
    return r;
}

static int read_defs(
    const struct args *a, struct arena *arena, struct asm_def *defs, size_t *ret_count,
    struct err *err) {
    size_t at = 0, n = 0;
    for (const char *text; (text = args_each(a, "define", &at)) != NULL; n++) {
        const char *equals = strchr(text, '=');
        char *end = NULL;
        if (n == MAX_DEFS) {
            return err_set(err, ERR_USAGE, "--define: more than %d", MAX_DEFS);
        }
        errno = 0;
        long long value = equals != NULL ? strtoll(equals + 1, &end, 0) : 0;
        if (equals == NULL || equals == text || end == equals + 1 || *end != '\0' || errno != 0) {
            return err_set(err, ERR_USAGE, "--define: '%.80s' is not NAME=NUMBER", text);
        }
        defs[n] = (struct asm_def){arena_strndup(arena, text, (size_t)(equals - text)), value};
    }
    *ret_count = n;
    return 0;
}

/* One behind the other from addr, each at a multiple of 8. */
static size_t
place_sections(const struct asm_object *object, uint32_t addr, struct asm_placement places[4]) {
    static const char *const names[] = {".text", ".rodata", ".data", ".bss"};
    for (size_t i = 0; i < 4; i++) {
        places[i] = (struct asm_placement){names[i], addr, 0};
        addr = (addr + (uint32_t)asm_section_size(object, names[i]) + 7) & ~7u;
    }
    return 4;
}

static int write_image(const struct asm_image *image, const char *path, struct err *err) {
    CLEANUP(cleanup_free) char *temp = NULL;
    if (asprintf(&temp, "%s.XXXXXX", path) < 0) {
        temp = NULL;
        return err_set(err, ERR_NOMEM, NULL);
    }
    int fd = mkstemp(temp);
    FILE *out = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (out == NULL) {
        return err_sys(err, ERR_IO, errno, "'%s'", path);
    }
    uint32_t addr = image->segment_count > 0 ? image->segments[0].addr : 0;
    for (size_t i = 0; i < image->segment_count; i++) {
        const struct asm_segment *s = &image->segments[i];
        for (; addr < s->addr; addr++) {
            fputc(0, out);
        }
        fwrite(s->bytes, 1, s->size, out);
        addr += s->size;
    }
    bool failed = ferror(out) != 0;
    if (fclose(out) != 0 || failed || rename(temp, path) != 0) {
        int sys = errno;
        unlink(temp);
        return err_sys(err, ERR_IO, sys, "'%s'", path);
    }
    return 0;
}

static int assemble(
    const struct args *a, const struct asm_source *source, struct arena *arena, struct err *err) {
    struct asm_def defs[MAX_DEFS];
    size_t def_count = 0;
    enum isa_unit unit;
    int64_t addr;
    struct asm_object *object;
    struct asm_image *image;
    int r = read_place(a, &unit, &addr, err);
    if (r < 0 || (r = read_defs(a, arena, defs, &def_count, err)) < 0 ||
        (r = asm_assemble(source, unit, defs, def_count, arena, &object, err)) < 0) {
        return r;
    }
    struct asm_placement places[4];
    size_t place_count = place_sections(object, (uint32_t)addr, places);
    r = asm_link(
        (const struct asm_object *const[]){object}, 1, places, place_count, NULL, 0, arena, &image,
        err);
    if (r < 0) {
        return r;
    }
    const char *path = args_value(a, "output");
    if (path != NULL) {
        return write_image(image, path, err);
    }
    for (size_t i = 0; i < image->segment_count; i++) {
        const struct asm_segment *s = &image->segments[i];
        asm_disassemble(stdout, s->bytes, s->size, s->addr, unit);
    }
    return 0;
}

int cmd_asm(const struct args *a, struct err *err) {
    CLEANUP(cleanup_free) char *text = NULL;
    struct arena arena;
    size_t n = 0;
    int r = read_file(a->operands[0], &text, &n, err);
    if (r < 0) {
        return r;
    }
    struct asm_source source = {a->operands[0], text, n};
    arena_init(&arena, ARENA_BYTES);
    if (ARENA_RECOVER(&arena)) {
        arena_done(&arena);
        return err_set(err, ERR_NOMEM, "more than %u bytes are needed", ARENA_BYTES);
    }
    r = assemble(a, &source, &arena, err);
    arena_done(&arena);
    return r;
}

static bool is_word(const char *text, uint32_t *ret) {
    char *end = NULL;
    errno = 0;
    unsigned long value = strtoul(text, &end, 16);
    *ret = (uint32_t)value;
    return end != text && *end == '\0' && errno == 0 && value <= UINT32_MAX &&
           strchr("0123456789abcdefABCDEF", text[0]) != NULL;
}

/* One operand that is a file is read; otherwise all are words in hexadecimal. */
static int gather_words(const struct args *a, char **ret, size_t *ret_bytes, struct err *err) {
    if (a->operand_count == 1 &&
        (access(a->operands[0], F_OK) == 0 || strcmp(a->operands[0], "-") == 0)) {
        return read_file(a->operands[0], ret, ret_bytes, err);
    }
    CLEANUP(cleanup_free) char *bytes = malloc(4 * (size_t)a->operand_count);
    if (bytes == NULL) {
        return err_set(err, ERR_NOMEM, NULL);
    }
    for (int i = 0; i < a->operand_count; i++) {
        uint32_t word;
        if (!is_word(a->operands[i], &word)) {
            return err_set(
                err, ERR_USAGE, "'%.80s' is neither a file nor a hexadecimal word", a->operands[i]);
        }
        store_le32(bytes + 4 * i, word);
    }
    *ret_bytes = 4 * (size_t)a->operand_count;
    *ret = TAKE(bytes);
    return 0;
}

int cmd_disasm(const struct args *a, struct err *err) {
    CLEANUP(cleanup_free) char *bytes = NULL;
    size_t n = 0;
    enum isa_unit unit;
    int64_t addr;
    int r = read_place(a, &unit, &addr, err);
    if (r < 0 || (r = gather_words(a, &bytes, &n, err)) < 0) {
        return r;
    }
    asm_disassemble(stdout, (const uint8_t *)bytes, n, (uint32_t)addr, unit);
    return 0;
}

/* ipu-tile-run lies beside this program, or on the path. */
int cmd_tile_run(const struct args *a, struct err *err) {
    char path[4096] = "";
    char **argv = calloc((size_t)a->operand_count + 2, sizeof *argv);
    if (argv == NULL) {
        return err_set(err, ERR_NOMEM, NULL);
    }
    argv[0] = "ipu-tile-run";
    memcpy(argv + 1, a->operands, (size_t)a->operand_count * sizeof *argv);
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 16);
    path[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(path, '/');
    if (slash != NULL) {
        strcpy(slash + 1, argv[0]);
        execv(path, argv);
    }
    execvp(argv[0], argv);
    int sys = errno;
    free(argv);
    return err_sys(err, ERR_IO, sys, "ipu-tile-run");
}
