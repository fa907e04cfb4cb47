/* http_explain(): the way to the socket, step by step, and what helps at the step that fails. The
 * usual trouble is a group: the account may have it while this process, started before, has not. */
#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "client/http.h"

#define MAX_GROUPS 1024

static bool process_has(gid_t group) {
    gid_t groups[MAX_GROUPS];
    int n = getgroups(MAX_GROUPS, groups);
    bool found = getegid() == group;
    for (int i = 0; i < n; i++) {
        found = found || groups[i] == group;
    }
    return found;
}

static bool account_has(const struct passwd *pw, gid_t group) {
    gid_t groups[MAX_GROUPS];
    int n = MAX_GROUPS;
    if (pw == NULL || getgrouplist(pw->pw_name, pw->pw_gid, groups, &n) < 0) {
        return false;
    }
    for (int i = 0; i < n; i++) {
        if (groups[i] == group) {
            return true;
        }
    }
    return false;
}

/* `what` is a folder or a socket that this process may not use. */
static int
explain_permission(const char *what, const char *path, const struct stat *st, struct err *err) {
    const struct passwd *pw = getpwuid(geteuid());
    char account[64], group[64];
    snprintf(account, sizeof account, "%.48s", pw != NULL ? pw->pw_name : "?");
    bool has_account = account_has(pw, st->st_gid);
    bool has_process = process_has(st->st_gid);
    const struct group *gr = getgrgid(st->st_gid);
    if (gr != NULL) {
        snprintf(group, sizeof group, "'%.48s'", gr->gr_name);
    } else {
        snprintf(group, sizeof group, "%u", (unsigned)st->st_gid);
    }
    const char *help = has_process   ? "the mode keeps the group out"
                       : has_account ? "log in again, or start a shell with newgrp"
                                     : "ask an administrator to add the account to the group";
    return err_set(
        err, ERR_PERMISSION,
        "permission denied on %s '%.120s' (mode %04o, group %s): account '%s' %s that group, "
        "this process %s; %s",
        what, path, (unsigned)st->st_mode & 07777, group, account,
        has_account ? "is in" : "is not in", has_process ? "has it" : "has it not", help);
}

static int walk(const char *path, struct err *err) {
    char part[HTTP_SOCKET_MAX + 1];
    struct stat st;
    for (size_t i = 1; path[i] != '\0'; i++) {
        if (path[i] != '/') {
            continue;
        }
        snprintf(part, sizeof part, "%.*s", (int)i, path);
        if (stat(part, &st) != 0) {
            return err_sys(err, ERR_UNREACHABLE, errno, "folder '%s' of the socket", part);
        }
        if (S_ISDIR(st.st_mode) && access(part, X_OK) != 0) {
            return explain_permission("folder", part, &st, err);
        }
    }
    if (stat(path, &st) != 0) {
        return err_sys(
            err, ERR_UNREACHABLE, errno,
            "socket '%s' (is ipud running? other paths: -H, "
            "$IPUD_SOCKET)",
            path);
    }
    if (!S_ISSOCK(st.st_mode)) {
        return err_set(err, ERR_UNREACHABLE, "'%s' is no socket", path);
    }
    return 0;
}

int http_explain(const char *path, struct err *err) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) > HTTP_SOCKET_MAX) {
        return err_set(
            err, ERR_USAGE, "socket path of %zu bytes, at most %d", strlen(path), HTTP_SOCKET_MAX);
    }
    int r = walk(path, err);
    if (r < 0) {
        return r;
    }
    strcpy(address.sun_path, path);
    CLEANUP(cleanup_close) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return err_sys(err, ERR_UNREACHABLE, errno, "socket '%s'", path);
    }
    if (connect(fd, (const struct sockaddr *)&address, sizeof address) == 0) {
        return 0;
    }
    struct stat st;
    if (errno == EACCES && stat(path, &st) == 0) {
        return explain_permission("socket", path, &st, err);
    }
    if (errno == ECONNREFUSED) {
        return err_set(
            err, ERR_UNREACHABLE, "nobody listens on '%s': ipud has ended (systemctl status ipud)",
            path);
    }
    return err_sys(err, ERR_UNREACHABLE, errno, "socket '%s'", path);
}
