/* SPDX-License-Identifier: Apache-2.0 */
/* cnre_acquire, cnre_release, cnre_describe and the rules of waiting (R5-R9, R17), against a host that does as told. */
#include "shm/access_log.h"
#include "shm/word.h"
#include "tests/support/attached.h"
#include "tests/support/child.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(client_acquire, .timeout = 30);

static int later(void *context, uint32_t object)
{
	(void)context;
	(void)object;
	return FAKE_HOST_LATER;
}

static int unreadable(void *context, uint32_t object)
{
	(void)context;
	(void)object;
	return -CNRE_LOAD_EIO;
}

static int slow_drive(void *context, uint32_t object)
{
	(void)context;
	(void)object;
	return -CNRE_LOAD_ETIMEDOUT;
}

static const struct fake_host_setup held_back = {.load = later};

Test(client_acquire, miss_loads_once_and_gives_the_bytes)
{
	struct cnre *client;
	struct fake_host *host = attached_start(NULL, &client);
	struct cnre_expert view;
	struct cnre_stats stats;

	cr_assert_eq(cnre_acquire(client, 1, 3, -1, &view), 0);
	cr_expect(attached_is_right(&view));
	cr_expect_eq(view.layer, 1);
	cr_expect_eq(view.expert, 3);
	cr_expect_eq(view.flags, 0, "the miss that started the load");
	cr_expect_eq(view.part[CNRE_UP].rows, 16);
	cr_expect_eq(cnre_release(client, &view), 0);
	cr_expect_eq(fake_host_loads(host, 19), 1);
	stats = attached_stats(client);
	cr_expect_eq(stats.requests, 1);
	cr_expect_eq(stats.misses, 1);
	cr_expect_eq(stats.joins, 0);
	cr_expect_eq(stats.bytes_read, 4096);
	cr_expect_eq(stats.service_ns, 1000);
	cr_expect_gt(stats.wait_ns, 0);
	attached_stop(host, client);
}

Test(client_acquire, hit_needs_nobody)
{
	struct cnre *client;
	struct fake_host *host = attached_start(NULL, &client);
	struct cnre_expert view;
	struct cnre_stats stats;

	fake_host_fill(host, 5);
	fake_host_hang_up(host); /* a hit asks nobody, and stays possible without a manager */
	cr_assert_eq(cnre_acquire(client, 0, 5, 0, &view), 0);
	cr_expect(attached_is_right(&view));
	cr_expect_eq(view.flags, CNRE_WAS_RESIDENT);
	stats = attached_stats(client);
	cr_expect_eq(stats.hits, 1);
	cr_expect_eq(stats.misses, 0);
	cr_expect_eq(stats.leased_bytes, 3 * FAKE_HOST_PART_BYTES);
	cr_expect_eq(cnre_release(client, &view), 0);
	cr_expect_eq(attached_stats(client).leased_bytes, 0);
	attached_stop(host, client);
}

Test(client_acquire, bad_arguments_are_refused_and_outputs_untouched)
{
	struct cnre *client;
	struct fake_host_setup setup = {.dense_layers = 1};
	struct fake_host *host = attached_start(&setup, &client);
	struct cnre_expert view, before;

	memset(&view, 0xa5, sizeof view);
	before = view;
	cr_expect_eq(cnre_acquire(NULL, 1, 0, 0, &view), -EINVAL);
	cr_expect_eq(cnre_acquire(client, 1, 0, 0, NULL), -EINVAL);
	cr_expect_eq(cnre_acquire(client, 4, 0, 0, &view), -ENOENT);
	cr_expect_eq(cnre_acquire(client, 1, EXPERTS, 0, &view), -ENOENT);
	cr_expect_eq(cnre_acquire(client, 0, 0, 0, &view), -ENOENT, "a dense layer");
	cr_expect_eq(cnre_acquire(client, UINT32_MAX, UINT32_MAX, 0, &view), -ENOENT);
	cr_expect_eq(cnre_describe(client, 4, 0, &view), -ENOENT);
	cr_expect_eq(cnre_describe(client, 1, 0, NULL), -EINVAL);
	cr_expect_eq(cnre_release(client, NULL), -EINVAL);
	cr_expect_eq(memcmp(&view, &before, sizeof view), 0);
	attached_stop(host, client);
}

