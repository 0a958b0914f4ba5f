/* SPDX-License-Identifier: Apache-2.0 */
/* Directories of block files; see fanout.h. */
#include "kvstore/fanout.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIRECTORY_MODE 0700
#define QUARANTINE_TRIES_MAX (2 * FANOUT_QUARANTINED_MAX)
/*
 * A directory that changed so shortly before it was listed may change again without another time: file systems count in
 * ticks of up to a second (ext3, NFS to it), so it is listed once more in the next round.
 */
#define SETTLED_NS 2000000000ll
#define NS_PER_S 1000000000ll

/* ---- names ---- */

int fanout_name_is_good(const char *name)
{
	static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
	size_t length = strnlen(name, KV_DISK_FOLDER_BYTES);

	return length > 0 && length < KV_DISK_FOLDER_BYTES && name[0] != '.' && strspn(name, letters) == length;
}

void fanout_key_text(const unsigned char key[KV_KEY_BYTES], char ret_text[FANOUT_KEY_DIGITS + 1])
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < KV_KEY_BYTES; i++) {
		ret_text[2 * i] = digits[key[i] >> 4];
		ret_text[2 * i + 1] = digits[key[i] & 15];
	}
	ret_text[FANOUT_KEY_DIGITS] = '\0';
}

static int value_of(char digit)
{
	if (digit >= '0' && digit <= '9')
		return digit - '0';
	return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

int fanout_key_of(const char *text, unsigned char ret_key[KV_KEY_BYTES])
{
	unsigned char key[KV_KEY_BYTES];

	if (strnlen(text, FANOUT_KEY_DIGITS + 1) != FANOUT_KEY_DIGITS)
		return -EINVAL;
	for (size_t i = 0; i < KV_KEY_BYTES; i++) {
		int high = value_of(text[2 * i]), low = value_of(text[2 * i + 1]);

		if (high < 0 || low < 0)
			return -EINVAL;
		key[i] = (unsigned char)(high << 4 | low);
	}
	memcpy(ret_key, key, sizeof(key));
	return 0;
}

void fanout_path(const struct kv_folder *folder, const unsigned char key[KV_KEY_BYTES],
		 char ret_path[FANOUT_PATH_BYTES])
{
	char text[FANOUT_KEY_DIGITS + 1];

	fanout_key_text(key, text);
	(void)snprintf(ret_path, FANOUT_PATH_BYTES, "%s/%.2s/%s", folder->name, text, text);
}

static void fan_path(const struct kv_folder *folder, uint32_t fan, char ret_path[FANOUT_PATH_BYTES])
{
	(void)snprintf(ret_path, FANOUT_PATH_BYTES, "%s/%02x", folder->name, fan);
}

/* ---- directories ---- */

static int make_directory(int root_fd, const char *path)
{
	return mkdirat(root_fd, path, DIRECTORY_MODE) < 0 && errno != EEXIST ? -errno : 0;
}

int fanout_make(const struct kv_folder *folder, int root_fd, const unsigned char key[KV_KEY_BYTES])
{
	char path[FANOUT_PATH_BYTES];
	int r = make_directory(root_fd, folder->name);

	if (r < 0)
		return r;
	fan_path(folder, key[0], path);
	return make_directory(root_fd, path);
}

static DIR *open_listing(int root_fd, const char *path)
{
	int fd = openat(root_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	DIR *listing = fd < 0 ? NULL : fdopendir(fd);

	if (listing == NULL && fd >= 0)
		(void)close(fd);
	return listing;
}

/* ---- quarantine ---- */

static int count_files(int root_fd, const char *path)
{
	DIR *listing = open_listing(root_fd, path);
	const struct dirent *entry;
	int count = 0;

	while (listing != NULL && count <= (int)FANOUT_QUARANTINED_MAX && (entry = readdir(listing)) != NULL)
		count += entry->d_name[0] != '.';
	if (listing != NULL)
		(void)closedir(listing);
	return count;
}

/* Another manager may have put it aside, and a good file be there by now. */
static int is_still(int root_fd, const char *path, int fd)
{
	struct stat named, opened;

	return fstatat(root_fd, path, &named, AT_SYMLINK_NOFOLLOW) == 0 && fstat(fd, &opened) == 0 &&
	       named.st_ino == opened.st_ino && named.st_dev == opened.st_dev;
}

/* Under the first number that is free. */
static int put_aside(const struct kv_folder *folder, int root_fd, const unsigned char key[KV_KEY_BYTES],
		     const char *path)
{
	char text[FANOUT_KEY_DIGITS + 1], aside[FANOUT_PATH_BYTES];
	int r = -EEXIST;

	fanout_key_text(key, text);
	for (uint32_t n = 0; n < QUARANTINE_TRIES_MAX && r == -EEXIST; n++) {
		(void)snprintf(aside, sizeof(aside), "%s/" FANOUT_QUARANTINE "/%s.%u", folder->name, text, n);
		r = renameat2(root_fd, path, root_fd, aside, RENAME_NOREPLACE) < 0 ? -errno : 0;
		if (r == -EINVAL) /* NFS cannot promise that: an older one of this name goes */
			r = renameat(root_fd, path, root_fd, aside) < 0 ? -errno : 0;
	}
	return r;
}

void fanout_quarantine(struct kv_folder *folder, int root_fd, const unsigned char key[KV_KEY_BYTES], int fd)
{
	char path[FANOUT_PATH_BYTES], aside[FANOUT_PATH_BYTES];

	fanout_path(folder, key, path);
	(void)snprintf(aside, sizeof(aside), "%s/" FANOUT_QUARANTINE, folder->name);
	if (!is_still(root_fd, path, fd))
		return;
	(void)make_directory(root_fd, aside); /* the rename fails with it */
	if (folder->quarantine_count < 0)
		folder->quarantine_count = count_files(root_fd, aside);
	if (folder->quarantine_count >= (int)FANOUT_QUARANTINED_MAX)
		(void)unlinkat(root_fd, path, 0); /* a read-only drive keeps it */
	else if (put_aside(folder, root_fd, key, path) == 0)
		folder->quarantine_count++;
}

/* ---- rounds of a scan ---- */

static int64_t age_ns(const struct timespec *then)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_REALTIME, &now); /* cannot fail for this clock */
	return (int64_t)(now.tv_sec - then->tv_sec) * NS_PER_S + (now.tv_nsec - then->tv_nsec);
}

