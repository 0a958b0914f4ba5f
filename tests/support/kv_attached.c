/* SPDX-License-Identifier: Apache-2.0 */
/* See kv_attached.h. */
#include "tests/support/kv_attached.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MUST(e) ((e) ? (void)0 : fail(#e, __LINE__))

static void fail(const char *what, int line)
{
	(void)fprintf(stderr, "kv_attached: line %d: %s\n", line, what);
	abort();
}

struct cnre_kv_identity kv_attached_identity(void)
{
	return (struct cnre_kv_identity){
		.size = sizeof(struct cnre_kv_identity),
		.tokenizer = "a tokenizer",
		.representation = "f16",
		.block_tokens = KV_TOKENS,
		.block_bytes_max = KV_BYTES_MAX,
	};
}

struct kv_attached kv_attached_start(const struct fake_kv_setup *setup, uint32_t flags)
{
	struct cnre_kv_identity identity = kv_attached_identity();
	struct kv_attached attached = {.fake = fake_kv_start(setup)};
	const struct fake_host_setup host = {.kv = attached.fake};

	attached.host = attached_start(&host, &attached.client);
	identity.flags = flags;
	MUST(cnre_kv_open(attached.client, NULL, &identity, &attached.kv) == 0);
	return attached;
}

void kv_attached_stop(struct kv_attached *attached)
{
	cnre_kv_close(attached->kv);
	attached_stop(attached->host, attached->client);
	fake_kv_stop(attached->fake);
}

static void store_block(struct kv_attached *attached, struct cnre_kv_chain *chain, struct kv_conversation conversation,
			size_t position, int is_point)
{
	size_t count = conversation.count - position < KV_TOKENS ? conversation.count - position : KV_TOKENS;
	void *buffer;
	int r = cnre_kv_stage(chain, conversation.tokens + position, count, conversation.media,
			      conversation.media_count, KV_BYTES, &buffer);

	if (r == 1)
		return;
	MUST(r == 0);
	for (uint32_t i = 0; i < KV_BYTES / sizeof(uint32_t); i++)
		((uint32_t *)buffer)[i] = (uint32_t)position + 1;
	MUST(cnre_kv_commit(chain, 1000, is_point ? CNRE_KV_POINT : 0) == 0);
	MUST(fake_kv_serve(attached->fake, 0) == 1);
}

void kv_attached_store(struct kv_attached *attached, struct kv_conversation conversation, uint32_t points)
{
	struct cnre_kv_chain *chain;

	MUST(cnre_kv_match(attached->kv, NULL, 0, NULL, 0, &chain) == 0);
	for (size_t i = 0; i * KV_TOKENS < conversation.count; i++)
		store_block(attached, chain, conversation, i * KV_TOKENS, (int)(points >> i & 1));
	cnre_kv_release(chain);
}

void kv_attached_store_tokens(struct kv_attached *attached, const int32_t *tokens, size_t count)
{
	kv_attached_store(attached, (struct kv_conversation){.tokens = tokens, .count = count}, 0);
}

int kv_attached_is_right(const void *data, uint64_t bytes, uint64_t position)
{
	const uint32_t *word = data;

	for (uint32_t i = 0; i < KV_BYTES / sizeof *word; i++)
		if (word[i] != position + 1)
			return 0;
	return bytes == KV_BYTES && (uintptr_t)data % 64 == 0;
}

uint32_t kv_attached_leases(struct kv_attached *attached)
{
	uint32_t leases = 0;

	for (uint32_t i = 0; i < fake_kv_directory(attached->fake)->entry_count; i++)
		leases += fake_kv_leases(attached->fake, i);
	return leases;
}
