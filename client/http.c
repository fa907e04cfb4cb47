/* See http.h. One transfer at a time on a multi handle, because only that wakes for a signal. */
#include "client/http.h"

#include <curl/curl.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/monotonic.h"
#include "proto/proto.h"

struct http {
    char *socket;
    CURL *easy;
    CURLM *multi;
    int signal_fd; /* -1 = SIGINT ends the process */
    bool is_interrupted;
    uint64_t deadline_ms;
};

/* Where an answer's body goes. */
struct sink {
    struct http *http;
    char *data; /* gathered: the answer, a line not yet complete, or an error's body */
    size_t size, room, limit;
    int fd; /* of a download, else -1 */
    int (*line)(const char *text, size_t n, void *arg);
    void *arg;
    bool is_stopped; /* by line() */
    struct err err;  /* why write() failed */
};

static void free_list(struct curl_slist **list) {
    curl_slist_free_all(*list);
}

static void decref_cleanup(json_t **j) {
    json_decref(*j);
}

int http_open(const char *socket, struct http **ret, struct err *err) {
    if (strlen(socket) > HTTP_SOCKET_MAX) {
        return err_set(
            err, ERR_USAGE, "socket path of %zu bytes, at most %d: '%.120s'", strlen(socket),
            HTTP_SOCKET_MAX, socket);
    }
    if (socket[0] == '\0') {
        return err_set(err, ERR_USAGE, "the socket path is empty");
    }
    struct http *h = calloc(1, sizeof *h);
    if (h == NULL) {
        return err_set(err, ERR_NOMEM, NULL);
    }
    h->signal_fd = -1;
    h->socket = strdup(socket);
    h->easy = curl_easy_init();
    h->multi = curl_multi_init();
    if (h->socket == NULL || h->easy == NULL || h->multi == NULL) {
        http_close(h);
        return err_set(err, ERR_NOMEM, NULL);
    }
    *ret = h;
    return 0;
}

void http_close(struct http *h) {
    if (h != NULL) {
        curl_easy_cleanup(h->easy);
        curl_multi_cleanup(h->multi);
        cleanup_close(&h->signal_fd);
        free(h->socket);
        free(h);
    }
}

int http_watch_interrupt(struct http *h, struct err *err) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    if (h->signal_fd >= 0) {
        return 0;
    }
    h->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (h->signal_fd < 0) {
        return err_sys(err, ERR_INTERNAL, errno, "signal descriptor");
    }
    sigprocmask(SIG_BLOCK, &set, NULL);
    return 0;
}

bool http_is_interrupted(const struct http *h) {
    return h->is_interrupted;
}

void http_deadline(struct http *h, uint64_t until_ms) {
    h->deadline_ms = until_ms;
}

static bool is_late(const struct http *h) {
    return h->deadline_ms != 0 && monotonic_ms() >= h->deadline_ms;
}

static int wait_ms(const struct http *h, uint64_t most) {
    uint64_t now = monotonic_ms();
    uint64_t left = h->deadline_ms > now ? h->deadline_ms - now : 0;
    return (int)(h->deadline_ms != 0 && left < most ? left : most);
}

static int poll_once(struct http *h, int ms) {
    struct curl_waitfd extra = {h->signal_fd, CURL_WAIT_POLLIN, 0};
    bool has_signal = h->signal_fd >= 0;
    CURLMcode code =
        curl_multi_poll(h->multi, has_signal ? &extra : NULL, has_signal ? 1 : 0, ms, NULL);
    h->is_interrupted = h->is_interrupted || (has_signal && extra.revents != 0);
    return code == CURLM_OK ? 0 : -1;
}

void http_sleep(struct http *h, unsigned ms) {
    uint64_t until = monotonic_ms() + ms;
    for (uint64_t now; !h->is_interrupted && !is_late(h) && (now = monotonic_ms()) < until;) {
        if (poll_once(h, wait_ms(h, until - now)) < 0) {
            usleep(10000);
        }
    }
}

void http_path(char ret[HTTP_MAX_PATH], const char *before, const char *part, const char *after) {
    size_t at = (size_t)snprintf(ret, HTTP_MAX_PATH, "%s", before);
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "0123456789-._~:";
    for (; *part != '\0' && at + 4 < HTTP_MAX_PATH; part++) {
        if (strchr(plain, *part) != NULL) {
            ret[at++] = *part;
            ret[at] = '\0';
        } else {
            at += (size_t)snprintf(ret + at, 4, "%%%02X", (unsigned char)*part);
        }
    }
    snprintf(ret + at, HTTP_MAX_PATH - at, "%s", after);
}

