/* Settings of the daemon: one table gives name, type, default, range and help; the command line
 * and the file (name = value, '#' comments) are read by it. The file is never written. */
#ifndef DAEMON_CONFIG_H
#define DAEMON_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"

struct config {
    char *config; /* file, or NULL */
    char *device; /* "sim" or "/dev/ipuN" */
    char *state_dir;
    char *socket;
    char *lock;             /* of the device */
    char *loader;           /* ELF file of a secondary loader; NULL = our own */
    char *compiler;         /* ipud-compile; NULL = $IPUD_COMPILE, or beside this program */
    char *operator_group;   /* name or number; NULL = root alone */
    char *socket_group;     /* group of the socket; NULL = leave it */
    bool no_wait;           /* end when another process has the device */
    uint64_t workers;       /* compile processes at a time; 0 = processors */
    uint64_t worker_memory; /* bytes of address space of one; 0 = no limit */
    uint64_t package_limit;
    uint64_t blob_limit;
    uint64_t min_free;
    uint64_t no_progress_ms;   /* a silent compile is ended */
    uint64_t keep_hours;       /* ended jobs are kept so long; 0 = for ever */
    uint64_t sim_threads;      /* 0 = processors */
    uint64_t sim_sync_release; /* cycles from the last arrival at a barrier; 0 = the table's */
    uint64_t log_level;        /* 3 error .. 7 debug */
    bool help;
    bool version;
};

/* Defaults, then the file of --config, then the command line. */
int config_read(int argc, char **argv, struct config *ret, struct err *err);
void config_done(struct config *c);
void config_help(FILE *out);

#endif
