/* SPDX-License-Identifier: Apache-2.0 */
/* Accepting, the life of a connection before it is a session, and leaving when idle; see listener.h. */
#include "manager/listener.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/crash.h"
#include "base/log.h"
#include "manager/control.h"
#include "manager/persist.h"
#include "manager/session.h"
#include "manager/socket_path.h"
#include "manager/store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

struct connection {
	struct loop_source source;
	struct manager *manager;
	struct peer peer;
	struct connection *next, **link;
	int64_t heard_ns;
};

struct listener {
	struct loop_source source; /* first: the callback gets its address */
	struct manager *manager;
	struct socket_path socket;
	struct connection *connections;
	uint32_t connection_count;
	int64_t idle_exit_ns;
	int64_t idle_since_ns;   /* 0: somebody is here */
	int64_t paused_until_ns; /* 0: accepting */
	int64_t next_path_check_ns;
	unsigned mode;
	const char *group;
	int lost_path;
	struct cnre_log_limit refusal_limit;
};

/* ---- connections ---- */

static void connection_forget(struct connection *connection)
{
	*connection->link = connection->next;
	if (connection->next != NULL)
		connection->next->link = connection->link;
	connection->manager->listener->connection_count--;
	free(connection);
}

static void connection_end(struct connection *connection)
{
	survey_forget(&connection->peer.question);
	loop_remove(connection->manager->loop, &connection->source);
	(void)close(connection->peer.socket);
	if (connection->peer.pidfd >= 0)
		(void)close(connection->peer.pidfd);
	connection_forget(connection);
}

static int refuse_hello(struct connection *connection, uint32_t id, int status, const char *message)
{
	struct listener *listener = connection->manager->listener;
	struct cnre_wire_welcome welcome = {.status = status, .manager_pid = (uint32_t)getpid()};

	cnre_counter_add(&connection->manager->counters->attaches_refused, 1);
	if (cnre_log_allowed(&listener->refusal_limit, cnre_clock_now_ns()))
		cnre_log(CNRE_LOG_WARNING, "attach refused: pid %d, uid %u: %s: %s", (int)connection->peer.pid,
			 connection->peer.uid, strerror(-status), message);
	(void)snprintf(welcome.message, sizeof welcome.message, "%s", message);
	cnre_wire_fill(&welcome.header, CNRE_WIRE_WELCOME, id, sizeof welcome);
	return cnre_wire_send(connection->peer.socket, &welcome, sizeof welcome, NULL, 0);
}

/* 0: the connection is a session now, and gone; 1: it stays; negative: end it. */
static int take_hello(struct connection *connection, const struct cnre_wire_hello *hello)
{
	char message[SESSION_MESSAGE_BYTES];
	int r;

	loop_remove(connection->manager->loop, &connection->source);
	survey_forget(
		&connection->peer
			 .question); /* its place changes; who asks and attaches without reading gets one answer */
	r = session_begin(connection->manager, &connection->peer, hello, message);
	if (r == 0) {
		connection_forget(connection);
		return 0;
	}
	if (refuse_hello(connection, hello->header.id, r, message) < 0)
		return -EPIPE;
	return loop_add(connection->manager->loop, &connection->source, EPOLLIN | EPOLLRDHUP) < 0 ? -EPIPE : 1;
}

/* One message, and at most one descriptor; none is ever installed for somebody who may not give orders. */
static int receive(struct connection *connection, void *buffer, int *ret_fd)
{
	int fds[CNRE_WIRE_FDS_MAX], r;
	size_t count = 0;

	*ret_fd = -1;
	if (!peer_may_administer(&connection->peer))
		return cnre_wire_receive(connection->peer.socket, buffer, NULL, NULL);
	r = cnre_wire_receive(connection->peer.socket, buffer, fds, &count);
	if (r <= 0)
		return r;
	for (size_t i = 1; i < count; i++)
		(void)close(fds[i]);
	if (count > 0)
		*ret_fd = fds[0];
	return r;
}

