/* SPDX-License-Identifier: Apache-2.0 */
/* kvstore/coli_kv.c: every row of a saved conversation arrives where it belongs, and what is torn or foreign is told. */
#include "kvstore/coli_kv.h"

#include "tests/support/coli_file.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

TestSuite(kvstore_coli_kv, .timeout = 60);

static char message[COLI_KV_MESSAGE_BYTES];
static const unsigned char model[KV_KEY_BYTES] = {3, 1, 4};
static const struct coli_file small = {.layers = 3,
				       .kv_lora = 5,
				       .qk_rope = 2,
				       .index_dim = 4,
				       .index_layers = 2,
				       .vocabulary = 50,
				       .promised = 20,
				       .present = 20};

static int memory_file(void)
{
	int fd = memfd_create("coli", MFD_CLOEXEC);

	cr_assert_geq(fd, 0);
	return fd;
}

static int written(const struct coli_file *made)
{
	int fd = memory_file();

	cr_assert_eq(coli_file_write(made, fd), 0);
	return fd;
}

static struct kv_identity identity(uint32_t block_tokens)
{
	return (struct kv_identity){
		.model = model, .position = "rope", .representation = "f32", .block_tokens = block_tokens};
}

static struct coli_kv opened(int fd)
{
	struct coli_kv file = {.fd = -1};

	cr_assert_eq(coli_kv_open(&file, fd, message), 0, "%s", message);
	return file;
}

/* ---- header ---- */

Test(kvstore_coli_kv, dimensions_are_read)
{
	int fd = written(&small);
	struct coli_kv file = opened(fd);

	cr_expect_eq(file.layers, 3);
	cr_expect_eq(file.row_floats, 7);
	cr_expect_eq(file.index_layers, 2);
	cr_expect_eq(file.index_floats, 4);
	cr_expect_eq(file.vocabulary, 50);
	cr_expect_eq(file.record_bytes, 4 + 3 * 7 * 4 + 2 * 4 * 4);
	cr_expect_eq(file.record_bytes, coli_file_record_bytes(&small));
	cr_expect_eq(file.records, 20);
	cr_expect_eq(coli_kv_dropped(&file), 0);
	close(fd);
}

/* A crash between the records and their count, in either order, and a count that was lowered. */
Test(kvstore_coli_kv, only_what_header_and_file_both_vouch_for_is_taken)
{
	static const struct {
		int32_t promised;
		uint32_t present, torn_bytes, records, dropped;
	} cases[] = {
		{20, 20, 0, 20, 0}, {20, 19, 0, 19, 1}, {20, 19, 50, 19, 1},
		{20, 22, 0, 20, 2}, {20, 22, 1, 20, 3}, {20, 0, 0, 0, 20},
		{0, 5, 0, 0, 5},    {0, 0, 0, 0, 0},    {1 << 30, 3, 9, 3, (1 << 30) - 3},
	};

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct coli_file made = small;
		struct coli_kv file;
		int fd;

		made.promised = cases[i].promised;
		made.present = cases[i].present;
		made.torn_bytes = cases[i].torn_bytes;
		fd = written(&made);
		file = opened(fd);
		cr_expect_eq(file.records, cases[i].records, "case %zu", i);
		cr_expect_eq(coli_kv_dropped(&file), cases[i].dropped, "case %zu", i);
		cr_expect_eq(file.torn_bytes, cases[i].torn_bytes, "case %zu", i);
		close(fd);
	}
}

static int open_with_magic(const char *magic)
{
	int fd = written(&small), r;
	struct coli_kv file = {.fd = 42};

	cr_assert_eq(pwrite(fd, magic, 8, 0), 8);
	r = coli_kv_open(&file, fd, message);
	cr_expect_eq(r < 0 ? file.fd : 42, 42, "the output is untouched on failure");
	close(fd);
	return r;
}

Test(kvstore_coli_kv, other_formats_are_refused_by_name)
{
	cr_expect_eq(open_with_magic("COLIKV1"), 0);
	cr_expect_eq(open_with_magic("COLIKV2"), -ENOTSUP);
	cr_expect_not_null(strstr(message, "fp8"), "%s", message);
	cr_expect_eq(open_with_magic("COLIKV3"), -ENOTSUP);
	cr_expect_not_null(strstr(message, "int4"), "%s", message);
	cr_expect_eq(open_with_magic("COLIKV9"), -ENOTSUP);
	cr_expect_eq(open_with_magic("COLIDV41"), -ENOTSUP);
	cr_expect_not_null(strstr(message, "DeepSeek V4"), "%s", message);
	cr_expect_eq(open_with_magic("GGUF\3\0\0"), -EBADMSG);
	cr_expect_eq(open_with_magic("\0\0\0\0\0\0\0"), -EBADMSG);
}

