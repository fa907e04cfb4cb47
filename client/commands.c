/* See commands.h. The table, and the parser over it. Every loop runs once over argv or a table. */
#include "client/commands.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "proto/proto.h"

const struct command_option command_globals[] = {
    {'H', "socket", "PATH", "socket of the daemon ($IPUD_SOCKET, " PROTO_DEFAULT_SOCKET ")"},
    {'h', "help", NULL, "explain a command"},
    OPTION_END,
};

static const struct command_option no_options[] = {OPTION_END};
static const struct command_option format_only[] = {OPTION_FORMAT, OPTION_END};

static const struct command_option submit_options[] = {
    {'i', "input", "NAME=FILE", "an input tensor, npy; k times the first axis makes k runs"},
    {0, "output", "NAME=FILE", "where an output goes, npy; - is stdout"},
    {0, "file", "LABEL=FILE", "a tensor file; by default the label's name beside the model"},
    {0, "tiles", "N", "number of tiles"},
    {0, "accumulate", "f32|f16", "how partial sums are kept"},
    {0, "profile", "off|phase|kernel", "how finely a run is sampled (phase)"},
    {0, "profile-run", "N", "which run's samples are kept (0)"},
    {0, "repeat", "auto|off", "whether equal blocks of the model become a loop"},
    {0, "seed", "N", "enters every generator"},
    {0, "check", NULL, "compare with the reference"},
    {0, "compile-only", NULL, "do not run"},
    {0, "cache", "use|refresh|off", "whether a stored package may be taken"},
    {0, "name", "TEXT", "a name for people"},
    {0, "label", "KEY=TEXT", "a label for people"},
    {0, "hold", NULL, "start only after job release"},
    {'d', "detach", NULL, "print the id and end"},
    {0, "idempotency-key", "KEY|auto", "makes a repeated submit harmless"},
    {0, "timeout", "DURATION", "stop watching after this time (30s, 5m); the job goes on"},
    {0, "retry-for", "DURATION", "how long to look for a daemon that went away (60s)"},
    {'v', "verbose", NULL, "print every event"},
    {'q', "quiet", NULL, "print no progress"},
    OPTION_FORMAT,
    OPTION_END,
};

static const struct command_option list_options[] = {
    {0, "state", "STATE", "only jobs in this state"},
    {0, "user", "UID|*", "jobs of another user, of all (operators)"},
    {'n', "limit", "N", "only the N newest"},
    OPTION_FORMAT,
    OPTION_END,
};

static const struct command_option show_options[] = {
    {0, "wait", "DURATION", "wait so long for its end"},
    OPTION_FORMAT,
    OPTION_END,
};

static const struct command_option events_options[] = {
    {0, "from", "N", "first event"},
    {'f', "follow", NULL, "go on until the job has ended"},
    {0, "retry-for", "DURATION", "how long to look for a daemon that went away (60s)"},
    OPTION_FORMAT,
    OPTION_END,
};

static const struct command_option wait_options[] = {
    {0, "output", "NAME=FILE", "where an output goes, npy; - is stdout"},
    {0, "timeout", "DURATION", "stop watching after this time; the job goes on"},
    {0, "retry-for", "DURATION", "how long to look for a daemon that went away (60s)"},
    {'v', "verbose", NULL, "print every event"},
    {'q', "quiet", NULL, "print no progress"},
    OPTION_FORMAT,
    OPTION_END,
};

static const struct command_option profile_options[] = {
    {0, "group-by", "kernel|operation|phase|tile|kind", "which table (kernel)"},
    {0, "top", "N", "at most N rows (20)"},
    OPTION_FORMAT,
    OPTION_END,
};

static const struct command_option package_list_options[] = {
    {0, "key", "KEY", "only those of this key"},
    {0, "user", "*", "those of all users (operators)"},
    OPTION_FORMAT,
    OPTION_END,
};

static const struct command_option reason_options[] = {
    {0, "reason", "TEXT", "shown to those who wait"},
    OPTION_FORMAT,
    OPTION_END,
};

static const struct command_option asm_options[] = {
    {'o', "output", "FILE", "write the words here; without it print a listing"},
    {0, "worker", NULL, "the text starts as worker code"},
    {0, "supervisor", NULL, "the text starts as supervisor code (default)"},
    {0, "addr", "A", "address of the first word"},
    {'D', "define", "NAME=N", "a symbol"},
    OPTION_END,
};

