/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/ring.h"

#include "shm/futex.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

TestSuite(shm_ring, .timeout = 20);

static struct cnre_channel *make_channel(void)
{
	struct cnre_channel *channel = aligned_alloc(64, sizeof *channel);

	cr_assert_not_null(channel);
	memset((void *)channel, 0, sizeof *channel);
	return channel;
}

static int post(struct cnre_channel *channel, uint32_t number)
{
	struct cnre_request request = {
		.kind = CNRE_REQUEST_LOAD, .count = 1, .token_count = 3, .layer = 7, .object = {number}};

	return cnre_ring_post(channel, &request);
}

/* The number in the next request, or -1. */
static int64_t take(struct cnre_channel *channel, uint32_t *head)
{
	struct cnre_request request;

	return cnre_ring_take(channel, head, &request) ? (int64_t)request.object[0] : -1;
}

Test(shm_ring, requests_are_taken_in_the_order_in_which_they_were_posted)
{
	struct cnre_channel *channel = make_channel();
	uint32_t head = 0;

	for (uint32_t i = 0; i < 1000; i++) {
		cr_assert_eq(post(channel, 2 * i), 0);
		cr_assert_eq(post(channel, 2 * i + 1), 0);
		cr_assert_eq(take(channel, &head), 2 * i);
		cr_assert_eq(take(channel, &head), 2 * i + 1);
	}
	cr_expect_eq(take(channel, &head), -1);
	free(channel);
}

Test(shm_ring, every_field_of_a_request_arrives)
{
	struct cnre_channel *channel = make_channel();
	struct cnre_request sent = {.kind = CNRE_REQUEST_PREFETCH,
				    .count = CNRE_SLOT_OBJECTS,
				    .token_count = 500,
				    .layer = 61},
			    got;
	uint32_t head = 0;

	for (uint32_t i = 0; i < CNRE_SLOT_OBJECTS; i++)
		sent.object[i] = 1000 + i;
	cr_assert_eq(cnre_ring_post(channel, &sent), 0);
	memset(&got, 0xff, sizeof got);
	cr_assert_eq(cnre_ring_take(channel, &head, &got), 1);
	cr_expect_eq(memcmp(&got, &sent, sizeof got), 0);
	free(channel);
}

Test(shm_ring, request_of_more_objects_than_a_slot_holds_is_einval_and_takes_no_slot)
{
	struct cnre_channel *channel = make_channel();
	struct cnre_request request = {.kind = CNRE_REQUEST_LOAD, .count = CNRE_SLOT_OBJECTS + 1};
	uint32_t head = 0;

	cr_expect_eq(cnre_ring_post(channel, &request), -EINVAL);
	for (uint32_t i = 0; i < CNRE_SLOTS; i++)
		cr_expect_eq(post(channel, i), 0);
	cr_expect_eq(take(channel, &head), 0);
	free(channel);
}

Test(shm_ring, post_to_a_full_ring_is_eagain_until_one_is_taken)
{
	struct cnre_channel *channel = make_channel();
	uint32_t head = 0;

	for (uint32_t i = 0; i < CNRE_SLOTS; i++)
		cr_assert_eq(post(channel, i), 0);
	cr_expect_eq(post(channel, 999), -EAGAIN);
	cr_assert_eq(take(channel, &head), 0);
	cr_expect_eq(post(channel, 64), 0);
	for (uint32_t i = 1; i <= CNRE_SLOTS; i++)
		cr_assert_eq(take(channel, &head), i);
	cr_expect_eq(take(channel, &head), -1);
	free(channel);
}

Test(shm_ring, positions_wrap_around_32_bits)
{
	struct cnre_channel *channel = make_channel();
	uint32_t head = UINT32_MAX - 1;

	atomic_store(&channel->ring_tail, UINT32_MAX - 1);
	for (uint32_t i = 0; i < 5 * CNRE_SLOTS; i++) {
		cr_assert_eq(post(channel, i), 0);
		cr_assert_eq(cnre_ring_is_pending(channel, head), 1);
		cr_assert_eq(take(channel, &head), i);
		cr_assert_eq(cnre_ring_is_pending(channel, head), 0);
	}
	cr_expect_eq(head, (uint32_t)(UINT32_MAX - 1 + 5 * CNRE_SLOTS));
	free(channel);
}

/* A cell of zeros would otherwise look written in the lap whose number is 0 in 24 bits. */
Test(shm_ring, cell_that_was_never_written_names_no_slot_in_any_lap)
{
	struct cnre_channel *channel = make_channel();
	uint32_t head = UINT32_MAX - 1;

	atomic_store(&channel->ring_tail, UINT32_MAX); /* a thread has its ticket and stopped there */
	atomic_store(&channel->slot[9].object[0], 9);
	atomic_store(&channel->slot[9].count, 1);
	atomic_store(&channel->slot[9].state, CNRE_SLOT_SUBMITTED);
	cr_expect_eq(take(channel, &head), 9);
	cr_expect_eq(take(channel, &head), -1);
	free(channel);
}

/* ---- holes: a thread stopped between taking its ticket and writing its cell ---- */

static void leave_hole(struct cnre_channel *channel)
{
	(void)atomic_fetch_add(&channel->ring_tail, 1);
}

Test(shm_ring, hole_delays_none_of_the_requests_behind_it)
{
	struct cnre_channel *channel = make_channel();
	uint32_t head = 0, seen = 0;

	leave_hole(channel);
	for (uint32_t i = 0; i < 10; i++)
		cr_assert_eq(post(channel, i), 0);
	for (uint32_t i = 0; i < 10; i++) {
		int64_t got = take(channel, &head);

		cr_assert(got >= 0 && got < 10);
		seen |= 1u << got;
	}
	cr_expect_eq(seen, 0x3ff);
	cr_expect_eq(take(channel, &head), -1);
	cr_expect_eq(cnre_ring_is_pending(channel, head), 0);
	free(channel);
}

