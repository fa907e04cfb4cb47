/* SHA-256 over the EVP interface of libcrypto. */
#include "base/digest.h"

#include <assert.h>
#include <errno.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/cleanup.h"

#define READ_BYTES ((size_t)64 * 1024)

/* Small updates gather here: a call into libcrypto costs more than hashing 8 bytes. */
#define GATHER_BYTES 512

struct digest_ctx {
    EVP_MD_CTX *evp;
    size_t gathered;
    uint8_t gather[GATHER_BYTES];
};

struct digest_ctx *digest_new(void) {
    struct digest_ctx *ctx = calloc(1, sizeof *ctx);
    if (ctx == NULL) {
        return NULL;
    }
    ctx->evp = EVP_MD_CTX_new();
    if (ctx->evp == NULL || EVP_DigestInit_ex(ctx->evp, EVP_sha256(), NULL) != 1) {
        digest_free(ctx);
        return NULL;
    }
    return ctx;
}

void digest_free(struct digest_ctx *ctx) {
    if (ctx != NULL) {
        EVP_MD_CTX_free(ctx->evp);
        free(ctx);
    }
}

static void hash(struct digest_ctx *ctx, const void *bytes, size_t n) {
    int ok = n == 0 || EVP_DigestUpdate(ctx->evp, bytes, n) == 1;
    assert(ok); /* fails only before init or after final */
    (void)ok;
}

static void flush(struct digest_ctx *ctx) {
    hash(ctx, ctx->gather, ctx->gathered);
    ctx->gathered = 0;
}

void digest_update(struct digest_ctx *ctx, const void *bytes, size_t n) {
    if (n > GATHER_BYTES - ctx->gathered) {
        flush(ctx);
    }
    if (n > GATHER_BYTES) {
        hash(ctx, bytes, n);
    } else if (n > 0) {
        memcpy(ctx->gather + ctx->gathered, bytes, n);
        ctx->gathered += n;
    }
}

void digest_u64(struct digest_ctx *ctx, uint64_t value) {
    uint8_t bytes[8];
    store_le64(bytes, value);
    digest_update(ctx, bytes, sizeof bytes);
}

void digest_text(struct digest_ctx *ctx, const char *text) {
    size_t n = strlen(text);
    digest_u64(ctx, n);
    digest_update(ctx, text, n);
}

void digest_final(struct digest_ctx *ctx, struct digest *ret) {
    unsigned n = 0;
    flush(ctx);
    int ok = EVP_DigestFinal_ex(ctx->evp, ret->bytes, &n) == 1 && n == DIGEST_BYTES;
    assert(ok);
    (void)ok;
}

void digest_of(const void *bytes, size_t n, struct digest *ret) {
    int ok = EVP_Digest(n > 0 ? bytes : "", n, ret->bytes, NULL, EVP_sha256(), NULL) == 1;
    assert(ok);
    (void)ok;
}

static void cleanup_digest(struct digest_ctx **ctx) {
    digest_free(*ctx);
}

int digest_of_fd(int fd, struct digest *ret, uint64_t *ret_size_bytes, struct err *err) {
    CLEANUP(cleanup_digest) struct digest_ctx *ctx = digest_new();
    CLEANUP(cleanup_free) uint8_t *buf = malloc(READ_BYTES);
    if (ctx == NULL || buf == NULL) {
        return err_set(err, ERR_NOMEM, "no memory to hash a file");
    }
    uint64_t at = 0;
    for (;;) {
        ssize_t n = pread(fd, buf, READ_BYTES, (off_t)at);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return err_sys(err, ERR_IO, errno, "cannot read at byte %llu", (unsigned long long)at);
        }
        if (n == 0) {
            break;
        }
        digest_update(ctx, buf, (size_t)n);
        at += (uint64_t)n;
    }
    digest_final(ctx, ret);
    if (ret_size_bytes != NULL) {
        *ret_size_bytes = at;
    }
    return 0;
}

void digest_hex(const struct digest *d, char ret_hex[DIGEST_HEX + 1]) {
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < DIGEST_BYTES; i++) {
        ret_hex[2 * i] = digits[d->bytes[i] >> 4];
        ret_hex[2 * i + 1] = digits[d->bytes[i] & 15];
    }
    ret_hex[DIGEST_HEX] = '\0';
}

static int hex_value(char c) {
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool digest_parse(const char *text, struct digest *ret) {
    if (strncmp(text, "sha256:", 7) == 0) {
        text += 7;
    }
    if (strnlen(text, DIGEST_HEX + 1) != DIGEST_HEX) {
        return false;
    }
    struct digest d;
    for (int i = 0; i < DIGEST_BYTES; i++) {
        int high = hex_value(text[2 * i]);
        int low = hex_value(text[2 * i + 1]);
        if (high < 0 || low < 0) {
            return false;
        }
        d.bytes[i] = (uint8_t)(high << 4 | low);
    }
    *ret = d;
    return true;
}

bool digest_equal(const struct digest *a, const struct digest *b) {
    return memcmp(a->bytes, b->bytes, DIGEST_BYTES) == 0;
}
