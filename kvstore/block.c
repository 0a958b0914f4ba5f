/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Header of a block's file; see block.h.
 *
 *   byte     0 magic  8 version  12 zero  16 flags  20 token_count  24 block_tokens  28 media first
 *           32 position  40 bytes  48 compute_ns  56 zero
 *           64 root  96 parent  128 key  160 media digest  192 the payload's check  208 zero
 *          256 tokens, then zeros  4080 the header's own check, of everything before it
 *
 * Magic, version and the header's own check keep their places in every version: so a flipped bit of the version is told
 * from a newer one.
 */
#include "kvstore/block.h"

#include "base/message.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC "CNREKVB" /* with its end: 8 bytes */
#define VERSION 1u
#define FLAGS_KNOWN (KV_BLOCK_POINT | KV_BLOCK_CHECKPOINTS)

enum {
	AT_MAGIC = 0,
	AT_VERSION = 8,
	AT_FLAGS = 16,
	AT_TOKEN_COUNT = 20,
	AT_BLOCK_TOKENS = 24,
	AT_MEDIA_FIRST = 28,
	AT_POSITION = 32,
	AT_BYTES = 40,
	AT_COMPUTE_NS = 48,
	AT_ROOT = 64,
	AT_PARENT = 96,
	AT_KEY = 128,
	AT_MEDIA = 160,
	AT_CHECK = 192,
	AT_TOKENS = 256,
	TOKEN_BYTES = 4,
	AT_OWN_CHECK = KV_BLOCK_HEADER_BYTES - KV_BLOCK_CHECK_BYTES,
};
_Static_assert(AT_TOKENS + TOKEN_BYTES * KV_BLOCK_TOKENS_MAX <= AT_OWN_CHECK, "tokens fit");

static const unsigned char no_media[KV_KEY_BYTES];

/* ---- numbers ---- */

static void put(unsigned char *to, uint64_t value, unsigned bytes)
{
	for (unsigned i = 0; i < bytes; i++)
		to[i] = (unsigned char)(value >> 8 * i);
}

static uint64_t get(const unsigned char *from, unsigned bytes)
{
	uint64_t value = 0;

	for (unsigned i = 0; i < bytes; i++)
		value |= (uint64_t)from[i] << 8 * i;
	return value;
}

static uint32_t get32(const unsigned char *from)
{
	return (uint32_t)get(from, 4);
}

/* ---- header ---- */

void kv_block_encode(const struct kv_block *block, unsigned char ret_header[KV_BLOCK_HEADER_BYTES])
{
	memset(ret_header, 0, KV_BLOCK_HEADER_BYTES);
	memcpy(ret_header + AT_MAGIC, MAGIC, sizeof MAGIC);
	put(ret_header + AT_VERSION, VERSION, 4);
	put(ret_header + AT_FLAGS, block->flags, 4);
	put(ret_header + AT_TOKEN_COUNT, block->token_count, 4);
	put(ret_header + AT_BLOCK_TOKENS, block->block_tokens, 4);
	put(ret_header + AT_MEDIA_FIRST, block->mark.first, 4);
	put(ret_header + AT_POSITION, block->position, 8);
	put(ret_header + AT_BYTES, block->bytes, 8);
	put(ret_header + AT_COMPUTE_NS, block->compute_ns, 8);
	memcpy(ret_header + AT_ROOT, block->root, KV_KEY_BYTES);
	memcpy(ret_header + AT_PARENT, block->parent, KV_KEY_BYTES);
	memcpy(ret_header + AT_KEY, block->key, KV_KEY_BYTES);
	memcpy(ret_header + AT_MEDIA, block->mark.digest, KV_KEY_BYTES);
	memcpy(ret_header + AT_CHECK, block->check, KV_BLOCK_CHECK_BYTES);
	for (uint32_t i = 0; i < block->token_count && i < KV_BLOCK_TOKENS_MAX; i++)
		put(ret_header + AT_TOKENS + TOKEN_BYTES * i, (uint32_t)block->token[i], TOKEN_BYTES);
	kv_check_payload(ret_header, AT_OWN_CHECK, ret_header + AT_OWN_CHECK);
}