/* ---- One transfer ------------------------------------------------------------------------ */

static int gather(struct sink *s, const char *data, size_t n) {
    if (n > s->limit - s->size) {
        return err_set(&s->err, ERR_PROTOCOL, "an answer of more than %zu bytes", s->limit);
    }
    if (s->size + n + 1 > s->room) {
        size_t room = 2 * (s->size + n + 1);
        char *grown = realloc(s->data, room);
        if (grown == NULL) {
            return err_set(&s->err, ERR_NOMEM, NULL);
        }
        s->data = grown;
        s->room = room;
    }
    memcpy(s->data + s->size, data, n);
    s->size += n;
    s->data[s->size] = '\0';
    return 0;
}

static int cut_lines(struct sink *s) {
    size_t from = 0;
    for (char *end; (end = memchr(s->data + from, '\n', s->size - from)) != NULL;) {
        *end = '\0';
        size_t n = (size_t)(end - s->data) - from;
        if (n > 0 && s->line(s->data + from, n, s->arg) != 0) {
            s->is_stopped = true;
            return -1;
        }
        from += n + 1;
    }
    memmove(s->data, s->data + from, s->size - from);
    s->size -= from;
    return 0;
}

static int write_all(struct sink *s, const char *data, size_t n) {
    while (n > 0) {
        ssize_t done = write(s->fd, data, n);
        if (done < 0 && errno != EINTR) {
            return err_sys(&s->err, ERR_IO, errno, "writing the answer");
        }
        if (done > 0) {
            data += done;
            n -= (size_t)done;
        }
    }
    return 0;
}

static size_t on_write(char *data, size_t one, size_t n, void *arg) {
    struct sink *s = arg;
    long status = 0;
    curl_easy_getinfo(s->http->easy, CURLINFO_RESPONSE_CODE, &status);
    bool is_good = status >= 200 && status < 300;
    int r;
    if (is_good && s->fd >= 0) {
        r = write_all(s, data, n);
    } else {
        r = gather(s, data, n);
        if (r == 0 && is_good && s->line != NULL) {
            r = cut_lines(s);
        }
    }
    return r == 0 ? n : 0;
}

struct request {
    const char *method, *path, *header;
    const char *body; /* NULL = none, or a file */
    size_t body_bytes;
    int file; /* -1 = none */
    uint64_t file_bytes;
    long also; /* a status that is no error, though 400 or more; 0 = none */
};

static size_t on_read(char *data, size_t one, size_t n, void *arg) {
    ssize_t got = read(*(const int *)arg, data, one * n);
    return got < 0 ? CURL_READFUNC_ABORT : (size_t)got;
}

static struct curl_slist *make_headers(const struct request *q) {
    struct curl_slist *list = curl_slist_append(NULL, "Accept: application/json, */*");
    if (q->body != NULL) {
        list = curl_slist_append(list, "Content-Type: application/json");
        list = curl_slist_append(list, "Expect:"); /* a job document is small */
    }
    if (q->file >= 0) {
        list = curl_slist_append(list, "Content-Type: application/octet-stream");
        list = curl_slist_append(list, "Expect: 100-continue");
    }
    return q->header != NULL ? curl_slist_append(list, q->header) : list;
}

static void set_up(struct http *h, const struct request *q, struct sink *s, const char *url) {
    CURL *e = h->easy;
    curl_easy_reset(e); /* the connection stays */
    curl_easy_setopt(e, CURLOPT_URL, url);
    curl_easy_setopt(e, CURLOPT_UNIX_SOCKET_PATH, h->socket);
    curl_easy_setopt(e, CURLOPT_PROXY, "");
    curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http");
    curl_easy_setopt(e, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, 10000L);
    curl_easy_setopt(e, CURLOPT_USERAGENT, "ipuctl/" PROTO_SERVER_VERSION);
    curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_write);
    curl_easy_setopt(e, CURLOPT_WRITEDATA, s);
    if (q->file >= 0) {
        curl_easy_setopt(e, CURLOPT_UPLOAD, 1L);
        curl_easy_setopt(e, CURLOPT_INFILESIZE_LARGE, (curl_off_t)q->file_bytes);
        curl_easy_setopt(e, CURLOPT_READFUNCTION, on_read);
        curl_easy_setopt(e, CURLOPT_READDATA, &q->file);
        curl_easy_setopt(e, CURLOPT_EXPECT_100_TIMEOUT_MS, 1000L);
    } else if (q->body != NULL) {
        curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)q->body_bytes);
        curl_easy_setopt(e, CURLOPT_POSTFIELDS, q->body);
    } else if (strcmp(q->method, "HEAD") == 0) {
        curl_easy_setopt(e, CURLOPT_NOBODY, 1L);
    }
    if (strcmp(q->method, "HEAD") != 0) {
        curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, q->method);
    }
}

