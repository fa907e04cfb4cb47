/* The device, what is resident on it, and the operators' verbs. Everything is answered from the
 * runner's last state: a device that hangs cannot hang these. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "daemon/handlers.h"

static json_t *resident_json(struct request *r, const struct runner_status *s) {
    if (!s->has_resident) {
        return json_null();
    }
    char digest[8 + DIGEST_HEX] = "sha256:";
    char since[PROTO_TIME_CHARS + 1];
    digest_hex(&s->resident, digest + 7);
    proto_time_print(s->resident_since_ms, since);
    json_t *o = json_pack("{s:s, s:s}", "digest", digest, "since", since);
    if (r->connection->peer.is_operator) { /* whose it is concerns nobody else */
        json_object_set_new(o, "job", json_string(s->resident_job));
    }
    return o;
}

void on_device(struct request *r) {
    struct daemon *d = r->daemon;
    struct runner_status s;
    runner_status(d->runner, &s);
    const struct job *j = d->jobs->running;
    const struct peer *peer = &r->connection->peer;
    bool may_see = j != NULL && (peer->is_operator || j->uid == peer->uid);
    reply_json(
        r, 200,
        json_pack(
            "{s:s, s:s, s:s, s:s, s:o, s:o, s:b, s:I, s:I, s:I, s:I}", "device", d->config.device,
            "state", runner_state_name(s.state), "detail", s.detail, "lock", d->config.lock,
            "resident", resident_json(r, &s), "job", may_see ? json_string(j->id) : json_null(),
            "paused", d->is_paused, "loads", (json_int_t)s.loads, "runs", (json_int_t)s.runs,
            "resets", (json_int_t)s.resets, "busy_ms", (json_int_t)s.busy_ms));
}

void on_programs(struct request *r) {
    struct runner_status s;
    runner_status(r->daemon->runner, &s);
    json_t *resident = resident_json(r, &s);
    json_t *items = json_array();
    if (json_is_object(resident)) {
        json_object_set_new(resident, "state", json_string(runner_state_name(s.state)));
        json_array_append(items, resident);
    }
    json_decref(resident);
    reply_json(r, 200, json_pack("{s:o}", "items", items));
}

/* ---- Verbs ------------------------------------------------------------------------------- */

/* {"reason": "..."}, or no body. */
static int read_reason(const struct request *r, const char **ret, struct err *err) {
    const json_t *reason = json_object_get(r->json, "reason");
    *ret = json_string_value(reason);
    if (r->json == NULL) {
        *ret = "";
        return 0;
    }
    if (!json_is_object(r->json) || json_object_size(r->json) != 1 || *ret == NULL ||
        json_string_length(reason) > PROTO_MAX_NAME) {
        return err_at(
            err, ERR_BAD_JOB, "/reason", "only reason, a text of at most %d bytes, is understood",
            PROTO_MAX_NAME);
    }
    return 0;
}

struct reset_request {
    struct runner_reset reset;
    struct request *request;
};

static void on_reset_done(struct letter *letter) {
    struct reset_request *q = (struct reset_request *)letter;
    if (q->reset.result < 0) {
        reply_err(q->request, &q->reset.err);
    } else {
        reply_json(q->request, 200, json_pack("{s:s}", "state", "ready"));
    }
    jobs_pump(q->request->daemon->jobs);
    free(q);
}

void on_device_reset(struct request *r) {
    struct err err;
    const char *reason;
    if (read_reason(r, &reason, &err) < 0) {
        reply_err(r, &err);
        return;
    }
    struct reset_request *q = calloc(1, sizeof *q);
    if (q == NULL) {
        err_set(&err, ERR_NOMEM, NULL);
        reply_err(r, &err);
        return;
    }
    log_notice(
        "device", "reset asked for uid=%d reason=\"%s\"", (int)r->connection->peer.uid, reason);
    q->reset.letter.deliver = on_reset_done;
    q->request = r;
    runner_reset(r->daemon->runner, &q->reset);
}

static void pause_device(struct request *r, bool is_paused) {
    struct err err;
    struct daemon *d = r->daemon;
    const char *reason;
    if (read_reason(r, &reason, &err) < 0) {
        reply_err(r, &err);
        return;
    }
    d->is_paused = is_paused;
    snprintf(
        d->pause_reason, sizeof d->pause_reason, "%s",
        reason[0] != '\0' ? reason : "paused by an operator");
    log_notice(
        "device", "%s uid=%d reason=\"%s\"", is_paused ? "paused" : "resumed",
        (int)r->connection->peer.uid, reason);
    jobs_pump(d->jobs);
    reply_json(r, 200, json_pack("{s:b}", "paused", is_paused));
}

void on_device_drain(struct request *r) {
    pause_device(r, true);
}

void on_device_resume(struct request *r) {
    pause_device(r, false);
}