/* A client of another layout version cannot understand our structs, but the header and the status are where they were. */
static int take_message(struct connection *connection)
{
	_Alignas(8) char buffer[CNRE_WIRE_MESSAGE_MAX];
	int fd, r = receive(connection, buffer, &fd);

	if (r == -EAGAIN)
		return 1;
	if (r == -EPROTO) {
		(void)refuse_hello(
			connection, 0, -EPROTO,
			"the client speaks another layout version: install libcnre and cnre-managerd of one release");
		return r;
	}
	if (r <= 0)
		return -EPIPE;
	connection->heard_ns = cnre_clock_now_ns();
	if (fd < 0 && cnre_wire_expect(buffer, r, CNRE_WIRE_HELLO, sizeof(struct cnre_wire_hello)) == 0)
		return take_hello(connection, (const struct cnre_wire_hello *)buffer);
	if (cnre_wire_expect(buffer, r, CNRE_WIRE_CONTROL, sizeof(struct cnre_wire_control)) == 0)
		return control_answer(connection->manager, &connection->peer, (const struct cnre_wire_control *)buffer,
				      fd) < 0
			       ? -EPIPE
			       : 1;
	if (fd >= 0)
		(void)close(fd);
	return -EBADMSG;
}

static void connection_ready(struct loop_source *source, uint32_t events)
{
	struct connection *connection = (struct connection *)((char *)source - offsetof(struct connection, source));
	int r;

	if ((events & EPOLLIN) != 0 && control_must_wait(connection->manager, source->fd))
		return;
	r = (events & EPOLLIN) != 0 ? take_message(connection) : -EPIPE;
	if (r < 0)
		connection_end(connection);
}

/* Keeping connections alive costs their owner one message in half a minute, so no user may have all of them. */
static int has_too_many(const struct listener *listener, const struct peer *peer)
{
	uint32_t count = 0;

	for (const struct connection *other = listener->connections; other != NULL; other = other->next)
		count += other->peer.uid == peer->uid;
	return count >= LISTENER_CONNECTIONS_PER_UID_MAX && !peer_may_administer(peer);
}

static int connection_begin(struct listener *listener, int fd)
{
	struct connection *connection = calloc(1, sizeof *connection);
	int r;

	if (connection == NULL)
		return -ENOMEM;
	connection->manager = listener->manager;
	connection->heard_ns = cnre_clock_now_ns();
	connection->peer.socket = fd;
	connection->source = (struct loop_source){.fd = fd, .ready = connection_ready};
	r = peer_identify(&connection->peer);
	if (r < 0)
		goto drop;
	r = has_too_many(listener, &connection->peer)
		    ? -EUSERS
		    : loop_add(listener->manager->loop, &connection->source, EPOLLIN | EPOLLRDHUP);
	if (r < 0)
		goto drop_pidfd;
	connection->next = listener->connections;
	connection->link = &listener->connections;
	if (connection->next != NULL)
		connection->next->link = &connection->next;
	listener->connections = connection;
	listener->connection_count++;
	listener->idle_since_ns = 0;
	return 0;

drop_pidfd:
	if (connection->peer.pidfd >= 0)
		(void)close(connection->peer.pidfd);
drop:
	free(connection);
	return r;
}

/* ---- accepting ---- */

/* Out of descriptors, or of room: stop listening for a moment. Level-triggered accept would spin (D12). */
static void pause_accepting(struct listener *listener)
{
	if (loop_change(listener->manager->loop, &listener->source, 0) == 0)
		listener->paused_until_ns = cnre_clock_now_ns() + LISTENER_PAUSE_NS;
}

