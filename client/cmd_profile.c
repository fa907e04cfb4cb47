/* ipuctl profile show|export: where the cycles of a job's run went. The daemon has made the report
 * (proto/profile.md); here it is chosen from, cut and printed. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "client/follow.h"
#include "proto/proto.h"

#define DEFAULT_TOP 20

static void decref_cleanup(json_t **j) {
    json_decref(*j);
}

static int64_t integer(const json_t *o, const char *name) {
    return json_integer_value(output_member(o, name));
}

static double real(const json_t *o, const char *name) {
    return json_number_value(output_member(o, name));
}

/* "12.3 %" of a share, "" when the member is absent. */
static const char *percent(const json_t *o, const char *name, bool is_signed, char *buf, size_t n) {
    buf[0] = '\0';
    if (output_member(o, name) != NULL) {
        snprintf(buf, n, is_signed ? "%+.1f %%" : "%.1f %%", 100 * real(o, name));
    }
    return buf;
}

static void print_share(const char *name, int64_t cycles, int64_t all) {
    printf(
        "%s %lld (%.1f %%)", name, (long long)cycles,
        all > 0 ? 100.0 * (double)cycles / (double)all : 0);
}

static void print_head(const json_t *report) {
    char error[32], used[32];
    int64_t cycles = integer(report, "cycles");
    printf(
        "run %lld of package %.12s, profile %s, %lld samples of %lld tiles, %lld idle\n",
        (long long)integer(report, "run"), json_string_value(json_object_get(report, "package")),
        json_string_value(json_object_get(report, "level")), (long long)integer(report, "samples"),
        (long long)integer(report, "tiles.participants"), (long long)integer(report, "tiles.idle"));
    printf(
        "device cycles %lld, predicted %lld (%s), %.1f us\n", (long long)cycles,
        (long long)integer(report, "predicted"),
        percent(report, "prediction_error", true, error, sizeof error),
        1e6 * (double)cycles / real(report, "clock_hz"));
    fputs("critical path: ", stdout);
    print_share("compute", integer(report, "path.cycles.compute"), cycles);
    print_share(", exchange", integer(report, "path.cycles.exchange"), cycles);
    print_share(", sync", integer(report, "path.cycles.sync"), cycles);
    if (integer(report, "path.cycles.repeat") > 0) {
        print_share(", earlier turns of the loop", integer(report, "path.cycles.repeat"), cycles);
    }
    printf(
        "\nuseful utilisation: %s of %lld tiles at their peak\n",
        percent(report, "utilisation", false, used, sizeof used),
        (long long)integer(report, "tiles.compute"));
}

/* ---- Critical path ------------------------------------------------------------------------- */

static int by_cycles(const void *pa, const void *pb) {
    const json_t *a = *(json_t *const *)pa, *b = *(json_t *const *)pb;
    int64_t x = integer(a, "cycles"), y = integer(b, "cycles");
    if (x != y) {
        return x > y ? -1 : 1;
    }
    return integer(a, "level") < integer(b, "level") ? -1 : 1;
}

static void print_segment(const json_t *s) {
    const char *kind = json_string_value(json_object_get(s, "kind"));
    const char *op = json_string_value(json_object_get(s, "op"));
    const char *kernel = json_string_value(json_object_get(s, "kernel"));
    printf(
        "%5lld  %-8s  %8lld  %9lld  %4lld  ", (long long)integer(s, "level"), kind,
        (long long)integer(s, "cycles"), (long long)integer(s, "predicted"),
        (long long)integer(s, "tile"));
    if (op != NULL && kernel != NULL) {
        printf("%lld ", (long long)integer(s, "operation"));
        output_text(stdout, op);
        fputs(", ", stdout);
        output_text(stdout, kernel);
    } else if (json_object_get(s, "horizon") != NULL) {
        printf(
            "horizon %lld of at least %lld, %lld bytes to all, %lld tiles, arrivals over %lld",
            (long long)integer(s, "horizon"), (long long)integer(s, "bound"),
            (long long)integer(s, "bytes"), (long long)integer(s, "tiles"),
            (long long)integer(s, "spread"));
    }
    fputc('\n', stdout);
}

static int print_path(const json_t *report, int64_t top, struct err *err) {
    json_t *segments = output_member(report, "path.segments");
    size_t n = json_array_size(segments), i;
    json_t **sorted = calloc(n + 1, sizeof *sorted);
    json_t *segment;
    if (sorted == NULL) {
        return err_set(err, ERR_NOMEM, NULL);
    }
    json_array_foreach(segments, i, segment) {
        sorted[i] = segment;
    }
    qsort(sorted, n, sizeof *sorted, by_cycles);
    printf(
        "\nlongest parts of the critical path\nLEVEL  KIND        CYCLES  PREDICTED  TILE  WHAT\n");
    for (i = 0; i < n && (int64_t)i < top; i++) {
        print_segment(sorted[i]);
    }
    free(sorted);
    return 0;
}

