/* ipuctl package ...: list, show, export, import. A package's digest is that of its content, not
 * of the file's bytes, so the daemon alone can check it. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/digest.h"
#include "client/follow.h"
#include "proto/proto.h"

static void decref_cleanup(json_t **j) {
    json_decref(*j);
}

static int
package_path(const struct args *a, const char *after, char path[HTTP_MAX_PATH], struct err *err) {
    struct digest d;
    char hex[DIGEST_HEX + 1];
    if (!digest_parse(a->operands[0], &d)) {
        return err_set(
            err, ERR_USAGE, "'%.80s' is no digest: %d hexadecimal digits are expected",
            a->operands[0], DIGEST_HEX);
    }
    digest_hex(&d, hex);
    http_path(path, "/v1/packages/", hex, after);
    return 0;
}

static int list_page(
    const struct args *a, struct http *h, char *after, size_t n, json_t *items, struct err *err) {
    CLEANUP(decref_cleanup) json_t *page = NULL;
    char path[HTTP_MAX_PATH];
    struct digest d;
    const char *key = args_value(a, "key");
    const char *user = args_value(a, "user");
    if ((key != NULL && !digest_parse(key, &d)) || (user != NULL && strcmp(user, "*") != 0)) {
        return err_set(err, ERR_USAGE, "--key: %d hexadecimal digits; --user: *", DIGEST_HEX);
    }
    snprintf(
        path, sizeof path, "/v1/packages?limit=%d%s%s%s%s%s", PROTO_MAX_PAGE,
        key != NULL ? "&key=" : "", key != NULL ? key : "", user != NULL ? "&user=*" : "",
        after[0] != '\0' ? "&after=" : "", after);
    int r = http_get(h, path, &page, err);
    if (r == 0) {
        json_array_extend(items, json_object_get(page, "items"));
        const char *next = json_string_value(json_object_get(page, "next"));
        if (next != NULL && !digest_parse(next, &d)) {
            return err_set(err, ERR_PROTOCOL, "GET /v1/packages: a `next` that is no digest");
        }
        snprintf(after, n, "%s", next != NULL ? next : "");
    }
    return r;
}

int cmd_package_list(const struct args *a, struct err *err) {
    static const struct output_column columns[] = {
        {"DIGEST", "digest", OUTPUT_TEXT},     {"KEY", "key", OUTPUT_DIGEST},
        {"BYTES", "bytes", OUTPUT_TEXT},       {"TILES", "program.tiles", OUTPUT_TEXT},
        {"CREATED", "created", OUTPUT_TIME},   {"USED", "used", OUTPUT_TIME},
        {"IMPORTED", "imported", OUTPUT_TEXT},
    };
    CLEANUP(http_cleanup) struct http *h = NULL;
    CLEANUP(decref_cleanup) json_t *list = json_pack("{s:[], s:n}", "items", "next");
    json_t *items = json_object_get(list, "items");
    char after[8 + DIGEST_HEX + 1] = "";
    bool as_json;
    int r = args_is_json(a, &as_json, err);
    if (r < 0 || (r = http_open(a->socket, &h, err)) < 0) {
        return r;
    }
    do {
        r = list_page(a, h, after, sizeof after, items, err);
    } while (r == 0 && after[0] != '\0');
    if (r == 0) {
        output_list(list, items, columns, (int)(sizeof columns / sizeof columns[0]), as_json);
    }
    return r;
}

int cmd_package_show(const struct args *a, struct err *err) {
    CLEANUP(http_cleanup) struct http *h = NULL;
    CLEANUP(decref_cleanup) json_t *package = NULL;
    char path[HTTP_MAX_PATH];
    bool as_json;
    int r = args_is_json(a, &as_json, err);
    if (r < 0 || (r = package_path(a, "", path, err)) < 0 ||
        (r = http_open(a->socket, &h, err)) < 0 || (r = http_get(h, path, &package, err)) < 0) {
        return r;
    }
    output_document(package, as_json);
    return 0;
}

int cmd_package_export(const struct args *a, struct err *err) {
    CLEANUP(http_cleanup) struct http *h = NULL;
    char path[HTTP_MAX_PATH];
    int r = package_path(a, "/file", path, err);
    if (r < 0 || (r = http_open(a->socket, &h, err)) < 0) {
        return r;
    }
    return follow_save(h, path, a->operands[1], err);
}

int cmd_package_import(const struct args *a, struct err *err) {
    CLEANUP(http_cleanup) struct http *h = NULL;
    CLEANUP(decref_cleanup) json_t *answer = NULL;
    char path[HTTP_MAX_PATH];
    struct stat st;
    bool as_json;
    int r = args_is_json(a, &as_json, err);
    if (r < 0 || (r = package_path(a, "", path, err)) < 0) {
        return r;
    }
    CLEANUP(cleanup_close) int fd = open(a->operands[1], O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) != 0) {
        return err_sys(err, ERR_IO, errno, "'%s'", a->operands[1]);
    }
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size > PROTO_MAX_PACKAGE_BYTES) {
        return err_set(
            err, ERR_IO, "'%s' is no regular file of at most %llu bytes", a->operands[1],
            (unsigned long long)PROTO_MAX_PACKAGE_BYTES);
    }
    if ((r = http_open(a->socket, &h, err)) < 0 ||
        (r = http_put(h, path, fd, (uint64_t)st.st_size, &answer, err)) < 0) {
        return r;
    }
    output_document(answer, as_json);
    return 0;
}
