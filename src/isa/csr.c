/* Control and status registers by name. Three spaces: supervisor 0..255, worker 0..255 (get, put),
 * worker 256.. (uget, uput). Names are unique within a unit. */
#include "isa/isa.h"

#include <string.h>

struct csr {
    const char *name;
    uint16_t number;
    uint8_t unit; /* enum isa_unit */
};

/* Sorted by unit and number, which the unit test checks. */
static const struct csr csrs[] = {
    {"PC", 0x00, ISA_SUPERVISOR},
    {"SSR", 0x01, ISA_SUPERVISOR},
    {"CR", 0x02, ISA_SUPERVISOR},
    {"TILE_ID", 0x03, ISA_SUPERVISOR},
    {"FP_ICTL", 0x20, ISA_SUPERVISOR},
    {"WORKER0_BASE", 0x21, ISA_SUPERVISOR},
    {"WORKER1_BASE", 0x22, ISA_SUPERVISOR},
    {"WORKER2_BASE", 0x23, ISA_SUPERVISOR},
    {"WORKER3_BASE", 0x24, ISA_SUPERVISOR},
    {"WORKER4_BASE", 0x25, ISA_SUPERVISOR},
    {"WORKER5_BASE", 0x26, ISA_SUPERVISOR},
    {"FP_INFMT", 0x31, ISA_SUPERVISOR},
    {"FP_ISCL", 0x33, ISA_SUPERVISOR},
    {"CCCSLOAD", 0x50, ISA_SUPERVISOR},
    {"SCOUNT_L", 0x60, ISA_SUPERVISOR},
    {"SCOUNT_U", 0x61, ISA_SUPERVISOR},
    {"DBG_DATA", 0x70, ISA_SUPERVISOR},
    {"DBG_BRK_ID", 0x71, ISA_SUPERVISOR},
    {"CTXT_STS", 0x72, ISA_SUPERVISOR},
    {"DBG_CTL", 0x73, ISA_SUPERVISOR},
    {"DBG_ECSR", 0x74, ISA_SUPERVISOR},
    {"DBG_ECLR", 0x75, ISA_SUPERVISOR},
    {"DBG_IBRK0_CTL", 0x80, ISA_SUPERVISOR},
    {"DBG_IBRK0_PC", 0x81, ISA_SUPERVISOR},
    {"DBG_IBRK0_VERT", 0x82, ISA_SUPERVISOR},
    {"DBG_DBRK0_CTL", 0x90, ISA_SUPERVISOR},
    {"DBG_DBRK0_BASE", 0x91, ISA_SUPERVISOR},
    {"DBG_DBRK0_SIDA", 0x92, ISA_SUPERVISOR},
    {"INCOMING_MUX", 0xa0, ISA_SUPERVISOR},
    {"INCOMING_MUXPAIR", 0xa1, ISA_SUPERVISOR},
    {"INCOMING_DELTA", 0xa2, ISA_SUPERVISOR},
    {"INCOMING_FORMAT", 0xa3, ISA_SUPERVISOR},
    {"INCOMING_BASE", 0xa4, ISA_SUPERVISOR},
    {"INCOMING_SINIT", 0xa5, ISA_SUPERVISOR},
    {"INCOMING_DCOUNT", 0xa6, ISA_SUPERVISOR},
    {"OUTGOING_BASE", 0xa7, ISA_SUPERVISOR},
    {"OUTGOING_DELTA", 0xa8, ISA_SUPERVISOR},
    {"EXCHANGE_CTL", 0xa9, ISA_SUPERVISOR},
    {"ANS_DCOUNT", 0xaa, ISA_SUPERVISOR},
    {"EXCHANGE_ADJ", 0xab, ISA_SUPERVISOR},
    {"PC", 0x00, ISA_WORKER},
    {"WSR", 0x01, ISA_WORKER},
    {"VERTEX_BASE", 0x02, ISA_WORKER},
    {"WORKER_BASE", 0x03, ISA_WORKER},
    {"REPEAT_COUNT", 0x04, ISA_WORKER},
    {"REPEAT_FIRST", 0x05, ISA_WORKER},
    {"REPEAT_END", 0x06, ISA_WORKER},
    {"COUNT_L", 0x60, ISA_WORKER},
    {"COUNT_U", 0x61, ISA_WORKER},
    {"DBG_DATA", 0x70, ISA_WORKER},
    {"DBG_BRK_ID", 0x71, ISA_WORKER},
    {"FP_STS", 256 + 0, ISA_WORKER},
    {"FP_CLR", 256 + 1, ISA_WORKER},
    {"FP_CTL", 256 + 2, ISA_WORKER},
    {"PRNG_0_0", 256 + 3, ISA_WORKER},
    {"PRNG_0_1", 256 + 4, ISA_WORKER},
    {"PRNG_1_0", 256 + 5, ISA_WORKER},
    {"PRNG_1_1", 256 + 6, ISA_WORKER},
    {"PRNG_SEED", 256 + 7, ISA_WORKER},
    {"TAS", 256 + 8, ISA_WORKER},
    {"FP_NFMT", 256 + 9, ISA_WORKER},
    {"FP_SCL", 256 + 10, ISA_WORKER},
};

#define CSR_COUNT (sizeof csrs / sizeof csrs[0])
_Static_assert(CSR_COUNT == 62, "40 supervisor, 11 worker and 11 upper worker registers");

int isa_csr_number(const char *name, enum isa_unit unit) {
    for (size_t i = 0; i < CSR_COUNT; i++) {
        if (csrs[i].unit == unit && strcmp(csrs[i].name, name) == 0) {
            return csrs[i].number;
        }
    }
    return -1;
}

const char *isa_csr_name(int number, enum isa_unit unit) {
    for (size_t i = 0; i < CSR_COUNT; i++) {
        if (csrs[i].unit == unit && csrs[i].number == number) {
            return csrs[i].name;
        }
    }
    return NULL;
}
