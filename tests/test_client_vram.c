/* SPDX-License-Identifier: Apache-2.0 */
/* Experts in the memory of a GPU as a client has them, with an invented manager and an invented driver. */
#include "base/clock.h"
#include "client/vram.h"
#include "shm/access_log.h"
#include "tests/standin/fake_import.h"
#include "tests/support/attached.h"
#include "tests/support/vram_attached.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MS (SECOND_NS / 1000)

TestSuite(client_vram, .init = fake_import_reset, .timeout = 60);

/* ---- a hit ---- */

Test(client_vram, hit_has_device_pointers_and_is_counted_in_its_own_ledger_only)
{
	struct vram_attached a = vram_attached_start(NULL, CNRE_WANT_VRAM);
	struct cnre_expert view;
	struct cnre_stats stats;

	fake_vram_fill(a.fake, 18, 2);
	cr_assert_eq(cnre_acquire_vram(a.client, 1, 2, 0, 0, &view), 0);
	cr_expect(attached_is_right(&view));
	cr_expect(vram_attached_lies_in(&a, &view, 2));
	cr_expect_eq(view.flags, CNRE_IN_VRAM | CNRE_WAS_RESIDENT);
	cr_expect_eq(view.layer, 1);
	cr_expect_eq(view.expert, 2);
	cr_expect_eq(fake_vram_leases(a.fake, 18), 1);
	cr_expect_eq(fake_vram_accesses(a.fake, 18), 1);
	cr_expect_eq(fake_host_accesses(a.host, 18), 0);
	cr_expect_eq(fake_host_leases(a.host, 18), 0);
	stats = attached_stats(a.client);
	cr_expect_eq(stats.requests, 1);
	cr_expect_eq(stats.hits, 1);
	cr_expect_eq(stats.vram_hits, 1);
	cr_expect_eq(stats.leased_bytes, view.bytes);
	cr_expect_eq(cnre_release(a.client, &view), 0);
	cr_expect_eq(view.lease, 0);
	cr_expect_eq(fake_vram_leases(a.fake, 18), 0);
	cr_expect_eq(cnre_release(a.client, &view), 0, "a cleared one is nothing");
	vram_attached_stop(&a);
}

Test(client_vram, log_tells_what_was_wanted_and_which_device_served_it)
{
	struct vram_attached a = vram_attached_start(NULL, CNRE_WANT_VRAM | CNRE_VRAM_OR_RAM);
	struct cnre_access_log_reader reader = {0};
	const _Atomic uint64_t *log = cnre_access_log_of(fake_host_channel(a.host));
	const uint32_t hit = CNRE_LOG_HIT | CNRE_LOG_VRAM_WANTED | CNRE_LOG_VRAM_HIT | FAKE_VRAM_DEVICE << CNRE_LOG_DEVICE_SHIFT;
	const uint32_t in_memory = CNRE_LOG_HIT | CNRE_LOG_VRAM_WANTED | FAKE_VRAM_DEVICE << CNRE_LOG_DEVICE_SHIFT;
	struct cnre_expert view;
	uint64_t entry;

	fake_vram_fill(a.fake, 1, 0);
	fake_host_fill(a.host, 2);
	for (uint32_t expert = 1; expert <= 2; expert++) {
		cr_assert_eq(cnre_acquire_vram(a.client, 0, expert, 0, 0, &view), 0);
		cr_expect_eq(cnre_release(a.client, &view), 0);
	}
	cr_assert_eq(cnre_access_log_next(log, &reader, &entry), 1);
	cr_expect_eq(cnre_log_kind_of(entry), CNRE_LOG_VISIT);
	cr_assert_eq(cnre_access_log_next(log, &reader, &entry), 1);
	cr_expect_eq(cnre_log_argument(entry), hit);
	cr_expect_eq(cnre_log_value(entry), 1);
	cr_assert_eq(cnre_access_log_next(log, &reader, &entry), 1);
	cr_expect_eq(cnre_log_argument(entry), in_memory);
	cr_expect_eq(cnre_access_log_next(log, &reader, &entry), 0);
	vram_attached_stop(&a);
}

