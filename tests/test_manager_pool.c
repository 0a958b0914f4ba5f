/* SPDX-License-Identifier: Apache-2.0 */
#include "manager/pool.h"

#include "manager/extent.h"
#include "manager/pool_private.h"
#include "shm/word.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(manager_pool, .timeout = 60);

#define KIB 1024ull
#define MIB (1024 * KIB)
#define WINDOW (64 * KIB)
#define OWNERS 4096u

/* A small world: owners with sizes, some of them busy. */
static struct {
	struct pool *pool;
	uint64_t place[OWNERS];
	uint64_t bytes[OWNERS]; /* 0: not resident */
	unsigned char busy[OWNERS];
	unsigned char snatched[OWNERS]; /* gets leased between the look and the eviction */
	uint64_t evicted_bytes;
	uint32_t evictions, added, removed, notes;
} world;

static int is_busy(void *context, uint32_t owner)
{
	cr_assert_eq(context, &world);
	return world.busy[owner];
}

static int evict(void *context, uint32_t owner)
{
	cr_assert_eq(context, &world);
	cr_assert(world.bytes[owner] > 0 && !world.busy[owner], "owner %u", owner);
	if (world.snatched[owner]) {
		world.busy[owner] = 1;
		return -EBUSY;
	}
	world.evicted_bytes += world.bytes[owner];
	world.evictions++;
	world.bytes[owner] = 0;
	pool_give(world.pool, world.place[owner]);
	return 0;
}

static void added(void *context, uint32_t segment, const struct cnre_segment *memory)
{
	cr_assert_eq(context, &world);
	cr_assert_eq(segment, world.added++, "numbers rise and are never used again");
	memset(memory->base, 0x11, memory->bytes);
}

static void removed(void *context, uint32_t segment, const struct cnre_segment *memory)
{
	cr_assert_eq(context, &world);
	(void)segment;
	cr_assert_eq(((unsigned char *)memory->base)[100], 0x11, "told before its pages go");
	world.removed++;
}

static void note(void *context, const char *line)
{
	cr_assert_eq(context, &world);
	cr_assert_gt(strlen(line), 10);
	world.notes++;
}

static struct pool_setup setup_of(uint64_t budget_bytes, uint64_t slab_bytes_total)
{
	return (struct pool_setup){
		.budget_bytes = budget_bytes,
		.window_bytes = WINDOW,
		.slab_bytes_total = slab_bytes_total,
		.first_backing = CNRE_BACKING_4K,
		.numa_node = -1,
		.tenants = {&world, is_busy, evict},
		.memory = {&world, added, removed},
		.note = note,
	};
}

static void begin(uint64_t budget_bytes, uint64_t slab_bytes_total)
{
	struct pool_setup setup = setup_of(budget_bytes, slab_bytes_total);
	char message[POOL_MESSAGE_BYTES] = "";

	cr_assert_eq(pool_open(&world.pool, &setup, message), 0, "%s", message);
}

static void end(void)
{
	extent_check(&world.pool->map);
	cr_expect_null(pool_close(world.pool));
}

static int take(uint32_t owner, uint64_t bytes)
{
	int r = pool_take(world.pool, bytes, owner, &world.place[owner]);

	if (r == 0)
		world.bytes[owner] = bytes;
	return r;
}

static struct pool_status status(void)
{
	struct pool_status now;

	pool_get_status(world.pool, &now);
	return now;
}

/* Fills the pool with owners of one size from `first` on; how many. */
static uint32_t fill(uint32_t first, uint64_t bytes)
{
	uint32_t count = 0;

	while (take(first + count, bytes) == 0)
		count++;
	return count;
}

/* ---- size ---- */

Test(manager_pool, backed_memory_never_exceeds_the_budget_and_wastes_less_than_a_window)
{
	static const uint64_t budgets[] = {4 * WINDOW, 4 * WINDOW + 4 * KIB, 17 * WINDOW, MIB + 12 * KIB, 3 * MIB,
					   16 * MIB};

	for (size_t i = 0; i < sizeof budgets / sizeof budgets[0]; i++) {
		memset(&world, 0, sizeof world);
		begin(budgets[i], 1024 * MIB);
		cr_expect_leq(status().backed_bytes, budgets[i]);
		cr_expect_gt(status().backed_bytes + WINDOW, budgets[i]);
		cr_expect_geq(status().windows, budgets[i] / WINDOW - status().segments_live, "budget %zu", i);
		end();
	}
}

