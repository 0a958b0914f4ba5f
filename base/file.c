/* SPDX-License-Identifier: Apache-2.0 */
/* Regular files, read to the full length; see file.h. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
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
