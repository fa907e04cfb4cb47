/* The device above the seam, on the simulated chip: lock, reset, boot of 1,472 distinct images,
 * damaged transport, failing driver requests. */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bytes.h"
#include "device/device_internal.h"
#include "runtime/runtime.h"
#include "sim/sim.h"

static char dir[64];
static char lock_path[96];

static void setup(void) {
    strcpy(dir, "/tmp/ipud-test-device-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(lock_path, sizeof lock_path, "%s/lock", dir);
}

static void teardown(void) {
    unlink(lock_path);
    rmdir(dir);
}

/* ---- a seam that damages what passes through ---------------------------------------------- */

struct tamper {
    struct ipu_device_ops inner;
    uint8_t *transport; /* what was attached at page 0 */
    uint32_t batch;     /* mark writes of group 1 seen */
    uint32_t at_batch;  /* damage before this one, 1 = first */
    void (*damage)(uint8_t *transport);
    struct sim_options sim;
};

static int t_read32(void *self, uint32_t offset, uint32_t *ret, struct err *err) {
    struct tamper *t = self;
    return t->inner.read32(t->inner.self, offset, ret, err);
}

static int t_write32(void *self, uint32_t offset, uint32_t value, struct err *err) {
    struct tamper *t = self;
    if (offset == REG_HSPGS1 && value != 0 && t->transport != NULL && ++t->batch == t->at_batch &&
        t->damage != NULL) {
        t->damage(t->transport);
    }
    return t->inner.write32(t->inner.self, offset, value, err);
}

static int t_attach(void *self, uint32_t index, void *memory, uint32_t size, struct err *err) {
    struct tamper *t = self;
    if (index == 0 && t->transport == NULL) {
        t->transport = memory;
    }
    return t->inner.attach(t->inner.self, index, memory, size, err);
}

static int t_detach(void *self, uint32_t index, struct err *err) {
    struct tamper *t = self;
    return t->inner.detach(t->inner.self, index, err);
}

static int t_detach_all(void *self, struct err *err) {
    struct tamper *t = self;
    return t->inner.detach_all(t->inner.self, err);
}

static int t_request(void *self, enum ipu_request request, struct err *err) {
    struct tamper *t = self;
    return t->inner.request(t->inner.self, request, err);
}

static int
t_mailbox(void *self, const struct ipu_mailbox *s, struct ipu_mailbox *r, struct err *err) {
    struct tamper *t = self;
    return t->inner.mailbox(t->inner.self, s, r, err);
}

static void t_fence(void *self) {
    struct tamper *t = self;
    t->inner.fence(t->inner.self);
}

static uint64_t t_now_ns(void *self) {
    struct tamper *t = self;
    return t->inner.now_ns(t->inner.self);
}

static void t_pause(void *self, uint64_t ns) {
    struct tamper *t = self;
    t->inner.pause(t->inner.self, ns);
}

static void t_close(void *self) {
    struct tamper *t = self;
    t->inner.close(t->inner.self);
}

static int open_tamper(const char *spec, void *arg, struct ipu_device_ops *ret, struct err *err) {
    struct tamper *t = arg;
    (void)spec;
    int r = sim_device_open(&t->sim, &t->inner, err);
    *ret = (struct ipu_device_ops){t,        "sim",        t_read32,  t_write32, t_attach,
                                   t_detach, t_detach_all, t_request, t_mailbox, t_fence,
                                   t_now_ns, t_pause,      t_close};
    return r;
}

static struct device *open_device(struct tamper *t) {
    struct device_options options = {
        .spec = "sim",
        .lock_path = lock_path,
        .no_wait = true,
        .open_ops = open_tamper,
        .open_arg = t};
    struct device *d = NULL;
    struct err err = {0};
    ck_assert_msg(device_open(&options, &d, &err) == 0, "%s", err.text);
    return d;
}

/* ---- images ------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

static uint32_t image_words(uint32_t tile) {
    /* 1 word to some 40 KiB; a few of 190 KiB at the loader's limit. */
    if (tile % 211 == 7) {
        return (RT_LOADER_IMAGE_END - TARGET_LOAD_BASE) / 4;
    }
    return 1 + (uint32_t)(mix(tile) % 10000);
}

static uint32_t image_word(uint32_t tile, uint32_t i) {
    return (uint32_t)mix((uint64_t)tile << 32 | i);
}

struct images {
    struct package p;
    struct package_content contents[TARGET_TILES];
    struct package_segment segments[TARGET_TILES];
};

