/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a client sees of a manager that is stopped, killed and continued by a successor, or gone for good. The host here
 * is an invented one that does each of these on purpose; tests/test_system_*.c do them to the real manager.
 */
#include "base/clock.h"
#include "client/client.h"
#include "tests/support/attached.h"
#include "tests/support/child.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MS (SECOND_NS / 1000)
#define SLICE_NS (250 * MS) /* of every wait */
#define SEGMENTS_BYTES ((uint32_t)sizeof(struct cnre_wire_segments))

TestSuite(client_restart, .timeout = 60);

static int load_later(void *context, uint32_t object)
{
	(void)context;
	(void)object;
	return FAKE_HOST_LATER;
}

static const struct fake_host_setup slow = {.load = load_later};

/* The host is in this process: what it is in the middle of sending has to be closed first. */
static int count_descriptors(struct fake_host *host)
{
	DIR *directory = opendir("/proc/self/fd");
	int count = 0;

	(void)fake_host_sessions(host); /* after whatever has its lock now */
	while (readdir(directory) != NULL)
		count++;
	(void)closedir(directory);
	return count;
}

static void expect_right_and_release(struct cnre *client, struct cnre_expert *view)
{
	cr_expect(attached_is_right(view));
	cr_expect_eq(cnre_release(client, view), 0);
}

/* ---- waits ---- */

Test(client_restart, miss_whose_read_died_is_served_by_the_successor)
{
	struct cnre *client;
	struct fake_host *host = attached_start(&slow, &client);
	struct attached_thread *waiter = attached_acquire_begin(client, 0, 1, -1);
	struct cnre_expert view;

	fake_host_await_requests(host, CNRE_REQUEST_LOAD, 1);
	fake_host_pause(host);
	fake_host_restart(host, 0);
	cr_expect_eq(fake_host_loads(host, 1), 2);
	fake_host_finish(host, 1, CNRE_LOAD_OK);
	cr_assert_eq(attached_acquire_end(waiter, &view), 0);
	expect_right_and_release(client, &view);
	attached_stop(host, client);
}

static const struct timespec asleep_by_then = {.tv_nsec = 20000000};

/* Nanoseconds from a restart that forgot the demand until the waiting client has posted it again. */
static int64_t time_until_posted_again(void)
{
	struct cnre *client;
	struct fake_host *host = attached_start(NULL, &client);
	struct attached_thread *waiter;
	struct cnre_expert view;
	int64_t start_ns;

	fake_host_pause(host);
	waiter = attached_acquire_begin(client, 0, 1, -1);
	fake_host_await_posts(host, 1);
	/* Posted, and not asleep yet: who is woken before that sleeps its slice, which is what slices are for. */
	(void)nanosleep(&asleep_by_then, NULL);
	start_ns = cnre_clock_now_ns();
	fake_host_restart(host, FAKE_HOST_FORGETS);
	fake_host_await_requests(host, CNRE_REQUEST_LOAD, 1);
	start_ns = cnre_clock_now_ns() - start_ns;
	cr_assert_eq(attached_acquire_end(waiter, &view), 0);
	expect_right_and_release(client, &view);
	attached_stop(host, client);
	return start_ns;
}

Test(client_restart, change_of_the_epoch_posts_again_without_waiting_for_the_slice_to_end)
{
	int64_t least_ns = CNRE_NEVER;

	for (unsigned i = 0; i < 8 && least_ns > SLICE_NS / 2; i++) {
		int64_t elapsed_ns = time_until_posted_again();

		least_ns = elapsed_ns < least_ns ? elapsed_ns : least_ns;
	}
	cr_expect_lt(least_ns, SLICE_NS / 2);
}

Test(client_restart, manager_that_is_stopped_for_longer_than_all_slices_is_only_slow)
{
	struct cnre *client;
	struct fake_host *host = attached_start(NULL, &client);
	struct attached_thread *waiter;
	struct cnre_expert view;

	fake_host_pause(host);
	waiter = attached_acquire_begin(client, 0, 1, -1);
	fake_host_await_posts(host, 4); /* at first, and at the end of three slices */
	fake_host_resume(host);
	cr_assert_eq(attached_acquire_end(waiter, &view), 0);
	cr_expect_eq(fake_host_loads(host, 1), 1);
	expect_right_and_release(client, &view);
	attached_stop(host, client);
}

