/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer: changes to a good exported prefix, with the header's check made right again; and the bytes as a whole file.
 * Whatever comes: no payload is longer than the header said, the blocks are a chain, and the end bears the header out.
 *
 * The input is a list of changes: 3 bytes of place, 1 byte that is added there.
 */
#include "base/check.h"
#include "kvstore/prefix_file.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BLOCKS = 2, TOKENS = 4, BYTES = 100, CHANGE_BYTES = 4, CHECKED = KV_BLOCK_HEADER_BYTES - KV_BLOCK_CHECK_BYTES };
enum { FILE_BYTES = KV_BLOCK_HEADER_BYTES + BLOCKS * (KV_BLOCK_HEADER_BYTES + KV_PREFIX_ALIGNMENT) };
#define BUFFER_BYTES_MAX (1u << 20) /* of what a hostile header may make the fuzzer allocate */

static void read_blocks(struct kv_prefix_reader *reader, unsigned char *payload, char *message)
{
	struct kv_block block;
	uint64_t position = 0;
	int r;

	while ((r = kv_prefix_next(reader, &block, message)) == 1) {
		CNRE_CHECK(block.position == position && block.bytes <= reader->summary.payload_bytes_max);
		position += block.token_count;
		if (payload != NULL)
			(void)kv_prefix_read_payload(reader, payload, message);
	}
	CNRE_CHECK(r != 0 || position == reader->summary.tokens);
	CNRE_CHECK(r == 0 || message[0] != '\0');
}

static void read_file(int fd)
{
	char message[KV_PREFIX_MESSAGE_BYTES] = "";
	struct kv_prefix_reader reader;
	unsigned char *payload = NULL;
	int r = kv_prefix_open(&reader, fd, message);

	CNRE_CHECK((r == 0) == (message[0] == '\0'));
	if (r < 0)
		return;
	if (reader.summary.payload_bytes_max <= BUFFER_BYTES_MAX)
		payload = malloc(reader.summary.payload_bytes_max);
	read_blocks(&reader, payload, message);
	free(payload);
}

static int write_good(void)
{
	static const unsigned char payload[BYTES] = {1, 2, 3};
	struct kv_block block = {
		.block_tokens = TOKENS, .token_count = TOKENS, .bytes = BYTES, .mark = {.first = TOKENS}};
	struct kv_prefix_writer writer;
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	CNRE_CHECK(fd >= 0 && kv_prefix_begin(&writer, fd) == 0);
	kv_check_payload(payload, BYTES, block.check);
	for (int i = 0; i < BLOCKS; i++) {
		block.position = (uint64_t)i * TOKENS;
		CNRE_CHECK(kv_key_block(block.parent, block.token, TOKENS, &block.mark, block.key) == 0);
		CNRE_CHECK(kv_prefix_add(&writer, &block, payload) == 0);
		memcpy(block.parent, block.key, KV_KEY_BYTES);
	}
	CNRE_CHECK(kv_prefix_end(&writer, NULL) == 0);
	return fd;
}

/* Its check made right: this and the blocks' headers are where the reader thinks. */
static void seal(unsigned char *header)
{
	kv_check_payload(header, CHECKED, header + CHECKED);
}

static void change(int fd, const uint8_t *data, size_t size)
{
	static unsigned char file[FILE_BYTES];

	CNRE_CHECK(pread(fd, file, sizeof file, 0) == (ssize_t)sizeof file);
	for (size_t i = 0; i + CHANGE_BYTES <= size; i += CHANGE_BYTES)
		file[((size_t)data[i] << 16 | (size_t)data[i + 1] << 8 | data[i + 2]) % sizeof file] += data[i + 3];
	seal(file);
	for (int i = 0; i < BLOCKS; i++)
		seal(file + KV_BLOCK_HEADER_BYTES + (size_t)i * (KV_BLOCK_HEADER_BYTES + KV_PREFIX_ALIGNMENT));
	CNRE_CHECK(pwrite(fd, file, sizeof file, 0) == (ssize_t)sizeof file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int fd = write_good();

	read_file(fd);
	change(fd, data, size);
	read_file(fd);
	CNRE_CHECK(ftruncate(fd, 0) == 0 && pwrite(fd, data, size, 0) == (ssize_t)size);
	read_file(fd);
	(void)close(fd);
	return 0;
}