static const struct command_option disasm_options[] = {
    {0, "worker", NULL, "worker code"},
    {0, "supervisor", NULL, "supervisor code (default)"},
    {0, "addr", "A", "address of the first word"},
    OPTION_END,
};

static const struct command_option regs_options[] = {
    {0, "context", "N", "0 supervisor (default), 1 to 6 workers"},
    OPTION_FORMAT,
    OPTION_END,
};

static const struct command_option tile_disasm_options[] = {
    {0, "worker", NULL, "worker code"},
    {0, "supervisor", NULL, "supervisor code (default)"},
    OPTION_END,
};

const struct command commands[] = {
    {"submit", "MODEL.json", 1, 1, "compile and run a model, follow it, end with its result",
     submit_options, cmd_submit},
    {"job list", "", 0, 0, "list jobs", list_options, cmd_job_list},
    {"job show", "JOB", 1, 1, "one job with its report", show_options, cmd_job_show},
    {"job events", "JOB", 1, 1, "events of a job", events_options, cmd_job_events},
    {"job wait", "JOB", 1, 1, "follow a job, end with its result", wait_options, cmd_job_wait},
    {"job outputs", "JOB", 1, 1, "list the outputs of a job", format_only, cmd_job_outputs},
    {"job cancel", "JOB", 1, 1, "cancel a job", format_only, cmd_job_verb},
    {"job hold", "JOB", 1, 1, "keep a queued job from starting", format_only, cmd_job_verb},
    {"job release", "JOB", 1, 1, "queue a held job again", format_only, cmd_job_verb},
    {"job delete", "JOB", 1, 1, "drop an ended job with its results", no_options, cmd_job_delete},
    {"profile show", "JOB", 1, 1, "where the cycles of a job's run went", profile_options,
     cmd_profile_show},
    {"profile export", "JOB FILE", 2, 2, "write the profile's file (.ipuprof)", no_options,
     cmd_profile_export},
    {"package list", "", 0, 0, "list compiled packages", package_list_options, cmd_package_list},
    {"package show", "DIGEST", 1, 1, "one package", format_only, cmd_package_show},
    {"package export", "DIGEST FILE", 2, 2, "write a package to a file", no_options,
     cmd_package_export},
    {"package import", "DIGEST FILE", 2, 2, "send a package to the daemon", format_only,
     cmd_package_import},
    {"device", "", 0, 0, "state of the device", format_only, cmd_device},
    {"device reset", "", 0, 0, "reset the device (operators)", reason_options, cmd_device_verb},
    {"device drain", "", 0, 0, "start no more jobs (operators)", reason_options, cmd_device_verb},
    {"device resume", "", 0, 0, "start jobs again (operators)", reason_options, cmd_device_verb},
    {"tile status", "", 0, 0, "what all tiles of the device are doing, as a map", format_only,
     cmd_tile_status},
    {"tile read", "TILE ADDR [N]", 2, 3, "N words (16) of a tile's memory", format_only,
     cmd_tile_read},
    {"tile regs", "TILE", 1, 1, "registers of one context of a tile", regs_options, cmd_tile_regs},
    {"tile disasm", "TILE ADDR [N]", 2, 3, "N words (16) of a tile's memory as code with symbols",
     tile_disasm_options, cmd_tile_disasm},
    {"ps", "", 0, 0, "what runs and what waits", format_only, cmd_ps},
    {"version", "", 0, 0, "versions of client and daemon", format_only, cmd_version},
    {"health", "", 0, 0, "whether jobs are taken and started", format_only, cmd_health},
    {"doctor", "", 0, 0, "why the daemon cannot be used, step by step", format_only, cmd_doctor},
    {"asm", "FILE.S", 1, 1, "assemble tile code", asm_options, cmd_asm},
    {"disasm", "FILE | WORD...", 1, -1, "print tile code", disasm_options, cmd_disasm},
    {"tile run", "ARGUMENTS...", 0, -1, "run tile code on one simulated tile (ipu-tile-run)",
     no_options, cmd_tile_run},
    {"completion", "bash", 1, 1, "print a completion script", no_options, cmd_completion},
    {"help", "[COMMAND]", 0, 2, "explain a command", no_options, cmd_help},
    {NULL, NULL, 0, 0, NULL, NULL, NULL},
};

