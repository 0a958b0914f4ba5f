/* SPDX-License-Identifier: Apache-2.0 */
/* Batches: admission whole and first come first served, the caller's order, arrival order, failure of one expert. */
#include "tests/support/attached.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>

TestSuite(client_batch, .timeout = 30);

static int later(void *context, uint32_t object)
{
	(void)context;
	(void)object;
	return FAKE_HOST_LATER;
}

static int fails_two(void *context, uint32_t object)
{
	(void)context;
	return object == 2 ? -CNRE_LOAD_EIO : 0;
}

static const struct fake_host_setup held_back = {.load = later};

static struct cnre_batch *begin(struct cnre *client, const uint32_t *experts, uint32_t count)
{
	struct cnre_batch *batch = NULL;

	cr_assert_eq(cnre_batch_begin(client, 0, experts, count, 1, &batch), 0);
	return batch;
}

Test(client_batch, everything_is_asked_for_at_begin_in_one_request)
{
	static const uint32_t experts[] = {3, 1, 2};
	struct cnre *client;
	struct fake_host *host = attached_start(&held_back, &client);
	struct cnre_batch *batch = begin(client, experts, 3);
	struct cnre_expert view;

	fake_host_await_requests(host, CNRE_REQUEST_LOAD, 1);
	for (unsigned i = 0; i < 3; i++)
		cr_expect_eq(fake_host_loads(host, experts[i]), 1);
	cr_expect_eq(cnre_batch_wait(batch, 0, 0, &view), -ETIMEDOUT);
	for (unsigned i = 0; i < 3; i++)
		fake_host_finish(host, experts[i], CNRE_LOAD_OK);
	for (unsigned i = 0; i < 3; i++) {
		cr_assert_eq(cnre_batch_wait(batch, i, -1, &view), 0);
		cr_expect_eq(view.expert, experts[i]);
		cr_expect_eq(view.index, i);
		cr_expect(attached_is_right(&view));
		cr_expect_eq(cnre_release(client, &view), 0);
	}
	cr_expect_eq(cnre_batch_end(batch), 0);
	cr_expect_eq(fake_host_requests(host, CNRE_REQUEST_LOAD), 1);
	cr_expect_eq(attached_stats(client).misses, 3);
	attached_stop(host, client);
}

Test(client_batch, index_can_be_taken_once)
{
	static const uint32_t experts[] = {1, 2};
	struct cnre *client;
	struct fake_host *host = attached_start(NULL, &client);
	struct cnre_batch *batch = begin(client, experts, 2);
	struct cnre_expert view, before;

	cr_assert_eq(cnre_batch_wait(batch, 1, -1, &view), 0);
	before = view;
	cr_expect_eq(cnre_batch_wait(batch, 1, -1, &view), -EINVAL);
	cr_expect_eq(cnre_batch_wait(batch, 2, -1, &view), -EINVAL);
	cr_expect_eq(cnre_batch_wait(NULL, 0, -1, &view), -EINVAL);
	cr_expect_eq(cnre_batch_wait(batch, 0, -1, NULL), -EINVAL);
	cr_expect_eq(memcmp(&view, &before, sizeof view), 0);
	cr_expect_eq(cnre_batch_end(batch), 0);
	cr_expect_eq(fake_host_leases(host, 1), 0, "what was not taken is released by end");
	cr_expect_eq(fake_host_leases(host, 2), 1, "what was taken is not");
	cr_expect_eq(cnre_release(client, &view), 0);
	attached_stop(host, client);
}

Test(client_batch, begin_refuses_what_can_never_be)
{
	static const uint32_t experts[] = {0, 1, 2, EXPERTS};
	struct fake_host_setup setup = {.reserve_slabs = 2};
	struct cnre *client;
	struct fake_host *host = attached_start(&setup, &client);
	struct cnre_batch *batch = (void *)1;

	cr_expect_eq(cnre_batch_begin(client, 0, experts, 3, 1, &batch), -ENOSPC);
	cr_expect_eq(cnre_batch_begin(client, 0, experts + 2, 2, 1, &batch), -ENOENT);
	cr_expect_eq(cnre_batch_begin(client, 9, experts, 1, 1, &batch), -ENOENT);
	cr_expect_eq(cnre_batch_begin(client, 0, NULL, 1, 1, &batch), -EINVAL);
	cr_expect_eq(cnre_batch_begin(client, 0, experts, 1, 1, NULL), -EINVAL);
	cr_expect_eq(cnre_batch_begin(NULL, 0, experts, 1, 1, &batch), -EINVAL);
	cr_expect_eq(batch, (void *)1);
	cr_expect_eq(fake_host_accesses(host, 0), 0);
	attached_stop(host, client);
}