Test(manager_pool, pool_for_all_objects_of_one_size_holds_them_all_and_not_one_window_more)
{
	static const uint64_t objects[] = {4, 5, 16, 33, 100};

	for (size_t i = 0; i < sizeof objects / sizeof objects[0]; i++) {
		memset(&world, 0, sizeof world);
		begin(1024 * MIB, objects[i] * WINDOW);
		cr_expect_eq(status().backed_bytes, objects[i] * WINDOW);
		cr_expect_eq(fill(0, WINDOW), objects[i]);
		end();
	}
}

Test(manager_pool, pool_for_all_objects_of_two_sizes_holds_them_all)
{
	uint32_t wide = 40, narrow = 60, i;
	uint64_t small = 36 * KIB;

	begin(1024 * MIB, wide * WINDOW + narrow * small);
	for (i = 0; i < wide; i++)
		cr_assert_eq(take(i, WINDOW), 0, "wide %u", i);
	for (; i < wide + narrow; i++)
		cr_assert_eq(take(i, small), 0, "narrow %u", i);
	cr_expect_leq(status().backed_bytes, (wide * WINDOW + narrow * small) * 3 / 2);
	end();
}

Test(manager_pool, fewer_than_four_windows_are_enomem_with_the_numbers)
{
	struct pool_setup setup = setup_of(3 * WINDOW, MIB);
	char message[POOL_MESSAGE_BYTES] = "";
	struct pool *pool = (struct pool *)&setup;

	cr_expect_eq(pool_open(&pool, &setup, message), -ENOMEM);
	cr_expect_eq(pool, (struct pool *)&setup, "output is untouched");
	cr_expect_not_null(strstr(message, "192.0 KiB"), "%s", message);
	setup.window_bytes = 100;
	cr_expect_eq(pool_open(&pool, &setup, message), -EINVAL);
	setup.window_bytes = CNRE_SEGMENT_BYTES_MAX + 4096;
	cr_expect_eq(pool_open(&pool, &setup, message), -EINVAL);
}

Test(manager_pool, missing_huge_pages_step_down_with_one_note_each)
{
	struct pool_setup setup = setup_of(64 * MIB, 64 * MIB);
	char message[POOL_MESSAGE_BYTES];

	setup.first_backing = CNRE_BACKING_1G; /* segments of 4 MiB: 1 GiB pages do not suit, which is no note */
	cr_assert_eq(pool_open(&world.pool, &setup, message), 0);
	cr_expect_leq(world.notes, 2);
	cr_expect_eq(status().backed_bytes, 64 * MIB);
	cr_expect_eq(status().bytes_by_backing[CNRE_BACKING_1G], 0);
	end();
}

Test(manager_pool, slab_lies_in_the_memory_that_its_place_names)
{
	begin(MIB, MIB);
	cr_assert_eq(take(7, 8 * KIB), 0);
	cr_expect_eq(pool_owner_at(world.pool, world.place[7]), 7);
	cr_expect_eq(pool_owner_at(world.pool, world.place[7] + 4096), POOL_OWNER_NONE);
	cr_expect_eq(*(unsigned char *)pool_address(world.pool, world.place[7]), 0x11);
	cr_expect_eq(pool_segment(world.pool, 0)->base, pool_address(world.pool, cnre_place_pack(0, 0)));
	cr_expect_null(pool_segment(world.pool, 4000));
	end();
}

/* A late read lands in the slab; its object lives on in another one, and evicting that would free nothing here. */
Test(manager_pool, a_slab_that_was_passed_on_is_not_emptied_in_its_former_owners_name)
{
	uint64_t late;

	begin(MIB, MIB);
	cr_assert_eq(take(7, 8 * KIB), 0);
	late = world.place[7];
	pool_pass(world.pool, late, 3);
	world.busy[3] = 1;
	cr_expect_eq(pool_owner_at(world.pool, late), 3);
	cr_assert_eq(take(7, 8 * KIB), 0);
	pool_evict_segment(world.pool, 0);
	cr_expect_eq(world.evictions, 1);
	cr_expect_eq(pool_owner_at(world.pool, late), 3);
	cr_expect_eq(pool_owner_at(world.pool, world.place[7]), POOL_OWNER_NONE);
	pool_give(world.pool, late);
	cr_expect_eq(status().used_bytes, 0);
	end();
}

