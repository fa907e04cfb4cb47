/* Configuration images ("IPUCFG1"): any bytes are parsed or refused; what is parsed is within the
 * register space. */
#include <stdint.h>
#include <stdlib.h>

#include "device/device_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct config_write writes[CONFIG_MAX];
    uint32_t count = 0;
    if (config_parse(data, size, writes, &count, NULL) == 0) {
        for (uint32_t i = 0; i < count; i++) {
            if (writes[i].offset % 4 != 0 || writes[i].offset >= IPU_CONFIG_BYTES) {
                abort();
            }
        }
    }
    return 0;
}
