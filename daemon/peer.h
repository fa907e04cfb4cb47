/* Who is at the other end: the kernel's credentials of the connection, taken once. */
#ifndef DAEMON_PEER_H
#define DAEMON_PEER_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

struct peer {
    uid_t uid;
    gid_t gid;
    pid_t pid;
    bool is_operator; /* root, or in the operator group */
};

/* Groups by name or number; -ERR_USAGE when unknown. */
int peer_group(const char *name, gid_t *ret, struct err *err);
/* Refuses what the kernel cannot name: uid -1, the overflow uid, pid 0. */
int peer_read(int fd, bool has_group, gid_t operator_group, struct peer *ret, struct err *err);

#endif
