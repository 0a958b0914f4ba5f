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
	if (bytes < sizeof(struct cnre_wire_header) || bytes > CNRE_WIRE_MESSAGE_MAX || fd_count > CNRE_WIRE_FDS_MAX)
		return -EINVAL;
	return cnre_packet_send(socket, message, bytes, fds, fd_count);
}

int cnre_wire_has_unread(int socket)
{
	int bytes = 0;

	return ioctl(socket, SIOCOUTQ, &bytes) == 0 && bytes > 0;
}

int cnre_wire_next_is(int socket, enum cnre_wire_type type)
{
	struct cnre_wire_header header;
	ssize_t n = recv(socket, &header, sizeof header, MSG_PEEK | MSG_DONTWAIT); /* no descriptor is installed */

	return n == (ssize_t)sizeof header && header.magic == CNRE_WIRE_MAGIC && header.type == type;
}

static void close_all(const int *fds, size_t count)
{
	for (size_t i = 0; i < count; i++)
		(void)close(fds[i]);
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
	size_t count;
	int is_cut, r;
	int received =
		cnre_packet_receive(socket, buffer, CNRE_WIRE_MESSAGE_MAX, fds, CNRE_WIRE_FDS_MAX, &count, &is_cut);

	if (received < 0)
		return received;
	r = received == 0 ? 0 : is_cut ? -EBADMSG : check_header(buffer, received);
	if (received == 0 || r < 0) {
		close_all(fds, count);
		return r;
	}
	if (ret_fd_count != NULL)
		*ret_fd_count = count;
	return received;
}

int cnre_wire_expect(const void *buffer, int received_bytes, enum cnre_wire_type type, size_t min_bytes)
{
	struct cnre_wire_header header;

	if (received_bytes < 0 || (size_t)received_bytes < min_bytes || min_bytes < sizeof header)
		return -EBADMSG;
	memcpy(&header, buffer, sizeof header);
	return header.type == type ? 0 : -EBADMSG;
}