Test(client_batch, duplicates_have_a_lease_each_and_count_once)
{
	static const uint32_t experts[] = {5, 5, 6, 5};
	struct fake_host_setup setup = {.reserve_slabs = 2};
	struct cnre *client;
	struct fake_host *host = attached_start(&setup, &client);
	struct cnre_batch *batch = begin(client, experts, 4);
	struct cnre_expert view[4], more;

	for (unsigned i = 0; i < 4; i++)
		cr_assert_eq(cnre_batch_wait(batch, i, -1, &view[i]), 0);
	cr_expect_eq(cnre_batch_end(batch), 0);
	cr_expect_eq(fake_host_leases(host, 5), 3);
	cr_expect_eq(fake_host_loads(host, 5), 1);
	cr_expect_eq(cnre_acquire(client, 0, 7, -1, &more), -ENOSPC);
	cr_expect_eq(cnre_release(client, &view[0]), 0);
	cr_expect_eq(cnre_release(client, &view[1]), 0);
	cr_expect_eq(cnre_acquire(client, 0, 7, -1, &more), -ENOSPC, "one lease of 5 is left");
	cr_expect_eq(cnre_release(client, &view[3]), 0);
	cr_expect_eq(cnre_acquire(client, 0, 7, -1, &more), 0);
	cr_expect_eq(cnre_release(client, &more), 0);
	cr_expect_eq(cnre_release(client, &view[2]), 0);
	attached_stop(host, client);
}

Test(client_batch, next_gives_what_arrived_and_ends_with_zero)
{
	static const uint32_t experts[] = {1, 2, 3};
	struct cnre *client;
	struct fake_host *host = attached_start(&held_back, &client);
	struct cnre_batch *batch = begin(client, experts, 3);
	struct cnre_expert view;

	fake_host_await_requests(host, CNRE_REQUEST_LOAD, 1);
	cr_expect_eq(cnre_batch_next(batch, 0, &view), -ETIMEDOUT);
	fake_host_finish(host, 3, CNRE_LOAD_OK);
	cr_assert_eq(cnre_batch_next(batch, -1, &view), 1);
	cr_expect_eq(view.expert, 3);
	cr_expect_eq(view.index, 2);
	cr_expect_eq(cnre_release(client, &view), 0);
	fake_host_finish(host, 1, CNRE_LOAD_OK);
	fake_host_finish(host, 2, CNRE_LOAD_OK);
	for (unsigned i = 0; i < 2; i++) {
		cr_assert_eq(cnre_batch_next(batch, -1, &view), 1);
		cr_expect_eq(cnre_release(client, &view), 0);
	}
	cr_expect_eq(cnre_batch_next(batch, -1, &view), 0);
	cr_expect_eq(cnre_batch_end(batch), 0);
	attached_stop(host, client);
}

Test(client_batch, empty_batch_is_done_at_once)
{
	struct cnre *client;
	struct fake_host *host = attached_start(NULL, &client);
	struct cnre_batch *batch = begin(client, NULL, 0);
	struct cnre_expert view;

	cr_expect_eq(cnre_batch_next(batch, -1, &view), 0);
	cr_expect_eq(cnre_batch_end(batch), 0);
	cr_expect_eq(cnre_batch_end(NULL), 0);
	attached_stop(host, client);
}

static void *take_next(void *context)
{
	struct cnre_expert view;
	int r = cnre_batch_next(context, -1, &view);

	return r == 1 ? (void *)(uintptr_t)(view.expert + 1) : NULL;
}

Test(client_batch, next_wakes_for_any_of_its_experts)
{
	static const uint32_t experts[] = {1, 2, 3};
	struct cnre *client;
	struct fake_host *host = attached_start(&held_back, &client);
	struct cnre_batch *batch = begin(client, experts, 3);
	pthread_t thread;
	void *expert;

	fake_host_await_requests(host, CNRE_REQUEST_LOAD, 1);
	cr_assert_eq(pthread_create(&thread, NULL, take_next, batch), 0);
	fake_host_finish(host, 2, CNRE_LOAD_OK);
	cr_assert_eq(pthread_join(thread, &expert), 0);
	cr_expect_eq((uintptr_t)expert, 3);
	cr_expect_eq(cnre_batch_end(batch), 0);
	attached_stop(host, client);
}

Test(client_batch, failed_expert_is_named_and_the_others_go_on)
{
	static const uint32_t experts[] = {1, 2, 3};
	struct fake_host_setup setup = {.load = fails_two};
	struct cnre *client;
	struct fake_host *host = attached_start(&setup, &client);
	struct cnre_batch *batch = begin(client, experts, 3);
	struct cnre_expert view;

	memset(&view, 0xa5, sizeof view);
	cr_assert_eq(cnre_batch_wait(batch, 1, -1, &view), -EIO);
	cr_expect_eq(view.lease, 0);
	cr_expect_eq(view.layer, 0);
	cr_expect_eq(view.expert, 2);
	cr_expect_eq(view.index, 1);
	cr_expect_eq(fake_host_leases(host, 2), 0);
	cr_expect_eq(cnre_batch_wait(batch, 1, -1, &view), -EINVAL, "it was answered");
	cr_assert_eq(cnre_batch_wait(batch, 2, -1, &view), 0);
	cr_expect_eq(cnre_release(client, &view), 0);
	cr_expect_eq(cnre_batch_end(batch), 0);
	cr_expect_eq(fake_host_leases(host, 1), 0);
	attached_stop(host, client);
}