Test(client_restart, wait_ends_at_its_own_deadline_while_nobody_serves)
{
	struct cnre *client;
	struct fake_host *host = attached_start(NULL, &client);
	struct cnre_expert view = {.lease = 7};
	int64_t start_ns = cnre_clock_now_ns();

	fake_host_pause(host);
	cr_expect_eq(cnre_acquire(client, 0, 1, SLICE_NS + SLICE_NS / 2, &view), -ETIMEDOUT);
	cr_expect_geq(cnre_clock_now_ns() - start_ns, SLICE_NS + SLICE_NS / 2);
	cr_expect_eq(view.lease, 7, "outputs are written on success only");
	cr_expect_eq(fake_host_leases(host, 1), 0);
	fake_host_restart(host, 0);
	cr_assert_eq(cnre_acquire(client, 0, 1, -1, &view), 0);
	expect_right_and_release(client, &view);
	attached_stop(host, client);
}

Test(client_restart, hang_up_during_the_pause_ends_misses_only)
{
	struct cnre *client;
	struct fake_host *host = attached_start(NULL, &client);
	struct attached_thread *waiter;
	struct cnre_expert held, hit, view;

	cr_assert_eq(cnre_acquire(client, 0, 1, -1, &held), 0);
	fake_host_fill(host, 2);
	fake_host_pause(host);
	waiter = attached_acquire_begin(client, 0, 3, -1);
	fake_host_await_posts(host, 3); /* with the one of `held`: it has slept through a slice */
	fake_host_hang_up(host);
	cr_expect_eq(attached_acquire_end(waiter, NULL), -EPIPE);
	cr_expect_eq(cnre_acquire(client, 0, 4, -1, &view), -EPIPE);
	cr_expect_eq(cnre_prefetch(client, 0, &(const uint32_t){5}, 1), -EPIPE);
	cr_assert_eq(cnre_acquire(client, 0, 2, 0, &hit), 0);
	expect_right_and_release(client, &hit);
	expect_right_and_release(client, &held);
	attached_stop(host, client);
}

static void do_nothing(int number)
{
	(void)number;
}

struct disturbed {
	struct cnre *client;
	int result;
	_Atomic int done;
};

static void *acquire_disturbed(void *context)
{
	struct disturbed *disturbed = context;
	struct cnre_expert view;

	disturbed->result = cnre_acquire(disturbed->client, 0, 1, -1, &view);
	disturbed->done = 1;
	return NULL;
}

Test(client_restart, signals_that_interrupt_every_slice_do_not_hide_a_hang_up)
{
	struct disturbed disturbed = {0};
	struct fake_host *host = attached_start(&slow, &disturbed.client);
	struct sigaction action = {.sa_handler = do_nothing};
	pthread_t thread;

	cr_assert_eq(sigaction(SIGUSR1, &action, NULL), 0);
	cr_assert_eq(pthread_create(&thread, NULL, acquire_disturbed, &disturbed), 0);
	fake_host_await_requests(host, CNRE_REQUEST_LOAD, 1);
	fake_host_hang_up(host);
	while (!disturbed.done) {
		(void)pthread_kill(thread, SIGUSR1);
		(void)sched_yield();
	}
	(void)pthread_join(thread, NULL);
	cr_expect_eq(disturbed.result, -EPIPE);
	attached_stop(host, disturbed.client);
}

/* ---- calls that do not wait for the manager ---- */

Test(client_restart, calls_that_need_no_answer_go_on_while_nobody_serves)
{
	struct cnre *client;
	struct fake_host *host = attached_start(NULL, &client);
	const uint32_t experts[] = {1, 2, 3};
	struct cnre_expert view;
	struct cnre_stats stats;
	uint8_t tier[3];

	fake_host_fill(host, 1);
	fake_host_pause(host);
	fake_host_store_state(host, 2, CNRE_STATE_LOADING); /* as the dead manager left it */
	cr_assert_eq(cnre_acquire(client, 0, 1, 0, &view), 0);
	cr_expect_eq(view.flags, CNRE_WAS_RESIDENT);
	expect_right_and_release(client, &view);
	cr_expect_eq(cnre_acquire(client, 0, 2, 0, &view), -ETIMEDOUT);
	cr_expect_eq(cnre_prefetch(client, 0, experts, 3), 1, "the absent one");
	cr_expect_eq(cnre_resident(client, 0, experts, 3, tier), 0);
	cr_expect(tier[0] == CNRE_RAM && tier[1] == CNRE_LOADING && tier[2] == CNRE_ABSENT);
	cnre_token_end(client, 1);
	stats = attached_stats(client);
	cr_expect_eq(stats.hits, 1);
	cr_expect_eq(stats.misses, 1);
	fake_host_restart(host, 0);
	cr_assert_eq(cnre_acquire(client, 0, 2, -1, &view), 0);
	expect_right_and_release(client, &view);
	attached_stop(host, client);
}

