/* The base module: every half both ways, digests, tensors, file headers at their limits, sets. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/bitset.h"
#include "base/bytes.h"
#include "base/digest.h"
#include "base/err.h"
#include "base/f16.h"
#include "base/intern.h"
#include "base/log.h"
#include "base/npy.h"
#include "base/safetensors.h"
#include "base/tensor.h"
#include "base/vec.h"

static uint64_t random_state = 1;

static uint64_t random_bits(void) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return random_state ^ random_state >> 29;
}

/* ---- Halves ------------------------------------------------------------------------------ */

/* The definition of binary16, in double. */
static double half_value(uint16_t bits) {
    int exponent = bits >> 10 & 31;
    double magnitude = exponent == 0    ? ldexp(bits & 1023, -24)
                       : exponent == 31 ? INFINITY
                                        : ldexp(1024 + (bits & 1023), exponent - 25);
    return bits >> 15 ? -magnitude : magnitude;
}

START_TEST(every_half_both_ways) {
    for (uint32_t bits = 0; bits < 65536; bits++) {
        uint16_t h = (uint16_t)bits;
        float f = f16_to_f32(h);
        if ((h & 0x7c00) == 0x7c00 && (h & 0x3ff) != 0) {
            ck_assert(isnan(f));
            ck_assert_uint_eq(f16_from_f32(f), h | 0x200); /* quiet, same payload and sign */
            continue;
        }
        ck_assert(f == half_value(h));
        ck_assert_int_eq(signbit(f) != 0, h >> 15);
        ck_assert_uint_eq(f16_from_f32(f), h);
        ck_assert_uint_eq(f16_from_f64((double)f), h);
    }
}
END_TEST

/* Between each half and the next: the midpoint goes to the even one, its neighbours to theirs. */
START_TEST(halves_round_to_nearest_even) {
    for (uint32_t bits = 0; bits < 0x7c00; bits++) {
        double low = half_value((uint16_t)bits);
        double high = bits == 0x7bff ? 65536 : half_value((uint16_t)(bits + 1));
        double middle = (low + high) / 2; /* exact in double */
        uint16_t even = (uint16_t)((bits & 1) == 0 ? bits : bits + 1);
        ck_assert_uint_eq(f16_from_f64(middle), even);
        ck_assert_uint_eq(f16_from_f64(nextafter(middle, 0)), bits);
        ck_assert_uint_eq(f16_from_f64(nextafter(middle, 1e9)), bits + 1);
        ck_assert_uint_eq(f16_from_f64(-middle), even | 0x8000);
        ck_assert_uint_eq(f16_from_f32((float)middle), even);
    }
    ck_assert_uint_eq(f16_from_f64(1e300), 0x7c00);
    ck_assert_uint_eq(f16_from_f64(-INFINITY), 0xfc00);
    ck_assert_uint_eq(f16_from_f64(5e-324), 0);
    ck_assert_uint_eq(f16_from_f64(-5e-324), 0x8000);
    /* Two roundings would give 0x3c01: just above the midpoint, on it as a float. */
    ck_assert_uint_eq(f16_from_f64(1 + 0x1p-11 + 0x1p-40), 0x3c01);
    ck_assert_uint_eq(f16_from_f64(1 + 0x1p-11 - 0x1p-40), 0x3c00);
}
END_TEST

START_TEST(bfloats_round_trip) {
    for (uint32_t bits = 0; bits < 65536; bits++) {
        float f = bf16_to_f32((uint16_t)bits);
        if (!isnan(f)) {
            ck_assert_uint_eq(bf16_from_f64((double)f), bits);
        }
    }
    ck_assert_uint_eq(bf16_from_f64(1 + 0x1p-8), 0x3f80);
    ck_assert_uint_eq(bf16_from_f64(1 + 3 * 0x1p-8), 0x3f82);
}
END_TEST

/* ---- Arena, sets, names ------------------------------------------------------------------ */

