/* The `reference` job: evaluates the graph for each run and compares (proto/worker.md). */
#ifndef COMPILE_CHECK_H
#define COMPILE_CHECK_H

#include "compile/worker.h"

/* *ret is the result line, owned. Makes no arena call. */
int check_run(
    struct worker_job *job, const struct worker_model *model, json_t **ret, struct err *err);

#endif