Test(client_restart, prefetches_beyond_the_slots_are_not_accepted_while_nobody_serves)
{
	struct fake_host_setup setup = {.expert_count = 4096};
	struct cnre *client;
	struct fake_host *host = attached_start(&setup, &client);
	uint32_t experts[CNRE_SLOTS * CNRE_SLOT_OBJECTS + 1];
	uint32_t count = sizeof experts / sizeof experts[0];

	for (uint32_t i = 0; i < count; i++)
		experts[i] = i;
	fake_host_pause(host);
	cr_expect_eq(cnre_prefetch(client, 0, experts, count), count - 1);
	cr_expect_eq(cnre_prefetch(client, 0, experts, count), 0);
	fake_host_restart(host, 0);
	cr_expect_eq(fake_host_loads(host, 0), 1);
	attached_stop(host, client);
}

Test(client_restart, batches_begin_wait_for_room_and_end_while_nobody_serves)
{
	struct fake_host_setup setup = {.reserve_slabs = 3};
	struct cnre *client;
	struct fake_host *host = attached_start(&setup, &client);
	const uint32_t first[] = {1, 2}, second[] = {3, 4};
	struct cnre_batch *holding, *waiting;
	struct cnre_expert view;

	fake_host_fill(host, 3);
	fake_host_pause(host);
	cr_assert_eq(cnre_batch_begin(client, 0, first, 2, 1, &holding), 0);
	cr_assert_eq(cnre_batch_begin(client, 0, second, 2, 1, &waiting), 0);
	cr_expect_eq(cnre_batch_wait(waiting, 0, 0, &view), -ETIMEDOUT, "there is no room yet");
	cr_expect_eq(cnre_batch_next(holding, 0, &view), -ETIMEDOUT);
	cr_assert_eq(cnre_batch_end(holding), 0);
	cr_assert_eq(cnre_batch_wait(waiting, 0, 0, &view), 0, "room came from this process itself");
	expect_right_and_release(client, &view);
	cr_expect_eq(cnre_batch_wait(waiting, 1, 0, &view), -ETIMEDOUT);
	fake_host_restart(host, 0);
	cr_expect_eq(cnre_batch_next(waiting, -1, &view), 1);
	expect_right_and_release(client, &view);
	cr_expect_eq(fake_host_loads(host, 1), 0, "nobody wants it any more");
	cr_assert_eq(cnre_batch_end(waiting), 0);
	attached_stop(host, client);
}

/* ---- control requests ---- */

/* A host of four segments of which the client has mapped one; objects 1 and 2 are resident in others. */
static struct fake_host *start_with_new_segments(struct cnre **ret_client)
{
	struct fake_host_setup setup = {.segment_count = 4, .segments_shown = 1};
	struct fake_host *host = attached_start(&setup, ret_client);

	fake_host_fill(host, 1);
	fake_host_fill(host, 2);
	fake_host_show_segments(host, 4);
	return host;
}

Test(client_restart, request_that_died_with_the_manager_is_repeated)
{
	struct cnre *client;
	struct fake_host *host = start_with_new_segments(&client);
	struct attached_thread *asker;
	struct cnre_expert view;

	fake_host_pause(host);
	asker = attached_acquire_begin(client, 0, 1, 10 * SECOND_NS);
	fake_host_lose_message(host);
	fake_host_restart(host, 0);
	cr_assert_eq(attached_acquire_end(asker, &view), 0);
	expect_right_and_release(client, &view);
	attached_stop(host, client);
}