static struct images *images_new(bool is_large) {
    struct images *m = calloc(1, sizeof *m);
    for (uint32_t tile = 0; tile < TARGET_TILES; tile++) {
        uint32_t n = is_large ? image_words(tile) : 2;
        uint8_t *bytes = malloc(n * 4);
        for (uint32_t i = 0; i < n; i++) {
            store_le32(bytes + 4 * i, image_word(tile, i));
        }
        m->contents[tile] = (struct package_content){bytes, n * 4};
        m->segments[tile] = (struct package_segment){{(uint16_t)tile}, TARGET_LOAD_BASE, tile};
    }
    m->p = (struct package){
        .contents = m->contents,
        .content_count = TARGET_TILES,
        .segments = m->segments,
        .segment_count = TARGET_TILES};
    return m;
}

static void images_free(struct images *m) {
    for (uint32_t tile = 0; tile < TARGET_TILES; tile++) {
        free((void *)(uintptr_t)m->contents[tile].bytes);
    }
    free(m);
}

static int prepare(struct device *d, struct err *err) {
    static struct config_write writes[CONFIG_MAX];
    int r = device_initialize(d, err);
    return r < 0 ? r : config_replay(d, writes, config_generate(writes), err);
}

static void check_word(struct device *d, uint32_t tile, uint32_t i, uint32_t n) {
    struct err err = {0};
    uint32_t found;
    int r = tdi_read_words(d, tile, 1, TARGET_LOAD_BASE + 4 * i, &found, 1, &err);
    ck_assert_msg(r == 0, "tile %u: %s", tile, err.text);
    uint32_t expected = i < n ? image_word(tile, i) : 0;
    ck_assert_msg(
        found == expected, "tile %u word %u: 0x%08x, expected 0x%08x", tile, i, found, expected);
}

START_TEST(all_images_arrive) {
    struct tamper t = {.sim = {.threads = 2}};
    struct device *d = open_device(&t);
    struct images *m = images_new(true);
    struct err err = {0};
    ck_assert_msg(prepare(d, &err) == 0, "%s", err.text);
    ck_assert_msg(boot_load(d, &m->p, NULL, NULL, &err) == 0, "%s", err.text);
    for (uint32_t tile = 0; tile < TARGET_TILES; tile++) {
        uint32_t n = m->contents[tile].size / 4;
        check_word(d, tile, 0, n);
        check_word(d, tile, n - 1, n);
        check_word(d, tile, n, n); /* zero behind the image */
        /* Where frames meet, headers and trailers overlap payloads. */
        uint32_t step = n > 20000 ? 4 : 1;
        for (uint32_t k = 1; k * 248 + 4 < n; k += step) {
            for (int32_t at = -5; at < 5; at++) {
                check_word(d, tile, (uint32_t)((int32_t)(k * 248) + at), n);
            }
        }
    }
    images_free(m);
    device_close(d);
}
END_TEST

/* ---- damage ------------------------------------------------------------------------------- */

static uint8_t *frame(uint8_t *transport, uint32_t slot, uint32_t k) {
    return transport + load_le32(transport + slot * 8) + 1024 * k;
}

static void wrong_tile(uint8_t *t) {
    store_le32(frame(t, 3, 2) + 4, 999);
}
static void wrong_sequence(uint8_t *t) {
    store_le32(frame(t, 3, 2), 5);
}
static void wrong_flags(uint8_t *t) {
    store_le32(frame(t, 3, 2) + 8, 0x10000000);
}
static void wrong_reserved(uint8_t *t) {
    store_le32(frame(t, 3, 2) + 12, 1);
}
static void early_last(uint8_t *t) {
    store_le32(frame(t, 3, 2) + 8, 0x08000000);
}
static void missing_last(uint8_t *t) {
    store_le32(frame(t, 3, 16) + 8, 0);
}
static void wrong_count(uint8_t *t) {
    store_le32(t + 3 * 8 + 4, 100000);
}
static void unaligned_offset(uint8_t *t) {
    store_le32(t + 3 * 8, 4100);
}
static void start_without_image(uint8_t *t) {
    store_le32(t + 3 * 8, 0xffffffffu);
}

static const struct {
    void (*damage)(uint8_t *);
    const char *expected;
} damages[] = {
    {wrong_tile, "another tile"},
    {wrong_sequence, "sequence"},
    {wrong_flags, "flag"},
    {wrong_reserved, "reserved"},
    {early_last, "flag"},
    {missing_last, "flag"},
    {wrong_count, "descriptor"},
    {unaligned_offset, "descriptor"},
    {start_without_image, "descriptor"},
};

