/* SPDX-License-Identifier: Apache-2.0 */
/* cnre_prefetch and cnre_resident. */
#include "tests/support/attached.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

TestSuite(client_prefetch, .timeout = 30);

static int later(void *context, uint32_t object)
{
	(void)context;
	(void)object;
	return FAKE_HOST_LATER;
}

Test(client_prefetch, absent_ones_are_accepted_and_hold_no_lease)
{
	static const uint32_t experts[] = {1, 2, 3};
	struct cnre *client;
	struct fake_host *host = attached_start(NULL, &client);
	struct cnre_expert view;

	fake_host_fill(host, 2);
	cr_expect_eq(cnre_prefetch(client, 0, experts, 3), 2);
	fake_host_await_requests(host, CNRE_REQUEST_PREFETCH, 1);
	cr_expect_eq(fake_host_loads(host, 1), 1);
	cr_expect_eq(fake_host_loads(host, 2), 0);
	cr_expect_eq(fake_host_leases(host, 1), 0);
	cr_expect_eq(fake_host_accesses(host, 1), 0);
	cr_expect_eq(attached_stats(client).prefetched, 2);
	cr_expect_eq(attached_stats(client).prefetch_hits, 0);
	cr_assert_eq(cnre_acquire(client, 0, 1, -1, &view), 0);
	cr_expect_eq(view.flags, CNRE_WAS_RESIDENT);
	cr_assert_eq(cnre_release(client, &view), 0);
	cr_expect_eq(attached_stats(client).prefetch_hits, 1);
	attached_stop(host, client);
}

Test(client_prefetch, used_prefetch_stays_counted_when_prefetched_again)
{
	const uint32_t expert = 1;
	struct cnre *client;
	struct fake_host *host = attached_start(NULL, &client);
	struct cnre_expert view;

	for (uint32_t round = 1; round <= 3; round++) {
		cr_assert_eq(cnre_prefetch(client, 0, &expert, 1), 1);
		cr_assert_eq(cnre_acquire(client, 0, 1, -1, &view), 0);
		cr_assert_eq(cnre_release(client, &view), 0);
		cr_expect_eq(attached_stats(client).prefetch_hits, round);
		cr_assert_eq(fake_host_evict(host, 1), 1);
	}
	attached_stop(host, client);
}

Test(client_prefetch, more_than_the_slots_hold_is_accepted_in_part)
{
	static uint32_t experts[4096];
	struct fake_host_setup setup = {.layer_count = 1, .expert_count = 4096};
	struct cnre *client;
	struct fake_host *host = attached_start(&setup, &client);
	struct cnre_channel *channel = fake_host_channel(host);
	int r;

	for (uint32_t i = 0; i < 4096; i++)
		experts[i] = i;
	/* Two slots are left: a thread that is stopped between claim and submission keeps the others. */
	for (unsigned i = 0; i < CNRE_SLOTS - 2; i++)
		atomic_store_explicit(&channel->slot[i].state, CNRE_SLOT_CLAIMED, memory_order_relaxed);
	r = cnre_prefetch(client, 0, experts, 4096);
	cr_expect_geq(r, (int)(2 * CNRE_SLOT_OBJECTS));
	cr_expect_eq(r % (int)CNRE_SLOT_OBJECTS == 0 || r == 4096, 1);
	cr_expect_eq(attached_stats(client).prefetched, (uint64_t)r, "what was not accepted is not counted");
	attached_stop(host, client);
}

Test(client_prefetch, bad_arguments_are_refused_and_nothing_is_asked_for)
{
	static const uint32_t experts[] = {1, EXPERTS};
	struct cnre *client;
	struct fake_host *host = attached_start(NULL, &client);
	uint8_t tiers[2] = {9, 9};

	cr_expect_eq(cnre_prefetch(client, 0, experts, 2), -ENOENT);
	cr_expect_eq(cnre_prefetch(client, 9, experts, 1), -ENOENT);
	cr_expect_eq(cnre_prefetch(client, 0, NULL, 1), -EINVAL);
	cr_expect_eq(cnre_prefetch(NULL, 0, experts, 1), -EINVAL);
	cr_expect_eq(cnre_prefetch(client, 0, NULL, 0), 0);
	cr_expect_eq(cnre_resident(client, 0, experts, 2, tiers), -ENOENT);
	cr_expect_eq(cnre_resident(client, 0, experts, 1, NULL), -EINVAL);
	cr_expect_eq(tiers[0], 9);
	cr_expect_eq(fake_host_requests(host, CNRE_REQUEST_PREFETCH), 0);
	attached_stop(host, client);
}

Test(client_prefetch, resident_tells_each_state_and_takes_no_lease)
{
	static const uint32_t experts[] = {0, 1, 2, 3};
	static const uint8_t expected[] = {CNRE_ABSENT, CNRE_LOADING, CNRE_RAM, CNRE_ABSENT};
	struct fake_host_setup setup = {.load = later};
	struct cnre *client;
	struct fake_host *host = attached_start(&setup, &client);
	uint8_t tiers[4];

	fake_host_store_state(host, 1, CNRE_STATE_LOADING);
	fake_host_fill(host, 2);
	fake_host_store_state(host, 3, CNRE_STATE_EVICTING);
	cr_assert_eq(cnre_resident(client, 0, experts, 4, tiers), 0);
	cr_expect_eq(memcmp(tiers, expected, sizeof tiers), 0);
	cr_expect_eq(fake_host_accesses(host, 2), 0);
	fake_host_store_state(host, 3, CNRE_STATE_ABSENT);
	attached_stop(host, client);
}
