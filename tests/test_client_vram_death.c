/* SPDX-License-Identifier: Apache-2.0 */
/* What ends under a client: the exporter, the device, the manager, this process's parent, a stream's owner. */
#include "base/clock.h"
#include "client/vram.h"
#include "tests/standin/fake_import.h"
#include "tests/support/attached.h"
#include "tests/support/child.h"
#include "tests/support/vram_attached.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#define A_STREAM 4u
#define MS (SECOND_NS / 1000)

TestSuite(client_vram_death, .init = fake_import_reset, .timeout = 60);

static struct cnre_expert leased(struct vram_attached *a, uint32_t expert)
{
	struct cnre_expert view;

	fake_vram_fill(a->fake, expert, 0);
	cr_assert_eq(cnre_acquire_vram(a->client, 0, expert, 0, -1, &view), 0);
	return view;
}

/* ---- the exporter (R29) ---- */

Test(client_vram_death, release_after_the_exporters_death_is_epipe_and_gives_the_lease_back)
{
	struct vram_attached a = vram_attached_start(NULL, CNRE_WANT_VRAM);
	struct cnre_expert view = leased(&a, 3), on_stream = leased(&a, 4);

	fake_vram_kill_exporter(a.fake); /* a zombie: who asks by a signal finds it alive */
	cr_expect_eq(cnre_release(a.client, &view), -EPIPE);
	cr_expect_eq(view.lease, 0);
	cr_expect_eq(fake_vram_leases(a.fake, 3), 0);
	cr_expect_eq(cnre_release_on_stream(a.client, &on_stream, fake_import_stream(A_STREAM)), -EPIPE);
	cr_expect_eq(on_stream.lease, 0);
	while (fake_vram_leases(a.fake, 4) > 0)
		(void)sched_yield();
	vram_attached_stop(&a);
}

Test(client_vram_death, successor_has_a_table_of_its_own_and_the_old_one_closes_with_its_last_lease)
{
	struct vram_attached a = vram_attached_start(NULL, CNRE_WANT_VRAM);
	struct cnre_expert old = leased(&a, 3), view;

	fake_vram_kill_exporter(a.fake);
	fake_vram_succeed(a.fake);
	fake_host_change_epoch(a.host);
	fake_vram_fill(a.fake, 3, 0);
	cr_assert_eq(cnre_acquire_vram(a.client, 0, 3, 0, -1, &view), 0);
	cr_expect_eq(fake_vram_opens(a.fake), 2);
	cr_expect(vram_attached_lies_in(&a, &view, 0));
	cr_expect(attached_is_right(&old), "mapped as before");
	cr_expect_eq(fake_import_open_arenas(), 2);
	cr_expect_eq(cnre_release(a.client, &old), -EPIPE);
	cr_expect_eq(fake_import_open_arenas(), 1);
	cr_expect_eq(cnre_release(a.client, &view), 0);
	cr_expect_eq(attached_stats(a.client).vram_hits, 2, "those of the old table, too");
	vram_attached_stop(&a);
}

Test(client_vram_death, nothing_of_a_dead_exporter_stays_open_where_its_successor_has_no_gpu)
{
	struct vram_attached a = vram_attached_start(NULL, CNRE_WANT_VRAM);
	struct cnre_expert view = leased(&a, 3);

	cr_expect_eq(cnre_release(a.client, &view), 0);
	fake_vram_kill_exporter(a.fake);
	fake_host_page(a.host)->vram_devices = 0;
	fake_host_change_epoch(a.host);
	cr_expect_eq(cnre_acquire_vram(a.client, 0, 3, 0, 0, &view), -ENODEV);
	cr_expect_eq(fake_import_open_arenas(), 0);
	cr_expect_eq(attached_stats(a.client).vram_hits, 1);
	vram_attached_stop(&a);
}

