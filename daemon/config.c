/* See config.h. A setting is found by its row; what no row names is refused. */
#include "daemon/config.h"

#include <errno.h>
#include <getopt.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WORKER_MEMORY "0" /* shadow memory takes terabytes of address space */
#else
#define WORKER_MEMORY "8G"
#endif

enum kind { TEXT, FLAG, NUMBER, BYTES };

static const struct row {
    const char *name;
    enum kind kind;
    size_t offset;
    const char *initial; /* NULL = unset */
    uint64_t low, high;
    const char *help;
} rows[] = {
    {"config", TEXT, offsetof(struct config, config), NULL, 0, 0, "read settings from this file"},
    {"device", TEXT, offsetof(struct config, device), "/dev/ipu0", 0, 0, "sim or /dev/ipuN"},
    {"state-dir", TEXT, offsetof(struct config, state_dir), NULL, 0, 0,
     "all that is kept ($STATE_DIRECTORY, /var/lib/ipud)"},
    {"socket", TEXT, offsetof(struct config, socket), "/run/ipud/ipud.sock", 0, 0,
     "where to listen, if no socket is passed"},
    {"lock", TEXT, offsetof(struct config, lock), "/run/ipud/device.lock", 0, 0,
     "file whose lock owns the device"},
    {"loader", TEXT, offsetof(struct config, loader), NULL, 0, 0,
     "ELF file of another secondary boot loader than our own"},
    {"compiler", TEXT, offsetof(struct config, compiler), NULL, 0, 0,
     "compile worker ($IPUD_COMPILE, ipud-compile beside this program)"},
    {"operator-group", TEXT, offsetof(struct config, operator_group), NULL, 0, 0,
     "members may do what root may"},
    {"socket-group", TEXT, offsetof(struct config, socket_group), NULL, 0, 0,
     "group that may connect"},
    {"no-wait", FLAG, offsetof(struct config, no_wait), "0", 0, 1,
     "end when another process holds the device"},
    {"workers", NUMBER, offsetof(struct config, workers), "0", 0, 256,
     "compile processes at a time, 0 = processors"},
    {"worker-memory", BYTES, offsetof(struct config, worker_memory), WORKER_MEMORY, 0, 1ull << 46,
     "address space of one, 0 = no limit"},
    {"package-limit", BYTES, offsetof(struct config, package_limit), "20G", 0, 1ull << 50,
     "size of all packages, 0 = no limit"},
    {"blob-limit", BYTES, offsetof(struct config, blob_limit), "50G", 0, 1ull << 50,
     "size of all blobs, 0 = no limit"},
    {"min-free", BYTES, offsetof(struct config, min_free), "256M", 0, 1ull << 50,
     "space to leave on the file system"},
    {"no-progress-ms", NUMBER, offsetof(struct config, no_progress_ms), "300000", 1000, 86400000,
     "end a compile that says nothing for so long"},
    {"keep-hours", NUMBER, offsetof(struct config, keep_hours), "720", 0, 876000,
     "keep ended jobs so long, 0 = for ever"},
    {"sim-threads", NUMBER, offsetof(struct config, sim_threads), "0", 0, 1024,
     "threads of the simulator, 0 = processors"},
    {"sim-sync-release", NUMBER, offsetof(struct config, sim_sync_release), "0", 0, 100000,
     "cycles a simulated barrier takes to release, 0 = calibrated"},
    {"log-level", NUMBER, offsetof(struct config, log_level), "6", 3, 7, "3 error .. 7 debug"},
    {"version", FLAG, offsetof(struct config, version), "0", 0, 1, "print the version"},
    {"help", FLAG, offsetof(struct config, help), "0", 0, 1, "print this"},
};

#define ROWS (sizeof rows / sizeof rows[0])

static int parse_number(const struct row *row, const char *text, uint64_t *ret, struct err *err) {
    char *end = NULL;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    unsigned shift = 0;
    if (row->kind == BYTES && end != text && *end != '\0') {
        const char *units = "KMGT";
        const char *unit = strchr(units, *end);
        shift = unit != NULL && end[1] == '\0' ? 10 * (unsigned)(unit - units + 1) : 64;
    }
    bool is_number = text[0] >= '0' && text[0] <= '9' && errno == 0 &&
                     (*end == '\0' || (shift > 0 && shift < 64));
    if (!is_number || value > row->high >> (shift < 64 ? shift : 0) ||
        value << (shift & 63) < row->low) {
        return err_set(
            err, ERR_USAGE, "%s: '%s' is not from %llu to %llu", row->name, text,
            (unsigned long long)row->low, (unsigned long long)row->high);
    }
    *ret = value << shift;
    return 0;
}

