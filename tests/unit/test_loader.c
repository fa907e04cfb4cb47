/* The secondary loader from an ELF file: what is accepted, what is refused and why, both sides of
 * every limit, and the boot of the simulated chip with one. */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../support/sample_package.h"
#include "base/arena.h"
#include "base/bytes.h"
#include "device/device_internal.h"
#include "runtime/runtime.h"
#include "sim/sim.h"

#define HEADER  52u
#define PROGRAM 32u

static char dir[64];
static char lock_path[96];
static char file_path[96];

static void setup(void) {
    strcpy(dir, "/tmp/ipud-test-loader-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(lock_path, sizeof lock_path, "%s/lock", dir);
    snprintf(file_path, sizeof file_path, "%s/loader.elf", dir);
}

static void teardown(void) {
    unlink(lock_path);
    unlink(file_path);
    rmdir(dir);
}

/* ---- files -------------------------------------------------------------------------------- */

struct elf {
    uint8_t *bytes; /* owned */
    size_t size;
    size_t data; /* offset of the segment's bytes */
};

/* An executable with `headers` program headers of which the first is the loadable segment. */
static struct elf elf_new(uint32_t headers, const uint8_t *code, uint32_t code_bytes) {
    struct elf e;
    e.data = HEADER + headers * PROGRAM;
    e.size = e.data + code_bytes;
    e.bytes = calloc(1, e.size);
    static const uint8_t ident[] = {0x7f, 'E', 'L', 'F', 1, 1, 1};
    memcpy(e.bytes, ident, sizeof ident);
    store_le16(e.bytes + 16, 2);
    store_le32(e.bytes + 28, HEADER);
    store_le16(e.bytes + 42, PROGRAM);
    store_le16(e.bytes + 44, (uint16_t)headers);
    uint8_t *p = e.bytes + HEADER;
    store_le32(p, 1);
    store_le32(p + 4, (uint32_t)e.data);
    store_le32(p + 8, TARGET_MEM_BASE);
    store_le32(p + 16, code_bytes);
    store_le32(p + 20, code_bytes);
    if (code != NULL) {
        memcpy(e.bytes + e.data, code, code_bytes);
    }
    return e;
}

static void elf_write(const struct elf *e) {
    int fd = open(file_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, e->bytes, e->size), (ssize_t)e->size);
    close(fd);
}

/* ---- what is read ------------------------------------------------------------------------- */

START_TEST(segment_is_read_and_padded) {
    static const uint8_t code[] = {1, 2, 3, 4, 5};
    struct elf e = elf_new(3, code, sizeof code);
    struct loader_image image;
    struct err err = {0};
    store_le32(e.bytes + HEADER + 20, 8); /* three zero bytes behind */
    ck_assert_msg(loader_parse(e.bytes, e.size, &image, &err) == 0, "%s", err.text);
    ck_assert_uint_eq(image.size, 8);
    ck_assert_mem_eq(image.bytes, code, sizeof code);
    ck_assert_uint_eq(image.bytes[5], 0);
    free(e.bytes);
}
END_TEST

/* One 2- or 4-byte field set to a value, and what the refusal says. */
static const struct fault {
    uint32_t at, width, value;
    const char *expected;
} faults[] = {
    {0, 4, 0x464c457e, "ELF header"},
    {4, 2, 0x0102, "class 2"},
    {4, 2, 0x0201, "byte order 2"},
    {6, 2, 0x0000, "version 0"},
    {16, 2, 1, "type 1"},
    {28, 4, 0xfffffff0, "do not fit"},
    {28, 4, 61, "do not fit"},
    {42, 2, 56, "do not fit"},
    {44, 2, 0, "0 loadable"},
    {44, 2, 2, "do not fit"},
    {HEADER, 4, 2, "0 loadable"},
    {HEADER + 20, 4, 0, "0 loadable"},
    {HEADER + 8, 4, TARGET_MEM_BASE + 16, "segment at 0x4c010"},
    {HEADER + 20, 4, 7, "segment of 7 bytes (8 in the file)"},
    {HEADER + 4, 4, 85, "segment of 8 bytes at 85"},
    {HEADER + 4, 4, 0xfffffff8, "segment of 8 bytes at 4294967288"},
};

