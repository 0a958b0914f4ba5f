/* SPDX-License-Identifier: Apache-2.0 */
/* kvstore/prefix_file.c: what was written is read, and a file that anybody changed anywhere is not. */
#include "kvstore/prefix_file.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(kvstore_prefix_file, .timeout = 60);

enum { BLOCKS = 3, BLOCK_TOKENS = 4, PAYLOAD_MAX = 9000 };

/* Sizes with padding, without, and of one byte. */
static const uint64_t payload_bytes[BLOCKS] = {9000, 4096, 1};

static char message[KV_PREFIX_MESSAGE_BYTES];

/* ---- a chain of blocks ---- */

static void fill_payload(uint32_t index, unsigned char *payload)
{
	for (uint64_t i = 0; i < payload_bytes[index]; i++)
		payload[i] = (unsigned char)(i * 31 + index + 1);
}

static void name(struct kv_block *block)
{
	cr_assert_eq(kv_key_block(block->parent, block->token, block->token_count, &block->mark, block->key), 0);
}

/* The last one is partial. */
static void make_chain(struct kv_block block[BLOCKS])
{
	unsigned char payload[PAYLOAD_MAX];

	memset(block, 0, BLOCKS * sizeof *block);
	for (uint32_t i = 0; i < BLOCKS; i++) {
		memset(block[i].root, 7, KV_KEY_BYTES);
		memcpy(block[i].parent, i == 0 ? block[i].root : block[i - 1].key, KV_KEY_BYTES);
		block[i].position = (uint64_t)i * BLOCK_TOKENS;
		block[i].block_tokens = BLOCK_TOKENS;
		block[i].token_count = i + 1 == BLOCKS ? 2 : BLOCK_TOKENS;
		block[i].mark.first = block[i].token_count;
		block[i].bytes = payload_bytes[i];
		block[i].compute_ns = 1000 + i;
		for (uint32_t k = 0; k < block[i].token_count; k++)
			block[i].token[k] = (int32_t)(100 * i + k);
		fill_payload(i, payload);
		kv_check_payload(payload, payload_bytes[i], block[i].check);
		name(&block[i]);
	}
}

static int memory_file(void)
{
	int fd = memfd_create("prefix", MFD_CLOEXEC);

	cr_assert_geq(fd, 0);
	return fd;
}

static int write_chain(int fd, const struct kv_block *block, struct kv_prefix_summary *summary)
{
	unsigned char payload[PAYLOAD_MAX];
	struct kv_prefix_writer writer;
	int r = kv_prefix_begin(&writer, fd);

	for (uint32_t i = 0; i < BLOCKS && r == 0; i++) {
		fill_payload(i, payload);
		r = kv_prefix_add(&writer, &block[i], payload);
	}
	return r < 0 ? r : kv_prefix_end(&writer, summary);
}

/* A good file of the chain; the caller closes it. */
static int good_file(void)
{
	struct kv_block block[BLOCKS];
	int fd = memory_file();

	make_chain(block);
	cr_assert_eq(write_chain(fd, block, NULL), 0);
	return fd;
}

/* Blocks that were read, payloads and all, or the first error. */
static int read_all(int fd)
{
	unsigned char payload[PAYLOAD_MAX];
	struct kv_prefix_reader reader;
	struct kv_block block;
	int count = 0, r;

	message[0] = '\0';
	r = kv_prefix_open(&reader, fd, message);
	if (r < 0)
		return r;
	if (reader.summary.payload_bytes_max > sizeof payload)
		return -E2BIG;
	while ((r = kv_prefix_next(&reader, &block, message)) == 1) {
		r = kv_prefix_read_payload(&reader, payload, message);
		if (r < 0)
			return r;
		count++;
	}
	return r < 0 ? r : count;
}

/* ---- round trip ---- */

