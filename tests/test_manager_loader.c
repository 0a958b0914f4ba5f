/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loader on real files and drives, with both engines: BOTH makes two tests of one body, and the io_uring one skips
 * where there is no io_uring. Every byte of a test file follows from its place, so a misplaced chunk is seen.
 */
#include "manager/loader.h"

#include "base/clock.h"
#include "tests/support/child.h"
#include "tests/support/loop_disk.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#define KIB 1024ull
#define MIB (1024 * KIB)
#define FILES_MAX 300u
#define READS_MAX 16u
#define WAIT_MAX_NS (20 * CNRE_NS_PER_S)

#define BOTH(name)                                   \
	static void name(enum loader_engine engine); \
	Test(manager_loader, name##_by_io_uring)     \
	{                                            \
		name(LOADER_ENGINE_URING);           \
	}                                            \
	Test(manager_loader, name##_by_the_pool)     \
	{                                            \
		name(LOADER_ENGINE_POOL);            \
	}                                            \
	static void name(enum loader_engine engine)

static char directory[64];
static struct loader *loader;
static struct loader_read object[READS_MAX];
static int done_status[READS_MAX];
static uint32_t done_count;
static char *memory;
static uint64_t memory_bytes;

/* ---- files whose bytes follow from their place ---- */

static uint64_t word_at(uint32_t number, uint64_t off)
{
	return (off / 8 + 1) * 0x9e3779b97f4a7c15ull ^ number;
}

static const char *path_of(uint32_t number)
{
	static char path[96];

	(void)snprintf(path, sizeof(path), "%s/shard-%u", directory, number);
	return path;
}

static int write_file(uint32_t number, uint64_t bytes)
{
	static uint64_t words[16384];
	int fd = open(path_of(number), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	for (uint64_t off = 0; fd >= 0 && off < bytes; off += sizeof(words)) {
		uint64_t part = bytes - off < sizeof(words) ? bytes - off : sizeof(words);

		for (uint64_t i = 0; i < part; i += 8)
			words[i / 8] = word_at(number, off + i);
		if (write(fd, words, part) != (ssize_t)part)
			return -1;
	}
	return fd < 0 || fsync(fd) < 0 ? -1 : close(fd);
}

static int holds(const char *at, uint32_t number, uint64_t off, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes; i += 8) {
		uint64_t word = word_at(number, off + i);

		if (memcmp(at + i, &word, bytes - i < 8 ? bytes - i : 8) != 0)
			return 0;
	}
	return 1;
}

/* ---- fixture ---- */

static void begin(void)
{
	strcpy(directory, "/var/tmp/cnre-loader-XXXXXX");
	cr_assert(mkdtemp(directory) != NULL);
	memory_bytes = 32 * MIB;
	memory = mmap(NULL, memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	cr_assert_neq(memory, MAP_FAILED);
}

static void end(void)
{
	loader = loader_close(loader);
	for (uint32_t i = 0; i < FILES_MAX; i++)
		(void)unlink(path_of(i));
	(void)rmdir(directory);
	(void)munmap(memory, memory_bytes);
}

/* criterion does not run .fini after a skip. */
static void skip_test(const char *reason)
{
	end();
	cr_skip("%s", reason);
}

TestSuite(manager_loader, .init = begin, .fini = end, .timeout = 60);

static void open_with(struct loader_setup setup)
{
	int r = loader_open(&loader, &setup);

	if (setup.engine == LOADER_ENGINE_URING && (r == -EPERM || r == -ENOSYS || r == -ENOMEM))
		skip_test("no io_uring here");
	cr_assert_eq(r, 0);
}

static uint32_t add_file(uint32_t number, uint64_t bytes)
{
	int file;

	cr_assert_eq(write_file(number, bytes), 0);
	file = loader_add_file(loader, path_of(number), bytes);
	cr_assert_geq(file, 0, "%s", strerror(-file));
	return (uint32_t)file;
}

static void note_done(struct loader_read *read, int status)
{
	done_status[read - object] = status;
	done_count++;
}

static struct loader_read *prepare(uint32_t number, uint32_t file, uint64_t file_off, uint64_t needed, char *at)
{
	object[number] = (struct loader_read){.run_count = 1, .done = note_done};
	object[number].run[0] = (struct loader_run){
		.file = file,
		.file_off = file_off,
		.bytes = (needed + 4095) & ~4095ull,
		.needed_bytes = needed,
		.memory = at,
	};
	done_status[number] = 1;
	return &object[number];
}

/* As the core loop does it. 0, or -ETIMEDOUT. Asserts nothing: children use it too. */
static int finish_all(void)
{
	struct pollfd event = {.fd = loader_event_fd(loader), .events = POLLIN};
	int64_t deadline_ns = cnre_clock_deadline_ns(WAIT_MAX_NS);

	while (loader_in_flight(loader) != 0) {
		loader_flush(loader);
		(void)poll(&event, 1, 1000);
		(void)loader_reap(loader);
		if (cnre_clock_left_ns(deadline_ns) == 0)
			return -ETIMEDOUT;
	}
	return 0;
}

static int read_one(uint32_t file, uint64_t file_off, uint64_t needed)
{
	loader_submit(loader, prepare(0, file, file_off, needed, memory));
	cr_assert_eq(finish_all(), 0);
	return done_status[0];
}

/* ---- whole objects ---- */

BOTH(an_object_of_runs_from_two_files_arrives_whole)
{
	struct loader_read *read = &object[0];
	uint32_t file[2];

	open_with((struct loader_setup){.engine = engine, .chunk_bytes = 64 * KIB});
	file[0] = add_file(0, 3 * MIB);
	file[1] = add_file(1, 1 * MIB);
	*read = (struct loader_read){.run_count = 3, .done = note_done};
	read->run[0] = (struct loader_run){file[0], 4096, 1 * MIB, 1 * MIB, memory};
	read->run[1] = (struct loader_run){file[1], 0, 12288, 12288, memory + 1 * MIB};
	read->run[2] = (struct loader_run){file[0], 2 * MIB, 1 * MIB, 1 * MIB - 100, memory + 2 * MIB};
	loader_submit(loader, read);
	cr_assert_eq(loader_in_flight(loader), 1);
	cr_assert_eq(finish_all(), 0);
	cr_assert(done_count == 1 && done_status[0] == 0);
	cr_assert(holds(memory, 0, 4096, 1 * MIB));
	cr_assert(holds(memory + 1 * MIB, 1, 0, 12288));
	cr_assert(holds(memory + 2 * MIB, 0, 2 * MIB, 1 * MIB - 100));
	cr_assert_eq(read->bytes_read, 2 * MIB + 12288);
	cr_assert(read->retries == 0 && read->completed_ns >= read->submitted_ns);
}

/* For speeds, and for who reads what: nothing is counted twice, and idle time not at all. */
BOTH(a_drive_counts_what_arrives_and_the_time_in_which_reads_were_out)
{
	struct loader_drive_status status;
	uint32_t file;
	int64_t busy_ns;

	open_with((struct loader_setup){.engine = engine});
	file = add_file(0, 1 * MIB);
	cr_assert_eq(read_one(file, 0, 1 * MIB), 0);
	cr_assert_eq(read_one(file, 4096, 8192), 0);
	loader_get_drive(loader, loader_drive_of(loader, file), &status);
	cr_expect_eq(status.bytes, 1 * MIB + 8192);
	cr_expect_eq(status.reads, 0);
	cr_expect_gt(status.busy_ns, 0);
	busy_ns = status.busy_ns;
	(void)usleep(2000);
	loader_get_drive(loader, loader_drive_of(loader, file), &status);
	cr_expect_eq(status.busy_ns, busy_ns);
	cr_expect_str_eq(loader_file_path(loader, file), path_of(0));
}

BOTH(descriptors_of_a_drive_are_let_go_and_opened_again)
{
	struct loader_status status;
	uint32_t file;

	open_with((struct loader_setup){.engine = engine});
	file = add_file(0, 1 * MIB);
	loader_let_go(loader, loader_drive_of(loader, file));
	loader_get_status(loader, &status);
	cr_expect_eq(status.files_open, 0);
	cr_assert_eq(read_one(file, 0, 1 * MIB), 0);
	cr_expect(holds(memory, 0, 0, 1 * MIB));
	loader_submit(loader, prepare(0, file, 0, 1 * MIB, memory));
	loader_let_go(loader, loader_drive_of(loader, file)); /* a read uses it: it stays */
	loader_get_status(loader, &status);
	cr_expect_eq(status.files_open, 1);
	cr_assert_eq(finish_all(), 0);
	cr_expect_eq(done_status[0], 0);
}

BOTH(many_objects_in_flight_do_not_mix)
{
	struct loader_status status;
	uint32_t file, begun = 0;

	open_with((struct loader_setup){
		.engine = engine, .reads_in_flight_max = 8, .chunk_bytes = 128 * KIB, .chunk_depth = 16});
	cr_assert_eq(loader_add_memory(loader, memory, memory_bytes, 3) & ~1, 0);
	file = add_file(0, 16 * MIB);
	while (begun < READS_MAX || loader_in_flight(loader) != 0) {
		while (begun < READS_MAX && loader_has_room(loader, file)) {
			loader_submit(loader, prepare(begun, file, begun * MIB, MIB, memory + begun * MIB));
			begun++;
		}
		cr_assert_leq(loader_in_flight(loader), 8);
		loader_flush(loader);
		(void)poll(&(struct pollfd){.fd = loader_event_fd(loader), .events = POLLIN}, 1, 1000);
		(void)loader_reap(loader);
	}
	cr_assert_eq(done_count, READS_MAX);
	for (uint32_t i = 0; i < READS_MAX; i++)
		cr_assert(done_status[i] == 0 && holds(memory + i * MIB, 0, i * MIB, MIB));
	loader_get_status(loader, &status);
	cr_assert_eq(status.uring, engine == LOADER_ENGINE_URING);
}

static struct loader_read *again;
static void submit_again(struct loader_read *read, int status)
{
	(void)read;
	done_count++;
	if (status == 0 && again != NULL) {
		loader_submit(loader, again);
		again = NULL;
	}
}

BOTH(done_may_submit_the_next_read)
{
	uint32_t file;

	open_with((struct loader_setup){.engine = engine, .reads_in_flight_max = 1});
	file = add_file(0, 2 * MIB);
	again = prepare(1, file, MIB, MIB, memory + MIB);
	prepare(0, file, 0, MIB, memory)->done = submit_again;
	loader_submit(loader, &object[0]);
	cr_assert_eq(finish_all(), 0);
	cr_assert(done_count == 2 && done_status[1] == 0 && holds(memory, 0, 0, 2 * MIB));
}

BOTH(a_file_of_5000_bytes_is_read_to_its_end_and_no_further)
{
	uint32_t file;

	open_with((struct loader_setup){.engine = engine});
	file = add_file(0, 5000);
	cr_assert_eq(read_one(file, 0, 5000), 0);
	cr_assert(holds(memory, 0, 0, 5000));
	cr_assert_eq(object[0].bytes_read, 5000);
	cr_assert_eq(read_one(file, 4096, 904), 0);
	cr_assert_eq(read_one(file, 0, 5001), -EBADMSG);
	cr_assert_eq(read_one(file, 8192, 1), -EBADMSG);
	cr_assert(object[0].failed_run == 0 && object[0].failed_off == 8192);
}

BOTH(a_file_truncated_after_it_was_opened_is_badmsg)
{
	uint32_t file;

	open_with((struct loader_setup){.engine = engine, .chunk_bytes = 64 * KIB});
	file = add_file(0, MIB);
	cr_assert_eq(truncate(path_of(0), 300 * KIB + 1), 0);
	cr_assert_eq(read_one(file, 0, MIB), -EBADMSG);
	cr_assert_eq(object[0].failed_off & ~4095ull, 300 * KIB);
	cr_assert_eq(read_one(file, 0, 300 * KIB), 0, "what is left can be read");
}

BOTH(chunks_of_seven_bytes_add_up_in_a_buffered_file)
{
	struct loader_status status;
	uint32_t file;

	open_with((struct loader_setup){.engine = engine, .chunk_bytes = 7, .chunk_depth = 32, .force_buffered = 1});
	file = add_file(0, 20000);
	cr_assert_not(loader_file_is_direct(loader, file));
	cr_assert_eq(read_one(file, 0, 20000), 0);
	cr_assert(holds(memory, 0, 0, 20000));
	cr_assert_eq(object[0].bytes_read, 20000);
	loader_get_status(loader, &status);
	cr_assert(status.files_buffered == 1 && status.files_direct == 0 && status.chunk_bytes == 7);
}

BOTH(direct_chunks_are_rounded_to_blocks)
{
	uint32_t file;

	open_with((struct loader_setup){.engine = engine, .chunk_bytes = 7});
	file = add_file(0, 64 * KIB);
	cr_assert_eq(read_one(file, 4096, 60 * KIB), 0);
	cr_assert(holds(memory, 0, 4096, 60 * KIB));
}

/*
 * Goal: one read(2) ends near 2^31 bytes; a run does not.
 * Method: a sparse file, and an address range in which the same 16 MiB appear again and again but for the last.
 */
BOTH(a_run_of_more_than_2_gib_is_whole)
{
	const uint64_t piece = 16 * MIB, bytes = 2304 * MIB;
	char *range = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	int shared = memfd_create("piece", MFD_CLOEXEC), fd, file;

	open_with((struct loader_setup){.engine = engine, .chunk_bytes = UINT32_MAX, .chunk_depth = 2});
	cr_assert(range != MAP_FAILED && shared >= 0 && ftruncate(shared, (off_t)(2 * piece)) == 0);
	for (uint64_t off = 0; off < bytes; off += piece)
		cr_assert_neq(mmap(range + off, piece, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, shared,
				   off + piece == bytes ? (off_t)piece : 0),
			      MAP_FAILED);
	fd = open(path_of(0), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	cr_assert(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0 && pwrite(fd, "the end!", 8, (off_t)bytes - 8) == 8);
	(void)close(fd);
	file = loader_add_file(loader, path_of(0), bytes);
	cr_assert_geq(file, 0);
	loader_submit(loader, prepare(0, (uint32_t)file, 0, bytes, range));
	cr_assert_eq(finish_all(), 0);
	cr_assert_eq(done_status[0], 0);
	cr_assert_geq(object[0].bytes_read, bytes);
	cr_assert_eq(memcmp(range + bytes - 8, "the end!", 8), 0);
	loader = loader_close(loader);
	(void)munmap(range, bytes);
	(void)close(shared);
}

static void ignore_signal(int number)
{
	(void)number;
}

BOTH(a_storm_of_signals_changes_nothing)
{
	struct sigaction action = {.sa_handler = ignore_signal}; /* no SA_RESTART */
	struct itimerval storm = {.it_interval.tv_usec = 100, .it_value.tv_usec = 100}, calm = {0};
	uint32_t file;

	open_with((struct loader_setup){.engine = engine, .chunk_bytes = 16 * KIB});
	file = add_file(0, 8 * MIB);
	cr_assert(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &storm, NULL) == 0);
	for (int i = 0; i < 8; i++) {
		memset(memory, 0, 8 * MIB);
		cr_assert_eq(read_one(file, 0, 8 * MIB), 0);
		cr_assert(holds(memory, 0, 0, 8 * MIB));
	}
	cr_assert_eq(setitimer(ITIMER_REAL, &calm, NULL), 0);
}

/* ---- files and descriptors ---- */

BOTH(runs_over_more_files_than_descriptors_complete)
{
	struct loader_read *read = &object[0];
	struct loader_status status;

	open_with((struct loader_setup){.engine = engine, .open_files_max = 2, .chunk_depth = 8});
	*read = (struct loader_read){.run_count = LOADER_RUNS_MAX, .done = note_done};
	for (uint32_t i = 0; i < LOADER_RUNS_MAX; i++)
		read->run[i] = (struct loader_run){add_file(i, 8192), 0, 8192, 8192, memory + i * 8192};
	loader_submit(loader, read);
	cr_assert_eq(finish_all(), 0);
	cr_assert_eq(done_status[0], 0);
	for (uint32_t i = 0; i < LOADER_RUNS_MAX; i++)
		cr_assert(holds(memory + i * 8192, i, 0, 8192));
	loader_get_status(loader, &status);
	cr_assert_leq(status.files_open, 2);
}

BOTH(a_replaced_file_fails_the_read_and_not_the_loader)
{
	uint32_t file[2];

	open_with((struct loader_setup){.engine = engine, .open_files_max = 1});
	file[0] = add_file(0, 8192);
	file[1] = add_file(1, 8192);
	cr_assert_eq(unlink(path_of(0)), 0);
	cr_assert_eq(read_one(file[0], 0, 8192), -ENOENT);
	cr_assert_eq(write_file(2, 8192), 0);
	cr_assert_eq(write_file(0, 8192), 0);
	cr_assert_eq(read_one(file[0], 0, 8192), -ESTALE);
	cr_assert_eq(read_one(file[1], 0, 8192), 0);
}

static int read_all_shards(void *argument)
{
	struct loader_setup setup = {.engine = *(enum loader_engine *)argument};
	struct rlimit limit = {256, 256};
	struct loader_status status;

	if (setrlimit(RLIMIT_NOFILE, &limit) < 0 || loader_open(&loader, &setup) < 0)
		return 1;
	for (uint32_t i = 0; i < 284; i++)
		if (loader_add_file(loader, path_of(i), 4096) != (int)i)
			return 2;
	for (uint32_t i = 0; i < 284; i++) {
		if (!loader_has_room(loader, i) && finish_all() < 0)
			return 3;
		loader_submit(loader, prepare(i % READS_MAX, i, 0, 4096, memory + i * 4096));
	}
	if (finish_all() < 0)
		return 4;
	for (uint32_t i = 0; i < 284; i++)
		if (!holds(memory + i * 4096, i, 0, 4096))
			return 5;
	loader_get_status(loader, &status);
	loader = loader_close(loader);
	return status.files_open > 64 ? 6 : 0;
}

BOTH(a_limit_of_256_descriptors_suffices_for_142_shards_and_mirrors)
{
	open_with((struct loader_setup){.engine = engine});
	loader = loader_close(loader);
	for (uint32_t i = 0; i < 284; i++)
		cr_assert_eq(write_file(i, 4096), 0);
	cr_assert_eq(child_run(read_all_shards, &engine), 0);
}

BOTH(files_that_are_wrong_are_refused)
{
	open_with((struct loader_setup){.engine = engine});
	cr_assert_eq(write_file(0, 8192), 0);
	cr_assert_eq(loader_add_file(loader, path_of(0), 8191), -EBADMSG);
	cr_assert_eq(loader_add_file(loader, path_of(1), 8192), -ENOENT);
	cr_assert_eq(loader_add_file(loader, directory, 4096), -EINVAL);
	cr_assert_geq(loader_add_file(loader, path_of(0), 8192), 0);
}

/* ---- drives ---- */

BOTH(tmpfs_works)
{
	uint32_t file;

	(void)rmdir(directory);
	strcpy(directory, "/dev/shm/cnre-loader-XXXXXX");
	if (mkdtemp(directory) == NULL)
		skip_test("no /dev/shm");
	open_with((struct loader_setup){.engine = engine});
	file = add_file(0, MIB + 100);
	cr_assert_eq(read_one(file, 0, MIB + 100), 0);
	cr_assert(holds(memory, 0, 0, MIB + 100));
}

static void begin_on_disk(struct loop_disk *disk, unsigned sector_bytes, unsigned block_bytes)
{
	const char *reason = loop_disk_open(disk, 32 * MIB, sector_bytes, block_bytes);

	if (reason != NULL)
		skip_test(reason);
	(void)rmdir(directory);
	strcpy(directory, LOOP_DISK_PATH);
}

static void end_on_disk(struct loop_disk *disk)
{
	loader = loader_close(loader);
	loop_disk_close(disk);
	strcpy(directory, "/nonexistent");
}

static void read_on_disk(enum loader_engine engine, unsigned sector_bytes, unsigned block_bytes)
{
	struct loop_disk disk;
	uint32_t file;

	open_with((struct loader_setup){.engine = engine});
	begin_on_disk(&disk, sector_bytes, block_bytes);
	file = add_file(0, 3 * MIB + 333);
	cr_assert(loader_file_is_direct(loader, file));
	cr_assert_eq(read_one(file, 8192, 3 * MIB + 333 - 8192), 0);
	cr_assert(holds(memory, 0, 8192, 3 * MIB + 333 - 8192));
	end_on_disk(&disk);
}

BOTH(ext4_with_1k_blocks_works)
{
	read_on_disk(engine, 512, 1024);
}
BOTH(a_drive_with_4k_sectors_works)
{
	read_on_disk(engine, 4096, 4096);
}

/*
 * Goal: an I/O error fails the reads that meet it, says where, and nothing else.
 * Method: the loop device ends in the middle of the file, then it is healed.
 */
BOTH(a_bad_region_fails_its_reads_only_and_heals)
{
	struct loop_disk disk;
	struct loader_status status;
	uint32_t file, other;

	open_with((struct loader_setup){.engine = engine, .chunk_bytes = 256 * KIB});
	begin_on_disk(&disk, 512, 4096);
	file = add_file(0, 20 * MIB);
	cr_assert_eq(loop_disk_limit(&disk, 16 * MIB), 0);
	cr_assert_eq(read_one(file, 0, 20 * MIB), -EIO);
	cr_assert(object[0].failed_run == 0 && object[0].failed_off > 0 && object[0].failed_off < 20 * MIB);
	other = (uint32_t)(object[0].failed_off / (256 * KIB) * (256 * KIB));
	cr_assert_eq(read_one(file, 0, other), 0, "before the region all is well");
	cr_assert(holds(memory, 0, 0, other));
	cr_assert_eq(loop_disk_limit(&disk, 0), 0);
	cr_assert_eq(read_one(file, 0, 20 * MIB), 0);
	cr_assert(holds(memory, 0, 0, 20 * MIB));
	loader_get_status(loader, &status);
	cr_assert_eq(status.files_direct, 1, "an I/O error is no reason to read buffered");
	end_on_disk(&disk);
}

Test(manager_loader, files_of_two_file_systems_have_queues_of_their_own)
{
	struct loop_disk disk;
	uint32_t file[2];

	open_with((struct loader_setup){.reads_in_flight_max = 1});
	file[0] = add_file(0, 8192);
	(void)unlink(path_of(0));
	begin_on_disk(&disk, 512, 4096);
	file[1] = add_file(1, 8192);
	cr_assert_neq(loader_drive_of(loader, file[0]), loader_drive_of(loader, file[1]));
	loader_submit(loader, prepare(0, file[0], 0, 8192, memory));
	cr_assert_not(loader_has_room(loader, file[0]));
	cr_assert(loader_has_room(loader, file[1]));
	loader_submit(loader, prepare(1, file[1], 0, 8192, memory + 8192));
	cr_assert_eq(finish_all(), 0);
	cr_assert(done_status[0] == 0 && done_status[1] == 0);
	end_on_disk(&disk);
}

/* ---- closing ---- */

BOTH(closing_with_reads_in_flight_ends_them_all)
{
	uint32_t file;

	open_with((struct loader_setup){
		.engine = engine, .reads_in_flight_max = 8, .chunk_bytes = 256 * KIB, .chunk_depth = 4});
	file = add_file(0, 16 * MIB);
	for (uint32_t i = 0; i < 8; i++)
		loader_submit(loader, prepare(i, file, i * MIB, MIB, memory + i * MIB));
	loader_flush(loader);
	loader = loader_close(loader);
	cr_assert_eq(done_count, 8);
	for (uint32_t i = 0; i < 8; i++) {
		cr_assert(done_status[i] == 0 || done_status[i] == -ECANCELED);
		cr_assert(done_status[i] != 0 || holds(memory + i * MIB, 0, i * MIB, MIB));
	}
	cr_assert_eq(done_status[7], -ECANCELED, "the last was never begun");
}

BOTH(closing_before_the_first_flush_is_fine)
{
	uint32_t file;

	open_with((struct loader_setup){.engine = engine});
	file = add_file(0, MIB);
	loader_submit(loader, prepare(0, file, 0, MIB, memory));
	loader = loader_close(loader);
	cr_assert_eq(done_count, 1);
}

/* ---- io_uring: registration, foreign completions ---- */

Test(manager_loader, memory_is_registered_and_let_go)
{
	struct loader_status status;
	uint32_t file;

	open_with((struct loader_setup){.engine = LOADER_ENGINE_URING});
	file = add_file(0, 4 * MIB);
	if (loader_add_memory(loader, memory, 8 * MIB, 7) != 0 ||
	    loader_add_memory(loader, memory + 16 * MIB, 8 * MIB, 2) != 0)
		skip_test("registered buffers refused here: memlock limit");
	loader_get_status(loader, &status);
	cr_assert(status.registered_buffers == 2 && status.registered_files == 1);
	cr_assert_eq(read_one(file, 0, 4 * MIB), 0);
	cr_assert(holds(memory, 0, 0, 4 * MIB));
	loader_submit(loader, prepare(1, file, 0, 4 * MIB, memory + 6 * MIB));  /* half in the region, half behind it */
	loader_submit(loader, prepare(2, file, 0, 4 * MIB, memory + 20 * MIB)); /* up to its very end */
	cr_assert_eq(finish_all(), 0);
	cr_assert(done_status[1] == 0 && holds(memory + 6 * MIB, 0, 0, 4 * MIB));
	cr_assert(done_status[2] == 0 && holds(memory + 20 * MIB, 0, 0, 4 * MIB));
	loader_remove_memory(loader, 7);
	loader_remove_memory(loader, 7);
	loader_get_status(loader, &status);
	cr_assert_eq(status.registered_buffers, 1);
	memset(memory, 0, 4 * MIB);
	cr_assert_eq(read_one(file, 0, 4 * MIB), 0);
	cr_assert(holds(memory, 0, 0, 4 * MIB));
}

static uint64_t foreign_data;
static int foreign_result = 1, foreign_count;
static void note_foreign(void *context, uint64_t user_data, int result)
{
	*(int *)context += 1;
	foreign_data = user_data;
	foreign_result = result;
}

Test(manager_loader, foreign_completions_are_handed_on)
{
	struct io_uring_sqe *entry;
	struct pollfd event = {.events = POLLIN};

	open_with((struct loader_setup){.engine = LOADER_ENGINE_URING});
	loader_set_foreign(loader, note_foreign, &foreign_count);
	entry = io_uring_get_sqe(loader_ring(loader));
	cr_assert_not_null(entry);
	io_uring_prep_nop(entry);
	io_uring_sqe_set_data64(entry, 0x1235);
	event.fd = loader_event_fd(loader);
	loader_flush(loader);
	cr_assert_eq(poll(&event, 1, 10000), 1, "what is foreign wakes the core too");
	cr_assert_eq(loader_reap(loader), 0);
	cr_assert(foreign_count == 1 && foreign_data == 0x1235 && foreign_result == 0);
	cr_assert_eq(poll(&event, 1, 0), 0, "nothing is left");
}

Test(manager_loader, a_core_that_sleeps_in_the_ring_is_woken)
{
	struct __kernel_timespec limit = {.tv_sec = 10};
	struct io_uring_cqe *entry;
	uint32_t file;

	open_with((struct loader_setup){.engine = LOADER_ENGINE_URING});
	file = add_file(0, MIB);
	loader_submit(loader, prepare(0, file, 0, MIB, memory));
	while (loader_in_flight(loader) != 0) {
		cr_assert_geq(io_uring_submit_and_wait_timeout(loader_ring(loader), &entry, 1, &limit, NULL), 0);
		(void)loader_reap(loader);
	}
	cr_assert(done_status[0] == 0 && holds(memory, 0, 0, MIB));
}

/* ---- io_uring forbidden ---- */

struct forbidden {
	long call;
	int error;
};

static int forbid(const struct forbidden *what)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)what->call, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)what->error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = sizeof(filter) / sizeof(filter[0]), .filter = filter};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -errno;
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0 ? -errno : 0;
}

