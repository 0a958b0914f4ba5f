/* SPDX-License-Identifier: Apache-2.0 */
/* Requests on the manager's socket; see connection.h. */
#include "client/connection.h"

#include "base/clock.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define POLL_MS_MAX 60000 /* a longer wait is several polls */

int cnre_connection_open(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd, r;

	if (strlen(path) >= sizeof address.sun_path)
		return -ENAMETOOLONG;
	memcpy(address.sun_path, path, strlen(path) + 1);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
		return fd;
	r = -errno;
	(void)close(fd);
	return r;
}

void cnre_connection_close_fds(struct cnre_answer *answer)
{
	for (size_t i = 0; i < answer->fd_count; i++)
		(void)close(answer->fds[i]);
	answer->fd_count = 0;
}

static int wait_for(int socket, short events, int64_t deadline_ns)
{
	struct pollfd wanted = {.fd = socket, .events = events};

	for (;;) {
		int64_t left_ms = cnre_clock_left_ns(deadline_ns) / CNRE_NS_PER_MS;
		int n = poll(&wanted, 1, left_ms < POLL_MS_MAX ? (int)left_ms : POLL_MS_MAX);

		if (n > 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n == 0 && cnre_clock_left_ns(deadline_ns) < CNRE_NS_PER_MS)
			return -ETIMEDOUT;
	}
}

static int send_request(int socket, const void *message, size_t bytes, int64_t deadline_ns)
{
	for (;;) {
		int r = cnre_wire_send(socket, message, bytes, NULL, 0);

		if (r == -ECONNRESET)
			return -EPIPE;
		if (r != -EAGAIN)
			return r;
		r = wait_for(socket, POLLOUT, deadline_ns);
		if (r < 0)
			return r;
	}
}

static int receive_answer(struct cnre *client, uint32_t id, int64_t deadline_ns, struct cnre_answer *answer)
{
	for (;;) {
		struct cnre_wire_header header;
		int r = wait_for(client->socket, POLLIN, deadline_ns);

		if (r < 0)
			return r;
		answer->fd_count = 0;
		r = cnre_wire_receive(client->socket, client->buffer, answer->fds, &answer->fd_count);
		if (r == -EAGAIN)
			continue;
		if (r == 0 || r == -ECONNRESET)
			return -EPIPE;
		if (r < 0)
			return r;
		memcpy(&header, client->buffer, sizeof header); /* cnre_wire_receive gives a whole header at least */
		if (header.id == id)
			return r;
		cnre_connection_close_fds(answer); /* of a request that was given up */
	}
}

int cnre_connection_ask(struct cnre *client, void *message, size_t bytes, enum cnre_wire_type ask,
			enum cnre_wire_type type, size_t min_bytes, int64_t deadline_ns, struct cnre_answer *ret_answer)
{
	uint32_t id = ++client->next_id;
	int r;

	cnre_wire_fill(message, ask, id, bytes);
	r = send_request(client->socket, message, bytes, deadline_ns);
	if (r < 0)
		return r;
	r = receive_answer(client, id, deadline_ns, ret_answer);
	if (r < 0)
		return r;
	r = cnre_wire_expect(client->buffer, r, type, min_bytes);
	if (r < 0)
		cnre_connection_close_fds(ret_answer);
	else
		ret_answer->message = client->buffer;
	return r;
}

int cnre_connection_check(struct cnre *client)
{
	struct pollfd wanted = {.fd = client->socket, .events = POLLRDHUP};

	if (cnre_connection_is_gone(client))
		return -EPIPE;
	if (poll(&wanted, 1, 0) <= 0 || (wanted.revents & (POLLHUP | POLLRDHUP | POLLERR | POLLNVAL)) == 0)
		return 0;
	/* [N2] relaxed: as [N1]. */
	atomic_store_explicit(&client->gone, 1, memory_order_relaxed);
	return -EPIPE;
}