START_TEST(arena_limit_and_hook) {
    struct arena a;
    arena_init(&a, 1 << 20);
    a.fail_after = 3;
    for (int i = 0; i < 3; i++) {
        ck_assert_ptr_nonnull(arena_try_alloc(&a, 8, 8));
    }
    ck_assert_ptr_null(arena_try_alloc(&a, 8, 8));
    ck_assert_ptr_null(arena_try_alloc(&a, 8, 8));
    a.fail_after = 0;
    ck_assert_ptr_nonnull(arena_try_alloc(&a, 8, 8));
    a.fail_after = ARENA_FAIL_NOW;
    ck_assert_ptr_null(arena_try_alloc(&a, 0, 1));
    a.fail_after = 0;
    ck_assert_ptr_null(arena_try_alloc(&a, 1 << 20, 1));
    ck_assert_ptr_null(arena_try_alloc(&a, SIZE_MAX, 1));
    struct arena_mark mark = arena_mark(&a);
    uint8_t *first = arena_alloc(&a, 100, 64);
    ck_assert_uint_eq((uintptr_t)first % 64, 0);
    memset(first, 0xff, 100);
    ck_assert_ptr_nonnull(arena_try_alloc(&a, 500000, 1));
    arena_rewind(&a, mark);
    ck_assert_uint_eq(a.used_bytes, mark.used_bytes);
    uint8_t *again = arena_alloc(&a, 100, 64);
    ck_assert_ptr_eq(again, first);
    ck_assert_uint_eq(again[99], 0);
    if (ARENA_RECOVER(&a) == 0) {
        arena_array(&a, SIZE_MAX / 2, 16, 8);
        ck_abort_msg("an impossible array was made");
    }
    arena_done(&a);
    arena_done(NULL);
}
END_TEST

/* Two arenas draw on one limit; what one gives back the other can take. */
START_TEST(arena_shared_limit) {
    struct arena_pool pool = {.limit_bytes = 1 << 20};
    struct arena a, b;
    arena_init_shared(&a, &pool);
    arena_init_shared(&b, &pool);
    ck_assert_ptr_nonnull(arena_try_alloc(&a, 700000, 1));
    ck_assert_ptr_null(arena_try_alloc(&b, 700000, 1));
    ck_assert_ptr_nonnull(arena_try_alloc(&b, 300000, 1));
    ck_assert_ptr_null(arena_try_alloc(&a, 700000, 1));
    arena_clear(&a);
    ck_assert_uint_eq(a.used_bytes, 0);
    ck_assert_ptr_nonnull(arena_try_alloc(&b, 700000, 1));
    if (ARENA_RECOVER(&a) == 0) {
        arena_alloc(&a, 100000, 1);
        ck_abort_msg("the pool gave more than it has");
    }
    arena_done(&a);
    arena_done(&b);
    ck_assert_uint_eq(pool.chunk_bytes, 0);
}
END_TEST

START_TEST(bitset_against_bytes) {
    struct arena a;
    arena_init(&a, 1 << 20);
    static const uint32_t sizes[] = {0, 1, 63, 64, 65, 1472};
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        uint32_t n = sizes[k];
        uint8_t model[1472] = {0};
        struct bitset s = bitset_new(&a, n);
        struct bitset t = bitset_new(&a, n);
        for (int step = 0; step < 300 && n > 0; step++) {
            uint32_t i = (uint32_t)(random_bits() % n);
            uint32_t length = (uint32_t)(random_bits() % (n - i + 1));
            if (step % 3 == 0) {
                bitset_remove(&s, i);
                model[i] = 0;
            } else if (step % 50 == 1) {
                bitset_add_range(&s, i, length);
                memset(model + i, 1, length);
            } else {
                bitset_add(&s, i);
                model[i] = 1;
            }
            uint32_t count = 0;
            uint32_t at = bitset_next(&s, 0);
            for (uint32_t j = 0; j < n; j++) {
                if (bitset_has(&s, j) != model[j] || (model[j] && at != j)) {
                    ck_abort_msg("size %u, member %u, next %u", n, j, at);
                }
                if (model[j]) {
                    count++;
                    at = bitset_next(&s, j + 1);
                }
            }
            ck_assert_uint_eq(at, n);
            ck_assert_uint_eq(bitset_count(&s), count);
        }
        bitset_copy(&t, &s);
        ck_assert(bitset_equal(&s, &t));
        ck_assert_int_eq(bitset_meets(&s, &t), bitset_count(&s) > 0);
        bitset_subtract(&t, &s);
        ck_assert_uint_eq(bitset_count(&t), 0);
        ck_assert(!bitset_meets(&s, &t));
        bitset_union(&t, &s);
        ck_assert(bitset_equal(&s, &t));
        bitset_clear(&s);
        bitset_intersect(&t, &s);
        ck_assert_uint_eq(bitset_count(&t), 0);
    }
    arena_done(&a);
}
END_TEST

START_TEST(intern_keeps_order) {
    struct arena a;
    arena_init(&a, 8 << 20);
    struct intern names = {.arena = &a};
    char text[32];
    ck_assert_uint_eq(intern_find(&names, "x"), INTERN_NONE);
    for (uint32_t i = 0; i < 5000; i++) {
        snprintf(text, sizeof text, "name%u", i * 7919 % 5000);
        ck_assert_uint_eq(intern_add(&names, text), i);
        ck_assert_uint_eq(intern_add(&names, text), i);
    }
    ck_assert_uint_eq(names.count, 5000);
    for (uint32_t i = 0; i < 5000; i++) {
        snprintf(text, sizeof text, "name%u", i * 7919 % 5000);
        ck_assert_uint_eq(intern_find(&names, text), i);
        ck_assert_str_eq(intern_name(&names, i), text);
    }
    ck_assert_uint_eq(intern_find(&names, "name5000"), INTERN_NONE);
    arena_done(&a);
}
END_TEST

