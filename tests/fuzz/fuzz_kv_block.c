/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer: any bytes as the header of a KV block's file, as they are and with the header's own check made right, so that
 * what stands behind it is reached. What is accepted keeps every promise of kvstore/block.h and encodes to the same bytes.
 */
#include "base/check.h"
#include "kvstore/block.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define AT_CHECK (KV_BLOCK_HEADER_BYTES - KV_BLOCK_CHECK_BYTES)

static void check_promises(const struct kv_block *block, const unsigned char *header)
{
	unsigned char again[KV_BLOCK_HEADER_BYTES];

	CNRE_CHECK(block->block_tokens >= 1 && block->block_tokens <= KV_BLOCK_TOKENS_MAX);
	CNRE_CHECK(block->token_count >= 1 && block->token_count <= block->block_tokens);
	CNRE_CHECK(block->position % block->block_tokens == 0);
	CNRE_CHECK(block->bytes >= 1 && block->bytes <= KV_BLOCK_BYTES_MAX);
	CNRE_CHECK(block->mark.first <= block->token_count);
	CNRE_CHECK(kv_block_is_named_right(block));
	kv_block_encode(block, again);
	CNRE_CHECK(memcmp(again, header, sizeof again) == 0);
}

static void decode(const unsigned char *header)
{
	char message[KV_BLOCK_MESSAGE_BYTES] = "";
	struct kv_block block;
	int r = kv_block_decode(header, &block, message);

	CNRE_CHECK(r == 0 || r == -EBADMSG || r == -EPROTO);
	CNRE_CHECK((r == 0) == (message[0] == '\0') && strchr(message, '\n') == NULL);
	if (r == 0)
		check_promises(&block, header);
}

/* The names are made right, too: no fuzzer finds a SHA-256. Numbers stay as hostile as they are. */
static void decode_named(const unsigned char *header)
{
	enum {
		AT_TOKEN_COUNT = 20,
		AT_MEDIA_FIRST = 28,
		AT_PARENT = 96,
		AT_KEY = 128,
		AT_MEDIA = 160,
		AT_TOKENS = 256
	};
	unsigned char named[KV_BLOCK_HEADER_BYTES];
	struct kv_media_mark mark;
	int32_t token[KV_BLOCK_TOKENS_MAX];
	uint32_t count;

	memcpy(named, header, sizeof named);
	memcpy(&count, named + AT_TOKEN_COUNT, sizeof count);
	memcpy(&mark.first, named + AT_MEDIA_FIRST, sizeof mark.first);
	memcpy(mark.digest, named + AT_MEDIA, sizeof mark.digest);
	memcpy(token, named + AT_TOKENS, sizeof token);
	if (kv_key_block(named + AT_PARENT, token, count, &mark, named + AT_KEY) != 0)
		return;
	kv_check_payload(named, AT_CHECK, named + AT_CHECK);
	decode(named);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	unsigned char header[KV_BLOCK_HEADER_BYTES] = {0};

	memcpy(header, data, size < sizeof header ? size : sizeof header);
	decode(header);
	kv_check_payload(header, AT_CHECK, header + AT_CHECK);
	decode(header);
	decode_named(header);
	return 0;
}
