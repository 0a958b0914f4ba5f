/* SPDX-License-Identifier: Apache-2.0 */
/* tools/inspect/extent_map.c, range_map.c: from a place on a drive to a file, and from there to an expert. */
#include "tests/support/folder.h"
#include "tests/support/loop_disk.h"
#include "tools/inspect/extent_map.h"
#include "tools/inspect/file_extents.h"
#include "tools/inspect/range_map.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define A 100u                            /* devices */
#define B 200u

static struct extent_map extents;
static struct range_map ranges;

static void add(uint64_t device, uint64_t begin, uint64_t bytes, uint32_t file, uint64_t file_off)
{
	const struct extent extent = {.device = device, .begin = begin, .bytes = bytes, .file = file, .file_off = file_off};

	cr_assert_eq(extent_map_add(&extents, &extent), 0);
}

static void expect_cut(uint64_t device, uint64_t begin, uint64_t bytes, uint32_t file, uint64_t file_off, uint64_t got)
{
	struct extent_piece piece = extent_map_cut(&extents, device, begin, bytes);

	cr_expect_eq(piece.file, file, "at %lu: file %u, not %u", begin, piece.file, file);
	cr_expect(file == EXTENT_NO_FILE || piece.file_off == file_off, "at %lu: offset %lu, not %lu", begin, piece.file_off, file_off);
	cr_expect_eq(piece.bytes, got, "at %lu: %lu bytes, not %lu", begin, piece.bytes, got);
}

static void done(void)
{
	extent_map_done(&extents);
	range_map_done(&ranges);
}

TestSuite(inspect_extent_map, .fini = done);
TestSuite(inspect_range_map, .fini = done);

Test(inspect_extent_map, a_read_is_cut_where_an_extent_begins_and_ends)
{
	add(A, 8192, 4096, 1, 0); /* out of order, and one device in front of the other */
	add(A, 4096, 4096, 0, 65536);
	add(B, 0, 100, 2, 7);
	extent_map_sort(&extents);
	expect_cut(A, 0, 16384, EXTENT_NO_FILE, 0, 4096);
	expect_cut(A, 4096, 12288, 0, 65536, 4096);
	expect_cut(A, 5000, 100, 0, 65536 + 904, 100);
	expect_cut(A, 8192, 12288, 1, 0, 4096);
	expect_cut(A, 12288, 4096, EXTENT_NO_FILE, 0, 4096);
	expect_cut(A, 12287, 4096, 1, 4095, 1);
	expect_cut(B, 99, 5, 2, 106, 1);
	expect_cut(B, 100, 5, EXTENT_NO_FILE, 0, 5);
	expect_cut(300, 0, 5, EXTENT_NO_FILE, 0, 5);
	expect_cut(1, 0, 5, EXTENT_NO_FILE, 0, 5);
}

Test(inspect_extent_map, of_files_that_share_a_place_the_first_answers)
{
	add(A, 0, 8192, 1, 0);
	add(A, 0, 4096, 0, 0);
	add(A, 2048, 1024, 2, 0);
	extent_map_sort(&extents);
	expect_cut(A, 0, 8192, 0, 0, 4096);
	expect_cut(A, 4096, 4096, 1, 4096, 4096);
}

Test(inspect_extent_map, an_empty_map_knows_nothing_and_an_empty_extent_is_refused)
{
	const struct extent empty = {.device = A}, beyond = {.device = A, .begin = UINT64_MAX - 10, .bytes = 100};

	extent_map_sort(&extents);
	expect_cut(A, 0, 4096, EXTENT_NO_FILE, 0, 4096);
	cr_expect_eq(extent_map_add(&extents, &empty), -EINVAL);
	cr_expect_eq(extent_map_add(&extents, &beyond), -EINVAL);
	cr_expect_eq(extents.count, 0);
}

Test(inspect_extent_map, many_extents_are_all_found)
{
	for (uint32_t i = 0; i < 5000; i++)
		add(i % 3 == 0 ? A : B, (uint64_t)(i * 7919 % 5000) * 8192, 4096, i, i);
	extent_map_sort(&extents);
	for (uint32_t i = 0; i < 5000; i++)
		expect_cut(i % 3 == 0 ? A : B, (uint64_t)(i * 7919 % 5000) * 8192 + 1, 100, i, i + 1, 100);
}

static void add_range(uint64_t begin, uint64_t bytes, uint32_t object)
{
	cr_assert_eq(range_map_add(&ranges, &(struct range){.begin = begin, .bytes = bytes, .object = object}), 0);
}

