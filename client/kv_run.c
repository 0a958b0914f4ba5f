/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The longest run of stored blocks from token 0: whole blocks by name, then, where none fits any more, the child of the
 * last one that has the most tokens in common with what follows. Its state can be cut there, unless the identity is
 * resumed at points only: then the run ends at the last point.
 */
#include "base/crash.h"
#include "client/kv.h"
#include "shm/word.h"

#include <limits.h>
#include <string.h>

int cnre_kv_query_check(const struct cnre_kv_query *query)
{
	struct kv_media_mark mark;
	int r = cnre_kv_check(query->kv);

	if (r < 0)
		return r;
	if ((query->tokens == NULL && query->count > 0) || query->count > INT_MAX ||
	    (query->media == NULL && query->media_count > 0))
		return -EINVAL;
	r = kv_key_media(query->media, query->media_count, 0, 1, &mark);
	return r == -ENODATA ? 0 : r;
}

/* Tokens that can have a name: up to the first media without digest. */
static uint64_t nameable(const struct cnre_kv_query *query)
{
	uint64_t limit = query->count;

	for (size_t i = 0; i < query->media_count; i++)
		if (query->media[i].digest == NULL && query->media[i].token_offset < limit)
			limit = query->media[i].token_offset;
	return limit;
}

static void fill_item(const struct cnre_kv_space *space, uint32_t index, uint32_t word, uint32_t tokens,
		      struct cnre_kv_item *ret_item)
{
	const struct cnre_kv_entry *entry = &space->entry[index];

	*ret_item =
		(struct cnre_kv_item){.entry = index, .tokens = tokens, .flags = entry->flags, .bytes = entry->bytes};
	if (cnre_word_state(word) != CNRE_STATE_READY)
		ret_item->attempt = CNRE_KV_ATTEMPT_SEEN | cnre_word_generation(word);
	memcpy(ret_item->key, entry->key, sizeof ret_item->key);
}

/* The item's lease is up. 1 it is part of the chain, 0: there is no room for it, and the lease is back. */
static int append(const struct cnre_kv_query *query, struct cnre_kv_chain *chain, const struct cnre_kv_item *item)
{
	struct cnre_kv_space *space = query->kv->space;
	int fits = chain->item_count < chain->item_room;

	if (fits && !query->is_probe)
		fits = cnre_kv_pin(space, item->entry, item->bytes) == 0;
	if (!fits || query->is_probe)
		cnre_kv_drop(space, item->entry);
	CNRE_CRASH_POINT("kv-match-pinned");
	if (fits)
		chain->item[chain->item_count++] = *item;
	return fits;
}

/* ---- whole blocks ---- */

/* 1 one more, 0 none is there, -EDQUOT: one is there that may not be leased; or -errno. */
static int append_whole(const struct cnre_kv_query *query, struct cnre_kv_chain *chain)
{
	struct cnre_kv_name name = {
		.root = query->kv->root,
		.parent = chain->tip,
		.tokens = query->tokens + chain->base,
		.position = chain->base,
		.count = query->kv->block_tokens,
		.block_tokens = query->kv->block_tokens,
	};
	struct cnre_kv_item item;
	uint32_t index, word = 0;
	int r = cnre_kv_name_fill(&name, query->media, query->media_count);

	if (r < 0)
		return r;
	index = cnre_kv_find(query->kv->space, &name, &word);
	if (index == CNRE_KV_NONE)
		return 0;
	fill_item(query->kv->space, index, word, name.count, &item);
	item.is_whole = 1;
	if (!append(query, chain, &item))
		return -EDQUOT;
	cnre_kv_chain_advance(chain, name.key, 0);
	return 1;
}

static int append_wholes(const struct cnre_kv_query *query, uint64_t limit, struct cnre_kv_chain *chain)
{
	int r = 1;

	while (r == 1 && limit - chain->base >= query->kv->block_tokens)
		r = append_whole(query, chain);
	return r;
}

/* ---- part of one ---- */

static uint32_t count_equal(const int32_t *a, const int32_t *b, uint32_t most)
{
	uint32_t count = 0;

	while (count < most && a[count] == b[count])
		count++;
	return count;
}

/* Where media differ, both are good for the tokens before the first media of either. 0 or more, or -errno. */
static int cap_at_media(const struct cnre_kv_query *query, uint64_t position, const struct cnre_kv_entry *child,
			uint32_t shared)
{
	struct kv_media_mark mark;
	int r = kv_key_media(query->media, query->media_count, position, child->token_count, &mark);

	if (r == 0 && memcmp(mark.digest, child->media, sizeof mark.digest) == 0)
		return (int)shared;
	if (r < 0 && r != -ENODATA)
		return r;
	r = kv_key_media(query->media, query->media_count, position, shared, &mark);
	if (r < 0)
		return r;
	if (mark.first < shared)
		shared = mark.first;
	return (int)(child->media_first < shared ? child->media_first : shared);
}

