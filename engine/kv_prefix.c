/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See kv_prefix.h. A chain stands behind the last whole block that the store has; a partial block behind that is a leaf,
 * which a longer one replaces, so the next block to stage always begins at a multiple of KV_BLOCK_TOKENS.
 */
#include "engine/kv_prefix.h"

#include "engine/clock.h"

#include <errno.h>
#include <stdlib.h>

#define COPY_TIMEOUT_NS (5 * INT64_C(1000000000)) /* all blocks of a match together: after that computing is faster */
#define PUBLISH_BLOCKS_MAX 8u                     /* in one step, so that catching up holds no token up for long */
#define MATCH_AGAIN_MAX 1                         /* in one step */

int kv_store_open(struct kv_store *ret_store, struct cnre *client, const struct config *config,
		  const char *kv_namespace, const char *salt)
{
	struct kv_store store = {.config = config, .token_bytes = kv_cache_token_bytes(config)};
	struct cnre_kv_identity identity = {
		.size = sizeof identity,
		.version = KV_IDENTITY_VERSION,
		.salt = salt,
		.block_tokens = KV_BLOCK_TOKENS,
	};
	int error;

	kv_identity_make(&store.identity, config);
	identity.position = store.identity.position;
	identity.representation = store.identity.representation;
	identity.block_bytes_max = store.identity.block_bytes_max;
	error = cnre_kv_open(client, kv_namespace, &identity, &store.kv);
	if (error == 0)
		*ret_store = store;
	return error;
}

void kv_store_close(struct kv_store *store)
{
	if (store->kv)
		cnre_kv_close(store->kv);
	store->kv = NULL;
}

int kv_prefix_init(struct kv_prefix *prefix, const struct kv_store *store, uint32_t positions)
{
	struct kv_prefix fresh = {.store = store, .positions = positions};

	if (store) {
		fresh.cost_ns = calloc(positions, sizeof *fresh.cost_ns);
		if (!fresh.cost_ns)
			return -ENOMEM;
	}
	*prefix = fresh;
	return 0;
}

void kv_prefix_done(struct kv_prefix *prefix)
{
	kv_prefix_forget(prefix);
	free(prefix->cost_ns);
	*prefix = (struct kv_prefix){0};
}

void kv_prefix_forget(struct kv_prefix *prefix)
{
	if (prefix->chain)
		cnre_kv_release(prefix->chain);
	prefix->chain = NULL;
	prefix->staged = prefix->partial = prefix->tried = 0;
}

/* ---- copying ---- */

/* A new chain over what the store has of count tokens. */
static int match(struct kv_prefix *prefix, const uint32_t *tokens, uint32_t count)
{
	uint32_t tried = prefix->tried;
	int covered;

	kv_prefix_forget(prefix);
	prefix->tried = tried;
	covered = cnre_kv_match(prefix->store->kv, (const int32_t *)tokens, count, NULL, 0, &prefix->chain);
	if (covered < 0)
		return covered;
	if ((uint32_t)covered > count) { /* not what was asked */
		kv_prefix_forget(prefix);
		return -EBADMSG;
	}
	prefix->staged = (uint32_t)covered / KV_BLOCK_TOKENS * KV_BLOCK_TOKENS;
	prefix->partial = (uint32_t)covered % KV_BLOCK_TOKENS;
	return covered;
}

/* Tokens of the payload if it can be what the chain says it is, else 0. */
static uint32_t payload_tokens(const struct kv_store *store, uint32_t usable, uint64_t bytes)
{
	const uint64_t tokens = bytes / store->token_bytes;

	return bytes % store->token_bytes == 0 && tokens <= KV_BLOCK_TOKENS && usable <= tokens ? (uint32_t)tokens : 0;
}

static uint32_t copy_blocks(const struct kv_prefix *prefix, struct kv_cache *cache, uint32_t covered)
{
	const int64_t end_ns = (int64_t)clock_now_ns() + COPY_TIMEOUT_NS;
	uint32_t copied = 0;

	for (size_t i = 0; copied < covered; i++) {
		const int64_t left_ns = end_ns - (int64_t)clock_now_ns();
		const void *payload;
		uint64_t bytes;
		uint32_t tokens;
		int usable = cnre_kv_block(prefix->chain, i, left_ns > 0 ? left_ns : 0, &payload, &bytes);

		if (usable <= 0 || (uint32_t)usable > covered - copied)
			break;
		tokens = payload_tokens(prefix->store, (uint32_t)usable, bytes);
		if (tokens == 0)
			break;
		kv_rows_scatter(cache, prefix->store->config, (struct kv_span){copied, (uint32_t)usable}, payload,
				tokens);
		copied += (uint32_t)usable;
	}
	return copied;
}