/* For want of descriptors or memory accepting pauses. A connection takes two, and either may be the last. */
static void look_if_run_out(struct listener *listener, int error)
{
	if (error != EMFILE && error != ENFILE && error != ENOMEM && error != ENOBUFS)
		return;
	if (cnre_log_allowed(&listener->refusal_limit, cnre_clock_now_ns()))
		cnre_log(CNRE_LOG_WARNING, "accept: %s: raise LimitNOFILE or end clients", strerror(error));
	pause_accepting(listener);
}

static void accept_one(struct loop_source *source, uint32_t events)
{
	struct listener *listener = (struct listener *)source;
	int fd, r;

	(void)events;
	if (listener->connection_count >= LISTENER_CONNECTIONS_MAX) {
		pause_accepting(listener);
		return;
	}
	fd = accept4(listener->socket.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0) {
		look_if_run_out(listener, errno);
		return;
	}
	r = connection_begin(listener, fd);
	if (r < 0) {
		(void)close(fd);
		look_if_run_out(listener, -r);
	}
}

/* ---- time ---- */

static void end_silent(struct listener *listener, int64_t now_ns)
{
	struct connection *next;

	for (struct connection *connection = listener->connections; connection != NULL; connection = next) {
		next = connection->next;
		if (now_ns - connection->heard_ns > LISTENER_SILENCE_NS)
			connection_end(connection);
	}
}

/*
 * Somebody removed our path, or put a socket there that nobody listens on. We hold its lock, so that no other manager
 * comes, and whoever looks for one is helped by binding it again.
 *
 * Crash note: killed before the new socket is stored, the successor has the former one, and finds a path that is not ours
 * and that nobody listens on; it does the same.
 */
static int regain_path(struct listener *listener, char *message)
{
	struct manager *manager = listener->manager;
	int r;

	if (listener->socket.lock_fd < 0) {
		(void)snprintf(message, 256, "it is the service manager's, with its socket unit");
		return -EPERM;
	}
	loop_remove(manager->loop, &listener->source);
	r = socket_path_bind_again(&listener->socket, listener->mode, listener->group, message);
	CNRE_CRASH_POINT("listen-bound");
	listener->source.fd = listener->socket.fd;
	if (r == 0)
		persist_new_listener(manager);
	return loop_add(manager->loop, &listener->source, EPOLLIN) < 0 ? -EIO : r;
}

/* R30: what is at our path is another program's. Those who are attached are served; nobody new can find us. */
static void check_path(struct listener *listener, int64_t now_ns)
{
	char message[256] = "";

	listener->next_path_check_ns = now_ns + LISTENER_PATH_CHECK_NS;
	if (listener->lost_path || socket_path_is_ours(&listener->socket))
		return;
	if (regain_path(listener, message) == 0) {
		cnre_log(CNRE_LOG_WARNING, "the socket %s was gone: bound it again", listener->socket.path);
		return;
	}
	listener->lost_path = 1;
	cnre_log(
		CNRE_LOG_ERROR,
		"the socket %s is not ours any more: attached clients are served, then this manager leaves and lets it "
		"be; start it again: %s",
		listener->socket.path, message);
}

static int is_idle(const struct listener *listener)
{
	return listener->connection_count == 0 && listener->manager->sessions->active_count == 0;
}

/*
 * R30: unlink, then leave. Whoever connected between the two reads EOF before the first reply and starts over, and finds
 * either no socket or the next manager's (tests/model/start.pml); so nobody needs to be waited for here.
 */
static void leave(struct listener *listener)
{
	socket_path_unlink(&listener->socket);
	CNRE_CRASH_POINT("listen-unlinked");
	listener->manager->stopping = 1;
}

static void check_idle(struct listener *listener, int64_t now_ns)
{
	int64_t limit_ns = listener->lost_path ? 1 : listener->idle_exit_ns;

	if (!is_idle(listener) || limit_ns == 0) {
		listener->idle_since_ns = 0;
		return;
	}
	if (listener->idle_since_ns == 0)
		listener->idle_since_ns = now_ns;
	else if (now_ns - listener->idle_since_ns >= limit_ns)
		leave(listener);
}

