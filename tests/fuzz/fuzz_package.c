/* package_open() on damaged packages. The input is a program of damage to one valid file, made
 * once: a 3-byte record sets one byte (offset of 16 bits times 2 plus a parity bit, value); a
 * record with value 0xff and an odd count of records before it cuts the file there. So small inputs
 * reach every part of a file of some ten pages. Whatever happens, the reader answers. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../support/sample_package.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t *base;
static size_t base_size;

static void make_base(void) {
    char dir[] = "/tmp/ipud-fuzz-XXXXXX";
    char path[64];
    struct sample s;
    struct digest digest;
    sample_init(&s);
    if (mkdtemp(dir) == NULL) {
        abort();
    }
    snprintf(path, sizeof path, "%s/p", dir);
    if (package_write(&s.p, path, &digest, NULL) < 0) {
        abort();
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    off_t n = lseek(fd, 0, SEEK_END);
    base = malloc((size_t)n);
    if (base == NULL || pread(fd, base, (size_t)n, 0) != n) {
        abort();
    }
    base_size = (size_t)n;
    close(fd);
    unlink(path);
    rmdir(dir);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (base == NULL) {
        make_base();
    }
    size_t n = base_size;
    uint8_t *file = malloc(n);
    if (file == NULL) {
        return 0;
    }
    memcpy(file, base, n);
    for (size_t i = 0; i + 3 <= size && i < 3 * 64; i += 3) {
        size_t at = 2 * (size_t)(data[i] | data[i + 1] << 8) + (data[i + 2] & 1);
        if (data[i + 2] == 0xff && (i / 3) % 2 == 1) {
            n = at < n ? at : n;
        } else if (at < n) {
            file[at] = data[i + 2];
        }
    }
    int fd = memfd_create("package", MFD_CLOEXEC);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (fd >= 0 && write(fd, file, n) == (ssize_t)n) {
        struct package *p = NULL;
        struct err err = {0};
        if (package_open(path, NULL, &p, NULL, &err) == 0) {
            package_free(p);
        } else if (err.code == 0 || err.text[0] == '\0') {
            abort(); /* refused without a reason */
        }
    }
    close(fd);
    free(file);
    return 0;
}
