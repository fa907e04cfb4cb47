/* Profiles of jobs: the store thread writes the file into the job's staging folder, makes it a blob
 * that the job pins (so it stays and goes with the outputs), and keeps the report beside it.
 * Nothing here fails a job. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "daemon/jobs.h"

struct profile_op {
    struct store_op op;
    struct jobs *jobs;
    char id[PROTO_ID_CHARS + 1];
    uid_t uid;
    struct profile *profile; /* owned */
    json_t *cycles;          /* owned: one number a run */
    uint64_t bytes;
    uint32_t samples;
};

static int write_file(struct profile_op *p, struct cache *c, struct digest *ret, struct err *err) {
    char path[4400], name[96];
    snprintf(name, sizeof name, "staging/%s/profile.ipuprof", p->id);
    snprintf(path, sizeof path, "%s/%s", cache_dir(c), name);
    unlink(path);
    int r = profile_write(p->profile, path, err);
    r = r < 0 ? r : cache_blob_adopt(c, name, p->uid, ret, &p->bytes, err);
    return r < 0 ? r : cache_job_pin_blob(c, p->id, ret, err);
}

static int profile_run(struct store_op *op, struct cache *c, struct err *err) {
    struct profile_op *p = (struct profile_op *)op;
    struct digest file;
    char digest[8 + DIGEST_HEX] = "sha256:";
    int r = write_file(p, c, &file, err);
    if (r < 0) {
        return r;
    }
    digest_hex(&file, digest + 7);
    json_t *report = profile_report(p->profile);
    if (report != NULL) {
        json_object_set_new(report, "job", json_string(p->id));
        json_object_set(report, "device_cycles", p->cycles);
        json_object_set_new(
            report, "file",
            json_pack("{s:s, s:I}", "digest", digest, "bytes", (json_int_t)p->bytes));
    }
    CLEANUP(cleanup_free)
    char *body = report != NULL ? json_dumps(report, JSON_COMPACT | JSON_REAL_PRECISION(6)) : NULL;
    json_decref(report);
    return body != NULL ? cache_profile_put(c, p->id, body, err) : err_set(err, ERR_NOMEM, NULL);
}

static void profile_done(struct store_op *op) {
    struct profile_op *p = (struct profile_op *)op;
    if (op->result < 0) {
        log_warning("runs", "profile not stored job=%s reason=\"%s\"", p->id, op->err.text);
    } else {
        char path[96];
        snprintf(path, sizeof path, "/v1/jobs/%s/profile?format=ipuprof", p->id);
        job_event(
            p->jobs, p->id, "result.profile", "profile stored",
            json_pack(
                "{s:s, s:I, s:I, s:I}", "profile", path, "tiles",
                (json_int_t)p->profile->participants, "samples",
                (json_int_t)p->profile->sample_count, "bytes", (json_int_t)p->bytes));
    }
    profile_free(p->profile);
    json_decref(p->cycles);
    free(p);
}

void profiles_store(struct jobs *js, struct job *j, struct run_task *t) {
    struct profile_op *p = t->profile != NULL ? calloc(1, sizeof *p) : NULL;
    if (p == NULL) {
        return;
    }
    strcpy(p->id, j->id);
    p->uid = j->uid;
    p->jobs = js;
    p->profile = TAKE(t->profile);
    p->cycles = json_incref(j->cycles);
    p->op.run = profile_run;
    p->op.done = profile_done;
    store_submit(js->daemon->store, &p->op);
}