Test(kvstore_prefix_file, what_was_written_is_read)
{
	unsigned char payload[PAYLOAD_MAX], expected[PAYLOAD_MAX];
	struct kv_block block[BLOCKS], again;
	struct kv_prefix_summary summary;
	struct kv_prefix_reader reader;
	struct stat status;
	int fd = memory_file();

	make_chain(block);
	cr_assert_eq(write_chain(fd, block, &summary), 0);
	cr_expect_eq(summary.blocks, BLOCKS);
	cr_expect_eq(summary.tokens, 2 * BLOCK_TOKENS + 2);
	cr_expect_eq(summary.payload_bytes, 9000 + 4096 + 1);
	cr_expect_eq(summary.payload_bytes_max, 9000);
	cr_expect_eq(memcmp(summary.leaf, block[BLOCKS - 1].key, KV_KEY_BYTES), 0);
	cr_expect_eq(memcmp(summary.root, block[0].root, KV_KEY_BYTES), 0);
	cr_assert_eq(fstat(fd, &status), 0);
	cr_expect_eq((uint64_t)status.st_size, summary.file_bytes);
	cr_expect_eq(status.st_size, 4096 + 3 * 4096 + 3 * 4096 + 4096 + 4096);
	cr_assert_eq(kv_prefix_open(&reader, fd, message), 0, "%s", message);
	for (uint32_t i = 0; i < BLOCKS; i++) {
		cr_assert_eq(kv_prefix_next(&reader, &again, message), 1, "%s", message);
		cr_expect_eq(memcmp(&again, &block[i], sizeof again), 0, "block %u", i);
		cr_assert_eq(kv_prefix_read_payload(&reader, payload, message), 0, "%s", message);
		fill_payload(i, expected);
		cr_expect_eq(memcmp(payload, expected, payload_bytes[i]), 0, "payload %u", i);
	}
	cr_expect_eq(kv_prefix_next(&reader, &again, message), 0);
	cr_expect_eq(kv_prefix_next(&reader, &again, message), 0, "and stays so");
	close(fd);
}

/* An importer leaves out what it has already. */
Test(kvstore_prefix_file, payloads_may_be_left_out)
{
	struct kv_prefix_reader reader;
	struct kv_block block;
	int fd = good_file(), count = 0;

	cr_assert_eq(kv_prefix_open(&reader, fd, message), 0);
	while (kv_prefix_next(&reader, &block, message) == 1)
		count++;
	cr_expect_eq(count, BLOCKS);
	close(fd);
}

Test(kvstore_prefix_file, where_the_descriptor_stands_is_left_alone)
{
	int fd = good_file();

	cr_expect_eq(lseek(fd, 0, SEEK_CUR), 0);
	cr_assert_eq(lseek(fd, 17, SEEK_SET), 17);
	cr_expect_eq(read_all(fd), BLOCKS, "%s", message);
	cr_expect_eq(lseek(fd, 0, SEEK_CUR), 17);
	close(fd);
}

/* ---- writing ---- */

Test(kvstore_prefix_file, only_an_empty_file_that_can_be_written_is_begun)
{
	struct kv_prefix_writer writer;
	char path[64];
	int file = memory_file(), reading, ends[2];

	cr_expect_eq(kv_prefix_begin(&writer, -1), -EBADF);
	cr_assert_eq(pipe(ends), 0);
	cr_expect_eq(kv_prefix_begin(&writer, ends[1]), -EINVAL, "a pipe");
	snprintf(path, sizeof path, "/proc/self/fd/%d", file);
	reading = open(path, O_RDONLY | O_CLOEXEC);
	cr_assert_geq(reading, 0);
	cr_expect_eq(kv_prefix_begin(&writer, reading), -EINVAL, "read only");
	cr_assert_eq(fcntl(file, F_SETFL, O_APPEND), 0);
	cr_expect_eq(kv_prefix_begin(&writer, file), -EINVAL, "appended to");
	cr_assert_eq(fcntl(file, F_SETFL, 0), 0);
	cr_expect_eq(kv_prefix_begin(&writer, file), 0);
	cr_assert_eq(write(file, "x", 1), 1);
	cr_expect_eq(kv_prefix_begin(&writer, file), -EINVAL, "not empty");
	close(file);
	close(reading);
	close(ends[0]);
	close(ends[1]);
}

