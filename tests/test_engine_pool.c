/* SPDX-License-Identifier: Apache-2.0 */
/* engine/pool.c: every item once, whoever takes it, job after job. */
#include "engine/pool.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum { ITEMS = 1000 };

static unsigned char done[ITEMS];

static void count_items(void *job, uint32_t first, uint32_t count)
{
	(void)job;
	for (uint32_t i = first; i < first + count; i++)
		done[i]++; /* items are disjoint, and pool_run orders them before its return */
}

static void expect_each_item_once(struct pool *pool, uint32_t items, uint32_t chunk)
{
	memset(done, 0, sizeof done);
	pool_run(pool, count_items, NULL, items, chunk);
	for (uint32_t i = 0; i < ITEMS; i++)
		cr_assert_eq(done[i], i < items, "item %u of %u, chunk %u", i, items, chunk);
}

Test(engine_pool, every_item_is_done_once, .timeout = 60)
{
	static const uint32_t items[] = {0, 1, 7, 64, 999, 1000};
	static const uint32_t chunks[] = {1, 3, 64, 1000, 4000};

	for (uint32_t threads = 1; threads <= 5; threads++) {
		struct pool *pool;

		cr_assert_eq(pool_open(&pool, threads), 0);
		cr_expect_eq(pool_thread_count(pool), threads);
		for (size_t i = 0; i < sizeof items / sizeof items[0]; i++)
			for (size_t c = 0; c < sizeof chunks / sizeof chunks[0]; c++)
				expect_each_item_once(pool, items[i], chunks[c]);
		pool_close(pool);
	}
}

/*
 * Goal: no job is lost between spinning and sleeping. Method: thousands of jobs, some after a pause long
 * enough to sleep.
 */
Test(engine_pool, jobs_after_a_sleep_are_done_too, .timeout = 60)
{
	struct pool *pool;

	cr_assert_eq(pool_open(&pool, 3), 0);
	for (int round = 0; round < 3000; round++) {
		expect_each_item_once(pool, 40, 1);
		if (round % 50 == 0)
			nanosleep(&(struct timespec){.tv_nsec = 1000000},
				  NULL); /* the pause is the input, not a wait */
	}
	pool_close(pool);
}

Test(engine_pool, no_threads_or_too_many_is_einval)
{
	struct pool *pool = (struct pool *)&done;

	cr_expect_eq(pool_open(&pool, 0), -EINVAL);
	cr_expect_eq(pool_open(&pool, POOL_THREADS_MAX + 1), -EINVAL);
	cr_expect_eq((void *)pool, (void *)&done);
	cr_expect_null(pool_close(NULL));
}