Test(manager_pool, take_of_a_bad_size_is_einval)
{
	begin(MIB, MIB);
	cr_expect_eq(take(1, 0), -EINVAL);
	cr_expect_eq(take(1, 100), -EINVAL);
	cr_expect_eq(take(1, WINDOW + 4 * KIB), -EINVAL);
	cr_expect_eq(pool_make_room(world.pool, WINDOW + 4 * KIB), -EINVAL);
	end();
}

/* ---- making room ---- */

Test(manager_pool, room_is_made_by_evicting_the_fewest_bytes)
{
	begin(MIB, MIB); /* 16 windows, one a segment */
	cr_assert_eq(fill(0, 16 * KIB), 64);
	for (uint32_t i = 0; i < 64; i++)
		world.busy[i] = i % 4 == 0;
	pool_give(world.pool, world.place[21]); /* a hole of 16 KiB between 20 (busy) and 22 */
	world.bytes[21] = 0;
	cr_expect_eq(pool_make_room(world.pool, 32 * KIB), 0);
	cr_expect_eq(world.evicted_bytes, 16 * KIB);
	cr_expect_eq(take(100, 32 * KIB), 0);
	end();
}

Test(manager_pool, no_room_is_enospc_when_every_window_has_a_busy_owner)
{
	begin(MIB, MIB);
	cr_assert_eq(fill(0, WINDOW), 16);
	memset(world.busy, 1, sizeof world.busy);
	cr_expect_eq(pool_make_room(world.pool, WINDOW), -ENOSPC);
	world.busy[5] = 0;
	cr_expect_eq(pool_make_room(world.pool, WINDOW), 0);
	cr_expect_eq(world.evictions, 1);
	end();
}

Test(manager_pool, victim_that_gets_leased_under_our_hands_is_passed_over)
{
	begin(MIB, MIB);
	cr_assert_eq(fill(0, WINDOW), 16);
	for (uint32_t i = 0; i < 10; i++)
		world.snatched[i] = 1;
	cr_expect_eq(pool_make_room(world.pool, WINDOW), 0);
	cr_expect_eq(take(100, WINDOW), 0);
	end();
}

/* ---- the guarantee ---- */

static uint32_t random_state;

static uint32_t next_random(void)
{
	random_state = random_state * 1664525u + 1013904223u;
	return random_state >> 8;
}

/* Sizes of an engine with rows of several widths; the largest is the window. */
static uint64_t random_size(void)
{
	static const uint64_t sizes[] = {WINDOW, 36 * KIB, 20 * KIB, 4 * KIB};

	return sizes[next_random() % 4];
}

/*
 * Goal: with G guaranteed windows and at most G - 1 busy owners, room for a whole window can always be made.
 * Method: pools filled with random sizes; then the adversary chooses the busy owners where they hurt most: one in as
 * many windows as possible, the smallest ones, at the borders.
 */
static void make_busy_in_distinct_windows(uint32_t count)
{
	uint32_t chosen = 0;

	memset(world.busy, 0, sizeof world.busy);
	for (uint32_t s = 0; s < world.pool->segments_made; s++)
		for (uint32_t w = 0; w < extent_windows(&world.pool->map, s); w++)
			for (uint32_t i = 0; i < OWNERS && chosen < count; i++) {
				uint64_t off = cnre_place_offset(world.place[i]);

				if (world.bytes[i] == 0 || world.busy[i] || cnre_place_segment(world.place[i]) != s)
					continue;
				if (off / WINDOW != w && (off + world.bytes[i] - 1) / WINDOW != w)
					continue;
				world.busy[i] = 1;
				chosen++;
				break;
			}
}

/* The fewest owners that leave no gap of a window, were there no guarantee: each as far behind the last as it may be. */
static void make_busy_where_gaps_close(uint32_t count)
{
	uint32_t chosen = 0;

	memset(world.busy, 0, sizeof world.busy);
	for (uint32_t s = 0; s < world.pool->segments_made; s++) {
		uint64_t end_off = 0; /* of the last busy one */

		while (chosen < count) {
			uint32_t best = OWNERS;

			for (uint32_t i = 0; i < OWNERS; i++) {
				uint64_t off = cnre_place_offset(world.place[i]);

				if (world.bytes[i] == 0 || cnre_place_segment(world.place[i]) != s || off < end_off ||
				    off >= end_off + WINDOW)
					continue;
				if (best == OWNERS || off > cnre_place_offset(world.place[best]))
					best = i;
			}
			if (best == OWNERS)
				break;
			world.busy[best] = 1;
			chosen++;
			end_off = cnre_place_offset(world.place[best]) + world.bytes[best];
		}
	}
}

