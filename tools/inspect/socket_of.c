/* SPDX-License-Identifier: Apache-2.0 */
/* See socket_of.h. */
#include "tools/inspect/socket_of.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LISTENS 0x10000ul                 /* SO_ACCEPTCON, of the column of flags */

static int has_inode(DIR *descriptors, unsigned long inode)
{
	char wanted[40], target[64];
	struct dirent *entry;

	(void)snprintf(wanted, sizeof wanted, "socket:[%lu]", inode);
	rewinddir(descriptors);
	while ((entry = readdir(descriptors)) != NULL) {
		ssize_t length = readlinkat(dirfd(descriptors), entry->d_name, target, sizeof target - 1);

		if (length <= 0)
			continue;
		target[length] = '\0';
		if (strcmp(target, wanted) == 0)
			return 1;
	}
	return 0;
}

static int find(DIR *descriptors, FILE *sockets, char ret_path[SEARCH_PATH_BYTES])
{
	unsigned long flags, inode;
	char line[512], path[SEARCH_PATH_BYTES];

	/* Num: RefCount Protocol Flags Type St Inode Path */
	while (fgets(line, sizeof line, sockets) != NULL) {
		if (sscanf(line, "%*s %*s %*s %lx %*s %*s %lu %107s", &flags, &inode, path) != 3)
			continue;
		if ((flags & LISTENS) == 0 || path[0] != '/' || !has_inode(descriptors, inode))
			continue;
		memcpy(ret_path, path, strlen(path) + 1);
		return 0;
	}
	return -ENOENT;
}

int socket_of(uint32_t process, char ret_path[SEARCH_PATH_BYTES], char message[CTL_MESSAGE_BYTES])
{
	char path[64];
	DIR *descriptors;
	FILE *sockets;
	int r;

	(void)snprintf(path, sizeof path, "/proc/%u/fd", process);
	descriptors = opendir(path);
	if (descriptors == NULL) {
		r = errno == ENOENT ? -ESRCH : -errno;
		(void)snprintf(message, CTL_MESSAGE_BYTES,
			       r == -ESRCH ? "process %u: there is none"
					   : "process %u: its descriptors may not be seen: give --socket instead",
			       process);
		return r;
	}
	(void)snprintf(path, sizeof path, "/proc/%u/net/unix", process);
	sockets = fopen(path, "re");
	r = sockets == NULL ? -errno : find(descriptors, sockets, ret_path);
	if (sockets != NULL)
		(void)fclose(sockets);
	(void)closedir(descriptors);
	if (r < 0)
		(void)snprintf(message, CTL_MESSAGE_BYTES, "process %u: listens on no socket, so it is no manager", process);
	return r;
}
