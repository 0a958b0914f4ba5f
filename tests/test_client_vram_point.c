/* SPDX-License-Identifier: Apache-2.0 */
/* Leases that end when a stream has passed a point. */
#include "base/clock.h"
#include "client/vram.h"
#include "tests/standin/fake_import.h"
#include "tests/support/attached.h"
#include "tests/support/vram_attached.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define A_STREAM 4u       /* even: of device 0 */
#define ANOTHER_STREAM 6u
#define OF_DEVICE_1 5u

TestSuite(client_vram_point, .init = fake_import_reset, .timeout = 60);

static struct cnre_expert leased(struct vram_attached *a, uint32_t expert)
{
	struct cnre_expert view;

	fake_vram_fill(a->fake, expert, 0);
	cr_assert_eq(cnre_acquire_vram(a->client, 0, expert, 0, 0, &view), 0);
	return view;
}

static void await_leases(struct vram_attached *a, uint32_t object, uint32_t count)
{
	while (fake_vram_leases(a->fake, object) != count)
		(void)sched_yield(); /* the suite's time-out ends it */
}

static const struct timespec a_while = {.tv_nsec = 20000000}; /* longer than any look's pause */

Test(client_vram_point, lease_goes_down_when_the_stream_has_passed_and_not_before)
{
	struct vram_attached a = vram_attached_start(NULL, CNRE_WANT_VRAM);
	struct cnre_expert view = leased(&a, 3);

	fake_import_set_stream(A_STREAM, FAKE_STREAM_HANGS);
	cr_assert_eq(cnre_release_on_stream(a.client, &view, fake_import_stream(A_STREAM)), 0);
	cr_expect_eq(view.lease, 0);
	cr_expect_eq(cnre_release_on_stream(a.client, &view, fake_import_stream(A_STREAM)), 0, "nothing to release");
	(void)nanosleep(&a_while, NULL);
	cr_expect_eq(fake_vram_leases(a.fake, 3), 1);
	cr_expect_eq(fake_vram_evict(a.fake, 3), 0);
	fake_import_set_stream(A_STREAM, FAKE_STREAM_PASSES);
	await_leases(&a, 3, 0);
	cr_expect_eq(fake_vram_evict(a.fake, 3), 1);
	vram_attached_stop(&a);
	cr_expect_eq(fake_import_points(), 0);
}

Test(client_vram_point, stream_that_fails_gives_its_leases_back)
{
	struct vram_attached a = vram_attached_start(NULL, CNRE_WANT_VRAM);
	struct cnre_expert view = leased(&a, 3);

	fake_import_set_stream(A_STREAM, FAKE_STREAM_FAILS);
	cr_assert_eq(cnre_release_on_stream(a.client, &view, fake_import_stream(A_STREAM)), 0);
	await_leases(&a, 3, 0);
	vram_attached_stop(&a);
}

Test(client_vram_point, stream_that_hangs_holds_up_no_other)
{
	struct vram_attached a = vram_attached_start(NULL, CNRE_WANT_VRAM);
	struct cnre_expert hung = leased(&a, 3);

	fake_import_set_stream(A_STREAM, FAKE_STREAM_HANGS);
	cr_assert_eq(cnre_release_on_stream(a.client, &hung, fake_import_stream(A_STREAM)), 0);
	for (uint32_t i = 0; i < 50; i++) {
		struct cnre_expert view = leased(&a, 4);

		cr_assert_eq(cnre_release_on_stream(a.client, &view, fake_import_stream(ANOTHER_STREAM)), 0);
		await_leases(&a, 4, 0);
	}
	cr_expect_eq(fake_vram_leases(a.fake, 3), 1);
	fake_import_set_stream(A_STREAM, FAKE_STREAM_PASSES);
	vram_attached_stop(&a);
}

Test(client_vram_point, lease_of_memory_is_taken_too)
{
	struct vram_attached a = vram_attached_start(NULL, CNRE_WANT_VRAM | CNRE_VRAM_OR_RAM);
	struct cnre_expert view;

	cr_assert_eq(cnre_acquire_vram(a.client, 0, 3, 0, -1, &view), 0);
	cr_assert_eq(view.flags & CNRE_IN_VRAM, 0);
	fake_import_set_stream(A_STREAM, FAKE_STREAM_HANGS);
	cr_assert_eq(cnre_release_on_stream(a.client, &view, fake_import_stream(A_STREAM)), 0);
	(void)nanosleep(&a_while, NULL);
	cr_expect_eq(fake_host_leases(a.host, 3), 1);
	fake_import_set_stream(A_STREAM, FAKE_STREAM_PASSES);
	fake_host_await_leases(a.host, 3, 0);
	vram_attached_stop(&a);
}