uint32_t kv_prefix_copy(struct kv_prefix *prefix, const uint32_t *tokens, uint32_t count, struct kv_cache *cache)
{
	uint32_t copied;
	int covered;

	if (!prefix->store || count == 0 || count > cache->positions)
		return 0;
	covered = match(prefix, tokens, count);
	if (covered <= 0)
		return 0;
	copied = copy_blocks(prefix, cache, (uint32_t)covered);
	(void)cnre_kv_unpin(prefix->chain); /* our own chain */
	if (copied < (uint32_t)covered)
		kv_prefix_forget(prefix); /* the block that failed may be gone by the next match: publish it again */
	for (uint32_t i = 0; i < copied; i++)
		prefix->cost_ns[i] = 0;
	cache->count = copied;
	return copied;
}

/* ---- publishing ---- */

void kv_prefix_note_cost(struct kv_prefix *prefix, struct kv_span span, uint64_t ns)
{
	const uint64_t each_ns = span.count ? ns / span.count : 0;

	for (uint32_t i = span.first; prefix->store && i < span.first + span.count && i < prefix->positions; i++)
		prefix->cost_ns[i] = each_ns > 0 ? each_ns : 1;
}

/* Tokens that were copied are taken to cost what the others of the block do. */
static uint64_t cost_of(const struct kv_prefix *prefix, struct kv_span span)
{
	uint64_t sum_ns = 0;
	uint32_t measured = 0;

	for (uint32_t i = span.first; i < span.first + span.count; i++) {
		sum_ns += prefix->cost_ns[i];
		measured += prefix->cost_ns[i] > 0;
	}
	return measured > 0 ? sum_ns / measured * span.count : 0;
}

static int match_again(struct kv_prefix *prefix, const uint32_t *tokens, uint32_t count)
{
	int covered = match(prefix, tokens, count);

	if (covered > 0)
		(void)cnre_kv_unpin(prefix->chain); /* the rows are here already */
	return covered < 0 ? covered : 0;
}

/* The block behind the chain, as far as end. */
static int publish_block(struct kv_prefix *prefix, const uint32_t *tokens, const struct kv_cache *cache, uint32_t end)
{
	const struct kv_store *store = prefix->store;
	const uint32_t left = end - prefix->staged;
	const struct kv_span span = {prefix->staged, left < KV_BLOCK_TOKENS ? left : KV_BLOCK_TOKENS};
	void *buffer;
	int error = cnre_kv_stage(prefix->chain, (const int32_t *)tokens + span.first, span.count, NULL, 0,
				  span.count * store->token_bytes, &buffer);

	if (error < 0)
		return error;
	if (error == 0) {
		kv_rows_gather(cache, store->config, span, buffer);
		error = cnre_kv_commit(prefix->chain, cost_of(prefix, span), 0);
		if (error < 0)
			return error;
		prefix->published_blocks++;
	}
	prefix->partial = span.count % KV_BLOCK_TOKENS;
	prefix->staged += span.count - prefix->partial;
	return 0;
}

static void publish(struct kv_prefix *prefix, const uint32_t *tokens, const struct kv_cache *cache, uint32_t end,
		    uint32_t blocks_max)
{
	int again = MATCH_AGAIN_MAX, error = prefix->chain ? 0 : match_again(prefix, tokens, end);

	for (uint32_t i = 0; i < blocks_max && error == 0 && prefix->staged + prefix->partial < end; i++) {
		error = publish_block(prefix, tokens, cache, end);
		if (error == -ESTALE && again-- > 0)
			error = match_again(prefix, tokens, end);
	}
	if (error == 0)
		return;
	prefix->tried = cache->count / KV_BLOCK_TOKENS * KV_BLOCK_TOKENS;
	if (error != -EAGAIN && prefix->chain) {
		uint32_t tried = prefix->tried;

		kv_prefix_forget(prefix);
		prefix->tried = tried;
	}
}

void kv_prefix_publish(struct kv_prefix *prefix, const uint32_t *tokens, const struct kv_cache *cache)
{
	const uint32_t whole = cache->count / KV_BLOCK_TOKENS * KV_BLOCK_TOKENS;

	if (prefix->store && whole > prefix->tried && whole > prefix->staged)
		publish(prefix, tokens, cache, whole, PUBLISH_BLOCKS_MAX);
}

uint32_t kv_prefix_finish(struct kv_prefix *prefix, const uint32_t *tokens, const struct kv_cache *cache)
{
	const uint32_t count = cache->count;

	if (!prefix->store || count == 0)
		return 0;
	if (!prefix->chain || count > prefix->staged + prefix->partial)
		publish(prefix, tokens, cache, count, UINT32_MAX);
	if (prefix->staged + prefix->partial >= count)
		return 0;
	return (count - prefix->staged + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
}
