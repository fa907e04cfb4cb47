/* JSON that C can hold without backslashes: ' stands for ". */
#ifndef TESTS_UNIT_QUOTED_H
#define TESTS_UNIT_QUOTED_H

#include <check.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* In place. */
static inline void quoted(char *text) {
    for (char *p = text; *p != '\0'; p++) {
        *p = *p == '\'' ? '"' : *p;
    }
}

/* Owned by the caller; the test fails when it is no JSON. */
static inline json_t *quoted_json(const char *text) {
    char *copy = strdup(text);
    quoted(copy);
    json_error_t fault;
    json_t *json = json_loads(copy, JSON_REJECT_DUPLICATES, &fault);
    ck_assert_msg(json != NULL, "%s in %s", fault.text, copy);
    free(copy);
    return json;
}

#endif