Test(manager_pool, demand_finds_room_whenever_fewer_owners_are_busy_than_windows_are_guaranteed)
{
	for (uint32_t round = 0; round < 240; round++) {
		uint32_t guaranteed, windows, owners = 0;

		random_state = round * 7919;
		memset(&world, 0, sizeof world);
		begin((4 + round % 40) * WINDOW + (round % 3) * 12 * KIB, 1024 * MIB);
		windows = status().windows;
		guaranteed = round % 4 < 2 ? windows : 1 + next_random() % windows;
		if (round % 2 == 0)
			cr_assert_eq(pool_set_guaranteed(world.pool, guaranteed), 0);
		while (owners < 500)
			(void)take(owners++, round % 8 < 4 ? 36 * KIB : random_size());
		if (round % 2 == 1)
			cr_assert_eq(pool_set_guaranteed(world.pool, guaranteed), 0,
				     "nobody is busy: every window can be had");
		cr_assert_eq(status().guaranteed, guaranteed);
		extent_check(&world.pool->map);
		if (round % 3 == 0)
			make_busy_in_distinct_windows(guaranteed - 1);
		else
			make_busy_where_gaps_close(guaranteed - 1);
		cr_assert_eq(pool_make_room(world.pool, WINDOW), 0, "round %u: %u of %u windows", round, guaranteed,
			     windows);
		cr_assert_eq(take(OWNERS - 1, WINDOW), 0);
		end();
	}
}

Test(manager_pool, bound_is_tight_as_many_busy_owners_as_windows_may_leave_no_room)
{
	begin(8 * WINDOW, 1024 * MIB);
	cr_assert_eq(pool_set_guaranteed(world.pool, 8), 0);
	(void)fill(0, 4 * KIB);
	make_busy_in_distinct_windows(8);
	cr_expect_eq(pool_make_room(world.pool, WINDOW), -ENOSPC);
	end();
}

Test(manager_pool, guarantee_is_refused_and_unchanged_where_busy_owners_cross_the_borders)
{
	uint32_t i = 0;

	begin(16 * WINDOW, 1024 * MIB);
	cr_assert_eq(pool_set_guaranteed(world.pool, 2), 0);
	while (take(i, 36 * KIB) == 0)
		i++;
	memset(world.busy, 1, sizeof world.busy);
	cr_expect_eq(pool_set_guaranteed(world.pool, 17), -ENOSPC, "more than there are");
	cr_expect_eq(status().guaranteed, 2);
	extent_check(&world.pool->map);
	cr_expect_eq(world.evictions, 0);
	end();
}

Test(manager_pool, guarantee_can_be_given_back_and_taken_again)
{
	begin(32 * WINDOW, 1024 * MIB);
	cr_assert_eq(pool_set_guaranteed(world.pool, 32), 0);
	cr_assert_eq(pool_set_guaranteed(world.pool, 0), 0);
	extent_check(&world.pool->map);
	cr_expect_eq(world.pool->map.extent_count, status().segments_live, "no fence is left");
	cr_assert_eq(pool_set_guaranteed(world.pool, 5), 0);
	cr_expect_eq(status().guaranteed, 5);
	end();
}

Test(manager_pool, guarantee_beyond_what_the_objects_need_backs_more_of_the_budget)
{
	begin(40 * WINDOW, 8 * WINDOW);
	cr_expect_eq(status().windows, 8);
	cr_expect_eq(pool_set_guaranteed(world.pool, 30), 0);
	cr_expect_geq(status().windows, 30);
	cr_expect_leq(status().backed_bytes, 40 * WINDOW);
	cr_expect_eq(pool_set_guaranteed(world.pool, 41), -ENOSPC);
	cr_expect_eq(status().guaranteed, 30);
	end();
}

/* Both borders count: the left one of the next window is not there to help the last. */
static void check_guarantee(void)
{
	uint32_t count = 0;

	for (uint32_t s = 0; s < world.pool->segments_made; s++)
		for (uint32_t w = 0; w < extent_windows(&world.pool->map, s); w++) {
			if (world.pool->segment[s].guaranteed[w] == WINDOW_PLAIN)
				continue;
			count++;
			cr_assert(pool_is_open(world.pool, s));
			cr_assert(extent_is_fenced(&world.pool->map, s, w * WINDOW));
			cr_assert(extent_is_fenced(&world.pool->map, s, (w + 1) * WINDOW));
		}
	cr_assert_eq(count, status().guaranteed);
}

