/* SPDX-License-Identifier: Apache-2.0 */
/* Sending and receiving messages with descriptors; see wire.h. */
#include "shm/wire.h"

#include <errno.h>
#include <linux/sockios.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

void cnre_wire_fill(struct cnre_wire_header *header, enum cnre_wire_type type, uint32_t id, size_t message_bytes)
{
	*header = (struct cnre_wire_header){
		.magic = CNRE_WIRE_MAGIC,
		.type = (uint16_t)type,
		.version = CNRE_LAYOUT_VERSION,
		.id = id,
		.bytes = (uint32_t)message_bytes,
	};
}

int cnre_wire_send(int socket, const void *message, size_t bytes, const int *fds, size_t fd_count)
{
	union {
		char bytes[CMSG_SPACE(CNRE_WIRE_FDS_MAX * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec part = {.iov_base = (void *)message, .iov_len = bytes};
	struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
	ssize_t sent;

	if (bytes < sizeof(struct cnre_wire_header) || bytes > CNRE_WIRE_MESSAGE_MAX || fd_count > CNRE_WIRE_FDS_MAX)
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
	do
		sent = sendmsg(socket, &header, MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	return sent < 0 ? -errno : 0;
}

int cnre_wire_has_unread(int socket)
{
	int bytes = 0;

	return ioctl(socket, SIOCOUTQ, &bytes) == 0 && bytes > 0;
}

static void close_all(const int *fds, size_t count)
{
	for (size_t i = 0; i < count; i++)
		(void)close(fds[i]);
}

static size_t take_descriptors(struct msghdr *header, int *fds)
{
	size_t count = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(header); c != NULL; c = CMSG_NXTHDR(header, c)) {
		size_t n;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
			if (count < CNRE_WIRE_FDS_MAX)
				fds[count++] = fd;
			else
				(void)close(fd);
		}
	}
	return count;
}

static int check_header(const void *buffer, ssize_t received)
{
	struct cnre_wire_header header;

	if ((size_t)received < sizeof header)
		return -EBADMSG;
	memcpy(&header, buffer, sizeof header);
	if (header.magic != CNRE_WIRE_MAGIC || header.bytes != (size_t)received)
		return -EBADMSG;
	return header.version == CNRE_LAYOUT_VERSION ? 0 : -EPROTO;
}

int cnre_wire_receive(int socket, void *buffer, int *fds, size_t *ret_fd_count)
{
	union {
		char bytes[CMSG_SPACE(CNRE_WIRE_FDS_MAX * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec part = {.iov_base = buffer, .iov_len = CNRE_WIRE_MESSAGE_MAX};
	struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
	size_t count;
	ssize_t received;
	int r;

	if (fds != NULL) { /* without a control buffer the kernel installs no descriptor and says MSG_CTRUNC */
		header.msg_control = control.bytes;
		header.msg_controllen = sizeof control.bytes;
	}
	do
		received = recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
	while (received < 0 && errno == EINTR);
	if (received < 0)
		return -errno;
	count = take_descriptors(&header, fds);
	if (received == 0) {
		close_all(fds, count);
		return 0;
	}
	r = (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 ? -EBADMSG : check_header(buffer, received);
	if (r < 0) {
		close_all(fds, count);
		return r;
	}
	if (ret_fd_count != NULL)
		*ret_fd_count = count;
	return (int)received;
}

int cnre_wire_expect(const void *buffer, int received_bytes, enum cnre_wire_type type, size_t min_bytes)
{
	struct cnre_wire_header header;

	if (received_bytes < 0 || (size_t)received_bytes < min_bytes || min_bytes < sizeof header)
		return -EBADMSG;
	memcpy(&header, buffer, sizeof header);
	return header.type == type ? 0 : -EBADMSG;
}
