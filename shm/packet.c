/* SPDX-License-Identifier: Apache-2.0 */
/* SCM_RIGHTS, once; see packet.h. */
#include "shm/packet.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

union control {
	char bytes[CMSG_SPACE(CNRE_PACKET_FDS_MAX * sizeof(int))];
	struct cmsghdr align;
};

static void put_descriptors(struct msghdr *header, union control *control, const int *fds, size_t fd_count)
{
	struct cmsghdr *first;

	memset(control, 0, sizeof *control);
	header->msg_control = control->bytes;
	header->msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
	first = CMSG_FIRSTHDR(header);
	first->cmsg_level = SOL_SOCKET;
	first->cmsg_type = SCM_RIGHTS;
	first->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
	memcpy(CMSG_DATA(first), fds, fd_count * sizeof(int));
}

int cnre_packet_send(int socket, const void *bytes, size_t count, const int *fds, size_t fd_count)
{
	struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = count};
	struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
	union control control;
	ssize_t sent;

	if (fd_count > CNRE_PACKET_FDS_MAX)
		return -EINVAL;
	if (fd_count > 0)
		put_descriptors(&header, &control, fds, fd_count);
	do
		sent = sendmsg(socket, &header, MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	return sent < 0 ? -errno : 0;
}

static size_t take_descriptors(struct msghdr *header, int *fds, size_t fd_room)
{
	size_t count = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(header); c != NULL; c = CMSG_NXTHDR(header, c)) {
		size_t n;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
			if (count < fd_room)
				fds[count++] = fd;
			else
				(void)close(fd);
		}
	}
	return count;
}

int cnre_packet_receive(int socket, void *buffer, size_t room, int *fds, size_t fd_room, size_t *ret_fd_count,
			int *ret_is_cut)
{
	struct iovec part = {.iov_base = buffer, .iov_len = room};
	struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
	union control control;
	ssize_t received;

	if (fds != NULL) { /* without a control buffer the kernel installs no descriptor and says MSG_CTRUNC */
		header.msg_control = control.bytes;
		header.msg_controllen = sizeof control.bytes;
	}
	do
		received = recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
	while (received < 0 && errno == EINTR);
	if (received < 0)
		return -errno;
	*ret_fd_count = take_descriptors(&header, fds, fds != NULL ? fd_room : 0);
	*ret_is_cut = (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
	return (int)received;
}