Test(client_vram_death, successor_that_trusts_this_user_is_asked)
{
	struct vram_attached a = vram_attached_start(&(struct fake_vram_setup){.open_status = -EACCES}, CNRE_WANT_VRAM);
	struct cnre_model_info info = {.size = sizeof info};
	struct cnre_expert view;

	fake_vram_fill(a.fake, 3, 0);
	cr_expect_eq(cnre_acquire_vram(a.client, 0, 3, 0, 0, &view), -EACCES);
	fake_vram_set_status(a.fake, 0);
	fake_host_change_epoch(a.host);
	cr_assert_eq(cnre_model(a.client, &info), 0);
	cr_expect_neq(info.capabilities & CNRE_CAP_VRAM, 0);
	cr_expect_eq(cnre_acquire_vram(a.client, 0, 3, 0, 0, &view), 0);
	cr_expect_eq(cnre_release(a.client, &view), 0);
	vram_attached_stop(&a);
}

Test(client_vram_death, handle_that_names_nothing_any_more_is_not_in_vram)
{
	struct vram_attached a = vram_attached_start(NULL, CNRE_WANT_VRAM);
	struct cnre_expert view;

	fake_vram_fill(a.fake, 3, 0);
	fake_import_fail_arena(-EPIPE); /* a driver may see the end before the pidfd tells */
	cr_expect_eq(cnre_acquire_vram(a.client, 0, 3, 0, 0, &view), -ETIMEDOUT);
	cr_expect_eq(fake_vram_leases(a.fake, 3), 0);
	cr_expect_eq(fake_vram_accesses(a.fake, 3), 0);
	vram_attached_stop(&a);
}

Test(client_vram_death, known_death_is_enough_to_ask_anew)
{
	struct vram_attached a = vram_attached_start(NULL, CNRE_WANT_VRAM);
	struct cnre_expert view = leased(&a, 3);

	fake_vram_kill_exporter(a.fake);
	cr_expect_eq(cnre_release(a.client, &view), -EPIPE);
	fake_vram_succeed(a.fake);
	cr_expect_eq(cnre_acquire_vram(a.client, 0, 3, 0, 0, &view), -ETIMEDOUT, "not in VRAM of the new one");
	cr_expect_eq(fake_vram_opens(a.fake), 2);
	view = leased(&a, 3);
	cr_expect_eq(cnre_release(a.client, &view), 0);
	vram_attached_stop(&a);
}

struct waiter {
	struct cnre *client;
	struct cnre_expert view;
	int result;
};

static void *wait_for_it(void *context)
{
	struct waiter *waiter = context;

	waiter->result = cnre_acquire_vram(waiter->client, 0, 9, 0, -1, &waiter->view);
	return NULL;
}

Test(client_vram_death, waiter_goes_over_to_the_successor)
{
	struct vram_attached a = vram_attached_start(NULL, CNRE_WANT_VRAM);
	struct waiter waiter = {.client = a.client};
	pthread_t thread;

	cr_assert_eq(pthread_create(&thread, NULL, wait_for_it, &waiter), 0);
	fake_host_await_requests(a.host, CNRE_REQUEST_PREFETCH, 1);
	fake_vram_kill_exporter(a.fake);
	fake_vram_succeed(a.fake);
	fake_host_change_epoch(a.host);
	fake_vram_fill(a.fake, 9, 1);
	(void)pthread_join(thread, NULL);
	cr_assert_eq(waiter.result, 0);
	cr_expect(vram_attached_lies_in(&a, &waiter.view, 1));
	cr_expect_eq(fake_vram_opens(a.fake), 2);
	cr_expect_eq(cnre_release(a.client, &waiter.view), 0);
	vram_attached_stop(&a);
}

