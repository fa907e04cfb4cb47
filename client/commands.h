/* The command table of ipuctl: each verb's name, usage, options and function, once. Help, the
 * parser and the completion scripts read the same rows, so that they cannot disagree.
 *
 * Job: argv -> struct args -> the verb's function. A verb's name has one or two words ("submit",
 * "job show"); options may stand before or behind the operands, and the global ones also before
 * the verb. An option that takes a value may be given several times: args_each() walks them.
 *
 * Invariants: (1) stdout carries data only, everything else goes to stderr; (2) a verb's function
 * returns 0, a positive exit status, or -ERR_x, and then main.c prints the error once and ends
 * with its row's exit status; (3) text from outside is printed through output.h alone.
 */
#ifndef CLIENT_COMMANDS_H
#define CLIENT_COMMANDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define ARGS_MAX_GIVEN 1024

struct command_option {
    char letter; /* 0 = long form only */
    const char *name;
    const char *value; /* what the value is called in help, NULL = a flag */
    const char *help;
};

struct args;

struct command {
    const char *name;     /* "job show" */
    const char *operands; /* "JOB", for help */
    int least, most;      /* operands; most -1 = any number */
    const char *summary;
    const struct command_option *options; /* ended by a row without name */
    int (*run)(const struct args *a, struct err *err);
};

struct given {
    const struct command_option *option;
    const char *value;
};

struct args {
    const struct command *command;
    const char *program; /* argv[0] */
    const char *socket;  /* path, never NULL */
    bool help;
    struct given given[ARGS_MAX_GIVEN];
    size_t given_count;
    char **operands; /* borrowed from argv */
    int operand_count;
};

extern const struct command commands[]; /* ended by a row without name */
extern const struct command_option command_globals[];

/* Fills *ret from argv. ERR_USAGE names what is wrong and, for a verb, the nearest one. */
int args_parse(int argc, char **argv, struct args *ret, struct err *err);
bool args_has(const struct args *a, const char *name);
const char *args_value(const struct args *a, const char *name); /* the last one, or NULL */
/* The next value of an option from *at on, or NULL; *at starts at 0. */
const char *args_each(const struct args *a, const char *name, size_t *at);
/* Text becomes *ret when the option is there; numbers as C writes them (0x...). */
int args_number(
    const struct args *a, const char *name, int64_t low, int64_t high, int64_t *ret,
    struct err *err);
/* -o json or text. */
int args_is_json(const struct args *a, bool *ret, struct err *err);

#define OPTION_FORMAT                                                                              \
    { 'o', "format", "json|text", "how to print; JSON members are the API's" }
#define OPTION_END                                                                                 \
    { 0, NULL, NULL, NULL }

int cmd_submit(const struct args *a, struct err *err);
int cmd_job_list(const struct args *a, struct err *err);
int cmd_job_show(const struct args *a, struct err *err);
int cmd_job_events(const struct args *a, struct err *err);
int cmd_job_wait(const struct args *a, struct err *err);
int cmd_job_outputs(const struct args *a, struct err *err);
int cmd_job_verb(const struct args *a, struct err *err); /* cancel, hold, release */
int cmd_job_delete(const struct args *a, struct err *err);
int cmd_package_list(const struct args *a, struct err *err);
int cmd_package_show(const struct args *a, struct err *err);
int cmd_package_export(const struct args *a, struct err *err);
int cmd_package_import(const struct args *a, struct err *err);
int cmd_profile_show(const struct args *a, struct err *err);
int cmd_profile_export(const struct args *a, struct err *err);
int cmd_device(const struct args *a, struct err *err);
int cmd_device_verb(const struct args *a, struct err *err); /* reset, drain, resume */
int cmd_tile_status(const struct args *a, struct err *err);
int cmd_tile_read(const struct args *a, struct err *err);
int cmd_tile_regs(const struct args *a, struct err *err);
int cmd_tile_disasm(const struct args *a, struct err *err);
int cmd_ps(const struct args *a, struct err *err);
int cmd_version(const struct args *a, struct err *err);
int cmd_health(const struct args *a, struct err *err);
int cmd_doctor(const struct args *a, struct err *err);
int cmd_asm(const struct args *a, struct err *err);
int cmd_disasm(const struct args *a, struct err *err);
int cmd_tile_run(const struct args *a, struct err *err);
int cmd_help(const struct args *a, struct err *err);
int cmd_completion(const struct args *a, struct err *err);

#endif
