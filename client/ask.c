/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests on the manager's socket, across a restart of the manager. The socket outlives a manager (its successor gets
 * the other end), so a request that was not read yet is answered later; one that the dead manager had read is lost, and
 * sent again when the epoch shows that a successor has taken over (R28). Every request may be carried out twice. A
 * repeat has the id of the first, so whichever is answered first will do; the other answer is then one of an old id,
 * which is thrown away with its descriptors when the next request begins.
 */
#include "base/clock.h"
#include "client/connection.h"
#include "shm/futex.h"

#include <poll.h>
#include <string.h>
#include <unistd.h>

#define STRAYS_MAX 64 /* answers to nobody that are thrown away in one go */

void cnre_connection_close_fds(struct cnre_answer *answer)
{
	for (size_t i = 0; i < answer->fd_count; i++)
		(void)close(answer->fds[i]);
	answer->fd_count = 0;
}

/* Waits for one slice at most: 0 (look again), or -errno. */
static int wait_for(int socket, short events, int64_t left_ns)
{
	struct pollfd wanted = {.fd = socket, .events = events};
	int64_t slice_ns = left_ns < CNRE_WAIT_SLICE_NS ? left_ns : CNRE_WAIT_SLICE_NS;
	int n = poll(&wanted, 1, (int)((slice_ns + CNRE_NS_PER_MS - 1) / CNRE_NS_PER_MS));

	return n >= 0 || errno == EINTR ? 0 : -errno;
}

/* The bytes of one message, whatever its id, or -EAGAIN, -EPIPE, … */
static int receive_any(struct cnre *client, struct cnre_answer *answer)
{
	int r;

	answer->fd_count = 0;
	if (!cnre_connection_is_ours(client))
		return -EPIPE;
	r = cnre_wire_receive(client->socket, client->buffer, answer->fds, &answer->fd_count);
	return r == 0 || r == -ECONNRESET ? -EPIPE : r;
}

void cnre_connection_drain(struct cnre *client)
{
	struct cnre_answer stray;
	int r = 0;

	for (int i = 0; i < STRAYS_MAX && r != -EAGAIN && r != -EPIPE; i++) {
		r = receive_any(client, &stray);
		if (r > 0)
			cnre_connection_close_fds(&stray);
	}
}

static int send_request(struct cnre *client, const void *message, size_t bytes, int64_t deadline_ns)
{
	for (;;) {
		int64_t left_ns;
		int r;

		if (!cnre_connection_is_ours(client))
			return -EPIPE;
		r = cnre_wire_send(client->socket, message, bytes, NULL, 0);
		if (r != -EAGAIN)
			return r == -ECONNRESET ? -EPIPE : r;
		left_ns = cnre_clock_left_ns(deadline_ns);
		if (left_ns == 0)
			return -ETIMEDOUT;
		r = wait_for(client->socket, POLLOUT, left_ns);
		if (r < 0)
			return r;
	}
}

/* The bytes of the answer with our id, or -ESTALE: a successor has taken over since `epoch`; or another -errno. */
static int receive_answer(struct cnre *client, uint32_t id, uint32_t epoch, int64_t deadline_ns,
			  struct cnre_answer *answer)
{
	for (;;) {
		struct cnre_wire_header header;
		int64_t left_ns;
		int r = receive_any(client, answer);

		if (r < 0 && r != -EAGAIN)
			return r;
		if (r > 0) {
			memcpy(&header, client->buffer, sizeof header); /* a whole header at least was received */
			if (header.id == id)
				return r;
			cnre_connection_close_fds(answer); /* of a request that was given up */
		}
		left_ns = cnre_clock_left_ns(deadline_ns);
		if (left_ns == 0)
			return -ETIMEDOUT;
		if (cnre_client_epoch(client) != epoch)
			return -ESTALE;
		if (r == -EAGAIN)
			r = wait_for(client->socket, POLLIN, left_ns);
		if (r < 0)
			return r;
	}
}

int cnre_connection_ask(struct cnre *client, void *message, size_t bytes, enum cnre_wire_type ask,
			enum cnre_wire_type type, size_t min_bytes, int64_t deadline_ns, struct cnre_answer *ret_answer)
{
	uint32_t id = ++client->next_id;
	int r;

	/* Descriptors that we have not read keep the manager from sending others (R27). */
	cnre_connection_drain(client);
	cnre_wire_fill(message, ask, id, bytes);
	do {
		/* Before it is sent: perhaps repeated in vain, never lost. */
		uint32_t epoch = cnre_client_epoch(client);

		r = send_request(client, message, bytes, deadline_ns);
		if (r == 0)
			r = receive_answer(client, id, epoch, deadline_ns, ret_answer);
	} while (r == -ESTALE);
	if (r < 0)
		return r;
	r = cnre_wire_expect(client->buffer, r, type, min_bytes);
	if (r < 0)
		cnre_connection_close_fds(ret_answer);
	else
		ret_answer->message = client->buffer;
	return r;
}

int cnre_connection_tell(struct cnre *client, void *message, size_t bytes, enum cnre_wire_type type)
{
	cnre_wire_fill(message, type, ++client->next_id, bytes);
	return send_request(client, message, bytes, 0);
}