START_TEST(damaged_transport_is_named) {
    struct tamper t = {.at_batch = 2, .damage = damages[_i].damage};
    struct device *d = open_device(&t);
    struct images *m = images_new(false);
    struct err err = {0};
    ck_assert_msg(prepare(d, &err) == 0, "%s", err.text);
    ck_assert_int_eq(boot_load(d, &m->p, NULL, NULL, &err), -ERR_BOOT);
    /* Batch 2 holds tiles 64 to 127; slot 3 is tile 67. */
    ck_assert_msg(strstr(err.text, "tile 67") != NULL, "%s", err.text);
    ck_assert_msg(strstr(err.text, damages[_i].expected) != NULL, "%s", err.text);
    /* The next load on the same device works. */
    t.damage = NULL;
    ck_assert_msg(prepare(d, &err) == 0, "%s", err.text);
    t.transport = NULL;
    ck_assert_msg(boot_load(d, &m->p, NULL, NULL, &err) == 0, "%s", err.text);
    images_free(m);
    device_close(d);
}
END_TEST

START_TEST(oversize_image_is_refused) {
    struct tamper t = {0};
    struct device *d = open_device(&t);
    struct images *m = images_new(false);
    m->segments[70].addr = RT_LOADER_IMAGE_END - 4; /* one word too far */
    struct err err = {0};
    ck_assert_int_eq(prepare(d, &err), 0);
    ck_assert_int_eq(boot_load(d, &m->p, NULL, NULL, &err), -ERR_BOOT);
    ck_assert_msg(strstr(err.text, "tile 70") != NULL, "%s", err.text);
    images_free(m);
    device_close(d);
}
END_TEST

START_TEST(wrong_mailbox_reply_is_refused) {
    struct tamper t = {.sim = {.fault = {.kind = SIM_FAULT_MAILBOX}}};
    struct device *d = open_device(&t);
    struct err err = {0};
    ck_assert_int_eq(device_initialize(d, &err), -ERR_DEVICE_ERROR);
    ck_assert_msg(strstr(err.text, "reset response") != NULL, "%s", err.text);
    device_close(d);
}
END_TEST

START_TEST(each_failing_request_is_reported) {
    struct tamper t = {.sim = {.fault = {.kind = SIM_FAULT_REQUEST, .at = (uint32_t)_i}}};
    struct device_options options = {
        .spec = "sim",
        .lock_path = lock_path,
        .no_wait = true,
        .open_ops = open_tamper,
        .open_arg = &t};
    struct device *d = NULL;
    struct err err = {0};
    int r = device_open(&options, &d, &err);
    r = r < 0 ? r : prepare(d, &err);
    ck_assert_int_eq(r, -ERR_DEVICE_ERROR);
    ck_assert(err.text[0] != '\0');
    device_close(d);
}
END_TEST

/* ---- lock --------------------------------------------------------------------------------- */

START_TEST(lock_names_its_holder) {
    int first, second;
    struct err err = {0};
    ck_assert_int_eq(lock_take(lock_path, true, &first, &err), 0);
    ck_assert_int_ne(fcntl(first, F_GETFD) & FD_CLOEXEC, 0);
    ck_assert_int_eq(lock_take(lock_path, true, &second, &err), -ERR_DEVICE_BUSY);
    char pid[32];
    snprintf(pid, sizeof pid, "pid=%ld", (long)getpid());
    ck_assert_msg(strstr(err.text, pid) != NULL, "%s", err.text);
    ck_assert_msg(strstr(err.text, "command=") != NULL, "%s", err.text);
    lock_drop(&first);
    ck_assert_int_eq(lock_take(lock_path, true, &second, &err), 0);
    lock_drop(&second);
}
END_TEST

START_TEST(killed_holder_leaves_no_lock) {
    int ready[2];
    ck_assert_int_eq(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        int fd;
        int r = lock_take(lock_path, true, &fd, NULL);
        ssize_t n = write(ready[1], r == 0 ? "1" : "0", 1);
        (void)n;
        pause();
        _exit(0);
    }
    char c;
    ck_assert_int_eq(read(ready[0], &c, 1), 1);
    ck_assert_int_eq(c, '1');
    int fd;
    ck_assert_int_eq(lock_take(lock_path, true, &fd, NULL), -ERR_DEVICE_BUSY);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    ck_assert_int_eq(lock_take(lock_path, true, &fd, NULL), 0);
    lock_drop(&fd);
    close(ready[0]);
    close(ready[1]);
}
END_TEST