Test(client_restart, request_that_lay_unread_is_answered_without_being_repeated)
{
	struct cnre *client;
	struct fake_host *host = start_with_new_segments(&client);
	struct attached_thread *asker;
	struct cnre_expert view;

	fake_host_pause(host);
	asker = attached_acquire_begin(client, 0, 1, -1);
	fake_host_await_unread(host, SEGMENTS_BYTES);
	fake_host_resume(host);
	cr_assert_eq(attached_acquire_end(asker, &view), 0);
	expect_right_and_release(client, &view);
	attached_stop(host, client);
}

Test(client_restart, second_answer_to_a_repeated_request_disturbs_no_later_one)
{
	struct cnre *client;
	struct fake_host *host = start_with_new_segments(&client);
	int before = count_descriptors(host);
	struct attached_thread *asker;
	struct cnre_expert view;

	fake_host_pause(host);
	asker = attached_acquire_begin(client, 0, 1, -1);
	fake_host_await_unread(host, SEGMENTS_BYTES);
	fake_host_change_epoch(host);
	fake_host_await_unread(host, 2 * SEGMENTS_BYTES);
	fake_host_change_epoch(host); /* a successor that dies at once */
	fake_host_await_unread(host, 3 * SEGMENTS_BYTES);
	fake_host_restart(host, 0);
	cr_assert_eq(attached_acquire_end(asker, &view), 0);
	expect_right_and_release(client, &view);
	fake_host_fill(host, 3);
	cr_assert_eq(cnre_acquire(client, 0, 3, -1, &view), 0, "its segment came with none of those answers");
	expect_right_and_release(client, &view);
	cr_expect_eq(count_descriptors(host), before);
	attached_stop(host, client);
}

Test(client_restart, answer_to_nobody_is_thrown_away_with_its_descriptors)
{
	struct cnre *client;
	struct fake_host *host = start_with_new_segments(&client);
	int before = count_descriptors(host);
	struct cnre_expert view;

	for (unsigned i = 0; i < 5; i++)
		fake_host_say_to_nobody(host);
	cr_assert_eq(cnre_acquire(client, 0, 1, -1, &view), 0);
	expect_right_and_release(client, &view);
	cr_expect_eq(count_descriptors(host), before);
	fake_host_say_to_nobody(host);
	attached_stop(host, client);
}

Test(client_restart, bytes_in_a_new_segment_are_waited_for_no_longer_than_the_caller_allows)
{
	struct cnre *client;
	struct fake_host *host = start_with_new_segments(&client);
	int before = count_descriptors(host);
	struct attached_thread *asker;
	struct cnre_batch *batch;
	struct cnre_expert view;

	fake_host_pause(host);
	cr_expect_eq(cnre_acquire(client, 0, 1, 0, &view), -ETIMEDOUT);
	cr_expect_eq(fake_host_leases(host, 1), 0);
	cr_assert_eq(cnre_batch_begin(client, 0, &(const uint32_t){1}, 1, 1, &batch), 0);
	asker = attached_acquire_begin(client, 0, 2, -1);
	fake_host_await_unread(host, 2 * SEGMENTS_BYTES); /* it has the socket for as long as this lasts */
	cr_expect_eq(cnre_batch_wait(batch, 0, 10 * MS, &view), -ETIMEDOUT);
	cr_expect_eq(cnre_batch_next(batch, 10 * MS, &view), -ETIMEDOUT);
	cr_expect_eq(fake_host_leases(host, 1), 1, "the batch still has it");
	fake_host_restart(host, 0);
	cr_assert_eq(cnre_batch_wait(batch, 0, -1, &view), 0);
	expect_right_and_release(client, &view);
	cr_assert_eq(cnre_batch_end(batch), 0);
	cr_assert_eq(attached_acquire_end(asker, &view), 0);
	expect_right_and_release(client, &view);
	cr_expect_eq(count_descriptors(host), before, "the poll's answer came when nobody waited for it");
	attached_stop(host, client);
}

/* ---- attach ---- */

struct attacher {
	pthread_t thread;
	const char *socket;
	struct cnre *client;
	int result;
};

static void *run_attach(void *context)
{
	struct attacher *attacher = context;

	attacher->result = attached_again(attacher->socket, &attacher->client);
	return NULL;
}

static void attach_begin(struct attacher *attacher, struct fake_host *host)
{
	attacher->socket = fake_host_socket(host);
	cr_assert_eq(pthread_create(&attacher->thread, NULL, run_attach, attacher), 0);
}