Test(client_vram_death, old_tables_with_leases_are_bounded)
{
	struct vram_attached a = vram_attached_start(NULL, CNRE_WANT_VRAM | CNRE_VRAM_OR_RAM);
	struct cnre_expert old[6], view;

	for (unsigned i = 0; i < 6; i++) {
		old[i] = leased(&a, 3);
		cr_expect_eq(old[i].flags & CNRE_IN_VRAM, CNRE_IN_VRAM);
		fake_vram_succeed(a.fake);
		fake_host_change_epoch(a.host);
	}
	view = leased(&a, 3);
	cr_expect_eq(fake_import_open_arenas(), 7);
	for (unsigned i = 0; i < 6; i++)
		cr_expect_eq(cnre_release(a.client, &old[i]), 0, "their exporters live here");
	cr_expect_eq(fake_import_open_arenas(), 1);
	cr_expect_eq(cnre_release(a.client, &view), 0);
	vram_attached_stop(&a);
}

Test(client_vram_death, closed_descriptor_is_no_death_and_what_has_its_number_is_left_alone)
{
	struct vram_attached a = vram_attached_start(NULL, CNRE_WANT_VRAM);
	struct cnre_expert view = leased(&a, 3);
	int exporter = a.client->vram->table[0].exporter;

	cr_assert_eq(dup3(open("/dev/null", O_RDONLY | O_CLOEXEC), exporter, O_CLOEXEC), exporter); /* always readable */
	cr_expect_eq(cnre_release(a.client, &view), 0);
	vram_attached_stop(&a);
	cr_expect_geq(fcntl(exporter, F_GETFD), 0);
}

/* ---- manager and device ---- */

Test(client_vram_death, stopped_manager_costs_who_can_use_memory_a_moment_and_not_at_every_call)
{
	struct vram_attached a = vram_attached_start(NULL, CNRE_WANT_VRAM | CNRE_VRAM_OR_RAM);
	struct cnre_expert view;
	int64_t start_ns;

	fake_host_fill(a.host, 3);
	fake_host_pause(a.host);
	start_ns = cnre_clock_now_ns();
	for (unsigned i = 0; i < 20; i++) {
		cr_assert_eq(cnre_acquire_vram(a.client, 0, 3, 0, -1, &view), 0);
		cr_expect_eq(view.flags, CNRE_WAS_RESIDENT);
		cr_expect_eq(cnre_release(a.client, &view), 0);
	}
	cr_expect_lt(cnre_clock_now_ns() - start_ns, 10 * CNRE_ANSWER_MIN_NS);
	fake_host_resume(a.host);
	vram_attached_stop(&a);
}

Test(client_vram_death, manager_that_is_gone_for_good_is_epipe_and_hits_go_on)
{
	struct vram_attached a = vram_attached_start(NULL, CNRE_WANT_VRAM);
	struct cnre_expert view = leased(&a, 3), again;

	fake_host_hang_up(a.host);
	cr_expect_eq(cnre_acquire_vram(a.client, 0, 3, 0, 0, &again), 0);
	cr_expect_eq(cnre_release(a.client, &again), 0);
	cr_expect_eq(cnre_acquire_vram(a.client, 0, 4, 0, -1, &again), -EPIPE);
	cr_expect_eq(cnre_release(a.client, &view), 0);
	vram_attached_stop(&a);
}

Test(client_vram_death, lost_device_is_enodev_for_new_ones_and_waiters_and_a_release_of_old_ones_is_fine)
{
	struct vram_attached a = vram_attached_start(NULL, CNRE_WANT_VRAM);
	struct cnre_expert view = leased(&a, 3), again;
	struct waiter waiter = {.client = a.client};
	pthread_t thread;

	cr_assert_eq(pthread_create(&thread, NULL, wait_for_it, &waiter), 0);
	fake_host_await_requests(a.host, CNRE_REQUEST_PREFETCH, 1);
	fake_vram_lose(a.fake);
	(void)pthread_join(thread, NULL);
	cr_expect_eq(waiter.result, -ENODEV);
	cr_expect_eq(cnre_acquire_vram(a.client, 0, 3, 0, -1, &again), -ENODEV);
	cr_expect_eq(cnre_release(a.client, &view), 0);
	cr_expect_eq(fake_vram_leases(a.fake, 3), 0);
	vram_attached_stop(&a);
}

