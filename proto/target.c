/* Request targets and the route table.
 *
 * The raw target is read here, not the library's decoded path: that one is cut at %00 and has
 * already turned %2F into a separator. Splitting comes before decoding, so nothing that a
 * client encodes can make a segment. One pass over the bytes; the copy is never longer than the
 * raw text. */
#include "proto/proto.h"

#include <stdio.h>
#include <string.h>

static int hex_value(char c) {
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Decodes raw[0..n) to *out, ends it with 0 and moves *out past that. */
static int decode(const char *raw, size_t n, bool is_query, char **out, struct err *err) {
    char *to = *out;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)raw[i];
        if (c == '%') {
            int high = n - i > 2 ? hex_value(raw[i + 1]) : -1;
            int low = high >= 0 ? hex_value(raw[i + 2]) : -1;
            if (low < 0) {
                return err_set(err, ERR_INVALID, "broken escape in the request target");
            }
            c = (unsigned char)(high << 4 | low);
            i += 2;
            if (!is_query && (c == '/' || c == '\\')) {
                return err_set(err, ERR_INVALID, "encoded separator in the request target");
            }
        } else if (is_query && c == '+') {
            c = ' ';
        }
        if (c < 0x20 || c == 0x7f) {
            return err_set(err, ERR_INVALID, "control byte in the request target");
        }
        *to++ = (char)c;
    }
    *to++ = '\0';
    *out = to;
    return 0;
}

static int
add_segment(struct proto_target *t, const char *raw, size_t n, char **out, struct err *err) {
    if (n == 0) {
        return err_set(err, ERR_INVALID, "empty segment in the request target");
    }
    if (t->segment_count == PROTO_MAX_SEGMENTS) {
        return err_set(err, ERR_NOT_FOUND, "more than %d segments in the path", PROTO_MAX_SEGMENTS);
    }
    const char *segment = *out;
    int r = decode(raw, n, false, out, err);
    if (r < 0) {
        return r;
    }
    if (strcmp(segment, ".") == 0 || strcmp(segment, "..") == 0) {
        return err_set(err, ERR_INVALID, "'%s' in the request target", segment);
    }
    t->segments[t->segment_count++] = segment;
    return 0;
}

static int
add_query(struct proto_target *t, const char *raw, size_t n, char **out, struct err *err) {
    if (t->query_count == PROTO_MAX_QUERY) {
        return err_set(err, ERR_INVALID, "more than %d query parameters", PROTO_MAX_QUERY);
    }
    const char *equals = memchr(raw, '=', n);
    size_t name_bytes = equals != NULL ? (size_t)(equals - raw) : n;
    struct proto_pair pair = {.name = *out};
    int r = decode(raw, name_bytes, true, out, err);
    if (r < 0) {
        return r;
    }
    pair.value = *out;
    size_t skipped = equals != NULL ? name_bytes + 1 : n;
    r = decode(raw + skipped, n - skipped, true, out, err);
    if (r < 0) {
        return r;
    }
    if (proto_target_query(t, pair.name) != NULL) {
        return err_set(err, ERR_INVALID, "query parameter '%.40s' is given twice", pair.name);
    }
    t->query[t->query_count++] = pair;
    return 0;
}

