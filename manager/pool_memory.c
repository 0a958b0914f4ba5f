/* SPDX-License-Identifier: Apache-2.0 */
/* Backing the pool with memory: how large segments are, the ladder of page kinds, giving segments back. See pool.h. */
#include "manager/pool_private.h"

#include "base/check.h"
#include "base/crash.h"
#include "base/size.h"
#include "shm/numa.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void pool_note(const struct pool *pool, const char *format, ...)
{
	char line[512];
	va_list arguments;

	if (pool->setup.note == NULL)
		return;
	va_start(arguments, format);
	(void)vsnprintf(line, sizeof line, format, arguments);
	va_end(arguments);
	pool->setup.note(pool->setup.memory.context, line);
}

uint64_t pool_open_bytes(const struct pool *pool)
{
	uint64_t bytes = 0;

	for (uint32_t s = 0; s < pool->segments_made; s++)
		if (pool_is_open(pool, s))
			bytes += pool->segment[s].memory.bytes;
	return bytes;
}

uint32_t pool_open_windows(const struct pool *pool)
{
	uint32_t windows = 0;

	for (uint32_t s = 0; s < pool->segments_made; s++)
		if (pool_is_open(pool, s))
			windows += extent_windows(&pool->map, s);
	return windows;
}

void pool_size_segments(struct pool *pool)
{
	uint64_t window = pool->setup.window_bytes, total = pool->setup.slab_bytes_total, wanted;

	if (total < POOL_WINDOWS_MIN * window)
		total = POOL_WINDOWS_MIN * window;
	wanted = (total < pool->budget_bytes ? total : pool->budget_bytes) / POOL_SEGMENTS_WANTED;
	if (wanted > CNRE_SEGMENT_BYTES_MAX)
		wanted = CNRE_SEGMENT_BYTES_MAX;
	pool->segment_bytes = wanted < window ? window : wanted - wanted % window;
	pool->needed_bytes = total;
}

/*
 * What the objects can use of a segment. Objects of one size fill whole windows; objects of several sizes leave some of
 * its end unused, half a window as a rule of thumb. Counting this and not bytes, a pool for everything holds everything.
 */
static uint64_t useful_bytes(const struct pool *pool, uint32_t segment)
{
	uint64_t window = pool->map.window_bytes;

	if (pool->needed_bytes % window == 0)
		return extent_windows(&pool->map, segment) * window;
	return pool->segment[segment].memory.bytes - window / 2;
}

/* Bytes that all objects could still use beyond the open segments, in whole windows. */
static uint64_t missing_bytes(const struct pool *pool, uint32_t wanted_windows)
{
	uint64_t window = pool->map.window_bytes, have = 0, for_objects = 0, for_windows = 0;
	uint32_t windows = pool_open_windows(pool);

	for (uint32_t s = 0; s < pool->segments_made; s++)
		if (pool_is_open(pool, s))
			have += useful_bytes(pool, s);
	if (have < pool->needed_bytes)
		for_objects = (pool->needed_bytes - have) / window + ((pool->needed_bytes - have) % window != 0);
	if (windows < wanted_windows)
		for_windows = wanted_windows - windows;
	return (for_objects > for_windows ? for_objects : for_windows) * window;
}

/* Bytes of the next segment on pages of this kind, 0: it does not suit. */
static uint64_t choose_bytes(const struct pool *pool, enum cnre_backing backing, uint64_t missing, uint64_t room)
{
	uint64_t page_bytes = cnre_backing_page_bytes(backing);
	uint64_t bytes = missing < pool->segment_bytes ? missing : pool->segment_bytes;

	if (backing == CNRE_BACKING_1G) /* only where a segment of just that size is wanted */
		return bytes > CNRE_SEGMENT_BYTES_MAX - pool->map.window_bytes && room >= page_bytes ? page_bytes : 0;
	if (bytes < page_bytes)
		return 0; /* a huge page would hold several segments */
	bytes = cnre_size_align_up(bytes, page_bytes);
	if (bytes > room)
		bytes = cnre_size_align_down(room, page_bytes);
	return bytes < pool->map.window_bytes ? 0 : bytes;
}

int pool_enter_segment(struct pool *pool, uint32_t number, struct cnre_segment *memory)
{
	struct pool_segment *s = &pool->segment[number];

	s->guaranteed = calloc(memory->bytes / pool->map.window_bytes + 1, 1);
	if (s->guaranteed == NULL)
		return -ENOMEM;
	if (extent_add_segment(&pool->map, number, memory->bytes) < 0) {
		free(s->guaranteed);
		s->guaranteed = NULL;
		return -ENOMEM;
	}
	s->memory = *memory;
	s->live = 1;
	if (number >= pool->segments_made)
		pool->segments_made = number + 1;
	pool->backed_bytes += memory->bytes;
	if (pool->setup.memory.added != NULL)
		pool->setup.memory.added(pool->setup.memory.context, number, &s->memory);
	return 0;
}

