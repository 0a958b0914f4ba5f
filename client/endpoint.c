/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Socket paths; see endpoint.h. A per-user directory is only used if it is ours and not a link: whoever else could
 * write there could stand in for the manager.
 */
#include "client/endpoint.h"

#include "base/fingerprint.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ID_BYTES 8 /* of the identity: 16 hex digits */

static int is_ours(const char *path)
{
	struct stat status;

	return lstat(path, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid() &&
	       (status.st_mode & 022) == 0;
}

static int make_ours(const char *path)
{
	return (mkdir(path, 0700) == 0 || errno == EEXIST) && is_ours(path);
}

/* The first of $XDG_RUNTIME_DIR/cnre, /run/user/UID/cnre and /tmp/cnre-UID that is or becomes ours. */
static int find_directory(char *path, size_t size)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	int n;

	if (runtime != NULL && runtime[0] == '/') {
		n = snprintf(path, size, "%s/cnre", runtime);
		if (n > 0 && (size_t)n < size && make_ours(path))
			return 0;
	}
	(void)snprintf(path, size, "/run/user/%u/cnre", (unsigned)geteuid());
	if (make_ours(path))
		return 0;
	(void)snprintf(path, size, "/tmp/cnre-%u", (unsigned)geteuid());
	return make_ours(path) ? 0 : -EACCES;
}

static int fill_own(struct cnre_endpoint *endpoint, const unsigned char *identity)
{
	char directory[CNRE_ENDPOINT_PATH_MAX];
	char hex[2 * ID_BYTES + 1];
	int n, r = find_directory(directory, sizeof directory);

	if (r < 0)
		return r;
	(void)cnre_fingerprint_hex(identity, ID_BYTES, hex);
	n = snprintf(endpoint->path, sizeof endpoint->path, "%s/%s.sock", directory, hex);
	if (n < 0 || (size_t)n >= sizeof endpoint->path)
		return -ENAMETOOLONG;
	n = snprintf(endpoint->log, sizeof endpoint->log, "%s/%s.log", directory, hex);
	if (n < 0 || (size_t)n >= sizeof endpoint->log)
		return -ENAMETOOLONG;
	endpoint->may_start = 1;
	return 0;
}

static int fill_given(struct cnre_endpoint *endpoint, const char *socket)
{
	if (strcmp(socket, "none") == 0)
		return -ECONNREFUSED;
	if (strlen(socket) >= sizeof endpoint->path)
		return -EINVAL;
	(void)strcpy(endpoint->path, socket);
	endpoint->is_only = 1;
	return 1;
}

int cnre_endpoint_list(const char *socket, const unsigned char *identity,
		       struct cnre_endpoint ret_endpoints[CNRE_ENDPOINTS_MAX])
{
	memset(ret_endpoints, 0, CNRE_ENDPOINTS_MAX * sizeof ret_endpoints[0]);
	if (socket == NULL)
		socket = getenv("CNRE_SOCKET");
	if (socket != NULL && socket[0] != '\0')
		return fill_given(&ret_endpoints[0], socket);
	(void)strcpy(ret_endpoints[0].path, CNRE_SYSTEM_SOCKET);
	if (identity == NULL || fill_own(&ret_endpoints[1], identity) < 0)
		return 1; /* without a directory of our own there is no own manager */
	return 2;
}
