/* SPDX-License-Identifier: Apache-2.0 */
/* The process at the other end of a socket: found again later, and never another one of the same number. */
#include "manager/peer.h"

#include "base/clock.h"
#include "tests/support/child.h"

#include <criterion/criterion.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(manager_peer, .timeout = 20);

static struct sockaddr_un address = {.sun_family = AF_UNIX};
static socklen_t address_bytes;

static int connect_and_wait(void *unused)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	(void)unused;
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (connect(fd, (struct sockaddr *)&address, address_bytes) == 0)
		(void)pause();
	return 1;
}

/* A connection whose peer is a child; an abstract address, bound by the kernel's own choice. */
static pid_t accept_child(struct peer *peer)
{
	int listening = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	pid_t child;

	cr_assert_eq(bind(listening, (struct sockaddr *)&address, sizeof(sa_family_t)), 0);
	cr_assert_eq(listen(listening, 1), 0);
	address_bytes = sizeof address;
	cr_assert_eq(getsockname(listening, (struct sockaddr *)&address, &address_bytes), 0);
	child = child_start(connect_and_wait, NULL);
	peer->socket = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
	cr_assert_geq(peer->socket, 0);
	(void)close(listening);
	return child;
}

static int has_ended(int pidfd)
{
	struct pollfd end = {.fd = pidfd, .events = POLLIN};

	return poll(&end, 1, 0) == 1;
}

static void find_it_later(void)
{
	struct peer peer = {.pidfd = 77};
	pid_t child = accept_child(&peer);

	cr_assert_eq(peer_find_process(&peer, cnre_clock_now_ns()), 0);
	cr_assert_geq(peer.pidfd, 0);
	cr_assert_neq(peer.pidfd, 77);
	cr_expect_not(has_ended(peer.pidfd));
	(void)kill(child, SIGKILL);
	(void)child_wait(child);
	cr_expect(has_ended(peer.pidfd), "it is another process's");
	cr_assert_eq(peer_find_process(&peer, cnre_clock_now_ns()), 0);
	cr_expect(peer.pidfd < 0 || has_ended(peer.pidfd), "it has gone");
}

Test(manager_peer, a_process_is_found_by_its_connection)
{
	find_it_later();
}

Test(manager_peer, a_process_is_found_by_number_where_the_kernel_knows_no_other_way)
{
	(void)setenv("CNRE_TEST_NO_PEERPIDFD", "1", 1);
	find_it_later();
}

Test(manager_peer, a_process_that_is_younger_than_the_connection_is_not_believed)
{
	struct peer peer = {.pidfd = 77};
	pid_t child = accept_child(&peer);

	(void)setenv("CNRE_TEST_NO_PEERPIDFD", "1", 1);
	cr_assert_eq(peer_find_process(&peer, 1000), 0);
	cr_expect_eq(peer.pidfd, -1);
	cr_assert_eq(peer_identify(&peer), 0);
	cr_expect_geq(peer.pidfd, 0, "a fresh connection's is");
	(void)kill(child, SIGKILL);
	(void)child_wait(child);
}
