/* SPDX-License-Identifier: Apache-2.0 */
/* The safetensors reader against headers that are legal, unusual, broken and hostile. */
#include "model/safetensors.h"
#include "tests/support/folder.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define HEADER_MAX (1ull << 30)

TestSuite(model_safetensors, .timeout = 120);

static char message[SAFETENSORS_MESSAGE_BYTES];

static int parse(struct safetensors **ret_file, const char *header, uint64_t data_bytes)
{
	char *text = strdup(header);

	cr_assert_not_null(text);
	message[0] = '\0';
	return safetensors_parse(ret_file, text, strlen(header), data_bytes, "s.safetensors", message);
}

static struct safetensors *parsed(const char *header, uint64_t data_bytes)
{
	struct safetensors *file = NULL;

	cr_assert_eq(parse(&file, header, data_bytes), 0, "%s", message);
	return file;
}

/* part: text that must be in the message. */
static void expect_refused(const char *header, uint64_t data_bytes, int error, const char *part)
{
	struct safetensors *file = (struct safetensors *)&file, *before = file;

	cr_expect_eq(parse(&file, header, data_bytes), error, "%s: %s", header, message);
	cr_expect_eq(file, before, "output touched");
	cr_expect(strstr(message, part) != NULL, "no \"%s\" in: %s", part, message);
	cr_expect(strstr(message, "s.safetensors") != NULL, "the file is not named: %s", message);
}

#define ONE(dtype, shape, range) "{\"a\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" range "}}"

Test(model_safetensors, tensors_come_in_order_of_their_bytes)
{
	struct safetensors *file = parsed("{\"b\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[4,28]},"
					  "\"a\":{\"shape\":[4],\"data_offsets\":[0,4],\"dtype\":\"I8\"}}  ",
					  28);

	cr_assert_eq(file->tensor_count, 2);
	cr_expect_str_eq(safetensors_name(file, &file->tensor[0]), "a");
	cr_expect_eq(file->tensor[0].dtype, MODEL_I8);
	cr_expect_str_eq(safetensors_name(file, &file->tensor[1]), "b");
	cr_expect_eq(file->tensor[1].rank, 2);
	cr_expect_eq(safetensors_dimensions(file, &file->tensor[1])[1], 3);
	cr_expect_eq(file->tensor[1].end, 28);
	(void)safetensors_close(file);
}

Test(model_safetensors, empty_tensors_scalars_and_empty_metadata_are_legal)
{
	struct safetensors *file =
		parsed("{\"__metadata__\":{},\"z\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[4,4]},"
		       "\"y\":{\"dtype\":\"F32\",\"shape\":[3,0,2],\"data_offsets\":[0,0]},"
		       "\"x\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}",
		       4);

	cr_expect_eq(file->tensor_count, 3);
	(void)safetensors_close(file);
	file = parsed("{}", 0);
	cr_expect_eq(file->tensor_count, 0);
	(void)safetensors_close(file);
	(void)safetensors_close(parsed("{\"__metadata__\":{\"format\":\"pt\",\"k\":\"\"}}", 0));
	expect_refused(ONE("F32", "[1]", "[0,0]"), 0, -EBADMSG, "needs 4 bytes");
}

Test(model_safetensors, duplicate_names_are_refused_after_unescaping)
{
#define A_THEN(name, range)                                                      \
	"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"" name \
	"\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":" range "}}"
	expect_refused(A_THEN("a", "[2,4]"), 4, -EBADMSG, "duplicate");
	expect_refused(A_THEN("\\u0061", "[2,4]"), 4, -EBADMSG, "duplicate");
	expect_refused(A_THEN("a", "[0,2]"), 2, -EBADMSG, "inside another");
	(void)safetensors_close(parsed(A_THEN("A", "[2,4]"), 4));
	expect_refused("{\"__metadata__\":{},\"__metadata__\":{}}", 0, -EBADMSG, "twice");
	expect_refused("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0, -EBADMSG,
		       "twice");
}

Test(model_safetensors, shape_and_range_must_agree_without_overflow)
{
	expect_refused(ONE("F32", "[1000,1000]", "[0,4]"), 4, -EBADMSG, "4000000 bytes");
	expect_refused(ONE("F32", "[4294967296,4294967296]", "[0,0]"), 0, -EBADMSG, "2^64");
	expect_refused(ONE("U8", "[9223372036854775808,2]", "[0,0]"), 0, -EBADMSG, "2^64");
	expect_refused(ONE("F64", "[2305843009213693952]", "[0,0]"), 0, -EBADMSG, "2^64");
	expect_refused(ONE("U8", "[18446744073709551616]", "[0,0]"), 0, -EBADMSG, "dimension");
	expect_refused(ONE("U8", "[4]", "[4,0]"), 4, -EBADMSG, "ends before");
	expect_refused(ONE("F4", "[3]", "[0,2]"), 2, -EBADMSG, "whole bytes");
	expect_refused(ONE("F6_E2M3", "[2]", "[0,2]"), 2, -EBADMSG, "whole bytes");
	(void)safetensors_close(parsed(ONE("F4", "[4]", "[0,2]"), 2));
	expect_refused(ONE("Q4", "[4]", "[0,4]"), 4, -EBADMSG, "dtype Q4");
	expect_refused(ONE("U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]"), 1, -E2BIG, "8 dimensions");
}

