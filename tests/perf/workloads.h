/* `bench workloads FOLDER [NAME]`: large products and networks on all 1,472 tiles, random data,
 * checked against float64: one row of a table each. folder has their model documents, <name>.json
 * of tests/models/generate.py; only NULL or the name of one. */
#ifndef TESTS_PERF_WORKLOADS_H
#define TESTS_PERF_WORKLOADS_H

void bench_workloads(const char *folder, const char *only);

#endif