/* ---- admission ---- */

Test(client_batch, batch_that_does_not_fit_now_waits_for_its_turn)
{
	static const uint32_t first_experts[] = {0, 1, 2}, second_experts[] = {3, 4}, third_experts[] = {5};
	struct fake_host_setup setup = {.reserve_slabs = 4};
	struct cnre *client;
	struct fake_host *host = attached_start(&setup, &client);
	struct cnre_batch *first = begin(client, first_experts, 3);
	struct cnre_batch *second = begin(client, second_experts, 2);
	struct cnre_batch *third = begin(client, third_experts, 1);
	struct cnre_expert view;

	cr_expect_eq(fake_host_accesses(host, 3), 0, "whole or not at all");
	cr_expect_eq(fake_host_accesses(host, 5), 0, "it would fit, but it is not its turn");
	cr_expect_eq(cnre_batch_wait(third, 0, 1000000, &view), -ETIMEDOUT);
	cr_assert_eq(cnre_batch_wait(first, 0, -1, &view), 0);
	cr_expect_eq(cnre_release(client, &view), 0);
	cr_expect_eq(fake_host_accesses(host, 3), 1, "the release admitted it");
	cr_expect_eq(fake_host_accesses(host, 5), 0);
	cr_expect_eq(cnre_batch_end(first), 0);
	cr_expect_eq(fake_host_accesses(host, 5), 1);
	cr_assert_eq(cnre_batch_wait(third, 0, -1, &view), 0);
	cr_expect_eq(cnre_release(client, &view), 0);
	cr_expect_eq(cnre_batch_end(second), 0);
	cr_expect_eq(cnre_batch_end(third), 0);
	cr_expect_eq(attached_stats(client).leased_bytes, 0);
	attached_stop(host, client);
}

Test(client_batch, waiting_batch_that_is_given_up_lets_the_next_pass)
{
	static const uint32_t experts[] = {0, 1, 2, 3};
	struct fake_host_setup setup = {.reserve_slabs = 4};
	struct cnre *client;
	struct fake_host *host = attached_start(&setup, &client);
	struct cnre_batch *first = begin(client, experts, 3);
	struct cnre_batch *second = begin(client, experts, 4);
	struct cnre_batch *third = begin(client, experts + 3, 1);

	cr_expect_eq(fake_host_accesses(host, 3), 0);
	cr_expect_eq(cnre_batch_end(second), 0);
	cr_expect_eq(fake_host_accesses(host, 3), 1);
	cr_expect_eq(cnre_batch_end(third), 0);
	cr_expect_eq(cnre_batch_end(first), 0);
	cr_expect_eq(attached_stats(client).leased_bytes, 0);
	attached_stop(host, client);
}

struct worker {
	struct cnre *client;
	unsigned seed;
};

static void *run_batches(void *context)
{
	struct worker *worker = context;

	for (unsigned round = 0; round < 200; round++) {
		uint32_t experts[3] = {(worker->seed + round) % EXPERTS, (worker->seed + 2 * round) % EXPERTS, 7};
		struct cnre_batch *batch;
		struct cnre_expert view;

		if (cnre_batch_begin(worker->client, round % 4, experts, 3, 1, &batch) != 0)
			return worker;
		for (uint32_t i = 0; i < 3; i++)
			if (cnre_batch_wait(batch, i, -1, &view) != 0 || !attached_is_right(&view) ||
			    cnre_release(worker->client, &view) != 0)
				return worker;
		if (cnre_batch_end(batch) != 0)
			return worker;
	}
	return NULL;
}

/* Goal: no batch waits for ever, nothing stays counted. Method: six threads share a reservation that fits one. */
Test(client_batch, threads_that_share_a_small_reservation_all_finish)
{
	struct fake_host_setup setup = {.reserve_slabs = 4};
	struct cnre *client;
	struct fake_host *host = attached_start(&setup, &client);
	struct worker worker[6];
	pthread_t thread[6];

	for (unsigned i = 0; i < 6; i++) {
		worker[i] = (struct worker){client, i * 5};
		cr_assert_eq(pthread_create(&thread[i], NULL, run_batches, &worker[i]), 0);
	}
	for (unsigned i = 0; i < 6; i++) {
		void *result;

		cr_assert_eq(pthread_join(thread[i], &result), 0);
		cr_expect_null(result);
	}
	cr_expect_eq(attached_stats(client).leased_bytes, 0);
	cr_expect_eq(attached_stats(client).requests, 6 * 200 * 3);
	cnre_detach(client);
	cr_expect_eq(fake_host_detaches(host), 1, "nothing was counted as held");
	fake_host_stop(host);
}
