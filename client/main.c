/* ipuctl: arguments, the verb, its error, the exit status (src/base/err.def). */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/commands.h"
#include "client/output.h"

#define EXIT_SIGPIPE 141

/* What was printed must have arrived: a full disk is an error, a closed pipe ends as the signal
 * would. */
static int flush_stdout(int status) {
    errno = 0;
    bool failed = ferror(stdout) != 0;
    failed = fflush(stdout) != 0 || failed;
    if (!failed) {
        return status;
    }
    if (errno == EPIPE || errno == 0) {
        return EXIT_SIGPIPE;
    }
    fprintf(stderr, "ipuctl: standard output: %s\n", strerror(errno));
    return err_exit(ERR_IO);
}

int main(int argc, char **argv) {
    static struct args args; /* large: a thousand options */
    struct err err;
    err_clear(&err);
    signal(SIGPIPE, SIG_IGN);
    int r = args_parse(argc, argv, &args, &err);
    if (r == 0) {
        r = args.help ? cmd_help(&args, &err) : args.command->run(&args, &err);
    }
    int status = flush_stdout(r < 0 ? err_exit(r) : r);
    if (r < 0) {
        output_error(&err);
    }
    return status;
}
