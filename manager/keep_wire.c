/* SPDX-License-Identifier: Apache-2.0 */
/* Datagrams of the descriptor store; see keep_wire.h. */
#include "manager/keep_wire.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int is_name(const char *name, size_t length)
{
	if (length == 0 || length >= KEEP_NAME_BYTES)
		return 0;
	for (size_t i = 0; i < length; i++)
		if (name[i] <= 0x20 || name[i] >= 0x7f || name[i] == ':')
			return 0;
	return 1;
}

static int starts_with(const char *line, size_t length, const char *prefix)
{
	return length >= strlen(prefix) && memcmp(line, prefix, strlen(prefix)) == 0;
}

static int is_line(const char *line, size_t length, const char *wanted)
{
	return length == strlen(wanted) && memcmp(line, wanted, length) == 0;
}

static int take_line(const char *line, size_t length, struct keep_message *message)
{
	static const char name[] = "FDNAME=";

	message->ready |= is_line(line, length, "READY=1");
	message->stopping |= is_line(line, length, "STOPPING=1");
	message->store |= is_line(line, length, "FDSTORE=1");
	message->remove |= is_line(line, length, "FDSTOREREMOVE=1");
	message->barrier |= is_line(line, length, "BARRIER=1");
	if (!starts_with(line, length, name))
		return 0;
	line += sizeof name - 1;
	length -= sizeof name - 1;
	if (!is_name(line, length))
		return -EBADMSG;
	memcpy(message->name, line, length);
	message->name[length] = '\0';
	return 0;
}

int keep_parse(const char *text, size_t bytes, struct keep_message *ret_message)
{
	struct keep_message message = {0};

	while (bytes > 0) {
		const char *end = memchr(text, '\n', bytes);
		size_t length = end != NULL ? (size_t)(end - text) : bytes;
		int r = take_line(text, length, &message);

		if (r < 0)
			return r;
		length += end != NULL;
		text += length;
		bytes -= length;
	}
	*ret_message = message;
	return 0;
}

int keep_send(int socket, const char *text, const int *fds, size_t fd_count)
{
	union {
		char bytes[CMSG_SPACE(KEEP_FDS_MAX * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec part = {.iov_base = (void *)(uintptr_t)text, .iov_len = strlen(text)};
	struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};

	if (fd_count > KEEP_FDS_MAX)
		return -EINVAL;
	if (fd_count > 0) {
		struct cmsghdr *first;

		memset(&control, 0, sizeof control);
		header.msg_control = control.bytes;
		header.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
		first = CMSG_FIRSTHDR(&header);
		first->cmsg_level = SOL_SOCKET;
		first->cmsg_type = SCM_RIGHTS;
		first->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
		memcpy(CMSG_DATA(first), fds, fd_count * sizeof(int));
	}
	for (;;) {
		if (sendmsg(socket, &header, MSG_NOSIGNAL) >= 0)
			return 0;
		if (errno != EINTR)
			return -errno;
	}
}

static size_t take_descriptors(struct msghdr *header, int fds[KEEP_FDS_MAX])
{
	size_t count = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(header); c != NULL; c = CMSG_NXTHDR(header, c)) {
		size_t n = c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS
				   ? (c->cmsg_len - CMSG_LEN(0)) / sizeof(int)
				   : 0;

		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
			if (count < KEEP_FDS_MAX)
				fds[count++] = fd;
			else
				(void)close(fd);
		}
	}
	return count;
}

int keep_receive(int socket, char text[KEEP_TEXT_MAX], int fds[KEEP_FDS_MAX], size_t *ret_fd_count)
{
	union {
		char bytes[CMSG_SPACE(KEEP_FDS_MAX * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec part = {.iov_base = text, .iov_len = KEEP_TEXT_MAX};
	struct msghdr header = {.msg_iov = &part,
				.msg_iovlen = 1,
				.msg_control = control.bytes,
				.msg_controllen = sizeof control.bytes};
	ssize_t received;

	do
		received = recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
	while (received < 0 && errno == EINTR);
	if (received < 0)
		return -errno;
	*ret_fd_count = take_descriptors(&header, fds);
	return (int)received;
}
