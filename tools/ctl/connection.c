/* SPDX-License-Identifier: Apache-2.0 */
/* One question, one answer; see connection.h. */
#include "tools/ctl/connection.h"

#include "base/clock.h"
#include "shm/wire.h"
#include "tools/ctl/answer.h"

#include <errno.h>
#include <grp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

/* One question is asked per connection, so any number will do; the answer must bring it back. */
#define QUESTION_ID 1u

int connection_open(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct timeval limit = {.tv_sec = CONNECTION_TIMEOUT_NS / CNRE_NS_PER_S};
	size_t length = strlen(path);
	int connected, r;

	if (length >= sizeof address.sun_path)
		return -ENAMETOOLONG;
	memcpy(address.sun_path, path, length + 1);
	connected = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (connected < 0)
		return -errno;
	/* SO_SNDTIMEO bounds connect (a full backlog) and send alike. */
	if (setsockopt(connected, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) < 0 ||
	    connect(connected, (const struct sockaddr *)&address, sizeof address) < 0) {
		r = errno == EAGAIN ? -ETIMEDOUT : -errno;
		(void)close(connected);
		return r;
	}
	return connected;
}

static int is_socket(const char *path)
{
	struct stat status;

	return stat(path, &status) < 0 || S_ISSOCK(status.st_mode); /* gone meanwhile: it was one */
}

/* Who may come in: the group of the socket, or of its folder where not even the socket can be seen. */
static void advise_on_permission(const char *path, char text[CONNECTION_ADVICE_BYTES])
{
	char folder[sizeof((struct sockaddr_un *)0)->sun_path];
	const char *slash = strrchr(path, '/'), *what = "the socket";
	const struct group *group;
	struct stat status;
	mode_t needed = S_IWGRP;

	if (stat(path, &status) < 0) {
		what = "its folder";
		needed = S_IXGRP;
		if (slash == NULL)
			(void)strcpy(folder, ".");
		else
			(void)snprintf(folder, sizeof folder, "%.*s", slash == path ? 1 : (int)(slash - path), path);
		if (stat(folder, &status) < 0)
			status.st_mode = 0;
	}
	group = (status.st_mode & needed) != 0 ? getgrgid(status.st_gid) : NULL;
	if (group != NULL)
		(void)snprintf(text, CONNECTION_ADVICE_BYTES,
			       "permission denied: become a member of %s's group (%.32s), or use sudo", what,
			       group->gr_name);
	else if ((status.st_mode & needed) != 0)
		(void)snprintf(text, CONNECTION_ADVICE_BYTES,
			       "permission denied: become a member of %s's group (%u), or use sudo", what,
			       (unsigned)status.st_gid);
	else
		(void)snprintf(text, CONNECTION_ADVICE_BYTES,
			       "permission denied: %s is its owner's alone: use sudo, or --socket PATH of another",
			       what);
}

static const char *advice_of(const char *path, int error)
{
	switch (-error) {
	case ENOENT:
		return "no socket there: start cnre-managerd, or name another with --socket PATH";
	case ECONNREFUSED:
		if (!is_socket(path))
			return "not a socket: name the manager's with --socket PATH";
		return "nobody listens (the manager has ended): start cnre-managerd";
	case EPROTOTYPE:
	case ENOTSOCK:
		return "not a manager's socket: name the right one with --socket PATH";
	case ETIMEDOUT:
		return "the manager does not take connections (stopped or hung): look at its log, restart it";
	case ENAMETOOLONG:
		return "longer than a socket's path may be (107 bytes): use a shorter one, such as a link to its "
		       "folder";
	default:
		return strerror(-error);
	}
}

void connection_advice(const char *path, int error, char ret_text[CONNECTION_ADVICE_BYTES])
{
	if (error == -EACCES || error == -EPERM)
		advise_on_permission(path, ret_text);
	else
		(void)snprintf(ret_text, CONNECTION_ADVICE_BYTES, "%s", advice_of(path, error));
}

static int send_question(int connected, const struct connection_question *question)
{
	_Alignas(struct cnre_wire_header) char buffer[sizeof(struct cnre_wire_header) + CNRE_WIRE_CONTROL_MAX];
	struct cnre_wire_header header;
	int r;

	if (question->bytes > CNRE_WIRE_CONTROL_MAX)
		return -E2BIG;
	cnre_wire_fill(&header, CNRE_WIRE_CONTROL, QUESTION_ID, sizeof header + question->bytes);
	memcpy(buffer, &header, sizeof header);
	memcpy(buffer + sizeof header, question->text, question->bytes);
	r = cnre_wire_send(connected, buffer, sizeof header + question->bytes, question->file,
			   question->file != NULL ? 1 : 0);
	return r == -EAGAIN ? -ETIMEDOUT : r;
}

