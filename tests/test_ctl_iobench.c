/* SPDX-License-Identifier: Apache-2.0 */
/* tools/ctl/iobench*.c: what is measured is what was asked for, nothing is written, and the verdict follows from the numbers. */
#include "tests/support/folder.h"
#include "tests/support/hung_drive.h"
#include "tests/support/loop_disk.h"
#include "tools/ctl/iobench_file.h"
#include "tools/ctl/iobench_sweep.h"
#include "tools/ctl/iobench_trial.h"
#include "tools/ctl/iobench_verdict.h"
#include "tools/ctl/iobench_words.h"
#include "tools/ctl/run.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(ctl_iobench, .timeout = 60);

#define MIB (1ull << 20)

static char message[CTL_MESSAGE_BYTES];
static struct iobench_words words;

/* Splits a line at spaces; the first word is the verb. */
static int parse(const char *line)
{
	static char copy[512];
	char *argv[32];
	int argc = 0;

	(void)snprintf(copy, sizeof copy, "%s", line);
	for (char *word = strtok(copy, " "); word != NULL; word = strtok(NULL, " "))
		argv[argc++] = word;
	argv[argc] = NULL;
	message[0] = '\0';
	return iobench_words_parse(argc, argv, &words, message);
}

/* ---- words ---- */

Test(ctl_iobench, without_options_everything_is_tried_for_ten_seconds_a_target)
{
	cr_assert_eq(parse("iobench /a /b"), 0, "%s", message);
	cr_expect_eq(words.target_count, 2);
	cr_expect_str_eq(words.target[1], "/b");
	cr_expect_eq(words.block_bytes, 0);
	cr_expect_eq(words.threads, 0);
	cr_expect_eq(words.count, 0);
	cr_expect(words.with_direct && words.with_buffered);
	cr_expect_eq(words.seconds, 20.0);
}

Test(ctl_iobench, options_stand_before_between_or_after_the_targets)
{
	cr_assert_eq(parse("iobench --block 19M /a --threads 8 --count 64 --direct yes /b --seconds 0.5"), 0, "%s",
		     message);
	cr_expect_eq(words.target_count, 2);
	cr_expect_eq(words.block_bytes, 19 * MIB);
	cr_expect_eq(words.threads, 8);
	cr_expect_eq(words.count, 64);
	cr_expect(words.with_direct && !words.with_buffered);
	cr_expect_eq(words.seconds, 0.5);
	cr_assert_eq(parse("iobench /a --direct no"), 0);
	cr_expect(!words.with_direct && words.with_buffered);
}

Test(ctl_iobench, wrong_words_are_einval_with_a_reason)
{
	static const char *const bad[] = {
		"iobench",
		"iobench /1 /2 /3 /4 /5 /6 /7 /8",
		"iobench /a --block 0",
		"iobench /a --block 5000",
		"iobench /a --block 257M",
		"iobench /a --block 18446744073709551615",
		"iobench /a --block -4K",
		"iobench /a --block many",
		"iobench /a --count 0",
		"iobench /a --count -1",
		"iobench /a --count 1000001",
		"iobench /a --count 99999999999999999999999",
		"iobench /a --count 1x",
		"iobench /a --threads 0",
		"iobench /a --threads 65",
		"iobench /a --threads +4",
		"iobench /a --direct maybe",
		"iobench /a --seconds 0",
		"iobench /a --seconds nan",
		"iobench /a --seconds inf",
		"iobench /a --seconds 1e300",
		"iobench /a --seconds -1",
		"iobench /a --seconds 3601",
		"iobench /a --seconds 1s",
		"iobench /a --block 256M --threads 64",
	};

	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		struct iobench_words before;

		memset(&words, 0x5a, sizeof words);
		before = words;
		cr_expect_eq(parse(bad[i]), -EINVAL, "accepted: %s", bad[i]);
		cr_expect_neq(message[0], '\0', "no reason: %s", bad[i]);
		cr_expect_eq(memcmp(&before, &words, sizeof words), 0, "changed: %s", bad[i]);
	}
}