Test(client_acquire, describe_gives_geometry_without_a_lease)
{
	struct cnre *client;
	struct fake_host *host = attached_start(NULL, &client);
	struct cnre_expert view;

	cr_assert_eq(cnre_describe(client, 2, 7, &view), 0);
	cr_expect_eq(view.lease, 0);
	cr_expect_eq(view.layer, 2);
	cr_expect_eq(view.expert, 7);
	cr_expect_eq(view.part[CNRE_DOWN].bytes, FAKE_HOST_PART_BYTES);
	cr_expect_null(view.part[CNRE_DOWN].data);
	cr_expect_eq(attached_stats(client).requests, 0);
	attached_stop(host, client);
}

Test(client_acquire, missed_poll_times_out_but_has_started_the_load)
{
	struct cnre *client;
	struct fake_host *host = attached_start(&held_back, &client);
	struct cnre_expert view, before;

	memset(&view, 0xa5, sizeof view);
	before = view;
	cr_assert_eq(cnre_acquire(client, 0, 1, 0, &view), -ETIMEDOUT);
	cr_expect_eq(memcmp(&view, &before, sizeof view), 0);
	cr_expect_eq(fake_host_leases(host, 1), 0, "the lease was given back");
	fake_host_await_requests(host, CNRE_REQUEST_PREFETCH, 1);
	cr_expect_eq(fake_host_loads(host, 1), 1);
	fake_host_finish(host, 1, CNRE_LOAD_OK);
	cr_expect_eq(cnre_acquire(client, 0, 1, 0, &view), 0);
	cr_expect_eq(cnre_release(client, &view), 0);
	attached_stop(host, client);
}

Test(client_acquire, time_out_gives_the_lease_back)
{
	struct cnre *client;
	struct fake_host *host = attached_start(&held_back, &client);
	struct cnre_expert view;

	cr_expect_eq(cnre_acquire(client, 0, 1, 2000000, &view), -ETIMEDOUT);
	cr_expect_eq(fake_host_leases(host, 1), 0);
	cr_expect_eq(attached_stats(client).leased_bytes, 0);
	attached_stop(host, client);
}

Test(client_acquire, second_release_of_a_copy_takes_no_other_holders_lease)
{
	struct cnre *client;
	struct fake_host *host = attached_start(NULL, &client);
	struct cnre_expert first, second, copy;

	cr_assert_eq(cnre_acquire(client, 0, 1, -1, &first), 0);
	cr_assert_eq(cnre_acquire(client, 0, 1, -1, &second), 0);
	copy = first;
	cr_expect_eq(cnre_release(client, &first), 0);
	cr_expect_eq(first.lease, 0);
	cr_expect_eq(cnre_release(client, &first), 0, "a cleared struct is nothing to release");
	cr_expect_eq(cnre_release(client, &copy), -EINVAL);
	cr_expect_eq(fake_host_leases(host, 1), 1);
	cr_expect_eq(cnre_release(client, &second), 0);
	copy.lease = UINT64_MAX;
	cr_expect_eq(cnre_release(client, &copy), -EINVAL);
	attached_stop(host, client);
}

Test(client_acquire, beyond_the_reservation_is_enospc_at_once)
{
	struct fake_host_setup setup = {.reserve_slabs = 2};
	struct cnre *client;
	struct fake_host *host = attached_start(&setup, &client);
	struct cnre_expert view[3], again;

	cr_assert_eq(cnre_acquire(client, 0, 0, -1, &view[0]), 0);
	cr_assert_eq(cnre_acquire(client, 0, 1, -1, &view[1]), 0);
	cr_expect_eq(cnre_acquire(client, 0, 2, -1, &view[2]), -ENOSPC);
	cr_expect_eq(fake_host_accesses(host, 2), 0, "counted before the ledger");
	cr_expect_eq(cnre_acquire(client, 0, 1, -1, &again), 0, "an object that is held already is not one more");
	cr_expect_eq(cnre_release(client, &again), 0);
	cr_expect_eq(cnre_acquire(client, 0, 2, -1, &view[2]), -ENOSPC, "its first lease still counts");
	cr_expect_eq(cnre_release(client, &view[0]), 0);
	cr_expect_eq(cnre_acquire(client, 0, 2, -1, &view[2]), 0);
	cr_expect_eq(cnre_release(client, &view[1]), 0);
	cr_expect_eq(cnre_release(client, &view[2]), 0);
	attached_stop(host, client);
}

