/* See workers.h. Between fork and exec the child makes system calls only. */
#include "daemon/workers.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/monotonic.h"

struct worker {
    struct daemon *daemon;
    pid_t pid;
    int pidfd;
    int pipe;
    sd_event_source *on_pipe, *on_exit, *on_time;
    uint64_t deadline_ms; /* of the whole, 0 = none */
    uint64_t silence_ms;  /* most between two events, 0 = none */
    uint64_t heard_ms;
    char *line; /* owned */
    size_t used, size;
    json_t *last;              /* result or error event, owned */
    struct err killed;         /* why we killed it; code 0 = we did not */
    struct worker_order order; /* callbacks only */
};

static void worker_free(struct worker *w) {
    sd_event_source_disable_unref(w->on_pipe);
    sd_event_source_disable_unref(w->on_exit);
    sd_event_source_disable_unref(w->on_time);
    cleanup_close(&w->pidfd);
    cleanup_close(&w->pipe);
    json_decref(w->last);
    free(w->line);
    free(w);
}

static void kill_group(struct worker *w) {
    /* The leader is not reaped yet, so neither its pid nor its group can be another's. */
    kill(-w->pid, SIGKILL);
    kill(w->pid, SIGKILL);
}

static void give_up(struct worker *w, enum err_code code, const char *text) {
    if (w->killed.code == 0) {
        err_set(&w->killed, code, "%s", text);
        kill_group(w);
    }
}

void workers_kill(struct worker *w) {
    give_up(w, ERR_CANCELLED, "cancelled");
}

/* ---- Events ------------------------------------------------------------------------------ */

static void take_line(struct worker *w, const char *line, size_t n) {
    json_t *event = json_loadb(line, n, JSON_REJECT_DUPLICATES, NULL);
    const char *name = json_string_value(json_object_get(event, "event"));
    if (name == NULL) {
        give_up(w, ERR_PROTOCOL, "the compile worker sent a line that is no event");
        json_decref(event);
        return;
    }
    if (strcmp(name, "result") == 0 || strcmp(name, "error") == 0) {
        json_decref(w->last);
        w->last = event;
        return;
    }
    if (n <= PROTO_MAX_EVENT_BYTES && w->order.event != NULL && w->killed.code == 0) {
        w->order.event(w->order.arg, event);
    }
    json_decref(event);
}

static void take_lines(struct worker *w) {
    size_t at = 0;
    for (char *end; (end = memchr(w->line + at, '\n', w->used - at)) != NULL;) {
        size_t n = (size_t)(end - (w->line + at));
        if (n > 0) {
            take_line(w, w->line + at, n);
        }
        at += n + 1;
    }
    memmove(w->line, w->line + at, w->used - at);
    w->used -= at;
}

/* Reads what is there. False at the end of the pipe. */
static bool drain(struct worker *w) {
    for (;;) {
        if (w->size - w->used < 4096) {
            size_t size = w->size > 0 ? 2 * w->size : 65536;
            char *line = size <= 2 * WORKER_MAX_LINE ? realloc(w->line, size) : NULL;
            if (line == NULL) {
                give_up(w, ERR_PROTOCOL, "the compile worker sent an event without end");
                return false;
            }
            w->line = line;
            w->size = size;
        }
        ssize_t n = read(w->pipe, w->line + w->used, w->size - w->used);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return n < 0 && errno == EAGAIN;
        }
        w->used += (size_t)n;
        w->heard_ms = monotonic_ms();
        take_lines(w);
    }
}

static int on_pipe(sd_event_source *source, int fd, uint32_t events, void *arg) {
    struct worker *w = arg;
    if (!drain(w)) {
        sd_event_source_set_enabled(source, SD_EVENT_OFF);
    }
    return 0;
}

/* ---- The end ----------------------------------------------------------------------------- */

