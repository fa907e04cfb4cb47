/* Stored schedules: see schedules.h. Entries of this compile live in a list of their own, so that
 * a phase that is scheduled for several finalists or placements is searched once. Memory here is
 * the heap's: the list outlives passes, and an arena's jump loses nothing of it. */
#include "compile/schedules.h"

#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/cleanup.h"

#define SCHEDULE_VERSION "ipud schedule 2"
#define VALUE_HEAD       12 /* count, horizon, whether widened */

struct entry {
    char key[DIGEST_HEX + 1];
    uint8_t *value; /* owned */
    size_t bytes;
    bool is_stored; /* read from the database: not staged again */
};

struct schedules {
    const char *compiler_id;
    sqlite3 *db;          /* NULL: none */
    sqlite3_stmt *lookup; /* with db */
    struct entry *entries;
    uint32_t count;
    size_t bytes;
    struct exchange_orders orders;
};

/* ---- Values -------------------------------------------------------------------------------- */

static bool checksum(const char *key, const uint8_t *value, size_t n, struct digest *ret) {
    struct digest_ctx *ctx = digest_new();
    if (ctx == NULL) {
        return false;
    }
    digest_text(ctx, key);
    digest_update(ctx, value, n);
    digest_final(ctx, ret);
    digest_free(ctx);
    return true;
}

static size_t value_bytes(uint32_t count) {
    return VALUE_HEAD + 4 * (size_t)count + DIGEST_BYTES;
}

static bool is_permutation(const uint8_t *order, uint32_t count) {
    CLEANUP(cleanup_free) uint8_t *seen = calloc(1, (size_t)count + 1);
    for (uint32_t i = 0; i < count && seen != NULL; i++) {
        uint32_t t = load_le32(order + 4 * (size_t)i);
        if (t >= count || seen[t] != 0) {
            return false;
        }
        seen[t] = 1;
    }
    return seen != NULL;
}

static bool value_is_good(const char *key, const uint8_t *value, size_t n, uint32_t count) {
    struct digest sum;
    return n == value_bytes(count) && load_le32(value) == count &&
           checksum(key, value, n - DIGEST_BYTES, &sum) &&
           memcmp(sum.bytes, value + n - DIGEST_BYTES, DIGEST_BYTES) == 0 &&
           load_le32(value + 8) <= 1 && is_permutation(value + VALUE_HEAD, count);
}

/* Owned; NULL when out of memory. */
static uint8_t *value_make(const char *key, const struct exchange_order *o) {
    size_t n = value_bytes(o->count);
    uint8_t *value = malloc(n);
    if (value == NULL) {
        return NULL;
    }
    store_le32(value, o->count);
    store_le32(value + 4, o->horizon);
    store_le32(value + 8, o->is_widened);
    for (uint32_t i = 0; i < o->count; i++) {
        store_le32(value + VALUE_HEAD + 4 * (size_t)i, o->order[i]);
    }
    struct digest sum;
    if (!checksum(key, value, n - DIGEST_BYTES, &sum)) {
        free(value);
        return NULL;
    }
    memcpy(value + n - DIGEST_BYTES, sum.bytes, DIGEST_BYTES);
    return value;
}

static void value_read(const uint8_t *value, struct exchange_order *ret) {
    ret->horizon = load_le32(value + 4);
    ret->is_widened = load_le32(value + 8) != 0;
    for (uint32_t i = 0; i < ret->count; i++) {
        ret->order[i] = load_le32(value + VALUE_HEAD + 4 * (size_t)i);
    }
}

/* ---- Entries ------------------------------------------------------------------------------- */

static bool
key_of(const struct schedules *s, const struct digest *structure, char ret[DIGEST_HEX + 1]) {
    struct digest_ctx *ctx = digest_new();
    if (ctx == NULL) {
        return false;
    }
    struct digest key;
    digest_text(ctx, SCHEDULE_VERSION);
    digest_text(ctx, s->compiler_id);
    digest_update(ctx, structure->bytes, sizeof structure->bytes);
    digest_final(ctx, &key);
    digest_free(ctx);
    digest_hex(&key, ret);
    return true;
}

static const struct entry *entry_find(const struct schedules *s, const char *key) {
    for (uint32_t i = 0; i < s->count; i++) {
        if (memcmp(s->entries[i].key, key, DIGEST_HEX) == 0) {
            return &s->entries[i];
        }
    }
    return NULL;
}

/* Takes the value. Beyond the limits nothing is kept: that costs time, no result. */
static void
entry_add(struct schedules *s, const char *key, uint8_t *value, size_t bytes, bool is_stored) {
    if (s->count >= SCHEDULES_MAX_ENTRIES || bytes > SCHEDULES_MAX_VALUE ||
        bytes > SCHEDULES_MAX_BYTES - s->bytes) {
        free(value);
        return;
    }
    if ((s->count & (s->count - 1)) == 0) { /* room for the next power of two */
        struct entry *grown =
            reallocarray(s->entries, s->count == 0 ? 1 : 2 * (size_t)s->count, sizeof *grown);
        if (grown == NULL) {
            free(value);
            return;
        }
        s->entries = grown;
    }
    struct entry *e = &s->entries[s->count++];
    *e = (struct entry){.value = value, .bytes = bytes, .is_stored = is_stored};
    memcpy(e->key, key, DIGEST_HEX + 1);
    s->bytes += bytes;
}

static void close_database(struct schedules *s) {
    sqlite3_finalize(s->lookup);
    sqlite3_close_v2(s->db);
    s->lookup = NULL;
    s->db = NULL;
}

