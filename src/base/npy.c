/* npy files. The header is a Python dictionary literal with three keys; the parser below accepts
 * that form only, moves forward at every step and therefore ends within the header's length. */
#include "base/npy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/cleanup.h"

#define MAGIC_BYTES  8  /* "\x93NUMPY", major, minor */
#define PREFIX_BYTES 12 /* magic and the longer length field */
#define MAX_WORD     32
#define SEEN_DESCR   1u
#define SEEN_ORDER   2u
#define SEEN_SHAPE   4u

struct header_text {
    const char *text; /* borrowed, not terminated */
    size_t size;
    size_t at;
    size_t file_offset; /* of text[0] */
};

__attribute__((format(printf, 3, 4))) static int
npy_fault(const struct header_text *h, struct err *err, const char *format, ...) {
    char text[256];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    char where[64];
    snprintf(where, sizeof where, "npy header, byte %zu", h->file_offset + h->at);
    return err_at(err, ERR_TENSOR_FILE, where, "%s", text);
}

static void skip_blanks(struct header_text *h) {
    while (h->at < h->size && strchr(" \t\n\r", h->text[h->at]) != NULL && h->text[h->at] != '\0') {
        h->at++;
    }
}

static bool take(struct header_text *h, char c) {
    skip_blanks(h);
    if (h->at < h->size && h->text[h->at] == c) {
        h->at++;
        return true;
    }
    return false;
}

static int take_string(struct header_text *h, char ret_word[MAX_WORD], struct err *err) {
    skip_blanks(h);
    if (h->at >= h->size || (h->text[h->at] != '\'' && h->text[h->at] != '"')) {
        return npy_fault(h, err, "a quoted string is expected");
    }
    char quote = h->text[h->at++];
    size_t n = 0;
    while (h->at < h->size && h->text[h->at] != quote) {
        char c = h->text[h->at];
        if (n + 1 >= MAX_WORD || c == '\\' || c < ' ') {
            return npy_fault(h, err, "string too long or with a character that is not plain");
        }
        ret_word[n++] = c;
        h->at++;
    }
    if (h->at >= h->size) {
        return npy_fault(h, err, "string without end");
    }
    h->at++;
    ret_word[n] = '\0';
    return 0;
}

static int take_dimension(struct header_text *h, struct shape *s, struct err *err) {
    if (s->rank == TENSOR_MAX_DIMS) {
        return npy_fault(h, err, "more than %d dimensions", TENSOR_MAX_DIMS);
    }
    uint64_t value = 0;
    size_t digits = 0;
    while (h->at < h->size && h->text[h->at] >= '0' && h->text[h->at] <= '9') {
        value = value * 10 + (uint64_t)(h->text[h->at] - '0');
        h->at++;
        if (++digits > 15) {
            return npy_fault(h, err, "dimension of more than 15 digits");
        }
    }
    if (digits == 0) {
        return npy_fault(h, err, "a dimension is expected");
    }
    s->dim[s->rank++] = (int64_t)value;
    return 0;
}

static int take_shape(struct header_text *h, struct shape *ret, struct err *err) {
    struct shape s = {0};
    if (!take(h, '(')) {
        return npy_fault(h, err, "shape: '(' is expected");
    }
    while (!take(h, ')')) {
        int r = take_dimension(h, &s, err);
        if (r < 0) {
            return r;
        }
        bool has_comma = take(h, ',');
        if (!has_comma && s.rank == 1) {
            return npy_fault(h, err, "shape: ',' is expected after a single dimension");
        }
        if (!has_comma) {
            if (!take(h, ')')) {
                return npy_fault(h, err, "shape: ',' or ')' is expected");
            }
            break;
        }
    }
    *ret = s;
    return 0;
}

static int take_order(struct header_text *h, struct err *err) {
    skip_blanks(h);
    if (h->size - h->at >= 5 && memcmp(h->text + h->at, "False", 5) == 0) {
        h->at += 5;
        return 0;
    }
    if (h->size - h->at >= 4 && memcmp(h->text + h->at, "True", 4) == 0) {
        return npy_fault(h, err, "column-major (fortran_order) data is not supported");
    }
    return npy_fault(h, err, "fortran_order: True or False is expected");
}

static int
take_value(struct header_text *h, unsigned which, struct npy_header *ret, struct err *err) {
    if (which == SEEN_ORDER) {
        return take_order(h, err);
    }
    if (which == SEEN_SHAPE) {
        return take_shape(h, &ret->shape, err);
    }
    char word[MAX_WORD];
    int r = take_string(h, word, err);
    if (r < 0) {
        return r;
    }
    ret->dtype = dtype_from_npy(word);
    return ret->dtype != DTYPE_NONE ? 0
                                    : npy_fault(h, err, "element type '%s' is not supported", word);
}