/*
 * Goal: no slot is ever passed over and left SUBMITTED, where it would be lost to its client for good.
 * Method: holes and long runs behind them, so that the manager's position has to jump; every post must come out once.
 */
Test(shm_ring, no_request_is_lost_or_repeated_however_many_holes_there_are)
{
	struct cnre_channel *channel = make_channel();
	uint32_t head = 0, posted = 0, taken = 0, random = 12345;
	static unsigned char seen[20000];

	while (posted < sizeof seen) {
		int64_t got;

		random = random * 1664525u + 1013904223u;
		if (random >> 28 == 0)
			leave_hole(channel);
		if (random >> 24 == 0x33)
			for (int i = 0; i < 100; i++)
				leave_hole(channel);
		if ((random >> 20 & 3) != 0 && post(channel, posted) == 0)
			posted++;
		if ((random >> 16 & 1) == 0 && (got = take(channel, &head)) >= 0) {
			cr_assert_eq(seen[got]++, 0, "%d twice", (int)got);
			taken++;
		}
	}
	for (int64_t got; (got = take(channel, &head)) >= 0; taken++)
		cr_assert_eq(seen[got]++, 0);
	cr_expect_eq(taken, posted);
	for (uint32_t i = 0; i < CNRE_SLOTS; i++)
		cr_expect_eq(atomic_load(&channel->slot[i].state), CNRE_SLOT_FREE, "slot %u leaked", i);
	free(channel);
}

Test(shm_ring, late_cell_of_an_old_lap_does_not_hide_a_newer_one)
{
	struct cnre_channel *channel = make_channel();
	uint32_t head = 0;

	leave_hole(channel); /* position 0 */
	for (uint32_t i = 0; i < CNRE_SLOTS; i++) {
		cr_assert_eq(post(channel, i), 0);
		cr_assert_eq(take(channel, &head), i);
	}
	cr_assert_eq(post(channel, 77), 0);
	atomic_store(&channel->ring[0], 1u << 8 | CNRE_RING_MARK | 5); /* the stopped thread writes now */
	cr_expect_eq(take(channel, &head), 77);
	cr_expect_eq(take(channel, &head), -1);
	free(channel);
}

/* ---- hostile ---- */

Test(shm_ring, hostile_tail_cells_and_slots_end_within_bounded_takes)
{
	struct cnre_channel *channel = make_channel();
	uint32_t head = 0, random = 1;

	for (int round = 0; round < 200; round++) {
		unsigned char *bytes = (unsigned char *)channel;
		struct cnre_request request;
		int taken = 0;

		for (size_t i = offsetof(struct cnre_channel, bell); i < sizeof *channel; i++) {
			random = random * 1664525u + 1013904223u;
			bytes[i] = (unsigned char)(random >> 24) & (round % 3 == 0 ? 3 : 0xff);
		}
		while (cnre_ring_take(channel, &head, &request)) {
			cr_assert_leq(request.count, CNRE_SLOT_OBJECTS);
			cr_assert_leq(++taken, (int)CNRE_SLOTS);
		}
		(void)cnre_ring_is_pending(channel, head);
	}
	free(channel);
}

Test(shm_ring, tail_that_moves_without_requests_does_not_keep_the_manager_awake)
{
	struct cnre_channel *channel = make_channel();

	atomic_store(&channel->ring_tail, 0x80000000u);
	cr_expect_eq(cnre_ring_is_pending(channel, 5), 0);
	free(channel);
}

Test(shm_ring, wanted_scan_is_pending_until_it_is_taken_once)
{
	struct cnre_channel *channel = make_channel();

	cr_expect_eq(cnre_ring_take_want_scan(channel), 0);
	cnre_ring_want_scan(channel);
	cr_expect_eq(cnre_ring_is_pending(channel, 0), 1);
	cr_expect_eq(cnre_ring_take_want_scan(channel), 1);
	cr_expect_eq(cnre_ring_take_want_scan(channel), 0);
	cr_expect_eq(cnre_ring_is_pending(channel, 0), 0);
	free(channel);
}

/* ---- bell ---- */

static void *sleep_on_bell(void *argument)
{
	struct cnre_channel *channel = argument;

	while (atomic_load(&channel->bell) == 0)
		(void)cnre_futex_wait(&channel->bell, 0, -1); /* for ever: the suite's time limit finds a lost wake */
	return NULL;
}

Test(shm_ring, bell_wakes_a_sleeping_manager)
{
	struct cnre_channel *channel = make_channel();
	static struct cnre_page page;
	pthread_t manager;

	atomic_store(&page.awake, 0);
	cr_assert_eq(pthread_create(&manager, NULL, sleep_on_bell, channel), 0);
	cr_assert_eq(post(channel, 1), 0);
	cnre_ring_bell(channel, &page);
	cr_assert_eq(pthread_join(manager, NULL), 0);
	cr_expect_eq(atomic_load(&channel->bell), 1);
	free(channel);
}

Test(shm_ring, bell_is_left_alone_while_the_manager_is_awake)
{
	struct cnre_channel *channel = make_channel();
	static struct cnre_page page;

	atomic_store(&page.awake, 1);
	cnre_ring_bell(channel, &page);
	cr_expect_eq(atomic_load(&channel->bell), 0);
	free(channel);
}
