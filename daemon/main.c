/* ipud: settings, listening socket, event loop, readiness, watchdog, one way out.
 *
 * Start: settings, signals blocked, state directory (its lock refuses a second daemon), jobs
 * recovered, device thread, socket, READY. Stop, on SIGTERM or SIGINT: nothing new is accepted,
 * active jobs become interrupted, queued ones stay, waiting requests are answered, streams end
 * without their `end` record, then HTTP, device, store are closed in that order. A second signal
 * or STOP_MS skips the waiting. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/monotonic.h"
#include "daemon/daemon.h"
#include "daemon/jobs.h"
#include "daemon/peer.h"
#include "daemon/server.h"

#define STOP_MS          20000
#define SWEEP_MS         60000
#define DRIVER_SIGNAL_LO 44 /* the driver raises real-time signals (design.md D15) */
#define DRIVER_SIGNAL_HI 49
#define BACKLOG          128

uint64_t daemon_wall_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

void daemon_new_id(char ret[PROTO_ID_CHARS + 1]) {
    uint8_t random[10];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) {
        uint64_t now = monotonic_ms();
        memcpy(random, &now, sizeof now); /* ids are unique in the table anyway: it checks */
        memset(random + 8, 0, 2);
    }
    proto_id_make(daemon_wall_ms(), random, ret);
}

struct program {
    struct daemon daemon;
    char *socket_path; /* to remove at the end, owned */
    sd_event_source *tick;
    unsigned signals;
    char status[1024]; /* last told to the service manager */
    uint64_t swept_ms;
    uint64_t stop_by_ms;
};

/* ---- The socket -------------------------------------------------------------------------- */

static int check_listening(int fd, struct err *err) {
    if (sd_is_socket_unix(fd, SOCK_STREAM, 1, NULL, 0) <= 0) {
        return err_set(err, ERR_USAGE, "the socket passed is no listening Unix stream socket");
    }
    return 0;
}

/* A socket file that nobody answers on is removed; one that answers is another daemon's. */
static int clear_stale(const struct sockaddr_un *address, struct err *err) {
    struct stat st;
    if (lstat(address->sun_path, &st) != 0) {
        return errno == ENOENT ? 0 : err_sys(err, ERR_IO, errno, "socket '%s'", address->sun_path);
    }
    if (!S_ISSOCK(st.st_mode)) {
        return err_set(err, ERR_IO, "'%s' exists and is no socket", address->sun_path);
    }
    CLEANUP(cleanup_close) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)address, sizeof *address) == 0) {
        return err_set(err, ERR_CONFLICT, "another daemon answers on '%s'", address->sun_path);
    }
    unlink(address->sun_path);
    return 0;
}

static int listen_on(struct program *p, int *ret, struct err *err) {
    const struct config *c = &p->daemon.config;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(c->socket) >= sizeof address.sun_path) {
        return err_set(
            err, ERR_USAGE, "socket path of %zu bytes, at most %zu: '%s'", strlen(c->socket),
            sizeof address.sun_path - 1, c->socket);
    }
    strcpy(address.sun_path, c->socket);
    gid_t group = (gid_t)-1;
    int r = c->socket_group != NULL ? peer_group(c->socket_group, &group, err) : 0;
    if (r < 0 || (r = clear_stale(&address, err)) < 0) {
        return r;
    }
    CLEANUP(cleanup_close)
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    mode_t old = umask(0177); /* closed to all until mode and group are right */
    bool bound = fd >= 0 && bind(fd, (const struct sockaddr *)&address, sizeof address) == 0;
    int sys = errno;
    umask(old);
    if (!bound) {
        return err_sys(err, ERR_IO, sys, "socket '%s'", c->socket);
    }
    p->socket_path = strdup(c->socket);
    if ((group != (gid_t)-1 && chown(c->socket, (uid_t)-1, group) != 0) ||
        chmod(c->socket, 0660) != 0 || listen(fd, BACKLOG) != 0) {
        return err_sys(err, ERR_IO, errno, "socket '%s'", c->socket);
    }
    *ret = TAKE_FD(fd);
    return 0;
}

static int get_socket(struct program *p, int *ret, struct err *err) {
    int n = sd_listen_fds(1);
    if (n > 1) {
        return err_set(err, ERR_USAGE, "%d sockets were passed, one is expected", n);
    }
    if (n == 1) {
        *ret = SD_LISTEN_FDS_START;
        fcntl(*ret, F_SETFL, fcntl(*ret, F_GETFL) | O_NONBLOCK);
        return check_listening(*ret, err);
    }
    return listen_on(p, ret, err);
}