/* 0 when the socket has something to say. */
static int wait_for_answer(int connected, int stop_fd, int64_t deadline_ns)
{
	struct pollfd watched[2] = {{.fd = connected, .events = POLLIN}, {.fd = stop_fd, .events = POLLIN}};

	for (;;) {
		int64_t left_ns = cnre_clock_left_ns(deadline_ns);
		int r;

		if (left_ns == 0)
			return -ETIMEDOUT;
		if (left_ns >
		    CONNECTION_TIMEOUT_NS) /* look again then: an int of milliseconds holds no more than weeks */
			left_ns = CONNECTION_TIMEOUT_NS;
		r = poll(watched, 2, (int)(left_ns / CNRE_NS_PER_MS) + 1);
		if (r < 0 && errno != EINTR)
			return -errno;
		if (r > 0 && watched[1].revents != 0)
			return -EINTR;
		if (r > 0 && watched[0].revents != 0)
			return 0;
	}
}

/* The descriptor's content in our own memory: whatever its sender does to it later no longer matters. */
static int read_text(int fd, uint64_t bytes, char **ret_text)
{
	struct stat status;
	size_t done = 0;
	char *text;

	if (bytes > ANSWER_BYTES_MAX)
		return -E2BIG;
	if (fstat(fd, &status) < 0)
		return -errno;
	if (!S_ISREG(status.st_mode)) /* a pipe could make us wait for ever */
		return -EBADMSG;
	text = malloc(bytes + 1);
	if (text == NULL)
		return -ENOMEM;
	while (done < bytes) {
		ssize_t n = pread(fd, text + done, bytes - done, (off_t)done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			free(text);
			return n < 0 ? -errno : -EBADMSG;
		}
		done += (size_t)n;
	}
	*ret_text = text;
	return 0;
}

/* The manager's refusal: its words if it sent some. Its status is input too: only an error code is believed. */
static int take_refusal(const struct cnre_wire_reply *reply, char message[CTL_MESSAGE_BYTES])
{
	int r = reply->status < 0 && reply->status > -4096 ? reply->status : -EBADMSG;

	(void)snprintf(message, CTL_MESSAGE_BYTES, "%.*s", (int)sizeof reply->text, reply->text);
	answer_make_text_printable(message);
	if (message[0] == '\0')
		(void)snprintf(message, CTL_MESSAGE_BYTES, "the manager refused: %s", strerror(-r));
	return r;
}

static int receive_answer(int connected, char **ret_text, size_t *ret_bytes, char message[CTL_MESSAGE_BYTES])
{
	_Alignas(struct cnre_wire_reply) char buffer[CNRE_WIRE_MESSAGE_MAX];
	int fds[CNRE_WIRE_FDS_MAX];
	struct cnre_wire_reply reply;
	size_t fd_count = 0;
	int r;

	r = cnre_wire_receive(connected, buffer, fds, &fd_count);
	if (r == 0)
		return -ECONNRESET;
	if (r < 0)
		return r;
	r = cnre_wire_expect(buffer, r, CNRE_WIRE_REPLY, sizeof reply);
	if (r < 0)
		goto out;
	memcpy(&reply, buffer, sizeof reply);
	if (reply.header.id != QUESTION_ID)
		r = -EBADMSG;
	else if (reply.status != 0)
		r = take_refusal(&reply, message);
	else
		r = fd_count == 1 ? read_text(fds[0], reply.text_bytes, ret_text) : -EBADMSG;
	if (r == 0)
		*ret_bytes = (size_t)reply.text_bytes;
out:
	for (size_t i = 0; i < fd_count; i++)
		(void)close(fds[i]);
	return r;
}

static const char *explain(int error)
{
	switch (-error) {
	case ETIMEDOUT:
		return "no answer in time (the manager is stopped or hung): look at its log, restart it";
	case EPIPE:
	case ECONNRESET:
		return "the manager closed the connection: look at its log; it may be restarting, try again";
	case EPROTO:
		return "the manager speaks another layout version: install cnrectl and cnre-managerd of one release";
	case EBADMSG:
		return "what came back is not a manager's answer: install cnrectl and cnre-managerd of one release";
	case E2BIG:
		return "the question or its answer is longer than cnrectl allows";
	default:
		return strerror(-error);
	}
}

int connection_ask(int connected, const struct connection_question *question, char **ret_text, size_t *ret_bytes,
		   char message[CTL_MESSAGE_BYTES])
{
	int64_t deadline_ns = cnre_clock_deadline_ns(question->timeout_ns);
	int r;

	message[0] = '\0';
	r = send_question(connected, question);
	if (r == 0)
		r = wait_for_answer(connected, question->stop_fd, deadline_ns);
	if (r == 0)
		r = receive_answer(connected, ret_text, ret_bytes, message);
	/* The manager takes no descriptor from who may not give orders: then its kernel has cut the message, and it hangs up. */
	if ((r == -ECONNRESET || r == -EPIPE) && message[0] == '\0' && question->file != NULL)
		(void)snprintf(
			message, CTL_MESSAGE_BYTES,
			"the manager closed the connection: only root and its own user may hand it a file; if you are, look at its log");
	if (r < 0 && message[0] == '\0')
		(void)snprintf(message, CTL_MESSAGE_BYTES, "%s", explain(r));
	return r;
}
