/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of owners that wait for a slab. */
#include "manager/queue.h"

#include <criterion/criterion.h>

TestSuite(manager_queue, .timeout = 20);

static struct queue *open_queue(uint32_t owners)
{
	struct queue *queue = NULL;

	cr_assert_eq(queue_open(&queue, owners), 0);
	return queue;
}

static int demand(struct queue *queue, uint32_t slot, uint32_t owner, uint32_t number)
{
	return queue_push_demand(queue, &(struct queue_client){.slot = slot, .number = number, .reserve_slabs = 1000},
				 owner);
}

Test(manager_queue, demands_of_a_client_keep_their_order)
{
	struct queue *queue = open_queue(10);

	demand(queue, 3, 7, 1);
	demand(queue, 3, 2, 1);
	demand(queue, 3, 7, 1); /* a second ask joins */
	cr_assert_eq(queue_next_demand(queue, 3, QUEUE_NONE), 7);
	cr_assert_eq(queue_next_demand(queue, 3, 7), 2);
	cr_assert_eq(queue_next_demand(queue, 3, 2), QUEUE_NONE);
	cr_assert_eq(queue_demand_count(queue), 2);
	cr_assert_not(queue_has_demand(queue, 4));
	queue_close(queue);
}

Test(manager_queue, a_demand_lifts_a_queued_prefetch_and_is_its_starter)
{
	struct queue *queue = open_queue(10);

	cr_assert(queue_push_prefetch(queue, 1, 5));
	demand(queue, 2, 5, 42);
	cr_assert_eq(queue_prefetch_count(queue), 0);
	cr_assert_eq(queue_next_demand(queue, 2, QUEUE_NONE), 5);
	cr_assert_eq(queue_starter(queue, 5), 42);
	cr_assert_eq(queue_first_prefetch(queue), QUEUE_NONE);
	queue_close(queue);
}

Test(manager_queue, demands_of_an_ended_client_stay_in_the_common_list)
{
	struct queue *queue = open_queue(10);

	demand(queue, 1, 3, 9);
	demand(queue, 1, 4, 9);
	demand(queue, CNRE_SESSIONS_MAX, 0, 8);
	cr_assert(queue_push_prefetch(queue, 1, 6));
	queue_forget_slot(queue, 1);
	cr_assert_not(queue_has_demand(queue, 1));
	cr_assert_eq(queue_next_demand(queue, CNRE_SESSIONS_MAX, QUEUE_NONE), 0);
	cr_assert_eq(queue_next_demand(queue, CNRE_SESSIONS_MAX, 0), 3);
	cr_assert_eq(queue_next_demand(queue, CNRE_SESSIONS_MAX, 3), 4);
	cr_assert_eq(queue_next_demand(queue, CNRE_SESSIONS_MAX, 4), QUEUE_NONE);
	cr_assert_eq(queue_prefetch_count(queue), 0);
	queue_remove(queue, 3);
	cr_assert_eq(queue_demand_count(queue), 2);
	queue_close(queue);
}

/* Its client may have ended meanwhile: the starter is the one of the load. */
Test(manager_queue, a_demand_whose_load_came_to_nothing_waits_in_the_common_list)
{
	struct queue *queue = open_queue(10);

	demand(queue, 1, 3, 9);
	queue_remove(queue, 3);
	queue_push_again(queue, 3, 9);
	cr_expect(queue_is_demand(queue, 3));
	cr_expect_eq(queue_next_demand(queue, CNRE_SESSIONS_MAX, QUEUE_NONE), 3);
	cr_expect_eq(queue_starter(queue, 3), 9);
	cr_expect(demand(queue, 2, 3, 8), "who asks again joins it");
	cr_expect_eq(queue_demand_count(queue), 1);
	queue_close(queue);
}

Test(manager_queue, who_was_served_longest_ago_is_first)
{
	struct queue *queue = open_queue(1);
	uint32_t count = 0, last = QUEUE_NONE;

	queue_served(queue, 0);
	queue_served(queue, 2);
	queue_served(queue, 0);
	queue_served(queue, QUEUE_SLOTS - 1);
	cr_expect_eq(queue_next_turn(queue, QUEUE_NONE), 1);
	cr_expect_eq(queue_next_turn(queue, 1), 3);
	cr_expect_eq(queue_next_turn(queue, 2), 0);
	cr_expect_eq(queue_next_turn(queue, 0), QUEUE_SLOTS - 1);
	for (uint32_t slot = queue_next_turn(queue, QUEUE_NONE); slot != QUEUE_NONE; slot = queue_next_turn(queue, slot)) {
		count++;
		last = slot;
	}
	cr_expect_eq(count, QUEUE_SLOTS, "each is there once");
	cr_expect_eq(last, QUEUE_SLOTS - 1);
	queue_close(queue);
}