Test(client_vram_death, lost_device_leaves_the_copy_in_memory)
{
	struct vram_attached a = vram_attached_start(NULL, CNRE_WANT_VRAM | CNRE_VRAM_OR_RAM);
	struct cnre_expert view = leased(&a, 3);

	cr_expect_eq(cnre_release(a.client, &view), 0);
	fake_vram_lose(a.fake);
	cr_assert_eq(cnre_acquire_vram(a.client, 0, 3, 0, -1, &view), 0);
	cr_expect_eq(view.flags & CNRE_IN_VRAM, 0);
	cr_expect_eq(cnre_release(a.client, &view), 0);
	vram_attached_stop(&a);
}

/* ---- fork ---- */

struct family {
	struct cnre *client;
	struct cnre_expert view;
	int exporter;
};

static int use_everything(void *context)
{
	struct family *family = context;
	const uint32_t expert = 3;
	struct cnre_expert view;
	uint8_t tier;

	(void)alarm(20);
	if (cnre_acquire_vram(family->client, 0, 3, 0, -1, &view) != -ECHILD || cnre_release(family->client, &family->view) != -ECHILD)
		return 1;
	if (cnre_release_on_stream(family->client, &family->view, fake_import_stream(A_STREAM)) != -ECHILD)
		return 2;
	if (cnre_resident(family->client, 0, &expert, 1, &tier) != -ECHILD)
		return 3;
	if (fcntl(family->exporter, F_GETFD) >= 0)
		return 4;
	cnre_detach(family->client); /* a driver call here aborts */
	return 0;
}

Test(client_vram_death, child_has_no_session_calls_no_driver_and_does_not_hang)
{
	struct vram_attached a = vram_attached_start(NULL, CNRE_WANT_VRAM);
	struct cnre_expert pending = leased(&a, 4);
	struct family family = {.client = a.client, .view = leased(&a, 3)};

	family.exporter = a.client->vram->table[0].exporter;
	fake_import_set_stream(A_STREAM, FAKE_STREAM_HANGS);
	cr_assert_eq(cnre_release_on_stream(a.client, &pending, fake_import_stream(A_STREAM)), 0);
	cr_expect_eq(child_run(use_everything, &family), 0);
	cr_expect(attached_is_right(&family.view));
	cr_expect_eq(fake_vram_leases(a.fake, 3), 1);
	cr_expect_eq(fake_vram_leases(a.fake, 4), 1);
	fake_import_set_stream(A_STREAM, FAKE_STREAM_PASSES);
	while (fake_vram_leases(a.fake, 4) > 0)
		(void)sched_yield();
	cr_expect_eq(cnre_release(a.client, &family.view), 0);
	vram_attached_stop(&a);
}

/* ---- this process, while its stream runs ---- */

static int run_and_be_killed(void *context)
{
	const struct vram_attached *a = context;
	struct cnre *client;
	struct cnre_expert view;

	fake_import_reset(); /* of this process */
	if (vram_attached_again(a, CNRE_WANT_VRAM, &client) != 0 || cnre_acquire_vram(client, 0, 3, 0, -1, &view) != 0)
		return 1;
	fake_import_set_stream(A_STREAM, FAKE_STREAM_HANGS);
	if (cnre_release_on_stream(client, &view, fake_import_stream(A_STREAM)) != 0)
		return 2;
	for (;;)
		(void)pause();
}

Test(client_vram_death, killed_client_leaves_its_words_to_the_manager)
{
	struct vram_attached a = vram_attached_start(NULL, CNRE_WANT_VRAM);
	pid_t child;

	fake_vram_fill(a.fake, 3, 0);
	child = child_start(run_and_be_killed, &a);
	cr_assert_gt(child, 0);
	while (fake_vram_leases(a.fake, 3) == 0)
		(void)sched_yield();
	(void)kill(child, SIGKILL);
	cr_expect_eq(child_wait(child), -SIGKILL);
	cr_expect_eq(fake_vram_leases(a.fake, 3), 1, "until the manager has seen the end of the process");
	cr_expect(fake_vram_is_open(a.fake, 0));
	vram_attached_stop(&a);
}
