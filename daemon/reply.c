/* Struct, text or error to response. Every reply carries the request's id and the version. */
#include <stdlib.h>
#include <string.h>

#include "daemon/request.h"

void reply_header(struct MHD_Response *response, const char *name, const char *value) {
    if (value != NULL) {
        MHD_add_response_header(response, name, value);
    }
}

void reply_response(struct request *r, unsigned status, struct MHD_Response *response) {
    if (response == NULL) {
        response = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
        status = 500;
    }
    if (response == NULL) {
        return; /* memory is out altogether: the connection's deadline ends it */
    }
    reply_header(response, "Server", "ipud/" PROTO_SERVER_VERSION);
    reply_header(response, "Api-Version", PROTO_API_VERSION);
    reply_header(response, "X-Request-Id", r->id);
    reply_header(response, "X-Content-Type-Options", "nosniff");
    if (MHD_get_response_header(response, "Cache-Control") == NULL) {
        reply_header(response, "Cache-Control", "no-store");
    }
    r->response = response;
    r->status = status;
    request_resume(r);
}

struct MHD_Response *reply_json_response(json_t *body) {
    char *text = body != NULL ? json_dumps(body, JSON_COMPACT | JSON_REAL_PRECISION(12)) : NULL;
    json_decref(body);
    if (text == NULL) {
        return NULL;
    }
    size_t n = strlen(text);
    text[n] = '\n'; /* the place of the final 0, which the wire does not need */
    struct MHD_Response *response =
        MHD_create_response_from_buffer(n + 1, text, MHD_RESPMEM_MUST_FREE);
    if (response == NULL) {
        free(text);
        return NULL;
    }
    reply_header(response, "Content-Type", "application/json");
    return response;
}

void reply_json(struct request *r, unsigned status, json_t *body) {
    reply_response(r, status, reply_json_response(body));
}

void reply_err(struct request *r, const struct err *err) {
    json_t *problem = proto_problem_print(err, r->id, r->raw_target);
    struct MHD_Response *response = reply_json_response(problem);
    unsigned status = (unsigned)err_http(err->code);
    if (response != NULL) {
        MHD_del_response_header(response, "Content-Type", "application/json");
        reply_header(response, "Content-Type", "application/problem+json");
        if (err->code == ERR_METHOD) {
            reply_header(response, "Allow", err->where);
        }
        if (status == 429 || status == 503) {
            reply_header(response, "Retry-After", "2");
        }
    }
    reply_response(r, status, response);
}

void reply_text(struct request *r, unsigned status, const char *type, const char *text) {
    struct MHD_Response *response =
        MHD_create_response_from_buffer(strlen(text), (void *)text, MHD_RESPMEM_MUST_COPY);
    if (response != NULL) {
        reply_header(response, "Content-Type", type);
    }
    reply_response(r, status, response);
}

void reply_empty(struct request *r, unsigned status) {
    reply_response(r, status, MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT));
}
