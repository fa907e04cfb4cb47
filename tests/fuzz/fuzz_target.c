/* Request targets: parsing, decoding, matching. Whatever is accepted is well formed. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/proto.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition) {
    if (!condition) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const methods[] = {"GET", "HEAD", "PUT", "POST", "DELETE", "PATCH"};
    struct proto_target target;
    struct err err;
    if (proto_target_parse((const char *)data, size, &target, &err) < 0) {
        require(err.code != 0 && err.text[0] != '\0');
        return 0;
    }
    for (size_t i = 0; i < target.segment_count; i++) {
        const char *s = target.segments[i];
        require(s[0] != '\0' && strcmp(s, ".") != 0 && strcmp(s, "..") != 0);
        for (const char *c = s; *c != '\0'; c++) {
            require((unsigned char)*c >= 0x20 && *c != '/' && *c != 0x7f);
        }
    }
    for (size_t i = 0; i < target.query_count; i++) {
        require(proto_target_query(&target, target.query[i].name) == target.query[i].value);
        uint64_t ms;
        (void)proto_duration_parse(target.query[i].value, &ms, NULL);
    }
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        struct proto_match match;
        if (proto_route_match(methods[i], &target, &match, &err) == 0) {
            for (size_t p = 0; p < match.param_count; p++) {
                require(match.params[p][0] != '\0');
            }
        } else {
            require(err.code == ERR_NOT_FOUND || err.code == ERR_METHOD);
        }
    }
    return 0;
}