Test(kvstore_coli_kv, hostile_dimensions_are_refused)
{
	static const struct {
		int place;
		int32_t value;
	} cases[] = {
		{0, 0},         {0, -1},        {0, COLI_KV_LAYERS_MAX + 1},
		{0, INT32_MAX}, {1, -1},        {1, INT32_MAX},
		{2, INT32_MIN}, {3, -1},        {3, INT32_MAX},
		{4, -1},        {4, INT32_MAX}, {5, 0},
		{5, -1},        {6, -1},        {6, INT32_MIN},
		{7, 1},
	};

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct coli_kv file;
		int fd = written(&small);

		cr_assert_eq(pwrite(fd, &cases[i].value, 4, 8 + 4 * cases[i].place), 4);
		cr_expect_eq(coli_kv_open(&file, fd, message), -EBADMSG, "case %zu", i);
		close(fd);
	}
}

/* Each number is allowed, what they make together is not. */
Test(kvstore_coli_kv, a_record_that_is_too_large_is_refused)
{
	static const int32_t many[] = {COLI_KV_LAYERS_MAX, COLI_KV_ROW_FLOATS_MAX}, none[] = {0, 0};
	struct coli_kv file;
	int fd = written(&small);

	cr_assert_eq(pwrite(fd, many, sizeof many, 8), (ssize_t)sizeof many);
	cr_expect_eq(coli_kv_open(&file, fd, message), -EBADMSG);
	close(fd);
	fd = written(&small);
	cr_assert_eq(pwrite(fd, none, sizeof none, 8 + 4), (ssize_t)sizeof none);
	cr_expect_eq(coli_kv_open(&file, fd, message), -EBADMSG, "rows of nothing");
	close(fd);
}

Test(kvstore_coli_kv, a_cut_header_and_what_is_no_file_are_refused)
{
	struct coli_kv file;
	int ends[2], fd = written(&small);

	for (off_t length = COLI_FILE_HEADER_BYTES - 1; length >= 0; length -= 3) {
		cr_assert_eq(ftruncate(fd, length), 0);
		cr_expect_eq(coli_kv_open(&file, fd, message), -EBADMSG, "%lld bytes", (long long)length);
	}
	close(fd);
	cr_assert_eq(pipe(ends), 0);
	cr_expect_eq(coli_kv_open(&file, ends[0], message), -EINVAL);
	close(ends[0]);
	close(ends[1]);
}

/* ---- conversion ---- */

/* The rows of one kind in a block's payload; how many floats. */
static uint32_t expect_rows(const struct kv_block *block, const float *value, int is_index, uint32_t layers,
			    uint32_t columns)
{
	uint32_t at = 0;

	for (uint32_t layer = 0; layer < layers; layer++)
		for (uint32_t i = 0; i < block->token_count; i++)
			for (uint32_t column = 0; column < columns; column++, at++)
				cr_expect_eq(value[at],
					     coli_file_value((uint32_t)block->position + i, is_index, layer, column),
					     "token %u, %s layer %u, column %u", (uint32_t)block->position + i,
					     is_index ? "index" : "KV", layer, column);
	return at;
}

static void expect_block(const struct coli_file *made, const struct kv_block *block, const float *value)
{
	uint32_t rows = expect_rows(block, value, 0, (uint32_t)made->layers, (uint32_t)(made->kv_lora + made->qk_rope));
	uint32_t floats =
		rows + expect_rows(block, value + rows, 1, (uint32_t)made->index_layers, (uint32_t)made->index_dim);

	cr_expect_eq(block->bytes, floats * sizeof *value);
	for (uint32_t i = 0; i < block->token_count; i++)
		cr_expect_eq(block->token[i], coli_file_token((uint32_t)block->position + i));
}

/* Converts, and looks at every row of what came out. */
static void expect_round_trip(const struct coli_file *made, uint32_t block_tokens, uint32_t records)
{
	struct kv_identity stated = identity(block_tokens);
	int in = written(made), out = memory_file();
	struct coli_kv file = opened(in);
	struct kv_prefix_summary summary;
	struct kv_prefix_reader reader;
	unsigned char root[KV_KEY_BYTES];
	struct kv_block block;
	float *payload;
	uint32_t tokens = 0;

	cr_assert_eq(coli_kv_convert(&file, &stated, out, &summary, message), 0, "%s", message);
	cr_expect_eq(summary.tokens, records);
	cr_expect_eq(summary.blocks, (records + block_tokens - 1) / block_tokens);
	cr_assert_eq(kv_key_root(&stated, root), 0);
	cr_expect_eq(memcmp(root, summary.root, sizeof root), 0);
	cr_assert_eq(kv_prefix_open(&reader, out, message), 0, "%s", message);
	payload = malloc(reader.summary.payload_bytes_max);
	while (kv_prefix_next(&reader, &block, message) == 1) {
		cr_assert_eq(kv_prefix_read_payload(&reader, payload, message), 0, "%s", message);
		expect_block(made, &block, payload);
		tokens += block.token_count;
	}
	cr_expect_eq(tokens, records);
	free(payload);
	close(in);
	close(out);
}