void listener_tick(struct manager *manager, int64_t now_ns)
{
	struct listener *listener = manager->listener;

	if (listener->paused_until_ns != 0 && now_ns >= listener->paused_until_ns) {
		listener->paused_until_ns = 0;
		(void)loop_change(manager->loop, &listener->source, EPOLLIN);
	}
	end_silent(listener, now_ns);
	if (now_ns >= listener->next_path_check_ns)
		check_path(listener, now_ns);
	check_idle(listener, now_ns);
}

int64_t listener_deadline_ns(const struct manager *manager)
{
	const struct listener *listener = manager->listener;
	int64_t deadline_ns = listener->next_path_check_ns;

	if (listener->paused_until_ns != 0 && listener->paused_until_ns < deadline_ns)
		deadline_ns = listener->paused_until_ns;
	if (listener->idle_since_ns != 0 && listener->idle_exit_ns < deadline_ns - listener->idle_since_ns)
		deadline_ns = listener->idle_since_ns + listener->idle_exit_ns;
	return deadline_ns;
}

/* ---- life ---- */

/* The former manager's socket, a socket unit's, or a new one. */
static int find_socket(struct manager *manager, struct listener *listener, const struct listener_setup *setup,
		       char *message)
{
	int lock_fd = store_take(manager->store, "lock");
	int listen_fd = store_take(manager->store, "listen");

	if (listen_fd < 0)
		listen_fd = store_take_listener(manager->store);
	if (listen_fd < 0 && lock_fd >= 0)
		(void)close(lock_fd); /* a lock without its socket: it is taken anew */
	if (listen_fd < 0)
		return socket_path_open(&listener->socket, setup->path, setup->mode, setup->group, message);
	socket_path_adopt(&listener->socket, setup->path, listen_fd, lock_fd < 0 ? -1 : lock_fd,
			  manager->state->socket_device, manager->state->socket_inode);
	return 0;
}

void listener_descriptors(const struct manager *manager, int *ret_listen, int *ret_lock)
{
	*ret_listen = manager->listener->socket.fd;
	*ret_lock = manager->listener->socket.lock_fd;
}

void listener_note_path(struct manager *manager)
{
	manager->state->socket_device = manager->listener->socket.device;
	manager->state->socket_inode = manager->listener->socket.inode;
}

int listener_open(struct manager *manager, const struct listener_setup *setup, char message[256])
{
	struct listener *listener = calloc(1, sizeof *listener);
	int r;

	if (listener == NULL) {
		(void)snprintf(message, 256, "out of memory");
		return -ENOMEM;
	}
	r = find_socket(manager, listener, setup, message);
	if (r < 0)
		goto drop;
	listener->manager = manager;
	listener->idle_exit_ns = setup->idle_exit_ns;
	listener->mode = setup->mode;
	listener->group = setup->group;
	listener->refusal_limit.burst = 20;
	listener->source = (struct loop_source){.fd = listener->socket.fd, .ready = accept_one};
	r = loop_add(manager->loop, &listener->source, EPOLLIN);
	if (r < 0) {
		(void)snprintf(message, 256, "cannot watch the socket: %s", strerror(-r));
		goto close_socket;
	}
	manager->listener = listener;
	check_path(listener, cnre_clock_now_ns());
	return 0;

close_socket:
	socket_path_unlink(&listener->socket);
	socket_path_close(&listener->socket);
drop:
	free(listener);
	return r;
}

void listener_close(struct manager *manager)
{
	struct listener *listener = manager->listener;

	if (listener == NULL)
		return;
	socket_path_unlink(&listener->socket);
	while (listener->connections != NULL)
		connection_end(listener->connections);
	loop_remove(manager->loop, &listener->source);
	socket_path_close(&listener->socket);
	free(listener);
	manager->listener = NULL;
}

const char *listener_path(const struct manager *manager)
{
	return manager->listener->socket.path;
}