/* A good value of the database, owned copy; NULL: none. After an error it is not asked again. */
static uint8_t *read_database(struct schedules *s, const char *key, uint32_t count) {
    if (s->lookup == NULL) {
        return NULL;
    }
    uint8_t *value = NULL;
    sqlite3_bind_text(s->lookup, 1, key, -1, SQLITE_STATIC);
    int rc = sqlite3_step(s->lookup);
    if (rc == SQLITE_ROW && sqlite3_column_type(s->lookup, 0) == SQLITE_BLOB) {
        const uint8_t *blob = sqlite3_column_blob(s->lookup, 0);
        size_t n = (size_t)sqlite3_column_bytes(s->lookup, 0);
        if (blob != NULL && value_is_good(key, blob, n, count)) {
            value = malloc(n);
            if (value != NULL) {
                memcpy(value, blob, n);
            }
        }
    }
    sqlite3_reset(s->lookup);
    sqlite3_clear_bindings(s->lookup);
    if (rc != SQLITE_ROW && rc != SQLITE_DONE) {
        close_database(s);
    }
    return value;
}

static bool
find(void *arg, const struct digest *structure, struct exchange_order *ret, bool *ret_is_stored) {
    struct schedules *s = arg;
    char key[DIGEST_HEX + 1];
    if (value_bytes(ret->count) > SCHEDULES_MAX_VALUE || !key_of(s, structure, key)) {
        return false;
    }
    const struct entry *e = entry_find(s, key);
    if (e != NULL && e->bytes != value_bytes(ret->count)) {
        return false;
    }
    if (e != NULL) {
        value_read(e->value, ret);
        *ret_is_stored = e->is_stored;
        return true;
    }
    uint8_t *value = read_database(s, key, ret->count);
    if (value == NULL) {
        return false;
    }
    value_read(value, ret);
    *ret_is_stored = true;
    entry_add(s, key, value, value_bytes(ret->count), true);
    return true;
}

static void keep(void *arg, const struct digest *structure, const struct exchange_order *order) {
    struct schedules *s = arg;
    char key[DIGEST_HEX + 1];
    if (value_bytes(order->count) > SCHEDULES_MAX_VALUE || !key_of(s, structure, key) ||
        entry_find(s, key) != NULL) {
        return;
    }
    uint8_t *value = value_make(key, order);
    if (value != NULL) {
        entry_add(s, key, value, value_bytes(order->count), false);
    }
}

/* ---- Files --------------------------------------------------------------------------------- */

/* No lock is waited for: a busy file counts as empty. */
static void open_database(struct schedules *s, const char *path) {
    if (sqlite3_open_v2(path, &s->db, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOFOLLOW, NULL) !=
            SQLITE_OK ||
        sqlite3_db_config(s->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL) != SQLITE_OK ||
        sqlite3_db_config(s->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL) != SQLITE_OK) {
        close_database(s);
        return;
    }
    sqlite3_limit(s->db, SQLITE_LIMIT_LENGTH, (int)SCHEDULES_MAX_VALUE + 4096);
    if (sqlite3_prepare_v2(
            s->db, "SELECT value FROM schedule WHERE key = ?1", -1, &s->lookup, NULL) !=
        SQLITE_OK) {
        close_database(s);
    }
}

struct schedules *schedules_open(const char *path, const char *compiler_id) {
    struct schedules *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return NULL;
    }
    s->compiler_id = compiler_id;
    s->orders = (struct exchange_orders){.find = find, .keep = keep, .arg = s};
    if (path != NULL) {
        open_database(s, path);
    }
    return s;
}

void schedules_close(struct schedules *s) {
    if (s == NULL) {
        return;
    }
    close_database(s);
    for (uint32_t i = 0; i < s->count; i++) {
        free(s->entries[i].value);
    }
    free(s->entries);
    free(s);
}

const struct exchange_orders *schedules_orders(struct schedules *s) {
    return &s->orders;
}

static bool write_rows(const struct schedules *s, sqlite3 *db) {
    sqlite3_stmt *insert = NULL;
    bool good = sqlite3_exec(
                    db,
                    "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; BEGIN;"
                    "CREATE TABLE schedule (key TEXT PRIMARY KEY, value BLOB NOT NULL)",
                    NULL, NULL, NULL) == SQLITE_OK &&
                sqlite3_prepare_v2(db, "INSERT INTO schedule VALUES (?1, ?2)", -1, &insert, NULL) ==
                    SQLITE_OK;
    for (uint32_t i = 0; i < s->count && good; i++) {
        const struct entry *e = &s->entries[i];
        if (e->is_stored) {
            continue;
        }
        sqlite3_bind_text(insert, 1, e->key, -1, SQLITE_STATIC);
        sqlite3_bind_blob(insert, 2, e->value, (int)e->bytes, SQLITE_STATIC);
        good = sqlite3_step(insert) == SQLITE_DONE;
        sqlite3_reset(insert);
    }
    sqlite3_finalize(insert);
    return good && sqlite3_exec(db, "COMMIT", NULL, NULL, NULL) == SQLITE_OK;
}

uint32_t schedules_stage(const struct schedules *s, const char *path) {
    uint32_t made = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        made += !s->entries[i].is_stored;
    }
    if (made == 0 || access(path, F_OK) == 0) {
        return 0;
    }
    sqlite3 *db = NULL;
    bool good = sqlite3_open_v2(
                    path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOFOLLOW,
                    NULL) == SQLITE_OK &&
                write_rows(s, db);
    good = sqlite3_close(db) == SQLITE_OK && good;
    if (!good) {
        unlink(path);
    }
    return good ? made : 0;
}