START_TEST(absent_card_says_so) {
    struct device_options options = {.spec = "/dev/ipu77", .lock_path = lock_path, .no_wait = true};
    struct device *d = NULL;
    struct err err = {0};
    ck_assert_int_eq(device_open(&options, &d, &err), -ERR_DEVICE_ABSENT);
    ck_assert_msg(
        strstr(err.text, "/dev/ipu77") != NULL && strstr(err.text, "sim") != NULL, "%s", err.text);
    options.spec = "tpu";
    ck_assert_int_eq(device_open(&options, &d, &err), -ERR_DEVICE_ABSENT);
}
END_TEST

/* ---- configuration image ------------------------------------------------------------------ */

START_TEST(generated_configuration_is_complete) {
    static struct config_write w[CONFIG_MAX];
    uint32_t count = config_generate(w);
    ck_assert_uint_gt(count, TARGET_TILES);
    uint32_t breaks = 0;
    for (uint32_t i = 0; i < count; i++) {
        ck_assert_uint_lt(w[i].offset, IPU_CONFIG_BYTES);
        ck_assert_uint_ne(w[i].offset, REG_HSPGS1);
        breaks += w[i].offset >= REG_TDI_BASE;
    }
    ck_assert_uint_eq(breaks, TARGET_TILES);
    /* End state of the device fact sheet, 3.4. */
    struct tamper t = {0};
    struct device *d = open_device(&t);
    struct err err = {0};
    ck_assert_msg(prepare(d, &err) == 0, "%s", err.text);
    uint32_t v;
    ck_assert_int_eq(reg_read(d, REG_CCSR, &v, &err), 0);
    ck_assert_uint_eq(v, 4);
    for (int i = 0; i < XB_COUNT; i++) {
        ck_assert_int_eq(reg_read(d, device_xb(false, i), &v, &err), 0);
        ck_assert_uint_eq(v, 5);
        ck_assert_int_eq(reg_read(d, device_xb(false, i) + REG_XB_XERDR, &v, &err), 0);
        ck_assert_uint_eq(v, 0xfe);
        ck_assert_int_eq(reg_read(d, device_xb(true, i), &v, &err), 0);
        ck_assert_uint_eq(v, 4);
        ck_assert_int_eq(reg_read(d, device_xb(true, i) + REG_XB_DCXCR, &v, &err), 0);
        ck_assert_uint_eq(v, 0x07fffffa);
    }
    device_close(d);
}
END_TEST

START_TEST(configuration_files_are_checked) {
    static struct config_write w[CONFIG_MAX];
    uint8_t bytes[12 + 16] = "IPUCFG1";
    uint32_t count;
    struct err err = {0};
    store_le32(bytes + 8, 2);
    store_le32(bytes + 12, 0x2000);
    store_le32(bytes + 16, 4);
    store_le32(bytes + 20, 0x2010);
    ck_assert_int_eq(config_parse(bytes, sizeof bytes, w, &count, &err), 0);
    ck_assert_uint_eq(count, 2);
    ck_assert_uint_eq(w[0].value, 4);
    ck_assert_int_eq(config_parse(bytes, sizeof bytes - 1, w, &count, &err), -ERR_INVALID);
    store_le32(bytes + 20, 0x2011);
    ck_assert_int_eq(config_parse(bytes, sizeof bytes, w, &count, &err), -ERR_INVALID);
    store_le32(bytes + 20, IPU_CONFIG_BYTES);
    ck_assert_int_eq(config_parse(bytes, sizeof bytes, w, &count, &err), -ERR_INVALID);
    store_le32(bytes + 8, CONFIG_MAX + 1);
    ck_assert_int_eq(config_parse(bytes, sizeof bytes, w, &count, &err), -ERR_INVALID);
    bytes[0] = 'i';
    ck_assert_int_eq(config_parse(bytes, sizeof bytes, w, &count, &err), -ERR_INVALID);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("device");
    TCase *t = tcase_create("device");
    tcase_set_timeout(t, 300);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, all_images_arrive);
    tcase_add_loop_test(
        t, damaged_transport_is_named, 0, (int)(sizeof damages / sizeof damages[0]));
    tcase_add_test(t, oversize_image_is_refused);
    tcase_add_test(t, wrong_mailbox_reply_is_refused);
    tcase_add_loop_test(t, each_failing_request_is_reported, 0, 7);
    tcase_add_test(t, lock_names_its_holder);
    tcase_add_test(t, killed_holder_leaves_no_lock);
    tcase_add_test(t, absent_card_says_so);
    tcase_add_test(t, generated_configuration_is_complete);
    tcase_add_test(t, configuration_files_are_checked);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