Test(manager_pool, no_extent_crosses_either_border_of_a_single_guaranteed_window)
{
	begin(64 * WINDOW, 1024 * MIB);
	cr_assert_eq(pool_set_guaranteed(world.pool, 2), 0);
	check_guarantee();
	(void)fill(0, 36 * KIB);
	check_guarantee();
	cr_assert_eq(pool_set_guaranteed(world.pool, 1), 0);
	check_guarantee();
	extent_check(&world.pool->map);
	end();
}

Test(manager_pool, guaranteed_windows_of_a_segment_that_goes_move_elsewhere)
{
	begin(64 * WINDOW, 1024 * MIB); /* 16 segments of 4 windows */
	(void)fill(0, 36 * KIB);
	for (uint32_t i = 0; i < OWNERS; i++) /* all windows of the lower half are crossed by somebody busy */
		world.busy[i] = world.bytes[i] != 0 && cnre_place_segment(world.place[i]) < 8;
	cr_assert_eq(pool_set_guaranteed(world.pool, 9), 0);
	check_guarantee();
	cr_expect_eq(pool_guaranteed_in(world.pool, 0), 0);
	memset(world.busy, 0, sizeof world.busy);
	cr_expect_eq(pool_set_budget(world.pool, 16 * WINDOW), 0);
	cr_expect_eq(status().guaranteed, 9);
	check_guarantee();
	end();
}

/* ---- changing the budget ---- */

Test(manager_pool, lowered_budget_gives_whole_segments_back_at_once)
{
	begin(64 * WINDOW, 1024 * MIB);
	cr_assert_eq(fill(0, WINDOW), 64);
	cr_expect_eq(pool_set_budget(world.pool, 20 * WINDOW), 0);
	cr_expect_leq(status().backed_bytes, 20 * WINDOW);
	cr_expect_leq(status().used_bytes, 20 * WINDOW);
	cr_expect_gt(world.removed, 0);
	cr_expect_eq(take(1000, WINDOW), -ENOSPC);
	end();
}

/* A4: what was freed must not be taken again while a leased segment still waits to be given back. */
Test(manager_pool, lowered_budget_is_never_refilled_while_leases_delay_it)
{
	uint64_t used;

	begin(64 * WINDOW, 1024 * MIB);
	cr_assert_eq(fill(0, WINDOW), 64);
	for (uint32_t i = 0; i < 64; i++)
		world.busy[i] = i % 4 == 3; /* one in each segment of four windows */
	cr_expect_eq(pool_set_budget(world.pool, 24 * WINDOW), 1);
	used = status().used_bytes;
	cr_expect_leq(used, 24 * WINDOW + 16 * WINDOW);
	for (uint32_t i = 100; i < 200; i++) {
		(void)take(i, WINDOW);
		cr_assert(status().used_bytes <= used || status().used_bytes <= 24 * WINDOW);
	}
	memset(world.busy, 0, sizeof world.busy);
	cr_expect_eq(pool_trim(world.pool), 0);
	cr_expect_leq(status().backed_bytes, 24 * WINDOW);
	cr_expect_leq(status().used_bytes, 24 * WINDOW);
	end();
}

Test(manager_pool, segment_without_busy_owners_goes_before_one_with)
{
	begin(64 * WINDOW, 1024 * MIB);
	cr_assert_eq(fill(0, WINDOW), 64);
	for (uint32_t i = 0; i < 64; i++)
		world.busy[i] = cnre_place_segment(world.place[i]) >= status().segments_made / 2;
	cr_expect_eq(pool_set_budget(world.pool, 33 * WINDOW), 0, "the lower half is free to go");
	cr_expect_leq(status().backed_bytes, 33 * WINDOW);
	end();
}

Test(manager_pool, budget_below_the_guarantee_is_enospc_and_changes_nothing)
{
	struct pool_status before;

	begin(32 * WINDOW, 1024 * MIB);
	cr_assert_eq(pool_set_guaranteed(world.pool, 10), 0);
	before = status();
	cr_expect_eq(pool_set_budget(world.pool, 9 * WINDOW), -ENOSPC);
	cr_expect_eq(pool_set_budget(world.pool, 0), -ENOSPC);
	cr_expect_eq(status().budget_bytes, before.budget_bytes);
	cr_expect_eq(status().backed_bytes, before.backed_bytes);
	cr_expect_eq(pool_set_budget(world.pool, 12 * WINDOW), 0);
	cr_expect_eq(status().guaranteed, 10);
	cr_expect_geq(status().windows, 10);
	end();
}