Test(client_vram, table_is_asked_for_once_and_arena_opened_once)
{
	struct vram_attached a = vram_attached_start(NULL, CNRE_WANT_VRAM);
	struct cnre_expert view[3];

	for (uint32_t i = 0; i < 3; i++) {
		fake_vram_fill(a.fake, i, 1);
		cr_assert_eq(cnre_acquire_vram(a.client, 0, i, 0, 0, &view[i]), 0);
	}
	cr_expect_eq(fake_vram_opens(a.fake), 1);
	cr_expect_eq(fake_import_opens(), 1);
	cr_expect(fake_vram_is_open(a.fake, 1));
	cr_expect_not(fake_vram_is_open(a.fake, 0));
	for (uint32_t i = 0; i < 3; i++)
		cr_expect_eq(cnre_release(a.client, &view[i]), 0);
	cr_expect_eq(fake_import_open_arenas(), 1, "it stays open for the next hit");
	vram_attached_stop(&a);
	cr_expect_eq(fake_import_open_arenas(), 0);
	cr_expect_eq(fake_import_open_devices(), 0);
}

struct racer {
	struct cnre *client;
	struct cnre_expert view;
	int result;
	pthread_barrier_t *start;
};

static void *race(void *context)
{
	struct racer *racer = context;

	(void)pthread_barrier_wait(racer->start);
	racer->result = cnre_acquire_vram(racer->client, 0, 3, 0, SECOND_NS, &racer->view);
	return NULL;
}

Test(client_vram, two_threads_at_once_open_one_arena)
{
	struct vram_attached a = vram_attached_start(NULL, CNRE_WANT_VRAM);
	pthread_barrier_t start;
	struct racer racer[2];
	pthread_t thread[2];

	fake_vram_fill(a.fake, 3, 0);
	fake_import_slow_arena(20 * MS);
	(void)pthread_barrier_init(&start, NULL, 2);
	for (unsigned i = 0; i < 2; i++) {
		racer[i] = (struct racer){.client = a.client, .start = &start};
		cr_assert_eq(pthread_create(&thread[i], NULL, race, &racer[i]), 0);
	}
	for (unsigned i = 0; i < 2; i++) {
		(void)pthread_join(thread[i], NULL);
		cr_expect_eq(racer[i].result, 0);
		cr_expect(vram_attached_lies_in(&a, &racer[i].view, 0));
	}
	cr_expect_eq(fake_vram_opens(a.fake), 1);
	cr_expect_eq(fake_import_opens(), 1);
	cr_expect_eq(fake_vram_leases(a.fake, 3), 2);
	for (unsigned i = 0; i < 2; i++)
		cr_expect_eq(cnre_release(a.client, &racer[i].view), 0);
	vram_attached_stop(&a);
}

Test(client_vram, exporter_in_this_process_is_not_opened)
{
	struct vram_attached a = vram_attached_start(&(struct fake_vram_setup){.is_local = 1}, CNRE_WANT_VRAM);
	struct cnre_expert view;

	fake_vram_fill(a.fake, 3, 0);
	cr_assert_eq(cnre_acquire_vram(a.client, 0, 3, 0, 0, &view), 0);
	cr_expect(vram_attached_lies_in(&a, &view, 0));
	cr_expect_eq(fake_import_opens(), 0);
	cr_expect(fake_vram_is_open(a.fake, 0), "and is not freed under the client either");
	cr_expect_eq(cnre_release(a.client, &view), 0);
	vram_attached_stop(&a);
}

/* ---- what is not there ---- */

Test(client_vram, copy_in_memory_will_do_where_the_flag_says_so)
{
	struct vram_attached a = vram_attached_start(NULL, CNRE_WANT_VRAM | CNRE_VRAM_OR_RAM);
	struct cnre_expert view;

	cr_assert_eq(cnre_acquire_vram(a.client, 0, 3, 0, -1, &view), 0);
	cr_expect(attached_is_right(&view));
	cr_expect_eq(view.flags, 0, "as cnre_acquire: the miss that started the load");
	cr_expect_eq(fake_vram_accesses(a.fake, 3), 0);
	cr_expect_eq(fake_host_accesses(a.host, 3), 1);
	cr_expect_eq(cnre_release(a.client, &view), 0);
	cr_expect_eq(fake_host_leases(a.host, 3), 0);
	vram_attached_stop(&a);
}

