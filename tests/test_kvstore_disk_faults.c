/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What drives, kernels and deaths do to block files. Errors and deaths at a chosen call come from seccomp filters in a
 * child, which act on plain calls; the ring is killed at random instants instead. Drives of our own need root.
 */
#include "kvstore/disk.h"

#include "base/clock.h"
#include "tests/support/child.h"
#include "tests/support/hung_drive.h"
#include "tests/support/kv_samples.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BLOCK_BYTES (200u * 1024u)
#define SMALL_FILE_SYSTEM "size=6m"
#define FULL_TRIES 64u
#define KILLS 30
#define KILL_STEP_US 700

static char directory[64], mount_point[96];
static struct kv_disk *disk;
static struct kv_folder *folder;
static void *memory;

static void begin(void)
{
	strcpy(directory, "/var/tmp/cnre-kv-XXXXXX");
	cr_assert(mkdtemp(directory) != NULL);
	memory = kv_sample_memory(BLOCK_BYTES);
}

static void end(void)
{
	cr_assert_eq(kv_disk_close(disk, -1), 0);
	if (mount_point[0] != '\0')
		(void)umount2(mount_point, MNT_DETACH);
	kv_sample_remove_tree(directory);
	free(memory);
}

TestSuite(kvstore_disk_faults, .init = begin, .fini = end, .timeout = 60);

static void skip_test(const char *reason)
{
	end();
	cr_skip("%s", reason);
}

static void open_disk(const char *where, int plain, int no_tmpfile)
{
	disk = kv_sample_open(where, plain, no_tmpfile);
	cr_assert(disk != NULL);
	cr_assert_eq(kv_disk_folder(disk, "f", &folder), 0);
}

static int write_block(uint32_t number, uint64_t bytes)
{
	struct kv_block one;

	kv_sample_make(&one, memory, number, bytes);
	return kv_sample_do(disk, folder, KV_DISK_WRITE, &one, memory);
}

static int read_block(uint32_t number, uint64_t bytes)
{
	struct kv_block one;
	int r;

	kv_sample_make(&one, memory, number, bytes);
	memset(memory, 0, bytes);
	r = kv_sample_do(disk, folder, KV_DISK_READ, &one, memory);
	return r == 0 && !kv_sample_holds(memory, number, bytes) ? 1 : r;
}

static int remove_block(uint32_t number, uint64_t bytes)
{
	struct kv_block one;

	kv_sample_make(&one, memory, number, bytes);
	return kv_sample_do(disk, folder, KV_DISK_REMOVE, &one, memory);
}

static struct kv_disk_status status_of(void)
{
	struct kv_disk_status status;

	kv_disk_get_status(disk, &status);
	return status;
}

/* ---- filters ---- */

/* One call of this process fails or kills it from now on; `argument` of it, if not negative, must be that. */
static int filter_call(long number, uint32_t action, int argument, uint32_t value)
{
	struct sock_filter plain[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 offsetof(struct seccomp_data, args) + 8 * (unsigned)(argument < 0 ? 0 : argument)),
		BPF_JUMP(BPF_JMP | (argument < 0 ? BPF_JGE : BPF_JEQ) | BPF_K, value, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, action),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = sizeof plain / sizeof *plain, .filter = plain};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -errno;
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0 ? -errno : 0;
}

struct fault {
	long call;
	int error; /* 0: it kills */
	int no_tmpfile;
};

/* 0 when the write says the error; a disk that is opened after the filter, since filters are a thread's. */
static int write_with_fault(void *argument)
{
	const struct fault *fault = argument;
	struct kv_disk_status status;
	int r;

	if (filter_call(fault->call,
			fault->error == 0 ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ERRNO | (unsigned)fault->error, -1,
			0) < 0)
		return 2;
	disk = kv_sample_open(directory, 1, fault->no_tmpfile);
	if (disk == NULL || kv_disk_folder(disk, "f", &folder) < 0)
		return 3;
	r = write_block(1, BLOCK_BYTES);
	kv_disk_get_status(disk, &status);
	(void)kv_disk_close(disk, -1);
	disk = NULL;
	if (r != -fault->error)
		return 4;
	return status.write_errors == 1 && status.blocks_written == 0 && status.last_error[0] != '\0' ? 0 : 5;
}

