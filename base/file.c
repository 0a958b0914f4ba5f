/* SPDX-License-Identifier: Apache-2.0 */
/* Regular files, read to the full length and written whole; see file.h. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_BYTES_MAX (1u << 30) /* one pread transfers at most 0x7ffff000 bytes anyway */

int cnre_file_open(int directory_fd, const char *name, uint64_t *ret_bytes)
{
	struct stat status;
	int fd, result;

	/* O_NONBLOCK: opening a FIFO must not wait for a writer. It means nothing for regular files. */
	fd = openat(directory_fd, name, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	result = fstat(fd, &status) < 0 ? -errno : 0;
	if (result == 0 && !S_ISREG(status.st_mode))
		result = -EINVAL;
	if (result < 0) {
		(void)close(fd);
		return result;
	}
	*ret_bytes = (uint64_t)status.st_size;
	return fd;
}

int64_t cnre_file_read(int fd, void *buffer, uint64_t bytes, uint64_t offset)
{
	unsigned char *to = buffer;
	uint64_t got = 0;
	size_t want;
	ssize_t n;

	if (bytes > INT64_MAX || offset > INT64_MAX - bytes)
		return -EINVAL;
	while (got < bytes) {
		want = bytes - got < READ_BYTES_MAX ? (size_t)(bytes - got) : READ_BYTES_MAX;
		n = pread(fd, to + got, want, (off_t)(offset + got));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		got += (uint64_t)n;
	}
	return (int64_t)got;
}

int cnre_file_write(int fd, const void *buffer, uint64_t bytes)
{
	const unsigned char *from = buffer;

	while (bytes > 0) {
		ssize_t n = write(fd, from, bytes < READ_BYTES_MAX ? (size_t)bytes : READ_BYTES_MAX);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		from += n;
		bytes -= (uint64_t)n;
	}
	return 0;
}

/* The name is on the drive, too. A folder that cannot be synced costs at most the new content. */
static void sync_folder(const char *path)
{
	char *copy = strdup(path);
	int fd = copy != NULL ? open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

	if (fd >= 0) {
		(void)fsync(fd);
		(void)close(fd);
	}
	free(copy);
}

int cnre_file_replace(const char *path, const void *bytes, uint64_t count)
{
	return cnre_file_replace_as(path, bytes, count, 0);
}

int cnre_file_replace_as(const char *path, const void *bytes, uint64_t count, mode_t mode)
{
	char fresh[PATH_MAX];
	int fd, r = snprintf(fresh, sizeof fresh, "%s.XXXXXX", path);

	_Static_assert(sizeof "XXXXXX" == CNRE_FILE_FRESH_BYTES + 1, "as the header says");
	if (r < 0 || (size_t)r >= sizeof fresh)
		return -ENAMETOOLONG;
	fd = mkostemp(fresh, O_CLOEXEC);
	if (fd < 0)
		return -errno;
	r = cnre_file_write(fd, bytes, count);
	if (r == 0 && mode != 0)
		(void)fchmod(fd, mode); /* refused, as where files have none: its owner can read it */
	if (r == 0 && fsync(fd) < 0)
		r = -errno;
	if (close(fd) < 0 && r == 0)
		r = -errno;
	if (r == 0 && rename(fresh, path) < 0)
		r = -errno;
	if (r < 0) {
		(void)unlink(fresh);
		return r;
	}
	sync_folder(path);
	return 0;
}