Test(client_vram, without_the_flag_a_poll_times_out_leaves_no_access_and_has_it_read_into_memory)
{
	struct vram_attached a = vram_attached_start(NULL, CNRE_WANT_VRAM);
	struct cnre_expert view = {.lease = 0};

	cr_expect_eq(cnre_acquire_vram(a.client, 0, 3, 0, 0, &view), -ETIMEDOUT);
	cr_expect_eq(view.lease, 0);
	cr_expect_eq(fake_vram_accesses(a.fake, 3), 0);
	cr_expect_eq(fake_vram_leases(a.fake, 3), 0);
	fake_host_await_requests(a.host, CNRE_REQUEST_PREFETCH, 1);
	cr_expect_eq(attached_stats(a.client).requests, 0);
	vram_attached_stop(&a);
}

struct waiter {
	struct cnre *client;
	pthread_t thread;
	struct cnre_expert view;
	int64_t timeout_ns;
	int result;
};

static void *wait_for_it(void *context)
{
	struct waiter *waiter = context;

	waiter->result = cnre_acquire_vram(waiter->client, 0, 3, 0, waiter->timeout_ns, &waiter->view);
	return NULL;
}

Test(client_vram, without_the_flag_it_waits_until_the_manager_has_put_it_there)
{
	struct vram_attached a = vram_attached_start(NULL, CNRE_WANT_VRAM);
	struct waiter waiter = {.client = a.client, .timeout_ns = -1};

	cr_assert_eq(pthread_create(&waiter.thread, NULL, wait_for_it, &waiter), 0);
	fake_host_await_requests(a.host, CNRE_REQUEST_PREFETCH, 1);
	fake_vram_store_state(a.fake, 3, CNRE_STATE_LOADING);
	fake_vram_fill(a.fake, 3, 0);
	(void)pthread_join(waiter.thread, NULL);
	cr_assert_eq(waiter.result, 0);
	cr_expect_eq(waiter.view.flags, CNRE_IN_VRAM);
	cr_expect(vram_attached_lies_in(&a, &waiter.view, 0));
	cr_expect_eq(fake_vram_accesses(a.fake, 3), 1);
	cr_expect_gt(attached_stats(a.client).wait_ns, 0);
	cr_expect_eq(attached_stats(a.client).misses, 0);
	cr_expect_eq(cnre_release(a.client, &waiter.view), 0);
	vram_attached_stop(&a);
}

/* With cookies a lease's name is its access's place in the log, and a copy of an old one names nothing else. */
Test(client_vram, what_was_waited_for_has_a_name_that_no_other_lease_gets)
{
	struct vram_attached a;
	struct waiter waiter = {.timeout_ns = -1};
	struct cnre_expert copy, other;

	(void)setenv("CNRE_CHECK", "1", 1);
	a = vram_attached_start(NULL, CNRE_WANT_VRAM);
	waiter.client = a.client;
	cr_assert_eq(pthread_create(&waiter.thread, NULL, wait_for_it, &waiter), 0);
	fake_host_await_requests(a.host, CNRE_REQUEST_PREFETCH, 1);
	fake_vram_store_state(a.fake, 3, CNRE_STATE_LOADING);
	fake_vram_fill(a.fake, 3, 0);
	(void)pthread_join(waiter.thread, NULL);
	cr_assert_eq(waiter.result, 0);
	copy = waiter.view;
	cr_expect_eq(cnre_release(a.client, &waiter.view), 0);
	fake_vram_fill(a.fake, 4, 0);
	cr_assert_eq(cnre_acquire_vram(a.client, 0, 4, 0, 0, &other), 0);
	cr_expect_eq(cnre_release(a.client, &copy), -EINVAL, "that was another lease");
	cr_expect_eq(fake_vram_leases(a.fake, 4), 1);
	cr_expect_eq(cnre_release(a.client, &other), 0);
	vram_attached_stop(&a);
}