static void judge(struct worker *w, const siginfo_t *info, struct err *err) {
    bool is_exit = info->si_code == CLD_EXITED;
    const char *name = json_string_value(json_object_get(w->last, "event"));
    if (w->killed.code != 0) {
        *err = w->killed;
    } else if (!is_exit && info->si_status == SIGXCPU) {
        err_set(err, ERR_COMPILE_TIMEOUT, "more than %d s of processor time", WORKER_MAX_CPU_S);
    } else if (!is_exit) {
        err_set(
            err, ERR_COMPILE_CRASHED, "the compile worker was ended by signal %d (%s)",
            info->si_status, strsignal(info->si_status));
    } else if (name != NULL && strcmp(name, "error") == 0) {
        const char *code = json_string_value(json_object_get(w->last, "code"));
        const char *detail = json_string_value(json_object_get(w->last, "detail"));
        const char *where = json_string_value(json_object_get(w->last, "where"));
        int number = code != NULL ? err_from_name(code) : 0;
        if (number == ERR_NOMEM) {
            number = ERR_COMPILE_OOM;
        }
        err_at(
            err, number > 0 ? (enum err_code)number : ERR_COMPILE_FAILED, where, "%s",
            detail != NULL ? detail : "the compile worker gave no reason");
    } else if (info->si_status != 0 || name == NULL) {
        err_set(
            err, ERR_COMPILE_CRASHED, "the compile worker ended with status %d and no result",
            info->si_status);
    }
}

static int on_exit_fd(sd_event_source *source, int fd, uint32_t events, void *arg) {
    struct worker *w = arg;
    siginfo_t info;
    memset(&info, 0, sizeof info);
    if (waitid(P_PIDFD, (id_t)w->pidfd, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid == 0) {
        return 0;
    }
    kill_group(w); /* what it left behind, while its pid is still reserved */
    waitid(P_PIDFD, (id_t)w->pidfd, &info, WEXITED | WNOHANG);
    drain(w);
    struct err err;
    err_clear(&err);
    judge(w, &info, &err);
    if (err.code == ERR_COMPILE_CRASHED) {
        w->daemon->counters.workers_crashed++;
        log_warning("worker", "pid=%d %s", (int)w->pid, err.text);
    }
    struct worker_order order = w->order;
    json_t *result = err.code == 0 ? TAKE(w->last) : NULL;
    worker_free(w);
    order.done(order.arg, result, &err);
    return 0;
}

static int on_time(sd_event_source *source, uint64_t usec, void *arg) {
    struct worker *w = arg;
    uint64_t now = monotonic_ms();
    if (w->deadline_ms != 0 && now >= w->deadline_ms) {
        give_up(w, ERR_COMPILE_TIMEOUT, "the compile passed limits.compile_ms");
    } else if (w->silence_ms != 0 && now - w->heard_ms >= w->silence_ms) {
        give_up(w, ERR_COMPILE_TIMEOUT, "the compile worker made no progress");
    }
    uint64_t next =
        w->deadline_ms > now && w->deadline_ms - now < 1000 ? w->deadline_ms - now : 1000;
    sd_event_source_set_time(source, usec + 1000 * next);
    sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
    return 0;
}

/* ---- The start --------------------------------------------------------------------------- */

static void limit(int resource, uint64_t value) {
    struct rlimit l = {value, value};
    setrlimit(resource, &l);
}

/* Moves fds above 5 first, so that no dup2() overwrites one that is still needed. */
static void
child(const char *program, int document, int staging, int events, uint64_t memory, pid_t parent) {
    static char *const environment[] = {"PATH=/usr/bin:/bin", "LANG=C", NULL};
    char *const arguments[] = {(char *)"ipud-compile", NULL};
    int null_fd = open("/dev/null", O_RDWR);
    int fds[3] = {
        fcntl(document, F_DUPFD, 16), fcntl(staging, F_DUPFD, 16), fcntl(events, F_DUPFD, 16)};
    if (null_fd < 0 || dup2(null_fd, 0) < 0 || dup2(null_fd, 1) < 0 || dup2(fds[0], 3) < 0 ||
        dup2(fds[1], 4) < 0 || dup2(fds[2], 5) < 0) {
        _exit(127);
    }
    syscall(SYS_close_range, 6u, ~0u, 0u);
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(127); /* the daemon died before it could take us along */
    }
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_NOFILE, WORKER_MAX_FILES);
    limit(RLIMIT_CPU, WORKER_MAX_CPU_S);
    limit(RLIMIT_FSIZE, WORKER_MAX_FILE);
    if (memory > 0) {
        limit(RLIMIT_AS, memory);
    }
    execve(program, arguments, environment);
    _exit(127);
}

