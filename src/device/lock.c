/* The device lock (design.md D15): flock on an open, close-on-exec descriptor, held for life.
 * The kernel releases it with the process, so a stale file means nothing; its text only informs. */
#include "device/device_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/cleanup.h"

static void holder_text(int fd, char *buf, size_t n) {
    ssize_t got = pread(fd, buf, n - 1, 0);
    buf[got > 0 ? got : 0] = '\0';
    for (char *c = buf; *c != '\0'; c++) {
        if (*c < ' ' || *c > '~') {
            *c = ' ';
        }
    }
    size_t len = strlen(buf);
    while (len > 0 && buf[len - 1] == ' ') {
        buf[--len] = '\0';
    }
}

static void write_holder(int fd) {
    char command[64] = "?";
    CLEANUP(cleanup_close) int comm = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
    if (comm >= 0) {
        ssize_t n = read(comm, command, sizeof command - 1);
        command[n > 0 ? n - 1 : 0] = '\0';
    }
    char text[128];
    int n = snprintf(
        text, sizeof text, "pid=%ld uid=%ld command=%s\n", (long)getpid(), (long)getuid(), command);
    /* Informative only: a failure here changes nothing. */
    if (ftruncate(fd, 0) < 0 || pwrite(fd, text, (size_t)n, 0) != n) {
        return;
    }
}

static int lock_open(const char *path, int *ret_fd, struct err *err) {
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0) {
        return err_sys(err, errno == EACCES ? ERR_PERMISSION : ERR_IO, errno, "lock file %s", path);
    }
    *ret_fd = fd;
    return 0;
}

int lock_check(const char *path, struct err *err) {
    CLEANUP(cleanup_close) int fd = -1;
    return lock_open(path, &fd, err);
}

int lock_take(const char *path, bool no_wait, int *ret_fd, struct err *err) {
    CLEANUP(cleanup_close) int fd = -1;
    int r = lock_open(path, &fd, err);
    if (r < 0) {
        return r;
    }
    while (flock(fd, LOCK_EX | (no_wait ? LOCK_NB : 0)) < 0) {
        if (errno == EWOULDBLOCK) {
            char holder[160];
            holder_text(fd, holder, sizeof holder);
            return err_at(
                err, ERR_DEVICE_BUSY, path, "device is held by %s: wait or stop it",
                holder[0] != '\0' ? holder : "a process that left no name");
        }
        if (errno != EINTR) {
            return err_sys(err, ERR_IO, errno, "flock %s", path);
        }
    }
    write_holder(fd);
    *ret_fd = TAKE_FD(fd);
    return 0;
}

void lock_drop(int *fd) {
    if (*fd >= 0) {
        /* The name must go before the lock does; a name left behind misleads nobody for long. */
        int ignored = ftruncate(*fd, 0);
        (void)ignored;
        close(*fd); /* releases the lock */
        *fd = -1;
    }
}