static int take_dict(struct header_text *h, struct npy_header *ret, struct err *err) {
    unsigned seen = 0;
    if (!take(h, '{')) {
        return npy_fault(h, err, "'{' is expected");
    }
    while (!take(h, '}')) {
        char key[MAX_WORD];
        int r = take_string(h, key, err);
        if (r < 0) {
            return r;
        }
        unsigned which = strcmp(key, "descr") == 0           ? SEEN_DESCR
                         : strcmp(key, "fortran_order") == 0 ? SEEN_ORDER
                         : strcmp(key, "shape") == 0         ? SEEN_SHAPE
                                                             : 0;
        if (which == 0 || (seen & which) != 0) {
            return npy_fault(h, err, "key '%s' is %s", key, which == 0 ? "unknown" : "given twice");
        }
        seen |= which;
        if (!take(h, ':')) {
            return npy_fault(h, err, "':' is expected after '%s'", key);
        }
        r = take_value(h, which, ret, err);
        if (r < 0) {
            return r;
        }
        if (!take(h, ',')) {
            if (!take(h, '}')) {
                return npy_fault(h, err, "',' or '}' is expected");
            }
            break;
        }
    }
    skip_blanks(h);
    if (h->at != h->size) {
        return npy_fault(h, err, "text after the dictionary");
    }
    if (seen != (SEEN_DESCR | SEEN_ORDER | SEEN_SHAPE)) {
        return npy_fault(h, err, "descr, fortran_order and shape must all be given");
    }
    return 0;
}

int npy_parse(
    const uint8_t *bytes, size_t n, uint64_t file_bytes, struct npy_header *ret, struct err *err) {
    struct header_text h = {0};
    if (n < MAGIC_BYTES + 2 || memcmp(bytes, "\x93NUMPY", 6) != 0) {
        return npy_fault(&h, err, "not an npy file");
    }
    h.at = 6;
    if (bytes[6] < 1 || bytes[6] > 3 || bytes[7] != 0) {
        return npy_fault(&h, err, "version %u.%u, supported are 1.0 to 3.0", bytes[6], bytes[7]);
    }
    h.at = MAGIC_BYTES;
    size_t prefix = bytes[6] == 1 ? MAGIC_BYTES + 2 : PREFIX_BYTES;
    if (n < prefix) {
        return npy_fault(&h, err, "file ends inside the header length");
    }
    size_t size = bytes[6] == 1 ? load_le16(bytes + 8) : load_le32(bytes + 8);
    if (size > NPY_MAX_HEADER_BYTES) {
        return npy_fault(&h, err, "header of %zu bytes, at most %d", size, NPY_MAX_HEADER_BYTES);
    }
    if (n - prefix < size) {
        return npy_fault(&h, err, "header of %zu bytes, the file has %zu left", size, n - prefix);
    }
    h = (struct header_text){(const char *)bytes + prefix, size, 0, prefix};
    struct npy_header made = {.data_offset = prefix + size};
    int r = take_dict(&h, &made, err);
    if (r < 0) {
        return r;
    }
    r = shape_elements(&made.shape, made.dtype, NULL, &made.data_bytes, err);
    if (r < 0) {
        return err_where(err, "npy header");
    }
    if (file_bytes < made.data_offset || file_bytes - made.data_offset != made.data_bytes) {
        char shape[160];
        return npy_fault(
            &h, err, "shape %s of %s needs %llu bytes of data, the file has %lld",
            shape_print(&made.shape, shape, sizeof shape), dtype_name(made.dtype),
            (unsigned long long)made.data_bytes,
            (long long)file_bytes - (long long)made.data_offset);
    }
    *ret = made;
    return 0;
}