START_TEST(vec_grows) {
    struct arena a;
    arena_init(&a, 1 << 20);
    VEC(int) v = {0};
    for (int i = 0; i < 1000; i++) {
        vec_push(&a, &v, i * 3);
    }
    ck_assert_uint_eq(v.len, 1000);
    for (int i = 0; i < 1000; i++) {
        ck_assert_int_eq(v.data[i], i * 3);
    }
    arena_done(&a);
}
END_TEST

/* ---- Errors, log, digests ---------------------------------------------------------------- */

START_TEST(error_values) {
    struct err e = {0};
    ck_assert_int_eq(err_set(&e, ERR_SHAPE, "tensor '%s'", "w"), -ERR_SHAPE);
    ck_assert_str_eq(e.text, "tensor 'w'");
    ck_assert_int_eq(err_wrap(&e, "node '%d'", 3), -ERR_SHAPE);
    ck_assert_str_eq(e.text, "node '3': tensor 'w'");
    err_where(&e, "/nodes/%d", 3);
    err_where(&e, "/later");
    ck_assert_str_eq(e.where, "/nodes/3");
    ck_assert_int_eq(err_set(NULL, ERR_IO, "x"), -ERR_IO);
    err_sys(&e, ERR_IO, ENOENT, "file");
    ck_assert_int_eq(e.sys, ENOENT);
    ck_assert_str_eq(e.text, "file: No such file or directory");
    char text[2000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    err_set(&e, ERR_IO, "%s", text);
    err_wrap(&e, "%s", text);
    ck_assert_uint_lt(strlen(e.text), sizeof e.text);
    for (int code = 1; code < ERR_COUNT; code++) {
        ck_assert_int_eq(err_from_name(err_name(code)), code);
        ck_assert_int_gt(err_exit(code), 0);
        ck_assert_int_ge(err_http(code), 400);
        ck_assert_int_eq(err_exit(err_from_exit(err_exit(code))), err_exit(code));
    }
}
END_TEST

static char logged[8192];

static void keep_line(enum log_level level, const char *line, void *arg) {
    snprintf(logged, sizeof logged, "%d %s", (int)level, line);
    (*(int *)arg)++;
}

START_TEST(log_lines) {
    int lines = 0;
    log_set_sink(keep_line, &lines);
    errno = 5;
    log_info("unit", "told name=%s", "a\nb\x7f");
    ck_assert_int_eq(errno, 5);
    ck_assert_str_eq(logged, "6 unit: told name=a\\x0ab\\x7f");
    log_debug("unit", "not shown");
    ck_assert_int_eq(lines, 1);
    log_set_level(LOG_DEBUG);
    log_debug("unit", "shown");
    ck_assert_int_eq(lines, 2);
    static char text[10000];
    memset(text, '\n', sizeof text - 1);
    log_error("unit", "%s", text);
    ck_assert_uint_le(strlen(logged), 4096 + 2);
    log_set_level(LOG_INFO);
    log_set_sink(NULL, NULL);

    int ends[2]; /* the default sink: one write to standard error */
    ck_assert_int_eq(pipe(ends), 0);
    int saved = dup(STDERR_FILENO);
    dup2(ends[1], STDERR_FILENO);
    log_set_journal(1);
    log_warning("unit", "odd n=%d", 7);
    log_set_journal(0);
    log_warning("unit", "plain");
    dup2(saved, STDERR_FILENO);
    ssize_t n = read(ends[0], logged, sizeof logged - 1);
    logged[n > 0 ? n : 0] = '\0';
    ck_assert_str_eq(logged, "<4>unit: odd n=7\nunit: plain\n");
    close(ends[0]);
    close(ends[1]);
    close(saved);
}
END_TEST

START_TEST(digests) {
    char hex[DIGEST_HEX + 1];
    struct digest d;
    struct digest e;
    digest_of("abc", 3, &d); /* FIPS 180-4 example */
    digest_hex(&d, hex);
    ck_assert_str_eq(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    ck_assert(digest_parse(hex, &e) && digest_equal(&d, &e));
    char text[80];
    snprintf(text, sizeof text, "sha256:%s", hex);
    ck_assert(digest_parse(text, &e) && digest_equal(&d, &e));
    hex[0] = 'B';
    ck_assert(!digest_parse(hex, &e));
    hex[0] = 'g';
    ck_assert(!digest_parse(hex, &e));
    hex[0] = 'b';
    hex[63] = '\0';
    ck_assert(!digest_parse(hex, &e));
    strcat(text, "0");
    ck_assert(!digest_parse(text, &e));

    struct digest_ctx *ctx = digest_new();
    digest_update(ctx, "a", 1);
    digest_update(ctx, "bc", 2);
    digest_final(ctx, &e);
    digest_free(ctx);
    ck_assert(digest_equal(&d, &e));
    struct digest_ctx *one = digest_new();
    struct digest_ctx *two = digest_new();
    digest_text(one, "ab");
    digest_text(one, "c");
    digest_text(two, "a");
    digest_text(two, "bc");
    digest_final(one, &d);
    digest_final(two, &e);
    ck_assert(!digest_equal(&d, &e));
    digest_free(one);
    digest_free(two);
    digest_free(NULL);

    FILE *file = tmpfile();
    uint64_t size = 0;
    fputs("abc", file);
    fflush(file);
    ck_assert_int_eq(digest_of_fd(fileno(file), &e, &size, NULL), 0);
    digest_of("abc", 3, &d);
    ck_assert(digest_equal(&d, &e));
    ck_assert_uint_eq(size, 3);
    fclose(file);
    ck_assert_int_eq(digest_of_fd(-1, &e, &size, NULL), -ERR_IO);
}
END_TEST

/* ---- Tensors ----------------------------------------------------------------------------- */

START_TEST(tensor_elements) {
    uint8_t bytes[32] = {0};
    for (int t = 1; t < DTYPE_COUNT; t++) {
        enum dtype type = (enum dtype)t;
        ck_assert_int_eq(dtype_from_name(dtype_name(type)), t);
        ck_assert(dtype_npy(type)[0] == '\0' || dtype_from_npy(dtype_npy(type)) == type);
        for (int i = 0; i < 2; i++) {
            tensor_put(type, bytes, (uint64_t)i, i);
            ck_assert(tensor_get(type, bytes, (uint64_t)i) == i);
        }
    }
    static const struct {
        enum dtype type;
        double value, want;
    } rows[] = {
        {DTYPE_INT8, 127.6, 127},
        {DTYPE_INT8, -1e9, -128},
        {DTYPE_INT8, 2.5, 2},
        {DTYPE_UINT8, -1, 0},
        {DTYPE_UINT8, 300, 255},
        {DTYPE_INT16, 40000, 32767},
        {DTYPE_UINT16, 70000, 65535},
        {DTYPE_INT32, 3e9, 2147483647.0},
        {DTYPE_UINT32, 5e9, 4294967295.0},
        {DTYPE_INT64, 1e300, 9223372036854775807.0},
        {DTYPE_INT64, -1e300, -9223372036854775808.0},
        {DTYPE_UINT64, 1e300, 18446744073709551615.0},
        {DTYPE_INT32, NAN, 0},
        {DTYPE_BOOL, -0.5, 1},
        {DTYPE_FLOAT16, 65520, INFINITY},
        {DTYPE_FLOAT, 1 + 0x1p-25, 1},
        {DTYPE_DOUBLE, 1 + 0x1p-52, 1 + 0x1p-52}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tensor_put(rows[i].type, bytes, 1, rows[i].value);
        ck_assert_msg(tensor_get(rows[i].type, bytes, 1) == rows[i].want, "row %zu", i);
    }
    ck_assert_int_eq(dtype_from_npy("|f2"), DTYPE_NONE);
    ck_assert_int_eq(dtype_from_npy("=f2"), DTYPE_FLOAT16);
    ck_assert_int_eq(dtype_from_npy(">f2"), DTYPE_NONE);
    ck_assert_int_eq(dtype_from_npy("<i1"), DTYPE_INT8);
    ck_assert_int_eq(dtype_from_npy(""), DTYPE_NONE);
    ck_assert_int_eq(dtype_from_safetensors("BF16"), DTYPE_BFLOAT16);
}
END_TEST

START_TEST(shapes) {
    struct err e = {0};
    uint64_t n = 0;
    uint64_t bytes = 0;
    char text[160];
    struct shape s = {.rank = 2, .dim = {(int64_t)1 << 24, (int64_t)1 << 24}};
    ck_assert_int_eq(shape_elements(&s, DTYPE_INT8, &n, &bytes, &e), 0);
    ck_assert_uint_eq(bytes, (uint64_t)1 << 48);
    ck_assert_int_eq(shape_elements(&s, DTYPE_INT16, &n, &bytes, &e), -ERR_TOO_LARGE);
    s.dim[0]++;
    ck_assert_int_eq(shape_elements(&s, DTYPE_INT8, &n, &bytes, &e), -ERR_TOO_LARGE);
    s.dim[0] = 0;
    ck_assert_int_eq(shape_elements(&s, DTYPE_DOUBLE, &n, &bytes, &e), 0);
    ck_assert_uint_eq(n, 0);
    s.dim[0] = INT64_MAX;
    s.dim[1] = INT64_MAX;
    ck_assert_int_eq(shape_elements(&s, DTYPE_INT8, &n, &bytes, &e), -ERR_TOO_LARGE);
    s.dim[0] = -1;
    ck_assert_int_eq(shape_elements(&s, DTYPE_INT8, &n, &bytes, &e), -ERR_SHAPE);
    s.rank = 7;
    ck_assert_int_eq(shape_elements(&s, DTYPE_INT8, &n, &bytes, &e), -ERR_SHAPE);
    struct shape scalar = {0};
    ck_assert_int_eq(shape_elements(&scalar, DTYPE_FLOAT, &n, &bytes, &e), 0);
    ck_assert_uint_eq(n, 1);
    ck_assert_str_eq(shape_print(&scalar, text, sizeof text), "[]");
    struct shape other = {.rank = 2, .dim = {2, 3}};
    ck_assert_str_eq(shape_print(&other, text, sizeof text), "[2,3]");
    ck_assert_str_eq(shape_print(&other, text, 4), "[2,");
    ck_assert(!shape_equal(&scalar, &other));
    struct tensor t = {0};
    ck_assert_int_eq(tensor_init(&t, "t", DTYPE_FLOAT16, &other, &e), 0);
    ck_assert_uint_eq(t.size_bytes, 12);
    ck_assert_uint_eq(t.bytes[11], 0);
    tensor_done(&t);
    tensor_done(NULL);
    tensor_set_done(NULL);
}
END_TEST

/* ---- npy --------------------------------------------------------------------------------- */

static size_t npy_file(uint8_t *buf, int version, const char *text, size_t pad_to) {
    size_t n = strlen(text);
    size_t size = pad_to > n ? pad_to : n;
    size_t prefix = version == 1 ? 10 : 12;
    memcpy(buf, "\x93NUMPY", 6);
    buf[6] = (uint8_t)version;
    buf[7] = 0;
    if (version == 1) {
        store_le16(buf + 8, (uint16_t)size);
    } else {
        store_le32(buf + 8, (uint32_t)size);
    }
    memset(buf + prefix, ' ', size);
    memcpy(buf + prefix, text, n);
    return prefix + size;
}

START_TEST(npy_headers) {
    static uint8_t buf[NPY_MAX_HEADER_BYTES + 64];
    struct npy_header h;
    struct err e = {0};
    const char *good = "{'descr': '<f2', 'fortran_order': False, 'shape': (2, 3), }";
    for (int version = 1; version <= 3; version++) {
        size_t n = npy_file(buf, version, good, 0);
        ck_assert_int_eq(npy_parse(buf, n, n + 12, &h, &e), 0);
        ck_assert_int_eq(h.dtype, DTYPE_FLOAT16);
        ck_assert_int_eq(h.shape.rank, 2);
        ck_assert_int_eq(h.shape.dim[1], 3);
        ck_assert_uint_eq(h.data_offset, n);
        ck_assert_uint_eq(h.data_bytes, 12);
        ck_assert_int_eq(npy_parse(buf, n, n + 11, &h, &e), -ERR_TENSOR_FILE);
        ck_assert_int_eq(npy_parse(buf, n, n + 13, &h, &e), -ERR_TENSOR_FILE);
        ck_assert_int_eq(npy_parse(buf, n, n - 1, &h, &e), -ERR_TENSOR_FILE);
        for (size_t cut = 0; cut < n; cut++) {
            ck_assert_int_eq(npy_parse(buf, cut, n + 12, &h, &e), -ERR_TENSOR_FILE);
        }
        n = npy_file(buf, version, good, NPY_MAX_HEADER_BYTES);
        ck_assert_int_eq(npy_parse(buf, n, n + 12, &h, &e), 0);
        n = npy_file(buf, version, good, NPY_MAX_HEADER_BYTES + 1);
        ck_assert_int_eq(npy_parse(buf, n, n + 12, &h, &e), -ERR_TENSOR_FILE);
    }
    static const char *const also_good[] = {
        "{\"shape\":(),\"fortran_order\":False,\"descr\":\"=f4\"}\n",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (4,)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (0, 999999999999999), }"};
    static const uint64_t bytes[] = {4, 4, 0};
    for (size_t i = 0; i < 3; i++) {
        size_t n = npy_file(buf, 1, also_good[i], 0);
        ck_assert_msg(npy_parse(buf, n, n + bytes[i], &h, &e) == 0, "%zu: %s", i, e.text);
    }
}
END_TEST

static const char *const bad_npy[] = {
    "",
    "{",
    "{}",
    "[]",
    "{'descr': '<f2', 'fortran_order': False}",
    "{'descr': '<f2', 'fortran_order': True, 'shape': (2, 3), }",
    "{'descr': '<f2', 'fortran_order': false, 'shape': (2, 3), }",
    "{'descr': '>f2', 'fortran_order': False, 'shape': (2, 3), }",
    "{'descr': '|O', 'fortran_order': False, 'shape': (2, 3), }",
    "{'descr': [('a', '<f2')], 'fortran_order': False, 'shape': (2, 3), }",
    "{'descr': '<f2', 'descr': '<f2', 'fortran_order': False, 'shape': (2, 3), }",
    "{'descr': '<f2', 'fortran_order': False, 'shape': (2, 3), 'x': 1}",
    "{'descr': '<f2', 'fortran_order': False, 'shape': (3), }",
    "{'descr': '<f2', 'fortran_order': False, 'shape': (-2, 3), }",
    "{'descr': '<f2', 'fortran_order': False, 'shape': (2, 3, 1, 1, 1, 1, 1), }",
    "{'descr': '<f2', 'fortran_order': False, 'shape': (2 3), }",
    "{'descr': '<f2', 'fortran_order': False, 'shape': (1000000000000000,), }",
    "{'descr': '<f2', 'fortran_order': False, 'shape': (2, 3), } x",
    "{'descr': '<f2', 'fortran_order': False, 'shape': (2, 3",
    "{'descr': '<f2, 'fortran_order': False, 'shape': (2, 3), }",
    "{'descr' '<f2', 'fortran_order': False, 'shape': (2, 3), }",
    "{'descr': '<f2' 'fortran_order': False, 'shape': (2, 3), }",
    "{'descr\\x': '<f2', 'fortran_order': False, 'shape': (2, 3), }",
    "{'descr': '<f2', 'fortran_order': False, 'shape': [2, 3], }",
    "{descr: '<f2', 'fortran_order': False, 'shape': (2, 3), }"};

START_TEST(npy_hostile) {
    uint8_t buf[512];
    struct npy_header h = {.data_bytes = 77};
    struct err e = {0};
    size_t n = npy_file(buf, 1, bad_npy[_i], 0);
    ck_assert_int_eq(npy_parse(buf, n, n + 12, &h, &e), -ERR_TENSOR_FILE);
    ck_assert_uint_gt(strlen(e.text), 5);
    ck_assert_uint_gt(strlen(e.where), 3);
    ck_assert_uint_eq(h.data_bytes, 77);
}
END_TEST

START_TEST(npy_flipped_bytes_never_crash) {
    uint8_t buf[256];
    struct npy_header h;
    for (int i = 0; i < 20000; i++) {
        size_t n = npy_file(
            buf, 1 + i % 3, "{'descr': '<f2', 'fortran_order': False, 'shape': (2, 3), }", 80);
        for (int k = 0; k < 3; k++) {
            buf[random_bits() % n] = (uint8_t)random_bits();
        }
        uint8_t *exact = malloc(n); /* the sanitizer sees a read past the end */
        memcpy(exact, buf, n);
        npy_parse(exact, n, n + 12, &h, NULL);
        free(exact);
    }
}
END_TEST

START_TEST(npy_files) {
    char dir[] = "/tmp/ipud-test-base-XXXXXX";
    ck_assert_ptr_nonnull(mkdtemp(dir));
    char path[64];
    snprintf(path, sizeof path, "%s/t.npy", dir);
    struct err e = {0};
    struct tensor t = {0};
    struct tensor back = {0};
    for (int type = 1; type < DTYPE_COUNT; type++) {
        for (int rank = 0; rank <= TENSOR_MAX_DIMS; rank++) {
            struct shape s = {.rank = rank};
            for (int i = 0; i < rank; i++) {
                s.dim[i] = i + 1;
            }
            ck_assert_int_eq(tensor_init(&t, "t", (enum dtype)type, &s, &e), 0);
            for (uint64_t i = 0; i < t.size_bytes; i++) {
                t.bytes[i] = (uint8_t)(i * 37);
            }
            int r = npy_save(path, &t, &e);
            if (type == DTYPE_BFLOAT16) {
                ck_assert_int_eq(r, -ERR_DTYPE);
                tensor_done(&t);
                continue;
            }
            ck_assert_msg(r == 0, "%s", e.text);
            ck_assert_msg(npy_load(path, "back", &back, &e) == 0, "%s", e.text);
            ck_assert_int_eq(back.dtype, type);
            ck_assert(shape_equal(&back.shape, &s));
            ck_assert_mem_eq(back.bytes, t.bytes, t.size_bytes);
            ck_assert_str_eq(back.name, "back");
            tensor_done(&back);
            tensor_done(&t);
        }
    }
    unlink(path);
    ck_assert_int_eq(npy_load(path, "x", &back, &e), -ERR_MISSING);
    ck_assert_int_eq(npy_load(dir, "x", &back, &e), -ERR_IO);
    struct shape s = {.rank = 1, .dim = {4}};
    ck_assert_int_eq(tensor_init(&t, "t", DTYPE_INT8, &s, &e), 0);
    char missing[80];
    snprintf(missing, sizeof missing, "%s/no/t.npy", dir);
    ck_assert_int_eq(npy_save(missing, &t, &e), -ERR_IO);
    uint8_t small[64];
    size_t n = 0;
    ck_assert_int_eq(npy_print(DTYPE_INT8, &s, small, sizeof small, &n, &e), -ERR_TOO_LARGE);
    tensor_done(&t);
    rmdir(dir);
}
END_TEST

/* ---- safetensors ------------------------------------------------------------------------- */

static int st_open(
    const void *header, size_t n, uint64_t claimed, size_t data_bytes, struct safetensors *ret,
    struct err *err) {
    FILE *file = tmpfile();
    uint8_t prefix[8];
    store_le64(prefix, claimed);
    fwrite(prefix, 1, 8, file);
    fwrite(header, 1, n, file);
    for (size_t i = 0; i < data_bytes; i++) {
        fputc((int)i & 255, file);
    }
    fflush(file);
    int r = safetensors_open(fileno(file), "w.st", ret, err);
    fclose(file);
    return r;
}

START_TEST(safetensors_good) {
    struct safetensors s;
    struct err e = {0};
    const char *text = "{\"__metadata__\":{\"format\":\"x\"},"
                       "\"b\":{\"dtype\":\"F16\",\"shape\":[2,3],\"data_offsets\":[4,16]},"
                       "\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
                       "\"z\":{\"dtype\":\"I8\",\"shape\":[0],\"data_offsets\":[4,4]}}   ";
    size_t n = strlen(text);
    ck_assert_msg(st_open(text, n, n, 16, &s, &e) == 0, "%s", e.text);
    ck_assert_uint_eq(s.count, 3);
    ck_assert_str_eq(s.entries[0].name, "a");
    const struct safetensors_entry *b = safetensors_find(&s, "b");
    ck_assert_ptr_nonnull(b);
    ck_assert_uint_eq(b->offset, 8 + n + 4);
    ck_assert_uint_eq(b->size_bytes, 12);
    ck_assert_ptr_nonnull(safetensors_find(&s, "z"));
    ck_assert_ptr_null(safetensors_find(&s, "c"));
    safetensors_done(&s);
    safetensors_done(NULL);
    ck_assert_int_eq(st_open("{}", 2, 2, 0, &s, &e), 0);
    ck_assert_uint_eq(s.count, 0);
    safetensors_done(&s);
}
END_TEST

static const char *const bad_safetensors[] = {
    "",
    "[]",
    "{",
    "nonsense",
    "{\"a\":1}",
    "{\"a\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,4]}}",
    "{\"a\":{\"dtype\":\"F16\",\"shape\":[8],\"data_offsets\":[0,16],\"x\":1}}",
    "{\"a\":{\"dtype\":\"F17\",\"shape\":[8],\"data_offsets\":[0,16]}}",
    "{\"a\":{\"dtype\":\"F16\",\"shape\":[8.0],\"data_offsets\":[0,16]}}",
    "{\"a\":{\"dtype\":\"F16\",\"shape\":[-8],\"data_offsets\":[0,16]}}",
    "{\"a\":{\"dtype\":\"F16\",\"shape\":[1,1,1,1,1,1,8],\"data_offsets\":[0,16]}}",
    "{\"a\":{\"dtype\":\"F16\",\"shape\":[8],\"data_offsets\":[16,0]}}",
    "{\"a\":{\"dtype\":\"F16\",\"shape\":[8],\"data_offsets\":[0,17]}}",
    "{\"a\":{\"dtype\":\"F16\",\"shape\":[8],\"data_offsets\":[0]}}",
    "{\"a\":{\"dtype\":\"F16\",\"shape\":[8],\"data_offsets\":[-16,0]}}",
    "{\"a\":{\"dtype\":\"F16\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,16]}}",
    "{\"a\":{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[8,16]}}",
    "{\"a\":{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[0,8]}}",
    "{\"a\":{\"dtype\":\"F16\",\"shape\":[8],\"data_offsets\":[0,16]},"
    "\"b\":{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[8,16]}}",
    "{\"a\":{\"dtype\":\"F16\",\"shape\":[8],\"data_offsets\":[0,16]},"
    "\"a\":{\"dtype\":\"F16\",\"shape\":[8],\"data_offsets\":[0,16]}}",
    "{\"a\":{\"dtype\":\"F16\",\"shape\":[8],\"data_offsets\":[0,16]}} x",
    "{\"a\":{\"dtype\":\"F16\",\"shape\":[[8]],\"data_offsets\":[0,16]}}",
    "{\"a\":{\"dtype\":\"F16\",\"shape\":{},\"data_offsets\":[0,16]}}"};

START_TEST(safetensors_hostile) {
    struct safetensors s = {.count = 77};
    struct err e = {0};
    size_t n = strlen(bad_safetensors[_i]);
    int r = st_open(bad_safetensors[_i], n, n, 16, &s, &e);
    ck_assert_msg(r < 0, "accepted");
    ck_assert(r == -ERR_TENSOR_FILE || r == -ERR_TOO_LARGE);
    ck_assert_str_eq(e.where, "w.st");
    ck_assert_uint_gt(strlen(e.text), 5);
    ck_assert_uint_eq(s.count, 77);
}
END_TEST

START_TEST(safetensors_limits) {
    struct safetensors s;
    struct err e = {0};
    char *text = malloc(SAFETENSORS_MAX_HEADER_BYTES + 1);
    memset(text, ' ', SAFETENSORS_MAX_HEADER_BYTES + 1);
    text[0] = '{';
    text[1] = '}';
    ck_assert_int_eq(
        st_open(text, SAFETENSORS_MAX_HEADER_BYTES, SAFETENSORS_MAX_HEADER_BYTES, 0, &s, &e), 0);
    safetensors_done(&s);
    ck_assert_int_eq(
        st_open(
            text, SAFETENSORS_MAX_HEADER_BYTES + 1, SAFETENSORS_MAX_HEADER_BYTES + 1, 0, &s, &e),
        -ERR_TENSOR_FILE);
    ck_assert_int_eq(st_open("{}", 2, 3, 0, &s, &e), -ERR_TENSOR_FILE);
    ck_assert_int_eq(st_open("{}", 2, UINT64_MAX, 0, &s, &e), -ERR_TENSOR_FILE);
    ck_assert_int_eq(st_open("{}", 2, 1, 0, &s, &e), -ERR_TENSOR_FILE);
    for (int extra = 0; extra <= 1; extra++) { /* tensors at the limit and one more */
        size_t n = 0;
        for (int i = 0; i < SAFETENSORS_MAX_TENSORS + extra; i++) {
            n += (size_t)sprintf(
                text + n, "%c\"%d\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[%d,%d]}",
                i == 0 ? '{' : ',', i, i, i + 1);
        }
        text[n++] = '}';
        int r = st_open(text, n, n, SAFETENSORS_MAX_TENSORS + (size_t)extra, &s, &e);
        ck_assert_int_eq(r, extra ? -ERR_TENSOR_FILE : 0);
        if (r == 0) {
            ck_assert_uint_eq(s.count, SAFETENSORS_MAX_TENSORS);
            safetensors_done(&s);
        }
    }
    /* A flood of items is refused before a tree is built of it. */
    size_t flood = 4 << 20;
    memset(text, ',', flood);
    ck_assert_int_eq(st_open(text, flood, flood, 0, &s, &e), -ERR_TENSOR_FILE);
    ck_assert_ptr_nonnull(strstr(e.text, "items"));
    memset(text, '[', flood);
    ck_assert_int_eq(st_open(text, flood, flood, 0, &s, &e), -ERR_TENSOR_FILE);
    ck_assert_ptr_nonnull(strstr(e.text, "nested"));
    free(text);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("base");
    TCase *t = tcase_create("base");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, every_half_both_ways);
    tcase_add_test(t, halves_round_to_nearest_even);
    tcase_add_test(t, bfloats_round_trip);
    tcase_add_test(t, arena_limit_and_hook);
    tcase_add_test(t, arena_shared_limit);
    tcase_add_test(t, bitset_against_bytes);
    tcase_add_test(t, intern_keeps_order);
    tcase_add_test(t, vec_grows);
    tcase_add_test(t, error_values);
    tcase_add_test(t, log_lines);
    tcase_add_test(t, digests);
    tcase_add_test(t, tensor_elements);
    tcase_add_test(t, shapes);
    tcase_add_test(t, npy_headers);
    tcase_add_loop_test(t, npy_hostile, 0, (int)(sizeof bad_npy / sizeof bad_npy[0]));
    tcase_add_test(t, npy_flipped_bytes_never_crash);
    tcase_add_test(t, npy_files);
    tcase_add_test(t, safetensors_good);
    tcase_add_loop_test(
        t, safetensors_hostile, 0, (int)(sizeof bad_safetensors / sizeof bad_safetensors[0]));
    tcase_add_test(t, safetensors_limits);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
