/* SPDX-License-Identifier: Apache-2.0 */
#include "manager/extent.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

TestSuite(manager_extent, .timeout = 60);

#define KIB 1024ull
#define WINDOW (64 * KIB)

static struct extent_map map;

static void begin(uint32_t segments, uint64_t bytes)
{
	extent_map_init(&map, WINDOW);
	for (uint32_t i = 0; i < segments; i++)
		cr_assert_eq(extent_add_segment(&map, i, bytes), 0);
}

static uint64_t take_at(uint64_t bytes, uint32_t owner)
{
	uint32_t segment = 99;
	uint64_t off = 0;

	cr_assert_eq(extent_take(&map, bytes, owner, &segment, &off), 0);
	cr_assert_eq(segment, 0);
	return off;
}

Test(manager_extent, extents_are_of_exact_size_and_lie_side_by_side)
{
	begin(1, 4 * WINDOW);
	cr_expect_eq(take_at(12 * KIB, 1), 0);
	cr_expect_eq(take_at(20 * KIB, 2), 12 * KIB);
	cr_expect_eq(take_at(4 * KIB, 3), 32 * KIB);
	cr_expect_eq(extent_owner_at(&map, 0, 12 * KIB), 2);
	cr_expect_eq(extent_owner_at(&map, 0, 16 * KIB), EXTENT_FREE, "no extent starts there");
	cr_expect_eq(extent_owner_at(&map, 7, 0), EXTENT_FREE, "no such segment");
	cr_expect_eq(extent_owner_at(&map, 0, 1 << 30), EXTENT_FREE, "beyond the segment");
	extent_check(&map);
	extent_map_done(&map);
}

Test(manager_extent, smallest_hole_that_fits_is_used)
{
	begin(1, 4 * WINDOW);
	(void)take_at(16 * KIB, 1);
	(void)take_at(4 * KIB, 2);
	(void)take_at(8 * KIB, 3);
	(void)take_at(4 * KIB, 4);
	extent_give(&map, 0, 0);        /* hole of 16 KiB */
	extent_give(&map, 0, 20 * KIB); /* hole of 8 KiB */
	cr_expect_eq(take_at(8 * KIB, 5), 20 * KIB);
	cr_expect_eq(take_at(8 * KIB, 6), 0);
	extent_check(&map);
	extent_map_done(&map);
}

Test(manager_extent, take_beyond_every_hole_is_enospc_and_leaves_the_output_alone)
{
	uint32_t segment = 5;
	uint64_t off = 6;

	begin(2, WINDOW);
	cr_expect_eq(extent_take(&map, WINDOW + 4 * KIB, 1, &segment, &off), -ENOSPC, "never across segments");
	cr_expect(segment == 5 && off == 6);
	extent_map_done(&map);
}

Test(manager_extent, neighbours_melt_together_whatever_the_order_of_giving)
{
	static const uint64_t orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};

	for (size_t i = 0; i < 6; i++) {
		begin(1, 12 * KIB + WINDOW);
		for (uint32_t k = 0; k < 3; k++)
			cr_assert_eq(take_at(4 * KIB, k), k * 4 * KIB);
		for (uint32_t k = 0; k < 3; k++) {
			extent_give(&map, 0, orders[i][k] * 4 * KIB);
			extent_check(&map);
		}
		cr_expect_eq(map.extent_count, 1);
		extent_map_done(&map);
	}
}

Test(manager_extent, giving_what_is_not_owned_is_a_bug_that_aborts, .signal = SIGABRT)
{
	begin(1, WINDOW);
	extent_give(&map, 0, 0);
}

Test(manager_extent, fence_keeps_extents_from_crossing_and_its_end_melts_them)
{
	begin(1, 2 * WINDOW);
	cr_assert_eq(extent_set_fence(&map, 0, 1), 0);
	extent_check(&map);
	cr_expect_eq(take_at(40 * KIB, 1), 0);
	cr_expect_eq(take_at(40 * KIB, 2), WINDOW);
	extent_give(&map, 0, 0);
	extent_give(&map, 0, WINDOW);
	extent_check(&map);
	cr_expect_eq(map.extent_count, 2);
	extent_clear_fence(&map, 0, 1);
	extent_check(&map);
	cr_expect_eq(map.extent_count, 1);
	extent_map_done(&map);
}

Test(manager_extent, fence_through_an_owned_extent_is_ebusy)
{
	begin(1, 2 * WINDOW);
	(void)take_at(40 * KIB, 1);
	(void)take_at(40 * KIB, 2);
	cr_expect_eq(extent_owner_across(&map, 0, 1), 2);
	cr_expect_eq(extent_set_fence(&map, 0, 1), -EBUSY);
	cr_expect_eq(extent_set_fence(&map, 0, 2), 0, "the end of the segment");
	extent_give(&map, 0, 40 * KIB);
	cr_expect_eq(extent_owner_across(&map, 0, 1), EXTENT_FREE);
	cr_expect_eq(extent_set_fence(&map, 0, 1), 0);
	extent_check(&map);
	extent_map_done(&map);
}

