/* package_open() on damaged packages. The input is a program of damage to one valid file, made
 * once: a 4-byte record sets one byte (offset of 24 bits, modulo the file's size; value); one whose
 * offset is 0xffffff cuts the file after `value` pages of 512 bytes. So small inputs reach every
 * part of the file. Whatever happens, the reader answers: a refusal has a reason, an accepted
 * package has passed every check of package.h. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../support/sample_package.h"

#define MAX_RECORDS 64
#define PAGE_BYTES  512

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t *base; /* the valid file */
static size_t base_size;
static uint8_t *damaged; /* base_size bytes */
static char dir[] = "/tmp/ipud-fuzz-XXXXXX";
static char path[64];

static void remove_files(void) {
    unlink(path);
    rmdir(dir);
    free(base);
    free(damaged);
}

/* Also shows that the undamaged file is accepted, without which the target would test nothing. */
static void make_base(void) {
    struct sample s;
    struct digest digest;
    struct package *p = NULL;
    sample_init(&s);
    if (mkdtemp(dir) == NULL) {
        abort();
    }
    snprintf(path, sizeof path, "%s/p", dir);
    if (package_write(&s.p, path, &digest, NULL) < 0 ||
        package_open(path, NULL, &p, NULL, NULL) < 0) {
        abort();
    }
    package_free(p);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    off_t n = lseek(fd, 0, SEEK_END);
    base_size = (size_t)n;
    base = malloc(base_size);
    damaged = malloc(base_size);
    if (base == NULL || damaged == NULL || pread(fd, base, base_size, 0) != n) {
        abort();
    }
    close(fd);
    atexit(remove_files);
}

static size_t damage(const uint8_t *data, size_t size) {
    size_t n = base_size;
    memcpy(damaged, base, n);
    for (size_t i = 0; i + 4 <= size && i < 4 * MAX_RECORDS; i += 4) {
        size_t at = (size_t)data[i] | (size_t)data[i + 1] << 8 | (size_t)data[i + 2] << 16;
        if (at == 0xffffff) {
            size_t cut = (size_t)data[i + 3] * PAGE_BYTES;
            n = cut < n ? cut : n;
        } else {
            damaged[at % base_size] = data[i + 3];
        }
    }
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (base == NULL) {
        make_base();
    }
    size_t n = damage(data, size);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, damaged, n) != (ssize_t)n) {
        abort();
    }
    close(fd);
    struct package *p = NULL;
    struct err err = {0};
    if (package_open(path, NULL, &p, NULL, &err) == 0) {
        package_free(p);
    } else if (err.code == 0 || err.text[0] == '\0') {
        abort(); /* refused without a reason */
    }
    return 0;
}
