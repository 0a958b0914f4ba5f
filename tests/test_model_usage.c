/* SPDX-License-Identifier: Apache-2.0 */
/* `.coli_usage`: what Colibri's engines write is read and written back, and anything else changes nothing. */
#include "model/usage.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OLMOE 3841822045u

static struct usage opened(uint32_t layers, uint32_t experts, uint32_t engine)
{
	struct usage usage;

	cr_assert_eq(usage_open(&usage, layers, experts, engine), 0);
	return usage;
}

static int read_bytes(struct usage *usage, const char *text, size_t bytes)
{
	char message[256] = "";
	char *exact = malloc(bytes > 0 ? bytes : 1); /* on the heap: the sanitizer guards its end */
	int r;

	memcpy(exact, text, bytes);
	r = usage_read_text(usage, exact, bytes, message, sizeof message);
	cr_assert_eq(r < 0, message[0] != '\0', "%s", message);
	free(exact);
	return r;
}

static int read_text(struct usage *usage, const char *text)
{
	return read_bytes(usage, text, strlen(text));
}

static uint64_t total(const struct usage *usage)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < usage->layers * usage->experts; i++)
		sum += usage->count[i];
	return sum;
}

Test(model_usage, engines_have_the_numbers_that_colibri_writes)
{
	cr_assert_eq(usage_engine("glm_moe_dsa"), 3815245270u);
	cr_assert_eq(usage_engine("olmoe"), OLMOE);
}

/* ---- what engines write ---- */

