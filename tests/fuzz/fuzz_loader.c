/* ELF files of a secondary loader: any bytes are refused with a reason, or give an image within its
 * limit. */
#include <stdint.h>
#include <stdlib.h>

#include "device/device_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct loader_image image;
    struct err err = {0};
    if (loader_parse(data, size, &image, &err) < 0) {
        if (err.code == 0 || err.text[0] == '\0') {
            abort();
        }
        return 0;
    }
    if (image.size == 0 || image.size > LOADER_MAX_BYTES || size > LOADER_MAX_FILE_BYTES) {
        abort();
    }
    for (uint32_t i = image.size; i < LOADER_MAX_BYTES; i++) {
        if (image.bytes[i] != 0) {
            abort(); /* what is no part of the segment is zero */
        }
    }
    return 0;
}