Test(ctl_iobench, the_verb_needs_no_manager_and_is_not_repeated)
{
	const struct verb *verb = verb_find("iobench");
	char *argv[] = {"iobench", "/a", NULL};

	cr_assert_not_null(verb);
	cr_expect(verb->is_local(2, argv));
	cr_expect(verb->is_order(2, argv));
	cr_expect(verb->takes_option(2, argv, "--block"));
	cr_expect(!verb->takes_option(2, argv, "--blocks"));
}

/* ---- verdict ---- */

static struct iobench_point point(uint64_t block_mib, uint32_t threads, int is_direct, double gb_per_s)
{
	return (struct iobench_point){
		.block_bytes = block_mib * MIB,
		.threads = threads,
		.is_direct = is_direct,
		.measured = {.blocks = 10, .bytes = (uint64_t)(gb_per_s * 1e9), .elapsed_ns = 1000000000},
	};
}

Test(ctl_iobench, the_verdict_is_the_least_in_flight_that_is_nearly_the_best)
{
	const struct iobench_point points[] = {
		point(1, 1, 1, 1.0), point(1, 4, 1, 2.9),  point(4, 1, 1, 2.95),
		point(4, 4, 1, 3.0), point(16, 4, 1, 2.8), point(4, 4, 0, 3.2),
	};

	cr_expect_eq(iobench_choose(points, 6), 2, "of as much in flight the one with fewer threads");
	cr_expect_eq(iobench_choose(points, 1), 0);
}

Test(ctl_iobench, few_large_blocks_are_more_in_flight_than_some_small_ones)
{
	const struct iobench_point points[] = {point(16, 1, 1, 3.0), point(1, 4, 1, 2.9), point(1, 8, 1, 3.0)};

	cr_expect_eq(iobench_choose(points, 3), 1);
}

Test(ctl_iobench, the_page_cache_is_chosen_only_where_it_is_clearly_faster)
{
	struct iobench_point points[] = {point(4, 4, 1, 2.0), point(4, 4, 0, 2.2)};

	cr_expect_eq(iobench_choose(points, 2), 0);
	points[1] = point(4, 4, 0, 2.4);
	cr_expect_eq(iobench_choose(points, 2), 1);
	points[0].is_direct = 0;
	cr_expect_eq(iobench_choose(points, 1), 0, "no direct read at all");
}

Test(ctl_iobench, what_failed_or_read_nothing_is_never_chosen)
{
	struct iobench_point points[] = {point(4, 4, 1, 9.0), point(4, 1, 1, 1.0), point(4, 1, 1, 0.0)};

	points[0].measured.error = -EIO;
	cr_expect_eq(iobench_choose(points, 3), 1);
	cr_expect_eq(iobench_choose(points, 1), -ENOENT);
	cr_expect_eq(iobench_choose(&points[2], 1), -ENOENT);
	cr_expect_eq(iobench_choose(points, 0), -ENOENT);
	points[2].measured = (struct iobench_measured){.bytes = 5};
	cr_expect_eq(iobench_rate(&points[2].measured), 0.0, "no time passed: no rate, and no division by it");
	cr_expect_eq(iobench_ms_per_block(&points[2].measured), 0.0);
}

/* ---- reading ---- */

static const struct iobench_times patient = {.time_ns = 60000000000, .stall_ns = 60000000000};

