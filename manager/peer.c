/* SPDX-License-Identifier: Apache-2.0 */
/* SO_PEERCRED and SO_PEERPIDFD; see peer.h. */
#include "manager/peer.h"

#include "base/clock.h"
#include "shm/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5; Debian 12's headers are older */
#endif

static int is_shortage(int error)
{
	return error == EMFILE || error == ENFILE || error == ENOMEM;
}

/*
 * By the socket where the kernel can: 0, or -errno. -ENOPROTOOPT: it cannot. Where it can and finds no process, none is
 * looked for by number: it might be another's by now.
 */
static int ask_socket(int socket, int *ret_pidfd)
{
	socklen_t length = sizeof(int);
	int pidfd;

	if (getenv("CNRE_TEST_NO_PEERPIDFD") != NULL)
		return -ENOPROTOOPT;
	if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &length) < 0)
		return -errno;
	(void)fcntl(pidfd, F_SETFD, FD_CLOEXEC);
	*ret_pidfd = pidfd;
	return 0;
}

static int open_by_number(pid_t pid, int *ret_pidfd)
{
	int pidfd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1; /* CLOEXEC by itself */

	if (pidfd < 0)
		return pid > 0 ? -errno : -ESRCH;
	*ret_pidfd = pidfd;
	return 0;
}

/* What is a shortage here passes, and nobody shall live without a pidfd because of it. */
static int unless_short(int result)
{
	return result < 0 && is_shortage(-result) ? result : 0;
}

/*
 * A number may have gone to another process since. It has not if who has it now was born before the connection. The pidfd
 * comes first: if its process lives after the look at the birth, that was its own. Ticks count suspended time, too, so an
 * error is on the side of not believing.
 */
static int is_as_old(pid_t pid, int pidfd, int64_t connected_ns)
{
	struct pollfd end = {.fd = pidfd, .events = POLLIN};
	uint64_t birth = cnre_segment_birth(pid), ticks = (uint64_t)sysconf(_SC_CLK_TCK);

	return birth > 0 && connected_ns > 0 && poll(&end, 1, 0) == 0 &&
	       birth <= (uint64_t)connected_ns / (CNRE_NS_PER_S / ticks) + 1;
}

int peer_find_process(struct peer *peer, int64_t connected_ns)
{
	struct ucred credentials;
	socklen_t length = sizeof credentials;
	int pidfd = -1, r = ask_socket(peer->socket, &pidfd);

	peer->pidfd = -1;
	if (r != -ENOPROTOOPT) {
		peer->pidfd = pidfd;
		return unless_short(r);
	}
	if (getsockopt(peer->socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) < 0)
		return -errno;
	r = open_by_number(credentials.pid, &pidfd);
	if (r < 0)
		return unless_short(r);
	if (is_as_old(credentials.pid, pidfd, connected_ns))
		peer->pidfd = pidfd;
	else
		(void)close(pidfd);
	return 0;
}

int peer_identify(struct peer *peer)
{
	struct ucred credentials;
	socklen_t length = sizeof credentials;
	int r;

	if (getsockopt(peer->socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) < 0)
		return -errno;
	peer->uid = credentials.uid;
	peer->gid = credentials.gid;
	peer->pid = credentials.pid;
	peer->pidfd = -1;
	r = ask_socket(peer->socket, &peer->pidfd);
	if (r == -ENOPROTOOPT) /* by number, now, while the connection is fresh: the peer connected a moment ago */
		r = open_by_number(credentials.pid, &peer->pidfd);
	return unless_short(r);
}

int peer_may_administer(const struct peer *peer)
{
	return peer->uid == 0 || peer->uid == geteuid();
}
