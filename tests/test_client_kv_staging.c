/* SPDX-License-Identifier: Apache-2.0 */
#include "client/kv_staging.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>

#define PAGES 200u
#define ROUNDS 100000u

TestSuite(client_kv_staging, .timeout = 60);

Test(client_kv_staging, ranges_are_pages_and_fill_the_segment)
{
	struct cnre_kv_staging staging = {.bytes = 3 * 4096};
	uint64_t off[3], other = 7;

	cr_expect_eq(cnre_kv_staging_take(&staging, 1, &off[0]), 0);
	cr_expect_eq(cnre_kv_staging_take(&staging, 4097, &off[1]), 0);
	cr_expect_eq(off[0], 0);
	cr_expect_eq(off[1], 4096);
	cr_expect_eq(cnre_kv_staging_take(&staging, 1, &other), -EAGAIN);
	cr_expect_eq(other, 7);
	cnre_kv_staging_give(&staging, off[0]);
	cr_expect_eq(cnre_kv_staging_take(&staging, 4097, &other), -EAGAIN);
	cr_expect_eq(cnre_kv_staging_take(&staging, 4096, &off[2]), 0);
	cr_expect_eq(off[2], 0);
}

Test(client_kv_staging, more_than_the_segment_never_fits)
{
	struct cnre_kv_staging staging = {.bytes = 3 * 4096 + 100};
	uint64_t off;

	cr_expect_eq(cnre_kv_staging_take(&staging, UINT64_MAX, &off), -EAGAIN);
	cr_expect_eq(cnre_kv_staging_take(&staging, UINT64_MAX - 4095, &off), -EAGAIN);
	cr_expect_eq(cnre_kv_staging_take(&staging, 3 * 4096 + 100, &off), -EAGAIN, "whole pages");
	cr_expect_eq(cnre_kv_staging_take(&staging, 3 * 4096, &off), 0);
}

Test(client_kv_staging, as_many_ranges_as_slots)
{
	struct cnre_kv_staging staging = {.bytes = 1000 * 4096};
	uint64_t off;

	for (uint32_t i = 0; i < CNRE_KV_SLOTS; i++)
		cr_assert_eq(cnre_kv_staging_take(&staging, 1, &off), 0);
	cr_expect_eq(cnre_kv_staging_take(&staging, 1, &off), -EAGAIN);
	cnre_kv_staging_give(&staging, 12345);
	cr_expect_eq(staging.count, CNRE_KV_SLOTS, "nobody took that");
}

/* Goal: no byte is given out twice or lost. Method: a map of pages beside the allocator, at random. */
Test(client_kv_staging, ranges_never_overlap)
{
	struct cnre_kv_staging staging = {.bytes = PAGES * 4096};
	unsigned char taken[PAGES] = {0};
	uint64_t off[CNRE_KV_SLOTS], pages[CNRE_KV_SLOTS];
	uint32_t count = 0;

	srand(7);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		uint64_t wanted = 1 + (uint64_t)rand() % 20;

		if (rand() % 2 == 0 && cnre_kv_staging_take(&staging, wanted * 4096 - 5, &off[count]) == 0) {
			for (uint64_t k = 0; k < wanted; k++)
				cr_assert_eq(taken[off[count] / 4096 + k]++, 0);
			pages[count++] = wanted;
		} else if (count > 0) {
			uint32_t one = (uint32_t)rand() % count;

			for (uint64_t k = 0; k < pages[one]; k++)
				taken[off[one] / 4096 + k]--;
			cnre_kv_staging_give(&staging, off[one]);
			count--;
			off[one] = off[count];
			pages[one] = pages[count];
		}
	}
	while (count > 0)
		cnre_kv_staging_give(&staging, off[--count]);
	cr_expect_eq(cnre_kv_staging_take(&staging, staging.bytes, &off[0]), 0);
}