/* Opens it if it changed, and remembers the time from before the listing. 1, 0 (nothing new), -errno. */
static int open_fan(struct kv_folder *folder, int root_fd, uint32_t fan)
{
	struct timespec *seen = &folder->seen[fan];
	char path[FANOUT_PATH_BYTES];
	struct stat status;

	fan_path(folder, fan, path);
	if (fstatat(root_fd, path, &status, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (status.st_mtim.tv_sec == seen->tv_sec && status.st_mtim.tv_nsec == seen->tv_nsec)
		return 0;
	folder->listing = open_listing(root_fd, path);
	if (folder->listing == NULL)
		return errno == ENOENT ? 0 : -errno;
	*seen = age_ns(&status.st_mtim) > SETTLED_NS ? status.st_mtim : (struct timespec){0};
	return 1;
}

void fanout_end_round(struct kv_folder *folder)
{
	if (folder->listing != NULL)
		(void)closedir(folder->listing);
	folder->listing = NULL;
	folder->fan = 0;
}

/* The next name of the open directory that belongs there: 1, 0 at its end. */
static int next_name(struct kv_folder *folder, unsigned char ret_key[KV_KEY_BYTES])
{
	const struct dirent *entry;

	while ((entry = readdir(folder->listing)) != NULL) {
		unsigned char key[KV_KEY_BYTES];

		if (fanout_key_of(entry->d_name, key) < 0 || key[0] != folder->fan - 1)
			continue;
		memcpy(ret_key, key, sizeof(key));
		return 1;
	}
	(void)closedir(folder->listing);
	folder->listing = NULL;
	return 0;
}

int fanout_next(struct kv_folder *folder, int root_fd, unsigned char ret_key[KV_KEY_BYTES])
{
	for (;;) {
		int r;

		if (folder->listing != NULL && next_name(folder, ret_key))
			return 1;
		if (folder->fan == FANOUT_FANS)
			break;
		r = open_fan(folder, root_fd, folder->fan++);
		if (r < 0)
			return r;
	}
	folder->fan = 0;
	return 0;
}