/* Tokens of a leased child that the conversation can use; 0: it is not one, or has none. Or -errno. */
static int usable(const struct cnre_kv_query *query, uint64_t limit, const struct cnre_kv_chain *chain,
		  const struct cnre_kv_entry *child)
{
	const struct cnre_kv *kv = query->kv;
	uint64_t left = limit - chain->base;
	uint32_t shared;
	int r;

	if (!cnre_kv_is_sane(child, kv->block_tokens) || child->position != chain->base ||
	    memcmp(child->parent, chain->tip, sizeof child->parent) != 0 ||
	    memcmp(child->root, kv->root, sizeof child->root) != 0)
		return 0;
	shared = count_equal(child->token, query->tokens + chain->base,
			     left < child->token_count ? (uint32_t)left : child->token_count);
	r = shared == 0 ? 0 : cap_at_media(query, chain->base, child, shared);
	if ((kv->flags & CNRE_KV_CHECKPOINTS) != 0 && r > 0 &&
	    ((uint32_t)r < child->token_count || (child->flags & CNRE_KV_ENTRY_POINT) == 0))
		return 0;
	return r;
}

/* The best child with its lease up in *best (tokens 0: none). 0 or -errno, with no lease. */
static int find_child(const struct cnre_kv_query *query, uint64_t limit, const struct cnre_kv_chain *chain,
		      struct cnre_kv_item *best)
{
	struct cnre_kv_space *space = query->kv->space;
	struct cnre_kv_walk walk;
	uint32_t index, word;

	best->tokens = 0;
	cnre_kv_walk_begin(&walk, space->directory, CNRE_KV_BY_PARENT, chain->tip);
	while (limit - chain->base > best->tokens && (index = cnre_kv_walk_next(&walk)) != CNRE_KV_NONE) {
		int tokens;

		if (!cnre_kv_lease(space, index, &word))
			continue;
		tokens = usable(query, limit, chain, &space->entry[index]);
		if (tokens > 0 && (uint32_t)tokens > best->tokens) {
			if (best->tokens > 0)
				cnre_kv_drop(space, best->entry);
			fill_item(space, index, word, (uint32_t)tokens, best);
			continue;
		}
		cnre_kv_drop(space, index);
		if (tokens < 0) {
			if (best->tokens > 0)
				cnre_kv_drop(space, best->entry);
			return tokens;
		}
	}
	return 0;
}

/*
 * A child that is usable to its last token, and full-size, is a whole block that was published since we looked for it by
 * name: the caller takes it for one by its count, so the chain must, too. 1 then: others may follow. 0, or -errno.
 */
static int append_part(const struct cnre_kv_query *query, uint64_t limit, struct cnre_kv_chain *chain)
{
	struct cnre_kv_item best;
	int r = find_child(query, limit, chain, &best);

	if (r < 0 || best.tokens == 0)
		return r;
	best.is_whole = best.tokens == query->kv->block_tokens;
	if (!append(query, chain, &best) || !best.is_whole) /* over the quota: a shorter match */
		return 0;
	cnre_kv_chain_advance(chain, best.key, 0);
	return 1;
}

/* ---- the end of the run ---- */

static void remove_last(const struct cnre_kv_query *query, struct cnre_kv_chain *chain)
{
	const struct cnre_kv_item *last = &chain->item[--chain->item_count];

	if (!query->is_probe)
		cnre_kv_unpin_item(query->kv->space, last);
	if (!last->is_whole)
		return;
	chain->base -= query->kv->block_tokens;
	memcpy(chain->tip, chain->item_count > 0 ? chain->item[chain->item_count - 1].key : query->kv->root,
	       sizeof chain->tip);
}

static void cut_to_point(const struct cnre_kv_query *query, struct cnre_kv_chain *chain)
{
	if ((query->kv->flags & CNRE_KV_CHECKPOINTS) == 0)
		return;
	while (chain->item_count > 0 && (chain->item[chain->item_count - 1].flags & CNRE_KV_ENTRY_POINT) == 0)
		remove_last(query, chain);
}

static int count_tokens(const struct cnre_kv_chain *chain)
{
	uint64_t tokens = 0;

	for (uint32_t i = 0; i < chain->item_count; i++)
		tokens += chain->item[i].tokens;
	return (int)tokens; /* at most the count asked for, an int */
}

int cnre_kv_run(const struct cnre_kv_query *query, struct cnre_kv_chain **ret_chain)
{
	uint64_t limit = nameable(query);
	struct cnre_kv_chain *chain;
	int r = cnre_kv_chain_open(query->kv, limit / query->kv->block_tokens + 1, &chain);

	if (r < 0)
		return r;
	do {
		r = append_wholes(query, limit, chain);
		if (r >= 0)
			r = append_part(query, limit, chain);
	} while (r == 1);
	if (r < 0 && r != -EDQUOT) {
		while (chain->item_count > 0)
			remove_last(query, chain);
		cnre_kv_chain_close(chain);
		return r;
	}
	cut_to_point(query, chain);
	/* [KV11] relaxed: nobody else knows the chain yet. */
	atomic_store_explicit(&chain->is_pinned, !query->is_probe, memory_order_relaxed);
	*ret_chain = chain;
	return count_tokens(chain);
}