Test(client_acquire, failed_load_reaches_every_waiter_and_is_never_cached)
{
	struct cnre *client;
	struct fake_host *host = attached_start(&held_back, &client);
	struct attached_thread *waiters[4];
	struct cnre_stats stats;

	for (unsigned i = 0; i < 4; i++)
		waiters[i] = attached_acquire_begin(client, 0, 1, -1);
	fake_host_await_misses(host, 0, 4);
	fake_host_await_requests(host, CNRE_REQUEST_LOAD, 1);
	fake_host_finish(host, 1, CNRE_LOAD_EBADMSG);
	for (unsigned i = 0; i < 4; i++)
		cr_expect_eq(attached_acquire_end(waiters[i], NULL), -EBADMSG);
	stats = attached_stats(client);
	cr_expect_eq(stats.misses, 4);
	cr_expect_eq(stats.joins, 3);
	cr_expect_eq(stats.leased_bytes, 0);
	cr_expect_eq(fake_host_loads(host, 1), 1);
	attached_stop(host, client);
}

Test(client_acquire, attempt_after_a_failure_is_a_new_one)
{
	struct fake_host_setup setup = {.load = unreadable};
	struct cnre *client;
	struct fake_host *host = attached_start(&setup, &client);
	struct cnre_expert view;

	cr_expect_eq(cnre_acquire(client, 0, 1, -1, &view), -EIO);
	cr_expect_eq(cnre_acquire(client, 0, 1, -1, &view), -EIO);
	cr_expect_eq(fake_host_loads(host, 1), 2, "the old error was not taken for the new attempt's");
	attached_stop(host, client);
}

Test(client_acquire, time_out_of_a_drive_is_not_the_callers)
{
	struct fake_host_setup setup = {.load = slow_drive};
	struct cnre *client;
	struct fake_host *host = attached_start(&setup, &client);
	struct cnre_expert view;

	cr_expect_eq(cnre_acquire(client, 0, 1, -1, &view), -EIO);
	attached_stop(host, client);
}

Test(client_acquire, eviction_under_a_lease_reverts_and_the_waiter_gets_the_bytes)
{
	struct cnre *client;
	struct fake_host *host = attached_start(NULL, &client);
	struct attached_thread *waiter;
	struct cnre_expert view;

	fake_host_fill(host, 1);
	fake_host_store_state(host, 1, CNRE_STATE_EVICTING);
	waiter = attached_acquire_begin(client, 0, 1, -1);
	fake_host_await_leases(host, 1, 1);
	cr_expect_eq(fake_host_evict(host, 1), 0, "the second look sees the lease");
	cr_assert_eq(attached_acquire_end(waiter, &view), 0);
	cr_expect(attached_is_right(&view));
	cr_expect_eq(fake_host_requests(host, CNRE_REQUEST_LOAD), 0, "EVICTING is waited for, not asked for");
	cr_expect_eq(fake_host_loads(host, 1), 0);
	cr_expect_eq(cnre_release(client, &view), 0);
	attached_stop(host, client);
}

Test(client_acquire, eviction_that_won_is_loaded_again)
{
	struct cnre *client;
	struct fake_host *host = attached_start(NULL, &client);
	struct cnre_expert view;

	fake_host_fill(host, 1);
	cr_assert_eq(fake_host_evict(host, 1), 1);
	cr_assert_eq(cnre_acquire(client, 0, 1, -1, &view), 0);
	cr_expect_eq(fake_host_loads(host, 1), 1);
	cr_expect_eq(fake_host_evict(host, 1), 0);
	cr_expect(attached_is_right(&view));
	cr_expect_eq(cnre_release(client, &view), 0);
	attached_stop(host, client);
}

Test(client_acquire, wake_that_was_missed_costs_a_slice_only)
{
	struct cnre *client;
	struct fake_host *host = attached_start(&held_back, &client);
	struct attached_thread *waiter = attached_acquire_begin(client, 0, 1, 10 * SECOND_NS);
	struct cnre_expert view;

	fake_host_await_requests(host, CNRE_REQUEST_LOAD, 1);
	fake_host_store_state(host, 1, CNRE_STATE_READY); /* as a manager killed between store and wake */
	cr_assert_eq(attached_acquire_end(waiter, &view), 0);
	cr_expect_eq(cnre_release(client, &view), 0);
	attached_stop(host, client);
}