Test(client_vram_point, lease_of_memory_finds_the_device_of_its_stream_and_a_default_stream_is_of_none)
{
	struct vram_attached a;
	struct cnre_expert view[3], spare;

	fake_import_set_devices(2);
	a = vram_attached_start(NULL, CNRE_WANT_VRAM | CNRE_VRAM_OR_RAM);
	for (uint32_t i = 0; i < 3; i++)
		cr_assert_eq(cnre_acquire_vram(a.client, 0, i, (int)(i % 2), -1, &view[i]), 0);
	cr_expect_eq(cnre_release_on_stream(a.client, &view[0], fake_import_stream(OF_DEVICE_1)), 0);
	cr_expect_eq(cnre_release_on_stream(a.client, &view[1], fake_import_stream(A_STREAM)), 0);
	cr_expect_eq(cnre_release_on_stream(a.client, &view[2], NULL), -EINVAL);
	cr_expect_eq(cnre_release(a.client, &view[2]), 0, "still the caller's");
	vram_attached_stop(&a);
	fake_import_reset();
	a = vram_attached_start(NULL, CNRE_WANT_VRAM);
	cr_assert_eq(cnre_acquire(a.client, 0, 1, -1, &spare), 0);
	cr_expect_eq(cnre_release_on_stream(a.client, &spare, NULL), -ENODEV, "nobody has named a device");
	cr_expect_eq(cnre_release(a.client, &spare), 0);
	vram_attached_stop(&a);
}

static void *wait_for_the_manager(void *context)
{
	struct vram_attached *a = context;
	struct cnre_expert view;

	return (void *)(intptr_t)cnre_acquire_vram(a->client, 0, 5, 0, 5000000000, &view);
}

/* A thread that waits for a manager's answer is no reason for another to wait in a release, which never blocks. */
Test(client_vram_point, release_waits_for_no_answer_of_the_manager)
{
	struct vram_attached a = vram_attached_start(NULL, CNRE_WANT_VRAM);
	struct cnre_expert view;
	pthread_t thread;
	int64_t start_ns;

	fake_host_fill(a.host, 3);
	cr_assert_eq(cnre_acquire(a.client, 0, 3, -1, &view), 0);
	fake_host_pause(a.host);
	cr_assert_eq(pthread_create(&thread, NULL, wait_for_the_manager, &a), 0);
	while (fake_import_open_devices() == 0)
		(void)sched_yield(); /* the suite's time-out ends it */
	(void)nanosleep(&a_while, NULL);
	start_ns = cnre_clock_now_ns();
	cr_expect_eq(cnre_release_on_stream(a.client, &view, fake_import_stream(A_STREAM)), 0);
	cr_expect_lt(cnre_clock_now_ns() - start_ns, 2000000000);
	fake_host_resume(a.host);
	(void)pthread_join(thread, NULL);
	vram_attached_stop(&a);
}

Test(client_vram_point, client_without_this_tier_has_no_streams)
{
	struct vram_attached a = vram_attached_start(NULL, 0);
	struct cnre_expert view;

	cr_assert_eq(cnre_acquire(a.client, 0, 1, -1, &view), 0);
	cr_expect_eq(cnre_release_on_stream(a.client, &view, NULL), -ENODEV);
	cr_expect_eq(cnre_release_on_stream(a.client, NULL, NULL), -EINVAL);
	cr_expect_eq(cnre_release(a.client, &view), 0);
	vram_attached_stop(&a);
}

Test(client_vram_point, stream_that_cannot_be_recorded_leaves_the_lease_with_the_caller)
{
	struct vram_attached a = vram_attached_start(NULL, CNRE_WANT_VRAM);
	struct cnre_expert view = leased(&a, 3);

	cr_expect_eq(cnre_release_on_stream(a.client, &view, fake_import_stream(OF_DEVICE_1)), -EINVAL);
	fake_import_fail_record(-ENODEV);
	cr_expect_eq(cnre_release_on_stream(a.client, &view, fake_import_stream(A_STREAM)), -ENODEV);
	cr_expect_neq(view.lease, 0);
	cr_expect_eq(fake_vram_leases(a.fake, 3), 1);
	fake_import_fail_record(0);
	fake_import_set_stream(A_STREAM, FAKE_STREAM_HANGS);
	for (uint32_t i = 0; i < CNRE_POINTS_MAX; i++) { /* no place was lost */
		struct cnre_expert more = leased(&a, 3);

		cr_assert_eq(cnre_release_on_stream(a.client, &more, fake_import_stream(A_STREAM)), 0);
	}
	fake_import_set_stream(A_STREAM, FAKE_STREAM_PASSES);
	cr_expect_eq(cnre_release(a.client, &view), 0);
	vram_attached_stop(&a);
}