static CURLcode drive(struct http *h) {
    int running = 1;
    CURLcode code = CURLE_ABORTED_BY_CALLBACK;
    if (curl_multi_add_handle(h->multi, h->easy) != CURLM_OK) {
        return CURLE_OUT_OF_MEMORY;
    }
    while (running > 0 && !h->is_interrupted && !is_late(h)) {
        if (curl_multi_perform(h->multi, &running) != CURLM_OK ||
            (running > 0 && poll_once(h, wait_ms(h, 1000)) < 0)) {
            break;
        }
    }
    int left;
    for (CURLMsg *m; (m = curl_multi_info_read(h->multi, &left)) != NULL;) {
        code = m->msg == CURLMSG_DONE ? m->data.result : code;
    }
    curl_multi_remove_handle(h->multi, h->easy);
    return code;
}

static int transfer_error(
    struct http *h, const struct request *q, const struct sink *s, CURLcode code, struct err *err) {
    if (s->err.code != 0) {
        *err = s->err;
        return -err->code;
    }
    if (h->is_interrupted) {
        return err_set(err, ERR_CANCELLED, "interrupted");
    }
    if (code == CURLE_ABORTED_BY_CALLBACK && is_late(h)) {
        return err_set(err, ERR_TIMEOUT, NULL);
    }
    if (code == CURLE_COULDNT_CONNECT || code == CURLE_COULDNT_RESOLVE_HOST) {
        int r = http_explain(h->socket, err);
        return r < 0
                   ? r
                   : err_set(
                         err, ERR_UNREACHABLE, "no connection to '%s': tried too soon", h->socket);
    }
    return err_set(
        err, ERR_UNREACHABLE, "%s %.200s: %s", q->method, q->path, curl_easy_strerror(code));
}

/* An answer that is no problem document: the error that its status is nearest to. */
static int status_error(const struct request *q, long status, struct err *err) {
    static const struct {
        long status;
        enum err_code code;
    } rows[] = {
        {400, ERR_INVALID},    {401, ERR_PERMISSION}, {403, ERR_PERMISSION},
        {404, ERR_NOT_FOUND},  {405, ERR_METHOD},     {410, ERR_GONE},
        {413, ERR_TOO_LARGE},  {414, ERR_TOO_LARGE},  {415, ERR_UNSUPPORTED_MEDIA},
        {429, ERR_QUOTA_JOBS}, {431, ERR_TOO_LARGE},  {503, ERR_DRAINING},
        {507, ERR_DISK_FULL},
    };
    enum err_code code = ERR_PROTOCOL;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        code = rows[i].status == status ? rows[i].code : code;
    }
    return err_set(
        err, code, "%s %.200s: status %ld without a problem document", q->method, q->path, status);
}

static int perform(
    struct http *h, const struct request *q, struct sink *s, long *ret_status, struct err *err) {
    char url[HTTP_MAX_PATH + 16];
    snprintf(url, sizeof url, "http://ipud%s", q->path);
    CLEANUP(free_list) struct curl_slist *headers = make_headers(q);
    s->http = h;
    s->limit = s->line != NULL ? HTTP_MAX_LINE : HTTP_MAX_ANSWER;
    set_up(h, q, s, url);
    curl_easy_setopt(h->easy, CURLOPT_HTTPHEADER, headers);
    CURLcode code = drive(h);
    long status = 0;
    curl_easy_getinfo(h->easy, CURLINFO_RESPONSE_CODE, &status);
    bool is_refused =
        status >= 400 && status != q->also; /* readable even when sending the rest failed */
    if (code != CURLE_OK && !s->is_stopped && !(is_refused && s->err.code == 0)) {
        return transfer_error(h, q, s, code, err);
    }
    *ret_status = status;
    if (!is_refused || strcmp(q->method, "HEAD") == 0) {
        return status < 300 || is_refused || status == q->also ? 0 : status_error(q, status, err);
    }
    CLEANUP(decref_cleanup) json_t *problem = NULL;
    struct err found;
    if (s->size == 0 || proto_json_parse(s->data, s->size, &problem, NULL) < 0) {
        return status_error(q, status, err);
    }
    proto_problem_parse(problem, &found);
    if (found.code == ERR_PROTOCOL) {
        return status_error(q, status, err);
    }
    *err = found;
    return -err->code;
}