Test(client_vram, what_cannot_be_had_is_enodev_or_the_copy_in_memory)
{
	const uint32_t flags[] = {CNRE_WANT_VRAM, CNRE_WANT_VRAM | CNRE_VRAM_OR_RAM, 0, CNRE_VRAM_OR_RAM};
	const int wanted[] = {-ENODEV, 0, -ENODEV, 0};
	struct cnre_expert view;

	for (unsigned i = 0; i < 4; i++) {
		struct vram_attached a;

		fake_import_reset();
		fake_import_fail_load(-ENODEV);
		a = vram_attached_start(NULL, flags[i]);
		fake_vram_fill(a.fake, 3, 0);
		cr_expect_eq(cnre_acquire_vram(a.client, 0, 3, 0, -1, &view), wanted[i], "no driver, flags %u", flags[i]);
		if (wanted[i] == 0) {
			cr_expect_eq(view.flags & CNRE_IN_VRAM, 0);
			cr_expect_eq(cnre_release(a.client, &view), 0);
		}
		fake_import_fail_load(0);
		fake_import_fail_open(-ENODEV);
		(void)nanosleep(&(struct timespec){.tv_sec = 1}, NULL); /* a refusal is remembered */
		cr_expect_eq(cnre_acquire_vram(a.client, 0, 3, 0, -1, &view), wanted[i], "no context on it, flags %u", flags[i]);
		if (wanted[i] == 0)
			cr_expect_eq(cnre_release(a.client, &view), 0);
		fake_import_fail_open(0);
		cr_expect_eq(cnre_acquire_vram(a.client, 0, 3, 1, -1, &view), i == 3 ? 0 : -ENODEV, "no such device, flags %u", flags[i]);
		if (i == 3)
			cr_expect_eq(cnre_release(a.client, &view), 0);
		cr_expect_eq(cnre_acquire_vram(a.client, 0, 3, -1, -1, &view), -ENODEV);
		cr_expect_eq(cnre_acquire_vram(a.client, 0, 3, 16, -1, &view), -ENODEV);
		cr_expect_eq(cnre_acquire_vram(a.client, 0, 99, 0, -1, &view), -ENOENT);
		cr_expect_eq(cnre_acquire_vram(a.client, 0, 3, 0, -1, NULL), -EINVAL);
		vram_attached_stop(&a);
	}
}

Test(client_vram, manager_that_serves_none_is_not_asked_and_loads_no_driver)
{
	struct vram_attached a = vram_attached_start(NULL, CNRE_WANT_VRAM);
	struct cnre_expert view;

	fake_host_page(a.host)->vram_devices = 0;
	cr_expect_eq(cnre_acquire_vram(a.client, 0, 3, 0, -1, &view), -ENODEV);
	cr_expect_eq(fake_vram_opens(a.fake), 0);
	cr_expect_eq(fake_import_calls(), 0);
	vram_attached_stop(&a);
}

Test(client_vram, refusal_is_eacces_is_not_asked_again_at_once_and_takes_the_capability_away)
{
	struct vram_attached a = vram_attached_start(&(struct fake_vram_setup){.open_status = -EACCES}, CNRE_WANT_VRAM);
	struct cnre_model_info info = {.size = sizeof info};
	struct cnre_expert view;

	cr_assert_eq(cnre_model(a.client, &info), 0);
	cr_expect_neq(info.capabilities & CNRE_CAP_VRAM, 0);
	cr_expect_eq(cnre_acquire_vram(a.client, 0, 3, 0, -1, &view), -EACCES);
	cr_expect_eq(cnre_acquire_vram(a.client, 0, 3, 0, -1, &view), -EACCES);
	cr_expect_eq(fake_vram_opens(a.fake), 1);
	cr_assert_eq(cnre_model(a.client, &info), 0);
	cr_expect_eq(info.capabilities & CNRE_CAP_VRAM, 0);
	vram_attached_stop(&a);
}

Test(client_vram, capability_is_the_managers_now_and_asked_for)
{
	struct vram_attached a = vram_attached_start(NULL, CNRE_WANT_VRAM);
	struct cnre_model_info info = {.size = sizeof info};
	struct cnre *client = a.client;

	cr_assert_eq(cnre_model(client, &info), 0);
	cr_expect_neq(info.capabilities & CNRE_CAP_VRAM, 0);
	fake_host_page(a.host)->vram_devices = 0;
	cr_assert_eq(cnre_model(client, &info), 0);
	cr_expect_eq(info.capabilities & CNRE_CAP_VRAM, 0);
	vram_attached_stop(&a);
	a = vram_attached_start(NULL, 0);
	cr_assert_eq(cnre_model(a.client, &info), 0);
	cr_expect_eq(info.capabilities & CNRE_CAP_VRAM, 0);
	vram_attached_stop(&a);
}

Test(client_vram, manager_is_told_what_it_serves_and_not_what_the_library_does_itself)
{
	struct vram_attached a = vram_attached_start(NULL, CNRE_WANT_VRAM | CNRE_VRAM_OR_RAM);

	cr_expect_eq(fake_host_hello_flags(a.host), CNRE_WANT_VRAM);
	vram_attached_stop(&a);
}