Test(client_vram_point, full_table_is_eagain_and_the_lease_is_still_the_callers)
{
	struct vram_attached a = vram_attached_start(NULL, CNRE_WANT_VRAM);
	struct cnre_expert view;

	fake_import_set_stream(A_STREAM, FAKE_STREAM_HANGS);
	for (uint32_t i = 0; i < CNRE_POINTS_MAX; i++) {
		view = leased(&a, 3);
		cr_assert_eq(cnre_release_on_stream(a.client, &view, fake_import_stream(A_STREAM)), 0);
	}
	view = leased(&a, 3);
	cr_expect_eq(cnre_release_on_stream(a.client, &view, fake_import_stream(A_STREAM)), -EAGAIN);
	cr_expect_neq(view.lease, 0);
	cr_expect_eq(fake_vram_leases(a.fake, 3), CNRE_POINTS_MAX + 1);
	fake_import_set_stream(A_STREAM, FAKE_STREAM_PASSES);
	await_leases(&a, 3, 1);
	cr_expect_eq(cnre_release_on_stream(a.client, &view, fake_import_stream(A_STREAM)), 0);
	await_leases(&a, 3, 0);
	vram_attached_stop(&a);
}

Test(client_vram_point, room_that_streams_will_give_back_is_waited_for)
{
	struct vram_attached a = vram_attached_start(NULL, CNRE_WANT_VRAM | CNRE_VRAM_OR_RAM);
	struct cnre_expert view;

	fake_import_set_stream(A_STREAM, FAKE_STREAM_HANGS);
	for (uint32_t i = 0; i < 8; i++) { /* the reservation */
		cr_assert_eq(cnre_acquire_vram(a.client, 0, i, 0, -1, &view), 0);
		cr_assert_eq(cnre_release_on_stream(a.client, &view, fake_import_stream(A_STREAM)), 0);
	}
	cr_expect_eq(cnre_acquire_vram(a.client, 0, 8, 0, 0, &view), -ENOSPC);
	cr_expect_eq(cnre_acquire_vram(a.client, 0, 8, 0, -1, &view), -ENOSPC, "the stream hangs: not for ever");
	fake_import_set_stream(A_STREAM, FAKE_STREAM_PASSES);
	for (uint32_t i = 8; i < 64; i++) {
		cr_assert_eq(cnre_acquire_vram(a.client, i / EXPERTS, i % EXPERTS, 0, -1, &view), 0, "%u", i);
		cr_assert_eq(cnre_release_on_stream(a.client, &view, fake_import_stream(A_STREAM)), 0);
	}
	vram_attached_stop(&a);
}

Test(client_vram_point, copy_of_a_lease_that_a_stream_has_is_refused)
{
	struct vram_attached a;
	struct cnre_expert view, copy;

	if (getenv("CNRE_CHECK") == NULL || getenv("CNRE_CHECK")[0] != '1')
		cr_skip("without CNRE_CHECK=1 it is only refused once nothing of the object is leased");
	a = vram_attached_start(NULL, CNRE_WANT_VRAM);
	view = copy = leased(&a, 3);
	fake_import_set_stream(A_STREAM, FAKE_STREAM_HANGS);
	cr_assert_eq(cnre_release_on_stream(a.client, &view, fake_import_stream(A_STREAM)), 0);
	cr_expect_eq(cnre_release_on_stream(a.client, &copy, fake_import_stream(A_STREAM)), -EINVAL);
	cr_expect_eq(cnre_release(a.client, &copy), -EINVAL);
	cr_expect_eq(fake_vram_leases(a.fake, 3), 1);
	fake_import_set_stream(A_STREAM, FAKE_STREAM_PASSES);
	await_leases(&a, 3, 0);
	vram_attached_stop(&a);
}

/* How often the library's thread went to sleep by itself so far. */
static long sleeps_of_thread(void)
{
	DIR *tasks = opendir("/proc/self/task");
	const struct dirent *task;
	long sleeps = -1;

	while ((task = readdir(tasks)) != NULL) {
		char path[300], line[100];
		int is_it = 0;
		FILE *status;

		(void)snprintf(path, sizeof path, "/proc/self/task/%s/status", task->d_name);
		status = fopen(path, "r");
		while (status != NULL && fgets(line, sizeof line, status) != NULL) {
			is_it |= strcmp(line, "Name:\tcnre-points\n") == 0;
			if (is_it)
				(void)sscanf(line, "voluntary_ctxt_switches: %ld", &sleeps);
		}
		if (status != NULL)
			(void)fclose(status);
	}
	(void)closedir(tasks);
	return sleeps;
}

