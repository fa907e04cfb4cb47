/* Headers of safetensors files. A scan before the JSON parser bounds depth and item count, so the
 * tree that a hostile header builds stays within a few tens of megabytes. */
#include "base/safetensors.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/cleanup.h"

#define MAX_DEPTH 3                              /* file, tensor, shape */
#define MAX_ITEMS (16 * SAFETENSORS_MAX_TENSORS) /* commas and containers in the header */

static int
read_exact(int fd, void *buf, size_t n, uint64_t at, const char *label, struct err *err) {
    size_t done = 0;
    while (done < n) {
        ssize_t got = pread(fd, (uint8_t *)buf + done, n - done, (off_t)(at + done));
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return err_sys(err, ERR_IO, errno, "'%s': cannot read", label);
        }
        if (got == 0) {
            return err_at(
                err, ERR_TENSOR_FILE, label, "file ends at byte %llu, inside its header",
                (unsigned long long)(at + done));
        }
        done += (size_t)got;
    }
    return 0;
}

static int scan_text(const char *text, size_t n, const char *label, struct err *err) {
    size_t depth = 0;
    size_t items = 0;
    bool in_string = false;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (in_string) {
            if (c == '\\') {
                i++;
            } else if (c == '"') {
                in_string = false;
            }
            continue;
        }
        in_string = c == '"';
        items += c == ',' || c == '{' || c == '[';
        depth += c == '{' || c == '[';
        if (depth > MAX_DEPTH) {
            return err_at(
                err, ERR_TENSOR_FILE, label, "header byte %zu: nested deeper than %d", i,
                MAX_DEPTH);
        }
        if (items > MAX_ITEMS) {
            return err_at(
                err, ERR_TENSOR_FILE, label, "header byte %zu: more than %d items", i, MAX_ITEMS);
        }
        depth -= depth > 0 && (c == '}' || c == ']');
    }
    return 0;
}

static int read_header(
    int fd, const char *label, json_t **ret, uint64_t *ret_data_offset, uint64_t *ret_file_bytes,
    struct err *err) {
    struct stat st;
    if (fstat(fd, &st) != 0) {
        return err_sys(err, ERR_IO, errno, "'%s'", label);
    }
    if (!S_ISREG(st.st_mode)) {
        return err_at(err, ERR_TENSOR_FILE, label, "not a regular file");
    }
    uint64_t file_bytes = (uint64_t)st.st_size;
    uint8_t prefix[8];
    int r = read_exact(fd, prefix, sizeof prefix, 0, label, err);
    if (r < 0) {
        return r;
    }
    uint64_t size = load_le64(prefix);
    if (size > SAFETENSORS_MAX_HEADER_BYTES || size > file_bytes - 8) {
        return err_at(
            err, ERR_TENSOR_FILE, label, "header of %llu bytes, at most %u and the file has %llu",
            (unsigned long long)size, SAFETENSORS_MAX_HEADER_BYTES, (unsigned long long)file_bytes);
    }
    CLEANUP(cleanup_free) char *text = malloc(size + 1);
    if (text == NULL) {
        return err_set(err, ERR_NOMEM, "'%s': no memory for its header", label);
    }
    r = read_exact(fd, text, size, 8, label, err);
    if (r == 0) {
        r = scan_text(text, size, label, err);
    }
    if (r < 0) {
        return r;
    }
    json_error_t fault;
    json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &fault);
    if (root == NULL) {
        bool is_nul = strstr(fault.text, "JSON_ALLOW_NUL") != NULL; /* a switch of the parser's */
        return err_at(
            err, ERR_TENSOR_FILE, label, "header byte %d: %s", fault.position,
            is_nul ? "a text must not hold \\u0000" : fault.text);
    }
    *ret = root;
    *ret_data_offset = 8 + size;
    *ret_file_bytes = file_bytes;
    return 0;
}

static int read_shape(const json_t *array, struct shape *ret) {
    if (!json_is_array(array) || json_array_size(array) > TENSOR_MAX_DIMS) {
        return -1;
    }
    struct shape s = {.rank = (int)json_array_size(array)};
    for (int i = 0; i < s.rank; i++) {
        const json_t *dim = json_array_get(array, (size_t)i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0) {
            return -1;
        }
        s.dim[i] = json_integer_value(dim);
    }
    *ret = s;
    return 0;
}

