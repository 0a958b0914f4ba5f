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

/*
 * Without SO_PEERPIDFD the pid is opened by number, now, while the connection is fresh: the peer connected a moment
 * ago. If it is gone and its number taken already, the socket has hung up as well, and that ends the connection.
 */
static int open_pidfd(int socket, pid_t pid)
{
	socklen_t length = sizeof(int);
	int pidfd = -1;

	if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &length) == 0 && pidfd >= 0) {
		(void)fcntl(pidfd, F_SETFD, FD_CLOEXEC);
		return pidfd;
	}
	return pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
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
	peer->pidfd = open_pidfd(peer->socket, credentials.pid);
	return 0;
}

int peer_may_administer(const struct peer *peer)
{
	return peer->uid == 0 || peer->uid == geteuid();
}
