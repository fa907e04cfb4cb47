/* vectors SUB-COMMAND FILE: runs a file of test vectors; exit status 0 when all pass. */
#include <stdio.h>
#include <string.h>

#include "vectors.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} commands[] = {
    {"isa", vectors_isa, "single instructions and short sequences against the simulated tile"},
    {"exchange", vectors_exchange, "exchange rows against encoder and fabric"},
};

int main(int argc, char **argv) {
    size_t n = sizeof commands / sizeof commands[0];

    for (size_t i = 0; argc > 1 && i < n; i++) {
        if (strcmp(argv[1], commands[i].name) == 0) {
            return commands[i].run(argc - 1, argv + 1);
        }
    }
    fprintf(stderr, "usage: vectors SUB-COMMAND FILE\n");
    for (size_t i = 0; i < n; i++) {
        fprintf(stderr, "  %-9s %s\n", commands[i].name, commands[i].help);
    }
    return 2;
}
