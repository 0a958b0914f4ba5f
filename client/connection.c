/* SPDX-License-Identifier: Apache-2.0 */
/* The manager's socket: opening, closing, and whether it is still there and still ours; see connection.h. */
#include "client/connection.h"

#include "base/clock.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* ---- whose descriptor it is ---- */

/* A socket's inode number is its own for as long as it lives. */
static int remember(struct cnre *client, int fd)
{
	struct stat status;

	if (fstat(fd, &status) < 0)
		return -errno;
	client->socket_device = status.st_dev;
	client->socket_inode = status.st_ino;
	client->socket = fd;
	return 0;
}

int cnre_connection_is_ours(const struct cnre *client)
{
	struct stat status;

	return client->socket >= 0 && fstat(client->socket, &status) == 0 && S_ISSOCK(status.st_mode) &&
	       status.st_dev == client->socket_device && status.st_ino == client->socket_inode;
}

int cnre_connection_open(struct cnre *client, const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd, r;

	if (strlen(path) >= sizeof address.sun_path)
		return -EINVAL;
	memcpy(address.sun_path, path, strlen(path) + 1);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	r = connect(fd, (struct sockaddr *)&address, sizeof address) == 0 ? remember(client, fd) : -errno;
	if (r < 0)
		(void)close(fd);
	return r;
}

void cnre_connection_close(struct cnre *client)
{
	if (cnre_connection_is_ours(client))
		(void)close(client->socket);
	client->socket = -1;
}

/* ---- whether it is there ---- */

int cnre_connection_check(struct cnre *client)
{
	struct pollfd wanted = {.fd = client->socket, .events = POLLRDHUP};

	if (cnre_connection_is_gone(client))
		return -EPIPE;
	if (poll(&wanted, 1, 0) <= 0 || (wanted.revents & (POLLHUP | POLLRDHUP | POLLERR)) == 0)
		return 0;
	/* A number that is ours afterwards was ours before; what ended otherwise is not the manager. */
	if (!cnre_connection_is_ours(client))
		return 0;
	/* [N2] relaxed: as [N1]. */
	atomic_store_explicit(&client->gone, 1, memory_order_relaxed);
	return -EPIPE;
}

/* ---- whose turn it is ---- */

int cnre_connection_lock(struct cnre *client, int64_t deadline_ns)
{
	struct timespec end = {.tv_sec = deadline_ns / CNRE_NS_PER_S, .tv_nsec = deadline_ns % CNRE_NS_PER_S};
	int r = 0;

	(void)pthread_mutex_lock(&client->control);
	while (client->asking && r == 0)
		r = deadline_ns == CNRE_NEVER ? pthread_cond_wait(&client->asked, &client->control)
					      : pthread_cond_timedwait(&client->asked, &client->control, &end);
	if (!client->asking) {
		client->asking = 1;
		r = 0;
	}
	(void)pthread_mutex_unlock(&client->control);
	return -r;
}

void cnre_connection_unlock(struct cnre *client)
{
	(void)pthread_mutex_lock(&client->control);
	client->asking = 0;
	(void)pthread_cond_signal(&client->asked);
	(void)pthread_mutex_unlock(&client->control);
}