/* Reads the two megabytes of file 0; 0 when they are right. */
static int read_in_child(void)
{
	int file = loader_add_file(loader, path_of(0), 2 * MIB);

	if (file < 0)
		return 20;
	loader_submit(loader, prepare(0, (uint32_t)file, 0, 2 * MIB, memory));
	if (finish_all() < 0 || done_status[0] != 0 || object[0].bytes_read != 2 * MIB || object[0].retries != 0)
		return 21;
	return holds(memory, 0, 0, 2 * MIB) ? 0 : 22;
}

static int fall_back(void *argument)
{
	const struct forbidden *what = argument;
	struct loader_setup setup = {.engine = LOADER_ENGINE_URING};
	struct loader_status status;
	struct loader *before = loader;
	int r;

	if (forbid(what) < 0)
		return 77;
	if (loader_open(&loader, &setup) != -what->error || loader != before)
		return 1; /* insisted upon: the error itself, and no output */
	setup.engine = LOADER_ENGINE_AUTO;
	if (loader_open(&loader, &setup) < 0)
		return 2;
	loader_get_status(loader, &status);
	if (status.uring != 0 || loader_ring(loader) != NULL ||
	    strstr(status.reason, strerrorname_np(what->error)) == NULL || strstr(status.reason, "seccomp") == NULL)
		return 3;
	r = read_in_child();
	loader = loader_close(loader);
	return r;
}

