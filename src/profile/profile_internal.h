/* Shared by the files of src/profile only. */
#ifndef PROFILE_PROFILE_INTERNAL_H
#define PROFILE_PROFILE_INTERNAL_H

#include "profile/profile.h"

#define PROFILE_NO_CALL UINT32_MAX

enum profile_kind {
    PROFILE_COMPUTE,
    PROFILE_EXCHANGE, /* scheduled events */
    PROFILE_SYNC,     /* barrier: from the last arrival to the first event, on all tiles alike */
    PROFILE_WAIT,     /* for the last tile to arrive */
    PROFILE_IDLE,     /* phases in which the tile has no part */
    PROFILE_REST,
    PROFILE_REPEAT,
    PROFILE_KINDS
};
const char *profile_kind_name(enum profile_kind k);

struct profile_piece {
    struct physical_tile tile;
    enum profile_kind kind;
    uint32_t level;
    uint32_t call; /* COMPUTE: into calls, else PROFILE_NO_CALL */
    int64_t start, end;
    uint32_t predicted, useful; /* cycles */
    uint32_t turns, last_level; /* REPEAT: how many turns of the levels from `level` on */
};

struct profile_phase { /* an exchange phase, by level */
    const struct package_step *step;
    uint32_t tiles; /* that take part; 0: no phase at this level */
    int64_t first_arrival, last_arrival, end;
    struct physical_tile last_tile; /* to arrive */
};

struct profile_pieces { /* owned; profile_pieces_done() */
    struct profile_piece *pieces;
    size_t count;
    struct profile_phase *phases;
    uint32_t phase_count; /* levels */
};

/* -1 when out of memory; *ret can be released either way. */
int profile_pieces_build(const struct profile *p, struct profile_pieces *ret);
void profile_pieces_done(struct profile_pieces *r);

/* path.c: {"cycles": by kind, "segments": [...]}; owned, NULL when out of memory. */
json_t *profile_path(const struct profile *p, const struct profile_pieces *r);
/* groups.c: an array of rows for each way of grouping; likewise. */
json_t *profile_groups(const struct profile *p, const struct profile_pieces *r);

#endif