START_TEST(faults_are_named) {
    const struct fault *f = &faults[_i];
    static const uint8_t code[8] = {0};
    struct elf e = elf_new(1, code, sizeof code);
    struct loader_image image;
    struct err err = {0};
    if (f->width == 2) {
        store_le16(e.bytes + f->at, (uint16_t)f->value);
    } else {
        store_le32(e.bytes + f->at, f->value);
    }
    ck_assert_int_eq(loader_parse(e.bytes, e.size, &image, &err), -ERR_INVALID);
    ck_assert_msg(
        strstr(err.text, f->expected) != NULL, "'%s' is not in '%s'", f->expected, err.text);
    free(e.bytes);
}
END_TEST

START_TEST(two_segments_are_refused) {
    static const uint8_t code[8] = {0};
    struct elf e = elf_new(2, code, sizeof code);
    struct loader_image image;
    struct err err = {0};
    memcpy(e.bytes + HEADER + PROGRAM, e.bytes + HEADER, PROGRAM);
    ck_assert_int_eq(loader_parse(e.bytes, e.size, &image, &err), -ERR_INVALID);
    ck_assert_msg(strstr(err.text, "2 loadable") != NULL, "%s", err.text);
    free(e.bytes);
}
END_TEST

START_TEST(every_cut_is_refused) {
    static const uint8_t code[16] = {0};
    struct elf e = elf_new(2, code, sizeof code);
    struct loader_image image;
    for (size_t n = 0; n < e.size; n++) {
        uint8_t *cut = malloc(n > 0 ? n : 1); /* exact, so that the sanitizer sees the end */
        struct err err = {0};
        memcpy(cut, e.bytes, n);
        ck_assert_int_eq(loader_parse(cut, n, &image, &err), -ERR_INVALID);
        free(cut);
    }
    free(e.bytes);
}
END_TEST

/* ---- limits ------------------------------------------------------------------------------- */

static void limit(struct elf e, const char *expected) {
    struct loader_image image;
    struct err err = {0};
    int r = loader_parse(e.bytes, e.size, &image, &err);
    if (expected == NULL) {
        ck_assert_msg(r == 0, "%s", err.text);
    } else {
        ck_assert_int_eq(r, -ERR_INVALID);
        ck_assert_msg(strstr(err.text, expected) != NULL, "%s", err.text);
    }
    elf_write(&e);
    ck_assert_int_eq(loader_read(file_path, &image, &err), r); /* the file's reader agrees */
    free(e.bytes);
}

START_TEST(limits_hold) {
    static const uint8_t code[LOADER_MAX_FILE_BYTES] = {0};
    limit(elf_new(1, code, LOADER_MAX_BYTES), NULL);
    limit(elf_new(1, code, LOADER_MAX_BYTES + 1), "at most 4096");
    limit(elf_new(LOADER_MAX_HEADERS, code, 8), NULL);
    limit(elf_new(LOADER_MAX_HEADERS + 1, code, 8), "65 program headers, at most 64");
    struct elf e = elf_new(1, code, LOADER_MAX_FILE_BYTES - HEADER - PROGRAM);
    store_le32(e.bytes + HEADER + 16, 8);
    store_le32(e.bytes + HEADER + 20, 8);
    limit(e, NULL);
    e = elf_new(1, code, LOADER_MAX_FILE_BYTES - HEADER - PROGRAM + 1);
    store_le32(e.bytes + HEADER + 16, 8);
    store_le32(e.bytes + HEADER + 20, 8);
    limit(e, "1048576");
}
END_TEST