Test(manager_extent, closed_segment_gives_nothing_out_and_takes_everything_back)
{
	uint32_t segment;
	uint64_t off;

	begin(1, 2 * WINDOW);
	(void)take_at(8 * KIB, 1);
	extent_close_segment(&map, 0);
	cr_expect_eq(extent_take(&map, 4 * KIB, 2, &segment, &off), -ENOSPC);
	extent_give(&map, 0, 0);
	extent_check(&map);
	extent_open_segment(&map, 0);
	extent_check(&map);
	cr_expect_eq(take_at(2 * WINDOW, 3), 0);
	extent_give(&map, 0, 0);
	extent_remove_segment(&map, 0);
	cr_expect_eq(map.extent_count, 0);
	extent_map_done(&map);
}

/* ---- runs ---- */

static int is_odd(void *context, uint32_t owner)
{
	(void)context;
	return owner % 2;
}

Test(manager_extent, cheapest_run_holds_no_busy_owner_and_costs_the_fewest_bytes)
{
	struct extent_run run;

	begin(1, 64 * KIB);
	for (uint32_t i = 0; i < 16; i++) /* owners 2, 2, 1, 2, …: every third is busy */
		(void)take_at(4 * KIB, i % 3 == 2 ? 1 : 2);
	extent_give(&map, 0, 12 * KIB);
	cr_assert_eq(extent_find_run(&map, 0, 8 * KIB, UINT64_MAX, is_odd, NULL, &run), 1);
	cr_expect_eq(run.owned_bytes, 4 * KIB);
	cr_expect_eq(run.end_off, 20 * KIB);
	cr_expect_eq(extent_find_run(&map, 0, 8 * KIB, 4 * KIB, is_odd, NULL, &run), 0, "none is cheaper");
	cr_expect_eq(extent_find_run(&map, 0, 12 * KIB, UINT64_MAX, is_odd, NULL, &run), 0,
		     "a busy one is always in the way");
	extent_map_done(&map);
}

/* ---- property: random takes, gives, fences, closings against a table of bytes ---- */

#define SEGMENTS 3u
#define GRAINS 64u /* of one segment */

static uint32_t shadow[SEGMENTS][GRAINS]; /* owner + 1 of each grain, 0 free */
static uint32_t live_at[4096][2], live_grains[4096];

static uint32_t next_random(void)
{
	static uint32_t state = 88172645u;

	state ^= state << 13;
	state ^= state >> 17;
	state ^= state << 5;
	return state;
}

static int has_hole(const struct extent_map *m, uint32_t grains)
{
	for (uint32_t s = 0; s < SEGMENTS; s++) {
		uint32_t run = 0;

		for (uint32_t g = 0; g < GRAINS && m->segment[s].open; g++) {
			if (extent_is_fenced(m, s, (uint64_t)g * EXTENT_GRAIN))
				run = 0;
			run = shadow[s][g] == 0 ? run + 1 : 0;
			if (run >= grains)
				return 1;
		}
	}
	return 0;
}

static void mark(uint32_t owner, uint32_t value)
{
	for (uint32_t g = 0; g < live_grains[owner]; g++) {
		uint32_t *cell = &shadow[live_at[owner][0]][live_at[owner][1] + g];

		cr_assert_eq(*cell, value == 0 ? owner + 1 : 0, "two owners of one grain");
		*cell = value;
	}
}

static void take_random(uint32_t owner)
{
	uint32_t grains = 1 + next_random() % 16, segment;
	uint64_t off;
	int expected = has_hole(&map, grains) ? 0 : -ENOSPC;

	cr_assert_eq(extent_take(&map, grains * EXTENT_GRAIN, owner, &segment, &off), expected);
	if (expected < 0)
		return;
	live_at[owner][0] = segment;
	live_at[owner][1] = (uint32_t)(off / EXTENT_GRAIN);
	live_grains[owner] = grains;
	mark(owner, owner + 1);
}

static void give_random(uint32_t owner)
{
	mark(owner, 0);
	extent_give(&map, live_at[owner][0], (uint64_t)live_at[owner][1] * EXTENT_GRAIN);
	live_grains[owner] = 0;
}

Test(manager_extent, take_succeeds_exactly_when_there_is_a_hole_and_nothing_ever_overlaps)
{
	begin(SEGMENTS, GRAINS * EXTENT_GRAIN);
	for (int i = 0; i < 60000; i++) {
		uint32_t owner = next_random() % 48, segment = next_random() % SEGMENTS, border = next_random() % 5;

		switch (next_random() % 16) {
		case 0:
			(void)extent_set_fence(&map, segment, border);
			break;
		case 1:
			extent_clear_fence(&map, segment, border);
			break;
		case 2:
			extent_close_segment(&map, segment);
			break;
		case 3:
			extent_open_segment(&map, segment);
			break;
		default:
			if (live_grains[owner] == 0)
				take_random(owner);
			else
				give_random(owner);
		}
		if (i % 8 == 0)
			extent_check(&map);
	}
	extent_map_done(&map);
}
