/* SPDX-License-Identifier: Apache-2.0 */
/* sd_notify(3)'s protocol, plainly; see notify.h. */
#include "manager/notify.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int notify_send(const char *text)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t length;
	ssize_t sent;
	int fd, r;

	if (path == NULL || (path[0] != '/' && path[0] != '@'))
		return 1;
	length = strlen(path);
	if (length >= sizeof address.sun_path)
		return -ENAMETOOLONG;
	memcpy(address.sun_path, path, length);
	if (path[0] == '@')
		address.sun_path[0] = '\0';
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	sent = sendto(fd, text, strlen(text), MSG_NOSIGNAL, (struct sockaddr *)&address,
		      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length));
	r = sent < 0 ? -errno : 0;
	(void)close(fd);
	return r;
}