START_TEST(unreadable_files_are_named) {
    struct loader_image image;
    struct err err = {0};
    ck_assert_int_eq(loader_read(file_path, &image, &err), -ERR_INVALID);
    ck_assert_msg(strstr(err.text, file_path) != NULL, "%s", err.text);
    ck_assert_int_eq(loader_read(dir, &image, &err), -ERR_INVALID);
    ck_assert_msg(strstr(err.text, "no regular file") != NULL, "%s", err.text);
    ck_assert_int_eq(mkfifo(file_path, 0600), 0); /* must not be waited for */
    ck_assert_int_eq(loader_read(file_path, &image, &err), -ERR_INVALID);
}
END_TEST

START_TEST(options_are_checked_before_the_device) {
    struct device_options options = {.spec = "sim", .lock_path = lock_path};
    struct err err = {0};
    ck_assert_int_eq(device_check_options(&options, &err), 0);
    options.loader_path = file_path;
    ck_assert_int_eq(device_check_options(&options, &err), -ERR_INVALID);
    char missing[128];
    snprintf(missing, sizeof missing, "%s/none/lock", dir);
    options.loader_path = NULL;
    options.lock_path = missing;
    ck_assert_int_eq(device_check_options(&options, &err), -ERR_IO);
    ck_assert_msg(strstr(err.text, missing) != NULL, "%s", err.text);
}
END_TEST

/* ---- boot --------------------------------------------------------------------------------- */

static int open_sim(const char *spec, void *arg, struct ipu_device_ops *ret, struct err *err) {
    (void)spec;
    return sim_device_open(arg, ret, err);
}

static int boot(const struct elf *e, struct err *err) {
    static struct config_write writes[CONFIG_MAX];
    static struct sample sample;
    struct sim_options sim = {.threads = 2};
    struct device_options options = {
        .spec = "sim",
        .lock_path = lock_path,
        .loader_path = file_path,
        .no_wait = true,
        .open_ops = open_sim,
        .open_arg = &sim};
    struct device *d = NULL;
    elf_write(e);
    ck_assert_msg(device_open(&options, &d, err) == 0, "%s", err->text);
    sample_init(&sample);
    int r = device_initialize(d, err);
    r = r < 0 ? r : config_replay(d, writes, config_generate(writes), err);
    r = r < 0 ? r : boot_load(d, &sample.p, NULL, NULL, err);
    if (r == 0) {
        uint32_t word = 0;
        ck_assert_int_eq(tdi_read_words(d, 1471, 1, TARGET_LOAD_BASE, &word, 1, err), 0);
        ck_assert_uint_eq(word, load_le32(sample_code));
    }
    device_close(d);
    return r;
}

START_TEST(chip_boots_with_a_loader_file) {
    struct arena a;
    const uint8_t *code;
    uint32_t size;
    struct err err = {0};
    arena_init(&a, 16u << 20);
    ck_assert_int_eq(runtime_loader(&a, &code, &size, &err), 0);
    struct elf e = elf_new(1, code, size);
    ck_assert_msg(boot(&e, &err) == 0, "%s", err.text);
    free(e.bytes);
    arena_done(&a);
}
END_TEST

/* Words that are no loader: the chip runs them, and what becomes of it is told. */
START_TEST(other_code_gives_a_clear_answer) {
    static const uint8_t code[64] = {0};
    struct elf e = elf_new(1, code, sizeof code);
    struct err err = {0};
    ck_assert_int_lt(boot(&e, &err), 0);
    ck_assert_msg(strstr(err.text, "loader file") != NULL, "%s", err.text);
    ck_assert_int_ne(err.code, ERR_INTERNAL);
    free(e.bytes);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("loader");
    TCase *t = tcase_create("loader");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, segment_is_read_and_padded);
    tcase_add_loop_test(t, faults_are_named, 0, (int)(sizeof faults / sizeof faults[0]));
    tcase_add_test(t, two_segments_are_refused);
    tcase_add_test(t, every_cut_is_refused);
    tcase_add_test(t, limits_hold);
    tcase_add_test(t, unreadable_files_are_named);
    tcase_add_test(t, options_are_checked_before_the_device);
    tcase_add_test(t, chip_boots_with_a_loader_file);
    tcase_add_test(t, other_code_gives_a_clear_answer);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
