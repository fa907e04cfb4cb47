/* SHA-256 by libcrypto (design.md D16). */
#ifndef BASE_DIGEST_H
#define BASE_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define DIGEST_BYTES 32
#define DIGEST_HEX   64 /* characters, without the final 0 */

struct digest {
    uint8_t bytes[DIGEST_BYTES];
};

struct digest_ctx; /* owned; free with digest_free() */

struct digest_ctx *digest_new(void); /* NULL when out of memory */
void digest_free(struct digest_ctx *ctx);
void digest_update(struct digest_ctx *ctx, const void *bytes, size_t n);
/* Integers enter as 8 little-endian bytes, strings as length then bytes: no two field lists can
 * collide. */
void digest_u64(struct digest_ctx *ctx, uint64_t value);
void digest_text(struct digest_ctx *ctx, const char *text);
void digest_final(struct digest_ctx *ctx, struct digest *ret);

void digest_of(const void *bytes, size_t n, struct digest *ret);
/* Reads fd from offset 0 to its end. */
int digest_of_fd(int fd, struct digest *ret, uint64_t *ret_size_bytes, struct err *err);
void digest_hex(const struct digest *d, char ret_hex[DIGEST_HEX + 1]);
/* Exactly 64 lower-case hexadecimal characters, optionally after "sha256:". */
bool digest_parse(const char *text, struct digest *ret);
bool digest_equal(const struct digest *a, const struct digest *b);

#endif
