/* SPDX-License-Identifier: Apache-2.0 */
/* kvstore/fanout.c and rounds of a scan over it: what is new is found, what is not is not read again. */
#include "kvstore/fanout.h"

#include "tests/support/kv_samples.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LONG_AGO_S 3600
#define BLOCKS 150u /* more than two batches */

static char directory[64];
static struct kv_disk *disk;
static struct kv_folder *folder;
static void *memory;

static void begin(void)
{
	strcpy(directory, "/var/tmp/cnre-kv-XXXXXX");
	cr_assert(mkdtemp(directory) != NULL);
	memory = kv_sample_memory(8192);
	disk = kv_sample_open(directory, 0, 0);
	cr_assert(disk != NULL);
	cr_assert_eq(kv_disk_folder(disk, "f", &folder), 0);
}

static void end(void)
{
	cr_assert_eq(kv_disk_close(disk, -1), 0);
	kv_sample_remove_tree(directory);
	free(memory);
}

TestSuite(kvstore_fanout, .init = begin, .fini = end, .timeout = 60);

static void write_by(struct kv_disk *by, uint32_t number, struct kv_block *ret_block)
{
	struct kv_folder *at;

	kv_sample_make(ret_block, memory, number, 8192);
	cr_assert_eq(kv_disk_folder(by, "f", &at), 0);
	cr_assert_eq(kv_sample_do(by, at, KV_DISK_WRITE, ret_block, memory), 0);
}

/* As if all directories had been changed long before: no test waits for a clock. */
static void let_settle(void)
{
	struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_NOW}};
	char path[128];

	(void)clock_gettime(CLOCK_REALTIME, &times[1]);
	times[1].tv_sec -= LONG_AGO_S;
	for (unsigned fan = 0; fan < FANOUT_FANS; fan++) {
		(void)snprintf(path, sizeof path, "%s/f/%02x", directory, fan);
		(void)utimensat(AT_FDCWD, path, times, 0);
	}
}

Test(kvstore_fanout, what_another_manager_wrote_is_in_the_next_round)
{
	struct kv_disk *other = kv_sample_open(directory, 1, 1);
	struct kv_block one, found[4];

	cr_assert(other != NULL);
	for (uint32_t i = 0; i < BLOCKS; i++)
		write_by(disk, i, &one);
	let_settle();
	cr_assert_eq(kv_sample_scan(disk, folder, NULL, 0), (int)BLOCKS);
	cr_assert_eq(kv_sample_scan(disk, folder, NULL, 0), 0);
	write_by(other, BLOCKS + 1, &one);
	cr_assert_geq(kv_sample_scan(disk, folder, found, 4), 1);
	cr_assert(memcmp(found[0].key, one.key, 1) == 0); /* of the one directory that changed */
	/* Just changed: a file of the same tick would not show in its time, so it is listed once more. */
	cr_assert_geq(kv_sample_scan(disk, folder, NULL, 0), 1);
	let_settle();
	(void)kv_sample_scan(disk, folder, NULL, 0);
	cr_assert_eq(kv_sample_scan(disk, folder, NULL, 0), 0);
	cr_assert_eq(kv_disk_close(other, -1), 0);
}

Test(kvstore_fanout, a_batch_is_never_empty_before_the_end)
{
	struct kv_block found[KV_DISK_SCAN_BATCH], one;
	struct kv_disk_job job = {.kind = KV_DISK_SCAN, .folder = folder, .found = found};
	uint32_t count = 0;
	char path[256];

	for (uint32_t i = 0; i < BLOCKS; i++) {
		write_by(disk, i, &one);
		kv_sample_path(directory, "f", &one, path, sizeof path);
		if (i % 10 != 0)
			cr_assert_eq(truncate(path, 100), 0); /* whole batches may be bad */
	}
	do {
		cr_assert_eq(kv_sample_run(disk, &job), 0);
		cr_assert_leq(job.found_count, KV_DISK_SCAN_BATCH);
		count += job.found_count;
	} while (job.found_count > 0);
	cr_assert_eq(count, BLOCKS / 10);
}

