/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays in temporary files; see trace_store.h. */
#include "tools/sim/trace_store.h"

#include "base/check.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define TEMPLATE "/cnre-sim-XXXXXX"

const char *sim_store_directory(const char *directory)
{
	if (directory == NULL || *directory == '\0')
		directory = getenv("TMPDIR");
	return directory == NULL || *directory == '\0' ? "/tmp" : directory;
}

/* Where the filesystem knows no O_TMPFILE, the name lives for a moment. */
int sim_store_unlinked(const char *given)
{
	const char *directory = sim_store_directory(given);
	int fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	char path[4096 + sizeof TEMPLATE];

	if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL))
		return fd < 0 ? -errno : fd;
	if ((size_t)snprintf(path, sizeof path, "%s%s", directory, TEMPLATE) >= sizeof path)
		return -ENAMETOOLONG;
	fd = mkostemp(path, O_CLOEXEC);
	if (fd < 0)
		return -errno;
	(void)unlink(path);
	return fd;
}

int sim_store_open(struct sim_store *ret_store, const char *directory)
{
	struct sim_store store = {.buffer = malloc(SIM_STORE_BUFFER_BYTES)};

	if (store.buffer == NULL)
		return -ENOMEM;
	store.fd = sim_store_unlinked(directory);
	if (store.fd < 0) {
		free(store.buffer);
		return store.fd;
	}
	*ret_store = store;
	return 0;
}

static int write_at(int fd, const unsigned char *from, size_t bytes, uint64_t offset)
{
	ssize_t n;

	while (bytes > 0) {
		n = pwrite(fd, from, bytes, (off_t)offset);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -ENOSPC;
		from += n;
		bytes -= (size_t)n;
		offset += (uint64_t)n;
	}
	return 0;
}

static int flush(struct sim_store *store)
{
	int result = write_at(store->fd, store->buffer, store->buffered, store->bytes - store->buffered);

	if (result == 0)
		store->buffered = 0;
	return result;
}

int sim_store_append(struct sim_store *store, const void *from, size_t bytes)
{
	const unsigned char *at = from;
	size_t part;
	int result;

	if (store->bytes > INT64_MAX - SIM_STORE_BUFFER_BYTES - bytes)
		return -EFBIG;
	while (bytes > 0) {
		if (store->buffered == SIM_STORE_BUFFER_BYTES) {
			result = flush(store);
			if (result < 0)
				return result;
		}
		part = SIM_STORE_BUFFER_BYTES - store->buffered;
		part = part < bytes ? part : bytes;
		memcpy(store->buffer + store->buffered, at, part);
		store->buffered += part;
		store->bytes += part;
		at += part;
		bytes -= part;
	}
	return 0;
}

int sim_store_rewrite(struct sim_store *store, size_t unit, int (*change)(void *context, void *piece, size_t bytes),
		      void *context)
{
	uint64_t offset, left;
	size_t want;
	int64_t got;
	int result = flush(store);

	CNRE_CHECK(SIM_STORE_BUFFER_BYTES % unit == 0 && store->bytes % unit == 0);
	for (offset = 0; result == 0 && offset < store->bytes; offset += want) {
		left = store->bytes - offset;
		want = left < SIM_STORE_BUFFER_BYTES ? (size_t)left : SIM_STORE_BUFFER_BYTES;
		got = cnre_file_read(store->fd, store->buffer, want, offset);
		if (got != (int64_t)want)
			return got < 0 ? (int)got : -EIO;
		result = change(context, store->buffer, want);
		if (result == 0)
			result = write_at(store->fd, store->buffer, want, offset);
	}
	return result;
}

int sim_store_map(struct sim_store *store, void **ret_mapping)
{
	int result = flush(store);
	void *mapping;

	if (result < 0)
		return result;
	if (store->bytes == 0 || store->bytes > SIZE_MAX)
		return -EINVAL;
	mapping = mmap(NULL, (size_t)store->bytes, PROT_READ, MAP_SHARED, store->fd, 0);
	if (mapping == MAP_FAILED)
		return -errno;
	*ret_mapping = mapping;
	return 0;
}

void sim_store_close(struct sim_store *store)
{
	free(store->buffer);
	(void)close(store->fd);
	store->buffer = NULL;
	store->fd = -1;
}
