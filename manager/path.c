/* SPDX-License-Identifier: Apache-2.0 */
/* The default socket path; see path.h. */
#include "manager/path.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int make_directory(const char *directory, mode_t mode, char *message, size_t message_bytes)
{
	struct stat status;

	if (mkdir(directory, mode) < 0 && errno != EEXIST) {
		int r = -errno;

		(void)snprintf(message, message_bytes, "cannot make %s: %s: pass --socket PATH", directory,
			       strerror(-r));
		return r;
	}
	if (lstat(directory, &status) < 0 || !S_ISDIR(status.st_mode) ||
	    (geteuid() != 0 && status.st_uid != geteuid())) {
		(void)snprintf(message, message_bytes,
			       "%s is not a directory of this user: remove it or pass --socket PATH", directory);
		return -EPERM;
	}
	return 0;
}

static void user_directory(char *directory, size_t bytes)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	char run[64];

	(void)snprintf(run, sizeof run, "/run/user/%u", (unsigned)geteuid());
	if (runtime != NULL && runtime[0] == '/')
		(void)snprintf(directory, bytes, "%s/cnre", runtime);
	else if (access(run, W_OK) == 0)
		(void)snprintf(directory, bytes, "%s/cnre", run);
	else
		(void)snprintf(directory, bytes, "/tmp/cnre-%u", (unsigned)geteuid());
}

int path_of_socket(const char *configured, char *path, size_t bytes, char *message, size_t message_bytes)
{
	char directory[100] = "/run/cnre";
	int r;

	if (configured != NULL) {
		(void)snprintf(path, bytes, "%s", configured);
		return 0;
	}
	if (geteuid() != 0)
		user_directory(directory, sizeof directory);
	r = make_directory(directory, geteuid() == 0 ? 0755 : 0700, message, message_bytes);
	if (r < 0)
		return r;
	(void)snprintf(path, bytes, "%s/managerd.sock", directory);
	return 0;
}
