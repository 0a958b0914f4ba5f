/* SPDX-License-Identifier: Apache-2.0 */
/* Files of writers that died; see leftover.h. */
#include "kvstore/leftover.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BOOT_ID_FILE "/proc/sys/kernel/random/boot_id"
#define BOOT_ID_BYTES 37u /* 36 characters and the end */
#define PID_NAMESPACE_FILE "/proc/self/ns/pid"
#define MARK ".tmp."
#define COUNT_BITS 32 /* of n, below the number of the namespace */
#define DAY_S (24 * 60 * 60)

static _Atomic uint32_t names; /* of this process */

/* Without /proc nobody can tell boots apart: all files are another's then. */
static void read_boot_id(char ret_text[BOOT_ID_BYTES])
{
	int fd = open(BOOT_ID_FILE, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, ret_text, BOOT_ID_BYTES - 1);

	if (fd >= 0)
		(void)close(fd);
	if (n != BOOT_ID_BYTES - 1)
		(void)snprintf(ret_text, BOOT_ID_BYTES, "unknown-%d", (int)getpid());
	else
		ret_text[n] = '\0';
}

/* 0 without /proc: then it is another's. */
static uint64_t read_namespace(void)
{
	struct stat status;

	return stat(PID_NAMESPACE_FILE, &status) < 0 ? 0 : (uint64_t)status.st_ino;
}

void leftover_name(const char *path, char ret_fresh[FANOUT_PATH_BYTES])
{
	char boot[BOOT_ID_BYTES];
	/* [L1] relaxed: a number that no other name of this process has. */
	uint32_t n = atomic_fetch_add_explicit(&names, 1, memory_order_relaxed);

	read_boot_id(boot);
	(void)snprintf(ret_fresh, FANOUT_PATH_BYTES, "%s" MARK "%s.%d.%llu", path, boot, (int)getpid(),
		       (unsigned long long)(read_namespace() << COUNT_BITS | n));
}

/* ---- whose it is ---- */

/* Without locks, as on some network file systems, it may be alive. */
static int lock_is_free(int directory_fd, const char *name)
{
	int fd = openat(directory_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK), is_free;

	if (fd < 0)
		return 0;
	is_free = flock(fd, LOCK_EX | LOCK_NB) == 0;
	(void)close(fd);
	return is_free;
}

/* `text` is "<pid>.<n>". Our own pid may have been another's before. */
static int writer_is_dead(int directory_fd, const char *name, const char *text)
{
	char *end;
	long pid = strtol(text, &end, 10);
	uint64_t n = *end == '.' ? strtoull(end + 1, NULL, 10) : 0;

	if (pid <= 0 || pid > INT_MAX || n == 0)
		return 0;
	if (n >> COUNT_BITS != read_namespace() || pid == (long)getpid())
		return lock_is_free(directory_fd, name);
	return kill((pid_t)pid, 0) < 0 && errno == ESRCH;
}

static int is_a_day_old(int directory_fd, const char *name)
{
	struct stat status;

	return fstatat(directory_fd, name, &status, AT_SYMLINK_NOFOLLOW) == 0 && time(NULL) - status.st_mtime > DAY_S;
}

/* `mark` is where the key of the name ends. */
static int is_leftover(int directory_fd, const char *name, const char *mark, const char *boot)
{
	const char *of = mark + strlen(MARK);
	size_t length = strlen(boot);

	if (is_a_day_old(directory_fd, name))
		return 1;
	return strncmp(of, boot, length) == 0 && of[length] == '.' &&
	       writer_is_dead(directory_fd, name, of + length + 1);
}

/* ---- the sweep ---- */

static uint32_t sweep_files(DIR *listing, const char *boot)
{
	const struct dirent *entry;
	uint32_t count = 0;

	while ((entry = readdir(listing)) != NULL) {
		const char *mark = strstr(entry->d_name, MARK);

		if (mark != NULL && mark - entry->d_name == FANOUT_KEY_DIGITS &&
		    is_leftover(dirfd(listing), entry->d_name, mark, boot))
			count += unlinkat(dirfd(listing), entry->d_name, 0) == 0;
	}
	return count;
}

static DIR *open_below(int directory_fd, const char *name)
{
	int fd = openat(directory_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	DIR *listing = fd < 0 ? NULL : fdopendir(fd);

	if (listing == NULL && fd >= 0)
		(void)close(fd);
	return listing;
}

static uint32_t sweep_folder(int root_fd, const char *name, const char *boot)
{
	char path[FANOUT_PATH_BYTES];
	uint32_t count = 0;

	for (uint32_t fan = 0; fan < FANOUT_FANS; fan++) {
		DIR *listing;

		(void)snprintf(path, sizeof(path), "%s/%02x", name, fan);
		listing = open_below(root_fd, path);
		if (listing == NULL)
			continue;
		count += sweep_files(listing, boot);
		(void)closedir(listing);
	}
	return count;
}

uint32_t leftover_sweep(int root_fd)
{
	DIR *root = open_below(root_fd, ".");
	const struct dirent *entry;
	char boot[BOOT_ID_BYTES];
	uint32_t count = 0;

	read_boot_id(boot);
	while (root != NULL && (entry = readdir(root)) != NULL)
		if (fanout_name_is_good(entry->d_name))
			count += sweep_folder(root_fd, entry->d_name, boot);
	if (root != NULL)
		(void)closedir(root);
	return count;
}
