/* Shared by the files of place/ only. */
#ifndef PLACE_PLACE_INTERNAL_H
#define PLACE_PLACE_INTERNAL_H

#include "place/place.h"

/* live.c: needs, pairs and the grouping by tile; no addresses. */
void place_requirements(struct placement *p, struct arena *a);
bool place_lives_overlap(const struct lower_buffer *a, const struct lower_buffer *b);
bool place_share_unit(uint32_t a, uint32_t a_bytes, uint32_t b, uint32_t b_bytes);

/* score.c */
uint64_t place_score(const struct placement *p, struct arena *scratch);

#endif