static void take(const unsigned char *header, struct kv_block *block)
{
	memset(block, 0, sizeof *block);
	block->flags = get32(header + AT_FLAGS);
	block->token_count = get32(header + AT_TOKEN_COUNT);
	block->block_tokens = get32(header + AT_BLOCK_TOKENS);
	block->mark.first = get32(header + AT_MEDIA_FIRST);
	block->position = get(header + AT_POSITION, 8);
	block->bytes = get(header + AT_BYTES, 8);
	block->compute_ns = get(header + AT_COMPUTE_NS, 8);
	memcpy(block->root, header + AT_ROOT, KV_KEY_BYTES);
	memcpy(block->parent, header + AT_PARENT, KV_KEY_BYTES);
	memcpy(block->key, header + AT_KEY, KV_KEY_BYTES);
	memcpy(block->mark.digest, header + AT_MEDIA, KV_KEY_BYTES);
	memcpy(block->check, header + AT_CHECK, KV_BLOCK_CHECK_BYTES);
	for (uint32_t i = 0; i < KV_BLOCK_TOKENS_MAX; i++)
		block->token[i] = (int32_t)get32(header + AT_TOKENS + TOKEN_BYTES * i);
}

static int check_own(const unsigned char *header, char *message)
{
	unsigned char check[KV_BLOCK_CHECK_BYTES];

	if (memcmp(header + AT_MAGIC, MAGIC, sizeof MAGIC) != 0)
		return cnre_message(message, KV_BLOCK_MESSAGE_BYTES, -EBADMSG,
				    "not a KV block: its first bytes are others");
	kv_check_payload(header, AT_OWN_CHECK, check);
	if (memcmp(header + AT_OWN_CHECK, check, sizeof check) != 0)
		return cnre_message(message, KV_BLOCK_MESSAGE_BYTES, -EBADMSG, "the header's check is wrong: damaged");
	if (get32(header + AT_VERSION) > VERSION)
		return cnre_message(message, KV_BLOCK_MESSAGE_BYTES, -EPROTO,
				    "version %" PRIu32 ", this release reads %u: use a newer one",
				    get32(header + AT_VERSION), VERSION);
	if (get32(header + AT_VERSION) < VERSION)
		return cnre_message(message, KV_BLOCK_MESSAGE_BYTES, -EBADMSG, "no such version");
	return 0;
}

static const char *wrong_number(const struct kv_block *block)
{
	if (block->block_tokens < 1 || block->block_tokens > KV_BLOCK_TOKENS_MAX)
		return "block_tokens out of range";
	if (block->token_count < 1 || block->token_count > block->block_tokens)
		return "token_count out of range";
	if (block->position > INT64_MAX - KV_BLOCK_TOKENS_MAX || block->position % block->block_tokens != 0)
		return "position is not a multiple of block_tokens";
	if (block->bytes < 1 || block->bytes > KV_BLOCK_BYTES_MAX)
		return "payload bytes out of range";
	if ((block->flags & ~FLAGS_KNOWN) != 0)
		return "unknown flags";
	return NULL;
}

static const char *wrong_name(const struct kv_block *block)
{
	int has_media = memcmp(block->mark.digest, no_media, sizeof no_media) != 0;

	if (block->mark.first > block->token_count || has_media == (block->mark.first == block->token_count))
		return "the place of the first media is wrong";
	/* A first block's parent is its root, and no other's can be. */
	if ((block->position == 0) != (memcmp(block->parent, block->root, KV_KEY_BYTES) == 0))
		return "the parent does not fit the position";
	if (!kv_block_is_named_right(block))
		return "the key is not that of parent, tokens and media";
	return NULL;
}

/* Every byte that says nothing is zero: encoding what was decoded gives the same page. */
static const char *wrong_padding(const unsigned char *header, const struct kv_block *block)
{
	unsigned char again[KV_BLOCK_HEADER_BYTES];

	kv_block_encode(block, again);
	return memcmp(again, header, sizeof again) != 0 ? "padding is not zero" : NULL;
}

int kv_block_decode(const unsigned char header[KV_BLOCK_HEADER_BYTES], struct kv_block *ret_block,
		    char message[KV_BLOCK_MESSAGE_BYTES])
{
	struct kv_block block;
	const char *wrong;
	int r = check_own(header, message);

	if (r < 0)
		return r;
	take(header, &block);
	wrong = wrong_number(&block);
	if (wrong == NULL)
		wrong = wrong_name(&block);
	if (wrong == NULL)
		wrong = wrong_padding(header, &block);
	if (wrong != NULL)
		return cnre_message(message, KV_BLOCK_MESSAGE_BYTES, -EBADMSG, "%s", wrong);
	*ret_block = block;
	return 0;
}

int kv_block_is_named_right(const struct kv_block *block)
{
	unsigned char key[KV_KEY_BYTES];

	return kv_key_block(block->parent, block->token, block->token_count, &block->mark, key) == 0 &&
	       memcmp(key, block->key, sizeof key) == 0;
}
