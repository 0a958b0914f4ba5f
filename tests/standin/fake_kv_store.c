/* SPDX-License-Identifier: Apache-2.0 */
/* See fake_kv_store.h. Blocks in an array; a parent is an index into it, -1 the root. */
#include "tests/standin/fake_kv_store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS_MAX = 4096, CHAIN_MAX = 1024, BLOCK_TOKENS_MAX = 256, ROOT = -1 };

struct block {
	char root[1200]; /* namespace and identity */
	int parent, is_there;
	int32_t token[BLOCK_TOKENS_MAX];
	size_t count;
	void *payload;
	uint64_t bytes;
};

struct cnre_kv {
	char root[1200];
	uint32_t block_tokens;
	uint64_t block_bytes_max;
};

struct link {
	int block;
	size_t usable;
};

struct cnre_kv_chain {
	struct cnre_kv *kv;
	struct link link[CHAIN_MAX]; /* what was matched */
	size_t count;
	int is_pinned, end; /* end: the last whole block, whose children come next */
	struct block staged;
};

struct fake_kv_store fake_kv_store;
static struct block blocks[BLOCKS_MAX];
static int block_count;

void fake_kv_store_forget_blocks(void)
{
	for (int i = 0; i < block_count; i++)
		blocks[i].is_there = 0;
}

void fake_kv_store_reset(void)
{
	for (int i = 0; i < block_count; i++)
		free(blocks[i].payload);
	memset(blocks, 0, sizeof blocks);
	block_count = 0;
	fake_kv_store = (struct fake_kv_store){.block_fails_at = -1};
}

int fake_kv_store_block_count(void)
{
	int count = 0;

	for (int i = 0; i < block_count; i++)
		count += blocks[i].is_there;
	return count;
}

static const char *text(const char *given)
{
	return given ? given : "";
}

int cnre_kv_open(struct cnre *client, const char *kv_namespace, const struct cnre_kv_identity *identity,
		 struct cnre_kv **ret_kv)
{
	struct cnre_kv *kv;

	(void)client;
	if (fake_kv_store.open_error)
		return fake_kv_store.open_error;
	snprintf(fake_kv_store.representation, sizeof fake_kv_store.representation, "%s", identity->representation);
	snprintf(fake_kv_store.position, sizeof fake_kv_store.position, "%s", identity->position);
	snprintf(fake_kv_store.salt, sizeof fake_kv_store.salt, "%s", text(identity->salt));
	snprintf(fake_kv_store.space, sizeof fake_kv_store.space, "%s", text(kv_namespace));
	kv = calloc(1, sizeof *kv);
	kv->block_tokens = identity->block_tokens ? identity->block_tokens : 64;
	kv->block_bytes_max = identity->block_bytes_max;
	snprintf(kv->root, sizeof kv->root, "%s|%s|%s|%u|%s", text(kv_namespace), identity->position,
		 identity->representation, identity->version, text(identity->salt));
	*ret_kv = kv;
	return 0;
}

void cnre_kv_close(struct cnre_kv *kv)
{
	free(kv);
}

static size_t common(const struct block *block, const int32_t *tokens, size_t count)
{
	size_t i = 0;

	while (i < block->count && i < count && block->token[i] == tokens[i])
		i++;
	return i;
}

/* The child of parent that covers most of tokens, or -1. */
static int find_child(const struct cnre_kv *kv, int parent, const int32_t *tokens, size_t count, size_t *ret_usable)
{
	int best = -1;

	*ret_usable = 0;
	for (int i = 0; i < block_count; i++) {
		size_t usable;

		if (!blocks[i].is_there || blocks[i].parent != parent || strcmp(blocks[i].root, kv->root) != 0)
			continue;
		usable = common(&blocks[i], tokens, count);
		if (usable > *ret_usable) {
			*ret_usable = usable;
			best = i;
		}
	}
	return best;
}

int cnre_kv_match(struct cnre_kv *kv, const int32_t *tokens, size_t count, const struct cnre_kv_media *media,
		  size_t media_count, struct cnre_kv_chain **ret_chain)
{
	struct cnre_kv_chain *chain;
	size_t covered = 0;

	(void)media;
	(void)media_count;
	fake_kv_store.matches++;
	if (fake_kv_store.match_error)
		return fake_kv_store.match_error;
	chain = calloc(1, sizeof *chain);
	chain->kv = kv;
	chain->end = ROOT;
	while (covered < count && chain->count < CHAIN_MAX) {
		size_t usable;
		int block = find_child(kv, chain->end, tokens + covered, count - covered, &usable);

		if (block < 0)
			break;
		chain->link[chain->count++] = (struct link){block, usable};
		covered += usable;
		if (usable < kv->block_tokens)
			break;
		chain->end = block;
	}
	chain->is_pinned = chain->count > 0;
	fake_kv_store.open_chains++;
	*ret_chain = chain;
	return (int)covered;
}