/* The document goes through memory, not through a pipe that nobody might read. */
static int document_fd(const json_t *document, int *ret, struct err *err) {
    CLEANUP(cleanup_free) char *text = json_dumps(document, JSON_COMPACT | JSON_REAL_PRECISION(17));
    CLEANUP(cleanup_close) int fd = memfd_create("job", MFD_CLOEXEC);
    if (text == NULL || fd < 0) {
        return err_set(err, ERR_NOMEM, "job document");
    }
    size_t n = strlen(text);
    for (size_t at = 0; at < n;) {
        ssize_t done = write(fd, text + at, n - at);
        if (done <= 0) {
            return err_sys(err, ERR_NOMEM, errno, "job document");
        }
        at += (size_t)done;
    }
    lseek(fd, 0, SEEK_SET);
    *ret = TAKE_FD(fd);
    return 0;
}

static int watch(struct worker *w, struct err *err) {
    sd_event *event = w->daemon->event;
    int r;
    if ((r = sd_event_add_io(event, &w->on_pipe, w->pipe, EPOLLIN, on_pipe, w)) < 0 ||
        (r = sd_event_add_io(event, &w->on_exit, w->pidfd, EPOLLIN, on_exit_fd, w)) < 0 ||
        (r = sd_event_add_time_relative(
             event, &w->on_time, CLOCK_MONOTONIC, 1000000, 1000, on_time, w)) < 0) {
        return err_sys(err, ERR_INTERNAL, -r, "event loop");
    }
    /* Events that came before the exit are read before it is judged. */
    sd_event_source_set_priority(w->on_exit, SD_EVENT_PRIORITY_NORMAL + 1);
    return 0;
}

int workers_start(
    struct daemon *d, const struct worker_order *order, struct worker **ret, struct err *err) {
    CLEANUP(cleanup_close) int document = -1;
    int r = document_fd(order->document, &document, err);
    if (r < 0) {
        return r;
    }
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return err_sys(err, ERR_IO, errno, "pipe of a compile worker");
    }
    struct worker *w = calloc(1, sizeof *w);
    pid_t parent = getpid();
    pid_t pid = w != NULL ? fork() : -1;
    if (pid == 0) {
        child(
            d->config.compiler, document, order->staging_fd, ends[1], d->config.worker_memory,
            parent);
    }
    close(ends[1]);
    if (pid < 0) {
        r = err_sys(err, ERR_IO, errno, "start of a compile worker");
        close(ends[0]);
        free(w);
        return r;
    }
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    w->daemon = d;
    w->pid = pid;
    w->pipe = ends[0];
    w->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    w->order = *order;
    w->heard_ms = monotonic_ms();
    w->deadline_ms = order->total_ms > 0 ? w->heard_ms + order->total_ms : 0;
    w->silence_ms = order->no_progress_ms;
    r = w->pidfd >= 0 ? watch(w, err) : err_sys(err, ERR_IO, errno, "pidfd_open");
    if (r < 0) {
        kill_group(w);
        waitpid(pid, NULL, 0);
        worker_free(w);
        return r;
    }
    d->counters.workers_started++;
    log_debug("worker", "started pid=%d", (int)pid);
    *ret = w;
    return 0;
}
