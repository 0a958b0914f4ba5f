/* SPDX-License-Identifier: Apache-2.0 */
/* Handing out room and making it by eviction; see pool.h. Where the memory comes from: pool_memory.c. */
#include "manager/pool.h"

#include "base/check.h"
#include "base/size.h"
#include "manager/extent.h"
#include "manager/pool_private.h"
#include "shm/word.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static int make_pool(struct pool **ret_pool, const struct pool_setup *setup, char message[POOL_MESSAGE_BYTES])
{
	struct pool *pool;

	if (setup->window_bytes == 0 || setup->window_bytes % EXTENT_GRAIN != 0 ||
	    setup->window_bytes > CNRE_SEGMENT_BYTES_MAX) {
		(void)snprintf(message, POOL_MESSAGE_BYTES,
			       "pool: largest expert of %llu bytes is not a multiple of 4096 up to 1 GiB",
			       (unsigned long long)setup->window_bytes);
		return -EINVAL;
	}
	pool = calloc(1, sizeof *pool);
	if (pool != NULL)
		pool->segment = calloc(CNRE_SEGMENTS_MAX, sizeof *pool->segment);
	if (pool == NULL || pool->segment == NULL) {
		free(pool);
		(void)snprintf(message, POOL_MESSAGE_BYTES, "pool: no memory for its own tables");
		return -ENOMEM;
	}
	pool->setup = *setup;
	pool->budget_bytes = setup->budget_bytes;
	extent_map_init(&pool->map, setup->window_bytes);
	pool_size_segments(pool);
	*ret_pool = pool;
	return 0;
}

int pool_open(struct pool **ret_pool, const struct pool_setup *setup, char message[POOL_MESSAGE_BYTES])
{
	char budget[16], window[16];
	struct pool *pool;
	int r = make_pool(&pool, setup, message);

	if (r < 0)
		return r;
	pool_grow(pool, POOL_WINDOWS_MIN);
	if (pool_open_windows(pool) < POOL_WINDOWS_MIN) {
		(void)snprintf(
			message, POOL_MESSAGE_BYTES,
			"pool: a budget of %s gave room for %u of the largest experts (%s each); at least %u are needed: raise --ram or free memory",
			cnre_size_format(pool->budget_bytes, budget, sizeof budget), pool_open_windows(pool),
			cnre_size_format(setup->window_bytes, window, sizeof window), POOL_WINDOWS_MIN);
		(void)pool_close(pool);
		return -ENOMEM;
	}
	*ret_pool = pool;
	return 0;
}

int pool_open_empty(struct pool **ret_pool, const struct pool_setup *setup, uint32_t segments_made,
		    char message[POOL_MESSAGE_BYTES])
{
	int r;

	if (segments_made > CNRE_SEGMENTS_MAX) {
		(void)snprintf(message, POOL_MESSAGE_BYTES, "pool: %u segments to adopt are more than %u",
			       segments_made, CNRE_SEGMENTS_MAX);
		return -EBADMSG;
	}
	r = make_pool(ret_pool, setup, message);
	if (r == 0)
		(*ret_pool)->segments_made = segments_made;
	return r;
}

int pool_adopt_segment(struct pool *pool, uint32_t segment, struct cnre_segment *memory)
{
	uint64_t full_bytes = memory->bytes - memory->bytes % pool->map.window_bytes;
	int r;

	if (segment >= pool->segments_made || pool->segment[segment].live || memory->bytes < pool->map.window_bytes ||
	    memory->bytes % EXTENT_GRAIN != 0 || memory->bytes > CNRE_SEGMENT_BYTES_MAX)
		return -EBADMSG;
	r = pool_enter_segment(pool, segment, memory);
	/* The budget may be a small one now: growing again goes on in the steps of the first one, not in crumbs. */
	if (r == 0 && pool->segment_bytes < full_bytes)
		pool->segment_bytes = full_bytes;
	return r;
}

int pool_claim(struct pool *pool, uint64_t place, uint64_t bytes, uint32_t owner)
{
	return extent_claim(&pool->map, cnre_place_segment(place), cnre_place_offset(place), bytes, owner);
}

/* Leaves the pages alone: a client that still computes on a mapped slab keeps it until it unmaps. */
struct pool *pool_close(struct pool *pool)
{
	if (pool == NULL)
		return NULL;
	for (uint32_t s = 0; s < pool->segments_made; s++) {
		if (!pool->segment[s].live)
			continue;
		if (pool->setup.memory.removed != NULL)
			pool->setup.memory.removed(pool->setup.memory.context, s, &pool->segment[s].memory);
		cnre_segment_close(&pool->segment[s].memory);
		free(pool->segment[s].guaranteed);
	}
	extent_map_done(&pool->map);
	free(pool->segment);
	free(pool);
	return NULL;
}

static int fits_budget(const struct pool *pool, uint64_t bytes)
{
	return pool->map.used_bytes <= pool->budget_bytes && bytes <= pool->budget_bytes - pool->map.used_bytes;
}

static int is_room_size(const struct pool *pool, uint64_t bytes)
{
	return bytes > 0 && bytes % EXTENT_GRAIN == 0 && bytes <= pool->map.window_bytes;
}

int pool_take(struct pool *pool, uint64_t bytes, uint32_t owner, uint64_t *ret_place)
{
	uint32_t segment;
	uint64_t off;
	int r;

	if (!is_room_size(pool, bytes) || owner == POOL_OWNER_NONE)
		return -EINVAL;
	if (!fits_budget(pool, bytes))
		return -ENOSPC;
	r = extent_take(&pool->map, bytes, owner, &segment, &off);
	if (r < 0)
		return r;
	*ret_place = cnre_place_pack(segment, off);
	return 0;
}

