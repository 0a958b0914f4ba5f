/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The manager's side of the descriptor store: what it counts, how long a keeper that does not answer may hold it up, and
 * how much fits. The keeper is this test, which reads its end of the socket when it wants to.
 */
#include "manager/store.h"

#include "base/clock.h"
#include "manager/keeper.h"
#include "tests/support/child.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

TestSuite(manager_store, .timeout = 60);

enum { MANY = 2000 };

static struct store *store;
static int keeper, null_fd; /* the other end of the socket; what is put */

static void open_store(void)
{
	int pair[2], small = 1;

	unsetenv("NOTIFY_SOCKET");
	cr_assert_eq(store_open(&store), 0);
	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	cr_assert_eq(setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small), 0); /* a few messages */
	store_use(store, &(struct keeper_link){.socket = pair[0], .sign = -1});
	keeper = pair[1];
	cr_assert_eq(fcntl(keeper, F_SETFL, O_NONBLOCK), 0);
	null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void close_store(void)
{
	store = store_close(store);
	(void)close(keeper);
	(void)close(null_fd);
}

static uint32_t read_all(void)
{
	struct keep_message message;
	char text[KEEP_TEXT_MAX];
	int fds[KEEP_FDS_MAX], bytes;
	uint32_t stored = 0;
	size_t count;

	while ((bytes = keep_receive(keeper, text, fds, &count)) > 0) {
		cr_assert_eq(keep_parse(text, (size_t)bytes, &message), 0);
		stored += (uint32_t)(message.store - message.remove);
		for (size_t i = 0; i < count; i++)
			(void)close(fds[i]);
	}
	return stored;
}

static struct store_status status_now(void)
{
	struct store_status status;

	store_get_status(store, &status);
	return status;
}

static int put_numbered(uint32_t i)
{
	char name[KEEP_NAME_BYTES];

	(void)snprintf(name, sizeof name, "pool%u", i);
	return store_put(store, name, null_fd);
}

Test(manager_store, a_keeper_that_does_not_answer_costs_one_time_out_in_all, .init = open_store, .fini = close_store)
{
	int64_t start_ns = cnre_clock_now_ns(), spent_ns;
	uint32_t failed = 0;

	for (uint32_t i = 0; i < MANY; i++) {
		int r = put_numbered(i);

		cr_assert(r == 0 || r == -ETIMEDOUT, "%d", r);
		failed += r < 0;
	}
	cr_expect_eq(store_barrier(store), -ETIMEDOUT);
	store_notify(store, "STATUS=waiting");
	spent_ns = cnre_clock_now_ns() - start_ns;
	cr_assert_gt(failed, MANY / 2, "or this shows nothing");
	cr_expect_lt(spent_ns, 5LL * STORE_TIMEOUT_MS * 1000000, "each was waited for");
	cr_expect(status_now().is_slow);
	cr_expect_eq(status_now().missing, failed);
	cr_expect_eq(status_now().kept, MANY - failed);
}

Test(manager_store, it_answers_again_when_all_was_taken_and_not_before, .init = open_store, .fini = close_store)
{
	uint32_t sent = 0, i = 0;

	while (put_numbered(i) == 0)
		i++;
	cr_assert_not(store_answers_again(store), "nothing was read");
	store_remove(store, "pool0");
	cr_expect_not(store_has(store, "pool0"));
	cr_expect_eq(status_now().kept, i, "it is in the store until the removal was said");
	sent = read_all();
	cr_expect_eq(sent, i);
	cr_assert_not(store_answers_again(store), "it is asked only now");
	(void)read_all();
	cr_assert(store_answers_again(store));
	cr_assert_not(store_answers_again(store), "once");
	cr_expect_eq(read_all(), (uint32_t)-1, "what could not be removed is");
	cr_expect_eq(status_now().kept, i - 1);
	cr_expect_eq(status_now().missing, 1);
	cr_assert_eq(put_numbered(i), 0);
	cr_expect_eq(status_now().missing, 0);
	cr_expect_not(status_now().is_slow);
}

Test(manager_store, a_keeper_that_died_does_not_answer_again, .init = open_store, .fini = close_store)
{
	cr_assert_eq(store_barrier(store), -ETIMEDOUT);
	(void)close(keeper); /* with it the barrier's other end */
	cr_expect_not(store_answers_again(store));
	cr_expect(status_now().is_slow);
	store_use(store, &(struct keeper_link){.socket = -1, .sign = -1});
	cr_expect(status_now().is_lost && !status_now().is_slow);
	cr_expect_eq(store_put(store, "page", null_fd), 0, "nobody keeps anything, and nobody is waited for");
}