int npy_print(
    enum dtype t, const struct shape *s, uint8_t *buf, size_t n, size_t *ret_bytes,
    struct err *err) {
    if (dtype_npy(t)[0] == '\0') {
        return err_set(err, ERR_DTYPE, "npy has no element type for %s", dtype_name(t));
    }
    char shape[160] = "";
    size_t used = 0;
    for (int i = 0; i < s->rank; i++) {
        used += (size_t)snprintf(
            shape + used, sizeof shape - used, "%s%lld", i > 0 ? ", " : "", (long long)s->dim[i]);
    }
    char text[256];
    int length = snprintf(
        text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': (%s%s), }",
        dtype_npy(t), shape, s->rank == 1 ? "," : "");
    size_t total = ((size_t)MAGIC_BYTES + 2 + (size_t)length + 1 + 63) & ~(size_t)63;
    if (total > n) {
        return err_set(err, ERR_TOO_LARGE, "npy header of %zu bytes, room for %zu", total, n);
    }
    memset(buf, ' ', total);
    memcpy(buf, "\x93NUMPY\x01\x00", MAGIC_BYTES);
    store_le16(buf + MAGIC_BYTES, (uint16_t)(total - MAGIC_BYTES - 2));
    memcpy(buf + MAGIC_BYTES + 2, text, (size_t)length);
    buf[total - 1] = '\n';
    *ret_bytes = total;
    return 0;
}

/* Reads up to n bytes at an offset; fewer only at the end of the file. */
static int read_at(int fd, void *buf, size_t n, uint64_t at, size_t *ret_n, struct err *err) {
    size_t done = 0;
    while (done < n) {
        ssize_t got = pread(fd, (uint8_t *)buf + done, n - done, (off_t)(at + done));
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return err_sys(err, ERR_IO, errno, "cannot read");
        }
        if (got == 0) {
            break;
        }
        done += (size_t)got;
    }
    *ret_n = done;
    return 0;
}

static int load_fd(int fd, const char *name, struct tensor *ret, struct err *err) {
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        return err_set(err, ERR_IO, "not a regular file");
    }
    uint8_t head[NPY_MAX_HEADER_BYTES + PREFIX_BYTES];
    size_t n = 0;
    int r = read_at(fd, head, sizeof head, 0, &n, err);
    if (r < 0) {
        return r;
    }
    struct npy_header header;
    r = npy_parse(head, n, (uint64_t)st.st_size, &header, err);
    if (r < 0) {
        return r;
    }
    struct tensor t = {0};
    r = tensor_init(&t, name, header.dtype, &header.shape, err);
    if (r < 0) {
        return r;
    }
    r = read_at(fd, t.bytes, t.size_bytes, header.data_offset, &n, err);
    if (r == 0 && n != t.size_bytes) {
        r = err_set(err, ERR_TENSOR_FILE, "the file became shorter while it was read");
    }
    if (r < 0) {
        tensor_done(&t);
        return r;
    }
    *ret = t;
    return 0;
}

int npy_load(const char *path, const char *name, struct tensor *ret, struct err *err) {
    CLEANUP(cleanup_close) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        int code = errno == ENOENT ? ERR_MISSING : ERR_IO;
        return err_sys(err, (enum err_code)code, errno, "cannot open '%s'", path);
    }
    return load_fd(fd, name, ret, err) < 0 ? err_wrap(err, "'%s'", path) : 0;
}

static int write_all(int fd, const uint8_t *bytes, uint64_t n, struct err *err) {
    while (n > 0) {
        ssize_t done = write(fd, bytes, n);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done < 0) {
            int code = errno == ENOSPC || errno == EDQUOT ? ERR_DISK_FULL : ERR_IO;
            return err_sys(err, (enum err_code)code, errno, "cannot write");
        }
        bytes += done;
        n -= (uint64_t)done;
    }
    return 0;
}

int npy_save(const char *path, const struct tensor *t, struct err *err) {
    uint8_t head[512];
    size_t head_bytes = 0;
    int r = npy_print(t->dtype, &t->shape, head, sizeof head, &head_bytes, err);
    if (r < 0) {
        return err_wrap(err, "'%s'", path);
    }
    CLEANUP(cleanup_free) char *part = NULL; /* renamed when whole: no half file is ever seen */
    if (asprintf(&part, "%s.part", path) < 0) {
        part = NULL;
        return err_set(err, ERR_NOMEM, "no memory for a path");
    }
    CLEANUP(cleanup_close) int fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        return err_sys(err, ERR_IO, errno, "cannot create '%s'", part);
    }
    r = write_all(fd, head, head_bytes, err);
    if (r == 0) {
        r = write_all(fd, t->bytes, t->size_bytes, err);
    }
    if (r == 0 && close(TAKE_FD(fd)) != 0) {
        r = err_sys(err, ERR_IO, errno, "cannot close");
    }
    if (r == 0 && rename(part, path) != 0) {
        r = err_sys(err, ERR_IO, errno, "cannot rename");
    }
    if (r < 0) {
        unlink(part);
        return err_wrap(err, "'%s'", path);
    }
    return 0;
}