int cnre_kv_block(const struct cnre_kv_chain *chain, size_t index, int64_t timeout_ns, const void **ret_data,
		  uint64_t *ret_bytes)
{
	fake_kv_store.last_timeout_ns = timeout_ns;
	if (index >= chain->count)
		return 0;
	fake_kv_store.misuses += !chain->is_pinned;
	if ((int)index == fake_kv_store.block_fails_at)
		return -ETIMEDOUT;
	*ret_data = blocks[chain->link[index].block].payload;
	*ret_bytes = blocks[chain->link[index].block].bytes + (uint64_t)fake_kv_store.bad_bytes;
	return (int)chain->link[index].usable;
}

int cnre_kv_unpin(struct cnre_kv_chain *chain)
{
	chain->is_pinned = 0;
	return 0;
}

/* The child with exactly these tokens, or more of them. */
static int find_same(const struct cnre_kv_chain *chain, const int32_t *tokens, size_t count)
{
	size_t usable;
	int block = find_child(chain->kv, chain->end, tokens, count, &usable);

	return usable == count ? block : -1;
}

static int has_lost_its_parent(const struct cnre_kv_chain *chain)
{
	return chain->end != ROOT && !blocks[chain->end].is_there;
}

int cnre_kv_stage(struct cnre_kv_chain *chain, const int32_t *block_tokens, size_t count,
		  const struct cnre_kv_media *media, size_t media_count, uint64_t bytes, void **ret_buffer)
{
	int same;

	(void)media;
	(void)media_count;
	fake_kv_store.stages++;
	if (chain->is_pinned || chain->staged.payload || count == 0 || count > chain->kv->block_tokens ||
	    bytes > chain->kv->block_bytes_max)
		fake_kv_store.misuses++;
	if (fake_kv_store.stage_error)
		return fake_kv_store.stage_error;
	if (fake_kv_store.stages_refused > 0 && fake_kv_store.stages_refused--)
		return -EAGAIN;
	if (fake_kv_store.stages_stale > 0 && fake_kv_store.stages_stale--) {
		fake_kv_store_forget_blocks();
		return -ESTALE;
	}
	if (has_lost_its_parent(chain))
		return -ESTALE;
	same = find_same(chain, block_tokens, count);
	if (same >= 0) {
		chain->end = count == chain->kv->block_tokens ? same : chain->end;
		return 1;
	}
	chain->staged = (struct block){.parent = chain->end, .is_there = 1, .count = count, .bytes = bytes};
	memcpy(chain->staged.root, chain->kv->root, sizeof chain->staged.root);
	memcpy(chain->staged.token, block_tokens, count * sizeof *block_tokens);
	chain->staged.payload = malloc(bytes);
	memset(chain->staged.payload, 0xff, bytes); /* what is not filled is no number */
	*ret_buffer = chain->staged.payload;
	return 0;
}

/* A leaf that the new block begins with is replaced by it. */
static void replace_leaf(const struct block *fresh)
{
	for (int i = 0; i < block_count; i++)
		if (blocks[i].is_there && blocks[i].parent == fresh->parent && blocks[i].count < fresh->count &&
		    strcmp(blocks[i].root, fresh->root) == 0 &&
		    common(&blocks[i], fresh->token, fresh->count) == blocks[i].count)
			blocks[i].is_there = 0;
}

int cnre_kv_commit(struct cnre_kv_chain *chain, uint64_t compute_ns, uint32_t flags)
{
	(void)flags;
	fake_kv_store.commits++;
	fake_kv_store.compute_ns = compute_ns;
	if (!chain->staged.payload || block_count == BLOCKS_MAX) {
		fake_kv_store.misuses++;
		return -EINVAL;
	}
	replace_leaf(&chain->staged);
	if (chain->staged.count == chain->kv->block_tokens)
		chain->end = block_count;
	blocks[block_count++] = chain->staged;
	chain->staged.payload = NULL;
	return 0;
}

void cnre_kv_release(struct cnre_kv_chain *chain)
{
	if (!chain)
		return;
	free(chain->staged.payload);
	free(chain);
	fake_kv_store.open_chains--;
}

int cnre_kv_route(struct cnre_kv *kv, const int32_t *tokens, size_t count, const struct cnre_kv_media *media,
		  size_t media_count, char *ret_client_name, size_t size)
{
	struct cnre_kv_chain *chain;
	int covered = cnre_kv_match(kv, tokens, count, media, media_count, &chain);

	if (covered < 0)
		return covered;
	cnre_kv_release(chain);
	if (ret_client_name)
		snprintf(ret_client_name, size, "%s", text(fake_kv_store.route_name));
	return covered;
}

int cnre_kv_invalidate(struct cnre_kv *kv)
{
	int count = fake_kv_store_block_count();

	(void)kv;
	fake_kv_store_forget_blocks();
	return count;
}