/* Whatever happened, there is a whole block or none, and nothing else. */
static void check_what_is_left(int may_be_there)
{
	struct kv_block found;
	int count;

	open_disk(directory, 0, 0);
	count = kv_sample_scan(disk, folder, &found, 1);
	cr_assert(count == 0 || (count == 1 && may_be_there), "%d", count);
	cr_assert_eq(kv_sample_count_files(directory, ""), count);
	if (count == 1)
		cr_assert_eq(kv_sample_do(disk, folder, KV_DISK_READ, &found, memory), 0);
	cr_assert_eq(write_block(1, BLOCK_BYTES), 0);
	cr_assert_eq(read_block(1, BLOCK_BYTES), 0);
	cr_assert_eq(remove_block(1, BLOCK_BYTES), 0);
	cr_assert_eq(kv_disk_close(disk, -1), 0);
	disk = NULL;
}

Test(kvstore_disk_faults, an_error_at_any_call_loses_the_block_only)
{
	static const long calls[] = {SYS_pwritev, SYS_fsync, SYS_linkat};
	static const int errors[] = {ENOSPC, EIO, EDQUOT, EROFS};

	for (int no_tmpfile = 0; no_tmpfile < 2; no_tmpfile++)
		for (size_t c = 0; c < 3; c++)
			for (size_t e = 0; e < 4; e++) {
				struct fault fault = {calls[c], errors[e], no_tmpfile};

				cr_assert_eq(child_run(write_with_fault, &fault), 0, "call %ld error %d", calls[c],
					     errors[e]);
				cr_assert_eq(kv_sample_count_files(directory, ""), 0);
				check_what_is_left(0);
			}
}

Test(kvstore_disk_faults, death_at_any_call_leaves_a_whole_block_or_none)
{
	/* In the order of the steps: nothing, opened, written, synced, linked (named files only). */
	static const long calls[] = {SYS_statx, SYS_pwritev, SYS_fsync, SYS_linkat, SYS_unlinkat};

	for (int no_tmpfile = 0; no_tmpfile < 2; no_tmpfile++)
		for (size_t c = 0; c < sizeof calls / sizeof *calls; c++) {
			struct fault fault = {calls[c], 0, no_tmpfile};

			if (calls[c] == SYS_unlinkat && !no_tmpfile)
				continue;
			cr_assert_eq(child_run(write_with_fault, &fault), -SIGSYS, "call %ld", calls[c]);
			/* Named files do leave something behind, or the sweep was not tried. */
			cr_assert_eq(kv_sample_count_files(directory, ".tmp."), no_tmpfile && calls[c] != SYS_statx);
			check_what_is_left(calls[c] == SYS_unlinkat);
		}
}

/* ---- death at any instant ---- */

#define BATCH 8u

static uint32_t counter;

static void count_done(struct kv_disk_job *job)
{
	(void)job;
	counter++;
}

/* Writes for ever. */
static int write_until_killed(void *argument)
{
	static struct kv_block block[BATCH];
	static struct kv_disk_job job[BATCH];
	const int *no_tmpfile = argument;
	void *payload[BATCH];

	disk = kv_sample_open(directory, 0, *no_tmpfile);
	if (disk == NULL || kv_disk_folder(disk, "f", &folder) < 0)
		return 1;
	for (uint32_t i = 0; i < BATCH; i++)
		payload[i] = kv_sample_memory(BLOCK_BYTES);
	for (uint32_t number = (uint32_t)getpid() * 1000;; number += BATCH) {
		for (uint32_t i = 0; i < BATCH; i++) {
			kv_sample_make(&block[i], payload[i], number + i, BLOCK_BYTES - (i % 2) * 77);
			job[i] = (struct kv_disk_job){.kind = KV_DISK_WRITE,
						      .folder = folder,
						      .block = &block[i],
						      .memory = payload[i],
						      .done = count_done};
			kv_disk_submit(disk, &job[i]);
		}
		counter = 0;
		kv_sample_wait(disk, &counter, BATCH);
	}
}

static uint32_t check_all_whole(void)
{
	static struct kv_block found[4096];
	int count = kv_sample_scan(disk, folder, found, 4096);

	cr_assert(count >= 0 && count <= 4096);
	for (int i = 0; i < count; i++)
		cr_assert_eq(kv_sample_do(disk, folder, KV_DISK_READ, &found[i], memory), 0);
	for (int i = 0; i < count; i++)
		cr_assert_eq(kv_sample_do(disk, folder, KV_DISK_REMOVE, &found[i], memory), 0);
	cr_assert_eq(status_of().quarantined, 0);
	return (uint32_t)count;
}