Test(model_safetensors, ranges_must_tile_the_data_exactly)
{
#define TWO(first, second)                                                    \
	"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" first "}," \
	"\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" second "}}"
	expect_refused(TWO("[0,4]", "[5,9]"), 9, -EBADMSG, "hole");
	expect_refused(TWO("[0,4]", "[3,7]"), 7, -EBADMSG, "inside another");
	expect_refused(TWO("[4,8]", "[8,12]"), 12, -EBADMSG, "hole");
	expect_refused(TWO("[0,4]", "[4,8]"), 9, -EBADMSG, "1 bytes after");
	expect_refused("{}", 1, -EBADMSG, "1 bytes after");
	(void)safetensors_close(parsed(TWO("[4,8]", "[0,4]"), 8));
}

/* The message tells by how much, whichever tensor it is that lacks bytes. */
Test(model_safetensors, a_truncated_file_is_refused_with_the_missing_bytes)
{
	expect_refused(TWO("[0,4]", "[4,8]"), 7, -EBADMSG, "1 bytes missing");
	expect_refused(TWO("[0,4]", "[4,8]"), 1, -EBADMSG, "7 bytes missing");
	expect_refused(TWO("[0,4]", "[4,8]"), 0, -EBADMSG, "8 bytes missing");
}

Test(model_safetensors, what_is_not_a_header_is_refused)
{
	static const char *const bad[] = {
		"",
		" ",
		"[]",
		"null",
		"{",
		"{}x",
		"{},",
		"{\"a\"}",
		"{\"a\":1}",
		"{\"a\":{}}",
		"{\"a\":[]}",
		"{,}",
		ONE("U8", "[1]", "[0,1]") "{}",
		ONE("U8", "[1,]", "[0,1]"),
		ONE("U8", "[01]", "[0,1]"),
		ONE("U8", "[-1]", "[0,1]"),
		ONE("U8", "[1.0]", "[0,1]"),
		ONE("U8", "[1e0]", "[0,1]"),
		ONE("U8", "[ ]", "[0]"),
		ONE("U8", "[1]", "[0,1,2]"),
		ONE("U8", "1", "[0,1]"),
		"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":1}}",
		"{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}",
		"{\"__metadata__\":{\"a\":1}}",
		"{\"__metadata__\":[]}",
		"{\"a\\x\":{}}",
		"{\"a\\u00\":{}}",
		"{\"a\\u0000b\":{}}",
		"{\"\\ud800\":{}}",
		"{\"\\udc00\\ud800\":{}}",
		"{\"a\nb\":{}}",
		"{\"\xff\":{}}",
		"{\"\xc0\xaf\":{}}",
		"{\"\xed\xa0\x80\":{}}",
		"{\"\xf4\x90\x80\x80\":{}}",
		"{\"\xe2\x82",
	};

	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		struct safetensors *file = NULL;

		cr_expect_eq(parse(&file, bad[i], 1), -EBADMSG, "accepted: %s", bad[i]);
		cr_expect_null(file);
		cr_expect_neq(message[0], '\0', "no message for %s", bad[i]);
	}
}

Test(model_safetensors, a_nul_byte_is_neither_padding_nor_part_of_a_name)
{
	struct safetensors *file = NULL;
	char *text = malloc(4);

	cr_assert_not_null(text);
	memcpy(text, "{}\0", 4);
	cr_expect_eq(safetensors_parse(&file, text, 3, 0, "s.safetensors", message), -EBADMSG);
	cr_expect_null(file);
}

Test(model_safetensors, names_are_unescaped_in_place)
{
	struct safetensors *file =
		parsed("{\"\\\"\\\\\\/\\b\\u00e9\\ud83d\\ude00\xc3\xa9\":{\"dtype\":\"U8\",\"shape\":[0],"
		       "\"data_offsets\":[0,0]}}",
		       0);

	cr_expect_str_eq(safetensors_name(file, &file->tensor[0]), "\"\\/\b\xc3\xa9\xf0\x9f\x98\x80\xc3\xa9");
	(void)safetensors_close(file);
}

Test(model_safetensors, names_in_messages_cannot_forge_lines)
{
	expect_refused("{\"\\n\\u001b[31m\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,0]}}", 0, -EBADMSG,
		       "??[31m");
}

