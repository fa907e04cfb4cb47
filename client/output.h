/* What ipuctl prints: text and JSON writers behind one interface, and the escaping of text from
 * outside. A terminal obeys control bytes, so names, messages and details of others pass through
 * output_text(), which prints bytes below 0x20, 0x7f and broken or C1 characters as \xNN.
 */
#ifndef CLIENT_OUTPUT_H
#define CLIENT_OUTPUT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/err.h"

enum output_kind { OUTPUT_TEXT, OUTPUT_DIGEST /* first 12 digits */, OUTPUT_TIME };

struct output_column {
    const char *title;
    const char *member; /* "error.code" goes down */
    enum output_kind kind;
};

void output_text(FILE *out, const char *text);
/* "ipuctl: place: text (code)" on stderr. */
void output_error(const struct err *err);
/* The document as it is, one value, indented. */
void output_json(const json_t *document);
/* Document as "member: value" lines, objects in objects by dotted names; or as JSON. */
void output_document(const json_t *document, bool as_json);
/* `items` as a table; tab-separated without a head when stdout is no terminal. Or as JSON the
 * whole document that holds them. */
void output_list(
    const json_t *document, const json_t *items, const struct output_column *columns, int n,
    bool as_json);
/* "message key=value key=value" of an event, values as the run log prints them. */
void output_event(FILE *out, const json_t *event);
/* "key=value key=value" of an object with plain values, and a newline: a result line of the log. */
void output_fields(FILE *out, const json_t *fields);
/* The member at a dotted name, NULL when absent. Borrowed. */
json_t *output_member(const json_t *document, const char *name);

/* Progress on stderr: a bar on a terminal, else one line a change of state. */
struct progress {
    bool is_quiet;
    bool is_bar;
    bool is_open; /* a bar is on the line */
    char state[32];
    long long runs, done;
};

void progress_init(struct progress *p, bool is_quiet);
void progress_state(struct progress *p, const char *job, const char *state);
void progress_runs(struct progress *p, long long done, long long runs);
/* Clears the bar before anything else is printed. */
void progress_clear(struct progress *p);

#endif