/* ---- Groups -------------------------------------------------------------------------------- */

static void print_group(const char *by, const json_t *rows, int64_t top) {
    char used[32], error[32];
    size_t i;
    json_t *row;
    printf(
        "\nby %s\n%-28s %8s %10s %8s %5s %6s %9s %9s\n", by, "NAME", "SPAN", "ALL TILES", "BUSIEST",
        "TILE", "TILES", "USEFUL", "PREDICTED");
    json_array_foreach(rows, i, row) {
        const char *name = json_string_value(json_object_get(row, "name"));
        if ((int64_t)i >= top) {
            printf("... %zu more, --top N\n", json_array_size(rows) - i);
            return;
        }
        output_text(stdout, name != NULL ? name : "?");
        printf(
            "%*s %8lld %10lld %8lld %5lld %6lld %9s %9s\n",
            (int)(name != NULL && strlen(name) < 28 ? 28 - strlen(name) : 0), "",
            (long long)integer(row, "span"), (long long)integer(row, "cycles"),
            (long long)integer(row, "busiest"), (long long)integer(row, "busiest_tile"),
            (long long)integer(row, "tiles"), percent(row, "utilisation", false, used, sizeof used),
            percent(row, "prediction_error", true, error, sizeof error));
    }
}

/* Leaves the group that is wanted, and `top` of its rows; and of the path's segments. */
static void cut_report(json_t *report, const char *by, int64_t top) {
    json_t *groups = json_object_get(report, "groups");
    json_t *one = json_incref(json_object_get(groups, by));
    json_object_clear(groups);
    while ((int64_t)json_array_size(one) > top) {
        json_array_remove(one, json_array_size(one) - 1);
    }
    json_object_set_new(groups, by, one);
}

static int check_group(const char *by, struct err *err) {
    static const char *const ways[] = {"kernel", "operation", "phase", "tile", "kind"};
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        if (strcmp(by, ways[i]) == 0) {
            return 0;
        }
    }
    return err_set(
        err, ERR_USAGE, "--group-by: kernel, operation, phase, tile or kind, not '%.40s'", by);
}

int cmd_profile_show(const struct args *a, struct err *err) {
    CLEANUP(http_cleanup) struct http *h = NULL;
    CLEANUP(decref_cleanup) json_t *report = NULL;
    const char *by = args_value(a, "group-by");
    char path[HTTP_MAX_PATH];
    int64_t top = DEFAULT_TOP;
    bool as_json;
    by = by != NULL ? by : "kernel";
    int r = args_is_json(a, &as_json, err);
    if (r < 0 || (r = check_group(by, err)) < 0 ||
        (r = args_number(a, "top", 1, INT32_MAX, &top, err)) < 0 ||
        (r = follow_check_job(a->operands[0], err)) < 0 ||
        (r = http_open(a->socket, &h, err)) < 0) {
        return r;
    }
    http_path(path, "/v1/jobs/", a->operands[0], "/profile");
    if ((r = http_get(h, path, &report, err)) < 0) {
        return r;
    }
    if (json_string_value(json_object_get(report, "package")) == NULL ||
        json_string_value(json_object_get(report, "level")) == NULL) {
        return err_set(err, ERR_PROTOCOL, "GET %.200s: no profile", path);
    }
    if (as_json) {
        if (args_has(a, "group-by") || args_has(a, "top")) {
            cut_report(report, by, top);
        }
        output_json(report);
        return 0;
    }
    print_head(report);
    r = print_path(report, top < 10 ? top : 10, err);
    print_group(by, json_object_get(json_object_get(report, "groups"), by), top);
    if (strcmp(by, "kernel") == 0 &&
        strcmp(json_string_value(json_object_get(report, "level")), "phase") == 0) {
        printf("shares of a phase are by prediction; submit --profile kernel measures each call\n");
    }
    return r;
}

int cmd_profile_export(const struct args *a, struct err *err) {
    CLEANUP(http_cleanup) struct http *h = NULL;
    char path[HTTP_MAX_PATH];
    int r = follow_check_job(a->operands[0], err);
    if (r < 0 || (r = http_open(a->socket, &h, err)) < 0) {
        return r;
    }
    http_path(path, "/v1/jobs/", a->operands[0], "/profile?format=ipuprof");
    return follow_save(h, path, a->operands[1], err);
}