Test(kvstore_prefix_file, a_prefix_of_no_block_is_none)
{
	struct kv_prefix_writer writer;
	int fd = memory_file();

	cr_assert_eq(kv_prefix_begin(&writer, fd), 0);
	cr_expect_eq(kv_prefix_end(&writer, NULL), -EINVAL);
	cr_expect_eq(read_all(fd), -EBADMSG);
	close(fd);
}

Test(kvstore_prefix_file, a_file_that_was_not_ended_is_refused)
{
	unsigned char payload[PAYLOAD_MAX];
	struct kv_block block[BLOCKS];
	struct kv_prefix_writer writer;
	int fd = memory_file();

	make_chain(block);
	fill_payload(0, payload);
	cr_assert_eq(kv_prefix_begin(&writer, fd), 0);
	cr_assert_eq(kv_prefix_add(&writer, &block[0], payload), 0);
	cr_expect_eq(read_all(fd), -EBADMSG);
	cr_expect_not_null(strstr(message, "export did not end"), "%s", message);
	close(fd);
}

Test(kvstore_prefix_file, a_drive_that_is_full_is_told)
{
	unsigned char payload[PAYLOAD_MAX];
	struct kv_block block[BLOCKS];
	struct kv_prefix_writer writer;
	int fd = memfd_create("prefix", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	make_chain(block);
	fill_payload(0, payload);
	cr_assert_eq(kv_prefix_begin(&writer, fd), 0);
	cr_assert_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW), 0); /* as a full drive, with another error */
	cr_expect_lt(kv_prefix_add(&writer, &block[0], payload), 0);
	close(fd);
}

Test(kvstore_prefix_file, a_payload_that_is_not_the_block_s_is_not_written)
{
	unsigned char payload[PAYLOAD_MAX];
	struct kv_block block[BLOCKS];
	struct kv_prefix_writer writer;
	int fd = memory_file();

	make_chain(block);
	fill_payload(0, payload);
	payload[8999] ^= 1;
	cr_assert_eq(kv_prefix_begin(&writer, fd), 0);
	cr_expect_eq(kv_prefix_add(&writer, &block[0], payload), -EBADMSG);
	close(fd);
}

/* ---- chains that are none: the writer refuses them, and the reader those of another writer ---- */

typedef void breaking(struct kv_block *block);

static void skip_the_first(struct kv_block *block)
{
	block[0].position = BLOCK_TOKENS;
	memset(block[0].parent, 9, KV_KEY_BYTES);
}

static void take_another_root(struct kv_block *block)
{
	memset(block[1].root, 8, KV_KEY_BYTES);
}

static void take_another_parent(struct kv_block *block)
{
	block[1].parent[0] ^= 1;
}

static void leave_a_gap(struct kv_block *block)
{
	block[1].position = 2 * BLOCK_TOKENS;
}

static void let_the_first_be_partial(struct kv_block *block)
{
	block[0].token_count = block[0].mark.first = 3;
	block[0].token[3] = 0;
	name(&block[0]);
	memcpy(block[1].parent, block[0].key, KV_KEY_BYTES);
	block[1].position = 3;
	block[1].block_tokens = 3;
	block[1].token_count = block[1].mark.first = 3;
	block[1].token[3] = 0;
}

static void change_the_flags(struct kv_block *block)
{
	block[1].flags = KV_BLOCK_CHECKPOINTS;
}

static void repeat_the_root(struct kv_block *block)
{
	block[1] = block[0];
}

/* Positions fit both sizes. */
static void change_the_size_of_a_block(struct kv_block *block)
{
	block[1].block_tokens = 2;
	block[1].token_count = block[1].mark.first = 2;
	block[1].token[2] = block[1].token[3] = 0;
	name(&block[1]);
	block[2].block_tokens = 2;
	block[2].position = 6;
	memcpy(block[2].parent, block[1].key, KV_KEY_BYTES);
	name(&block[2]);
}