int proto_target_parse(const char *raw, size_t n, struct proto_target *ret, struct err *err) {
    memset(ret, 0, sizeof *ret);
    if (n > PROTO_MAX_TARGET_BYTES) {
        return err_set(
            err, ERR_INVALID, "request target of %zu bytes, at most %d", n, PROTO_MAX_TARGET_BYTES);
    }
    if (n == 0 || raw[0] != '/' || memchr(raw, '#', n) != NULL || memchr(raw, '\0', n) != NULL) {
        return err_set(err, ERR_INVALID, "request target is no absolute path");
    }
    const char *question = memchr(raw, '?', n);
    size_t path_bytes = question != NULL ? (size_t)(question - raw) : n;
    char *out = ret->storage;
    for (size_t at = 1; at < path_bytes;) {
        const char *slash = memchr(raw + at, '/', path_bytes - at);
        size_t end = slash != NULL ? (size_t)(slash - raw) : path_bytes;
        int r = add_segment(ret, raw + at, end - at, &out, err);
        if (r < 0) {
            return r;
        }
        at = end + 1;
        if (slash != NULL && at == path_bytes) {
            return err_set(err, ERR_INVALID, "request target ends in a slash");
        }
    }
    for (size_t at = path_bytes + 1; question != NULL && at < n;) {
        const char *ampersand = memchr(raw + at, '&', n - at);
        size_t end = ampersand != NULL ? (size_t)(ampersand - raw) : n;
        if (end > at) {
            int r = add_query(ret, raw + at, end - at, &out, err);
            if (r < 0) {
                return r;
            }
        }
        at = end + 1;
    }
    return 0;
}

const char *proto_target_query(const struct proto_target *t, const char *name) {
    for (size_t i = 0; i < t->query_count; i++) {
        if (strcmp(t->query[i].name, name) == 0) {
            return t->query[i].value;
        }
    }
    return NULL;
}

/* ---- Routes ------------------------------------------------------------------------------ */