/* What was counted for every try would refuse clients after some failures, though the store is empty. */
Test(manager_store, the_count_is_right_after_failed_and_repeated_puts, .init = open_store, .fini = close_store)
{
	cr_assert_eq(store_put(store, "page", null_fd), 0);
	cr_assert_eq(store_put(store, "page", null_fd), 0);
	cr_expect_eq(status_now().kept, 1);
	cr_expect_eq(store_put(store, "c1.chan", -1), -EBADF);
	cr_expect_eq(status_now().kept, 1);
	cr_expect_eq(status_now().missing, 1);
	store_remove(store, "c1.chan");
	store_remove(store, "c1.led");
	store_remove(store, "page");
	store_remove(store, "page");
	cr_expect_eq(status_now().kept, 0);
	cr_expect_eq(status_now().missing, 0);
	cr_expect_eq(read_all(), 1, "two puts and one removal; the names that were never there cost no message");
}

/* ---- how much fits ---- */

static int be_limited(void *unused)
{
	struct rlimit limit = {220, 220};
	uint32_t i = 0;

	(void)unused;
	if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
		return 2;
	open_store();
	while (put_numbered(i) == 0 && i < 100) {
		i++;
		(void)read_all();
	}
	if (put_numbered(i) != -ENOSPC || status_now().kept != i || status_now().fds_max != i)
		return 3;
	store_remove(store, "pool0");
	return store_has_room(store, 1) ? 4 : put_numbered(i) != 0; /* what is not a session's has the last places */
}

Test(manager_store, no_more_is_put_than_a_keeper_with_this_limit_of_descriptors_can_hand_over)
{
	cr_assert_eq(child_wait(child_start(be_limited, NULL)), 0);
}

static int fill_with_long_names(void *unused)
{
	char name[KEEP_NAME_BYTES];
	uint32_t i, room = 0;
	int r = 0;

	(void)unused;
	open_store();
	for (i = 0; i < STORE_FDS_MAX && r == 0; i++) {
		(void)snprintf(name, sizeof name, "c%022u", i);
		r = store_put(store, name, null_fd);
		room += store_has_room(store, 4);
		(void)read_all();
	}
	if (r != -ENOSPC || status_now().kept != KEEP_NAMES_BYTES_MAX / 24)
		return 1;
	return room > 0 && room < status_now().kept ? 0 : 2; /* sessions are refused before */
}

Test(manager_store, names_are_refused_before_they_are_longer_than_a_string_of_the_environment)
{
	if (sysconf(_SC_OPEN_MAX) < 2 * (long)STORE_FDS_MAX + 200)
		cr_skip("the limit of open descriptors decides here first");
	cr_assert_eq(child_wait(child_start(fill_with_long_names, NULL)), 0);
}

static int exec_with_names(void *argument)
{
	static char names[KEEP_NAMES_BYTES_MAX + 2];

	memset(names, 'n', *(const size_t *)argument);
	if (setenv("LISTEN_FDNAMES", names, 1) < 0)
		return 2;
	(void)execl("/bin/true", "true", (char *)NULL);
	return errno == E2BIG ? 7 : 3;
}

Test(manager_store, the_bound_of_the_names_is_the_kernels)
{
	size_t length = KEEP_NAMES_BYTES_MAX;

	cr_expect_eq(child_wait(child_start(exec_with_names, &length)), 0);
	length++;
	cr_expect_eq(child_wait(child_start(exec_with_names, &length)), 7);
}

/* systemd closes what is beyond its own number without a word. */
Test(manager_store, the_unit_lets_as_many_be_stored_as_the_manager_counts_on)
{
	FILE *unit = fopen("systemd/cnre-managerd.service.in", "re");
	unsigned most = 0, number;
	char line[512];

	cr_assert_not_null(unit);
	while (fgets(line, sizeof line, unit) != NULL)
		if (sscanf(line, "FileDescriptorStoreMax=%u", &number) == 1)
			most = number;
	(void)fclose(unit);
	cr_expect_geq(most, STORE_FDS_MAX);
}