static void note_step_down(const struct pool *pool, enum cnre_backing backing, uint64_t left_bytes, int error)
{
	unsigned long long pages = left_bytes / cnre_backing_page_bytes(backing);
	char left[16];

	(void)cnre_size_format(left_bytes, left, sizeof left);
	switch (backing) {
	case CNRE_BACKING_1G:
		pool_note(
			pool,
			"pool: no 1 GiB huge pages for the next %s (%s): trying 2 MiB ones; to have them, boot with hugepagesz=1G hugepages=%llu",
			left, strerror(-error), pages);
		break;
	case CNRE_BACKING_2M:
		pool_note(
			pool,
			"pool: no 2 MiB huge pages for the next %s (%s): trying transparent ones; to have them, sysctl -w vm.nr_hugepages=%llu",
			left, strerror(-error), pages);
		break;
	case CNRE_BACKING_THP:
		pool_note(
			pool,
			"pool: no transparent huge pages for the next %s (%s): using 4 KiB pages; to have them, echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled",
			left, strerror(-error));
		break;
	case CNRE_BACKING_4K:
		pool_note(pool,
			  "pool: memory ran out (%s): %s of the budget stay without memory; lower --ram or free memory",
			  strerror(-error), left);
		break;
	}
}

static void note_placement(struct pool *pool, int error)
{
	if (error == 0 || pool->numa_error != 0 || cnre_numa_is_single())
		return;
	pool->numa_error = error;
	pool_note(
		pool,
		"pool: --numa is not honoured (mbind: %s): memory lies where the manager runs; allow mbind and get_mempolicy, or say --numa local",
		strerror(-error));
}

/* One segment by the first kind of page that works; *backing moves down the ladder for good. */
static int add_segment(struct pool *pool, uint64_t missing, enum cnre_backing *backing)
{
	uint64_t room = pool->budget_bytes - pool->backed_bytes;
	struct cnre_segment memory;
	int r = -ENOSPC;

	for (enum cnre_backing kind = *backing; kind <= CNRE_BACKING_4K; kind++) {
		uint64_t bytes = choose_bytes(pool, kind, missing, room);

		if (bytes == 0)
			continue;
		r = cnre_segment_create(&memory, "cnre-pool", bytes, kind, pool->setup.numa_node, CNRE_SEGMENT_NO_DUMP);
		if (r == 0)
			break;
		note_step_down(pool, kind, missing < room ? missing : room, r);
		*backing = kind + 1;
	}
	if (r < 0)
		return r;
	note_placement(pool, memory.numa_error);
	CNRE_CRASH_POINT("grow-made");
	r = pool_enter_segment(pool, pool->segments_made, &memory);
	if (r < 0)
		cnre_segment_close(&memory);
	return r;
}

void pool_grow(struct pool *pool, uint32_t wanted_windows)
{
	enum cnre_backing backing = pool->setup.first_backing;
	uint64_t missing;

	for (;;) {
		missing = missing_bytes(pool, wanted_windows);
		/* Closed segments that wait for a lease are backed too, so new ones get only what is left beside them. */
		if (missing == 0 || pool->backed_bytes >= pool->budget_bytes ||
		    pool->budget_bytes - pool->backed_bytes < pool->map.window_bytes)
			return;
		if (pool->segments_made == CNRE_SEGMENTS_MAX) {
			pool_note(
				pool,
				"pool: all %u segment numbers of this run are used: it cannot grow again; restart the manager",
				CNRE_SEGMENTS_MAX);
			return;
		}
		if (add_segment(pool, missing, &backing) < 0)
			return;
	}
}

/* Clients that have it mapped keep the mapping; its pages go now. */
void pool_remove_segment(struct pool *pool, uint32_t segment)
{
	struct pool_segment *s = &pool->segment[segment];

	CNRE_CHECK(s->live && pool_guaranteed_in(pool, segment) == 0);
	if (pool->setup.memory.removed != NULL)
		pool->setup.memory.removed(pool->setup.memory.context, segment, &s->memory);
	CNRE_CRASH_POINT("shrink-emptied");
	extent_remove_segment(&pool->map, segment);
	if (cnre_segment_punch(&s->memory) < 0)
		pool_note(pool, "pool: the pages of segment %u go only when its last client unmaps it", segment);
	CNRE_CRASH_POINT("shrink-punched");
	pool->backed_bytes -= s->memory.bytes;
	cnre_segment_close(&s->memory);
	free(s->guaranteed);
	*s = (struct pool_segment){.memory = {.fd = -1}};
}