static void expect_same_file(const char *name)
{
	static char file[1 << 16];
	const char *directory = getenv("CNRE_VECTORS");
	struct usage usage;
	char path[4096], *text;
	size_t bytes;
	ssize_t n;
	int fd;
	unsigned layers, experts;

	(void)snprintf(path, sizeof path, "%s/%s/coli_usage", directory != NULL ? directory : "../shared/vectors", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		cr_skip("no reference vectors at %s (set CNRE_VECTORS)", path);
	n = read(fd, file, sizeof file - 1);
	(void)close(fd);
	cr_assert_gt(n, 0);
	cr_assert_eq(sscanf(file, "-1 %u %u", &layers, &experts), 2);
	usage = opened(layers, experts, OLMOE);
	cr_assert_eq(read_bytes(&usage, file, (size_t)n), 0);
	cr_assert_gt(total(&usage), 1000);
	cr_assert_eq(usage_write_text(&usage, &text, &bytes), 0);
	cr_assert_eq(bytes, (size_t)n);
	cr_assert_eq(memcmp(text, file, bytes), 0);
	free(text);
	usage_close(&usage);
}

Test(model_usage, file_of_reference_vector_a_is_written_back_byte_for_byte)
{
	expect_same_file("olmoe-a");
}

Test(model_usage, file_of_reference_vector_b_is_written_back_byte_for_byte)
{
	expect_same_file("olmoe-b");
}

Test(model_usage, text_without_headers_is_taken)
{
	struct usage usage = opened(4, 16, OLMOE);

	cr_assert_eq(read_text(&usage, "3 15 7\n0 0 4294967295\n"), 0);
	cr_assert_eq(usage.count[3 * 16 + 15], 7);
	cr_assert_eq(usage.count[0], UINT32_MAX);
	usage_close(&usage);
}

Test(model_usage, empty_history_is_an_empty_file_both_ways)
{
	struct usage usage = opened(4, 16, OLMOE);
	char *text;
	size_t bytes = 1;

	cr_assert_eq(read_text(&usage, ""), 0);
	cr_assert_eq(usage_write_text(&usage, &text, &bytes), 0);
	cr_assert_eq(bytes, 0);
	free(text);
	usage_close(&usage);
}

Test(model_usage, history_of_any_engine_is_written_without_one)
{
	struct usage usage = opened(4, 16, 0);
	char *text;
	size_t bytes;

	cr_assert_eq(read_text(&usage, "-1 4 16\n-2 1 3841822045\n1 2 3\n"), 0);
	cr_assert_eq(usage_write_text(&usage, &text, &bytes), 0);
	cr_assert_str_eq(text, "-1 4 16\n1 2 3\n");
	free(text);
	usage_close(&usage);
}

Test(model_usage, histories_add_up_and_stay_at_the_top)
{
	struct usage usage = opened(4, 16, OLMOE);

	cr_assert_eq(read_text(&usage, "1 2 3\n1 2 4\n"), 0);
	cr_assert_eq(read_text(&usage, "1 2 10\n"), 0);
	cr_assert_eq(usage.count[18], 17);
	cr_assert_eq(read_text(&usage, "1 2 4294967295\n"), 0);
	cr_assert_eq(usage.count[18], UINT32_MAX);
	cr_assert_eq(read_text(&usage, "1 2 1\n"), 0);
	cr_assert_eq(usage.count[18], UINT32_MAX);
	usage_close(&usage);
}

Test(model_usage, line_ends_of_windows_blanks_and_a_missing_last_line_end_are_taken)
{
	struct usage usage = opened(4, 16, OLMOE);

	cr_assert_eq(read_text(&usage, "-1 4 16\r\n-2 1 3841822045\r\n1 2 3\r\n"), 0);
	cr_assert_eq(read_text(&usage, "  1\t2  3 \n"), 0);
	cr_assert_eq(read_text(&usage, "1 2 3"), 0);
	cr_assert_eq(usage.count[18], 9);
	usage_close(&usage);
}

Test(model_usage, headers_of_later_releases_are_passed_over_as_engines_do)
{
	struct usage usage = opened(4, 16, OLMOE);

	cr_assert_eq(read_text(&usage, "-1 4 16\n-2 1 3841822045\n-3 7 9\n1 2 3\n"), 0);
	cr_assert_eq(total(&usage), 3);
	cr_assert_eq(usage.writer, OLMOE);
	usage_close(&usage);
}

/* The engine says 78 layers and keeps rows 0 to 78: the last is of the layer that predicts further tokens. */
Test(model_usage, row_behind_the_last_layer_is_taken_where_the_model_has_it_and_passed_over_where_not)
{
	struct usage with = opened(5, 16, 0), without = opened(4, 16, 0);
	char *text;
	size_t bytes;

	with.own_layers = 4;
	cr_assert_eq(read_text(&with, "-1 4 16\n3 0 1\n4 2 3\n"), 0);
	cr_assert_eq(with.count[4 * 16 + 2], 3);
	cr_assert_eq(usage_write_text(&with, &text, &bytes), 0);
	cr_assert_str_eq(text, "-1 4 16\n3 0 1\n4 2 3\n");
	free(text);
	cr_assert_eq(read_text(&with, "-1 5 16\n3 0 1\n"), -ESTALE);
	cr_assert_eq(read_text(&without, "-1 4 16\n3 0 1\n4 2 3\n"), 0);
	cr_assert_eq(total(&without), 1);
	cr_assert_eq(read_text(&without, "-1 4 16\n5 2 3\n"), -EINVAL);
	usage_close(&with);
	usage_close(&without);
}

/* ---- Inkling's binary ---- */

enum { BINARY_WORDS = 3 + 4 * 16 };

static void fill_binary(uint32_t words[BINARY_WORDS])
{
	memset(words, 0, BINARY_WORDS * sizeof *words);
	words[0] = 0x31554B49u;
	words[1] = 4;
	words[2] = 16;
	words[3 + 2 * 16 + 5] = 9;
	words[3] = UINT32_MAX;
}

static int read_any(struct usage *usage, const void *data, size_t bytes)
{
	char message[256] = "", *exact = malloc(bytes > 0 ? bytes : 1);
	int r;

	memcpy(exact, data, bytes);
	r = usage_read(usage, exact, bytes, message, sizeof message);
	cr_assert_eq(r < 0, message[0] != '\0', "%s", message);
	free(exact);
	return r;
}

Test(model_usage, binary_history_of_inkling_is_read_and_written_back_as_text)
{
	struct usage usage = opened(4, 16, usage_engine("inkling"));
	uint32_t words[BINARY_WORDS];
	char *text, expected[128];
	size_t bytes;

	fill_binary(words);
	cr_assert_eq(read_any(&usage, words, sizeof words), 0);
	cr_assert_eq(usage.count[2 * 16 + 5], 9);
	cr_assert_eq(read_any(&usage, words, sizeof words), 0);
	cr_assert_eq(usage.count[2 * 16 + 5], 18);
	cr_assert_eq(usage.count[0], UINT32_MAX);
	cr_assert_eq(usage_write_text(&usage, &text, &bytes), 0);
	(void)snprintf(expected, sizeof expected, "-1 4 16\n-2 1 %u\n0 0 4294967295\n2 5 18\n", usage_engine("inkling"));
	cr_assert_str_eq(text, expected);
	free(text);
	usage_close(&usage);
}

Test(model_usage, binary_history_is_refused_for_another_engine_unless_any_is_taken)
{
	struct usage other = opened(4, 16, OLMOE), any = opened(4, 16, 0);
	uint32_t words[BINARY_WORDS];

	fill_binary(words);
	cr_assert_eq(read_any(&other, words, sizeof words), -EXDEV);
	cr_assert_eq(total(&other), 0);
	cr_assert_eq(read_any(&any, words, sizeof words), 0);
	cr_assert_eq(any.writer, usage_engine("inkling"));
	usage_close(&other);
	usage_close(&any);
}

Test(model_usage, binary_history_of_other_dimensions_or_length_adds_nothing)
{
	struct usage usage = opened(4, 16, 0);
	uint32_t words[BINARY_WORDS + 1] = {0};

	fill_binary(words);
	cr_assert_eq(read_any(&usage, words, sizeof words), -EINVAL);
	for (size_t bytes = 4; bytes < BINARY_WORDS * sizeof *words; bytes++)
		cr_assert_eq(read_any(&usage, words, bytes), -EINVAL, "%zu bytes", bytes);
	words[1] = 5;
	cr_assert_eq(read_any(&usage, words, BINARY_WORDS * sizeof *words), -ESTALE);
	words[1] = 4;
	words[2] = UINT32_MAX;
	cr_assert_eq(read_any(&usage, words, BINARY_WORDS * sizeof *words), -ESTALE);
	cr_assert_eq(total(&usage), 0);
	usage_close(&usage);
}

/* ---- what is refused ---- */

static void expect_refused(int error, const char *text, size_t bytes, const char *what)
{
	struct usage usage = opened(4, 16, OLMOE);

	usage.count[0] = 5;
	cr_assert_eq(read_bytes(&usage, text, bytes), error, "%s", what);
	cr_assert_eq(total(&usage), 5, "%s", what);
	usage_close(&usage);
}

Test(model_usage, other_dimensions_are_estale_and_another_engine_is_exdev)
{
#define REFUSED(error, text) expect_refused(error, text, sizeof text - 1, text)
	REFUSED(-ESTALE, "0 0 1\n-1 5 16\n");
	REFUSED(-ESTALE, "-1 4 17\n0 0 1\n");
	REFUSED(-ESTALE, "-1 0 0\n");
	REFUSED(-EXDEV, "-1 4 16\n-2 1 3815245270\n0 0 1\n");
	REFUSED(-EXDEV, "-2 1 0\n0 0 1\n");
}

Test(model_usage, what_is_not_three_integers_in_range_is_einval_and_adds_nothing)
{
	REFUSED(-EINVAL, "0 0 1\n0 0\n");
	REFUSED(-EINVAL, "0 0 1\n0 0 ");
	REFUSED(-EINVAL, "0 0 1\n0 0\n1\n");
	REFUSED(-EINVAL, "0 0 1\n0 0 1 1\n");
	REFUSED(-EINVAL, "0 0 1\n\n");
	REFUSED(-EINVAL, "0 0 1\n0 0 1\r");
	REFUSED(-EINVAL, "0 0 1\n0 0 1\r0 0 1\n");
	REFUSED(-EINVAL, "0 0 1\n0 0 1\0\n");
	REFUSED(-EINVAL, "\0");
	REFUSED(-EINVAL, "0 0 1\n0 \0 1\n");
	REFUSED(-EINVAL, "0 0 1\n0 0 1.5\n");
	REFUSED(-EINVAL, "0 0 1\n0 0 +1\n");
	REFUSED(-EINVAL, "0 0 1\n0 0 0x1\n");
	REFUSED(-EINVAL, "0 0 1\n0 0 -\n");
	REFUSED(-EINVAL, "0 0 1\n0 0 -1\n");
	REFUSED(-EINVAL, "0 0 1\n0 -1 1\n");
	REFUSED(-EINVAL, "0 0 1\n5 0 1\n");
	REFUSED(-EINVAL, "0 0 1\n0 16 1\n");
	REFUSED(-EINVAL, "0 0 1\n0 0 4294967296\n");
	REFUSED(-EINVAL, "0 0 1\n0 0 18446744073709551617\n");
	REFUSED(-EINVAL, "0 0 1\n0 0 99999999999999999999999999999999999999999999\n");
	REFUSED(-EINVAL, "0 0 1\n4294967297 0 1\n");
	REFUSED(-EINVAL, "0 0 1\n-1 -4 16\n");
	REFUSED(-EINVAL, "0 0 1\n-2 2 3841822045\n");
	REFUSED(-EINVAL, "0 0 1\n-3 -1 1\n");
	REFUSED(-EINVAL, "1K\x55I\x04");
}

Test(model_usage, message_names_the_line_and_the_reason)
{
	struct usage usage = opened(4, 16, OLMOE);
	char message[128];

	cr_assert_eq(usage_read_text(&usage, "-1 4 16\n0 0 1\n9 0 1\n", 20, message, sizeof message), -EINVAL);
	cr_assert_str_eq(message, "line 3: layer 9 of 4");
	cr_assert_eq(usage_read_text(&usage, "", USAGE_BYTES_MAX + 1ul, message, sizeof message), -EINVAL);
	cr_assert_str_eq(message, "67108865 bytes, 67108864 at most");
	usage_close(&usage);
}
