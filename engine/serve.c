/* SPDX-License-Identifier: Apache-2.0 */
/* See serve.h. One thread: while a request is computed nobody else could be served anyway. */
#include "engine/serve.h"

#include "engine/answer.h"
#include "engine/lines.h"
#include "engine/stop.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define SOCKET_MASK 0177 /* rw for the owner */
#define POLL_MS 1000     /* how long a ^C may go unseen that comes just before the wait */

struct connection {
	int in, out; /* the same, but for standard input */
	struct lines lines;
	char *line;    /* waits in the queue; NULL: none */
	uint64_t turn; /* of line: smaller ones go first */
	char *answer;  /* not written yet; NULL: none */
	size_t sent;
	bool is_open, has_ended; /* ended: nothing more comes */
};

struct queue {
	struct connection connection[SERVE_CONNECTIONS_MAX];
	uint64_t turn_count;
	bool is_quitting;
};

/* ---- the socket ---- */

static int make_address(const char *path, struct sockaddr_un *ret_address)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	if (strlen(path) >= sizeof address.sun_path)
		return -ENAMETOOLONG;
	memcpy(address.sun_path, path, strlen(path) + 1);
	*ret_address = address;
	return 0;
}

/* Removes the socket's file if nobody answers there. */
static int clear_path(const struct sockaddr_un *address)
{
	struct stat status;
	int fd, error;

	if (lstat(address->sun_path, &status) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(status.st_mode))
		return -EEXIST;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	error = connect(fd, (const struct sockaddr *)address, sizeof *address) == 0 ? -EADDRINUSE : -errno;
	(void)close(fd); /* nothing was written */
	if (error != -ECONNREFUSED)
		return error;
	return unlink(address->sun_path) == 0 ? 0 : -errno;
}

static int bind_and_listen(int fd, const struct sockaddr_un *address)
{
	mode_t mask = umask(SOCKET_MASK);
	int error = bind(fd, (const struct sockaddr *)address, sizeof *address) == 0 ? 0 : -errno;

	(void)umask(mask);
	if (error == 0 && listen(fd, (int)SERVE_CONNECTIONS_MAX) < 0)
		error = -errno;
	return error;
}

int serve_listen(const char *path, int *ret_fd, char message[ENGINE_MESSAGE_BYTES])
{
	struct sockaddr_un address;
	int fd = -1, error = make_address(path, &address);

	if (error == 0)
		error = clear_path(&address);
	if (error == 0) {
		fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		error = fd < 0 ? -errno : bind_and_listen(fd, &address);
	}
	if (error < 0) {
		if (fd >= 0)
			(void)close(fd); /* nothing was written */
		return engine_fail(message, error, "cannot listen at %.120s: %s; take another --listen PATH", path,
				   strerror(-error));
	}
	*ret_fd = fd;
	return 0;
}

/* ---- connections ---- */

static void open_connection(struct queue *queue, int in, int out)
{
	struct connection *connection = queue->connection;

	while (connection->is_open)
		connection++; /* the caller knows that there is one */
	*connection = (struct connection){.in = in, .out = out, .is_open = true};
	lines_init(&connection->lines, REQUEST_LINE_BYTES_MAX);
}

static void close_connection(struct connection *connection)
{
	if (connection->in == connection->out)
		(void)close(connection->in); /* what it did not take is lost, and it knows */
	lines_done(&connection->lines);
	free(connection->answer);
	*connection = (struct connection){0};
}

static bool has_room(const struct queue *queue)
{
	for (size_t i = 0; i < SERVE_CONNECTIONS_MAX; i++)
		if (!queue->connection[i].is_open)
			return true;
	return false;
}

/* Writes what can be written. A peer that is gone has ended. */
static void flush(struct connection *connection)
{
	const size_t length = connection->answer ? strlen(connection->answer) : 0;

	while (connection->sent < length) {
		ssize_t put = write(connection->out, connection->answer + connection->sent, length - connection->sent);

		if (put < 0 && errno == EAGAIN)
			return;
		if (put < 0 && errno == EINTR && !stop_is_asked())
			continue;
		if (put < 0) {
			close_connection(connection);
			return;
		}
		connection->sent += (size_t)put;
	}
	free(connection->answer);
	connection->answer = NULL;
	connection->sent = 0;
}

