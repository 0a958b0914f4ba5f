/* SPDX-License-Identifier: Apache-2.0 */
/* Disks by sysfs; see disk.h. sysfs is in memory: nothing here waits for a drive. */
#include "base/disk.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* A path that is too long names nothing that is there. */
static int resolve(char path[PATH_MAX], const char *directory, const char *name)
{
	char joined[PATH_MAX];

	if (snprintf(joined, sizeof joined, "%s/%s", directory, name) >= (int)sizeof joined)
		return -ENAMETOOLONG;
	return realpath(joined, path) == NULL ? -errno : 0;
}

static int is_there(const char *directory, const char *name)
{
	char path[PATH_MAX];

	return resolve(path, directory, name) == 0;
}

static void leave_partition(char *path)
{
	char *slash = strrchr(path, '/');

	if (slash != NULL && is_there(path, "partition"))
		*slash = '\0';
}

/* The only entry of path/slaves: 1 and its name, else 0. */
static int only_slave(const char *path, char ret_name[NAME_MAX + 1])
{
	char slaves[PATH_MAX];
	struct dirent *entry;
	int count = 0;
	DIR *directory;

	if (resolve(slaves, path, "slaves") < 0)
		return 0;
	directory = opendir(slaves);
	while (directory != NULL && (entry = readdir(directory)) != NULL) {
		if (entry->d_name[0] == '.')
			continue;
		count++;
		(void)snprintf(ret_name, NAME_MAX + 1, "%s", entry->d_name);
	}
	if (directory != NULL)
		(void)closedir(directory);
	return count == 1;
}

static int go_below(char *path)
{
	char slaves[PATH_MAX], below[PATH_MAX], name[NAME_MAX + 1];

	if (!only_slave(path, name) || resolve(slaves, path, "slaves") < 0 || resolve(below, slaves, name) < 0)
		return 0;
	(void)snprintf(path, PATH_MAX, "%s", below);
	return 1;
}

int cnre_disk_of(const char *root, dev_t device, char ret_name[CNRE_DISK_NAME_BYTES])
{
	char path[PATH_MAX], blocks[PATH_MAX], number[32];
	unsigned level = 0;

	(void)snprintf(number, sizeof number, "%u:%u", major(device), minor(device));
	if (snprintf(blocks, sizeof blocks, "%s/sys/dev/block", root) >= (int)sizeof blocks ||
	    resolve(path, blocks, number) < 0)
		return -ENOENT;
	do
		leave_partition(path);
	while (level++ < CNRE_DISK_LEVELS_MAX && go_below(path));
	if (snprintf(ret_name, CNRE_DISK_NAME_BYTES, "%s", strrchr(path, '/') + 1) >= (int)CNRE_DISK_NAME_BYTES)
		return -ENOENT;
	return 0;
}

int cnre_disk_is_shared(const char *root, dev_t a, dev_t b)
{
	char first[CNRE_DISK_NAME_BYTES], second[CNRE_DISK_NAME_BYTES];

	if (a == b)
		return 1;
	return cnre_disk_of(root, a, first) == 0 && cnre_disk_of(root, b, second) == 0 &&
	       strcmp(first, second) == 0;
}