Test(client_acquire, waiter_posts_again_while_the_object_stays_absent)
{
	struct cnre *client;
	struct fake_host *host = attached_start(&held_back, &client);
	struct attached_thread *waiter = attached_acquire_begin(client, 0, 1, -1);

	fake_host_await_requests(host, CNRE_REQUEST_LOAD, 1);
	fake_host_store_state(host, 1, CNRE_STATE_ABSENT); /* as adoption: the same generation, the request forgotten */
	fake_host_await_requests(host, CNRE_REQUEST_LOAD, 2);
	fake_host_finish(host, 1, CNRE_LOAD_OK);
	cr_expect_eq(attached_acquire_end(waiter, NULL), 0);
	attached_stop(host, client);
}

Test(client_acquire, prefetch_on_its_way_is_raised_to_a_demand)
{
	struct cnre *client;
	struct fake_host *host = attached_start(&held_back, &client);
	struct attached_thread *waiter;
	const uint32_t expert = 1;
	struct cnre_expert view;

	cr_assert_eq(cnre_prefetch(client, 0, &expert, 1), 1);
	fake_host_await_requests(host, CNRE_REQUEST_PREFETCH, 1);
	waiter = attached_acquire_begin(client, 0, 1, -1);
	fake_host_await_requests(host, CNRE_REQUEST_LOAD, 1);
	fake_host_finish(host, 1, CNRE_LOAD_OK);
	cr_assert_eq(attached_acquire_end(waiter, &view), 0);
	cr_expect_eq(view.flags, CNRE_JOINED);
	cr_expect_eq(attached_stats(client).prefetch_hits, 1);
	attached_stop(host, client);
}

Test(client_acquire, hang_up_ends_a_wait_with_epipe)
{
	struct cnre *client;
	struct fake_host *host = attached_start(&held_back, &client);
	struct attached_thread *waiter = attached_acquire_begin(client, 0, 1, -1);
	struct cnre_expert view;

	fake_host_await_requests(host, CNRE_REQUEST_LOAD, 1);
	fake_host_hang_up(host);
	cr_expect_eq(attached_acquire_end(waiter, NULL), -EPIPE);
	cr_expect_eq(attached_stats(client).leased_bytes, 0);
	cr_expect_eq(cnre_acquire(client, 0, 2, 0, &view), -EPIPE);
	cr_expect_eq(cnre_acquire(client, 0, 2, -1, &view), -EPIPE);
	attached_stop(host, client);
}

Test(client_acquire, full_slots_turn_into_a_scan_of_the_ledger)
{
	struct fake_host_setup setup = {.load = later, .layer_count = 8, .reserve_slabs = 100};
	struct cnre *client;
	struct fake_host *host = attached_start(&setup, &client);
	struct attached_thread *waiter;
	struct cnre_channel *channel = fake_host_channel(host);

	/* As if 64 threads had stopped between claim and submission. */
	for (unsigned i = 0; i < CNRE_SLOTS; i++)
		atomic_store_explicit(&channel->slot[i].state, CNRE_SLOT_CLAIMED, memory_order_relaxed);
	waiter = attached_acquire_begin(client, 0, 1, -1);
	while (fake_host_loads(host, 1) == 0)
		(void)sched_yield();
	fake_host_finish(host, 1, CNRE_LOAD_OK);
	cr_expect_eq(attached_acquire_end(waiter, NULL), 0);
	cr_expect_eq(fake_host_requests(host, CNRE_REQUEST_LOAD), 0);
	attached_stop(host, client);
}

/* ---- the access log ---- */

