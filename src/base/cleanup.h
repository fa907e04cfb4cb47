/* Owned locals (R19): CLEANUP(fn) on a declaration releases at scope end, TAKE(p) marks the one
 * line where ownership leaves. All destructors accept NULL or -1.
 *
 *     CLEANUP(cleanup_free) char *text = NULL;
 *     ...
 *     *ret_text = TAKE(text);
 */
#ifndef BASE_CLEANUP_H
#define BASE_CLEANUP_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define CLEANUP(fn) __attribute__((cleanup(fn)))
#define TAKE(p)                                                                                    \
    __extension__({                                                                                \
        __typeof__(p) taken_ = (p);                                                                \
        (p) = NULL;                                                                                \
        taken_;                                                                                    \
    })
#define TAKE_FD(fd)                                                                                \
    __extension__({                                                                                \
        int taken_ = (fd);                                                                         \
        (fd) = -1;                                                                                 \
        taken_;                                                                                    \
    })

static inline void cleanup_free(void *p) {
    free(*(void **)p);
}

static inline void cleanup_close(int *fd) {
    if (*fd >= 0) {
        close(*fd);
    }
}

static inline void cleanup_fclose(FILE **file) {
    if (*file != NULL) {
        fclose(*file);
    }
}

#endif
