/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening and closing a session; see session.h. Between a client that comes and a manager that leaves there is always a
 * moment when the socket is there and nobody behind it, so ENOENT, ECONNREFUSED and an end of file before the first
 * answer mean "start over" as long as somebody may come: a manager that we may start, or one that was just there (R30).
 * While a manager is restarted its socket stays: a connection waits there for the successor, or ends and is made anew.
 */
#include "client/session.h"

#include "base/clock.h"
#include "client/autostart.h"
#include "client/map.h"

#include <string.h>
#include <unistd.h>

#define RETRY_NS (5 * CNRE_NS_PER_MS)
#define STARTS_MAX 3
#define RETURN_NS (5 * CNRE_NS_PER_S) /* how long the socket of a manager that was just there may be nobody's */

static int use_welcome(struct cnre *client, struct cnre_answer *answer)
{
	struct cnre_wire_welcome welcome;

	memcpy(&welcome, answer->message, sizeof welcome);
	if (welcome.status == -EMFILE || welcome.status == -ENFILE)
		return -EAGAIN; /* the manager is out of descriptors, and not for good: connections that say nothing end */
	if (welcome.status != 0)
		return welcome.status > 0 ? -EBADMSG : welcome.status;
	if (answer->fd_count != CNRE_FD_COUNT || welcome.reserve_slabs > CNRE_HELD_MAX)
		return -EBADMSG;
	client->session = welcome.session;
	client->reserve_slabs = welcome.reserve_slabs;
	client->reserve_bytes = welcome.reserve_bytes;
	return cnre_map_fixed(client, answer->fds);
}

/* 1 answered, *ret_result: how; or -errno without an answer. */
static int say_hello(struct cnre *client, const struct cnre_attach_request *request, int *ret_result)
{
	struct cnre_wire_hello hello;
	struct cnre_answer answer;
	int r;

	cnre_options_fill_hello(request, &hello);
	r = cnre_connection_ask(client, &hello, sizeof hello, CNRE_WIRE_HELLO, CNRE_WIRE_WELCOME,
				sizeof(struct cnre_wire_welcome), request->deadline_ns, &answer);
	if (r < 0)
		return r;
	*ret_result = use_welcome(client, &answer);
	cnre_connection_close_fds(&answer);
	if (*ret_result < 0) {
		cnre_map_done(client);
		cnre_map_page_done(client);
	}
	return 1;
}

/* As say_hello. The socket stays open only with a session. */
static int try_once(struct cnre *client, const struct cnre_attach_request *request,
		    const struct cnre_endpoint *endpoint, int *ret_result)
{
	int r = cnre_connection_open(client, endpoint->path);

	if (r < 0)
		return r;
	r = say_hello(client, request, ret_result);
	if (r < 0 || *ret_result < 0)
		cnre_connection_close(client);
	return r;
}

static int is_nobody(int r)
{
	return r == -ENOENT || r == -ECONNREFUSED || r == -EPIPE || r == -ENOTDIR;
}

/* Starts a manager unless ours or another's is on its way. 0, or -ECONNREFUSED: it will not come. */
static int start_if_needed(const struct cnre_attach_request *request, const struct cnre_endpoint *endpoint, int *life,
			   int *starts)
{
	if (*life >= 0 && !cnre_autostart_has_ended(*life))
		return 0;
	if (*life >= 0 && cnre_autostart_is_locked(endpoint))
		return 0;
	if (*life >= 0)
		(void)close(*life);
	*life = -1;
	if (*starts == STARTS_MAX)
		return -ECONNREFUSED;
	(*starts)++;
	return cnre_autostart(request->path, endpoint, request->options.private_bytes, request->options.view, life) < 0
		       ? -ECONNREFUSED
		       : 0;
}

static void pause_until_retry(void)
{
	struct timespec pause = {.tv_nsec = RETRY_NS};

	(void)nanosleep(&pause, NULL); /* shorter after a signal: the next try is only earlier */
}

int cnre_session_open(struct cnre *client, const struct cnre_attach_request *request,
		      const struct cnre_endpoint *endpoint)
{
	int may_start = endpoint->may_start && (request->options.flags & CNRE_NO_AUTOSTART) == 0;
	int64_t return_deadline_ns = 0; /* passed: nobody was there yet */
	int life = -1, starts = 0;
	int r, result = 0;

	(void)memcpy(client->socket_path, endpoint->path, sizeof client->socket_path);
	for (;;) {
		r = try_once(client, request, endpoint, &result);
		if (r == 1) {
			r = result;
			break;
		}
		if (r != -EAGAIN && !is_nobody(r))
			break;
		if (r == -EAGAIN || r == -EPIPE) /* somebody listens: while that is so, only the time-out ends it */
			return_deadline_ns = cnre_clock_deadline_ns(RETURN_NS);
		if (r != -EAGAIN && may_start) {
			r = start_if_needed(request, endpoint, &life, &starts);
			if (r < 0)
				break;
		} else if (r != -EAGAIN) {
			r = -ECONNREFUSED;
			if (cnre_clock_left_ns(return_deadline_ns) == 0)
				break;
		}
		r = -ETIMEDOUT;
		if (cnre_clock_left_ns(request->deadline_ns) == 0)
			break;
		pause_until_retry();
	}
	if (life >= 0)
		(void)close(life);
	return r;
}

/*
 * No answer, but the socket is there: a manager that is stopped, or being restarted. What is in the socket when we
 * close it is read by whoever serves next, unless the dead manager had taken the request already: so it is said once
 * more. A close with messages unread would reset the connection, and the other end might not get to read it.
 */
static void leave_word(struct cnre *client)
{
	struct cnre_wire_detach detach;

	/* No room: it is in there already. */
	(void)cnre_connection_tell(client, &detach, sizeof detach, CNRE_WIRE_DETACH);
	cnre_connection_drain(client);
}

/* Where no word of ours arrives the manager still sees the end of this process. */
void cnre_session_close(struct cnre *client)
{
	struct cnre_wire_detach detach;
	struct cnre_answer answer;

	int r;

	if (client->socket >= 0) {
		r = cnre_connection_ask(client, &detach, sizeof detach, CNRE_WIRE_DETACH, CNRE_WIRE_DETACH,
					sizeof detach, cnre_clock_deadline_ns(CNRE_DETACH_NS), &answer);
		if (r == 0)
			cnre_connection_close_fds(&answer);
		if (r == -ETIMEDOUT)
			leave_word(client);
		cnre_connection_close(client);
	}
	cnre_map_page_done(client);
}