Test(client_vram_point, thread_sleeps_while_nothing_is_pending)
{
	struct vram_attached a = vram_attached_start(NULL, CNRE_WANT_VRAM);
	struct cnre_expert view = leased(&a, 3);
	long sleeps;

	cr_expect_eq(sleeps_of_thread(), -1, "it begins with the first release on a stream");
	cr_assert_eq(cnre_release_on_stream(a.client, &view, fake_import_stream(A_STREAM)), 0);
	await_leases(&a, 3, 0);
	(void)nanosleep(&a_while, NULL);
	sleeps = sleeps_of_thread();
	cr_assert_geq(sleeps, 0);
	(void)nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL); /* a hundred looks long */
	cr_expect_leq(sleeps_of_thread(), sleeps + 2);
	vram_attached_stop(&a);
}

/* ---- detach ---- */


Test(client_vram_point, detach_waits_for_streams_that_pass)
{
	struct vram_attached a = vram_attached_start(NULL, CNRE_WANT_VRAM);
	struct cnre_expert view = leased(&a, 3);

	cr_assert_eq(cnre_release_on_stream(a.client, &view, fake_import_stream(A_STREAM)), 0);
	cnre_detach(a.client);
	cr_expect_eq(fake_host_detaches(a.host), 1);
	cr_expect_eq(fake_import_points(), 0);
	cr_expect_eq(fake_import_open_arenas(), 0);
	cr_expect_eq(fake_import_open_devices(), 0);
	cr_expect_not(fake_vram_is_open(a.fake, 0));
	vram_attached_stop_host(&a);
}

static void *pass_later(void *context)
{
	(void)nanosleep(context, NULL);
	fake_import_set_stream(A_STREAM, FAKE_STREAM_PASSES);
	return NULL;
}

Test(client_vram_point, detach_waits_for_leases_of_memory_too)
{
	struct vram_attached a = vram_attached_start(NULL, CNRE_WANT_VRAM | CNRE_VRAM_OR_RAM);
	struct cnre_expert view;
	pthread_t thread;

	cr_assert_eq(cnre_acquire_vram(a.client, 0, 3, 0, -1, &view), 0);
	fake_import_set_stream(A_STREAM, FAKE_STREAM_HANGS);
	cr_assert_eq(cnre_release_on_stream(a.client, &view, fake_import_stream(A_STREAM)), 0);
	cr_assert_eq(pthread_create(&thread, NULL, pass_later, (void *)&a_while), 0);
	cnre_detach(a.client);
	(void)pthread_join(thread, NULL);
	cr_expect_eq(fake_host_detaches(a.host), 1);
	cr_expect_eq(fake_import_open_devices(), 0);
	vram_attached_stop_host(&a);
}

Test(client_vram_point, detach_gives_up_on_a_stream_that_hangs_and_leaves_everything_as_it_is)
{
	struct vram_attached a = vram_attached_start(NULL, CNRE_WANT_VRAM);
	struct cnre_expert view = leased(&a, 3);
	struct cnre *again;
	int64_t start_ns = cnre_clock_now_ns();

	fake_import_set_stream(A_STREAM, FAKE_STREAM_HANGS);
	cr_assert_eq(cnre_release_on_stream(a.client, &view, fake_import_stream(A_STREAM)), 0);
	cnre_detach(a.client);
	cr_expect_geq(cnre_clock_now_ns() - start_ns, CNRE_POINTS_DETACH_NS);
	cr_expect_eq(fake_host_detaches(a.host), 0);
	cr_expect_eq(fake_vram_leases(a.fake, 3), 1);
	cr_expect(fake_vram_is_open(a.fake, 0));
	cr_assert_eq(vram_attached_again(&a, CNRE_WANT_VRAM, &again), 0, "and may be attached again");
	cnre_detach(again);
	fake_import_set_stream(A_STREAM, FAKE_STREAM_PASSES);
	await_leases(&a, 3, 0);
	vram_attached_stop_host(&a);
}

Test(client_vram_point, detach_with_a_lease_out_leaves_it_readable)
{
	struct vram_attached a = vram_attached_start(NULL, CNRE_WANT_VRAM);
	struct cnre_expert view = leased(&a, 3);

	cnre_detach(a.client);
	cr_expect(attached_is_right(&view));
	cr_expect_eq(fake_import_open_arenas(), 1);
	cr_expect_eq(fake_vram_leases(a.fake, 3), 1);
	vram_attached_stop_host(&a);
}
