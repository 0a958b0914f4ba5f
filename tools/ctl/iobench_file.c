/* SPDX-License-Identifier: Apache-2.0 */
/* Files to read and the disks they lie on; see iobench_file.h. */
#include "tools/ctl/iobench_file.h"

#include "base/disk.h"
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define SHARD_SUFFIX ".safetensors"

static int fail(const char *target, int error, const char *reason, char message[CTL_MESSAGE_BYTES])
{
	(void)snprintf(message, CTL_MESSAGE_BYTES, "%.600s: %s", target, reason);
	return error;
}

/* ---- which file ---- */

static int is_shard(const char *name)
{
	size_t length = strlen(name), suffix = strlen(SHARD_SUFFIX);

	return length > suffix && strcmp(name + length - suffix, SHARD_SUFFIX) == 0;
}

/* Of several as large the first by name, so that two runs read the same one. -ENOENT: there is none. */
static int find_largest(DIR *folder, char ret_name[NAME_MAX + 1])
{
	char largest[NAME_MAX + 1] = "";
	struct dirent *entry;
	struct stat status;
	off_t bytes = -1;

	for (uint32_t i = 0; i < IOBENCH_ENTRIES_MAX && (entry = readdir(folder)) != NULL; i++) {
		if (!is_shard(entry->d_name) || fstatat(dirfd(folder), entry->d_name, &status, 0) < 0 ||
		    !S_ISREG(status.st_mode))
			continue;
		if (status.st_size > bytes || (status.st_size == bytes && strcmp(entry->d_name, largest) < 0)) {
			bytes = status.st_size;
			(void)snprintf(largest, sizeof largest, "%s", entry->d_name);
		}
	}
	if (bytes < 0)
		return -ENOENT;
	memcpy(ret_name, largest, sizeof largest);
	return 0;
}

static int choose_file(const char *target, char ret_path[PATH_MAX], char message[CTL_MESSAGE_BYTES])
{
	char name[NAME_MAX + 1] = "";
	DIR *folder = opendir(target);
	int r;

	if (folder == NULL && errno != ENOTDIR)
		return fail(target, -errno, strerror(errno), message);
	if (folder != NULL) {
		r = find_largest(folder, name);
		(void)closedir(folder);
		if (r < 0)
			return fail(target, r, "no *" SHARD_SUFFIX " there: name a large file instead", message);
	}
	if (snprintf(ret_path, PATH_MAX, "%s%s%s", target, folder == NULL ? "" : "/", name) >= PATH_MAX)
		return fail(target, -ENAMETOOLONG, strerror(ENAMETOOLONG), message);
	return 0;
}

/* ---- which disk ---- */

/* Where sysfs knows of none (a network, a file system over several disks), each device is a disk of its own, by its numbers. */
static void name_disk(dev_t device, char name[CNRE_DISK_NAME_BYTES])
{
	if (cnre_disk_of("", device, name) < 0)
		(void)snprintf(name, CNRE_DISK_NAME_BYTES, "%u:%u", major(device), minor(device));
}

/* ---- open ---- */

/* The same inode as the descriptor that is there: a path can be given another file between two calls. */
static void open_direct(struct iobench_file *file, const struct stat *status)
{
	struct stat other;
	int fd = open(file->path, O_RDONLY | O_DIRECT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);

	file->direct_fd = -1;
	if (fd < 0) {
		file->direct_error = -errno;
	} else if (fstat(fd, &other) < 0 || other.st_dev != status->st_dev || other.st_ino != status->st_ino) {
		file->direct_error = -ESTALE;
		(void)close(fd);
	} else {
		file->direct_error = 0;
		file->direct_fd = fd;
	}
}

int iobench_file_open(struct iobench_file *ret_file, const char *target, char message[CTL_MESSAGE_BYTES])
{
	char path[PATH_MAX];
	struct stat status;
	uint64_t bytes;
	int fd, r = choose_file(target, path, message);

	if (r < 0)
		return r;
	fd = cnre_file_open(AT_FDCWD, path, &bytes);
	if (fd < 0)
		return fail(path, fd, fd == -EINVAL ? "neither a directory nor a regular file" : strerror(-fd),
			    message);
	if (fstat(fd, &status) < 0) {
		r = -errno;
		(void)close(fd);
		return fail(path, r, strerror(-r), message);
	}
	memcpy(ret_file->path, path, sizeof path);
	ret_file->bytes = bytes;
	ret_file->buffered_fd = fd;
	open_direct(ret_file, &status);
	name_disk(status.st_dev, ret_file->disk_name);
	return 0;
}

void iobench_file_close(struct iobench_file *file)
{
	(void)close(file->buffered_fd);
	if (file->direct_fd >= 0)
		(void)close(file->direct_fd);
}

void iobench_file_refuse_direct(struct iobench_file *file, int error)
{
	(void)close(file->direct_fd);
	file->direct_fd = -1;
	file->direct_error = error;
}

void iobench_file_forget(const struct iobench_file *file)
{
	(void)posix_fadvise(file->buffered_fd, 0, 0, POSIX_FADV_DONTNEED); /* advice: what stays is somebody's */
}