/* ---- Verbs ------------------------------------------------------------------------------- */

static size_t distance(const char *a, const char *b) {
    size_t row[32];
    size_t n = strnlen(b, 31);
    for (size_t j = 0; j <= n; j++) {
        row[j] = j;
    }
    for (size_t i = 0; a[i] != '\0'; i++) {
        size_t corner = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < n; j++) {
            size_t best = corner + (a[i] != b[j]);
            corner = row[j + 1];
            best = corner + 1 < best ? corner + 1 : best;
            row[j + 1] = row[j] + 1 < best ? row[j] + 1 : best;
        }
    }
    return row[n];
}

static int unknown_verb(const char *first, const char *second, struct err *err) {
    char name[96];
    snprintf(
        name, sizeof name, "%.40s%s%.40s", first, second != NULL ? " " : "",
        second != NULL ? second : "");
    const struct command *nearest = commands;
    size_t least = (size_t)-1;
    for (const struct command *c = commands; c->name != NULL; c++) {
        size_t d = distance(name, c->name);
        size_t alone = distance(first, c->name);
        d = alone < d ? alone : d;
        if (d < least) {
            least = d;
            nearest = c;
        }
    }
    return err_set(
        err, ERR_USAGE, "no command '%s'; '%s' is the nearest, help lists all", name,
        nearest->name);
}

/* Takes the verb's words off argv; options that stand before it are left where they are. */
static int find_verb(int *argc, char **argv, const struct command **ret, struct err *err) {
    int at = 1;
    while (at < *argc && argv[at][0] == '-' && argv[at][1] != '\0') {
        bool has_value = strcmp(argv[at], "-H") == 0 || strcmp(argv[at], "--socket") == 0;
        at += has_value ? 2 : 1;
    }
    if (at >= *argc) {
        *ret = NULL;
        return 0;
    }
    int words = 0;
    for (const struct command *c = commands; c->name != NULL; c++) {
        const char *space = strchr(c->name, ' ');
        size_t first = space != NULL ? (size_t)(space - c->name) : strlen(c->name);
        bool is_first = strlen(argv[at]) == first && strncmp(argv[at], c->name, first) == 0;
        bool is_both =
            is_first && space != NULL && at + 1 < *argc && strcmp(argv[at + 1], space + 1) == 0;
        if (is_first && (space == NULL ? words == 0 : is_both)) {
            *ret = c;
            words = space == NULL ? 1 : 2;
        }
    }
    bool is_bare_noun =
        words == 1 && strcmp(argv[at], "device") == 0 && at + 1 < *argc && argv[at + 1][0] != '-';
    if (words == 0 || is_bare_noun) {
        return unknown_verb(argv[at], at + 1 < *argc ? argv[at + 1] : NULL, err);
    }
    memmove(argv + at, argv + at + words, (size_t)(*argc - at - words + 1) * sizeof argv[0]);
    *argc -= words;
    return 0;
}

/* ---- Options ----------------------------------------------------------------------------- */

static size_t add_rows(
    const struct command_option *rows, struct option *longs, const struct command_option **index,
    char *shorts, size_t n) {
    for (; rows->name != NULL; rows++, n++) {
        bool has_value = rows->value != NULL;
        longs[n] = (struct option){
            rows->name, has_value ? required_argument : no_argument, NULL, 256 + (int)n};
        index[n] = rows;
        if (rows->letter != 0) {
            size_t at = strlen(shorts);
            shorts[at++] = rows->letter;
            shorts[at++] = has_value ? ':' : '\0';
            shorts[at] = '\0';
        }
    }
    return n;
}

static const struct command_option *
option_of(int c, const struct command_option **index, size_t n) {
    if (c >= 256) {
        return index[c - 256];
    }
    for (size_t i = 0; i < n; i++) {
        if (index[i]->letter == c) {
            return index[i];
        }
    }
    return NULL;
}