/* ---- Calls ------------------------------------------------------------------------------- */

static int answer_json(const struct request *q, struct sink *s, json_t **ret, struct err *err) {
    if (ret == NULL) {
        return 0;
    }
    *ret = NULL;
    if (s->size == 0) {
        return 0;
    }
    struct err why;
    if (proto_json_parse(s->data, s->size, ret, &why) < 0) {
        return err_set(
            err, ERR_PROTOCOL, "%s %.200s: the answer is no JSON: %s", q->method, q->path,
            why.text);
    }
    return 0;
}

int http_json(
    struct http *h, const char *method, const char *path, const char *header, const json_t *body,
    json_t **ret, struct err *err) {
    CLEANUP(cleanup_free) char *text = body != NULL ? json_dumps(body, JSON_COMPACT) : NULL;
    if (body != NULL && text == NULL) {
        return err_set(err, ERR_NOMEM, NULL);
    }
    struct sink s = {.fd = -1};
    long status = 0;
    bool is_post = strcmp(method, "POST") == 0;
    const char *sent = text == NULL && is_post ? "" : text;
    struct request q = {method, path, header, sent, sent != NULL ? strlen(sent) : 0, -1, 0, 0};
    int r = perform(h, &q, &s, &status, err);
    if (r == 0) {
        r = answer_json(&q, &s, ret, err);
    }
    free(s.data);
    return r;
}

int http_get(struct http *h, const char *path, json_t **ret, struct err *err) {
    return http_get_also(h, path, 0, ret, err);
}

int http_get_also(struct http *h, const char *path, long status, json_t **ret, struct err *err) {
    struct sink s = {.fd = -1};
    long found = 0;
    struct request q = {"GET", path, NULL, NULL, 0, -1, 0, status};
    int r = perform(h, &q, &s, &found, err);
    if (r == 0) {
        r = answer_json(&q, &s, ret, err);
    }
    free(s.data);
    if (r == 0 && *ret == NULL) {
        r = err_set(err, ERR_PROTOCOL, "GET %.200s: an empty answer", path);
    }
    return r;
}

int http_head(struct http *h, const char *path, long *ret_status, struct err *err) {
    struct sink s = {.fd = -1};
    struct request q = {"HEAD", path, NULL, NULL, 0, -1, 0, 0};
    int r = perform(h, &q, &s, ret_status, err);
    free(s.data);
    return r;
}

int http_put(
    struct http *h, const char *path, int fd, uint64_t size, json_t **ret, struct err *err) {
    struct sink s = {.fd = -1};
    long status = 0;
    if (lseek(fd, 0, SEEK_SET) != 0) {
        return err_sys(err, ERR_IO, errno, "file to send");
    }
    struct request q = {"PUT", path, NULL, NULL, 0, fd, size, 0};
    int r = perform(h, &q, &s, &status, err);
    if (r == 0) {
        r = answer_json(&q, &s, ret, err);
    }
    free(s.data);
    return r;
}

int http_download(struct http *h, const char *path, int fd, struct err *err) {
    struct sink s = {.fd = fd};
    long status = 0;
    struct request q = {"GET", path, NULL, NULL, 0, -1, 0, 0};
    int r = perform(h, &q, &s, &status, err);
    free(s.data);
    return r;
}

int http_lines(
    struct http *h, const char *path, int (*line)(const char *text, size_t n, void *arg), void *arg,
    struct err *err) {
    struct sink s = {.fd = -1, .line = line, .arg = arg};
    long status = 0;
    struct request q = {"GET", path, NULL, NULL, 0, -1, 0, 0};
    int r = perform(h, &q, &s, &status, err);
    free(s.data);
    return r;
}