Test(kvstore_coli_kv, every_row_arrives_layer_major)
{
	expect_round_trip(&small, 8, 20);
	expect_round_trip(&small, 64, 20);
	expect_round_trip(&small, 20, 20);
	expect_round_trip(&small, 1, 20);
	expect_round_trip(&small, KV_BLOCK_TOKENS_MAX, 20);
}

Test(kvstore_coli_kv, every_row_arrives_of_a_model_without_index)
{
	struct coli_file made = small;

	made.index_dim = 0;
	made.index_layers = 0;
	expect_round_trip(&made, 8, 20);
}

Test(kvstore_coli_kv, of_a_torn_file_the_whole_records_arrive)
{
	struct coli_file made = small;

	made.promised = 20;
	made.present = 17;
	made.torn_bytes = 30;
	expect_round_trip(&made, 8, 17);
	made.promised = 9;
	expect_round_trip(&made, 8, 9);
}

Test(kvstore_coli_kv, blocks_are_those_that_the_same_tokens_have_anywhere)
{
	struct kv_identity stated = identity(8);
	int in = written(&small), out = memory_file();
	struct coli_kv file = opened(in);
	struct kv_media_mark mark = {.first = 8};
	unsigned char parent[KV_KEY_BYTES];
	struct kv_prefix_reader reader;
	struct kv_block block;
	int32_t token[8];

	cr_assert_eq(coli_kv_convert(&file, &stated, out, NULL, message), 0);
	cr_assert_eq(kv_prefix_open(&reader, out, message), 0);
	cr_assert_eq(kv_prefix_next(&reader, &block, message), 1);
	for (uint32_t i = 0; i < 8; i++)
		token[i] = coli_file_token(i);
	cr_assert_eq(kv_key_root(&stated, parent), 0);
	cr_assert_eq(kv_key_block(parent, token, 8, &mark, parent), 0);
	cr_expect_eq(memcmp(parent, block.key, sizeof parent), 0);
	close(in);
	close(out);
}

Test(kvstore_coli_kv, what_cannot_be_converted_is_told_and_leaves_no_prefix)
{
	struct kv_identity stated = identity(8), none = identity(0), cut = identity(8);
	int in = written(&small), out = memory_file(), full = memory_file();
	struct kv_prefix_summary summary = {.blocks = 42};
	struct coli_kv file = opened(in), empty = file, large = file;
	struct kv_prefix_reader reader;

	cut.flags = 1;
	empty.records = 0;
	large.record_bytes = COLI_KV_RECORD_BYTES_MAX;
	stated.block_tokens = 64;
	cr_expect_eq(coli_kv_convert(&large, &stated, out, &summary, message), -EINVAL);
	cr_expect_not_null(strstr(message, "fewer tokens"), "%s", message);
	stated.block_tokens = 8;
	cr_expect_eq(coli_kv_convert(&file, &none, out, &summary, message), -EINVAL);
	cr_expect_eq(coli_kv_convert(&file, &cut, out, &summary, message), -EINVAL);
	cr_expect_eq(coli_kv_convert(&empty, &stated, out, &summary, message), -ENODATA);
	cr_assert_eq(write(full, "x", 1), 1);
	cr_expect_eq(coli_kv_convert(&file, &stated, full, &summary, message), -EINVAL, "a file with something in it");
	cr_assert_eq(ftruncate(in, 500), 0);
	cr_expect_eq(coli_kv_convert(&file, &stated, out, &summary, message), -EBADMSG, "shorter than it was");
	cr_expect_eq(kv_prefix_open(&reader, out, message), -EBADMSG);
	cr_expect_eq(summary.blocks, 42);
	close(in);
	close(out);
	close(full);
}

Test(kvstore_coli_kv, a_token_beyond_the_vocabulary_is_damage)
{
	static const int32_t bad[] = {50, -1, INT32_MAX};

	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		struct kv_identity stated = identity(8);
		int in = written(&small), out = memory_file();
		struct coli_kv file = opened(in);

		cr_assert_eq(pwrite(in, &bad[i], 4, (off_t)(COLI_FILE_HEADER_BYTES + 13 * file.record_bytes)), 4);
		cr_expect_eq(coli_kv_convert(&file, &stated, out, NULL, message), -EBADMSG, "case %zu", i);
		cr_expect_not_null(strstr(message, "record 13"), "%s", message);
		close(in);
		close(out);
	}
}