static int parse_options(int argc, char **argv, struct args *a, struct err *err) {
    struct option longs[64];
    const struct command_option *index[64];
    char shorts[160] = ":";
    memset(longs, 0, sizeof longs);
    size_t n = a->command != NULL ? add_rows(a->command->options, longs, index, shorts, 0) : 0;
    n = add_rows(command_globals, longs, index, shorts, n);
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, shorts, longs, NULL)) != -1;) {
        const struct command_option *o = option_of(c, index, n);
        if (o == NULL) {
            return err_set(
                err, ERR_USAGE, "'%.80s' %s", argv[optind - 1],
                c == ':' ? "needs a value" : "is no option of this command");
        }
        if (a->given_count == ARGS_MAX_GIVEN) {
            return err_set(err, ERR_USAGE, "more than %d options", ARGS_MAX_GIVEN);
        }
        a->given[a->given_count++] = (struct given){o, optarg};
    }
    a->operands = argv + optind;
    a->operand_count = argc - optind;
    return 0;
}

static int check_operands(const struct args *a, struct err *err) {
    const struct command *c = a->command;
    if (a->operand_count < c->least || (c->most >= 0 && a->operand_count > c->most)) {
        return err_set(
            err, ERR_USAGE, "usage: ipuctl %s %s; --help explains it", c->name, c->operands);
    }
    return 0;
}

int args_parse(int argc, char **argv, struct args *ret, struct err *err) {
    memset(ret, 0, sizeof *ret);
    ret->program = argv[0];
    int r = find_verb(&argc, argv, &ret->command, err);
    if (r == 0 && ret->command != NULL && ret->command->run == cmd_tile_run) {
        ret->operands = argv + 1; /* its options are the other program's */
        ret->operand_count = argc - 1;
        return 0;
    }
    if (r < 0 || (r = parse_options(argc, argv, ret, err)) < 0) {
        return r;
    }
    ret->help = args_has(ret, "help");
    const char *socket = args_value(ret, "socket");
    const char *given = getenv("IPUD_SOCKET");
    socket = socket != NULL ? socket : given != NULL && given[0] != '\0' ? given : NULL;
    socket = socket != NULL ? socket : PROTO_DEFAULT_SOCKET;
    ret->socket = strncmp(socket, "unix://", 7) == 0 ? socket + 7 : socket;
    if (ret->command == NULL) {
        return ret->help ? 0 : err_set(err, ERR_USAGE, "a command is expected; help lists them");
    }
    return ret->help ? 0 : check_operands(ret, err);
}

bool args_has(const struct args *a, const char *name) {
    size_t at = 0;
    for (; at < a->given_count; at++) {
        if (strcmp(a->given[at].option->name, name) == 0) {
            return true;
        }
    }
    return false;
}

const char *args_each(const struct args *a, const char *name, size_t *at) {
    while (*at < a->given_count) {
        const struct given *g = &a->given[(*at)++];
        if (strcmp(g->option->name, name) == 0) {
            return g->value;
        }
    }
    return NULL;
}

const char *args_value(const struct args *a, const char *name) {
    const char *last = NULL;
    size_t at = 0;
    for (const char *v; (v = args_each(a, name, &at)) != NULL;) {
        last = v;
    }
    return last;
}

int args_number(
    const struct args *a, const char *name, int64_t low, int64_t high, int64_t *ret,
    struct err *err) {
    const char *text = args_value(a, name);
    if (text == NULL) {
        return 0;
    }
    char *end = NULL;
    errno = 0;
    long long value = strtoll(text, &end, 0);
    if (errno != 0 || end == text || *end != '\0' || value < low || value > high) {
        return err_set(
            err, ERR_USAGE, "--%s: '%.40s' is no integer from %lld to %lld", name, text,
            (long long)low, (long long)high);
    }
    *ret = value;
    return 0;
}

int args_is_json(const struct args *a, bool *ret, struct err *err) {
    const char *format = args_value(a, "format");
    *ret = format != NULL && strcmp(format, "json") == 0;
    if (format != NULL && !*ret && strcmp(format, "text") != 0) {
        return err_set(err, ERR_USAGE, "--format: json or text, not '%.40s'", format);
    }
    return 0;
}

/* ---- Help -------------------------------------------------------------------------------- */

static void print_options(FILE *out, const struct command_option *rows) {
    for (; rows->name != NULL; rows++) {
        char left[64], letter[8] = "    ";
        if (rows->letter != 0) {
            snprintf(letter, sizeof letter, "-%c, ", rows->letter);
        }
        snprintf(
            left, sizeof left, "%s--%s%s%s", letter, rows->name, rows->value != NULL ? " " : "",
            rows->value != NULL ? rows->value : "");
        fprintf(out, "  %-32s %s\n", left, rows->help);
    }
}

