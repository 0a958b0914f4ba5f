/* SPDX-License-Identifier: Apache-2.0 */
/* Comparing a copy with its shard; see mirror_check.h. Through the page cache: a check happens once, and is some MiB. */
#include "manager/mirror_check.h"

#include "base/disk.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCK_BYTES 65536u /* of a header */
#define PAGE_BYTES 4096u

struct check {
	const struct mirror_shard *shard;
	const char *directory;
	struct mirror_progress *progress;
	struct mirror_verdict *verdict;
	int primary_fd, copy_fd;
	struct stat primary, copy;
	int is_named;                              /* found in a folder of the model's name */
	unsigned char *primary_bytes, *copy_bytes; /* BLOCK_BYTES each */
};

/* ---- verdicts ---- */

__attribute__((format(printf, 3, 4))) static int refuse(struct check *check, const char *advice, const char *format,
							...)
{
	va_list arguments;

	check->verdict->finding = MIRROR_REFUSED;
	check->verdict->advice = advice;
	va_start(arguments, format);
	if (vasprintf(&check->verdict->reason, format, arguments) < 0)
		check->verdict->reason = NULL;
	va_end(arguments);
	return 1;
}

#define COPY_AGAIN "copy the shard again"
#define SEE_DRIVE "see the drive and the file's permissions"

static int refuse_error(struct check *check, const char *path, int error)
{
	return refuse(check, SEE_DRIVE, "%s: %s", path, strerror(error));
}

static int is_cancelled(struct check *check)
{
	/* [MC1] relaxed: a wish that carries nothing; a page more or less is read. */
	if (!atomic_load_explicit(&check->progress->is_stopping, memory_order_relaxed))
		return 0;
	check->verdict->finding = MIRROR_CANCELLED;
	return 1;
}

/* ---- finding it ---- */

/* 1 decided, 0 open: go on. *ret_fd -1: there is none. */
static int open_copy(struct check *check, const char *path)
{
	uint64_t bytes;
	int fd = cnre_file_open(AT_FDCWD, path, &bytes);

	if (fd == -ENOENT || fd == -ENOTDIR)
		return 0;
	check->verdict->path = strdup(path);
	if (check->verdict->path == NULL)
		return refuse(check, "free memory", "%s: out of memory", path);
	if (fd == -EINVAL)
		return refuse(check, "copy the shard there, or link to the copy", "%s: is no regular file", path);
	if (fd < 0)
		return refuse_error(check, path, -fd);
	check->copy_fd = fd;
	return fstat(fd, &check->copy) < 0 ? refuse_error(check, path, errno) : 0;
}

static int find_copy(struct check *check)
{
	const struct mirror_shard *shard = check->shard;
	char *path;
	int r;

	for (check->is_named = 1; check->is_named >= 0; check->is_named--) {
		if (asprintf(&path, "%s%s%s/%s", check->directory, check->is_named ? "/" : "",
			     check->is_named ? shard->model_name : "", shard->name) < 0)
			return refuse(check, "free memory", "%s: out of memory", check->directory);
		r = open_copy(check, path);
		free(path);
		if (r != 0 || check->copy_fd >= 0)
			return r;
	}
	check->verdict->finding = MIRROR_ABSENT;
	return 1;
}

static int open_primary(struct check *check)
{
	uint64_t bytes;
	int fd = cnre_file_open(AT_FDCWD, check->shard->path, &bytes);

	if (fd < 0)
		return refuse_error(check, check->shard->path, -fd);
	check->primary_fd = fd;
	if (fstat(fd, &check->primary) < 0)
		return refuse_error(check, check->shard->path, errno);
	/* Single pages are wanted, and no 128 KiB around each. */
	(void)posix_fadvise(check->primary_fd, 0, 0, POSIX_FADV_RANDOM);
	(void)posix_fadvise(check->copy_fd, 0, 0, POSIX_FADV_RANDOM);
	return 0;
}

/* ---- what its name says ---- */

static int have_one_directory(const char *a, const char *b)
{
	struct stat first, second;

	return stat(a, &first) == 0 && stat(b, &second) == 0 && first.st_dev == second.st_dev &&
	       first.st_ino == second.st_ino;
}

/* The path cut behind its directory, or NULL. */
static char *directory_of(const char *path)
{
	char *copy = strdup(path), *slash = copy == NULL ? NULL : strrchr(copy, '/');

	if (slash != NULL)
		slash[slash == copy] = '\0';
	return copy;
}

/* Links, bind mounts and a mirror that is the checkpoint itself: all of them are one file. */
static int refuse_same_file(struct check *check)
{
	char *own = directory_of(check->shard->path), *other = directory_of(check->verdict->path);
	int r;

	if (own != NULL && other != NULL && have_one_directory(own, other))
		r = refuse(check, "name a directory on another drive", "%s: is the checkpoint's own directory", own);
	else
		r = refuse(check, "copy the shard instead of linking to it",
			   "%s: is the very file %s: a link is no mirror", check->verdict->path, check->shard->path);
	free(own);
	free(other);
	return r;
}

