/* SPDX-License-Identifier: Apache-2.0 */
/* Datagrams of the descriptor store; see keep_wire.h. */
#include "manager/keep_wire.h"

#include "shm/packet.h"

#include <errno.h>
#include <string.h>

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
	return fd_count > KEEP_FDS_MAX ? -EINVAL : cnre_packet_send(socket, text, strlen(text), fds, fd_count);
}

int keep_receive(int socket, char text[KEEP_TEXT_MAX], int fds[KEEP_FDS_MAX], size_t *ret_fd_count)
{
	int is_cut; /* a line that is cut names nothing, and a descriptor too many is closed */

	return cnre_packet_receive(socket, text, KEEP_TEXT_MAX, fds, KEEP_FDS_MAX, ret_fd_count, &is_cut);
}
