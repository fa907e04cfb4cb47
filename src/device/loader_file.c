/* The secondary loader from a file (device fact sheet 4.1): an ELF32 file with exactly one loadable
 * segment, at the base of tile memory. What the file holds beyond its program headers and that
 * segment is not looked at. One pass over the headers; nothing is allocated.
 *
 * Offsets and values of the headers are those of the System V ABI, chapter 4 (ELF header) and
 * chapter 5 (program header). */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/cleanup.h"
#include "device/device_internal.h"

#define ELF_HEADER_BYTES     52u
#define ELF_PROGRAM_BYTES    32u
#define ELF_CLASS_32         1
#define ELF_LITTLE_ENDIAN    1
#define ELF_VERSION          1
#define ELF_TYPE_EXECUTABLE  2
#define ELF_SEGMENT_LOADABLE 1u

struct elf_segment {
    uint32_t type, offset, addr, file_bytes, memory_bytes;
};

static int check_header(const uint8_t *bytes, size_t n, struct err *err) {
    if (n > LOADER_MAX_FILE_BYTES) {
        return err_set(
            err, ERR_INVALID, "loader file of %zu bytes, at most %u", n, LOADER_MAX_FILE_BYTES);
    }
    if (n < ELF_HEADER_BYTES || memcmp(bytes, "\177ELF", 4) != 0) {
        return err_set(
            err, ERR_INVALID, "loader file: %zu bytes that do not begin with an ELF header", n);
    }
    if (bytes[4] != ELF_CLASS_32 || bytes[5] != ELF_LITTLE_ENDIAN || bytes[6] != ELF_VERSION) {
        return err_set(
            err, ERR_INVALID,
            "loader file: ELF class %u, byte order %u, version %u; 32 bits (1), little-endian (1), "
            "version 1 are wanted",
            bytes[4], bytes[5], bytes[6]);
    }
    if (load_le16(bytes + 16) != ELF_TYPE_EXECUTABLE) {
        return err_set(
            err, ERR_INVALID, "loader file: ELF type %u, an executable (2) is wanted",
            load_le16(bytes + 16));
    }
    return 0;
}

static struct elf_segment read_segment(const uint8_t *p) {
    struct elf_segment s = {
        .type = load_le32(p),
        .offset = load_le32(p + 4),
        .addr = load_le32(p + 8),
        .file_bytes = load_le32(p + 16),
        .memory_bytes = load_le32(p + 20),
    };
    return s;
}

/* The one loadable segment that is not empty. */
static int find_segment(const uint8_t *bytes, size_t n, struct elf_segment *ret, struct err *err) {
    uint32_t table = load_le32(bytes + 28);
    uint32_t entry_bytes = load_le16(bytes + 42);
    uint32_t count = load_le16(bytes + 44);
    if (count > LOADER_MAX_HEADERS) {
        return err_set(
            err, ERR_INVALID, "loader file: %u program headers, at most %u", count,
            LOADER_MAX_HEADERS);
    }
    if (count > 0 &&
        (entry_bytes != ELF_PROGRAM_BYTES || table > n || count * ELF_PROGRAM_BYTES > n - table)) {
        return err_set(
            err, ERR_INVALID,
            "loader file: %u program headers of %u bytes at %u do not fit its %zu bytes", count,
            entry_bytes, table, n);
    }
    uint32_t found = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct elf_segment s = read_segment(bytes + table + i * ELF_PROGRAM_BYTES);
        if (s.type == ELF_SEGMENT_LOADABLE && s.memory_bytes > 0) {
            *ret = s;
            found++;
        }
    }
    return found == 1 ? 0
                      : err_set(
                            err, ERR_INVALID,
                            "loader file: %u loadable segments, exactly one is wanted", found);
}

int loader_parse(const uint8_t *bytes, size_t n, struct loader_image *ret, struct err *err) {
    struct elf_segment s = {0};
    int r = check_header(bytes, n, err);
    r = r < 0 ? r : find_segment(bytes, n, &s, err);
    if (r < 0) {
        return r;
    }
    if (s.addr != TARGET_MEM_BASE) {
        return err_set(
            err, ERR_INVALID, "loader file: segment at 0x%x, 0x%x is wanted", s.addr,
            TARGET_MEM_BASE);
    }
    if (s.memory_bytes > LOADER_MAX_BYTES || s.file_bytes > s.memory_bytes) {
        return err_set(
            err, ERR_INVALID, "loader file: segment of %u bytes (%u in the file), at most %u",
            s.memory_bytes, s.file_bytes, LOADER_MAX_BYTES);
    }
    if (s.offset > n || s.file_bytes > n - s.offset) {
        return err_set(
            err, ERR_INVALID, "loader file: segment of %u bytes at %u, the file has %zu",
            s.file_bytes, s.offset, n);
    }
    memset(ret->bytes, 0, sizeof ret->bytes);
    memcpy(ret->bytes, bytes + s.offset, s.file_bytes);
    ret->size = s.memory_bytes;
    return 0;
}

int loader_read(const char *path, struct loader_image *ret, struct err *err) {
    CLEANUP(cleanup_close) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0) {
        return err_sys(
            err, errno == EACCES ? ERR_PERMISSION : ERR_INVALID, errno, "loader file %s", path);
    }
    if (!S_ISREG(st.st_mode) || st.st_size > LOADER_MAX_FILE_BYTES) {
        return err_at(
            err, ERR_INVALID, path, "loader file %s: no regular file of at most %u bytes", path,
            LOADER_MAX_FILE_BYTES);
    }
    size_t n = (size_t)st.st_size;
    CLEANUP(cleanup_free) uint8_t *bytes = malloc(n > 0 ? n : 1);
    if (bytes == NULL) {
        return err_set(err, ERR_NOMEM, "loader file %s", path);
    }
    ssize_t got = pread(fd, bytes, n, 0);
    if (got != (ssize_t)n) {
        return err_sys(err, ERR_IO, got < 0 ? errno : 0, "loader file %s", path);
    }
    int r = loader_parse(bytes, n, ret, err);
    return r < 0 ? err_wrap(err, "%s", path) : 0;
}
