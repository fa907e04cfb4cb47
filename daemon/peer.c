/* See peer.h. Supplementary groups come from the kernel too: name services may block. */
#include "daemon/peer.h"

#include <errno.h>
#include <grp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#ifndef SO_PEERGROUPS
#define SO_PEERGROUPS 59
#endif
#define OVERFLOW_UID 65534
#define MAX_GROUPS   1024

int peer_group(const char *name, gid_t *ret, struct err *err) {
    if (name[0] != '\0' && strspn(name, "0123456789") == strlen(name) && strlen(name) < 10) {
        *ret = (gid_t)strtoul(name, NULL, 10);
        return 0;
    }
    const struct group *g = getgrnam(name);
    if (g == NULL) {
        return err_set(err, ERR_USAGE, "group '%s' does not exist", name);
    }
    *ret = g->gr_gid;
    return 0;
}

static bool in_group(int fd, const struct ucred *c, gid_t group) {
    gid_t groups[MAX_GROUPS];
    socklen_t n = sizeof groups;
    if (c->gid == group) {
        return true;
    }
    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &n) != 0) {
        return false;
    }
    for (size_t i = 0; i < n / sizeof groups[0]; i++) {
        if (groups[i] == group) {
            return true;
        }
    }
    return false;
}

int peer_read(int fd, bool has_group, gid_t operator_group, struct peer *ret, struct err *err) {
    struct ucred c;
    socklen_t n = sizeof c;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &n) != 0) {
        return err_sys(err, ERR_PERMISSION, errno, "credentials of the connection");
    }
    if (c.uid == (uid_t)-1 || c.uid == OVERFLOW_UID || c.pid == 0) {
        return err_set(
            err, ERR_PERMISSION,
            "the kernel does not name this peer (uid %d): another user namespace", (int)c.uid);
    }
    ret->uid = c.uid;
    ret->gid = c.gid;
    ret->pid = c.pid;
    ret->is_operator = c.uid == 0 || (has_group && in_group(fd, &c, operator_group));
    return 0;
}