static const struct proto_route routes[] = {
#define ROUTE(id, method, path, body, limit, role, summary)                                        \
    [PROTO_ROUTE_##id] = {PROTO_ROUTE_##id,  #id,   PROTO_##method, path,                          \
                          PROTO_BODY_##body, limit, PROTO_##role,   summary},
#include "proto/routes.def"
#undef ROUTE
};

_Static_assert(sizeof routes / sizeof routes[0] == PROTO_ROUTE_COUNT, "one row a route");

const struct proto_route *proto_route(enum proto_route_id id) {
    return &routes[id];
}

const char *proto_method_name(enum proto_method m) {
    static const char *const names[] = {"GET", "PUT", "POST", "DELETE"};
    return names[m];
}

static const struct {
    enum proto_route_id route;
    const char *name, *summary;
} queries[] = {
#define QUERY(route, name, summary) {PROTO_ROUTE_##route, #name, summary},
#include "proto/queries.def"
#undef QUERY
};

#define QUERIES (sizeof queries / sizeof queries[0])

static bool query_known(const struct proto_route *route, const char *name) {
    for (size_t i = 0; i < QUERIES; i++) {
        if (queries[i].route == route->id && strcmp(queries[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

int proto_query_check(
    const struct proto_route *route, const struct proto_target *t, struct err *err) {
    for (size_t i = 0; i < t->query_count; i++) {
        if (query_known(route, t->query[i].name)) {
            continue;
        }
        char known[160] = "";
        for (size_t k = 0; k < QUERIES; k++) {
            size_t used = strlen(known);
            if (queries[k].route == route->id) {
                snprintf(
                    known + used, sizeof known - used, "%s%s", used > 0 ? ", " : "",
                    queries[k].name);
            }
        }
        return err_at(
            err, ERR_INVALID, t->query[i].name,
            "unknown query parameter '%.40s'; this route has %s", t->query[i].name,
            known[0] != '\0' ? known : "none");
    }
    return 0;
}

static bool path_matches(const char *path, const struct proto_target *t, struct proto_match *ret) {
    ret->param_count = 0;
    for (size_t i = 0; i < t->segment_count; i++) {
        if (*path++ != '/') {
            return false;
        }
        size_t n = strcspn(path, "/");
        if (path[0] == '{') {
            ret->params[ret->param_count++] = t->segments[i];
        } else if (strlen(t->segments[i]) != n || memcmp(t->segments[i], path, n) != 0) {
            return false;
        }
        path += n;
    }
    return *path == '\0' && t->segment_count > 0;
}

int proto_route_match(
    const char *method, const struct proto_target *t, struct proto_match *ret, struct err *err) {
    char allowed[64] = "";
    bool is_head = strcmp(method, "HEAD") == 0;
    for (size_t i = 0; i < PROTO_ROUTE_COUNT; i++) {
        const char *name = proto_method_name(routes[i].method);
        struct proto_match match = {.route = &routes[i]};
        if (!path_matches(routes[i].path, t, &match)) {
            continue;
        }
        if (strcmp(name, is_head ? "GET" : method) == 0) {
            *ret = match;
            return 0;
        }
        size_t used = strlen(allowed);
        snprintf(
            allowed + used, sizeof allowed - used, "%s%s%s", used > 0 ? ", " : "", name,
            routes[i].method == PROTO_GET ? ", HEAD" : "");
    }
    if (allowed[0] != '\0') {
        return err_at(err, ERR_METHOD, allowed, "%.16s is not allowed here: %s", method, allowed);
    }
    if (t->segment_count > 0 && t->segments[0][0] == 'v' && strcmp(t->segments[0], "v1") != 0) {
        return err_set(
            err, ERR_NOT_FOUND, "API version '%.16s' is not spoken: %s to %s", t->segments[0],
            PROTO_API_MIN_VERSION, PROTO_API_VERSION);
    }
    return err_set(err, ERR_NOT_FOUND, "no such route");
}

/* ---- OpenAPI ----------------------------------------------------------------------------- */

static json_t *openapi_parameters(const struct proto_route *route) {
    json_t *list = json_array();
    for (const char *open = strchr(route->path, '{'); open != NULL; open = strchr(open + 1, '{')) {
        size_t n = strcspn(open + 1, "}");
        json_array_append_new(
            list, json_pack(
                      "{s:s%, s:s, s:b, s:{s:s}}", "name", open + 1, n, "in", "path", "required", 1,
                      "schema", "type", "string"));
    }
    for (size_t i = 0; i < QUERIES; i++) {
        if (queries[i].route == route->id) {
            json_array_append_new(
                list, json_pack(
                          "{s:s, s:s, s:s, s:{s:s}}", "name", queries[i].name, "in", "query",
                          "description", queries[i].summary, "schema", "type", "string"));
        }
    }
    return list;
}

static json_t *openapi_operation(const struct proto_route *r) {
    static const char *const roles[] = {"any", "owner", "operator"};
    json_t *o = json_pack(
        "{s:s, s:s, s:s, s:o, s:{s:{s:s}, s:{s:s, s:{s:{}}}}}", "operationId", r->name, "summary",
        r->summary, "x-ipud-role", roles[r->role], "parameters", openapi_parameters(r), "responses",
        "2XX", "description", "done or accepted", "default", "description", "problem document",
        "content", "application/problem+json");
    if (r->body != PROTO_BODY_NONE) {
        json_object_set_new(
            o, "requestBody",
            json_pack(
                "{s:b, s:{s:{}}}", "required", r->limit > PROTO_MAX_VERB_BYTES, "content",
                r->body == PROTO_BODY_JSON ? "application/json" : "application/octet-stream"));
        json_object_set_new(o, "x-ipud-limit-bytes", json_integer((json_int_t)r->limit));
    }
    return o;
}

json_t *proto_openapi(void) {
    json_t *paths = json_object();
    for (size_t i = 0; i < PROTO_ROUTE_COUNT; i++) {
        json_t *path = json_object_get(paths, routes[i].path);
        if (path == NULL) {
            path = json_object();
            json_object_set_new(paths, routes[i].path, path);
        }
        static const char *const verbs[] = {"get", "put", "post", "delete"};
        json_object_set_new(path, verbs[routes[i].method], openapi_operation(&routes[i]));
    }
    return json_pack(
        "{s:s, s:{s:s, s:s}, s:o}", "openapi", "3.1.0", "info", "title", "ipud", "version",
        PROTO_API_VERSION, "paths", paths);
}