void pool_give(struct pool *pool, uint64_t place)
{
	extent_give(&pool->map, cnre_place_segment(place), cnre_place_offset(place));
}

void pool_pass(struct pool *pool, uint64_t place, uint32_t owner)
{
	extent_pass(&pool->map, cnre_place_segment(place), cnre_place_offset(place), owner);
}

void *pool_address(const struct pool *pool, uint64_t place)
{
	uint32_t segment = cnre_place_segment(place);

	CNRE_CHECK(segment < pool->segments_made && pool->segment[segment].live);
	CNRE_CHECK(cnre_place_offset(place) < pool->segment[segment].memory.bytes);
	return (char *)pool->segment[segment].memory.base + cnre_place_offset(place);
}

uint32_t pool_owner_at(const struct pool *pool, uint64_t place)
{
	return extent_owner_at(&pool->map, cnre_place_segment(place), cnre_place_offset(place));
}

/* ---- eviction ---- */

int pool_evict(struct pool *pool, uint32_t owner)
{
	uint64_t before = pool->map.used_bytes;
	int r;

	if (pool->setup.tenants.is_busy(pool->setup.tenants.context, owner))
		return -EBUSY;
	r = pool->setup.tenants.evict(pool->setup.tenants.context, owner);
	if (r < 0)
		return -EBUSY;
	CNRE_CHECK(pool->map.used_bytes < before); /* it gave its extent back */
	return 0;
}

/* Evicting gives one extent back, which may melt free neighbours together but never moves an owned one. */
static int evict_run(struct pool *pool, const struct extent_run *run)
{
	uint32_t i = run->first;

	if (extent_get(&pool->map, i)->owner == EXTENT_FREE)
		i = extent_next_owned(&pool->map, i);
	while (i != EXTENT_NONE && extent_get(&pool->map, i)->off < run->end_off) {
		uint32_t next = extent_next_owned(&pool->map, i);
		int r = pool_evict(pool, extent_get(&pool->map, i)->owner);

		if (r < 0)
			return r;
		i = next;
	}
	return 0;
}

void pool_evict_segment(struct pool *pool, uint32_t segment)
{
	uint32_t i = extent_first(&pool->map, segment);

	if (i != EXTENT_NONE && extent_get(&pool->map, i)->owner == EXTENT_FREE)
		i = extent_next_owned(&pool->map, i);
	while (i != EXTENT_NONE) {
		uint32_t next = extent_next_owned(&pool->map, i);

		(void)pool_evict(pool, extent_get(&pool->map, i)->owner); /* a busy one stays */
		i = next;
	}
}

static int find_cheapest_run(struct pool *pool, uint64_t bytes, struct extent_run *ret_run)
{
	uint64_t least = UINT64_MAX;
	int found = 0;

	for (uint32_t s = 0; s < pool->segments_made && least > 0; s++) {
		if (!pool_is_open(pool, s))
			continue;
		if (extent_find_run(&pool->map, s, bytes, least, pool->setup.tenants.is_busy,
				    pool->setup.tenants.context, ret_run)) {
			least = ret_run->owned_bytes;
			found = 1;
		}
	}
	return found;
}

/* While a shrink waits for leases, room alone is not enough: something else has to go until the budget allows it. */
static int shed(struct pool *pool, uint64_t bytes)
{
	for (int only_closed = 1; only_closed >= 0; only_closed--)
		for (uint32_t s = pool->segments_made; s-- > 0 && !fits_budget(pool, bytes);) {
			uint32_t next;

			if (!pool->segment[s].live || pool_is_open(pool, s) == only_closed)
				continue;
			for (uint32_t i = extent_first(&pool->map, s); i != EXTENT_NONE && !fits_budget(pool, bytes);
			     i = next) {
				next = extent_next_owned(&pool->map, i);
				if (extent_get(&pool->map, i)->owner != EXTENT_FREE)
					(void)pool_evict(pool, extent_get(&pool->map, i)->owner);
			}
		}
	return fits_budget(pool, bytes) ? 0 : -ENOSPC;
}

int pool_make_room(struct pool *pool, uint64_t bytes)
{
	struct extent_run run;

	if (!is_room_size(pool, bytes))
		return -EINVAL;
	for (unsigned i = 0; i < POOL_TRIES_MAX; i++) {
		if (!find_cheapest_run(pool, bytes, &run))
			return -ENOSPC;
		if (evict_run(pool, &run) == 0)
			return shed(pool, bytes);
	}
	return -ENOSPC; /* victims kept being leased under our hands; the caller asks again at its next turn */
}

void pool_get_status(const struct pool *pool, struct pool_status *ret_status)
{
	struct pool_status status = {
		.budget_bytes = pool->budget_bytes,
		.backed_bytes = pool->backed_bytes,
		.used_bytes = pool->map.used_bytes,
		.guaranteed = pool->guaranteed,
		.segments_made = pool->segments_made,
		.numa_error = pool->numa_error,
	};

	for (uint32_t s = 0; s < pool->segments_made; s++) {
		if (!pool->segment[s].live)
			continue;
		status.segments_live++;
		status.windows += pool_is_open(pool, s) ? extent_windows(&pool->map, s) : 0;
		status.bytes_by_backing[pool->segment[s].memory.backing] += pool->segment[s].memory.bytes;
	}
	*ret_status = status;
}

const struct cnre_segment *pool_segment(const struct pool *pool, uint32_t segment)
{
	return segment < pool->segments_made && pool->segment[segment].live ? &pool->segment[segment].memory : NULL;
}
