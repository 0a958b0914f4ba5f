/* SPDX-License-Identifier: Apache-2.0 */
/* engine/shard.c: whole files are read, anything else is refused with a reason. */
#include "engine/shard.h"

#include "cnre/cnre.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char directory[] = "/tmp/cnre-shard-XXXXXX";
static char message[ENGINE_MESSAGE_BYTES];

static void make_directory(void)
{
	cr_assert_not_null(mkdtemp(directory));
}

static void remove_directory(void)
{
	static const char *const names[] = {"a", "b"};
	char path[64];

	for (size_t i = 0; i < 2; i++) {
		snprintf(path, sizeof path, "%s/%s.safetensors", directory, names[i]);
		unlink(path);
	}
	rmdir(directory);
}

TestSuite(engine_shard, .init = make_directory, .fini = remove_directory, .timeout = 30);

static void write_length(const char *name, uint64_t length, const char *header, size_t payload_bytes)
{
	char path[64];
	FILE *file;

	snprintf(path, sizeof path, "%s/%s.safetensors", directory, name);
	file = fopen(path, "w");
	cr_assert_not_null(file);
	fwrite(&length, sizeof length, 1, file);
	fputs(header, file);
	for (size_t i = 0; i < payload_bytes; i++)
		putc((int)('0' + i), file);
	fclose(file);
}

static void write_shard(const char *name, const char *header, size_t payload_bytes)
{
	write_length(name, strlen(header), header, payload_bytes);
}

Test(engine_shard, tensors_are_found_and_read)
{
	struct shard_set set;
	const struct tensor *tensor;
	char bytes[4];

	write_shard("a",
		    "{\"__metadata__\":{\"x\":\"y\"},\"t\":{\"dtype\":\"I8\",\"shape\":[2,2],\"data_offsets\":[1,5]}}",
		    5);
	write_shard("b", "{\"u\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4);
	cr_assert_eq(shard_open(&set, directory, message), 0, "%s", message);
	tensor = shard_find(&set, "t");
	cr_assert_not_null(tensor);
	cr_expect_eq(tensor->dtype, CNRE_I8);
	cr_expect_eq(tensor->rank, 2);
	cr_expect_eq(shard_read(&set, tensor->shard, tensor->file_off, bytes, sizeof bytes), 0);
	cr_expect_arr_eq(bytes, "1234", 4);
	cr_expect_eq(shard_find(&set, "u")->shard, 1);
	cr_expect_null(shard_find(&set, "v"));
	cr_expect_eq(shard_read(&set, tensor->shard, tensor->file_off + 1, bytes, sizeof bytes), -ENODATA);
	shard_close(&set);
}

Test(engine_shard, types_without_use_are_left_out)
{
	struct shard_set set;

	write_shard("a",
		    "{\"t\":{\"dtype\":\"BOOL\",\"shape\":[1],\"data_offsets\":[0,1]},"
		    "\"u\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
		    1);
	cr_assert_eq(shard_open(&set, directory, message), 0, "%s", message);
	cr_expect_null(shard_find(&set, "t"));
	shard_close(&set);
}

Test(engine_shard, malformed_headers_are_ebadmsg_and_touch_nothing)
{
	static const char *const headers[] = {
		"",
		"[",
		"[]",
		"{}",
		"{\"t\":1}",
		"{\"t\":{}}",
		"{\"t\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[0,5]}}",
		"{\"t\":{\"dtype\":\"I8\",\"shape\":[9],\"data_offsets\":[0,9]}}",
		"{\"t\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[4,0]}}",
		"{\"t\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[-4,0]}}",
		"{\"t\":{\"dtype\":\"I8\",\"shape\":[-4],\"data_offsets\":[0,4]}}",
		"{\"t\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[0,4,8]}}",
		"{\"t\":{\"dtype\":\"I8\",\"shape\":[\"4\"],\"data_offsets\":[0,4]}}",
		"{\"t\":{\"dtype\":\"I8\",\"shape\":4,\"data_offsets\":[0,4]}}",
		"{\"t\":{\"dtype\":7,\"shape\":[4],\"data_offsets\":[0,4]}}",
		"{\"t\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296,4],\"data_offsets\":[0,0]}}",
		"{\"t\":{\"dtype\":\"I8\",\"shape\":[1,1,1,1,1,1,1,1,4],\"data_offsets\":[0,4]}}",
		"{\"t\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]},"
		"\"t\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
	};

	for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
		struct shard_set set = {.file_count = 42};

		write_shard("a", headers[i], 5);
		message[0] = '\0';
		cr_expect_eq(shard_open(&set, directory, message), -EBADMSG, "accepted: %s", headers[i]);
		cr_expect_neq(message[0], '\0', "no reason: %s", headers[i]);
		cr_expect_eq(set.file_count, 42);
	}
}

Test(engine_shard, header_lengths_beyond_the_file_are_ebadmsg)
{
	static const uint64_t lengths[] = {3, 4096, SHARD_HEADER_BYTES_MAX + 1ull, UINT64_MAX, UINT64_MAX - 7};

	for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
		struct shard_set set;

		write_length("a", lengths[i], "{}", 0);
		cr_expect_eq(shard_open(&set, directory, message), -EBADMSG, "length %llu",
			     (unsigned long long)lengths[i]);
	}
}

Test(engine_shard, one_name_in_two_shards_is_ebadmsg)
{
	struct shard_set set;

	write_shard("a", "{\"t\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1);
	write_shard("b", "{\"t\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1);
	cr_expect_eq(shard_open(&set, directory, message), -EBADMSG);
	cr_expect_not_null(strstr(message, "two shards"));
}

Test(engine_shard, a_directory_without_shards_is_enoent)
{
	struct shard_set set;

	cr_expect_eq(shard_open(&set, directory, message), -ENOENT);
	cr_expect_eq(shard_open(&set, "/nonexistent", message), -ENOENT);
}
