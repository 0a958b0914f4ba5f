/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: after a power cut every block that has a name is whole.
 * Method: an ext4 of our own is stopped at some instant without letting its journal or its cache out
 * (EXT4_IOC_SHUTDOWN), while blocks are written; it is mounted again, which recovers it as after a loss of power.
 */
#include "kvstore/disk.h"

#include "tests/support/kv_samples.h"
#include "tests/support/loop_disk.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <unistd.h>

#define IOC_SHUTDOWN _IOR('X', 125, __u32)
#define WITHOUT_LOG 2u /* nothing that is only in memory reaches the drive */
#define DRIVE_BYTES (192ull << 20)
#define CUTS 24u
#define BLOCKS 48u
#define BLOCK_BYTES (512u * 1024u)
#define DIRECTORY LOOP_DISK_PATH "/kv"

static struct loop_disk drive;
static struct kv_disk *disk;
static struct kv_folder *folder;
static struct kv_block block[BLOCKS];
static struct kv_disk_job job[BLOCKS];
static void *payload[BLOCKS];
static uint32_t done_count, written, found_count;

TestSuite(kvstore_power_cut, .timeout = 120);

static void count_done(struct kv_disk_job *one)
{
	written += one->status == 0;
	done_count++;
}

static void open_disk(int plain, int no_tmpfile)
{
	disk = kv_sample_open(DIRECTORY, plain, no_tmpfile);
	cr_assert(disk != NULL);
	cr_assert_eq(kv_disk_folder(disk, "f", &folder), 0);
}

/* Odd sizes go through the page cache, whole pages past it. */
static void submit_all(uint32_t round)
{
	done_count = 0;
	for (uint32_t i = 0; i < BLOCKS; i++) {
		kv_sample_make(&block[i], payload[i], round * BLOCKS + i, BLOCK_BYTES - i % 2 * 1000);
		job[i] = (struct kv_disk_job){.kind = KV_DISK_WRITE,
					      .folder = folder,
					      .block = &block[i],
					      .memory = payload[i],
					      .done = count_done};
		kv_disk_submit(disk, &job[i]);
	}
}

static void cut(int fd)
{
	uint32_t how = WITHOUT_LOG;

	cr_assert_eq(ioctl(fd, IOC_SHUTDOWN, &how), 0);
	(void)close(fd);
	cr_assert_eq(kv_disk_close(disk, -1), 0);
}

static void mount_again(void)
{
	char device[32];

	(void)snprintf(device, sizeof device, "/proc/self/fd/%d", drive.fd);
	cr_assert_eq(umount(LOOP_DISK_PATH), 0);
	cr_assert_eq(mount(device, LOOP_DISK_PATH, "ext4", 0, NULL), 0);
}

static void check_all_whole(int no_tmpfile)
{
	static struct kv_block found[2 * BLOCKS];
	struct kv_disk_status status;
	int count;

	open_disk(0, no_tmpfile);
	count = kv_sample_scan(disk, folder, found, 2 * BLOCKS);
	cr_assert(count >= 0 && count <= (int)BLOCKS, "%d", count);
	for (int i = 0; i < count; i++)
		cr_assert_eq(kv_sample_do(disk, folder, KV_DISK_READ, &found[i], payload[0]), 0);
	kv_disk_get_status(disk, &status);
	cr_assert_eq(status.quarantined, 0, "%s", status.last_error);
	cr_assert_eq(kv_sample_count_files(DIRECTORY, ""), count);
	for (int i = 0; i < count; i++)
		cr_assert_eq(kv_sample_do(disk, folder, KV_DISK_REMOVE, &found[i], payload[0]), 0);
	found_count += (uint32_t)count;
	cr_assert_eq(kv_disk_close(disk, -1), 0);
}

static void check_cuts(int plain, int no_tmpfile)
{
	const char *reason = loop_disk_open(&drive, DRIVE_BYTES, 512, 4096);

	if (reason != NULL)
		cr_skip("%s", reason);
	for (uint32_t i = 0; i < BLOCKS; i++)
		payload[i] = kv_sample_memory(BLOCK_BYTES);
	for (uint32_t round = 0; round < CUTS; round++) {
		int fd = open(LOOP_DISK_PATH, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		open_disk(plain, no_tmpfile);
		submit_all(round);
		kv_sample_wait(disk, &done_count,
			       1 + round * (BLOCKS - 1) / (CUTS - 1)); /* the last time: all of them */
		cut(fd);
		mount_again();
		check_all_whole(no_tmpfile);
	}
	loop_disk_close(&drive);
	for (uint32_t i = 0; i < BLOCKS; i++)
		free(payload[i]);
	cr_assert_gt(written, 0);
	cr_assert_gt(found_count, 0);
	cr_log_info("written %u, there after the cuts %u", written, found_count);
}

Test(kvstore_power_cut, what_has_a_name_is_whole)
{
	check_cuts(0, 0);
}

Test(kvstore_power_cut, what_has_a_name_is_whole_by_plain_calls_and_names)
{
	check_cuts(1, 1);
}
