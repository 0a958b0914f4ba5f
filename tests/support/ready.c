/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for a manager that starts; see ready.h. */
#include "tests/support/ready.h"

#include <poll.h>
#include <string.h>
#include <unistd.h>

#define READY_TIMEOUT_MS 60000

int ready_wait(int fd)
{
	char text[256];
	size_t length = 0;

	while (length < sizeof text - 1) {
		struct pollfd ready = {.fd = fd, .events = POLLIN};
		ssize_t n;

		if (poll(&ready, 1, READY_TIMEOUT_MS) <= 0)
			return 0;
		n = read(fd, text + length, sizeof text - 1 - length);
		if (n <= 0)
			return 0;
		length += (size_t)n;
		text[length] = '\0';
		if (strstr(text, "ready: ") != NULL && strchr(text, '\n') != NULL)
			return 1;
	}
	return 0;
}