static void check_kills(int no_tmpfile)
{
	uint32_t found = 0;

	for (int i = 0; i < KILLS; i++) {
		pid_t child = child_start(write_until_killed, &no_tmpfile);

		(void)usleep((useconds_t)(2000 + i * KILL_STEP_US)); /* an instant, not a wait for something */
		(void)kill(child, SIGKILL);
		cr_assert_eq(child_wait(child), -SIGKILL);
		open_disk(directory, 0, no_tmpfile);
		cr_assert_eq(kv_sample_count_files(directory, ".tmp."), 0);
		found += check_all_whole();
		cr_assert_eq(kv_sample_count_files(directory, ""), 0);
		cr_assert_eq(kv_disk_close(disk, -1), 0);
		disk = NULL;
	}
	cr_assert_gt(found, 0);
}

Test(kvstore_disk_faults, death_at_any_instant_leaves_whole_blocks)
{
	check_kills(0);
}

Test(kvstore_disk_faults, death_at_any_instant_with_names_leaves_whole_blocks)
{
	check_kills(1);
}

/* ---- kernels that forbid ---- */

/* `uring` is what should be in use then. */
static int use_with_filter(long call, int argument, uint32_t value, int error, int uring)
{
	int failed;

	if (filter_call(call, SECCOMP_RET_ERRNO | (unsigned)error, argument, value) < 0)
		return 2;
	disk = kv_sample_open(directory, 0, 0);
	if (disk == NULL || kv_disk_folder(disk, "f", &folder) < 0)
		return 3;
	failed = write_block(1, BLOCK_BYTES) != 0 || write_block(2, 77) != 0 || read_block(1, BLOCK_BYTES) != 0 ||
		 read_block(2, 77) != 0 || remove_block(2, 77) != 0;
	if (status_of().uring != uring)
		return 4;
	return kv_disk_close(disk, -1) < 0 || failed;
}

static int use_without_ring(void *argument)
{
	(void)argument;
	return use_with_filter(SYS_io_uring_setup, -1, 0, EPERM, 0);
}

static int use_without_entering(void *argument)
{
	(void)argument;
	return use_with_filter(SYS_io_uring_enter, -1, 0, EPERM, 0);
}

#define REGISTER_PROBE 8u

/* As before 5.6: the ring reads, writes and syncs, all else are plain calls. */
static int use_with_old_ring(void *argument)
{
	return use_with_filter(SYS_io_uring_register, 1, REGISTER_PROBE, EINVAL, *(int *)argument);
}

Test(kvstore_disk_faults, a_kernel_that_forbids_or_lacks_operations_does_for_disks)
{
	int uring;

	open_disk(directory, 0, 0);
	uring = status_of().uring;
	cr_assert_eq(child_run(use_without_ring, NULL), 0);
	cr_assert_eq(remove_block(1, BLOCK_BYTES), 0);
	cr_assert_eq(child_run(use_without_entering, NULL), 0);
	cr_assert_eq(remove_block(1, BLOCK_BYTES), 0);
	cr_assert_eq(child_run(use_with_old_ring, &uring), 0);
}

/* ---- full and read-only drives ---- */

static void mount_small(void)
{
	if (geteuid() != 0)
		skip_test("mounting needs root");
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		skip_test("no mount namespace of our own");
	(void)snprintf(mount_point, sizeof mount_point, "%s/drive", directory);
	cr_assert_eq(mkdir(mount_point, 0700), 0);
	cr_assert_eq(mount("none", mount_point, "tmpfs", 0, SMALL_FILE_SYSTEM), 0);
}

static void check_full(int plain, int no_tmpfile)
{
	uint32_t written = 0;
	int r = 0;

	mount_small();
	open_disk(mount_point, plain, no_tmpfile);
	while (written < FULL_TRIES && (r = write_block(written, BLOCK_BYTES)) == 0)
		written++;
	cr_assert_eq(r, -ENOSPC);
	cr_assert_gt(written, 10);
	cr_assert_eq(kv_sample_count_files(mount_point, ""), (int)written);
	cr_assert_eq(status_of().write_errors, 1);
	cr_assert(strstr(status_of().last_error, strerrordesc_np(ENOSPC)) != NULL);
	for (uint32_t i = 0; i < written; i++)
		cr_assert_eq(read_block(i, BLOCK_BYTES), 0);
	cr_assert(remove_block(0, BLOCK_BYTES) == 0 && remove_block(1, BLOCK_BYTES) == 0);
	cr_assert_eq(write_block(written, BLOCK_BYTES), 0); /* what was half written gave its room back */
	cr_assert_eq(read_block(written, BLOCK_BYTES), 0);
}