Test(client_acquire, consecutive_acquires_in_a_layer_log_one_visit)
{
	static const struct {
		enum cnre_log_kind kind;
		uint32_t argument, value;
	} expected[] = {
		{CNRE_LOG_VISIT, 1, 0}, {CNRE_LOG_ACCESS, 0, 1},  {CNRE_LOG_ACCESS, 1, 1},
		{CNRE_LOG_VISIT, 1, 2}, {CNRE_LOG_ACCESS, 0, 33}, {CNRE_LOG_TOKEN_END, 0, 7},
	};
	static const uint32_t asked[][2] = {{0, 1}, {0, 1}, {2, 1}};
	struct cnre *client;
	struct fake_host *host = attached_start(NULL, &client);
	struct cnre_access_log_reader reader = {0};
	struct cnre_expert view;
	uint64_t entry;

	for (unsigned i = 0; i < 3; i++) {
		cr_assert_eq(cnre_acquire(client, asked[i][0], asked[i][1], -1, &view), 0);
		cr_assert_eq(cnre_release(client, &view), 0);
	}
	cnre_token_end(client, 7);
	for (unsigned i = 0; i < sizeof expected / sizeof expected[0]; i++) {
		cr_assert_eq(cnre_access_log_next(cnre_access_log_of(fake_host_channel(host)), &reader, &entry), 1);
		cr_expect_eq(cnre_log_kind_of(entry), expected[i].kind, "entry %u", i);
		cr_expect_eq(cnre_log_argument(entry), expected[i].argument, "entry %u", i);
		cr_expect_eq(cnre_log_value(entry), expected[i].value, "entry %u", i);
	}
	cr_expect_eq(cnre_access_log_next(cnre_access_log_of(fake_host_channel(host)), &reader, &entry), 0);
	attached_stop(host, client);
}

/* ---- three processes with eight threads want one cold expert ---- */

struct crowd {
	char socket[96];
	int start[2];  /* a child goes when it reads a byte */
	int report[2]; /* where it writes its joins */
};

static void *acquire_and_release(void *client)
{
	struct cnre_expert view;
	int r = cnre_acquire(client, 0, 1, -1, &view);

	if (r == 0 && !attached_is_right(&view))
		r = -EBADMSG;
	if (r == 0)
		r = cnre_release(client, &view);
	return (void *)(uintptr_t)-r;
}

static int run_crowd(void *context)
{
	struct crowd *crowd = context;
	struct cnre *client;
	pthread_t thread[8];
	char go;
	int bad = read(crowd->start[0], &go, 1) != 1 || attached_again(crowd->socket, &client) != 0;
	uint64_t joins;

	for (unsigned i = 0; i < 8 && !bad; i++)
		bad = pthread_create(&thread[i], NULL, acquire_and_release, client) != 0;
	for (unsigned i = 0; i < 8 && !bad; i++) {
		void *result;

		if (pthread_join(thread[i], &result) != 0 || result != NULL)
			return 10 + (int)(uintptr_t)result;
	}
	if (bad)
		return 1;
	joins = attached_stats(client).joins;
	cnre_detach(client);
	return write(crowd->report[1], &joins, sizeof joins) == sizeof joins ? 0 : 2;
}

/*
 * Goal: one read for 24 waiters, 23 joins. Method: the load ends only when every lease is up and was looked at. The
 * children are forked before the host has threads: a sanitizer's allocator does not survive a fork beside them.
 */
Test(client_acquire, twenty_four_waiters_are_one_load_and_twenty_three_joins)
{
	char directory[] = "/tmp/cnre-test-XXXXXX";
	struct fake_host_setup setup = {.load = later};
	struct fake_host *host;
	struct crowd crowd;
	pid_t child[3];
	uint64_t joins, sum = 0;

	cr_assert_not_null(mkdtemp(directory));
	(void)snprintf(crowd.socket, sizeof crowd.socket, "%s/fake.sock", directory);
	setup.socket = crowd.socket;
	cr_assert(pipe(crowd.start) == 0 && pipe(crowd.report) == 0);
	for (unsigned i = 0; i < 3; i++)
		child[i] = child_start(run_crowd, &crowd);
	host = fake_host_start(&setup);
	cr_assert_eq(write(crowd.start[1], "123", 3), 3);
	fake_host_await_misses(host, 0, 24);
	fake_host_await_requests(host, CNRE_REQUEST_LOAD, 1);
	fake_host_finish(host, 1, CNRE_LOAD_OK);
	for (unsigned i = 0; i < 3; i++) {
		int status = child_wait(child[i]);

		cr_assert_eq(status, 0, "child %u ended with %d", i, status);
		cr_assert_eq(read(crowd.report[0], &joins, sizeof joins), sizeof joins);
		sum += joins;
	}
	cr_expect_eq(fake_host_loads(host, 1), 1);
	cr_expect_eq(sum, 23);
	fake_host_stop(host);
	(void)rmdir(directory);
}
