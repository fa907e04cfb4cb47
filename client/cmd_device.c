/* ipuctl device ...: its state, and the operators' verbs. */
#include <string.h>

#include "base/cleanup.h"
#include "client/commands.h"
#include "client/http.h"
#include "client/output.h"

static void decref_cleanup(json_t **j) {
    json_decref(*j);
}

int cmd_device(const struct args *a, struct err *err) {
    CLEANUP(http_cleanup) struct http *h = NULL;
    CLEANUP(decref_cleanup) json_t *device = NULL;
    bool as_json;
    int r = args_is_json(a, &as_json, err);
    if (r < 0 || (r = http_open(a->socket, &h, err)) < 0 ||
        (r = http_get(h, "/v1/device", &device, err)) < 0) {
        return r;
    }
    output_document(device, as_json);
    return 0;
}

int cmd_device_verb(const struct args *a, struct err *err) {
    CLEANUP(http_cleanup) struct http *h = NULL;
    CLEANUP(decref_cleanup) json_t *answer = NULL;
    CLEANUP(decref_cleanup) json_t *body = NULL;
    const char *reason = args_value(a, "reason");
    char path[64];
    bool as_json;
    snprintf(path, sizeof path, "/v1/device/%s", strchr(a->command->name, ' ') + 1);
    int r = args_is_json(a, &as_json, err);
    if (r < 0) {
        return r;
    }
    if (reason != NULL && (body = json_pack("{s:s}", "reason", reason)) == NULL) {
        return err_set(err, ERR_USAGE, "--reason: a text in UTF-8 is expected");
    }
    if ((r = http_open(a->socket, &h, err)) < 0 ||
        (r = http_json(h, "POST", path, NULL, body, &answer, err)) < 0) {
        return r;
    }
    output_document(answer, as_json);
    return 0;
}