Test(client_vram, residency_says_vram_where_it_is)
{
	struct vram_attached a = vram_attached_start(NULL, CNRE_WANT_VRAM);
	const uint32_t experts[] = {0, 1, 2};
	struct cnre_expert view;
	uint8_t tiers[3];

	fake_host_fill(a.host, 0);
	fake_host_fill(a.host, 1);
	fake_vram_fill(a.fake, 1, 0);
	cr_assert_eq(cnre_resident(a.client, 0, experts, 3, tiers), 0);
	cr_expect_eq(tiers[1], CNRE_RAM, "of a device that nobody has named yet");
	cr_assert_eq(cnre_acquire_vram(a.client, 0, 1, 0, 0, &view), 0);
	cr_assert_eq(cnre_resident(a.client, 0, experts, 3, tiers), 0);
	cr_expect_eq(tiers[0], CNRE_RAM);
	cr_expect_eq(tiers[1], CNRE_VRAM);
	cr_expect_eq(tiers[2], CNRE_ABSENT);
	cr_expect_eq(cnre_release(a.client, &view), 0);
	vram_attached_stop(&a);
}

Test(client_vram, lies_about_the_table_are_refused)
{
	const struct fake_vram_setup lies[] = {
		{.said_objects = 63}, {.said_objects = 65}, {.said_device = 16}, {.said_device = 4}, {.lies_about_uuid = 1}, {.sends_no_pidfd = 1},
	};
	struct cnre_expert view;

	for (unsigned i = 0; i < sizeof lies / sizeof lies[0]; i++) {
		struct vram_attached a = vram_attached_start(&lies[i], CNRE_WANT_VRAM);

		fake_vram_fill(a.fake, 3, 0);
		cr_expect_eq(cnre_acquire_vram(a.client, 0, 3, 0, -1, &view), -EBADMSG, "lie %u", i);
		vram_attached_stop(&a);
	}
}

Test(client_vram, place_outside_of_its_arena_is_refused_and_nothing_is_leased)
{
	struct vram_attached a = vram_attached_start(&(struct fake_vram_setup){.said_arena_bytes = 4096 * 3}, CNRE_WANT_VRAM);
	struct cnre_expert view;

	fake_vram_fill(a.fake, 3, 0);
	cr_expect_eq(cnre_acquire_vram(a.client, 0, 3, 0, -1, &view), -EBADMSG);
	fake_vram_fill(a.fake, 2, CNRE_VRAM_ARENAS_MAX);
	cr_expect_eq(cnre_acquire_vram(a.client, 0, 2, 0, -1, &view), -EBADMSG);
	cr_expect_eq(fake_vram_leases(a.fake, 3) + fake_vram_leases(a.fake, 2), 0);
	cr_expect_eq(fake_vram_accesses(a.fake, 3) + fake_vram_accesses(a.fake, 2), 0);
	vram_attached_stop(&a);
}

/* ---- leases ---- */

Test(client_vram, leases_count_against_a_gauge_of_their_own)
{
	struct vram_attached a = vram_attached_start(NULL, CNRE_WANT_VRAM | CNRE_VRAM_OR_RAM);
	struct cnre_expert in_memory[8], view[8], again, more;

	for (uint32_t i = 0; i < 8; i++) {
		cr_assert_eq(cnre_acquire(a.client, 0, i, -1, &in_memory[i]), 0);
		fake_vram_fill(a.fake, i, 0);
		cr_assert_eq(cnre_acquire_vram(a.client, 0, i, 0, 0, &view[i]), 0);
	}
	fake_vram_fill(a.fake, 8, 0);
	cr_expect_eq(cnre_acquire_vram(a.client, 0, 8, 0, 0, &more), -ENOSPC);
	cr_expect_eq(fake_vram_accesses(a.fake, 8), 0);
	cr_assert_eq(cnre_acquire_vram(a.client, 0, 7, 0, 0, &again), 0, "an object counts once");
	cr_expect_eq(cnre_release(a.client, &again), 0);
	cr_expect_eq(cnre_release(a.client, &view[0]), 0);
	cr_expect_eq(cnre_acquire_vram(a.client, 0, 8, 0, 0, &more), 0);
	cr_expect_eq(cnre_release(a.client, &more), 0);
	for (uint32_t i = 0; i < 8; i++) {
		cr_expect_eq(cnre_release(a.client, &view[i]), 0);
		cr_expect_eq(cnre_release(a.client, &in_memory[i]), 0);
	}
	vram_attached_stop(&a);
}