static void check_fall_back(long call, int error)
{
	struct forbidden what = {call, error};
	int r;

	cr_assert_eq(write_file(0, 2 * MIB), 0);
	open_with((struct loader_setup){.engine = LOADER_ENGINE_URING});
	loader = loader_close(loader);
	r = child_run(fall_back, &what);
	if (r == 77)
		skip_test("no seccomp filters here");
	cr_assert_eq(r, 0);
}

Test(manager_loader, a_filter_that_answers_eperm_leads_to_the_pool)
{
	check_fall_back(SYS_io_uring_setup, EPERM);
}
Test(manager_loader, a_filter_that_answers_enosys_leads_to_the_pool)
{
	check_fall_back(SYS_io_uring_setup, ENOSYS);
}
Test(manager_loader, a_filter_on_the_use_only_leads_to_the_pool)
{
	check_fall_back(SYS_io_uring_enter, EPERM);
}

static int do_without_registration(void *argument)
{
	struct loader_setup setup = {.engine = LOADER_ENGINE_URING};
	struct loader_status status;
	int r;

	if (forbid(argument) < 0)
		return 77;
	if (loader_open(&loader, &setup) < 0)
		return 1;
	if (loader_add_memory(loader, memory, memory_bytes, 0) != 1)
		return 2;
	loader_get_status(loader, &status);
	if (!status.uring || status.registered_buffers != 0 || status.registered_files != 0 ||
	    strstr(status.reason, "refused: EACCES") == NULL)
		return 3;
	/* The event descriptor is registered as well: sleep in the ring instead. */
	if (loader_event_fd(loader) != -EACCES)
		return 4;
	r = read_in_child();
	loader = loader_close(loader);
	return r;
}

