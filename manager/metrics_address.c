/* SPDX-License-Identifier: Apache-2.0 */
/* Reading the address of --metrics, and listening there; see metrics_address.h. */
#include "manager/metrics_address.h"

#include "base/message.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HOST_BYTES_MAX 64u
#define BACKLOG 16

static int refuse(const char *text, char *message, size_t message_bytes)
{
	return cnre_message(message, message_bytes, -EINVAL,
			    "--metrics: \"%.100s\" is not unix:PATH, 127.0.0.1:PORT or [::1]:PORT; nobody else's address is listened on",
			    text);
}

/* 0: none. */
static in_port_t parse_port(const char *text)
{
	unsigned long port;
	char *end;

	if (*text < '0' || *text > '9')
		return 0;
	errno = 0;
	port = strtoul(text, &end, 10);
	return errno == 0 && *end == '\0' && port <= 65535 ? htons((in_port_t)port) : 0;
}

static int parse_ipv4(const char *host, in_port_t port, struct metrics_address *address)
{
	struct sockaddr_in *internet = (struct sockaddr_in *)&address->internet;

	internet->sin_family = AF_INET;
	internet->sin_port = port;
	address->internet_bytes = sizeof *internet;
	if (inet_pton(AF_INET, host, &internet->sin_addr) != 1)
		return -EINVAL;
	return ntohl(internet->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET ? 0 : -EINVAL;
}

static int parse_ipv6(char *host, in_port_t port, struct metrics_address *address)
{
	struct sockaddr_in6 *internet = (struct sockaddr_in6 *)&address->internet;
	size_t length = strlen(host);

	if (host[length - 1] != ']')
		return -EINVAL;
	host[length - 1] = '\0';
	internet->sin6_family = AF_INET6;
	internet->sin6_port = port;
	address->internet_bytes = sizeof *internet;
	if (inet_pton(AF_INET6, host + 1, &internet->sin6_addr) != 1)
		return -EINVAL;
	return IN6_IS_ADDR_LOOPBACK(&internet->sin6_addr) ? 0 : -EINVAL;
}

static int parse_internet(const char *text, struct metrics_address *address)
{
	const char *colon = strrchr(text, ':');
	char host[HOST_BYTES_MAX];
	in_port_t port = colon == NULL ? 0 : parse_port(colon + 1);
	size_t length = colon == NULL ? 0 : (size_t)(colon - text);

	if (port == 0 || length == 0 || length >= sizeof host)
		return -EINVAL;
	memcpy(host, text, length);
	host[length] = '\0';
	return host[0] == '[' ? parse_ipv6(host, port, address) : parse_ipv4(host, port, address);
}

int metrics_address_parse(const char *text, struct metrics_address *ret_address, char *message, size_t message_bytes)
{
	struct metrics_address address = {.path = NULL};

	if (strncmp(text, "unix:", 5) == 0) {
		address.path = text + 5;
		if (address.path[0] != '/')
			return cnre_message(message, message_bytes, -EINVAL,
					    "--metrics: \"%.100s\": the path behind unix: begins with /", text);
	} else if (parse_internet(text, &address) < 0) {
		return refuse(text, message, message_bytes);
	}
	*ret_address = address;
	return 0;
}

int metrics_address_listen(const struct metrics_address *address)
{
	const struct sockaddr *internet = (const struct sockaddr *)&address->internet;
	int fd = socket(internet->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1, r;

	if (fd < 0)
		return -errno;
	/* A successor need not wait for connections of the dead one to be forgotten. */
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 || bind(fd, internet, address->internet_bytes) < 0 ||
	    listen(fd, BACKLOG) < 0) {
		r = -errno;
		(void)close(fd);
		return r;
	}
	return fd;
}