static void attach_end_well(struct attacher *attacher, struct fake_host *host)
{
	struct cnre_expert view;

	(void)pthread_join(attacher->thread, NULL);
	cr_assert_eq(attacher->result, 0);
	cr_expect_eq(fake_host_sessions(host), 1);
	cr_assert_eq(cnre_acquire(attacher->client, 0, 1, -1, &view), 0);
	expect_right_and_release(attacher->client, &view);
	attached_stop(host, attacher->client);
}

Test(client_restart, connection_that_nobody_accepted_is_accepted_by_the_successor)
{
	struct fake_host *host = fake_host_start(NULL);
	struct attacher attacher;

	fake_host_pause(host);
	attach_begin(&attacher, host);
	fake_host_await_connection(host);
	fake_host_restart(host, 0);
	attach_end_well(&attacher, host);
}

Test(client_restart, hello_that_died_with_the_manager_starts_over)
{
	struct fake_host_setup setup = {.ignored_hellos = 1};
	struct fake_host *host = fake_host_start(&setup);
	struct attacher attacher;

	attach_begin(&attacher, host);
	fake_host_await_hellos(host, 1);
	fake_host_restart(host, 0);
	attach_end_well(&attacher, host);
}

Test(client_restart, session_that_ends_before_all_of_the_pool_is_mapped_starts_over)
{
	struct fake_host_setup setup = {.segment_count = 4, .segments_eof_count = 2};
	struct fake_host *host = fake_host_start(&setup);
	int before = count_descriptors(host);
	struct cnre_expert view;
	struct cnre *client;

	cr_assert_eq(attached_again(fake_host_socket(host), &client), 0);
	cr_expect_eq(fake_host_sessions(host), 1);
	for (uint32_t i = 0; i < 4; i++) {
		cr_assert_eq(cnre_acquire(client, 0, i, -1, &view), 0, "each in another segment");
		expect_right_and_release(client, &view);
	}
	cnre_detach(client);
	cr_expect_eq(count_descriptors(host), before);
	fake_host_stop(host);
}

/* ---- a program that closes every descriptor ---- */

/* As a program that turns into a daemon: closes the client's socket, and opens something else that gets its number. */
static int replace_socket(const struct cnre *client, int pair[2])
{
	if (close(client->socket) < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair) < 0)
		return -errno;
	if (pair[0] != client->socket && pair[1] != client->socket) {
		if (dup2(pair[0], client->socket) < 0)
			return -errno;
		(void)close(pair[0]);
		pair[0] = client->socket;
	}
	return pair[0] == client->socket ? pair[1] : pair[0]; /* the other end */
}

static int number_is_open(void *context)
{
	return fcntl(*(int *)context, F_GETFD) < 0;
}

Test(client_restart, number_of_a_closed_socket_is_left_alone)
{
	struct fake_host_setup setup = {.segment_count = 4, .segments_shown = 1, .keeps_disconnected = 1};
	struct cnre *client;
	struct fake_host *host = attached_start(&setup, &client);
	int number = client->socket, pair[2];
	struct cnre_expert view;
	char byte;
	int other = replace_socket(client, pair);

	cr_assert_geq(other, 0);
	fake_host_fill(host, 1);
	fake_host_show_segments(host, 4);
	cr_assert_eq(cnre_acquire(client, 0, 0, -1, &view), 0, "a miss asks through the channel");
	expect_right_and_release(client, &view);
	cr_assert_eq(cnre_acquire(client, 0, 0, 0, &view), 0, "a hit asks nobody");
	expect_right_and_release(client, &view);
	cr_expect_eq(cnre_acquire(client, 0, 1, -1, &view), -EPIPE, "a new segment would have to come through it");
	cr_expect_eq(fake_host_leases(host, 1), 0);
	cr_expect_eq(child_run(number_is_open, &number), 0, "fork closes our socket, not this");
	cr_expect_lt(recv(other, &byte, 1, 0), 0, "and nothing was written to it");
	cr_expect_eq(errno, EAGAIN);
	cr_assert_eq(close(other), 0);
	cr_assert_eq(cnre_acquire(client, 0, 4, -1, &view), 0, "its end is not the manager's");
	expect_right_and_release(client, &view);
	cr_expect_eq(cnre_acquire(client, 0, 5, 0, &view), -ETIMEDOUT);
	cnre_detach(client);
	cr_expect_eq(fcntl(number, F_GETFD) < 0, 0, "nor does detach close it");
	fake_host_stop(host);
}