static int read_entry(
    const char *name, const json_t *object, const char *label, uint64_t data_offset,
    uint64_t file_bytes, struct safetensors_entry *ret, struct err *err) {
    const json_t *type = json_object_get(object, "dtype");
    const json_t *offsets = json_object_get(object, "data_offsets");
    struct safetensors_entry e = {0};
    if (!json_is_object(object) || json_object_size(object) != 3 || !json_is_string(type) ||
        json_array_size(offsets) != 2) {
        return err_at(
            err, ERR_TENSOR_FILE, label,
            "tensor '%.100s': exactly dtype, shape and two data_offsets are expected", name);
    }
    e.dtype = dtype_from_safetensors(json_string_value(type));
    if (e.dtype == DTYPE_NONE) {
        return err_at(
            err, ERR_TENSOR_FILE, label, "tensor '%.100s': element type '%.32s' is not supported",
            name, json_string_value(type));
    }
    if (read_shape(json_object_get(object, "shape"), &e.shape) < 0) {
        return err_at(
            err, ERR_TENSOR_FILE, label,
            "tensor '%.100s': shape is not a list of at most %d counts", name, TENSOR_MAX_DIMS);
    }
    int r = shape_elements(&e.shape, e.dtype, NULL, &e.size_bytes, err);
    if (r < 0) {
        return err_where(err, "%s", label);
    }
    const json_t *begin = json_array_get(offsets, 0);
    const json_t *end = json_array_get(offsets, 1);
    uint64_t data_bytes = file_bytes - data_offset;
    if (!json_is_integer(begin) || !json_is_integer(end) || json_integer_value(begin) < 0 ||
        json_integer_value(end) < json_integer_value(begin) ||
        (uint64_t)json_integer_value(end) > data_bytes) {
        return err_at(
            err, ERR_TENSOR_FILE, label,
            "tensor '%.100s': data_offsets are not a range of the %llu data bytes", name,
            (unsigned long long)data_bytes);
    }
    uint64_t given = (uint64_t)(json_integer_value(end) - json_integer_value(begin));
    if (given != e.size_bytes) {
        return err_at(
            err, ERR_TENSOR_FILE, label,
            "tensor '%.100s': data_offsets span %llu bytes, dtype and shape need %llu", name,
            (unsigned long long)given, (unsigned long long)e.size_bytes);
    }
    e.offset = data_offset + (uint64_t)json_integer_value(begin);
    e.name = strdup(name);
    if (e.name == NULL) {
        return err_set(err, ERR_NOMEM, "'%s': no memory for its index", label);
    }
    *ret = e;
    return 0;
}

/* Order of the data; empty tensors before the one that starts at the same byte. */
static int by_offset(const void *pa, const void *pb) {
    const struct safetensors_entry *a = pa;
    const struct safetensors_entry *b = pb;
    if (a->offset != b->offset) {
        return a->offset < b->offset ? -1 : 1;
    }
    if (a->size_bytes != b->size_bytes) {
        return a->size_bytes < b->size_bytes ? -1 : 1;
    }
    return strcmp(a->name, b->name);
}

static int by_name(const void *pa, const void *pb) {
    const struct safetensors_entry *a = pa;
    const struct safetensors_entry *b = pb;
    return strcmp(a->name, b->name);
}

static int check_cover(
    struct safetensors *s, const char *label, uint64_t data_offset, uint64_t file_bytes,
    struct err *err) {
    uint64_t at = data_offset;
    if (s->count > 0) {
        qsort(s->entries, s->count, sizeof *s->entries, by_offset);
    }
    for (size_t i = 0; i < s->count; i++) {
        if (s->entries[i].offset != at) {
            return err_at(
                err, ERR_TENSOR_FILE, label, "tensor '%.100s': %s at data byte %llu",
                s->entries[i].name, s->entries[i].offset < at ? "overlap" : "gap",
                (unsigned long long)(s->entries[i].offset - data_offset));
        }
        at += s->entries[i].size_bytes;
    }
    if (at != file_bytes) {
        return err_at(
            err, ERR_TENSOR_FILE, label, "tensors end at byte %llu, the file at %llu",
            (unsigned long long)at, (unsigned long long)file_bytes);
    }
    if (s->count > 0) {
        qsort(s->entries, s->count, sizeof *s->entries, by_name);
    }
    return 0;
}

static int read_entries(
    json_t *root, const char *label, uint64_t data_offset, uint64_t file_bytes,
    struct safetensors *s, struct err *err) {
    const char *name;
    json_t *object;
    if (!json_is_object(root)) {
        return err_at(err, ERR_TENSOR_FILE, label, "header is not a JSON object");
    }
    if (json_object_size(root) > SAFETENSORS_MAX_TENSORS) {
        return err_at(
            err, ERR_TENSOR_FILE, label, "%zu tensors, at most %d", json_object_size(root),
            SAFETENSORS_MAX_TENSORS);
    }
    s->entries = calloc(json_object_size(root) + 1, sizeof *s->entries);
    if (s->entries == NULL) {
        return err_set(err, ERR_NOMEM, "'%s': no memory for its index", label);
    }
    json_object_foreach(root, name, object) {
        if (strcmp(name, "__metadata__") == 0) {
            continue;
        }
        int r =
            read_entry(name, object, label, data_offset, file_bytes, &s->entries[s->count], err);
        if (r < 0) {
            return r;
        }
        s->count++;
    }
    return check_cover(s, label, data_offset, file_bytes, err);
}

int safetensors_open(int fd, const char *label, struct safetensors *ret, struct err *err) {
    json_t *root = NULL;
    uint64_t data_offset = 0;
    uint64_t file_bytes = 0;
    int r = read_header(fd, label, &root, &data_offset, &file_bytes, err);
    if (r < 0) {
        return r;
    }
    struct safetensors s = {0};
    r = read_entries(root, label, data_offset, file_bytes, &s, err);
    json_decref(root);
    if (r < 0) {
        safetensors_done(&s);
        return r;
    }
    *ret = s;
    return 0;
}

void safetensors_done(struct safetensors *s) {
    if (s != NULL) {
        for (size_t i = 0; i < s->count; i++) {
            free(s->entries[i].name);
        }
        free(s->entries);
        memset(s, 0, sizeof *s);
    }
}

const struct safetensors_entry *safetensors_find(const struct safetensors *s, const char *name) {
    size_t low = 0;
    size_t high = s->count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int order = strcmp(name, s->entries[mid].name);
        if (order == 0) {
            return &s->entries[mid];
        }
        if (order < 0) {
            high = mid;
        } else {
            low = mid + 1;
        }
    }
    return NULL;
}