Test(client_vram, leased_is_not_evicted_and_a_second_release_is_einval)
{
	struct vram_attached a = vram_attached_start(NULL, CNRE_WANT_VRAM);
	struct cnre_expert view, copy;

	fake_vram_fill(a.fake, 3, 0);
	cr_assert_eq(cnre_acquire_vram(a.client, 0, 3, 0, 0, &view), 0);
	copy = view;
	cr_expect_eq(fake_vram_evict(a.fake, 3), 0);
	cr_expect_eq(cnre_release(a.client, &view), 0);
	cr_expect_eq(cnre_release(a.client, &copy), -EINVAL);
	cr_expect_eq(fake_vram_evict(a.fake, 3), 1);
	cr_expect_eq(cnre_acquire_vram(a.client, 0, 3, 0, 0, &view), -ETIMEDOUT);
	vram_attached_stop(&a);
}

/*
 * Without cookies the second release of a copy takes another thread's lease, which may have come no further than the ledger. That
 * is the program's fault; the arena must be usable, and closable, all the same (R5).
 */
Test(client_vram, second_release_between_two_steps_of_another_thread_leaves_the_arena_sound)
{
	struct vram_attached a;
	struct cnre_expert view, copy;
	struct cnre_vram_table *table;

	(void)setenv("CNRE_CHECK", "0", 1);
	a = vram_attached_start(NULL, CNRE_WANT_VRAM);
	fake_vram_fill(a.fake, 3, 0);
	cr_assert_eq(cnre_acquire_vram(a.client, 0, 3, 0, 0, &view), 0);
	copy = view;
	cr_assert_eq(cnre_release(a.client, &view), 0);
	table = cnre_vram_table_find(a.client, 0);
	cr_assert_not_null(table);
	cr_assert_eq(cnre_vram_lease_raise(a.client, table, 3), 0);
	cr_expect_eq(cnre_release(a.client, &copy), 0, "and with it went the other thread's use of the table");
	cr_expect_eq(cnre_acquire_vram(a.client, 0, 3, 0, 0, &view), 0);
	cr_expect_eq(cnre_release(a.client, &view), 0);
	vram_attached_stop(&a);
	cr_expect_eq(fake_import_open_arenas(), 0);
}

Test(client_vram, invented_leases_are_einval)
{
	const uint64_t invented[] = {1ull << 41, 1ull << 41 | 2, 1ull << 41 | 63ull << 35 | 4, 1ull << 41 | 65, UINT64_MAX, 1ull << 42 | 1ull << 41 | 4};
	struct vram_attached a = vram_attached_start(NULL, CNRE_WANT_VRAM);
	struct cnre_expert view;

	fake_vram_fill(a.fake, 3, 0);
	cr_assert_eq(cnre_acquire_vram(a.client, 0, 3, 0, 0, &view), 0);
	for (unsigned i = 0; i < sizeof invented / sizeof invented[0]; i++) {
		struct cnre_expert bad = {.lease = invented[i]};

		cr_expect_eq(cnre_release(a.client, &bad), -EINVAL, "%u", i);
		bad.lease = invented[i];
		cr_expect_eq(cnre_release_on_stream(a.client, &bad, NULL), -EINVAL, "%u on a stream", i);
	}
	cr_expect_eq(fake_vram_leases(a.fake, 3), 1);
	cr_expect_eq(cnre_release(a.client, &view), 0);
	vram_attached_stop(&a);
}

struct reader {
	struct cnre *client;
	_Atomic int is_over;
	uint32_t hits, wrong;
};

static void *read_without_rest(void *context)
{
	struct reader *reader = context;
	struct cnre_expert view;

	while (atomic_load(&reader->is_over) == 0) {
		if (cnre_acquire_vram(reader->client, 0, 3, 0, 0, &view) != 0)
			continue;
		reader->hits++;
		reader->wrong += !attached_is_right(&view);
		(void)cnre_release(reader->client, &view);
	}
	return NULL;
}

