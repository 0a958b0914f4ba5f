/* SPDX-License-Identifier: Apache-2.0 */
/* See fake_manager.h. */
#include "tests/support/fake_manager.h"

#include "shm/wire.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static void send_reply(int connected, const struct cnre_wire_reply *reply, int fd)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec part = {.iov_base = (void *)reply, .iov_len = sizeof *reply};
	struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};

	if (fd >= 0) {
		struct cmsghdr *first = &control.align;

		header.msg_control = control.bytes;
		header.msg_controllen = sizeof control.bytes;
		first->cmsg_level = SOL_SOCKET;
		first->cmsg_type = SCM_RIGHTS;
		first->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(first), &fd, sizeof fd);
	}
	(void)sendmsg(connected, &header, MSG_NOSIGNAL);
}

static int text_memfd(const char *text)
{
	int fd = memfd_create("fake answer", MFD_CLOEXEC);

	if (fd >= 0 && write(fd, text, strlen(text)) != (ssize_t)strlen(text)) {
		(void)close(fd);
		return -1;
	}
	return fd;
}

static void answer(const struct fake_manager *manager, int connected, uint32_t id)
{
	struct cnre_wire_reply reply = {
		.header = {CNRE_WIRE_MAGIC, CNRE_WIRE_REPLY, CNRE_LAYOUT_VERSION, id, sizeof reply},
		.status = manager->status,
		.text_bytes = manager->text != NULL ? strlen(manager->text) : 0,
	};
	int ends[2] = {-1, -1};
	int fd = -1;

	switch (manager->behaviour) {
	case FAKE_REFUSES:
		(void)snprintf(reply.text, sizeof reply.text, "%s", manager->text);
		send_reply(connected, &reply, -1);
		return;
	case FAKE_IS_SILENT:
	case FAKE_HANGS_UP:
		return;
	case FAKE_SENDS_GARBAGE:
		(void)send(connected, "hello", 5, MSG_NOSIGNAL);
		return;
	case FAKE_SENDS_NO_TEXT:
		send_reply(connected, &reply, -1);
		return;
	case FAKE_SENDS_PIPE:
		if (pipe(ends) < 0)
			return;
		send_reply(connected, &reply, ends[0]);
		(void)close(ends[0]);
		(void)close(ends[1]);
		return;
	case FAKE_CHANGES_ID:
		reply.header.id++;
		break;
	case FAKE_PROMISES_MORE:
		reply.text_bytes++;
		break;
	case FAKE_PROMISES_TOO_MUCH:
		reply.text_bytes = UINT64_MAX;
		break;
	case FAKE_IS_NEWER:
		reply.header.version++;
		break;
	case FAKE_ANSWERS:
		break;
	}
	fd = text_memfd(manager->text);
	send_reply(connected, &reply, fd);
	(void)close(fd);
}

/* As recv, with the descriptor that came along looked at and closed. */
static ssize_t receive(struct fake_manager *manager, int connected, void *bytes, size_t count)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec part = {.iov_base = bytes, .iov_len = count};
	struct msghdr header = {.msg_iov = &part,
				.msg_iovlen = 1,
				.msg_control = control.bytes,
				.msg_controllen = sizeof control.bytes};
	ssize_t got = recvmsg(connected, &header, MSG_CMSG_CLOEXEC);
	const struct cmsghdr *first = got > 0 ? CMSG_FIRSTHDR(&header) : NULL;
	struct stat status;
	int fd;

	if (first == NULL || first->cmsg_type != SCM_RIGHTS)
		return got;
	memcpy(&fd, CMSG_DATA(first), sizeof fd);
	manager->file_count++;
	manager->file_inode = fstat(fd, &status) == 0 ? (uint64_t)status.st_ino : 0;
	(void)close(fd);
	return got;
}

/* 1: it was asked. */
static int serve(struct fake_manager *manager, int connected)
{
	_Alignas(struct cnre_wire_header) char question[CNRE_WIRE_MESSAGE_MAX];
	struct cnre_wire_header header;
	ssize_t bytes = receive(manager, connected, question, sizeof question);
	size_t text_bytes;

	if (bytes < (ssize_t)sizeof header) /* a search only connects, and who has asked hangs up */
		return 0;
	memcpy(&header, question, sizeof header);
	text_bytes = (size_t)bytes - sizeof header;
	if (text_bytes >= sizeof manager->asked)
		text_bytes = sizeof manager->asked - 1;
	memcpy(manager->asked, question + sizeof header, text_bytes);
	manager->asked[text_bytes] = '\0';
	manager->question_count++;
	answer(manager, connected, header.id);
	return 1;
}

/* One may ask again on its connection; while it thinks, the end of the test comes first. */
static void serve_all(struct fake_manager *manager, int connected)
{
	struct pollfd watched[2] = {{.fd = connected, .events = POLLIN}, {.fd = manager->stop_pipe[0], .events = POLLIN}};

	while (serve(manager, connected) && manager->behaviour == FAKE_ANSWERS)
		if (poll(watched, 2, -1) < 0 || watched[1].revents != 0)
			return;
}

static void *run(void *argument)
{
	struct fake_manager *manager = argument;
	struct pollfd watched[2] = {{.fd = manager->listener, .events = POLLIN},
				    {.fd = manager->stop_pipe[0], .events = POLLIN}};

	for (;;) {
		int connected;

		if (poll(watched, 2, -1) < 0 || watched[1].revents != 0)
			return NULL;
		connected = accept(manager->listener, NULL, NULL);
		if (connected < 0)
			continue;
		serve_all(manager, connected);
		if (manager->behaviour == FAKE_IS_SILENT) {
			struct pollfd ends[2] = {{.fd = connected, .events = POLLRDHUP}, watched[1]};

			(void)poll(ends, 2, -1);
		}
		(void)close(connected);
	}
}

static int listen_at(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (listener < 0)
		return -1;
	(void)snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
	if (bind(listener, (const struct sockaddr *)&address, sizeof address) < 0 || listen(listener, 16) < 0) {
		(void)close(listener);
		return -1;
	}
	return listener;
}

int fake_manager_start(struct fake_manager *manager)
{
	if (manager->path[0] == '\0') {
		(void)strcpy(manager->directory, "/tmp/cnre-test-XXXXXX");
		if (mkdtemp(manager->directory) == NULL)
			return -1;
		(void)snprintf(manager->path, sizeof manager->path, "%s/managerd.sock", manager->directory);
	}
	manager->listener = listen_at(manager->path);
	if (manager->listener < 0 || pipe(manager->stop_pipe) < 0)
		return -1;
	return pthread_create(&manager->thread, NULL, run, manager) == 0 ? 0 : -1;
}

void fake_manager_stop(struct fake_manager *manager)
{
	(void)close(manager->stop_pipe[1]); /* its hang-up is what the thread waits for */
	(void)pthread_join(manager->thread, NULL);
	(void)close(manager->stop_pipe[0]);
	(void)close(manager->listener);
	(void)unlink(manager->path);
	if (manager->directory[0] != '\0')
		(void)rmdir(manager->directory);
}
