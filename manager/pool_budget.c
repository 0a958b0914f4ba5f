/* SPDX-License-Identifier: Apache-2.0 */
/* Growing and shrinking the pool at run time by whole segments; see pool.h. */
#include "base/crash.h"
#include "manager/pool_private.h"

#include <errno.h>

static int has_busy(const struct pool *pool, uint32_t segment)
{
	for (uint32_t i = extent_first(&pool->map, segment); i != EXTENT_NONE; i = extent_next_owned(&pool->map, i)) {
		uint32_t owner = extent_get(&pool->map, i)->owner;

		if (owner != EXTENT_FREE && pool->setup.tenants.is_busy(pool->setup.tenants.context, owner))
			return 1;
	}
	return 0;
}

/* Nothing new goes into the segment any more; its guaranteed windows move elsewhere first. 0 or -ENOSPC. */
static int close_segment(struct pool *pool, uint32_t segment)
{
	uint32_t guaranteed = pool_guaranteed_in(pool, segment);

	if (pool_open_windows(pool) - extent_windows(&pool->map, segment) <
	    (pool->guaranteed > 0 ? pool->guaranteed : 1))
		return -ENOSPC;
	if (guaranteed > 0 && pool_guarantee_more(pool, guaranteed, segment) < 0)
		return -ENOSPC;
	(void)pool_unguarantee_segment(pool, segment, guaranteed);
	extent_close_segment(&pool->map, segment);
	return 0;
}

/* Highest number first, but those that nobody is busy in before the others: they can be given back at once. */
static void close_surplus(struct pool *pool)
{
	uint64_t open_bytes = pool_open_bytes(pool);

	for (int take_busy = 0; take_busy <= 1; take_busy++)
		for (uint32_t s = pool->segments_made; s-- > 0 && open_bytes > pool->budget_bytes;) {
			if (!pool_is_open(pool, s) || (!take_busy && has_busy(pool, s)))
				continue;
			if (close_segment(pool, s) == 0)
				open_bytes -= pool->segment[s].memory.bytes;
		}
}

int pool_trim(struct pool *pool)
{
	int waiting = 0;

	close_surplus(pool);
	for (uint32_t s = 0; s < pool->segments_made; s++) {
		if (!pool->segment[s].live || pool_is_open(pool, s))
			continue;
		pool_evict_segment(pool, s);
		if (pool->map.segment[s].used_bytes == 0)
			pool_remove_segment(pool, s);
		else
			waiting = 1;
	}
	return waiting || pool->backed_bytes > pool->budget_bytes;
}

/* Windows that remain when whole segments go, highest first, until the rest fits. */
static uint32_t windows_within(const struct pool *pool, uint64_t budget_bytes)
{
	uint64_t bytes = pool_open_bytes(pool);
	uint32_t windows = pool_open_windows(pool);

	for (uint32_t s = pool->segments_made; s-- > 0 && bytes > budget_bytes;) {
		if (!pool_is_open(pool, s))
			continue;
		bytes -= pool->segment[s].memory.bytes;
		windows -= extent_windows(&pool->map, s);
	}
	return windows;
}

static void reopen_segments(struct pool *pool)
{
	uint64_t open_bytes = pool_open_bytes(pool);

	for (uint32_t s = 0; s < pool->segments_made; s++) {
		if (!pool->segment[s].live || pool_is_open(pool, s) ||
		    open_bytes + pool->segment[s].memory.bytes > pool->budget_bytes)
			continue;
		extent_open_segment(&pool->map, s);
		open_bytes += pool->segment[s].memory.bytes;
	}
}

int pool_check_budget(const struct pool *pool, uint64_t budget_bytes)
{
	uint32_t least = pool->guaranteed > 0 ? pool->guaranteed : 1;

	return budget_bytes / pool->map.window_bytes < least || windows_within(pool, budget_bytes) < least ? -ENOSPC
													   : 0;
}

int pool_set_budget(struct pool *pool, uint64_t budget_bytes)
{
	if (pool_check_budget(pool, budget_bytes) < 0)
		return -ENOSPC;
	pool->budget_bytes = budget_bytes;
	reopen_segments(pool);
	pool_grow(pool, pool->guaranteed);
	CNRE_CRASH_POINT("budget-grown");
	return pool_trim(pool);
}