static int compare_names_and_sizes(struct check *check)
{
	const char *path = check->verdict->path;

	if (check->copy.st_dev == check->primary.st_dev && check->copy.st_ino == check->primary.st_ino)
		return refuse_same_file(check);
	check->verdict->is_foreign = !check->is_named; /* until size and header say that it is ours */
	if ((uint64_t)check->copy.st_size != check->shard->bytes)
		return refuse(check, COPY_AGAIN, "%s: has %lld bytes, the shard %llu", path,
			      (long long)check->copy.st_size, (unsigned long long)check->shard->bytes);
	return 0;
}

/* ---- what is in it ---- */

static int read_one(struct check *check, int fd, const char *path, unsigned char *to, uint64_t bytes, uint64_t off)
{
	int64_t got = cnre_file_read(fd, to, bytes, off);

	/* [MC2] relaxed: only whether it moves is looked at. */
	(void)atomic_fetch_add_explicit(&check->progress->steps, 1, memory_order_relaxed);
	if (got < 0)
		return refuse(check, SEE_DRIVE, "%s: reading at byte %llu: %s", path, (unsigned long long)off,
			      strerror((int)-got));
	if ((uint64_t)got < bytes)
		return refuse(check, COPY_AGAIN, "%s: ends at byte %llu", path,
			      (unsigned long long)(off + (uint64_t)got));
	return 0;
}

/* 0 the same, 1 decided. */
static int compare(struct check *check, uint64_t off, uint64_t bytes)
{
	const char *path = check->verdict->path;
	uint64_t i = 0;
	int r = is_cancelled(check);

	if (r == 0)
		r = read_one(check, check->primary_fd, check->shard->path, check->primary_bytes, bytes, off);
	if (r == 0)
		r = read_one(check, check->copy_fd, path, check->copy_bytes, bytes, off);
	if (r != 0 || memcmp(check->primary_bytes, check->copy_bytes, bytes) == 0)
		return r;
	while (check->primary_bytes[i] == check->copy_bytes[i])
		i++;
	return refuse(check, COPY_AGAIN, "%s: differs from %s at byte %llu, in its %s", path, check->shard->path,
		      (unsigned long long)(off + i), off + i < check->shard->header_bytes ? "header" : "payload");
}

static int compare_headers(struct check *check)
{
	uint64_t bytes = check->shard->header_bytes, at;
	int r = 0;

	for (at = 0; at < bytes && r == 0; at += BLOCK_BYTES)
		r = compare(check, at, bytes - at < BLOCK_BYTES ? bytes - at : BLOCK_BYTES);
	if (r == 0)
		check->verdict->is_foreign = 0;
	return r;
}

static int compare_pages(struct check *check)
{
	int r = 0;

	for (uint32_t i = 0; i < check->shard->page_count && r == 0; i++) {
		uint64_t off = check->shard->page[i], rest = check->shard->bytes - off;

		r = compare(check, off, rest < PAGE_BYTES ? rest : PAGE_BYTES);
	}
	return r;
}

static void prove(struct check *check)
{
	check->verdict->finding = MIRROR_PROVEN;
	check->verdict->device = check->copy.st_dev;
	check->verdict->inode = check->copy.st_ino;
	check->verdict->changed = check->copy.st_mtim;
	check->verdict->shares_disk = cnre_disk_is_shared("", check->primary.st_dev, check->copy.st_dev);
}

static void decide(struct check *check)
{
	check->primary_bytes = malloc(2u * BLOCK_BYTES);
	if (check->primary_bytes == NULL) {
		(void)refuse(check, "free memory", "%s: out of memory", check->directory);
		return;
	}
	check->copy_bytes = check->primary_bytes + BLOCK_BYTES;
	if (find_copy(check) == 0 && open_primary(check) == 0 && compare_names_and_sizes(check) == 0 &&
	    compare_headers(check) == 0 && compare_pages(check) == 0)
		prove(check);
}

void mirror_check(const struct mirror_shard *shard, const char *directory, struct mirror_progress *progress,
		  struct mirror_verdict *ret_verdict)
{
	struct check check = {.shard = shard,
			      .directory = directory,
			      .progress = progress,
			      .verdict = ret_verdict,
			      .primary_fd = -1,
			      .copy_fd = -1};

	memset(ret_verdict, 0, sizeof *ret_verdict);
	if (!is_cancelled(&check))
		decide(&check);
	if (check.primary_fd >= 0)
		(void)close(check.primary_fd); /* read-only, both */
	if (check.copy_fd >= 0)
		(void)close(check.copy_fd);
	free(check.primary_bytes);
}
