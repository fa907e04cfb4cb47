/* Bodies of requests: JSON under the API's limits, then the job document. What is accepted prints
 * to a document that is accepted as the same job; what is refused says where. */
#include <jansson.h>
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

static int count_blob(const struct digest *blob, const char *pointer, void *arg) {
    require(pointer[0] == '/');
    ++*(size_t *)arg;
    return 0;
}

static void check_same(const struct proto_job *job, json_t *printed) {
    struct proto_job again;
    require(printed != NULL && proto_job_parse(printed, &again, NULL) == 0);
    require((job->name == NULL) == (again.name == NULL));
    require(job->name == NULL || strcmp(job->name, again.name) == 0);
    require(job->hold == again.hold && job->has_package == again.has_package);
    require(job->inputs == again.inputs && job->labels == again.labels);
    size_t blobs = 0, blobs_again = 0;
    proto_job_blobs(job, count_blob, &blobs);
    proto_job_blobs(&again, count_blob, &blobs_again);
    require(blobs == blobs_again);
    json_t *twice = proto_job_print(&again);
    require(json_equal(printed, twice));
    json_decref(twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    json_t *document = NULL;
    struct err err = {0};
    struct proto_job job;
    if (proto_json_parse((const char *)data, size, &document, &err) < 0) {
        require(err.code != 0 && err.text[0] != '\0');
        return 0;
    }
    if (proto_job_parse(document, &job, &err) == 0) {
        json_t *printed = proto_job_print(&job);
        check_same(&job, printed);
        json_decref(printed);
    } else {
        require(err.code == ERR_BAD_JOB && err.text[0] != '\0');
    }
    json_decref(document);
    return 0;
}