Test(kvstore_fanout, scanning_nothing_finds_nothing)
{
	cr_assert_eq(kv_sample_scan(disk, folder, NULL, 0), 0);
	kv_sample_remove_tree(directory);
	cr_assert_eq(kv_sample_scan(disk, folder, NULL, 0), 0);
}

/* Deleted and made again by another manager, while this one holds the old one. */
Test(kvstore_fanout, a_directory_made_anew_by_another_is_found)
{
	struct kv_disk *other;
	struct kv_block one;

	kv_sample_remove_tree(directory);
	other = kv_sample_open(directory, 0, 0);
	cr_assert(other != NULL);
	write_by(other, 5, &one);
	cr_assert_eq(kv_sample_scan(disk, folder, NULL, 0), 1);
	cr_assert_eq(kv_sample_do(disk, folder, KV_DISK_READ, &one, memory), 0);
	cr_assert_eq(kv_disk_close(other, -1), 0);
}

/* ---- names ---- */

Test(kvstore_fanout, a_key_is_its_digits)
{
	unsigned char key[KV_KEY_BYTES], again[KV_KEY_BYTES];
	char text[FANOUT_KEY_DIGITS + 1], path[FANOUT_PATH_BYTES];

	for (unsigned i = 0; i < KV_KEY_BYTES; i++)
		key[i] = (unsigned char)(i * 37);
	fanout_key_text(key, text);
	cr_assert_eq(fanout_key_of(text, again), 0);
	cr_assert_eq(memcmp(key, again, sizeof key), 0);
	fanout_path(folder, key, path);
	cr_assert(strncmp(path, "f/00/0025", 9) == 0 && strcmp(path + 5, text) == 0);
	memset(again, 9, sizeof again);
	text[5] = 'A';
	cr_assert_eq(fanout_key_of(text, again), -EINVAL);
	cr_assert(again[0] == 9 && fanout_key_of("00", again) == -EINVAL);
}

/* ---- quarantine ---- */

static void put_bad(int root_fd, const char *path, int *ret_fd)
{
	*ret_fd = openat(root_fd, path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	cr_assert_geq(*ret_fd, 0);
}

Test(kvstore_fanout, a_bounded_number_of_files_is_put_aside)
{
	int root_fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd;
	unsigned char key[KV_KEY_BYTES] = {1};
	char path[FANOUT_PATH_BYTES];

	cr_assert_eq(fanout_make(folder, root_fd, key), 0);
	fanout_path(folder, key, path);
	for (uint32_t i = 0; i < FANOUT_QUARANTINED_MAX + 5; i++) {
		put_bad(root_fd, path, &fd);
		fanout_quarantine(folder, root_fd, key, fd);
		cr_assert_eq(faccessat(root_fd, path, F_OK, 0), -1);
		(void)close(fd);
		folder->quarantine_count = -1; /* as after a restart */
	}
	cr_assert_eq(kv_sample_count_files(directory, "."), (int)FANOUT_QUARANTINED_MAX);
	(void)close(root_fd);
}

Test(kvstore_fanout, a_good_file_that_took_its_place_stays)
{
	int root_fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC), bad_fd, fd;
	unsigned char key[KV_KEY_BYTES] = {1};
	char path[FANOUT_PATH_BYTES];

	cr_assert_eq(fanout_make(folder, root_fd, key), 0);
	fanout_path(folder, key, path);
	put_bad(root_fd, path, &bad_fd);
	cr_assert_eq(unlinkat(root_fd, path, 0), 0);
	put_bad(root_fd, path, &fd);
	fanout_quarantine(folder, root_fd, key, bad_fd);
	cr_assert_eq(faccessat(root_fd, path, F_OK, 0), 0);
	(void)close(fd);
	(void)close(bad_fd);
	(void)close(root_fd);
}
