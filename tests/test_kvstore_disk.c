/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Block files in every way a disk can write them: WAYS makes four tests of one body, with io_uring and with plain calls,
 * each with nameless files and with named ones. What drives do to them is in test_kvstore_disk_faults.c.
 */
#include "kvstore/disk.h"

#include "tests/support/child.h"
#include "tests/support/kv_samples.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB (1024u * 1024u)
#define MANY 96u
#define RING_CALLS_PER_BLOCK 9u /* the worst: each of six steps, the job and its end wake somebody alone */

struct way {
	int plain, no_tmpfile;
};

#define WAYS(name)                                          \
	static void name(struct way way);                   \
	Test(kvstore_disk, name##_by_io_uring)              \
	{                                                   \
		name((struct way){0, 0});                   \
	}                                                   \
	Test(kvstore_disk, name##_by_io_uring_and_names)    \
	{                                                   \
		name((struct way){0, 1});                   \
	}                                                   \
	Test(kvstore_disk, name##_by_plain_calls)           \
	{                                                   \
		name((struct way){1, 0});                   \
	}                                                   \
	Test(kvstore_disk, name##_by_plain_calls_and_names) \
	{                                                   \
		name((struct way){1, 1});                   \
	}                                                   \
	static void name(struct way way)

static char directory[64];
static struct kv_disk *disk;
static struct kv_folder *folder;

static void begin(void)
{
	strcpy(directory, "/var/tmp/cnre-kv-XXXXXX");
	cr_assert(mkdtemp(directory) != NULL);
}

static void end(void)
{
	cr_assert_eq(kv_disk_close(disk, -1), 0);
	kv_sample_remove_tree(directory);
}

TestSuite(kvstore_disk, .init = begin, .fini = end, .timeout = 60);

static void open_way(struct way way)
{
	struct kv_disk_status status;

	disk = kv_sample_open(directory, way.plain, way.no_tmpfile);
	cr_assert(disk != NULL);
	cr_assert_eq(kv_disk_folder(disk, "f", &folder), 0);
	kv_disk_get_status(disk, &status);
	cr_assert(!way.plain || !status.uring);
	cr_assert(!way.no_tmpfile || !status.tmpfile);
}

static struct kv_disk_status status_of(void)
{
	struct kv_disk_status status;

	kv_disk_get_status(disk, &status);
	return status;
}

/* ---- many at once ---- */

static struct kv_block block[MANY];
static void *payload[MANY];
static struct kv_disk_job job[MANY];
static uint32_t done_count;

/* The edges of pages and chunks. */
static uint64_t bytes_of(uint32_t number)
{
	static const uint64_t bytes[] = {1,       4095,    4096, 4097,    73728,       MIB - 4096,
					 MIB - 1, MIB + 1, MIB,  3 * MIB, 3 * MIB + 5, 2 * MIB - 4096};

	return bytes[number % (sizeof bytes / sizeof *bytes)];
}

static void count_done(struct kv_disk_job *one)
{
	(void)one;
	done_count++;
}

static void run_all(enum kv_disk_kind kind)
{
	done_count = 0;
	for (uint32_t i = 0; i < MANY; i++) {
		job[i] = (struct kv_disk_job){
			.kind = kind, .folder = folder, .block = &block[i], .memory = payload[i], .done = count_done};
		kv_disk_submit(disk, &job[i]);
	}
	kv_sample_wait(disk, &done_count, MANY);
}

static void make_all(void)
{
	for (uint32_t i = 0; i < MANY; i++) {
		payload[i] = kv_sample_memory(bytes_of(i));
		kv_sample_make(&block[i], payload[i], i, bytes_of(i));
	}
}

static void free_all(void)
{
	for (uint32_t i = 0; i < MANY; i++)
		free(payload[i]);
}

static void check_files(void)
{
	for (uint32_t i = 0; i < MANY; i++) {
		struct stat status;
		char path[256];

		kv_sample_path(directory, "f", &block[i], path, sizeof path);
		cr_assert_eq(stat(path, &status), 0);
		cr_assert_eq((uint64_t)status.st_size, KV_BLOCK_HEADER_BYTES + bytes_of(i));
		cr_assert_eq(status.st_mode & 07777, 0600);
	}
	cr_assert_eq(kv_sample_count_files(directory, ""), MANY);
}

static int is_among(const struct kv_block *found, uint32_t count, const struct kv_block *one)
{
	for (uint32_t i = 0; i < count; i++)
		if (memcmp(&found[i], one, sizeof *one) == 0)
			return 1;
	return 0;
}

WAYS(what_is_written_is_found_read_and_removed)
{
	static struct kv_block found[MANY];

	open_way(way);
	make_all();
	run_all(KV_DISK_WRITE);
	for (uint32_t i = 0; i < MANY; i++)
		cr_assert_eq(job[i].status, 0, "%u: %d %s", i, job[i].status, status_of().last_error);
	check_files();
	cr_assert_eq(kv_sample_scan(disk, folder, found, MANY), MANY);
	for (uint32_t i = 0; i < MANY; i++) {
		cr_assert(is_among(found, MANY, &block[i]));
		memset(payload[i], 0x55, bytes_of(i));
	}
	run_all(KV_DISK_READ);
	for (uint32_t i = 0; i < MANY; i++)
		cr_assert(job[i].status == 0 && kv_sample_holds(payload[i], i, bytes_of(i)), "%u: %d", i,
			  job[i].status);
	cr_assert(job[0].begun_ns > 0 && job[0].ended_ns >= job[0].begun_ns);
	run_all(KV_DISK_REMOVE);
	run_all(KV_DISK_READ);
	for (uint32_t i = 0; i < MANY; i++)
		cr_assert_eq(job[i].status, -ENOENT);
	cr_assert_eq(kv_sample_count_files(directory, ""), 0);
	cr_assert_eq(status_of().blocks_written, MANY);
	cr_assert_eq(status_of().blocks_read, MANY);
	cr_assert_eq(status_of().removed, MANY);
	cr_assert_eq(status_of().write_errors + status_of().read_errors + status_of().quarantined, 0);
	free_all();
}

WAYS(a_block_that_is_there_is_not_written_again)
{
	open_way(way);
	make_all();
	run_all(KV_DISK_WRITE);
	run_all(KV_DISK_WRITE);
	for (uint32_t i = 0; i < MANY; i++)
		cr_assert_eq(job[i].status, 0);
	cr_assert_eq(status_of().blocks_written, MANY);
	cr_assert_eq(status_of().present_already, MANY);
	check_files();
	free_all();
}

/* Eight in flight, as a manager has them: the calls of the thread are shared. */
Test(kvstore_disk, a_block_costs_few_calls)
{
	open_way((struct way){0, 0});
	if (!status_of().uring) {
		end();
		cr_skip("no io_uring here");
	}
	make_all();
	run_all(KV_DISK_WRITE);
	cr_assert_lt(status_of().syscalls, RING_CALLS_PER_BLOCK * MANY);
	free_all();
}

/* ---- what a file may be ---- */

static void put_file(const char *path, const void *bytes, size_t count)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	cr_assert(fd >= 0 && write(fd, bytes, count) == (ssize_t)count);
	(void)close(fd);
}

static unsigned char image[KV_BLOCK_HEADER_BYTES + 3 * MIB];

/* One block as a file, and its bytes in image. */
static size_t make_file(struct kv_block *one, void *memory, uint64_t bytes, char path[256])
{
	kv_sample_make(one, memory, 1, bytes);
	kv_sample_path(directory, "f", one, path, 256);
	cr_assert_eq(kv_sample_do(disk, folder, KV_DISK_WRITE, one, memory), 0);
	kv_block_encode(one, image);
	memcpy(image + KV_BLOCK_HEADER_BYTES, memory, bytes);
	return KV_BLOCK_HEADER_BYTES + bytes;
}

/* Flips a bit of a byte, and looks that nobody takes the file for a block. */
static void check_flipped(struct kv_block *one, void *memory, const char *path, size_t bytes, size_t at)
{
	uint64_t quarantined = status_of().quarantined;

	image[at] ^= (unsigned char)(1u << at % 8);
	put_file(path, image, bytes);
	cr_assert_eq(kv_sample_do(disk, folder, KV_DISK_READ, one, memory), -EBADMSG, "byte %zu", at);
	cr_assert_eq(access(path, F_OK), -1);
	cr_assert_eq(status_of().quarantined, quarantined + 1);
	if (at < KV_BLOCK_HEADER_BYTES) {
		put_file(path, image, bytes);
		cr_assert_eq(kv_sample_scan(disk, folder, NULL, 0), 0, "byte %zu", at);
		cr_assert_eq(access(path, F_OK), -1);
	}
	image[at] ^= (unsigned char)(1u << at % 8);
}

WAYS(a_flipped_bit_is_never_read_as_a_block)
{
	uint64_t payload_bytes = 3 * 4096 + 100;
	void *memory = kv_sample_memory(payload_bytes);
	struct kv_block one;
	char path[256];
	size_t bytes;

	open_way(way);
	bytes = make_file(&one, memory, payload_bytes, path);
	for (size_t at = 0; at < bytes; at += at < KV_BLOCK_HEADER_BYTES ? 1 : 64)
		check_flipped(&one, memory, path, bytes, at);
	check_flipped(&one, memory, path, bytes, bytes - 1);
	put_file(path, image, bytes); /* and with no bit flipped it is one */
	cr_assert_eq(kv_sample_do(disk, folder, KV_DISK_READ, &one, memory), 0);
	cr_assert(kv_sample_holds(memory, 1, payload_bytes));
	cr_assert_leq(kv_sample_count_files(directory, "."), 64); /* the bound of what is kept for a person */
	free(memory);
}

WAYS(a_file_of_another_length_is_no_block)
{
	static const long off_by[] = {-1000000, -4097, -4096, -1, 1, 4095, 4096, 4097, MIB};
	uint64_t payload_bytes = MIB + 8192;
	void *memory = kv_sample_memory(payload_bytes);
	struct kv_block one;
	char path[256];
	size_t bytes;

	open_way(way);
	bytes = make_file(&one, memory, payload_bytes, path);
	for (size_t i = 0; i < sizeof off_by / sizeof *off_by; i++) {
		put_file(path, image, bytes);
		cr_assert_eq(truncate(path, (off_t)bytes + off_by[i]), 0);
		cr_assert_eq(kv_sample_do(disk, folder, KV_DISK_READ, &one, memory), -EBADMSG, "%ld", off_by[i]);
		put_file(path, image, bytes);
		cr_assert_eq(truncate(path, (off_t)bytes + off_by[i]), 0);
		cr_assert_eq(kv_sample_scan(disk, folder, NULL, 0), 0, "%ld", off_by[i]);
	}
	for (off_t length = 0; length <= KV_BLOCK_HEADER_BYTES; length += 1024) {
		put_file(path, image, (size_t)length);
		cr_assert_eq(kv_sample_do(disk, folder, KV_DISK_READ, &one, memory), -EBADMSG);
		put_file(path, image, (size_t)length);
		cr_assert_eq(kv_sample_scan(disk, folder, NULL, 0), 0);
	}
	cr_assert_eq(access(path, F_OK), -1);
	free(memory);
}

WAYS(what_is_no_file_does_not_hang)
{
	void *memory = kv_sample_memory(4096);
	struct kv_block one;
	char path[256];

	open_way(way);
	(void)make_file(&one, memory, 4096, path);
	cr_assert(unlink(path) == 0 && mkfifo(path, 0600) == 0);
	cr_assert_eq(kv_sample_do(disk, folder, KV_DISK_READ, &one, memory), -EBADMSG);
	cr_assert_eq(mkdir(path, 0700), 0);
	cr_assert_eq(kv_sample_do(disk, folder, KV_DISK_READ, &one, memory), -EBADMSG);
	cr_assert_eq(mkfifo(path, 0600), 0);
	cr_assert_eq(kv_sample_scan(disk, folder, NULL, 0), 0);
	cr_assert_eq(symlink("/etc/passwd", path), 0);
	cr_assert_eq(kv_sample_do(disk, folder, KV_DISK_READ, &one, memory), -EBADMSG);
	cr_assert_eq(kv_sample_scan(disk, folder, NULL, 0), 0);
	free(memory);
}

/* Two hosts may compute the same tokens to other bytes, and never take as long. */
WAYS(a_whole_file_of_another_form_stays)
{
	void *memory = kv_sample_memory(8192);
	struct kv_block one, other;
	char path[256];

	open_way(way);
	(void)make_file(&one, memory, 8192, path);
	other = one;
	other.compute_ns++;
	cr_assert_eq(kv_sample_do(disk, folder, KV_DISK_READ, &other, memory), 0);
	other.check[3] ^= 1;
	cr_assert_eq(kv_sample_do(disk, folder, KV_DISK_READ, &other, memory), -ESTALE);
	other = one;
	other.bytes = 4096;
	cr_assert_eq(kv_sample_do(disk, folder, KV_DISK_READ, &other, memory), -ESTALE);
	other = one;
	other.position = 64;
	cr_assert_eq(kv_sample_do(disk, folder, KV_DISK_READ, &other, memory), -ESTALE);
	cr_assert_eq(kv_sample_do(disk, folder, KV_DISK_READ, &one, memory), 0);
	cr_assert_eq(status_of().quarantined, 0);
	free(memory);
}

#define AT_VERSION 8u
#define AT_CHECK (KV_BLOCK_HEADER_BYTES - KV_BLOCK_CHECK_BYTES)

/* Its host knows more than ours. */
WAYS(a_file_of_a_newer_version_stays)
{
	void *memory = kv_sample_memory(4096);
	struct kv_block one;
	char path[256];
	size_t bytes;

	open_way(way);
	bytes = make_file(&one, memory, 4096, path);
	image[AT_VERSION]++;
	kv_check_payload(image, AT_CHECK, image + AT_CHECK);
	put_file(path, image, bytes);
	cr_assert_eq(kv_sample_do(disk, folder, KV_DISK_READ, &one, memory), -EPROTO);
	cr_assert_eq(kv_sample_scan(disk, folder, NULL, 0), 0);
	cr_assert(access(path, F_OK) == 0 && status_of().quarantined == 0);
	free(memory);
}

/* Whoever renames a file of one key to another, a person or a broken drive. */
WAYS(a_block_under_another_name_is_no_block)
{
	void *memory = kv_sample_memory(4096);
	struct kv_block one, two;
	char path[256], other_path[256];

	open_way(way);
	(void)make_file(&one, memory, 4096, path);
	kv_sample_make(&two, memory, 2, 4096);
	cr_assert_eq(kv_sample_do(disk, folder, KV_DISK_WRITE, &two, memory), 0);
	kv_sample_path(directory, "f", &two, other_path, sizeof other_path);
	cr_assert_eq(rename(path, other_path), 0);
	cr_assert_eq(kv_sample_do(disk, folder, KV_DISK_READ, &two, memory), -EBADMSG);
	free(memory);
}

/* ---- directories ---- */

WAYS(a_deleted_directory_is_made_again)
{
	void *memory = kv_sample_memory(4096);
	struct kv_block one;
	char path[256];
	int r;

	open_way(way);
	(void)make_file(&one, memory, 4096, path);
	(void)snprintf(path, sizeof path, "%s/f", directory);
	kv_sample_remove_tree(path);
	cr_assert_eq(kv_sample_do(disk, folder, KV_DISK_READ, &one, memory), -ENOENT);
	cr_assert_eq(kv_sample_do(disk, folder, KV_DISK_WRITE, &one, memory), 0);
	cr_assert_eq(kv_sample_do(disk, folder, KV_DISK_READ, &one, memory), 0);
	kv_sample_remove_tree(directory);
	r = kv_sample_do(disk, folder, KV_DISK_WRITE, &one, memory);
	cr_assert_eq(r, -ENOENT);
	cr_assert_eq(kv_sample_do(disk, folder, KV_DISK_WRITE, &one, memory), 0);
	cr_assert_eq(kv_sample_do(disk, folder, KV_DISK_READ, &one, memory), 0);
	free(memory);
}

Test(kvstore_disk, a_directory_that_cannot_be_made_is_told)
{
	char path[96], message[KV_DISK_MESSAGE_BYTES] = "";
	struct kv_disk_setup setup = {.directory = path};
	struct kv_disk *other = (struct kv_disk *)&setup;

	(void)snprintf(path, sizeof path, "%s/a/b", directory);
	cr_assert_eq(kv_disk_open(&other, &setup, message), -ENOENT);
	cr_assert_eq(other, (struct kv_disk *)&setup);
	cr_assert(strstr(message, path) != NULL);
	(void)snprintf(path, sizeof path, "%s/a", directory);
	cr_assert_eq(kv_disk_open(&other, &setup, message), 0);
	cr_assert_eq(kv_disk_close(other, -1), 0);
	setup.depth = KV_DISK_JOBS_MAX + 1;
	cr_assert_eq(kv_disk_open(&other, &setup, message), -EINVAL);
	open_way((struct way){0, 0});
}

Test(kvstore_disk, folders_have_good_names_only_and_are_listed_in_order)
{
	static const char *const bad[] = {"", ".", "..", ".a", "a/b", "a b", "\xc3\xa4"};
	void *memory = kv_sample_memory(4096);
	struct kv_folder *a, *b, *again;
	struct kv_block one;
	char longest[KV_DISK_FOLDER_BYTES + 1];
	char **names;

	open_way((struct way){0, 0});
	memset(longest, 'x', KV_DISK_FOLDER_BYTES);
	longest[KV_DISK_FOLDER_BYTES] = '\0';
	a = NULL;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		cr_assert_eq(kv_disk_folder(disk, bad[i], &a), -EINVAL);
	cr_assert_eq(kv_disk_folder(disk, longest, &a), -EINVAL);
	cr_assert(a == NULL);
	longest[KV_DISK_FOLDER_BYTES - 1] = '\0';
	cr_assert_eq(kv_disk_folder(disk, longest, &b), 0);
	cr_assert_eq(kv_disk_folder(disk, "A-1_b.c", &a), 0);
	cr_assert(kv_disk_folder(disk, "A-1_b.c", &again) == 0 && again == a);
	kv_sample_make(&one, memory, 1, 4096);
	cr_assert_eq(kv_sample_do(disk, b, KV_DISK_WRITE, &one, memory), 0);
	cr_assert_eq(kv_sample_do(disk, a, KV_DISK_WRITE, &one, memory), 0);
	cr_assert_eq(kv_disk_list_folders(disk, &names), 2);
	cr_assert(strcmp(names[0], "A-1_b.c") == 0 && strcmp(names[1], longest) == 0);
	free(names[0]);
	free(names[1]);
	free(names);
	free(memory);
}

/* ---- ends ---- */

WAYS(closing_ends_what_runs_and_gives_back_the_rest)
{
	struct kv_disk_setup setup = {
		.directory = directory, .plain = way.plain, .no_tmpfile = way.no_tmpfile, .depth = 1};
	char message[KV_DISK_MESSAGE_BYTES];
	uint32_t written = 0;

	make_all();
	cr_assert_eq(kv_disk_open(&disk, &setup, message), 0);
	cr_assert_eq(kv_disk_folder(disk, "f", &folder), 0);
	done_count = 0;
	for (uint32_t i = 0; i < MANY; i++) {
		job[i] = (struct kv_disk_job){.kind = KV_DISK_WRITE,
					      .folder = folder,
					      .block = &block[i],
					      .memory = payload[i],
					      .done = count_done};
		kv_disk_submit(disk, &job[i]);
	}
	cr_assert_eq(kv_disk_close(disk, -1), 0);
	disk = NULL;
	cr_assert_eq(done_count, MANY);
	for (uint32_t i = 0; i < MANY; i++) {
		cr_assert(job[i].status == 0 || job[i].status == -ECANCELED, "%d", job[i].status);
		written += job[i].status == 0;
	}
	cr_assert_eq(kv_sample_count_files(directory, ""), written);
	cr_assert_lt(written, MANY);
	free_all();
}

/* ---- several processes ---- */

#define SHARED 40u

/* Half of the keys are everybody's. */
static int write_in_child(void *argument)
{
	uint32_t which = *(const uint32_t *)argument;
	struct kv_disk *own = kv_sample_open(directory, which == 1, which == 2);
	void *memory = kv_sample_memory(300000);
	struct kv_folder *at;
	struct kv_block one;
	int failed = own == NULL || kv_disk_folder(own, "f", &at) < 0;

	for (uint32_t i = 0; i < SHARED && !failed; i++) {
		kv_sample_make(&one, memory, i % 2 ? i : 1000 * which + i, 290000 + i);
		failed = kv_sample_do(own, at, KV_DISK_WRITE, &one, memory) != 0;
	}
	free(memory);
	return kv_disk_close(own, -1) < 0 || failed;
}

Test(kvstore_disk, several_writers_of_the_same_keys_make_one_set_of_files)
{
	static const uint32_t which[] = {0, 1, 2};
	static struct kv_block found[2 * SHARED];
	void *memory = kv_sample_memory(300000);
	uint32_t wanted = SHARED / 2 + 3 * SHARED / 2;
	pid_t child[3];

	for (int i = 0; i < 3; i++)
		child[i] = child_start(write_in_child, (void *)&which[i]);
	for (int i = 0; i < 3; i++)
		cr_assert_eq(child_wait(child[i]), 0);
	open_way((struct way){0, 0});
	cr_assert_eq(kv_sample_scan(disk, folder, found, 2 * SHARED), (int)wanted);
	cr_assert_eq(kv_sample_count_files(directory, ""), (int)wanted);
	for (uint32_t i = 0; i < wanted; i++)
		cr_assert_eq(kv_sample_do(disk, folder, KV_DISK_READ, &found[i], memory), 0);
	free(memory);
}
