/* SPDX-License-Identifier: Apache-2.0 */
/* The file table: what it accepts, how it decides about O_DIRECT, and that its descriptors stay bounded. */
#include "manager/file.h"

#include "tests/support/child.h"
#include "tests/support/loop_disk.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FILES_MAX 400u

static char directory[64];
static struct file_table *table;

static const char *path_of(uint32_t number)
{
	static char path[2][96]; /* two, for calls that take two */
	static int turn;

	turn = !turn;
	(void)snprintf(path[turn], sizeof(path[turn]), "%s/shard-%u", directory, number);
	return path[turn];
}

static void make_file(uint32_t number, off_t bytes)
{
	int fd = open(path_of(number), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	cr_assert(fd >= 0 && ftruncate(fd, bytes) == 0);
	(void)close(fd);
}

static void begin(void)
{
	strcpy(directory, "/var/tmp/cnre-file-XXXXXX");
	cr_assert(mkdtemp(directory) != NULL);
}

static void end(void)
{
	table = file_table_close(table);
	for (uint32_t i = 0; i < FILES_MAX; i++)
		(void)unlink(path_of(i));
	(void)rmdir(directory);
}

static void open_table(uint32_t open_max)
{
	struct file_table_setup setup = {.files_max = FILES_MAX, .open_max = open_max};

	cr_assert_eq(file_table_open(&table, &setup), 0);
}

/* criterion does not run .fini after a skip. */
static void skip_test(const char *reason)
{
	end();
	cr_skip("%s", reason);
}

TestSuite(manager_file, .init = begin, .fini = end, .timeout = 30);

Test(manager_file, alignment_that_is_zero_or_above_4096_means_buffered)
{
	cr_assert(file_alignment_allows_direct(0, 0, 0), "not reported: the probing read decides");
	cr_assert(file_alignment_allows_direct(1, 512, 512));
	cr_assert(file_alignment_allows_direct(1, 4, 4096));
	cr_assert_not(file_alignment_allows_direct(1, 0, 0));
	cr_assert_not(file_alignment_allows_direct(1, 512, 0));
	cr_assert_not(file_alignment_allows_direct(1, 0, 512));
	cr_assert_not(file_alignment_allows_direct(1, 4096, 16384));
	cr_assert_not(file_alignment_allows_direct(1, 16384, 512));
	cr_assert_not(file_alignment_allows_direct(1, 512, 1536), "does not divide 4096");
}

Test(manager_file, a_file_of_another_size_is_refused)
{
	open_table(4);
	make_file(0, 5000);
	cr_assert_eq(file_add(table, path_of(0), 4999), -EBADMSG);
	cr_assert_eq(file_add(table, path_of(0), 5001), -EBADMSG);
	cr_assert_eq(file_table_counts(table).open, 0, "nothing stays open");
	cr_assert_eq(file_add(table, path_of(0), 5000), 0);
	cr_assert_eq(file_add(table, path_of(1), 5000), -ENOENT);
}

Test(manager_file, what_is_no_regular_file_is_refused_without_waiting)
{
	open_table(4);
	cr_assert_eq(mkfifo(path_of(0), 0600), 0);
	cr_assert_eq(file_add(table, path_of(0), 0), -EINVAL);
	cr_assert_eq(file_add(table, directory, 4096), -EINVAL);
	cr_assert_eq(file_add(table, "/dev/zero", 0), -EINVAL);
}

Test(manager_file, more_files_than_agreed_are_refused)
{
	open_table(2);
	for (uint32_t i = 0; i < FILES_MAX; i++) {
		make_file(0, 0);
		cr_assert_eq(file_add(table, path_of(0), 0), (int)i);
	}
	cr_assert_eq(file_add(table, path_of(0), 0), -ENOSPC);
}

Test(manager_file, open_descriptors_never_exceed_the_slots)
{
	uint32_t slot;
	int fd;

	open_table(3);
	for (uint32_t i = 0; i < 10; i++) {
		make_file(i, 4096);
		cr_assert_eq(file_add(table, path_of(i), 4096), (int)i);
	}
	for (uint32_t round = 0; round < 3; round++) {
		for (uint32_t i = 0; i < 10; i++) {
			cr_assert_eq(file_pin(table, i, &slot, &fd), 0);
			cr_assert_lt(slot, 3);
			cr_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
			cr_assert_not(fcntl(fd, F_GETFL) & O_NONBLOCK, "io_uring would answer -EAGAIN");
			cr_assert_leq(file_table_counts(table).open, 3);
			file_unpin(table, slot);
		}
	}
}

Test(manager_file, pinned_slots_are_not_reused_and_outputs_stay_untouched)
{
	uint32_t slot[2], other = 77;
	int fd[2], other_fd = 78;

	open_table(2);
	for (uint32_t i = 0; i < 3; i++) {
		make_file(i, 4096);
		cr_assert_eq(file_add(table, path_of(i), 4096), (int)i);
	}
	for (uint32_t i = 0; i < 2; i++)
		cr_assert_eq(file_pin(table, i, &slot[i], &fd[i]), 0);
	cr_assert_eq(file_pin(table, 2, &other, &other_fd), -EAGAIN);
	cr_assert(other == 77 && other_fd == 78);
	file_unpin(table, slot[0]);
	cr_assert_eq(file_pin(table, 2, &other, &other_fd), 0);
	cr_assert_eq(other, slot[0]);
	file_unpin(table, other);
	file_unpin(table, slot[1]);
}

Test(manager_file, another_file_under_the_same_path_is_stale)
{
	uint32_t slot;
	int fd;

	open_table(1);
	make_file(0, 4096);
	make_file(1, 4096);
	cr_assert_eq(file_add(table, path_of(0), 4096), 0);
	cr_assert_eq(file_add(table, path_of(1), 4096), 1, "takes the only slot");
	make_file(2, 4096);
	cr_assert_eq(unlink(path_of(0)), 0);
	cr_assert_eq(link(path_of(2), path_of(0)), 0);
	cr_assert_eq(file_pin(table, 0, &slot, &fd), -ESTALE);
	cr_assert_eq(truncate(path_of(1), 8192), 0);
	cr_assert_eq(file_pin(table, 1, &slot, &fd), -ESTALE, "the same inode with another size");
}

static ino_t inode_of(uint32_t number)
{
	struct stat status;

	cr_assert_eq(stat(path_of(number), &status), 0);
	return status.st_ino;
}

enum { REMOVED = 16 };

/* Gives a new file the inode of one that was removed: which one, or REMOVED, where there is none such. */
static uint32_t reuse_inode(const ino_t inode[REMOVED])
{
	for (uint32_t number = REMOVED + 1; number < FILES_MAX; number++) {
		make_file(number, 4096);
		for (uint32_t i = 0; i < REMOVED; i++)
			if (inode_of(number) == inode[i]) {
				cr_assert_eq(rename(path_of(number), path_of(i)), 0);
				return i;
			}
	}
	return REMOVED;
}

/* A shard that was removed and downloaded again often has the inode of the one before. */
Test(manager_file, a_new_file_with_the_inode_of_the_one_before_is_stale)
{
	struct timespec tick = {.tv_nsec = 20000000}; /* of the clock that files are stamped with */
	ino_t inode[REMOVED];
	uint32_t slot, which;
	int fd;

	open_table(1);
	for (uint32_t i = 0; i <= REMOVED; i++) { /* the last has the only slot in the end */
		make_file(i, 4096);
		cr_assert_eq(file_add(table, path_of(i), 4096), (int)i);
	}
	for (uint32_t i = 0; i < REMOVED; i++) {
		inode[i] = inode_of(i);
		cr_assert_eq(unlink(path_of(i)), 0);
	}
	(void)nanosleep(&tick, NULL);
	which = reuse_inode(inode);
	if (which == REMOVED)
		skip_test("this file system gives each file an inode of its own");
	cr_expect_eq(file_pin(table, which, &slot, &fd), -ESTALE);
}

/* Its owner may keep everybody from opening it for a while; nothing that is waited for here would end that. */
Test(manager_file, a_file_under_a_lease_is_busy_and_not_for_want_of_a_slot)
{
	uint32_t slot = 77;
	int owner, fd = 78;

	open_table(1);
	make_file(0, 4096);
	make_file(1, 4096);
	cr_assert_eq(file_add(table, path_of(0), 4096), 0);
	cr_assert_eq(file_add(table, path_of(1), 4096), 1, "takes the only slot");
	owner = open(path_of(0), O_RDWR | O_CLOEXEC);
	(void)signal(SIGIO, SIG_IGN); /* somebody wants it */
	if (owner < 0 || fcntl(owner, F_SETLEASE, F_WRLCK) < 0)
		skip_test("no leases on files here");
	cr_expect_eq(file_pin(table, 0, &slot, &fd), -EBUSY);
	cr_expect(slot == 77 && fd == 78);
	(void)close(owner);
	cr_assert_eq(file_pin(table, 0, &slot, &fd), 0);
	file_unpin(table, slot);
}

static int count_changes, last_fd;
static void count_change(void *context, uint32_t slot, int fd)
{
	(void)slot;
	cr_assert_eq(context, &count_changes);
	count_changes++;
	last_fd = fd;
}

Test(manager_file, every_change_of_a_slot_is_told)
{
	struct file_table_setup setup = {
		.files_max = 4, .open_max = 1, .slot_changed = count_change, .context = &count_changes};

	cr_assert_eq(file_table_open(&table, &setup), 0);
	make_file(0, 4096);
	make_file(1, 4096);
	cr_assert_eq(file_add(table, path_of(0), 4096), 0);
	cr_assert(count_changes == 1 && last_fd >= 0);
	cr_assert_eq(file_add(table, path_of(1), 4096), 1);
	cr_assert(count_changes == 3 && last_fd >= 0, "lost, then got");
	table = file_table_close(table);
	cr_assert(count_changes == 4 && last_fd == -1);
}

Test(manager_file, making_a_file_buffered_acts_on_the_open_descriptor)
{
	uint32_t slot;
	int fd;

	open_table(2);
	make_file(0, 8192);
	cr_assert_eq(file_add(table, path_of(0), 8192), 0);
	if (!file_is_direct(table, 0))
		skip_test("no O_DIRECT under /var/tmp");
	cr_assert_eq(file_pin(table, 0, &slot, &fd), 0);
	cr_assert(fcntl(fd, F_GETFL) & O_DIRECT);
	cr_assert_eq(file_make_buffered(table, 0), 0);
	cr_assert_not(fcntl(fd, F_GETFL) & O_DIRECT);
	cr_assert_not(file_is_direct(table, 0));
	cr_assert(file_table_counts(table).direct == 0 && file_table_counts(table).buffered == 1);
	file_unpin(table, slot);
}

Test(manager_file, force_buffered_is_obeyed)
{
	struct file_table_setup setup = {.files_max = 1, .open_max = 1, .force_buffered = 1};

	cr_assert_eq(file_table_open(&table, &setup), 0);
	make_file(0, 8192);
	cr_assert_eq(file_add(table, path_of(0), 8192), 0);
	cr_assert_not(file_is_direct(table, 0));
}

static int use_few_descriptors(void *argument)
{
	struct rlimit limit = {256, 256};
	struct file_table_setup setup = {.files_max = FILES_MAX};
	struct file_table *mine;
	uint32_t slot;
	int fd;

	(void)argument;
	if (setrlimit(RLIMIT_NOFILE, &limit) < 0 || file_table_open(&mine, &setup) < 0 || file_table_slots(mine) != 64)
		return 1;
	for (int i = 0; i < 284; i++) /* 142 shards and their mirrors */
		if (file_add(mine, path_of((uint32_t)i), 4096) != i || file_table_counts(mine).open > 64)
			return 2;
	for (uint32_t i = 0; i < 284; i++) {
		if (file_pin(mine, i, &slot, &fd) != 0 || fd > 128)
			return 3;
		file_unpin(mine, slot);
	}
	mine = file_table_close(mine);
	return 0;
}

Test(manager_file, descriptors_leave_room_for_clients_under_a_limit_of_256)
{
	for (uint32_t i = 0; i < 284; i++)
		make_file(i, 4096);
	cr_assert_eq(child_run(use_few_descriptors, NULL), 0);
}

/* Everything but one descriptor is taken by somebody else after the first files were opened. */
static int run_out(void *argument)
{
	struct file_table_setup setup = {.files_max = 8, .open_max = 8};
	struct rlimit limit = {64, 64};
	struct file_table *mine;
	uint32_t slot[3];
	int fd;

	(void)argument;
	if (file_table_open(&mine, &setup) < 0 || setrlimit(RLIMIT_NOFILE, &limit) < 0)
		return 1;
	for (int i = 0; i < 2; i++)
		if (file_add(mine, path_of((uint32_t)i), 4096) != i)
			return 2;
	while (dup(0) >= 0)
		;
	if (file_add(mine, path_of(2), 4096) != 2 || file_table_counts(mine).open != 2)
		return 3; /* an idle one was given up for it */
	if (file_pin(mine, 2, &slot[0], &fd) != 0 || file_pin(mine, 0, &slot[1], &fd) != 0)
		return 4;
	if (file_pin(mine, 1, &slot[2], &fd) != -EMFILE)
		return 5; /* both are pinned now */
	return 0;
}

Test(manager_file, idle_descriptors_are_given_up_when_the_process_has_none_left)
{
	for (uint32_t i = 0; i < 3; i++)
		make_file(i, 4096);
	cr_assert_eq(child_run(run_out, NULL), 0);
}

static void add_on_disk(unsigned sector_bytes, unsigned block_bytes)
{
	struct loop_disk disk;
	const char *reason = loop_disk_open(&disk, 16 << 20, sector_bytes, block_bytes);
	int fd;

	if (reason != NULL)
		skip_test(reason);
	open_table(2);
	fd = open(LOOP_DISK_PATH "/shard", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	cr_assert(fd >= 0 && ftruncate(fd, 5000) == 0);
	(void)close(fd);
	cr_assert_eq(file_add(table, LOOP_DISK_PATH "/shard", 5000), 0);
	cr_assert(file_is_direct(table, 0));
	cr_assert(file_is_prompt(table, 0), "ext4 says it (since Linux 6.1)");
	cr_assert_not(file_is_fuse(table, 0));
	cr_assert_eq(file_make_buffered(table, 0), 0);
	cr_assert_not(file_is_prompt(table, 0), "what lies in the page cache is copied while it is asked for");
	table = file_table_close(table);
	loop_disk_close(&disk);
}

Test(manager_file, ext4_with_1k_blocks_is_direct)
{
	add_on_disk(512, 1024);
}
Test(manager_file, a_drive_with_4k_sectors_is_direct)
{
	add_on_disk(4096, 4096);
}

/* Containers: the file system below decides, and the last bytes are no whole block (D6). */
Test(manager_file, an_overlay_is_as_open_says)
{
	char other[] = "/var/tmp/cnre-file-XXXXXX", options[256];
	int fd;

	if (geteuid() != 0 || unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		skip_test("needs root for a mount of its own");
	make_file(0, 5000);
	cr_assert_not_null(mkdtemp(other)); /* without a place to write there must be two to read */
	(void)snprintf(options, sizeof options, "lowerdir=%s:%s", directory, other);
	if (mount("overlay", "/mnt", "overlay", MS_RDONLY, options) < 0) {
		(void)rmdir(other);
		skip_test("no overlay file systems here");
	}
	open_table(2);
	cr_assert_eq(file_add(table, "/mnt/shard-0", 5000), 0);
	fd = open("/mnt/shard-0", O_RDONLY | O_DIRECT | O_CLOEXEC);
	cr_assert_eq(file_is_direct(table, 0), fd >= 0, "as open(2) says");
	if (fd >= 0)
		(void)close(fd);
	table = file_table_close(table);
	(void)umount2("/mnt", MNT_DETACH);
	(void)rmdir(other);
}

Test(manager_file, tmpfs_is_accepted_either_way)
{
	int fd;

	(void)rmdir(directory);
	strcpy(directory, "/dev/shm/cnre-file-XXXXXX");
	if (mkdtemp(directory) == NULL)
		skip_test("no /dev/shm");
	open_table(2);
	make_file(0, 5000);
	cr_assert_eq(file_add(table, path_of(0), 5000), 0);
	fd = open(path_of(0), O_RDONLY | O_DIRECT | O_CLOEXEC);
	cr_assert_eq(file_is_direct(table, 0), fd >= 0, "as open(2) says");
	cr_assert_not(file_is_prompt(table, 0), "a read of memory is a copy");
	cr_assert_not(file_is_fuse(table, 0));
	if (fd >= 0)
		(void)close(fd);
}