Test(manager_pool, raised_budget_adds_segments_under_new_numbers)
{
	uint32_t made;

	begin(32 * WINDOW, 1024 * MIB);
	cr_assert_eq(pool_set_budget(world.pool, 16 * WINDOW), 0);
	made = status().segments_made;
	cr_expect_eq(pool_set_budget(world.pool, 48 * WINDOW), 0);
	cr_expect_gt(status().segments_made, made);
	cr_expect_leq(status().backed_bytes, 48 * WINDOW);
	cr_expect_gt(status().backed_bytes, 46 * WINDOW);
	for (uint32_t s = 0; s < status().segments_made; s++)
		if (pool_segment(world.pool, s) == NULL)
			cr_expect_lt(s, made);
	end();
}

Test(manager_pool, closed_segment_is_used_again_when_the_budget_returns)
{
	begin(64 * WINDOW, 1024 * MIB);
	cr_assert_eq(fill(0, WINDOW), 64);
	memset(world.busy, 1, sizeof world.busy);
	cr_expect_eq(pool_set_budget(world.pool, 32 * WINDOW), 1);
	cr_expect_eq(pool_set_budget(world.pool, 64 * WINDOW), 0);
	cr_expect_eq(status().backed_bytes, 64 * WINDOW);
	cr_expect_eq(world.removed, 0);
	end();
}

/* ---- property: everything at once ---- */

static void check_world(void)
{
	struct pool_status now = status();
	uint64_t used = 0;

	extent_check(&world.pool->map);
	check_guarantee();
	for (uint32_t i = 0; i < OWNERS; i++) {
		if (world.bytes[i] == 0)
			continue;
		used += world.bytes[i];
		cr_assert_eq(pool_owner_at(world.pool, world.place[i]), i);
		cr_assert_eq(*(uint32_t *)pool_address(world.pool, world.place[i]), i, "its bytes are its own");
	}
	cr_assert_eq(used, now.used_bytes);
	cr_assert_leq(now.guaranteed, now.windows);
}

static uint32_t count_busy(void)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < OWNERS; i++)
		count += world.bytes[i] != 0 && world.busy[i];
	return count;
}

static void take_with_room(uint32_t owner)
{
	uint64_t bytes = random_size();
	uint64_t before = status().used_bytes;
	int r = take(owner, bytes);

	if (r == -ENOSPC && next_random() % 2 == 0 && pool_make_room(world.pool, bytes) == 0) {
		r = take(owner, bytes);
		cr_assert_eq(r, 0, "room that was made is there");
	}
	if (r == 0)
		*(uint32_t *)pool_address(world.pool, world.place[owner]) = owner;
	cr_assert(status().used_bytes <= status().budget_bytes || status().used_bytes <= before);
}

Test(manager_pool, random_takes_leases_guarantees_and_budgets_keep_every_promise)
{
	random_state = 20;
	begin(48 * WINDOW, 1024 * MIB);
	for (int i = 0; i < 15000; i++) {
		uint32_t owner = next_random() % 600, action = next_random() % 200;

		if (action == 0) {
			(void)pool_set_guaranteed(world.pool, next_random() % 40);
		} else if (action == 1) {
			(void)pool_set_budget(world.pool, (4 + next_random() % 60) * WINDOW);
		} else if (action == 2) {
			(void)pool_trim(world.pool);
		} else if (action < 40) {
			world.busy[owner] = world.bytes[owner] != 0 && next_random() % 4 == 0;
		} else if (world.bytes[owner] == 0) {
			world.busy[owner] = 0;
			take_with_room(owner);
		} else if (!world.busy[owner]) {
			world.bytes[owner] = 0;
			pool_give(world.pool, world.place[owner]);
		}
		if (i % 50 == 0)
			check_world();
		if (i % 20 == 0 && count_busy() < status().guaranteed)
			cr_assert_eq(pool_make_room(world.pool, WINDOW), 0, "step %d", i);
	}
	memset(world.busy, 0, sizeof world.busy);
	cr_expect_eq(pool_trim(world.pool), 0);
	cr_expect_leq(status().backed_bytes, status().budget_bytes);
	end();
}