/* ---- Loop -------------------------------------------------------------------------------- */

static void report_status(struct program *p) {
    struct daemon *d = &p->daemon;
    struct runner_status s;
    runner_status(d->runner, &s);
    char status[sizeof p->status];
    snprintf(
        status, sizeof status, "STATUS=%u jobs, device %s %s%s%s", HASH_COUNT(d->jobs->table),
        d->config.device, runner_state_name(s.state), s.detail[0] != '\0' ? ": " : "", s.detail);
    if (strcmp(status, p->status) != 0) {
        strcpy(p->status, status);
        sd_notify(0, status);
    }
}

/* The loop pings for all threads: not when the store has been at one group for a minute. */
static void feed_watchdog(struct program *p) {
    struct store_health h;
    store_health(p->daemon.store, &h);
    if (h.stuck_ms < 60000) {
        sd_notify(0, "WATCHDOG=1");
    }
}

static bool is_settled(const struct daemon *d) {
    return jobs_busy(d->jobs) == 0;
}

static int on_tick(sd_event_source *source, uint64_t usec, void *arg) {
    struct program *p = arg;
    struct daemon *d = &p->daemon;
    server_tick(d->server);
    jobs_tick(d->jobs);
    if (monotonic_ms() - p->swept_ms > SWEEP_MS) {
        p->swept_ms = monotonic_ms();
        jobs_forget(d->jobs);
    }
    feed_watchdog(p);
    report_status(p);
    bool late = d->is_draining && monotonic_ms() >= p->stop_by_ms;
    if (d->is_draining && (is_settled(d) || late)) {
        sd_event_exit(d->event, 0);
    }
    uint64_t now = usec;
    sd_event_now(d->event, CLOCK_MONOTONIC, &now);
    sd_event_source_set_time(source, now + (d->is_draining ? 50000 : 1000000));
    return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

static void begin_stop(struct program *p) {
    struct daemon *d = &p->daemon;
    p->stop_by_ms = monotonic_ms() + STOP_MS;
    d->is_draining = true;
    sd_notify(0, "STOPPING=1\nSTATUS=stopping");
    log_notice("main", "stopping jobs=%u", HASH_COUNT(d->jobs->table));
    server_quiesce(d->server);
    jobs_drain(d->jobs);
    sd_event_source_set_time(p->tick, 0); /* at once: usually nothing is under way */
}

static int on_signal(sd_event_source *source, const struct signalfd_siginfo *info, void *arg) {
    struct program *p = arg;
    if (++p->signals > 1) {
        log_notice("main", "stopping now");
        p->stop_by_ms = 0;
        return sd_event_exit(p->daemon.event, 0);
    }
    begin_stop(p);
    return 0;
}

static void on_device_change(void *arg) {
    jobs_pump(((struct daemon *)arg)->jobs);
}

static int add_sources(struct program *p, struct err *err) {
    struct daemon *d = &p->daemon;
    int r;
    if ((r = sd_event_add_signal(d->event, NULL, SIGTERM, on_signal, p)) < 0 ||
        (r = sd_event_add_signal(d->event, NULL, SIGINT, on_signal, p)) < 0 ||
        (r = sd_event_add_time_relative(
             d->event, &p->tick, CLOCK_MONOTONIC, 100000, 10000, on_tick, p)) < 0) {
        return err_sys(err, ERR_INTERNAL, -r, "event loop");
    }
    return 0;
}

/* ---- Start and stop ---------------------------------------------------------------------- */

/* Blocked before the first thread, so that every thread inherits it; children clear it. */
static void block_signals(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    for (int s = DRIVER_SIGNAL_LO; s <= DRIVER_SIGNAL_HI; s++) {
        sigaddset(&set, s);
    }
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
}

static int find_compiler(struct config *c, struct err *err) {
    if (c->compiler != NULL) {
        return 0;
    }
    const char *given = getenv("IPUD_COMPILE");
    char path[4096] = "";
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 16);
    path[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(path, '/');
    if (slash != NULL) {
        strcpy(slash + 1, "ipud-compile");
    }
    c->compiler = strdup(given != NULL && given[0] != '\0' ? given : path);
    return c->compiler != NULL ? 0 : err_set(err, ERR_NOMEM, NULL);
}

static int start(struct program *p, struct err *err) {
    struct daemon *d = &p->daemon;
    int fd = -1;
    int r = sd_event_new(&d->event);
    if (r < 0) {
        return err_sys(err, ERR_INTERNAL, -r, "event loop");
    }
    sd_event_set_signal_exit(d->event, 0);
    struct cache_options cache = {
        .dir = d->config.state_dir,
        .package_limit_bytes = d->config.package_limit,
        .blob_limit_bytes = d->config.blob_limit,
        .min_free_bytes = d->config.min_free,
    };
    if ((r = mailbox_new(d->event, &d->mailbox, err)) < 0 ||
        (r = store_start(&cache, d->mailbox, &d->store, err)) < 0 ||
        (r = jobs_open(d, &d->jobs, err)) < 0 ||
        (r = runner_start(&d->config, d->mailbox, &d->runner, err)) < 0) {
        return r;
    }
    runner_on_change(d->runner, on_device_change, d);
    if ((r = get_socket(p, &fd, err)) < 0 || (r = server_start(d, fd, &d->server, err)) < 0 ||
        (r = add_sources(p, err)) < 0) {
        return r;
    }
    jobs_pump(d->jobs);
    log_notice(
        "main", "ready socket=%s state=%s device=%s", d->config.socket, d->config.state_dir,
        d->config.device);
    sd_notify(0, "READY=1");
    return 0;
}

/* Delivers letters and turns HTTP until nobody waits, the store has nothing to do and nothing
 * more comes of that, or time is up. True when all is quiet. */
static bool settle(struct program *p, uint64_t most_ms) {
    struct daemon *d = &p->daemon;
    uint64_t until = monotonic_ms() + most_ms;
    for (int quiet = 0; quiet < 2 && monotonic_ms() < until;) {
        struct store_health h = {.is_idle = true};
        if (d->store != NULL) {
            store_health(d->store, &h);
        }
        mailbox_deliver(d->mailbox);
        if (d->server != NULL) {
            jobs_drain(d->jobs);
            server_turn(d->server);
        }
        bool busy = !h.is_idle || (d->server != NULL && server_request_count(d->server) > 0);
        quiet = busy ? 0 : quiet + 1;
        if (quiet == 2) {
            return true;
        }
        usleep(2000);
    }
    return false;
}

/* What the threads and clients might still use is not freed under them: an unclean end leaves it
 * to the system, whose locks and descriptors go with the process. */
static bool stop(struct program *p) {
    struct daemon *d = &p->daemon;
    bool now = p->signals > 1;
    d->is_draining = true;
    bool quiet = d->mailbox == NULL || settle(p, now ? 200 : 3000);
    if (!now) {
        runner_stop(d->runner);
        quiet = d->mailbox == NULL || settle(p, 1000);
    }
    quiet = quiet && !now && (d->jobs == NULL || jobs_busy(d->jobs) == 0);
    if (quiet) {
        server_stop(d->server);
        d->server = NULL;
        quiet = d->mailbox == NULL || settle(p, 1000);
    }
    store_stop(d->store);
    d->store = NULL;
    if (!quiet) {
        return false;
    }
    jobs_close(d->jobs);
    mailbox_free(d->mailbox);
    runner_free(d->runner);
    sd_event_source_unref(p->tick);
    sd_event_unref(d->event);
    return true;
}

static int finish(struct program *p, int status) {
    bool is_clean = stop(p);
    if (p->socket_path != NULL) {
        unlink(p->socket_path);
    }
    log_notice("main", "stopped");
    if (!is_clean) {
        _exit(status);
    }
    config_done(&p->daemon.config);
    free(p->socket_path);
    free(p);
    return status;
}

static int help(struct program *p) {
    if (p->daemon.config.help) {
        config_help(stdout);
    } else {
        puts("ipud " PROTO_SERVER_VERSION " (API " PROTO_API_VERSION ")");
    }
    config_done(&p->daemon.config);
    free(p);
    return 0;
}

int main(int argc, char **argv) {
    struct program *p = calloc(1, sizeof *p);
    struct err err;
    err_clear(&err);
    if (p == NULL || config_read(argc, argv, &p->daemon.config, &err) < 0) {
        fprintf(stderr, "ipud: %s\n", p != NULL ? err.text : "out of memory");
        free(p);
        return err_exit(err.code);
    }
    if (p->daemon.config.help || p->daemon.config.version) {
        return help(p);
    }
    umask(0077);
    block_signals();
    json_object_seed(0);
    log_set_level((enum log_level)p->daemon.config.log_level);
    p->daemon.started_ms = daemon_wall_ms();
    daemon_new_id(p->daemon.boot_id);
    int status = 0;
    if (find_compiler(&p->daemon.config, &err) < 0 || start(p, &err) < 0) {
        log_error("main", "%s", err.text);
        sd_notifyf(0, "STATUS=%s", err.text);
        status = err_exit(err.code);
    } else {
        sd_event_loop(p->daemon.event);
    }
    return finish(p, status);
}