static breaking *const breakings[] = {change_the_size_of_a_block, skip_the_first, take_another_root,
				      take_another_parent,        leave_a_gap,    let_the_first_be_partial,
				      change_the_flags,           repeat_the_root};

Test(kvstore_prefix_file, the_writer_refuses_a_broken_chain)
{
	for (size_t i = 0; i < sizeof breakings / sizeof breakings[0]; i++) {
		struct kv_block block[BLOCKS];
		int fd = memory_file();

		make_chain(block);
		breakings[i](block);
		name(&block[0]);
		name(&block[1]);
		cr_expect_eq(write_chain(fd, block, NULL), -EINVAL, "case %zu", i);
		close(fd);
	}
}

/* Puts one block's header into a good file, as a stranger can. */
static void overwrite_header(int fd, uint32_t index, const struct kv_block *block)
{
	static const off_t at[BLOCKS] = {4096, 4096 + 4096 + 12288, 4096 + 4096 + 12288 + 4096 + 4096};
	unsigned char header[KV_BLOCK_HEADER_BYTES];

	kv_block_encode(block, header);
	cr_assert_eq(pwrite(fd, header, sizeof header, at[index]), (ssize_t)sizeof header);
}

Test(kvstore_prefix_file, the_reader_refuses_a_broken_chain)
{
	for (size_t i = 0; i < sizeof breakings / sizeof breakings[0]; i++) {
		struct kv_block block[BLOCKS];
		int fd = good_file();

		make_chain(block);
		breakings[i](block);
		name(&block[0]);
		name(&block[1]);
		overwrite_header(fd, 0, &block[0]);
		overwrite_header(fd, 1, &block[1]);
		cr_expect_eq(read_all(fd), -EBADMSG, "case %zu: %s", i, message);
		close(fd);
	}
}

/* ---- damage ---- */

/* Every byte of the headers, and some of each payload and of the padding. */
Test(kvstore_prefix_file, every_damaged_byte_is_seen)
{
	int fd = good_file();
	struct stat status;

	cr_assert_eq(fstat(fd, &status), 0);
	for (off_t at = 0; at < status.st_size; at += at < 8192 ? 1 : 97) {
		unsigned char byte, damaged;

		cr_assert_eq(pread(fd, &byte, 1, at), 1);
		damaged = byte ^ (unsigned char)(1u << at % 8);
		cr_assert_eq(pwrite(fd, &damaged, 1, at), 1);
		cr_expect_eq(read_all(fd), -EBADMSG, "byte %lld", (long long)at);
		cr_assert_eq(pwrite(fd, &byte, 1, at), 1);
	}
	cr_expect_eq(read_all(fd), BLOCKS, "%s", message);
	close(fd);
}

Test(kvstore_prefix_file, a_file_of_another_length_is_refused)
{
	int fd = good_file();
	struct stat status;

	cr_assert_eq(fstat(fd, &status), 0);
	cr_assert_eq(ftruncate(fd, status.st_size + 1), 0);
	cr_expect_eq(read_all(fd), -EBADMSG);
	for (off_t length = status.st_size - 1; length >= 0; length -= 1021) {
		cr_assert_eq(ftruncate(fd, length), 0);
		cr_expect_eq(read_all(fd), -EBADMSG, "%lld bytes", (long long)length);
	}
	close(fd);
}

/* It was whole when it was opened. */
Test(kvstore_prefix_file, a_file_that_shrinks_under_the_reader_is_refused)
{
	unsigned char payload[PAYLOAD_MAX];
	struct kv_prefix_reader reader;
	struct kv_block block;
	int fd = good_file();

	cr_assert_eq(kv_prefix_open(&reader, fd, message), 0);
	cr_assert_eq(kv_prefix_next(&reader, &block, message), 1);
	cr_assert_eq(ftruncate(fd, 9000), 0);
	cr_expect_eq(kv_prefix_read_payload(&reader, payload, message), -EBADMSG);
	cr_expect_eq(kv_prefix_next(&reader, &block, message), -EBADMSG);
	close(fd);
}

