/* SPDX-License-Identifier: Apache-2.0 */
/* Temporary directories; see folder.h. */
#include "tests/support/folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATTERN_MAX (1u << 20)

static void give_up(const char *what)
{
	perror(what);
	_exit(99);
}

void folder_make(struct folder *folder)
{
	(void)snprintf(folder->path, sizeof folder->path, "/tmp/cnre-test-XXXXXX");
	if (mkdtemp(folder->path) == NULL)
		give_up("mkdtemp");
}

const char *folder_path(const struct folder *folder, const char *name, char *text, size_t text_bytes)
{
	(void)snprintf(text, text_bytes, "%s/%s", folder->path, name);
	return text;
}

void folder_remove(const struct folder *folder)
{
	DIR *directory = opendir(folder->path);
	struct dirent *entry;

	while (directory != NULL && (entry = readdir(directory)) != NULL)
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			(void)unlinkat(dirfd(directory), entry->d_name, 0);
	if (directory != NULL)
		(void)closedir(directory);
	(void)rmdir(folder->path);
}

static int create(const struct folder *folder, const char *name)
{
	char path[512];
	int fd = open(folder_path(folder, name, path, sizeof path), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	if (fd < 0)
		give_up(path);
	return fd;
}

static void put(int fd, const void *bytes, size_t count)
{
	const char *from = bytes;
	ssize_t n;

	for (; count > 0; from += n, count -= (size_t)n) {
		n = write(fd, from, count);
		if (n <= 0)
			give_up("write");
	}
}

void folder_write(const struct folder *folder, const char *name, const void *bytes, size_t count)
{
	int fd = create(folder, name);

	put(fd, bytes, count);
	(void)close(fd);
}

void folder_write_shard(const struct folder *folder, const char *name, const char *header, uint64_t data_bytes)
{
	uint64_t header_bytes = strlen(header), i;
	unsigned char prefix[8], *pattern;
	int fd = create(folder, name);

	for (i = 0; i < 8; i++)
		prefix[i] = (unsigned char)(header_bytes >> 8 * i);
	put(fd, prefix, sizeof prefix);
	put(fd, header, header_bytes);
	if (data_bytes > PATTERN_MAX) {
		if (ftruncate(fd, (off_t)(8 + header_bytes + data_bytes)) < 0)
			give_up("ftruncate");
	} else if (data_bytes > 0) {
		pattern = malloc(data_bytes);
		if (pattern == NULL)
			give_up("malloc");
		for (i = 0; i < data_bytes; i++)
			pattern[i] = (unsigned char)(i * 7 + (i >> 8));
		put(fd, pattern, data_bytes);
		free(pattern);
	}
	(void)close(fd);
}
