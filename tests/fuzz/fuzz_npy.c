/* npy headers: the first 4 bytes are the claimed size of the file, the rest its start. */
#include <stdint.h>
#include <stdlib.h>

#include "base/bytes.h"
#include "base/npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 4) {
        return 0;
    }
    struct npy_header h;
    struct err err = {0};
    if (npy_parse(data + 4, size - 4, load_le32(data), &h, &err) < 0) {
        return 0;
    }
    if (h.data_offset > size - 4 || h.data_offset + h.data_bytes != load_le32(data)) {
        abort(); /* an accepted header describes the file exactly */
    }
    uint8_t text[512];
    size_t n = 0;
    struct npy_header again;
    if (npy_print(h.dtype, &h.shape, text, sizeof text, &n, &err) < 0 ||
        npy_parse(text, n, n + h.data_bytes, &again, &err) < 0 || again.dtype != h.dtype ||
        !shape_equal(&again.shape, &h.shape)) {
        abort(); /* what is read can be written and read again */
    }
    return 0;
}