Test(manager_queue, prefetches_of_a_layer_that_begins_are_dropped)
{
	struct queue *queue = open_queue(20);

	for (uint32_t owner = 4; owner < 12; owner++)
		cr_assert(queue_push_prefetch(queue, 0, owner));
	cr_assert(queue_push_prefetch(queue, 1, 5 + 10));
	cr_assert_eq(queue_drop_prefetches(queue, 0, 6, 3), 3);
	cr_assert_eq(queue_prefetch_count(queue), 6);
	cr_assert_eq(queue_first_prefetch(queue), 4);
	cr_assert_eq(queue_first_prefetch(queue), 15, "the round goes on to the next client");
	queue_close(queue);
}

Test(manager_queue, one_client_cannot_fill_the_prefetch_queue_of_the_others)
{
	struct queue *queue = open_queue(2 * QUEUE_PREFETCHES_PER_CLIENT);
	uint32_t accepted = 0;

	for (uint32_t owner = 0; owner < 2 * QUEUE_PREFETCHES_PER_CLIENT - 1; owner++)
		accepted += (uint32_t)queue_push_prefetch(queue, 0, owner);
	cr_assert_eq(accepted, QUEUE_PREFETCHES_PER_CLIENT);
	cr_assert(queue_push_prefetch(queue, 1, 2 * QUEUE_PREFETCHES_PER_CLIENT - 1));
	queue_remove(queue, 0);
	cr_assert(queue_push_prefetch(queue, 0, QUEUE_PREFETCHES_PER_CLIENT));
	queue_close(queue);
}

/* An owner that a client has queued keeps its place whoever else asks for it, so that list must not be without bound. */
Test(manager_queue, a_client_has_no_more_demands_queued_than_its_reservation_and_a_spare)
{
	const struct queue_client greedy = {.slot = 0, .number = 1, .reserve_slabs = 3},
				  other = {.slot = 1, .number = 2, .reserve_slabs = 1};
	struct queue *queue = open_queue(200);
	uint32_t accepted = 0;

	for (uint32_t owner = 0; owner < 200; owner++)
		accepted += (uint32_t)queue_push_demand(queue, &greedy, owner);
	cr_assert_eq(accepted, 3 + QUEUE_DEMANDS_SPARE);
	cr_assert(queue_push_demand(queue, &greedy, 0), "queued already");
	cr_assert(queue_push_demand(queue, &other, 199));
	queue_remove(queue, 0);
	cr_assert(queue_push_demand(queue, &greedy, 198));
	queue_forget_slot(queue, 0);
	cr_assert_eq(queue_demand_count(queue), accepted + 1);
	cr_assert(queue_push_demand(queue, &greedy, 0), "the next client in this slot begins with nothing");
	queue_close(queue);
}

Test(manager_queue, a_demand_that_is_given_up_goes_on_as_the_prefetch_it_was_asked_for_as)
{
	struct queue *queue = open_queue(10);

	demand(queue, 2, 5, 1);
	demand(queue, 2, 6, 1);
	cr_assert(queue_push_prefetch(queue, 2, 5));
	cr_assert_eq(queue_demand_count(queue), 2, "still a demand first");
	cr_assert_eq(queue_give_up_demand(queue, 5), 1);
	cr_assert_eq(queue_give_up_demand(queue, 6), 0);
	cr_assert_eq(queue_demand_count(queue), 0);
	cr_assert_eq(queue_first_prefetch(queue), 5);
	queue_remove(queue, 5);
	cr_assert_eq(queue_count(queue), 0);
	queue_close(queue);
}

/* Goal: nothing is lost or doubled. Method: random operations beside a plain model of who is where. */
Test(manager_queue, random_operations_conserve_every_owner)
{
	enum { OWNERS = 64, SLOTS = 4 };
	struct queue *queue = open_queue(OWNERS);
	int demanded[OWNERS] = {0};
	unsigned seed = 7;
	uint32_t seen = 0, expected = 0;

	for (int step = 0; step < 20000; step++) {
		uint32_t owner, slot;

		seed = seed * 1103515245u + 12345u;
		owner = seed >> 8 & (OWNERS - 1);
		slot = seed >> 16 & (SLOTS - 1);
		switch (seed >> 24 & 3) {
		case 0:
		case 1:
			demand(queue, slot, owner, 1);
			demanded[owner] = 1;
			break;
		case 2:
			if (demanded[owner])
				queue_remove(queue, owner);
			demanded[owner] = 0;
			break;
		default:
			if ((seed >> 20 & 7) == 0)
				queue_forget_slot(queue, slot);
		}
	}
	for (uint32_t owner = 0; owner < OWNERS; owner++)
		expected += (uint32_t)demanded[owner];
	for (uint32_t slot = 0; slot < QUEUE_SLOTS; slot++)
		for (uint32_t owner = QUEUE_NONE; (owner = queue_next_demand(queue, slot, owner)) != QUEUE_NONE; seen++)
			cr_assert(demanded[owner]);
	cr_assert_eq(seen, expected);
	cr_assert_eq(queue_demand_count(queue), expected);
	queue_close(queue);
}
