/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guaranteed windows: both borders fenced, so that an owner is inside at most one of them. Any window will do, so the ones
 * are taken whose borders nobody crosses, and only then those whose crossing owners can be evicted. See pool.h.
 */
#include "manager/pool_private.h"

#include "base/check.h"

#include <errno.h>

uint32_t pool_guaranteed_in(const struct pool *pool, uint32_t segment)
{
	uint32_t count = 0;

	for (uint32_t w = 0; w < extent_windows(&pool->map, segment); w++)
		count += pool->segment[segment].guaranteed[w] != WINDOW_PLAIN;
	return count;
}

/* A border stays fenced as long as a guaranteed window lies on either side of it. */
static void drop_fence(struct pool *pool, uint32_t segment, uint32_t border)
{
	const unsigned char *guaranteed = pool->segment[segment].guaranteed;

	if (border > 0 && guaranteed[border - 1] != WINDOW_PLAIN)
		return;
	if (border < extent_windows(&pool->map, segment) && guaranteed[border] != WINDOW_PLAIN)
		return;
	extent_clear_fence(&pool->map, segment, border);
}

static void drop_window(struct pool *pool, uint32_t segment, uint32_t window)
{
	pool->segment[segment].guaranteed[window] = WINDOW_PLAIN;
	drop_fence(pool, segment, window);
	drop_fence(pool, segment, window + 1);
}

static int raise_fence(struct pool *pool, uint32_t segment, uint32_t border, int may_evict)
{
	int r = extent_set_fence(&pool->map, segment, border);

	if (r != -EBUSY || !may_evict)
		return r;
	r = pool_evict(pool, extent_owner_across(&pool->map, segment, border));
	return r < 0 ? r : extent_set_fence(&pool->map, segment, border);
}

static int raise_window(struct pool *pool, uint32_t segment, uint32_t window, int may_evict)
{
	int r = raise_fence(pool, segment, window, may_evict);

	if (r == 0)
		r = raise_fence(pool, segment, window + 1, may_evict);
	if (r < 0) {
		drop_fence(pool, segment, window);
		return r;
	}
	pool->segment[segment].guaranteed[window] = WINDOW_NEW;
	return 0;
}

static int is_crossed_by_busy(const struct pool *pool, uint32_t segment, uint32_t border)
{
	uint32_t owner = extent_owner_across(&pool->map, segment, border);

	return owner != EXTENT_FREE && pool->setup.tenants.is_busy(pool->setup.tenants.context, owner);
}

/* Windows that could be guaranteed now; stops counting at `enough`. */
static uint32_t count_candidates(const struct pool *pool, uint32_t excluded, uint32_t enough)
{
	uint32_t count = 0;

	for (uint32_t s = 0; s < pool->segments_made; s++) {
		if (s == excluded || !pool_is_open(pool, s))
			continue;
		for (uint32_t w = 0; w < extent_windows(&pool->map, s) && count < enough; w++)
			count += pool->segment[s].guaranteed[w] == WINDOW_PLAIN && !is_crossed_by_busy(pool, s, w) &&
				 !is_crossed_by_busy(pool, s, w + 1);
	}
	return count;
}

static uint32_t raise_windows(struct pool *pool, uint32_t count, uint32_t excluded, int may_evict)
{
	uint32_t raised = 0;

	for (uint32_t s = 0; s < pool->segments_made && raised < count; s++) {
		if (s == excluded || !pool_is_open(pool, s))
			continue;
		for (uint32_t w = 0; w < extent_windows(&pool->map, s) && raised < count; w++)
			if (pool->segment[s].guaranteed[w] == WINDOW_PLAIN && raise_window(pool, s, w, may_evict) == 0)
				raised++;
	}
	return raised;
}

static void settle_new(struct pool *pool, int keep)
{
	for (uint32_t s = 0; s < pool->segments_made; s++)
		for (uint32_t w = 0; w < extent_windows(&pool->map, s); w++) {
			if (pool->segment[s].guaranteed[w] != WINDOW_NEW)
				continue;
			if (keep)
				pool->segment[s].guaranteed[w] = WINDOW_GUARANTEED;
			else
				drop_window(pool, s, w);
		}
}

int pool_guarantee_more(struct pool *pool, uint32_t count, uint32_t excluded)
{
	uint32_t raised;

	if (count_candidates(pool, excluded, count) < count)
		return -ENOSPC;
	raised = raise_windows(pool, count, excluded, 0);
	raised += raise_windows(pool, count - raised, excluded, 1);
	settle_new(pool, raised == count);
	if (raised != count)
		return -ENOSPC; /* some owner got leased since it was counted */
	pool->guaranteed += count;
	return 0;
}

uint32_t pool_unguarantee_segment(struct pool *pool, uint32_t segment, uint32_t count_max)
{
	uint32_t dropped = 0;

	for (uint32_t w = extent_windows(&pool->map, segment); w-- > 0 && dropped < count_max;)
		if (pool->segment[segment].guaranteed[w] != WINDOW_PLAIN) {
			drop_window(pool, segment, w);
			dropped++;
		}
	CNRE_CHECK(dropped <= pool->guaranteed);
	pool->guaranteed -= dropped;
	return dropped;
}

/* The pool may have been kept smaller than the budget because the objects need no more. */
static void grow_for_guarantee(struct pool *pool, uint32_t more)
{
	uint32_t have = count_candidates(pool, EXTENT_NONE, more), windows = pool_open_windows(pool);
	uint64_t wanted_bytes = (uint64_t)(more - have) * pool->map.window_bytes;

	if (have < more && pool->backed_bytes <= pool->budget_bytes &&
	    wanted_bytes <= pool->budget_bytes - pool->backed_bytes)
		pool_grow(pool, windows + (more - have));
}

int pool_set_guaranteed(struct pool *pool, uint32_t windows)
{
	if (windows <= pool->guaranteed) {
		for (uint32_t s = pool->segments_made; s-- > 0 && pool->guaranteed > windows;)
			(void)pool_unguarantee_segment(pool, s, pool->guaranteed - windows);
		return 0;
	}
	if (windows > pool->budget_bytes / pool->map.window_bytes)
		return -ENOSPC;
	grow_for_guarantee(pool, windows - pool->guaranteed);
	return pool_guarantee_more(pool, windows - pool->guaranteed, EXTENT_NONE);
}
