/* safetensors files, whole. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    struct safetensors s;
    struct err err = {0};
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) {
        close(fd);
        return 0;
    }
    if (safetensors_open(fd, "fuzz", &s, &err) == 0) {
        uint64_t total = 0;
        for (size_t i = 0; i < s.count; i++) {
            const struct safetensors_entry *e = &s.entries[i];
            total += e->size_bytes;
            if (e->offset > size || e->size_bytes > size - e->offset ||
                safetensors_find(&s, e->name) != e ||
                (i > 0 && strcmp(s.entries[i - 1].name, e->name) >= 0)) {
                abort(); /* every entry lies in the file and is found by its name */
            }
        }
        if (total > size) {
            abort(); /* no overlap */
        }
        safetensors_done(&s);
    }
    close(fd);
    return 0;
}