Test(kvstore_disk_faults, a_full_drive_loses_the_block_only)
{
	check_full(0, 0);
}

Test(kvstore_disk_faults, a_full_drive_loses_the_block_only_by_plain_calls_and_names)
{
	check_full(1, 1);
}

static void spoil(const char *path)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	cr_assert(fd >= 0 && pwrite(fd, "spoiled", 7, 5000) == 7);
	(void)close(fd);
}

Test(kvstore_disk_faults, a_read_only_drive_is_read)
{
	struct kv_block one;
	char path[256];

	mount_small();
	open_disk(mount_point, 0, 0);
	for (uint32_t i = 0; i < 3; i++)
		cr_assert_eq(write_block(i, BLOCK_BYTES), 0);
	kv_sample_make(&one, memory, 2, BLOCK_BYTES);
	kv_sample_path(mount_point, "f", &one, path, sizeof path);
	spoil(path);
	cr_assert_eq(mount("none", mount_point, NULL, MS_REMOUNT | MS_RDONLY, SMALL_FILE_SYSTEM), 0);
	cr_assert_eq(write_block(3, BLOCK_BYTES), -EROFS);
	cr_assert_eq(remove_block(0, BLOCK_BYTES), -EROFS);
	cr_assert_eq(read_block(1, BLOCK_BYTES), 0);
	cr_assert_eq(read_block(2, BLOCK_BYTES), -EBADMSG);
	cr_assert_eq(status_of().quarantined, 1);
	cr_assert_eq(kv_sample_scan(disk, folder, NULL, 0), 3); /* its header is good */
	cr_assert_eq(kv_disk_close(disk, -1), 0);
	open_disk(mount_point, 0, 0); /* and can be opened so */
	cr_assert_eq(read_block(1, BLOCK_BYTES), 0);
	cr_assert_eq(mount("none", mount_point, NULL, MS_REMOUNT, SMALL_FILE_SYSTEM), 0);
	cr_assert_eq(write_block(3, BLOCK_BYTES), 0);
}

/* ---- a drive that fails to read ---- */

Test(kvstore_disk_faults, a_sector_that_cannot_be_read_condemns_no_block)
{
	struct faulty_drive drive;
	const char *reason = faulty_drive_open(&drive, directory, 64);
	int status, found;

	if (reason != NULL)
		skip_test(reason);
	open_disk(drive.mount, 0, 0);
	cr_expect_eq(write_block(1, BLOCK_BYTES), 0);
	faulty_drive_break(&drive);
	status = read_block(1, BLOCK_BYTES);
	found = kv_sample_scan(disk, folder, NULL, 0);
	cr_expect(status_of().read_errors >= 1 && status_of().quarantined == 0);
	faulty_drive_heal(&drive);
	cr_expect_eq(status, -EIO, "%d", status);
	cr_expect_eq(found, 0, "%d", found);
	cr_expect_eq(kv_sample_scan(disk, folder, NULL, 0), 1); /* looked for again */
	cr_expect_eq(read_block(1, BLOCK_BYTES), 0);
	cr_expect_eq(kv_disk_close(disk, -1), 0);
	disk = NULL;
	faulty_drive_close(&drive);
}

/* ---- a drive that hangs ---- */

static struct hung_drives drives;