/* A file in which each block of 4 KiB is filled with its own number. */
static int make_numbered(const struct folder *folder, const char *name, uint32_t blocks)
{
	char path[256];
	uint32_t block[1024];
	int fd = open(folder_path(folder, name, path, sizeof path), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	cr_assert_geq(fd, 0);
	for (uint32_t i = 0; i < blocks; i++) {
		for (uint32_t w = 0; w < 1024; w++)
			block[w] = i;
		cr_assert_eq(write(fd, block, sizeof block), (ssize_t)sizeof block);
	}
	return fd;
}

/* One thread: what is left in its buffer is the last block, so a count of one shows each block in its turn. */
Test(ctl_iobench, every_block_is_read_once_before_any_is_read_again)
{
	enum { BLOCKS = 24 };
	struct iobench_measured measured;
	uint32_t buffer[1024], seen[BLOCKS] = {0};
	struct folder folder;
	int fd;

	folder_make(&folder);
	fd = make_numbered(&folder, "file", BLOCKS);
	for (uint32_t count = 1; count <= BLOCKS + 1; count++) {
		const struct iobench_lane lane = {.fd = fd,
						  .file_bytes = BLOCKS * 4096 + 100, /* the rest is no block */
						  .block_bytes = 4096,
						  .threads = 1,
						  .count = count,
						  .phase = 5,
						  .buffers = (unsigned char *)buffer};

		cr_assert_eq(iobench_trial(&lane, 1, &patient, &measured), 0);
		cr_expect_eq(measured.error, 0);
		cr_expect_eq(measured.blocks, count <= BLOCKS ? count : BLOCKS, "%" PRIu64, measured.blocks);
		cr_expect_eq(measured.bytes, measured.blocks * 4096);
		cr_expect_gt(measured.elapsed_ns, 0);
		cr_assert_lt(buffer[0], BLOCKS);
		seen[buffer[0]] += count <= BLOCKS;
	}
	for (uint32_t i = 0; i < BLOCKS; i++)
		cr_expect_eq(seen[i], 1, "block %" PRIu32 " came %" PRIu32 " times", i, seen[i]);
	(void)close(fd);
	folder_remove(&folder);
}

Test(ctl_iobench, threads_share_the_blocks_and_each_has_its_own_buffer)
{
	enum { BLOCKS = 4096, THREADS = 8 };
	static uint32_t buffers[THREADS][1024];
	struct iobench_measured measured[2];
	struct iobench_lane lanes[2];
	struct folder folder;
	uint32_t used = 0;
	int fd;

	memset(buffers, 0xff, sizeof buffers);
	folder_make(&folder);
	fd = make_numbered(&folder, "file", BLOCKS);
	for (uint32_t i = 0; i < 2; i++)
		lanes[i] = (struct iobench_lane){.fd = fd,
						 .file_bytes = BLOCKS * 4096ull,
						 .block_bytes = 4096,
						 .threads = THREADS / 2,
						 .phase = i,
						 .buffers = (unsigned char *)buffers[i * THREADS / 2]};
	cr_assert_eq(iobench_trial(lanes, 2, &patient, measured), 0);
	for (uint32_t i = 0; i < 2; i++)
		cr_expect_eq(measured[i].blocks, BLOCKS, "every block of each lane: %" PRIu64, measured[i].blocks);
	for (uint32_t t = 0; t < THREADS; t++) {
		for (uint32_t w = 1; w < 1024; w++)
			cr_assert_eq(buffers[t][w], buffers[t][0], "two blocks in one buffer");
		used += buffers[t][0] != UINT32_MAX;
	}
	cr_expect_gt(used, 2, "a buffer for each lane only"); /* one thread may be late for all of it */
	(void)close(fd);
	folder_remove(&folder);
}

Test(ctl_iobench, time_that_is_over_ends_it)
{
	static uint32_t buffer[1024];
	struct iobench_measured measured;
	struct folder folder;
	struct iobench_lane lane;

	folder_make(&folder);
	lane = (struct iobench_lane){.fd = make_numbered(&folder, "file", 64),
				     .file_bytes = 64 * 4096,
				     .block_bytes = 4096,
				     .threads = 1,
				     .buffers = (unsigned char *)buffer};
	cr_assert_eq(iobench_trial(&lane, 1, &(struct iobench_times){.stall_ns = 60000000000}, &measured), 0);
	cr_expect_eq(measured.blocks, 0);
	cr_expect_eq(measured.error, 0);
	(void)close(lane.fd);
	folder_remove(&folder);
}

Test(ctl_iobench, a_file_that_became_shorter_is_an_error_and_no_bandwidth)
{
	static uint32_t buffer[1024];
	struct iobench_measured measured;
	struct folder folder;
	struct iobench_lane lane;

	folder_make(&folder);
	lane = (struct iobench_lane){.fd = make_numbered(&folder, "file", 4),
				     .file_bytes = 64 * 4096,
				     .block_bytes = 4096,
				     .threads = 1,
				     .buffers = (unsigned char *)buffer};
	cr_assert_eq(iobench_trial(&lane, 1, &patient, &measured), 0);
	cr_expect_eq(measured.error, -EIO);
	(void)close(lane.fd);
	folder_remove(&folder);
}

/* ---- files ---- */

Test(ctl_iobench, of_a_directory_the_largest_shard_is_read)
{
	struct iobench_file file;
	struct folder folder;
	char path[256];

	folder_make(&folder);
	(void)close(make_numbered(&folder, "a.safetensors", 2));
	for (char name[] = "i.safetensors"; name[0] > 'a'; name[0]--)
		(void)close(make_numbered(&folder, name, 5)); /* as large, in some order */
	(void)close(make_numbered(&folder, "huge.bin", 50));
	(void)close(make_numbered(&folder, ".safetensors", 60)); /* a suffix is no name */
	cr_assert_eq(iobench_file_open(&file, folder.path, message), 0, "%s", message);
	cr_expect_eq(file.bytes, 5 * 4096);
	cr_expect_not_null(strstr(file.path, "/b.safetensors"), "%s", file.path);
	cr_expect_neq(file.disk_name[0], '\0');
	iobench_file_close(&file);
	cr_assert_eq(iobench_file_open(&file, folder_path(&folder, "huge.bin", path, sizeof path), message), 0, "%s",
		     message);
	cr_expect_eq(file.bytes, 50 * 4096);
	iobench_file_close(&file);
	folder_remove(&folder);
}

Test(ctl_iobench, what_cannot_be_read_is_named_with_a_reason)
{
	struct iobench_file file;
	struct folder folder;
	char path[256], long_name[8192];

	folder_make(&folder);
	cr_expect_eq(iobench_file_open(&file, folder.path, message), -ENOENT);
	cr_expect_not_null(strstr(message, "no *.safetensors there"), "%s", message);
	cr_expect_eq(iobench_file_open(&file, folder_path(&folder, "none", path, sizeof path), message), -ENOENT);
	cr_expect_not_null(strstr(message, "none: No such file"), "%s", message);
	cr_assert_eq(mkfifo(folder_path(&folder, "fifo.safetensors", path, sizeof path), 0600), 0);
	cr_expect_eq(iobench_file_open(&file, path, message), -EINVAL, "a FIFO waits for a writer");
	cr_expect_eq(iobench_file_open(&file, folder.path, message), -ENOENT, "nor is it a shard");
	memset(long_name, 'x', sizeof long_name - 1);
	long_name[sizeof long_name - 1] = '\0';
	cr_expect_eq(iobench_file_open(&file, long_name, message), -ENAMETOOLONG);
	cr_expect_lt(strlen(message), sizeof message);
	folder_remove(&folder);
}

/* ---- whole ---- */

/* The text of a run, or its message; a line of words behind the verb. */
static char *output_of(const char *line, int as_json, int *ret_status)
{
	const struct verb *verb = verb_find("iobench");
	struct run run = {.verb = verb, .as_json = as_json, .stop_fd = -1};
	static char copy[1024];
	char *argv[32] = {"iobench"}, *output = NULL;
	json_t *answer = NULL;
	int argc = 1;

	(void)snprintf(copy, sizeof copy, "%s", line);
	for (char *word = strtok(copy, " "); word != NULL; word = strtok(NULL, " "))
		argv[argc++] = word;
	*ret_status = verb->answer_here(argc, argv, &answer, message);
	if (*ret_status == 0)
		*ret_status = run_render(&run, answer, &output, message);
	return output;
}

static json_t *json_of(const char *line)
{
	int status;
	char *text = output_of(line, 1, &status);
	json_t *answer;

	cr_assert_eq(status, 0, "%s", message);
	answer = json_loads(text, 0, NULL);
	cr_assert_not_null(answer, "%s", text);
	free(text);
	return answer;
}

static void make_shard(const struct folder *folder, const char *name, uint32_t mebibytes)
{
	(void)close(make_numbered(folder, name, mebibytes * 256));
}

Test(ctl_iobench, a_sweep_measures_both_ways_and_ends_with_settings)
{
	struct folder folder;
	char line[256];
	char *output;
	int status;

	folder_make(&folder);
	make_shard(&folder, "a.safetensors", 40);
	(void)snprintf(line, sizeof line, "%s --seconds 0.5", folder.path);
	output = output_of(line, 0, &status);
	cr_assert_eq(status, 0, "%s", message);
	cr_expect_not_null(strstr(output, "a.safetensors: 40.0 MiB on "), "%s", output);
	cr_expect_not_null(strstr(output, "buffered"), "%s", output);
	cr_expect_not_null(strstr(output, "\n  > "), "%s", output);
	cr_expect_not_null(strstr(output, "GB/s"), "%s", output);
	cr_expect_not_null(strstr(output, "\nfor cnre-managerd: --direct "), "%s", output);
	cr_expect_null(strstr(output, "--reads-in-flight"), "no block is known to be an expert:\n%s", output);
	cr_expect_null(strstr(output, "--drive-weights"), "one drive has nothing to weigh against:\n%s", output);
	free(output);
	folder_remove(&folder);
}

Test(ctl_iobench, given_settings_are_the_only_ones_and_the_numbers_agree)
{
	struct folder folder;
	const json_t *drive, *measured;
	json_t *answer;
	char line[256];

	folder_make(&folder);
	make_shard(&folder, "a.safetensors", 8);
	(void)snprintf(line, sizeof line, "%s --block 64K --threads 3 --direct no --count 50 --seconds 30",
		       folder.path);
	answer = json_of(line);
	drive = json_array_get(json_object_get(answer, "drives"), 0);
	cr_assert_eq(json_array_size(json_object_get(drive, "measurements")), 1);
	measured = json_array_get(json_object_get(drive, "measurements"), 0);
	cr_expect_eq(json_integer_value(json_object_get(measured, "block_bytes")), 65536);
	cr_expect_eq(json_integer_value(json_object_get(measured, "threads")), 3);
	cr_expect(json_is_false(json_object_get(measured, "direct")));
	cr_expect_eq(json_integer_value(json_object_get(measured, "blocks")), 50);
	cr_expect_eq(json_integer_value(json_object_get(measured, "bytes")), 50 * 65536);
	cr_expect_float_eq(json_real_value(json_object_get(measured, "ms_per_block")) * 50 / 1e3,
			   json_real_value(json_object_get(measured, "seconds")), 1e-6);
	cr_expect_float_eq(json_real_value(json_object_get(measured, "gb_per_s")) *
				   json_real_value(json_object_get(measured, "seconds")),
			   50 * 65536 / 1e9, 1e-6);
	json_decref(answer);
	folder_remove(&folder);
}

Test(ctl_iobench, two_targets_on_one_disk_are_said_to_be_so)
{
	struct folder folder[2];
	char line[512];
	json_t *answer;
	char *text;

	for (int i = 0; i < 2; i++) {
		folder_make(&folder[i]);
		make_shard(&folder[i], "a.safetensors", 2);
	}
	(void)snprintf(line, sizeof line, "%s %s --block 1M --threads 1 --direct no --seconds 1", folder[0].path,
		       folder[1].path);
	answer = json_of(line);
	text = json_dumps(answer, 0);
	cr_expect_eq(json_integer_value(
			     json_object_get(json_array_get(json_object_get(answer, "drives"), 1), "same_disk_as")),
		     0);
	cr_expect_not_null(strstr(text, "a copy there makes nothing faster"), "%s", text);
	cr_expect_not_null(strstr(text, " --reads-in-flight 2 --drive-weights "), "%s", text);
	cr_expect_not_null(strchr(strstr(text, "--drive-weights "), ':'), "as the manual writes them: %s", text);
	cr_expect_null(strstr(text, "disks together"), "one disk is not read against itself: %s", text);
	free(text);
	json_decref(answer);
	for (int i = 0; i < 2; i++)
		folder_remove(&folder[i]);
}

Test(ctl_iobench, a_file_smaller_than_a_block_is_refused)
{
	struct folder folder;
	char line[256];
	int status;

	folder_make(&folder);
	(void)close(make_numbered(&folder, "a.safetensors", 3));
	cr_expect_null(output_of(folder.path, 0, &status));
	cr_expect_eq(status, -EINVAL);
	cr_expect_not_null(strstr(message, "smaller than a block"), "%s", message);
	(void)snprintf(line, sizeof line, "%s --block 16K", folder.path);
	cr_expect_null(output_of(line, 0, &status));
	cr_expect_eq(status, -EINVAL);
	folder_remove(&folder);
}

/* Its name, its bytes and its times: what a reader may not change. */
Test(ctl_iobench, nothing_is_written)
{
	struct folder folder;
	struct stat before, after;
	char line[256], path[256];
	struct dirent *entry;
	int status, names = 0;
	DIR *open_folder;

	folder_make(&folder);
	make_shard(&folder, "a.safetensors", 2);
	(void)folder_path(&folder, "a.safetensors", path, sizeof path);
	cr_assert_eq(chmod(path, 0400), 0);
	cr_assert_eq(stat(path, &before), 0);
	(void)snprintf(line, sizeof line, "%s --block 4K --seconds 0.2", folder.path);
	free(output_of(line, 0, &status));
	cr_assert_eq(status, 0, "%s", message);
	cr_assert_eq(stat(path, &after), 0);
	cr_expect_eq(memcmp(&before.st_mtim, &after.st_mtim, sizeof before.st_mtim), 0);
	cr_expect_eq(memcmp(&before.st_ctim, &after.st_ctim, sizeof before.st_ctim), 0);
	cr_expect_eq(before.st_size, after.st_size);
	open_folder = opendir(folder.path);
	while ((entry = readdir(open_folder)) != NULL)
		names += entry->d_name[0] != '.';
	(void)closedir(open_folder);
	cr_expect_eq(names, 1);
	folder_remove(&folder);
}

/* A name that is no UTF-8 has no place in JSON; the numbers have. */
Test(ctl_iobench, a_name_that_is_no_text_is_shown_by_its_number)
{
	struct folder folder;
	char path[256], line[512];
	json_t *answer;

	folder_make(&folder);
	(void)close(make_numbered(&folder, "a\xff\x1b[31m", 256));
	(void)folder_path(&folder, "a\xff\x1b[31m", path, sizeof path);
	(void)snprintf(line, sizeof line, "%s --block 64K --threads 1 --direct no --seconds 0.2", path);
	answer = json_of(line);
	cr_expect_str_eq(
		json_string_value(json_object_get(json_array_get(json_object_get(answer, "drives"), 0), "target")),
		"drive 0");
	cr_expect_eq(json_array_size(json_object_get(answer, "verdict")), 1);
	json_decref(answer);
	folder_remove(&folder);
}

/* ---- real drives ---- */

/* Of the kernel's own files this one is large, and the file system refuses O_DIRECT (D6). */
#define REFUSING_FILE "/sys/kernel/btf/vmlinux"

Test(ctl_iobench, where_direct_reads_are_refused_there_are_only_the_others)
{
	const json_t *drive;
	json_t *answer;
	char *text;
	int status;

	if (access(REFUSING_FILE, R_OK) < 0)
		cr_skip("this kernel has no " REFUSING_FILE);
	answer = json_of(REFUSING_FILE " --block 64K --threads 1 --seconds 0.2");
	drive = json_array_get(json_object_get(answer, "drives"), 0);
	cr_expect_neq(json_string_value(json_object_get(drive, "direct_refused"))[0], '\0');
	cr_expect_eq(json_array_size(json_object_get(drive, "measurements")), 1);
	text = json_dumps(answer, 0);
	cr_expect_not_null(strstr(text, "refuses direct reads"), "%s", text);
	cr_expect_not_null(strstr(text, "--direct no "), "%s", text);
	free(text);
	json_decref(answer);
	cr_expect_null(output_of(REFUSING_FILE " --direct yes --block 64K", 0, &status));
	cr_expect_lt(status, 0);
	cr_expect_not_null(strstr(message, "direct reads are refused here"), "%s", message);
}

/* Direct reads that the drive takes in pieces of 4 KiB only: blocks and buffers fit that. */
Test(ctl_iobench, a_drive_with_sectors_of_4k_is_read_directly)
{
	struct loop_disk disk;
	const char *reason = loop_disk_open(&disk, 64 * MIB, 4096, 4096);
	struct folder folder = {.path = LOOP_DISK_PATH};
	json_t *answer;
	const json_t *drive;

	if (reason != NULL) {
		loop_disk_close(&disk);
		cr_skip("%s", reason);
	}
	make_shard(&folder, "a.safetensors", 8);
	answer = json_of(LOOP_DISK_PATH " --block 12K --threads 2 --direct yes --seconds 0.3");
	drive = json_array_get(json_object_get(answer, "drives"), 0);
	cr_expect_eq(strncmp(json_string_value(json_object_get(drive, "disk")), "loop", 4), 0);
	cr_expect_str_eq(json_string_value(json_object_get(drive, "direct_refused")), "");
	cr_expect(json_is_true(json_object_get(json_array_get(json_object_get(drive, "measurements"), 0), "direct")));
	json_decref(answer);
	loop_disk_close(&disk);
}

Test(ctl_iobench, a_drive_that_fails_is_an_error_with_its_file)
{
	struct loop_disk disk;
	const char *reason = loop_disk_open(&disk, 64 * MIB, 512, 4096);
	struct folder folder = {.path = LOOP_DISK_PATH};
	int status;

	if (reason != NULL) {
		loop_disk_close(&disk);
		cr_skip("%s", reason);
	}
	make_shard(&folder, "a.safetensors", 8);
	sync();
	cr_assert_eq(loop_disk_limit(&disk, MIB), 0);
	cr_expect_null(output_of(LOOP_DISK_PATH " --block 1M --threads 2 --seconds 0.3", 0, &status));
	cr_expect_eq(status, -EIO);
	cr_expect_not_null(strstr(message, LOOP_DISK_PATH "/a.safetensors: Input/output error"), "%s", message);
	(void)loop_disk_limit(&disk, 0);
	loop_disk_close(&disk);
}

/* The threads stay behind until the drive answers, as in the program, which then ends. */
Test(ctl_iobench, a_drive_that_hangs_ends_it)
{
	static unsigned char buffers[2 * MIB] __attribute__((aligned(4096)));
	struct iobench_measured measured = {.blocks = 77};
	struct iobench_file file;
	struct hung_drives drives;
	struct folder folder, shards;
	const char *reason;
	struct iobench_lane lane;
	char path[128];

	folder_make(&folder);
	reason = hung_drives_open(&drives, folder.path, 1, 32);
	if (reason != NULL) {
		(void)rmdir(folder_path(&folder, "0", path, sizeof path));
		folder_remove(&folder);
		cr_skip("%s", reason);
	}
	(void)snprintf(shards.path, sizeof shards.path, "%.63s", drives.drive[0].mount);
	make_shard(&shards, "a.safetensors", 4);
	cr_assert_eq(iobench_file_open(&file, shards.path, message), 0, "%s", message);
	cr_assert_geq(file.direct_fd, 0);
	lane = (struct iobench_lane){
		.fd = file.direct_fd, .file_bytes = file.bytes, .block_bytes = MIB, .threads = 2, .buffers = buffers};
	hung_drives_stop(&drives, 0);
	hung_drives_enter(&drives, getpid());
	cr_expect_eq(iobench_trial(&lane, 1, &(struct iobench_times){.time_ns = 100000000, .stall_ns = 500000000},
				   &measured),
		     -ETIMEDOUT);
	cr_expect_eq(measured.blocks, 77, "the output is untouched");
	hung_drives_go(&drives, 0);
	hung_drives_leave(getpid());
	iobench_file_close(&file);
	hung_drives_close(&drives);
	(void)rmdir(folder_path(&folder, "0", path, sizeof path));
	folder_remove(&folder);
}