static void expect_range(uint64_t off, uint64_t bytes, enum range_kind kind, uint32_t object, uint64_t got)
{
	struct range_piece piece = range_map_cut(&ranges, off, bytes);

	cr_expect_eq(piece.kind, kind, "at %lu: kind %d, not %d", off, (int)piece.kind, (int)kind);
	cr_expect(kind != RANGE_EXPERT || piece.object == object, "at %lu: object %u, not %u", off, piece.object, object);
	cr_expect_eq(piece.bytes, got, "at %lu: %lu bytes, not %lu", off, piece.bytes, got);
}

Test(inspect_range_map, header_dense_weights_and_experts_are_told_apart_to_the_byte)
{
	ranges.header_bytes = 1000;
	add_range(3000, 500, 9); /* parts of one expert, the last first */
	add_range(2500, 500, 9);
	add_range(3500, 100, 4);
	range_map_sort(&ranges);
	cr_expect_eq(ranges.count, 2, "neighbours of one expert are one");
	expect_range(0, 4096, RANGE_HEADER, 0, 1000);
	expect_range(999, 1, RANGE_HEADER, 0, 1);
	expect_range(1000, 4096, RANGE_DENSE, 0, 1500);
	expect_range(2500, 4096, RANGE_EXPERT, 9, 1000);
	expect_range(2999, 2, RANGE_EXPERT, 9, 2);
	expect_range(3499, 100, RANGE_EXPERT, 9, 1);
	expect_range(3500, 100, RANGE_EXPERT, 4, 100);
	expect_range(3600, 4096, RANGE_DENSE, 0, 4096);
}

Test(inspect_range_map, a_shard_without_experts_is_dense)
{
	ranges.header_bytes = 16;
	range_map_sort(&ranges);
	expect_range(0, 100, RANGE_HEADER, 0, 16);
	expect_range(16, 100, RANGE_DENSE, 0, 100);
}

/* ---- what a file system says ---- */

static char bytes[3 << 20], again[sizeof bytes];

static void fill(const char *path)
{
	int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);

	for (size_t i = 0; i < sizeof bytes; i++)
		bytes[i] = (char)(i * 31 + i / 4096);
	cr_assert_eq(write(fd, bytes, sizeof bytes), (ssize_t)sizeof bytes);
	cr_assert_eq(fsync(fd), 0);
	(void)close(fd);
}

Test(inspect_file_extents, every_byte_of_a_file_has_a_place_or_the_reason_is_said)
{
	struct file_extents place;
	struct folder folder;
	struct stat status;
	uint64_t mapped = 0;
	char path[128];
	int r;

	folder_make(&folder);
	fill(folder_path(&folder, "shard", path, sizeof path));
	cr_assert_eq(stat(path, &status), 0);
	r = file_extents_add(&extents, path, 3, &place);
	folder_remove(&folder);
	if (r == -ENOTBLK || r == -EOPNOTSUPP)
		cr_skip_test("this file system does not say where its files lie");
	cr_assert_eq(r, 0);
	cr_expect_eq(place.inode, status.st_ino);
	cr_expect_eq(place.bytes, sizeof bytes);
	cr_expect_eq(place.device, (uint64_t)major(status.st_dev) << 20 | minor(status.st_dev));
	cr_expect_eq(file_extents_number(place.device), status.st_dev);
	for (uint32_t i = 0; i < extents.count; i++) {
		cr_expect_eq(extents.extent[i].file, 3);
		mapped += extents.extent[i].bytes;
	}
	cr_expect_geq(mapped + place.unmapped_bytes, sizeof bytes);
	extent_map_done(&extents);
}

Test(inspect_file_extents, on_the_device_the_files_own_bytes_lie_there)
{
	struct loop_disk disk;
	const char *reason = loop_disk_open(&disk, 64 << 20, 512, 4096);
	struct file_extents place;
	uint64_t seen = 0;

	if (reason != NULL)
		cr_skip_test("%s", reason);
	fill(LOOP_DISK_PATH "/shard");
	cr_assert_eq(file_extents_add(&extents, LOOP_DISK_PATH "/shard", 0, &place), 0);
	sync();
	for (uint32_t i = 0; i < extents.count; i++) {
		const struct extent *extent = &extents.extent[i];
		size_t count = extent->file_off + extent->bytes <= sizeof bytes ? extent->bytes : sizeof bytes - extent->file_off;

		cr_assert_eq(pread(disk.fd, again, count, (off_t)extent->begin), (ssize_t)count);
		cr_expect_arr_eq(again, bytes + extent->file_off, count);
		seen += count;
	}
	cr_expect_eq(seen, sizeof bytes);
	extent_map_done(&extents);
	loop_disk_close(&disk);
}

Test(inspect_file_extents, what_has_no_block_device_is_said)
{
	struct file_extents place;

	cr_expect_eq(file_extents_add(&extents, "/proc/self/status", 0, &place), -ENOTBLK);
	cr_expect_eq(file_extents_add(&extents, "/nonexistent", 0, &place), -ENOENT);
	cr_expect_eq(extents.count, 0);
}