/* In a child, since a drive that hangs has it. 0, or what went wrong. */
static int hang(void *argument)
{
	static struct kv_disk_job hung;
	static struct kv_block one;
	int64_t begun_ns;

	(void)argument;
	disk = kv_sample_open(drives.drive[0].mount, 0, 0);
	if (disk == NULL || kv_disk_folder(disk, "f", &folder) < 0)
		return 1;
	if (!status_of().uring)
		return 77;
	if (write_block(1, BLOCK_BYTES) < 0)
		return 2;
	hung_drives_enter(&drives, getpid());
	hung_drives_stop(&drives, 0);
	begun_ns = cnre_clock_now_ns();
	kv_sample_make(&one, memory, 1, BLOCK_BYTES);
	hung = (struct kv_disk_job){
		.kind = KV_DISK_READ, .folder = folder, .block = &one, .memory = memory, .done = count_done};
	counter = 0;
	kv_disk_submit(disk, &hung);
	if (read_block(7, 4096) != -ENOENT || counter != 0) /* goes on beside it */
		return 3;
	if (status_of().jobs_running != 1 || status_of().oldest_ns < begun_ns)
		return 4;
	if (kv_disk_close(disk, CNRE_NS_PER_S / 5) != -ETIMEDOUT || counter != 0)
		return 5;
	hung_drives_go(&drives, 0);
	if (kv_disk_close(disk, -1) != 0 || counter != 1 || hung.status != 0)
		return 6;
	return 0;
}

Test(kvstore_disk_faults, a_drive_that_hangs_keeps_its_job_only)
{
	const char *reason = hung_drives_open(&drives, directory, 1, 64);
	int r;

	if (reason != NULL)
		skip_test(reason);
	r = child_run(hang, NULL);
	hung_drives_close(&drives);
	if (r == 77)
		skip_test("no io_uring here");
	cr_assert_eq(r, 0, "%d", r);
}

/* ---- reads that land after a death (R20) ---- */

static int fence[2], started[2];

/* Reads from a drive that hangs, says so, and waits to be killed. */
static int read_until_killed(void *argument)
{
	struct kv_disk_setup setup = {.directory = drives.drive[0].mount, .held_fd = fence[1]};
	static struct kv_disk_job hung;
	static struct kv_block one;
	char message[KV_DISK_MESSAGE_BYTES];
	char byte;

	(void)argument;
	if (kv_disk_open(&disk, &setup, message) < 0 || kv_disk_folder(disk, "f", &folder) < 0)
		return 1;
	byte = status_of().uring ? 'u' : 'p';
	hung_drives_enter(&drives, getpid());
	kv_sample_make(&one, memory, 1, BLOCK_BYTES);
	hung = (struct kv_disk_job){
		.kind = KV_DISK_READ, .folder = folder, .block = &one, .memory = memory, .done = count_done};
	kv_disk_submit(disk, &hung);
	if (read_block(7, 4096) != -ENOENT || counter != 0) /* then the other's reads are with the drive */
		return 2;
	if (write(started[1], &byte, 1) != 1)
		return 3;
	(void)pause();
	return 4;
}

/* 1: the last writer of the fence is gone. */
static int fence_is_down(int wait_ms)
{
	struct pollfd event = {.fd = fence[0], .events = POLLIN};

	return poll(&event, 1, wait_ms) == 1 && (event.revents & POLLHUP);
}

static char start_reader(pid_t *ret_child)
{
	char byte = '\0';

	cr_assert(pipe2(fence, O_CLOEXEC) == 0 && pipe2(started, O_CLOEXEC) == 0);
	hung_drives_stop(&drives, 0);
	*ret_child = child_start(read_until_killed, NULL);
	(void)close(fence[1]);
	(void)close(started[1]);
	(void)!read(started[0], &byte, 1);
	return byte;
}

#define LATE_MS 30000

Test(kvstore_disk_faults, the_ring_of_a_killed_process_holds_its_fence_until_its_reads_landed)
{
	const char *reason = hung_drives_open(&drives, directory, 1, 64);
	int was_up, is_down;
	pid_t child;
	char engine;

	if (reason != NULL)
		skip_test(reason);
	open_disk(drives.drive[0].mount, 0, 0);
	cr_expect_eq(write_block(1, BLOCK_BYTES), 0);
	cr_expect_eq(kv_disk_close(disk, -1), 0);
	disk = NULL;
	engine = start_reader(&child);
	(void)kill(child, SIGKILL);
	if (engine == 'u')
		(void)child_wait(child); /* gone, but for its reads */
	was_up = !fence_is_down(0);
	hung_drives_go(&drives, 0);
	is_down = fence_is_down(LATE_MS);
	if (engine != 'u')
		(void)child_wait(child);
	hung_drives_close(&drives);
	cr_assert(engine == 'u' || engine == 'p');
	cr_assert(was_up && is_down, "%d %d", was_up, is_down);
}