static void print_command(const struct command *c) {
    printf(
        "usage: ipuctl %s%s%s%s\n\n%s\n\n", c->name, c->options->name != NULL ? " [options]" : "",
        c->operands[0] != '\0' ? " " : "", c->operands, c->summary);
    print_options(stdout, c->options);
    print_options(stdout, command_globals);
}

static void print_all(void) {
    puts("usage: ipuctl [-H SOCKET] COMMAND [options] [operands]\n\n"
         "  ipuctl submit model.json --input x=x.npy --output y=y.npy\n\nCommands:");
    for (const struct command *c = commands; c->name != NULL; c++) {
        char left[64];
        snprintf(left, sizeof left, "%s %s", c->name, c->operands);
        printf("  %-28s %s\n", left, c->summary);
    }
    puts("\nOptions of all:");
    print_options(stdout, command_globals);
    puts("\nExit status: 0 success, 1 job failed, 2 usage or input, 3 daemon not reached, 4 not\n"
         "permitted, 5 not found, 6 refused now, 7 deadline passed, 8 cancelled, 9 compile\n"
         "failed, 10 device fault, 11 timed out, 12 protocol, 13 local input/output.");
}

int cmd_help(const struct args *a, struct err *err) {
    const struct command *c = a->help ? a->command : NULL;
    if (c == NULL && a->operand_count > 0) {
        char name[96];
        snprintf(
            name, sizeof name, "%.40s%s%.40s", a->operands[0], a->operand_count > 1 ? " " : "",
            a->operand_count > 1 ? a->operands[1] : "");
        for (c = commands; c->name != NULL && strcmp(c->name, name) != 0; c++) {
        }
        if (c->name == NULL) {
            return unknown_verb(a->operands[0], a->operand_count > 1 ? a->operands[1] : NULL, err);
        }
    }
    if (c != NULL) {
        print_command(c);
    } else {
        print_all();
    }
    return 0;
}

/* The words of a noun's verbs, or the options of a verb, by the words before the cursor. */
int cmd_completion(const struct args *a, struct err *err) {
    if (strcmp(a->operands[0], "bash") != 0) {
        return err_set(err, ERR_USAGE, "completion for '%.40s': only bash", a->operands[0]);
    }
    puts("# Completion of ipuctl for bash, printed by `ipuctl completion bash`.\n"
         "_ipuctl() {\n    local word=${COMP_WORDS[COMP_CWORD]} words=''\n"
         "    case \"${COMP_WORDS[*]:1:COMP_CWORD-1}\" in");
    for (const struct command *c = commands; c->name != NULL; c++) {
        printf("    '%s'*) words='", c->name);
        for (const struct command *d = commands; d->name != NULL; d++) {
            size_t n = strlen(c->name);
            if (strncmp(d->name, c->name, n) == 0 && d->name[n] == ' ') {
                printf("%s ", d->name + n + 1);
            }
        }
        for (const struct command_option *o = c->options; o->name != NULL; o++) {
            printf("--%s ", o->name);
        }
        puts("--socket --help' ;;");
    }
    const char *const nouns[] = {"job", "package", "tile"};
    for (size_t i = 0; i < sizeof nouns / sizeof nouns[0]; i++) {
        printf("    '%s') words='", nouns[i]);
        for (const struct command *c = commands; c->name != NULL; c++) {
            size_t n = strlen(nouns[i]);
            if (strncmp(c->name, nouns[i], n) == 0 && c->name[n] == ' ') {
                printf("%s ", c->name + n + 1);
            }
        }
        puts("' ;;");
    }
    printf("    '') words='");
    for (const struct command *c = commands; c->name != NULL; c++) {
        const char *space = strchr(c->name, ' ');
        size_t n = space != NULL ? (size_t)(space - c->name) : strlen(c->name);
        bool is_new = c == commands || strncmp(c[-1].name, c->name, n) != 0;
        if (is_new) {
            printf("%.*s ", (int)n, c->name);
        }
    }
    puts("' ;;\n    esac\n"
         "    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n}\n"
         "complete -o default -F _ipuctl ipuctl");
    return 0;
}