/* ---- files ---- */

static int open_in(const struct folder *folder, const char *name, uint64_t header_max)
{
	struct safetensors *file = NULL;
	int fd = open(folder->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), result;

	message[0] = '\0';
	result = safetensors_open(&file, fd, name, header_max, message);
	(void)close(fd);
	if (result == 0)
		(void)safetensors_close(file);
	else
		cr_expect_null(file);
	return result;
}

Test(model_safetensors, header_lengths_are_checked_before_memory_is_asked_for)
{
	static const struct {
		unsigned char length[8];
		const char *part;
	} cases[] = {
		{{0, 0, 0, 0, 0, 0, 0, 0x80}, "9223372036854775808"}, /* 2^63 */
		{{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, "18446744073709551615"},
		{{10, 0}, "10 bytes"}, /* the file's own size */
		{{3, 0}, "3 bytes"},   /* one more than there is */
		{{0, 0}, "expected '{'"},
	};
	struct folder folder;
	unsigned char bytes[10] = {0};

	folder_make(&folder);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		memcpy(bytes, cases[i].length, 8);
		folder_write(&folder, "s.safetensors", bytes, sizeof bytes);
		cr_expect_eq(open_in(&folder, "s.safetensors", HEADER_MAX), -EBADMSG);
		cr_expect(strstr(message, cases[i].part) != NULL, "no \"%s\" in: %s", cases[i].part, message);
	}
	folder_write(&folder, "s.safetensors", bytes, 7);
	cr_expect_eq(open_in(&folder, "s.safetensors", HEADER_MAX), -EBADMSG);
	folder_write_shard(&folder, "s.safetensors", "{}                  ", 0);
	cr_expect_eq(open_in(&folder, "s.safetensors", 19), -E2BIG);
	cr_expect(strstr(message, "the bound of 19") != NULL, "%s", message);
	cr_expect_eq(open_in(&folder, "s.safetensors", 20), 0, "%s", message);
	folder_remove(&folder);
}

Test(model_safetensors, only_regular_files_are_opened)
{
	struct folder folder;
	char path[256];

	folder_make(&folder);
	cr_assert_eq(mkfifo(folder_path(&folder, "fifo.safetensors", path, sizeof path), 0600), 0);
	cr_expect_eq(open_in(&folder, "fifo.safetensors", HEADER_MAX), -EINVAL);
	cr_expect_eq(open_in(&folder, "absent.safetensors", HEADER_MAX), -ENOENT);
	folder_remove(&folder);
}

/* A shard of more than 2 GiB, as a hole. */
Test(model_safetensors, offsets_beyond_four_gibibytes_are_kept)
{
	struct folder folder;

	folder_make(&folder);
	folder_write_shard(&folder, "s.safetensors", ONE("BF16", "[2684354560]", "[0,5368709120]"), 5368709120ull);
	cr_expect_eq(open_in(&folder, "s.safetensors", HEADER_MAX), 0, "%s", message);
	folder_write_shard(&folder, "s.safetensors", ONE("BF16", "[2684354560]", "[0,5368709120]"), 5368709119ull);
	cr_expect_eq(open_in(&folder, "s.safetensors", HEADER_MAX), -EBADMSG);
	cr_expect(strstr(message, "1 bytes missing") != NULL, "%s", message);
	folder_remove(&folder);
}

/* ---- size ---- */

#define MANY 1290000u
#define MANY_HEADER 132095296u

/*
 * Goal: the header of a real 7 GB file with 1.29 million tensors is accepted in linear time.
 * Method: the same length and count, names in an order that is neither sorted nor hashed alike.
 */
Test(model_safetensors, a_header_of_132_megabytes_is_read_in_seconds)
{
	struct safetensors *file = NULL;
	char *text = malloc(MANY_HEADER + 1);
	struct timespec start, end;
	size_t used = 1;
	uint32_t i;

	cr_assert_not_null(text);
	text[0] = '{';
	for (i = 0; i < MANY; i++)
		used += (size_t)snprintf(
			text + used, MANY_HEADER - used,
			"%s\"model.layers.%07u.w\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[%u,%u]}",
			i == 0 ? "" : ",", (uint32_t)(i * 7919ull % MANY), 2 * i, 2 * i + 2);
	text[used++] = '}';
	cr_assert_leq(used, MANY_HEADER);
	memset(text + used, ' ', MANY_HEADER - used);
	(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &start);
	cr_assert_eq(safetensors_parse(&file, text, MANY_HEADER, 2ull * MANY, "s.safetensors", message), 0, "%s",
		     message);
	(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
	cr_expect_eq(file->tensor_count, MANY);
	cr_expect_leq(end.tv_sec - start.tv_sec, 30, "quadratic"); /* 1 to 2 s; sanitizers take longer */
	(void)safetensors_close(file);
}