struct daemonised {
	const char *socket;
	struct fake_host *host;
};

static int close_everything_and_go_on(void *context)
{
	struct daemonised *daemonised = context;
	struct cnre_expert view;
	struct cnre *client;

	if (attached_again(daemonised->socket, &client) != 0)
		return 1;
	for (int fd = 3; fd < 1024; fd++)
		(void)close(fd);
	for (unsigned i = 0; i < 3; i++)
		if (cnre_acquire(client, 0, i % 2, i == 0 ? 3 * SLICE_NS : -1, &view) != 0 ||
		    !attached_is_right(&view) || cnre_release(client, &view) != 0)
			return 2;
	if (cnre_prefetch(client, 0, &(const uint32_t){5}, 1) != 1)
		return 3;
	cnre_detach(client);
	return 0;
}

Test(client_restart, program_that_closes_every_descriptor_has_hits_and_misses)
{
	struct fake_host_setup setup = {.keeps_disconnected = 1};
	struct daemonised daemonised = {.host = fake_host_start(&setup)};

	daemonised.socket = fake_host_socket(daemonised.host);
	cr_expect_eq(child_run(close_everything_and_go_on, &daemonised), 0);
	cr_expect_eq(fake_host_loads(daemonised.host, 0), 1);
	fake_host_stop(daemonised.host);
}

Test(client_restart, miss_without_a_socket_waits_through_slices_and_a_restart)
{
	struct fake_host_setup setup = {.keeps_disconnected = 1};
	struct cnre *client;
	struct fake_host *host = attached_start(&setup, &client);
	struct attached_thread *waiter;
	struct cnre_expert view;

	fake_host_pause(host);
	cr_assert_eq(close(client->socket), 0);
	waiter = attached_acquire_begin(client, 0, 1, -1);
	fake_host_await_posts(host, 3);
	fake_host_restart(host, 0);
	cr_assert_eq(attached_acquire_end(waiter, &view), 0);
	expect_right_and_release(client, &view);
	attached_stop(host, client);
}

/* ---- detach ---- */

static void *run_detach(void *context)
{
	cnre_detach(context);
	return NULL;
}

Test(client_restart, detach_during_the_pause_is_bounded_and_heard_afterwards)
{
	struct cnre *client;
	struct fake_host *host = attached_start(NULL, &client);
	int before = count_descriptors(host);
	int64_t start_ns = cnre_clock_now_ns();
	pthread_t thread;

	fake_host_pause(host);
	cr_assert_eq(pthread_create(&thread, NULL, run_detach, client), 0);
	fake_host_await_unread(host, sizeof(struct cnre_wire_detach));
	fake_host_say_to_nobody(host); /* what nobody has read must not make the close a reset */
	(void)pthread_join(thread, NULL);
	cr_expect_lt(cnre_clock_now_ns() - start_ns, 5 * SECOND_NS);
	cr_expect_eq(count_descriptors(host), before - 1);
	fake_host_restart(host, 0);
	fake_host_await_detaches(host, 1);
	cr_expect_eq(fake_host_sessions(host), 0);
	fake_host_stop(host);
}

Test(client_restart, detach_that_died_with_the_manager_is_said_again)
{
	struct cnre *client;
	struct fake_host *host = attached_start(NULL, &client);
	pthread_t thread;

	fake_host_pause(host);
	cr_assert_eq(pthread_create(&thread, NULL, run_detach, client), 0);
	fake_host_lose_message(host);
	fake_host_restart(host, 0);
	fake_host_await_detaches(host, 1);
	(void)pthread_join(thread, NULL);
	fake_host_stop(host);
}

Test(client_restart, detach_that_died_with_the_manager_is_heard_by_a_successor_that_comes_late)
{
	struct cnre *client;
	struct fake_host *host = attached_start(NULL, &client);
	pthread_t thread;

	fake_host_pause(host);
	cr_assert_eq(pthread_create(&thread, NULL, run_detach, client), 0);
	fake_host_lose_message(host);
	(void)pthread_join(thread, NULL);
	fake_host_restart(host, 0);
	fake_host_await_detaches(host, 1);
	fake_host_stop(host);
}