Test(client_vram, eviction_between_a_look_and_the_lease_is_seen)
{
	struct vram_attached a = vram_attached_start(NULL, CNRE_WANT_VRAM);
	struct reader reader = {.client = a.client};
	int64_t end_ns;
	pthread_t thread;

	fake_vram_fill(a.fake, 3, 0);
	cr_assert_eq(pthread_create(&thread, NULL, read_without_rest, &reader), 0);
	end_ns = cnre_clock_now_ns() + SECOND_NS;
	while (cnre_clock_now_ns() < end_ns) {
		if (!fake_vram_evict(a.fake, 3))
			continue;
		fake_vram_write(a.fake, 3, 0, 0xdeadbeef);
		fake_vram_write(a.fake, 3, 0, 3);
		fake_vram_fill(a.fake, 3, 0);
	}
	atomic_store(&reader.is_over, 1);
	(void)pthread_join(thread, NULL);
	cr_expect_gt(reader.hits, 0);
	cr_expect_eq(reader.wrong, 0);
	vram_attached_stop(&a);
}

/* ---- arenas that the manager wants back ---- */

Test(client_vram, closing_arena_is_closed_when_its_last_lease_is_back)
{
	struct vram_attached a = vram_attached_start(NULL, CNRE_WANT_VRAM);
	struct cnre_expert view, other;

	fake_vram_fill(a.fake, 3, 0);
	fake_vram_fill(a.fake, 4, 1);
	cr_assert_eq(cnre_acquire_vram(a.client, 0, 3, 0, 0, &view), 0);
	fake_vram_close_arena(a.fake, 0);
	for (unsigned i = 0; i < 2 * CNRE_VRAM_ARENAS_MAX; i++) {
		cr_assert_eq(cnre_acquire_vram(a.client, 0, 4, 0, 0, &other), 0);
		cr_assert_eq(cnre_release(a.client, &other), 0);
	}
	cr_expect(fake_vram_is_open(a.fake, 0), "leased");
	cr_expect(attached_is_right(&view));
	cr_expect_eq(cnre_release(a.client, &view), 0);
	for (unsigned i = 0; i < CNRE_VRAM_ARENAS_MAX && fake_vram_is_open(a.fake, 0); i++) {
		cr_assert_eq(cnre_acquire_vram(a.client, 0, 4, 0, 0, &other), 0);
		cr_assert_eq(cnre_release(a.client, &other), 0);
	}
	cr_expect_not(fake_vram_is_open(a.fake, 0));
	cr_expect_eq(fake_import_open_arenas(), 1);
	vram_attached_stop(&a);
}

Test(client_vram, another_arena_in_the_same_place_is_opened_anew)
{
	struct vram_attached a = vram_attached_start(NULL, CNRE_WANT_VRAM);
	struct cnre_expert view;

	fake_vram_fill(a.fake, 3, 0);
	cr_assert_eq(cnre_acquire_vram(a.client, 0, 3, 0, 0, &view), 0);
	cr_expect_eq(cnre_release(a.client, &view), 0);
	fake_vram_renew_arena(a.fake, 0);
	cr_assert_eq(cnre_acquire_vram(a.client, 0, 3, 0, 0, &view), 0);
	cr_expect(vram_attached_lies_in(&a, &view, 0));
	cr_expect_eq(fake_import_opens(), 2);
	cr_expect_eq(fake_import_open_arenas(), 1);
	cr_expect_eq(cnre_release(a.client, &view), 0);
	vram_attached_stop(&a);
}

Test(client_vram, arena_that_does_not_open_is_not_tried_at_every_call_and_leaves_no_bit)
{
	struct vram_attached a = vram_attached_start(NULL, CNRE_WANT_VRAM);
	struct cnre_expert view;
	uint32_t calls;

	fake_vram_fill(a.fake, 3, 0);
	fake_import_fail_arena(-EIO);
	cr_expect_eq(cnre_acquire_vram(a.client, 0, 3, 0, 0, &view), -EIO);
	calls = fake_import_calls();
	for (unsigned i = 0; i < 100; i++)
		cr_expect_eq(cnre_acquire_vram(a.client, 0, 3, 0, 0, &view), -EIO);
	cr_expect_leq(fake_import_calls(), calls + 1);
	cr_expect_not(fake_vram_is_open(a.fake, 0));
	cr_expect_eq(fake_vram_accesses(a.fake, 3), 0);
	vram_attached_stop(&a);
}
