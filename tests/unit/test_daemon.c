/* Parts of the daemon that need no loop: settings, bindings from a worker's result, groups. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/bindings.h"
#include "daemon/config.h"
#include "daemon/peer.h"

static int read_config(struct config *c, struct err *err, int argc, const char **argv) {
    return config_read(argc, (char **)argv, c, err);
}

#define CONFIG(c, err, ...)                                                                        \
    read_config(                                                                                   \
        c, err, (int)(sizeof((const char *[]){"ipud", __VA_ARGS__}) / sizeof(char *)),             \
        (const char *[]){"ipud", __VA_ARGS__, NULL})

START_TEST(settings_are_read) {
    struct config c;
    struct err err;
    ck_assert_int_eq(
        CONFIG(&c, &err, "--device=sim", "--workers", "3", "--package-limit", "2G", "--no-wait"),
        0);
    ck_assert_str_eq(c.device, "sim");
    ck_assert_uint_eq(c.workers, 3);
    ck_assert_uint_eq(c.package_limit, 2ull << 30);
    ck_assert(c.no_wait && !c.help);
    ck_assert_str_eq(c.socket, "/run/ipud/ipud.sock");
    config_done(&c);
}
END_TEST

START_TEST(faulty_settings_are_refused) {
    static const char *const rows[] = {
        "--nonsense",
        "--workers=x",
        "--workers=257",
        "--workers=-1",
        "--workers=1K",
        "--package-limit=5X",
        "--package-limit=1KK",
        "--log-level=2",
        "--package-limit=99999999999999999999",
        "--package-limit=99999999T",
        "--workers=",
        "word"};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct config c;
        struct err err;
        ck_assert_msg(CONFIG(&c, &err, rows[i]) == -ERR_USAGE, "%s", rows[i]);
        ck_assert_int_eq(err_exit(err.code), 2);
    }
    struct config c;
    struct err err;
    ck_assert_int_eq(CONFIG(&c, &err, "--socket"), -ERR_USAGE);
    ck_assert_int_eq(CONFIG(&c, &err, "--config", "/nonexistent"), -ERR_IO);
}
END_TEST

START_TEST(file_gives_way_to_the_line) {
    char path[] = "/tmp/test_daemon.XXXXXX";
    int fd = mkstemp(path);
    const char *text = "# a comment\n\n device = sim \nworkers=7\nlog-level = 4\nno-wait = yes\n";
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    struct config c;
    struct err err;
    ck_assert_int_eq(CONFIG(&c, &err, "--workers=2", "--config", path), 0);
    ck_assert_str_eq(c.device, "sim");
    ck_assert_uint_eq(c.workers, 2);
    ck_assert_uint_eq(c.log_level, 4);
    ck_assert(c.no_wait);
    config_done(&c);
    text = "wrokers = 1\n";
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    ck_assert_int_eq(CONFIG(&c, &err, "--config", path), -ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(err.text, ":7: 'wrokers'"));
    unlink(path);
}
END_TEST

START_TEST(help_lists_every_option) {
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    config_help(out);
    fclose(out);
    ck_assert_ptr_nonnull(strstr(text, "--state-dir"));
    ck_assert_ptr_nonnull(strstr(text, "[20G]"));
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        ck_assert_uint_le(strlen(line), 100);
    }
    free(text);
}
END_TEST

#define BLOB "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static int read_text(const char *text, struct bindings *b, struct err *err) {
    char copy[1024];
    snprintf(copy, sizeof copy, "%s", text);
    for (char *c = copy; *c != '\0'; c++) {
        *c = *c == '\'' ? '"' : *c;
    }
    json_t *list = json_loads(copy, 0, NULL);
    int r = bindings_read(list, "inputs", b, err);
    json_decref(list);
    return r;
}

START_TEST(results_are_checked) {
    struct bindings b;
    struct err err;
    ck_assert_int_eq(
        read_text(
            "[{'name':'b','ordinal':1,'dtype':'float32','shape':[]},"
            "{'name':'a','ordinal':0,'dtype':'float16','shape':[2,3],"
            "'source':{'blob':'" BLOB "','offset':8,'bytes':12}}]",
            &b, &err),
        0);
    ck_assert_uint_eq(b.count, 2);
    ck_assert_str_eq(b.items[0].name, "a");
    ck_assert_uint_eq(b.items[0].bytes, 12);
    ck_assert(b.items[0].has_source && !b.items[0].is_staged && b.items[0].offset == 8);
    ck_assert_uint_eq(b.items[1].bytes, 4);
    ck_assert_ptr_eq(bindings_find(&b, "b"), &b.items[1]);
    ck_assert_ptr_null(bindings_find(&b, "c"));
    struct digest package = {{1}}, one, two;
    bindings_residency(&b, &package, &one);
    b.items[0].offset = 9;
    bindings_residency(&b, &package, &two);
    ck_assert(!digest_equal(&one, &two));
    bindings_done(&b);
    static const char *const faulty[] = {
        "3",
        "[3]",
        "[{'name':'a','ordinal':1,'dtype':'float16','shape':[1]}]",
        "[{'name':'a','ordinal':-1,'dtype':'float16','shape':[1]}]",
        "[{'name':'a','ordinal':0,'dtype':'float16','shape':[1]},"
        "{'name':'b','ordinal':0,'dtype':'float16','shape':[1]}]",
        "[{'name':'a','ordinal':0,'dtype':'half','shape':[1]}]",
        "[{'name':'a','ordinal':0,'dtype':'float16','shape':[-1]}]",
        "[{'name':'a','ordinal':0,'dtype':'float16','shape':[1,1,1,1,1,1,1]}]",
        "[{'name':'a','ordinal':0,'dtype':'float16','shape':[9223372036854775807,9]}]",
        "[{'name':'a','ordinal':0,'dtype':'float16','shape':[1],'source':{'blob':'x',"
        "'offset':0,'bytes':2}}]",
        "[{'name':'a','ordinal':0,'dtype':'float16','shape':[1],'source':{'staged':"
        "'../../etc/passwd','offset':0,'bytes':2}}]",
        "[{'name':'a','ordinal':0,'dtype':'float16','shape':[1],'source':{'staged':"
        "'inputs.bin','offset':-1,'bytes':2}}]",
    };
    for (size_t i = 0; i < sizeof faulty / sizeof faulty[0]; i++) {
        int r = read_text(faulty[i], &b, &err);
        ck_assert_msg(r == -ERR_PROTOCOL || r == -ERR_TOO_LARGE, "%s: %d", faulty[i], r);
    }
}
END_TEST

START_TEST(groups_have_names_or_numbers) {
    gid_t g;
    struct err err;
    ck_assert_int_eq(peer_group("0", &g, &err), 0);
    ck_assert_uint_eq(g, 0);
    ck_assert_int_eq(peer_group("root", &g, &err), 0);
    ck_assert_uint_eq(g, 0);
    ck_assert_int_eq(peer_group("no such group", &g, &err), -ERR_USAGE);
    ck_assert_int_eq(peer_group("", &g, &err), -ERR_USAGE);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("daemon");
    TCase *tc = tcase_create("daemon");
    tcase_add_test(tc, settings_are_read);
    tcase_add_test(tc, faulty_settings_are_refused);
    tcase_add_test(tc, file_gives_way_to_the_line);
    tcase_add_test(tc, help_lists_every_option);
    tcase_add_test(tc, results_are_checked);
    tcase_add_test(tc, groups_have_names_or_numbers);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
