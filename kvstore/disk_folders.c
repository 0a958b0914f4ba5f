/* SPDX-License-Identifier: Apache-2.0 */
/* The folders of a disk: those that were asked for, each once, and those that are there. */
#include "kvstore/disk_inner.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FOLDERS_MAX 1024u /* names that one disk was asked for */

static struct kv_folder *find_folder_locked(struct kv_disk *disk, const char *name)
{
	struct kv_folder *folder = disk->folders;

	while (folder != NULL && strcmp(folder->name, name) != 0)
		folder = folder->next;
	return folder;
}

static struct kv_folder *add_folder_locked(struct kv_disk *disk, const char *name)
{
	struct kv_folder *folder = disk->folder_count == FOLDERS_MAX ? NULL : calloc(1, sizeof(*folder));

	if (folder == NULL)
		return NULL;
	(void)snprintf(folder->name, sizeof(folder->name), "%s", name);
	folder->quarantine_count = -1;
	folder->next = disk->folders;
	disk->folders = folder;
	disk->folder_count++;
	return folder;
}

int kv_disk_folder(struct kv_disk *disk, const char *name, struct kv_folder **ret_folder)
{
	struct kv_folder *folder;

	if (!fanout_name_is_good(name))
		return -EINVAL;
	(void)pthread_mutex_lock(&disk->lock);
	folder = find_folder_locked(disk, name);
	if (folder == NULL)
		folder = add_folder_locked(disk, name);
	(void)pthread_mutex_unlock(&disk->lock);
	if (folder == NULL)
		return -ENOMEM;
	*ret_folder = folder;
	return 0;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Files beside the folders, and folders of other names, are not ours. */
static int is_folder(int root_fd, const char *name)
{
	struct stat status;

	return fanout_name_is_good(name) && fstatat(root_fd, name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
	       S_ISDIR(status.st_mode);
}

static int add_name(char ***names, int count, const char *name)
{
	char **more = realloc(*names, ((size_t)count + 1) * sizeof(**names));

	if (more == NULL)
		return -ENOMEM;
	*names = more;
	more[count] = strdup(name);
	return more[count] == NULL ? -ENOMEM : count + 1;
}

static int free_names(char **names, int count, int error)
{
	while (count > 0)
		free(names[--count]);
	free(names);
	return error;
}

int kv_disk_list_folders(struct kv_disk *disk, char ***ret_names)
{
	int fd = openat(disk->root_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), count = 0;
	DIR *listing = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;
	char **names = NULL;

	if (listing == NULL) {
		int error = -errno;

		if (fd >= 0)
			(void)close(fd);
		return error;
	}
	while ((entry = readdir(listing)) != NULL) {
		int more = is_folder(fd, entry->d_name) ? add_name(&names, count, entry->d_name) : count;

		if (more < 0) {
			(void)closedir(listing);
			return free_names(names, count, more);
		}
		count = more;
	}
	(void)closedir(listing);
	if (count > 0)
		qsort(names, (size_t)count, sizeof(*names), compare_names);
	*ret_names = names;
	return count;
}
