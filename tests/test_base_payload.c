/* SPDX-License-Identifier: Apache-2.0 */
/* Whether weights are what they were: any shard that is written makes another digest, whatever its headers say. */
#include "base/payload.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(base_payload, .timeout = 20);

#define SHARD_BYTES (1u << 20)

static char directory[64];

static void open_folder(void)
{
	(void)snprintf(directory, sizeof directory, "/tmp/cnre-test-payload-XXXXXX");
	cr_assert_not_null(mkdtemp(directory));
}

static void close_folder(void)
{
	char command[128];

	(void)snprintf(command, sizeof command, "rm -rf '%s'", directory);
	cr_assert_eq(system(command), 0);
}

static int open_shard(const char *name)
{
	char path[128];
	int fd;

	(void)snprintf(path, sizeof path, "%s/%s", directory, name);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	cr_assert_geq(fd, 0);
	return fd;
}

static void write_shard(const char *name, size_t bytes, int value)
{
	int fd = open_shard(name);
	char *memory = malloc(bytes + 1);

	memset(memory, value, bytes);
	cr_assert_eq(write(fd, memory, bytes), (ssize_t)bytes);
	cr_assert_eq(futimens(fd, (const struct timespec[2]){{.tv_sec = 1000}, {.tv_sec = 1000}}), 0);
	free(memory);
	(void)close(fd);
}

/* One byte, and the time as it was. */
static void change_byte(const char *name, off_t off)
{
	int fd = open_shard(name);

	cr_assert_eq(pwrite(fd, "!", 1, off), 1);
	cr_assert_eq(futimens(fd, (const struct timespec[2]){{.tv_sec = 1000}, {.tv_sec = 1000}}), 0);
	(void)close(fd);
}

static void take(unsigned char ret_digest[CNRE_DIGEST_BYTES])
{
	cr_assert_eq(cnre_payload_digest(directory, ret_digest), 0);
}

static int has_changed(unsigned char before[CNRE_DIGEST_BYTES])
{
	unsigned char now[CNRE_DIGEST_BYTES];
	int changed;

	take(now);
	changed = memcmp(before, now, sizeof now) != 0;
	memcpy(before, now, sizeof now);
	return changed;
}

Test(base_payload, the_same_shards_are_the_same, .init = open_folder, .fini = close_folder)
{
	unsigned char digest[CNRE_DIGEST_BYTES];

	write_shard("a.safetensors", SHARD_BYTES, 1);
	write_shard("b.safetensors", 5000, 2);
	write_shard("note.txt", 10, 3);
	take(digest);
	cr_expect_not(has_changed(digest));
	write_shard("note.txt", 20, 4);
	cr_expect_not(has_changed(digest), "what is no shard does not count");
}

Test(base_payload, any_write_size_name_or_time_makes_another, .init = open_folder, .fini = close_folder)
{
	unsigned char digest[CNRE_DIGEST_BYTES];
	char from[128], to[128];
	int fd;

	write_shard("a.safetensors", SHARD_BYTES, 1);
	write_shard("b.safetensors", 5000, 2);
	take(digest);
	fd = open_shard("b.safetensors");
	cr_assert_eq(pwrite(fd, "x", 1, 4500), 1);
	(void)close(fd);
	cr_expect(has_changed(digest), "written: the time has moved");
	change_byte("a.safetensors", 0);
	cr_expect(has_changed(digest), "first page");
	change_byte("a.safetensors", SHARD_BYTES - 1);
	cr_expect(has_changed(digest), "last page");
	write_shard("b.safetensors", 5001, 2);
	cr_expect(has_changed(digest), "size");
	(void)snprintf(from, sizeof from, "%s/b.safetensors", directory);
	(void)snprintf(to, sizeof to, "%s/c.safetensors", directory);
	cr_assert_eq(rename(from, to), 0);
	cr_expect(has_changed(digest), "name");
	write_shard("d.safetensors", 1, 0);
	cr_expect(has_changed(digest), "one shard more");
}

/* Other weights of the same shapes, with the old time set: nearly every page differs. */
Test(base_payload, other_weights_are_seen_although_their_time_was_set_back, .init = open_folder, .fini = close_folder)
{
	unsigned char digest[CNRE_DIGEST_BYTES];

	write_shard("a.safetensors", SHARD_BYTES, 1);
	take(digest);
	write_shard("a.safetensors", SHARD_BYTES, 2);
	cr_expect(has_changed(digest));
}

Test(base_payload, what_cannot_be_read_is_an_error_and_leaves_the_output, .init = open_folder, .fini = close_folder)
{
	unsigned char digest[CNRE_DIGEST_BYTES], before[CNRE_DIGEST_BYTES];
	char path[128];

	memset(digest, 7, sizeof digest);
	memset(before, 7, sizeof before);
	cr_expect_eq(cnre_payload_digest("/nonexistent", digest), -ENOENT);
	(void)snprintf(path, sizeof path, "%s/a.safetensors", directory);
	cr_assert_eq(mkfifo(path, 0600), 0);
	cr_expect_lt(cnre_payload_digest(directory, digest), 0);
	cr_expect_arr_eq(digest, before, sizeof digest);
}