static int set(struct config *c, const struct row *row, const char *text, struct err *err) {
    void *field = (char *)c + row->offset;
    if (row->kind == TEXT) {
        char *copy = strdup(text);
        if (copy == NULL) {
            return err_set(err, ERR_NOMEM, NULL);
        }
        free(*(char **)field);
        *(char **)field = copy;
        return 0;
    }
    if (row->kind == FLAG) {
        bool is_on = strcmp(text, "1") == 0 || strcmp(text, "yes") == 0;
        if (!is_on && strcmp(text, "0") != 0 && strcmp(text, "no") != 0) {
            return err_set(err, ERR_USAGE, "%s: '%s' is not yes or no", row->name, text);
        }
        *(bool *)field = is_on;
        return 0;
    }
    return parse_number(row, text, field, err);
}

static char *trim(char *text) {
    text += strspn(text, " \t");
    for (size_t n = strlen(text); n > 0 && strchr(" \t\r\n", text[n - 1]) != NULL; n--) {
        text[n - 1] = '\0';
    }
    return text;
}

static int read_file(struct config *c, const char *path, struct err *err) {
    CLEANUP(cleanup_fclose) FILE *file = fopen(path, "re");
    if (file == NULL) {
        return err_sys(err, ERR_IO, errno, "%s", path);
    }
    char line[4096];
    for (int number = 1; fgets(line, sizeof line, file) != NULL; number++) {
        char *name = trim(line);
        if (*name == '\0' || *name == '#') {
            continue;
        }
        char *equals = strchr(name, '=');
        if (equals != NULL) {
            *equals = '\0';
        }
        name = trim(name);
        size_t i = 0;
        while (i < ROWS && strcmp(rows[i].name, name) != 0) {
            i++;
        }
        if (equals == NULL || i == ROWS || strcmp(name, "config") == 0) {
            return err_set(err, ERR_USAGE, "%s:%d: '%.60s' is no setting", path, number, name);
        }
        int r = set(c, &rows[i], trim(equals + 1), err);
        if (r < 0) {
            return err_wrap(err, "%s:%d", path, number);
        }
    }
    return 0;
}

static int
read_arguments(int argc, char **argv, struct config *c, bool config_only, struct err *err) {
    struct option options[ROWS + 1];
    memset(options, 0, sizeof options);
    for (size_t i = 0; i < ROWS; i++) {
        options[i] = (struct option){
            rows[i].name, rows[i].kind == FLAG ? no_argument : required_argument, NULL, (int)i};
    }
    optind = 0; /* begin anew: the line is read twice */
    opterr = 0;
    for (int i; (i = getopt_long(argc, argv, ":", options, NULL)) != -1;) {
        if (i == '?' || i == ':') {
            return err_set(
                err, ERR_USAGE, "'%s' %s; --help lists the options", argv[optind - 1],
                i == '?' ? "is no option" : "needs a value");
        }
        bool is_config = strcmp(rows[i].name, "config") == 0;
        int r = is_config == config_only ? set(c, &rows[i], optarg != NULL ? optarg : "1", err) : 0;
        if (r < 0) {
            return r;
        }
    }
    return optind < argc ? err_set(err, ERR_USAGE, "'%s' is no option", argv[optind]) : 0;
}

int config_read(int argc, char **argv, struct config *ret, struct err *err) {
    struct config c;
    memset(&c, 0, sizeof c);
    int r = 0;
    for (size_t i = 0; i < ROWS && r == 0; i++) {
        r = rows[i].initial != NULL ? set(&c, &rows[i], rows[i].initial, err) : 0;
    }
    if (r == 0) {
        r = read_arguments(argc, argv, &c, true, err);
    }
    if (r == 0 && c.config != NULL) {
        r = read_file(&c, c.config, err);
    }
    if (r == 0) {
        r = read_arguments(argc, argv, &c, false, err);
    }
    if (r == 0 && c.state_dir == NULL) {
        const char *given = getenv("STATE_DIRECTORY");
        c.state_dir = strdup(given != NULL ? given : "/var/lib/ipud");
        r = c.state_dir != NULL ? 0 : err_set(err, ERR_NOMEM, NULL);
    }
    if (r < 0) {
        config_done(&c);
        return r;
    }
    *ret = c;
    return 0;
}

void config_done(struct config *c) {
    for (size_t i = 0; i < ROWS; i++) {
        if (rows[i].kind == TEXT) {
            free(*(char **)((char *)c + rows[i].offset));
        }
    }
    memset(c, 0, sizeof *c);
}

void config_help(FILE *out) {
    fprintf(
        out, "usage: ipud [options]\n\nThe daemon of the IPU. Options (also as 'name = value' "
             "lines of the --config file):\n\n");
    for (size_t i = 0; i < ROWS; i++) {
        static const char *const kinds[] = {" TEXT", "", " N", " BYTES"};
        char left[48];
        snprintf(left, sizeof left, "--%s%s", rows[i].name, kinds[rows[i].kind]);
        fprintf(out, "  %-24s %s", left, rows[i].help);
        fprintf(
            out, rows[i].initial != NULL && rows[i].kind != FLAG ? " [%s]\n" : "\n",
            rows[i].initial);
    }
}
