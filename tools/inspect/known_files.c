/* SPDX-License-Identifier: Apache-2.0 */
/* See known_files.h. */
#include "tools/inspect/known_files.h"

#include "base/clock.h"
#include "tools/inspect/file_extents.h"

#include <dirent.h>
#include <errno.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

int known_files_open(struct known_files *files, const char *kv_directory)
{
	*files = (struct known_files){.count = 0};
	files->file = calloc(KNOWN_FILES_MAX, sizeof files->file[0]);
	if (files->file == NULL)
		return -ENOMEM;
	if (kv_directory != NULL)
		(void)snprintf(files->kv_directory, sizeof files->kv_directory, "%s", kv_directory);
	return 0;
}

void known_files_close(struct known_files *files)
{
	free(files->file);
	extent_map_done(&files->kv);
	*files = (struct known_files){.count = 0};
}

/* ---- names ---- */

static int find_in_maps(uint32_t process, uint64_t device, uint64_t inode, char *ret_path, size_t room)
{
	char name[64], line[4352], path[4096];
	unsigned major_number, minor_number;
	unsigned long long number;
	int found = 0;
	FILE *maps;

	(void)snprintf(name, sizeof name, "/proc/%u/maps", process);
	maps = fopen(name, "re");
	while (maps != NULL && !found && fgets(line, sizeof line, maps) != NULL) {
		if (sscanf(line, "%*s %*s %*s %x:%x %llu %4095[^\n]", &major_number, &minor_number, &number, path) != 4)
			continue;
		found = number == inode && file_extents_device(makedev(major_number, minor_number)) == device;
	}
	if (maps != NULL)
		(void)fclose(maps);
	if (found)
		(void)snprintf(ret_path, room, "%.255s", path);
	return found;
}

static int find_in_descriptors(uint32_t process, uint64_t device, uint64_t inode, char *ret_path, size_t room)
{
	struct dirent *entry;
	struct stat status;
	char name[64];
	int found = 0;
	DIR *directory;

	(void)snprintf(name, sizeof name, "/proc/%u/fd", process);
	directory = opendir(name);
	while (directory != NULL && !found && (entry = readdir(directory)) != NULL) {
		ssize_t length;

		if (fstatat(dirfd(directory), entry->d_name, &status, 0) < 0 || status.st_ino != inode ||
		    file_extents_device(status.st_dev) != device)
			continue;
		length = readlinkat(dirfd(directory), entry->d_name, ret_path, room - 1);
		found = length > 0;
		ret_path[found ? length : 0] = '\0';
	}
	if (directory != NULL)
		(void)closedir(directory);
	return found;
}

const char *known_files_path(struct known_files *files, uint32_t process, uint64_t device, uint64_t inode)
{
	struct known_file *file;

	for (uint32_t i = 0; i < files->count; i++)
		if (files->file[i].device == device && files->file[i].inode == inode)
			return files->file[i].path;
	if (files->count == KNOWN_FILES_MAX)
		return "";
	file = &files->file[files->count++];
	file->device = device;
	file->inode = inode;
	if (!find_in_maps(process, device, inode, file->path, sizeof file->path) &&
	    !find_in_descriptors(process, device, inode, file->path, sizeof file->path))
		file->path[0] = '\0';
	for (char *at = file->path; *at != '\0'; at++) /* for JSON and for terminals */
		if (*at < 0x20 || *at > 0x7e)
			*at = '?';
	return file->path;
}

/* ---- devices ---- */

static int is_in_mounts(uint64_t device)
{
	FILE *mounts = fopen("/proc/self/mountinfo", "re");
	unsigned major_number, minor_number;
	char line[4096];
	int found = 0;

	while (mounts != NULL && !found && fgets(line, sizeof line, mounts) != NULL)
		found = sscanf(line, "%*u %*u %u:%u", &major_number, &minor_number) == 2 &&
			file_extents_device(makedev(major_number, minor_number)) == device;
	if (mounts != NULL)
		(void)fclose(mounts);
	return found;
}

int known_files_is_mounted(struct known_files *files, uint64_t device)
{
	for (uint32_t i = 0; i < files->device_count; i++)
		if (files->device[i].device == device)
			return files->device[i].is_mounted;
	if (files->device_count == KNOWN_DEVICES_MAX)
		return 1;
	files->device[files->device_count] = (struct known_device){.device = device, .is_mounted = is_in_mounts(device)};
	return files->device[files->device_count++].is_mounted;
}

/* ---- KV prefixes ---- */

static void list_kv(struct known_files *files)
{
	char *const roots[] = {files->kv_directory, NULL};
	FTS *tree = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR | FTS_XDEV, NULL);
	uint32_t count = 0;
	FTSENT *entry;

	extent_map_done(&files->kv);
	while (tree != NULL && count < KNOWN_KV_FILES_MAX && (entry = fts_read(tree)) != NULL) {
		struct file_extents place;

		if (entry->fts_info == FTS_F && file_extents_add(&files->kv, entry->fts_accpath, count, &place) == 0)
			count++;
	}
	if (tree != NULL)
		(void)fts_close(tree);
	extent_map_sort(&files->kv);
}

int known_files_is_kv(struct known_files *files, uint64_t device, uint64_t begin)
{
	int64_t now_ns = cnre_clock_now_ns();

	if (files->kv_directory[0] == '\0')
		return 0;
	extent_map_sort(&files->kv);
	if (extent_map_cut(&files->kv, device, begin, 1).file != EXTENT_NO_FILE)
		return 1;
	if (files->kv_listed_ns != 0 && now_ns - files->kv_listed_ns < KNOWN_KV_EVERY_NS)
		return 0;
	list_kv(files);
	files->kv_listed_ns = cnre_clock_now_ns();
	return extent_map_cut(&files->kv, device, begin, 1).file != EXTENT_NO_FILE;
}