Test(manager_loader, a_filter_on_registration_leaves_plain_io_uring)
{
	struct forbidden what = {SYS_io_uring_register, EACCES};
	int r;

	cr_assert_eq(write_file(0, 2 * MIB), 0);
	open_with((struct loader_setup){.engine = LOADER_ENGINE_URING});
	loader = loader_close(loader);
	r = child_run(do_without_registration, &what);
	if (r == 77)
		skip_test("no seccomp filters here");
	cr_assert_eq(r, 0);
}

static int read_unlocked(void *argument)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];
	struct rlimit limit = {8 * MIB, 8 * MIB};
	struct loader_setup setup = {.engine = LOADER_ENGINE_URING};
	struct loader_status status;
	int r;

	(void)argument;
	if (setrlimit(RLIMIT_MEMLOCK, &limit) < 0 || syscall(SYS_capget, &header, data) < 0)
		return 77;
	data[0].effective &= ~(1u << CAP_IPC_LOCK);
	data[0].permitted &= ~(1u << CAP_IPC_LOCK);
	if (syscall(SYS_capset, &header, data) < 0)
		return 77;
	if (loader_open(&loader, &setup) < 0)
		return 1;
	if (loader_add_memory(loader, memory, memory_bytes, 0) != 1)
		return 2;
	loader_get_status(loader, &status);
	if (!status.uring || status.registered_buffers != 0 ||
	    strstr(status.reason, "ENOMEM: memlock limit 8192 KiB, a segment needs 32768") == NULL)
		return 3;
	r = read_in_child();
	loader = loader_close(loader);
	return r;
}

Test(manager_loader, a_memlock_limit_of_8_mib_leaves_buffers_unregistered)
{
	int r;

	cr_assert_eq(write_file(0, 2 * MIB), 0);
	open_with((struct loader_setup){.engine = LOADER_ENGINE_URING});
	loader = loader_close(loader);
	r = child_run(read_unlocked, NULL);
	if (r == 77)
		skip_test("the limit or the capability cannot be changed here");
	cr_assert_eq(r, 0);
}
