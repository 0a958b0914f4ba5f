/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bookkeeping of a least-recently-used cache with the same number of slots in every layer, as Colibri's OLMoE
 * engine keeps it: experts are looked up one after another, every miss is admitted, the victim is the slot of that
 * layer used longest ago. Pure: no bytes, no reads.
 */
#ifndef ENGINE_LRU_H
#define ENGINE_LRU_H

#include <stdbool.h>
#include <stdint.h>

struct lru_slot {
	uint64_t used;                    /* clock of the last access */
	uint32_t expert;
};

struct lru {
	struct lru_slot *slot;            /* [layers * slots_per_layer] */
	uint32_t *filled;                 /* [layers] */
	uint64_t clock;
	uint32_t slots_per_layer;
};

struct lru_access {
	uint32_t slot;                    /* index over all layers */
	bool hit;
	bool evicted;                     /* the slot held another expert until now */
};

/* Returns 0, -EINVAL (a count is 0) or -ENOMEM. */
int lru_init(struct lru *lru, uint32_t layers, uint32_t slots_per_layer);
void lru_done(struct lru *lru);

/* One lookup; the expert is resident after it. */
struct lru_access lru_access(struct lru *lru, uint32_t layer, uint32_t expert);

#endif