enum { AT_VERSION = 8, AT_BLOCKS = 12, AT_TOKENS = 16, AT_MAX = 32, AT_FILE = 40, AT_PADDING = 200, AT_CHECK = 4080 };

/* A number in the header with its check made right. */
static int forge(unsigned at, unsigned bytes, uint64_t value)
{
	unsigned char header[KV_BLOCK_HEADER_BYTES];
	int fd = good_file(), r;

	cr_assert_eq(pread(fd, header, sizeof header, 0), (ssize_t)sizeof header);
	for (unsigned i = 0; i < bytes; i++)
		header[at + i] = (unsigned char)(value >> 8 * i);
	kv_check_payload(header, AT_CHECK, header + AT_CHECK);
	cr_assert_eq(pwrite(fd, header, sizeof header, 0), (ssize_t)sizeof header);
	r = read_all(fd);
	close(fd);
	return r;
}

Test(kvstore_prefix_file, numbers_that_the_blocks_do_not_bear_out_are_refused)
{
	cr_expect_eq(forge(AT_VERSION, 4, 1), BLOCKS, "as it is");
	cr_expect_eq(forge(AT_VERSION, 4, 2), -EPROTO);
	cr_expect_eq(forge(AT_VERSION, 4, 0), -EBADMSG);
	cr_expect_eq(forge(AT_BLOCKS, 4, 0), -EBADMSG);
	cr_expect_eq(forge(AT_BLOCKS, 4, BLOCKS - 1), -EBADMSG);
	cr_expect_eq(forge(AT_BLOCKS, 4, BLOCKS + 1), -EBADMSG);
	cr_expect_eq(forge(AT_BLOCKS, 4, UINT32_MAX), -EBADMSG);
	cr_expect_eq(forge(AT_TOKENS, 8, 11), -EBADMSG);
	cr_expect_eq(forge(AT_MAX, 8, 8999), -EBADMSG, "a buffer that would be too small");
	cr_expect_eq(forge(AT_MAX, 8, 0), -EBADMSG);
	cr_expect_eq(forge(AT_MAX, 8, UINT64_MAX), -EBADMSG);
	cr_expect_eq(forge(AT_FILE, 8, 4096), -EBADMSG);
	cr_expect_eq(forge(AT_PADDING, 1, 1), -EBADMSG);
}

/* Who allocates what the header says must never be given a larger block, not even before the end shows the lie. */
Test(kvstore_prefix_file, a_block_larger_than_the_header_says_is_refused_at_once)
{
	unsigned char header[KV_BLOCK_HEADER_BYTES];
	struct kv_prefix_reader reader;
	struct kv_block block;
	int fd = good_file();

	cr_assert_eq(pread(fd, header, sizeof header, 0), (ssize_t)sizeof header);
	memset(header + AT_MAX, 0, 8);
	header[AT_MAX] = 1;
	kv_check_payload(header, AT_CHECK, header + AT_CHECK);
	cr_assert_eq(pwrite(fd, header, sizeof header, 0), (ssize_t)sizeof header);
	cr_assert_eq(kv_prefix_open(&reader, fd, message), 0, "%s", message);
	cr_expect_eq(kv_prefix_next(&reader, &block, message), -EBADMSG);
	close(fd);
}

Test(kvstore_prefix_file, what_is_no_file_is_not_waited_for)
{
	struct kv_prefix_reader reader = {.fd = 42};
	int ends[2];

	cr_assert_eq(pipe(ends), 0);
	cr_expect_eq(kv_prefix_open(&reader, ends[0], message), -EINVAL);
	cr_expect_eq(kv_prefix_open(&reader, -1, message), -EBADF);
	cr_expect_eq(reader.fd, 42, "the output is untouched on failure");
	close(ends[0]);
	close(ends[1]);
}