/* answer NULL: there was no memory for it, and a line left out would mix up those that follow. */
static void answer(struct connection *connection, char *text)
{
	connection->answer = text;
	connection->sent = 0;
	if (text)
		flush(connection);
	else
		close_connection(connection);
}

/* Takes the next line into the queue; refuses those that are too long. Ends what has nothing more to say. */
static void advance(struct queue *queue, struct connection *connection)
{
	while (connection->is_open && !connection->line && !connection->answer) {
		int taken = lines_take(&connection->lines, &connection->line);

		if (taken == 1)
			connection->turn = ++queue->turn_count;
		else if (taken == -E2BIG)
			answer(connection, answer_error(NULL, "the line is longer than 1 MiB; send fewer tokens"));
		else if (connection->has_ended)
			close_connection(connection);
		else
			return;
	}
}

static void receive(struct connection *connection)
{
	int got = lines_read(&connection->lines, connection->in);

	if (got == -EAGAIN || got == -EINTR)
		return;
	if (got < 0)
		close_connection(connection);
	else if (got == 0)
		connection->has_ended = true;
}

static void accept_all(struct queue *queue, int listener)
{
	while (has_room(queue)) {
		int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0)
			return; /* none waits, or no descriptor is left: later */
		open_connection(queue, fd, fd);
	}
}

/* ---- the loop ---- */

static struct connection *find_next(struct queue *queue)
{
	struct connection *next = NULL;

	for (size_t i = 0; i < SERVE_CONNECTIONS_MAX; i++) {
		struct connection *connection = &queue->connection[i];

		if (connection->line && (!next || connection->turn < next->turn))
			next = connection;
	}
	return next;
}

/* What to wait for on a connection; 0: it waits for us. */
static short events_of(const struct connection *connection)
{
	if (!connection->is_open || connection->line)
		return 0;
	return connection->answer ? POLLOUT : POLLIN;
}

/* One round of what has come; waits only if no request does. 0 or -errno. */
static int poll_once(struct queue *queue, int listener, bool may_wait)
{
	struct pollfd polled[SERVE_CONNECTIONS_MAX + 1] = {{.fd = has_room(queue) ? listener : -1, .events = POLLIN}};

	for (size_t i = 0; i < SERVE_CONNECTIONS_MAX; i++) {
		const struct connection *connection = &queue->connection[i];
		const short events = events_of(connection);

		polled[i + 1] =
			(struct pollfd){.fd = events == POLLOUT ? connection->out : connection->in, .events = events};
		if (events == 0)
			polled[i + 1].fd = -1;
	}
	if (poll(polled, SERVE_CONNECTIONS_MAX + 1, may_wait ? POLL_MS : 0) < 0)
		return errno == EINTR ? 0 : -errno;
	for (size_t i = 0; i < SERVE_CONNECTIONS_MAX; i++) {
		struct connection *connection = &queue->connection[i];

		if (polled[i + 1].revents == 0)
			continue;
		if (polled[i + 1].events == POLLOUT)
			flush(connection);
		else
			receive(connection);
		advance(queue, connection);
	}
	if (polled[0].revents != 0)
		accept_all(queue, listener);
	return 0;
}

static void serve_next(struct server *server, struct queue *queue, struct connection *connection)
{
	char *line = connection->line;

	connection->line = NULL;
	answer(connection, server_answer(server, line, &queue->is_quitting));
	advance(queue, connection);
}

static bool is_anyone_left(const struct queue *queue, int listener)
{
	if (listener >= 0)
		return true;
	return queue->connection[0].is_open;
}

int serve_run(struct server *server, int listener)
{
	struct queue *queue = calloc(1, sizeof *queue);
	int error = queue ? 0 : -ENOMEM;

	(void)signal(SIGPIPE, SIG_IGN); /* a caller that went away is not our end */
	if (queue && listener < 0)
		open_connection(queue, STDIN_FILENO, STDOUT_FILENO);
	while (error == 0 && !queue->is_quitting && is_anyone_left(queue, listener)) {
		struct connection *next;

		error = stop_is_asked() ? -EINTR : poll_once(queue, listener, !find_next(queue));
		next = error == 0 && !stop_is_asked() ? find_next(queue) : NULL;
		if (next)
			serve_next(server, queue, next);
	}
	for (size_t i = 0; queue && i < SERVE_CONNECTIONS_MAX; i++)
		if (queue->connection[i].is_open)
			close_connection(&queue->connection[i]);
	free(queue);
	return error;
}
