/* Items: bytes whose value may have to wait. */
#include "asm/asm_internal.h"

#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"

size_t item_size(const struct item *item) {
    if (item->data_size > 0) {
        return (size_t)item->data_size;
    }
    bool has_two = item->code_count == 2 || strcmp(item->code[0].mnemonic, "sendpicp") == 0;
    return has_two ? 8 : 4;
}

/* "'loop' of section '.text' is 0x4c010" for the first address in an expression, "" when none. */
static const char *address_note(
    const struct resolver *r, const struct expr *e, const struct location *at, char *buf,
    size_t n) {
    const struct expr *address = expr_address(e);
    struct value v;
    buf[0] = '\0';
    if (address == NULL || r->section_addrs == NULL || expr_eval(r, address, at, &v, NULL) < 0) {
        return buf;
    }
    bool has_name = address->symbol != INTERN_NONE;
    snprintf(
        buf, n, "; %s%s%s%s%s is 0x%" PRIx64, has_name ? "'" : "the place",
        has_name ? intern_name(&r->object->names, address->symbol) : "", has_name ? "'" : "",
        address->op == EXPR_LOC ? " of section " : "",
        address->op == EXPR_LOC ? r->object->sections.data[address->section].name : "",
        (uint64_t)v.k);
    return buf;
}

static int
resolve_data(const struct resolver *r, const struct item *item, uint8_t *bytes, struct err *err) {
    struct value v;
    int status = expr_eval(r, item->data, &item->at, &v, err);
    if (status < 0) {
        return status;
    }
    if (v.kind != VALUE_CONST) {
        return 1;
    }
    int bits = item->data_size * 8;
    if (bits < 64 && (v.k < -(1ll << (bits - 1)) || v.k >= 1ll << bits)) {
        char note[200];
        return asm_fail(
            r->object, err, &item->at, "%" PRId64 " does not fit %d bits%s", v.k, bits,
            address_note(r, item->data, &item->at, note, sizeof note));
    }
    for (int i = 0; i < item->data_size; i++) {
        bytes[i] = (uint8_t)((uint64_t)v.k >> (8 * i));
    }
    return 0;
}

int item_resolve(
    const struct resolver *r, const struct item *item, uint8_t *bytes, struct err *err) {
    if (item->data_size > 0) {
        return resolve_data(r, item, bytes, err);
    }
    uint32_t words[2];
    int status = code_resolve(r, item->code, item->code_count, words, err);
    if (status < 0) {
        char note[200];
        for (int i = 0; err != NULL && i < item->code_count; i++) {
            for (int k = 0; k < item->code[i].operand_count; k++) {
                const struct operand *o = &item->code[i].operands[k];
                size_t used = strlen(err->text);
                address_note(r, o->expr, &item->at, note, sizeof note);
                if (strstr(err->text, note) == NULL) {
                    snprintf(err->text + used, sizeof err->text - used, "%s", note);
                }
            }
        }
        return status;
    }
    store_le32(bytes, words[0]);
    if (item_size(item) == 8) {
        store_le32(bytes + 4, words[1]);
    }
    return status;
}
