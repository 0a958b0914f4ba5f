/* SPDX-License-Identifier: Apache-2.0 */
/* See lru.h. A layer has a few dozen slots: a scan of them costs less than any index. */
#include "engine/lru.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

int lru_init(struct lru *lru, uint32_t layers, uint32_t slots_per_layer)
{
	struct lru_slot *slot;
	uint32_t *filled;

	if (layers == 0 || slots_per_layer == 0)
		return -EINVAL;
	slot = calloc((size_t)layers * slots_per_layer, sizeof *slot);
	filled = calloc(layers, sizeof *filled);
	if (!slot || !filled) {
		free(slot);
		free(filled);
		return -ENOMEM;
	}
	*lru = (struct lru){.slot = slot, .filled = filled, .slots_per_layer = slots_per_layer};
	return 0;
}

void lru_done(struct lru *lru)
{
	free(lru->slot);
	free(lru->filled);
	*lru = (struct lru){0};
}

/* The slot that holds the expert, else the slot to give it: an unused one, else the oldest. */
static uint32_t choose(const struct lru_slot *slot, uint32_t filled, uint32_t room, uint32_t expert)
{
	uint32_t oldest = 0;

	for (uint32_t i = 0; i < filled; i++) {
		if (slot[i].expert == expert)
			return i;
		if (slot[i].used < slot[oldest].used)
			oldest = i;
	}
	return filled < room ? filled : oldest;
}

struct lru_access lru_access(struct lru *lru, uint32_t layer, uint32_t expert)
{
	const uint32_t first = layer * lru->slots_per_layer;
	uint32_t chosen = choose(lru->slot + first, lru->filled[layer], lru->slots_per_layer, expert);
	struct lru_slot *slot = &lru->slot[first + chosen];
	struct lru_access access = {.slot = first + chosen};

	if (chosen == lru->filled[layer])
		lru->filled[layer]++;
	else if (slot->expert == expert)
		access.hit = true;
	else
		access.evicted = true;
	slot->expert = expert;
	slot->used = ++lru->clock;
	return access;
}
