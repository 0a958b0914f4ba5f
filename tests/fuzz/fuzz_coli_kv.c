/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer: any bytes as a `.coli_kv`. It is refused with one line, or its records lie within the file, and what is made
 * of them is a prefix that the reader takes whole.
 */
#include "base/check.h"
#include "kvstore/coli_kv.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BYTES_MAX (1u << 20) /* of a block, so that no input makes the fuzzer slow */
#define HEADER_BYTES 40u

static void check_prefix(int fd, uint64_t records)
{
	char message[KV_PREFIX_MESSAGE_BYTES];
	struct kv_prefix_reader reader;
	struct kv_block block;
	unsigned char *payload;
	int r;

	CNRE_CHECK(kv_prefix_open(&reader, fd, message) == 0 && reader.summary.tokens == records);
	payload = malloc(reader.summary.payload_bytes_max);
	while ((r = kv_prefix_next(&reader, &block, message)) == 1)
		CNRE_CHECK(kv_prefix_read_payload(&reader, payload, message) == 0);
	CNRE_CHECK(r == 0);
	free(payload);
}

static void convert(const struct coli_kv *file)
{
	static const unsigned char model[KV_KEY_BYTES];
	const struct kv_identity identity = {.model = model, .block_tokens = 4};
	char message[COLI_KV_MESSAGE_BYTES] = "";
	int fd = memfd_create("out", MFD_CLOEXEC);
	int r;

	CNRE_CHECK(fd >= 0);
	r = coli_kv_convert(file, &identity, fd, NULL, message);
	CNRE_CHECK((r == 0) == (message[0] == '\0') && strchr(message, '\n') == NULL);
	if (r == 0)
		check_prefix(fd, file->records);
	(void)close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char message[COLI_KV_MESSAGE_BYTES] = "";
	int fd = memfd_create("in", MFD_CLOEXEC);
	struct coli_kv file;
	int r;

	CNRE_CHECK(fd >= 0 && pwrite(fd, data, size, 0) == (ssize_t)size);
	r = coli_kv_open(&file, fd, message);
	CNRE_CHECK((r == 0) == (message[0] == '\0') && strchr(message, '\n') == NULL);
	if (r == 0) {
		CNRE_CHECK(file.records * file.record_bytes <= size - HEADER_BYTES);
		if (file.record_bytes <= BYTES_MAX)
			convert(&file);
	}
	(void)close(fd);
	return 0;
}
