/* SPDX-License-Identifier: Apache-2.0 */
/* SO_PEERCRED and SO_PEERPIDFD; see peer.h. */
#include "manager/peer.h"

#include <errno.h>
#include <fcntl.h>
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
 * Without SO_PEERPIDFD the pid is opened by number, now, while the connection is fresh: the peer connected a moment
 * ago. Where the kernel has it and finds no process, none is looked for by number: it might be another's by now.
 */
static int open_pidfd(int socket, pid_t pid, int *ret_pidfd)
{
	socklen_t length = sizeof(int);
	int pidfd = -1;

	if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &length) < 0 && errno == ENOPROTOOPT && pid > 0)
		pidfd = (int)syscall(SYS_pidfd_open, pid, 0); /* CLOEXEC by itself */
	if (pidfd < 0 && is_shortage(errno))
		return -errno;
	if (pidfd >= 0)
		(void)fcntl(pidfd, F_SETFD, FD_CLOEXEC);
	*ret_pidfd = pidfd;
	return 0;
}

int peer_identify(struct peer *peer)
{
	struct ucred credentials;
	socklen_t length = sizeof credentials;

	if (getsockopt(peer->socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) < 0)
		return -errno;
	peer->uid = credentials.uid;
	peer->gid = credentials.gid;
	peer->pid = credentials.pid;
	return open_pidfd(peer->socket, credentials.pid, &peer->pidfd);
}

int peer_may_administer(const struct peer *peer)
{
	return peer->uid == 0 || peer->uid == geteuid();
}
